/* test_ptx.c: executes the PTX that NVRTC makes of the kernels for mma.sync, and compares the results with the
 * definition of attention in float64: masks of the prelude, fields, scores, sinks, every head_dim and type, all
 * kernels of the backward pass. Then flaws are put into the PTX, and each must be found.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/machines/ptx/judge.h"

static const fcp_backend *const backends[] = {&ptx_backend, &ptx_ordered_backend, &ptx_unordered_backend};

/* All programs of a list, on each backend in turn. */
static void all_right(const char *const *programs, size_t count) {
    const char *sanitizer = getenv("SAN");
    if (!compiler()) return;
    for (size_t i = 0; i < count; i++)
        if (!sanitizer || !*sanitizer || i % 4 == 0) right(programs[i], backends[i % 3], i + 1); /* slower there */
}

Test(ptx, masks) {
    static const char *const programs[] = {
        MODEL(2, 1, 16, bf16) CLUSTER(1) BATCH(200, 60) PLAN("mask = full"),
        MODEL(2, 2, 32, fp16) CLUSTER(2) BATCH(300, 1) PLAN("mask = causal"),
        MODEL(2, 1, 64, bf16) CLUSTER(2) BATCH(260, 40) PLAN("mask = window(w = 100)"),
        MODEL(2, 1, 16, fp16) CLUSTER(2) BATCH(300, 130) PLAN("mask = window_both(l = 60, r = 150)"),
        MODEL(4, 2, 16, bf16) CLUSTER(1) BATCH(260, 50) PLAN("mask = prefix(p = 77)"),
        MODEL(2, 1, 32, bf16) CLUSTER(2) BATCH(300, 150, 33) PLAN("mask = lambda(sink = 8, window = 100)"),
        MODEL(2, 1, 16, fp16) CLUSTER(2) BATCH(300, 200) PLAN("mask = shared_question"),
        MODEL(1, 1, 32, fp16) CLUSTER(1) BATCH(300, 101) PLAN("mask = causal_blockwise(b = 50, w = 1)"),
        MODEL(2, 1, 16, bf16) CLUSTER(2) BATCH(250, 99) PLAN("mask = block_causal(b = 50)"),
        MODEL(2, 2, 16, fp16) CLUSTER(2) BATCH(300, 20) PLAN("mask = global_window(g = 16, w = 60)"),
        MODEL(1, 1, 16, bf16) CLUSTER(1) BATCH(300, 80) PLAN("mask = dilated(w = 100, d = 7)"),
        MODEL(2, 1, 16, bf16) CLUSTER(2) BATCH(300, 90) PLAN("mask = causal_blockwise_fm(b = 50)"),
        MODEL(1, 1, 32, bf16) CLUSTER(1) BATCH(300, 200) PLAN("mask = qk_sparse(o = 100, m = 60)"),
        MODEL(2, 1, 16, fp16) CLUSTER(2) BATCH(300, 100) PLAN("mask = block_diffusion(b = 16)"),
        MODEL(1, 1, 16, bf16) CLUSTER(1) BATCH(300) PLAN("mask = draft_train(p = 140, b = 4)"),
        MODEL(2, 1, 16, bf16) CLUSTER(2) BATCH(320) PLAN("mask = natten2d(W = 20, kw = 5, kh = 7)"),
        MODEL(1, 1, 16, fp16) CLUSTER(1) BATCH(384) PLAN("mask = sta2d(W = 32, tw = 8, th = 4, kw = 3, kh = 3)"),
        MODEL(1, 1, 16, bf16) CLUSTER(2) BATCH(384)
            PLAN("mask = sta3d(W = 8, H = 8, tw = 4, th = 4, tt = 2, kw = 1, kh = 1, kt = 3)"),
        MODEL(1, 1, 32, fp16) CLUSTER(1) BATCH(350) PLAN("mask = svg_spatial(P = 30, w = 40)"),
        MODEL(2, 1, 16, bf16) CLUSTER(2) BATCH(350) PLAN("mask = svg_temporal(P = 30, T = 20, w = 3)"),
        MODEL(2, 2, 16, fp16) CLUSTER(1)
            BATCH(300, 100) "mask pieces = rect(0..100, 0..50) or rect(50..n, 20..n)\n" PLAN("mask = pieces"),
    };
    all_right(programs, sizeof programs / sizeof *programs);
}

