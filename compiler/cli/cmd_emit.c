/* cmd_emit.c: `fcpc emit PLAN [--arch A [--source | --cost]] [--backward KERNELS] [--fuse pass] [-o F]`: prints the
 * CUDA source of a plan's kernels, or compiles it to a cubin, or prints what a step of each kernel costs. A cubin needs
 * NVRTC, and costs need nvdisasm too. Nothing here needs a GPU. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/plan/enum_names.h"
#include "runtime/worklists/fuse.h"
#include "runtime/jit/jit.h"
#include "runtime/jit/kernel_source.h"
#include "compiler/cli/cmd.h"
#include "compiler/cli/emit_cost.h"
#include "compiler/show/model.h"

typedef struct emission {
    unsigned passes, skeletons, backward;
    char *source;
    const char *arch; /* the one of --arch; NULL: none was given */
    bool compiled;    /* the output is a cubin, not the source */
    bool costs;       /* the output is what the cubin's steps cost */
    bool fused;       /* all ATTENDs of a pass are one launch where possible */
    fcp_fusion_totals totals[FCP_PASSES]; /* launches and state of fused passes, if costs are asked for */
    fcp_jit *jit;
    fcp_cubin cubin;
    cost_report report;
    bool cached;
    double seconds;
    emit_kernel kernels[EMIT_KERNELS]; /* the kernels that the skeletons contain */
    uint32_t kernel_count;
} emission;

static fcp_code wanted_passes(const cmd_line *line, const fcp_plan *plan, unsigned *out, fcp_error *err) {
    const char *typed = line->value[OPT_PASS];
    *out = plan->problem->passes;
    if (!typed || strcmp(typed, "forward,backward") == 0 || strcmp(typed, "backward,forward") == 0) {
        if (typed) *out = 1u << FCP_FORWARD | 1u << FCP_BACKWARD;
        return FCP_OK;
    }
    *out = 0;
    for (int p = 0; p < FCP_PASSES; p++)
        if (strcmp(typed, fcp_pass_names[p]) == 0) *out = 1u << p;
    if (!*out)
        return fcp_fail(err, FCP_E_USAGE, "--pass is forward, backward or forward,backward, not '%.100s'", typed);
    return FCP_OK;
}

static const struct {
    const char *name;
    unsigned skeletons; /* the one for sm_90a and the one on mma.sync */
} backwards[] = {{"ordered", EMIT_ORDERED | EMIT_ORDERED_SM90},
                 {"unordered", EMIT_UNORDERED | EMIT_UNORDERED_SM90},
                 {"split", EMIT_SPLIT}};
enum { BACKWARDS = sizeof backwards / sizeof *backwards };

/* The skeletons that --backward names; 0: the plan's own. */
static fcp_code wanted_backward(const cmd_line *line, unsigned *out, fcp_error *err) {
    const char *typed = line->value[OPT_BACKWARD], *pass = line->value[OPT_PASS];
    *out = 0;
    if (!typed) return FCP_OK;
    if (pass && strcmp(pass, fcp_pass_names[FCP_FORWARD]) == 0)
        return fcp_fail(err, FCP_E_USAGE, "--backward names kernels of the backward pass, and --pass leaves it out");
    for (int i = 0; i < BACKWARDS; i++)
        if (strcmp(backwards[i].name, typed) == 0) *out = backwards[i].skeletons;
    return *out ? FCP_OK : fcp_fail(err, FCP_E_USAGE, "--backward is ordered, unordered or split, not '%.100s'", typed);
}

/* The passes that --fuse pass can fuse: a backward pass of two kernels is not one of them. */
static unsigned fused_passes(const emission *e) {
    return e->fused ? e->passes & ~(e->backward & EMIT_JOINT ? 0u : 1u << FCP_BACKWARD) : 0;
}

