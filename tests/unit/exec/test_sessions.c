/* test_sessions.c: tests what every session does, whatever it computes on and however its ranks reach each other.
 * Each test runs on every pair of session and transport that needs no GPU. Where ranks are processes, each of them
 * does what the test says. */
#include "runtime/exec/kept_keys.h"
#include "runtime/exec/session.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/amount.h"
#include "tests/support/exact_attention.h"
#include "tests/support/plan_of.h"
#include "tests/support/processes.h"
#include "tests/support/rank_tensors.h"

enum { RANKS = 4, ALL = (1 << FCP_TENSORS) - 1 };

typedef struct pair {
    const char *backend, *transport;
    bool processes, streams;
    const char *mpi; /* which MPI stands in; NULL: none */
} pair;
static const pair pairs[] = {{"host", "threads", false, false, NULL}, {"host", "mpi", true, false, "open"},
                             {"host", "tcp", true, false, NULL},      {"cuda", "local", false, true, NULL},
                             {"cuda", "nccl", true, true, NULL}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* Plans: of one model, and of others. PHASE is a phase of upipe: K and V stay where they are. WINDOW has partial results
 * that are rounded on their way. FAR has logits beside which float32 has no room for the logarithm of a sum, and partial
 * results. */
typedef enum which { CAUSAL, WINDOW, FAR, OTHER, PHASE, PLANS } which;
typedef struct given {
    const pair *pair;
    const fcp_plan *plans[PLANS];
} given;

/* A process of a test, its session of the first plan, and what it has. */
typedef struct scene {
    process *p;
    const given *given;
    fcp_session *session;
    fcp_packed packed;
    fcp_error err;
} scene;

static fcp_code create(process *p, const given *g, const fcp_plan *plan, bool timings, fcp_session **out,
                       fcp_error *err) {
    fcp_start start = {.size = sizeof start, .ranks = p->ranks, .rank = p->rank, .device = p->rank + 1,
                       .id = p->shared->id.bytes};
    fcp_session_options options = {.size = sizeof options, .backend = g->pair->backend, .transport = g->pair->transport,
                                   .start = g->pair->processes ? &start : NULL, .compute_threads = 2, .timeout_s = 100,
                                   .graph_from = 2,
                                   .timings = timings};
    return fcp_session_create(plan, &options, out, err);
}

static bool begin_with(process *p, scene *x, which plan, bool timings) {
    *x = (scene){.p = p, .given = p->argument};
    const given *g = x->given;
    fcp_shape shape;
    fcp_plan_shape(g->plans[plan], &shape);
    p->cuda->devices = RANKS;
    p->cuda->plan = g->plans[plan];
    if (g->pair->mpi) process_mpi(p, g->pair->mpi);
    else if (g->pair->processes) {
        if (!strcmp(g->pair->transport, "tcp")) process_tcp_id(p);
        else if (p->rank == 0) CHECK(p, fcp_start_id(p->shared->id.bytes, &x->err) == FCP_OK, "%s", x->err.message);
        process_meet(p, 0, 1);
    }
    fcp_code code = create(p, g, g->plans[plan], timings, &x->session, &x->err);
    CHECK(p, code == FCP_OK, "%s", x->err.message);
    if (g->pair->mpi && p->rank == 0) process_mpi_met();
    return code == FCP_OK;
}
static bool begin_timed(process *p, scene *x) { return begin_with(p, x, CAUSAL, true); }
static bool begin(process *p, scene *x) { return begin_with(p, x, CAUSAL, false); }

static void end(scene *x) {
    fcp_packed_free(&x->packed);
    fcp_session_free(x->session);
}

/* How many partial results of the forward pass are merged. */
static unsigned merges_of(const fcp_plan *plan) {
    unsigned count = 0;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, r, FCP_COMPUTE);
        for (uint32_t i = 0; i < s->count; i++) count += plan->instrs[s->first + i].op == FCP_OP_MERGE;
    }
    return count;
}

