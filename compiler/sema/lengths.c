/* lengths.c: batches: lists of sequence lengths, files of them, and the language's own long-tailed generator.
 *
 * Requires: the value of batch.lengths: a number, a list of numbers, repeats, file("...") and lognormal(...), or one of
 *           the latter two alone; a:b for a number where a sequence has a queries and b keys. Gives: lengths of 1 token
 *           or more, LENGTHS_MAX of them and LENGTHS_SUM_MAX tokens on either side at most.
 * Cost:     O(lengths); a file is read once.
 * lognormal draws exp(ln median + sigma z), z standard normal, in integers only, so that every machine draws the same:
 *   - uniform bits: SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014);
 *   - z by inversion: the half normal distribution tabulated at steps of 1/128 up to 8.5 (density by the recurrence
 *     exp(-(x+h)^2/2) = exp(-x^2/2) exp(-xh - h^2/2), its integral by the trapezoid rule), linear between steps;
 *   - exp through 2^x: the fraction by its Taylor series in 62-bit fixed point, the whole part by shifting.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/sema.h"

typedef unsigned __int128 wide;

/* --- decimal numbers ---------------------------------------------------------------------------------------------- */

bool sema_parse_decimal(const char *digits, uint64_t *mantissa, int *exponent) {
    uint64_t m = 0;
    int e = 0, zeros = 0; /* zeros: trailing ones not yet multiplied in */
    bool point = false, good = true;
    const char *c = digits;
    for (; (*c >= '0' && *c <= '9') || *c == '.'; c++) {
        if (*c == '.') {
            point = true;
            continue;
        }
        if (point && e > -1000) e--;
        if (*c == '0') {
            if (m && zeros < 1000) zeros++;
            continue;
        }
        for (; zeros >= 0; zeros--) {
            if (m > UINT64_C(100000000000000000)) good = false;
            else m *= 10;
        }
        m += (uint64_t)(*c - '0');
        zeros = 0;
    }
    if (m) e += zeros;
    else e = 0;
    if (*c == 'e' || *c == 'E') {
        bool negative = c[1] == '-';
        c += 1 + (c[1] == '-' || c[1] == '+');
        int power = 0;
        for (; *c >= '0' && *c <= '9'; c++)
            if (power < 10000) power = power * 10 + (*c - '0');
        e += negative ? -power : power;
    }
    *mantissa = m;
    *exponent = m ? e : 0;
    return good;
}

bool sema_scale_decimal(uint64_t mantissa, int exponent, uint64_t *out) {
    wide v = mantissa;
    for (; exponent > 0 && v <= INT64_MAX; exponent--) v *= 10;
    wide divisor = 1;
    for (; exponent < 0 && divisor <= UINT64_MAX; exponent++) divisor *= 10;
    if (exponent < 0) v = 0;
    else v = (v + divisor / 2) / divisor;
    if (v > INT64_MAX) return false;
    *out = (uint64_t)v;
    return true;
}

/* --- lognormal ---------------------------------------------------------------------------------------------------- */

enum { STEP_BITS = 7, STEPS = 17 << (STEP_BITS - 1), DENSITY_BITS = 54 };
#define ONE60 (UINT64_C(1) << 60)
#define LN2_62 UINT64_C(3196577161300663915)
#define LOG2E_32 INT64_C(6196328019)

/* exp(-x) for x = 2^-bits, in 60 fractional bits, by its series. */
static uint64_t exp_minus(int bits) {
    uint64_t sum = ONE60, term = ONE60;
    for (uint64_t i = 1; term; i++) {
        term = (term >> bits) / i;
        sum = i & 1 ? sum - term : sum + term;
    }
    return sum;
}

/* sums[i]: the integral of exp(-x^2/2) from 0 to i / 128, in units of 2^-DENSITY_BITS steps. */
static void tabulate(uint64_t *sums) {
    uint64_t density = UINT64_C(1) << DENSITY_BITS;
    uint64_t ratio = exp_minus(2 * STEP_BITS + 1), shrink = exp_minus(2 * STEP_BITS);
    sums[0] = 0;
    for (int i = 0; i < STEPS; i++) {
        uint64_t next = (uint64_t)((wide)density * ratio >> 60);
        ratio = (uint64_t)((wide)ratio * shrink >> 60);
        sums[i + 1] = sums[i] + (density + next) / 2;
        density = next;
    }
}

static uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A standard normal deviate, in 32 fractional bits. */
static int64_t deviate(const uint64_t *sums, uint64_t *state) {
    uint64_t bits = random_bits(state);
    uint64_t target = (uint64_t)((wide)(bits >> 1) * sums[STEPS] >> 63);
    uint32_t low = 0, high = STEPS;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (sums[middle] <= target) low = middle;
        else high = middle;
    }
    uint64_t width = sums[high] - sums[low];
    uint64_t part = width ? (uint64_t)(((wide)(target - sums[low]) << 32) / width) : 0;
    int64_t z = (int64_t)((((uint64_t)low << 32) + part) >> STEP_BITS);
    return bits & 1 ? -z : z;
}

/* 2^f for f in [0, 1) with 32 fractional bits; the result has 62. */
static uint64_t power_of_two(uint32_t f) {
    uint64_t x = (uint64_t)((wide)((uint64_t)f << 30) * LN2_62 >> 62);
    uint64_t sum = UINT64_C(1) << 62, term = sum;
    for (uint64_t i = 1; term; i++) {
        term = (uint64_t)((wide)term * x >> 62) / i;
        sum += term;
    }
    return sum;
}

static uint64_t draw(const lognormal *l, const uint64_t *sums, uint64_t *state) {
    int64_t z = deviate(sums, state);
    int64_t t = (int64_t)((__int128)l->sigma * z / ((__int128)1 << 32));
    t = (int64_t)((__int128)t * LOG2E_32 / ((__int128)1 << 32));
    uint32_t fraction = (uint32_t)((uint64_t)t & UINT32_MAX);
    int64_t whole = (t - (int64_t)fraction) / (INT64_C(1) << 32);
    if (whole > 40) return l->max;
    if (whole < -45) return l->min;
    wide length = (wide)l->median * power_of_two(fraction);
    int shift = 62 - (int)whole;
    length = (length + ((wide)1 << (shift - 1))) >> shift;
    return length < l->min ? l->min : length > l->max ? l->max : (uint64_t)length;
}

/* --- collecting --------------------------------------------------------------------------------------------------- */

typedef enum outcome { ADDED, TOO_MANY_TOKENS, TOO_MANY_SEQUENCES, NO_MEMORY } outcome;

static bool reserve(uint64_t **at, size_t room) {
    uint64_t *grown = realloc(*at, room * sizeof *grown);
    if (grown) *at = grown;
    return grown;
}

