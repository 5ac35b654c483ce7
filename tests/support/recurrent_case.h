/* recurrent_case.h: the stretches of a plan, tensors for halos and scans, and what these must give: by loops over the
 * documents in float64, which know nothing of ranks. */
#ifndef RECURRENT_CASE_H
#define RECURRENT_CASE_H
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/plan/recurrent.h"
#include "runtime/plan/sides.h"
#include "runtime/plan/layout.h"
#include "tests/support/splitmix.h"

enum { CASE_RANKS = 64 };

typedef struct case_place {
    uint32_t rank, number; /* of a stretch: its number at its rank. Of a token: see `row` */
    uint64_t row;          /* of a token: its row in the rank's tensors */
} case_place;

typedef struct recurrent_case {
    const fcp_plan *plan;
    uint32_t ranks, counts[CASE_RANKS]; /* stretches of each rank */
    fcp_stretch *of[CASE_RANKS];
    uint64_t tokens[CASE_RANKS];
    const uint64_t *documents; /* where they begin in the packed batch, and its end */
    case_place *order;         /* all stretches, in the order of the batch */
    uint32_t total;
    case_place *at; /* where each row of the batch is */
} recurrent_case;

static inline recurrent_case case_of(const fcp_plan *plan) {
    recurrent_case c = {.plan = plan, .ranks = plan->problem->ranks};
    const uint64_t *offsets = fcp_offsets(plan, FCP_QUERIES);
    c.documents = plan->documents ? plan->documents : offsets;
    c.at = calloc(offsets[plan->sequences_count] + 1, sizeof *c.at);
    for (uint32_t r = 0; r < c.ranks; r++) {
        c.counts[r] = fcp_stretches_of(plan, r, NULL);
        c.of[r] = calloc(c.counts[r] + 1, sizeof *c.of[r]);
        c.tokens[r] = fcp_plan_rank_queries(plan, r);
        fcp_stretches_of(plan, r, c.of[r]);
        c.total += c.counts[r];
        for (uint32_t i = 0; i < c.counts[r]; i++)
            for (uint64_t t = 0; t < c.of[r][i].length; t++)
                c.at[c.of[r][i].start + t] = (case_place){r, i, c.of[r][i].first + t};
    }
    c.order = calloc(c.total + 1, sizeof *c.order);
    uint32_t count = 0;
    for (uint64_t row = 0; row < offsets[plan->sequences_count];) {
        const case_place *p = &c.at[row];
        c.order[count++] = *p;
        row += c.of[p->rank][p->number].length;
    }
    if (count != c.total) abort();
    return c;
}
static inline void case_free(recurrent_case *c) {
    for (uint32_t r = 0; r < c->ranks; r++) free(c->of[r]);
    free(c->order);
    free(c->at);
}
static inline const fcp_stretch *case_stretch(const recurrent_case *c, const case_place *p) {
    return &c->of[p->rank][p->number];
}
static inline uint64_t case_rows(const recurrent_case *c) {
    return fcp_offsets(c->plan, FCP_QUERIES)[c->plan->sequences_count];
}

/* A number between -1 and 1. */
static inline float case_number(uint64_t *state) { return (float)((double)(splitmix(state) >> 11) * 0x1p-52 - 1); }

/* --- scans -------------------------------------------------------------------------------------------------------- */

/* Arrays of each rank. They are there, though empty, at ranks without stretches. */
typedef struct case_scan {
    float *decay[CASE_RANKS], *state[CASE_RANKS], *entering[CASE_RANKS];
    fcp_scan_rank ranks[CASE_RANKS];
} case_scan;

static inline case_scan case_scan_draw(const recurrent_case *c, const fcp_recurrent *x, uint64_t seed) {
    case_scan s = {0};
    const size_t decays = x->heads * fcp_decay_numbers(x), states = x->heads * fcp_state_numbers(x);
    for (uint32_t r = 0; r < c->ranks; r++) {
        uint64_t random = seed * 1000 + r;
        s.decay[r] = malloc((c->counts[r] * decays + 1) * sizeof(float));
        s.state[r] = malloc((c->counts[r] * states + 1) * sizeof(float));
        s.entering[r] = malloc((c->counts[r] * states + 1) * sizeof(float));
        /* a matrix has no gain: states stay small along any document */
        const float scale = x->decay == FCP_DECAY_MATRIX ? 1.7f / sqrtf((float)x->rows) : 1;
        for (size_t i = 0; i < c->counts[r] * decays; i++) s.decay[r][i] = scale * case_number(&random);
        for (size_t i = 0; i < c->counts[r] * states; i++) s.state[r][i] = case_number(&random);
        for (size_t i = 0; i < c->counts[r] * states; i++) s.entering[r][i] = NAN;
        s.ranks[r] = (fcp_scan_rank){s.decay[r], s.state[r], s.entering[r]};
    }
    return s;
}
static inline void case_scan_free(const recurrent_case *c, case_scan *s) {
    for (uint32_t r = 0; r < c->ranks; r++) {
        free(s->decay[r]);
        free(s->state[r]);
        free(s->entering[r]);
    }
}

