/* lengths.c: the batch of a program: a list of sequence lengths, a file of them, or lengths drawn at random.
 *
 * Examples: [131072, 8192 x 32], [1:8192 x 64] (one query and 8192 keys, 64 times), file("a.lengths"),
 * lognormal(median = 2K, sigma = 1.06, tokens = 256K), cumulative([0, 3, 5, 10]).
 *
 * Gives: at least one sequence. Sequences may have no queries, no keys, or neither. There are at most LENGTHS_MAX of
 *        them, with LENGTHS_SUM_MAX queries and as many keys.
 * Cost:  O(lengths); a file is read once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/decimal.h"
#include "compiler/base/text.h"
#include "compiler/sema/data_file.h"
#include "compiler/sema/files.h"
#include "compiler/sema/lengths.h"
#include "compiler/sema/lognormal.h"
#include "compiler/sema/names.h"
#include "runtime/base/grow.h"

/* --- collecting --------------------------------------------------------------------------------------------------- */

typedef enum outcome { ADDED, TOO_MANY_TOKENS, TOO_MANY_SEQUENCES, NOT_ZERO, FALLS, NO_MEMORY, STOPPED } outcome;

static outcome add_sequences(lengths *out, uint64_t queries, uint64_t keys, uint64_t repeats) {
    if (repeats > LENGTHS_MAX || out->count + repeats > LENGTHS_MAX) return TOO_MANY_SEQUENCES;
    if (keys > LENGTHS_SUM_MAX || queries > LENGTHS_SUM_MAX ||
        (repeats && (keys > (LENGTHS_SUM_MAX - out->sum) / repeats ||
                     queries > (LENGTHS_SUM_MAX - out->query_sum) / repeats)))
        return TOO_MANY_TOKENS;
    size_t room = out->room;
    if (out->queries && !FCP_GROW(out->queries, room, out->count + repeats)) return NO_MEMORY;
    if (!FCP_GROW(out->at, out->room, out->count + repeats)) return NO_MEMORY;
    if (queries != keys && !out->queries) {
        if (!(out->queries = malloc(out->room * sizeof *out->queries))) return NO_MEMORY;
        memcpy(out->queries, out->at, out->count * sizeof *out->queries);
    }
    for (uint64_t i = 0; i < repeats; i++) {
        if (out->queries) out->queries[out->count] = queries;
        out->at[out->count++] = keys;
    }
    out->sum += keys * repeats;
    out->query_sum += queries * repeats;
    return ADDED;
}

/* Adds a number, or a pair, `repeats` times: lengths, or, inside cumulative(...), ends of sequences. */
static outcome add_numbers(lengths *out, uint64_t queries, uint64_t keys, uint64_t repeats) {
    if (!out->cumulative) return add_sequences(out, queries, keys, repeats);
    const uint64_t from[2] = {out->query_end, out->key_end};
    const bool first = !out->begun;
    out->query_end = queries;
    out->key_end = keys;
    out->begun = true;
    if (first && (queries || keys)) return NOT_ZERO;
    if (queries < from[0] || keys < from[1]) return FALLS;
    outcome o = first ? ADDED : add_sequences(out, queries - from[0], keys - from[1], 1);
    return o == ADDED && repeats > 1 ? add_sequences(out, 0, 0, repeats - 1) : o;
}

