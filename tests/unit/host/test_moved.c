/* test_moved.c: tests plans in which blocks are computed away from home, on the host backend: partial and whole
 * results, relays, merges on the way, ranges of heads. The plans are random (moved_plan.h). Results are compared with
 * the definition of attention. */
#include <stdio.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/amount.h"
#include "tests/support/hand_score.h"
#include "tests/support/moved_plan.h"
#include "tests/support/plain.h"
#include "tests/support/session_on.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };
static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};
enum { MASKS = sizeof masks / sizeof *masks };

/* The host backend in memory that is full of NaNs: what nobody writes must not be read. */
static fcp_backend poisoned;
static fcp_code poisoned_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    fcp_code code = fcp_backend_host.open(plan, workers, out, err);
    if (code == FCP_OK) (*out)->backend = &poisoned;
    return code;
}
static fcp_code poisoned_allocate(fcp_device *device, size_t bytes, void **out, fcp_error *err) {
    fcp_code code = fcp_backend_host.allocate(device, bytes, out, err);
    if (code == FCP_OK) memset(*out, 0xff, bytes);
    return code;
}
static const fcp_backend *poisoned_host(void) {
    poisoned = fcp_backend_host;
    poisoned.open = poisoned_open;
    poisoned.allocate = poisoned_allocate;
    return &poisoned;
}

/* A drawn plan, and what to run it with. */
typedef struct drawn {
    moved_options o;
    uint64_t lengths[4], keys[4];
    const char *score;
    bool sinks;
    char text[400];
} drawn;

static void draw(drawn *d, uint64_t seed) {
    static const uint32_t dims[] = {8, 16, 20, 32}, kvs[] = {1, 2, 4}, groups[] = {1, 2, 3, 4};
    uint64_t state = seed * 77 + 5;
    memset(d, 0, sizeof *d);
    moved_options *o = &d->o;
    o->seed = seed;
    o->ranks = 1 + moved_draw(&state, 6);
    o->kv_heads = kvs[moved_draw(&state, 3)];
    uint32_t group = groups[moved_draw(&state, 4)];
    o->heads = o->kv_heads * group;
    o->head_dim = dims[moved_draw(&state, 4)];
    if (moved_draw(&state, 2)) {
        o->range_kv = o->kv_heads >> moved_draw(&state, 3);
        o->range_kv = o->range_kv ? o->range_kv : 1;
        o->range_sub = group % 2 == 0 && moved_draw(&state, 2) ? group / 2 : group;
    }
    o->dtype = (fcp_dtype)moved_draw(&state, FCP_DTYPES);
    o->block = 128 * (1 + moved_draw(&state, 2));
    o->unit = 1 + moved_draw(&state, o->block);
    if (o->unit < 40) o->unit = 40;
    o->mask = masks[moved_draw(&state, MASKS)];
    o->count = 1 + moved_draw(&state, 3);
    bool cross = moved_draw(&state, 4) == 0;
    for (uint32_t i = 0; i < o->count; i++) {
        d->lengths[i] = 1 + moved_draw(&state, i ? 200 : 500);
        d->keys[i] = cross ? 1 + moved_draw(&state, 400) : d->lengths[i];
    }
    o->lengths = d->lengths;
    o->keys = d->keys;
    o->top_left = cross && moved_draw(&state, 2);
    if (!cross && moved_draw(&state, 3) == 0) d->score = hand_scores[moved_draw(&state, HAND_SCORES)];
    d->sinks = moved_draw(&state, 3) == 0;
    if (moved_draw(&state, 2)) o->value_dim = dims[moved_draw(&state, 4)];
    o->values_in_keys = o->value_dim <= o->head_dim && moved_draw(&state, 3) == 0;
    o->lse_gradient = moved_draw(&state, 3) == 0;
    snprintf(
        d->text, sizeof d->text,
        "seed %lu: %u ranks, %u/%u heads of %u and %u%s in ranges of %u x %u, %s, blocks of %u, units of %u, %s, score "
        "%s%s%s%s, "
        "%u sequences, %lu of %lu tokens first",
        (unsigned long)seed, o->ranks, o->heads, o->kv_heads, o->head_dim,
        o->value_dim ? o->value_dim : o->head_dim, o->values_in_keys ? " in keys" : "", o->range_kv, o->range_sub,
        fcp_dtype_name(o->dtype), o->block, o->unit, o->mask, d->score ? d->score : "-", d->sinks ? ", sinks" : "",
        o->lse_gradient ? ", dLSE" : "", o->top_left ? ", top left" : "", o->count, (unsigned long)d->lengths[0], (unsigned long)d->keys[0]);
}

