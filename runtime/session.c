/* session.c: the public functions for sessions: they check their arguments and call the table of the session's kind.
 * `kinds` lists the kinds.
 */
#include "runtime/exec/session.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/recurrent.h"
#include "runtime/plan/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/sized.h"
#include "runtime/cuda/cuda_session.h"
#include "runtime/host/executor.h"
#include "runtime/exec/kept_keys.h"
#include "runtime/exec/recurrent_steps.h"
#include "runtime/exec/tensors.h"
#include "runtime/exec/error_place.h"

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

static void free_times(fcp_times *t) {
    if (!t) return;
    free(t->instrs);
    free(t->transfers);
    free(t);
}

static fcp_code make_times(const fcp_plan *plan, fcp_times **out, fcp_error *err) {
    fcp_times *t = calloc(1, sizeof *t);
    if (t) t->instrs = calloc(plan->instrs_count + 1, sizeof *t->instrs);
    if (t) t->transfers = calloc(plan->transfers_count + 1, sizeof *t->transfers);
    if (t && t->instrs && t->transfers) {
        *out = t;
        return FCP_OK;
    }
    free_times(t);
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the timings of %llu instructions",
                    (unsigned long long)plan->instrs_count);
}

/* A session of one plan. */
static fcp_code open_part(const fcp_session_kind *kind, const fcp_transport *transport, const fcp_plan *plan,
                          const fcp_session_options *options, fcp_session *lender, fcp_session **out, fcp_error *err) {
    fcp_times *times = NULL;
    fcp_code code = options->timings ? make_times(plan, &times, err) : FCP_OK;
    if (!code) code = kind->create(plan, options, transport, lender, out, err);
    if (!code) (*out)->times = times;
    else free_times(times);
    return code;
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
    if ((unsigned)own.fuse > FCP_FUSE_PASS)
        return fcp_fail(err, FCP_E_ARGUMENT, "options->fuse is %u, which is none", (unsigned)own.fuse);
    if ((unsigned)own.partition >= FCP_PARTITIONS)
        return fcp_fail(err, FCP_E_ARGUMENT, "options->partition is %u, which is none", (unsigned)own.partition);
    if (!own.allocator.allocate != !own.allocator.release)
        return fcp_fail(err, FCP_E_ARGUMENT, "options->allocator has one of its two functions: it needs both");
    const char *name = own.backend ? own.backend : kinds[0]->name;
    const fcp_session_kind *kind = find_kind(name);
    if (!kind)
        return fcp_fail(err, FCP_E_BACKEND, "there is no backend \"%.40s\" in this version: there are host and cuda",
                        name);
    if (own.fuse == FCP_FUSE_PASS && strcmp(kind->name, "cuda") != 0)
        return fcp_fail(err, FCP_E_BACKEND,
                        "a fused pass is a matter of the backend cuda: %s computes by stages",
                        kind->name);
    const fcp_transport *transport = own.transport ? find_transport(kind, own.transport, err) : kind->transports[0];
    if (!transport) return FCP_E_BACKEND;
    fcp_session_plans *plans = calloc(1, sizeof *plans);
    if (plans) plans->parts = calloc(1, sizeof *plans->parts);
    code = plans && plans->parts ? open_part(kind, transport, plan, &own, NULL, out_session, err)
                                 : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session");
    if (!code) {
        plans->parts[0] = *out_session;
        plans->count = 1;
        plans->transport = transport;
        plans->options = own;
        plans->options.start = NULL;
        plans->options.backend = kind->name;
        plans->options.transport = transport->name;
        (*out_session)->plans = plans;
        return FCP_OK;
    }
    if (plans) free(plans->parts);
    free(plans);
    return code;
}

/* A function of the session begins that may take long. Its caller may interrupt it: runtime/base/interrupt.h. */
static fcp_code enter(fcp_session *s, fcp_error *err) {
    if (s->plans && s->plans->interrupted)
        return fcp_fail(err, FCP_E_RUN, "this session has been interrupted, and a new one is needed");
    for (uint32_t i = 0; i < (s->plans ? s->plans->count : 1); i++)
        fcp_interrupt_begin(s->plans ? &s->plans->parts[i]->interrupt : &s->interrupt);
    return FCP_OK;
}

