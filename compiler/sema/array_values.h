/* array_values.h: reads the values of fields and tables. */
#ifndef FCPC_SEMA_ARRAY_VALUES_H
#define FCPC_SEMA_ARRAY_VALUES_H
#include "compiler/sema/sema.h"

/* Two functions read values from a list or from file(...): sema_read_table and sema_read_field. They fill in record,
 * data and file of *out, in the program's memory. If `keep` is false, the values are only checked and data stays NULL.
 * `what` names the array in messages: "table 'bias'". False: there was an error, which was reported. */

/* A table: numbers in one or two dimensions. If there are more than `most`, *out says how many, and has no data. */
bool sema_read_table(sema *s, const char *what, const expr *value, uint64_t most, bool keep, program_array *out);
/* Reads a field of `tokens` numbers; with ANY_TOKENS, of any number of them but 0. The caller has set in *out the kind,
 * what the field is over, the declared range, and MC_F64 as the width if it is to have reals in any case. kv: its heads
 * are KV heads. */
#define ANY_TOKENS UINT64_MAX
bool sema_read_field(sema *s, const char *what, const expr *value, bool kv, uint64_t tokens, bool keep,
                     program_array *out);

/* Makes run(field): the array that says for each position where its run of equal values begins. Without lengths, the
 * whole field counts as one sequence. False: out of memory, which was reported. */
bool sema_read_runs(sema *s, const program_array *of, program_array *out);
#endif
