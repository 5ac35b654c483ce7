/* train_loop.c: plans batch after batch in the process that trains, one batch ahead of the one that runs.
 *
 * The program is parsed once. A thread of its own plans batch i + 1 while batch i runs forward and backward, as a data
 * loader would: planning is off the critical path. Ranks here are workers of this process; the tensors of each are in
 * the layout the caller already has (contiguous: rank r holds the r-th part of the packed batch).
 *
 *   cc train_loop.c $(pkg-config --cflags --libs fcpc) -lm -lpthread
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fcp.h"
#include "fcpc.h"

enum { BATCHES = 6, SEQUENCES = 24, RANKS = 4 };

static const char source[] =
    "model   { heads = 4; kv_heads = 2; head_dim = 64; dtype = fp32 }\n"
    "cluster { nodes = 2; gpus = 2 }\n"
    "plan    { mask = lambda(sink = 16, window = 512); block = 256; layout = contiguous }\n";

/* What the planning thread hands over: one plan at most waits (two in all: one runs, one waits). */
typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const fcpc_program *program;
    fcp_plan *ready;
    double plan_seconds;
    fcp_code code;
    char *message; /* of an error: malloc'd */
    int stop;      /* the consumer gave up: polled by fcpc_plan */
} queue;

/* A long tail: most sequences are short, a few are long. The same lengths in every run. */
static void draw_lengths(uint64_t *state, uint64_t lengths[SEQUENCES]) {
    for (int i = 0; i < SEQUENCES; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        uint64_t r = *state >> 33;
        lengths[i] = 16 + (r & 63) * (r % 23 == 0 ? 32 : r % 5 == 0 ? 8 : 2);
    }
}

static void *plan_ahead(void *argument) {
    queue *q = argument;
    uint64_t state = 2026;
    for (int i = 0; i < BATCHES; i++) {
        uint64_t lengths[SEQUENCES];
        draw_lengths(&state, lengths);
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcp_plan *plan = NULL;
        fcpc_times times = {0};
        fcp_code code = d ? fcpc_plan(q->program, lengths, SEQUENCES, &q->stop, d, &times, &plan) : FCP_E_NO_MEMORY;
        char *message = d && code != FCP_OK ? fcpc_diagnostics_render(d, false) : NULL;
        fcpc_diagnostics_free(d);

        pthread_mutex_lock(&q->lock);
        while (q->ready && !q->stop) pthread_cond_wait(&q->changed, &q->lock);
        bool end = q->stop || code != FCP_OK;
        if (q->stop) {
            fcp_plan_free(plan);
            free(message);
        } else {
            q->ready = plan;
            q->plan_seconds = times.total;
            q->code = code;
            q->message = message;
        }
        pthread_cond_broadcast(&q->changed);
        pthread_mutex_unlock(&q->lock);
        if (end) break;
    }
    return NULL;
}

/* Waits for the next plan; the caller owns it. */
static fcp_code next_plan(queue *q, fcp_plan **out_plan, double *out_seconds) {
    pthread_mutex_lock(&q->lock);
    while (!q->ready && q->code == FCP_OK) pthread_cond_wait(&q->changed, &q->lock);
    fcp_code code = q->code;
    *out_plan = q->ready;
    *out_seconds = q->plan_seconds;
    q->ready = NULL;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    return code;
}

static void fill(float *x, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(int32_t)(seed >> 32) * (1.0f / 2147483648.0f);
    }
}

/* One step on all ranks: forward, the gradient of sum(O^2) / 2 (which is O), backward. *out_loss gets sum(O^2) / 2. The
 * session is made for the first batch, and goes on with the plans of the others. */
