/* box_memo.c: remembers how many pairs the mask allows in a box, so that boxes with equal masks are counted once.
 *
 * Example:  `causal` allows a pair if key - query <= 0. In every box on the diagonal key - query is 0 at the box's
 *           corner. So relative to their corners all these boxes have the same mask: they get the same key, and have
 *           the same number of pairs.
 *
 * Requires: the box was the last that the mask was asked about; a node is linear or exact as values.c says.
 * Method:   each number of the mask's code is split into an offset, which is constant in the box, and a part that
 *           depends only on the place in the box. Example: in a box from query 1024 on, "query / 64" is 16 + place /
 *           64. The key has all parts that depend on the place. Of offsets it has only what can change the answer:
 *           - The offset of a sum is the sum of the offsets. Nothing is written.
 *           - Of a comparison, the difference of its operands' offsets is written.
 *           - Of a remainder or quotient, the offset's remainder is written.
 *           - A number that is constant in the box is written as it is.
 *           So two boxes with equal keys have equal masks at equal places. The converse need not hold.
 * Cost:     O(nodes) a key. Memory: at most 4 M words of keys, and a table of them; further keys are not kept.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/pairs/pairs_parts.h"

struct pairs_entry {
    uint64_t hash, number;
    uint32_t first, count; /* of words; count 0: no entry */
};

enum { NODE_WORDS = 8, MOST_WORDS = 1 << 22, FIRST_SIZE = 256, FORM = MC_OP_COUNT, TIMES, OVER, REST };

typedef struct spelling {
    pairs_memo *memo;
    const pairs_mask *m;
    const pairs_box *box;
    uint32_t *needed, *number; /* per node: is it needed; its number in the key */
    int64_t *offset;           /* per node */
    uint32_t count;            /* nodes so far */
} spelling;

bool fcp_pairs_memo_open(pairs_memo *m, uint32_t nodes) {
    *m = (pairs_memo){.key = malloc(((size_t)nodes + 1) * NODE_WORDS * sizeof *m->key),
                      .numbers = malloc((size_t)nodes * 2 * sizeof *m->numbers),
                      .offsets = malloc((size_t)nodes * sizeof *m->offsets)};
    return m->key && m->numbers && m->offsets;
}

void fcp_pairs_memo_close(pairs_memo *m) {
    free(m->words);
    free(m->entries);
    free(m->key);
    free(m->numbers);
    free(m->offsets);
}

static void append_words(spelling *s, const int64_t *words, size_t count) {
    for (size_t i = 0; i < count; i++) s->memo->key[s->memo->key_count++] = words[i];
}
#define APPEND(s, ...) append_words(s, (const int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__}) / 8)

/* The value at the box's corner. */
static int64_t at_corner(const pairs_value *v, const pairs_box *b) {
    return (int64_t)((__int128)v->c + (__int128)v->q * b->q0 + (__int128)v->k * b->k0);
}

/* The number and the offset of an operand. */
typedef struct operand {
    int64_t number, offset;
} operand;
static operand operand_of(const spelling *s, uint32_t node) {
    const uint32_t same = s->m->values[node].same;
    return (operand){s->number[same], s->offset[same]};
}

static void spell_division(spelling *s, const mc_node *x, int64_t *offset) {
    const operand a = operand_of(s, x->a), b = operand_of(s, x->b);
    const pairs_value *by = &s->m->values[x->b];
    if (by->lo == by->hi && by->lo > 0) {
        APPEND(s, x->op == MC_DIV ? OVER : REST, a.number, by->lo, mc_mod(a.offset, by->lo));
        if (x->op == MC_DIV) *offset = mc_div(a.offset, by->lo);
    } else {
        APPEND(s, x->op, a.number, a.offset, b.number, b.offset);
    }
}

