/* correct.c: compares what the device computes with the definition of attention in float64.
 *
 * Each plan runs in a process of its own with all its ranks on the devices of the machine, twice stream by stream and
 * twice as a graph. All four runs must give the same bits, and one of them is judged (runtime/judge/RULE.md).
 * Examples are made small by other lengths and other arguments of their masks. Random programs are those of
 * tests/oracle, with a head_dim that has kernels.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/libraries/nccl.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/plan.h"
#include "tests/oracle/random_program.h"
#include "tests/gpu/gpu.h"

enum { ALL = (1 << FCP_TENSORS) - 1, DEFINES = 24, RANDOM = 60, RANDOM_STANDIN = 3, EXAMPLES_STANDIN = 5,
       TRIES = 2, PLAN_S = 45, STANDIN_S = 3000 /* seconds that a plan may take */ };

typedef bool plan_call(gpu *g, fcp_plan *plan, const char *what, void *context);

/* --- a plan ------------------------------------------------------------------------------------------------------- */

bool gpu_outputs_same(const fcp_shape *shape, fcp_pass pass, const fcp_packed *a, const fcp_packed *b,
                      const char **out_name) {
    for (int t = 0; t < FCP_TENSORS; t++) {
        *out_name = fcp_tensor_name((fcp_tensor)t);
        if ((gpu_outputs(pass) >> t & 1) && memcmp(a->t[t], b->t[t], fcp_packed_bytes(shape, (fcp_tensor)t)))
            return false;
    }
    return true;
}

/* Runs a pass twice in a session. One session keeps its result in `first`; the results of all others must be the
 * same. */
static bool run_pass(fcp_session *session, const fcp_plan *plan, fcp_pass pass, fcp_packed *first, fcp_packed *again,
                     bool keep, bool same, char why[GPU_WHY]) {
    fcp_shape shape;
    fcp_error err;
    const char *name;
    fcp_plan_shape(plan, &shape);
    for (int run = 0; run < 2; run++) {
        fcp_packed *to = keep && run == 0 ? first : again;
        if (to == again)
            for (int t = 0; t < FCP_TENSORS; t++)
                memcpy(again->t[t], first->t[t], fcp_packed_bytes(&shape, (fcp_tensor)t));
        if (fcp_session_run_packed(session, plan, pass, to, NULL, &err)) {
            snprintf(why, GPU_WHY, "%.390s", err.message);
            return false;
        }
        if (to == again && (same || pass == FCP_FORWARD) && !gpu_outputs_same(&shape, pass, first, again, &name)) {
            snprintf(why, GPU_WHY, "two runs differ in %s%s", name, keep ? "" : ", one of them a graph");
            return false;
        }
    }
    return true;
}

bool gpu_judge(gpu *g, const fcp_plan *plan, uint32_t passes, uint32_t first, uint32_t count, const fcp_packed *packed,
               char why[GPU_WHY]) {
    fcp_check_report report = FCP_CHECK_START;
    fcp_error err;
    if (fcp_check_run(plan,
                      &(fcp_check_options){.passes = passes, .first = first, .count = count,
                      .threads = 0}, packed, &report, &err)) {
        snprintf(why, GPU_WHY, "%.390s", err.message);
        return false;
    }
    g->margin = 0;
    g->margin_of = "nothing";
    for (int t = 0; t < FCP_TENSORS; t++) {
        const fcp_check *c = &report.tensor[t];
        if (!c->checked || !(c->share > g->margin)) continue;
        g->margin = c->share;
        g->margin_of = fcp_tensor_name((fcp_tensor)t);
    }
    for (int t = 0; t < FCP_TENSORS; t++)
        if (report.tensor[t].checked && !report.tensor[t].ok && report.tensor[t].verdict != FCP_DIFFERS) {
            fcp_check_text(plan, (unsigned)t, &report.tensor[t], why, GPU_WHY);
            return false;
        } else if (report.tensor[t].checked && !report.tensor[t].ok) {
            snprintf(why, GPU_WHY, "%s: error %g, naive %g, allowed %g, at %llu", fcp_tensor_name((fcp_tensor)t),
                     report.tensor[t].max_abs_error, report.tensor[t].reference_error, report.tensor[t].tolerance,
                     (unsigned long long)report.tensor[t].worst);
            return false;
        }
    return true;
}

