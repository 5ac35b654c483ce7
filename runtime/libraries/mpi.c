/* mpi.c: loads MPI, begins and ends it, and hides which kind it is.
 *
 * Requires: a process started by mpirun or srun, in which nobody has called MPI_Finalize.
 * Method:   no MPI is linked: its functions are found by name, in the process itself or in a library. The symbols that
 *           are there tell which kind of MPI it is (mpi_symbols.h).
 * Cost:     some tenths of a second for MPI_Init. MPI has no timeout: if a rank does not come, it is mpirun that has
 *           to notice.
 */
#define _GNU_SOURCE
#include "runtime/libraries/mpi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/libraries/mpi_symbols.h"
#include "runtime/libraries/shared_library.h"

static const char *const symbols[] = {
#define X(name, type) #name,
    FCP_MPI_SYMBOLS(X, , , , , )
#undef X
};
enum { SYMBOL_COUNT = sizeof symbols / sizeof *symbols };
/* Where both kinds are installed, that of the launcher is taken. */
static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so", NULL};
static const char *const mpich_names[] = {"libmpich.so.12", "libmpi.so.12", "libmpi.so", NULL};
_Static_assert(sizeof(fcp_open_mpi) == SYMBOL_COUNT * sizeof(void (*)(void)) &&
                   sizeof(fcp_mpich) == sizeof(fcp_open_mpi),
               "the tables hold pointers and nothing else");

/* What a beat says. */
typedef struct beat {
    uint32_t rank, got_on, left; /* left: it is the last one for now */
} beat;
/* The beats between this process and another one. */
typedef struct beats {
    uint64_t came, got_on;
    fcp_mpi_handle sent;
    bool sending; /* `sent` is under way */
    bool left;    /* as the last beat said */
    beat says;
} beats;

/* The MPI of this process. */
static struct {
    pthread_mutex_t lock; /* held around every call */
    bool begun, forsaken, any_time; /* any_time: it serves threads whenever they call */
    fcp_mpi_kept *kept; /* reachable, so that it counts as no leak */
    fcp_open_mpi open;
    fcp_mpich mpich;
    void *world, *byte, *errors_return; /* Open MPI's handles; NULL: it is MPICH, whose handles are integers */
    /* beats, under their own lock, which is taken before the other */
    pthread_mutex_t beats_lock;
    fcp_mpi_handle beats_comm, hears;
    bool beats_made, hearing; /* hearing: `hears` is under way */
    beat heard;
    beats *beats; /* of each rank; NULL: this process has none */
    uint32_t rank, ranks, beating; /* ranks: 0 before the first session and after the end; beating: sessions */
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .beats_lock = PTHREAD_MUTEX_INITIALIZER};

/* Calls `name` of the MPI that is there, with the arguments for Open MPI or those for MPICH. True: it succeeded. */
#define CALL(name, open_arguments, mpich_arguments)                                                                    \
    (mpi.world ? mpi.open.name open_arguments == MPI_DONE : mpi.mpich.name mpich_arguments == MPI_DONE)
#define UNDER_LOCK(out, call)                                                                                          \
    do {                                                                                                               \
        pthread_mutex_lock(&mpi.lock);                                                                                 \
        out = call;                                                                                                    \
        pthread_mutex_unlock(&mpi.lock);                                                                               \
    } while (0)

/* --- beginning and ending ----------------------------------------------------------------------------------------- */

/* Finds MPI's functions: in the process itself if it has them all, else in a library that is loaded. *out_path is then
 * its file, which the caller frees, and else stays as it is. */
