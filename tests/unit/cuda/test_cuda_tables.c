/* test_cuda_tables.c: tables that a run brings, and their gradients, on the stand-in driver. Gradients are
 * compared with the host's, which are exact sums, and with differences of the loss in float64: with the kernels for
 * mma.sync and for sm_90a, for several ranks and ranges of heads, moved work, in host and device memory, with and
 * without graphs. */
#include <math.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/reference.h"
#include "runtime/libraries/cuda_driver.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/rank_tensors.h"
#include "tests/support/scatter.h"

enum { RANKS_MAX = 6, NUMBERS_MAX = 200, TIMES = 4 };

struct bench {
    const char *score, *plan; /* of the program: the score, and what else stands in `plan` */
    unsigned head_dim, ranks, tokens;
    bool fp16, sm90;
    const char *mask;         /* NULL: causal */
    uint64_t scatter;         /* not 0: work is moved, as this number says */
    bool fused;
};

static fcp_plan *plan_of_bench(const struct bench *b) {
    char text[1500];
    snprintf(text, sizeof text,
             "model { heads = 4; kv_heads = 2; head_dim = %u; dtype = %s\n"
             "  table slope = [0.5, 0.25, 0.125, -0.25]\n  table bias = [0.25 x 70, -0.5 x 60]\n"
             "  table near = [[0.5, -0.25, 0.125], [0.0, 1.0, 0.5], [-1.0, 0.75, 0.25], [2.0, 0.5, -0.5]]\n"
             "  table cap = [2.5] }\n"
             "cluster { gpus = %u }\nbatch { lengths = [%u, 61] }\nscore mine = %s\n"
             "mask by_head = causal and (h %% 2 == 0 or q - k < 30)\nplan { mask = %s; score = mine; block = 128%s }\n",
             b->head_dim, b->fp16 ? "fp16" : "bf16", b->ranks, b->tokens, b->score, b->mask ? b->mask : "causal",
             b->plan);
    if (!b->scatter) return plan_named("tables.fcp", text);
    scatter by = scatter_new(b->scatter);
    return scatter_plan(text, &by);
}

static standin *stand_for(const struct bench *b, const fcp_plan *plan) {
    standin *x = stand();
    x->plan = plan;
    x->devices = 2;
    x->major = b->sm90 ? 9 : 8;
    x->minor = 0;
    if (b->sm90) x->shared = 232448;
    x->kernels_with_maps = 0;
    return x;
}

/* The tensors of all ranks of a plan. */
struct run {
    const fcp_plan *plan;
    fcp_shape shape;
    size_t numbers;
    fcp_tensors tensors[RANKS_MAX];
    float table[NUMBERS_MAX], d_table[RANKS_MAX][NUMBERS_MAX];
};

static struct run *run_open(const fcp_plan *plan) {
    struct run *x = calloc(1, sizeof *x);
    x->plan = plan;
    x->numbers = fcp_plan_table_numbers(plan);
    fcp_plan_shape(plan, &x->shape);
    cr_assert(x->numbers && x->numbers <= NUMBERS_MAX && x->shape.ranks <= RANKS_MAX);
    rank_tensors_open(plan, &x->shape, x->tensors);
    return x;
}

static void run_close(struct run *x) {
    rank_tensors_close(&x->shape, x->tensors);
    free(x);
}

/* Both passes; with `own`, on tables of the run. */
static void passes(struct run *x, fcp_session *session, bool own) {
    fcp_error err = {0};
    for (size_t i = 0; i < x->numbers; i++) x->table[i] = 0.75f - 0.25f * (float)(i % 7);
    for (uint32_t r = 0; r < x->shape.ranks; r++) {
        for (size_t i = 0; i < x->numbers; i++) x->d_table[r][i] = 99;
        x->tensors[r].table = own ? x->table : NULL;
        x->tensors[r].d_table = x->d_table[r];
    }
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run(session, (fcp_pass)pass, x->tensors, &err) == FCP_OK, "%s; %s", err.message,
                  stand()->trouble);
}

static double sum_of(const struct run *x, size_t number) {
    double sum = 0;
    for (uint32_t r = 0; r < x->shape.ranks; r++) sum += (double)x->d_table[r][number];
    return sum;
}

/* Differences are measured by the largest number: a number is a sum of many that cancel out, and delta, which is in
 * each of them, is made of an O that either has rounded to bf16 or fp16. */
