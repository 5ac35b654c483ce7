/* dump.c: writes a plan as text, one record a line, or as one JSON object.
 *
 * Requires: a checked plan.
 * Gives:    every table in file order, every field by its name; always the same bytes for the same plan. A line of text
 *           is "table index field=value ...". An index that refers to nothing is "-" (null in JSON). Numbers are exact.
 *           Operands of instructions have names that say what they are.
 * Method:   each record type has one description, with the name, place and kind of every field. It serves both forms.
 * Cost:     linear; `emit` gets chunks of up to 64 KiB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/extract.h"
#include "runtime/plan/dump.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/file.h"

enum { ROOM = 1 << 16 };

typedef struct out {
    fcp_emit *emit;
    void *context;
    size_t used;
    bool json;
    bool first; /* JSON: no comma before the next value */
    char text[ROOM];
} out;

/* --- characters --------------------------------------------------------------------------------------------------- */

static void append_bytes(out *o, const char *text, size_t size) {
    while (size) {
        if (o->used == ROOM) {
            o->emit(o->context, o->text, o->used);
            o->used = 0;
        }
        size_t n = ROOM - o->used < size ? ROOM - o->used : size;
        memcpy(o->text + o->used, text, n);
        o->used += n;
        text += n;
        size -= n;
    }
}

static void put_text(out *o, const char *text) { append_bytes(o, text, strlen(text)); }

static void put_u64(out *o, uint64_t value) {
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    append_bytes(o, digits + at, sizeof digits - at);
}

