/* extract.c: checks the tables that only extracts have, and says what an extract is not for (extract.h).
 *
 * Requires: fcp_extract_check runs when all other tables have been checked; the contents may be hostile.
 * Gives:    every index and count of these tables is in range, and every bundle has the tokens that transfers move.
 * Cost:     linear; a binary search for each transfer of a bundle.
 * Errors:   FCP_E_PLAN_FORMAT, FCP_E_EXTRACT.
 */
#include "runtime/plan/extract.h"

#include "runtime/plan/file.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/sides.h"

typedef unsigned long long ull;

uint32_t fcp_extract_find(const fcp_plan *plan, uint32_t number) {
    const fcp_extract_sequence *places = plan->extract->places;
    uint32_t low = 0, high = (uint32_t)plan->sequences_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (places[middle].number < number) low = middle + 1;
        else high = middle;
    }
    return low < plan->sequences_count && places[low].number == number ? low : (uint32_t)plan->sequences_count;
}

uint32_t fcp_plan_rank(const fcp_plan *plan) { return plan->extract ? plan->extract->about->rank : FCP_NOWHERE; }

fcp_code fcp_plan_whole(const fcp_plan *plan, const char *what, fcp_error *err) {
    if (!plan->extract) return FCP_OK;
    return fcp_fail(err, FCP_E_EXTRACT, "%s needs the whole plan, and this is rank %u's extract of it", what,
                    plan->extract->about->rank);
}

fcp_code fcp_extract_fits(const fcp_plan *plan, uint32_t first_rank, uint32_t rank_count, fcp_error *err) {
    if (!plan->extract || (rank_count == 1 && first_rank == plan->extract->about->rank)) return FCP_OK;
    return fcp_fail(err, FCP_E_EXTRACT, "the plan is rank %u's extract, and this process runs rank %u%s",
                    plan->extract->about->rank, first_rank, rank_count > 1 ? " and others" : "");
}

bool fcp_extract_counts(const fcp_plan *plan) {
    const fcp_extract *x = plan->extract;
    return plan->problem_count == 1 && x->about_count == 1 && x->about->rank < plan->problem->ranks &&
           x->about->split <= 1 && x->about->packed <= 1 && x->about->query_spans <= x->spans_count &&
           x->places_count == plan->sequences_count && x->groups_count == FCP_BUNDLE_GROUPS + 1 &&
           x->bundles_count > 0 && x->bundles_count < FCP_NONE && x->bundle_runs_count < FCP_NONE;
}

static fcp_code check_places(const fcp_plan *plan, fcp_error *err) {
    const fcp_extract *x = plan->extract;
    const fcp_problem *p = plan->problem;
    for (uint64_t i = 0; i < plan->sequences_count; i++) {
        const fcp_extract_sequence *s = &x->places[i];
        const fcp_sequence *of = &plan->sequences[i];
        if (!(s->number < x->about->sequences && !s->pad && (!i || s->number > x->places[i - 1].number) &&
              of->queries <= p->tokens && s->row[FCP_QUERIES] <= p->tokens - of->queries && of->keys <= p->key_tokens &&
              s->row[FCP_KEYS] <= p->key_tokens - of->keys))
            return malformed(err, "sequence %llu of the extract is %u of the plan, from rows %llu and %llu on", (ull)i,
                             s->number, (ull)s->row[FCP_QUERIES], (ull)s->row[FCP_KEYS]);
    }
    for (uint64_t i = 0; i < x->spans_count; i++) {
        const fcp_span *s = &x->spans[i];
        const fcp_side side = i < x->about->query_spans ? FCP_QUERIES : FCP_KEYS;
        const uint64_t all =
            s->sequence < plan->sequences_count ? fcp_side_length(&plan->sequences[s->sequence], side) : 0;
        if (!(s->length && s->length <= all && s->start <= all - s->length))
            return malformed(err, "span %llu of the layout: tokens %llu to %llu of sequence %u", (ull)i, (ull)s->start,
                             (ull)s->start + s->length, s->sequence);
    }
    return FCP_OK;
}

