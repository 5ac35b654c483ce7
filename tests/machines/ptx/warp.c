/* warp.c: executes branches, barriers, and the instructions of a whole warp: shuffles, ldmatrix, mma.
 *
 * Gives:    the table of their forms. An instruction of a whole warp is refused unless all its lanes have come to it.
 * Source:   the manual's pages of bra, ret, bar, shfl.sync, ldmatrix, mma, and its figures of the fragments of
 *           m16n8k16.
 */
#include <string.h>

#include "tests/machines/ptx/forms.h"
#include "tests/machines/ptx/module.h"

static ptx_next bra(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)w, (void)i, (void)mask;
    return PTX_JUMP;
}
static ptx_next ret(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i;
    for (uint32_t n = 0; n < w->copy_count; n++)
        if (mask >> w->copies[n].lane & 1)
            return ptx_fail(w, w->copies[n].lane, "unfinished copy: it ends with one under way");
    return PTX_END;
}
/* Orders the memory accesses of the lanes. */
static ptx_next bar_warp(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    if (!ptx_must_know(w, &i->operands[0], mask, "a member mask")) return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++)
        if (mask >> l & 1 && (uint32_t)ptx_value(w, &i->operands[0], l) != PTX_ALL)
            return ptx_fail(w, l, "a barrier whose member mask is not all lanes");
    w->clock[w->self]++;
    return PTX_NEXT;
}

/* --- barriers of a block ------------------------------------------------------------------------------------------ */

/* Threads are counted in whole warps, as if all lanes were active. */
static ptx_next barrier(ptx_warp *w, const ptx_insn *i, bool waits) {
    ptx_block *b = w->block;
    uint32_t all = i->count > 1 ? (uint32_t)ptx_value(w, &i->operands[1], 0) : b->warp_count * PTX_LANES,
             bit = 1u << w->index;
    uint64_t number = ptx_value(w, &i->operands[0], 0);
    for (uint32_t n = 0; n < i->count; n++)
        for (unsigned l = 0; l < PTX_LANES; l++)
            if (w->live >> l & 1 &&
                (!(ptx_known(w, &i->operands[n]) >> l & 1) || ptx_value(w, &i->operands[n], l) != (n ? all : number)))
                return ptx_fail(w, l, "lanes do not agree on a barrier");
    if (number >= PTX_BARRIERS) return ptx_fail(w, PTX_LANES, "there is no barrier %llu", (unsigned long long)number);
    if (!all || all % PTX_LANES || all > b->warp_count * PTX_LANES)
        return ptx_fail(w, PTX_LANES, "a barrier of %u threads", all);
    ptx_barrier *x = &b->barriers[number];
    if (x->arrived && x->expected != all)
        return ptx_fail(w, PTX_LANES, "barrier %u is for %u threads here, for %u elsewhere", (unsigned)number, all,
                        x->expected);
    if (x->all & bit) return ptx_fail(w, PTX_LANES, "the warp comes to barrier %u twice", (unsigned)number);
    if (!x->clock) x->clock = ptx_clock_new(w->machine);
    if (!x->clock) return ptx_fail(w, PTX_LANES, "out of memory");
    x->expected = all;
    x->arrived += PTX_LANES;
    x->all |= bit;
    ptx_release(w, x->clock);
    if (waits) x->waiting |= bit;
    if (x->arrived < all) {
        w->blocked = waits;
        return waits ? PTX_BLOCK : PTX_NEXT;
    }
    for (uint32_t v = 0; v < b->warp_count; v++)
        if (x->waiting >> v & 1) {
            ptx_acquire(&b->warps[v], x->clock);
            b->warps[v].blocked = false;
        }
    memset(x->clock, 0, w->machine->clocks * sizeof *x->clock);
    x->arrived = x->all = x->waiting = 0;
    ptx_moved(w->machine);
    return PTX_NEXT;
}
static ptx_next bar_sync(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    return barrier(w, i, true);
}
static ptx_next bar_arrive(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)mask;
    return barrier(w, i, false);
}

/* --- shuffles ----------------------------------------------------------------------------------------------------- */

static bool whole(ptx_warp *w, uint32_t mask) {
    if (mask != PTX_ALL)
        ptx_fail(w, PTX_LANES, "divergence: lanes %08x of a warp are at an instruction of all of them", mask);
    return mask == PTX_ALL;
}

