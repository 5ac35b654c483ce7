/* test_groups.c: tests the strategy `groups`. Its packing is compared with a plain best fit, and its degrees (ranks per
 * group) with the published dynamic program and with enumeration. Choices must be stable under noise. In whole plans it
 * checks which rank computes which chunk, rings of any degree, and homes that stay in place. */
#include <criterion/criterion.h>
#include <string.h>

#include "compiler/place/groups/groups.h"
#include "compiler/simulate/profile.h"
#include "tests/support/groups_noise.h"
#include "tests/support/plan_of.h"
#include "tests/support/planned.h"

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

/* --- packing ------------------------------------------------------------------------------------------------------ */

enum { MOST = 40 };

Test(groups, packing_is_best_fit_decreasing) {
    uint64_t state = 3;
    for (int i = 0; i < 2000; i++) {
        uint64_t size[MOST], room[MOST] = {0};
        uint32_t count = 1 + (uint32_t)draw(&state, MOST), tokens = 1 + (uint32_t)draw(&state, 200), of[MOST], made;
        bool packed[MOST] = {false};
        for (uint32_t s = 0; s < count; s++) size[s] = 1 + draw(&state, draw(&state, 4) ? 100 : 1000);
        groups_group groups[MOST];
        arena scratch = {0};
        cr_assert_eq(groups_pack(size, count, tokens, UINT32_MAX, &scratch, of, groups, &made), FCP_OK);
        uint64_t held[MOST] = {0};
        for (uint32_t n = 0, begun = 0; n < count; n++) { /* the longest first, of equals the earliest */
            uint32_t s = FCP_NONE;
            uint64_t least = UINT64_MAX;
            for (uint32_t k = 0; k < count; k++)
                if (!packed[k] && (s == FCP_NONE || size[k] > size[s])) s = k;
            packed[s] = true;
            for (uint32_t g = 0; g < begun; g++)
                if (room[g] >= size[s] && room[g] < least) least = room[g];
            if (least == UINT64_MAX) {
                cr_assert_eq(of[s], begun++, "no group has room for it");
                room[of[s]] = (size[s] + tokens - 1) / tokens * tokens;
                cr_assert_eq(groups[of[s]].least, room[of[s]] / tokens);
            } else cr_assert(of[s] < begun && room[of[s]] == least, "it joins the fullest group that has room");
            room[of[s]] -= size[s];
            held[of[s]] += size[s];
        }
        for (uint32_t g = 0; g < made; g++)
            cr_assert(held[g] == groups[g].tokens && held[g] && held[g] <= (uint64_t)groups[g].least * tokens);
        arena_free(&scratch);
    }
}

Test(groups, a_sequence_that_needs_too_many_ranks_is_named) {
    const uint64_t size[] = {100, 5000, 200};
    uint32_t of[3], count;
    groups_group groups[3];
    arena scratch = {0};
    cr_assert_eq(groups_pack(size, 3, 1000, 4, &scratch, of, groups, &count), FCP_E_VALUE);
    cr_assert_eq(count, 1);
    cr_assert_eq(groups_pack(size, 3, 1000, 5, &scratch, of, groups, &count), FCP_OK);
    arena_free(&scratch);
}

/* --- degrees ------------------------------------------------------------------------------------------------------ */

/* A model of round figures, in which compute, launches or bytes may weigh most. */
static groups_model draw_model(uint64_t *state) {
    groups_model m = {.gpus = 1 + (uint32_t)draw(state, 8), .ring = draw(state, 2)};
    for (int pass = 0; pass < 1 + (int)draw(state, 2); pass++)
        m.pass[pass] = (groups_pass){1 + draw(state, 1000000), draw(state, draw(state, 2) ? 1000 : 50000000),
                                     draw(state, 8192), draw(state, 3) ? 0 : draw(state, 2000000)};
    for (int f = 0; f < FCP_FABRICS; f++) {
        m.latency[f] = draw(state, 10000000);
        m.rate[f] = 1000000000 + draw(state, 400) * 1000000000;
    }
    return m;
}

