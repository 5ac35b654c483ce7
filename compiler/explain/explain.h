/* explain.h: why a mask allows a pair or not, and what becomes of its logit: values, sub-expression by
 * sub-expression. */
#ifndef FCPC_EXPLAIN_EXPLAIN_H
#define FCPC_EXPLAIN_EXPLAIN_H
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/base/json.h"
#include "compiler/fcpc.h"

typedef enum explain_kind {
    EXPLAIN_NUMBER,    /* value */
    EXPLAIN_REAL,      /* real */
    EXPLAIN_CONDITION, /* value: 0 or 1 */
    EXPLAIN_FAULT,     /* it, or something it needs, overflows, divides by zero or reads beyond an array */
    EXPLAIN_UNREACHED, /* the answer was known before */
    EXPLAIN_ARRAY      /* a field or table; of no step */
} explain_kind;

/* How a step's value follows from the steps below it. */
typedef enum explain_rule { EXPLAIN_LEAF, EXPLAIN_AND, EXPLAIN_OR, EXPLAIN_NOT, EXPLAIN_BODY, EXPLAIN_IF } explain_rule;

/* One sub-expression. What it is made of follows it, one level deeper, in order of evaluation; numbers and the names of
 * numbers are not steps, they stand in `with`. */
typedef struct explain_step {
    uint32_t depth;
    explain_kind kind;
    explain_rule rule;
    bool again;       /* a definition that was explained before, with these arguments */
    int64_t value;
    double real;
    const char *text; /* the sub-expression */
    const char *with; /* the same with its operands' values: "4900 < 8192"; of a call its arguments; or "" */
    const char *file; /* its place */
    bool builtin;     /* which is in the prelude */
    uint32_t line, column;
} explain_step;

typedef struct explanation {
    arena arena; /* owns the rest */
    const char *mask; /* "lambda(sink = 64, window = 8192)" */
    int64_t q, k, n, h;
    bool asked;         /* `sequence` says which of the batch; else the longest that has q and k, or the first of n */
    uint64_t sequence;
    bool by_field;      /* the mask reads fields: of that sequence */
    const fcp_plan *plan; /* whose lengths and fields are meant; or NULL */
    bool by_head;       /* the mask names h */
    explain_kind kind;  /* CONDITION or FAULT */
    bool allowed;
    const char *because[8]; /* the conditions that decide, the first of them: "k < sink is false (100 < 64)" */
    unsigned reasons;
    explain_step *steps; /* of the mask, then from score_first on of the score */
    size_t count, left_out; /* at most EXPLAIN_STEPS are kept */
    /* the score, where the plan has one and the mask allows the pair; else NULL */
    const char *score;  /* "softcap(c = 50.0)" */
    double s, scored;   /* the logit asked about, and what the score makes of it */
    bool score_faults;
    size_t score_first;
} explanation;
enum { EXPLAIN_STEPS = 4096 };

/* Of the mask and score of the program in `bytes`: out->q, k, h say which pair, out->s which logit, out->n the length
 * (0: the batch's longest sequence that has both, or without a batch the shortest that does), out->sequence which one.
 * Errors, also for a pair outside the sequence, are in `d`.
 * out->arena is to be freed in any case. */
fcp_code explain_pair(const char *name, const char *bytes, size_t size, const fcpc_options *options, diags *d,
                      explanation *out);

/* print.c: the explanation as lines of text, `width` columns wide where that is 40 or more, with ANSI escapes where
 * `colour` says so. Places in `main_source`, the name the program was explained under, are shown without a file. */
void explain_text(const explanation *o, const char *main_source, uint32_t width, bool colour, text *out);
/* Adds its members to the open object. */
void explain_json(const explanation *o, json *j);
#endif