static void put_i64(out *o, int64_t value) {
    if (value < 0) append_bytes(o, "-", 1);
    put_u64(o, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

/* With enough digits to read the same double back, and with a point in every locale. */
static void put_double(out *o, double value) {
    char text[40];
    snprintf(text, sizeof text, "%.17g", value);
    char *comma = strchr(text, ',');
    if (comma) *comma = '.';
    put_text(o, text);
}

/* The inside of a JSON string. */
static void put_escaped(out *o, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        char code[8];
        if (c == '"' || c == '\\')
            append_bytes(o, (char[]){'\\', (char)c}, 2);
        else if (c == '\n')
            append_bytes(o, "\\n", 2);
        else if (c < 0x20)
            append_bytes(o, code, (size_t)snprintf(code, sizeof code, "\\u%04x", c));
        else
            append_bytes(o, text + i, 1);
    }
}

/* --- names -------------------------------------------------------------------------------------------------------- */

#define NAME(array, value) ((value) < sizeof(array) / sizeof *(array) ? (array)[value] : "?")
static const char *const pass_set_names[] = {"", "forward", "backward", "forward,backward"};
static const char *const visit_names[] = {"-", "first", "last", "single"};
static const char *const block_names[] = {"-", "whole"};
static const char *const round_flag_names[] = {"-", "second"};
static const char *const holds_names[] = {"nothing", "q", "kv", "both"};

/* --- records ------------------------------------------------------------------------------------------------------ */

typedef enum kind { U32, U64, I32, I64, INDEX, DOUBLE, WORDS, GPU } kind; /* INDEX: a uint32_t that may be FCP_NONE */

typedef struct field {
    const char *name;
    uint16_t offset;
    uint8_t kind, size;
    const char *const *words; /* WORDS: the names of its values, `count` of them */
    uint32_t count;
} field;

#define F(type, member, kind) {#member, offsetof(type, member), kind, sizeof(((type *)0)->member), NULL, 0}
#define E(type, member, names) \
    {#member, offsetof(type, member), WORDS, sizeof(((type *)0)->member), names, sizeof(names) / sizeof *(names)}
#define COUNT(array) (sizeof(array) / sizeof *(array))

static const field problem_fields[] = {
#define P(m) F(fcp_problem, m, U32)
    P(ranks),
    P(nodes),
    P(gpus),
    P(heads),
    P(kv_heads),
    P(head_dim),
    P(value_dim),
    F(fcp_problem, values_in_keys, U32),
    F(fcp_problem, lse_gradient, U32),
    P(range_kv),
    P(range_sub),
    E(fcp_problem, dtype, fcp_dtype_names),
    E(fcp_problem, wire, fcp_dtype_names),
    E(fcp_problem, layout, fcp_layout_names),
    P(layout_group),
    E(fcp_problem, strategy, fcp_strategy_names),
    E(fcp_problem, topology, fcp_topology_names),
    P(block),
    P(max_block),
    P(max_q_block),
    P(unit),
    P(coalesce),
    P(buffers),
    P(margin),
    E(fcp_problem, passes, pass_set_names),
    P(deterministic),
    P(mask_uses),
    E(fcp_problem, align, fcp_align_names),
    F(fcp_problem, documents, INDEX),
    F(fcp_problem, tokens, U64),
    F(fcp_problem, key_tokens, U64),
    F(fcp_problem, memory_cap, U64),
    F(fcp_problem, scale, DOUBLE)
#undef P
};
static const field cluster_fields[] = {
#define C(m) F(fcp_cluster, m, U64)
    F(fcp_cluster, gpu, GPU), F(fcp_cluster, multiprocessors, U32), C(intra), C(inter), C(latency_ns), C(flops),
    C(memory_bandwidth), C(oversubscription_milli)
#undef C
};
static const field summary_fields[] = {
#define S(m) F(fcp_summary, m, U64)
    S(sequences),
    S(blocks),
    S(tiles),
    S(pairs),
    S(positions),
    S(pairs_max_rank),
    S(pairs_max_block),
    S(tokens_max_rank),
    S(key_tokens_max_rank),
    S(bytes_total),
    S(bytes_moved),
    S(bytes_inter_node),
    S(send_max),
    S(recv_max),
    S(bytes_reshuffle),
    S(rounds),
    S(rounds_lower_bound),
    S(rounds_dependent),
    S(rounds_bound),
    S(rounds_reshuffle),
    S(stages),
    S(slots_max),
    S(state_bytes),
    S(memory_peak_bytes),
    S(backward_bytes_total),
    S(backward_bytes_moved),
    S(backward_bytes_inter_node),
    S(backward_rounds),
    S(backward_rounds_dependent),
    S(backward_rounds_bound),
    S(backward_rounds_reshuffle),
    S(backward_stages),
    S(backward_slots_max),
    S(peers_max)
#undef S
};
static const field sequence_fields[] = {F(fcp_sequence, queries, U64), F(fcp_sequence, keys, U64),
                                        F(fcp_sequence, q_first, I64)};
static const field piece_fields[] = {F(fcp_piece, sequence, U32), F(fcp_piece, start, U64), F(fcp_piece, length, U32),
                                     F(fcp_piece, block, U32), F(fcp_piece, offset, U32)};
static const field deal_fields[] = {F(fcp_deal, first_sequence, U32), F(fcp_deal, sequences, U32),
                                    F(fcp_deal, first_rank, U32), F(fcp_deal, ranks, U32)};
static const field heads_fields[] = {F(fcp_heads, kv_first, U32), F(fcp_heads, kv_count, U32),
                                     F(fcp_heads, sub_first, U32), F(fcp_heads, sub_count, U32)};
static const field block_fields[] = {F(fcp_block, first_piece, U32), F(fcp_block, pieces, U32),
                                     F(fcp_block, tokens, U32), F(fcp_block, home, U32), F(fcp_block, home_slot, U32),
                                     F(fcp_block, heads, U32), E(fcp_block, holds, holds_names),
                                     E(fcp_block, flags, block_names)};
static const field tile_fields[] = {F(fcp_tile, q_block, U32), F(fcp_tile, k_block, U32),
                                    F(fcp_tile, first_part, U32), F(fcp_tile, parts, U32),
                                    F(fcp_tile, kv_slot, U32), F(fcp_tile, dkv_slot, INDEX), F(fcp_tile, pairs, U64)};
static const field part_fields[] = {F(fcp_part, q_piece, U32), F(fcp_part, k_piece, U32), F(fcp_part, shape, U32)};
static const field shape_fields[] = {F(fcp_shape_rec, first_run, U32), F(fcp_shape_rec, runs, U32),
                                     F(fcp_shape_rec, q_length, U32), F(fcp_shape_rec, k_length, U32),
                                     F(fcp_shape_rec, pairs, U64)};
static const field visit_fields[] = {F(fcp_visit, q_block, U32), F(fcp_visit, first_tile, U32),
                                     F(fcp_visit, tiles, U32), F(fcp_visit, q_slot, U32),
                                     F(fcp_visit, state_slot, INDEX), F(fcp_visit, o_slot, INDEX),
                                     F(fcp_visit, dq_slot, INDEX), E(fcp_visit, flags, visit_names)};
static const field round_fields[] = {E(fcp_round, kind, fcp_round_names), F(fcp_round, stage, U32),
                                     E(fcp_round, flags, round_flag_names)};
static const field slices_fields[] = {F(fcp_slices, first_row, U32), F(fcp_slices, rows, U32),
                                      F(fcp_slices, first_band, U32), F(fcp_slices, bands, U32)};
static const field band_row_fields[] = {F(mc_band_rows, q, I64), F(mc_band_rows, first, U32),
                                        F(mc_band_rows, count, U32)};
static const field band_fields[] = {F(mc_band, lo, I64), F(mc_band, lo_slope, I32), F(mc_band, hi, I64),
                                    F(mc_band, hi_slope, I32)};
static const field halo_rows_fields[] = {F(fcp_halo_rows, first, U64), F(fcp_halo_rows, count, U32)};

static void begin_value(out *o, const char *name) {
    if (o->json) {
        if (!o->first) append_bytes(o, ",", 1);
        append_bytes(o, "\"", 1);
        put_text(o, name);
        append_bytes(o, "\":", 2);
        o->first = false;
    } else {
        append_bytes(o, " ", 1);
        put_text(o, name);
        append_bytes(o, "=", 1);
    }
}

static void put_word(out *o, const char *name, const char *word) {
    begin_value(o, name);
    if (o->json) append_bytes(o, "\"", 1);
    put_escaped(o, word, strlen(word)); /* words are names, or printable text in one line, which this leaves as it is */
    if (o->json) append_bytes(o, "\"", 1);
}

static void put_number(out *o, const char *name, uint64_t value) {
    begin_value(o, name);
    put_u64(o, value);
}

static void put_index(out *o, const char *name, uint32_t value) {
    if (value != FCP_NONE) {
        put_number(o, name, value);
        return;
    }
    begin_value(o, name);
    put_text(o, o->json ? "null" : "-");
}

static void put_fields(out *o, const field *fields, size_t count, const void *record) {
    for (const field *f = fields; f < fields + count; f++) {
        const char *at = (const char *)record + f->offset;
        uint64_t value = 0;
        if (f->kind != DOUBLE && f->kind != GPU) memcpy(&value, at, f->size); /* little-endian */
        switch (f->kind) {
        case INDEX: put_index(o, f->name, (uint32_t)value); break;
        case I32:
        case I64:
            begin_value(o, f->name);
            put_i64(o, f->kind == I64 ? (int64_t)value : (int32_t)(uint32_t)value);
            break;
        case WORDS: put_word(o, f->name, value < f->count ? f->words[value] : "?"); break;
        case GPU: {
            char name[sizeof ((fcp_cluster *)0)->gpu + 1] = {0};
            memcpy(name, at, sizeof name - 1);
            put_word(o, f->name, *name ? name : "?");
            break;
        }
        case DOUBLE: {
            double d;
            memcpy(&d, at, sizeof d);
            begin_value(o, f->name);
            put_double(o, d);
            break;
        }
        default: put_number(o, f->name, value);
        }
    }
}

/* The beginning and the end of a record: "name index ..." in text, {...} in JSON. */
static void begin_record(out *o, const char *name, uint64_t index) {
    if (o->json) {
        if (!o->first) append_bytes(o, ",", 1);
        append_bytes(o, "\n{", 2);
        o->first = true;
        return;
    }
    put_text(o, name);
    append_bytes(o, " ", 1);
    put_u64(o, index);
}

static void end_record(out *o) {
    if (o->json) append_bytes(o, "}", 1);
    append_bytes(o, "\n", !o->json);
    o->first = false;
}

static void begin_table(out *o, const char *name) {
    if (!o->json) return;
    put_text(o, o->first ? "\"" : ",\n\"");
    put_text(o, name);
    put_text(o, "\":[");
    o->first = true;
}

static void end_table(out *o) {
    if (o->json) append_bytes(o, "]", 1);
    o->first = false;
}

static void put_table(out *o, const char *table, const char *name, const field *fields, size_t count,
                      const void *records, uint64_t n, size_t size) {
    begin_table(o, table);
    for (uint64_t i = 0; i < n; i++) {
        begin_record(o, name, i);
        put_fields(o, fields, count, (const char *)records + i * size);
        end_record(o);
    }
    end_table(o);
}

/* A table of one record: "name field=value ..." in text, "name": {...} in JSON. */
static void put_single(out *o, const char *name, const field *fields, size_t count, const void *record) {
    if (o->json) {
        put_text(o, o->first ? "\"" : ",\n\"");
        put_text(o, name);
        put_text(o, "\":{");
        o->first = true;
    } else {
        put_text(o, name);
    }
    put_fields(o, fields, count, record);
    put_text(o, o->json ? "}" : "\n");
    o->first = false;
}

/* --- tables that are more than their fields ----------------------------------------------------------------------- */

static void put_source(out *o, const fcp_plan *plan) {
    const char *at = plan->source, *end = at + plan->source_count;
    if (o->json) {
        put_text(o, ",\n\"source\":\"");
        put_escaped(o, at, plan->source_count);
        put_text(o, "\"");
        return;
    }
    while (at < end) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((line ? line : end) - at);
        put_text(o, size ? "source | " : "source |");
        append_bytes(o, at, size);
        put_text(o, "\n");
        at += size + (line != NULL);
    }
}

static void put_numbers(out *o, const char *table, const char *name, const char *label, const uint32_t *values,
                        uint64_t n) {
    if (o->json) {
        begin_table(o, table);
        for (uint64_t i = 0; i < n; i++) {
            if (i) append_bytes(o, ",", 1);
            put_u64(o, values[i]);
        }
        end_table(o);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        begin_record(o, name, i);
        put_number(o, label, values[i]);
        end_record(o);
    }
}

static void put_runs(out *o, const fcp_plan *plan) {
    begin_table(o, "runs");
    for (uint64_t i = 0; i < plan->runs_count; i++) {
        const fcp_run *r = &plan->runs[i];
        begin_record(o, "run", i);
        put_number(o, "row", r->row);
        put_number(o, "col", r->col);
        put_number(o, "count", r->count);
        put_word(o, "cls", NAME(fcp_cell_names, r->cls));
        end_record(o);
    }
    end_table(o);
}

static const char *const side_names[FCP_SIDES] = {"queries", "keys"};

static void put_transfers(out *o, const fcp_plan *plan) {
    begin_table(o, "transfers");
    for (uint64_t i = 0; i < plan->transfers_count; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        bool bundle = t->cls == FCP_IN || t->cls == FCP_OUT;
        begin_record(o, "transfer", i);
        put_word(o, "dir", NAME(fcp_direction_names, t->dir));
        put_word(o, "cls", NAME(fcp_class_names, t->cls));
        put_word(o, "fabric", NAME(fcp_fabric_names, t->fabric));
        put_number(o, "peer", t->peer);
        put_index(o, "block", t->block);
        put_number(o, "first", t->first);
        put_number(o, "tokens", t->tokens);
        put_index(o, "slot", bundle ? FCP_NONE : t->slot);
        if (bundle && fcp_plan_split(plan)) put_word(o, "side", NAME(side_names, t->side));
        end_record(o);
    }
    end_table(o);
}

static void put_rounds(out *o, const fcp_plan *plan) {
    begin_table(o, "rounds");
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t i = plan->round_starts[pass]; i < plan->round_starts[pass + 1]; i++) {
            begin_record(o, "round", i);
            put_word(o, "pass", fcp_pass_names[pass]);
            put_number(o, "round", i - plan->round_starts[pass]);
            put_fields(o, round_fields, COUNT(round_fields), &plan->rounds[i]);
            end_record(o);
        }
    end_table(o);
}

