/* sharing.c: checks the strategies that divide heads among ranks.
 *
 * Requires: checked sections model and cluster, and the strategy's parameters.
 * Gives:    how many ranks share heads: a divisor of the number of ranks; and how many heads are computed at a time: a
 *           multiple of that, and a divisor of the number of heads.
 * Cost:     O(ranks + heads).
 *
 * Example: 64 heads on 12 ranks. 12 does not divide 64, so ulysses is refused. The nearest numbers of ranks that do are
 * 8 and 16. 4 divides both 12 and 64: so groups of 4 ranks may share heads, with a ring through the three groups, or
 * another strategy that divides the batch among them.
 */
#include "compiler/sema/sharing.h"
#include "runtime/plan/enum_names.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/base/integers.h"
#include "compiler/base/text.h"
#include "compiler/sema/strategies.h"

static bool is_named(const expr *e, const char *name) {
    return (e->kind == EXPR_NAME || e->kind == EXPR_CALL) && !strcmp(e->name, name);
}

static bool shares(const expr *e) {
    for (int i = 0; i < FCP_STRATEGY_COUNT; i++)
        if (is_named(e, fcp_strategy_names[i])) return strategy_shares_heads((fcp_strategy)i);
    return false;
}

/* Returns which strategy an expression names as the one that divides the batch among the groups, in the form
 * BETWEEN(strategy); 0 if it names none that may do so. */
static uint32_t between_of(const expr *e) {
    for (uint32_t i = 0; i < FCP_STRATEGY_COUNT; i++)
        if (strategy_facts_of[i].between != BETWEEN_NOTHING && is_named(e, fcp_strategy_names[i])) return BETWEEN(i);
    return 0;
}

const expr *sema_between_of(sema *s, const expr *value, const expr **out_between) {
    *out_between = NULL;
    if (value->kind != EXPR_BINARY || value->op != OP_ADD) return value;
    const expr *wrong = !shares(value->a) ? value->a : !between_of(value->b) ? value->b : NULL;
    if (wrong) {
        bool named = wrong->kind == EXPR_NAME || wrong->kind == EXPR_CALL;
        diag_error(s->d, FCP_E_VALUE, wrong->at, "'+' joins ulysses or upipe to ring, fcp, cad or dcp%s%s",
                   named ? ", not " : "", named ? wrong->name : "");
        diag_hint(s->d, "ulysses(inside = node) + ring");
        return NULL;
    }
    s->out->between = between_of(value->b);
    if (!program_has_ring(s->out)) {
        *out_between = value->b;
        return value->a;
    }
    if (value->b->kind == EXPR_CALL) {
        diag_error(s->d, FCP_E_ARGUMENT, value->b->at, "ring takes no parameters here");
        diag_hint(s->d, "they are those of %s: %s(buffers = 3) + ring", value->a->name, value->a->name);
        return NULL;
    }
    return value->a;
}

/* The name of the strategy that stands behind '+'; without one, a name for hints. */
static const char *name_between(const struct fcpc_program *p) {
    return p->between ? fcp_strategy_names[p->between - 1] : "ring";
}

/* Returns a size of groups that would do, for hints: it divides the number of ranks and the number of heads. It is the
 * largest that lies inside a node, or, if that is 1, the largest of all. */
static uint32_t group_that_fits(const struct fcpc_program *p) {
    const uint32_t inside = (uint32_t)common_divisor(p->gpus, p->heads);
    return inside > 1 ? inside : (uint32_t)common_divisor((uint64_t)p->nodes * p->gpus, p->heads);
}

/* Reports that the heads cannot be divided evenly among the ranks that should share them, and hints at numbers of ranks
 * that would do. Such a number also has to divide the heads that are computed at a time, if these are given. */
