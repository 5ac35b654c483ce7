/* dcp.h: the dcp strategy's own parts: a partitioner of blocks and tiles among ranks, under a cap on pairs and one on
 * tokens.
 *
 * Example: three sequences of 10 blocks, 4 ranks, a lambda mask. A rank takes 8 blocks at most, so a sequence does not
 * fit on one. Dcp gives one rank 8 blocks of the first sequence and another the 2 that are left, and so on; two ranks
 * then receive the few blocks that their rows see across the cut.
 *
 * What is divided is a hypergraph. A vertex is some tiles of one row of tiles (of one Q block), all at one rank; one
 * vertex of each block also holds its tokens. Where homes are given, that vertex has no tiles and stays. A net joins
 * what should be together: the readers of a block's K and V with its home, or the vertices of one row. A net that lies
 * on n ranks costs n - 1 transfers of its bytes.
 *
 *   dcp_problem.c    the strategy: from a problem to homes, and to a rank for each tile
 *   dcp.c      the order of the steps below, and what a placement costs
 *   coarsen_batch.c     a coarser batch, where sequences have very many tiles
 *   initial_partition.c    a first placement: whole sequences, and strips of those that are too heavy
 *   initial_by_nodes.c    another: among nodes first, then each node's part among its ranks
 *   initial_given_homes.c     the same where homes are given: rows that leave ranks with too much work
 *   hypergraph.c    the hypergraph of a placement, and coarser ones of it
 *   refine.c   moves that save bytes, on a hypergraph, under the caps
 *   gains.c    what a move saves, and what it changes
 *   rebalance_tiles.c    moves of some tiles of a row, to reach the cap on pairs
 *   dcp_bound.c    what no placement goes below
 */
#ifndef FCPC_PLACE_DCP_DCP_H
#define FCPC_PLACE_DCP_DCP_H
#include "compiler/place/place.h"

typedef struct dcp_input {
    uint32_t ranks, gpus;       /* rank r is in node r / gpus */
    uint32_t blocks;
    const uint32_t *tokens;     /* per block: what it counts in the cap on tokens */
    const uint32_t *tile_start; /* of each Q block; blocks + 1 */
    const uint32_t *tile_k;     /* ascending in each row */
    const uint64_t *tile_pairs;
    /* Bytes of a block: of K and V to a reader; of Q to the rank that computes its row and of the result back, if that
     * is one rank; of the same to each rank but the home, if they are several. */
    const uint64_t *kv, *whole, *part;
    const uint32_t *fixed;      /* per block: its home, where homes are given and only tiles are placed; or NULL */
    uint32_t net;               /* a byte between nodes counts as so many inside one */
    uint64_t pair_cap, token_cap;
    const volatile int *stop;
} dcp_input;

/* Where blocks are at home and tiles run, and what that adds up to. */
typedef struct dcp_partition {
    uint32_t *home, *exec; /* per block, per tile */
    uint64_t *load, *held; /* per rank: pairs, tokens */
} dcp_partition;

/* What a placement costs. */
typedef struct dcp_cost {
    uint64_t bytes, net;           /* all, and those between nodes */
    uint64_t most_pairs, most_tokens;
} dcp_cost;

/* dcp.c. Divides, and keeps both caps where it can: see most_pairs, most_tokens. `out` has room for blocks and tiles.
 * Cost: about 10 ms at 64 ranks of 32 blocks. Memory: O(blocks + tiles). */
fcp_code dcp_partition_batch(const dcp_input *in, arena *scratch, uint32_t *out_home, uint32_t *out_exec);
/* dcp_bound.c. The bytes, between nodes or not, that any placement moves which keeps both caps. */
fcp_code dcp_bound(const dcp_input *in, arena *scratch, uint64_t *out_bytes);
/* dcp_problem.c. The same of a problem that dcp has placed, in the forward pass; 0: no bound is known. */
fcp_code dcp_bound_of(planning *x, uint64_t *out_bytes);
fcp_code dcp_cost_of(const dcp_input *in, const uint32_t *home, const uint32_t *exec, arena *scratch, dcp_cost *out);

/* --- inside the folder -------------------------------------------------------------------------------------------- */

enum { DCP_ONE = 1 << 20 };
/* A cap's share, where the whole cap is DCP_ONE; at most UINT32_MAX. */
static inline uint64_t dcp_share(uint64_t v, uint64_t cap) {
    if (!cap) cap = 1;
    /* dividing 128 bits takes several times as long */
    const unsigned __int128 x =
        v <= UINT64_MAX / DCP_ONE ? v * DCP_ONE / cap : (unsigned __int128)v * DCP_ONE / cap;
    return x > UINT32_MAX ? UINT32_MAX : (uint64_t)x;
}

