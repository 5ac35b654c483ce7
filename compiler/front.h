/* front.h: parsing a program and using its trees, which explain needs and planning does not. */
#ifndef FCPC_FRONT_H
#define FCPC_FRONT_H
#include "compiler/sema/sema.h"

/* Called while the trees of a checked program still exist. If it returns a code other than FCP_OK, or reports an error,
 * that is the result of front_parse. */
typedef fcp_code front_use(sema *s, void *context);

/* fcpc_parse_text, and then, if all went well and `use` is not NULL, use(s, context) with the trees of the mask that
 * `layer` says, from 0. The arrays of `plan`, unless that is NULL, stand for the fields and tables of the same
 * names. */
fcp_code front_parse(const char *name, const char *bytes, size_t size, const fcpc_options *options,
                     const fcp_plan *plan, uint32_t layer, fcpc_diagnostics *d, fcpc_program **out_program,
                     front_use *use, void *context);
#endif