static groups_group draw_group(uint64_t *state, uint32_t least) {
    uint64_t n = 128 + draw(state, draw(state, 3) ? 4000 : 200000), side = n / 128 + 1;
    return (groups_group){.tokens = n, .queries = n, .keys = n, .full = draw(state, side * side / 2 + 1),
                          .partial = side, .cells = side * side, .least = least};
}

/* The published dynamic program: the least makespan of the first k groups on j ranks. */
static uint64_t by_program(const groups_model *m, const groups_group *g, uint32_t count, uint32_t ranks) {
    uint64_t *best = malloc(((size_t)count + 1) * (ranks + 1) * sizeof *best), answer = UINT64_MAX;
    for (size_t i = 0; i < ((size_t)count + 1) * (ranks + 1); i++) best[i] = UINT64_MAX;
    best[0] = 0;
    for (uint32_t k = 1; k <= count; k++)
        for (uint32_t j = 1; j <= ranks; j++)
            for (uint32_t d = g[k - 1].least; d <= j; d++) {
                uint64_t before = best[(size_t)(k - 1) * (ranks + 1) + j - d], time = groups_time(m, &g[k - 1], d);
                uint64_t *here = &best[(size_t)k * (ranks + 1) + j], cost = before > time ? before : time;
                if (before != UINT64_MAX && cost < *here) *here = cost;
            }
    for (uint32_t j = 0; j <= ranks; j++)
        if (best[(size_t)count * (ranks + 1) + j] < answer) answer = best[(size_t)count * (ranks + 1) + j];
    free(best);
    return answer;
}

static uint64_t by_enumeration(const groups_model *m, const groups_group *g, uint32_t count, uint32_t ranks,
                               uint64_t so_far) {
    uint64_t best = UINT64_MAX;
    if (!count) return so_far;
    for (uint32_t d = g->least; d <= ranks; d++) {
        uint64_t time = groups_time(m, g, d);
        uint64_t all = by_enumeration(m, g + 1, count - 1, ranks - d, time > so_far ? time : so_far);
        if (all < best) best = all;
    }
    return best;
}

static uint64_t longest(const groups_model *m, const groups_group *g, uint32_t count, uint32_t ranks) {
    uint64_t most = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t time = groups_time(m, &g[i], g[i].degree);
        cr_assert_geq(g[i].degree, g[i].least);
        sum += g[i].degree;
        if (time > most) most = time;
    }
    cr_assert_leq(sum, ranks);
    for (uint32_t i = 0; i < count && sum < ranks; i++) /* ranks are left over only if one more would help no group */
        cr_assert_geq(groups_time(m, &g[i], g[i].degree + 1), groups_time(m, &g[i], g[i].degree));
    return most;
}

Test(groups, degrees_are_the_best_there_are) {
    uint64_t state = 5;
    uint32_t odd = 0, left = 0;
    for (int i = 0; i < 600; i++) {
        groups_group g[16];
        groups_model m = draw_model(&state);
        const bool few = i % 2;
        uint32_t count = 1 + (uint32_t)draw(&state, few ? 4 : 16), ranks = 0, sum = 0;
        for (uint32_t k = 0; k < count; k++) {
            g[k] = draw_group(&state, 1 + (uint32_t)draw(&state, 3));
            ranks += g[k].least;
        }
        ranks += (uint32_t)draw(&state, few ? 8 : 40);
        arena scratch = {0};
        cr_assert_eq(groups_choose(&m, g, count, ranks, &scratch), FCP_OK);
        uint64_t found = longest(&m, g, count, ranks);
        cr_assert_eq(found, by_program(&m, g, count, ranks), "program, drawn %d", i);
        if (few) cr_assert_eq(found, by_enumeration(&m, g, count, ranks, 0), "enumeration, drawn %d", i);
        for (uint32_t k = 0; k < count; k++) {
            odd += g[k].degree == 3 || g[k].degree == 5 || g[k].degree == 6 || g[k].degree == 7;
            sum += g[k].degree;
        }
        left += sum < ranks;
        arena_free(&scratch);
    }
    cr_assert(odd > 200 && left > 5, "%u, %u", odd, left);
}

