/* cost.c: from a listing to a report: reads the kernels (listing.c), then their loops (loops.c).
 *
 * Requires: nothing; the listing need not be trusted.
 * Gives:    cost_read.
 * Cost:     O(instructions x loops).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cost/cost_parts.h"

bool cost_read(const char *source, const char *listing, const cost_machine *machine, cost_report *out,
               char wrong[160]) {
    cost_code *codes = NULL;
    uint32_t count = 0;
    *out = (cost_report){0};
    if (!cost_list(source, listing, &codes, &count, wrong)) return false;
    out->kernels = calloc(count + (size_t)1, sizeof *out->kernels);
    bool good = out->kernels != NULL;
    for (uint32_t i = 0; good && i < count; i++) {
        cost_kernel *k = &out->kernels[out->count++];
        memcpy(k->name, codes[i].name, sizeof k->name);
        k->instructions = codes[i].count;
        for (uint32_t n = 0; n < codes[i].count && !*k->unknown; n++)
            if (cost_pipe_of(codes[i].all[n].name) == COST_OTHER)
                snprintf(k->unknown, sizeof k->unknown, "%.23s", codes[i].all[n].name);
        good = cost_steps(&codes[i], machine, k);
    }
    cost_list_free(codes, count);
    if (!good) {
        cost_free(out);
        snprintf(wrong, 160, "out of memory");
    }
    return good;
}

void cost_free(cost_report *report) {
    free(report->kernels);
    *report = (cost_report){0};
}
