/* jit.c: compiling kernels once: the disk cache before NVRTC.
 *
 * Requires: sources without includes, so that a source's text is all it depends on.
 * Gives: jit.h. Cost: a hit reads and hashes the entry; a miss is NVRTC's time, of several the longest where there are as many
 *        cores (before CUDA 12.3 NVRTC optimises one program at a time). Hashing NVRTC's file (100 MB) is done once a file: the
 *        cache remembers it by path, inode, size and time. Only NVRTC runs in threads: the cache and warnings are the caller's.
 */
#include "runtime/kernels/jit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/sha256.h"
#include "runtime/base/whole_file.h"

enum { CACHE_VERSION = 2, HASH = FCP_SHA256_BYTES, ENTRY_MAX = 1 << 28 };

struct fcp_jit {
    char *folder; /* NULL: no disk cache */
    char warning[300];
    fcp_nvrtc *nvrtc; /* once loaded */
};

/* The compiler that entries are made with. */
typedef struct compiler {
    int32_t major, minor;
    uint8_t hash[HASH]; /* of its file */
} compiler;

typedef struct entry_header {
    char magic[8];
    uint8_t key[HASH], digest[HASH]; /* digest: of the cubin */
    uint64_t size;
    uint32_t kernel_count, notes;
    fcp_kernel_cost kernels[FCP_KERNELS_MAX];
} entry_header;
static const char magic[8] = "fcpjit1";

