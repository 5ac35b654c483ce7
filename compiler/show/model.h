/* model.h: gathers what a picture of a plan shows: figures that are taken from the plan's tables, and summed up until
 * they fit into the picture. */
#ifndef FCPC_SHOW_MODEL_H
#define FCPC_SHOW_MODEL_H
#include "compiler/base/arena.h"
#include "compiler/base/text.h"
#include "runtime/plan/enums.h"

/* The size of a picture: at most so many of each. */
typedef struct show_scale {
    uint32_t grid_cols, grid_rows;   /* of the grid of the longest sequence; rows <= cols */
    uint32_t minor_cols, minor_rows; /* of the other grids */
    uint32_t grids;                  /* grids, SHOW_GRIDS at most */
    uint32_t rank_rows, stage_cols;
} show_scale;
enum { SHOW_GRIDS = 3 };

/* A stretch of a sequence's queries or keys that lies in one block. Stretches are sorted by position. */
typedef struct show_stretch {
    uint64_t start;
    uint32_t length, block, home;
    uint64_t first_cell; /* how many cells lie before it; each piece begins a new cell */
} show_stretch;

/* The mask of one sequence, as a grid that counts allowed pairs. Row r stands for the queries [row_cut[r], row_cut[r +
 * 1]), counted from the sequence's first query, whose position is q_first. Columns stand for keys, likewise. */
typedef struct show_grid {
    uint32_t sequence;
    uint64_t alike;           /* see show_alike */
    uint64_t length, queries; /* the sequence's keys, and its queries */
    int64_t q_first;
    uint64_t cells[FCP_SIDES];
    uint64_t row_group, col_group; /* cells that a row, a column stands for */
    uint32_t rows, cols;
    uint64_t *row_cut, *col_cut;
    uint64_t *pairs; /* rows x cols */
    /* if work moves, else NULL; rows x cols: how many of the pairs are computed by another rank than their queries'
     * home, and the lowest of these ranks */
    uint64_t *moved;
    uint32_t *moved_to;
    show_stretch *stretches[FCP_SIDES];
    uint32_t stretch_count[FCP_SIDES];
} show_grid;
/* The rank that computes most pairs of a cell, if that is not their queries' home; else FCP_NONE. */
uint32_t show_moved_to(const show_grid *g, uint32_t row, uint32_t col);
/* Whether rows and columns stand for the same tokens. */
static inline bool show_square(const show_grid *g) { return g->queries == g->length; }

/* Work that is done away from its queries' home. */
typedef struct show_moves {
    uint64_t tiles, pairs;
    const uint32_t *tile_rank; /* per tile: who computes it */
} show_moves;
fcp_code show_moves_find(const fcp_plan *plan, arena *memory, show_moves *out);

/* Figures of one rank in the pass that is drawn. sent and received are bytes of Q and KV, and of results that return
 * home; reshuffled is for the caller's layout. gives: pairs of its queries that other ranks compute; takes: pairs that
 * it computes for others. */
typedef struct show_rank {
    uint64_t tokens, blocks, pairs, sent, received, reshuffled, gives, takes;
} show_rank;

/* One stage of all ranks, or several stages together. Bytes are counted at the receiver only. */
typedef struct show_stage {
    uint64_t pairs, pairs_max; /* of all ranks; of the busiest rank */
    uint64_t bytes[FCP_PASSES];
    uint64_t rounds[FCP_PASSES], dependent[FCP_PASSES];
    uint64_t visits, again; /* all visits; those that are not the first of their block, and so read the running state */
} show_stage;

/* What a rank does in a stage, or several ranks in several stages. bytes is the larger of sent and received bytes. */
typedef struct show_cell {
    uint64_t pairs, bytes, visits;
} show_cell;

typedef struct show_model {
    const fcp_plan *plan;
    fcp_pass pass;       /* the one that is drawn: forward, if the plan has it */
    uint32_t pair_heads; /* how many heads a pair is counted for: 1, or those of a range if the mask names h */
    show_moves moves;
    show_grid grids[SHOW_GRIDS];
    uint32_t grid_count;
    show_rank *ranks;
    uint32_t *by_work; /* numbers of ranks, heaviest first */
    uint32_t pass_stages[FCP_PASSES];
    uint32_t stages, all_stages;                         /* of the pass drawn (1 at least); of the longer one */
    show_stage *stage;                                   /* [all_stages] */
    uint64_t in_bytes, out_bytes, in_rounds, out_rounds; /* the reshuffle in the pass that is drawn */
    /* the pipeline: rank_rows rows of stage_cols cells each */
    uint32_t rank_rows, ranks_a_row, stage_cols, stages_a_col;
    show_cell *cell;
    uint64_t cell_pairs_max, cell_bytes_max;
    const char *mask; /* as in the source: "lambda(sink = 64)" */
    const char *score, *sink; /* likewise; NULL: the plan has none */
} show_model;

