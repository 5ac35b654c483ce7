/* test_documents.c: tests `documents`, a field that divides the sequences of a batch into documents. Positions, rows
 * and counts are compared with their definition, token by token: for the program's own batch, for a batch that brings
 * its own values, and after a plan was saved and loaded. Wrong fields must be refused. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"
#include "tests/support/temporary.h"

enum { MOST = 6, TOKENS = MOST * 200, TEXT = 32000 };

static const char *const layouts[] = {"planned", "contiguous", "zigzag", "contiguous(group = 1)"};
static const char *const masks[] = {"causal", "document(d = doc)"};
/* widths of 8, 16, 32 and 64 bits */
static const int64_t scales[] = {1, 1000, 1000000, -(INT64_C(1) << 40)};

typedef struct batch {
    uint64_t lengths[MOST], tokens;
    uint32_t count;
    int64_t values[TOKENS];
    /* by definition: where the document of each token begins and ends, and where each document begins */
    int64_t first[TOKENS], end[TOKENS];
    uint64_t starts[TOKENS], documents;
} batch;

static batch draw(uint64_t seed) {
    uint64_t state = seed * 4127 + 1;
    batch b = {.count = 1 + (uint32_t)(splitmix(&state) % MOST)};
    for (uint32_t s = 0; s < b.count; s++) {
        b.lengths[s] = splitmix(&state) % 4 ? splitmix(&state) % 200 : 0;
        if (!s && !b.lengths[s]) b.lengths[s] = 1;
        int64_t value = scales[seed % 4] * (int64_t)(splitmix(&state) % 3); /* may be that of the sequence before */
        for (uint64_t i = 0; i < b.lengths[s]; i++) {
            const bool turns = splitmix(&state) % (seed % 3 ? 7 : 90) == 0; /* to another value, or to the same */
            if (turns) value = scales[seed % 4] * (int64_t)(splitmix(&state) % 3);
            const uint64_t row = b.tokens + i;
            b.values[row] = value;
            const bool begins = i == 0 || b.values[row - 1] != value;
            b.first[row] = begins ? (int64_t)row : b.first[row - 1];
            if (begins) b.starts[b.documents++] = row;
        }
        b.tokens += b.lengths[s];
        for (uint64_t i = b.lengths[s]; i-- > 0;) {
            const uint64_t row = b.tokens - b.lengths[s] + i;
            const bool last = row + 1 == b.tokens || b.first[row + 1] != b.first[row];
            b.end[row] = last ? (int64_t)row + 1 : b.end[row + 1];
        }
    }
    return b;
}

static const char *program_of(const batch *b, uint64_t seed, bool given, char text[TEXT]) {
    int at = snprintf(text, TEXT, "model { heads = 2; head_dim = 8; dtype = fp32 }\ncluster { gpus = %lu }\n"
                                  "batch { lengths = [", 1 + seed % 3);
    for (uint32_t s = 0; s < b->count; s++)
        at += snprintf(text + at, (size_t)(TEXT - at), "%s%lu", s ? ", " : "", b->lengths[s]);
    at += snprintf(text + at, (size_t)(TEXT - at), "]; documents = doc; field doc = %s", given ? "given" : "[");
    for (uint64_t i = 0; i < b->tokens && !given; i++)
        at += snprintf(text + at, (size_t)(TEXT - at), "%s%ld", i ? ", " : "", b->values[i]);
    snprintf(text + at, (size_t)(TEXT - at), "%s }\nplan { mask = %s; layout = %s; block = 16 }\n", given ? "" : "]",
             masks[seed / 4 % 2], layouts[seed / 8 % 4]);
    return text;
}

static void expect(const fcp_plan *plan, const batch *b, const char *text) {
    fcp_shape shape;
    uint64_t starts[TOKENS];
    int64_t rows[TOKENS], places[TOKENS], shifted[TOKENS];
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(shape.documents, b->documents, "%lu documents, not %lu\n%s", shape.documents, b->documents, text);
    fcp_plan_documents(plan, starts);
    cr_expect(!memcmp(starts, b->starts, b->documents * sizeof *starts), "%s", text);
    for (uint32_t r = 0; r < shape.ranks; r++)
        for (int keys = 0; keys < 2; keys++) {
            fcp_plan_rows(plan, r, keys, 0, rows);
            fcp_plan_positions(plan, r, keys, places);
            for (uint64_t i = 0; i < fcp_plan_rank_queries(plan, r); i++)
                cr_assert_eq(places[i], rows[i] - b->first[rows[i]], "row %ld\n%s", rows[i], text);
            for (int64_t shift = -3; shift <= 3; shift++) {
                fcp_plan_rows(plan, r, keys, shift, shifted);
                for (uint64_t i = 0; i < fcp_plan_rank_queries(plan, r); i++) {
                    const int64_t to = rows[i] + shift;
                    const bool inside = to >= b->first[rows[i]] && to < b->end[rows[i]];
                    cr_assert_eq(shifted[i], inside ? to : -1, "row %ld, shift %ld\n%s", rows[i], shift, text);
                }
            }
        }
}

