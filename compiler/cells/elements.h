/* elements.h: pairs that are looked at one by one: boxes of a mask without structure, in vector code, on all
 * processors.
 *
 * Boxes are queued while the cells of a piece pair are listed and counted together afterwards, so that there is enough
 * work at a time for several threads. Counts are sums of whole numbers: they do not depend on how many threads there
 * are.
 */
#ifndef FCPC_CELLS_ELEMENTS_H
#define FCPC_CELLS_ELEMENTS_H
#include "compiler/box/box.h"

typedef struct elements elements;

/* A queued box. */
typedef struct element_job {
    box b;              /* of at most FCP_CELL queries and keys */
    size_t node;        /* its code: the queue's nodes from here on */
    uint32_t node_count;
    uint32_t slot;      /* the caller's number for it */
    uint64_t pairs;     /* counted, over all heads of the box */
} element_job;

elements *elements_new(void); /* NULL: out of memory. Threads begin with the first long queue */
void elements_free(elements *e);
size_t elements_bytes(const elements *e);

/* Queues a box under a program that cannot fault there; a box of several heads, if the program is the same for all of
 * them. `numbers` has p->count words. False: out of memory. */
bool elements_add(elements *e, const box_program *p, uint32_t *numbers, const box *b, uint32_t slot);
/* The pairs of one box, at once. */
bool elements_now(elements *e, const box_program *p, uint32_t *numbers, const box *b, const mc_env *env,
                  uint64_t *out_pairs);
/* About how many nanoseconds of one processor `area` elements of such a box take. `on` has p->count bytes. */
uint64_t elements_cost(const box_program *p, uint8_t *on, uint64_t area);
/* The queue, in the order in which it was filled. */
element_job *elements_queue(elements *e, size_t *out_count);
void elements_clear(elements *e);
/* Counts all that is queued, in the arrays and bands of `env`. `stop` (may be NULL) is polled by the caller's thread
 * before each box: then FCP_E_INTERRUPTED. *done (may be NULL) grows by the positions of each box, atomically. Or
 * FCP_E_NO_MEMORY. */
fcp_code elements_count(elements *e, const mc_env *env, const volatile int *stop, uint64_t *done);
#endif
