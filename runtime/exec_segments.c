/* exec_segments.c: which memory a transfer reads or writes.
 *
 * Requires: a verified plan; the rank's arena laid out for the pass. Gives: up to FCP_SEGMENTS stretches of whole
 * tokens.
 * Cost: constant. Units: tokens in, bytes out.
 */
#include "exec.h"

struct list {
    fcp_segment *out;
    uint32_t count;
    uint64_t first, tokens; /* of each tensor: the rows to take */
};

/* Rows of a tensor whose token has `bytes`. */
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

/* Units between slots. */
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

uint32_t fcp_segments_block(const fcp_rank *rank, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]) {
    const fcp_arena *a = &rank->arena;
    struct token_bytes b = token_bytes(a->plan->problem);
    struct list l = {out, 0, t->first, t->tokens};
    if (t->cls == FCP_KV || t->cls == FCP_DKV) {
        add_slot(&l, a, t, b);
        return l.count;
    }
    l.first += a->home_first[a->plan->blocks[t->block].home_slot];
    if (t->cls == FCP_IN) {
        add(&l, a->q, b.q);
        add(&l, a->k, b.kv);
        add(&l, a->v, b.kv);
        if (a->pass == FCP_BACKWARD) {
            add(&l, a->o, b.q);
            add(&l, a->d_o, b.q);
            add(&l, a->lse, b.row);
        }
    } else if (a->pass == FCP_FORWARD) {
        add(&l, a->o, b.q);
        add(&l, a->lse, b.row);
    } else {
        add(&l, a->dq_out, b.q);
        add(&l, a->dk_out, b.kv);
        add(&l, a->dv_out, b.kv);
    }
    return l.count;
}

uint32_t fcp_segments_caller(const fcp_rank *rank, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]) {
    const fcp_tensors *x = rank->tensors;
    struct token_bytes b = token_bytes(rank->arena.plan->problem);
    struct list l = {out, 0, t->place, t->tokens};
    if (t->cls == FCP_IN) {
        add(&l, x->q, b.q);
        add(&l, x->k, b.kv);
        add(&l, x->v, b.kv);
        if (rank->arena.pass == FCP_BACKWARD) {
            add(&l, x->o, b.q);
            add(&l, x->d_o, b.q);
            add(&l, x->lse, b.row);
        }
    } else if (rank->arena.pass == FCP_FORWARD) {
        add(&l, x->o, b.q);
        add(&l, x->lse, b.row);
    } else {
        add(&l, x->dq, b.q);
        add(&l, x->dk, b.kv);
        add(&l, x->dv, b.kv);
    }
    return l.count;
}
