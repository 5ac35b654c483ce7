/* passes.c: verifies the passes of a plan, in two threads if the plan is large.
 *
 * Requires: checked tables; the list of home blocks of each rank (verify.c).
 * Proves:   what verify.c lists for each pass, by the files that it names.
 * Cost:     linear in the plan.
 *
 * What two threads do ("running" a rank is checking its two queues, rank.c):
 *
 *            one thread                                    the other
 *   first    checks the tiles; matches the launches of     matches the launches of the backward pass, which are more
 *            the forward pass; runs the first ranks of
 *            the forward pass until the other is done
 *   then     runs the other ranks of the forward pass,     runs the first ranks of the backward pass
 *            and the last ones of the backward pass
 *
 * The two shares of the second step have about as many instructions. Without a backward pass there is only the second
 * step for two threads: each runs half of the ranks of the forward pass.
 *
 * Findings are kept apart until both threads have ended. So the reported error does not depend on which ends first: it
 * is the first in the order of verify.c.
 */
#include <stdlib.h>

#include "runtime/base/both.h"
#include "runtime/base/carve.h"
#include "runtime/plan/enum_names.h"
#include "runtime/verify/rank_state.h"

/* What came of a step. */
typedef struct outcome {
    fcp_code code;
    fcp_error err;
} outcome;

static bool is_large(const verifier *v) {
    return v->plan->instrs_count + v->plan->transfers_count >= FCP_BOTH_FROM;
}

