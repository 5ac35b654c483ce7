/* test_nccl.c: plans whose ranks are processes that send by NCCL, through libraries that stand in for it and for the driver:
 * what they compute, that it is what one process computes, and what becomes of errors, of ranks that die and of ranks that
 * do not agree. */
#include <limits.h>

#include "../../runtime/reference.h"
#include "../../runtime/tensors.h"
#include "../oracle/random_program.h"
#include "gpu_plan.h"
#include "processes.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };

typedef enum way { BY_ID, BY_FILE } way;
typedef struct task {
    const fcp_plan *plan;
    const fcp_plan *other; /* rank `odd`'s, if there is one */
    unsigned odd;          /* the rank that is not like the others, or that is failed */
    uint32_t graph_from, timeout_s, odd_graph_from;
    int times;
    uint64_t seed;
    bool idle, silent, device_memory, one_device, keeps_away;
    way way;
    long group_at, async_at; /* in rank `odd` */
    int fault, version;
    char *out[2];          /* shared: what the ranks give; what one process gives: every time's tensors behind each other */
    size_t at[FCP_TENSORS + 1];
} task;

static void lay_out(task *x) {
    fcp_shape shape;
    uint64_t dims[3];
    fcp_plan_shape(x->plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++) {
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        x->at[t + 1] = x->at[t] + (dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t) + 63) / 64 * 64;
    }
    for (int i = 0; i < 2; i++) {
        x->out[i] = mmap(NULL, x->at[FCP_TENSORS] * (size_t)x->times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        cr_assert(x->out[i] != MAP_FAILED);
    }
}

static bool of_keys(int t) { return t == FCP_TENSOR_K || t == FCP_TENSOR_V || t == FCP_TENSOR_DK || t == FCP_TENSOR_DV; }

/* A rank's rows of a packed tensor, between `whole` and `part` (dense), or between `whole` and another whole one. */
static size_t rows(const fcp_plan *plan, uint32_t rank, int t, char *whole, char *other, bool dense, bool out) {
    fcp_shape shape;
    const fcp_span *spans;
    uint32_t count;
    uint64_t length;
    size_t at = 0;
    fcp_plan_shape(plan, &shape);
    size_t row = fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
    if (of_keys(t)) fcp_plan_layout_keys(plan, rank, &spans, &count);
    else fcp_plan_layout(plan, rank, &spans, &count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t first = of_keys(t) ? fcp_plan_key_offset(plan, spans[i].sequence, &length)
                                    : fcp_plan_sequence_offset(plan, spans[i].sequence, &length);
        size_t place = (first + spans[i].start) * row, bytes = spans[i].length * row;
        if (other) memcpy(out ? whole + place : other + (dense ? at : place), out ? other + (dense ? at : place) : whole + place, bytes);
        at += bytes;
    }
    return at;
}

static unsigned outputs(const fcp_plan *plan) {
    unsigned set = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (plan->problem->passes >> pass & 1) set |= fcp_pass_outputs((fcp_pass)pass);
    return set;
}
static void put_out(const task *x, uint32_t rank, int time, int which, const fcp_packed *packed) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (outputs(x->plan) >> t & 1)
            rows(x->plan, rank, t, x->out[which] + (size_t)time * x->at[FCP_TENSORS] + x->at[t], packed->t[t], false, true);
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

static void set_up(process *p, uint64_t turn) {
    const task *x = p->argument;
    p->cuda->devices = PROCESSES;
    p->cuda->seed = x->seed * 31 + p->rank + turn;
    p->cuda->plan = x->plan;
    p->cuda->idle = x->idle;
    p->nccl->seed = x->seed + turn;
    p->nccl->silent = x->silent;
    if (x->version) p->nccl->version = x->version;
}

/* Rank 0 makes an id, and all have it. */
static void share_id(process *p, int turn) {
    fcp_error err = {0};
    if (p->rank == 0) CHECK(p, fcp_start_id(p->shared->id.bytes, &err) == FCP_OK, "%s", err.message);
    process_meet(p, 0, turn);
}

static fcp_code create(process *p, fcp_session **out, fcp_error *err) {
    const task *x = p->argument;
    bool odd = p->rank == x->odd;
    char path[200];
    snprintf(path, sizeof path, "%s/id", p->shared->folder);
    fcp_start start = {.ranks = p->ranks, .rank = p->rank, .device = x->one_device ? 1 : p->rank + 1,
                       .id = x->way == BY_ID ? p->shared->id.bytes : NULL, .id_file = x->way == BY_FILE ? path : NULL};
    fcp_session_options options = {.backend = "cuda", .transport = "nccl", .start = &start, .timeout_s = x->timeout_s,
                                   .graph_from = odd && x->odd_graph_from ? x->odd_graph_from : x->graph_from};
    return fcp_session_create(odd && x->other ? x->other : x->plan, &options, out, err);
}