static outcome push(lengths *out, uint64_t queries, uint64_t keys, uint64_t repeats) {
    if (repeats > LENGTHS_MAX || out->count + repeats > LENGTHS_MAX) return TOO_MANY_SEQUENCES;
    if (keys > LENGTHS_SUM_MAX || queries > LENGTHS_SUM_MAX ||
        (repeats && (keys > (LENGTHS_SUM_MAX - out->sum) / repeats ||
                     queries > (LENGTHS_SUM_MAX - out->query_sum) / repeats)))
        return TOO_MANY_TOKENS;
    if (out->count + repeats > out->room) {
        size_t room = out->room * 2 > out->count + repeats ? out->room * 2 : out->count + repeats;
        if (room < 64) room = 64;
        if (!reserve(&out->at, room) || (out->queries && !reserve(&out->queries, room))) return NO_MEMORY;
        out->room = room;
    }
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

static bool report(sema *s, outcome o, span at) {
    if (o == ADDED) return true;
    if (o == TOO_MANY_TOKENS) diag_error(s->d, FCP_E_LENGTHS, at, "the batch has more than 2^40 tokens with this");
    else if (o == TOO_MANY_SEQUENCES)
        diag_error(s->d, FCP_E_LENGTHS, at, "the batch has more than 2^24 sequences with this");
    else diag_error(s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory for the batch's lengths");
    return false;
}

static outcome draw_all(const lognormal *l, uint64_t count, uint64_t tokens, lengths *out) {
    uint64_t *sums = malloc((STEPS + 1) * sizeof *sums);
    if (!sums) return NO_MEMORY;
    tabulate(sums);
    uint64_t state = l->seed;
    outcome o = ADDED;
    if (count > LENGTHS_MAX) o = TOO_MANY_SEQUENCES;
    for (uint64_t i = 0, left = tokens; o == ADDED && (count ? i < count : left > 0); i++) {
        uint64_t length = draw(l, sums, &state);
        if (!count && length > left) length = left;
        if (!count) left -= length;
        o = push(out, length, length, 1);
    }
    free(sums);
    return o;
}

bool sema_draw_lognormal(const lognormal *l, uint64_t count, uint64_t tokens, lengths *out) {
    return draw_all(l, count, tokens, out) == ADDED;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* Reads digits at bytes[*i]; more than LENGTHS_SUM_MAX is one more. False: there are none. */
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
    while (*i < end && blank(bytes[*i])) ++*i;
}

/* One length a line, or a:b, or a b; blank lines and # comments. Stops at the first error. */
static bool parse_file(sema *s, const char *path, const char *bytes, size_t size, span at, lengths *out) {
    size_t before = out->count;
    for (size_t i = 0; i < size;) {
        const char *newline = memchr(bytes + i, '\n', size - i);
        size_t line_end = newline ? (size_t)(newline - bytes) : size, next = line_end + 1;
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
        if (rest || (end > begin && (queries == 0 || keys == 0))) {
            size_t stop = line_end;
            while (stop > begin && blank(bytes[stop - 1])) stop--;
            bool negative = rest && begin == end && bytes[begin] == '-' && stop > begin + 1;
            for (size_t j = begin + 1; negative && j < stop; j++) negative = bytes[j] >= '0' && bytes[j] <= '9';
            span where = sema_file_span(s, path, bytes, size, begin, rest ? stop : end, at);
            if (rest && !negative) {
                diag_error(s->d, FCP_E_LENGTHS_FILE, where, "this is not a length");
                diag_hint(s->d, "a file of lengths has one whole number a line, or QUERIES:KEYS; '#' begins a comment");
            } else diag_error(s->d, FCP_E_LENGTHS, where,
                              pair ? "a sequence has at least 1 query and 1 key" : "a length must be at least 1");
            diag_also(s->d, at, "the file is named here");
            return false;
        }
        outcome o = end > begin ? push(out, queries, keys, 1) : ADDED;
        if (o != ADDED) {
            report(s, o, o == NO_MEMORY ? at : sema_file_span(s, path, bytes, size, begin, end, at));
            diag_also(s->d, at, "the file is named here");
            return false;
        }
        i = next;
    }
    if (out->count > before) return true;
    diag_error(s->d, FCP_E_LENGTHS, at, "'%s' holds no lengths", path);
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
    size_t size = 0;
    char *bytes = sema_read_file(s, full, a->value->at, FILE_MAX, &size);
    bool good = bytes && sema_plain_text(s, full, a->value->at, FCP_E_LENGTHS_FILE, bytes, &size) &&
                parse_file(s, full, bytes, size, a->value->at, out);
    free(bytes);
    free(full);
    return good;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* A constant from `least` to `most`. */
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

/* sigma, from 0 to 8, times 2^32. */
static bool eval_sigma(sema *s, const expr *e, uint64_t *out) {
    uint64_t mantissa = 0;
    int exponent = 0;
    bool good = false;
    if (e->kind == EXPR_INT) {
        good = e->integer <= 8;
        mantissa = (uint64_t)e->integer;
    } else if (e->kind == EXPR_FLOAT) good = sema_parse_decimal(e->name, &mantissa, &exponent);
    uint64_t billionths;
    if (!good || !sema_scale_decimal(mantissa, exponent + 9, &billionths) || billionths > UINT64_C(8000000000)) {
        diag_error(s->d, FCP_E_VALUE, e->at, "sigma must be a number from 0 to 8, for instance 1.06");
        return false;
    }
    *out = (uint64_t)(((wide)billionths << 32) / 1000000000);
    return true;
}

static bool eval_lognormal(sema *s, const expr *e, lengths *out) {
    enum { MEDIAN, SIGMA, COUNT, TOKENS, MIN, MAX, SEED, NAMES };
    static const char *const names[NAMES] = {"median", "sigma", "count", "tokens", "min", "max", "seed"};
    const arg *given[NAMES] = {0};
    bool good = true;
    for (const arg *a = e->args; a; a = a->next) {
        int i = 0;
        while (a->name && i < NAMES && strcmp(names[i], a->name)) i++;
        if (!a->name || i == NAMES) {
            diag_error(s->d, FCP_E_ARGUMENT, a->name ? a->name_at : a->value->at,
                       a->name ? "lognormal has no parameter '%s'" : "lognormal takes named arguments%s",
                       a->name ? a->name : "");
            const char *nearest = a->name ? diag_nearest(a->name, strlen(a->name), names, NAMES) : NULL;
            if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
            else diag_hint(s->d, "lognormal(median = 2K, sigma = 1.06, tokens = 256K, min = 1, max = 128K, seed = 1)");
            good = false;
        } else if (given[i]) {
            diag_error(s->d, FCP_E_DUPLICATE, a->name_at, "'%s' is given twice", a->name);
            diag_also(s->d, given[i]->name_at, "first given here");
            good = false;
        } else given[i] = a;
    }
    if (!good) return false;
    if (!given[MEDIAN] || !given[SIGMA]) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "lognormal needs its %s", given[MEDIAN] ? "sigma" : "median");
        return false;
    }
    if (!given[COUNT] == !given[TOKENS]) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "lognormal needs one of count and tokens%s",
                   given[COUNT] ? ", not both" : "");
        return false;
    }
    lognormal l = {.min = 1, .max = LENGTHS_SUM_MAX, .seed = 1};
    uint64_t count = 0, tokens = 0;
    good = bounded(s, given[MEDIAN]->value, "median", 1, LENGTHS_SUM_MAX, &l.median);
    good &= eval_sigma(s, given[SIGMA]->value, &l.sigma);
    if (given[COUNT]) good &= bounded(s, given[COUNT]->value, "count", 1, LENGTHS_MAX, &count);
    if (given[TOKENS]) good &= bounded(s, given[TOKENS]->value, "tokens", 1, LENGTHS_SUM_MAX, &tokens);
    if (given[MIN]) good &= bounded(s, given[MIN]->value, "min", 1, LENGTHS_SUM_MAX, &l.min);
    if (given[MAX]) good &= bounded(s, given[MAX]->value, "max", 1, LENGTHS_SUM_MAX, &l.max);
    if (given[SEED]) good &= bounded(s, given[SEED]->value, "seed", 0, INT64_MAX, &l.seed);
    if (good && l.min > l.max) {
        diag_error(s->d, FCP_E_VALUE, e->at, "min is larger than max");
        good = false;
    }
    return good && report(s, draw_all(&l, count, tokens, out), e->at);
}

