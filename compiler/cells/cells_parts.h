/* cells_parts.h: private to this room: the object of cells.h, and the functions of one file here that another one
 * calls. */
#ifndef FCPC_CELLS_CELLS_PARTS_H
#define FCPC_CELLS_CELLS_PARTS_H
#include "compiler/cells/cells.h"

#include "compiler/base/arena.h"
#include "compiler/box/box.h"
#include "compiler/box/bands.h"
#include "compiler/box/lanes.h"
#include "compiler/box/tally.h"
#include "compiler/cells/elements.h"
#include "compiler/base/memo.h"
#include "compiler/box/solve_rows.h"
#include "compiler/base/stack.h"
#include "runtime/base/grow.h"
#include "runtime/base/stop.h"

/* A span: columns [first, end) of some rows of a grid, and what is known of the mask there. The walk over a grid
 * (walk.c) works on lists of spans. Rows and columns count units, which are cells or pieces. */
typedef enum span_kind {
    SPAN_OPEN,     /* not decided; `program` is what is left of the mask */
    SPAN_FULL,     /* all pairs are allowed */
    SPAN_ALIKE,    /* cells: each query has `pairs` pairs here */
    SPAN_DIAGONAL, /* `program` depends on q - k alone: see diagonals `number`, which begin at row `row` */
    SPAN_TALLY     /* the pairs of each cell are known: see `tally` */
} span_kind;

/* Units of which the pairs of each cell are known. */
typedef struct unit_tally {
    uint32_t row, col;                 /* the first of them in the walk */
    tally_cuts cuts[2];                /* their cells */
    uint32_t first[2][TALLY_SIDE + 1]; /* unit i has cells [first[d][i], first[d][i + 1]) */
    uint64_t heads;
    uint32_t pairs[]; /* row by row */
} unit_tally;

typedef struct unit_span {
    uint32_t first, end;
    span_kind kind;
    uint32_t number, row;
    const box_program *program;
    union {
        uint64_t pairs;          /* of SPAN_ALIKE */
        const unit_tally *tally; /* of SPAN_TALLY */
    };
} unit_span;

/* One side of a grid: pieces between given cuts, or cells. */
typedef struct units {
    const uint64_t *cuts; /* NULL: cells */
    int64_t start, end;   /* the position that cuts count from; of cells, the first and the end */
    uint32_t count;
} units;

/* The kind of question that a key of the memo stands for, and what the three numbers of its answer are. */
typedef enum answer_kind {
    ANSWER_CELLS,      /* a rectangle of cells, or one cell: full cells, partial cells, pairs */
    ANSWER_PAIRS,      /* a piece pair: its pairs, and whether they are known without a shape */
    ANSWER_SHAPE,      /* a piece pair: the number of its shape */
    ANSWER_FULL_SHAPE, /* a FULL piece pair of these lengths: the number of its shape */
    ANSWER_GRID,       /* a sequence with these cuts: its place in `grids` */
    ANSWER_DIAGONALS,  /* a stretch that depends on q - k alone: its place in `diagonals` */
    ANSWER_CUT         /* a unit on a diagonal that is cut short: its value, and whether it has pairs */
} answer_kind;

/* After so many cells that needed elements have been remembered, some 30 MB, it is checked whether remembering them is
 * of use. */
enum { CELLS_REMEMBERED = 1 << 17 };
enum { GRIDS_SEEN = 1024, TALLY_SIDE_BITS = 6 };
_Static_assert(TALLY_SIDE <= 1 << TALLY_SIDE_BITS, "a place for each size");
#define SHAPE_NONE (UINT32_C(1) << 31) /* more than there are shapes */
typedef struct kept_grid {
    const cell_entry *entries;
    size_t count;
} kept_grid;

/* Says what the units on neighbouring diagonals have in common. A unit is a cell or a piece pair, and a stretch is a
 * rectangle of units. Where the mask depends on q - k alone, the unit in row r and column c of a stretch is like every
 * other with the same t = r - c. For all whole units with first <= t < end, `value` is one of these: FULL, the pairs of
 * a cell, or the shape of a piece pair. Example, of cells: under q - k >= 0 all with t >= 1 are FULL, and those with t
 * = 0 have 8256 pairs. */