static void on_every_pair(void (*body)(process *)) {
    static const char model[] =
        "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = bf16 }\ncluster { nodes = 2; gpus = 2 }\n"
        "batch { lengths = [%s] }\nscore far = s - 1.0e8\n"
        "plan { mask = %s; block = 128; passes = forward, backward%s }\n";
    static given g; /* not on the stack: a process that ends is asked what it still refers to */
    for (int i = 0; i < PLANS; i++) {
        char text[500];
        const bool merges = i == WINDOW || i == FAR;
        snprintf(text, sizeof text, model, i == PHASE ? 8 : 2, i == PHASE ? 4 : 1, i == OTHER ? 32 : 16,
                 merges ? "400, 40" : "200, 130, 60", merges ? "window(w = 140)" : "causal",
                 i == WINDOW  ? "; strategy = dcp(divisions = 4); layout = contiguous; wire = bf16"
                 : i == FAR   ? "; strategy = dcp(divisions = 4); layout = contiguous; score = far"
                 : i == PHASE ? "; strategy = upipe(heads = 8); layout = planned"
                              : "");
        g.plans[i] = plan_named("pair.fcp", text);
    }
    cr_assert(merges_of(g.plans[WINDOW]) > 0 && merges_of(g.plans[FAR]) > 0);
    for (int i = 0; i < PAIRS; i++) {
        char what[80];
        process_shared *s = process_shared_make();
        g.pair = &pairs[i];
        snprintf(what, sizeof what, "%s, %s %s", g.pair->backend, g.pair->transport, g.pair->mpi ? g.pair->mpi : "");
        process_run(s, g.pair->processes ? RANKS : 1, body, &g);
        process_all_well(s, g.pair->processes ? RANKS : 1, 0, what);
        process_shared_end(s, false);
    }
    for (int i = 0; i < PLANS; i++) fcp_plan_free((fcp_plan *)(uintptr_t)g.plans[i]);
}

/* Runs all passes on drawn tensors: x->packed has the inputs, and outputs of this process's ranks. */
static fcp_code run_all(scene *x, const fcp_plan *plan, uint64_t seed) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    fcp_packed_free(&x->packed);
    fcp_code code = fcp_packed_alloc(&shape, ALL, &x->packed, &x->err);
    if (!code) fcp_packed_draw(&shape, ALL, seed, &x->packed);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++)
        code = fcp_session_run_packed(x->session, plan, (fcp_pass)pass, &x->packed, NULL, &x->err);
    return code;
}

/* What this process's ranks have is right. */
static void judge(scene *x, const fcp_plan *plan, const char *when) {
    fcp_check_report report = FCP_CHECK_START;
    uint32_t first, count = fcp_session_ranks(x->session, &first);
    const fcp_check_options all = {.passes = plan->problem->passes, .first = first, .count = count, .threads = 1};
    fcp_code code = fcp_check_run(plan, &all, &x->packed, &report, &x->err);
    CHECK(x->p, code == FCP_OK, "%s: %s", when, x->err.message);
    CHECK(x->p, report.ok, "%s: error %g", when, report.max_abs_error);
}

/* It has what it had. */
static void same_bits(const scene *x, const fcp_plan *plan, const fcp_packed *before) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++)
        CHECK(x->p, !memcmp(before->t[t], x->packed.t[t], fcp_packed_bytes(&shape, (fcp_tensor)t)), "%s has other bits",
              fcp_tensor_name((fcp_tensor)t));
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

static void says_what_it_is(process *p) {
    scene x;
    if (begin(p, &x)) {
        const pair *is = x.given->pair;
        uint32_t first = 99, count = fcp_session_ranks(x.session, &first);
        const char *why = NULL;
        CHECK(p, !strcmp(fcp_session_backend(x.session), is->backend));
        CHECK(p, !strcmp(fcp_session_transport(x.session), is->transport));
        CHECK(p, fcp_session_plan(x.session) == x.given->plans[CAUSAL]);
        CHECK(p, fcp_session_processes(x.session) == (is->processes ? RANKS : 1));
        CHECK(p, first == p->rank && count == (is->processes ? 1 : RANKS));
        CHECK(p, fcp_session_partition(x.session, &why) != FCP_PARTITION_AUTO && why && *why);
        CHECK(p, fcp_session_warning(x.session));
    }
    end(&x);
}
Test(sessions, say_what_they_are) { on_every_pair(says_what_it_is); }