static void put_streams(out *o, const fcp_plan *plan) {
    uint32_t ranks = plan->problem->ranks;
    begin_table(o, "streams");
    for (uint64_t i = 0; i < plan->streams_count; i++) {
        begin_record(o, "stream", i);
        put_word(o, "pass", NAME(fcp_pass_names, i / FCP_QUEUES / ranks));
        put_number(o, "rank", i / FCP_QUEUES % ranks);
        put_word(o, "queue", fcp_queue_names[i % FCP_QUEUES]);
        put_number(o, "first", plan->streams[i].first);
        put_number(o, "count", plan->streams[i].count);
        end_record(o);
    }
    end_table(o);
}

static void put_range(out *o, const char *first, const fcp_instr *x) {
    put_number(o, first, x->a);
    put_number(o, "count", x->b);
}

static void put_instrs(out *o, const fcp_plan *plan) {
    uint64_t stream = 0, ranks = plan->problem->ranks;
    begin_table(o, "instrs");
    for (uint64_t i = 0; i < plan->instrs_count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        while (i - plan->streams[stream].first >= plan->streams[stream].count) stream++; /* streams partition them */
        begin_record(o, "instr", i);
        put_word(o, "pass", NAME(fcp_pass_names, stream / FCP_QUEUES / ranks));
        put_number(o, "rank", stream / FCP_QUEUES % ranks);
        put_word(o, "queue", fcp_queue_names[stream % FCP_QUEUES]);
        put_word(o, "op", NAME(fcp_op_names, x->op));
        put_number(o, "stage", x->stage);
        switch (x->op) {
        case FCP_OP_WAIT:
            if (stream % FCP_QUEUES == FCP_COMPUTE) {
                put_number(o, "net", x->a);
                put_number(o, "local", x->b);
            } else {
                put_number(o, "complete", x->a);
            }
            break;
        case FCP_OP_COPY: put_range(o, "first_transfer", x); break;
        case FCP_OP_DELTA: put_range(o, "first_slot", x); break;
        case FCP_OP_ATTEND: put_range(o, "first_visit", x); break;
        case FCP_OP_FINISH:
            put_number(o, "block", x->a);
            put_number(o, "from_slot", x->b);
            put_number(o, "into_slot", fcp_finish_slot(plan, (uint32_t)(stream / FCP_QUEUES % ranks), x));
            break;
        case FCP_OP_REDUCE:
        case FCP_OP_MERGE:
        case FCP_OP_REDUCE_Q:
        case FCP_OP_ROUND:
            put_number(o, "block", x->a);
            put_number(o, "from_slot", x->b);
            put_number(o, "into_slot", x->c);
            break;
        case FCP_OP_LAUNCH:
            put_range(o, "first_transfer", x);
            put_number(o, "round", x->c);
            break;
        default: break;
        }
        end_record(o);
    }
    end_table(o);
}

