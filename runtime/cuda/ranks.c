/* ranks.c: what the ranks of this process have on their devices: arenas, work lists, locks, streams.
 *
 * Requires: open devices.
 * Cost:     for each rank an arena of as many bytes as fcp_rank_memory says, work lists as long as the plan's cells,
 *           and four streams, two of them for marks; six if it has transfers over two fabrics.
 */
#include "runtime/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/host_reshuffle.h"
#include "runtime/exec/segments.h"
#include "runtime/jit/kernel_source.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/fabrics.h"

enum { ARENA_ALIGN = 64, NOWHERE = 4096 };

/* Counts memory that a device will need, `held` bytes of which it has already. If those are enough they stay,
 * otherwise they are freed before. */
static void count_memory(cuda_device *d, size_t bytes, size_t held) {
    d->need.device += bytes > held ? bytes : held;
    d->need.held += held;
}

/* Lays out a rank's slots and makes its work lists, in an arena that has no address yet. */
static fcp_code plan_rank(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    const fcp_homes *h = &s->homes[index];
    fcp_code code = FCP_OK;
    r->device = &s->devices[(index - s->base.first_rank) % s->device_count];
    if (fcp_cuda_lender(s) != s) r->memory.held = fcp_cuda_lender(s)->ranks[index].memory.held;
    for (int pass = 0; !code && pass < FCP_PASSES; pass++) {
        if (!(s->plan->problem->passes >> pass & 1)) continue;
        fcp_slots *slots = &r->slots[pass];
        fcp_slots_of(s->plan, (fcp_pass)pass, index, h->homes, slots);
        fcp_arena_lay(s->plan, (fcp_pass)pass, index, h, slots, (void *)(uintptr_t)NOWHERE, &r->arena[pass]);
        if (r->arena[pass].bytes > r->arena_bytes) r->arena_bytes = r->arena[pass].bytes;
        code = fcp_cuda_work_make(s, r, (fcp_pass)pass, err);
        if (!code) code = fcp_cuda_early_find(s, index, (fcp_pass)pass, err);
        count_memory(r->device, r->work[pass].size, r->kept[CUDA_LISTS + pass].held);
        size_t messages = fcp_messages_bytes(s->plan, (fcp_pass)pass);
        if (messages > r->messages_bytes) r->messages_bytes = messages;
        const size_t rounded = fcp_rounded_bytes(s->plan, (fcp_pass)pass) + FCP_MESSAGE_ALIGN - 1;
        const size_t all = rounded / FCP_MESSAGE_ALIGN * FCP_MESSAGE_ALIGN * FCP_FABRICS * FCP_DIRECTION_COUNT;
        if (all > r->rounded_bytes) r->rounded_bytes = all;
    }
    bool apart = s->base.net->transport->processes || s->device_count > 1; /* else rows go straight to home blocks */
    if (!apart) r->messages_bytes = 0;
    if (!code) code = fcp_cuda_gather_plan(s, index, err);
    count_memory(r->device, r->run_count * sizeof *r->runs, r->kept[CUDA_RUNS].held);
    count_memory(r->device, r->messages_bytes, r->kept[CUDA_MESSAGES].held);
    count_memory(r->device, r->rounded_bytes, r->kept[CUDA_ROUNDED].held);
    count_memory(r->device, fcp_cuda_allocated(r->arena_bytes), r->memory.held);
    count_memory(r->device, (r->lock_words + r->flag_words) * 4, r->kept[CUDA_LOCKS].held);
    if (!code) code = fcp_cuda_recurrent_plan(s, index, err);
    const size_t halos = r->halos.run_count * sizeof *r->halos.runs;
    /* what calls of an earlier plan's layers took stays */
    count_memory(r->device, halos, r->kept[CUDA_HALO_RUNS].held);
    count_memory(r->device, r->recurring_bytes, r->kept[CUDA_RECURRING].held);
    r->device->need.recurring += halos + r->recurring_bytes;
    if (!code && fcp_partials_make(&r->partials, h->homes, r->slots))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for rank %u", index);
    return code;
}