/* Ranks that are left over go, one by one, to the group with the largest time. */
Test(groups, left_over_ranks_go_where_they_help_most) {
    uint64_t state = 11;
    for (int i = 0; i < 200; i++) {
        groups_group g[8];
        groups_model m = draw_model(&state);
        uint32_t count = 2 + (uint32_t)draw(&state, 6), ranks = count + (uint32_t)draw(&state, 30);
        for (uint32_t k = 0; k < count; k++) g[k] = draw_group(&state, 1);
        arena scratch = {0};
        cr_assert_eq(groups_choose(&m, g, count, ranks, &scratch), FCP_OK);
        uint64_t best = longest(&m, g, count, ranks);
        uint32_t degree[8], rest = ranks;
        for (uint32_t k = 0; k < count; k++) { /* the least degrees for that time; then by hand */
            degree[k] = 1;
            while (groups_time(&m, &g[k], degree[k]) > best) degree[k]++;
            rest -= degree[k];
        }
        while (rest) {
            uint32_t who = FCP_NONE;
            for (uint32_t k = 0; k < count; k++) {
                uint64_t now = groups_time(&m, &g[k], degree[k]);
                if (groups_time(&m, &g[k], degree[k] + 1) >= now) continue;
                if (who == FCP_NONE || now > groups_time(&m, &g[who], degree[who])) who = k;
            }
            if (who == FCP_NONE) break;
            degree[who]++;
            rest--;
        }
        for (uint32_t k = 0; k < count; k++) cr_assert_eq(g[k].degree, degree[k], "drawn %d, group %u", i, k);
        arena_free(&scratch);
    }
}

/* --- profiles ----------------------------------------------------------------------------------------------------- */

/* The degrees of a batch's groups under a model. Returns the makespan, which is the least there is. */
static uint64_t degrees_by(const groups_model *m, const planned *x, groups_group *out) {
    const grouping *g = x->at.grouping;
    arena scratch = {0};
    memcpy(out, g->groups, g->count * sizeof *out);
    cr_assert_eq(groups_choose(m, out, g->count, x->p.ranks, &scratch), FCP_OK);
    arena_free(&scratch);
    const uint64_t found = longest(m, out, g->count, x->p.ranks);
    cr_assert_eq(found, by_program(m, out, g->count, x->p.ranks));
    return found;
}

/* A profile that the caller gives takes the place of the GPU's. Where computing is slower, or a launch, or where there
 * are linear layers, other degrees are the best ones: those of before would take longer. */
Test(groups, degrees_follow_the_profile_that_is_given) {
    static const struct {
        uint32_t full, launch;
        uint64_t linear;
    } times[] = {{40, 1, 0}, {1, 1000, 0}, {1, 1, 2000000}};
    enum { COUNT = 64 };
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        planned x;
        sim_profile given;
        groups_model m;
        fcp_error err;
        groups_group own[COUNT], other[COUNT];
        plan_to_placement(
            &x,
            "model { heads = 8; kv_heads = 8 }\ncluster { nodes = 4; gpus = 8; inter = 5 GB/s; gpu = h200 }\n"
            "batch { lengths = [96K, 70K, 48K, 30K, 12K x 6, 4K x 20, 1K x 60] }\n"
            "plan { mask = causal; margin = 16; strategy = groups(tokens = 64K) }\n",
            NULL);
        const uint32_t count = x.at.grouping->count;
        cr_assert(count > 2 && count <= COUNT);
        memcpy(own, x.at.grouping->groups, count * sizeof *own); /* as the GPU's profile has it */
        cr_assert_eq(sim_profile_of(&x.program->cluster, &given, &err), FCP_OK);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            for (int d = 0; d < SIM_HEAD_DIMS; d++) {
                given.kernels[pass][d].at[SIM_FULL] *= times[i].full;
                given.kernels[pass][d].at[SIM_LAUNCH] *= times[i].launch;
            }
        x.program->profile = &given;
        x.program->linear[FCP_FORWARD] = times[i].linear;
        cr_assert_eq(groups_model_of(x.program, &m, &err), FCP_OK);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const sim_kernel k = sim_profile_kernel(&given, (fcp_pass)pass, 128, 128);
            cr_assert(m.pass[pass].cell == 8 * k.at[SIM_FULL] && m.pass[pass].launch == k.at[SIM_LAUNCH]);
            cr_assert_eq(m.pass[pass].linear, pass == FCP_FORWARD ? times[i].linear : 0);
        }
        const uint64_t best = degrees_by(&m, &x, other);
        uint64_t before = 0;
        for (uint32_t k = 0; k < count; k++) {
            const uint64_t time = groups_time(&m, &own[k], own[k].degree);
            if (time > before) before = time;
        }
        cr_assert_gt(before, best, "case %zu: the choice must differ", i);
        planned_free(&x);
    }
}

