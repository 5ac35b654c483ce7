/* code.h: mask code, the bytecode in which a plan keeps its mask and score. README.md here introduces it by an example.
 *
 * Code is a list of nodes. Node i may use only nodes before it, and the last node is the answer: a bool for a mask, a
 * real for a score. A mask has no real nodes. Integers are int64. Reals are double where they are judged, and float in
 * kernels.
 *
 * There are no branches: `and`, `or` and `if` evaluate all their operands. In `q > 0 and n / q > k` the division is
 * therefore computed for q = 0 too. So that this is no fault, the node of the division carries a *guard*, here the node
 * of q > 0: the condition under which the source would have reached it. Code has two meanings:
 *   total:    for kernels and the host. Nothing faults. + - * neg abs wrap modulo 2^64, INT64_MIN / -1 too; x / 0 and
 *             x % 0 are 0; an element that an array does not have is 0.
 *   faulting: for the compiler. A node faults if its guard is true, or it has none (MC_NONE), and it overflows, divides
 *             by zero or reads beyond an array. The compiler proves that no (q, k, h) of a batch faults, so that plans
 *             need no checks.
 * The two agree wherever the source does not fault. Reals never fault: they are IEEE 754.
 *
 * Division rounds down, and a % b has the sign of b, so that a == b * (a / b) + a % b.
 *
 * Code reads arrays and bands by number. Arrays are fields (each sequence has its own values: for each token, head or
 * block, or one) or tables (of the model). Bands are unions of slices.
 */
#ifndef CODEGEN_MASK_CODE_H
#define CODEGEN_MASK_CODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MC_NONE UINT32_MAX
#define MC_MAX_NODES 65536u

/* The operations of mask code: name, arity, result type ('i' int64, 'b' bool, 'f' real), operand types, can fault. The
 * arity counts the node operands a, b, c in that order. IF: a is bool, b and c have the result's type. */
#define MC_OPS(X)                                                                                                      \
    X(CONST_I, "const", 0, 'i', "", 0) /* imm */                                                                       \
    X(CONST_B, "bool", 0, 'b', "", 0)  /* imm 0 or 1 */                                                                \
    X(Q, "q", 0, 'i', "", 0)           /* query position in its sequence */                                            \
    X(K, "k", 0, 'i', "", 0)           /* key position */                                                              \
    X(N, "n", 0, 'i', "", 0)           /* the sequence's length */                                                     \
    X(H, "h", 0, 'i', "", 0)           /* query head */                                                                \
    X(ADD, "add", 2, 'i', "ii", 1)                                                                                     \
    X(SUB, "sub", 2, 'i', "ii", 1)                                                                                     \
    X(MUL, "mul", 2, 'i', "ii", 1)                                                                                     \
    X(DIV, "div", 2, 'i', "ii", 1)                                                                                     \
    X(MOD, "mod", 2, 'i', "ii", 1)                                                                                     \
    X(NEG, "neg", 1, 'i', "i", 1)                                                                                      \
    X(ABS, "abs", 1, 'i', "i", 1)                                                                                      \
    X(MIN, "min", 2, 'i', "ii", 0)                                                                                     \
    X(MAX, "max", 2, 'i', "ii", 0)                                                                                     \
    X(IF_I, "select", 3, 'i', "bii", 0)                                                                                \
    X(LOAD, "load", 1, 'i', "i", 1)     /* element a of array imm */                                                   \
    X(LOAD2, "load2", 2, 'i', "ii", 1)  /* element (a, b) of array imm: row, column */                                 \
    X(LOAD3, "load3", 3, 'i', "iii", 1) /* element (a, b, c): plane, row, column */                                    \
    X(EQ, "eq", 2, 'b', "ii", 0)                                                                                       \
    X(NE, "ne", 2, 'b', "ii", 0)                                                                                       \
    X(LT, "lt", 2, 'b', "ii", 0)                                                                                       \
    X(LE, "le", 2, 'b', "ii", 0)                                                                                       \
    X(NOT, "not", 1, 'b', "b", 0)                                                                                      \
    X(AND, "and", 2, 'b', "bb", 0)                                                                                     \
    X(OR, "or", 2, 'b', "bb", 0)                                                                                       \
    X(IFF, "iff", 2, 'b', "bb", 0) /* bool == bool */                                                                  \
    X(IF_B, "selectb", 3, 'b', "bbb", 0)                                                                               \
    X(BANDS, "bands", 2, 'b', "ii", 0) /* is (row a, key b) in a band of bands imm? */                                 \
    X(LT_F, "ltf", 2, 'b', "ff", 0)    /* from here on: scores only */                                                 \
    X(LE_F, "lef", 2, 'b', "ff", 0)                                                                                    \
    X(EQ_F, "eqf", 2, 'b', "ff", 0)                                                                                    \
    X(NE_F, "nef", 2, 'b', "ff", 0)                                                                                    \
    X(CONST_F, "real", 0, 'f', "", 0) /* imm: the bits of a finite double */                                           \
    X(S, "s", 0, 'f', "", 0)          /* the scaled natural logit */                                                   \
    X(TO_F, "tof", 1, 'f', "i", 0)                                                                                     \
    X(ADD_F, "addf", 2, 'f', "ff", 0)                                                                                  \
    X(SUB_F, "subf", 2, 'f', "ff", 0)                                                                                  \
    X(MUL_F, "mulf", 2, 'f', "ff", 0)                                                                                  \
    X(DIV_F, "divf", 2, 'f', "ff", 0)                                                                                  \
    X(NEG_F, "negf", 1, 'f', "f", 0)                                                                                   \
    X(ABS_F, "absf", 1, 'f', "f", 0)                                                                                   \
    X(MIN_F, "minf", 2, 'f', "ff", 0)                                                                                  \
    X(MAX_F, "maxf", 2, 'f', "ff", 0)                                                                                  \
    X(FLOOR_F, "floorf", 1, 'f', "f", 0)                                                                               \
    X(SQRT_F, "sqrtf", 1, 'f', "f", 0)                                                                                 \
    X(EXP_F, "expf", 1, 'f', "f", 0)                                                                                   \
    X(EXP2_F, "exp2f", 1, 'f', "f", 0)                                                                                 \
    X(LOG_F, "logf", 1, 'f', "f", 0)                                                                                   \
    X(LOG2_F, "log2f", 1, 'f', "f", 0)                                                                                 \
    X(TANH_F, "tanhf", 1, 'f', "f", 0)                                                                                 \
    X(IF_F, "selectf", 3, 'f', "bff", 0)                                                                               \
    X(LOAD_F, "loadf", 1, 'f', "i", 1) /* as LOAD, of an array of reals */                                             \
    X(LOAD2_F, "load2f", 2, 'f', "ii", 1)                                                                              \
    X(LOAD3_F, "load3f", 3, 'f', "iii", 1)                                                                             \
    X(TANH_APPROX_F, "tanh_approxf", 1, 'f', "f", 0) /* tanh, which GPUs may compute to 2^-11 of itself */

