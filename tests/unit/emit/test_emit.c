/* test_emit.c: tests mask code that is printed as C. It is compiled and compared with the interpreter, for random code
 * and for every operation. The look of the text is tested as well. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/emit.h"
#include "codegen/kernels/abi.h"
#include "tests/support/amount.h"
#include "tests/support/emitted.h"
#include "tests/support/mask_samples.h"

typedef struct sheet {
    char *at;
    size_t size, room;
} sheet;

static void write_to(void *context, const char *text, size_t size) {
    sheet *s = context;
    if (s->size + size + 1 > s->room) s->at = realloc(s->at, s->room = (s->size + size) * 2 + 1024);
    memcpy(s->at + s->size, text, size);
    s->size += size;
    s->at[s->size] = 0;
}
static void write_text(sheet *s, const char *text) { write_to(s, text, strlen(text)); }

static void write_sheet(FILE *f, const void *context) {
    const sheet *s = context;
    cr_assert_eq(fwrite(s->at, 1, s->size, f), s->size);
}
static void *compile(const sheet *s) {
    return emitted_library("-Wall -Wno-unused-function -Wno-parentheses "
                           "-Wno-tautological-compare -Wno-tautological-constant-out-of-range-compare -Werror", write_sheet, s);
}

static sheet new_sheet(void) {
    sheet s = {0};
    write_text(&s, "#define FK_DEVICE static inline\n#include <math.h>\n");
    FILE *f = fopen("codegen/kernels/abi.h", "r");
    char chunk[4096];
    cr_assert_not_null(f, "run from the project's folder");
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, f)) > 0;) write_to(&s, chunk, got);
    fclose(f);
    write_text(&s, EMITTED_PRIMITIVES);
    return s;
}

/* Adds a program's functions under a number: allow_N, score_N, slope_N. */
static void add_program(sheet *s, const emit_program *g, unsigned number) {
    char line[600];
    uint32_t node;
    snprintf(line, sizeof line,
             "#define fk_allow fk_allow_%u\n#define fk_score fk_score_%u\n#define fk_slope fk_slope_%u\n"
             "#define fk_keys fk_keys_%u\n#define fk_queries fk_queries_%u\n", number, number, number, number, number);
    write_text(s, line);
    const char *wrong = emit_functions(g, write_to, s, &node);
    cr_assert_null(wrong, "program %u, node %u: %s", number, node, wrong);
    snprintf(line, sizeof line,
             "int allow_%u(const fk_env *e, fk_i64 q, fk_i64 k, int h) { return fk_allow(e, q, k, h); }\n", number);
    write_text(s, line);
    for (int i = 0; i < 2 && g->score.count; i++) {
        const char *name = i ? "slope" : "score";
        snprintf(line, sizeof line,
                 "float %s_%u(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) { return fk_%s(e, s, q, k, h); }\n",
                 name, number, name);
        write_text(s, line);
    }
    snprintf(line, sizeof line, EMITTED_SPANS, (unsigned long)number, (unsigned long)number);
    write_text(s, line);
    write_text(s, "#undef fk_allow\n#undef fk_score\n#undef fk_slope\n");
}

/* Compares all pairs of such a row with the interpreter. */
static void judge_spans(emitted_spans *f, bool keys, mc_code code, const fk_env *env, int64_t q, int64_t k,
                        fk_i32 limit, int h, int64_t *scratch) {
    fk_u32 got = f(env, q, k, limit, h), want = 0;
    for (int i = 0; i < 32; i++) {
        int64_t on = emitted_column(i);
        if (on < limit)
            want |= (fk_u32)mc_eval(code, MC_LENGTH(env->sequence.n), q + (keys ? 0 : on), k + (keys ? on : 0), h,
                                    scratch) << i;
    }
    cr_assert_eq(got, want, "%s from q %lld, k %lld, limit %d, h %d: %08x, not %08x", keys ? "keys" : "queries",
                 (long long)q, (long long)k, limit, h, got, want);
}

