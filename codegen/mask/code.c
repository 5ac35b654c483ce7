/* code.c: checks mask code, and evaluates it at one (q, k, h).
 *
 * Requires: to be evaluated, code must have passed mc_check, and scratch must have the size that code.h says.
 * Gives: the total meaning (mc_eval, mc_eval_score) and the faulting one (mc_eval_checked). Rows are in row.c.
 * Cost: O(nodes) an element.
 * Units: positions count tokens from the start of the sequence.
 */
#include "codegen/mask/code.h"

#include <math.h>

#include "codegen/mask/mask_parts.h"

const mc_op_info mc_ops[MC_OP_COUNT] = {
#define X(id, name, arity, type, args, faults) [MC_##id] = {name, arity, type, args, faults},
    MC_OPS(X)
#undef X
};

/* --- arrays and bands --------------------------------------------------------------------------------------------- */

const mc_band_rows *mc_band_row(const mc_bands *bands, int64_t q) {
    uint32_t lo = 0, hi = bands->row_count; /* the last record that begins at q or before it is in [lo - 1, hi) */
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (bands->rows[middle].q <= q) lo = middle + 1;
        else hi = middle;
    }
    return lo ? &bands->rows[lo - 1] : NULL;
}

bool mc_in_bands(const mc_bands *bands, int64_t q, int64_t k) {
    const mc_band_rows *row = mc_band_row(bands, q);
    if (!row || !row->count) return false;
    const mc_band *b = mc_band_after(bands, row, q, k);
    return b < bands->bands + row->first + row->count && k >= mc_wrap_add(b->lo, b->lo_slope ? q : 0);
}

/* --- integers and bools ------------------------------------------------------------------------------------------- */

bool mc_value(uint32_t op, int64_t x, int64_t y, int64_t *out) {
    switch (op) {
#define VALUE(id, value)                                                                                               \
    case MC_##id: *out = value; return true;
    MC_INT_VALUES(VALUE)
    MC_TEST_VALUES(VALUE)
    MC_BOOL_VALUES(VALUE)
#undef VALUE
    default: return false;
    }
}