typedef enum mc_op {
#define X(id, name, arity, type, args, faults) MC_##id,
    MC_OPS(X)
#undef X
    MC_OP_COUNT
} mc_op;

/* One node, as it lies in the plan file. Unused operands are MC_NONE, unused imm 0. */
typedef struct mc_node {
    uint32_t op;
    uint32_t a, b, c;
    uint32_t guard; /* bool node < this one, or MC_NONE; only on nodes that can fault */
    uint32_t pad;   /* 0 */
    int64_t imm;
} mc_node;

/* A copy of a node whose operands and guard are renumbered: node number i becomes number to[i]. */
static inline mc_node mc_renumbered(mc_node x, const uint32_t *to) {
    if (x.a != MC_NONE) x.a = to[x.a];
    if (x.b != MC_NONE) x.b = to[x.b];
    if (x.c != MC_NONE) x.c = to[x.c];
    if (x.guard != MC_NONE) x.guard = to[x.guard];
    return x;
}

/* The real that imm of MC_CONST_F and the scratch of an evaluation hold by its bits; and the bits of a real. */
static inline double mc_real(int64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline int64_t mc_real_bits(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

typedef struct mc_code {
    const mc_node *nodes;
    uint32_t count;
} mc_code;

/* --- what code reads --------------------------------------------------------------------------------------------- */

/* An array, bound to one sequence. With one dimension, element i is at data[i - first], for first <= i < first + count.
 * With two, `first` and `count` are about rows, and element (i, j) is at data[(i - first) * columns + j -
 * column_first]. With three there are `planes` of such rows, numbered from 0. */
typedef enum mc_width { MC_I8 = 1, MC_I16 = 2, MC_I32 = 4, MC_I64 = 8, MC_F64 = 9 } mc_width;
typedef struct mc_array {
    const void *data;
    int64_t first, count;
    int64_t columns; /* 0: of one dimension */
    mc_width width;
    uint32_t planes; /* 0: of one or two dimensions */
    int64_t column_first;
} mc_array;

static inline uint32_t mc_array_dims(const mc_array *a) { return a->planes ? 3 : a->columns ? 2 : 1; }
static inline uint64_t mc_array_total(const mc_array *a) {
    return (uint64_t)a->count * (uint64_t)(a->columns ? a->columns : 1) * (a->planes ? a->planes : 1);
}

/* A union of slices: which keys a row may see. Record i stands for the rows from rows[i].q to before rows[i + 1].q.
 * Each of them sees `count` bands, of which the first is bands[first]. Bands are disjoint and in order in every
 * row. The last record has no bands: it ends the table. */
typedef struct mc_band {
    int64_t lo, hi;             /* row q: lo + lo_slope q <= k < hi + hi_slope q; never empty on its rows */
    int32_t lo_slope, hi_slope; /* 0 or 1 */
} mc_band;
typedef struct mc_band_rows {
    int64_t q;
    uint32_t first, count;
} mc_band_rows;
typedef struct mc_bands {
    const mc_band_rows *rows;
    const mc_band *bands;
    uint32_t row_count, band_count;
} mc_bands;

/* What code sees of a sequence, beside q, k and h. Its keys are at positions [0, n) and its queries at [q_first,
 * q_first + queries). Usually a sequence attends to itself, and the two ranges are the same. */
typedef struct mc_env {
    int64_t n, q_first, queries;
    const mc_array *arrays;
    const mc_bands *bands;
} mc_env;
#define MC_LENGTH(length) (&(const mc_env){.n = (length), .queries = (length)}) /* without arrays and bands */

/* What environments will hold; code is checked against it. */
typedef struct mc_decls {
    const mc_array *arrays; /* only columns, planes and width are read */
    uint32_t array_count, band_count;
} mc_decls;

/* What the answer depends on. MC_USES_DATA: code reads some array, whose values may differ between sequences. */
enum { MC_USES_Q = 1, MC_USES_K = 2, MC_USES_N = 4, MC_USES_H = 8, MC_USES_DATA = 16, MC_USES_BANDS = 32,
       MC_USES_S = 64 };
unsigned mc_uses(mc_code code);

/* The code for one head: h is replaced by its number. Nodes keep their numbers; `out` has room for code.count nodes. */
mc_code mc_of_head(mc_code code, int64_t head, mc_node *out);

/* Checks code that comes from outside:
 *   - there are 1 to MC_MAX_NODES nodes, and their operations are known;
 *   - operands are earlier nodes of the right type, and the answer has the right type;
 *   - guards are earlier bools, on nodes that can fault;
 *   - arrays and bands are declared (`decls` is NULL if there are none).
 * Returns NULL if all is right. Otherwise it returns a static text that says what is wrong, and *node is the place. */
typedef enum mc_kind { MC_MASK, MC_SCORE } mc_kind;
const char *mc_check(mc_code code, mc_kind kind, const mc_decls *decls, uint32_t *node);

/* --- evaluation, total meaning --------------------------------------------------------------------------------- */

/* One element. `scratch` has code.count int64. */
bool mc_eval(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch);

/* A row of elements: out[i] is 1 if (q, k0 + i) is allowed, else 0, for i < width <= MC_ROW. `scratch` has
 * mc_row_scratch(code) int64. Values that do not depend on k are computed once. */
enum { MC_ROW = 128 };
size_t mc_row_scratch(mc_code code);
void mc_eval_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h, int64_t *scratch,
                 uint8_t *out);

/* The elements (q + i, k + j) in head h, for i < rows and j < keys. */
typedef struct mc_tile {
    int64_t q, k, h;
    uint32_t rows, keys;
} mc_tile;

/* Counts the elements that a mask allows in a tile of at most MC_ROW keys. `scratch` as for mc_eval_row. Values that do
 * not depend on q are computed once for all rows. */
uint64_t mc_count_tile(mc_code code, const mc_env *env, const mc_tile *tile, int64_t *scratch);

/* A score at one element, in double. `scratch` has code.count int64. */
double mc_eval_score(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, double s, int64_t *scratch);
/* A row of a score, in float: out[i] is for (q, k0 + i) and the logit s[i]. `out` may be `s`. `scratch` as for
 * mc_eval_row. Every machine gives the same bits. */
void mc_eval_score_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h,
                       const float *s, int64_t *scratch, float *out);
