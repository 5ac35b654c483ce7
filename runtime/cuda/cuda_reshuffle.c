/* cuda_reshuffle.c: moves tokens between the caller's tensors and home blocks.
 *
 * How a unit moves depends on where the caller's tensors are:
 *   - All on the home's device: one launch of fk_gather in the home's communication stream. This is so for a COPY, in
 *     which the caller and the home are the same rank. With a transport that reaches all memory it is so for any unit.
 *   - All on the caller's own device, which is another: one fk_gather packs a message there, the message is copied, and
 *     another fk_gather unpacks it.
 *   - In host memory: as a message through the staging buffers of the home's device. But a unit that is one piece of
 *     pinned tensors is copied directly.
 *   - In several of these places: copied run by run.
 * Transports that do not reach all memory send the message to the other rank.
 *
 * Requires: no tensor that the pass needs is NULL. If a caller has left out one that is optional (lse_low, d_lse), it
 *           counts as zeros on its way in, and on its way out its place in a message is ignored.
 * Order:    IN comes before the pass. OUT comes after it, except for results that are sent early (early.c).
 * Cost:     - a few questions to the driver for each tensor of each rank;
 *           - a launch for each unit;
 *           - a copy and a launch for each filling of a staging buffer, if a unit comes from the host;
 *           - two questions to the driver for each run of a pinned tensor that is copied.
 */
#include "runtime/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/exec/host_reshuffle.h"
#include "runtime/exec/error_place.h"

/* Tensors on a device are read and written by fk_gather, word by word, and by the driver's copies, byte by byte. */
enum { TENSOR_ALIGN = 4 };

/* For an error whose message begins with a rank: sets the rank in the error's numbers, too. */
static fcp_code at_rank(fcp_code code, uint32_t rank, fcp_error *err) {
    if (code && err) err->where = fcp_where_rank(rank);
    return code;
}

/* What is known of the memory at an address from the check of a rank's tensors. NULL: nothing. */
static const cuda_tensor_memory *known_memory(const fcp_cuda_session *s, uint32_t rank, cu_ptr at) {
    const cuda_tensor_memory *known = s->ranks[rank].tensors;
    for (int t = 0; t < CUDA_TENSORS; t++)
        if (at >= known[t].begin && at < known[t].end) return &known[t];
    return NULL;
}

/* Finds the kind of the memory at an address, and its device. If the check of the rank's tensors has found that out,
 * the answer is taken from there: a run may have a thousand pieces, and asking the driver for each would cost more than
 * their copies. Kind 0 is ordinary host memory, which the driver does not know. Where a GPU can read it all the same,
 * by HMM or ATS, the driver may name another kind. */
static fcp_code memory_of(fcp_cuda_session *s, cu_ptr at, const char *name, uint32_t rank, unsigned *out_type,
                          int *out_device, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    const cuda_tensor_memory *known = known_memory(s, rank, at);
    *out_type = known ? known->type : 0;
    *out_device = known ? known->device : -1;
    if (known) return FCP_OK;
    cu_result result = call->pointer_attribute(out_type, CU_POINTER_MEMORY_TYPE, at);
    if (result == CU_ERROR_INVALID_VALUE) *out_type = 0;
    if (result == CU_ERROR_INVALID_VALUE) return FCP_OK;
    fcp_code code =
        fcp_cuda_check(s->cuda, result, err, "rank %u: the driver does not say where tensor %s lies", rank, name);
    if (*out_type != CU_MEMORY_DEVICE && *out_type != CU_MEMORY_HOST) *out_type = 0;
    if (code || *out_type != CU_MEMORY_DEVICE) return at_rank(code, rank, err);
    code = fcp_cuda_check(s->cuda, call->pointer_attribute(out_device, CU_POINTER_DEVICE, at), err,
                          "rank %u: the driver does not say which device tensor %s is on", rank, name);
    return at_rank(code, rank, err);
}

/* Checks that all of the tensor lies in memory of that device. That memory may be several allocations next to each
 * other, if the caller has mapped it so. */
