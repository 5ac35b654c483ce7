/* compile.c: PTX of a source: NVRTC, loaded when first needed, as the runtime calls it but for a virtual architecture.
 *
 * Gives: compile.h. What was compiled is kept in $KERNELS, else $B/kernels, by the SHA-256 of the source, the target
 *        and NVRTC's version. Cost: half a second a source that is not there.
 */
#include "compile.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/evp.h>

#include "../../runtime/beside.h"
#include "../../runtime/shared_library.h"

typedef struct program *nvrtc_program;
#define SYMBOLS(X)                                                                                                     \
    X(nvrtcVersion, int (*version)(int *, int *))                                                                      \
    X(nvrtcCreateProgram,                                                                                              \
      int (*create)(nvrtc_program *, const char *, const char *, int, const char *const *, const char *const *))       \
    X(nvrtcDestroyProgram, int (*destroy)(nvrtc_program *))                                                            \
    X(nvrtcCompileProgram, int (*compile)(nvrtc_program, int, const char *const *))                                    \
    X(nvrtcGetProgramLogSize, int (*log_size)(nvrtc_program, size_t *))                                                \
    X(nvrtcGetProgramLog, int (*log)(nvrtc_program, char *))                                                           \
    X(nvrtcGetPTXSize, int (*ptx_size)(nvrtc_program, size_t *))                                                       \
    X(nvrtcGetPTX, int (*ptx)(nvrtc_program, char *))
static union {
    struct {
#define X(name, type) type;
        SYMBOLS(X)
#undef X
    } call;
    void (*all[8])(void);
} nvrtc;
static const char *const symbols[] = {
#define X(name, type) #name,
    SYMBOLS(X)
#undef X
};
static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
static const fcp_library library = {"NVRTC", "FCP_NVRTC", names, symbols, sizeof symbols / sizeof *symbols,
                                    "install the CUDA toolkit 12 or later"};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int version[2];

fcp_code ptx_compiler(fcp_error *err) {
    char *path = NULL;
    fcp_code code = FCP_OK;
    pthread_mutex_lock(&lock);
    if (!version[0]) code = fcp_library_load(&library, nvrtc.all, &path, err);
    if (!code && !version[0] && (nvrtc.call.version(&version[0], &version[1]) || version[0] < 12)) {
        version[0] = 0;
        code = fcp_fail(err, FCP_E_BACKEND, "NVRTC in '%s' is older than 12.0", path);
    }
    pthread_mutex_unlock(&lock);
    free(path);
    return code;
}

/* Where a text is kept. */
static void place(const char *source, const char *target, char *path, size_t room) {
    const char *build = getenv("B"), *kernels = getenv("KERNELS");
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 && EVP_DigestUpdate(md, version, sizeof version) == 1 &&
        EVP_DigestUpdate(md, target, strlen(target) + 1) == 1 && EVP_DigestUpdate(md, source, strlen(source)) == 1)
        EVP_DigestFinal_ex(md, hash, &size);
    EVP_MD_CTX_free(md);
    int at = kernels && *kernels ? snprintf(path, room, "%s", kernels)
                                 : snprintf(path, room, "%s/kernels", build && *build ? build : "build");
    if (size < 32 || at < 0 || (size_t)at + 80 > room) {
        *path = 0;
        return;
    }
    mkdir(path, 0700);
    path[at++] = '/';
    for (unsigned i = 0; i < 32; i++) at += snprintf(path + at, room - (size_t)at, "%02x", hash[i]);
    snprintf(path + at, room - (size_t)at, ".ptx");
}

static char *kept(const char *path) {
    FILE *f = *path ? fopen(path, "rbe") : NULL;
    struct stat s;
    char *text = f && !fstat(fileno(f), &s) && s.st_size > 100 ? malloc((size_t)s.st_size + 1) : NULL;
    size_t got = text ? fread(text, 1, (size_t)s.st_size, f) : 0;
    if (text) text[got] = 0;
    if (f) fclose(f);
    if (text && (got != (size_t)s.st_size || strlen(text) != got)) {
        free(text);
        text = NULL;
    }
    return text;
}

static fcp_code by_nvrtc(const char *source, const char *target, char **out_text, fcp_error *err) {
    char arch[64];
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", target);
    const char *options[] = {arch, "--std=c++17"};
    nvrtc_program program = NULL;
    size_t size = 0;
    fcp_code code = FCP_OK;
    char *text = NULL;
    if (nvrtc.call.create(&program, source, "fcpc.cu", 0, NULL, NULL))
        return fcp_fail(err, FCP_E_COMPILE, "NVRTC makes no program");
    if (nvrtc.call.compile(program, 2, options)) {
        char *log = nvrtc.call.log_size(program, &size) ? NULL : malloc(size + 1);
        if (log && nvrtc.call.log(program, log)) *log = 0;
        code = fcp_fail(err, FCP_E_COMPILE, "NVRTC does not compile for %s: %.300s", target, log ? log : "");
        free(log);
    } else if (nvrtc.call.ptx_size(program, &size) || !(text = calloc(size + 1, 1)) || nvrtc.call.ptx(program, text))
        code = fcp_fail(err, FCP_E_COMPILE, "NVRTC has no PTX");
    nvrtc.call.destroy(&program);
    if (code) free(text);
    else *out_text = text;
    return code;
}

fcp_code ptx_compile(const char *source, const char *target, char **out_text, fcp_error *err) {
    char path[600];
    fcp_code code = ptx_compiler(err);
    if (code) return code;
    place(source, target, path, sizeof path);
    if ((*out_text = kept(path))) return FCP_OK;
    code = by_nvrtc(source, target, out_text, err);
    fcp_beside f;
    if (!code && *path && !fcp_beside_open(&f, path)) {
        if (fcp_write_all(f.fd, *out_text, strlen(*out_text))) fcp_beside_abandon(&f);
        else fcp_beside_commit(&f);
    }
    return code;
}