enum { PROGRAMS = 400 };

Test(emit, random_masks) {
    static exprs e;
    static mc_node *nodes[PROGRAMS];
    static mc_code codes[PROGRAMS];
    static int64_t bounds[PROGRAMS];
    const unsigned programs = amount(PROGRAMS / 2, PROGRAMS);
    sheet s = new_sheet();
    for (unsigned i = 0; i < programs; i++) {
        codes[i] = lower_mask(&e, random_mask(&e, i + 1, 1 + i % 5, i % 2), &nodes[i]);
        bounds[i] = emit_positions(i % 3 ? 300 : (uint64_t)1 << 39);
        const emit_program g = {.mask = codes[i], .positions = bounds[i], .negative = i % 4 != 0, .heads = 64};
        add_program(&s, &g, i);
    }
    void *library = compile(&s);
    unsigned with_spans = 0;
    for (unsigned i = 0; i < programs; i++) {
        emitted_allow *allow;
        emitted_spans *keys, *queries;
        *(void **)&keys = emitted_find(library, "keys", i);
        *(void **)&queries = emitted_find(library, "queries", i);
        with_spans += (keys != NULL) + (queries != NULL);
        *(void **)&allow = emitted_function(library, "allow", i);
        int64_t *scratch = malloc(codes[i].count * sizeof *scratch);
        for (int j = 0; j < 300; j++) {
            int64_t n = 1 + (int64_t)draw(&e, j % 4 ? 300 : (uint64_t)bounds[i]), first = (int64_t)draw(&e, 3) - 1;
            int64_t k = (int64_t)draw(&e, (uint64_t)n), h = (int64_t)draw(&e, 64);
            int64_t q = (int64_t)draw(&e, (uint64_t)n) * (first && i % 4 ? first : 1);
            const fk_env env = {.sequence = {.n = n, .queries = n}};
            bool want = mc_eval(codes[i], MC_LENGTH(n), q, k, h, scratch);
            cr_assert_eq(allow(&env, q, k, (int)h) != 0, want, "program %u: q %lld k %lld n %lld h %lld", i,
                         (long long)q, (long long)k, (long long)n, (long long)h);
            fk_i32 limit = j % 2 ? 128 : (fk_i32)draw(&e, 130) - 1;
            if (keys) judge_spans(keys, true, codes[i], &env, q, k, limit, (int)h, scratch);
            if (queries) judge_spans(queries, false, codes[i], &env, q, k, limit, (int)h, scratch);
        }
        free(scratch);
        free(nodes[i]);
    }
    cr_expect_geq(with_spans, programs / 4, "%u of %u functions by rows", with_spans, 2 * programs);
    dlclose(library);
    free(s.at);
}

/* --- random masks that read arrays -------------------------------------------------------------------------------- */

/* How the arrays of draw_arrays are told to emit: fields over keys and queries, one over both as a table, tables, and
 * fields over heads and cells. */
static void describe_arrays(const exprs *e, emit_array out[ARRAYS_MAX]) {
    for (int i = 0; i < ARRAYS_MAX; i++) {
        const mc_array *a = &e->arrays[i];
        emit_array *to = &out[i];
        *to = (emit_array){.table = i == 2 || (i >= ARRAY_TABLES_FROM && i < ARRAY_TABLES_TO), .width = a->width};
        if (i == ARRAY_ROWS || i == ARRAY_BLOCKS) to->dim[to->dims++].count = i == ARRAY_ROWS ? a->count : a->planes;
        if (i == ARRAY_ROWS || i == ARRAY_BLOCKS)
            to->dim[to->dims++] = (emit_dim){.over = EMIT_QUERIES, .cell = (uint32_t)e->q_cell};
        if (i == ARRAY_BLOCKS) to->dim[to->dims++] = (emit_dim){.over = EMIT_KEYS, .cell = (uint32_t)e->k_cell};
        if (i == 0) to->dim[to->dims++] = (emit_dim){.over = EMIT_KEYS, .cell = 1};
        if (i == 1) to->dim[to->dims++] = (emit_dim){.over = EMIT_QUERIES, .cell = 1};
        if (to->table || i == ARRAY_ONE) to->dim[to->dims++].count = a->count;
        if (to->table && a->columns) to->dim[to->dims++].count = a->columns;
    }
}

