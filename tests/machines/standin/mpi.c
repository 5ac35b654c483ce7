/* mpi.c: a stand-in for MPI: a library with the few functions of MPI that the runtime calls. So transports over MPI can
 * be tested on machines without MPI, and for both kinds of handles.
 *
 * It is built twice: with Open MPI's handles, which are pointers to objects, and with MPICH's, which are integers
 * (MPI_OPEN says which). A test chooses it with FCP_MPI. Processes meet in a file, $STANDIN_MPI, which the test removes
 * once all have begun; $STANDIN_MPI_RANK and $STANDIN_MPI_SIZE say which rank a process is. $STANDIN_MPI_THREADS is its
 * level of thread support (MPI_THREAD_MULTIPLE if it is not set).
 *
 * Bytes from one rank to another go through a ring buffer of mailbox.h, as frames: a header, then the message. The
 * receiver copies each frame into memory of its own, keeps it until a receive fits, and gives it to the first one that
 * does, as MPI demands. Transfers only progress while a process is inside one of the functions, as in an MPI without
 * threads of its own.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "runtime/libraries/mpi_symbols.h"
#include "tests/machines/standin/mailbox.h"

enum { REQUESTS = 512, TAG_ALL = 1 << 20, TAG_ROOT };

typedef enum kind { UNUSED, SEND, RECEIVE, GATHER } kind;
typedef struct frame {
    int tag, comm;
    uint64_t bytes;
} frame;
typedef struct request {
    kind kind;
    bool done, wrong, cancelled;
    int peer, tag, comm;
    uint64_t order;       /* requests have numbers, in the order in which they were begun */
    char *data;
    uint64_t bytes, moved; /* moved: of a send, its frame's header counted */
    int parts[2 * BOX_RANKS], count; /* of a gather */
} request;
/* A frame that no receive has asked for yet. */
typedef struct waiting {
    struct waiting *next;
    int from;
    frame frame;
    char data[];
} waiting;

#ifdef MPI_OPEN
typedef void *handle;
typedef fcp_open_mpi symbols;
extern char ompi_mpi_comm_world[8], ompi_mpi_byte[8], ompi_mpi_errors_return[8];
char ompi_mpi_comm_world[8], ompi_mpi_byte[8], ompi_mpi_errors_return[8];
#define WORLD ((handle)ompi_mpi_comm_world)
#define BYTE ((handle)ompi_mpi_byte)
#define RETURN ((handle)ompi_mpi_errors_return)
#define ANY OPEN_MPI_ANY
static char comms[64]; /* of the communicators that were made */
static handle handle_of(int number) { return &comms[number]; }
static int number_of(handle comm) { return comm == WORLD ? 0 : (int)((char *)comm - comms); }
#else
typedef int handle;
typedef fcp_mpich symbols;
#define WORLD MPICH_WORLD
#define BYTE MPICH_BYTE
#define RETURN MPICH_ERRORS_RETURN
#define ANY MPICH_ANY
static handle handle_of(int number) { return 1000 + number; }
static int number_of(handle comm) { return comm == WORLD ? 0 : comm - 1000; }
#endif

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *given);
int MPI_Initialized(int *flag);
int MPI_Query_thread(int *given);
int MPI_Finalized(int *flag);
int MPI_Finalize(void);
int MPI_Comm_rank(handle comm, int *rank);
int MPI_Comm_size(handle comm, int *size);
int MPI_Comm_idup(handle comm, handle *made, handle *out);
int MPI_Comm_free(handle *comm);
int MPI_Comm_set_errhandler(handle comm, handle errors);
int MPI_Bcast(void *bytes, int count, handle type, int root, handle comm);
int MPI_Isend(const void *data, int count, handle type, int to, int tag, handle comm, handle *out);
int MPI_Irecv(void *data, int count, handle type, int from, int tag, handle comm, handle *out);
int MPI_Iallgather(const void *mine, int count, handle type, void *all, int each, handle type_each, handle comm,
                   handle *out);
int MPI_Test(handle *r, int *flag, void *status);
int MPI_Cancel(handle *r);
int MPI_Wait(handle *r, void *status);
/* Makes the compiler check that the functions have the types that callers think they have. */
static const symbols table __attribute__((unused)) = {
#define X(symbol, type) symbol,
    FCP_MPI_SYMBOLS(X, handle, handle, handle, handle, void)
#undef X
};

static bool begun, ended;
static int rank, ranks, made; /* made: communicators */
static uint64_t order;
static box_pair *pairs; /* [from][to] */
static request requests[REQUESTS];
static waiting *first;
static struct { /* the frame that is being read, from each rank */
    frame frame;
    uint64_t read; /* of its header and data */
    waiting *into;
} incoming[BOX_RANKS];

