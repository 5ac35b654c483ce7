/* test_maskrow.c: tests the evaluation of rows and tiles against that of single elements: every operation, arrays
 * and bands at every edge, extreme values, and code from files that is not to be trusted. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/mask/code.h"
#include "tests/support/splitmix.h"

/* --- random code -------------------------------------------------------------------------------------------------- */

enum { NODES = 40 };
typedef struct random_code {
    mc_node nodes[NODES];
    uint32_t count;
    uint64_t state;
} random_code;

static uint64_t draw(random_code *c, uint64_t below) { return splitmix(&c->state) % below; }

/* Arrays of every width, some that do not begin at 0; tables; bands. */
enum { ARRAYS = 12, COUNT = 700 };
static struct {
    int8_t a[COUNT];
    int16_t b[COUNT];
    int32_t c[COUNT];
    int64_t d[COUNT];
    double e[COUNT];
} values;
static mc_array arrays[ARRAYS];
static const mc_band_rows band_rows[] = {{-3, 0, 2}, {10, 2, 1}, {300, 3, 3}, {400, 6, 0}};
static const mc_band band_list[] = {{-20, 5, 0, 0},    {5, 9, 0, 1},   {0, 1, 0, 1},
                                    {-100, -40, 1, 1}, {0, 30, 1, 1}, {700, 900, 0, 0}};
static const mc_bands bands[] = {{band_rows, band_list, 4, 6}};

static mc_env environment(void) {
    for (int i = 0; i < COUNT; i++) {
        values.a[i] = (int8_t)(i * 37);
        values.b[i] = (int16_t)(i * 1237);
        values.c[i] = (int32_t)((uint32_t)i * 2654435761u);
        values.d[i] = (int64_t)((uint64_t)i * 0x9e3779b97f4a7c15u);
        values.e[i] = sin(i) * exp2(i % 60 - 30);
    }
    const mc_array all[ARRAYS] = {{values.a, 0, COUNT, 0, MC_I8},        {values.b, -100, COUNT, 0, MC_I16},
                                  {values.c, 5, 90, 0, MC_I32},          {values.d, 0, 128, 0, MC_I64},
                                  {values.a, 0, 20, 35, MC_I8},          {values.d, 0, 100, 7, MC_I64},
                                  {values.e, -3, COUNT, 0, MC_F64},      {values.e, 0, 10, 70, MC_F64},
                                  {values.b, -2, 9, 11, MC_I16, 7, -4},  {values.e, 0, 5, 10, MC_F64, 14, 3},
                                  {values.b, -1, 6, 110, MC_I16, 0, 17}, {values.e, 2, 6, 110, MC_F64, 0, -40}};
    memcpy(arrays, all, sizeof all);
    return (mc_env){.n = 500, .queries = 500, .arrays = arrays, .bands = bands};
}

static uint32_t find(random_code *c, char type) {
    for (;;) {
        uint32_t i = (uint32_t)draw(c, c->count);
        if (mc_op_type(c->nodes[i].op) == type) return i;
    }
}

static const struct { uint8_t arity; char type, args[4]; } ops[MC_OP_COUNT] = {
#define X(id, name, arity, type, args, faults) {arity, type, args},
    MC_OPS(X)
#undef X
};