/* It ends. If it was interrupted, other processes must not wait for what this one has left undone. */
static fcp_code leave(fcp_session *s, fcp_code code) {
    fcp_session_plans *plans = s->plans;
    bool interrupted = code == FCP_E_INTERRUPTED;
    for (uint32_t i = 0; plans && i < plans->count; i++) interrupted |= plans->parts[i]->interrupt.over;
    if (!interrupted || !plans || !plans->transport->processes) return code;
    plans->interrupted = true;
    for (uint32_t i = 0; i < plans->count && !s->kind->streams; i++) fcp_net_abort(plans->parts[i]->net);
    return code;
}

static void free_part(fcp_session *s) {
    s->interrupt.asked = NULL;
    free(s->rows);
    free_times(s->times);
    s->kind->free(s);
}

void fcp_session_free(fcp_session *s) {
    if (!s) return;
    fcp_session_plans *plans = s->plans;
    for (uint32_t i = plans ? plans->count : 0; i-- > 1;) free_part(plans->parts[i]);
    free_part(s);
    if (plans) free(plans->parts);
    free(plans);
}

/* A plan that a session gets later must agree with its first plan in everything that its memory and streams depend
 * on. */
static fcp_code check_same(const fcp_session *s, const fcp_plan *plan, fcp_error *err) {
    const fcp_problem *a = s->plan->problem, *b = plan->problem;
    const struct { const char *name; uint64_t is, was; } all[] = {
        {"ranks", b->ranks, a->ranks},          {"gpus", b->gpus, a->gpus},
        {"heads", b->heads, a->heads},          {"kv_heads", b->kv_heads, a->kv_heads},
        {"head_dim", b->head_dim, a->head_dim}, {"value_dim", b->value_dim, a->value_dim},
        {"values_in_keys", b->values_in_keys, a->values_in_keys}, {"lse_gradient", b->lse_gradient, a->lse_gradient},
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

/* Checks that a plan has the homes of another one that the session has, if it must have them. */
static fcp_code check_homes(const fcp_session_plans *plans, uint32_t layer_of, const fcp_plan *plan, fcp_error *err) {
    uint8_t is[FCP_DIGEST_BYTES], was[FCP_DIGEST_BYTES];
    if (layer_of == FCP_OWN_BATCH) return FCP_OK;
    if (layer_of >= plans->count)
        return fcp_fail(err, FCP_E_ARGUMENT, "the session has no plan %u: it has %u", layer_of, plans->count);
    fcp_code code = fcp_plan_homes(plan, is, err);
    if (!code) code = fcp_plan_homes(plans->parts[layer_of]->plan, was, err);
    if (!code && memcmp(is, was, sizeof is))
        return fcp_fail(err, FCP_E_HOMES,
                        "the plan has tokens at other ranks than plan %u: layers of one batch need plans of one "
                        "program", layer_of);
    return code;
}

/* Tells all processes whether this one can go on; and, from rank 0, the id of the new connections. */
static fcp_code agree_to_add(fcp_session *s, fcp_code mine, char id[FCP_ID_BYTES], fcp_error *err) {
    const uint32_t ranks = s->plan->problem->ranks, codes[2] = {mine, 0};
    char *all = calloc(ranks, FCP_GATHER_BYTES);
    if (!all) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for what %u processes say", ranks);
    fcp_code code = s->kind->gather(s, codes, sizeof codes, all, err);
    for (uint32_t r = 0; r < ranks && !code; r++) {
        uint32_t said;
        memcpy(&said, all + r * sizeof codes, sizeof said);
        if (said && mine) code = mine; /* *err says why */
        else if (said)
            code = fcp_fail_at(err, FCP_E_START, fcp_where_rank(r), "rank %u refuses the plan: %s", r,
                               fcp_code_text((fcp_code)said));
    }
    for (size_t at = 0; at < FCP_ID_BYTES && !code; at += FCP_GATHER_BYTES) {
        code = s->kind->gather(s, id + at, FCP_GATHER_BYTES, all, err);
        if (!code) memcpy(id + at, all, FCP_GATHER_BYTES);
    }
    free(all);
    return code;
}

fcp_code fcp_session_add(fcp_session *s, const fcp_plan *plan, uint32_t layer_of, uint32_t *out_number,
                         fcp_error *err) {
    if (!s || !plan || !out_number || !s->plans) return fcp_fail(err, FCP_E_ARGUMENT, "a plan is added to a session");
    fcp_session_plans *plans = s->plans;
    char id[FCP_ID_BYTES] = {0};
    fcp_session_options options = plans->options;
    fcp_start start = {.size = sizeof start, .ranks = s->plan->problem->ranks, .rank = s->first_rank, .id = id};
    fcp_session **grown = NULL, *made = NULL;
    fcp_error why = {0};
    fcp_code code = enter(s, err);
    if (code) return code;
    code = check_same(s, plan, &why);
    if (!code) code = check_homes(plans, layer_of, plan, &why);
    if (!code && plans->count == UINT32_MAX - 1) code = fcp_fail(&why, FCP_E_ARGUMENT, "too many plans");
    if (!code && !(grown = realloc(plans->parts, (plans->count + (size_t)1) * sizeof *grown)))
        code = fcp_fail(&why, FCP_E_NO_MEMORY, "out of memory for %u plans", plans->count + 1);
    if (grown) plans->parts = grown;
    if (plans->transport->processes) {
        if (!code && !s->first_rank && plans->transport->make_id)
            code = plans->transport->make_id(s->net, id, &why);
        code = leave(s, agree_to_add(s, code, id, &why));
        if (s->kind->device) start.device = s->kind->device(s);
        options.start = &start;
    }
    plans->ran = NULL; /* arenas may move */
    if (!code) code = leave(s, open_part(s->kind, plans->transport, plan, &options, s, &made, &why));
    if (code) {
        if (err) *err = why;
        return code;
    }
    plans->parts[plans->count] = made;
    *out_number = plans->count++;
    return FCP_OK;
}

fcp_code fcp_session_select(fcp_session *s, uint32_t number, fcp_error *err) {
    if (!s || !s->plans || number >= s->plans->count)
        return fcp_fail(err, FCP_E_ARGUMENT, "the session has no plan %u: it has %u", number,
                        s && s->plans ? s->plans->count : 0);
    s->plans->now = number;
    return FCP_OK;
}

fcp_code fcp_session_rebind(fcp_session *s, const fcp_plan *plan, fcp_error *err) {
    fcp_error why = {0};
    if (!s || !plan) return fcp_fail(err, FCP_E_ARGUMENT, "a new batch needs a session and a plan");
    fcp_session *whole = s;
    fcp_times *times = NULL;
    fcp_code code = enter(whole, err);
    if (code) return code;
    s = fcp_session_now(s);
    s->looked = false;
    if (whole->plans) whole->plans->ran = NULL;
    code = check_same(s, plan, &why);
    if (!code && s->times) code = make_times(plan, &times, &why);
    if (code) {
        s->kind->refuse(s, plan, &why);
        if (err) *err = why;
        return leave(whole, code);
    }
    free(s->rows);
    s->rows = NULL;
    s->placed = false;
    code = leave(whole, s->kind->rebind(s, plan, err));
    if (s->plan == plan && times) { /* also after an error that leaves the session with the new plan */
        free_times(s->times);
        s->times = times;
    } else free_times(times);
    return code;
}

const fcp_plan *fcp_session_plan(const fcp_session *s) { return fcp_session_now(s)->plan; }

/* Sinks and tables of a run's own need a backend that takes them (`can`), and a plan that has some. */
static fcp_code check_own(uint32_t rank, const char *what, bool can, bool has, fcp_error *err) {
    if (can && has) return FCP_OK;
    return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank), "rank %u: the run has %s of its own, and %s", rank,
                       what, has ? "this backend takes those of the plan" : "the plan has none");
}

