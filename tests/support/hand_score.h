/* hand_score.h: adds scores with their derivatives (slopes), and sinks, to a plan of hand_plan.h. */
#ifndef HAND_SCORE_H
#define HAND_SCORE_H
#include <math.h>
#include <stdlib.h>

#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_index.h"
#include "tests/support/hand_plan.h"

enum { HAND_REACH = 20 }; /* the table's columns are distances 0 .. HAND_REACH */

typedef struct hand_score {
    mc_node score[64], slope[64];
    fcp_array arrays[2];
    double sink[16];
    _Alignas(64) uint8_t data[65536];
} hand_score;

/* Nodes of a code under way. */
typedef struct hand_code {
    mc_node *nodes;
    uint32_t count;
} hand_code;

static inline uint32_t hs3(hand_code *c, mc_op op, uint32_t x, uint32_t y, uint32_t z) {
    c->nodes[c->count] = (mc_node){.op = op, .a = x, .b = y, .c = z, .guard = MC_NONE};
    return c->count++;
}
static inline uint32_t hs2(hand_code *c, mc_op op, uint32_t x, uint32_t y) { return hs3(c, op, x, y, MC_NONE); }
static inline uint32_t hs1(hand_code *c, mc_op op, uint32_t x) { return hs3(c, op, x, MC_NONE, MC_NONE); }
static inline uint32_t hs0(hand_code *c, mc_op op) { return hs3(c, op, MC_NONE, MC_NONE, MC_NONE); }
static inline uint32_t hs_int(hand_code *c, int64_t value) {
    uint32_t at = hs0(c, MC_CONST_I);
    c->nodes[at].imm = value;
    return at;
}
static inline uint32_t hs_real(hand_code *c, double value) {
    uint32_t at = hs0(c, MC_CONST_F);
    memcpy(&c->nodes[at].imm, &value, sizeof value);
    return at;
}
static inline uint32_t hs_load(hand_code *c, mc_op op, uint32_t array, uint32_t x, uint32_t y) {
    uint32_t at = hs2(c, op, x, y);
    c->nodes[at].imm = array;
    return at;
}

static const char *const hand_scores[] = {"same", "alibi", "softcap", "piecewise", "table", "field", "length",
                                          "everything"};
enum { HAND_SCORES = sizeof hand_scores / sizeof *hand_scores };

/* The scores, by name. s is the logit, h the head, n the length of the sequence, F a field and T a table.
 *   same        s
 *   alibi       s + (k - q) 2^(-8 (h + 1) / heads)
 *   softcap     3 tanh(s / 3)
 *   piecewise   if q - k > 30 then s / 2, else if s < 0.1 then s / 4, else s - 0.075
 *   table       s + T[h, min(q - k, REACH)]; a place outside of T counts as 0
 *   field       s (1 + F[k] / 8)
 *   length      s log2(n) / 5
 *   everything  log(exp(s) + 0.5) min(1.5, sqrt(1 + abs(s)^2)) + floor(k / 7.0) / 20 - max(0.1 s, exp2(s) / 9) */
