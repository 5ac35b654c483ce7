/* wgmma.c: executes WGMMA, the matrix products of a warpgroup.
 *
 * Requires: operands of 16 bits, the 128-byte swizzle, patterns at multiples of 1024 (base offset 0).
 * Method:   1. A warp that comes to a product computes its 16 rows at once, into hidden sums.
 *           2. Until the wait for the product's group, the accumulators hold a pattern and count as never written, and
 *              the shared memory that the product reads may not be written.
 *           3. The wait checks that nobody has changed the accumulators or the operands in registers, and makes the
 *              sums visible.
 *           A product's registers must not have changed since the last wgmma.fence, and that fence must have come after
 *           the last wait. All warps of a warpgroup must ask for the same products in the same order.
 * Cost:     16 x N x 16 multiplications a warp.
 * Source:   the manual's chapter on asynchronous warpgroup level matrix instructions: wgmma.mma_async and its figures
 *           of fragments, strides and canonical layouts by K and by M or N, matrix descriptors, wgmma.fence,
 *           commit_group, wait_group.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/async.h"
#include "tests/machines/ptx/forms.h"
#include "tests/machines/ptx/module.h"

enum { ROWS = 16, ALL_ROWS = 64, DEPTH = 16, COLUMNS = 256, CHUNK = 16, GROUP = 4, TILES = 8, UNDER_WAY = 64 };
#define PATTERN 0x7fa5a5a5u

/* Sums of products that are under way, for the rows of a warp, and which of them are known. */
typedef struct tile {
    const ptx_operand *registers; /* NULL: free */
    uint32_t columns, last;       /* last: the product on them */
    float sums[ROWS][COLUMNS];
    uint8_t known[ROWS][COLUMNS];
} tile;

typedef struct product {
    const ptx_insn *insn;
    uint64_t a, b;
    uint32_t columns;
    bool turned_a, turned_b, from_registers;
    uint32_t values[4][PTX_LANES];
} product;

/* What the first warp of a group asked for when it came to a product. */
typedef struct asked {
    const ptx_insn *insn;
    uint64_t a, b;
    uint32_t add;
} asked;

struct ptx_products {
    tile tiles[TILES];
    product under_way[UNDER_WAY]; /* by number, modulo */
    uint32_t issued, ended, groups[UNDER_WAY], committed, waited; /* groups: products up to the end of each */
    bool fenced;
    uint32_t *watched, watched_count; /* places, in the registers of the warp, of registers that products have */
    uint32_t (*seen)[PTX_LANES];      /* what was there at the last fence */
    uint32_t *watched_at; /* by a register's number: which of them, + 1 */
    asked *log;           /* belongs to the group, and is kept with its first warp */
    uint32_t log_count, log_room;
};

static ptx_next mma_async(ptx_warp *w, const ptx_insn *i, uint32_t mask);

/* What a form's data says. */
enum { BF16 = 1 << 16, REGISTERS = 1 << 17 };
static uint32_t columns_of(const ptx_insn *i) { return i->form->data & 0xffff; }

static bool watch(struct ptx_products *p, const ptx_kernel *k) {
    uint32_t room = 0;
    p->watched_at = calloc(k->registers, sizeof *p->watched_at);
    if (!p->watched_at) return false;
    for (uint32_t n = 0; n < k->count; n++) {
        const ptx_insn *i = &k->insns[n];
        if (i->form->run != mma_async) continue;
        uint32_t count = columns_of(i) / 2 + (i->form->data & REGISTERS ? 4 : 0);
        for (uint32_t o = 0; o < count; o++) {
            const ptx_operand *x = &i->operands[o];
            if (p->watched_at[x->number]) continue;
            if (p->watched_count == room) {
                uint32_t *more = realloc(p->watched, (room = room ? 2 * room : 256) * sizeof *more);
                if (!more) return false;
                p->watched = more;
            }
            p->watched[p->watched_count++] = x->at;
            p->watched_at[x->number] = p->watched_count;
        }
    }
    p->seen = malloc((p->watched_count + 1) * sizeof *p->seen);
    return p->seen != NULL;
}