/* A tile of a score, of any size, times `factor`: out[i * ld + j] is for row i, key j and the logit s[i * ld + j].
 * Values that depend on neither q nor s are computed once for all rows. */
void mc_eval_score_tile(mc_code code, const mc_env *env, const mc_tile *tile, const float *s, size_t ld, float factor,
                        int64_t *scratch, float *out);

/* Finds which element of its array a load reads, for each element of a tile. The load is the last node of the code, and
 * its array has less than MC_NONE elements. out[i * keys + j] is the place in the array's data of the element that row
 * i reads for key j, or MC_NONE if the array has no such element. `s`, `ld` and `scratch` as for mc_eval_score_tile. */
void mc_load_places(mc_code code, const mc_env *env, const mc_tile *tile, const float *s, size_t ld, int64_t *scratch,
                    uint32_t *out);

/* --- evaluation, faulting meaning ------------------------------------------------------------------------------- */

typedef enum mc_fault { MC_OK, MC_OVERFLOW, MC_DIV_ZERO, MC_INDEX } mc_fault;
/* One element. If a node faults, returns the fault, and *node is the first node in order that does. */
mc_fault mc_eval_checked(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch, bool *out,
                         uint32_t *node);

/* Does an operation read integers, or reals, of an array? It has as many operands as the array has dimensions. */
static inline bool mc_loads_int(uint32_t op) { return op == MC_LOAD || op == MC_LOAD2 || op == MC_LOAD3; }
static inline bool mc_loads_real(uint32_t op) { return op == MC_LOAD_F || op == MC_LOAD2_F || op == MC_LOAD3_F; }

