/* parts.h: what the rooms of the mask analysis share (cells.c, cells_solve.c, cells_walk.c, cells_cut.c). */
#ifndef FCPC_CELLS_PARTS_H
#define FCPC_CELLS_PARTS_H
#include "compiler/cells/cells.h"

#include "compiler/base/arena.h"
#include "compiler/box/box.h"
#include "compiler/box/bands.h"
#include "compiler/box/lanes.h"
#include "compiler/cells/elements.h"
#include "compiler/base/memo.h"
#include "compiler/box/rows.h"
#include "compiler/base/stack.h"

/* Columns [first, end) of units, for some rows. */
typedef enum span_kind {
    SPAN_OPEN,    /* under `program`, not decided */
    SPAN_FULL,    /* all allowed */
    SPAN_ALIKE,   /* cells: every row of positions has `pairs` pairs */
    SPAN_DIAGONAL /* under `program`, by diagonals `number`, from row `row` on */
} span_kind;
typedef struct span {
    uint32_t first, end;
    span_kind kind;
    uint32_t number, row;
    const box_program *program;
    uint64_t pairs;
} span;

/* One side of a grid: pieces at given cuts, or cells of a stretch. */
typedef struct units {
    const uint64_t *cuts; /* NULL: cells */
    int64_t start, end;   /* where cuts count from; of the cells */
    uint32_t count;
} units;

/* What the words of a key stand for. */
typedef enum answer_kind {
    ANSWER_CELLS,      /* counts of a square or cell: full, partial, pairs */
    ANSWER_SHAPE,      /* of a piece pair */
    ANSWER_FULL_SHAPE, /* by lengths */
    ANSWER_GRID,       /* index into grids */
    ANSWER_DIAGONALS,  /* index into diagonals */
    ANSWER_CUT         /* a cut unit on a diagonal: its value, whether it has pairs */
} answer_kind;

enum { GRIDS_SEEN = 1024 };
typedef struct kept_grid {
    const cell_entry *entries;
    size_t count;
} kept_grid;

/* Whole units t rows below the corner of a stretch, first <= t < end: all allowed, or with so many pairs, or such a
 * shape. */
typedef struct diagonal_run {
    int64_t first, end;
    uint64_t value;
} diagonal_run;
/* What is known of a stretch: runs in order of t, for lo <= t < hi; none where there are no pairs. */
typedef struct diagonals {
    int64_t lo, hi;
    diagonal_run *runs;
    size_t count;
} diagonals;

typedef struct shape_slot {
    uint32_t hash, shape; /* shape + 1, or 0 */
} shape_slot;

/* A cell of which some pairs are queued to be looked at one by one. */
typedef struct open_cell {
    uint64_t pairs, area; /* pairs: those known so far */
    memo_entry *known;    /* where the answer is to be remembered, or NULL */
} open_cell;

struct cells {
    mc_code mask;
    uint32_t heads; /* 1 if the mask does not name h */
    unsigned uses;
    const volatile int *stop;

    mc_env env;        /* of the sequence under way */
    box_arrays arrays; /* of it */
    bands_index *bands; /* of its bands, */
    const mc_bands *bound; /* these */
    box_program *base; /* the mask for sequences of base_n tokens; -1: none yet */
    int64_t base_n;
    box_value *values;
    uint32_t *numbers;
    int64_t *offsets;
    int64_t *eval_scratch;
    uint8_t *depends; /* of the nodes of a program under way */
    lanes *lanes;
    rows *rows;
    elements *elements;
    uint64_t *done;     /* pairs looked at one by one, or NULL */
    uint32_t slot;      /* of the open cell that is being solved; FCP_NONE: its answer is needed at once */
    open_cell *open;    /* since elements were last counted, */
    size_t open_count, open_room;
    uint64_t open_batch;       /* the number of this time */
    uint32_t dear_nodes, dear_left; /* of the last program whose rows were dear; boxes that are taken to be so too */
    uint64_t element_cells, element_hits; /* cells of elements asked for; of these known */
    stack stack; /* specialised programs of the boxes under way */
    cells_fault fault;

    span *spans; /* of the levels under way, one after the other */
    size_t span_count, span_room;
    int64_t *key;
    size_t key_room;

    arena keys; /* of the memo; entries of kept grids; runs of diagonals */
    memo memo;
    kept_grid *grids;
    size_t grid_count, grid_room, grid_bytes;
    uint64_t seen[GRIDS_SEEN]; /* hashes of grids asked for once; what is asked for twice is kept */
    diagonals *diagonals;
    size_t diagonals_count, diagonals_room;
    diagonal_run *found; /* of the diagonals under way */
    size_t found_count, found_room;

    cell_entry *entries;
    size_t entry_count, entry_room;
    fcp_run *row_runs; /* of the shape under way */
    size_t row_run_count, row_run_room;
    size_t row_run_open; /* the first that may stand for an open cell */
    uint64_t shape_pairs;

    fcp_shape_rec *shapes;
    size_t shape_count, shape_room;
    fcp_run *runs;
    size_t run_count, run_room;
    shape_slot *shape_table; /* open addressing */
    uint32_t shape_table_size;

    cells_stats stats;
};

