/* intervals.h: tells a watcher what happens when. */
#ifndef FCPC_SIMULATE_INTERVALS_H
#define FCPC_SIMULATE_INTERVALS_H
#include "compiler/simulate/cost_model.h"

/* Each does nothing if nobody watches, or if nothing lasts. Indices are of plan->instrs and plan->transfers. */
void sim_show_work(const sim_model *m, const sim_options *options, uint32_t rank, uint32_t instr, uint64_t start,
                   uint64_t end);
/* `cause`: the last launch that the queue waited for. */
void sim_show_wait(const sim_model *m, const sim_options *options, uint32_t rank, uint32_t instr, uint64_t start,
                   uint64_t end, uint32_t cause);
/* Both ends of a transfer: the sender's record, and each end's launch and when it had come to it. */
void sim_show_transfer(const sim_model *m, const sim_options *options, uint32_t transfer, uint32_t from,
                       const uint32_t launch[2], const uint64_t ready[2], uint64_t start, uint64_t end);
#endif
