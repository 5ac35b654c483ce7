/* fair_sharing.c: computes max-min fair rates by progressive filling.
 *
 * Example: ports carry 10, and there are three flows. A and B leave port 1; B and C arrive at port 2, whose node's
 * uplink carries 6. B and C get 3 each, because the uplink is the narrowest. A gets the 7 that B leaves at port 1.
 *
 * Rates change only when a flow joins or leaves, and only for flows that are connected to it by shared resources. They
 * are computed by progressive filling: of the resources that have flows without a rate, take the one with the smallest
 * equal share, and give each of these flows that share. The other resources keep what is left. All numbers are
 * integers, and of equal resources the one found first is taken.
 *
 * Cost of a change: resources of the component times the resources that are full in it.
 */
#include "compiler/simulate/fair_sharing.h"

#include "compiler/simulate/cost_model.h"

fcp_code flows_new(uint32_t resources, const uint64_t *capacity, uint32_t count, arena *memory, flows *out) {
    *out = (flows){.capacity = capacity, .at = ARENA_ZNEW(memory, flow, count),
                   .head = ARENA_NEW(memory, uint32_t, resources),
                   .open = ARENA_ZNEW(memory, uint32_t, resources), .left = ARENA_NEW(memory, uint64_t, resources),
                   .seen = ARENA_ZNEW(memory, uint32_t, resources), .dirty = ARENA_NEW(memory, uint32_t, resources),
                   .some = ARENA_NEW(memory, uint32_t, resources), .stack = ARENA_NEW(memory, uint32_t, count)};
    if (!out->at || !out->head || !out->open || !out->left || !out->seen || !out->dirty || !out->some || !out->stack)
        return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < resources; r++) out->head[r] = FCP_NONE;
    return FCP_OK;
}

/* Adds the resources of a flow to the list of those that need new rates. Outside of flows_settle, `open` of a resource
 * is 1 if it is in that list. */
static void mark(flows *x, const flow *f) {
    for (uint32_t i = 0; i < f->count; i++)
        if (!x->open[f->uses[i]]) {
            x->open[f->uses[i]] = 1;
            x->dirty[x->dirty_count++] = f->uses[i];
        }
}

void flows_join(flows *x, uint32_t number, uint64_t bytes, uint64_t now) {
    flow *f = &x->at[number];
    f->left = (unsigned __int128)bytes * SIM_SECOND;
    f->since = now;
    f->rate = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t *head = &x->head[f->uses[i]], self = FLOW_RESOURCES * number + i;
        f->next[i] = *head;
        f->previous[i] = FCP_NONE;
        if (*head != FCP_NONE) x->at[*head / FLOW_RESOURCES].previous[*head % FLOW_RESOURCES] = self;
        *head = self;
    }
    mark(x, f);
}

void flows_leave(flows *x, uint32_t number) {
    flow *f = &x->at[number];
    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t next = f->next[i], previous = f->previous[i];
        if (next != FCP_NONE) x->at[next / FLOW_RESOURCES].previous[next % FLOW_RESOURCES] = previous;
        if (previous == FCP_NONE) x->head[f->uses[i]] = next;
        else x->at[previous / FLOW_RESOURCES].next[previous % FLOW_RESOURCES] = next;
    }
    mark(x, f);
}

static void add_resource(flows *x, uint32_t r) {
    if (x->seen[r] == x->stamp) return;
    x->seen[r] = x->stamp;
    x->some[x->some_count++] = r;
    x->open[r] = 0;
    x->left[r] = x->capacity[r];
}

/* Where n flows meet at a port, it carries less. */
static void lose_to_incast(flows *x) {
    for (uint32_t i = 0; x->incast && i < x->some_count; i++) {
        const uint32_t r = x->some[i];
        const uint64_t n = x->open[r];
        if (r >= x->ports || n < 2) continue;
        x->left[r] = (uint64_t)((unsigned __int128)x->capacity[r] * (100 * n - x->incast * (n - 1)) /
                                (unsigned __int128)(100 * n));
    }
}

/* Collects the flows and resources that are connected to the dirty ones; returns the number of flows. */
static uint32_t gather(flows *x) {
    uint32_t count = 0;
    x->stamp++;
    x->some_count = 0;
    for (uint32_t i = 0; i < x->dirty_count; i++) add_resource(x, x->dirty[i]);
    x->dirty_count = 0;
    for (uint32_t i = 0; i < x->some_count; i++)
        for (uint32_t at = x->head[x->some[i]]; at != FCP_NONE;
             at = x->at[at / FLOW_RESOURCES].next[at % FLOW_RESOURCES]) {
            flow *f = &x->at[at / FLOW_RESOURCES];
            x->open[x->some[i]]++;
            if (f->seen == x->stamp) continue;
            f->seen = x->stamp;
            x->stack[count++] = at / FLOW_RESOURCES;
            for (uint32_t u = 0; u < f->count; u++) add_resource(x, f->uses[u]);
        }
    return count;
}

void flows_settle(flows *x, uint64_t now, void (*changed)(void *context, uint32_t f, uint64_t through), void *context) {
    if (!x->dirty_count) return;
    uint32_t without = gather(x);
    lose_to_incast(x);
    while (without) {
        uint32_t narrowest = FCP_NONE;
        uint64_t least = UINT64_MAX;
        for (uint32_t i = 0; i < x->some_count; i++) {
            uint32_t r = x->some[i];
            if (!x->open[r] || x->left[r] / x->open[r] >= least) continue;
            narrowest = r;
            least = x->left[r] / x->open[r];
        }
        for (uint32_t at = x->head[narrowest], next; at != FCP_NONE; at = next) {
            uint32_t number = at / FLOW_RESOURCES;
            flow *f = &x->at[number];
            next = f->next[at % FLOW_RESOURCES];
            if (f->seen != x->stamp) continue; /* its rate is settled */
            f->seen = 0;
            without--;
            for (uint32_t u = 0; u < f->count; u++) {
                x->open[f->uses[u]]--;
                x->left[f->uses[u]] -= least;
            }
            uint64_t rate = least ? least : 1;
            if (rate == f->rate) continue;
            unsigned __int128 gone = (unsigned __int128)f->rate * (now - f->since);
            f->left = gone < f->left ? f->left - gone : 0;
            f->since = now;
            f->rate = rate;
            f->version++;
            unsigned __int128 time = (f->left + rate - 1) / rate;
            changed(context, number, time > UINT64_MAX - now ? UINT64_MAX : now + (uint64_t)time);
        }
    }
}