/* --- solve.c: one box ------------------------------------------------------------------------------------- */

/* Makes room for `more` records of a growing array. */
bool cells_reserve(void **array, size_t *room, size_t count, size_t more, size_t size);
#define RESERVE(array, room, count, more) cells_reserve((void **)&(array), &(room), (count), (more), sizeof *(array))

static inline box make_box(const cells *c, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
    return (box){{q0, k0, 0}, {q1, k1, c->heads}};
}
static inline uint64_t box_side(const box *b, int d) { return (uint64_t)(b->hi[d] - b->lo[d]); }

static inline bool cells_stopped(const cells *c) { return c->stop && *c->stop; }

/* Prepares the mask for a sequence. FCP_E_NO_MEMORY. */
fcp_code cells_set_sequence(cells *c, const mc_env *env);
static inline bool is_fault(fcp_code code) {
    return code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_OVERFLOW || code == FCP_E_MASK_INDEX;
}

/* All elements of a box; FCP_E_PLAN_SIZE if they do not fit 64 bits. */
fcp_code cells_box_area(const box *b, uint64_t *out);
/* Evaluates a box; where MIXED, *program becomes the program specialised to it, on the stack. */
fcp_code cells_classify(cells *c, const box *b, const box_program **program, box_class *out);
/* Writes the key of a box and its program to c->key; returns its words, or 0 if no other box is like it: it is not
 * worth remembering then. */
size_t cells_box_words(cells *c, answer_kind kind, const box *b, const box_program *p);
/* The answer of a key; NULL: none. */
const memo_entry *cells_find_words(cells *c, const int64_t *key, size_t words, uint64_t *out_hash);
/* The key's words, on the stack: c->key is used again by whatever comes next. NULL: out of memory. */
int64_t *cells_keep_words(cells *c, size_t words);
/* Pairs of a MIXED box of at most a cell, from memory if it was met before. */
fcp_code cells_cell_pairs(cells *c, const box *b, const box_program *p, uint64_t *out);
/* The same, but where elements have to be counted they are only queued: then *out_open is the open cell that will hold
 * the answer, else FCP_NONE. */
fcp_code cells_cell_later(cells *c, const box *b, const box_program *p, uint64_t *out, uint32_t *out_open);
/* Counts what is queued: c->open then has the answers, until cells_close_open, which forgets them. */
fcp_code cells_count_open(cells *c);
void cells_close_open(cells *c);

/* How many cells to split a box of more than one off at, in dimension d, for a program that reads arrays: near a place
 * where an array's elements begin another run, if there is one, else in halves. */
uint64_t cells_split(const box *b, const box_program *p, int d);

/* --- whole.c: rectangles of cells ------------------------------------------------------------------------- */

/* Adds the full cells, partial cells and pairs of a MIXED rectangle of cells, if its program is of a kind that allows
 * it to be counted whole (*out_known). */
fcp_code cells_count_whole(cells *c, const box *b, const box_program *p, uint64_t out[3], bool *out_known);
/* The pairs of a box under one bound on q - k alone; false if the program is not that. */
bool cells_line_pairs(const box *b, const box_program *p, uint64_t *out);

/* --- walk.c: a grid, in order ----------------------------------------------------------------------------- */

/* Adds the entries of all piece pairs to c->entries. */
fcp_code walk_pieces(cells *c, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts, uint32_t k_pieces);
/* Makes the runs of a box, in c->row_runs and c->shape_pairs, all its elements being under program p. */
fcp_code walk_cells(cells *c, const box *b, const box_program *p);
/* Adds `count` cells with `pairs` allowed elements, more than none and alike, of `area` to c->row_runs and
 * c->shape_pairs. */
fcp_code cells_add_cells(cells *c, uint32_t row, uint32_t col, uint32_t count, uint64_t pairs, uint64_t area);
/* Adds entries of one shape. */
fcp_code cells_add_entries(cells *c, uint32_t row, uint32_t col, uint32_t count, uint32_t shape);

/* --- diagonal.c: stretches that depend on q - k ----------------------------------------------------------- */

/* A row of units of a stretch. */
typedef struct diagonal_row {
    cells *c;
    box b;                      /* the row, all columns of the stretch */
    const box_program *program; /* of the stretch */
    uint64_t unit;
    bool pieces;
    uint32_t number;            /* of its diagonals */
    uint32_t row, col;          /* in the walk; of the stretch's first column */
    int64_t r;                  /* in the stretch */
} diagonal_row;

/* The diagonals of box b, of units of this size, under p, which is diagonal and cannot fault. */
fcp_code cells_find_diagonals(cells *c, const box *b, uint64_t unit, bool pieces, const box_program *p, uint32_t *out);
fcp_code cells_emit_diagonals(const diagonal_row *row);

/* --- shape.c: shapes -------------------------------------------------------------------------------------- */

/* The shape of a MIXED piece pair; FCP_NONE if it has no allowed pair. */
fcp_code cells_pair_shape(cells *c, const box *b, const box_program *p, uint32_t *out);
/* The shape of a piece pair that is all allowed. */
fcp_code cells_full_shape(cells *c, uint32_t q_length, uint32_t k_length, uint32_t *out);
#endif
