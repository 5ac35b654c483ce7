/* recurrent_cuda.c: halos and scans on devices: what gives a stretch of a sequence the rows beside it, or the state
 * that enters it.
 *
 * Requires: a verified plan; arguments that runtime/session.c has checked.
 * Gives:    fcp_session_halo, fcp_session_halo_gradient and fcp_session_scan, with the bits that the host gives.
 * Method:   Each rank's steps (exec/recurrent_steps.h) go into its communication stream: kernels (recurrent_kernels.h)
 *           and the transport's transfers. Transfers over net are in their own stream, if the rank has one, which
 *           follows the other one before a round and is followed behind it. Summaries go from where they lie to where
 *           they are wanted, and so do rows that lie side by side and are not added. Other rows of halos travel in
 *           messages.
 * Order:    A call comes behind the run or call before it, and the next one behind it, whatever the streams
 *           (run_pass.c). Sums are made in the order of the steps.
 * Tensors:  A tensor that does not lie on its rank's device is copied there, and results are copied back: through the
 *           staging buffers if it is in host memory. Then the call first waits for what its stream has, and has ended
 *           when it returns.
 * Graphs:   On a stream that is being captured a call becomes a part of the caller's graph, as a run does (run_pass.c).
 *           It must have been made once before, so that it needs no memory and no agreement. The memory in which the
 *           graph works stays where it is: a later call that needs more gets other memory (recurrent_memory.c).
 * Failure:  as in a pass: the error names a rank and a round, and the session refuses what comes after it. If something
 *           does not end, events behind each act tell which rank has come least far.
 * Cost:     a launch for each COMBINE, and one for each message of rows at each end.
 */
#include "runtime/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/exec/agree.h"
#include "runtime/exec/error_place.h"
#include "runtime/exec/recurrent_steps.h"

enum { WIRES = FCP_FABRICS * FCP_DIRECTION_COUNT, TENSORS = 3 };

/* --- a call ------------------------------------------------------------------------------------------------------- */

/* A tensor of the caller's at a rank: where it lies, and where steps find it. */
typedef struct tensor {
    const char *name;
    void *outside;
    cu_ptr inside;
    uint64_t bytes;
    bool in, out;       /* it is read, it is written */
    unsigned type;      /* of its memory; 0: ordinary host memory */
    cuda_device *there; /* of device memory */
    bool staged;        /* inside is not outside */
} tensor;

typedef struct rank_call {
    cuda_rank *rank;
    uint32_t index;
    const fcp_rank_rows *rows;
    tensor tensors[TENSORS];
    uint32_t tensor_count;
    uint64_t temporaries, messages, staged; /* bytes to work in, each a multiple of CUDA_ROOM_ALIGN */
    cu_ptr memory;
    /* while steps are put into streams */
    fcp_step_walk walk;
    fcp_act act;
    bool launched, over;
    fcp_wire wires[WIRES];
} rank_call;

/* When an act has ended. */
typedef struct act_end {
    cu_event event;
    uint32_t rank; /* of this process */
    fcp_act act;
} act_end;

typedef struct cuda_call {
    fcp_call what;
    const fcp_recurrent *layer;
    fcp_pass pass;
    size_t row;      /* bytes of a row of a halo */
    bool adds;       /* it is the gradient of a halo */
    bool host;       /* some tensors lie in host memory */
    uint32_t number; /* on which all processes have agreed */
    rank_call *ranks;
    act_end *ends; /* if the call waits: of all acts so far */
    uint32_t end_count, end_capacity;
    bool waits;
} cuda_call;

/* Puts a place before the message of an error. */
static fcp_code fail_act(const cuda_call *call, const rank_call *r, const fcp_act *act, fcp_code code, fcp_error *err) {
    char text[FCP_WHERE_TEXT];
    fcp_where where = fcp_where_rank(r->index);
    if (err->where.rank != FCP_NOWHERE && err->where.pass != FCP_NOWHERE) return code;
    where.pass = (uint32_t)call->pass;
    fcp_act_text(&r->walk, r->index, call->pass, act, text, sizeof text);
    return fcp_fail_at(err, code, where, "%s: %.300s", text, err->message);
}

enum { CALL_TEXT = 60 };
static void name_call(const cuda_call *call, char out[CALL_TEXT]) {
    snprintf(out, CALL_TEXT, "%s of layer %u",
             call->layer->kind == FCP_SCAN ? "the scan"
             : call->adds                  ? "the gradient of the halo"
                                           : "the halo",
             call->what.layer);
}

