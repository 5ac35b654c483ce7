/* check_batch.c: finds two mistakes of a batch besides its lengths: slices that end too far, and scores that fault.
 *
 * Requires: for slices the lengths of the batch; for the score a problem with its tiles.
 * Gives: errors with their places.
 * Cost: O(sequences) for slices; for the score as much as the mask's classification, and nothing where it cannot fault.
 */
#include "compiler/problem/faults.h"
#include "compiler/problem/problem.h"

/* Refuses slices that reach beyond the longest sequence: either the file or the batch is wrong. */
fcp_code problem_check_slices(planning *x) {
    bool pairs = false; /* of a batch without any, the mask is not asked */
    uint64_t longest = 0; /* positions of a sequence: of its keys, and of queries that begin where they do */
    const uint64_t *queries = x->program->align == FCP_TOP_LEFT && x->queries ? x->queries : x->lengths;
    for (size_t i = 0; i < x->count; i++) {
        if (x->lengths[i] > longest) longest = x->lengths[i];
        if (queries[i] > longest) longest = queries[i];
        pairs |= x->lengths[i] && (!x->queries || x->queries[i]);
    }
    if (!pairs) return FCP_OK;
    for (uint32_t i = 0; i < x->program->slices_count; i++) {
        const program_slices *s = &x->program->slices_about[i];
        if ((uint64_t)s->reach <= longest) continue;
        const char *word = *s->file ? "slice of line" : "slice";
        diag_error(x->d, FCP_E_SLICES, planning_span(x, s->at),
                   "%s %u%s%s%s reaches to position %lld; the longest sequence has %llu tokens", word, s->reach_line,
                   *s->file ? " of '" : "", s->file, *s->file ? "'" : "", (long long)s->reach,
                   (unsigned long long)longest);
        diag_hint(x->d, "positions count from the start of each sequence; q1 and k1 are the positions after the last");
        return FCP_E_SLICES;
    }
    return FCP_OK;
}

/* --- faults of the score ------------------------------------------------------------------------------------------ */

/* Does the code read a field? Then sequences of equal length may differ. */
static bool reads_field(const struct fcpc_program *g, mc_code code) {
    for (uint32_t i = 0; i < code.count; i++)
        if ((mc_loads_int(code.nodes[i].op) || mc_loads_real(code.nodes[i].op)) &&
            g->arrays[code.nodes[i].imm].record.kind != FCP_TABLE)
            return true;
    return false;
}

/* Checks that the score faults for no pair of the batch. Of sequences that are alike only one is checked:
 * - If the score reads no field and all sequences have as many queries as keys, sequences of one length are alike.
 * - If the score does not depend on n (the length) either, the longest sequence stands for all. */
fcp_code problem_check_score(planning *x) {
    const struct fcpc_program *g = x->program;
    const problem *p = x->problem;
    if (g->check.nodes == g->mask.nodes) return FCP_OK;
    bool each = p->split || reads_field(g, g->check), by_length = mc_uses(g->check) & MC_USES_N;
    uint32_t *order = ARENA_NEW(&x->scratch, uint32_t, p->sequences);
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)p->sequences);
    bool *asks = ARENA_NEW(&x->scratch, bool, p->sequences);
    cells *check = cells_new(g->check, g->heads);
    fcp_code code = order && keys && asks && check ? FCP_OK : FCP_E_NO_MEMORY;
    if (check) cells_set_stop(check, x->stop);
    if (!code) {
        for (uint32_t s = 0; s < p->sequences; s++) order[s] = s;
        problem_sort(p->lengths, sizeof *p->lengths, true, order, p->sequences, keys);
        for (uint32_t i = 0; i < p->sequences; i++) /* the first sequence of each length, or of the longest */
            asks[order[i]] = each || !i || (by_length && p->lengths[order[i]] != p->lengths[order[i - 1]]);
    }
    for (uint32_t s = 0; s < p->sequences && !code; s++) {
        cells_counts counts;
        cells_fault fault = {0};
        if (!asks[s]) continue;
        const mc_env env = problem_env(p, s);
        code = cells_count(check, &env, &counts, &fault);
        if (code && fault.kind != MC_OK) code = faults_report(x, code, FAULTS_SCORE, s, &fault);
    }
    cells_free(check);
    return code;
}
