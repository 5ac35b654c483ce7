/* device.h: backends whose kernels are the PTX that NVRTC makes of a plan's sources, executed by the machine of
 * ptx.h.
 *
 * Attention, delta, sums, the preparation of outputs and their conversion at the end are kernels. Memory and copies
 * are those of the host backend.
 */
#ifndef PTX_DEVICE_H
#define PTX_DEVICE_H
#include "runtime/host/backend.h"
#include "tests/support/waits.h"

/* They differ in the backward pass: two kernels; one kernel, ordered; one kernel, unordered, if the head_dim has
 * one. */
extern const fcp_backend ptx_backend, ptx_ordered_backend, ptx_unordered_backend;
/* The second of these, with one buffer of dO instead of two (EMIT_ONE_BUFFER), compiled for sm_86. */
extern const fcp_backend ptx_one_buffer_backend;
/* The last of them, compiled for sm_100. */
extern const fcp_backend ptx_sm100_backend;
/* The kernels for sm_90a, if the head_dim has them: the backward pass ordered, or unordered. */
extern const fcp_backend ptx_sm90_backend, ptx_unordered_sm90_backend;

/* Says what went wrong, on any device, in kernels whose callers cannot return an error; "" if nothing. Then forgets
 * it. */
void ptx_device_trouble(char *text, size_t room);

/* For tests of the machine itself: changes the PTX of devices that are opened from now on. In `kernel`, occurrence
 * number `which` of `find`, counted from 0, becomes `replace` (-1: every occurrence). With find = NULL nothing is
 * changed any more. Returns how many places were changed in the devices that were opened before this call. */
typedef struct ptx_change {
    const char *kernel, *find, *replace;
    int which;
    /* instead of `replace`: returns the whole new text, malloc'd; `find` is at `at` */
    char *(*edit)(const char *text, const char *at);
} ptx_change;
unsigned ptx_device_change(const ptx_change *change);
/* Sets the seed, and with it the order of everything that it decides. */
void ptx_device_seed(uint64_t seed);
/* Makes devices that are opened from now on fuse the forward pass (true), or run it by stages again (false). To test
 * that a fused launch waits for its flags, the blocks that it waits for are taken away before it begins. They come back
 * round by round: some rounds before the launch begins, and one more whenever all its warps wait. */
void ptx_device_fuse(bool fused);
/* Devices that are opened from now on compile these lines before a plan's source: "#define FK_BOUND 1000\n". */
void ptx_device_define(const char *lines);
/* What kernels built with FK_BOUND or FK_WAITED have written down of their waits (codegen/kernels/abi.h), in a pass of
 * the devices that have been closed. Zeros if nothing was written. Then forgets it. */
typedef struct ptx_waits {
    uint32_t gave_up[FK_GAVE_UP];
    uint64_t waited[FK_WAIT_WARPS][FK_WAITS];
    wait_names names; /* of the kernels that waited, or of those that gave up */
} ptx_waits;
void ptx_device_waits(fcp_pass pass, ptx_waits *out);
#endif