/* Checks a bundle's runs. */
static fcp_code check_runs(const fcp_plan *plan, uint32_t group, const fcp_bundle_at *bundle, fcp_error *err) {
    const fcp_extract *x = plan->extract;
    const uint32_t rank = x->about->rank, side = group % FCP_SIDES;
    const bool at_caller = group / FCP_SIDES == FCP_AT_CALLER;
    uint64_t at = 0;
    for (uint64_t i = bundle->first_run; i < bundle[1].first_run; i++) {
        const fcp_bundle_run *r = &x->bundle_runs[i];
        const fcp_block *k = r->block < plan->blocks_count ? &plan->blocks[r->block] : NULL;
        if (!(k && k->holds >> side & 1 && k->home == (at_caller ? bundle->peer : rank) && r->at == at && r->tokens &&
              r->tokens <= k->tokens && r->first <= k->tokens - r->tokens &&
              (!at_caller || (uint64_t)r->place + r->tokens <= fcp_side_tokens(plan, (fcp_side)side, rank))))
            return malformed(err, "run %llu of a bundle with rank %u: %u tokens from %u on of block %u", (ull)i,
                             bundle->peer, r->tokens, r->first, r->block);
        at += r->tokens;
        if (at > INT32_MAX) return malformed(err, "a bundle with rank %u of too many tokens", bundle->peer);
    }
    return FCP_OK;
}

static fcp_code check_bundles(const fcp_plan *plan, fcp_error *err) {
    const fcp_extract *x = plan->extract;
    const uint64_t count = x->bundles_count - 1;
    if (!(x->groups[0] == 0 && x->groups[FCP_BUNDLE_GROUPS] == count && x->bundles[0].first_run == 0 &&
          x->bundles[count].first_run == x->bundle_runs_count))
        return malformed(err, "bundles that do not span their runs");
    for (uint32_t g = 0; g < FCP_BUNDLE_GROUPS; g++)
        if (x->groups[g] > x->groups[g + 1] || x->groups[g + 1] > count)
            return malformed(err, "group %u of bundles: %llu to %llu", g, (ull)x->groups[g], (ull)x->groups[g + 1]);
    for (uint32_t g = 0; g < FCP_BUNDLE_GROUPS; g++)
        for (uint64_t i = x->groups[g]; i < x->groups[g + 1]; i++) {
            const fcp_bundle_at *b = &x->bundles[i];
            if (!(b->peer < plan->problem->ranks && !b->pad && (i == x->groups[g] || b[-1].peer < b->peer) &&
                  b->first_run < b[1].first_run && b[1].first_run <= x->bundle_runs_count))
                return malformed(err, "bundle %llu with rank %u: runs %llu to %llu", (ull)i, b->peer, (ull)b->first_run,
                                 (ull)b[1].first_run);
            fcp_code code = check_runs(plan, g, b, err);
            if (code) return code;
        }
    return FCP_OK;
}

/* How many tokens the bundle has of which a transfer moves a part. */
static uint64_t bundle_tokens(const fcp_plan *plan, const fcp_transfer *t) {
    const fcp_extract *x = plan->extract;
    const uint32_t group = (fcp_at_caller(t) ? FCP_AT_CALLER : FCP_AT_HOME) * FCP_SIDES + t->side;
    uint64_t low = x->groups[group], high = x->groups[group + 1];
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (x->bundles[middle].peer < t->peer) low = middle + 1;
        else high = middle;
    }
    if (low == x->groups[group + 1] || x->bundles[low].peer != t->peer) return 0;
    const fcp_bundle_run *last = &x->bundle_runs[x->bundles[low + 1].first_run - 1];
    return (uint64_t)last->at + last->tokens;
}

fcp_code fcp_extract_check(const fcp_plan *plan, fcp_error *err) {
    fcp_code code = check_places(plan, err);
    if (!code) code = check_bundles(plan, err);
    for (uint64_t i = 0; i < plan->transfers_count && !code; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        if ((t->cls == FCP_IN || t->cls == FCP_OUT) && (uint64_t)t->first + t->tokens > bundle_tokens(plan, t))
            code = malformed(err, "transfer %llu: tokens %u to %llu of a bundle with rank %u, which has %llu", (ull)i,
                             t->first, (ull)t->first + t->tokens, t->peer, (ull)bundle_tokens(plan, t));
    }
    return code;
}
