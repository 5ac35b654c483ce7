/* marks.c: how far each queue of each rank has come, as the devices write it, so that an error can name the place.
 *
 * Each queue of each rank has a word in host memory, its mark: the instruction that the queue has begun last. The
 * device writes it, and the host can read it at any time, also while a stream hangs. A kernel writes the mark itself
 * when it begins (fk_begin). For instructions without a kernel (those of the communication queue, reductions that are
 * copies, the end of a queue) a fill of one word writes it. A fill of host memory takes microseconds, so it is put into
 * a stream of its own that follows the queue's:
 *
 *   queue   ──[launch 3]──●──[launch 5]──●──          ● an event
 *   marks                 └▶[fill: 5]    └▶[fill: 6]
 *
 * The queue does not wait for its fills; only the end of a pass does. So a fill may be late. A compute queue, where
 * kernels write marks too, therefore has a second word for its fills, and the later of the two counts. A communication
 * queue with two streams (runtime/plan/fabrics.c) has a word for each, and the earlier of the two counts.
 *
 * Which rank is to blame? One that waits for no other rank; if everything has stopped, there is one. What a rank waits
 * for follows from its communication queue:
 *   in a LAUNCH   for those ranks of the launch that have not come to its round
 *   in a WAIT     for its own compute queue, which has not finished what it began last. (Otherwise the WAIT would be
 *                 over, since a plan has no cycles.) So for no other rank
 * Of the ranks that wait for no other, the one in the earliest stage is named. If things still move, this is the rank
 * that is furthest behind, which need not be the one to blame.
 *
 * Requires: open devices with their staging streams, and ranks.
 * Gives:    if the driver refuses to fill host memory, in a stream or in a graph, the session has no marks, its errors
 *           do not name the instruction, and a warning says so.
 * Cost:     one fill for a run, while inputs are moved. In a pass, and so in its graph, a fill for each WAIT and LAUNCH
 *           of a communication queue, one for each REDUCE that copies, and two for each rank at the end. Reading is
 *           linear in what the queues have left.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/enum_names.h"

#include <stdio.h>
#include <string.h>

#include "runtime/exec/error_place.h"

/* The value of a mark: the pass in the bits from PASS_SHIFT on, and below them the number of the instruction that was
 * begun, counted from 1. At the end of the queue that number is one more than there are instructions. BEFORE: the run
 * has begun, but none of its instructions. 0: nothing has ever run. */
enum { PASS_SHIFT = 30, INSTR_MASK = (1u << PASS_SHIFT) - 1 };
#define BEFORE (1u << 31)

/* Returns which word belongs to a stream of a rank. The first words are two for each rank, one for each queue. Then
 * each rank has a word that fills of its compute queue write, and then each has one for its transfers over net. */
static uint32_t index_of(const fcp_cuda_session *s, uint32_t rank, int stream, bool fills) {
    uint32_t local = rank - s->base.first_rank, count = s->base.rank_count;
    if (stream == CUDA_NET) return count * (FCP_QUEUES + 1) + local;
    return fills && stream == FCP_COMPUTE ? count * FCP_QUEUES + local : local * FCP_QUEUES + (uint32_t)stream;
}
static size_t words(const fcp_cuda_session *s) { return (size_t)s->base.rank_count * (FCP_QUEUES + 2); }

static uint32_t word_of(const fcp_cuda_session *s, uint32_t rank, fcp_queue queue) {
    const volatile uint32_t *marks = s->marks;
    uint32_t x = marks[index_of(s, rank, queue, false)], y = marks[index_of(s, rank, queue, true)];
    bool earlier = queue == FCP_COMM && s->ranks[rank].streams[CUDA_NET];
    if (earlier) y = marks[index_of(s, rank, CUDA_NET, true)];
    /* BEFORE is the largest number, and the earliest place */
    uint32_t place_x = x & BEFORE ? 0 : x, place_y = y & BEFORE ? 0 : y;
    return (place_x > place_y) != earlier ? x : y;
}

size_t fcp_cuda_marks_pinned(const fcp_cuda_session *s) { return words(s) * sizeof *s->marks; }

