/* reference.h: attention by its definition, and the judgement of a result.
 *
 * The reference evaluates the mask's code for every (q, k) of every sequence (and head, if the mask names h), and
 * computes O, LSE, dQ, dK and dV in float64 from the formulas, pair by pair. It shares nothing with the kernels and
 * never looks at the plan's tiles. A score and its slope are evaluated in float64 for every allowed pair, and a sink is
 * one more term of the sum. A gradient of LSE is subtracted from delta. The slope is derived from the score anew
 * (slope.h): the plan's own is what the result was made with, so it is not asked. Beside it all the same is computed
 * naively, as a simple program would: scores and sums in fp32, and P and dS rounded to the dtype. Its error is
 * reported, so that a user can tell a large error from a usual one. In the rule below it decides only what a score is
 * off by, and where results may overflow.
 *
 * A number is right if it is as near to the reference as rounding leaves the results of any program that computes
 * attention in the usual way: products of the dtype's numbers are added up in fp32; exponentials are taken in fp32, of
 * differences; LSE is handed to the backward pass without loss, as two floats; P and dS may be rounded to the dtype
 * before they enter a product; O and the gradients are rounded to it when they are stored; and delta = rowsum(dO O) is
 * made of O as it was stored. What each of these roundings does is followed through the formulas, for each number by
 * itself:
 *    |result - reference| <= sqrt(squares) + common + relative |reference| + flat + half an ulp of the dtype
 * `squares` adds up, over pairs, the squares of errors that are independent of each other, and as likely up as down. In
 * what follows u is 2^-24, half an ulp of fp32 at 1; w is the part of a number that rounding to the dtype takes (0 in
 * fp32, 2^-11 in fp16, 2^-8 in bf16); |x| is a vector's length; s is scale q . k; x is the softmax's argument, which is
 * s or the score of it; d is head_dim, for products with V value_dim.
 *
 *   exponent  What x is off by is e. Where there is no score:
 *                e = |scale| (2 + d / 16) u |q| |k| + (3 + 1.7 sqrt(d)) u |x| + 8 u
 *             d products are added up one by one, and each addition rounds what there is so far. That is a random walk,
 *             and on the way to a large sum it grows as the sum does. The two have standard deviations of 0.3 u |q| |k|
 *             and of 0.24 sqrt(d) u |q . k|; seven times as much is 2 u |q| |k| + 1.7 sqrt(d) u |q . k|. Where the
 *             dtype is not fp32 a matrix unit may cut what it adds, 16 terms at a time: d / 16 units more. Scaling
 *             rounds s up to three times, and an exponential is off by 8 u at most.
 *             A score is evaluated again for a logit that is as far off, and the other way, too, if it has kinks; it
 *             may be off by how far it moves. fp32 may have no room for s beside what a score adds to it: s - 1e9 is
 *             rounded to a multiple of 64. The naive computation shows how much is lost. What it is off by at the row's
 *             largest key all keys of the row may be off by, without harm to P: this is the row's *shift*. By how much
 *             more or less it is off elsewhere in the row, at most and twice, counts for each key; beyond 64 also by
 *             how much for logits an eighth larger and smaller, as a row of few keys shows little. The rest are ulps: 8
 *             u of 1, of the distance to the row's largest x, and of |x| up to 16; and on GPUs 2^-16, and how far the
 *             score moves when its tanh, exp, log and sqrt are off by 2^-16 of themselves. A slope is off by how far it
 *             moves, by twice what the naive one is off by in that row, and by 16 u of it and of 1, on GPUs 64 u.
 *             An exponential is taken of a difference, which is rounded, and scaled: 4 u |x - LSE| more for all.
 *   P         is a part of a sum, so it depends on differences of exponents alone. The row's *top*, the key or sink
 *             that has the largest P, is off by e_top; every other exponent, beside it, by e' = sqrt(e^2 + (P_top
 *             e_top)^2). If an exponent is e' more, P becomes P exp(e'), and the sum grows by g = P (exp(e') - 1); if
 *             it is e' less, the sum shrinks by h = P (1 - exp(-e')). Let G and H be the roots of the sums of g^2 and
 *             of h^2 over all other parts but the top's. Then P is off by
 *                p = root of  (the larger of (1 - P) g / (1 + g) and (1 - P) h / (1 - h))^2
 *                         and (the larger of P G / (1 + G) and P H / (1 - H))^2
 *             and never by more than what P between 0 and 1 can be, which is P or 1 - P. Where all e are small, this is
 *             P times the root of ((1 - P) e)^2 and of the sum of the others' (P_i e_i)^2. A row with one key that has
 *             all of the sum has no error, however large its logit is. Beside a sink that is the top the shift is an
 *             error of each exponent; a sink that is not is off by the shift. An e is rarely reached when it is small;
 *             when it is large it leaves P anywhere. So in sums of squares p counts 1 + e' times, up to 4 times.
 *   base      Kernels without a score may scale x to log2 before they subtract from it, if the base that they subtract
 *             is below 256 there. Then all P of a row are off together by the base's ulps: c = 4 u |LSE|, and at most 4
 *             u 178. With a score, and in fp32, for which there are no kernels, c is 0.
 *   sums      A sum of n terms is off by a = 3 u sqrt(n) of each term, which is ten times the random walk. n counts as
 *             256 at most, since longer sums are made of parts. A matrix unit that cuts adds n / 16 u.
 *   dtype     Rounding n terms to the dtype moves their sum by b = min(4, sqrt(n)) w of each. By Hoeffding's inequality
 *             for uniform errors, a sum exceeds four times the root of their squares once in 10^10.
 *   O         sum over keys of (p^2 + P^2 a^2 + P^2 b^2) v^2, but together no more than the largest |v| of a key that
 *             the row sees and |O|
 *   LSE       as a pair, LSE + LSE_LOW: the root of (P_top e_top)^2 and of log(1 + G)^2, G being that of all parts but
 *             the top's, or, where exponents may be 100 above LSE, what e lets them reach; and twice the shift, 8 u + c
 *             + a, and with a score 2 u |LSE|. As one number 3 u |LSE| more.
 *   dV        sum over queries of (p^2 + P^2 r^2 + P^2 a^2 + P^2 b^2) dO^2, where r = 8 u + c + a is what all P of a
 *             row are off by together in the backward pass
 *   delta     is off by what O is off by, times dO. An error of P moves delta by p (dP - delta), as the parts of a row
 *             stay 1 together; that of a sink by p delta. Together this is at most 2 |dO| |v|. Rounding P moves delta
 *             by w P dP, and rounding O by half an ulp of O times dO; both are added up whole, or as four times the
 *             root of their squares if that is less. dLSE adds 2 u |dLSE|. delta's error is that of all pairs of a row,
 *             so in dQ it is `common`: it counts |sum over keys of P slope scale k| times.
 *   dQ, dK    with dS = P (dP - delta + dLSE) slope scale: the sum over keys of E^2 k^2, and over queries of E^2 q^2,
 *             where E^2 adds up the squares of dS r, dS a and dS b, of p times dP - delta + dLSE and what delta is off
 *             by, times slope scale, of P slope scale times what dP and delta are off by (dP as q . k above), and of P
 *             (dP - delta + dLSE) scale times what the slope is off by. Where values are in the keys, dK has what dK
 *             and dV have.
 *   relative  is what all P of a row are off by together: of O 4 u + c / 2 + a, and of dQ r more. Of dK and dV it is 4
 *             u + a.
 *   flat      is what may be lost because it is small. Below 2^-126, the smallest normal number of fp32, processors and
 *             GPUs may give 0 for any result. So where P, dS or a product is as small as that, the whole of it counts.
 *             fp16 loses half its smallest number, 2^-25, of P and dS: of larger ones by rounding, which is one more
 *             square; of smaller ones the whole. With `wire = bf16` partial results are rounded as they travel. That
 *             may move a number by (1 + 2^-8)^h - 1 times the sum of absolute values that it is made of, where h is the
 *             most hops of a partial of the tensor's class (hops.h derives it). dQ and dK are made of O, too, so there
 *             the hops of states count as well.
 *
 * How much that is beside what a naive computation has: tests/oracle/peaked.c draws programs, with logits near 0 or as
 * far from it as fp32 reaches, and compares what is allowed with the naive computation's largest error in the tensor
 * plus one rounding of the most that a pair can add, which it may lack by chance. Of O and the gradients, what half of
 * the numbers may be off by is at most 1.6 times that in fp32, and 0.4 times in fp16 and bf16; 99 of 100 may be off by
 * at most 50 times that, and none of 10000 programs by 1000 times. Of LSE it is 6, 130 and 1000 times. The test fails
 * where it is more than 2000 times. It also measures how near results come to what is allowed. tests/oracle/seeded.c
 * says which errors are found.
 *
 * WHAT PROVES NOTHING. With `score far = s - 1e9` and ordinary q and k, fp32 has the same logit for all keys, and any
 * program that computes in fp32 gives each key 1/n, while the definition does not. Results are as far off as they are
 * large, those of the naive computation too, and what is allowed says so; but then an output of zeros would be within
 * it. So a number *tells* something only if what it may be off by (the square root and common) is less than the number
 * itself, or less than a quarter of the most that one pair could add to it if its P were 1. (Of LSE: than 1.) If most
 * of a tensor's numbers tell nothing, the verdict is FCP_NOTHING_PROVEN, which is not right. An error beyond what is
 * allowed is still found. Where all logits are so far away that float64, too, gives each key 1/n, as with s - 2.4e38,
 * the two agree again, and the result is judged as any other.
 *
 * Where the definition has no keys, O is exactly 0 and LSE exactly -inf (or the head's sink), and nothing was taken
 * from it. A NaN or an infinity is right only where the reference, or the naive computation, has the same, as scores
 * may overflow; an infinity also where the reference is so near the end of the dtype that what is allowed goes on
 * beyond it. A tensor without a single finite number to compare is not right.
 *
 * SAMPLES. Checking all rows takes time quadratic in lengths. Above a stated amount of work only some rows are checked,
 * always the same ones of a plan: runs of up to 32 neighbouring rows of one head, spread evenly. A row of queries (O,
 * LSE, dQ) is computed against all keys as ever. A row of keys (dK, dV) needs O and LSE of all queries; in a sample
 * these are the result's own, LSE with LSE_LOW if that is given, of which the rows of queries are a check. Such an LSE
 * has the row's shift, so logits get it, too; and nothing makes up for what an exponent is off by, so there P is off by
 * g, and by 4 u |LSE| more if there is no LSE_LOW.
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

/* Judges what passes wrote. `packed` has their inputs and outputs; outputs that are NULL are not judged. LSE_LOW is
 * judged as LSE + LSE_LOW. For the backward pass O and LSE are recomputed and not trusted (but see SAMPLES). Adds to
 * *report, which starts as FCP_CHECK_START. FCP_OK means that the judgement was made: look at report->ok.
 * Cost: fcp_check_work multiplications in float64, as many in float32, and for what is allowed half as many more in
 * float64, or in the backward pass five sixths; each thread takes 8 n (4 head_dim + 4 value_dim + 192) bytes, n being
 * the longest sequence's keys; with a score 8 n 48 more, and a score is evaluated twice in float64, three times where
 * GPUs compute it otherwise, and twice more where logits are large. */
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

/* The definition in float64, by itself, so that tests can hold it against another program: o [tokens, heads,
 * value_dim], lse [tokens, heads], and when d_o is given dq, dk, dv; with values_in_keys dk has both gradients, and dv
 * nothing. `in` holds q, k, v (and d_o, and d_lse) in the plan's dtype. Outputs may be NULL. */
typedef struct fcp_reference {
    double *o, *lse, *dq, *dk, *dv;
} fcp_reference;
fcp_code fcp_reference_compute(const fcp_plan *plan, const fcp_packed *in, unsigned threads, const volatile int *stop,
                               fcp_reference *out, fcp_error *err);
#endif
