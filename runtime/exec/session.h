/* session.h: what a session is to the functions of fcp.h: one of a few kinds, each a constant table. */
#ifndef FCP_EXEC_SESSION_H
#define FCP_EXEC_SESSION_H
#include "runtime/plan/plan.h"

typedef struct fcp_session_kind {
    const char *name; /* what options->backend says */
    /* `stream`: the caller's, of the kind's device; NULL: one of the session's own, waited for. */
    fcp_code (*run)(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err);
    fcp_code (*wait)(fcp_session *session, fcp_error *err); /* NULL: runs have ended when they return */
    /* NULL: there is one process */
    fcp_code (*gather)(fcp_session *session, const void *mine, size_t bytes, void *out_all, fcp_error *err);
    /* To another plan of the same model and ranks, which was compared. An error leaves the session with the plan it had, or
     * refusing runs. */
    fcp_code (*rebind)(fcp_session *session, const fcp_plan *plan, fcp_error *err);
    /* The new plan is not of the same model, or cannot be: where processes rebind together the others are told. NULL: there is
     * nobody to tell. */
    void (*refuse)(fcp_session *session, const fcp_plan *plan, fcp_code code, const fcp_error *why);
    /* `bytes` of rank `from` to rank 0's process; the others have nothing to do. NULL: there is one process */
    fcp_code (*collect)(fcp_session *session, uint32_t from, void *memory, size_t bytes, fcp_error *err);
    void (*free)(fcp_session *session);
    const char *(*backend)(const fcp_session *session);
    const char *(*transport)(const fcp_session *session);
    fcp_partition (*partition)(const fcp_session *session, const char **out_why); /* NULL: nothing to share */
    const char *(*warning)(const fcp_session *session); /* NULL: it has none */
    bool streams; /* it has streams that a caller may name */
} fcp_session_kind;

/* The base of every session. */
struct fcp_session {
    const fcp_session_kind *kind;
    const fcp_plan *plan;
    uint32_t first_rank, rank_count; /* the ranks of the plan that are this process's */
};
#endif