typedef struct diagonal_run {
    int64_t first, end;
    uint64_t value;
} diagonal_run;
/* The diagonals lo <= t < hi of a stretch: runs, in order of t. Diagonals that are in no run have no pairs. */
typedef struct diagonals {
    int64_t lo, hi;
    diagonal_run *runs;
    size_t count;
} diagonals;

typedef struct shape_slot {
    uint32_t hash, shape; /* shape + 1, or 0 */
} shape_slot;

/* A cell of which some pairs are still queued for being evaluated one by one (elements.h). */
typedef struct open_cell {
    uint64_t pairs, area; /* the pairs known so far */
    memo_entry *known;    /* where the answer will be remembered, or NULL */
} open_cell;

struct cells {
    mc_code mask;
    uint32_t heads; /* 1 if the mask does not name h */
    unsigned uses;
    const volatile int *stop;

    mc_env env;            /* the sequence under way */
    box_arrays arrays;     /* its arrays */
    bands_index *bands;    /* the index of its bands, */
    const mc_bands *bound; /* which are these */
    box_program *base;     /* the mask, for sequences of base_n tokens; base_n = -1: not made yet */
    int64_t base_n;
    box_value *values;
    uint32_t *numbers;
    int64_t *offsets;
    int64_t *eval_scratch;
    uint8_t *depends; /* what each node of the program under way depends on */
    lanes *lanes;
    tally *tally; /* NULL: the mask reads no arrays */
    struct {
        uint32_t good, failed;
    } tallies[TALLY_SIDE_BITS + 1]; /* of this sequence, by the logarithm of their longer side in cells */
    rows *rows;
    elements *elements;
    uint64_t *done;     /* cells_set_done */
    uint32_t slot;      /* the open cell that is being solved; FCP_NONE: its answer is needed at once */
    open_cell *open;    /* since elements were last counted, */
    size_t open_count, open_room;
    uint64_t open_batch;       /* the number of this time */
    /* nodes of the last program whose rows were dear; how many more are taken to be so */
    uint32_t dear_nodes, dear_left;
    uint64_t element_cells, element_hits; /* cells of elements asked for; of these known */
    stack stack; /* programs specialised to the boxes under way */
    cells_fault fault;

    unit_span *spans; /* the spans of all levels under way, one level after the other */
    size_t span_count, span_room;
    int64_t *key;
    size_t key_room;

    arena keys; /* holds the arrays by node, the memo's entries, the entries of kept grids, and the runs of diagonals */
    memo memo;
    kept_grid *grids;
    size_t grid_count, grid_room, grid_bytes;
    uint64_t seen[GRIDS_SEEN]; /* hashes of grids that were asked for once; a grid is kept the second time, */
    bool keep_first;           /* or the first time; so is one that needed elements */
    diagonals *diagonals;
    size_t diagonals_count, diagonals_room;
    diagonal_run *found; /* the runs that are being found */
    size_t found_count, found_room;

    cell_entry *entries;
    size_t entry_count, entry_room;
    bool pairs_only;   /* nobody asks for shapes: an entry's may be SHAPE_NONE plus a place in `sums` */
    uint64_t *sums;    /* pairs */
    size_t sum_count, sum_room;
    uint64_t *pairs;   /* per entry */
    size_t pairs_room;
    fcp_run *row_runs; /* the shape under way */
    size_t row_run_count, row_run_room;
    size_t row_run_open; /* runs from here on may stand for open cells */
    uint64_t shape_pairs;
    uint32_t regions_found, regions_failed; /* piece pairs that fell into few regions, and that did not */

    fcp_shape_rec *shapes;
    size_t shape_count, shape_room;
    fcp_run *runs;
    size_t run_count, run_room;
    shape_slot *shape_table; /* open addressing */
    uint32_t shape_table_size;

    cells_stats stats;
};

/* --- solve.c: one box ------------------------------------------------------------------------------------- */

