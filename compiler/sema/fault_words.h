/* fault_words.h: how a fault of a mask or score is told, in errors and in explanations. */
#ifndef FCPC_SEMA_FAULT_WORDS_H
#define FCPC_SEMA_FAULT_WORDS_H
#include "codegen/mask/code.h"
#include "compiler/base/text.h"
#include "compiler/sema/program.h"

#define FAULT_DIV_ZERO "division by zero"
#define FAULT_OVERFLOW "overflow of a 64-bit integer"

/* Adds "45 is not a multiple of 8". */
void fault_words_exact(int64_t dividend, int64_t divisor, text *out);
/* Adds "position 45 of field 'doc', which has 0 to 44", for an element that an array does not have. `index` has as many
 * numbers as it has dimensions. */
void fault_words_index(const program_array *a, const mc_array *bound, const int64_t *index, text *out);
#endif
