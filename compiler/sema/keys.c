/* keys.c: reads the keys of the sections, such as `heads = 64`: it checks types, units and ranges, and fills in
 * defaults. The mask and the score of the plan are lowered elsewhere (expr/choose.c).
 *
 * Requires: a parsed program with overrides applied.
 * Gives:    every scalar of fcpc_program, and its lengths. A wrong key is reported and keeps its default, so that one
 *           mistake gives one error.
 * Cost:     O(program + batch).
 * Units:    bandwidths in bytes/s, times in ns, memory in bytes. Each is rounded once, from its decimal text.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/decimal.h"
#include "compiler/base/real.h"
#include "compiler/sema/keys.h"
#include "compiler/sema/lengths.h"
#include "compiler/sema/names.h"
#include "compiler/sema/sharing.h"
#include "compiler/sema/strategies.h"
#include "compiler/syntax/foreign_words.h"
#include "runtime/plan/enum_names.h"

enum {
    RANKS_MAX = 1 << 20,
    BLOCK_MIN = 1,
    BLOCK_MAX = 1 << 20,
    HEADS_MAX = 4096,
    HEAD_DIM_MAX = 1024
};

/* What a GPU can do, unless the program says otherwise. Bandwidths are one way, per GPU; flops are dense. */
typedef struct profile {
    const char *name;
    uint64_t intra, inter, latency_ns, flops16, flops32, memory, memory_bandwidth;
    uint32_t multiprocessors;
} profile;
#define G UINT64_C(1000000000)
static const profile profiles[] = {
    {"h100", 450 * G, 50 * G, 4000, 989000 * G, 67000 * G, 80 * G, 3350 * G, 132},
    {"a100", 300 * G, 25 * G, 4000, 312000 * G, 19500 * G, 80 * G, 2039 * G, 108},
    {"h200", 450 * G, 50 * G, 4000, 989000 * G, 67000 * G, 141 * G, 4800 * G, 132},
    {"b200", 900 * G, 50 * G, 4000, 2250000 * G, 75000 * G, 180 * G, 8000 * G, 148},
    {"910c", 392 * G, 50 * G, 4000, 752000 * G, 188000 * G, 128 * G, 3200 * G, 0}, /* flops32 is assumed */
    {"cpu", 10 * G, 1 * G, 20000, 100 * G, 100 * G, 16 * G, 20 * G, 0},
};
enum { PROFILES = sizeof profiles / sizeof *profiles };

/* --- the sections' entries ---------------------------------------------------------------------------------------- */

static void unknown_key(sema *s, section_id id, const entry *e) {
    diag_error(s->d, FCP_E_UNKNOWN_KEY, e->key_at, "%s has no key '%s'", words_sections[id], e->key);
    if (sema_hint_foreign(s, e->key, FCPC_FOREIGN_KEY, e->value)) return;
    const char *names[KEY_COUNT];
    size_t count = 0;
    for (int k = 0; k < KEY_COUNT; k++)
        if (words_keys[k].section == id) names[count++] = words_keys[k].name;
    const char *nearest = diag_nearest(e->key, strlen(e->key), names, count);
    if (nearest) {
        diag_hint(s->d, "did you mean '%s'?", nearest);
        return;
    }
    for (int k = 0; k < KEY_COUNT; k++)
        if (words_same(words_keys[k].name, e->key)) {
            diag_hint(s->d, "'%s' is a key of %s", e->key, words_sections[words_keys[k].section]);
            return;
        }
    bool data = e->value->kind == EXPR_LIST || ast_is_call(e->value, words_sources[SOURCE_FILE]);
    if (data && (id == SECTION_BATCH || id == SECTION_MODEL)) {
        const char *as = id == SECTION_BATCH ? "field" : "table";
        diag_hint(s->d, "a %s is declared so: %s %s = ...", as, as, e->key);
        return;
    }
    text list = {0};
    for (size_t i = 0; i < count; i++) text_printf(&list, "%s%s", i ? ", " : "", names[i]);
    char *line = text_take(&list);
    if (line) diag_hint(s->d, "the keys are: %s", line);
    free(line);
}

void sema_collect_keys(sema *s, sema_keys *k) {
    for (const section *x = s->program.sections; x; x = x->next) {
        section_id id = words_find_section(x->name);
        if (id == SECTION_COUNT) {
            k->misspelled = true;
            bool is_mask = words_same(x->name, "mask") || words_same(x->name, "score");
            diag_error(s->d, FCP_E_UNKNOWN_NAME, x->name_at, is_mask ? "'%s' is not a section" : "unknown section '%s'",
                       x->name);
            const char *nearest = diag_nearest(x->name, strlen(x->name), words_sections, SECTION_COUNT);
            if (is_mask) diag_hint(s->d, "a mask is an expression: mask name(parameters) = k <= q");
            else if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
            else diag_hint(s->d, "the sections are model, cluster, batch and plan");
            continue;
        }
        if (k->sections[id]) {
            diag_error(s->d, FCP_E_DUPLICATE, x->name_at, "section '%s' is given twice", x->name);
            diag_also(s->d, k->sections[id]->name_at, "first given here");
            continue;
        }
        k->sections[id] = x;
        for (const entry *e = x->entries; e; e = e->next) {
            if (e->as) continue; /* a field or table: arrays.c */
            key_id key = words_find_key(id, e->key);
            if (key == KEY_COUNT) unknown_key(s, id, e);
            else if (k->at[key]) {
                diag_error(s->d, FCP_E_DUPLICATE, e->key_at, "'%s' is given twice", e->key);
                diag_also(s->d, k->at[key]->key_at, "first given here");
            } else k->at[key] = e;
        }
    }
}

