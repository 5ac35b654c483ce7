/* plan_damage_data.h: the kinds of damage to masks and scores, and to the data that they read: slices, rows, bands,
 * scores, sinks, the layout of keys. A part of plan_damage.h. All of them break the format of plans, so the check that
 * runs when a plan is loaded must find them. */
#ifndef PLAN_DAMAGE_DATA_H
#define PLAN_DAMAGE_DATA_H
#include "runtime/plan/head_ranges.h"
#include "tests/support/plan_places.h"
#include <math.h>

static bool wrong_slices(tables *t, draw *d) {
    if (!t->slices_count) return false;
    fcp_slices *s = &t->slices[next(d) % t->slices_count];
    uint32_t *const numbers[] = {&s->first_row, &s->rows, &s->first_band, &s->bands};
    uint32_t *x = numbers[next(d) % 4];
    *x += next(d) % 2 || !*x ? 1 : UINT32_MAX;
    return true;
}

/* Documents by an array that there is not, or that is no field of the tokens; or lengths that have no documents. */
static bool wrong_documents(tables *t, draw *d) {
    switch (next(d) % 3) {
    case 0: t->problem->documents = (uint32_t)t->arrays_count; return true;
    case 1: t->problem->pad = 1; return true;
    default:
        for (uint32_t i = 0; i < t->arrays_count; i++)
            if (t->arrays[i].kind == FCP_TABLE || t->problem->tokens != t->problem->key_tokens) {
                t->problem->documents = i;
                return true;
            }
        return false;
    }
}

static bool lose_slices(tables *t, draw *d) {
    if (!t->slices_count) return false;
    switch (next(d) % 3) {
    case 0: t->slices_count--; break;
    case 1: t->band_rows_count--; break;
    default: t->bands_count--; break;
    }
    return true;
}

static bool wrong_band_rows(tables *t, draw *d) {
    if (t->band_rows_count < 2) return false;
    uint64_t j = next(d) % t->band_rows_count;
    const fcp_slices *s = t->slices;
    while (j >= (uint64_t)s->first_row + s->rows) s++;
    mc_band_rows *r = &t->band_rows[j];
    switch (next(d) % 5) {
    case 0: r->first = s->bands + 1; break;
    case 1: r->count = s->bands + 1 - r->first; break;
    case 2: r->count = UINT32_MAX; break;
    case 3:
        if (j == s->first_row) return false;
        r->q = r[-1].q - (int64_t)(next(d) % 2);
        break;
    default: t->band_rows[s->first_row + s->rows - 1].count++; break; /* what ends the table has none */
    }
    return true;
}

/* A band that rows see is empty, far away, or of a slope that there is not. */
static bool wrong_band(tables *t, draw *d) {
    if (!t->bands_count) return false;
    mc_band *b = &t->bands[next(d) % t->bands_count];
    switch (next(d) % 6) {
    case 0: b->lo_slope = 2; break;
    case 1: b->hi_slope = -1; break;
    case 2: b->lo = INT64_MIN; break;
    case 3: b->hi = INT64_MAX; break;
    case 4: b->hi = (INT64_C(1) << 42) + 1; break;
    default:
        b->hi = b->lo;
        b->hi_slope = b->lo_slope;
        break;
    }
    return true;
}

/* Rows see bands that others see already. */
static bool share_bands(tables *t, draw *d) {
    for (uint64_t i = 0; i < t->slices_count; i++) {
        fcp_slices *s = &t->slices[i];
        mc_band_rows *r = t->band_rows + s->first_row;
        if (s->rows < 3 || next(d) % 2) continue;
        uint32_t j = 1 + (uint32_t)(next(d) % (s->rows - 2));
        if (!r[j - 1].count || r[j].count > r[j - 1].count) continue;
        r[j].first = r[j - 1].first;
        r[j].count = r[j - 1].count;
        for (uint32_t k = 0; k < s->bands; k++) { /* no edge is in the way of any row */
            mc_band *b = &t->bands[s->first_band + k];
            *b = (mc_band){2 * (int64_t)k, 2 * (int64_t)k + 1, 0, 0};
        }
        uint64_t sum = 0;
        for (j = 0; j < s->rows; j++) sum += r[j].count;
        if (sum > s->bands) return true;
    }
    return false;
}