/* --- runs --------------------------------------------------------------------------------------------------------- */

static void is_right_and_the_same_again(process *p) {
    scene x;
    if (begin(p, &x)) {
        const fcp_plan *plan = x.given->plans[CAUSAL];
        CHECK(p, run_all(&x, plan, 7) == FCP_OK, "%s", x.err.message);
        judge(&x, plan, "at first");
        fcp_packed before = x.packed;
        x.packed = (fcp_packed){0};
        for (int i = 0; i < 2; i++) CHECK(p, run_all(&x, plan, 7) == FCP_OK, "%s",
                                          x.err.message); /* as graphs, where there are any */
        same_bits(&x, plan, &before);
        fcp_packed_free(&before);
    }
    end(&x);
}
Test(sessions, are_right_and_give_the_same_bits_again) { on_every_pair(is_right_and_the_same_again); }

static void refuses_what_cannot_be_run(process *p) {
    scene x;
    if (begin(p, &x)) {
        const fcp_plan *plan = x.given->plans[CAUSAL];
        fcp_tensors none[RANKS] = {{0}};
        fcp_error err = {0};
        uint32_t first;
        fcp_session_ranks(x.session, &first);
        CHECK(p, fcp_session_run(x.session, FCP_FORWARD, none, &err) == FCP_E_TENSOR);
        CHECK(p, err.where.rank == first && err.where.instruction == FCP_NOWHERE, "rank %u", err.where.rank);
        CHECK(p, fcp_session_run(x.session, (fcp_pass)7, none, &err) == FCP_E_ARGUMENT);
        CHECK(p, fcp_session_run(x.session, FCP_FORWARD, NULL, &err) == FCP_E_ARGUMENT);
        CHECK(p, fcp_session_run_on(x.session, FCP_FORWARD, none, NULL, &err) == FCP_E_ARGUMENT);
        if (!x.given->pair->streams) {
            int stream = 0;
            CHECK(p, fcp_session_run_on(x.session, FCP_FORWARD, none, &stream, &err) == FCP_E_ARGUMENT &&
                  strstr(err.message, "streams"));
        }
        CHECK(p, run_all(&x, plan, 3) == FCP_OK, "it is none the worse: %s", x.err.message);
        CHECK(p, fcp_session_wait(x.session, &err) == FCP_OK);
        judge(&x, plan, "afterwards");
    }
    end(&x);
}
Test(sessions, refuse_what_cannot_be_run_and_go_on) { on_every_pair(refuses_what_cannot_be_run); }

/* --- runs that keep keys ------------------------------------------------------------------------------------------ */

/* Runs both passes. kept: a bit for each pass that uses the K and V of the run before, and gets none. */
static void run_keeping(scene *x, unsigned kept, const fcp_tensors *all, uint32_t first, uint32_t own) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        fcp_tensors mine[RANKS];
        for (uint32_t r = 0; r < own; r++) {
            mine[r] = all[first + r];
            if (kept >> pass & 1) mine[r].k = mine[r].v = NULL;
        }
        const fcp_code code = kept >> pass & 1 ? fcp_session_run_kept(x->session, (fcp_pass)pass, mine, NULL, &x->err)
                                               : fcp_session_run(x->session, (fcp_pass)pass, mine, &x->err);
        CHECK(x->p, code == FCP_OK, "%s", x->err.message);
    }
}

