/* agree.h: the processes of a session make sure that they all run the same thing.
 *
 * Suppose rank 3 was given another plan than rank 0. Without this both would wait in a round for messages that never
 * come. So before the first pass, and whenever the plan changes, every process tells all others which plan it has (by
 * its digest), what it was asked for, and whether it is ready. Each then comes to the same verdict by itself.
 *
 * With one process there is nothing to agree about, and these functions only return what they were given.
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

/* All processes do this at the same point. FCP_OK: all are ready for the same plan, and the ranks that will talk have
 * met. Otherwise: this process's own error, for which *err stays as it is, or FCP_E_START with the first rank that
 * differs or that failed. May be repeated for another plan. */
fcp_code fcp_agree(fcp_net *net, const fcp_promise *mine, fcp_error *err);
/* The same where this process refuses the plan (mine->made is an error). True: all processes refuse it, so that
 * nothing has changed for anyone. False: some have taken it, or it cannot be known. */
bool fcp_agree_to_refuse(fcp_net *net, const fcp_promise *mine);
#endif
