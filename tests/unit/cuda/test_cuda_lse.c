/* test_cuda_lse.c: what a caller may leave out, on the stand-in driver: LSE's second float, the gradient of LSE,
 * the largest logits. Tensors are in memory of each kind, so that rows move in every way there is. */
#include <math.h>

#include "runtime/base/numeric.h"
#include "runtime/libraries/cuda_driver.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/rank_tensors.h"

enum { RANKS = 3, HEADS = 4, GUARD = 0x5a };

/* Ordinary host memory; pinned; on the rank's device; on another one; each tensor elsewhere than the one before. */
typedef enum kind { ORDINARY, PINNED, OWN, OTHER, MIXED, KINDS } kind;
static const char *const kind_names[KINDS] = {"ordinary", "pinned", "own device", "other device", "mixed"};

typedef struct place {
    void *at;
    size_t bytes;
    kind kind;
} place;
/* The tensors of all ranks, each in memory of its own, and their largest logits. */
typedef struct caller {
    fcp_cuda *cuda;
    cu_context context[2];
    fcp_shape shape;
    const fcp_plan *plan;
    place places[RANKS][FCP_TENSORS + 1];
} caller;

static place take(caller *c, kind k, uint32_t rank, size_t bytes) {
    const fcp_cuda_table *call = &c->cuda->call;
    place p = {NULL, bytes, k};
    cu_ptr device = 0;
    cr_assert_eq(call->context_set(c->context[(rank + (k == OTHER)) % 2]), 0);
    if (k == ORDINARY) p.at = malloc(bytes + 1);
    else if (k == PINNED) cr_assert_eq(call->allocate_host(&p.at, bytes + 4, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP), 0);
    else cr_assert_eq(call->allocate(&device, bytes + 4), 0);
    if (device) p.at = (void *)(uintptr_t)device; /* memory of this process, as it happens */
    memset(p.at, GUARD, bytes);
    return p;
}

static void open_caller(caller *c, const fcp_plan *plan, kind k) {
    fcp_error err;
    *c = (caller){.plan = plan};
    fcp_plan_shape(plan, &c->shape);
    cr_assert_eq(fcp_cuda_open(&c->cuda, &err), FCP_OK, "%s", err.message);
    for (int d = 0; d < 2; d++) cr_assert_eq(c->cuda->call.context_retain(&c->context[d], d), 0);
    for (uint32_t r = 0; r < c->shape.ranks; r++)
        for (int t = 0; t <= FCP_TENSORS; t++) {
            const size_t bytes = t == FCP_TENSORS ? HEADS * sizeof(float)
                                                  : fcp_tensors_tokens(plan, r, (fcp_tensor)t) *
                                                        fcp_tensor_token_bytes(&c->shape, (fcp_tensor)t);
            c->places[r][t] = take(c, k == MIXED ? (kind)((r + (uint32_t)t) % MIXED) : k, r, bytes);
            if (t < FCP_TENSORS) rank_tensor_draw(&c->shape, r + 1, 1u << t, bytes, t, c->places[r][t].at);
        }
    cr_assert_eq(c->cuda->call.context_set(NULL), 0);
}

static void close_caller(caller *c) {
    cr_assert_eq(c->cuda->call.context_set(c->context[0]), 0);
    for (uint32_t r = 0; r < c->shape.ranks; r++)
        for (int t = 0; t <= FCP_TENSORS; t++) {
            const place *p = &c->places[r][t];
            if (p->kind == ORDINARY) free(p->at);
            else if (p->kind == PINNED) cr_assert_eq(c->cuda->call.release_host(p->at), 0);
            else cr_assert_eq(c->cuda->call.release((cu_ptr)(uintptr_t)p->at), 0);
        }
    for (int d = 0; d < 2; d++) cr_assert_eq(c->cuda->call.context_release(d), 0);
    fcp_cuda_close(c->cuda);
}

/* Runs a pass. left_out: a bit for each tensor that ranks from `from` on leave out; bit FCP_TENSORS: the largest
 * logits. */
