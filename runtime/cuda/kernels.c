/* kernels.c: compiles, loads and checks the kernels of a session on each device.
 *
 * Requires: open devices.
 * Cost:     kernels come from the disk cache, or are compiled once for each architecture, those of the two passes
 *           side by side.
 */
#include "runtime/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/jit/kernel_source.h"

/* Keeps the first warning only. */
static void warn(fcp_cuda_session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(fcp_cuda_session *s, const char *format, ...) {
    va_list args;
    if (s->warning[0]) return;
    va_start(args, format);
    vsnprintf(s->warning, sizeof s->warning, format, args);
    va_end(args);
}

/* Compares what the driver says of a kernel with what its skeleton asks for. More registers or shared memory are an
 * error. Spilled registers give right results slowly, so they are a warning. In kernels whose warpgroups pass registers
 * to each other (setmaxnreg), fewer registers are an error, too: a warpgroup would wait for ever for registers that do
 * not exist. */
static fcp_code check_kernel(fcp_cuda_session *s, const cuda_device *d, const cuda_kernel *k, const emit_kernel *asked,
                             fcp_error *err) {
    static const int which[] = {CU_FUNC_MAX_THREADS, CU_FUNC_SHARED, CU_FUNC_LOCAL, CU_FUNC_REGISTERS};
    int says[4] = {0};
    fcp_code code = FCP_OK;
    for (int i = 0; !code && i < 4; i++)
        code = fcp_cuda_check(s->cuda, s->cuda->call.function_attribute(&says[i], which[i], k->function), err,
                              "the driver does not say what %s takes", asked->name);
    if (code) return code;
    if (says[3] > (int)asked->registers || says[0] < (int)asked->threads)
        return fcp_fail(
            err, FCP_E_COMPILE,
            "%s takes %d registers a thread on device %d (%s), of %u that it may, and runs %d threads a CTA, of %u; "
            "another NVRTC (FCP_NVRTC) would do",
            asked->name, says[3], d->handle, d->name, asked->registers, says[0], asked->threads);
    if (asked->maps && says[3] < (int)asked->registers)
        return fcp_fail(
            err, FCP_E_COMPILE,
            "%s begins with %d registers a thread on device %d (%s), and its warpgroups share out %u, which they "
            "would wait for; another NVRTC (FCP_NVRTC), or the kernels for mma.sync, would do",
            asked->name, says[3], d->handle, d->name, asked->registers);
    if (says[1] > d->shared - (int)k->shared)
        return fcp_fail(err, FCP_E_COMPILE,
                        "%s takes %d bytes of shared memory on device %d (%s) beside its %u, which has %d", asked->name,
                        says[1], d->handle, d->name, k->shared, d->shared);
    if (says[2])
        warn(s, "%s keeps %d bytes a thread in local memory on device %d (%s), which costs time: another NVRTC "
                "(FCP_NVRTC) may not",
             asked->name, says[2], d->handle, d->name);
    return FCP_OK;
}

static fcp_code find_kernel(fcp_cuda_session *s, cuda_device *d, cu_module module, cuda_kernel_id id,
                            const emit_kernel *asked, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_kernel *k = &d->kernels[id];
    int ctas = 0;
    *k = (cuda_kernel){NULL, asked->name, asked->threads, asked->shared, asked->parts, asked->maps, 0};
    if (k->shared > (uint32_t)d->shared)
        return fcp_fail(
            err, FCP_E_BACKEND,
            "device %d (%s) gives a CTA %d bytes of shared memory; %s needs %u: another GPU, or a smaller head_dim, "
            "would do",
            d->handle, d->name, d->shared, asked->name, k->shared);
    fcp_code code = fcp_cuda_check(s->cuda, call->module_function(&k->function, module, asked->name), err,
                                   "the kernels have no %s", asked->name);
    if (!code) code = check_kernel(s, d, k, asked, err);
    if (!code && k->shared)
        code = fcp_cuda_check(s->cuda, call->function_set(k->function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)k->shared), err,
                              "%s cannot have %u bytes of shared memory", asked->name, k->shared);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->occupancy(&ctas, k->function, (int)k->threads, k->shared), err,
                              "the driver does not say how many CTAs of %s fit", asked->name);
    if (!code && ctas < 1)
        code = fcp_fail(err, FCP_E_BACKEND, "no CTA of %s fits on device %d (%s)", asked->name, d->handle, d->name);
    k->resident = code ? 0 : (uint32_t)ctas;
    return code;
}