/* Other queries on the same keys have the bits of a run that is given all. */
static void keeps_keys(process *p) {
    enum {
        OUTPUTS =
            1 << FCP_TENSOR_O | 1 << FCP_TENSOR_LSE | 1 << FCP_TENSOR_DQ | 1 << FCP_TENSOR_DK | 1 << FCP_TENSOR_DV,
        QUERIES = 1 << FCP_TENSOR_Q | 1 << FCP_TENSOR_DO
    };
    scene x;
    fcp_shape shape;
    fcp_tensors some[RANKS] = {{0}}, want[RANKS] = {{0}}, got[RANKS] = {{0}};
    const given *g = p->argument;
    const fcp_plan *plan = g->plans[PHASE];
    uint32_t first, own;
    if (!begin_with(p, &x, PHASE, false)) return;
    fcp_plan_shape(plan, &shape);
    own = fcp_session_ranks(x.session, &first);
    rank_tensors_open(plan, &shape, some), rank_tensors_open(plan, &shape, want), rank_tensors_open(plan, &shape, got);
    for (uint32_t r = first; r < first + own; r++)
        for (int t = 0; t < FCP_TENSORS; t++) {
            const uint64_t bytes =
                fcp_tensors_tokens(plan, r, (fcp_tensor)t) * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
            if (!(QUERIES >> t & 1)) continue;
            rank_tensor_draw(&shape, r + 100, 1u << t, bytes, t, fcp_tensors_get(&want[r], (fcp_tensor)t));
            rank_tensor_draw(&shape, r + 100, 1u << t, bytes, t, fcp_tensors_get(&got[r], (fcp_tensor)t));
        }
    CHECK(p,
          fcp_session_run_kept(x.session, FCP_FORWARD, got + first, NULL, &x.err) == FCP_E_ARGUMENT &&
              strstr(x.err.message, "there is none"),
          "%s", x.err.message);
    CHECK(p, fcp_session_keys_stay(x.session));
    run_keeping(&x, 0, want, first, own);
    for (int again = 0; again < 3; again++) {
        run_keeping(&x, 0, some, first, own);
        run_keeping(&x, 3, got, first, own); /* behind a backward pass, and behind a forward pass */
        for (uint32_t r = first; r < first + own; r++)
            for (int t = 0; t < FCP_TENSORS; t++) {
                const uint64_t bytes =
                    fcp_tensors_tokens(plan, r, (fcp_tensor)t) * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
                void *at = fcp_tensors_get(&got[r], (fcp_tensor)t);
                if (!(OUTPUTS >> t & 1)) continue;
                CHECK(p, bytes && !memcmp(at, fcp_tensors_get(&want[r], (fcp_tensor)t), bytes), "rank %u: %s", r,
                      fcp_tensor_name((fcp_tensor)t));
                memset(at, 0xff, bytes);
            }
    }
    fcp_tensors none[RANKS] = {{0}};
    CHECK(p, fcp_session_run_kept(x.session, FCP_FORWARD, none, NULL, &x.err) == FCP_E_TENSOR, "%s", x.err.message);
    CHECK(p, fcp_session_rebind(x.session, plan, &x.err) == FCP_OK, "%s", x.err.message);
    CHECK(p, fcp_session_run_kept(x.session, FCP_FORWARD, got + first, NULL, &x.err) == FCP_E_ARGUMENT);
    rank_tensors_close(&shape, some), rank_tensors_close(&shape, want), rank_tensors_close(&shape, got);
    end(&x);
}
Test(sessions, keep_keys) { on_every_pair(keeps_keys); }

/* The bytes that the launches of rank 0 move of a class: without a message, so K and V, and Q. */
static uint64_t bytes_moved(const fcp_plan *plan, fcp_pass pass, fcp_class cls, bool kept) {
    fcp_homes *homes = fcp_homes_of(plan);
    fcp_slots slots;
    fcp_arena arena;
    fcp_wires wires = {0};
    fcp_error err;
    uint64_t bytes = 0;
    fcp_slots_of(plan, pass, 0, homes[0].homes, &slots);
    char *memory = malloc(fcp_arena_size(plan, pass, &homes[0], &slots));
    fcp_arena_lay(plan, pass, 0, &homes[0], &slots, memory, &arena);
    arena.keys_kept = kept;
    const fcp_stream *s = fcp_stream_of(plan, pass, 0, FCP_COMM);
    for (uint32_t i = 0; i < s->count; i++) {
        const fcp_instr *x = &plan->instrs[s->first + i];
        if (x->op != FCP_OP_LAUNCH || fcp_wires_make(&wires, &arena, NULL, 0, x, &err)) continue;
        for (uint32_t j = 0; j < x->b; j++)
            if (plan->transfers[x->a + j].cls == cls) bytes += fcp_wire_bytes(&wires.list[j]);
    }
    fcp_wires_free(&wires);
    free(memory), free(homes);
    return bytes;
}