static int64_t bits(double x) {
    int64_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static int64_t draw_constant(random_code *c, mc_op op) {
    static const int64_t numbers[] = {0,   1,  -1,        2,         3,                7,         64,
                                      100, -5, INT64_MAX, INT64_MIN, (int64_t)1 << 40, 5000000000};
    static const double reals[] = {0, 1, -1, 0.5, -2.25, 1e-30, 1e30, 3.7, 100, 7};
    switch (op) {
    case MC_CONST_I: return numbers[draw(c, 13)];
    case MC_CONST_B: return (int64_t)draw(c, 2);
    case MC_CONST_F: return bits(reals[draw(c, 10)]);
    case MC_LOAD: return (int64_t)draw(c, 4);
    case MC_LOAD2: return draw(c, 3) ? 4 + (int64_t)draw(c, 2) : 10;
    case MC_LOAD_F: return 6;
    case MC_LOAD2_F: return draw(c, 2) ? 7 : 11;
    case MC_LOAD3: return 8;
    case MC_LOAD3_F: return 9;
    default: return 0;
    }
}

/* Code with an answer of the given type; leaves first, so that every operand can be found. */
static mc_code draw_code(random_code *c, uint64_t seed, mc_kind kind) {
    static const mc_op leaves[] = {MC_Q, MC_K, MC_N, MC_H, MC_CONST_I, MC_CONST_I, MC_CONST_B, MC_S, MC_CONST_F};
    c->state = seed;
    c->count = 0;
    for (int i = 0; i < (kind == MC_MASK ? 7 : 9); i++)
        c->nodes[c->count++] = (mc_node){.op = leaves[i], .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE,
                                         .imm = draw_constant(c, leaves[i])};
    const char answer = kind == MC_MASK ? 'b' : 'f';
    while (c->count < 12 + seed % 20 || mc_op_type(c->nodes[c->count - 1].op) != answer) {
        mc_op op = (mc_op)draw(c, MC_OP_COUNT);
        if (c->count == NODES - 1) op = kind == MC_MASK ? MC_NOT : MC_NEG_F;
        if (kind == MC_MASK && (ops[op].type == 'f' || ops[op].args[0] == 'f')) continue;
        if (ops[op].arity == 0 && draw(c, 4)) continue;
        uint32_t x[3] = {MC_NONE, MC_NONE, MC_NONE};
        for (int j = 0; j < ops[op].arity; j++) x[j] = find(c, ops[op].args[j]);
        c->nodes[c->count++] = (mc_node){.op = op, .a = x[0], .b = x[1], .c = x[2], .guard = MC_NONE,
                                         .imm = draw_constant(c, op)};
    }
    mc_code code = {c->nodes, c->count};
    const mc_decls decls = {arrays, ARRAYS, 1};
    cr_assert_null(mc_check(code, kind, &decls, NULL));
    return code;
}

static int64_t draw_position(random_code *c) {
    switch (draw(c, 12)) {
    case 0: return (int64_t)draw(c, UINT64_MAX);
    case 1: return INT64_MAX - (int64_t)draw(c, 200);
    case 2: return INT64_MIN + (int64_t)draw(c, 200);
    case 3: return ((int64_t)1 << 31) - 60;
    default: return (int64_t)draw(c, 900) - 150;
    }
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

Test(maskrow, rows_of_masks_are_elements) {
    static random_code c;
    mc_env env = environment();
    unsigned seen[2] = {0};
    for (uint64_t seed = 1; seed <= 6000; seed++) {
        mc_code code = draw_code(&c, seed, MC_MASK);
        int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch), one[NODES];
        int64_t q = draw_position(&c), k = draw_position(&c), h = (int64_t)draw(&c, 9);
        uint32_t width = 1 + (uint32_t)draw(&c, MC_ROW);
        uint8_t row[MC_ROW];
        mc_eval_row(code, &env, q, k, width, h, scratch, row);
        for (uint32_t j = 0; j < width; j++) {
            bool want = mc_eval(code, &env, q, (int64_t)((uint64_t)k + j), h, one);
            cr_assert_eq(row[j], want, "seed %d, key %u", (int)seed, j);
            seen[want]++;
        }
        const uint32_t rows = 1 + (uint32_t)(seed % 5);
        const mc_tile tile = {q, k, h, rows, width};
        uint64_t allowed = 0;
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t j = 0; j < width; j++)
                allowed += mc_eval(code, &env, (int64_t)((uint64_t)q + i), (int64_t)((uint64_t)k + j), h, one);
        cr_assert_eq(mc_count_tile(code, &env, &tile, scratch), allowed, "seed %d", (int)seed);
        free(scratch);
    }
    cr_assert(seen[0] > 50000 && seen[1] > 50000);
}

