/* rung_guess.c: finds out which constant would have made a product of sm_90a as wrong as it is.
 *
 * Method:   Computes the product as the PTX manual defines it, from the same tiles, but with one thing changed: the
 *           leading or the stride dimension byte offset of the descriptors, the bytes of a step or of a box, the
 *           swizzle, or a bit that turns an operand. What gives the wrong result, number for number, is the guess.
 * Source:   matrix descriptors and wgmma's shared-memory layouts in the PTX manual.
 * Cost:     some tens of products on the CPU, and only of a rung that is wrong.
 */
#include "tests/gpu/rungs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What two descriptors and an instruction say, in bytes. next_box: of K-major, how far the next box is for each row of a
 * box. */
typedef struct said {
    uint32_t lead, stride, step, next_box;
    bool swizzled, turned_a, turned_b;
} said;

typedef struct operand {
    const uint16_t *image; /* a tile of boxes, of `bytes` bytes */
    uint32_t bytes, start;
    bool turned, swizzled;
    const said *x;
} operand;

/* Number k of line `line`: a row of A or a column of B. *good becomes false if it lies outside the tile. */
static float read_number(const operand *o, uint32_t line, uint32_t k, bool *good) {
    uint32_t row = o->turned ? k : line, at = o->start + row % 8 * 128 + row / 8 * o->x->stride;
    at += o->turned ? line % 64 * 2 + line / 64 * o->x->lead : k * 2;
    if (o->swizzled) at ^= (at >> 7 & 7) << 4;
    *good = *good && at + 2 <= o->bytes;
    uint32_t bits = *good ? (uint32_t)o->image[at / 2] << 16 : 0;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Where step `step` of an operand begins. */
static uint32_t start_of(const said *x, bool turned, uint32_t rows, uint32_t first, uint32_t step) {
    if (turned) return first * rows * 128 + step * x->step;
    return first * 128 + step / 4 * rows * x->next_box + step % 4 * x->step;
}

typedef struct tiles {
    uint16_t *a, *b;
    uint32_t a_bytes, b_bytes;
} tiles;

static uint16_t *tile_of(uint32_t which, uint32_t rows, uint32_t columns) {
    uint16_t *image = calloc((size_t)rows * columns + 1, 2);
    for (uint32_t row = 0; image && row < rows; row++)
        for (uint32_t column = 0; column < columns; column++) {
            float x = (float)rung_number_of(which, row, column);
            uint32_t bits;
            memcpy(&bits, &x, 4);
            image[rung_place(RUNG_BOXES, rows, columns, row, column) / 2] = (uint16_t)(bits >> 16);
        }
    return image;
}

/* Does this give `out`? */
static bool gives(const rung *r, const rung_product *p, const tiles *t, const said *x, const float *out) {
    const bool all = strstr(r->kernel, "all") != NULL;
    const uint32_t first = all ? 0 : r->a, end = all ? 8 : r->a + 1;
    bool good = true;
    for (uint32_t row = 0; good && row < r->rows; row++)
        for (uint32_t column = 0; good && column < p->n; column++) {
            float sum = (float)p->begin;
            for (uint32_t step = first; step < end; step++) {
                /* where it begins depends on how the tile lies; how it is read, on the instruction */
                const operand a = {
                    t->a,        t->a_bytes,  start_of(x, p->turned, p->a_rows, p->turned ? 0 : r->b, step),
                    x->turned_a, x->swizzled, x};
                const operand b = {t->b,
                                   t->b_bytes,
                                   start_of(x, p->turned, p->b_rows, p->turned && p->a_rows ? r->b : 0, step),
                                   x->turned_b,
                                   x->swizzled,
                                   x};
                for (uint32_t k = 0; good && k < 16; k++)
                    sum += (p->a_rows ? read_number(&a, row, k, &good) : (float)rung_number_of(0, row, k)) *
                           read_number(&b, column, k, &good);
            }
            good = good && sum == out[row * r->columns + column];
        }
    return good;
}

void rung_guess(const rung *r, const float *out, char *text, size_t room) {
    static const uint32_t offsets[] = {0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768};
    rung_product p;
    *text = 0;
    if (!rung_product_of(r, &p)) return;
    tiles t = {p.a_rows ? tile_of(0, p.a_rows, p.a_columns) : NULL, tile_of(1, p.b_rows, p.b_columns),
               p.a_rows * p.a_columns * 2, p.b_rows * p.b_columns * 2};
    const said right = {.lead = p.b_rows * 128,
                        .stride = 1024,
                        .step = p.turned ? 2048 : 32,
                        .next_box = 128,
                        .swizzled = true,
                        .turned_a = p.turned && p.a_rows,
                        .turned_b = p.turned};
    const struct {
        const char *what;
        said x;
    } bits[] = {
        {"without the swizzle", {right.lead, 1024, right.step, 128, false, right.turned_a, right.turned_b}},
        {"with the other bit for turning A",
         {right.lead, 1024, right.step, 128, true, !right.turned_a, right.turned_b}},
        {"with the other bit for turning B",
         {right.lead, 1024, right.step, 128, true, right.turned_a, !right.turned_b}},
        {"with LBO and SBO exchanged", {1024, right.lead, right.step, 128, true, right.turned_a, right.turned_b}},
    };
    const bool there = t.b && (t.a || !p.a_rows);
    for (size_t i = 0; there && !*text && i < sizeof bits / sizeof *bits; i++)
        if (gives(r, &p, &t, &bits[i].x, out)) snprintf(text, room, "it is what one gets %s", bits[i].what);
    for (size_t i = 0; there && !*text && i < sizeof offsets / sizeof *offsets; i++) {
        said lead = right, stride = right, step = right, next = right;
        lead.lead = stride.stride = step.step = next.next_box = offsets[i];
        if (p.turned && gives(r, &p, &t, &lead, out))
            snprintf(text, room, "it is what one gets with LBO %u, not %u", lead.lead, right.lead);
        else if (gives(r, &p, &t, &stride, out))
            snprintf(text, room, "it is what one gets with SBO %u, not %u", stride.stride, right.stride);
        else if (gives(r, &p, &t, &step, out))
            snprintf(text, room, "it is what one gets with steps of %u bytes, not %u", step.step, right.step);
        else if (!p.turned && gives(r, &p, &t, &next, out))
            snprintf(text, room, "it is what one gets with the next box %u bytes a row further, not 128",
                     next.next_box);
    }
    free(t.a);
    free(t.b);
}
