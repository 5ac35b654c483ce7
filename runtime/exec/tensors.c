/* tensors.c: sizes, memory and random numbers of the tensors of attention (tensors.h).
 *
 * Cost:   linear in the tensors.
 * Source: random numbers are splitmix64 (Steele, Lea, Flood) of a counter, so that each can be made on its own.
 */
#include "runtime/exec/tensors.h"

#include <stdlib.h>

#include "runtime/base/numeric.h"

static const char *const names[FCP_TENSORS] = {
    [FCP_TENSOR_Q] = "q",   [FCP_TENSOR_K] = "k",     [FCP_TENSOR_V] = "v",
    [FCP_TENSOR_O] = "o",   [FCP_TENSOR_LSE] = "lse", [FCP_TENSOR_DO] = "do",
    [FCP_TENSOR_DQ] = "dq", [FCP_TENSOR_DK] = "dk",   [FCP_TENSOR_DV] = "dv",
    [FCP_TENSOR_LSE_LOW] = "lse_low", [FCP_TENSOR_DLSE] = "dlse"};
static const char kinds[FCP_TENSORS] = {
#define X(id, member, kind) [FCP_TENSOR_##id] = kind,
    FCP_TENSOR_LIST(X)
#undef X
};

enum {
    BIT_QKV = 1 << FCP_TENSOR_Q | 1 << FCP_TENSOR_K | 1 << FCP_TENSOR_V,
    BIT_OUT = 1 << FCP_TENSOR_O | 1 << FCP_TENSOR_LSE,
    BIT_GRADIENTS = 1 << FCP_TENSOR_DQ | 1 << FCP_TENSOR_DK | 1 << FCP_TENSOR_DV
};

void *fcp_tensors_get(const fcp_tensors *x, fcp_tensor t) {
    switch (t) {
#define X(id, member, kind)                                                                                            \
    case FCP_TENSOR_##id: return (void *)(uintptr_t)x->member;
        FCP_TENSOR_LIST(X)
#undef X
    default: return NULL;
    }
}

void fcp_tensors_set(fcp_tensors *x, fcp_tensor t, void *data) {
    switch (t) {
#define X(id, member, kind)                                                                                            \
    case FCP_TENSOR_##id: x->member = data; return;
        FCP_TENSOR_LIST(X)
#undef X
    default: return;
    }
}

const char *fcp_tensors_name(fcp_tensor t) {
    static const char *const members[] = {
#define X(id, member, kind) #member,
        FCP_TENSOR_LIST(X)
#undef X
    };
    return (unsigned)t < FCP_TENSORS ? members[t] : "?";
}

uint64_t fcp_tensors_tokens(const fcp_plan *plan, uint32_t rank, fcp_tensor t) {
    return fcp_tensor_of_keys(t) ? fcp_plan_rank_keys(plan, rank) : fcp_plan_rank_queries(plan, rank);
}

const char *fcp_tensor_name(fcp_tensor t) { return (unsigned)t < FCP_TENSORS ? names[t] : "?"; }

uint32_t fcp_tensor_shape(const fcp_shape *shape, fcp_tensor t, uint64_t out_shape[3]) {
    const uint32_t v = shape->values_in_keys ? 0 : shape->value_dim;
    out_shape[0] = fcp_tensor_of_keys(t) ? shape->key_tokens : shape->tokens;
    out_shape[1] = fcp_tensor_of_keys(t) ? shape->kv_heads : shape->heads;
    out_shape[2] = kinds[t] == 'l' ? 1 : kinds[t] == 'v' ? v : kinds[t] == 'o' ? shape->value_dim : shape->head_dim;
    return kinds[t] == 'l' ? 2 : 3;
}

fcp_dtype fcp_tensor_dtype(const fcp_shape *shape, fcp_tensor t) { return kinds[t] == 'l' ? FCP_FP32 : shape->dtype; }

