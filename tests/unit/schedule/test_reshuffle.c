/* test_reshuffle.c: tests the three layouts: every token lies in one segment, where the layout puts it. */
#include "tests/support/planned.h"

static void check_side(const planned *x, fcp_side side) {
    const problem *p = &x->p;
    const uint64_t tokens = side == FCP_KEYS ? p->key_tokens : p->tokens;
    const fcp_span *spans = x->r.spans[side];
    uint64_t *offset = calloc(p->sequences + 1, sizeof *offset);
    for (uint32_t s = 0; s < p->sequences; s++) offset[s + 1] = offset[s] + problem_length(p, s, side);
    uint32_t *rank = calloc(tokens, sizeof *rank), *place = calloc(tokens, sizeof *place);
    uint8_t *held = calloc(tokens, 1), *moved = calloc(tokens, 1);
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint32_t at = 0;
        for (uint32_t j = x->r.starts[side][r]; j < x->r.starts[side][r + 1]; j++)
            for (uint32_t k = 0; k < spans[j].length; k++, at++) {
                uint64_t token = offset[spans[j].sequence] + spans[j].start + k;
                cr_assert(!held[token]++);
                rank[token] = r;
                place[token] = at;
            }
    }
    for (uint32_t j = 0; j < x->r.count; j++) {
        const segment *s = &x->r.segments[j];
        const fcp_block *b = &p->blocks[s->block];
        if (!(b->holds & 1u << side)) continue;
        cr_assert(s->caller == x->home[s->block] || s->tokens <= p->unit);
        for (uint32_t k = 0; k < s->tokens; k++) {
            uint32_t piece = b->first_piece;
            while (s->first + k >= p->pieces[piece].offset + p->pieces[piece].length) piece++;
            const fcp_piece *y = &p->pieces[piece];
            uint64_t token = offset[y->sequence] + y->start + (s->first + k - y->offset);
            cr_assert(!moved[token]++);
            cr_assert_eq(s->caller, rank[token]);
            cr_assert_eq(s->place + k, place[token]);
        }
    }
    for (uint64_t token = 0; token < tokens; token++) {
        cr_assert(held[token] && moved[token]);
        if (x->program->layout == FCP_LAYOUT_CONTIGUOUS) /* rank r: floor(r T / R) .. floor((r + 1) T / R) */
            cr_assert(rank[token] * tokens / p->ranks <= token && token < (rank[token] + 1) * tokens / p->ranks);
    }
    if (x->program->layout == FCP_LAYOUT_ZIGZAG)
        for (uint32_t s = 0; s < p->sequences; s++)
            for (uint64_t k = 0; k < problem_length(p, s, side); k++) {
                uint64_t n = problem_length(p, s, side), parts = 2 * p->ranks, c = 0;
                while ((c + 1) * n / parts <= k) c++;
                cr_assert_eq(rank[offset[s] + k], c < p->ranks ? c : parts - 1 - c);
            }
    void *all[] = {offset, rank, place, held, moved};
    for (int j = 0; j < 5; j++) free(all[j]);
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
