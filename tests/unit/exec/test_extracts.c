/* test_extracts.c: tests extracts of plans (plan/extract.h): that they say of the plan what the plan says, that sessions
 * of one rank give the same bits with them, and that what is not proven is not taken. */
#include "runtime/exec/bundles.h"
#include "runtime/exec/cut.h"
#include "runtime/exec/session.h"
#include "runtime/judge/packed.h"
#include "runtime/plan/extract_file.h"
#include "runtime/plan/head_ranges.h"
#include "tests/oracle/small_examples.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/processes.h"
#include "tests/support/temporary.h"

enum {
    ALL = (1 << FCP_TENSORS) - 1,
    SMALL = sizeof small_examples / sizeof *small_examples,
    OTHERS = sizeof other_examples / sizeof *other_examples
};

typedef struct cut_plan {
    fcp_plan *plan;
    char path[TEMPORARY];
    uint8_t root[FCP_DIGEST_BYTES];
} cut_plan;

static void cut_open(cut_plan *x, fcp_plan *plan) {
    fcp_error err = {0};
    x->plan = plan;
    cr_assert(temporary_file(x->path, "extracts"));
    cr_assert_eq(fcp_extracts_save(plan, x->path, NULL, x->root, &err), FCP_OK, "%s", err.message);
}
static void cut_close(cut_plan *x) {
    unlink(x->path);
    fcp_plan_free(x->plan);
}
static fcp_plan *cut_load(const cut_plan *x, uint32_t rank) {
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcp_extracts_load(x->path, rank, x->root, &plan, &err), FCP_OK, "rank %u: %s", rank, err.message);
    return plan;
}

static fcp_plan *example(unsigned i, bool planned) {
    const small_example *x = i < SMALL ? &small_examples[i] : &other_examples[i - SMALL];
    char path[120], lengths[80], gpus[40];
    const char *defines[24] = {"model.heads=2",
                               "model.kv_heads=1",
                               "model.head_dim=16",
                               i % 2 ? "model.dtype=fp16" : "model.dtype=bf16",
                               i % 4 == 3 ? "cluster.nodes=2" : "cluster.nodes=1",
                               gpus,
                               "plan.block=128",
                               planned ? "plan.layout=planned"
                               : i % 2 ? "plan.layout=zigzag"
                                       : "plan.layout=contiguous"};
    size_t count = 8;
    snprintf(path, sizeof path, "examples/%s", x->file);
    snprintf(gpus, sizeof gpus, "cluster.gpus=%u", i % 4 == 3 ? 1 : 2 + i % 4 / 2);
    snprintf(lengths, sizeof lengths, "batch.lengths=%s", x->lengths ? x->lengths : "");
    if (x->lengths) defines[count++] = lengths;
    for (size_t j = 0; j < 8 && x->defines[j]; j++) defines[count++] = x->defines[j];
    return plan_with(path, NULL, defines, count);
}

/* --- what they say ------------------------------------------------------------------------------------------------ */

static void same_layout(const fcp_plan *plan, const fcp_plan *part, uint32_t rank, const char *what) {
    for (int keys = 0; keys < 2; keys++) {
        fcp_layout_at a = {0}, b = {0};
        fcp_span x, y;
        for (;;) {
            const bool more = keys ? fcp_plan_layout_keys(plan, rank, &a, &x) : fcp_plan_layout(plan, rank, &a, &x);
            cr_assert_eq(keys ? fcp_plan_layout_keys(part, rank, &b, &y) : fcp_plan_layout(part, rank, &b, &y), more);
            if (!more) break;
            cr_assert(x.sequence == y.sequence && x.start == y.start && x.length == y.length, "%s, rank %u", what,
                      rank);
            uint64_t n, m;
            cr_assert_eq(fcp_plan_sequence_offset(plan, x.sequence, &n),
                         fcp_plan_sequence_offset(part, x.sequence, &m));
            cr_assert_eq(n, m);
            cr_assert_eq(fcp_plan_key_offset(plan, x.sequence, &n), fcp_plan_key_offset(part, x.sequence, &m));
            cr_assert_eq(n, m);
            cr_assert_eq(fcp_plan_query_position(plan, x.sequence), fcp_plan_query_position(part, x.sequence));
        }
        const uint64_t count = keys ? fcp_plan_rank_keys(plan, rank) : fcp_plan_rank_queries(plan, rank);
        cr_assert_eq(keys ? fcp_plan_rank_keys(part, rank) : fcp_plan_rank_queries(part, rank), count);
        int64_t *both = malloc((2 * count + 1) * sizeof *both);
        for (int shift = -1; shift < 3; shift++) {
            if (shift == 2)
                fcp_plan_positions(plan, rank, keys, both), fcp_plan_positions(part, rank, keys, both + count);
            else fcp_plan_rows(plan, rank, keys, shift, both), fcp_plan_rows(part, rank, keys, shift, both + count);
            cr_assert(!memcmp(both, both + count, count * sizeof *both), "%s, rank %u: shift %d", what, rank, shift);
        }
        free(both);
    }
}

