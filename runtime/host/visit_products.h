/* visit_products.h: cuts a visit into matrix products.
 *
 * A visit is a Q block with the KV blocks that it reads in one stage. A *strip* is FCP_STRIP rows of it (256; fewer at
 * the end of a piece). A *job* is a rectangle of a strip's rows and up to FCP_JOB keys in which no cell of the mask is
 * NONE; it is computed as one matrix product. Each row meets its jobs in the order of the visit's tiles and, within a
 * tile, of its keys. So the plan fixes the order of a row's sums, and with it their bits.
 */
#ifndef FCP_HOST_VISIT_PRODUCTS_H
#define FCP_HOST_VISIT_PRODUCTS_H
#include "runtime/host/backend.h"

enum { FCP_STRIP_CELLS = 2, FCP_JOB_CELLS = 4 };
enum { FCP_STRIP = FCP_STRIP_CELLS * FCP_CELL, FCP_JOB = FCP_JOB_CELLS * FCP_CELL };

typedef struct fcp_job {
    uint32_t tile;               /* its number in the plan */
    uint32_t row, rows;          /* rows of the strip, counted from its first */
    uint32_t key, keys;          /* keys of the KV block, counted from its first */
    int64_t q_position, k_position; /* positions in the sequence of the first row and key */
    uint8_t partial[FCP_STRIP_CELLS]; /* [i]: bit j says that cell (i, j) of the job is PARTIAL, else it is FULL */
} fcp_job;

typedef struct fcp_work {
    fcp_job *jobs;
    uint32_t count, capacity;
    uint32_t *cursors;           /* per tile of the visit: its first part that no strip has used up */
    uint32_t cursor_capacity;
} fcp_work;

void fcp_work_free(fcp_work *work);
/* Begins a visit. Errors: FCP_E_NO_MEMORY. */
fcp_code fcp_work_begin(fcp_work *work, const fcp_plan *plan, const fcp_visit *visit);
/* Fills work->jobs with the jobs of one strip, for one class of heads of its range. The strip begins at `row`, a
 * multiple of FCP_STRIP, of a piece of the Q block. The strips of a visit are asked for in order. FCP_E_NO_MEMORY. */
fcp_code fcp_work_strip(fcp_work *work, const fcp_plan *plan, const fcp_visit *visit, uint32_t cls, uint32_t q_piece,
                        uint32_t row);
#endif