/* --- kinds of values ---------------------------------------------------------------------------------------------- */

/* Reads a whole number from `least` to `most` into *out. False: the key is absent, or wrong and reported; *out is as
 * it was. */
static bool count_key(sema *s, const sema_keys *k, key_id key, uint32_t least, uint32_t most, fcp_code code,
                      uint32_t *out) {
    const entry *e = k->at[key];
    int64_t v;
    if (!e || !sema_eval_constant(s, e->value, e->key, &v)) return false;
    if (v < least || v > most) {
        diag_error(s->d, code, e->value->at, "%s must be from %u to %u, this is %" PRId64, e->key, least, most, v);
        return false;
    }
    *out = (uint32_t)v;
    return true;
}

/* "910c" stands in quotes: to the scanner, what begins with a digit is a number. */
static bool is_quoted(const char *name) { return *name >= '0' && *name <= '9'; }

/* Makes a list of names for a message: "fcp, ring or zigzag", where `last` is " or ". malloc'd, the caller frees; NULL:
 * no memory. */
static char *name_list(const char *const *names, int count, const char *last) {
    text list = {0};
    for (int i = 0; i < count; i++) {
        const char *quote = is_quoted(names[i]) ? "\"" : "";
        text_printf(&list, "%s%s%s%s", i == 0 ? "" : i + 1 < count ? ", " : last, quote, names[i], quote);
    }
    return text_take(&list);
}

int sema_choice(sema *s, const expr *e, const char *what, const char *const *names, int count) {
    const bool string = e->kind == EXPR_STRING, word = string || e->kind == EXPR_NAME || e->kind == EXPR_CALL;
    for (int i = 0; i < count && word; i++)
        if (words_same(names[i], e->name) && string == is_quoted(names[i])) return i;
    char *line = name_list(names, count, " or ");
    diag_error(s->d, FCP_E_VALUE, e->at, "%s must be %s", what, line ? line : "one of its names");
    free(line);
    const unsigned places = names == strategy_names ? FCPC_FOREIGN_STRATEGY : FCPC_FOREIGN_VALUE;
    const foreign_word *usual = word ? foreign_words_find(e->name, places, NULL) : NULL;
    if (usual && (places == FCPC_FOREIGN_STRATEGY || !*usual->write || words_find(names, count, usual->write) >= 0)) {
        sema_hint_foreign(s, e->name, places, NULL);
        return -1;
    }
    const char *nearest = word ? diag_nearest(e->name, strlen(e->name), names, (size_t)count) : NULL;
    if (nearest && is_quoted(nearest)) diag_hint(s->d, "did you mean \"%s\"?", nearest);
    else if (nearest) diag_hint(s->d, string ? "write %s without quotes" : "did you mean '%s'?", nearest);
    return -1;
}

static bool choice_key(sema *s, const sema_keys *k, key_id key, const char *const *names, int count, int *out) {
    const entry *e = k->at[key];
    if (!e) return false;
    if (e->value->kind == EXPR_CALL) {
        diag_error(s->d, FCP_E_ARGUMENT, e->value->at, "%s takes a name without arguments", e->key);
        return false;
    }
    int i = sema_choice(s, e->value, e->key, names, count);
    if (i >= 0) *out = i;
    return i >= 0;
}

bool sema_quantity(sema *s, const expr *v, const char *what, unit_dimension dimension, int power, const char *example,
                   uint64_t *out) {
    if (v->kind != EXPR_QUANTITY || words_units[v->integer].dimension != dimension) {
        bool number = v->kind == EXPR_INT || v->kind == EXPR_FLOAT;
        if (v->kind == EXPR_QUANTITY)
            diag_error(s->d, FCP_E_UNIT, v->at, "%s is not measured in %s", what, words_units[v->integer].spelling);
        else diag_error(s->d, number ? FCP_E_UNIT : FCP_E_TYPE, v->at, "%s needs a number with its unit", what);
        diag_hint(s->d, "for instance %s", example);
        return false;
    }
    uint64_t mantissa = v->a->kind == EXPR_INT ? (uint64_t)v->a->integer : 0, result = 0;
    int exponent = 0;
    bool good = v->a->kind == EXPR_INT || decimal_parse(v->a->name, &mantissa, &exponent);
    good = good && decimal_scale(mantissa, exponent + words_units[v->integer].power + power, &result);
    if (!good || !result) {
        diag_error(s->d, FCP_E_VALUE, v->at, "%s is too %s", what, good ? "small" : "large, or has too many digits");
        return false;
    }
    *out = result;
    return true;
}

static bool quantity_key(sema *s, const sema_keys *k, key_id key, unit_dimension dimension, uint64_t *out) {
    static const char *const example[] =
        {[UNIT_BYTES] = "80 GB", [UNIT_BANDWIDTH] = "50 GB/s", [UNIT_TIME] = "5 us", [UNIT_FLOPS] = "989 TFLOP/s"};
    const entry *e = k->at[key];
    return e && sema_quantity(s, e->value, e->key, dimension, 0, example[dimension], out);
}

