/* test_fields.c: tests fields and tables: every kind of file, the types in which values are kept, run(...), fields that
 * a batch brings, the values that a plan keeps, and masks that read beyond the end. Declarations and files that are
 * refused are in tests/golden/diag. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/sema/program.h"
#include "runtime/base/npy.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/temporary.h"

typedef struct made {
    fcpc_diagnostics *d;
    fcpc_program *program;
    fcp_plan *plan;
    fcp_code code;
    char *said;
} made;

static void make_program(made *m, const char *source) {
    *m = (made){.d = fcpc_diagnostics_new()};
    m->code = fcpc_parse_text("a.fcp", source, strlen(source), NULL, m->d, &m->program);
    m->said = fcpc_diagnostics_render(m->d, false);
}

static void plan_it(made *m, const fcpc_batch *batch) {
    cr_assert_eq(m->code, FCP_OK, "%s", m->said);
    fcp_plan_free(m->plan);
    m->plan = NULL;
    fcpc_diagnostics_free(m->d);
    m->d = fcpc_diagnostics_new();
    m->code = fcpc_plan_batch(m->program, batch, NULL, m->d, NULL, &m->plan);
    free(m->said);
    m->said = fcpc_diagnostics_render(m->d, false);
}

static void make_plan(made *m, const char *source) {
    make_program(m, source);
    plan_it(m, &(fcpc_batch)FCPC_BATCH_INIT);
}

static void free_made(made *m) {
    fcp_plan_free(m->plan);
    fcpc_program_free(m->program);
    fcpc_diagnostics_free(m->d);
    free(m->said);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(bytes, 1, size, f) == size);
    fclose(f);
}

/* A .npy of one or two dimensions (columns 0: one). */
static void write_npy(const char *path, const char *descr, uint64_t count, uint64_t columns, const void *data,
                      size_t size) {
    char header[192] = {0}, shape[64];
    if (columns) snprintf(shape, sizeof shape, "(%d, %d)", (int)(count / columns), (int)columns);
    else snprintf(shape, sizeof shape, "(%d,)", (int)count);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int used = snprintf(header + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);
    memset(header + 10 + used, ' ', (size_t)(117 - used));
    header[127] = '\n';
    FILE *f = fopen(path, "wb");
    cr_assert(f && fwrite(header, 1, 128, f) == 128 && fwrite(data, 1, size, f) == size);
    fclose(f);
}

static int64_t value_at(const program_array *a, uint64_t i) {
    const mc_array x = {.data = a->data, .width = (mc_width)a->record.width};
    return mc_int_at(&x, i);
}

/* The one array that a program with a field or table `x` of four values reads. */
static void expect_values(const char *declaration, const char *read, mc_width width, const int64_t *values) {
    char source[700];
    bool table = !strncmp(declaration, "table", 5);
    snprintf(source, sizeof source, "batch { lengths = [1, 3]; %s }\nmodel { %s }\nmask m = %s\nplan { mask = m }",
             table ? "" : declaration, table ? declaration : "", read);
    made m;
    make_program(&m, source);
    cr_assert_eq(m.code, FCP_OK, "%s", m.said);
    cr_assert_eq(m.program->array_count, 1, "%s", source);
    const program_array *a = &m.program->arrays[0];
    cr_expect_eq(a->record.width, width, "%s: width %u", declaration, a->record.width);
    for (uint64_t i = 0; i < 4; i++)
        cr_expect_eq(value_at(a, i), values[i], "%s: %d", declaration, (int)value_at(a, i));
    free_made(&m);
}