static bool report_outcome(sema *s, outcome o, span at) {
    if (o == ADDED) return true;
    if (o == STOPPED) return false; /* it was reported */
    if (o == TOO_MANY_TOKENS) diag_error(s->d, FCP_E_LENGTHS, at, "the batch has more than 2^40 tokens with this");
    else if (o == TOO_MANY_SEQUENCES)
        diag_error(s->d, FCP_E_LENGTHS, at, "the batch has more than 2^24 sequences with this");
    else if (o == NOT_ZERO) {
        diag_error(s->d, FCP_E_LENGTHS, at, "cumulative lengths must begin with 0");
        diag_hint(s->d, "cumulative([0, 100, 250]) is [100, 150]; without cumulative these are lengths");
    } else if (o == FALLS)
        diag_error(s->d, FCP_E_LENGTHS, at,
                   "cumulative lengths must not decrease, and this is less than the one before it");
    else {
        diag_error(s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory for the batch's lengths");
        s->no_memory = true;
    }
    return false;
}

/* Draws `count` lengths; or, where count is 0, lengths until they sum to `tokens`, the last cut to fit. */
static outcome draw_all(sema *s, const lognormal *l, uint64_t seed, uint64_t count, uint64_t tokens, lengths *out) {
    if (count > LENGTHS_MAX) return TOO_MANY_SEQUENCES;
    uint64_t *table = lognormal_table(), state = seed;
    if (!table) return NO_MEMORY;
    outcome o = ADDED;
    for (uint64_t i = 0, left = tokens; o == ADDED && (count ? i < count : left > 0); i++) {
        uint64_t length = lognormal_draw(l, table, &state);
        if (!count && length > left) length = left;
        if (!count) left -= length;
        o = i % 65536 == 0 && sema_stopped(s) ? STOPPED : add_sequences(out, length, length, 1);
    }
    free(table);
    return o;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* Reads the number at bytes[*i]; one beyond LENGTHS_SUM_MAX becomes LENGTHS_SUM_MAX + 1. False: there is none. */
static bool parse_number(const char *bytes, size_t *i, size_t end, uint64_t *out) {
    size_t begin = *i;
    *out = 0;
    for (; *i < end && bytes[*i] >= '0' && bytes[*i] <= '9'; ++*i) {
        *out = *out * 10 + (uint64_t)(bytes[*i] - '0');
        if (*out > LENGTHS_SUM_MAX) *out = LENGTHS_SUM_MAX + 1;
    }
    return *i > begin;
}

static void skip_blanks(const char *bytes, size_t *i, size_t end) {
    while (*i < end && text_is_blank(bytes[*i])) ++*i;
}

/* Reads a line: a length, or a:b, or a b; it may be blank or a # comment. False: an error was reported. */
static bool parse_line(data_file *f, const char *bytes, size_t line_end, lengths *out) {
    sema *s = f->s;
    size_t i = 0;
    skip_blanks(bytes, &i, line_end);
    size_t begin = i;
    uint64_t queries = 0, keys;
    parse_number(bytes, &i, line_end, &queries);
    size_t end = i;
    keys = queries;
    skip_blanks(bytes, &i, line_end);
    bool colon = end > begin && i < line_end && bytes[i] == ':';
    if (colon) skip_blanks(bytes, (i++, &i), line_end);
    bool pair = end > begin && parse_number(bytes, &i, line_end, &keys);
    if (pair) end = i;
    else if (!colon) keys = queries;
    skip_blanks(bytes, &i, line_end);
    bool rest = (i < line_end && bytes[i] != '#') || (colon && !pair);
    if (rest) {
        size_t stop = line_end;
        while (stop > begin && text_is_blank(bytes[stop - 1])) stop--;
        bool negative = begin == end && bytes[begin] == '-' && stop > begin + 1;
        for (size_t j = begin + 1; negative && j < stop; j++) negative = bytes[j] >= '0' && bytes[j] <= '9';
        span where = sema_data_span(f, begin, stop);
        if (!negative) {
            diag_error(s->d, FCP_E_LENGTHS_FILE, where, "this is not a length");
            diag_hint(s->d, "a file of lengths has one whole number a line, or QUERIES:KEYS; '#' begins a comment");
        } else diag_error(s->d, FCP_E_LENGTHS, where, "a length must be at least 0");
        diag_also(s->d, f->at, "the file is named here");
        return false;
    }
    outcome o = end > begin ? add_numbers(out, queries, keys, 1) : ADDED;
    if (o == ADDED) return true;
    report_outcome(s, o, o == NO_MEMORY ? f->at : sema_data_span(f, begin, end));
    diag_also(s->d, f->at, "the file is named here");
    return false;
}

/* Reads the lengths of a file, up to its end or to the first error. */
static bool parse_file(data_file *f, lengths *out) {
    const size_t before = out->count;
    const char *line;
    size_t size;
    while (sema_data_line(f, out->count - before, &line, &size))
        if (!parse_line(f, line, size, out)) return false;
    if (f->wrong || out->count > before || out->begun) return !f->wrong;
    diag_error(f->s->d, FCP_E_LENGTHS, f->at, "'%s' holds no lengths", f->path);
    return false;
}

static bool eval_file(sema *s, const expr *e, lengths *out) {
    enum { FILE_MAX = 1 << 30 };
    const arg *a = e->args;
    if (e->arg_count != 1 || a->name || a->value->kind != EXPR_STRING) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "file takes one path: file(\"a.lengths\")");
        return false;
    }
    char *full = sema_path(s, a->value);
    if (!full) return false;
    data_file f;
    bool good = sema_data_open(&f, s, full, a->value->at, FILE_MAX, FCP_E_LENGTHS_FILE, false) && parse_file(&f, out);
    sema_data_close(&f);
    free(full);
    return good;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* Evaluates a constant from `least` to `most`. False: an error was reported. */
static bool bounded(sema *s, const expr *e, const char *what, uint64_t least, uint64_t most, uint64_t *out) {
    int64_t v;
    if (!sema_eval_constant(s, e, what, &v)) return false;
    if (v < 0 || (uint64_t)v < least || (uint64_t)v > most) {
        diag_error(s->d, FCP_E_VALUE, e->at, "%s must be from %" PRIu64 " to %" PRIu64 ", this is %" PRId64, what,
                   least, most, v);
        return false;
    }
    *out = (uint64_t)v;
    return true;
}

/* Evaluates sigma, from 0 to 8, as sigma times 2^32. False: an error was reported. */
static bool eval_sigma(sema *s, const expr *e, uint64_t *out) {
    uint64_t mantissa = 0;
    int exponent = 0;
    bool good = false;
    if (e->kind == EXPR_INT) {
        good = e->integer <= 8;
        mantissa = (uint64_t)e->integer;
    } else if (e->kind == EXPR_FLOAT) good = decimal_parse(e->name, &mantissa, &exponent);
    uint64_t billionths;
    if (!good || !decimal_scale(mantissa, exponent + 9, &billionths) || billionths > UINT64_C(8000000000)) {
        diag_error(s->d, FCP_E_VALUE, e->at, "sigma must be a number from 0 to 8, for instance 1.06");
        return false;
    }
    *out = (uint64_t)(((unsigned __int128)billionths << 32) / 1000000000);
    return true;
}

static bool eval_lognormal(sema *s, const expr *e, lengths *out) {
    enum { MEDIAN, SIGMA, COUNT, TOKENS, MIN, MAX, SEED, NAMES };
    static const char *const names[NAMES] = {"median", "sigma", "count", "tokens", "min", "max", "seed"};
    const arg *given[NAMES];
    if (!sema_arguments(s, e, names, NAMES,
                        "lognormal(median = 2K, sigma = 1.06, tokens = 256K, min = 1, max = 128K, seed = 1)", given))
        return false;
    if (!given[MEDIAN] || !given[SIGMA]) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "lognormal needs its %s", given[MEDIAN] ? "sigma" : "median");
        return false;
    }
    if (!given[COUNT] == !given[TOKENS]) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "lognormal needs one of count and tokens%s",
                   given[COUNT] ? ", not both" : "");
        return false;
    }
    lognormal l = {.min = 1, .max = LENGTHS_SUM_MAX};
    uint64_t count = 0, tokens = 0, seed = 1;
    bool good = bounded(s, given[MEDIAN]->value, "median", 1, LENGTHS_SUM_MAX, &l.median);
    good &= eval_sigma(s, given[SIGMA]->value, &l.sigma);
    if (given[COUNT]) good &= bounded(s, given[COUNT]->value, "count", 1, LENGTHS_MAX, &count);
    if (given[TOKENS]) good &= bounded(s, given[TOKENS]->value, "tokens", 1, LENGTHS_SUM_MAX, &tokens);
    if (given[MIN]) good &= bounded(s, given[MIN]->value, "min", 0, LENGTHS_SUM_MAX, &l.min);
    if (given[MAX]) good &= bounded(s, given[MAX]->value, "max", 1, LENGTHS_SUM_MAX, &l.max);
    if (given[SEED]) good &= bounded(s, given[SEED]->value, "seed", 0, INT64_MAX, &seed);
    if (good && l.min > l.max) {
        diag_error(s->d, FCP_E_VALUE, e->at, "min is larger than max");
        good = false;
    }
    return good && report_outcome(s, draw_all(s, &l, seed, count, tokens, out), e->at);
}

