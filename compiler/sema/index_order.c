/* index_order.c: warns of fields whose indices look swapped, or are those of other heads.
 *
 * It asks the code of the plan's mask and score and not the tree, so that an index may be a definition or a parameter.
 * Only what cannot be meant is a mistake: keep[q, k] or keep[k, q] reads a graph both ways, keep[q, q] its diagonal.
 *
 * Requires: code whose arrays have their last numbers (sema_finish_arrays).
 * Cost:     O(nodes).
 */
#include "compiler/sema/index_order.h"

#include <inttypes.h>

#include "compiler/sema/field_shape.h"

enum { NAMES_Q = 1, NAMES_K = 2 };

/* How a field is read: where it is first read in a way that looks wrong, and whether it is also read otherwise. */
typedef struct reads {
    span crossed, grouped;
    bool any_crossed, any_straight, any_grouped, any_single;
    int64_t group;
} reads;

static void note(const fcp_array *field, bool kv, const mc_node *nodes, const uint8_t *names, uint32_t node, span at,
                 reads *out) {
    const mc_node *x = &nodes[node];
    if (field->q_cell && field->k_cell) {
        const uint32_t row = field->heads ? x->b : x->a, column = field->heads ? x->c : x->b;
        if (names[row] == NAMES_K && names[column] == NAMES_Q) {
            if (!out->any_crossed) out->crossed = at;
            out->any_crossed = true;
        } else out->any_straight = true;
    }
    if (!field->heads || kv) return;
    const mc_node *head = &nodes[x->a];
    if (head->op == MC_DIV && nodes[head->a].op == MC_H && nodes[head->b].op == MC_CONST_I && nodes[head->b].imm > 1) {
        if (!out->any_grouped) out->grouped = at;
        out->any_grouped = true;
        out->group = nodes[head->b].imm;
    } else out->any_single = true;
}

static void look(sema *s, mc_code code, const span *spans, reads *all) {
    uint8_t *names = ARENA_ZNEW(s->scratch, uint8_t, code.count + (size_t)1);
    for (uint32_t i = 0; names && i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        const uint32_t operands[] = {x->a, x->b, x->c};
        names[i] = x->op == MC_Q ? NAMES_Q : x->op == MC_K ? NAMES_K : 0;
        for (int o = 0; o < 3; o++)
            if (operands[o] != MC_NONE) names[i] |= names[operands[o]];
        if (!mc_loads_int(x->op) && !mc_loads_real(x->op)) continue;
        const fcp_array *field = &s->out->arrays[x->imm].record;
        const bool kv = field->heads != s->out->heads;
        if (field->kind == FCP_FIELD && fcp_array_dims(field))
            note(field, kv, code.nodes, names, i, spans[i], &all[x->imm]);
    }
}

static void warn_crossed(sema *s, const program_array *a, bool kv, span at) {
    text over = {0}, reading = {0};
    sema_put_over(&a->record, kv, &over);
    sema_put_reading(&a->record, kv, a->name, &reading);
    if (!over.failed && !reading.failed) {
        diag_warning(s->d, at, "field '%s' is over %.*s, and is read with keys first", a->name, (int)over.size,
                     over.at);
        diag_hint(s->d, "read it as %.*s", (int)reading.size, reading.at);
    }
    text_free(&over);
    text_free(&reading);
}

void sema_warn_index_order(sema *s) {
    const struct fcpc_program *p = s->out;
    reads *all = s->plan ? NULL : ARENA_ZNEW(s->scratch, reads, p->array_count + (size_t)1);
    if (!all) return; /* what a plan has was warned of when it was made */
    look(s, p->mask, p->mask_spans, all);
    look(s, p->score, p->score_spans, all);
    for (uint32_t i = 0; i < p->array_count; i++) {
        const program_array *a = &p->arrays[i];
        if (all[i].any_crossed && !all[i].any_straight)
            warn_crossed(s, a, a->record.heads && a->record.heads != p->heads, all[i].crossed);
        if (!all[i].any_grouped || all[i].any_single) continue;
        diag_warning(s->d, all[i].grouped, "field '%s' is over heads, and is read at h / %" PRId64, a->name,
                     all[i].group);
        diag_hint(s->d, "read it as %s[h%s]; over kv_heads it would have a value for each group of heads", a->name,
                  fcp_array_dims(&a->record) > 1 ? ", ..." : "");
    }
}
