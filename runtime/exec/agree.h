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
/* Compares in a process that refuses the plan (mine->made is an error). True: all processes refuse it, so nothing has
 * changed for any of them. False: some have taken it, or it is unknown. */
bool fcp_agree_to_refuse(fcp_net *net, const fcp_promise *mine);

/* A call about a layer that recurs, as far as all processes must make the same one. */
typedef enum fcp_call_kind { FCP_CALL_HALO, FCP_CALL_HALO_GRADIENT, FCP_CALL_SCAN } fcp_call_kind;
typedef struct fcp_call {
    uint64_t row; /* halo: bytes of a row. Its gradient: numbers of a row. scan: 0 */
    uint32_t kind, layer, pass;
    uint32_t dtype; /* of a halo's gradient; else 0 */
} fcp_call;
/* The calls on which all processes have agreed so far. Zeros: none. */
typedef struct fcp_calls {
    fcp_call *list;
    uint32_t count, held;
} fcp_calls;
/* Compares a call that is new to `calls` with what the other processes call, and gives its number, which is the same in
 * all of them. A call that is known costs nothing.
 *   made   what has become of getting ready, as in fcp_promise. If it is an error, that is returned
 * FCP_E_ARGUMENT: another process makes another call. The code of another process: that one cannot begin. Then all
 * processes return an error, and the session goes on. FCP_E_RUN and FCP_E_INTERRUPTED: it is not known what the others
 * do, and the session must refuse further calls. */
fcp_code fcp_agree_call(fcp_net *net, fcp_calls *calls, const fcp_call *call, fcp_code made, uint32_t *out_number,
                        fcp_error *err);
/* Whether a call is known. */
bool fcp_call_known(const fcp_calls *calls, const fcp_call *call);
void fcp_calls_free(fcp_calls *calls);
#endif
