/* empty_rows.h: queries for which a mask allows no key at all. */
#ifndef FCPC_EMPTY_ROWS_H
#define FCPC_EMPTY_ROWS_H
#include "../runtime/plan.h"
#include "arena.h"
#include "box.h"

/* Rows [first, end) of a sequence see nothing; for head h, if the mask names it. first == end: none was found. */
typedef struct empty_rows {
    size_t sequence;
    uint64_t first, end;
    uint32_t h;
} empty_rows;

/* The first run of such rows, in order of sequence, head and row. The mask must not fault anywhere in the batch. */
fcp_code empty_rows_find(mc_code mask, uint32_t heads, const uint64_t *lengths, size_t count, arena *scratch,
                         empty_rows *out);
#endif