/* Of sequences whose queries lie anywhere, at pairs beyond the sequence as well: an element that is not there is 0. */
Test(emit, random_arrays) {
    enum { MOST = 120, DRAWS = 600 };
    static exprs e;
    static mc_node *nodes[MOST];
    static mc_code codes[MOST];
    static mc_env envs[MOST];
    const unsigned programs = amount(MOST / 2, MOST);
    array_set *sets = calloc(programs, sizeof *sets);
    sheet s = new_sheet();
    unsigned seen[2] = {0}, blocks = 0;
    cr_assert_not_null(sets);
    for (unsigned i = 0; i < programs; i++) {
        mc_env *env = &envs[i];
        emit_array kinds_of[ARRAYS_MAX];
        e.seed = i + 1;
        *env = (mc_env){.n = 1 + (int64_t)draw(&e, 600), .queries = 1 + (int64_t)draw(&e, 600)};
        env->q_first = draw(&e, 3) ? (int64_t)draw(&e, 400) - 200 : 0;
        if (env->q_first + env->queries > 600) env->q_first = 600 - env->queries;
        e.array_count = 0;
        draw_arrays(&e, &sets[i], env);
        sets[i].array[2].first = 0; /* a table */
        codes[i] = lower_mask(&e, random_mask(&e, i + 1, 1 + i % 4, i % 2), &nodes[i]);
        for (uint32_t x = 0; x < codes[i].count; x++) blocks += codes[i].nodes[x].op == MC_LOAD3;
        env->arrays = sets[i].array;
        describe_arrays(&e, kinds_of);
        const emit_program g = {.mask = codes[i],
                                .arrays = kinds_of,
                                .array_count = ARRAYS_MAX,
                                .negative = true,
                                .positions = emit_positions(i % 3   ? 600
                                                            : i % 2 ? 1u << 30
                                                                    : (uint64_t)1 << 39),
                                .heads = 3};
        add_program(&s, &g, i);
    }
    void *library = compile(&s);
    for (unsigned i = 0; i < programs; i++) {
        const mc_env *env = &envs[i];
        fk_u64 data[ARRAYS_MAX];
        emitted_allow *allow;
        *(void **)&allow = emitted_function(library, "allow", i);
        int64_t *scratch = malloc(codes[i].count * sizeof *scratch);
        for (int a = 0; a < ARRAYS_MAX; a++) data[a] = (fk_u64)(uintptr_t)env->arrays[a].data;
        const fk_env device = {.sequence = {.n = env->n, .q_first = env->q_first, .queries = env->queries},
                               .arrays = data};
        for (int j = 0; j < DRAWS; j++) {
            const int64_t beyond = j % 4 ? 0 : 300;
            int64_t q = env->q_first - beyond / 2 + (int64_t)draw(&e, (uint64_t)(env->queries + beyond));
            const int64_t k = (int64_t)draw(&e, (uint64_t)(env->n + beyond)), h = (int64_t)draw(&e, 3);
            const bool want = mc_eval(codes[i], env, q, k, h, scratch);
            seen[want]++;
            cr_assert_eq(allow(&device, q, k, (int)h) != 0, want, "program %u: q %lld k %lld h %lld", i, (long long)q,
                         (long long)k, (long long)h);
        }
        free(scratch);
        free(nodes[i]);
    }
    cr_expect(seen[0] > programs * DRAWS / 6 && seen[1] > programs * DRAWS / 6, "%u, %u", seen[0], seen[1]);
    cr_expect_gt(blocks, programs / 8);
    dlclose(library);
    free(sets);
    free(s.at);
}

