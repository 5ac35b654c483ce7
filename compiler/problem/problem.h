/* problem.h: the work of a batch: its tokens cut into blocks, and the tiles, which are the pairs of blocks between
 * which the mask allows a (query, key) pair.
 *
 * Three passes fill it. problem_open checks the lengths. The strategy's cut makes pieces and blocks. problem_tiles asks
 * the mask which Q blocks see which KV blocks.
 */
#ifndef FCPC_PROBLEM_PROBLEM_H
#define FCPC_PROBLEM_PROBLEM_H
#include "compiler/cells/cells.h"
#include "compiler/planning/planning.h"
#include "compiler/problem/bind.h"
#include "runtime/plan/layout.h"

/* Tokens start to end - 1 of one side of a sequence, which the caller holds at `rank`. */
typedef struct problem_run {
    uint32_t sequence, rank;
    uint64_t start, end;
} problem_run;

/* Tokens of one side of a sequence that become a piece: what a cut hands to problem_pack. */
typedef struct problem_part {
    uint32_t sequence, length, home;
    /* Parts with the same side, home and place may share a block. FCP_NONE: the part is a block of its own. */
    uint32_t place;
    uint32_t block; /* out: problem_pack chooses it */
    uint32_t holds; /* FCP_HOLDS_* */
    uint64_t start;
} problem_part;

/* What is known of each shape if the mask names h. A shape then belongs to one class of heads of one range. */
typedef struct problem_shape {
    uint32_t heads; /* how many heads of the range are of the class */
    uint32_t set;   /* first shape of a part: how many shapes the part has, one for each class; other shapes: 0 */
    uint64_t pairs; /* of the part, summed over the heads of the range */
} problem_shape;

typedef struct problem problem;
struct problem {
    const struct fcpc_program *program;
    const uint64_t *lengths; /* keys of each sequence */
    const uint64_t *queries; /* of each sequence; the same array unless the plan is split */
    const binding *binding;  /* NULL: the program reads no arrays */
    uint32_t sequences;
    /* Some sequence has more or fewer queries than keys. Then each block holds one side alone (plan/FORMAT.md). */
    bool split;
    uint64_t tokens, key_tokens; /* queries and keys of the whole batch */
    uint32_t ranks;
    /* One rank of this problem stands for this many neighbouring ranks of the caller. It is 1, unless groups of ranks
     * divide heads and this problem divides the batch among the groups (place/heads/between_groups.c). */
    uint32_t lanes;
    uint32_t block;                /* the size asked for or chosen, in tokens */
    uint32_t max_block[FCP_SIDES]; /* tokens of the largest block that holds the side */
    uint32_t unit;                 /* tokens of KV in a unit */
    uint32_t unit_of[FCP_FABRICS][FCP_CLASSES]; /* tokens of a unit on each fabric, of each class (fcp_unit_tokens) */
    /* The KV heads of a range of heads, and the query heads of each of them. A strategy's cut may set a smaller range.
     * It still makes the blocks and pieces of one range only, which problem_tiles copies for the others. */
    uint32_t range_kv, range_sub;

    fcp_rule rule;      /* by which the caller holds the batch, unless its layout is `planned` */

    fcp_piece *pieces;  /* by block */
    uint32_t piece_count;
    fcp_block *blocks;  /* without homes */
    uint32_t block_count;
    fcp_heads *heads;   /* which heads blocks are of, by block.heads */
    uint32_t head_count;
    uint32_t range_blocks; /* how many blocks are of the first range: they come first */
    /* per block: the next block with the same tokens and other heads, or FCP_NONE; NULL: there is one range */
    uint32_t *twin;
    /* ring, zigzag: per block of the first range, which chunk of the sequences it holds; NULL for others */
    uint32_t *chunk;
    /* The pieces of sequence s, of the first range of heads, in order of start: sequence_piece[side][i] for i from
     * piece_start[side][s] to piece_start[side][s + 1] - 1. Both sides are the same arrays unless the plan is split. */
    uint32_t *sequence_piece[FCP_SIDES];
    uint32_t *piece_start[FCP_SIDES]; /* sequences + 1 */

