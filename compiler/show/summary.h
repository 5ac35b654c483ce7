/* summary.h: writes what a plan costs, as five lines of text or as members of a JSON object. */
#ifndef FCPC_SHOW_SUMMARY_H
#define FCPC_SHOW_SUMMARY_H
#include "compiler/fcpc.h"
#include "compiler/base/json.h"

/* Figures that follow from the plan's summary record. A mean is over all ranks, also those without tokens. A ratio to a
 * mean is 1 if there is nothing to balance. */
typedef struct summary_figures {
    double pairs, positions;        /* allowed pairs, and all; summed over heads if the mask names h */
    double density;                 /* allowed pairs / pairs of queries and keys in the same sequence */
    double flops_forward, flops_backward;
    double compute_max_over_mean, compute_floor;
    double send_max_over_mean, recv_max_over_mean, tokens_max_over_mean, key_tokens_max_over_mean;
} summary_figures;
summary_figures summary_derive(const fcp_plan *plan);

const char *summary_strategy(uint32_t strategy); /* "fcp", "ring", "zigzag" */
const char *summary_layout(uint32_t layout);     /* "planned", "contiguous", "zigzag" */

/* Adds the summary's members to the open object of `j`. */
void summary_json(json *j, const fcp_plan *plan, const fcpc_times *times);

/* Adds five lines, each with a newline at its end, and one more for each kind of layers that recur. The first begins with
 * `name`, without its folder. `written` is the
 * path of the plan file; NULL: none was written. Names are cut off after 200 bytes. */
void summary_text(text *out, const fcp_plan *plan, const fcpc_times *times, const char *name, const char *written);
/* A number as a person reads it, in units of 1000: "1.25 GB", "3.10 TFLOP". */
enum { SUMMARY_NUMBER = 32 };
const char *summary_number(char out[SUMMARY_NUMBER], double value, const char *unit);
#endif