/* --- arrays, bands, reals ----------------------------------------------------------------------------------------- */

static uint32_t emit1(mc_builder *b, mc_op op, uint32_t a, int64_t imm) {
    return mc_emit(b, op, a, MC_NONE, MC_NONE, imm, MC_NONE, 0);
}
static uint32_t emit2(mc_builder *b, mc_op op, uint32_t x, uint32_t y, int64_t imm) {
    return mc_emit(b, op, x, y, MC_NONE, imm, MC_NONE, 0);
}
static int64_t real_bits(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static mc_code extract(const mc_builder *b, uint32_t root, mc_node **nodes) {
    uint32_t *places, count;
    cr_assert(mc_extract(b, root, nodes, &places, &count));
    free(places);
    return (mc_code){*nodes, count};
}

/* a field over keys of two sequences of 4 */
static const int8_t bytes[8] = {0, 1, 2, 3, -1, -2, 5, 7};
static const int16_t shorts[6] = {9, 8, 7, -300, 5, 4};                      /* over queries, of 3 each */
static const int64_t longs[6] = {0, INT64_MIN, INT64_MAX, 4, 5, -6};         /* a table of 3 rows of 2 */
static const double reals[3] = {0.5, -1.25, 3.0e-39};
static const float reals_loaded[3] = {0.5f, -1.25f, 3.0e-39f};
static const mc_band band_list[] = {{0, 2, 0, 0}, {0, 1, 1, 1}, {-3, 7, 1, 0}};
static const mc_band_rows band_rows[] = {{-1, 0, 1}, {2, 1, 2}, {5, 0, 0}};
static const mc_bands bands = {band_rows, band_list, 3, 3};
static const emit_array kinds[] = {{.width = MC_I8, .dims = 1, .dim = {{.over = EMIT_KEYS, .cell = 1}}},
                                   {.width = MC_I16, .dims = 1, .dim = {{.over = EMIT_QUERIES, .cell = 1}}},
                                   {.table = true, .width = MC_I64, .dims = 2, .dim = {{.count = 3}, {.count = 2}}},
                                   {.table = true, .width = MC_F64, .dims = 1, .dim = {{.count = 3}}}};

Test(emit, arrays_and_bands) {
    sheet s = new_sheet();
    mc_node *nodes;
    mc_builder *b = mc_builder_new();
    uint32_t q = emit1(b, MC_Q, MC_NONE, 0), k = emit1(b, MC_K, MC_NONE, 0);
    uint32_t sum = emit2(b, MC_ADD, emit1(b, MC_LOAD, k, 0), emit1(b, MC_LOAD, q, 1), 0);
    sum = emit2(b, MC_ADD, sum, emit2(b, MC_LOAD2, q, k, 2), 0);
    uint32_t in = emit2(b, MC_BANDS, q, k, 0);
    mc_code code =
        extract(b, emit2(b, MC_IFF, in, emit2(b, MC_LT, sum, emit1(b, MC_CONST_I, MC_NONE, 3), 0), 0), &nodes);
    const emit_program g = {.mask = code, .arrays = kinds, .array_count = 4, .band_count = 1, .positions = 65535,
                            .negative = true, .heads = 1};
    add_program(&s, &g, 0);
    void *library = compile(&s);
    emitted_allow *allow;
    *(void **)&allow = emitted_function(library, "allow", 0);
    const fk_bands device_bands = {(fk_u64)(uintptr_t)band_rows, (fk_u64)(uintptr_t)band_list, 3, 3};
    int64_t scratch[64];
    unsigned yes = 0;
    for (int sequence = 0; sequence < 2; sequence++) {
        const fk_u64 data[4] = {(fk_u64)(uintptr_t)(bytes + 4 * sequence), (fk_u64)(uintptr_t)(shorts + 3 * sequence),
                                (fk_u64)(uintptr_t)longs, (fk_u64)(uintptr_t)reals_loaded};
        const fk_env env = {.sequence = {.n = 4, .q_first = 1, .queries = 3}, .arrays = data, .bands = &device_bands};
        const mc_array arrays[4] = {{bytes + 4 * sequence, 0, 4, 0, MC_I8}, {shorts + 3 * sequence, 1, 3, 0, MC_I16},
                                    {longs, 0, 3, 2, MC_I64}, {reals, 0, 3, 0, MC_F64}};
        const mc_env want = {.n = 4, .q_first = 1, .queries = 3, .arrays = arrays, .bands = &bands};
        for (int64_t i = -3; i < 9; i++)
            for (int64_t j = -3; j < 9; j++) {
                bool allowed = mc_eval(code, &want, i, j, 0, scratch);
                yes += allowed;
                cr_assert_eq(allow(&env, i, j, 0) != 0, allowed, "q %d k %d", (int)i, (int)j);
            }
    }
    cr_assert(yes > 20 && yes < 268);
    dlclose(library);
    free(nodes);
    free(s.at);
    mc_builder_free(b);
}

Test(emit, scores) {
    sheet s = new_sheet();
    mc_builder *b = mc_builder_new();
    uint32_t q = emit1(b, MC_Q, MC_NONE, 0), k = emit1(b, MC_K, MC_NONE, 0), x = emit1(b, MC_S, MC_NONE, 0);
    uint32_t bias = emit1(b, MC_TO_F, emit2(b, MC_SUB, k, q, 0), 0), table = emit1(b, MC_LOAD_F, k, 3);
    uint32_t c = emit1(b, MC_CONST_F, MC_NONE, real_bits(0.1));
    const mc_op unary[] = {MC_NEG_F,  MC_ABS_F, MC_FLOOR_F, MC_SQRT_F, MC_EXP_F,
                           MC_EXP2_F, MC_LOG_F, MC_LOG2_F,  MC_TANH_F, MC_TANH_APPROX_F};
    const mc_op binary[] = {MC_ADD_F, MC_SUB_F, MC_MUL_F, MC_DIV_F, MC_MIN_F, MC_MAX_F};
    const mc_op compares[] = {MC_LT_F, MC_LE_F, MC_EQ_F, MC_NE_F};
    uint32_t roots[32], count = 0;
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        roots[count++] = emit2(b, MC_ADD_F, emit1(b, unary[i], x, 0), bias, 0);
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        roots[count++] = emit2(b, binary[i], emit2(b, MC_MUL_F, x, c, 0), table, 0);
    for (size_t i = 0; i < sizeof compares / sizeof *compares; i++)
        roots[count++] = mc_emit(b, MC_IF_F, emit2(b, compares[i], x, bias, 0), x, bias, 0, MC_NONE, 0);
    mc_node *mask_nodes, *nodes[32];
    mc_code mask = extract(b, emit2(b, MC_LE, k, q, 0), &mask_nodes), codes[32];
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = extract(b, roots[i], &nodes[i]);
        const emit_program g = {.mask = mask, .score = codes[i], .slope = codes[i], .arrays = kinds, .array_count = 4,
                                .positions = 65535, .heads = 1};
        add_program(&s, &g, i);
    }
    void *library = compile(&s);
    const fk_u64 data[4] = {0, 0, 0, (fk_u64)(uintptr_t)reals_loaded};
    const mc_array arrays[4] = {{.width = MC_I8},
                                {.width = MC_I16},
                                {.columns = 2, .width = MC_I64},
                                {reals, 0, 3, 0, MC_F64}};
    const mc_env want = {.n = 8, .queries = 8, .arrays = arrays};
    const fk_env env = {.sequence = {.n = 8, .queries = 8}, .arrays = data};
    for (uint32_t i = 0; i < count; i++) {
        emitted_score *score[2];
        *(void **)&score[0] = emitted_function(library, "score", i);
        *(void **)&score[1] = emitted_function(library, "slope", i);
        int64_t scratch[1024];
        const bool reads_table = i >= sizeof unary / sizeof *unary && i < (sizeof unary + sizeof binary) / sizeof *unary;
        for (int64_t at = 0; at < 8; at++)
            for (int step = 0; step < 9; step++) {
                float from[1] = {(float)(step * 7 % 5) * 0.75f + 0.3125f * (float)at - 1}, row[1];
                mc_eval_score_row(codes[i], &want, 3, at, 1, 0, from, scratch, row);
                for (int f = 0; f < 2; f++) {
                    float got = score[f](&env, from[0], 3, at, 0);
                    if (reads_table && at >= 3) row[0] = score[f](&env, from[0], 3, 2, 0); /* the last element */
                    /* exp, log and tanh are of different libraries */
                    float near = i < sizeof unary / sizeof *unary ? 1e-6f * (1 + fabsf(row[0])) : 0;
                    cr_assert(got == row[0] || fabsf(got - row[0]) <= near || (isnan(got) && isnan(row[0])),
                              "score %u at %g: %g, not %g", i, (double)from[0], (double)got, (double)row[0]);
                }
            }
        free(nodes[i]);
    }
    dlclose(library);
    free(mask_nodes);
    free(s.at);
    mc_builder_free(b);
}

