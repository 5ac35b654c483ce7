/* blas.c: loads OpenBLAS and guards its process-wide state (blas.h).
 *
 * Requires: the functions of blas.h are called in the order load, open, enter, leave, close; each open has its close,
 *           and each enter its leave.
 * Cost:     a lock for each call.
 *
 * OpenBLAS is declared here, not included, so that the machine that builds need not have it.
 */
#include "runtime/host/blas.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/libraries/shared_library.h"

enum { ROW_MAJOR = 101, AS_IT_IS = 111, TURNED = 112 }; /* as in cblas.h */
typedef void sgemm(int order, int turn_a, int turn_b, int m, int n, int k, float alpha, const float *a, int lda,
                   const float *b, int ldb, float beta, float *c, int ldc);

/* Where a program has OpenBLAS linked in, these are its functions; else they are NULL. */
__attribute__((weak)) sgemm cblas_sgemm;
__attribute__((weak)) int openblas_get_num_threads(void);
__attribute__((weak)) void openblas_set_num_threads(int count);
__attribute__((weak)) void *blas_memory_alloc(int unused);
__attribute__((weak)) void blas_memory_free(void *buffer);
__attribute__((weak)) char *openblas_get_config(void);

/* In the order of `symbols`. The last three need not be there; two of them are not of its public interface. */
typedef struct blas_table {
    sgemm *multiply;
    int (*get_threads)(void);
    void (*set_threads)(int count);
    void *(*take_buffer)(int unused);
    void (*give_buffer)(void *buffer);
    char *(*config)(void);
} blas_table;
static const char *const symbols[] = {"cblas_sgemm",       "openblas_get_num_threads", "openblas_set_num_threads",
                                      "blas_memory_alloc", "blas_memory_free",         "openblas_get_config"};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof(blas_table) == SYMBOLS * sizeof(void (*)(void)), "a table of pointers");

static const char *const names[] = {"libopenblas.so.0", "libopenblasp.so.0", "libopenblas.so", NULL};
static const fcp_library library = {.what = "OpenBLAS",
                                    .variable = "FCP_OPENBLAS",
                                    .names = names,
                                    .symbols = symbols,
                                    .count = SYMBOLS,
                                    .remedy = "install it (Debian: libopenblas0)",
                                    .optional = 3,
                                    .installed = true};

/* Bytes of address space: the library itself, at most; a buffer, in all builds for x86-64 and arm64. */
enum { LIBRARY_BYTES = 64 << 20, BUFFER_BYTES = 128 << 20 };
enum { PLENTY = 4 }; /* times what OpenBLAS takes, so that the rest of the process cannot come in its way */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    blas_table call;                   /* once `loaded` */
    bool loaded;
    char *path;                        /* of its file; NULL: it is linked in */
    uint32_t passes;                   /* how many are under way */
    uint32_t wanted;                   /* how many callers they will have at once */
    uint32_t buffers;                  /* for how many callers there surely are buffers, or room for them */
    uint32_t callers;                  /* how many are inside OpenBLAS */
    size_t starting;                   /* how many threads of OpenBLAS may not have taken their own buffers yet */
    int threads_before;                /* OpenBLAS's setting before the first of these passes */
} guard = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* Whether so many bytes could be mapped now. They are not touched. */
static bool has_room(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    munmap(memory, bytes);
    return true;
}

