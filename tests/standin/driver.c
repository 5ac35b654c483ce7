/* driver.c: the symbols of the driver that stands in (standin.h says what it is).
 *
 * Objects are allocated and counted. A stream is the last node put into it; an event the last node of a stream when it was
 * recorded. During a capture, streams that have joined it put their nodes into the capture's store. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parts.h"

standin control = {.devices = 1, .major = 8, .minor = 0, .shared = 166912, .peers = true, .memory = (size_t)1 << 30};
standin *standin_control(void) { return &control; }

static struct cu_context_ contexts[DEVICES + 1]; /* the last one is of nobody here */
static cu_context current;
static allocation *allocations;
static cu_stream streams;
static cu_graph_exec execs;
static store live = {.id = 1}, captured;
static uint64_t last_capture = UINT64_C(1) << 62;
static cu_stream capture_origin;
static bool capture_bad;
static long ticks; /* events recorded */

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

#define API cu_result
/* Every call that may fail begins with one of these. */
bool injected(void) { return ++control.calls == control.fail_at; }
#define ENTER                                                                                                          \
    do                                                                                                                 \
        if (injected()) return control.fail_with;                                                                      \
    while (0)
#define ENTER_OUTSIDE                                                                                                  \
    do {                                                                                                               \
        ENTER;                                                                                                         \
        if (capture_origin) {                                                                                          \
            capture_bad = true;                                                                                        \
            return CAPTURE_UNSUPPORTED;                                                                                \
        }                                                                                                              \
    } while (0)
/* What ends an object does so, and may report an error nevertheless. */
#define LEAVE return injected() ? control.fail_with : CU_SUCCESS

API cuInit(unsigned flags);
API cuDriverGetVersion(int *out);
API cuGetErrorName(cu_result result, const char **out);
API cuGetErrorString(cu_result result, const char **out);
API cuDeviceGetCount(int *out);
API cuDeviceGet(cu_device *out, int number);
API cuDeviceGetName(char *out, int size, cu_device d);
API cuDeviceGetAttribute(int *out, int which, cu_device d);
API cuDevicePrimaryCtxRetain(cu_context *out, cu_device d);
API cuDevicePrimaryCtxRelease_v2(cu_device d);
API cuCtxSetCurrent(cu_context c);
API cuCtxGetCurrent(cu_context *out);
API cuCtxGetStreamPriorityRange(int *least, int *greatest);
API cuDeviceCanAccessPeer(int *out, cu_device a, cu_device b);
API cuCtxEnablePeerAccess(cu_context c, unsigned flags);
API cuMemGetInfo_v2(size_t *available, size_t *total);
API cuMemAlloc_v2(cu_ptr *out, size_t bytes);
API cuMemFree_v2(cu_ptr p);
API cuMemHostAlloc(void **out, size_t bytes, unsigned flags);
API cuMemFreeHost(void *p);
API cuMemHostGetDevicePointer_v2(cu_ptr *out, void *p, unsigned flags);
API cuMemGetAddressRange_v2(cu_ptr *base, size_t *size, cu_ptr p);
API cuStreamIsCapturing(cu_stream s, int *out);
API cuPointerGetAttribute(void *out, int which, cu_ptr p);
API cuStreamCreateWithPriority(cu_stream *out, unsigned flags, int priority);
API cuStreamDestroy_v2(cu_stream s);
API cuStreamQuery(cu_stream s);
API cuStreamSynchronize(cu_stream s);
API cuStreamGetCtx(cu_stream s, cu_context *out);
API cuStreamWaitEvent(cu_stream s, cu_event e, unsigned flags);
API cuEventCreate(cu_event *out, unsigned flags);
API cuEventDestroy_v2(cu_event e);
API cuEventRecord(cu_event e, cu_stream s);
API cuEventQuery(cu_event e);
API cuEventElapsedTime(float *out, cu_event a, cu_event b);
API cuGraphGetNodes(cu_graph g, void *out, size_t *count);
API cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes, cu_stream s);
API cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes, cu_stream s);
API cuMemcpyDtoDAsync_v2(cu_ptr to, cu_ptr from, size_t bytes, cu_stream s);
API cuMemcpyPeerAsync(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes, cu_stream s);
API cuMemsetD32Async(cu_ptr to, unsigned word, size_t count, cu_stream s);
API cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *base, const uint64_t *dims, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill);
API cuModuleLoadData(cu_module *out, const void *image);
API cuModuleUnload(cu_module m);
API cuModuleGetFunction(cu_function *out, cu_module m, const char *name);
API cuFuncGetAttribute(int *out, int which, cu_function f);
API cuFuncSetAttribute(cu_function f, int which, int value);
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, cu_function f, int threads, size_t shared);
API cuLaunchKernel(cu_function f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned shared, cu_stream s, void **parameters, void **extra);
API cuStreamBeginCapture_v2(cu_stream s, int mode);
API cuStreamEndCapture(cu_stream s, cu_graph *out);
API cuGraphInstantiateWithFlags(cu_graph_exec *out, cu_graph g, unsigned long long flags);
API cuGraphLaunch(cu_graph_exec g, cu_stream s);
API cuGraphDestroy(cu_graph g);
API cuGraphExecDestroy(cu_graph_exec g);
/* They are those that callers think they are. */
static const fcp_cuda_table table __attribute__((unused)) = {
#define X(symbol, type) symbol,
    FCP_CUDA_SYMBOLS(X)
#undef X
};

