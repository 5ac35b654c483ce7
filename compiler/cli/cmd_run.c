/* cmd_run.c: `fcpc run PLAN`: executes a plan on tensors from .npy files or on random ones, and checks the result.
 *
 * Order: first the inputs are read, and the outputs are checked as far as possible. Then the passes run. Then the
 *        result is checked, and at the end the outputs are written. So a result that was found wrong is never written.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/npy.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/enum_names.h"
#include "runtime/worklists/fuse.h"
#include "runtime/rendezvous/rendezvous.h"
#include "compiler/cli/cmd.h"
#include "compiler/show/summary.h"

enum {
    BIT_Q = 1 << FCP_TENSOR_Q,
    BIT_K = 1 << FCP_TENSOR_K,
    BIT_V = 1 << FCP_TENSOR_V,
    BIT_DO = 1 << FCP_TENSOR_DO,
    BIT_DLSE = 1 << FCP_TENSOR_DLSE,
    BIT_INPUTS = BIT_Q | BIT_K | BIT_V | BIT_DO | BIT_DLSE,
    BIT_GRADIENTS = 1 << FCP_TENSOR_DQ | 1 << FCP_TENSOR_DK | 1 << FCP_TENSOR_DV
};

/* Which option names the file of a tensor; OPT_COUNT: none does. */
static const cmd_option tensor_option[FCP_TENSORS] = {
    [FCP_TENSOR_Q] = OPT_Q,   [FCP_TENSOR_K] = OPT_K,       [FCP_TENSOR_V] = OPT_V,   [FCP_TENSOR_DO] = OPT_DO,
    [FCP_TENSOR_O] = OPT_OUT, [FCP_TENSOR_LSE] = OPT_LSE,   [FCP_TENSOR_DQ] = OPT_DQ, [FCP_TENSOR_DK] = OPT_DK,
    [FCP_TENSOR_DV] = OPT_DV, [FCP_TENSOR_DLSE] = OPT_DLSE, [FCP_TENSOR_LSE_LOW] = OPT_COUNT};

/* Checking all rows of a long batch takes hours. If that needs more multiplications than this, or than --check-work
 * says, only a sample of rows is checked that needs about as many: some 10 s of one core. */
#define CHECK_WORK UINT64_C(30000000000)

typedef struct job {
    fcp_shape shape;
    bool drawn, check, check_all, pass[FCP_PASSES];
    unsigned inputs;  /* bit per tensor: read from a file */
    unsigned outputs; /* written to one */
    double seconds[FCP_PASSES], check_seconds;
    uint64_t seed, threads, timeout, check_work;
    fcp_packed packed;
    fcp_check_report report;
    fcp_check_unit *sample; /* the rows that are checked; NULL: all */
    uint64_t sample_count;
    unsigned collected;     /* tensors of which rank 0 has collected all rows: bit per fcp_tensor */
    fcp_partition partition; /* first the one that is asked for, then the one that is used */
    fcp_fuse fuse;
    bool fused[FCP_PASSES]; /* is the pass fused? Then `totals` describes its launches */
    fcp_fusion_totals totals[FCP_PASSES];
    char backend[32], transport[32], partition_why[400], warning[400];
    bool processes;        /* each rank is a process of its own */
    uint32_t first, count; /* the ranks of this process */
    fcp_session *session;
    text trace; /* of --trace */
    struct job_table {
        fcp_table table;
        const char *path;
    } * tables; /* of --dtable; malloc'd */
} job;

/* --- options and checks ------------------------------------------------------------------------------------------- */

static fcp_code parse_passes(const char *list, bool wanted[FCP_PASSES], fcp_error *err) {
    for (const char *s = list; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL) {
        size_t length = strcspn(s, ",");
        int found = -1;
        for (int p = 0; p < FCP_PASSES; p++)
            if (strlen(fcp_pass_names[p]) == length && memcmp(fcp_pass_names[p], s, length) == 0) found = p;
        if (length == 4 && memcmp(s, "both", 4) == 0) wanted[FCP_FORWARD] = wanted[FCP_BACKWARD] = true;
        else if (found < 0)
            return fcp_fail(err, FCP_E_USAGE, "--pass %.60s: expected forward, backward or both", list);
        else wanted[found] = true;
    }
    return FCP_OK;
}