/* How many threads OpenBLAS will start at most, one of which is the caller's. */
static size_t threads_to_start(void) {
    static const char *const variables[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"};
    long processors = sysconf(_SC_NPROCESSORS_ONLN), asked = 0;
    for (size_t i = 0; asked <= 0 && i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        if (value) asked = strtol(value, NULL, 10);
    }
    if (processors < 1) processors = 1;
    return (size_t)(asked > 0 && asked < processors ? asked : processors);
}

static fcp_code check_room(fcp_error *err) {
    pthread_attr_t attr;
    size_t stack = 8 << 20, threads = threads_to_start();
    if (pthread_attr_init(&attr) == 0) {
        pthread_attr_getstacksize(&attr, &stack);
        pthread_attr_destroy(&attr);
    }
    size_t bytes = LIBRARY_BYTES + (threads - 1) * (stack + BUFFER_BYTES);
    if (has_room(bytes)) return FCP_OK;
    return fcp_fail(err, FCP_E_NO_MEMORY,
                    "out of memory: OpenBLAS takes %zu MB of address space to start on %zu threads, and there is less; "
                    "OPENBLAS_NUM_THREADS=1 takes less", bytes >> 20, threads);
}

static fcp_code load(fcp_error *err) {
    void (*table[SYMBOLS])(void);
    if (cblas_sgemm && openblas_get_num_threads && openblas_set_num_threads) {
        guard.call = (blas_table){cblas_sgemm,       openblas_get_num_threads, openblas_set_num_threads,
                                  blas_memory_alloc, blas_memory_free,         openblas_get_config};
        return FCP_OK;
    }
    fcp_code code = check_room(err);
    if (!code) code = fcp_library_load(&library, table, &guard.path, err);
    if (!code) memcpy(&guard.call, table, sizeof guard.call);
    if (!code) guard.starting = threads_to_start() - 1;
    return code;
}

fcp_code fcp_blas_load(fcp_error *err) {
    pthread_mutex_lock(&guard.lock);
    fcp_code code = guard.loaded ? FCP_OK : load(err);
    guard.loaded = !code;
    pthread_mutex_unlock(&guard.lock);
    return code;
}

const char *fcp_blas_config(void) { return guard.call.config ? guard.call.config() : ""; }
const char *fcp_blas_file(void) { return guard.path ? guard.path : ""; }

/* --- passes ------------------------------------------------------------------------------------------------------- */

/* Makes sure that OpenBLAS has, or can get, buffers for `count` callers. The lock is held.
 *
 * OpenBLAS takes a buffer whenever a call needs one, and keeps it. While address space is plentiful, this function
 * therefore does nothing. If it is scarce, other parts of the process could use it up first. Then this function makes
 * OpenBLAS map all buffers now, by taking them at the same time and giving them back. Some of them may be taken by
 * callers that are inside OpenBLAS, and by threads of OpenBLAS that are still starting. So there must be enough for
 * these, too. */
static fcp_code make_buffers(uint32_t count, fcp_error *err) {
    if (count <= guard.buffers) return FCP_OK;
    size_t most = count + guard.callers + guard.starting, bytes = (most - guard.buffers) * BUFFER_BYTES;
    /* A thread of OpenBLAS that is starting may take its buffer while all of ours are held, and it waits for ever
     * for one that cannot be mapped. So there must be room for these beside ours. */
    if (!has_room(bytes + guard.starting * BUFFER_BYTES))
        return fcp_fail(err, FCP_E_NO_MEMORY,
                        "out of memory: OpenBLAS takes %zu MB of address space to compute on %u threads, and there is "
                        "less; fewer threads take less", bytes >> 20, count);
    if (!has_room(PLENTY * bytes) && guard.call.take_buffer && guard.call.give_buffer) {
        void **taken = malloc(most * sizeof *taken);
        if (!taken) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        for (size_t i = 0; i < most; i++) taken[i] = guard.call.take_buffer(0);
        for (size_t i = 0; i < most; i++) guard.call.give_buffer(taken[i]);
        free(taken);
    }
    guard.buffers = count;
    guard.starting = 0;
    return FCP_OK;
}

fcp_code fcp_blas_open(uint32_t callers, fcp_error *err) {
    pthread_mutex_lock(&guard.lock);
    uint32_t wanted = guard.wanted + callers;
    fcp_code code = make_buffers(wanted < FCP_BLAS_CALLERS ? wanted : FCP_BLAS_CALLERS, err);
    if (!code) {
        guard.wanted = wanted;
        if (guard.passes++ == 0) {
            guard.threads_before = guard.call.get_threads();
            if (guard.threads_before != 1) guard.call.set_threads(1);
        }
    }
    pthread_mutex_unlock(&guard.lock);
    return code;
}

void fcp_blas_close(uint32_t callers) {
    pthread_mutex_lock(&guard.lock);
    guard.wanted -= callers;
    if (--guard.passes == 0 && guard.threads_before != 1) guard.call.set_threads(guard.threads_before);
    pthread_mutex_unlock(&guard.lock);
}

void fcp_blas_enter(void) {
    pthread_mutex_lock(&guard.lock);
    while (guard.callers >= FCP_BLAS_CALLERS) pthread_cond_wait(&guard.turn, &guard.lock);
    guard.callers++;
    pthread_mutex_unlock(&guard.lock);
}

void fcp_blas_leave(void) {
    pthread_mutex_lock(&guard.lock);
    if (guard.callers-- == FCP_BLAS_CALLERS) pthread_cond_signal(&guard.turn);
    pthread_mutex_unlock(&guard.lock);
}

void fcp_blas_multiply(const fcp_product *p) {
    guard.call.multiply(ROW_MAJOR, p->a_turned ? TURNED : AS_IT_IS, p->b_turned ? TURNED : AS_IT_IS, p->rows,
                        p->columns, p->inner, p->scale, p->a, p->a_stride, p->b, p->b_stride, p->keep, p->c, p->stride);
}
