/* bind.c: lays out the fields and tables of a program for one batch.
 *
 * Requires: a checked program.
 * Gives: the binding of bind.h. A field takes the values that come with the batch. If none come and the batch is the
 *     program's own, it takes those of its declaration.
 * Cost: O(bytes of the arrays).
 */
#include "compiler/problem/bind.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/text.h"
#include "compiler/sema/field_shape.h"
#include "compiler/sema/values.h"
#include "runtime/base/saturate.h"

typedef struct job {
    planning *x;
    const struct fcpc_program *program;
    const fcpc_batch *batch;
    const uint64_t *lengths[FCP_SIDES]; /* of queries, of keys */
    size_t count;
    bool own; /* the batch has the lengths of the program's own */
    diags *d;
    uint8_t *data;
} job;

static span place_of(const job *j, const program_array *a) { return planning_span(j->x, a->at); }

/* The values that come with the batch for a field; NULL: there are none. */
static const fcpc_field *given_values(const job *j, const char *name) {
    for (size_t i = 0; i < j->batch->field_count; i++)
        if (!strcmp(j->batch->fields[i].name, name)) return &j->batch->fields[i];
    return NULL;
}

/* Checks that every name that comes with the batch is the name of a field, and comes once. */
static fcp_code check_names(const job *j) {
    const struct fcpc_program *g = j->program;
    for (size_t i = 0; i < j->batch->field_count; i++) {
        const fcpc_field *f = &j->batch->fields[i];
        const char *name = f->name ? f->name : "";
        bool known = false;
        for (uint32_t k = 0; k < g->field_count; k++) known |= !strcmp(g->fields[k], name);
        if (!known) {
            diag_error(j->d, FCP_E_FIELD, SPAN_NONE, "the batch has values for '%s', which is no field of the program",
                       name);
            const char *nearest = diag_nearest(name, strlen(name), g->fields, g->field_count);
            if (nearest) diag_hint(j->d, "did you mean '%s'?", nearest);
            return FCP_E_FIELD;
        }
        const bool none = f->count && !f->values && !f->reals, both = f->values && f->reals;
        if (given_values(j, name) != f || none || both) {
            diag_error(j->d, FCP_E_FIELD, SPAN_NONE,
                       none   ? "the batch has no values for field '%s'"
                       : both ? "the batch has whole numbers and reals for field '%s'"
                              : "the batch has values for field '%s' twice",
                       name);
            return FCP_E_FIELD;
        }
    }
    return FCP_OK;
}

/* The environment of a sequence, without its arrays. */
static mc_env env_of(const struct fcpc_program *program, uint64_t keys, uint64_t queries) {
    mc_env env = {.n = (int64_t)keys, .queries = (int64_t)queries, .bands = program->slices};
    if (program->align == FCP_BOTTOM_RIGHT) env.q_first = env.n - env.queries;
    return env;
}

static mc_env env_of_sequence(const void *of, size_t sequence) {
    const job *j = of;
    return env_of(j->program, j->lengths[FCP_KEYS][sequence], j->lengths[FCP_QUERIES][sequence]);
}

/* Checks that the values that come for a field are as many as the batch needs. */
static fcp_code check_count(const job *j, const program_array *a, const char *name, uint64_t given, uint64_t needed) {
    if (given == needed) return FCP_OK;
    const sema_batch batch = {j->count, env_of_sequence, j};
    text what = {0};
    text_printf(&what, "field '%s'", name);
    char *line = text_take(&what);
    if (!line) return FCP_E_NO_MEMORY;
    sema_wrong_count(j->d, place_of(j, a), line, name, &a->record,
                     a->record.heads && a->record.heads != j->program->heads, given, false, &batch);
    free(line);
    return FCP_E_FIELD;
}

/* Checks the reals that come for a field. Kernels keep them as floats. */
static fcp_code check_reals(const job *j, const program_array *a, const char *name, const fcpc_field *f) {
    for (uint64_t i = 0; f->reals && i < f->count; i++) {
        if (isfinite((float)f->reals[i])) continue;
        diag_error(j->d, FCP_E_FIELD, place_of(j, a), "element %" PRIu64 " of field '%s' is %s", i, name,
                   isfinite(f->reals[i]) ? "beyond the largest number of a kernel, 3.4e38" : "not finite");
        return FCP_E_FIELD;
    }
    return FCP_OK;
}