/* Each rank of this process that has tokens has all tensors of the pass, and none that the plan has not. */
static fcp_code check_tensors(const fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, bool kept,
                              fcp_error *err) {
    const fcp_plan *plan = s->plan;
    unsigned needed = fcp_pass_inputs(pass) | fcp_pass_outputs(pass);
    if (kept) needed &= ~(1u << FCP_TENSOR_K | 1u << FCP_TENSOR_V);
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    for (uint32_t r = s->first_rank; r < s->first_rank + s->rank_count; r++) {
        const fcp_tensors *x = &tensors[r - s->first_rank];
        fcp_code code = FCP_OK;
        if (x->sink || x->d_sink) code = check_own(r, "sinks", s->kind->sinks, plan->sink_count, err);
        if (!code && (x->table || x->d_table))
            code = check_own(r, "tables", s->kind->tables, fcp_plan_tables(plan, 0, NULL), err);
        if (!code && pass == FCP_BACKWARD && x->d_lse && !shape.lse_gradient)
            code = fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(r),
                               "rank %u: the run has a gradient of LSE, and the plan takes none: compile it with "
                               "lse_gradient = true", r);
        if (!code && shape.values_in_keys && (x->v || x->dv))
            code = fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(r),
                               "rank %u: the run has %s, and the plan's values are in its keys: %s", r,
                               x->v ? "v" : "dv", x->v ? "k has both" : "dk is the gradient of both");
        if (code) return code;
        for (int t = 0; t < FCP_TENSORS; t++)
            if (needed >> t & 1 && fcp_tensors_tokens(plan, r, (fcp_tensor)t) &&
                fcp_tensor_token_bytes(&shape, (fcp_tensor)t) &&
                !fcp_tensors_get(&tensors[r - s->first_rank], (fcp_tensor)t))
                return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(r),
                                   "rank %u: tensor %s is missing: the %s pass needs it", r,
                                fcp_tensors_name((fcp_tensor)t), fcp_pass_names[pass]);
    }
    return FCP_OK;
}