size_t fcp_tensor_token_bytes(const fcp_shape *shape, fcp_tensor t) {
    uint64_t dims[3];
    fcp_tensor_shape(shape, t, dims);
    return (size_t)(dims[1] * dims[2]) * fcp_dtype_size(fcp_tensor_dtype(shape, t));
}

unsigned fcp_pass_inputs(fcp_pass pass) {
    return pass == FCP_FORWARD ? BIT_QKV : BIT_QKV | BIT_OUT | 1 << FCP_TENSOR_DO;
}
unsigned fcp_pass_outputs(fcp_pass pass) { return pass == FCP_FORWARD ? BIT_OUT : BIT_GRADIENTS; }
unsigned fcp_pass_optional(const fcp_shape *shape, fcp_pass pass) {
    return 1u << FCP_TENSOR_LSE_LOW | (unsigned)(pass == FCP_BACKWARD && shape->lse_gradient) << FCP_TENSOR_DLSE;
}

size_t fcp_packed_bytes(const fcp_shape *shape, fcp_tensor t) {
    size_t bytes;
    uint64_t dims[3];
    fcp_tensor_shape(shape, t, dims);
    return __builtin_mul_overflow((size_t)dims[0], fcp_tensor_token_bytes(shape, t), &bytes) ? SIZE_MAX : bytes;
}

bool fcp_tensor_of_keys(fcp_tensor t) { return kinds[t] == 'k' || kinds[t] == 'v'; }

fcp_code fcp_packed_alloc(const fcp_shape *shape, unsigned set, fcp_packed *packed, fcp_error *err) {
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (!(set >> t & 1) || packed->t[t]) continue;
        size_t bytes = fcp_packed_bytes(shape, (fcp_tensor)t);
        packed->t[t] = bytes < SIZE_MAX / 2 ? malloc(bytes ? bytes : 1) : NULL;
        if (!packed->t[t])
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory: tensor %s has %zu bytes", names[t], bytes);
    }
    return FCP_OK;
}

void fcp_packed_free(fcp_packed *packed) {
    for (int t = 0; t < FCP_TENSORS; t++) {
        free(packed->t[t]);
        packed->t[t] = NULL;
    }
    float **const once[] = {&packed->max_logit, &packed->d_sink, &packed->d_table};
    for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
        free(*once[i]);
        *once[i] = NULL;
    }
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The sum of four uniform numbers of 16 bits, shifted and scaled to mean 0 and variance 1. */
static float draw(uint64_t key, uint64_t index) {
    uint64_t x = mix(key + index * 0xd1342543de82ef95u);
    int32_t sum =
        (int32_t)(x & 0xffff) + (int32_t)(x >> 16 & 0xffff) + (int32_t)(x >> 32 & 0xffff) + (int32_t)(x >> 48);
    return (float)(sum - 131070) * (1.7320508f / 65536);
}

void fcp_packed_draw(const fcp_shape *shape, unsigned set, uint64_t seed, fcp_packed *packed) {
    enum { CHUNK = 512 };
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (!(set >> t & 1) || !packed->t[t] || t == FCP_TENSOR_LSE || t == FCP_TENSOR_LSE_LOW) continue;
        const fcp_dtype dtype = fcp_tensor_dtype(shape, (fcp_tensor)t);
        size_t e = fcp_dtype_size(dtype);
        uint64_t key = mix(seed) ^ mix((uint64_t)t + 1), count = fcp_packed_bytes(shape, (fcp_tensor)t) / e;
        for (uint64_t i = 0; i < count; i += CHUNK) {
            float chunk[CHUNK];
            uint32_t n = count - i < CHUNK ? (uint32_t)(count - i) : CHUNK;
            for (uint32_t j = 0; j < n; j++) chunk[j] = draw(key, i + j);
            fcp_from_float(dtype, chunk, (char *)packed->t[t] + i * e, n);
        }
    }
}