static bool spell_product(spelling *s, const mc_node *x, int64_t *offset) {
    const bool swapped = s->m->values[x->a].lo == s->m->values[x->a].hi;
    const operand a = operand_of(s, swapped ? x->b : x->a), b = operand_of(s, swapped ? x->a : x->b);
    const pairs_value *by = &s->m->values[swapped ? x->a : x->b];
    if (by->lo == by->hi) {
        APPEND(s, TIMES, a.number, by->lo);
        return !__builtin_mul_overflow(a.offset, by->lo, offset);
    }
    APPEND(s, x->op, a.number, a.offset, b.number, b.offset);
    return true;
}

static bool spell_bands(spelling *s, const mc_node *x) {
    const operand a = operand_of(s, x->a), b = operand_of(s, x->b);
    const pairs_value *row = &s->m->values[x->a], *key = &s->m->values[x->b];
    const mc_band *band = fcp_pairs_only_band(s->m->facts, (uint32_t)x->imm, row->lo, row->hi, key->lo, key->hi);
    int64_t lo, hi;
    if (!band || __builtin_add_overflow(band->lo, band->lo_slope ? a.offset : 0, &lo) ||
        __builtin_add_overflow(band->hi, band->hi_slope ? a.offset : 0, &hi) ||
        __builtin_sub_overflow(lo, b.offset, &lo) || __builtin_sub_overflow(hi, b.offset, &hi))
        return false;
    APPEND(s, x->op, a.number, b.number, lo, band->lo_slope, hi, band->hi_slope);
    return true;
}

/* Writes two operands of which only the difference matters, as the parts that depend on the place and the difference of
 * the offsets. *offset becomes the offset of the first operand. */
static bool spell_two(spelling *s, uint32_t a_node, uint32_t b_node, int64_t *offset) {
    const operand a = operand_of(s, a_node), b = operand_of(s, b_node);
    int64_t apart;
    if (__builtin_sub_overflow(b.offset, a.offset, &apart)) return false;
    APPEND(s, a.number, b.number, apart);
    *offset = a.offset;
    return true;
}

/* Writes a node that is needed, is not linear, and does not equal another node. Each operation writes a fixed number of
 * words, so no two different lists of nodes give the same words. False: the box has no key. */
static bool spell_node(spelling *s, const mc_node *x, int64_t *offset) {
    int64_t apart;
    switch ((mc_op)x->op) {
    case MC_MUL: return spell_product(s, x, offset);
    case MC_DIV:
    case MC_MOD: spell_division(s, x, offset); return true;
    case MC_BANDS: return spell_bands(s, x);
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3: return false; /* its elements move with the box */
    default: break;
    }
    const operand a = operand_of(s, x->a), b = x->b != MC_NONE ? operand_of(s, x->b) : (operand){0, 0};
    APPEND(s, x->op);
    switch ((mc_op)x->op) {
    case MC_MIN:
    case MC_MAX: return spell_two(s, x->a, x->b, offset);
    case MC_EQ:
    case MC_NE:
    case MC_LT:
    case MC_LE: return spell_two(s, x->a, x->b, &apart);
    case MC_IF_I: APPEND(s, a.number); return spell_two(s, x->b, x->c, offset);
    default: break;
    }
    APPEND(s, a.number);
    switch ((mc_op)x->op) {
    case MC_ADD: APPEND(s, b.number); return !__builtin_add_overflow(a.offset, b.offset, offset);
    case MC_SUB: APPEND(s, b.number); return !__builtin_sub_overflow(a.offset, b.offset, offset);
    case MC_NEG: return !__builtin_sub_overflow(INT64_C(0), a.offset, offset);
    case MC_ABS: APPEND(s, a.offset); return true;
    case MC_NOT: return true;
    case MC_AND:
    case MC_OR:
    case MC_IFF: APPEND(s, b.number); return true;
    case MC_IF_B:
        APPEND(s, b.number, operand_of(s, x->c).number);
        return true;
    default: return false;
    }
}

