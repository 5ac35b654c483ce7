/* climb.h: runs rungs (rungs.h) on a GPU, for the steps of gpu-check that do. */
#ifndef GPU_CLIMB_H
#define GPU_CLIMB_H
#include "runtime/jit/jit.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/rungs.h"

typedef struct climb {
    gpu *g;
    fcp_cubin cubin;
    cu_module module;
    cu_stream other; /* raises flags */
    cu_ptr input, out, flag;
    char *host; /* pinned: the input, then what was written */
    uint32_t given_up[RUNG_GAVE_UP];
} climb;

/* Compiles the kernels for this device. Waits of the ladder give up after two seconds, those of rates never. The caller
 * ends *out with fcp_cubin_free, in any case. */
bool climb_compile(gpu *g, rung_set set, fcp_cubin *out, char why[GPU_WHY]);
/* Loads them. The caller closes the climb, in any case. */
bool climb_open(climb *c, gpu *g, rung_set set, char why[GPU_WHY]);
void climb_close(climb *c);
/* Runs a rung. What it wrote is then at c->host + RUNG_INPUT, and c->given_up is as rung_judge wants it. On a stand-in,
 * whose kernels do nothing, what it should have written is put there. */
bool climb_run(climb *c, const rung *r, char why[GPU_WHY]);
/* Launches it in the device's stream, on buffers as they are. */
bool climb_launch(climb *c, const rung *r, char why[GPU_WHY]);
#endif