static fcp_code load(const char *from, char **out_path, fcp_error *err) {
    const fcp_library library = {
        "MPI",          "FCP_MPI",        strcmp(from, "MPICH") ? names : mpich_names,
        symbols,        SYMBOL_COUNT,     "install the MPI that mpirun is of; tcp and nccl do without: --id-file PATH",
        .global = true, .installed = true};
    bool own = true;
    void (*table[SYMBOL_COUNT])(void);
    for (int i = 0; i < SYMBOL_COUNT; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, symbols[i]);
        own = own && symbol;
        memcpy(&table[i], &symbol, sizeof symbol);
    }
    fcp_code code = own ? FCP_OK : fcp_library_load(&library, table, out_path, err);
    if (code) {
        if (err) err->code = FCP_E_START;
        return FCP_E_START;
    }
    memcpy(&mpi.open, table, sizeof table);
    memcpy(&mpi.mpich, table, sizeof table);
    /* RTLD_DEFAULT also sees a library that was just loaded, because library.global is set. */
    mpi.world = dlsym(RTLD_DEFAULT, OPEN_MPI_WORLD);
    mpi.byte = dlsym(RTLD_DEFAULT, OPEN_MPI_BYTE);
    mpi.errors_return = dlsym(RTLD_DEFAULT, OPEN_MPI_ERRORS_RETURN);
    if (!mpi.world != !mpi.byte || !mpi.world != !mpi.errors_return)
        return fcp_fail(err, FCP_E_START, "MPI is neither Open MPI nor of MPICH's kind");
    return FCP_OK;
}

static void end(void) {
    if (mpi.forsaken) return;
    pthread_mutex_lock(&mpi.beats_lock);
    if (mpi.hearing) fcp_mpi_cancel(&mpi.hears);
    mpi.hearing = false;
    mpi.ranks = 0; /* a session that was not freed may still beat */
    pthread_mutex_unlock(&mpi.beats_lock);
    pthread_mutex_lock(&mpi.lock);
    int ended = 0;
    mpi.open.finalized(&ended);
    if (!ended) mpi.open.finalize();
    pthread_mutex_unlock(&mpi.lock);
}

/* What MPI_Initialized or MPI_Finalized says; 0 if the call fails. */
static int ask_flag(int (*call)(int *)) {
    int flag = 0;
    return call(&flag) == MPI_DONE ? flag : 0;
}

/* Begins MPI unless the caller has, and asks whether it can serve threads. */
static fcp_code begin(fcp_error *err) {
    int threads = 0;
    bool ours = !ask_flag(mpi.open.initialized);
    if (ours && mpi.open.init(NULL, NULL, MPI_MULTIPLE, &threads))
        return fcp_fail(err, FCP_E_START, "MPI does not begin");
    if (!ours && mpi.open.query_thread(&threads)) threads = 0;
    if (ours) atexit(end);
    if (threads < MPI_SERIALIZED)
        return fcp_fail(err, FCP_E_START,
                        "MPI was begun for one thread: MPI_Init_thread must ask for MPI_THREAD_SERIALIZED or more");
    mpi.any_time = threads >= MPI_MULTIPLE;
    mpi.begun = true;
    return FCP_OK;
}

static fcp_code check_rank(uint32_t rank, uint32_t ranks, const char *from, fcp_error *err) {
    int own = -1, all = -1;
    if (!CALL(rank, (mpi.world, &own), (MPICH_WORLD, &own)) || !CALL(size, (mpi.world, &all), (MPICH_WORLD, &all)))
        return fcp_fail(err, FCP_E_START, "MPI does not say which process this is");
    if (all >= 0 && (uint32_t)all == ranks && own >= 0 && (uint32_t)own == rank) return FCP_OK;
    return fcp_fail(err, FCP_E_START,
                    "MPI says that this is process %d of %d, and %s that it is %u of %u: is it the MPI that "
                    "started it?",
                    own, all, from, rank, ranks);
}

fcp_code fcp_mpi_begin(uint32_t rank, uint32_t ranks, const char *from, fcp_error *err) {
    char *path = NULL;
    pthread_mutex_lock(&mpi.lock);
    fcp_code code = mpi.begun ? FCP_OK : load(from, &path, err);
    free(path);
    if (!code && ask_flag(mpi.open.finalized))
        code = fcp_fail(err, FCP_E_START,
                        "MPI has been ended in this process and cannot be begun again: keep it, or hand in the id");
    if (!code && !mpi.begun) code = begin(err);
    if (!code) code = check_rank(rank, ranks, from, err);
    pthread_mutex_unlock(&mpi.lock);
    return code;
}

