/* nccl.c: compares runtime/libraries/nccl.h with NCCL's own header, as cuda.c does for CUDA. Our configuration
 * structure is that of NCCL 2.19; those of later versions begin with the same members. */
#define CU_STREAM_NON_BLOCKING OUR_NON_BLOCKING /* what CUDA's header calls so as well */
#define CU_EVENT_DISABLE_TIMING OUR_DISABLE_TIMING
#include "runtime/libraries/nccl.h"
#undef CU_STREAM_NON_BLOCKING
#undef CU_EVENT_DISABLE_TIMING

#include <nccl.h>

#include "tests/headers/same.h"

SAME_NUMBER(NCCL_SUCCESS, ncclSuccess);
SAME_NUMBER(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
SAME_NUMBER(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME_NUMBER(NCCL_INTERNAL_ERROR, ncclInternalError);
SAME_NUMBER(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME_NUMBER(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME_NUMBER(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME_NUMBER(NCCL_IN_PROGRESS, ncclInProgress);
SAME_NUMBER(NCCL_INT8, ncclInt8);
SAME_NUMBER(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME_NUMBER(FCP_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
SAME_NUMBER(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
SAME_NUMBER(NCCL_OLDEST, NCCL_VERSION(2, 19, 0));
_Static_assert(NCCL_VERSION_CODE >= NCCL_OLDEST, "the header is older than what is asked for");

SAME_TYPE(nccl_comm, ncclComm_t);
SAME_TYPE(nccl_result, ncclResult_t);
SAME_TYPE(nccl_type, ncclDataType_t);
SAME_TYPE(nccl_id, ncclUniqueId);
SAME_TYPE(cu_stream, cudaStream_t);
SAME_FIELD(nccl_config, size, ncclConfig_t, size);
SAME_FIELD(nccl_config, magic, ncclConfig_t, magic);
SAME_FIELD(nccl_config, version, ncclConfig_t, version);
SAME_FIELD(nccl_config, blocking, ncclConfig_t, blocking);
SAME_FIELD(nccl_config, cga_cluster_size, ncclConfig_t, cgaClusterSize);
SAME_FIELD(nccl_config, min_ctas, ncclConfig_t, minCTAs);
SAME_FIELD(nccl_config, max_ctas, ncclConfig_t, maxCTAs);
SAME_FIELD(nccl_config, net_name, ncclConfig_t, netName);
SAME_FIELD(nccl_config, split_share, ncclConfig_t, splitShare);
_Static_assert(sizeof(nccl_config) <= sizeof(ncclConfig_t), "no later configuration is shorter");

/* A configuration in which nothing is asked for is the header's, as far as ours goes; its size and version are our
 * own. */
static const nccl_config ours = NCCL_CONFIG;
static const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;

#define nccl_comm ncclComm_t
#define nccl_result ncclResult_t
#define nccl_type ncclDataType_t
#define nccl_id ncclUniqueId
#define nccl_config ncclConfig_t
#define cu_stream cudaStream_t
FCP_NCCL_SYMBOLS(SAME_FUNCTION)

int main(void) {
    static const asked_name required[] = {FCP_NCCL_SYMBOLS(ASKED_NAME)};
    int wrong = same_names("required", required, sizeof required / sizeof *required);
    bool same = ours.magic == theirs.magic && ours.blocking == theirs.blocking &&
                ours.cga_cluster_size == theirs.cgaClusterSize && ours.min_ctas == theirs.minCTAs &&
                ours.max_ctas == theirs.maxCTAs && ours.net_name == theirs.netName &&
                ours.split_share == theirs.splitShare && ours.size == sizeof ours && ours.version == NCCL_OLDEST;
    if (!same) fprintf(stderr, "NCCL_CONFIG does not begin as NCCL_CONFIG_INITIALIZER\n");
    return wrong || !same;
}