static struct ptx_products *products_of(ptx_warp *w) {
    ptx_async_warp *x = ptx_async_of(w);
    if (!x) return NULL;
    if (x->products) return x->products;
    x->products = calloc(1, sizeof *x->products);
    if (!x->products || !watch(x->products, w->machine->kernel)) return ptx_fail(w, PTX_LANES, "out of memory"), NULL;
    return x->products;
}

static bool whole(ptx_warp *w, uint32_t mask) {
    bool good = mask == PTX_ALL && w->index / GROUP * GROUP + GROUP <= w->block->warp_count;
    if (!good) ptx_fail(w, PTX_LANES, "divergence: lanes %08x are at what a whole warpgroup does", mask);
    return good;
}

/* --- operands in shared memory ------------------------------------------------------------------------------------ */

/* Returns the address in shared memory of 8 adjacent numbers of A or B: chunk c of line r. In a K-major matrix, a line
 * is a row of A or a column of B. It has 16 numbers, so two chunks. In an MN-major matrix (`turned`), there are 16
 * lines, one for each number along K, and 64 numbers of a line (8 chunks) are in the same 128-byte row of the
 * swizzle. */
static uint32_t address_of(uint64_t d, bool turned, uint32_t r, uint32_t c) {
    uint32_t start = (uint32_t)(d & 0x3fff) << 4, lead = (uint32_t)(d >> 16 & 0x3fff) << 4;
    uint32_t stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    uint32_t at = start + r % 8 * 128 + r / 8 * stride + (turned ? c % 8 * CHUNK + c / 8 * lead : c * CHUNK);
    return at ^ (at >> 7 & 7) << 4;
}
static uint32_t lines_of(bool turned, uint32_t width) { return turned ? DEPTH : width; }
static uint32_t chunks_of(bool turned, uint32_t width) { return (turned ? width : DEPTH) / 8; }

static bool check_descriptor(ptx_warp *w, uint64_t d) {
    if (d & UINT64_C(0x3ff1c000c000c000))
        return ptx_fail(w, PTX_LANES, "the descriptor %#llx has bits that mean nothing", (unsigned long long)d), false;
    if (d >> 62 != 1)
        return ptx_fail(w, PTX_LANES, "the descriptor %#llx is not of the 128-byte swizzle",
                        (unsigned long long)d), false;
    if ((d >> 49 & 7) != (d >> 3 & 7) || d >> 49 & 7)
        return ptx_fail(w, PTX_LANES, "the descriptor %#llx does not begin at a multiple of 1024, but for 128 bytes",
                        (unsigned long long)d), false;
    return true;
}

static bool begin_reading(ptx_warp *w, uint64_t d, bool turned, uint32_t width) {
    for (uint32_t r = 0; r < lines_of(turned, width); r++)
        for (uint32_t c = 0; c < chunks_of(turned, width); c++) {
            uint32_t at = address_of(d, turned, r, c);
            uint64_t known;
            if (!ptx_shared_read(w, PTX_LANES, at, CHUNK, CHUNK, &known) ||
                !ptx_fenced(w, PTX_LANES, at, CHUNK, "a product reads"))
                return false;
            ptx_shared_reads(w, at, CHUNK);
        }
    return true;
}
static void mark(ptx_warp *w, const product *x, void (*as)(ptx_warp *, uint32_t, uint32_t)) {
    for (int side = x->from_registers; side < 2; side++) {
        bool turned = side ? x->turned_b : x->turned_a;
        uint32_t width = side ? x->columns : ALL_ROWS;
        for (uint32_t r = 0; r < lines_of(turned, width); r++)
            for (uint32_t c = 0; c < chunks_of(turned, width); c++)
                as(w, address_of(side ? x->b : x->a, turned, r, c), CHUNK);
    }
}