/* Checks the values that come for a field, and describes them in *out and *record. */
static fcp_code check_given(const job *j, const program_array *a, const char *name, const fcpc_field *f,
                            const uint64_t *starts, mc_array *out, fcp_array *record) {
    if (!f) {
        diag_error(j->d, FCP_E_FIELD, place_of(j, a), j->own ? "field '%s' has no values"
                                                             : "field '%s' has no values for this batch", name);
        if (j->own) diag_hint(j->d, "--field %s=FILE gives them", name);
        else diag_hint(j->d, "its lengths are not those of the program: values come with it, in fcpc_batch.fields");
        return FCP_E_FIELD;
    }
    fcp_code code = check_count(j, a, name, f->count, starts[j->count]);
    if (code) return code;
    record->count = f->count;
    static const int64_t none = 0;
    if (a->record.width == MC_F64) {
        *out = (mc_array){.data = f->reals    ? (const void *)f->reals
                                  : f->values ? (const void *)f->values
                                              : &none,
                          .count = (int64_t)f->count,
                          .width = f->reals ? MC_F64 : MC_I64};
        return check_reals(j, a, name, f);
    }
    if (f->reals && f->count) {
        diag_error(j->d, FCP_E_FIELD, place_of(j, a), "field '%s' is of whole numbers, and the batch has reals for it",
                   name);
        diag_hint(j->d, "a field of reals, for scores: field %s = given(real)", name);
        return FCP_E_FIELD;
    }
    int64_t lo = INT64_MAX, hi = INT64_MIN;
    for (uint64_t i = 0; i < f->count; i++) {
        int64_t v = f->values[i];
        if (a->declared && (v < a->declared_lo || v > a->declared_hi)) {
            diag_error(j->d, FCP_E_FIELD, place_of(j, a),
                       "element %" PRIu64 " of field '%s' is %" PRId64 ", outside %" PRId64 "..%" PRId64, i, name, v,
                       a->declared_lo, a->declared_hi + 1);
            return FCP_E_FIELD;
        }
        if (a->count_of && v < 0) {
            diag_error(j->d, FCP_E_VALUE, place_of(j, a),
                       "%s must be at least 0, and element %" PRIu64 " of field '%s' is %" PRId64, a->count_of, i, name,
                       v);
            return FCP_E_VALUE;
        }
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
    }
    if (!f->count) lo = hi = 0;
    *out = (mc_array){.data = f->count ? f->values : &none, .count = (int64_t)f->count, .width = MC_I64};
    record->lo = lo;
    record->hi = hi;
    return FCP_OK;
}

/* Finds the range of the values that write_given will write for run(...) of a field. */
static void size_runs(const job *j, const mc_array *of, fcp_array *record) {
    const uint64_t *lengths = j->lengths[FCP_KEYS];
    uint64_t first = 0;
    record->lo = record->hi = 0;
    for (size_t s = 0; s < j->count; first += lengths[s++]) {
        int64_t greatest = values_runs(of, first, lengths[s], NULL, MC_I64);
        if (greatest > record->hi) record->hi = greatest;
    }
}

static void write_given(const job *j, const program_array *a, const mc_array *values, const fcp_array *record) {
    const uint64_t *lengths = j->lengths[FCP_KEYS];
    void *to = j->data + record->offset;
    uint64_t first = 0;
    if (a->run_of)
        for (size_t s = 0; s < j->count; first += lengths[s++])
            values_runs(values, first, lengths[s], to, (mc_width)record->width);
    else if (values->width == MC_F64) memcpy(to, values->data, fcp_array_bytes(record));
    else if (record->width == MC_F64)
        for (uint64_t i = 0; i < record->count; i++) ((double *)to)[i] = (double)((const int64_t *)values->data)[i];
    else
        for (uint64_t i = 0; i < record->count; i++)
            values_put(to, (mc_width)record->width, i, ((const int64_t *)values->data)[i]);
}

