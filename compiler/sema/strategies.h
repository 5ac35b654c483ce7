/* strategies.h: the strategies, a line each, and their parameters.
 *
 * Each line says once what the whole compiler has to know of a strategy:
 *   id         FCP_STRATEGY_id: the number that plan files hold; its name is said beside it in plan/enums.h, for
 *              a plan is read, and its strategy named, where there is no compiler
 *   by block   true: it cuts the batch into blocks of plan.block tokens; false: it does not look at plan.block
 *   in place   true: homes are where the caller holds the tokens, and work moves;
 *              false: homes are the strategy's choice
 *   cut, place the functions that cut the batch and place the blocks, of compiler/problem and compiler/place
 *   exec       the function that says where each tile runs; NULL: each at its Q block's home
 *
 * Beside them a program may say `auto`, which is no strategy of plans: it tries these and keeps one (compiler/auto).
 *
 * The front end reads the parameters from here. compiler/place/strategy_table.c makes the same lines into the table of
 * functions; rooms below it need not know any function by name.
 */
#ifndef FCPC_SEMA_STRATEGIES_H
#define FCPC_SEMA_STRATEGIES_H
#include "compiler/sema/program.h"

/*    id      by block  in place  cut                 place            exec */
#define STRATEGIES(X)                                                                                                  \
    X(FCP,    true,     false,    problem_cut_blocks, place_by_fcp,    NULL)                                           \
    X(RING,   false,    false,    problem_cut_ring,   place_by_ring,   NULL)                                           \
    X(ZIGZAG, false,    false,    problem_cut_zigzag, place_by_zigzag, NULL)                                           \
    X(CAD,    true,     true,     cad_cut,            place_by_cad,    exec_by_cad)                                    \
    X(ULYSSES,false,    true,     heads_cut,          place_by_heads,  exec_by_heads)                                  \
    X(UPIPE,  false,    true,     heads_cut,          place_by_heads,  exec_by_heads)                                  \
    X(DCP,    true,     true,     dcp_cut,            place_by_dcp,    exec_by_dcp)                                    \
    X(GROUPS, true,     true,     groups_cut,         place_by_groups, exec_by_groups)

/* What a program's strategy may be beyond those of plans; and, for the functions below, any. */
enum { STRATEGY_AUTO = FCP_STRATEGY_COUNT, STRATEGY_ANY };

/* What a strategy takes in parentheses. The program keeps each as a uint32_t. */
typedef enum param_kind {
    PARAM_COUNT, /* a whole number, or the first of `words`, which is 0 */
    PARAM_RATIO, /* a number with a point, kept in millionths */
    PARAM_WORD,  /* one of `words`, kept as its number */
    PARAM_FLAG,  /* true or false, kept as 1 or 0 */
    PARAM_SET    /* a list of `words`, kept as a bit for each; `usual` is all of them */
} param_kind;

typedef struct strategy_param {
    const char *name;
    uint32_t strategies; /* a bit for each that takes it */
    param_kind kind;
    uint32_t least, most, usual; /* usual: where the program does not say */
    size_t offset;               /* of its uint32_t in struct fcpc_program */
    const char *const *words;    /* NULL: none */
} strategy_param;
enum { STRATEGY_PARAMS = 22 };
extern const strategy_param strategy_params[STRATEGY_PARAMS];

/* Names of all strategies, and then "auto". */
extern const char *const strategy_names[STRATEGY_ANY];

/* The number of the parameter of that name of a strategy; STRATEGY_PARAMS: there is none. */
uint32_t strategy_find_param(uint32_t strategy, const char *name);
static inline bool strategy_takes(uint32_t strategy, uint32_t param) {
    return strategy == STRATEGY_ANY || strategy_params[param].strategies >> strategy & 1;
}
/* Does it divide heads among ranks? Those that do can say among which. */
static inline bool strategy_shares_heads(uint32_t strategy) {
    return strategy_find_param(strategy, "inside") < STRATEGY_PARAMS;
}
/* Are homes where the caller holds the tokens? Else the strategy chooses them. */
bool strategy_keeps_homes(const struct fcpc_program *p);
/* The names of the parameters that a strategy takes; returns how many. */
uint32_t strategy_param_names(uint32_t strategy, const char *out[STRATEGY_PARAMS]);
/* Where the program keeps a parameter. */
static inline uint32_t *strategy_param_of(struct fcpc_program *p, uint32_t param) {
    return (uint32_t *)((char *)p + strategy_params[param].offset);
}
#endif
