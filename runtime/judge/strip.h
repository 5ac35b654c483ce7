/* strip.h: computes attention of a *strip*, which is some rows of queries against all keys: by its definition in
 * float64, and naively (reference.h). It also bounds what rounding may do to the strip's numbers. Private to
 * runtime/judge.
 */
#ifndef FCP_JUDGE_STRIP_H
#define FCP_JUDGE_STRIP_H
#include "runtime/judge/judge_parts.h"

enum { STRIP = 32, TILE = 128 };

/* Queries [row, row + rows) of a sequence against its keys [key, key + n). */
struct strip {
    size_t n, d, vd; /* keys; numbers of a head of Q and K, and of V and O */
    uint64_t row, key;
    uint32_t rows;
    bool wants_rows, wants_keys; /* of gradients: dQ; dK and dV */
    double scale;
    fcp_dtype dtype;
    mc_code score, slope; /* of no nodes: the score is s */
    mc_code rough;        /* the score with functions that are off by 2^-16; of no nodes: it has none */
    const double *sink;   /* of the head, or NULL */
    const mc_env *env;
    int64_t head;
    int64_t *scratch;
    uint8_t *allow; /* [STRIP][n]: the mask */
    bool *live;     /* per TILE keys: some pair with them is allowed */
};

/* TILE neighbouring keys, with at least one of which the strip has an allowed pair. first_tile and next_tile walk
 * over them; count is 0 behind the last. */
struct tile {
    size_t key;
    uint32_t count;
};

static inline struct tile tile_from(const struct strip *s, size_t key) {
    while (key < s->n && !s->live[key / TILE]) key += TILE;
    return (struct tile){key, key >= s->n ? 0 : s->n - key < TILE ? (uint32_t)(s->n - key) : TILE};
}
static inline struct tile first_tile(const struct strip *s) { return tile_from(s, 0); }
static inline struct tile next_tile(const struct strip *s, struct tile t) { return tile_from(s, t.key + TILE); }

/* Memory for a strip in one type of number; and what is computed in it, from the definition. */
#define CHECK_NUMBERS(REAL, name)                                                                                      \
    struct check_##name##_buffers {                                                                                    \
        REAL *k, *dk;                /* [n][d] */                                                                      \
        REAL *v, *dv;                /* [n][vd] */                                                                     \
        REAL *q, *dq;                /* [STRIP][d] */                                                                  \
        REAL *d_o, *o;               /* [STRIP][vd] */                                                                 \
        REAL *p, *ds;                /* [STRIP][n] */                                                                  \
        REAL *slope;                 /* [STRIP][n], if there is a score */                                             \
        REAL *turned;                /* [the larger of d and vd][TILE] */                                              \
        REAL lse[STRIP], low[STRIP]; /* low: what was taken from LSE by rounding, where it is given */                 \
        REAL d_lse[STRIP];                                                                                             \
        bool empty[STRIP];           /* the row sees no keys */                                                        \
        REAL *memory;                                                                                                  \
    };                                                                                                                 \
    /* False: out of memory. The caller frees b->memory in any case. */                                                \
    bool check_##name##_allocate(struct check_##name##_buffers *b, size_t n, size_t d, size_t vd, bool sloped);        \
    /* c[i][0 .. width) += sum over t of a(i, t) * b[t][0 .. width), where a(i, t) is a[i * row + t * column] */       \
    void check_##name##_product(REAL *c, size_t ldc, const REAL *a, size_t row, size_t column, const REAL *b,          \
                                size_t ldb, uint32_t rows, uint32_t terms, uint32_t width);                            \
    /* out[i][key] = rows[i] . keys[key], of d numbers each */                                                         \
    void check_##name##_dots(const struct strip *s, struct check_##name##_buffers *b, const REAL *rows,                \
                             const REAL *keys, size_t d, REAL *out);                                                   \
    /* out[i] += sum over keys of a[i][key] * keys[key] */                                                             \
    void check_##name##_gather(const struct strip *s, const REAL *a, const REAL *keys, size_t d, REAL *out);           \
    /* out[key] += sum over rows of a[i][key] * rows[i] */                                                             \
    void check_##name##_scatter(const struct strip *s, const REAL *a, const REAL *rows, size_t d, REAL *out);          \
    /* A score, or its slope, of row i of the strip and the keys of a tile. `out` may be `logits`. */                  \
    void check_##name##_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const REAL *logits,      \
                              REAL *out);                                                                              \
    /* The steps of a strip, in this order; reference_real.inc says what each makes of what. */                        \
    void check_##name##_arguments(const struct strip *s, struct check_##name##_buffers *b, bool backward);             \
    void check_##name##_forward(const struct strip *s, struct check_##name##_buffers *b, bool backward);               \
    void check_##name##_recompute(const struct strip *s, struct check_##name##_buffers *b);                            \
    void check_##name##_backward_v(const struct strip *s, struct check_##name##_buffers *b);                           \
    void check_##name##_backward(const struct strip *s, struct check_##name##_buffers *b);                             \
    void check_##name##_round_all(const struct strip *s, REAL *x, size_t count);
CHECK_NUMBERS(double, exact)
CHECK_NUMBERS(float, naive)
#undef CHECK_NUMBERS

/* For a row of a tensor, each for its largest component: the sum of the absolute values that a number is made of;
 * how much of it may be lost because it is small; the most that one pair could add to it if its P were 1; and what
 * approximate functions may do to it. */
struct sums {
    double all, lost, one, whole;
};

