/* fit.h: fits the constants of a profile to measured rows, by least squares.
 *
 * A row says how many cells, row items and launches some attention had, and how long it took. The model is
 *
 *   full cells * full + partial cells * partial + row items * row + launches * launch
 *
 * The fit minimises the sum of squares of relative errors, with all constants at least 0. Each pass and head_dim is a
 * fit of its own.
 *
 * Example of rows: the header, and causal attention of 2048 tokens and 64 heads. There are 16 rows of cells, so each
 * head has 120 FULL cells, 16 PARTIAL ones and 16 row items.
 *
 *   name,gpu,sms,pass,head_dim,full,partial,rows,launches,seconds
 *   causal.2048,h200,132,forward,128,7680,1024,1024,1,0.000141976
 *
 * All counts are sums over query heads. `make bench ROWS=calibrate` and `make gpu-check` print such rows.
 */
#ifndef FCPC_SIMULATE_FIT_H
#define FCPC_SIMULATE_FIT_H
#include "compiler/simulate/simulate.h"

#define CALIBRATE_HEADER "name,gpu,sms,pass,head_dim,full,partial,rows,launches,seconds"
enum { CALIBRATE_NAME = 64, CALIBRATE_LINE = 320, CALIBRATE_ROWS = 100000 };
struct text; /* compiler/base/text.h */

typedef struct calibrate_row {
    char name[CALIBRATE_NAME], gpu[SIM_NAME];
    uint64_t sms, counts[SIM_CONSTANT_COUNT]; /* in the order of sim_constant */
    uint32_t pass, head_dim;
    double seconds;
    /* set by the fit */
    double predicted; /* seconds */
    bool held_out;
} calibrate_row;

/* One pass at one head_dim. Errors are relative: 0.01 is 1 %. */
typedef struct calibrate_fit {
    uint32_t pass, head_dim, rows, held_out;
    double constants[SIM_CONSTANT_COUNT]; /* seconds */
    double worst, worst_held_out;
} calibrate_fit;

typedef struct calibration {
    calibrate_row *rows; /* in the arena, in the order of the text */
    uint32_t row_count;
    calibrate_fit fits[FCP_PASSES * SIM_HEAD_DIMS];
    uint32_t fit_count;
} calibration;

/* Reads rows. FCP_E_ROWS with line and column: a field that is missing or no number, counts without a cell, a time that
 * is not above 0, rows of several gpus. `file` is what messages call the text. */
fcp_code calibrate_read(const char *file, const char *bytes, size_t size, arena *memory, calibration *out,
                        fcp_error *err);
/* Fits the constants to all rows except `hold_out` rows of each fit, chosen at even distances. FCP_E_ROWS: too few rows
 * are left (one more than constants are needed); the rows do not distinguish two constants; or a cell would cost
 * nothing. */
fcp_code calibrate_fit_rows(calibration *x, uint32_t hold_out, fcp_error *err);
/* Writes the profile as text. `from` names the rows in its sources. What the rows do not tell (small, latency.local,
 * channel, queues, part; the constants of a pass without rows) is taken from `base`. If `base` is NULL, a pass without
 * rows is FCP_E_ROWS. */
fcp_code calibrate_profile(const calibration *x, const char *from, const sim_profile *base, struct text *out,
                           fcp_error *err);

/* Counts what a rank of a plan attends to in a pass, as a row without name, gpu, sms and time. FCP_E_NO_MEMORY. */
fcp_code calibrate_count(const fcp_plan *plan, fcp_pass pass, uint32_t rank, calibrate_row *out);
/* A row as a line, without a newline. */
void calibrate_print(const calibrate_row *row, char out[CALIBRATE_LINE]);
#endif