bool fcp_session_keys_stay(fcp_session *s) {
    s = fcp_session_now(s);
    if (!s->looked) s->keys_stay = fcp_keys_stay(s->plan, s->first_rank, s->rank_count);
    s->looked = true;
    return s->keys_stay;
}

/* May a run use the K and V of the run before? */
static fcp_code check_kept(fcp_session *whole, const fcp_session *now, fcp_error *err) {
    bool captured = whole->captured;
    for (uint32_t i = 0; whole->plans && i < whole->plans->count; i++) captured |= whole->plans->parts[i]->captured;
    if (captured)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "no keys are kept: a run of this session was captured, and the caller's "
                        "graph may have run since");
    if (!whole->plans || whole->plans->ran != now)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "no keys are kept: the run before was of another plan, or there is none, or "
                        "it failed");
    if (!fcp_session_keys_stay(whole))
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "no keys are kept: the plan uses their memory again, or brings inputs from "
                        "other ranks (fcp_session_keys_stay)");
    return FCP_OK;
}

static fcp_code run_pass(fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, void *stream, bool kept,
                         fcp_error *err) {
    if (!s || !tensors || (unsigned)pass >= FCP_PASSES) return fcp_fail(err, FCP_E_ARGUMENT, "nothing to run");
    fcp_session *whole = s;
    s = fcp_session_now(s);
    if (!(s->plan->problem->passes >> pass & 1))
        return fcp_fail(err, FCP_E_PASS, "the plan has no %s pass", fcp_pass_names[pass]);
    fcp_code code = kept ? check_kept(whole, s, err) : FCP_OK;
    if (code == FCP_OK) code = check_tensors(s, pass, tensors, kept, err);
    if (code == FCP_OK) code = enter(whole, err);
    if (code != FCP_OK) return code;
    s->keys_kept = kept;
    if (whole->plans) whole->plans->ran = NULL;
    if (code == FCP_OK && s->times) s->times->ran[pass] = s->times->collected = false;
    if (code == FCP_OK) code = leave(whole, s->kind->run(s, pass, tensors, stream, err));
    if (code == FCP_OK && s->times) s->times->ran[pass] = true;
    if (code == FCP_OK && whole->plans) whole->plans->ran = s;
    return code;
}

fcp_code fcp_session_run(fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err) {
    return run_pass(s, pass, tensors, NULL, false, err);
}

static fcp_code check_stream(const fcp_session *s, const void *stream, fcp_error *err) {
    if (!s || !stream)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "a run on a stream needs a session and a stream; of CUDA's default streams the handles are "
                        "CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2)");
    if (!s->kind->streams)
        return fcp_fail(err, FCP_E_ARGUMENT, "the %s backend has no streams: fcp_session_run", s->kind->name);
    return FCP_OK;
}

fcp_code fcp_session_run_on(fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err) {
    const fcp_code code = check_stream(s, stream, err);
    return code ? code : run_pass(s, pass, tensors, stream, false, err);
}

fcp_code fcp_session_run_kept(fcp_session *s, fcp_pass pass, const fcp_tensors *tensors, void *stream, fcp_error *err) {
    const fcp_code code = s && stream ? check_stream(s, stream, err) : FCP_OK;
    return code ? code : run_pass(s, pass, tensors, stream, true, err);
}