#define FIELD(...) "batch { lengths = [200, 60]\n field x = [" #__VA_ARGS__ "] }\n"
Test(ptx, fields) {
    static const char *const programs[] = {
        MODEL(2, 1, 16, bf16) CLUSTER(2) FIELD(0 x 70, 1 x 130, 5 x 60) PLAN("mask = document(d = x)"),
        MODEL(2, 1, 32, fp16) CLUSTER(1) FIELD(0 x 70, 1 x 130, 5 x 20, 70000 x 40)
            PLAN("mask = causal_document(d = x)"),
        MODEL(1, 1, 16, bf16) CLUSTER(2) FIELD(0 x 70, 1 x 130, 5 x 60) PLAN("mask = prefix_document(d = x, p = 20)"),
        MODEL(2, 2, 16, fp16) CLUSTER(1) FIELD(1 x 3, 0 x 100, -1 x 2, 0 x 95, 1 x 4, 0 x 56)
            PLAN("mask = global_field(g = x, w = 20)"),
        MODEL(2, 1, 16, bf16) CLUSTER(2) FIELD(150 x 90, 190 x 110, 40 x 60) PLAN("mask = random_eviction(e = x)"),
        MODEL(2, 1, 16, fp16) CLUSTER(1) FIELD(3 x 40, 1 x 30, 3 x 60, 0 x 70, 3 x 60) PLAN("mask = hash_sparse(bucket "
                                                                                            "= x)"),
        MODEL(1, 1, 16, bf16)
            CLUSTER(1) "batch { lengths = [200, 60]\n field a = [5 x 100, 150 x 100, 3 x 60]\n"
                       " field z = [180 x 150, 199 x 50, 40 x 60] }\n" PLAN("mask = tree(first = a, last = z, p = 2)"),
    };
    all_right(programs, sizeof programs / sizeof *programs);
}

Test(ptx, scores) {
    static const char *const programs[] = {
        MODEL(2, 1, 64, bf16) CLUSTER(1) BATCH(200, 60) PLAN("mask = causal; score = softcap(c = 3.0)"),
        MODEL(4, 2, 32, fp16) CLUSTER(2) BATCH(200, 60) PLAN("mask = causal; score = alibi"),
        MODEL(2, 1, 16, bf16) CLUSTER(2)
            BATCH(200, 60) "score near(cost = 0.5) = if h * 2 < heads then s - cost * "
                           "log2(1.0 + abs(q - k)) else s\n"
                           "mask mixed(w = 128) = causal and (h % 2 == 0 or q - k < w)\n" PLAN(
                               "mask = mixed(w = 30); score = near"),
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16\n table near = [0, 1 x 3, 2 x 9, 3 x 40]\n"
        "table bias = [[0.3, -1.7, 0.01, 2.1], [1.9, 0.1, -0.7, -2.3]] }\n" CLUSTER(2)
            BATCH(200, 60) "score biased(table b) = s + b[h, near[min(q - k, 52)]]\n" PLAN(
                "mask = causal; score = biased(b = bias)"),
        MODEL(2, 2, 32, bf16) CLUSTER(2)
            BATCH(200, 60) "mask gap = causal and q - k >= 3\n" PLAN("mask = gap; sink = [1.5, -2.0]"),
        MODEL(2, 1, 128, fp16) CLUSTER(1) BATCH(140, 20) PLAN("mask = causal; sink = [0.5, 1.0]; "
                                                              "score = softcap(c = 3, approximate = true)"),
    };
    all_right(programs, sizeof programs / sizeof *programs);
}