/* Reads a number other than 0, whole or with a point, as mantissa and exponent. `minus` NULL: it must be positive. */
static bool number_key(sema *s, const sema_keys *k, key_id key, bool *minus, uint64_t *mantissa, int *exponent) {
    const entry *e = k->at[key];
    if (!e) return false;
    const expr *v = e->value;
    *exponent = 0;
    if (minus) {
        *minus = v->kind == EXPR_UNARY && v->op == OP_NEG;
        if (*minus) v = v->a;
    }
    if (v->kind == EXPR_INT) *mantissa = (uint64_t)v->integer;
    else if (v->kind == EXPR_QUANTITY) {
        diag_error(s->d, FCP_E_UNIT, v->at, "%s takes no unit", e->key);
        return false;
    } else if (v->kind != EXPR_FLOAT) {
        diag_error(s->d, FCP_E_TYPE, v->at, "%s must be a number, for instance 1.5", e->key);
        return false;
    } else if (!decimal_parse(v->name, mantissa, exponent)) {
        diag_error(s->d, FCP_E_NUMBER, v->at, "%s has more than 18 digits", e->key);
        return false;
    }
    if (*mantissa) return true;
    diag_error(s->d, FCP_E_VALUE, v->at, minus ? "%s must not be 0" : "%s must be larger than 0", e->key);
    return false;
}

int sema_flag(sema *s, const expr *e, const char *what) {
    if (e->kind == EXPR_BOOL) return e->integer != 0;
    diag_error(s->d, FCP_E_TYPE, e->at, "%s must be true or false", what);
    return -1;
}

static void flag_key(sema *s, const sema_keys *k, key_id key, bool *out) {
    const entry *e = k->at[key];
    int flag = e ? sema_flag(s, e->value, e->key) : -1;
    if (flag >= 0) *out = flag;
}

/* --- sections ----------------------------------------------------------------------------------------------------- */

/* Reads head_dim or value_dim. False: it is wrong and reported, and *out is a number that would do. */
static bool dim_key(sema *s, const sema_keys *k, key_id key, uint32_t *out) {
    if (!k->at[key]) return true;
    if (!count_key(s, k, key, 8, HEAD_DIM_MAX, FCP_E_HEADS, out)) return false;
    if (*out % 8 == 0) return true;
    uint32_t up = (*out + 7) / 8 * 8;
    diag_error(s->d, FCP_E_HEADS, k->at[key]->value->at, "%s must be a multiple of 8", k->at[key]->key);
    diag_hint(s->d, "the nearest are %u and %u", up - 8, up);
    *out = up;
    return false;
}

/* Reads head_dim, value_dim and `values`, and checks that they fit together. */
static void check_dims(sema *s, const sema_keys *k) {
    static const char *const words[] = {"own", "keys"};
    struct fcpc_program *p = s->out;
    int values = 0;
    bool good = dim_key(s, k, KEY_HEAD_DIM, &p->head_dim);
    p->value_dim = p->head_dim;
    good &= dim_key(s, k, KEY_VALUE_DIM, &p->value_dim);
    choice_key(s, k, KEY_VALUES, words, 2, &values);
    p->values_in_keys = values == 1;
    if (!p->values_in_keys || p->value_dim <= p->head_dim) return;
    if (good) {
        diag_error(s->d, FCP_E_HEADS, k->at[KEY_VALUE_DIM]->value->at,
                   "value_dim must be at most head_dim where values are part of keys; %u is more than %u",
                   p->value_dim, p->head_dim);
        diag_also(s->d, k->at[KEY_VALUES]->value->at, "V is the first value_dim numbers of each key");
        if (k->at[KEY_HEAD_DIM]) diag_also(s->d, k->at[KEY_HEAD_DIM]->value->at, "head_dim");
        else diag_hint(s->d, "head_dim is %u unless it is set", p->head_dim);
    }
    p->value_dim = p->head_dim;
}

void sema_check_model(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    p->heads = 8;
    p->head_dim = 128;
    int dtype = FCP_BF16;
    bool heads = count_key(s, k, KEY_HEADS, 1, HEADS_MAX, FCP_E_HEADS, &p->heads) || !k->at[KEY_HEADS];
    p->kv_heads = p->heads;
    bool kv_heads = count_key(s, k, KEY_KV_HEADS, 1, HEADS_MAX, FCP_E_HEADS, &p->kv_heads);
    if (heads && kv_heads && p->heads % p->kv_heads) {
        const span at = k->at[KEY_KV_HEADS]->value->at;
        diag_error(s->d, FCP_E_HEADS, at, "kv_heads must divide heads; %u does not divide %u", p->kv_heads, p->heads);
        if (k->at[KEY_HEADS]) diag_also(s->d, k->at[KEY_HEADS]->value->at, "heads");
        else diag_hint(s->d, "heads is 8 unless it is set");
    }
    check_dims(s, k);
    choice_key(s, k, KEY_DTYPE, fcp_dtype_names, FCP_DTYPES, &dtype);
    p->dtype = (fcp_dtype)dtype;
    p->scale = 1.0 / sqrt((double)p->head_dim); /* IEEE 754 rounds both correctly, so it is the same everywhere */
    uint64_t mantissa;
    int exponent;
    bool minus;
    if (!number_key(s, k, KEY_SCALE, &minus, &mantissa, &exponent)) return;
    const expr *scale = minus ? k->at[KEY_SCALE]->value->a : k->at[KEY_SCALE]->value;
    if (scale->kind == EXPR_INT) p->scale = (double)scale->integer;
    else if (exponent < -19 || exponent > 19 || !real_parse(scale->name, &p->scale))
        diag_error(s->d, FCP_E_VALUE, scale->at, "scale is out of range");
    if (minus) p->scale = -p->scale;
}

