/* trace.c: writes a timeline as a trace file, in JSON of the Trace Event Format.
 *
 *   process  a rank
 *   thread   compute: instructions, and waits with their reasons; net and local: a slice for each launch and fabric,
 *            with what it sends and receives, from the first byte to the last
 *   arrows   from the slice that sends to the slice that receives, if both ranks are drawn
 *   counters slots in use by class, bytes in flight by fabric, bytes of memory
 *
 * Requires: a timeline in order.
 * Cost:     linear in the timeline. Numbers are written without printf, which would take most of the time.
 */
#include "compiler/trace/trace.h"
#include "runtime/plan/enum_names.h"

#include <stdio.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "runtime/exec/session.h"

enum { GAP = 50000000 }; /* 50 us between the passes, in picoseconds */

typedef struct pen {
    const timeline *t;
    text *out;
    uint64_t shift[FCP_PASSES]; /* when a pass begins, in picoseconds */
    uint32_t rounds;            /* of both passes */
    bool any;                   /* an event has been written */
} pen;

static void put_text(pen *p, const char *words) { text_puts(p->out, words); }

/* Writes picoseconds as microseconds, exactly. */
static void put_time(pen *p, uint64_t time) {
    text_number(p->out, time / 1000000);
    uint64_t rest = time % 1000000;
    if (!rest) return;
    char digits[7] = ".";
    for (int i = 6; i >= 1; i--, rest /= 10) digits[i] = (char)('0' + rest % 10);
    size_t size = 7;
    while (digits[size - 1] == '0') size--;
    text_add(p->out, digits, size);
}

static void put_field(pen *p, const char *name, uint64_t value) {
    put_text(p, name);
    text_number(p->out, value);
}

/* A field whose value is a string that needs no escapes. `name` ends with the value's opening quote. */
static void put_word(pen *p, const char *name, const char *value) {
    put_text(p, name);
    put_text(p, value);
    put_text(p, "\"");
}

/* Writes the beginning of an event of a rank: {"ph":"X","pid":3,"tid":1,"ts":12.5 */
static void begin(pen *p, const char *kind, uint32_t rank, uint32_t thread, uint64_t time) {
    put_word(p, p->any ? ",\n{\"ph\":\"" : "\n{\"ph\":\"", kind);
    p->any = true;
    put_field(p, ",\"pid\":", rank);
    if (thread) put_field(p, ",\"tid\":", thread);
    put_text(p, ",\"ts\":");
    put_time(p, time);
}

static void put_duration(pen *p, uint64_t time) {
    put_text(p, ",\"dur\":");
    put_time(p, time);
}

static void meta(pen *p, const char *name, uint32_t rank, uint32_t thread, const char *value, uint32_t number) {
    put_field(p, p->any ? ",\n{\"ph\":\"M\",\"pid\":" : "\n{\"ph\":\"M\",\"pid\":", rank);
    p->any = true;
    if (thread) put_field(p, ",\"tid\":", thread);
    put_word(p, ",\"name\":\"", name);
    if (value) put_word(p, ",\"args\":{\"name\":\"", value);
    else put_field(p, ",\"args\":{\"sort_index\":", number);
    put_text(p, "}}");
}

static void name_rank(pen *p, uint32_t rank) {
    char name[60];
    snprintf(name, sizeof name, "rank %u (node %u)", rank, fcp_node_of(p->t->plan->problem, rank));
    meta(p, "process_name", rank, 0, name, 0);
    meta(p, "process_sort_index", rank, 0, NULL, rank);
    for (uint32_t lane = 0; lane < SIM_LANES; lane++) {
        meta(p, "thread_name", rank, lane + 1, sim_lane_names[lane], 0);
        meta(p, "thread_sort_index", rank, lane + 1, NULL, lane + 1);
    }
}

/* --- slices ------------------------------------------------------------------------------------------------------- */

static uint32_t place_in_queue(const pen *p, const sim_interval *i, fcp_queue queue) {
    return i->instr - fcp_stream_of(p->t->plan, (fcp_pass)i->pass, i->rank, queue)->first;
}