static void says_the_same(fcp_plan *plan, const char *what) {
    cut_plan x;
    uint8_t a[FCP_DIGEST_BYTES], b[FCP_DIGEST_BYTES];
    fcp_shape shape, other;
    cut_open(&x, plan);
    cr_assert(!fcp_extracts_root(plan, NULL, a, NULL) && !memcmp(a, x.root, sizeof a));
    cr_assert(!fcp_extracts_said(x.path, a, NULL) && !memcmp(a, x.root, sizeof a));
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_plan_rank(plan), FCP_NOWHERE);
    for (uint32_t r = 0; r < shape.ranks; r++) {
        fcp_plan *part = cut_load(&x, r);
        cr_assert_eq(fcp_plan_rank(part), r);
        cr_assert(!fcp_plan_digest(plan, a, NULL) && !fcp_plan_digest(part, b, NULL) && !memcmp(a, b, sizeof a));
        cr_assert(!fcp_plan_homes(plan, a, NULL) && !fcp_plan_homes(part, b, NULL) && !memcmp(a, b, sizeof a));
        fcp_plan_shape(part, &other);
        cr_assert(other.documents <= shape.documents);
        uint64_t *all = malloc((shape.documents + 1) * sizeof *all),
                 *some = malloc((other.documents + 1) * sizeof *some);
        fcp_plan_documents(plan, all);
        fcp_plan_documents(part, some);
        for (uint64_t i = 0, j = 0; i < other.documents; i++) {
            while (j < shape.documents && all[j] != some[i]) j++;
            cr_assert(j < shape.documents, "%s: a document begins at row %llu", what, (unsigned long long)some[i]);
        }
        free(all);
        free(some);
        cr_assert(other.ranks == shape.ranks && other.tokens == shape.tokens && other.key_tokens == shape.key_tokens &&
                      other.sequences == shape.sequences && other.layout == shape.layout,
                  "%s", what);
        cr_assert_eq(fcp_plan_packed(part), fcp_plan_packed(plan));
        same_layout(plan, part, r, what);
        fcp_plan_free(part);
    }
    cut_close(&x);
}

Test(extracts, say_what_the_plan_says) {
    for (unsigned i = 0; i < SMALL + OTHERS; i++) {
        char what[40];
        snprintf(what, sizeof what, "example %u", i);
        says_the_same(example(i, i % 3 == 2), what);
    }
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static fcp_code run_all(fcp_session *session, const fcp_plan *plan, fcp_packed *packed, fcp_error *err) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_packed_alloc(&shape, ALL, packed, err);
    if (!code) fcp_packed_draw(&shape, ALL, 7, packed);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++)
        if (shape.has_pass[pass]) code = fcp_session_run_packed(session, plan, (fcp_pass)pass, packed, NULL, err);
    return code;
}

