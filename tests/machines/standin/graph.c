/* graph.c: the graph of work of the stand-in driver (standin.h). It knows which node comes before which, reports nodes
 * that touch the same bytes without being ordered, and runs nodes.
 *
 * Cost: memory of one bit for each pair of nodes; each node is compared with every node that is not ordered with it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "tests/machines/standin/parts.h"

static uint64_t *seen; /* a bit for each node of the live store: has the host seen that it is done? */
static uint32_t seen_words;

static bool bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> i % 64 & 1; }

bool store_before(const store *s, uint32_t a, uint32_t b) {
    return a == b || (a < b && bit(s->nodes[b - 1].before, a - 1));
}

/* The index of the first range of r, from `i` on, that ends after `at`. */
static uint32_t pass(const ranges *r, uint32_t i, uint64_t at) {
    uint32_t step = 1, end;
    while (i + step < r->count && r->all[i + step].end <= at) i += step, step *= 2;
    for (end = r->count - i < step ? r->count : i + step; i < end;) {
        uint32_t middle = i + (end - i) / 2;
        if (r->all[middle].end <= at) i = middle + 1;
        else end = middle;
    }
    return i;
}

/* Do two lists of ranges meet? Both are sorted and disjoint. */
static bool meet(const ranges *a, const ranges *b, uint64_t *where) {
    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        if (a->all[i].begin < b->all[j].end && b->all[j].begin < a->all[i].end) {
            *where = a->all[i].begin > b->all[j].begin ? a->all[i].begin : b->all[j].begin;
            return true;
        }
        if (a->all[i].end <= b->all[j].begin) i = pass(a, i, b->all[j].begin);
        else j = pass(b, j, a->all[i].begin);
    }
    return false;
}

static int by_begin(const void *a, const void *b) {
    const range *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}
static void tidy(ranges *r) {
    uint32_t kept = 0;
    if (!r->count) return;
    qsort(r->all, r->count, sizeof *r->all, by_begin);
    for (uint32_t i = 1; i < r->count; i++)
        if (r->all[i].begin <= r->all[kept].end) {
            if (r->all[i].end > r->all[kept].end) r->all[kept].end = r->all[i].end;
        } else r->all[++kept] = r->all[i];
    r->count = kept + 1;
}

const char *node_name(const node *n) {
    switch (n->op) {
    case KERNEL: return n->function->name;
    case COPY: return "a copy";
    case FILL: return n->marks ? "a mark" : "a fill";
    case OUTSIDE: return n->work->name;
    default: return "nothing";
    }
}

static void watch(const store *s, uint32_t index) {
    const node *n = &s->nodes[index];
    for (uint32_t i = 0; i < index; i++) {
        const node *o = &s->nodes[i];
        uint64_t where;
        if (n->op == OUTSIDE && o->op == OUTSIDE && n->work->owner == o->work->owner && !bit(n->before, i))
            trouble("%s and another one of one communicator are not ordered", node_name(n));
        if ((!o->reads.count && !o->writes.count) || bit(n->before, i)) continue;
        if (meet(&n->writes, &o->writes, &where) || meet(&n->writes, &o->reads, &where) ||
            meet(&n->reads, &o->writes, &where)) {
            const allocation *a = allocation_of(where);
            trouble("%s and %s are not ordered, and touch the same byte: %llu of an allocation on device %d",
                    node_name(n), node_name(o), (unsigned long long)(a ? where - a->begin : where),
                    a && !a->host ? a->context->device : -1);
        }
    }
}

/* The last fill of a flag with 1, as index; the count of nodes if there is none, because it has ended and been
 * forgotten. Before it the flag must have been cleared, and the kernel of node `index` must be behind that. */
static uint32_t raiser_of(const store *s, uint32_t index, uint64_t flag) {
    uint32_t raiser = s->count, cleared = s->count, value;
    memcpy(&value, (const void *)(uintptr_t)flag, 4);
    for (uint32_t i = 0; i < index; i++) {
        const node *o = &s->nodes[i];
        if (o->op == FILL && flag >= o->to && flag < o->to + o->bytes) *(o->word ? &raiser : &cleared) = i;
    }
    if (raiser == s->count && value != 1) trouble("%s waits for a flag that nobody sets", node_name(&s->nodes[index]));
    if (raiser == s->count || (cleared == s->count && !value)) return raiser;
    if (cleared == s->count || !store_before(s, cleared + 1, raiser + 1) || !bit(s->nodes[index].before, cleared))
        trouble("a flag is not cleared between two launches that wait for it");
    return raiser;
}

