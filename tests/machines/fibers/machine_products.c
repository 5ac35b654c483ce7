/* machine_products.c: implements WGMMA and setmaxnreg for the machine of fibers.
 *
 * Requires: arrays that are given as accumulators or operands stay alive, and the same, until they have been waited
 *           for.
 * Gives:    these primitives of prim_sm90.h, and a failure by name for every misuse that machine.h lists.
 * Method:   1. A thread only notes the product that it asks for, and continues.
 *           2. When all 128 threads have asked, the product may be computed: at once or when somebody waits, as the
 *              seed says. From here on its operands count as being read. So a thread is caught that overwrites them
 *              without knowing that the product has ended.
 *           3. Until a product's accumulators are settled (fk_wgmma_settle), they live in a tile of the machine, and
 *              the threads' arrays hold signalling NaNs. Arithmetic on those makes quiet NaNs, by which an access that
 *              comes too early is noticed.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "tests/machines/fibers/machine_parts.h"
#include "codegen/kernels/abi.h"
#define FK_PRIMITIVE(type, name, parameters) type name##_host parameters;
#include "codegen/kernels/prim_sm90.h"
#undef FK_PRIMITIVE
void fk_setmaxnreg_inc_host(fk_u32 n);
void fk_setmaxnreg_dec_host(fk_u32 n);

enum { ROWS = 64, DEPTH = 16, MOST_COLUMNS = 256, NUMBERS = 8 };
static const uint32_t poison = 0x7fa5a5a5; /* a signalling NaN */

/* --- operands in shared memory ------------------------------------------------------------------------------------ */

/* What a descriptor says: a pattern of eight rows of `wide` chunks of 16 bytes, which repeats. */
typedef struct operand {
    uint32_t start, lead, stride, wide, swizzle;
    bool mn_major;
} operand;

