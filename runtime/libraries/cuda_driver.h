/* cuda_driver.h: the functions of the CUDA driver that are used, how it is loaded, and how its results become our
 * errors.
 *
 * Nothing of CUDA is included, so that a machine without it can build. Types and numbers are those of the driver;
 * tests/headers compares them with CUDA's own headers where those are installed.
 */
#ifndef FCP_LIBRARIES_CUDA_DRIVER_H
#define FCP_LIBRARIES_CUDA_DRIVER_H
#include "runtime/fcp.h"

typedef uint64_t cu_ptr;
typedef struct cu_context_ *cu_context;
typedef struct cu_stream_ *cu_stream;
typedef struct cu_event_ *cu_event;
typedef struct cu_module_ *cu_module;
typedef struct cu_function_ *cu_function;
typedef struct cu_graph_ *cu_graph;
typedef struct cu_graph_exec_ *cu_graph_exec;
typedef struct cu_green_ *cu_green;
typedef struct cu_resource_text_ *cu_resource_text;
typedef int cu_device, cu_result;
/* These are enumerations in CUDA's headers. Each has its own name here, so that tests/headers can compare each with
 * CUDA's. */
typedef int cu_device_attribute, cu_function_attribute, cu_pointer_attribute, cu_capture_mode, cu_capture_status,
    cu_resource_type;
typedef int cu_map_type, cu_map_interleave, cu_map_swizzle, cu_map_promotion, cu_map_fill;
typedef void cu_map; /* CUtensorMap: 128 bytes, aligned to 64 */

enum {
    CU_SUCCESS = 0,
    CU_ERROR_INVALID_VALUE = 1,
    CU_ERROR_OUT_OF_MEMORY = 2,
    CU_ERROR_INVALID_IMAGE = 200,
    CU_ERROR_NO_BINARY = 209,
    CU_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
    CU_ERROR_UNSUPPORTED_PTX = 222,
    CU_ERROR_NOT_READY = 600,
    CU_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CU_ERROR_TOO_MANY_PEERS = 711
};
enum { CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2, CU_EVENT_RECORD_EXTERNAL = 1,
      CU_EVENT_WAIT_EXTERNAL = 1, CU_CAPTURE_THREAD_LOCAL = 1 };
/* Stream handles that mean the default streams of whichever context is current. */
enum { CU_DEFAULT_LEGACY = 1, CU_DEFAULT_PER_THREAD = 2 };
enum cu_device_attribute {
    CU_SHARED_MEMORY_PER_SM = 81,
    CU_SHARED_MEMORY_OPTIN = 97,
    CU_MULTIPROCESSORS = 16,
    CU_CAPABILITY_MAJOR = 75,
    CU_CAPABILITY_MINOR = 76
};
enum cu_function_attribute { CU_FUNC_MAX_THREADS = 0, CU_FUNC_SHARED = 1, CU_FUNC_LOCAL = 3, CU_FUNC_REGISTERS = 4,
                            CU_FUNC_MAX_DYNAMIC_SHARED = 8 };
enum { CU_RESOURCE_SM = 1, CU_GREEN_DEFAULT_STREAM = 1 };
/* CUdevResource: a set of multiprocessors; kernels of a green context run on such a set and nowhere else. */
typedef struct cu_resource {
    unsigned type;
    unsigned char padding[92];
    unsigned count, least, alignment;
    unsigned char more[28];
    struct cu_resource *next; /* since CUDA 13.1; older drivers ignore it, so NULL is right for both */
} cu_resource;
enum { CU_HOST_PORTABLE = 1, CU_HOST_DEVICEMAP = 2 };
/* For tensor maps: the types of numbers, the swizzle by 128 bytes, and how many bytes L2 fetches at once. */
enum { CU_TENSOR_FP16 = 6, CU_TENSOR_BF16 = 9, CU_TENSOR_SWIZZLE_128 = 3, CU_TENSOR_L2_256 = 3 };
enum { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };
enum cu_pointer_attribute { CU_POINTER_CONTEXT = 1, CU_POINTER_MEMORY_TYPE = 2, CU_POINTER_DEVICE = 9 };

