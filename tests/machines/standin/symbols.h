/* symbols.h: declares the functions of the CUDA driver that the stand-in defines, the statements with which each of
 * them begins, and other declarations that the stand-in's files share. */
#ifndef STANDIN_SYMBOLS_H
#define STANDIN_SYMBOLS_H
#include "tests/machines/standin/parts.h"

/* driver.c */
extern struct cu_context_ contexts[DEVICES + 1]; /* the last one is a context of somebody else */
extern cu_context current;
/* Allocates memory of the current context; `shared`: for standin_allocate. */
cu_result memory_allocate(cu_ptr *out, size_t bytes, bool shared);
cu_result memory_end(cu_ptr p, bool host, bool shared);

/* streams.c */
extern cu_stream streams, capture_origin;
extern store live, captured;
extern bool capture_bad;
/* Puts a node at the end of a stream. It also comes after node `also` (0: none). */
cu_result stream_put(cu_stream s, const node *made, uint32_t also);
/* Replaces the handle of a default stream by that stream of the current context. */
cu_result stream_find(cu_stream *s);
static inline bool in_capture(cu_stream s) { return capture_origin && s->capture == captured.id; }
static inline uint32_t node_of(const store *s, ref r) { return r.store == s->id ? r.node : 0; }

/* globals.c: frees what a module's variables take. */
void module_waits_end(cu_module m);

#define API cu_result
/* Every call that can fail begins with one of these; with ENTER_OUTSIDE if it is refused during a capture. They
 * return. */
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
/* A call that ends an object ends with this: it has ended the object, and may report an error nevertheless. */
#define LEAVE return injected() ? control.fail_with : CU_SUCCESS
/* A call that is given a stream begins with this. */
#define STREAM(s)                                                                                                      \
    do {                                                                                                               \
        cu_result found_ = stream_find(&(s));                                                                          \
        if (found_) return found_;                                                                                     \
    } while (0)

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
API cuEventRecordWithFlags(cu_event e, cu_stream s, unsigned flags);
API cuEventQuery(cu_event e);
API cuEventElapsedTime(float *out, cu_event a, cu_event b);
API cuGraphGetNodes(cu_graph g, void *out, size_t *count);
API cuStreamWriteValue32_v2(cu_stream s, cu_ptr to, unsigned value, unsigned flags);
API cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes, cu_stream s);
API cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes, cu_stream s);
API cuMemcpyDtoDAsync_v2(cu_ptr to, cu_ptr from, size_t bytes, cu_stream s);
API cuMemcpyPeerAsync(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes,
                      cu_stream s);
API cuMemsetD32Async(cu_ptr to, unsigned word, size_t count, cu_stream s);
API cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *base, const uint64_t *dims,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int fill);
API cuModuleLoadData(cu_module *out, const void *image);
API cuModuleUnload(cu_module m);
API cuModuleGetGlobal_v2(cu_ptr *out, size_t *size, cu_module m, const char *name);
API cuModuleGetFunction(cu_function *out, cu_module m, const char *name);
API cuFuncGetAttribute(int *out, int which, cu_function f);
API cuFuncSetAttribute(cu_function f, int which, int value);
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, cu_function f, int threads, size_t shared);
API cuLaunchKernel(cu_function f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                   unsigned shared, cu_stream s, void **parameters, void **extra);
API cuStreamBeginCapture_v2(cu_stream s, int mode);
API cuStreamEndCapture(cu_stream s, cu_graph *out);
API cuGraphInstantiateWithFlags(cu_graph_exec *out, cu_graph g, unsigned long long flags);
API cuGraphLaunch(cu_graph_exec g, cu_stream s);
API cuGraphDestroy(cu_graph g);
API cuGraphExecDestroy(cu_graph_exec g);
#endif