enum { BFLY, IDX, UP, DOWN };
static ptx_next shfl(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t in[PTX_LANES], from[PTX_LANES], known = ptx_known(w, &i->operands[1]), out = 0;
    if (!whole(w, mask) || !ptx_must_know(w, &i->operands[2], mask, "a lane") ||
        !ptx_must_know(w, &i->operands[3], mask, "a clamp") ||
        !ptx_must_know(w, &i->operands[4], mask, "a member mask"))
        return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint32_t b = (uint32_t)ptx_value(w, &i->operands[2], l) & 31, c = (uint32_t)ptx_value(w, &i->operands[3], l);
        uint32_t clamp = c & 31, segment = c >> 8 & 31, most = (l & segment) | (clamp & ~segment), least = l & segment;
        int j = i->form->data == BFLY  ? (int)(l ^ b)
                : i->form->data == IDX ? (int)(least | (b & ~segment))
                : i->form->data == UP  ? (int)l - (int)b
                                       : (int)(l + b);
        bool inside = i->form->data == UP ? j >= (int)most : j <= (int)most;
        if ((uint32_t)ptx_value(w, &i->operands[4], l) != PTX_ALL)
            return ptx_fail(w, l, "a shuffle whose member mask is not all lanes");
        in[l] = (uint32_t)ptx_value(w, &i->operands[1], l);
        from[l] = inside ? (uint32_t)j : l;
    }
    for (unsigned l = 0; l < PTX_LANES; l++) {
        ptx_set(w, &i->operands[0], l, in[from[l]]);
        out |= (known >> from[l] & 1) << l;
    }
    ptx_define(w, &i->operands[0], mask, out);
    return PTX_NEXT;
}

/* Does the predicate hold in any lane? */
static ptx_next vote_any(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    if (!whole(w, mask) || !ptx_must_know(w, &i->operands[1], mask, "what is voted on") ||
        !ptx_must_know(w, &i->operands[2], mask, "a member mask"))
        return PTX_FAIL;
    if ((uint32_t)ptx_value(w, &i->operands[2], 0) != PTX_ALL)
        return ptx_fail(w, 0, "a vote whose member mask is not all lanes");
    *(ptx_u32 *)ptx_out(w, &i->operands[0]) = ptx_predicate(w, &i->operands[1]) ? PTX_ALL : 0;
    ptx_define(w, &i->operands[0], mask, PTX_ALL);
    return PTX_NEXT;
}

/* --- matrices ----------------------------------------------------------------------------------------------------- */

/* Loads `data` matrices of 8 rows of 16 bytes; with TURNED, transposed. Lanes 8 j .. 8 j + 7 give the addresses of the
 * rows of matrix j. Lane l gets its row l / 4, columns 2 (l % 4) and the next. */
