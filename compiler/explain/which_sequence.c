/* which_sequence.c: chooses the sequence of the batch to which an explained pair belongs.
 *
 *   the question names a number    that sequence
 *   the question names a length    of the sequences of this length the first that has the query; if none has, the first
 *   the question names neither     the longest that has both positions; if none has, the longest of all. Of several
 *                                  with that length the first that has the query
 *   there is no batch              the values of a field over keys or queries are one sequence; without such a field, a
 *                                  sequence of the length that was named or, if none was, that the positions need
 *
 * Requires: a program that was checked.
 * Cost:     linear in the number of sequences.
 */
#include "compiler/explain/which_sequence.h"
#include "compiler/sema/arrays.h"
#include "compiler/sema/lengths.h"

#include <inttypes.h>
#include <stdlib.h>

/* *out: a field that mask or score read; *out_sized: one of them with a value for each token. NULL: there is none.
 * FCP_E_FIELD: a field has no values. */
static fcp_code find_field(sema *s, const program_array **out, const program_array **out_sized) {
    const struct fcpc_program *p = s->out;
    *out = *out_sized = NULL;
    for (uint32_t i = 0; i < p->array_count; i++) {
        const program_array *a = &p->arrays[i];
        if (a->record.kind != FCP_TABLE && !*out) *out = a;
        if ((fcp_array_is_over(&a->record, FCP_KEYS) || fcp_array_is_over(&a->record, FCP_QUERIES)) && !*out_sized)
            *out_sized = a;
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

/* The keys of sequence i. If the values of a field are taken for one sequence, it has a key for each value. */
static uint64_t keys_of(const sema *s, const program_array *alone, size_t i) {
    return alone ? alone->record.count : batch_length(s, i, FCP_KEYS);
}

static mc_env env_alone(const void *of, size_t sequence) {
    const int64_t *n = of;
    (void)sequence;
    return *MC_LENGTH(*n);
}

/* Without a batch: has every field as many values as the one sequence needs? */
static fcp_code check_alone(sema *s, int64_t n) {
    const struct fcpc_program *p = s->out;
    for (uint32_t i = 0; i < p->array_count; i++) {
        const program_array *a = &p->arrays[i];
        const sema_batch one = {1, env_alone, &n};
        if (a->record.kind == FCP_TABLE || a->record.count == sema_values_before(&a->record, &one, 1)) continue;
        text what = {0};
        text_printf(&what, "field '%s'", a->name);
        char *line = text_take(&what);
        if (line)
            sema_wrong_count(s->d, a->at, line, a->name, &a->record, a->record.heads && a->record.heads != p->heads,
                             a->record.count, false, &one);
        free(line);
        return line ? FCP_E_FIELD : FCP_E_NO_MEMORY;
    }
    return FCP_OK;
}

/* Chooses the sequence: sets o->n, o->sequence and o->by_field, and *out to where its tokens lie. */
static fcp_code choose_sequence(sema *s, explanation *o, whereabouts *out) {
    const program_array *field, *sized;
    fcp_code code = find_field(s, &field, &sized);
    if (code != FCP_OK) return code;
    const program_array *alone = batch_count(s) ? NULL : sized; /* its values are one sequence */
    const size_t count = alone ? 1 : batch_count(s);
    size_t at = 0;
    if (o->asked && o->sequence >= count) {
        diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "there is no sequence %" PRIu64 ": the batch has %zu, from 0",
                   o->sequence, count);
        return FCP_E_VALUE;
    }
    if (o->asked) at = (size_t)o->sequence;
    else if (o->n)
        while (at < count && keys_of(s, alone, at) != (uint64_t)o->n) at++;
    else /* the longest that has both positions; if none has, the longest */
        for (size_t i = 1, has = !alone && count && has_pair(s, o, 0); i < count; i++) {
            size_t better = has_pair(s, o, i);
            if (better > has || (better == has && keys_of(s, alone, i) > keys_of(s, alone, at))) at = i, has = better;
        }
    bool here = at < count && (!o->n || keys_of(s, alone, at) == (uint64_t)o->n);
    if (field && count && !here) {
        if (!o->asked)
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "the batch has no sequence of %" PRId64 " tokens", o->n);
        else
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "sequence %" PRIu64 " has %" PRIu64 " tokens, not %" PRId64,
                       o->sequence, keys_of(s, alone, at), o->n);
        diag_hint(s->d, "field '%s' has values for the batch's sequences only; --seq says which", field->name);
        return FCP_E_VALUE;
    }
    /* of the sequences of this length, the first that has the query */
    for (size_t i = at; here && !alone && !o->asked && i < count; i++) {
        if (keys_of(s, alone, i) != keys_of(s, alone, at) || !has_query(s, o, i)) continue;
        at = i;
        break;
    }
    if (!o->n) o->n = count ? (int64_t)keys_of(s, alone, at) : (o->q > o->k ? o->q : o->k) + 1;
    *out = (whereabouts){.n = o->n, .queries = o->n, .sequence = at, .alone = !here || alone};
    if (here && !alone) {
        out->queries = (int64_t)batch_length(s, at, FCP_QUERIES);
        out->q_first = first_query(s, o, at);
    }
    o->by_field = field != NULL;
    o->sequence = at;
    return batch_count(s) ? FCP_OK : check_alone(s, o->n);
}