static void warn(fcp_jit *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(fcp_jit *j, const char *format, ...) {
    va_list args;
    if (j->warning[0]) return; /* the first one says it */
    va_start(args, format);
    vsnprintf(j->warning, sizeof j->warning, format, args);
    va_end(args);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

/* Whether the folder is ours alone; makes it where it is not there. */
static bool usable(fcp_jit *j, const char *path) {
    struct stat s;
    if (mkdir(path, 0700) && errno != EEXIST) {
        warn(j, "no kernel cache: cannot make '%.150s': %s", path, strerror(errno));
        return false;
    }
    if (lstat(path, &s)) {
        warn(j, "no kernel cache: cannot look at '%.150s': %s", path, strerror(errno));
        return false;
    }
    const char *why = S_ISLNK(s.st_mode)          ? "it is a symbolic link"
                      : !S_ISDIR(s.st_mode)       ? "it is not a folder"
                      : s.st_uid != geteuid()     ? "it belongs to another user"
                      : (s.st_mode & 07777) != 0700 ? "others may read or write it (its mode is not 0700)"
                                                  : NULL;
    if (why) warn(j, "no kernel cache: '%.150s': %s", path, why);
    return !why;
}

static char *joined(const char *a, const char *b) {
    size_t room = strlen(a) + strlen(b) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", a, b);
    return path;
}

/* ~/.cache may have to be made; what is above it not. */
static char *default_folder(fcp_jit *j) {
    const char *own = getenv("FCP_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) return strdup(own);
    if (xdg && xdg[0] == '/') return joined(xdg, "fcpc");
    if (!home || home[0] != '/') {
        warn(j, "no kernel cache: neither FCP_CACHE, XDG_CACHE_HOME nor HOME names a folder");
        return NULL;
    }
    char *above = joined(home, ".cache"), *path = above ? joined(above, "fcpc") : NULL;
    if (above) mkdir(above, 0700); /* if it cannot be made, nor can what is in it */
    free(above);
    return path;
}

fcp_code fcp_jit_open(const char *folder, fcp_jit **out_jit, fcp_error *err) {
    fcp_jit *j = calloc(1, sizeof *j);
    if (!j) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    char *path = folder ? strdup(folder) : default_folder(j);
    if (path && usable(j, path)) j->folder = path;
    else free(path);
    *out_jit = j;
    return FCP_OK;
}

void fcp_jit_close(fcp_jit *j) {
    if (!j) return;
    fcp_nvrtc_close(j->nvrtc);
    free(j->folder);
    free(j);
}

const char *fcp_jit_warning(const fcp_jit *j) { return j->warning; }

/* --- files of the cache ------------------------------------------------------------------------------------------- */

/* A whole file of the cache, which must be a plain file of ours; malloc'd. NULL: it is not there, or not as it must be. */
static void *read_own(const char *path, size_t least, size_t *out_size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat s;
    char *bytes = NULL;
    size_t size = 0;
    if (fd >= 0 && !fstat(fd, &s) && S_ISREG(s.st_mode) && s.st_uid == geteuid() && s.st_size >= (off_t)least &&
        s.st_size <= ENTRY_MAX)
        bytes = malloc((size_t)s.st_size + 1);
    while (bytes && size < (size_t)s.st_size) {
        ssize_t got = read(fd, bytes + size, (size_t)s.st_size - size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            free(bytes);
            bytes = NULL;
        } else size += (size_t)got;
    }
    if (fd >= 0) close(fd);
    *out_size = size;
    return bytes;
}

static void write_own(fcp_jit *j, const char *path, const void *head, size_t head_size, const void *bytes, size_t size) {
    fcp_beside f;
    struct stat s;
    if (!lstat(path, &s) && !S_ISREG(s.st_mode)) {
        warn(j, "the kernel cache cannot be written: '%.150s' is not a plain file", path);
        return;
    }
    int why = fcp_beside_open(&f, path);
    if (!why && fchmod(f.fd, 0600)) why = errno;
    if (!why) why = fcp_write_all(f.fd, head, head_size);
    if (!why && size) why = fcp_write_all(f.fd, bytes, size);
    if (!why) why = fcp_beside_commit(&f);
    else fcp_beside_abandon(&f);
    if (why) warn(j, "the kernel cache cannot be written: '%.150s': %s", path, strerror(why));
}

static char *entry_path(const fcp_jit *j, const uint8_t key[HASH], const char *suffix) {
    size_t room = strlen(j->folder) + 2 * HASH + strlen(suffix) + 2;
    char *path = malloc(room);
    if (!path) return NULL;
    int at = snprintf(path, room, "%s/", j->folder);
    for (int i = 0; i < HASH; i++) at += snprintf(path + at, room - (size_t)at, "%02x", key[i]);
    snprintf(path + at, room - (size_t)at, "%s", suffix);
    return path;
}

/* --- which NVRTC -------------------------------------------------------------------------------------------------- */

/* What the cache remembers of the compiler's file: nothing of it is believed unless the file is still that one. */
typedef struct compiler_record {
    char magic[8], path[400];
    uint8_t search[HASH]; /* of what decides which file is found, beside the machine's own folders */
    uint64_t device, inode, size, seconds, nanoseconds;
    compiler compiler;
    uint8_t digest[HASH]; /* of what is above */
} compiler_record;

static bool fill_stat(compiler_record *r) {
    struct stat s;
    if (stat(r->path, &s)) return false;
    r->device = (uint64_t)s.st_dev;
    r->inode = (uint64_t)s.st_ino;
    r->size = (uint64_t)s.st_size;
    r->seconds = (uint64_t)s.st_mtim.tv_sec;
    r->nanoseconds = (uint64_t)s.st_mtim.tv_nsec;
    return true;
}

static bool hash_search(uint8_t out[HASH]) {
    static const char *const variables[] = {"FCP_NVRTC", "CUDA_HOME", "LD_LIBRARY_PATH"};
    fcp_sha256 h = fcp_sha256_begin();
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        fcp_sha256_add_text(&h, value ? value : "");
    }
    return fcp_sha256_end(&h, out);
}

/* What is remembered of the compiler that would be found; once one is loaded, only if it is that file's. */
static bool remembered(const fcp_jit *j, const char *path, compiler *out) {
    uint8_t digest[HASH], search[HASH];
    size_t size;
    compiler_record *r = read_own(path, sizeof *r, &size), now;
    bool good = r && size == sizeof *r && !memcmp(r->magic, magic, sizeof magic) &&
                fcp_sha256_of(r, offsetof(compiler_record, digest), digest) && !memcmp(digest, r->digest, HASH) &&
                memchr(r->path, 0, sizeof r->path) && hash_search(search) && !memcmp(search, r->search, HASH) &&
                (!j->nvrtc || !strcmp(j->nvrtc->path, r->path));
    if (good) {
        now = *r;
        good = fill_stat(&now) && !memcmp(&now, r, sizeof now);
        *out = r->compiler;
    }
    free(r);
    return good;
}

static fcp_code load_nvrtc(fcp_jit *j, fcp_error *err) {
    return j->nvrtc ? FCP_OK : fcp_nvrtc_open(&j->nvrtc, err);
}

static fcp_code which_compiler(fcp_jit *j, compiler *out, fcp_error *err) {
    char *path = joined(j->folder, "nvrtc");
    if (!path) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    fcp_code code = FCP_OK;
    if (!remembered(j, path, out)) {
        compiler_record r;
        memset(&r, 0, sizeof r); /* padding too: it is hashed */
        code = load_nvrtc(j, err);
        if (!code) {
            memcpy(r.magic, magic, sizeof magic);
            r.compiler.major = j->nvrtc->major;
            r.compiler.minor = j->nvrtc->minor;
            size_t length = strlen(j->nvrtc->path);
            bool fits = length < sizeof r.path;
            if (fits) memcpy(r.path, j->nvrtc->path, length);
            bool hashed = fcp_sha256_file(j->nvrtc->path, r.compiler.hash) == 0;
            *out = r.compiler;
            if (!hashed) {
                warn(j, "no kernel cache: cannot read NVRTC's file '%.150s'", j->nvrtc->path);
                free(j->folder);
                j->folder = NULL;
            } else if (fits && hash_search(r.search) && fill_stat(&r) &&
                       fcp_sha256_of(&r, offsetof(compiler_record, digest), r.digest))
                write_own(j, path, &r, sizeof r, NULL, 0);
        }
    }
    free(path);
    return code;
}

/* --- compiling ---------------------------------------------------------------------------------------------------- */

static bool key_of(const compiler *c, const char *name, const char *source, const char *arch, const char *const *options,
                   uint8_t out[HASH]) {
    const int32_t version[3] = {CACHE_VERSION, c->major, c->minor};
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, version, sizeof version);
    fcp_sha256_add(&h, c->hash, HASH);
    fcp_sha256_add_text(&h, name);
    fcp_sha256_add_text(&h, arch);
    fcp_sha256_add_text(&h, source);
    for (; options && *options; options++) fcp_sha256_add_text(&h, *options);
    return fcp_sha256_end(&h, out);
}

/* The entry, if it is there and holds. */
static bool find(const char *path, const uint8_t key[HASH], fcp_cubin *out) {
    size_t size;
    uint8_t digest[HASH];
    char *bytes = read_own(path, sizeof(entry_header), &size);
    if (!bytes) return false;
    entry_header h;
    memcpy(&h, bytes, sizeof h);
    bool good = !memcmp(h.magic, magic, sizeof magic) && !memcmp(h.key, key, HASH) && h.size == size - sizeof h &&
                h.kernel_count <= FCP_KERNELS_MAX && fcp_sha256_of(bytes + sizeof h, (size_t)h.size, digest) &&
                !memcmp(digest, h.digest, HASH);
    *out = (fcp_cubin){0};
    if (good) {
        out->log = strdup("");
        out->size = (size_t)h.size;
        out->notes = h.notes;
        out->kernel_count = h.kernel_count;
        memcpy(out->kernels, h.kernels, sizeof out->kernels);
        for (uint32_t i = 0; i < FCP_KERNELS_MAX; i++) out->kernels[i].name[sizeof out->kernels[i].name - 1] = 0;
        memmove(bytes, bytes + sizeof h, out->size);
        out->bytes = bytes;
        good = out->log != NULL;
        if (!good) fcp_cubin_free(out);
    } else free(bytes);
    return good;
}

static void keep(fcp_jit *j, const char *path, const uint8_t key[HASH], const fcp_cubin *c) {
    entry_header h;
    memset(&h, 0, sizeof h);
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.key, key, HASH);
    h.size = c->size;
    h.kernel_count = c->kernel_count;
    h.notes = c->notes;
    memcpy(h.kernels, c->kernels, sizeof h.kernels);
    if (fcp_sha256_of(c->bytes, c->size, h.digest)) write_own(j, path, &h, sizeof h, c->bytes, c->size);
}

