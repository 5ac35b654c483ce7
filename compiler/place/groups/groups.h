/* groups.h: the parts of the groups strategy: which sequences share ranks, and how many ranks each group gets.
 *
 * Example: sequences of 90K, 20K and 10K tokens on four ranks, at most 64K on each. The first needs two ranks, and
 * these have room for the other two sequences. If those form a group of their own on the other two ranks, both groups
 * work side by side. The predicted times of the groups decide how the ranks are divided.
 *
 * Times are in picoseconds, lengths in tokens.
 */
#ifndef FCPC_PLACE_GROUPS_GROUPS_H
#define FCPC_PLACE_GROUPS_GROUPS_H
#include "compiler/place/place.h"

/* A group: sequences that are cut over the same ranks. */
typedef struct groups_group {
    uint64_t tokens;        /* of its sequences: of the longer side of each */
    uint64_t queries, keys;
    uint64_t full, partial, cells; /* cells of 128 x 128 pairs that the mask leaves whole, or in part; and all */
    uint32_t least, degree; /* how many ranks it needs; how many it gets */
} groups_group;

/* What a pass costs. cell: the picoseconds of a FULL cell in all query heads. launch: the least picoseconds of a step
 * of the ring. bytes: what travels for one key. linear: the picoseconds that linear layers take for a query; 0: they are
 * left out. */
typedef struct groups_pass {
    uint64_t cell, launch, bytes, linear;
} groups_pass;
typedef struct groups_model {
    groups_pass pass[FCP_PASSES]; /* zeros: the plan does not have it */
    uint64_t latency[FCP_FABRICS], rate[FCP_FABRICS]; /* picoseconds; bytes per second */
    uint32_t gpus;                /* a group of more ranks goes over net */
    bool ring;                    /* one chunk a rank, and not two in zigzag */
} groups_model;

/* pack_sequences.c. Packs sequences into groups by best fit decreasing: every sequence joins the fullest group that has
 * room for it, or begins a new one. size: the tokens of each sequence. A group of `least` ranks holds least * tokens.
 * Fills out_group (per sequence), and tokens and least of the groups; *out_count: the number of groups. FCP_E_VALUE: a
 * sequence needs more than `most` ranks; *out_count is then the number of that sequence. */
fcp_code groups_pack(const uint64_t *size, uint32_t count, uint32_t tokens, uint32_t most, arena *scratch,
                     uint32_t *out_group, groups_group *out, uint32_t *out_count);

/* degrees.c. The time of a group on `degree` ranks: its kernels, and the transfers of its ring that these do not
 * hide. */
uint64_t groups_time(const groups_model *m, const groups_group *g, uint32_t degree);
/* Chooses degrees that add up to at most `ranks` and minimize the makespan, the largest time of a group. Ranks that are
 * left over go, one by one, to the group with the largest time that one more rank makes faster. Requires: the `least`
 * of all groups add up to at most `ranks`. Cost: O(ranks + groups) times, and sorting them. */
fcp_code groups_choose(const groups_model *m, groups_group *groups, uint32_t count, uint32_t ranks, arena *scratch);

/* How the groups strategy has divided a batch: x->grouping. Cutting blocks fills it, and placing reads it. */
typedef struct grouping {
    groups_group *groups;
    uint32_t count;
    uint32_t *of;           /* per sequence: its group */
    uint32_t *first;        /* per group, + 1: where its ranks begin in ranks */
    uint32_t *ranks;        /* in the order of their chunks */
    uint32_t *home, *rank;  /* per block: where it lives, and who computes its rows */
} grouping;

/* groups_cut.c. Makes the model of costs for a program, of the profile that its parser was given, or else of its GPU's.
 * FCP_E_PROFILE: there is no profile of its GPU. */
fcp_code groups_model_of(const struct fcpc_program *g, groups_model *out, fcp_error *err);
/* Adds the cells, queries and keys of each sequence to its group: of[s]. Requires: a problem; it may have no blocks. */
fcp_code groups_count(planning *x, const uint32_t *of, groups_group *groups);

/* The strategy's functions: place.h. */
fcp_code groups_cut(planning *x);
fcp_code place_by_groups(planning *x, const place_input *in, uint32_t *home);
fcp_code exec_by_groups(planning *x, const uint32_t *home, uint32_t *exec);
#endif