/* The passes on tensors in memory of the rank's device, in a stream of the caller's. */
static fcp_code run_on_device(process *p, fcp_session *session, fcp_packed *packed, fcp_error *err) {
    const task *x = p->argument;
    fcp_cuda *cuda = NULL;
    cu_context context = NULL;
    cu_stream stream = NULL;
    cu_ptr memory[FCP_TENSORS] = {0};
    CHECK(p, fcp_cuda_open(&cuda, err) == FCP_OK);
    CHECK(p, !cuda->call.context_retain(&context, (int)p->rank) && !cuda->call.context_set(context));
    CHECK(p, !cuda->call.stream_create(&stream, CU_STREAM_NON_BLOCKING, 0));
    for (int t = 0; t < FCP_TENSORS; t++) {
        size_t bytes = rows(x->plan, p->rank, t, packed->t[t], NULL, true, false);
        CHECK(p, !cuda->call.allocate(&memory[t], bytes + 16));
        rows(x->plan, p->rank, t, packed->t[t], (char *)(uintptr_t)memory[t], true, false);
    }
    void *m[FCP_TENSORS];
    for (int t = 0; t < FCP_TENSORS; t++) m[t] = (void *)(uintptr_t)memory[t];
    const fcp_tensors tensors = {m[FCP_TENSOR_Q], m[FCP_TENSOR_K], m[FCP_TENSOR_V], m[FCP_TENSOR_O], m[FCP_TENSOR_LSE],
                                 m[FCP_TENSOR_DO], m[FCP_TENSOR_DQ], m[FCP_TENSOR_DK], m[FCP_TENSOR_DV]};
    fcp_code code = FCP_OK;
    unsigned long copied = p->cuda->host_copies;
    for (int pass = 0; !code && pass < FCP_PASSES; pass++)
        if (x->plan->problem->passes >> pass & 1) code = fcp_session_run_on(session, (fcp_pass)pass, &tensors, stream, err);
    CHECK(p, p->cuda->host_copies == copied, "device memory went through the host");
    if (!code) code = fcp_session_wait(session, err);
    for (int t = 0; !code && t < FCP_TENSORS; t++)
        if (outputs(x->plan) >> t & 1) rows(x->plan, p->rank, t, packed->t[t], m[t], true, true);
    for (int t = 0; t < FCP_TENSORS; t++) CHECK(p, !cuda->call.release(memory[t]));
    CHECK(p, !cuda->call.stream_destroy(stream) && !cuda->call.context_release((int)p->rank));
    fcp_cuda_close(cuda);
    return code;
}

static fcp_code run_passes(process *p, fcp_session *session, int time, fcp_error *err) {
    const task *x = p->argument;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_plan_shape(x->plan, &shape);
    fcp_code code = fcp_packed_alloc(&shape, ALL, &packed, err);
    if (!code) fcp_packed_draw(&shape, ALL, (uint64_t)time + 1, &packed);
    if (!code && x->device_memory) code = run_on_device(p, session, &packed, err);
    for (int pass = 0; !code && !x->device_memory && pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass]) code = fcp_session_run_packed(session, x->plan, (fcp_pass)pass, &packed, NULL, err);
    if (!code && x->out[0]) put_out(x, p->rank, time, 0, &packed);
    fcp_packed_free(&packed);
    return code;
}

/* How many groups a rank puts down in `times` runs of all passes, without graphs. */
static unsigned long groups_of(const fcp_plan *plan, uint32_t rank, int times, uint32_t graph_from, bool captured) {
    unsigned long count = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(plan->problem->passes >> pass & 1)) continue;
        const fcp_stream *stream = fcp_stream_of(plan, (fcp_pass)pass, rank, FCP_COMM);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *x = &plan->instrs[stream->first + i];
            if (x->op != FCP_OP_LAUNCH || !x->b) continue;
            uint32_t round = plan->rounds[plan->round_starts[pass] + x->c].kind;
            bool home = round != FCP_ROUND_IN && round != FCP_ROUND_OUT;
            uint32_t put = home && graph_from < (uint32_t)times ? graph_from : (uint32_t)times;
            if (!captured) count += put;
            else count += home && graph_from <= (uint32_t)times;
        }
    }
    return count;
}

