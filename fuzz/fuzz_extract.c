/* fuzz_extract.c: gives bytes to the loader of extracts, with the root that they have by their own path.
 *
 * Oracle: Loading bytes never crashes, hangs or leaks. Bytes whose header is made right are proven by the root that is
 *         computed from them, so the checks behind the proof are reached; another root is refused. Of an extract that
 *         loads, rows, positions and documents can be asked for, and the bundles that its session would send can be
 *         walked through: their runs lie in blocks of the extract.
 * Input:  the bytes of an extract (plan/extract_file.h); the corpus holds those of small plans.
 * Build:  clang -fsanitize=fuzzer,address,undefined, with libfcp.
 */
#include <stdlib.h>
#include <string.h>

#include "fuzz/change_number.h"
#include "runtime/exec/bundles.h"
#include "runtime/plan/extract_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

enum { MOST_TOKENS = 1 << 20 }; /* an extract may state sequences that are much longer than it is */

static void try_rows(const fcp_plan *plan, uint32_t rank) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    const uint64_t q = fcp_plan_rank_queries(plan, rank), k = fcp_plan_rank_keys(plan, rank);
    if (q > MOST_TOKENS || k > MOST_TOKENS || shape.documents > MOST_TOKENS) return;
    const uint64_t most = q > k ? q : k;
    int64_t *room = malloc(((most > shape.documents ? most : shape.documents) + 1) * sizeof *room);
    if (!room) return;
    fcp_plan_documents(plan, (uint64_t *)room);
    for (uint64_t i = 0; i < shape.documents; i++)
        if (room[i] < 0 || room[i] >= (int64_t)shape.tokens) abort();
    for (int shift = -1; shift < 2; shift++)
        for (int keys = 0; keys < 2; keys++) {
            fcp_plan_rows(plan, rank, keys, shift, room);
            for (uint64_t i = 0; i < (keys ? k : q); i++)
                if (room[i] < -1 || room[i] >= (int64_t)(keys ? shape.key_tokens : shape.tokens)) abort();
            fcp_plan_positions(plan, rank, keys, room);
        }
    free(room);
}

static void try_bundles(const fcp_plan *plan, uint32_t rank) {
    fcp_bundles *bundles = NULL;
    if (fcp_bundles_make(plan, rank, 1, &bundles, NULL)) abort();
    for (uint64_t t = 0; t < plan->transfers_count; t++) {
        if (plan->transfers[t].block != FCP_NONE) continue;
        fcp_bundle_run run;
        const fcp_bundle of = fcp_bundle_of(bundles, rank, &plan->transfers[t]);
        for (uint32_t j = 0; fcp_bundle_next(&of, &plan->transfers[t], &j, &run);)
            if (run.block >= plan->blocks_count || run.first + run.tokens > plan->blocks[run.block].tokens) abort();
    }
    fcp_bundles_free(bundles);
}

static void try_load(const uint8_t *data, size_t size, uint32_t rank, const uint8_t root[FCP_DIGEST_BYTES],
                     bool proven) {
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    const fcp_code code = fcp_extract_load(data, size, rank, root, &plan, &err);
    if (code != err.code || (code && (!*err.message || plan)) || (code == FCP_E_EXTRACT_PROOF && proven)) abort();
    if (code) return;
    if (!proven || fcp_plan_rank(plan) != rank) abort();
    try_rows(plan, rank);
    try_bundles(plan, rank);
    fcp_plan_free(plan);
}

/* Makes the header right, and computes the root to which the path leads. False: there is not even a header. */
static bool seal(uint8_t *bytes, size_t size, uint32_t *out_rank, uint8_t root[FCP_DIGEST_BYTES]) {
    extract_header h;
    if (size < sizeof h) return false;
    memcpy(&h, bytes, sizeof h);
    memcpy(h.magic, FCP_EXTRACT_MAGIC, sizeof h.magic);
    h.version = FCP_PLAN_VERSION;
    if (!h.ranks || h.ranks > FCP_MAX_RANKS) h.ranks = 2;
    h.rank %= h.ranks;
    h.path = fcp_extract_path(h.rank, h.ranks);
    const size_t before = sizeof h + h.path * sizeof(fcp_hash);
    if (size < before) return false;
    h.body = size - before;
    memcpy(bytes, &h, sizeof h);
    fcp_hash at = fcp_extract_leaf(h.rank, bytes + before, h.body);
    const uint8_t *path = bytes + sizeof h;
    for (uint32_t rank = h.rank, n = h.ranks; n > 1; rank /= 2, n = n / 2 + n % 2) {
        fcp_hash beside;
        if ((rank ^ 1) >= n) continue;
        memcpy(&beside, path, sizeof beside);
        path += sizeof beside;
        at = rank & 1 ? fcp_extract_node(&beside, &at) : fcp_extract_node(&at, &beside);
    }
    at = fcp_extract_root(h.ranks, h.digest, &at);
    memcpy(root, at.bytes, FCP_DIGEST_BYTES);
    *out_rank = h.rank;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t root[FCP_DIGEST_BYTES] = {0};
    uint32_t rank = 0;
    if (size >= sizeof(extract_header)) memcpy(&rank, data + offsetof(extract_header, rank), sizeof rank);
    try_load(data, size, rank, root, false);
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    if (seal(copy, size, &rank, root)) try_load(copy, size, rank, root, true);
    free(copy);
    return 0;
}

/* Mostly small changes of single numbers behind the header, which leave an extract nearly right; the root is made right
 * by the test itself. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    const size_t words = size >= sizeof(extract_header) ? (size - sizeof(extract_header)) / 4 : 0;
    if (words && fuzz_next(&state) % 8) {
        fuzz_change_number(data + sizeof(extract_header), words, &state);
        return size;
    }
    return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
}
