/* cmd_doctor.c: `fcpc doctor`: says what this machine has for each use of fcpc and what it lacks, as people paste it
 * into bug reports. Each library is loaded as the command that uses it would load it, so that doctor and `run` never differ.
 *
 * Cost: half a second, most of it for Python; where NVRTC is, up to a second more the first time, for it compiles.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/source.h"
#include "compiler/cli/doctor.h"
#include "runtime/host/blas.h"
#include "runtime/jit/disassemble.h"
#include "runtime/jit/jit.h"
#include "runtime/jit/kernel_source.h"
#include "runtime/libraries/cuda_driver.h"
#include "runtime/libraries/mpi.h"
#include "runtime/libraries/nccl.h"
#include "runtime/plan/plan.h"

static const struct {
    const char *name, *words;
} uses[DOCTOR_USES_COUNT] = {
#define X(id, name, words) {name, words},
    DOCTOR_USES(X)
#undef X
};

void doctor_add(doctor_report *r, const doctor_part *part) {
    if (r->count < DOCTOR_PARTS) r->part[r->count++] = *part;
}

/* Adds a part that is there if `code` is FCP_OK. */
static void add(doctor_report *r, doctor_part *part, fcp_code code) {
    part->there = code == FCP_OK;
    if (part->there) part->why = (fcp_error){0};
    else *part->version = *part->file = 0;
    doctor_add(r, part);
}

/* --- the processor ------------------------------------------------------------------------------------------------ */

enum { HEADS = 2, HEAD_DIM = 64, LENGTH = 256 };

/* A plan of the smallest kind that both backends have kernels for. */
static fcp_code small_plan(const char *dtype, fcp_plan **out, fcp_error *err) {
    char source[300];
    snprintf(source, sizeof source,
             "model { heads = %d; head_dim = %d; dtype = %s }\ncluster { gpus = 2 }\nbatch { lengths = [%d] }\n"
             "plan { mask = causal; block = 128; strategy = fcp; layout = planned; passes = forward }",
             HEADS, HEAD_DIM, dtype, LENGTH);
    const fcpc_options options = FCPC_OPTIONS_INIT;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_code code = d ? fcpc_parse_text("doctor", source, strlen(source), &options, d, &program) : FCP_E_NO_MEMORY;
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, out);
    if (code) cmd_first_error(d, code, err);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

