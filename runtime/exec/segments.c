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
    size_t kv; /* of K or V */
};

static struct token_bytes token_bytes(const fcp_problem *p) {
    size_t e = fcp_dtype_size((fcp_dtype)p->dtype);
    return (struct token_bytes){(size_t)p->kv_heads * p->head_dim * e};
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

uint32_t fcp_segments_block(const fcp_arena *a, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]) {
    struct list l = {out, 0, t->first, t->tokens};
    add_slot(&l, a, t, token_bytes(a->plan->problem));
    return l.count;
}
