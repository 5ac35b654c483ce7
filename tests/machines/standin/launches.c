/* launches.c: the work that is put into streams of the stand-in driver (copies, fills, kernels), and the modules that
 * hold kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/standin/symbols.h"

/* --- work --------------------------------------------------------------------------------------------------------- */

static bool inside(uint64_t p, size_t bytes) {
    const allocation *a = allocation_of(p);
    return a && bytes <= a->end - p;
}
static cu_result copy(cu_stream s, uint64_t to, uint64_t from, size_t bytes) {
    const node n = {.op = COPY, .to = to, .from = from, .bytes = bytes};
    return stream_put(s, &n, 0);
}
/* A copy of pageable memory is refused in a capture. Outside, the call waits until the stream is empty, as the real
 * driver may. */
static cu_result host_copy(cu_stream s, uint64_t host, uint64_t to, uint64_t from, size_t bytes) {
    const allocation *first = allocation_of(host), *last = allocation_of(host + bytes - 1);
    bool pinned = first && first->host && first == last;
    if (!bytes || (first && !first->host)) return CU_ERROR_INVALID_VALUE;
    control.host_copies++;
    if (pinned) return copy(s, to, from, bytes);
    if (in_capture(s)) capture_bad = true;
    if (in_capture(s)) return CAPTURE_UNSUPPORTED;
    control.pageable_copies++;
    copy(s, to, from, bytes);
    store_run(&live, UINT32_MAX);
    if (live.done < live.count) trouble("a copy of memory that is not pinned waits for ever");
    return CU_SUCCESS;
}
API cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes, cu_stream s) {
    ENTER;
    STREAM(s);
    return inside(to, bytes) ? host_copy(s, (uintptr_t)from, to, (uintptr_t)from, bytes) : CU_ERROR_INVALID_VALUE;
}
API cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes, cu_stream s) {
    ENTER;
    STREAM(s);
    return inside(from, bytes) ? host_copy(s, (uintptr_t)to, (uintptr_t)to, from, bytes) : CU_ERROR_INVALID_VALUE;
}
API cuMemcpyDtoDAsync_v2(cu_ptr to, cu_ptr from, size_t bytes, cu_stream s) {
    ENTER;
    STREAM(s);
    if (!inside(to, bytes) || !inside(from, bytes)) return CU_ERROR_INVALID_VALUE;
    control.copies++;
    return copy(s, to, from, bytes);
}
API cuMemcpyPeerAsync(cu_ptr to, cu_context to_context, cu_ptr from, cu_context from_context, size_t bytes,
                      cu_stream s) {
    ENTER;
    STREAM(s);
    if (!inside(to, bytes) || !inside(from, bytes) || allocation_of(to)->context != to_context ||
        allocation_of(from)->context != from_context)
        return CU_ERROR_INVALID_VALUE;
    control.peer_copies++;
    return copy(s, to, from, bytes);
}
API cuMemsetD32Async(cu_ptr to, unsigned word, size_t count, cu_stream s) {
    ENTER;
    STREAM(s);
    if (current != s->context) return INVALID_CONTEXT;
    if (to % 4 || !inside(to, count * 4)) return CU_ERROR_INVALID_VALUE;
    const bool marks = allocation_of(to)->host;
    if (marks && control.marks == MARKS_REFUSED) return NOT_SUPPORTED;
    if (marks && control.marks == MARKS_NOT_CAPTURED && in_capture(s)) {
        capture_bad = true;
        return CAPTURE_UNSUPPORTED;
    }
    const node n = {.op = marks && control.marks == MARKS_LOST ? EMPTY : FILL, .to = to, .bytes = count * 4,
                    .word = word};
    return stream_put(s, &n, 0);
}

API cuStreamWriteValue32_v2(cu_stream s, cu_ptr to, unsigned value, unsigned flags) {
    ENTER;
    STREAM(s);
    if (to % 4 || !inside(to, 4) || flags) return CU_ERROR_INVALID_VALUE;
    const node n = {.op = FILL, .to = to, .bytes = 4, .word = value};
    return stream_put(s, &n, 0);
}

/* Makes a map of four dimensions and packed 16-bit numbers. It is at least as strict as the real driver. */
API cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *base, const uint64_t *dims,
                           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave,
                           int swizzle, int promotion, int fill) {
    ENTER;
    if (control.major < 9 || (type != CU_TENSOR_FP16 && type != CU_TENSOR_BF16) || rank != MACHINE_DIMS || interleave ||
        fill || swizzle != CU_TENSOR_SWIZZLE_128 || promotion < 0 || promotion > CU_TENSOR_L2_256)
        return CU_ERROR_INVALID_VALUE;
    for (int i = 0; i < MACHINE_DIMS; i++)
        if (steps[i] != 1) return CU_ERROR_INVALID_VALUE;
    const allocation *a = allocation_of((uint64_t)(uintptr_t)base);
    if (!current || (a && a->context != current)) return INVALID_CONTEXT; /* the real driver may refuse that, too */
    if (!a || (uint64_t)(uintptr_t)base + (dims[3] - 1) * strides[2] + dims[2] * strides[1] > a->end)
        trouble("a map of memory that nobody allocated");
    machine_map map = {.base = (uint64_t)(uintptr_t)base, .element = 2, .swizzle = MACHINE_SWIZZLE_128};
    memcpy(map.dims, dims, sizeof map.dims);
    memcpy(map.strides, strides, sizeof map.strides);
    for (int i = 0; i < MACHINE_DIMS; i++) map.box[i] = box[i];
    return machine_map_encode(out, &map) ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}