static operand decode(thread *t, uint64_t d, bool mn_major) {
    static const uint8_t wide[4] = {1, 8, 4, 2};
    operand x = {(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4, (uint32_t)(d >> 32 & 0x3fff) << 4,
                 wide[d >> 62], (uint32_t)(d >> 62), mn_major};
    if (d & UINT64_C(0x3ff1c000c000c000))
        machine_fail(t, "descriptor: %#llx has bits that mean nothing", (unsigned long long)d);
    if (d >> 49 & 7)
        machine_fail(t, "descriptor: a base offset of %u: patterns begin at their size here", (uint32_t)(d >> 49 & 7));
    uint32_t pattern = x.wide * 128;
    if (x.swizzle && (x.start % pattern / 128 || (mn_major && x.start % 128)))
        machine_fail(t, "descriptor: an operand begins inside a pattern of %u bytes, at shared byte %lld", pattern,
                     (long long)x.start - MACHINE_SHARED_BASE);
    return x;
}

/* The address of chunk `c` of line `r`. If by columns, a line is one of the depth; otherwise it is a row of a or a
 * column of b. */
static uint32_t address_of(const operand *x, uint32_t r, uint32_t c) {
    uint32_t at = x->start;
    if (!x->mn_major) at += r % 8 * x->wide * 16 + r / 8 * x->stride + c * (x->swizzle ? 16 : x->lead);
    else if (x->swizzle) at += c % x->wide * 16 + c / x->wide * x->lead + r % 8 * x->wide * 16 + r / 8 * x->stride;
    else at += c * x->stride + r % 8 * 16 + r / 8 * x->lead;
    return at ^ (at >> 7 & (x->wide - 1)) << 4;
}

/* Product p reads 16 bytes for the first time: checks that it may. */
static void check_read(thread *t, const product *p, uint32_t address, uint32_t swizzle) {
    cta *b = t->cta;
    if (address < MACHINE_SHARED_BASE || address - MACHINE_SHARED_BASE + 16 > t->machine->launch->shared)
        machine_fail(t, "out of bounds: a product reads shared byte %lld of %u",
                     (long long)address - MACHINE_SHARED_BASE, t->machine->launch->shared);
    uint32_t byte = address - MACHINE_SHARED_BASE, agent = WARPS + t->index / GROUP;
    chunk *x = &b->chunks[byte / 16];
    if (x->copying)
        machine_fail(t, "unfinished copy: a product reads shared byte %u before the copy to it is there", byte);
    if (x->mbarrier[0] || x->mbarrier[1])
        machine_fail(t, "barrier: a product reads shared byte %u, which is of one", byte);
    if (x->swizzle && x->swizzle != 1 + (swizzle == 1 ? MACHINE_SWIZZLE_128 : swizzle ? 255 : 0))
        machine_fail(t, "swizzle mismatch: a product reads shared byte %u by swizzle %u, and a tensor copy %s", byte,
                     swizzle, x->swizzle == 1 ? "placed it without" : "placed it by that of 128 bytes");
    for (uint32_t word = 0; word < (x->split ? 4 : 1); word++) {
        uint32_t writer = x->writer[word], time = x->write_time[word];
        bool thread_wrote = writer < MACHINE_THREADS && time;
        for (uint32_t i = 0; i < p->order_count; i++) {
            const known *order = p->orders[i].order;
            bool self = p->orders[i].lane == writer % GROUP && writer / GROUP == t->index / GROUP && thread_wrote;
            if (!self && order->time[writer] < time)
                machine_fail(
                    t, "race: a product reads shared byte %u, and nothing orders that behind %s %u, which wrote it",
                    byte + word * 4, thread_wrote ? "thread" : "a copy for barrier number",
                    thread_wrote ? writer : writer - OF_MBARRIER);
            if (thread_wrote && order->time[OF_FENCE + writer] < time && !(self && p->orders[i].fenced >= time))
                machine_fail(
                    t, "missing proxy fence: a product reads shared byte %u, which thread %u wrote and did not fence",
                    byte + word * 4, writer);
        }
    }
    t->cta->agent_times[byte / 16][agent] = p->number + 1;
    x->agents |= (uint16_t)(1u << agent);
}

static void check_operand(thread *t, const product *p, uint64_t d, bool mn_major, uint32_t lines) {
    operand x = decode(t, d, mn_major);
    uint32_t rows = mn_major ? DEPTH : lines, chunks = (mn_major ? lines : DEPTH) / NUMBERS;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < chunks; c++) check_read(t, p, address_of(&x, r, c), x.swizzle);
}

/* --- the product -------------------------------------------------------------------------------------------------- */

typedef float row8 __attribute__((vector_size(32)));
typedef union matrix {
    float x[DEPTH][MOST_COLUMNS];
    row8 rows[DEPTH][MOST_COLUMNS / 8];
} matrix;
typedef uint16_t halves[DEPTH][MOST_COLUMNS];

/* out[depth][line] */
static void take_operand(const cta *b, uint64_t d, bool mn_major, uint32_t lines, halves out) {
    static const uint8_t wide[4] = {1, 8, 4, 2};
    operand x = {(uint32_t)(d & 0x3fff) << 4, (uint32_t)(d >> 16 & 0x3fff) << 4, (uint32_t)(d >> 32 & 0x3fff) << 4,
                 wide[d >> 62], (uint32_t)(d >> 62), mn_major};
    uint32_t rows = mn_major ? DEPTH : lines, chunks = (mn_major ? lines : DEPTH) / NUMBERS;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < chunks; c++) {
            uint16_t numbers[NUMBERS];
            memcpy(numbers, b->shared + (address_of(&x, r, c) - MACHINE_SHARED_BASE), 16);
            if (mn_major) memcpy(&out[r][c * NUMBERS], numbers, 16);
            else
                for (uint32_t i = 0; i < NUMBERS; i++) out[c * NUMBERS + i][r] = numbers[i];
        }
}
static void take_registers(const product *p, halves out) {
    for (uint32_t i = 0; i < GROUP; i++) {
        uint32_t g = i / WARP * 16 + i % WARP / 4, k = i % 4 * 2;
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t e = 0; e < 2; e++)
                out[k + r / 2 * 8 + e][g + r % 2 * 8] = (uint16_t)(p->a_values[i][r] >> 16 * e);
    }
}

