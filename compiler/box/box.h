/* box.h: abstract interpretation of masks: finds out whether a mask is false for all pairs of a box, true for all, or
 * mixed, and what is left of it there (partial evaluation).
 *
 * A box is a range of queries, a range of keys and a range of heads. For example, in the box of q in [4096, 8192) and k
 * in [0, 4096), `k <= q and q - k < 5000` is mixed. But k <= q is true all over it, so what is left is q - k < 5000.
 * That is written down as a residual *program* of one node, "4999 - q + k >= 0".
 *
 * A program is made of mask code for one n and one box. What is decided on the box is gone from it. Integers that are
 * affine in q, k and h there are kept as forms (form.h), and a comparison of two forms is a single node. A program that
 * was made for a box is right for every part of that box: at each of its elements it has the mask's value, and faults
 * where the mask does. compiler/cells/README.md explains what all of this is for.
 */
#ifndef FCPC_BOX_BOX_H
#define FCPC_BOX_BOX_H
#include "codegen/mask/code.h"
#include "compiler/box/array.h"
#include "compiler/box/form.h"

/* The operations of a program are those of mask code and these four. Q, K, N, H and CONST_I do not occur, because they
 * are forms. LOAD, LOAD2 and LOAD3 read array number f.c. */
enum box_op {
    BOX_LINEAR = MC_OP_COUNT, /* int: the form */
    BOX_GE,                   /* bool: form >= 0 */
    BOX_EQ,                   /* bool: form == 0 */
    BOX_NE                    /* bool: form != 0 */
};

static inline bool box_is_bool(unsigned op) { return op == MC_CONST_B || (op >= MC_EQ && op != BOX_LINEAR); }

enum {
    BOX_SAFE = 1, /* it faults nowhere on the box, whatever its guard says */
    BOX_QUIET = 2 /* it is safe, or its guard is false all over the box: so it cannot fault there */
};

typedef struct box_node {
    uint8_t op, flags;
    uint32_t a, b, c, guard; /* indices into the program; MC_NONE where there is none */
    form f;                  /* of the operations on forms; for MC_CONST_B, f.c is the value */
} box_node;

typedef struct box_program {
    uint32_t count, root;
    bool on_q, on_k, on_h; /* some node depends on it */
    bool diagonal;         /* every form depends on q - k alone, or on nothing */
    bool loose;            /* some node is not quiet: there may be a fault in the box */
    bool placed;           /* an array is read at a place that moves with q or k, so no other box is like this one */
    bool unread;           /* there may be nodes that no other uses; specialising removes them */
    const box_array *arrays;
    const mc_bands *bands;           /* of the environment that it was made for */
    const struct bands_index *index; /* of the bands (bands.h); NULL: none */
    box_node nodes[];                /* operands stand before the nodes that use them */
} box_program;

/* The abstract value of a node: what an evaluation finds out about its values on the box. */
typedef struct box_value {
    int64_t lo, hi; /* the range; of a bool, the ends are 0 or 1 */
    int64_t stride; /* every value is lo plus a multiple of this (at least 1) */
    form f;         /* if `linear`: the node's form; if `step`: the form whose sign decides */
    uint32_t same;  /* an earlier node with the same value everywhere on the box, or the node itself */
    uint8_t flags;  /* BOX_SAFE, BOX_QUIET */
    bool linear;
    /* An int that is a step has two values: lo where f < 0, and hi where f >= 0. In a box of q in [350, 400), q / 64 is
     * 5 and then 6, and f is q - 384. A bool that is a step is true where f >= 0, although its own operation may be
     * another comparison: in that box q / 64 == 5 is a step with f = 383 - q. */
    bool step;
    uint64_t set;   /* for ints that are not linear: bit x mod 64 is set for every value x */
} box_value;

