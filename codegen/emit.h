/* emit.h: mask code as CUDA text: what kernels call for each pair.
 *
 *   fk_allow(e, q, k, h)      is the pair allowed?
 *   fk_score(e, s, q, k, h)   the score of a scaled natural logit s
 *   fk_slope(e, s, q, k, h)   its derivative by s
 *
 * in the total meaning of mask/code.h, reals as float. The text is in the part that C11 and CUDA C++ share, given abi.h
 * before it and FK_DEVICE defined. It comes from this file's own tables alone: no text of a plan enters it, and code
 * that mc_check refuses is refused before anything is printed.
 */
#ifndef FCP_EMIT_H
#define FCP_EMIT_H
#include "codegen/mask/code.h"

/* Over which tokens an array is. */
typedef enum emit_kind { EMIT_KEYS, EMIT_QUERIES, EMIT_TABLE } emit_kind;
typedef struct emit_array {
    emit_kind kind;
    mc_width width;
    uint32_t columns; /* 0: one dimension */
    int64_t count;    /* of a table: elements, or rows; 0 for a field */
} emit_array;

typedef struct emit_program {
    mc_code mask, score, slope; /* score and slope: both or neither (count 0) */
    const emit_array *arrays;
    uint32_t array_count, band_count;
    int64_t positions;          /* all of queries are in (-positions, positions), of keys, and n, in [0, positions] */
    bool negative;              /* some query may be at a position below 0 */
    uint32_t heads;
} emit_program;

/* The bound to compile for: the least of a few that holds all lengths up to n, so that batches share kernels; 0: none does. */
int64_t emit_positions(uint64_t n);

typedef void emit_text(void *context, const char *text, size_t size);
/* Prints fk_allow, and fk_score and fk_slope where there is a score. NULL: done. Else what is wrong with the code, and
 * nothing was printed; *node is the place (static text). "out of memory" is one of them. */
const char *emit_functions(const emit_program *program, emit_text *out, void *context, uint32_t *node);
#endif