/* The gradients of sinks are those of the host. */
Test(ptx, gradients_of_sinks) {
    fcp_plan *plan = plan_named("program", MODEL(4, 2, 16, bf16) CLUSTER(1) BATCH(300, 40) PLAN(
                                               "mask = causal; layout = contiguous; sink = [1.5, -2.0, 0.0, 0.5]"));
    const fcp_backend *const both[] = {&ptx_backend, &fcp_backend_host};
    const fcp_session_options options = {.size = sizeof options, .timeout_s = 100};
    float gradient[2][4];
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_error err = {0};
    if (!compiler()) return;
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_packed_alloc(&shape, (1 << FCP_TENSORS) - 1, &packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, (1 << FCP_TENSORS) - 1, 2, &packed);
    for (int i = 0; i < 2; i++) {
        fcp_session *session;
        fcp_tensors x = {.d_sink = gradient[i]};
        for (int t = 0; t < FCP_TENSORS; t++) fcp_tensors_set(&x, (fcp_tensor)t, packed.t[t]);
        x.d_lse = NULL; /* the plan takes none */
        cr_assert(session_on(plan, both[i], &options, &session, &err) == FCP_OK, "%s", err.message);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert(fcp_session_run(session, (fcp_pass)pass, &x, &err) == FCP_OK, "%s", err.message);
        fcp_session_free(session);
    }
    for (int h = 0; h < 4; h++) {
        const double a = (double)gradient[0][h], b = (double)gradient[1][h];
        cr_assert(fabs(a - b) < 0.02 * (1 + fabs(b)) && fabs(b) > 1e-3, "head %d: %g, not %g", h, a, b);
    }
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

/* Both passes of a plan of one rank; returns the gradients of its tables. */
static void gradients_of(const fcp_plan *plan, const fcp_backend *backend, float *out) {
    const fcp_session_options options = {.size = sizeof options, .timeout_s = 100};
    char text[TEXT];
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_session *session;
    fcp_error err = {0};
    fcp_tensors x = {.d_table = out};
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_packed_alloc(&shape, (1 << FCP_TENSORS) - 1, &packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, (1 << FCP_TENSORS) - 1, 2, &packed);
    for (int t = 0; t < FCP_TENSORS; t++) fcp_tensors_set(&x, (fcp_tensor)t, packed.t[t]);
    x.d_lse = NULL; /* the plan takes none */
    cr_assert(session_on(plan, backend, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run(session, (fcp_pass)pass, &x, &err) == FCP_OK, "%s", err.message);
    ptx_device_trouble(text, TEXT);
    cr_assert_str_empty(text, "%s: %s", backend->name, text);
    fcp_session_free(session);
    fcp_packed_free(&packed);
}

/* The gradients of tables are those of the host, whatever kernels compute the others, and if they are computed again
 * by other grids they have the same bits. */
Test(ptx, gradients_of_tables) {
    enum { NUMBERS = 4 + 12 + 100 };
#define LEARNT(d, type)                                                                                                \
    "model { heads = 4; kv_heads = 2; head_dim = " #d "; dtype = " #type "\n table slope = [0.5, 0.25, -1.5, 1.0]\n"   \
    " table near = [[0.5, -0.25, 0.125], [0.0, 1.0, 0.5], [-1.0, 0.75, 0.25], [2.0, 0.5, -0.5]]\n"                     \
    " table bias = [0.25 x 100] }\n" CLUSTER(1) BATCH(150, 40)                                                         \
    "score mine = 20.0 * tanh((s * slope[q % 4] + near[h, k % 3]) / 20.0) + bias[min(q - k, 90) + 3]\n"                \
    PLAN("mask = causal; layout = contiguous; score = mine")
    static const struct {
        const char *program;
        const fcp_backend *backend;
    } cases[] = {{LEARNT(16, bf16), &ptx_ordered_backend}, {LEARNT(64, fp16), &ptx_sm90_backend},
                 {LEARNT(256, bf16), &ptx_backend}, {LEARNT(128, bf16), &ptx_unordered_sm90_backend},
                 {LEARNT(192; value_dim = 128, fp16), &ptx_backend}};
    if (!compiler()) return;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcp_plan *plan = plan_named("program", cases[i].program);
        float ours[2][NUMBERS], host[NUMBERS];
        double largest = 0;
        cr_assert_eq(fcp_plan_table_numbers(plan), NUMBERS);
        for (uint64_t again = 0; again < 2; again++) {
            ptx_device_seed(again);
            gradients_of(plan, cases[i].backend, ours[again]);
        }
        ptx_device_seed(0);
        gradients_of(plan, &fcp_backend_host, host);
        if (!strstr(cases[i].backend->name, "any"))
            cr_assert(memcmp(ours[0], ours[1], sizeof host) == 0, "%s: the same bits", cases[i].backend->name);
        for (int n = 0; n < NUMBERS; n++) largest = fmax(largest, fabs((double)host[n]));
        for (int n = 0; n < NUMBERS; n++)
            cr_assert(fabs((double)ours[0][n] - (double)host[n]) < 0.008 * largest, "%s, number %d: %g, not %g",
                      cases[i].backend->name, n, (double)ours[0][n], (double)host[n]);
        cr_assert(largest > 0.2, "nothing was tested");
        fcp_plan_free(plan);
    }
}

/* Every head_dim and some with another value_dim, both types, every kernel of the backward pass. */
Test(ptx, head_dims) {
    static const char *const programs[] = {
        MODEL(2, 1, 16, bf16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 16, fp16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 32, bf16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 32, fp16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 64, bf16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 64, fp16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 128, bf16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 128, fp16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 96, bf16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 96; value_dim = 16, fp16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 192, fp16) CLUSTER(1) BATCH(140, 20) PLAN("mask = causal"),
        MODEL(2, 1, 192; value_dim = 128, bf16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = causal"),
        MODEL(2, 1, 256, bf16) CLUSTER(1) BATCH(140, 20) PLAN("mask = causal"),
        MODEL(2, 1, 256, fp16) CLUSTER(1) BATCH(140, 20) PLAN("mask = causal"),
    };
    const char *sanitizer = getenv("SAN");
    if (!compiler()) return;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (size_t b = 0; b < (i < 10 ? 3 : 1); b++)
            if (!sanitizer || !*sanitizer || b == i % 3) right(programs[i], backends[b], i);
}

/* Strategies: states that are merged over stages, sums of several ranks, longer blocks. */
Test(ptx, strategies) {
    static const char *const programs[] = {
        MODEL(2, 2, 16, bf16) CLUSTER(4) BATCH(500, 60, 129, 1) PLAN("mask = causal; strategy = ring"),
        MODEL(2, 1, 32, fp16) CLUSTER(3) BATCH(400, 200) PLAN("mask = full; strategy = zigzag"),
        MODEL(4, 2, 16, bf16) CLUSTER(2) BATCH(300, 70)
            PLAN("mask = causal; strategy = fcp(coalesce = 2, buffers = 2)"),
        MODEL(2, 1, 16, fp16) CLUSTER(3) BATCH(600)
            PLAN("mask = lambda(sink = 8, window = 100); strategy = fcp(coalesce = 1)"),
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\n" CLUSTER(1)
            BATCH(700, 200) "plan { mask = causal; block = 1024; passes = forward, backward }\n",
    };
    all_right(programs, sizeof programs / sizeof *programs);
}

/* Keys that nearly every row sees: several items have them, and add to dK and dV in turn, or as they come. */
Test(ptx, shared_keys) {
    if (!compiler()) return;
    right(MODEL(1, 1, 16, bf16) CLUSTER(1) BATCH(4400) SHARED_KEYS, &ptx_ordered_backend, 3);
    right(MODEL(1, 1, 16, fp16) CLUSTER(1) BATCH(4400) SHARED_KEYS, &ptx_unordered_backend, 4);
}

/* Runs both passes of a plan; the results are in `packed`. */
static void results_of(const fcp_plan *plan, const fcp_backend *backend, fcp_packed *packed) {
    const fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = 300};
    char text[TEXT];
    fcp_shape shape;
    fcp_session *session;
    fcp_error err = {0};
    fcp_plan_shape(plan, &shape);
    *packed = (fcp_packed){0};
    cr_assert(fcp_packed_alloc(&shape, ALL, packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, ALL, 2, packed);
    cr_assert(session_on(plan, backend, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, packed, NULL, &err) == FCP_OK, "%s",
                  err.message);
    ptx_device_trouble(text, TEXT);
    cr_assert_str_empty(text, "%s: %s", backend->name, text);
    fcp_session_free(session);
}

/* One buffer of dO instead of two, for devices with little shared memory: right, and with the same bits. Items wait for
 * one another at the same rows. */
Test(ptx, one_buffer) {
    static const fcp_backend *const both[] = {&ptx_ordered_backend, &ptx_one_buffer_backend};
    fcp_packed packed[2];
    fcp_shape shape;
    if (!compiler()) return;
    right(MODEL(2, 2, 128, fp16) CLUSTER(2) BATCH(150, 70, 20) PLAN("mask = window(w = 100)"), both[1], 1);
    fcp_plan *plan =
        plan_named("program", "model { heads = 2; kv_heads = 1; head_dim = 128; dtype = bf16 }\n" CLUSTER(1)
                                  BATCH(300, 40) "plan { mask = causal; block = 1K; passes = forward, backward }\n");
    fcp_plan_shape(plan, &shape);
    for (int i = 0; i < 2; i++) results_of(plan, both[i], &packed[i]);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!memcmp(packed[0].t[t], packed[1].t[t], fcp_packed_bytes(&shape, (fcp_tensor)t)), "%s differs",
                  fcp_tensor_name((fcp_tensor)t));
    for (int i = 0; i < 2; i++) fcp_packed_free(&packed[i]);
    fcp_plan_free(plan);
}

/* What later architectures have beside it: two numbers added by one instruction. */
Test(ptx, sm100) {
    if (!compiler()) return;
    right(MODEL(2, 1, 64, bf16) CLUSTER(2) BATCH(200, 60) PLAN("mask = causal; score = softcap(c = 3.0)"),
          &ptx_sm100_backend, 1);
    right(MODEL(2, 2, 32, fp16) CLUSTER(1) BATCH(150, 130)
              PLAN("mask = lambda(sink = 8, window = 50); sink = [1.5, -2.0]"),
          &ptx_sm100_backend, 2);
}

/* --- flaws, each of which must be found --------------------------------------------------------------------------- */

/* The text with `length` bytes at `at` replaced. */
static char *replaced(const char *text, const char *at, size_t length, const char *by) {
    char *out = malloc(strlen(text) + strlen(by) + 1);
    if (out) sprintf(out, "%.*s%s%s", (int)(at - text), text, by, at + length);
    return out;
}
static char *without(const char *text, const char *at) { return replaced(text, at, strcspn(at, ";") + 1, ""); }
static char *off_by_16(const char *text, const char *at) { return replaced(text, strchr(at, ']'), 0, "+16"); }
/* The second and third of the vector after the first: A's fragments. */
static char *other_order(const char *text, const char *at) {
    char name[4][20], by[100];
    const char *a = strchr(strchr(at, '}'), '{');
    if (sscanf(a, "{%19[^,], %19[^,], %19[^,], %19[^}]}", name[0], name[1], name[2], name[3]) != 4) return NULL;
    snprintf(by, sizeof by, "{%s, %s, %s, %s}", name[0], name[2], name[1], name[3]);
    return replaced(text, a, strcspn(a, "}") + 1, by);
}
/* The two of B. */
static char *other_b(const char *text, const char *at) {
    char name[2][20], by[100];
    const char *b = strchr(strchr(strchr(at, '}') + 1, '}'), '{');
    if (sscanf(b, "{%19[^,], %19[^}]}", name[0], name[1]) != 2) return NULL;
    snprintf(by, sizeof by, "{%s, %s}", name[1], name[0]);
    return replaced(text, b, strcspn(b, "}") + 1, by);
}

Test(ptx, flaws) {
    enum { SPLIT, ORDERED, UNORDERED, ALONE };
    static const struct {
        const char *what;
        int backend;
        ptx_change change;
    } flaws[] = {
        {"V is not transposed", SPLIT, {"fk_forward", ".x4.trans.shared", ".x4.shared", -1, NULL}},
        {"a copy is not waited for", SPLIT, {"fk_forward", "cp.async.wait_all;", "", 0, NULL}},
        {"another copy is not waited for", SPLIT, {"fk_forward", "cp.async.wait_all;", "", 1, NULL}},
        {"a barrier is missing", SPLIT, {"fk_forward", "bar.sync 0;", "", 1, NULL}},
        {"another barrier is missing", SPLIT, {"fk_forward", "bar.sync 0;", "", 2, NULL}},
        {"the other type", SPLIT, {"fk_forward", "f32.bf16.bf16.f32", "f32.f16.f16.f32", 3, NULL}},
        {"the other type, packed", SPLIT, {"fk_forward", "cvt.rn.bf16x2", "cvt.rn.f16x2", 2, NULL}},
        {"lanes by themselves", SPLIT, {"fk_forward", ", 0x1f, 0xffffffff;", ", 0x1f1f, 0xffffffff;", 0, NULL}},
        {"another order of A's fragments", SPLIT, {"fk_forward", "mma.sync", "", 2, other_order}},
        {"another order of B's fragments", SPLIT, {"fk_forward", "mma.sync", "", 20, other_b}},
        {"a row 16 bytes too far", SPLIT, {"fk_forward", "ldmatrix.sync", "", 1, off_by_16}},
        {"a copy's place 16 bytes too far", SPLIT, {"fk_forward", "cp.async.cg", "", 5, off_by_16}},
        {"a store 16 bytes too far", SPLIT, {"fk_forward", "st.global.u32", "", 7, off_by_16}},
        {"dK: another order of A's fragments", SPLIT, {"fk_backward_dkv", "mma.sync", "", 0, other_order}},
        {"dK: Q is not transposed", SPLIT, {"fk_backward_dkv", ".x4.trans.shared", ".x4.shared", 9, NULL}},
        {"dK: LSE is not stored", SPLIT, {"fk_backward_dkv", "st.shared.f32", "", 0, without}},
        {"dK: a barrier is missing", SPLIT, {"fk_backward_dkv", "bar.sync 0;", "", 1, NULL}},
        {"dK: the item before is still read", ALONE, {"fk_backward_dkv", "bar.sync 0;", "", 0, NULL}},
        {"dK: the ticket is still read", SPLIT, {"fk_backward_dkv", "bar.sync 0;", "", 2, NULL}},
        {"dK: nothing is acquired", SPLIT, {"fk_backward_dkv", "ld.acquire.gpu", "ld.relaxed.gpu", -1, NULL}},
        {"dK: nothing is released", SPLIT, {"fk_backward_dkv", "st.release.gpu.global", "st.global", -1, NULL}},
        {"dQ: the item before is still read", SPLIT, {"fk_backward_dq", "bar.sync 0;", "", 0, NULL}},
        {"dQ: a copy is not waited for", SPLIT, {"fk_backward_dq", "cp.async.wait_all;", "", 0, NULL}},
        {"dQ: a sum 16 bytes too far", SPLIT, {"fk_backward_dq", "st.global.v2.f32", "", 3, off_by_16}},
        {"ordered: dS is not stored", ORDERED, {"fk_backward_ordered", "st.shared.u32", "", 5, without}},
        {"ordered: nothing is acquired",
         ORDERED,
         {"fk_backward_ordered", "ld.acquire.gpu", "ld.relaxed.gpu", -1, NULL}},
        {"ordered: nothing is released",
         ORDERED,
         {"fk_backward_ordered", "st.release.gpu.global", "st.global", -1, NULL}},
        {"ordered: dS is read before it is there", ORDERED, {"fk_backward_ordered", "bar.sync 0;", "", 4, NULL}},
        {"ordered: no turn", ORDERED, {"fk_backward_ordered", "bar.sync 0;", "", 5, NULL}},
        {"ordered: released before all have added", ORDERED, {"fk_backward_ordered", "bar.sync 0;", "", 6, NULL}},
        {"unordered: a sum 16 bytes too far", UNORDERED, {"fk_backward_unordered", "red.relaxed", "", 3, off_by_16}},
    };
    char text[TEXT];
    if (!compiler()) return;
    fcp_plan *plan = plan_with("flaws", MODEL(2, 1, 64, bf16) CLUSTER(1) BATCH(200, 60) PLAN("mask = causal"), NULL, 0);
    /* nobody shares keys, and the last step of a piece is in the first buffer */
    fcp_plan *alone = plan_with("alone", MODEL(2, 2, 64, bf16) "cluster { gpu = cpu }\n" BATCH(200, 60)
                                PLAN("mask = full"), NULL, 0);
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        const bool is_alone = flaws[i].backend == ALONE;
        *text = 0;
        /* what blocks owe each other shows where several have work */
        for (uint64_t seed = 0; !*text && seed < 8; seed++) {
            ptx_device_seed(seed);
            ptx_device_change(&flaws[i].change);
            judge(is_alone ? alone : plan, backends[is_alone ? SPLIT : flaws[i].backend], 1, text);
            cr_expect(ptx_device_change(NULL) > 0, "%s: nothing was changed", flaws[i].what);
        }
        fprintf(stderr, "%s: %s\n", flaws[i].what, text);
        cr_expect(*text, "%s: not found", flaws[i].what);
    }
    ptx_device_seed(0);
    fcp_plan_free(alone);
    fcp_plan_free(plan);
}
