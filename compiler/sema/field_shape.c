/* field_shape.c: reads what a field is over, and says it in messages.
 *
 * Requires: a declaration as it was parsed.
 * Gives:    the dimensions, in the one order that there is: heads, queries, keys.
 * Cost:     O(dimensions), of which there are three at most.
 */
#include "compiler/sema/field_shape.h"

#include <inttypes.h>
#include <string.h>

#include "compiler/sema/names.h"
#include "runtime/base/saturate.h"

enum { CELL_MAX = 1 << 30 };

static bool refuse_order(sema *s, const expr *e, const char *name, const char *before, bool twice) {
    if (twice) diag_error(s->d, FCP_E_DUPLICATE, e->at, "%s comes behind %s, and one of them is enough", name, before);
    else diag_error(s->d, FCP_E_VALUE, e->at, "%s comes before %s", name, before);
    diag_hint(s->d, "the order is sequences; heads or kv_heads; queries; keys");
    return false;
}

bool sema_read_over(sema *s, const arg *first, fcp_array *out, bool *out_kv) {
    static const int places[OVER_COUNT] =
        {[OVER_SEQUENCES] = 1, [OVER_HEADS] = 2, [OVER_KV_HEADS] = 2, [OVER_QUERIES] = 3, [OVER_KEYS] = 4};
    const char *before = "";
    int last = 0;
    out->heads = out->q_cell = out->k_cell = 0;
    for (const arg *a = first; a && (a == first || !a->name); a = a->next) {
        const expr *e = a->value, *name = e;
        int64_t cell = 1;
        const bool divided = e->kind == EXPR_BINARY && e->op == OP_DIV;
        if (divided) name = e->a;
        const int over = name->kind == EXPR_NAME ? words_find(words_over, OVER_COUNT, name->name) : -1;
        if (over < 0) {
            diag_error(s->d, FCP_E_VALUE, name->at,
                       "a field is over sequences, heads, kv_heads, queries or keys, and over nothing else");
            const char *word = name->kind == EXPR_NAME ? name->name : "";
            const char *nearest = diag_nearest(word, strlen(word), words_over, OVER_COUNT);
            if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
            else diag_hint(s->d, "over = heads, queries / 128, keys / 128; without `over` it has a value for each key");
            return false;
        }
        if (places[over] <= last) return refuse_order(s, e, name->name, before, places[over] == last);
        last = places[over];
        before = name->name;
        if (divided && !sema_eval_constant(s, e->b, "the size of a cell", &cell)) return false;
        if (divided && over != OVER_QUERIES && over != OVER_KEYS) {
            diag_error(s->d, FCP_E_VALUE, e->at, "only queries and keys come in cells");
            return false;
        }
        if (cell < 1 || cell > CELL_MAX) {
            diag_error(s->d, FCP_E_VALUE, e->b->at, "a cell has 1 to 2^30 tokens, not %" PRId64, cell);
            return false;
        }
        *out_kv |= over == OVER_KV_HEADS;
        if (over == OVER_HEADS || over == OVER_KV_HEADS) out->heads = 1;
        if (over == OVER_QUERIES) out->q_cell = (uint32_t)cell;
        if (over == OVER_KEYS) out->k_cell = (uint32_t)cell;
    }
    return true;
}

uint64_t sema_field_values(const fcp_array *field, const mc_env *env) {
    const mc_array part = fcp_array_part(field, NULL, 0, env);
    const uint64_t rows = fcp_times((uint64_t)part.count, part.planes ? part.planes : 1);
    return fcp_times(rows, part.columns ? (uint64_t)part.columns : 1);
}

uint64_t sema_values_before(const fcp_array *field, const sema_batch *batch, size_t sequence) {
    uint64_t count = 0;
    for (size_t i = 0; i < sequence; i++) {
        const mc_env env = batch->env(batch->of, i);
        count = fcp_plus(count, sema_field_values(field, &env));
    }
    return count;
}