static void put_real(out *o, const char *name, int64_t bits) {
    begin_value(o, name);
    put_double(o, mc_real(bits));
}

static void put_sink(out *o, const fcp_plan *plan) {
    begin_table(o, "sink");
    for (uint64_t i = 0; i < plan->sink_count; i++) {
        begin_record(o, "sink", i);
        begin_value(o, "logit");
        put_double(o, plan->sink[i]);
        end_record(o);
    }
    end_table(o);
}

/* The values are not printed: the hash tells two files apart. */
static void put_arrays(out *o, const fcp_plan *plan) {
    begin_table(o, "arrays");
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        char hash[2 * sizeof a->hash + 1];
        for (size_t j = 0; j < sizeof a->hash; j++) snprintf(hash + 2 * j, 3, "%02x", a->hash[j]);
        begin_record(o, "array", i);
        put_word(o, "name", plan->names + a->name);
        put_word(o, "file", a->file == FCP_NONE ? "-" : plan->names + a->file);
        put_word(o, "kind", fcp_array_names[a->kind]);
        put_number(o, "width", a->width == MC_F64 ? 64 : 8 * (uint64_t)a->width);
        put_word(o, "type", a->width == MC_F64 ? "real" : "int");
        put_number(o, "count", a->count);
        put_number(o, "columns", a->columns);
        put_number(o, "heads", a->heads);
        put_number(o, "q_cell", a->q_cell);
        put_number(o, "k_cell", a->k_cell);
        put_number(o, "offset", a->offset);
        begin_value(o, "lo");
        put_i64(o, a->lo);
        begin_value(o, "hi");
        put_i64(o, a->hi);
        put_word(o, "hash", hash);
        end_record(o);
    }
    end_table(o);
}

