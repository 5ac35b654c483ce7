/* maskcode.c: mask code: check it, and evaluate it at one element or along a row.
 *
 * Requires: evaluation takes code that mc_check accepts, and scratch of the size the header names.
 * Gives: the total meaning (mc_eval, mc_eval_row) and the faulting meaning (mc_eval_checked), see maskcode.h.
 * Cost: mc_check, mc_eval, mc_eval_checked O(nodes); mc_eval_row O(nodes + width * nodes that depend on k), in loops
 *       over plain arrays that compilers vectorise.
 * Units: positions in tokens from the start of the sequence.
 */
#include "maskcode.h"

#include <math.h>
#include <string.h>

typedef struct op_info {
    const char *name;
    uint8_t arity;
    char type;
    char args[4];
    uint8_t faults;
} op_info;

static const op_info OPS[MC_OP_COUNT] = {
#define X(id, name, arity, type, args, faults) [MC_##id] = {name, arity, type, args, faults},
    MC_OPS(X)
#undef X
};

static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wrap_sub(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t wrap_neg(int64_t a) { return (int64_t)(0 - (uint64_t)a); }
static int64_t wrap_abs(int64_t a) { return a < 0 ? wrap_neg(a) : a; }

static double real(int64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* --- arrays and bands --------------------------------------------------------------------------------------------- */

const mc_band_rows *mc_band_row(const mc_bands *bands, int64_t q) {
    uint32_t lo = 0, hi = bands->row_count; /* the last record that begins at or before q is in [lo - 1, hi) */
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (bands->rows[middle].q <= q) lo = middle + 1;
        else hi = middle;
    }
    return lo ? &bands->rows[lo - 1] : NULL;
}

/* The first band of row q that ends after key k, or the end of them. */
static const mc_band *band_after(const mc_bands *bands, const mc_band_rows *row, int64_t q, int64_t k) {
    const mc_band *first = bands->bands + row->first;
    uint32_t lo = 0, hi = row->count;
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (wrap_add(first[middle].hi, first[middle].hi_slope ? q : 0) <= k) lo = middle + 1;
        else hi = middle;
    }
    return first + lo;
}

bool mc_in_bands(const mc_bands *bands, int64_t q, int64_t k) {
    const mc_band_rows *row = mc_band_row(bands, q);
    if (!row || !row->count) return false;
    const mc_band *b = band_after(bands, row, q, k);
    return b < bands->bands + row->first + row->count && k >= wrap_add(b->lo, b->lo_slope ? q : 0);
}

