/* test_cuda_recurrent.c: halos and scans of sessions on the stand-in driver. Every result has the bits of the host's,
 * in whatever memory tensors are and on whatever stream. The stand-in runs work in any order that events allow, so a
 * missing event is trouble or a wrong result. */
#include <stdio.h>

#include "runtime/libraries/cuda_driver.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/device_pool.h"
#include "tests/support/recurrent_ops.h"
#include "tests/support/recurrent_plan.h"
#include "tests/support/scatter.h"

enum { MOST_DEVICES = 4 };

/* The devices as a caller has them, and a stream of each. */
typedef struct machine {
    standin *x;
    fcp_cuda *cuda;
    uint32_t devices;
    cu_context contexts[MOST_DEVICES];
    cu_stream streams[MOST_DEVICES];
} machine;

static machine machine_open(standin *x, uint32_t devices) {
    machine m = {.x = x, .devices = devices};
    fcp_error err = {0};
    x->devices = (int)devices;
    cr_assert_eq(fcp_cuda_open(&m.cuda, &err), FCP_OK, "%s", err.message);
    for (uint32_t i = 0; i < devices; i++) {
        cr_assert(!m.cuda->call.context_retain(&m.contexts[i], (int)i) && !m.cuda->call.context_set(m.contexts[i]));
        cr_assert(!m.cuda->call.stream_create(&m.streams[i], CU_STREAM_NON_BLOCKING, 0));
    }
    cr_assert(!m.cuda->call.context_set(m.contexts[0]));
    return m;
}

static void machine_close(machine *m) {
    for (uint32_t i = 0; i < m->devices; i++) {
        m->cuda->call.stream_destroy(m->streams[i]);
        m->cuda->call.context_release((int)i);
    }
    fcp_cuda_close(m->cuda);
    cr_assert_eq(m->x->live, 0, "%ld objects are left", m->x->live);
    cr_assert_str_empty(m->x->trouble, "%s", m->x->trouble);
}

/* Where tensors lie: on the rank's device, on the first one, in pinned or in ordinary memory of the host; or each
 * tensor somewhere else. */
typedef enum where { OWN, FIRST, PINNED, PAGEABLE, MIXED, WHERES } where;

typedef struct placed {
    char *at[OP_RANKS][OP_TENSORS];
    void *memory[OP_RANKS][OP_TENSORS];
    where where[OP_RANKS][OP_TENSORS];
} placed;

/* Memory for a call's tensors, which begin `beyond` times their alignment behind a multiple of 16. */
static void place(machine *m, const recurrent_op *op, where all, size_t beyond, placed *p) {
    for (uint32_t r = 0; r < op->plan->problem->ranks; r++)
        for (uint32_t t = 0; t < op->count; t++) {
            const size_t bytes = op->bytes[r][t] + beyond * op->align, room = bytes ? bytes : 1;
            const where w = all == MIXED ? (where)((r + t + op->layer) % MIXED) : all;
            cu_ptr memory = 0;
            cr_assert(!m->cuda->call.context_set(m->contexts[w == OWN ? r % m->devices : 0]));
            p->where[r][t] = w;
            if (w == PAGEABLE) p->memory[r][t] = malloc(room);
            else if (w == PINNED)
                cr_assert(!m->cuda->call.allocate_host(&p->memory[r][t], room, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP));
            else cr_assert(!m->cuda->call.allocate(&memory, room));
            if (memory) p->memory[r][t] = (void *)(uintptr_t)memory;
            p->at[r][t] = (char *)p->memory[r][t] + (w == PAGEABLE ? 0 : beyond * op->align);
            memcpy(p->at[r][t], op->start[r][t], op->bytes[r][t]);
        }
    m->cuda->call.context_set(m->contexts[0]);
}

static void release(machine *m, const recurrent_op *op, placed *p) {
    for (uint32_t r = 0; r < op->plan->problem->ranks; r++)
        for (uint32_t t = 0; t < op->count; t++)
            if (p->where[r][t] == PAGEABLE) free(p->memory[r][t]);
            else if (p->where[r][t] == PINNED) m->cuda->call.release_host(p->memory[r][t]);
            else m->cuda->call.release((uintptr_t)p->memory[r][t]);
}

static void compare_all(const recurrent_op *op, const placed *p, const char *what) {
    for (uint32_t r = 0; r < op->plan->problem->ranks; r++) op_compare(op, r, p->at[r], what);
}

/* A batch, ranks on one or two nodes, and placements of several kinds. */
static fcp_plan *plan_for(uint64_t seed, fcp_recurrent *layers, uint32_t count, char *text, size_t size) {
    static const char *const clusters[] = {"gpus = 4", "nodes = 2; gpus = 2", "gpus = 1", "nodes = 3; gpus = 1",
                                           "gpus = 3", "nodes = 2; gpus = 3"};
    static const char *const plans[] = {"layout = zigzag; strategy = zigzag; block = 128",
                                        "strategy = fcp; block = 128",
                                        "strategy = cad; block = 128",
                                        "layout = contiguous; strategy = ring; block = 128",
                                        "strategy = ring; block = 128",
                                        "block = 32"};
    uint64_t random = seed;
    char lengths[200] = "";
    size_t used = 0;
    for (uint64_t i = 0, n = 1 + splitmix(&random) % 4; i < n; i++)
        used += (size_t)snprintf(lengths + used, sizeof lengths - used, "%s%u", i ? ", " : "",
                                 1 + (unsigned)(splitmix(&random) % 500));
    snprintf(
        text, size,
        "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = bf16 }\ncluster { %s }\nbatch { lengths = [%s] }\n"
        "plan { mask = causal; %s; passes = forward, backward }\n",
        clusters[seed % 6], lengths, plans[splitmix(&random) % 6]);
    scatter by = scatter_new(seed);
    by.one_range = true; /* else queries and keys may have homes of their own */
    fcp_plan *plan = strstr(text, "block = 32") ? scatter_plan(text, &by) : plan_named("recurrent", text);
    cr_assert_not_null(plan, "%s", text);
    recurrent_give(plan, layers, count);
    return plan;
}

