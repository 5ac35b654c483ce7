/* launch.c: the parameters of a launch, and the mask's environment on the device.
 *
 * Requires: a verified plan; an arena as fcp_arena_lay gives it.
 * Gives:    the functions of worklists.h for ranges of heads, sinks, launch parameters, tensors and the environment.
 * Cost:     fcp_launch_next_range: linear in the visits. What fills the environment: linear in the records it fills.
 */
#include <string.h>

#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/worklists/worklists.h"

/* --- ranges of heads ---------------------------------------------------------------------------------------------- */

uint32_t fcp_launch_next_range(const fcp_plan *plan, uint32_t first, uint32_t count, uint32_t after) {
    uint32_t next = FCP_NONE, from = after == FCP_NONE ? 0 : after + 1;
    for (uint32_t v = first; v < first + count; v++) {
        uint32_t range = plan->blocks[plan->visits[v].q_block].heads;
        if (range >= from && range < next) next = range;
    }
    return next;
}

size_t fcp_launch_sink_count(const fcp_plan *plan) {
    return plan->sink_count ? (size_t)plan->heads_count * plan->problem->range_kv * plan->problem->range_sub : 0;
}

void fcp_launch_sinks(const fcp_plan *plan, float *out) {
    const fcp_problem *p = plan->problem;
    for (uint64_t i = 0; plan->sink_count && i < plan->heads_count; i++)
        for (uint32_t h = 0; h < p->range_kv * p->range_sub; h++)
            *out++ = (float)plan->sink[fcp_model_head(p, &plan->heads[i], h)];
}

fk_u64 fcp_launch_sinks_of(const fcp_plan *plan, fk_u64 sinks, uint32_t range) {
    const fcp_problem *p = plan->problem;
    return plan->sink_count ? sinks + (fk_u64)range * p->range_kv * p->range_sub * sizeof(float) : 0;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

void fcp_launch_parameters(const fcp_arena *a, uint32_t range, fk_launch *out) {
    const fcp_problem *p = a->plan->problem;
    bool backward = a->pass == FCP_BACKWARD;
    *out = (fk_launch){.arena = (uintptr_t)a->k,
                       .q = (uintptr_t)a->q,
                       .o = (uintptr_t)a->o,
                       .lse = (uintptr_t)a->lse,
                       .lse_low = (uintptr_t)a->lse_low,
                       .d_o = backward ? (uintptr_t)a->d_o : 0,
                       .delta = backward ? (uintptr_t)a->delta : 0,
                       .dq = backward ? (uintptr_t)a->dq : 0,
                       .heads = a->heads,
                       .kv_heads = a->kv_heads,
                       .group = a->heads / a->kv_heads,
                       .head_count = a->kv_heads,
                       .max_block = p->max_q_block,
                       .scale = (float)p->scale,
                       .scale_log2 = (float)(p->scale * 1.4426950408889634074),
                       .unscale = (float)(1 / p->scale),
                       .model_head = fcp_model_head(p, &a->plan->heads[range], 0),
                       .shared = p->heads / p->kv_heads};
}

/* A tensor of `slots` slots of rows that lie next to each other. A slot begins slot_bytes after the one before; 0:
 * right behind its rows. */
static fcp_launch_tensor tensor(const fcp_arena *a, const void *at, uint64_t rows, uint32_t heads, uint32_t numbers,
                                uint64_t slots, uint64_t slot_bytes) {
    const uint64_t number = fcp_dtype_size((fcp_dtype)a->plan->problem->dtype), row = number * heads * numbers;
    return (fcp_launch_tensor){.address = (uintptr_t)at,
                               .rows = slots ? rows : 0,
                               .slots = slots,
                               .heads = heads,
                               .numbers = numbers,
                               .strides = {numbers * number, row, slot_bytes ? slot_bytes : rows * row}};
}

void fcp_launch_tensors(const fcp_arena *a, fcp_launch_tensor out[FCP_LAUNCH_TENSORS]) {
    const fcp_problem *p = a->plan->problem;
    const uint32_t d = p->head_dim, v = p->value_dim;
    const uint64_t queries = fcp_arena_row(a, a->homes + (uint32_t)a->slots.count[FCP_Q]);
    const uint64_t keys = a->home_first[FCP_KEYS][a->homes], moved = a->slots.count[FCP_KV], size = p->max_block;
    const uint64_t row = a->kv_heads * fcp_dtype_size((fcp_dtype)p->dtype), slot = size * row * (d + v);
    const fcp_launch_tensor all[FCP_LAUNCH_TENSORS] = {
        tensor(a, a->q, queries, a->heads, d, 1, 0),
        tensor(a, a->d_o, a->pass == FCP_BACKWARD ? queries : 0, a->heads, v, 1, 0),
        tensor(a, a->k, keys, a->kv_heads, d, 1, 0),
        tensor(a, a->v, keys, a->kv_heads, v, 1, 0),
        tensor(a, a->kv, size, a->kv_heads, d, moved, slot),
        tensor(a, a->kv + size * row * d, size, a->kv_heads, v, moved, slot)};
    memcpy(out, all, sizeof all);
}

void fcp_launch_maps(const fk_launch *launch, const fk_map maps[FCP_LAUNCH_TENSORS], fk_launch_maps *out) {
    *out = (fk_launch_maps){.launch = *launch, .q = maps[0], .d_o = maps[1], .k = maps[2], .v = maps[3],
                            .moved_k = maps[4], .moved_v = maps[5]};
}

void fcp_launch_sequences(const fcp_plan *plan, fk_sequence *out) {
    for (uint32_t i = 0; i < plan->sequences_count; i++) {
        const fcp_sequence *s = &plan->sequences[i];
        out[i] = (fk_sequence){.n = (fk_i64)s->keys, .q_first = s->q_first, .queries = (fk_i64)s->queries};
    }
}

void fcp_launch_arrays(const fcp_plan *plan, uint64_t data, fk_u64 *out) {
    for (uint32_t s = 0; s < plan->sequences_count; s++)
        for (uint64_t i = 0; i < plan->arrays_count; i++) {
            const fcp_array *a = &plan->arrays[i];
            const uint64_t bytes = a->width == MC_F64 ? sizeof(float) : a->width;
            *out++ = data + a->offset + fcp_array_start(plan, i, s) * bytes;
        }
}

void fcp_launch_data(const fcp_plan *plan, void *out) {
    if (plan->data_count) memcpy(out, plan->data, plan->data_count);
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        uint64_t count = fcp_array_bytes(a) / sizeof(double);
        for (uint64_t j = 0; a->width == MC_F64 && j < count; j++) {
            double value;
            memcpy(&value, (const char *)plan->data + a->offset + j * sizeof value, sizeof value);
            float small = (float)value;
            memcpy((char *)out + a->offset + j * sizeof small, &small, sizeof small);
        }
    }
}

void fcp_launch_bands(const fcp_plan *plan, uint64_t band_rows, uint64_t bands, fk_bands *out) {
    for (uint64_t i = 0; i < plan->slices_count; i++) {
        const fcp_slices *s = &plan->slices[i];
        out[i] = (fk_bands){.rows = band_rows + s->first_row * sizeof(mc_band_rows),
                            .bands = bands + s->first_band * sizeof(mc_band),
                            .row_count = s->rows,
                            .band_count = s->bands};
    }
}
