/* warn.c: warns of masks that probably do to this batch what was not meant: queries that see no key, masks that hide
 * nothing, masks that are symmetric, and the like.
 *
 * Requires: a problem with its tiles, so that the mask is known to fault for no pair.
 * Gives: warnings. Each says what is the case, where, and what follows from it.
 * Cost: O(sequences). Queries that see no key: see cells/masked_rows.c. Symmetry: a few
 *     pairs, which nearly always show that a mask is not symmetric; otherwise the mask is counted together with its
 *     mirror image.
 */
#include "compiler/base/text.h"
#include "compiler/problem/warn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/cells/masked_rows.h"
#include "compiler/problem/far.h"
#include "compiler/problem/problem_tuning.h"

typedef struct batch {
    const struct fcpc_program *program;
    const problem *problem;
    planning *x;
    diags *d;
    /* Sequences that have no queries or no keys do not count here, because the mask is not asked about them. */
    uint64_t longest;  /* of keys */
    uint64_t most;     /* the most queries or keys of a sequence: no position and no distance is larger */
    bool decodes;      /* none has more than one query */
    bool by_data;      /* the mask reads arrays, so sequences of one length may differ */
    /* Sequences with the same numbers of queries and keys are a kind; if by_data, each sequence is one. Per kind,
     * longest first: its first sequence, and how many sequences it has. NULL until list_kinds. */
    uint32_t *example, *times;
    uint32_t unlike; /* how many kinds there are */
    uint32_t first;  /* the longest sequence */
    arena *scratch;
} batch;

static span place(const batch *b, span s) { return planning_span(b->x, s); }

static bool are_alike(const problem *p, uint32_t a, uint32_t b) {
    return p->lengths[a] == p->lengths[b] && p->queries[a] == p->queries[b];
}

/* Has a sequence a pair of a query and a key? */
static bool has_pairs(const problem *p, uint32_t s) { return p->queries[s] && p->lengths[s]; }

/* Lists the kinds of sequences. A mask that depends on n must be asked about each kind. */
static fcp_code list_kinds(batch *b) {
    if (b->example) return FCP_OK;
    const problem *p = b->problem;
    uint32_t all = p->sequences, count = 0, *order = ARENA_NEW(b->scratch, uint32_t, all);
    uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)all);
    b->times = ARENA_NEW(b->scratch, uint32_t, all);
    if (!keys || !order || !b->times) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < all; s++)
        if (has_pairs(p, s)) order[count++] = s;
    if (p->split) problem_sort(p->queries, sizeof *p->queries, true, order, count, keys);
    problem_sort(p->lengths, sizeof *p->lengths, true, order, count, keys);
    for (uint32_t i = 0; i < count; i++) {
        if (!b->by_data && b->unlike && are_alike(p, order[b->unlike - 1], order[i])) {
            b->times[b->unlike - 1]++;
        } else {
            b->times[b->unlike] = 1;
            order[b->unlike++] = order[i];
        }
    }
    b->example = order;
    return FCP_OK;
}

/* --- nothing and everything --------------------------------------------------------------------------------------- */

static bool warn_extremes(const batch *b) {
    const struct fcpc_program *g = b->program;
    const problem *p = b->problem;
    bool constant = g->mask.count == 1;
    if (!p->pairs) {
        diag_warning(b->d, place(b, g->at[AT_MASK]), "%s allows no pair in the whole batch", g->mask_name);
        diag_hint(b->d, "every output is 0 and every gradient too; nothing is computed");
        return true;
    }
    if (p->pairs < p->positions) return false;
    if (p->split && b->decodes) return true; /* one query each: it sees what there is */
    if (!constant && b->longest > 1) {
        diag_warning(b->d, place(b, g->at[AT_MASK]),
                     "%s allows every pair of the whole batch (the longest sequence has %" PRIu64 " tokens)",
                     g->mask_name, b->longest);
        diag_hint(b->d, "over these lengths it masks nothing: `full` is the same");
    }
    return true;
}

/* --- queries that see nothing ------------------------------------------------------------------------------------- */

/* How many queries of the whole batch see no key. */
typedef struct masked_batch {
    bool at_least;       /* the search of a sequence was given up; those after it are not counted */
    uint64_t rows, sequences;
    uint32_t s;          /* the sequence of the example, */
    masked_rows example; /* which is a stretch of its rows */
} masked_batch;