/* An error if --fuse pass is given and there is no pass that it can fuse. */
static fcp_code check_fused(const emission *e, fcp_error *err) {
    if (!e->fused || fused_passes(e)) return FCP_OK;
    return fcp_fail(err, FCP_E_USAGE,
                    "--fuse pass: the backward pass is two kernels here, which are always computed by stages, and "
                    "--pass leaves out the forward pass");
}

static fcp_code make_source(const fcp_plan *plan, bool mma_sync, emission *e, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    bool sm_90a = e->arch && strcmp(e->arch, "sm_90a") == 0 && !mma_sync;
    if (e->backward && !(p->passes & 1u << FCP_BACKWARD))
        return fcp_fail(err, FCP_E_PASS, "the plan has no backward pass");
    /* on sm_90a, ordered and unordered are that architecture's own skeletons if it has them for this head_dim */
    bool there = emit_backward(p->head_dim, p->value_dim, true, sm_90a) & EMIT_BACKWARD_SM90;
    if (e->backward & EMIT_BACKWARD_SM90) e->backward &= there ? EMIT_BACKWARD_SM90 : ~(unsigned)EMIT_BACKWARD_SM90;
    if (!e->backward) e->backward = emit_backward(p->head_dim, p->value_dim, p->deterministic, sm_90a);
    const uint32_t most = e->arch ? emit_shared_most(e->arch) : 0; /* 0: an architecture that is not known */
    if (most) /* the runtime chooses in the same way (runtime/cuda/devices.c) */
        e->backward = emit_backward_within(p->head_dim, p->value_dim, plan->score_count != 0, e->backward, most);
    if (!(e->passes & 1u << FCP_BACKWARD)) e->backward = 0;
    const unsigned tables = e->backward && fcp_kernel_sums(plan) ? EMIT_TABLES : 0;
    const unsigned wire = p->wire == FCP_BF16 ? EMIT_WIRE : 0;
    const fcp_code code = check_fused(e, err);
    if (code) return code;
    const unsigned forward = e->passes & 1u << FCP_FORWARD ? emit_forward(p->head_dim, p->value_dim, sm_90a) : 0;
    e->skeletons = forward | e->backward | tables | EMIT_SUPPORT | wire;
    return fcp_kernel_source(plan, e->skeletons, e->fused, &e->source, err);
}

static fcp_code compile(emission *e, fcp_error *err) {
    double start = cmd_now();
    fcp_code code = fcp_jit_open(NULL, &e->jit, err);
    cmd_doing("compiling kernels");
    /* line numbers of the source change no instruction */
    static const char *const lines[] = {"--generate-line-info", NULL};
    if (code == FCP_OK)
        code = fcp_jit_compile(e->jit, "fcpc.cu", e->source, e->arch, e->costs ? lines : NULL, &e->cubin, &e->cached,
                               err);
    cmd_done();
    e->seconds = cmd_now() - start;
    return code;
}

static void free_emission(emission *e) {
    cost_free(&e->report);
    fcp_cubin_free(&e->cubin);
    fcp_jit_close(e->jit);
    free(e->source);
}

/* Reads what a step of each kernel costs. If passes are fused, the same is done for kernels that compute stage by
 * stage, into *stages, so that the two can be compared. */
static fcp_code read_costs(const fcp_plan *plan, bool mma_sync, emission *e, emission *stages, fcp_error *err) {
    fcp_code code = cost_of_cubin(e->arch, e->source, &e->cubin, &e->report, err);
    if (code || !e->fused) return code;
    *stages = (emission){.passes = fused_passes(e), .arch = e->arch, .compiled = true, .costs = true};
    if (stages->passes & 1u << FCP_BACKWARD) stages->backward = e->backward;
    code = make_source(plan, mma_sync, stages, err);
    if (!code) code = compile(stages, err);
    for (int p = 0; p < FCP_PASSES && !code; p++)
        if (stages->passes >> p & 1) code = fcp_fusion_count(plan, (fcp_pass)p, &e->totals[p], err);
    return code ? code : cost_of_cubin(stages->arch, stages->source, &stages->cubin, &stages->report, err);
}

