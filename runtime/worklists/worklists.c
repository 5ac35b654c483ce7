/* worklists.c: what all work lists share: their memory, their order, and which plans need which kind of list.
 *
 * Requires: a verified plan.
 * Cost:     a list is sorted in n log n comparisons, with as much memory again as its items have.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/worklists/list.h"

_Static_assert((int)FK_ROWS == FCP_CELL && (int)FK_KEYS == FCP_CELL, "an item is one row or column of cells");
_Static_assert((int)FK_FULL == FCP_CELL_FULL && (int)FK_PARTIAL == FCP_CELL_PARTIAL, "classes of cells");
_Static_assert((int)FK_FIRST == FCP_VISIT_FIRST && (int)FK_LAST == FCP_VISIT_LAST, "flags of visits");
_Static_assert(sizeof(fk_row_item) == 72 && sizeof(fk_merge_item) == 88 && sizeof(fk_key_run) == 48 &&
                   sizeof(fk_key_item) == 88 && sizeof(fk_row_run) == 32 && sizeof(fk_sequence) == 32 &&
                   sizeof(fk_bands) == 24 && sizeof(fk_launch) == 208 && sizeof(fk_map) == 128 &&
                   sizeof(fk_launch_maps) == 256 + 6 * 128 && sizeof(fk_support) == 104,
               "records are the same on host and device");

fcp_code fcp_worklists_no_memory(fcp_error *err) {
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a work list");
}

fcp_code fcp_worklists_too_long(fcp_error *err) {
    return fcp_fail(err, FCP_E_RUN, "a stage's work list does not fit in 32 bits");
}

fcp_code fcp_worklists_reserve(struct fcp_worklists_kept *all, uint64_t keys, uint64_t runs, fcp_error *err) {
    if (all->key_count + keys > UINT32_MAX || all->run_count + runs > UINT32_MAX) return fcp_worklists_too_long(err);
    keys += all->key_count;
    runs += all->run_count;
    return FCP_GROW(all->keys, all->key_capacity, (uint32_t)keys) &&
                   FCP_GROW(all->runs, all->run_capacity, (uint32_t)runs)
               ? FCP_OK
               : fcp_worklists_no_memory(err);
}

void fcp_worklists_replace_keys(fcp_worklists *w, const struct fcp_worklists_kept *all) {
    free(w->keys);
    free(w->row_runs);
    w->keys = all->keys, w->key_count = all->key_count, w->key_capacity = all->key_capacity;
    w->row_runs = all->runs, w->row_run_count = all->run_count, w->row_run_capacity = all->run_capacity;
}

void *fcp_worklists_scratch(fcp_worklists *w, int which, size_t count, size_t size) {
    if (count > SIZE_MAX / size - 1) return NULL;
    size_t bytes = (count + 1) * size;
    if (bytes <= w->scratch_bytes[which]) return w->scratch[which];
    free(w->scratch[which]);
    w->scratch[which] = malloc(bytes);
    w->scratch_bytes[which] = w->scratch[which] ? bytes : 0;
    return w->scratch[which];
}

void fcp_worklists_free(fcp_worklists *work) {
    free(work->rows);
    free(work->key_runs);
    free(work->merges);
    free(work->keys);
    free(work->row_runs);
    for (int i = 0; i < FCP_WORKLISTS_SCRATCHES; i++) free(work->scratch[i]);
    _Static_assert(FCP_WORKLISTS_SCRATCHES == sizeof work->scratch / sizeof *work->scratch, "one for each");
    *work = (fcp_worklists){0};
}

uint32_t fcp_worklists_cells(const fcp_worklists *w, const fk_row_item *item) {
    uint32_t cells = 0;
    for (uint32_t i = item->first; i < item->first + item->runs; i++)
        cells += w->key_runs[i].count / FCP_CELL + (w->key_runs[i].count % FCP_CELL != 0);
    return cells;
}

fk_u64 fcp_worklists_offset(const fcp_arena *a, const void *place) {
    return (fk_u64)((const char *)place - (const char *)a->k);
}

bool fcp_worklists_key_rows(const fcp_arena *a, uint32_t slot, uint64_t at, struct fcp_worklists_place *out) {
    const bool home = slot < a->homes;
    const uint64_t row = home ? a->home_first[FCP_KEYS][slot] + at : at, last = row + a->plan->problem->max_block;
    const uint32_t moved = home ? 0 : slot - a->homes;
    if (last > INT32_MAX || moved > INT32_MAX) return false;
    *out = (struct fcp_worklists_place){.place = home ? FK_AT_HOME : FK_MOVED, .row = (uint32_t)row, .slot = moved};
    return true;
}

static int longer(const void *a, const void *b) {
    const struct fcp_worklists_size *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

bool fcp_worklists_sort(fcp_worklists *w, void *items, uint32_t count, size_t bytes, struct fcp_worklists_size *sizes) {
    char *permuted = fcp_worklists_scratch(w, FCP_WORKLISTS_PERMUTED, count, bytes);
    if (!permuted) return false;
    if (!count) return true;
    qsort(sizes, count, sizeof *sizes, longer);
    for (uint32_t i = 0; i < count; i++) memcpy(permuted + i * bytes, (char *)items + sizes[i].index * bytes, bytes);
    memcpy(items, permuted, count * bytes);
    return true;
}
