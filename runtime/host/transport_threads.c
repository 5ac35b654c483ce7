/* transport_threads.c: the transport between ranks of one process that compute in host memory.
 *
 * A send copies its segments into a message, and puts it into the receiver's inbox. The receiver takes the message out,
 * copies it to its own segments, and tells the sender. So no rank reads another rank's memory, and the thread sanitizer
 * can check that.
 *
 * Cost: two copies of the data, and memory for messages on their way. An inbox holds at most one message for each peer
 *       and fabric, so searching it is short. Each rank has one lock, and no thread ever holds two.
 */
#include "runtime/host/executor.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"

struct message {
    struct message *next;
    uint32_t pass, round, from;
    uint32_t wire; /* its index in the sender's group */
    uint8_t fabric;
    size_t bytes;
    char data[];
};

struct endpoint {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct message *inbox, **inbox_end;
    bool aborted;
    /* the group under way */
    const fcp_wire *wires;
    uint32_t count, left, pass, round; /* left: wires that are not complete */
    uint8_t *done; /* per wire: it is complete */
    uint32_t done_capacity;
};

struct threads_net {
    fcp_net base;
    struct endpoint ends[];
};

static void drop_messages(struct endpoint *e) {
    for (struct message *m = e->inbox, *next; m; m = next) {
        next = m->next;
        free(m);
    }
    e->inbox = NULL;
    e->inbox_end = &e->inbox;
}

static void close_ends(struct threads_net *net, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct endpoint *e = &net->ends[i];
        drop_messages(e);
        free(e->done);
        pthread_cond_destroy(&e->changed);
        pthread_mutex_destroy(&e->lock);
    }
    free(net);
}

static void threads_close(fcp_net *base) { close_ends((struct threads_net *)base, base->ranks); }

static fcp_code threads_open(uint32_t ranks, uint32_t gpus, const fcp_start *start, fcp_net **out_net, fcp_error *err) {
    (void)gpus, (void)start; /* all ranks are here, however many a node has */
    struct threads_net *net = calloc(1, sizeof *net + ranks * sizeof *net->ends);
    if (!net) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the inboxes of %u ranks", ranks);
    net->base = (fcp_net){.transport = &fcp_transport_threads, .ranks = ranks, .rank_count = ranks};
    for (uint32_t i = 0; i < ranks; i++) {
        struct endpoint *e = &net->ends[i];
        e->inbox_end = &e->inbox;
        bool locked = pthread_mutex_init(&e->lock, NULL) == 0;
        if (locked && fcp_condition_init(&e->changed)) continue;
        if (locked) pthread_mutex_destroy(&e->lock);
        close_ends(net, i);
        return fcp_fail(err, FCP_E_NO_MEMORY, "no lock for the inbox of rank %u", i);
    }
    *out_net = &net->base;
    return FCP_OK;
}

static void threads_reset(fcp_net *base) {
    struct threads_net *net = (struct threads_net *)base;
    for (uint32_t i = 0; i < base->ranks; i++) {
        struct endpoint *e = &net->ends[i];
        pthread_mutex_lock(&e->lock);
        drop_messages(e);
        e->aborted = false;
        e->count = e->left = 0;
        pthread_mutex_unlock(&e->lock);
    }
}

static struct message *pack(const fcp_wire *w) {
    size_t bytes = fcp_wire_bytes(w);
    struct message *m = malloc(sizeof *m + bytes);
    if (!m) return NULL;
    m->bytes = bytes;
    fcp_wire_pack(w, m->data);
    return m;
}

static fcp_code threads_launch(fcp_net *base, uint32_t rank, fcp_pass pass, uint32_t round, const fcp_wire *wires,
                               uint32_t count, fcp_error *err) {
    struct threads_net *net = (struct threads_net *)base;
    struct endpoint *own = &net->ends[rank];
    struct message *first = NULL, **last = &first;
    bool ok = true;
    if (count > own->done_capacity) {
        uint8_t *bigger = realloc(own->done, count);
        ok = bigger != NULL;
        if (ok) own->done = bigger, own->done_capacity = count;
    }
    for (uint32_t i = 0; ok && i < count; i++) {
        if (wires[i].dir != FCP_SEND) continue;
        struct message *m = pack(&wires[i]);
        ok = m != NULL;
        if (!ok) break;
        m->next = NULL;
        m->pass = pass, m->round = round, m->from = rank, m->wire = i, m->fabric = wires[i].fabric;
        *last = m;
        last = &m->next;
    }
    if (!ok) {
        for (struct message *m = first, *next; m; m = next) {
            next = m->next;
            free(m);
        }
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the messages of round %u", round);
    }
    pthread_mutex_lock(&own->lock);
    own->wires = wires;
    own->count = own->left = count;
    own->pass = pass;
    own->round = round;
    if (count) memset(own->done, 0, count);
    pthread_mutex_unlock(&own->lock);
    for (struct message *m = first, *next; m; m = next) {
        struct endpoint *peer = &net->ends[wires[m->wire].peer];
        next = m->next;
        m->next = NULL;
        pthread_mutex_lock(&peer->lock);
        *peer->inbox_end = m;
        peer->inbox_end = &m->next;
        pthread_cond_broadcast(&peer->changed);
        pthread_mutex_unlock(&peer->lock);
    }
    return FCP_OK;
}