static fcp_code step(fcp_session **session, const fcp_plan *plan, double *out_loss, double *out_gradient,
                     fcp_error *err) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    fcp_tensors tensors[RANKS] = {0};
    float *memory[RANKS] = {0};
    size_t tokens[RANKS], q = (size_t)shape.heads * shape.head_dim, kv = (size_t)shape.kv_heads * shape.head_dim;
    fcp_code code = FCP_OK;
    for (uint32_t r = 0; r < RANKS; r++) {
        tokens[r] = fcp_plan_rank_queries(plan, r);
        memory[r] = calloc(tokens[r] * (3 * q + 4 * kv + 2 * shape.heads) + 1, sizeof(float));
        if (!memory[r]) {
            code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
            goto done;
        }
        float *at = memory[r];
        fill(at, tokens[r] * (q + 2 * kv), r + 1);
        tensors[r].q = at;
        tensors[r].k = at += tokens[r] * q;
        tensors[r].v = at += tokens[r] * kv;
        tensors[r].d_o = tensors[r].o = at += tokens[r] * kv;
        tensors[r].dq = at += tokens[r] * q;
        tensors[r].dk = at += tokens[r] * q;
        tensors[r].dv = at += tokens[r] * kv;
        tensors[r].lse = at += tokens[r] * kv;
        tensors[r].lse_low = at + tokens[r] * shape.heads; /* without it, large logits would get wrong gradients */
    }
    code = *session ? fcp_session_rebind(*session, plan, err) : fcp_session_create(plan, NULL, session, err);
    if (code == FCP_OK) code = fcp_session_run(*session, FCP_FORWARD, tensors, err);
    if (code == FCP_OK) code = fcp_session_run(*session, FCP_BACKWARD, tensors, err);
    if (code != FCP_OK) goto done;
    *out_loss = *out_gradient = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        const float *o = tensors[r].o, *dv = tensors[r].dv;
        for (size_t i = 0; i < tokens[r] * q; i++) *out_loss += 0.5 * o[i] * o[i];
        for (size_t i = 0; i < tokens[r] * kv; i++) *out_gradient += (double)dv[i] * dv[i];
    }
done:
    for (uint32_t r = 0; r < RANKS; r++) free(memory[r]);
    return code;
}

int main(void) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_code code = d ? fcpc_parse_text("train_loop", source, strlen(source), NULL, d, &program) : FCP_E_NO_MEMORY;
    if (code != FCP_OK) {
        char *text = d ? fcpc_diagnostics_render(d, false) : NULL;
        fprintf(stderr, "%s", text ? text : fcp_code_text(code));
        free(text);
        fcpc_diagnostics_free(d);
        return fcp_code_exit(code);
    }
    queue q = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .program = program};
    pthread_t planner;
    bool started = pthread_create(&planner, NULL, plan_ahead, &q) == 0;
    if (!started) code = FCP_E_NO_MEMORY;
    fcp_session *session = NULL;
    fcp_plan *last = NULL; /* the session's: it must outlive what the session does with it */
    int done = 0;
    while (code == FCP_OK && done < BATCHES) {
        fcp_plan *plan = NULL;
        fcp_error err = {0};
        double seconds = 0, loss = 0, gradient = 0;
        code = next_plan(&q, &plan, &seconds);
        if (code != FCP_OK) {
            fprintf(stderr, "%s", q.message ? q.message : fcp_code_text(code));
            break;
        }
        fcp_shape shape;
        fcp_plan_shape(plan, &shape);
        code = step(&session, plan, &loss, &gradient, &err);
        if (code != FCP_OK) {
            fcp_session_free(session);
            session = NULL;
        }
        fcp_plan_free(last);
        last = plan;
        if (code == FCP_OK && !(isfinite(loss) && isfinite(gradient) && loss > 0 && gradient > 0))
            code = fcp_fail(&err, FCP_E_RUN, "the loss or the gradient is no positive number");
        if (code != FCP_OK) {
            fprintf(stderr, "error[%s]: %s\n", fcp_code_name(code), err.message);
            break;
        }
        printf("batch %d: %llu tokens planned in %.2f ms while the one before ran; loss %.4f, |dV| %.4f\n", done,
               (unsigned long long)shape.tokens, seconds * 1000, loss, sqrt(gradient));
        done++;
    }
    pthread_mutex_lock(&q.lock);
    q.stop = done < BATCHES;
    pthread_cond_broadcast(&q.changed);
    pthread_mutex_unlock(&q.lock);
    if (started) pthread_join(planner, NULL);
    fcp_session_free(session);
    fcp_plan_free(last);
    fcp_plan_free(q.ready);
    free(q.message);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    if (code == FCP_OK) printf("%d batches passed\n", done);
    return fcp_code_exit(code);
}