static bool times(uint64_t a, uint64_t b, uint64_t *out) { return !__builtin_mul_overflow(a, b, out); }

static fcp_code add_tensor(fcp_cuda_session *s, cuda_call *call, rank_call *r, const char *name, const void *outside,
                           uint64_t rows, uint64_t row, size_t align, bool in, bool out, fcp_error *err) {
    tensor *t = &r->tensors[r->tensor_count++];
    *t = (tensor){.name = name,
                  .outside = (void *)(uintptr_t)outside,
                  .inside = (uintptr_t)outside,
                  .in = in,
                  .out = out};
    if (!times(rows, row, &t->bytes) || t->bytes > PTRDIFF_MAX)
        return fcp_fail_at(err, FCP_E_TENSOR, fcp_where_rank(r->index),
                           "rank %u: tensor %s has %llu times %llu bytes, more than can be counted", r->index, name,
                           (unsigned long long)rows, (unsigned long long)row);
    if (!t->bytes) return FCP_OK;
    const cuda_outside x = {name, outside, rows, row, align};
    cuda_tensor_memory memory = {0};
    bool host = false;
    const fcp_code code = fcp_cuda_tensor_check(s, &x, r->index, &memory, &host, err);
    if (code) return code;
    t->type = host ? 0 : CU_MEMORY_DEVICE;
    for (uint32_t i = 0; !host && i < s->device_count; i++)
        if (s->devices[i].handle == memory.device) t->there = &s->devices[i];
    t->staged = t->there != r->rank->device;
    call->host |= host;
    return FCP_OK;
}

/* How many bytes a rank needs to work in. */
static fcp_code size_rank(const cuda_call *call, rank_call *r, fcp_error *err) {
    bool fits = fcp_cuda_temporaries(&r->walk, &r->temporaries);
    if (call->layer->kind == FCP_HALO) {
        fits = times(fcp_step_walk_most_rows(r->walk), call->row, &r->messages) && r->messages <= PTRDIFF_MAX / 8;
        r->messages = fits ? fcp_cuda_room(r->messages) + (uint64_t)WIRES * CUDA_ROOM_ALIGN : 0;
    }
    for (uint32_t i = 0; i < r->tensor_count; i++)
        if (r->tensors[i].staged) r->staged += fcp_cuda_room(r->tensors[i].bytes);
    /* tensors are at most PTRDIFF_MAX bytes each */
    if (fits && r->staged <= PTRDIFF_MAX / 2) return FCP_OK;
    return fcp_fail_at(err, FCP_E_NO_MEMORY, fcp_where_rank(r->index),
                       "rank %u: layer %u needs more memory than there is", r->index, call->what.layer);
}

/* A graph cannot do what the first call does: it may take memory, and processes compare what they call. */
static fcp_code refuse_first(const cuda_call *call, fcp_error *err) {
    char what[CALL_TEXT];
    name_call(call, what);
    return fcp_fail(err, FCP_E_ARGUMENT,
                    "the stream is being captured, and %s has not been called like this before: call it once outside "
                    "the capture, with tensors of the same sizes on the same devices",
                    what);
}

/* Gives a rank the memory that it works in. */
static fcp_code give_memory(fcp_cuda_session *s, const cuda_call *call, rank_call *r, fcp_error *err) {
    const uint64_t bytes = r->temporaries + r->messages + r->staged;
    const bool more = bytes > r->rank->kept[CUDA_RECURRING].held;
    char name[CALL_TEXT], what[200];
    if (more && s->outer) return refuse_first(call, err);
    if (more) {
        name_call(call, name);
        snprintf(what, sizeof what, "%s: %llu of temporaries, %llu of messages, %llu of tensors that lie elsewhere",
                 name, (unsigned long long)r->temporaries, (unsigned long long)r->messages,
                 (unsigned long long)r->staged);
    }
    const fcp_code code = more ? fcp_cuda_recurrent_grow(s, r->index, bytes, what, err) : FCP_OK;
    if (code) return code;
    r->memory = r->rank->kept[CUDA_RECURRING].at;
    cu_ptr at = r->memory + r->temporaries + r->messages;
    for (uint32_t i = 0; i < r->tensor_count; i++)
        if (r->tensors[i].staged) {
            r->tensors[i].inside = at;
            at += fcp_cuda_room(r->tensors[i].bytes);
        }
    return FCP_OK;
}