/* Looks at what a kernel reads behind flags: who writes it must be before whoever sets the flag. */
static void watch_awaited(const store *s, uint32_t index) {
    node *n = &s->nodes[index];
    for (uint32_t a = 0; a < n->awaited_count; a++) {
        const uint64_t flag = n->awaited[a].flag;
        const uint64_t other = n->awaited[a].other;
        const uint32_t raiser = raiser_of(s, index, flag), second = other ? raiser_of(s, index, other) : raiser;
        ranges *reads = &n->awaited[a].reads;
        uint64_t where;
        tidy(reads);
        for (uint32_t i = 0; i < index && raiser < s->count && second < s->count; i++)
            if (!bit(n->before, i) && !store_before(s, i + 1, raiser + 1) && !store_before(s, i + 1, second + 1) &&
                meet(reads, &s->nodes[i].writes, &where))
                trouble("%s reads behind a flag what %s writes, and nothing orders that before the flag is set",
                        node_name(n), node_name(&s->nodes[i]));
        /* from now on they are reads like others: who writes there later must be behind the kernel */
        for (uint32_t i = 0; i < reads->count; i++)
            range_add(&n->reads, reads->all[i].begin, reads->all[i].end - reads->all[i].begin);
        range_add(&n->reads, flag, 4);
        range_add(&n->reads, other, other ? 4 : 0);
    }
    if (n->awaited_count) tidy(&n->reads);
}

/* A node of the live store waits for those of its dependencies that are not done. */
static void wait_for_deps(store *s, uint32_t index) {
    node *n = &s->nodes[index];
    for (uint32_t i = 0; i < n->dep_count; i++) {
        node *o = &s->nodes[n->deps[i] - 1];
        if (o->done) continue;
        if (!(o->after_count & (o->after_count - 1))) /* a power of two, or none: there is no room */
            o->after = realloc(o->after, (o->after_count ? 2 * o->after_count : 1) * sizeof *o->after);
        o->after[o->after_count++] = index;
        n->unmet++;
    }
    if (!n->unmet) s->open[s->open_count++] = index;
}

/* The open node at place `at` of the list is done: nodes that waited for nothing else are open now. */
static void close_node(store *s, uint32_t at) {
    const node *n = &s->nodes[s->open[at]];
    s->open[at] = s->open[--s->open_count];
    for (uint32_t i = 0; i < n->after_count; i++)
        if (--s->nodes[n->after[i]].unmet == 0) s->open[s->open_count++] = n->after[i];
    s->done++;
}

uint32_t store_add(store *s, const node *made, const uint32_t *deps, uint32_t dep_count, bool live) {
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->nodes = realloc(s->nodes, s->capacity * sizeof *s->nodes);
        s->open = realloc(s->open, s->capacity * sizeof *s->open);
    }
    uint32_t index = s->count++, words = index / 64 + 1;
    node *n = &s->nodes[index];
    *n = *made;
    n->deps = calloc(dep_count + 1, sizeof *n->deps);
    n->before = calloc(words, sizeof *n->before);
    n->reads = n->writes = (ranges){0};
    n->awaited = NULL;
    n->awaited_count = 0;
    n->dep_count = n->unmet = n->after_count = 0;
    n->after = NULL;
    n->done = false;
    n->state = NULL;
    n->stuck = 0;
    s->graph = !live;
    if (n->op == OUTSIDE) n->work->hold(n->work, s->graph);
    if (n->event && s->graph) n->event->graphs++;
    if (n->waits_for && s->graph) n->waits_for->graphs++;
    const allocation *marks = allocation_of(n->mark);
    long word = marks ? (long)(n->mark - marks->begin) / 4 : -1;
    n->hangs = live && ++control.nodes == control.hang_at;
    n->hangs |= live && control.hang_value && n->marks && n->op == KERNEL && n->mark_value == control.hang_value &&
                word == control.hang_word;
    if (n->hangs) {
        snprintf(control.hung, sizeof control.hung, "%s", node_name(n));
        control.hung_device = n->device;
        control.hung_mark = word;
        control.hung_value = n->mark_value;
    }
    for (uint32_t i = 0; i < dep_count; i++) {
        if (!deps[i]) continue;
        n->deps[n->dep_count++] = deps[i];
        const uint64_t *theirs = s->nodes[deps[i] - 1].before;
        for (uint32_t w = 0; w < (deps[i] - 1) / 64 + 1; w++) n->before[w] |= theirs[w];
        n->before[(deps[i] - 1) / 64] |= UINT64_C(1) << (deps[i] - 1) % 64;
    }
    if (!live) return index + 1;
    wait_for_deps(s, index);
    for (uint32_t w = 0; w < words && w < seen_words; w++) n->before[w] |= seen[w];
    if (control.unwatched) return index + 1;
    if (n->op == KERNEL) kernel_ranges(n);
    if (n->op == COPY) range_add(&n->reads, n->from, n->bytes);
    if (n->op == COPY || n->op == FILL) range_add(&n->writes, n->to, n->bytes);
    for (uint32_t i = 0; n->op == OUTSIDE && i < n->work->range_count; i++) {
        const standin_range *r = &n->work->ranges[i];
        range_add(r->write ? &n->writes : &n->reads, r->begin, r->bytes);
    }
    tidy(&n->reads);
    tidy(&n->writes);
    watch(s, index);
    watch_awaited(s, index);
    return index + 1;
}