FCP_CLONES static void widen(bool bf16, halves from, uint32_t lines, matrix *restrict to) {
    for (uint32_t k = 0; k < DEPTH; k++) {
        for (uint32_t i = 0; bf16 && i < lines; i++) to->x[k][i] = fcp_bf16_float(from[k][i]);
        for (uint32_t i = 0; !bf16 && i < lines; i++) to->x[k][i] = fcp_fp16_float(from[k][i]);
    }
}

FCP_CLONES static void multiply(float (*restrict sums)[MOST_COLUMNS], const matrix *restrict a,
                                const matrix *restrict b, uint32_t columns) {
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < columns; j += 32) {
            row8 s[4];
            memcpy(s, &sums[i][j], sizeof s);
            for (uint32_t k = 0; k < DEPTH; k++) {
                float x = a->x[k][i];
                const row8 *y = &b->rows[k][j / 8];
                s[0] += x * y[0];
                s[1] += x * y[1];
                s[2] += x * y[2];
                s[3] += x * y[3];
            }
            memcpy(&sums[i][j], s, sizeof s);
        }
}

static void compute(const cta *b, group *g, const product *p) {
    matrix a, columns;
    halves half;
    float(*sums)[MOST_COLUMNS] = g->tiles[p->tile].sums;
    if (p->kind == FROM_REGISTERS) take_registers(p, half);
    else take_operand(b, p->a, p->kind == MN_MAJOR, ROWS, half);
    widen(p->bf16, half, ROWS, &a);
    take_operand(b, p->b, p->kind != K_MAJOR, p->columns, half);
    widen(p->bf16, half, p->columns, &columns);
    for (uint32_t i = 0; i < ROWS && !p->add; i++) memset(sums[i], 0, p->columns * sizeof **sums);
    multiply(sums, &a, &columns, p->columns);
}

static void compute_to(const cta *b, group *g, uint32_t end) {
    for (; (int32_t)(end - g->done) > 0; g->done++) compute(b, g, &g->products[g->done % PRODUCTS]);
}

/* --- accumulators ------------------------------------------------------------------------------------------------- */

/* Where number i of a thread's array is in its tile. */
static float *place_in(tile *x, uint32_t lane, uint32_t i) {
    return &x->sums[lane / WARP * 16 + lane % WARP / 4 + i % 4 / 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2];
}

/* Finds the tile of the accumulators at c of this lane: the one where they are already, or a free one. */
static uint32_t tile_for(thread *t, group *g, const float *c, uint32_t columns) {
    uint32_t lane = t->index % GROUP, none = TILES;
    for (uint32_t i = 0; i < TILES; i++) {
        const tile *x = &g->tiles[i];
        if (x->lanes && x->at[lane] == c && x->columns == columns) return i;
        if (!x->lanes && none == TILES) none = i;
    }
    if (none == TILES) machine_fail(t, "accumulators: more than %d arrays under way", TILES);
    g->tiles[none].columns = columns;
    memset(g->tiles[none].at, 0, sizeof g->tiles[none].at);
    return none;
}

