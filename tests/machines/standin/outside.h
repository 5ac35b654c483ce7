/* outside.h: what another library that stands in (NCCL) calls of the stand-in driver, to put work of its own
 * into streams and graphs.
 */
#ifndef STANDIN_OUTSIDE_H
#define STANDIN_OUTSIDE_H
#include "runtime/libraries/cuda_driver.h"

typedef struct standin_range {
    uint64_t begin, bytes;
    bool write;
} standin_range;

typedef enum standin_step { STANDIN_STUCK, STANDIN_MOVED, STANDIN_DONE } standin_step;

/* Work that becomes one node in a stream or a graph. Any two works of one owner must be ordered. It touches these
 * ranges of memory and no others. */
typedef struct standin_work standin_work;
struct standin_work {
    const char *name;
    const void *owner;
    const standin_range *ranges;
    uint32_t range_count;
    /* One more node, or one less, is this work: in a graph, or in a stream. */
    void (*hold)(standin_work *work, bool graph);
    void (*drop)(standin_work *work, bool graph, void *state);
    /* Gets on as far as it can and never waits. *state belongs to this node; it is NULL at first, and `drop` frees
     * it. */
    standin_step (*go)(standin_work *work, void **state);
};

/* Puts work at the end of a stream, or during a capture into the graph. */
cu_result standin_put(cu_stream stream, standin_work *work);
bool standin_capturing(cu_stream stream);
/* The number of a stream's device, and of the current device. -1: that is no stream, or no context is current. */
int standin_stream_device(cu_stream stream);
int standin_current_device(void);

/* Device memory that only standin_release can free. An error is a result only and no trouble. */
cu_result standin_allocate(uint64_t *out, size_t bytes);
cu_result standin_release(uint64_t address);
/* The number of the device on which these bytes lie; -1: they are not all in one allocation. *out_shared: it is one of
 * standin_allocate. */
int standin_place(uint64_t address, size_t bytes, bool *out_shared);

void standin_trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));
void standin_count(long objects); /* adds to `live`: objects that were made, or with a minus ended */
void standin_go(void);            /* lets the devices get on as far as they can without waiting */
#endif