fcp_code show_model_make(const fcp_plan *plan, const show_scale *scale, arena *memory, show_model *out);

/* The plan's mask as its source has it: "lambda(sink = 64)"; "?" where the source has none. */
fcp_code show_mask_text(const fcp_plan *plan, arena *memory, const char **out);

/* How many sequences of the batch have the same mask as this one, which is counted too: the same numbers of queries and
 * keys, and, if the mask reads fields, the same values. */
uint64_t show_alike(const fcp_plan *plan, uint64_t sequence);

/* How dark a cell of the grid is, from 0 to `levels`. 0 means that no pair is allowed, `levels` that all are. */
uint32_t show_level(const show_model *m, const show_grid *g, uint32_t row, uint32_t col, uint32_t levels);
/* How dark `pairs` allowed pairs of `area` positions are, from 0 to `levels`. */
uint32_t show_share(uint64_t pairs, unsigned __int128 area, uint32_t levels);
/* Ends a line of text, and removes the spaces at its end (terminal.c). */
void show_end_line(text *t);
/* The signs that show darkness in a terminal (terminal.c): how many there are besides the blank, and each. */
uint32_t show_shades(bool unicode);
const char *show_shade(bool unicode, uint32_t level);
/* The colour that shows it in an image (svg.c): level is 0 to SHOW_RAMP. */
enum { SHOW_RAMP = 9 };
const char *show_share_colour(uint32_t level);
/* The colour of a rank; there are SHOW_RANK_COLOURS of them. */
enum { SHOW_RANK_COLOURS = 16 };
const char *show_rank_colour(uint32_t rank);
/* value * steps / most, rounded up, so that it is 0 only for 0. */
uint32_t show_steps(uint64_t value, uint64_t most, uint32_t steps);
/* The stretch that holds a query or key, counted from the sequence's first. */
const show_stretch *show_stretch_at(const show_grid *g, fcp_side side, uint64_t token);
/* "8192 tokens", or "100 queries, 4096 keys". */
enum { SHOW_LENGTH = 80 };
const char *show_length(char out[SHOW_LENGTH], uint64_t queries, uint64_t keys);
/* `count` numbers from `first` on, of `all`: "3" or "3-5". */
enum { SHOW_RANGE = 24 };
const char *show_range(char out[SHOW_RANGE], uint32_t first, uint32_t count, uint32_t all);
/* The text "; from stage 4 on the second half moves" for a plan that moves in two halves; "" for others. */
const char *show_halves(const fcp_plan *plan, char out[SHOW_LENGTH]);
/* Figure number `which` of a rank: pairs, tokens, bytes sent, bytes received. */
uint64_t show_figure(const show_rank *r, int which);

/* sentences.c: what the plan is for and what it costs: a label and a sentence each. Returns how many. */
enum { SHOW_RECURRENT = 4, SHOW_FACTS = 21 + SHOW_RECURRENT, SHOW_SENTENCE = 512 };
typedef struct show_fact {
    const char *label;
    bool cost; /* it tells what the plan costs; else what the plan is for */
    char sentence[SHOW_SENTENCE];
} show_fact;
uint32_t show_facts(const show_model *m, show_fact out[SHOW_FACTS]);
/* Says whether heads that share a KV head also share tiles in the forward kernels, and if not, why. This matters for
 * sequences that have fewer queries than keys. False: there is none, and nothing to say. */
bool show_packing(const fcp_plan *plan, char out_sentence[SHOW_SENTENCE]);
/* 1048576 as "1,048,576". */
enum { SHOW_COUNT = 32 };
const char *show_count(char out[SHOW_COUNT], uint64_t value);
/* The size of the UTF-8 character at `bytes`, where `left` bytes are left; 0 for a control character, and if there
 * is no valid character. */
size_t show_utf8(const char *bytes, size_t left);
#endif
