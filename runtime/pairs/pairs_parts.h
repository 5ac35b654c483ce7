/* pairs_parts.h: what the files of runtime/pairs share: a mask that is evaluated over boxes, the memo of counted boxes,
 * and a pair of pieces whose cells are checked. Private to runtime/pairs; pairs.c says what is proven.
 */
#ifndef FCP_PAIRS_PAIRS_PARTS_H
#define FCP_PAIRS_PAIRS_PARTS_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"

/* --- array_extremes.c: what is known of arrays and slices, for all sequences -------------------------------------- */

/* A tree that answers for a range of indices: what is the least of some numbers, and what the greatest of some others
 * with the same indices? Level 0 has the two answers for each group of indices, level 1 for each 16 groups of level 0,
 * and so on. */
enum { FCP_PAIRS_FAN = 16, FCP_PAIRS_LEVELS = 16 };
typedef struct pairs_tree {
    int64_t *least[FCP_PAIRS_LEVELS], *greatest[FCP_PAIRS_LEVELS];
    uint64_t count[FCP_PAIRS_LEVELS]; /* groups */
    int levels;
    void *room; /* of all levels */
} pairs_tree;

/* The extremes of one union of slices. The indices of both trees are its records. */
typedef struct pairs_bands {
    pairs_tree reach; /* the least first key that a record sees, and the key after the greatest */
    pairs_tree whole; /* where each row has one band: the least end, and the greatest beginning */
} pairs_bands;

typedef struct pairs_facts {
    const fcp_plan *plan;
    pairs_tree *array;  /* per array of the plan; empty if the mask does not read it */
    pairs_bands *bands; /* per union of slices, likewise */
} pairs_facts;

fcp_code fcp_pairs_facts_open(pairs_facts *f, const fcp_plan *plan, const volatile int *stop, fcp_error *err);
void fcp_pairs_facts_close(pairs_facts *f);
/* Widens [*lo, *hi] so that it includes elements [from, to) of an array's data, where from < to. If the data is the
 * part of the array that one sequence sees, `part` says where the part begins. */
void fcp_pairs_extremes(const pairs_facts *f, uint32_t array, const mc_array *part, uint64_t from, uint64_t to,
                        int64_t *lo, int64_t *hi);
/* Whether (row, key) is in a band for all rows of [r0, r1] and keys of [c0, c1], or for none. */
typedef enum pairs_answer { FCP_PAIRS_NONE, FCP_PAIRS_ALL, FCP_PAIRS_MIXED } pairs_answer;
pairs_answer fcp_pairs_in_bands(const pairs_facts *f, uint32_t bands, int64_t r0, int64_t r1, int64_t c0, int64_t c1);
/* The only band that these rows have among these keys; NULL if there are several, or none, or the rows do not have
 * the same bands. */
const mc_band *fcp_pairs_only_band(const pairs_facts *f, uint32_t bands, int64_t r0, int64_t r1, int64_t c0,
                                   int64_t c1);

/* --- values.c: a mask over a box ---------------------------------------------------------------------------------- */

/* Positions of queries and keys, not empty. */
typedef struct pairs_box {
    int64_t q0, q1, k0, k1; /* [q0, q1) and [k0, k1) */
} pairs_box;

/* What is known of a node's value in a box. For a bool, lo and hi are 0 or 1. */
typedef struct pairs_value {
    int64_t lo, hi;  /* the least and the greatest that it can be */
    int64_t c, q, k; /* of a linear one: it is c + q * (query) + k * (key) */
    uint32_t same;   /* the node that has the same value all over the box: an earlier one, or the node itself */
    bool linear;
    bool exact;      /* no 64-bit number overflows when it is computed of its operands */
} pairs_value;

/* The mask of one sequence, for one head. */
typedef struct pairs_mask {
    mc_code code;
    mc_env env;
    const pairs_facts *facts;
    pairs_value *values; /* code.count of them: of the box that was asked about last */
    int64_t *scratch;    /* for codegen/mask */
} pairs_mask;

