/* gains.h: the gain cache of dcp's refinement: how many bytes it saves to move a vertex to another rank. */
#ifndef FCPC_PLACE_DCP_GAINS_H
#define FCPC_PLACE_DCP_GAINS_H
#include "compiler/place/dcp/dcp.h"

/* How many pins each net has in each bin. A bin is a rank, or in a second such table a node. Net e has a list of the
 * bins in which it has pins: entries first[e] to first[e] + used[e] - 1 of `bin` and `count`. `sum` is the sum of the
 * numbers of the net's pins in that bin, so if there is one pin, `sum` is its number. Nets with many pins also have an
 * index: the entry of each bin. */
typedef struct dcp_pin_counts {
    uint32_t bins;
    uint32_t *first, *used, *bin, *count, *sum;
    uint32_t *index_start, *index; /* index[index_start[e] + bin]: its entry, or FCP_NONE; FCP_NONE: no index */
} dcp_pin_counts;

typedef struct dcp_gains {
    const dcp_input *in;
    dcp_hypergraph *g;
    uint64_t *load, *held; /* per rank: pairs, tokens */
    dcp_pin_counts ranks, nodes;
    uint32_t *node; /* of each rank */
    int64_t far;    /* a byte between nodes costs so many more than one inside */
    /* Per vertex: the bytes of the nets of which it is the only pin at its rank, and `far` times those of which it is
     * the only pin in its node; the latter alone; the bytes of its nets that lie on its rank entirely. */
    int64_t *benefit, *node_benefit, *internal;
    /* What dcp_best_targets collects: of the vertex's nets, the bytes that have a pin at each rank, and in each node;
     * and the ranks that have some. */
    int64_t *connected, *node_connected;
    uint32_t *adjacent, adjacent_count;
    uint32_t *roomy, roomy_count;     /* the ranks that are least full */
    uint32_t *head, *next, *previous; /* the vertices of each rank */
    uint64_t looks;                   /* the cost so far: entries that were looked at */
} dcp_gains;

/* A rank to which a vertex could move, and the bytes that saves. FCP_NONE: there is none. */
typedef struct dcp_target {
    uint32_t to;
    int64_t gain;
} dcp_target;

/* The best targets of a vertex:
 *   best      of all ranks that share a net with it
 *   fitting   of those that also have room for it
 *   anywhere  if asked for: of all ranks with room that share a net with it or are among the least full */
typedef struct dcp_targets {
    dcp_target fitting, best, anywhere;
} dcp_targets;

/* Finds the entry of a bin in the list of a net. If the net has no pin there, returns the end of the list. */
static inline uint32_t dcp_find_bin(const dcp_pin_counts *c, uint32_t e, uint32_t bin) {
    uint32_t i = c->first[e], end = i + c->used[e];
    if (c->index_start[e] != FCP_NONE) {
        const uint32_t entry = c->index[c->index_start[e] + bin];
        return entry == FCP_NONE ? end : entry;
    }
    while (i < end && c->bin[i] != bin) i++;
    return i;
}

static inline uint32_t dcp_count_of(const dcp_pin_counts *c, uint32_t e, uint32_t bin) {
    const uint32_t i = dcp_find_bin(c, e, bin);
    return i < c->first[e] + c->used[e] ? c->count[i] : 0;
}

static inline bool dcp_has_room(const dcp_gains *s, uint32_t v, uint32_t r) {
    return s->load[r] + s->g->work[v] <= s->in->pair_cap && s->held[r] + s->g->tokens[v] <= s->in->token_cap;
}

/* An upper bound on the gain of any move of the vertex: the move saves at most the benefit, and it cuts the nets that
 * lie entirely on the vertex's rank. */
static inline int64_t dcp_gain_bound(const dcp_gains *s, uint32_t v) { return s->benefit[v] - s->internal[v]; }

/* Fills the cache. The caller has set s->in, g, load and held. */
fcp_code dcp_open_gains(dcp_gains *s, arena *scratch);
/* The best targets of a vertex. If several are equally good, the one with least load is taken. */
dcp_targets dcp_best_targets(dcp_gains *s, uint32_t v, bool anywhere);
/* The gain of moving a vertex to rank r. */
int64_t dcp_gain_of(dcp_gains *s, uint32_t v, uint32_t r);
void dcp_move(dcp_gains *s, uint32_t v, uint32_t to);
/* The cost of the partition: for each net, its bytes times (the number of its ranks - 1); and the same for nodes. */
int64_t dcp_connectivity(const dcp_gains *s);
#endif