/* Evaluates one number of a length. False: an error was reported. */
static bool eval_tokens(sema *s, const expr *e, const char *what, int64_t *out) {
    if (!sema_eval_constant(s, e, what, out)) return false;
    if (*out >= 0) return true;
    diag_error(s->d, FCP_E_LENGTHS, e->at, "%s must be at least 0, this is %" PRId64, what, *out);
    return false;
}

/* Adds a length, queries:keys, or one of these x count. */
static bool eval_number(sema *s, const expr *e, lengths *out) {
    const expr *length = e->kind == EXPR_REPEAT ? e->a : e;
    int64_t queries = 0, keys = 0, repeats = 1;
    if (length->kind == EXPR_PAIR) {
        bool good = eval_tokens(s, length->a, "the number of queries", &queries);
        if (!eval_tokens(s, length->b, "the number of keys", &keys) || !good) return false;
    } else if (!eval_tokens(s, length, "a length", &queries)) return false;
    else keys = queries;
    if (e->kind == EXPR_REPEAT && !sema_eval_constant(s, e->b, "a count", &repeats)) return false;
    if (repeats < 1) {
        diag_error(s->d, FCP_E_LENGTHS, e->b->at, "a count must be at least 1, this is %" PRId64, repeats);
        return false;
    }
    return report_outcome(s, add_numbers(out, (uint64_t)queries, (uint64_t)keys, (uint64_t)repeats), e->at);
}

