/* scatter.h: a strategy for tests alone, which draws all choices of a plan at random from a seed: ranges of heads,
 * cuts, homes, the rank of each tile, and the routes of blocks.
 *
 * The plans are legal but make no sense otherwise. For example, a rank may pass on a block that it does not read. Code
 * that works for all such plans does not depend on habits of the real strategies.
 *
 * Programs cannot ask for it, because it has no name. Tests give it to compile_batch as `strategy` in its
 * compile_watch; the plan then names the strategy that the program states. */
#ifndef SCATTER_H
#define SCATTER_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/compile.h"
#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"

typedef struct scatter {
    strategy strategy; /* first: planning.strategy points to it */
    uint64_t seed;
    bool one_range; /* leaves heads together */
    bool at_home;   /* leaves tiles at home */
    bool whole;     /* leaves the tiles of a block together */
} scatter;

/* A number below `bound` that looks drawn, the same for the same three. */
static inline uint32_t scatter_draw(uint64_t seed, uint64_t what, uint64_t which, uint32_t bound) {
    uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + what * UINT64_C(0xd1342543de82ef95) + which;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (uint32_t)((x >> 32) * bound >> 32);
}
enum { SCATTER_KV, SCATTER_SUB, SCATTER_EVEN, SCATTER_LENGTH, SCATTER_JOIN, SCATTER_FEW, SCATTER_HOME, SCATTER_MODE,
       SCATTER_RANK, SCATTER_PICK, SCATTER_RELAY, SCATTER_FROM, SCATTER_ORDER };

static inline const scatter *scatter_of(const planning *x) { return (const scatter *)x->strategy; }

/* A divisor of n. */
static inline uint32_t scatter_divisor(uint64_t seed, uint64_t what, uint32_t n) {
    uint32_t d = 1 + scatter_draw(seed, what, 0, n);
    while (n % d) d++;
    return d;
}

/* Cuts the sequences' sides into pieces of any length up to a block's; blocks of one or a few of them. */
static inline fcp_code scatter_cut(planning *x) {
    problem *p = x->problem;
    const scatter *s = scatter_of(x);
    const uint32_t kv_heads = p->program->kv_heads, shared = p->program->heads / kv_heads, block = p->block;
    if (!s->one_range && !x->sharing) { /* else heads are divided after it: place/heads/between_groups.c */
        p->range_kv = scatter_divisor(s->seed, SCATTER_KV, kv_heads);
        p->range_sub = scatter_divisor(s->seed, SCATTER_SUB, shared);
    }
    if (p->range_sub < shared) p->split = true;
    const uint32_t grain = scatter_draw(s->seed, SCATTER_EVEN, 0, 2) && block >= FCP_CELL ? FCP_CELL : 1;
    const uint32_t least = block >= 8 * grain ? block / 8 / grain * grain : grain;
    size_t room = 0;
    for (uint32_t q = 0; q < p->sequences; q++)
        room += p->queries[q] / least + 1 + (p->split ? p->lengths[q] / least + 1 : 0);
    p->pieces = ARENA_NEW(&x->memory, fcp_piece, room);
    p->blocks = ARENA_NEW(&x->memory, fcp_block, room);
    if (!p->pieces || !p->blocks) return FCP_E_NO_MEMORY;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1); side++) {
        bool open = false; /* the last block takes one more piece */
        for (uint32_t q = 0; q < p->sequences; q++)
            for (uint64_t start = 0, n = problem_length(p, q, (fcp_side)side); start < n;) {
                const uint32_t which = p->piece_count, lengths = (block - least) / grain + 1;
                const uint64_t other = which + UINT64_C(1000000000);
                uint32_t length = block;
                if (!scatter_draw(s->seed, SCATTER_LENGTH, which, 3))
                    length = least + scatter_draw(s->seed, SCATTER_LENGTH, other, lengths) * grain;
                if (length > n - start) length = (uint32_t)(n - start);
                if (!open || p->blocks[p->block_count - 1].tokens + length > block)
                    p->blocks[p->block_count++] = (fcp_block){
                        .first_piece = which, .holds = p->split ? 1u << side : FCP_HOLDS_BOTH};
                fcp_block *b = &p->blocks[p->block_count - 1];
                p->pieces[p->piece_count++] = (fcp_piece){.sequence = q, .length = length, .start = start,
                                                          .offset = b->tokens, .block = p->block_count - 1};
                b->pieces++;
                b->tokens += length;
                start += length;
                open = scatter_draw(s->seed, SCATTER_JOIN, which, start < n ? 8 : 2) == 0;
            }
    }
    return FCP_OK;
}