static void run_rank(process *p) {
    const task *x = p->argument;
    fcp_session *session = NULL;
    fcp_error *err = &p->word->err;
    set_up(p, 0);
    if (x->way == BY_ID) share_id(p, 1);
    if (x->keeps_away && p->rank == x->odd) return;
    p->word->code = create(p, &session, err);
    if (p->rank == x->odd) {
        p->nccl->group_at = x->group_at ? p->nccl->begun + x->group_at : 0;
        p->nccl->group_fault = x->fault;
        p->nccl->async_at = x->async_at ? p->nccl->asked + x->async_at : 0;
        p->nccl->async_with = x->fault;
    }
    for (int i = 0; i < x->times && !p->word->code; i++) p->word->code = run_passes(p, session, i, err);
    if (session) {
        fcp_error again = {0};
        uint32_t first = 0;
        CHECK(p, fcp_session_ranks(session, &first) == 1 && first == p->rank);
        CHECK(p, strcmp(fcp_session_transport(session), "nccl") == 0);
        if (p->word->code) {
            CHECK(p, run_passes(p, session, 0, &again) == FCP_E_RUN && strstr(again.message, "a new one is needed"), "%s", again.message);
        } else {
            bool none = p->ranks > 1 && !groups_of(x->plan, p->rank, 1, UINT32_MAX, false); /* talks to nobody */
            CHECK(p, p->nccl->groups == (none ? 1 : 2) + groups_of(x->plan, p->rank, x->times, x->graph_from, false), "%lu groups",
                  p->nccl->groups);
            CHECK(p, p->nccl->captured == groups_of(x->plan, p->rank, x->times, x->graph_from, true), "%lu", p->nccl->captured);
            CHECK(p, !p->nccl->empty_groups && p->nccl->registrations == 1);
            CHECK(p, p->nccl->cga_cluster_size == 1);
        }
    }
    fcp_session_free(session);
}