enum { TURNED = 16 };
static ptx_next ldmatrix(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t count = i->form->data & 15, used = count == 4 ? PTX_ALL : (1u << 8 * count) - 1;
    const ptx_operand *base = &i->operands[count];
    uint16_t rows[4][8][8];
    uint64_t known[4][8];
    if (!whole(w, mask) || !ptx_must_know(w, base, used, "an address")) return PTX_FAIL;
    for (unsigned l = 0; l < 8 * count; l++) {
        const uint8_t *from = ptx_shared_read(w, l, (uint32_t)(ptx_value(w, base, l) + (uint64_t)base->value), 16, 16,
                                              &known[l / 8][l % 8]);
        if (!from) return PTX_FAIL;
        memcpy(rows[l / 8][l % 8], from, 16);
    }
    for (uint32_t j = 0; j < count; j++) {
        uint32_t good = 0;
        ptx_u32 *d = ptx_out(w, &i->operands[j]);
        for (unsigned l = 0; l < PTX_LANES; l++) {
            uint32_t x = 0;
            bool is = true;
            for (uint32_t e = 0; e < 2; e++) {
                uint32_t row = l / 4, column = 2 * (l % 4) + e;
                uint32_t r = i->form->data & TURNED ? column : row, c = i->form->data & TURNED ? row : column;
                x |= (uint32_t)rows[j][r][c] << e * 16;
                is = is && (known[j][r] >> c * 2 & 3) == 3;
            }
            d[l] = x;
            good |= (uint32_t)is << l;
        }
        ptx_define(w, &i->operands[j], mask, good);
    }
    return PTX_NEXT;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

static inline float number(uint16_t bits, bool bf16) {
    uint32_t u = (uint32_t)bits << 16;
    float x;
    if (!bf16) return ptx_half(bits);
    memcpy(&x, &u, 4);
    return x;
}

/* D = A B + C, 16 x 8 x 16. A lane has eight elements of A, four of B and four of C. With group = lane / 4,
 * t = lane % 4, and i the number of an element, counted from 0, they are
 *   A: row group, or group + 8 for i = 2, 3, 6, 7; column 2 t + (i & 1), and 8 more for i >= 4
 *   B: row 2 t + (i & 1), and 8 more for i >= 2; column group
 *   C: row group, or group + 8 for i >= 2; column 2 t + (i & 1) */
static ptx_next mma_m16n8k16(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    float a[16][16], b[16][8], c[16][8];
    bool bf16 = i->form->data;
    uint32_t known[10], rows = 0, columns = 0;
    const ptx_operand *d = i->operands, *ao = d + 4, *bo = d + 8, *co = d + 10;
    if (!whole(w, mask)) return PTX_FAIL;
    for (int n = 0; n < 10; n++) known[n] = ptx_known(w, &ao[n]);
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint32_t group = l / 4, t = l % 4;
        for (uint32_t n = 0; n < 8; n++) {
            uint32_t x = ((const ptx_u32 *)ptx_in(w, &ao[n / 2]))[l] >> n % 2 * 16;
            a[n < 2 || (n >= 4 && n < 6) ? group : group + 8][t * 2 + (n & 1) + (n >= 4 ? 8 : 0)] =
                number((uint16_t)x, bf16);
        }
        for (uint32_t n = 0; n < 4; n++) {
            uint32_t x = ((const ptx_u32 *)ptx_in(w, &bo[n / 2]))[l] >> n % 2 * 16;
            b[t * 2 + (n & 1) + (n >= 2 ? 8 : 0)][group] = number((uint16_t)x, bf16);
        }
        for (uint32_t n = 0; n < 4; n++)
            c[n < 2 ? group : group + 8][t * 2 + (n & 1)] = ((const ptx_f32 *)ptx_in(w, &co[n]))[l];
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < 8; column++) c[row][column] += a[row][k] * b[k][column];
    for (uint32_t group = 0; group < 8; group++) { /* a row is known if all of its A is, in four lanes */
        rows |= (uint32_t)(((known[0] & known[2]) >> group * 4 & 15) == 15) << group;
        rows |= (uint32_t)(((known[1] & known[3]) >> group * 4 & 15) == 15) << (group + 8);
        columns |= (uint32_t)(((known[4] & known[5]) >> group * 4 & 15) == 15) << group;
    }
    for (uint32_t n = 0; n < 4; n++) {
        uint32_t good = 0;
        for (unsigned l = 0; l < PTX_LANES; l++) {
            uint32_t row = n < 2 ? l / 4 : l / 4 + 8, column = l % 4 * 2 + (n & 1);
            ((ptx_f32 *)ptx_out(w, &d[n]))[l] = c[row][column];
            good |= (rows >> row & columns >> column & 1) << l;
        }
        ptx_define(w, &d[n], mask, good & known[6 + n]);
    }
    return PTX_NEXT;
}

const ptx_form ptx_warp_forms[] = {
    {"bra", "<L", bra}, {"bra.uni", "<L", bra}, {"ret", "", ret}, {"exit", "", ret},
    {"bar.sync", "<r", bar_sync, 0, PTX_TOGETHER}, {"bar.sync", "<rr", bar_sync, 0, PTX_TOGETHER},
    {"bar.arrive", "<rr", bar_arrive, 0, PTX_TOGETHER}, {"bar.warp.sync", "<r", bar_warp, 0, PTX_TOGETHER},
    {"shfl.sync.bfly.b32", "r<rrrr", shfl, BFLY, PTX_TOGETHER},
    {"shfl.sync.idx.b32", "r<rrrr", shfl, IDX, PTX_TOGETHER}, {"shfl.sync.up.b32", "r<rrrr", shfl, UP, PTX_TOGETHER},
    {"shfl.sync.down.b32", "r<rrrr", shfl, DOWN, PTX_TOGETHER}, {"vote.sync.any.pred", "p<pr", vote_any, 0, PTX_TOGETHER},
    {"ldmatrix.sync.aligned.m8n8.x1.shared.b16", "{r}<a", ldmatrix, 1, PTX_TOGETHER},
    {"ldmatrix.sync.aligned.m8n8.x2.shared.b16", "{2r}<a", ldmatrix, 2, PTX_TOGETHER},
    {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", "{4r}<a", ldmatrix, 4, PTX_TOGETHER},
    {"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", "{2r}<a", ldmatrix, 2 | TURNED, PTX_TOGETHER},
    {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "{4r}<a", ldmatrix, 4 | TURNED, PTX_TOGETHER},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "{4r}<{4r}{2r}{4r}", mma_m16n8k16, 1, PTX_TOGETHER},
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "{4r}<{4r}{2r}{4r}", mma_m16n8k16, 0, PTX_TOGETHER},
};
const size_t ptx_warp_form_count = sizeof ptx_warp_forms / sizeof *ptx_warp_forms;
