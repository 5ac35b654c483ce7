/* explain.c: `fcpc explain FILE|MASK q k`: why a pair is allowed or not, and what the score makes of its logit,
 * sub-expression by sub-expression. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "compiler/explain/explain.h"
#include "compiler/base/real.h"

/* What is explained: a program, the program of a plan, or a mask's call as text. */
typedef struct subject {
    const char *name; /* of its source */
    text source;
    const fcp_plan *plan;
} subject;

static bool ends_with(const char *string, const char *end) {
    size_t n = strlen(string), m = strlen(end);
    return n >= m && !strcmp(string + n - m, end);
}

static fcp_code read_subject(const cmd_line *line, cmd_input *input, subject *out, fcp_error *err) {
    const char *file = line->file;
    if (access(file, F_OK) != 0 && !ends_with(file, ".fcp") && !ends_with(file, ".plan") && !strpbrk(file, "\n#{}")) {
        out->name = "<mask>";
        text_printf(&out->source, "plan { mask = %s }\n", file);
        return out->source.failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
    }
    out->name = file;
    if (!cmd_is_plan(file)) return cmd_read(file, &out->source, err);
    fcp_code code = cmd_load(line, input, err);
    if (code != FCP_OK) return code;
    const fcp_plan *plan = input->plan;
    text_add(&out->source, plan->source, plan->source_count);
    out->plan = plan;
    return out->source.failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
}

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

/* One line: value, expression, operands, place; what does not fit is cut from the expression, then from the
 * operands. */
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

/* The conditions that decide: on one line if they fit, else below each other. */
static void print_because(const explanation *o, uint32_t width, text *out) {
    size_t whole = 0;
    for (unsigned i = 0; i < o->reasons; i++) whole += strlen(o->because[i]) + 8;
    for (unsigned i = 0; i < o->reasons; i++)
        text_printf(out, "%s%s%s", i == 0 ? "because " : whole > width ? "\n    and " : " and ", o->because[i],
                    i + 1 == o->reasons ? "\n" : "");
}

/* What the score makes of the logit, above its steps. */
static void print_score(const explanation *o, text *out) {
    text_printf(out, "\n%s: s = ", o->score);
    real_print_short(o->s, out);
    if (o->score_faults) text_puts(out, " faults\n");
    else {
        text_puts(out, " becomes ");
        real_print_short(o->scored, out);
        text_puts(out, "\n");
    }
    if (o->score_first < o->count) text_puts(out, "\n");
}

static fcp_code print_text(const explanation *o, const char *main_source, uint32_t width, fcp_error *err) {
    text out = {0};
    text_printf(&out, "%s: q = %" PRId64 " %s k = %" PRId64 " (", o->mask, o->q,
                o->kind == EXPLAIN_FAULT ? "faults at" : o->allowed ? "sees" : "does not see", o->k);
    if (o->by_head) text_printf(&out, "h = %" PRId64 ", ", o->h);
    if (o->by_field) text_printf(&out, "sequence %" PRIu64 ", ", o->sequence);
    text_printf(&out, "n = %" PRId64 ")\n", o->n);
    print_because(o, width, &out);
    text_puts(&out, "\n");
    uint32_t value_width = 5;
    for (size_t i = 0; i < o->count; i++) {
        text t = {0};
        print_value(&t, &o->steps[i]);
        if (t.size > value_width) value_width = (uint32_t)t.size;
        text_free(&t);
    }
    bool colour = cmd_colour(stdout);
    for (size_t i = 0; i < o->count; i++) {
        if (o->score && i == o->score_first) print_score(o, &out);
        print_step(&o->steps[i], main_source, value_width, width, colour, &out);
    }
    if (o->score && o->score_first == o->count) print_score(o, &out);
    if (o->left_out) text_printf(&out, " ... and %zu steps more\n", o->left_out);
    if (out.failed) {
        text_free(&out);
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    }
    fwrite(out.at, 1, out.size, stdout);
    text_free(&out);
    return cmd_flush(err);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void print_steps(json *j, const explanation *o, size_t first, size_t end) {
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
        json_bool(j, "again", s->again);
        json_string(j, "file", s->builtin ? "<prelude>" : s->file);
        json_u64(j, "line", s->line);
        json_u64(j, "column", s->column);
        json_end(j);
    }
    json_end(j);
}

