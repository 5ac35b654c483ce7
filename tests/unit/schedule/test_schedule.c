/* test_schedule.c: tests traffic, rounds, stages, visits and slots, on programs of every kind with homes drawn at
 * random. */
#include "tests/support/planned.h"

static void check_traffic(const planned *x) {
    /* every (KV block, rank that reads it and is not its home) has one fetch there, from someone who has the block */
    const problem *p = &x->p;
    uint8_t *has = calloc((size_t)p->block_count * p->ranks, 1), *crossed = calloc((size_t)p->block_count * x->program->nodes, 1);
    for (uint32_t b = 0; b < p->block_count; b++) has[(size_t)b * p->ranks + x->home[b]] = 1;
    for (uint32_t f = 0; f < x->t.count; f++) {
        const hop *y = &x->t.hops[f];
        cr_assert(has[(size_t)y->block * p->ranks + y->src], "fetch %u is sent by a rank that lacks the block", f);
        cr_assert(!has[(size_t)y->block * p->ranks + y->dst]++, "block %u comes to rank %u twice", y->block, y->dst);
        cr_assert_eq(y->fabric, y->src / x->program->gpus == y->dst / x->program->gpus ? FCP_LOCAL : FCP_NET);
        cr_assert_eq(y->parent == FCP_NONE, y->src == x->home[y->block]);
        if (y->fabric == FCP_NET) {
            cr_assert(!crossed[(size_t)y->block * x->program->nodes + y->dst / x->program->gpus]++, "crosses twice");
            if (x->program->topology == FCP_RAIL) cr_assert_eq(y->src % x->program->gpus, y->dst % x->program->gpus);
        }
    }
    for (uint32_t q = 0; q < p->block_count; q++)
        for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++) {
            uint32_t f = x->t.tile_kv[t], at = placement_exec(x->at.placement, t);
            cr_assert_eq(p->tile_q[t], q);
            cr_assert(has[(size_t)p->tile_k[t] * p->ranks + at]);
            if (f == FCP_NONE)
                cr_assert_eq(at, x->home[p->tile_k[t]]);
            else
                cr_assert(x->t.hops[f].dst == at && x->t.hops[f].block == p->tile_k[t]);
        }
    free(has);
    free(crossed);
}

static void check_rounds(const planned *x, fcp_pass pass) {
    const pass_schedule *ps = &x->s.pass[pass];
    uint32_t ranks = x->p.ranks;
    uint32_t *seen = calloc(2 * (size_t)ps->round_count * ranks * FCP_FABRICS + 1, sizeof *seen);
    uint32_t *degree = calloc(4 * (size_t)ranks, sizeof *degree), bound = 0, independent = 0;
    for (uint32_t i = 0; i < ps->move_count; i++) {
        const move *m = &ps->moves[i];
        size_t at = ((size_t)m->round * FCP_FABRICS + m->fabric) * ranks;
        cr_assert(!seen[2 * (at + m->src)]++, "rank %u sends twice in round %u", m->src, m->round);
        cr_assert(!seen[2 * (at + m->dst) + 1]++, "rank %u receives twice in round %u", m->dst, m->round);
        if (ps->rounds[m->round].kind != FCP_ROUND_INDEPENDENT) continue;
        cr_assert(m->cls == FCP_KV && x->t.hops[m->ref].parent == FCP_NONE);
        uint32_t *a = &degree[(m->fabric * ranks + m->src) * 2], *b = &degree[(m->fabric * ranks + m->dst) * 2 + 1];
        if (++*a > bound) bound = *a;
        if (++*b > bound) bound = *b;
    }
    for (uint32_t r = 0; r < ps->round_count; r++) independent += ps->rounds[r].kind == FCP_ROUND_INDEPENDENT;
    cr_assert_eq(independent, bound);
    cr_assert_eq(ps->independent, bound);
    for (uint32_t i = 1; i < ps->move_count; i++)
        cr_assert_leq(ps->moves[i - 1].round, ps->moves[i].round);
    free(seen);
    free(degree);
}

static void check_visits(const planned *x) {
    const problem *p = &x->p;
    uint8_t *done = calloc(p->tile_count + (size_t)1, 1);
    uint32_t *visited = calloc(p->block_count, sizeof *visited), *all = calloc(p->block_count, sizeof *all);
    for (uint32_t r = 0; r < p->ranks; r++) {
        memset(visited, 0, p->block_count * sizeof *visited); /* tiles of a Q block at this rank: done, and all */
        memset(all, 0, p->block_count * sizeof *all);
        for (uint32_t t = 0; t < p->tile_count; t++) all[p->tile_q[t]] += placement_exec(x->at.placement, t) == r;
        for (uint32_t v = x->s.rank_visit[r]; v < x->s.rank_visit[r + 1]; v++) {
            const fcp_visit *y = &x->s.visits[v];
            uint32_t stage = x->s.visit_stage[v];
            cr_assert(v == x->s.rank_visit[r] || stage >= x->s.visit_stage[v - 1]);
            cr_assert_eq(!!(y->flags & FCP_VISIT_FIRST), !visited[y->q_block]);
            visited[y->q_block] += y->tiles;
            cr_assert_eq(!!(y->flags & FCP_VISIT_LAST), visited[y->q_block] == all[y->q_block]);
            for (uint32_t i = y->first_tile; i < y->first_tile + y->tiles; i++) {
                uint32_t t = x->s.order[i], f = x->t.tile_kv[t];
                cr_assert(!done[t]++);
                cr_assert_eq(placement_exec(x->at.placement, t), r);
                cr_assert(t >= p->tile_start[y->q_block] && t < p->tile_start[y->q_block + 1]);
                if (f != FCP_NONE) cr_assert(stage >= x->s.last_stage[f], "a tile runs before its KV is there");
            }
        }
    }
    for (uint32_t t = 0; t < p->tile_count; t++) cr_assert(done[t]);
    free(done);
    free(visited);
    free(all);
}

