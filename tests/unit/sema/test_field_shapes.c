/* test_field_shapes.c: random fields over sequences, heads, queries and keys, in cells, against what they are defined
 * to be. Each has its values from a list, a text, a .npy, --field or the batch. For every query, key and head of every
 * sequence the plan's mask or score must give what the definition gives; so must what explains it. The program must
 * also print as one that means the same, and one value too many or too few must be refused. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/text.h"
#include "compiler/explain/explain.h"
#include "compiler/fcpc.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"
#include "tests/support/amount.h"
#include "tests/support/splitmix.h"
#include "tests/support/temporary.h"

enum { SEQUENCES = 4, POSITIONS = 48, HEADS = 6, VALUES = SEQUENCES * HEADS * POSITIONS * POSITIONS };
typedef enum source { LIST, TEXT, NPY, SHAPED_NPY, OPTION, BATCH, SOURCES } source;

typedef struct drawn {
    uint64_t state;
    int heads, kv_heads, sequences;
    int keys[SEQUENCES], queries[SEQUENCES];
    bool top_left, real, by_kv;
    int planes, q_cell, k_cell; /* of the field; 0: it is not over them */
    int rows[SEQUENCES], columns[SEQUENCES];
    uint64_t first[SEQUENCES + 1]; /* where the values of each sequence begin */
    source from;
    bool behind; /* `over` stands behind the values */
    double *values;
    char path[TEMPORARY];
    text program;
} drawn;

static int roll(drawn *r, int sides) { return (int)(splitmix(&r->state) % (uint64_t)sides); }

/* --- the definition ----------------------------------------------------------------------------------------------- */

static int first_query(const drawn *r, int s) { return r->top_left ? 0 : r->keys[s] - r->queries[s]; }

static int cell_of(int position, int cell) { return (int)floor((double)position / cell); }

/* In how many cells the positions from `first` on lie. */
static int count_cells(int first, int count, int cell) {
    int cells = 0, last = 0;
    for (int t = first; t < first + count; t++) {
        const int c = cell_of(t, cell);
        if (t == first || c != last) cells++;
        last = c;
    }
    return cells;
}

static double value_of(const drawn *r, int s, int q, int k, int h) {
    uint64_t at = 0;
    if (r->planes) at = (uint64_t)(r->by_kv ? h / (r->heads / r->kv_heads) : h);
    if (r->q_cell)
        at = at * (uint64_t)r->rows[s] + (uint64_t)(cell_of(q, r->q_cell) - cell_of(first_query(r, s), r->q_cell));
    if (r->k_cell) at = at * (uint64_t)r->columns[s] + (uint64_t)cell_of(k, r->k_cell);
    return r->values[r->first[s] + at];
}

static bool allows(const drawn *r, int s, int q, int k, int h) {
    return r->real || fmod(value_of(r, s, q, k, h), 3) != 0 || (q + k) % 7 == 0;
}

/* --- drawing ------------------------------------------------------------------------------------------------------ */

static void draw_shape(drawn *r) {
    r->kv_heads = 1 + roll(r, 2);
    r->heads = r->kv_heads * (1 + roll(r, HEADS / 2));
    r->planes = roll(r, 2);
    r->by_kv = r->planes && roll(r, 2);
    if (r->planes) r->planes = r->by_kv ? r->kv_heads : r->heads;
    r->q_cell = roll(r, 3) ? roll(r, 3) ? 1 + roll(r, 9) : 1 : 0;
    r->k_cell = roll(r, 3) ? roll(r, 3) ? 1 + roll(r, 9) : 1 : 0;
    r->sequences = 1 + roll(r, SEQUENCES);
    r->top_left = roll(r, 2);
    const bool alike = roll(r, 2), square = roll(r, 2);
    for (int s = 0; s < r->sequences; s++) {
        const int before = alike && s ? s - 1 : s;
        const int least = roll(r, 8) != 0; /* some have no keys, or no queries */
        r->keys[s] = before < s ? r->keys[before] : least + roll(r, POSITIONS - 1);
        r->queries[s] = before < s ? r->queries[before] : square ? r->keys[s] : least + roll(r, POSITIONS - 1);
        r->rows[s] = r->q_cell ? count_cells(first_query(r, s), r->queries[s], r->q_cell) : 1;
        r->columns[s] = r->k_cell ? count_cells(0, r->keys[s], r->k_cell) : 1;
        r->first[s + 1] = r->first[s] + (uint64_t)(r->planes ? r->planes : 1) * (uint64_t)(r->rows[s] * r->columns[s]);
    }
}

