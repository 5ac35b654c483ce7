/* nccl.h: the functions of NCCL that are used, how it is loaded, and how its results become our errors.
 *
 * Nothing of NCCL is included, so that a machine without it can build. Types and numbers are those of NCCL 2.19, the
 * oldest version that has everything that is used here. Later versions accept the configuration structure of 2.19.
 */
#ifndef FCP_LIBRARIES_NCCL_H
#define FCP_LIBRARIES_NCCL_H
#include "runtime/libraries/cuda_driver.h"

typedef struct nccl_comm_ *nccl_comm;
typedef int nccl_result, nccl_type;
enum { NCCL_ID_BYTES = 128 };
typedef struct nccl_id {
    char bytes[NCCL_ID_BYTES];
} nccl_id;

enum {
    NCCL_SUCCESS = 0, NCCL_UNHANDLED_CUDA_ERROR = 1, NCCL_SYSTEM_ERROR = 2, NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7
};
enum { NCCL_INT8 = 0 }; /* ncclDataType_t */

/* ncclConfig_t of 2.19. NCCL reads `size` bytes of it, and takes them for the fields that version `version` had. */
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} nccl_config;
enum { NCCL_OLDEST = 21900 };
#define NCCL_UNDEFINED INT32_MIN
#define NCCL_CONFIG                                                                                                    \
    {                                                                                                                  \
        .size = sizeof(nccl_config), .magic = 0xcafebeef, .version = NCCL_OLDEST, .blocking = NCCL_UNDEFINED,          \
        .cga_cluster_size = NCCL_UNDEFINED, .min_ctas = NCCL_UNDEFINED, .max_ctas = NCCL_UNDEFINED,                    \
        .net_name = NULL, .split_share = NCCL_UNDEFINED                                                                \
    }

/* X(symbol, type of the pointer) */
#define FCP_NCCL_SYMBOLS(X)                                                                                            \
    X(ncclGetVersion, nccl_result (*version)(int *))                                                                   \
    X(ncclGetErrorString, const char *(*error_text)(nccl_result))                                                      \
    X(ncclGetLastError, const char *(*last_error)(nccl_comm))                                                          \
    X(ncclGetUniqueId, nccl_result (*unique_id)(nccl_id *))                                                            \
    X(ncclCommInitRankConfig, nccl_result (*init)(nccl_comm *, int, nccl_id, int, nccl_config *))                      \
    X(ncclCommFinalize, nccl_result (*finalize)(nccl_comm))                                                            \
    X(ncclCommDestroy, nccl_result (*destroy)(nccl_comm))                                                              \
    X(ncclCommAbort, nccl_result (*abort)(nccl_comm))                                                                  \
    X(ncclCommGetAsyncError, nccl_result (*async_error)(nccl_comm, nccl_result *))                                     \
    X(ncclMemAlloc, nccl_result (*allocate)(void **, size_t))                                                          \
    X(ncclMemFree, nccl_result (*release)(void *))                                                                     \
    X(ncclCommRegister, nccl_result (*enroll)(nccl_comm, void *, size_t, void **))                                     \
    X(ncclCommDeregister, nccl_result (*strike)(nccl_comm, void *))                                                    \
    X(ncclGroupStart, nccl_result (*group_start)(void))                                                                \
    X(ncclGroupEnd, nccl_result (*group_end)(void))                                                                    \
    X(ncclSend, nccl_result (*send)(const void *, size_t, nccl_type, int, nccl_comm, cu_stream))                       \
    X(ncclRecv, nccl_result (*receive)(void *, size_t, nccl_type, int, nccl_comm, cu_stream))                          \
    X(ncclAllGather, nccl_result (*all_gather)(const void *, void *, size_t, nccl_type, nccl_comm, cu_stream))

typedef struct fcp_nccl_table {
#define X(name, type) type;
    FCP_NCCL_SYMBOLS(X)
#undef X
} fcp_nccl_table;

typedef struct fcp_nccl {
    fcp_nccl_table call;
    int version; /* 22809 is 2.28.9 */
    char *path;
} fcp_nccl;

/* Loads NCCL; the caller closes it. FCP_E_BACKEND: it was not found, or is older than 2.19; the message says where it
 * was looked for and what to do. */
fcp_code fcp_nccl_open(fcp_nccl **out_nccl, fcp_error *err);
void fcp_nccl_close(fcp_nccl *nccl);

/* Turns a result of NCCL into ours: FCP_OK if it succeeded or, since our communicators do not block, is still in
 * progress; else FCP_E_RUN. The message is `what` and then NCCL's own texts. */
fcp_code fcp_nccl_check(const fcp_nccl *nccl, nccl_result result, nccl_comm comm, fcp_error *err, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
#endif
