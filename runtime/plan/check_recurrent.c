/* check_recurrent.c: checks that the tables of layers that recur can be read (recurrent.h).
 *
 * Requires: an indexed plan of which fcp_plan_check has checked everything else, an extract's own tables, too. So the
 *           layout can be walked. The contents of these tables may be hostile.
 * Gives:    every index, count, sum and enum in them is in range; operands that a step does not use, and pads, are 0.
 *            - Streams lie one behind the other and hold every step. Every record of halo_rows is named by one step,
 *              once. So walking them is linear.
 *            - Registers are those of the rank. Nothing is written to a summary, nor to what the step reads, and what
 *              is whole lies where there is room for A.
 *            - The bytes of a message, and of all registers of a rank, fit in 64 bits.
 *            Whether the steps do the right thing is for verify/networks.c.
 * Cost:     linear in these tables, and one walk over each rank's layout; 4 bytes for each rank, and one for
 *           each record of halo_rows.
 * Errors:   FCP_E_PLAN_FORMAT, FCP_E_NO_MEMORY, FCP_E_INTERRUPTED.
 */
#include <stdlib.h>

#include "runtime/base/saturate.h"
#include "runtime/base/stop.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/file.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan_check.h"

typedef unsigned long long ull;

enum {
    MAX_LAYERS = 4096,
    MAX_TIMES = 1 << 20,
    MAX_HALO = 1 << 20,
    MAX_CHANNELS = 1 << 24,
    MAX_SIDE = 65536,
    MAX_ROUNDS = 1 << 27
};
static const uint64_t max_bytes = UINT64_C(1) << 62;

typedef struct checking {
    const fcp_plan *plan;
    fcp_error *err;
    uint32_t ranks;      /* that have streams: all, or an extract's own */
    uint32_t *stretches; /* of each of them */
    uint8_t *named;      /* for each record of halo_rows: 1 if a step names it */
    uint64_t next_step;
    uint64_t rows_left; /* records that no step has named */
} checking;

static fcp_code check_layer(const checking *c, uint32_t number) {
    const fcp_recurrent *x = &c->plan->recurrent[number];
    if (!(x->kind < FCP_LAYER_KINDS && x->times > 0 && x->times <= MAX_TIMES))
        return malformed(c->err, "recurrent layer %u: kind %u, %u times", number, x->kind, x->times);
    const bool halo = x->kind == FCP_HALO;
    if (halo && !(x->before <= MAX_HALO && x->after <= MAX_HALO && x->before + x->after > 0 && x->channels > 0 &&
                  x->channels <= MAX_CHANNELS))
        return malformed(c->err, "recurrent layer %u: a halo of %u and %u rows of %u channels", number, x->before,
                         x->after, x->channels);
    if (halo && (x->heads || x->rows || x->columns || x->decay || x->reverse || x->parts != 1 || x->shape))
        return malformed(c->err,
                         "recurrent layer %u: a halo with %u heads of %u x %u, decay %u, reverse %u, %u parts, "
                         "shape %u",
                         number, x->heads, x->rows, x->columns, x->decay, x->reverse, x->parts, x->shape);
    if (!halo && !(x->heads > 0 && x->heads <= MAX_SIDE && x->rows > 0 && x->rows <= MAX_SIDE && x->columns > 0 &&
                   x->columns <= MAX_SIDE && x->decay < FCP_DECAYS && x->reverse <= 1 && x->parts > 0 &&
                   x->heads % x->parts == 0 && x->shape < FCP_SCAN_SHAPES))
        return malformed(c->err, "recurrent layer %u: %u heads of %u x %u in %u parts, decay %u, reverse %u, shape %u",
                         number, x->heads, x->rows, x->columns, x->parts, x->decay, x->reverse, x->shape);
    if (!halo && (x->before || x->after || x->channels))
        return malformed(c->err, "recurrent layer %u: a scan with a halo of %u and %u rows of %u channels", number,
                         x->before, x->after, x->channels);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const bool there = c->plan->problem->passes >> pass & 1 && !(halo && pass == FCP_BACKWARD);
        const uint64_t most = c->plan->extract ? MAX_ROUNDS : c->plan->steps_count; /* each round is of some step */
        if (x->rounds[pass] > (there ? most : 0) || x->bound[pass] > x->rounds[pass])
            return malformed(c->err,
                             "recurrent layer %u: %u rounds in pass %d, for which %u are needed; there are %llu "
                             "steps",
                             number, x->rounds[pass], pass, x->bound[pass], (ull)c->plan->steps_count);
    }
    return FCP_OK;
}