static fcp_code fits(fcp_cuda_session *s, const cuda_outside *x, uint32_t rank, int device, fcp_error *err) {
    cu_ptr at = (uintptr_t)x->tensor, end = at + x->tokens * x->row;
    while (at < end) {
        cu_ptr base = 0;
        size_t size = 0;
        unsigned type = CU_MEMORY_DEVICE;
        int on = device;
        fcp_code code = at == (uintptr_t)x->tensor ? FCP_OK : memory_of(s, at, x->name, rank, &type, &on, err);
        if (code) return code;
        bool there = type == CU_MEMORY_DEVICE && on == device;
        if (there)
            code = fcp_cuda_check(s->cuda, s->cuda->call.address_range(&base, &size, at), err,
                                  "rank %u: the driver does not say how much memory tensor %s has", rank, x->name);
        if (code) return at_rank(code, rank, err);
        if (!there || base + size <= at)
            return fcp_fail_at(
                err, FCP_E_TENSOR, fcp_where_rank(rank),
                "rank %u: tensor %s of %llu tokens is %llu bytes, and its memory on device %d ends after %llu", rank,
                x->name, (unsigned long long)x->tokens, (unsigned long long)(x->tokens * x->row), device,
                (unsigned long long)(at - (uintptr_t)x->tensor));
        at = base + size;
    }
    return FCP_OK;
}

fcp_code fcp_cuda_tensor_check(fcp_cuda_session *s, const cuda_outside *x, uint32_t rank, cuda_tensor_memory *keep,
                               bool *out_host, fcp_error *err) {
    unsigned type;
    int ordinal;
    const cuda_device *device = NULL;
    cu_context context = NULL;
    fcp_code code = memory_of(s, (uintptr_t)x->tensor, x->name, rank, &type, &ordinal, err);
    if (code) return code;
    *out_host |= type != CU_MEMORY_DEVICE;
    const cu_ptr begin = (uintptr_t)x->tensor;
    const cuda_tensor_memory found = {begin, begin + x->tokens * x->row, type, ordinal};
    if (!type || type == CU_MEMORY_HOST) *keep = found;
    if (!type || type == CU_MEMORY_HOST) return FCP_OK;
    for (uint32_t i = 0; i < s->device_count; i++)
        if (s->devices[i].handle == ordinal) device = &s->devices[i];
    if (!device)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank),
                           "rank %u: tensor %s is on device %d, and the session uses devices %u to %u", rank, x->name,
                           ordinal, s->first_device, s->first_device + s->device_count - 1);
    /* memory that was mapped rather than allocated belongs to no context */
    cu_result result = s->cuda->call.pointer_attribute(&context, CU_POINTER_CONTEXT, (uintptr_t)x->tensor);
    if (!result && context && context != device->context)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank),
                           "rank %u: tensor %s is of another context of device %d than its primary one, which the "
                           "session uses",
                           rank, x->name, ordinal);
    if ((uintptr_t)x->tensor % x->align)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(rank),
                           "rank %u: tensor %s begins at an address that is no multiple of %zu", rank, x->name,
                           x->align);
    code = fits(s, x, rank, ordinal, err);
    if (!code) *keep = found;
    return code;
}

void fcp_cuda_tensors_forget(fcp_cuda_session *s) {
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++)
        memset(s->ranks[r].tensors, 0, sizeof s->ranks[r].tensors);
}

