/* processes.h: runs each rank of a test as a process, with the stand-ins of tests/machines/standin. The processes are
 * forked before anything else begins, and write what they find into memory that all of them share.
 *
 * No result depends on which process is ahead: ranks that must have come to some place meet there (process_meet). Time
 * limits are only for processes that hang. A process that does not end is killed after its limit, and the test names
 * it. Some tests have a process stop itself; it is killed once all others have ended. */
#ifndef PROCESSES_H
#define PROCESSES_H
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/machines/standin/nccl.h"
#include "tests/machines/standin/standin.h"
#include "tests/support/temporary.h"
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define PROCESS_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(PROCESS_SANITIZED)
#include <sanitizer/lsan_interface.h>
#define PROCESS_LEAKS() __lsan_do_recoverable_leak_check()
/* What the parent makes meanwhile is not a rank's to give up: ranks have a copy of its memory, and not of its
 * registers. */
#define PROCESS_PARENT_BEGINS() __lsan_disable()
#define PROCESS_PARENT_ENDS() __lsan_enable()
#else
#define PROCESS_LEAKS() 0
#define PROCESS_PARENT_BEGINS() (void)0
#define PROCESS_PARENT_ENDS() (void)0
#endif

enum { PROCESSES = 8, PROCESS_SECONDS = 300 };

/* What a rank says. */
typedef struct process_word {
    int status;          /* as waitpid says it */
    bool ended, late;    /* it got to its end; it was killed for not getting there */
    volatile int stops;  /* it stopped itself, and stays so */
    fcp_code code;
    double seconds;
    fcp_error err;
    char failed[600];    /* the first check that failed */
    char trouble[400];
    long live, calls, driver_calls;
    standin_nccl nccl;
    unsigned long kernels, graph_launches;
    unsigned long during; /* what ran while kernels waited for flags */
} process_word;

/* What all processes of a test see. */
typedef struct process_shared {
    process_word words[PROCESSES];
    _Atomic int counter[PROCESSES];
    nccl_id id;
    char folder[TEMPORARY]; /* $TMPDIR of all of them */
    unsigned ranks;
    pid_t children[PROCESSES]; /* 0: it has ended */
    double begun;
} process_shared;

typedef struct process {
    process_shared *shared;
    process_word *word;
    unsigned rank, ranks;
    const void *argument;
    standin *cuda;
    standin_nccl *nccl;
} process;

static inline void process_path(char *out, size_t size, const char *name) {
    const char *build = getenv("B");
    snprintf(out, size, "%s/%s", build && *build ? build : "build", name);
}
static inline void *process_symbol(const char *library, const char *symbol) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    return handle ? dlsym(handle, symbol) : NULL;
}

/* Chooses the stand-ins, and finds what controls them. */
static inline bool process_stand(process *p) {
    char path[512];
    process_path(path, sizeof path, "standin/libnvrtc.so");
    setenv("FCP_NVRTC", path, 1);
    process_path(path, sizeof path, "kernels");
    setenv("FCP_CACHE", path, 1);
    process_path(path, sizeof path, "standin/libcuda.so");
    setenv("FCP_CUDA_DRIVER", path, 1);
    standin *(*cuda)(void);
    standin_nccl *(*nccl)(void);
    void *symbol = process_symbol(path, "standin_control");
    memcpy(&cuda, &symbol, sizeof cuda);
    process_path(path, sizeof path, "standin/libnccl.so");
    setenv("FCP_NCCL", path, 1);
    symbol = process_symbol(path, "standin_nccl_control");
    memcpy(&nccl, &symbol, sizeof nccl);
    if (!cuda || !nccl) return false;
    p->cuda = cuda();
    p->nccl = nccl();
    p->nccl->stops = &p->word->stops;
    return true;
}

/* In a rank: chooses the stand-in MPI, of which this process is a rank. */
static inline void process_mpi(const process *p, const char *which_mpi) {
    char path[512], number[24];
    snprintf(number, sizeof number, "standin/libmpi-%s.so", which_mpi);
    process_path(path, sizeof path, number);
    setenv("FCP_MPI", path, 1);
    snprintf(path, sizeof path, "%s/mpi", getenv("TMPDIR"));
    setenv("STANDIN_MPI", path, 1);
    snprintf(number, sizeof number, "%u", p->rank);
    setenv("STANDIN_MPI_RANK", number, 1);
    snprintf(number, sizeof number, "%u", p->ranks);
    setenv("STANDIN_MPI_SIZE", number, 1);
}
/* All ranks have begun MPI, and need its file no more. */
static inline void process_mpi_met(void) { unlink(getenv("STANDIN_MPI")); }

/* In a rank: makes an id of the transport tcp for all, which is in p->shared->id once all have met. Its port is none of
 * those that the system gives to whoever asks for any: another test could be given it before rank 0 listens there. */
static inline void process_tcp_id(const process *p) {
    enum { FIRST = 20000, PORTS = 12000 };
    for (unsigned i = 0; p->rank == 0 && i < PORTS; i++) {
        const uint16_t port = (uint16_t)(FIRST + ((unsigned)getpid() + i) % PORTS);
        const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_ANY)}};
        const int s = socket(AF_INET, SOCK_STREAM, 0);
        const bool is_free = s >= 0 && !bind(s, (const struct sockaddr *)&at, sizeof at);
        if (s >= 0) close(s);
        if (!is_free) continue;
        snprintf(p->shared->id.bytes, sizeof p->shared->id.bytes, "127.0.0.1:%u:%032x", port, (unsigned)getpid());
        return;
    }
}