/* X(symbol, type of the pointer) */
#define FCP_CUDA_SYMBOLS(X)                                                                                            \
    X(cuInit, cu_result (*init)(unsigned))                                                                             \
    X(cuDriverGetVersion, cu_result (*version)(int *))                                                                 \
    X(cuGetErrorName, cu_result (*error_name)(cu_result, const char **))                                               \
    X(cuGetErrorString, cu_result (*error_text)(cu_result, const char **))                                             \
    X(cuDeviceGetCount, cu_result (*device_count)(int *))                                                              \
    X(cuDeviceGet, cu_result (*device_get)(cu_device *, int))                                                          \
    X(cuDeviceGetName, cu_result (*device_name)(char *, int, cu_device))                                               \
    X(cuDeviceGetAttribute, cu_result (*device_attribute)(int *, cu_device_attribute, cu_device))                      \
    X(cuDevicePrimaryCtxRetain, cu_result (*context_retain)(cu_context *, cu_device))                                  \
    X(cuDevicePrimaryCtxRelease_v2, cu_result (*context_release)(cu_device))                                           \
    X(cuCtxSetCurrent, cu_result (*context_set)(cu_context))                                                           \
    X(cuCtxGetCurrent, cu_result (*context_get)(cu_context *))                                                         \
    X(cuCtxGetStreamPriorityRange, cu_result (*priorities)(int *, int *))                                              \
    X(cuDeviceCanAccessPeer, cu_result (*can_peer)(int *, cu_device, cu_device))                                       \
    X(cuCtxEnablePeerAccess, cu_result (*enable_peer)(cu_context, unsigned))                                           \
    X(cuMemGetInfo_v2, cu_result (*memory_info)(size_t *, size_t *))                                                   \
    X(cuMemAlloc_v2, cu_result (*allocate)(cu_ptr *, size_t))                                                          \
    X(cuMemFree_v2, cu_result (*release)(cu_ptr))                                                                      \
    X(cuMemHostAlloc, cu_result (*allocate_host)(void **, size_t, unsigned))                                           \
    X(cuMemFreeHost, cu_result (*release_host)(void *))                                                                \
    X(cuMemHostGetDevicePointer_v2, cu_result (*device_pointer)(cu_ptr *, void *, unsigned))                           \
    X(cuMemGetAddressRange_v2, cu_result (*address_range)(cu_ptr *, size_t *, cu_ptr))                                 \
    X(cuPointerGetAttribute, cu_result (*pointer_attribute)(void *, cu_pointer_attribute, cu_ptr))                     \
    X(cuMemcpyHtoDAsync_v2, cu_result (*copy_in)(cu_ptr, const void *, size_t, cu_stream))                             \
    X(cuMemcpyDtoHAsync_v2, cu_result (*copy_out)(void *, cu_ptr, size_t, cu_stream))                                  \
    X(cuMemcpyDtoDAsync_v2, cu_result (*copy)(cu_ptr, cu_ptr, size_t, cu_stream))                                      \
    X(cuMemcpyPeerAsync, cu_result (*copy_peer)(cu_ptr, cu_context, cu_ptr, cu_context, size_t, cu_stream))            \
    X(cuMemsetD32Async, cu_result (*fill)(cu_ptr, unsigned, size_t, cu_stream))                                        \
    X(cuStreamWriteValue32_v2, cu_result (*write_word)(cu_stream, cu_ptr, unsigned, unsigned))                         \
    X(cuStreamCreateWithPriority, cu_result (*stream_create)(cu_stream *, unsigned, int))                              \
    X(cuStreamDestroy_v2, cu_result (*stream_destroy)(cu_stream))                                                      \
    X(cuStreamSynchronize, cu_result (*stream_wait)(cu_stream))                                                        \
    X(cuStreamQuery, cu_result (*stream_query)(cu_stream))                                                             \
    X(cuStreamGetCtx, cu_result (*stream_context)(cu_stream, cu_context *))                                            \
    X(cuStreamIsCapturing, cu_result (*stream_capturing)(cu_stream, cu_capture_status *))                              \
    X(cuStreamWaitEvent, cu_result (*stream_wait_event)(cu_stream, cu_event, unsigned))                                \
    X(cuEventCreate, cu_result (*event_create)(cu_event *, unsigned))                                                  \
    X(cuEventDestroy_v2, cu_result (*event_destroy)(cu_event))                                                         \
    X(cuEventRecord, cu_result (*event_record)(cu_event, cu_stream))                                                   \
    X(cuEventRecordWithFlags, cu_result (*event_record_flags)(cu_event, cu_stream, unsigned))                          \
    X(cuEventQuery, cu_result (*event_query)(cu_event))                                                                \
    X(cuTensorMapEncodeTiled,                                                                                          \
      cu_result (*tensor_map)(cu_map *, cu_map_type, unsigned, void *, const uint64_t *, const uint64_t *,             \
                              const unsigned *, const unsigned *, cu_map_interleave, cu_map_swizzle, cu_map_promotion, \
                              cu_map_fill))                                                                            \
    X(cuModuleLoadData, cu_result (*module_load)(cu_module *, const void *))                                           \
    X(cuModuleUnload, cu_result (*module_unload)(cu_module))                                                           \
    X(cuModuleGetFunction, cu_result (*module_function)(cu_function *, cu_module, const char *))                       \
    X(cuFuncGetAttribute, cu_result (*function_attribute)(int *, cu_function_attribute, cu_function))                  \
    X(cuFuncSetAttribute, cu_result (*function_set)(cu_function, cu_function_attribute, int))                          \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cu_result (*occupancy)(int *, cu_function, int, size_t))            \
    X(cuLaunchKernel, cu_result (*launch)(cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                                          unsigned, cu_stream, void **, void **))                                      \
    X(cuStreamBeginCapture_v2, cu_result (*capture_begin)(cu_stream, cu_capture_mode))                                 \
    X(cuStreamEndCapture, cu_result (*capture_end)(cu_stream, cu_graph *))                                             \
    X(cuGraphInstantiateWithFlags, cu_result (*graph_instantiate)(cu_graph_exec *, cu_graph, unsigned long long))      \
    X(cuGraphLaunch, cu_result (*graph_launch)(cu_graph_exec, cu_stream))                                              \
    X(cuGraphDestroy, cu_result (*graph_destroy)(cu_graph))                                                            \
    X(cuGraphExecDestroy, cu_result (*graph_exec_destroy)(cu_graph_exec))

