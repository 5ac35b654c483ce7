/* fuzz_plan.c: gives bytes to the plan loader, the check of plans and the verifier.
 *
 * Oracle: Loading bytes never crashes, hangs or leaks: neither the bytes as they are, nor with their checksums made
 *     right. Of a plan that loads,
 *           both printed forms can be made, and the plan saved and loaded again prints the same text
 *           kernels are emitted, or refused because of its model, its passes or their size
 *           the proof of its pairs says yes, no, or that it would take too long
 *           its documents begin in order, and the positions and rows of every rank's tokens can be asked for
 *           if it has layers that recur, the stretches of every rank are its tokens
 * Input:  any bytes; the corpus holds small plans, right and damaged.
 * Build:  clang -fsanitize=fuzzer,address,undefined, with libfcp.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/jit/kernel_source.h"
#include "fuzz/change_number.h"
#include "fuzz/reseal.h"
#include "runtime/plan/dump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

typedef struct text {
    uint64_t size, hash;
} text;

static void collect(void *context, const char *chunk, size_t size) {
    text *t = context;
    for (size_t i = 0; i < size; i++) t->hash = (t->hash ^ (uint8_t)chunk[i]) * UINT64_C(0x100000001b3);
    t->size += size;
}

static text print(const fcp_plan *plan, bool json) {
    text t = {0, UINT64_C(0xcbf29ce484222325)};
    fcp_error err;
    if (fcp_plan_dump(plan, json, collect, &t, &err)) abort();
    return t;
}

static void try_emit(const fcp_plan *plan) {
    unsigned skeletons = (plan->problem->passes & 1u << FCP_FORWARD ? EMIT_FORWARD : 0) |
                         (plan->problem->passes & 1u << FCP_BACKWARD ? EMIT_SPLIT : 0);
    if (fcp_kernel_sums(plan)) skeletons |= EMIT_TABLES;
    if (plan->problem->wire == FCP_BF16) skeletons |= EMIT_WIRE;
    char *source;
    fcp_error err = {0};
    fcp_code code = fcp_kernel_source(plan, skeletons, false, &source, &err);
    if (code != err.code || !code != (source != NULL)) abort();
    if (code && code != FCP_E_TENSOR && code != FCP_E_HEADS && code != FCP_E_PLAN_SIZE) abort();
    free(source);
}

/* A plan may state sequences that are much longer than it is: hence a limit. */
static void try_pairs(const fcp_plan *plan) {
    const double most = 1e-4; /* seconds */
    fcp_error err = {0};
    const fcp_code code = fcp_plan_verify_pairs(plan, most, NULL, NULL, &err);
    if (code != err.code || (code && code != FCP_E_VERIFY_PAIRS && code != FCP_E_TOO_LONG)) abort();
}

/* Where a plan has a field of documents, it has as many bytes as tokens: so all of them can be asked for. */
static void try_documents(const fcp_plan *plan) {
    if (!plan->documents) return;
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    int64_t *room = malloc((shape.tokens + 1) * sizeof *room), first = -1;
    if (!room) return;
    fcp_plan_documents(plan, (uint64_t *)room);
    for (uint64_t i = 0; i < shape.documents; i++) {
        if (room[i] <= first || room[i] >= (int64_t)shape.tokens) abort();
        first = room[i];
    }
    for (uint32_t r = 0; r < shape.ranks; r++)
        for (int shift = -1; shift < 2; shift++) {
            fcp_plan_positions(plan, r, shift < 0, room);
            fcp_plan_rows(plan, r, shift < 0, shift, room);
        }
    free(room);
}

/* Of a verified plan with such layers the stretches are no more than its tables. */
static void try_stretches(const fcp_plan *plan) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    for (uint32_t r = 0; r < shape.ranks && plan->recurrent_count; r++) {
        const uint32_t count = fcp_plan_stretches(plan, r, NULL);
        uint64_t tokens = 0;
        fcp_stretch *all = malloc((count + (size_t)1) * sizeof *all);
        if (!all) return;
        if (fcp_plan_stretches(plan, r, all) != count) abort();
        for (uint32_t i = 0; i < count; tokens += all[i++].length)
            if (all[i].first != tokens || !all[i].length) abort();
        if (tokens != fcp_plan_rank_queries(plan, r)) abort();
        free(all);
    }
}

static void try_load(const uint8_t *data, size_t size) {
    fcp_plan *plan = NULL, *again = NULL;
    fcp_error err = {0};
    fcp_code code = fcp_plan_load_memory(data, size, &plan, &err);
    if (code != err.code || (code && !*err.message)) abort();
    if (code) return;
    text plain = print(plan, false), json = print(plan, true);
    try_emit(plan);
    try_pairs(plan);
    try_documents(plan);
    try_stretches(plan);
    const char *folder = getenv("TMPDIR");
    char path[4200];
    snprintf(path, sizeof path, "%.4000s/fcp-fuzz-%ld.tmp", folder && *folder ? folder : "/tmp", (long)getpid());
    if (fcp_plan_save(plan, path, &err) || fcp_plan_load(path, &again, &err)) abort();
    unlink(path);
    text plain2 = print(again, false), json2 = print(again, true);
    if (plain.size != plain2.size || plain.hash != plain2.hash || json.size != json2.size || json.hash != json2.hash)
        abort();
    fcp_plan_free(again);
    fcp_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_load(data, size);
    if (size < FCP_HEADER_LEAST) return 0;
    uint8_t *copy = malloc(size);
    if (!copy) return 0;
    for (int layout = 0; layout < 2; layout++) {
        memcpy(copy, data, size);
        plan_reseal(copy, size, layout);
        try_load(copy, size);
    }
    free(copy);
    return 0;
}

/* Mostly small changes of single numbers of one table, which leave a plan nearly right; the checksums are made right by
 * the test itself. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    file_entry e[FCP_SECTION_COUNT];
    if (size >= FCP_HEADER_MOST && fuzz_next(&state) % 8) {
        memcpy(e, data + sizeof(file_header), sizeof e);
        for (int tries = 0; tries < 20; tries++) {
            const file_entry *one = &e[fuzz_next(&state) % FCP_SECTION_COUNT];
            if (one->length < 4 || one->offset > size || one->length > size - one->offset) continue;
            fuzz_change_number(data + one->offset, one->length / 4, &state);
            return size;
        }
    }
    return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
}
