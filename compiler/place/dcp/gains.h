/* gains.h: what dcp's refinement knows of a placement, and what a move of a vertex saves. */
#ifndef FCPC_PLACE_DCP_GAINS_H
#define FCPC_PLACE_DCP_GAINS_H
#include "compiler/place/dcp/dcp.h"

/* How many vertices of each net lie in each bin, a rank or a node: a list of the bins that have some. A net with many
 * vertices also has, for each bin, the place in its list. The sum of the numbers of a bin's vertices says which vertex
 * it is, where that is one. */
typedef struct dcp_pin_counts {
    uint32_t bins;
    uint32_t *first, *used, *bin, *count, *sum; /* the list of net e begins at first[e], and has used[e] bins */
    uint32_t *places, *place;                   /* places[e] + bin: FCP_NONE, it is not there; of no net: FCP_NONE */
} dcp_pin_counts;

typedef struct dcp_gains {
    const dcp_input *in;
    dcp_hypergraph *g;
    uint64_t *load, *held;
    dcp_pin_counts ranks, nodes;
    uint32_t *node; /* of each rank */
    int64_t far;    /* a byte between nodes costs so many more than one inside */
    /* Per vertex: bytes of the nets of which no other vertex is at its rank, and between nodes at its node; of the
     * latter alone; and of the nets that lie at its rank alone. */
    int64_t *alone, *node_alone, *inside;
    /* what dcp_best_moves collects: per rank and node, the bytes of the vertex's nets that are there already; and the
     * ranks that have some */
    int64_t *have, *node_have;
    uint32_t *found, found_count;
    uint32_t *roomy, roomy_count;     /* the ranks that are least full */
    uint32_t *head, *next, *previous; /* the vertices of each rank */
    uint64_t looks;                   /* ranks of nets looked at */
} dcp_gains;

/* Where a vertex could go, and the bytes that saves. FCP_NONE: nowhere. */
typedef struct dcp_target {
    uint32_t to;
    int64_t gain;
} dcp_target;

/* What dcp_best_moves finds: among the ranks that share a net with the vertex, those that have room and all; and, where
 * it is asked for, among these and the roomy ones. */
typedef struct dcp_targets {
    dcp_target near, full, any;
} dcp_targets;

/* The place of a bin in the list of a net; the end of the list: it is not there. */
static inline uint32_t dcp_find_bin(const dcp_pin_counts *c, uint32_t e, uint32_t bin) {
    uint32_t i = c->first[e], end = i + c->used[e];
    if (c->places[e] != FCP_NONE) {
        const uint32_t place = c->place[c->places[e] + bin];
        return place == FCP_NONE ? end : place;
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

/* Moving a vertex saves no more than that: it leaves what it has to itself, and parts with what lies at its rank. */
static inline int64_t dcp_gain_bound(const dcp_gains *s, uint32_t v) { return s->alone[v] - s->inside[v]; }

/* What moves know of a placement: s->in, g, load and held are given. */
fcp_code dcp_open_gains(dcp_gains *s, arena *scratch);
/* The moves of a vertex that save most. Of equals, that to the rank with least load. */
dcp_targets dcp_best_moves(dcp_gains *s, uint32_t v, bool anywhere);
/* What moving a vertex to rank r saves. */
int64_t dcp_gain_of(dcp_gains *s, uint32_t v, uint32_t r);
void dcp_move(dcp_gains *s, uint32_t v, uint32_t to);
/* What the nets cost. */
int64_t dcp_connectivity(const dcp_gains *s);
#endif