/* Each operation by itself, of MC_OPS as it is: a new one that emit.c does not print, or whose range it does not know,
 * fails here. Ints are compared beyond 32 bits, too. Reals are only compiled: their values are compared above. */
typedef struct one_operation {
    mc_node nodes[12];
    uint32_t count;
    mc_code mask, score;
} one_operation;

static uint32_t put(one_operation *x, mc_op op, uint32_t a, uint32_t b, uint32_t c) {
    x->nodes[x->count] = (mc_node){.op = op, .a = a, .b = b, .c = c, .guard = MC_NONE};
    return x->count++;
}

static bool put_operation(one_operation *x, mc_op op, unsigned arity, char type, const char *args) {
    const bool reads = op == MC_BANDS || mc_loads_int(op) || mc_loads_real(op);
    if (!arity || reads) return false;
    const bool real = type == 'f' || strchr(args, 'f');
    const uint32_t none = MC_NONE, q = put(x, MC_Q, none, none, none), k = put(x, MC_K, none, none, none);
    const uint32_t less = put(x, MC_LT, q, k, none), most = put(x, MC_LE, k, q, none);
    const uint32_t bools[3] = {less, most, less}, ints[3] = {q, k, q};
    uint32_t floats[3] = {0}, on[3] = {none, none, none};
    if (real) {
        floats[0] = floats[2] = put(x, MC_S, none, none, none);
        floats[1] = put(x, MC_TO_F, k, none, none);
    }
    for (unsigned i = 0; i < arity; i++) on[i] = (args[i] == 'b' ? bools : args[i] == 'i' ? ints : floats)[i];
    const uint32_t it = put(x, op, on[0], on[1], on[2]);
    if (real && type == 'b') put(x, MC_IF_F, it, floats[0], floats[1]);
    if (type == 'i') put(x, MC_LT, it, k, none);
    static const mc_node always = {MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 1};
    x->mask = real ? (mc_code){&always, 1} : (mc_code){x->nodes, x->count};
    x->score = real ? (mc_code){x->nodes, x->count} : (mc_code){0};
    return true;
}

