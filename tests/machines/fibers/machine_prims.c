/* machine_prims.c: implements the kernels' primitives (prim.h) for the machine of fibers, with checks of how they are
 * used.
 *
 * Requires: the fibers of machine.c; every function is called from a kernel that runs there.
 * Method:   for a product it puts the whole matrices together from the registers of the lanes, multiplies them, and
 *           takes the result apart again.
 * Cost:     a product of fragments is 2048 multiplications and 32 switches.
 * Source:   the layouts of fragments in prim.h, which are those of the PTX manual.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "tests/support/coarse_tanh.h"
#include "tests/machines/fibers/machine_parts.h"
#include "codegen/kernels/abi.h"
#include "codegen/mask/clones.h"
#define FK_PRIMITIVE(type, name, parameters) type name##_host parameters;
#include "codegen/kernels/prim.h"
#include "codegen/kernels/prim_sm90.h"
#undef FK_PRIMITIVE
fk_u32 fk_thread_host(void) { return machine_self->index; }
fk_u32 fk_cta_host(void) { return machine_self->cta->number; }
fk_u32 fk_ctas_host(void) { return machine_self->machine->launch->blocks; }
fk_u32 fk_popcount_host(fk_u32 x) { return (fk_u32)__builtin_popcount(x); }
fk_u32 fk_shared_host(void) { return MACHINE_SHARED_BASE; }

/* --- meetings ----------------------------------------------------------------------------------------------------- */

void fk_sync_host(void) {
    thread *t = machine_self;
    cta *b = t->cta;
    if (b->arrived == 0) b->sync_at = t->at;
    if (b->sync_at.line != t->at.line || b->sync_at.file != t->at.file)
        machine_fail(t, "divergence: a fk_sync while others are at line %d", b->sync_at.line);
    t->state = MEETS_BLOCK;
    t->seen = b->generation;
    machine_release(t, &b->syncing);
    if (++b->arrived == t->machine->launch->threads) {
        b->arrived = 0;
        b->generation++;
        machine_gathered(t, &b->syncing, &b->synced);
        machine_drop(t->machine, b->syncing.sum);
        b->syncing = (gathering){0};
    }
    machine_pause(t);
    machine_acquire(t, b->synced);
}

typedef float row8 __attribute__((vector_size(32)));

/* in: a[4], b[2]; c. The numbers are put together as they are, and become floats by rows. */
__attribute__((always_inline)) static inline void multiply(float (*number)(uint16_t), thread *lanes) {
    uint16_t halves_a[16][16], halves_b[16][8];
    float a[16][16], b[16][8], c[16][8];
    for (uint32_t i = 0; i < WARP; i++) {
        const operands *x = lanes[i].operands;
        uint32_t g = i / 4, t = i % 4 * 2;
        for (uint32_t r = 0; r < 4; r++) memcpy(&halves_a[g + r % 2 * 8][t + r / 2 * 8], &x->in[r], sizeof x->in[r]);
        for (uint32_t r = 0; r < 2; r++)
            for (uint32_t e = 0; e < 2; e++) halves_b[t + r * 8 + e][g] = (uint16_t)(x->in[4 + r] >> 16 * e);
        for (uint32_t r = 0; r < 2; r++) memcpy(&c[g + r * 8][t], &x->c[2 * r], 2 * sizeof x->c[0]);
    }
    for (uint32_t i = 0; i < 16; i++) {
        for (uint32_t k = 0; k < 16; k++) a[i][k] = number(halves_a[i][k]);
        for (uint32_t k = 0; k < 8; k++) b[i][k] = number(halves_b[i][k]);
    }
    row8 depth[16];
    memcpy(depth, b, sizeof b);
    for (uint32_t i = 0; i < 16; i++) {
        row8 sum;
        memcpy(&sum, c[i], sizeof sum);
        for (uint32_t k = 0; k < 16; k++) sum += a[i][k] * depth[k];
        memcpy(c[i], &sum, sizeof sum);
    }
    for (uint32_t i = 0; i < WARP; i++)
        for (uint32_t r = 0; r < 2; r++)
            memcpy(&lanes[i].operands->c[2 * r], &c[i / 4 + r * 8][i % 4 * 2], 2 * sizeof c[0][0]);
}