static void compute_slice(pen *p, const sim_interval *i) {
    const fcp_plan *plan = p->t->plan;
    const fcp_instr *x = &plan->instrs[i->instr];
    begin(p, "X", i->rank, SIM_LANE_COMPUTE + 1, p->shift[i->pass] + i->start);
    put_duration(p, i->end - i->start);
    put_text(p, ",\"name\":\"");
    put_text(p, fcp_op_names[x->op]);
    if (i->doing == SIM_WAIT) put_text(p, " "), put_text(p, sim_reason_names[i->reason]);
    put_word(p, "\",\"cat\":\"", i->doing == SIM_WAIT ? "wait" : "compute");
    put_word(p, ",\"args\":{\"pass\":\"", fcp_pass_names[i->pass]);
    put_field(p, ",\"stage\":", i->stage);
    put_field(p, ",\"instruction\":", place_in_queue(p, i, FCP_COMPUTE));
    if (i->block != FCP_NONE) put_field(p, ",\"block\":", i->block);
    if (i->doing == SIM_WAIT && i->cause != FCP_NONE && plan->instrs[i->cause].op == FCP_OP_LAUNCH)
        put_field(p, ",\"round\":", plan->instrs[i->cause].c);
    if (x->op == FCP_OP_ATTEND) {
        uint64_t tiles, pairs = timeline_pairs(plan, x, &tiles);
        put_field(p, ",\"visits\":", x->b);
        put_field(p, ",\"tiles\":", tiles);
        put_field(p, ",\"pairs\":", pairs);
    }
    if (i->bytes) put_field(p, ",\"bytes\":", i->bytes);
    put_text(p, "}}");
}

/* The number of the arrow of a transfer. Both ends compute the same: from its receiver, round and fabric. */
static uint64_t arrow(const pen *p, const sim_interval *i) {
    uint64_t to = i->doing == SIM_RECV ? i->rank : i->peer;
    uint64_t round = (i->pass ? p->t->plan->round_starts[i->pass] : 0) + (uint64_t)i->round;
    return (to * (p->rounds + 1) + round) * FCP_FABRICS + (i->lane == SIM_LANE_NET ? FCP_NET : FCP_LOCAL);
}