/* Whether the mask is true for all pairs of the box, or for none. MIXED: neither, or it could not be told. Fills
 * m->values. */
pairs_answer fcp_pairs_evaluate(const pairs_mask *m, const pairs_box *b);
/* Makes the mask's code for one head: folds constants, elements of tables too, and replaces by `false` what the
 * answer does not need. So heads with the same mask often get equal code. `out` has room for code.count nodes. */
void fcp_pairs_fold(const fcp_plan *plan, int64_t head, mc_node *out);

/* --- box_memo.c: answers that are remembered ---------------------------------------------------------------------- */

typedef struct pairs_memo {
    int64_t *words; /* of all keys */
    uint32_t word_count, word_room;
    struct pairs_entry *entries; /* a hash table: its size is a power of 2, or 0 */
    uint32_t count, size;
    int64_t *key; /* the key that was made last */
    uint32_t key_count;
    uint32_t *numbers; /* room to make keys: two numbers a node, */
    int64_t *offsets;  /* and one */
} pairs_memo;

bool fcp_pairs_memo_open(pairs_memo *m, uint32_t nodes);
void fcp_pairs_memo_close(pairs_memo *m);
/* Makes the key of the last box that m was asked about. The key describes the part of the mask that differs inside the
 * box, relative to the box's corner (box_memo.c). So boxes of equal sides with equal keys have the same pairs. `label`
 * becomes a part of the key. False: the box has no key, for example because the mask reads an array, whose elements
 * differ from place to place. */
bool fcp_pairs_key(pairs_memo *memo, const pairs_mask *m, const pairs_box *b, int64_t label);
/* The number that was kept under the key that was made last. False: there is none. */
bool fcp_pairs_find(const pairs_memo *m, uint64_t *out);
/* Keeps a number under that key. If there is no memory it is not kept, which costs time and nothing else. */
void fcp_pairs_keep(pairs_memo *m, uint64_t number);

/* --- classes.c: cells of few values ------------------------------------------------------------------------------ */

typedef struct pairs_classes pairs_classes;
pairs_classes *fcp_pairs_classes_open(uint32_t nodes); /* NULL: out of memory */
void fcp_pairs_classes_close(pairs_classes *c);
/* Call it when the mask has become another one: of another sequence, or of another head. */
void fcp_pairs_classes_begin(pairs_classes *c, const pairs_mask *m);
/* *out_pairs: how many pairs the mask allows in a box of at most a cell, the last that it was asked about. False: they
 * are to be counted in another way. */
bool fcp_pairs_classes_count(pairs_classes *c, const pairs_mask *m, const pairs_box *b, int64_t head,
                             uint64_t *out_pairs);

/* --- check_cells.c ------------------------------------------------------------------------------------------------ */

typedef struct pairs_prover {
    const fcp_plan *plan;
    const volatile int *stop;
    fcp_error *err;
    pairs_mask mask;
    pairs_memo memo;
    pairs_classes *classes;
    uint32_t sequence;
    uint32_t head, cls; /* of the model, whose code is in `mask`; which shape of a part is for it */
    uint32_t asked;     /* boxes since `stop` was looked at */
    uint64_t work, work_most; /* counted work, about a nanosecond each; beyond the most the proof is given up */
    fcp_pairs_proof proof;
} pairs_prover;

/* A Q piece and a KV piece of the sequence, and the part of a tile that has them, or FCP_NONE. */
typedef struct pairs_meeting {
    uint32_t q_piece, k_piece, part;
} pairs_meeting;

/* The mask of a box; an error if the caller wants the work to end. */
fcp_code fcp_pairs_ask(pairs_prover *p, const pairs_box *b, pairs_answer *out);
/* The box of two pieces. */
pairs_box fcp_pairs_box_of(const pairs_prover *p, uint32_t q_piece, uint32_t k_piece);
/* Checks that the cells of a meeting are right, and its number of pairs. `answer` is the mask's answer for the box of
 * the meeting. No other box may have been asked about since. */
fcp_code fcp_pairs_cells(pairs_prover *p, const pairs_meeting *m, pairs_answer answer);
#endif
