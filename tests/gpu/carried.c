/* carried.c: a library with NVRTC's symbols that serves kernels which were compiled in advance. It is carried with
 * gpu-check to machines with GPUs.
 *
 * 1. A request is looked up in the folder $GPU_KERNELS, under a hash of all options and the source.
 * 2. If it is not there, the machine's own NVRTC compiles it: the file that GPU_NVRTC names, or the one that the loader
 *    finds.
 *
 * GPU_KERNELS_WRITE is set where the folder is filled, in sessions on the stand-in driver (prepare.c). There, what was
 * compiled is kept in the folder. The session gets no cubin but the source, with a mark that says that these kernels do
 * nothing.
 *
 * $GPU_DEFINES, such as "FK_TURNS=0 FK_OVERLAP=0", is put before every source as definitions, and the source with them
 * is what is looked up. Steps that compare builds of the kernels set it. $GPU_OPTION is one more option of the compiler;
 * it is looked up, too.
 *
 * An entry of the folder contains its hash; if that is another one, the source is compiled again. The folder belongs to
 * our own build. Nothing in it is guarded against an attacker, and what is loaded from it runs on the device.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/machines/standin/nvrtc_own.h"

typedef struct nvrtc_program_ {
    char *source, *cubin, *log, *key_text;
    size_t cubin_size;
} program;

enum { NOT_HERE = NVRTC_INTERNAL_ERROR };

/* --- the machine's own -------------------------------------------------------------------------------------------- */

typedef struct fcp_nvrtc_table real;

static int find(void *handle, const char *name, void *slot) {
    void *symbol = dlsym(handle, name);
    memcpy(slot, &symbol, sizeof symbol); /* POSIX: an object pointer from dlsym is a function's */
    return symbol != NULL;
}