    /* tiles in order of (Q block, KV block) */
    uint32_t tile_count;
    uint32_t *tile_start; /* per Q block, block_count + 1 */
    uint32_t *tile_q, *tile_k;
    uint32_t *tile_part;  /* first part of a tile, tile_count + 1 */
    uint64_t *tile_pairs; /* allowed (query, key) pairs */
    fcp_part *parts;
    uint32_t part_count;
    const fcp_shape_rec *shapes; /* these two belong to planning.cells, or to planning.work */
    const fcp_run *runs;
    uint32_t shape_count, run_count;

    /* Classes of heads (runtime/plan/FORMAT.md), if the mask names h; else NULL, 0 and NULL. */
    uint32_t *head_class;      /* per query head of the model */
    uint32_t class_count;
    const problem_shape *sets; /* per shape */
    uint64_t elements;         /* what classifying the mask took: pairs looked at one by one */

    uint64_t *work; /* per Q block: its pairs */
    uint64_t pairs, positions, heaviest; /* heaviest: pairs of the block that has most */
};

/* A plan has at most this many blocks. */
enum { PROBLEM_BLOCKS_MAX = 1 << 22 };
/* How many full blocks of `block` tokens the batch has at least. */
static inline uint64_t problem_least_blocks(const problem *p, uint64_t block) {
    return p->tokens / block + (p->split ? p->key_tokens / block : 0);
}
/* The position of a sequence's first query. */
static inline int64_t problem_q_first(const problem *p, uint32_t sequence) {
    return p->program->align == FCP_TOP_LEFT ? 0 : (int64_t)p->lengths[sequence] - (int64_t)p->queries[sequence];
}
static inline uint64_t problem_length(const problem *p, uint32_t sequence, fcp_side side) {
    return side == FCP_KEYS ? p->lengths[sequence] : p->queries[sequence];
}
/* Were so many pairs looked at one by one that planning took long? */
static inline bool problem_is_unstructured(const problem *p) { return p->elements >> 28 != 0; }
/* The next block with the same tokens, and of other heads. */
static inline uint32_t problem_twin(const problem *p, uint32_t b) { return p->twin ? p->twin[b] : FCP_NONE; }
/* Completes a table of where the lists of sequences end: start[s + 1] is the end of the list of sequence s, or 0 if s
 * has no tokens. Such an empty list gets the end of the list before it. */
static inline void problem_close_gaps(uint32_t *start, uint32_t sequences) {
    for (uint32_t s = 0; s < sequences; s++)
        if (start[s + 1] < start[s]) start[s + 1] = start[s];
}
/* The allowed pairs of a part: those of one head; if the mask names h, summed over the heads of the range. */
static inline uint64_t problem_part_pairs(const problem *p, const fcp_part *part) {
    return p->sets ? p->sets[part->shape].pairs : p->shapes[part->shape].pairs;
}
/* Does block b hold this side? */
static inline bool problem_holds(const problem *p, uint32_t b, fcp_side side) { return p->blocks[b].holds >> side & 1; }
/* The environment in which mask code is evaluated for a sequence; valid until the next call. */
static inline mc_env problem_env(const problem *p, uint32_t sequence) {
    const binding bare = {.program = p->program, .lengths = p->lengths, .queries = p->queries};
    return bind_sequence(p->binding ? p->binding : &bare, sequence);
}

/* problem.c. Checks the lengths (FCP_E_LENGTHS) and makes x->problem, without blocks. */
fcp_code problem_open(planning *x);
/* Is called by a cut before it begins. FCP_E_PLAN_SIZE: the batch fills more blocks of x->block tokens than a plan
 * holds. */
fcp_code problem_check_blocks(planning *x);

/* How strategies cut the batch into blocks. FCP_E_PLAN_SIZE: more blocks or pieces than a plan holds.
 * Cost: O(pieces + sequences), and sorting the remainders. */