#ifdef MPI_OPEN
static handle handle_of_request(int i) { return &requests[i]; }
static int request_of(handle h) { return h ? (int)((request *)h - requests) : -1; }
#else
static handle handle_of_request(int i) { return i + 1; }
static int request_of(handle h) { return h - 1; }
#endif

/* --- what is under way -------------------------------------------------------------------------------------------- */

static bool fits(const request *r, int from, const frame *f) {
    return r->kind == RECEIVE && !r->done && (r->peer == ANY || r->peer == from) && r->tag == f->tag &&
           r->comm == f->comm;
}

static void give(request *r, const frame *f, const char *data) {
    r->done = true;
    r->wrong = f->bytes > r->bytes;
    memcpy(r->data, data, r->wrong ? r->bytes : f->bytes);
}

/* A frame is whole: the earliest receive that fits gets it, or it waits. */
static void arrive(int from, waiting *w) {
    request *best = NULL;
    for (int i = 0; i < REQUESTS; i++)
        if (fits(&requests[i], from, &w->frame) && (!best || requests[i].order < best->order)) best = &requests[i];
    if (best) {
        give(best, &w->frame, w->data);
        free(w);
        return;
    }
    waiting **at = &first;
    while (*at) at = &(*at)->next;
    w->from = from;
    w->next = NULL;
    *at = w;
}

static void read_from(int from) {
    box_pair *p = &pairs[from * ranks + rank];
    for (;;) {
        uint64_t *read = &incoming[from].read;
        if (*read < sizeof(frame)) {
            *read += box_read(p, (char *)&incoming[from].frame + *read, sizeof(frame) - *read);
            if (*read < sizeof(frame)) return;
            incoming[from].into = malloc(sizeof(waiting) + incoming[from].frame.bytes);
            if (!incoming[from].into) abort();
            incoming[from].into->frame = incoming[from].frame;
        }
        uint64_t at = *read - sizeof(frame), left = incoming[from].frame.bytes - at;
        *read += box_read(p, incoming[from].into->data + at, left);
        if (*read - sizeof(frame) < incoming[from].frame.bytes) return;
        *read = 0;
        arrive(from, incoming[from].into);
    }
}

/* Writes what there is room for of the earliest send to a rank that is not done. */
static void write_to(int to) {
    for (;;) {
        request *r = NULL;
        for (int i = 0; i < REQUESTS; i++)
            if (requests[i].kind == SEND && !requests[i].done && requests[i].peer == to &&
                (!r || requests[i].order < r->order))
                r = &requests[i];
        if (!r) return;
        box_pair *p = &pairs[rank * ranks + to];
        const frame f = {r->tag, r->comm, r->bytes};
        if (r->moved < sizeof f) r->moved += box_write(p, (const char *)&f + r->moved, sizeof f - r->moved);
        if (r->moved >= sizeof f)
            r->moved += box_write(p, r->data + (r->moved - sizeof f), r->bytes + sizeof f - r->moved);
        r->done = r->moved == r->bytes + sizeof f;
        if (!r->done) return;
    }
}

static void go_on(void) {
    for (int r = 0; r < ranks; r++)
        if (r != rank) write_to(r), read_from(r);
}

static int begin(request r) {
    for (int i = 0; i < REQUESTS; i++)
        if (requests[i].kind == UNUSED) {
            requests[i] = r;
            requests[i].order = order++;
            return i;
        }
    abort(); /* a test with so many has a fault */
}

static int begin_send(const void *data, uint64_t bytes, int to, int tag, int comm) {
    int i = begin((request){.kind = SEND, .peer = to, .tag = tag, .comm = comm, .data = (char *)(uintptr_t)data,
                            .bytes = bytes});
    go_on();
    return i;
}

static int begin_receive(void *data, uint64_t bytes, int from, int tag, int comm) {
    int i = begin((request){.kind = RECEIVE, .peer = from, .tag = tag, .comm = comm, .data = data, .bytes = bytes});
    for (waiting **at = &first; *at; at = &(*at)->next)
        if (fits(&requests[i], (*at)->from, &(*at)->frame)) {
            waiting *w = *at;
            give(&requests[i], &w->frame, w->data);
            *at = w->next;
            free(w);
            break;
        }
    return i;
}

static bool is_done(request *r) {
    if (r->kind != GATHER) return r->done;
    for (int i = 0; i < r->count; i++)
        if (!requests[r->parts[i]].done) return false;
    for (int i = 0; i < r->count; i++) requests[r->parts[i]].kind = UNUSED;
    return true;
}

/* --- the functions ------------------------------------------------------------------------------------------------ */

static int number(const char *name, int none) {
    const char *text = getenv(name);
    return text ? atoi(text) : none;
}
static bool is_comm(handle comm) { return begun && !ended && number_of(comm) >= 0 && number_of(comm) <= made; }

