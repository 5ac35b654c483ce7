/* machine_prims.c: what the primitives do on the machine of fibers, and what they watch.
 *
 * Requires: machine.c's fibers; every function is called from a kernel that runs there.
 * Cost:     a product of fragments is 2048 multiplications and 32 switches; a word of shared memory a few comparisons.
 * Source:   fragment layouts as in prim.h, which are those of the PTX manual; here the whole matrices are put together from
 *           the lanes' registers, multiplied, and taken apart again.
 */
#include <math.h>
#include <string.h>

#include "../../runtime/numeric.h"
#include "machine_parts.h"
#define FK_PRIMITIVE(type, name, parameters) type name##_host parameters;
#include "../../codegen/kernels/abi.h"
#include "../../codegen/kernels/prim.h"
#undef FK_PRIMITIVE
void machine_note(const char *file, int line);

void machine_note(const char *file, int line) { machine_self->at = (place){file, line}; }

fk_u32 fk_thread_host(void) { return machine_self->index; }
fk_u32 fk_block_host(void) { return machine_self->block->number; }
fk_u32 fk_blocks_host(void) { return machine_self->machine->launch->blocks; }
fk_u32 fk_shared_host(void) { return MACHINE_SHARED_BASE; }

/* --- meetings ----------------------------------------------------------------------------------------------------- */

void fk_sync_host(void) {
    thread *t = machine_self;
    block *b = t->block;
    if (b->arrived == 0) b->sync_at = t->at;
    if (b->sync_at.line != t->at.line || b->sync_at.file != t->at.file)
        machine_fail(t, "divergence: a fk_sync while others are at line %d", b->sync_at.line);
    t->state = MEETS_BLOCK;
    t->seen = b->generation;
    if (++b->arrived == t->machine->launch->threads) {
        b->arrived = 0;
        b->generation++;
        b->epoch++;
    }
    machine_pause(t);
}

typedef float row8 __attribute__((vector_size(32)));

/* in: a[4], b[2]; c */
__attribute__((always_inline)) static inline void multiply(float (*number)(uint16_t), thread *lanes) {
    float a[16][16], b[16][8], c[16][8];
    for (uint32_t i = 0; i < WARP; i++) {
        const operands *x = lanes[i].operands;
        uint32_t g = i / 4, t = i % 4 * 2;
        for (uint32_t e = 0; e < 2; e++) {
            for (uint32_t r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 8 + e] = number((uint16_t)(x->in[r] >> 16 * e));
            for (uint32_t r = 0; r < 2; r++) b[t + r * 8 + e][g] = number((uint16_t)(x->in[4 + r] >> 16 * e));
            c[g][t + e] = x->c[e];
            c[g + 8][t + e] = x->c[2 + e];
        }
    }
    row8 depth[16];
    memcpy(depth, b, sizeof b);
    for (uint32_t i = 0; i < 16; i++) {
        row8 sum;
        memcpy(&sum, c[i], sizeof sum);
        for (uint32_t k = 0; k < 16; k++) sum += a[i][k] * depth[k];
        memcpy(c[i], &sum, sizeof sum);
    }
    for (uint32_t i = 0; i < WARP; i++) {
        operands *x = lanes[i].operands;
        uint32_t g = i / 4, t = i % 4 * 2;
        for (uint32_t e = 0; e < 2; e++) {
            x->c[e] = c[g][t + e];
            x->c[2 + e] = c[g + 8][t + e];
        }
    }
}

static const uint8_t *read_shared(thread *t, uint32_t address, uint32_t bytes, uint32_t align, bool by_warp);

static void matrices(bool transposed, thread *lanes) {
    uint16_t rows[4][8][8];
    for (uint32_t i = 0; i < WARP; i++)
        memcpy(rows[i / 8][i % 8], read_shared(&lanes[i], lanes[i].operands->in[0], 16, 16, true), 16);
    for (uint32_t i = 0; i < WARP; i++)
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t g = i / 4, t = i % 4 * 2;
            uint32_t low = transposed ? rows[k][t][g] : rows[k][g][t];
            uint32_t high = transposed ? rows[k][t + 1][g] : rows[k][g][t + 1];
            lanes[i].operands->out[k] = low | high << 16;
        }
}