/* Checks what can be wrong with the command line by itself, before anything is read. */
static fcp_code check_options(const cmd_line *line, job *work, bool wanted[FCP_PASSES], fcp_error *err) {
    unsigned named = 0;
    for (int t = 0; t < FCP_TENSORS; t++)
        if (tensor_option[t] != OPT_COUNT && line->value[tensor_option[t]]) named |= 1u << t;
    const unsigned inputs = named & BIT_INPUTS;
    const bool gradients = named & BIT_GRADIENTS || line->value[OPT_DSINK] || line->dtable_count;
    work->inputs = inputs;
    work->outputs = named & ~inputs;
    work->drawn = inputs == 0;
    work->check = line->value[OPT_CHECK] || (work->drawn && !line->value[OPT_NO_CHECK]);
    work->check_all = work->check && line->value[OPT_CHECK] && *line->value[OPT_CHECK];
    if (line->value[OPT_CHECK_WORK] && (!work->check || work->check_all))
        return fcp_fail(err, FCP_E_USAGE, "--check-work is the size of a sample, but %s",
                        work->check_all ? "--check all asks for every row" : "nothing is checked: say --check");
    if (!work->drawn && !(inputs & BIT_Q && inputs & BIT_K))
        return fcp_fail(err, FCP_E_USAGE, "--%s is missing: q, k and v come together", inputs & BIT_Q ? "k" : "q");
    if (inputs & BIT_DLSE && !(inputs & BIT_DO))
        return fcp_fail(err, FCP_E_USAGE,
                        "--dlse is for the backward pass, which needs --do, the gradient of the output, too");
    if (!work->drawn && !(inputs & BIT_DO) && gradients)
        return fcp_fail(err, FCP_E_USAGE, "gradients need --do, the gradient of the output");
    fcp_code code = FCP_OK;
    if (line->value[OPT_PASS]) code = parse_passes(line->value[OPT_PASS], wanted, err);
    if (code == FCP_OK && line->value[OPT_PASS] && !wanted[FCP_BACKWARD] && gradients)
        return fcp_fail(err, FCP_E_USAGE, "gradients need the backward pass: --pass forward,backward");
    if (code == FCP_OK && line->value[OPT_PASS] && !wanted[FCP_BACKWARD] && inputs & BIT_DLSE)
        return fcp_fail(err, FCP_E_USAGE, "--dlse is for the backward pass: --pass forward,backward");
    if (code == FCP_OK && wanted[FCP_BACKWARD] && !work->drawn && !(inputs & BIT_DO))
        return fcp_fail(err, FCP_E_USAGE, "the backward pass needs --do, the gradient of the output");
    if (code == FCP_OK && !line->value[OPT_PASS] && inputs & BIT_DO) wanted[FCP_FORWARD] = wanted[FCP_BACKWARD] = true;
    if (code == FCP_OK && !line->value[OPT_PASS] && gradients) wanted[FCP_BACKWARD] = true;
    if (code == FCP_OK && !line->value[OPT_PASS] && !work->drawn) wanted[FCP_FORWARD] = true;
    if (code == FCP_OK) code = cmd_number(line, OPT_SEED, 0, UINT64_MAX, 1, &work->seed, err);
    if (code == FCP_OK) code = cmd_number(line, OPT_THREADS, 1, 4096, 0, &work->threads, err);
    const char *partition = line->value[OPT_SM_PARTITION];
    if (code == FCP_OK && partition && !fcp_partition_find(partition, &work->partition))
        return fcp_fail(err, FCP_E_USAGE, "--sm-partition is auto, none, grid or green, not '%.60s'", partition);
    if (code == FCP_OK) code = cmd_fuse(line, &work->fuse, err);
    if (code == FCP_OK) code = cmd_number(line, OPT_CHECK_WORK, 1, UINT64_MAX, CHECK_WORK, &work->check_work, err);
    if (code == FCP_OK) code = cmd_number(line, OPT_TIMEOUT, 1, 1000000, 0, &work->timeout, err);
    return code;
}

/* The tensors that the passes write. One is the rounding error of LSE, which the backward pass needs. */
static unsigned outputs_of(const job *work) {
    unsigned outputs = 1u << FCP_TENSOR_LSE_LOW;
    for (int p = 0; p < FCP_PASSES; p++) outputs |= work->pass[p] ? fcp_pass_outputs((fcp_pass)p) : 0;
    return outputs;
}

/* Checks that the plan has the tensors that the command line names, and the reverse. */
static fcp_code check_named(const job *work, fcp_error *err) {
    const bool v = work->inputs & BIT_V, dv = work->outputs >> FCP_TENSOR_DV & 1;
    if (work->shape.values_in_keys && (v || dv))
        return fcp_fail(err, FCP_E_TENSOR, "--%s: the plan's values are in its keys: %s", v ? "v" : "dv",
                        v ? "--k has both, and there is no v" : "--dk is the gradient of both, and there is no dv");
    if (!work->drawn && !v && !work->shape.values_in_keys)
        return fcp_fail(err, FCP_E_USAGE, "--v is missing: q, k and v come together");
    if (work->inputs & BIT_DLSE && !work->shape.lse_gradient)
        return fcp_fail(err, FCP_E_TENSOR,
                        "--dlse: the plan takes no gradient of LSE: compile it with -D plan.lse_gradient=true");
    return FCP_OK;
}

/* Finds the table that --dtable NAME=FILE names. */
static fcp_code find_table(const fcp_plan *plan, const char *typed, fcp_table *out, fcp_error *err) {
    const size_t length = strcspn(typed, "=");
    const uint32_t count = fcp_plan_tables(plan, 0, NULL);
    const char *what = NULL;
    text names = {0};
    for (uint32_t i = 0; i < count; i++) {
        fcp_plan_tables(plan, i, out);
        text_printf(&names, "%s%s", i ? ", " : "", out->name);
        if (strlen(out->name) != length || memcmp(out->name, typed, length) != 0) continue;
        text_free(&names);
        return FCP_OK;
    }
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const char *name = plan->names + plan->arrays[i].name;
        if (strlen(name) != length || memcmp(name, typed, length) != 0) continue;
        what = plan->arrays[i].kind == FCP_TABLE ? "a table of whole numbers" : "a field";
    }
    const int shown = length < 60 ? (int)length : 60;
    if (what)
        fcp_fail(err, FCP_E_TENSOR, "--dtable %.*s: it is %s, and only tables of reals have a gradient", shown, typed,
                 what);
    else
        fcp_fail(err, FCP_E_TENSOR, "--dtable %.*s: the plan's score reads %s%.*s", shown, typed,
                 count ? "other tables of reals: " : "no table of reals", names.size < 200 ? (int)names.size : 200,
                 names.size ? names.at : "");
    text_free(&names);
    return FCP_E_TENSOR;
}

