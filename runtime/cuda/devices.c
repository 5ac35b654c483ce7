/* devices.c: opening and closing the devices of a session.
 *
 * All parts of a device are closed here, not in the files that open them, because the order of closing matters.
 *
 * Requires: a driver that fcp_cuda_open opened.
 */
#include "runtime/cuda/cuda.h"

#include <stdlib.h>

static fcp_code attribute(fcp_cuda_session *s, cuda_device *d, int which, int *out, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.device_attribute(out, which, d->handle), err,
                          "device %d does not say its attribute %d", d->handle, which);
}

static fcp_code open_device(fcp_cuda_session *s, cuda_device *d, int number, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    const fcp_problem *p = s->plan->problem;
    char arch[32];
    fcp_error why;
    fcp_code code = fcp_cuda_check(s->cuda, call->device_get(&d->handle, number), err, "there is no device %d", number);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->device_name(d->name, sizeof d->name, d->handle), err,
                              "device %d has no name", number);
    if (!code) code = attribute(s, d, CU_CAPABILITY_MAJOR, &d->major, err);
    if (!code) code = attribute(s, d, CU_CAPABILITY_MINOR, &d->minor, err);
    if (!code) code = attribute(s, d, CU_MULTIPROCESSORS, &d->multiprocessors, err);
    if (!code) code = attribute(s, d, CU_SHARED_MEMORY_OPTIN, &d->shared, err);
    if (code) return code;
    d->name[sizeof d->name - 1] = 0;
    fcp_cuda_arch(d, arch);
    if (fcp_arch_check(arch, &why))
        return fcp_fail(err, FCP_E_ARCH, "device %d (%s): %s", number, d->name, why.message);
    bool sm_90a = !s->mma_sync && fcp_cuda_is_sm_90a(d);
    d->forward = emit_forward(p->head_dim, p->value_dim, sm_90a);
    d->backward =
        emit_backward_within(p->head_dim, p->value_dim, s->plan->score_count != 0,
                             emit_backward(p->head_dim, p->value_dim, p->deterministic, sm_90a), (uint32_t)d->shared);
    code = fcp_cuda_check(s->cuda, call->context_retain(&d->context, d->handle), err, "device %d (%s) cannot be opened",
                          number, d->name);
    d->retained = !code;
    return code;
}

/* Allows direct copies between devices, where the hardware can do them. */
static fcp_code open_peers(fcp_cuda_session *s, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    for (uint32_t i = 0; i < s->device_count; i++)
        for (uint32_t j = 0; j < s->device_count; j++) {
            cuda_device *a = &s->devices[i], *b = &s->devices[j];
            int can = 0;
            if (i == j) continue;
            fcp_code code = fcp_cuda_check(s->cuda, call->can_peer(&can, a->handle, b->handle), err,
                                           "device %d does not say whether it reaches device %d", a->handle, b->handle);
            if (code) return code;
            if (!can) continue; /* then the driver copies through the host */
            code = fcp_cuda_use(s, a, err);
            if (code) return code;
            cu_result result = call->enable_peer(b->context, 0);
            if (result == CU_ERROR_PEER_ACCESS_ALREADY_ENABLED) continue;
            if (result == CU_ERROR_TOO_MANY_PEERS || result == CU_ERROR_PEER_ACCESS_UNSUPPORTED)
                continue; /* the same */
            code = fcp_cuda_check(s->cuda, result, err, "device %d cannot reach device %d", a->handle, b->handle);
            if (code) return code;
        }
    return FCP_OK;
}

fcp_code fcp_cuda_devices_open(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++)
        code = open_device(s, &s->devices[i], (int)(s->first_device + i), err);
    if (!code) code = open_peers(s, err);
    for (uint32_t i = 0; !code && i < s->device_count; i++) code = fcp_cuda_staging_open(s, &s->devices[i], err);
    return code;
}

static void close_device(fcp_cuda_session *s, cuda_device *d) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (!d->retained) return;
    call->context_set(d->context);
    fcp_cuda_staging_close(s, d);
    for (uint32_t i = 0; i < d->event_count; i++) call->event_destroy(d->events[i]);
    fcp_cuda_release(s, d, d->staging.landing, NULL);
    fcp_cuda_release(s, d, d->environment.at, NULL);
    fcp_cuda_partition_close(s, d);
    for (int i = 0; i < CUDA_MODULES; i++)
        if (d->modules[i]) call->module_unload(d->modules[i]);
    call->context_release(d->handle);
}

void fcp_cuda_devices_close(fcp_cuda_session *s) {
    for (uint32_t i = 0; s->devices && i < s->device_count; i++) close_device(s, &s->devices[i]);
}

void fcp_cuda_devices_free(fcp_cuda_session *s) {
    for (uint32_t i = 0; s->devices && i < s->device_count; i++) {
        for (int b = 0; b < 2; b++) free(s->devices[i].staging.buffers[b].out);
        free(s->devices[i].events);
        for (int m = 0; m < CUDA_MODULES; m++) free(s->devices[i].sources[m]);
    }
    free(s->devices);
}
