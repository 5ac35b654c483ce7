/* elements.c: counts the pairs of queued boxes one by one, in vector code, on all processors.
 *
 * Requires: programs that cannot fault in their boxes (then both meanings of mask code agree).
 * Gives: exactly the allowed pairs of each box, whatever the number of threads.
 * Cost: O(nodes) for each pair, 8 at a time where the processor has vectors for it: about 1 ns a pair for ten nodes.
 * How: a program, specialised to its box, is written as mask code again, which codegen/mask/row.c evaluates row by row.
 *      Threads take boxes from the queue by an atomic counter. They wait between queues and end with the object.
 */
#include "compiler/cells/elements.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "runtime/base/both.h"
#include "runtime/base/grow.h"
#include "runtime/base/stop.h"
#include "runtime/base/threads.h"

enum { THREADS_MAX = 64, SHORT_QUEUE = 16 }; /* a shorter queue is counted by the caller alone */

typedef struct worker {
    pthread_t thread;
    elements *of;
    int64_t *scratch;
    size_t room;
} worker;

struct elements {
    element_job *jobs;
    mc_node *nodes;
    size_t job_count, job_room, node_count, node_room;

    worker workers[THREADS_MAX]; /* the first is the caller */
    unsigned started;            /* workers [1, started) run */
    bool asked;                  /* whether more can start was found out */

    /* the queue under way */
    const mc_env *env;
    const volatile int *stop;
    uint64_t *done;
    atomic_size_t next;
    atomic_bool interrupted, no_memory;

    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    uint64_t queue; /* number of the queue under way */
    unsigned busy;  /* workers that are not done with it */
    bool leave;
};

elements *elements_new(void) {
    elements *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    bool lock = pthread_mutex_init(&e->lock, NULL) == 0, begin = pthread_cond_init(&e->begin, NULL) == 0;
    bool end = pthread_cond_init(&e->end, NULL) == 0;
    if (lock && begin && end) {
        e->started = 1;
        for (int i = 0; i < THREADS_MAX; i++) e->workers[i].of = e;
        return e;
    }
    if (lock) pthread_mutex_destroy(&e->lock);
    if (begin) pthread_cond_destroy(&e->begin);
    if (end) pthread_cond_destroy(&e->end);
    free(e);
    return NULL;
}

void elements_free(elements *e) {
    if (!e) return;
    pthread_mutex_lock(&e->lock);
    e->leave = true;
    pthread_cond_broadcast(&e->begin);
    pthread_mutex_unlock(&e->lock);
    for (unsigned i = 1; i < e->started; i++) pthread_join(e->workers[i].thread, NULL);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->begin);
    pthread_cond_destroy(&e->end);
    for (int i = 0; i < THREADS_MAX; i++)
        if (e->workers[i].scratch) free(e->workers[i].scratch); /* most have none, and need no call */
    free(e->jobs);
    free(e->nodes);
    free(e);
}

