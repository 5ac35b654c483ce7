/* host_reshuffle.c: moves the tokens of bundles between the caller's tensors, messages and home blocks, in host memory.
 *
 * Requires: a verified plan, its bundles, and arenas laid out for the pass.
 * Cost:     each byte that moves is read once and written once. A run of tokens is one copy if its block has all heads,
 *           else one copy for each row and chunk of heads.
 */
#include "runtime/exec/host_reshuffle.h"
#include "runtime/plan/sides.h"

#include <string.h>

struct list {
    const fcp_problem *p;
    const fcp_arena *a;
    const fcp_tensors *caller;
    fcp_moved *out;
    uint32_t count;
};

static void add_tensor(struct list *l, void *home, const void *caller, bool of_keys, size_t head) {
    size_t heads = of_keys ? l->p->range_kv : (size_t)l->p->range_kv * l->p->range_sub;
    size_t all = of_keys ? l->p->kv_heads : l->p->heads;
    l->out[l->count++] = (fcp_moved){home, (void *)(uintptr_t)caller, heads * head, all * head, head, of_keys};
}

uint32_t fcp_moved_tensors(const fcp_arena *a, const fcp_tensors *caller, const fcp_transfer *t,
                           fcp_moved out[FCP_MOVED]) {
    static const fcp_tensors none;
    const fcp_tensors *x = caller ? caller : &none;
    const fcp_problem *p = a->plan->problem;
    size_t e = fcp_dtype_size((fcp_dtype)p->dtype), head = p->head_dim * e, value = p->value_dim * e;
    bool split = fcp_plan_split(a->plan), backward = a->pass == FCP_BACKWARD, in = t->cls == FCP_IN;
    bool q = !split || t->side == FCP_QUERIES, kv = (!split || t->side == FCP_KEYS) && !(in && a->keys_kept);
    struct list l = {p, a, x, out, 0};
    if (in || backward) {
        if (q) add_tensor(&l, in ? a->q : a->dq_out, in ? x->q : x->dq, false, head);
        if (kv) {
            add_tensor(&l, in ? a->k : a->dk_out, in ? x->k : x->dk, true, head);
            if (!p->values_in_keys) add_tensor(&l, in ? a->v : a->dv_out, in ? x->v : x->dv, true, value);
        }
    }
    if (q && in == backward) { /* results of the forward pass, which the backward pass reads */
        add_tensor(&l, a->o, x->o, false, value);
        if (backward) add_tensor(&l, a->d_o, x->d_o, false, value);
        add_tensor(&l, a->lse, x->lse, false, sizeof(float));
        add_tensor(&l, a->lse_low, x->lse_low, false, sizeof(float));
        if (backward && p->lse_gradient) add_tensor(&l, a->d_lse, x->d_lse, false, sizeof(float));
    }
    return l.count;
}

fcp_slice fcp_slice_of(const fcp_plan *plan, const fcp_block *block, const fcp_moved *tensor) {
    const fcp_heads *h = &plan->heads[block->heads];
    uint32_t shared = tensor->of_keys ? 1 : plan->problem->heads / plan->problem->kv_heads;
    uint32_t first = tensor->of_keys ? 0 : h->sub_first, count = tensor->of_keys ? 1 : h->sub_count;
    size_t stride = shared * tensor->head;
    fcp_slice s = {((size_t)h->kv_first * shared + first) * tensor->head, count * tensor->head, stride, h->kv_count};
    if (count < shared) return s;
    s.bytes *= s.count; /* they lie next to each other */
    s.count = 1;
    return s;
}

uint64_t fcp_home_token(const fcp_arena *a, const fcp_bundle_run *run, bool of_keys) {
    return a->home_first[of_keys ? FCP_KEYS : FCP_QUERIES][a->plan->blocks[run->block].home_slot] + run->first;
}

uint64_t fcp_message_bytes(const fcp_plan *plan, fcp_pass pass, const fcp_transfer *t) {
    return t->tokens * fcp_held_bytes(plan->problem, fcp_moved_holds(plan, t), (fcp_class)t->cls, pass);
}