static void run(const caller *c, fcp_session *session, fcp_pass pass, unsigned left_out, uint32_t from) {
    fcp_tensors tensors[RANKS] = {{0}};
    fcp_error err;
    for (uint32_t r = 0; r < c->shape.ranks; r++) {
        const unsigned out = r >= from ? left_out : 0;
        for (int t = 0; t < FCP_TENSORS; t++)
            if (!(out >> t & 1)) fcp_tensors_set(&tensors[r], (fcp_tensor)t, c->places[r][t].at);
        if (!(out >> FCP_TENSORS & 1)) tensors[r].max_logit = c->places[r][FCP_TENSORS].at;
        if (!c->shape.lse_gradient) tensors[r].d_lse = NULL;
    }
    cr_assert(fcp_session_run(session, pass, tensors, &err) == FCP_OK, "%s; %s", err.message, stand()->trouble);
}

/* What tensors of a set hold, rank by rank; and filling them with a byte. */
static char *copy_of(const caller *c, unsigned set) {
    size_t bytes = 0;
    for (uint32_t r = 0; r < c->shape.ranks; r++)
        for (int t = 0; t <= FCP_TENSORS; t++) bytes += set >> t & 1 ? c->places[r][t].bytes : 0;
    char *all = malloc(bytes + 1), *at = all;
    for (uint32_t r = 0; r < c->shape.ranks; r++)
        for (int t = 0; t <= FCP_TENSORS; t++)
            if (set >> t & 1) memcpy(at, c->places[r][t].at, c->places[r][t].bytes), at += c->places[r][t].bytes;
    return all;
}
static bool holds(const caller *c, unsigned set, const char *want) {
    for (uint32_t r = 0; r < c->shape.ranks; r++)
        for (int t = 0; t <= FCP_TENSORS; t++)
            if (set >> t & 1) {
                if (memcmp(want, c->places[r][t].at, c->places[r][t].bytes)) return false;
                want += c->places[r][t].bytes;
            }
    return true;
}
static void fill(const caller *c, unsigned set, int byte) {
    for (uint32_t r = 0; r < c->shape.ranks; r++)
        for (int t = 0; t <= FCP_TENSORS; t++)
            if (set >> t & 1) memset(c->places[r][t].at, byte, c->places[r][t].bytes);
}

enum {
    RESULTS = 1 << FCP_TENSOR_O | 1 << FCP_TENSOR_LSE,
    LOW = 1 << FCP_TENSOR_LSE_LOW,
    D_LSE = 1 << FCP_TENSOR_DLSE,
    MAXIMA = 1 << FCP_TENSORS,
    GRADIENTS = 1 << FCP_TENSOR_DQ | 1 << FCP_TENSOR_DK | 1 << FCP_TENSOR_DV
};

/* Left out or not, results have the same bits, and nothing is written where nothing is wanted. What is left out of a
 * backward pass is zeros. */
static void leave_out(const caller *c, fcp_session *session, uint32_t from, const char *what) {
    run(c, session, FCP_FORWARD, 0, 0);
    char *all = copy_of(c, RESULTS | LOW | MAXIMA);
    fill(c, RESULTS | LOW | MAXIMA, GUARD);
    run(c, session, FCP_FORWARD, LOW | MAXIMA, from);
    for (uint32_t r = from; r < c->shape.ranks; r++)
        for (int t = FCP_TENSOR_LSE_LOW; t <= FCP_TENSORS; t += FCP_TENSORS - FCP_TENSOR_LSE_LOW)
            for (size_t i = 0; i < c->places[r][t].bytes; i++)
                cr_assert_eq(((const char *)c->places[r][t].at)[i], GUARD, "%s: written, and left out", what);
    char *some = copy_of(c, RESULTS);
    run(c, session, FCP_FORWARD, 0, 0);
    cr_assert(holds(c, RESULTS | LOW | MAXIMA, all) && holds(c, RESULTS, some), "%s: other results", what);
    free(some);
    free(all);

    const unsigned optional = LOW | (c->shape.lse_gradient ? D_LSE : 0);
    run(c, session, FCP_BACKWARD, 0, 0);
    char *given = copy_of(c, GRADIENTS), *kept = copy_of(c, optional);
    fill(c, GRADIENTS, GUARD);
    run(c, session, FCP_BACKWARD, optional, from);
    char *left = copy_of(c, GRADIENTS);
    for (uint32_t r = from; r < c->shape.ranks; r++)
        for (int t = 0; t < FCP_TENSORS; t++)
            if (optional >> t & 1) memset(c->places[r][t].at, 0, c->places[r][t].bytes);
    fill(c, GRADIENTS, GUARD);
    run(c, session, FCP_BACKWARD, 0, 0);
    cr_assert(holds(c, GRADIENTS, left), "%s: what is left out is not as zeros", what);
    cr_assert(!holds(c, GRADIENTS, given), "%s: what is given changes nothing", what);
    const char *at = kept;
    for (uint32_t r = 0; r < c->shape.ranks; r++)
        for (int t = 0; t < FCP_TENSORS; t++)
            if (optional >> t & 1) memcpy(c->places[r][t].at, at, c->places[r][t].bytes), at += c->places[r][t].bytes;
    run(c, session, FCP_BACKWARD, 0, 0);
    cr_assert(holds(c, GRADIENTS, given), "%s: other gradients", what);
    free(given);
    free(kept);
    free(left);
}

