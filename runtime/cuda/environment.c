/* environment.c: what masks and scores read on a device: sequences, fields, slices, sinks. It is one allocation. It
 * also has room for sinks and tables that a run brings, for gradients of sinks, and for the largest logits (sinks.c,
 * cuda_tables.c, maxima.c).
 *
 * Requires: open devices.
 * Cost:     a copy of the plan's fields and slices on each device.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/plan_arrays.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

size_t fcp_cuda_sink_sums_size(const fcp_plan *plan) { return aligned(plan->sink_count * sizeof(float)); }
size_t fcp_cuda_maxima_size(const fcp_plan *plan) { return aligned(plan->problem->heads * sizeof(float)); }

/* Where each part begins. Parts stand in this order, each aligned. */
struct parts {
    size_t sequences, arrays, bands, sinks, plan_sinks, sink_sums, maxima, data, plan_tables, band_rows, band, size;
};
static struct parts parts_of(const fcp_plan *plan, uint32_t ranks) {
    struct parts x = {0};
    size_t at = 0;
    x.sequences = at, at += aligned(plan->sequences_count * sizeof(fk_sequence));
    x.arrays = at, at += aligned(plan->sequences_count * plan->arrays_count * sizeof(fk_u64));
    x.bands = at, at += aligned(plan->slices_count * sizeof(fk_bands));
    x.sinks = at, at += aligned(fcp_launch_sink_count(plan) * sizeof(float));
    x.plan_sinks = at, at += aligned(fcp_launch_sink_count(plan) * sizeof(float));
    x.sink_sums = at, at += ranks * fcp_cuda_sink_sums_size(plan);
    x.maxima = at, at += ranks * fcp_cuda_maxima_size(plan);
    x.data = at, at += aligned(plan->data_count);
    x.plan_tables = at, at += aligned(fcp_plan_table_numbers(plan) * sizeof(float));
    x.band_rows = at, at += aligned(plan->band_rows_count * sizeof(mc_band_rows));
    x.band = at, at += aligned(plan->bands_count * sizeof(mc_band));
    x.size = at;
    return x;
}
size_t fcp_cuda_environment_size(const fcp_plan *plan, uint32_t ranks) { return parts_of(plan, ranks).size; }

static void put(char *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

/* The tables of reals among the arrays at `data`, one behind the other. */
static void put_tables(const fcp_plan *plan, const char *data, char *to) {
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        const size_t bytes = fcp_array_bytes(a) / sizeof(double) * sizeof(float);
        if (!fcp_array_learnable(a)) continue;
        put(to, data + a->offset, bytes);
        to += bytes;
    }
}

fcp_code fcp_cuda_environment_load(fcp_cuda_session *s, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    struct parts x = parts_of(plan, s->base.rank_count);
    char *bytes = calloc(1, x.size + ALIGN);
    if (!bytes) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu bytes of fields", x.size);
    fcp_code code = FCP_OK;
    fcp_launch_sequences(plan, (fk_sequence *)(void *)(bytes + x.sequences));
    fcp_launch_sinks(plan, (float *)(void *)(bytes + x.sinks));
    fcp_launch_sinks(plan, (float *)(void *)(bytes + x.plan_sinks));
    fcp_launch_data(plan, bytes + x.data);
    put_tables(plan, bytes + x.data, bytes + x.plan_tables);
    put(bytes + x.band_rows, plan->band_rows, plan->band_rows_count * sizeof *plan->band_rows);
    put(bytes + x.band, plan->bands, plan->bands_count * sizeof *plan->bands);
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        code = fcp_cuda_keep(s, d, fcp_cuda_allocated(x.size), NULL, "fields", &d->environment, err);
        if (code) break;
        const cu_ptr at = d->environment.at;
        fcp_launch_arrays(plan, at + x.data, (fk_u64 *)(void *)(bytes + x.arrays));
        fcp_launch_bands(plan, at + x.band_rows, at + x.band, (fk_bands *)(void *)(bytes + x.bands));
        d->sequences = at + x.sequences;
        d->arrays = at + x.arrays;
        d->bands = at + x.bands;
        d->sinks = plan->sink_count ? at + x.sinks : 0;
        d->plan_sinks = at + x.plan_sinks;
        d->sink_sums = at + x.sink_sums;
        d->maxima = at + x.maxima;
        d->data = at + x.data;
        d->plan_tables = at + x.plan_tables;
        d->own_sinks = d->own_tables = false;
        if (x.size) code = fcp_cuda_upload(s, d, at, bytes, x.size, err);
    }
    free(bytes);
    return code;
}
