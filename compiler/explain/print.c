/* print.c: prints an explanation as text and as JSON. It also has the public functions fcpc_explain_text and
 * fcpc_explain_json, which explain a pair and return one of these. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/base/real.h"
#include "runtime/base/sized.h"
#include "compiler/explain/where_computed.h"
#include "compiler/explain/where_recurs.h"
#include "compiler/explain/explain.h"
#include "runtime/plan/extract.h"

/* --- text --------------------------------------------------------------------------------------------------------- */

static void print_value(text *t, const explain_step *s) {
    switch (s->kind) {
    case EXPLAIN_NUMBER: text_printf(t, "%" PRId64, s->value); break;
    case EXPLAIN_REAL: real_print_short(s->real, t); break;
    case EXPLAIN_CONDITION: text_puts(t, s->value ? "true" : "false"); break;
    case EXPLAIN_FAULT: text_puts(t, "fault"); break;
    case EXPLAIN_UNREACHED:
    case EXPLAIN_ARRAY: text_puts(t, "-"); break;
    }
}

/* Adds a line: value, expression, operands, place. If the line is too long, the expression is cut off, and so are the
 * operands if they take more than half of the line. */
static void print_step(const explain_step *s, const char *main_source, uint32_t value_width, uint32_t width,
                       bool colour, text *out) {
    text value = {0}, middle = {0}, place = {0};
    print_value(&value, s);
    if (s->builtin) text_printf(&place, "prelude:%u:%u", s->line, s->column);
    else if (!strcmp(s->file, main_source)) text_printf(&place, "%u:%u", s->line, s->column);
    else if (s->line) text_printf(&place, "%s:%u:%u", s->file, s->line, s->column);
    const char *with = s->kind == EXPLAIN_UNREACHED ? "not reached" : s->again ? "as above" : s->with;
    uint32_t indent = 2 * (s->depth < 12 ? s->depth : 12),
             taken = 1 + value_width + 2 + indent + 1 + (uint32_t)place.size;
    uint32_t room = width > taken + 24 ? width - taken : 24;
    size_t with_size = strlen(with), text_size = strlen(s->text), with_room = with_size ? with_size + 2 : 0;
    if (text_size + with_room > room && with_room > room / 2) with_room = room / 2;
    size_t text_room = room - with_room;
    if (text_size > text_room) {
        text_add(&middle, s->text, text_room - 3);
        text_puts(&middle, "...");
    } else text_puts(&middle, s->text);
    if (with_size) {
        text_puts(&middle, ": ");
        if (with_size + 2 > room - middle.size) {
            text_add(&middle, with, room - middle.size - 3);
            text_puts(&middle, "...");
        } else text_puts(&middle, with);
    }
    const char *hue = !colour ? "" : s->kind == EXPLAIN_FAULT ? "\033[1;31m" : s->kind == EXPLAIN_UNREACHED ? "\033[2m"
                    : s->kind == EXPLAIN_NUMBER || s->kind == EXPLAIN_REAL ? "" : s->value ? "\033[32m" : "\033[31m";
    text_printf(out, " %s", hue);
    text_pad(out, ' ', value_width - value.size);
    text_add(out, value.at, value.size);
    text_puts(out, *hue ? "\033[0m  " : "  ");
    text_pad(out, ' ', indent);
    text_add(out, middle.at, middle.size);
    if (place.size) {
        text_pad(out, ' ', room - middle.size + 1);
        text_add(out, place.at, place.size);
    }
    text_puts(out, "\n");
    out->failed |= value.failed || middle.failed || place.failed;
    text_free(&value);
    text_free(&middle);
    text_free(&place);
}

/* Adds the conditions that decide: on one line if they fit, else one below the other. */
static void print_because(const explanation *o, uint32_t width, text *out) {
    size_t whole = 0;
    for (unsigned i = 0; i < o->reasons; i++) whole += strlen(o->because[i]) + 8;
    for (unsigned i = 0; i < o->reasons; i++)
        text_printf(out, "%s%s%s", i == 0 ? "because " : whole > width ? "\n    and " : " and ", o->because[i],
                    i + 1 == o->reasons ? "\n" : "");
}

/* Adds what the score makes of the logit; its steps follow. */
static void print_score(const explanation *o, text *out) {
    text_printf(out, "\n%s: s = ", o->score);
    real_print_short(o->s, out);
    if (o->score_faults) text_printf(out, " faults: %s\n", o->fault);
    else {
        text_puts(out, " becomes ");
        real_print_short(o->scored, out);
        text_puts(out, "\n");
    }
    if (o->score_first < o->count) text_puts(out, "\n");
}