/* Adds the hint that says what one sequence needs: the one in which the given values end, or the last. */
static void hint_counts(diags *d, const fcp_array *field, bool kv, uint64_t given, const sema_batch *batch) {
    uint64_t end = 0;
    mc_env env = {0};
    size_t at = 0;
    for (size_t i = 0; i < batch->count && end <= given; i++) {
        env = batch->env(batch->of, at = i);
        end = fcp_plus(end, sema_field_values(field, &env));
    }
    text t = {0};
    if (field->q_cell) text_printf(&t, "has %" PRId64 " %s", env.queries, env.queries == 1 ? "query" : "queries");
    if (field->k_cell)
        text_printf(&t, "%s%" PRId64 " key%s", t.size ? " and " : "has ", env.n, text_plural((uint64_t)env.n));
    text_puts(&t, t.size ? ", and needs " : "needs ");
    sema_put_counts(field, &env, &t);
    text_printf(&t, " value%s: it is over ", text_plural(sema_field_values(field, &env)));
    sema_put_over(field, kv, &t);
    text_add(&t, "", 1);
    if (!t.failed) diag_hint(d, "sequence %zu %s", at, t.at);
    text_free(&t);
}

void sema_wrong_count(diags *d, span at, const char *what, const char *name, const fcp_array *field, bool kv,
                      uint64_t given, bool more, const sema_batch *batch) {
    const bool over_queries = fcp_array_is_over(field, FCP_QUERIES), over_keys = fcp_array_is_over(field, FCP_KEYS);
    const uint64_t needed = sema_values_before(field, batch, batch->count);
    uint64_t queries = 0;
    bool split = false;
    for (size_t i = 0; i < batch->count; i++) {
        const mc_env env = batch->env(batch->of, i);
        queries = fcp_plus(queries, (uint64_t)env.queries);
        split |= env.queries != env.n;
    }
    const char *of = over_queries ? "queries" : !over_keys ? "sequences" : split ? "keys" : "tokens";
    const bool plain = over_queries || over_keys || !fcp_array_dims(field);
    diag_error(d, FCP_E_FIELD, at, "%s has %s%" PRIu64 " value%s, the batch %s %" PRIu64 "%s%s", what,
               more ? "more than " : "", given, text_plural(given), plain ? "has" : "needs", needed, plain ? " " : "",
               plain ? of : "");
    if (!plain) hint_counts(d, field, kv, given, batch);
    else if (over_keys && given == queries)
        diag_hint(d, "the batch has %" PRIu64 " queries: file(\"%s.npy\", over = queries) is a field of these", queries,
                  name);
    else if (over_keys && given == batch->count)
        diag_hint(d, "the batch has %zu sequences: one value for each of them is field %s = [...] over sequences",
                  batch->count, name);
    else
        diag_hint(d, "a field has one value for each of them%s", fcp_array_dims(field) ? ", sequences end to end" : "");
}

/* Writes word, or word / cell. */
static void put_cells(const char *word, uint32_t cell, text *out) {
    text_puts(out, word);
    if (cell > 1) text_printf(out, " / %u", cell);
}

void sema_put_over(const fcp_array *field, bool kv, text *out) {
    const char *between = "";
    if (!fcp_array_dims(field)) text_puts(out, words_over[OVER_SEQUENCES]);
    if (field->heads) text_puts(out, words_over[kv ? OVER_KV_HEADS : OVER_HEADS]), between = ", ";
    if (field->q_cell) {
        text_puts(out, between);
        put_cells(words_over[OVER_QUERIES], field->q_cell, out);
        between = ", ";
    }
    if (!field->k_cell) return;
    text_puts(out, between);
    put_cells(words_over[OVER_KEYS], field->k_cell, out);
}

void sema_put_reading(const fcp_array *field, bool kv, const char *name, text *out) {
    const char *between = "[";
    text_puts(out, name);
    if (!fcp_array_dims(field)) return;
    if (field->heads) text_printf(out, "%s%s", between, kv ? "h / (heads / kv_heads)" : "h"), between = ", ";
    if (field->q_cell) {
        text_puts(out, between);
        put_cells("q", field->q_cell, out);
        between = ", ";
    }
    if (field->k_cell) {
        text_puts(out, between);
        put_cells("k", field->k_cell, out);
    }
    text_puts(out, "]");
}

void sema_put_counts(const fcp_array *field, const mc_env *env, text *out) {
    const mc_array part = fcp_array_part(field, NULL, 0, env);
    if (part.planes) text_printf(out, "%u x ", part.planes);
    text_printf(out, "%" PRId64, part.count);
    if (part.columns) text_printf(out, " x %" PRId64, part.columns);
}