/* In a rank: what is not so is written down, once, and the rank goes on. */
__attribute__((format(printf, 2, 3))) static inline void process_fails(process *p, const char *format, ...) {
    va_list args;
    if (p->word->failed[0]) return;
    va_start(args, format);
    vsnprintf(p->word->failed, sizeof p->word->failed, format, args);
    va_end(args);
}
#define CHECK(p, condition, ...)                                                                                       \
    do                                                                                                                 \
        if (!(condition)) process_fails(p, "line " CHECK_LINE(__LINE__) ": " #condition " " __VA_ARGS__);              \
    while (0)
#define CHECK_LINE(line) CHECK_TEXT(line)
#define CHECK_TEXT(line) #line

/* All ranks get here; for the turn-th time, from 1 on. */
static inline void process_meet(process *p, int which, int turn) {
    atomic_fetch_add(&p->shared->counter[which], 1);
    while (atomic_load(&p->shared->counter[which]) < (int)p->ranks * turn)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
}

static inline void process_ends(process *p) {
    process_word *w = p->word;
    if (p->cuda) {
        snprintf(w->trouble, sizeof w->trouble, "%s", p->cuda->trouble);
        w->live = p->cuda->live;
        w->driver_calls = p->cuda->calls;
        w->kernels = p->cuda->kernels;
        w->graph_launches = p->cuda->graph_launches;
        w->during = p->cuda->during;
        w->nccl = *p->nccl;
    }
    w->ended = true;
}

static inline process_shared *process_shared_make(void) {
    process_shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(s != MAP_FAILED);
    cr_assert(temporary_folder(s->folder, "ranks"));
    return s;
}
/* `left`: a rank was killed or did not come to join, and what was made for it may still be there. */
static inline void process_shared_end(process_shared *s, bool left) {
    char command[200];
    if (left) {
        snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
        cr_assert_eq(system(command), 0);
    } else
        cr_assert_eq(rmdir(s->folder), 0, "%s: something is left: %s", s->folder, strerror(errno));
    munmap(s, sizeof *s);
}

/* Begins `ranks` processes, which end if this one does. */
static inline void process_begin(process_shared *s, unsigned ranks, void (*body)(process *), const void *argument) {
    pid_t parent = getpid();
    s->ranks = ranks;
    s->begun = fcp_clock();
    memset(s->words, 0, sizeof s->words);
    memset((void *)s->counter, 0, sizeof s->counter);
    fflush(NULL);
    for (unsigned r = 0; r < ranks; r++) {
        pid_t child = fork();
        cr_assert(child >= 0);
        if (child) {
            s->children[r] = child;
            continue;
        }
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(1);
        process p = {s, &s->words[r], r, ranks, argument, NULL, NULL};
        setenv("TMPDIR", s->folder, 1);
        if (process_stand(&p)) body(&p);
        else process_fails(&p, "no stand-in: %s", dlerror());
        process_ends(&p);
        if (PROCESS_LEAKS()) process_fails(&p, "memory leaks");
        _exit(0);
    }
}

/* Waits for their ends. One that has stopped itself is killed once all others have ended. */
static inline void process_end(process_shared *s) {
    fcp_patience patience = fcp_patience_of(PROCESS_SECONDS, 0.1);
    unsigned ranks = s->ranks;
    pid_t *children = s->children;
    for (unsigned running = ranks; running;) {
        bool late = fcp_patience_ends(&patience);
        running = 0;
        for (unsigned r = 0; r < ranks; r++) {
            int status;
            if (!children[r]) continue;
            if (late) kill(children[r], SIGKILL);
            s->words[r].late |= late;
            if (waitpid(children[r], &status, late ? 0 : WNOHANG) == children[r]) {
                s->words[r].status = status;
                s->words[r].seconds = fcp_clock() - s->begun;
                children[r] = 0;
            }
            running += children[r] != 0 && !s->words[r].stops;
        }
        for (unsigned r = 0; r < ranks && !running; r++)
            if (children[r]) {
                kill(children[r], SIGKILL);
                waitpid(children[r], &s->words[r].status, 0);
                children[r] = 0;
            }
        if (running) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static inline void process_run(process_shared *s, unsigned ranks, void (*body)(process *), const void *argument) {
    process_begin(s, ranks, body, argument);
    process_end(s);
}

/* Every rank but those of `except` got to its end, and found nothing wrong. */
static inline void process_all_well(const process_shared *s, unsigned ranks, unsigned except, const char *what) {
    for (unsigned r = 0; r < ranks; r++) {
        const process_word *w = &s->words[r];
        if (except >> r & 1) continue;
        cr_assert(!w->late, "%s: rank %u hangs; %s", what, r, w->failed);
        cr_assert(w->ended && WIFEXITED(w->status), "%s: rank %u ends with status %x; %s", what, r, (unsigned)w->status,
                  w->failed);
        cr_assert_str_empty(w->failed, "%s: rank %u: %s; %s", what, r, w->failed, w->trouble);
    }
}
#endif