/* All lanes of a warp come here; the last one does it for all. */
static void meet(meeting kind, operands *mine) {
    thread *t = machine_self;
    warp *w = &t->block->warps[t->index / WARP];
    if (w->arrived == 0) w->kind = kind, w->at = t->at;
    if (w->kind != kind || w->at.line != t->at.line || w->at.file != t->at.file)
        machine_fail(t, "divergence: other lanes of the warp are at line %d", w->at.line);
    t->operands = mine;
    t->state = MEETS_WARP;
    t->seen = w->generation;
    if (++w->arrived < WARP) {
        machine_pause(t);
        return;
    }
    thread *lanes = &t->block->threads[t->index / WARP * WARP];
    if (kind == MEET_MATRICES || kind == MEET_TRANSPOSED) matrices(kind == MEET_TRANSPOSED, lanes);
    else if (kind == MEET_EXCHANGE)
        for (uint32_t i = 0; i < WARP; i++) {
            operands *x = lanes[i].operands;
            x->out[0] = lanes[(i ^ x->in[1]) % WARP].operands->in[0];
        }
    else if (kind == MEET_MULTIPLY_BF16) multiply(fcp_bf16_float, lanes);
    else multiply(fcp_fp16_float, lanes);
    w->arrived = 0;
    w->generation++;
    t->state = READY;
}

void fk_matrices_host(fk_u32 out[4], fk_u32 row) {
    operands x = {.in = {row}};
    meet(MEET_MATRICES, &x);
    memcpy(out, x.out, sizeof x.out);
}
void fk_matrices_transposed_host(fk_u32 out[4], fk_u32 row) {
    operands x = {.in = {row}};
    meet(MEET_TRANSPOSED, &x);
    memcpy(out, x.out, sizeof x.out);
}
static void multiply_lane(meeting kind, float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) {
    operands x = {.in = {a[0], a[1], a[2], a[3], b0, b1}, .c = {c[0], c[1], c[2], c[3]}};
    meet(kind, &x);
    memcpy(c, x.c, sizeof x.c);
}
void fk_multiply_bf16_host(float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) {
    multiply_lane(MEET_MULTIPLY_BF16, c, a, b0, b1);
}
void fk_multiply_fp16_host(float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1) {
    multiply_lane(MEET_MULTIPLY_FP16, c, a, b0, b1);
}
float fk_exchange_host(float value, fk_u32 mask) {
    operands x = {.in = {fcp_float_bits(value), mask}};
    meet(MEET_EXCHANGE, &x);
    return fcp_bits_float(x.out[0]);
}

/* --- shared memory ------------------------------------------------------------------------------------------------ */

static uint8_t *shared_at(thread *t, uint32_t address, uint32_t bytes, uint32_t align) {
    struct machine *m = t->machine;
    if (address % align) machine_fail(t, "out of bounds: shared address %u is no multiple of %u", address, align);
    if (address < MACHINE_SHARED_BASE || address - MACHINE_SHARED_BASE > m->launch->shared ||
        m->launch->shared - (address - MACHINE_SHARED_BASE) < bytes)
        machine_fail(t, "out of bounds: shared byte %lld of %u", (long long)address - MACHINE_SHARED_BASE,
                     m->launch->shared);
    return t->block->shared + (address - MACHINE_SHARED_BASE);
}

/* by_warp: all lanes read it. */
static const uint8_t *read_shared(thread *t, uint32_t address, uint32_t bytes, uint32_t align, bool by_warp) {
    const block *b = t->block;
    const uint8_t *data = shared_at(t, address, bytes, align);
    uint16_t reader = by_warp ? MANY : (uint16_t)t->index;
    for (uint32_t word = (address - MACHINE_SHARED_BASE) / 4; bytes; word++, bytes -= 4) {
        shadow *s = &b->shadows[word];
        if (s->copying) machine_fail(t, "unfinished copy: shared byte %u is read before the copy to it is there", word * 4);
        if (s->write_epoch == b->epoch && (by_warp || s->writer != t->index))
            machine_fail(t, "race: shared byte %u is read, and thread %u wrote it since the last fk_sync", word * 4,
                         s->writer);
        s->reader = s->read_epoch != b->epoch || s->reader == reader ? reader : MANY;
        s->read_epoch = b->epoch;
    }
    return data;
}