/* Makes room for the gradients of sinks and tables that are asked for. */
static fcp_code open_shared(const cmd_line *line, const fcp_plan *plan, job *work, fcp_error *err) {
    const bool sinks = line->value[OPT_DSINK], tables = line->dtable_count;
    if (sinks && !plan->sink_count)
        return fcp_fail(err, FCP_E_TENSOR,
                        "--dsink: the plan has no sinks; -D plan.sink=0.0 compiles it with sinks of 0");
    if (sinks) work->packed.d_sink = malloc(work->shape.heads * sizeof *work->packed.d_sink);
    if (tables) work->tables = calloc(line->dtable_count, sizeof *work->tables);
    fcp_code code = FCP_OK;
    for (size_t i = 0; work->tables && i < line->dtable_count && !code; i++) {
        work->tables[i].path = strchr(line->dtables[i], '=') + 1;
        code = find_table(plan, line->dtables[i], &work->tables[i].table, err);
    }
    if (code) return code;
    if (tables) work->packed.d_table = malloc(fcp_plan_table_numbers(plan) * sizeof *work->packed.d_table);
    if ((work->packed.d_sink || !sinks) && ((work->tables && work->packed.d_table) || !tables)) return FCP_OK;
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the gradients of sinks and tables");
}

/* Settles which passes run. The backward pass needs the results of the forward pass, so that runs, too. */
static fcp_code settle(const cmd_line *line, job *work, const bool wanted[FCP_PASSES], fcp_error *err) {
    bool any = wanted[FCP_FORWARD] || wanted[FCP_BACKWARD];
    for (int p = 0; p < FCP_PASSES; p++) {
        if (wanted[p] && !work->shape.has_pass[p])
            return fcp_fail(err, FCP_E_PASS, "the plan has no %s pass", fcp_pass_names[p]);
        work->pass[p] = any ? wanted[p] : work->shape.has_pass[p];
    }
    if (work->pass[FCP_BACKWARD]) {
        if (!work->shape.has_pass[FCP_FORWARD])
            return fcp_fail(err, FCP_E_PASS, "the plan has no forward pass, whose results the backward pass reads");
        work->pass[FCP_FORWARD] = true;
    }
    bool files = !work->drawn || work->outputs & ~(1u << FCP_TENSOR_LSE);
    if (files && work->shape.dtype == FCP_BF16 && !line->value[OPT_BF16])
        return fcp_fail(
            err, FCP_E_TENSOR,
            "the plan's tensors are bf16: say --bf16 to pass them as uint16, or compile with -D model.dtype=fp32");
    if (line->value[OPT_BF16] && work->shape.dtype != FCP_BF16)
        return fcp_fail(err, FCP_E_TENSOR, "--bf16, but the plan's tensors are %s", fcp_dtype_name(work->shape.dtype));
    return FCP_OK;
}

static uint64_t tokens_of(const fcp_shape *shape, int t) {
    uint64_t dims[3];
    fcp_tensor_shape(shape, (fcp_tensor)t, dims);
    return dims[0];
}

/* Finds out whether this process is one rank of many. If so, all ranks but rank 0 print nothing but errors. */
static fcp_code find_rank(const cmd_line *line, cmd_input *input, job *work, fcp_error *err) {
    const char *transport = line->value[OPT_TRANSPORT], *backend = line->value[OPT_BACKEND];
    const fcp_problem *p = input->plan->problem;
    fcp_place place;
    const bool cuda = backend && strcmp(backend, "cuda") == 0;
    const bool nccl = cuda && transport && strcmp(transport, "nccl") == 0;
    const bool tcp = !cuda && transport && strcmp(transport, "tcp") == 0;
    work->processes = nccl || tcp || (!cuda && transport && strcmp(transport, "mpi") == 0);
    if (!nccl && !tcp && line->value[OPT_ID_FILE])
        return fcp_fail(err, FCP_E_USAGE, "--id-file is for --transport tcp, and for nccl with --backend cuda");
    if (!work->processes) return FCP_OK;
    fcp_code code = fcp_place_find(NULL, p->ranks, p->gpus, &place, err);
    if (code) return code;
    input->json_told = place.rank != 0;
    return FCP_OK;
}

/* Refuses tensors that do not fit into the machine's memory, because the process would be killed. Each is there twice:
 * packed, and divided among ranks. */
static fcp_code check_memory(const job *work, unsigned set, fcp_error *err) {
    double need = 0, pages = (double)sysconf(_SC_PHYS_PAGES), page = (double)sysconf(_SC_PAGESIZE);
    for (int t = 0; t < FCP_TENSORS; t++)
        if (set & 1u << t)
            need += 2.0 * (double)fcp_tensor_token_bytes(&work->shape, (fcp_tensor)t) *
                    (double)tokens_of(&work->shape, t);
    if (pages <= 0 || need <= pages * page) return FCP_OK;
    return fcp_fail(err, FCP_E_NO_MEMORY, "the tensors alone need %.1f GB, this machine has %.1f GB", need / 1e9,
                    pages * page / 1e9);
}

