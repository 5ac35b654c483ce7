/* code.h: mask code, the typed, loop-free bytecode of masks and scores.
 *
 * Code is a list of nodes in static single assignment form: node i may refer only to nodes j < i, the last node is
 * the answer: of a mask a bool, of a score a real. Integers are int64, reals are double where they are judged and float
 * in kernels. Nothing branches: `and`, `or`, `if` evaluate all operands, and whether an operand would have been reached
 * in the source is kept as a *guard* on the nodes that can fault. A mask has no real nodes.
 *
 * Code reads arrays (fields: per-token data; tables: the model's) and bands (unions of slices) of its environment, by
 * number.
 *
 * Two meanings, which agree wherever the source program does not fault:
 *   total   (executor, kernels): + - * neg abs wrap modulo 2^64; x / 0 = 0, x % 0 = 0, and INT64_MIN / -1 wraps; an
 *           element that an array does not have is 0.
 *   faulting (compiler): a node faults when it overflows, divides by zero or reads beyond an array AND its guard is
 *           true (guard MC_NONE: always). The compiler proves that no (q, k, h) in range faults, so a plan needs no
 *           checks.
 * Reals never fault: they are IEEE 754.
 *
 * Division floors, and a % b has the sign of b: a == b * (a / b) + a % b.
 */
#ifndef CODEGEN_MASK_CODE_H
#define CODEGEN_MASK_CODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_NONE UINT32_MAX
#define MC_MAX_NODES 65536u

/* name, arity, result type ('i' int64, 'b' bool, 'f' real), operand types, can fault.
 * arity counts node operands a, b, c in that order. IF: a is bool, b and c have the result's type. */
#define MC_OPS(X)                                                                                                      \
    X(CONST_I, "const", 0, 'i', "", 0)   /* imm */                                                                     \
    X(CONST_B, "bool", 0, 'b', "", 0)    /* imm 0 or 1 */                                                              \
    X(Q, "q", 0, 'i', "", 0)             /* query position in its sequence */                                          \
    X(K, "k", 0, 'i', "", 0)             /* key position */                                                            \
    X(N, "n", 0, 'i', "", 0)             /* the sequence's length */                                                   \
    X(H, "h", 0, 'i', "", 0)             /* query head */                                                              \
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
    X(LOAD, "load", 1, 'i', "i", 1)      /* element a of array imm */                                                  \
    X(LOAD2, "load2", 2, 'i', "ii", 1)   /* element (a, b) of array imm: row, column */                                \
    X(EQ, "eq", 2, 'b', "ii", 0)                                                                                       \
    X(NE, "ne", 2, 'b', "ii", 0)                                                                                       \
    X(LT, "lt", 2, 'b', "ii", 0)                                                                                       \
    X(LE, "le", 2, 'b', "ii", 0)                                                                                       \
    X(NOT, "not", 1, 'b', "b", 0)                                                                                      \
    X(AND, "and", 2, 'b', "bb", 0)                                                                                     \
    X(OR, "or", 2, 'b', "bb", 0)                                                                                       \
    X(IFF, "iff", 2, 'b', "bb", 0)       /* bool == bool */                                                            \
    X(IF_B, "selectb", 3, 'b', "bbb", 0)                                                                               \
    X(BANDS, "bands", 2, 'b', "ii", 0)   /* is (row a, key b) in a band of bands imm? */                               \
    X(LT_F, "ltf", 2, 'b', "ff", 0)      /* from here on: scores only */                                               \
    X(LE_F, "lef", 2, 'b', "ff", 0)                                                                                    \
    X(EQ_F, "eqf", 2, 'b', "ff", 0)                                                                                    \
    X(NE_F, "nef", 2, 'b', "ff", 0)                                                                                    \
    X(CONST_F, "real", 0, 'f', "", 0)    /* imm: the bits of a finite double */                                        \
    X(S, "s", 0, 'f', "", 0)             /* the scaled natural logit */                                                \
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
    X(LOAD_F, "loadf", 1, 'f', "i", 1)   /* as LOAD, of an array of reals */                                           \
    X(LOAD2_F, "load2f", 2, 'f', "ii", 1)

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