void explain_text(const explanation *o, const char *main_source, uint32_t width, bool colour, text *out) {
    text_printf(out, "%s: q = %" PRId64 " %s k = %" PRId64 " (", o->mask, o->q,
                o->kind == EXPLAIN_FAULT ? "faults at" : o->allowed ? "sees" : "does not see", o->k);
    if (o->by_head) text_printf(out, "h = %" PRId64 ", ", o->h);
    if (o->by_field) text_printf(out, "sequence %" PRIu64 ", ", o->sequence);
    text_printf(out, "n = %" PRId64 ")\n", o->n);
    print_because(o, width, out);
    text_puts(out, "\n");
    uint32_t value_width = 5;
    for (size_t i = 0; i < o->count; i++) {
        text t = {0};
        print_value(&t, &o->steps[i]);
        out->failed |= t.failed;
        if (t.size > value_width) value_width = (uint32_t)t.size;
        text_free(&t);
    }
    for (size_t i = 0; i < o->count; i++) {
        if (o->score && i == o->score_first) print_score(o, out);
        print_step(&o->steps[i], main_source, value_width, width, colour, out);
    }
    if (o->score && o->score_first == o->count) print_score(o, out);
    if (o->left_out) text_printf(out, " ... and %zu steps more\n", o->left_out);
    if (o->computed) explain_computed_text(o->computed, out);
    if (o->stretch) explain_stretch_text(o->stretch, o->q, out);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void add_steps(json *j, const explanation *o, size_t first, size_t end) {
    json_array(j, "steps");
    for (size_t i = first; i < end; i++) {
        static const char *const states[] = {"value", "value", "value", "fault", "not reached", "array"};
        const explain_step *s = &o->steps[i];
        json_object(j, NULL);
        json_u64(j, "depth", s->depth);
        json_string(j, "state", states[s->kind]);
        if (s->kind == EXPLAIN_NUMBER) json_i64(j, "value", s->value);
        else if (s->kind == EXPLAIN_REAL) json_double(j, "value", s->real);
        else if (s->kind == EXPLAIN_CONDITION) json_bool(j, "value", s->value);
        else json_null(j, "value");
        json_string(j, "text", s->text);
        json_string(j, "with", s->with);
        if (s->kind == EXPLAIN_FAULT) json_string(j, "fault", s->fault);
        json_bool(j, "again", s->again);
        json_string(j, "file", s->builtin ? "<prelude>" : s->file);
        json_u64(j, "line", s->line);
        json_u64(j, "column", s->column);
        json_end(j);
    }
    json_end(j);
}

void explain_json(const explanation *o, json *j) {
    json_string(j, "mask", o->mask);
    json_i64(j, "q", o->q);
    json_i64(j, "k", o->k);
    json_i64(j, "n", o->n);
    if (o->by_head) json_i64(j, "h", o->h);
    if (o->by_field) json_u64(j, "sequence", o->sequence);
    if (o->kind == EXPLAIN_CONDITION) json_bool(j, "allowed", o->allowed);
    else json_null(j, "allowed");
    json_array(j, "because");
    for (unsigned i = 0; i < o->reasons; i++) json_string(j, NULL, o->because[i]);
    json_end(j);
    if (o->kind == EXPLAIN_FAULT || o->score_faults) json_string(j, "fault", o->fault);
    add_steps(j, o, 0, o->score ? o->score_first : o->count);
    if (o->score) {
        json_object(j, "score");
        json_string(j, "name", o->score);
        json_double(j, "s", o->s);
        if (o->score_faults) json_null(j, "value");
        else json_double(j, "value", o->scored);
        add_steps(j, o, o->score_first, o->count);
        json_end(j);
    }
    json_u64(j, "left_out", o->left_out);
    if (o->computed) explain_computed_json(o->computed, j);
    if (o->stretch) explain_stretch_json(o->stretch, j);
}

/* --- the public functions ----------------------------------------------------------------------------------------- */

enum { WIDTH_MOST = 1000 }; /* each line is filled up to the width, so a text can need steps times as much memory */

static fcp_code report(diags *d, fcp_code code, const char *message) {
    if (d) diag_error(d, code, SPAN_NONE, "%s", message);
    return code;
}

/* Explains the pair, and makes its text, or JSON. */
static fcp_code answer(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                       const fcpc_question *question, diags *d, bool as_json, char **out_text) {
    fcpc_question asked;
    fcp_error err;
    text out = {0};
    json j = {0};
    fcp_code code = fcp_sized_read(&asked, sizeof asked, question, "fcpc_question", &err);
    if (code != FCP_OK) return report(d, code, err.message);
    explanation e = {.q = asked.q, .k = asked.k, .n = (int64_t)asked.length, .h = asked.head, .s = asked.logit,
                     .sequence = asked.sequence, .asked = asked.choose_sequence, .plan = asked.plan};
    if (asked.width > WIDTH_MOST) return report(d, FCP_E_ARGUMENT, "fcpc_question.width is larger than 1000");
    if (asked.length > INT64_MAX || asked.k < 0)
        return report(d, FCP_E_VALUE, "a key's position is 0 or more, and a length is less than 2^63");
    if (asked.plan && fcp_plan_whole(asked.plan, "an explanation", &err)) return report(d, err.code, err.message);
    if (asked.plan) bytes = asked.plan->source, size = asked.plan->source_count;
    code = explain_pair(name ? name : "", bytes, size, options, d, &e);
    if (code == FCP_OK && as_json) {
        json_object(&j, NULL);
        explain_json(&e, &j);
        json_end(&j);
    } else if (code == FCP_OK) explain_text(&e, name ? name : "", asked.width ? asked.width : 80, asked.colour, &out);
    arena_free(&e.arena);
    const fcp_code made =
        as_json ? json_hand_over(&j, code, out_text, &err) : text_hand_over(&out, code, out_text, &err);
    return made == code ? code : report(d, made, "out of memory");
}

fcp_code fcpc_explain_text(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                           const fcpc_question *question, fcpc_diagnostics *d, char **out_text) {
    return answer(name, bytes, size, options, question, d, false, out_text);
}

fcp_code fcpc_explain_json(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                           const fcpc_question *question, fcpc_diagnostics *d, char **out_text) {
    return answer(name, bytes, size, options, question, d, true, out_text);
}
