/* test_cuda_calls.c: counts the calls of the driver that a run makes. Each call costs the host a microsecond or more.
 * So there is a limit for each unit that moves, and the number of pieces in a unit may not matter. */
#include "runtime/exec/bundles.h"
#include "runtime/libraries/cuda_driver.h"
#include "runtime/exec/tensors.h"
#include "runtime/plan/enum_names.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/judge_packed.h"

enum { ALL = (1 << FCP_TENSORS) - 1, RANKS = 2 };

/* Two ranks on one device, in zigzag. */
static fcp_plan *plan_for(const char *lengths) {
    char text[400];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = %d }\n"
             "batch { lengths = [%s] }\n"
             "plan { mask = causal; block = 4K; layout = zigzag; passes = forward, backward }\n", RANKS, lengths);
    return plan_named(lengths, text);
}

/* Counts the pieces that move between the layout and the homes. */
static uint32_t pieces_of(const fcp_plan *plan) {
    fcp_bundles *bundles;
    fcp_error err;
    uint32_t pieces = 0;
    cr_assert_eq(fcp_bundles_make(plan, 0, plan->problem->ranks, &bundles, &err), FCP_OK);
    for (uint32_t r = 0; r < plan->problem->ranks; r++) pieces += fcp_bundles_of(bundles, r).count;
    fcp_bundles_free(bundles);
    return pieces;
}

/* Counts the units of a class in a pass: what moves between one rank's tensors and one rank's home blocks. */
static long units_of(const fcp_plan *plan, fcp_pass pass, fcp_class cls) {
    long units = 0;
    for (uint32_t r = 0; r < plan->problem->ranks; r++)
        for (int q = 0; q < FCP_QUEUES; q++) {
            const fcp_stream *stream = fcp_stream_of(plan, pass, r, (fcp_queue)q);
            for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
                const fcp_instr *x = &plan->instrs[i];
                for (uint32_t j = x->a; (x->op == FCP_OP_LAUNCH || x->op == FCP_OP_COPY) && j < x->a + x->b; j++)
                    units += plan->transfers[j].cls == cls && fcp_at_caller(&plan->transfers[j]);
            }
        }
    return units;
}

/* What a run from a graph on the caller's stream asks of the driver, beside its units and tensors. */
enum {
    AROUND = 6,            /* the current context, before and after; what stream that is */
    MARKS = 2,             /* a fill, and its device */
    FORK = 1 + RANKS,      /* an event, and each rank's communication stream waits for it */
    JOIN = 2 * RANKS,      /* an event of each such stream, and the caller's waits for it */
    GRAPH = 2,             /* its launch, and its device */
    ORDER = 2,             /* after the last run, before the next one */
    A_UNIT = 2,            /* a launch, and its device */
    A_TENSOR = 4           /* kind, device and context of its memory, and how much there is */
};
static long expected(const fcp_plan *plan, fcp_pass pass) {
    long tensors = 1 + __builtin_popcount(fcp_pass_inputs(pass) | fcp_pass_outputs(pass)); /* and lse_low */
    return AROUND + MARKS + 2 * (FORK + JOIN) + GRAPH + ORDER + A_TENSOR * RANKS * tensors +
           A_UNIT * (units_of(plan, pass, FCP_IN) + units_of(plan, pass, FCP_OUT));
}

/* Tensors of each rank in memory of device 0. */
typedef struct on_device {
    fcp_cuda *cuda;
    cu_stream stream;
    cu_ptr memory[RANKS][FCP_TENSORS];
    fcp_tensors tensors[RANKS];
} on_device;

