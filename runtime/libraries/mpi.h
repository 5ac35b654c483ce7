/* mpi.h: the functions of MPI that are used, of whichever MPI started the process.
 *
 * Nothing of MPI is included or linked, so that a machine without it can build and run all the rest. The library is
 * loaded when it is first needed. There are two kinds: in Open MPI a handle is a pointer to an object, in MPICH and its
 * relatives it is an integer. These functions hide the difference.
 *
 * MPI can be begun and ended once in a process. So it is begun here if the caller has not begun it, and then ended when
 * the process exits, never earlier. A caller who has begun it ends it, after the last session.
 *
 * Only one thread at a time is inside MPI through these functions. MPI must be begun with MPI_THREAD_SERIALIZED or
 * more. Beats (short messages that say "I am alive", see below) need MPI_THREAD_MULTIPLE, and so does a caller with MPI
 * calls in other threads at the same time.
 */
#ifndef FCP_LIBRARIES_MPI_H
#define FCP_LIBRARIES_MPI_H
#include "runtime/fcp.h"

typedef union fcp_mpi_handle {
    void *pointer; /* Open MPI */
    int number;    /* MPICH */
} fcp_mpi_handle;

/* Loads MPI and begins it, unless that has been done. `from` ("torchrun", say) says that this process is `rank` of
 * `ranks`; MPI must say the same. FCP_E_START: there is no MPI; MPI says another rank or number; it cannot be used from
 * threads; or it has been ended. */
fcp_code fcp_mpi_begin(uint32_t rank, uint32_t ranks, const char *from, fcp_error *err);
/* Loads MPI without beginning it, and says which it is, by the words of MPI_Get_library_version, and its file ("": this
 * process has MPI linked in). The caller frees *out_path. FCP_E_START: there is no MPI. */
enum { FCP_MPI_VERSION = 128 };
fcp_code fcp_mpi_look(char out_version[FCP_MPI_VERSION], char **out_path, fcp_error *err);
/* Says that other ranks may hang. MPI is then not ended when this process exits, because that would wait for them. The
 * launcher sees a process that has exited without ending MPI, and ends all others. MPI may still write to the memory
 * that begins with `kept` (NULL: there is none), so that memory is never freed. */
typedef struct fcp_mpi_kept {
    struct fcp_mpi_kept *next;
} fcp_mpi_kept;
void fcp_mpi_forsake(fcp_mpi_kept *kept);

/* The rest needs fcp_mpi_begin. They return true, or false if MPI has failed. */

/* Begins to make a communicator of all ranks, so that its messages meet no others. Once the request is done, it is made
 * ready: its errors are returned then and end no process. */
bool fcp_mpi_communicator(fcp_mpi_handle *out_comm, fcp_mpi_handle *out_request);
bool fcp_mpi_communicator_ready(fcp_mpi_handle comm);
void fcp_mpi_communicator_free(fcp_mpi_handle comm);
/* `bytes` of rank 0 to all; waits for it. */
bool fcp_mpi_broadcast(void *data, int bytes);
/* These begin a transfer. Until the request is done, what is sent must not change, and what is received must not be
 * read. */
bool fcp_mpi_send(fcp_mpi_handle comm, const void *data, int bytes, uint32_t to, int tag, fcp_mpi_handle *out_request);
#define FCP_MPI_ANYBODY UINT32_MAX /* as `from` */
bool fcp_mpi_receive(fcp_mpi_handle comm, void *data, int bytes, uint32_t from, int tag, fcp_mpi_handle *out_request);
/* `bytes` of each rank, to all, in order of rank. */
bool fcp_mpi_gather(fcp_mpi_handle comm, const void *mine, int bytes, void *out_all, fcp_mpi_handle *out_request);
/* Has it ended? Then *request is of no more use. */
bool fcp_mpi_test(fcp_mpi_handle *request, bool *out_done);
/* Gives up a receive that nothing has come for. */
void fcp_mpi_cancel(fcp_mpi_handle *request);

/* Beats are short messages by which processes tell each other that they are alive while others wait
 * (runtime/host/heartbeat.h). They have a communicator that stays until the process exits, because a beat may still be
 * on its way when the session ends for which it was sent. A thread sends them at any time, so they need
 * MPI_THREAD_MULTIPLE; where MPI is begun here, it is asked for that.
 *
 * fcp_mpi_beats begins to make the communicator; all processes do this at the same point. If *out_new is true, the
 * caller must wait for *out_request. If it is false, the communicator is there already.
 */
bool fcp_mpi_beats(fcp_mpi_handle *out_request, bool *out_new);
/* Called when the communicator has been made: a session begins to beat. Returns false if this process sends no beats,
 * because its MPI does not serve threads at any time or there is no memory. */
bool fcp_mpi_beats_enter(uint32_t rank, uint32_t ranks);
/* A session beats no more. If it is the last one, all others learn that no beat will come. */
void fcp_mpi_beats_leave(void);
/* Sends a beat to each other process that has taken the last one, and reads those that have come. From any thread. */
void fcp_mpi_beat(bool got_on);
/* How many beats have come from a rank, and how many of them said that it has got on. Returns whether more are to come:
 * the last one was not its farewell. */
bool fcp_mpi_beats_of(uint32_t rank, uint64_t *out_beats, uint64_t *out_got_on);
#endif