/* Counts the queries that see no key by a mask. The sequences of each of b's kinds are alike for that mask. */
static fcp_code count_masked(batch *b, mc_code mask, masked_batch *out) {
    *out = (masked_batch){.rows = 0};
    row_search *search = row_search_new(mask, b->program->heads);
    if (!search) return FCP_E_NO_MEMORY;
    row_search_set_stop(search, b->x->stop);
    masked_rows r;
    mc_env env = problem_env(b->problem, b->first);
    fcp_code code = masked_rows_find(search, &env, &r); /* of the longest sequence, which mostly answers for all */
    /* none in a sequence that attends to itself means none in shorter ones, but for those with other queries than
     * keys */
    const bool settled = masked_rows_never(search);
    if (code == FCP_OK && (!settled || b->problem->split)) {
        code = list_kinds(b);
        for (uint32_t i = 0; i < b->unlike && code == FCP_OK && !out->at_least; i++) {
            if (planning_stopped(b->x)) {
                code = FCP_E_INTERRUPTED;
                break;
            }
            const uint32_t at = b->example[i];
            if (settled && b->problem->queries[at] == b->problem->lengths[at]) continue;
            env = problem_env(b->problem, b->example[i]);
            if (i || b->example[i] != b->first) code = masked_rows_find(search, &env, &r);
            if (code != FCP_OK) break;
            out->at_least = r.at_least;
            if (!r.rows) continue;
            if (!out->rows) out->example = r, out->s = b->example[i];
            out->rows += r.rows * b->times[i];
            out->sequences += b->times[i];
        }
    }
    row_search_free(search);
    return code;
}

static fcp_code warn_masked(batch *b, masked_batch *found) {
    const struct fcpc_program *g = b->program;
    const bool by_head = mc_uses(g->mask) & MC_USES_H;
    const fcp_code code = count_masked(b, g->mask, found);
    const uint64_t rows = found->rows, sequences = found->sequences;
    const masked_rows example = found->example;
    const uint32_t s = found->s;
    if (code != FCP_OK || !rows) return code;
    const problem *p = b->problem;
    char which[64], head[32] = "", size[80];
    int64_t from = problem_q_first(p, s) + (int64_t)example.first, to = problem_q_first(p, s) + (int64_t)example.end;
    if (to - from == 1) snprintf(which, sizeof which, "q = %" PRId64, from);
    else snprintf(which, sizeof which, "q = %" PRId64 " to %" PRId64, from, to - 1);
    if (p->queries[s] == p->lengths[s]) snprintf(size, sizeof size, "%" PRIu64 " tokens", p->lengths[s]);
    else
        snprintf(size, sizeof size, "%" PRIu64 " %s, %" PRIu64 " key%s", p->queries[s],
                 p->queries[s] == 1 ? "query" : "queries", p->lengths[s], text_plural(p->lengths[s]));
    if (by_head) snprintf(head, sizeof head, ", h = %" PRIu32, example.head);
    diag_warning(b->d, place(b, g->at[AT_MASK]),
                 "%s: %s%" PRIu64 " %s of %" PRIu64 " sequence%s see%s no key: %s%s%s of sequence %" PRIu32 " (%s)",
                 g->mask_name, found->at_least ? "at least " : "", rows,
                 by_head     ? "rows (query and head)"
                 : rows == 1 ? "query"
                             : "queries",
                 sequences, text_plural(sequences), rows == 1 ? "s" : "",
                 rows > example.end - example.first ? "for instance " : "", which, head, s, size);
    /* at the bottom right, of a sequence with fewer keys than queries, the first queries are before the first key */
    diag_hint(b->d, "their output is 0, their log-sum-exp %s, and no gradient passes; %s",
              g->sink ? "the sink's logit" : "-inf",
              to > 0 ? "`or q == k` lets a query see itself"
                     : "they are before the first key, where align = bottom_right puts them");
    return FCP_OK;
}

/* --- constants of scores ------------------------------------------------------------------------------------------ */

/* Warns of queries whose logits are all near a large constant: in float32 their log-sum-exp then loses the logarithm of
 * the number of keys. known: the queries that see no key, which have no logits. */
