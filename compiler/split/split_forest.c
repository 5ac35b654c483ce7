/* split_forest.c: splits a forest of rollouts into micro-batches: fcpc_split_forest.
 *
 * Requires: a checked program, whose fields `last` and `at`, if it has them, are those of a forest.
 * Gives: a forest without a tree that the ranks cannot hold, and the micro-batch of each of its trees.
 * Cost: that of a cut (forest/forest_cut.c), and that of splitting its trees as a batch (split_batch.c).
 *
 * A tree is cut only where it must be: what the parts repeat is work that is done twice. Whole trees are then dealt to
 * micro-batches like the sequences of any batch, by their tokens and by what their cells cost.
 */
#include "compiler/split/split.h"

#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/sema/program.h"
#include "runtime/base/sized.h"

static bool declares(const fcpc_program *program, const char *name) {
    for (uint32_t i = 0; i < program->field_count; i++)
        if (!strcmp(program->fields[i], name)) return true;
    return false;
}

static fcp_code split_trees(const fcpc_program *program, const fcpc_forest *cut, const fcpc_split_options *how,
                            const volatile int *stop, fcpc_diagnostics *d, uint32_t *out_of, double *out_seconds,
                            uint32_t *out_count) {
    fcpc_forest_view v;
    fcpc_field fields[2];
    fcpc_forest_look(cut, &v);
    fcpc_batch batch = {.size = sizeof batch, .lengths = v.lengths, .count = v.trees, .fields = fields};
    *out_count = 0;
    if (!v.trees) return FCP_OK; /* a batch has at least one sequence */
    if (declares(program, "last")) fields[batch.field_count++] = (fcpc_field){"last", v.last, v.tokens, NULL};
    if (declares(program, "at")) fields[batch.field_count++] = (fcpc_field){"at", v.position, v.tokens, NULL};
    return fcpc_split_batch(program, &batch, how, stop, d, out_of, out_seconds, out_count);
}

fcp_code fcpc_split_forest(const fcpc_program *program, const fcpc_forest *forest, const fcpc_split_options *options,
                           const volatile int *stop, fcpc_diagnostics *d, fcpc_forest **out_forest, uint32_t *out_of,
                           double *out_seconds, uint32_t *out_count) {
    fcpc_split_options how;
    fcpc_forest *cut = NULL;
    fcp_error err = {0};
    uint32_t each;
    fcp_code code = fcp_sized_read(&how, sizeof how, options, "fcpc_split_options", &err);
    if (!code) code = split_check(&how, &err);
    if (!code) code = fcpc_forest_cut(forest, split_cap(program, &how, &each), &cut, &err);
    if (code && d) diag_error(d, code, SPAN_NONE, "%s", err.message);
    if (!code) code = split_trees(program, cut, &how, stop, d, out_of, out_seconds, out_count);
    if (code) fcpc_forest_free(cut);
    else *out_forest = cut;
    return code;
}
