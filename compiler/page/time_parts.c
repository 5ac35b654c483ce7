/* time_parts.c: writes what a page says about time: the lanes of some ranks, as lists of numbers; and how busy all
 * ranks are, as strings. */
#include "compiler/page/page.h"
#include "runtime/plan/instructions.h"

#include <string.h>

const char page_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* --- lanes -------------------------------------------------------------------------------------------------------- */

typedef struct list {
    text *t;
    uint64_t tick;   /* picoseconds */
    uint64_t before; /* where the interval before ends, in ticks */
    bool any;
} list;

static void add_signed(list *l, uint64_t value, bool negative) {
    if (l->any) text_puts(l->t, ",");
    l->any = true;
    if (negative) text_puts(l->t, "-");
    text_number(l->t, value);
}
static void add_number(list *l, uint64_t value) { add_signed(l, value, false); }
static void add_or_none(list *l, uint32_t value) { add_signed(l, value == FCP_NONE ? 1 : value, value == FCP_NONE); }

static void add_span(list *l, const sim_interval *i) {
    const uint64_t start = i->start / l->tick, end = i->end / l->tick;
    add_signed(l, start < l->before ? l->before - start : start - l->before, start < l->before);
    add_number(l, end - start);
    l->before = end;
}

static void add_compute(list *l, const fcp_plan *plan, const sim_interval *i) {
    const fcp_instr *x = &plan->instrs[i->instr];
    add_span(l, i);
    add_number(l, x->op);
    add_number(l, i->stage);
    if (i->doing == SIM_WAIT) {
        const fcp_instr *cause = i->cause == FCP_NONE ? NULL : &plan->instrs[i->cause];
        add_or_none(l, cause && cause->op == FCP_OP_LAUNCH ? cause->c : FCP_NONE);
        add_number(l, i->reason);
    } else if (x->op == FCP_OP_ATTEND) {
        uint64_t tiles, pairs = timeline_pairs(plan, x, &tiles);
        add_number(l, tiles);
        add_number(l, pairs);
    } else {
        add_or_none(l, i->block);
        add_number(l, i->bytes);
    }
}

static void add_transfer(list *l, const fcp_plan *plan, const sim_interval *i) {
    add_span(l, i);
    add_number(l, i->doing == SIM_RECV);
    add_number(l, plan->transfers[i->transfer].cls);
    add_number(l, i->stage);
    add_number(l, i->round);
    add_number(l, i->peer);
    add_number(l, i->block);
    add_number(l, i->bytes);
    add_number(l, (i->start - i->ready) / l->tick);
}

void page_lanes_add(json *j, const timeline *t, fcp_pass pass) {
    const uint64_t tick = t->makespan[pass] / PAGE_TICKS + 1;
    uint64_t at = 0;
    json_u64(j, "tick", tick);
    json_array(j, "lanes");
    for (uint32_t n = 0; n < t->ranks.count; n++) {
        const uint32_t rank = t->ranks.at[n];
        json_object(j, NULL);
        json_u64(j, "rank", rank);
        while (at < t->count && (t->at[at].rank < rank || (t->at[at].rank == rank && t->at[at].pass < (uint32_t)pass)))
            at++;
        for (int lane = 0; lane < SIM_LANES; lane++) {
            json_array(j, sim_lane_names[lane]);
            list l = {.t = &j->out, .tick = tick};
            for (; at < t->count && t->at[at].rank == rank && t->at[at].pass == (uint32_t)pass &&
                 (int)t->at[at].lane == lane; at++)
                if (lane == SIM_LANE_COMPUTE) add_compute(&l, t->plan, &t->at[at]);
                else add_transfer(&l, t->plan, &t->at[at]);
            json_end(j);
        }
        json_end(j);
    }
    json_end(j);
}

/* --- all ranks ---------------------------------------------------------------------------------------------------- */

static uint64_t bin_at(const page_heat *h, uint32_t bin) {
    return (uint64_t)((unsigned __int128)h->makespan * bin / PAGE_BINS);
}

static void warm(void *context, const sim_interval *x) {
    page_heat *h = (page_heat *)context + x->pass;
    if (x->doing == SIM_WAIT || !h->busy || !h->makespan) return;
    if (x->doing == SIM_SEND) return; /* only receives are counted; a rank sends about as much at the same time */
    uint64_t *row = h->busy + ((uint64_t)x->lane * h->rows + x->rank / h->per) * PAGE_BINS;
    uint32_t bin = (uint32_t)((unsigned __int128)x->start * PAGE_BINS / h->makespan);
    while (bin && bin_at(h, bin) > x->start) bin--;
    for (; bin < PAGE_BINS && bin_at(h, bin) < x->end; bin++) {
        uint64_t from = bin_at(h, bin), to = bin_at(h, bin + 1);
        if (x->start > from) from = x->start;
        if (x->end < to) to = x->end;
        if (to > from) row[bin] += to - from;
    }
}

fcp_code page_heat_make(const fcp_plan *plan, const sim_profile *profile, const sim_options *how,
                        const sim_result *result, arena *memory, page_heat out[FCP_PASSES], fcp_error *err) {
    const uint32_t ranks = plan->problem->ranks, per = (ranks + PAGE_ROWS - 1) / PAGE_ROWS;
    sim_options options = how ? *how : (sim_options){0};
    options.watch = warm;
    options.context = out;
    sim_result again;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        out[pass] = (page_heat){.makespan = result->pass[pass].makespan,
                                .per = per,
                                .rows = (ranks + per - 1) / per,
                                .ranks = ranks};
        out[pass].busy = ARENA_ZNEW(memory, uint64_t, (size_t)SIM_LANES * out[pass].rows * PAGE_BINS);
        if (!out[pass].busy) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory while drawing");
    }
    return simulate(plan, profile, &options, memory, &again, err);
}

void page_heat_add(json *j, const page_heat *h) {
    json_object(j, "heat");
    json_u64(j, "rows", h->rows);
    json_u64(j, "per", h->per);
    json_u64(j, "bins", PAGE_BINS);
    for (int lane = 0; lane < SIM_LANES; lane++) {
        text shares = {0};
        for (uint32_t row = 0; row < h->rows; row++) {
            uint32_t in_row = h->ranks - row * h->per < h->per ? h->ranks - row * h->per : h->per;
            for (uint32_t bin = 0; bin < PAGE_BINS; bin++) {
                uint64_t busy = h->busy[((uint64_t)lane * h->rows + row) * PAGE_BINS + bin],
                         all = (bin_at(h, bin + 1) - bin_at(h, bin)) * in_row;
                uint64_t share = all ? (uint64_t)((unsigned __int128)busy * 63 / all) : 0;
                text_add(&shares, &page_digits[share > 63 ? 63 : share], 1);
            }
        }
        text_add(&shares, "", 1);
        json_string(j, sim_lane_names[lane], shares.failed ? "" : shares.at);
        j->out.failed |= shares.failed;
        text_free(&shares);
    }
    json_end(j);
}
