/* dcp.h: the parts of the dcp strategy: a multilevel hypergraph partitioner, which divides blocks and tiles among ranks
 * under a cap on pairs and one on tokens.
 *
 * Example: three sequences of 10 blocks, 4 ranks, a lambda mask. A rank takes 8 blocks at most, so a sequence does not
 * fit on one. Dcp gives one rank 8 blocks of the first sequence and another the 2 that are left, and so on; two ranks
 * then receive the few blocks that their rows see across the cut.
 *
 * The words are those of Mt-KaHyPar; rows and components are ours:
 *   row        the tiles of one Q block
 *   component  blocks that share readers, directly or through others: a sequence, or a few that share a block
 *   vertex     the tokens of a block with the tiles of its row that run at its home; or the tiles of a row that run at
 *              one other rank. If homes are given, the tokens are a vertex of their own, which is fixed.
 *   net        joins what should be together: the readers of a block's K and V with its home, or the vertices of one
 *              row
 *   pin        a vertex of a net
 *
 * A net whose pins are on n ranks costs n - 1 transfers of its bytes (the connectivity metric). Source: Karypis et al.,
 * "Multilevel hypergraph partitioning" (1997); Gottesbueren et al., "Scalable shared-memory hypergraph partitioning"
 * (2021).
 *
 *   dcp_problem.c          the strategy: from a problem to homes, and to a rank for each tile
 *   dcp.c                  the order of the steps, and what a placement costs
 *   coarsen_batch.c        coarsening of the batch, where sequences have very many tiles
 *   initial_partition.c    an initial partition: whole sequences, and strips of those that are too heavy
 *   rooms.c                which rank has most room
 *   initial_by_nodes.c     another one: among nodes first, then each node's part among its ranks
 *   node_batches.c         what a node got, as a batch of its own
 *   two_tolerances.c       a tolerance between nodes, and another one inside
 *   initial_given_homes.c  one for given homes: rows leave ranks that have too much work
 *   rebalance_tiles.c      moves some tiles of a row, to reach the cap on pairs
 *   hypergraph.c           the hypergraph of a placement, and coarsening of it
 *   gains.c                the gain of a move, kept up to date while vertices move
 *   refine.c               refinement: moves that save bytes under the caps
 *   dcp_bound.c            a lower bound of the bytes
 */
#ifndef FCPC_PLACE_DCP_DCP_H
#define FCPC_PLACE_DCP_DCP_H
#include "compiler/place/place.h"
#include "compiler/place/place_tuning.h"

/* A block. tokens: as they count in the cap. The rest are bytes:
 *   kv     K and V, to a reader
 *   whole  Q, to another rank that computes all of its row, and the result back
 *   part   Q, to one of several ranks that compute its row, and a partial result back */
typedef struct dcp_block {
    uint32_t tokens;
    uint64_t kv, whole, part;
} dcp_block;

typedef struct dcp_input {
    uint32_t ranks, gpus;       /* rank r is in node r / gpus */
    uint32_t blocks;
    const dcp_block *block;
    const uint32_t *tile_start; /* of each Q block; blocks + 1 */
    const uint32_t *tile_k;     /* ascending in each row */
    const uint64_t *tile_pairs;
    const uint32_t *fixed;      /* per block: its home, where homes are given and only tiles are placed; or NULL */
    uint32_t net;               /* a byte between nodes counts as so many inside one */
    uint64_t pair_cap, token_cap;
    /* two_tolerances.c. The cap on a node's pairs; 0: nodes have none. If there is one, a rank may also have no more
     * than `within` millionths over the mean of its node. */
    uint64_t node_pair_cap;
    uint32_t within;
    const uint8_t *guest; /* per block, with `fixed`: 1: it is at home in another node, and `fixed` holds no more */
    const volatile int *stop;
} dcp_input;

/* A partition: where blocks are at home and tiles run, and what that adds up to. */
typedef struct dcp_partition {
    uint32_t *home, *exec; /* per block, per tile */
    uint64_t *load, *held; /* per rank: pairs, tokens */
} dcp_partition;

/* What a placement costs. */
typedef struct dcp_cost {
    uint64_t bytes, net;           /* all, and those between nodes */
    uint64_t most_pairs, most_tokens;
} dcp_cost;

/* A cap: the mean plus epsilon millionths of it, rounded down; but no less than the mean rounded up. */
uint64_t dcp_cap_of(uint64_t sum, uint32_t ranks, uint32_t epsilon);
/* dcp.c. Divides blocks and tiles among ranks. Both caps are kept, unless single blocks or tiles are too large for
 * that: dcp_cost_of tells. Cost: about 10 ms at 64 ranks of 32 blocks. Memory: O(blocks + tiles). */