/* Loads the machine's own NVRTC. 0: there is none. It stays loaded. */
static int open_real(real *r) {
    static const char *const names[] = {"libnvrtc.so.13",
                                        "libnvrtc.so.12",
                                        "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    const char *only = getenv("GPU_NVRTC");
    void *handle = only && *only ? dlopen(only, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (size_t i = 0; !(only && *only) && !handle && i < sizeof names / sizeof *names; i++)
        handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle) return 0;
    void (*table[sizeof(real) / sizeof(void (*)(void))])(void);
    static const char *const symbols[] = {
#define X(symbol, type) #symbol,
        FCP_NVRTC_SYMBOLS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!find(handle, symbols[i], &table[i])) return 0;
    memcpy(r, table, sizeof *r);
    return 1;
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

typedef struct entry {
    char magic[8];
    uint64_t key[2], cubin, log; /* bytes of what follows */
} entry;
static const char magic[8] = "gpukern1";

/* FNV-1a, with two initial values. */
static void hash(uint64_t key[2], const char *text) {
    for (const unsigned char *c = (const unsigned char *)text;; c++) {
        key[0] = (key[0] ^ *c) * UINT64_C(0x100000001b3);
        key[1] = (key[1] ^ *c) * UINT64_C(0x100000001b3) + 0x9e37;
        if (!*c) return; /* the NUL counts, so that two texts cannot run together */
    }
}

static void path_of(const uint64_t key[2], char path[600]) {
    const char *folder = getenv("GPU_KERNELS");
    snprintf(path, 600, "%.500s/%016llx%016llx.kernel", folder && *folder ? folder : "build/gpu/kernels",
             (unsigned long long)key[0], (unsigned long long)key[1]);
}

static int look_up(const uint64_t key[2], program *p) {
    char path[600];
    entry e;
    path_of(key, path);
    FILE *f = fopen(path, "rbe");
    if (!f) return 0;
    int good = fread(&e, sizeof e, 1, f) == 1 && !memcmp(e.magic, magic, sizeof magic) && e.key[0] == key[0] &&
               e.key[1] == key[1] && e.cubin < (1u << 28) && e.log < (1u << 28);
    p->cubin = good ? malloc((size_t)e.cubin + 1) : NULL;
    p->log = good ? calloc((size_t)e.log + 1, 1) : NULL;
    good = p->cubin && p->log && fread(p->cubin, 1, (size_t)e.cubin, f) == e.cubin &&
           fread(p->log, 1, (size_t)e.log, f) == e.log && fgetc(f) == EOF;
    p->cubin_size = good ? (size_t)e.cubin : 0;
    fclose(f);
    return good;
}

static void keep(const uint64_t key[2], const program *p) {
    char path[600], beside[620];
    entry e = {.key = {key[0], key[1]}, .cubin = p->cubin_size, .log = strlen(p->log)};
    memcpy(e.magic, magic, sizeof magic);
    path_of(key, path);
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    FILE *f = fopen(beside, "wbe");
    if (!f) return;
    int good = fwrite(&e, sizeof e, 1, f) == 1 && fwrite(p->cubin, 1, p->cubin_size, f) == p->cubin_size &&
               fwrite(p->log, 1, strlen(p->log), f) == strlen(p->log);
    good = fclose(f) == 0 && good;
    if (!good || rename(beside, path)) unlink(beside);
}

/* --- NVRTC's functions -------------------------------------------------------------------------------------------- */

/* The version of the machine's NVRTC, or of the one that made the entries: a line of the file `version` in the
 * folder. */
int nvrtcVersion(int *major, int *minor) {
    real r;
    char path[600];
    const char *folder = getenv("GPU_KERNELS");
    int writing = getenv("GPU_KERNELS_WRITE") != NULL;
    snprintf(path, sizeof path, "%.500s/version", folder && *folder ? folder : "build/gpu/kernels");
    FILE *f = writing ? NULL : fopen(path, "re");
    if (f) {
        int good = fscanf(f, "%d.%d", major, minor) == 2;
        fclose(f);
        if (good) return 0;
    }
    if (!open_real(&r)) return NOT_HERE;
    int code = r.version(major, minor);
    f = writing && !code ? fopen(path, "we") : NULL;
    if (f) {
        fprintf(f, "%d.%d\n", *major, *minor);
        fclose(f);
    }
    return code;
}

const char *nvrtcGetErrorString(int code) {
    return code == NOT_HERE ? "this kernel was not carried along, and this machine has no NVRTC"
           : code           ? "an error"
                            : "no error";
}

/* A copy of the source with the definitions before its first #line. NULL: out of memory, or there are too many. */
static char *with_defines(const char *source) {
    enum { MOST = 300 };
    const char *given = getenv("GPU_DEFINES"), *at = strstr(source, "#line");
    char names[MOST], *rest = NULL;
    if (!given || !*given) return strdup(source);
    if (strlen(given) >= MOST) return NULL;
    strcpy(names, given);
    size_t before = at ? (size_t)(at - source) : 0, used = before, size = strlen(source) + 20 * MOST;
    char *text = malloc(size);
    if (!text) return NULL;
    memcpy(text, source, before);
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(name, '=');
        if (value) *value++ = 0;
        used += (size_t)snprintf(text + used, size - used, "#define %s %s\n", name, value ? value : "1");
    }
    strcpy(text + used, source + before); /* there is room: a definition is longer by less than 20 bytes a letter */
    return text;
}

int nvrtcCreateProgram(program **out, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
    (void)headers, (void)names;
    if (count) return NOT_HERE;
    program *p = calloc(1, sizeof *p);
    if (p) p->source = with_defines(source);
    if (p) p->key_text = strdup(name);
    if (!p || !p->source || !p->key_text) {
        if (p) nvrtcDestroyProgram(&p);
        return NVRTC_OUT_OF_MEMORY;
    }
    *out = p;
    return 0;
}

int nvrtcDestroyProgram(program **p) {
    free((*p)->source);
    free((*p)->key_text);
    free((*p)->cubin);
    free((*p)->log);
    free(*p);
    *p = NULL;
    return 0;
}

enum { MOST_OPTIONS = 30 };

static const char *more_option(void) {
    const char *more = getenv("GPU_OPTION");
    return more && *more ? more : NULL;
}

static int compile(const real *r, program *p, int count, const char *const *given) {
    nvrtc_program made = NULL;
    const char *options[MOST_OPTIONS];
    if (count >= MOST_OPTIONS) return NOT_HERE;
    for (int i = 0; i < count; i++) options[i] = given[i];
    options[count] = more_option();
    count += options[count] != NULL;
    size_t size = 0;
    int code = r->create(&made, p->source, p->key_text, 0, NULL, NULL);
    if (code) return code;
    int compiled = r->compile(made, count, options);
    code = r->log_size(made, &size);
    p->log = code ? NULL : calloc(size + 1, 1);
    if (p->log) code = r->log(made, p->log);
    if (!compiled && !code) code = r->cubin_size(made, &p->cubin_size);
    if (!compiled && !code) p->cubin = malloc(p->cubin_size + 1);
    if (!compiled && !code && p->cubin) code = r->cubin(made, p->cubin);
    r->destroy(&made);
    return compiled ? compiled : code ? code : p->log && p->cubin ? 0 : NVRTC_OUT_OF_MEMORY;
}

int nvrtcCompileProgram(program *p, int count, const char *const *options) {
    uint64_t key[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4)};
    real r;
    for (int i = 0; i < count; i++) hash(key, options[i]);
    if (more_option()) hash(key, more_option());
    hash(key, p->key_text);
    hash(key, p->source);
    int code = look_up(key, p) ? 0 : NOT_HERE;
    if (code && open_real(&r)) {
        free(p->cubin);
        free(p->log);
        p->cubin = p->log = NULL;
        code = compile(&r, p, count, options);
        if (!code && getenv("GPU_KERNELS_WRITE")) keep(key, p);
    }
    if (!code && getenv("GPU_KERNELS_WRITE")) {             /* for a stand-in driver */
        static const char head[] = "#define GPU_CHECK 1\n"; /* its kernels do nothing there */
        size_t size = strlen(p->source) + sizeof head;
        free(p->cubin);
        p->cubin = malloc(size);
        p->cubin_size = p->cubin ? size : 0;
        if (p->cubin) snprintf(p->cubin, size, "%s%s", head, p->source);
        else code = NVRTC_OUT_OF_MEMORY;
    }
    return code;
}

int nvrtcGetProgramLogSize(program *p, size_t *out) {
    *out = p->log ? strlen(p->log) + 1 : 1;
    return 0;
}
int nvrtcGetProgramLog(program *p, char *out) {
    strcpy(out, p->log ? p->log : "");
    return 0;
}
int nvrtcGetCUBINSize(program *p, size_t *out) {
    *out = p->cubin_size;
    return p->cubin ? 0 : NOT_HERE;
}
int nvrtcGetCUBIN(program *p, char *out) {
    if (!p->cubin) return NOT_HERE;
    memcpy(out, p->cubin, p->cubin_size);
    return 0;
}