static fcp_session *open_host(const fcp_plan *plan) {
    const fcp_session_options options = {.size = sizeof options, .compute_threads = 2, .timeout_s = 60};
    fcp_session *session = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    return session;
}
static fcp_session *open_cuda(standin *x, const fcp_plan *plan, uint32_t timeout_s) {
    const fcp_session_options options = {.size = sizeof options,
                                         .backend = "cuda",
                                         .timeout_s = timeout_s,
                                         .graph_from = 2,
                                         .stage_bytes = 4096};
    fcp_session *session = NULL;
    fcp_error err = {0};
    x->plan = plan;
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    return session;
}

/* Ends what a stream has. */
static void finish(machine *m, fcp_session *session) {
    fcp_error err = {0};
    cr_assert_eq(fcp_session_wait(session, &err), FCP_OK, "%s; %s", err.message, m->x->trouble);
}

/* A stream of a device that a session of so many ranks uses, a default stream, or none. */
static void *stream_for(const machine *m, uint32_t ranks, uint64_t which) {
    static const uintptr_t defaults[] = {CU_DEFAULT_LEGACY, CU_DEFAULT_PER_THREAD};
    const uint32_t devices = ranks < m->devices ? ranks : m->devices;
    if (which % 5 == 0) return NULL;
    return which % 5 < 3 ? m->streams[which / 5 % devices] : (void *)defaults[which % 2];
}

/* Makes a graph of calls; with `tensors`, a pass of attention comes behind each of them. */
static cu_graph_exec captured_ops(machine *m, fcp_session *session, const recurrent_op *ops, const placed *p,
                                  uint32_t count, const fcp_tensors *tensors, cu_stream stream) {
    const fcp_cuda_table *call = &m->cuda->call;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    fcp_error err = {0};
    cr_assert(!call->capture_begin(stream, CU_CAPTURE_THREAD_LOCAL));
    for (uint32_t i = 0; i < count; i++) {
        cr_assert(op_call(session, &ops[i], p[i].at, 0, ops[i].plan->problem->ranks, stream, &err) == FCP_OK, "%s",
                  err.message);
        if (tensors)
            cr_assert(fcp_session_run_on(session, (fcp_pass)(i % FCP_PASSES), tensors, stream, &err) == FCP_OK, "%s",
                      err.message);
    }
    cr_assert(!call->capture_end(stream, &graph), "streams have joined the capture and not come back");
    cr_assert(!call->graph_instantiate(&exec, graph, 0) && !call->graph_destroy(graph));
    return exec;
}

/* Tensors are as before the call, and all bytes of results are others. fed: the second tensor is another call's result.
 * */
static void begin_again(const recurrent_op *op, const placed *p, bool fed) {
    for (uint32_t r = 0; r < op->plan->problem->ranks; r++)
        for (uint32_t t = 0; t < op->count; t++) {
            if (fed && t == 1) continue;
            memcpy(p->at[r][t], op->start[r][t], op->bytes[r][t]);
            if (op->written >> t & 1 && op->kind != OP_GRADIENT) memset(p->at[r][t], 0x6f, op->bytes[r][t]);
        }
}

/* --- right -------------------------------------------------------------------------------------------------------- */

/* Random plans, layers, memory and streams. */
Test(cuda_recurrent, as_the_host, .timeout = 600) {
    standin *x = stand();
    for (uint64_t seed = 0; seed < amount(12, 40); seed++) {
        fcp_recurrent layers[OP_LAYERS];
        char text[600], what[800];
        op_layers(seed, layers);
        fcp_plan *plan = plan_for(seed, layers, OP_LAYERS, text, sizeof text);
        machine m = machine_open(x, 1 + (uint32_t)(seed % 3));
        fcp_session *host = open_host(plan), *session = open_cuda(x, plan, 60);
        x->seed = seed;
        for (uint32_t i = 0; i < 2 * OP_LAYERS; i++) {
            const uint64_t draw = seed * 100 + i;
            recurrent_op op = op_of(plan, i / 2, (int)(i % 2), draw);
            placed p;
            fcp_error err = {0};
            snprintf(what, sizeof what, "seed %lu\n%s", (unsigned long)seed, text);
            op_judge(host, &op);
            place(&m, &op, (where)(draw / 3 % WHERES), draw % 3, &p);
            void *stream = stream_for(&m, plan->problem->ranks, draw);
            const fcp_code code = op_call(session, &op, p.at, 0, plan->problem->ranks, stream, &err);
            cr_assert(code == FCP_OK, "%s; %s\n%s", err.message, x->trouble, what);
            if (stream) finish(&m, session);
            compare_all(&op, &p, what);
            release(&m, &op, &p);
            op_free(&op);
        }
        fcp_session_free(host);
        fcp_session_free(session);
        fcp_plan_free(plan);
        machine_close(&m);
    }
}

/* Calls follow each other on streams of two devices without a wait of the host's, with runs of attention between them.
 * What one call writes the next one reads. */
