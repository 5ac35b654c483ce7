/* backend.h: what computes: the interface between the executor and a kind of device.
 *
 * A backend is a constant table of functions. A device is one backend opened for one plan: it has `workers` workers,
 * each with scratch memory of its own, and any number of arenas, one a rank. Different workers may be used at the same
 * time, on different arenas, or on the same one where a function says so. Opening checks its arguments; the functions
 * of a backend do not: the plan was verified, and the executor asks only for what the plan says.
 */
#ifndef FCP_HOST_BACKEND_H
#define FCP_HOST_BACKEND_H
#include "runtime/exec/arena.h"

typedef struct fcp_device fcp_device;
typedef struct fcp_backend fcp_backend;

struct fcp_backend {
    const char *name;
    /* Opens a device; *out_device starts with a struct fcp_device. */
    fcp_code (*open)(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err);
    void (*close)(fcp_device *device);
    /* Memory of an arena. */
    fcp_code (*allocate)(fcp_device *device, size_t bytes, void **out_memory, fcp_error *err);
    void (*release)(fcp_device *device, void *memory);
    /* A pass begins and has ended, on the whole device. */
    void (*enter)(fcp_device *device);
    void (*leave)(fcp_device *device);
    /* count bytes, from and to the caller's memory or an arena. */
    void (*copy)(fcp_device *device, void *dst, const void *src, size_t bytes);
    void (*clear)(fcp_device *device, void *dst, size_t bytes);
    /* dst += src, or dst = src where it is the first contribution; `count` float32. */
    void (*reduce)(fcp_device *device, float *dst, const float *src, size_t count, bool first);
    /* What a rank's outputs are before anything was computed: O = 0 and LSE = -inf, or accumulators of 0. */
    void (*prepare)(fcp_device *device, const fcp_arena *arena);
    /* delta = sum(dO * O) over all home queries. */
    void (*delta)(fcp_device *device, uint32_t worker, const fcp_arena *arena);
    /* Visits [first, first + count), for the query heads of KV heads [head, head + heads). Several workers may do the
     * same visits for different heads. */
    fcp_code (*attend)(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t first, uint32_t count,
                       uint32_t head, uint32_t heads, fcp_error *err);
    /* Tokens [first, first + tokens) of a home block: those of the dQ, dK, dV accumulators that it holds, rounded to
     * the dtype. */
    void (*finish)(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t first, uint32_t tokens);
};

/* The base of every device. */
struct fcp_device {
    const fcp_backend *backend;
    const fcp_plan *plan;
    uint32_t workers;
};

extern const fcp_backend fcp_backend_host;
#endif