static const fcp_kernel_cost *cost_of(const emission *e, const char *name) {
    for (uint32_t i = 0; i < e->cubin.kernel_count; i++)
        if (strcmp(e->cubin.kernels[i].name, name) == 0) return &e->cubin.kernels[i];
    return NULL;
}

static void print_text(const emission *e) {
    for (uint32_t i = 0; i < e->kernel_count; i++) {
        const emit_kernel *k = &e->kernels[i];
        const fcp_kernel_cost *c = cost_of(e, k->name);
        if (!c) continue;
        fprintf(stderr,
                "%-19s %3" PRIu32 " registers of %3" PRIu32 ", %" PRIu32 " threads, %" PRIu32
                " bytes of shared memory, %" PRIu32 " bytes spilled", k->name, c->registers, k->registers, k->threads,
                k->shared + c->shared, c->spill_stores + c->spill_loads);
        uint32_t resident = emit_resident(e->arch, k->threads, c->registers, k->shared + c->shared);
        if (resident) fprintf(stderr, ", %" PRIu32 " block%s a multiprocessor", resident, resident == 1 ? "" : "s");
        fputc('\n', stderr);
    }
    fprintf(stderr, "%s, %zu bytes, %s in %.3f s\n", e->arch, e->cubin.size, e->cached ? "from the cache" : "compiled",
            e->seconds);
}

static fcp_code print_json(const cmd_input *input, const emission *e, const emission *stages, bool with_source,
                           fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    json_array(&j, "passes");
    for (int p = 0; p < FCP_PASSES; p++)
        if (e->passes & 1u << p) json_string(&j, NULL, fcp_pass_names[p]);
    json_end(&j);
    for (int i = 0; i < BACKWARDS; i++)
        if (backwards[i].skeletons & e->backward) json_string(&j, "backward", backwards[i].name);
    char packing[SHOW_SENTENCE];
    json_string(&j, "short_queries", show_packing(input->plan, packing) ? packing : NULL);
    json_u64(&j, "source_bytes", strlen(e->source));
    json_string(&j, "arch", e->arch);
    json_array(&j, "kernels");
    for (uint32_t i = 0; i < e->kernel_count; i++) {
        const emit_kernel *k = &e->kernels[i];
        const fcp_kernel_cost *c = cost_of(e, k->name);
        json_object(&j, NULL);
        json_string(&j, "name", k->name);
        if (e->costs) cost_json(&j, &e->report, k->name);
        json_u64(&j, "threads", k->threads);
        json_u64(&j, "shared_bytes", k->shared + (c ? c->shared : 0));
        json_u64(&j, "registers_budget", k->registers);
        if (c) {
            json_u64(&j, "registers", c->registers);
            json_u64(&j, "spill_bytes", c->spill_stores + c->spill_loads);
            json_u64(&j, "stack_bytes", c->stack);
            json_u64(&j, "barriers", c->barriers);
            uint32_t resident = emit_resident(e->arch, k->threads, c->registers, k->shared + c->shared);
            if (resident) json_u64(&j, "blocks_per_multiprocessor", resident);
            else json_null(&j, "blocks_per_multiprocessor");
        }
        json_end(&j);
    }
    json_end(&j);
    if (stages->costs) {
        const cost_stages by = {stages->passes, &stages->report, &stages->cubin, e->totals};
        cost_json_stages(&j, input->plan, &by);
    }
    if (e->compiled) {
        json_u64(&j, "cubin_bytes", e->cubin.size);
        json_u64(&j, "serialisation_notes", e->cubin.notes);
        json_bool(&j, "cached", e->cached);
        json_double(&j, "seconds", e->seconds);
        json_string(&j, "cache_warning", *fcp_jit_warning(e->jit) ? fcp_jit_warning(e->jit) : NULL);
    }
    if (with_source) json_string(&j, "source", e->source);
    return cmd_json_finish(&j, input->diagnostics, FCP_OK, err);
}