/* Takes a message out of the inbox for which a receive of the group waits: *out_wire. NULL: there is none. The lock
 * is held. */
static struct message *take_message(struct endpoint *e, uint32_t *out_wire) {
    for (struct message **at = &e->inbox; *at; at = &(*at)->next) {
        struct message *m = *at;
        if (m->pass != e->pass || m->round != e->round) continue;
        for (uint32_t i = 0; i < e->count; i++) {
            const fcp_wire *w = &e->wires[i];
            if (e->done[i] || w->dir != FCP_RECV || w->peer != m->from || w->fabric != m->fabric) continue;
            *at = m->next;
            if (!*at) e->inbox_end = at;
            *out_wire = i;
            return m;
        }
    }
    return NULL;
}

/* A wire is complete. The lock is held. */
static void finish(struct endpoint *e, uint32_t wire) {
    e->done[wire] = 1;
    if (e->wires[wire].ended) *e->wires[wire].ended = fcp_clock_ns();
    if (--e->left == 0) pthread_cond_broadcast(&e->changed);
}

static fcp_wait threads_wait(fcp_net *base, uint32_t rank, uint32_t milliseconds, uint32_t *out_wire, fcp_error *err) {
    struct threads_net *net = (struct threads_net *)base;
    struct endpoint *own = &net->ends[rank];
    struct timespec until = fcp_deadline(milliseconds);
    bool late = false;
    pthread_mutex_lock(&own->lock);
    for (;;) {
        uint32_t wire = 0;
        if (own->aborted) {
            pthread_mutex_unlock(&own->lock);
            return FCP_WAIT_ABORTED;
        }
        if (own->left == 0) {
            pthread_mutex_unlock(&own->lock);
            return FCP_WAIT_DONE;
        }
        struct message *m = take_message(own, &wire);
        if (!m) {
            if (late) break;
            late = pthread_cond_timedwait(&own->changed, &own->lock, &until) != 0;
            continue;
        }
        pthread_mutex_unlock(&own->lock);
        size_t expected = fcp_wire_bytes(&own->wires[wire]);
        if (m->bytes != expected) {
            fcp_fail(err, FCP_E_RUN, "a message of %zu bytes from rank %u where %zu were expected", m->bytes, m->from,
                     expected);
            *out_wire = wire;
            free(m);
            return FCP_WAIT_FAILED;
        }
        fcp_wire_unpack(&own->wires[wire], m->data);
        struct endpoint *sender = &net->ends[m->from];
        pthread_mutex_lock(&sender->lock);
        finish(sender, m->wire);
        pthread_mutex_unlock(&sender->lock);
        free(m);
        pthread_mutex_lock(&own->lock);
        finish(own, wire);
    }
    uint32_t wire = 0;
    while (wire + 1 < own->count && own->done[wire]) wire++;
    for (uint32_t i = 0; i < own->count; i++) /* name a receive rather than a send */
        if (!own->done[i] && own->wires[i].dir == FCP_RECV) wire = i;
    pthread_mutex_unlock(&own->lock);
    *out_wire = wire;
    return FCP_WAIT_PENDING;
}

static void threads_abort(fcp_net *base) {
    struct threads_net *net = (struct threads_net *)base;
    for (uint32_t i = 0; i < base->ranks; i++) {
        struct endpoint *e = &net->ends[i];
        pthread_mutex_lock(&e->lock);
        e->aborted = true;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
    }
}

const fcp_transport fcp_transport_threads = {
    .name = "threads",
    .open = threads_open,
    .close = threads_close,
    .reset = threads_reset,
    .launch = threads_launch,
    .wait = threads_wait,
    .abort = threads_abort,
};