static void enter_tile(thread *t, group *g, product *p, float *c) {
    uint32_t lane = t->index % GROUP, count = p->columns / 2;
    tile *x = &g->tiles[p->tile];
    for (uint32_t i = 0; i < TILES; i++) {
        const tile *y = &g->tiles[i];
        if (y == x && y->here[lane] && y->at[lane] == c) continue;
        if (y->here[lane] && y->at[lane] < c + count && c < y->at[lane] + y->columns / 2)
            machine_fail(t, "accumulators: part of these are under way in a product of %u columns", y->columns);
    }
    if (x->here[lane] && x->at[lane] != c) machine_fail(t, "divergence: lanes of a warpgroup have other accumulators");
    if (x->here[lane] && !p->add && (int32_t)(x->last[lane] - t->products_known) < 0)
        machine_fail(t, "accumulators: %u columns of sums have been waited for, have not settled, and are lost",
                     p->columns);
    x->last[lane] = p->number;
    if (x->here[lane]) return;
    if (!t->begun)
        machine_fail(t, "missing begin: accumulators are given to a product, and no fk_wgmma_fence stands before");
    x->here[lane] = true;
    x->at[lane] = c;
    x->lanes++;
    for (uint32_t i = 0; i < count; i++) {
        *place_in(x, lane, i) = c[i];
        memcpy(&c[i], &poison, sizeof poison);
    }
}

static void leave_tile(thread *t, tile *x) {
    uint32_t lane = t->index % GROUP;
    float *c = x->at[lane];
    for (uint32_t i = 0; i < x->columns / 2; i++) {
        if (memcmp(&c[i], &poison, sizeof poison))
            machine_fail(t, "accumulators: number %u was written while a product of %u columns was under way", i,
                         x->columns);
        c[i] = *place_in(x, lane, i);
    }
    x->here[lane] = false;
    x->lanes--;
}

/* --- asking and waiting ------------------------------------------------------------------------------------------- */

static group *group_of(thread *t) {
    cta *b = t->cta;
    if (t->index / GROUP * GROUP + GROUP > t->machine->launch->threads)
        machine_fail(t, "divergence: the thread is of no whole warpgroup");
    if (!b->groups) {
        b->groups = calloc(GROUPS, sizeof *b->groups);
        if (!b->groups) machine_fail(t, "out of memory");
    }
    return &b->groups[t->index / GROUP];
}

static void add_order(thread *t, product *p) {
    uint32_t i = 0;
    while (i < p->order_count && p->orders[i].order != t->order) i++;
    if (i < p->order_count) p->orders[i].lane = MANY;
    else {
        p->orders[i].order = machine_keep(t->order);
        p->orders[i].lane = t->index % GROUP;
        p->orders[i].fenced = t->fenced;
        p->order_count++;
    }
}

static void ask(product_kind kind, uint32_t columns, bool bf16, float *c, const fk_u32 *registers, fk_u64 a, fk_u64 b,
                fk_u32 add) {
    thread *t = machine_self;
    group *g = group_of(t);
    product *p = &g->products[t->products % PRODUCTS];
    uint32_t lane = t->index % GROUP;
    if (!p->issued || p->number != t->products) {
        if (p->left) machine_fail(t, "unfinished products: more than %d are under way", PRODUCTS);
        *p = (product){.number = t->products, .kind = kind, .columns = columns, .add = add != 0, .commit = t->commits,
                       .bf16 = bf16, .a = a, .b = b, .at = t->at, .left = GROUP};
        p->tile = tile_for(t, g, c, columns);
    }
    if (p->kind != kind || p->columns != columns || p->bf16 != bf16 || p->at.line != t->at.line ||
        p->at.file != t->at.file)
        machine_fail(t, "divergence: other lanes of the warpgroup ask for another product, at line %d", p->at.line);
    if (p->a != a || p->b != b || p->add != (add != 0))
        machine_fail(t, "divergence: other lanes of the warpgroup ask for this product of other operands");
    if (p->commit != t->commits)
        machine_fail(t, "divergence: other lanes of the warpgroup have ended %u groups of products, this one %u",
                     p->commit, t->commits);
    enter_tile(t, g, p, c);
    if (registers) {
        if (!t->begun || t->packed)
            machine_fail(
                t, "missing begin: registers were written since the last fk_wgmma_fence, and a product reads some");
        p->a_at[lane] = registers;
        memcpy(p->a_values[lane], registers, sizeof p->a_values[lane]);
    }
    add_order(t, p);
    t->products++;
    if (++p->issued < GROUP) return;
    if (kind != FROM_REGISTERS) check_operand(t, p, a, kind == MN_MAJOR, ROWS);
    check_operand(t, p, b, kind != K_MAJOR, columns);
    for (uint32_t i = 0; i < p->order_count; i++) machine_drop(t->machine, p->orders[i].order);
    p->order_count = 0;
    g->complete++;
    if (machine_roll(t->machine, 2)) compute_to(t->cta, g, g->complete);
}

