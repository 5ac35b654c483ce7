/* keys_fused.c: joins the lists of keys of several backward ATTENDs that are one launch.
 *
 * Requires: a verified plan; a run of fuse.h; one list for dK, dV and dQ (FCP_KEYS_JOINT or FCP_KEYS_ORDERED).
 * Gives:    fcp_kernel_keys_fused of work.h.
 * Method:   the list of each ATTEND is made, cut and sorted as by stages, and the lists stand one behind the other. By
 *           stages all items of a list are cut into pieces of as many query heads, and that number differs from list
 *           to list. So here each piece is an item of its own. Turns are counted again, over all of the list: what
 *           comes to a sum after what is as by stages, and so its bits are.
 * Cost:     linear in the lists, tables over the rank's rows of dQ and of dK, and the cost of keys.c for each ATTEND.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/kernels/list.h"

_Static_assert(sizeof(fk_key_fused) == 16, "records are the same on host and device");
_Static_assert(sizeof(((fk_key_fused *)0)->flags) == FCP_FABRICS * sizeof(fk_u32), "a flag for each fabric");

/* The list of the run so far. */
struct joined {
    struct fcp_list_kept list;
    fk_key_fused *fused; /* per item */
    uint32_t fused_capacity;
};

/* Appends the list of an ATTEND: each item as many times as it is pieces. */
static fcp_code append_list(const fcp_kernel_work *w, uint32_t group, struct joined *all, fcp_error *err) {
    const uint32_t parts = (group + w->subs - 1) / w->subs;
    struct fcp_list_kept *list = &all->list;
    const uint64_t keys = (uint64_t)w->key_count * parts;
    fcp_code code = fcp_list_reserve(list, keys, w->row_run_count, err);
    if (code) return code;
    if (!fcp_grow((void **)&all->fused, &all->fused_capacity, list->key_count + (uint32_t)keys, sizeof *all->fused))
        return fcp_list_no_memory(err);
    for (uint32_t i = 0; i < w->key_count; i++)
        for (uint32_t first = 0; first < group; first += w->subs) {
            const uint32_t left = group - first, at = list->key_count++;
            list->keys[at] = w->keys[i];
            list->keys[at].first += list->run_count;
            all->fused[at] = (fk_key_fused){.first = first, .heads = left < w->subs ? left : w->subs};
        }
    if (w->row_run_count) memcpy(list->runs + list->run_count, w->row_runs, w->row_run_count * sizeof *w->row_runs);
    list->run_count += w->row_run_count;
    return FCP_OK;
}

/* --- arrivals ----------------------------------------------------------------------------------------------------- */

/* An item waits for a flag. What comes over a fabric comes in the order of its flags, so the last of them is enough. */
static void wait_for(fk_key_fused *x, uint32_t flag) {
    fk_u32 *last = flag ? &x->flags[(flag - 1) % FCP_FABRICS] : NULL;
    if (last && flag > *last) *last = flag;
}

