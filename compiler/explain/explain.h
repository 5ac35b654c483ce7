/* explain.h: explains why a mask allows a pair of a query and a key or not, and what a score makes of its logit, with
 * the value of every sub-expression. */
#ifndef FCPC_EXPLAIN_EXPLAIN_H
#define FCPC_EXPLAIN_EXPLAIN_H
#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/fcpc.h"

struct json;
struct text;

typedef enum explain_kind {
    EXPLAIN_NUMBER,    /* an integer, in `value` */
    EXPLAIN_REAL,      /* a real number, in `real` */
    EXPLAIN_CONDITION, /* 0 or 1, in `value` */
    EXPLAIN_FAULT,     /* it, or something it needs, overflows, divides by zero or reads beyond an array */
    EXPLAIN_UNREACHED, /* it was not evaluated, as the answer was already known */
    EXPLAIN_ARRAY      /* a field or table; no step has this kind */
} explain_kind;

/* How a step's value follows from the steps below it. */
typedef enum explain_rule { EXPLAIN_LEAF, EXPLAIN_AND, EXPLAIN_OR, EXPLAIN_NOT, EXPLAIN_BODY, EXPLAIN_IF } explain_rule;

/* One sub-expression. The sub-expressions that it consists of follow it, one level deeper, in the order of evaluation.
 * Numbers, and names of numbers, have no steps of their own: their values are in `with`. */
typedef struct explain_step {
    uint32_t depth;
    explain_kind kind;
    explain_rule rule;
    bool again;       /* this call was explained before, with the same arguments */
    int64_t value;
    double real;
    const char *text; /* the sub-expression */
    const char *with; /* the same with the values of its operands, "4900 < 8192"; for a call, its arguments; or "" */
    const char *fault; /* if it faults: how, in the words of the error, "division by zero"; else "" */
    const char *file; /* where it stands */
    bool builtin;     /* it stands in the prelude */
    uint32_t line, column;
} explain_step;

typedef struct explanation {
    /* what is asked */
    const fcp_plan *plan; /* lengths and fields are those of this plan; NULL: of the program */
    int64_t q, k, h;
    double s;           /* the logit */
    uint32_t layer;     /* which mask of the program, from 0: less than it has */
    /* The length of the sequence, and its number if it was `asked` for. If it was not, the answer has the one that was
     * taken: the first with n tokens; if n is 0, the longest that has q and k. */
    int64_t n;
    uint64_t sequence;
    bool asked;

    /* the answer */
    arena arena;        /* owns what follows */
    const char *mask;   /* "lambda(sink = 64, window = 8192)" */
    bool by_field;      /* the mask reads fields, so the answer depends on the sequence */
    bool by_head;       /* the mask names h */
    explain_kind kind;  /* of the mask: CONDITION or FAULT */
    bool allowed;
    /* The first conditions that decide: "k < sink is false (100 < 64)". Of a fault: "100 / k: division by zero (100 /
     * 0)" */
    const char *because[8];
    unsigned reasons;
    explain_step *steps; /* those of the mask; from score_first on, those of the score */
    size_t count, left_out; /* at most EXPLAIN_STEPS are kept; the others are counted in left_out */
    const char *score;  /* "softcap(c = 50.0)"; NULL: the plan has none, or the mask does not allow the pair */
    double scored;      /* what the score makes of s */
    bool score_faults;
    const char *fault; /* how the mask faults, or else the score: "division by zero"; else "" */
    size_t score_first;
    const struct explain_computed *computed; /* where; NULL: `plan` is NULL, or the pair is not allowed */
    const struct explain_stretch *stretch;   /* NULL: `plan` is NULL, or has no layers that recur */
} explanation;
enum { EXPLAIN_STEPS = 4096 };

/* Explains the mask and score of the program in `bytes`. *out has the question. If there is no batch and n is 0, the
 * sequence is as long as q and k need. Errors are added to `d`; a pair outside the sequence is FCP_E_VALUE. The caller
 * frees out->arena, also after an error. */
fcp_code explain_pair(const char *name, const char *bytes, size_t size, const fcpc_options *options, diags *d,
                      explanation *out);

/* Explains many pairs of one program, which is parsed once. `next` is called for each question. It gets an explanation
 * that is empty but for `plan`, and fills in what is asked; it returns false if there are no more questions. `told`
 * then gets the answer, which is freed when told returns. The answer does not say which rank computes the pair. Errors
 * are added to `d`. */
typedef bool explain_next(void *context, explanation *o);
typedef void explain_told(void *context, const explanation *o);
fcp_code explain_pairs(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                       const fcp_plan *plan, explain_next *next, explain_told *told, diags *d, void *context);

/* Adds the explanation as lines of text, at most `width` columns wide if that is 40 or more. With `colour` it has ANSI
 * escapes. `main_source` is the name that was given to explain_pair: places in that file are printed without its name.
 * (print.c) */
void explain_text(const explanation *o, const char *main_source, uint32_t width, bool colour,
                  struct text *out);
/* Adds the explanation's members to the open object. (print.c) */
void explain_json(const explanation *o, struct json *j);
#endif
