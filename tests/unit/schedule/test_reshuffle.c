/* test_reshuffle.c: tests the reshuffle: each token that has to move is in exactly one bundle, from the rank at which
 * the layout's definition puts it. Layouts of groups are tested, too. */
#include "runtime/plan/layout.h"
#include "tests/support/planned.h"

/* The rank that holds token k of a sequence, from the definition in runtime/plan/layout.h. first: the sequence's first
 * token of the side in the batch; before: tokens, queries and keys, of the sequences before each. */
static uint32_t caller_of(const planned *x, fcp_side side, const uint64_t *first, const uint64_t *before, uint32_t s,
                          uint64_t k) {
    const problem *p = &x->p;
    uint64_t group = program_layout_group(x->program), groups = p->ranks / group, all = before[p->sequences], mine,
             n = 0;
    uint64_t g = (before[s] + before[s + 1]) * groups / (2 * all), at = 0, base = first[p->sequences];
    for (uint32_t i = 0; i < p->sequences; i++) {
        if ((before[i] + before[i + 1]) * groups / (2 * all) != g) continue;
        if (first[i] < base) base = first[i];
        n += problem_length(p, i, side);
    }
    if (x->program->layout == FCP_LAYOUT_CONTIGUOUS) {
        at = first[s] - base + k;
        for (mine = 0; (mine + 1) * n / group <= at;) mine++;
    } else {
        uint64_t chunk = 0;
        n = problem_length(p, s, side);
        while ((chunk + 1) * n / (2 * group) <= k) chunk++;
        mine = chunk < group ? chunk : 2 * group - 1 - chunk;
    }
    return (uint32_t)(g * group + mine);
}

static void check_side(const planned *x, fcp_side side) {
    const problem *p = &x->p;
    uint64_t *first = calloc(p->sequences + 1, sizeof *first), *before = calloc(p->sequences + 1, sizeof *before);
    for (uint32_t s = 0; s < p->sequences; s++) {
        first[s + 1] = first[s] + problem_length(p, s, side);
        before[s + 1] = before[s] + p->queries[s] + p->lengths[s];
    }
    /* what the definition says of each pair of block and caller */
    uint32_t *tokens = calloc((size_t)p->block_count * p->ranks, sizeof *tokens);
    for (uint32_t b = 0; b < p->block_count; b++) {
        if (!problem_holds(p, b, side)) continue;
        for (uint32_t i = 0; i < p->blocks[b].pieces; i++) {
            const fcp_piece *y = &p->pieces[p->blocks[b].first_piece + i];
            bool planned_layout = x->program->layout == FCP_LAYOUT_PLANNED;
            for (uint64_t k = y->start; k < y->start + y->length; k++)
                tokens[(size_t)b * p->ranks +
                       (planned_layout ? x->home[b] : caller_of(x, side, first, before, y->sequence, k))]++;
        }
    }
    uint32_t units = 0;
    for (uint32_t i = 0; i < x->r.count; i++) {
        const bundle *b = &x->r.bundles[i];
        uint32_t sum = 0, newest = 0;
        if (b->side != side) continue;
        cr_assert(b->count);
        for (uint32_t j = b->first; j < b->first + b->count; j++) {
            const content *c = &x->r.contents[j];
            cr_assert(j == b->first || c->block > newest, "in order of block");
            newest = c->block;
            cr_assert_eq(x->home[c->block], b->home);
            cr_assert_eq(tokens[(size_t)c->block * p->ranks + b->caller], c->tokens);
            tokens[(size_t)c->block * p->ranks + b->caller] = 0;
            if (b->caller != b->home) cr_assert(x->r.moved[c->block]);
            sum += c->tokens;
        }
        cr_assert_eq(sum, b->tokens);
        for (uint32_t at = 0; b->caller != b->home && at < b->tokens; at += bundle_unit(p, b, at)) units++;
    }
    for (size_t i = 0; i < (size_t)p->block_count * p->ranks; i++)
        cr_assert_eq(tokens[i], 0, "a token is in no bundle");
    if (!p->split) cr_assert_eq(units, x->r.units);
    free(first);
    free(before);
    free(tokens);
}

Test(reshuffle, samples) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i++) {
        planned x;
        plan_passes(&x, sample_program(i, text, sizeof text), i);
        for (int side = 0; side < (x.p.split ? FCP_SIDES : 1); side++) check_side(&x, (fcp_side)side);
        planned_free(&x);
    }
}

/* Walks and token counts of the rule against one another, for any lengths: a rank's runs, in order, are what the walk
 * along the sequences finds at that rank. */
Test(reshuffle, walks_agree) {
    uint64_t state = 7;
    for (unsigned i = 0; i < 300; i++) {
        enum { MOST = 40 };
        uint64_t offsets[FCP_SIDES][MOST + 1] = {{0}}, parts[64], tokens[32], seen[32] = {0};
        uint32_t group = 1 + i % 8, ranks = group * (1 + i / 8 % 4), count = 1 + i % MOST;
        for (uint32_t s = 0; s < count; s++)
            for (int side = 0; side < FCP_SIDES; side++) {
                state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
                offsets[side][s + 1] = offsets[side][s] + 1 + (state >> 33) % (i % 3 ? 9 : 900);
            }
        /* one deal, or two whose ranks overlap */
        fcp_deal deals[2] = {{0, count, 0, ranks}};
        uint32_t deal_count = i % 5 == 4 && count > 1 && ranks > group ? 2 : 1;
        if (deal_count == 2) {
            deals[0] = (fcp_deal){0, count / 2, group, ranks - group};
            deals[1] = (fcp_deal){count / 2, count - count / 2, 0, 2 * group};
        }
        fcp_rule rule = {i % 2 ? FCP_LAYOUT_CONTIGUOUS : FCP_LAYOUT_ZIGZAG, ranks, group, deals, deal_count,
                         {offsets[FCP_QUERIES], offsets[FCP_KEYS]}};
        fcp_rule_tokens(&rule, FCP_KEYS, parts, tokens);
        for (uint32_t s = 0; s < count; s++) {
            fcp_walk once = fcp_walk_of(&rule, FCP_KEYS);
            fcp_walk_to(&once, s, 0);
            for (uint64_t at = offsets[FCP_KEYS][s]; at < offsets[FCP_KEYS][s + 1]; at++) {
                fcp_walk there = fcp_walk_of(&rule, FCP_KEYS);
                if (at == fcp_walk_end(&once)) fcp_walk_next(&once);
                fcp_walk_to(&there, s, at - offsets[FCP_KEYS][s]);
                cr_assert(fcp_walk_rank(&there) == fcp_walk_rank(&once) && fcp_walk_end(&there) == fcp_walk_end(&once),
                          "%u: token %llu of sequence %u", i, (unsigned long long)at, s);
                cr_assert(fcp_walk_rank(&once) < ranks && fcp_walk_end(&once) > at);
                seen[fcp_walk_rank(&once)]++;
            }
        }
        for (uint32_t r = 0; r < ranks; r++) cr_assert_eq(seen[r], tokens[r], "%u: rank %u", i, r);
    }
}
