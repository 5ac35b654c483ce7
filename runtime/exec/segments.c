/* segments.c: which memory a transfer reads or writes.
 *
 * Requires: a verified plan, and the rank's arena laid out for the pass. Cost: constant.
 */
#include "runtime/exec/segments.h"

struct list {
    fcp_segment *out;
    uint32_t count;
    uint64_t first, tokens; /* the rows to take of each tensor */
};

/* Adds the rows of a tensor in which a token takes `bytes`. */
static void add(struct list *l, const void *tensor, size_t bytes) {
    l->out[l->count++] = (fcp_segment){(char *)(uintptr_t)tensor + l->first * bytes, l->tokens * bytes};
}

struct token_bytes {
    size_t q, kv, row; /* of Q, of K or V, of LSE */
};

static struct token_bytes token_bytes(const fcp_problem *p) {
    size_t e = fcp_dtype_size((fcp_dtype)p->dtype);
    return (struct token_bytes){(size_t)p->heads * p->head_dim * e, (size_t)p->kv_heads * p->head_dim * e,
                                p->heads * sizeof(float)};
}

/* Keys and values, or their partial gradients: rows of a slot. */
static void add_slot(struct list *l, const fcp_arena *a, const fcp_transfer *t, struct token_bytes b) {
    const fcp_problem *p = a->plan->problem;
    if (t->cls == FCP_KV) {
        char *k, *v;
        fcp_arena_kv(a, t->slot, &k, &v);
        add(l, k, b.kv);
        add(l, v, b.kv);
    } else {
        float *dk, *dv;
        size_t bytes = (size_t)p->kv_heads * p->head_dim * sizeof(float);
        fcp_arena_dkv(a, t->slot, &dk, &dv);
        add(l, dk, bytes);
        add(l, dv, bytes);
    }
}

/* Inputs or outputs: those of the sides that the block holds. In a plan that is not split a block holds both. */
static void add_moved(struct list *l, const fcp_tensors *x, const fcp_arena *a, const fcp_transfer *t,
                      struct token_bytes b) {
    uint32_t holds = a->plan->blocks[t->block].holds;
    bool backward = a->pass == FCP_BACKWARD;
    if (t->cls == FCP_IN) {
        if (holds & FCP_HOLDS_Q) add(l, x->q, b.q);
        if (holds & FCP_HOLDS_KV) {
            add(l, x->k, b.kv);
            add(l, x->v, b.kv);
        }
        if (backward && holds & FCP_HOLDS_Q) {
            add(l, x->o, b.q);
            add(l, x->d_o, b.q);
            add(l, x->lse, b.row);
        }
    } else if (!backward) {
        add(l, x->o, b.q);
        add(l, x->lse, b.row);
    } else {
        if (holds & FCP_HOLDS_Q) add(l, x->dq, b.q);
        if (holds & FCP_HOLDS_KV) {
            add(l, x->dk, b.kv);
            add(l, x->dv, b.kv);
        }
    }
}

uint32_t fcp_segments_block(const fcp_arena *a, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]) {
    struct token_bytes b = token_bytes(a->plan->problem);
    struct list l = {out, 0, t->first, t->tokens};
    if (t->cls == FCP_KV || t->cls == FCP_DKV) {
        add_slot(&l, a, t, b);
        return l.count;
    }
    const fcp_block *block = &a->plan->blocks[t->block]; /* if it holds both sides, they have the same tokens */
    const fcp_tensors home = {.q = a->q, .k = a->k, .v = a->v, .o = a->o, .lse = a->lse, .d_o = a->d_o,
                              .dq = a->dq_out, .dk = a->dk_out, .dv = a->dv_out};
    l.first += a->home_first[fcp_side_of(block)][block->home_slot];
    add_moved(&l, &home, a, t, b);
    return l.count;
}

uint32_t fcp_segments_caller(const fcp_arena *a, const fcp_tensors *tensors, const fcp_transfer *t,
                             fcp_segment out[FCP_SEGMENTS]) {
    struct list l = {out, 0, t->place, t->tokens};
    add_moved(&l, tensors, a, t, token_bytes(a->plan->problem));
    return l.count;
}