Test(emit, every_operation) {
    static one_operation all[MC_OP_COUNT];
    static bool here[MC_OP_COUNT];
    const int64_t bound = emit_positions((uint64_t)1 << 39);
    sheet s = new_sheet();
#define X(id, name, arity, type, args, faults) here[MC_##id] = put_operation(&all[MC_##id], MC_##id, arity, type, args);
    MC_OPS(X)
#undef X
    for (unsigned op = 0; op < MC_OP_COUNT; op++) {
        if (!here[op]) continue;
        const emit_program g = {.mask = all[op].mask, .score = all[op].score, .slope = all[op].score,
                                .positions = bound, .negative = true, .heads = 1};
        add_program(&s, &g, op);
    }
    void *library = compile(&s);
    static const int64_t at[] = {-6000000000, -5000000000, -7, -1, 0, 1, 2, 7, 5000000000, 6000000000};
    for (unsigned op = 0; op < MC_OP_COUNT; op++) {
        if (!here[op] || all[op].score.count) continue;
        emitted_allow *allow;
        *(void **)&allow = emitted_function(library, "allow", op);
        const fk_env env = {.sequence = {.n = bound, .queries = bound}};
        int64_t scratch[12];
        for (size_t i = 0; i < sizeof at / sizeof *at; i++)
            for (size_t j = 0; j < sizeof at / sizeof *at; j++) {
                if (at[j] < 0) continue;
                bool want = mc_eval(all[op].mask, MC_LENGTH(bound), at[i], at[j], 0, scratch);
                cr_assert_eq(allow(&env, at[i], at[j], 0) != 0, want, "%s: q %lld k %lld", mc_op_name(op),
                             (long long)at[i], (long long)at[j]);
            }
    }
    dlclose(library);
    free(s.at);
}