static size_t bytes_of(const fcp_shape *shape, int t) { return fcp_packed_bytes(shape, (fcp_tensor)t); }

/* Runs both passes. */
static void run(const hand *h, const fcp_backend *backend, uint32_t threads, fcp_packed *packed, const char *what) {
    fcp_shape shape;
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = threads, .timeout_s = 60};
    fcp_plan_shape(&h->plan, &shape);
    cr_assert(session_on(&h->plan, backend, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    cr_assert(fcp_packed_alloc(&shape, ALL, packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(&shape, ALL, 11, packed);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run_packed(session, &h->plan, (fcp_pass)pass, packed, NULL, &err) == FCP_OK, "%s: %s",
                  what, err.message);
    fcp_session_free(session);
}

static void judge(const hand *h, const fcp_packed *packed, const char *what) {
    fcp_check_report report = FCP_CHECK_START;
    fcp_error err = {0};
    const fcp_check_options options = {.passes = 1 << FCP_FORWARD | 1 << FCP_BACKWARD, .threads = 2};
    cr_assert(fcp_check_run(&h->plan, &options, packed, &report, &err) == FCP_OK, "%s", err.message);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!report.tensor[t].checked || report.tensor[t].ok || report.tensor[t].verdict == FCP_NOTHING_FINITE,
                  "%s: %s: verdict %d, error %g, naive %g, allowed %g, at %lu", what, fcp_tensor_name((fcp_tensor)t),
                  report.tensor[t].verdict, report.tensor[t].max_abs_error, report.tensor[t].reference_error,
                  report.tensor[t].tolerance, (unsigned long)report.tensor[t].worst);
}

static void same_bits(const hand *h, unsigned set, const fcp_packed *a, const fcp_packed *b, const char *what) {
    fcp_shape shape;
    fcp_plan_shape(&h->plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++)
        if (set >> t & 1)
            cr_assert(!memcmp(a->t[t], b->t[t], bytes_of(&shape, t)), "%s: %s differs", what,
                      fcp_tensor_name((fcp_tensor)t));
}

/* Against the definition; twice and on 1 or 4 workers the same bits. */
static void try_seed(uint64_t seed, bool repeat) {
    drawn d;
    hand_score *store = calloc(1, sizeof *store);
    fcp_packed packed = {0}, again = {0};
    draw(&d, seed);
    hand *h = moved_make(&d.o);
    cr_assert(h && store);
    if (d.score || d.sinks) hand_score_put(h, store, d.score, d.sinks);
    run(h, poisoned_host(), 4, &packed, d.text);
    judge(h, &packed, d.text);
    if (repeat) {
        run(h, &fcp_backend_host, 1, &again, d.text);
        same_bits(h, ALL, &packed, &again, d.text);
    }
    fcp_packed_free(&packed);
    fcp_packed_free(&again);
    hand_free(h);
    free(store);
}

#ifdef PLAIN_TESTS
enum { QUICK = 10, LONG = 40 };
#else
enum { QUICK = 30, LONG = 250 };
#endif
Test(moved, drawn_plans) {
    const char *from = getenv("MOVED_SEED");
    uint64_t first = from ? strtoul(from, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + amount(QUICK, LONG); seed++) try_seed(seed, seed % 3 == 0);
}

/* The same blocks, visits and order of tiles: results that come home whole are those that home would have computed. */
Test(moved, whole_results_have_the_bits_of_home) {
    for (uint64_t seed = 1; seed < 1 + amount(6, 60); seed++) {
        fcp_packed packed[2] = {{{0}}, {{0}}};
        hand *h[2];
        drawn d;
        draw(&d, seed);
        d.o.ranks += d.o.ranks == 1;
        for (int i = 0; i < 2; i++) {
            d.o.kind = i ? MOVED_WHOLE : MOVED_HOME;
            cr_assert((h[i] = moved_make(&d.o)));
            hand_score *store = calloc(1, sizeof *store);
            cr_assert_not_null(store);
            if (d.score || d.sinks) hand_score_put(h[i], store, d.score, d.sinks);
            run(h[i], poisoned_host(), 2, &packed[i], d.text);
            free(store);
        }
        uint32_t moved_blocks = 0;
        for (uint32_t b = 0; b < h[1]->block_count; b++) moved_blocks += h[1]->blocks[b].flags & FCP_BLOCK_WHOLE;
        cr_assert(moved_blocks || !h[1]->tile_count, "%s: nothing moved", d.text);
        same_bits(h[0], 1 << FCP_TENSOR_O | 1 << FCP_TENSOR_LSE | 1 << FCP_TENSOR_DQ, &packed[0], &packed[1], d.text);
        for (int i = 0; i < 2; i++) {
            fcp_packed_free(&packed[i]);
            hand_free(h[i]);
        }
    }
}

/* Arenas have the bytes that plans are charged for, and the rounding of their parts. */
Test(moved, arenas_are_what_plans_count) {
    for (uint64_t seed = 1; seed < 40; seed++) {
        drawn d;
        draw(&d, seed);
        hand *h = moved_make(&d.o);
        cr_assert_not_null(h);
        fcp_homes *homes = fcp_homes_of(&h->plan);
        cr_assert_not_null(homes);
        for (uint32_t r = 0; r < d.o.ranks; r++)
            for (int pass = 0; pass < FCP_PASSES; pass++) {
                const fcp_homes *own = &homes[r];
                fcp_slots s;
                fcp_slots_of(&h->plan, (fcp_pass)pass, r, own->homes, &s);
                uint64_t counted = fcp_rank_memory(&h->problem, (fcp_pass)pass, own->tokens[FCP_QUERIES],
                                                   own->tokens[FCP_KEYS], s.count);
                size_t laid = fcp_arena_size(&h->plan, (fcp_pass)pass, own, &s);
                cr_assert(laid >= counted && laid < counted + 16 * 64, "%s: rank %u: %zu and %lu", d.text, r, laid,
                          (unsigned long)counted);
                for (uint32_t i = 0; i < own->homes; i++)
                    cr_assert(h->blocks[own->block[i]].home == r && h->blocks[own->block[i]].home_slot == i);
            }
        free(homes);
        hand_free(h);
    }
}

/* A session goes from plan to plan: other slots, other ranges of heads, work at home and away. */
Test(moved, a_session_goes_on_with_another_plan) {
    const uint64_t lengths[] = {300, 90};
    static const uint32_t ranges[][2] = {{0, 0}, {1, 2}, {2, 1}, {0, 0}, {1, 1}};
    fcp_session *session = NULL;
    hand *h[5];
    for (uint32_t i = 0; i < 5; i++) {
        const moved_options o = {.ranks = 3, .heads = 4, .kv_heads = 2, .head_dim = 16, .block = 128, .unit = 50,
                                 .range_kv = ranges[i][0], .range_sub = ranges[i][1], .dtype = FCP_FP16, .mask = "odd",
                                 .lengths = lengths, .count = 2, .kind = i == 3 ? MOVED_HOME : MOVED_ANY,
                                 .seed = i + 1};
        fcp_packed packed = {0};
        fcp_error err = {0};
        fcp_shape shape;
        fcp_session_options options = {.size = sizeof options, .compute_threads = 6, .timeout_s = 60};
        cr_assert((h[i] = moved_make(&o)));
        fcp_code code = i ? fcp_session_rebind(session, &h[i]->plan, &err)
                          : fcp_session_create(&h[i]->plan, &options, &session, &err);
        cr_assert(code == FCP_OK, "%s", err.message);
        fcp_plan_shape(&h[i]->plan, &shape);
        cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
        fcp_packed_draw(&shape, ALL, i, &packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert(fcp_session_run_packed(session, &h[i]->plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s",
                      err.message);
        judge(h[i], &packed, "another plan");
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
    for (uint32_t i = 0; i < 5; i++) hand_free(h[i]);
}

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* Takes the rank that sends the first unit of that class in that pass, ends its queue before this transfer, and runs
 * until the session gives up. With `relayed`, only ranks count that pass on a block of another rank. Returns false if
 * there is no such transfer. */
static bool cut_and_run(hand *h, fcp_pass pass, fcp_class cls, bool relayed, fcp_error *err, uint32_t *out_sender,
                        uint32_t *out_receiver) {
    fcp_session *session;
    fcp_session_options options = {.size = sizeof options, .compute_threads = 2, .timeout_s = 1};
    fcp_packed packed = {0};
    fcp_shape shape;
    bool found = false;
    for (uint32_t r = 0; !found && r < h->problem.ranks; r++) {
        fcp_stream *s = &h->streams[((uint32_t)pass * h->problem.ranks + r) * FCP_QUEUES + FCP_COMM];
        for (uint32_t i = 0; !found && i < s->count; i++) {
            const fcp_instr *x = &h->instrs[s->first + i];
            const fcp_transfer *t = &h->transfers[x->a];
            if (x->op != FCP_OP_LAUNCH || t->cls != cls || t->dir != FCP_SEND ||
                (relayed && h->blocks[t->block].home == r))
                continue;
            *out_sender = r;
            *out_receiver = t->peer;
            s->count = i;
            found = true;
        }
    }
    if (!found) return false;
    fcp_plan_shape(&h->plan, &shape);
    cr_assert(fcp_session_create(&h->plan, &options, &session, err) == FCP_OK, "%s", err->message);
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, err) == FCP_OK);
    fcp_packed_draw(&shape, ALL, 11, &packed);
    for (int i = 0; i < (int)pass; i++)
        cr_assert(fcp_session_run_packed(session, &h->plan, (fcp_pass)i, &packed, NULL, err) == FCP_OK, "%s",
                  err->message);
    fcp_code code = fcp_session_run_packed(session, &h->plan, pass, &packed, NULL, err);
    cr_assert(code == FCP_E_RUN, "%s: %d", err->message, (int)code);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    return true;
}

/* A rank that passes a block on dies, or one that owes a partial result. The rank that waits for it reports that. */
Test(moved, a_rank_that_others_wait_for_dies) {
    static const struct {
        fcp_pass pass;
        fcp_class cls;
        bool relayed;
        const char *says;
    } all[] = {{FCP_FORWARD, FCP_Q, true, "Q of block"},        {FCP_FORWARD, FCP_KV, true, "KV of block"},
               {FCP_FORWARD, FCP_STATE, false, "state of block"}, {FCP_FORWARD, FCP_O, false, "O of block"},
               {FCP_BACKWARD, FCP_DQ, false, "dQ of block"},    {FCP_BACKWARD, FCP_DKV, false, "dKV of block"},
               {FCP_BACKWARD, FCP_DQW, false, "whole dQ of block"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool found = false;
        for (uint64_t seed = 1; !found && seed < 100; seed++) {
            drawn d;
            fcp_error err = {0};
            uint32_t sender, receiver;
            draw(&d, seed);
            if (d.o.ranks < 4) continue;
            hand *h = moved_make(&d.o);
            cr_assert_not_null(h);
            found = cut_and_run(h, all[i].pass, all[i].cls, all[i].relayed, &err, &sender, &receiver);
            hand_free(h);
            if (!found) continue;
            char from[60];
            snprintf(from, sizeof from, "nothing came from rank %u for 1 s", sender);
            cr_assert(err.where.rank == receiver && err.where.pass == (uint32_t)all[i].pass &&
                          err.where.queue == FCP_COMM,
                      "%s: rank %u, not %u", err.message, err.where.rank, receiver);
            cr_assert(strstr(err.message, from) && strstr(err.message, all[i].says), "%s", err.message);
        }
        cr_assert(found, "no plan sends %s", all[i].says);
    }
}
