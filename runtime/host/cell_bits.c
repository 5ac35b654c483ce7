/* cell_bits.c: the mask of a PARTIAL cell as bits, with a cache.
 *
 * Requires: code that mc_check accepts.
 * Method:   the cache is set-associative; in a full set the oldest cell is replaced. If the mask depends only on q - k,
 *           cells at the same distance from the diagonal share an entry. Whether it does is decided by *slopes*: a node
 *           of the mask's code has slope s if its value grows by s when q and k both grow by 1. Example: q and k have
 *           slope 1, q - k has 0, and so has q - k < 1024; q * k has none. If the mask itself has slope 0, it depends
 *           only on q - k.
 * Cost:     evaluating 128 rows for a new cell, a look-up for a known one. 2 MiB.
 */
#include "runtime/host/cell_bits.h"

#include <stdlib.h>

enum { SETS = 128, WAYS = 8 };

struct entry {
    int64_t q, k, n, h, sequence;
    uint32_t rows, columns; /* rows 0: the entry is empty */
};

struct fcp_maskcells {
    mc_code code;
    unsigned uses;
    bool relative;
    const mc_env *env;
    uint32_t sequence;
    int64_t *scratch;
    uint8_t next[SETS];
    struct entry entries[SETS][WAYS];
    fcp_mask_bits bits[SETS][WAYS];
};

struct slope {
    bool known;
    int64_t value;
};

static struct slope slope_of(const mc_node *x, const mc_node *nodes, const struct slope *s) {
    struct slope unknown = {false, 0}, zero = {true, 0};
    struct slope a = x->a == MC_NONE ? zero : s[x->a], b = x->b == MC_NONE ? zero : s[x->b];
    struct slope c = x->c == MC_NONE ? zero : s[x->c], r = {true, 0};
    if (!a.known || !b.known || !c.known) return unknown;
    bool flat = a.value == 0 && b.value == 0 && c.value == 0;
    switch (x->op) {
    case MC_Q:
    case MC_K: r.value = 1; return r;
    case MC_ADD: return __builtin_add_overflow(a.value, b.value, &r.value) ? unknown : r;
    case MC_SUB: return __builtin_sub_overflow(a.value, b.value, &r.value) ? unknown : r;
    case MC_NEG: return __builtin_sub_overflow((int64_t)0, a.value, &r.value) ? unknown : r;
    case MC_MUL:
        if (flat) return zero;
        if (nodes[x->a].op == MC_CONST_I)
            return __builtin_mul_overflow(nodes[x->a].imm, b.value, &r.value) ? unknown : r;
        if (nodes[x->b].op == MC_CONST_I)
            return __builtin_mul_overflow(nodes[x->b].imm, a.value, &r.value) ? unknown : r;
        return unknown;
    case MC_MIN:
    case MC_MAX: return a.value == b.value ? a : unknown;
    case MC_EQ:
    case MC_NE:
    case MC_LT:
    case MC_LE: return a.value == b.value ? zero : unknown;
    case MC_IF_I: return b.value == c.value ? b : unknown; /* a is bool: known means unchanged */
    default: return flat ? zero : unknown;
    }
}

/* Returns whether the mask depends only on q - k. *out_known is false if there is no memory to find out. Comparisons
 * and minima are decided by slopes, which would be wrong if arithmetic wrapped. It does not: a plan's mask was proven
 * not to overflow anywhere in a sequence, and a cell is never evaluated beyond its rows and columns. */
static bool is_relative(mc_code code, bool *out_known) {
    struct slope *s = malloc(code.count * sizeof *s);
    *out_known = s != NULL;
    if (!s) return false;
    for (uint32_t i = 0; i < code.count; i++) s[i] = slope_of(&code.nodes[i], code.nodes, s);
    bool relative = s[code.count - 1].known && s[code.count - 1].value == 0;
    free(s);
    return relative;
}

static uint32_t set_of(const struct entry *key) {
    uint64_t x = (uint64_t)key->q * 0x9e3779b97f4a7c15u ^ (uint64_t)key->k * 0xc2b2ae3d27d4eb4fu ^
                 (uint64_t)key->n * 0x165667b19e3779f9u ^ (uint64_t)key->h * 0x27d4eb2f165667c5u ^
                 (uint64_t)key->sequence * 0x85ebca6b2b2ae35du;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return (uint32_t)(x >> 40) % SETS;
}

/* Packs eight bytes of 0 or 1 into eight bits. The first byte becomes the lowest bit. */
static uint8_t pack8(const uint8_t *bytes) {
    uint64_t x = 0;
    for (int i = 0; i < 8; i++) x |= (uint64_t)bytes[i] << 8 * i;
    return (uint8_t)(x * 0x0102040810204080u >> 56);
}

static void evaluate(fcp_maskcells *c, int64_t q0, int64_t k0, uint32_t rows, uint32_t columns, int64_t h,
                     fcp_mask_bits *out) {
    uint8_t row[MC_ROW] = {0};
    for (uint32_t r = 0; r < rows; r++) {
        mc_eval_row(c->code, c->env, q0 + r, k0, columns, h, c->scratch, row);
        for (size_t w = 0; w * FCP_LANES < columns; w++)
            out->bits[r][w] = (uint16_t)(pack8(row + w * FCP_LANES) | pack8(row + w * FCP_LANES + 8) << 8);
    }
}

fcp_maskcells *fcp_maskcells_new(mc_code code) {
    fcp_maskcells *c = malloc(sizeof *c);
    int64_t *scratch = calloc(mc_row_scratch(code), sizeof *scratch);
    bool known = false;
    if (c && scratch) {
        memset(c->next, 0, sizeof c->next);
        memset(c->entries, 0, sizeof c->entries);
        c->code = code;
        c->uses = mc_uses(code);
        c->relative = is_relative(code, &known);
        c->scratch = scratch;
    }
    if (known) return c;
    free(scratch);
    free(c);
    return NULL;
}

void fcp_maskcells_sequence(fcp_maskcells *c, const mc_env *env, uint32_t sequence) {
    c->env = env;
    c->sequence = sequence;
}

void fcp_maskcells_free(fcp_maskcells *c) {
    if (!c) return;
    free(c->scratch);
    free(c);
}

const fcp_mask_bits *fcp_maskcells_get(fcp_maskcells *c, int64_t q0, int64_t k0, uint32_t rows, uint32_t columns,
                                       int64_t h) {
    struct entry key = {.q = q0,
                        .k = k0,
                        .n = c->uses & MC_USES_N ? c->env->n : 0,
                        .h = c->uses & MC_USES_H ? h : 0,
                        .sequence = c->uses & MC_USES_DATA ? c->sequence : 0,
                        .rows = rows,
                        .columns = columns};
    if (c->relative) {
        key.q = q0 - k0;
        key.k = 0;
    }
    uint32_t set = set_of(&key);
    for (uint32_t w = 0; w < WAYS; w++) {
        const struct entry *e = &c->entries[set][w];
        if (e->q == key.q && e->k == key.k && e->n == key.n && e->h == key.h &&
            e->sequence == key.sequence && e->rows == key.rows && e->columns == key.columns)
            return &c->bits[set][w];
    }
    uint32_t way = c->next[set]++ % WAYS;
    c->entries[set][way] = key;
    evaluate(c, q0, k0, rows, columns, h, &c->bits[set][way]);
    return &c->bits[set][way];
}