/* Quotients and remainders by one number: of lines, and of numbers that lie anywhere, at every edge of 31, 32 and 64
 * bits. */
Test(maskrow, divisions_by_one_number) {
    static const int64_t edges[] = {0, 1, 2, 3, 7, 100, 1009, 65535, 65536, 0x7ffffffe, 0x7fffffff, 0x80000000,
                                    0xffffffff,
                                    0x100000000, (int64_t)1 << 40, INT64_MAX / 2, INT64_MAX / 2 + 1, INT64_MAX - 300,
                                    INT64_MAX};
    enum { EDGES = sizeof edges / sizeof *edges };
    static int64_t list[MC_ROW];
    const mc_array array = {list, 0, MC_ROW, 0, MC_I64};
    const mc_env env = {.n = 1000, .queries = 1000, .arrays = &array};
    uint64_t state = 1;
    for (int from = 0; from < 2 * EDGES; from++)
        for (int by = 0; by < 2 * EDGES; by++)
            for (int form = 0; form < 8; form++) { /* step of the line; from 4 on elements of the array */
                static const int64_t steps[] = {1, -1, 1009, -((int64_t)1 << 33)};
                const int64_t sign = from % 2 ? -1 : 1, start = sign * edges[from / 2];
                const int64_t divisor = (by % 2 ? -1 : 1) * edges[by / 2];
                const uint32_t none = MC_NONE;
                for (int j = 0; j < MC_ROW; j++) {
                    state = state * 6364136223846793005u + 1442695040888963407u;
                    list[j] = sign * (int64_t)((state >> 8) % ((uint64_t)edges[from / 2] + 1));
                }
                const mc_node n[] = {{MC_K, none, none, none, none, 0, 0},
                                     {MC_CONST_I, none, none, none, none, 0, steps[form % 4]},
                                     {MC_CONST_I, none, none, none, none, 0, start},
                                     {MC_CONST_I, none, none, none, none, 0, divisor},
                                     form < 4 ? (mc_node){MC_MUL, 0, 1, none, none, 0, 0}
                                              : (mc_node){MC_LOAD, 0, none, none, none, 0, 0},
                                     {form < 4 ? MC_ADD : MC_MAX, 4, form < 4 ? 2 : 4, none, none, 0, 0},
                                     {MC_MOD, 5, 3, none, none, 0, 0},
                                     {MC_DIV, 5, 3, none, none, 0, 0},
                                     {MC_Q, none, none, none, none, 0, 0},
                                     {MC_EQ, 6, 8, none, none, 0, 0},
                                     {MC_EQ, 7, 8, none, none, 0, 0}};
                int64_t scratch[4000], one[11];
                uint8_t row[MC_ROW];
                cr_assert_leq(mc_row_scratch((mc_code){n, 11}), 4000);
                for (uint32_t root = 9; root < 11; root++)
                    for (int64_t k = 0; k < MC_ROW; k += 37) { /* has each key its own? */
                        mc_eval((mc_code){n, 11}, &env, 0, k, 0, one);
                        const int64_t q = one[root - 3];
                        mc_eval_row((mc_code){n, root + 1}, &env, q, 0, MC_ROW, 0, scratch, row);
                        for (int64_t j = 0; j < MC_ROW; j++)
                            cr_assert_eq(row[j], mc_eval((mc_code){n, root + 1}, &env, q, j, 0, one),
                                         "%d by %d, form %d, key %d", from, by, form, (int)j);
                    }
            }
}