/* Lets a device fill the first mark with `value`, by a graph if there is one, and asks whether it has. */
static fcp_code try_fill(fcp_cuda_session *s, const cuda_device *d, cu_stream stream, cu_graph_exec exec,
                         uint32_t value, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    const volatile uint32_t *word = s->marks;
    cu_result result = exec ? call->graph_launch(exec, stream) : call->fill(d->marks, value, 1, stream);
    fcp_code code = fcp_cuda_check(s->cuda, result, err, "device %d does not fill memory of the host", d->handle);
    if (!code) code = fcp_cuda_wait(s, stream, "a fill of host memory", err);
    if (!code && *word != value)
        code = fcp_fail(err, FCP_E_RUN, "device %d fills memory of the host wrongly", d->handle);
    return code;
}

/* The same by a graph. */
static fcp_code try_graph(fcp_cuda_session *s, const cuda_device *d, cu_stream stream, uint32_t value, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    cu_result result = call->capture_begin(stream, CU_CAPTURE_THREAD_LOCAL);
    if (!result) {
        result = call->fill(d->marks, value, 1, stream);
        cu_result ended = call->capture_end(stream, &graph);
        if (!result) result = ended;
    }
    if (!result) result = call->graph_instantiate(&exec, graph, 0);
    fcp_code code = fcp_cuda_check(s->cuda, result, err, "device %d has no graph that fills memory of the host",
                                   d->handle);
    if (!code) code = try_fill(s, d, stream, exec, value, err);
    if (exec) call->graph_exec_destroy(exec);
    if (graph) call->graph_destroy(graph);
    return code;
}

/* Does a device fill host memory, in a stream and in a graph? */
static fcp_code probe(fcp_cuda_session *s, const cuda_device *d, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_stream stream = NULL;
    fcp_code code = fcp_cuda_stream_make(s, d, &stream, err);
    if (!code) code = try_fill(s, d, stream, NULL, 1, err);
    if (!code) code = try_graph(s, d, stream, 2, err);
    if (stream) call->stream_destroy(stream);
    return code;
}

/* Goes on without marks if a device does not write them. */
static void probe_all(fcp_cuda_session *s) {
    fcp_error why = {0};
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++) code = probe(s, &s->devices[i], &why);
    memset(s->marks, 0, fcp_cuda_marks_pinned(s));
    if (!code) return;
    fcp_cuda_marks_close(s);
    if (!s->warning[0])
        snprintf(s->warning, sizeof s->warning, "errors of runs will not name the instruction: %.300s", why.message);
}

fcp_code fcp_cuda_marks_open(fcp_cuda_session *s, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    size_t bytes = fcp_cuda_marks_pinned(s);
    void *memory = NULL;
    fcp_code code = fcp_cuda_use(s, &s->devices[0], err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->allocate_host(&memory, bytes, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP), err,
                              "no %zu bytes of host memory that devices reach", bytes);
    if (code) return code;
    s->marks = memory;
    memset(memory, 0, bytes);
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        code = fcp_cuda_use(s, &s->devices[i], err);
        if (!code)
            code = fcp_cuda_check(s->cuda, call->device_pointer(&s->devices[i].marks, memory, 0), err,
                                  "device %d does not reach memory of the host", s->devices[i].handle);
    }
    if (!code) probe_all(s);
    return code;
}

void fcp_cuda_marks_close(fcp_cuda_session *s) {
    if (s->marks) s->cuda->call.release_host(s->marks);
    s->marks = NULL;
}

static cu_ptr address(const fcp_cuda_session *s, const cuda_rank *rank, int stream, bool fills) {
    return rank->device->marks + index_of(s, (uint32_t)(rank - s->ranks), stream, fills) * sizeof *s->marks;
}

cu_ptr fcp_cuda_mark_at(const fcp_cuda_session *s, const cuda_rank *rank) {
    return address(s, rank, FCP_COMPUTE, false);
}

uint32_t fcp_cuda_mark_value(fcp_pass pass, uint32_t instr) {
    return (uint32_t)pass << PASS_SHIFT | ((instr + 1) & INSTR_MASK);
}

/* Writes a value beside one of the rank's streams. */
static fcp_code mark(fcp_cuda_session *s, const cuda_rank *rank, int stream, uint32_t value, fcp_error *err) {
    fcp_code code = fcp_cuda_follow(s, rank->device, rank->streams[stream], rank->marks[stream], err);
    if (code) return code;
    return fcp_cuda_check(s->cuda, s->cuda->call.fill(address(s, rank, stream, true), value, 1, rank->marks[stream]),
                          err, "cannot mark progress");
}