static fcp_code warn_far(const batch *b, const masked_batch *known) {
    const struct fcpc_program *g = b->program;
    /* nobody reads LSE; or not all queries that have none are known */
    if (!g->passes[FCP_BACKWARD] || known->at_least) return FCP_OK;
    far_score far;
    masked_batch found = {.rows = 0};
    fcp_code code = far_find(g, &far);
    if (code == FCP_OK && far.near.count) {
        batch own = *b; /* its mask is another */
        own.by_data |= mc_uses(far.near) & MC_USES_DATA;
        own.example = NULL;
        own.unlike = 0;
        code = count_masked(&own, far.near, &found);
    }
    const bool by_head = far.near.count && mc_uses(far.near) & MC_USES_H;
    /* rows that `known` counts as one */
    const uint64_t each = by_head && !(mc_uses(g->mask) & MC_USES_H) ? g->heads : 1;
    free(far.nodes);
    if (code != FCP_OK || found.rows <= known->rows * each) return code;
    const uint64_t rows = found.rows - known->rows * each;
    diag_warning(b->d, place(b, g->score_spans[far.constant]),
                 "a constant of %.3g moves all logits of %s%" PRIu64 " %s: float32 has no room beside it for the "
                 "logarithm of how many keys they see",
                 far.value, found.at_least ? "at least " : "", rows,
                 by_head     ? rows == 1 ? "row (query and head)" : "rows (query and head)"
                 : rows == 1 ? "query"
                             : "queries");
    diag_hint(b->d, "O and LSE alone give wrong gradients there: keep lse_low with them for the backward pass");
    return FCP_OK;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static void warn_params(const batch *b) {
    const struct fcpc_program *g = b->program;
    for (uint32_t i = 0; i < g->mask_param_count; i++) {
        const struct program_param *p = &g->mask_params[i];
        if (!p->is_number || p->value <= 0 || (uint64_t)p->value <= b->most) continue;
        diag_warning(b->d, place(b, p->at),
                     "%s = %" PRId64 " is larger than every sequence of the batch: the longest has %" PRIu64 " %s",
                     p->name, p->value, b->most,
                     b->most > b->longest ? "queries" : b->most == 1 ? "token" : "tokens");
        diag_hint(b->d, "no distance and no position reaches it: what compares with it always comes out the same");
    }
}

/* Is a guard true for one of nine pairs of a sequence? They are corners and middles, and so a yes is true. */
static bool is_reached(mc_code guard, const mc_env *env, int64_t *values) {
    const int64_t q[] = {env->q_first, env->q_first + env->queries / 2, env->q_first + env->queries - 1};
    const int64_t k[] = {0, env->n / 2, env->n - 1};
    bool reached = !guard.count;
    for (int i = 0; i < 9 && !reached; i++) reached = mc_eval(guard, env, q[i / 3], k[i % 3], 0, values);
    return reached;
}

/* Warns of numbers of masks of the prelude that are computed, as n - 60, and negative for some sequence. */
static fcp_code warn_counts(const batch *b) {
    for (const program_count *c = b->program->counts; c; c = c->next) {
        int64_t *values = ARENA_NEW(b->scratch, int64_t, c->code.count + (size_t)c->guard.count + 1), least = 0;
        uint32_t first = 0, others = 0;
        if (!values) return FCP_E_NO_MEMORY;
        for (uint32_t s = 0; s < b->problem->sequences && c->code.count; s++) {
            if (!has_pairs(b->problem, s)) continue;
            const mc_env env = problem_env(b->problem, s);
            mc_eval(c->code, &env, 0, 0, 0, values);
            const int64_t value = values[c->code.count - 1];
            if (value >= 0 || !is_reached(c->guard, &env, values)) continue;
            if (!least) first = s, least = value;
            else others++;
        }
        if (!least) continue;
        text more = {0};
        if (others) text_printf(&more, ", and negative for %u other%s", others, text_plural(others));
        diag_warning(b->d, place(b, c->at), "%s is %" PRId64 " for sequence %u (%" PRIu64 " token%s)%.*s", c->of, least,
                     first, b->problem->lengths[first], text_plural(b->problem->lengths[first]), (int)more.size,
                     more.failed ? "" : more.at);
        diag_hint(b->d, "counts and sizes are at least 0: max(..., 0) never is negative");
        text_free(&more);
    }
    return FCP_OK;
}

/* --- structure ---------------------------------------------------------------------------------------------------- */

static void warn_unstructured(const batch *b) {
    diag_warning(b->d, place(b, b->program->at[AT_MASK]),
                 "%s makes planning slow: %" PRIu64 " of its pairs had to be looked at one by one",
                 b->program->mask_name, b->problem->elements);
    diag_hint(b->d,
              "conditions on q - k, on blocks of positions or on fields with long runs decide many pairs at a time");
}

/* --- symmetry ----------------------------------------------------------------------------------------------------- */

/* Compares the mask with its mirror image at a few pairs (q, k); false if they differ. */
static bool seems_symmetric(const mc_code mask, const mc_env *env, int64_t *values) {
    uint64_t n = (uint64_t)env->n, state = n;
    for (int i = 0; i < SYMMETRY_SAMPLES; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int64_t q = (int64_t)((state >> 16) % n), k;
        if (i % 2) k = q + 1 + i / 2 < (int64_t)n ? q + 1 + i / 2 : 0; /* a near one */
        else k = (int64_t)((state >> 40) % n);
        if (mc_eval(mask, env, q, k, 0, values) != mc_eval(mask, env, k, q, 0, values)) return false;
    }
    return true;
}

/* Makes code that says whether the mask is the same for (q, k) as for (k, q). */
static fcp_code make_mirror_test(mc_code mask, mc_node **out, uint32_t *out_count) {
    mc_builder *builder = mc_builder_new();
    uint32_t *places = NULL, roots[2] = {MC_NONE, MC_NONE};
    if (builder) {
        roots[0] = mc_emit_renamed(builder, mask, MC_Q, MC_K);
        roots[1] = mc_emit_renamed(builder, mask, MC_K, MC_Q);
    }
    bool good = roots[0] != MC_NONE && roots[1] != MC_NONE;
    uint32_t root = good ? mc_emit(builder, MC_IFF, roots[0], roots[1], MC_NONE, 0, MC_NONE, 0) : MC_NONE;
    good = good && root != MC_NONE && mc_extract(builder, root, out, &places, out_count);
    free(places);
    mc_builder_free(builder);
    return good ? FCP_OK : FCP_E_NO_MEMORY;
}

static fcp_code warn_symmetric(batch *b) {
    const struct fcpc_program *g = b->program;
    if (!g->mask_own || b->longest < 2 || b->problem->split) return FCP_OK; /* only a square has a mirror image */
    if (problem_is_unstructured(b->problem)) return FCP_OK; /* the comparison would take as long as classifying it */
    int64_t *values = ARENA_NEW(b->scratch, int64_t, g->mask.count);
    if (!values) return FCP_E_NO_MEMORY;
    mc_env env = problem_env(b->problem, b->first);
    if (!seems_symmetric(g->mask, &env, values)) return FCP_OK;
    mc_node *nodes = NULL;
    mc_code both = {0};
    fcp_code code = FCP_OK;
    bool each = b->by_data || mc_uses(g->mask) & MC_USES_N;
    if (each) code = list_kinds(b);
    if (code == FCP_OK && each && b->unlike > SYMMETRY_LENGTHS) return FCP_OK; /* too many kinds to count */
    if (code == FCP_OK) code = make_mirror_test(g->mask, &nodes, &both.count);
    if (code != FCP_OK) return g->mask.count * 2 >= MC_MAX_NODES ? FCP_OK : code;
    both.nodes = nodes;
    cells *c = cells_new(both, g->heads);
    code = c ? FCP_OK : FCP_E_NO_MEMORY;
    if (c) cells_set_stop(c, b->x->stop);
    uint32_t lengths = each ? b->unlike : 1;
    bool same = true;
    for (uint32_t i = 0; i < lengths && code == FCP_OK && same; i++) {
        env = problem_env(b->problem, each ? b->example[i] : b->first);
        cells_counts counts = {0};
        code = cells_count(c, &env, &counts, NULL);
        same = !counts.partial && !counts.none;
    }
    cells_free(c);
    free(nodes);
    if (code != FCP_OK || !same) return code;
    diag_warning(b->d, place(b, g->at[AT_MASK]),
                 "%s is symmetric: where q sees k, k sees q, so queries see what comes after them", g->mask_name);
    diag_hint(b->d, "in a model that predicts the next token that leaks it; if that is not meant: `causal and ...`");
    return FCP_OK;
}

fcp_code warn_batch(planning *x) {
    const problem *p = x->problem;
    batch b = {.program = x->program, .problem = p, .x = x, .d = x->d, .scratch = &x->scratch,
               .by_data = mc_uses(x->program->mask) & MC_USES_DATA, .decodes = true};
    if (!p->positions) return FCP_OK;
    for (uint32_t s = 0; s < p->sequences; s++)
        if (has_pairs(p, s) && p->lengths[s] > b.longest) b.longest = p->lengths[s], b.first = s;
    b.most = b.longest;
    for (uint32_t s = 0; s < p->sequences; s++) {
        if (!has_pairs(p, s)) continue;
        if (p->queries[s] > b.most) b.most = p->queries[s];
        b.decodes &= p->queries[s] == 1;
    }
    warn_params(&b);
    if (warn_counts(&b)) return FCP_E_NO_MEMORY;
    if (problem_is_unstructured(p) && !(x->soon && problem_takes_long(x))) warn_unstructured(&b); /* else they know */
    masked_batch unseeing = {.rows = 0};
    if (!p->pairs) return warn_extremes(&b), FCP_OK;
    const bool extreme = warn_extremes(&b);
    fcp_code code = extreme ? FCP_OK : warn_masked(&b, &unseeing);
    if (code == FCP_OK) code = warn_far(&b, &unseeing);
    return code == FCP_OK && !extreme ? warn_symmetric(&b) : code;
}
