/* memo.c: a hash table whose keys are sequences of words, and whose answers are three numbers. Cost: each operation
 * takes O(words of the key) on average. */
#include "compiler/base/memo.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_SIZE = 64 };

uint64_t memo_hash(const int64_t *key, size_t words) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ words;
    for (size_t i = 0; i < words; i++) {
        h = (h ^ (uint64_t)key[i]) * 0xff51afd7ed558ccdu;
        h ^= h >> 29;
    }
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 32;
}

const memo_entry *memo_find(const memo *m, const int64_t *key, size_t words, uint64_t hash) {
    if (m->size == 0) return NULL;
    for (size_t at = hash & (m->size - 1); m->slots[at].entry; at = (at + 1) & (m->size - 1)) {
        const memo_entry *e = m->slots[at].entry;
        if (m->slots[at].hash == hash && e->words == words && memcmp(e->key, key, words * sizeof *key) == 0) return e;
    }
    return NULL;
}

static bool double_slots(memo *m) {
    size_t size = m->size ? m->size * 2 : FIRST_SIZE;
    /* The table is not made by calloc, whose pages the kernel maps to one shared page of zeros until they are written.
     * A hash table reads most pages before it writes them. At the first write the kernel has to change the mapping, for
     * which it interrupts every processor that runs a thread of this process. */
    memo_slot *slots = aligned_alloc(sizeof *slots * FIRST_SIZE, size * sizeof *slots);
    if (!slots) return false;
    memset(slots, 0, size * sizeof *slots);
    for (size_t i = 0; i < m->size; i++) {
        if (!m->slots[i].entry) continue;
        size_t at = m->slots[i].hash & (size - 1);
        while (slots[at].entry) at = (at + 1) & (size - 1);
        slots[at] = m->slots[i];
    }
    free(m->slots);
    m->slots = slots;
    m->size = size;
    return true;
}

memo_entry *memo_add(memo *m, arena *entries, const int64_t *key, size_t words, uint64_t hash,
                     const uint64_t answer[3]) {
    if (m->count * 2 >= m->size && !double_slots(m)) return NULL;
    if (words > SIZE_MAX / sizeof *key - 16) return NULL;
    memo_entry *e = arena_alloc(entries, 1, sizeof *e + words * sizeof *key, _Alignof(memo_entry));
    if (!e) return NULL;
    memcpy(e->answer, answer, sizeof e->answer);
    e->words = words;
    memcpy(e->key, key, words * sizeof *key);
    size_t at = hash & (m->size - 1);
    while (m->slots[at].entry) at = (at + 1) & (m->size - 1);
    m->slots[at] = (memo_slot){hash, e};
    m->count++;
    return e;
}

void memo_free(memo *m) {
    free(m->slots);
    *m = (memo){0};
}
