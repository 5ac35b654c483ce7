/* intervals.c: makes the intervals of a timeline (simulate.h). */
#include "compiler/simulate/pass_times.h"

/* The reason of waiting for each class. A launch that moves several classes has the last of their reasons in the order
 * of sim_reason. */
static const sim_reason reasons[FCP_CLASSES] = {
    [FCP_KV] = SIM_KV,      [FCP_Q] = SIM_Q,          [FCP_STATE] = SIM_RETURN,
    [FCP_O] = SIM_RETURN,   [FCP_DKV] = SIM_RETURN,   [FCP_DQ] = SIM_RETURN,
    [FCP_DQW] = SIM_RETURN, [FCP_IN] = SIM_RESHUFFLE, [FCP_OUT] = SIM_RESHUFFLE};
/* Which instructions have a block as `a`. */
static const bool of_block[FCP_OP_COUNT] = {[FCP_OP_REDUCE] = true, [FCP_OP_MERGE] = true, [FCP_OP_FINISH] = true,
                                            [FCP_OP_REDUCE_Q] = true, [FCP_OP_ROUND] = true};

sim_reason sim_reason_of(const fcp_plan *plan, uint32_t launch) {
    const fcp_instr *x = &plan->instrs[launch];
    sim_reason reason = SIM_KV;
    for (uint32_t t = x->a; x->op == FCP_OP_LAUNCH && t < x->a + x->b; t++)
        if (reasons[plan->transfers[t].cls] > reason) reason = reasons[plan->transfers[t].cls];
    return reason;
}

uint32_t sim_last_launch(const fcp_plan *plan, uint32_t first, uint32_t count) {
    uint32_t at = count ? first + count - 1 : first;
    while (at > first && plan->instrs[at].op != FCP_OP_LAUNCH) at--;
    return at;
}

uint32_t sim_block_of(const fcp_plan *plan, uint32_t instr) {
    const fcp_instr *x = &plan->instrs[instr];
    return of_block[x->op] ? x->a : x->op == FCP_OP_ATTEND && x->b == 1 ? plan->visits[x->a].q_block : FCP_NONE;
}

void sim_show_work(const sim_model *m, const sim_options *options, uint32_t rank, uint32_t instr, uint64_t start,
                   uint64_t end) {
    const fcp_instr *x = &m->plan->instrs[instr];
    if (!options || !options->watch || start == end) return;
    options->watch(options->context, &(sim_interval){
        .start = start, .end = end, .ready = start, .bytes = x->op == FCP_OP_COPY ? sim_model_copied(m, x) : 0,
        .rank = rank, .pass = m->pass, .lane = SIM_LANE_COMPUTE, .doing = SIM_WORK, .instr = instr, .cause = FCP_NONE,
        .transfer = FCP_NONE, .peer = FCP_NONE, .stage = x->stage, .round = FCP_NONE,
        .block = sim_block_of(m->plan, instr)});
}

void sim_show_wait(const sim_model *m, const sim_options *options, uint32_t rank, uint32_t instr, uint64_t start,
                   uint64_t end, uint32_t cause) {
    if (!options || !options->watch || start == end) return;
    options->watch(options->context, &(sim_interval){
        .start = start, .end = end, .ready = start, .rank = rank, .pass = m->pass, .lane = SIM_LANE_COMPUTE,
        .doing = SIM_WAIT, .reason = sim_reason_of(m->plan, cause), .instr = instr, .cause = cause,
        .transfer = FCP_NONE, .peer = FCP_NONE, .stage = m->plan->instrs[instr].stage, .round = FCP_NONE,
        .block = FCP_NONE});
}

void sim_show_transfer(const sim_model *m, const sim_options *options, uint32_t transfer, uint32_t from,
                       const uint32_t launch[2], const uint64_t ready[2], uint64_t start, uint64_t end) {
    const fcp_transfer *t = &m->plan->transfers[transfer];
    if (!options || !options->watch || start == end) return;
    for (int way = FCP_SEND; way <= FCP_RECV; way++) {
        const fcp_instr *x = &m->plan->instrs[launch[way]];
        options->watch(options->context, &(sim_interval){
            .start = start, .end = end, .ready = ready[way], .bytes = sim_model_bytes(m, t),
            .rank = way == FCP_SEND ? from : t->peer, .pass = m->pass,
            .lane = t->fabric == FCP_NET ? SIM_LANE_NET : SIM_LANE_LOCAL,
            .doing = way == FCP_SEND ? SIM_SEND : SIM_RECV, .reason = sim_reason_of(m->plan, launch[way]),
            .instr = launch[way], .cause = FCP_NONE, .transfer = transfer,
            .peer = way == FCP_SEND ? t->peer : from, .stage = x->stage, .round = x->c, .block = t->block});
    }
}
