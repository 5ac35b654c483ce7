/* near.c: decides which ranks compute a stage in two steps, so that some of its tiles need not wait for the network.
 *
 * Requires: traffic and placement.
 * Gives: for each rank, whether it divides its stages.
 * Cost: linear in hops and tiles.
 *
 * A tile of a stage is *near* if neither its KV nor its Q comes over net in that stage. A rank that divides its stages
 * computes the near tiles first. *Example*: on nodes of four, rank 4 gets in one stage a block from rank 5 over local
 * and one from rank 3 over net. With one ATTEND instruction for both, the first block waits for the second:
 *
 *     net    [ from 3               ]                       net    [ from 3               ]
 *     local  [ from 5 ]                                     local  [ from 5 ]
 *     one    ........................[ both tiles ]         two    ..........[ tile ].....[ tile ]
 *
 * Two ATTENDs have a price. They are two launches, each of which may be too small to fill the device. And a Q block
 * with tiles of both kinds is visited twice, so its running state is stored and loaded once more. Therefore a rank
 * divides its stages only if
 *
 *     time of the network  >  time of computing + one more launch in each stage
 *
 * - The network takes the time of the busiest port: the rank's own, or one of those that send to it over net.
 * - Computing takes the rank's pairs at four sevenths of the FLOPs (place/weigh_placement.c), but for each tile at
 *   least the time to read and write the running state of its rows.
 *
 * *What breaks if all ranks divide*: on wikipedia-64 in zigzag the backward pass takes 741 ms in place of 718.
 */
#include "compiler/schedule/schedule_parts.h"
#include "compiler/schedule/schedule_tuning.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/head_ranges.h"

typedef unsigned __int128 wide;

/* Bytes that a rank's port moves over net in the forward pass, each way. */
typedef struct port {
    uint64_t bytes[FCP_DIRECTION_COUNT];
} port;

/* out[r]: the bytes of the busiest port of rank r and of those that send to it over net. */
static fcp_code find_busiest(planning *x, const fcp_problem *facts, uint64_t *out) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    const uint64_t of_token[FCP_CLASSES] = {[FCP_KV] = fcp_class_bytes(facts, FCP_KV, FCP_FORWARD),
                                            [FCP_Q] = fcp_class_bytes(facts, FCP_Q, FCP_FORWARD)};
    port *ports = ARENA_ZNEW(&x->scratch, port, p->ranks);
    if (!ports) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *h = &t->hops[f];
        const uint64_t bytes = h->fabric == FCP_NET ? p->blocks[h->block].tokens * of_token[h->cls] : 0;
        if (planning_stopped_at(x, f)) return FCP_E_INTERRUPTED;
        ports[h->src].bytes[FCP_SEND] += bytes;
        ports[h->dst].bytes[FCP_RECV] += bytes;
    }
    for (uint32_t r = 0; r < p->ranks; r++) out[r] = ports[r].bytes[FCP_RECV];
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *h = &t->hops[f];
        if (h->fabric == FCP_NET && ports[h->src].bytes[FCP_SEND] > out[h->dst])
            out[h->dst] = ports[h->src].bytes[FCP_SEND];
    }
    return FCP_OK;
}

/* Counts the pairs that each rank computes. A tile counts as at least `least` pairs for each of its rows. */
static fcp_code count_pairs(planning *x, uint64_t least, uint64_t *out) {
    const problem *p = x->problem;
    const placement *where = x->placement;
    for (uint32_t i = 0; i < p->tile_count; i++) {
        const uint32_t q = p->tile_q[i];
        const uint64_t pairs = p->tile_pairs[i], rows = p->blocks[q].tokens * least;
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        out[where->exec ? where->exec[i] : where->home[q]] += pairs > rows ? pairs : rows;
    }
    return FCP_OK;
}

/* What amount / rate takes, in picoseconds. */
static uint64_t time_of(wide amount, uint64_t rate) { return (uint64_t)(amount * 1000000 / (rate / 1000000 + 1)); }

fcp_code near_first(planning *x, uint32_t stages, bool **out) {
    const uint32_t ranks = x->problem->ranks;
    const struct fcpc_program *g = x->program;
    fcp_problem facts;
    *out = NULL;
    if (g->nodes == 1 || g->gpus == 1) return FCP_OK;
    problem_facts(x, &facts);
    uint64_t *bytes = ARENA_NEW(&x->scratch, uint64_t, ranks), *pairs = ARENA_ZNEW(&x->scratch, uint64_t, ranks);
    bool *first = ARENA_NEW(&x->scratch, bool, ranks), any = false;
    if (!bytes || !pairs || !first) return FCP_E_NO_MEMORY;
    /* of a pair; pairs are summed over heads if the mask names h */
    const uint64_t heads = facts.mask_uses & MC_USES_H ? 1 : fcp_range_heads(&facts);
    const wide flops = (wide)heads * fcp_pair_flops(g->head_dim, g->value_dim, FCP_FORWARD);
    const wide state = 2 * (wide)fcp_slot_bytes(&facts, FCP_STATE, FCP_FORWARD);
    const uint64_t least = (uint64_t)(4 * state * g->cluster.flops / (7 * flops * g->cluster.memory_bandwidth + 1));
    fcp_code code = find_busiest(x, &facts, bytes);
    if (!code) code = count_pairs(x, least, pairs);
    for (uint32_t r = 0; !code && r < ranks; r++) {
        const uint64_t moves = time_of(bytes[r], g->cluster.inter);
        const uint64_t computes = time_of(pairs[r] * flops * 7 / 4, g->cluster.flops);
        first[r] = moves > computes + stages * LAUNCH_PICOSECONDS;
        any |= first[r];
    }
    if (any) *out = first;
    return code;
}