/* Keys k0, k0 + 1, ... of one row; where the row is sound, the bands from the first key on, one after the other. */
static void bands_row(const mc_bands *bands, int64_t q, int64_t k0, uint32_t width, uint8_t *restrict to) {
    memset(to, 0, width);
    const mc_band_rows *row = mc_band_row(bands, q);
    if (!row || !row->count) return;
    const mc_band *b = band_after(bands, row, q, k0), *end = bands->bands + row->first + row->count;
    for (uint64_t done = 0; b < end && done < width; b++) {
        int64_t lo = wrap_add(b->lo, b->lo_slope ? q : 0), hi = wrap_add(b->hi, b->hi_slope ? q : 0);
        uint64_t first = lo > k0 ? (uint64_t)lo - (uint64_t)k0 : 0, last = hi > k0 ? (uint64_t)hi - (uint64_t)k0 : 0;
        if (first >= width) return;
        if (first < done) first = done;
        if (last > width) last = width;
        if (last > first) memset(to + first, 1, (size_t)(last - first));
        if (last > done) done = last;
    }
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

typedef struct place {
    int64_t q, k, h;
    double s;
} place;

/* One node from the values of earlier ones, total meaning; reals by their bits. */
static int64_t eval_node(const mc_node *x, const mc_env *env, const place *at, const int64_t *v) {
    switch ((mc_op)x->op) {
    case MC_CONST_I:
    case MC_CONST_B: return x->imm;
    case MC_CONST_F: return x->imm;
    case MC_Q: return at->q;
    case MC_K: return at->k;
    case MC_N: return env->n;
    case MC_H: return at->h;
    case MC_S: return bits_of(at->s);
    case MC_ADD: return wrap_add(v[x->a], v[x->b]);
    case MC_SUB: return wrap_sub(v[x->a], v[x->b]);
    case MC_MUL: return wrap_mul(v[x->a], v[x->b]);
    case MC_DIV: return mc_div(v[x->a], v[x->b]);
    case MC_MOD: return mc_mod(v[x->a], v[x->b]);
    case MC_NEG: return wrap_neg(v[x->a]);
    case MC_ABS: return wrap_abs(v[x->a]);
    case MC_MIN: return v[x->a] < v[x->b] ? v[x->a] : v[x->b];
    case MC_MAX: return v[x->a] > v[x->b] ? v[x->a] : v[x->b];
    case MC_IF_I:
    case MC_IF_B:
    case MC_IF_F: return v[x->a] ? v[x->b] : v[x->c];
    case MC_LOAD: return mc_load(&env->arrays[x->imm], v[x->a], 0);
    case MC_LOAD2: return mc_load(&env->arrays[x->imm], v[x->a], v[x->b]);
    case MC_LOAD_F: return bits_of(mc_load_real(&env->arrays[x->imm], v[x->a], 0));
    case MC_LOAD2_F: return bits_of(mc_load_real(&env->arrays[x->imm], v[x->a], v[x->b]));
    case MC_BANDS: return mc_in_bands(&env->bands[x->imm], v[x->a], v[x->b]);
    case MC_EQ: return v[x->a] == v[x->b];
    case MC_NE: return v[x->a] != v[x->b];
    case MC_LT: return v[x->a] < v[x->b];
    case MC_LE: return v[x->a] <= v[x->b];
    case MC_NOT: return !v[x->a];
    case MC_AND: return v[x->a] & v[x->b];
    case MC_OR: return v[x->a] | v[x->b];
    case MC_IFF: return v[x->a] == v[x->b];
    case MC_LT_F: return real(v[x->a]) < real(v[x->b]);
    case MC_LE_F: return real(v[x->a]) <= real(v[x->b]);
    case MC_EQ_F: return real(v[x->a]) == real(v[x->b]);
    case MC_NE_F: return real(v[x->a]) != real(v[x->b]);
    case MC_TO_F: return bits_of((double)v[x->a]);
    case MC_ADD_F: return bits_of(real(v[x->a]) + real(v[x->b]));
    case MC_SUB_F: return bits_of(real(v[x->a]) - real(v[x->b]));
    case MC_MUL_F: return bits_of(real(v[x->a]) * real(v[x->b]));
    case MC_DIV_F: return bits_of(real(v[x->a]) / real(v[x->b]));
    case MC_NEG_F: return bits_of(-real(v[x->a]));
    case MC_ABS_F: return bits_of(fabs(real(v[x->a])));
    case MC_MIN_F: return real(v[x->b]) < real(v[x->a]) ? v[x->b] : v[x->a];
    case MC_MAX_F: return real(v[x->b]) > real(v[x->a]) ? v[x->b] : v[x->a];
    case MC_FLOOR_F: return bits_of(floor(real(v[x->a])));
    case MC_SQRT_F: return bits_of(sqrt(real(v[x->a])));
    case MC_EXP_F: return bits_of(exp(real(v[x->a])));
    case MC_EXP2_F: return bits_of(exp2(real(v[x->a])));
    case MC_LOG_F: return bits_of(log(real(v[x->a])));
    case MC_LOG2_F: return bits_of(log2(real(v[x->a])));
    case MC_TANH_F: return bits_of(tanh(real(v[x->a])));
    case MC_OP_COUNT: break;
    }
    return 0;
}

/* Would this node fault here, were its guard true? */
static mc_fault node_faults(const mc_node *x, const mc_env *env, const int64_t *v) {
    int64_t r;
    uint64_t at;
    switch ((mc_op)x->op) {
    case MC_ADD: return __builtin_add_overflow(v[x->a], v[x->b], &r) ? MC_OVERFLOW : MC_OK;
    case MC_SUB: return __builtin_sub_overflow(v[x->a], v[x->b], &r) ? MC_OVERFLOW : MC_OK;
    case MC_MUL: return __builtin_mul_overflow(v[x->a], v[x->b], &r) ? MC_OVERFLOW : MC_OK;
    case MC_DIV:
        if (v[x->b] == 0) return MC_DIV_ZERO;
        return v[x->b] == -1 && v[x->a] == INT64_MIN ? MC_OVERFLOW : MC_OK;
    case MC_MOD: return v[x->b] == 0 ? MC_DIV_ZERO : MC_OK;
    case MC_NEG:
    case MC_ABS: return v[x->a] == INT64_MIN ? MC_OVERFLOW : MC_OK;
    case MC_LOAD:
    case MC_LOAD_F: return mc_place(&env->arrays[x->imm], v[x->a], 0, &at) ? MC_OK : MC_INDEX;
    case MC_LOAD2:
    case MC_LOAD2_F: return mc_place(&env->arrays[x->imm], v[x->a], v[x->b], &at) ? MC_OK : MC_INDEX;
    default: return MC_OK;
    }
}

const char *mc_op_name(uint32_t op) { return op < MC_OP_COUNT ? OPS[op].name : "?"; }
char mc_op_type(uint32_t op) { return op < MC_OP_COUNT ? OPS[op].type : '?'; }
bool mc_op_faults(uint32_t op) { return op < MC_OP_COUNT && OPS[op].faults; }

unsigned mc_uses(mc_code code) {
    unsigned uses = 0;
    for (uint32_t i = 0; i < code.count; i++) {
        switch (code.nodes[i].op) {
        case MC_Q: uses |= MC_USES_Q; break;
        case MC_K: uses |= MC_USES_K; break;
        case MC_N: uses |= MC_USES_N; break;
        case MC_H: uses |= MC_USES_H; break;
        case MC_S: uses |= MC_USES_S; break;
        case MC_LOAD:
        case MC_LOAD2:
        case MC_LOAD_F:
        case MC_LOAD2_F: uses |= MC_USES_DATA; break;
        case MC_BANDS: uses |= MC_USES_BANDS; break;
        default: break;
        }
    }
    return uses;
}

/* Is the constant of a node what its operation needs? Arrays and bands by number, bools, finite reals. */
static const char *check_constant(const mc_node *x, const mc_decls *decls) {
    const uint64_t imm = (uint64_t)x->imm;
    switch ((mc_op)x->op) {
    case MC_CONST_I: return NULL;
    case MC_CONST_B: return imm > 1 ? "a bool constant that is neither 0 nor 1" : NULL;
    case MC_CONST_F: return isfinite(real(x->imm)) ? NULL : "a real constant that is not finite";
    case MC_BANDS: return !decls || imm >= decls->band_count ? "bands that are not there" : NULL;
    case MC_LOAD: case MC_LOAD2: case MC_LOAD_F: case MC_LOAD2_F: {
        if (!decls || imm >= decls->array_count) return "an array that is not there";
        const mc_array *a = &decls->arrays[imm];
        if ((a->width == MC_F64) != (OPS[x->op].type == 'f')) return "an array of another type";
        if ((a->columns != 0) != (OPS[x->op].arity == 2)) return "an array of other dimensions";
        return NULL;
    }
    default: return imm ? "a constant where there can be none" : NULL;
    }
}

const char *mc_check(mc_code code, mc_kind kind, const mc_decls *decls, uint32_t *node) {
    uint32_t ignored;
    if (!node) node = &ignored;
    *node = 0;
    if (code.count == 0) return "mask code is empty";
    if (code.count > MC_MAX_NODES) return "mask code has too many nodes";
    for (uint32_t i = 0; i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        *node = i;
        if (x->op >= MC_OP_COUNT) return "unknown operation";
        const op_info *op = &OPS[x->op];
        if (kind == MC_MASK && (op->type == 'f' || (op->arity && op->args[0] == 'f'))) return "a real in a mask";
        const uint32_t operands[3] = {x->a, x->b, x->c};
        for (unsigned j = 0; j < 3; j++) {
            if (j >= op->arity) {
                if (operands[j] != MC_NONE) return "an operand too many";
                continue;
            }
            if (operands[j] >= i) return "an operand that is not an earlier node";
            if (OPS[code.nodes[operands[j]].op].type != op->args[j]) return "an operand of the wrong type";
        }
        if (x->guard != MC_NONE) {
            if (!op->faults) return "a guard on an operation that cannot fault";
            if (x->guard >= i) return "a guard that is not an earlier node";
            if (OPS[code.nodes[x->guard].op].type != 'b') return "a guard that is not bool";
        }
        if (x->pad != 0) return "padding that is not zero";
        const char *wrong = check_constant(x, decls);
        if (wrong) return wrong;
    }
    char answer = OPS[code.nodes[code.count - 1].op].type;
    if (kind == MC_MASK && answer != 'b') return "the answer is not bool";
    if (kind == MC_SCORE && answer != 'f') return "the answer is not real";
    return NULL;
}

bool mc_eval(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch) {
    const place at = {q, k, h, 0};
    for (uint32_t i = 0; i < code.count; i++) scratch[i] = eval_node(&code.nodes[i], env, &at, scratch);
    return scratch[code.count - 1] != 0;
}

double mc_eval_score(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, double s, int64_t *scratch) {
    const place at = {q, k, h, s};
    for (uint32_t i = 0; i < code.count; i++) scratch[i] = eval_node(&code.nodes[i], env, &at, scratch);
    return real(scratch[code.count - 1]);
}

mc_fault mc_eval_checked(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch, bool *out,
                         uint32_t *node) {
    const place at = {q, k, h, 0};
    for (uint32_t i = 0; i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        if (OPS[x->op].faults && (x->guard == MC_NONE || scratch[x->guard])) {
            mc_fault fault = node_faults(x, env, scratch);
            if (fault != MC_OK) {
                if (node) *node = i;
                return fault;
            }
        }
        scratch[i] = eval_node(x, env, &at, scratch);
    }
    if (out) *out = scratch[code.count - 1] != 0;
    return MC_OK;
}

/* --- rows ----------------------------------------------------------------------------------------------------------
 * scratch = [one word per node][flags][spare][vectors]. A node that depends on k or s has a vector (MC_ROW int64 for an
 * int, MC_ROW floats for a real, MC_ROW bytes for a bool) and its word is the vector's place; any other node's word is
 * its value. */

enum { BOOL_WORDS = MC_ROW / 8, REAL_WORDS = MC_ROW / 2 };

static size_t vector_words(unsigned op) {
    return OPS[op].type == 'i' ? MC_ROW : OPS[op].type == 'f' ? REAL_WORDS : BOOL_WORDS;
}

static bool node_varies(const mc_node *x, const uint8_t *varies) {
    if (x->op == MC_K || x->op == MC_S) return true;
    unsigned arity = OPS[x->op].arity;
    return (arity > 0 && varies[x->a]) || (arity > 1 && varies[x->b]) || (arity > 2 && varies[x->c]);
}

size_t mc_row_scratch(mc_code code) {
    /* values, flags (bytes, rounded up), two int vectors for spread scalars, one vector per node at worst */
    size_t words = code.count + (code.count + 7) / 8 + 3 * (size_t)MC_ROW;
    for (uint32_t i = 0; i < code.count; i++) words += vector_words(code.nodes[i].op);
    return words;
}

/* An int operand as a vector: its own, or its scalar spread into `spare`. */
static const int64_t *int_vector(uint32_t i, const uint8_t *varies, const int64_t *scratch, uint32_t width,
                                 int64_t *spare) {
    if (varies[i]) return scratch + scratch[i];
    for (uint32_t j = 0; j < width; j++) spare[j] = scratch[i];
    return spare;
}

static const uint8_t *bool_vector(uint32_t i, const uint8_t *varies, const int64_t *scratch, uint32_t width,
                                  int64_t *spare) {
    if (varies[i]) return (const uint8_t *)(scratch + scratch[i]);
    memset(spare, (int)scratch[i], width);
    return (const uint8_t *)spare;
}

static const float *real_vector(uint32_t i, const uint8_t *varies, const int64_t *scratch, uint32_t width,
                                int64_t *spare) {
    if (varies[i]) return (const float *)(scratch + scratch[i]);
    float *to = (float *)spare, value = (float)real(scratch[i]);
    for (uint32_t j = 0; j < width; j++) to[j] = value;
    return to;
}

/* x / b and x % b for one b: by shifts for powers of two, in 32 bits where everything fits. */
static void div_row(const int64_t *restrict x, int64_t b, uint32_t width, bool rest, int64_t *restrict out) {
    if (b > 0 && (b & (b - 1)) == 0) {
        int shift = __builtin_ctzll((uint64_t)b);
        if (rest)
            for (uint32_t j = 0; j < width; j++) out[j] = x[j] & (b - 1);
        else
            for (uint32_t j = 0; j < width; j++) out[j] = x[j] >> shift;
        return;
    }
    uint64_t all = b > 0 ? (uint64_t)b : UINT64_MAX;
    for (uint32_t j = 0; j < width; j++) all |= (uint64_t)x[j];
    if (all <= UINT32_MAX) {
        uint32_t d = (uint32_t)b;
        if (rest)
            for (uint32_t j = 0; j < width; j++) out[j] = (uint32_t)x[j] % d;
        else
            for (uint32_t j = 0; j < width; j++) out[j] = (uint32_t)x[j] / d;
        return;
    }
    if (rest)
        for (uint32_t j = 0; j < width; j++) out[j] = mc_mod(x[j], b);
    else
        for (uint32_t j = 0; j < width; j++) out[j] = mc_div(x[j], b);
}

#define INT_ROW(expression)                                                                                            \
    for (uint32_t j = 0; j < width; j++) {                                                                             \
        int64_t u = x[j], w = y[j];                                                                                    \
        to[j] = (expression);                                                                                          \
    }
#define BOOL_ROW(expression)                                                                                           \
    for (uint32_t j = 0; j < width; j++) to[j] = (uint8_t)(expression);

static void int_row(const mc_node *node, const mc_env *env, int64_t k0, uint32_t width, const uint8_t *varies,
                    const int64_t *scratch, int64_t *spare, int64_t *restrict to) {
    if (node->op == MC_K) {
        for (uint32_t j = 0; j < width; j++) to[j] = wrap_add(k0, j);
        return;
    }
    if (node->op == MC_IF_I) {
        const uint8_t *restrict p = bool_vector(node->a, varies, scratch, width, spare + 2 * MC_ROW);
        const int64_t *restrict x = int_vector(node->b, varies, scratch, width, spare);
        const int64_t *restrict y = int_vector(node->c, varies, scratch, width, spare + MC_ROW);
        for (uint32_t j = 0; j < width; j++) to[j] = p[j] ? x[j] : y[j];
        return;
    }
    const int64_t *restrict x = int_vector(node->a, varies, scratch, width, spare);
    if ((node->op == MC_DIV || node->op == MC_MOD) && !varies[node->b]) {
        div_row(x, scratch[node->b], width, node->op == MC_MOD, to);
        return;
    }
    if (node->op == MC_NEG || node->op == MC_ABS) {
        bool negate = node->op == MC_NEG;
        for (uint32_t j = 0; j < width; j++) to[j] = negate || x[j] < 0 ? wrap_neg(x[j]) : x[j];
        return;
    }
    if (node->op == MC_LOAD) {
        for (uint32_t j = 0; j < width; j++) to[j] = mc_load(&env->arrays[node->imm], x[j], 0);
        return;
    }
    const int64_t *restrict y = int_vector(node->b, varies, scratch, width, spare + MC_ROW);
    switch (node->op) {
    case MC_LOAD2: INT_ROW(mc_load(&env->arrays[node->imm], u, w)) break;
    case MC_ADD: INT_ROW(wrap_add(u, w)) break;
    case MC_SUB: INT_ROW(wrap_sub(u, w)) break;
    case MC_MUL: INT_ROW(wrap_mul(u, w)) break;
    case MC_DIV: INT_ROW(mc_div(u, w)) break;
    case MC_MOD: INT_ROW(mc_mod(u, w)) break;
    case MC_MIN: INT_ROW(u < w ? u : w) break;
    case MC_MAX: INT_ROW(u > w ? u : w) break;
    default: break;
    }
}

static void bool_row(const mc_node *node, const mc_env *env, uint32_t width, const uint8_t *varies,
                     const int64_t *scratch, int64_t *spare, uint8_t *restrict to) {
    if (OPS[node->op].args[0] == 'f') {
        const float *restrict x = real_vector(node->a, varies, scratch, width, spare);
        const float *restrict y = real_vector(node->b, varies, scratch, width, spare + MC_ROW);
        switch (node->op) {
        case MC_LT_F: BOOL_ROW(x[j] < y[j]) break;
        case MC_LE_F: BOOL_ROW(x[j] <= y[j]) break;
        case MC_EQ_F: BOOL_ROW(x[j] == y[j]) break;
        default: BOOL_ROW(x[j] != y[j]) break;
        }
        return;
    }
    if (node->op == MC_BANDS && !varies[node->a]) {
        const int64_t *restrict y = int_vector(node->b, varies, scratch, width, spare);
        bool run = width > 0;
        for (uint32_t j = 1; j < width; j++) run &= y[j] == wrap_add(y[0], j);
        if (run) bands_row(&env->bands[node->imm], scratch[node->a], y[0], width, to);
        else BOOL_ROW(mc_in_bands(&env->bands[node->imm], scratch[node->a], y[j]))
        return;
    }
    if (OPS[node->op].args[0] == 'i') {
        const int64_t *restrict x = int_vector(node->a, varies, scratch, width, spare);
        const int64_t *restrict y = int_vector(node->b, varies, scratch, width, spare + MC_ROW);
        switch (node->op) {
        case MC_EQ: BOOL_ROW(x[j] == y[j]) break;
        case MC_NE: BOOL_ROW(x[j] != y[j]) break;
        case MC_LT: BOOL_ROW(x[j] < y[j]) break;
        case MC_LE: BOOL_ROW(x[j] <= y[j]) break;
        case MC_BANDS: BOOL_ROW(mc_in_bands(&env->bands[node->imm], x[j], y[j])) break;
        default: break;
        }
        return;
    }
    const uint8_t *restrict x = bool_vector(node->a, varies, scratch, width, spare);
    if (node->op == MC_NOT) {
        BOOL_ROW(x[j] ^ 1)
        return;
    }
    const uint8_t *restrict y = bool_vector(node->b, varies, scratch, width, spare + MC_ROW);
    if (node->op == MC_IF_B) {
        const uint8_t *restrict z = bool_vector(node->c, varies, scratch, width, spare + 2 * MC_ROW);
        BOOL_ROW((x[j] & y[j]) | ((x[j] ^ 1) & z[j]))
        return;
    }
    switch (node->op) {
    case MC_AND: BOOL_ROW(x[j] & y[j]) break;
    case MC_OR: BOOL_ROW(x[j] | y[j]) break;
    case MC_IFF: BOOL_ROW(x[j] ^ y[j] ^ 1) break;
    default: break;
    }
}

#define REAL_ROW(expression)                                                                                           \
    for (uint32_t j = 0; j < width; j++) to[j] = (expression);

static void real_row(const mc_node *node, const mc_env *env, const float *s, uint32_t width, const uint8_t *varies,
                     const int64_t *scratch, int64_t *spare, float *restrict to) {
    if (node->op == MC_S) {
        memcpy(to, s, width * sizeof *to);
        return;
    }
    if (node->op == MC_TO_F || node->op == MC_LOAD_F || node->op == MC_LOAD2_F) {
        const int64_t *restrict x = int_vector(node->a, varies, scratch, width, spare);
        if (node->op == MC_TO_F) {
            REAL_ROW((float)x[j])
            return;
        }
        const mc_array *a = &env->arrays[node->imm];
        const int64_t *restrict y =
            node->op == MC_LOAD2_F ? int_vector(node->b, varies, scratch, width, spare + MC_ROW) : x;
        REAL_ROW((float)mc_load_real(a, x[j], y[j]))
        return;
    }
    if (node->op == MC_IF_F) {
        const uint8_t *restrict p = bool_vector(node->a, varies, scratch, width, spare + 2 * MC_ROW);
        const float *restrict x = real_vector(node->b, varies, scratch, width, spare);
        const float *restrict y = real_vector(node->c, varies, scratch, width, spare + MC_ROW);
        REAL_ROW(p[j] ? x[j] : y[j])
        return;
    }
    const float *restrict x = real_vector(node->a, varies, scratch, width, spare);
    const float *restrict y = x;
    if (OPS[node->op].arity > 1) y = real_vector(node->b, varies, scratch, width, spare + MC_ROW);
    switch (node->op) {
    case MC_ADD_F: REAL_ROW(x[j] + y[j]) break;
    case MC_SUB_F: REAL_ROW(x[j] - y[j]) break;
    case MC_MUL_F: REAL_ROW(x[j] * y[j]) break;
    case MC_DIV_F: REAL_ROW(x[j] / y[j]) break;
    case MC_MIN_F: REAL_ROW(y[j] < x[j] ? y[j] : x[j]) break;
    case MC_MAX_F: REAL_ROW(y[j] > x[j] ? y[j] : x[j]) break;
    case MC_NEG_F: REAL_ROW(-x[j]) break;
    case MC_ABS_F: REAL_ROW(fabsf(x[j])) break;
    case MC_FLOOR_F: REAL_ROW(floorf(x[j])) break;
    case MC_SQRT_F: REAL_ROW(sqrtf(x[j])) break;
    case MC_EXP_F: REAL_ROW(expf(x[j])) break;
    case MC_EXP2_F: REAL_ROW(exp2f(x[j])) break;
    case MC_LOG_F: REAL_ROW(logf(x[j])) break;
    case MC_LOG2_F: REAL_ROW(log2f(x[j])) break;
    case MC_TANH_F: REAL_ROW(tanhf(x[j])) break;
    default: break;
    }
}

/* All nodes of a row; afterwards the answer's flag and word are in place. */
static const uint8_t *eval_nodes(mc_code code, const mc_env *env, const place *at, uint32_t width, const float *s,
                                 int64_t *scratch) {
    uint8_t *varies = (uint8_t *)(scratch + code.count);
    int64_t *spare = scratch + code.count + (code.count + 7) / 8;
    size_t next = (size_t)(spare - scratch) + 3 * (size_t)MC_ROW;
    for (uint32_t i = 0; i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        varies[i] = node_varies(x, varies);
        if (!varies[i]) {
            scratch[i] = eval_node(x, env, at, scratch);
            continue;
        }
        scratch[i] = (int64_t)next;
        if (OPS[x->op].type == 'i') int_row(x, env, at->k, width, varies, scratch, spare, scratch + next);
        else if (OPS[x->op].type == 'b') bool_row(x, env, width, varies, scratch, spare, (uint8_t *)(scratch + next));
        else real_row(x, env, s, width, varies, scratch, spare, (float *)(scratch + next));
        next += vector_words(x->op);
    }
    return varies;
}

void mc_eval_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h, int64_t *scratch,
                 uint8_t *out) {
    if (width > MC_ROW) width = MC_ROW;
    const place at = {q, k0, h, 0};
    const uint8_t *varies = eval_nodes(code, env, &at, width, NULL, scratch);
    uint32_t root = code.count - 1;
    if (varies[root]) memcpy(out, scratch + scratch[root], width);
    else memset(out, (int)scratch[root], width);
}

void mc_eval_score_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h, const float *s,
                       int64_t *scratch, float *out) {
    if (width > MC_ROW) width = MC_ROW;
    const place at = {q, k0, h, 0};
    const uint8_t *varies = eval_nodes(code, env, &at, width, s, scratch);
    uint32_t root = code.count - 1;
    float value = (float)real(scratch[root]);
    if (varies[root]) memcpy(out, scratch + scratch[root], width * sizeof *out);
    else
        for (uint32_t j = 0; j < width; j++) out[j] = value;
}