fcp_code fcp_session_wait(fcp_session *s, fcp_error *err) {
    if (!s) return fcp_fail(err, FCP_E_ARGUMENT, "nothing to wait for");
    fcp_code code = enter(s, err);
    if (!code && s->kind->wait) code = leave(s, s->kind->wait(s, err));
    for (uint32_t i = 1; s->plans && i < s->plans->count && !code; i++) {
        fcp_session *part = s->plans->parts[i];
        if (part->kind->wait) code = leave(s, part->kind->wait(part, err));
    }
    return code;
}

fcp_code fcp_session_gather(fcp_session *s, const void *mine, size_t bytes, void *out_all, fcp_error *err) {
    if (!s || !mine || !out_all || !bytes) return fcp_fail(err, FCP_E_ARGUMENT, "nothing to gather");
    if (bytes > FCP_GATHER_BYTES)
        return fcp_fail(err, FCP_E_ARGUMENT, "%zu bytes are too many to gather at once: %d", bytes, FCP_GATHER_BYTES);
    fcp_code code = enter(s, err);
    return code ? code : leave(s, s->kind->gather(s, mine, bytes, out_all, err));
}

/* --- layers that recur -------------------------------------------------------------------------------------------- */

static fcp_code find_homes(fcp_session *s, fcp_error *err) {
    fcp_code code = s->placed ? FCP_OK : fcp_plan_homes(s->plan, s->homes, err);
    if (!code) s->placed = true;
    return code;
}

/* The plan whose layers are meant: the selected one; or, if that has none, the first that has some and holds the same
 * tokens at the same places. So batches of a session are selected as for a run; and where a program has several masks,
 * of which one plan has the layers, any of them may be selected. Homes are compared once for each plan. */
static fcp_code with_layers(fcp_session *s, fcp_session **out, fcp_error *err) {
    fcp_session *now = *out = s ? fcp_session_now(s) : NULL;
    if (!now || now->plan->recurrent_count) return FCP_OK;
    for (uint32_t i = 0; i < (s->plans ? s->plans->count : 0); i++) {
        fcp_session *other = s->plans->parts[i];
        if (!other->plan->recurrent_count) continue;
        fcp_code code = find_homes(now, err);
        if (!code) code = find_homes(other, err);
        if (code) return code;
        if (memcmp(now->homes, other->homes, sizeof now->homes)) continue;
        *out = other;
        return FCP_OK;
    }
    return FCP_OK;
}

/* Counts the tokens and stretches of this process's ranks, once for each plan. */
static fcp_code count_rows(fcp_session *s, fcp_error *err) {
    if (s->rows) return FCP_OK;
    fcp_rank_rows *rows = calloc(s->rank_count, sizeof *rows);
    if (!rows) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the stretches of %u ranks", s->rank_count);
    for (uint32_t r = 0; r < s->rank_count; r++) {
        rows[r].tokens = fcp_plan_rank_queries(s->plan, s->first_rank + r);
        rows[r].stretches = fcp_stretches_of(s->plan, s->first_rank + r, NULL);
    }
    s->rows = rows;
    return FCP_OK;
}

/* Checks what all such calls have in common: the plan has this layer, of this kind, and the pass; and the backend can.
 * Then counts the rows of ranks. */
static fcp_code check_layer(fcp_session *s, uint32_t layer, fcp_layer_kind kind, fcp_pass pass, const void *ranks,
                            const void *stream, fcp_error *err) {
    static const char *const names[FCP_LAYER_KINDS] = {"halo", "scan"};
    if (!s || !ranks || (unsigned)pass >= FCP_PASSES)
        return fcp_fail(err, FCP_E_ARGUMENT, "a %s needs a session, a pass and tensors", names[kind]);
    const fcp_plan *plan = s->plan;
    if (layer >= plan->recurrent_count)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "the session's plan has %llu kinds of layers that recur, and none with number %u%s",
                        (unsigned long long)plan->recurrent_count, layer,
                        plan->recurrent_count ? "" : ": they stand in the program's `layers`");
    if (plan->recurrent[layer].kind != kind)
        return fcp_fail(err, FCP_E_ARGUMENT, "layer %u is a %s, and this call is for a %s", layer,
                        names[plan->recurrent[layer].kind], names[kind]);
    if (!(plan->problem->passes >> pass & 1))
        return fcp_fail(err, FCP_E_PASS, "the plan has no %s pass", fcp_pass_names[pass]);
    const fcp_code code = stream ? check_stream(s, stream, err) : FCP_OK;
    return code ? code : count_rows(s, err);
}

