/* where.c: which sequence of the batch an explained pair is of.
 *
 * Requires: a program that checks. Gives: the sequence asked for by number or length, else the longest; of those of one
 *           length the first that has the query. Without a batch, a field is one sequence; without either, a sequence
 *           as long as the pair needs.
 * Cost:     O(sequences).
 */
#include "compiler/explain/where.h"

#include <inttypes.h>

/* A field without values, or any field at all. */
static fcp_code find_field(sema *s, const program_array **out) {
    const struct fcpc_program *p = s->out;
    *out = NULL;
    for (uint32_t i = 0; i < p->array_count; i++) {
        const program_array *a = &p->arrays[i];
        if (a->record.kind != FCP_TABLE && !*out) *out = a;
        if (a->data) continue;
        diag_error(s->d, FCP_E_FIELD, a->at, "field '%s' has no values", a->run_of ? a->run_of : a->name);
        diag_hint(s->d, "--field %s=FILE gives them", a->run_of ? a->run_of : a->name);
        return FCP_E_FIELD;
    }
    return FCP_OK;
}

/* The position of a sequence's first query. */
static int64_t first_query(const sema *s, const explanation *o, size_t i) {
    if (o->plan) return o->plan->sequences[i].q_first;
    if (s->out->align == FCP_TOP_LEFT) return 0;
    return (int64_t)batch_length(s, i, FCP_KEYS) - (int64_t)batch_length(s, i, FCP_QUERIES);
}

static bool has_query(const sema *s, const explanation *o, size_t i) {
    int64_t first = first_query(s, o, i);
    return o->q >= first && o->q - first < (int64_t)batch_length(s, i, FCP_QUERIES);
}

static bool has_pair(const sema *s, const explanation *o, size_t i) {
    return has_query(s, o, i) && (uint64_t)o->k < batch_length(s, i, FCP_KEYS);
}

/* Chooses the sequence: out->n and out->sequence, and where it lies. */
static fcp_code choose_sequence(sema *s, explanation *o, whereabouts *out) {
    const program_array *field;
    fcp_code code = find_field(s, &field);
    if (code != FCP_OK) return code;
    const bool alone = !batch_count(s) && field; /* the field as one sequence */
    const size_t count = alone ? 1 : batch_count(s);
    size_t at = 0;
#define KEYS_OF(i) (alone ? field->record.count : batch_length(s, i, FCP_KEYS))
    if (o->asked && o->sequence >= count) {
        diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "there is no sequence %" PRIu64 ": the batch has %zu, from 0",
                   o->sequence, count);
        return FCP_E_VALUE;
    }
    if (o->asked) at = (size_t)o->sequence;
    else if (o->n)
        while (at < count && KEYS_OF(at) != (uint64_t)o->n) at++;
    else /* the longest that has both positions, or else the longest */
        for (size_t i = 1, has = !alone && count && has_pair(s, o, 0); i < count; i++) {
            size_t better = has_pair(s, o, i);
            if (better > has || (better == has && KEYS_OF(i) > KEYS_OF(at))) at = i, has = better;
        }
    bool here = at < count && (!o->n || KEYS_OF(at) == (uint64_t)o->n);
    if (field && !here) {
        if (!o->asked)
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "the batch has no sequence of %" PRId64 " tokens", o->n);
        else
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "sequence %" PRIu64 " has %" PRIu64 " tokens, not %" PRId64,
                       o->sequence, KEYS_OF(at), o->n);
        diag_hint(s->d, "field '%s' has values for the batch's sequences only; --seq says which", field->name);
        return FCP_E_VALUE;
    }
    /* of those as long, the first that has the query */
    for (size_t i = at; here && !alone && !o->asked && i < count; i++) {
        if (KEYS_OF(i) != KEYS_OF(at) || !has_query(s, o, i)) continue;
        at = i;
        break;
    }
    if (!o->n) o->n = count ? (int64_t)KEYS_OF(at) : (o->q > o->k ? o->q : o->k) + 1;
    *out = (whereabouts){.n = o->n, .queries = o->n};
#undef KEYS_OF
    if (here && !alone) {
        out->queries = (int64_t)batch_length(s, at, FCP_QUERIES);
        out->q_first = first_query(s, o, at);
        for (size_t i = 0; i < at; i++)
            for (int side = 0; side < FCP_SIDES; side++) out->first[side] += batch_length(s, i, (fcp_side)side);
    }
    o->by_field = field != NULL;
    o->sequence = at;
    return FCP_OK;
}

static bool check_pair(sema *s, const explanation *o, const whereabouts *w) {
    const int64_t at[2] = {o->q, o->k}, lo[2] = {w->q_first, 0}, hi[2] = {w->q_first + w->queries, w->n};
    for (int i = 0; i < 2; i++) {
        if (at[i] >= lo[i] && at[i] < hi[i]) continue;
        if (w->queries == w->n && !w->q_first) {
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "%s = %" PRId64 " lies outside a sequence of %" PRId64 " tokens",
                       sema_mask_variables[i], at[i], w->n);
            diag_hint(s->d, "-n sets the length");
        } else {
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE,
                       "%s = %" PRId64 ": the %s of this sequence are at %" PRId64 " to %" PRId64, sema_mask_variables[i],
                       at[i], i ? "keys" : "queries", lo[i], hi[i] - 1);
            diag_hint(s->d, "--seq says which sequence of the batch is meant");
        }
        return false;
    }
    if (o->h >= 0 && o->h < s->out->heads) return true;
    diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "h = %" PRId64 ": the model has %u heads", o->h, s->out->heads);
    return false;
}

/* Positions that no batch can have: refused first, so that sums of those that are left do not overflow. */
static bool check_size(sema *s, const explanation *o) {
    const int64_t values[] = {o->q, o->k, o->n};
    static const char *const names[] = {"q", "k", "n"};
    for (int i = 0; i < 3; i++) {
        const int64_t most = (int64_t)LENGTHS_SUM_MAX - (i < 2); /* a position, or a length */
        if (values[i] <= most && values[i] >= -most) continue;
        diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "%s = %" PRId64 ": a sequence has at most %" PRId64 " tokens", names[i],
                   values[i], (int64_t)LENGTHS_SUM_MAX);
        return false;
    }
    return true;
}

fcp_code explain_where(sema *s, explanation *o, whereabouts *out) {
    if (!check_size(s, o)) return FCP_E_VALUE;
    fcp_code code = choose_sequence(s, o, out);
    return code == FCP_OK && !check_pair(s, o, out) ? FCP_E_VALUE : code;
}