/* All of it in one process. */
static void run_local(process *p) {
    const task *x = p->argument;
    fcp_session_options options = {.backend = "cuda", .timeout_s = 100, .graph_from = UINT32_MAX};
    fcp_session *session;
    fcp_shape shape;
    fcp_error err = {0};
    set_up(p, 0);
    fcp_plan_shape(x->plan, &shape);
    p->cuda->devices = 1 + (int)(x->seed % 3);
    CHECK(p, fcp_session_create(x->plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int i = 0; i < x->times && !p->word->failed[0]; i++) {
        fcp_packed packed = {0};
        CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
        fcp_packed_draw(&shape, ALL, (uint64_t)i + 1, &packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (shape.has_pass[pass])
                CHECK(p, fcp_session_run_packed(session, x->plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s", err.message);
        for (uint32_t r = 0; r < shape.ranks; r++) put_out(x, r, i, 1, &packed);
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
}

/* By the definition, and by what one process gives. */
static void judge(process *p) {
    const task *x = p->argument;
    fcp_shape shape;
    fcp_error err = {0};
    fcp_plan_shape(x->plan, &shape);
    for (int i = 0; i < x->times; i++) {
        fcp_packed packed = {0};
        fcp_check_report report = FCP_CHECK_START;
        char *mine = x->out[0] + (size_t)i * x->at[FCP_TENSORS], *theirs = x->out[1] + (size_t)i * x->at[FCP_TENSORS];
        CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
        fcp_packed_draw(&shape, ALL, (uint64_t)i + 1, &packed);
        for (int t = 0; t < FCP_TENSORS; t++) {
            uint64_t dims[3];
            fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
            size_t bytes = dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
            if (!(outputs(x->plan) >> t & 1)) continue;
            memcpy(packed.t[t], mine + x->at[t], bytes);
            CHECK(p, !memcmp(mine + x->at[t], theirs + x->at[t], bytes), "run %d: %s is not what one process gives", i,
                  fcp_tensor_name((fcp_tensor)t));
        }
        CHECK(p, fcp_check_passes(x->plan, x->plan->problem->passes, &packed, 1, NULL, &report, &err) == FCP_OK, "%s", err.message);
        for (int t = 0; t < FCP_TENSORS; t++)
            CHECK(p, !report.tensor[t].checked || report.tensor[t].ok, "%s: error %g, allowed %g", fcp_tensor_name((fcp_tensor)t),
                  report.tensor[t].max_abs_error, report.tensor[t].tolerance);
        fcp_packed_free(&packed);
    }
}

static void no_trouble(const process_shared *s, unsigned ranks, unsigned except, const char *what) {
    for (unsigned r = 0; r < ranks; r++) {
        const process_word *w = &s->words[r];
        if (except >> r & 1) continue;
        cr_assert_str_empty(w->trouble, "%s: rank %u: %s", what, r, w->trouble);
        cr_assert_eq(w->live, 0, "%s: rank %u: %ld objects are left; %s", what, r, w->live, w->err.message);
    }
}

/* Ranks, one process, and the definition agree. */
static void agree(task *x, const char *what) {
    unsigned ranks = x->plan->problem->ranks;
    process_shared *s = process_shared_make();
    if (!x->timeout_s) x->timeout_s = 50;
    lay_out(x);
    process_run(s, ranks, run_rank, x);
    process_all_well(s, ranks, 0, what);
    for (unsigned r = 0; r < ranks; r++) cr_assert_eq(s->words[r].code, FCP_OK, "%s: rank %u: %s; %s", what, r, s->words[r].err.message, s->words[r].trouble);
    no_trouble(s, ranks, 0, what);
    process_run(s, 1, run_local, x);
    process_all_well(s, 1, 0, what);
    process_run(s, 1, judge, x);
    process_all_well(s, 1, 0, what);
    process_shared_end(s, false);
    for (int i = 0; i < 2; i++) munmap(x->out[i], x->at[FCP_TENSORS] * (size_t)x->times);
    x->out[0] = x->out[1] = NULL;
}

static fcp_plan *make_plan(const char *mask, unsigned ranks, unsigned nodes, const char *lengths, const char *more) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = %u; head_dim = 16; dtype = %s }\ncluster { nodes = %u; gpus = %u }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = 128; passes = forward, backward%s }\n",
             ranks % 2 ? 1 : 2, ranks % 3 ? "bf16" : "fp16", nodes, ranks / nodes, lengths, mask, more);
    return gpu_plan(mask, text, NULL, 0);
}

Test(nccl, ranks) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)", "lambda(sink = 8, window = 100)"};
    for (unsigned ranks = 1; ranks <= 8; ranks++) {
        char what[80], lengths[40];
        snprintf(lengths, sizeof lengths, "%u, 130, 60", 300 + 70 * ranks);
        fcp_plan *plan = make_plan(masks[ranks % 4], ranks, ranks % 2 ? 1 : 2, lengths, ranks % 2 ? "" : "; layout = contiguous");
        snprintf(what, sizeof what, "%s on %u ranks", masks[ranks % 4], ranks);
        task x = {.plan = plan, .graph_from = UINT32_MAX, .times = 1, .seed = ranks, .way = ranks % 2 ? BY_ID : BY_FILE};
        agree(&x, what);
        fcp_plan_free(plan);
    }
}

Test(nccl, graphs) {
    for (unsigned ranks = 1; ranks <= 4; ranks++) {
        fcp_plan *plan = make_plan(ranks == 3 ? "full" : "causal", ranks, 1, "330, 130", "; layout = zigzag");
        task x = {.plan = plan, .graph_from = ranks == 2 ? 1 : 2, .times = 3, .seed = 40 + ranks, .odd = 99};
        agree(&x, "graphs");
        fcp_plan_free(plan);
    }
}

/* Ranks that have no tokens, or nobody to talk to in most rounds. */
Test(nccl, uneven) {
    static const char *const lengths[] = {"450, 60", "600, 20, 20", "700, 65"};
    for (unsigned i = 0; i < 3; i++) {
        fcp_plan *plan = make_plan("causal", 4 + i, 1, lengths[i], i == 1 ? "; strategy = ring" : "");
        unsigned long least = ULONG_MAX, most = 0;
        for (uint32_t r = 0; r < 4 + i; r++) {
            unsigned long groups = groups_of(plan, r, 1, UINT32_MAX, false);
            least = groups < least ? groups : least;
            most = groups > most ? groups : most;
        }
        cr_assert(i == 1 || least < most, "%lu, %lu", least, most);
        task x = {.plan = plan, .graph_from = 1, .times = 2, .seed = 60 + i};
        agree(&x, lengths[i]);
        fcp_plan_free(plan);
    }
}

