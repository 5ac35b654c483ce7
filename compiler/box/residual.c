/* residual.c: writes a specialised program as mask code again, so that the evaluators of mask code can run it.
 *
 * Requires: a program that cannot fault in its box (then guards do not matter).
 * Gives: box_code of box.h. For example BOX_GE of q - k - 5 becomes: 0 <= -5 + q + -1 * k.
 * Cost: O(nodes).
 */
#include "compiler/box/bands.h"

enum { POSITIONS = 3, FORM_NODES = 12 }; /* Q, K and H; of a form 1 + 3 * 3, of its comparison with 0 two more */

size_t box_code_room(uint32_t count) { return POSITIONS + (size_t)count * FORM_NODES; }

typedef struct writer {
    mc_node *out;
    uint32_t count;
} writer;

static uint32_t write_node(writer *w, unsigned op, uint32_t a, uint32_t b, uint32_t c, int64_t imm) {
    w->out[w->count] = (mc_node){.op = op, .a = a, .b = b, .c = c, .guard = MC_NONE, .imm = imm};
    return w->count++;
}

static uint32_t write_constant(writer *w, int64_t value) {
    return write_node(w, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, value);
}

/* Writes the sum c + x[0] q + x[1] k + x[2] h, without terms that are 0. */
static uint32_t write_form(writer *w, const form *f) {
    uint32_t sum = MC_NONE;
    if (f->c != 0 || form_is_const(f)) sum = write_constant(w, f->c);
    for (uint32_t d = 0; d < BOX_DIMS; d++) {
        if (f->x[d] == 0) continue;
        uint32_t term = d; /* node d of the code is position d */
        if (f->x[d] != 1) term = write_node(w, MC_MUL, d, write_constant(w, f->x[d]), MC_NONE, 0);
        sum = sum == MC_NONE ? term : write_node(w, MC_ADD, sum, term, MC_NONE, 0);
    }
    return sum;
}

uint32_t box_code(const box_program *program, uint32_t *numbers, mc_node *out) {
    writer w = {.out = out};
    const mc_op positions[BOX_DIMS] = {[BOX_Q] = MC_Q, [BOX_K] = MC_K, [BOX_H] = MC_H};
    for (int d = 0; d < BOX_DIMS; d++) write_node(&w, positions[d], MC_NONE, MC_NONE, MC_NONE, 0);
    for (uint32_t i = 0; i <= program->root; i++) {
        const box_node *x = &program->nodes[i];
        const uint32_t a = x->a != MC_NONE ? numbers[x->a] : MC_NONE, b = x->b != MC_NONE ? numbers[x->b] : MC_NONE;
        const uint32_t c = x->c != MC_NONE ? numbers[x->c] : MC_NONE;
        switch (x->op) {
        case BOX_LINEAR: numbers[i] = write_form(&w, &x->f); break;
        case BOX_GE:
        case BOX_EQ:
        case BOX_NE: {
            const unsigned op = x->op == BOX_GE ? MC_LE : x->op == BOX_EQ ? MC_EQ : MC_NE;
            const uint32_t zero = write_constant(&w, 0);
            numbers[i] = write_node(&w, op, zero, write_form(&w, &x->f), MC_NONE, 0);
            break;
        }
        case MC_BANDS: /* a leaf's operands are positions */
            numbers[i] = box_bands_leaf(x) ? write_node(&w, MC_BANDS, (uint32_t)x->f.x[0], (uint32_t)x->f.x[1], MC_NONE,
                                                 x->f.c)
                                           : write_node(&w, MC_BANDS, a, b, MC_NONE, x->f.c);
            break;
        default: /* f.c: of a load the array, of a constant the value, else 0 */
            numbers[i] = write_node(&w, x->op, a, b, c, x->f.c);
            break;
        }
    }
    return w.count;
}