fcp_code fcp_mpi_look(char version[FCP_MPI_VERSION], char **out_path, fcp_error *err) {
    enum { LONGEST = 8192 + 1 }; /* MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI, and 8192 in MPICH */
    int (*say)(char *, int *), size = 0;
    char *path = NULL, *said = calloc(LONGEST, 1);
    if (!said) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&mpi.lock);
    fcp_code code = load("", &path, err);
    if (!code) {
        *(void **)&say = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
        if (!say || say(said, &size) || !*said) strcpy(said, mpi.world ? "Open MPI" : "MPICH or one like it");
        snprintf(version, FCP_MPI_VERSION, "%.*s", (int)strcspn(said, ",\n"), said);
        if (!path && !(path = strdup(""))) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    }
    pthread_mutex_unlock(&mpi.lock);
    free(said);
    if (code) free(path);
    else *out_path = path;
    return code;
}

void fcp_mpi_forsake(fcp_mpi_kept *kept) {
    pthread_mutex_lock(&mpi.beats_lock);
    mpi.any_time = false; /* the communicator of beats, if it is not made yet, may never be */
    pthread_mutex_unlock(&mpi.beats_lock);
    pthread_mutex_lock(&mpi.lock);
    mpi.forsaken = true;
    if (kept) {
        kept->next = mpi.kept;
        mpi.kept = kept;
    }
    pthread_mutex_unlock(&mpi.lock);
}

/* --- communicators ------------------------------------------------------------------------------------------------ */

bool fcp_mpi_communicator(fcp_mpi_handle *comm, fcp_mpi_handle *request) {
    bool done;
    UNDER_LOCK(done, CALL(idup, (mpi.world, &comm->pointer, &request->pointer),
                          (MPICH_WORLD, &comm->number, &request->number)));
    return done;
}

bool fcp_mpi_communicator_ready(fcp_mpi_handle comm) {
    bool done;
    UNDER_LOCK(done, CALL(set_errhandler, (comm.pointer, mpi.errors_return), (comm.number, MPICH_ERRORS_RETURN)));
    return done;
}

void fcp_mpi_communicator_free(fcp_mpi_handle comm) {
    bool done;
    UNDER_LOCK(done, CALL(comm_free, (&comm.pointer), (&comm.number)));
    (void)done; /* nobody needs it any more */
}

/* --- transfers ---------------------------------------------------------------------------------------------------- */

bool fcp_mpi_broadcast(void *data, int bytes) {
    bool done;
    UNDER_LOCK(done, CALL(broadcast, (data, bytes, mpi.byte, 0, mpi.world), (data, bytes, MPICH_BYTE, 0, MPICH_WORLD)));
    return done;
}

bool fcp_mpi_send(fcp_mpi_handle comm, const void *data, int bytes, uint32_t to, int tag, fcp_mpi_handle *request) {
    bool done;
    UNDER_LOCK(done, CALL(send, (data, bytes, mpi.byte, (int)to, tag, comm.pointer, &request->pointer),
                          (data, bytes, MPICH_BYTE, (int)to, tag, comm.number, &request->number)));
    return done;
}

bool fcp_mpi_receive(fcp_mpi_handle comm, void *data, int bytes, uint32_t from, int tag, fcp_mpi_handle *request) {
    bool done;
    const bool any = from == FCP_MPI_ANYBODY;
    UNDER_LOCK(done, CALL(receive, (data, bytes, mpi.byte, any ? OPEN_MPI_ANY : (int)from, tag, comm.pointer,
                                    &request->pointer),
                          (data, bytes, MPICH_BYTE, any ? MPICH_ANY : (int)from, tag, comm.number, &request->number)));
    return done;
}

bool fcp_mpi_gather(fcp_mpi_handle comm, const void *mine, int bytes, void *all, fcp_mpi_handle *request) {
    bool done;
    UNDER_LOCK(done, CALL(gather, (mine, bytes, mpi.byte, all, bytes, mpi.byte, comm.pointer, &request->pointer),
                          (mine, bytes, MPICH_BYTE, all, bytes, MPICH_BYTE, comm.number, &request->number)));
    return done;
}

bool fcp_mpi_test(fcp_mpi_handle *request, bool *out_done) {
    bool done;
    int flag = 0;
    char status[FCP_MPI_STATUS];
    UNDER_LOCK(done, CALL(test, (&request->pointer, &flag, status), (&request->number, &flag, status)));
    *out_done = flag != 0;
    return done;
}