static void need(spelling *s, uint32_t node) {
    if (node != MC_NONE) s->needed[s->m->values[node].same] = 1;
}

bool fcp_pairs_key(pairs_memo *memo, const pairs_mask *m, const pairs_box *b, int64_t label) {
    const uint32_t count = m->code.count, root = m->values[count - 1].same;
    spelling s = {memo, m, b, memo->numbers, memo->numbers + count, memo->offsets, 0};
    memo->key_count = 0;
    APPEND(&s, label, b->q1 - b->q0, b->k1 - b->k0);
    memset(s.needed, 0, count * sizeof *s.needed);
    s.needed[root] = 1;
    for (uint32_t i = root + 1; i-- > 0;) {
        const mc_node *x = &m->code.nodes[i];
        if (!s.needed[i] || m->values[i].linear) continue;
        if (!m->values[i].exact) return false;
        need(&s, x->a);
        need(&s, x->b);
        need(&s, x->c);
    }
    for (uint32_t i = 0; i <= root; i++) {
        const pairs_value *v = &m->values[i];
        if (!s.needed[i]) continue;
        s.number[i] = s.count++;
        s.offset[i] = 0;
        if (v->linear) {
            const bool is_bool = mc_op_type(m->code.nodes[i].op) == 'b';
            APPEND(&s, FORM);
            APPEND(&s, is_bool ? v->lo : v->q); /* a decided bool has no offset */
            APPEND(&s, v->k);
            if (!is_bool) s.offset[i] = at_corner(v, b);
        } else if (!spell_node(&s, &m->code.nodes[i], &s.offset[i])) {
            return false;
        }
    }
    APPEND(&s, s.number[root]);
    return true;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const pairs_memo *m) {
    uint64_t h = UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i < m->key_count; i++) {
        h = (h ^ (uint64_t)m->key[i]) * UINT64_C(0xff51afd7ed558ccd);
        h ^= h >> 32;
    }
    return h;
}

/* The entry of the key that was made last, or the free one where it would be; the table is not full. */
static struct pairs_entry *entry_of(const pairs_memo *m, uint64_t hash) {
    for (uint64_t i = hash;; i++) {
        struct pairs_entry *e = &m->entries[i & (m->size - 1)];
        if (!e->count || (e->hash == hash && e->count == m->key_count &&
                          !memcmp(m->words + e->first, m->key, m->key_count * sizeof *m->key)))
            return e;
    }
}

bool fcp_pairs_find(const pairs_memo *m, uint64_t *out) {
    if (!m->size) return false;
    const struct pairs_entry *e = entry_of(m, hash_of(m));
    if (e->count) *out = e->number;
    return e->count;
}

static bool enlarge(pairs_memo *m) {
    const uint32_t old = m->size, size = old ? old * 2 : FIRST_SIZE;
    struct pairs_entry *bigger = calloc(size, sizeof *bigger), *from = m->entries;
    if (!bigger) return false;
    for (uint32_t i = 0; i < old; i++) {
        if (!from[i].count) continue;
        uint64_t at = from[i].hash;
        while (bigger[at & (size - 1)].count) at++;
        bigger[at & (size - 1)] = from[i];
    }
    free(from);
    m->entries = bigger;
    m->size = size;
    return true;
}

void fcp_pairs_keep(pairs_memo *m, uint64_t number) {
    if (m->key_count > MOST_WORDS - m->word_count) return; /* enough is enough */
    if (m->count >= m->size / 2 && !enlarge(m)) return;
    if (!FCP_GROW(m->words, m->word_room, m->word_count + m->key_count)) return;
    const uint64_t hash = hash_of(m);
    struct pairs_entry *e = entry_of(m, hash);
    if (e->count) return;
    *e = (struct pairs_entry){hash, number, m->word_count, m->key_count};
    memcpy(m->words + m->word_count, m->key, m->key_count * sizeof *m->key);
    m->word_count += m->key_count;
    m->count++;
}
