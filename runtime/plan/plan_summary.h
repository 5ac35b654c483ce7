/* plan_summary.h: the record of a plan's totals: work, bytes, rounds and memory. */
#ifndef FCP_PLAN_PLAN_SUMMARY_H
#define FCP_PLAN_PLAN_SUMMARY_H
#include "runtime/fcp.h"

/* Section SUMMARY: one record. Everything in it follows from the tables, and the verifier checks that it does. */
typedef struct fcp_summary {
    uint64_t sequences, blocks, tiles;
    uint64_t pairs;           /* of all tiles: allowed (query, key) pairs, once for each range of query heads; summed
                                  * over heads if the mask uses h */
    uint64_t positions;       /* all (query, key) pairs, summed likewise: density = pairs / positions */
    uint64_t pairs_max_rank;  /* compute_max_over_mean = pairs_max_rank * ranks / pairs */
    uint64_t pairs_max_block; /* heaviest Q block: compute_floor = max(1, pairs_max_block * ranks / pairs) */
    uint64_t tokens_max_rank, key_tokens_max_rank; /* the most home tokens of a rank: of queries, of keys */
    /* the forward pass */
    uint64_t bytes_total;        /* sent on both fabrics, without the reshuffle */
    uint64_t bytes_moved;        /* the part of bytes_total that is Q, state and O, and not KV */
    uint64_t bytes_inter_node;   /* the part of bytes_total that goes over net */
    uint64_t send_max, recv_max; /* bytes on both fabrics, of the rank that sends most, that receives most */
    uint64_t bytes_reshuffle;    /* IN and OUT, between ranks */
    uint64_t rounds;             /* INDEPENDENT ones */
    uint64_t rounds_lower_bound; /* the most INDEPENDENT units that a rank sends, or receives, on a fabric */
    uint64_t rounds_dependent;
    uint64_t rounds_bound;      /* the same of INDEPENDENT and DEPENDENT units together */
    uint64_t rounds_reshuffle;  /* IN and OUT */
    uint64_t stages;            /* the number of the last stage + 1 */
    uint64_t slots_max;         /* the most transient KV slots of a rank */
    uint64_t state_bytes;       /* of running state that visits read and write, over all ranks */
    uint64_t memory_peak_bytes; /* of the largest rank, over the plan's passes; see fcp_rank_memory */
    /* the backward pass; 0 if the plan has none */
    uint64_t backward_bytes_total, backward_bytes_inter_node;
    uint64_t backward_bytes_moved; /* Q with what goes with it, and dQ */
    uint64_t backward_rounds, backward_rounds_dependent, backward_rounds_bound, backward_rounds_reshuffle;
    uint64_t backward_stages;
    uint64_t backward_slots_max; /* the most transient KV and DKV slots of a rank, added up */
    /* over both passes */
    uint64_t peers_max; /* the most other ranks that one rank exchanges anything with */
} fcp_summary;

/* On a rail-optimised network (where rank i of each node is on rail i): how many bytes a pass moves between nodes from
 * one rail to another. In a correct plan only the reshuffle moves such bytes. On other networks it is 0. Cost:
 * O(transfers). */
uint64_t fcp_bytes_off_rails(const fcp_plan *plan, fcp_pass pass);
#endif