/* Loads and bands alone, along every kind of index. */
Test(maskrow, loads_and_bands_at_their_edges) {
    mc_env env = environment();
    static const int64_t starts[] = {-700, -130, -101, -100, -4,  -1,  0,   1,   4,   5,              60,
                                     94,   95,   127,  128,  300, 599, 600, 699, 700, INT64_MAX - 60, INT64_MIN};
    for (uint32_t a = 0; a < ARRAYS; a++)
        for (int form = 0; form < 5; form++)
            for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
                const uint32_t dims = mc_array_dims(&arrays[a]);
                const bool reals = arrays[a].width == MC_F64;
                const uint32_t none = MC_NONE;
                mc_node n[8] = {{MC_Q, none, none, none, none, 0, 0},
                                {MC_K, none, none, none, none, 0, 0},
                                {MC_CONST_I, none, none, none, none, 0, form == 2 ? 3 : form == 3 ? -1 : 11},
                                {form == 4 ? MC_MIN : MC_MUL, 1, 2, none, none, 0, 0}};
                uint32_t index = form == 0 ? 1 : 3, root = 4;
                uint32_t row = form == 1 ? index : 0, column = form == 1 ? 0 : index;
                const uint32_t plane = form == 2 ? index : 0;
                if (dims == 3) n[root++] = (mc_node){reals ? MC_LOAD3_F : MC_LOAD3, plane, row, column, none, 0, a};
                else if (dims == 2) n[root++] = (mc_node){reals ? MC_LOAD2_F : MC_LOAD2, row, column, none, none, 0, a};
                else n[root++] = (mc_node){reals ? MC_LOAD_F : MC_LOAD, index, none, none, none, 0, a};
                if (!reals) n[root++] = (mc_node){MC_TO_F, 4, none, none, none, 0, 0};
                mc_code code = {n, root};
                const mc_decls decls = {arrays, ARRAYS, 1};
                cr_assert_null(mc_check(code, MC_SCORE, &decls, NULL));
                int64_t scratch[3000], one[8];
                float s_row[MC_ROW] = {0}, out[MC_ROW];
                cr_assert_leq(mc_row_scratch(code), 3000);
                for (int64_t q = -1; q < 12; q++) {
                    mc_eval_score_row(code, &env, q, starts[s], MC_ROW, 0, s_row, scratch, out);
                    for (uint32_t j = 0; j < MC_ROW; j++) {
                        double want = mc_eval_score(code, &env, q, (int64_t)((uint64_t)starts[s] + j), 0, 0, one);
                        bool near = fabs(out[j] - want) <= 0x1p-23 * fabs(want);
                        cr_assert(near, "array %u form %d from %ld: %u: %g, not %g", a, form, (long)starts[s], j,
                                  out[j], want);
                    }
                }
            }
    for (int64_t q = -60; q < 410; q++)
        for (int64_t k = -150; k < 950; k += MC_ROW) {
            const mc_node n[] = {{MC_Q, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0},
                                 {MC_K, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0},
                                 {MC_BANDS, 0, 1, MC_NONE, MC_NONE, 0, 0}, {MC_BANDS, 1, 0, MC_NONE, MC_NONE, 0, 0}};
            int64_t scratch[2000], one[8];
            uint8_t row[MC_ROW];
            for (uint32_t count = 3; count <= 4; count++) {
                mc_eval_row((mc_code){n, count}, &env, q, k, MC_ROW, 0, scratch, row);
                for (int64_t at = k; at < k + MC_ROW; at++) {
                    cr_assert_eq(row[at - k], mc_eval((mc_code){n, count}, &env, q, at, 0, one));
                    bool in = false;
                    if (q >= -3 && q < 10) in = (at >= -20 && at < 5) || (at >= 5 && at < 9 + q);
                    if (q >= 10 && q < 300) in = at >= 0 && at < 1 + q;
                    if (q >= 300 && q < 400)
                        in = (at >= q - 100 && at < q - 40) || (at >= q && at < q + 30) || (at >= 700 && at < 900);
                    cr_assert(count == 4 || row[at - k] == in, "row %ld key %ld", (long)q, (long)at);
                }
            }
        }
}

/* --- scores ------------------------------------------------------------------------------------------------------- */

static bool same_float(float a, float b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }

/* A tile equals its rows, and a row equals its elements, to the bit; also when done in place. */
Test(maskrow, tiles_are_rows_are_elements) {
    static random_code c;
    enum { ROWS = 5, KEYS = 300, LD = 310 };
    static float s[ROWS * LD], tile[ROWS * LD];
    mc_env env = environment();
    unsigned finite = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        mc_code code = draw_code(&c, seed, MC_SCORE);
        int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch);
        int64_t q = draw_position(&c), k = draw_position(&c), h = (int64_t)draw(&c, 9);
        uint32_t keys = 1 + (uint32_t)draw(&c, KEYS);
        for (int i = 0; i < ROWS * LD; i++) s[i] = (float)((double)draw(&c, 2001) - 1000) / 128;
        memcpy(tile, s, sizeof tile);
        mc_eval_score_tile(code, &env, &(mc_tile){q, k, h, ROWS, keys}, tile, LD, 1, scratch, tile);
        for (uint32_t i = 0; i < ROWS; i++) {
            for (uint32_t j = keys; j < LD; j++)
                cr_assert(same_float(tile[i * LD + j], s[i * LD + j]), "beyond the tile");
            for (uint32_t j = 0; j < keys; j += 1 + (uint32_t)draw(&c, 40)) {
                uint32_t width = 1 + (uint32_t)draw(&c, keys - j < MC_ROW ? keys - j : MC_ROW);
                float row[MC_ROW];
                mc_eval_score_row(code, &env, (int64_t)((uint64_t)q + i), (int64_t)((uint64_t)k + j), width, h,
                                  s + i * LD + j, scratch, row);
                for (uint32_t x = 0; x < width; x++) {
                    cr_assert(same_float(tile[i * LD + j + x], row[x]), "seed %d row %u key %u: %a, alone %a",
                              (int)seed, i, j + x, tile[i * LD + j + x], row[x]);
                    finite += isfinite(row[x]);
                }
            }
        }
        mc_eval_score_tile(code, &env, &(mc_tile){q, k, h, 1, 1}, s, LD, 0.5f, scratch, tile);
        float whole;
        mc_eval_score_row(code, &env, q, k, 1, h, s, scratch, &whole);
        cr_assert(same_float(*tile, whole * 0.5f));
        free(scratch);
    }
    cr_assert_gt(finite, 100000);
}

/* One operation on reals, over floats at every extreme, against double. */
static void operation(mc_op op, double most, double least_size) {
    static const float extremes[] = {
        0.0f,        -0.0f,   1.0f,   -1.0f,   INFINITY, -INFINITY,       NAN,              0x1p-149f, -0x1p-149f,
        0x1p-126f,   -0.5f,   0.5f,   0x1p23f, 0x1p31f,  0x1.fffffep127f, -0x1.fffffep127f, -0x1p31f,  -0x1p-126f,
        8388607.5f,  88.7f,   88.73f, -87.4f,  -103.9f,  0.99999994f,     -0.99999994f,     1.0000001f, -4194304.5f,
        -104.1f,     127.99f, 128.0f, -126.5f, -149.0f,  -150.1f,         9.0f,             20.0f};
    enum { EXTREMES = sizeof extremes / sizeof *extremes };
    float s[4096], out[4096];
    double worst = 0, at = 0;
    mc_node n[] = {{MC_S, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0}, {op, 0, MC_NONE, MC_NONE, MC_NONE, 0, 0}};
    int64_t scratch[1000], one[4];
    mc_env env = MC_LENGTH(1)[0];
    random_code c = {.state = op};
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 4096; i++) {
            uint32_t any = (uint32_t)draw(&c, UINT32_MAX);
            if (i < EXTREMES) s[i] = extremes[i];
            else if (i % 2) memcpy(&s[i], &any, sizeof any);
            else s[i] = ((float)(any >> 8) / 8388608.0f - 1.0f) * (i % 4 ? 3.0f : 100.0f);
        }
        mc_eval_score_tile((mc_code){n, 2}, &env, &(mc_tile){.rows = 1, .keys = 4096}, s, 0, 1, scratch, out);
        for (int i = 0; i < 4096; i++) {
            double exact = mc_eval_score((mc_code){n, 2}, &env, 0, 0, 0, s[i], one);
            float rounded = (float)exact;
            if (!isfinite(rounded) || !isfinite(out[i]) || exact == 0) {
                /* where it overflows, or is nothing: the same, but for the last steps before infinity */
                bool near = fabs(exact) > 0x1.fffp127 && fabs((double)out[i]) > 0x1.fffp127;
                bool same = rounded == out[i] && signbit(rounded) == signbit(out[i]);
                cr_assert((isnan(rounded) && isnan(out[i])) || near || same, "%s(%a) is %a, not %a", mc_op_name(op),
                          s[i], out[i], rounded);
                continue;
            }
            double size = fabs(exact) > least_size ? fabs(exact) : least_size, error = fabs(out[i] - exact) / size;
            if (error > worst) worst = error, at = s[i];
        }
    }
    cr_assert(worst <= most, "%s(%a): off by 2^%.2f", mc_op_name(op), at, log2(worst));
}