void sema_check_cluster(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    const char *names[PROFILES];
    for (int i = 0; i < PROFILES; i++) names[i] = profiles[i].name;
    int gpu = 0, fabric = 0;
    choice_key(s, k, KEY_GPU, names, PROFILES, &gpu);
    const profile *g = &profiles[gpu];
    p->nodes = p->gpus = 1;
    bool nodes = count_key(s, k, KEY_NODES, 1, RANKS_MAX, FCP_E_VALUE, &p->nodes);
    bool gpus = count_key(s, k, KEY_GPUS, 1, RANKS_MAX, FCP_E_VALUE, &p->gpus);
    p->at[AT_RANKS] = nodes ? k->at[KEY_NODES]->value->at : gpus ? k->at[KEY_GPUS]->value->at : SPAN_NONE;
    if ((uint64_t)p->nodes * p->gpus > RANKS_MAX) {
        diag_error(s->d, FCP_E_VALUE, p->at[AT_RANKS], "%u nodes of %u GPUs are more than %d ranks", p->nodes, p->gpus,
                   RANKS_MAX);
        p->nodes = p->gpus = 1;
    }
    choice_key(s, k, KEY_FABRIC, fcp_topology_names, FCP_TOPOLOGY_COUNT, &fabric);
    p->topology = (fcp_topology)fabric;
    fcp_cluster *c = &p->cluster;
    *c = (fcp_cluster){.intra = g->intra,
                       .inter = g->inter,
                       .latency_ns = g->latency_ns,
                       .memory_bandwidth = g->memory_bandwidth,
                       .multiprocessors = g->multiprocessors,
                       .flops = p->dtype == FCP_FP32 ? g->flops32 : g->flops16,
                       .oversubscription_milli = 1000};
    memcpy(c->gpu, g->name, strlen(g->name));
    p->memory_cap = g->memory;
    quantity_key(s, k, KEY_INTRA, UNIT_BANDWIDTH, &c->intra);
    quantity_key(s, k, KEY_INTER, UNIT_BANDWIDTH, &c->inter);
    quantity_key(s, k, KEY_LATENCY, UNIT_TIME, &c->latency_ns);
    quantity_key(s, k, KEY_FLOPS, UNIT_FLOPS, &c->flops);
    quantity_key(s, k, KEY_MEMORY_BANDWIDTH, UNIT_BANDWIDTH, &c->memory_bandwidth);
    p->at[AT_MEMORY] =
        quantity_key(s, k, KEY_MEMORY, UNIT_BYTES, &p->memory_cap) ? k->at[KEY_MEMORY]->value->at : SPAN_NONE;
    uint64_t mantissa;
    int exponent;
    if (number_key(s, k, KEY_OVERSUBSCRIPTION, NULL, &mantissa, &exponent)) {
        uint64_t milli;
        if (!decimal_scale(mantissa, exponent + 3, &milli) || milli < 1000 || milli > 1000000)
            diag_error(s->d, FCP_E_VALUE, k->at[KEY_OVERSUBSCRIPTION]->value->at,
                       "oversubscription must be from 1 to 1000");
        else c->oversubscription_milli = milli;
    }
}

void sema_check_batch(sema *s, const sema_keys *k, bool needed) {
    struct fcpc_program *p = s->out;
    int align = FCP_BOTTOM_RIGHT;
    choice_key(s, k, KEY_ALIGN, fcp_align_names, FCP_ALIGN_COUNT, &align);
    p->align = (fcp_align)align;
    s->documents = k->at[KEY_DOCUMENTS];
    const entry *e = k->at[KEY_LENGTHS];
    p->at[AT_LENGTHS] = e ? e->value->at : SPAN_NONE;
    if (!e) {
        if (!needed || k->misspelled) return;
        const section *batch = k->sections[SECTION_BATCH];
        diag_error(s->d, FCP_E_MISSING, batch ? batch->name_at : s->program.end, "the program has no batch");
        diag_hint(s->d, "say batch { lengths = [131072, 8192 x 32] }, or give a file with --lengths");
        return;
    }
    lengths found = {.tick = k->at[KEY_TICK] ? k->at[KEY_TICK]->value : NULL};
    if (sema_eval_lengths(s, e->value, &found)) {
        uint64_t *own = ARENA_NEW(&p->arena, uint64_t, found.count);
        uint64_t *queries = found.queries ? ARENA_NEW(&p->arena, uint64_t, found.count) : NULL;
        program_part *parts = found.part_count ? ARENA_NEW(&p->arena, program_part, found.part_count) : NULL;
        if (own && !found.queries == !queries && !found.part_count == !parts) {
            if (parts) memcpy(parts, found.parts, found.part_count * sizeof *parts);
            p->parts = parts;
            p->part_count = found.part_count;
            memcpy(own, found.at, found.count * sizeof *own);
            if (queries) memcpy(queries, found.queries, found.count * sizeof *queries);
            p->lengths = own;
            p->queries = queries;
            p->length_count = found.count;
        } else {
            diag_error(s->d, FCP_E_NO_MEMORY, SPAN_NONE, "out of memory for the batch's lengths");
            s->no_memory = true;
        }
    }
    free(found.at);
    free(found.queries);
    free(found.parts);
}