bool machine_products_over(const thread *t) {
    return (int32_t)(t->cta->groups[t->index / GROUP].complete - t->seen) >= 0;
}

static void wait_products(uint32_t most) {
    thread *t = machine_self;
    group *g = group_of(t);
    uint32_t lane = t->index % GROUP;
    t->begun = false;
    machine_give_way(t);
    if (t->commits <= most || t->commits - most <= t->commits_known) return;
    uint32_t groups = t->commits - most, end = t->committed[(groups - 1) % COMMITS];
    t->seen = end;
    t->state = MEETS_WGMMA;
    machine_pause(t);
    compute_to(t->cta, g, end);
    for (; t->products_known != end; t->products_known++) {
        product *p = &g->products[t->products_known % PRODUCTS];
        p->left--;
        if (p->kind == FROM_REGISTERS && memcmp(p->a_at[lane], p->a_values[lane], sizeof p->a_values[lane]))
            machine_fail(t, "registers: an operand was written while the product of line %d was under way", p->at.line);
    }
    t->commits_known = groups;
}

void fk_wgmma_fence_host(void) {
    thread *t = machine_self;
    group_of(t);
    t->begun = true;
    t->packed = false;
}
void fk_wgmma_commit_host(void) {
    thread *t = machine_self;
    group_of(t);
    if (t->commits - t->commits_known == COMMITS) machine_fail(t, "unfinished products: more than %d groups", COMMITS);
    t->committed[t->commits++ % COMMITS] = t->products;
}
void fk_wgmma_wait_0_host(void) { wait_products(0); }
void fk_wgmma_wait_1_host(void) { wait_products(1); }
/* A compiler may use the registers before a wait that does not mention them. Therefore they hold signalling NaNs
 * until this call. */
void fk_wgmma_settle_host(float *c, fk_u32 count) {
    thread *t = machine_self;
    group *g = group_of(t);
    uint32_t lane = t->index % GROUP;
    for (uint32_t i = 0; i < TILES; i++) {
        tile *x = &g->tiles[i];
        if (!x->here[lane] || x->at[lane] != c) continue;
        if (count != x->columns / 2) machine_fail(t, "accumulators: %u settle of %u", count, x->columns / 2);
        if ((int32_t)(x->last[lane] - t->products_known) >= 0)
            machine_fail(t, "accumulators: they settle while a product of %u columns is under way", x->columns);
        leave_tile(t, x);
        return;
    }
    machine_fail(t, "accumulators: these settle, and no product has been asked for since they last did");
}

#define PRODUCTS_OF(n, type, bf16)                                                                                     \
    void fk_wgmma_##n##_##type##_host(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {                                      \
        ask(K_MAJOR, n, bf16, c, NULL, a, b, add);                                                                     \
    }                                                                                                                  \
    void fk_wgmma_transposed_##n##_##type##_host(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {                           \
        ask(MN_MAJOR, n, bf16, c, NULL, a, b, add);                                                                    \
    }                                                                                                                  \
    void fk_wgmma_registers_##n##_##type##_host(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {                   \
        ask(FROM_REGISTERS, n, bf16, c, a, 0, b, add);                                                                 \
    }