static fcp_code cannot_recur(const fcp_session *s, fcp_error *err) {
    return fcp_fail(err, FCP_E_BACKEND, "the %s backend does not run layers that recur: it runs their attention only",
                    s->kind->name);
}

static fcp_code missing(const fcp_session *s, uint32_t r, const char *tensor, fcp_error *err) {
    return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(s->first_rank + r), "rank %u: tensor %s is missing",
                       s->first_rank + r, tensor);
}

/* A rank's tensors of a halo, with rows of `numbers` numbers of `size` bytes. Their size must be countable. */
static fcp_code check_rows(const fcp_session *s, uint32_t layer, uint64_t numbers, size_t size, uint32_t r,
                           fcp_error *err) {
    const fcp_rank_rows *own = &s->rows[r];
    const uint32_t rank = s->first_rank + r;
    if (fcp_halo_bytes(&s->plan->recurrent[layer], own->tokens, own->stretches, numbers, size) <= PTRDIFF_MAX)
        return FCP_OK;
    return fcp_fail_at(err, FCP_E_ARGUMENT, fcp_where_rank(rank),
                       "rank %u: its %llu rows and those of its halo are too long: each has %llu times %zu bytes", rank,
                       (unsigned long long)own->tokens, (unsigned long long)numbers, size);
}

fcp_code fcp_session_halo(fcp_session *s, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks, void *stream,
                          fcp_error *err) {
    fcp_session *whole = s;
    fcp_code code = with_layers(whole, &s, err);
    if (!code) code = check_layer(s, layer, FCP_HALO, FCP_FORWARD, ranks, stream, err);
    if (!code && !row_bytes) code = fcp_fail(err, FCP_E_ARGUMENT, "a halo has rows of at least 1 byte");
    for (uint32_t r = 0; !code && r < s->rank_count; r++) {
        const char *none = !ranks[r].x ? "x" : !ranks[r].halo ? "halo" : NULL;
        code = s->rows[r].tokens && none ? missing(s, r, none, err) : check_rows(s, layer, row_bytes, 1, r, err);
    }
    if (!code && !s->kind->halo) code = cannot_recur(s, err);
    if (!code) code = enter(whole, err);
    return code ? code : leave(whole, s->kind->halo(s, layer, row_bytes, ranks, stream, err));
}

fcp_code fcp_session_halo_gradient(fcp_session *s, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                                   const fcp_halo_gradient_rank *ranks, void *stream, fcp_error *err) {
    fcp_session *whole = s;
    fcp_code code = with_layers(whole, &s, err);
    if (!code) code = check_layer(s, layer, FCP_HALO, FCP_BACKWARD, ranks, stream, err);
    if (!code && ((unsigned)dtype >= FCP_DTYPES || !numbers))
        code = fcp_fail(err, FCP_E_ARGUMENT, "the gradient of a halo has a dtype, and rows of at least 1 number");
    for (uint32_t r = 0; !code && r < s->rank_count; r++) {
        const char *none = !ranks[r].d_halo ? "d_halo" : !ranks[r].dx ? "dx" : NULL;
        code = s->rows[r].tokens && none ? missing(s, r, none, err)
                                         : check_rows(s, layer, numbers, fcp_dtype_size(dtype), r, err);
    }
    if (!code && !s->kind->halo_gradient) code = cannot_recur(s, err);
    if (!code) code = enter(whole, err);
    return code ? code : leave(whole, s->kind->halo_gradient(s, layer, dtype, numbers, ranks, stream, err));
}

fcp_code fcp_session_scan(fcp_session *s, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks, void *stream,
                          fcp_error *err) {
    fcp_session *whole = s;
    fcp_code code = with_layers(whole, &s, err);
    if (!code) code = check_layer(s, layer, FCP_SCAN, pass, ranks, stream, err);
    for (uint32_t r = 0; !code && r < s->rank_count; r++) {
        const fcp_scan_rank *x = &ranks[r];
        const char *none = !x->decay ? "decay" : !x->state ? "state" : !x->entering ? "entering" : NULL;
        if (s->rows[r].stretches && none) code = missing(s, r, none, err);
    }
    if (!code && !s->kind->scan) code = cannot_recur(s, err);
    if (!code) code = enter(whole, err);
    return code ? code : leave(whole, s->kind->scan(s, layer, pass, ranks, stream, err));
}