/* --- steps of scans ----------------------------------------------------------------------------------------------- */

static fcp_register register_of(const cuda_call *call, const rank_call *r, uint32_t number, uint32_t part) {
    const fcp_scan_rank tensors = {.decay = (const float *)(uintptr_t)r->tensors[0].inside,
                                   .state = (const float *)(uintptr_t)r->tensors[1].inside,
                                   .entering = (float *)(uintptr_t)r->tensors[2].inside};
    return fcp_register_of(call->layer, r->rows->stretches, &tensors, (float *)(uintptr_t)r->memory, number, part);
}

static cu_ptr at_of(const float *x) { return (uintptr_t)x; }

/* In a checked plan the result is none of the operands. */
static fcp_code combine(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, const fcp_step *step,
                        fcp_error *err) {
    const fcp_recurrent *x = call->layer;
    const bool matrix = x->decay == FCP_DECAY_MATRIX;
    const fcp_register a = register_of(call, r, step->a, step->part), b = register_of(call, r, step->b, step->part);
    const fcp_register out = register_of(call, r, step->out, step->part);
    cu_stream stream = r->rank->streams[FCP_COMM];
    cuda_device *d = r->rank->device;
    fk_scan_launch launch = {.to = at_of(out.state),
                             .first = at_of(a.state),
                             .then = at_of(b.state),
                             .then_decay = at_of(b.decay),
                             .heads = fcp_part_heads(x),
                             .rows = x->rows,
                             .columns = x->columns,
                             .decay = x->decay};
    if (step->whole) {
        launch.to_decay = at_of(out.decay);
        launch.first_decay = at_of(a.decay);
    }
    launch.width = (launch.to | launch.first | launch.then | (uint64_t)x->columns * sizeof(float)) % 16 ? 4 : 16;
    const uint64_t rows = (uint64_t)launch.heads * x->rows, warps = FK_SUPPORT_THREADS / 32;
    const uint64_t down = (x->rows + UINT64_C(63)) / FK_SCAN_TILE, across = (x->columns + UINT64_C(63)) / FK_SCAN_TILE;
    const uint64_t tiles = launch.heads * down * (across + (step->whole ? down : 0));
    return fcp_cuda_launch(s, d, matrix ? CUDA_SCAN_MATRIX : CUDA_SCAN_SCALED,
                           matrix ? tiles : (rows + warps - 1) / warps, (uint32_t)d->multiprocessors, stream, &launch,
                           err);
}

/* The states that enter stretches and that no step writes are zeros. */
static fcp_code clear_states(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, fcp_error *err) {
    const fcp_recurrent *x = call->layer;
    const uint64_t stretches = r->rows->stretches, all = stretches * x->parts;
    const size_t part = fcp_part_state(x) * sizeof(float);
    if (!all) return FCP_OK;
    uint8_t *written = calloc(all, 1);
    if (!written) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %llu states", (unsigned long long)all);
    for (uint32_t i = 0; i < r->walk.count; i++) {
        const fcp_step *step = &r->walk.steps[i];
        if (step->op != FCP_STEP_SEND && step->out >= stretches && step->out < 2 * stretches)
            written[(step->out - stretches) * x->parts + step->part] = 1;
    }
    fcp_code code = FCP_OK;
    for (uint64_t at = 0, end; !code && at < all; at = end) {
        for (end = at; end < all && written[end] == written[at]; end++) {}
        if (!written[at])
            code = fcp_cuda_fill(s, r->tensors[2].inside + at * part, 0, (end - at) * part, r->rank->streams[FCP_COMM],
                                 err);
    }
    free(written);
    return code;
}

/* --- steps of halos ----------------------------------------------------------------------------------------------- */

/* Puts a launch for the rows of a group into the rank's stream. `to`, `from`: where row 0 of each place lies; from 0:
 * zeros are written. adds: rows are added. */
