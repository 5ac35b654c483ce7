/* locks.c: gives the pieces of a list of keys their locks and turns, so that pieces that add to the same sum do so in
 * the order of the list.
 *
 * For example, items A, B and C stand in the list in this order, and A and C have the same keys. Then both add to the
 * same dK. This sum gets a lock; A has turn 0 at it and C turn 1. The kernel lets C add only when the lock says that A
 * has added (fk_acquire). B's dK belongs to B alone and has no lock.
 *
 * Requires: a list of keys that is cut and sorted.
 * Method:   one walk over the list hands out turns: whoever comes first to a sum has turn 0, the next one turn 1.
 *           - A sum of dK and dV is identified by its place in memory. It has a lock if several pieces add to it.
 *           - A sum of dQ is identified by its first row. If the list is ordered, each has a lock; otherwise none has.
 *           - By head, a lock counts the turns of each head apart. A run for several heads has the same turn at each of
 *             them. Otherwise a lock has one count, since all heads have the same turns.
 * Cost:     linear in the list, and tables over the rank's rows of dQ and of dK; by head also one over locks and heads.
 */
#include <string.h>

#include "runtime/plan/head_ranges.h"
#include "runtime/worklists/list.h"

/* Counts who adds to what. */
struct turns {
    fcp_worklists *w;
    const fcp_arena *a;
    bool by_head;
    size_t rows, sums; /* of dQ; and of dK, where sums of home keys come first */
    uint32_t *locks;   /* [rows + sums] */
    uint32_t *sharers; /* [sums] and KV heads: how many items add */
    uint32_t *turns;   /* [locks] and heads: how many have had their turn */
    uint8_t *counted;  /* [runs]: items of other heads have the same runs */
};

/* The number of an item's dK. */
static size_t sum_of(const struct turns *t, const fk_key_item *item) {
    const fcp_arena *a = t->a;
    const fcp_problem *p = a->plan->problem;
    const fk_u64 number = a->kv_heads * sizeof(float), row = number * p->head_dim;
    const fk_u64 slot = number * p->max_block * fcp_kv_dim(p); /* dK, then dV */
    const fk_u64 homes = a->home_first[FCP_KEYS][a->homes], home = a->dk ? fcp_worklists_offset(a, a->dk) : 0;
    if (homes && item->dk >= home && item->dk - home < homes * row) return (item->dk - home) / row;
    const fk_u64 at = item->dk - fcp_worklists_offset(a, a->dkv);
    return homes + at / slot * p->max_block + at % slot / row;
}

/* Where the sharers of an item's sum are counted. */
static size_t sharers_of(const struct turns *t, const fk_key_item *item) {
    return sum_of(t, item) * (t->by_head ? t->a->kv_heads : 1) + item->kv_head;
}

/* Do several pieces add to an item's sum? */
static bool is_shared(const struct turns *t, const fk_key_item *item) {
    return t->sharers[sharers_of(t, item)] > 1 || t->w->subs < t->a->plan->problem->range_sub;
}

/* Zeroed scratch memory. */
static void *cleared(fcp_worklists *w, int which, size_t count, size_t size) {
    void *at = fcp_worklists_scratch(w, which, count, size);
    return at ? memset(at, 0, count * size) : NULL;
}

static bool open_turns(struct turns *t) {
    const fcp_arena *a = t->a;
    t->rows = fcp_arena_row(a, a->homes + (uint32_t)a->slots.count[FCP_DQ]);
    t->sums = a->home_first[FCP_KEYS][a->homes] + a->slots.count[FCP_DKV] * a->plan->problem->max_block;
    t->locks = fcp_worklists_scratch(t->w, FCP_WORKLISTS_LOCKS, t->rows + t->sums, sizeof *t->locks);
    t->sharers = cleared(t->w, FCP_WORKLISTS_SIZES, t->sums * (t->by_head ? a->kv_heads : 1), sizeof *t->sharers);
    t->counted = cleared(t->w, FCP_WORKLISTS_PERMUTED, t->w->row_run_count, 1);
    if (!t->locks || !t->sharers || !t->counted) return false;
    memset(t->locks, 0xff, (t->rows + t->sums) * sizeof *t->locks); /* FCP_NONE */
    return true;
}

static void take_lock(struct turns *t, size_t sum) {
    if (t->locks[sum] == FCP_NONE) t->locks[sum] = t->w->lock_count++;
}

/* Gives a lock to each sum that several pieces add to, and in an ordered list to all rows. */
static bool give_locks(struct turns *t, bool ordered) {
    fcp_worklists *w = t->w;
    w->lock_count = 0;
    for (uint32_t i = 0; i < w->key_count; i++) t->sharers[sharers_of(t, &w->keys[i])]++;
    for (uint32_t i = 0; i < w->key_count; i++)
        if (is_shared(t, &w->keys[i])) take_lock(t, t->rows + sum_of(t, &w->keys[i]));
    for (uint32_t r = 0; ordered && r < w->row_run_count; r++) take_lock(t, w->row_runs[r].out);
    const size_t turns = (size_t)w->lock_count * (t->by_head ? t->a->heads : 1);
    t->turns = cleared(w, FCP_WORKLISTS_TURNS, turns, sizeof *t->turns);
    return t->turns;
}

static uint32_t next_turn(struct turns *t, uint32_t lock, uint32_t head) {
    return t->turns[(size_t)lock * (t->by_head ? t->a->heads : 1) + head]++;
}

/* Gives the runs of an item their turns. By head, a run of a set of heads has the turns of the first of these heads. */
static void give_row_turns(struct turns *t, const fk_key_item *item) {
    for (uint32_t i = item->first; i < item->first + item->runs; i++) {
        fk_row_run *r = &t->w->row_runs[i];
        uint32_t head = 0;
        if (t->counted[i]++) return; /* those of an item are its own, or all are another's, too */
        if (t->by_head)
            head = item->kv_head * t->a->plan->problem->range_sub +
                   (r->cls >> FK_SET_BASE_SHIFT) * FK_SET_HEADS + (uint32_t)__builtin_ctz(fcp_worklists_heads_of(r));
        r->lock = t->locks[r->out];
        r->turn = next_turn(t, r->lock, head);
    }
}

bool fcp_worklists_give_turns(fcp_worklists *w, const fcp_arena *a, fcp_key_order order) {
    struct turns t = {.w = w, .a = a, .by_head = fcp_plan_by_head(a->plan)};
    const bool ordered = order == FCP_KEYS_ORDERED;
    if (!open_turns(&t) || !give_locks(&t, ordered)) return false;
    for (uint32_t i = 0; i < w->key_count; i++) {
        fk_key_item *item = &w->keys[i];
        const bool shared = is_shared(&t, item);
        item->lock = shared ? t.locks[t.rows + sum_of(&t, item)] : FK_NONE;
        item->turn = shared ? next_turn(&t, item->lock, item->kv_head) : 0;
        if (shared) item->begins = 0;
        if (ordered) give_row_turns(&t, item);
    }
    if (order == FCP_KEYS_JOINT) w->lock_count = 0; /* nobody waits */
    return true;
}
