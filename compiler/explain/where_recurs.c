/* where_recurs.c: finds the stretch that holds a token, and its neighbours.
 *
 * Method: the stretches of all ranks are listed twice: once to find the one that has the token's row of the packed
 *         batch, and once to find those of the same document. A stretch that ends where this one begins is before it.
 */
#include "compiler/explain/where_recurs.h"

#include <inttypes.h>

#include "compiler/base/json.h"
#include "compiler/base/text.h"
#include "runtime/plan/recurrent.h"
#include "runtime/plan/layout.h"

/* Calls `each` for every stretch. `room` has as many as any rank has. */
typedef void each_stretch(void *context, uint32_t rank, const fcp_stretch *s);
static void walk(const fcp_plan *plan, fcp_stretch *room, each_stretch *each, void *context) {
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const uint32_t count = fcp_stretches_of(plan, r, room);
        for (uint32_t i = 0; i < count; i++) each(context, r, &room[i]);
    }
}

typedef struct search {
    uint64_t row;
    fcp_stretch own;
    explain_stretch *out;
    bool found;
} search;

static void look(void *context, uint32_t rank, const fcp_stretch *s) {
    search *x = context;
    if (x->row < s->start || x->row - s->start >= s->length) return;
    x->own = *s;
    x->out->rank = rank;
    x->found = true;
}

static void relate(void *context, uint32_t rank, const fcp_stretch *s) {
    search *x = context;
    if (s->document != x->own.document) return;
    x->out->count++;
    if (s->start <= x->own.start) x->out->number++;
    if (s->start + s->length == x->own.start) x->out->before = rank;
    if (x->own.start + x->own.length == s->start) x->out->behind = rank;
}

fcp_code explain_stretch_find(const fcp_plan *plan, uint64_t sequence, int64_t q, arena *memory, explain_stretch *out,
                              bool *out_found) {
    *out_found = false;
    *out = (explain_stretch){.before = FCP_NONE, .behind = FCP_NONE};
    if (!plan->recurrent_count || sequence >= plan->sequences_count) return FCP_OK;
    uint32_t most = 1;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const uint32_t count = fcp_stretches_of(plan, r, NULL);
        if (count > most) most = count;
    }
    fcp_stretch *room = ARENA_NEW(memory, fcp_stretch, most);
    if (!room) return FCP_E_NO_MEMORY;
    const uint64_t offset = fcp_plan_sequence_offset(plan, (uint32_t)sequence, NULL);
    const int64_t position = fcp_plan_query_position(plan, (uint32_t)sequence);
    search x = {.row = offset + (uint64_t)(q - position), .out = out};
    walk(plan, room, look, &x);
    if (!x.found) return FCP_OK;
    walk(plan, room, relate, &x);
    out->first = (int64_t)(x.own.start - offset) + position;
    out->last = out->first + (int64_t)x.own.length - 1;
    for (uint32_t i = 0; i < plan->recurrent_count; i++) {
        const fcp_recurrent *layer = &plan->recurrent[i];
        if (layer->kind == FCP_SCAN) *(layer->reverse ? &out->states_behind : &out->states_before) += layer->times;
        if (layer->before) out->rows_before += layer->times;
        if (layer->after) out->rows_behind += layer->times;
    }
    *out_found = true;
    return FCP_OK;
}

/* Adds "of the stretch before it, at rank 4, it needs the state in 36 layers, and rows in 36 layers". */
static void put_side(const char *side, uint32_t rank, uint64_t states, uint64_t rows, text *out) {
    if (!states && !rows) return;
    if (rank == FCP_NONE) {
        text_printf(out, "    nothing is %s it, so there %s\n", side,
                    !rows    ? "the state is 0"
                    : states ? "the state is 0, and rows are zeros"
                             : "rows are zeros");
        return;
    }
    text_printf(out, "    of the stretch %s it, at rank %" PRIu32 ", it needs ", side, rank);
    if (states) text_printf(out, "the state in %" PRIu64 " layer%s", states, text_plural(states));
    if (rows) text_printf(out, "%srows in %" PRIu64 " layer%s", states ? ", and " : "", rows, text_plural(rows));
    text_puts(out, "\n");
}

void explain_stretch_text(const explain_stretch *x, int64_t q, text *out) {
    text_printf(out,
                "\nfor layers that recur: token %" PRId64 " is in stretch %" PRIu64 " of %" PRIu64 ", tokens %" PRId64
                " to %" PRId64 ", at rank %" PRIu32 "\n",
                q, x->number, x->count, x->first, x->last, x->rank);
    put_side("before", x->before, x->states_before, x->rows_before, out);
    put_side("behind", x->behind, x->states_behind, x->rows_behind, out);
}

static void put_rank(json *j, const char *name, uint32_t rank) {
    if (rank == FCP_NONE) json_null(j, name);
    else json_u64(j, name, rank);
}

void explain_stretch_json(const explain_stretch *x, json *j) {
    json_object(j, "stretch");
    json_u64(j, "rank", x->rank);
    json_u64(j, "number", x->number);
    json_u64(j, "of", x->count);
    json_i64(j, "first", x->first);
    json_i64(j, "last", x->last);
    put_rank(j, "rank_before", x->before);
    put_rank(j, "rank_behind", x->behind);
    json_end(j);
}
