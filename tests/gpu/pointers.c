/* pointers.c: runs passes on device pointers and a caller's stream, as a training loop does. They must give the same
 * bits as on host arrays, which correct.c has shown to be right.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "tests/gpu/gpu.h"

enum { ALL = (1 << FCP_TENSORS) - 1, TEXT = 700, RUNS = 3 };

static const struct { const char *lengths, *small, *mask, *more; unsigned ranks; } programs[] = {
    {"900, 350, 40", "200, 40", "causal", "", 4},
    {"128:900, 1:400 x 9, 300", "30:150, 1:40 x 3", "causal", "; layout = contiguous", 3},
    {"700, 500", "150, 130", "window(w = 100)", "; score = softcap; layout = zigzag", 2},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static void program(const gpu *g, int i, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = %s }\ncluster { nodes = 1; gpus = %u }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = 128; passes = forward, backward%s }\n",
             g->small ? 2 : 4, g->small ? 1 : 2, g->small ? 16 : 128, i % 2 ? "fp16" : "bf16",
             g->small ? 2 : programs[i].ranks, g->small ? programs[i].small : programs[i].lengths, programs[i].mask,
             programs[i].more);
}

void gpu_measured_pointers(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    char text[TEXT];
    for (int i = 0; i < PROGRAMS; i++) {
        program(g, i, text);
        if (!each(g, text, context)) return;
    }
}

/* A tensor between the packed batch and the ranks' memory. */
static bool move(measured *m, fcp_packed *packed, fcp_tensor t, bool in, char why[GPU_WHY]) {
    gpu *g = m->g;
    const bool keys = fcp_tensor_of_keys(t);
    size_t row = fcp_tensor_token_bytes(&m->shape, t);
    for (uint32_t r = 0; r < m->shape.ranks; r++) {
        const fcp_tensors *x = &m->tensors[r];
        const void *const all[FCP_TENSORS] = {
#define X(id, member, kind) x->member,
            FCP_TENSOR_LIST(X)
#undef X
        };
        fcp_layout_at walk = {0};
        fcp_span span;
        cu_ptr at = (cu_ptr)(uintptr_t)all[t];
        while (keys ? fcp_plan_layout_keys(m->plan, r, &walk, &span) : fcp_plan_layout(m->plan, r, &walk, &span)) {
            uint64_t n, first = keys ? fcp_plan_key_offset(m->plan, span.sequence, &n)
                                     : fcp_plan_sequence_offset(m->plan, span.sequence, &n);
            char *host = (char *)packed->t[t] + (first + span.start) * row;
            size_t bytes = span.length * row;
            cu_result result = in ? g->cuda->call.copy_in(at, host, bytes, g->stream)
                                  : g->cuda->call.copy_out(host, at, bytes, g->stream);
            if (!gpu_ok(g, result, why, "cannot copy a tensor")) return false;
            at += bytes;
        }
    }
    return gpu_ok(g, g->cuda->call.stream_wait(g->stream), why, "cannot copy a tensor");
}

/* A pass on host arrays, whose results stay in `packed`, and then several times on device pointers. */
static bool compare(measured *m, fcp_pass pass, fcp_packed *packed, fcp_packed *other, char why[GPU_WHY]) {
    fcp_error err;
    bool good = true;
    if (fcp_session_run_packed(m->session, m->plan, pass, packed, NULL, &err)) {
        snprintf(why, GPU_WHY, "%.390s", err.message);
        return false;
    }
    for (int t = 0; good && t < FCP_TENSORS; t++)
        if ((fcp_pass_inputs(pass) | (pass == FCP_BACKWARD ? gpu_outputs(FCP_FORWARD) : 0)) >> t & 1)
            good = move(m, packed, (fcp_tensor)t, true, why);
    for (int run = 0; good && run < RUNS; run++) {
        for (int t = 0; good && t < FCP_TENSORS; t++) { /* nothing of an earlier run is left */
            uint64_t dims[3];
            if (!(gpu_outputs(pass) >> t & 1)) continue;
            fcp_tensor_shape(&m->shape, (fcp_tensor)t, dims);
            memset(other->t[t], 0xff, dims[0] * fcp_tensor_token_bytes(&m->shape, (fcp_tensor)t));
            good = move(m, other, (fcp_tensor)t, true, why);
        }
        if (good && fcp_session_run_on(m->session, pass, m->tensors, m->g->stream, &err)) {
            snprintf(why, GPU_WHY, "%.390s", err.message);
            good = false;
        }
        for (int t = 0; good && t < FCP_TENSORS; t++) {
            uint64_t dims[3];
            if (!(gpu_outputs(pass) >> t & 1)) continue;
            fcp_tensor_shape(&m->shape, (fcp_tensor)t, dims);
            good = move(m, other, (fcp_tensor)t, false, why);
            if (!good || !memcmp(other->t[t], packed->t[t], dims[0] * fcp_tensor_token_bytes(&m->shape, (fcp_tensor)t)))
                continue;
            snprintf(why, GPU_WHY, "run %d on device pointers gives another %s than on host arrays", run + 1,
                     fcp_tensor_name((fcp_tensor)t));
            good = false;
        }
    }
    return good;
}

gpu_result step_pointers(gpu *g, char why[GPU_WHY]) {
    for (int i = 0; i < PROGRAMS; i++) {
        measured m = {0};
        fcp_packed packed = {0}, other = {0};
        fcp_error err = {.message = ""};
        char text[TEXT];
        program(g, i, text);
        bool good = measured_open(g, text, true, &m, why);
        if (good) {
            if (g->control) g->control->idle = false;
            good = !fcp_packed_alloc(&m.shape, ALL, &packed, &err) && !fcp_packed_alloc(&m.shape, ALL, &other, &err);
            if (!good) snprintf(why, GPU_WHY, "%.390s", err.message);
        }
        if (good) fcp_packed_draw(&m.shape, ALL, (uint64_t)i + 9, &packed);
        for (int pass = 0; good && pass < FCP_PASSES; pass++) good = compare(&m, (fcp_pass)pass, &packed, &other, why);
        fcp_packed_free(&packed);
        fcp_packed_free(&other);
        measured_close(&m);
        if (!good) return GPU_FAILED;
    }
    snprintf(why, GPU_WHY, "%d plans, both passes: the same bits as on host arrays", PROGRAMS);
    return GPU_OK;
}