static fcp_code put_group(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, const cuda_halo_group *g,
                          cu_ptr to, cu_ptr from, bool adds, fcp_error *err) {
    const uint64_t all = to | from | call->row;
    const uint32_t number = adds ? (uint32_t)fcp_dtype_size((fcp_dtype)call->what.dtype) : 1;
    cuda_device *d = r->rank->device;
    fk_rows_launch launch = {.runs = r->rank->kept[CUDA_HALO_RUNS].at + g->first * sizeof(fk_rows_run),
                             .to = to,
                             .from = from,
                             .row = call->row,
                             .rows = g->rows,
                             .pieces = (call->row + FK_ROW_PIECE - 1) / FK_ROW_PIECE,
                             .run_count = g->count,
                             .back = call->adds,
                             .width = all % 16 == 0  ? 16
                                      : all % 4 == 0 ? 4
                                                     : number,
                             .type = call->what.dtype};
    const uint64_t warps = FK_SUPPORT_THREADS / 32;
    return fcp_cuda_launch(s, d, adds ? CUDA_ROWS_ADD : CUDA_ROWS_MOVE,
                           (launch.rows * launch.pieces + warps - 1) / warps, (uint32_t)d->multiprocessors,
                           r->rank->streams[FCP_COMM], &launch, err);
}

/* The groups of a step; `turned`: the last one first. */
static fcp_code put_groups(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, uint64_t step, cu_ptr to,
                           cu_ptr from, bool adds, bool turned, fcp_error *err) {
    const cuda_halo_lists *l = &r->rank->halos;
    const uint32_t *starts = l->starts + l->starts_of[call->what.layer] + step;
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < starts[1] - starts[0]; i++)
        code = put_group(s, call, r, &l->groups[turned ? starts[1] - 1 - i : starts[0] + i], to, from, adds, err);
    return code;
}

static uint64_t number_of(const rank_call *r, const fcp_step *step) { return (uint64_t)(step - r->walk.steps); }

/* The rows that a message has, side by side in the tensor, so that no message is needed. 0: they do not lie so, or are
 * to be added. */
static cu_ptr rows_side_by_side(const cuda_call *call, const rank_call *r, const fcp_step *step, fcp_direction dir) {
    if (step->b != 1 || (call->adds && dir == FCP_RECV)) return 0;
    const tensor *t = &r->tensors[dir == FCP_SEND ? 0 : 1];
    return t->inside + fcp_step_lists(r->walk.plan, step)->first * call->row;
}

/* COPYs that follow each other are done with the first of them. In the gradient that is the last one to come. */
static fcp_code copy_rows(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, const fcp_step *step,
                          fcp_error *err) {
    return put_groups(s, call, r, number_of(r, step), r->tensors[1].inside, r->tensors[0].inside, call->adds,
                      call->adds, err);
}

/* Packs the messages that an act sends, or does with those that it has received what is to be done. */
static fcp_code do_rows(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, fcp_direction dir,
                        fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < r->act.count; i++) {
        const fcp_step *step = fcp_act_step(&r->act, i);
        const cu_ptr message = (uintptr_t)r->wires[i].segment[0].data;
        if (r->wires[i].dir != dir || rows_side_by_side(call, r, step, dir)) continue;
        if (dir == FCP_SEND)
            code = put_groups(s, call, r, number_of(r, step), message, r->tensors[0].inside, false, false, err);
        else code = put_groups(s, call, r, number_of(r, step), r->tensors[1].inside, message, call->adds, false, err);
    }
    return code;
}

/* --- walking ------------------------------------------------------------------------------------------------------ */

static void make_wires(const cuda_call *call, rank_call *r) {
    cu_ptr message = r->memory + r->temporaries;
    for (uint32_t i = 0; i < r->act.count; i++) {
        const fcp_step *step = fcp_act_step(&r->act, i);
        const fcp_direction dir = fcp_act_direction(&r->act, i);
        fcp_wire *w = &r->wires[i];
        *w = (fcp_wire){.peer = step->peer, .dir = dir, .fabric = step->fabric, .segments = 1};
        if (call->layer->kind == FCP_SCAN) {
            const fcp_register x = register_of(call, r, step->op == FCP_STEP_SEND ? step->a : step->out, step->part);
            w->segments = (uint16_t)fcp_scan_segments(call->layer, step, &x, w->segment);
            continue;
        }
        const cu_ptr direct = rows_side_by_side(call, r, step, dir);
        const size_t bytes = fcp_step_rows(r->walk.plan, step) * call->row;
        w->segment[0] = (fcp_segment){(void *)(uintptr_t)(direct ? direct : message), bytes};
        if (!direct) message += fcp_cuda_room(bytes);
    }
}

/* Does the act move something over net in a stream of its own? */
static bool over_net(const rank_call *r) {
    bool net = false;
    for (uint32_t i = 0; i < r->act.count; i++) net |= r->act.first[i].fabric == FCP_NET;
    return net && r->rank->streams[CUDA_NET];
}

