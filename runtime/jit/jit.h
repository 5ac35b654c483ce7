/* jit.h: turns CUDA source into a cubin, and keeps cubins on disk so that each is compiled once.
 *
 * The disk cache is the folder $FCP_CACHE; without that variable, the folder fcpc in $XDG_CACHE_HOME or in ~/.cache. A
 * cubin runs on the GPU, so nobody else may be able to put one there: the folder must be owned by you, have mode 0700
 * and not be a symbolic link. If it is anything else, kernels are compiled without a cache and fcp_jit_warning says
 * why. A shared temporary folder is never used.
 *
 * An entry's name is a SHA-256 of everything its cubin depends on: the source, its name, every option, the
 * architecture, NVRTC's version and the hash of NVRTC's file. The entry repeats that key and holds the cubin's length
 * and digest; if one of them is wrong, the source is compiled again. Entries are written under a temporary name and
 * renamed.
 */
#ifndef FCP_JIT_JIT_H
#define FCP_JIT_JIT_H
#include "runtime/jit/nvrtc.h"

typedef struct fcp_jit fcp_jit;

/* Opens the cache in `folder`, or in the folder named above if `folder` is NULL. Having no cache is a warning, no
 * error. The caller closes it. Errors: FCP_E_NO_MEMORY. */
fcp_code fcp_jit_open(const char *folder, fcp_jit **out_jit, fcp_error *err);
void fcp_jit_close(fcp_jit *jit);
/* Says which driver will load the cubins, by the version of CUDA that it is for (12040 is 12.4), before anything is
 * compiled: that decides which NVRTC compiles (nvrtc.h). Without this call the newest does. */
void fcp_jit_set_driver(fcp_jit *jit, int version);
/* The driver refused a cubin: from now on another major version of NVRTC compiles, if one is installed. False: none is,
 * and *err says which was refused. */
bool fcp_jit_refused(fcp_jit *jit, fcp_error *err);
/* The folder of the disk cache; NULL: there is none. Valid until the close. */
const char *fcp_jit_folder(const fcp_jit *jit);
/* Why there is no disk cache, or why something could not be written to it; "" if all is well. Valid until the close. */
const char *fcp_jit_warning(const fcp_jit *jit);

/* Gives the cubin of `source`, from the disk or from NVRTC; from the disk *out_cached is true and the log empty. The
 * other parameters are those of fcp_nvrtc_compile. NVRTC is loaded only if something is compiled, or if the cache does
 * not know the hash of NVRTC's file yet. Errors: FCP_E_BACKEND, FCP_E_ARCH, FCP_E_COMPILE, FCP_E_NO_MEMORY. The caller
 * frees *out with fcp_cubin_free, also after an error. */
fcp_code fcp_jit_compile(fcp_jit *jit, const char *name, const char *source, const char *arch,
                         const char *const *options, fcp_cubin *out, bool *out_cached, fcp_error *err);

/* One of several sources, and the cubin that comes of it. */
typedef struct fcp_jit_part {
    const char *source;
    fcp_cubin cubin; /* the caller frees it with fcp_cubin_free, also after an error */
    bool cached;
} fcp_jit_part;
/* As fcp_jit_compile, for `count` sources at once. Those that the cache does not have are compiled side by side, a
 * thread each. If several fail, the error is that of the first in their order. */
fcp_code fcp_jit_compile_parts(fcp_jit *jit, const char *name, const char *arch, const char *const *options,
                               fcp_jit_part *parts, uint32_t count, fcp_error *err);
#endif