static void compare(const struct run *cuda, const struct run *host, const char *what) {
    double largest = 0;
    for (size_t i = 0; i < host->numbers; i++) largest = fmax(largest, fabs(sum_of(host, i)));
    cr_assert(largest > 0.2, "%s: nothing was tested", what);
    for (size_t i = 0; i < host->numbers; i++) {
        const double a = sum_of(cuda, i), b = sum_of(host, i);
        cr_assert(fabs(a - b) < 0.008 * largest, "%s: number %zu: %g, not %g", what, i, a, b);
    }
}

static fcp_session *session_as(const fcp_plan *plan, const char *backend, fcp_fuse fuse) {
    const fcp_session_options options = {.size = sizeof options, .backend = backend, .timeout_s = 100, .fuse = fuse};
    fcp_session *session;
    fcp_error err = {0};
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    return session;
}

static fcp_session *session_of(const fcp_plan *plan, const char *backend) {
    return session_as(plan, backend, FCP_FUSE_STAGES);
}

/* From the third run on a pass by stages is a graph; every other run has tables of its own. Blocks begin in another
 * order each time, and the bits stay. */
static void judge(const struct bench *b) {
    fcp_plan *plan = plan_of_bench(b);
    standin *x = stand_for(b, plan);
    struct run *ours = run_open(plan), *theirs = run_open(plan);
    fcp_session *cuda = session_as(plan, "cuda", b->fused ? FCP_FUSE_PASS : FCP_FUSE_STAGES);
    fcp_session *host = session_of(plan, "host");
    static float first[2][RANKS_MAX][NUMBERS_MAX];
    const bool thrice = b->ranks == 3 && !b->fused && !b->scatter; /* in make check one plan shows that */
    for (int time = 0; time < (int)amount(thrice ? TIMES - 1 : 2, TIMES); time++) {
        const bool own = time % 2 == 0;
        x->seed = (uint64_t)time + 1;
        passes(ours, cuda, own);
        if (time < 2) {
            passes(theirs, host, own);
            compare(ours, theirs, b->score);
            memcpy(first[time], ours->d_table, sizeof ours->d_table);
        } else cr_assert(memcmp(first[time % 2], ours->d_table, sizeof ours->d_table) == 0, "the same bits");
    }
    cr_assert(memcmp(first[0], first[1], sizeof ours->d_table) != 0, "a run's own tables matter");
    cr_assert(b->fused == (x->kernels_with_flags > 0), "%lu kernels with flags", x->kernels_with_flags);
    cr_assert(b->sm90 == (x->kernels_with_maps > 0), "%lu kernels with maps", x->kernels_with_maps);
    fcp_session_free(cuda);
    fcp_session_free(host);
    cr_assert(!*x->trouble && !x->live, "%s: %s", b->score, x->trouble);
    run_close(ours);
    run_close(theirs);
    fcp_plan_free(plan);
}

static const char alibi[] = "s - slope[h] * (q - k) / 30.0", relative[] = "s + bias[min(q - k, 120) + 3]",
                  capped[] = "cap[0] * tanh((s * slope[q % 4] + near[h, k % 3]) / cap[0])";

Test(cuda_tables, slopes) { judge(&(struct bench){alibi, "", 16, 1, 140}); }
Test(cuda_tables, relative_positions) { judge(&(struct bench){relative, "", 32, 1, 140, .fp16 = true}); }
Test(cuda_tables, capped_on_several_ranks) { judge(&(struct bench){capped, "; layout = zigzag", 16, 3, 150}); }
Test(cuda_tables, ranges_of_heads) { judge(&(struct bench){capped, "; strategy = ulysses", 16, 2, 90}); }
Test(cuda_tables, moved_work) { judge(&(struct bench){relative, "", 16, 3, 200, .scatter = 5}); }
Test(cuda_tables, beside_atomics) { judge(&(struct bench){capped, "; deterministic = false", 16, 2, 140}); }
Test(cuda_tables, heads_apart) { judge(&(struct bench){capped, "", 16, 2, 140, .mask = "by_head"}); }
Test(cuda_tables, sm90) { judge(&(struct bench){capped, "", 64, 2, 140, .sm90 = true}); }
Test(cuda_tables, sm90_of_head_dim_128) {
    judge(&(struct bench){relative, "", 128, 1, 140, .fp16 = true, .sm90 = true});
}

/* The kernel that makes these gradients waits for nothing, behind one that has waited. */
Test(cuda_tables, fused) {
    judge(&(struct bench){capped, "; margin = 1; strategy = fcp(coalesce = 1, buffers = 8)", 16, 3, 150,
                          .fused = true});
}
Test(cuda_tables, fused_heads_apart) {
    judge(&(struct bench){relative, "; margin = 1; strategy = cad(buffers = 2)", 64, 3, 150, .mask = "by_head",
                          .sm90 = true, .fused = true});
}