int MPI_Query_thread(int *given) {
    *given = number("STANDIN_MPI_THREADS", 3);
    return 0;
}
int MPI_Init_thread(int *argc, char ***argv, int wanted, int *given) {
    const char *path = getenv("STANDIN_MPI");
    rank = number("STANDIN_MPI_RANK", 0);
    ranks = number("STANDIN_MPI_SIZE", 1);
    if (argc || argv || begun || wanted != MPI_MULTIPLE || !path || ranks > BOX_RANKS) return 1;
    size_t bytes = (size_t)ranks * (size_t)ranks * sizeof *pairs;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool good = file >= 0 && !ftruncate(file, (off_t)bytes);
    void *map = good ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (file >= 0) close(file);
    if (map == MAP_FAILED) return 1;
    pairs = map;
    begun = true;
    return MPI_Query_thread(given);
}
int MPI_Initialized(int *flag) {
    *flag = begun;
    return 0;
}
int MPI_Finalized(int *flag) {
    *flag = ended;
    return 0;
}
int MPI_Finalize(void) {
    if (!begun || ended) return 1;
    ended = true;
    return 0;
}
int MPI_Comm_rank(handle comm, int *out) {
    if (!is_comm(comm)) return 1;
    *out = rank;
    return 0;
}
int MPI_Comm_size(handle comm, int *out) {
    if (!is_comm(comm)) return 1;
    *out = ranks;
    return 0;
}
int MPI_Comm_set_errhandler(handle comm, handle errors) { return !is_comm(comm) || comm == WORLD || errors != RETURN; }
int MPI_Comm_free(handle *comm) { return !is_comm(*comm) || *comm == WORLD; }

int MPI_Isend(const void *data, int count, handle type, int to, int tag, handle comm, handle *out) {
    if (!is_comm(comm) || type != BYTE || count < 0 || to < 0 || to >= ranks || to == rank || tag < 0) return 1;
    *out = handle_of_request(begin_send(data, (uint64_t)count, to, tag, number_of(comm)));
    return 0;
}
int MPI_Irecv(void *data, int count, handle type, int from, int tag, handle comm, handle *out) {
    if (!is_comm(comm) || type != BYTE || count < 0 || from >= ranks || (from < 0 && from != ANY)) return 1;
    *out = handle_of_request(begin_receive(data, (uint64_t)count, from, tag, number_of(comm)));
    return 0;
}
int MPI_Iallgather(const void *mine, int count, handle type, void *all, int each, handle type_each, handle comm,
                   handle *out) {
    if (!is_comm(comm) || type != BYTE || type_each != BYTE || count != each) return 1;
    int i = begin((request){.kind = GATHER});
    request *g = &requests[i];
    for (int r = 0; r < ranks; r++) {
        char *place = (char *)all + (size_t)r * (size_t)each;
        if (r == rank) {
            memcpy(place, mine, (size_t)each);
            continue;
        }
        g->parts[g->count++] = begin_receive(place, (uint64_t)each, r, TAG_ALL, number_of(comm));
        g->parts[g->count++] = begin_send(mine, (uint64_t)count, r, TAG_ALL, number_of(comm));
    }
    *out = handle_of_request(i);
    return 0;
}
int MPI_Comm_idup(handle comm, handle *copy, handle *out) {
    static char all[BOX_RANKS], mine;
    *copy = handle_of(++made);
    return MPI_Iallgather(&mine, 1, BYTE, all, 1, BYTE, comm, out);
}
int MPI_Test(handle *h, int *flag, void *status) {
    memset(status, 0x55, FCP_MPI_STATUS / 2);
    int i = request_of(*h);
    if (i < 0 || i >= REQUESTS || requests[i].kind == UNUSED || !begun || ended) return 1;
    go_on();
    *flag = requests[i].cancelled || is_done(&requests[i]);
    if (*flag) requests[i].kind = UNUSED;
    if (*flag) memset(h, 0, sizeof *h);
    return *flag && requests[i].wrong;
}
int MPI_Wait(handle *h, void *status) {
    for (int flag = 0;; nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL))
        if (MPI_Test(h, &flag, status)) return 1;
        else if (flag) return 0;
}
int MPI_Cancel(handle *h) {
    int i = request_of(*h);
    if (i < 0 || requests[i].kind != RECEIVE) return 1;
    requests[i].cancelled = !requests[i].done;
    return 0;
}
int MPI_Bcast(void *bytes, int count, handle type, int root, handle comm) {
    char status[FCP_MPI_STATUS];
    handle h;
    if (!is_comm(comm) || type != BYTE || root) return 1;
    for (int r = 0; r < ranks; r++) {
        if ((rank == root) == (r == root) || (rank != root && r != root)) continue;
        int i = rank == root ? begin_send(bytes, (uint64_t)count, r, TAG_ROOT, number_of(comm))
                             : begin_receive(bytes, (uint64_t)count, r, TAG_ROOT, number_of(comm));
        h = handle_of_request(i);
        if (MPI_Wait(&h, status)) return 1;
    }
    return 0;
}