fcp_code problem_cut_blocks(planning *x); /* cut_blocks.c: blocks of x->block tokens (cut_split.c where split) */
fcp_code problem_cut_ring(planning *x);   /* cut_evenly.c: every sequence in one chunk a rank */
fcp_code problem_cut_zigzag(planning *x); /* cut_evenly.c: in two */
fcp_code problem_cut_split(planning *x);  /* cut_split.c: what problem_cut_blocks does where the plan is split */
/* room.c. *out_parts: how many parts the mask in x->cells leaves at least; 0: that was not counted. FCP_E_NO_MEMORY:
 * more than fit into memory. */
fcp_code problem_check_room(planning *x, uint64_t *out_parts);

/* cut_held.c: blocks of x->block tokens that stay where the caller holds them. *out_home: per block, in x->work. */
fcp_code problem_cut_held(planning *x, uint32_t **out_home);

/* pack_blocks.c. Makes pieces and blocks of parts. These come by side, sequence and start, and no two parts of a
 * sequence have the same home and the same place. *out_home: per block, in x->work. */
fcp_code problem_pack(planning *x, problem_part *parts, size_t count, uint32_t **out_home);

/* first_holders.c. Fills p->rule, which says where the caller holds the batch; its deals are in x->memory. FCP_E_VALUE:
 * ranks that do not divide into groups. */
fcp_code problem_deal(planning *x, problem *p);
/* Lists which rank holds which tokens when attention begins: the runs of one side, in order of sequence and start, in
 * x->work. Strategies that keep tokens in place start from these. Some sequences are listed as if the layout were
 * contiguous: all, if the layout is `planned`; and with zigzag those that would be cut into crumbs, or whose keys would
 * travel too long (hidden_length). FCP_E_PLAN_SIZE: there are more than 2^30 runs. */
fcp_code problem_held(planning *x, fcp_side side, problem_run **out, uint32_t *out_count);

/* mask_time.c. Fills x->outlook, unless it is known. */
fcp_code problem_look_ahead(planning *x);
/* The pass that refuses what takes longer than x->batch->max_seconds: FCP_E_TOO_LONG. */
fcp_code problem_check_time(planning *x);
bool problem_takes_long(const planning *x); /* seconds that are worth a warning, as far as is known */

/* tiles.c. Asks the mask about all blocks: makes tiles, parts, shapes and work; and x->cells, whose shapes the problem
 * goes on using. FCP_E_MASK_*, reported: the mask faults for some pair of the batch. Cost: O(parts + boundary of the
 * mask). */
fcp_code problem_tiles(planning *x);

/* What the mask of a program has answered about a batch, kept for several plannings of it. */
typedef struct problem_kept {
    struct cells *whole, *later; /* for all heads; later: of half of the sequences, where two threads ask */
    struct cells **of_class;     /* per class of heads, where the mask tells heads apart */
    uint32_t classes;
    bool two; /* a planning has asked two */
    struct planning_outlook outlook;
    uint32_t told;    /* how many masks were counted in the caller's progress */
    uint32_t *joined; /* per shape of `later`: its number in `whole`; FCP_NONE: it was not needed yet */
    uint32_t joined_room;
    /* cad: the sums of the mask's pairs between the caller's tokens, the same for all candidates; NULL: not made yet */
    const struct cad_table *tables;
    uint32_t tables_shard; /* rows and keys are cut at its multiples */
    const struct division *divisions; /* cad: those found so far, the newest first */
    arena memory;        /* of_class, the code of those masks, the tables, the divisions */
    arena memory_second; /* what a second thread makes of the tables */
} problem_kept;
void problem_kept_free(problem_kept *k);

/* Opens an object that answers for the program's mask: the one that was kept, or a new one. It is valid until it is
 * closed. FCP_E_NO_MEMORY. */
fcp_code problem_open_mask(planning *x, cells **out);
/* Opens another one, for a second thread that asks about later sequences. It is closed alike. */
fcp_code problem_open_second(planning *x, cells **out);
/* Returns the first sequence about which the second object is asked, where what the mask answers is kept for later
 * plannings (problem_kept). The first object answers for the sequences before it. The number depends on the lengths
 * only, so each object is asked about the same sequences every time. The second object has about half of the work, or
 * none if there are few keys, or if the mask reads an array. */