Test(sessions, move_no_keys_that_are_kept) {
    fcp_plan *plan =
        plan_named("kept.fcp", "model { heads = 4; head_dim = 16 }\ncluster { gpus = 4 }\nbatch { lengths = "
                               "[3000] }\nplan { mask = causal; passes = forward, backward; strategy = upipe; layout = "
                               "planned }\n");
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        cr_expect_gt(bytes_moved(plan, (fcp_pass)pass, FCP_KV, false), 0);
        cr_expect_eq(bytes_moved(plan, (fcp_pass)pass, FCP_KV, true), 0);
        cr_expect_gt(bytes_moved(plan, (fcp_pass)pass, FCP_Q, true), 0);
    }
    fcp_plan_free(plan);
}

/* Where slots are used again, or inputs come from other ranks, keys do not stay. */
Test(sessions, know_whose_keys_stay) {
    static const struct {
        const char *plan;
        bool stay;
    } all[] = {{"strategy = upipe; layout = planned", true},
               {"strategy = ulysses; layout = contiguous", true},
               {"strategy = upipe(heads = 4); layout = planned", false}, /* phases take each other's place */
               {"strategy = fcp(buffers = 1, coalesce = 1); layout = planned", false},
               {"strategy = fcp; layout = contiguous", false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "model { heads = %d; head_dim = 16 }\ncluster { gpus = 4 }\nbatch { lengths = [3000, 70] }"
                 "\nplan { mask = causal; block = 128; passes = forward, backward; %s }\n",
                 i == 2 ? 8 : 4, all[i].plan);
        fcp_plan *plan = plan_named("stay.fcp", text);
        cr_expect_eq(fcp_keys_stay(plan, 0, 4), all[i].stay, "%s", all[i].plan);
        fcp_plan_free(plan);
    }
}

/* --- timings ------------------------------------------------------------------------------------------------------ */

/* The times of one rank's instructions: each queue goes on in order, and no WAIT ends before what it waits for. */
static void timings_fit(process *p, const fcp_session *s, const fcp_plan *plan, fcp_pass pass, uint32_t rank) {
    const fcp_timing *t[FCP_QUEUES] = {NULL, NULL};
    uint32_t count[FCP_QUEUES];
    fcp_error err;
    for (uint32_t q = 0; q < FCP_QUEUES; q++)
        CHECK(p, fcp_session_timings(s, pass, rank, q, &t[q], &count[q], &err) == FCP_OK, "%s", err.message);
    for (uint32_t q = 0; q < FCP_QUEUES; q++) {
        const fcp_stream *stream = fcp_stream_of(plan, pass, rank, (fcp_queue)q);
        CHECK(p, t[q] && count[q] == stream->count);
        for (uint32_t i = 0; t[q] && i < count[q]; i++) {
            const fcp_instr *x = &plan->instrs[stream->first + i];
            CHECK(p, t[q][i].begin <= t[q][i].end, "rank %u, queue %u, instruction %u ends before it begins", rank, q,
                  i);
            CHECK(p, !i || t[q][i - 1].end <= t[q][i].begin, "rank %u, queue %u, instruction %u begins too early", rank,
                  q, i);
            const uint32_t waits = x->op == FCP_OP_WAIT ? fcp_waits_whole(x) : 0;
            if (waits && waits <= count[!q] &&
                plan->instrs[fcp_stream_of(plan, pass, rank, (fcp_queue)!q)->first + waits - 1].op != FCP_OP_COPY)
                CHECK(p, t[!q][waits - 1].end <= t[q][i].end, "rank %u, queue %u, wait %u ends too early", rank, q, i);
            for (uint32_t n = x->a; x->op == FCP_OP_LAUNCH && n < x->a + x->b; n++)
                CHECK(p, s->times->transfers[n] >= t[q][i].begin && s->times->transfers[n] <= t[q][i].end);
        }
    }
}

