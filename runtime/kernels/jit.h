/* jit.h: CUDA source to a cubin, from the disk cache where it was compiled before.
 *
 * The cache is a folder of our own, mode 0700, no symbolic link: $FCP_CACHE, else fcpc in $XDG_CACHE_HOME or ~/.cache.
 * Anything else about it means no disk cache, and a warning that says why; never a shared temporary folder. An entry is
 * named by the SHA-256 of the source, every option, the architecture, NVRTC's version and the hash of its file; it
 * repeats that key, its length and its digest, and an entry that does not hold is compiled anew. Entries are written
 * beside their place and renamed.
 */
#ifndef FCP_KERNELS_JIT_H
#define FCP_KERNELS_JIT_H
#include "runtime/kernels/nvrtc.h"

typedef struct fcp_jit fcp_jit;

/* Never fails for want of a cache. `folder` NULL: as above. FCP_E_NO_MEMORY. */
fcp_code fcp_jit_open(const char *folder, fcp_jit **out_jit, fcp_error *err);
void fcp_jit_close(fcp_jit *jit);
/* Why there is no disk cache, or what went wrong in writing to it; "" if nothing. */
const char *fcp_jit_warning(const fcp_jit *jit);

/* A cubin of `source`, as fcp_nvrtc_compile; *out_cached: it came from the disk (its log is then empty). NVRTC is loaded
 * only where something is compiled, or the cache does not know its file. FCP_E_BACKEND, FCP_E_ARCH, FCP_E_COMPILE,
 * FCP_E_NO_MEMORY. */
fcp_code fcp_jit_compile(fcp_jit *jit, const char *name, const char *source, const char *arch, const char *const *options,
                         fcp_cubin *out, bool *out_cached, fcp_error *err);

/* One of several sources, and what comes of it. */
typedef struct fcp_jit_part {
    const char *source;
    fcp_cubin cubin; /* the caller's to free, after an error too */
    bool cached;
} fcp_jit_part;
/* The same for several sources: those that the disk cache does not have are compiled side by side, each in a thread; where no
 * thread can be made, in turn. The error is that of the first source, in their order, that has one. */
fcp_code fcp_jit_compile_parts(fcp_jit *jit, const char *name, const char *arch, const char *const *options,
                               fcp_jit_part *parts, uint32_t count, fcp_error *err);
#endif
