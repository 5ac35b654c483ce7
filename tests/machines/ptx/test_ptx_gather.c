/* test_ptx_gather.c: executes the PTX of fk_gather, and compares what it has written, and what it must leave alone,
 * with a loop over single words that follows codegen/kernels/abi.h. Some tensors are left out by their callers. */
#include <stdlib.h>

#include "codegen/kernels/abi.h"
#include "tests/machines/ptx/support_kernels.h"

enum { RUNS = 9, LONGEST = 12, PLACES = RUNS * (LONGEST + 4), FULL = 8 * 64 };
enum { WORDS = FK_GATHER_TENSORS * PLACES * FULL };

static uint32_t draw(uint64_t *state, uint32_t below) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

/* Each run has one of four ranges of heads: two of four KV heads, one of the two query heads of each. At homes and at
 * the caller's, runs lie in another order than in the bundle, with gaps. Returns how many tokens they have. */
static uint32_t draw_runs(uint64_t *state, fk_gather_run runs[RUNS]) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < RUNS; i++) {
        uint32_t other = (i * 4 + 1) % RUNS, third = (i * 2 + 1) % RUNS;
        runs[i] = (fk_gather_run){.home = other * (LONGEST + 1), .place = third * (LONGEST + 3), .at = at};
        runs[i].home += draw(state, 2);
        runs[i].place += draw(state, 4);
        runs[i].kv_first = draw(state, 2) * 2;
        runs[i].sub_first = draw(state, 2);
        at += 1 + draw(state, LONGEST);
    }
    return at;
}

/* The word of a tensor in which word w of a row is. */
static uint64_t word_of(const fk_gather_tensor *x, uint32_t end, const fk_gather_run *run, uint32_t token,
                        uint32_t first, uint32_t w) {
    if (end == FK_IN_MESSAGE) return (uint64_t)(token - first) * x->row + w;
    if (end == FK_AT_BLOCKS) return (run->home + token - run->at) * x->row + w;
    return (uint64_t)(run->place + token - run->at) * x->full + x->kv_step * run->kv_first +
           x->sub_step * run->sub_first + w / x->chunk * x->stride + w % x->chunk;
}

static void move(const fk_gather_launch *p, const fk_gather_run *runs, uint32_t *to, const uint32_t *from) {
    for (uint32_t token = p->first; token < p->first + p->tokens; token++) {
        uint32_t r = 0;
        while (r + 1 < p->run_count && runs[r + 1].at <= token) r++;
        for (uint32_t t = 0; t < p->tensors; t++)
            for (uint32_t w = 0; p->tensor[t].to && w < p->tensor[t].row; w++) {
                const uint64_t at = word_of(&p->tensor[t], p->from, &runs[r], token, p->first, w);
                to[t * PLACES * FULL + word_of(&p->tensor[t], p->to, &runs[r], token, p->first, w)] =
                    p->tensor[t].from ? from[t * PLACES * FULL + at] : 0;
            }
    }
}

Test(ptx, gather) {
    static const uint32_t ends[][2] = {{FK_IN_MESSAGE, FK_AT_CALLER}, {FK_AT_BLOCKS, FK_IN_MESSAGE},
                                       {FK_AT_BLOCKS, FK_AT_CALLER},  {FK_IN_MESSAGE, FK_AT_BLOCKS},
                                       {FK_AT_CALLER, FK_IN_MESSAGE}, {FK_AT_CALLER, FK_AT_BLOCKS}};
    static const uint32_t heads[FK_GATHER_TENSORS] = {64, 8, 24, 1, 16, 40, 1, 1}; /* words of one */
    if (!compiler()) return;
    ptx_module *m = support_module(MODEL(2, 1, 16, bf16), EMIT_SUPPORT);
    uint32_t *from = malloc(WORDS * 4), *to = malloc(WORDS * 4), *right = malloc(WORDS * 4);
    cr_assert(from && to && right);
    for (uint32_t i = 0; i < WORDS; i++) from[i] = i * 2654435761u;
    for (uint32_t i = 0; i < 24; i++) {
        char why[PTX_ERROR] = "";
        fk_gather_run runs[RUNS];
        uint64_t state = i * UINT64_C(0x9e3779b97f4a7c15) + 1;
        uint32_t all = draw_runs(&state, runs), first = i % 4 ? draw(&state, all / 2) : 0;
        uint32_t tokens = i % 4 ? 1 + draw(&state, all - first) : all;
        fk_gather_launch x = {.runs = (uintptr_t)runs,
                              .run_count = RUNS,
                              .first = first,
                              .tokens = tokens,
                              .tensors = 1 + draw(&state, FK_GATHER_TENSORS),
                              .to = ends[i % 6][0],
                              .from = ends[i % 6][1]};
        for (uint32_t t = 0; t < x.tensors; t++) {
            uint32_t head = heads[(t + i) % FK_GATHER_TENSORS];
            bool keys = draw(&state, 2); /* two of four heads; or of eight, every second */
            x.tensor[t] = (fk_gather_tensor){.to = (uintptr_t)(to + t * PLACES * FULL),
                                             .from = (uintptr_t)(from + t * PLACES * FULL),
                                             .row = 2 * head,
                                             .full = (keys ? 4 : 8) * head,
                                             .chunk = keys ? 2 * head : head,
                                             .stride = (keys ? 1 : 2) * head,
                                             .kv_step = (keys ? 1 : 2) * head,
                                             .sub_step = keys ? 0 : head};
            if (i / 6 % 2 && t % 3 == i % 3) { /* a caller leaves it out */
                if (x.to == FK_AT_CALLER) x.tensor[t].to = 0;
                if (x.from == FK_AT_CALLER) x.tensor[t].from = 0;
            }
        }
        memset(to, 0xa5, WORDS * 4);
        memset(right, 0xa5, WORDS * 4);
        move(&x, runs, right, from);
        const ptx_range ranges[] = {{"the runs", x.runs, x.runs + sizeof runs, false},
                                    {"the output", (uintptr_t)to, (uintptr_t)(to + WORDS), true},
                                    {"the input", (uintptr_t)from, (uintptr_t)(from + WORDS), false}};
        cr_expect(support_run(m, "fk_gather", &x, sizeof x, ranges, 3, i, why), "%u: %s", i, why);
        uint32_t bad = 0;
        while (bad < WORDS && to[bad] == right[bad]) bad++;
        if (bad < WORDS)
            cr_expect(false, "%u, %u to %u: word %u of tensor %u is %08x, not %08x", i, x.from, x.to,
                      bad % (PLACES * FULL), bad / (PLACES * FULL), to[bad], right[bad]);
    }
    ptx_module_free(m);
    free(from);
    free(to);
    free(right);
}