FCP_CLONES static void multiply_bf16(thread *lanes) { multiply(fcp_bf16_float, lanes); }
FCP_CLONES static void multiply_fp16(thread *lanes) { multiply(fcp_fp16_float, lanes); }

static void matrices(bool transposed, thread *lanes) {
    uint16_t rows[4][8][8];
    bool alike = true;
    for (uint32_t i = 1; i < WARP; i++) alike &= lanes[i].order == lanes->order;
    for (uint32_t i = 0; i < WARP; i++)
        memcpy(rows[i / 8][i % 8], machine_warp_reads(&lanes[i], lanes[i].operands->in[0], alike), 16);
    for (uint32_t i = 0; i < WARP; i++)
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t g = i / 4, t = i % 4 * 2;
            uint32_t low = transposed ? rows[k][t][g] : rows[k][g][t];
            uint32_t high = transposed ? rows[k][t + 1][g] : rows[k][g][t + 1];
            lanes[i].operands->out[k] = low | high << 16;
        }
}

bool machine_meet(thread *t, meeting kind, operands *mine) {
    warp *w = &t->cta->warps[t->index / WARP];
    if (w->arrived == 0) w->kind = kind, w->at = t->at;
    if (w->kind != kind || w->at.line != t->at.line || w->at.file != t->at.file)
        machine_fail(t, "divergence: other lanes of the warp are at line %d", w->at.line);
    t->operands = mine;
    t->state = MEETS_WARP;
    t->seen = w->generation;
    if (++w->arrived == WARP) return true;
    machine_pause(t);
    return false;
}
void machine_met(thread *t) {
    warp *w = &t->cta->warps[t->index / WARP];
    w->arrived = 0;
    w->generation++;
    t->state = READY;
}

/* A warp comes to a counter: it hands on what its CTA did, and if it is the last it knows what all did. */
static void come(thread *lanes) {
    operands *first = lanes->operands;
    const fk_u64 counter = first->in[0] | (fk_u64)first->in[1] << 32;
    uint32_t *at = machine_global(lanes, counter, 4, 4, WRITE);
    const bool last = *at + 1 == first->in[2];
    for (uint32_t i = 0; i < WARP; i++) {
        operands *x = lanes[i].operands;
        if (x->in[0] != first->in[0] || x->in[1] != first->in[1] || x->in[2] != first->in[2])
            machine_fail(&lanes[i], "divergence: the lanes of a warp come to different counters");
        x->out[0] = last;
    }
    if (*at >= first->in[2]) machine_fail(lanes, "counter: %u came before, of %u", *at, first->in[2]);
    *at = last ? 0 : *at + 1;
    machine_turns_acquire(lanes, counter);
    machine_turns_release(lanes, counter);
}

/* What a warp came together for, done for all its lanes. Apart from meet, whose frame every lane pays for. */
__attribute__((noinline)) static void do_for_all(meeting kind, thread *lanes) {
    if (kind == MEET_LDMATRIX || kind == MEET_LDMATRIX_TRANS) matrices(kind == MEET_LDMATRIX_TRANS, lanes);
    else if (kind == MEET_SHUFFLE)
        for (uint32_t i = 0; i < WARP; i++) {
            operands *x = lanes[i].operands;
            x->out[0] = lanes[(i ^ x->in[1]) % WARP].operands->in[0];
        }
    else if (kind == MEET_ANY) {
        uint32_t any = 0;
        for (uint32_t i = 0; i < WARP; i++) any |= lanes[i].operands->in[0];
        for (uint32_t i = 0; i < WARP; i++) lanes[i].operands->out[0] = any != 0;
    } else if (kind == MEET_UNIFORM)
        for (uint32_t i = 0; i < WARP; i++) {
            operands *x = lanes[i].operands;
            x->out[0] = lanes->operands->in[0];
            if (x->in[0] != x->out[0])
                machine_fail(&lanes[i], "divergence: a number that lanes must have alike is %u in one and %u in lane 0",
                             x->in[0], x->out[0]);
        }
    else if (kind == MEET_FIRST)
        for (uint32_t i = 0; i < WARP; i++) lanes[i].operands->out[0] = lanes->operands->in[0];
    else if (kind == MEET_LAST) come(lanes);
    else if (kind == MEET_MMA_BF16) multiply_bf16(lanes);
    else multiply_fp16(lanes);
}

