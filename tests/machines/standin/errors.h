/* errors.h: errors of the CUDA driver that the stand-in returns and tests expect, beside those in
 * runtime/libraries/cuda_driver.h: our name for each, its number, and the driver's name. tests/headers compares them
 * with CUDA's header.
 */
#ifndef STANDIN_ERRORS_H
#define STANDIN_ERRORS_H

#define DRIVER_ERRORS(X)                                                                                               \
    X(INVALID_CONTEXT, 201, CUDA_ERROR_INVALID_CONTEXT)                                                                \
    X(NO_BINARY, 209, CUDA_ERROR_NO_BINARY_FOR_GPU)                                                                    \
    X(INVALID_HANDLE, 400, CUDA_ERROR_INVALID_HANDLE)                                                                  \
    X(NOT_FOUND, 500, CUDA_ERROR_NOT_FOUND)                                                                            \
    X(LAUNCH_FAILED, 719, CUDA_ERROR_LAUNCH_FAILED)                                                                    \
    X(NOT_SUPPORTED, 801, CUDA_ERROR_NOT_SUPPORTED)                                                                    \
    X(CAPTURE_UNSUPPORTED, 900, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)                                                 \
    X(CAPTURE_INVALIDATED, 901, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)                                                 \
    X(CAPTURE_UNJOINED, 904, CUDA_ERROR_STREAM_CAPTURE_UNJOINED)                                                       \
    X(CAPTURE_ISOLATION, 905, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)                                                     \
    X(CAPTURED_EVENT, 907, CUDA_ERROR_CAPTURED_EVENT)

enum {
#define X(ours, number, theirs) ours = number,
    DRIVER_ERRORS(X)
#undef X
};

/* An initialiser of {number, "name"} for every error that has a name here, those of the runtime included. */
#define DRIVER_ERROR_NAMES                                                                                             \
    {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {600, "CUDA_ERROR_NOT_READY"},                   \
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"}, DRIVER_ERRORS(DRIVER_ERROR_NAME)
#define DRIVER_ERROR_NAME(ours, number, theirs) {number, #theirs},
#endif
