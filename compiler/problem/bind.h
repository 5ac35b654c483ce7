/* bind.h: the fields and tables of a program, bound to one batch. */
#ifndef FCPC_PROBLEM_BIND_H
#define FCPC_PROBLEM_BIND_H
#include "compiler/base/arena.h"
#include "compiler/sema/program.h"

/* What mask and score read for a batch: the sections ARRAYS, NAMES and DATA of its plan, and each sequence's part. */
typedef struct binding {
    const struct fcpc_program *program;
    const uint64_t *lengths, *queries; /* keys and queries of each sequence */
    const fcp_array *records; /* program->array_count */
    const char *names;
    size_t names_size;
    const uint8_t *data;
    size_t data_size;
    /* per sequence: where its queries, keys begin in the batch; NULL where no array is read */
    uint64_t *first[FCP_SIDES];
    mc_array *arrays;         /* of the sequence bound last */
} binding;

/* Binds a batch, whose lengths are the program's own where batch->lengths is NULL. What the plan keeps is in `plan`,
 * the rest in `work`. Errors are reported in d, with the program's spans shifted by `shift`: FCP_E_FIELD for values
 * that are missing, too many, out of their range, or of no field. Cost: O(bytes of the arrays); every value is copied
 * once. */
fcp_code bind_batch(const struct fcpc_program *program, const fcpc_batch *batch, arena *plan, arena *work, diags *d,
                    uint32_t shift, binding *out);

/* What sequence s sees; valid until the next call. */
mc_env bind_sequence(const binding *b, uint32_t s);
#endif