typedef struct mc_code {
    const mc_node *nodes;
    uint32_t count;
} mc_code;

/* --- what code reads --------------------------------------------------------------------------------------------- */

/* An array as it is bound to one sequence: element i, first <= i < first + count, is at data[i - first]. Of a table
 * with columns, element (i, j) is at data[i * columns + j], count counts its rows, and first is 0. */
typedef enum mc_width { MC_I8 = 1, MC_I16 = 2, MC_I32 = 4, MC_I64 = 8, MC_F64 = 9 } mc_width;
typedef struct mc_array {
    const void *data;
    int64_t first, count;
    uint32_t columns; /* 0: of one dimension */
    mc_width width;
} mc_array;

/* A union of slices: which keys a row may see. Rows from `rows[i].q` to before `rows[i + 1].q` see bands [first, first
 * + count), disjoint and in order for each of these rows; the last record ends the table and has none. */
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

/* Everything of a sequence that code sees beside q, k and h. Its keys are at positions [0, n), its queries at [q_first,
 * q_first + queries): where it attends to itself that is the same. */
typedef struct mc_env {
    int64_t n, q_first, queries;
    const mc_array *arrays;
    const mc_bands *bands;
} mc_env;
#define MC_LENGTH(length) (&(const mc_env){.n = (length), .queries = (length)}) /* without arrays and bands */

/* What an environment will hold, to check code against: the type of each array, how many bands. */
typedef struct mc_decls {
    const mc_array *arrays; /* columns and width alone count */
    uint32_t array_count, band_count;
} mc_decls;

/* What the answer depends on. MC_USES_DATA: an array of which the values may differ between sequences (any array). */
enum { MC_USES_Q = 1, MC_USES_K = 2, MC_USES_N = 4, MC_USES_H = 8, MC_USES_DATA = 16, MC_USES_BANDS = 32,
       MC_USES_S = 64 };
unsigned mc_uses(mc_code code);

/* Checks hostile code: ops known, operands earlier and of the right type, guards right, the answer a bool (a mask,
 * which has no real nodes) or a real (a score), count in 1..MC_MAX_NODES, arrays and bands declared (`decls` may be
 * NULL: none). Returns NULL if sound, else a static text that says what is wrong; *node gets the place. */
typedef enum mc_kind { MC_MASK, MC_SCORE } mc_kind;
const char *mc_check(mc_code code, mc_kind kind, const mc_decls *decls, uint32_t *node);

/* --- evaluation, total meaning --------------------------------------------------------------------------------- */

/* One element. `scratch` has code.count int64. */
bool mc_eval(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch);

/* A row of elements: allow(q, k0 + i) for i < width; out[i] is 0 or 1. width <= MC_ROW. `scratch` has
 * mc_row_scratch(code) int64; node values that do not depend on k are computed once. */
enum { MC_ROW = 128 };
size_t mc_row_scratch(mc_code code);
void mc_eval_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h, int64_t *scratch,
                 uint8_t *out);

/* How many elements of a tile a mask allows: of `rows` rows from q0 on and `keys` keys (at most MC_ROW) from k0 on.
 * `scratch` as for mc_eval_row; what does not depend on q is computed once for all rows. */
uint64_t mc_count_tile(mc_code code, const mc_env *env, int64_t q0, uint32_t rows, int64_t k0, uint32_t keys, int64_t h,
                       int64_t *scratch);

/* A score at one element, in double. `scratch` has code.count int64. */
double mc_eval_score(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, double s, int64_t *scratch);
/* A row of a score, in float: out[i] for (q, k0 + i) and s[i]; out may be s. `scratch` as for mc_eval_row. Bits do not
 * depend on the machine. */
void mc_eval_score_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h,
                       const float *s, int64_t *scratch, float *out);
/* The same for a tile of any size, times `factor`: out[i * ld + j] for (q0 + i, k0 + j) and s[i * ld + j]. What does
 * not depend on q and s is evaluated once for all rows. */
