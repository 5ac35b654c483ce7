/* front.h: parses a program, and lets a caller read its syntax trees before they are freed: compiler/explain does. */
#ifndef FCPC_FRONT_H
#define FCPC_FRONT_H
#include "compiler/sema/sema.h"

/* Called while the trees of a checked program still exist. If it returns a code other than FCP_OK, or reports an error,
 * that is the result of front_parse. */
typedef fcp_code front_use(sema *s, void *context);

/* A text, and what it is read with. */
typedef struct front_input {
    const char *name, *bytes;
    size_t size;
    const fcpc_options *options;
    const fcp_plan *plan; /* its arrays stand for the fields and tables of the same names; NULL: none do */
    uint32_t layer;       /* whose mask's trees are used */
} front_input;

/* fcpc_parse_text, and then, if all went well and `use` is not NULL, use(s, context) with the trees of in->layer. */
fcp_code front_parse(const front_input *in, fcpc_diagnostics *d, fcpc_program **out_program, front_use *use,
                     void *context);

/* What the text of a plan says that linear layers take, program.linear; zeros, if it says nothing. A plan's tables do not
 * have it, because attention runs without it. */
fcp_code front_linear(const fcp_plan *plan, uint64_t out[FCP_PASSES]);
#endif
