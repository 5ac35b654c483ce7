/* test_cuda_where.c: tests that an error names the right instruction. Each piece of work of a pass is made to hang
 * once; the error must name the instruction that the work belongs to, which it reads from the marks that the
 * devices have written. */
#include "runtime/exec/session.h"
#include "runtime/plan/enum_names.h"
#include "tests/support/amount.h"
#include "tests/support/error_place.h"
#include "runtime/judge/packed.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/judge_packed.h"

enum { ALL = (1 << FCP_TENSORS) - 1, BEFORE = 1 << 31, MASK = (1 << 30) - 1 };
/* A rank that waits asks a thousand times a second, on a slow machine less often. So these are the most calls in 15
 * seconds. */
enum { ASKED = 15000 };

/* What names the place that hangs: its operation, and its rank where there is only one. */
static void expect(const standin *x, const fcp_plan *plan, fcp_pass pass, const char *message,
                   unsigned seen[FCP_OP_COUNT]) {
    char want[120], launch[40];
    const long ranks = plan->problem->ranks;
    const long more = x->hung_mark - ranks * FCP_QUEUES; /* marks.c says which word is what */
    long word = more < 0 ? x->hung_mark : more < ranks ? more * FCP_QUEUES + FCP_COMPUTE
                                                       : (more - ranks) * FCP_QUEUES + FCP_COMM;
    unsigned rank = word < 0 ? (unsigned)x->hung_device : (unsigned)(word / FCP_QUEUES);
    fcp_queue queue = word < 0 ? FCP_COMPUTE : (fcp_queue)(word % FCP_QUEUES);
    unsigned instr = (x->hung_value & MASK) - 1;
    const fcp_stream *stream = fcp_stream_of(plan, pass, rank, queue);
    if (x->hung_mark < 0 || x->hung_value & (unsigned)BEFORE) {
        cr_assert(strstr(message, "before every instruction") || strstr(message, "before instruction 0") ||
                      (x->hung_mark < 0 && strstr(message, "behind every instruction")), /* a stage has no marks */
                  "%s of device %d: %s", x->hung, x->hung_device, message);
        return;
    }
    cr_assert_eq(x->hung_value >> 30, (unsigned)pass);
    if (instr == stream->count) { /* outputs, or a mark of the end that does not end */
        snprintf(want, sizeof want, "rank %u, %s pass, ", rank, fcp_pass_names[pass]);
        cr_assert(strstr(message, "behind every instruction") || strstr(message, want), "%s of device %d: %s", x->hung,
                  x->hung_device, message);
        return;
    }
    const fcp_instr *i = &plan->instrs[stream->first + instr];
    seen[i->op]++;
    if (i->op == FCP_OP_LAUNCH) { /* a transfer belongs to two launches */
        snprintf(launch, sizeof launch, "(launch), round %u with rank", i->c);
        snprintf(want, sizeof want, "%s pass, stage %u, ", fcp_pass_names[pass], i->stage);
    } else {
        *launch = 0;
        snprintf(want, sizeof want, "rank %u, %s pass, stage %u, instruction %u of the %s queue (%s)", rank,
                 fcp_pass_names[pass], i->stage, instr, fcp_queue_texts[queue], fcp_op_names[i->op]);
    }
    cr_assert(strstr(message, want) && strstr(message, launch) && strncmp(message, "rank ", 5) == 0,
              "%s of device %d (rank %u, %s %u): \"%s\" %s: %s", x->hung, x->hung_device, rank, fcp_queue_texts[queue],
              instr, want, launch, message);
}