API cuModuleLoadData(cu_module *out, const void *image) {
    ENTER_OUTSIDE;
    unsigned head_dim = 0, value_dim = 0, bf16 = 0, score = 0;
    const char *made_by = strstr(image, "// NVRTC "); /* the last line of what the stand-in for NVRTC makes */
    if (control.newest && made_by && atoi(made_by + 9) > control.newest) return control.newest_with;
    const bool recurrent = !strncmp(image, "#define FK_RECURRENT 1\n", 23);
    bool probe =
        recurrent || !strncmp(image, "#define GPU_CHECK ", 18); /* gpu-check's own kernels, which do nothing here */
    if (strstr(image, "\"prim_sm90_ptx.h\"") && (control.major != 9 || control.minor != 0)) return NO_BINARY;
    const char *form = "#define FK_HEAD_DIM %u #define FK_VALUE_DIM %u #define FK_BF16 %u #define FK_HAS_SCORE %u";
    if (!current || (!probe && sscanf(image, form, &head_dim, &value_dim, &bf16, &score) != 4))
        return CU_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    **out = (struct cu_module_){current, head_dim, value_dim, bf16, score, recurrent, strdup(image), NULL, {0}};
    control.live++;
    return CU_SUCCESS;
}
API cuModuleUnload(cu_module m) {
    module_waits_end(m);
    while (m->functions) {
        cu_function f = m->functions;
        m->functions = f->next;
        free(f);
    }
    free((char *)(uintptr_t)m->text);
    free(m);
    control.live--;
    LEAVE;
}
API cuModuleGetFunction(cu_function *out, cu_module m, const char *name) {
    ENTER;
    cu_function f = calloc(1, sizeof *f);
    f->module = m;
    snprintf(f->name, sizeof f->name, "%s", name);
    if (!kernel_find(f) && (m->head_dim || !strstr(m->text, name))) {
        free(f);
        return NOT_FOUND;
    }
    f->next = m->functions;
    *out = m->functions = f;
    return CU_SUCCESS;
}
API cuFuncGetAttribute(int *out, int which, cu_function f) {
    ENTER;
    const size_t length = strlen(f->name);
    const bool sm90 =
        length > 5 && !strcmp(f->name + length - 5, "_sm90"); /* these begin with all registers that a block can have */
    const int registers = control.registers ? control.registers : sm90 ? 168 : 32;
    switch (which) {
    case CU_FUNC_MAX_THREADS: *out = registers > 0 ? 65536 / registers / 32 * 32 : 0; break;
    case CU_FUNC_SHARED: *out = control.fixed; break;
    case CU_FUNC_LOCAL: *out = control.local; break;
    case CU_FUNC_REGISTERS: *out = registers; break;
    default: return CU_ERROR_INVALID_VALUE;
    }
    return CU_SUCCESS;
}
API cuFuncSetAttribute(cu_function f, int which, int value) {
    ENTER;
    (void)f;
    return which == CU_FUNC_MAX_DYNAMIC_SHARED && value <= control.shared ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, cu_function f, int threads, size_t shared) {
    ENTER;
    *out = 1;
    if (!f->kernel) return CU_SUCCESS;
    if (threads != (int)f->kernel->threads || shared != f->kernel->shared) return CU_ERROR_INVALID_VALUE;
    *out = 2;
    return CU_SUCCESS;
}
API cuLaunchKernel(cu_function f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                   unsigned shared, cu_stream s, void **parameters, void **extra) {
    ENTER;
    STREAM(s);
    node n = {.op = f->kernel ? KERNEL : EMPTY, .function = f, .blocks = x};
    if (!f->kernel) return stream_put(s, &n, 0);
    if (!x || y != 1 || z != 1 || b != 1 || c != 1 || extra || a != f->kernel->threads || shared != f->kernel->shared)
        return CU_ERROR_INVALID_VALUE;
    if (f->module->context != s->context) return INVALID_HANDLE;
    if (current != s->context) return INVALID_CONTEXT;
    if (in_capture(s) && s->green && control.green == GREEN_NO_CAPTURE) {
        capture_bad = true;
        return CAPTURE_UNSUPPORTED;
    }
    if (in_capture(s) && s->green && control.green == GREEN_WRONG) n.op = EMPTY;
    if (!kernel_is_recurrent(&n) && f->parameters == sizeof n.parameters.launch) {
        ++*(s->green ? &control.in_green : &control.out_of_green);
        if (x > control.most_blocks) control.most_blocks = x;
        size_t used = strlen(control.launched);
        if (!strstr(control.launched, f->name))
            snprintf(control.launched + used, sizeof control.launched - used, "%s%s", used ? ", " : "", f->name);
    }
    memcpy(&n.parameters, parameters[0], f->parameters);
    return stream_put(s, &n, 0);
}
