/* work.h: from a visit's tiles to the matrix products of the host backend.
 *
 * A strip is up to FCP_STRIP_CELLS rows of cells of one Q piece. A job is a rectangle of a strip against up to
 * FCP_JOB_CELLS columns of cells of one KV piece, no cell of which is NONE: one matrix product. Each row's jobs come in
 * the order of its tiles and, in a tile, of its keys.
 */
#ifndef FCP_HOST_WORK_H
#define FCP_HOST_WORK_H
#include "runtime/host/backend.h"

enum { FCP_STRIP_CELLS = 2, FCP_JOB_CELLS = 4 };
enum { FCP_STRIP = FCP_STRIP_CELLS * FCP_CELL, FCP_JOB = FCP_JOB_CELLS * FCP_CELL };

typedef struct fcp_job {
    uint32_t tile;               /* index of the plan's tile */
    uint32_t row, rows;          /* tokens, from the strip's first */
    uint32_t key, keys;          /* tokens of the KV block */
    int64_t q_position, k_position; /* in the sequence, of the first row and key */
    uint8_t partial[FCP_STRIP_CELLS]; /* per row of cells of the job: bit per column of cells */
} fcp_job;

typedef struct fcp_work {
    fcp_job *jobs;
    uint32_t count, capacity;
    uint32_t *cursors;           /* per tile of the visit: its first part that is not done */
    uint32_t cursor_capacity;
} fcp_work;

void fcp_work_free(fcp_work *work);
/* Begins a visit. Errors: FCP_E_NO_MEMORY. */
fcp_code fcp_work_begin(fcp_work *work, const fcp_plan *plan, const fcp_visit *visit);
/* The visit's jobs of a strip of a Q piece of its block: `row` is a multiple of FCP_STRIP. Pieces are asked for in
 * order. */
fcp_code fcp_work_strip(fcp_work *work, const fcp_plan *plan, const fcp_visit *visit, uint32_t q_piece, uint32_t row);
#endif
