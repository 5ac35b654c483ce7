/* box.h: mask code over boxes of (q, k, h): is the answer false, true or mixed there, and what is left to decide.
 *
 * A *program* is mask code for one n, specialised to a box: what is decided on the box is folded away, integers that
 * are linear on it are linear forms, comparisons of linear forms are single nodes. A program made for a box is right
 * for every part of the box. Its nodes mean what the mask's do, at every element, in both meanings of codegen/mask/code.h.
 */
#ifndef FCPC_BOX_BOX_H
#define FCPC_BOX_BOX_H
#include "codegen/mask/code.h"
#include "compiler/box/array.h"
#include "compiler/box/form.h"

/* Operations of a program: those of mask code without Q K N H CONST_I, and these on forms. LOAD and LOAD2 read array
 * f.c. */
enum box_op {
    BOX_LINEAR = MC_OP_COUNT, /* int: the form */
    BOX_GE,                   /* bool: form >= 0 */
    BOX_EQ,                   /* bool: form == 0 */
    BOX_NE                    /* bool: form != 0 */
};

enum {
    BOX_SAFE = 1, /* neither overflows nor divides by zero anywhere on the box */
    BOX_QUIET = 2 /* cannot fault on the box: safe, or its guard is false all over it */
};

typedef struct box_node {
    uint8_t op, flags;
    uint32_t a, b, c, guard; /* indices into the program; MC_NONE where there is none */
    form f;                  /* of the operations on forms; c alone is the value of MC_CONST_B */
} box_node;

typedef struct box_program {
    uint32_t count, root;
    bool on_q, on_k, on_h; /* a node depends on it */
    bool diagonal;    /* every form is one of q - k */
    bool loose;       /* a node is not quiet: somewhere it may fault */
    bool placed;      /* an array is read at a place that moves with q or k: no other box will be like this one */
    const box_array *arrays;
    bool unread;      /* nodes that no other reads may be among them: specialising takes them away */
    const mc_bands *bands;           /* of the environment it was made for */
    const struct bands_index *index; /* of these: bands.h; NULL: none */
    box_node nodes[]; /* operands before the nodes that use them */
} box_program;

/* What an evaluation finds of a node: a range; where linear, the form; where it equals another node, which. */
typedef struct box_value {
    int64_t lo, hi; /* bools: 0 or 1 */
    int64_t stride; /* every value is lo plus a multiple of this (at least 1) */
    form f;         /* if linear */
    uint32_t same;  /* an earlier node of the same value everywhere on the box, or the node itself */
    uint8_t flags;
    bool linear;
    uint64_t set; /* ints that are not linear: bit x mod 64 for every value x */
} box_value;

typedef enum box_class { BOX_NONE, BOX_FULL, BOX_MIXED } box_class;

size_t box_program_size(uint32_t count); /* bytes */
/* The program of a whole mask for a sequence, whose arrays are bound to `arrays` (NULL if the mask reads none), which
 * stays for as long as programs made from this one do. `out` has box_program_size(mask.count) bytes. */
void box_program_make(mc_code mask, const mc_env *env, const box_arrays *arrays, box_program *out);
/* Evaluates: NONE and FULL only if nothing can fault in the box. `values` has program->count records, filled;
 * *out_simpler tells whether specialising would make the program any simpler. */
box_class box_evaluate(const box_program *program, const box *b, box_value *values, bool *out_simpler);
/* After box_evaluate: the program specialised to the box. `out` has room for program->count nodes and is not the same
 * object; `numbers` has program->count words. */
void box_specialise(const box_program *program, const box_value *values, uint32_t *numbers, box_program *out);

/* The program of one node of a program, for the same boxes. `numbers`, `out`: as above. */
void box_part(const box_program *program, uint32_t node, uint32_t *numbers, box_program *out);

/* For a program specialised to the box: a place in dimension `dim` to cut the box at, so that on either side the
 * program is simpler: where a node that depends on that dimension alone turns (a comparison, x / m, x % m, min, max,
 * abs). lo < *at < hi. False if there is none, or they come thick. */
bool box_turn(const box_program *program, const box *b, int dim, int64_t *at);

/* Likewise, where the elements that a load reads begin another run, however many runs there are: the place nearest to
 * the box's middle. */
bool box_run_turn(const box_program *program, const box *b, int dim, int64_t *at);

/* For a program specialised to the box: the longest period, in positions of dimension `dim` and shorter than the box's
 * side there, at whose steps x / m or x % m of that dimension alone turns; 0 if there is none. The steps are at *first
 * (0 <= *first < period) and every period from there. */
int64_t box_period(const box_program *program, const box *b, int dim, int64_t *first);

/* The program as mask code, the last node its answer: in the program's box both have the same value at every element, if
 * the program cannot fault there. Arrays and bands keep their numbers. Writes at most box_code_room(count) nodes and
 * returns how many. `numbers` has program->count words. */
size_t box_code_room(uint32_t count);
uint32_t box_code(const box_program *program, uint32_t *numbers, mc_node *out);

/* The program as words that are equal for two boxes of equal sides exactly when the programs are alike up to the shift
 * of the boxes (but for unlike encodings of one function, which cost only time) and read arrays of the same contents.
 * Writes at most box_key_room(count) words; `offsets` has program->count. Returns the number written. */
size_t box_key_room(uint32_t count);
size_t box_key(const box_program *program, const box *b, int64_t *offsets, int64_t *out);

#endif