/* Every `step`-th node of a pass hangs, in a session of its own; in make check half of these. */
static void hang_each(standin *x, const char *mask, unsigned ranks, uint32_t graph_from, fcp_pass pass, unsigned step,
                      unsigned seen[FCP_OP_COUNT]) {
    fcp_plan *plan = make_longer_plan(mask, ranks, ranks > 3 ? 2 : 1, "");
    fcp_session_options options = {
        .size = sizeof options, .backend = "cuda", .timeout_s = 20, .graph_from = graph_from, .stage_bytes = 4096};
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    unsigned long count = 0;
    x->plan = plan;
    x->idle = true;
    x->devices = (int)ranks; /* a rank a device: the device says which rank */
    x->hang_with = 719;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    for (unsigned long at = 0; at == 0 || at <= count; at += at ? step * amount(2, 1) : 1) {
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
        unsigned long before = x->nodes;
        x->seed = at;
        x->hang_at = at ? before + at : 0;
        x->hung[0] = 0;
        fcp_code code = fcp_session_run_packed(session, plan, pass, &packed, NULL, &err);
        if (at == 0) {
            cr_assert_eq(code, FCP_OK, "%s", err.message);
            count = x->nodes - before;
        } else if (strcmp(x->hung, "nothing") && strcmp(x->hung, "a mark")) {
            cr_assert_eq(code, FCP_E_RUN, "node %lu of %lu", at, count);
            expect(x, plan, pass, err.message, seen);
        }
        x->lost = true;
        fcp_session_free(session);
        x->lost = false;
        cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
    }
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    x->hang_at = 0;
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

Test(cuda_where, every_node) {
    standin *x = stand();
    unsigned seen[FCP_OP_COUNT] = {0};
    hang_each(x, "causal", 3, UINT32_MAX, FCP_FORWARD, 1, seen);
    hang_each(x, "causal", 3, UINT32_MAX, FCP_BACKWARD, 2, seen);
    hang_each(x, "full", 2, 1, FCP_FORWARD, 3, seen);
    hang_each(x, "causal", 4, UINT32_MAX, FCP_FORWARD, 4, seen); /* on two nodes: two streams of transfers */
    hang_each(x, "causal", 3, 1, FCP_BACKWARD, 3, seen);
    cr_assert(seen[FCP_OP_ATTEND] > amount(5, 10) && seen[FCP_OP_LAUNCH] > amount(5, 10) &&
                  seen[FCP_OP_DELTA] > amount(0, 1) && seen[FCP_OP_REDUCE] > amount(1, 3),
              "attend %u, launch %u, delta %u, reduce %u", seen[FCP_OP_ATTEND], seen[FCP_OP_LAUNCH], seen[FCP_OP_DELTA],
              seen[FCP_OP_REDUCE]);
}

/* A kernel, and a transfer of a graph, that do not end: an error within the timeout, which names them. */
Test(cuda_where, hangs) {
    standin *x = stand();
    fcp_plan *plan = make_longer_plan("causal", 2, 1, "");
    fcp_shape shape;
    fcp_session *session;
    fcp_packed packed = {0};
    fcp_error err = {0};
    unsigned seen[FCP_OP_COUNT] = {0};
    x->plan = plan;
    x->idle = true;
    x->devices = 2;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    for (int i = 0; i < 2; i++) {
        fcp_session_options options = {.size = sizeof options,
                                       .backend = "cuda",
                                       .timeout_s = 1,
                                       .graph_from = i ? 1 : UINT32_MAX,
                                       .stage_bytes = 4096};
        unsigned long end;
        for (unsigned long at = 30;; at++) { /* the first that is what is looked for */
            cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
            x->hang_at = end = x->nodes + at;
            x->hang_with = 719;
            fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &err);
            x->lost = true;
            fcp_session_free(session);
            x->lost = false;
            if (!strcmp(x->hung, i ? "a copy" : "fk_forward") && x->hung_mark >= 0 &&
                !(x->hung_value & (unsigned)BEFORE)) {
                cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
                x->hang_at = x->nodes + at;
                break;
            }
        }
        x->hang_with = 0;
        long calls = x->calls;
        cr_assert_eq(fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &err), FCP_E_RUN);
        cr_assert(x->calls - calls < ASKED, "%ld calls", x->calls - calls);
        expect(x, plan, FCP_FORWARD, err.message, seen);
        cr_assert(error_place_agrees(&err), "%s", err.message);
        cr_assert(strstr(err.message, "did not end within 1 s"), "%s", err.message);
        if (i) break;
        x->lost = true;
        fcp_session_free(session);
        x->lost = false;
        cr_assert_eq(x->live, 0);
    }
    cr_assert(seen[FCP_OP_ATTEND] == 1 && seen[FCP_OP_LAUNCH] == 1);
    /* nothing of what hangs is given up: the driver would wait for it */
    long calls = x->calls;
    fcp_session_free(session);
    cr_assert(x->calls - calls < ASKED && x->live > 0);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

/* A driver that does not fill host memory, or not in a graph: results are right, and a warning says what is missing. */
Test(cuda_where, without_marks) {
    standin *x = stand();
    fcp_plan *plan = make_longer_plan("causal", 3, 1, "");
    fcp_shape shape;
    x->plan = plan;
    x->devices = 2;
    fcp_plan_shape(plan, &shape);
    for (int refused = MARKS_REFUSED; refused <= MARKS_LOST; refused++) {
        const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 20,
                                             .graph_from = 2};
        fcp_session *session;
        fcp_packed packed = {0};
        fcp_error err = {0};
        x->marks = refused;
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
        cr_assert(strstr(fcp_session_warning(session), "will not name the instruction: device 0 "), "%d: %s", refused,
                  fcp_session_warning(session));
        cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
        fcp_packed_draw(&shape, ALL, 3, &packed);
        for (int run = 0; run < 2 * FCP_PASSES; run++)
            cr_assert_eq(fcp_session_run_packed(session, plan, (fcp_pass)(run % FCP_PASSES), &packed, NULL, &err),
                         FCP_OK, "%d: %s", refused, err.message);
        judge_packed(plan, plan->problem->passes, &packed, "without marks");
        fcp_session_free(session);
        fcp_packed_free(&packed);
        cr_assert_eq(x->live, 0);
        cr_assert_str_empty(x->trouble, "%s", x->trouble);
    }
    fcp_plan_free(plan);
}

/* Nothing in a pass waits for a mark: when one hangs, every kernel runs all the same, and the run does not end. */
static void hang_marks(standin *x, uint32_t graph_from) {
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 20,
                                         .graph_from = graph_from, .partition = FCP_PARTITION_GRID};
    fcp_plan *plan = make_longer_plan("causal", 3, 1, "");
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    unsigned long computed = 0, count = 0;
    unsigned hung = 0;
    x->plan = plan;
    x->idle = true;
    x->hang_with = 719;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    for (unsigned long at = 0; at <= count; at++) {
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
        unsigned long nodes = x->nodes, before = x->computed;
        x->hang_at = at ? nodes + at : 0;
        x->hung[0] = 0;
        fcp_code code = fcp_session_run_packed(session, plan, FCP_BACKWARD, &packed, NULL, &err);
        if (!at) computed = x->computed - before, count = x->nodes - nodes;
        if (at && !strcmp(x->hung, "a mark") && !(x->hung_value & (unsigned)BEFORE)) {
            cr_assert_eq(code, FCP_E_RUN);
            cr_assert_eq(x->computed - before, computed, "mark %lu: %lu kernels of %lu have run", at,
                         x->computed - before, computed);
            hung++;
        }
        x->lost = true;
        fcp_session_free(session);
        x->lost = false;
    }
    cr_assert_gt(hung, 10);
    x->hang_at = 0;
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}
Test(cuda_where, nothing_waits_for_a_mark) {
    standin *x = stand();
    hang_marks(x, 1);
    hang_marks(x, UINT32_MAX);
}