static inline void hand_score_code(hand_code *c, const char *name, uint32_t heads, bool slope) {
    uint32_t s = hs0(c, MC_S), one = hs_real(c, 1);
    if (!strcmp(name, "same")) hs2(c, MC_MUL_F, slope ? one : s, one);
    else if (!strcmp(name, "alibi")) {
        uint32_t ahead = hs2(c, MC_SUB, hs0(c, MC_K), hs0(c, MC_Q)), next = hs2(c, MC_ADD, hs0(c, MC_H), hs_int(c, 1));
        uint32_t power = hs2(c, MC_MUL_F, hs1(c, MC_TO_F, next), hs_real(c, -8.0 / heads));
        uint32_t bias = hs2(c, MC_MUL_F, hs1(c, MC_TO_F, ahead), hs1(c, MC_EXP2_F, power));
        if (slope) hs_real(c, 1);
        else hs2(c, MC_ADD_F, s, bias);
    } else if (!strcmp(name, "softcap")) {
        uint32_t cap = hs_real(c, 3), t = hs1(c, MC_TANH_F, hs2(c, MC_DIV_F, s, cap));
        if (slope) hs2(c, MC_SUB_F, one, hs2(c, MC_MUL_F, t, t));
        else hs2(c, MC_MUL_F, cap, t);
    } else if (!strcmp(name, "piecewise")) {
        uint32_t low = hs2(c, MC_LT_F, s, hs_real(c, 0.1)), half = hs_real(c, 0.5), quarter = hs_real(c, 0.25);
        uint32_t far = hs2(c, MC_LT, hs_int(c, 30), hs2(c, MC_SUB, hs0(c, MC_Q), hs0(c, MC_K)));
        uint32_t less = hs2(c, MC_SUB_F, s, hs_real(c, 0.075));
        uint32_t bent = slope ? hs3(c, MC_IF_F, low, quarter, one)
                              : hs3(c, MC_IF_F, low, hs2(c, MC_MUL_F, s, quarter), less);
        hs3(c, MC_IF_F, far, slope ? half : hs2(c, MC_MUL_F, s, half), bent);
    } else if (!strcmp(name, "table")) {
        uint32_t back = hs2(c, MC_SUB, hs0(c, MC_Q), hs0(c, MC_K));
        uint32_t at = hs2(c, MC_MIN, back, hs_int(c, HAND_REACH));
        uint32_t bias = hs_load(c, MC_LOAD2_F, 0, hs0(c, MC_H), at);
        if (slope) hs_real(c, 1);
        else hs2(c, MC_ADD_F, s, bias);
    } else if (!strcmp(name, "field")) {
        uint32_t value = hs1(c, MC_TO_F, hs_load(c, MC_LOAD, 1, hs0(c, MC_K), MC_NONE));
        uint32_t factor = hs2(c, MC_ADD_F, one, hs2(c, MC_MUL_F, value, hs_real(c, 0.125)));
        hs2(c, MC_MUL_F, slope ? one : s, factor);
    } else if (!strcmp(name, "length")) {
        uint32_t f = hs2(c, MC_DIV_F, hs1(c, MC_LOG2_F, hs1(c, MC_TO_F, hs0(c, MC_N))), hs_real(c, 5));
        hs2(c, MC_MUL_F, slope ? one : s, f);
    } else {
        uint32_t e = hs1(c, MC_EXP_F, s), sum = hs2(c, MC_ADD_F, e, hs_real(c, 0.5)), log_sum = hs1(c, MC_LOG_F, sum);
        uint32_t size = hs1(c, MC_ABS_F, s), most = hs_real(c, 1.5);
        uint32_t root = hs1(c, MC_SQRT_F, hs2(c, MC_ADD_F, one, hs2(c, MC_MUL_F, size, size)));
        uint32_t tenth = hs_real(c, 0.1), rise = hs2(c, MC_MUL_F, s, tenth);
        uint32_t ninth = hs2(c, MC_DIV_F, hs1(c, MC_EXP2_F, s), hs_real(c, 9));
        if (!slope) {
            uint32_t step = hs1(c, MC_FLOOR_F, hs2(c, MC_DIV_F, hs1(c, MC_TO_F, hs0(c, MC_K)), hs_real(c, 7)));
            uint32_t product = hs2(c, MC_MUL_F, log_sum, hs2(c, MC_MIN_F, most, root));
            uint32_t both = hs2(c, MC_ADD_F, product, hs2(c, MC_DIV_F, step, hs_real(c, 20)));
            hs2(c, MC_SUB_F, both, hs2(c, MC_MAX_F, rise, ninth));
            return;
        }
        uint32_t zero = hs_real(c, 0), sign = hs3(c, MC_IF_F, hs2(c, MC_LT_F, s, zero), hs1(c, MC_NEG_F, one), one);
        uint32_t d_log = hs2(c, MC_DIV_F, e, sum), d_root = hs2(c, MC_DIV_F, hs2(c, MC_MUL_F, sign, size), root);
        uint32_t d_ninth = hs2(c, MC_MUL_F, ninth, hs_real(c, 0.69314718055994530942));
        uint32_t d_least = hs3(c, MC_IF_F, hs2(c, MC_LT_F, root, most), d_root, zero);
        uint32_t left = hs2(c, MC_MUL_F, d_log, hs2(c, MC_MIN_F, most, root));
        uint32_t product = hs2(c, MC_ADD_F, left, hs2(c, MC_MUL_F, log_sum, d_least));
        hs2(c, MC_SUB_F, product, hs3(c, MC_IF_F, hs2(c, MC_LT_F, rise, ninth), d_ninth, tenth));
    }
}

/* Puts a score (NULL: none) and sinks (or none) into a plan, and computes its index anew; *store must live as long as it
 * does. */
static inline void hand_score_put(hand *h, hand_score *store, const char *name, bool sinks) {
    fcp_plan *p = &h->plan;
    uint32_t heads = h->problem.heads;
    size_t table = (size_t)heads * (HAND_REACH + 1) * sizeof(double), field = (table + 63) / 64 * 64;
    for (uint32_t i = 0; i < heads * (HAND_REACH + 1); i++) ((double *)store->data)[i] = sin(i * 1.3) * 2;
    for (uint64_t i = 0; i < h->problem.key_tokens; i++)
        ((int16_t *)(store->data + field))[i] = (int16_t)(i * 37 % 11) - 3;
    store->arrays[0] = (fcp_array){.file = FCP_NONE, .kind = FCP_TABLE, .width = MC_F64, .count = heads,
                                   .columns = HAND_REACH + 1};
    store->arrays[1] = (fcp_array){.file = FCP_NONE,
                                   .kind = FCP_FIELD,
                                   .k_cell = 1,
                                   .width = MC_I16,
                                   .count = h->problem.key_tokens,
                                   .offset = field,
                                   .lo = -3,
                                   .hi = 7};
    p->names = "x", p->names_count = 2;
    p->arrays = store->arrays, p->arrays_count = 2;
    p->data = store->data, p->data_count = field + h->problem.key_tokens * 2;
    if (name) {
        hand_code score = {store->score, 0}, slope = {store->slope, 0};
        hand_score_code(&score, name, heads, false);
        hand_score_code(&slope, name, heads, true);
        p->score = store->score, p->score_count = score.count;
        p->slope = store->slope, p->slope_count = slope.count;
    }
    for (uint32_t i = 0; i < heads; i++) store->sink[i] = 1.5 * cos(i * 2.1);
    if (sinks) p->sink = store->sink, p->sink_count = heads;
    if (fcp_plan_index(p, NULL)) abort();
}
#endif