/* Writes what one launch does on one fabric: intervals i[0] to i[count - 1], which are a send, a receive, or both. */
static void transfer_slice(pen *p, const sim_interval *i, uint64_t count) {
    const fcp_plan *plan = p->t->plan;
    const uint32_t thread = i->lane + 1;
    uint64_t start = i->start, end = i->end, shift = p->shift[i->pass];
    unsigned classes = 0, all = 0;
    for (uint64_t n = 0; n < count; n++) {
        if (i[n].start < start) start = i[n].start;
        if (i[n].end > end) end = i[n].end;
        classes |= 1u << plan->transfers[i[n].transfer].cls;
    }
    begin(p, "X", i->rank, thread, shift + start);
    put_duration(p, end - start);
    put_text(p, ",\"name\":\"");
    for (uint32_t c = 0; c < FCP_CLASSES; c++)
        if (classes >> c & 1) {
            if (all++) put_text(p, "+");
            put_text(p, fcp_class_names[c]);
        }
    put_word(p, "\",\"cat\":\"", sim_lane_names[i->lane]);
    put_word(p, ",\"args\":{\"pass\":\"", fcp_pass_names[i->pass]);
    put_field(p, ",\"stage\":", i->stage);
    put_field(p, ",\"round\":", i->round);
    put_word(p, ",\"kind\":\"", fcp_round_names[plan->rounds[plan->round_starts[i->pass] + i->round].kind]);
    put_field(p, ",\"instruction\":", place_in_queue(p, i, FCP_COMM));
    for (uint64_t n = 0; n < count; n++) {
        put_field(p, i[n].doing == SIM_SEND ? ",\"send\":{\"to\":" : ",\"receive\":{\"from\":", i[n].peer);
        put_word(p, ",\"class\":\"", fcp_class_names[plan->transfers[i[n].transfer].cls]);
        put_field(p, ",\"block\":", i[n].block);
        put_field(p, ",\"bytes\":", i[n].bytes);
        put_text(p, ",\"waited_us\":");
        put_time(p, i[n].start - i[n].ready);
        put_text(p, "}");
    }
    put_text(p, "}}");
    for (uint64_t n = 0; n < count; n++) {
        if (!p->t->ranks.has[i[n].peer]) continue;
        const bool sends = i[n].doing == SIM_SEND;
        uint64_t at = sends ? i[n].start : i[n].end - 1; /* a time inside of the slice to which the arrow belongs */
        begin(p, sends ? "s" : "f", i->rank, thread, shift + at);
        put_field(p, sends ? ",\"id\":" : ",\"bp\":\"e\",\"id\":", arrow(p, &i[n]));
        put_word(p, ",\"name\":\"", fcp_class_names[plan->transfers[i[n].transfer].cls]);
        put_word(p, ",\"cat\":\"", p->t->measured ? "measured" : "predicted");
        put_text(p, "}");
    }
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

static void counter(pen *p, const char *name, uint32_t rank, uint64_t time) {
    begin(p, "C", rank, 0, time);
    put_word(p, ",\"name\":\"", name);
    put_text(p, ",\"args\":{");
}

static fcp_code counters(pen *p, uint32_t rank, fcp_pass pass, uint64_t first, uint64_t count, arena *scratch) {
    const fcp_plan *plan = p->t->plan;
    trace_change *changes;
    uint64_t changed, base = trace_memory_base(plan, pass, rank), shift = p->shift[pass];
    int64_t slots[FCP_CLASSES] = {0}, flight[FCP_FABRICS] = {0};
    fcp_code code = trace_changes(p->t, rank, pass, first, count, scratch, &changes, &changed);
    if (code) return code;
    counter(p, "memory", rank, shift);
    put_field(p, "\"bytes\":", base);
    put_text(p, "}}");
    for (uint64_t i = 0, end; i < changed; i = end) {
        bool of[TRACE_COUNTERS] = {false};
        for (end = i; end < changed && changes[end].time == changes[i].time; end++) {
            const trace_change *c = &changes[end];
            of[c->counter] = true;
            *(c->counter == TRACE_SLOTS ? &slots[c->what] : &flight[c->what]) += c->change;
        }
        if (of[TRACE_SLOTS]) {
            uint64_t bytes = base, shown = 0;
            counter(p, "slots", rank, shift + changes[i].time);
            for (uint32_t c = 0; c < FCP_CLASSES; c++) {
                if (c == FCP_IN || c == FCP_OUT) continue;
                bytes += (uint64_t)slots[c] * trace_slot_bytes(plan, pass, c);
                put_word(p, shown++ ? ",\"" : "\"", fcp_class_names[c]);
                put_field(p, ":", (uint64_t)slots[c]);
            }
            put_text(p, "}}");
            counter(p, "memory", rank, shift + changes[i].time);
            put_field(p, "\"bytes\":", bytes);
            put_text(p, "}}");
        }
        if (of[TRACE_FLIGHT]) {
            counter(p, "bytes in flight", rank, shift + changes[i].time);
            for (uint32_t f = 0; f < FCP_FABRICS; f++) {
                put_word(p, f ? ",\"" : "\"", fcp_fabric_names[f]);
                put_field(p, ":", (uint64_t)flight[f]);
            }
            put_text(p, "}}");
        }
    }
    return FCP_OK;
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

fcp_code trace_json(const timeline *t, text *out, fcp_error *err) {
    pen p = {.t = t, .out = out, .rounds = t->plan->round_starts[FCP_PASSES],
             .shift = {[FCP_BACKWARD] = t->makespan[FCP_FORWARD] ? t->makespan[FCP_FORWARD] + GAP : 0}};
    arena scratch = {0};
    fcp_code code = FCP_OK;
    text_printf(out, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":\"fcpc "
                     "%s\",\"timeline\":\"%s\",\"%s\":\"%s\",\"ranks\":%u},\n\"traceEvents\":[",
                fcp_version(), t->measured ? "measured" : "predicted", t->measured ? "backend" : "profile", t->source,
                t->plan->problem->ranks);
    for (uint32_t i = 0; i < t->ranks.count; i++) name_rank(&p, t->ranks.at[i]);
    for (uint64_t first = 0, end; first < t->count && !code; first = end) {
        const sim_interval *x = &t->at[first];
        for (end = first; end < t->count && t->at[end].rank == x->rank && t->at[end].pass == x->pass;) {
            uint64_t next = end + 1;
            if (t->at[end].lane == SIM_LANE_COMPUTE) compute_slice(&p, &t->at[end]);
            else {
                while (next < t->count && t->at[next].instr == t->at[end].instr && t->at[next].lane == t->at[end].lane)
                    next++;
                transfer_slice(&p, &t->at[end], next - end);
            }
            end = next;
        }
        code = counters(&p, x->rank, (fcp_pass)x->pass, first, end - first, &scratch);
        arena_reset(&scratch);
    }
    put_text(&p, "\n]}\n");
    arena_free(&scratch);
    return code || out->failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the trace") : FCP_OK;
}

fcp_code fcpc_trace_json(const fcp_session *session, char **out_text, fcp_error *err) {
    arena memory = {0};
    text out = {0};
    timeline t;
    fcp_code code = session && out_text ? timeline_measure(session, NULL, &memory, &t, err)
                                        : fcp_fail(err, FCP_E_ARGUMENT, "a trace needs a session");
    if (!code) code = trace_json(&t, &out, err);
    arena_free(&memory);
    return text_hand_over(&out, code, out_text, err);
}
