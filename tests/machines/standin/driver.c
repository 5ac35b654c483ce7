/* driver.c: the devices, contexts and memory of the stand-in driver (standin.h describes it), and the functions that
 * other stand-ins call. streams.c has the streams, events and graphs, and launches.c the work that is put into them.
 * Every object is allocated and counted, so that a test sees what was not freed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/machines/standin/symbols.h"

standin control = {.devices = 1, .major = 8, .minor = 0, .shared = 166912, .peers = true, .memory = (size_t)1 << 30};
standin *standin_control(void) { return &control; }

struct cu_context_ contexts[DEVICES + 1];
cu_context current;
static allocation *allocations;

void trouble(const char *format, ...) {
    if (control.trouble[0]) return;
    va_list args;
    va_start(args, format);
    vsnprintf(control.trouble, sizeof control.trouble, format, args);
    va_end(args);
}

allocation *allocation_of(uint64_t address) {
    for (allocation *a = allocations; a; a = a->next)
        if (address >= a->begin && address < a->end) return a;
    return NULL;
}

/* Writes an empty core dump, if the environment asks for one as CUDA's driver understands it. */
static void leave_core(const char *asked) {
    const char *path = getenv("CUDA_COREDUMP_FILE"), *on = getenv(asked);
    FILE *f = path && on && *on == '1' ? fopen(path, "wxe") : NULL;
    if (f) fclose(f);
}
static void *listen(void *path) {
    char byte;
    const int from = open(path, O_RDWR | O_CLOEXEC); /* writing, too, so that a writer that ends is no end */
    while (from >= 0 && read(from, &byte, 1) != 1) {}
    leave_core("CUDA_ENABLE_USER_TRIGGERED_COREDUMP");
    return NULL;
}
/* Who writes into that pipe gets a core dump. */
static void open_pipe(void) {
    static pthread_t thread;
    char *path = getenv("CUDA_COREDUMP_PIPE");
    if (path && !thread && !mkfifo(path, 0600) && !pthread_create(&thread, NULL, listen, path)) pthread_detach(thread);
}

bool injected(void) {
    control.calls++;
    if (control.fail_at && control.breaks && control.calls == control.fail_at)
        leave_core("CUDA_ENABLE_COREDUMP_ON_EXCEPTION");
    return control.fail_at && (control.breaks ? control.calls >= control.fail_at : control.calls == control.fail_at);
}

/* Makes the compiler check that the functions have the types that callers think they have. */
static const fcp_cuda_table table __attribute__((unused)) = {
#define X(symbol, type) symbol,
    FCP_CUDA_SYMBOLS(X)
#undef X
};

/* --- devices ------------------------------------------------------------------------------------------------------ */

