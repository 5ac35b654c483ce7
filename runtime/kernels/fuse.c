/* fuse.c: finds what a forward pass in one launch needs to know of its plan.
 *
 * Requires: a verified plan.
 * Gives:    fuse.h.
 * Method:   a communication queue is in order, so what a slot holds in the end is there when the last launch that
 *           receives into it has ended. Rounds that wait for no computing overwrite nothing that is still to be read:
 *           the verifier has proven that such a round would have to wait. So the last launch brings what tiles read.
 * Cost:     linear in the rank's instructions and transfers, and in the plan's blocks.
 */
#include "runtime/kernels/fuse.h"

#include <stdlib.h>

static fcp_code no_memory(fcp_error *err) { return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for one launch"); }

static const fcp_instr *instr_of(const fcp_plan *plan, const fcp_stream *stream, uint32_t i) {
    return &plan->instrs[stream->first + i];
}

/* Are the rank's visits all of home rows, and is each result that of one rank alone? */
static fcp_code check_computing(const fcp_plan *plan, uint32_t rank, fcp_error *err) {
    const fcp_stream *compute = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMPUTE);
    for (uint32_t i = 0; i < compute->count; i++) {
        const fcp_instr *x = instr_of(plan, compute, i);
        bool home = x->op == FCP_OP_WAIT || x->op == FCP_OP_COPY || x->op == FCP_OP_ATTEND;
        for (uint32_t v = x->a; home && x->op == FCP_OP_ATTEND && v < x->a + x->b; v++)
            home = plan->blocks[plan->visits[v].q_block].home == rank;
        if (!home)
            return fcp_fail(err, FCP_E_BACKEND,
                            "the forward pass of rank %u is no single launch: its rows are computed by several ranks, "
                            "and their results travel; compile the plan with a strategy that computes rows at home, "
                            "or fuse stages only",
                            rank);
    }
    return FCP_OK;
}

/* Does an instruction of a communication queue move results to the caller? What stands behind comes after the pass. */
static bool is_output(const fcp_plan *plan, const fcp_instr *x) {
    return x->op == FCP_OP_LAUNCH && plan->rounds[plan->round_starts[FCP_FORWARD] + x->c].kind == FCP_ROUND_OUT;
}

enum { MOST_BUFFERS = 8 }; /* that a program may ask for */

/* Round `round` waits for computing: says what would help. */
static fcp_code fail_round(const fcp_plan *plan, uint32_t rank, uint32_t round, fcp_error *err) {
    const unsigned long long stages = plan->summary->stages;
    if (stages > MOST_BUFFERS)
        return fcp_fail(err, FCP_E_BACKEND,
                        "the forward pass of rank %u is no single launch: round %u waits for computing, whose slots it "
                        "takes, and the pass has %llu stages, but a plan at most %d buffers; compile the plan with a "
                        "larger `coalesce`, which makes fewer stages, and as many buffers",
                        rank, round, stages, (int)MOST_BUFFERS);
    return fcp_fail(err, FCP_E_BACKEND,
                    "the forward pass of rank %u is no single launch: round %u waits for computing, whose slots it "
                    "takes; compile the plan with buffers = %llu, as many as the pass has stages",
                    rank, round, stages);
}

/* Do rounds wait for no stage? */
static fcp_code check_rounds(const fcp_plan *plan, uint32_t rank, fcp_error *err) {
    const fcp_stream *compute = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMPUTE);
    const fcp_stream *comm = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMM);
    uint32_t before = 0, waited = 0; /* instructions before the first ATTEND; for so many the rounds wait */
    while (before < compute->count && instr_of(plan, compute, before)->op != FCP_OP_ATTEND) before++;
    for (uint32_t i = 0; i < comm->count && !is_output(plan, instr_of(plan, comm, i)); i++) {
        const fcp_instr *x = instr_of(plan, comm, i);
        if (x->op == FCP_OP_WAIT && x->a > waited) waited = x->a;
        if (x->op == FCP_OP_LAUNCH && waited > before) return fail_round(plan, rank, x->c, err);
    }
    return FCP_OK;
}

fcp_code fcp_fusion_check(const fcp_plan *plan, uint32_t rank, fcp_error *err) {
    fcp_code code = check_computing(plan, rank, err);
    return code ? code : check_rounds(plan, rank, err);
}

fcp_code fcp_fusion_check_plan(const fcp_plan *plan, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = 0; !code && r < plan->problem->ranks; r++) code = fcp_fusion_check(plan, r, err);
    return code;
}

/* Where a walk over the visits of a rank's ATTENDs is. */
typedef struct visit_walk {
    uint32_t instr, visit;
} visit_walk;

/* Gives the next visit. False: there are no more. */
static bool next_visit(const fcp_plan *plan, const fcp_stream *compute, visit_walk *at, uint32_t *out_visit) {
    for (; at->instr < compute->count; at->instr++, at->visit = 0) {
        const fcp_instr *x = instr_of(plan, compute, at->instr);
        if (x->op != FCP_OP_ATTEND || at->visit == x->b) continue;
        *out_visit = x->a + at->visit++;
        return true;
    }
    return false;
}

/* Lists the rank's visits, by Q block in the order in which the plan first comes to them. */
static fcp_code list_visits(fcp_fusion *out, const fcp_arena *a, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *compute = fcp_stream_of(plan, FCP_FORWARD, a->rank, FCP_COMPUTE);
    /* of each Q block: how many visits it has, and then where the next of them goes */
    uint32_t *at = calloc(plan->blocks_count + 1, sizeof *at);
    uint32_t v, place = 0;
    if (!at) return no_memory(err);
    for (visit_walk walk = {0}; next_visit(plan, compute, &walk, &v); out->visit_count++) at[plan->visits[v].q_block]++;
    out->visits = malloc((out->visit_count + (size_t)1) * sizeof *out->visits);
    for (visit_walk walk = {0}; next_visit(plan, compute, &walk, &v);) {
        uint32_t *of = &at[plan->visits[v].q_block], count = *of;
        if (!(plan->visits[v].flags & FCP_VISIT_FIRST)) continue;
        *of = place;
        place += count;
    }
    for (visit_walk walk = {0}; out->visits && next_visit(plan, compute, &walk, &v);)
        out->visits[at[plan->visits[v].q_block]++] = v;
    free(at);
    return out->visits ? FCP_OK : no_memory(err);
}

fcp_code fcp_fusion_make(fcp_fusion *out, const fcp_arena *a, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *comm = fcp_stream_of(plan, FCP_FORWARD, a->rank, FCP_COMM);
    *out = (fcp_fusion){.homes = a->homes};
    out->arrivals = calloc(a->slots.count[FCP_KV] + 1, sizeof *out->arrivals);
    if (!out->arrivals) return no_memory(err);
    for (uint32_t i = 0; i < comm->count; i++) {
        const fcp_instr *x = instr_of(plan, comm, i);
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            if (t->cls == FCP_KV && t->dir == FCP_RECV && t->slot >= a->homes)
                out->arrivals[t->slot - a->homes] = fcp_fusion_flag(i, t->fabric);
        }
    }
    fcp_code code = list_visits(out, a, err);
    if (code) fcp_fusion_free(out);
    return code;
}

void fcp_fusion_free(fcp_fusion *f) {
    free(f->visits);
    free(f->arrivals);
    *f = (fcp_fusion){0};
}
