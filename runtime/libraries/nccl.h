/* nccl.h: NCCL by its symbols, loaded when first needed, and the one place that turns its results into ours. Declared here,
 * not included: the machine that builds need not have it. Types and numbers are NCCL's, as 2.19 has them: the oldest version
 * with everything that is used, and later ones take its configuration as it is. */
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
    NCCL_SUCCESS = 0, NCCL_UNHANDLED_CUDA_ERROR = 1, NCCL_SYSTEM_ERROR = 2, NCCL_INTERNAL_ERROR = 3, NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5, NCCL_REMOTE_ERROR = 6, NCCL_IN_PROGRESS = 7
};
enum { NCCL_INT8 = 0 }; /* ncclDataType_t */

/* ncclConfig_t of 2.19. NCCL reads `size` bytes of it, and of them what version `version` had. */
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

/* symbol, type of the pointer */
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
    int version; /* 22809: 2.28.9 */
    char *path;
} fcp_nccl;

/* Loads NCCL. FCP_E_BACKEND: it is not there, or older than 2.19; the message says what was looked for and what would do. */
fcp_code fcp_nccl_open(fcp_nccl **out_nccl, fcp_error *err);
void fcp_nccl_close(fcp_nccl *nccl);

/* A result of NCCL's as ours: FCP_OK for success and, of a communicator that does not block, for what is still under way;
 * else FCP_E_RUN with NCCL's own texts after `what`. */
fcp_code fcp_nccl_check(const fcp_nccl *nccl, nccl_result result, nccl_comm comm, fcp_error *err, const char *what, ...)
    __attribute__((format(printf, 5, 6)));
#endif