void store_clear(store *s) {
    for (uint32_t i = 0; i < s->count; i++) {
        node *n = &s->nodes[i];
        if (n->op == OUTSIDE) n->work->drop(n->work, s->graph, n->state);
        if (n->event && s->graph) n->event->graphs--;
        if (n->waits_for && s->graph) n->waits_for->graphs--;
        free(s->nodes[i].deps);
        free(s->nodes[i].after);
        free(s->nodes[i].before);
        free(s->nodes[i].reads.all);
        free(s->nodes[i].writes.all);
        for (uint32_t j = 0; j < n->awaited_count; j++) free(n->awaited[j].reads.all);
        free(n->awaited);
    }
    free(s->nodes);
    free(s->open);
    *s = (store){.id = s->id};
}

void host_saw(store *s, uint32_t last) {
    uint32_t words = s->count / 64 + 1;
    if (words > seen_words) {
        seen = realloc(seen, words * sizeof *seen);
        memset(seen + seen_words, 0, (words - seen_words) * sizeof *seen);
        seen_words = words;
    }
    if (last) {
        for (uint32_t w = 0; w < (last - 1) / 64 + 1; w++) seen[w] |= s->nodes[last - 1].before[w];
        seen[(last - 1) / 64] |= UINT64_C(1) << (last - 1) % 64;
    }
    for (uint32_t i = 0; i < s->count; i++)
        if (!bit(seen, i)) return;
    store_clear(s); /* no node is left with which another would have to be ordered */
    free(seen);
    seen = NULL;
    seen_words = 0;
    s->id++;
}

/* What runs beside a kernel that waits. */
struct beside {
    store *s;
    uint32_t waits; /* the index of that kernel */
    fcp_patience left;
};
static bool run_beside(void *context);

/* Runs a node. False: it waits for another process. */
static bool do_node(store *s, node *n) {
    struct beside beside = {s, (uint32_t)(n - s->nodes),
                            fcp_patience_of(control.patience_s ? control.patience_s : 200, 0.1)};
    if (n->op == OUTSIDE) {
        standin_step step = n->work->go(n->work, &n->state);
        n->done = step == STANDIN_DONE;
        return step != STANDIN_STUCK;
    }
    if (n->op == COPY && n->bytes) memcpy((void *)(uintptr_t)n->to, (const void *)(uintptr_t)n->from, n->bytes);
    for (uint64_t i = 0; n->op == FILL && i < n->bytes; i += 4) memcpy((char *)(uintptr_t)n->to + i, &n->word, 4);
    bool idle = control.idle && n->op == KERNEL && strcmp(n->function->name, "fk_add") &&
                !(control.gathers && !strcmp(n->function->name, "fk_gather"));
    if (n->op == KERNEL && !idle) kernel_run(n, run_beside, &beside);
    if (n->op == KERNEL && n->marks && idle) memcpy((void *)(uintptr_t)n->mark, &n->mark_value, 4);
    if (n->op == KERNEL && n->marks && memcmp((void *)(uintptr_t)n->mark, &n->mark_value, 4))
        trouble("%s has not said that it has begun", node_name(n));
    control.computed += n->op == KERNEL && strcmp(n->function->name, "fk_gather");
    n->done = true;
    return true;
}

/* May an open node run? A node that hangs begins but does not end: it has written its word of host memory. */
static bool ready(const node *n) {
    if (n->hangs && n->marks) memcpy((void *)(uintptr_t)n->mark, &n->mark_value, 4);
    return !n->hangs;
}

bool store_stuck(const store *s) {
    bool stuck = s->done < s->count;
    for (uint32_t i = 0; stuck && i < s->open_count; i++) stuck = !ready(&s->nodes[s->open[i]]);
    return stuck;
}

/* May a node run while a kernel of `device` waits for flags? Another kernel may if it waits for nothing itself. If it
 * is of the same device, it must be one for which SMs are left. */
static bool may_run_beside(const node *n, int device) {
    if (n->op != KERNEL) return true;
    const char *name = n->function->name;
    if (n->device == device && strcmp(name, "fk_narrow") && strcmp(name, "fk_widen")) return false;
    for (uint32_t i = 0; i < n->awaited_count; i++) {
        uint32_t up;
        memcpy(&up, (const void *)(uintptr_t)n->awaited[i].flag, sizeof up);
        if (!up) return false;
        if (n->awaited[i].other) memcpy(&up, (const void *)(uintptr_t)n->awaited[i].other, sizeof up);
        if (!up) return false;
    }
    return true;
}

