/* jit.c: compiles a kernel once and keeps the cubin in a folder, so that the next run reads it instead of compiling.
 *
 * Requires: sources without #include, so that the text of a source is all that its cubin depends on.
 * Cost:     a hit reads the entry and hashes it. A miss takes as long as NVRTC does. Several sources are compiled at
 *           the same time, one on each core; but NVRTC before CUDA 12.3 optimises one program at a time. NVRTC's own
 *           file (100 MB) is hashed once: the cache remembers the hash with the file's path, inode, size and time.
 * Threads:  only NVRTC runs in threads of its own. The cache and the warning are touched by the caller's thread alone.
 */
#include "runtime/jit/jit.h"

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

#include "runtime/base/read_file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/threads.h"
#include "runtime/base/whole_file.h"

enum { CACHE_VERSION = 2, HASH = FCP_SHA256_BYTES, ENTRY_MAX = 1 << 28 };

struct fcp_jit {
    char *folder; /* NULL: nothing is kept on disk */
    char warning[300];
    fcp_nvrtc *nvrtc; /* NULL until something has to be compiled */
    fcp_nvrtc_choice choice;
    int major; /* of the NVRTC that compiled last, or whose cubins the cache had */
};

/* Which NVRTC compiles. It is part of every entry's key: another NVRTC may make other code. */
typedef struct compiler {
    int32_t major, minor;
    uint8_t hash[HASH]; /* SHA-256 of the library's file */
} compiler;

/* An entry of the cache is this header, and then the cubin. */
typedef struct entry_header {
    char magic[8];
    uint8_t key[HASH], digest[HASH]; /* digest: SHA-256 of the cubin */
    uint64_t size;
    uint32_t kernel_count, notes;
    fcp_kernel_cost kernels[FCP_KERNELS_MAX];
} entry_header;
static const char magic[8] = "fcpjit2"; /* begins every file of the cache */

static fcp_code load_nvrtc(fcp_jit *j, fcp_error *err) {
    fcp_code code = j->nvrtc ? FCP_OK : fcp_nvrtc_open(&j->choice, &j->nvrtc, err);
    if (!code) j->major = j->nvrtc->major;
    return code;
}