/* All lanes of a warp come here; the last one does it for all. */
static void meet(meeting kind, operands *mine) {
    thread *t = machine_self;
    if (!machine_meet(t, kind, mine)) return;
    do_for_all(kind, &t->cta->threads[t->index / WARP * WARP]);
    machine_met(t);
}

void fk_ldmatrix_host(fk_u32 out[4], fk_u32 row) {
    operands x = {.in = {row}};
    meet(MEET_LDMATRIX, &x);
    memcpy(out, x.out, sizeof x.out);
}
void fk_ldmatrix_trans_host(fk_u32 out[4], fk_u32 row) {
    operands x = {.in = {row}};
    meet(MEET_LDMATRIX_TRANS, &x);
    memcpy(out, x.out, sizeof x.out);
}
static void multiply_lane(meeting kind, float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) {
    operands x = {.in = {a[0], a[1], a[2], a[3], b0, b1}, .c = {c[0], c[1], c[2], c[3]}};
    meet(kind, &x);
    memcpy(c, x.c, sizeof x.c);
}
void fk_mma_bf16_host(float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) {
    multiply_lane(MEET_MMA_BF16, c, a, b0, b1);
}
void fk_mma_fp16_host(float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) {
    multiply_lane(MEET_MMA_FP16, c, a, b0, b1);
}
fk_u32 fk_shuffle_xor_bits_host(fk_u32 value, fk_u32 mask) {
    operands x = {.in = {value, mask}};
    meet(MEET_SHUFFLE, &x);
    return x.out[0];
}
float fk_shuffle_xor_host(float value, fk_u32 mask) {
    return fcp_bits_float(fk_shuffle_xor_bits_host(fcp_float_bits(value), mask));
}

fk_u32 fk_any_host(fk_u32 value) {
    operands x = {.in = {value}};
    meet(MEET_ANY, &x);
    return x.out[0];
}

fk_u32 fk_comes_last_host(fk_u64 counter, fk_u32 count) {
    operands x = {.in = {(fk_u32)counter, (fk_u32)(counter >> 32), count}};
    meet(MEET_LAST, &x);
    return x.out[0];
}

fk_u32 fk_uniform_host(fk_u32 value) {
    operands x = {.in = {value}};
    meet(MEET_UNIFORM, &x);
    return x.out[0];
}

