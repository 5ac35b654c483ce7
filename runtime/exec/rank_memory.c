/* rank_memory.c: lays out a rank's arena.
 *
 * Requires: a verified plan.
 * Gives:    the parts that fcp_rank_memory counts, each at a multiple of ALIGN bytes.
 * Cost:     one walk over a rank's instructions.
 */
#include "runtime/exec/rank_memory.h"

#include <stdlib.h>

#include "runtime/exec/partials.h"
#include "runtime/plan/extract.h"

enum { ALIGN = 64 };

/* Returns whether a block is at home where its home slots are known: in an extract, at its own rank. */
static bool is_known(const fcp_plan *plan, uint64_t block) {
    return !plan->extract || plan->blocks[block].home == plan->extract->about->rank;
}

fcp_homes *fcp_homes_of(const fcp_plan *plan) {
    uint32_t ranks = plan->problem->ranks;
    size_t blocks = (size_t)plan->blocks_count, starts = blocks + ranks; /* of a side */
    fcp_homes *h = calloc(1, ranks * sizeof *h + FCP_SIDES * starts * sizeof(uint64_t) + blocks * sizeof(uint32_t));
    if (!h) return NULL;
    uint64_t *firsts = (uint64_t *)(void *)(h + ranks);
    uint32_t *ids = (uint32_t *)(void *)(firsts + FCP_SIDES * starts), *id = ids;
    for (uint64_t b = 0; b < blocks; b++) h[plan->blocks[b].home].homes += is_known(plan, b);
    for (uint32_t r = 0; r < ranks; r++) {
        h[r].block = id;
        id += h[r].homes;
    }
    for (uint64_t b = 0; b < blocks; b++)
        if (is_known(plan, b))
            ids[(size_t)(h[plan->blocks[b].home].block - ids) + plan->blocks[b].home_slot] = (uint32_t)b;
    for (int side = 0; side < FCP_SIDES; side++) {
        uint64_t *all = firsts + (size_t)side * starts, *at = all;
        for (uint32_t r = 0; r < ranks; r++) {
            h[r].first[side] = at;
            at += h[r].homes + 1;
        }
        for (uint64_t b = 0; b < blocks; b++) {
            const fcp_block *k = &plan->blocks[b];
            if (!(k->holds >> side & 1) || !is_known(plan, b)) continue;
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

struct count {
    fcp_slots *slots;
    uint32_t homes;
};

/* The rank uses that slot: if it is a transient one, there are at least so many of them. */
static void widen(struct count *x, fcp_class cls, uint32_t slot) {
    uint32_t homes = cls == FCP_STATE ? 0 : x->homes;
    uint64_t *count = &x->slots->count[cls];
    if (slot != FCP_NONE && slot >= homes && slot - homes >= *count) *count = (uint64_t)(slot - homes) + 1;
}

static void widen_visit(struct count *x, const fcp_plan *plan, fcp_pass pass, const fcp_visit *v) {
    widen(x, FCP_Q, v->q_slot);
    if (pass == FCP_FORWARD) {
        widen(x, FCP_STATE, v->state_slot);
        widen(x, FCP_O, v->o_slot);
    } else widen(x, FCP_DQ, v->dq_slot);
    for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++) {
        widen(x, FCP_KV, plan->tiles[t].kv_slot);
        if (pass == FCP_BACKWARD) widen(x, FCP_DKV, plan->tiles[t].dkv_slot);
    }
}

void fcp_slots_of(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t homes, fcp_slots *out_slots) {
    *out_slots = (fcp_slots){0};
    struct count x = {out_slots, homes};
    for (int queue = 0; queue < FCP_QUEUES; queue++) {
        const fcp_stream *stream = fcp_stream_of(plan, pass, rank, (fcp_queue)queue);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *in = &plan->instrs[stream->first + i];
            switch (in->op) {
            case FCP_OP_LAUNCH:
                for (uint32_t j = in->a; j < in->a + in->b; j++) {
                    const fcp_transfer *t = &plan->transfers[j];
                    if (t->cls != FCP_IN && t->cls != FCP_OUT) widen(&x, (fcp_class)t->cls, t->slot);
                }
                break;
            case FCP_OP_REDUCE:
            case FCP_OP_REDUCE_Q:
            case FCP_OP_MERGE:
                widen(&x, fcp_partial_class(in), in->b);
                widen(&x, fcp_partial_class(in), in->c);
                break;
            case FCP_OP_FINISH:
                widen(&x, FCP_STATE, in->b);
                widen(&x, FCP_O, fcp_finish_slot(plan, rank, in));
                break;
            case FCP_OP_ROUND:
                widen(&x, FCP_DQ, in->b);
                widen(&x, FCP_DQW, in->c);
                break;
            case FCP_OP_ATTEND:
                for (uint32_t j = in->a; j < in->a + in->b; j++) widen_visit(&x, plan, pass, &plan->visits[j]);
                break;
            default: break;
            }
        }
    }
}

/* The next part, `count` numbers of `size` bytes: where it begins in `memory`. NULL: bytes are counted, and no more. */
static void *part(char *memory, size_t *at, size_t count, size_t size) {
    void *place = memory ? memory + *at : NULL;
    *at += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return place;
}

static size_t lay(const fcp_homes *h, const fcp_slots *s, char *memory, fcp_arena *a) {
    const fcp_problem *p = a->plan->problem;
    size_t e = fcp_dtype_size((fcp_dtype)p->dtype), at = 0;
    size_t row = a->heads, wide = row * p->head_dim, o = row * p->value_dim; /* numbers of a query: LSE, Q, O */
    size_t keys = h->tokens[FCP_KEYS] * a->kv_heads, k = keys * p->head_dim, v = keys * p->value_dim;
    size_t kv_block = (size_t)p->max_block * a->kv_heads * fcp_kv_dim(p);
    bool apart = !p->values_in_keys;
    size_t home = h->tokens[FCP_QUERIES], rows[FCP_CLASSES]; /* at home, and with the slots of a class */
    bool forward = a->pass == FCP_FORWARD;
    for (int cls = 0; cls < FCP_CLASSES; cls++) rows[cls] = home + s->count[cls] * p->max_q_block;
    /* K and V come first, so that they lie at the same place in both passes, and one can use what the other received. So
     * the arena begins with k, from which work lists count (runtime/worklists). */
    a->k = part(memory, &at, k, e);
    a->v = apart ? part(memory, &at, v, e) : a->k;
    a->kv = part(memory, &at, s->count[FCP_KV] * kv_block, e);
    a->q = part(memory, &at, rows[FCP_Q] * wide, e);
    a->o = part(memory, &at, (forward ? rows[FCP_O] : home) * o, e);
    a->lse = part(memory, &at, rows[forward ? FCP_O : FCP_Q] * row, sizeof(float));
    a->lse_low = part(memory, &at, rows[forward ? FCP_O : FCP_Q] * row, sizeof(float));
    if (forward) {
        a->state = part(memory, &at, (rows[FCP_STATE] - home) * row * (p->value_dim + 2), sizeof(float));
        return at;
    }
    a->d_o = part(memory, &at, rows[FCP_Q] * o, e);
    a->delta = part(memory, &at, rows[FCP_Q] * row, sizeof(float));
    if (p->lse_gradient) a->d_lse = part(memory, &at, home * row, sizeof(float));
    a->dq = part(memory, &at, rows[FCP_DQ] * wide, sizeof(float));
    a->dk = part(memory, &at, k, sizeof(float));
    a->dv = apart ? part(memory, &at, v, sizeof(float)) : a->dk;
    a->dq_out = part(memory, &at, rows[FCP_DQW] * wide, e);
    a->dk_out = part(memory, &at, k, e);
    a->dv_out = apart ? part(memory, &at, v, e) : a->dk_out;
    a->dkv = part(memory, &at, s->count[FCP_DKV] * kv_block, sizeof(float));
    return at;
}

static fcp_arena begin(const fcp_plan *plan, fcp_pass pass) {
    const fcp_problem *p = plan->problem;
    return (fcp_arena){.plan = plan, .pass = pass, .heads = p->range_kv * p->range_sub, .kv_heads = p->range_kv};
}

size_t fcp_arena_size(const fcp_plan *plan, fcp_pass pass, const fcp_homes *homes, const fcp_slots *slots) {
    fcp_arena a = begin(plan, pass);
    return lay(homes, slots, NULL, &a);
}

void fcp_arena_lay(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_homes *homes, const fcp_slots *slots,
                   void *memory, fcp_arena *out_arena) {
    fcp_arena a = begin(plan, pass);
    a.rank = rank;
    a.homes = homes->homes;
    a.home_block = homes->block;
    for (int side = 0; side < FCP_SIDES; side++) a.home_first[side] = homes->first[side];
    a.slots = *slots;
    a.bytes = lay(homes, slots, memory, &a);
    *out_arena = a;
}

fcp_rows_at fcp_arena_rows(const fcp_arena *a, uint32_t slot) {
    const fcp_problem *p = a->plan->problem;
    size_t row = fcp_arena_row(a, slot) * a->heads, wide = row * p->head_dim, e = fcp_dtype_size((fcp_dtype)p->dtype);
    size_t bytes = wide * e, o_bytes = row * p->value_dim * e;
    fcp_rows_at x = {.q = (char *)a->q + bytes, .o = (char *)a->o + o_bytes, .lse = a->lse + row,
                     .lse_low = a->lse_low + row};
    if (a->pass == FCP_FORWARD) return x;
    x.d_o = (char *)a->d_o + o_bytes;
    x.dq_out = (char *)a->dq_out + bytes;
    x.delta = a->delta + row;
    x.dq = a->dq + wide;
    return x;
}
