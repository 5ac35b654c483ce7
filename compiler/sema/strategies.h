/* strategies.h: facts about each strategy, and the parameters of all, as tables.
 *
 * Passes do not ask which strategy a program names. They ask a fact about it, so that a new strategy changes no pass.
 * To add one, add:
 *   1. its number and name to FCP_STRATEGY_LIST in runtime/plan/enums.h. They are there because a plan states its
 *      strategy, and plans are also read where there is no compiler;
 *   2. a line in strategy_facts_of, and lines for its parameters in strategy_params (strategies.c);
 *   3. a folder in compiler/place with its functions, and a line for these in compiler/passes/strategy_table.c;
 *   4. the settings with which strategy = auto tries it, in compiler/auto/candidates.c.
 *
 * `auto` is no strategy of plans: compiler/auto tries several and keeps one.
 */
#ifndef FCPC_SEMA_STRATEGIES_H
#define FCPC_SEMA_STRATEGIES_H
#include "compiler/sema/program.h"

/* Two numbers behind those of the strategies that plans have: `auto`, which a program may name, and "any strategy",
 * which the functions below take. */
enum { STRATEGY_AUTO = FCP_STRATEGY_COUNT, STRATEGY_ANY };
/* STRATEGY_USUAL is the strategy of a program that names none. STRATEGY_IN_PHASES computes heads in phases, which use
 * the same memory one after the other. If a plan does not fit its memory, a hint says how much that strategy would
 * need. */
#define STRATEGY_USUAL FCP_STRATEGY_FCP
#define STRATEGY_IN_PHASES FCP_STRATEGY_UPIPE

/* Which rank is home to a token. */
typedef enum strategy_homes {
    HOMES_CHOSEN, /* one that the strategy chooses */
    HOMES_CALLER, /* the rank where the caller holds it */
    HOMES_LAYOUT, /* that rank where the program states a layout, and else one that the strategy chooses */
    HOMES_BASE    /* that rank with base = caller, and else the one that the base's strategy chooses */
} strategy_homes;

/* What the strategy does behind '+', between groups of ranks that share heads: "ulysses + ring". */
typedef enum strategy_between {
    BETWEEN_NOTHING, /* it may not stand there */
    BETWEEN_KEYS,    /* keys and values go round all groups */
    BETWEEN_BATCH    /* it divides the batch among the groups, as it else does among ranks */
} strategy_between;

typedef struct strategy_facts {
    strategy_homes homes;
    strategy_between between;
    uint32_t even;         /* it cuts every sequence into so many chunks a rank, of equal length; 0: it does not */
    bool packs_sequences;  /* which sequences share ranks follows from their lengths alone */
    bool serves_all_masks; /* with `layers`: blocks are divided for all masks, and chosen homes balanced under all */
    bool by_times;         /* what it divides among ranks depends on what kernels take, by a profile */
    bool slow_tiles;       /* to place a tile takes longer than all passes behind that */
} strategy_facts;
extern const strategy_facts strategy_facts_of[STRATEGY_ANY]; /* of auto: zeros */

/* What a strategy takes in parentheses. The program keeps each as a uint32_t. */
typedef enum param_kind {
    PARAM_COUNT, /* a whole number, or the first of `words`, which is 0 */
    PARAM_RATIO, /* a number with a point, kept in millionths, or the first of `words`, which is 0 */
    PARAM_WORD,  /* one of `words`, kept as its number */
    PARAM_TIME,  /* a time with its unit, kept in microseconds, or the first of `words`, which is 0 */
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
    bool schedules;              /* it changes nothing before the schedule: no block and no home */
} strategy_param;
enum { STRATEGY_PARAMS = 27 };
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
/* How many heads are computed at a time if ranks share heads, and the program does not say: one for each rank if the
 * strategy has phases, else all. */
static inline uint32_t strategy_heads_together(const struct fcpc_program *p) {
    return strategy_find_param(p->strategy, "heads") < STRATEGY_PARAMS ? p->inside : p->heads;
}
/* Are homes where the caller holds the tokens? Else they are chosen. */
bool strategy_keeps_homes(const struct fcpc_program *p);
/* The names of the parameters that a strategy takes; returns how many. */
uint32_t strategy_param_names(uint32_t strategy, const char *out[STRATEGY_PARAMS]);
/* Where the program keeps a parameter. */
static inline uint32_t *strategy_param_of(struct fcpc_program *p, uint32_t param) {
    return (uint32_t *)((char *)p + strategy_params[param].offset);
}

/* --- groups of ranks that share heads ----------------------------------------------------------------------------- */

static inline strategy_between program_between(uint32_t between) {
    return between ? strategy_facts_of[between - 1].between : BETWEEN_NOTHING;
}
/* Do keys go round a ring of groups? Then the batch is divided by the layout, as with one group alone. */
static inline bool program_has_ring(const struct fcpc_program *p) {
    return program_between(p->between) == BETWEEN_KEYS;
}
/* Does another strategy divide the batch among the groups, each of which stands for one rank of that strategy's? */
static inline bool program_has_groups(const struct fcpc_program *p) {
    return program_between(p->between) == BETWEEN_BATCH;
}
/* The strategy that cuts blocks and chooses homes, for each rank or for each group. */
static inline fcp_strategy program_divides_by(const struct fcpc_program *p) {
    return program_has_groups(p) ? (fcp_strategy)(p->between - 1) : p->strategy;
}
/* The rounds of a stage between groups of `inside` ranks, if without groups it has `rounds`. Blocks that travel between
 * groups are divided by heads as well, so there are `inside` times as many of them. */
static inline uint32_t program_rounds_between(uint32_t rounds, uint32_t inside) {
    enum { MOST = 64 }; /* as of the parameter */
    return rounds * inside < MOST ? rounds * inside : MOST;
}
/* The number of ranks, or of groups, among which the strategy of program_divides_by divides the batch. */
static inline uint32_t program_places(const struct fcpc_program *p) {
    return p->nodes * p->gpus / (program_has_groups(p) ? p->inside : 1);
}
#endif