fk_u32 fk_from_first_host(fk_u32 value) {
    operands x = {.in = {value}};
    meet(MEET_FIRST, &x);
    return x.out[0];
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void store_shared(fk_u32 to, const void *x, fk_u32 bytes) {
    thread *t = machine_self;
    uint8_t *data = machine_shared(t, to, bytes, bytes);
    machine_writes(t, to, bytes, false);
    machine_wrote(t->cta, to, bytes, t->index, t->time);
    memcpy(data, x, bytes);
}
void fk_store_shared_host(fk_u32 to, float x) { store_shared(to, &x, sizeof x); }
void fk_store_shared_bits_host(fk_u32 to, fk_u32 x) { store_shared(to, &x, sizeof x); }
void fk_store_shared_long_host(fk_u32 to, fk_u64 x) { store_shared(to, &x, sizeof x); }
fk_u32 fk_load_shared_bits_host(fk_u32 from) {
    fk_u32 x;
    memcpy(&x, machine_reads(machine_self, from, 4, 4), 4);
    return x;
}
fk_u64 fk_load_shared_long_host(fk_u32 from) {
    fk_u64 x;
    memcpy(&x, machine_reads(machine_self, from, 8, 8), 8);
    return x;
}
void fk_store_shared2_host(fk_u32 to, float a, float b) {
    float pair[2] = {a, b};
    store_shared(to, pair, 8);
}
void fk_load_shared2_host(float out[2], fk_u32 from) { memcpy(out, machine_reads(machine_self, from, 8, 8), 8); }

float fk_load_host(fk_u64 from) {
    float x;
    memcpy(&x, machine_global(machine_self, from, 4, 4, READ), 4);
    return x;
}
void fk_load2_host(float out[2], fk_u64 from) { memcpy(out, machine_global(machine_self, from, 8, 8, READ), 8); }
void fk_load4_host(float out[4], fk_u64 from) { memcpy(out, machine_global(machine_self, from, 16, 16, READ), 16); }
void fk_load_bits4_host(fk_u32 out[4], fk_u64 from) {
    memcpy(out, machine_global(machine_self, from, 16, 16, READ), 16);
}
fk_u32 fk_load_byte_host(fk_u64 from) { return *(const uint8_t *)machine_global(machine_self, from, 1, 1, READ); }
fk_u32 fk_load_bits_host(fk_u64 from) {
    fk_u32 x;
    memcpy(&x, machine_global(machine_self, from, 4, 4, READ), 4);
    return x;
}
void fk_store_host(fk_u64 to, float x) { memcpy(machine_global(machine_self, to, 4, 4, WRITE), &x, 4); }
void fk_store2_host(fk_u64 to, float a, float b) {
    float pair[2] = {a, b};
    memcpy(machine_global(machine_self, to, 8, 8, WRITE), pair, 8);
}
void fk_store_bits_host(fk_u64 to, fk_u32 x) { memcpy(machine_global(machine_self, to, 4, 4, WRITE), &x, 4); }
void fk_store_bits4_host(fk_u64 to, const fk_u32 x[4]) {
    memcpy(machine_global(machine_self, to, 16, 16, WRITE), x, 16);
}
void fk_store4_host(fk_u64 to, const float x[4]) { memcpy(machine_global(machine_self, to, 16, 16, WRITE), x, 16); }
void fk_store_byte_host(fk_u64 to, fk_u32 x) { *(uint8_t *)machine_global(machine_self, to, 1, 1, WRITE) = (uint8_t)x; }

void fk_store_host_bits_host(fk_u64 to, fk_u32 x) { memcpy(machine_global(machine_self, to, 4, 4, WRITE), &x, 4); }

/* An addition happens some time later: when others follow it, at an fk_release after it, or at the end of the
 * launch. Their order is random. */
static void add(struct machine *m, uint32_t which) {
    addition *x = &m->additions[which];
    float sum;
    memcpy(&sum, (const void *)(uintptr_t)x->to, 4);
    sum += x->x;
    memcpy((void *)(uintptr_t)x->to, &sum, 4);
    *x = m->additions[--m->addition_count];
}
void machine_add_one(struct machine *m) { add(m, (uint32_t)machine_roll(m, m->addition_count)); }
void fk_add_global2_host(fk_u64 to, float a, float b) {
    thread *t = machine_self;
    struct machine *m = t->machine;
    machine_global(t, to, 8, 8, ADD);
    for (int i = 0; i < 2; i++) {
        if (m->addition_count == ADDITIONS) machine_add_one(m);
        m->additions[m->addition_count++] = (addition){to + (uint64_t)i * 4, i ? b : a, t->cta, t->index, t->time};
    }
}

void fk_add_global_long_host(fk_u64 to, fk_i64 x) {
    fk_u64 *at = machine_global(machine_self, to, 8, 8, ADD);
    *at += (fk_u64)x; /* at once: no order of whole numbers makes a difference */
}

void fk_max_global_host(fk_u64 to, float x) {
    float *at = machine_global(machine_self, to, 4, 4, ADD);
    if (x > *at || (x == *at && signbit(*at))) *at = x; /* at once: no order of maxima makes a difference */
}

/* A thread that waits for a value lets others run. One that has released something does so sometimes. */
fk_u32 fk_fetch_increment_host(fk_u64 counter) {
    uint32_t *at = machine_global(machine_self, counter, 4, 4, WRITE);
    return (*at)++;
}
fk_u32 fk_fetch_ticket_host(fk_u64 counter, fk_u32 last) {
    uint32_t *at = machine_global(machine_self, counter, 4, 4, WRITE);
    const uint32_t ticket = *at;
    *at = ticket < last ? ticket + 1 : 0;
    return ticket;
}
void fk_acquire_host(fk_u64 lock, fk_u32 x) {
    thread *t = machine_self;
    t->value = machine_global(t, lock, 4, 4, READ);
    t->seen = x;
    t->state = MEETS_VALUE;
    machine_pause(t);
    machine_turns_acquire(t, lock);
    t->cta->acquired += !t->acquired;
    t->acquired = true;
}
void fk_wait_arrival_host(fk_u64 flag) {
    fk_acquire_host(flag, 1);
    machine_self->waited = true;
    machine_self->cta->acquired -= machine_self->acquired;
    machine_self->acquired = false;
}
void fk_release_host(fk_u64 lock, fk_u32 x) {
    thread *t = machine_self;
    struct machine *m = t->machine;
    for (uint32_t i = m->addition_count; i-- > 0;) {
        const addition *a = &m->additions[i];
        if (a->cta == t->cta && (a->thread == t->index || machine_knows(t, a->thread, a->time))) add(m, i);
    }
    memcpy(machine_global(t, lock, 4, 4, WRITE), &x, 4);
    machine_turns_release(t, lock);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

void fk_cp_async_host(fk_u32 to, fk_u64 from, fk_u32 bytes) {
    thread *t = machine_self;
    if (bytes != 0 && bytes != 16) machine_fail(t, "a copy of %u bytes", bytes);
    if (!t->copies) t->copies = malloc(COPIES * sizeof *t->copies);
    if (!t->copies) machine_fail(t, "out of memory");
    if (t->copy_count == COPIES) machine_fail(t, "more than %d copies under way", COPIES);
    uint8_t *data = machine_shared(t, to, 16, 16);
    machine_writes(t, to, 16, false);
    memset(data, 0xff, 16);
    t->cta->chunks[(to - MACHINE_SHARED_BASE) / 16].copying = true;
    copy *c = &t->copies[t->copy_count++];
    *c = (copy){.to = to, .from = from, .bytes = bytes, .taken = machine_roll(t->machine, 2) == 0};
    const void *source = bytes ? machine_global(t, from, 16, 16, READ) : NULL;
    if (source && c->taken) memcpy(c->data, source, 16);
}

void fk_cp_async_wait_host(void) {
    thread *t = machine_self;
    for (; t->copy_count; t->copy_count--) {
        copy *last = &t->copies[t->copy_count - 1], *any = &t->copies[machine_roll(t->machine, t->copy_count)];
        copy c = *any;
        *any = *last;
        if (c.bytes && !c.taken) memcpy(c.data, (const void *)(uintptr_t)c.from, 16);
        t->cta->chunks[(c.to - MACHINE_SHARED_BASE) / 16].copying = false;
        machine_wrote(t->cta, c.to, 16, t->index, t->time);
        memcpy(machine_shared(t, c.to, 16, 16), c.data, 16);
    }
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* Packed numbers go into registers that may be operands of a product, so packing counts as writing registers. */
fk_u32 fk_pack_bf16_host(float low, float high) {
    machine_self->packed = true;
    return fcp_float_bf16(low) | (fk_u32)fcp_float_bf16(high) << 16;
}
fk_u32 fk_pack_fp16_host(float low, float high) {
    machine_self->packed = true;
    return fcp_float_fp16(low) | (fk_u32)fcp_float_fp16(high) << 16;
}
void fk_unpack_bf16_host(float out[2], fk_u32 x) {
    out[0] = fcp_bf16_float((uint16_t)x);
    out[1] = fcp_bf16_float((uint16_t)(x >> 16));
}
void fk_unpack_fp16_host(float out[2], fk_u32 x) {
    out[0] = fcp_fp16_float((uint16_t)x);
    out[1] = fcp_fp16_float((uint16_t)(x >> 16));
}
float fk_exp2_host(float x) { return exp2f(x); }
float fk_log2_host(float x) { return log2f(x); }
float fk_reciprocal_host(float x) { return 1 / x; }
float fk_tanh_approx_host(float x) { return coarse_tanh(x); }
float fk_max_host(float a, float b) { return a != a ? b : b != b ? a : a > b ? a : b; }
float fk_fma_host(float a, float b, float c) { return fmaf(a, b, c); }
float fk_rounded_product_host(float a, float b) { return a * b; }
float fk_rounded_sum_host(float a, float b) { return a + b; }
float fk_infinity_host(void) { return INFINITY; }