/* --- noise -------------------------------------------------------------------------------------------------------- */

/* How often the choice of degrees for a batch stays the same under noise that is drawn 40 times. */
static uint32_t unchanged(planned *x, uint64_t seed, double deviation) {
    const grouping *g = x->at.grouping;
    groups_group *exact = malloc(g->count * sizeof *exact), *again = malloc(g->count * sizeof *again);
    sim_profile profile;
    groups_model m;
    fcp_error err;
    uint32_t same = 0;
    cr_assert_eq(sim_profile_of(&x->program->cluster, &profile, &err), FCP_OK);
    for (int i = -1; i < 40; i++) {
        arena scratch = {0};
        groups_group *now = i < 0 ? exact : again;
        bool equal = true;
        memcpy(now, g->groups, g->count * sizeof *now);
        cr_assert_eq(noise_model(x->program, &profile, &seed, i < 0 ? 0 : deviation, &m), FCP_OK);
        cr_assert_eq(groups_choose(&m, now, g->count, x->p.ranks, &scratch), FCP_OK);
        for (uint32_t k = 0; k < g->count; k++) equal &= now[k].degree == exact[k].degree;
        same += i >= 0 && equal;
        arena_free(&scratch);
    }
    free(exact), free(again);
    return same;
}

/* The published test: normal noise on every coefficient of attention. Where the network decides the time, the
 * choice does depend on it, and so it does where linear layers take as long as attention (make bench ROWS=groups). */
Test(groups, noise_of_twenty_percent_changes_no_choice) {
    static const char *const drawn[] = {"median = 2K, sigma = 1.6", "median = 8K, sigma = 1.2",
                                        "median = 500, sigma = 2.2"};
    uint32_t odd = 0, changed = 0, linear = 0;
    for (int i = 0; i < 18; i++) {
        char text[512];
        planned x;
        const int nodes = i % 2 ? 8 : 4;
        snprintf(text, sizeof text,
                 "model { heads = 64; kv_heads = 8 }\ncluster { nodes = %d; gpus = 8; gpu = h200 }\n"
                 "batch { lengths = lognormal(%s, max = 200K, tokens = %d, seed = %d) }\n"
                 "plan { mask = causal; strategy = groups(tokens = %s) }\n",
                 nodes, drawn[i % 3], nodes * 8 * 32768, i + 1, i / 3 % 2 ? "64K" : "40K");
        plan_to_placement(&x, text, NULL);
        cr_assert_eq(unchanged(&x, (uint64_t)i + 1, 0.2), 40, "batch %d", i);
        for (uint32_t k = 0; k < x.at.grouping->count; k++) odd += x.at.grouping->groups[k].degree % 4 == 3;
        x.program->linear[FCP_FORWARD] = 330000;
        linear += unchanged(&x, (uint64_t)i + 1, 0.2) < 40;
        x.program->linear[FCP_FORWARD] = 0;
        x.program->cluster.inter /= 40;
        x.program->cluster.intra /= 40;
        changed += unchanged(&x, (uint64_t)i + 1, 0.2) < 40;
        planned_free(&x);
    }
    cr_assert_gt(odd, 10);
    cr_assert(changed > 5 && linear > 5, "noise must be able to change a choice: %u, %u", changed, linear);
}