Test(documents, follow_the_field) {
    char path[TEMPORARY];
    cr_assert(temporary_file(path, "documents"));
    for (uint64_t seed = 0; seed < 64; seed++) {
        const batch b = draw(seed);
        char text[TEXT];
        fcp_plan *plan = plan_of(program_of(&b, seed, false, text)), *loaded;
        fcp_error err;
        expect(plan, &b, text);
        cr_assert_eq(fcp_plan_save(plan, path, &err), FCP_OK, "%s", err.message);
        cr_assert_eq(fcp_plan_load(path, &loaded, &err), FCP_OK, "%s", err.message);
        expect(loaded, &b, text);
        fcp_plan_free(loaded);
        fcp_plan_free(plan);
    }
    unlink(path);
}

/* A plan of values that come with the batch is that of the same values in the program. */
Test(documents, come_with_the_batch) {
    for (uint64_t seed = 0; seed < 16; seed++) {
        const batch b = draw(seed);
        char text[TEXT];
        fcpc_program *program = program_named("test.fcp", program_of(&b, seed, true, text));
        const fcpc_field field = {"doc", b.values, b.tokens};
        const fcpc_batch values = {.size = sizeof values, .fields = &field, .field_count = 1};
        fcp_plan *plan = NULL;
        cr_assert_eq(fcpc_plan_batch(program, &values, NULL, NULL, NULL, &plan), FCP_OK, "%s", text);
        expect(plan, &b, text);
        fcp_plan_free(plan);
        fcpc_program_free(program);
    }
}

Test(documents, are_the_sequences_where_none_are_said) {
    fcp_plan *plan = plan_of("model { heads = 2; head_dim = 8; dtype = fp32 }\ncluster { gpus = 2 }\n"
                             "batch { lengths = [5, 0, 3:9, 7, 0] }\nplan { mask = causal }\n");
    fcp_shape shape;
    uint64_t starts[3];
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(shape.documents, 3);
    fcp_plan_documents(plan, starts);
    cr_expect(starts[0] == 0 && starts[1] == 5 && starts[2] == 8);
    fcp_plan_free(plan);
}

Test(documents, refusals) {
    static const struct { const char *batch; fcp_code code; const char *says; } cases[] = {
        {"lengths = [4]; documents = doc", FCP_E_UNKNOWN_NAME, "unknown field 'doc'"},
        {"lengths = [4]; field doc = [1 x 4]; documents = dok", FCP_E_UNKNOWN_NAME, "did you mean 'doc'"},
        {"lengths = [4]; field doc = [1 x 4]; documents = \"doc\"", FCP_E_TYPE, "the name of a field"},
        {"lengths = [4]; documents = bias", FCP_E_TYPE, "'documents' must be a field, and 'bias' is a table"},
        {"lengths = [4]; field doc = given; documents = doc", FCP_E_FIELD, "field 'doc' has no values"},
        {"lengths = [4, 2:4]; field doc = [1 x 8]; documents = doc", FCP_E_FIELD,
         "documents = doc: sequence 1 has 2 queries and 4 keys"},
        {"lengths = [4]; field doc = [1 x 3]; documents = doc", FCP_E_FIELD, "3 values"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TEXT], *said;
        fcp_plan *plan;
        snprintf(text, TEXT, "model { heads = 2; head_dim = 8; table bias = [1, 2] }\nbatch { %s }\n"
                             "plan { mask = causal }\n", cases[i].batch);
        cr_expect_eq(plan_try("test.fcp", text, NULL, 0, &plan, &said), cases[i].code, "%s\n%s", text, said);
        cr_expect(strstr(said, cases[i].says), "%s\n%s", text, said);
        fcp_plan_free(plan);
        free(said);
    }
}