/* Where the source's entry would be, and its key. */
static fcp_code locate(fcp_jit *j, const char *name, const char *source, const char *arch, const char *const *options,
                       uint8_t key[HASH], char **path, fcp_error *err) {
    compiler c;
    fcp_code code = which_compiler(j, &c, err);
    free(*path);
    *path = NULL;
    if (!code && j->folder && (!key_of(&c, name, source, arch, options, key) || !(*path = entry_path(j, key, ".cubin"))))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the kernel cache");
    return code;
}

/* A source on its way. Threads have one each, and share only what none of them changes. */
typedef struct task {
    const fcp_nvrtc *nvrtc;
    const char *name, *arch;
    const char *const *options;
    fcp_jit_part *part;
    uint8_t key[HASH];
    char *path; /* where its entry goes; NULL: nowhere */
    pthread_t thread;
    bool started;
    fcp_code code;
    fcp_error err;
} task;

static void *compile(void *argument) {
    task *t = argument;
    t->code = fcp_nvrtc_compile(t->nvrtc, t->name, t->part->source, t->arch, t->options, &t->part->cubin, &t->err);
    return NULL;
}

static fcp_code look_up(fcp_jit *j, task *t, fcp_error *err) {
    fcp_jit_part *p = t->part;
    bool loaded = j->nvrtc != NULL;
    if (!j->folder) return FCP_OK;
    fcp_code code = locate(j, t->name, p->source, t->arch, t->options, t->key, &t->path, err);
    if (!code && t->path) p->cached = find(t->path, t->key, &p->cubin);
    if (!code && !p->cached && !loaded) { /* what is loaded now need not be the file that was remembered */
        code = load_nvrtc(j, err);
        if (!code) code = locate(j, t->name, p->source, t->arch, t->options, t->key, &t->path, err);
        if (!code && t->path) p->cached = find(t->path, t->key, &p->cubin);
    }
    return code;
}

