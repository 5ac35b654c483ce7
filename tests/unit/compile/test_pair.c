/* test_pair.c: tests passes that do their work in two pieces (compiler/planning/pair.h). In whatever order the pieces
 * run, a large plan has the same bytes, and an error in one piece has the same message. It also runs under the thread
 * sanitizer.
 */
#include <stdio.h>

#include "tests/support/orders.h"
#include "tests/support/plan_of.h"

#define BATCH "batch { lengths = [9000, 20000 x 6, 700 x 200, 444 x 60, 333 x 400] }\ncluster { nodes = 4; gpus = 8 }\n"
#define MODEL "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\n" BATCH

/* Homes that are chosen and homes that are given; one pass; heads in phases; a batch in two halves; elements that are
 * looked at one by one, from the last sequences on. */
static const char *const programs[] = {
    MODEL "plan { mask = causal; block = 128; strategy = fcp; layout = contiguous }",
    MODEL "plan { mask = causal; block = 128; strategy = fcp; layout = planned; passes = forward }",
    MODEL "plan { mask = causal; block = 128; strategy = cad; layout = contiguous }",
    MODEL "plan { mask = window(w = 3000); block = 128; strategy = cad(pingpong = true); layout = contiguous }",
    MODEL "plan { mask = causal; block = 128; strategy = dcp; layout = planned }",
    "model { heads = 32; kv_heads = 16; head_dim = 16; dtype = bf16 }\n" BATCH
    "plan { mask = causal; block = 128; strategy = ulysses + cad; layout = contiguous }",
    "model { heads = 32; kv_heads = 32; head_dim = 16; dtype = bf16 }\n" BATCH
    "plan { mask = causal; strategy = upipe(heads = 32); layout = zigzag }",
    MODEL "mask late = causal and (n != 333 or (q * q * q + k * k) % 7 != 3)\n"
          "plan { mask = late; block = 128; strategy = fcp; layout = planned }"};
enum { PROGRAMS = sizeof programs / sizeof *programs };

Test(pair, the_same_bytes_in_every_order) {
    for (size_t n = 0; n < PROGRAMS; n++) {
        uint8_t digest[ORDERS][FCP_DIGEST_BYTES];
        char *said[ORDERS];
        int pairs[ORDERS];
        for (order = 0; order < ORDERS; order++) {
            fcp_plan *plan;
            fcp_error err = {0};
            asked = 0;
            fcp_code code = plan_try("test.fcp", programs[n], NULL, 0, &plan, &said[order]);
            cr_assert(code == FCP_OK, "%s\n%s", programs[n], said[order]);
            pairs[order] = asked;
            cr_assert(fcp_plan_digest(plan, digest[order], &err) == FCP_OK, "%s", err.message);
            fcp_plan_free(plan);
            cr_assert(!memcmp(digest[order], digest[0], FCP_DIGEST_BYTES), "%s\norder %d", programs[n], (int)order);
            cr_assert(!strcmp(said[order], said[0]), "%s\n%s\n%s", programs[n], said[order], said[0]);
        }
        cr_assert(pairs[TOGETHER] > pairs[ONE_PROCESSOR], "%s\nmakes nothing in pairs", programs[n]);
        for (int i = 0; i < ORDERS; i++) free(said[i]);
    }
}

/* Of candidates two are tried at a time. With equal tokens their placements ask the mask about new blocks, and what it
 * answers is kept for both. */
Test(pair, candidates_that_ask_the_mask_again) {
    static const char source[] =
        "model { heads = 2; head_dim = 16 }\nbatch { lengths = [2059, 1 x 28, 147] }\ncluster { nodes = 2 }\n"
        "mask near = causal and q - k < 64 * (h % 2 + 1)\n"
        "plan { mask = near; strategy = auto(among = [fcp, dcp]); tokens = equal }";
    uint8_t digest[ORDERS][FCP_DIGEST_BYTES];
    for (order = 0; order < ORDERS; order++) {
        fcp_plan *plan;
        fcp_error err = {0};
        char *said;
        asked = 0;
        fcp_code code = plan_try("test.fcp", source, NULL, 0, &plan, &said);
        cr_assert(code == FCP_OK && asked > 0, "%s", said);
        cr_assert(fcp_plan_digest(plan, digest[order], &err) == FCP_OK, "%s", err.message);
        cr_assert(!memcmp(digest[order], digest[0], FCP_DIGEST_BYTES), "order %d", (int)order);
        fcp_plan_free(plan);
        free(said);
    }
}

