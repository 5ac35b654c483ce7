/* rungs.h: the ladder: what the kernels rely on, each in a small kernel of its own with an exact answer. gpu-check
 * climbs it on a GPU (ladder.c), make check-ptx on the machine that executes PTX (tests/machines/ptx/test_ptx_ladder.c).
 *
 * A rung relies on what the rungs before it have shown, and on one thing more. If it is wrong, `suspect` says which thing
 * that is. Of a product of sm_90a, rung_guess.c also finds out which constant would have given the wrong result.
 */
#ifndef RUNGS_H
#define RUNGS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codegen/kernels/abi.h"
#include "tests/gpu/rung_launch.h"

/* Bytes of the buffers of a launch: `in`, `other` behind it, `out`. */
enum { RUNG_IN = 128 << 10, RUNG_OTHER = 64 << 10, RUNG_INPUT = RUNG_IN + RUNG_OTHER, RUNG_OUT = 64 << 10 };
/* The tensor of the map: [slots][rows][heads][columns] of 16 bits, each its own number. */
enum { RUNG_SLOTS = 2, RUNG_ROWS = 80, RUNG_HEADS = 3, RUNG_COLUMNS = 128 };
enum { RUNG_GAVE_UP = 6, RUNG_TEXT = 600 };

/* How a matrix lies in memory: row by row; as a tile of common.h; as one of tiles_sm90.h. */
typedef enum rung_layout { RUNG_PLAIN, RUNG_CHUNKS, RUNG_BOXES } rung_layout;
typedef enum rung_device { RUNG_EVERY, RUNG_FROM_90, RUNG_ONLY_90A } rung_device;
typedef enum rung_number { RUNG_WORD, RUNG_FLOAT, RUNG_HALF } rung_number; /* 32 bits, or 16 */

typedef struct rung {
    const char *name, *kernel, *what, *suspect;
    rung_device device;
    bool map, flag;           /* flag: something outside the kernel writes `in`, and then raises the flag */
    bool clocks, a_registers; /* of rates: it is a product, which leaves clocks; its A is in registers */
    uint32_t ctas, threads, shared, a, b, c, d; /* shared: bytes; the others as in rung_launch */
    /* `out` is a matrix */
    rung_number number;
    rung_layout layout;
    uint32_t rows, columns;
    void (*prepare)(const struct rung *r, void *in, void *other, void *out);
    uint32_t (*expect)(const struct rung *r, uint32_t row, uint32_t column); /* the bits of a number of `out` */
} rung;
extern const rung rungs[];
extern const unsigned rung_count;
/* rates.c: rungs that are there to be timed (design.c). In a launch that is timed, `a` is larger. */
extern const rung rates[];
extern const unsigned rate_count;
/* Of rates with clocks, the kernel leaves in these words of `out` how long RATE_FEW products took, a times one after the
 * other, and how long RATE_MANY did. Each of two warpgroups made so many. */
enum { RATE_FEW = 4, RATE_MANY = 20, RATE_WORD = RUNG_OUT / 4 - 2 };

/* The source of the kernels of rungs, or of rates, with `defines` (lines) before it; malloc'd. sm90: with those for
 * sm_90a. */
typedef enum rung_set { RUNG_LADDER, RUNG_RATES, RUNG_SETS } rung_set;
char *rung_source(rung_set set, bool sm90, const char *defines);
/* Is the rung for devices of this capability? */
bool rung_applies(const rung *r, int major, int minor);
/* Fills RUNG_INPUT bytes of input and RUNG_OUT of output. */
void rung_prepare(const rung *r, void *input, void *out);
/* What a device leaves in `out` that is as it should be. */
void rung_answer(const rung *r, void *out);
/* Judges what it has left. gave_up: the first numbers of fk_gave_up (prim_ptx.h). If something is wrong the text
 * says what, where, and what to suspect. */
bool rung_judge(const rung *r, const void *out, const uint32_t gave_up[RUNG_GAVE_UP], char text[RUNG_TEXT]);

/* --- between rungs.c and rung_guess.c ----------------------------------------------------------------------------- */
/* A number of matrix `which`, a small integer. */
int rung_number_of(uint32_t which, uint32_t row, uint32_t column);
/* Where a 16-bit number of a matrix lies, in bytes. */
uint32_t rung_place(rung_layout layout, uint32_t rows, uint32_t columns, uint32_t row, uint32_t column);
/* The operands of a WGMMA. a_rows 0: A is in registers. */
typedef struct rung_product {
    bool turned;                                             /* B is MN-major, and A if it is in shared memory */
    uint32_t n, a_rows, a_columns, b_rows, b_columns, begin; /* begin: what the sums begin with */
} rung_product;
bool rung_product_of(const rung *r, rung_product *out); /* false: it is none */
/* Says which other constant of a descriptor, or other bit of the instruction, gives `out`; "" if none does. */
void rung_guess(const rung *r, const float *out, char *text, size_t room);
#endif
