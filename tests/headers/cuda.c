/* cuda.c: compares our declarations of the CUDA driver (runtime/libraries/cuda_driver.h, and those of tests) with
 * CUDA's own header. It compiles only if both say the same. Run, it prints the symbols that we ask the driver for. */
#define CU_STREAM_NON_BLOCKING OUR_NON_BLOCKING /* what both headers call so */
#define CU_EVENT_DISABLE_TIMING OUR_DISABLE_TIMING
#define CU_EVENT_RECORD_EXTERNAL OUR_RECORD_EXTERNAL
#define CU_EVENT_WAIT_EXTERNAL OUR_WAIT_EXTERNAL
#include "codegen/kernels/abi.h"
#include "runtime/libraries/cuda_driver.h"
#include "tests/gpu/gpu.h"
#include "tests/machines/standin/errors.h"
#undef CU_STREAM_NON_BLOCKING
#undef CU_EVENT_DISABLE_TIMING
#undef CU_EVENT_RECORD_EXTERNAL
#undef CU_EVENT_WAIT_EXTERNAL

#include <cuda.h>

#include "tests/headers/same.h"

SAME_NUMBER(CU_SUCCESS, CUDA_SUCCESS);
SAME_NUMBER(CU_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(CU_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(CU_ERROR_NOT_READY, CUDA_ERROR_NOT_READY);
SAME_NUMBER(CU_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME_NUMBER(CU_ERROR_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
SAME_NUMBER(CU_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME_NUMBER(CU_ERROR_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_NUMBER(CU_ERROR_UNSUPPORTED_PTX, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME_NUMBER(CU_ERROR_TOO_MANY_PEERS, CUDA_ERROR_TOO_MANY_PEERS);
#define X(ours, number, theirs) SAME_NUMBER(ours, theirs);
DRIVER_ERRORS(X)
#undef X
SAME_NUMBER(OUR_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(OUR_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(OUR_RECORD_EXTERNAL, CU_EVENT_RECORD_EXTERNAL);
SAME_NUMBER(OUR_WAIT_EXTERNAL, CU_EVENT_WAIT_EXTERNAL);
SAME_NUMBER(CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_NUMBER(CU_SHARED_MEMORY_PER_SM, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME_NUMBER(CU_SHARED_MEMORY_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_NUMBER(CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_NUMBER(CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_NUMBER(CU_FUNC_MAX_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_NUMBER(CU_FUNC_SHARED, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_NUMBER(CU_FUNC_LOCAL, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME_NUMBER(CU_FUNC_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_NUMBER(CU_FUNC_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_NUMBER(CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME_NUMBER(CU_HOST_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);
SAME_NUMBER(CU_TENSOR_FP16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME_NUMBER(CU_TENSOR_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME_NUMBER(CU_TENSOR_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME_NUMBER(CU_TENSOR_L2_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME_NUMBER(0, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME_NUMBER(0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
SAME_NUMBER(0, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_NUMBER(CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME_NUMBER(CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME_NUMBER(CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
SAME_NUMBER(CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME_NUMBER(CU_POINTER_DEVICE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);

SAME_TYPE(unsigned, CUmemorytype); /* what the driver writes for CU_POINTER_MEMORY_TYPE */
SAME_TYPE(cu_ptr, CUdeviceptr);
SAME_TYPE(cu_context, CUcontext);
SAME_TYPE(cu_stream, CUstream);
SAME_TYPE(cu_event, CUevent);
SAME_TYPE(cu_module, CUmodule);
SAME_TYPE(cu_function, CUfunction);
SAME_TYPE(cu_graph, CUgraph);
SAME_TYPE(cu_graph_exec, CUgraphExec);
SAME_TYPE(gpu_node, CUgraphNode);
SAME_TYPE(cu_device, CUdevice);
SAME_TYPE(cu_result, CUresult);
SAME_TYPE(cu_device_attribute, CUdevice_attribute);
SAME_TYPE(cu_function_attribute, CUfunction_attribute);
SAME_TYPE(cu_pointer_attribute, CUpointer_attribute);
SAME_TYPE(cu_capture_mode, CUstreamCaptureMode);
SAME_TYPE(cu_capture_status, CUstreamCaptureStatus);
SAME_TYPE(cu_map_type, CUtensorMapDataType);
SAME_TYPE(cu_map_interleave, CUtensorMapInterleave);
SAME_TYPE(cu_map_swizzle, CUtensorMapSwizzle);
SAME_TYPE(cu_map_promotion, CUtensorMapL2promotion);
SAME_TYPE(cu_map_fill, CUtensorMapFloatOOBfill);
/* What kernels are given of it. From CUDA 13 on the header has it at a multiple of 128; cuTensorMapEncodeTiled and the
 * copy engine want 64, as the header before that. */
_Static_assert(sizeof(fk_map) == sizeof(CUtensorMap) && _Alignof(fk_map) >= 64, "fk_map is no CUtensorMap");

#define cu_result CUresult
#define cu_ptr CUdeviceptr
#define cu_context CUcontext
#define cu_stream CUstream
#define cu_event CUevent
#define cu_module CUmodule
#define cu_function CUfunction
#define cu_graph CUgraph
#define cu_graph_exec CUgraphExec
#define gpu_node CUgraphNode
#define cu_device CUdevice
#define cu_device_attribute CUdevice_attribute
#define cu_function_attribute CUfunction_attribute
#define cu_pointer_attribute CUpointer_attribute
#define cu_capture_mode CUstreamCaptureMode
#define cu_capture_status CUstreamCaptureStatus
#define cu_map CUtensorMap
#define cu_map_type CUtensorMapDataType
#define cu_map_interleave CUtensorMapInterleave
#define cu_map_swizzle CUtensorMapSwizzle
#define cu_map_promotion CUtensorMapL2promotion
#define cu_map_fill CUtensorMapFloatOOBfill

FCP_CUDA_SYMBOLS(SAME_FUNCTION)
FCP_CUDA_RENAMED(SAME_FUNCTION)
GPU_SYMBOLS(SAME_FUNCTION)

#if CUDA_VERSION >= 12040 /* green contexts */
SAME_NUMBER(CU_RESOURCE_SM, CU_DEV_RESOURCE_TYPE_SM);
SAME_NUMBER(CU_GREEN_DEFAULT_STREAM, CU_GREEN_CTX_DEFAULT_STREAM);
SAME_LAYOUT(cu_resource, CUdevResource);
SAME_FIELD(cu_resource, type, CUdevResource, type);
SAME_FIELD(cu_resource, count, CUdevResource, sm.smCount);
SAME_FIELD(cu_resource, least, CUdevResource, sm.minSmPartitionSize);
SAME_FIELD(cu_resource, alignment, CUdevResource, sm.smCoscheduledAlignment);
#if CUDA_VERSION >= 13010
SAME_FIELD(cu_resource, next, CUdevResource, nextResource);
#endif
SAME_TYPE(cu_green, CUgreenCtx);
SAME_TYPE(cu_resource_text, CUdevResourceDesc);
SAME_TYPE(cu_resource_type, CUdevResourceType);
#define cu_green CUgreenCtx
#define cu_resource CUdevResource
#define cu_resource_text CUdevResourceDesc
#define cu_resource_type CUdevResourceType
FCP_CUDA_OPTIONAL(SAME_FUNCTION)
#endif

int main(void) {
    static const asked_name required[] = {FCP_CUDA_SYMBOLS(ASKED_NAME)}, optional[] = {FCP_CUDA_OPTIONAL(ASKED_NAME)},
                            renamed[] = {FCP_CUDA_RENAMED(ASKED_NAME)}, tests[] = {GPU_SYMBOLS(ASKED_NAME)};
    int wrong = 0;
    SAME_HANDLE(wrong, CU_DEFAULT_LEGACY, CU_STREAM_LEGACY);
    SAME_HANDLE(wrong, CU_DEFAULT_PER_THREAD, CU_STREAM_PER_THREAD);
    wrong += same_names("required", required, sizeof required / sizeof *required);
    wrong += same_names("optional", optional, sizeof optional / sizeof *optional);
    wrong += same_names("renamed", renamed, sizeof renamed / sizeof *renamed);
    wrong += same_names("tests", tests, sizeof tests / sizeof *tests);
    return wrong != 0;
}