/* Where a stream is. */
typedef struct stream_place {
    const fcp_recurrent *layer;
    uint32_t rounds, rank; /* rank: its place among those that have streams */
    uint64_t registers;    /* scan; 0 to stretches - 1 are summaries */
    uint32_t stretches;
    uint64_t tokens; /* halo: of the rank */
} stream_place;

/* A step of a scan. */
static bool scan_step(const stream_place *at, const fcp_step *s) {
    const uint64_t first = at->stretches, temporary = 2 * first, all = at->registers;
    const bool written = s->out >= first && s->out < all && (!s->whole || s->out >= temporary);
    const bool read = s->a < all && (!s->whole || s->a < first || s->a >= temporary);
    if (s->part >= at->layer->parts || s->whole > 1) return false;
    switch (s->op) {
    case FCP_STEP_SEND: return read && !s->b && !s->out;
    case FCP_STEP_RECV: return written && !s->a && !s->b;
    case FCP_STEP_COMBINE:
        return read && written && (s->b < first || (s->b >= temporary && s->b < all)) && s->out != s->a &&
               s->out != s->b;
    case FCP_STEP_COPY: return read && written && !s->b && !s->whole && s->out != s->a;
    default: return false;
    }
}

/* `count` records of halo_rows from `first` on, which no other step names: rows below `limit`. */
static bool sound_rows(checking *c, uint64_t first, uint64_t count, uint64_t limit) {
    if (!count || first > c->plan->halo_rows_count || count > c->plan->halo_rows_count - first) return false;
    for (uint64_t i = first; i < first + count; i++) {
        const fcp_halo_rows *r = &c->plan->halo_rows[i];
        if (c->named[i] || !r->count || r->pad || r->count > limit || r->first > limit - r->count) return false;
        c->named[i] = 1;
    }
    c->rows_left -= count;
    return true;
}

/* A step of a halo. */
static bool halo_step(checking *c, const stream_place *at, const fcp_step *s) {
    const uint64_t halo = at->stretches * ((uint64_t)at->layer->before + at->layer->after);
    if (s->out || s->part || s->whole) return false;
    switch (s->op) {
    case FCP_STEP_SEND: return sound_rows(c, s->a, s->b, at->tokens);
    case FCP_STEP_RECV: return sound_rows(c, s->a, s->b, halo);
    case FCP_STEP_COPY:
        return sound_rows(c, s->a, 1, at->tokens) && sound_rows(c, s->b, 1, halo) &&
               c->plan->halo_rows[s->a].count == c->plan->halo_rows[s->b].count;
    default: return false;
    }
}

static fcp_code check_stream(checking *c, const fcp_step_stream *stream, const stream_place *at) {
    const fcp_plan *plan = c->plan;
    for (uint64_t end = c->next_step + stream->count; c->next_step < end; c->next_step++) {
        const fcp_step *s = &plan->steps[c->next_step];
        const bool moves = s->op == FCP_STEP_SEND || s->op == FCP_STEP_RECV;
        bool good =
            !s->pad && (moves ? s->round < at->rounds && s->peer < plan->problem->ranks && s->fabric < FCP_FABRICS
                              : !s->round && !s->peer && !s->fabric);
        good = good && (at->layer->kind == FCP_SCAN ? scan_step(at, s) : halo_step(c, at, s));
        if (!good)
            return malformed(c->err,
                             "step %llu: op %u, fabric %u, whole %u, part %u, round %u, peer %u, operands %u %u "
                             "%u, at a rank of %u stretches and %u temporaries",
                             (ull)c->next_step, s->op, s->fabric, s->whole, s->part, s->round, s->peer, s->a, s->b,
                             s->out, at->stretches, stream->temporaries);
    }
    return FCP_OK;
}

/* The bytes of a rank's registers. Temporaries have one part; here they count as if they had all. */
static uint64_t register_bytes(const stream_place *at) {
    const fcp_recurrent *x = at->layer;
    return fcp_times(at->registers, x->heads * ((fcp_state_numbers(x) + fcp_decay_numbers(x)) * 4));
}