static float number_of(uint16_t bits, bool bf16) {
    uint32_t u = (uint32_t)bits << 16;
    float x;
    if (!bf16) return ptx_half(bits);
    memcpy(&x, &u, 4);
    return x;
}

/* Reads the numbers of `lines` lines from line `first` on, as out[depth][line]. known: whether all of a line is
 * known. */
static void take(const ptx_warp *w, uint64_t d, bool turned, bool bf16, uint32_t first, uint32_t lines,
                 float (*out)[COLUMNS], uint8_t *known) {
    memset(known, 1, lines);
    for (uint32_t r = 0; r < (turned ? DEPTH : lines); r++)
        for (uint32_t c = 0; c < (turned ? lines : DEPTH) / 8; c++) {
            uint32_t at = address_of(d, turned, turned ? r : r + first, turned ? c + first / 8 : c) - PTX_SHARED_FIRST;
            for (uint32_t n = 0; n < 8; n++) {
                uint16_t bits;
                uint32_t depth = turned ? r : c * 8 + n, line = turned ? c * 8 + n : r, byte = at + n * 2;
                memcpy(&bits, w->block->memory + byte, 2);
                out[depth][line] = number_of(bits, bf16);
                if ((w->block->shadow.known[byte / 4] >> byte % 4 & 3) != 3) known[line] = 0;
            }
        }
}

/* Reads A from four registers a lane, each with two numbers. The first has row lane / 4, columns 2 (lane % 4) and the
 * next. The second and the fourth are 8 rows further down, the third and the fourth 8 columns further right. */
static void take_registers(const product *x, const ptx_warp *w, const ptx_operand *a, bool bf16, float (*out)[COLUMNS],
                           uint8_t *known) {
    memset(known, 1, ROWS);
    for (uint32_t n = 0; n < 4; n++)
        for (unsigned l = 0; l < PTX_LANES; l++) {
            uint32_t row = l / 4 + (n % 2 ? 8 : 0), column = l % 4 * 2 + (n >= 2 ? 8 : 0);
            out[column][row] = number_of((uint16_t)x->values[n][l], bf16);
            out[column + 1][row] = number_of((uint16_t)(x->values[n][l] >> 16), bf16);
            if (!(ptx_known(w, &a[n]) >> l & 1)) known[row] = 0;
        }
}

/* --- accumulators ------------------------------------------------------------------------------------------------- */

static uint32_t row_of(uint32_t n, unsigned l) { return l / 4 + (n % 4 >= 2 ? 8 : 0); }
static uint32_t column_of(uint32_t n, unsigned l) { return n / 4 * 8 + l % 4 * 2 + n % 2; }

static bool overlap(const tile *x, const ptx_operand *o, uint32_t count) {
    for (uint32_t i = 0; i < x->columns / 2; i++)
        for (uint32_t j = 0; j < count; j++)
            if (x->registers[i].number == o[j].number) return true;
    return false;
}
static bool same(const tile *x, const ptx_operand *o, uint32_t columns) {
    bool is = x->columns == columns;
    for (uint32_t n = 0; is && n < columns / 2; n++) is = x->registers[n].number == o[n].number;
    return is;
}

static bool check_fenced(ptx_warp *w, const struct ptx_products *p, const ptx_operand *o, uint32_t count,
                         const char *what) {
    for (uint32_t n = 0; n < count; n++)
        if (memcmp(ptx_in(w, &o[n]), p->seen[p->watched_at[o[n].number] - 1], PTX_SMALL))
            return ptx_fail(w, PTX_LANES, "missing wgmma.fence: %s register %u was written since the last one", what,
                            n), false;
    return true;
}