fcp_code dcp_partition_batch(const dcp_input *in, arena *scratch, uint32_t *out_home, uint32_t *out_exec);
/* dcp_bound.c. A lower bound on the bytes that a placement moves, inside nodes and between them, if it keeps both
 * caps. */
fcp_code dcp_bound(const dcp_input *in, arena *scratch, uint64_t *out_bytes);
/* dcp_problem.c. The same for the forward pass of a problem that dcp has placed; 0: no bound is known. */
fcp_code dcp_bound_of(planning *x, uint64_t *out_bytes);
fcp_code dcp_cost_of(const dcp_input *in, const uint32_t *home, const uint32_t *exec, arena *scratch, dcp_cost *out);

/* --- inside the folder -------------------------------------------------------------------------------------------- */

/* What part of a cap v is: DCP_ONE is the whole cap. At most UINT32_MAX. */
enum { DCP_ONE = 1 << 20 };
static inline uint64_t dcp_share(uint64_t v, uint64_t cap) {
    if (!cap) cap = 1;
    /* dividing 128 bits takes several times as long */
    const unsigned __int128 x =
        v <= UINT64_MAX / DCP_ONE ? v * DCP_ONE / cap : (unsigned __int128)v * DCP_ONE / cap;
    return x > UINT32_MAX ? UINT32_MAX : (uint64_t)x;
}

/* The tiles of each block as KV block: those of block b are tile[start[b]] to tile[start[b + 1] - 1]. */
typedef struct dcp_columns {
    uint32_t *start, *tile, *tile_q;
    /* Per block: 1: its row is wide: it sees so many keys that each of its tiles runs where the keys are, and counts as
     * work of the block that holds those. */
    uint8_t *wide;
    /* Components: blocks that share readers, directly or through others. They are the sequences of the batch.
     * Component i has the blocks member[first[i]] to member[first[i + 1] - 1]. */
    uint32_t *first, *member;
    uint32_t components;
} dcp_columns;

/* Does tile t run where its keys are, so that it counts as work of its KV block? So do the tiles of wide rows. */
static inline bool dcp_runs_at_keys(const dcp_input *in, const dcp_columns *c, uint32_t t) {
    return c->wide[c->tile_q[t]] && in->tile_k[t] != c->tile_q[t];
}

/* initial_partition.c. Two steps before the initial partition: finding components, and finding wide rows. */
fcp_code dcp_find_components(const dcp_input *in, dcp_columns *c, arena *scratch);
void dcp_find_wide(const dcp_input *in, dcp_columns *c);
/* What part of a rank a component fills: by pairs or by tokens, whichever is more. DCP_ONE is a whole rank. *out_tiles:
 * how many tiles it has. */
uint64_t dcp_share_of(const dcp_input *in, const dcp_columns *c, uint32_t component, uint64_t *out_tiles);
/* Makes the initial partition: gives every block a home and every tile a rank. */
fcp_code dcp_initial(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *out);

/* rooms.c. The ranks of a partition, in an order in which worst fit need not look at all of them. */
typedef struct dcp_rooms {
    const dcp_input *in;
    const dcp_partition *p;
    uint32_t leaves, shift;           /* leaf i: ranks with a load of i << shift and more; the last: all with more */
    uint32_t *least;                  /* per vertex of the tree: the first of the ranks with fewest tokens */
    uint32_t *next, *previous, *leaf; /* per rank: its neighbours in the list of its leaf */
} dcp_rooms;

fcp_code dcp_rooms_open(dcp_rooms *x, const dcp_input *in, const dcp_partition *p, arena *scratch);
void dcp_rooms_fill(dcp_rooms *x);
/* Load or held of rank r has changed. */
void dcp_rooms_set(dcp_rooms *x, uint32_t r);
/* Of the ranks where this fits, the one that then has most room of the scarcer kind. FCP_NONE: it fits nowhere. */
uint32_t dcp_rooms_find(const dcp_rooms *x, uint64_t work, uint64_t tokens);

/* dcp.c. Allocates the arrays of a partition; false: no memory. */
bool dcp_open_partition(const dcp_input *in, arena *scratch, dcp_partition *out);
/* dcp.c. Makes an initial partition with dcp_initial or dcp_initial_given_homes, and rebalances it. `out` has its
 * arrays already. If `refine` is not NULL, the partition is also refined, with memory from `refine`, which is empty
 * before and after. */
fcp_code dcp_initial_partition(const dcp_input *in, arena *refine, arena *scratch, dcp_partition *out);
/* initial_by_nodes.c. Makes the initial partition that divides the batch among nodes first. `step` is empty before and
 * after. */
fcp_code dcp_initial_by_nodes(const dcp_input *in, arena *scratch, arena *step, dcp_partition *out);
/* A node's cap on pairs or tokens: that of its ranks together, of which it may use only so many percent of what they
 * may have over the mean. sum: of all nodes. */