Test(fields, files_of_every_type) {
    char path[TEMPORARY], field[200];
    cr_assert(temporary_file(path, "field"));
    snprintf(field, sizeof field, "field x = file(\"%s\")", path);
    static const int64_t values[] = {0, 1, 3, 100};
    static const struct { const char *descr; int size; } types[] = {{"|i1", 1}, {"|u1", 1}, {"<i2", 2}, {"<u2", 2},
                                                                     {"<i4", 4}, {"<u4", 4}, {"<i8", 8}, {"<u8", 8}};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        uint8_t bytes[32];
        for (int i = 0; i < 4; i++) memcpy(bytes + i * types[t].size, &values[i], (size_t)types[t].size);
        write_npy(path, types[t].descr, 4, 0, bytes, (size_t)(4 * types[t].size));
        expect_values(field, "x[q] == 0", MC_I8, values);
    }
    write_npy(path, "|b1", 4, 0, "\0\1\1\0", 4);
    expect_values(field, "x[q] == 0", MC_I8, (int64_t[]){0, 1, 1, 0});
    static const char text[] = "# life\n-128\n +127 # and a half\n\n\t0\r\n5";
    write_bytes(path, text, sizeof text - 1);
    expect_values(field, "x[q] == 0", MC_I8, (int64_t[]){-128, 127, 0, 5});
    write_bytes(path, "1 2\n3,\t4 # two rows\n", 20);
    snprintf(field, sizeof field, "table x = file(\"%s\")", path);
    expect_values(field, "x[q % 2, k % 2] == 0", MC_I8, (int64_t[]){1, 2, 3, 4});
    write_npy(path, "<i4", 4, 2, (int32_t[]){1, 2, 3, 70000}, 16);
    expect_values(field, "x[q % 2, k % 2] == 0", MC_I32, (int64_t[]){1, 2, 3, 70000});
    unlink(path);
}

