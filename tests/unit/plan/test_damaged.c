/* test_damaged.c: tests plan files with right checksums whose data, slices or code were changed after the compiler
 * wrote them. Either the loader refuses them with a message, or they can be printed, run and judged, whatever they
 * compute. Sanitizers report wrong accesses to memory.
 *
 * DAMAGED_SEED=N draws other damage; DAMAGED_COUNT=N damages each program so often. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "fuzz/reseal.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/dump.h"
#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"
#include "tests/support/temporary.h"

#define CLUSTER "cluster { gpus = 2 }\n"
static const char *const programs[] = {
    "model { heads = 2; kv_heads = 1; head_dim = 8; dtype = fp32 }\n" CLUSTER
    "batch { lengths = [140, 60]; field doc = [0 x 100, 300 x 60, 9 x 40]; field e = [50 x 30, 70000 x 170] }\n"
    "mask m = k <= q and doc[q] == doc[k] and q - run(doc, q) < e[k]\n"
    "plan { mask = m; block = 128; passes = forward, backward }",
    "model { heads = 2; head_dim = 8; table far = [[0.5, -1.0], [0.25, 2.0]]; table near = [3, 1, 0, 2] }\n" CLUSTER
    "batch { lengths = [150, 40]; field g = [0 x 150, 1 x 40] }\n"
    "mask m = near[(q + k) % 4] > h or q == k\n"
    "score bias = if g[k] == 0 then 2.0 * tanh(s / 2.0) else log2(1.5 + s * s) + far[h, near[q % 4] / 2]\n"
    "plan { mask = m; score = bias; sink = [1.0, -0.5]; block = 128; passes = forward, backward }",
    "model { heads = 1; head_dim = 8; dtype = fp16 }\n" CLUSTER
    "batch { lengths = [40:180, 1:60, 90:20]; field w = [5 x 100, 40 x 160] }\n"
    "mask m = slices([60, 180, 0, 100, causal], [100, 160, 90, 170, both], [0, 170, 120, 180, inverse]) or "
    "q - k < w[k]\n"
    "plan { mask = m; block = 128; layout = contiguous; passes = forward, backward }",
};
enum { PROGRAMS = sizeof programs / sizeof *programs, ALL = (1 << FCP_TENSORS) - 1, DAMAGES = 150 };

static uint8_t *bytes_of(const char *text, size_t *out_size) {
    fcp_plan *plan = plan_of(text);
    char path[TEMPORARY];
    cr_assert(temporary_file(path, "damaged") && !fcp_plan_save(plan, path, NULL));
    *out_size = plan->file_size;
    uint8_t *bytes = malloc(*out_size);
    FILE *f = fopen(path, "rb");
    cr_assert(f && bytes && fread(bytes, 1, *out_size, f) == *out_size);
    fclose(f);
    unlink(path);
    fcp_plan_free(plan);
    return bytes;
}

static const int sections[] = {FCP_SECTION_DATA,   FCP_SECTION_DATA,  FCP_SECTION_MASK,  FCP_SECTION_SCORE,
                               FCP_SECTION_SLOPE,  FCP_SECTION_SINK,  FCP_SECTION_BANDS, FCP_SECTION_BAND_ROWS,
                               FCP_SECTION_SLICES, FCP_SECTION_ARRAYS};

/* Damages up to three numbers of one section, or all bytes of the data. */
static void damage(uint8_t *bytes, uint64_t *state) {
    file_entry e[FCP_SECTION_COUNT], *one;
    memcpy(e, bytes + sizeof(file_header), sizeof e);
    do one = &e[sections[splitmix(state) % (sizeof sections / sizeof *sections)]];
    while (one->length < 4);
    uint8_t *at = bytes + one->offset;
    if (one->type == FCP_SECTION_DATA && splitmix(state) % 4 == 0) {
        for (uint64_t i = 0; i < one->length; i++) at[i] = (uint8_t)splitmix(state);
        return;
    }
    for (uint64_t n = 1 + splitmix(state) % 3; n; n--) {
        uint8_t *word = at + splitmix(state) % (one->length / 4) * 4;
        uint32_t x;
        memcpy(&x, word, 4);
        switch (splitmix(state) % 6) {
        case 0: x++; break;
        case 1: x--; break;
        case 2: x = (uint32_t)splitmix(state); break;
        case 3: x ^= 1u << splitmix(state) % 32; break;
        case 4: x = splitmix(state) % 2 ? 0x7ff00000 : 0x80000000; break;
        default: memcpy(&x, at + splitmix(state) % (one->length / 4) * 4, 4); break;
        }
        memcpy(word, &x, 4);
    }
}

static void count_text(void *context, const char *chunk, size_t size) {
    (void)chunk;
    *(size_t *)context += size;
}

static void use(const fcp_plan *plan) {
    fcp_shape shape;
    fcp_packed packed = {{NULL}};
    fcp_session *session = NULL;
    fcp_error err = {0};
    size_t text = 0;
    for (int json = 0; json < 2; json++) cr_assert_eq(fcp_plan_dump(plan, json, count_text, &text, &err), FCP_OK);
    cr_expect(text);
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK, "%s", err.message);
    fcp_packed_draw(&shape, ALL, 7, &packed);
    fcp_session_options options = {.size = sizeof options, .compute_threads = 1};
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_expect_eq(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err), FCP_OK, "%s",
                     err.message);
    fcp_session_free(session);
    fcp_check_report report = FCP_CHECK_START;
    cr_expect_eq(fcp_check_run(plan,
                      &(fcp_check_options){.passes = 3, .threads = 1}, &packed, &report, &err), FCP_OK, "%s",
                      err.message);
    fcp_packed_free(&packed);
}

static unsigned from_environment(const char *name, unsigned otherwise) {
    const char *value = getenv(name);
    return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

Test(damaged, load_or_refuse) {
    uint64_t state = from_environment("DAMAGED_SEED", 1);
    unsigned count = from_environment("DAMAGED_COUNT", DAMAGES);
    for (int i = 0; i < PROGRAMS; i++) {
        size_t size;
        uint8_t *sound = bytes_of(programs[i], &size), *bytes = malloc(size);
        unsigned loaded = 0;
        for (unsigned j = 0; j < count; j++) {
            fcp_plan *plan = NULL;
            fcp_error err = {0};
            memcpy(bytes, sound, size);
            if (j) damage(bytes, &state);
            plan_reseal(bytes, size, false);
            fcp_code code = fcp_plan_load_memory(bytes, size, &plan, &err);
            cr_expect(j || !code, "%s", err.message);
            cr_expect_eq(!code, !*err.message);
            if (code) continue;
            loaded++;
            use(plan);
            fcp_plan_free(plan);
        }
        cr_expect(loaded >= count / 8 && loaded < count, "program %d: %u of %u were loaded", i, loaded, count);
        free(bytes);
        free(sound);
    }
}
