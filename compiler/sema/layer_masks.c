/* layer_masks.c: turns a program whose layers have several masks into the program of one of these masks.
 *
 * Requires: a tree with overrides applied.
 * Gives:    the tree of a program whose only mask is number s->layer. Also the number of masks, and of layers of each;
 *           and the elements that are layers that recur, for recurrent_layers.c.
 * Cost:     O(elements of the list).
 *
 * Example: layers = [causal, window(w = 4096) x 3, scan x 2] has two masks, the second of three layers. For
 * s->layer = 1 the tree then says mask = window(w = 4096), and all later steps see a program with that mask.
 */
#include "compiler/sema/layer_masks.h"

#include <inttypes.h>
#include <string.h>

#include "compiler/sema/names.h"
#include "compiler/sema/recurrent_layers.h"

static entry *find(const ast *a, key_id key) {
    for (section *x = a->sections; x; x = x->next) {
        if (!words_same(x->name, words_sections[SECTION_PLAN])) continue;
        for (entry *e = x->entries; e; e = e->next)
            if (!e->as && words_same(e->key, words_keys[key].name)) return e;
    }
    return NULL;
}

/* One element: a mask or a layer that recurs, and how often. False: it is wrong, which was reported. */
static bool read_element(sema *s, expr *e, expr **out_called, uint32_t *out_times) {
    int64_t times = 1;
    expr *called = e->kind == EXPR_REPEAT ? e->a : e;
    if (called->kind != EXPR_NAME && called->kind != EXPR_CALL) {
        diag_error(s->d, FCP_E_TYPE, called->at, "layers are masks, halo or scan");
        diag_hint(s->d, "for instance layers = [causal, window(w = 4096) x 3]");
        return false;
    }
    if (e->kind == EXPR_REPEAT && !sema_eval_constant(s, e->b, "a count", &times)) return false;
    if (times < 1 || times > LAYER_TIMES_MAX) {
        diag_error(s->d, FCP_E_VALUE, e->b->at, "a count of layers must be from 1 to %d, this is %" PRId64,
                   LAYER_TIMES_MAX, times);
        return false;
    }
    *out_called = called;
    *out_times = (uint32_t)times;
    return true;
}

bool sema_choose_layer(sema *s) {
    struct fcpc_program *p = s->out;
    entry *e = find(&s->program, KEY_LAYERS), *single = find(&s->program, KEY_MASK);
    if (!e) return true;
    if (single) {
        diag_error(s->d, FCP_E_DUPLICATE, e->key_at, "`mask` and `layers` are both set");
        diag_also(s->d, single->key_at, "the other");
        diag_hint(s->d, "`mask` is for layers that are all alike, `layers` for some that are not");
        return false;
    }
    if (e->value->kind != EXPR_LIST || !e->value->args) {
        diag_error(s->d, e->value->kind == EXPR_LIST ? FCP_E_VALUE : FCP_E_TYPE, e->value->at,
                   e->value->kind == EXPR_LIST ? "layers is empty" : "layers must be a list of masks");
        diag_hint(s->d, "for instance layers = [causal, window(w = 4096) x 3]");
        return false;
    }
    program_layer *layers = ARENA_ZNEW(&p->arena, program_layer, LAYERS_MAX);
    s->recurrent = ARENA_ZNEW(s->scratch, layer_element, e->value->arg_count);
    if (!layers || !s->recurrent) return sema_no_memory(s);
    bool good = true;
    uint32_t count = 0;
    for (const arg *a = e->value->args; a; a = a->next) {
        expr *found = NULL;
        uint32_t times = 0;
        if (!read_element(s, a->value, &found, &times)) {
            good = false;
            continue;
        }
        if (sema_layer_kind(found) < LAYER_KINDS) {
            s->recurrent[s->recurrent_count++] = (layer_element){found, times};
            continue;
        }
        if (count == LAYERS_MAX) {
            diag_error(s->d, FCP_E_TOO_LARGE, a->value->at, "a program has at most %d masks", LAYERS_MAX);
            return false;
        }
        if (count == s->layer) s->layer_mask = found;
        layers[count++].times = times;
    }
    if (good && !count) {
        diag_error(s->d, FCP_E_VALUE, e->value->at, "layers has no mask");
        diag_hint(s->d, "attention says where tokens are: layers = [causal, %s]", words_layers[FCP_SCAN]);
        return false;
    }
    p->layers = layers;
    p->layer_count = count;
    p->layer = s->layer;
    s->layers_entry = e;
    s->layers_value = e->value;
    sema_show_layers(s, false);
    return good;
}

void sema_show_layers(sema *s, bool layers) {
    if (!s->layers_entry || !s->layer_mask) return;
    s->layers_entry->key = words_keys[layers ? KEY_LAYERS : KEY_MASK].name;
    s->layers_entry->value = layers ? s->layers_value : s->layer_mask;
}