/* --- inputs, passes, outputs -------------------------------------------------------------------------------------- */

static fcp_code get_inputs(const cmd_line *line, job *work, unsigned set, fcp_error *err) {
    const unsigned all = set | outputs_of(work);
    fcp_code code = check_memory(work, all, err);
    if (code != FCP_OK) return code;
    if (work->drawn) {
        code = fcp_packed_alloc(&work->shape, set, &work->packed, err);
        if (code == FCP_OK) fcp_packed_draw(&work->shape, set, work->seed, &work->packed);
    }
    for (int t = 0; !work->drawn && t < FCP_TENSORS && code == FCP_OK; t++) {
        if (!(set & 1u << t)) continue;
        uint64_t dims[3];
        uint32_t count = fcp_tensor_shape(&work->shape, (fcp_tensor)t, dims);
        code = fcp_npy_load(line->value[tensor_option[t]],
                            fcp_npy_type_of(fcp_tensor_dtype(&work->shape, (fcp_tensor)t)), count, dims,
                            &work->packed.t[t], err);
    }
    if (code == FCP_OK) code = fcp_packed_alloc(&work->shape, all, &work->packed, err);
    if (code != FCP_OK || !line->value[OPT_MAX_LOGIT]) return code;
    work->packed.max_logit = malloc(work->shape.heads * sizeof *work->packed.max_logit);
    if (work->packed.max_logit) return FCP_OK;
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the largest logits of %u heads", work->shape.heads);
}

/* Opens a session with all plans, and stores what it reports about itself in the job. */
static fcp_code open_session(const cmd_line *line, const cmd_input *input, job *work, fcp_error *err) {
    const fcp_start start = {.size = sizeof start, .id_file = line->value[OPT_ID_FILE]};
    fcp_session_options options = {.size = sizeof options, .backend = line->value[OPT_BACKEND],
                                   .transport = line->value[OPT_TRANSPORT],
                                   .start = &start,
                                   .compute_threads = (uint32_t)work->threads,
                                   .timeout_s = (uint32_t)work->timeout,
                                   .host_tensors = true,
                                   .partition = work->partition,
                                   .mma_sync = line->value[OPT_MMA_SYNC] != NULL,
                                   .fuse = work->fuse,
                                   .timings = line->value[OPT_TRACE] != NULL};
    fcp_code code = fcp_session_create(input->plan, &options, &work->session, err);
    for (int p = 0; p < FCP_PASSES && !code; p++) {
        work->fused[p] = work->pass[p] && fcp_session_fused(work->session, (fcp_pass)p) == FCP_FUSE_PASS;
        if (work->fused[p]) code = fcp_fusion_count(input->plan, (fcp_pass)p, &work->totals[p], err);
    }
    for (uint32_t i = 1, number; i < cmd_plans(input) && !code; i++)
        code = fcp_session_add(work->session, cmd_plan(input, i), 0, &number, err);
    if (code != FCP_OK) return code;
    fcp_session *session = work->session;
    work->count = fcp_session_ranks(session, &work->first);
    snprintf(work->backend, sizeof work->backend, "%s", fcp_session_backend(session));
    snprintf(work->transport, sizeof work->transport, "%s", fcp_session_transport(session));
    const char *why;
    work->partition = fcp_session_partition(session, &why);
    snprintf(work->partition_why, sizeof work->partition_why, "%s", why);
    snprintf(work->warning, sizeof work->warning, "%s", fcp_session_warning(session));
    if (*work->warning && !line->quiet && !line->json) fprintf(stderr, "fcpc: warning: %s\n", work->warning);
    return FCP_OK;
}

/* Runs the passes of plan number i; a new report begins. */
static fcp_code execute(const cmd_input *input, uint32_t i, job *work, fcp_error *err) {
    static const char *const doing[FCP_PASSES] = {"running the forward pass", "running the backward pass"};
    free(work->sample);
    work->sample = NULL;
    work->collected = 0;
    work->report = FCP_CHECK_START;
    fcp_code code = fcp_session_select(work->session, i, err);
    for (int p = 0; p < FCP_PASSES && code == FCP_OK; p++) {
        if (!work->pass[p]) continue;
        cmd_doing(doing[p]);
        code = fcp_session_run_packed(work->session, cmd_plan(input, i), (fcp_pass)p, &work->packed, &work->seconds[p],
                                      err);
        cmd_done();
    }
    return code;
}

static unsigned passes_of(const job *work) {
    unsigned passes = 0;
    for (int p = 0; p < FCP_PASSES; p++) passes |= (unsigned)work->pass[p] << p;
    return passes;
}

/* Collects all rows of the outputs of `set` in rank 0's process. */
static fcp_code collect(const fcp_plan *plan, job *work, unsigned set, fcp_error *err) {
    set &= ~work->collected;
    work->collected |= set;
    return set ? fcp_session_collect_packed(work->session, plan, set, &work->packed, err) : FCP_OK;
}

/* What rank 0's process checks alone has an entry in the report of every process, so that reports can be exchanged. */
static void take_for_right(job *work) {
    const fcp_check right = {.checked = true, .ok = true};
    for (int t = 0; t < FCP_TENSORS; t++)
        if (work->sample && outputs_of(work) >> t & 1) work->report.tensor[t] = right;
    if (work->packed.d_sink) work->report.tensor[FCP_CHECK_DSINK] = right;
    if (work->packed.d_table && !work->sample) work->report.tensor[FCP_CHECK_DTABLE] = right;
}