Test(nccl, device_memory) {
    for (unsigned i = 0; i < 2; i++) {
        fcp_plan *plan = make_plan("causal", 3, 1, "330, 130", i ? "; layout = zigzag" : "");
        task x = {.plan = plan, .graph_from = 2, .times = 2, .seed = 80 + i, .device_memory = true};
        agree(&x, "device memory");
        fcp_plan_free(plan);
    }
}

Test(nccl, random_programs) {
    unsigned run = 0;
    random_program *p = calloc(1, sizeof *p);
    for (unsigned seed = 1; seed <= 12000 && run < 8; seed++) {
        dice d = {.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 99};
        for (int i = 0; i < 8; i++) roll(&d, 2);
        draw_program(p, &d, 12000);
        uint32_t ranks = p->nodes * p->gpus;
        if (p->dtype == FCP_FP32 || p->head_dim > 32 || p->head_dim < 16 || ranks < 2 || ranks > PROCESSES) continue;
        if (p->heads * p->sequences * ranks > 48 || p->tokens * p->heads < 64 * ranks) continue;
        fcpc_options options = {0};
        fcpc_diagnostics *said = fcpc_diagnostics_new();
        fcpc_program *program = NULL;
        fcp_plan *plan = NULL;
        fcp_code code = fcpc_parse_text("drawn.fcp", p->text, p->size, &options, said, &program);
        if (!code) code = fcpc_plan(program, NULL, 0, NULL, said, NULL, &plan);
        fcpc_program_free(program);
        fcpc_diagnostics_free(said);
        if (code || !plan->transfers_count) {
            fcp_plan_free(plan);
            continue;
        }
        task x = {.plan = plan, .graph_from = seed % 2 ? 1 : UINT32_MAX, .times = 1, .seed = seed, .way = BY_FILE};
        agree(&x, p->text);
        fcp_plan_free(plan);
        run++;
    }
    free(p);
    cr_assert(run == 8, "%u programs", run);
}

/* --- what fails --------------------------------------------------------------------------------------------------- */

/* Every rank but those of `except` ends with an error, in which are all of `parts`. */
static void all_fail(task *x, unsigned except, const char *const *parts, const char *what) {
    unsigned ranks = x->plan->problem->ranks;
    process_shared *s = process_shared_make();
    if (!x->timeout_s) x->timeout_s = 2;
    process_run(s, ranks, run_rank, x);
    process_all_well(s, ranks, except, what);
    no_trouble(s, ranks, except, what);
    for (unsigned r = 0; r < ranks; r++) {
        const process_word *w = &s->words[r];
        if (except >> r & 1) continue;
        cr_assert(w->code != FCP_OK, "%s: rank %u ends well", what, r);
        for (int i = 0; parts[i]; i++)
            cr_assert(strstr(w->err.message, parts[i]), "%s: rank %u: \"%s\" is not in: %s", what, r, parts[i], w->err.message);
    }
    process_shared_end(s, except != 0);
}

static const char *const in_a_pass[] = {"rank ", " pass", "stage ", "instruction ", NULL};

/* A rank dies, is stopped, or gets no further on its device, in a pass: with and without graphs, noticed by NCCL or not. */
Test(nccl, a_rank_dies_stops_stalls) {
    static const int faults[] = {STANDIN_DIES, STANDIN_DIES, STANDIN_STOPS, STANDIN_STALLS};
    fcp_plan *plan = make_plan("full", 3, 1, "330, 130", "");
    for (unsigned i = 0; i < 8; i++) {
        char what[60];
        task x = {.plan = plan, .graph_from = i & 1 ? 1 : UINT32_MAX, .times = 2, .seed = 7 * i, .odd = i % 3, .idle = true,
                  .silent = i % 4 > 0, .group_at = 1 + i, .fault = faults[i % 4]};
        snprintf(what, sizeof what, "fault %u", i);
        all_fail(&x, x.fault == STANDIN_STALLS ? 0 : 1u << x.odd, in_a_pass, what);
    }
    fcp_plan_free(plan);
}

/* NCCL says that something has gone wrong, to one rank: that one ends at once, and takes the others with it. */
Test(nccl, asynchronous_errors) {
    fcp_plan *plan = make_plan("full", 3, 1, "330, 130", "");
    for (unsigned i = 0; i < 6; i++) {
        task x = {.plan = plan, .graph_from = i & 1 ? 1 : UINT32_MAX, .times = 1, .seed = 5 * i, .odd = i % 3, .idle = true,
                  .silent = i > 3, .async_at = 2 + 5 * i, .fault = NCCL_REMOTE_ERROR};
        all_fail(&x, 0, in_a_pass, "an asynchronous error");
    }
    fcp_plan_free(plan);
}