API cuInit(unsigned flags) {
    const char *devices = getenv("STANDIN_DEVICES");
    if (devices) control.devices = atoi(devices);
    if (getenv("STANDIN_SM90")) {
        control.major = 9;
        control.shared = 232448;
    }
    const char *connections = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    control.connections = connections ? atoi(connections) : 8;
    open_pipe();
    ENTER;
    return flags ? CU_ERROR_INVALID_VALUE : CU_SUCCESS;
}
API cuDriverGetVersion(int *out) {
    ENTER;
    *out = control.version ? control.version : 12040;
    return CU_SUCCESS;
}
API cuGetErrorName(cu_result result, const char **out) {
    static const struct { int number; const char *name; } all[] = {DRIVER_ERROR_NAMES};
    *out = "CUDA_ERROR_OF_THE_STAND_IN";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].number == result) *out = all[i].name;
    return CU_SUCCESS;
}
API cuGetErrorString(cu_result result, const char **out) {
    *out = result == CU_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error";
    return CU_SUCCESS;
}
API cuDeviceGetCount(int *out) {
    ENTER;
    *out = control.devices;
    return CU_SUCCESS;
}
API cuDeviceGet(cu_device *out, int number) {
    ENTER;
    if (number < 0 || number >= control.devices) return CU_ERROR_INVALID_VALUE;
    *out = number;
    return CU_SUCCESS;
}
API cuDeviceGetName(char *out, int size, cu_device d) {
    ENTER;
    snprintf(out, (size_t)size, "stand-in %d", d);
    return CU_SUCCESS;
}
API cuDeviceGetAttribute(int *out, int which, cu_device d) {
    ENTER;
    (void)d;
    switch (which) {
    case CU_CAPABILITY_MAJOR: *out = control.major; break;
    case CU_CAPABILITY_MINOR: *out = control.minor; break;
    case CU_MULTIPROCESSORS: *out = MULTIPROCESSORS; break;
    case CU_SHARED_MEMORY_OPTIN: *out = control.shared; break;
    default: return CU_ERROR_INVALID_VALUE;
    }
    return CU_SUCCESS;
}
API cuDevicePrimaryCtxRetain(cu_context *out, cu_device d) {
    ENTER;
    contexts[d].device = d;
    contexts[d].retained++;
    control.live++;
    *out = &contexts[d];
    return CU_SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(cu_device d) {
    if (contexts[d].retained <= 0) trouble("device %d is released more often than retained", d);
    if (--contexts[d].retained == 0) contexts[d].peers = 0;
    control.live--;
    LEAVE;
}
API cuCtxSetCurrent(cu_context c) {
    ENTER;
    if (c && c->retained <= 0) return INVALID_CONTEXT;
    current = c;
    return CU_SUCCESS;
}
API cuCtxGetCurrent(cu_context *out) {
    ENTER;
    *out = current;
    return CU_SUCCESS;
}
API cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER;
    if (!current) return INVALID_CONTEXT;
    *least = 0;
    *greatest = -5;
    return CU_SUCCESS;
}
API cuDeviceCanAccessPeer(int *out, cu_device a, cu_device b) {
    ENTER;
    *out = control.peers && a != b;
    return CU_SUCCESS;
}
API cuCtxEnablePeerAccess(cu_context c, unsigned flags) {
    ENTER;
    if (!current || c == current || flags) return INVALID_CONTEXT;
    unsigned bit = 1u << c->device;
    if (current->peers & bit) return CU_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (control.most_peers && __builtin_popcount(current->peers) >= control.most_peers) return CU_ERROR_TOO_MANY_PEERS;
    current->peers |= bit;
    return CU_SUCCESS;
}
API cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER;
    if (!current) return INVALID_CONTEXT;
    *total = control.memory;
    *available = control.memory - current->used;
    return CU_SUCCESS;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Counts the bytes of an allocation that was made, or freed. */
static void count(const allocation *a, bool more) {
    size_t bytes = a->end - a->begin, *now = a->host ? &control.pinned : &control.held[a->context->device];
    size_t *most = a->host ? &control.most_pinned : &control.most_held[a->context->device];
    *now = more ? *now + bytes : *now - bytes;
    if (*now > *most) *most = *now;
    if (!a->host) a->context->used = *now;
    control.live += more ? 1 : -1;
}

/* So much of pinned memory holds NaNs at first. A session has 8 MB of it for each device, and few tests use more. */
enum { FILLED = 256 << 10 };