static bool eval_list(sema *s, const expr *value, lengths *out);

/* Evaluates one list or file of cumulative(...) into *out, which is empty. */
static bool eval_ends(sema *s, const expr *value, lengths *out) {
    out->cumulative = true;
    if (!eval_list(s, value, out)) return false;
    if (out->count) return true;
    diag_error(s->d, FCP_E_LENGTHS, value->at, "these are the cumulative lengths of no sequence");
    diag_hint(s->d, "cumulative([0, 100]) is one sequence of 100 tokens");
    return false;
}

/* Adds to `to` the sequences of `all`; if there are `keys`, with the lengths of those as numbers of keys. */
static outcome join_ends(const lengths *all, const lengths *keys, lengths *to) {
    outcome o = ADDED;
    for (size_t i = 0; i < all->count && o == ADDED; i++)
        o = add_sequences(to, all->queries ? all->queries[i] : all->at[i], keys ? keys->at[i] : all->at[i], 1);
    return o;
}

/* Evaluates cumulative([0, 3, 5]) and cumulative([0, 3, 5], keys = [0, 10, 20]). */
static bool eval_cumulative(sema *s, const expr *e, lengths *out) {
    const arg *all = e->args, *keys = all ? all->next : NULL;
    if (!all || all->name || e->arg_count > 2 || (keys && (!keys->name || strcmp(keys->name, "keys")))) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "cumulative takes a list or a file, and perhaps another one of keys");
        diag_hint(s->d, "cumulative([0, 100, 250]), or cumulative([0, 1, 2], keys = [0, 4096, 5000])");
        return false;
    }
    lengths first = {0}, second = {0};
    bool good = eval_ends(s, all->value, &first) && (!keys || eval_ends(s, keys->value, &second));
    if (good && keys && (first.queries || second.queries)) {
        diag_error(s->d, FCP_E_LENGTHS, (first.queries ? all : keys)->value->at,
                   "pairs say how many keys there are, and so does `keys`");
        good = false;
    } else if (good && keys && first.count != second.count) {
        diag_error(s->d, FCP_E_LENGTHS, keys->value->at,
                   "these are keys of %zu sequence%s, and there are queries of %zu", second.count,
                   text_plural(second.count), first.count);
        good = false;
    }
    good = good && report_outcome(s, join_ends(&first, keys ? &second : NULL, out), e->at);
    free(first.at);
    free(first.queries);
    free(second.at);
    free(second.queries);
    return good;
}