/* Does both, at the same time if the plan is large. */
static void do_both(const verifier *v, void (*work)(void *), void *first, void *second) {
    if (is_large(v)) {
        fcp_both(work, first, second);
    } else {
        work(first);
        work(second);
    }
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

/* Ranks `first` to `end` - 1 of a pass, with what is known of it; then another share. */
typedef struct share {
    verifier *v;
    uint32_t first, end;
    struct share *next;
    outcome ran;
} share;

static fcp_code run_ranks(verifier *v, uint32_t first, uint32_t end) {
    rank_buffers buffers;
    fcp_code code = fcp_verify_buffers(v, &buffers);
    for (uint32_t r = first; r < end && !code; r++) {
        code = fcp_verify_stopped(v);
        if (!code) code = fcp_verify_layout_of(v, r);
        if (!code) code = fcp_verify_rank(v, &buffers, r);
        if (!code) code = fcp_verify_layout_end(v);
    }
    free(buffers.room);
    return code;
}

static void run_shares(void *given) {
    for (share *s = given; s; s = s->next) {
        if (s->first >= s->end) continue;
        s->v->err = &s->ran.err;
        s->ran.code = run_ranks(s->v, s->first, s->end);
        if (s->ran.code) return; /* what is next comes later in the order, too */
    }
}

/* The first rank of a pass before which there are at least so many of its instructions. */
static uint32_t rank_after(const verifier *v, fcp_pass pass, uint64_t instrs) {
    const uint64_t begin = fcp_stream_of(v->plan, pass, 0, FCP_COMPUTE)->first;
    uint32_t r = 0;
    while (r < v->p->ranks && fcp_stream_of(v->plan, pass, r, FCP_COMPUTE)->first < begin + instrs) r++;
    return r;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Adds what was found at the pass's last ranks to what was found at its first. */
static void join(verifier *v, const verifier *last) {
    pass_facts *f = &v->facts;
    const pass_facts *more = &last->facts;
    f->stages = larger(f->stages, more->stages);
    f->last_stage = larger(f->last_stage, more->last_stage);
    f->slots_max = larger(f->slots_max, more->slots_max);
    f->memory_peak = larger(f->memory_peak, more->memory_peak);
    f->state_tokens += more->state_tokens;
    v->named += last->named;
    if (!v->late.code) v->late = last->late;
}

/* What is known once all ranks of a pass have run. */
static fcp_code finish_pass(verifier *v, fcp_error *err) {
    const pass_facts *f = &v->facts;
    v->err = err;
    fcp_code code = fcp_verify_whole(v);
    if (!code && f->last_stage > f->stages)
        code = fcp_fail(err, FCP_E_VERIFY_ORDER,
                        "%s: an instruction or round of stage %llu, in %llu stages and what follows them",
                        fcp_pass_names[v->pass], (unsigned long long)f->last_stage, (unsigned long long)f->stages);
    if (!code && v->late.code) {
        code = v->late.code;
        if (err) *err = v->late;
    }
    return code;
}

/* --- what a pass begins with -------------------------------------------------------------------------------------- */

typedef struct opening {
    verifier *v;
    verifier *tiles; /* the tiles are looked at first, with this one; NULL: with the other pass */
    outcome looked, opened, matched;
    share ranks;     /* are run at last */
} opening;

static fcp_code open_pass(verifier *v) {
    v->facts.stages = 1; /* there is always a stage 0, if only to copy in and out */
    const fcp_carved tables[] = {
        {&v->attended, (size_t)v->plan->visits_count + 1, 1},
        {&v->moves, v->p->ranks, sizeof *v->moves},
        {&v->made, (size_t)v->plan->blocks_count + 1, sizeof *v->made},
        {&v->peer_first, (size_t)v->p->ranks + 1, sizeof *v->peer_first},
    };
    if (!(v->pass_room = FCP_CARVE(tables)))
        return fcp_fail(v->err, FCP_E_NO_MEMORY, "out of memory to verify a plan of %u ranks", v->p->ranks);
    fcp_code code = fcp_verify_layout_open(v);
    return code ? code : fcp_verify_attended(v);
}

static void open_and_match(void *given) {
    opening *o = given;
    if (o->tiles) {
        o->tiles->err = &o->looked.err;
        if ((o->looked.code = fcp_verify_tiles(o->tiles))) return;
    }
    o->v->err = &o->opened.err;
    if ((o->opened.code = open_pass(o->v))) return;
    o->v->err = &o->matched.err;
    if (!(o->matched.code = fcp_verify_match(o->v))) run_shares(&o->ranks);
}

/* --- both passes -------------------------------------------------------------------------------------------------- */

static fcp_code report(const outcome *o, fcp_error *err) {
    if (o->code && err) *err = o->err;
    return o->code;
}

/* Returns how many ranks the thread of the forward pass runs before the other thread has matched the launches of the
 * backward pass. Time is counted in instructions matched: checking a tile takes half as long as that, and running an
 * instruction twice as long. */
static uint32_t ranks_at_once(const verifier *v) {
    const uint64_t ahead = fcp_stream_of(v->plan, FCP_BACKWARD, 0, FCP_COMPUTE)->first;
    const uint64_t back = v->plan->instrs_count - ahead, busy = ahead + v->plan->tiles_count / 2;
    return busy < back ? rank_after(v, FCP_FORWARD, (back - busy) / 2) : 0;
}

/* The share of another thread: the last ranks of a pass. `rest` becomes a copy of the verifier with a layout of its
 * own, because the layout's scratch memory is for one rank at a time. */
static share share_last(const verifier *of, uint32_t first, verifier *rest) {
    *rest = *of;
    rest->named = rest->facts.state_tokens = 0; /* these are added up */
    rest->layout = NULL;
    return (share){.v = rest, .first = first, .end = of->p->ranks};
}

static void run_shares_both(share *first, share *second, share *last) {
    last->v->err = &last->ran.err;
    last->ran.code = last->first < last->end ? fcp_verify_layout_open(last->v) : FCP_OK;
    if (!last->ran.code) do_both(last->v, run_shares, first, second);
    fcp_verify_layout_close(last->v);
}

/* Runs the ranks of both passes, from `from` on in the forward pass. All launches are right. */
static fcp_code run_both(verifier *ahead, uint32_t from, verifier *back, fcp_error *err) {
    const uint32_t ranks = ahead->p->ranks;
    const fcp_stream *of = from < ranks ? fcp_stream_of(ahead->plan, FCP_FORWARD, from, FCP_COMPUTE)
                                        : fcp_stream_of(ahead->plan, FCP_BACKWARD, 0, FCP_COMPUTE);
    const uint64_t each = (ahead->plan->instrs_count - of->first) / 2;
    const uint32_t cut = is_large(ahead) ? rank_after(back, FCP_BACKWARD, each) : ranks;
    verifier rest;
    share last = share_last(back, cut, &rest), first = {.v = back, .end = cut};
    share forward = {.v = ahead, .first = from, .end = ranks, .next = &last};
    run_shares_both(&forward, &first, &last);
    fcp_code code = report(&forward.ran, err);
    if (!code) code = finish_pass(ahead, err);
    if (!code) code = report(&first.ran, err);
    if (!code) code = report(&last.ran, err);
    if (code) return code;
    join(back, &rest);
    return finish_pass(back, err);
}

/* Runs the ranks of the forward pass alone. */
static fcp_code run_forward(verifier *ahead, uint32_t from, fcp_error *err) {
    const uint32_t ranks = ahead->p->ranks;
    const uint32_t half = is_large(ahead) ? rank_after(ahead, FCP_FORWARD, ahead->plan->instrs_count / 2) : ranks;
    verifier rest;
    share last = share_last(ahead, half > from ? half : from, &rest);
    share first = {.v = ahead, .first = from, .end = last.first};
    run_shares_both(&last, &first, &last);
    fcp_code code = report(&first.ran, err);
    if (!code) code = report(&last.ran, err);
    if (code) return code;
    join(ahead, &rest);
    return finish_pass(ahead, err);
}

fcp_code fcp_verify_passes(verifier *v, verifier of[FCP_PASSES]) {
    const bool two = v->p->passes & 1u << FCP_BACKWARD;
    fcp_error *const err = v->err;
    opening ahead = {.v = &of[FCP_FORWARD], .tiles = v}, back = {.v = &of[FCP_BACKWARD]};
    ahead.ranks = (share){.v = ahead.v, .end = two && is_large(v) ? ranks_at_once(v) : 0};
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        of[pass] = *v;
        of[pass].pass = (fcp_pass)pass;
    }
    void *room;
    fcp_code code = fcp_verify_match_open(of, &room);
    if (code) return code;
    if (two) do_both(v, open_and_match, &ahead, &back);
    else open_and_match(&ahead);
    free(room);
    v->err = err;
    code = report(&ahead.looked, err);
    if (!code) code = report(&ahead.opened, err);
    if (!code) code = report(&back.opened, err);
    if (!code) code = report(&ahead.matched, err);
    if (!code) code = report(&ahead.ranks.ran, err);
    if (code) return code;
    of[FCP_BACKWARD].visits_away = of[FCP_FORWARD].visits_away; /* found in the forward pass */
    if (two && !back.matched.code) return run_both(ahead.v, ahead.ranks.end, back.v, err);
    code = run_forward(ahead.v, ahead.ranks.end, err);
    return code ? code : report(&back.matched, err);
}

void fcp_verify_passes_close(verifier of[FCP_PASSES]) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        verifier *v = &of[pass];
        free(v->pass_room);
        free(v->peers);
        fcp_verify_layout_close(v);
    }
}