/* Linear layers take their time for each query of a group, over its ranks. */
Test(groups, linear_layers_are_divided_among_the_ranks) {
    uint64_t state = 7;
    for (int i = 0; i < 300; i++) {
        groups_model m = draw_model(&state), without = m;
        groups_group g = draw_group(&state, 1);
        const uint32_t d = 1 + (uint32_t)draw(&state, 30);
        uint64_t added = 0;
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            m.pass[pass].linear = draw(&state, 1000000), without.pass[pass].linear = 0;
            if (m.pass[pass].cell) added += g.queries * m.pass[pass].linear / d;
        }
        cr_assert_eq(groups_time(&m, &g, d), groups_time(&without, &g, d) + added);
    }
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

/* Every tile runs at a rank of its sequence's group, namely at the rank whose chunk holds its rows. No two groups share
 * a rank. */
static void check_plan(const planned *x) {
    const grouping *g = x->at.grouping;
    const problem *p = &x->p;
    uint32_t *owner = malloc(p->ranks * sizeof *owner), parts[2] = {1, 1};
    uint64_t *tokens = calloc(p->ranks, sizeof *tokens);
    memset(owner, 0xff, p->ranks * sizeof *owner);
    for (uint32_t i = 0; i < g->count; i++)
        for (uint32_t k = g->first[i]; k < g->first[i + 1]; k++) {
            cr_assert_eq(owner[g->ranks[k]], FCP_NONE);
            owner[g->ranks[k]] = i;
        }
    for (uint32_t t = 0; t < p->tile_count; t++) {
        uint32_t rank = placement_exec(x->at.placement, t);
        for (uint32_t i = p->tile_part[t]; i < p->tile_part[t + 1]; i++) {
            const fcp_piece *q = &p->pieces[p->parts[i].q_piece];
            const uint32_t of = g->of[q->sequence], d = g->groups[of].degree;
            const uint64_t n = p->queries[q->sequence];
            parts[0] = d > 1 && x->program->shape == GROUPS_ZIGZAG ? 2 * d : d;
            cr_assert_eq(owner[rank], of);
            bool mine = false; /* one of its chunks may begin one token later: earlier sequences shift it */
            for (uint32_t c = 0; c < parts[0]; c++)
                if (g->ranks[g->first[of] + place_chunk(c, d, parts[0] / d)] == rank)
                    mine |= q->start >= n * c / parts[0] && q->start + q->length <= n * (c + 1) / parts[0] + 1;
            cr_assert(mine, "sequence %u, rows from %lu", q->sequence, q->start);
        }
    }
    for (uint32_t b = 0; b < p->block_count; b++) {
        if (x->program->layout == FCP_LAYOUT_PLANNED) cr_assert_eq(x->home[b], g->rank[b]);
        if (p->blocks[b].holds & FCP_HOLDS_Q) tokens[g->rank[b]] += p->blocks[b].tokens;
    }
    for (uint32_t r = 0; r < p->ranks; r++) /* the cap, and a token for each sequence's two chunks */
        cr_assert_leq(tokens[r], x->program->tokens + 2 * (uint64_t)p->sequences);
    free(owner), free(tokens);
}

