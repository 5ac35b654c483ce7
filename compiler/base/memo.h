/* memo.h: a hash table that remembers answers by key. A key is a sequence of words, an answer is three numbers. Keys
 * are compared in full, so two keys with the same hash do not mix. */
#ifndef FCPC_BASE_MEMO_H
#define FCPC_BASE_MEMO_H
#include "compiler/base/arena.h"

#include <stdbool.h>

typedef struct memo_entry {
    uint64_t answer[3];
    size_t words;
    int64_t key[];
} memo_entry;

typedef struct memo_slot {
    uint64_t hash;
    memo_entry *entry; /* NULL: empty */
} memo_slot;

typedef struct memo {
    memo_slot *slots;   /* open addressing */
    size_t size, count; /* size is 0 or a power of two */
} memo;

/* A memo is zero-initialised. Its entries live in an arena of the caller's; its table is malloc'd. */
uint64_t memo_hash(const int64_t *key, size_t words);
const memo_entry *memo_find(const memo *m, const int64_t *key, size_t words, uint64_t hash); /* NULL: not there */
/* Adds a key that is not there; the answer may be changed later. NULL: out of memory. */
memo_entry *memo_add(memo *m, arena *entries, const int64_t *key, size_t words, uint64_t hash,
                     const uint64_t answer[3]);
void memo_free(memo *m);
#endif
