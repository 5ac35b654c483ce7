/* packed.c: cuts packed tensors by a plan's layout, runs a session on the parts, and puts the results together again.
 *
 * Requires: a checked plan; tensors of the plan's shape.
 * Cost:     linear in the tensors.
 */
#include "runtime/judge/packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/exec/session.h"

/* Fills the allocated tensors of `set` with NaNs, so that what a run does not write cannot pass for a result. */
static void poison(const fcp_shape *shape, unsigned set, fcp_packed *packed) {
    for (int t = 0; t < FCP_TENSORS; t++) /* all bits set is a NaN in every dtype */
        if (set >> t & 1 && packed->t[t]) memset(packed->t[t], 0xff, fcp_packed_bytes(shape, (fcp_tensor)t));
}

/* Copies a rank's part of a packed tensor to `local`, or back. */
static void move(const fcp_plan *plan, uint32_t rank, bool keys, size_t token, char *packed, char *local, bool back) {
    fcp_layout_at walk = {0};
    fcp_span span;
    while (keys ? fcp_plan_layout_keys(plan, rank, &walk, &span) : fcp_plan_layout(plan, rank, &walk, &span)) {
        uint64_t first = keys ? fcp_plan_key_offset(plan, span.sequence, NULL)
                              : fcp_plan_sequence_offset(plan, span.sequence, NULL);
        char *at = packed + (first + span.start) * token;
        size_t bytes = span.length * token;
        if (back) memcpy(at, local, bytes);
        else memcpy(local, at, bytes);
        local += bytes;
    }
}

struct local {
    fcp_tensors *tensors; /* per rank of this process */
    char **memory;        /* likewise: all of its tensors */
    float *max_logit;     /* [ranks of this process][heads]; NULL: not wanted */
};

/* The largest logits of each rank become those of this process. */
static void join_max(const struct local *local, uint32_t ranks, uint32_t heads, float *out_max) {
    for (uint32_t h = 0; h < heads; h++) {
        out_max[h] = -INFINITY;
        for (uint32_t r = 0; r < ranks; r++) {
            const float x = local->max_logit[(size_t)r * heads + h];
            if (!(x <= out_max[h])) out_max[h] = x; /* a NaN stays: it was not written */
        }
    }
}

/* One rank's tensors behind each other: *out_at[t] is where t begins. Returns the bytes. */
static size_t local_places(const fcp_plan *plan, const fcp_shape *shape, uint32_t rank, unsigned set,
                           size_t out_at[FCP_TENSORS]) {
    size_t at = 0;
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (!(set >> t & 1)) continue;
        out_at[t] = at;
        size_t bytes = fcp_tensors_tokens(plan, rank, (fcp_tensor)t) * fcp_tensor_token_bytes(shape, (fcp_tensor)t);
        at += (bytes + 63) / 64 * 64;
    }
    return at;
}

/* Copies a rank's parts of all tensors of `set` to `local`, or back. */
static void move_all(const fcp_plan *plan, const fcp_shape *shape, uint32_t rank, unsigned set,
                     const size_t at[FCP_TENSORS], fcp_packed *packed, char *local, bool back) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (set >> t & 1 && packed->t[t]) /* else it has no bytes: no tokens, or values that are in the keys */
            move(plan, rank, fcp_tensor_of_keys((fcp_tensor)t), fcp_tensor_token_bytes(shape, (fcp_tensor)t),
                 packed->t[t], local + at[t], back);
}