static void draw_values(drawn *r) {
    r->real = roll(r, 3) == 0;
    const bool wide = roll(r, 4) == 0;
    for (uint64_t i = 0; i < r->first[r->sequences]; i++)
        r->values[i] = r->real ? roll(r, 4001) / 64.0 - 30 : roll(r, wide ? 100000 : 5) - (wide ? 50000 : 0);
}

static void put_value(const drawn *r, uint64_t i, text *out) {
    text_printf(out, r->real ? "%.6f" : "%.0f", r->values[i]);
}

static void put_cells(const char *word, int cell, text *out) {
    text_puts(out, word);
    if (cell > 1) text_printf(out, " / %d", cell);
}

/* The dimensions, or the indices, with commas between them; false: there are none. */
static bool put_dims(const drawn *r, bool indices, text *out) {
    const char *between = "";
    if (r->planes) {
        text_puts(out, !indices ? r->by_kv ? "kv_heads" : "heads" : r->by_kv ? "h / (heads / kv_heads)" : "h");
        between = ", ";
    }
    if (r->q_cell) {
        text_puts(out, between);
        put_cells(indices ? "q" : "queries", r->q_cell, out);
        between = ", ";
    }
    if (r->k_cell) {
        text_puts(out, between);
        put_cells(indices ? "k" : "keys", r->k_cell, out);
    }
    return r->planes || r->q_cell || r->k_cell;
}

static void put_over(drawn *r, text *out) {
    const bool none = !r->planes && !r->q_cell && !r->k_cell;
    if (none || roll(r, 4) == 0) text_puts(out, none ? "sequences" : "sequences, ");
    put_dims(r, false, out);
}

static void put_field(drawn *r, text *out) {
    text_puts(out, "    field f = ");
    if (r->from == LIST) {
        text_puts(out, "[");
        for (uint64_t i = 0; i < r->first[r->sequences]; i++) {
            if (i) text_puts(out, i % 16 ? ", " : ",\n        ");
            put_value(r, i, out);
        }
        text_puts(out, "]");
    } else if (r->from == OPTION || r->from == BATCH) text_puts(out, "given");
    else text_printf(out, "file(\"%s\"", r->path);
    const bool file = r->from == TEXT || r->from == NPY || r->from == SHAPED_NPY;
    const bool real = r->real && (r->from == BATCH || (r->from != LIST && roll(r, 2)));
    const bool behind = r->from == LIST || roll(r, 2);
    if (real) text_puts(out, file ? ", real" : "(real");
    if (!behind) {
        text_puts(out, file || real ? ", over = " : "(over = ");
        put_over(r, out);
    }
    if (file || real || !behind) text_puts(out, ")");
    if (behind) {
        text_puts(out, " over ");
        put_over(r, out);
    }
    text_puts(out, "\n");
}