/* The rank's rows have the bits that one process gives. */
static void compare(process *p, const fcp_plan *plan, const fcp_packed *mine, const fcp_packed *all) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++) {
        const bool keys = fcp_tensor_of_keys((fcp_tensor)t);
        const size_t row = fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
        fcp_layout_at at = {0};
        fcp_span span;
        while (mine->t[t] &&
               (keys ? fcp_plan_layout_keys(plan, p->rank, &at, &span) : fcp_plan_layout(plan, p->rank, &at, &span))) {
            const uint64_t first = (keys ? fcp_plan_key_offset(plan, span.sequence, NULL)
                                         : fcp_plan_sequence_offset(plan, span.sequence, NULL)) +
                                   span.start;
            CHECK(p, !memcmp((char *)mine->t[t] + first * row, (char *)all->t[t] + first * row, span.length * row),
                  "%s of sequence %u has other bits", fcp_tensor_name((fcp_tensor)t), span.sequence);
        }
    }
}

static void same_bits(process *p) {
    const cut_plan *x = p->argument;
    fcp_session *session = NULL;
    fcp_plan *part = NULL;
    fcp_packed mine = {0}, all = {0};
    fcp_error err = {0};
    const fcp_session_options here = {.size = sizeof here, .compute_threads = 1};
    process_tcp_id(p);
    process_meet(p, 0, 1);
    const fcp_start start = {.size = sizeof start, .ranks = p->ranks, .rank = p->rank, .id = p->shared->id.bytes};
    const fcp_session_options options = {.size = sizeof options,
                                         .transport = "tcp",
                                         .start = &start,
                                         .compute_threads = 1,
                                         .timeout_s = 100,
                                         .timings = true};
    CHECK(p, !fcp_extracts_load(x->path, p->rank, x->root, &part, &err), "%s", err.message);
    /* rank 1 has the whole plan, where there are more than two */
    const fcp_plan *own = p->ranks > 2 && p->rank == 1 ? x->plan : part;
    fcp_code code = fcp_session_create(own, &options, &session, &err);
    if (!code) code = run_all(session, own, &mine, &err);
    if (!code && own == part) CHECK(p, fcp_session_timings_collect(session, &err) == FCP_E_EXTRACT);
    if (!code) code = fcp_session_rebind(session, own == part ? x->plan : part, &err); /* from one to the other */
    if (!code) code = run_all(session, own == part ? x->plan : part, &mine, &err);
    CHECK(p, !code, "%s: %s", fcp_code_name(code), err.message);
    fcp_session_free(session);
    if (!code) code = fcp_session_create(x->plan, &here, &session, &err);
    if (!code) {
        CHECK(p, !run_all(session, x->plan, &all, &err), "%s", err.message);
        compare(p, x->plan, &mine, &all);
        CHECK(p, fcp_session_rebind(session, part, &err) == (p->ranks > 1 ? FCP_E_EXTRACT : FCP_OK), "%s", err.message);
        fcp_session_free(session);
    }
    fcp_packed_free(&mine);
    fcp_packed_free(&all);
    fcp_plan_free(part);
}

static void run_extracts(fcp_plan *plan, const char *what) {
    cut_plan x;
    cut_open(&x, plan);
    process_shared *s = process_shared_make();
    process_run(s, plan->problem->ranks, same_bits, &x);
    process_all_well(s, plan->problem->ranks, 0, what);
    process_shared_end(s, false);
    cut_close(&x);
}

Test(extracts, give_the_same_bits) {
    for (unsigned i = 0; i < SMALL + OTHERS; i += amount(5, 1)) {
        char what[40];
        snprintf(what, sizeof what, "example %u", i);
        run_extracts(example(i, i % 3 == 2), what);
    }
}

Test(extracts, give_the_same_bits_of_moved_work) {
    run_extracts(
        plan_of("model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\n"
                "cluster { nodes = 2; gpus = 3 }\nbatch { lengths = [900, 300:500, 70 x 5] }\n"
                "plan { mask = causal; block = 128; passes = forward, backward; strategy = dcp(divisions = 4)\n"
                "layout = zigzag; wire = bf16 }\n"),
        "dcp");
}

/* --- what is not taken -------------------------------------------------------------------------------------------- */

static const char small[] = "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { gpus = %s }\n"
                            "batch { lengths = [%s] }\nplan { mask = %s; block = 128; layout = contiguous }\n";
static fcp_plan *small_plan(const char *ranks, const char *lengths, const char *mask) {
    char text[400];
    snprintf(text, sizeof text, small, ranks, lengths, mask);
    return plan_of(text);
}