/* Bounds of a row of the strip (RULE.md). */
struct row_bounds {
    bool live;                /* it sees a key, and LSE is finite */
    double term, spread, added; /* see term_of, spread and added; of sums over the keys that it sees */
    double unit_length;       /* 1 / sqrt(value_dim) */
    double q, q_most, o, g, g_most; /* lengths of Q, O and dO, and their largest numbers */
    double shift;             /* what the naive computation's logits are off by together: see compare_scores */
    double relative;          /* what all P of the row are off by together */
    double shared;            /* the same in the backward pass */
    double lse, pair;         /* what LSE is off by; and what it is together with what rounding took from it */
    double v_length;          /* of the longest V that it sees */
    double sink_off;          /* what the sink's part of the sum is off by */
    double delta;             /* rowsum(dO O) */
    double centre;            /* the same without dLSE: what is subtracted from dP */
    double delta_off;         /* what they are off by */
    double delta_whole;       /* the same because of approximate functions: see coarse.c */
};

/* What a thread works with while it has a task. */
struct task {
    check_run *run;
    uint32_t kv_head;
    uint64_t offset, key_offset; /* packed index of the sequence's first query, first key */
    double part, least;          /* what rounding to the dtype takes: see part_rounded and least_of */
    double drift, drift_v;       /* see drift_of: of head_dim, and of value_dim */
    double term_q;               /* see term_of; of sums over queries */
    double spread_q, added_q;    /* see spread and added; of the same */
    struct strip strip;
    struct check_exact_buffers exact;
    struct check_naive_buffers naive;
    mc_env env;
    mc_array *arrays;
    mc_bands *bands;
    int64_t *scratch;
    measure measures[FCP_TENSORS];
    check_tables *tables; /* what the task adds to the gradients of tables; NULL: they are not judged */
    fcp_check_unit unit; /* what is computed: see open_task */
    double *k_length, *k_most, *v_length, *v_most; /* per key: see length_of */
    struct row_bounds rows[STRIP];
    struct sums *sums_k, *sums_v, sums_q[STRIP], sums_o[STRIP]; /* per key, and per row */
    /* Sums of squares of errors, number by number: of dK [n][d] and dV [n][vd], of O [STRIP][vd] and dQ [STRIP][d].
     * common: how far an error of 1 in delta moves dQ [STRIP][d]. */
    double *squares, *squares_k, *squares_v, *squares_o, *squares_q, *common;
    double *q2, *g2; /* [STRIP][d], [STRIP][vd]: squares of Q and dO */
    double *weight;  /* [STRIP][n]: what a pair's error counts; before P is there, the softmax's argument */
    double *p_off;   /* [STRIP][n]: what P is off by; before it is there, what the softmax's argument is off by */
    double *slope_off; /* [STRIP][n]: what the slope is off by */
    /* The same because of approximate functions; NULL: there are none. */
    double *p_whole, *slope_whole;
};

/* Half an ulp of fp32 at 1, and its smallest normal number. */
#define UNIT 0x1p-24
#define TINY 0x1p-126

static inline double square(double x) { return x * x; }

/* The length of a vector, and its largest number. */
double check_length_of(const double *x, size_t d, double *out_most);
/* These functions bound what rounding may do (RULE.md). A task begins with check_bound_task, where `terms` is the most
 * terms of a sum over queries. The others are called between the steps of the exact computation: when p holds the
 * arguments of the softmax, when it holds P, and when it holds dP. */
void check_bound_task(struct task *t, double terms);
void check_bound_arguments(struct task *t);
void check_bound_forward(struct task *t);
void check_bound_backward(struct task *t);
/* What a product of vectors of d numbers is off by, of which the lengths' product is `most`; and the units by which a
 * sum of n terms is off because it is added up in fp32. */
double check_bound_product(fcp_dtype dtype, size_t d, double product, double most);
double check_bound_added(fcp_dtype dtype, double n);
/* What a logit is off by before it is given to the score: it is q . k times the scale. */
double check_bound_logit(const struct task *t, uint32_t i, size_t j, double logit);
/* Whether a pair's P is not 0, or may be not. Called, as the next, when p holds dP and ds P. */
bool check_live_pair(const struct task *t, uint32_t i, size_t j);
/* What P (dP - delta + dLSE) times slope times scale may be off by, where the slope is off by slope_off. */
struct pair_off {
    double squares, lost; /* of errors, added up; and what may be lost because it is small */
    double all, one; /* the sum of the absolute values that it is made of; and the most that it can be with P = 1 */
};
struct pair_off check_bound_pair(const struct task *t, uint32_t i, size_t j, double slope, double slope_off,
                                 double scale);

/* coarse.c does the same of approximate functions, at the same times. `logits` are all logits of the strip, before the
 * score. */
void check_coarse_arguments(struct task *t, const double *logits);
void check_coarse_forward(struct task *t);
void check_coarse_backward(struct task *t);
/* How far approximate functions may move a score, or a derivative of it, for the keys of a tile. */
void check_coarse_off(const struct strip *s, mc_code code, const check_coarse_code *coarse, uint32_t i,
                      struct tile tile, const double *logits, double *out);
/* How far they may move what check_bound_pair is about, where they move the slope by slope_whole. */
double check_coarse_pair(const struct task *t, uint32_t i, size_t j, double slope, double slope_whole, double scale);

/* Adds what the strip's pairs have to the gradients of tables (shared_gradients.c). Called when p holds dP and ds P,
 * both in the exact and in the naive computation. */
void check_tables_add(struct task *t);
#endif