/* --- timings ------------------------------------------------------------------------------------------------------ */

fcp_code fcp_session_timings(const fcp_session *s, fcp_pass pass, uint32_t rank, uint32_t queue,
                             const fcp_timing **out_timings, uint32_t *out_count, fcp_error *err) {
    if (!s || !out_timings || !out_count || (unsigned)pass >= FCP_PASSES || queue >= FCP_QUEUES)
        return fcp_fail(err, FCP_E_ARGUMENT, "no such timings");
    s = fcp_session_now(s);
    if (!s->times) return fcp_fail(err, FCP_E_ARGUMENT, "the session was made without the option timings");
    if (!s->times->ran[pass])
        return fcp_fail(err, FCP_E_ARGUMENT, "the session has not run the %s pass", fcp_pass_names[pass]);
    if (rank >= s->plan->problem->ranks || (!s->times->collected && rank - s->first_rank >= s->rank_count))
        return fcp_fail(err, FCP_E_ARGUMENT, "this process has no timings of rank %u", rank);
    const fcp_stream *x = fcp_stream_of(s->plan, pass, rank, (fcp_queue)queue);
    *out_timings = s->times->instrs + x->first;
    *out_count = x->count;
    return FCP_OK;
}

/* The timings of a rank end to end, to or from `memory`. NULL: only their size. */
static size_t move_times(const fcp_session *s, uint32_t rank, char *memory, bool from) {
    size_t at = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int q = 0; q < FCP_QUEUES; q++) {
            const fcp_stream *x = fcp_stream_of(s->plan, (fcp_pass)pass, rank, (fcp_queue)q);
            struct { void *data; size_t bytes; } part = {s->times->instrs + x->first,
                                                         x->count * sizeof *s->times->instrs};
            for (uint32_t i = x->first;; i++) {
                if (memory && part.bytes)
                    memcpy(from ? part.data : memory + at, from ? memory + at : part.data, part.bytes);
                at += part.bytes;
                if (i == x->first + x->count) break;
                const fcp_instr *launch = &s->plan->instrs[i];
                bool moves = launch->op == FCP_OP_LAUNCH;
                part.data = moves ? s->times->transfers + launch->a : NULL;
                part.bytes = moves ? launch->b * sizeof *s->times->transfers : 0;
            }
        }
    return at;
}

fcp_code fcp_session_timings_collect(fcp_session *s, fcp_error *err) {
    fcp_session *whole = s;
    fcp_code entered = s ? enter(s, err) : FCP_OK;
    if (entered) return entered;
    if (s) s = fcp_session_now(s);
    if (!s || !s->times) return fcp_fail(err, FCP_E_ARGUMENT, "the session was made without the option timings");
    fcp_code whole_plan = fcp_plan_whole(s->plan, "collecting all ranks' timings", err);
    if (whole_plan) return whole_plan;
    for (uint32_t r = 1; r < s->plan->problem->ranks && s->rank_count < s->plan->problem->ranks; r++) {
        bool own = r == s->first_rank;
        if (!own && s->first_rank) continue;
        size_t bytes = move_times(s, r, NULL, false);
        char *memory = calloc(1, bytes + 1);
        if (!memory)
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu bytes of timings of rank %u", bytes, r);
        if (own) move_times(s, r, memory, false);
        fcp_code code = bytes ? leave(whole, s->kind->collect(s, r, memory, bytes, err)) : FCP_OK;
        if (!own && !code) move_times(s, r, memory, true);
        free(memory);
        if (code) return code;
    }
    s->times->collected = !s->first_rank;
    return FCP_OK;
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
fcp_fuse fcp_session_fused(const fcp_session *s, fcp_pass pass) {
    return s->kind->fused && s->kind->fused(s, pass) ? FCP_FUSE_PASS : FCP_FUSE_STAGES;
}
const char *fcp_session_warning(const fcp_session *s) { return s->kind->warning ? s->kind->warning(s) : ""; }
const char *fcp_session_transport(const fcp_session *s) { return s->net->transport->name; }