bool gpu_check_plan(gpu *g, const fcp_plan *plan, uint64_t seed, const fcp_start *start, fcp_packed *out,
                    char why[GPU_WHY]) {
    fcp_shape shape;
    fcp_packed again = {0};
    fcp_error err = {.message = ""};
    bool same = plan->problem->deterministic;
    fcp_plan_shape(plan, &shape);
    if (g->control) {
        g->control->plan = plan;
        g->control->idle = false;
    }
    bool good = !fcp_packed_alloc(&shape, ALL, out, &err) && !fcp_packed_alloc(&shape, ALL, &again, &err);
    if (good) fcp_packed_draw(&shape, ALL, seed, out);
    for (int graph = 0; good && graph < 2; graph++) {
        fcp_session_options options = {.size = sizeof options, .backend = "cuda", .graph_from = graph ? 1 : UINT32_MAX,
                                        .timeout_s = g->timeout_s, .mma_sync = g->older};
        fcp_session *session = NULL;
        char id[FCP_ID_BYTES], file[500];
        fcp_start own = start ? *start : (fcp_start){.size = sizeof(fcp_start), .rank = 0};
        if (start) {
            options.transport = "nccl";
            options.start = &own;
        }
        if (start && start->id_file) {
            snprintf(file, sizeof file, "%.480s-%d", start->id_file, graph);
            own.id_file = file;
        } else if (start) {
            own.id = id;
            good = !fcp_start_id(id, &err);
        }
        good = good && !fcp_session_create(plan, &options, &session, &err);
        for (int pass = 0; good && pass < FCP_PASSES; pass++)
            if (shape.has_pass[pass]) {
                good = run_pass(session, plan, (fcp_pass)pass, out, &again, !graph, same, why);
                if (!good) err.message[0] = 0;
            }
        gpu_hung(g, session, "a plan");
        fcp_session_free(session);
    }
    if (!good && err.message[0]) snprintf(why, GPU_WHY, "%.390s", err.message);
    if (good) good = gpu_judge(g, plan, plan->problem->passes, start ? start->rank : 0, start ? 1 : shape.ranks, out, why);
    if (g->control) {
        if (good && g->control->trouble[0]) {
            snprintf(why, GPU_WHY, "%.390s", g->control->trouble);
            good = false;
        }
        g->control->plan = NULL;
    }
    fcp_packed_free(&again);
    return good;
}

static bool check_plan(gpu *g, const fcp_plan *plan, uint64_t seed, const fcp_start *start, char why[GPU_WHY]) {
    fcp_packed out = {0};
    bool good = gpu_check_plan(g, plan, seed, start, &out, why);
    fcp_packed_free(&out);
    return good;
}

/* --- examples ----------------------------------------------------------------------------------------------------- */

#define UNORDERED "plan.deterministic=false"
/* Every example. Some occur twice, the second time with a backward pass that may add in any order (UNORDERED).
 * `lengths` replaces the example's lengths; NULL keeps its own. `defines` are what its mask needs for them, and its
 * ranks. */
