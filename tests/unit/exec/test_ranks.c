/* test_ranks.c: tests the functions for processes that each run some ranks of a plan: the hash by which they compare
 * their plans, the judge on the rows of some ranks, and a session's report on its ranks. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/judge/reference.h"
#include "runtime/judge/packed.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"
#include "tests/support/temporary.h"

enum { ALL = (1 << FCP_TENSORS) - 1, BOTH = 1 << FCP_FORWARD | 1 << FCP_BACKWARD };

static fcp_plan *make_plan(const char *mask) {
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { nodes = 2; gpus = 2 }\n"
             "batch { lengths = [300, 200:400, 70 x 3] }\n"
             "plan { mask = %s; block = 128; layout = zigzag; passes = forward, backward }\n",
             mask);
    return plan_named(mask, text);
}

Test(ranks, digest) {
    fcp_plan *plan = make_plan("causal"), *again = make_plan("causal"), *other = make_plan("full");
    uint8_t a[FCP_DIGEST_BYTES], b[FCP_DIGEST_BYTES], c[FCP_DIGEST_BYTES], d[FCP_DIGEST_BYTES], file[FCP_DIGEST_BYTES];
    char path[TEMPORARY];
    fcp_error err = {0};
    cr_assert(!fcp_plan_digest(plan, a, &err) && !fcp_plan_digest(again, b, &err) && !fcp_plan_digest(other, c, &err));
    cr_assert_arr_eq(a, b, sizeof a);
    cr_assert(memcmp(a, c, sizeof a));
    cr_assert(temporary_file(path, "digest"));
    cr_assert_eq(fcp_plan_save(plan, path, &err), FCP_OK, "%s", err.message);
    FILE *f = fopen(path, "rb");
    char *bytes = malloc(plan->file_size);
    cr_assert(f && bytes && fread(bytes, 1, plan->file_size, f) == plan->file_size && fgetc(f) == EOF);
    fclose(f);
    EVP_Digest(bytes, plan->file_size, file, NULL, EVP_sha256(), NULL);
    cr_assert_arr_eq(a, file, sizeof a, "not of the file's bytes");
    fcp_plan *loaded = NULL;
    cr_assert_eq(fcp_plan_load(path, &loaded, &err), FCP_OK);
    cr_assert_eq(fcp_plan_digest(loaded, d, &err), FCP_OK);
    cr_assert_arr_eq(a, d, sizeof a, "not the same once loaded");
    unlink(path);
    free(bytes);
    fcp_plan_free(loaded);
    fcp_plan_free(plan);
    fcp_plan_free(again);
    fcp_plan_free(other);
}

/* Each rank judges its own rows, with the same allowance, and all of them together judge all. What an LSE may be off by
 * depends on it, so of LSE the rank of the largest error has the allowance. */
Test(ranks, judge_their_rows) {
    fcp_plan *plan = make_plan("causal");
    fcp_session *session = NULL;
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_error err = {0};
    fcp_check_report whole = FCP_CHECK_START;
    uint32_t first = 9;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 5, &packed);
    cr_assert_eq(fcp_session_create(plan, NULL, &session, &err), FCP_OK, "%s", err.message);
    cr_assert(fcp_session_ranks(session, &first) == 4 && first == 0 && fcp_session_processes(session) == 1);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err), FCP_OK, "%s",
                     err.message);
    cr_assert_eq(fcp_session_wait(session, &err), FCP_OK);
    int said = 42, heard = 0;
    cr_assert(fcp_session_gather(session, &said, sizeof said, &heard, &err) == FCP_OK && heard == 42);
    cr_assert_eq(fcp_session_gather(session, &said, FCP_GATHER_BYTES + 1, &heard, &err), FCP_E_ARGUMENT);
    fcp_session_free(session);
    cr_assert_eq(fcp_check_run(plan,
                      &(fcp_check_options){.passes = BOTH, .threads = 1}, &packed, &whole, &err), FCP_OK);
    cr_assert(whole.ok);
    double most[FCP_TENSORS] = {0}, allowed[FCP_TENSORS] = {0};
    for (uint32_t r = 0; r < shape.ranks; r++) {
        fcp_check_report part = FCP_CHECK_START;
        cr_assert_eq(fcp_check_run(plan,
                          &(fcp_check_options){.passes = BOTH, .first = r, .count = 1, .threads = 1}, &packed, &part,
                          &err), FCP_OK);
        cr_assert(part.ok);
        for (int t = 0; t < FCP_TENSORS; t++) {
            const fcp_check *x = &part.tensor[t];
            if (r && x->max_abs_error <= most[t]) continue;
            most[t] = x->max_abs_error;
            allowed[t] = x->tolerance;
        }
    }
    for (int t = 0; t < FCP_TENSORS; t++) {
        cr_assert_eq(most[t], whole.tensor[t].max_abs_error, "%s", fcp_tensor_name((fcp_tensor)t));
        cr_assert_eq(allowed[t], whole.tensor[t].tolerance, "%s", fcp_tensor_name((fcp_tensor)t));
    }
    /* one wrong number is one rank's, which is the one that holds its token */
    for (int t = FCP_TENSOR_O; t < FCP_TENSORS; t++) {
        if (t == FCP_TENSOR_DO || t == FCP_TENSOR_DLSE) continue;
        float *at = (float *)packed.t[t] + 777, right = *at;
        unsigned finders = 0;
        *at = right + 1;
        for (uint32_t r = 0; r < shape.ranks; r++) {
            fcp_check_report part = FCP_CHECK_START;
            cr_assert_eq(fcp_check_run(plan,
                              &(fcp_check_options){.passes = BOTH, .first = r, .count = 1, .threads = 1}, &packed,
                              &part, &err), FCP_OK);
            finders += !part.ok;
            cr_assert(part.ok || part.tensor[t].worst == 777);
        }
        cr_assert_eq(finders, 1, "%s: %u ranks find it", fcp_tensor_name((fcp_tensor)t), finders);
        *at = right;
    }
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}