static void open_on_device(on_device *d, const fcp_plan *plan) {
    cu_context context;
    fcp_shape shape;
    fcp_error err;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_cuda_open(&d->cuda, &err), FCP_OK);
    cr_assert(!d->cuda->call.context_retain(&context, 0) && !d->cuda->call.context_set(context));
    cr_assert(!d->cuda->call.stream_create(&d->stream, CU_STREAM_NON_BLOCKING, 0));
    for (uint32_t r = 0; r < RANKS; r++)
        for (int t = 0; t < FCP_TENSORS; t++) {
            size_t bytes = fcp_tensors_tokens(plan, r, (fcp_tensor)t) * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
            cr_assert(!d->cuda->call.allocate(&d->memory[r][t], bytes + 16));
            if (t == FCP_TENSOR_DLSE) continue; /* the plan takes none */
            fcp_tensors_set(&d->tensors[r], (fcp_tensor)t, (void *)(uintptr_t)d->memory[r][t]);
        }
}

static void close_on_device(on_device *d) {
    for (uint32_t r = 0; r < RANKS; r++)
        for (int t = 0; t < FCP_TENSORS; t++) cr_assert(!d->cuda->call.release(d->memory[r][t]));
    cr_assert(!d->cuda->call.stream_destroy(d->stream) && !d->cuda->call.context_release(0));
    fcp_cuda_close(d->cuda);
}

/* Runs both passes twice, and checks what the second run of each asks, which comes from a graph. */
static uint32_t count_on_device(standin *x, const char *lengths) {
    fcp_plan *plan = plan_for(lengths);
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100, .graph_from = 1};
    fcp_session *session;
    on_device d = {0};
    fcp_error err = {0};
    x->plan = plan;
    open_on_device(&d, plan);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    for (int run = 0; run < 2 * FCP_PASSES; run++) {
        const fcp_pass pass = (fcp_pass)(run % FCP_PASSES);
        const long before = x->calls;
        cr_assert_eq(fcp_session_run_on(session, pass, d.tensors, d.stream, &err), FCP_OK, "%s", err.message);
        if (run >= FCP_PASSES)
            cr_assert_eq(x->calls - before, expected(plan, pass), "%s, %s: %ld calls, not %ld", lengths,
                         fcp_pass_names[pass], x->calls - before, expected(plan, pass));
        cr_assert_eq(fcp_session_wait(session, &err), FCP_OK, "%s", err.message);
    }
    uint32_t pieces = pieces_of(plan);
    fcp_session_free(session);
    close_on_device(&d);
    fcp_plan_free(plan);
    return pieces;
}

Test(cuda_calls, device_tensors) {
    standin *x = stand();
    x->idle = true;
    cr_assert_lt(count_on_device(x, "2048"), 8);
    cr_assert_gt(count_on_device(x, "8 x 256"), 700);
    cr_assert_gt(count_on_device(x, "6 x 400, 4096"), 1000);
    cr_assert_eq(x->live, 0);
}

/* Runs with tensors in host memory. A unit whose message fits the stage is one copy, however many pieces it has; and
 * what the caller reads is right. */
static uint32_t count_on_host(standin *x, const char *lengths) {
    fcp_plan *plan = plan_for(lengths);
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100, .graph_from = 1};
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    x->plan = plan;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    for (int run = 0; run < 2 * FCP_PASSES; run++) {
        const fcp_pass pass = (fcp_pass)(run % FCP_PASSES);
        const unsigned long copies = x->host_copies, questions = x->questions;
        cr_assert_eq(fcp_session_run_packed(session, plan, pass, &packed, NULL, &err), FCP_OK, "%s", err.message);
        const long copied = (long)(x->host_copies - copies);
        cr_assert_eq(copied, units_of(plan, pass, FCP_IN) + units_of(plan, pass, FCP_OUT), "%s: %ld", lengths, copied);
        cr_assert_leq(x->questions - questions, RANKS * FCP_TENSORS);
    }
    judge_packed(plan, plan->problem->passes, &packed, lengths);
    uint32_t pieces = pieces_of(plan);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
    return pieces;
}

Test(cuda_calls, host_tensors) {
    standin *x = stand();
    cr_assert_lt(count_on_host(x, "300"), 8);
    cr_assert_gt(count_on_host(x, "8 x 40"), 100);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
}