/* --- float64 ------------------------------------------------------------------------------------------------------ */

/* sum of O * dO, by the definition */
static double loss(const fcp_plan *plan, const fcp_packed *packed, const float *d_o, size_t count) {
    double *o = malloc(count * sizeof *o), sum = 0;
    cr_assert(fcp_reference_compute(plan, packed, 2, &(fcp_reference){.o = o}, NULL) == FCP_OK);
    for (size_t i = 0; i < count; i++) sum += o[i] * (double)d_o[i];
    free(o);
    return sum;
}

/* The gradient by number i, by differences. */
static double difference(const fcp_plan *plan, const fcp_packed *packed, const float *d_o, size_t count, double *x) {
    const double step = 1e-5, kept = *x;
    double d[2];
    for (int side = 0; side < 2; side++) {
        *x = kept + (side ? step : -step);
        d[side] = loss(plan, packed, d_o, count);
    }
    *x = kept;
    return (d[1] - d[0]) / (2 * step);
}

/* Tensors of one rank in this layout are the packed batch. */
Test(cuda_tables, are_differences_in_float64) {
    enum { MOST = 17 };
    const struct bench b = {capped, "; layout = contiguous", 16, 1, 70};
    fcp_plan *plan = plan_of_bench(&b);
    standin *x = stand_for(&b, plan);
    struct run *ours = run_open(plan);
    fcp_session *cuda = session_of(plan, "cuda");
    fcp_packed packed = {0};
    fcp_table t;
    double want[MOST], got[MOST], largest = 0;
    size_t numbers = 0;
    passes(ours, cuda, false);
    for (int i = 0; i < FCP_TENSORS; i++) packed.t[i] = fcp_tensors_get(&ours->tensors[0], (fcp_tensor)i);
    const size_t count = ours->shape.tokens * ours->shape.heads * ours->shape.head_dim;
    float *d_o = malloc(count * sizeof *d_o);
    for (size_t i = 0; i < count; i++) d_o[i] = fcp_bf16_float(((const uint16_t *)packed.t[FCP_TENSOR_DO])[i]);
    for (uint32_t n = 0; n < fcp_plan_tables(plan, n, &t); n++) {
        for (size_t i = 0; strcmp(t.name, "bias") && i < t.rows * (t.columns ? t.columns : 1); i++, numbers++) {
            cr_assert(numbers < MOST);
            want[numbers] = difference(plan, &packed, d_o, count, (double *)(uintptr_t)&t.values[i]);
            got[numbers] = (double)ours->d_table[0][t.first + i];
            largest = fmax(largest, fabs(want[numbers]));
        }
    }
    cr_assert(numbers == MOST && largest > 0.2, "nothing was tested");
    for (size_t i = 0; i < numbers; i++)
        cr_assert(fabs(got[i] - want[i]) < 0.008 * largest, "number %zu: %g, not %g", i, got[i], want[i]);
    fcp_session_free(cuda);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    free(d_o);
    run_close(ours);
    fcp_plan_free(plan);
}

/* --- what else a caller may do ------------------------------------------------------------------------------------ */

/* Tables and gradients in memory of a device give what those in host memory give. */
Test(cuda_tables, in_device_memory) {
    const struct bench b = {capped, "", 16, 1, 90};
    fcp_plan *plan = plan_of_bench(&b);
    standin *x = stand_for(&b, plan);
    struct run *run = run_open(plan);
    fcp_session *session = session_of(plan, "cuda");
    const size_t bytes = run->numbers * sizeof(float);
    cu_ptr memory[2];
    fcp_cuda *cuda;
    fcp_error err = {0};
    float got[NUMBERS_MAX];
    passes(run, session, true);
    cr_assert(fcp_cuda_open(&cuda, &err) == FCP_OK, "%s", err.message);
    cu_context context;
    cr_assert(!cuda->call.context_retain(&context, 0) && !cuda->call.context_set(context));
    for (int i = 0; i < 2; i++) cr_assert(!cuda->call.allocate(&memory[i], bytes));
    memcpy((void *)(uintptr_t)memory[0], run->table, bytes);
    run->tensors[0].table = (const float *)(uintptr_t)memory[0];
    run->tensors[0].d_table = (float *)(uintptr_t)memory[1];
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run(session, (fcp_pass)pass, run->tensors, &err) == FCP_OK, "%s", err.message);
    memcpy(got, (const void *)(uintptr_t)memory[1], bytes);
    cr_assert(memcmp(got, run->d_table[0], bytes) == 0);
    run->tensors[0].d_table = (float *)(uintptr_t)(memory[1] + bytes - 4); /* its memory ends before it does */
    cr_assert(fcp_session_run(session, FCP_BACKWARD, run->tensors, &err) == FCP_E_TENSOR);
    cr_assert(strstr(err.message, "tensor d_table"), "%s", err.message);
    for (int i = 0; i < 2; i++) cuda->call.release(memory[i]);
    fcp_session_free(session);
    cuda->call.context_release(0);
    fcp_cuda_close(cuda);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    run_close(run);
    fcp_plan_free(plan);
}