static fcp_code begin_transfers(fcp_cuda_session *s, const cuda_call *call, rank_call *r, fcp_error *err) {
    const cu_stream *streams = r->rank->streams;
    fcp_code code = r->act.count > WIRES ? fcp_fail(err, FCP_E_INTERNAL, "more transfers than a round has") : FCP_OK;
    if (code) return code;
    make_wires(call, r);
    if (call->layer->kind == FCP_HALO) code = do_rows(s, call, r, FCP_SEND, err);
    if (!code && over_net(r)) code = fcp_cuda_follow(s, r->rank->device, streams[FCP_COMM], streams[CUDA_NET], err);
    if (!code)
        code = fcp_net_launch(s->base.net, r->index, call->pass, fcp_round_tag(call->number, r->act.first->round),
                              r->wires, r->act.count, err);
    r->launched = !code;
    return code;
}

/* *out_behind: the transfers are complete, as far as this is put into streams. */
static fcp_code end_transfers(fcp_cuda_session *s, const cuda_call *call, rank_call *r, bool *out_behind,
                              fcp_error *err) {
    const cu_stream *streams = r->rank->streams;
    uint32_t late;
    const fcp_wait state = fcp_net_wait(s->base.net, r->index, 0, &late, err);
    *out_behind = state == FCP_WAIT_DONE;
    if (state == FCP_WAIT_PENDING) return FCP_OK;
    if (state == FCP_WAIT_FAILED) return err->code ? err->code : FCP_E_RUN;
    if (state == FCP_WAIT_ABORTED) return fcp_fail(err, FCP_E_RUN, "the transfers were given up");
    r->launched = false;
    fcp_code code =
        over_net(r) ? fcp_cuda_follow(s, r->rank->device, streams[CUDA_NET], streams[FCP_COMM], err) : FCP_OK;
    return code || call->layer->kind != FCP_HALO ? code : do_rows(s, call, r, FCP_RECV, err);
}

static fcp_code do_step(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, fcp_error *err) {
    const fcp_step *step = r->act.first;
    if (call->layer->kind == FCP_HALO) return copy_rows(s, call, r, step, err);
    if (step->op == FCP_STEP_COMBINE) return combine(s, call, r, step, err);
    return fcp_cuda_copy(s, r->rank->device, at_of(register_of(call, r, step->out, step->part).state), r->rank->device,
                         at_of(register_of(call, r, step->a, step->part).state),
                         fcp_part_state(call->layer) * sizeof(float), r->rank->streams[FCP_COMM], err);
}

/* Notes where an act ends in its stream, if somebody will wait for the call. */
static fcp_code note_end(fcp_cuda_session *s, cuda_call *call, const rank_call *r, fcp_error *err) {
    if (!call->waits) return FCP_OK;
    if (!FCP_GROW(call->ends, call->end_capacity, call->end_count + UINT64_C(1)))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the ends of steps");
    act_end *e = &call->ends[call->end_count];
    *e = (act_end){.rank = (uint32_t)(r - call->ranks), .act = r->act};
    const fcp_code code = fcp_cuda_event_record(s, r->rank->device, r->rank->streams[FCP_COMM], &e->event, err);
    if (!code) call->end_count++;
    return code;
}

/* Puts acts of a rank into its streams, as far as possible. *out_moved: something was put there. */
static fcp_code advance(fcp_cuda_session *s, cuda_call *call, rank_call *r, bool *out_moved, fcp_error *err) {
    fcp_code code = fcp_cuda_use(s, r->rank->device, err);
    while (!code && !r->over) {
        bool behind = true;
        if (!r->launched) {
            r->over = !fcp_step_walk_next(&r->walk, &r->act);
            *out_moved = true;
            if (r->over) return FCP_OK;
            code = fcp_net_pace(s->base.net, 1, err);
            if (!code) code = r->act.moves ? begin_transfers(s, call, r, err) : do_step(s, call, r, err);
        }
        if (!code && r->launched) code = end_transfers(s, call, r, &behind, err);
        if (!code && !behind) return FCP_OK;
        *out_moved = true;
        if (!code) code = note_end(s, call, r, err);
        if (code) return fail_act(call, r, &r->act, code, err);
    }
    return code;
}

