/* segments.c: which memory a transfer reads or writes.
 *
 * Requires: a verified plan, and the rank's arena laid out for the pass. Cost: constant; copying is linear in bytes.
 */
#include "runtime/exec/segments.h"

#include <string.h>

#include "runtime/exec/tensors.h"

struct list {
    fcp_segment *out;
    uint32_t count;
    uint64_t first, tokens; /* the rows to take of each tensor */
};

/* Adds the rows of a tensor in which a token takes `bytes`. */
static void add(struct list *l, const void *tensor, size_t bytes) {
    l->out[l->count++] = (fcp_segment){(char *)(uintptr_t)tensor + l->first * bytes, l->tokens * bytes};
}

/* Bytes of a token, of the heads of one range. */
struct token_bytes {
    size_t q, kv, row; /* of Q, of K or V, of LSE */
};

static size_t head_bytes(const fcp_problem *p) { return p->head_dim * fcp_dtype_size((fcp_dtype)p->dtype); }

static struct token_bytes token_bytes(const fcp_arena *a) {
    size_t number = head_bytes(a->plan->problem);
    return (struct token_bytes){a->heads * number, a->kv_heads * number, a->heads * sizeof(float)};
}

/* Rows of a slot. */
static void add_slot(struct list *l, const fcp_arena *a, const fcp_transfer *t, struct token_bytes b) {
    size_t wide = (size_t)a->plan->problem->head_dim * sizeof(float); /* a head in float32 */
    fcp_rows_at x;
    char *k, *v;
    float *o, *m, *sum;
    switch (t->cls) {
    case FCP_KV:
        fcp_arena_kv(a, t->slot, &k, &v);
        add(l, k, b.kv);
        add(l, v, b.kv);
        break;
    case FCP_DKV:
        fcp_arena_dkv(a, t->slot, &m, &sum);
        add(l, m, a->kv_heads * wide);
        add(l, sum, a->kv_heads * wide);
        break;
    case FCP_STATE:
        fcp_arena_state(a, t->slot, &o, &m, &sum);
        add(l, o, a->heads * wide);
        add(l, m, b.row);
        add(l, sum, b.row);
        break;
    case FCP_Q:
        x = fcp_arena_rows(a, t->slot);
        add(l, x.q, b.q);
        if (a->pass == FCP_FORWARD) break;
        add(l, x.d_o, b.q);
        add(l, x.lse, b.row);
        add(l, x.delta, b.row);
        break;
    case FCP_O:
        x = fcp_arena_rows(a, t->slot);
        add(l, x.o, b.q);
        add(l, x.lse, b.row);
        break;
    case FCP_DQ: add(l, fcp_arena_rows(a, t->slot).dq, a->heads * wide); break;
    default: add(l, fcp_arena_rows(a, t->slot).dq_out, b.q); /* DQW */
    }
}

/* The tensors of a transfer of inputs or outputs: those of the sides that the block holds. In a plan that is not split
 * a block holds both. */
static uint32_t moved_tensors(const fcp_arena *a, const fcp_transfer *t, fcp_tensor out[FCP_SEGMENTS]) {
    static const struct {
        uint8_t pass, cls, holds, tensor;
    } all[] = {
        {FCP_FORWARD, FCP_IN, FCP_HOLDS_Q, FCP_TENSOR_Q},
        {FCP_FORWARD, FCP_IN, FCP_HOLDS_KV, FCP_TENSOR_K},
        {FCP_FORWARD, FCP_IN, FCP_HOLDS_KV, FCP_TENSOR_V},
        {FCP_FORWARD, FCP_OUT, FCP_HOLDS_Q, FCP_TENSOR_O},
        {FCP_FORWARD, FCP_OUT, FCP_HOLDS_Q, FCP_TENSOR_LSE},
        {FCP_BACKWARD, FCP_IN, FCP_HOLDS_Q, FCP_TENSOR_Q},
        {FCP_BACKWARD, FCP_IN, FCP_HOLDS_KV, FCP_TENSOR_K},
        {FCP_BACKWARD, FCP_IN, FCP_HOLDS_KV, FCP_TENSOR_V},
        {FCP_BACKWARD, FCP_IN, FCP_HOLDS_Q, FCP_TENSOR_O},
        {FCP_BACKWARD, FCP_IN, FCP_HOLDS_Q, FCP_TENSOR_DO},
        {FCP_BACKWARD, FCP_IN, FCP_HOLDS_Q, FCP_TENSOR_LSE},
        {FCP_BACKWARD, FCP_OUT, FCP_HOLDS_Q, FCP_TENSOR_DQ},
        {FCP_BACKWARD, FCP_OUT, FCP_HOLDS_KV, FCP_TENSOR_DK},
        {FCP_BACKWARD, FCP_OUT, FCP_HOLDS_KV, FCP_TENSOR_DV},
    };
    uint32_t holds = a->plan->blocks[t->block].holds, count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].pass == a->pass && all[i].cls == t->cls && all[i].holds & holds)
            out[count++] = (fcp_tensor)all[i].tensor;
    return count;
}