static fcp_code load_code(const void *bytes, size_t size, uint32_t rank, const uint8_t root[FCP_DIGEST_BYTES]) {
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    fcp_code code = fcp_extract_load(bytes, size, rank, root, &plan, &err);
    cr_assert(code == err.code && (!code || (*err.message && !plan)));
    fcp_plan_free(plan);
    return code;
}

/* Any number of ranks has a tree. No byte of an extract can be changed, no extract passes for another rank's, and none
 * of another plan is taken. */
Test(extracts, are_proven) {
    static const char *const ranks[] = {"1", "2", "3", "5", "8"};
    for (int i = 0; i < 5; i++) {
        cut_plan x, other;
        void *bytes;
        size_t size;
        cut_open(&x, small_plan(ranks[i], "300, 200, 70 x 4", "causal"));
        cut_open(&other, small_plan(ranks[i], "300, 200, 70 x 4", "full"));
        const uint32_t count = x.plan->problem->ranks;
        for (uint32_t r = 0; r < count; r++) {
            fcp_plan_free(cut_load(&x, r));
            cr_assert_eq(fcp_extracts_read(x.path, r, &bytes, &size, NULL), FCP_OK);
            cr_assert_eq(load_code(bytes, size, r, x.root), FCP_OK);
            cr_assert_eq(load_code(bytes, size, r, other.root), FCP_E_EXTRACT_PROOF);
            cr_assert_eq(load_code(bytes, size, (r + 1) % (count + 1), x.root), FCP_E_EXTRACT_PROOF);
            cr_assert(load_code(bytes, size - 1, r, x.root) && load_code(bytes, 0, r, x.root));
            for (size_t at = 0; at < size; at += 1 + at % 97) {
                uint8_t *copy = malloc(size);
                memcpy(copy, bytes, size);
                copy[at] ^= (uint8_t)(1 + at % 255);
                cr_assert(load_code(copy, size, r, x.root), "byte %zu", at);
                free(copy);
            }
            extract_header *h = bytes; /* the bytes of one rank, that say they are of another one */
            h->rank = (r + 1) % count;
            if (count > 1 && fcp_extract_path(h->rank, count) == fcp_extract_path(r, count))
                cr_assert_eq(load_code(bytes, size, h->rank, x.root), FCP_E_EXTRACT_PROOF);
            free(bytes);
        }
        fcp_plan *none = NULL;
        cr_assert_eq(fcp_extracts_load(x.path, count, x.root, &none, NULL), FCP_E_ARGUMENT);
        cut_close(&x);
        cut_close(&other);
    }
}

typedef struct taker {
    const cut_plan *of;
    uint32_t next, end; /* ranks */
} taker;
static bool take_same(void *context, uint32_t rank, const void *bytes, size_t size) {
    taker *t = context;
    void *kept;
    size_t all;
    if (t->next == t->end) return false;
    cr_assert_eq(rank, t->next++);
    cr_assert_eq(fcp_extracts_read(t->of->path, rank, &kept, &all, NULL), FCP_OK);
    cr_assert(size == all && !memcmp(bytes, kept, all), "rank %u", rank);
    free(kept);
    return true;
}

/* Who sends extracts gets those of the ranks that it names, with the bytes and the root that the file has. */
Test(extracts, are_given_one_by_one) {
    cut_plan x;
    cut_open(&x, small_plan("5", "300, 200, 70 x 4", "causal"));
    for (uint32_t first = 0; first <= 5; first++)
        for (uint32_t count = 0; count <= 6 - first; count++) {
            uint8_t root[FCP_DIGEST_BYTES] = {0};
            taker t = {&x, first, first + count};
            fcp_error err = {0};
            const fcp_code code = fcp_extracts_cut(x.plan, first, count, NULL, take_same, &t, root, &err);
            cr_assert_eq(code, first + count > 5 ? FCP_E_ARGUMENT : FCP_OK, "%s", err.message);
            cr_assert_eq(t.next, code ? first : t.end);
            cr_assert(code || !memcmp(root, x.root, sizeof root));
        }
    taker t = {&x, 1, 3}; /* it wants no more than two */
    uint8_t root[FCP_DIGEST_BYTES];
    cr_assert_eq(fcp_extracts_cut(x.plan, 1, 4, NULL, take_same, &t, root, NULL), FCP_E_INTERRUPTED);
    cr_assert_eq(t.next, 3);
    cut_close(&x);
}