uint64_t dcp_node_cap(const dcp_input *in, uint64_t cap, uint64_t sum, uint32_t percent);
/* two_tolerances.c. Divides a batch with node_pair_cap: the same as dcp_partition_batch. */
fcp_code dcp_divide_twice(const dcp_input *in, arena *scratch, uint32_t *out_home, uint32_t *out_exec);
/* initial_given_homes.c. An initial partition of tiles alone, where homes are given. */
fcp_code dcp_initial_given_homes(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *out);

/* A batch that was made of another one. coarsen_batch.c makes one of fewer and larger blocks; initial_by_nodes.c makes
 * one of what a node got. block and tile say which numbers correspond. */
typedef struct dcp_derived {
    dcp_input in; /* with the arrays that follow */
    dcp_block *made;
    uint32_t *tile_start, *tile_k;
    uint64_t *tile_pairs;
    uint32_t *block, *tile;
} dcp_derived;

/* A batch divided among nodes: the node of each block and tile, and the blocks and tiles of each node. */
typedef struct dcp_by_node {
    dcp_partition at;
    uint32_t *tile_q;               /* of each tile */
    uint32_t *block_start, *blocks; /* those of node v are blocks[block_start[v]] to blocks[block_start[v + 1] - 1] */
    uint32_t *tile_start, *tiles;
    uint32_t *name; /* per block: its number in the batch of the node at hand; FCP_NONE: it is not in that batch */
} dcp_by_node;

/* node_batches.c. Lists the blocks and tiles of each node; x->at is given. */
fcp_code dcp_list_by_node(const dcp_input *in, uint32_t nodes, arena *scratch, dcp_by_node *x);
/* Makes a batch of what a node got. out->block and out->tile lead back to the numbers of the whole batch. */
fcp_code dcp_batch_of_node(const dcp_input *in, dcp_by_node *x, uint32_t node, arena *scratch, dcp_derived *out);

/* dcp.c. Allocates a derived batch of so many blocks and tiles, with ranks and caps as in `of`. False: no memory. */
bool dcp_open_derived(const dcp_input *of, uint32_t blocks, uint32_t tiles, arena *scratch, dcp_derived *out);
/* coarsen_batch.c. In sequences that have more tiles than dividing them takes, neighbouring blocks become one.
 * out->block, out->tile: what each block and tile became part of. If out->in.blocks is as before, nothing was
 * contracted. */
fcp_code dcp_coarsen_batch(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_derived *out);

typedef struct dcp_hypergraph {
    uint32_t vertices, nets;
    uint64_t *work, *tokens;             /* of each vertex */
    uint32_t *part;                      /* the rank of each vertex */
    uint8_t *fixed;                      /* of each vertex: it stays there */
    uint32_t *incident_start, *incident; /* the nets of each vertex */
    uint32_t *net_start, *pin;           /* the vertices of each net */
    uint64_t *bytes;                     /* of each net */
} dcp_hypergraph;

/* hypergraph.c. The hypergraph of a placement. out_data, out_tile: the vertex of each block's tokens and of each tile.
 * tiles_apart: in rows that do not run at home, each tile is a vertex of its own. Nets with one pin are left out. */
fcp_code dcp_hypergraph_of(const dcp_input *in, const dcp_columns *c, const dcp_partition *p, bool tiles_apart,
                           arena *scratch, dcp_hypergraph *out, uint32_t *out_data, uint32_t *out_tile);
/* Coarsens a hypergraph: vertices of one rank that share many bytes become one vertex, of at most `work` pairs and
 * `tokens` tokens. out_coarse: the vertex that each became part of. The new hypergraph is allocated in `keep`;
 * `scratch` may be emptied afterwards. */
fcp_code dcp_coarsen(const dcp_input *in, const dcp_hypergraph *g, uint64_t work, uint64_t tokens, arena *keep,
                     arena *scratch, dcp_hypergraph *out, uint32_t *out_coarse);

/* refine.c. Moves vertices to save bytes; never brings a rank over a cap. */
fcp_code dcp_refine(const dcp_input *in, dcp_hypergraph *g, uint64_t *load, uint64_t *held, arena *scratch);

/* rebalance_tiles.c. Moves tiles from ranks that are over the cap on pairs. */
fcp_code dcp_rebalance_tiles(const dcp_input *in, const dcp_columns *c, dcp_partition *p, arena *scratch);

/* The strategy's functions: place.h. */
fcp_code dcp_cut(planning *x);
fcp_code place_by_dcp(planning *x, const place_input *in, uint32_t *home);
fcp_code exec_by_dcp(planning *x, const uint32_t *home, uint32_t *exec);
#endif