static void warn(fcp_jit *j, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(fcp_jit *j, const char *format, ...) {
    va_list args;
    if (j->warning[0]) return; /* the first warning is the cause of later ones */
    va_start(args, format);
    vsnprintf(j->warning, sizeof j->warning, format, args);
    va_end(args);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

/* Makes the folder if it is not there. False, with a warning: somebody else could put a file into it. */
static bool folder_usable(fcp_jit *j, const char *path) {
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

static char *path_join(const char *a, const char *b) {
    size_t room = strlen(a) + strlen(b) + 2;
    char *path = malloc(room);
    if (path) snprintf(path, room, "%s/%s", a, b);
    return path;
}

/* The folder that jit.h names; malloc'd. Makes ~/.cache if it is not there, but nothing above it. */
static char *default_folder(fcp_jit *j) {
    const char *own = getenv("FCP_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own && *own) return strdup(own);
    if (xdg && xdg[0] == '/') return path_join(xdg, "fcpc");
    if (!home || home[0] != '/') {
        warn(j, "no kernel cache: neither FCP_CACHE, XDG_CACHE_HOME nor HOME names a folder");
        return NULL;
    }
    char *above = path_join(home, ".cache"), *path = above ? path_join(above, "fcpc") : NULL;
    if (above) mkdir(above, 0700); /* if this fails, folder_usable fails on the folder inside it and says why */
    free(above);
    return path;
}

fcp_code fcp_jit_open(const char *folder, fcp_jit **out_jit, fcp_error *err) {
    fcp_jit *j = calloc(1, sizeof *j);
    if (!j) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    char *path = folder ? strdup(folder) : default_folder(j);
    if (path && folder_usable(j, path)) j->folder = path;
    else free(path);
    *out_jit = j;
    return FCP_OK;
}

void fcp_jit_set_driver(fcp_jit *j, int version) { j->choice.cuda = version > 0 ? (unsigned)version / 1000 : 0; }

bool fcp_jit_refused(fcp_jit *j, fcp_error *err) {
    j->choice.refused |= fcp_nvrtc_bit(j->major);
    fcp_nvrtc_close(j->nvrtc);
    j->nvrtc = NULL;
    return load_nvrtc(j, err) == FCP_OK;
}

void fcp_jit_close(fcp_jit *j) {
    if (!j) return;
    fcp_nvrtc_close(j->nvrtc);
    free(j->folder);
    free(j);
}

const char *fcp_jit_folder(const fcp_jit *j) { return j->folder; }

const char *fcp_jit_warning(const fcp_jit *j) { return j->warning; }

/* --- files of the cache ------------------------------------------------------------------------------------------- */

/* Reads a whole file of the cache; malloc'd. NULL: it is not there, it is no regular file of ours, or its size is not
 * between `least` and ENTRY_MAX. */
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

/* Writes `head` and then `bytes` to a file of the cache, whole or not at all. A failure becomes the warning. */
static void write_own(fcp_jit *j, const char *path, const void *head, size_t head_size, const void *bytes,
                      size_t size) {
    fcp_beside f;
    struct stat s;
    if (!lstat(path, &s) && !S_ISREG(s.st_mode)) {
        warn(j, "the kernel cache cannot be written: '%.150s' is not a plain file", path);
        return;
    }
    int why = fcp_beside_open(&f, path, true);
    if (!why && fchmod(f.fd, 0600)) why = errno;
    if (!why) why = fcp_write_all(f.fd, head, head_size);
    if (!why && size) why = fcp_write_all(f.fd, bytes, size);
    if (!why) why = fcp_beside_commit(&f);
    else fcp_beside_abandon(&f);
    char room[128];
    if (why) warn(j, "the kernel cache cannot be written: '%.150s': %s", path, fcp_read_reason(why, room));
}

static char *entry_path(const fcp_jit *j, const uint8_t key[HASH], const char *suffix) {
    size_t room = strlen(j->folder) + (size_t)2 * HASH + strlen(suffix) + 2;
    char *path = malloc(room);
    if (!path) return NULL;
    int at = snprintf(path, room, "%s/", j->folder);
    for (int i = 0; i < HASH; i++) at += snprintf(path + at, room - (size_t)at, "%02x", key[i]);
    snprintf(path + at, room - (size_t)at, "%s", suffix);
    return path;
}

/* --- which NVRTC -------------------------------------------------------------------------------------------------- */

/* The cache's file "nvrtc": which NVRTC was found, and the hash of its file. With it, a run whose kernels are all in
 * the cache neither loads NVRTC nor hashes 100 MB. The record is believed only if the file at `path` has not changed
 * since, and if a search for NVRTC would look in the same places as it did then. Each choice of NVRTC has a record of
 * its own ("nvrtc-12-2000": for a driver for CUDA 12 that has refused version 13). */
typedef struct compiler_record {
    char magic[8], path[400];
    uint8_t search[HASH]; /* of the environment variables that decide which file is found */
    uint64_t device, inode, size, seconds, nanoseconds;
    compiler compiler;
    uint8_t digest[HASH]; /* of the fields above */
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

static void hash_search(uint8_t out[HASH]) {
    static const char *const variables[] = {"FCP_NVRTC", "CUDA_HOME", "LD_LIBRARY_PATH"};
    fcp_sha256 h = fcp_sha256_begin();
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        fcp_sha256_add_text(&h, value ? value : "");
    }
    fcp_sha256_end(&h, out);
}

/* Reads the compiler_record at `path`. False: it cannot be believed, or NVRTC is loaded already and was another
 * file. */
static bool compiler_recall(const fcp_jit *j, const char *path, compiler *out) {
    uint8_t digest[HASH], search[HASH];
    size_t size;
    compiler_record *r = read_own(path, sizeof *r, &size), now;
    bool good = r && size == sizeof *r && !memcmp(r->magic, magic, sizeof magic);
    if (good) {
        fcp_sha256_of(r, offsetof(compiler_record, digest), digest);
        hash_search(search);
        good = !memcmp(digest, r->digest, HASH) && !memcmp(search, r->search, HASH) &&
               memchr(r->path, 0, sizeof r->path) && (!j->nvrtc || !strcmp(j->nvrtc->path, r->path));
    }
    if (good) {
        now = *r;
        good = fill_stat(&now) && !memcmp(&now, r, sizeof now);
        *out = r->compiler;
    }
    free(r);
    return good;
}

/* Says which NVRTC compiles: from the record, or by loading it, hashing its file and writing the record. If the file
 * cannot be read, the disk cache is given up with a warning. */
static fcp_code compiler_find(fcp_jit *j, compiler *out, fcp_error *err) {
    char name[40] = "nvrtc";
    const fcp_nvrtc_choice *c = &j->choice;
    if (c->cuda == 12 || c->refused) snprintf(name, sizeof name, "nvrtc-%u-%x", c->cuda, c->refused);
    char *path = path_join(j->folder, name);
    if (!path) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    fcp_code code = FCP_OK;
    if (!compiler_recall(j, path, out)) {
        compiler_record r;
        memset(&r, 0, sizeof r); /* the padding too, because it is hashed */
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
            } else if (fits && fill_stat(&r)) {
                hash_search(r.search);
                fcp_sha256_of(&r, offsetof(compiler_record, digest), r.digest);
                write_own(j, path, &r, sizeof r, NULL, 0);
            }
        }
    }
    if (!code) j->major = out->major;
    free(path);
    return code;
}

/* --- compiling ---------------------------------------------------------------------------------------------------- */

static void entry_key(const compiler *c, const char *name, const char *source, const char *arch,
                      const char *const *options, uint8_t out[HASH]) {
    const int32_t version[3] = {CACHE_VERSION, c->major, c->minor};
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, version, sizeof version);
    fcp_sha256_add(&h, c->hash, HASH);
    fcp_sha256_add_text(&h, name);
    fcp_sha256_add_text(&h, arch);
    fcp_sha256_add_text(&h, source);
    for (; options && *options; options++) fcp_sha256_add_text(&h, *options);
    fcp_sha256_end(&h, out);
}

/* Reads an entry. False: it is not there, or its key, its length or its digest is not what it should be. */
static bool entry_read(const char *path, const uint8_t key[HASH], fcp_cubin *out) {
    size_t size;
    uint8_t digest[HASH];
    char *bytes = read_own(path, sizeof(entry_header), &size);
    if (!bytes) return false;
    entry_header h;
    memcpy(&h, bytes, sizeof h);
    fcp_sha256_of(bytes + sizeof h, size - sizeof h, digest);
    bool good = !memcmp(h.magic, magic, sizeof magic) && !memcmp(h.key, key, HASH) && h.size == size - sizeof h &&
                h.kernel_count <= FCP_KERNELS_MAX && !memcmp(digest, h.digest, HASH);
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

static void entry_write(fcp_jit *j, const char *path, const uint8_t key[HASH], const fcp_cubin *c) {
    entry_header h;
    memset(&h, 0, sizeof h);
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.key, key, HASH);
    h.size = c->size;
    h.kernel_count = c->kernel_count;
    h.notes = c->notes;
    memcpy(h.kernels, c->kernels, sizeof h.kernels);
    fcp_sha256_of(c->bytes, c->size, h.digest);
    write_own(j, path, &h, sizeof h, c->bytes, c->size);
}

/* Says the key of a source's entry, and its path (malloc'd; NULL: there is no disk cache). */
static fcp_code entry_locate(fcp_jit *j, const char *name, const char *source, const char *arch,
                             const char *const *options, uint8_t key[HASH], char **path, fcp_error *err) {
    compiler c;
    fcp_code code = compiler_find(j, &c, err);
    free(*path);
    *path = NULL;
    if (code || !j->folder) return code;
    entry_key(&c, name, source, arch, options, key);
    if (!(*path = entry_path(j, key, ".cubin")))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the kernel cache");
    return code;
}

/* One source to compile. Each thread has its own; what several point to, none of them changes. */
typedef struct task {
    const fcp_nvrtc *nvrtc;
    const char *name, *arch;
    const char *const *options;
    fcp_jit_part *part;
    uint8_t key[HASH];
    char *path; /* of its entry in the cache; NULL: there is no disk cache */
    pthread_t thread;
    bool started;
    fcp_code code;
    fcp_error err;
} task;

static void *task_compile(void *argument) {
    task *t = argument;
    t->code = fcp_nvrtc_compile(t->nvrtc, t->name, t->part->source, t->arch, t->options, &t->part->cubin, &t->err);
    return NULL;
}

/* Looks for a source's entry in the cache. A miss loads NVRTC; the file that is loaded need not be the one that the
 * record names, and with another one the entry has another key: so after loading it looks once more. */
static fcp_code task_look_up(fcp_jit *j, task *t, fcp_error *err) {
    fcp_jit_part *p = t->part;
    bool loaded = j->nvrtc != NULL;
    if (!j->folder) return FCP_OK;
    fcp_code code = entry_locate(j, t->name, p->source, t->arch, t->options, t->key, &t->path, err);
    if (!code && t->path) p->cached = entry_read(t->path, t->key, &p->cubin);
    if (!code && !p->cached && !loaded) {
        code = load_nvrtc(j, err);
        if (!code) code = entry_locate(j, t->name, p->source, t->arch, t->options, t->key, &t->path, err);
        if (!code && t->path) p->cached = entry_read(t->path, t->key, &p->cubin);
    }
    return code;
}

/* Compiles the sources that the cache did not have: the first in this thread, the others in threads beside it. If a
 * thread cannot be made, its source is compiled in this one. */
static fcp_code tasks_compile(fcp_jit *j, task *tasks, uint32_t count, fcp_error *err) {
    uint32_t missing = 0;
    for (uint32_t i = 0; i < count; i++) missing += !tasks[i].part->cached;
    fcp_code code = missing ? load_nvrtc(j, err) : FCP_OK;
    if (code || !missing) return code;
    missing = 0;
    for (uint32_t i = 0; i < count; i++) {
        task *t = &tasks[i];
        t->nvrtc = j->nvrtc;
        if (!t->part->cached && missing++) t->started = fcp_thread_start(&t->thread, 0, task_compile, t);
    }
    for (uint32_t i = 0; i < count; i++)
        if (!tasks[i].part->cached && !tasks[i].started) task_compile(&tasks[i]);
    for (uint32_t i = 0; i < count; i++)
        if (tasks[i].started) pthread_join(tasks[i].thread, NULL);
    for (uint32_t i = 0; i < count; i++)
        if (!tasks[i].part->cached && !tasks[i].code && tasks[i].path)
            entry_write(j, tasks[i].path, tasks[i].key, &tasks[i].part->cubin);
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
        code = task_look_up(j, &tasks[i], err);
    }
    if (!code) code = tasks_compile(j, tasks, count, err);
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
