/* zoom.h: counts and draws a part of one sequence's mask, at any zoom down to single pairs. */
#ifndef FCPC_SHOW_ZOOM_H
#define FCPC_SHOW_ZOOM_H
#include "compiler/base/arena.h"
#include "compiler/base/json.h"
#include "compiler/cells/cells.h"
#include "compiler/show/terminal.h"

typedef struct zoom {
    const fcp_plan *plan;
    uint32_t sequence;
    uint64_t n, queries, alike;    /* its keys, its queries; see show_alike */
    int64_t q_first;               /* position of its first query */
    uint32_t heads;                /* how many heads a pair is counted for: 1, or all if the mask names h */
    uint32_t head;                 /* the head that is drawn; FCP_NONE: all */
    uint64_t group;                /* how many positions a sign stands for on each side */
    uint32_t rows, cols;
    uint64_t *row_cut, *col_cut;   /* [rows + 1], [cols + 1]: where each sign begins */
    uint64_t *pairs;               /* [rows x cols]: the allowed pairs of each sign, exactly */
    uint32_t *runs;                /* [rows]: the runs of keys that the row's first query sees (of all heads: of 0) */
    uint64_t pairs_drawn, positions_drawn;
    cells_counts all;              /* of the whole sequence, over the heads that a pair is counted for */
    double flops_forward, flops_backward; /* of the whole sequence; 0 if the plan lacks the pass */
    uint32_t runs_least, runs_most;
    uint64_t runs_sum;
} zoom;

/* Counts the pairs of the part of a mask that the options choose, for a picture of at most `down` x `across` signs. The
 * lists of *out lie in `memory`. FCP_E_VALUE: the batch has no such sequence, or the sequence no such row or column, or
 * the model no such head; FCP_E_NO_MEMORY, FCP_E_PLAN_SIZE. */
fcp_code zoom_make(const fcp_plan *plan, const fcpc_show_options *asked, uint32_t down, uint32_t across, arena *memory,
                   zoom *out, fcp_error *err);
fcp_code zoom_text(const zoom *z, const fcpc_show_options *options, text *out, fcp_error *err);
fcp_code zoom_svg(const zoom *z, text *out, fcp_error *err);
/* Adds what was counted to the open object. */
void zoom_json(json *j, const zoom *z);
/* How many signs fit down and across in a terminal of this width. */
void zoom_room(uint32_t width, uint32_t *down, uint32_t *across);
enum { ZOOM_SVG_SIDE = 160 }; /* the most signs on a side of an image */
#endif