/* A file of extracts that is cut short is refused, and so are other files. */
Test(extracts, files_are_whole) {
    cut_plan x;
    uint8_t root[FCP_DIGEST_BYTES];
    fcp_plan *part = NULL;
    fcp_error err = {0};
    cut_open(&x, small_plan("3", "300, 200", "causal"));
    void *bytes;
    size_t size;
    cr_assert(!fcp_extracts_read(x.path, 2, &bytes, &size, NULL));
    free(bytes);
    FILE *f = fopen(x.path, "rb");
    fseek(f, 0, SEEK_END);
    const long all = ftell(f);
    fclose(f);
    for (long length = all - 1; length >= 0; length -= 1 + length / 7) {
        cr_assert_eq(truncate(x.path, length), 0);
        fcp_code code = fcp_extracts_load(x.path, 2, x.root, &part, &err);
        cr_assert(code == FCP_E_PLAN_TRUNCATED || code == FCP_E_PLAN_MAGIC, "%ld: %s", length, err.message);
        cr_assert(strcmp(err.file, x.path) == 0);
    }
    cr_assert_eq(fcp_plan_save(x.plan, x.path, &err), FCP_OK);
    cr_assert_eq(fcp_extracts_load(x.path, 0, x.root, &part, &err), FCP_E_PLAN_MAGIC);
    cr_assert_eq(fcp_extracts_said(x.path, root, &err), FCP_E_PLAN_MAGIC);
    cut_close(&x);
}

/* Bytes that are proven, though nobody cut them: whoever makes roots may be wrong. Loading must still read nothing out
 * of bounds, and what loads can be asked. */
Test(extracts, are_checked_too) {
    uint64_t state = 1;
    unsigned taken = 0, refused = 0;
    for (int i = 0; i < 3; i++) {
        cut_plan x;
        const void *body;
        size_t size;
        fcp_cutter *cutter;
        uint8_t digest[FCP_DIGEST_BYTES] = {0};
        cut_open(&x,
                 i == 2 ? example(SMALL + 10, false) : small_plan("2", i ? "300:100, 200" : "300, 200, 40", "causal"));
        cr_assert_eq(fcp_cutter_make(x.plan, 1, 1, &cutter, NULL), FCP_OK);
        cr_assert_eq(fcp_cut(cutter, 1, &body, &size, NULL), FCP_OK);
        struct {
            extract_header header;
            fcp_hash beside;
        } head = {.header = {.magic = FCP_EXTRACT_MAGIC,
                             .version = FCP_PLAN_VERSION,
                             .rank = 1,
                             .ranks = x.plan->problem->ranks,
                             .path = 1,
                             .body = size}};
        cr_assert_eq(head.header.ranks, 2);
        char *bytes = malloc(sizeof head + size);
        for (unsigned turn = 0; turn < amount(4000, 100000); turn++) {
            memcpy(bytes, &head, sizeof head);
            memcpy(bytes + sizeof head, body, size);
            for (int n = turn ? 1 + (int)(turn % 3) : 0; n; n--) {
                state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
                const size_t at = sizeof head + (size_t)(state >> 33) % (size / 4) * 4;
                const uint32_t values[] = {0, 1, UINT32_MAX, (uint32_t)(state >> 7), 0x80000000u, 2, 127};
                uint32_t old;
                memcpy(&old, bytes + at, 4);
                const uint32_t now = state % 3 ? values[(state >> 20) % 7] : old + (state % 2 ? 1 : UINT32_MAX);
                memcpy(bytes + at, &now, 4);
            }
            fcp_hash leaf = fcp_extract_leaf(1, bytes + sizeof head, size);
            leaf = fcp_extract_node(&head.beside, &leaf);
            const fcp_hash root = fcp_extract_root(2, digest, &leaf);
            fcp_plan *part = NULL;
            fcp_code code = fcp_extract_load(bytes, sizeof head + size, 1, root.bytes, &part, NULL);
            cr_assert(turn || !code);
            taken += !code;
            refused += code != FCP_OK;
            if (!code) {
                const uint64_t q = fcp_plan_rank_queries(part, 1), k = fcp_plan_rank_keys(part, 1);
                int64_t *rows = malloc(((q > k ? q : k) + 1) * sizeof *rows);
                fcp_plan_rows(part, 1, false, 1, rows);
                fcp_plan_positions(part, 1, true, rows);
                free(rows);
                fcp_bundles *bundles;
                cr_assert_eq(fcp_bundles_make(part, 1, 1, &bundles, NULL), FCP_OK);
                for (uint64_t t = 0; t < part->transfers_count; t++) {
                    if (part->transfers[t].block != FCP_NONE) continue;
                    fcp_bundle_run run;
                    const fcp_bundle of = fcp_bundle_of(bundles, 1, &part->transfers[t]);
                    for (uint32_t j = 0; fcp_bundle_next(&of, &part->transfers[t], &j, &run);)
                        cr_assert(run.block < part->blocks_count);
                }
                fcp_bundles_free(bundles);
                fcp_plan_free(part);
            }
        }
        free(bytes);
        fcp_cutter_free(cutter);
        cut_close(&x);
    }
    cr_assert(taken > 3 && refused > taken, "%u are taken, %u refused", taken, refused);
}