Test(maskrow, functions_are_right_everywhere) {
    operation(MC_NEG_F, 0, 1e-300);
    operation(MC_ABS_F, 0, 1e-300);
    operation(MC_FLOOR_F, 0, 1e-300);
    operation(MC_SQRT_F, 0x1p-24, 1e-300);
    operation(MC_EXP_F, 0x1p-21, 0x1p-126); /* subnormal results to half of the smallest number */
    operation(MC_EXP2_F, 0x1p-21, 0x1p-126);
    operation(MC_TANH_F, 0x1p-21, 0x1p-126);
    operation(MC_TANH_APPROX_F, 0x1p-21, 0x1p-126);
    operation(MC_LOG_F, 0x1p-22, 1e-300);
    operation(MC_LOG2_F, 0x1p-22, 1e-300);
}

/* --- what faults -------------------------------------------------------------------------------------------------- */

Test(maskrow, a_load_beyond_its_array_faults_unless_it_is_not_reached) {
    mc_env env = environment();
    for (uint32_t a = 0; a < 6; a++) {
        const mc_array *x = &arrays[a];
        for (int guarded = 0; guarded < 2; guarded++)
            for (int64_t i = x->first - 2; i < x->first + x->count + 2; i++)
                for (int64_t j = -1; j < (x->columns ? (int64_t)x->columns + 1 : 0); j++) {
                    const uint32_t none = MC_NONE;
                    mc_node n[] = {{MC_Q, none, none, none, none, 0, 0},
                                   {MC_K, none, none, none, none, 0, 0},
                                   {MC_CONST_B, none, none, none, none, 0, 0},
                                   {x->columns ? MC_LOAD2 : MC_LOAD, 0, x->columns ? 1 : none, none, none, 0, a},
                                   {MC_LT, 3, 1, none, none, 0, 0}};
                    if (guarded) n[3].guard = 2;
                    int64_t scratch[8];
                    bool out, there = i >= x->first && i < x->first + x->count;
                    if (x->columns && (j < 0 || j >= x->columns)) there = false;
                    uint32_t where = 99;
                    mc_fault fault = mc_eval_checked((mc_code){n, 5}, &env, i, j, 0, scratch, &out, &where);
                    cr_assert_eq(fault, there || guarded ? MC_OK : MC_INDEX, "array %u (%ld, %ld)", a, (long)i,
                                 (long)j);
                    cr_assert(fault == MC_OK || where == 3);
                    if (fault == MC_OK && !there) cr_assert_eq(scratch[3], 0);
                }
    }
}

/* --- hostile code ------------------------------------------------------------------------------------------------- */