/* Is there enough? What an allocator of the caller's has is not known before it is asked. */
static fcp_code check_memory(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    size_t bytes, held;
    fcp_net_need(s->base.net, &bytes, &held);
    count_memory(&s->devices[0], bytes, held);
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        size_t available = 0, total = 0;
        count_memory(d, fcp_cuda_allocated(fcp_cuda_environment_size(s->plan, s->base.rank_count)),
                     d->environment.held);
        count_memory(d, d->staging.bytes, d->staging.landing ? d->staging.bytes : 0);
        d->need.pinned = fcp_cuda_staging_pinned(d) + (i ? 0 : fcp_cuda_marks_pinned(s));
        for (uint32_t j = 0; j < s->aside_count; j++)
            if (s->aside[j].device == d) d->need.held += s->aside[j].memory.held; /* it is given back before */
        if (s->allocator.allocate) continue;
        code = fcp_cuda_use(s, d, err);
        if (!code)
            code = fcp_cuda_check(s->cuda, s->cuda->call.memory_info(&available, &total), err,
                                  "device %d does not say how much memory it has", d->handle);
        char recurring[80] = "";
        if (d->need.recurring)
            snprintf(recurring, sizeof recurring, " (%.2f of them for layers that recur)",
                     (double)d->need.recurring / 1e9);
        if (!code && d->need.device > available + d->need.held)
            code = fcp_fail(
                err, FCP_E_NO_MEMORY,
                "device %d (%s) has %.2f of %.2f GB free, and its ranks need %.2f GB%s; more GPUs, smaller blocks or "
                "fewer buffers would do",
                d->handle, d->name, (double)(available + d->need.held) / 1e9, (double)total / 1e9,
                (double)d->need.device / 1e9, recurring);
    }
    return code;
}

static fcp_code make_streams(fcp_cuda_session *s, cuda_rank *r, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    int least = 0, greatest = 0;
    fcp_code code = fcp_cuda_use(s, r->device, err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->priorities(&least, &greatest), err, "device %d has no priorities",
                              r->device->handle);
    for (int q = 0; !code && q < CUDA_STREAMS; q++) {
        cu_stream *out = &r->streams[q];
        if (q == CUDA_NET && !fcp_two_fabrics(s->plan->problem)) continue;
        cu_result result = q == FCP_COMPUTE && r->device->green
                               ? call->green_stream(out, r->device->green, CU_STREAM_NON_BLOCKING, least)
                               : call->stream_create(out, CU_STREAM_NON_BLOCKING, q == FCP_COMPUTE ? least : greatest);
        if (!result) result = call->stream_create(&r->marks[q], CU_STREAM_NON_BLOCKING, least);
        code = fcp_cuda_check(s->cuda, result, err, "device %d makes no stream", r->device->handle);
    }
    return code;
}

/* Takes the lender's arena, which becomes larger if this plan needs that. Who else uses it lays its own out anew before
 * its next run (fcp_cuda_ranks_follow). An error leaves it as it was. */
static fcp_code borrow_arena(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    fcp_cuda_session *of = fcp_cuda_lender(s);
    cuda_rank *r = &s->ranks[index], *own = &of->ranks[index];
    if (!own->memory.at || r->arena_bytes > own->memory.held) {
        cu_ptr larger = 0;
        fcp_code code = of->finished ? fcp_cuda_event_await(s, s->origin, of->finished, err) : FCP_OK;
        if (!code && of->finished) code = fcp_cuda_wait(s, s->origin, "what was run", err);
        if (!code) code = fcp_cuda_memory(s, r->device, r->arena_bytes, NULL, "an arena", &larger, err);
        if (!code) code = fcp_cuda_release(s, r->device, own->memory.at, err);
        if (code) return code;
        own->memory = (cuda_memory){larger, fcp_cuda_allocated(r->arena_bytes)};
        of->arenas++;
    }
    r->memory = own->memory;
    r->memory_lent = r != own;
    return FCP_OK;
}