static fcp_plan *lse_plan(const char *more) {
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\ncluster { gpus = 3 }\n"
             "batch { lengths = [190, 61, 70] }\nplan { mask = causal; block = 128; lse_gradient = true%s }\n", more);
    return plan_named("lse.fcp", text);
}

/* In memory of every kind, all bits are the same. */
static void every_kind(const char *more, uint32_t graph_from, fcp_fuse fuse) {
    standin *x = stand();
    fcp_plan *plan = lse_plan(more);
    char *first[2] = {NULL, NULL};
    x->devices = 2;
    x->plan = plan;
    for (int k = 0; k < KINDS; k++) {
        if (amount(k == PINNED, false)) continue; /* MIXED has it, too */
        const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100,
                                             .graph_from = graph_from, .stage_bytes = 3000, .fuse = fuse,
                                             .partition = FCP_PARTITION_GRID};
        fcp_session *session;
        fcp_error err;
        caller c;
        const long live = x->live;
        x->seed = (uint64_t)k + graph_from;
        open_caller(&c, plan, (kind)k);
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
        leave_out(&c, session, (uint32_t)k % 2, kind_names[k]);
        if (first[0])
            cr_assert(holds(&c, RESULTS | LOW | MAXIMA, first[0]) && holds(&c, GRADIENTS, first[1]),
                      "%s: other bits than in memory of another kind", kind_names[k]);
        else first[0] = copy_of(&c, RESULTS | LOW | MAXIMA), first[1] = copy_of(&c, GRADIENTS);
        fcp_session_free(session);
        close_caller(&c);
        cr_assert_str_empty(x->trouble, "%s: %s", kind_names[k], x->trouble);
        cr_assert_eq(x->live, live, "%s: %ld objects are left", kind_names[k], x->live - live);
    }
    cr_assert_eq(x->pageable_copies, 0);
    free(first[0]);
    free(first[1]);
    fcp_plan_free(plan);
}

Test(cuda_lse, left_out) { every_kind("; layout = zigzag", UINT32_MAX, FCP_FUSE_STAGES); }
Test(cuda_lse, left_out_in_graphs) { every_kind("; layout = contiguous; strategy = ring", 1, FCP_FUSE_STAGES); }
Test(cuda_lse, left_out_of_fused_passes) {
    every_kind("; layout = zigzag; margin = 1; sink = 0.5", UINT32_MAX, FCP_FUSE_PASS);
}

/* --- the largest logits ------------------------------------------------------------------------------------------- */

/* All rows of a tensor of all ranks, as the packed batch has them. */
static float *packed_rows(const caller *c, fcp_tensor t, uint64_t tokens, uint32_t heads) {
    const bool keys = fcp_tensor_of_keys(t);
    const size_t row = (size_t)heads * c->shape.head_dim;
    float *all = calloc(tokens * row + 1, sizeof *all);
    for (uint32_t r = 0; r < c->shape.ranks; r++) {
        const uint64_t count = fcp_tensors_tokens(c->plan, r, t);
        int64_t *places = malloc((count + 1) * sizeof *places);
        fcp_plan_rows(c->plan, r, keys, 0, places);
        for (uint64_t i = 0; i < count; i++)
            fcp_to_float(c->shape.dtype, (const char *)c->places[r][t].at + i * row * 2, all + (size_t)places[i] * row,
                         row);
        free(places);
    }
    return all;
}

