/* reference.h: computes attention by its definition, and judges a result by it. RULE.md derives how far off a number
 * may be, and says which numbers prove nothing.
 *
 * The reference evaluates the mask's code for every (q, k) of every sequence (and head, if the mask names h), and
 * computes O, LSE, dQ, dK and dV in float64 from the formulas, pair by pair. It shares nothing with the kernels and
 * never looks at the plan's tiles. A score and its slope are evaluated in float64 for every allowed pair. The slope is
 * derived from the score anew (slope.c), because the plan's own slope is what the result was made with. A sink is one
 * more term of the sum. A gradient of LSE is subtracted from delta.
 *
 * The same is also computed *naively*, as a simple program would: scores and sums in fp32, and P and dS rounded to the
 * dtype. The naive error is reported, so that a user can tell a large error from a usual one. In the rule it decides
 * only how far off a score may be, and where results may overflow.
 */
#ifndef FCP_JUDGE_REFERENCE_H
#define FCP_JUDGE_REFERENCE_H
#include "runtime/exec/tensors.h"

typedef enum fcp_verdict {
    FCP_RIGHT,
    FCP_DIFFERS,        /* by more than is allowed */
    FCP_NOT_FINITE,     /* a NaN or an infinity where a number should be, or the reverse */
    FCP_NOT_EMPTY,      /* a query that sees no keys has a result */
    FCP_NOTHING_FINITE, /* there is nothing to compare */
    FCP_NOTHING_PROVEN  /* most numbers may be off by as much as they are: see WHAT PROVES NOTHING */
} fcp_verdict;

typedef struct fcp_check {
    bool checked, ok;
    uint8_t verdict;         /* an fcp_verdict; ok says whether it is FCP_RIGHT */
    float untold;            /* the part of the numbers that may be off by as much as they are */
    double max_abs_error;    /* of the result's finite numbers, against float64 */
    double reference_error;  /* of the naive computation, against float64 */
    double tolerance;        /* what the error may be at `worst`: each number has its own */
    double share;            /* the largest part that a number's error is of what it may be */
    /* the element of the packed tensor where the error is largest; where the tensor differs, furthest above what it may
     * be there; or the first odd one */
    uint64_t worst;
    double result, expected; /* what stands there, and the reference */
} fcp_check;

/* What a report has an entry for: tensors, and behind them the gradients of what all rows share. */
enum { FCP_CHECK_DSINK = FCP_TENSORS, FCP_CHECK_DTABLE, FCP_CHECKS };
const char *fcp_check_name(unsigned check); /* that of a tensor, "dsink" or "dtable" */

typedef struct fcp_check_report {
    fcp_check tensor[FCP_CHECKS];  /* those the passes write */
    bool ok;                       /* of all that were checked */
    double max_abs_error, reference_error; /* the largest over the tensors checked */
    bool sampled;
    /* How many rows there are, and how many were computed: of queries [0] and, in the backward pass, of keys [1]. A
     * row is one token in one head. */
    uint64_t rows[2], checked[2];
} fcp_check_report;
#define FCP_CHECK_START ((fcp_check_report){.ok = true})

typedef struct fcp_check_options {
    unsigned passes;       /* bit per fcp_pass: whose outputs are judged */
    /* Judges only the rows of ranks [first, first + count), by the plan's layout; count 0: of all ranks. All rows
     * are computed all the same, so that the bounds do not depend on this. */
    uint32_t first, count;
    /* Also judges d_sink and d_table, if they are not NULL. They must be the sums over all ranks, and O and LSE must
     * have all rows, also those of other ranks. A sample has not all pairs of a table: then d_table is not judged. */
    bool shared;
    double work;           /* check a sample if fcp_check_work is more than this; 0: never */
    unsigned threads;      /* how many to use; 0: the processors there are */
    const volatile int *stop; /* NULL, or read again and again: not 0 ends the check with FCP_E_INTERRUPTED */
} fcp_check_options;

/* Judges what passes wrote. `packed` has their inputs and outputs; outputs that are NULL are not judged. LSE_LOW is
 * judged as LSE + LSE_LOW. For the backward pass O and LSE are recomputed and not trusted (but see RULE.md: Samples).
 * Adds to *report, which starts as FCP_CHECK_START. FCP_OK means that the judgement was made: report->ok is the
 * verdict.
 *
 * Cost, with W = fcp_check_work:
 *   exact       W multiplications in float64
 *   naive       W multiplications in float32
 *   bounds      W / 2 multiplications in float64; in the backward pass 5/6 W
 *   a score     two evaluations in float64, three where GPUs compute it otherwise; two more where logits are large
 *   tables      head_dim multiplications in float64 and in float32 for each pair, and for each read of a table five
 *               evaluations of its derivative
 *   memory      for each thread 8 n (4 head_dim + 4 value_dim + 192) bytes, where n is the longest sequence's keys;
 *               with a score 8 n 48 more; 72 bytes for each number of a table whose gradient is judged */
fcp_code fcp_check_run(const fcp_plan *plan, const fcp_check_options *options, const fcp_packed *packed,
                       fcp_check_report *report, fcp_error *err);

/* Multiplications that checking all rows takes. */
double fcp_check_work(const fcp_plan *plan, unsigned passes);

/* A run of rows of a sample: `side` is FCP_QUERIES with a query head, or FCP_KEYS with a KV head. */
typedef struct fcp_check_unit {
    uint32_t sequence, side, head, count;
    uint64_t first; /* in the sequence */
} fcp_check_unit;
/* The sample that fcp_check_run would check; *out_units is malloc'd. NULL and 0 where it would check all rows. */
fcp_code fcp_check_units(const fcp_plan *plan, const fcp_check_options *options, fcp_check_unit **out_units,
                         uint64_t *out_count, fcp_error *err);

/* What is wrong with entry `check` of a report, or that it is right, in a sentence without a full stop. */
void fcp_check_text(const fcp_plan *plan, unsigned check, const fcp_check *c, char *out, size_t size);

/* Computes attention by its definition in float64 alone, so that tests can compare it with another program: o [tokens,
 * heads, value_dim], lse [tokens, heads], and if d_o is given dq, dk, dv. With values_in_keys dk has both gradients,
 * and dv nothing. `in` holds q, k, v (and d_o, and d_lse) in the plan's dtype. Outputs may be NULL. */
typedef struct fcp_reference {
    double *o, *lse, *dq, *dk, *dv;
} fcp_reference;
fcp_code fcp_reference_compute(const fcp_plan *plan, const fcp_packed *in, unsigned threads,
                               fcp_reference *out, fcp_error *err);
#endif
