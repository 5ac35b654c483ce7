/* judge_parts.h: what the files of the judge share. Private to runtime/judge. */
#ifndef FCP_JUDGE_JUDGE_PARTS_H
#define FCP_JUDGE_JUDGE_PARTS_H
#include "runtime/judge/reference.h"

/* A number of the result beside the reference. */
typedef struct place {
    uint64_t at;             /* the element */
    double error, allowance; /* how far it is off, and how far it may be */
    double result, expected;
} place;

/* How far a tensor is from the reference. Only maxima and first places, so that the order of tasks does not matter. */
typedef struct measure {
    double naive;            /* largest error of the naive computation */
    double share;            /* the largest part that an error is of what its number may be off */
    bool seen, compared;     /* a number was judged; one of them against a finite number, or in an empty row */
    uint64_t told, untold;   /* numbers that what is allowed leaves something to say about, and others */
    place largest, furthest; /* the largest error; the largest beyond what its number may be off */
    fcp_verdict odd;         /* FCP_NOT_FINITE or FCP_NOT_EMPTY: an element is not merely inexact; else FCP_RIGHT */
    uint64_t odd_at;         /* the first such, and what stands there */
    double odd_result, odd_expected;
} measure;

/* Compares one number of the result with the reference. `result` is NULL if it is not to be judged: then only the
 * naive computation's error counts. allowance: how far off it may be. told: the allowance is small enough that the
 * number proves something. empty: the row sees no keys. */
void measure_number(measure *m, fcp_dtype dtype, uint64_t at, const double *result, double naive, double exact,
                    double allowance, bool told, bool empty);
void measure_merge(measure *into, const measure *m);
/* The verdict on a tensor; adds it to the report. */
void measure_report(const measure *m, fcp_tensor t, fcp_check_report *report);
#endif