static void check_block(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    const entry *e = k->at[KEY_BLOCK];
    p->block = BLOCK_AUTO;
    p->at[AT_BLOCK] = SPAN_NONE;
    if (!e) return;
    int64_t v;
    if (e->value->kind == EXPR_NAME && !strcmp(e->value->name, "auto")) {
        p->at[AT_BLOCK] = e->value->at;
        return;
    }
    if (!sema_eval_constant(s, e->value, "block", &v)) return;
    if (v < BLOCK_MIN || v > BLOCK_MAX) {
        diag_error(s->d, FCP_E_BLOCK, e->value->at, "block must be from %d to %d tokens, this is %" PRId64, BLOCK_MIN,
                   BLOCK_MAX, v);
        return;
    }
    if (v > FCP_CELL && v % FCP_CELL) { /* smaller ones are for small batches: their cells are cut anyway */
        diag_error(s->d, FCP_E_BLOCK, e->value->at, "a block of more than %d tokens must be a multiple of %d", FCP_CELL,
                   FCP_CELL);
        int64_t down = v / FCP_CELL * FCP_CELL;
        diag_hint(s->d, "the nearest are %" PRId64 " and %" PRId64, down, down + FCP_CELL);
        return;
    }
    p->block = (uint32_t)v;
    p->at[AT_BLOCK] = e->value->at;
}

/* Adds the usual value of a strategy's parameter, as a program would write it. */
static void put_usual(text *t, const strategy_param *p) {
    if (p->kind == PARAM_SET) {
        for (uint32_t i = 0; i <= p->most; i++) text_printf(t, "%s%s", i ? ", " : "[", p->words[i]);
        text_puts(t, "]");
    } else if (p->words && p->usual < (p->kind == PARAM_WORD ? p->most + 1 : 1)) text_puts(t, p->words[p->usual]);
    else if (p->kind == PARAM_RATIO) text_printf(t, "%.10g", p->usual / 1e6);
    else if (p->kind == PARAM_FLAG) text_puts(t, p->usual ? "true" : "false");
    else text_printf(t, "%u", p->usual);
}

/* Adds a hint with the strategy and its parameters as a program would write them: ring(coalesce = 16, buffers = 3). */
static void hint_params(sema *s, uint32_t which) {
    text t = {0};
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++) {
        if (!strategy_takes(which, i)) continue;
        text_printf(&t, "%s%s = ", t.size ? ", " : "", strategy_params[i].name);
        put_usual(&t, &strategy_params[i]);
    }
    char *line = text_take(&t);
    if (line) diag_hint(s->d, "%s(%s)", strategy_names[which], line);
    free(line);
}

/* Reads a number with a point as millionths. False: it is none, or not in the range, reported. */
static bool ratio_value(sema *s, const expr *e, const strategy_param *p, uint32_t *out) {
    uint64_t mantissa = 0, v = 0;
    int exponent = 0;
    if (e->kind == EXPR_INT) mantissa = (uint64_t)e->integer;
    else if (e->kind != EXPR_FLOAT || !decimal_parse(e->name, &mantissa, &exponent)) {
        diag_error(s->d, FCP_E_TYPE, e->at, "%s must be %s%sa number from %.10g to %.10g, for instance %.10g", p->name,
                   p->words ? p->words[0] : "", p->words ? " or " : "", p->least / 1e6, p->most / 1e6,
                   p->usual ? p->usual / 1e6 : 0.1);
        return false;
    }
    bool good = decimal_scale(mantissa, exponent + 6, &v), small = good && v < p->least;
    if (good && !small && v <= p->most) {
        *out = (uint32_t)v;
        return true;
    }
    text written = {0};
    ast_print_expr(e, &written);
    char *line = text_take(&written);
    diag_error(s->d, FCP_E_VALUE, e->at, "%s = %s: at %s %.10g", p->name, line ? line : "?", small ? "least" : "most",
               (small ? p->least : p->most) / 1e6);
    free(line);
    return false;
}

/* Reads a list of words as a bit for each; a single word stands for a list of one. */
static void set_value(sema *s, const expr *e, const strategy_param *p, uint32_t *out) {
    const arg single = {.value = (expr *)e};
    uint32_t found = 0;
    bool good = true;
    for (const arg *a = e->kind == EXPR_LIST ? e->args : &single; a; a = a->next) {
        if (a->value->kind == EXPR_CALL) {
            diag_error(s->d, FCP_E_ARGUMENT, a->value->at, "%s takes names without arguments", p->name);
            good = false;
            continue;
        }
        int i = sema_choice(s, a->value, p->name, p->words, (int)p->most + 1);
        if (i >= 0 && found >> i & 1)
            diag_error(s->d, FCP_E_DUPLICATE, a->value->at, "'%s' is given twice", p->words[i]);
        if (i < 0 || found >> i & 1) good = false;
        else found |= 1u << i;
    }
    if (good && !found) {
        diag_error(s->d, FCP_E_VALUE, e->at, "%s is empty", p->name);
        diag_hint(s->d, "without it all are tried");
    } else if (good) *out = found;
}