static fcp_code put_steps(fcp_cuda_session *s, cuda_call *call, fcp_error *err) {
    fcp_code code = FCP_OK;
    bool over = false;
    while (!code && !over) {
        bool moved = false;
        over = true;
        for (uint32_t i = 0; !code && i < s->base.rank_count; i++) {
            code = advance(s, call, &call->ranks[i], &moved, err);
            over &= call->ranks[i].over;
        }
        if (!code && !over && !moved) code = fcp_fail(err, FCP_E_INTERNAL, "steps of a plan wait for each other");
    }
    fcp_net_reset(s->base.net);
    return code;
}

/* --- tensors that lie elsewhere ----------------------------------------------------------------------------------- */

static fcp_code bring_in(fcp_cuda_session *s, const rank_call *r, fcp_error *err) {
    cuda_rank *own = r->rank;
    fcp_code code = fcp_cuda_use(s, own->device, err);
    for (uint32_t i = 0; !code && i < r->tensor_count; i++) {
        const tensor *t = &r->tensors[i];
        if (!t->staged || !t->in) continue;
        if (t->there)
            code = fcp_cuda_copy(s, own->device, t->inside, t->there, (uintptr_t)t->outside, t->bytes,
                                 own->streams[FCP_COMM], err);
        else code = fcp_cuda_staging_in(s, own->device, t->inside, t->outside, t->bytes, err);
    }
    return code;
}

static fcp_code bring_out(fcp_cuda_session *s, const rank_call *r, fcp_error *err) {
    cuda_rank *own = r->rank;
    fcp_code code = fcp_cuda_use(s, own->device, err);
    for (uint32_t i = 0; !code && i < r->tensor_count; i++) {
        const tensor *t = &r->tensors[i];
        if (!t->staged || !t->out) continue;
        if (t->there)
            code = fcp_cuda_copy(s, t->there, (uintptr_t)t->outside, own->device, t->inside, t->bytes,
                                 own->streams[FCP_COMM], err);
        else code = fcp_cuda_staging_out(s, own->device, t->outside, t->inside, t->bytes, err);
    }
    return code;
}

/* The staging stream of each device that a rank of this process has comes before the rank's stream, or behind it. */
static fcp_code order_staging(fcp_cuda_session *s, bool before, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = s->base.first_rank; !code && i < fcp_cuda_end(s); i++) {
        cuda_rank *r = &s->ranks[i];
        cu_stream staging = r->device->staging.stream, comm = r->streams[FCP_COMM];
        if (before) code = fcp_cuda_staging_push(s, r->device, err);
        if (!code) code = fcp_cuda_follow(s, r->device, before ? staging : comm, before ? comm : staging, err);
    }
    return code;
}

/* --- the call in streams ------------------------------------------------------------------------------------------ */

/* Counted from the round with which the call begins; of an act without transfers 0: it waits for nobody. */
static uint32_t round_of(const act_end *e) {
    if (!e->act.moves) return 0;
    return e->act.back ? UINT32_MAX - e->act.first->round : e->act.first->round;
}

/* Something did not end, or failed: finds the act that has not ended and belongs to the earliest round. */
static void find_place(const fcp_cuda_session *s, const cuda_call *call, fcp_code code, fcp_error *err) {
    const act_end *least = NULL;
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        uint32_t i = 0;
        while (i < call->end_count &&
               (call->ends[i].rank != r || s->cuda->call.event_query(call->ends[i].event) == CU_SUCCESS))
            i++;
        const act_end *e = i < call->end_count ? &call->ends[i] : NULL;
        if (e && (!least || round_of(e) < round_of(least))) least = e;
    }
    if (least) fail_act(call, &call->ranks[least->rank], &least->act, code, err);
}

static fcp_code clear_results(fcp_cuda_session *s, const cuda_call *call, const rank_call *r, fcp_error *err) {
    const fcp_code code = fcp_cuda_use(s, r->rank->device, err);
    if (code || call->adds) return code;
    if (call->layer->kind == FCP_SCAN) return clear_states(s, call, r, err);
    return put_groups(s, call, r, r->walk.count, r->tensors[1].inside, 0, false, false, err);
}

