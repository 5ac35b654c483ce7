/* outside.h: what another library that stands in (NCCL's) calls of the driver's: work of its own in streams and graphs. */
#ifndef STANDIN_OUTSIDE_H
#define STANDIN_OUTSIDE_H
#include "runtime/libraries/cuda_driver.h"

typedef struct standin_range {
    uint64_t begin, bytes;
    bool write;
} standin_range;

typedef enum standin_step { STANDIN_STUCK, STANDIN_MOVED, STANDIN_DONE } standin_step;

/* Work that is one node wherever it is put. Any two of one owner must be ordered; it touches these ranges, and no others. */
typedef struct standin_work standin_work;
struct standin_work {
    const char *name;
    const void *owner;
    const standin_range *ranges;
    uint32_t range_count;
    /* One more node is this work, or one less: of a graph, or of what streams hold. */
    void (*hold)(standin_work *work, bool graph);
    void (*drop)(standin_work *work, bool graph, void *state);
    /* Gets on, never waiting. *state is this node's own, NULL at first; `drop` frees it. */
    standin_step (*go)(standin_work *work, void **state);
};

/* Puts it behind what the stream has; during a capture, into the graph. */
cu_result standin_put(cu_stream stream, standin_work *work);
bool standin_capturing(cu_stream stream);
/* The number of the stream's device; of the current one. -1: no stream, no context. */
int standin_stream_device(cu_stream stream);
int standin_current_device(void);

/* Device memory which only standin_release gives back. It says no word of its own of an error. */
cu_result standin_allocate(uint64_t *out, size_t bytes);
cu_result standin_release(uint64_t address);
/* Where bytes lie: the number of their device, -1 if they are not all of one allocation; *out_shared: standin_allocate's. */
int standin_place(uint64_t address, size_t bytes, bool *out_shared);

void standin_trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));
void standin_count(long objects); /* made, or ended: adds to `live` */
void standin_go(void);            /* the devices get on as far as they can without waiting */
#endif
