/* report.h: what strategy = auto tried, and what became of it. */
#ifndef FCPC_AUTO_REPORT_H
#define FCPC_AUTO_REPORT_H
#include "compiler/base/arena.h"
#include "compiler/base/json.h"
#include "compiler/sema/strategies.h"
#include "compiler/simulate/profile.h"

/* No plan with a candidate's placement is faster; kinds of bounds: the busiest rank's computing, the busiest network
 * port, the busiest port inside a node. */
typedef enum auto_bound { AUTO_COMPUTE, AUTO_NET, AUTO_LOCAL, AUTO_BOUNDS } auto_bound;
extern const char *const auto_bound_names[AUTO_BOUNDS]; /* "compute", "net", "local" */

typedef struct auto_bounds {
    uint64_t of[AUTO_BOUNDS];
    uint64_t all; /* the largest of each pass, added up */
} auto_bounds;

/* What became of a candidate. */
#define AUTO_ENDS(X)                                                                                                   \
    X(CHOSEN, "chosen")                                                                                                \
    X(SLOWER, "slower")   /* it was predicted, and another one is faster */                                            \
    X(BOUND, "bound")     /* its bound exceeds a time that was predicted before */                                     \
    X(FAR, "far")         /* effort 1: its strategy, or its block size, was much slower with another setting */        \
    X(LONG, "long")       /* effort 1: its ring goes through many nodes */                                             \
    X(REFUSED, "refused") /* it cannot be planned */
typedef enum auto_end {
#define X(id, name) AUTO_##id,
    AUTO_ENDS(X)
#undef X
    AUTO_END_COUNT
} auto_end;
extern const char *const auto_end_names[AUTO_END_COUNT];

typedef struct auto_candidate {
    fcp_strategy strategy;
    uint32_t param, value;  /* of strategy_params; STRATEGY_PARAMS: all have their usual values */
    uint32_t even;          /* it cuts every sequence into so many chunks a rank; 0: it does not */
    bool ring;              /* ... + ring */
    uint32_t block;         /* 0: it does not look at the size of blocks */
    auto_end end;
    auto_bounds bound;      /* zeros: not known */
    uint64_t makespan;      /* 0: not predicted */
    char why[200];          /* of one that was refused */
} auto_candidate;

typedef struct auto_report {
    arena memory;
    char profile[SIM_NAME];
    auto_candidate *at;
    uint32_t count, chosen;
} auto_report;

/* As text, a line for each candidate; and as an array of an object that is open. */
void auto_print(const auto_report *r, text *out);
void auto_json(const auto_report *r, json *j, const char *key);
/* A candidate as a program would write it: "cad(tolerance = 0.05)". */
void auto_name(const auto_candidate *c, text *out);
void auto_report_free(auto_report *r);
#endif
