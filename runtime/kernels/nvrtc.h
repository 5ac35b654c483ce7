/* nvrtc.h: CUDA source to a cubin, by NVRTC, which is loaded when first needed. No GPU is needed. */
#ifndef FCP_KERNELS_NVRTC_H
#define FCP_KERNELS_NVRTC_H
#include "runtime/fcp.h"

typedef struct fcp_nvrtc {
    int major, minor;
    char *path; /* of the library's file */
    const struct fcp_nvrtc_table *table;
} fcp_nvrtc;

/* Loads NVRTC. FCP_E_BACKEND: not there, or older than 12.0. The caller closes it. */
fcp_code fcp_nvrtc_open(fcp_nvrtc **out, fcp_error *err);
void fcp_nvrtc_close(fcp_nvrtc *n);

/* What ptxas says of one kernel. Bytes; `shared` is the static part. */
typedef struct fcp_kernel_cost {
    char name[64];
    uint32_t registers, spill_stores, spill_loads, stack, shared, barriers;
} fcp_kernel_cost;

enum { FCP_KERNELS_MAX = 12 };
typedef struct fcp_cubin {
    void *bytes; /* malloc'd */
    size_t size;
    fcp_kernel_cost kernels[FCP_KERNELS_MAX];
    uint32_t kernel_count;
    uint32_t notes;  /* ptxas notes C75xx: wgmma serialised, setmaxnreg ignored */
    char *log;       /* malloc'd; "" if empty */
} fcp_cubin;

/* Compiles. `arch`: "sm_80", "sm_90a", ...; `options`: further ones, NULL-terminated (may be NULL). On FCP_E_COMPILE the
 * message has the log's first error, and out->log all of it. In any case
 * fcp_cubin_free ends *out. */
fcp_code fcp_nvrtc_compile(const fcp_nvrtc *n, const char *name, const char *source, const char *arch,
                           const char *const *options, fcp_cubin *out, fcp_error *err);
void fcp_cubin_free(fcp_cubin *cubin);

/* Is it an architecture we compile for: sm_80 or later, an `a` or `f` suffix allowed? FCP_E_ARCH otherwise. */
fcp_code fcp_arch_check(const char *arch, fcp_error *err);
#endif
