/* traffic.h: which blocks travel to which ranks, by which way, and over which fabric. */
#ifndef FCPC_SCHEDULE_TRAFFIC_H
#define FCPC_SCHEDULE_TRAFFIC_H
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

/* One leg of a block's way: KV or Q of `block` goes from rank src to rank dst. Results that dst makes with it (from KV
 * its gradient, from Q the output and dQ) come home the same way, so to src: `to` is src, and `onto` the parent. Only in
 * a ring they go on: to the next rank on the way, and from the last one home. */
typedef struct hop {
    uint32_t block, src, dst;
    uint32_t parent; /* the hop that brought it to src; FCP_NONE: src is the home */
    uint32_t to;     /* the rank to which dst sends the results */
    uint32_t onto;   /* the hop that brings the block to that rank; FCP_NONE: it is the home */
    uint64_t work;   /* pairs of the tiles that need it, at dst and behind it; weighted as traffic.c says */
    uint32_t units;  /* how many transfers carry it */
    uint8_t cls;     /* FCP_KV or FCP_Q */
    uint8_t fabric;
    uint8_t back_fabric; /* of the results */
    bool bare;           /* in a ring: neither dst nor a rank before it uses the block, so there are no results yet */
    bool waits;      /* it leaves home in a stage that it is given, as all hops do where tiles run away from home */
    bool whole;      /* of Q: what comes back is a complete result; else it is a partial one, to be merged at src */
} hop;

/* May its units leave as soon as a round is free? Then they wait for nothing else. */
static inline bool hop_is_independent(const hop *h) { return h->parent == FCP_NONE && !h->waits; }

/* Where the tiles of a Q block run, and so what becomes of its results (runtime/plan/FORMAT.md). */
typedef enum result_kind {
    RESULT_HOME,    /* all at home, or there is none */
    RESULT_PARTIAL, /* at several ranks; the home makes the result of what they send it */
    RESULT_WHOLE,   /* all at one other rank, which makes the result */
    RESULT_JOINED   /* at several others; one rank on their way home gets all they send, and makes the result */
} result_kind;

typedef struct traffic {
    /* The hops of a block are a tree, whose root is its home. KV: hops[0] to hops[keys - 1], by block; then Q, by
     * block. A parent comes before its children. */
    hop *hops;
    uint32_t count, keys;
    uint32_t *tile_kv; /* per tile: the hop that brings its KV; FCP_NONE: the KV is at home where the tile runs */
    /* Where every tile runs at its Q block's home these two are NULL. */
    uint32_t *tile_q;  /* per tile: the hop that brings its Q, or FCP_NONE */
    uint8_t *results;  /* per block: a result_kind */
    uint32_t *maker;   /* per block: the hop that leads to the rank which makes its result; FCP_NONE: its home does */
    uint64_t units;    /* of all hops */
    uint64_t returned; /* the units that go back, in the pass in which most do */
    bool around;       /* keys go round a ring, a step of which is a stage */
    bool onward;       /* and their gradients go on with them */
    bool trees;        /* keys go along trees from node to node (relays.c): then all units wait */
} traffic;

static inline result_kind traffic_result(const traffic *t, uint32_t block) {
    return t->results ? (result_kind)t->results[block] : RESULT_HOME;
}
/* Do several ranks compute it, so that partial results of it are merged? */
static inline bool traffic_is_shared(const traffic *t, uint32_t block) {
    result_kind is = traffic_result(t, block);
    return is == RESULT_PARTIAL || is == RESULT_JOINED;
}
/* What goes back along a hop; FCP_CLASSES: nothing does, in this pass. */
static inline fcp_class traffic_return(const hop *h, fcp_pass pass) {
    if (h->cls == FCP_KV) return pass == FCP_BACKWARD && !h->bare ? FCP_DKV : FCP_CLASSES;
    return pass == FCP_FORWARD ? h->whole ? FCP_O : FCP_STATE : h->whole ? FCP_DQW : FCP_DQ;
}

/* How many units go back along a hop as class cls. */
static inline uint32_t return_units(const problem *p, const hop *h, fcp_class cls) {
    if (cls == FCP_DKV) return h->units; /* its units have as many tokens as those of KV */
    const uint32_t unit = p->unit_of[h->fabric][cls];
    return (p->blocks[h->block].tokens + unit - 1) / unit;
}
/* unit_tokens returns how many tokens a unit has that goes along a hop, or back along it. unit_size returns about how
 * many tokens of KV have as many bytes as `tokens` of class cls, so that sizes of different classes can be compared. */
static inline uint32_t unit_tokens(const problem *p, const hop *h, fcp_class cls, uint32_t unit) {
    const uint32_t most = p->unit_of[h->fabric][cls], left = p->blocks[h->block].tokens - unit * most;
    return left < most ? left : most;
}
static inline uint32_t unit_size(const problem *p, fcp_class cls, uint32_t tokens) {
    const uint32_t most = p->unit_of[FCP_NET][cls];
    if (most == p->unit) return tokens;
    return (uint32_t)(((uint64_t)tokens * p->unit + most - 1) / most);
}

/* Makes x->traffic from the problem and its placement. FCP_E_PLAN_SIZE: more units than a plan holds.
 * Cost: linear in tiles and hops. */
fcp_code traffic_build(planning *x);
#endif
