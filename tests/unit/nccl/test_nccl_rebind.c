/* test_nccl_rebind.c: tests sessions of several processes that get the plan of another batch: they give the same bits
 * as new sessions, and ranks can communicate that did not do so before. If ranks have different plans, a call fails, or
 * a rank dies meanwhile, the others get an error. */
#include "runtime/plan/plan_summary.h"
#include "tests/support/amount.h"
#include "tests/support/nccl_ranks.h"

enum { BATCHES = 4 };

/* What ranks go through: from one plan to the next. */
typedef struct journey {
    task task;                       /* its plan is the first */
    const fcp_plan *plans[BATCHES];
} journey;

/* A rank's rows of the outputs of all passes, on drawn tensors. */
static fcp_code results_of(process *p, fcp_session *session, const fcp_plan *plan, uint64_t seed, char *out,
                           fcp_error *err) {
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_packed_alloc(&shape, ALL, &packed, err);
    if (!code) fcp_packed_draw(&shape, ALL, seed, &packed);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++)
        code = fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, err);
    for (int t = 0; !code && t < FCP_TENSORS; t++)
        if (outputs(plan) >> t & 1) out += rows(plan, p->rank, t, packed.t[t], out, true, false);
    fcp_packed_free(&packed);
    return code;
}
static size_t results_size(const fcp_plan *plan) {
    fcp_shape shape;
    size_t bytes = 1;
    uint64_t dims[3];
    fcp_plan_shape(plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++) {
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        bytes += dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
    }
    return bytes;
}

/* A new session for the plan gives the same bits. */
static void as_fresh(process *p, fcp_session *session, const fcp_plan *plan, int turn) {
    size_t size = results_size(plan);
    char *mine = calloc(1, size), *fresh = calloc(1, size);
    task only = ((const journey *)p->argument)->task;
    fcp_session *other = NULL;
    fcp_error err = {0};
    process q = *p;
    only.plan = plan;
    q.argument = &only;
    for (int i = 0; i < 2; i++) /* the second as a graph */
        CHECK(p, results_of(p, session, plan, (uint64_t)turn + 1, mine, &err) == FCP_OK, "batch %d: %s", turn,
              err.message);
    share_id(&q, turn + 2);
    CHECK(p, create(&q, &other, &err) == FCP_OK, "batch %d: %s", turn, err.message);
    CHECK(p, other && results_of(p, other, plan, (uint64_t)turn + 1, fresh, &err) == FCP_OK, "batch %d: %s", turn,
          err.message);
    fcp_session_free(other);
    CHECK(p, !memcmp(mine, fresh, size), "batch %d has other bits", turn);
    free(mine);
    free(fresh);
}

/* Makes a rank's session for the first plan. NULL: it could not, and the rank has failed. */
static fcp_session *begin(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    set_up(p, 0);
    share_id(p, 1);
    CHECK(p, create(p, &session, &err) == FCP_OK, "%s", err.message);
    return session;
}

static void go_through(process *p) {
    const journey *j = p->argument;
    fcp_session *session = begin(p);
    fcp_error err = {0};
    for (int i = 0; session && i < BATCHES; i++) {
        p->cuda->plan = j->plans[i];
        if (i) CHECK(p, fcp_session_rebind(session, j->plans[i], &err) == FCP_OK, "batch %d: %s", i, err.message);
        CHECK(p, fcp_session_plan(session) == j->plans[i]);
        if (p->word->failed[0]) break;
        as_fresh(p, session, j->plans[i], i);
    }
    fcp_session_free(session);
}

static journey journey_of(const char *const *lengths, const char *const *masks, unsigned ranks) {
    journey j = {.task = {.graph_from = 2, .seed = ranks, .odd = 99}};
    for (int i = 0; i < BATCHES && lengths[i]; i++)
        j.plans[i] = make_plan(masks[i], ranks, 1, lengths[i], i % 2 ? "; layout = contiguous; margin = 7" : "");
    j.task.plan = j.plans[0];
    return j;
}
static void journey_end(journey *j) {
    for (int i = 0; i < BATCHES; i++) fcp_plan_free((fcp_plan *)(uintptr_t)j->plans[i]);
}