/* Makes an arena, of the transport's memory if it insists on that. */
static fcp_code make_arena(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    fcp_net *net = s->base.net;
    if (fcp_cuda_lender(s) != s || s->lends) return borrow_arena(s, index, err);
    if (!net->transport->allocate)
        return fcp_cuda_keep(s, r->device, fcp_cuda_allocated(r->arena_bytes), NULL, "an arena", &r->memory, err);
    if (r->memory.at && r->arena_bytes <= r->memory.held) return FCP_OK;
    void *memory = NULL;
    r->memory.held = 0;
    r->memory_lent = true;
    fcp_code code = net->transport->allocate(net, index, fcp_cuda_allocated(r->arena_bytes), &memory, err);
    r->memory.at = (uintptr_t)memory;
    if (!code) r->memory.held = fcp_cuda_allocated(r->arena_bytes);
    return code;
}

/* Lays out the arena of a pass where it is now. */
static fcp_code lay(fcp_cuda_session *s, uint32_t index, fcp_pass pass, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    fcp_arena_lay(s->plan, pass, index, &s->homes[index], &r->slots[pass], (void *)(uintptr_t)r->memory.at,
                  &r->arena[pass]);
    return fcp_cuda_maps_make(s, r, pass, err);
}

fcp_code fcp_cuda_ranks_follow(fcp_cuda_session *s, fcp_error *err) {
    const fcp_cuda_session *of = fcp_cuda_lender(s);
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s) && !code; r++) {
        s->ranks[r].memory = of->ranks[r].memory;
        for (int pass = 0; pass < FCP_PASSES && !code; pass++)
            if (s->plan->problem->passes >> pass & 1) code = lay(s, r, (fcp_pass)pass, err);
    }
    if (!code) s->laid = of->arenas;
    return code;
}

/* Makes a rank's memory on its device, and its streams. What it has already is used again. */
static fcp_code make_rank(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    fcp_code code = r->streams[0] ? FCP_OK : make_streams(s, r, err);
    if (!code) code = make_arena(s, index, err);
    if (!code && r->memory.at % ARENA_ALIGN) code = fcp_fail(err, FCP_E_RUN, "device memory at an odd address");
    if (!code)
        code = fcp_cuda_keep(s, r->device, (r->lock_words + r->flag_words) * 4, NULL, "locks", &r->kept[CUDA_LOCKS],
                             err);
    if (!code) code = fcp_cuda_gather_load(s, index, err);
    if (!code) code = fcp_cuda_recurrent_load(s, index, err);
    if (!code) code = fcp_cuda_keep(s, r->device, r->messages_bytes, NULL, "messages", &r->kept[CUDA_MESSAGES], err);
    if (!code)
        code = fcp_cuda_keep(s, r->device, r->rounded_bytes, NULL, "messages of partial results",
                             &r->kept[CUDA_ROUNDED], err);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++) {
        if (!(s->plan->problem->passes >> pass & 1)) continue;
        cuda_work *w = &r->work[pass];
        code = fcp_cuda_keep(s, r->device, w->size, w->bytes, "work lists", &r->kept[CUDA_LISTS + pass], err);
        free(w->bytes);
        w->bytes = NULL;
        w->capacity = 0;
        if (!code) code = lay(s, index, (fcp_pass)pass, err);
    }
    return code;
}

/* Frees what ranks have in host memory. */
static void free_ranks(const fcp_cuda_session *s, cuda_rank *ranks) {
    for (uint32_t r = s->base.first_rank; ranks && r < fcp_cuda_end(s); r++) {
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            free(ranks[r].work[pass].bytes);
            free(ranks[r].work[pass].attends);
            free(ranks[r].early[pass].slots);
        }
        fcp_partials_free(&ranks[r].partials);
        fcp_cuda_recurrent_free(&ranks[r]);
        free(ranks[r].runs);
    }
    free(ranks);
}

/* A rank of a new plan takes over what the rank of the old plan has on the device. */
static void take_over(cuda_rank *r, const cuda_rank *before) {
    *r = (cuda_rank){.memory = before->memory, .memory_lent = before->memory_lent};
    memcpy(r->kept, before->kept, sizeof r->kept);
    memcpy(r->streams, before->streams, sizeof r->streams);
    memcpy(r->marks, before->marks, sizeof r->marks);
    for (int pass = 0; pass < FCP_PASSES; pass++) r->early[pass].event = before->early[pass].event;
}

