/* field_shape.h: what a field is over: how that is written, and how it is said in messages.
 *
 * Example: field keep = given(over = heads, queries / 128, keys / 128) has a value for each head, cell of 128 queries
 * and cell of 128 keys. It is read as keep[h, q / 128, k / 128]. A field over sequences alone has one value for each
 * of them, and is read by its bare name. */
#ifndef FCPC_SEMA_FIELD_SHAPE_H
#define FCPC_SEMA_FIELD_SHAPE_H
#include "compiler/sema/sema.h"

/* Reads the dimensions, which are `first` and the unnamed arguments behind it, into heads, q_cell and k_cell of *out.
 * How many heads the model has is not known yet: heads becomes 1, and *out_kv says that KV heads are meant. False: an
 * error was reported. */
bool sema_read_over(sema *s, const arg *first, fcp_array *out, bool *out_kv);

/* How many values of a field a sequence has; UINT64_MAX: more than any array can have. */
uint64_t sema_field_values(const fcp_array *field, const mc_env *env);

/* The sequences of a batch, as mask code sees them. */
typedef struct sema_batch {
    size_t count;
    mc_env (*env)(const void *of, size_t sequence);
    const void *of;
} sema_batch;
/* How many values of a field the sequences before `sequence` have. */
uint64_t sema_values_before(const fcp_array *field, const sema_batch *batch, size_t sequence);
/* Reports that a field got `given` values (or, if `more`, more than that), and how many its batch needs. `what` and
 * `name` name it: "field 'doc'", "doc". */
void sema_wrong_count(diags *d, span at, const char *what, const char *name, const fcp_array *field, bool kv,
                      uint64_t given, bool more, const sema_batch *batch);

/* Three texts about a field; kv: its heads are KV heads.
 * - "heads, queries / 128, keys / 128", or "sequences"
 * - "keep[h, q / 128, k / 128]", or "prefix"
 * - "8 x 3 x 3": how many values a sequence has */
void sema_put_over(const fcp_array *field, bool kv, text *out);
void sema_put_reading(const fcp_array *field, bool kv, const char *name, text *out);
void sema_put_counts(const fcp_array *field, const mc_env *env, text *out);
#endif