/* A[i][k] of a head of a stretch; `a` are its numbers. */
static inline double case_decay(const fcp_recurrent *x, const float *a, uint32_t i, uint32_t k) {
    if (x->decay == FCP_DECAY_MATRIX) return (double)a[(size_t)i * x->rows + k];
    return i != k ? 0 : (double)a[x->decay == FCP_DECAY_VECTOR ? i : 0];
}

/* The states that enter all stretches, by a loop over each document: [stretch in order][heads][rows][columns]. `extra`
 * is added to number `which` of b of stretch `of`, to see what it changes; or to its A, if `in_decay`. */
typedef struct case_change {
    uint32_t of;
    size_t which;
    double extra;
    bool in_decay;
} case_change;
static inline double *case_scan_right(const recurrent_case *c, const fcp_recurrent *x, bool descends,
                                      const case_scan *s, const case_change *change) {
    const size_t head_states = fcp_state_numbers(x), head_decays = fcp_decay_numbers(x);
    const size_t states = x->heads * head_states;
    double *out = calloc(c->total * states + 1, sizeof *out), *h = calloc(states + 1, sizeof *h);
    double *next = calloc(states + 1, sizeof *next);
    uint64_t document = UINT64_MAX;
    for (uint32_t n = 0; n < c->total; n++) {
        const uint32_t i = descends ? c->total - 1 - n : n;
        const case_place *p = &c->order[i];
        const bool here = change && change->of == i;
        if (case_stretch(c, p)->document != document) memset(h, 0, states * sizeof *h);
        document = case_stretch(c, p)->document;
        memcpy(out + i * states, h, states * sizeof *h);
        for (uint32_t head = 0; head < x->heads; head++) {
            const float *a = s->decay[p->rank] + (p->number * (size_t)x->heads + head) * head_decays;
            const float *b = s->state[p->rank] + (p->number * (size_t)x->heads + head) * head_states;
            for (uint32_t row = 0; row < x->rows; row++)
                for (uint32_t column = 0; column < x->columns; column++) {
                    const size_t place = head * head_states + (size_t)row * x->columns + column;
                    double sum = (double)b[(size_t)row * x->columns + column];
                    if (here && !change->in_decay && change->which == place) sum += change->extra;
                    for (uint32_t k = 0; k < x->rows; k++) {
                        double factor = case_decay(x, a, row, k);
                        const size_t at = x->decay == FCP_DECAY_MATRIX   ? (size_t)row * x->rows + k
                                          : x->decay == FCP_DECAY_VECTOR ? row
                                                                         : 0;
                        const bool is = x->decay == FCP_DECAY_MATRIX || row == k;
                        if (here && change->in_decay && is && change->which == head * head_decays + at)
                            factor += change->extra;
                        sum += factor * h[head * head_states + (size_t)k * x->columns + column];
                    }
                    next[place] = sum;
                }
        }
        memcpy(h, next, states * sizeof *h);
    }
    free(h);
    free(next);
    return out;
}

/* --- halos -------------------------------------------------------------------------------------------------------- */

/* The row of the batch of row n of the halo of a stretch; -1: it lies beyond the document. */
static inline int64_t case_halo_row(const recurrent_case *c, const fcp_recurrent *x, const fcp_stretch *s, uint64_t n) {
    const int64_t row = n < x->before ? (int64_t)(s->start + n) - (int64_t)x->before
                                      : (int64_t)(s->start + s->length + n) - (int64_t)x->before;
    return row >= (int64_t)c->documents[s->document] && row < (int64_t)c->documents[s->document + 1] ? row : -1;
}
#endif