/* What needs the whole plan says so. */
Test(extracts, are_not_whole) {
    cut_plan x;
    fcp_error err = {0};
    fcp_session *session = NULL;
    uint8_t root[FCP_DIGEST_BYTES];
    char *text = NULL;
    cut_open(&x, small_plan("2", "300", "causal"));
    fcp_plan *part = cut_load(&x, 0);
    cr_assert_eq(fcp_plan_save(part, x.path, &err), FCP_E_EXTRACT);
    cr_assert_eq(fcp_plan_verify_pairs(part, 0, NULL, NULL, &err), FCP_E_EXTRACT);
    cr_assert_eq(fcp_extracts_root(part, NULL, root, &err), FCP_E_EXTRACT);
    cr_assert_eq(fcp_session_create(part, NULL, &session, &err), FCP_E_EXTRACT);
    cr_assert(strstr(err.message, "rank 0"), "%s", err.message);
    cr_assert_eq(fcpc_summary_text(part, NULL, NULL, NULL, &text, &err), FCP_E_EXTRACT);
    cr_assert_eq(fcpc_summary_json(part, NULL, &text, &err), FCP_E_EXTRACT);
    cr_assert_eq(fcpc_simulate_json(part, NULL, &text, &err), FCP_E_EXTRACT);
    cr_assert_eq(fcpc_show_text(part, NULL, &text, &err), FCP_E_EXTRACT);
    cr_assert_eq(fcpc_show_html(part, NULL, &text, &err), FCP_E_EXTRACT);
    const fcpc_question question = {.size = sizeof question, .q = 7, .k = 3, .plan = part};
    cr_assert_eq(fcpc_explain_text("plan", NULL, 0, NULL, &question, NULL, &text), FCP_E_EXTRACT);
    fcp_plan_free(part);
    cut_close(&x);
    /* where there is one rank, an extract will do */
    cut_open(&x, small_plan("1", "300", "causal"));
    part = cut_load(&x, 0);
    cr_assert_eq(fcp_session_create(part, NULL, &session, &err), FCP_OK, "%s", err.message);
    fcp_session_free(session);
    fcp_plan_free(part);
    cut_close(&x);
}

Test(extracts, can_be_interrupted) {
    cut_plan x;
    const volatile int stop = 1;
    uint8_t root[FCP_DIGEST_BYTES];
    cut_open(&x, small_plan("2", "300", "causal"));
    cr_assert_eq(fcp_extracts_root(x.plan, &stop, root, NULL), FCP_E_INTERRUPTED);
    cr_assert_eq(fcp_extracts_save(x.plan, x.path, &stop, root, NULL), FCP_E_INTERRUPTED);
    fcp_plan_free(cut_load(&x, 1)); /* the file is as it was */
    cut_close(&x);
}