/* The tanh of kernels against that of float64. Its primitives err here as much as a GPU's may: 2^x by 2^-22, 1 / x by
 * an ulp. */
Test(emit, tanh) {
    sheet s = {0};
    mc_node *mask_nodes, *nodes;
    mc_builder *b = mc_builder_new();
    uint32_t x = emit1(b, MC_S, MC_NONE, 0);
    mc_code mask = extract(b, emit1(b, MC_CONST_B, MC_NONE, 1), &mask_nodes),
            score = extract(b, emit1(b, MC_TANH_F, x, 0), &nodes);
    const emit_program g = {.mask = mask, .score = score, .slope = score, .positions = 65535, .heads = 1};
    double worst = 0;
    for (int bend = -1; bend <= 1; bend++) {
        char text[400];
        s = new_sheet();
        snprintf(text, sizeof text,
                 "#define fk_exp2(x) (exp2f(x) * (1 + %d * 0x1p-22f))\n"
                 "#define fk_reciprocal(x) (1 / (x) * (1 - %d * 0x1p-23f))\n",
                 bend, bend);
        write_text(&s, text);
        add_program(&s, &g, 0);
        void *library = compile(&s);
        emitted_score *f;
        *(void **)&f = emitted_function(library, "score", 0);
        const fk_env env = {.sequence = {.n = 1, .queries = 1}};
        for (int i = -400000; i <= 400000; i++) {
            float at = (float)i * (i % 2 ? 3e-5f : 3e-3f);
            worst = fmax(worst, fabs((double)f(&env, at, 0, 0, 0) - tanh((double)at)));
        }
        worst = fmax(worst, fabs(f(&env, INFINITY, 0, 0, 0) - 1.0));
        worst = fmax(worst, fabs(f(&env, -INFINITY, 0, 0, 0) + 1.0));
        dlclose(library);
        free(s.at);
    }
    cr_expect_leq(worst, 0x1p-20, "%g", worst);
    free(mask_nodes);
    free(nodes);
    mc_builder_free(b);
}

/* What does not check is refused, and nothing printed. */
Test(emit, hostile) {
    sheet s = {0};
    mc_node bad = {.op = MC_K, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE};
    emit_program g = {.mask = {&bad, 1}, .positions = 65535, .heads = 1};
    uint32_t node;
    cr_assert_not_null(emit_functions(&g, write_to, &s, &node));
    bad.op = MC_CONST_B;
    g.positions = 0;
    cr_assert_not_null(emit_functions(&g, write_to, &s, &node));
    g.positions = ((int64_t)1 << 40) + 1;
    cr_assert_not_null(emit_functions(&g, write_to, &s, &node));
    cr_assert_eq(s.size, 0);
    g.positions = 65535;
    cr_assert_null(emit_functions(&g, write_to, &s, &node));
    cr_assert_not_null(strstr(s.at, "return v0;"));
    free(s.at);
}
