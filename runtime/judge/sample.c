/* sample.c: chooses the rows to check where checking all would take too long.
 *
 * Method: 1. Cut the rows of each sequence and head into runs of neighbours.
 *         2. List all runs of a side (queries or keys), through all sequences and heads.
 *         3. Cut the list into as many equal parts as runs can be afforded.
 *         4. From each part draw one run, by a hash of the part's number.
 *         So the sample is spread evenly, depends only on the plan, and is not in step with lengths or heads.
 * Cost:   linear in sequences.
 */
#include <stdlib.h>

#include "runtime/judge/judge_parts.h"
#include "runtime/plan/plan_summary.h"
#include "runtime/plan/sides.h"

enum { LEAST_RUNS = 16 };

static uint64_t hash(uint64_t x) { /* splitmix64 */
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t runs_of(const fcp_sequence *s, fcp_side side, uint32_t heads, uint32_t width) {
    return (fcp_side_length(s, side) + width - 1) / width * heads;
}

/* The work of all pairs, if each takes part in `products` products of head_dim numbers and as many of value_dim.
 * Evaluating the mask costs about one multiplication, also for pairs that are not allowed. */
static double work_of(const fcp_plan *plan, double products) {
    const fcp_problem *p = plan->problem;
    bool by_head = p->mask_uses & MC_USES_H; /* then the summary counts each head's pairs and positions */
    double heads = by_head ? 1 : p->heads;
    const double numbers = products / 2 * (p->head_dim + p->value_dim);
    return heads * ((double)plan->summary->positions + (double)plan->summary->pairs * numbers);
}

double fcp_check_work(const fcp_plan *plan, unsigned passes) {
    return work_of(plan, passes >> FCP_BACKWARD & 1 ? 6 : 2);
}

/* Adds runs of a side that take about `work` in all. If those would be fewer than LEAST_RUNS, the runs get shorter;
 * if they cannot, they take more work. */
static bool add_runs(const fcp_plan *plan, unsigned passes, fcp_side side, double work, check_sample *sample) {
    const fcp_problem *p = plan->problem;
    uint32_t heads = side == FCP_KEYS ? p->kv_heads : p->heads;
    /* for rows of queries: q.k and P V, and in the backward pass dO.v and dQ; of keys: q.k, dO.v, dK and dV */
    double all = work_of(plan, side == FCP_QUERIES && !(passes >> FCP_BACKWARD & 1) ? 2 : 4);
    uint32_t width = CHECK_RUN;
    uint64_t total, count;
    for (;; width /= 2) {
        total = 0;
        for (uint64_t i = 0; i < plan->sequences_count; i++) total += runs_of(&plan->sequences[i], side, heads, width);
        double share = all > work ? work / all * (double)total : (double)total;
        count = (uint64_t)share;
        if (count >= LEAST_RUNS || width == 1) break;
    }
    if (count < LEAST_RUNS) count = LEAST_RUNS;
    if (count > total) count = total;
    fcp_check_unit *units = realloc(sample->units, (sample->count + count + 1) * sizeof *units);
    if (!units) return false;
    sample->units = units;
    uint64_t sequence = 0, before = 0; /* runs of the sequences before it */
    for (uint64_t i = 0; i < count; i++) {
        uint64_t from = (uint64_t)((double)total / (double)count * (double)i);
        uint64_t to = (uint64_t)((double)total / (double)count * (double)(i + 1));
        if (i + 1 == count || to > total) to = total;
        uint64_t at = from + (to > from ? hash(2 * i + side) % (to - from) : 0);
        if (at >= total) at = total - 1;
        uint64_t here;
        while (at - before >= (here = runs_of(&plan->sequences[sequence], side, heads, width))) {
            before += here;
            sequence++;
        }
        uint64_t per_head = here / heads, length = fcp_side_length(&plan->sequences[sequence], side);
        fcp_check_unit *u = &units[sample->count++];
        *u = (fcp_check_unit){.sequence = (uint32_t)sequence, .side = side};
        u->head = (uint32_t)((at - before) / per_head);
        u->first = (at - before) % per_head * width;
        u->count = length - u->first < width ? (uint32_t)(length - u->first) : width;
        sample->rows[side] += u->count;
    }
    return true;
}

bool check_sample_choose(const fcp_plan *plan, unsigned passes, double work, check_sample *out) {
    *out = (check_sample){0};
    bool backward = passes >> FCP_BACKWARD & 1;
    bool good = add_runs(plan, passes, FCP_QUERIES, backward ? work / 2 : work, out);
    if (good && backward) good = add_runs(plan, passes, FCP_KEYS, work / 2, out);
    if (!good) free(out->units);
    return good;
}
