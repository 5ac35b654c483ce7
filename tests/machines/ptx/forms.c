/* forms.c: lists all tables of forms of instructions (ptx.h), and finds the forms of a mnemonic.
 *
 * Cost: a search is logarithmic. The forms are sorted once, when the program begins.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/forms.h"

static const struct {
    const ptx_form *forms;
    const size_t *count;
} tables[] = {{ptx_alu_forms, &ptx_alu_form_count},       {ptx_convert_forms, &ptx_convert_form_count},
              {ptx_memory_forms, &ptx_memory_form_count}, {ptx_warp_forms, &ptx_warp_form_count},
              {ptx_async_forms, &ptx_async_form_count},   {ptx_bulk_forms, &ptx_bulk_form_count},
              {ptx_wgmma_forms, &ptx_wgmma_form_count}};
enum { TABLES = sizeof tables / sizeof *tables };

static ptx_form *sorted;
static size_t sorted_count;

/* By name, and those of one name as in their table. */
static int by_name(const void *a, const void *b) {
    const ptx_form *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->order < y->order ? -1 : 1;
}

__attribute__((constructor)) static void sort(void) {
    for (size_t t = 0; t < TABLES; t++) sorted_count += *tables[t].count;
    sorted = malloc(sorted_count * sizeof *sorted);
    if (!sorted) abort();
    size_t n = 0;
    for (size_t t = 0; t < TABLES; t++)
        for (size_t i = 0; i < *tables[t].count; i++, n++) {
            sorted[n] = tables[t].forms[i];
            sorted[n].order = (uint32_t)n;
        }
    qsort(sorted, n, sizeof *sorted, by_name);
}
__attribute__((destructor)) static void forget(void) { free(sorted); }

const ptx_form *ptx_form_find(const char *name, size_t length, size_t *count) {
    size_t low = 0, high = sorted_count;
    while (low < high) {
        size_t at = (low + high) / 2;
        int order = strncmp(sorted[at].name, name, length);
        if (order < 0) low = at + 1;
        else high = at;
    }
    while (low < sorted_count && !strncmp(sorted[low].name, name, length) && sorted[low].name[length]) low++;
    for (*count = 0; low + *count < sorted_count; ++*count) {
        const char *other = sorted[low + *count].name;
        if (strlen(other) != length || memcmp(other, name, length)) break;
    }
    return *count ? &sorted[low] : NULL;
}
