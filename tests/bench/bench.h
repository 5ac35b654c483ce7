/* bench.h: what a benchmark file uses: clocks, plans and a row of the table. Each tests/bench/bench_NAME.c defines
 * `void bench_NAME(void)`; tests/bench/bench.c calls them all. */
#ifndef FCPC_BENCH_H
#define FCPC_BENCH_H
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler/compile.h"

/* One row: a figure, its unit, the goal as text ("<= 10 ms"; "" when there is none), whether it was met, and a note. */
void bench_row(const char *name, double value, const char *unit, const char *goal, bool met, const char *note);
bool bench_wants(const char *name); /* will a row of that name be printed? */
bool bench_may_want(const char *part); /* may a row with this part in its name be? */
double bench_now(void);       /* seconds, monotonic */
double bench_processor(void); /* seconds of processor time of this process */
double bench_median(double *times, int count); /* puts them in order */
/* The plan of a program's text, for these lengths or, where count is 0, its own. NULL: what is wrong is on stderr. */
fcp_plan *bench_plan_of(const char *source, const uint64_t *lengths, size_t count);
/* The same, while somebody watches; NULL: nobody does. */
fcp_plan *bench_plan_watched(const char *source, const uint64_t *lengths, size_t count, const compile_watch *watch);

/* The path of a temporary file of this process. */
void bench_temporary(char path[512], const char *name);
/* The instructions of a program, which is run without output; 0: they could not be counted. Without counters of the
 * processor valgrind counts them, which takes 50 times as long (bench_growth.c). */
double bench_instructions(char *const argv[]);
/* Where the program fcpc is: beside this one. False: it is not there. */
bool bench_find_fcpc(char path[PATH_MAX]);

/* The groups, called by bench.c. */
void bench_plan(void);
void bench_growth(void);
void bench_recurrent(void);
void bench_forest(void);
void bench_cells(void);
void bench_fields(void);
void bench_slices(void);
void bench_place(void);
void bench_groups(void);
void bench_move(void);
void bench_drawn(void);
void bench_dcp(void);
void bench_rows(void);
void bench_auto(void);
void bench_colour(void);
void bench_order(void);
void bench_sass(void);
void bench_jit(void);
void bench_sim(void);
void bench_calibrate(void);
void bench_published(void);
void bench_host(void);
void bench_run(void);
void bench_heads(void);
void bench_trace(void);
void bench_python(void);
void bench_play(void);

/* Runs a script that measures: each line that it prints becomes a row (bench_play.c). */
void bench_script(const char *command);
#endif