bool mc_commutes(mc_op op);    /* the order of its operands does not matter */
char mc_op_type(uint32_t op);  /* 'i', 'b' or 'f' */
bool mc_op_faults(uint32_t op);
const char *mc_op_name(uint32_t op); /* "add", ... ; "?" for an unknown one */

/* The integer at place `at` of an array's data; 0 for an array of reals. */
static inline int64_t mc_int_at(const mc_array *a, uint64_t at) {
    switch (a->width) {
    case MC_I8: return ((const int8_t *)a->data)[at];
    case MC_I16: return ((const int16_t *)a->data)[at];
    case MC_I32: return ((const int32_t *)a->data)[at];
    case MC_I64: return ((const int64_t *)a->data)[at];
    default: return 0;
    }
}
/* The place in the data of element i, (i, j) or (i, j, l), as the array has dimensions; false if it has no such
 * element. */
static inline bool mc_place(const mc_array *a, int64_t i, int64_t j, int64_t l, uint64_t *out_at) {
    uint64_t above = 0;
    if (a->planes) {
        if (i < 0 || i >= a->planes) return false;
        above = (uint64_t)i * (uint64_t)a->count;
        i = j;
        j = l;
    }
    uint64_t at = (uint64_t)i - (uint64_t)a->first;
    if (i < a->first || at >= (uint64_t)a->count) return false;
    at += above;
    if (a->columns) {
        const uint64_t column = (uint64_t)j - (uint64_t)a->column_first;
        if (j < a->column_first || column >= (uint64_t)a->columns) return false;
        at = at * (uint64_t)a->columns + column;
    }
    *out_at = at;
    return true;
}
static inline int64_t mc_load(const mc_array *a, int64_t i, int64_t j, int64_t l) {
    uint64_t at;
    return mc_place(a, i, j, l, &at) ? mc_int_at(a, at) : 0;
}
static inline double mc_load_real(const mc_array *a, int64_t i, int64_t j, int64_t l) {
    uint64_t at;
    return mc_place(a, i, j, l, &at) && a->width == MC_F64 ? ((const double *)a->data)[at] : 0;
}
/* The bands of row q: the record that holds it, or NULL where no record does. */
const mc_band_rows *mc_band_row(const mc_bands *bands, int64_t q);
bool mc_in_bands(const mc_bands *bands, int64_t q, int64_t k);

/* --- what integer and bool operations mean ------------------------------------------------------------------------ */

static inline int64_t mc_wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t mc_wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static inline int64_t mc_wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static inline int64_t mc_wrap_neg(int64_t a) { return (int64_t)(0 - (uint64_t)a); }
static inline int64_t mc_wrap_abs(int64_t a) { return a < 0 ? mc_wrap_neg(a) : a; }
/* Floored division and its remainder, total meaning. */
static inline int64_t mc_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    int64_t quotient = a / b, rest = a % b;
    return quotient - (rest != 0 && (rest < 0) != (b < 0));
}
static inline int64_t mc_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* The value of an operation on x and y, in the total meaning. Operations of one operand do not use y. All evaluators
 * are made from these tables: of one element (code.c), of rows (row.c), of constants (build.c), and those of
 * compiler/box. */