static bool eval_element(sema *s, const expr *e, lengths *out) {
    if (ast_is_call(e, words_sources[SOURCE_FILE])) return eval_file(s, e, out);
    const bool drawn = ast_is_call(e, words_sources[SOURCE_LOGNORMAL]);
    if (drawn || ast_is_call(e, words_sources[SOURCE_CUMULATIVE])) {
        if (!out->cumulative) return drawn ? eval_lognormal(s, e, out) : eval_cumulative(s, e, out);
        diag_error(s->d, FCP_E_TYPE, e->at, "cumulative takes numbers, in a list or a file");
        return false;
    }
    if (e->kind == EXPR_STRING) {
        diag_error(s->d, FCP_E_TYPE, e->at, "a path stands in file(...)");
        diag_hint(s->d, "write file(\"%s\")", e->name);
        return false;
    }
    if (e->kind == EXPR_NAME || e->kind == EXPR_LIST || e->kind == EXPR_TUPLE || e->kind == EXPR_RANGE) {
        diag_error(s->d, FCP_E_TYPE, e->at, e->kind == EXPR_TUPLE ? "a list stands in [ ]" : "this is not a length");
        diag_hint(s->d, "lengths = [131072, 8192 x 32, 100:4096], file(\"a.lengths\"), cumulative([0, 100, 250]) or "
                        "lognormal(...)");
        return false;
    }
    if (e->kind == EXPR_CALL && words_find(words_functions, MASK_BUILTINS, e->name) < 0) {
        diag_error(s->d, FCP_E_UNKNOWN_NAME, e->name_at, "'%s' is nothing that makes lengths", e->name);
        if (!sema_hint_foreign(s, e->name, FCPC_FOREIGN_KEY, e))
            diag_hint(s->d, "these do: file(\"a.lengths\"), cumulative([0, 100, 250]), lognormal(...)");
        return false;
    }
    return eval_number(s, e, out);
}

static bool eval_list(sema *s, const expr *value, lengths *out) {
    if (value->kind != EXPR_LIST) return eval_element(s, value, out);
    if (!value->args) {
        diag_error(s->d, FCP_E_LENGTHS, value->at, "the batch is empty");
        return false;
    }
    bool good = true;
    size_t i = 0;
    for (const arg *a = value->args; a; a = a->next, i++) {
        if (i % 65536 == 0 && sema_stopped(s)) return false;
        good &= eval_element(s, a->value, out);
    }
    return good;
}

/* Reads lengths that are on some of the ranks, such as each part of: file("a.lengths") on 0..32, [4096 x 8] on
 * 32..64. */
static bool eval_part(sema *s, const expr *e, lengths *out) {
    if (e->kind != EXPR_ON) {
        diag_error(s->d, FCP_E_LENGTHS, e->at, "which ranks hold these?");
        diag_hint(s->d,
                  "lengths = file(\"a.lengths\") on 0..32, file(\"b.lengths\") on 32..64; or one list in brackets "
                  "for all");
        return false;
    }
    const uint32_t ranks = s->out->nodes * s->out->gpus;
    int64_t first = 0, end = 0;
    size_t before = out->count;
    bool good = sema_eval_constant(s, e->b->a, "a rank", &first);
    good = sema_eval_constant(s, e->b->b, "a rank", &end) && good;
    if (good && (first < 0 || first >= end || end > ranks)) {
        if (first >= end) diag_error(s->d, FCP_E_VALUE, e->b->at, "%" PRId64 "..%" PRId64 " is no rank", first, end);
        else
            diag_error(s->d, FCP_E_VALUE, e->b->at, "ranks %" PRId64 "..%" PRId64 ", but the cluster has %u", first,
                       end, ranks);
        diag_hint(s->d, "on 0..%u is all ranks: 0 is the first, and %u the last", ranks, ranks - 1);
        good = false;
    }
    good &= eval_list(s, e->a, out);
    if (good) out->parts[out->part_count++] = (program_part){out->count - before, (uint32_t)first, (uint32_t)end};
    return good;
}

/* Warns of lengths that look cumulative: they begin with 0 and never decrease, and three of them differ. */
static void warn_cumulative(sema *s, const expr *value, const lengths *l) {
    enum { SHOWN = 4, LONGEST = 40 };
    size_t steps = 0;
    for (size_t i = 1; i < l->count; i++) {
        if (l->at[i] < l->at[i - 1] || (l->queries && l->queries[i] < l->queries[i - 1])) return;
        steps += l->at[i] > l->at[i - 1];
    }
    if (steps < 2 || l->at[0] || (l->queries && l->queries[0])) return;
    text written = {0}, meant = {0};
    ast_print_expr(value, &written);
    for (size_t i = 1; i < l->count && i <= SHOWN; i++) {
        const uint64_t *of[2] = {l->queries, l->at};
        text_puts(&meant, i == 1 ? "[" : ", ");
        for (int k = !of[0]; k < 2; k++) text_printf(&meant, "%" PRIu64 "%s", of[k][i] - of[k][i - 1], k ? "" : ":");
    }
    text_puts(&meant, l->count > SHOWN + 1 ? ", ...]" : "]");
    char *list = text_take(&written), *differences = text_take(&meant);
    if (list && differences) {
        diag_warning(s->d, value->at, "these lengths begin with 0 and never decrease: are they cumulative?");
        diag_hint(s->d, "lengths = cumulative(%s) is %s", strlen(list) <= LONGEST ? list : "...", differences);
    }
    free(list);
    free(differences);
}