static fcp_code put_call(fcp_cuda_session *s, void *context, cu_stream origin, bool wait, fcp_error *err) {
    cuda_call *call = context;
    cuda_device *d = &s->devices[0];
    const uint32_t ranks = s->base.rank_count;
    char what[CALL_TEXT];
    name_call(call, what);
    call->waits = wait;
    fcp_code code = fcp_net_watch(s->base.net, "what ran before", err);
    if (!code) code = fcp_cuda_await_before(s, origin, err);
    if (!code && call->host) code = fcp_cuda_wait(s, origin, "what came before", err);
    if (!code) code = fcp_cuda_fork(s, CUDA_COMM_STREAMS, d, origin, err);
    if (!code && call->host) code = fcp_cuda_stagings_follow(s, d, origin, err);
    for (uint32_t i = 0; !code && i < ranks; i++) code = bring_in(s, &call->ranks[i], err);
    if (!code && call->host) code = order_staging(s, true, err);
    for (uint32_t i = 0; !code && i < ranks; i++) code = clear_results(s, call, &call->ranks[i], err);
    if (!code) code = put_steps(s, call, err);
    if (!code && call->host) code = order_staging(s, false, err);
    for (uint32_t i = 0; !code && i < ranks; i++) code = bring_out(s, &call->ranks[i], err);
    for (uint32_t i = 0; !code && call->host && i < s->device_count; i++)
        code = fcp_cuda_staging_flush(s, &s->devices[i], err);
    if (!code && call->host) code = fcp_cuda_stagings_join(s, origin, err);
    if (!code) code = fcp_cuda_use(s, d, err);
    if (!code) code = fcp_cuda_join(s, CUDA_COMM_STREAMS, origin, err);
    if (!code) code = fcp_cuda_mark_finished(s, origin, err);
    if (!code && wait) code = fcp_cuda_wait(s, origin, what, err);
    if (!code && wait) code = fcp_net_watch(s->base.net, what, err);
    if (code && err->where.rank == FCP_NOWHERE) find_place(s, call, code, err);
    for (uint32_t i = 0; i < call->end_count; i++)
        fcp_cuda_event_give(call->ranks[call->ends[i].rank].rank->device, call->ends[i].event);
    call->end_count = 0;
    return code;
}

/* Is the stream being captured? Then all processes know the call already. */
static fcp_code see_capture(fcp_cuda_session *s, const cuda_call *call, cu_stream stream, fcp_error *err) {
    const fcp_code code = fcp_cuda_see_capture(s, stream, err);
    if (code || !s->outer || fcp_call_known(&s->calls, &call->what)) return code;
    return refuse_first(call, err);
}

/* Fills the tensors of a rank, and checks them. */
typedef fcp_code fill_rank(fcp_cuda_session *s, cuda_call *call, rank_call *r, const void *ranks, fcp_error *err);

/* Gets a call ready. */
static fcp_code prepare(fcp_cuda_session *s, cuda_call *call, fill_rank *fill, const void *ranks, fcp_error *err) {
    fcp_code code = FCP_OK;
    call->ranks = calloc(s->base.rank_count, sizeof *call->ranks);
    if (!call->ranks) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", s->base.rank_count);
    fcp_cuda_tensors_forget(s);
    for (uint32_t i = 0; !code && i < s->base.rank_count; i++) {
        rank_call *r = &call->ranks[i];
        const uint32_t rank = s->base.first_rank + i;
        *r = (rank_call){.rank = &s->ranks[rank],
                         .index = rank,
                         .rows = &s->base.rows[i],
                         .walk = fcp_step_walk_begin(s->plan, call->what.layer, call->pass, rank)};
        code = fill(s, call, r, ranks, err);
        if (!code && s->outer && call->host) code = fcp_cuda_refuse_host(err);
        if (!code) code = size_rank(call, r, err);
        if (!code) code = give_memory(s, call, r, err);
    }
    return code;
}

/* `made`: what has become of getting ready. Processes compare a call that is new. If the driver fails, or if nobody
 * knows what the others do, the session has failed. */
static fcp_code agree(fcp_cuda_session *s, cuda_call *call, fcp_code made, fcp_error *err) {
    const fcp_code code = fcp_agree_call(s->base.net, &s->calls, &call->what, made, &call->number, err);
    if (code == FCP_E_RUN || code == FCP_E_INTERRUPTED) fcp_cuda_break(s, code, err);
    return code;
}

/* An error before anything is put into streams leaves the session as it was. Where ranks are processes, that is so if
 * all of them learn of it: when the call is new (fcp_agree_call). */