/* Reads a time as microseconds. */
static void time_value(sema *s, const expr *e, const strategy_param *p, uint32_t *out) {
    uint64_t ns;
    if (!sema_quantity(s, e, p->name, UNIT_TIME, 0, "2 s", &ns)) return;
    if (ns / 1000 >= p->least && (ns - 1) / 1000 < p->most) *out = (uint32_t)(ns / 1000);
    else diag_error(s->d, FCP_E_VALUE, e->at, "%s must be from %u us to %u s", p->name, p->least, p->most / 1000000);
}

static void check_value(sema *s, const expr *e, const strategy_param *p, uint32_t *out) {
    int64_t v;
    const bool named = p->words && e->kind == EXPR_NAME && !strcmp(e->name, p->words[0]);
    if (p->kind == PARAM_RATIO && !named) {
        ratio_value(s, e, p, out);
    } else if (p->kind == PARAM_FLAG) {
        int flag = sema_flag(s, e, p->name);
        if (flag >= 0) *out = (uint32_t)flag;
    } else if (p->kind == PARAM_SET) {
        set_value(s, e, p, out);
    } else if (p->kind == PARAM_WORD) {
        int i = e->kind == EXPR_CALL ? -1 : sema_choice(s, e, p->name, p->words, (int)p->most + 1);
        if (i >= 0) *out = (uint32_t)i;
        else if (e->kind == EXPR_CALL)
            diag_error(s->d, FCP_E_ARGUMENT, e->at, "%s takes a name without arguments", p->name);
    } else if (named) {
        *out = 0;
    } else if (p->kind == PARAM_TIME) {
        time_value(s, e, p, out);
    } else if (sema_eval_constant(s, e, p->name, &v)) {
        if (v >= p->least && v <= p->most) *out = (uint32_t)v;
        else diag_error(s->d, FCP_E_VALUE, e->at, "%s must be %s%sfrom %u to %u, this is %" PRId64, p->name,
                        p->words ? p->words[0] : "", p->words ? " or " : "", p->least, p->most, v);
    } else if (p->words) diag_hint(s->d, "%s takes %s or a number", p->name, p->words[0]);
}

/* Reads one argument of a strategy. given[i] becomes the argument that sets parameter i. */
static void check_param(sema *s, uint32_t which, const arg *a, const arg **given) {
    uint32_t i = a->name ? strategy_find_param(which, a->name) : STRATEGY_PARAMS;
    if (i == STRATEGY_PARAMS) {
        const char *names[STRATEGY_PARAMS], *strategy = strategy_names[which];
        uint32_t count = strategy_param_names(which, names);
        if (a->name)
            diag_error(s->d, FCP_E_ARGUMENT, a->name_at, "strategy '%s' has no parameter '%s'", strategy, a->name);
        else diag_error(s->d, FCP_E_ARGUMENT, a->value->at, "strategies take named arguments");
        const char *nearest = NULL;
        for (const foreign_word *h = NULL;
             a->name && !nearest && (h = foreign_words_find(a->name, FCPC_FOREIGN_ARGUMENT, h));)
            if (words_find(names, (int)count, h->write) >= 0) nearest = h->write;
        if (a->name && !nearest) nearest = diag_nearest(a->name, strlen(a->name), names, count);
        if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
        else hint_params(s, which);
        return;
    }
    for (uint32_t k = 0; k < STRATEGY_PARAMS; k++) { /* what two strategies call by one name is one number */
        if (!given[k] || strategy_params[k].offset != strategy_params[i].offset) continue;
        diag_error(s->d, FCP_E_DUPLICATE, a->name_at, "'%s' is given twice", a->name);
        diag_also(s->d, given[k]->name_at, "first given here");
        return;
    }
    given[i] = a;
    check_value(s, a->value, &strategy_params[i], strategy_param_of(s->out, i));
}

static void check_params(sema *s, uint32_t which, const expr *call, const arg **given) {
    for (const arg *a = call->kind == EXPR_CALL ? call->args : NULL; a; a = a->next) check_param(s, which, a, given);
}

static void take_usual(struct fcpc_program *p, uint32_t which) {
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (strategy_takes(which, i)) *strategy_param_of(p, i) = strategy_params[i].usual;
}

/* The argument that states a parameter of a strategy; NULL: none does, or the strategy has no such parameter. */
static const arg *given_for(const arg *const *given, uint32_t strategy, const char *name) {
    const uint32_t param = strategy_find_param(strategy, name);
    return param < STRATEGY_PARAMS ? given[param] : NULL;
}

/* Refuses a strategy that is given both `divisions` and `coalesce`, because each of them says how many stages there
 * are. */
static void check_divisions(sema *s, uint32_t divides, const arg *const *given) {
    struct fcpc_program *p = s->out;
    const arg *memory = given_for(given, divides, "epsilon_memory"),
              *divisions = given_for(given, divides, "divisions"), *coalesce = given_for(given, divides, "coalesce");
    if (memory) p->at[AT_EPSILON] = memory->value->at;
    if (p->coalesce && coalesce && divisions) {
        diag_error(s->d, FCP_E_VALUE, divisions->name_at, "coalesce and divisions both say how many stages there are");
        diag_also(s->d, coalesce->name_at, "coalesce is given here");
    }
}

/* Sets the rounds of a stage for groups of ranks that share heads. If heads are computed in phases, each phase has its
 * own stages. The number of rounds in these cannot be stated, so `coalesce` and `divisions` are then refused. */
