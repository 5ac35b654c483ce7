/* sample.h: chooses the rows to check. Private to runtime/judge; RULE.md says what users see of it. */
#ifndef FCP_JUDGE_SAMPLE_H
#define FCP_JUDGE_SAMPLE_H
#include "runtime/judge/reference.h"
#include "runtime/plan/enums.h"

enum { CHECK_RUN = 32 }; /* rows of a run, at most */

typedef struct check_sample {
    fcp_check_unit *units; /* malloc'd; first those of queries, then those of keys */
    uint64_t count;
    uint64_t rows[FCP_SIDES]; /* in them */
} check_sample;

/* Chooses runs that take about `work` in all (as fcp_check_work counts). False: out of memory. */
bool check_sample_choose(const fcp_plan *plan, unsigned passes, double work, check_sample *out);
#endif
