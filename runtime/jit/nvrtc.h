/* nvrtc.h: compiles CUDA source to a cubin with NVRTC, which is loaded when it is first needed. No GPU is needed. */
#ifndef FCP_JIT_NVRTC_H
#define FCP_JIT_NVRTC_H
#include "runtime/fcp.h"

typedef struct fcp_nvrtc {
    int major, minor;
    char *path; /* of the library's file */
    const struct fcp_nvrtc_table *table;
} fcp_nvrtc;

/* Which NVRTC is wanted. A driver does not load what a later major version of NVRTC compiles: drivers before 580, which
 * are for CUDA 12, refuse the cubins of NVRTC 13, but load those of any NVRTC 12. */
typedef struct fcp_nvrtc_choice {
    unsigned cuda;    /* the major version of CUDA that the driver is for; 0: no driver will load the cubin */
    unsigned refused; /* fcp_nvrtc_bit of each version that is not wanted, since the driver has refused its cubins */
} fcp_nvrtc_choice;
static inline unsigned fcp_nvrtc_bit(int major) { return 1u << (major < 31 ? major : 31); }
/* Loads NVRTC; the caller closes it. The newest comes first, but for a driver for CUDA 12 that of CUDA 12. If it is not
 * installed, another one is loaded all the same: the driver may take its cubins. choice NULL: the newest.
 * FCP_E_BACKEND: none is installed, or the one that is there is older than 12.0. */
fcp_code fcp_nvrtc_open(const fcp_nvrtc_choice *choice, fcp_nvrtc **out, fcp_error *err);
void fcp_nvrtc_close(fcp_nvrtc *n);

/* What one kernel takes, as ptxas says. Registers and barriers are counts, the others bytes; `shared` is static shared
 * memory. */
typedef struct fcp_kernel_cost {
    char name[64];
    uint32_t registers, spill_stores, spill_loads, stack, shared, barriers;
} fcp_kernel_cost;

enum { FCP_KERNELS_MAX = 16 };
typedef struct fcp_cubin {
    void *bytes; /* malloc'd */
    size_t size;
    fcp_kernel_cost kernels[FCP_KERNELS_MAX];
    uint32_t kernel_count;
    uint32_t notes;  /* how many notes C75xx ptxas wrote: it serialised a wgmma, or ignored a setmaxnreg */
    char *log;       /* malloc'd; "" if empty */
} fcp_cubin;

/* Compiles a source. `name` stands in NVRTC's messages; `arch` is "sm_80", "sm_90a", ...; `options` are further
 * options, ended by NULL, or NULL. On FCP_E_COMPILE the message has the first error of the log, and out->log has all
 * of it. After success and after any error the caller ends *out with fcp_cubin_free. */
fcp_code fcp_nvrtc_compile(const fcp_nvrtc *n, const char *name, const char *source, const char *arch,
                           const char *const *options, fcp_cubin *out, fcp_error *err);
void fcp_cubin_free(fcp_cubin *cubin);

/* Checks that kernels can be compiled for an architecture: it must be sm_80 or later; a suffix `a` or `f` is allowed.
 * FCP_E_ARCH: it is not. */
fcp_code fcp_arch_check(const char *arch, fcp_error *err);
#endif