Test(cuda_recurrent, calls_come_one_after_the_other, .timeout = 300) {
    standin *x = stand();
    fcp_recurrent layers[OP_LAYERS];
    char text[600];
    op_layers(5, layers);
    layers[3].rows = layers[3].columns = 4; /* of a vector */
    fcp_plan *plan = plan_for(7, layers, OP_LAYERS, text, sizeof text);
    machine m = machine_open(x, 2);
    fcp_session *host = open_host(plan);
    fcp_shape shape;
    fcp_error err = {0};
    fcp_plan_shape(plan, &shape);
    const uint32_t ranks = plan->problem->ranks;
    for (uint64_t seed = 0; seed < amount(4, 40); seed++) {
        fcp_session *session = open_cuda(x, plan, 60);
        fcp_packed packed = {0};
        fcp_tensors tensors[OP_RANKS] = {{0}};
        cu_ptr memory[OP_RANKS][FCP_TENSORS] = {{0}};
        x->seed = seed;
        for (uint32_t r = 0; r < ranks; r++)
            for (int t = 0; t < FCP_TENSORS; t++) {
                const size_t bytes =
                    fcp_tensors_tokens(plan, r, (fcp_tensor)t) * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
                m.cuda->call.context_set(m.contexts[r % 2]);
                cr_assert(!m.cuda->call.allocate(&memory[r][t], bytes + 16));
                memset((void *)(uintptr_t)memory[r][t], 0, bytes);
                if (t != FCP_TENSOR_DLSE) fcp_tensors_set(&tensors[r], (fcp_tensor)t, (void *)(uintptr_t)memory[r][t]);
            }
        m.cuda->call.context_set(m.contexts[0]);
        /* a scan, a scan of what came of it, its backward scan, a halo, and one of tensors in host memory; each twice
         * */
        enum { OPS = 5 };
        recurrent_op ops[OPS];
        placed p[OPS];
        for (int i = 0; i < 3; i++)
            ops[i] = op_draw(plan, 3, OP_SCAN, i == 2 ? FCP_BACKWARD : FCP_FORWARD, FCP_FP32, 0, seed + 9);
        for (int i = 3; i < OPS; i++) ops[i] = op_draw(plan, 1, OP_HALO, FCP_FORWARD, FCP_FP32, i == 3 ? 64 : 12, seed);
        for (int i = 0; i < OPS; i++) {
            if (i == 1 || i == 2)
                for (uint32_t r = 0; r < ranks; r++)
                    memcpy(ops[i].right[r][1], ops[i - 1].right[r][2], ops[i].bytes[r][1]);
            op_judge(host, &ops[i]);
            place(&m, &ops[i], i == 4 ? PAGEABLE : OWN, 0, &p[i]);
            for (uint32_t r = 0; (i == 1 || i == 2) && r < ranks; r++) p[i].at[r][1] = p[i - 1].at[r][2];
        }
        for (int twice = 0; twice < 2; twice++)
            for (int i = 0; i < OPS; i++) {
                void *stream = m.streams[(seed + (uint64_t)i) % 2];
                fcp_code code = op_call(session, &ops[i], p[i].at, 0, ranks, stream, &err);
                cr_assert(code == FCP_OK, "%s; %s", err.message, x->trouble);
                if (i == 3) continue; /* the next call comes at once */
                code = fcp_session_run_on(session, i % 2 ? FCP_BACKWARD : FCP_FORWARD, tensors, m.streams[i % 2], &err);
                cr_assert(code == FCP_OK, "%s; %s", err.message, x->trouble);
            }
        finish(&m, session);
        for (int i = 0; i < OPS; i++) compare_all(&ops[i], &p[i], "in a row");
        /* as a step of a model in a graph: only what lies in device memory, with attention between */
        cu_graph_exec graph = captured_ops(&m, session, ops, p, OPS - 1, tensors, m.streams[seed % 2]);
        for (int i = 0; i < OPS - 1; i++) begin_again(&ops[i], &p[i], i == 1 || i == 2);
        m.cuda->call.context_set(m.contexts[seed % 2]);
        for (int launch = 0; launch < 2; launch++) cr_assert(!m.cuda->call.graph_launch(graph, m.streams[seed % 2]));
        m.cuda->call.context_set(m.contexts[0]);
        finish(&m, session);
        for (int i = 0; i < OPS - 1; i++) compare_all(&ops[i], &p[i], "a step in a graph");
        cr_assert(!m.cuda->call.graph_exec_destroy(graph));
        for (int i = OPS - 1; i >= 0; i--) {
            for (uint32_t r = 0; (i == 1 || i == 2) && r < ranks; r++) p[i].at[r][1] = p[i].memory[r][1];
            release(&m, &ops[i], &p[i]);
            op_free(&ops[i]);
        }
        for (uint32_t r = 0; r < ranks; r++)
            for (int t = 0; t < FCP_TENSORS; t++) m.cuda->call.release(memory[r][t]);
        fcp_packed_free(&packed);
        fcp_session_free(session);
    }
    fcp_session_free(host);
    fcp_plan_free(plan);
    machine_close(&m);
}

/* What is in the caller's stream comes before, and what is put there later comes behind. */
Test(cuda_recurrent, the_callers_stream) {
    standin *x = stand();
    fcp_recurrent layers[OP_LAYERS];
    char text[600];
    op_layers(3, layers);
    fcp_plan *plan = plan_for(6, layers, OP_LAYERS, text, sizeof text);
    machine m = machine_open(x, 1);
    fcp_session *host = open_host(plan), *session = open_cuda(x, plan, 60);
    for (uint32_t i = 0; i < 2 * OP_LAYERS; i++) {
        recurrent_op op = op_of(plan, i / 2, (int)(i % 2), i + 4);
        placed from, p, out;
        fcp_error err = {0};
        op_judge(host, &op);
        place(&m, &op, OWN, 0, &from);
        place(&m, &op, OWN, 0, &p);
        place(&m, &op, OWN, 0, &out);
        for (int side = 0; side < 2; side++) {
            for (uint32_t r = 0; r < plan->problem->ranks; r++)
                for (uint32_t t = 0; t < op.count; t++) {
                    placed *to = side ? &out : &p, *of = side ? &p : &from;
                    if (!side) memset(p.at[r][t], 0x7f, op.bytes[r][t]);
                    if (op.bytes[r][t])
                        cr_assert(!m.cuda->call.copy((uintptr_t)to->at[r][t], (uintptr_t)of->at[r][t], op.bytes[r][t],
                                                     m.streams[0]));
                }
            if (side) break;
            x->seed = i;
            cr_assert(op_call(session, &op, p.at, 0, plan->problem->ranks, m.streams[0], &err) == FCP_OK, "%s",
                      err.message);
        }
        cr_assert(!m.cuda->call.stream_wait(m.streams[0]));
        compare_all(&op, &out, "copied behind the call");
        release(&m, &op, &from);
        release(&m, &op, &p);
        release(&m, &op, &out);
        op_free(&op);
    }
    fcp_session_free(host);
    fcp_session_free(session);
    fcp_plan_free(plan);
    machine_close(&m);
}