fcp_code fcp_cuda_tensors_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, bool *out_host,
                                fcp_error *err) {
    fcp_shape shape;
    fcp_plan_shape(s->plan, &shape);
    const unsigned moved = fcp_pass_inputs(pass) | fcp_pass_outputs(pass) | fcp_pass_optional(&shape, pass);
    fcp_code code = FCP_OK;
    *out_host = false;
    fcp_cuda_tensors_forget(s);
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++) {
        for (int t = 0; !code && t < FCP_TENSORS; t++) {
            const cuda_outside x = {fcp_tensors_name((fcp_tensor)t),
                                    fcp_tensors_get(&tensors[r - s->base.first_rank], (fcp_tensor)t),
                                    fcp_tensors_tokens(s->plan, r, (fcp_tensor)t),
                                    fcp_tensor_token_bytes(&shape, (fcp_tensor)t), TENSOR_ALIGN};
            if (moved >> t & 1 && x.tensor && x.tokens && x.row)
                code = fcp_cuda_tensor_check(s, &x, r, &s->ranks[r].tensors[t], out_host, err);
        }
        const fcp_tensors *own = &tensors[r - s->base.first_rank];
        const uint64_t numbers = fcp_plan_table_numbers(s->plan);
        const cuda_outside more[] = {
            {"sink", own->sink, shape.heads, sizeof(float), TENSOR_ALIGN},
            {"d_sink", own->d_sink, shape.heads, sizeof(float), TENSOR_ALIGN},
            {"table", own->table, numbers, sizeof(float), TENSOR_ALIGN},
            {"d_table", own->d_table, numbers, sizeof(float), TENSOR_ALIGN},
            {"max_logit", pass == FCP_FORWARD ? own->max_logit : NULL, shape.heads, sizeof(float), TENSOR_ALIGN}};
        for (int i = 0; !code && i < CUDA_TENSORS - FCP_TENSORS; i++)
            if (more[i].tensor)
                code = fcp_cuda_tensor_check(s, &more[i], r, &s->ranks[r].tensors[FCP_TENSORS + i], out_host, err);
    }
    return code;
}

/* Returns whether host memory is pinned, so that the driver can copy it directly. Only its two ends are asked about. If
 * they lie in two pinned allocations with a gap between them, the driver refuses the copy (cuMemcpy: a range that is
 * registered in part is CUDA_ERROR_INVALID_VALUE), so nothing wrong is copied. */
static bool is_pinned(fcp_cuda_session *s, uint32_t rank, const void *from, size_t bytes) {
    const fcp_cuda_table *call = &s->cuda->call;
    const cuda_tensor_memory *known = known_memory(s, rank, (uintptr_t)from);
    unsigned first = 0, last = 0;
    if (known && !known->type) return false; /* the tensor begins in ordinary memory: staging serves all of it */
    return !call->pointer_attribute(&first, CU_POINTER_MEMORY_TYPE, (uintptr_t)from) && first == CU_MEMORY_HOST &&
           !call->pointer_attribute(&last, CU_POINTER_MEMORY_TYPE, (uintptr_t)from + bytes - 1) &&
           last == CU_MEMORY_HOST;
}

/* --- copies, where a tensor is not where a kernel reaches it ------------------------------------------------------ */

/* Where a unit moves: between the tensors of rank `caller` and the blocks of rank `home`. message: the device memory
 * where its part of a message lies; 0: it moves to or from the home's blocks directly. */
struct way {
    uint32_t caller, home;
    bool in;
    const fcp_arena *arena;
    cu_ptr message;
};

/* Copies bytes between a tensor of the caller, at `outside`, and the home's device, in the home's stream. A message
 * goes through the staging buffers. */
static fcp_code copy_bytes(fcp_cuda_session *s, const struct way *way, void *outside, void *inside, size_t bytes,
                           fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    const uint32_t caller = way->caller;
    const bool in = way->in;
    cuda_rank *r = &s->ranks[way->home];
    cu_stream stream = r->streams[FCP_COMM];
    cu_ptr at = (uintptr_t)inside, theirs = (uintptr_t)outside;
    unsigned type;
    int ordinal;
    if (way->message)
        return in ? fcp_cuda_staging_in(s, r->device, at, outside, bytes, err)
                  : fcp_cuda_staging_out(s, r->device, outside, at, bytes, err);
    fcp_code code = memory_of(s, theirs, "data", caller, &type, &ordinal, err);
    if (code) return code;
    if (type == CU_MEMORY_DEVICE) {
        cuda_device *device = &s->devices[(uint32_t)ordinal - s->first_device]; /* checked before */
        return in ? fcp_cuda_copy(s, r->device, at, device, theirs, bytes, stream, err)
                  : fcp_cuda_copy(s, device, theirs, r->device, at, bytes, stream, err);
    }
    if (is_pinned(s, caller, outside, bytes)) {
        code = fcp_cuda_check(
            s->cuda, in ? call->copy_in(at, outside, bytes, stream) : call->copy_out(outside, at, bytes, stream), err,
            "rank %u: cannot copy %zu bytes between host and device %d", caller, bytes, r->device->handle);
        return at_rank(code, caller, err);
    }
    return in ? fcp_cuda_staging_in(s, r->device, at, outside, bytes, err)
              : fcp_cuda_staging_out(s, r->device, outside, at, bytes, err);
}

