/* elements.h: evaluates masks pair by pair, in vector code and on all processors, where a mask has no structure that
 * would decide many pairs at a time.
 *
 * While the cells of a piece pair are listed, boxes that need this are only queued. They are counted together
 * afterwards, so that there is enough work for several threads. Counts are sums of integers, so they do not depend on
 * the number of threads.
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

/* Queues a box, under a program that cannot fault there. If the box has several heads, the program must not depend on
 * h. `numbers` has p->count words. False: out of memory. */
bool elements_add(elements *e, const box_program *p, uint32_t *numbers, const box *b, uint32_t slot);
/* Counts the allowed pairs of one box now, without queueing it. False: out of memory. */
bool elements_now(elements *e, const box_program *p, uint32_t *numbers, const box *b, const mc_env *env,
                  uint64_t *out_pairs);
/* About how many nanoseconds of one processor `area` elements of such a box take. `on` has p->count bytes. */
uint64_t elements_cost(const box_program *p, uint8_t *on, uint64_t area);
/* Returns the queued boxes, in the order in which they were queued. */
element_job *elements_queue(elements *e, size_t *out_count);
void elements_clear(elements *e);
/* Counts all queued boxes, with the arrays and bands of `env`. *done (may be NULL) is raised atomically by the number
 * of elements of each box. Errors: FCP_E_INTERRUPTED if `stop` (may be NULL), which the caller's thread polls before
 * each box, is set; FCP_E_NO_MEMORY. */
fcp_code elements_count(elements *e, const mc_env *env, const volatile int *stop, uint64_t *done);
#endif