Test(groups, rings_of_any_degree) {
    static const uint32_t ranks[] = {3, 5, 6, 7, 11};
    for (int i = 0; i < 20; i++) {
        char text[512];
        planned x;
        uint32_t n = ranks[i % 5];
        snprintf(text, sizeof text,
                 "cluster { nodes = 1; gpus = %u }\nbatch { lengths = [%u, 700, 300] }\n"
                 "plan { mask = %s; block = 2K; strategy = groups(tokens = 64K, shape = %s); passes = forward }\n",
                 n, 40000 + 1000 * n, i / 5 % 2 ? "full" : "causal", i / 10 ? "ring" : "zigzag");
        plan_passes(&x, text, 0);
        const grouping *g = x.at.grouping;
        cr_assert(g->count == 1 && g->groups[0].degree == n, "%u groups, %u ranks", g->count, g->groups[0].degree);
        check_plan(&x);
        uint64_t load[16] = {0}, most = 0, least = UINT64_MAX;
        for (uint32_t t = 0; t < x.p.tile_count; t++) load[placement_exec(x.at.placement, t)] += x.p.tile_pairs[t];
        for (uint32_t r = 0; r < n; r++) {
            if (load[r] > most) most = load[r];
            if (load[r] < least) least = load[r];
        }
        if (i < 10 || i / 5 % 2) cr_assert_lt(most - least, least / 20, "ranks of a ring have equal work");
        else cr_assert(most > 7 * (x.p.pairs / n) / 5, "but in a causal one that is not zigzag");
        planned_free(&x);
    }
}

Test(groups, plans_of_every_layout) {
    char text[1024];
    for (unsigned i = 0; i < 2 * SAMPLES; i++) {
        planned x;
        sample_program(i % SAMPLES, text, sizeof text);
        char rest[512], *at = strstr(text, "fcp(");
        snprintf(rest, sizeof rest, "%s", strchr(at, ')'));
        snprintf(at, sizeof text - (size_t)(at - text), "groups(buffers = %u, tokens = %u, shape = %s%s", 1 + i % 4,
                 i % 12 == 11 ? 6000 : 35000, i % 5 ? "zigzag" : "ring", rest); /* with 12 ranks also several groups */
        plan_to_placement(&x, text, NULL);
        check_plan(&x);
        if (x.program->layout == FCP_LAYOUT_CONTIGUOUS) /* homes are where the caller holds the tokens */
            for (int side = 0; side < (x.p.split ? FCP_SIDES : 1); side++) {
                problem_run *runs;
                uint32_t count;
                cr_assert_eq(problem_held(&x.at, (fcp_side)side, &runs, &count), FCP_OK);
                for (uint32_t k = 0; k < x.p.piece_count; k++) {
                    const fcp_piece *piece = &x.p.pieces[k];
                    if (!problem_holds(&x.p, piece->block, (fcp_side)side)) continue;
                    uint32_t r = 0;
                    while (runs[r].sequence != piece->sequence || runs[r].end <= piece->start) r++;
                    cr_assert(runs[r].start <= piece->start && piece->start + piece->length <= runs[r].end);
                    cr_assert_eq(x.home[piece->block], runs[r].rank);
                }
            }
        planned_free(&x);
    }
}

/* A batch that does not fit: the message has the place of the strategy, and says what would do. */
Test(groups, a_batch_that_does_not_fit_is_refused_with_what_would_do) {
    static const struct { const char *lengths, *tokens, *says, *hint; } cases[] = {
        {"100 x 17, 340149", "32K",
         "groups: sequence 17 (340149 tokens) needs 11 ranks at 32K tokens each; there are 8",
         "groups(tokens = 42K) would do"},
        {"20K x 9", "32K", "groups: the sequences need 9 ranks at 32K tokens each; there are 8",
         "groups(tokens = 42K) would do"},
        {"300, 90", "10", "groups: sequence 0 (300 tokens) needs 30 ranks at 10 tokens each; there are 8",
         "groups(tokens = 64) would do"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        snprintf(text, sizeof text, "cluster { gpus = 8 }\nbatch { lengths = [%s] }\n"
                 "plan { mask = causal; strategy = groups(tokens = %s) }\n", cases[i].lengths, cases[i].tokens);
        fcp_plan *plan;
        char *picture;
        cr_assert_eq(plan_try("test.fcp", text, NULL, 0, &plan, &picture), FCP_E_VALUE);
        cr_assert(strstr(picture, cases[i].says) && strstr(picture, cases[i].hint), "%s", picture);
        cr_assert(strstr(picture, "test.fcp:3:34: error[E206]"), "%s", picture);
        free(picture);
    }
}
