/* reference.h: attention by its definition, and the judgement of a result.
 *
 * The reference evaluates the mask's code for every (q, k) of every sequence (and head, if the mask names h), and
 * computes O, LSE, dQ, dK and dV in float64 from the formulas, pair by pair. It shares nothing with the kernels and
 * never looks at the plan's tiles. A score and its slope are evaluated in float64 for every allowed pair, and a sink is
 * one more term of the sum. The slope is derived from the score anew (slope.h): the plan's own is what the result was
 * made with, so it is not asked. Beside it all the same is computed naively, as a simple program would: scores and sums
 * in fp32, and P and dS rounded to the dtype. How far the naive computation is from the reference shows how exact a
 * result can be expected to be.
 *
 * A tensor is right if each of its numbers is:
 *     |result - reference| <= c max |naive - reference| + ulp + 2^-20 floor + wire weight + absolute, where
 *   c         is 2, or 3 with a score whose slope depends on s (a soft-cap)
 *   ulp       is that of the dtype at max |reference|
 *   floor     is the largest sum of the absolute values that make up a number of the tensor, and 2^-20 is eight ulps of
 *             fp32: what is added in another order may be off by rounding where the naive computation happens to be
 *             exact. The floor of dK of a key, for example, is the sum over queries of
 *               (P |slope| scale |dO| (|v| + |O|) / root + |dS| r) max |q|
 *             where |x| is a vector's length, max |q| its largest number and root the square root of head_dim. r is how
 *             many ulps P is off because its exponent is: 1 + |LSE| + scale |q| |k| / root
 *   weight    is, for the number's own row, the sum of absolute values that the floor counts, without r
 *   wire      is 0, or if partial results are rounded as they travel (`wire = bf16`) the part of that sum by which
 *             rounding may move it: (1 + 2^-8)^h - 1, where h is the most hops of a partial of the tensor's class
 *             (hops.h derives it). dQ and dK are made of O, too, so there the hops of states count as well
 *   absolute  is 3e-4 for gradients of fp16 and bf16, and 1e-5 max(1, |reference|), number by number, for LSE; else 0
 * and if where the definition has no keys, O is exactly 0 and LSE exactly -inf (or the head's sink). A NaN or an
 * infinity is right only where the reference, or the naive computation, has the same: scores may overflow. A tensor
 * without a single finite number to compare is not right.
 *
 * SAMPLES. Checking all rows takes time quadratic in lengths. Above a stated amount of work only some rows are checked,
 * always the same ones of a plan: runs of up to 32 neighbouring rows of one head, spread evenly. A row of queries (O,
 * LSE, dQ) is computed against all keys as ever. A row of keys (dK, dV) needs O and LSE of all queries; in a sample
 * these are the result's own, of which the rows of queries are a check.
 */
#ifndef FCP_JUDGE_REFERENCE_H
#define FCP_JUDGE_REFERENCE_H
#include "runtime/exec/tensors.h"

typedef enum fcp_verdict {
    FCP_RIGHT,
    FCP_DIFFERS,        /* by more than is allowed */
    FCP_NOT_FINITE,     /* a NaN or an infinity where a number should be, or the reverse */
    FCP_NOT_EMPTY,      /* a query that sees no keys has a result */
    FCP_NOTHING_FINITE  /* there is nothing to compare */
} fcp_verdict;

typedef struct fcp_check {
    bool checked, ok;
    uint8_t verdict;         /* an fcp_verdict; ok says whether it is FCP_RIGHT */
    double max_abs_error;    /* of the result's finite numbers, against float64 */
    double reference_error;  /* of the naive computation, against float64 */
    double tolerance;        /* what the error may be at `worst` */
    /* the element of the packed tensor where the error is largest; where the tensor differs, furthest above what it may
     * be there; or the first odd one */
    uint64_t worst;
    double result, expected; /* what stands there, and the reference */
} fcp_check;

typedef struct fcp_check_report {
    fcp_check tensor[FCP_TENSORS]; /* those the passes write */
    bool ok;                       /* of all that were checked */
    double max_abs_error, reference_error; /* the largest over the tensors checked */
    bool sampled;
    /* How many rows there are, and how many were computed: of queries [0], and in the backward pass of keys [1]. A row
     * is one token in one head. */
    uint64_t rows[2], checked[2];
} fcp_check_report;
#define FCP_CHECK_START ((fcp_check_report){.ok = true})

typedef struct fcp_check_options {
    unsigned passes;       /* bit per fcp_pass: whose outputs are judged */
    /* Only the rows of ranks [first, first + count), by the plan's layout, are judged; count 0: those of all ranks. All
     * rows are computed all the same, so that what is allowed does not depend on it. */
    uint32_t first, count;
    double work;           /* check a sample if fcp_check_work is more than this; 0: never */
    unsigned threads;      /* how many to use; 0: the processors there are */
    const volatile int *stop; /* NULL, or read again and again: not 0 ends the check with FCP_E_INTERRUPTED */
} fcp_check_options;

/* Judges what passes wrote. `packed` has their inputs and outputs; outputs that are NULL are not judged. For the
 * backward pass O and LSE are recomputed and not trusted (but see SAMPLES). Adds to *report, which starts as
 * FCP_CHECK_START. FCP_OK means that the judgement was made: look at report->ok. Cost: fcp_check_work multiplications
 * in float64 and as many in float32; each thread takes 8 n (4 head_dim + 64) bytes and half as much again, n being the
 * longest sequence's keys; with a score 8 n (4 head_dim + 96). */
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

/* What is wrong with a tensor, or that it is right, in a sentence without a full stop. */
void fcp_check_text(const fcp_shape *shape, fcp_tensor t, const fcp_check *c, char *out, size_t size);

/* The definition in float64, by itself, so that tests can hold it against another program: o [tokens, heads, head_dim],
 * lse [tokens, heads], and when d_o is given dq, dk, dv. `in` holds q, k, v (and d_o) in the plan's dtype. Outputs may
 * be NULL. */
typedef struct fcp_reference {
    double *o, *lse, *dq, *dk, *dv;
} fcp_reference;
fcp_code fcp_reference_compute(const fcp_plan *plan, const fcp_packed *in, unsigned threads, const volatile int *stop,
                               fcp_reference *out, fcp_error *err);
#endif
