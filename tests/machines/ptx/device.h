/* device.h: a backend whose kernels are the PTX that NVRTC makes of a plan's sources, executed here (ptx.h).
 *
 * Attention, delta, sums, what outputs are at the start and their type at the end are kernels; memory and copies are
 * the host's. */
#ifndef PTX_DEVICE_H
#define PTX_DEVICE_H
#include "runtime/host/backend.h"

/* The backward pass in two kernels; in one, in order; in one, as it comes: where there is one for the head_dim. */
extern const fcp_backend ptx_backend, ptx_ordered_backend, ptx_unordered_backend;
/* The last of these compiled for sm_100, which has them too. */
extern const fcp_backend ptx_sm100_backend;
/* Those for sm_90a, of a head_dim that has them: the backward pass in order, or as it comes. */
extern const fcp_backend ptx_sm90_backend, ptx_unordered_sm90_backend;

/* What went wrong in kernels whose callers cannot be told, of any device; "" if nothing. Forgets it. */
void ptx_device_trouble(char *text, size_t room);

/* Devices opened from now on change their texts: in `kernel`, the `which`-th `find` from 0 on becomes `replace` (-1: all
 * of them); find NULL: they no longer do. Returns how many places the last ones opened had changed. */
typedef struct ptx_change {
    const char *kernel, *find, *replace;
    int which;
    /* instead of `replace`: the whole text, `find` being at `at`; malloc'd */
    char *(*edit)(const char *text, const char *at);
} ptx_change;
unsigned ptx_device_change(const ptx_change *change);
/* Another order of everything that the seed decides. */
void ptx_device_seed(uint64_t seed);
#endif
