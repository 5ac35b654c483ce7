/* modules.c: kernels of the driver that stands in, before they are launched: modules, what functions take, tensor maps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbols.h"

/* Of three dimensions, packed numbers of 16 bits, at least as strict as the driver. */
API cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *base, const uint64_t *dims, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill) {
    ENTER;
    if (control.major < 9 || (type != CU_TENSOR_FP16 && type != CU_TENSOR_BF16) || rank != 3 || interleave || fill ||
        swizzle != CU_TENSOR_SWIZZLE_128 || promotion < 0 || promotion > CU_TENSOR_L2_256)
        return CU_ERROR_INVALID_VALUE;
    for (int i = 0; i < 3; i++)
        if (steps[i] != 1) return CU_ERROR_INVALID_VALUE;
    const allocation *a = allocation_of((uint64_t)(uintptr_t)base);
    if (!a || (uint64_t)(uintptr_t)base + dims[2] * strides[1] > a->end) trouble("a map of memory that nobody allocated");
    machine_map map = {.base = (uint64_t)(uintptr_t)base, .element = 2, .swizzle = MACHINE_SWIZZLE_128};
    memcpy(map.dims, dims, sizeof map.dims);
    memcpy(map.strides, strides, sizeof map.strides);
    for (int i = 0; i < 3; i++) map.box[i] = box[i];
    return machine_map_encode(out, &map) ? CU_SUCCESS : CU_ERROR_INVALID_VALUE;
}
API cuModuleLoadData(cu_module *out, const void *image) {
    ENTER_OUTSIDE;
    unsigned head_dim = 0, bf16 = 0, score = 0;
    bool probe = !strncmp(image, "#define GPU_CHECK ", 18); /* kernels of gpu-check's own: they do nothing */
    if (strstr(image, "\"prim_sm90_ptx.h\"") && (control.major != 9 || control.minor != 0)) return NO_BINARY;
    if (!current_context() || (!probe && sscanf(image, "#define FK_HEAD_DIM %u #define FK_BF16 %u #define FK_HAS_SCORE %u", &head_dim, &bf16, &score) != 3))
        return CU_ERROR_INVALID_VALUE;
    *out = calloc(1, sizeof **out);
    **out = (struct cu_module_){current_context(), head_dim, bf16, score, strdup(image), NULL};
    control.live++;
    return CU_SUCCESS;
}
API cuModuleUnload(cu_module m) {
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
    const int registers = control.registers ? control.registers : 32;
    (void)f;
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
