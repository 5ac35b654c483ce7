/* check_halves.c: checks plans whose work moves in two halves. What a rank receives before some stage S is the first
 * half, and what it receives from S on the second half, so it can compute with one half while the other moves
 * (FORMAT.md: Halves).
 *
 * Example:  a rank gets keys of block 3 in stages 1 and 2, and of block 5 in stage 4. S is 4: block 3 is of the first
 *           half, and block 5 of the second. If a unit of block 3 came in stage 5, too, the first half could not be
 *           computed before the second has moved.
 *
 * Requires: both passes are verified.
 * Proves:   - There is a stage S from which on all DEPENDENT rounds, and no others, have the flag SECOND. It is the
 *             same in both passes.
 *           - Keys or queries come in stage S, and in the stage before it.
 *           - All units of a block that come to a rank are of one half.
 * Not asked: how much work each half has. That is a matter of balance, and not of right or wrong.
 * Cost:     a look at the rounds; for a plan with halves, linear in the forward pass's transfers.
 */
#include <stdlib.h>

#include "runtime/plan/enum_names.h"
#include "runtime/verify/verify_parts.h"

enum { OF_KV, OF_Q, BROUGHT }; /* the classes that come in halves */

typedef struct halves {
    const verifier *v;
    uint32_t second;         /* the stage with which the second half begins */
    uint64_t *came[BROUGHT]; /* per block: 2 * (rank + 1) + half, of the rank to which it came last */
    bool at_second, before;  /* something comes in the stage `second`, and in the one before */
} halves;

/* Finds the stage from which on dependent rounds of a pass have the flag; 0: none has it. */
static fcp_code second_stage(const verifier *v, fcp_pass pass, uint32_t *out_stage) {
    const fcp_round *rounds = v->plan->rounds + v->plan->round_starts[pass];
    const uint32_t count = v->plan->round_starts[pass + 1] - v->plan->round_starts[pass];
    uint32_t first = 0;
    *out_stage = 0;
    while (first < count && !(rounds[first].flags & FCP_ROUND_SECOND)) first++;
    if (first == count) return FCP_OK;
    *out_stage = rounds[first].stage;
    for (uint32_t i = 0; i < count; i++) {
        const fcp_round *r = &rounds[i];
        const bool flag = r->flags & FCP_ROUND_SECOND;
        if (flag != (r->kind == FCP_ROUND_DEPENDENT && r->stage >= *out_stage))
            return fcp_fail(v->err, FCP_E_VERIFY_HALVES,
                            "%s: round %u (%s, stage %u) is%s marked as one of the second half, which begins with "
                            "stage %u",
                            fcp_pass_names[pass], i, fcp_round_names[r->kind], r->stage, flag ? "" : " not",
                            *out_stage);
    }
    return FCP_OK;
}

/* Notes what comes to a rank, and in which half. */
static fcp_code read_arrivals(halves *h, uint32_t rank) {
    const fcp_plan *plan = h->v->plan;
    const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMM);
    for (uint32_t i = 0; i < s->count; i++) {
        const fcp_instr *x = &plan->instrs[s->first + i];
        if (x->op != FCP_OP_LAUNCH) continue;
        const uint64_t half = x->stage >= h->second, mark = 2 * ((uint64_t)rank + 1) + half;
        for (uint32_t j = x->a; j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            if (t->dir != FCP_RECV || (t->cls != FCP_KV && t->cls != FCP_Q)) continue;
            uint64_t *came = &h->came[t->cls == FCP_KV ? OF_KV : OF_Q][t->block];
            if (*came == (mark ^ 1))
                return fcp_verify_fail(h->v, FCP_E_VERIFY_HALVES, rank, FCP_COMM, i,
                                       "%s of block %u come in both halves", fcp_class_texts[t->cls], t->block);
            *came = mark;
            h->at_second |= x->stage == h->second;
            h->before |= x->stage == h->second - 1;
        }
    }
    return FCP_OK;
}

static fcp_code judge_ranks(halves *h) {
    fcp_code code = FCP_OK;
    for (uint32_t r = 0; r < h->v->p->ranks && !code; r++) {
        code = fcp_verify_stopped(h->v);
        if (!code) code = read_arrivals(h, r);
    }
    if (!code && !(h->at_second && h->before))
        code = fcp_fail(h->v->err, FCP_E_VERIFY_HALVES,
                        "the second half begins with stage %u, but no keys and no queries come in stage %u", h->second,
                        h->at_second ? h->second - 1 : h->second);
    return code;
}

fcp_code fcp_verify_halves(const verifier *v, bool *out_halves) {
    uint32_t stage[FCP_PASSES] = {0};
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        fcp_code code = second_stage(v, (fcp_pass)pass, &stage[pass]);
        if (code) return code;
    }
    if (v->p->passes & 1u << FCP_BACKWARD && stage[FCP_FORWARD] != stage[FCP_BACKWARD])
        return fcp_fail(v->err, FCP_E_VERIFY_HALVES,
                        "the second half begins with stage %u forward, and with stage %u backward; 0: there is none",
                        stage[FCP_FORWARD], stage[FCP_BACKWARD]);
    *out_halves = stage[FCP_FORWARD] != 0;
    if (!*out_halves) return FCP_OK;
    halves h = {.v = v, .second = stage[FCP_FORWARD]};
    fcp_code code = FCP_OK;
    for (int i = 0; i < BROUGHT; i++)
        if (!(h.came[i] = calloc((size_t)v->plan->blocks_count, sizeof *h.came[i])))
            code = fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify the halves of %llu blocks",
                            (unsigned long long)v->plan->blocks_count);
    if (!code) code = judge_ranks(&h);
    for (int i = 0; i < BROUGHT; i++) free(h.came[i]);
    return code;
}
