/* linear.c: what the rest of a layer costs: its projections and its MLP, which compute each token alone.
 *
 * Examples: linear = 0.33 us, the time of a token in the forward pass; linear = dense(hidden = 4096, ffn = 14336),
 * from which the time follows: the layer's weights are two operations each for every token.
 *
 * Requires: heads, widths of heads, and the cluster's flops.
 * Gives:    program.linear, in picoseconds for a token. The backward pass takes twice as long as the forward pass: each
 *           weight is multiplied once for the gradient of the input and once for its own. And program.linear_memory.
 */
#include <inttypes.h>
#include <string.h>

#include "compiler/base/decimal.h"
#include "compiler/sema/keys.h"
#include "compiler/sema/names.h"

/* A second; all arithmetic is on whole numbers, so that every machine finds the same. */
#define PICOSECONDS UINT64_C(1000000000000)
enum { WIDTH_MAX = 1 << 24, MILLION = 1000000 };
static const char example[] = "linear = 0.33 us, or linear = dense(hidden = 4096, ffn = 14336)";

static bool whole(sema *s, const arg *a, const char *what, uint64_t *out) {
    int64_t v;
    if (!sema_eval_constant(s, a->value, what, &v)) return false;
    if (v < 1 || v > WIDTH_MAX) {
        diag_error(s->d, FCP_E_VALUE, a->value->at, "%s must be from 1 to %d, this is %" PRId64, what, WIDTH_MAX, v);
        return false;
    }
    *out = (uint64_t)v;
    return true;
}

/* Reads a part of the peak rate, 0.5 or 1, as millionths. */
static bool part_of_peak(sema *s, const arg *a, uint64_t *out) {
    const expr *v = a->value;
    uint64_t mantissa = v->kind == EXPR_INT ? (uint64_t)v->integer : 0;
    int exponent = 0;
    const bool number = v->kind == EXPR_INT || (v->kind == EXPR_FLOAT && decimal_parse(v->name, &mantissa, &exponent));
    if (number && decimal_scale(mantissa, exponent + 6, out) && *out >= 1000 && *out <= MILLION) return true;
    diag_error(s->d, FCP_E_VALUE, v->at, "efficiency must be a part of the peak rate, from 0.001 to 1");
    return false;
}

/* Evaluates dense(...): the projections of Q, K, V and the output, and an MLP of two or, gated, three matrices. */
static bool dense_time(sema *s, const expr *e, uint64_t *out) {
    enum { HIDDEN, FFN, GATED, EFFICIENCY, NAMES };
    static const char *const names[NAMES] = {"hidden", "ffn", "gated", "efficiency"};
    const struct fcpc_program *p = s->out;
    const arg *given[NAMES];
    uint64_t hidden = 0, ffn = 0, efficiency = MILLION / 2;
    bool gated = true;
    if (!sema_arguments(s, e, names, NAMES, "dense(hidden = 4096, ffn = 14336, gated = true, efficiency = 0.5)", given))
        return false;
    if (!given[HIDDEN] || !given[FFN]) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "dense needs its %s", given[HIDDEN] ? "ffn" : "hidden");
        diag_hint(s->d, "for instance %s", example);
        return false;
    }
    bool good = whole(s, given[HIDDEN], "hidden", &hidden);
    good &= whole(s, given[FFN], "ffn", &ffn);
    if (given[GATED] && given[GATED]->value->kind != EXPR_BOOL) {
        diag_error(s->d, FCP_E_TYPE, given[GATED]->value->at, "gated must be true or false");
        good = false;
    } else if (given[GATED]) gated = given[GATED]->value->integer;
    if (given[EFFICIENCY]) good &= part_of_peak(s, given[EFFICIENCY], &efficiency);
    if (!good) return false;
    const uint64_t projected = (uint64_t)p->heads * (p->head_dim + (uint64_t)p->value_dim) +
                               (uint64_t)p->kv_heads * (p->head_dim + (p->values_in_keys ? 0 : (uint64_t)p->value_dim));
    const unsigned __int128 weights = (unsigned __int128)hidden * (projected + (gated ? 3 : 2) * ffn),
                            rate = (unsigned __int128)p->cluster.flops * efficiency / MILLION,
                            time = rate ? 2 * weights * PICOSECONDS / rate : 0;
    *out = time > INT64_MAX ? INT64_MAX : (uint64_t)time;
    return true;
}

void sema_check_linear(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    const entry *e = k->at[KEY_LINEAR], *memory = k->at[KEY_LINEAR_MEMORY];
    uint64_t time = 0;
    if (memory) sema_quantity(s, memory->value, memory->key, UNIT_BYTES, 0, "34 kB", &p->linear_memory);
    if (!e) return;
    if (ast_is_call(e->value, words_sources[SOURCE_DENSE])) {
        if (!dense_time(s, e->value, &time)) return;
    } else if (e->value->kind != EXPR_QUANTITY) {
        diag_error(s->d, FCP_E_TYPE, e->value->at, "linear must be the time of a token, or dense(...)");
        diag_hint(s->d, "for instance %s", example);
        return;
    } else if (!sema_quantity(s, e->value, e->key, UNIT_TIME, 3, "0.33 us", &time)) return;
    if (!time || time > PICOSECONDS) {
        diag_error(s->d, FCP_E_VALUE, e->value->at, "linear must be from 1 ps to 1 s for a token");
        return;
    }
    p->linear[FCP_FORWARD] = time;
    p->linear[FCP_BACKWARD] = 2 * time;
}