static void records_timings(process *p) {
    scene x;
    if (begin_timed(p, &x)) {
        const fcp_plan *plan = x.given->plans[CAUSAL];
        const fcp_timing *t;
        uint32_t first, count, own = fcp_session_ranks(x.session, &first);
        CHECK(p, fcp_session_timings(x.session, FCP_FORWARD, first, 0, &t, &count, &x.err) == FCP_E_ARGUMENT,
              "nothing has run");
        for (int again = 0; again < 3; again++) CHECK(p, run_all(&x, plan, 7) == FCP_OK, "%s", x.err.message);
        judge(&x, plan, "timed");
        for (int pass = 0; pass < FCP_PASSES; pass++)
            for (uint32_t r = first; r < first + own; r++) timings_fit(p, x.session, plan, (fcp_pass)pass, r);
        CHECK(p, fcp_session_timings(x.session, FCP_FORWARD, RANKS, 0, &t, &count, &x.err) == FCP_E_ARGUMENT);
        if (own < RANKS)
            CHECK(p, fcp_session_timings(x.session, FCP_FORWARD, !first, 0, &t, &count, &x.err) == FCP_E_ARGUMENT);
        CHECK(p, fcp_session_timings_collect(x.session, &x.err) == FCP_OK, "%s", x.err.message);
        for (int pass = 0; pass < FCP_PASSES && !first; pass++)
            for (uint32_t r = 0; r < RANKS; r++) {
                uint64_t last = 0;
                timings_fit(p, x.session, plan, (fcp_pass)pass, r);
                for (uint32_t q = 0; q < FCP_QUEUES; q++)
                    if (!fcp_session_timings(x.session, (fcp_pass)pass, r, q, &t, &count, &x.err) && count &&
                        t[count - 1].end > last)
                        last = t[count - 1].end;
                CHECK(p, last > 0, "rank %u took no time", r);
            }
        p->cuda->plan = x.given->plans[WINDOW];
        CHECK(p, fcp_session_rebind(x.session, x.given->plans[WINDOW], &x.err) == FCP_OK, "%s", x.err.message);
        CHECK(p, fcp_session_timings(x.session, FCP_FORWARD, first, 0, &t, &count, &x.err) == FCP_E_ARGUMENT,
              "the new plan has not run");
        CHECK(p, run_all(&x, x.given->plans[WINDOW], 7) == FCP_OK, "%s", x.err.message);
        timings_fit(p, x.session, x.given->plans[WINDOW], FCP_BACKWARD, first);
    }
    end(&x);
}
Test(sessions, record_timings) { on_every_pair(records_timings); }

static void has_no_timings_unasked(process *p) {
    scene x;
    if (begin(p, &x)) {
        const fcp_timing *t;
        uint32_t count;
        CHECK(p, run_all(&x, x.given->plans[CAUSAL], 7) == FCP_OK, "%s", x.err.message);
        CHECK(p, fcp_session_timings(x.session, FCP_FORWARD, p->rank, 0, &t, &count, &x.err) == FCP_E_ARGUMENT);
        CHECK(p, fcp_session_timings_collect(x.session, &x.err) == FCP_E_ARGUMENT);
    }
    end(&x);
}
Test(sessions, have_no_timings_unasked) { on_every_pair(has_no_timings_unasked); }

/* --- between processes -------------------------------------------------------------------------------------------- */

static void gathers(process *p) {
    scene x;
    if (begin(p, &x)) {
        uint32_t processes = fcp_session_processes(x.session);
        char mine[FCP_GATHER_BYTES + 1], all[RANKS * FCP_GATHER_BYTES];
        memset(mine, 'a' + (int)p->rank, sizeof mine);
        const size_t sizes[] = {1, 3, FCP_GATHER_BYTES};
        for (size_t i = 0; i < 3; i++) {
            CHECK(p, fcp_session_gather(x.session, mine, sizes[i], all, &x.err) == FCP_OK, "%s", x.err.message);
            for (uint32_t r = 0; r < processes; r++)
                for (size_t b = 0; b < sizes[i]; b++) CHECK(p, all[r * sizes[i] + b] == 'a' + (int)r);
        }
        CHECK(p, fcp_session_gather(x.session, mine, 0, all, &x.err) == FCP_E_ARGUMENT);
        CHECK(p, fcp_session_gather(x.session, mine, sizeof mine, all, &x.err) == FCP_E_ARGUMENT);
    }
    end(&x);
}
Test(sessions, gather) { on_every_pair(gathers); }