Test(maskrow, check_refuses_what_scores_and_masks_may_not_have) {
    environment();
    const mc_decls decls = {arrays, ARRAYS, 1}, none_declared = {NULL, 0, 0};
    const uint32_t none = MC_NONE;
    const mc_node q = {MC_Q, none, none, none, none, 0, 0}, s = {MC_S, none, none, none, none, 0, 0};
#define REAL(value) {MC_CONST_F, none, none, none, none, 0, bits(value)}
#define UNARY(op, imm) {op, 0, none, none, none, 0, imm}
    const struct { mc_kind kind; mc_node first, second; bool good; const mc_decls *decls; } cases[] = {
        {MC_SCORE, q, UNARY(MC_LOAD_F, 6), true, &decls},
        {MC_SCORE, q, UNARY(MC_LOAD_F, 6), false, &none_declared},
        {MC_SCORE, q, UNARY(MC_LOAD_F, 6), false, NULL},
        {MC_SCORE, q, UNARY(MC_LOAD_F, ARRAYS), false, &decls},
        {MC_SCORE, q, UNARY(MC_LOAD_F, -1), false, &decls},
        {MC_SCORE, q, UNARY(MC_LOAD_F, INT64_MIN), false, &decls},
        {MC_SCORE, q, UNARY(MC_LOAD_F, 0), false, &decls}, /* integers */
        {MC_SCORE, q, UNARY(MC_LOAD_F, 7), false, &decls}, /* two dimensions */
        {MC_SCORE, q, {MC_LOAD2_F, 0, 0, none, none, 0, 7}, true, &decls},
        {MC_SCORE, q, {MC_LOAD2_F, 0, 0, none, none, 0, 6}, false, &decls},
        {MC_SCORE, q, {MC_LOAD2_F, 0, none, none, none, 0, 7}, false, &decls},
        {MC_SCORE, q, UNARY(MC_LOAD, 0), false, &decls}, /* the answer is whole */
        {MC_SCORE, q, UNARY(MC_TO_F, 0), true, &decls},
        {MC_SCORE, q, UNARY(MC_TO_F, 1), false, &decls}, /* a stray constant */
        {MC_SCORE, s, UNARY(MC_TO_F, 0), false, &decls},
        {MC_SCORE, q, UNARY(MC_TANH_F, 0), false, &decls},
        {MC_SCORE, s, {MC_LT_F, 0, 0, none, none, 0, 0}, false, &decls}, /* the answer is a bool */
        {MC_SCORE, s, {MC_ADD_F, 0, 0, none, 0, 0, 0}, false, &decls},   /* a guard where nothing fails */
        {MC_SCORE, s, REAL(1.5), true, &decls},
        {MC_SCORE, s, REAL(NAN), false, &decls},
        {MC_SCORE, s, REAL(INFINITY), false, &decls},
        {MC_SCORE, s, REAL(-INFINITY), false, &decls},
        {MC_MASK, q, {MC_BANDS, 0, 0, none, none, 0, 0}, true, &decls},
        {MC_MASK, q, {MC_BANDS, 0, 0, none, none, 0, 1}, false, &decls},
        {MC_MASK, q, {MC_BANDS, 0, 0, none, none, 0, -1}, false, &decls},
        {MC_MASK, q, {MC_BANDS, 0, 0, none, none, 0, 0}, false, NULL},
        {MC_MASK, s, {MC_LT_F, 0, 0, none, none, 0, 0}, false, &decls}, /* a real in a mask */
        {MC_MASK, s, {MC_CONST_B, none, none, none, none, 0, 1}, false, &decls},
        {MC_MASK, q, UNARY(MC_LOAD, 0), false, &decls},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const mc_node n[] = {cases[i].first, cases[i].second};
        const char *wrong = mc_check((mc_code){n, 2}, cases[i].kind, cases[i].decls, NULL);
        cr_assert_eq(wrong == NULL, cases[i].good, "case %zu: %s", i, wrong ? wrong : "passed");
    }
}