cu_result memory_allocate(cu_ptr *out, size_t bytes, bool shared) {
    if (!current) return INVALID_CONTEXT;
    if (!bytes) return CU_ERROR_INVALID_VALUE;
    if (bytes > control.memory - current->used) return CU_ERROR_OUT_OF_MEMORY;
    allocation *a = calloc(1, sizeof *a);
    if (!a || posix_memalign(&a->memory, 256, bytes)) return CU_ERROR_OUT_OF_MEMORY;
    if (!control.idle) memset(a->memory, 0xff, bytes);
    *a = (allocation){
        (uintptr_t)a->memory, (uintptr_t)a->memory + bytes, current, a->memory, allocations, false, shared};
    allocations = a;
    count(a, true);
    *out = a->begin;
    return CU_SUCCESS;
}
API cuMemAlloc_v2(cu_ptr *out, size_t bytes) {
    ENTER_OUTSIDE;
    return memory_allocate(out, bytes, false);
}
cu_result memory_end(cu_ptr p, bool host, bool shared) {
    allocation **at = &allocations;
    while (*at && ((*at)->begin != p || (*at)->host != host)) at = &(*at)->next;
    allocation *a = *at;
    if (!a) trouble("memory is freed that is not allocated");
    if (!a) return CU_ERROR_INVALID_VALUE;
    if (a->shared != shared)
        trouble(shared ? "NCCL frees memory that is not its own" : "memory of ncclMemAlloc is freed by the driver");
    if (shared && store_touches(&live, a->begin, a->end))
        trouble("NCCL's memory is given back while work uses it"); /* ncclMemFree does not wait for the device */
    const bool pooled = control.pooled && !host && !shared;
    if (pooled && store_touches(&live, a->begin, a->end)) trouble("memory is given back to a pool while work uses it");
    if (!pooled && !store_finish(&live, 0)) trouble("memory is freed while work waits"); /* cuMemFree waits */
    store_forget(&live, a->begin, a->end);
    *at = a->next;
    count(a, false);
    free(a->memory);
    free(a);
    return CU_SUCCESS;
}
API cuMemFree_v2(cu_ptr p) {
    if (!current) return INVALID_CONTEXT;
    if (capture_origin) {
        capture_bad = true;
        return CAPTURE_UNSUPPORTED;
    }
    cu_result result = memory_end(p, false, false);
    if (result) return result;
    LEAVE;
}
API cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER_OUTSIDE;
    if (!current) return INVALID_CONTEXT;
    if (!bytes || flags != (CU_HOST_PORTABLE | CU_HOST_DEVICEMAP)) return CU_ERROR_INVALID_VALUE;
    allocation *a = calloc(1, sizeof *a);
    if (!a || posix_memalign(&a->memory, 256, bytes)) return CU_ERROR_OUT_OF_MEMORY;
    memset(a->memory, 0xff, bytes < FILLED ? bytes : FILLED);
    *a = (allocation){(uintptr_t)a->memory, (uintptr_t)a->memory + bytes, current, a->memory, allocations, true, false};
    allocations = a;
    count(a, true);
    *out = a->memory;
    return CU_SUCCESS;
}
API cuMemFreeHost(void *p) {
    if (!current) return INVALID_CONTEXT;
    if (capture_origin) {
        capture_bad = true;
        return CAPTURE_UNSUPPORTED;
    }
    cu_result result = memory_end((uintptr_t)p, true, false);
    if (result) return result;
    LEAVE;
}
API cuMemHostGetDevicePointer_v2(cu_ptr *out, void *p, unsigned flags) {
    ENTER;
    const allocation *a = allocation_of((uintptr_t)p);
    if (!current || !a || !a->host || flags) return CU_ERROR_INVALID_VALUE;
    *out = (uintptr_t)p;
    return CU_SUCCESS;
}
API cuPointerGetAttribute(void *out, int which, cu_ptr p) {
    ENTER;
    control.questions++;
    const allocation *a = allocation_of(p);
    if (!a && (which != CU_POINTER_MEMORY_TYPE || !control.pageable)) return CU_ERROR_INVALID_VALUE;
    if (!a) *(unsigned *)out = control.pageable;
    else if (which == CU_POINTER_MEMORY_TYPE) *(unsigned *)out = a->host ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
    else if (which == CU_POINTER_DEVICE) *(int *)out = a->context->device;
    else if (which == CU_POINTER_CONTEXT) *(cu_context *)out = control.foreign ? &contexts[DEVICES] : a->context;
    else return CU_ERROR_INVALID_VALUE;
    return CU_SUCCESS;
}
API cuMemGetAddressRange_v2(cu_ptr *base, size_t *size, cu_ptr p) {
    ENTER;
    const allocation *a = allocation_of(p);
    if (!a) return NOT_FOUND;
    *base = a->begin;
    *size = a->end - a->begin;
    return CU_SUCCESS;
}

/* --- other libraries that stand in -------------------------------------------------------------------------------- */

void standin_trouble(const char *format, ...) {
    char text[sizeof control.trouble];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    trouble("%s", text);
}
static bool is_stream(cu_stream s) {
    cu_stream at = streams;
    while (at && at != s) at = at->next;
    return at;
}
cu_result standin_put(cu_stream s, standin_work *work) {
    const node n = {.op = OUTSIDE, .work = work};
    return is_stream(s) ? stream_put(s, &n, 0) : INVALID_HANDLE;
}
bool standin_capturing(cu_stream s) { return is_stream(s) && in_capture(s); }
int standin_stream_device(cu_stream s) { return is_stream(s) ? s->context->device : -1; }
int standin_current_device(void) { return current ? current->device : -1; }
cu_result standin_allocate(uint64_t *out, size_t bytes) {
    return capture_origin ? CAPTURE_UNSUPPORTED : memory_allocate(out, bytes, true);
}
cu_result standin_release(uint64_t address) { return memory_end(address, false, true); }
int standin_place(uint64_t address, size_t bytes, bool *out_shared) {
    const allocation *a = allocation_of(address);
    if (out_shared) *out_shared = a && a->shared;
    return a && !a->host && bytes <= a->end - address ? a->context->device : -1;
}
void standin_count(long objects) { control.live += objects; }
void standin_go(void) { store_run(&live, UINT32_MAX); }