static bool bands_of_nothing(tables *t, draw *d) {
    mc_node *chosen = NULL;
    for (uint64_t i = 0; i < t->mask_count; i++)
        if (t->mask[i].op == MC_BANDS && pick(d)) chosen = &t->mask[i];
    if (chosen) chosen->imm = next(d) % 2 ? (int64_t)t->slices_count : INT64_MIN;
    return chosen;
}

/* The mask's code, the score's, or its derivative's. */
static bool wrong_code(tables *t, draw *d) {
    mc_node *const codes[] = {t->mask, t->score, t->slope};
    const uint64_t counts[] = {t->mask_count, t->score_count, t->slope_count};
    unsigned which = next(d) % 3;
    if (!counts[which]) return false;
    uint64_t i = next(d) % counts[which];
    mc_node *x = &codes[which][i];
    switch (next(d) % 6) {
    case 0: x->op = MC_OP_COUNT; break;
    case 1: x->pad = 1; break;
    case 2: x->a = (uint32_t)i; break;
    case 3: x->c = MC_NONE - 1; break;
    case 4: x->guard = (uint32_t)i; break;
    default: *x = (mc_node){which ? MC_CONST_B : MC_S, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0}; break;
    }
    return i + 1 == counts[which] || x->op != MC_CONST_B; /* a bool may be what is wanted before the end */
}

static bool lose_score(tables *t, draw *d) {
    if (!t->score_count) return false;
    if (next(d) % 2) t->score_count = 0;
    else t->slope_count = 0;
    return true;
}

static bool wrong_real(tables *t, draw *d) {
    mc_node *chosen = NULL;
    for (uint64_t i = 0; i < t->score_count + t->slope_count; i++) {
        mc_node *x = i < t->score_count ? &t->score[i] : &t->slope[i - t->score_count];
        if (x->op == MC_CONST_F && pick(d)) chosen = x;
    }
    const double odd[] = {NAN, INFINITY, -INFINITY};
    if (chosen) memcpy(&chosen->imm, &odd[next(d) % 3], sizeof chosen->imm);
    return chosen;
}

/* Code that is sound, and is not the derivative of the score. */
static bool other_slope(tables *t, draw *d) {
    mc_node *chosen = NULL;
    for (uint64_t i = 0; i < t->slope_count; i++) {
        const uint32_t op = t->slope[i].op;
        if ((op == MC_CONST_F || op == MC_SUB_F || op == MC_DIV_F || op == MC_ADD_F || op == MC_MUL_F) && pick(d))
            chosen = &t->slope[i];
    }
    if (!chosen) return false;
    if (chosen->op == MC_CONST_F) chosen->imm = mc_real_bits(mc_real(chosen->imm) + 1);
    else chosen->op = chosen->op == MC_SUB_F ? MC_ADD_F : MC_SUB_F;
    return true;
}

static bool wrong_sink(tables *t, draw *d) {
    const double odd[] = {NAN, INFINITY, -INFINITY};
    if (!t->sink_count) return false;
    if (next(d) % 2) t->sink_count--;
    else t->sink[next(d) % t->sink_count] = odd[next(d) % 3];
    return t->sink_count; /* one sink of one head less is none */
}

/* --- damage: what the mask reads ---------------------------------------------------------------------------------- */

