/* class_tiles.h: merges the parts that classes of heads see. Only tiles.c uses it. */
#ifndef FCPC_PROBLEM_CLASS_TILES_H
#define FCPC_PROBLEM_CLASS_TILES_H
#include "compiler/problem/problem.h"

/* Parts as they are found, in order of sequence, Q piece and KV piece. */
typedef struct raw_parts {
    fcp_part *part;
    size_t count, room;
} raw_parts;
/* Makes room for `more` parts. */
fcp_code raw_reserve(planning *x, raw_parts *raw, size_t more);

/* What one class of heads sees. */
typedef struct class_parts {
    const fcp_part *parts;
    size_t count;
    const fcp_shape_rec *shapes;
    const fcp_run *runs;
} class_parts;

/* Shapes and runs of all ranges of heads, one range after the other. */
typedef struct class_shapes {
    fcp_shape_rec *shapes;
    problem_shape *sets; /* as many */
    fcp_run *runs;
    size_t shape_count, shape_room, set_room, run_count, run_room;
} class_shapes;

/* Makes the parts of one range of heads. place[side][i]: where piece i stands in the order of sequence and start.
 * FCP_E_PLAN_SIZE: more runs or pairs than a plan holds. */
fcp_code class_tiles_join(planning *x, const class_parts *of, const uint32_t *const place[FCP_SIDES],
                          const fcp_heads *range, class_shapes *all, raw_parts *out);
#endif
