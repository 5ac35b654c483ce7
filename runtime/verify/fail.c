/* fail.c: words the verifier's errors, and ends it when its caller asks. */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/stop.h"
#include "runtime/plan/enum_names.h"
#include "runtime/verify/verify_parts.h"

fcp_code fcp_verify_vfail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                          const char *format, va_list args) {
    if (!v->err) return code;
    char text[sizeof v->err->message];
    vsnprintf(text, sizeof text, format, args);
    const fcp_stream *s = fcp_stream_of(v->plan, v->pass, rank, queue);
    const char *pass = fcp_pass_names[v->pass], *which = fcp_queue_texts[queue];
    if (index >= s->count) {
        fcp_where at = FCP_WHERE_NONE;
        at.rank = rank;
        at.pass = v->pass;
        at.queue = queue;
        return fcp_fail_at(v->err, code, at, "%s, rank %u, %s queue: %s", pass, rank, which, text);
    }
    const fcp_instr *x = &v->plan->instrs[s->first + index];
    return fcp_fail_at(v->err, code, fcp_where_of(v->plan, v->pass, rank, queue, index),
                       "%s, rank %u, %s instruction %u (%s, stage %u): %s", pass, rank, which, index,
                       fcp_op_names[x->op], x->stage, text);
}

fcp_code fcp_verify_fail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                         const char *format, ...) {
    va_list args;
    va_start(args, format);
    fcp_verify_vfail(v, code, rank, queue, index, format, args);
    va_end(args);
    return code;
}

fcp_code fcp_verify_fail_rank(const verifier *v, fcp_error *err, fcp_code code, uint32_t rank, const char *format,
                              ...) {
    if (!err) return code;
    char text[sizeof err->message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fcp_where at = FCP_WHERE_NONE;
    at.rank = rank;
    at.pass = v->pass;
    return fcp_fail_at(err, code, at, "%s, rank %u%s", fcp_pass_names[v->pass], rank, text);
}

fcp_code fcp_verify_stopped(const verifier *v) {
    return fcp_stop_asked(v->stop) ? fcp_fail(v->err, FCP_E_INTERRUPTED, "interrupted") : FCP_OK;
}
