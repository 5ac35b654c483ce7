/* fault_words.c: the words of fault_words.h. */
#include "compiler/sema/fault_words.h"

#include <inttypes.h>

void fault_words_exact(int64_t dividend, int64_t divisor, text *out) {
    text_printf(out, "%" PRId64 " is not a multiple of %" PRId64, dividend, divisor);
}

void fault_words_index(const program_array *a, const mc_array *bound, const int64_t *index, text *out) {
    const uint32_t dims = mc_array_dims(bound);
    const bool table = a->record.kind == FCP_TABLE;
    const int64_t first[3] = {bound->first, bound->column_first};
    const int64_t end[3] = {first[0] + bound->count, first[1] + bound->columns};
    if (dims == 1 && table) {
        text_printf(out, "element %" PRId64 " of table '%s', which has %" PRId64, index[0], a->name, end[0]);
        return;
    }
    if (dims == 1) {
        const bool position = a->record.q_cell == 1 || a->record.k_cell == 1;
        text_printf(out, "%s %" PRId64 " of field '%s', which has %" PRId64 " to %" PRId64,
                    position ? "position" : "element", index[0], a->name, first[0], end[0] - 1);
        return;
    }
    text_puts(out, "element [");
    for (uint32_t d = 0; d < dims; d++) text_printf(out, "%s%" PRId64, d ? ", " : "", index[d]);
    text_printf(out, "] of %s '%s', which ", table ? "table" : "field", a->name);
    if (table) {
        text_printf(out, "is %" PRId64 " by %" PRId64, end[0], end[1]);
        return;
    }
    text_puts(out, "has [");
    if (dims == 3) text_printf(out, "0 to %" PRId64 ", ", (int64_t)bound->planes - 1);
    for (uint32_t d = 0; d < 2; d++) text_printf(out, "%s%" PRId64 " to %" PRId64, d ? ", " : "", first[d], end[d] - 1);
    text_puts(out, "]");
}