fcp_code fcp_cuda_mark(fcp_cuda_session *s, const cuda_rank *rank, fcp_queue queue, uint32_t value, fcp_error *err) {
    fcp_code code = s->marks ? mark(s, rank, queue, value, err) : FCP_OK;
    bool net = s->marks && queue == FCP_COMM && rank->streams[CUDA_NET];
    return code || !net ? code : mark(s, rank, CUDA_NET, value, err);
}

fcp_code fcp_cuda_marks_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; s->marks && !code && r < fcp_cuda_end(s); r++)
        for (int q = 0; !code && q < CUDA_STREAMS; q++)
            if (s->ranks[r].marks[q]) code = fcp_cuda_follow(s, s->ranks[r].device, s->ranks[r].marks[q], origin, err);
    return code;
}

fcp_code fcp_cuda_marks_begin(fcp_cuda_session *s, fcp_pass pass, const cuda_device *d, cu_stream origin,
                              fcp_error *err) {
    fcp_code code = s->marks ? fcp_cuda_use(s, d, err) : FCP_OK;
    if (code || !s->marks) return code;
    return fcp_cuda_check(s->cuda,
                          s->cuda->call.fill(d->marks, (uint32_t)pass << PASS_SHIFT | BEFORE, words(s), origin), err,
                          "cannot mark progress");
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* How far a queue has come. */
typedef enum progress { BEFORE_ALL, IN_ONE, BEHIND_ALL } progress;
typedef struct place {
    uint32_t rank, instr, stage, round; /* instr: before all: the first one, behind all: the last; round: or FCP_NONE */
    fcp_pass pass;
    fcp_queue queue;
    fcp_op op;
    progress progress;
} place;

/* Reads how far a queue has come. False: the rank is not of this process, or nothing has run. */
static bool place_of(const fcp_cuda_session *s, uint32_t rank, fcp_queue queue, place *out) {
    if (!s->marks || rank < s->base.first_rank || rank >= fcp_cuda_end(s)) return false;
    uint32_t word = word_of(s, rank, queue), number = word & INSTR_MASK;
    fcp_pass pass = word >> PASS_SHIFT & 1 ? FCP_BACKWARD : FCP_FORWARD;
    if (!word || !(s->plan->problem->passes >> pass & 1)) return false;
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, rank, queue);
    *out = (place){.rank = rank, .pass = pass, .queue = queue, .round = FCP_NONE};
    out->progress = word & BEFORE ? BEFORE_ALL : number > stream->count ? BEHIND_ALL : IN_ONE;
    if (!stream->count) return true;
    out->instr = out->progress == BEFORE_ALL ? 0 : out->progress == IN_ONE ? number - 1 : stream->count - 1;
    const fcp_instr *x = &s->plan->instrs[stream->first + out->instr];
    out->op = (fcp_op)x->op;
    out->stage = x->stage;
    if (x->op == FCP_OP_LAUNCH) out->round = x->c;
    return true;
}

/* Has a rank begun its LAUNCH of a round, or is it past it? */
static bool has_come(const fcp_cuda_session *s, uint32_t rank, fcp_pass pass, uint32_t round) {
    place at;
    if (!place_of(s, rank, FCP_COMM, &at) || at.pass != pass) return true; /* a rank of another process: nobody knows */
    if (at.progress == BEHIND_ALL) return true;
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, rank, FCP_COMM);
    for (uint32_t i = at.instr; i < stream->count; i++) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        if (x->op == FCP_OP_LAUNCH && x->c == round) return i == at.instr && at.progress == IN_ONE;
    }
    return true;
}