static void write_program(drawn *r) {
    text *out = &r->program;
    out->size = 0;
    text_printf(out,
                "model { heads = %d; kv_heads = %d; head_dim = 64 }\ncluster { nodes = 1; gpus = 2 }\nbatch {\n"
                "    lengths = [",
                r->heads, r->kv_heads);
    if (r->from == BATCH) text_puts(out, "9, 5:3"); /* other lengths come with the values */
    for (int s = 0; s < r->sequences && r->from != BATCH; s++)
        text_printf(out, "%s%d:%d", s ? ", " : "", r->queries[s], r->keys[s]);
    text_printf(out, "]\n    align = %s\n", r->top_left ? "top_left" : "bottom_right");
    put_field(r, out);
    text reading = {0};
    text_puts(&reading, "f[");
    if (put_dims(r, true, &reading)) text_puts(&reading, "]");
    else reading.size = 1;
    text_add(&reading, "", 1);
    if (r->real)
        text_printf(out, "}\nscore t = s + %s\nplan { mask = full; score = t; passes = forward }\n", reading.at);
    else
        text_printf(out, "}\nmask m = %s %% 3 != 0 or (q + k) %% 7 == 0\nplan { mask = m; passes = forward }\n",
                    reading.at);
    text_free(&reading);
    cr_assert(!out->failed);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void write_text(const drawn *r, uint64_t count) {
    const bool rows = (r->planes != 0) + (r->q_cell != 0) + (r->k_cell != 0) > 1;
    text t = {0};
    for (uint64_t i = 0; i < count; i++) {
        put_value(r, i, &t);
        text_puts(&t, rows && i % 5 ? i % 3 ? " " : ", " : "\n");
    }
    FILE *f = fopen(r->path, "wb");
    cr_assert(f && fwrite(t.at ? t.at : "", 1, t.size, f) == t.size && !fclose(f));
    text_free(&t);
}

static void write_npy(const drawn *r, uint64_t count, const char *shape) {
    char header[129];
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int used = snprintf(header + 10, sizeof header - 10, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                              r->real ? "<f8" : "<i4", shape);
    cr_assert(used > 0 && used < 117);
    memset(header + 10 + used, ' ', (size_t)(117 - used));
    header[127] = '\n';
    FILE *f = fopen(r->path, "wb");
    cr_assert(f && fwrite(header, 1, 128, f) == 128);
    for (uint64_t i = 0; i < count; i++) {
        const int32_t whole = (int32_t)r->values[i];
        cr_assert(r->real ? fwrite(&r->values[i], 8, 1, f) : fwrite(&whole, 4, 1, f));
    }
    cr_assert(!fclose(f));
}

static bool alike(const drawn *r) {
    for (int s = 1; s < r->sequences; s++)
        if (r->rows[s] != r->rows[0] || r->columns[s] != r->columns[0]) return false;
    return true;
}

static void write_file(drawn *r, uint64_t count) {
    char shape[80];
    if (r->from == TEXT) {
        write_text(r, count);
        return;
    }
    int used = snprintf(shape, sizeof shape, "(%d,", (int)count);
    if (r->from == SHAPED_NPY && alike(r)) {
        used = 1;
        if (r->sequences > 1 || roll(r, 2)) used += snprintf(shape + used, 16, "%d, ", r->sequences);
        if (r->planes) used += snprintf(shape + used, 16, "%d, ", r->planes);
        if (r->q_cell) used += snprintf(shape + used, 16, "%d, ", r->rows[0]);
        if (r->k_cell) used += snprintf(shape + used, 16, "%d, ", r->columns[0]);
        if (used == 1) used += snprintf(shape + used, 16, "1, ");
    }
    snprintf(shape + used, 8, ")");
    write_npy(r, count, shape);
}

/* --- one program -------------------------------------------------------------------------------------------------- */

typedef struct made {
    fcpc_diagnostics *d;
    fcpc_program *program;
    fcp_plan *plan;
    fcp_code code;
    char *said;
} made;

/* Plans the program with the first `count` values. */
static made make(drawn *r, uint64_t count) {
    made m = {.d = fcpc_diagnostics_new()};
    char option[TEMPORARY + 2];
    snprintf(option, sizeof option, "f=%s", r->path);
    const char *const fields[] = {option};
    fcpc_options options = FCPC_OPTIONS_INIT;
    if (r->from == OPTION) options.fields = fields, options.field_count = 1;
    int64_t *whole = malloc((count + 1) * sizeof *whole);
    cr_assert(whole);
    for (uint64_t i = 0; i < count; i++) whole[i] = (int64_t)r->values[i];
    const bool as_whole = !r->real;
    const fcpc_field field = {"f", as_whole ? whole : NULL, count, as_whole ? NULL : r->values};
    fcpc_batch batch = FCPC_BATCH_INIT;
    uint64_t keys[SEQUENCES], queries[SEQUENCES];
    for (int s = 0; s < r->sequences; s++) keys[s] = (uint64_t)r->keys[s], queries[s] = (uint64_t)r->queries[s];
    if (r->from == BATCH) {
        batch.fields = &field;
        batch.field_count = 1;
        batch.lengths = keys;
        batch.queries = queries;
        batch.count = (size_t)r->sequences;
    }
    m.code = fcpc_parse_text("a.fcp", r->program.at, r->program.size, &options, m.d, &m.program);
    if (!m.code) m.code = fcpc_plan_batch(m.program, &batch, NULL, m.d, NULL, &m.plan);
    free(whole);
    m.said = fcpc_diagnostics_render(m.d, false);
    return m;
}

static void free_made(made *m) {
    fcp_plan_free(m->plan);
    fcpc_program_free(m->program);
    fcpc_diagnostics_free(m->d);
    free(m->said);
}

static void check_pairs(const drawn *r, const fcp_plan *plan) {
    mc_array arrays[1];
    cr_assert_eq(plan->arrays_count, 1);
    const mc_code mask = {plan->mask, (uint32_t)plan->mask_count}, score = {plan->score, (uint32_t)plan->score_count};
    int64_t scratch[256];
    cr_assert(mask.count <= 256 && score.count <= 256);
    for (int s = 0; s < r->sequences; s++) {
        mc_env env;
        fcp_plan_env(plan, (uint32_t)s, arrays, NULL, &env);
        for (int h = 0; h < r->heads; h++)
            for (int q = first_query(r, s); q < first_query(r, s) + r->queries[s]; q++)
                for (int k = 0; k < r->keys[s]; k++) {
                    cr_assert_eq(mc_eval(mask, &env, q, k, h, scratch), allows(r, s, q, k, h), "%s\n%d %d %d %d",
                                 r->program.at, s, q, k, h);
                    if (!r->real) continue;
                    const double wanted = 0.25 + value_of(r, s, q, k, h);
                    cr_assert_eq(mc_eval_score(score, &env, q, k, h, 0.25, scratch), wanted, "%s\n%d %d %d %d",
                                 r->program.at, s, q, k, h);
                }
    }
}

/* The explanation of a random pair, from the plan. explain_pairs compares it with the mask's and the score's code. */
typedef struct asked {
    drawn *r;
    int left, s, q, k, h;
} asked;

static bool ask(void *context, explanation *o) {
    asked *a = context;
    drawn *r = a->r;
    if (!a->left--) return false;
    a->s = roll(r, r->sequences);
    if (!r->queries[a->s] || !r->keys[a->s]) return false;
    a->q = first_query(r, a->s) + roll(r, r->queries[a->s]);
    a->k = roll(r, r->keys[a->s]);
    a->h = roll(r, r->heads);
    o->sequence = (uint64_t)a->s, o->asked = true;
    o->q = a->q, o->k = a->k, o->h = a->h;
    o->s = 0.25;
    return true;
}

static void told(void *context, const explanation *o) {
    const asked *a = context;
    cr_assert_eq(o->allowed, allows(a->r, a->s, a->q, a->k, a->h));
    const double wanted = 0.25 + value_of(a->r, a->s, a->q, a->k, a->h);
    if (a->r->real) cr_assert_eq(o->scored, wanted, "%s\n%f, not %f", a->r->program.at, o->scored, wanted);
}

static void check_explained(drawn *r, const fcp_plan *plan) {
    asked a = {.r = r, .left = 3};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    const fcp_code code = explain_pairs("a.plan", plan->source, plan->source_count, NULL, plan, ask, told, d, &a);
    char *said = fcpc_diagnostics_render(d, false);
    cr_assert_eq(code, FCP_OK, "%s\n%s", said, r->program.at);
    free(said);
    fcpc_diagnostics_free(d);
}

/* The canonical form parses to itself. */
static void check_printed(const drawn *r, const fcpc_program *program) {
    fcpc_options options = FCPC_OPTIONS_INIT;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *again = NULL;
    char *one = fcpc_program_print(program);
    cr_assert(one && !fcpc_parse_text("b.fcp", one, strlen(one), &options, d, &again), "%s", one);
    char *two = fcpc_program_print(again);
    cr_assert(two && !strcmp(one, two), "%s\n%s\n%s", r->program.at, one, two);
    free(one);
    free(two);
    fcpc_program_free(again);
    fcpc_diagnostics_free(d);
}

static void check_program(drawn *r) {
    const uint64_t count = r->first[r->sequences];
    const bool file = r->from == TEXT || r->from == NPY || r->from == SHAPED_NPY || r->from == OPTION;
    write_program(r);
    if (file) write_file(r, count);
    made m = make(r, count);
    cr_assert_eq(m.code, FCP_OK, "%s\n%s", m.said, r->program.at);
    check_pairs(r, m.plan);
    check_explained(r, m.plan);
    check_printed(r, m.program);
    free_made(&m);
    if (r->from == LIST || r->from == SHAPED_NPY || count < 2) return;
    const uint64_t wrong = roll(r, 2) ? count - 1 : count + 1;
    if (file) write_file(r, wrong);
    m = make(r, wrong);
    cr_assert_eq(m.code, FCP_E_FIELD, "%s\n%s", m.said, r->program.at);
    free_made(&m);
}

Test(field_shapes, random_programs) {
    drawn r = {.state = 37};
    r.values = calloc(VALUES + 1, sizeof *r.values);
    cr_assert(r.values && temporary_file(r.path, "shape"));
    unsigned of[SOURCES] = {0};
    for (unsigned i = 0, all = amount(400, 5000); i < all; i++) {
        r.from = (source)roll(&r, SOURCES);
        draw_shape(&r);
        draw_values(&r);
        check_program(&r);
        of[r.from]++;
    }
    for (int s = 0; s < SOURCES; s++) cr_expect(of[s] > 30, "source %d: %u", s, of[s]);
    unlink(r.path);
    free(r.values);
    text_free(&r.program);
}