/* The tiles of a block as KV block: tile[start[b]], and so on. */
typedef struct dcp_columns {
    uint32_t *start, *tile, *tile_q;
    /* Per block: 1: its row sees so many keys that each tile runs where its keys are, and counts as work of the block
     * that holds those. */
    uint8_t *wide;
    uint32_t *first, *member; /* blocks that share readers, directly or not: the blocks of each such component */
    uint32_t components;
} dcp_columns;

/* Does tile t count as work of its KV block, and not of its Q block? */
static inline bool dcp_runs_at_keys(const dcp_input *in, const dcp_columns *c, uint32_t t) {
    return c->wide[c->tile_q[t]] && in->tile_k[t] != c->tile_q[t];
}

/* initial_partition.c. Finds components, and wide rows. */
fcp_code dcp_find_components(const dcp_input *in, dcp_columns *c, arena *scratch);
void dcp_find_wide(const dcp_input *in, dcp_columns *c);
/* What a component fills, of pairs or of tokens, whichever is more; a whole rank is DCP_ONE. */
uint64_t dcp_share_of(const dcp_input *in, const dcp_columns *c, uint32_t component, uint64_t *out_tiles);
/* A first placement: every block has a home, every tile a rank. */
fcp_code dcp_initial(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *out);

/* dcp.c. Takes room for a placement; false: no memory. */
bool dcp_open_partition(const dcp_input *in, arena *scratch, dcp_partition *out);
/* dcp.c. That first placement, with no rank over the cap on pairs if that can be, where homes are free. `refine`: it is
 * refined, with memory from there, which is empty before and after; or NULL. `out` has its arrays. */
fcp_code dcp_initial_partition(const dcp_input *in, arena *refine, arena *scratch, dcp_partition *out);
/* initial_by_nodes.c. Another first placement, where there are several nodes: these first. `step` is empty before and
 * after. */
fcp_code dcp_initial_by_nodes(const dcp_input *in, arena *scratch, arena *step, dcp_partition *out);

/* coarsen_batch.c. A coarser batch: which block each block, and which tile each tile is part of. */
typedef struct dcp_coarse_batch {
    dcp_input in;
    uint32_t *block, *tile;
} dcp_coarse_batch;

/* coarsen_batch.c. Joins neighbours of sequences that have more tiles than dividing them takes; in.blocks as before:
 * none. */
fcp_code dcp_coarsen_batch(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_coarse_batch *out);

/* initial_given_homes.c. A first placement of tiles alone, where homes are given. */
fcp_code dcp_initial_given_homes(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *out);

typedef struct dcp_hypergraph {
    uint32_t vertices, nets;
    uint64_t *work, *tokens;    /* of each vertex */
    uint32_t *part;             /* the rank of each vertex */
    uint8_t *fixed;             /* of each vertex: it stays there */
    uint32_t *pin_start, *pin;  /* the nets of each vertex */
    uint32_t *net_start, *end;  /* the vertices of each net */
    uint64_t *bytes;            /* of each net */
} dcp_hypergraph;

/* hypergraph.c. The hypergraph of a placement. out_data, out_tile: the vertex of each block's tokens and of each tile.
 * tiles_apart: in rows that do not run at home, each tile is a vertex of its own. Nets that lie within one vertex are
 * left out. */
fcp_code dcp_hypergraph_of(const dcp_input *in, const dcp_columns *c, const dcp_partition *p, bool tiles_apart,
                           arena *scratch, dcp_hypergraph *out, uint32_t *out_data, uint32_t *out_tile);
/* A coarser one: vertices that share many bytes and are at one rank become one, of at most so much work and so many
 * tokens. out_up: the vertex that each became part of. `keep` holds the graph, `scratch` what may go afterwards. */
fcp_code dcp_coarsen(const dcp_input *in, const dcp_hypergraph *g, uint64_t work, uint64_t tokens, arena *keep,
                     arena *scratch, dcp_hypergraph *out, uint32_t *out_up);

/* refine.c. Moves vertices to save bytes; never brings a rank over a cap. */
fcp_code dcp_refine(const dcp_input *in, dcp_hypergraph *g, uint64_t *load, uint64_t *held, arena *scratch);

/* rebalance_tiles.c. Moves tiles from ranks that are over the cap on pairs. */
fcp_code dcp_rebalance_tiles(const dcp_input *in, const dcp_columns *c, dcp_partition *p, arena *scratch);
#endif
