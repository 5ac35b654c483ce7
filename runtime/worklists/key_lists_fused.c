/* key_lists_fused.c: joins the lists of keys of several backward ATTENDs that are one launch.
 *
 * Requires: a verified plan; a run of fuse.h; one list for dK, dV and dQ (FCP_KEYS_JOINT or FCP_KEYS_ORDERED).
 * Gives:    fcp_worklists_keys_fused of worklists.h.
 * Method:   the list of each ATTEND is made, cut and sorted as by stages, and the lists stand one behind the other.
 *           Each list cuts its items into pieces of its own number of query heads; in the joined list each piece is an
 *           item. Turns are given out anew, over the whole list. Numbers are added to each sum in the same order as by
 *           stages, so its bits are the same.
 * Cost:     linear in the lists, and the costs of key_lists.c and locks.c for each ATTEND.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/worklists/list.h"

_Static_assert(sizeof(fk_key_fused) == 16, "records are the same on host and device");
_Static_assert(sizeof(((fk_key_fused *)0)->flags) == FCP_FABRICS * sizeof(fk_u32), "a flag for each fabric");

/* The list of the run so far. */
struct joined {
    struct fcp_worklists_kept list;
    fk_key_fused *fused; /* per item */
    uint32_t fused_capacity;
};

/* Appends the list of an ATTEND, each of its pieces as an item. */
static fcp_code append_list(const fcp_worklists *w, uint32_t group, struct joined *all, fcp_error *err) {
    const uint32_t parts = (group + w->subs - 1) / w->subs;
    struct fcp_worklists_kept *list = &all->list;
    const uint64_t keys = (uint64_t)w->key_count * parts;
    fcp_code code = fcp_worklists_reserve(list, keys, w->row_run_count, err);
    if (code) return code;
    if (!FCP_GROW(all->fused, all->fused_capacity, list->key_count + (uint32_t)keys))
        return fcp_worklists_no_memory(err);
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

/* Makes an item wait for a flag. What comes over a fabric comes in the order of its flags, so only the last flag of
 * each fabric is kept. */
static void wait_for(fk_key_fused *x, uint32_t flag) {
    fk_u32 *last = flag ? &x->flags[(flag - 1) % FCP_FABRICS] : NULL;
    if (last && flag > *last) *last = flag;
}

/* What an item waits for before anything of it is read: its keys, and all its rows. */
static void list_arrivals(const fcp_worklists *w, const fcp_arena *a, const struct joined *all) {
    const struct fcp_worklists_kept *list = &all->list;
    const fcp_problem *p = a->plan->problem;
    const fcp_fusion *f = w->fusion;
    const size_t home = fcp_arena_row(a, a->homes);
    for (uint32_t i = 0; i < list->key_count; i++) {
        const fk_key_item *item = &list->keys[i];
        if (item->place == FK_MOVED) wait_for(&all->fused[i], fcp_fusion_arrival(f, f->kv, a->homes + item->slot));
        for (const fk_row_run *r = list->runs + item->first, *end = r + item->runs; r < end; r++) {
            const size_t last = (size_t)r->token + r->count - 1;
            if (last < home) continue;
            const size_t from = r->token < home ? 0 : (r->token - home) / p->max_q_block;
            for (size_t slot = from; slot <= (last - home) / p->max_q_block; slot++)
                wait_for(&all->fused[i], fcp_fusion_arrival(f, f->q, a->homes + (uint32_t)slot));
        }
    }
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* Puts the fk_key_fused records behind the items, where the kernel looks for them. */
static fcp_code put_behind(struct joined *all, fcp_error *err) {
    struct fcp_worklists_kept *list = &all->list;
    const size_t bytes = list->key_count * sizeof *all->fused;
    fcp_code code = fcp_worklists_reserve(list, (bytes + sizeof *list->keys - 1) / sizeof *list->keys, 0, err);
    if (!code && bytes) memcpy(list->keys + list->key_count, all->fused, bytes);
    return code;
}

fcp_code fcp_worklists_keys_fused(fcp_worklists *w, const fcp_arena *a, fcp_key_order order, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *compute = fcp_stream_of(plan, FCP_BACKWARD, a->rank, FCP_COMPUTE);
    const uint32_t group = plan->problem->range_sub;
    struct joined all = {0};
    fcp_code code = FCP_OK;
    for (uint32_t i = w->fusion->run.first; !code && i <= w->fusion->run.last; i++) {
        const fcp_instr *x = &plan->instrs[compute->first + i];
        if (x->op != FCP_OP_ATTEND) continue;
        code = fcp_worklists_keys(w, a, x->a, x->b, order, err);
        if (!code) code = append_list(w, group, &all, err);
    }
    if (!code) list_arrivals(w, a, &all);
    if (!code) code = put_behind(&all, err);
    free(all.fused);
    fcp_worklists_replace_keys(w, &all.list);
    w->subs = group;
    return code || fcp_worklists_give_turns(w, a, order) ? code : fcp_worklists_no_memory(err);
}