/* Finds the queue of a rank that waits for nothing but itself. False: there is none, or both have ended. */
static bool own_fault(const fcp_cuda_session *s, uint32_t rank, place *out) {
    place compute, comm;
    if (!place_of(s, rank, FCP_COMPUTE, &compute) || !place_of(s, rank, FCP_COMM, &comm)) return false;
    bool ended = compute.progress == BEHIND_ALL;
    *out = comm;
    if (comm.progress == BEHIND_ALL || (comm.progress == IN_ONE && comm.op == FCP_OP_WAIT)) {
        if (!ended) *out = compute;
        return !ended || comm.progress != BEHIND_ALL;
    }
    if (comm.progress == BEFORE_ALL) return true;
    const fcp_instr *x = &s->plan->instrs[fcp_stream_of(s->plan, comm.pass, rank, FCP_COMM)->first + comm.instr];
    for (uint32_t i = x->a; i < x->a + x->b; i++)
        if (!has_come(s, s->plan->transfers[i].peer, comm.pass, comm.round)) return false;
    return true;
}

/* Of the ranks of this process that wait for no other rank, finds the one in the earliest stage. False: all have
 * ended. */
static bool least_far(const fcp_cuda_session *s, place *out) {
    bool found = false;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++) {
        place at;
        if (!own_fault(s, r, &at)) continue;
        bool begun = at.progress != BEFORE_ALL, out_begun = found && out->progress != BEFORE_ALL;
        if (!found || begun < out_begun || (begun == out_begun && at.stage < out->stage)) *out = at;
        found = true;
    }
    return found;
}

/* Are all queues before their first instruction, or all after their last? */
static bool all_are(const fcp_cuda_session *s, progress which) {
    place at;
    for (uint32_t r = s->base.first_rank; r < fcp_cuda_end(s); r++)
        for (int q = 0; q < FCP_QUEUES; q++)
            if (!place_of(s, r, (fcp_queue)q, &at) || at.progress != which) return false;
    return true;
}

static fcp_where where_of(const fcp_cuda_session *s, const place *at) {
    return fcp_where_instruction(s->plan, at->pass, at->rank, at->queue, at->instr);
}

/* Words a place: "rank 3, forward pass, stage 2, ...". */
static void place_text(const fcp_cuda_session *s, const place *at, char text[FCP_WHERE_TEXT]) {
    const fcp_where where = where_of(s, at);
    const char *before = at->progress == IN_ONE ? "" : at->progress == BEFORE_ALL ? "before " : "behind ";
    int n = fcp_where_text(s->plan, &where, before, text, FCP_WHERE_TEXT);
    if (at->round == FCP_NONE) return;
    const fcp_instr *x = &s->plan->instrs[fcp_stream_of(s->plan, at->pass, at->rank, at->queue)->first + at->instr];
    n += snprintf(text + n, FCP_WHERE_TEXT - (size_t)n, ", round %u", at->round);
    for (uint32_t i = 0; i < x->b && i < 2; i++) /* one that is sent and one that is received */
        if (!i || s->plan->transfers[x->a + i].peer != s->plan->transfers[x->a].peer)
            n += snprintf(text + n, FCP_WHERE_TEXT - (size_t)n, "%s %u", i ? " and" : " with rank",
                          s->plan->transfers[x->a + i].peer);
}

fcp_code fcp_cuda_fail_where(const fcp_cuda_session *s, fcp_code code, fcp_error *err) {
    place at;
    fcp_where where = FCP_WHERE_NONE;
    char text[FCP_WHERE_TEXT];
    if (!s->marks || s->recurs || !err || err->where.rank != FCP_NOWHERE) return code;
    if (!place_of(s, s->base.first_rank, FCP_COMM, &at)) { /* nothing has ever run */
        if (s->base.rank_count != 1) return code;
        return fcp_fail_at(err, code, fcp_where_rank(s->base.first_rank), "rank %u: %.500s", s->base.first_rank,
                           err->message);
    }
    bool one = s->base.rank_count == 1, before = !one && all_are(s, BEFORE_ALL),
         behind = !one && all_are(s, BEHIND_ALL);
    if (before || behind) {
        where.pass = (uint32_t)at.pass;
        snprintf(text, sizeof text, before ? "%s pass, before every instruction, while inputs are moved"
                                           : "%s pass, behind every instruction, while outputs are moved",
                                           fcp_pass_names[at.pass]);
    } else {
        if (!least_far(s, &at) && !one) return code; /* a single rank that has ended is at its end */
        where = where_of(s, &at);
        place_text(s, &at, text);
    }
    return fcp_fail_at(err, code, where, "%s: %.300s", text, err->message);
}