static const struct {
    const char *file, *lengths;
    const char *defines[9];
} examples[] = {
    {"lambda.fcp", "[900, 350, 33]", {"lambda.sink=8", "lambda.window=200"}},
    {"documents.fcp", "[1000, 230 x 2, 40 x 6]", {"cluster.gpus=8"}},
    {"scores/softcap.fcp", "[700, 300 x 2]", {"softcap.c=20.0"}},
    {"window.fcp", "[700, 160]", {"plan.mask.w=300", UNORDERED}},
    {"masks/causal_document.fcp", NULL, {0}},
    {"my_mask.fcp", "[800, 150]", {"summaries.chunk=64", "summaries.tokens=4"}},
    {"ring.fcp", "[800, 330]", {"cluster.gpus=8"}},
    {"shared_question.fcp", "[900, 200]", {0}},
    {"window.fcp", "[900, 160]", {"plan.mask.w=300"}},
    {"chunked_prefill.fcp", "[128:900 x 2, 100, 1:500 x 4]", {0}},
    {"cross.fcp", "[700:77 x 3, 100:77 x 4]", {0}},
    {"decode.fcp", "[1:1000 x 4, 1:400 x 40, 1:100 x 30]", {0}},
    {"merge_prefix.fcp", "[700, 330, 90]", {0}},
    {"mla.fcp", "[700, 330, 90]", {"model.head_dim=192", "model.value_dim=128"}},
    {"mla.fcp", "[700, 330]", {"model.head_dim=192", "model.value_dim=128", UNORDERED}},
    {"masks/block_diffusion.fcp", "[800, 100]", {"plan.mask.b=16"}},
    {"masks/block_mask.fcp", NULL, {0}},
    {"masks/causal_blockwise_fm.fcp", "[900, 200]", {"plan.mask.b=50"}},
    {"masks/document.fcp", NULL, {0}},
    {"masks/draft_train.fcp", "[700]", {"plan.mask.p=340", "plan.mask.b=4"}},
    {"masks/global_field.fcp", NULL, {0}},
    {"masks/hash_sparse.fcp", NULL, {0}},
    {"masks/natten2d.fcp", "[900]", {"plan.mask.W=30", "plan.mask.kw=5", "plan.mask.kh=7"}},
    {"masks/natten3d.fcp",
     "[720]",
     {"plan.mask.W=8", "plan.mask.H=9", "plan.mask.kw=3", "plan.mask.kh=4", "plan.mask.kt=2", "plan.mask.dh=2"}},
    {"masks/prefix_document.fcp", NULL, {0}},
    {"masks/prefix_lm.fcp", NULL, {0}},
    {"masks/qk_sparse.fcp", "[600, 400]", {"plan.mask.o=100", "plan.mask.m=60"}},
    {"masks/random_eviction.fcp", NULL, {0}},
    {"masks/slices.fcp", NULL, {0}},
    {"masks/sta2d.fcp", "[768]", {"plan.mask.W=24", "plan.mask.tw=4", "plan.mask.kw=3", "plan.mask.kh=1"}},
    {"masks/sta3d.fcp",
     "[768]",
     {"plan.mask.W=8", "plan.mask.H=8", "plan.mask.tw=4", "plan.mask.th=4", "plan.mask.tt=2", "plan.mask.kw=1",
      "plan.mask.kh=1", "plan.mask.kt=3"}},
    {"masks/sta3d_text.fcp",
     "[730]",
     {"plan.mask.W=10", "plan.mask.H=7", "plan.mask.tw=4", "plan.mask.th=4", "plan.mask.tt=2", "plan.mask.kw=1",
      "plan.mask.kh=1", "plan.mask.text=30"}},
    {"masks/svg_spatial.fcp", "[750]", {"plan.mask.P=30", "plan.mask.w=40"}},
    {"masks/svg_temporal.fcp", "[750]", {"plan.mask.P=30", "plan.mask.T=20", "plan.mask.w=3"}},
    {"masks/tree.fcp", NULL, {0}},
    {"scores/alibi.fcp", "[700, 300 x 2]", {"cluster.gpus=8"}},
    {"scores/alibi_slopes.fcp", "[700, 300 x 2]", {0}},
    {"scores/heads.fcp", "[700, 300 x 2]", {0}},
    {"scores/relative.fcp", "[700, 300 x 2]", {0}},
    {"scores/request_bias.fcp", NULL, {0}},
    {"scores/sinks.fcp", "[700, 300 x 2]", {0}},
    {"documents.fcp", "[1000, 230 x 2, 40 x 6]", {UNORDERED}},
    {"scores/softcap.fcp", "[700, 300 x 2]", {"softcap.c=20.0", UNORDERED}},
    {"masks/tree.fcp", NULL, {UNORDERED}},
    {"qwen3_next.fcp", "[900, 330, 40 x 6]", {0}},
    {"nemotron_h.fcp", "[800, 350]", {0}},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

/* On a stand-in a product takes milliseconds. So only the first few examples run there, with tiny heads, and with these
 * lengths where the example can take other lengths. */
static const char *const standin_lengths[EXAMPLES_STANDIN] = {"[200, 33]", "[150, 40 x 2]", "[200]", "[140, 60]", NULL};

static fcp_plan *example_plan(const gpu *g, size_t i, char why[GPU_WHY]) {
    char path[120], lengths[80], ranks[40];
    const char *defines[DEFINES];
    size_t count = 0;
    bool scores = strncmp(examples[i].file, "scores/", 7) == 0, small = g->small;
    /* what stays the example's own: the heads and head_dim that its tables are made for */
    bool own = (!examples[i].lengths && !small) || (scores && !strstr(examples[i].file, "softcap"));
    snprintf(path, sizeof path, "examples/%s", examples[i].file);
    const char *wanted =
        small && i < EXAMPLES_STANDIN && examples[i].lengths ? standin_lengths[i] : examples[i].lengths;
    snprintf(lengths, sizeof lengths, "batch.lengths=%s", wanted ? wanted : "");
    snprintf(ranks, sizeof ranks, "cluster.gpus=%d", 1 << i % 3);
    if (wanted) defines[count++] = lengths;
    defines[count++] = "cluster.nodes=1";
    defines[count++] = small ? "cluster.gpus=2" : ranks;
    defines[count++] = i % 2 ? "model.dtype=fp16" : "model.dtype=bf16";
    if (!strstr(examples[i].file, "slices")) defines[count++] = "plan.block=128";
    if (!own) {
        defines[count++] = small ? "model.heads=2" : "model.heads=4";
        defines[count++] = small ? "model.kv_heads=1" : i % 3 ? "model.kv_heads=2" : "model.kv_heads=1";
        defines[count++] = small        ? "model.head_dim=16"
                           : i % 5 == 4 ? "model.head_dim=256"
                           : i % 2      ? "model.head_dim=64"
                                        : "model.head_dim=128";
    } else if (small) defines[count++] = "model.head_dim=16";
    for (size_t j = 0; j < 9 && examples[i].defines[j] && count < DEFINES; j++)
        if (!small || strncmp(examples[i].defines[j], "cluster", 7)) defines[count++] = examples[i].defines[j];
    return gpu_plan_of(path, NULL, defines, count, why);
}

bool gpu_correct_examples(gpu *g, plan_call *each, void *context, char why[GPU_WHY]) {
    size_t count = g->small ? EXAMPLES_STANDIN : EXAMPLES;
    for (size_t i = 0; i < count; i++) {
        fcp_plan *plan = example_plan(g, i, why);
        if (!plan) return false;
        char name[80];
        snprintf(name, sizeof name, "%s%s", examples[i].file, plan->problem->deterministic ? "" : ", unordered");
        bool more = each(g, plan, name, context);
        fcp_plan_free(plan);
        if (!more) break;
    }
    return true;
}

/* --- random programs ---------------------------------------------------------------------------------------------- */

/* Programs of few tokens. */
static fcp_plan *random_plan(const gpu *g, unsigned seed, random_program *p, char name[60]) {
    enum { DIMS = 6 };
    static const char *const dims[DIMS][2] = {
        {"model.head_dim=64", "model.value_dim=64"},   {"model.head_dim=128", "model.value_dim=128"},
        {"model.head_dim=128", "model.value_dim=64"},  {"model.head_dim=192", "model.value_dim=128"},
        {"model.head_dim=256", "model.value_dim=256"}, {"model.head_dim=32", "model.value_dim=32"}};
    dice d = dice_of(seed, 77);
    char why[GPU_WHY];
    draw_program(p, &d, g->small ? 12000 : 400000);
    uint32_t cost = p->heads * p->sequences * p->nodes * p->gpus;
    if (!p->dtype || (g->small && (cost > 16 || p->head_dim != 16))) return NULL;
    snprintf(name, 60, "random program %u", seed);
    return gpu_plan_of(name, p->text, dims[seed % DIMS], g->small ? 0 : 2, why); /* the compiler refuses some of them */
}

bool gpu_correct_random(gpu *g, plan_call *each, void *context, char why[GPU_WHY]) {
    random_program *p = calloc(1, sizeof *p);
    unsigned wanted = g->small ? RANDOM_STANDIN : RANDOM, done = 0;
    if (!p) snprintf(why, GPU_WHY, "out of memory");
    for (unsigned seed = 1; p && done < wanted && seed < 4000; seed++) {
        char name[60];
        fcp_plan *plan = random_plan(g, seed, p, name);
        if (!plan) continue;
        bool more = each(g, plan, name, context);
        done++;
        fcp_plan_free(plan);
        if (!more) break;
    }
    free(p);
    return p != NULL;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

typedef struct tally {
    unsigned right, before, wrong, suspects;
    bool late, second;   /* second: the suspects' turn */
    double margin;       /* the largest */
    char first[GPU_WHY]; /* the first that was wrong */
    char largest[100];   /* the plan with that margin */
} tally;

typedef struct one_plan {
    const fcp_plan *plan;
    uint64_t seed;
} one_plan;

static gpu_result run_plan(gpu *g, void *context, gpu_answer *out) {
    const one_plan *x = context;
    bool good = check_plan(g, x->plan, x->seed, NULL, out->why);
    out->margin = g->margin;
    snprintf(out->margin_of, sizeof out->margin_of, "%s", g->margin_of ? g->margin_of : "");
    return good ? GPU_OK : GPU_FAILED;
}

/* Is a plan to be run now? A plan that began, and whose end is not in the journal, is suspect: the machine may have
 * gone away because of it. Suspects are run after all others, and once only. */
static bool is_its_turn(gpu *g, const char *key, tally *t) {
    char rest[40];
    unsigned open = journal_count(g->journal, "begin", key) - journal_count(g->journal, "plan", key);
    if (journal_find(g->journal, "plan", key, rest, sizeof rest) && strncmp(rest, "right", 5) == 0) {
        t->before += !t->second;
        return false;
    }
    if (!t->second) t->suspects += open == 1;
    if (t->second ? open != 1 : open == 1) return false;
    if (gpu_left(g) < 3 && !g->small) t->late = true;
    return !t->late;
}

static void count_wrong(gpu *g, const fcp_plan *plan, const char *what, const char *why, tally *t) {
    if (!g->quiet)
        printf("  WRONG %s (%u ranks, head_dim %u): %s\n", what, plan->problem->ranks, plan->problem->head_dim, why);
    if (!t->wrong++) snprintf(t->first, sizeof t->first, "%.90s: %.290s", what, why);
}

/* Each plan has its beginning and its end in the journal, so that what was right is not run again, and what ended the
 * machine is not run first. */
static bool check_one(gpu *g, fcp_plan *plan, const char *what, void *context) {
    tally *t = context;
    char key[100], rest[GPU_WHY];
    gpu_answer answer = {.result = GPU_FAILED};
    one_plan one = {plan, t->right + 1};
    snprintf(key, sizeof key, "%.20s/%.70s", g->step, what);
    if (!is_its_turn(g, key, t)) return !t->late;
    double most = g->small ? STANDIN_S : PLAN_S, left = gpu_left(g) + 2;
    if (journal_count(g->journal, "begin", key) >= journal_count(g->journal, "plan", key) + TRIES)
        snprintf(answer.why, sizeof answer.why, "began %d times, and this program ended each time", TRIES);
    else {
        const gpu_apart apart = {.name = key,
                                 .open = true,
                                 .all = true,
                                 .judged = true,
                                 .most = most < left ? most : left,
                                 .work = run_plan,
                                 .context = &one};
        journal_add(g->journal, "begin", key, "");
        gpu_run_apart(g, &apart, &answer);
    }
    bool right = answer.result == GPU_OK;
    if (right) snprintf(rest, sizeof rest, "right, %.2f of what is allowed, in %s", answer.margin, answer.margin_of);
    else snprintf(rest, sizeof rest, "%.1000s", answer.why);
    journal_add(g->journal, "plan", key, rest);
    if (!right) count_wrong(g, plan, what, answer.why, t);
    else t->right++;
    if (right && answer.margin > t->margin) {
        t->margin = answer.margin;
        snprintf(t->largest, sizeof t->largest, "%.90s", what);
    }
    return t->wrong < 5; /* five wrong plans are enough to see what is wrong */
}

static gpu_result close_tally(const tally *t, bool open, char why[GPU_WHY]) {
    if (!open) return GPU_FAILED;
    if (t->wrong) {
        snprintf(why, GPU_WHY, "%u wrong, the first: %.340s", t->wrong, t->first);
        return GPU_FAILED;
    }
    int used = snprintf(why, GPU_WHY,
                        "%u plans right: against float64, the same bits in two runs, with and without a graph",
                        t->right + t->before);
    if (t->right)
        used += snprintf(why + used, GPU_WHY - (size_t)used, "; nearest to wrong: %s, with %.2f of what is allowed",
                         t->largest, t->margin);
    if (t->late) snprintf(why + used, GPU_WHY - (size_t)used, "; the others later");
    return t->late ? GPU_LATER : GPU_OK;
}

/* All plans of a step, and then those again that began and did not end. */
static gpu_result check_all(gpu *g, bool (*plans)(gpu *, plan_call *, void *, char[GPU_WHY]), char why[GPU_WHY]) {
    tally t = {0};
    bool open = plans(g, check_one, &t, why);
    t.second = true;
    if (open && t.suspects && !t.late && t.wrong < 5) open = plans(g, check_one, &t, why);
    return close_tally(&t, open, why);
}

gpu_result step_examples(gpu *g, char why[GPU_WHY]) { return check_all(g, gpu_correct_examples, why); }

gpu_result step_examples_older(gpu *g, char why[GPU_WHY]) {
    g->older = true;
    if (g->machine.major == 9 || g->small) return step_examples(g, why);
    snprintf(why, GPU_WHY, "this device has no other kernels");
    return GPU_SKIPPED;
}

gpu_result step_edges(gpu *g, char why[GPU_WHY]) {
    const gpu_result plans = check_all(g, gpu_correct_edges, why);
    const gpu_result maxima = plans == GPU_OK ? gpu_maxima(g, why) : plans;
    const gpu_result layers = maxima == GPU_OK ? gpu_recurrent(g, why) : maxima;
    const size_t used = strlen(why);
    if (layers == GPU_OK)
        snprintf(why + used, GPU_WHY - used, "; the largest logits are right, too, and so are halos and scans");
    return layers;
}

gpu_result step_random(gpu *g, char why[GPU_WHY]) { return check_all(g, gpu_correct_random, why); }

static void tell(void *context, const char *question, const char *answer) {
    gpu *g = context;
    bool skipped = answer && strncmp(answer, "skipped", 7) == 0;
    journal_add(g->journal, "driver", question, answer ? answer : "as it must be");
    if (!g->quiet && answer) printf("  %s %s: %s\n", skipped ? "     " : "WRONG", question, answer);
}
gpu_result step_conformance(gpu *g, char why[GPU_WHY]) {
    if (g->control) g->control->devices = g->cuda->devices = 2; /* so that peers are asked about */
    unsigned wrong = conformance(g, tell, g);
    snprintf(why, GPU_WHY,
             wrong ? "%u answers of the driver are not what the runtime relies on"
                   : "the driver does what the runtime relies on",
             wrong);
    return wrong ? GPU_FAILED : GPU_OK;
}

gpu_result step_nccl(gpu *g, char why[GPU_WHY]) {
    static const char text[] =
        "model { heads = 2; kv_heads = 1; head_dim = %d; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
        "batch { lengths = [%d, 100] }\nplan { mask = causal; block = 128; passes = forward, backward }\n";
    char program[400];
    fcp_nccl *nccl = NULL;
    fcp_error err;
    if (fcp_nccl_open(&nccl, &err)) {
        snprintf(why, GPU_WHY, "%.390s", err.message);
        return GPU_SKIPPED;
    }
    int version = nccl->version;
    fcp_nccl_close(nccl);
    unsigned wrong = conformance_nccl(g, tell, g);
    if (wrong) {
        snprintf(why, GPU_WHY, "%u answers of NCCL are not what the runtime relies on", wrong);
        return GPU_FAILED;
    }
    snprintf(program, sizeof program, text, g->small ? 16 : 128, g->small ? 150 : 900);
    fcp_plan *plan = gpu_plan_of("nccl.fcp", program, NULL, 0, why);
    const fcp_start alone = {.size = sizeof alone, .ranks = 1, .rank = 0, .device = 1};
    bool good = plan && check_plan(g, plan, 3, &alone, why);
    fcp_plan_free(plan);
    return good ? gpu_ranks(g, version, why) : GPU_FAILED;
}
