/* report.h: the record of what strategy = auto tried, and of what became of each candidate. */
#ifndef FCPC_AUTO_REPORT_H
#define FCPC_AUTO_REPORT_H
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/base/json.h"
#include "compiler/sema/strategies.h"
#include "compiler/simulate/profile.h"

/* Lower bounds on the time of any plan with a candidate's placement: the computing of the busiest rank, the traffic of
 * the busiest network port, and that of the busiest port inside a node. */
typedef enum auto_bound { AUTO_COMPUTE, AUTO_NET, AUTO_LOCAL, AUTO_BOUNDS } auto_bound;

typedef struct auto_bounds {
    uint64_t of[AUTO_BOUNDS];
    uint64_t all; /* the largest of each pass, added up */
} auto_bounds;

/* What the rank that ends last mostly does, in the pass that takes longer. */
#define AUTO_RESOURCES(X)                                                                                              \
    X(COMPUTING, "computes")          /* it hardly waits */                                                            \
    X(NET_SEND, "sends on net")       /* it waits, and this port of it is busy half of the time or more */             \
    X(NET_RECEIVE, "receives on net")                                                                                  \
    X(LOCAL_SEND, "sends locally")                                                                                     \
    X(LOCAL_RECEIVE, "receives locally")                                                                               \
    X(ROUNDS, "waits for rounds")     /* it waits, and none of its ports is */
typedef enum auto_resource {
#define X(id, name) AUTO_##id,
    AUTO_RESOURCES(X)
#undef X
    AUTO_RESOURCE_COUNT
} auto_resource;

typedef struct auto_last {
    uint32_t rank;
    auto_resource what;
} auto_last;

/* What became of a candidate. */
#define AUTO_ENDS(X)                                                                                                   \
    X(CHOSEN, "chosen")                                                                                                \
    X(SLOWER, "slower")    /* it was predicted, and another one is faster */                                           \
    X(BOUND, "bound")      /* its bound exceeds a time that was predicted before, or nearly does */                    \
    X(FAR, "far")          /* effort 1: its like was slower, or moves more than it has to */                           \
    X(LONG, "long")        /* effort 1: its ring goes through many nodes */                                            \
    X(OVER, "over budget") /* the budget was spent before its turn, or it would take far longer than others */         \
    X(REFUSED, "refused")  /* it cannot be planned */
typedef enum auto_end {
#define X(id, name) AUTO_##id,
    AUTO_ENDS(X)
#undef X
    AUTO_END_COUNT
} auto_end;
extern const char *const auto_end_names[AUTO_END_COUNT];

/* A parameter that a candidate sets: its place in strategy_params, and its value. */
typedef struct auto_setting {
    uint32_t param, value;
} auto_setting;
enum { AUTO_SETTINGS = 6 };

/* Which of the list's sizes of blocks a candidate has: the one that is tried first, twice that, or half of it. */
typedef enum auto_size { AUTO_MIDDLE, AUTO_TWICE, AUTO_HALF, AUTO_SIZES } auto_size;

typedef struct auto_candidate {
    fcp_strategy strategy;
    auto_setting set[AUTO_SETTINGS]; /* of auto_divides_by; its other parameters: usual values, or the program's */
    uint32_t settings;
    bool no_relay;          /* relay = off, where the program says auto */
    uint32_t line;          /* of auto.c's list, all sizes of blocks alike; of one that was found, its first one's */
    bool found;             /* not of the list: a neighbour of the best one, found by the search */
    bool spread;            /* its neighbours have been tried */
    uint32_t even;          /* it cuts every sequence into so many chunks a rank; 0: it does not */
    uint32_t between;       /* ... + another strategy: BETWEEN of it; 0: none */
    bool whole;             /* of one that was placed: every tile runs at the home of its queries */
    bool heavy;             /* of one that was cut: a block has more work than the mean rank or group */
    uint32_t bare;          /* of one that was placed: ranks without tokens, as there are fewer blocks than ranks */
    uint32_t tiles;         /* of one that was cut */
    uint32_t block;         /* 0: it does not look at the size of blocks */
    auto_size size;         /* of the list's, with blocks of a size */
    auto_end end;
    auto_bounds bound;      /* zeros: not known */
    uint64_t work, late;    /* counted (budget.c): all, and that from its routes on; 0: nothing was planned */
    uint64_t makespan;      /* 0: not predicted */
    uint32_t margin;        /* of one that was predicted */
    auto_last last;         /* of one that was predicted */
    char why[200];          /* of one that was refused */
} auto_candidate;

/* program_has_groups and program_divides_by answer this for programs; these two answer it for candidates. Groups: ranks
 * share heads in groups, and another strategy divides the batch among the groups. */
static inline bool auto_has_groups(const auto_candidate *c) {
    return program_between(c->between) == BETWEEN_BATCH;
}
static inline fcp_strategy auto_divides_by(const auto_candidate *c) {
    return auto_has_groups(c) ? (fcp_strategy)(c->between - 1) : c->strategy;
}
/* Do two candidates belong to one strategy, so that only settings differ? All forms of ulysses with another strategy
 * between groups count as one strategy. */
static inline bool auto_is_like(const auto_candidate *a, const auto_candidate *b) {
    return a->strategy == b->strategy && auto_has_groups(a) == auto_has_groups(b);
}

/* A candidate's placement, changed step by step: which rank computes a tile, or is home to a block. */
typedef struct auto_moves {
    uint32_t of;            /* the candidate */
    uint32_t tried, kept;   /* placements; tried: of all candidates */
    uint32_t moved;         /* blocks and rows in those that were kept */
    uint64_t makespan;      /* of the last one that was kept */
    uint32_t blocks, tiles; /* of the problem */
    uint32_t *home;         /* per block */
    uint32_t *exec;         /* per tile; NULL: at its Q block's home */
} auto_moves;

typedef struct auto_report {
    arena memory;
    char profile[SIM_NAME];
    bool layers; /* times are of a layer with its linear layers, and not of attention alone */
    bool recurrent; /* and with its share of the layers that recur */
    auto_candidate *at;
    uint32_t count, chosen;
    uint64_t budget, work; /* nanoseconds that are counted; budget 0: there is none; work: so far */
    bool spent;            /* something was left out, because it would have exceeded the budget */
    auto_moves moves; /* kept = 0: the plan is the chosen candidate's */
} auto_report;

/* The predicted time of the plan that was chosen. */
static inline uint64_t auto_makespan(const auto_report *r) {
    return r->moves.kept ? r->moves.makespan : r->at[r->chosen].makespan;
}
/* Called if no candidate could be planned. Adds hints to the newest error: why each other strategy could not be
 * planned. */
void auto_hint_refused(const auto_report *r, diags *d);
/* Prints the report: as text, with a line for each candidate; as JSON, as an array in an object that the caller has
 * opened. */
void auto_print(const auto_report *r, text *out);
void auto_json(const auto_report *r, json *j, const char *key);
/* A candidate as a program would write it: "cad(tolerance = 0.05)". */
void auto_name(const auto_candidate *c, text *out);
void auto_report_free(auto_report *r);
#endif