/* One number of a length. */
static bool eval_tokens(sema *s, const expr *e, const char *what, int64_t *out) {
    if (!sema_eval_constant(s, e, what, out)) return false;
    if (*out >= 1) return true;
    diag_error(s->d, FCP_E_LENGTHS, e->at, "%s must be at least 1, this is %" PRId64, what, *out);
    return false;
}

/* A length, queries:keys, or either x count. */
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
    return report(s, push(out, (uint64_t)queries, (uint64_t)keys, (uint64_t)repeats), e->at);
}

static bool eval_element(sema *s, const expr *e, lengths *out) {
    if (e->kind == EXPR_CALL && !strcmp(e->name, "file")) return eval_file(s, e, out);
    if (e->kind == EXPR_CALL && !strcmp(e->name, "lognormal")) return eval_lognormal(s, e, out);
    if (e->kind == EXPR_STRING) {
        diag_error(s->d, FCP_E_TYPE, e->at, "a path stands in file(...)");
        diag_hint(s->d, "write file(\"%s\")", e->name);
        return false;
    }
    if (e->kind == EXPR_NAME || e->kind == EXPR_LIST || e->kind == EXPR_TUPLE || e->kind == EXPR_RANGE) {
        diag_error(s->d, FCP_E_TYPE, e->at, "this is not a length");
        diag_hint(s->d, "lengths = [131072, 8192 x 32, 100:4096], file(\"a.lengths\") or lognormal(...)");
        return false;
    }
    return eval_number(s, e, out);
}

bool sema_eval_lengths(sema *s, const expr *value, lengths *out) {
    if (value->kind != EXPR_LIST) return eval_element(s, value, out);
    if (!value->args) {
        diag_error(s->d, FCP_E_LENGTHS, value->at, "the batch is empty");
        return false;
    }
    bool good = true;
    for (const arg *a = value->args; a; a = a->next) good &= eval_element(s, a->value, out);
    return good;
}