/* Checks the result. Each process checks the rows of its own ranks. But to check a row of keys, O and LSE of all
 * queries are needed. So if only a sample is checked, rank 0's process collects all outputs and checks the sample
 * alone. The gradients of sinks and tables are sums over all rows, which it checks alone, too. */
static fcp_code check(const fcp_plan *plan, job *work, fcp_error *err) {
    if (!work->check) return FCP_OK;
    fcp_check_options options = {.passes = passes_of(work), .first = work->first, .count = work->count,
                                 .work = work->check_all ? 0 : (double)work->check_work,
                                 .threads = (unsigned)work->threads};
    const bool shared = work->packed.d_sink || work->packed.d_table;
    options.shared = shared && work->first == 0;
    double start = cmd_now();
    fcp_code code = fcp_check_units(plan, &options, &work->sample, &work->sample_count, err);
    if (code == FCP_OK && (work->sample || shared) && fcp_session_processes(work->session) > 1) {
        code = collect(plan, work, outputs_of(work), err);
        if (work->sample) options.count = 0;
        if (work->first != 0) take_for_right(work);
        if (work->first != 0 && work->sample) return code;
    }
    if (code != FCP_OK) return code;
    cmd_doing("checking against the definition");
    code = fcp_check_run(plan, &options, &work->packed, &work->report, err);
    cmd_done();
    work->check_seconds = cmd_now() - start;
    return code;
}

/* Exchanges the reports of all processes, so that each has the report of all ranks. *out_wrong is the first rank with a
 * wrong tensor. */
static fcp_code share_report(job *work, uint32_t *out_wrong, fcp_error *err) {
    uint32_t processes = fcp_session_processes(work->session);
    fcp_check *all = calloc(processes, sizeof *all);
    fcp_code code = all ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", processes);
    _Static_assert(sizeof *all <= FCP_GATHER_BYTES, "a check is gathered at once");
    *out_wrong = work->first;
    for (int t = FCP_CHECKS - 1; t >= 0 && code == FCP_OK && processes > 1; t--) {
        fcp_check *c = &work->report.tensor[t];
        if (!c->checked) continue; /* all processes check the same tensors */
        code = fcp_session_gather(work->session, c, sizeof *c, all, err);
        if (code != FCP_OK) break;
        double share = 0;
        *c = all[0]; /* if one is wrong, the first of those; else the one with the largest error */
        for (uint32_t r = 0; r < processes; r++) {
            bool worse = all[r].max_abs_error > c->max_abs_error;
            if (all[r].ok ? c->ok && worse : c->ok) *c = all[r];
            if (all[r].share > share) share = all[r].share;
        }
        c->share = share;
        for (uint32_t r = processes; r-- > 0;)
            if (!all[r].ok) *out_wrong = r;
        work->report.ok &= c->ok;
        if (c->max_abs_error > work->report.max_abs_error) work->report.max_abs_error = c->max_abs_error;
    }
    free(all);
    return code;
}

/* Takes the maximum, over all processes, of the largest logit of each head. */
static fcp_code share_max(job *work, fcp_error *err) {
    enum { AT_ONCE = FCP_GATHER_BYTES / sizeof(float) };
    const uint32_t processes = fcp_session_processes(work->session), heads = work->shape.heads;
    if (!work->packed.max_logit || processes == 1) return FCP_OK;
    float *all = malloc((size_t)processes * FCP_GATHER_BYTES);
    fcp_code code = all ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", processes);
    for (uint32_t h = 0; h < heads && code == FCP_OK; h += AT_ONCE) {
        const uint32_t count = heads - h < AT_ONCE ? heads - h : AT_ONCE;
        float *own = work->packed.max_logit + h;
        code = fcp_session_gather(work->session, own, count * sizeof *own, all, err);
        for (uint32_t i = 0; i < processes * count && code == FCP_OK; i++)
            if (all[i] > own[i % count]) own[i % count] = all[i];
    }
    free(all);
    return code;
}

/* Opens a file and writes float32 numbers to it; path NULL: does nothing. */
static fcp_code write_floats(cmd_file *file, const char *path, uint32_t count, const uint64_t *dims, const float *from,
                             fcp_error *err) {
    if (!path) return FCP_OK;
    fcp_code code = cmd_file_open(file, path, err);
    return code ? code : fcp_npy_write(&file->file, FCP_NPY_F4, count, dims, from, err);
}