/* The dimensions that a node depends on: bit d is set for dimension d. `on` has those of the nodes before it. */
enum { ON_Q = 1 << BOX_Q, ON_K = 1 << BOX_K, ON_H = 1 << BOX_H };
static inline uint8_t box_depends(const box_node *x, const uint8_t *on) {
    if (x->op >= BOX_LINEAR)
        return (uint8_t)((x->f.x[BOX_Q] ? ON_Q : 0) | (x->f.x[BOX_K] ? ON_K : 0) | (x->f.x[BOX_H] ? ON_H : 0));
    if (x->op == MC_BANDS && x->a == MC_NONE) return ON_Q | ON_K;
    return (uint8_t)((x->a != MC_NONE ? on[x->a] : 0) | (x->b != MC_NONE ? on[x->b] : 0) |
                     (x->c != MC_NONE ? on[x->c] : 0));
}

typedef enum box_class { BOX_NONE, BOX_FULL, BOX_MIXED } box_class;

size_t box_program_size(uint32_t count); /* bytes */
/* The program of a whole mask for one sequence. It has the elements that are read at constant indices as constants. The
 * sequence's arrays are bound to `arrays` (NULL if the mask reads none), which must live as long as the programs that
 * are made from this one. `out` has box_program_size(mask.count) bytes. */
void box_program_make(mc_code mask, const mc_env *env, const box_arrays *arrays, box_program *out);
/* Evaluates a program on a box. The answer is NONE or FULL only if nothing can fault in the box. `values` has
 * program->count records, which are filled in. *out_simpler tells whether specialising would make the program
 * simpler. */
box_class box_evaluate(const box_program *program, const box *b, box_value *values, bool *out_simpler);
/* Call it after box_evaluate, with its values: makes the program specialised to the box. `out` is another object with
 * room for program->count nodes; `numbers` has program->count words. */
void box_specialise(const box_program *program, const box_value *values, uint32_t *numbers, box_program *out);

/* Makes the program whose answer is one node of a program, for the same boxes. `numbers` and `out` as above. */
void box_part(const box_program *program, uint32_t node, uint32_t *numbers, box_program *out);

/* For a program specialised to the box: finds a position in dimension `dim` at which to split the box, so that the
 * program becomes simpler on either side. Only nodes that depend on this dimension alone are considered. k < 100
 * changes its value at k = 100, and q / 64 at every multiple of 64; x % m, min, max and abs change their slope at such
 * positions. lo < *at < hi. False if there is no such position, or there are too many. */
bool box_turn(const box_program *program, const box *b, int dim, int64_t *at);

/* For a program specialised to the box: true if its answer is the same at all positions of dimension `dim`, because no
 * comparison changes there, although nodes name the dimension. Example: q <= last[k], if no last[k] of the box is one
 * of its queries. False if that is not so, or not seen. */
bool box_alike(const box_program *program, const box *b, int dim);

/* Likewise, a position at which the elements that a load reads begin another run (array.h), as a new document does. If
 * there are several, it is one next to the middle of the box. */
bool box_run_turn(const box_program *program, const box *b, int dim, int64_t *at);

/* For a program specialised to the box: the longest period in dimension `dim` that is shorter than the box's side
 * there. q / 64 changes at the multiples of 64, so it has the period 64; likewise x % m. The positions at which such a
 * node changes are *first, with 0 <= *first < period, and every multiple of the period from there. 0: there is none. */
int64_t box_period(const box_program *program, const box *b, int dim, int64_t *first);

/* Writes the program as mask code, whose last node is the answer. If the program cannot fault in its box, both have the
 * same value at every element of it. Arrays and bands keep their numbers. Returns how many nodes were written, at most
 * box_code_room(count). `numbers` has program->count words. */
size_t box_code_room(uint32_t count);
uint32_t box_code(const box_program *program, uint32_t *numbers, mc_node *out);

/* Writes the program as words that do not depend on where its box lies: positions count from the corner of the box. If
 * two boxes have equal sides and equal words, their programs differ only by the shift from one box to the other, and
 * the arrays that they read have the same contents; so they have the same answer. Programs of the same meaning may
 * still have different words. Then an answer is found twice, which only costs time. Returns how many words were
 * written, at most box_key_room(count). `offsets` has program->count words. */
size_t box_key_room(uint32_t count);
size_t box_key(const box_program *program, const box *b, int64_t *offsets, int64_t *out);

#endif