/* What no entry was found of: the first in this thread, the others beside it. */
static fcp_code compile_missing(fcp_jit *j, task *tasks, uint32_t count, fcp_error *err) {
    uint32_t missing = 0;
    for (uint32_t i = 0; i < count; i++) missing += !tasks[i].part->cached;
    fcp_code code = missing ? load_nvrtc(j, err) : FCP_OK;
    if (code || !missing) return code;
    missing = 0;
    for (uint32_t i = 0; i < count; i++) {
        task *t = &tasks[i];
        t->nvrtc = j->nvrtc;
        if (!t->part->cached && missing++) t->started = pthread_create(&t->thread, NULL, compile, t) == 0;
    }
    for (uint32_t i = 0; i < count; i++)
        if (!tasks[i].part->cached && !tasks[i].started) compile(&tasks[i]);
    for (uint32_t i = 0; i < count; i++)
        if (tasks[i].started) pthread_join(tasks[i].thread, NULL);
    for (uint32_t i = 0; i < count; i++)
        if (!tasks[i].part->cached && !tasks[i].code && tasks[i].path) keep(j, tasks[i].path, tasks[i].key, &tasks[i].part->cubin);
    for (uint32_t i = 0; i < count; i++)
        if (tasks[i].code) {
            *err = tasks[i].err;
            return tasks[i].code;
        }
    return FCP_OK;
}

fcp_code fcp_jit_compile_parts(fcp_jit *j, const char *name, const char *arch, const char *const *options,
                               fcp_jit_part *parts, uint32_t count, fcp_error *err) {
    for (uint32_t i = 0; i < count; i++) parts[i] = (fcp_jit_part){.source = parts[i].source};
    fcp_code code = fcp_arch_check(arch, err);
    if (code || !count) return code;
    task *tasks = calloc(count, sizeof *tasks);
    if (!tasks) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %" PRIu32 " compilations", count);
    for (uint32_t i = 0; !code && i < count; i++) {
        tasks[i] = (task){.name = name, .arch = arch, .options = options, .part = &parts[i]};
        code = look_up(j, &tasks[i], err);
    }
    if (!code) code = compile_missing(j, tasks, count, err);
    for (uint32_t i = 0; i < count; i++) free(tasks[i].path);
    free(tasks);
    return code;
}

fcp_code fcp_jit_compile(fcp_jit *j, const char *name, const char *source, const char *arch, const char *const *options,
                         fcp_cubin *out, bool *out_cached, fcp_error *err) {
    fcp_jit_part part = {.source = source};
    fcp_code code = fcp_jit_compile_parts(j, name, arch, options, &part, 1, err);
    *out = part.cubin;
    *out_cached = part.cached;
    return code;
}