/* Writes all outputs or none: no file gets its name before all are complete. */
static fcp_code write_outputs(const cmd_line *line, const job *work, fcp_error *err) {
    enum { MAX_LOGIT = FCP_TENSORS, DSINK, TRACE, TABLES };
    const char *trace = line->value[OPT_TRACE];
    const uint64_t heads = work->shape.heads;
    const size_t files = TABLES + line->dtable_count;
    cmd_file *file = malloc(files * sizeof *file);
    if (!file) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu files", files);
    fcp_code code = FCP_OK;
    for (size_t t = 0; t < files; t++) file[t] = CMD_FILE_NONE;
    for (int t = 0; t < FCP_TENSORS && code == FCP_OK; t++) {
        if (!(work->outputs & 1u << t)) continue;
        uint64_t dims[3];
        uint32_t count = fcp_tensor_shape(&work->shape, (fcp_tensor)t, dims);
        fcp_npy_type type = fcp_npy_type_of(fcp_tensor_dtype(&work->shape, (fcp_tensor)t));
        code = cmd_file_open(&file[t], line->value[tensor_option[t]], err);
        if (code == FCP_OK) code = fcp_npy_write(&file[t].file, type, count, dims, work->packed.t[t], err);
    }
    if (!code)
        code = write_floats(&file[MAX_LOGIT], line->value[OPT_MAX_LOGIT], 1, &heads, work->packed.max_logit, err);
    if (!code) code = write_floats(&file[DSINK], line->value[OPT_DSINK], 1, &heads, work->packed.d_sink, err);
    for (size_t i = 0; i < line->dtable_count && !code; i++) {
        const fcp_table *table = &work->tables[i].table;
        code = write_floats(&file[TABLES + i], work->tables[i].path, table->columns ? 2 : 1,
                            (uint64_t[]){table->rows, table->columns}, work->packed.d_table + table->first, err);
    }
    if (code == FCP_OK && trace) code = cmd_file_open(&file[TRACE], trace, err);
    int why = code == FCP_OK && trace ? fcp_write_all(file[TRACE].file.fd, work->trace.at, work->trace.size) : 0;
    if (why) code = cmd_cannot_write(trace, why, err);
    code = cmd_files_commit(file, files, code, err);
    free(file);
    return code;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

/* Says which rows of a sample were checked: how many of each side, and the first runs. */
static void print_sample(const job *work) {
    static const char *const names[FCP_SIDES] = {[FCP_QUERIES] = "queries", [FCP_KEYS] = "keys"};
    enum { SHOWN = 3 };
    printf("  checked against the definition in float64, a sample of rows (%.1f s; --check all checks all):\n",
           work->check_seconds);
    for (int side = 0; side < FCP_SIDES; side++) {
        uint64_t runs = 0;
        if (!work->report.checked[side]) continue;
        printf("    %" PRIu64 " of %" PRIu64 " rows of %s:", work->report.checked[side], work->report.rows[side],
               names[side]);
        for (uint64_t i = 0; i < work->sample_count; i++) {
            const fcp_check_unit *u = &work->sample[i];
            if (u->side != (uint32_t)side || runs++ >= SHOWN) continue;
            printf("%s sequence %" PRIu32 ", head %" PRIu32 ", %" PRIu64 " to %" PRIu64, runs > 1 ? ";" : "",
                   u->sequence, u->head, u->first, u->first + u->count - 1);
        }
        if (runs > SHOWN) printf("; and %" PRIu64 " more runs, which --json lists", runs - SHOWN);
        printf("\n");
    }
}

static void json_sample(json *j, const job *work) {
    if (!work->check) return;
    json_u64(j, "rows", work->report.rows[FCP_QUERIES]);
    json_u64(j, "rows_checked", work->report.checked[FCP_QUERIES]);
    json_u64(j, "key_rows", work->report.rows[FCP_KEYS]);
    json_u64(j, "key_rows_checked", work->report.checked[FCP_KEYS]);
    if (!work->report.sampled) return;
    json_array(j, "sample");
    for (uint64_t i = 0; i < work->sample_count; i++) {
        const fcp_check_unit *u = &work->sample[i];
        json_object(j, NULL);
        json_string(j, "of", u->side == FCP_KEYS ? "keys" : "queries");
        json_u64(j, "sequence", u->sequence);
        json_u64(j, "head", u->head);
        json_u64(j, "first", u->first);
        json_u64(j, "count", u->count);
        json_end(j);
    }
    json_end(j);
}

/* Prints what ran, and on what. */
static void print_head(const cmd_line *line, const fcp_plan *plan, const job *work) {
    char tokens[64];
    if (fcp_plan_split(plan))
        snprintf(tokens, sizeof tokens, "%" PRIu64 " queries and %" PRIu64 " keys", work->shape.tokens,
                 work->shape.key_tokens);
    else snprintf(tokens, sizeof tokens, "%" PRIu64 " tokens", work->shape.tokens);
    printf("%s: %s, %" PRIu32 ":%" PRIu32 " heads of %" PRIu32 ", %s, on %" PRIu32 " %s rank%s over %s; inputs %s\n",
           line->file, tokens, work->shape.heads, work->shape.kv_heads, work->shape.head_dim,
           fcp_dtype_name(work->shape.dtype), work->shape.ranks, work->backend, work->shape.ranks == 1 ? "" : "s",
           work->transport, work->drawn ? "drawn" : "from files");
    if (strcmp(work->backend, "cuda") == 0)
        printf("  multiprocessors left to communication by: %s (%s)\n", fcp_partition_name(work->partition),
               work->partition_why);
    for (int p = 0; p < FCP_PASSES; p++)
        if (work->fused[p])
            printf("  the %s pass of a rank is %" PRIu64 " launch%s at most\n", fcp_pass_names[p],
                   work->totals[p].launches, work->totals[p].launches == 1 ? "" : "es");
        else if (work->pass[p] && work->fuse == FCP_FUSE_PASS)
            printf("  the %s pass is two kernels, and so by stages\n", fcp_pass_names[p]);
    if (strcmp(work->transport, "nccl") == 0 && work->shape.ranks == 1)
        printf("  one rank alone: NCCL was tried by sending to itself\n");
}

/* Prints how long the passes took, and whether the result is right. */
static void print_verdict(const fcp_plan *plan, const job *work) {
    const summary_figures f = summary_derive(plan);
    const double flops[FCP_PASSES] = {f.flops_forward, f.flops_backward};
    char number[SUMMARY_NUMBER];
    for (int p = 0; p < FCP_PASSES; p++)
        if (work->pass[p])
            printf("  %-8s %8.3f s  %s in all\n", fcp_pass_names[p], work->seconds[p],
                   summary_number(number, work->seconds[p] > 0 ? flops[p] / work->seconds[p] : 0, "FLOP/s"));
    if (plan->recurrent_count)
        printf("  attention alone: `run` has no tensors for the plan's halos and scans, which sessions run (fcp.h)\n");
    if (!work->check) return;
    if (!work->report.sampled) printf("  checked against the definition in float64 (%.1f s):\n", work->check_seconds);
    else print_sample(work);
    for (int t = 0; t < FCP_CHECKS; t++) {
        const fcp_check *c = &work->report.tensor[t];
        char verdict[400];
        if (!c->checked) continue;
        fcp_check_text(plan, (unsigned)t, c, verdict, sizeof verdict);
        if (c->ok || c->verdict == FCP_DIFFERS)
            printf("    %-7s largest error %.3g, of the naive computation %.3g, allowed %.3g: %s\n",
                   fcp_check_name((unsigned)t), c->max_abs_error, c->reference_error, c->tolerance,
                   c->ok ? "right" : "WRONG");
        else
            printf("    %-7s %s: %s\n", fcp_check_name((unsigned)t),
                   c->verdict == FCP_NOTHING_PROVEN ? "not proven" : "WRONG", verdict);
    }
    if (work->packed.d_table && work->report.sampled)
        printf("    %-7s not checked: it is a sum over all pairs, and the sample has some of them\n",
               fcp_check_name(FCP_CHECK_DTABLE));
}

static fcp_code print_text(const cmd_line *line, const cmd_input *input, uint32_t i, const job *work, fcp_error *err) {
    text name = {0};
    fcp_code code = cmd_layer_text(input, i, &name, err);
    if (!i) print_head(line, input->plan, work);
    if (name.size) printf("  %.*s\n", (int)name.size, name.at);
    print_verdict(cmd_plan(input, i), work);
    text_free(&name);
    return code;
}

static void head_json(json *j, const job *work) {
    json_string(j, "backend", work->backend);
    json_string(j, "transport", work->transport);
    if (strcmp(work->backend, "cuda") == 0) {
        json_string(j, "sm_partition", fcp_partition_name(work->partition));
        json_string(j, "sm_partition_why", work->partition_why);
        for (int p = 0; p < FCP_PASSES; p++) {
            char name[40];
            snprintf(name, sizeof name, "%s_launches", fcp_pass_names[p]);
            if (work->pass[p]) json_string(j, fcp_pass_names[p], work->fused[p] ? "fused" : "by stages");
            if (work->fused[p]) json_u64(j, name, work->totals[p].launches);
        }
        json_string(j, "session_warning", *work->warning ? work->warning : NULL);
    }
    json_u64(j, "ranks", work->shape.ranks);
}

static void verdict_json(json *j, const job *work) {
    json_bool(j, "ok", work->report.ok);
    json_bool(j, "checked", work->check);
    if (work->check) {
        json_double(j, "max_abs_error", work->report.max_abs_error);
        json_double(j, "reference_error", work->report.reference_error);
    } else {
        json_null(j, "max_abs_error");
        json_null(j, "reference_error");
    }
    json_sample(j, work);
    json_double(j, "seconds", work->seconds[FCP_FORWARD] + work->seconds[FCP_BACKWARD]);
    for (int p = 0; p < FCP_PASSES; p++)
        if (work->pass[p]) json_double(j, p == FCP_FORWARD ? "seconds_forward" : "seconds_backward", work->seconds[p]);
    json_object(j, "tensors");
    for (int t = 0; t < FCP_CHECKS; t++) {
        const fcp_check *c = &work->report.tensor[t];
        if (!c->checked) continue;
        json_object(j, fcp_check_name((unsigned)t));
        json_bool(j, "ok", c->ok);
        json_bool(j, "proven", c->verdict != FCP_NOTHING_PROVEN);
        json_double(j, "max_abs_error", c->max_abs_error);
        json_double(j, "reference_error", c->reference_error);
        json_double(j, "tolerance", c->tolerance);
        json_end(j);
    }
    json_end(j);
}

/* --- one plan after the other ------------------------------------------------------------------------------------- */

/* An output option names one file, so it is an error if there are several plans, and so several results. */
static fcp_code check_files(const cmd_line *line, const cmd_input *input, const job *work, fcp_error *err) {
    static const cmd_option others[] = {OPT_TRACE, OPT_MAX_LOGIT, OPT_DSINK, OPT_DTABLE};
    const char *named = NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (line->value[others[i]]) named = cmd_options[others[i]].name;
    for (int t = 0; t < FCP_TENSORS; t++)
        if (work->outputs >> t & 1) named = cmd_options[tensor_option[t]].name;
    if (!named || cmd_plans(input) == 1) return FCP_OK;
    return fcp_fail(err, FCP_E_USAGE, "--%s names one file, and there are %" PRIu32 " masks: --layer chooses one",
                    named, cmd_plans(input));
}

/* Runs plan number i and checks its result. *wrong is the first error found in any result. */
static fcp_code run_plan(const cmd_line *line, const cmd_input *input, uint32_t i, job *work, fcp_error *wrong,
                         fcp_error *err) {
    const fcp_plan *plan = cmd_plan(input, i);
    uint32_t wrong_rank = 0;
    char who[32] = "";
    fcp_code code = execute(input, i, work, err);
    if (code == FCP_OK && work->pass[FCP_BACKWARD])
        code = fcp_session_sum_packed(work->session, plan, &work->packed, err);
    if (code == FCP_OK) code = check(plan, work, err);
    if (code == FCP_OK && work->check) code = share_report(work, &wrong_rank, err);
    if (code == FCP_OK && work->report.ok && work->outputs) code = collect(plan, work, work->outputs, err);
    if (code == FCP_OK) code = share_max(work, err);
    if (code == FCP_OK && line->value[OPT_TRACE]) code = fcp_session_timings_collect(work->session, err);
    if (code == FCP_OK && line->value[OPT_TRACE] && work->first == 0)
        code = cmd_trace_measured(line, work->session, &work->trace, err);
    if (code != FCP_OK) return code;
    if (work->processes && work->shape.ranks > 1) snprintf(who, sizeof who, "rank %u: ", wrong_rank);
    for (int t = 0; t < FCP_CHECKS && wrong->code == FCP_OK; t++)
        if (work->report.tensor[t].checked && !work->report.tensor[t].ok) {
            char verdict[400];
            fcp_check_text(plan, (unsigned)t, &work->report.tensor[t], verdict, sizeof verdict);
            fcp_fail(wrong, FCP_E_MISMATCH, "%s%s", who, verdict);
        }
    return FCP_OK;
}

/* Runs all plans on the same inputs, and reports on each. */
static fcp_code run_plans(const cmd_line *line, cmd_input *input, job *work, fcp_error *err) {
    const bool told = work->first == 0;
    fcp_error wrong = {0};
    json j = {0};
    json_object(&j, NULL);
    head_json(&j, work);
    if (input->layer_count) json_array(&j, "layers");
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < cmd_plans(input) && code == FCP_OK; i++) {
        code = run_plan(line, input, i, work, &wrong, err);
        if (code == FCP_OK && wrong.code == FCP_OK && told) code = write_outputs(line, work, err);
        if (code == FCP_OK && told && !line->quiet && !line->json) code = print_text(line, input, i, work, err);
        if (input->layer_count) json_object(&j, NULL);
        if (input->layer_count && code == FCP_OK) code = cmd_layer_json(input, i, &j, err);
        verdict_json(&j, work);
        if (input->layer_count) json_end(&j);
    }
    if (input->layer_count) {
        json_end(&j);
        json_bool(&j, "ok", wrong.code == FCP_OK);
    }
    if (code == FCP_OK && told && line->json) {
        cmd_json_diagnostics(&j, input->diagnostics, wrong.code != FCP_OK ? &wrong : NULL);
        json_end(&j);
        input->json_told = true;
        code = cmd_json_print(&j, err);
    } else json_free(&j);
    if (code == FCP_OK) code = cmd_flush(err);
    if (code != FCP_OK || wrong.code == FCP_OK) return code;
    *err = wrong;
    return wrong.code;
}