/* While a kernel waits for flags, one other open node runs, from a place on that is drawn. False: none gets on, and
 * other processes have been waited for long enough. */
static bool run_beside(void *context) {
    struct beside *x = context;
    store *s = x->s;
    bool waits = false;
    control.seed = control.seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    const uint32_t from = (uint32_t)(control.seed >> 33);
    for (uint32_t i = 0; i < s->open_count; i++) {
        const uint32_t at = (from % s->open_count + i) % s->open_count;
        node *n = &s->nodes[s->open[at]];
        if (s->open[at] == x->waits || !may_run_beside(n, s->nodes[x->waits].device) || !ready(n)) continue;
        if (!do_node(s, n)) {
            waits = true;
            continue;
        }
        if (!n->done) return true; /* a part of a message has moved */
        close_node(s, at);
        control.during++;
        return true;
    }
    if (!waits || control.stall || fcp_patience_ends(&x->left)) return false;
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    return true;
}

/* The device is lost: nothing is waited for any more. */
static void drop_all(store *s) {
    for (uint32_t i = 0; i < s->count; i++) s->nodes[i].done = true;
    s->done = s->count;
    s->open_count = 0;
}

void store_run(store *s, uint32_t count) {
    static uint64_t turn;
    if (control.lost) drop_all(s);
    uint32_t *may = malloc((s->count + 1) * sizeof *may); /* places in the list of open nodes */
    turn++;
    while (may && count-- && s->done < s->count && !control.stall) {
        uint32_t found = 0;
        for (uint32_t i = 0; i < s->open_count; i++)
            if (s->nodes[s->open[i]].stuck != turn && ready(&s->nodes[s->open[i]])) may[found++] = i;
        if (!found) break; /* what is left hangs, or waits for another process */
        control.seed = control.seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint32_t at = may[(control.seed >> 33) % found];
        node *n = &s->nodes[s->open[at]];
        const uint32_t number = s->open[at];
        if (do_node(s, n)) turn++; /* a node that was stuck may have waited for this one, and is tried again */
        else n->stuck = turn;
        for (at = 0; s->open[at] != number;) at++; /* others may have been closed meanwhile */
        if (n->done) close_node(s, at);
    }
    free(may);
}

bool store_finish(store *s, uint32_t last) {
    double most = control.patience_s ? control.patience_s : 200;
    fcp_patience left = fcp_patience_of(most, 0.1);
    uint32_t done = s->done;
    for (;;) {
        store_run(s, UINT32_MAX);
        if (last ? s->nodes[last - 1].done : s->done == s->count) return true;
        if (s->done != done) left = fcp_patience_of(most, 0.1);
        done = s->done;
        bool waits = false;
        for (uint32_t i = 0; i < s->count; i++) waits |= s->nodes[i].op == OUTSIDE && !s->nodes[i].done;
        if (!waits || control.stall || fcp_patience_ends(&left)) return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static bool touches(const ranges *r, uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < r->count; i++)
        if (r->all[i].begin < end && begin < r->all[i].end) return true;
    return false;
}

bool store_touches(const store *s, uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < s->count; i++)
        if (!s->nodes[i].done && (touches(&s->nodes[i].reads, begin, end) || touches(&s->nodes[i].writes, begin, end)))
            return true;
    return false;
}

/* Takes the bytes from `begin` to `end` out of a list. */
static void cut_out(ranges *r, uint64_t begin, uint64_t end) {
    ranges kept = {0};
    if (!touches(r, begin, end)) return;
    for (uint32_t i = 0; i < r->count; i++) {
        const range x = r->all[i];
        if (x.begin < begin) range_add(&kept, x.begin, (x.end < begin ? x.end : begin) - x.begin);
        if (x.end > end) range_add(&kept, x.begin > end ? x.begin : end, x.end - (x.begin > end ? x.begin : end));
    }
    free(r->all);
    *r = kept;
}

void store_forget(store *s, uint64_t begin, uint64_t end) {
    for (uint32_t i = 0; i < s->count; i++) {
        cut_out(&s->nodes[i].reads, begin, end);
        cut_out(&s->nodes[i].writes, begin, end);
    }
}

bool store_has_room(store *s) {
    double begin = fcp_clock();
    while (control.queue && s->count - s->done >= control.queue) {
        uint32_t done = s->done;
        store_run(s, 1);
        if (s->done != done) {
            begin = fcp_clock();
            continue;
        }
        bool waits = false;
        for (uint32_t i = 0; i < s->count; i++) waits |= s->nodes[i].op == OUTSIDE && !s->nodes[i].done;
        if (!waits || control.stall || fcp_clock() - begin > (control.patience_s ? control.patience_s : 20)) {
            trouble("a call waits for ever in the driver, whose queues are full");
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}