/* Finds the tile for these accumulators, and hides the accumulators from now on. */
static tile *enter(ptx_warp *w, struct ptx_products *p, const ptx_operand *o, uint32_t columns) {
    tile *none = NULL;
    for (uint32_t i = 0; i < TILES; i++) {
        tile *x = &p->tiles[i];
        if (!x->registers) none = x;
        else if (same(x, o, columns)) return x;
        else if (overlap(x, o, columns / 2))
            return ptx_fail(w, PTX_LANES, "accumulators: some of these are under way in a product of another shape"),
                            NULL;
    }
    if (!none) return ptx_fail(w, PTX_LANES, "accumulators: more than %d sets under way", TILES), NULL;
    if (!check_fenced(w, p, o, columns / 2, "accumulator")) return NULL;
    none->registers = o;
    none->columns = columns;
    for (uint32_t n = 0; n < columns / 2; n++) {
        const ptx_f32 *from = ptx_in(w, &o[n]);
        ptx_u32 *to = ptx_out(w, &o[n]);
        for (unsigned l = 0; l < PTX_LANES; l++) {
            none->sums[row_of(n, l)][column_of(n, l)] = from[l];
            none->known[row_of(n, l)][column_of(n, l)] = ptx_known(w, &o[n]) >> l & 1;
            to[l] = PATTERN;
        }
        ptx_define(w, &o[n], PTX_ALL, 0);
    }
    return none;
}

static bool leave(ptx_warp *w, struct ptx_products *p, tile *x) {
    for (uint32_t n = 0; n < x->columns / 2; n++) {
        uint32_t known = 0;
        ptx_u32 *to = ptx_out(w, &x->registers[n]);
        for (unsigned l = 0; l < PTX_LANES; l++) {
            if (to[l] != PATTERN || ptx_known(w, &x->registers[n]) >> l & 1)
                return ptx_fail(w, l, "accumulators: number %u was written while a product was under way", n), false;
            memcpy(&to[l], &x->sums[row_of(n, l)][column_of(n, l)], 4);
            known |= (uint32_t)x->known[row_of(n, l)][column_of(n, l)] << l;
        }
        ptx_define(w, &x->registers[n], PTX_ALL, known);
        memcpy(p->seen[p->watched_at[x->registers[n].number] - 1], to, PTX_SMALL);
    }
    x->registers = NULL;
    return true;
}

/* --- asking and waiting ------------------------------------------------------------------------------------------- */

/* Checks that all warps of a group ask for the same products. */
static bool agree(ptx_warp *w, uint32_t number, const asked *x) {
    struct ptx_products *p = products_of(&w->block->warps[w->index / GROUP * GROUP]);
    if (!p) return false;
    if (number < p->log_count) {
        const asked *y = &p->log[number];
        if (x->insn != y->insn || x->a != y->a || x->b != y->b || x->add != y->add)
            return ptx_fail(w, PTX_LANES, "divergence: another warp of the group asks for another product, or of other "
                            "operands (line %u)", y->insn->line), false;
        return true;
    }
    if (p->log_count == p->log_room) {
        uint32_t room = p->log_room ? 2 * p->log_room : 1024;
        asked *more = realloc(p->log, room * sizeof *more);
        if (!more) return ptx_fail(w, PTX_LANES, "out of memory"), false;
        p->log = more;
        p->log_room = room;
    }
    p->log[p->log_count++] = *x;
    return true;
}

/* Reads a descriptor or a scale, which must be the same in all lanes. */
static bool common(ptx_warp *w, const ptx_operand *o, uint64_t *out) {
    if (!ptx_must_know(w, o, PTX_ALL, "an operand of all lanes")) return false;
    *out = ptx_value(w, o, 0);
    for (unsigned l = 1; l < PTX_LANES; l++)
        if (ptx_value(w, o, l) != *out) return ptx_fail(w, l, "divergence: lanes give a product other operands"), false;
    return true;
}