/* --- devices ------------------------------------------------------------------------------------------------------ */

API cuInit(unsigned flags) {
    const char *devices = getenv("STANDIN_DEVICES");
    if (devices) control.devices = atoi(devices);
    ENTER;
    return flags ? CU_ERROR_INVALID_VALUE : CU_SUCCESS;
}
API cuDriverGetVersion(int *out) {
    ENTER;
    *out = 12040;
    return CU_SUCCESS;
}
API cuGetErrorName(cu_result result, const char **out) {
    static const struct { int number; const char *name; } all[] = {
        {CU_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {CU_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"}, {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"}, {CU_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CU_ERROR_PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
        {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"}, {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
        {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"}, {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"}};
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

static cu_result allocate(cu_ptr *out, size_t bytes, bool shared) {
    if (!current) return INVALID_CONTEXT;
    if (!bytes) return CU_ERROR_INVALID_VALUE;
    if (bytes > control.memory - current->used) return CU_ERROR_OUT_OF_MEMORY;
    allocation *a = calloc(1, sizeof *a);
    if (!a || posix_memalign(&a->memory, 256, bytes)) return CU_ERROR_OUT_OF_MEMORY;
    if (!control.idle) memset(a->memory, 0xff, bytes);
    *a = (allocation){(uintptr_t)a->memory, (uintptr_t)a->memory + bytes, current, a->memory, allocations, false, shared};
    allocations = a;
    current->used += bytes;
    control.live++;
    *out = a->begin;
    return CU_SUCCESS;
}
API cuMemAlloc_v2(cu_ptr *out, size_t bytes) {
    ENTER_OUTSIDE;
    return allocate(out, bytes, false);
}
static cu_result end_allocation(cu_ptr p, bool host, bool shared) {
    allocation **at = &allocations;
    while (*at && ((*at)->begin != p || (*at)->host != host)) at = &(*at)->next;
    allocation *a = *at;
    if (!a) trouble("memory is freed that is not allocated");
    if (!a) return CU_ERROR_INVALID_VALUE;
    if (a->shared != shared) trouble(shared ? "NCCL frees memory that is not its own" : "memory of ncclMemAlloc is freed by the driver");
    if (!store_finish(&live, 0)) trouble("memory is freed while work waits"); /* it waits for the device */
    *at = a->next;
    if (!host) a->context->used -= a->end - a->begin;
    free(a->memory);
    free(a);
    control.live--;
    return CU_SUCCESS;
}
API cuMemFree_v2(cu_ptr p) {
    cu_result result = end_allocation(p, false, false);
    if (result) return result;
    LEAVE;
}
API cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER_OUTSIDE;
    if (!current) return INVALID_CONTEXT;
    if (!bytes || flags != (CU_HOST_PORTABLE | CU_HOST_DEVICEMAP)) return CU_ERROR_INVALID_VALUE;
    allocation *a = calloc(1, sizeof *a);
    if (!a || posix_memalign(&a->memory, 256, bytes)) return CU_ERROR_OUT_OF_MEMORY;
    memset(a->memory, 0xff, bytes);
    *a = (allocation){(uintptr_t)a->memory, (uintptr_t)a->memory + bytes, current, a->memory, allocations, true, false};
    allocations = a;
    control.live++;
    *out = a->memory;
    return CU_SUCCESS;
}
API cuMemFreeHost(void *p) {
    cu_result result = end_allocation((uintptr_t)p, true, false);
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
    const allocation *a = allocation_of(p);
    if (!a) return CU_ERROR_INVALID_VALUE;
    if (which == CU_POINTER_MEMORY_TYPE) *(unsigned *)out = a->host ? CU_MEMORY_HOST : CU_MEMORY_DEVICE;
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

/* --- streams and events ------------------------------------------------------------------------------------------- */

static bool in_capture(cu_stream s) { return capture_origin && s->capture == captured.id; }
static uint32_t node_of(const store *s, ref r) { return r.store == s->id ? r.node : 0; }

/* A node at the end of a stream, after `also` too. It knows which word of host memory its stream has last been told to
 * write. */
static cu_result put(cu_stream s, const node *made, uint32_t also) {
    node copy = *made, *n = &copy;
    uint64_t mark = n->op == FILL ? n->to : 0;
    unsigned value = n->word;
    if (n->op == KERNEL) {
        bool is_support = n->function->parameters == sizeof n->parameters.support;
        mark = is_support ? n->parameters.support.mark : n->parameters.launch.mark;
        value = is_support ? n->parameters.support.mark_value : n->parameters.launch.mark_value;
    }
    const allocation *marks = allocation_of(mark);
    if (marks && marks->host) {
        s->mark = mark;
        s->mark_value = value;
    }
    n->marks = marks && marks->host;
    n->mark = s->mark;
    n->mark_value = s->mark_value;
    n->device = s->context->device;
    store *to = in_capture(s) ? &captured : &live;
    ref *last = in_capture(s) ? &s->captured : &s->last;
    const uint32_t deps[] = {node_of(to, *last), also};
    last->node = store_add(to, n, deps, 2, to == &live);
    last->store = to->id;
    return CU_SUCCESS;
}

API cuStreamCreateWithPriority(cu_stream *out, unsigned flags, int priority) {
    ENTER;
    if (!current || flags != CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5) return CU_ERROR_INVALID_VALUE;
    *out = stream_new(current, NULL);
    return CU_SUCCESS;
}
cu_stream stream_new(cu_context context, cu_green green) {
    cu_stream s = calloc(1, sizeof *s);
    *s = (struct cu_stream_){.context = context, .next = streams, .green = green};
    streams = s;
    control.live++;
    return s;
}
cu_context context_of(cu_device d) { return &contexts[d]; }
API cuStreamDestroy_v2(cu_stream s) {
    cu_stream *at = &streams;
    while (*at && *at != s) at = &(*at)->next;
    if (!*at) trouble("a stream is ended that is not there");
    if (!*at) return INVALID_HANDLE;
    *at = s->next;
    if (s->green) green_stream_ends(s->green);
    free(s);
    control.live--;
    LEAVE;
}
static cu_result ask_node(uint32_t last, uint32_t steps) {
    if (last && !live.nodes[last - 1].done) store_run(&live, steps);
    if (last && !live.nodes[last - 1].done) return control.hang_with && store_stuck(&live) ? control.hang_with : CU_ERROR_NOT_READY;
    if (control.trouble[0]) return LAUNCH_FAILED;
    host_saw(&live, last);
    return CU_SUCCESS;
}
static cu_result ask(cu_stream s, uint32_t steps) {
    if (s->capture && capture_origin) {
        capture_bad = true;
        return CAPTURE_UNSUPPORTED;
    }
    return ask_node(node_of(&live, s->last), steps);
}
static uint32_t some_steps(void) { return 1 + (uint32_t)(control.seed >> 40) % 400; }
API cuStreamQuery(cu_stream s) {
    ENTER;
    return ask(s, some_steps());
}
API cuStreamSynchronize(cu_stream s) {
    ENTER_OUTSIDE;
    uint32_t last = s->capture && capture_origin ? 0 : node_of(&live, s->last);
    if (last) store_finish(&live, last);
    return ask(s, UINT32_MAX);
}
API cuStreamGetCtx(cu_stream s, cu_context *out) {
    ENTER;
    cu_stream at = streams;
    while (at && at != s) at = at->next;
    if (!at) return INVALID_HANDLE;
    *out = s->context;
    return CU_SUCCESS;
}
API cuStreamIsCapturing(cu_stream s, int *out) {
    ENTER;
    *out = in_capture(s);
    return CU_SUCCESS;
}
API cuStreamWaitEvent(cu_stream s, cu_event e, unsigned flags) {
    ENTER;
    const node empty = {.op = EMPTY};
    if (flags) return CU_ERROR_INVALID_VALUE;
    if (capture_origin && e->capture == captured.id) {
        if (!in_capture(s)) s->captured = (ref){0};
        s->capture = captured.id;
        return put(s, &empty, node_of(&captured, e->at));
    }
    if (in_capture(s)) {
        capture_bad = true;
        return CAPTURE_ISOLATION;
    }
    return put(s, &empty, node_of(&live, e->at));
}
API cuEventCreate(cu_event *out, unsigned flags) {
    ENTER;
    if (!current || (flags && flags != CU_EVENT_DISABLE_TIMING)) return CU_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    (*out)->context = current;
    (*out)->timed = !flags;
    control.live++;
    return CU_SUCCESS;
}
API cuEventDestroy_v2(cu_event e) {
    free(e);
    control.live--;
    LEAVE;
}
API cuEventRecord(cu_event e, cu_stream s) {
    ENTER;
    if (e->context != s->context) return INVALID_HANDLE;
    e->capture = in_capture(s) ? captured.id : 0;
    e->at = in_capture(s) ? s->captured : s->last;
    e->tick = ++ticks;
    return CU_SUCCESS;
}
/* No time passes here: a millisecond for every event that was recorded meanwhile. */
API cuEventElapsedTime(float *out, cu_event a, cu_event b) {
    ENTER;
    if (!a->timed || !b->timed || !a->tick || !b->tick) return INVALID_HANDLE;
    uint32_t m = node_of(&live, a->at), n = node_of(&live, b->at);
    if ((m && !live.nodes[m - 1].done) || (n && !live.nodes[n - 1].done)) return CU_ERROR_NOT_READY;
    *out = (float)(b->tick - a->tick);
    return CU_SUCCESS;
}
API cuEventQuery(cu_event e) {
    ENTER_OUTSIDE;
    return ask_node(node_of(&live, e->at), some_steps());
}

/* --- work --------------------------------------------------------------------------------------------------------- */

static bool inside(uint64_t p, size_t bytes) {
    const allocation *a = allocation_of(p);
    return a && bytes <= a->end - p;
}
static cu_result copy(cu_stream s, uint64_t to, uint64_t from, size_t bytes) {
    const node n = {.op = COPY, .to = to, .from = from, .bytes = bytes};
    return put(s, &n, 0);
}
/* Memory that is not pinned: refused in a capture; and the call waits for what the stream has. */
static cu_result host_copy(cu_stream s, uint64_t host, uint64_t to, uint64_t from, size_t bytes) {
    const allocation *first = allocation_of(host), *last = allocation_of(host + bytes - 1);
    bool pinned = first && first->host && first == last;
    if (!bytes || (first && !first->host)) return CU_ERROR_INVALID_VALUE;
    control.host_copies++;
    if (pinned) return copy(s, to, from, bytes);
    if (in_capture(s)) capture_bad = true;
    if (in_capture(s)) return CAPTURE_UNSUPPORTED;
    control.pageable_copies++;
    copy(s, to, from, bytes);
    store_run(&live, UINT32_MAX);
    if (live.done < live.count) trouble("a copy of memory that is not pinned waits for ever");
    return CU_SUCCESS;
}
API cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes, cu_stream s) {
    ENTER;
    return inside(to, bytes) ? host_copy(s, (uintptr_t)from, to, (uintptr_t)from, bytes) : CU_ERROR_INVALID_VALUE;
}
API cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes, cu_stream s) {
    ENTER;
    return inside(from, bytes) ? host_copy(s, (uintptr_t)to, (uintptr_t)to, from, bytes) : CU_ERROR_INVALID_VALUE;
}
API cuMemcpyDtoDAsync_v2(cu_ptr to, cu_ptr from, size_t bytes, cu_stream s) {
    ENTER;
    if (!inside(to, bytes) || !inside(from, bytes)) return CU_ERROR_INVALID_VALUE;
    control.copies++;
    return copy(s, to, from, bytes);
}
API cuMemcpyPeerAsync(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes, cu_stream s) {
    ENTER;
    if (!inside(to, bytes) || !inside(from, bytes) || allocation_of(to)->context != to_context ||
        allocation_of(from)->context != from_context)
        return CU_ERROR_INVALID_VALUE;
    control.peer_copies++;
    return copy(s, to, from, bytes);
}
API cuMemsetD32Async(cu_ptr to, unsigned word, size_t count, cu_stream s) {
    ENTER;
    if (to % 4 || !inside(to, count * 4)) return CU_ERROR_INVALID_VALUE;
    const node n = {.op = FILL, .to = to, .bytes = count * 4, .word = word};
    return put(s, &n, 0);
}

/* Of three dimensions, packed numbers of 16 bits, at least as strict as the driver. */
API cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *base, const uint64_t *dims, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill) {
    ENTER;
    if (control.major < 9 || (type != CU_TENSOR_FP16 && type != CU_TENSOR_BF16) || rank != 3 || interleave || fill ||
        swizzle != CU_TENSOR_SWIZZLE_128 || promotion < 0 || promotion > CU_TENSOR_L2_256)
        return CU_ERROR_INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if (steps[i] != 1) return CU_ERROR_INVALID_VALUE;
    const allocation *a = allocation_of((uint64_t)(uintptr_t)base);
    if (!current || (a && a->context != current)) return INVALID_CONTEXT; /* which the driver may do */
    if (!a || (uint64_t)(uintptr_t)base + dims[2] * strides[1] > a->end) trouble("a map of memory that nobody allocated");
    machine_map map = {.base = (uint64_t)(uintptr_t)base, .element = 2, .swizzle = MACHINE_SWIZZLE_128};
    memcpy(map.dims, dims, sizeof map.dims);
    memcpy(map.strides, strides, sizeof map.strides);
    for (int i = 0; i < 3; i++) map.box[i] = box[i];
    return machine_map_encode(out, &map) ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}
API cuModuleLoadData(cu_module *out, const void *image) {
    ENTER_OUTSIDE;
    unsigned head_dim = 0, bf16 = 0, score = 0;
    bool probe = !strncmp(image, "#define GPU_CHECK ", 18); /* kernels of gpu-check's own: they do nothing */
    if (strstr(image, "\"prim_sm90_ptx.h\"") && (control.major != 9 || control.minor != 0)) return NO_BINARY;
    if (!current || (!probe && sscanf(image, "#define FK_HEAD_DIM %u #define FK_BF16 %u #define FK_HAS_SCORE %u", &head_dim, &bf16, &score) != 3))
        return CU_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    **out = (struct cu_module_){current, head_dim, bf16, score, strdup(image), NULL};
    control.live++;
    return CU_SUCCESS;
}
API cuModuleUnload(cu_module m) {
    while (m->functions) {
        cu_function f = m->functions;
        m->functions = f->next;
        free(f);
    }
    free((char *)(uintptr_t)m->text);
    free(m);
    control.live--;
    LEAVE;
}
API cuModuleGetFunction(cu_function *out, cu_module m, const char *name) {
    ENTER;
    cu_function f = calloc(1, sizeof *f);
    f->module = m;
    snprintf(f->name, sizeof f->name, "%s", name);
    if (!kernel_find(f) && (m->head_dim || !strstr(m->text, name))) {
        free(f);
        return NOT_FOUND;
    }
    f->next = m->functions;
    *out = m->functions = f;
    return CU_SUCCESS;
}
API cuFuncGetAttribute(int *out, int which, cu_function f) {
    ENTER;
    const int registers = control.registers ? control.registers : 32;
    (void)f;
    switch (which) {
    case CU_FUNC_MAX_THREADS: *out = registers > 0 ? 65536 / registers / 32 * 32 : 0; break;
    case CU_FUNC_SHARED: *out = control.fixed; break;
    case CU_FUNC_LOCAL: *out = control.local; break;
    case CU_FUNC_REGISTERS: *out = registers; break;
    default: return CU_ERROR_INVALID_VALUE;
    }
    return CU_SUCCESS;
}
API cuFuncSetAttribute(cu_function f, int which, int value) {
    ENTER;
    (void)f;
    return which == CU_FUNC_MAX_DYNAMIC_SHARED && value <= control.shared ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, cu_function f, int threads, size_t shared) {
    ENTER;
    *out = 1;
    if (!f->kernel) return CU_SUCCESS;
    if (threads != (int)f->kernel->threads || shared != f->kernel->shared) return CU_ERROR_INVALID_VALUE;
    *out = 2;
    return CU_SUCCESS;
}
API cuLaunchKernel(cu_function f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned shared,
                   cu_stream s, void **parameters, void **extra) {
    ENTER;
    node n = {.op = f->kernel ? KERNEL : EMPTY, .function = f, .blocks = x};
    if (!f->kernel) return put(s, &n, 0);
    if (!x || y != 1 || z != 1 || b != 1 || c != 1 || extra || a != f->kernel->threads || shared != f->kernel->shared)
        return CU_ERROR_INVALID_VALUE;
    if (f->module->context != s->context) return INVALID_HANDLE;
    if (in_capture(s) && s->green && control.green == GREEN_NO_CAPTURE) {
        capture_bad = true;
        return CAPTURE_UNSUPPORTED;
    }
    if (in_capture(s) && s->green && control.green == GREEN_WRONG) n.op = EMPTY;
    if (f->parameters == sizeof n.parameters.launch) {
        ++*(s->green ? &control.in_green : &control.out_of_green);
        if (x > control.most_blocks) control.most_blocks = x;
        size_t used = strlen(control.launched);
        if (!strstr(control.launched, f->name))
            snprintf(control.launched + used, sizeof control.launched - used, "%s%s", used ? ", " : "", f->name);
    }
    memcpy(&n.parameters, parameters[0], f->parameters);
    return put(s, &n, 0);
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

API cuStreamBeginCapture_v2(cu_stream s, int mode) {
    ENTER;
    if (capture_origin || mode != CU_CAPTURE_THREAD_LOCAL) return CU_ERROR_INVALID_VALUE;
    captured = (store){.id = ++last_capture, .graph = true};
    capture_origin = s;
    capture_bad = false;
    s->capture = captured.id;
    s->captured = (ref){0};
    return CU_SUCCESS;
}
API cuStreamEndCapture(cu_stream s, cu_graph *out) {
    if (s != capture_origin) return CU_ERROR_INVALID_VALUE;
    cu_result result = capture_bad ? CAPTURE_INVALIDATED : CU_SUCCESS;
    uint32_t last = node_of(&captured, s->captured);
    for (cu_stream t = streams; t; t = t->next) {
        uint32_t theirs = in_capture(t) ? node_of(&captured, t->captured) : 0;
        if (theirs && !result && (!last || !store_before(&captured, theirs, last))) result = CAPTURE_UNJOINED;
    }
    for (cu_stream t = streams; t; t = t->next) t->capture = 0;
    capture_origin = NULL;
    if (injected()) result = control.fail_with;
    *out = NULL;
    if (result) {
        store_clear(&captured);
        return result;
    }
    *out = calloc(1, sizeof **out);
    (*out)->store = captured;
    captured = (store){0};
    control.live++;
    return CU_SUCCESS;
}
API cuGraphInstantiateWithFlags(cu_graph_exec *out, cu_graph g, unsigned long long flags) {
    ENTER_OUTSIDE;
    if (flags) return CU_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    (*out)->next = execs;
    execs = *out;
    for (uint32_t i = 0; i < g->store.count; i++)
        store_add(&(*out)->store, &g->store.nodes[i], g->store.nodes[i].deps, g->store.nodes[i].dep_count, false);
    control.live++;
    return CU_SUCCESS;
}
API cuGraphLaunch(cu_graph_exec g, cu_stream s) {
    ENTER;
    if (in_capture(s)) return CAPTURE_UNSUPPORTED;
    const node empty = {.op = EMPTY};
    put(s, &empty, 0);
    uint32_t begin = s->last.node, count = g->store.count, *deps = calloc(count + 1, sizeof *deps);
    for (uint32_t i = 0; i < count; i++) {
        const node *n = &g->store.nodes[i];
        for (uint32_t j = 0; j < n->dep_count; j++) deps[j] = begin + n->deps[j];
        deps[n->dep_count] = n->dep_count ? 0 : begin;
        store_add(&live, n, deps, n->dep_count + 1, true);
    }
    for (uint32_t i = 0; i < count; i++) deps[i] = begin + 1 + i;
    s->last.node = store_add(&live, &empty, deps, count, true);
    free(deps);
    control.graph_launches++;
    return CU_SUCCESS;
}
API cuGraphGetNodes(cu_graph g, void *out, size_t *count) {
    ENTER;
    if (out) return CU_ERROR_INVALID_VALUE;
    *count = g->store.count;
    return CU_SUCCESS;
}
API cuGraphDestroy(cu_graph g) {
    store_clear(&g->store);
    free(g);
    control.live--;
    LEAVE;
}
API cuGraphExecDestroy(cu_graph_exec g) {
    cu_graph_exec *at = &execs;
    while (*at && *at != g) at = &(*at)->next;
    if (!*at) trouble("a graph is ended that is not there");
    if (!*at) return INVALID_HANDLE;
    *at = g->next;
    store_clear(&g->store);
    free(g);
    control.live--;
    LEAVE;
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
    return is_stream(s) ? put(s, &n, 0) : INVALID_HANDLE;
}
bool standin_capturing(cu_stream s) { return is_stream(s) && in_capture(s); }
int standin_stream_device(cu_stream s) { return is_stream(s) ? s->context->device : -1; }
int standin_current_device(void) { return current ? current->device : -1; }
cu_result standin_allocate(uint64_t *out, size_t bytes) { return capture_origin ? CAPTURE_UNSUPPORTED : allocate(out, bytes, true); }
cu_result standin_release(uint64_t address) { return end_allocation(address, false, true); }
int standin_place(uint64_t address, size_t bytes, bool *out_shared) {
    const allocation *a = allocation_of(address);
    if (out_shared) *out_shared = a && a->shared;
    return a && !a->host && bytes <= a->end - address ? a->context->device : -1;
}
void standin_count(long objects) { control.live += objects; }
void standin_go(void) { store_run(&live, UINT32_MAX); }
