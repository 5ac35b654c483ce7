/* known_fields.h: the prelude's masks of fields, defined a second time, in C, and fields for them to read. A field is
 * the values of one sequence. */
#ifndef TESTS_KNOWN_FIELDS_H
#define TESTS_KNOWN_FIELDS_H
#include <stdbool.h>
#include <stdint.h>

enum { KNOWN_FIELDS = 2 };

typedef struct known_field_mask {
    const char *call; /* of fields f0 and f1; %d is the parameter */
    bool (*allow)(const int64_t *const *f, int64_t p, int64_t q, int64_t k, int64_t n);
    void (*draw)(int64_t *const *f, int64_t n, uint64_t *state); /* fields that are meant */
} known_field_mask;

static inline int64_t known_roll(uint64_t *state, int64_t n) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((*state >> 33) % (uint64_t)n);
}

/* Documents of 1 to 100 tokens; f1 is not used. */
static inline void known_draw_documents(int64_t *const *f, int64_t n, uint64_t *state) {
    for (int64_t t = 0, left = 0, v = known_roll(state, 1000); t < n; t++, left--) {
        if (left == 0) left = 1 + known_roll(state, 100), v++;
        f[0][t] = v;
        f[1][t] = 0;
    }
}

/* One token in 40 is marked, some with numbers other than 1. */
static inline void known_draw_marks(int64_t *const *f, int64_t n, uint64_t *state) {
    for (int64_t t = 0; t < n; t++) f[0][t] = known_roll(state, 40) ? 0 : known_roll(state, 5) - 1, f[1][t] = 0;
}

/* Keys live for up to 200 positions, from their own on; a few never. */
static inline void known_draw_lives(int64_t *const *f, int64_t n, uint64_t *state) {
    for (int64_t t = 0; t < n; t++) f[0][t] = known_roll(state, 10) ? t + known_roll(state, 200) : -1, f[1][t] = 0;
}

/* A forest in depth-first order: f0 is the token itself, f1 the last of its subtree. */
static inline void known_draw_tree(int64_t *const *f, int64_t n, uint64_t *state) {
    for (int64_t t = 0; t < n; t++) {
        f[0][t] = t;
        f[1][t] = n - 1;
        if (t == 0) continue;
        int64_t levels = known_roll(state, 3); /* how many subtrees end before t */
        for (int64_t a = t - 1; a >= 0 && levels > 0; a--)
            if (f[1][a] == n - 1) f[1][a] = t - 1, levels--;
    }
}

static inline void known_draw_buckets(int64_t *const *f, int64_t n, uint64_t *state) {
    for (int64_t t = 0; t < n; t++) f[0][t] = known_roll(state, 6), f[1][t] = 0;
}

#define DEF(name) static inline bool name(const int64_t *const *f, int64_t p, int64_t q, int64_t k, int64_t n)
#define UNUSED (void)p, (void)n
DEF(known_document) { return UNUSED, f[0][q] == f[0][k]; }
DEF(known_causal_document) { return UNUSED, k <= q && f[0][q] == f[0][k]; }
DEF(known_prefix_document) { /* k's place in its document: counted back to where the document begins */
    int64_t place = 0;
    (void)n;
    if (f[0][q] != f[0][k]) return false;
    while (place < k && f[0][k - place - 1] == f[0][k]) place++;
    return k <= q || place < p;
}
DEF(known_global_field) {
    if (f[0][q] || f[0][k]) return true;
    return (void)n, k <= q + p && q <= k + p;
}
DEF(known_random_eviction) { return UNUSED, k <= q && q < f[0][k]; }
DEF(known_tree) { return (void)n, k < p || (q >= f[0][k] && q <= f[1][k]); }
DEF(known_hash_sparse) { return UNUSED, q >= k && f[0][k] == f[0][q]; }
#undef DEF
#undef UNUSED

static const known_field_mask KNOWN_FIELD_MASKS[] = {
    {"document(d = f0)", known_document, known_draw_documents},
    {"causal_document(d = f0)", known_causal_document, known_draw_documents},
    {"prefix_document(d = f0, p = %d)", known_prefix_document, known_draw_documents},
    {"global_field(g = f0, w = %d)", known_global_field, known_draw_marks},
    {"random_eviction(e = f0)", known_random_eviction, known_draw_lives},
    {"tree(first = f0, last = f1, p = %d)", known_tree, known_draw_tree},
    {"hash_sparse(bucket = f0)", known_hash_sparse, known_draw_buckets},
};
enum { KNOWN_FIELD_MASK_COUNT = sizeof KNOWN_FIELD_MASKS / sizeof *KNOWN_FIELD_MASKS };
#endif
