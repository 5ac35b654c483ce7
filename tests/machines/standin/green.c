/* green.c: green contexts of the stand-in driver: the SMs of a device, sets of them, contexts and streams.
 *
 * Like the real driver it rounds the sizes of sets up (control.alignment), wants streams to end before their context,
 * and counts objects. control.green says what is to go wrong.
 */
#include <stdlib.h>

#include "tests/machines/standin/parts.h"

struct cu_green_ {
    cu_context context;
    uint32_t streams;
};
struct cu_resource_text_ {
    unsigned count;
};

#define API cu_result
API cuDeviceGetDevResource(cu_device d, cu_resource *out, int type);
API cuDevSmResourceSplitByCount(cu_resource *parts, unsigned *count, const cu_resource *all, cu_resource *rest,
                                unsigned flags, unsigned least);
API cuDevResourceGenerateDesc(cu_resource_text *out, cu_resource *all, unsigned count);
API cuGreenCtxCreate(cu_green *out, cu_resource_text text, cu_device d, unsigned flags);
API cuGreenCtxDestroy(cu_green g);
API cuGreenCtxStreamCreate(cu_stream *out, cu_green g, unsigned flags, int priority);
/* Makes the compiler check that the functions have the types that callers think they have. */
typedef struct green_table {
#define X(symbol, type) type;
    FCP_CUDA_OPTIONAL(X)
} green_table;
#undef X
static const green_table table __attribute__((unused)) = {
#define X(symbol, type) symbol,
    FCP_CUDA_OPTIONAL(X)
#undef X
};
static struct cu_resource_text_ last_text;

API cuDeviceGetDevResource(cu_device d, cu_resource *out, int type) {
    if (injected()) return control.fail_with;
    if (d < 0 || d >= control.devices || type != CU_RESOURCE_SM) return CU_ERROR_INVALID_VALUE;
    *out = (cu_resource){.type = CU_RESOURCE_SM, .count = MULTIPROCESSORS, .least = 1, .alignment = 1};
    return CU_SUCCESS;
}

API cuDevSmResourceSplitByCount(cu_resource *parts, unsigned *count, const cu_resource *all, cu_resource *rest,
                                unsigned flags, unsigned least) {
    unsigned step = control.alignment ? control.alignment : 1, size = (least + step - 1) / step * step;
    if (injected()) return control.fail_with;
    if (flags || rest || *count != 1 || all->type != CU_RESOURCE_SM || !least || size > all->count)
        return CU_ERROR_INVALID_VALUE;
    *parts = *all;
    parts->count = size;
    return CU_SUCCESS;
}

API cuDevResourceGenerateDesc(cu_resource_text *out, cu_resource *all, unsigned count) {
    if (injected()) return control.fail_with;
    if (count != 1 || all->type != CU_RESOURCE_SM) return CU_ERROR_INVALID_VALUE;
    last_text.count = all->count;
    *out = &last_text;
    return CU_SUCCESS;
}

API cuGreenCtxCreate(cu_green *out, cu_resource_text text, cu_device d, unsigned flags) {
    if (injected()) return control.fail_with;
    if (!text || flags != CU_GREEN_DEFAULT_STREAM) return CU_ERROR_INVALID_VALUE;
    if (control.green == GREEN_REFUSED) return NOT_SUPPORTED;
    *out = calloc(1, sizeof **out);
    (*out)->context = context_of(d);
    control.live++;
    control.green_size = text->count;
    return CU_SUCCESS;
}

API cuGreenCtxDestroy(cu_green g) {
    if (g->streams) trouble("a green context is ended before its %u streams", g->streams);
    free(g);
    control.live--;
    return injected() ? control.fail_with : CU_SUCCESS;
}

API cuGreenCtxStreamCreate(cu_stream *out, cu_green g, unsigned flags, int priority) {
    if (injected()) return control.fail_with;
    if (flags != CU_STREAM_NON_BLOCKING || priority > 0 || priority < -5) return CU_ERROR_INVALID_VALUE;
    *out = stream_new(g->context, g);
    g->streams++;
    return CU_SUCCESS;
}

void green_stream_ends(cu_green g) { g->streams--; }