void fcp_mpi_cancel(fcp_mpi_handle *request) {
    bool done;
    char status[FCP_MPI_STATUS];
    UNDER_LOCK(done, CALL(cancel, (&request->pointer), (&request->number)) &&
                         CALL(wait, (&request->pointer, status), (&request->number, status)));
    (void)done; /* it is given up in any case */
}

/* --- beats -------------------------------------------------------------------------------------------------------- */

enum { TAG_BEAT = 1 };

bool fcp_mpi_beats(fcp_mpi_handle *request, bool *out_new) {
    pthread_mutex_lock(&mpi.beats_lock);
    *out_new = !mpi.beats_made;
    bool good = mpi.beats_made || fcp_mpi_communicator(&mpi.beats_comm, request);
    mpi.beats_made = good;
    pthread_mutex_unlock(&mpi.beats_lock);
    return good;
}

bool fcp_mpi_beats_enter(uint32_t rank, uint32_t ranks) {
    pthread_mutex_lock(&mpi.beats_lock);
    if (mpi.any_time && !mpi.beats && fcp_mpi_communicator_ready(mpi.beats_comm)) {
        mpi.beats = calloc(ranks, sizeof *mpi.beats);
        mpi.rank = rank;
        mpi.ranks = mpi.beats ? ranks : 0;
    }
    const bool good = mpi.beats != NULL;
    mpi.beating += good;
    pthread_mutex_unlock(&mpi.beats_lock);
    return good;
}

/* True: it has been sent, or cannot be. False: the other process has not taken the last one. */
static bool send_beat(uint32_t rank, beat says) {
    beats *to = &mpi.beats[rank];
    bool done = false;
    if (to->sending && fcp_mpi_test(&to->sent, &done) && !done) return false;
    to->says = says;
    to->sending = fcp_mpi_send(mpi.beats_comm, &to->says, sizeof to->says, rank, TAG_BEAT, &to->sent);
    return true;
}

/* A beat is so small that MPI takes it at once, unless there are many that a process has not looked at. */
void fcp_mpi_beats_leave(void) {
    fcp_patience patience = fcp_patience_of(0.5, 0.1);
    pthread_mutex_lock(&mpi.beats_lock);
    bool last = --mpi.beating == 0;
    for (uint32_t r = 0; last && r < mpi.ranks; r++)
        for (long pause = 1000; r != mpi.rank && !send_beat(r, (beat){.rank = mpi.rank, .left = true});
             fcp_pause(&pause, 1000000))
            if (fcp_patience_ends(&patience)) break;
    pthread_mutex_unlock(&mpi.beats_lock);
}

void fcp_mpi_beat(bool got_on) {
    pthread_mutex_lock(&mpi.beats_lock);
    for (uint32_t r = 0; r < mpi.ranks; r++)
        if (r != mpi.rank) send_beat(r, (beat){.rank = mpi.rank, .got_on = got_on});
    while (mpi.ranks) {
        bool came = false;
        if (!mpi.hearing)
            mpi.hearing = fcp_mpi_receive(mpi.beats_comm, &mpi.heard, sizeof mpi.heard, FCP_MPI_ANYBODY, TAG_BEAT,
                                          &mpi.hears);
        if (!mpi.hearing || !fcp_mpi_test(&mpi.hears, &came) || !came) break;
        mpi.hearing = false;
        if (mpi.heard.rank >= mpi.ranks) continue;
        beats *from = &mpi.beats[mpi.heard.rank];
        from->came++;
        from->got_on += mpi.heard.got_on;
        from->left = mpi.heard.left;
    }
    pthread_mutex_unlock(&mpi.beats_lock);
}

bool fcp_mpi_beats_of(uint32_t rank, uint64_t *came, uint64_t *got_on) {
    static const beats none = {.left = true};
    pthread_mutex_lock(&mpi.beats_lock);
    const beats from = rank < mpi.ranks ? mpi.beats[rank] : none;
    pthread_mutex_unlock(&mpi.beats_lock);
    *came = from.came;
    *got_on = from.got_on;
    return !from.left;
}
