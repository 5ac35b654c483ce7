/* model.h: what both pictures draw, gathered from a plan's tables and scaled down to the size of the picture. */
#ifndef FCPC_SHOW_MODEL_H
#define FCPC_SHOW_MODEL_H
#include "runtime/plan/plan.h"
#include "compiler/base/arena.h"

/* How fine a picture may be. */
typedef struct show_scale {
    uint32_t grid_cols, grid_rows;   /* of the longest sequence's grid; rows <= cols */
    uint32_t minor_cols, minor_rows; /* of the other ones */
    uint32_t grids;                  /* sequences drawn, at most SHOW_GRIDS */
    uint32_t rank_rows, stage_cols;
} show_scale;
enum { SHOW_GRIDS = 3 };

/* A stretch of a drawn sequence that lies in one block, in order of position. */
typedef struct show_stretch {
    uint64_t start;
    uint32_t length, block, home;
    uint64_t first_cell; /* cells of 128 before it, counted piece by piece */
} show_stretch;

/* A sequence's mask: allowed pairs by groups of cells. Row r holds the queries [row_cut[r], row_cut[r + 1]), counted
 * from the first, which is at position q_first. */
typedef struct show_grid {
    uint32_t sequence;
    uint64_t alike;           /* see show_alike */
    uint64_t length, queries; /* length: of keys */
    int64_t q_first;
    uint64_t cells[FCP_SIDES];
    uint64_t row_group, col_group; /* cells in a row's, a column's group */
    uint32_t rows, cols;
    uint64_t *row_cut, *col_cut;
    uint64_t *pairs; /* rows x cols */
    show_stretch *stretches[FCP_SIDES];
    uint32_t stretch_count[FCP_SIDES];
} show_grid;
/* Are its rows and columns of the same tokens? */
static inline bool show_square(const show_grid *g) { return g->queries == g->length; }

/* Figures of one rank, in the pass drawn; bytes are those of KV (and partials), without the reshuffle. */
typedef struct show_rank {
    uint64_t tokens, blocks, pairs, sent, received, reshuffled;
} show_rank;

/* One stage of all ranks (or several stages together); bytes count once, at the receiver. */
typedef struct show_stage {
    uint64_t pairs, pairs_max; /* of all ranks, of the busiest */
    uint64_t bytes[FCP_PASSES];
    uint64_t rounds[FCP_PASSES], dependent[FCP_PASSES];
    uint64_t visits, again; /* visits; those that read the running state */
} show_stage;

/* A rank's (or group of ranks') share of a stage: sums over both. `bytes`: the larger of sent and received. */
typedef struct show_cell {
    uint64_t pairs, bytes, visits;
} show_cell;

typedef struct show_model {
    const fcp_plan *plan;
    fcp_pass pass;       /* the one drawn: forward, if the plan has it */
    uint32_t pair_heads; /* heads that pairs are summed over: 1, or all when the mask names h */
    show_grid grids[SHOW_GRIDS];
    uint32_t grid_count;
    show_rank *ranks;
    uint32_t *by_work; /* ranks, heaviest first */
    uint32_t pass_stages[FCP_PASSES];
    uint32_t stages, all_stages;                         /* of the pass drawn (1 at least), of the longer pass */
    show_stage *stage;                                   /* per stage of either pass */
    uint64_t in_bytes, out_bytes, in_rounds, out_rounds; /* of the pass drawn */
    /* the pipeline: rank_rows rows of stage_cols cells */
    uint32_t rank_rows, ranks_a_row, stage_cols, stages_a_col;
    show_cell *cell;
    uint64_t cell_pairs_max, cell_bytes_max;
    const char *mask; /* "lambda(sink = 64)", from the source; NUL-terminated */
    const char *score, *sink; /* likewise; NULL: none */
} show_model;

fcp_code show_model_make(const fcp_plan *plan, const show_scale *scale, arena *memory, show_model *out);

/* How many sequences of the batch have the same mask as this one, itself among them: as many queries and keys, and
 * where the mask reads fields, the same values. */
uint64_t show_alike(const fcp_plan *plan, uint64_t sequence);

/* Density of a grid's cell in steps of 1 / levels: 0 only without any pair, `levels` only when all are allowed. */
uint32_t show_level(const show_model *m, const show_grid *g, uint32_t row, uint32_t col, uint32_t levels);
/* The same of any part: `pairs` allowed of `area`. */
uint32_t show_share(uint64_t pairs, unsigned __int128 area, uint32_t levels);
/* The signs of the terminal (show.c): levels after "nothing", and the sign of one. */
uint32_t show_shades(bool unicode);
const char *show_shade(bool unicode, uint32_t level);
/* The colours of images (svg.c), by level: 0 to SHOW_RAMP. */
enum { SHOW_RAMP = 9 };
const char *show_share_colour(uint32_t level);
/* value * steps / most, rounded up: 0 only for 0. */
uint32_t show_steps(uint64_t value, uint64_t most, uint32_t steps);
/* The stretch that holds a token of a side, counted from its first. */
const show_stretch *show_stretch_at(const show_grid *g, fcp_side side, uint64_t token);
/* "8192 tokens", or "100 queries, 4096 keys". */
enum { SHOW_LENGTH = 80 };
const char *show_length(char out[SHOW_LENGTH], uint64_t queries, uint64_t keys);

/* show_facts.c: the problem and its cost in plain words: a label and a sentence each. */
enum { SHOW_FACTS = 18, SHOW_SENTENCE = 512 };
typedef struct show_fact {
    const char *label;
    bool cost; /* of the plan; else of the problem */
    char sentence[SHOW_SENTENCE];
} show_fact;
uint32_t show_facts(const show_model *m, show_fact out[SHOW_FACTS]);
/* 1048576 as "1,048,576". */
enum { SHOW_COUNT = 32 };
const char *show_count(char out[SHOW_COUNT], uint64_t value);
/* Bytes of the UTF-8 character at `bytes`, of which `left` bytes are there; 0 for a control character and for what is
 * none. */
size_t show_utf8(const char *bytes, size_t left);
#endif