fcp_code fcp_cuda_copy_outside(fcp_cuda_session *s, uint32_t rank, bool in, void *outside, cu_ptr inside, size_t bytes,
                               fcp_error *err) {
    const struct way way = {.caller = rank, .home = rank, .in = in};
    return copy_bytes(s, &way, outside, (void *)(uintptr_t)inside, bytes, err);
}

fcp_code fcp_cuda_result_out(fcp_cuda_session *s, uint32_t rank, int which, void *outside, cu_ptr inside, size_t bytes,
                             fcp_error *err) {
    const cuda_rank *r = &s->ranks[rank];
    const bool staged = r->tensors[which].type != CU_MEMORY_DEVICE; /* or perhaps pinned, and copied directly */
    fcp_code code = staged ? fcp_cuda_follow(s, r->device, r->streams[FCP_COMM], r->device->staging.stream, err)
                           : FCP_OK;
    return code ? code : fcp_cuda_copy_outside(s, rank, false, outside, inside, bytes, err);
}

/* Clears bytes of a message or of home blocks, for a tensor that the caller has left out. */
static fcp_code clear_bytes(fcp_cuda_session *s, const struct way *way, void *inside, size_t bytes, fcp_error *err) {
    const cuda_rank *r = &s->ranks[way->home];
    cu_stream stream = way->message ? r->device->staging.stream : r->streams[FCP_COMM];
    return fcp_cuda_fill(s, (uintptr_t)inside, 0, bytes, stream, err);
}

/* Copies a run of one tensor; if its block has not all heads, row by row and chunk by chunk. `first`: the first token
 * of the message. */
static fcp_code copy_run(fcp_cuda_session *s, const struct way *way, const fcp_moved *x, const fcp_bundle_run *run,
                         uint32_t first, fcp_error *err) {
    const fcp_slice slice = fcp_slice_of(s->plan, &s->plan->blocks[run->block], x);
    char *inside = way->message ? (char *)(uintptr_t)way->message + (size_t)(run->at - first) * x->row
                                : (char *)x->home + fcp_home_token(way->arena, run, x->of_keys) * x->row;
    fcp_code code = FCP_OK;
    if (!x->caller) return way->in ? clear_bytes(s, way, inside, run->tokens * x->row, err) : FCP_OK;
    char *outside = (char *)x->caller + (size_t)run->place * x->full;
    if (slice.count == 1 && slice.bytes == x->full)
        return copy_bytes(s, way, outside, inside, run->tokens * x->full, err);
    for (uint32_t i = 0; !code && i < run->tokens; i++, outside += x->full)
        for (uint32_t j = 0; !code && j < slice.count; j++, inside += slice.bytes)
            code = copy_bytes(s, way, outside + slice.offset + j * slice.stride, inside, slice.bytes, err);
    return code;
}