Test(fields, narrowest_type) {
    static const struct { const char *list; mc_width width; int64_t values[4]; } cases[] = {
        {"[127, -128 x 3]", MC_I8, {127, -128, -128, -128}},
        {"[128, 0 x 3]", MC_I16, {128, 0, 0, 0}},
        {"[-129, 0, 1 x 2]", MC_I16, {-129, 0, 1, 1}},
        {"[32767, -32768, 0, 0]", MC_I16, {32767, -32768, 0, 0}},
        {"[0, 32K, 0, 0]", MC_I32, {0, 32768, 0, 0}},
        {"[2147483647, -2147483648, 0, 0]", MC_I32, {INT32_MAX, INT32_MIN, 0, 0}},
        {"[2147483648, 0, 0, 0]", MC_I64, {2147483648, 0, 0, 0}},
        {"[9223372036854775807, -9223372036854775807 - 1, 0 x 2]", MC_I64, {INT64_MAX, INT64_MIN, 0, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char field[128];
        snprintf(field, sizeof field, "field x = %s", cases[i].list);
        expect_values(field, "x[k] == 0", cases[i].width, cases[i].values);
        snprintf(field, sizeof field, "table x = %s", cases[i].list);
        expect_values(field, "x[h % 4] == 0", cases[i].width, cases[i].values);
    }
}

Test(fields, reals_of_npy) {
    const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000};
    const fcp_npy npy = {.type = FCP_NPY_F2, .elements = 5, .data = (void *)halves};
    const double want[] = {1, -2, 5.9604644775390625e-08, 65504, -0.0};
    for (uint64_t i = 0; i < 5; i++) cr_expect_eq(fcp_npy_real(&npy, i), want[i], "%d", (int)i);
    const uint16_t wild[] = {0x7c00, 0xfc00, 0x7e00};
    const fcp_npy odd = {.type = FCP_NPY_F2, .elements = 3, .data = (void *)wild};
    cr_expect(fcp_npy_real(&odd, 0) > 1e300 && fcp_npy_real(&odd, 1) < -1e300);
    cr_expect(fcp_npy_real(&odd, 2) != fcp_npy_real(&odd, 2));
}

/* A byte-order mark is no part of the text; what is no text is said to be none. */
Test(fields, text_files) {
    char path[TEMPORARY], source[400];
    cr_assert(temporary_file(path, "field"));
    static const struct { const char *bytes; size_t size; fcp_code code; } files[] = {
        {"\357\273\2771\n2\n3\n4\n", 11, FCP_OK}, {"1\n2\n\0003\n4\n", 9, FCP_E_FIELD_FILE},
        {"\377\3761\0\n\0002\0\n", 10, FCP_E_FIELD_FILE}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_bytes(path, files[i].bytes, files[i].size);
        snprintf(source, sizeof source,
                 "model { table t = file(\"%s\") }\nbatch { lengths = [4]; field x = file(\"%s\") }\n"
                 "mask m = x[k] >= t[q]\nplan { mask = m }",
                 path, path);
        made m;
        make_program(&m, source);
        cr_expect_eq(m.code, files[i].code, "%s", m.said);
        for (uint64_t j = 0; j < 4 && m.code == FCP_OK; j++)
            cr_expect_eq(value_at(&m.program->arrays[0], j), (int64_t)j + 1);
        free_made(&m);
    }
    unlink(path);
}

/* Plain lines among others: signs, blanks, comments, the longest numbers, a last line without its end. */
Test(fields, lines_of_a_text) {
    char path[TEMPORARY], source[300];
    cr_assert(temporary_file(path, "field"));
    static const char text[] =
        "7\n-12\n+3\n 4 # four\n\n5\r\n# none\n-0\n000000000000000000000008\n999999999999999999\n"
        "9223372036854775807\n-9223372036854775808\n1234567\n12345678\n-999999999999999999\n6";
    static const int64_t want[] = {
        7, -12, 3, 4, 5, 0, 8, 999999999999999999, INT64_MAX, INT64_MIN, 1234567, 12345678, -999999999999999999, 6};
    const struct {
        const char *bytes;
        fcp_code code;
        const char *place;
    } wrong[] = {{"1\n2\n9223372036854775808\n", FCP_E_FIELD, ":3:"},
                 {"1\n2\n3\n4x\n", FCP_E_FIELD_FILE, ":4:"},
                 {"1\n-\n", FCP_E_FIELD_FILE, ":2:"}};
    for (size_t i = 0; i <= sizeof wrong / sizeof *wrong; i++) {
        const char *bytes = i ? wrong[i - 1].bytes : text;
        write_bytes(path, bytes, strlen(bytes));
        snprintf(source, sizeof source,
                 "batch { lengths = [14]; field x = file(\"%s\") }\nmask m = x[k] >= q\nplan { mask = m }", path);
        made m;
        make_program(&m, source);
        cr_expect_eq(m.code, i ? wrong[i - 1].code : FCP_OK, "%s", m.said);
        if (i) cr_expect(strstr(m.said, wrong[i - 1].place), "%s", m.said);
        for (uint64_t j = 0; j < 14 && !i && m.code == FCP_OK; j++)
            cr_expect_eq(value_at(&m.program->arrays[0], j), want[j], "element %d", (int)j);
        free_made(&m);
    }
    unlink(path);
}

/* --- what the plan keeps ------------------------------------------------------------------------------------------ */

Test(fields, only_what_is_read_in_order_of_use) {
    made m;
    make_plan(&m,
              "batch { lengths = [3, 2]; field a = [1 x 5]; field b = [2, 2, 3, 3, 4]; field c = [7 x 5]; "
              "field d = given }\nmodel { table t = [0, 1] }\n"
              "mask m = t[q % 2] == 1 and b[k] == b[q] or run(b, q) == k\nmask other = c[q] == 1\nplan { mask = m }");
    cr_assert_eq(m.code, FCP_OK, "%s", m.said);
    cr_assert_eq(m.plan->arrays_count, 3);
    const char *const names[] = {"t", "b", "run(b)"};
    for (int i = 0; i < 3; i++) cr_expect_str_eq(m.plan->names + m.plan->arrays[i].name, names[i]);
    mc_array arrays[3];
    mc_bands bands[1];
    mc_env env;
    static const int64_t starts[2][3] = {{0, 0, 2}, {0, 1, 0}}; /* a sequence begins a run, whatever came before it */
    for (uint32_t s = 0; s < 2; s++) {
        fcp_plan_env(m.plan, s, arrays, bands, &env);
        cr_expect_eq(arrays[0].count, 2);
        cr_expect_eq(arrays[1].count, s ? 2 : 3);
        for (int64_t i = 0; i < arrays[2].count; i++) cr_expect_eq(mc_load(&arrays[2], i, 0, 0), starts[s][i]);
    }
    free_made(&m);
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

static const char given[] =
    "batch { lengths = [3, 2]; field d = [7, 7, 8, 8, 8]; field g = given(range = 0..2) }\n"
    "mask m = d[q] == d[k] and g[k] == 1 or run(g, q) == k\nplan { mask = m; passes = forward }";

Test(fields, batches) {
    made m;
    make_program(&m, given);
    int64_t g[] = {1, 1, 0, 0, 1, 0, 0}, d[] = {1, 1, 2, 2, 2, 300, 300}, far[] = {1, 1, 0, 2, 1};
    const uint64_t lengths[] = {3, 2}, others[] = {4, 3}, empty[] = {0};
    const fcpc_field own = {"g", g, 5}, wide = {"g", g, 7}, docs = {"d", d, 7}, wrong = {"gg", g, 5},
                     out = {"g", far, 5};
    const struct {
        fcpc_batch batch;
        fcp_code code;
        const char *says;
    } cases[] = {
        {{0}, FCP_E_FIELD, "field 'g' has no values"},
        {{.fields = &own, .field_count = 1}, FCP_OK, ""},
        {{.lengths = lengths, .count = 2, .fields = &own, .field_count = 1}, FCP_OK, ""},
        {{.lengths = others, .count = 2, .fields = &wide, .field_count = 1},
         FCP_E_FIELD,
         "field 'd' has no values for this batch"},
        {{.lengths = others, .count = 2, .fields = (fcpc_field[]){docs, wide}, .field_count = 2}, FCP_OK, ""},
        {{.lengths = others, .count = 2, .fields = (fcpc_field[]){docs, own}, .field_count = 2},
         FCP_E_FIELD,
         "field 'g' has 5 values, the batch has 7 tokens"},
        {{.fields = &wrong, .field_count = 1}, FCP_E_FIELD, "'gg', which is no field"},
        {{.fields = (fcpc_field[]){own, own}, .field_count = 2}, FCP_E_FIELD, "twice"},
        {{.fields = &out, .field_count = 1}, FCP_E_FIELD, "element 3 of field 'g' is 2, outside 0..2"},
        {{.fields = &(fcpc_field){"g", NULL, 5}, .field_count = 1}, FCP_E_FIELD, "no values"},
        {{.fields = &own, .field_count = 1, .queries = lengths}, FCP_E_LENGTHS, "queries without"},
        {{.lengths = empty, .count = 1, .fields = &own, .field_count = 1}, FCP_E_FIELD, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_batch batch = cases[i].batch;
        batch.size = sizeof batch;
        plan_it(&m, &batch);
        cr_expect_eq(m.code, cases[i].code, "case %d: %s", (int)i, m.said);
        cr_expect(strstr(m.said, cases[i].says), "case %d: %s", (int)i, m.said);
        m.code = FCP_OK;
    }
    free_made(&m);
}

/* What a batch brings for a field that nothing reads is checked like the rest. */
Test(fields, unread_fields_of_a_batch) {
    made m;
    make_program(&m, "model { heads = 2 }; batch { field g = given(range = 0..2); field w = given(over = heads) }\n"
                     "plan { mask = causal; passes = forward }");
    const uint64_t lengths[] = {3, 2};
    int64_t g[] = {1, 1, 0, 0, 1, 2}, w[] = {7, 7, 8, 8};
    const struct {
        fcpc_field field;
        fcp_code code;
        const char *says;
    } cases[] = {{{"g", g, 5}, FCP_OK, ""},
                 {{"w", w, 4}, FCP_OK, ""},
                 {{"g", g, 4}, FCP_E_FIELD, "field 'g' has 4 values, the batch has 5 tokens"},
                 {{"g", g + 1, 5}, FCP_E_FIELD, "element 4 of field 'g' is 2, outside 0..2"},
                 {{"w", w, 2}, FCP_E_FIELD, "field 'w' has 2 values"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.code = FCP_OK;
        plan_it(&m, &(fcpc_batch){.size = sizeof(fcpc_batch),
                                  .lengths = lengths,
                                  .count = 2,
                                  .fields = &cases[i].field,
                                  .field_count = 1});
        cr_expect_eq(m.code, cases[i].code, "case %d: %s", (int)i, m.said);
        cr_expect(strstr(m.said, cases[i].says), "case %d: %s", (int)i, m.said);
    }
    free_made(&m);
}

/* Given values make the same plan as declared ones, except for where the plan says they came from. */
Test(fields, given_is_as_declared) {
    int64_t g[] = {1, 1, 0, 0, 1}, d[] = {7, 7, 8, 8, 8};
    made a, b;
    make_program(&a, given);
    plan_it(&a, &(fcpc_batch){.size = sizeof(fcpc_batch),
                              .fields = (fcpc_field[]){{"g", g, 5}, {"d", d, 5}},
                              .field_count = 2});
    make_plan(&b, "batch { lengths = [3, 2]; field d = [7, 7, 8, 8, 8]; field g = [1, 1, 0, 0, 1] }\n"
                  "mask m = d[q] == d[k] and g[k] == 1 or run(g, q) == k\nplan { mask = m; passes = forward }");
    cr_assert(a.code == FCP_OK && b.code == FCP_OK, "%s%s", a.said, b.said);
    cr_expect_eq(a.plan->data_count, b.plan->data_count);
    cr_expect_arr_eq(a.plan->data, b.plan->data, a.plan->data_count);
    cr_expect_arr_eq(a.plan->arrays, b.plan->arrays, a.plan->arrays_count * sizeof *a.plan->arrays);
    cr_expect_eq(a.plan->summary->pairs, b.plan->summary->pairs);
    free_made(&a);
    free_made(&b);
}

/* A field of reals takes reals, and whole numbers as reals; one of whole numbers takes no reals. */
Test(fields, reals_of_a_batch) {
    static const char source[] =
        "model { heads = 2; kv_heads = 2; head_dim = 64 }\nbatch { lengths = [2, 1]; field w = given over heads; field "
        "b = given(real) }\nscore t = s + b[k] * w[h]\nplan { mask = full; score = t; passes = forward }";
    made m;
    make_program(&m, source);
    const int64_t w[] = {1, 2, 3, 4}, whole[] = {5, -6, 7};
    const double b[] = {0.5, -1.25, 3.0}, far[] = {0.5, 1e39, 0}, none[] = {0.5, NAN, 0}, w_real[] = {1, 2, 3, 4};
    const struct {
        fcpc_field fields[2];
        fcp_code code;
        const char *says;
    } cases[] = {
        {{{"w", w, 4, NULL}, {"b", NULL, 3, b}}, FCP_OK, ""},
        {{{"w", w, 4, NULL}, {"b", whole, 3, NULL}}, FCP_OK, ""},
        {{{"w", NULL, 4, w_real}, {"b", NULL, 3, b}}, FCP_E_FIELD, "field 'w' is of whole numbers"},
        {{{"w", w, 4, NULL}, {"b", NULL, 3, far}}, FCP_E_FIELD, "element 1 of field 'b' is beyond the largest"},
        {{{"w", w, 4, NULL}, {"b", NULL, 3, none}}, FCP_E_FIELD, "element 1 of field 'b' is not finite"},
        {{{"w", w, 4, NULL}, {"b", whole, 3, b}}, FCP_E_FIELD, "whole numbers and reals for field 'b'"},
        {{{"w", w, 2, NULL}, {"b", NULL, 3, b}}, FCP_E_FIELD, "field 'w' has 2 values, the batch needs 4"},
        {{{"w", w, 4, NULL}, {"b", NULL, 3, NULL}}, FCP_E_FIELD, "no values for field 'b'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan_it(&m, &(fcpc_batch){.size = sizeof(fcpc_batch), .fields = cases[i].fields, .field_count = 2});
        cr_expect_eq(m.code, cases[i].code, "case %d: %s", (int)i, m.said);
        cr_expect(strstr(m.said, cases[i].says), "case %d: %s", (int)i, m.said);
        if (!m.code) {
            mc_array arrays[2];
            mc_env env;
            int64_t scratch[64];
            fcp_plan_env(m.plan, 1, arrays, NULL, &env);
            const mc_code score = {m.plan->score, (uint32_t)m.plan->score_count};
            cr_assert_leq(score.count, 64);
            const double wanted = 0.5 + (cases[i].fields[1].reals ? b[2] : (double)whole[2]) * 4;
            cr_expect_eq(mc_eval_score(score, &env, 0, 0, 1, 0.5, scratch), wanted);
        }
        m.code = FCP_OK;
    }
    free_made(&m);
}

/* --- numbers of sequences ----------------------------------------------------------------------------------------- */

/* However a mask comes by the number of a sequence, it is the same mask. */
Test(fields, numbers_of_sequences) {
    static const char *const masks[] = {
        "mask m = k <= q and q - k < w\nplan { mask = m }",
        "plan { mask = window(w = w) }",
        "mask m(a) = k <= q and q - k < a\nplan { mask = m(a = w) }",
        "mask m(field a) = k <= q and q - k < a\nplan { mask = m(a = w) }",
        "mask m = window(w = w)\nplan { mask = m }",
        "mask m(field a) = window(w = a)\nmask o = m(a = w)\nplan { mask = o }",
        "mask m =\n    k <= q and near(w)\n    where { near(a) = q - k < a }\nplan { mask = m }",
        "mask m =\n    k <= q and q - k < far\n    where { far = w }\nplan { mask = m }",
        "mask m(field a) =\n    inner(a)\n    where { inner(b) = part(a = b) }\nmask part(field a) = 0 <= q - k and q "
        "- k < "
        "a\nplan { mask = m(a = w) }",
        "mask m = if w > 100 then false else k <= q and q - k < max(w, 1) * 1\nplan { mask = m }",
        "mask m = k <= q and q - k < exact(w * 2, 2)\nplan { mask = m }",
    };
    static const int64_t lengths[] = {40, 40, 25}, w[] = {7, 1, 30};
    uint64_t wanted = 0;
    for (int s = 0; s < 3; s++)
        for (int64_t q = 0; q < lengths[s]; q++)
            for (int64_t k = 0; k <= q; k++) wanted += q - k < w[s];
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char source[400];
        snprintf(source, sizeof source, "batch { lengths = [40, 40, 25]; field w = [7, 1, 30] over sequences }\n%s",
                 masks[i]);
        made m;
        make_plan(&m, source);
        cr_assert_eq(m.code, FCP_OK, "%s\n%s", source, m.said);
        cr_expect_eq(m.plan->summary->pairs, wanted, "%s: %d, not %d", masks[i], (int)m.plan->summary->pairs,
                     (int)wanted);
        free_made(&m);
    }
}

/* A plan keeps no field that its code does not read; its program, which names it, still has a meaning. */
Test(fields, unread_arguments_of_a_plan) {
    made m;
    make_plan(&m, "batch { lengths = [9, 4]; field w = [7, 1] over sequences; field f = [1 x 3] over keys / 8 }\n"
                  "mask m(a, field b, both = true) = k <= q and (both or (k < a and b[k / 8] == 1))\n"
                  "plan { mask = m(a = w, b = f) }");
    cr_assert_eq(m.code, FCP_OK, "%s", m.said);
    cr_expect_eq(m.plan->arrays_count, 0);
    fcpc_question question = FCPC_QUESTION_INIT;
    question.q = 3;
    question.plan = m.plan;
    char *told = NULL;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    const fcp_code code = fcpc_explain_text("a.plan", NULL, 0, NULL, &question, d, &told);
    char *said = fcpc_diagnostics_render(d, false);
    cr_expect_eq(code, FCP_OK, "%s", said);
    cr_expect(told && strstr(told, "m(a = w, b = f, both = true): q = 3 sees k = 0"), "%s", told);
    free(told);
    free(said);
    fcpc_diagnostics_free(d);
    free_made(&m);
}

/* Sequences of one length with other values are other sequences. */
Test(fields, sequences_are_told_apart) {
    made m;
    make_plan(&m, "batch { lengths = [300 x 3]; field d = [0 x 300, 1 x 150, 2 x 150, 3 x 100, 4 x 100, 5 x 100] }\n"
                  "plan { mask = document(d = d); block = 128; passes = forward }");
    cr_assert_eq(m.code, FCP_OK, "%s", m.said);
    cr_expect_eq(m.plan->summary->pairs, 300 * 300 + 2 * 150 * 150 + 3 * 100 * 100);
    free_made(&m);
}

/* --- beyond the end ----------------------------------------------------------------------------------------------- */

/* Where a cell is read by a position, the hint says to divide. */
Test(fields, cells_are_divided) {
    static const struct {
        const char *mask, *says;
        bool divide;
    } cases[] = {
        {"f[h, q, k] == 1",
         "element [0, 0, 2] of field 'f', which has [0 to 1, 0 to 1, 0 to 1], for h = 0, q = 0, k = 2", true},
        {"f[h, q / 8, k] == 1", "element [0, 0, 2] of field 'f'", true},
        {"f[h, q, k / 8] == 1", "element [0, 2, 0] of field 'f'", true},
        {"f[h + 1, q / 8, k / 8] == 1", "element [2, 0, 0] of field 'f'", false},
        {"f[h, q / 8, k / 2] == 1", "element [0, 0, 2] of field 'f'", true},
        {"c[k] == 1", "element 2 of field 'c', which has 0 to 1, for q", true},
        {"d[q, k] == 1", NULL, false},
        {"d[q, k + 1] == 1", "element [0, 10] of field 'd'", false},
        {"w[h * 2] == 1", "element 2 of field 'w', which has 0 to 1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[600];
        snprintf(
            source, sizeof source,
            "model { heads = 2; kv_heads = 1 }\nbatch { lengths = [10]; field f = [1 x 8] over heads, queries / 8, "
            "keys / 8\nfield c = [1, 1] over keys / 8; field d = [1 x 100] over queries, keys; field w = [1, 1] over "
            "heads }\nmask m = %s\nplan { mask = m }",
            cases[i].mask);
        made m;
        make_plan(&m, source);
        cr_expect_eq(m.code, cases[i].says ? FCP_E_MASK_INDEX : FCP_OK, "%s: %s", cases[i].mask, m.said);
        if (cases[i].says) cr_expect(strstr(m.said, cases[i].says), "%s: %s", cases[i].mask, m.said);
        cr_expect_eq(strstr(m.said, "divide, ") != NULL, cases[i].divide, "%s: %s", cases[i].mask, m.said);
        free_made(&m);
    }
}

/* Where a number for each KV head is read by the query head, the hint says to divide, too. */
Test(fields, kv_heads_are_divided) {
    static const struct {
        const char *mask, *hint;
    } cases[] = {
        {"w[h] == 1", "divide, w[h / (heads / kv_heads)]"},
        {"c[h, k / 8] == 1", "divide, c[h / (heads / kv_heads), k / 8]"},
        {"f[h, q / 8, k / 8] == 1", "divide, f[h / (heads / kv_heads), q / 8, k / 8]"},
        {"w[h / (heads / kv_heads) + 2] == 1", "a condition before it"},
        {"w[h / (heads / kv_heads)] == 1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[600];
        snprintf(source, sizeof source,
                 "model { heads = 8; kv_heads = 2 }\nbatch { lengths = [10]; field w = [1, 1] over kv_heads\n"
                 "field c = [1 x 4] over kv_heads, keys / 8; field f = [1 x 8] over kv_heads, queries / 8, keys / 8 }\n"
                 "mask m = %s\nplan { mask = m }",
                 cases[i].mask);
        made m;
        make_plan(&m, source);
        cr_expect_eq(m.code, cases[i].hint ? FCP_E_MASK_INDEX : FCP_OK, "%s: %s", cases[i].mask, m.said);
        if (cases[i].hint) cr_expect(strstr(m.said, cases[i].hint), "%s: %s", cases[i].mask, m.said);
        free_made(&m);
    }
}

/* A score that reads beyond a field is found out, too; the number of a sequence is always there. */
Test(fields, scores_beyond_the_end) {
    static const struct {
        const char *score, *says;
    } cases[] = {
        {"s + w", NULL},
        {"s + w * r", NULL},
        {"s + run(d, k)", NULL},
        {"s + run(d, k + 1) + w", "position 10 of field 'run(d)'"},
        {"s + d[k + 1] + w", "position 10 of field 'd'"},
        {"s + b[k + 1]", "position 10 of field 'b'"},
        {"s + c[h, k] * w", "element [0, 2] of field 'c'"},
        {"s + c[h, k / 8]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[600];
        snprintf(
            source, sizeof source,
            "model { heads = 2; kv_heads = 1; head_dim = 64 }\nbatch { lengths = [10]; field d = [1 x 10]; field w = "
            "[3] over sequences; field r = [0.5] over sequences; field b = [0.5 x 10]; field c = [0.5 x 4] over "
            "heads, keys / 8 }\nscore t = %s\nplan { mask = full; score = t }",
            cases[i].score);
        made m;
        make_plan(&m, source);
        cr_expect_eq(m.code, cases[i].says ? FCP_E_MASK_INDEX : FCP_OK, "%s: %s", cases[i].score, m.said);
        if (cases[i].says) cr_expect(strstr(m.said, cases[i].says), "%s: %s", cases[i].score, m.said);
        free_made(&m);
    }
}

Test(fields, indices_out_of_range) {
    static const struct { const char *mask, *says; } cases[] = {
        {"d[q + 1] == 0", "position 2 of field 'd', which has 0 to 1, for q = 1"},
        {"d[q - 1] == 0", "position -1 of field 'd', which has 0 to 1, for q = 0"},
        {"d[k - q] == 0", "field 'd'"},
        {"t[q] == 0", "element 2 of table 't', which has 2, for q = 2"},
        {"t[h] == 0", "element 2 of table 't', which has 2, for h = 2, q ="},
        {"s[q, 1] == 0", "element [2, 1] of table 's', which is 2 by 3, for q = 2"},
        {"s[q / 2, k] == 0", "element [0, 3] of table 's', which is 2 by 3"},
        {"run(d, q + k) == 0", "of field 'run(d)'"},
        {"d[d[q]] == 0", "position 9 of field 'd'"},
        {"q >= 0 or d[q + 9] == 0", NULL},
        {"q > 0 and d[q - 1] == d[q]", NULL},
        {"if k < q then d[q - k - 1] == 1 else d[min(k, 3)] == 0", NULL},
        {"(d[q] < 4 and d[d[q]] == 0) or k == 0", NULL},
        {"t[q % 2] == 0 and s[q % 2, k % 3] == s[1, 2]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[600];
        snprintf(source, sizeof source,
                 "model { heads = 4; table t = [0, 1]; table s = [[0, 1, 2], [0, 0, 0]] }\n"
                 "batch { lengths = [2, 4, 1]; field d = [0, 1, 0, 9, 2, 0, 0] }\nmask m = %s\nplan { mask = m }",
                 cases[i].mask);
        made m;
        make_plan(&m, source);
        cr_expect_eq(m.code, cases[i].says ? FCP_E_MASK_INDEX : FCP_OK, "%s: %s", cases[i].mask, m.said);
        if (cases[i].says) cr_expect(strstr(m.said, cases[i].says), "%s: %s", cases[i].mask, m.said);
        free_made(&m);
    }
}