/* Batches of fewer and more tokens, other masks; from a plan in which nobody talks to one in which all do. */
Test(nccl_rebind, batches) {
    static const char *const lengths[2][BATCHES] = {{"200, 130, 60", "330, 65", "140", "260, 20, 20"},
                                                    {"128, 128, 128", "384", "128, 200", "300, 200"}};
    static const char *const masks[2][BATCHES] = {{"causal", "full", "causal", "window(w = 200)"},
                                                  {"causal", "full", "causal", "full"}};
    for (unsigned i = 0; i < 2; i++) {
        journey j = journey_of(lengths[i], masks[i], 2 + i);
        process_shared *s = process_shared_make();
        cr_assert(i == 0 || (j.plans[0]->summary->rounds == 0 && j.plans[1]->summary->rounds > 0));
        process_run(s, 2 + i, go_through, &j);
        process_all_well(s, 2 + i, 0, lengths[i][0]);
        no_trouble(s, 2 + i, 0, lengths[i][0]);
        for (unsigned r = 0; r < 2 + i; r++) cr_assert(s->words[r].graph_launches > 0);
        process_shared_end(s, false);
        journey_end(&j);
    }
}

/* A session holds all of these batches at once, and they take turns. */
static void take_turns(process *p) {
    const journey *j = p->argument;
    fcp_session *session = begin(p);
    fcp_error err = {0};
    uint32_t number[BATCHES] = {0};
    for (int i = 1; session && i < BATCHES; i++) {
        p->cuda->plan = j->plans[i];
        CHECK(p, fcp_session_add(session, j->plans[i], FCP_OWN_BATCH, &number[i], &err) == FCP_OK, "plan %d: %s", i,
              err.message);
        CHECK(p, p->nccl->max_ctas == (int)j->plans[0]->problem->margin, "plan %d: %d", i, p->nccl->max_ctas);
        uint32_t none = 99;
        CHECK(p, fcp_session_add(session, j->plans[i], 0, &none, &err) == FCP_E_HOMES && none == 99, "plan %d: %s", i,
              err.message);
    }
    for (int turn = 0; session && turn < (int)amount(5, 6) && !p->word->failed[0]; turn++) {
        const int i = turn * 3 % BATCHES;
        p->cuda->plan = j->plans[i];
        CHECK(p, fcp_session_select(session, number[i], &err) == FCP_OK && fcp_session_plan(session) == j->plans[i]);
        as_fresh(p, session, j->plans[i], turn);
    }
    fcp_session_free(session);
}
Test(nccl_rebind, several_plans) {
    static const char *const lengths[BATCHES] = {"200, 130, 60", "330, 65", "140", "260, 20, 20"},
                      *const masks[BATCHES] = {"causal", "full", "causal", "window(w = 200)"};
    for (unsigned ranks = amount(3, 2); ranks <= 3; ranks++) {
        journey j = journey_of(lengths, masks, ranks);
        process_shared *s = process_shared_make();
        process_run(s, ranks, take_turns, &j);
        process_all_well(s, ranks, 0, "several plans");
        no_trouble(s, ranks, 0, "several plans");
        process_shared_end(s, false);
        journey_end(&j);
    }
}

/* Rank `odd` goes on with another plan. All say whose plan is which, and refuse to run afterwards. */
static void part_ways(process *p) {
    const journey *j = p->argument;
    fcp_session *session = begin(p);
    fcp_error err = {0}, again = {0};
    char *out = calloc(1, results_size(j->plans[0]) + results_size(j->plans[1]));
    const fcp_plan *next = p->rank == j->task.odd ? j->plans[2] : j->plans[1];
    if (session && !p->word->failed[0]) {
        CHECK(p, results_of(p, session, j->plans[0], 1, out, &err) == FCP_OK, "%s", err.message);
        p->word->code = fcp_session_rebind(session, next, &p->word->err);
        const fcp_plan *now = fcp_session_plan(session);
        CHECK(p,
              results_of(p, session, now, 1, out, &again) == FCP_E_RUN && strstr(again.message, "a new one is needed"),
              "%s", again.message);
    }
    free(out);
    fcp_session_free(session);
}
Test(nccl_rebind, ranks_that_differ) {
    static const char *const lengths[BATCHES] = {"300, 130", "300, 60", "300, 61"},
                      *const masks[BATCHES] = {"causal", "causal", "causal"};
    journey j = journey_of(lengths, masks, 3);
    char names[2][17];
    for (int i = 0; i < 2; i++) {
        uint8_t digest[FCP_DIGEST_BYTES];
        cr_assert_eq(fcp_plan_digest(j.plans[1 + i], digest, NULL), FCP_OK);
        for (int k = 0; k < 8; k++) snprintf(names[i] + 2 * k, 3, "%02x", digest[k]);
    }
    for (unsigned odd = 1; odd < 3; odd++) {
        process_shared *s = process_shared_make();
        j.task.odd = odd;
        j.task.idle = true;
        process_run(s, 3, part_ways, &j);
        process_all_well(s, 3, 0, "other plans");
        no_trouble(s, 3, 0, "other plans");
        for (unsigned r = 0; r < 3; r++) {
            const char *said = s->words[r].err.message;
            char who[60];
            snprintf(who, sizeof who, "rank %u has another plan than rank 0", odd);
            cr_assert_eq(s->words[r].code, FCP_E_START, "rank %u: %s", r, said);
            cr_assert(strstr(said, names[0]) && strstr(said, names[1]) && strstr(said, who), "rank %u: %s; %s, %s", r,
                      said, names[0], names[1]);
        }
        process_shared_end(s, false);
    }
    journey_end(&j);
}