static fcp_code copy_unit(fcp_cuda_session *s, struct way way, const fcp_transfer *t, const fcp_tensors *tensors,
                          fcp_error *err) {
    const fcp_bundle bundle = fcp_bundle_of(s->bundles, way.caller, t);
    fcp_moved moved[FCP_MOVED];
    uint32_t count = fcp_moved_tensors(way.arena, tensors, t, moved);
    fcp_code code = FCP_OK;
    for (uint32_t k = 0; !code && k < count; k++) {
        fcp_bundle_run run;
        for (uint32_t i = 0; !code && fcp_bundle_next(&bundle, t, &i, &run);) {
            if (!way.message) code = fcp_net_pace(s->base.net, 1, err);
            if (!code) code = copy_run(s, &way, &moved[k], &run, t->first, err);
        }
        if (way.message) way.message += t->tokens * moved[k].row;
    }
    return code;
}

/* --- units -------------------------------------------------------------------------------------------------------- */

/* The same transfer as its other side lists it. */
static fcp_transfer other_side(const fcp_transfer *t, uint32_t rank) {
    fcp_transfer other = *t;
    other.peer = rank;
    other.dir = t->dir == FCP_SEND ? FCP_RECV : FCP_SEND;
    return other;
}

/* The device on which all tensors that a transfer moves lie. NULL: they are on several, or in host memory. *out_types:
 * a bit for each kind of memory that they are in. */
static fcp_code device_of(fcp_cuda_session *s, uint32_t caller, const fcp_transfer *t, const fcp_arena *arena,
                          const fcp_tensors *tensors, cuda_device **out_device, unsigned *out_types, fcp_error *err) {
    fcp_moved moved[FCP_MOVED];
    uint32_t count = fcp_moved_tensors(arena, tensors, t, moved);
    *out_device = NULL;
    *out_types = 0;
    for (uint32_t k = 0; k < count; k++) {
        unsigned type;
        int ordinal;
        if (!moved[k].caller) continue; /* never the first of them */
        fcp_code code = memory_of(s, (uintptr_t)moved[k].caller, "data", caller, &type, &ordinal, err);
        if (code) return code;
        cuda_device *device = type == CU_MEMORY_DEVICE ? &s->devices[(uint32_t)ordinal - s->first_device] : NULL;
        if (k && device != *out_device) device = NULL;
        *out_device = device;
        *out_types |= 1u << type;
    }
    return FCP_OK;
}

/* Do the tokens of a unit lie next to each other in the caller's tensors and in the home's blocks? */
static bool is_one_piece(const fcp_cuda_session *s, uint32_t caller, const fcp_transfer *t) {
    const fcp_bundle bundle = fcp_bundle_of(s->bundles, caller, t);
    fcp_bundle_run run;
    uint32_t i = 0;
    return fcp_bundle_next(&bundle, t, &i, &run) && run.tokens == t->tokens && s->plan->heads_count == 1;
}

/* Moves a unit between tensors in host memory and home blocks as a message, in parts of at most `most` tokens. All of
 * it is in the staging stream. */
static fcp_code by_staging(fcp_cuda_session *s, struct way way, const fcp_transfer *t, const fcp_tensors *tensors,
                           uint32_t most, fcp_error *err) {
    cuda_device *d = s->ranks[way.home].device;
    fcp_transfer part = *t;
    fcp_code code = FCP_OK;
    way.message = d->staging.landing;
    for (uint32_t at = 0; !code && at < t->tokens; at += part.tokens) {
        part.first = t->first + at;
        part.tokens = t->tokens - at < most ? t->tokens - at : most;
        const fcp_transfer theirs = other_side(&part, way.caller), *of_home = way.home == way.caller ? &part : &theirs;
        if (way.in) code = copy_unit(s, way, &part, tensors, err);
        if (way.in && !code) code = fcp_cuda_staging_push(s, d, err);
        const cuda_unit_move move = {.transfer = of_home, .home = way.arena, .caller = tensors, .message = way.message,
                                     .to = way.in ? FK_AT_BLOCKS : FK_IN_MESSAGE,
                                     .from = way.in ? FK_IN_MESSAGE : FK_AT_BLOCKS};
        if (!code) code = fcp_cuda_gather(s, way.home, &move, d->staging.stream, err);
        if (!way.in && !code) code = copy_unit(s, way, &part, tensors, err);
        if (!way.in && !code) code = fcp_cuda_staging_push(s, d, err);
    }
    return code;
}