static fcp_code bind_names(const job *j, fcp_array *records, binding *out) {
    const struct fcpc_program *g = j->program;
    size_t size = 0;
    for (uint32_t i = 0; i < g->array_count; i++)
        size += strlen(g->arrays[i].name) + 1 + (g->arrays[i].file ? strlen(g->arrays[i].file) + 1 : 0);
    char *names = ARENA_NEW(&j->x->memory, char, size + 1), *at = names;
    if (!names) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < g->array_count; i++) {
        const program_array *a = &g->arrays[i];
        records[i].name = (uint32_t)(at - names);
        at = stpcpy(at, a->name) + 1;
        bool file = a->file && records[i].file != FCP_NONE;
        records[i].file = file ? (uint32_t)(at - names) : FCP_NONE;
        if (file) at = stpcpy(at, a->file) + 1;
    }
    out->names = names;
    out->names_size = (size_t)(at - names);
    return FCP_OK;
}

/* Where each sequence's values of a field begin, and how many there are in all. The sum may be UINT64_MAX, which no
 * number of values is. */
static bool find_starts(const job *j, const fcp_array *record, uint64_t **out) {
    uint64_t next = 0;
    *out = ARENA_ZNEW(&j->x->work, uint64_t, j->count + 1);
    for (size_t s = 0; *out && record->kind != FCP_TABLE && s <= j->count; s++) {
        (*out)[s] = next;
        if (s == j->count) break;
        const mc_env env = env_of(j->program, j->lengths[FCP_KEYS][s], j->lengths[FCP_QUERIES][s]);
        next = fcp_plus(next, sema_field_values(record, &env));
    }
    return *out != NULL;
}

/* Checks what the batch brings for fields that nothing reads, as if something did. */
static fcp_code check_unread(const job *j) {
    const struct fcpc_program *g = j->program;
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < g->unread_count; i++) {
        const program_array *a = &g->arrays[g->array_count + i];
        const fcpc_field *f = given_values(j, a->name);
        fcp_array record = a->record;
        uint64_t *starts;
        mc_array values;
        if (!f) continue;
        code = find_starts(j, &record, &starts) ? check_given(j, a, a->name, f, starts, &values, &record)
                                                : FCP_E_NO_MEMORY;
    }
    return code;
}

/* Decides the type, size and place in DATA of every array. values[i]: the values that come with the batch for array i;
 * its data is NULL if none come. */
static fcp_code bind_records(job *j, fcp_array *records, uint64_t **starts, mc_array *values, size_t *out_size) {
    const struct fcpc_program *g = j->program;
    size_t at = 0;
    for (uint32_t i = 0; i < g->array_count; i++) {
        const program_array *a = &g->arrays[i];
        const char *name = a->run_of ? a->run_of : a->name;
        const fcpc_field *f = a->record.kind == FCP_TABLE ? NULL : given_values(j, name);
        records[i] = a->record;
        if (!find_starts(j, &a->record, &starts[i])) return FCP_E_NO_MEMORY;
        if (f || (a->record.kind != FCP_TABLE && !(j->own && a->data))) {
            fcp_code code = check_given(j, a, name, f, starts[i], &values[i], &records[i]);
            if (code) return code;
            if (a->run_of) size_runs(j, &values[i], &records[i]);
            if (a->record.width != MC_F64) records[i].width = values_width(records[i].lo, records[i].hi);
            records[i].file = FCP_NONE; /* not the file's values */
            memset(records[i].hash, 0, sizeof records[i].hash);
        }
        at = (at + 63) / 64 * 64;
        records[i].offset = at;
        at += (size_t)fcp_array_bytes(&records[i]);
    }
    *out_size = at;
    return FCP_OK;
}

static fcp_code bind_all(job *j, binding *out) {
    const struct fcpc_program *g = j->program;
    fcp_array *records = ARENA_ZNEW(&j->x->memory, fcp_array, g->array_count);
    mc_array *values = ARENA_ZNEW(&j->x->work, mc_array, g->array_count);
    out->arrays = ARENA_ZNEW(&j->x->work, mc_array, g->array_count);
    out->starts = ARENA_ZNEW(&j->x->work, uint64_t *, g->array_count);
    if (!records || !values || !out->arrays || !out->starts) return FCP_E_NO_MEMORY;
    fcp_code code = bind_records(j, records, out->starts, values, &out->data_size);
    if (!code) code = bind_names(j, records, out);
    if (code) return code;
    j->data = arena_alloc(&j->x->memory, 1, out->data_size + 64, 64);
    if (!j->data) return FCP_E_NO_MEMORY;
    size_t end = 0;
    for (uint32_t i = 0; i < g->array_count; i++) {
        const program_array *a = &g->arrays[i];
        memset(j->data + end, 0, records[i].offset - end);
        if (values[i].data) write_given(j, a, &values[i], &records[i]);
        else memcpy(j->data + records[i].offset, a->data, fcp_array_bytes(&a->record));
        end = records[i].offset + fcp_array_bytes(&records[i]);
    }
    out->records = records;
    out->data = j->data;
    return FCP_OK;
}