static fcp_code print_json(const explanation *o, fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    json_string(&j, "mask", o->mask);
    json_i64(&j, "q", o->q);
    json_i64(&j, "k", o->k);
    json_i64(&j, "n", o->n);
    if (o->by_head) json_i64(&j, "h", o->h);
    if (o->by_field) json_u64(&j, "sequence", o->sequence);
    if (o->kind == EXPLAIN_CONDITION) json_bool(&j, "allowed", o->allowed);
    else json_null(&j, "allowed");
    json_array(&j, "because");
    for (unsigned i = 0; i < o->reasons; i++) json_string(&j, NULL, o->because[i]);
    json_end(&j);
    print_steps(&j, o, 0, o->score ? o->score_first : o->count);
    if (o->score) {
        json_object(&j, "score");
        json_string(&j, "name", o->score);
        json_double(&j, "s", o->s);
        if (o->score_faults) json_null(&j, "value");
        else json_double(&j, "value", o->scored);
        print_steps(&j, o, o->score_first, o->count);
        json_end(&j);
    }
    json_u64(&j, "left_out", o->left_out);
    json_end(&j);
    return cmd_json_print(&j, err);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

static fcp_code read_logit(const char *word, double *out, fcp_error *err) {
    const char *digits = word + (*word == '-');
    size_t whole = strspn(digits, "0123456789"), size = whole, part = 0;
    if (digits[size] == '.') size += 1 + (part = strspn(digits + size + 1, "0123456789"));
    if (!whole || digits[size] || (size > whole && !part) || !real_parse(digits, out))
        return fcp_fail(err, FCP_E_USAGE, "--s takes a number, as in --s -1.5; this is '%.60s'", word);
    if (*word == '-') *out = -*out;
    return FCP_OK;
}

fcp_code cmd_explain(const cmd_line *line, cmd_input *input, fcp_error *err) {
    uint64_t q = 0, k = 0, n = 0, h = 0, width = 0;
    bool before = line->more[0][0] == '-'; /* a query before the first key */
    fcp_code code = cmd_position("q", line->more[0] + before, &q, err);
    if (code == FCP_OK) code = cmd_position("k", line->more[1], &k, err);
    if (code == FCP_OK && line->value[OPT_LENGTH]) code = cmd_position("--length", line->value[OPT_LENGTH], &n, err);
    if (code == FCP_OK && line->value[OPT_LENGTH] && !n)
        code = fcp_fail(err, FCP_E_USAGE, "--length must be at least 1");
    if (code == FCP_OK) code = cmd_number(line, OPT_HEAD, 0, 4095, 0, &h, err);
    if (code == FCP_OK) code = cmd_number(line, OPT_WIDTH, 20, 1000, cmd_width(), &width, err);
    double logit = 0;
    if (code == FCP_OK && line->value[OPT_LOGIT]) code = read_logit(line->value[OPT_LOGIT], &logit, err);
    uint64_t sequence = 0;
    if (code == FCP_OK && line->value[OPT_SEQ]) code = cmd_number(line, OPT_SEQ, 0, UINT32_MAX - 1, 0, &sequence, err);
    subject about = {0};
    if (code == FCP_OK) code = read_subject(line, input, &about, err);
    if (code == FCP_OK && !input->diagnostics) input->diagnostics = fcpc_diagnostics_new();
    if (code == FCP_OK && !input->diagnostics) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    explanation out = {.q = before ? -(int64_t)q : (int64_t)q,
                       .k = (int64_t)k,
                       .n = (int64_t)n,
                       .h = (int64_t)h,
                       .s = logit,
                       .sequence = sequence,
                       .asked = line->value[OPT_SEQ] != NULL,
                       .plan = about.plan};
    if (code == FCP_OK) {
        fcpc_options options = {.defines = line->defines, .define_count = line->define_count,
                                .lengths_file = line->value[OPT_LENGTHS], .fields = line->fields,
                                .field_count = line->field_count};
        code = explain_pair(about.name, about.source.at, about.source.size, &options, input->diagnostics, &out);
        if (code != FCP_OK) cmd_first_error(input->diagnostics, code, err);
    }
    if (code == FCP_OK) code = line->json ? print_json(&out, err) : print_text(&out, about.name, (uint32_t)width, err);
    arena_free(&out.arena);
    text_free(&about.source);
    return code;
}
