/* symbols.h: the driver's symbols, as the files of the driver that stands in share them out; green.c has its own. */
#ifndef STANDIN_SYMBOLS_H
#define STANDIN_SYMBOLS_H
#include "parts.h"

#define API cu_result
/* Every call that may fail begins with one of these. */
#define ENTER                                                                                                          \
    do                                                                                                                 \
        if (injected()) return control.fail_with;                                                                      \
    while (0)
#define ENTER_OUTSIDE                                                                                                  \
    do {                                                                                                               \
        ENTER;                                                                                                         \
        if (spoil_capture()) return CAPTURE_UNSUPPORTED;                                                               \
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
#endif