fcp_code fcp_cuda_ranks_plan(fcp_cuda_session *s, const fcp_plan *plan, fcp_error *err) {
    const fcp_plan *plan_before = s->plan;
    const uint64_t sums_before = s->sums;
    cuda_rank *before = s->ranks;
    fcp_homes *homes_before = s->homes;
    fcp_bundles *bundles_before = s->bundles;
    fcp_code code = FCP_OK;
    s->plan = plan;
    s->sums = fcp_kernel_sums(plan);
    s->ranks = calloc(plan->problem->ranks, sizeof *s->ranks);
    s->homes = fcp_homes_of(plan);
    s->bundles = NULL;
    if (!s->ranks || !s->homes)
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session of %u ranks", plan->problem->ranks);
    if (!code) code = fcp_extract_fits(plan, s->base.first_rank, s->base.rank_count, err);
    if (!code) code = fcp_bundles_make(plan, s->base.first_rank, s->base.rank_count, &s->bundles, err);
    for (uint32_t i = 0; i < s->device_count; i++) s->devices[i].need = (cuda_need){0};
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        if (before) take_over(&s->ranks[r], &before[r]);
        code = plan_rank(s, r, err);
    }
    if (!code) code = check_memory(s, err);
    if (code && before) {
        free_ranks(s, s->ranks);
        free(s->homes);
        fcp_bundles_free(s->bundles);
        s->plan = plan_before;
        s->sums = sums_before;
        s->ranks = before;
        s->homes = homes_before;
        s->bundles = bundles_before;
    } else if (before) {
        free_ranks(s, before);
        free(homes_before);
        fcp_bundles_free(bundles_before);
    }
    if (!code) fcp_calls_free(&s->calls);
    if (!code) s->base.plan = plan;
    return code;
}

/* Makes the device memory of a stage, unless it has it. That comes after what a session needs has been counted. */
static fcp_code land(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    cuda_staging *x = &d->staging;
    if (x->landing) return FCP_OK;
    return fcp_cuda_memory(s, d, x->bytes, NULL, "what comes from the host", &x->landing, err);
}

fcp_code fcp_cuda_ranks_make(fcp_cuda_session *s, bool again, fcp_error *err) {
    fcp_code code = fcp_cuda_aside_release(s, err);
    if (!code) code = fcp_cuda_kernels_load(s, err);
    if (!code) code = fcp_cuda_environment_load(s, err);
    if (again) fcp_cuda_partition_again(s);
    else if (!code) code = fcp_cuda_partition_open(s, err);
    if (!code) code = fcp_cuda_partition_check(s, err);
    if (!code && !again) code = fcp_cuda_marks_open(s, err);
    for (uint32_t i = 0; !code && i < s->device_count; i++) code = land(s, &s->devices[i], err);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) code = make_rank(s, r, err);
    s->laid = fcp_cuda_lender(s)->arenas;
    if (!code) code = fcp_net_reserve(s->base.net, err);
    return code;
}

/* Frees what a rank has in the driver. */
static void close_rank(fcp_cuda_session *s, cuda_rank *r) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (r->device && r->device->retained) call->context_set(r->device->context);
    for (int q = 0; q < CUDA_STREAMS; q++) {
        if (r->streams[q]) call->stream_destroy(r->streams[q]);
        if (r->marks[q]) call->stream_destroy(r->marks[q]);
    }
    for (int i = 0; i < CUDA_KEPT; i++) fcp_cuda_release(s, r->device, r->kept[i].at, NULL);
    if (!r->memory_lent && !s->kept) fcp_cuda_release(s, r->device, r->memory.at, NULL);
}

void fcp_cuda_ranks_close(fcp_cuda_session *s) {
    while (s->aside_count) fcp_cuda_aside_release(s, NULL);
    for (uint32_t r = s->base.first_rank; s->ranks && r < fcp_cuda_end(s); r++) close_rank(s, &s->ranks[r]);
}

void fcp_cuda_ranks_free(fcp_cuda_session *s) {
    fcp_calls_free(&s->calls);
    free(s->aside);
    free_ranks(s, s->ranks);
    free(s->homes);
    fcp_bundles_free(s->bundles);
}