/* Packs a message on one device, copies it to another and unpacks it there, each in the stream of a rank of that
 * device. Each stream waits for the other before messages are used again. */
static fcp_code by_message(fcp_cuda_session *s, uint32_t caller, uint32_t home, fcp_pass pass, const fcp_transfer *t,
                           const fcp_tensors *tensors, fcp_error *err) {
    bool in = t->cls == FCP_IN;
    uint32_t from = in ? caller : home, to = in ? home : caller;
    cuda_rank *sender = &s->ranks[from], *receiver = &s->ranks[to];
    const fcp_transfer theirs = other_side(t, caller);
    cu_ptr landing = receiver->kept[CUDA_MESSAGES].at + receiver->messages_bytes / 2;
    cuda_unit_move pack = {.transfer = in ? t : &theirs, .home = &s->ranks[home].arena[pass], .caller = tensors,
                           .to = FK_IN_MESSAGE, .from = in ? FK_AT_CALLER : FK_AT_BLOCKS,
                           .message = sender->kept[CUDA_MESSAGES].at};
    cuda_unit_move unpack = {.transfer = in ? &theirs : t, .home = pack.home, .caller = tensors,
                             .to = in ? FK_AT_BLOCKS : FK_AT_CALLER, .from = FK_IN_MESSAGE, .message = landing};
    fcp_code code = fcp_net_pace(s->base.net, 3, err);
    if (!code) code = fcp_cuda_gather(s, from, &pack, sender->streams[FCP_COMM], err);
    if (!code) code = fcp_cuda_follow(s, sender->device, sender->streams[FCP_COMM], receiver->streams[FCP_COMM], err);
    if (!code) code = fcp_cuda_use(s, receiver->device, err);
    if (!code)
        code = fcp_cuda_copy(s, receiver->device, landing, sender->device, pack.message,
                             fcp_message_bytes(s->plan, pass, t), receiver->streams[FCP_COMM], err);
    if (!code) code = fcp_cuda_follow(s, receiver->device, receiver->streams[FCP_COMM], sender->streams[FCP_COMM], err);
    return code ? code : fcp_cuda_gather(s, to, &unpack, receiver->streams[FCP_COMM], err);
}

fcp_code fcp_cuda_move_units(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, fcp_class cls, const fcp_instr *x,
                             const fcp_tensors *tensors, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = x->a; !code && i < x->a + x->b; i++) {
        const fcp_transfer *t = &s->plan->transfers[i];
        if (t->cls != cls || !fcp_at_caller(t)) continue;
        uint32_t home = t->peer;
        cuda_rank *r = &s->ranks[home];
        const fcp_arena *arena = &r->arena[pass];
        const fcp_transfer theirs = other_side(t, rank);
        const struct way way = {rank, home, cls == FCP_IN, arena, 0};
        cuda_device *device;
        unsigned types;
        code = device_of(s, rank, t, arena, tensors, &device, &types, err);
        if (code) break;
        if (!types) continue; /* keys that are kept */
        if (device == r->device) {
            code = fcp_net_pace(s->base.net, 1, err);
            const cuda_unit_move move = {.transfer = home == rank ? t : &theirs, .home = arena, .caller = tensors,
                                         .to = way.in ? FK_AT_BLOCKS : FK_AT_CALLER,
                                         .from = way.in ? FK_AT_CALLER : FK_AT_BLOCKS};
            if (!code) code = fcp_cuda_gather(s, home, &move, r->streams[FCP_COMM], err);
        } else if (device && home != rank && device == s->ranks[rank].device) {
            code = by_message(s, rank, home, pass, t, tensors, err);
        } else {
            uint64_t most = r->device->staging.bytes / (fcp_message_bytes(s->plan, pass, t) / t->tokens);
            bool direct = types == 1u << CU_MEMORY_HOST && is_one_piece(s, rank, t);
            code = fcp_cuda_use(s, r->device, err);
            if (!code)
                code = types >> CU_MEMORY_DEVICE & 1 || direct || !most
                           ? copy_unit(s, way, t, tensors, err)
                           : by_staging(s, way, t, tensors, most < t->tokens ? (uint32_t)most : t->tokens, err);
        }
    }
    return code;
}

