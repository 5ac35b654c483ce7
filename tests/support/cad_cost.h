/* cad_cost.h: counts the tokens that a division of work by cad moves, for causal masks. Tests and benchmarks compare
 * the planner's own figures with it. A share is a piece of work that cad gives to a rank: some rows and some of their
 * keys.
 *
 * What goes where, other than to the token's home:
 *   K and V of a token  to every rank with a share in which one of the rows sees the token
 *   a row               to every rank that computes some of it
 * Results of a row that is computed away from home:
 *   the home computes some of it   the other ranks send their parts
 *   the home computes none of it   one of the other ranks merges their parts, and sends the whole result
 * Over net each of these goes to a node once. */
#ifndef CAD_COST_H
#define CAD_COST_H
#include <stdlib.h>
#include <string.h>

#include "compiler/place/cad/cad.h"

typedef struct cad_cost_sum {
    uint64_t kv, rows, net; /* bytes; net: the part between nodes */
    uint64_t work_max, work;
    uint64_t shares;
} cad_cost_sum;

static inline int cad_by_sequence(const void *a, const void *b) {
    const cad_share *x = a, *y = b;
    if (x->run.sequence != y->run.sequence) return x->run.sequence < y->run.sequence ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->run.k0 < y->run.k0 ? -1 : x->run.k0 > y->run.k0;
}

static inline int cad_by_number(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The keys of a share that one of its rows sees: from k0 to the result. */
static inline uint64_t cad_keys_end(const cad_input *in, const cad_run *r) { return r->k0 + cad_span(&in->pairs, r); }

/* Tokens of [start, end) that the shares of ranks first to first + ranks - 1 need as keys; shares: of one sequence. */
static inline uint64_t cad_needed(const cad_input *in, const cad_share *s, size_t count, uint32_t first, uint32_t ranks,
                                  uint64_t start, uint64_t end) {
    uint64_t (*wanted)[2] = malloc((count + 1) * sizeof *wanted), sum = 0, at = start;
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (s[i].rank - first < ranks && cad_work(&in->pairs, &s[i].run)) {
            wanted[n][0] = s[i].run.k0;
            wanted[n++][1] = cad_keys_end(in, &s[i].run);
        }
    qsort(wanted, n, sizeof *wanted, cad_by_number);
    for (size_t i = 0; i < n; i++) {
        uint64_t from = wanted[i][0] > at ? wanted[i][0] : at, to = wanted[i][1] < end ? wanted[i][1] : end;
        if (from < to) sum += to - from, at = to;
    }
    free(wanted);
    return sum;
}

static inline void cad_cost_of(const cad_input *in, const cad_shares *all, cad_cost_sum *out) {
    cad_share *s = malloc((all->count + 1) * sizeof *s);
    uint64_t *load = calloc(in->ranks, sizeof *load);
    bool *reads = calloc(in->ranks, 1);
    *out = (cad_cost_sum){.shares = all->count};
    memcpy(s, all->at, all->count * sizeof *s);
    qsort(s, all->count, sizeof *s, cad_by_sequence);
    for (size_t from = 0, to; from < all->count; from = to) {
        uint32_t q = s[from].run.sequence;
        for (to = from; to < all->count && s[to].run.sequence == q; to++)
            load[s[to].rank] += cad_work(&in->pairs, &s[to].run);
        /* keys */
        for (uint32_t k = 0; k < in->key_count; k++) {
            const problem_run *h = &in->keys[k];
            if (h->sequence != q) continue;
            for (size_t i = from; i < to; i++) {
                bool first = i == from || s[i - 1].rank != s[i].rank;
                bool node = i == from || s[i - 1].rank / in->gpus != s[i].rank / in->gpus;
                if (first && s[i].rank != h->rank)
                    out->kv += in->price.kv * cad_needed(in, s + from, to - from, s[i].rank, 1, h->start, h->end);
                uint32_t v = s[i].rank / in->gpus;
                if (node && v != h->rank / in->gpus)
                    out->net +=
                        in->price.kv * cad_needed(in, s + from, to - from, v * in->gpus, in->gpus, h->start, h->end);
            }
        }
        /* rows: between two cuts all rows are computed at the same ranks */
        uint64_t *cut = malloc((to - from) * 2 * sizeof *cut);
        size_t cuts = 0;
        for (size_t i = from; i < to; i++) cut[cuts++] = s[i].run.x, cut[cuts++] = s[i].run.y;
        qsort(cut, cuts, sizeof *cut, cad_by_number);
        for (size_t c = 0; c + 1 < cuts; c++) {
            if (cut[c] == cut[c + 1]) continue;
            uint32_t ranks = 0, away = 0, nodes = 0, home = FCP_NONE;
            for (size_t i = from; i < to; i++) {
                cad_run r = s[i].run;
                if (r.x > cut[c] || r.y < cut[c + 1]) continue;
                r.x = cut[c], r.y = cut[c + 1];
                home = r.home;
                if (!cad_work(&in->pairs, &r) || reads[s[i].rank]) continue;
                reads[s[i].rank] = true;
                ranks++;
                away += s[i].rank != r.home;
            }
            for (uint32_t v = 0; v * in->gpus < in->ranks; v++) {
                bool any = false;
                for (uint32_t r = v * in->gpus; r < (v + 1) * in->gpus && r < in->ranks; r++) any |= reads[r];
                nodes += any && v != home / in->gpus;
            }
            uint64_t rows = cut[c + 1] - cut[c], maker = ranks && ranks == away ? in->price.part - in->price.whole : 0;
            out->rows += rows * (away * in->price.part - maker);
            out->net += rows * (nodes * in->price.part - (nodes ? maker : 0));
            memset(reads, 0, in->ranks);
        }
        free(cut);
    }
    for (uint32_t r = 0; r < in->ranks; r++) {
        out->work += load[r];
        if (load[r] > out->work_max) out->work_max = load[r];
    }
    free(s), free(load), free(reads);
}

/* Contiguous homes of a batch: rank i of `ranks` holds the tokens from floor(i T / ranks) on. malloc'd. */
static inline problem_run *cad_contiguous(const uint64_t *lengths, uint32_t sequences, uint32_t ranks,
                                          uint32_t *out_count) {
    problem_run *held = malloc(((size_t)sequences + ranks) * sizeof *held);
    uint64_t all = 0, at = 0;
    uint32_t count = 0, rank = 0;
    for (uint32_t s = 0; s < sequences; s++) all += lengths[s];
    for (uint32_t s = 0; s < sequences; s++)
        for (uint64_t from = 0, to; from < lengths[s]; from = to) {
            uint64_t end;
            while ((end = (uint64_t)((unsigned __int128)all * (rank + 1) / ranks)) <= at + from) rank++;
            to = end - at < lengths[s] ? end - at : lengths[s];
            held[count++] = (problem_run){s, rank, from, to};
            if (to == lengths[s]) at += to;
            else continue;
            break;
        }
    *out_count = count;
    return held;
}
#endif
