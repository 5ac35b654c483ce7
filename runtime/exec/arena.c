/* arena.c: how a rank's arena is laid out.
 *
 * Requires: a verified plan.
 * Gives:    the parts that fcp_rank_memory counts, each beginning at a multiple of ALIGN bytes.
 * Cost:     one walk over a rank's instructions.
 */
#include "runtime/exec/arena.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

fcp_homes *fcp_homes_of(const fcp_plan *plan) {
    uint32_t ranks = plan->problem->ranks;
    size_t starts = (size_t)plan->blocks_count + ranks; /* of a side */
    fcp_homes *h = calloc(1, ranks * sizeof *h + FCP_SIDES * starts * sizeof(uint64_t));
    if (!h) return NULL;
    for (uint64_t b = 0; b < plan->blocks_count; b++) h[plan->blocks[b].home].homes++;
    for (int side = 0; side < FCP_SIDES; side++) {
        uint64_t *all = (uint64_t *)(void *)(h + ranks) + (size_t)side * starts, *at = all;
        for (uint32_t r = 0; r < ranks; r++) {
            h[r].first[side] = at;
            at += h[r].homes + 1;
        }
        for (uint64_t b = 0; b < plan->blocks_count; b++) {
            const fcp_block *k = &plan->blocks[b];
            if (!(k->holds >> side & 1)) continue;
            all[(size_t)(h[k->home].first[side] - all) + k->home_slot + 1] = k->tokens;
            h[k->home].tokens[side] += k->tokens;
        }
        for (uint32_t r = 0; r < ranks; r++) {
            uint64_t *first = all + (h[r].first[side] - all);
            for (uint32_t i = 0; i < h[r].homes; i++) first[i + 1] += first[i];
        }
    }
    return h;
}

/* The rank uses that slot: if it is a transient one, there are at least so many of them. */
static void widen(uint32_t *count, uint32_t slot, uint32_t homes) {
    if (slot != FCP_NONE && slot >= homes && slot - homes >= *count) *count = slot - homes + 1;
}

void fcp_slots_of(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t homes,
                  const uint64_t home_tokens[FCP_SIDES], fcp_slots *out_slots) {
    fcp_slots s = {.homes = homes, .home_tokens = {home_tokens[FCP_QUERIES], home_tokens[FCP_KEYS]}};
    for (int queue = 0; queue < FCP_QUEUES; queue++) {
        const fcp_stream *stream = fcp_stream_of(plan, pass, rank, (fcp_queue)queue);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *x = &plan->instrs[stream->first + i];
            if (x->op == FCP_OP_LAUNCH)
                for (uint32_t j = x->a; j < x->a + x->b; j++) {
                    const fcp_transfer *t = &plan->transfers[j];
                    if (t->cls == FCP_KV) widen(&s.kv, t->slot, homes);
                    if (t->cls == FCP_DKV) widen(&s.dkv, t->slot, homes);
                }
            if (x->op == FCP_OP_REDUCE) {
                widen(&s.dkv, x->b, homes);
                widen(&s.dkv, x->c, homes);
            }
            if (x->op != FCP_OP_ATTEND) continue;
            for (uint32_t j = x->a; j < x->a + x->b; j++) {
                const fcp_visit *v = &plan->visits[j];
                if (pass == FCP_FORWARD) widen(&s.state, v->state_slot, 0);
                for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++) {
                    widen(&s.kv, plan->tiles[t].kv_slot, homes);
                    if (pass == FCP_BACKWARD) widen(&s.dkv, plan->tiles[t].dkv_slot, homes);
                }
            }
        }
    }
    *out_slots = s;
}

/* The next part, `count` numbers of `size` bytes: where it begins in `memory`. NULL: bytes are counted, and no more. */
static void *part(char *memory, size_t *at, size_t count, size_t size) {
    void *place = memory ? memory + *at : NULL;
    *at += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return place;
}

static size_t lay(const fcp_plan *plan, fcp_pass pass, const fcp_slots *s, char *memory, fcp_arena *a) {
    const fcp_problem *p = plan->problem;
    size_t e = fcp_dtype_size((fcp_dtype)p->dtype), at = 0;
    size_t rows = s->home_tokens[FCP_QUERIES] * p->heads, q = rows * p->head_dim;
    size_t kv = s->home_tokens[FCP_KEYS] * p->kv_heads * p->head_dim;
    size_t kv_block = 2 * (size_t)p->max_block * p->kv_heads * p->head_dim;
    a->q = part(memory, &at, q, e);
    a->k = part(memory, &at, kv, e);
    a->v = part(memory, &at, kv, e);
    a->o = part(memory, &at, q, e);
    a->lse = part(memory, &at, rows, sizeof(float));
    a->kv = part(memory, &at, s->kv * kv_block, e);
    if (pass == FCP_FORWARD) {
        a->state = part(memory, &at, (size_t)s->state * p->max_q_block * p->heads * (p->head_dim + 2), sizeof(float));
        return at;
    }
    a->d_o = part(memory, &at, q, e);
    a->delta = part(memory, &at, rows, sizeof(float));
    a->dq = part(memory, &at, q, sizeof(float));
    a->dk = part(memory, &at, kv, sizeof(float));
    a->dv = part(memory, &at, kv, sizeof(float));
    a->dq_out = part(memory, &at, q, e);
    a->dk_out = part(memory, &at, kv, e);
    a->dv_out = part(memory, &at, kv, e);
    a->dkv = part(memory, &at, s->dkv * kv_block, sizeof(float));
    return at;
}

size_t fcp_arena_size(const fcp_plan *plan, fcp_pass pass, const fcp_slots *slots) {
    fcp_arena a = {0};
    return lay(plan, pass, slots, NULL, &a);
}

void fcp_arena_lay(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_slots *slots,
                   const uint64_t *const home_first[FCP_SIDES], void *memory, fcp_arena *out_arena) {
    fcp_arena a = {.plan = plan,
                   .pass = pass,
                   .rank = rank,
                   .homes = slots->homes,
                   .home_first = {home_first[FCP_QUERIES], home_first[FCP_KEYS]},
                   .kv_slots = slots->kv,
                   .state_slots = slots->state,
                   .dkv_slots = slots->dkv};
    a.bytes = lay(plan, pass, slots, memory, &a);
    *out_arena = a;
}
