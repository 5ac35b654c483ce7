/* segments.c: which memory a transfer reads or writes, and how a partial result is rounded for its way.
 *
 * Requires: a verified plan, and the rank's arena laid out for the pass.
 * Cost:     constant; rounding and widening are linear in the bytes.
 */
#include "runtime/exec/segments.h"

#include "runtime/base/numeric.h"

struct list {
    fcp_segment *out;
    uint32_t count;
    uint64_t first, tokens; /* the rows to take of each tensor */
};

/* Adds the rows of a tensor in which a token takes `bytes`. */
static void add_segment(struct list *l, const void *tensor, size_t bytes) {
    l->out[l->count++] = (fcp_segment){(char *)(uintptr_t)tensor + l->first * bytes, l->tokens * bytes};
}

/* Bytes of a token, of the heads of one range. */
struct token_bytes {
    size_t q, o, k, v, row; /* of Q, of O, of K, of V, of LSE */
};

static struct token_bytes token_bytes(const fcp_arena *a) {
    const fcp_problem *p = a->plan->problem;
    size_t e = fcp_dtype_size((fcp_dtype)p->dtype), head = p->head_dim * e, value = p->value_dim * e;
    return (struct token_bytes){a->heads * head, a->heads * value, a->kv_heads * head, a->kv_heads * value,
                                a->heads * sizeof(float)};
}

/* Rows of a slot. */
static void add_slot(struct list *l, const fcp_arena *a, const fcp_transfer *t, struct token_bytes b) {
    const fcp_problem *p = a->plan->problem;
    size_t wide = p->head_dim * sizeof(float), value = p->value_dim * sizeof(float); /* a head in float32 */
    fcp_rows_at x;
    char *k, *v;
    float *o, *m, *sum;
    switch (t->cls) {
    case FCP_KV:
        fcp_arena_kv(a, t->slot, &k, &v);
        add_segment(l, k, b.k);
        if (!p->values_in_keys) add_segment(l, v, b.v);
        break;
    case FCP_DKV:
        fcp_arena_dkv(a, t->slot, &m, &sum);
        add_segment(l, m, a->kv_heads * wide);
        if (!p->values_in_keys) add_segment(l, sum, a->kv_heads * value);
        break;
    case FCP_STATE:
        fcp_arena_state(a, t->slot, &o, &m, &sum);
        add_segment(l, o, a->heads * value);
        add_segment(l, m, b.row);
        add_segment(l, sum, b.row);
        break;
    case FCP_Q:
        x = fcp_arena_rows(a, t->slot);
        add_segment(l, x.q, b.q);
        if (a->pass == FCP_FORWARD) break;
        add_segment(l, x.d_o, b.o);
        add_segment(l, x.lse, b.row);
        add_segment(l, x.lse_low, b.row);
        add_segment(l, x.delta, b.row);
        break;
    case FCP_O:
        x = fcp_arena_rows(a, t->slot);
        add_segment(l, x.o, b.o);
        add_segment(l, x.lse, b.row);
        add_segment(l, x.lse_low, b.row);
        break;
    case FCP_DQ: add_segment(l, fcp_arena_rows(a, t->slot).dq, a->heads * wide); break;
    default: add_segment(l, fcp_arena_rows(a, t->slot).dq_out, b.q); /* DQW */
    }
}

uint32_t fcp_segments_block(const fcp_arena *a, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]) {
    struct list l = {out, 0, t->first, t->tokens};
    add_slot(&l, a, t, token_bytes(a));
    return l.count;
}

uint32_t fcp_segments_rounded(const fcp_arena *a, const fcp_transfer *t, void *message,
                              fcp_segment out[FCP_SEGMENTS]) {
    const uint32_t count = fcp_segments_block(a, t, out);
    char *at = message;
    for (uint32_t i = 0; i < count; i++) {
        if (!fcp_is_sum(t, i)) continue;
        out[i] = (fcp_segment){at, out[i].bytes / 2};
        at += out[i].bytes;
    }
    return count;
}

uint64_t fcp_rounded_bytes(const fcp_plan *plan, fcp_pass pass) {
    const fcp_problem *p = plan->problem;
    uint64_t most = 0;
    if (p->wire == FCP_FP32) return 0;
    for (int cls = 0; cls < FCP_CLASSES; cls++) {
        if (!fcp_is_partial((fcp_class)cls) || (cls == FCP_STATE) != (pass == FCP_FORWARD)) continue;
        const uint64_t bytes = fcp_unit_tokens(p, (fcp_class)cls, FCP_LOCAL) * fcp_class_bytes(p, (fcp_class)cls, pass);
        if (bytes > most) most = bytes;
    }
    return most;
}

void fcp_partial_round(const fcp_arena *a, const fcp_transfer *t, const fcp_segment wire[FCP_SEGMENTS]) {
    fcp_segment slot[FCP_SEGMENTS];
    const uint32_t count = fcp_segments_block(a, t, slot);
    for (uint32_t i = 0; i < count; i++)
        if (fcp_is_sum(t, i)) fcp_from_float(FCP_BF16, slot[i].data, wire[i].data, slot[i].bytes / sizeof(float));
}

void fcp_partial_widen(const fcp_arena *a, const fcp_transfer *t, const fcp_segment wire[FCP_SEGMENTS]) {
    fcp_segment slot[FCP_SEGMENTS];
    const uint32_t count = fcp_segments_block(a, t, slot);
    for (uint32_t i = 0; i < count; i++)
        if (fcp_is_sum(t, i)) fcp_to_float(FCP_BF16, wire[i].data, slot[i].data, slot[i].bytes / sizeof(float));
}
