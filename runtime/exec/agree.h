/* agree.h: before a session runs, its processes make sure that they all run the same plan.
 *
 * Suppose rank 3 was given another plan than rank 0. Unchecked, both would wait in a round for messages that never
 * come. So before the first pass, and whenever the plan changes, every process tells all others the digest of its plan,
 * what it was asked for, and whether it is ready. All processes see the same answers, so all come to the same verdict.
 *
 * With one process there is nothing to compare, and these functions only return what they were given.
 */
#ifndef FCP_EXEC_AGREE_H
#define FCP_EXEC_AGREE_H
#include "runtime/exec/transport.h"

/* What each process tells the others. */
typedef struct fcp_promise {
    const fcp_plan *plan;
    uint32_t graph_from; /* as fcp_session_options says */
    fcp_code made;       /* what has become of getting ready: FCP_OK, or the error */
} fcp_promise;

/* Compares `mine` with what all other processes promise. All of them must call this at the same point; it may be
 * repeated for another plan. FCP_OK: all are ready for the same plan, and ranks that exchange messages are connected.
 * If this process has an error of its own, which *err has already, that is returned. Otherwise FCP_E_START names the
 * first rank that differs or has failed. */
fcp_code fcp_agree(fcp_net *net, const fcp_promise *mine, fcp_error *err);
/* The same for a process that refuses the plan (mine->made is an error). True: all processes refuse it, so nothing
 * has changed for any of them. False: some have taken it, or it is unknown. */
bool fcp_agree_to_refuse(fcp_net *net, const fcp_promise *mine);
#endif