/* Reads pipeline(a, b, c, stages = 4): the micro-batches that are in the stages of a pipeline at one tick. At tick t
 * stage s has micro-batch t - s; backward, stage s of P has micro-batch t - (P - 1 - s). A stage is a P-th of the ranks,
 * and holds no tokens before its first micro-batch and after its last. */
static bool eval_pipeline(sema *s, const expr *value, lengths *out) {
    const uint32_t ranks = s->out->nodes * s->out->gpus;
    int64_t batches = 0, stages = 0, tick = 0;
    bool backward = false, good = true;
    for (const arg *a = value->args; a; a = a->next) {
        if (!a->name) batches++;
        else if (!strcmp(a->name, "stages")) good &= sema_eval_constant(s, a->value, "stages", &stages);
        else if (!strcmp(a->name, "backward") && a->value->kind == EXPR_BOOL) backward = a->value->integer;
        else {
            const bool known = !strcmp(a->name, "backward");
            diag_error(s->d, known ? FCP_E_TYPE : FCP_E_ARGUMENT, known ? a->value->at : a->name_at,
                       known ? "backward must be true or false" : "pipeline has no parameter '%s'", a->name);
            good = false;
        }
    }
    if (good && out->tick) good = sema_eval_constant(s, out->tick, "tick", &tick);
    if (!good) return false;
    if (!batches || stages < 1 || ranks % (uint64_t)stages) {
        if (!batches || !stages)
            diag_error(s->d, FCP_E_ARGUMENT, value->at, "pipeline needs %s", batches ? "its stages" : "micro-batches");
        else diag_error(s->d, FCP_E_VALUE, value->at, "%" PRId64 " stages do not divide %u ranks", stages, ranks);
        diag_hint(s->d, "for instance pipeline([64K], [4K x 16], stages = 2)");
        return false;
    }
    if (tick < 0 || tick > batches + stages - 2) {
        diag_error(s->d, FCP_E_VALUE, out->tick->at,
                   "tick must be from 0 to %" PRId64 ", because that is when the last of %" PRId64
                   " micro-batches is in the last of %" PRId64 " stages",
                   batches + stages - 2, batches, stages);
        return false;
    }
    if (!(out->parts = malloc((size_t)stages * sizeof *out->parts))) return report_outcome(s, NO_MEMORY, value->at);
    const uint32_t each = ranks / (uint32_t)stages;
    for (int64_t stage = 0; stage < stages && good; stage++) {
        const int64_t which = tick - (backward ? stages - 1 - stage : stage);
        const arg *a = value->args;
        if (which < 0 || which >= batches) continue;
        for (int64_t i = 0; a; a = a->next)
            if (!a->name && i++ == which) break;
        const size_t before = out->count;
        good = eval_list(s, a->value, out);
        const uint32_t first = (uint32_t)stage * each;
        out->parts[out->part_count++] = (program_part){out->count - before, first, first + each};
    }
    return good;
}

bool sema_eval_lengths(sema *s, const expr *value, lengths *out) {
    if (ast_is_call(value, words_sources[SOURCE_PIPELINE])) return eval_pipeline(s, value, out);
    if (out->tick) {
        diag_error(s->d, FCP_E_ARGUMENT, out->tick->at, "only a pipeline has ticks");
        diag_hint(s->d, "lengths = pipeline([64K], [4K x 16], stages = 2)");
        return false;
    }
    arg single = {.value = (expr *)value};
    const arg *first = value->kind == EXPR_TUPLE ? value->args : &single;
    size_t count = 0, on = 0;
    for (const arg *a = first; a; a = a->next) {
        count++;
        on += a->value->kind == EXPR_ON;
    }
    if (!on && !eval_list(s, value, out)) return false;
    if (!on && !ast_is_call(value, words_sources[SOURCE_CUMULATIVE])) warn_cumulative(s, value, out);
    if (!on) return true;
    if (!(out->parts = malloc(count * sizeof *out->parts))) return report_outcome(s, NO_MEMORY, value->at);
    bool good = true;
    for (const arg *a = first; a; a = a->next) good &= eval_part(s, a->value, out);
    return good;
}