#define MC_INT_VALUES(X) /* an int of ints */                                                                          \
    X(ADD, mc_wrap_add(x, y))                                                                                          \
    X(SUB, mc_wrap_sub(x, y))                                                                                          \
    X(MUL, mc_wrap_mul(x, y))                                                                                          \
    X(DIV, mc_div(x, y))                                                                                               \
    X(MOD, mc_mod(x, y))                                                                                               \
    X(NEG, mc_wrap_neg(x))                                                                                             \
    X(ABS, mc_wrap_abs(x))                                                                                             \
    X(MIN, x < y ? x : y)                                                                                              \
    X(MAX, x > y ? x : y)
#define MC_TEST_VALUES(X) /* a bool of ints */                                                                         \
    X(EQ, x == y)                                                                                                      \
    X(NE, x != y)                                                                                                      \
    X(LT, x < y)                                                                                                       \
    X(LE, x <= y)
#define MC_BOOL_VALUES(X) /* a bool of bools, which are 0 or 1 */                                                      \
    X(NOT, x ^ 1)                                                                                                      \
    X(AND, x & y)                                                                                                      \
    X(OR, x | y)                                                                                                       \
    X(IFF, x ^ y ^ 1)

/* The value of an operation; false if it stands in none of these tables. */
bool mc_value(uint32_t op, int64_t x, int64_t y, int64_t *out);
/* Does such an operation fault on x and y, if its guard is true? */
mc_fault mc_value_fault(uint32_t op, int64_t x, int64_t y);

/* --- building ---------------------------------------------------------------------------------------------------- */

/* A builder makes code node by node. It folds constants, but none that would fault; it simplifies, but never so that a
 * fault that can be reached is lost; and it shares equal nodes (same op, operands, imm and guard). `place` is a number
 * that the caller attaches to a new node, such as an offset in the source. It is kept for messages and is no part of
 * the code. */
typedef struct mc_builder mc_builder;
mc_builder *mc_builder_new(void);                      /* NULL when out of memory */
void mc_builder_free(mc_builder *b);
/* Returns the node's number; MC_NONE when out of memory or beyond MC_MAX_NODES, and then mc_builder_failed is true. The
 * guard is dropped if the operation cannot fault or the guard is always true. */
uint32_t mc_emit(mc_builder *b, mc_op op, uint32_t a, uint32_t b_, uint32_t c, int64_t imm, uint32_t guard,
                 uint32_t place);
/* Emits all nodes of a code into the builder, with q_op in place of Q and k_op in place of K; both are MC_Q or MC_K.
 * For example, with (MC_K, MC_Q) a mask says whether k sees q, and with (MC_Q, MC_Q) whether q sees itself. Returns the
 * node of the answer, or MC_NONE as mc_emit does. */
uint32_t mc_emit_renamed(mc_builder *b, mc_code code, mc_op q_op, mc_op k_op);
bool mc_builder_failed(const mc_builder *b);
bool mc_builder_full(const mc_builder *b); /* it failed because there would be more nodes than code may have */
const mc_node *mc_builder_nodes(const mc_builder *b, uint32_t *count);
uint32_t mc_builder_place(const mc_builder *b, uint32_t node);
bool mc_builder_loose(const mc_builder *b, uint32_t node); /* it may fault, or something that it needs */
bool mc_builder_real(const mc_builder *b, uint32_t node);  /* it is a real, or depends on one */
/* Extracts the nodes that `root` needs, guards included, in their order but renumbered, with the root last. A node that
 * neither the root nor a guard of a kept node reaches is left out, even if it may fault. *nodes and *places are
 * malloc'd; the caller frees them. False when out of memory. */
bool mc_extract(const mc_builder *b, uint32_t root, mc_node **nodes, uint32_t **places, uint32_t *count);

/* Emits the derivative of the real node `root` by the real node `by`, which is s or an element of a table, into the
 * same builder. Returns false if there is no derivative, because node *out_bad is a floor() of something that depends
 * on `by`; with `flat`, floor() is taken as constant instead. Also returns false if the builder failed; then *out_bad
 * is MC_NONE. Cost: O(nodes). */
bool mc_derive(mc_builder *b, uint32_t root, uint32_t by, bool flat, uint32_t *out_slope, uint32_t *out_bad);
/* The derivative of a score by s, as code of its own, in malloc'd nodes. The same score always gives the same code, so
 * that a plan's slope can be checked against its score. The result is MC_NO_DERIVATIVE if node *out_bad of the score is
 * a floor() of something that depends on s and `flat` is false, and MC_TOO_LONG if the derivative has more than
 * MC_MAX_NODES nodes. */
typedef enum mc_derived { MC_DERIVED, MC_NO_DERIVATIVE, MC_TOO_LONG, MC_NO_MEMORY } mc_derived;
mc_derived mc_slope(mc_code score, bool flat, mc_node **out_nodes, uint32_t *out_count, uint32_t *out_bad);
#endif