typedef struct life { uint32_t rank, birth, end, slot; } life;

/* No two lives that overlap share a slot, and the peak is the largest overlap. */
static void check_lives(const life *l, size_t n, uint32_t ranks, const uint32_t *peak) {
    uint32_t *most = calloc(ranks, sizeof *most);
    for (size_t i = 0; i < n; i++) {
        uint32_t overlap = 0;
        for (size_t j = 0; j < n; j++) {
            if (l[j].rank != l[i].rank || l[j].birth > l[i].birth || l[j].end <= l[i].birth) continue;
            overlap++;
            cr_assert(i == j || l[i].slot != l[j].slot, "two lives share slot %u", l[i].slot);
        }
        if (overlap > most[l[i].rank]) most[l[i].rank] = overlap;
    }
    for (uint32_t r = 0; r < ranks; r++) cr_assert_eq(most[r], peak[r]);
    free(most);
}

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void check_slots(const planned *x) {
    size_t n = x->t.count;
    uint32_t buffers = x->program->buffers;
    bool backward = x->program->passes[FCP_BACKWARD];
    life *kv = calloc(n + 1, sizeof *kv), *dkv = calloc(2 * n + 1, sizeof *dkv);
    for (uint32_t f = 0; f < n; f++) {
        const hop *y = &x->t.hops[f];
        kv[f] = (life){y->dst, x->s.first_stage[f], 0, x->slots.held[f]};
        if (x->s.use_first[f] != FCP_NONE) kv[f].end = x->s.use_last[f] + buffers;
        if (y->parent != FCP_NONE) kv[y->parent].end = later(kv[y->parent].end, x->s.last_stage[f] + 1);
        if (!backward) continue;
        dkv[f] = (life){y->dst, x->s.use_first[f], x->s.back[FCP_BACKWARD].last[f] + 1, x->slots.back[FCP_BACKWARD].from[f]};
        dkv[n + f] = (life){y->src, x->s.back[FCP_BACKWARD].last[f], x->s.back[FCP_BACKWARD].last[f] + buffers, x->slots.back[FCP_BACKWARD].to[f]};
        if (y->parent != FCP_NONE && x->s.back[FCP_BACKWARD].last[f] < dkv[y->parent].birth) dkv[y->parent].birth = x->s.back[FCP_BACKWARD].last[f];
        cr_assert(x->s.back[FCP_BACKWARD].last[f] >= (x->s.use_first[f] == FCP_NONE ? 0 : x->s.use_last[f] + buffers));
    }
    for (size_t f = 0; f < n; f++) cr_assert(kv[f].slot >= x->slots.homes[kv[f].rank]);
    check_lives(kv, n, x->p.ranks, x->slots.count[FCP_KV]);
    if (backward) check_lives(dkv, 2 * n, x->p.ranks, x->slots.count[FCP_DKV]);
    free(kv);
    free(dkv);
}

static void check_all(const planned *x) {
    check_traffic(x);
    check_visits(x);
    check_slots(x);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (x->program->passes[pass]) check_rounds(x, (fcp_pass)pass);
}

Test(schedule, samples) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i++) {
        planned x;
        plan_passes(&x, sample_program(i, text, sizeof text), i);
        check_all(&x);
        planned_free(&x);
    }
}

/* Passes ask the placement where a tile runs, and do not take it for its Q block's home. */
Test(schedule, tiles_that_run_anywhere) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i += 2) {
        planned x;
        plan_passes(&x, sample_program(i, text, sizeof text), i);
        uint32_t *exec = malloc((x.p.tile_count + (size_t)1) * sizeof *exec);
        uint64_t state = i;
        for (uint32_t t = 0; t < x.p.tile_count; t++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            exec[t] = (uint32_t)(state >> 40) % x.p.ranks;
        }
        ((placement *)x.at.placement)->exec = exec;
        plan_rest(&x);
        check_all(&x);
        free(exec);
        planned_free(&x);
    }
}

/* A sequence over two ranks, by hand: 4 blocks, causal, homes 0 1 0 1. */
Test(schedule, by_hand) {
    planned x;
    plan_passes(&x, "cluster { gpus = 2 }\nbatch { lengths = [512] }\n"
                    "plan { mask = causal; block = 128; strategy = fcp(coalesce = 1, buffers = 2) }\n", 1);
    for (uint32_t b = 0; b < 4; b++) x.home[b] = b % 2;
    x.at.coalesce = 1;
    plan_rest(&x);
    /* rank 1 reads blocks 0 and 2, rank 0 reads block 1: three fetches, two rounds, block 0 (more work) first */
    cr_assert_eq(x.t.count, 3);
    cr_assert_eq(x.s.pass[FCP_FORWARD].independent, 2);
    cr_assert_eq(x.s.pass[FCP_FORWARD].stages, 3);
    cr_assert_eq(x.s.first_stage[0], 1);
    cr_assert_eq(x.s.first_stage[2], 2);
    cr_assert_eq(x.slots.count[FCP_KV][1], 2); /* [1, 3) and [2, 4) overlap */
    cr_assert_eq(x.slots.count[FCP_KV][0], 1);
    for (uint32_t f = 0; f < 3; f++) cr_assert_eq(x.s.back[FCP_BACKWARD].last[f], x.s.use_last[f] + 2);
    planned_free(&x);
}