static inline box make_box(const cells *c, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
    return (box){{q0, k0, 0}, {q1, k1, c->heads}};
}
/* What of a box lies before position `at` of dimension d, or from there on (beyond). */
static inline box cells_side(const box *b, int d, int64_t at, bool beyond) {
    box part = *b;
    if (beyond) part.lo[d] = at;
    else part.hi[d] = at;
    return part;
}

static inline bool cells_stopped(const cells *c) { return fcp_stop_asked(c->stop); }

/* Prepares the mask for a sequence. FCP_E_NO_MEMORY. */
fcp_code cells_set_sequence(cells *c, const mc_env *env);
static inline bool is_fault(fcp_code code) {
    return code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_OVERFLOW || code == FCP_E_MASK_INDEX;
}

/* For a mask that does not depend on k: how many (q, h) it allows. Prepares the sequence. Errors as cells_count's. */
fcp_code cells_count_rows(cells *c, const mc_env *env, uint64_t *out_rows);

/* The number of elements of a box, over its heads; FCP_E_PLAN_SIZE if it does not fit 64 bits. */
fcp_code cells_box_area(const box *b, uint64_t *out);
/* What steps cost in nanoseconds, as measured on the machine of tests/bench/RESULTS.md; other machines take about as
 * long. They are added up in cells_stats.work. */
enum {
    WORK_BOX = 40,     /* to evaluate a box, */
    WORK_NODE = 14,    /* and for each node of the program */
    WORK_FIND = 60,    /* to look for a cell in memory */
    WORK_ROW = 20,     /* to solve a row of a cell, */
    WORK_ROW_NODE = 16,
    WORK_SEGMENT = 8,  /* and for each segment of its integers */
    WORK_LANE_NODE = 200 /* of a cell that is solved by lanes.h, for each node */
};

/* Evaluates a box. If it is MIXED, *program becomes the program specialised to it, which is put on the stack. */
fcp_code cells_classify(cells *c, const box *b, const box_program **program, box_class *out);
/* Writes the key of a box and its program to c->key, and returns its number of words. Returns 0 if the program reads
 * elements of an array that depend on where the box lies, as doc[q] does. No other box then has the same key, so the
 * answer is not worth remembering. */
size_t cells_box_words(cells *c, answer_kind kind, const box *b, const box_program *p);
/* The answer that is remembered for a key; NULL: none. */
const memo_entry *cells_find_words(cells *c, const int64_t *key, size_t words, uint64_t *out_hash);
/* Copies the words of the key to the stack, because whatever is asked next overwrites c->key. NULL: out of memory. */
int64_t *cells_keep_words(cells *c, size_t words);
/* The pairs of a MIXED box of at most one cell, from memory if one like it was met before. */
fcp_code cells_cell_pairs(cells *c, const box *b, const box_program *p, uint64_t *out);
/* The same, but pairs that have to be evaluated one by one are only queued. Then *out_open is the number of the open
 * cell that will have the answer; else it is FCP_NONE. */
fcp_code cells_cell_later(cells *c, const box *b, const box_program *p, uint64_t *out, uint32_t *out_open);
/* Counts all queued pairs: c->open then has the answers, until cells_close_open forgets them and the queue. */
fcp_code cells_count_open(cells *c);
void cells_close_open(cells *c);

/* After how many cells to split a box of more than one cell in dimension d, for a program that reads arrays: at a cell
 * in which the elements of an array begin another run, if there is one; else near the middle. */
uint64_t cells_split(const box *b, const box_program *p, int d);

/* --- cells.c: rectangles ---------------------------------------------------------------------------------- */

/* A rectangle of cells; indices are BOX_Q and BOX_K. */
typedef struct cell_rect {
    uint64_t lo[2], hi[2];
} cell_rect;

box cells_rect_box(const cells *c, const cell_rect *r);

/* --- whole.c: rectangles of cells ------------------------------------------------------------------------- */

/* Adds to out[] the FULL cells, PARTIAL cells and pairs of a MIXED rectangle of cells, if its program is of a kind that
 * can be counted without splitting the rectangle; *out_known says whether it is. */
fcp_code cells_count_whole(cells *c, const box *b, const box_program *p, uint64_t out[3], bool *out_known);
/* The pairs of a box, if its program is a single bound on q - k, on q, or on k; else false. */
bool cells_line_pairs(const box *b, const box_program *p, uint64_t *out);