static bool wrong_array(tables *t, draw *d) {
    if (!t->arrays_count) return false;
    fcp_array *a = &t->arrays[next(d) % t->arrays_count];
    switch (next(d) % 13) {
    case 0: a->width = 3; break;
    case 1: a->kind = FCP_ARRAY_KINDS; break;
    case 2: a->count++; break;
    case 3: a->count = 0; break;
    case 4: a->columns = UINT64_C(1) << 33; break;
    case 5: a->offset += 64; break;
    case 6: a->name = (uint32_t)t->names_count; break;
    case 7: a->file = (uint32_t)t->names_count; break;
    case 8: a->pad = 1; break;
    case 9: a->heads = a->heads ? 0 : t->problem->heads + 1; break; /* of a table there are none */
    case 10: a->q_cell = a->q_cell ? UINT32_MAX : 1; break;
    case 11: a->k_cell = a->k_cell ? UINT32_MAX : 1; break;
    default: a->lo = a->hi + 1; break;
    }
    return true;
}

static bool lose_data(tables *t, draw *d) {
    if (!t->data_count) return false;
    t->data_count -= 1 + next(d) % t->data_count;
    return true;
}

static bool name_without_end(tables *t, draw *d) {
    if (!t->names_count) return false;
    t->names[t->names_count - 1] = (char)('a' + next(d) % 26);
    return true;
}

static bool load_of_nothing(tables *t, draw *d) {
    mc_node *chosen = NULL;
    for (uint64_t i = 0; i < t->mask_count; i++)
        if (t->mask[i].op == MC_LOAD && pick(d)) chosen = &t->mask[i];
    if (chosen) chosen->imm = next(d) % 2 ? (int64_t)t->arrays_count : -1;
    return chosen;
}

/* --- classes of heads --------------------------------------------------------------------------------------------- */

/* A head of a class that no head before it begins. */
static bool other_class(tables *t, draw *d) {
    if (!t->head_classes_count) return false;
    t->head_classes[next(d) % t->head_classes_count] = (uint32_t)t->head_classes_count + (uint32_t)(next(d) % 3);
    return true;
}

/* Classes of fewer heads, or of more, or of all where the mask does not tell heads apart. */
static bool lose_classes(tables *t, draw *d) {
    if (!t->head_classes_count || next(d) % 2) PUSH(t, head_classes, 0);
    else t->head_classes_count -= next(d) % 2 ? 1 : t->head_classes_count;
    return true;
}

/* Of a plan with classes: a part whose range has several. NULL: none was found. */
static fcp_part *part_of_classes(tables *t, draw *d) {
    if (!t->head_classes_count || !t->tiles_count) return NULL;
    tables_plan(t);
    const fcp_tile *tile = &t->tiles[next(d) % t->tiles_count];
    if (fcp_class_count(&t->plan, t->blocks[tile->q_block].heads) < 2) return NULL;
    return &t->parts[tile->first_part + next(d) % tile->parts];
}

/* The part's last shapes are not there. */
static bool shapes_of_no_class(tables *t, draw *d) {
    fcp_part *part = part_of_classes(t, d);
    if (part) part->shape = (uint32_t)t->shapes_count - 1;
    return part;
}

/* One of a part's shapes is between other pieces, or is for more pairs than it has room for. */
static bool uneven_shapes(tables *t, draw *d) {
    const fcp_part *part = part_of_classes(t, d);
    if (!part) return false;
    fcp_shape_rec *s = &t->shapes[part->shape + next(d) % 2];
    switch (next(d) % 3) {
    case 0: s->q_length--; break;
    case 1: s->k_length += 1; break;
    default: s->pairs += (uint64_t)s->q_length * s->k_length; break;
    }
    return true;
}

/* No head sees anything of a part. */
static bool blind_part(tables *t, draw *d) {
    const fcp_part *part = part_of_classes(t, d);
    if (!part) return false;
    const uint32_t classes = fcp_class_count(&t->plan, t->blocks[t->pieces[part->q_piece].block].heads);
    for (uint32_t c = 0; c < classes; c++) t->shapes[part->shape + c].runs = 0;
    return true;
}
#endif