size_t elements_bytes(const elements *e) {
    size_t bytes = sizeof *e + e->job_room * sizeof *e->jobs + e->node_room * sizeof *e->nodes;
    for (int i = 0; i < THREADS_MAX; i++) bytes += e->workers[i].room * sizeof *e->workers[i].scratch;
    return bytes;
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

element_job *elements_queue(elements *e, size_t *out_count) {
    *out_count = e->job_count;
    return e->jobs;
}

void elements_clear(elements *e) { e->job_count = e->node_count = 0; }

/* Appends a program's code to the nodes. */
static bool add_code(elements *e, const box_program *p, uint32_t *numbers, element_job *out) {
    if (!FCP_GROW(e->nodes, e->node_room, e->node_count + box_code_room(p->count))) return false;
    out->node = e->node_count;
    out->node_count = box_code(p, numbers, e->nodes + e->node_count);
    e->node_count += out->node_count;
    return true;
}

bool elements_add(elements *e, const box_program *p, uint32_t *numbers, const box *b, uint32_t slot) {
    if (!FCP_GROW(e->jobs, e->job_room, e->job_count + 1)) return false;
    element_job *job = &e->jobs[e->job_count];
    *job = (element_job){.b = *b, .slot = slot};
    if (!add_code(e, p, numbers, job)) return false;
    e->job_count++;
    return true;
}

uint64_t elements_cost(const box_program *p, uint8_t *on, uint64_t area) {
    enum { EIGHTHS = 8, BASE = 2, PLAIN = 2, DEAR = 6 };
    uint64_t each = BASE;
    for (uint32_t i = 0; i < p->count; i++) {
        const box_node *x = &p->nodes[i];
        on[i] = box_depends(x, on);
        const bool by_pair = (on[i] & ON_Q) && (on[i] & ON_K); /* else it is evaluated once for a row or a column */
        if (!by_pair || x->op == BOX_LINEAR) continue;
        const bool dear = x->op == MC_DIV || x->op == MC_MOD || mc_loads_int(x->op);
        each += dear || x->op == MC_BANDS ? DEAR : PLAIN;
    }
    return area / EIGHTHS * each;
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

static bool count_job(const elements *e, worker *w, const mc_env *env, element_job *job) {
    const mc_code code = {e->nodes + job->node, job->node_count};
    const size_t room = mc_row_scratch(code);
    if (room > w->room) {
        free(w->scratch);
        w->scratch = malloc(room * sizeof *w->scratch);
        w->room = w->scratch ? room : 0;
        if (!w->scratch) return false;
    }
    const box *b = &job->b;
    const uint64_t heads = (uint64_t)(b->hi[BOX_H] - b->lo[BOX_H]);
    const mc_tile tile = {.q = b->lo[BOX_Q], .k = b->lo[BOX_K], .h = b->lo[BOX_H],
                          .rows = (uint32_t)(b->hi[BOX_Q] - b->lo[BOX_Q]),
                          .keys = (uint32_t)(b->hi[BOX_K] - b->lo[BOX_K])};
    job->pairs = heads * mc_count_tile(code, env, &tile, w->scratch);
    return true;
}

bool elements_now(elements *e, const box_program *p, uint32_t *numbers, const box *b, const mc_env *env,
                  uint64_t *out_pairs) {
    const size_t before = e->node_count;
    element_job job = {.b = *b};
    bool good = add_code(e, p, numbers, &job) && count_job(e, &e->workers[0], env, &job);
    e->node_count = before;
    *out_pairs = job.pairs;
    return good;
}

static uint64_t box_area(const box *b) { /* of at most a cell, all heads */
    return (uint64_t)(b->hi[BOX_Q] - b->lo[BOX_Q]) * (uint64_t)(b->hi[BOX_K] - b->lo[BOX_K]) *
           (uint64_t)(b->hi[BOX_H] - b->lo[BOX_H]);
}

/* Counts boxes until none are left, or until an interruption or lack of memory ends the count. */
static void take_jobs(elements *e, worker *w) {
    for (;;) {
        if (w == &e->workers[0] && fcp_stop_asked(e->stop)) atomic_store(&e->interrupted, true);
        if (atomic_load(&e->interrupted) || atomic_load(&e->no_memory)) return;
        const size_t i = atomic_fetch_add(&e->next, 1);
        if (i >= e->job_count) return;
        if (!count_job(e, w, e->env, &e->jobs[i])) atomic_store(&e->no_memory, true);
        else if (e->done) __atomic_fetch_add(e->done, box_area(&e->jobs[i].b), __ATOMIC_RELAXED);
    }
}

static void *run_worker(void *worker_) {
    worker *w = worker_;
    elements *e = w->of;
    uint64_t seen = 0;
    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (e->queue == seen && !e->leave) pthread_cond_wait(&e->begin, &e->lock);
        if (e->leave) break;
        seen = e->queue;
        pthread_mutex_unlock(&e->lock);
        take_jobs(e, w);
        pthread_mutex_lock(&e->lock);
        if (--e->busy == 0) pthread_cond_signal(&e->end);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* Starts a thread for each further processor. If one cannot be started, the work is done by fewer. */
static void start_threads(elements *e) {
    if (e->asked) return;
    e->asked = true;
    const unsigned want = fcp_both_at_once() ? fcp_processors(THREADS_MAX) : 1;
    for (worker *w = &e->workers[e->started]; e->started < want && fcp_thread_start(&w->thread, 0, run_worker, w); w++)
        e->started++;
}

fcp_code elements_count(elements *e, const mc_env *env, const volatile int *stop, uint64_t *done) {
    e->env = env;
    e->stop = stop;
    e->done = done;
    atomic_store(&e->next, 0);
    atomic_store(&e->interrupted, false);
    atomic_store(&e->no_memory, false);
    const bool alone = e->job_count < SHORT_QUEUE;
    if (!alone) {
        start_threads(e);
        pthread_mutex_lock(&e->lock);
        e->queue++;
        e->busy = e->started - 1;
        pthread_cond_broadcast(&e->begin);
        pthread_mutex_unlock(&e->lock);
    }
    take_jobs(e, &e->workers[0]);
    if (!alone) {
        pthread_mutex_lock(&e->lock);
        while (e->busy) pthread_cond_wait(&e->end, &e->lock);
        pthread_mutex_unlock(&e->lock);
    }
    if (atomic_load(&e->no_memory)) return FCP_E_NO_MEMORY;
    return atomic_load(&e->interrupted) ? FCP_E_INTERRUPTED : FCP_OK;
}