/* Begins (`copying`) or makes a write. */
static uint8_t *write_shared(thread *t, uint32_t address, uint32_t bytes, uint32_t align, bool copying, bool copied) {
    const block *b = t->block;
    uint8_t *data = shared_at(t, address, bytes, align);
    for (uint32_t word = (address - MACHINE_SHARED_BASE) / 4; bytes; word++, bytes -= 4) {
        shadow *s = &b->shadows[word];
        if (s->copying && !copied)
            machine_fail(t, "unfinished copy: shared byte %u is written while a copy to it is under way", word * 4);
        if (s->write_epoch == b->epoch && s->writer != t->index)
            machine_fail(t, "race: shared byte %u is written, and thread %u wrote it since the last fk_sync", word * 4,
                         s->writer);
        if (s->read_epoch == b->epoch && s->reader != t->index)
            machine_fail(t, "race: shared byte %u is written, and others read it since the last fk_sync", word * 4);
        s->copying = copying;
        s->write_epoch = b->epoch;
        s->writer = (uint16_t)t->index;
    }
    return data;
}

void fk_store_shared_host(fk_u32 to, float x) { memcpy(write_shared(machine_self, to, 4, 4, false, false), &x, 4); }
void fk_store_shared_bits_host(fk_u32 to, fk_u32 x) {
    memcpy(write_shared(machine_self, to, 4, 4, false, false), &x, 4);
}
fk_u32 fk_load_shared_bits_host(fk_u32 from) {
    fk_u32 x;
    memcpy(&x, read_shared(machine_self, from, 4, 4, false), 4);
    return x;
}
void fk_load_shared2_host(float out[2], fk_u32 from) { memcpy(out, read_shared(machine_self, from, 8, 8, false), 8); }

/* --- global memory ------------------------------------------------------------------------------------------------ */

typedef enum use { READ, WRITE, ADD } use;

static void *global_at(thread *t, uint64_t address, uint32_t bytes, use how) {
    struct machine *m = t->machine;
    const machine_launch *x = m->launch;
    const bool write = how != READ;
    const char *verb = how == ADD ? "added to" : write ? "written" : "read";
    if (address % bytes) machine_fail(t, "out of bounds: global address %#llx is no multiple of %u", (unsigned long long)address, bytes);
    const machine_range *r = x->ranges, *end = r + x->range_count;
    while (r < end && (address < r->begin || address >= r->end || r->end - address < bytes)) r++;
    if (r == end) {
        const machine_range *first = x->ranges;
        machine_fail(t, "out of bounds: global memory at %#llx is %s, %lld bytes after the beginning of %s",
                     (unsigned long long)address, verb, (long long)(address - first->begin), first->name);
    }
    if (write && !r->writable) machine_fail(t, "out of bounds: %s is written, at byte %llu", r->name, (unsigned long long)(address - r->begin));
    if (!r->owners) return (void *)(uintptr_t)address;
    const uint32_t WRITTEN = 1u << 30, ADDED = 1u << 31, others = (1u << 30) - 1;
    uint32_t self = t->block->number + 1;
    uint32_t *owner = r->owners + (address - r->begin) / 4;
    for (uint32_t i = 0; i < bytes / 4; i++) {
        uint32_t who = owner[i] & others;
        unsigned long long byte = address - r->begin + 4 * i;
        if (how == ADD && (owner[i] == 0 || owner[i] == ADDED)) {
            owner[i] = ADDED;
            continue;
        }
        if (owner[i] == ADDED) machine_fail(t, "owner: %s, byte %llu, is %s; blocks add to it", r->name, byte, verb);
        bool foreign = who && who != self;
        if (how == ADD || (foreign && (write || owner[i] & WRITTEN)))
            machine_fail(t, "owner: %s, byte %llu, is %s; block %lld %s it", r->name, byte, verb,
                         who == others ? -1LL : (long long)who - 1, owner[i] & WRITTEN ? "wrote" : "read");
        owner[i] = write ? self | WRITTEN : foreign ? others : owner[i] ? owner[i] : self;
    }
    return (void *)(uintptr_t)address;
}