/* --- tallies.c: cells counted by classes of positions ----------------------------------------------------- */

/* Is a tally of so many rows and columns of cells not tried any more, because too many of its size had failed? */
bool cells_tally_fails(const cells *c, uint32_t down, uint32_t across);
/* Counts the cells of a box by tally.h, for a program that fits it. *out_pairs is NULL if it has too
 * many classes. */
fcp_code cells_tally(cells *c, const box *b, const box_program *p, const tally_cuts *q, const tally_cuts *k,
                     const uint32_t **out_pairs);
/* As cells_count_whole, by tally.h. */
fcp_code cells_count_tally(cells *c, const box *b, const box_program *p, uint64_t out[3], bool *out_known);
/* Adds row `row` of units to c->row_runs or, of pieces, to c->entries. */
fcp_code cells_emit_tally(cells *c, const unit_tally *t, uint32_t row, bool pieces);

/* --- walk.c: a grid, in order ----------------------------------------------------------------------------- */

/* Adds the entries of all piece pairs to c->entries. */
fcp_code cells_walk_pieces(cells *c, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                           uint32_t k_pieces);
/* Makes the runs and the pairs of a box under program p, in c->row_runs and c->shape_pairs. */
fcp_code cells_walk_cells(cells *c, const box *b, const box_program *p);
/* Forgets the runs of the shape before. */
void cells_begin_runs(cells *c);
/* Adds `count` cells of one class to c->row_runs. Together they have `area` elements, of which `pairs`, at least one,
 * are allowed. */
fcp_code cells_add_cells(cells *c, uint32_t row, uint32_t col, uint32_t count, uint64_t pairs, uint64_t area);
/* Adds `count` entries of one shape, from column col on. */
fcp_code cells_add_entries(cells *c, uint32_t row, uint32_t col, uint32_t count, uint32_t shape);
/* Adds an entry whose pairs are known, for cells_pairs. */
fcp_code cells_add_sum(cells *c, uint32_t row, uint32_t col, uint64_t pairs);

/* --- regions.c: boxes with one bound each ----------------------------------------------------------------- */

/* The pairs of a MIXED piece pair, if its mask falls into few regions with one bound each; *out_known says whether. */
fcp_code cells_box_pairs(cells *c, const box *b, const box_program *p, uint64_t *out, bool *out_known);
/* Makes what cells_walk_cells makes, if the mask falls into few such regions; *out_known says whether. */
fcp_code cells_region_cells(cells *c, const box *b, const box_program *p, bool *out_known);

/* --- diagonal.c: stretches that depend on q - k ----------------------------------------------------------- */

/* A row of units of a stretch that depends on q - k alone. */
typedef struct diagonal_row {
    cells *c;
    box b;                      /* the row, all columns of the stretch */
    const box_program *program; /* of the stretch */
    uint64_t unit;
    bool pieces;
    uint32_t number;            /* of its diagonals */
    uint32_t row, col;          /* of the row, and of the stretch's first column, in the walk */
    int64_t r;                  /* of the row in the stretch */
} diagonal_row;

/* Finds the diagonals of box b in units of this size. Its program is diagonal and cannot fault. */
fcp_code cells_find_diagonals(cells *c, const box *b, uint64_t unit, bool pieces, const box_program *p, uint32_t *out);
fcp_code cells_emit_diagonals(const diagonal_row *row);

/* --- shape.c: shapes -------------------------------------------------------------------------------------- */

/* The shape of a MIXED piece pair; FCP_NONE if it has no allowed pair. */
fcp_code cells_pair_shape(cells *c, const box *b, const box_program *p, uint32_t *out);
/* The shape whose runs are in c->row_runs, and its pairs in c->shape_pairs. */
fcp_code cells_runs_shape(cells *c, uint32_t q_length, uint32_t k_length, uint32_t *out);
/* The shape of a piece pair that is all allowed. */
fcp_code cells_full_shape(cells *c, uint32_t q_length, uint32_t k_length, uint32_t *out);
#endif