static void compute(const ptx_warp *w, const product *x, const ptx_operand *registers, bool add, bool bf16, tile *t) {
    float a[DEPTH][COLUMNS], b[DEPTH][COLUMNS];
    uint8_t rows[ROWS], columns[COLUMNS];
    if (x->from_registers) take_registers(x, w, registers, bf16, a, rows);
    else take(w, x->a, x->turned_a, bf16, w->index % GROUP * ROWS, ROWS, a, rows);
    take(w, x->b, x->turned_b, bf16, 0, x->columns, b, columns);
    for (uint32_t r = 0; r < ROWS; r++) {
        float *sums = t->sums[r];
        for (uint32_t c = 0; !add && c < x->columns; c++) sums[c] = 0;
        for (uint32_t k = 0; k < DEPTH; k++) {
            float y = a[k][r];
            for (uint32_t c = 0; c < x->columns; c++) sums[c] += y * b[k][c];
        }
        for (uint32_t c = 0; c < x->columns; c++)
            t->known[r][c] = (uint8_t)((t->known[r][c] | !add) & rows[r] & columns[c]);
    }
}

static ptx_next mma_async(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    struct ptx_products *p = products_of(w);
    uint32_t columns = columns_of(i), data = i->form->data;
    const ptx_operand *o = i->operands, *registers = o + columns / 2;
    const ptx_operand *rest = registers + (data & REGISTERS ? 4 : 1); /* b, the scale of d, then constants */
    uint64_t b, add, a = 0;
    if (!p || !whole(w, mask) || !common(w, rest, &b) || !common(w, rest + 1, &add) ||
        (!(data & REGISTERS) && !common(w, registers, &a)))
        return PTX_FAIL;
    bool turned_a = !(data & REGISTERS) && rest[4].value, turned_b = rest[data & REGISTERS ? 4 : 5].value;
    if (rest[2].value != 1 || rest[3].value != 1) return ptx_fail(w, PTX_LANES, "a product that negates");
    if (!p->fenced) return ptx_fail(w, PTX_LANES, "missing wgmma.fence: none since the last wait");
    if (p->issued - p->ended == UNDER_WAY) return ptx_fail(w, PTX_LANES, "more than %d products under way", UNDER_WAY);
    const asked mine = {i, a, b, (uint32_t)add};
    product *x = &p->under_way[p->issued % UNDER_WAY];
    *x = (product){.insn = i, .a = a, .b = b, .columns = columns, .turned_a = turned_a, .turned_b = turned_b,
                   .from_registers = (data & REGISTERS) != 0};
    if (!agree(w, p->issued, &mine) || !check_descriptor(w, b) || (!x->from_registers && !check_descriptor(w, a)))
        return PTX_FAIL;
    if (x->from_registers) {
        for (uint32_t t = 0; t < TILES; t++)
            if (p->tiles[t].registers && overlap(&p->tiles[t], registers, 4))
                return ptx_fail(w, PTX_LANES, "an operand in registers is an accumulator under way");
        if (!check_fenced(w, p, registers, 4, "operand")) return PTX_FAIL;
        for (uint32_t n = 0; n < 4; n++) memcpy(x->values[n], ptx_in(w, &registers[n]), PTX_SMALL);
    }
    if ((!x->from_registers && !begin_reading(w, a, turned_a, ALL_ROWS)) || !begin_reading(w, b, turned_b, columns))
        return PTX_FAIL;
    tile *t = enter(w, p, o, columns);
    if (!t) return PTX_FAIL;
    compute(w, x, registers, add != 0, (data & BF16) != 0, t);
    t->last = p->issued++;
    return PTX_NEXT;
}

static ptx_next fence(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    struct ptx_products *p = products_of(w);
    (void)i;
    if (!p || !whole(w, mask)) return PTX_FAIL;
    for (uint32_t n = 0; n < p->watched_count; n++) memcpy(p->seen[n], w->base[0] + p->watched[n], PTX_SMALL);
    p->fenced = true;
    return PTX_NEXT;
}