static fcp_code run_job(const cmd_line *line, cmd_input *input, job *work, fcp_error *err) {
    bool wanted[FCP_PASSES] = {false};
    fcp_code code = check_options(line, work, wanted, err);
    if (code == FCP_OK) code = cmd_load(line, input, err);
    if (code != FCP_OK) return code;
    if (!input->compiled) code = cmd_check_fields(line, input->plan, err);
    if (code != FCP_OK) return code;
    fcp_plan_shape(input->plan, &work->shape);
    code = find_rank(line, input, work, err);
    if (code == FCP_OK) code = check_named(work, err);
    if (code == FCP_OK) code = settle(line, work, wanted, err);
    if (code == FCP_OK) code = check_files(line, input, work, err);
    if (code == FCP_OK) code = open_shared(line, input->plan, work, err);
    if (code == FCP_OK) code = cmd_check_drawing(line, err);
    if (code == FCP_OK) code = cmd_check_ranks(line, input->plan, err);
    unsigned set = BIT_Q | BIT_K | (work->shape.values_in_keys ? 0 : (unsigned)BIT_V);
    if (work->pass[FCP_BACKWARD]) set |= BIT_DO;
    if (work->pass[FCP_BACKWARD] && work->shape.lse_gradient && (work->drawn || work->inputs & BIT_DLSE))
        set |= BIT_DLSE;
    if (code == FCP_OK) code = get_inputs(line, work, set, err);
    if (code == FCP_OK) code = open_session(line, input, work, err);
    return code == FCP_OK ? run_plans(line, input, work, err) : code;
}

fcp_code cmd_run(const cmd_line *line, cmd_input *input, fcp_error *err) {
    job work = {.report = FCP_CHECK_START};
    /* The host backend has its own threads. OpenBLAS, when it is loaded, would start one more for each processor, and
     * those spin while they wait for work. */
    setenv("OPENBLAS_NUM_THREADS", "1", 0);
    fcp_code code = run_job(line, input, &work, err);
    fcp_session_free(work.session);
    fcp_packed_free(&work.packed);
    text_free(&work.trace);
    free(work.sample);
    free(work.tables);
    return code;
}
