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

/* What a rank writes once, not for each token. */
enum { MAX_LOGIT, D_SINK, D_TABLE, ONCE };
struct once {
    float *out;   /* of fcp_packed; NULL: not wanted in this pass */
    size_t count; /* of numbers */
    float *ranks; /* [ranks of this process][count] */
};

struct local {
    fcp_tensors *tensors; /* per rank of this process */
    char **memory;        /* likewise: all of its tensors */
    struct once once[ONCE];
};

static void list_once(const fcp_plan *plan, const fcp_shape *shape, const fcp_packed *packed, fcp_pass pass,
                      struct once out[ONCE]) {
    out[MAX_LOGIT] = (struct once){pass == FCP_FORWARD ? packed->max_logit : NULL, shape->heads, NULL};
    out[D_SINK] = (struct once){pass == FCP_BACKWARD ? packed->d_sink : NULL, shape->heads, NULL};
    out[D_TABLE] = (struct once){pass == FCP_BACKWARD ? packed->d_table : NULL, fcp_plan_table_numbers(plan), NULL};
}

/* Memory for what each rank writes once, filled with NaNs. False: there is none. */
static bool open_once(struct once once[ONCE], uint32_t ranks) {
    for (int i = 0; i < ONCE; i++) {
        if (!once[i].out) continue;
        const size_t bytes = ranks * once[i].count * sizeof(float);
        once[i].ranks = malloc(bytes ? bytes : 1);
        if (!once[i].ranks) return false;
        memset(once[i].ranks, 0xff, bytes);
    }
    return true;
}

static void set_once(const struct once once[ONCE], uint32_t rank, fcp_tensors *to) {
    float **const members[ONCE] = {[MAX_LOGIT] = &to->max_logit, [D_SINK] = &to->d_sink, [D_TABLE] = &to->d_table};
    for (int i = 0; i < ONCE; i++)
        if (once[i].ranks) *members[i] = once[i].ranks + rank * once[i].count;
}

/* The largest logits of each rank become those of this process, and gradients are added up, each rounded once. A NaN
 * stays: it was not written. */
static void join_once(const struct once once[ONCE], uint32_t ranks) {
    for (int i = 0; i < ONCE; i++)
        for (size_t at = 0; once[i].ranks && at < once[i].count; at++) {
            double sum = 0;
            float most = -INFINITY;
            for (uint32_t r = 0; r < ranks; r++) {
                const float x = once[i].ranks[r * once[i].count + at];
                sum += (double)x;
                if (!(x <= most)) most = x;
            }
            once[i].out[at] = i == MAX_LOGIT ? most : (float)sum;
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
    struct local local = {.tensors = calloc(count, sizeof *local.tensors), calloc(count, sizeof *local.memory)};
    fcp_code code = FCP_OK;
    list_once(plan, &shape, packed, pass, local.once);
    if (!local.tensors || !local.memory || !open_once(local.once, count))
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
        set_once(local.once, r, &local.tensors[r]);
    }
    double begin = fcp_clock();
    if (code == FCP_OK) code = fcp_session_run(session, pass, local.tensors, err);
    if (code == FCP_OK && out_seconds) *out_seconds = fcp_clock() - begin;
    if (code == FCP_OK) poison(&shape, outputs, packed);
    if (code == FCP_OK) join_once(local.once, count);
    for (uint32_t r = 0; local.memory && r < count; r++) {
        size_t at[FCP_TENSORS] = {0};
        local_places(plan, &shape, first + r, inputs | outputs, at);
        if (code == FCP_OK) move_all(plan, &shape, first + r, outputs, at, packed, local.memory[r], true);
        free(local.memory[r]);
    }
    free(local.memory);
    free(local.tensors);
    for (int i = 0; i < ONCE; i++) free(local.once[i].ranks);
    return code;
}

/* Adds to the numbers of rank 0's process those of all others, in the order of ranks. */
static fcp_code add_processes(fcp_session *session, uint32_t ranks, float *numbers, size_t count, fcp_error *err) {
    const size_t bytes = count * sizeof *numbers;
    uint32_t own;
    fcp_session_ranks(session, &own);
    float *theirs = own ? NULL : malloc(bytes + 1);
    double *sums = own ? NULL : malloc(count * sizeof *sums + 1);
    fcp_code code = own || (theirs && sums) ? FCP_OK : FCP_E_NO_MEMORY;
    if (code) fcp_fail(err, code, "out of memory for %zu bytes of gradients", bytes);
    for (size_t i = 0; !own && !code && i < count; i++) sums[i] = (double)numbers[i];
    for (uint32_t r = 1; !code && r < ranks; r++) {
        if (own != 0 && own != r) continue;
        code = session->kind->collect(session, r, own ? numbers : theirs, bytes, err);
        for (size_t i = 0; !own && !code && i < count; i++) sums[i] += (double)theirs[i];
    }
    for (size_t i = 0; !own && !code && i < count; i++) numbers[i] = (float)sums[i];
    free(theirs);
    free(sums);
    return code;
}

fcp_code fcp_session_sum_packed(fcp_session *session, const fcp_plan *plan, fcp_packed *packed, fcp_error *err) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    if (fcp_session_processes(session) == 1) return FCP_OK;
    fcp_code code = FCP_OK;
    if (packed->d_sink) code = add_processes(session, shape.ranks, packed->d_sink, shape.heads, err);
    if (packed->d_table && !code)
        code = add_processes(session, shape.ranks, packed->d_table, fcp_plan_table_numbers(plan), err);
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