mc_fault mc_value_fault(uint32_t op, int64_t x, int64_t y) {
    int64_t ignored;
    bool overflow = false;
    switch (op) {
    case MC_ADD: overflow = __builtin_add_overflow(x, y, &ignored); break;
    case MC_SUB: overflow = __builtin_sub_overflow(x, y, &ignored); break;
    case MC_MUL: overflow = __builtin_mul_overflow(x, y, &ignored); break;
    case MC_DIV:
        if (y == 0) return MC_DIV_ZERO;
        overflow = y == -1 && x == INT64_MIN;
        break;
    case MC_MOD: return y == 0 ? MC_DIV_ZERO : MC_OK;
    case MC_NEG:
    case MC_ABS: overflow = x == INT64_MIN; break;
    default: break;
    }
    return overflow ? MC_OVERFLOW : MC_OK;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* The value of one node. The function is inline and has a single switch, because tests evaluate masks pair by pair and
 * need it to be fast. */
static inline int64_t node_value(const mc_node *node, const mc_env *env, const mc_point *at, const int64_t *v) {
    switch ((mc_op)node->op) {
    case MC_CONST_I:
    case MC_CONST_B: return node->imm;
    case MC_CONST_F: return node->imm;
    case MC_Q: return at->q;
    case MC_K: return at->k;
    case MC_N: return env->n;
    case MC_H: return at->h;
    case MC_S: return mc_real_bits(at->s);
    case MC_IF_I:
    case MC_IF_B:
    case MC_IF_F: return v[node->a] ? v[node->b] : v[node->c];
    case MC_LOAD: return mc_load(&env->arrays[node->imm], v[node->a], 0, 0);
    case MC_LOAD2: return mc_load(&env->arrays[node->imm], v[node->a], v[node->b], 0);
    case MC_LOAD3: return mc_load(&env->arrays[node->imm], v[node->a], v[node->b], v[node->c]);
    case MC_LOAD_F: return mc_real_bits(mc_load_real(&env->arrays[node->imm], v[node->a], 0, 0));
    case MC_LOAD2_F: return mc_real_bits(mc_load_real(&env->arrays[node->imm], v[node->a], v[node->b], 0));
    case MC_LOAD3_F: return mc_real_bits(mc_load_real(&env->arrays[node->imm], v[node->a], v[node->b], v[node->c]));
    case MC_BANDS: return mc_in_bands(&env->bands[node->imm], v[node->a], v[node->b]);
#define VALUE(id, value)                                                                                               \
    case MC_##id: {                                                                                                    \
        int64_t x = v[node->a], y = mc_ops[MC_##id].arity == 2 ? v[node->b] : 0;                                       \
        (void)y;                                                                                                       \
        return value;                                                                                                  \
    }
    MC_INT_VALUES(VALUE)
    MC_TEST_VALUES(VALUE)
    MC_BOOL_VALUES(VALUE)
#undef VALUE
    case MC_LT_F: return mc_real(v[node->a]) < mc_real(v[node->b]);
    case MC_LE_F: return mc_real(v[node->a]) <= mc_real(v[node->b]);
    case MC_EQ_F: return mc_real(v[node->a]) == mc_real(v[node->b]);
    case MC_NE_F: return mc_real(v[node->a]) != mc_real(v[node->b]);
    case MC_TO_F: return mc_real_bits((double)v[node->a]);
    case MC_ADD_F: return mc_real_bits(mc_real(v[node->a]) + mc_real(v[node->b]));
    case MC_SUB_F: return mc_real_bits(mc_real(v[node->a]) - mc_real(v[node->b]));
    case MC_MUL_F: return mc_real_bits(mc_real(v[node->a]) * mc_real(v[node->b]));
    case MC_DIV_F: return mc_real_bits(mc_real(v[node->a]) / mc_real(v[node->b]));
    case MC_NEG_F: return mc_real_bits(-mc_real(v[node->a]));
    case MC_ABS_F: return mc_real_bits(fabs(mc_real(v[node->a])));
    case MC_MIN_F: return mc_real(v[node->b]) < mc_real(v[node->a]) ? v[node->b] : v[node->a];
    case MC_MAX_F: return mc_real(v[node->b]) > mc_real(v[node->a]) ? v[node->b] : v[node->a];
    case MC_FLOOR_F: return mc_real_bits(floor(mc_real(v[node->a])));
    case MC_SQRT_F: return mc_real_bits(sqrt(mc_real(v[node->a])));
    case MC_EXP_F: return mc_real_bits(exp(mc_real(v[node->a])));
    case MC_EXP2_F: return mc_real_bits(exp2(mc_real(v[node->a])));
    case MC_LOG_F: return mc_real_bits(log(mc_real(v[node->a])));
    case MC_LOG2_F: return mc_real_bits(log2(mc_real(v[node->a])));
    case MC_TANH_F:
    case MC_TANH_APPROX_F: return mc_real_bits(tanh(mc_real(v[node->a])));
    case MC_OP_COUNT: break;
    }
    return 0;
}

int64_t mc_eval_node(const mc_node *x, const mc_env *env, const mc_point *at, const int64_t *v) {
    return node_value(x, env, at, v);
}

/* Would this node fault here, were its guard true? */
static mc_fault node_faults(const mc_node *x, const mc_env *env, const int64_t *v) {
    uint64_t at;
    switch ((mc_op)x->op) {
    case MC_LOAD:
    case MC_LOAD_F: return mc_place(&env->arrays[x->imm], v[x->a], 0, 0, &at) ? MC_OK : MC_INDEX;
    case MC_LOAD2:
    case MC_LOAD2_F: return mc_place(&env->arrays[x->imm], v[x->a], v[x->b], 0, &at) ? MC_OK : MC_INDEX;
    case MC_LOAD3:
    case MC_LOAD3_F: return mc_place(&env->arrays[x->imm], v[x->a], v[x->b], v[x->c], &at) ? MC_OK : MC_INDEX;
    default: return mc_value_fault(x->op, v[x->a], x->b != MC_NONE ? v[x->b] : 0);
    }
}

const char *mc_op_name(uint32_t op) { return op < MC_OP_COUNT ? mc_ops[op].name : "?"; }
char mc_op_type(uint32_t op) { return op < MC_OP_COUNT ? mc_ops[op].type : '?'; }
bool mc_op_faults(uint32_t op) { return op < MC_OP_COUNT && mc_ops[op].faults; }

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
        case MC_LOAD3:
        case MC_LOAD_F:
        case MC_LOAD2_F:
        case MC_LOAD3_F: uses |= MC_USES_DATA; break;
        case MC_BANDS: uses |= MC_USES_BANDS; break;
        default: break;
        }
    }
    return uses;
}