void mc_eval_score_tile(mc_code code, const mc_env *env, int64_t q0, uint32_t rows, int64_t k0, uint32_t keys,
                        int64_t h, const float *s, size_t ld, float factor, int64_t *scratch, float *out);

/* --- evaluation, faulting meaning ------------------------------------------------------------------------------- */

typedef enum mc_fault { MC_OK, MC_OVERFLOW, MC_DIV_ZERO, MC_INDEX } mc_fault;
/* One element; on a fault returns it and sets *node to the first node (in order) that faults under its guard. */
mc_fault mc_eval_checked(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch, bool *out,
                         uint32_t *node);

char mc_op_type(uint32_t op);  /* 'i', 'b' or 'f' */
bool mc_op_faults(uint32_t op);
const char *mc_op_name(uint32_t op); /* "add", ... ; "?" for an unknown one */

/* Element i of an array of integers, 0 where it has none; of one with columns, element i of its first dimension's
 * data. */
static inline int64_t mc_int_at(const mc_array *a, uint64_t at) {
    switch (a->width) {
    case MC_I8: return ((const int8_t *)a->data)[at];
    case MC_I16: return ((const int16_t *)a->data)[at];
    case MC_I32: return ((const int32_t *)a->data)[at];
    case MC_I64: return ((const int64_t *)a->data)[at];
    default: return 0;
    }
}
/* Where element i, or (i, j), lies in data; false if the array has no such element. */
static inline bool mc_place(const mc_array *a, int64_t i, int64_t j, uint64_t *out_at) {
    uint64_t at = (uint64_t)i - (uint64_t)a->first;
    if (i < a->first || at >= (uint64_t)a->count) return false;
    if (a->columns) {
        if (j < 0 || j >= a->columns) return false;
        at = at * a->columns + (uint64_t)j;
    }
    *out_at = at;
    return true;
}
static inline int64_t mc_load(const mc_array *a, int64_t i, int64_t j) {
    uint64_t at;
    return mc_place(a, i, j, &at) ? mc_int_at(a, at) : 0;
}
static inline double mc_load_real(const mc_array *a, int64_t i, int64_t j) {
    uint64_t at;
    return mc_place(a, i, j, &at) && a->width == MC_F64 ? ((const double *)a->data)[at] : 0;
}
/* The bands of row q: the record that holds it, or NULL where no record does. */
const mc_band_rows *mc_band_row(const mc_bands *bands, int64_t q);
bool mc_in_bands(const mc_bands *bands, int64_t q, int64_t k);

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

/* --- building ---------------------------------------------------------------------------------------------------- */

/* A builder that folds constants (never one that would fault), simplifies identities that cannot hide a reachable
 * fault, and shares equal nodes (same op, operands, imm and guard). `place` is an opaque number the caller attaches to
 * a new node (a source offset); it is kept beside the nodes for diagnostics and is not part of the code. */
typedef struct mc_builder mc_builder;
mc_builder *mc_builder_new(void);                      /* NULL when out of memory */
void mc_builder_free(mc_builder *b);
/* Returns the node's index, or MC_NONE when out of memory or over MC_MAX_NODES (mc_builder_failed says so). The guard
 * is ignored for ops that cannot fault, and dropped when it is constant true. */
uint32_t mc_emit(mc_builder *b, mc_op op, uint32_t a, uint32_t b_, uint32_t c, int64_t imm, uint32_t guard,
                 uint32_t place);
bool mc_builder_failed(const mc_builder *b);
const mc_node *mc_builder_nodes(const mc_builder *b, uint32_t *count);
uint32_t mc_builder_place(const mc_builder *b, uint32_t node);
bool mc_builder_loose(const mc_builder *b, uint32_t node); /* it, or something it needs, may fault */
bool mc_builder_real(const mc_builder *b, uint32_t node);  /* it is a real, or a real decides it */
/* Extracts the code that `root` needs, renumbered in the same order, root last, guards included.
 * *nodes and *places are malloc'd (caller frees). False when out of memory. A faulting node is kept only if the root or
 * a guard of a kept node reaches it. */
bool mc_extract(const mc_builder *b, uint32_t root, mc_node **nodes, uint32_t **places, uint32_t *count);
#endif
