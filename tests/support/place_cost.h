/* place_cost.h: computes what a placement costs without the planner's code, for tests and benchmarks of placement. */
#ifndef PLACE_COST_H
#define PLACE_COST_H
#include "compiler/place/place.h"

typedef struct place_cost {
    uint64_t work_max, work_total, work_heaviest;
    uint64_t tokens_max;
    uint64_t tokens_moved;       /* the sum over transfers of the block's tokens */
    uint64_t tokens_moved_net;   /* the part between nodes, once per node */
    uint64_t net_send_max;       /* of that part, what the busiest rank sends as a home */
    uint64_t send_max, recv_max; /* transfers of the busiest sender and receiver: flat, without node combining */
} place_cost;

/* Cost: O(reads + blocks + ranks). */
static inline fcp_code place_measure(const place_input *in, arena *scratch, const uint32_t *home, place_cost *out) {
    uint32_t ranks = in->ranks, gpus = in->gpus ? in->gpus : 1;
    uint32_t *first = ARENA_ZNEW(scratch, uint32_t, ranks + (size_t)2);
    uint32_t *held = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    uint32_t *rank_seen = ARENA_ZNEW(scratch, uint32_t, in->blocks + (size_t)1);
    uint32_t *node_seen = ARENA_ZNEW(scratch, uint32_t, in->blocks + (size_t)1);
    uint64_t *sends = ARENA_ZNEW(scratch, uint64_t, ranks + (size_t)1);
    uint64_t *net = ARENA_ZNEW(scratch, uint64_t, ranks + (size_t)1);
    if (!first || !held || !rank_seen || !node_seen || !sends || !net) return FCP_E_NO_MEMORY;
    *out = (place_cost){0};
    for (uint32_t b = 0; b < in->blocks; b++) first[home[b] + 2]++;
    for (uint32_t r = 1; r < ranks; r++) first[r + 1] += first[r];
    for (uint32_t b = 0; b < in->blocks; b++) held[first[home[b] + 1]++] = b;

    for (uint32_t r = 0; r < ranks; r++) { /* rank_seen, node_seen: newest rank, node + 1 that read the KV block */
        uint32_t node = r / gpus;
        uint64_t work = 0, tokens = 0, received = 0;
        for (uint32_t i = first[r]; i < first[r + 1]; i++) {
            uint32_t b = held[i];
            work += in->work[b];
            tokens += in->tokens[b];
            out->work_total += in->work[b];
            if (in->work[b] > out->work_heaviest) out->work_heaviest = in->work[b];
            for (uint32_t e = in->reads_start[b]; e < in->reads_start[b + 1]; e++) {
                uint32_t j = in->reads[e];
                if (rank_seen[j] == r + 1) continue;
                rank_seen[j] = r + 1;
                if (home[j] == r) continue;
                sends[home[j]]++;
                received++;
                out->tokens_moved += in->tokens[j];
                if (node_seen[j] == node + 1) continue;
                node_seen[j] = node + 1;
                if (home[j] / gpus == node) continue;
                out->tokens_moved_net += in->tokens[j];
                net[home[j]] += in->tokens[j];
            }
        }
        if (work > out->work_max) out->work_max = work;
        if (tokens > out->tokens_max) out->tokens_max = tokens;
        if (received > out->recv_max) out->recv_max = received;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        if (sends[r] > out->send_max) out->send_max = sends[r];
        if (net[r] > out->net_send_max) out->net_send_max = net[r];
    }
    return FCP_OK;
}
#endif