static void refuse_ranks(sema *s, fcp_strategy by, span at) {
    const struct fcpc_program *p = s->out;
    const char *name = fcp_strategy_names[by];
    const bool wrong = p->together && p->heads % p->together; /* with no number of ranks do these */
    const uint32_t sharing = p->inside, fits = group_that_fits(p),
                   heads = p->together && !wrong ? p->together : p->heads;
    uint32_t below = sharing - 1, above = sharing + 1;
    while (below && heads % below) below--;
    while (above <= heads && heads % above) above++;
    diag_error(s->d, FCP_E_HEADS, at, "%u head%s not divide among %u ranks", p->heads,
               p->heads == 1 ? " does" : "s do", sharing);
    if (p->between) {
        diag_hint(s->d, "%s(inside = %u) + %s would do", name, fits, name_between(p));
        return;
    }
    text t = {0};
    text_printf(&t, "%u", below);
    if (above <= heads) text_printf(&t, " or %u", above);
    text_printf(&t, " rank%s would do", above > heads && below == 1 ? "" : "s");
    if (wrong) text_printf(&t, " without heads = %u", p->together);
    if (fits > 1) text_printf(&t, ", or %s(inside = %u) + ring", name, fits);
    char *line = text_take(&t);
    if (line) diag_hint(s->d, "%s", line);
    free(line);
}

/* Reports that the heads that are computed at a time are no multiple of the ranks, or do not divide all heads. */
static void refuse_heads(sema *s, span at) {
    enum { MOST = 8 };
    const struct fcpc_program *p = s->out;
    uint32_t found[MOST], count = 0;
    text t = {0};
    diag_error(s->d, FCP_E_HEADS, at,
               "upipe(heads = %u): heads must be a multiple of the %u rank%s that share%s them, and divide %u",
               p->together, p->inside, p->inside == 1 ? "" : "s", p->inside == 1 ? "s" : "", p->heads);
    for (uint32_t u = p->inside; u <= p->heads && count < MOST; u += p->inside)
        if (p->heads % u == 0) found[count++] = u;
    for (uint32_t i = 0; i < count; i++)
        text_printf(&t, "%s%u", !i ? "" : i + 1 < count ? ", " : " or ", found[i]);
    char *line = text_take(&t);
    if (line) diag_hint(s->d, "%s would do", line);
    free(line);
}

void sema_check_sharing(sema *s, span whole, const expr *inside, const expr *together) {
    struct fcpc_program *p = s->out;
    const uint32_t ranks = p->nodes * p->gpus;
    const char *name = fcp_strategy_names[p->strategy];
    const span inside_at = inside ? inside->at : whole;
    if (!p->inside) p->inside = p->gpus; /* node */
    if (!p->between && inside && p->inside != ranks) {
        diag_error(s->d, FCP_E_VALUE, inside_at, "inside = %u: without a ring all %u ranks share the heads", p->inside,
                   ranks);
        diag_hint(s->d, "%s(inside = %u) + ring", name, p->inside);
        return;
    }
    if (!p->between) p->inside = ranks;
    if (p->inside > ranks || ranks % p->inside) {
        diag_error(s->d, FCP_E_VALUE, inside_at, "%u rank%s not divide into groups of %u", ranks,
                   ranks == 1 ? " does" : "s do", p->inside);
        diag_hint(s->d, "%s(inside = %u) + %s would do", name, group_that_fits(p), name_between(p));
    } else if (p->heads % p->inside) {
        refuse_ranks(s, p->strategy, inside_at);
    } else {
        if (!p->together) p->together = strategy_heads_together(p);
        if (p->together % p->inside || p->heads % p->together) refuse_heads(s, together ? together->at : whole);
    }
}

/* It is enough to look at the ranks of one node. The number of all ranks is a multiple of that. So if the heads cannot
 * be divided evenly among the ranks of a node, they cannot be divided among all ranks either. */
void sema_check_among(sema *s, span among) {
    struct fcpc_program *p = s->out;
    uint32_t first = 0;
    for (uint32_t i = FCP_STRATEGY_COUNT; i--;) {
        if (!(p->among >> i & 1)) continue;
        if (!strategy_shares_heads(i)) return;
        first = i;
    }
    if (p->heads % p->gpus == 0) return;
    p->inside = p->nodes * p->gpus;
    refuse_ranks(s, (fcp_strategy)first, among);
}