/* Another plan of the same session, with other layers; and a session whose first plan has layers while the second one
 * is selected. Memory is the allocator's, and it gets all of it back. */
Test(cuda_recurrent, other_plans, .timeout = 300) {
    standin *x = stand();
    fcp_recurrent layers[OP_LAYERS];
    char text[600];
    device_pool pool = {.stand = x, .devices = 1};
    machine m = machine_open(x, 1);
    fcp_error err = {0};
    fcp_plan *plans[3];
    x->pooled = true;
    for (uint32_t i = 0; i < 3; i++) {
        op_layers(i + 50, layers);
        plans[i] = plan_for(6 + 6 * i, layers, OP_LAYERS, text, sizeof text);
    }
    pool.cuda = m.cuda;
    pool.contexts[0] = m.contexts[0];
    fcp_session_options options = {.size = sizeof options,
                                   .backend = "cuda",
                                   .timeout_s = 60,
                                   .stage_bytes = 4096,
                                   .allocator = {&pool, pool_allocate, pool_release}};
    fcp_session *session;
    x->plan = plans[0];
    cr_assert_eq(fcp_session_create(plans[0], &options, &session, &err), FCP_OK, "%s", err.message);
    for (uint32_t i = 0; i < 3; i++) {
        fcp_session *host = open_host(plans[i]);
        if (i) cr_assert_eq(fcp_session_rebind(session, plans[i], &err), FCP_OK, "%s", err.message);
        x->plan = plans[i];
        for (uint32_t j = 0; j < 2 * OP_LAYERS; j++) {
            recurrent_op op = op_of(plans[i], j / 2, (int)(j % 2), i * 20 + j);
            placed p;
            op_judge(host, &op);
            place(&m, &op, (where)(j % WHERES), 0, &p);
            const fcp_code code = op_call(session, &op, p.at, 0, plans[i]->problem->ranks, NULL, &err);
            cr_assert(code == FCP_OK, "%s; %s", err.message, x->trouble);
            compare_all(&op, &p, text);
            release(&m, &op, &p);
            op_free(&op);
        }
        fcp_session_free(host);
    }
    uint32_t second = 0;
    cr_assert_eq(fcp_session_add(session, plans[1], FCP_OWN_BATCH, &second, &err), FCP_OK, "%s", err.message);
    for (uint32_t turn = 0; turn < 4; turn++) {
        const fcp_plan *plan = plans[turn % 2 ? 1 : 2];
        fcp_session *host = open_host(plan);
        recurrent_op op = op_of(plan, 1 + turn, 0, turn);
        placed p;
        cr_assert_eq(fcp_session_select(session, turn % 2 ? second : 0, &err), FCP_OK);
        op_judge(host, &op);
        place(&m, &op, OWN, 0, &p);
        const fcp_code code = op_call(session, &op, p.at, 0, plan->problem->ranks, NULL, &err);
        cr_assert(code == FCP_OK, "turn %u: %s; %s", turn, err.message, x->trouble);
        compare_all(&op, &p, "plans in turn");
        release(&m, &op, &p);
        op_free(&op);
        fcp_session_free(host);
    }
    fcp_session_free(session);
    cr_assert_str_empty(pool.wrong, "%s", pool.wrong);
    cr_assert_eq(pool.held[0], 0);
    for (uint32_t i = 0; i < 3; i++) fcp_plan_free(plans[i]);
    machine_close(&m);
}

/* Steps that few plans have: results that are operands at once, also from a register that is used again, and COPYs of
 * which each has rows of another one: their gradients must be added from the last to the first. */