mc_code mc_of_head(mc_code code, int64_t head, mc_node *out) {
    for (uint32_t i = 0; i < code.count; i++) {
        out[i] = code.nodes[i];
        if (out[i].op != MC_H) continue;
        out[i].op = MC_CONST_I;
        out[i].imm = head;
    }
    return (mc_code){out, code.count};
}

/* Is a node's constant what its operation needs: the number of a declared array or bands, a bool, a finite real? */
static const char *check_constant(const mc_node *x, const mc_decls *decls) {
    const uint64_t imm = (uint64_t)x->imm;
    switch ((mc_op)x->op) {
    case MC_CONST_I: return NULL;
    case MC_CONST_B: return imm > 1 ? "a bool constant that is neither 0 nor 1" : NULL;
    case MC_CONST_F: return isfinite(mc_real(x->imm)) ? NULL : "a real constant that is not finite";
    case MC_BANDS: return !decls || imm >= decls->band_count ? "bands that are not there" : NULL;
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3:
    case MC_LOAD_F:
    case MC_LOAD2_F:
    case MC_LOAD3_F: {
        if (!decls || imm >= decls->array_count) return "an array that is not there";
        const mc_array *a = &decls->arrays[imm];
        if ((a->width == MC_F64) != (mc_ops[x->op].type == 'f')) return "an array of another type";
        if (mc_array_dims(a) != mc_ops[x->op].arity) return "an array of other dimensions";
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
        const mc_op_info *op = &mc_ops[x->op];
        if (kind == MC_MASK && (op->type == 'f' || (op->arity && op->args[0] == 'f'))) return "a real in a mask";
        const uint32_t operands[3] = {x->a, x->b, x->c};
        for (unsigned j = 0; j < 3; j++) {
            if (j >= op->arity) {
                if (operands[j] != MC_NONE) return "an operand too many";
                continue;
            }
            if (operands[j] >= i) return "an operand that is not an earlier node";
            if (mc_ops[code.nodes[operands[j]].op].type != op->args[j]) return "an operand of the wrong type";
        }
        if (x->guard != MC_NONE) {
            if (!op->faults) return "a guard on an operation that cannot fault";
            if (x->guard >= i) return "a guard that is not an earlier node";
            if (mc_ops[code.nodes[x->guard].op].type != 'b') return "a guard that is not bool";
        }
        if (x->pad != 0) return "padding that is not zero";
        const char *wrong = check_constant(x, decls);
        if (wrong) return wrong;
    }
    char answer = mc_ops[code.nodes[code.count - 1].op].type;
    if (kind == MC_MASK && answer != 'b') return "the answer is not bool";
    if (kind == MC_SCORE && answer != 'f') return "the answer is not real";
    return NULL;
}

bool mc_eval(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch) {
    const mc_point at = {q, k, h, 0};
    for (uint32_t i = 0; i < code.count; i++) scratch[i] = node_value(&code.nodes[i], env, &at, scratch);
    return scratch[code.count - 1] != 0;
}

double mc_eval_score(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, double s, int64_t *scratch) {
    const mc_point at = {q, k, h, s};
    for (uint32_t i = 0; i < code.count; i++) scratch[i] = node_value(&code.nodes[i], env, &at, scratch);
    return mc_real(scratch[code.count - 1]);
}

mc_fault mc_eval_checked(mc_code code, const mc_env *env, int64_t q, int64_t k, int64_t h, int64_t *scratch, bool *out,
                         uint32_t *node) {
    const mc_point at = {q, k, h, 0};
    for (uint32_t i = 0; i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        if (mc_ops[x->op].faults && (x->guard == MC_NONE || scratch[x->guard])) {
            mc_fault fault = node_faults(x, env, scratch);
            if (fault != MC_OK) {
                if (node) *node = i;
                return fault;
            }
        }
        scratch[i] = node_value(x, env, &at, scratch);
    }
    if (out) *out = scratch[code.count - 1] != 0;
    return MC_OK;
}