uint32_t fcp_segments_block(const fcp_arena *a, const fcp_transfer *t, fcp_segment out[FCP_SEGMENTS]) {
    struct token_bytes b = token_bytes(a);
    struct list l = {out, 0, t->first, t->tokens};
    if (t->cls != FCP_IN && t->cls != FCP_OUT) {
        add_slot(&l, a, t, b);
        return l.count;
    }
    const fcp_block *block = &a->plan->blocks[t->block]; /* if it holds both sides, they have the same tokens */
    const fcp_tensors home = {.q = a->q, .k = a->k, .v = a->v, .o = a->o, .lse = a->lse, .d_o = a->d_o,
                              .dq = a->dq_out, .dk = a->dk_out, .dv = a->dv_out};
    fcp_tensor moved[FCP_SEGMENTS];
    uint32_t count = moved_tensors(a, t, moved);
    l.first += a->home_first[fcp_side_of(block)][block->home_slot];
    for (uint32_t i = 0; i < count; i++)
        add(&l, fcp_tensors_get(&home, moved[i]),
            moved[i] == FCP_TENSOR_LSE ? b.row : fcp_tensor_of_keys(moved[i]) ? b.kv : b.q);
    return count;
}

uint32_t fcp_segments_caller(const fcp_arena *a, const fcp_tensors *tensors, const fcp_transfer *t,
                             fcp_strided out[FCP_SEGMENTS]) {
    const fcp_problem *p = a->plan->problem;
    const fcp_heads *range = &a->plan->heads[a->plan->blocks[t->block].heads];
    const size_t group = p->heads / p->kv_heads;
    fcp_tensor moved[FCP_SEGMENTS];
    uint32_t count = moved_tensors(a, t, moved);
    for (uint32_t i = 0; i < count; i++) {
        bool keys = fcp_tensor_of_keys(moved[i]);
        size_t head = moved[i] == FCP_TENSOR_LSE ? sizeof(float) : head_bytes(p);
        size_t shared = keys ? 1 : group, taken = keys ? 1 : p->range_sub; /* of each KV head: all heads, the range's */
        size_t row = p->kv_heads * shared * head;
        size_t before = (range->kv_first * shared + (keys ? 0 : range->sub_first)) * head;
        fcp_strided *s = &out[i];
        *s = (fcp_strided){(char *)fcp_tensors_get(tensors, moved[i]) + t->place * row + before, t->tokens, row,
                           p->range_kv, shared * head, taken * head};
        if (taken == shared) s->bytes *= s->runs, s->runs = 1;
        if (s->bytes * s->runs == row) s->bytes *= t->tokens, s->rows = s->runs = 1;
    }
    return count;
}

void fcp_strided_copy(const fcp_strided *s, void *dense, bool back) {
    char *at = dense;
    for (uint64_t row = 0; s->bytes && row < s->rows; row++)
        for (uint32_t run = 0; run < s->runs; run++, at += s->bytes) {
            char *theirs = s->data + row * s->row_stride + run * s->run_stride;
            if (back) memcpy(theirs, at, s->bytes);
            else memcpy(at, theirs, s->bytes);
        }
}
