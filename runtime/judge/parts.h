/* parts.h: what the files of the judge share. Private to runtime/judge. */
#ifndef FCP_JUDGE_PARTS_H
#define FCP_JUDGE_PARTS_H
#include "runtime/judge/reference.h"
#include "runtime/plan/plan.h"

/* How far a tensor is from the reference. Only maxima and first places, so that the order of tasks does not matter. */
typedef struct measure {
    double naive;            /* largest error of the naive computation */
    double most;             /* largest |reference| */
    double floor;            /* largest sum of absolute values, see reference.h */
    bool seen, compared;     /* a number was judged; one of them against a finite number, or in an empty row */
    double error, excess;    /* largest of the result; of LSE also beyond its element-wise allowance */
    uint64_t worst;          /* the element of the largest error, and what stands there */
    double result, expected;
    fcp_verdict odd;         /* FCP_NOT_FINITE or FCP_NOT_EMPTY: an element is not merely inexact; else FCP_RIGHT */
    uint64_t odd_at;         /* the first such, and what stands there */
    double odd_result, odd_expected;
} measure;

/* One number of the result beside what it should be. `result` is NULL where it is not to be judged: then only what is
 * allowed follows from it. `empty`: it is of a row that sees no keys. */
void measure_number(measure *m, fcp_tensor t, fcp_dtype dtype, uint64_t at, const double *result, double naive,
                    double exact, bool empty);
void measure_floor(measure *m, double floor);
void measure_merge(measure *into, const measure *m);
/* The verdict on a tensor; adds it to the report. `factor`, `absolute`: see reference.h. */
void measure_report(const measure *m, fcp_tensor t, fcp_dtype dtype, double factor, double absolute,
                    fcp_check_report *report);
#endif