static void put_code(out *o, const char *name, const mc_node *nodes, uint64_t count) {
    begin_table(o, name);
    for (uint64_t i = 0; i < count; i++) {
        const mc_node *x = &nodes[i];
        begin_record(o, name, i);
        put_word(o, "op", mc_op_name(x->op));
        if (x->a != MC_NONE) put_number(o, "a", x->a);
        if (x->b != MC_NONE) put_number(o, "b", x->b);
        if (x->c != MC_NONE) put_number(o, "c", x->c);
        if (x->guard != MC_NONE) put_number(o, "guard", x->guard);
        if (x->op == MC_CONST_I || x->op == MC_CONST_B) {
            begin_value(o, "value");
            put_i64(o, x->imm);
        } else if (x->op == MC_CONST_F) put_real(o, "value", x->imm);
        else if (x->op == MC_BANDS) put_number(o, "slices", (uint64_t)x->imm);
        else if (x->imm || mc_loads_int(x->op) || mc_loads_real(x->op)) put_number(o, "array", (uint64_t)x->imm);
        end_record(o);
    }
    end_table(o);
}

/* --- layers that recur -------------------------------------------------------------------------------------------- */

static void put_recurrent(out *o, const fcp_plan *plan) {
    begin_table(o, "recurrent");
    for (uint64_t i = 0; i < plan->recurrent_count; i++) {
        const fcp_recurrent *x = &plan->recurrent[i];
        begin_record(o, "recurrent", i);
        put_word(o, "kind", NAME(fcp_layer_kind_names, x->kind));
        put_number(o, "times", x->times);
        if (x->kind == FCP_HALO) {
            put_number(o, "before", x->before);
            put_number(o, "after", x->after);
            put_number(o, "channels", x->channels);
        } else {
            put_number(o, "heads", x->heads);
            put_number(o, "rows", x->rows);
            put_number(o, "columns", x->columns);
            put_word(o, "decay", NAME(fcp_decay_names, x->decay));
            put_number(o, "reverse", x->reverse);
            put_number(o, "parts", x->parts);
            put_word(o, "shape", NAME(fcp_scan_shape_names, x->shape));
        }
        put_number(o, "rounds", x->rounds[FCP_FORWARD]);
        put_number(o, "bound", x->bound[FCP_FORWARD]);
        if (x->kind == FCP_SCAN) put_number(o, "backward_rounds", x->rounds[FCP_BACKWARD]);
        if (x->kind == FCP_SCAN) put_number(o, "backward_bound", x->bound[FCP_BACKWARD]);
        end_record(o);
    }
    end_table(o);
}