float fk_load_host(fk_u64 from) {
    float x;
    memcpy(&x, global_at(machine_self, from, 4, READ), 4);
    return x;
}
void fk_load2_host(float out[2], fk_u64 from) { memcpy(out, global_at(machine_self, from, 8, READ), 8); }
fk_u32 fk_load_bits_host(fk_u64 from) {
    fk_u32 x;
    memcpy(&x, global_at(machine_self, from, 4, READ), 4);
    return x;
}
void fk_store_host(fk_u64 to, float x) { memcpy(global_at(machine_self, to, 4, WRITE), &x, 4); }
void fk_store2_host(fk_u64 to, float a, float b) {
    float pair[2] = {a, b};
    memcpy(global_at(machine_self, to, 8, WRITE), pair, 8);
}
void fk_store_bits_host(fk_u64 to, fk_u32 x) { memcpy(global_at(machine_self, to, 4, WRITE), &x, 4); }

/* Additions wait, in no order, for others to push them on, or for the end of the launch. */
void machine_add_one(struct machine *m) {
    addition *any = &m->additions[machine_roll(m, m->addition_count)];
    float sum;
    memcpy(&sum, (const void *)(uintptr_t)any->to, 4);
    sum += any->x;
    memcpy((void *)(uintptr_t)any->to, &sum, 4);
    *any = m->additions[--m->addition_count];
}
void fk_add_global2_host(fk_u64 to, float a, float b) {
    struct machine *m = machine_self->machine;
    global_at(machine_self, to, 8, ADD);
    for (int i = 0; i < 2; i++) {
        if (m->addition_count == ADDITIONS) machine_add_one(m);
        m->additions[m->addition_count++] = (addition){to + (uint64_t)i * 4, i ? b : a};
    }
}
void fk_store_host_bits_host(fk_u64 to, fk_u32 x) { memcpy(global_at(machine_self, to, 4, WRITE), &x, 4); }

/* A thread that waits for a value gives way; one that has released something does, sometimes, too. */
fk_u32 fk_take_host(fk_u64 counter) {
    uint32_t *at = global_at(machine_self, counter, 4, WRITE);
    return (*at)++;
}
void fk_wait_for_host(fk_u64 lock, fk_u32 x) {
    thread *t = machine_self;
    t->value = global_at(t, lock, 4, READ);
    t->seen = x;
    t->state = MEETS_VALUE;
    machine_pause(t);
}
void fk_release_host(fk_u64 lock, fk_u32 x) { memcpy(global_at(machine_self, lock, 4, WRITE), &x, 4); }

/* --- copies ------------------------------------------------------------------------------------------------------- */

void fk_copy_host(fk_u32 to, fk_u64 from, fk_u32 bytes) {
    thread *t = machine_self;
    if (bytes != 0 && bytes != 16) machine_fail(t, "a copy of %u bytes", bytes);
    if (t->copy_count == COPIES) machine_fail(t, "more than %d copies under way", COPIES);
    memset(write_shared(t, to, 16, 16, true, false), 0xff, 16);
    copy *c = &t->copies[t->copy_count++];
    *c = (copy){.to = to, .from = from, .bytes = bytes, .taken = machine_roll(t->machine, 2) == 0};
    const void *source = bytes ? global_at(t, from, 16, READ) : NULL;
    if (source && c->taken) memcpy(c->data, source, 16);
}

void fk_copy_wait_host(void) {
    thread *t = machine_self;
    for (; t->copy_count; t->copy_count--) {
        copy *last = &t->copies[t->copy_count - 1], *any = &t->copies[machine_roll(t->machine, t->copy_count)];
        copy c = *any;
        *any = *last;
        if (c.bytes && !c.taken) memcpy(c.data, (const void *)(uintptr_t)c.from, 16);
        memcpy(write_shared(t, c.to, 16, 16, false, true), c.data, 16);
    }
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

fk_u32 fk_pack_bf16_host(float low, float high) { return fcp_float_bf16(low) | (fk_u32)fcp_float_bf16(high) << 16; }
fk_u32 fk_pack_fp16_host(float low, float high) { return fcp_float_fp16(low) | (fk_u32)fcp_float_fp16(high) << 16; }
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
float fk_max_host(float a, float b) { return a != a ? b : b != b ? a : a > b ? a : b; }
float fk_fma_host(float a, float b, float c) { return fmaf(a, b, c); }
float fk_infinity_host(void) { return INFINITY; }
