/* recurrent_steps.h: what both backends need to run a network of a layer that recurs (plan/recurrent.h): a rank's steps
 * in the order in which it does them, where a register lies, and how long messages are.
 *
 * Example: a chain at a rank with one stretch in the middle of a document. Its steps are
 *
 *     recv  round 0, into register 1        the state that enters the stretch
 *     combine  2 = 1, then 0                the state that leaves it
 *     send  round 1, register 2             to the rank that has what follows
 *
 * A walk gives them as three *acts*: the transfers of one round are one act, since they are launched together, and each
 * other step is an act of its own.
 *
 * The gradient of a halo goes the ways of the halo back. Its walk begins at the end: the last round is the first, what
 * was received is sent, and what was sent is received. Steps of an act, too, are then done from the last to the first.
 * So the order of the additions is fixed.
 *
 * Addresses may be the host's or a device's: these functions calculate with them, and read nothing there.
 */
#ifndef FCP_EXEC_RECURRENT_STEPS_H
#define FCP_EXEC_RECURRENT_STEPS_H
#include "runtime/exec/segments.h"
#include "runtime/plan/recurrent.h"

/* --- acts --------------------------------------------------------------------------------------------------------- */

typedef struct fcp_step_walk {
    const fcp_plan *plan;
    const fcp_recurrent *layer;
    const fcp_step *steps;
    uint32_t count, at; /* steps, and how many of them have been given */
    uint32_t temporaries;
    bool back; /* the gradient of a halo */
} fcp_step_walk;

typedef struct fcp_act {
    const fcp_step *first; /* in the order of the table; fcp_act_step has the order of the walk */
    uint32_t count;
    bool moves, back; /* moves: these are sends and receives of one round; else it is one COMBINE or COPY */
} fcp_act;

/* Begins the walk of a rank over the network of `layer`. pass: FCP_BACKWARD for the gradient of a halo, too. */
fcp_step_walk fcp_step_walk_begin(const fcp_plan *plan, uint32_t layer, fcp_pass pass, uint32_t rank);
/* False: there are no more acts. Cost: linear in the steps of the act. */
bool fcp_step_walk_next(fcp_step_walk *walk, fcp_act *out_act);
/* Step i of an act, counted in the order in which they are done; and which way a send or receive of it goes. */
static inline const fcp_step *fcp_act_step(const fcp_act *act, uint32_t i) {
    return act->first + (act->back ? act->count - 1 - i : i);
}
static inline fcp_direction fcp_act_direction(const fcp_act *act, uint32_t i) {
    return (fcp_act_step(act, i)->op == FCP_STEP_RECV) != act->back ? FCP_RECV : FCP_SEND;
}

/* The number of a round for fcp_net_launch. `call` is that of the call (fcp_agree_call). It keeps messages of different
 * calls, and of passes, apart. Two rounds of one call have the same number only if they are 2^20 rounds apart: then the
 * messages of the first have long been taken. */
static inline uint32_t fcp_round_tag(uint32_t call, uint32_t round) {
    return UINT32_C(1) << 31 | (call & 0x7ff) << 20 | (round & 0xfffff);
}

/* Is it such a number? Those of a pass's rounds are smaller. */
static inline bool fcp_round_recurs(uint32_t number) { return number >> 31; }
/* A round's number in words: "round 7", or "round 7 of call 2 about layers that recur". */
enum { FCP_ROUND_TEXT = 80 };
const char *fcp_round_text(uint32_t round, char out[FCP_ROUND_TEXT]);

/* Where an act is, in words: "rank 3, layer 1 (scan), forward pass, round 7". NULL: no act. Returns as
 * snprintf does. */
int fcp_act_text(const fcp_step_walk *walk, uint32_t rank, fcp_pass pass, const fcp_act *act, char *out, size_t size);

/* --- halos -------------------------------------------------------------------------------------------------------- */

/* The bytes of all rows of a rank and of its halo, with rows of `numbers` numbers of `size` bytes; UINT64_MAX: too many
 * to count. */
uint64_t fcp_halo_bytes(const fcp_recurrent *layer, uint64_t tokens, uint32_t stretches, uint64_t numbers, size_t size);
/* The lists of rows of a SEND or RECV: step->b of them. */
static inline const fcp_halo_rows *fcp_step_lists(const fcp_plan *plan, const fcp_step *step) {
    return plan->halo_rows + step->a;
}
/* The most rows that the messages of one act have, sent and received together. */
uint64_t fcp_step_walk_most_rows(fcp_step_walk walk);

/* --- scans -------------------------------------------------------------------------------------------------------- */

/* Where one part of the heads of a register lies: for each head the numbers of A, and for each head those of b. */
typedef struct fcp_register {
    float *decay, *state; /* decay: NULL if the register has b alone */
} fcp_register;

/* Heads of a part; numbers of a part's A and b; bytes of a temporary, which has A of its heads and then b, as a message
 * has them. */
static inline uint32_t fcp_part_heads(const fcp_recurrent *x) { return x->heads / x->parts; }
static inline uint64_t fcp_part_decay(const fcp_recurrent *x) { return fcp_part_heads(x) * fcp_decay_numbers(x); }
static inline uint64_t fcp_part_state(const fcp_recurrent *x) { return fcp_part_heads(x) * fcp_state_numbers(x); }
static inline uint64_t fcp_temporary_bytes(const fcp_recurrent *x) {
    return (fcp_part_decay(x) + fcp_part_state(x)) * sizeof(float);
}
/* A register of a rank with `stretches` stretches. `temporaries`: memory of fcp_temporary_bytes for each. Registers
 * below `stretches` are read only. */
fcp_register fcp_register_of(const fcp_recurrent *layer, uint32_t stretches, const fcp_scan_rank *tensors,
                             float *temporaries, uint32_t number, uint32_t part);
/* What a SEND or RECV moves: two segments, A and then b, or b alone. Both ends have the same. Returns how many. */
uint32_t fcp_scan_segments(const fcp_recurrent *layer, const fcp_step *step, const fcp_register *x,
                           fcp_segment out[FCP_SEGMENTS]);
#endif