/* The largest logit of each head, by definition: all pairs of a causal mask. */
static void define_maxima(const caller *c, double out[HEADS]) {
    const uint32_t kv_heads = c->shape.kv_heads, shared = HEADS / kv_heads, d = c->shape.head_dim;
    float *q = packed_rows(c, FCP_TENSOR_Q, c->shape.tokens, HEADS);
    float *k = packed_rows(c, FCP_TENSOR_K, c->shape.key_tokens, kv_heads);
    for (int h = 0; h < HEADS; h++) out[h] = -INFINITY;
    for (uint32_t s = 0; s < c->shape.sequences; s++) {
        uint64_t queries, keys, first = fcp_plan_sequence_offset(c->plan, s, &queries);
        const uint64_t first_key = fcp_plan_key_offset(c->plan, s, &keys);
        for (uint64_t i = 0; i < queries; i++)
            for (uint64_t j = 0; j < keys && (int64_t)j <= fcp_plan_query_position(c->plan, s) + (int64_t)i; j++)
                for (uint32_t h = 0; h < HEADS; h++) {
                    const float *of_q = q + ((first + i) * HEADS + h) * d;
                    const float *of_k = k + ((first_key + j) * kv_heads + h / shared) * d;
                    double sum = 0;
                    for (uint32_t n = 0; n < d; n++) sum += (double)of_q[n] * (double)of_k[n];
                    out[h] = fmax(out[h], sum * c->shape.scale);
                }
    }
    free(q);
    free(k);
}

/* The largest over ranks is that of the batch. */
static void judge_maxima(const caller *c, const char *what) {
    double want[HEADS];
    define_maxima(c, want);
    for (int h = 0; h < HEADS; h++) {
        double largest = -INFINITY;
        for (uint32_t r = 0; r < c->shape.ranks; r++) {
            float own;
            memcpy(&own, (const char *)c->places[r][FCP_TENSORS].at + (size_t)h * 4, sizeof own);
            cr_assert(!isnan(own), "%s: rank %u, head %d: NaN", what, r, h);
            cr_assert(fcp_plan_rank_queries(c->plan, r) || isinf(own), "%s: rank %u has no rows, and %g", what, r,
                      (double)own);
            largest = fmax(largest, (double)own);
        }
        cr_assert(fabs(largest - want[h]) <= 1e-5 * fabs(want[h]), "%s: head %d: %g, not %g", what, h, largest,
                  want[h]);
    }
}

/* Runs that want them and runs that do not follow each other, by graphs or not. The second that wants them has a
 * quarter of the logits: nothing of the one before is left. */
static void in_turns(uint32_t ranks, const char *lengths, const char *more, uint32_t graph_from, kind k) {
    standin *x = stand();
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\ncluster { gpus = %u }\n"
             "batch { lengths = [%s] }\nplan { mask = causal; block = 128%s }\n", ranks, lengths, more);
    fcp_plan *plan = plan_named("maxima.fcp", text);
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100,
                                         .graph_from = graph_from};
    fcp_session *session;
    fcp_error err;
    caller c;
    const long live = x->live;
    x->devices = 2;
    x->plan = plan;
    open_caller(&c, plan, k);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    for (int i = 0; i < 2; i++) {
        run(&c, session, FCP_FORWARD, MAXIMA, 0);
        fill(&c, MAXIMA, GUARD);
        run(&c, session, FCP_FORWARD, 0, 0);
        judge_maxima(&c, text);
        if (i) continue;
        for (uint32_t r = 0; r < c.shape.ranks; r++) { /* exponents of bf16, two less */
            uint16_t *q = c.places[r][FCP_TENSOR_Q].at;
            for (size_t n = 0; n < c.places[r][FCP_TENSOR_Q].bytes / 2; n++)
                if ((q[n] & 0x7f80) > 0x100) q[n] = (uint16_t)(q[n] - 0x100);
        }
    }
    fcp_session_free(session);
    close_caller(&c);
    cr_assert_str_empty(x->trouble, "%s: %s", text, x->trouble);
    cr_assert_eq(x->live, live);
    fcp_plan_free(plan);
}

Test(cuda_lse, largest_logits) {
    in_turns(3, "190, 61, 70", "; layout = zigzag", UINT32_MAX, ORDINARY);
    in_turns(2, "190, 61, 70", "; strategy = ulysses; layout = contiguous", 1, OWN);
    in_turns(3, "90", "; sink = 50.0", 1, PINNED); /* which is no logit; and some ranks have no rows */
    in_turns(2, "1:1100, 7:700, 130", "; passes = forward", 1, OWN); /* parts of keys, which are put together */
    in_turns(3, "300, 40", "; strategy = dcp", 2, OTHER);
}
