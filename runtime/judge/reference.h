/* reference.h: attention by its definition, and the judgement of a result.
 *
 * The reference evaluates the mask's code for every (q, k) of every sequence (and head, if the mask names h), and
 * computes O, LSE, dQ, dK and dV in float64 from the formulas, pair by pair. It shares nothing with the kernels and
 * never looks at the plan's tiles. A score and its slope are evaluated in float64 for every allowed pair, and a sink is
 * one more term of the sum. The slope is derived from the score anew (slope.h): the plan's own is what the result was
 * made with, so it is not asked. Beside it all the same is computed naively, as a simple program would: scores and sums
 * in fp32, and P and dS rounded to the dtype. Its error is reported, so that a user can tell a large error from a usual
 * one. In the rule below it decides only what a score is off by, and where results may overflow.
 *
 * A number is right if it is as near to the reference as rounding leaves the results of any program that computes
 * attention in the usual way: products of the dtype's numbers are added up in fp32; exponentials are taken in fp32; P
 * and dS may be rounded to the dtype before they enter a product; O and the gradients are rounded to it when they are
 * stored; and delta = rowsum(dO O) is made of O as it was stored. What each of these roundings does is followed through
 * the formulas to first order, for each number by itself:
 *    |result - reference| <= sqrt(squares) + common + relative |reference| + flat + half an ulp of the dtype
 * `squares` adds up, over pairs, the squares of errors that are independent of each other, and as likely up as down. In
 * what follows u is 2^-24, half an ulp of fp32 at 1; w is the part of a number that rounding to the dtype takes (0 in
 * fp32, 2^-11 in fp16, 2^-8 in bf16); |x| is a vector's length; s is scale q . k; d is head_dim.
 *
 *   exponent  d products are added up one by one, and each addition rounds what there is so far. That is a random
 *             walk, and on the way to a large sum it grows as the sum does. The two have standard deviations of 0.3 u
 *             |q| |k| and of 0.24 sqrt(d) u |q . k|; seven times as much is 2 u |q| |k| + 1.7 sqrt(d) u |q . k|. Where
 *             the dtype is not fp32 a matrix unit may cut what it adds, 16 terms at a time: d / 16 units more. Scaling
 *             s and making log2 of it rounds it three times. LSE is rounded when it is stored, converted and
 *             subtracted, and an exponential is off by 8 u at most. So P is off, as a part of itself, by
 *                e = |scale| (2 + d / 16) u |q| |k| + (3 + 1.7 sqrt(d)) u |s| + 4 u |LSE| + 8 u
 *             A score, and its slope, is evaluated again for a logit that is as far off, and the other way, too, if it
 *             has kinks. It may be off by how far it moves, by twice what the naive computation is off by in that row,
 *             and by what elementary functions are: 8 u of a logit and 16 u of a slope, and on GPUs as much as 2^-16
 *             and 2^-18.
 *   sums      A sum of n terms is off by a = 3 u sqrt(n) of each term, which is ten times the random walk. n counts
 *             as 256 at most, since longer sums are made of parts. A matrix unit that cuts adds n / 16 u.
 *   dtype     Rounding n terms to the dtype moves their sum by b = min(4, sqrt(n)) w of each. By Hoeffding's
 *             inequality for uniform errors, a sum exceeds four times the root of their squares once in 10^10.
 *   O         sum over keys of P^2 (e^2 + a^2 + b^2) v^2
 *   LSE       sqrt(sum over keys of P^2 e^2) + (8 + 3 |LSE|) u + a: an error of an exponent moves LSE by P times that.
 *             The backward pass uses LSE as it is, so there e is larger by this.
 *   dV        sum over queries of P^2 (e^2 + a^2 + b^2) dO^2
 *   delta     is off by what O is off by, times dO. An error of an exponent moves O by P (v - O), and so delta by P e
 *             (dP - delta). Rounding P moves it by w P dP, and rounding O by half an ulp of O times dO; both are added
 *             up whole, or as four times the root of their squares if that is less. delta's error is that of all pairs
 *             of a row, so in dQ it is `common`: it counts |sum over keys of P slope scale k| times.
 *   dQ, dK    with dS = P (dP - delta) slope scale: the sum over keys of E^2 k^2, and over queries of E^2 q^2, where
 *             E^2 adds up the squares of dS e, dS a and dS b, of P slope scale times what dP and delta are off by (dP
 *             as q . k above), and of P (dP - delta) scale times what the slope is off by
 *   relative  is what all P of a row are off by together: 4 u (1 + |LSE|) + a; with a sink 4 u |sink| times its part
 *             of the sum more, and for dQ what LSE is off by
 *   flat      is what may be lost because it is small. Below 2^-126, the smallest normal number of fp32, processors
 *             and GPUs may give 0 for any result. So where P, dS or a product is as small as that, the whole of it
 *             counts. fp16 loses half its smallest number, 2^-25, of P and dS: of larger ones by rounding, which is
 *             one more square; of smaller ones the whole. With `wire = bf16` partial results are rounded as they
 *             travel. That may move a number by (1 + 2^-8)^h - 1 times the sum of absolute values that it is made of,
 *             where h is the most hops of a partial of the tensor's class (hops.h derives it). dQ and dK are made of
 *             O, too, so there the hops of states count as well.
 *
 * tests/oracle/peaked.c draws programs and measures how near results come to what is allowed, and how that compares
 * with the naive computation's error. tests/oracle/seeded.c says which errors are found.
 *
 * Where the definition has no keys, O is exactly 0 and LSE exactly -inf (or the head's sink). A NaN or an infinity is
 * right only where the reference, or the naive computation, has the same: scores may overflow. A tensor without a
 * single finite number to compare is not right.
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
 * in float64, as many in float32, and for what is allowed half as many more in float64, or in the backward pass five
 * sixths; each thread takes 8 n (8 head_dim + 192) bytes, n being the longest sequence's keys; with a score 8 n (8
 * head_dim + 240), and a score is evaluated twice in float64. */
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