Test(cuda_recurrent, seldom_steps) {
    enum { S = 3, T = 2 * S }; /* stretches; the first temporary of two */
    static const fcp_step steps[] = {
        {.op = FCP_STEP_COMBINE, .whole = 1, .a = 0, .b = 1, .out = T},
        {.op = FCP_STEP_COMBINE, .whole = 1, .a = T, .b = 2, .out = T + 1},
        {.op = FCP_STEP_COPY, .a = T + 1, .out = S},
        {.op = FCP_STEP_COMBINE, .whole = 1, .a = 0, .b = T + 1, .out = T},
        {.op = FCP_STEP_COPY, .a = T, .out = S + 1},
        {.op = FCP_STEP_COMBINE, .a = S + 1, .b = 1, .out = S + 2},
        {.op = FCP_STEP_COPY, .a = 0, .b = 1},
        {.op = FCP_STEP_COPY, .a = 2, .b = 3},
        {.op = FCP_STEP_COPY, .a = 4, .b = 5},
        {.op = FCP_STEP_COPY, .a = 6, .b = 7},
    };
    static const fcp_halo_rows rows[] = {{.first = 0, .count = 3}, {.first = 0, .count = 3}, {.first = 1, .count = 2},
                                         {.first = 3, .count = 2}, {.first = 0, .count = 2}, {.first = 5, .count = 2},
                                         {.first = 2, .count = 1}, {.first = 8, .count = 1}};
    standin *x = stand();
    fcp_recurrent layers[OP_LAYERS];
    fcp_step_stream streams[OP_LAYERS * FCP_PASSES];
    op_layers(4, layers);
    for (uint32_t i = 0; i < OP_LAYERS; i++) layers[i].parts = 1;
    layers[1].before = 3, layers[1].after = 0;
    fcp_plan *plan = plan_named("three", "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = bf16 }\n"
                                         "cluster { gpus = 1 }\nbatch { lengths = [40, 50, 60] }\n"
                                         "plan { mask = causal; passes = forward, backward }\n");
    recurrent_give(plan, layers, OP_LAYERS);
    for (uint32_t i = 0; i < OP_LAYERS * FCP_PASSES; i++) streams[i] = (fcp_step_stream){0, 6, 2};
    for (uint32_t i = 0; i < 2 * FCP_PASSES; i++) streams[i] = (fcp_step_stream){6, i % FCP_PASSES ? 0 : 4, 0};
    plan->halo_rows = rows;
    plan->halo_rows_count = sizeof rows / sizeof *rows;
    plan->steps = steps;
    plan->steps_count = sizeof steps / sizeof *steps;
    plan->step_streams = streams;
    machine m = machine_open(x, 1);
    fcp_session *host = open_host(plan), *session = open_cuda(x, plan, 60);
    for (uint32_t i = 0; i < OP_LAYERS + 6; i++) {
        recurrent_op op = i < OP_LAYERS
                              ? op_of(plan, i, 0, i)
                              : op_draw(plan, 0, OP_GRADIENT, FCP_BACKWARD, (fcp_dtype)(i % FCP_DTYPES), i * 3, i);
        placed p;
        fcp_error err = {0};
        op_judge(host, &op);
        place(&m, &op, OWN, 0, &p);
        cr_assert_eq(op_call(session, &op, p.at, 0, 1, NULL, &err), FCP_OK, "%s", err.message);
        compare_all(&op, &p, "seldom");
        release(&m, &op, &p);
        op_free(&op);
    }
    fcp_session_free(host);
    fcp_session_free(session);
    fcp_plan_free(plan);
    machine_close(&m);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* What scans work in is there when the session is, so they take nothing more, in either pass. A halo takes room for its
 * messages in its first call; if there is none, the error says what it is for, and the session goes on. */
Test(cuda_recurrent, memory_is_taken_when_a_session_is_made, .timeout = 300) {
    standin *x = stand();
    for (uint64_t seed = 0; seed < amount(4, 20); seed++) {
        fcp_recurrent layers[OP_LAYERS];
        char text[600];
        fcp_error err = {0};
        op_layers(seed, layers);
        fcp_plan *plan = plan_for(seed, layers, OP_LAYERS, text, sizeof text);
        const uint32_t ranks = plan->problem->ranks;
        machine m = machine_open(x, 1);
        fcp_session *host = open_host(plan), *session = open_cuda(x, plan, 60);
        recurrent_op ops[2 * OP_LAYERS];
        placed p[2 * OP_LAYERS];
        for (uint32_t i = 0; i < 2 * OP_LAYERS; i++) {
            ops[i] = op_of(plan, i / 2, (int)(i % 2), seed + i);
            op_judge(host, &ops[i]);
            place(&m, &ops[i], OWN, 0, &p[i]);
        }
        x->memory = x->held[0]; /* the device is full */
        for (uint32_t i = 4; i < 2 * OP_LAYERS; i++) {
            cr_assert_eq(op_call(session, &ops[i], p[i].at, 0, ranks, NULL, &err), FCP_OK, "%s\n%s", err.message, text);
            compare_all(&ops[i], &p[i], text);
        }
        recurrent_op wide = op_draw(plan, 1, OP_HALO, FCP_FORWARD, FCP_FP32, 5000, seed);
        placed at;
        x->memory = (size_t)1 << 30;
        place(&m, &wide, OWN, 0, &at);
        op_judge(host, &wide);
        x->memory = x->held[0];
        fcp_code code = op_call(session, &wide, at.at, 0, ranks, NULL, &err);
        if (ranks > 1) {
            cr_assert_eq(code, FCP_E_NO_MEMORY, "%s\n%s", err.message, text);
            cr_assert(!strncmp(err.message, "rank ", 5) &&
                          strstr(err.message, "bytes for the halo of layer 1: 0 of ") &&
                          strstr(err.message, " of messages"),
                      "%s", err.message);
            cr_assert_eq(x->held[0], x->memory, "what scans work in is theirs still");
        }
        x->memory = (size_t)1 << 30;
        code = op_call(session, &wide, at.at, 0, ranks, NULL, &err);
        cr_assert_eq(code, FCP_OK, "%s", err.message);
        compare_all(&wide, &at, text);
        release(&m, &wide, &at);
        op_free(&wide);
        for (uint32_t i = 0; i < 2 * OP_LAYERS; i++) {
            release(&m, &ops[i], &p[i]);
            op_free(&ops[i]);
        }
        fcp_session_free(host);
        fcp_session_free(session);
        fcp_plan_free(plan);
        machine_close(&m);
    }
}

/* --- in graphs of the caller's ------------------------------------------------------------------------------------ */

/* A call that needs more memory than those before it: a halo of rows of `row` bytes. */
typedef struct large_call {
    recurrent_op op;
    placed p;
} large_call;
static large_call large_make(machine *m, fcp_session *host, const fcp_plan *plan, uint64_t row) {
    large_call x = {.op = op_draw(plan, 1, OP_HALO, FCP_FORWARD, FCP_FP32, row, row)};
    op_judge(host, &x.op);
    place(m, &x.op, OWN, 0, &x.p);
    return x;
}

/* Calls in graphs have the bits that they have outside, in each launch; launches and other calls follow each other
 * without a wait of the host's. Graphs go on while other calls need more memory than there was, and take it. */
Test(cuda_recurrent, in_graphs, .timeout = 600) {
    enum { OPS = 2 * OP_LAYERS, GRAPHS = 3 };
    static const uint64_t rows[GRAPHS] = {0, 700, 5000};
    standin *x = stand();
    for (uint64_t seed = 0; seed < amount(6, 40); seed++) {
        fcp_recurrent layers[OP_LAYERS];
        char text[600], what[800];
        fcp_error err = {0};
        op_layers(seed, layers);
        fcp_plan *plan = plan_for(seed + 1, layers, OP_LAYERS, text, sizeof text);
        const uint32_t ranks = plan->problem->ranks;
        snprintf(what, sizeof what, "in a graph, seed %lu\n%s", (unsigned long)seed, text);
        machine m = machine_open(x, 1 + (uint32_t)(seed % 3));
        device_pool pool = {.stand = x, .devices = 1, .cuda = m.cuda, .contexts[0] = m.contexts[0]};
        const bool pooled = m.devices == 1;
        x->pooled = pooled;
        x->seed = seed;
        x->plan = plan;
        const fcp_session_options options = {
            .size = sizeof options,
            .backend = "cuda",
            .timeout_s = 60,
            .stage_bytes = 4096,
            .allocator = {&pool, pooled ? pool_allocate : NULL, pooled ? pool_release : NULL}};
        fcp_session *host = open_host(plan), *session = NULL;
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
        const uint32_t streams = ranks < m.devices ? ranks : m.devices;
        recurrent_op ops[OPS];
        placed p[OPS];
        cu_graph_exec graphs[GRAPHS];
        cu_stream streams_of[GRAPHS];
        large_call large[GRAPHS];
        for (uint32_t i = 0; i < OPS; i++) {
            ops[i] = op_of(plan, i / 2, (int)(i % 2), seed * 50 + i);
            op_judge(host, &ops[i]);
            place(&m, &ops[i], (seed + i) % 3 ? OWN : FIRST, 0, &p[i]);
            cr_assert_eq(op_call(session, &ops[i], p[i].at, 0, ranks, m.streams[0], &err), FCP_OK, "%s", err.message);
        }
        /* graph 0 has every call; each other one has a call that comes later and needs more memory */
        for (uint32_t g = 0; g < GRAPHS; g++) {
            streams_of[g] = m.streams[(seed + g) % streams];
            if (g) {
                large[g] = large_make(&m, host, plan, rows[g]);
                cr_assert_eq(op_call(session, &large[g].op, large[g].p.at, 0, ranks, m.streams[0], &err), FCP_OK, "%s",
                             err.message);
            }
            if (g) graphs[g] = captured_ops(&m, session, &large[g].op, &large[g].p, 1, NULL, streams_of[g]);
            else graphs[g] = captured_ops(&m, session, ops, p, OPS, NULL, streams_of[g]);
        }
        for (int turn = 0; turn < 3; turn++) {
            finish(&m, session);
            for (uint32_t i = 0; i < OPS; i++) begin_again(&ops[i], &p[i], false);
            for (uint32_t g = 1; g < GRAPHS; g++) begin_again(&large[g].op, &large[g].p, false);
            for (uint32_t g = 0; g < GRAPHS; g++) {
                const uint32_t at = (g + (uint32_t)turn) % GRAPHS;
                m.cuda->call.context_set(m.contexts[(seed + at) % streams]);
                cr_assert(!m.cuda->call.graph_launch(graphs[at], streams_of[at]));
                m.cuda->call.context_set(m.contexts[0]);
                if (turn == 2) continue;
                /* one of graph 0's calls beside it: what it reads has not changed, so its result is the same */
                const uint32_t i = turn ? 12 : 0;
                cr_assert(ops[i].kind != OP_GRADIENT);
                cr_assert_eq(op_call(session, &ops[i], p[i].at, 0, ranks, m.streams[g % streams], &err), FCP_OK, "%s",
                             err.message);
            }
            finish(&m, session);
            cr_assert_str_empty(x->trouble, "%s\n%s", x->trouble, what);
            for (uint32_t i = 0; i < OPS; i++) compare_all(&ops[i], &p[i], what);
            for (uint32_t g = 1; g < GRAPHS; g++) compare_all(&large[g].op, &large[g].p, what);
        }
        for (uint32_t g = 0; g < GRAPHS; g++) m.cuda->call.graph_exec_destroy(graphs[g]);
        /* what was set aside is given back when the session gets another plan, or at the end */
        if (seed % 2) cr_assert_eq(fcp_session_rebind(session, plan, &err), FCP_OK, "%s", err.message);
        for (uint32_t i = 0; seed % 2 && i < OPS; i++) {
            begin_again(&ops[i], &p[i], false);
            cr_assert_eq(op_call(session, &ops[i], p[i].at, 0, ranks, NULL, &err), FCP_OK, "%s", err.message);
            compare_all(&ops[i], &p[i], "after the graphs");
        }
        fcp_session_free(session);
        cr_assert_str_empty(pool.wrong, "%s", pool.wrong);
        cr_assert_eq(pool.held[0], 0);
        for (uint32_t i = 0; i < OPS; i++) {
            release(&m, &ops[i], &p[i]);
            op_free(&ops[i]);
        }
        for (uint32_t g = 1; g < GRAPHS; g++) {
            release(&m, &large[g].op, &large[g].p);
            op_free(&large[g].op);
        }
        fcp_session_free(host);
        fcp_plan_free(plan);
        machine_close(&m);
        x->pooled = false;
    }
}

/* --- wrong -------------------------------------------------------------------------------------------------------- */

/* A plan of four ranks on two nodes whose sequence is spread over all of them, and a call of it. */
typedef struct small {
    machine m;
    fcp_plan *plan;
    recurrent_op op;
    placed p;
} small;

static small small_open(standin *x, uint32_t layer, int which, uint32_t devices) {
    small s = {.m = machine_open(x, devices)};
    fcp_recurrent layers[OP_LAYERS];
    op_layers(1, layers);
    s.plan = plan_named("small", "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = bf16 }\n"
                                 "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [700, 90] }\n"
                                 "plan { mask = causal; block = 128; passes = forward, backward; layout = zigzag; "
                                 "strategy = zigzag }\n");
    recurrent_give(s.plan, layers, OP_LAYERS);
    s.op = op_of(s.plan, layer, which, 8);
    place(&s.m, &s.op, OWN, 0, &s.p);
    fcp_session *host = open_host(s.plan);
    op_judge(host, &s.op);
    fcp_session_free(host);
    return s;
}
static void small_again(small *s) {
    for (uint32_t r = 0; r < s->plan->problem->ranks; r++)
        for (uint32_t t = 0; t < s->op.count; t++) memcpy(s->p.at[r][t], s->op.start[r][t], s->op.bytes[r][t]);
}
static void small_close(small *s) {
    release(&s->m, &s->op, &s->p);
    op_free(&s->op);
    fcp_plan_free(s->plan);
    machine_close(&s->m);
}

/* Each call of the driver fails once. Then the call fails, or its result is right; the session ends, and nothing is
 * left. */
static void fail_each(uint32_t layer, int which, uint32_t devices, long step, void *on) {
    standin *x = stand();
    small s = small_open(x, layer, which, devices);
    const uint32_t ranks = s.plan->problem->ranks;
    void *stream = on ? s.m.streams[0] : NULL;
    fcp_error err = {0};
    long count = 0, failed = 0;
    x->fail_with = 700;
    for (long at = 0; at <= count; at += at ? step : 1) {
        fcp_session *session = open_cuda(x, s.plan, 2);
        const long before = x->calls;
        small_again(&s);
        x->fail_at = at ? before + at : 0;
        fcp_code code = op_call(session, &s.op, s.p.at, 0, ranks, stream, &err);
        if (at == 0) count = x->calls - before;
        x->fail_at = 0;
        cr_assert(at || code == FCP_OK, "%s", err.message);
        if (code) {
            failed++;
            cr_assert(code == FCP_E_RUN || code == FCP_E_NO_MEMORY || code == FCP_E_TENSOR || code == FCP_E_BACKEND,
                      "call %ld of %ld: %s %s", at, count, fcp_code_name(code), err.message);
            cr_assert(err.message[0]);
        } else {
            finish(&s.m, session);
            compare_all(&s.op, &s.p, "a call that failed is ignored");
        }
        s.m.cuda->call.context_set(s.m.contexts[0]);
        fcp_session_free(session);
        s.m.cuda->call.context_set(s.m.contexts[0]);
    }
    cr_assert_gt(failed, count / step * 9 / 10, "%ld of %ld", failed, count);
    small_close(&s);
}

Test(cuda_recurrent, every_call_of_the_driver_fails, .timeout = 600) {
    fail_each(3, 0, 2, (long)amount(5, 1), NULL);
    fail_each(2, 1, 1, (long)amount(7, 1), NULL);
    fail_each(1, 0, 2, (long)amount(5, 1), NULL);
    fail_each(1, 1, 1, (long)amount(5, 1), (void *)1);
}

/* Each piece of work hangs once: the error comes within the time limit, and names the layer and a rank. */
static void hang_each(uint32_t layer, int which, unsigned long step, const char *name) {
    standin *x = stand();
    small s = small_open(x, layer, which, 2);
    fcp_error err = {0};
    unsigned long count = 0, named = 0, hung = 0;
    x->hang_with = 719;
    for (unsigned long at = 0; at <= count; at += at ? step : 1) {
        fcp_session *session = open_cuda(x, s.plan, 2);
        const unsigned long before = x->nodes;
        small_again(&s);
        x->seed = at;
        x->hang_at = at ? before + at : 0;
        const fcp_code code = op_call(session, &s.op, s.p.at, 0, s.plan->problem->ranks, NULL, &err);
        if (at == 0) count = x->nodes - before;
        if (at == 0) cr_assert_eq(code, FCP_OK, "%s", err.message);
        else {
            cr_assert_eq(code, FCP_E_RUN, "node %lu of %lu", at, count);
            hung++;
            named += strstr(err.message, name) && strncmp(err.message, "rank ", 5) == 0 && err.where.rank < 4;
            const fcp_code again = op_call(session, &s.op, s.p.at, 0, s.plan->problem->ranks, NULL, &err);
            cr_assert_eq(again, FCP_E_RUN);
            cr_assert(strstr(err.message, "a new one is needed"), "%s", err.message);
        }
        x->lost = true;
        fcp_session_free(session);
        x->lost = false;
        x->hang_at = 0;
    }
    cr_assert_gt(named * 10, hung * 7, "%lu of %lu name where", named, hung);
    x->live = 0; /* what hangs stays */
    x->lost = true;
    release(&s.m, &s.op, &s.p);
    op_free(&s.op);
    fcp_plan_free(s.plan);
}

Test(cuda_recurrent, every_node_hangs, .timeout = 600) {
    hang_each(3, 0, amount(5, 1), "layer 3 (scan), forward pass");
    hang_each(1, 1, amount(5, 1), "layer 1 (halo), backward pass");
}

/* Mistakes of the caller's leave the session as it was. */
Test(cuda_recurrent, mistakes) {
    standin *x = stand();
    small s = small_open(x, 3, 0, 2);
    const uint32_t ranks = s.plan->problem->ranks;
    fcp_session *session = open_cuda(x, s.plan, 60);
    fcp_error err = {0};
    char *at[OP_RANKS][OP_TENSORS];
    memcpy(at, s.p.at, sizeof at);
    at[1][1] = s.p.at[1][1] + 2;
    cr_assert_eq(op_call(session, &s.op, at, 0, ranks, NULL, &err), FCP_E_TENSOR);
    cr_assert(strstr(err.message, "rank 1: tensor state begins at an address that is no multiple of 4"), "%s",
              err.message);
    at[1][1] = s.p.at[1][1] + 4;
    cr_assert_eq(op_call(session, &s.op, at, 0, ranks, NULL, &err), FCP_E_TENSOR);
    cr_assert(strstr(err.message, "rank 1: tensor state of ") && err.where.rank == 1, "%s", err.message);
    at[1][1] = NULL;
    cr_assert_eq(op_call(session, &s.op, at, 0, ranks, NULL, &err), FCP_E_TENSOR);
    x->memory = x->held[0] + 64; /* no room for anything */
    char *far[OP_RANKS][OP_TENSORS];
    memcpy(far, s.op.start, sizeof far); /* tensors of the host need room on the device */
    const fcp_code code = op_call(session, &s.op, far, 0, ranks, NULL, &err);
    cr_assert(code == FCP_E_NO_MEMORY && strstr(err.message, "bytes for the scan of layer 3"), "%s", err.message);
    cr_assert(strstr(err.message, "of tensors that lie elsewhere"), "%s", err.message);
    x->memory = (size_t)1 << 30;
    cr_assert_eq(op_call(session, &s.op, s.p.at, 0, ranks, NULL, &err), FCP_OK, "%s", err.message);
    compare_all(&s.op, &s.p, "after mistakes");
    fcp_session_free(session);
    small_close(&s);
}

/* A call is refused while the stream is captured, and the capture goes on. */
static void refused_in_a_capture(small *s, fcp_session *session, const recurrent_op *op, char *const (*at)[OP_TENSORS],
                                 fcp_code code, const char *part) {
    const fcp_cuda_table *call = &s->m.cuda->call;
    cu_graph graph = NULL;
    fcp_error err = {0};
    cr_assert(!call->capture_begin(s->m.streams[0], CU_CAPTURE_THREAD_LOCAL));
    cr_assert_eq(op_call(session, op, at, 0, s->plan->problem->ranks, s->m.streams[0], &err), code, "%s", err.message);
    cr_assert(strstr(err.message, "is being captured") && strstr(err.message, part), "%s", err.message);
    cr_assert(!call->capture_end(s->m.streams[0], &graph), "the caller's capture is spoiled");
    cr_assert(!call->graph_destroy(graph));
}

/* What a graph cannot have: a call that is the first of its kind, one that needs more memory than there is, and tensors
 * in host memory. The session goes on. */
Test(cuda_recurrent, refused_in_graphs) {
    standin *x = stand();
    for (int halo = 0; halo < 2; halo++) {
        small s = small_open(x, halo ? 1 : 3, 0, 2);
        const uint32_t ranks = s.plan->problem->ranks;
        const char *first = halo ? "the halo of layer 1 has not been called like this before: call it once outside"
                                 : "the scan of layer 3 has not been called like this before: call it once outside";
        fcp_session *session = open_cuda(x, s.plan, 60);
        fcp_error err = {0};
        placed far;
        refused_in_a_capture(&s, session, &s.op, s.p.at, FCP_E_ARGUMENT, first);
        cr_assert_eq(op_call(session, &s.op, s.p.at, 0, ranks, s.m.streams[0], &err), FCP_OK, "%s", err.message);
        finish(&s.m, session);
        place(&s.m, &s.op, FIRST, 0, &far); /* those of ranks on the second device have to be copied there */
        refused_in_a_capture(&s, session, &s.op, far.at, FCP_E_ARGUMENT, first);
        refused_in_a_capture(&s, session, &s.op, s.op.start, FCP_E_TENSOR, "tensors lie in host memory");
        recurrent_op other = op_of(s.plan, s.op.layer, 1, 9);
        refused_in_a_capture(&s, session, &other, s.p.at, FCP_E_ARGUMENT,
                             halo ? "the gradient of the halo of layer 1" : "the scan of layer 3");
        small_again(&s);
        cu_graph_exec graph = captured_ops(&s.m, session, &s.op, &s.p, 1, NULL, s.m.streams[0]);
        cr_assert(!s.m.cuda->call.graph_launch(graph, s.m.streams[0]));
        finish(&s.m, session);
        compare_all(&s.op, &s.p, "after mistakes");
        cr_assert_eq(fcp_session_rebind(session, s.plan, &err), FCP_OK, "%s", err.message);
        cr_assert(!s.m.cuda->call.graph_exec_destroy(graph));
        refused_in_a_capture(&s, session, &s.op, s.p.at, FCP_E_ARGUMENT, first);
        fcp_session_free(session);
        release(&s.m, &s.op, &far);
        op_free(&other);
        small_close(&s);
    }
}

/* Each call of the driver fails once while a call becomes a part of a graph: it fails or the graph is right, and in the
 * end nothing is left. */
Test(cuda_recurrent, every_call_of_the_driver_fails_in_a_capture, .timeout = 300) {
    standin *x = stand();
    small s = small_open(x, 1, 1, 2);
    const fcp_cuda_table *call = &s.m.cuda->call;
    const uint32_t ranks = s.plan->problem->ranks;
    long count = 0, failed = 0;
    x->fail_with = 700;
    for (long at = 0, step = (long)amount(5, 1); at <= count; at += at ? step : 1) {
        fcp_session *session = open_cuda(x, s.plan, 2);
        cu_graph graph = NULL;
        cu_graph_exec exec = NULL;
        fcp_error err = {0};
        cr_assert_eq(op_call(session, &s.op, s.p.at, 0, ranks, s.m.streams[0], &err), FCP_OK, "%s", err.message);
        finish(&s.m, session);
        small_again(&s);
        cr_assert(!call->capture_begin(s.m.streams[0], CU_CAPTURE_THREAD_LOCAL));
        const long before = x->calls;
        x->fail_at = at ? before + at : 0;
        const fcp_code code = op_call(session, &s.op, s.p.at, 0, ranks, s.m.streams[0], &err);
        if (at == 0) count = x->calls - before;
        x->fail_at = 0;
        cr_assert(at || code == FCP_OK, "%s", err.message);
        const cu_result ended = call->capture_end(s.m.streams[0], &graph);
        if (code) {
            failed++;
            cr_assert(code == FCP_E_RUN || code == FCP_E_TENSOR || code == FCP_E_BACKEND, "call %ld of %ld: %s %s", at,
                      count, fcp_code_name(code), err.message);
            cr_assert(err.message[0]);
        } else {
            cr_assert(!ended && !call->graph_instantiate(&exec, graph, 0));
            cr_assert(!call->graph_launch(exec, s.m.streams[0]));
            finish(&s.m, session);
            compare_all(&s.op, &s.p, "a call that failed is ignored");
            cr_assert(!call->graph_exec_destroy(exec));
        }
        if (!ended && graph) call->graph_destroy(graph);
        call->context_set(s.m.contexts[0]);
        fcp_session_free(session);
        call->context_set(s.m.contexts[0]);
    }
    cr_assert_gt(failed, count / (long)amount(5, 1) * 9 / 10, "%ld of %ld", failed, count);
    small_close(&s);
}
