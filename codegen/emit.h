/* emit.h: prints mask code as CUDA functions, which kernels call for each pair:
 *
 *   fk_allow(e, q, k, h)      is the pair allowed?
 *   fk_score(e, s, q, k, h)   the score of the scaled natural logit s
 *   fk_slope(e, s, q, k, h)   the derivative of the score by s
 *   fk_part(e, i, s, q, k, h)   the derivative of the score by the element of a table that its read i reads
 *   fk_place(e, i, s, q, k, h)  the place of this element among the elements of all tables; -1 if there is none,
 *                               because the index is beyond the table
 *   fk_keys(e, q, k, limit, h)      which of the keys k, k + 1, k + 8, k + 9, ... before k + limit does q see? (These
 *                                   are the columns that one lane holds of a product by mma.) Bit 2 j of the result is
 *                                   for k + 8 j, and bit 2 j + 1 for k + 8 j + 1
 *   fk_queries(e, q, k, limit, h)   which of the queries q, q + 1, q + 8, q + 9, ... before q + limit see k?
 *   fk_below32(x)             the bits, numbered in the same way, of the columns 0, 1, 8, 9, ... that are below x
 *                             (fk_below64: x has 64 bits)
 *
 * fk_score and fk_slope are printed if there is a score. The text then calls fk_exp2, fk_fma, fk_reciprocal and
 * fk_tanh_approx. fk_part and fk_place are printed if the program has reads, and FK_READS is how many. fk_keys is
 * printed if a query sees one or two intervals (spans.h), and FK_KEY_SPANS is then 1; fk_queries and FK_QUERY_SPANS likewise.
 *
 * They all have the total meaning of mask/code.h (every pair has a result, also where numbers overflow), with reals as
 * float. The text is both C11 and CUDA C++; abi.h must stand before it, and FK_DEVICE must be defined. Of a plan the
 * text takes numbers only, never words. Code that mc_check refuses is refused before anything is printed.
 */
#ifndef FCP_EMIT_H
#define FCP_EMIT_H
#include "codegen/mask/code.h"

/* One dimension of an array: indices [0, count), if that is the same in all sequences; else the cells of `cell`
 * positions that hold the sequence's queries, or its keys. */
typedef enum emit_over { EMIT_COUNT, EMIT_QUERIES, EMIT_KEYS } emit_over;
typedef struct emit_dim {
    emit_over over;
    int64_t count; /* of EMIT_COUNT */
    uint32_t cell; /* of the others */
} emit_dim;
typedef struct emit_array {
    bool table; /* it belongs to the model, and gradients may be wanted */
    mc_width width;
    uint32_t dims; /* 1 to 3 */
    emit_dim dim[3];
} emit_array;

/* A place where the score reads a table of reals. part: the score's derivative by what is read. load: the read itself,
 * as the last node of its code. first: where the table begins among the numbers of all tables. */
typedef struct emit_read {
    mc_code part, load;
    uint64_t first;
} emit_read;

typedef struct emit_program {
    mc_code mask, score, slope; /* score and slope: both or neither (count 0) */
    const emit_read *reads;     /* of the score, if gradients of its tables are wanted; else none */
    uint32_t read_count;
    const emit_array *arrays;
    uint32_t array_count, band_count;
    int64_t positions;          /* queries are at positions in (-positions, positions), keys and n in [0, positions] */
    bool negative;              /* some query may have a position below 0 */
    uint32_t heads;
} emit_program;

/* Rounds lengths up to n to the `positions` to compile for. There are only a few such numbers, so that batches share
 * kernels. 0: n is too large. */
int64_t emit_positions(uint64_t n);

typedef void emit_text(void *context, const char *text, size_t size);
/* Prints the functions. Returns NULL when done. Else nothing was printed, and it returns a static text that says what
 * is wrong with the code, *node being the place; or "out of memory". */
const char *emit_functions(const emit_program *program, emit_text *out, void *context, uint32_t *node);
#endif