/* Reads the options that can be checked without the plan. */
static fcp_code read_line(const cmd_line *line, emission *e, fcp_error *err) {
    fcp_fuse fuse = FCP_FUSE_STAGES;
    e->arch = line->value[OPT_ARCH];
    fcp_code code = wanted_backward(line, &e->backward, err);
    if (code == FCP_OK && e->arch) code = fcp_arch_check(e->arch, err);
    if (code == FCP_OK) code = cmd_fuse(line, &fuse, err);
    e->fused = fuse == FCP_FUSE_PASS;
    e->compiled = e->arch && !line->value[OPT_SOURCE];
    e->costs = line->value[OPT_COST] != NULL;
    if (code == FCP_OK && e->costs && !e->compiled)
        code = fcp_fail(err, FCP_E_USAGE, "--cost reads machine code: it needs --arch, and no --source");
    if (code == FCP_OK && e->compiled && !e->costs && !line->value[OPT_OUTPUT] && !line->json && isatty(STDOUT_FILENO))
        code = fcp_fail(err, FCP_E_USAGE, "a cubin is no text: name a file for it with -o");
    return code;
}

/* Writes or prints what has been made. */
static fcp_code write_result(const cmd_line *line, const cmd_input *input, emission *e, const emission *stages,
                             fcp_error *err) {
    const char *path = line->value[OPT_OUTPUT];
    const cost_stages by = {stages->passes, &stages->report, &stages->cubin, e->totals};
    text table = {0};
    if (e->costs) cost_table(e->arch, input->plan, &e->report, &e->cubin, stages->costs ? &by : NULL, &table);
    fcp_code code = table.failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
    const fcp_problem *p = input->plan->problem;
    e->kernel_count =
        emit_kernels_of(p->head_dim, p->value_dim, input->plan->score_count != 0, e->skeletons, e->kernels);
    const void *bytes = e->costs ? table.at : e->compiled ? e->cubin.bytes : e->source;
    size_t size = e->costs ? table.size : e->compiled ? e->cubin.size : strlen(e->source);
    if (e->compiled && *fcp_jit_warning(e->jit) && !line->quiet)
        fprintf(stderr, "fcpc: warning: %s\n", fcp_jit_warning(e->jit));
    if (code == FCP_OK && path) code = cmd_file_write(path, bytes, size, err);
    else if (code == FCP_OK && !line->json) fwrite(bytes, 1, size, stdout);
    text_free(&table);
    if (code == FCP_OK && e->compiled && !e->costs && !line->quiet) print_text(e);
    if (code != FCP_OK) return code;
    return line->json ? print_json(input, e, stages, !e->compiled && !path, err) : cmd_flush(err);
}

static fcp_code emit_all(const cmd_line *line, cmd_input *input, emission *e, emission *stages, fcp_error *err) {
    const bool mma_sync = line->value[OPT_MMA_SYNC] != NULL;
    fcp_code code = read_line(line, e, err);
    if (code == FCP_OK) code = cmd_load(line, input, err);
    if (code == FCP_OK) code = wanted_passes(line, input->plan, &e->passes, err);
    if (code == FCP_OK) code = make_source(input->plan, mma_sync, e, err);
    if (code == FCP_OK && e->compiled) code = compile(e, err);
    if (code == FCP_E_COMPILE && e->cubin.log && !line->quiet) fputs(e->cubin.log, stderr);
    if (code == FCP_OK && e->costs) code = read_costs(input->plan, mma_sync, e, stages, err);
    return code == FCP_OK ? write_result(line, input, e, stages, err) : code;
}

fcp_code cmd_emit_kernels(const cmd_line *line, cmd_input *input, fcp_error *err) {
    emission e = {0}, stages = {0};
    fcp_code code = emit_all(line, input, &e, &stages, err);
    free_emission(&e);
    free_emission(&stages);
    return code;
}