/* A rank does not come at all. */
Test(nccl, a_rank_is_missing) {
    static const char *const parts[] = {"rank ", NULL};
    fcp_plan *plan = make_plan("causal", 2, 1, "300, 130", "");
    for (unsigned i = 0; i < 4; i++) {
        task x = {.plan = plan, .times = 1, .seed = i, .odd = i % 2, .idle = true, .timeout_s = 1, .silent = i / 2, .keeps_away = true};
        all_fail(&x, 1u << x.odd, parts, "a missing rank");
        x.way = BY_FILE;
        all_fail(&x, 1u << x.odd, parts, "a missing rank, by file");
    }
    fcp_plan_free(plan);
}

Test(nccl, ranks_that_differ) {
    static const char *const plans[] = {"rank 1 has another plan than rank 0", NULL}, *const graphs[] = {"rank 1 is to make graphs from run 7 on", NULL},
                      *const devices[] = {"two ranks on one GPU need NCCL 2.30", NULL}, *const old[] = {"2.19", NULL};
    fcp_plan *plan = make_plan("causal", 2, 1, "300, 130", ""), *other = make_plan("causal", 2, 1, "300, 131", "");
    task x = {.plan = plan, .other = other, .odd = 1, .times = 1, .idle = true};
    all_fail(&x, 0, plans, "two plans");
    x = (task){.plan = plan, .odd = 1, .odd_graph_from = 7, .graph_from = 3, .times = 1, .idle = true};
    all_fail(&x, 0, graphs, "two options");
    x = (task){.plan = plan, .odd = 1, .times = 1, .idle = true, .one_device = true};
    all_fail(&x, 0, devices, "one device");
    x = (task){.plan = plan, .odd = 1, .times = 1, .idle = true, .version = 21805, .way = BY_FILE};
    all_fail(&x, 0, old, "an old version");
    fcp_plan_free(plan);
    fcp_plan_free(other);
}

/* Every call of one rank fails once (`times` of them, each `fault`-th): it ends with an error, the other too or with none,
 * nothing is left and nothing hangs. */
enum { FAILED = 5, OTHERS = 6, LAST = 7 };
static void fail_calls(process *p) {
    const task *x = p->argument;
    int last = 0;
    for (int at = 1; at <= x->times; at += x->fault) {
        int turn = (at - 1) / x->fault + 1;
        fcp_session *session = NULL;
        fcp_error err = {0};
        bool odd = p->rank == (unsigned)turn % 2;
        set_up(p, (uint64_t)at);
        p->nccl->fail_at = 0;
        share_id(p, turn);
        p->nccl->fail_at = odd ? p->nccl->calls + at : 0;
        p->nccl->fail_with = 1 + turn % 6;
        long begin = p->nccl->calls;
        fcp_code code = create(p, &session, &err);
        for (int i = 0; i < 2 && !code; i++) code = run_passes(p, session, 0, &err);
        fcp_session_free(session);
        if (code) {
            CHECK(p, strstr(err.message, "rank ") || at == 1, "call %d: %s", at, err.message);
            atomic_fetch_add(&p->shared->counter[odd ? FAILED : OTHERS], 1);
        }
        CHECK(p, p->cuda->live == 0, "call %d: %ld objects are left; %s", at, p->cuda->live, err.message);
        CHECK(p, !p->cuda->trouble[0], "call %d: %s", at, p->cuda->trouble);
        if (odd) last = (int)(p->nccl->calls - begin);
        process_meet(p, 1, turn);
    }
    atomic_fetch_add(&p->shared->counter[LAST], last);
}
Test(nccl, every_call_fails) {
    fcp_plan *plan = make_plan("full", 2, 1, "300, 60", "");
    for (unsigned i = 0; i < 2; i++) {
        process_shared *s = process_shared_make();
        task x = {.plan = plan, .graph_from = i ? 1 : UINT32_MAX, .times = 78, .fault = 1 + (int)i, .idle = true, .timeout_s = 2};
        process_run(s, 2, fail_calls, &x);
        process_all_well(s, 2, 0, "every call");
        fprintf(stderr, "calls: %d errors of the rank that fails, %d of the other, %d calls\n", s->counter[FAILED], s->counter[OTHERS],
                s->counter[LAST]);
        cr_assert(s->counter[FAILED] > 20 && s->counter[OTHERS] > 20);
        process_shared_end(s, true);
    }
    fcp_plan_free(plan);
}