static fcp_code find_kernels(fcp_cuda_session *s, cuda_device *d, cu_module module, unsigned skeletons,
                             fcp_error *err) {
    static const char *const names[CUDA_KERNELS] = {[CUDA_FORWARD] = "fk_forward",
                                                    [CUDA_DKV] = "fk_backward_dkv",
                                                    [CUDA_DQ] = "fk_backward_dq",
                                                    [CUDA_ORDERED] = "fk_backward_ordered",
                                                    [CUDA_UNORDERED] = "fk_backward_unordered",
                                                    [CUDA_TABLES] = "fk_backward_tables",
                                                    [CUDA_BEGIN_LSE] = "fk_begin_lse",
                                                    [CUDA_DELTA] = "fk_delta",
                                                    [CUDA_ADD] = "fk_add",
                                                    [CUDA_ROUND] = "fk_round",
                                                    [CUDA_MERGE] = "fk_merge",
                                                    [CUDA_STATE_OUT] = "fk_state_out",
                                                    [CUDA_FOLD_SINKS] = "fk_fold_sinks",
                                                    [CUDA_GATHER] = "fk_gather",
                                                    [CUDA_COMBINE] = "fk_combine",
                                                    [CUDA_ROUND_SUMS] = "fk_round_sums",
                                                    [CUDA_NARROW] = "fk_narrow",
                                                    [CUDA_WIDEN] = "fk_widen",
                                                    [CUDA_ROWS_MOVE] = "fk_rows_move",
                                                    [CUDA_ROWS_ADD] = "fk_rows_add",
                                                    [CUDA_SCAN_SCALED] = "fk_scan_scaled",
                                                    [CUDA_SCAN_MATRIX] = "fk_scan_matrix"};
    static const unsigned sm90[CUDA_KERNELS] = {
        [CUDA_FORWARD] = EMIT_FORWARD_SM90, [CUDA_ORDERED] = EMIT_ORDERED_SM90,
        [CUDA_UNORDERED] = EMIT_UNORDERED_SM90}; /* of an architecture's own kernel, which has another name */
    emit_kernel asked[EMIT_KERNELS];
    const fcp_problem *p = s->plan->problem;
    uint32_t count = emit_kernels_of(p->head_dim, p->value_dim, s->plan->score_count != 0, skeletons, asked);
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < count; i++)
        for (int id = 0; !code && id < CUDA_KERNELS; id++)
            if (strcmp(names[id], asked[i].name) == 0 || asked[i].skeleton == sm90[id])
                code = find_kernel(s, d, module, (cuda_kernel_id)id, &asked[i], err);
    return code;
}

/* The skeletons in the module of a pass, or in CUDA_RECURRENT. The small kernels that both passes need are always in
 * the module of the forward pass, so that the source of a pass does not depend on whether there is the other one. */
static unsigned skeletons_of(const fcp_cuda_session *s, const cuda_device *d, int pass) {
    if (pass == CUDA_RECURRENT) return s->plan->recurrent_count ? EMIT_RECURRENT : 0;
    bool has = s->plan->problem->passes >> pass & 1;
    const unsigned wire = s->plan->problem->wire == FCP_BF16 ? EMIT_WIRE : 0;
    if (pass == FCP_FORWARD) return EMIT_SUPPORT | wire | (has ? d->forward : 0);
    return has ? d->backward | (s->sums ? EMIT_TABLES : 0) : 0;
}

/* Does a driver that fails to load a module with this result say that it does not know the cubin's form? So it fails
 * for what an NVRTC compiled that is newer than itself. */
static bool form_unknown(cu_result result) {
    return result == CU_ERROR_INVALID_IMAGE || result == CU_ERROR_NO_BINARY || result == CU_ERROR_UNSUPPORTED_PTX;
}

/* Loads the module of a pass, in the place of an earlier one. *refused: the driver does not know the cubin's form. */
static fcp_code load_module(fcp_cuda_session *s, cuda_device *d, int pass, const char *arch, const fcp_cubin *cubin,
                            bool *refused, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    free(d->sources[pass]);
    d->sources[pass] = NULL;
    cu_module before = d->modules[pass];
    d->modules[pass] = NULL; /* even if unloading fails, it is not unloaded again */
    fcp_code code = !before ? FCP_OK
                            : fcp_cuda_check(s->cuda, call->module_unload(before), err,
                                             "device %d does not give kernels up", d->handle);
    if (code) return code;
    const cu_result result = call->module_load(&d->modules[pass], cubin->bytes);
    *refused = form_unknown(result);
    code =
        fcp_cuda_check(s->cuda, result, err,
                       "device %d does not take the kernels compiled for %s; the driver is for CUDA %d.%d, and what "
                       "a later NVRTC compiles may be too new for it: install NVRTC %d (FCP_NVRTC names its file), "
                       "or a newer driver",
                       d->handle, arch, s->cuda->version / 1000, s->cuda->version % 1000 / 10, s->cuda->version / 1000);
    return code ? code : find_kernels(s, d, d->modules[pass], skeletons_of(s, d, pass), err);
}