/* Rank 0's process comes to have all results. */
static void collects(process *p) {
    scene x;
    if (begin(p, &x)) {
        const fcp_plan *plan = x.given->plans[CAUSAL];
        fcp_check_report report = FCP_CHECK_START;
        unsigned outputs = fcp_pass_outputs(FCP_FORWARD) | fcp_pass_outputs(FCP_BACKWARD) | 1 << FCP_TENSOR_LSE_LOW;
        CHECK(p, run_all(&x, plan, 5) == FCP_OK, "%s", x.err.message);
        CHECK(p, fcp_session_collect_packed(x.session, plan, outputs, &x.packed, &x.err) == FCP_OK, "%s",
              x.err.message);
        if (p->rank == 0) {
            const fcp_check_options all = {.passes = plan->problem->passes, .threads = 1};
            CHECK(p, fcp_check_run(plan, &all, &x.packed, &report, &x.err) == FCP_OK);
            CHECK(p, report.ok, "error %g", report.max_abs_error);
        }
    }
    end(&x);
}
Test(sessions, collect_results_at_rank_0) { on_every_pair(collects); }

/* What rounding took from LSE comes to wherever the backward pass needs it: without it each key of a row would weigh 1.
 */
static void is_right_far_from_zero(process *p) {
    enum { OUTPUTS = 1 << FCP_TENSOR_O | 1 << FCP_TENSOR_LSE | 1 << FCP_TENSOR_LSE_LOW | 1 << FCP_TENSOR_DQ |
                     1 << FCP_TENSOR_DK | 1 << FCP_TENSOR_DV };
    scene x;
    if (begin(p, &x)) {
        const fcp_plan *plan = x.given->plans[FAR];
        fcp_shape shape;
        fcp_plan_shape(plan, &shape);
        p->cuda->plan = plan;
        CHECK(p, fcp_session_rebind(x.session, plan, &x.err) == FCP_OK, "%s", x.err.message);
        CHECK(p, fcp_packed_alloc(&shape, ALL, &x.packed, &x.err) == FCP_OK);
        exact_draw(&shape, 3, 8, &x.packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            CHECK(p, fcp_session_run_packed(x.session, plan, (fcp_pass)pass, &x.packed, NULL, &x.err) == FCP_OK, "%s",
                  x.err.message);
        CHECK(p, fcp_session_collect_packed(x.session, plan, OUTPUTS, &x.packed, &x.err) == FCP_OK, "%s",
              x.err.message);
        if (p->rank == 0) {
            exact e = exact_make(plan, &x.packed);
            const exact_found found = exact_compare(&e, &x.packed, 0x1p-6);
            CHECK(p, !*found.wrong, "%s", found.wrong);
            exact_free(&e);
        }
    }
    end(&x);
}
Test(sessions, are_right_far_from_zero) { on_every_pair(is_right_far_from_zero); }

/* --- other plans -------------------------------------------------------------------------------------------------- */

static void goes_from_plan_to_plan(process *p) {
    scene x;
    if (begin(p, &x)) {
        const given *g = x.given;
        const which order[] = {CAUSAL, WINDOW, CAUSAL};
        for (unsigned i = 0; i < amount(2, 3); i++) {
            const fcp_plan *plan = g->plans[order[i]];
            p->cuda->plan = plan;
            if (i) CHECK(p, fcp_session_rebind(x.session, plan, &x.err) == FCP_OK, "%s", x.err.message);
            CHECK(p, fcp_session_plan(x.session) == plan);
            for (int k = 0; k < 2; k++) CHECK(p, run_all(&x, plan, (uint64_t)i + 1) == FCP_OK, "plan %u: %s", i,
                                              x.err.message);
            judge(&x, plan, "a plan later");
            fcp_packed before = x.packed;
            x.packed = (fcp_packed){0};
            CHECK(p, fcp_session_rebind(x.session, g->plans[OTHER], &x.err) == FCP_E_ARGUMENT);
            CHECK(p, strstr(x.err.message, "head_dim = 16, the new plan has 32"), "%s", x.err.message);
            CHECK(p, fcp_session_plan(x.session) == plan);
            CHECK(p, run_all(&x, plan, (uint64_t)i + 1) == FCP_OK, "after a plan that does not fit: %s", x.err.message);
            same_bits(&x, plan, &before);
            fcp_packed_free(&before);
        }
        CHECK(p, fcp_session_rebind(x.session, NULL, &x.err) == FCP_E_ARGUMENT);
    }
    end(&x);
}
Test(sessions, go_from_plan_to_plan) { on_every_pair(goes_from_plan_to_plan); }

/* --- options ------------------------------------------------------------------------------------------------------ */

static void reads_options_by_their_size(process *p) {
    const given *g = p->argument;
    const fcp_plan *plan = g->plans[CAUSAL];
    fcp_session *session = NULL;
    fcp_error err = {0};
    struct newer {
        fcp_session_options known;
        uint64_t later[2];
    } newer = {.known = {.size = sizeof newer, .backend = g->pair->backend, .transport = "none"}};
    /* what is wrong is found before any transport is opened, so one process can ask for any of them */
    CHECK(p, fcp_session_create(plan, &newer.known, &session, &err) == FCP_E_BACKEND, "%s", err.message);
    CHECK(p, strstr(err.message, "no transport \"none\"") && strstr(err.message, g->pair->transport), "%s",
          err.message);
    newer.later[1] = 1;
    CHECK(p,
          fcp_session_create(plan, &newer.known, &session, &err) == FCP_E_ARGUMENT &&
              strstr(err.message, "older than the header"),
          "%s", err.message);
    newer.known.size = 0;
    CHECK(p,
          fcp_session_create(plan, &newer.known, &session, &err) == FCP_E_ARGUMENT &&
              strstr(err.message, "fcp_session_options.size is 0"),
          "%s", err.message);
    fcp_start start = {.size = 3};
    newer.known.size = sizeof newer.known;
    newer.known.start = &start;
    CHECK(p,
          fcp_session_create(plan, &newer.known, &session, &err) == FCP_E_ARGUMENT &&
              strstr(err.message, "fcp_start.size is 3"),
          "%s", err.message);
    newer.known = (fcp_session_options){.size = sizeof newer.known, .partition = (fcp_partition)9};
    CHECK(p,
          fcp_session_create(plan, &newer.known, &session, &err) == FCP_E_ARGUMENT && strstr(err.message, "partition"),
          "%s", err.message);
    newer.known = (fcp_session_options){.size = sizeof newer.known, .backend = "tpu"};
    CHECK(p,
          fcp_session_create(plan, &newer.known, &session, &err) == FCP_E_BACKEND &&
              strstr(err.message, "host and cuda"),
          "%s", err.message);
    CHECK(p, !session, "nothing is made on an error");
    if (g->pair->processes) return;
    /* an older caller's structure is shorter; what lies behind it is not looked at */
    newer.known = (fcp_session_options){.size = offsetof(fcp_session_options, timeout_s),
                                        .backend = g->pair->backend,
                                        .transport = g->pair->transport,
                                        .compute_threads = 1,
                                        .partition = (fcp_partition)77};
    p->cuda->devices = RANKS;
    p->cuda->plan = plan;
    CHECK(p, fcp_session_create(plan, &newer.known, &session, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(sessions, read_options_by_their_size) { on_every_pair(reads_options_by_their_size); }

Test(sessions, have_a_version) {
    unsigned major, minor, patch;
    cr_assert(sscanf(fcp_version(), "%u.%u.%u", &major, &minor, &patch) == 3);
    cr_assert_eq(fcp_version_number(), 10000 * major + 100 * minor + patch);
    cr_assert_eq(fcp_version_number(), FCP_VERSION_NUMBER);
    cr_assert_str_eq(fcp_version(), FCP_VERSION);
}