/* The layer, pass and rank of a stream of steps. */
static void put_network(out *o, const fcp_plan *plan, uint64_t stream) {
    const uint32_t ranks = plan->problem->ranks;
    put_number(o, "layer", stream / ranks / FCP_PASSES);
    put_word(o, "pass", fcp_pass_names[stream / ranks % FCP_PASSES]);
    put_number(o, "rank", stream % ranks);
}

static void put_step_streams(out *o, const fcp_plan *plan) {
    begin_table(o, "step_streams");
    for (uint64_t i = 0; i < plan->step_streams_count; i++) {
        begin_record(o, "step_stream", i);
        put_network(o, plan, i);
        put_number(o, "first", plan->step_streams[i].first);
        put_number(o, "count", plan->step_streams[i].count);
        put_number(o, "temporaries", plan->step_streams[i].temporaries);
        end_record(o);
    }
    end_table(o);
}

/* What a step of a scan works with. */
static void put_scan_step(out *o, const fcp_step *s) {
    put_number(o, "part", s->part);
    if (s->op != FCP_STEP_COPY) put_number(o, "whole", s->whole);
    if (s->op != FCP_STEP_RECV) put_number(o, s->op == FCP_STEP_COMBINE ? "before" : "from", s->a);
    if (s->op == FCP_STEP_COMBINE) put_number(o, "then", s->b);
    if (s->op != FCP_STEP_SEND) put_number(o, "into", s->out);
}