/* Runs a plan with all values 1. Whatever queries and keys are, attention then is 1. */
static fcp_code run_small(fcp_error *err) {
    enum { RANKS = 2 };
    const size_t rows = (size_t)LENGTH * HEADS, size = rows * HEAD_DIM;
    fcp_plan *plan = NULL;
    fcp_session *session = NULL;
    fcp_tensors tensors[RANKS] = {0};
    float *memory = malloc(sizeof *memory * RANKS * (4 * size + rows));
    fcp_code code = memory ? small_plan("fp32", &plan, err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    for (size_t r = 0; r < RANKS && memory; r++) {
        float *at = memory + r * (4 * size + rows);
        for (size_t i = 0; i < 4 * size; i++) at[i] = i / size == 2 ? 1.0f : (float)(i * 2654435761u % 1000) / 1000.0f;
        tensors[r] =
            (fcp_tensors){.q = at, .k = at + size, .v = at + 2 * size, .o = at + 3 * size, .lse = at + 4 * size};
    }
    if (!code) code = fcp_session_create(plan, NULL, &session, err);
    if (!code) code = fcp_session_run(session, FCP_FORWARD, tensors, err);
    for (uint32_t r = 0; r < RANKS && !code; r++) {
        const float *o = tensors[r].o;
        const uint64_t numbers = fcp_plan_rank_queries(plan, r) * HEADS * HEAD_DIM;
        for (uint64_t i = 0; i < numbers && !code; i++)
            if (!(o[i] > 0.9999f && o[i] < 1.0001f))
                code = fcp_fail(err, FCP_E_MISMATCH, "attention over values that are all 1 gave %g: please report it",
                                (double)o[i]);
    }
    fcp_session_free(session);
    fcp_plan_free(plan);
    free(memory);
    return code;
}

static void look_host(doctor_report *r) {
    doctor_part blas = {.use = DOCTOR_HOST, .name = "OpenBLAS", .needed = true}, small = blas;
    fcp_code code = fcp_blas_load(&blas.why);
    if (!code) {
        const char *config = fcp_blas_config();
        snprintf(blas.version, sizeof blas.version, "%s", strncmp(config, "OpenBLAS ", 9) ? config : config + 9);
        snprintf(blas.file, sizeof blas.file, "%s", fcp_blas_file());
    }
    add(r, &blas, code);
    if (code) return;
    small.name = "a small plan";
    snprintf(small.version, sizeof small.version, "runs on 2 ranks, and its result is right");
    add(r, &small, run_small(&small.why));
}

/* --- GPUs --------------------------------------------------------------------------------------------------------- */

/* Compiles the small plan's kernels for `arch`. */
static fcp_code compile_small(fcp_jit *jit, const char *arch, fcp_error *err) {
    fcp_plan *plan = NULL;
    char *source = NULL;
    fcp_cubin cubin = {0};
    bool cached;
    fcp_code code = small_plan("bf16", &plan, err);
    const unsigned skeletons = emit_forward(HEAD_DIM, HEAD_DIM, !strcmp(arch, "sm_90a")) | EMIT_SUPPORT;
    if (!code) code = fcp_kernel_source(plan, skeletons, false, &source, err);
    if (!code) code = fcp_jit_compile(jit, "doctor.cu", source, arch, NULL, &cubin, &cached, err);
    fcp_cubin_free(&cubin);
    free(source);
    fcp_plan_free(plan);
    return code;
}

static void look_kernels(doctor_report *r, const char *arch, int driver) {
    doctor_part kernels = {.use = DOCTOR_CUDA, .name = "kernels", .needed = true};
    fcp_jit *jit = NULL;
    fcp_code code = fcp_jit_open(NULL, &jit, &kernels.why);
    if (!code) {
        fcp_jit_set_driver(jit, driver);
        cmd_doing("compiling kernels");
        code = compile_small(jit, arch, &kernels.why);
        cmd_done();
    }
    snprintf(kernels.version, sizeof kernels.version, "compile for %s", arch);
    add(r, &kernels, code);
    fcp_jit_close(jit);
}

/* The architecture that kernels are compiled for on a device; false: the driver does not say it. */
static bool device_arch(const fcp_cuda *cuda, cu_device device, char out[16]) {
    int major = 0, minor = 0;
    if (cuda->call.device_attribute(&major, CU_CAPABILITY_MAJOR, device) ||
        cuda->call.device_attribute(&minor, CU_CAPABILITY_MINOR, device))
        return false;
    snprintf(out, 16, "sm_%d%d%s", major, minor, major == 9 && minor == 0 ? "a" : "");
    return true;
}

enum { DEVICES_SHOWN = 8, ARCHS = 4 };

/* Adds the driver and its devices, and collects their architectures. Returns the version of CUDA that the driver is
 * for; 0: there is none. */
static int look_driver(doctor_report *r, char archs[ARCHS][16], size_t *count) {
    doctor_part driver = {.use = DOCTOR_CUDA, .name = "CUDA driver", .needed = true};
    fcp_cuda *cuda = NULL;
    fcp_code code = fcp_cuda_open(&cuda, &driver.why);
    if (!code) {
        snprintf(driver.version, sizeof driver.version, "for CUDA %d.%d, %d GPU%s", cuda->version / 1000,
                 cuda->version % 1000 / 10, cuda->devices, text_plural((uint64_t)cuda->devices));
        snprintf(driver.file, sizeof driver.file, "%s", cuda->path);
    }
    add(r, &driver, code);
    if (code) return 0;
    for (int i = 0; i < cuda->devices; i++) {
        doctor_part gpu = {.use = DOCTOR_CUDA, .name = "GPU", .needed = true};
        char name[128] = "", arch[16] = "";
        int processors = 0;
        cu_device device = 0;
        code = fcp_cuda_check(cuda, cuda->call.device_get(&device, i), &gpu.why, "GPU %d cannot be used", i);
        if (!code)
            code = fcp_cuda_check(cuda, cuda->call.device_name(name, sizeof name, device), &gpu.why,
                                  "GPU %d does not say what it is", i);
        if (!code) cuda->call.device_attribute(&processors, CU_MULTIPROCESSORS, device);
        if (!code && device_arch(cuda, device, arch)) code = fcp_arch_check(arch, &gpu.why);
        snprintf(gpu.version, sizeof gpu.version, "%d: %s, %s, %d multiprocessors", i, name, arch, processors);
        if (i < DEVICES_SHOWN || code) add(r, &gpu, code);
        bool known = code || !*arch;
        for (size_t a = 0; a < *count; a++) known = known || !strcmp(archs[a], arch);
        if (!known && *count < ARCHS) strcpy(archs[(*count)++], arch);
    }
    const int version = cuda->version;
    fcp_cuda_close(cuda);
    return version;
}

static void look_cuda(doctor_report *r) {
    char archs[ARCHS][16] = {"sm_90a"};
    size_t count = 0;
    const int driver = look_driver(r, archs, &count);
    doctor_part nvrtc = {.use = DOCTOR_CUDA, .name = "NVRTC", .needed = true}, cache = {.use = DOCTOR_CUDA};
    const fcp_nvrtc_choice choice = {.cuda = (unsigned)driver / 1000};
    fcp_nvrtc *n = NULL;
    fcp_code code = fcp_nvrtc_open(&choice, &n, &nvrtc.why);
    if (!code) {
        snprintf(nvrtc.version, sizeof nvrtc.version, "%d.%d", n->major, n->minor);
        snprintf(nvrtc.file, sizeof nvrtc.file, "%s", n->path);
    }
    fcp_nvrtc_close(n);
    add(r, &nvrtc, code);
    for (size_t a = 0; !code && a < (count ? count : 1); a++) look_kernels(r, archs[a], driver);
    fcp_jit *jit = NULL;
    cache.name = "kernel cache";
    code = fcp_jit_open(NULL, &jit, &cache.why);
    if (!code && !fcp_jit_folder(jit))
        code = fcp_fail(&cache.why, FCP_E_WRITE,
                        "%s; kernels are compiled in every run: chmod 700 the folder, or name "
                        "another in FCP_CACHE",
                        fcp_jit_warning(jit));
    if (!code) {
        snprintf(cache.version, sizeof cache.version, "yours alone");
        snprintf(cache.file, sizeof cache.file, "%s", fcp_jit_folder(jit));
    }
    add(r, &cache, code);
    fcp_jit_close(jit);
}

/* --- other libraries ---------------------------------------------------------------------------------------------- */

/* Whether a use works: all that it needs is there. *why: the first thing that is missing; NULL: nothing is. */
static bool works(const doctor_report *r, doctor_use use, const fcp_error **why) {
    *why = NULL;
    for (size_t i = 0; i < r->count && !*why; i++)
        if (r->part[i].use == use && r->part[i].needed && !r->part[i].there) *why = &r->part[i].why;
    return !*why;
}

static void look_nccl(doctor_report *r) {
    doctor_part gpus = {.use = DOCTOR_NCCL, .name = "GPUs", .needed = true};
    const fcp_error *why;
    if (!works(r, DOCTOR_CUDA, &why))
        add(r, &gpus, fcp_fail(&gpus.why, why->code, "running plans on GPUs does not work here, see above"));
    doctor_part part = {.use = DOCTOR_NCCL, .name = "NCCL", .needed = true};
    fcp_nccl *nccl = NULL;
    const fcp_code code = fcp_nccl_open(&nccl, &part.why);
    if (!code) {
        snprintf(part.version, sizeof part.version, "%d.%d.%d", nccl->version / 10000, nccl->version / 100 % 100,
                 nccl->version % 100);
        snprintf(part.file, sizeof part.file, "%s", nccl->path);
    }
    fcp_nccl_close(nccl);
    add(r, &part, code);
}

static void look_mpi(doctor_report *r) {
    doctor_part part = {.use = DOCTOR_MPI, .name = "MPI", .needed = true};
    char version[FCP_MPI_VERSION], *file = NULL;
    const fcp_code code = fcp_mpi_look(version, &file, &part.why);
    if (!code) {
        snprintf(part.version, sizeof part.version, "%s", version);
        snprintf(part.file, sizeof part.file, "%s", file);
    }
    free(file);
    add(r, &part, code);
}

static void look_tools(doctor_report *r) {
    doctor_part png = {.use = DOCTOR_PNG, .name = "librsvg", .needed = true};
    doctor_part cost = {.use = DOCTOR_COST, .name = "nvdisasm", .needed = true};
    char file[FCP_DISASSEMBLER_PATH] = "", version[CMD_PNG_VERSION] = "";
    fcp_code code = cmd_png_version(version, &png.why);
    snprintf(png.version, sizeof png.version, "%s", version);
    add(r, &png, code);
    code = fcp_disassembler_find(file, &cost.why);
    snprintf(cost.file, sizeof cost.file, "%.299s", file);
    add(r, &cost, code);
}

/* --- the report --------------------------------------------------------------------------------------------------- */

static void print_part(text *out, const doctor_part *p) {
    text_printf(out, "  %-3s %-16s ", p->there ? "ok" : p->needed ? "NO" : "-", p->name);
    if (p->there) text_printf(out, "%s%s%s\n", p->version, *p->version && *p->file ? ", " : "", p->file);
    else text_printf(out, "[%s] %s\n", fcp_code_name(p->why.code), p->why.message);
}

static void print_text(const doctor_report *r, text *out) {
    const fcp_error *why;
    text_printf(out, "fcpc %s, plan files of version %d\n%s\n%s\n", FCPC_VERSION, FCP_PLAN_VERSION, r->system,
                r->processors);
    for (int u = 0; u < DOCTOR_USES_COUNT; u++) {
        text_printf(out, "\n%s: %s\n", uses[u].words, works(r, (doctor_use)u, &why) ? "works" : "does not work here");
        for (size_t i = 0; i < r->count; i++)
            if ((int)r->part[i].use == u) print_part(out, &r->part[i]);
    }
}

static void make_json(const doctor_report *r, json *j) {
    const fcp_error *why;
    json_object(j, NULL);
    json_string(j, "version", FCPC_VERSION);
    json_u64(j, "plan_version", FCP_PLAN_VERSION);
    json_string(j, "system", r->system);
    json_string(j, "processors", r->processors);
    json_array(j, "uses");
    for (int u = 0; u < DOCTOR_USES_COUNT; u++) {
        json_object(j, NULL);
        json_string(j, "use", uses[u].name);
        json_bool(j, "works", works(r, (doctor_use)u, &why));
        json_array(j, "parts");
        for (size_t i = 0; i < r->count; i++) {
            const doctor_part *p = &r->part[i];
            if ((int)p->use != u) continue;
            json_object(j, NULL);
            json_string(j, "name", p->name);
            json_bool(j, "there", p->there);
            json_bool(j, "needed", p->needed);
            json_string(j, "version", p->there ? p->version : NULL);
            json_string(j, "file", *p->file ? p->file : NULL);
            json_string(j, "code", p->there ? NULL : fcp_code_name(p->why.code));
            json_string(j, "message", p->there ? NULL : p->why.message);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_end(j);
}

fcp_code cmd_doctor(const cmd_line *line, cmd_input *input, fcp_error *err) {
    doctor_report *r = calloc(1, sizeof *r);
    if (!r) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    doctor_machine(r);
    look_host(r);
    look_cuda(r);
    look_nccl(r);
    look_mpi(r);
    doctor_python(r);
    look_tools(r);
    const fcp_error *why;
    json j = {0};
    text report = {0};
    fcp_code code;
    works(r, DOCTOR_HOST, &why);
    if (line->json) {
        make_json(r, &j);
        cmd_json_diagnostics(&j, NULL, why);
        json_end(&j);
        code = cmd_json_print(&j, err);
        input->json_told = true;
    } else {
        print_text(r, &report);
        code = cmd_text_print(&report, stdout, FCP_OK, err);
    }
    if (!code && why) {
        code = why->code;
        if (err) *err = *why;
    }
    free(r);
    return code;
}
