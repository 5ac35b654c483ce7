/* published.h: functions that bench_published.c and bench_systems.c share, which compare published figures with
 * predicted ones. */
#ifndef FCPC_BENCH_PUBLISHED_H
#define FCPC_BENCH_PUBLISHED_H
#include "compiler/simulate/simulate.h"

/* Seconds of a pass; *out_mean: of its computing, spread evenly; *out_flops: of the allowed pairs. 0: it failed. */
double published_seconds(const fcp_plan *plan, fcp_pass pass, const sim_profile *profile, const sim_options *options,
                         double *out_mean, double *out_flops);
/* A profile of the compiler's, its times of cells and rows times a factor. */
sim_profile published_scaled(const char *name, double factor);
/* The rows of bench_systems.c. */
void published_systems(void);
#endif
