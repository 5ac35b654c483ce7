/* device_pool.h: an allocator of device memory, such as a caller may give to a session, on the stand-in driver. It
 * keeps a record of every block of memory, and of what a session does wrong with it. */
#ifndef DEVICE_POOL_H
#define DEVICE_POOL_H
#include <stdio.h>

#include "runtime/libraries/cuda_driver.h"
#include "tests/machines/standin/standin.h"

enum { POOL_BLOCKS = 200, POOL_DEVICES = 2 };

typedef struct pool_block {
    cu_ptr given, begin; /* given: 0: there is none */
    uint32_t device;
    size_t bytes;
} pool_block;

typedef struct device_pool {
    standin *stand;
    fcp_cuda *cuda;
    cu_context contexts[POOL_DEVICES];
    uint32_t devices;
    pool_block blocks[POOL_BLOCKS];
    long calls, fail_at, shift_at; /* fail_at: the call with this number gets nothing; shift_at: 64 bytes beside */
    size_t held[POOL_DEVICES], most[POOL_DEVICES]; /* bytes: now, and the most there were */
    char wrong[200];               /* the first thing that is wrong; "": nothing is */
} device_pool;

static inline void pool_blame(device_pool *p, const char *what) {
    if (!p->wrong[0]) snprintf(p->wrong, sizeof p->wrong, "call %ld: %s", p->calls, what);
}

/* Leaves another device current than it found, if there is one: a session must not rely on that. */
static inline void pool_leave(device_pool *p, uint32_t device) {
    p->cuda->call.context_set(p->contexts[(device + 1) % p->devices]);
}

static inline void *pool_allocate(void *context, uint32_t device, size_t bytes) {
    device_pool *p = context;
    const bool shifted = ++p->calls == p->shift_at;
    pool_block *block = p->blocks;
    while (block < p->blocks + POOL_BLOCKS && block->given) block++;
    if (device >= p->devices || block == p->blocks + POOL_BLOCKS || !bytes) {
        pool_blame(p, "no such device, too many blocks, or no bytes");
        return NULL;
    }
    cu_ptr begin = 0;
    p->cuda->call.context_set(p->contexts[device]);
    const bool refused = p->calls == p->fail_at || p->cuda->call.allocate(&begin, bytes + 64 * shifted);
    pool_leave(p, device);
    if (refused) return NULL;
    *block = (pool_block){begin + 64 * shifted, begin, device, bytes};
    p->held[device] += bytes;
    if (p->held[device] > p->most[device]) p->most[device] = p->held[device];
    return (void *)(uintptr_t)block->given;
}

static inline void pool_release(void *context, uint32_t device, void *memory) {
    device_pool *p = context;
    pool_block *block = p->blocks;
    while (block < p->blocks + POOL_BLOCKS && block->given != (uintptr_t)memory) block++;
    if (!memory || block == p->blocks + POOL_BLOCKS || block->device != device) {
        pool_blame(p, "what is released was not given, or on another device");
        return;
    }
    p->cuda->call.context_set(p->contexts[device]);
    if (p->cuda->call.release(block->begin)) pool_blame(p, "the driver does not take it back");
    pool_leave(p, device);
    p->held[device] -= block->bytes;
    *block = (pool_block){0};
}

/* devices: the machine's, of which there are at most POOL_DEVICES. From now on freeing memory waits for nothing. */
static inline void pool_open(device_pool *p, standin *x, uint32_t devices) {
    fcp_error err;
    *p = (device_pool){.stand = x, .devices = devices};
    x->devices = (int)devices;
    x->pooled = true;
    if (fcp_cuda_open(&p->cuda, &err)) pool_blame(p, err.message);
    for (uint32_t d = 0; p->cuda && d < devices; d++)
        if (p->cuda->call.context_retain(&p->contexts[d], (int)d)) pool_blame(p, "no context");
}

static inline fcp_allocator pool_allocator(device_pool *p) {
    return (fcp_allocator){p, pool_allocate, pool_release};
}

/* Blocks that have not been released. */
static inline int pool_left(const device_pool *p) {
    int left = 0;
    for (int i = 0; i < POOL_BLOCKS; i++) left += p->blocks[i].given != 0;
    return left;
}

static inline void pool_close(device_pool *p) {
    for (uint32_t d = 0; d < p->devices; d++) p->cuda->call.context_release((int)d);
    fcp_cuda_close(p->cuda);
}
#endif
