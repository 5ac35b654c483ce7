/* backend.h: the table of functions that compute what a plan's instructions say.
 *
 * The executor (executor.c, queues.c) walks a plan's queues; it has the threads, waits, messages and time limits.
 * Everything that touches numbers is a function of this table, a *backend*. The library has one backend, the processor
 * (host.c). The table exists for tests: they run the same executor on machines of their own, which execute the CUDA
 * kernels without a GPU (tests/machines/fibers, tests/machines/ptx).
 *
 * A *device* is a backend opened for one plan. It has `workers` workers, each with scratch memory of its own and used
 * by one thread at a time. Different workers may work at the same time; whether they may share an arena is said at each
 * function. A backend does not check its arguments: the plan was verified, and the executor asks only for what the plan
 * says.
 */
#ifndef FCP_HOST_BACKEND_H
#define FCP_HOST_BACKEND_H
#include "runtime/exec/rank_memory.h"

typedef struct fcp_device fcp_device;
typedef struct fcp_backend fcp_backend;

struct fcp_backend {
    const char *name;
    /* Opens a device. *out_device begins with a struct fcp_device. */
    fcp_code (*open)(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err);
    void (*close)(fcp_device *device);
    /* Memory for an arena, aligned to 64 bytes. */
    fcp_code (*allocate)(fcp_device *device, size_t bytes, void **out_memory, fcp_error *err);
    void (*release)(fcp_device *device, void *memory);
    /* Makes ready what backward passes need that have gradients of tables. NULL: this backend has none. */
    fcp_code (*learn)(fcp_device *device, fcp_error *err);
    /* A pass begins, on the whole device; it has ended. After an error it has not begun. */
    fcp_code (*enter)(fcp_device *device, fcp_error *err);
    void (*leave)(fcp_device *device);
    /* Copies and clears bytes, in the caller's memory or an arena. */
    void (*copy)(fcp_device *device, void *dst, const void *src, size_t bytes);
    void (*clear)(fcp_device *device, void *dst, size_t bytes);
    /* dst += src, or dst = src if this is the first contribution; `count` numbers of float32. */
    void (*reduce)(fcp_device *device, float *dst, const float *src, size_t count, bool first);
    /* Sets a rank's outputs to what they are for rows that see no key: forward O = 0, LSE = -inf (with a sink: the
     * sink) and the largest logits -inf; backward dQ = dK = dV = 0. */
    void (*prepare)(fcp_device *device, const fcp_arena *arena);
    /* Computes delta = sum(dO * O), minus d_lse if the plan has that, for each query and head of home slots [first,
     * first + count). */
    void (*delta)(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t first, uint32_t count);
    /* Computes visits [first, first + count) for the query heads of KV heads [head, head + heads) of the visits'
     * ranges; KV heads are counted from the range's first. Several workers may compute the same visits for different
     * heads at the same time. */
    fcp_code (*attend)(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t first, uint32_t count,
                       uint32_t head, uint32_t heads, fcp_error *err);
    /* Merges the state of a Q block in one slot into its state in another. */
    void (*merge)(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t from, uint32_t into);
    /* Makes O and LSE of a Q block, in an O slot, of its state in a slot, as its last visit would. */
    void (*finish_state)(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t block, uint32_t state,
                         uint32_t into);
    /* Rounds the sum of a Q block's dQ in a DQ slot to the dtype, into a DQW slot. */
    void (*round)(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t from, uint32_t into);
    /* Rounds dQ, dK and dV of tokens [first, first + tokens) of a home block to the dtype, as far as the block holds
     * these sides. dQ of a block with FCP_BLOCK_WHOLE has come rounded, and stays as it is. */
    void (*finish)(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t first, uint32_t tokens);
};

/* The base of every device. */
struct fcp_device {
    const fcp_backend *backend;
    const fcp_plan *plan;
    uint32_t workers;
    /* Returns whether the pass has failed meanwhile. A function that works for more than some milliseconds asks, and
     * returns if so, because its result is not wanted any more. The caller sets this function; NULL: never. */
    bool (*over)(void *session);
    void *session;
};
static inline bool fcp_device_over(const fcp_device *device) { return device->over && device->over(device->session); }

extern const fcp_backend fcp_backend_host;
#endif