/* The same for functions that came with this version of CUDA. In older drivers their pointers are NULL. */
enum { FCP_CUDA_OPTIONAL_SINCE = 12050 };
#define FCP_CUDA_OPTIONAL(X)                                                                                           \
    X(cuDeviceGetDevResource, cu_result (*device_resource)(cu_device, cu_resource *, cu_resource_type))                \
    X(cuDevSmResourceSplitByCount, cu_result (*resource_split)(cu_resource *, unsigned *, const cu_resource *,         \
                                                               cu_resource *, unsigned, unsigned))                     \
    X(cuDevResourceGenerateDesc, cu_result (*resource_text)(cu_resource_text *, cu_resource *, unsigned))              \
    X(cuGreenCtxCreate, cu_result (*green_create)(cu_green *, cu_resource_text, cu_device, unsigned))                  \
    X(cuGreenCtxDestroy, cu_result (*green_destroy)(cu_green))                                                         \
    X(cuGreenCtxStreamCreate, cu_result (*green_stream)(cu_stream *, cu_green, unsigned, int))

/* The same for a function that older drivers have under its first name, without the _v2. */
#define FCP_CUDA_RENAMED(X) X(cuEventElapsedTime_v2, cu_result (*event_elapsed)(float *, cu_event, cu_event))

typedef struct fcp_cuda_table {
#define X(name, type) type;
    FCP_CUDA_SYMBOLS(X)
    FCP_CUDA_OPTIONAL(X)
    FCP_CUDA_RENAMED(X)
    cu_result (*event_elapsed_first)(float *, cu_event, cu_event); /* by its first name */
#undef X
} fcp_cuda_table;

typedef struct fcp_cuda {
    fcp_cuda_table call;
    int version; /* 12040 is 12.4 */
    int devices;
    char *path;
} fcp_cuda;

/* Loads and initialises the driver, and counts its devices. The caller closes it. FCP_E_BACKEND: there is no driver,
 * it is older than 12.0, or it sees no device; the message says where it was looked for and what to do. */
fcp_code fcp_cuda_open(fcp_cuda **out_cuda, fcp_error *err);
void fcp_cuda_close(fcp_cuda *cuda);

/* Turns a result of the driver into ours: FCP_OK; FCP_E_NO_MEMORY if the device has too little memory; else
 * FCP_E_RUN. The message is `what` ("cannot copy 64 bytes to the device") and then the driver's name and text of the
 * error. */
fcp_code fcp_cuda_check(const fcp_cuda *cuda, cu_result result, fcp_error *err, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
#endif