static void check_stages(sema *s, uint32_t divides, const arg *const *given) {
    struct fcpc_program *p = s->out;
    const arg *coalesce = given_for(given, divides, "coalesce");
    const arg *stated = coalesce ? coalesce : given_for(given, divides, "divisions");
    if (p->together < p->heads && stated) {
        diag_error(s->d, FCP_E_ARGUMENT, stated->name_at, "%s: each phase of %u heads has its own stages",
                   stated->name, p->together);
        diag_hint(s->d, "leave it out, or take ulysses, which has no phases");
    }
    if (p->together < p->heads) p->coalesce = 1;
    else if (!coalesce && p->coalesce) p->coalesce = program_rounds_between(p->coalesce, p->inside);
}

static void check_strategy(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    const entry *e = k->at[KEY_STRATEGY];
    p->strategy = STRATEGY_USUAL;
    p->at[AT_STRATEGY] = e ? e->value->at : SPAN_NONE;
    p->at[AT_EPSILON] = SPAN_NONE;
    const expr *between = NULL, *call = e ? sema_between_of(s, e->value, &between) : NULL;
    int which = call ? sema_choice(s, call, "strategy", strategy_names, STRATEGY_ANY) : -1;
    if (which >= 0) p->strategy = (fcp_strategy)which;
    p->coalesce = 1; /* of those that do not take it */
    const arg *given[STRATEGY_PARAMS] = {0};
    const uint32_t divides = program_divides_by(p);
    take_usual(p, divides);
    take_usual(p, p->strategy);
    if (which >= 0) check_params(s, p->strategy, call, given);
    if (between) check_params(s, divides, between, given);
    check_divisions(s, divides, given);
    if (which >= 0 && strategy_shares_heads(p->strategy)) {
        const arg *inside = given_for(given, p->strategy, "inside"), *together = given_for(given, p->strategy, "heads");
        sema_check_sharing(s, e->value->at, inside ? inside->value : NULL, together ? together->value : NULL);
        if (program_has_groups(p)) check_stages(s, divides, given);
    }
    const arg *among = given_for(given, p->strategy, "among"), *servers = given_for(given, divides, "servers");
    if (among) sema_check_among(s, among->value->at);
    uint32_t ranks = p->nodes * p->gpus;
    if (servers && program_has_groups(p) && p->servers % p->inside) {
        const uint32_t lanes = p->inside, whole = p->servers / lanes * lanes;
        diag_error(s->d, FCP_E_VALUE, servers->value->at,
                   "servers = %u: groups of %u ranks share heads, and are servers as a whole or not", p->servers,
                   lanes);
        diag_hint(s->d, "servers = %u would do", whole ? whole : lanes);
        return;
    }
    if (!servers || p->servers < ranks) return;
    diag_error(s->d, FCP_E_VALUE, servers->value->at, "servers = %u of %u rank%s: none is left for tokens",
               p->servers, ranks, ranks == 1 ? "" : "s");
    if (ranks > 1) diag_hint(s->d, "at most %u", ranks - 1);
}

/* Adds a hint with the divisors of n that would do: "1, 2, 4 or 8 would do". If there are many, only the largest. */
static void hint_divisors(sema *s, uint32_t n) {
    enum { MOST = 8 };
    uint32_t found[MOST], count = 0;
    text t = {0};
    for (uint32_t d = n; d && count < MOST; d--)
        if (n % d == 0) found[count++] = d;
    for (uint32_t i = count; i--;)
        text_printf(&t, "%u%s", found[i], i > 1 ? ", " : i ? " or " : "");
    char *line = text_take(&t);
    if (line) diag_hint(s->d, "%s would do", line);
    free(line);
}

/* Reads the key `layout`, such as layout = contiguous(group = 8). */
static void check_layout(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    const entry *e = k->at[KEY_LAYOUT];
    p->layout = FCP_LAYOUT_PLANNED;
    p->layout_group = 0;
    p->at[AT_LAYOUT] = e ? e->value->at : SPAN_NONE;
    if (!e) return;
    int which = sema_choice(s, e->value, "layout", fcp_layout_names, FCP_LAYOUTS);
    if (which < 0) return;
    p->layout = (fcp_layout)which;
    const arg *given = NULL;
    uint32_t ranks = p->nodes * p->gpus;
    for (const arg *a = e->value->kind == EXPR_CALL ? e->value->args : NULL; a; a = a->next) {
        const char *name = fcp_layout_names[which];
        int64_t v;
        if (p->layout == FCP_LAYOUT_PLANNED) {
            diag_error(s->d, FCP_E_ARGUMENT, a->name ? a->name_at : a->value->at,
                       "layout 'planned' takes no arguments");
            diag_hint(s->d, "contiguous and zigzag may be made in groups of ranks: contiguous(group = 8)");
            return;
        }
        if (!a->name || strcmp(a->name, "group")) {
            if (a->name)
                diag_error(s->d, FCP_E_ARGUMENT, a->name_at, "layout '%s' has no parameter '%s'", name, a->name);
            else diag_error(s->d, FCP_E_ARGUMENT, a->value->at, "layouts take named arguments");
            diag_hint(s->d, "%s(group = 8)", name);
            continue;
        }
        if (given) {
            diag_error(s->d, FCP_E_DUPLICATE, a->name_at, "'group' is given twice");
            diag_also(s->d, given->name_at, "first given here");
            continue;
        }
        given = a;
        if (!sema_eval_constant(s, a->value, "group", &v)) continue;
        if (v < 1 || v > ranks || ranks % (uint32_t)v) {
            diag_error(s->d, FCP_E_VALUE, a->value->at, "%u rank%s not divide into groups of %" PRId64, ranks,
                       ranks == 1 ? " does" : "s do", v);
            hint_divisors(s, ranks);
        } else p->layout_group = (uint32_t)v;
    }
}