static ptx_next commit_group(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    struct ptx_products *p = products_of(w);
    (void)i;
    if (!p || !whole(w, mask)) return PTX_FAIL;
    if (p->committed - p->waited == UNDER_WAY)
        return ptx_fail(w, PTX_LANES, "more than %d groups under way", UNDER_WAY);
    p->groups[p->committed++ % UNDER_WAY] = p->issued;
    return PTX_NEXT;
}

static ptx_next wait_group(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    struct ptx_products *p = products_of(w);
    uint32_t keep = (uint32_t)i->operands[0].value;
    if (!p || !whole(w, mask)) return PTX_FAIL;
    p->fenced = false;
    if (p->committed - p->waited <= keep) return PTX_NEXT;
    p->waited = p->committed - keep;
    uint32_t end = p->groups[(p->waited - 1) % UNDER_WAY], begin = p->ended;
    for (; p->ended != end; p->ended++) {
        const product *x = &p->under_way[p->ended % UNDER_WAY];
        const ptx_operand *registers = x->insn->operands + x->columns / 2;
        for (uint32_t n = 0; x->from_registers && n < 4; n++)
            if (memcmp(x->values[n], ptx_in(w, &registers[n]), PTX_SMALL))
                return ptx_fail(w, PTX_LANES,
                                "registers: operand %u of the product of line %u was written while it was "
                                "under way",
                                n, x->insn->line);
    }
    for (uint32_t n = begin; n != end; n++) mark(w, &p->under_way[n % UNDER_WAY], ptx_shared_was_read);
    for (uint32_t n = end; n != p->issued; n++) mark(w, &p->under_way[n % UNDER_WAY], ptx_shared_reads);
    for (uint32_t n = 0; n < TILES; n++)
        if (p->tiles[n].registers && (int32_t)(p->tiles[n].last - end) < 0 && !leave(w, p, &p->tiles[n]))
            return PTX_FAIL;
    return PTX_NEXT;
}

bool ptx_products_close(ptx_warp *w, struct ptx_products *p) {
    if (!p) return true;
    bool good = p->issued == p->ended;
    if (!good)
        ptx_fail(w, PTX_LANES, "unfinished products: it ends with %u that it has not waited for", p->issued - p->ended);
    free(p->watched);
    free(p->watched_at);
    free(p->seen);
    free(p->log);
    free(p);
    return good;
}

/* Accumulators, then A from shared memory or registers, B, the scale of D, of A and B, and how those lie. */
#define PRODUCTS(n, type, data, accumulators)                                                                          \
    {"wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type, "{" accumulators "r}<ddpcccc", mma_async,        \
     n | data, PTX_TOGETHER},                                                                                          \
        {"wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type, "{" accumulators "r}<{4r}dpccc", mma_async,  \
         n | data | REGISTERS, PTX_TOGETHER}

const ptx_form ptx_wgmma_forms[] = {
    PRODUCTS(32, "bf16", BF16, "16"), PRODUCTS(64, "bf16", BF16, "32"), PRODUCTS(128, "bf16", BF16, "64"),
    PRODUCTS(192, "bf16", BF16, "96"), PRODUCTS(192, "f16", 0, "96"), PRODUCTS(256, "bf16", BF16, "128"),
    PRODUCTS(32, "f16", 0, "16"), PRODUCTS(64, "f16", 0, "32"),
    PRODUCTS(128, "f16", 0, "64"), PRODUCTS(256, "f16", 0, "128"),
    {"wgmma.fence.sync.aligned", "", fence, 0, PTX_TOGETHER},
    {"wgmma.commit_group.sync.aligned", "", commit_group, 0, PTX_TOGETHER},
    {"wgmma.wait_group.sync.aligned", "<c", wait_group, 0, PTX_TOGETHER},
};
const size_t ptx_wgmma_form_count = sizeof ptx_wgmma_forms / sizeof *ptx_wgmma_forms;
