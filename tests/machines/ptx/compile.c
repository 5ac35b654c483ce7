/* compile.c: compiles a source to PTX with NVRTC. It does what the runtime does, but for a virtual architecture.
 *
 * Gives: compile.h. A text is kept in $KERNELS, or in $B/kernels, under the SHA-256 of the source, the target and
 * NVRTC's version.
 * Cost:  half a second for a source that is not there.
 */
#include "tests/machines/ptx/compile.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/sha256.h"
#include "runtime/base/whole_file.h"
#include "runtime/jit/nvrtc.h"
#include "runtime/libraries/nvrtc_symbols.h"

/* NVRTC as the runtime has it, and what the runtime does not ask it for. Never closed. */
static fcp_nvrtc *nvrtc;
static nvrtc_result (*get_ptx_size)(nvrtc_program, size_t *);
static nvrtc_result (*get_ptx)(nvrtc_program, char *);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static fcp_code open_nvrtc(fcp_nvrtc **out, fcp_error *err) {
    fcp_code code = fcp_nvrtc_open(NULL, out, err);
    if (code) return code;
    void *library = dlopen((*out)->path, RTLD_NOW | RTLD_LOCAL);
    void *size = library ? dlsym(library, "nvrtcGetPTXSize") : NULL,
         *text = library ? dlsym(library, "nvrtcGetPTX") : NULL;
    if (size && text) {
        memcpy(&get_ptx_size, &size, sizeof size);
        memcpy(&get_ptx, &text, sizeof text);
        return FCP_OK;
    }
    code = fcp_fail(err, FCP_E_BACKEND, "NVRTC in '%s' gives no PTX", (*out)->path);
    fcp_nvrtc_close(*out);
    return code;
}

fcp_code ptx_compiler(fcp_error *err) {
    fcp_nvrtc *opened;
    fcp_code code = FCP_OK;
    pthread_mutex_lock(&lock);
    if (!nvrtc && !(code = open_nvrtc(&opened, err))) nvrtc = opened;
    pthread_mutex_unlock(&lock);
    return code;
}

/* Where a text is kept. */
static void place(const char *source, const char *target, char *path, size_t room) {
    const char *build = getenv("B"), *kernels = getenv("KERNELS");
    uint8_t hash[FCP_SHA256_BYTES];
    const int version[] = {nvrtc->major, nvrtc->minor};
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, version, sizeof version);
    fcp_sha256_add(&h, target, strlen(target) + 1);
    fcp_sha256_add(&h, source, strlen(source));
    fcp_sha256_end(&h, hash);
    int at = kernels && *kernels ? snprintf(path, room, "%s", kernels)
                                 : snprintf(path, room, "%s/kernels", build && *build ? build : "build");
    if (at < 0 || (size_t)at + 80 > room) {
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
    if (nvrtc->table->create(&program, source, "fcpc.cu", 0, NULL, NULL))
        return fcp_fail(err, FCP_E_COMPILE, "NVRTC makes no program");
    if (nvrtc->table->compile(program, 2, options)) {
        char *log = nvrtc->table->log_size(program, &size) ? NULL : malloc(size + 1);
        if (log && nvrtc->table->log(program, log)) *log = 0;
        code = fcp_fail(err, FCP_E_COMPILE, "NVRTC does not compile for %s: %.300s", target, log ? log : "");
        free(log);
    } else if (get_ptx_size(program, &size) || !(text = calloc(size + 1, 1)) || get_ptx(program, text))
        code = fcp_fail(err, FCP_E_COMPILE, "NVRTC has no PTX");
    nvrtc->table->destroy(&program);
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
    if (!code && *path && !fcp_beside_open(&f, path, true)) {
        if (fcp_write_all(f.fd, *out_text, strlen(*out_text))) fcp_beside_abandon(&f);
        else fcp_beside_commit(&f);
    }
    return code;
}
