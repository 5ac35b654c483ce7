/* emit.h: prints mask code as CUDA text: the functions that kernels call for each pair of a query and a key.
 *
 *   fk_allow(e, q, k, h)      may query q see key k?
 *   fk_score(e, s, q, k, h)   the score of a scaled natural logit s
 *   fk_slope(e, s, q, k, h)   the derivative of the score by s
 *
 * They mean what mask/code.h says, with reals as float. The text is written in what C11 and CUDA C++ share. Before it
 * come abi.h and a definition of FK_DEVICE. Everything in it comes from tables of this file: no text of a plan enters
 * it, and code that mc_check refuses is refused before anything is printed.
 */
#ifndef FCP_EMIT_H
#define FCP_EMIT_H
#include "codegen/mask/code.h"

/* What an array has a value for: each key, each query, or each index of a table. */
typedef enum emit_kind { EMIT_KEYS, EMIT_QUERIES, EMIT_TABLE } emit_kind;
typedef struct emit_array {
    emit_kind kind;
    mc_width width;
    uint32_t columns; /* of an array of two dimensions; 0: it has one */
    int64_t count;    /* elements of a table, or its rows if it has columns; 0 for a field */
} emit_array;

typedef struct emit_program {
    mc_code mask, score, slope; /* score and slope: both or neither (count 0) */
    const emit_array *arrays;
    uint32_t array_count, band_count;
    int64_t positions;          /* queries are at (-positions, positions); keys, and n, in [0, positions] */
    bool negative;              /* a query may be at a position below 0 */
    uint32_t heads;
} emit_program;

/* The bound `positions` to compile for: the smallest of a few fixed ones that is enough for positions up to n. There
 * are only a few, so that batches of different lengths share kernels. 0: none is enough. */
int64_t emit_positions(uint64_t n);

typedef void emit_text(void *context, const char *text, size_t size);
/* Prints fk_allow and, if there is a score, fk_score and fk_slope. NULL: it is done. Otherwise the returned text,
 * which is static, says what is wrong with the code, *node says where, and nothing was printed; or it is "out of
 * memory".
 */
const char *emit_functions(const emit_program *program, emit_text *out, void *context, uint32_t *node);
#endif