/* A plan of another model is refused. If rank `odd` alone has it, the others say whose plan is which. If all have it,
 * all go on with the plan before. */
static void refuse(process *p) {
    const journey *j = p->argument;
    bool all = j->task.odd == 99, odd = all || p->rank == j->task.odd;
    fcp_error err = {0};
    char *out = calloc(1, results_size(j->plans[0]));
    fcp_session *session = begin(p);
    CHECK(p, session && results_of(p, session, j->plans[0], 1, out, &err) == FCP_OK, "%s", err.message);
    for (int i = 0; session && i < (all ? 3 : 1); i++) {
        p->word->code = fcp_session_rebind(session, odd ? j->plans[1] : j->plans[2], &p->word->err);
        CHECK(p, p->word->code == (odd ? FCP_E_ARGUMENT : FCP_E_START), "%s", p->word->err.message);
        fcp_code again = results_of(p, session, j->plans[0], 1, out, &err);
        CHECK(p, again == (all ? FCP_OK : FCP_E_RUN), "%s", err.message);
        CHECK(p, fcp_session_plan(session) == j->plans[all || odd ? 0 : 2]);
    }
    free(out);
    fcp_session_free(session);
}
Test(nccl_rebind, refusing) {
    journey j = {.plans = {make_plan("causal", 3, 1, "300, 130", ""),
                           make_plan("causal", 3, 1, "300, 60", "; deterministic = false"),
                           make_plan("causal", 3, 1, "300, 60", "")}};
    static const unsigned odd[] = {0, 2, 99};
    for (int i = 0; i < 3; i++) {
        process_shared *s = process_shared_make();
        j.task = (task){.plan = j.plans[0], .graph_from = 1, .seed = (uint64_t)i, .odd = odd[i], .idle = true};
        process_run(s, 3, refuse, &j);
        process_all_well(s, 3, 0, "refusing");
        no_trouble(s, 3, 0, "refusing");
        for (unsigned r = 0; r < 3; r++) {
            const char *part = odd[i] == 99 || r == odd[i] ? "deterministic = 1, the new plan has 0"
                               : odd[i]                    ? "rank 2 has another plan"
                                                           : "rank 1 has another plan";
            cr_assert(strstr(s->words[r].err.message, part), "rank %u: \"%s\" is not in: %s", r, part,
                      s->words[r].err.message);
        }
        process_shared_end(s, false);
    }
    journey_end(&j);
}

/* A rank has too little memory for the new plan. The others learn this, and which rank it is. */
static void too_little(process *p) {
    const journey *j = p->argument;
    fcp_session *session = begin(p);
    if (p->rank == j->task.odd) p->cuda->memory = 200000;
    p->word->code = fcp_session_rebind(session, j->plans[1], &p->word->err);
    fcp_session_free(session);
}
Test(nccl_rebind, too_little_memory) {
    static const char *const lengths[BATCHES] = {"300, 130", "3000"}, *const masks[BATCHES] = {"causal", "causal"};
    journey j = journey_of(lengths, masks, 2);
    j.task.idle = true;
    for (unsigned odd = 0; odd < 2; odd++) {
        char who[60];
        process_shared *s = process_shared_make();
        j.task.odd = odd;
        process_run(s, 2, too_little, &j);
        process_all_well(s, 2, 0, "too little memory");
        no_trouble(s, 2, 0, "too little memory");
        snprintf(who, sizeof who, "rank %u cannot begin", odd);
        cr_assert_eq(s->words[odd].code, FCP_E_NO_MEMORY, "%s", s->words[odd].err.message);
        cr_assert_eq(s->words[1 - odd].code, FCP_E_START, "%s", s->words[1 - odd].err.message);
        cr_assert(strstr(s->words[1 - odd].err.message, who), "%s", s->words[1 - odd].err.message);
        process_shared_end(s, false);
    }
    journey_end(&j);
}