/* A score that reads tables at too many places is run, and has no gradients. */
Test(cuda_tables, of_a_score_that_is_too_large) {
    char score[9000] = "s";
    for (int i = 0; i < 257; i++) snprintf(score + strlen(score), 40, " + bias[(q + %d) %% 130]", i);
    char text[10000];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = bf16; table bias = [0.25 x 130] }\n"
             "batch { lengths = [40] }\nscore mine = %s\nplan { mask = causal; score = mine; block = 128 }\n", score);
    fcp_plan *plan = plan_named("large.fcp", text);
    standin *x = stand();
    x->plan = plan;
    fcp_session *session = session_of(plan, "cuda");
    struct run *run = run_open(plan);
    fcp_error err = {0};
    cr_assert(fcp_session_run(session, FCP_FORWARD, run->tensors, &err) == FCP_OK, "%s", err.message);
    run->tensors[0].d_table = run->d_table[0];
    cr_assert(fcp_session_run(session, FCP_BACKWARD, run->tensors, &err) == FCP_E_TENSOR);
    cr_assert(strstr(err.message, "257 places (at most 256)"), "%s", err.message);
    run->tensors[0].d_table = NULL;
    cr_assert(fcp_session_run(session, FCP_BACKWARD, run->tensors, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    run_close(run);
    fcp_plan_free(plan);
}

/* A session that goes on with another batch gives what a new one gives, and a run that wants no gradients launches no
 * kernel for them. */
Test(cuda_tables, of_the_next_batch) {
    const struct bench both[] = {{capped, "", 16, 2, 90}, {capped, "", 16, 2, 150}};
    fcp_plan *plans[] = {plan_of_bench(&both[0]), plan_of_bench(&both[1])};
    standin *x = stand_for(&both[0], plans[0]);
    struct run *run = run_open(plans[0]), *again = run_open(plans[1]), *anew = run_open(plans[1]);
    fcp_session *session = session_of(plans[0], "cuda");
    fcp_error err = {0};
    passes(run, session, true);
    x->plan = plans[1];
    cr_assert(fcp_session_rebind(session, plans[1], &err) == FCP_OK, "%s", err.message);
    passes(again, session, false);
    const unsigned long before = x->kernels;
    for (uint32_t r = 0; r < 2; r++) again->tensors[r].d_table = NULL;
    cr_assert(fcp_session_run(session, FCP_BACKWARD, again->tensors, &err) == FCP_OK, "%s", err.message);
    const unsigned long without = x->kernels - before;
    for (uint32_t r = 0; r < 2; r++) again->tensors[r].d_table = again->d_table[r];
    cr_assert(fcp_session_run(session, FCP_BACKWARD, again->tensors, &err) == FCP_OK, "%s", err.message);
    cr_assert(x->kernels - before - without > without);
    fcp_session_free(session);
    session = session_of(plans[1], "cuda");
    passes(anew, session, false);
    cr_assert(memcmp(again->d_table, anew->d_table, sizeof anew->d_table) == 0);
    fcp_session_free(session);
    cr_assert(!*x->trouble && !x->live, "%s", x->trouble);
    run_close(run);
    run_close(again);
    run_close(anew);
    for (int i = 0; i < 2; i++) fcp_plan_free(plans[i]);
}

/* Without tables there is nothing to bring and nothing to learn. */
Test(cuda_tables, of_a_plan_without_any) {
    fcp_plan *plan = make_plan("causal", 1, 1, "; score = alibi");
    standin *x = stand();
    x->plan = plan;
    fcp_session *session = session_of(plan, "cuda");
    float number[1] = {0};
    const fcp_tensors both[] = {{.table = number}, {.d_table = number}};
    fcp_error err = {0};
    for (int i = 0; i < 2; i++) {
        cr_assert(fcp_session_run(session, FCP_BACKWARD, &both[i], &err) == FCP_E_TENSOR);
        cr_assert(strstr(err.message, "tables of its own, and the plan has none"), "%s", err.message);
    }
    fcp_session_free(session);
    fcp_plan_free(plan);
}
