/* strategies.h: the strategies, a line each, and their parameters.
 *
 * Each line says once what the whole compiler has to know of a strategy:
 *   id         FCP_STRATEGY_id: the number that plan files hold; its name is said beside it in runtime/plan/plan.h, for
 *              a plan is read, and its strategy named, where there is no compiler
 *   by block   true: it cuts the batch into blocks of plan.block tokens; false: it does not look at plan.block
 *   cut, place the functions that cut the batch and place the blocks, of compiler/problem and compiler/place
 *
 * The front end reads the parameters from here. compiler/place/strategies.c makes the same lines into the table of
 * functions; rooms below it need not know any function by name.
 */
#ifndef FCPC_SEMA_STRATEGIES_H
#define FCPC_SEMA_STRATEGIES_H
#include "compiler/sema/program.h"

/*    id      by block  cut                 place */
#define STRATEGIES(X)                                                                                                  \
    X(FCP,    true,     problem_cut_blocks, place_by_fcp)                                                              \
    X(RING,   false,    problem_cut_ring,   place_by_ring)                                                             \
    X(ZIGZAG, false,    problem_cut_zigzag, place_by_zigzag)

/* What a strategy takes in parentheses. All of today's take the same; each is a whole number. */
typedef struct strategy_param {
    const char *name;
    uint32_t least, most, usual; /* usual: where the program does not say */
    size_t offset;               /* of its uint32_t in struct fcpc_program */
} strategy_param;
enum { STRATEGY_PARAMS = 2 };
extern const strategy_param strategy_params[STRATEGY_PARAMS];

/* The number of the parameter of that name; STRATEGY_PARAMS: there is none. */
uint32_t strategy_find_param(const char *name);
/* Where the program keeps a parameter. */
static inline uint32_t *strategy_param_of(struct fcpc_program *p, uint32_t param) {
    return (uint32_t *)((char *)p + strategy_params[param].offset);
}
#endif