/* The mask faults in sequences that either thread is asked about. */
Test(pair, the_first_fault_is_reported) {
    static const char source[] =
        MODEL "mask divides = causal and q / ((n - 444) * (n - 333)) > 0 - 1\n"
              "plan { mask = divides; block = 128; strategy = fcp; layout = planned }";
    char *said[ORDERS];
    for (order = 0; order < ORDERS; order++) {
        fcp_plan *plan;
        fcp_code code = plan_try("test.fcp", source, NULL, 0, &plan, &said[order]);
        cr_assert(code == FCP_E_MASK_DIV_ZERO && !plan, "%s", said[order]);
        cr_assert(strstr(said[order], "of 444 tokens"), "%s", said[order]);
        cr_assert(!strcmp(said[order], said[0]), "%s\n%s", said[order], said[0]);
    }
    for (int i = 0; i < ORDERS; i++) free(said[i]);
}

/* Plans `source` with the values of field z. *out_said: free() it. */
static void plan_with_z(const char *source, const int64_t *z, uint64_t count, uint8_t out_digest[FCP_DIGEST_BYTES],
                        char **out_said) {
    const fcpc_field field = {.name = "z", .values = z, .count = count};
    const fcpc_batch batch = {.size = sizeof batch, .fields = &field, .field_count = 1};
    fcpc_program *program = program_named("test.fcp", source);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    const fcp_code code = fcpc_plan_batch(program, &batch, NULL, d, NULL, &plan);
    *out_said = fcpc_diagnostics_render(d, false);
    cr_assert(code == FCP_OK, "%s\n%s", source, *out_said);
    cr_assert(fcp_plan_digest(plan, out_digest, &err) == FCP_OK, "%s", err.message);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

/* Candidates share what a mask has answered. In a batch of so many keys a second thread is asked about half of them. It
 * must not be asked where the mask reads a field, because the values of one sequence at a time are bound. If it is, the
 * thread sanitizer sees it each time; a plan changes seldom, because only a few sequences get values of others. */
Test(pair, candidates_whose_mask_reads_a_field) {
    enum { SEQUENCES = 2000, LENGTH = 140 };
    static const char *const masks[] = {"causal and q <= z[k]", "q <= z[k] and k <= z[q]"};
    static const char *const strategies[] = {"groups", "cad"};
    static int64_t z[SEQUENCES * LENGTH];
    for (int64_t s = 0; s < SEQUENCES; s++) /* the later a sequence, the farther its keys are seen */
        for (int64_t i = 0; i < LENGTH; i++) z[s * LENGTH + i] = i + 20 * (i % 3) * s / SEQUENCES;
    for (int n = 0; n < 2; n++) {
        uint8_t digest[ORDERS][FCP_DIGEST_BYTES];
        char source[512], *said[ORDERS];
        snprintf(source, sizeof source,
                 "model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 8; gpu = h200 }\n"
                 "batch { lengths = [%d x %d]; field z = given }\nmask own = %s\n"
                 "plan { mask = own; block = 512; strategy = auto(among = [%s]); layout = contiguous }",
                 LENGTH, SEQUENCES, masks[n], strategies[n]);
        for (order = 0; order < ORDERS; order++) {
            plan_with_z(source, z, SEQUENCES * LENGTH, digest[order], &said[order]);
            cr_assert(!memcmp(digest[order], digest[0], FCP_DIGEST_BYTES), "%s\norder %d", source, (int)order);
            cr_assert(!strcmp(said[order], said[0]), "%s\n%s\n%s", source, said[order], said[0]);
        }
        for (int i = 0; i < ORDERS; i++) free(said[i]);
    }
}