static bool check_pair(sema *s, const explanation *o, const whereabouts *w) {
    const int64_t at[2] = {o->q, o->k}, lo[2] = {w->q_first, 0}, hi[2] = {w->q_first + w->queries, w->n};
    for (int i = 0; i < 2; i++) {
        if (at[i] >= lo[i] && at[i] < hi[i]) continue;
        if (w->queries == w->n && !w->q_first) {
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "%s = %" PRId64 " lies outside a sequence of %" PRId64 " token%s",
                       words_variables[i], at[i], w->n, w->n == 1 ? "" : "s");
            diag_hint(s->d, "-n sets the length");
        } else if (lo[i] == hi[i]) {
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "%s = %" PRId64 ": this sequence has no %s", words_variables[i],
                       at[i], i ? "keys" : "queries");
            diag_hint(s->d, "--seq says which sequence of the batch is meant");
        } else {
            diag_error(s->d, FCP_E_VALUE, SPAN_NONE,
                       "%s = %" PRId64 ": the %s of this sequence are at %" PRId64 " to %" PRId64, words_variables[i],
                       at[i], i ? "keys" : "queries", lo[i], hi[i] - 1);
            diag_hint(s->d, "--seq says which sequence of the batch is meant");
        }
        return false;
    }
    if (o->h >= 0 && o->h < s->out->heads) return true;
    diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "h = %" PRId64 ": the model has %u heads", o->h, s->out->heads);
    return false;
}

/* Refuses positions and lengths that no batch can have, so that later sums do not overflow. */
static bool check_size(sema *s, const explanation *o) {
    const int64_t values[] = {o->q, o->k, o->n};
    static const char *const names[] = {"q", "k", "n"};
    for (int i = 0; i < 3; i++) {
        const int64_t most = (int64_t)LENGTHS_SUM_MAX - (i < 2); /* a position, or a length */
        if (values[i] <= most && values[i] >= -most) continue;
        diag_error(s->d, FCP_E_VALUE, SPAN_NONE, "%s = %" PRId64 ": a sequence has at most %" PRId64 " tokens",
                   names[i], values[i], (int64_t)LENGTHS_SUM_MAX);
        return false;
    }
    return true;
}

fcp_code explain_where(sema *s, explanation *o, whereabouts *out) {
    if (!check_size(s, o)) return FCP_E_VALUE;
    fcp_code code = choose_sequence(s, o, out);
    return code == FCP_OK && !check_pair(s, o, out) ? FCP_E_VALUE : code;
}
