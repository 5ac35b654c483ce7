/* array.h: what is known of the arrays that a mask reads, so that boxes are decided without reading every element. */
#ifndef FCPC_BOX_ARRAY_H
#define FCPC_BOX_ARRAY_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"

/* A run is a stretch of elements in arithmetic progression: v, v + s, v + 2 s, and so on. An array of document numbers
 * has a run with s = 0 for each document; an array of positions is a single run with s = 1. Elements are numbered from
 * the array's first one, row by row if it has columns. */
typedef struct array_run {
    uint64_t start;
    int64_t v, s;
} array_run;

typedef struct array_facts {
    int64_t lo, hi;
    uint64_t set; /* bit x mod 64 for every value x */
} array_facts;

typedef struct rank_range {
    uint32_t lo, hi;
} rank_range;

typedef struct box_array {
    mc_array array;
    uint64_t total;
    uint64_t from, to;  /* facts are known of elements [from, to), the part that the mask can read */
    uint64_t content;   /* a number for what the array holds: equal numbers mean equal elements */
    bool used;          /* it is read at other indices than constant ones, which box_program_make reads */
    bool again;         /* another sequence may have the same contents, as all have those of a table */
    bool compared;      /* by == or !=, for which ranks are needed */
    array_facts *tree;  /* a tree over blocks of elements: node i joins 2 i and 2 i + 1; the leaves begin at `blocks` */
    rank_range *ranks;  /* a tree of ranks, or NULL */
    uint32_t blocks, tree_room, run_of_room, rank_room;
    array_run *runs;    /* in order */
    uint32_t *run_of;   /* the run that holds a block's first element */
    uint32_t *run_rank; /* the rank of each run's value: values are numbered in the order of their first elements */
    uint32_t run_count, run_room; /* count 0: there are more than are worth keeping */
    uint32_t rank_of_room;
} box_array;

typedef struct value_range {
    int64_t lo, hi;
} value_range;

struct kept_array;
typedef struct box_arrays {
    mc_code mask;
    value_range *ranges; /* scratch, per node of the mask */
    box_array *at; /* by number */
    uint32_t count;
    uint64_t contents; /* how many numbers were given */
    struct kept_array *kept;
    uint32_t kept_count;
    uint32_t constants; /* loads of the mask at constant indices */
} box_arrays;

/* Prepares for the arrays that the mask reads, which is borrowed; false when out of memory. */
bool box_arrays_new(box_arrays *a, mc_code mask);
void box_arrays_free(box_arrays *a);
/* Reads the arrays of a sequence and prepares the facts about them, in O(elements). `stop` is polled. Errors:
 * FCP_E_NO_MEMORY, and FCP_E_INTERRUPTED, after which it has to be called again before anything is asked. */
fcp_code box_arrays_bind(box_arrays *a, const mc_env *env, const volatile int *stop);
size_t box_arrays_bytes(const box_arrays *a);

/* Is it a load at constant indices? */
static inline bool box_loads_constant(mc_code mask, const mc_node *x) {
    return mc_loads_int(x->op) && mask.nodes[x->a].op == MC_CONST_I &&
           (x->b == MC_NONE || mask.nodes[x->b].op == MC_CONST_I) &&
           (x->c == MC_NONE || mask.nodes[x->c].op == MC_CONST_I);
}

/* The exact facts about elements [from, to), from < to <= total. If some of them are beyond the mask's reach, nothing
 * is known of them: then the range is that of all integers. */
array_facts box_array_facts(const box_array *a, uint64_t from, uint64_t to);
/* Copies elements [from, from + count). */
void box_array_copy(const box_array *a, uint64_t from, uint32_t count, int64_t *out);
/* The run that an element is in, and where it ends; NULL if the runs of this array are not kept. */
const array_run *box_array_run(const box_array *a, uint64_t at, uint64_t *out_end);
/* The least and greatest rank of elements [from, to); false if this array has no ranks. */
bool box_array_ranks(const box_array *a, uint64_t from, uint64_t to, rank_range *out);

/* reach.c: the least and the greatest value of each node; `out` has mask.count records. */
void box_ranges_of_nodes(mc_code mask, const mc_env *env, value_range *out);
/* The part [*out_from, *out_to) of array `number` that the mask can read. */
void box_array_reach(mc_code mask, const value_range *ranges, const mc_array *array, uint32_t number,
                     uint64_t *out_from, uint64_t *out_to);

static inline int64_t run_at(const array_run *r, uint64_t at) {
    return (int64_t)((uint64_t)r->v + (uint64_t)r->s * (at - r->start));
}
#endif