/* And one of a halo. */
static void put_halo_step(out *o, const fcp_step *s) {
    put_number(o, s->op == FCP_STEP_COPY ? "from_rows" : "first_rows", s->a);
    put_number(o, s->op == FCP_STEP_COPY ? "into_rows" : "count", s->b);
}

static void put_steps(out *o, const fcp_plan *plan) {
    const uint32_t ranks = plan->problem->ranks;
    uint64_t stream = 0;
    begin_table(o, "steps");
    for (uint64_t i = 0; i < plan->steps_count; i++) {
        const fcp_step *s = &plan->steps[i];
        while (i - plan->step_streams[stream].first >= plan->step_streams[stream].count) stream++;
        begin_record(o, "step", i);
        put_network(o, plan, stream);
        put_word(o, "op", NAME(fcp_step_names, s->op));
        if (s->op == FCP_STEP_SEND || s->op == FCP_STEP_RECV) {
            put_number(o, "round", s->round);
            put_word(o, "fabric", NAME(fcp_fabric_names, s->fabric));
            put_number(o, "peer", s->peer);
        }
        if (plan->recurrent[stream / ranks / FCP_PASSES].kind == FCP_SCAN) put_scan_step(o, s);
        else put_halo_step(o, s);
        end_record(o);
    }
    end_table(o);
}

fcp_code fcp_plan_dump(const fcp_plan *given, bool json, fcp_emit *emit, void *context, fcp_error *err) {
    fcp_plan view = fcp_plan_view(given);
    const fcp_plan *plan = &view;
    fcp_code whole = fcp_plan_whole(given, "printing", err);
    if (whole) return whole;
    out *o = malloc(sizeof *o);
    if (!o) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to print a plan");
    o->emit = emit;
    o->context = context;
    o->used = 0;
    o->json = json;
    o->first = false;
    put_text(o, json ? "{\"plan\":" : "plan version ");
    put_u64(o, FCP_PLAN_VERSION);
    put_text(o, json ? "" : "\n");
    put_source(o, plan);
#define TABLE(table, name, fields) \
    put_table(o, #table, name, fields, COUNT(fields), plan->table, plan->table##_count, sizeof *plan->table)
    put_single(o, "problem", problem_fields, COUNT(problem_fields), plan->problem);
    put_single(o, "cluster", cluster_fields, COUNT(cluster_fields), plan->cluster);
    put_single(o, "summary", summary_fields, COUNT(summary_fields), plan->summary);
    TABLE(sequences, "sequence", sequence_fields);
    TABLE(pieces, "piece", piece_fields);
    TABLE(deals, "deal", deal_fields);
    TABLE(heads, "heads", heads_fields);
    TABLE(blocks, "block", block_fields);
    TABLE(tiles, "tile", tile_fields);
    TABLE(parts, "part", part_fields);
    TABLE(shapes, "shape", shape_fields);
    put_runs(o, plan);
    TABLE(visits, "visit", visit_fields);
    put_rounds(o, plan);
    put_numbers(o, "round_starts", "round_start", "first", plan->round_starts, plan->round_starts_count);
    put_streams(o, plan);
    put_instrs(o, plan);
    put_transfers(o, plan);
    put_code(o, "mask", plan->mask, plan->mask_count);
    put_code(o, "score", plan->score, plan->score_count);
    put_code(o, "slope", plan->slope, plan->slope_count);
    put_sink(o, plan);
    put_arrays(o, plan);
    TABLE(slices, "slices", slices_fields);
    TABLE(band_rows, "band_row", band_row_fields);
    TABLE(bands, "band", band_fields);
    if (plan->head_classes_count) /* only files with classes have this section */
        put_numbers(o, "head_classes", "head", "class", plan->head_classes, plan->head_classes_count);
    if (plan->recurrent_count) { /* likewise */
        put_recurrent(o, plan);
        put_step_streams(o, plan);
        put_steps(o, plan);
        TABLE(halo_rows, "halo_rows", halo_rows_fields);
    }
    put_text(o, json ? "}" : "");
    if (o->used) emit(context, o->text, o->used);
    free(o);
    return FCP_OK;
}
