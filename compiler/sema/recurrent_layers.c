/* recurrent_layers.c: reads the layers that recur: those of `layers` that mix tokens other than by attention.
 *
 * Example: layers = [causal, scan x 2, halo(before = 3) x 3, scan] has two kinds of such layers, a scan of three layers
 * and a halo of three. What a kind does not state is as in the model.
 *
 * Requires: the elements of the list that are no masks; heads, head_dim and value_dim of the model; masks declared.
 * Gives:    program.recurrent. Equal elements are one kind.
 * Cost:     O(elements x kinds).
 */
#include "compiler/sema/recurrent_layers.h"

#include <inttypes.h>
#include <string.h>

#include "compiler/sema/keys.h"
#include "compiler/sema/layer_masks.h"
#include "compiler/sema/names.h"
#include "runtime/plan/enum_names.h"

_Static_assert((int)LAYER_KINDS == FCP_LAYER_KINDS, "a word for each kind");
enum { HALO_MOST = 1 << 20, CHANNELS_MOST = 1 << 24, HEADS_MOST = 4096, DIM_MOST = 1024 };
static const char halo_example[] = "for instance halo(before = 3, after = 0, channels = 8192)";
static const char scan_example[] =
    "for instance scan(heads = 32, head_dim = 128, value_dim = 128, decay = scalar, reverse = true)";

const char *const sema_halo_params[HALO_PARAMS] = {"before", "after", "channels"};
const char *const sema_scan_params[SCAN_PARAMS] = {"heads", "head_dim", "value_dim", "decay", "reverse"};

uint32_t sema_layer_kind(const expr *called) {
    const int kind = called->kind == EXPR_NAME || called->kind == EXPR_CALL
                         ? words_find(words_layers, LAYER_KINDS, called->name)
                         : -1;
    return kind < 0 ? LAYER_KINDS : (uint32_t)kind;
}

/* Reads a whole number from `least` to `most`, if the argument is given. False: it is wrong, which was reported. */
static bool number(sema *s, const arg *a, uint32_t least, uint32_t most, uint32_t *out) {
    int64_t v;
    if (!a) return true;
    if (!sema_eval_constant(s, a->value, a->name, &v)) return false;
    if (v < least || v > most) {
        diag_error(s->d, FCP_E_VALUE, a->value->at, "%s must be from %u to %u, this is %" PRId64, a->name, least, most,
                   v);
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

/* Finds the arguments; a name alone has none. */
static bool arguments(sema *s, const expr *call, const char *const *names, int count, const char *example,
                      const arg **given) {
    if (call->kind == EXPR_CALL) return sema_arguments(s, call, names, count, example, given);
    for (int i = 0; i < count; i++) given[i] = NULL;
    return true;
}

static bool read_halo(sema *s, const expr *call, fcp_recurrent *out) {
    const struct fcpc_program *p = s->out;
    const arg *given[HALO_PARAMS];
    if (!arguments(s, call, sema_halo_params, HALO_PARAMS, halo_example, given)) return false;
    out->channels = p->heads * p->head_dim;
    bool good = number(s, given[HALO_BEFORE], 0, HALO_MOST, &out->before);
    good &= number(s, given[HALO_AFTER], 0, HALO_MOST, &out->after);
    good &= number(s, given[HALO_CHANNELS], 1, CHANNELS_MOST, &out->channels);
    if (!good || out->before || out->after) return good;
    diag_error(s->d, given[HALO_BEFORE] || given[HALO_AFTER] ? FCP_E_VALUE : FCP_E_ARGUMENT, call->at,
               "a halo of no rows: it needs `before` or `after`");
    diag_hint(s->d, "a causal convolution of 4 tokens reads 3 before its own: halo(before = 3)");
    return false;
}

static bool read_scan(sema *s, const expr *call, fcp_recurrent *out) {
    const struct fcpc_program *p = s->out;
    const arg *given[SCAN_PARAMS];
    if (!arguments(s, call, sema_scan_params, SCAN_PARAMS, scan_example, given)) return false;
    out->heads = p->heads;
    out->rows = p->head_dim;
    out->columns = p->value_dim;
    bool good = number(s, given[SCAN_HEADS], 1, HEADS_MOST, &out->heads);
    good &= number(s, given[SCAN_HEAD_DIM], 1, DIM_MOST, &out->rows);
    good &= number(s, given[SCAN_VALUE_DIM], 1, DIM_MOST, &out->columns);
    const arg *decay = given[SCAN_DECAY], *reverse = given[SCAN_REVERSE];
    int which = FCP_DECAY_SCALAR, flag = 0;
    if (decay && decay->value->kind == EXPR_CALL) {
        diag_error(s->d, FCP_E_ARGUMENT, decay->value->at, "%s takes a name without arguments", decay->name);
        which = -1;
    } else if (decay) which = sema_choice(s, decay->value, decay->name, fcp_decay_names, FCP_DECAYS);
    if (reverse) flag = sema_flag(s, reverse->value, reverse->name);
    if (!good || which < 0 || flag < 0) return false;
    out->decay = (uint32_t)which;
    out->reverse = (uint32_t)flag;
    return true;
}

/* A mask of the program may have one of these names. In `layers` it is not clear then which of the two is meant. */
static bool is_ambiguous(sema *s, const expr *call) {
    const mask *m = sema_own_mask(s, call->name);
    if (!m || m->score) return false;
    diag_error(s->d, FCP_E_AMBIGUOUS, call->kind == EXPR_CALL ? call->name_at : call->at,
               "'%s' is a kind of layers, and a mask of this program", call->name);
    diag_also(s->d, m->name_at, "the mask");
    diag_hint(s->d, "in `layers` the mask needs another name");
    return true;
}

/* Adds a kind, or its layers to those of an equal one. */
static bool add(sema *s, const fcp_recurrent *found, span at, fcp_recurrent *kinds, uint32_t *count) {
    for (uint32_t i = 0; i < *count; i++) {
        fcp_recurrent same = *found;
        same.times = kinds[i].times;
        if (memcmp(&same, &kinds[i], sizeof same) != 0) continue;
        if (found->times > LAYER_TIMES_MAX - kinds[i].times) {
            diag_error(s->d, FCP_E_VALUE, at, "more than %d layers of one kind", LAYER_TIMES_MAX);
            return false;
        }
        kinds[i].times += found->times;
        return true;
    }
    if (*count == RECURRENT_MAX) {
        diag_error(s->d, FCP_E_TOO_LARGE, at, "a program has at most %d kinds of layers that recur", RECURRENT_MAX);
        return false;
    }
    kinds[(*count)++] = *found;
    return true;
}

void sema_check_recurrent(sema *s) {
    struct fcpc_program *p = s->out;
    const uint32_t elements = s->recurrent_count, room = elements < RECURRENT_MAX ? elements : RECURRENT_MAX;
    if (!elements) return;
    fcp_recurrent *kinds = ARENA_ZNEW(&p->arena, fcp_recurrent, room);
    if (!kinds) {
        sema_no_memory(s);
        return;
    }
    for (uint32_t i = 0; i < elements; i++) {
        const layer_element *e = &s->recurrent[i];
        if (is_ambiguous(s, e->call)) return;
        fcp_recurrent found = {.kind = sema_layer_kind(e->call), .times = e->times, .parts = 1};
        if (found.kind == FCP_HALO ? read_halo(s, e->call, &found) : read_scan(s, e->call, &found))
            if (!add(s, &found, e->call->at, kinds, &p->recurrent_count)) return;
    }
    p->recurrent = kinds;
    p->at[AT_RECURRENT] = s->recurrent[0].call->at;
}