/* Every call of one rank's rebinding fails once: `times` of them, each `fault`-th, of NCCL's or of the driver's. That
 * rank ends with an error, and the other with an error or without. Nothing is left, and nothing hangs. */
static void fail_calls(process *p) {
    const journey *j = p->argument;
    const task *x = &j->task;
    char *out = calloc(1, results_size(j->plans[0]) + results_size(j->plans[1]));
    int last = 0;
    for (int at = 1; at <= x->times; at += x->fault) {
        int turn = (at - 1) / x->fault + 1;
        fcp_session *session = NULL;
        fcp_error err = {0};
        bool odd = p->rank == (unsigned)turn % 2;
        set_up(p, (uint64_t)at);
        p->nccl->fail_at = p->cuda->fail_at = 0;
        share_id(p, turn);
        CHECK(p, create(p, &session, &err) == FCP_OK, "call %d: %s", at, err.message);
        CHECK(p, session && results_of(p, session, j->plans[0], 1, out, &err) == FCP_OK, "call %d: %s", at,
              err.message);
        process_meet(p, 2, turn);
        if (session) session->timeout_s = 1; /* who waits for the other gives up soon */
        p->cuda->plan = j->plans[1];
        const long *calls = fail_call(p, odd, at, turn), begin = *calls;
        fcp_code code = session ? fcp_session_rebind(session, j->plans[1], &err) : FCP_E_RUN;
        if (odd) last = (int)(*calls - begin);
        if (!code) code = results_of(p, session, j->plans[1], 1, out, &err);
        fcp_session_free(session);
        after_a_failed_call(p, odd, at, turn, code, &err);
    }
    atomic_fetch_add(&p->shared->counter[CALLS_MADE], last);
    free(out);
}
Test(nccl_rebind, every_call_fails) {
    static const char *const lengths[BATCHES] = {"300, 60", "500, 60"}, *const masks[BATCHES] = {"causal", "full"};
    journey j = journey_of(lengths, masks, 2);
    for (int i = 0; i < 2; i++) {
        process_shared *s = process_shared_make();
        j.task = (task){.plan = j.plans[0], .graph_from = 1, .times = i ? 100 : 11, .fault = i ? 11 : 1, .idle = true,
                        .driver = i};
        process_run(s, 2, fail_calls, &j);
        all_calls_failed(s, 3);
    }
    journey_end(&j);
}

/* A rank dies while it goes on to another plan, noticed by NCCL or not. The other one ends. */
static void die(process *p) {
    const journey *j = p->argument;
    fcp_session *session = begin(p);
    process_meet(p, 2, 1);
    if (session) session->timeout_s = 1;
    if (p->rank == j->task.odd) {
        p->nccl->fail_at = p->nccl->calls + j->task.times;
        p->nccl->fail_with = STANDIN_DIES;
    }
    p->word->code = fcp_session_rebind(session, j->plans[1], &p->word->err);
    fcp_session_free(session);
}
Test(nccl_rebind, a_rank_dies) {
    static const char *const lengths[BATCHES] = {"300, 60", "500, 60"}, *const masks[BATCHES] = {"causal", "full"};
    journey j = journey_of(lengths, masks, 2);
    for (int i = 0; i < 4; i++) {
        unsigned odd = (unsigned)i % 2;
        process_shared *s = process_shared_make();
        j.task = (task){.plan = j.plans[0], .times = 1 + i, .idle = true, .odd = odd, .silent = i > 1};
        process_run(s, 2, die, &j);
        process_all_well(s, 2, 1u << odd, "a rank dies");
        no_trouble(s, 2, 1u << odd, "a rank dies");
        cr_assert(!s->words[odd].ended, "it did not die");
        const process_word *w = &s->words[1 - odd];
        cr_assert(w->code && strncmp(w->err.message, "rank ", 5) == 0, "%s", w->err.message);
        process_shared_end(s, true);
    }
    journey_end(&j);
}
