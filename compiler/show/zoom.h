/* zoom.h: a part of one sequence's mask, at any zoom down to single pairs, and what it is made of. */
#ifndef FCPC_SHOW_ZOOM_H
#define FCPC_SHOW_ZOOM_H
#include "compiler/base/arena.h"
#include "compiler/base/json.h"
#include "compiler/cells/cells.h"
#include "compiler/show/terminal.h"

/* What to draw. Ranges are half-open, rows counted from the first query; end 0: up to the end of the sequence. */
typedef struct zoom_view {
    uint64_t sequence;             /* FCP_NONE: the longest */
    uint64_t row, row_end, col, col_end;
    uint32_t most_rows, most_cols; /* signs of the picture */
} zoom_view;

typedef struct zoom {
    const fcp_plan *plan;
    uint32_t sequence;
    uint64_t n, queries, alike;    /* its keys and queries; sequences of as many */
    int64_t q_first;               /* position of its first query */
    uint32_t heads;                /* that pairs are summed over: 1, or all when the mask names h */
    uint64_t group;                /* positions that a sign stands for, a side */
    uint32_t rows, cols;
    uint64_t *row_cut, *col_cut;   /* rows + 1, cols + 1 */
    uint64_t *pairs;               /* rows x cols: exact */
    uint32_t *runs;                /* per row: stretches of allowed keys of its first query (of head 0) */
    uint64_t pairs_drawn, positions_drawn;
    cells_counts all;              /* of the whole sequence */
    double flops_forward, flops_backward; /* of the whole sequence; 0: the plan lacks the pass */
    uint32_t runs_least, runs_most;
    uint64_t runs_sum;
} zoom;

/* FCP_E_VALUE: a sequence or range that is not there; FCP_E_NO_MEMORY, FCP_E_PLAN_SIZE. Lists are in `memory`. */
fcp_code zoom_make(const fcp_plan *plan, const zoom_view *view, arena *memory, zoom *out, fcp_error *err);
fcp_code zoom_text(const zoom *z, const show_options *options, fcp_emit *emit, void *context, fcp_error *err);
fcp_code zoom_svg(const zoom *z, fcp_emit *emit, void *context, fcp_error *err);
/* Adds what was counted to the open object. */
void zoom_json(json *j, const zoom *z);
/* Signs that fit across and down in a terminal of this width. */
void zoom_room(uint32_t width, uint32_t *down, uint32_t *across);
enum { ZOOM_SVG_SIDE = 160 }; /* signs a side of an image */
#endif