fcp_code bind_lengths(planning *x) {
    bool own = !x->batch->lengths;
    x->lengths = own ? x->program->lengths : x->batch->lengths;
    x->queries = own ? x->program->queries : x->batch->queries;
    x->count = own ? x->program->length_count : x->batch->count;
    if (!x->lengths)
        return planning_fail(x, FCP_E_MISSING, SPAN_NONE, "no batch: the program has no lengths and none were given");
    if (own && x->batch->queries)
        return planning_fail(x, FCP_E_LENGTHS, SPAN_NONE, "the batch has queries without lengths, that is keys");
    return FCP_OK;
}

/* Refuses a field that tells documents apart if a sequence has more or fewer queries than keys: a token would then have
 * no single position in its document. */
static fcp_code check_documents(const job *j) {
    const struct fcpc_program *g = j->program;
    if (g->documents == FCP_NONE) return FCP_OK;
    const uint64_t *queries = j->lengths[FCP_QUERIES], *keys = j->lengths[FCP_KEYS];
    for (size_t s = 0; s < j->count; s++) {
        if (queries[s] == keys[s]) continue;
        diag_error(j->d, FCP_E_FIELD, planning_span(j->x, g->at[AT_DOCUMENTS]),
                   "documents = %s: sequence %zu has %" PRIu64 " quer%s and %" PRIu64 " key%s",
                   g->arrays[g->documents].name, s, queries[s], queries[s] == 1 ? "y" : "ies", keys[s],
                   text_plural(keys[s]));
        diag_hint(j->d, "documents tell positions and labels where every sequence has as many queries as keys");
        return FCP_E_FIELD;
    }
    return FCP_OK;
}

fcp_code bind_batch(planning *x) {
    const struct fcpc_program *program = x->program;
    const uint64_t *keys = x->lengths, *queries = x->queries ? x->queries : keys;
    job j = {.x = x, .program = program, .batch = x->batch, .d = x->d, .count = x->count,
             .lengths = {[FCP_QUERIES] = queries, [FCP_KEYS] = keys}};
    binding *out = ARENA_NEW(&x->work, binding, 1);
    if (!out) return FCP_E_NO_MEMORY;
    *out = (binding){.program = program, .lengths = keys, .queries = queries};
    x->binding = out;
    fcp_code code = check_names(&j);
    if (!code) code = check_documents(&j);
    if (!code) code = check_unread(&j);
    if (code || !program->array_count) return code;
    uint64_t tokens[FCP_SIDES] = {0};
    for (int side = 0; side < FCP_SIDES; side++)
        for (size_t s = 0; s < j.count; s++)
            if (__builtin_add_overflow(tokens[side], j.lengths[side][s], &tokens[side]))
                return FCP_OK; /* problem_open says so */
    size_t bytes = j.count * sizeof *keys;
    const uint64_t *own = program->queries ? program->queries : program->lengths;
    j.own = !x->batch->lengths || (program->lengths && j.count == program->length_count &&
                                   !memcmp(keys, program->lengths, bytes) && !memcmp(queries, own, bytes));
    return bind_all(&j, out);
}

static void bind_arrays(const binding *b, uint32_t s, mc_env *env) {
    if (!b->arrays) return;
    for (uint32_t i = 0; i < b->program->array_count; i++)
        b->arrays[i] = fcp_array_part(&b->records[i], b->data + b->records[i].offset, b->starts[i][s], env);
    env->arrays = b->arrays;
}

mc_env bind_sequence(const binding *b, uint32_t s) {
    mc_env env = env_of(b->program, b->lengths[s], b->queries[s]);
    bind_arrays(b, s, &env);
    return env;
}
