/* bind.h: binds a program to a batch: which lengths are planned, and the values of its fields and tables. */
#ifndef FCPC_PROBLEM_BIND_H
#define FCPC_PROBLEM_BIND_H
#include "compiler/planning/planning.h"

/* The arrays that mask and score read, as the sections ARRAYS, NAMES and DATA of the plan will hold them, and where
 * each sequence's part of them begins. */
typedef struct binding {
    const struct fcpc_program *program;
    const uint64_t *lengths, *queries; /* keys and queries of each sequence; the same array where they are as many */
    const fcp_array *records; /* program->array_count */
    const char *names;
    size_t names_size;
    const uint8_t *data;
    size_t data_size;
    uint64_t **starts; /* of each array, per sequence: where its values begin; NULL: the program reads no array */
    mc_array *arrays; /* what the sequence bound last sees; NULL likewise */
} binding;

/* Chooses the lengths and queries to be planned (x->lengths, queries, count): the batch's, or the program's own if
 * x->batch has none. FCP_E_MISSING: neither has any. FCP_E_LENGTHS: the batch has queries without keys. */
fcp_code bind_lengths(planning *x);
/* Makes x->binding: the arrays of the program with the values for this batch. FCP_E_FIELD: values are missing, too
 * many, out of their range, or of no field. Cost: O(bytes of the arrays); every value is copied once. */
fcp_code bind_batch(planning *x);

/* The environment in which mask code is evaluated for sequence s; valid until the next call. */
mc_env bind_sequence(const binding *b, uint32_t s);
#endif