/* Compiles and loads the kernels of a device that are not loaded yet. *refused: as in load_module. */
static fcp_code load_once(fcp_cuda_session *s, fcp_jit *jit, cuda_device *d, bool *refused, fcp_error *err) {
    fcp_jit_part parts[CUDA_MODULES] = {{.source = NULL}};
    char arch[32], *sources[CUDA_MODULES] = {NULL};
    int passes[CUDA_MODULES];
    uint32_t count = 0;
    fcp_code code = FCP_OK;
    fcp_cuda_arch(d, arch);
    for (int pass = 0; !code && pass < CUDA_MODULES; pass++) {
        unsigned skeletons = skeletons_of(s, d, pass);
        char *source = NULL;
        if (!skeletons) continue;
        code = pass == CUDA_RECURRENT
                   ? fcp_kernel_source_recurrent(&source, err)
                   : fcp_kernel_source(s->plan, skeletons, fcp_cuda_fused(s, (fcp_pass)pass), &source, err);
        if (code) break;
        if (d->modules[pass] && d->sources[pass] && strcmp(d->sources[pass], source) == 0) {
            free(source);
            continue;
        }
        sources[count] = source;
        parts[count].source = source;
        passes[count++] = pass;
    }
    if (!code && count) code = fcp_jit_compile_parts(jit, "fcpc.cu", arch, NULL, parts, count, err);
    if (*fcp_jit_warning(jit)) warn(s, "%s", fcp_jit_warning(jit));
    if (!code && count) code = fcp_cuda_use(s, d, err);
    for (uint32_t i = 0; !code && i < count; i++) {
        code = load_module(s, d, passes[i], arch, &parts[i].cubin, refused, err);
        if (code) break;
        d->sources[passes[i]] = sources[i];
        sources[i] = NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        fcp_cubin_free(&parts[i].cubin);
        free(sources[i]);
    }
    return code;
}

/* The same. If the driver does not know the form of what one NVRTC compiles, another one compiles, for as long as there
 * is another; if none is left that compiles, the error is the driver's. */
static fcp_code load_kernels(fcp_cuda_session *s, fcp_jit *jit, cuda_device *d, fcp_error *err) {
    bool refused = false;
    fcp_code code = load_once(s, jit, d, &refused, err);
    while (refused) {
        fcp_error other = {0};
        refused = false;
        if (!fcp_jit_refused(jit, &other)) break;
        fcp_code again = load_once(s, jit, d, &refused, &other);
        if (again == FCP_E_COMPILE || again == FCP_E_BACKEND) continue;
        code = again;
        *err = other;
    }
    return code;
}

fcp_code fcp_cuda_launch(const fcp_cuda_session *s, const cuda_device *d, cuda_kernel_id id, uint64_t work,
                         uint32_t sms, cu_stream stream, void *parameters, fcp_error *err) {
    const cuda_kernel *k = &d->kernels[id];
    const uint64_t most = (uint64_t)k->resident * sms;
    const unsigned ctas = (unsigned)(work < most ? work : most);
    void *list[] = {parameters};
    if (!work) return FCP_OK;
    return fcp_cuda_check(
        s->cuda, s->cuda->call.launch(k->function, ctas, 1, 1, k->threads, 1, 1, k->shared, stream, list, NULL), err,
        "%s of %u CTAs cannot be launched", k->name, ctas);
}

fcp_code fcp_cuda_kernels_load(fcp_cuda_session *s, fcp_error *err) {
    fcp_jit *jit = NULL;
    fcp_code code = fcp_jit_open(NULL, &jit, err);
    if (code) return code;
    fcp_jit_set_driver(jit, s->cuda->version);
    for (uint32_t i = 0; !code && i < s->device_count; i++) code = load_kernels(s, jit, &s->devices[i], err);
    fcp_jit_close(jit);
    return code;
}