uint64_t fcp_messages_bytes(const fcp_plan *plan, fcp_pass pass) {
    const fcp_problem *p = plan->problem;
    uint64_t in = fcp_class_bytes(p, FCP_IN, pass), out = fcp_class_bytes(p, FCP_OUT, pass);
    uint64_t most = (in > out ? in : out) * p->unit;
    most = (most + FCP_MESSAGE_ALIGN - 1) / FCP_MESSAGE_ALIGN * FCP_MESSAGE_ALIGN;
    for (uint64_t i = 0; i < plan->rounds_count; i++)
        if (plan->rounds[i].kind == FCP_ROUND_IN || plan->rounds[i].kind == FCP_ROUND_OUT)
            return most * FCP_FABRICS * FCP_DIRECTION_COUNT;
    return 0;
}

/* Copies rows between memory where they are dense and a tensor of the caller's. */
static void copy_rows(const fcp_moved *x, const fcp_slice *s, char *dense, char *tensor, uint32_t tokens,
                      bool to_dense) {
    if (s->count == 1 && s->bytes == x->full) {
        memcpy(to_dense ? dense : tensor, to_dense ? tensor : dense, tokens * x->full);
        return;
    }
    for (uint32_t i = 0; i < tokens; i++, tensor += x->full)
        for (uint32_t j = 0; j < s->count; j++, dense += s->bytes) {
            char *theirs = tensor + s->offset + j * s->stride;
            memcpy(to_dense ? dense : theirs, to_dense ? theirs : dense, s->bytes);
        }
}

/* Moves a message, or, if it is NULL, what a COPY moves. `to_home`: towards home blocks and messages to be sent. */
static void move(const fcp_arena *a, const fcp_tensors *caller, const fcp_bundles *bundles, const fcp_transfer *t,
                 char *message, bool packs) {
    fcp_moved tensors[FCP_MOVED];
    uint32_t count = fcp_moved_tensors(a, caller, t, tensors);
    const fcp_bundle bundle = fcp_bundle_of(bundles, a->rank, t);
    bool at_caller = fcp_at_caller(t);
    for (uint32_t j = 0; j < count; j++) {
        const fcp_moved *x = &tensors[j];
        fcp_bundle_run run;
        for (uint32_t i = 0; fcp_bundle_next(&bundle, t, &i, &run);) {
            /* at the caller's side of a message the block is at home elsewhere */
            bool here = !message || !at_caller;
            char *home = here ? (char *)x->home + fcp_home_token(a, &run, x->of_keys) * x->row : NULL;
            char *part = message ? message + (size_t)(run.at - t->first) * x->row : home;
            if (!at_caller) {
                memcpy(packs ? part : home, packs ? home : part, run.tokens * x->row);
                continue;
            }
            if (!x->caller) { /* an optional tensor */
                if (packs) memset(part, 0, run.tokens * x->row);
                continue;
            }
            const fcp_slice slice = fcp_slice_of(a->plan, &a->plan->blocks[run.block], x);
            copy_rows(x, &slice, part, (char *)x->caller + (size_t)run.place * x->full, run.tokens, packs);
        }
        if (message) message += t->tokens * x->row;
    }
}

void fcp_message_pack(const fcp_arena *a, const fcp_tensors *caller, const fcp_bundles *bundles, const fcp_transfer *t,
                      void *message) {
    move(a, caller, bundles, t, message, true);
}

void fcp_message_unpack(const fcp_arena *a, const fcp_tensors *caller, const fcp_bundles *bundles,
                        const fcp_transfer *t, const void *message) {
    move(a, caller, bundles, t, (char *)(uintptr_t)message, false);
}

void fcp_bundle_copy(const fcp_arena *a, const fcp_tensors *caller, const fcp_bundles *bundles, const fcp_transfer *t) {
    move(a, caller, bundles, t, NULL, t->cls == FCP_IN);
}