static fcp_code make_call(fcp_cuda_session *s, cuda_call *call, fill_rank *fill, const void *ranks, cu_stream stream,
                          fcp_error *err) {
    cu_context before = NULL;
    cuda_device *d = NULL;
    fcp_error why = {.where = FCP_WHERE_NONE};
    fcp_code code = fcp_cuda_run_check(s, err);
    if (code) return code;
    s->recurs = true;
    call->layer = &s->plan->recurrent[call->what.layer];
    call->pass = (fcp_pass)call->what.pass;
    code = fcp_cuda_call_begin(s, stream, &before, &d, &why);
    if (!code && stream) code = see_capture(s, call, stream, &why);
    if (!code) code = fcp_cuda_use(s, &s->devices[0], &why);
    if (!code) code = prepare(s, call, fill, ranks, &why);
    if (!code || !s->outer) code = agree(s, call, code, &why);
    for (uint32_t i = 0; !code && s->outer && i < s->base.rank_count; i++) call->ranks[i].rank->in_graphs = true;
    if (!code) code = fcp_cuda_use(s, &s->devices[0], &why);
    if (!code) code = fcp_cuda_call_put(s, put_call, call, d, stream, call->host, &why);
    s->recurs = s->outer = false;
    s->cuda->call.context_set(before);
    free(call->ranks);
    free(call->ends);
    if (code && err) *err = why;
    return code;
}

/* --- the three calls ---------------------------------------------------------------------------------------------- */

static fcp_code fill_halo(fcp_cuda_session *s, cuda_call *call, rank_call *r, const void *ranks, fcp_error *err) {
    const fcp_halo_rank *x = (const fcp_halo_rank *)ranks + (r->index - s->base.first_rank);
    const uint64_t halo = ((uint64_t)call->layer->before + call->layer->after) * r->rows->stretches;
    const fcp_code code = add_tensor(s, call, r, "x", x->x, r->rows->tokens, call->row, 1, true, false, err);
    return code ? code : add_tensor(s, call, r, "halo", x->halo, halo, call->row, 1, false, true, err);
}

fcp_code fcp_cuda_halo(fcp_cuda_session *s, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks,
                       cu_stream stream, fcp_error *err) {
    cuda_call call = {.what = {.row = row_bytes, .kind = FCP_CALL_HALO, .layer = layer}, .row = row_bytes};
    return make_call(s, &call, fill_halo, ranks, stream, err);
}

static fcp_code fill_gradient(fcp_cuda_session *s, cuda_call *call, rank_call *r, const void *ranks, fcp_error *err) {
    const fcp_halo_gradient_rank *x = (const fcp_halo_gradient_rank *)ranks + (r->index - s->base.first_rank);
    const uint64_t halo = ((uint64_t)call->layer->before + call->layer->after) * r->rows->stretches;
    const size_t size = fcp_dtype_size((fcp_dtype)call->what.dtype);
    const fcp_code code = add_tensor(s, call, r, "d_halo", x->d_halo, halo, call->row, size, true, false, err);
    return code ? code : add_tensor(s, call, r, "dx", x->dx, r->rows->tokens, call->row, size, true, true, err);
}

fcp_code fcp_cuda_halo_gradient(fcp_cuda_session *s, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                                const fcp_halo_gradient_rank *ranks, cu_stream stream, fcp_error *err) {
    cuda_call call = {.what = {.row = numbers,
                               .kind = FCP_CALL_HALO_GRADIENT,
                               .layer = layer,
                               .pass = FCP_BACKWARD,
                               .dtype = (uint32_t)dtype},
                      .row = numbers * fcp_dtype_size(dtype),
                      .adds = true};
    return make_call(s, &call, fill_gradient, ranks, stream, err);
}

static fcp_code fill_scan(fcp_cuda_session *s, cuda_call *call, rank_call *r, const void *ranks, fcp_error *err) {
    const fcp_scan_rank *x = (const fcp_scan_rank *)ranks + (r->index - s->base.first_rank);
    const fcp_recurrent *layer = call->layer;
    const uint64_t heads = (uint64_t)r->rows->stretches * layer->heads, number = sizeof(float);
    const uint64_t decay = fcp_decay_numbers(layer) * number, state = fcp_state_numbers(layer) * number;
    fcp_code code = add_tensor(s, call, r, "decay", x->decay, heads, decay, number, true, false, err);
    if (!code) code = add_tensor(s, call, r, "state", x->state, heads, state, number, true, false, err);
    return code ? code : add_tensor(s, call, r, "entering", x->entering, heads, state, number, false, true, err);
}

fcp_code fcp_cuda_scan(fcp_cuda_session *s, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks, cu_stream stream,
                       fcp_error *err) {
    cuda_call call = {.what = {.kind = FCP_CALL_SCAN, .layer = layer, .pass = (uint32_t)pass}};
    return make_call(s, &call, fill_scan, ranks, stream, err);
}