static fcp_code check_network(checking *c, uint32_t layer, int pass) {
    const fcp_plan *plan = c->plan;
    const fcp_recurrent *x = &plan->recurrent[layer];
    const bool there = plan->problem->passes >> pass & 1 && !(x->kind == FCP_HALO && pass == FCP_BACKWARD);
    for (uint32_t i = 0; i < c->ranks; i++) {
        const fcp_step_stream *s = &plan->step_streams[((uint64_t)layer * FCP_PASSES + (uint32_t)pass) * c->ranks + i];
        const uint32_t rank = plan->extract ? plan->extract->about->rank : i;
        if (!(s->first == c->next_step && s->count <= plan->steps_count - c->next_step && s->temporaries <= s->count &&
              (there || !s->count) && (x->kind == FCP_SCAN || !s->temporaries)))
            return malformed(c->err,
                             "recurrent layer %u, pass %d, rank %u: steps from %llu on, %u of them, and %u "
                             "temporaries; %llu come next of %llu",
                             layer, pass, rank, (ull)s->first, s->count, s->temporaries, (ull)c->next_step,
                             (ull)plan->steps_count);
        if (!s->count) continue;
        stream_place at = {.layer = x, .rounds = x->rounds[pass], .rank = rank, .stretches = c->stretches[i]};
        if (x->kind == FCP_SCAN) at.registers = 2 * (uint64_t)at.stretches + s->temporaries;
        else at.tokens = fcp_side_tokens(plan, FCP_QUERIES, rank);
        if (at.registers >= FCP_NONE || (at.registers && register_bytes(&at) > max_bytes))
            return malformed(c->err, "recurrent layer %u, pass %d, rank %u: too many registers, %llu", layer, pass,
                             rank, (ull)at.registers);
        fcp_code code = check_stream(c, s, &at);
        if (code) return code;
    }
    return FCP_OK;
}

static fcp_code check_tables(checking *c, const volatile int *stop) {
    const fcp_plan *plan = c->plan;
    for (uint32_t i = 0; i < c->ranks; i++) {
        if (i % 1024 == 0 && fcp_stop_asked(stop)) return fcp_fail(c->err, FCP_E_INTERRUPTED, "interrupted");
        c->stretches[i] = fcp_stretches_of(plan, plan->extract ? plan->extract->about->rank : i, NULL);
    }
    for (uint32_t layer = 0; layer < plan->recurrent_count; layer++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            if (fcp_stop_asked(stop)) return fcp_fail(c->err, FCP_E_INTERRUPTED, "interrupted");
            fcp_code code = check_layer(c, layer);
            if (!code) code = check_network(c, layer, pass);
            if (code) return code;
        }
    if (c->next_step != plan->steps_count || c->rows_left)
        return malformed(c->err, "%llu steps, %llu of them in streams; %llu runs of halo rows, %llu of them in no step",
                         (ull)plan->steps_count, (ull)c->next_step, (ull)plan->halo_rows_count, (ull)c->rows_left);
    return FCP_OK;
}

fcp_code fcp_plan_check_recurrent(const fcp_plan *plan, const volatile int *stop, fcp_error *err) {
    checking c = {.plan = plan,
                  .err = err,
                  .ranks = plan->extract ? 1 : plan->problem->ranks,
                  .rows_left = plan->halo_rows_count};
    const uint64_t layers = plan->recurrent_count;
    if (!layers && !plan->step_streams_count && !plan->steps_count && !plan->halo_rows_count) return FCP_OK;
    if (layers > MAX_LAYERS || plan->step_streams_count != layers * FCP_PASSES * c.ranks || !layers)
        return malformed(err, "%llu recurrent layers, %llu streams, %llu steps and %llu runs of halo rows for %u ranks",
                         (ull)layers, (ull)plan->step_streams_count, (ull)plan->steps_count, (ull)plan->halo_rows_count,
                         c.ranks);
    if (!plan->self) return malformed(err, "recurrent layers, and a sequence with other keys than queries");
    if (plan->documents && plan->documents_count > INT32_MAX)
        return malformed(err, "recurrent layers over %llu documents", (ull)plan->documents_count);
    c.stretches = malloc((size_t)c.ranks * sizeof *c.stretches);
    c.named = calloc((size_t)plan->halo_rows_count + 1, sizeof *c.named);
    fcp_code code = c.stretches && c.named ? check_tables(&c, stop)
                                           : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to check recurrent layers");
    free(c.stretches);
    free(c.named);
    return code;
}
