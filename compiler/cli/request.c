/* request.c: reads a request of `fcpc serve`, which is one line, and answers it.
 *
 *     {"id": 7, "program": "model {...} ...", "lengths": [4096, 2048], "fields": {"doc": [0, 0, ...]}}
 *
 * Requires: nothing; the line comes from outside and may have any bytes.
 * Gives:    the members of `fcpc FILE --json`, or "error" with its code and place. A syntax error of the JSON text has
 *           the file <request>, line 1 and the column in bytes.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compiler/base/arena.h"
#include "compiler/base/diag.h"
#include "compiler/base/json_read.h"
#include "compiler/cli/cmd.h"
#include "compiler/cli/serve.h"
#include "compiler/compile.h"
#include "runtime/base/read_file.h"
#include "runtime/base/stop.h"
#include "runtime/plan/plan_check.h"

/* A growing array in the arena of a request. */
typedef struct list {
    void *at;
    size_t count, room;
} list;

typedef struct request {
    arena memory;
    text word;                           /* the string that was read last */
    const char *id, *program, *file, *plan; /* NULL: not given */
    size_t program_size;
    bool has_number;                     /* the id is a number */
    int64_t number;
    uint64_t max_seconds;                /* 0: no limit */
    list defines, lengths, queries, fields; /* of const char *, uint64_t, uint64_t, fcpc_field */
} request;

/* Appends an element to a list and returns it; NULL: no memory, which is stored in r. */
static void *append(request *q, list *x, size_t size, json_reader *r) {
    void *grown = arena_grow(&q->memory, x->at, x->count, &x->room, size);
    if (!grown) return json_no_memory(r), NULL;
    x->at = grown;
    return (char *)grown + x->count++ * size;
}

static bool read_string(request *q, json_reader *r, void *to) {
    const char **out = to;
    if (!json_read_string(r, &q->word)) return false;
    *out = arena_copy(&q->memory, q->word.at, q->word.size);
    return *out || json_no_memory(r);
}

static bool read_id(request *q, json_reader *r, void *to) {
    if (json_peek(r) == '"') return read_string(q, r, to);
    return q->has_number = json_read_i64(r, &q->number);
}

static bool read_program(request *q, json_reader *r, void *to) {
    const bool good = read_string(q, r, to);
    q->program_size = q->word.size;
    return good;
}

static bool read_defines(request *q, json_reader *r, void *to) {
    json_enter(r, '[');
    while (json_more(r, ']')) {
        const char **one = append(q, to, sizeof *one, r);
        if (!one || !read_string(q, r, one)) return false;
    }
    return !r->why;
}

static bool read_counts(request *q, json_reader *r, void *to) {
    list *out = to;
    json_enter(r, '[');
    while (json_more(r, ']')) {
        uint64_t *one = append(q, out, sizeof *one, r);
        if (!one || !json_read_u64(r, one)) return false;
    }
    return !r->why && (out->count || json_fault(r, "expected a number: a batch has a sequence at least"));
}

/* Makes reals of the whole numbers that were read so far, in the same memory. */
static void turn_real(list *values) {
    _Static_assert(sizeof(int64_t) == sizeof(double), "in place");
    for (size_t i = 0; i < values->count; i++) {
        int64_t whole;
        char *at = (char *)values->at + i * sizeof whole;
        memcpy(&whole, at, sizeof whole);
        const double real = (double)whole;
        memcpy(at, &real, sizeof real);
    }
}

/* {"doc": [0, 0, 1], "bias": [0.5, -1.0e-3], ...}. Values are reals if one of them has a point or an exponent. */
static bool read_fields(request *q, json_reader *r, void *to) {
    json_enter(r, '{');
    while (json_more(r, '}')) {
        list values = {0};
        fcpc_field *field = append(q, to, sizeof *field, r);
        if (!field || !json_key(r, &q->word)) return false;
        field->name = arena_copy(&q->memory, q->word.at, q->word.size);
        if (!field->name) return json_no_memory(r);
        json_enter(r, '[');
        bool reals = false;
        while (json_more(r, ']')) {
            int64_t *one = append(q, &values, sizeof *one, r);
            json_number number;
            if (!one || !json_read_number(r, &number)) return false;
            if (number.is_real && !reals) {
                values.count--;
                turn_real(&values);
                values.count++;
                reals = true;
            }
            const double real = number.is_real ? number.real : (double)number.whole;
            if (reals) memcpy(one, &real, sizeof real);
            else *one = number.whole;
        }
        static const int64_t none[1];
        field->values = reals ? NULL : values.at ? values.at : none;
        field->reals = reals ? values.at : NULL;
        field->count = values.count;
    }
    return !r->why;
}