/* Packs what a rank's launch sends, or unpacks what it has received. */
static fcp_code do_messages(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, const fcp_instr *x,
                            const fcp_tensors *tensors, const fcp_wires *wires, fcp_direction dir, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < x->b; i++) {
        const fcp_transfer *t = &s->plan->transfers[x->a + i];
        uint32_t mine = fcp_at_caller(t) ? FK_AT_CALLER : FK_AT_BLOCKS;
        if (t->dir != dir) continue;
        const cuda_unit_move move = {.transfer = t, .home = &s->ranks[rank].arena[pass], .caller = tensors,
                                     .to = dir == FCP_SEND ? FK_IN_MESSAGE : mine,
                                     .from = dir == FCP_SEND ? mine : FK_IN_MESSAGE,
                                     .message = (uintptr_t)wires->list[i].segment[0].data};
        code = fcp_cuda_gather(s, rank, &move, s->ranks[rank].streams[FCP_COMM], err);
    }
    return code;
}

/* Lets the transport do a LAUNCH of inputs or outputs. */
static fcp_code move_launch(fcp_cuda_session *s, uint32_t rank, fcp_pass pass, const fcp_instr *x,
                            const fcp_tensors *tensors, fcp_wires *wires, fcp_error *err) {
    const fcp_transport *transport = s->base.net->transport;
    cuda_rank *r = &s->ranks[rank];
    if (transport->reshuffle) return transport->reshuffle(s->base.net, rank, pass, x, tensors, err);
    fcp_code code = fcp_cuda_use(s, r->device, err);
    if (!code) code = fcp_net_pace(s->base.net, 1 + x->b, err);
    void *messages = (void *)(uintptr_t)r->kept[CUDA_MESSAGES].at;
    if (!code) code = fcp_wires_make(wires, &r->arena[pass], messages, r->messages_bytes, x, err);
    if (!code) code = do_messages(s, rank, pass, x, tensors, wires, FCP_SEND, err);
    if (!code) code = fcp_net_launch(s->base.net, rank, pass, x->c, wires->list, x->b, err);
    if (!code && fcp_net_wait(s->base.net, rank, 0, NULL, err) != FCP_WAIT_DONE)
        code = fcp_fail(err, FCP_E_INTERNAL, "a launch of inputs or outputs waits for another");
    return code ? code : do_messages(s, rank, pass, x, tensors, wires, FCP_RECV, err);
}

fcp_code fcp_cuda_reshuffle(fcp_cuda_session *s, fcp_pass pass, fcp_class cls, bool early, const fcp_tensors *tensors,
                            fcp_error *err) {
    const fcp_plan *plan = s->plan;
    const cuda_early_rounds rounds = fcp_cuda_early_rounds(plan, pass, fcp_cuda_fused(s, pass));
    fcp_wires wires = {0};
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++)
        for (int q = 0; !code && q < FCP_QUEUES; q++) {
            const fcp_stream *stream = fcp_stream_of(plan, pass, r, (fcp_queue)q);
            const fcp_tensors *own = &tensors[r - s->base.first_rank];
            for (uint32_t i = 0; !code && i < stream->count; i++) {
                const fcp_instr *x = &plan->instrs[stream->first + i];
                bool launch = x->op == FCP_OP_LAUNCH;
                if ((!launch && x->op != FCP_OP_COPY) || early != (launch && fcp_cuda_is_early(&rounds, x))) continue;
                if (!launch) code = fcp_cuda_move_units(s, r, pass, cls, x, own, err);
                else if (fcp_cuda_moved_by(plan, pass, x) == cls) code = move_launch(s, r, pass, x, own, &wires, err);
            }
        }
    fcp_wires_free(&wires);
    return code;
}