PRODUCTS_OF(32, bf16, true)
PRODUCTS_OF(32, fp16, false)
PRODUCTS_OF(64, bf16, true)
PRODUCTS_OF(64, fp16, false)
PRODUCTS_OF(128, bf16, true)
PRODUCTS_OF(128, fp16, false)
PRODUCTS_OF(192, bf16, true)
PRODUCTS_OF(192, fp16, false)
PRODUCTS_OF(256, bf16, true)
PRODUCTS_OF(256, fp16, false)

/* --- registers ---------------------------------------------------------------------------------------------------- */

static void grant(cta *b) {
    for (uint32_t i = 0; i < GROUPS; i++) {
        holding *h = &b->holdings[i];
        if (!h->wanted || (h->wanted - h->registers) * GROUP > b->registers) continue;
        b->registers -= (h->wanted - h->registers) * GROUP;
        h->registers = h->wanted;
        h->wanted = 0;
        h->generation++;
    }
}

static void change(thread *t, meeting way, uint32_t n) {
    cta *b = t->cta;
    group_of(t);
    if (n % 8 || n < 24 || n > 256) machine_fail(t, "registers: %u is no multiple of 8 from 24 to 256", n);
    operands mine = {.in = {n}};
    holding *h = &b->holdings[t->index / GROUP];
    uint32_t seen = h->generation;
    if (machine_meet(t, way, &mine)) {
        machine_met(t);
        if (!h->warps) h->to = n, h->way = way, h->at = t->at;
        if (h->way != way || h->to != n || h->at.line != t->at.line || h->at.file != t->at.file)
            machine_fail(t, "divergence: other warps of the warpgroup change their registers at line %d", h->at.line);
        bool down = way == MEET_SETMAXNREG_DEC;
        if (down ? n > h->registers : n < h->registers)
            machine_fail(t, "registers: %s to %u, and the warpgroup has %u", down ? "down" : "up", n, h->registers);
        if (++h->warps == GROUP / WARP) {
            h->warps = 0;
            h->wanted = n;
            if (down) b->registers += (h->registers - n) * GROUP, h->registers = n;
            grant(b);
        }
    }
    t->seen = seen;
    t->state = MEETS_REGISTERS;
    machine_pause(t);
}
void fk_setmaxnreg_inc_host(fk_u32 n) { change(machine_self, MEET_SETMAXNREG_INC, n); }
void fk_setmaxnreg_dec_host(fk_u32 n) { change(machine_self, MEET_SETMAXNREG_DEC, n); }

bool machine_registers_over(const thread *t) { return t->cta->holdings[t->index / GROUP].generation != t->seen; }

uint32_t machine_warps_missing(const cta *b) {
    for (uint32_t i = 0; i < GROUPS; i++)
        if (b->holdings[i].warps) return GROUP / WARP - b->holdings[i].warps;
    return 0;
}

/* --- CTAs ------------------------------------------------------------------------------------------------------- */

void machine_open_products(cta *b) {
    const machine_launch *x = b->threads->machine->launch;
    uint32_t most = REGISTERS / x->threads / 8 * 8;
    uint32_t registers = x->registers ? x->registers : most < MOST_REGISTERS ? most : MOST_REGISTERS;
    b->registers = 0;
    for (uint32_t i = 0; i < GROUPS; i++) b->holdings[i] = (holding){.registers = registers};
    for (uint32_t i = 0; i < GROUPS && b->groups; i++) {
        group *g = &b->groups[i];
        g->complete = g->done = 0;
        for (uint32_t j = 0; j < PRODUCTS; j++)
            g->products[j].issued = g->products[j].left = g->products[j].order_count = 0;
        for (uint32_t j = 0; j < TILES; j++) {
            g->tiles[j].lanes = 0;
            memset(g->tiles[j].here, 0, sizeof g->tiles[j].here);
        }
    }
}

void machine_close_products(thread *t) {
    if (t->products != t->products_known)
        machine_fail(t, "unfinished products: the thread ends with %u that it has not waited for",
                     t->products - t->products_known);
}