static bool read_max_seconds(request *q, json_reader *r, void *to) {
    (void)q;
    return json_read_u64(r, to) && (*(uint64_t *)to || json_fault(r, "expected a number of at least 1"));
}

/* The members of a request: where each goes, and what reads it there. */
static const struct {
    const char *name;
    size_t to;
    bool (*read)(request *q, json_reader *r, void *to);
} keys[] = {{"id", offsetof(request, id), read_id}, {"program", offsetof(request, program), read_program},
            {"file", offsetof(request, file), read_string}, {"define", offsetof(request, defines), read_defines},
            {"lengths", offsetof(request, lengths), read_counts}, {"queries", offsetof(request, queries), read_counts},
            {"fields", offsetof(request, fields), read_fields}, {"plan", offsetof(request, plan), read_string},
            {"max_seconds", offsetof(request, max_seconds), read_max_seconds}};
enum { KEYS = sizeof keys / sizeof *keys };

/* Finds a key and reads its value. FCP_OK also if the text has a fault, which r knows. */
static fcp_code read_member(request *q, json_reader *r, unsigned *seen, uint32_t column, fcp_error *err) {
    const char *names[KEYS];
    if (!json_key(r, &q->word)) return FCP_OK;
    for (unsigned i = 0; i < KEYS; i++) {
        names[i] = keys[i].name;
        if (strcmp(q->word.at, keys[i].name) != 0) continue;
        if (*seen & 1u << i)
            return fcp_fail_in(err, FCP_E_DUPLICATE, "<request>", 1, column, "'%s' is given twice", keys[i].name);
        *seen |= 1u << i;
        keys[i].read(q, r, (char *)q + keys[i].to);
        return FCP_OK;
    }
    const char *near = diag_nearest(q->word.at, q->word.size, names, KEYS);
    return fcp_fail_in(err, FCP_E_UNKNOWN_KEY, "<request>", 1, column, "a request has no '%.100s'%s%s%s", q->word.at,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static uint32_t column_of(const json_reader *r) {
    const size_t at = (size_t)(r->at - r->begin);
    return at < UINT32_MAX ? (uint32_t)at + 1 : UINT32_MAX;
}

static fcp_code read_request(request *q, const char *line, size_t size, fcp_error *err) {
    json_reader r = {.begin = line, .at = line, .end = line + size};
    unsigned seen = 0;
    fcp_code code = FCP_OK;
    json_enter(&r, '{');
    while (!code && json_more(&r, '}')) {
        json_peek(&r);
        code = read_member(q, &r, &seen, column_of(&r), err);
    }
    if (code) return code;
    if (!json_finish(&r) && r.no_memory) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (r.why) return fcp_fail_in(err, FCP_E_SYNTAX, "<request>", 1, column_of(&r), "%s", r.why);
    if (!q->program == !q->file)
        return fcp_fail_in(err, FCP_E_MISSING, "<request>", 1, 1,
                           "a request has either 'program', the text of one, or 'file', its path");
    if (q->queries.count && q->queries.count != q->lengths.count)
        return fcp_fail_in(err, FCP_E_LENGTHS, "<request>", 1, 1, "there are %zu lengths and %zu numbers of queries",
                           q->lengths.count, q->queries.count);
    return FCP_OK;
}

/* Refuses a plan's path that is a pipe or a device before anything is planned. The files that are read are checked when
 * they are opened. */
static fcp_code check_plan(const char *path, fcp_error *err) {
    struct stat st;
    return path && stat(path, &st) == 0 && !S_ISREG(st.st_mode) ? cmd_cannot_write(path, FCP_NOT_REGULAR, err) : FCP_OK;
}

/* Parses the program. It is an error, before anything is read, if the plan's path is the program or a file that the
 * program names. */
static fcp_code parse(const request *q, const volatile int *stop, fcpc_diagnostics *d,
                      fcpc_program **out, fcp_error *err) {
    cmd_line implied = {.command = CMD_COMPILE, .file = q->file, .value = {[OPT_OUTPUT] = q->plan}};
    const fcpc_options options = {.size = sizeof options, .defines = q->defines.at,
                                  .define_count = q->defines.count, .need_lengths = !q->lengths.at,
                                  .stop = stop, .see_file = cmd_guard_file, .context = &implied,
                                  .regular_files = true};
    fcp_code code = check_plan(q->plan, err);
    if (!code) code = cmd_check_outputs(&implied, err);
    if (code) return code;
    code = q->file ? fcpc_parse_file(q->file, &options, d, out)
                   : fcpc_parse_text("<program>", q->program, q->program_size, &options, d, out);
    if (code) cmd_first_error(d, code, err);
    if (!code && q->plan) code = cmd_protect_layers(&implied, *out, err);
    return code;
}

static fcp_code make_plans(const request *q, double max_seconds, const volatile int *stop, cmd_input *out,
                           fcp_error *err) {
    fcpc_program *program = NULL;
    fcp_code code = parse(q, stop, out->diagnostics, &program, err);
    if (!code) {
        const double own = (double)q->max_seconds;
        const bool by_own = own > 0 && (max_seconds == 0 || own < max_seconds);
        const fcpc_batch batch = {.size = sizeof batch, .lengths = q->lengths.at, .queries = q->queries.at,
                                  .count = q->lengths.count, .fields = q->fields.at, .field_count = q->fields.count,
                                  .max_seconds = by_own ? own : max_seconds};
        compile_watch watch = {.see = NULL};
        code = fcpc_program_layers(program, 0, NULL) > 1
                   ? cmd_plan_layers(program, &batch, stop, &watch, 0, out)
                   : fcpc_plan_batch(program, &batch, stop, out->diagnostics, &out->times, &out->plan);
        if (code) cmd_first_error(out->diagnostics, code, err);
    }
    fcpc_program_free(program);
    return code;
}

/* Called between the steps of a request: returns FCP_E_INTERRUPTED if the client has gone. */
static fcp_code go_on(const volatile int *stop, fcp_error *err) {
    return fcp_stop_asked(stop) ? fcp_fail(err, FCP_E_INTERRUPTED, "%s", fcp_code_text(FCP_E_INTERRUPTED)) : FCP_OK;
}

static void begin_answer(const request *q, json *j) {
    json_object(j, NULL);
    if (q->has_number) json_i64(j, "id", q->number);
    else json_string(j, "id", q->id);
}

/* Ends the object and appends it as a line. If there is no memory for that, the client still gets a line, which is a
 * constant. */
static void send_answer(json *j, const fcpc_diagnostics *d, const fcp_error *err, text *out) {
    cmd_json_diagnostics(j, d, err->code ? err : NULL);
    json_end(j);
    const char *object = json_text(j);
    text_puts(out, object ? object : "{\"id\": null, \"error\": {\"severity\": \"error\", \"code\": \"E012\", "
                                     "\"message\": \"out of memory\", \"file\": \"\", \"line\": 0, \"column\": 0}}");
    text_puts(out, "\n");
    json_free(j);
}

bool cmd_answer(const char *line, size_t size, double max_seconds, const volatile int *stop, text *out) {
    request q = {0};
    json done = {0}, failed = {0};
    fcp_error err = {0};
    cmd_input made = {.diagnostics = fcpc_diagnostics_new()};
    fcp_code code = made.diagnostics ? go_on(stop, &err) : fcp_fail(&err, FCP_E_NO_MEMORY, "out of memory");
    if (!code) code = read_request(&q, line, size, &err);
    if (!code) code = go_on(stop, &err);
    if (!code) code = make_plans(&q, max_seconds, stop, &made, &err);
    begin_answer(&q, &done);
    if (!code) code = go_on(stop, &err);
    if (!code) code = cmd_plans_json(&made, q.plan, true, stop, &done, &err);
    if (!code) code = go_on(stop, &err);
    if (!code && q.plan) code = cmd_write_plans(&made, q.plan, true, &err);
    if (code) begin_answer(&q, &failed);
    send_answer(code ? &failed : &done, made.diagnostics, &err, out);
    json_free(&done);
    cmd_input_free(&made);
    text_free(&q.word);
    arena_free(&q.memory);
    return !code;
}

void cmd_refuse(const fcp_error *err, text *out) {
    const request unknown = {0};
    json j = {0};
    begin_answer(&unknown, &j);
    send_answer(&j, NULL, err, out);
}