static void check_passes(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    p->passes[FCP_FORWARD] = p->passes[FCP_BACKWARD] = true;
    const entry *e = k->at[KEY_PASSES];
    if (!e) return;
    bool given[FCP_PASSES] = {false}, good = true;
    arg single = {.value = e->value};
    bool list = e->value->kind == EXPR_TUPLE || e->value->kind == EXPR_LIST;
    for (const arg *a = list ? e->value->args : &single; a; a = a->next) {
        int i = sema_choice(s, a->value, "a pass", fcp_pass_names, FCP_PASSES);
        if (i < 0) {
            diag_hint(s->d, "for instance passes = forward, backward");
            good = false;
        } else if (given[i]) {
            diag_error(s->d, FCP_E_DUPLICATE, a->value->at, "'%s' is given twice", fcp_pass_names[i]);
            good = false;
        } else given[i] = true;
    }
    if (good && !given[FCP_FORWARD]) {
        diag_error(s->d, FCP_E_VALUE, e->value->at, "a plan needs its forward pass");
        diag_hint(s->d, "backward reads what forward wrote: passes = forward, backward");
        return;
    }
    if (good) memcpy(p->passes, given, sizeof given);
}

/* Reads the key `tokens`, such as tokens = equal. */
static void check_tokens(sema *s, const sema_keys *k) {
    static const char *const words[] = {"capped", "equal"};
    struct fcpc_program *p = s->out;
    const entry *e = k->at[KEY_TOKENS];
    int which = 0;
    choice_key(s, k, KEY_TOKENS, words, 2, &which);
    p->equal = which == 1;
    p->at[AT_TOKENS] = e ? e->value->at : SPAN_NONE;
    if (!p->equal || !p->servers) return;
    diag_error(s->d, FCP_E_VALUE, p->at[AT_TOKENS], "tokens = equal: servers hold no tokens");
    diag_also(s->d, p->at[AT_STRATEGY], "there are %u of them", p->servers);
}

/* Reads the key `wire`. With dtype = fp32, wire = bf16 is refused. Whoever asks for fp32 wants results that are right
 * to fp32, and a partial result rounded to bf16 is off by 2^-8. */
static void check_wire(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    const char *const wires[] = {fcp_dtype_names[FCP_FP32], fcp_dtype_names[FCP_BF16]};
    int wire = 0;
    choice_key(s, k, KEY_WIRE, wires, 2, &wire);
    p->wire = wire == 1 ? FCP_BF16 : FCP_FP32;
    if (p->wire == FCP_FP32 || p->dtype != FCP_FP32) return;
    diag_error(s->d, FCP_E_VALUE, k->at[KEY_WIRE]->value->at,
               "wire = bf16 would round partial results of tensors in fp32 to 8 bits");
    diag_also(s->d, k->at[KEY_DTYPE]->value->at, "dtype = fp32");
    diag_hint(s->d, "leave wire = fp32, or take dtype = bf16 or fp16");
}

/* Reads the key `lse_gradient`. Without a backward pass it changes nothing. That is a warning and no error, because a
 * program for training may also be planned with passes = forward. */
static void check_lse_gradient(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    p->lse_gradient = false;
    flag_key(s, k, KEY_LSE_GRADIENT, &p->lse_gradient);
    if (!p->lse_gradient || p->passes[FCP_BACKWARD]) return;
    p->lse_gradient = false;
    diag_warning(s->d, k->at[KEY_LSE_GRADIENT]->value->at,
                 "lse_gradient changes nothing: the plan has no backward pass");
    diag_hint(s->d, "the forward pass gives LSE anyway; its gradient is read by the backward pass");
}

void sema_check_plan(sema *s, const sema_keys *k) {
    struct fcpc_program *p = s->out;
    check_block(s, k);
    check_strategy(s, k);
    check_passes(s, k);
    check_layout(s, k);
    check_tokens(s, k);
    if (p->part_count && p->layout == FCP_LAYOUT_PLANNED && !strategy_keeps_homes(p)) {
        diag_error(s->d, FCP_E_VALUE, p->at[AT_LENGTHS],
                   "'on' says which ranks hold these sequences, but the plan chooses that");
        diag_hint(s->d, "with layout = contiguous or zigzag, or strategy = cad, tokens stay where they are");
    }
    static const char *const relays[] = {"off", "auto"};
    int relay = 1;
    choice_key(s, k, KEY_RELAY, relays, 2, &relay);
    p->relay = relay;
    p->margin = MARGIN_AUTO;
    count_key(s, k, KEY_MARGIN, 0, 1024, FCP_E_VALUE, &p->margin);
    p->deterministic = true;
    flag_key(s, k, KEY_DETERMINISTIC, &p->deterministic);
    check_wire(s, k);
    check_lse_gradient(s, k);
}