uint32_t problem_second(const problem *p);
void problem_close_mask(const planning *x, cells **c);

/* tiles.c. Sorts the n numbers in `order` by the value of each: that of number i lies i * stride bytes behind `first`.
 * Equals keep their order. keys: room for 2 n. */
void problem_sort(const uint64_t *first, size_t stride, bool falling, uint32_t *order, uint32_t n, uint64_t *keys);

/* Makes all tiles once more, after the blocks have changed. */
fcp_code problem_tiles_again(planning *x);
/* Makes tiles of smaller ranges of heads from the tiles for all heads. The mask is asked again only if it names h. */
fcp_code problem_tiles_of_ranges(planning *x, uint32_t range_kv, uint32_t range_sub);

/* Tokens `first` to `end` - 1 of an old block, which go to a new one. opens: they begin a new block. Otherwise they
 * join the new block of the stretch before them, which is of the same old block. */
typedef struct problem_stretch {
    uint32_t block, first, end;
    bool opens;
} problem_stretch;
/* cut_again.c. Makes other blocks, of one range of heads, from stretches of the old ones; and their tiles. Stretches
 * come by old block, and every token is in one. *out_of: per new block its old block, in x->work. FCP_E_PLAN_SIZE. */
fcp_code problem_cut_again(planning *x, const problem_stretch *stretches, size_t count, uint32_t **out_of);
/* few_rows.c. Finds how to divide blocks of which many readers need a few rows. *out: the stretches of all new blocks,
 * in x->scratch; *out_count is 0 if no block is to be divided. apart: the strategy places blocks one by one, so the two
 * halves of a divided block may lie on different ranks. */
fcp_code problem_few_rows(planning *x, bool apart, problem_stretch **out, size_t *out_count);

/* The facts of a program that say how long kernels and transfers take, for use before there is a problem. All heads are
 * one range. */
fcp_problem problem_early_facts(const struct fcpc_program *program);
/* problem_record.c. Fills the PROBLEM record of the plan, once the tiles are made. */
void problem_facts(const planning *x, fcp_problem *out);
/* ranges.c. Makes the table of ranges of heads. Called by problem_tiles. */
fcp_code problem_make_heads(planning *x);
/* ranges.c. Copies the blocks and tiles of one range of heads for all ranges, if there are several. If the ranges have
 * different tiles, of[i] is the problem with the tiles of range i, in order of KV heads; all these problems have the
 * same blocks and pieces. If `of` is NULL, every range has the tiles of x->problem. FCP_E_PLAN_SIZE. Cost: linear in
 * what it makes. */
fcp_code problem_ranges(planning *x, const problem *of);
/* How many ranges of query heads there are. */
static inline uint32_t problem_range_count(const problem *p) {
    return p->program->heads / p->range_kv / p->range_sub;
}
/* The entry of `heads` for range i of query heads. */
static inline uint32_t problem_range_heads(const problem *p, uint32_t i) {
    const uint32_t subs = p->program->heads / p->program->kv_heads / p->range_sub;
    return subs == 1 ? i : i / subs * (subs + 1) + 1 + i % subs;
}
/* head_classes.c. Fills p->head_class and p->class_count. */
fcp_code problem_find_classes(planning *x);
/* The first head of a class; and the mask for its heads, whose nodes have the same numbers as in the program's mask.
 * False: no memory. */
uint32_t problem_class_head(const problem *p, uint32_t cls);
bool problem_class_mask(const problem *p, uint32_t cls, arena *memory, mc_code *out);

/* check_batch.c: what else can be wrong with a batch. */
fcp_code problem_check_slices(planning *x); /* slices that end after the longest sequence: FCP_E_SLICES */
/* Faults of the score, for pairs that the mask allows: FCP_E_MASK_*. */
fcp_code problem_check_score(planning *x);
#endif
