/* session.c: the public functions for sessions. They check what is asked and call the table of the session's backend.
 *
 * A new backend is listed in `kinds`.
 */
#include "runtime/exec/session.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/sized.h"
#include "runtime/cuda/session.h"
#include "runtime/host/executor.h"
#include "runtime/exec/tensors.h"
#include "runtime/exec/where.h"

static const fcp_session_kind *const kinds[] = {&fcp_session_host, &fcp_session_cuda}; /* the usual one first */
enum { KINDS = sizeof kinds / sizeof *kinds };

static const fcp_session_kind *find_kind(const char *name) {
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
    return NULL;
}

static const fcp_transport *find_transport(const fcp_session_kind *kind, const char *name, fcp_error *err) {
    const fcp_transport *const *all = kind->transports;
    char names[80] = "";
    size_t used = 0;
    for (size_t i = 0; all[i]; i++) {
        if (strcmp(all[i]->name, name) == 0) return all[i];
        int n = snprintf(names + used, sizeof names - used, "%s%s", !i ? "" : all[i + 1] ? ", " : " and ",
                         all[i]->name);
        if (n > 0 && used + (size_t)n < sizeof names) used += (size_t)n;
    }
    fcp_fail(err, FCP_E_BACKEND, "the %s backend has no transport \"%.40s\": it has %s", kind->name, name, names);
    return NULL;
}

fcp_code fcp_session_create(const fcp_plan *plan, const fcp_session_options *options, fcp_session **out_session,
                            fcp_error *err) {
    fcp_session_options own;
    fcp_start start;
    if (!plan || !out_session) return fcp_fail(err, FCP_E_ARGUMENT, "a session needs a plan");
    fcp_code code = fcp_sized_read(&own, sizeof own, options, "fcp_session_options", err);
    if (!code && own.start) code = fcp_sized_read(&start, sizeof start, own.start, "fcp_start", err);
    if (code) return code;
    if (own.start) own.start = &start;
    if ((unsigned)own.partition >= FCP_PARTITIONS)
        return fcp_fail(err, FCP_E_ARGUMENT, "options->partition is %u, which is none", (unsigned)own.partition);
    const char *name = own.backend ? own.backend : kinds[0]->name;
    const fcp_session_kind *kind = find_kind(name);
    if (!kind)
        return fcp_fail(err, FCP_E_BACKEND, "there is no backend \"%.40s\" in this version: there are host and cuda",
                        name);
    const fcp_transport *transport = own.transport ? find_transport(kind, own.transport, err) : kind->transports[0];
    return transport ? kind->create(plan, &own, transport, out_session, err) : FCP_E_BACKEND;
}

void fcp_session_free(fcp_session *s) {
    if (s) s->kind->free(s);
}

/* A plan that a session is given later must agree with the one it was made for, in what its memory and streams depend
 * on. */
static fcp_code check_same(const fcp_session *s, const fcp_plan *plan, fcp_error *err) {
    const fcp_problem *a = s->plan->problem, *b = plan->problem;
    const struct { const char *name; uint64_t is, was; } all[] = {
        {"ranks", b->ranks, a->ranks},          {"gpus", b->gpus, a->gpus},
        {"heads", b->heads, a->heads},          {"kv_heads", b->kv_heads, a->kv_heads},
        {"head_dim", b->head_dim, a->head_dim}, {"margin", b->margin, a->margin},
        {"deterministic", b->deterministic, a->deterministic}};
    if (a->dtype != b->dtype)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "the session is for dtype = %s, the new plan has %s: it needs a session of its own",
                        fcp_dtype_name((fcp_dtype)a->dtype), fcp_dtype_name((fcp_dtype)b->dtype));
    if (a->passes != b->passes)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "the new plan has other passes than the session: it needs a session of its own");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is != all[i].was)
            return fcp_fail(err, FCP_E_ARGUMENT,
                            "the session is for %s = %llu, the new plan has %llu: it needs a session of its own",
                            all[i].name, (unsigned long long)all[i].was, (unsigned long long)all[i].is);
    return FCP_OK;
}