/* What an item waits for before anything of it is read: its keys, and all its rows. */
static void list_arrivals(const fcp_kernel_work *w, const fcp_arena *a, const struct joined *all) {
    const struct fcp_list_kept *list = &all->list;
    const fcp_problem *p = a->plan->problem;
    const fcp_fusion *f = w->fusion;
    const size_t home = fcp_arena_row(a, a->homes);
    for (uint32_t i = 0; i < list->key_count; i++) {
        const fk_key_item *item = &list->keys[i];
        if (item->place == FK_MOVED)
            wait_for(&all->fused[i], fcp_fusion_arrival(f, f->kv, a->homes + item->k_row / (2 * p->max_block)));
        for (const fk_row_run *r = list->runs + item->first, *end = r + item->runs; r < end; r++) {
            const size_t last = (size_t)r->token + r->count - 1;
            if (last < home) continue;
            const size_t from = r->token < home ? 0 : (r->token - home) / p->max_q_block;
            for (size_t slot = from; slot <= (last - home) / p->max_q_block; slot++)
                wait_for(&all->fused[i], fcp_fusion_arrival(f, f->q, a->homes + (uint32_t)slot));
        }
    }
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

/* Who adds to what. Where lists are not by head, all heads have the same turns, and there is one place for all. */
struct turns {
    const fcp_arena *a;
    const struct fcp_list_kept *all;
    bool by_head;
    size_t rows, sums;     /* of dQ; and of dK, where sums of home keys come first */
    uint32_t *locks;       /* [rows + sums] */
    uint32_t *sharers;     /* [sums] and KV heads: how many items add */
    uint32_t *turns;       /* [locks] and heads: how many have had their turn */
    uint8_t *counted;      /* [runs]: items of other heads have the same runs */
    uint32_t lock_count;
};

/* The number of an item's dK. */
static size_t sum_of(const struct turns *t, const fk_key_item *item) {
    const fcp_arena *a = t->a;
    const fk_u64 row = (fk_u64)a->kv_heads * a->plan->problem->head_dim * sizeof(float);
    const fk_u64 homes = a->home_first[FCP_KEYS][a->homes], home = a->dk ? fcp_list_offset(a, a->dk) : 0;
    if (homes && item->dk >= home && item->dk - home < homes * row) return (item->dk - home) / row;
    return homes + (item->dk - fcp_list_offset(a, a->dkv)) / row;
}

/* Where the sharers of an item's sum are counted. */
static size_t sharers_of(const struct turns *t, const fk_key_item *item) {
    return sum_of(t, item) * (t->by_head ? t->a->kv_heads : 1) + item->kv_head;
}

static bool open_turns(struct turns *t) {
    const fcp_arena *a = t->a;
    t->by_head = fcp_plan_by_head(a->plan);
    t->rows = fcp_arena_row(a, a->homes + (uint32_t)a->slots.count[FCP_DQ]);
    t->sums = a->home_first[FCP_KEYS][a->homes] + a->slots.count[FCP_DKV] * 2 * a->plan->problem->max_block;
    t->locks = malloc((t->rows + t->sums + 1) * sizeof *t->locks);
    t->sharers = calloc(t->sums * (t->by_head ? a->kv_heads : 1) + 1, sizeof *t->sharers);
    t->counted = calloc((size_t)t->all->run_count + 1, 1);
    if (!t->locks || !t->sharers || !t->counted) return false;
    memset(t->locks, 0xff, (t->rows + t->sums) * sizeof *t->locks); /* FCP_NONE */
    return true;
}

static void close_turns(struct turns *t) {
    free(t->locks);
    free(t->sharers);
    free(t->turns);
    free(t->counted);
}

static void take_lock(struct turns *t, size_t sum) {
    if (t->locks[sum] == FCP_NONE) t->locks[sum] = t->lock_count++;
}

/* Gives a lock to all rows, and to each sum that several items add to. */
static bool give_locks(struct turns *t) {
    const struct fcp_list_kept *all = t->all;
    for (uint32_t i = 0; i < all->key_count; i++) t->sharers[sharers_of(t, &all->keys[i])]++;
    for (uint32_t i = 0; i < all->key_count; i++)
        if (t->sharers[sharers_of(t, &all->keys[i])] > 1) take_lock(t, t->rows + sum_of(t, &all->keys[i]));
    for (uint32_t r = 0; r < all->run_count; r++) take_lock(t, all->runs[r].out);
    t->turns = calloc((size_t)t->lock_count * (t->by_head ? t->a->heads : 1) + 1, sizeof *t->turns);
    return t->turns;
}

static uint32_t next_turn(struct turns *t, uint32_t lock, uint32_t head) {
    return t->turns[(size_t)lock * (t->by_head ? t->a->heads : 1) + head]++;
}

/* Gives the runs of an item their turns. By head: those of the first of a run's heads, which have theirs together. */
static void give_row_turns(struct turns *t, const fk_key_item *item) {
    for (uint32_t i = item->first; i < item->first + item->runs; i++) {
        fk_row_run *r = &t->all->runs[i];
        const uint32_t set = fcp_list_heads_of(r);
        uint32_t head = 0;
        if (t->counted[i]++) return; /* those of an item are its own, or all are another's, too */
        if (t->by_head)
            head = item->kv_head * t->a->plan->problem->range_sub +
                   (r->cls >> FK_SET_BASE_SHIFT) * FK_SET_HEADS + (uint32_t)__builtin_ctz(set);
        r->lock = t->locks[r->out];
        r->turn = next_turn(t, r->lock, head);
    }
}

static bool give_turns(const fcp_arena *a, const struct fcp_list_kept *all, uint32_t *out_locks) {
    struct turns t = {.a = a, .all = all};
    const bool ok = open_turns(&t) && give_locks(&t);
    for (uint32_t i = 0; ok && i < all->key_count; i++) {
        fk_key_item *item = &all->keys[i];
        item->lock = FK_NONE;
        if (t.sharers[sharers_of(&t, item)] > 1) {
            item->lock = t.locks[t.rows + sum_of(&t, item)];
            item->turn = next_turn(&t, item->lock, item->kv_head);
        }
        give_row_turns(&t, item);
    }
    *out_locks = t.lock_count;
    close_turns(&t);
    return ok;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* Puts what a launch needs beside items behind them. */
static fcp_code put_behind(struct joined *all, fcp_error *err) {
    struct fcp_list_kept *list = &all->list;
    const size_t bytes = list->key_count * sizeof *all->fused;
    fcp_code code = fcp_list_reserve(list, (bytes + sizeof *list->keys - 1) / sizeof *list->keys, 0, err);
    if (!code && bytes) memcpy(list->keys + list->key_count, all->fused, bytes);
    return code;
}

fcp_code fcp_kernel_keys_fused(fcp_kernel_work *w, const fcp_arena *a, fcp_kernel_order order, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *compute = fcp_stream_of(plan, FCP_BACKWARD, a->rank, FCP_COMPUTE);
    const uint32_t group = plan->problem->range_sub;
    struct joined all = {0};
    uint32_t locks = 0;
    fcp_code code = FCP_OK;
    for (uint32_t i = w->fusion->run.first; !code && i <= w->fusion->run.last; i++) {
        const fcp_instr *x = &plan->instrs[compute->first + i];
        if (x->op != FCP_OP_ATTEND) continue;
        code = fcp_kernel_keys(w, a, x->a, x->b, order, err);
        if (!code) code = append_list(w, group, &all, err);
    }
    if (!code) list_arrivals(w, a, &all);
    if (!code && order == FCP_KEYS_ORDERED && !give_turns(a, &all.list, &locks)) code = fcp_list_no_memory(err);
    if (!code) code = put_behind(&all, err);
    free(all.fused);
    fcp_list_put(w, &all.list);
    w->lock_count = locks;
    w->subs = group;
    return code;
}