fcp_code fcp_session_run_packed(fcp_session *session, const fcp_plan *plan, fcp_pass pass, fcp_packed *packed,
                                double *out_seconds, fcp_error *err) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    unsigned inputs = fcp_pass_inputs(pass), outputs = fcp_pass_outputs(pass);
    for (int t = 0; t < FCP_TENSORS; t++)
        if ((inputs | outputs) >> t & 1 && !packed->t[t] && fcp_packed_bytes(&shape, (fcp_tensor)t))
            return fcp_fail(err, FCP_E_TENSOR, "tensor %s is missing", fcp_tensor_name((fcp_tensor)t));
    for (int t = 0; t < FCP_TENSORS; t++)
        if (packed->t[t]) *(pass == FCP_FORWARD ? &outputs : &inputs) |= fcp_pass_optional(&shape, pass) & 1u << t;
    uint32_t first, count = fcp_session_ranks(session, &first);
    struct local local = {calloc(count, sizeof *local.tensors), calloc(count, sizeof *local.memory), NULL};
    const bool wants_max = packed->max_logit && pass == FCP_FORWARD;
    const size_t max_bytes = (size_t)count * shape.heads * sizeof *local.max_logit;
    fcp_code code = FCP_OK;
    if (wants_max) local.max_logit = malloc(max_bytes);
    if (local.max_logit) memset(local.max_logit, 0xff, max_bytes); /* NaNs, as in the outputs */
    if (!local.tensors || !local.memory || (wants_max && !local.max_logit))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", count);
    for (uint32_t r = 0; code == FCP_OK && r < count; r++) {
        size_t at[FCP_TENSORS] = {0}, bytes;
        bytes = local_places(plan, &shape, first + r, inputs | outputs, at);
        void *memory = NULL;
        if (posix_memalign(&memory, 64, bytes ? bytes : 1)) {
            code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu bytes of tensors of rank %u", bytes,
                            first + r);
            break;
        }
        local.memory[r] = memory;
        memset(memory, 0xff, bytes);
        for (int t = 0; t < FCP_TENSORS; t++)
            if ((inputs | outputs) >> t & 1 && fcp_tensor_token_bytes(&shape, (fcp_tensor)t)) /* not V inside K */
                fcp_tensors_set(&local.tensors[r], (fcp_tensor)t, local.memory[r] + at[t]);
        move_all(plan, &shape, first + r, inputs, at, packed, local.memory[r], false);
        if (wants_max) local.tensors[r].max_logit = local.max_logit + (size_t)r * shape.heads;
    }
    double begin = fcp_clock();
    if (code == FCP_OK) code = fcp_session_run(session, pass, local.tensors, err);
    if (code == FCP_OK && out_seconds) *out_seconds = fcp_clock() - begin;
    if (code == FCP_OK) poison(&shape, outputs, packed);
    if (code == FCP_OK && wants_max) join_max(&local, count, shape.heads, packed->max_logit);
    for (uint32_t r = 0; local.memory && r < count; r++) {
        size_t at[FCP_TENSORS] = {0};
        local_places(plan, &shape, first + r, inputs | outputs, at);
        if (code == FCP_OK) move_all(plan, &shape, first + r, outputs, at, packed, local.memory[r], true);
        free(local.memory[r]);
    }
    free(local.memory);
    free(local.tensors);
    free(local.max_logit);
    return code;
}

fcp_code fcp_session_collect_packed(fcp_session *session, const fcp_plan *plan, unsigned set, fcp_packed *packed,
                                    fcp_error *err) {
    fcp_shape shape;
    uint32_t own;
    fcp_plan_shape(plan, &shape);
    fcp_session_ranks(session, &own);
    if (fcp_session_processes(session) == 1) return FCP_OK;
    fcp_code code = FCP_OK;
    for (uint32_t r = 1; code == FCP_OK && r < shape.ranks; r++) {
        size_t at[FCP_TENSORS] = {0}, bytes = local_places(plan, &shape, r, set, at);
        if (!bytes || (own != 0 && own != r)) continue;
        char *local = calloc(1, bytes);
        if (!local) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu bytes of tensors of rank %u", bytes,
                                    r);
        if (own == r) move_all(plan, &shape, r, set, at, packed, local, false);
        code = session->kind->collect(session, r, local, bytes, err);
        if (own == 0 && code == FCP_OK) move_all(plan, &shape, r, set, at, packed, local, true);
        free(local);
    }
    return code;
}