fcp_code fcp_session_rebind(fcp_session *s, const fcp_plan *plan, fcp_error *err) {
    fcp_error why = {0};
    if (!s || !plan) return fcp_fail(err, FCP_E_ARGUMENT, "a new batch needs a session and a plan");
    fcp_code code = check_same(s, plan, &why);
    if (!code) return s->kind->rebind(s, plan, err);
    s->kind->refuse(s, plan, &why);
    if (err) *err = why;
    return code;
}

const fcp_plan *fcp_session_plan(const fcp_session *s) { return s->plan; }

/* Each rank of this process that has tokens has all tensors of the pass. */
static fcp_code check_tensors(const fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    unsigned needed = fcp_pass_inputs(pass) | fcp_pass_outputs(pass);
    for (uint32_t r = s->first_rank; r < s->first_rank + s->rank_count; r++) {
        for (int t = 0; t < FCP_TENSORS; t++)
            if (needed >> t & 1 && fcp_tensors_tokens(plan, r, (fcp_tensor)t) &&
                !fcp_tensors_get(&tensors[r - s->first_rank], (fcp_tensor)t))
                return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(r),
                                   "rank %u: tensor %s is missing: the %s pass needs it", r,
                                fcp_tensors_name((fcp_tensor)t), fcp_pass_names[pass]);
    }
    return FCP_OK;
}

static fcp_code run(fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err) {
    if (!s || !tensors || (unsigned)pass >= FCP_PASSES) return fcp_fail(err, FCP_E_ARGUMENT, "nothing to run");
    if (!(s->plan->problem->passes >> pass & 1))
        return fcp_fail(err, FCP_E_PASS, "the plan has no %s pass", fcp_pass_names[pass]);
    fcp_code code = check_tensors(s, pass, tensors, err);
    return code == FCP_OK ? s->kind->run(s, pass, tensors, stream, err) : code;
}

fcp_code fcp_session_run(fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err) {
    return run(s, pass, tensors, NULL, err);
}

fcp_code fcp_session_run_on(fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err) {
    if (!s || !stream)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "a run on a stream needs a session and a stream; of CUDA's default streams the handles are "
                        "CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2)");
    if (!s->kind->streams)
        return fcp_fail(err, FCP_E_ARGUMENT, "the %s backend has no streams: fcp_session_run", s->kind->name);
    return run(s, pass, tensors, stream, err);
}

fcp_code fcp_session_wait(fcp_session *s, fcp_error *err) {
    if (!s) return fcp_fail(err, FCP_E_ARGUMENT, "nothing to wait for");
    return s->kind->wait ? s->kind->wait(s, err) : FCP_OK;
}

fcp_code fcp_session_gather(fcp_session *s, const void *mine, size_t bytes, void *out_all, fcp_error *err) {
    if (!s || !mine || !out_all || !bytes) return fcp_fail(err, FCP_E_ARGUMENT, "nothing to gather");
    if (bytes > FCP_GATHER_BYTES)
        return fcp_fail(err, FCP_E_ARGUMENT, "%zu bytes are too many to gather at once: %d", bytes, FCP_GATHER_BYTES);
    return s->kind->gather(s, mine, bytes, out_all, err);
}

uint32_t fcp_session_processes(const fcp_session *s) { return s->plan->problem->ranks / s->rank_count; }

uint32_t fcp_session_ranks(const fcp_session *s, uint32_t *out_first) {
    if (out_first) *out_first = s->first_rank;
    return s->rank_count;
}

const char *fcp_session_backend(const fcp_session *s) { return s->kind->name; }
fcp_partition fcp_session_partition(const fcp_session *s, const char **out_why) {
    const char *why = "no device is shared";
    fcp_partition p = s->kind->partition ? s->kind->partition(s, &why) : FCP_PARTITION_NONE;
    if (out_why) *out_why = why;
    return p;
}
const char *fcp_session_warning(const fcp_session *s) { return s->kind->warning ? s->kind->warning(s) : ""; }
const char *fcp_session_transport(const fcp_session *s) { return s->net->transport->name; }