static inline fcp_code scatter_place(planning *x, const place_input *in, uint32_t *home) {
    const uint64_t seed = scatter_of(x)->seed;
    uint32_t few =
        scatter_draw(seed, SCATTER_FEW, 0, 3) ? in->ranks : 1 + scatter_draw(seed, SCATTER_FEW, 1, in->ranks);
    for (uint32_t b = 0; b < in->blocks; b++) home[b] = scatter_draw(seed, SCATTER_HOME, b, few);
    return FCP_OK;
}

/* Of each Q block: all tiles at home, all at one rank, in stretches over a few ranks, or each anywhere. */
static inline fcp_code scatter_exec(planning *x, const uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    const scatter *s = scatter_of(x);
    const uint64_t seed = s->seed;
    for (uint32_t q = 0; q < p->block_count; q++) {
        uint32_t mode = scatter_draw(seed, SCATTER_MODE, q, 4), few = 2 + scatter_draw(seed, SCATTER_PICK, q, 3);
        uint32_t one = scatter_draw(seed, SCATTER_RANK, q, p->ranks);
        if (s->whole && mode > 1) mode = 1;
        if (s->at_home) mode = 0;
        for (uint32_t t = p->tile_start[q], first = t; t < p->tile_start[q + 1]; t++)
            switch (mode) {
            case 0: exec[t] = home[q]; break;
            case 1: exec[t] = one; break;
            case 2: {
                uint32_t stretch = (t - first) * few / (p->tile_start[q + 1] - first);
                exec[t] =
                    stretch ? scatter_draw(seed, SCATTER_RANK, q + stretch * UINT64_C(1000000007), p->ranks) : home[q];
                break;
            }
            default: exec[t] = scatter_draw(seed, SCATTER_RANK, (t + UINT64_C(1)) << 32, p->ranks);
            }
    }
    return FCP_OK;
}

/* A tree drawn at random: ranks that need the block in any order, each from whoever has it, some by way of another
 * rank. */
static inline uint32_t scatter_route(const planning *x, const need *n, leg *legs) {
    const uint64_t seed = scatter_of(x)->seed + 2 * (uint64_t)n->block + (n->cls == FCP_Q);
    const uint32_t ranks = x->problem->ranks;
    uint32_t order[1024], count = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t j = scatter_draw(seed, SCATTER_ORDER, i, i + 1);
        order[i] = order[j];
        order[j] = n->ranks[i];
    }
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t from = scatter_draw(seed, SCATTER_FROM, i, count + 1), src = from ? legs[from - 1].dst : n->home;
        uint32_t relays =
            scatter_draw(seed, SCATTER_RELAY, i, 4) ? 0 : 1 + scatter_draw(seed, SCATTER_RELAY, i + 4096, 2);
        while (relays--) {
            uint32_t r = scatter_draw(seed, SCATTER_RELAY, i + 8192 * (relays + 1), ranks);
            bool used = r == n->home;
            for (uint32_t k = 0; k < n->count; k++) used |= n->ranks[k] == r;
            for (uint32_t k = 0; k < count; k++) used |= legs[k].dst == r;
            if (used) continue;
            legs[count++] = (leg){src, r};
            src = r;
        }
        legs[count++] = (leg){src, order[i]};
    }
    return count;
}

/* A strategy of that seed; of the program it needs the shape of its heads, and at most 1,024 ranks. */
static inline scatter scatter_new(uint64_t seed) {
    return (scatter){.strategy = {.by_block = true, .cut = scatter_cut, .place = scatter_place, .exec = scatter_exec,
                                  .route = scatter_route}, .seed = seed};
}

/* Plans a program's text by a scatter, and verifies it. *out_picture has what the compiler said; free() it. */
static inline fcp_code scatter_try(const char *source, const scatter *s, fcp_plan **out_plan, char **out_picture) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcpc_batch batch = {.size = sizeof batch};
    const compile_watch watch = {.strategy = &s->strategy};
    fcp_code code = d ? fcpc_parse_text("scatter.fcp", source, strlen(source), NULL, d, &program) : FCP_E_NO_MEMORY;
    *out_plan = NULL;
    if (!code) program->equal = false; /* who is home to what is drawn, and in ranges of heads */
    if (!code) code = compile_batch(program, &batch, NULL, d, &watch, NULL, out_plan);
    *out_picture = d ? fcpc_diagnostics_render(d, false) : NULL;
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

/* The plan; or NULL, and what was wrong on stderr. fcp_plan_free. */
static inline fcp_plan *scatter_plan(const char *source, const scatter *s) {
    fcp_plan *plan = NULL;
    char *picture;
    fcp_code code = scatter_try(source, s, &plan, &picture);
    if (code)
        fprintf(stderr, "scatter(seed = %llu): %s\n%s%s", (unsigned long long)s->seed, fcp_code_name(code),
                picture ? picture : "", source);
    free(picture);
    return plan;
}
#endif
