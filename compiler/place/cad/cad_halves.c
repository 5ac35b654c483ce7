/* cad_halves.c: divides a batch into two halves of equal work, the first of which needs nothing of the second.
 *
 * Why: with ping-pong one half is in its linear layers while the other travels. So the first half must be able to leave
 * before the second has any keys. A half is a set of rows. It may hold whole sequences, because no sequence needs
 * another; or the first rows of a sequence, if the mask shows them no later key, as a causal mask does.
 *
 * Example: sequences of 100, 20 and 20 tokens with a causal mask have 5050, 210 and 210 pairs. The first sequence is
 * cut at row 71: its rows before that have half of its pairs. One of the others goes to each half.
 *
 * How: sequences with much work come first, the heaviest before the others. Each is cut such that both halves have as
 * much so far; or, if it cannot be cut, joins the half that has less. The others follow in the order of the batch,
 * whole. Neighbours in the batch are held by the same rank, so each rank holds some of both halves.
 *
 * Requires: rows, keys and pairs of the input. Gives: for each sequence the row at which its second half begins.
 * Cost: O(sequences log sequences).
 * Source: the nano-batches of "Core attention disaggregation" (DistCA, 2025), which halves tokens.
 */
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "compiler/place/cad/cad.h"

/* A sequence may be cut if it has more than this part of a rank's mean work. */
enum { CUT_PART = 4 };

static cad_run whole_of(const cad_input *in, uint32_t s) {
    return (cad_run){s, 0, 0, in->pairs.queries[s], 0, in->pairs.keys[s]};
}

/* Finds a row before which the sequence has about `first` work, such that no row before it sees a key from there on.
 * False: there is none. */
static bool find_cut(const cad_input *in, uint32_t s, uint64_t work, uint64_t first, uint64_t *out) {
    const cad_pairs *p = &in->pairs;
    const cad_run all = whole_of(in, s);
    uint64_t behind;
    if (p->queries[s] != p->keys[s]) return false; /* a row has no key of its own */
    uint64_t c = cad_last_rows(p, &all, work - first, &behind);
    const uint64_t step = p->tables ? p->tables[s].key_step : p->shard; /* there keys are cut, too */
    if (!step) return false;
    c -= c % step;
    const cad_run before = {s, 0, 0, c, c, all.k1};
    *out = c;
    return c > 0 && c < all.y && !cad_work(p, &before);
}

/* Gives a sequence to the halves, which have `has` so far. */
static void give(const cad_input *in, uint32_t s, uint64_t work, bool may_cut, uint64_t has[2], uint64_t *out) {
    const uint64_t n = in->pairs.queries[s], ahead = has[0] > has[1] ? has[0] - has[1] : 0,
                   behind = has[1] > has[0] ? has[1] - has[0] : 0;
    *out = has[0] <= has[1] ? n : 0;
    if (may_cut && work > ahead && work > behind) {
        uint64_t c;
        if (find_cut(in, s, work, work / 2 + behind / 2 - ahead / 2, &c)) *out = c;
    }
    const cad_run first = {s, 0, 0, *out, 0, in->pairs.keys[s]};
    const uint64_t early = *out == n ? work : cad_work(&in->pairs, &first);
    has[0] += early;
    has[1] += work - early;
}

fcp_code cad_halves(const cad_input *in, arena *memory, arena *scratch, const uint64_t **out) {
    const uint32_t count = in->pairs.sequences;
    uint64_t *cut = ARENA_NEW(memory, uint64_t, count + (size_t)1),
             *work = ARENA_NEW(scratch, uint64_t, count + (size_t)1);
    uint64_t *order = ARENA_NEW(scratch, uint64_t, count + (size_t)1),
             *other = ARENA_NEW(scratch, uint64_t, count + (size_t)1);
    uint64_t has[2] = {0}, all = 0;
    if (!cut || !work || !order || !other) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < count; s++) {
        const cad_run r = whole_of(in, s);
        all += work[s] = order[s] = cad_work(&in->pairs, &r);
    }
    const uint64_t heavy = all / in->ranks / CUT_PART;
    order_rising(order, other, count);
    for (uint32_t i = count; i-- > 0;) {
        const uint32_t s = (uint32_t)order[i];
        if (work[s] > heavy) give(in, s, work[s], true, has, &cut[s]);
    }
    for (uint32_t s = 0; s < count; s++)
        if (work[s] <= heavy) give(in, s, work[s], false, has, &cut[s]);
    *out = cut;
    return FCP_OK;
}

fcp_code cad_divide_halves(const cad_input *in, const uint64_t *cut, arena *memory, arena *scratch, cad_shares *out) {
    cad_shares found[2];
    for (int half = 0; half < 2; half++) {
        cad_input one = *in;
        problem_run *rows = ARENA_NEW(scratch, problem_run, in->row_count + (size_t)1);
        if (!rows) return FCP_E_NO_MEMORY;
        one.row_count = 0;
        for (uint32_t i = 0; i < in->row_count; i++) {
            problem_run r = in->rows[i];
            if (half) r.start = max_u64(r.start, cut[r.sequence]);
            else r.end = min_u64(r.end, cut[r.sequence]);
            if (r.start < r.end) rows[one.row_count++] = r;
        }
        one.rows = rows;
        fcp_code code = cad_divide(&one, memory, scratch, &found[half]);
        if (code) return code;
    }
    *out = found[0];
    for (size_t i = 0; i < found[1].count; i++)
        if (!cad_add_share(memory, out, &found[1].at[i].run, found[1].at[i].rank)) return FCP_E_NO_MEMORY;
    return FCP_OK;
}
