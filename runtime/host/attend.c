/* attend.c: attention on the host: computes a visit, forward or backward, by matrix products and row operations.
 *
 * A visit is computed in strips of rows, and each strip in jobs: rectangles of at most 256 rows and 512 keys
 * (visit_products.h).
 *
 * Requires: a verified plan. Rows, keys and values of the visit are in their slots. The backward pass also needs LSE
 *           and delta of the rows, and sums to add to.
 * Gives:    forward: O and LSE of the visit's rows if this is their last visit, else their running state; the largest
 *           logits of finished rows, if the run wants them. Backward: dQ, dK and dV, added to their sums. fcp_host_end:
 *           O and LSE of a state.
 * Cost:     for each pair in a cell that is not NONE, 2 (head_dim + value_dim) operations forward, and 6 head_dim + 4
 *           value_dim backward. K and V of a job are converted once for each strip and head.
 * Source:   FlashAttention's forward and backward recurrences. A strip's scores against a job stay in the second-level
 *           cache.
 *
 * Numbers:  the softmax scale is part of the product. Logits, m and LSE are to base e; only differences of them are
 *           scaled to base 2. The logits of a row may be huge, and only how far they are apart matters. P and dS stay
 *           in float32.
 * Bits:     the backward pass computes each logit again, and P is e^(logit - LSE). If a row has one key, or one that
 *           outweighs all others, its LSE is that key's logit of the forward pass, and P must be exactly 1. So both
 *           passes must compute the same bits for a logit. They do, because they cut the same jobs and compute each job
 *           by the same product.
 * Values:   with values_in_keys V is the front of each row of K, here as in the arena. One conversion gives both, and
 *           what would be added to dV is added to dK.
 * Sinks:    a sink joins the sum when a row's last visit ends, or when its state is finished. LSE then includes it, so
 *           the backward pass needs nothing more.
 * Heads:    a block's rows in memory have the heads of its range. Masks, scores and sinks count heads from the model's
 *           first.
 * Masks:    the score of a masked pair is replaced, and no number is computed from it. For a key that a row may not see
 *           may be NaN or infinite, and multiplying by 0 does not remove that: 0 * NaN is NaN. So where a job has
 *           masked pairs and such numbers, the product is computed pair by pair.
 */
#include "runtime/host/blas.h"
#include "runtime/host/host.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_arrays.h"

/* What the functions here need of a plan, a visit and a head. */
struct view {
    const fcp_plan *plan;
    const fcp_arena *arena;
    const fcp_visit *visit;
    fcp_host_worker *w;
    uint32_t d, value;          /* head_dim and value_dim */
    uint32_t head;              /* the query head, as the model counts it */
    uint32_t mask_head;         /* the first head of its class, which sees the same pairs */
    uint32_t q_head, kv_head;   /* its place, and its KV head's, in rows of their range */
    uint32_t heads;             /* query heads of a range */
    /* how many numbers lie between a token and the next: in Q and dQ, in O and dO, in K and dK, in V and dV */
    size_t q_stride, o_stride, k_stride, v_stride;
    size_t v_head;        /* and between a head of V and the next */
    fcp_dtype dtype;
    size_t e;             /* bytes of a number of the dtype */
    float scale;
    uint32_t token, rows; /* the strip's first row in its block, and how many it has */
    fcp_rows_at from, to; /* the block's rows in the slots that it reads, and where results go (O or dQ) */
};

/* A matrix of float32 whose rows are `stride` numbers apart. */
struct matrix {
    const float *at;
    uint32_t width, stride;
};

static struct matrix rows_from(struct matrix x, uint32_t row) {
    return (struct matrix){x.at + (size_t)row * x.stride, x.width, x.stride};
}

static uint32_t whole_lanes(uint32_t width) { return (width + FCP_LANES - 1) / FCP_LANES * FCP_LANES; }

/* --- masks -------------------------------------------------------------------------------------------------------- */

/* A cell of a job: its place in the job, its size, and its mask. bits is NULL if the cell is FULL. */
struct cell {
    uint32_t row, rows, key, keys;
    const fcp_mask_bits *bits;
};

/* Finds the next cell of a job from (*r, *c) on, which then stand behind it; if asked, only PARTIAL cells. False:
 * there is none. */
static bool next_cell(const struct view *x, const fcp_job *job, bool partial_only, uint32_t *r, uint32_t *c,
                      struct cell *out) {
    for (; *r * FCP_CELL < job->rows; ++*r, *c = 0)
        for (; *c * FCP_CELL < job->keys; ++*c) {
            bool partial = job->partial[*r] >> *c & 1;
            if (partial_only && !partial) continue;
            uint32_t row = *r * FCP_CELL, key = *c * FCP_CELL;
            uint32_t rows = job->rows - row < FCP_CELL ? job->rows - row : FCP_CELL;
            uint32_t keys = job->keys - key < FCP_CELL ? job->keys - key : FCP_CELL;
            *out = (struct cell){row, rows, key, keys, NULL};
            if (partial)
                out->bits = fcp_maskcells_get(x->w->mask, job->q_position + row, job->k_position + key, rows, keys,
                                              x->mask_head);
            ++*c;
            return true;
        }
    return false;
}

static bool has_partial(const fcp_job *job) {
    uint32_t any = 0;
    for (uint32_t r = 0; r < FCP_STRIP_CELLS; r++) any |= job->partial[r];
    return any != 0;
}

static void select_masked(const struct view *x, const fcp_job *job, float *s, float value) {
    struct cell cell;
    for (uint32_t r = 0, c = 0; next_cell(x, job, true, &r, &c, &cell);)
        fcp_rows_select(s + (size_t)cell.row * FCP_JOB + cell.key, FCP_JOB, cell.rows, cell.keys, cell.bits, value);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* s = scale * rows * keys^T */
static void scores(const fcp_job *job, float scale, struct matrix rows, struct matrix keys, float *s) {
    fcp_blas_multiply(&(fcp_product){.rows = (int)job->rows, .columns = (int)job->keys, .inner = (int)rows.width,
                                     .a = rows.at, .a_stride = (int)rows.stride,
                                     .b = keys.at, .b_stride = (int)keys.stride, .b_turned = true,
                                     .c = s, .stride = FCP_JOB, .scale = scale});
}

static mc_tile tile_of(const struct view *x, const fcp_job *job) {
    return (mc_tile){.q = job->q_position, .k = job->k_position, .h = x->head, .rows = job->rows, .keys = job->keys};
}

/* Computes the logits of a job into w->s. If the plan has a score, applies it, and keeps its slopes if asked. */
static void logits(const struct view *x, const fcp_job *job, struct matrix q, struct matrix k, bool slopes) {
    fcp_host_worker *w = x->w;
    scores(job, x->scale, q, k, w->s);
    if (!w->score.code.count) return;
    if (slopes && x->arena->d_table) fcp_host_tables_keep(&w->tables, job->rows, job->keys, w->s, FCP_JOB);
    const mc_tile tile = tile_of(x, job);
    if (slopes) fcp_host_score_slopes(&w->score, &w->env, &tile, w->s, FCP_JOB);
    fcp_host_score_apply(&w->score, &w->env, &tile, w->s, FCP_JOB);
}

/* A product that adds to `out`, whose rows are `stride` numbers apart:
 *   GATHER    out[row] += scale * sum over keys of p[row][key] * values[key]
 *   SCATTER   out[key] += scale * sum over rows of p[row][key] * values[row] */
typedef enum direction { GATHER, SCATTER } direction;
static void add_block(direction way, uint32_t rows, uint32_t keys, float scale, const float *p, struct matrix values,
                      float *out, size_t stride) {
    fcp_blas_multiply(&(fcp_product){.rows = (int)(way == GATHER ? rows : keys), .columns = (int)values.width,
                                     .inner = (int)(way == GATHER ? keys : rows),
                                     .a = p, .a_stride = FCP_JOB, .a_turned = way == SCATTER,
                                     .b = values.at, .b_stride = (int)values.stride,
                                     .c = out, .stride = (int)stride, .scale = scale, .keep = 1});
}

static bool allowed(const fcp_mask_bits *bits, uint32_t r, uint32_t c) {
    return bits->bits[r][c / FCP_LANES] >> c % FCP_LANES & 1;
}

/* to += f * from */
static void add_times(float f, const float *from, uint32_t width, float *to) {
    for (uint32_t t = 0; t < width; t++) to[t] += f * from[t];
}

/* Such a product of a job. `careful`: the job has masked pairs and numbers that are not finite. Then it is computed
 * cell by cell, and in PARTIAL cells pair by pair, so that masked pairs are not multiplied at all. */
static void add_product(const struct view *x, const fcp_job *job, direction way, bool careful, float scale,
                        const float *p, struct matrix values, float *out, size_t stride) {
    struct cell cell;
    if (!careful) {
        add_block(way, job->rows, job->keys, scale, p, values, out, stride);
        return;
    }
    for (uint32_t r = 0, c = 0; !fcp_device_over(x->w->device) && next_cell(x, job, false, &r, &c, &cell);) {
        const float *cell_p = p + (size_t)cell.row * FCP_JOB + cell.key;
        const struct matrix from = rows_from(values, way == GATHER ? cell.key : cell.row);
        float *to = out + (way == GATHER ? cell.row : cell.key) * stride;
        if (!cell.bits) {
            add_block(way, cell.rows, cell.keys, scale, cell_p, from, to, stride);
            continue;
        }
        for (uint32_t i = 0; i < cell.rows; i++)
            for (uint32_t j = 0; j < cell.keys; j++)
                if (allowed(cell.bits, i, j))
                    add_times(scale * cell_p[(size_t)i * FCP_JOB + j], rows_from(from, way == GATHER ? j : i).at,
                              from.width, to + (way == GATHER ? i : j) * stride);
    }
}

/* --- strips ------------------------------------------------------------------------------------------------------- */

/* Where the strip's first row begins in Q or dQ of the block's rows, for the view's head; and in O or dO. */
static size_t first_of_q(const struct view *x) { return x->token * x->q_stride + (size_t)x->q_head * x->d; }
static size_t first_of_o(const struct view *x) { return x->token * x->o_stride + (size_t)x->q_head * x->value; }
/* Where the strip's row r is in m, l, LSE and delta of the block. */
static size_t row_of(const struct view *x, uint32_t r) { return ((size_t)x->token + r) * x->heads + x->q_head; }

/* Converts the strip's rows of Q, or of dO, to float32. Returns whether all are finite. */
static bool load_q(const struct view *x) {
    return fcp_rows_load(x->dtype, x->from.q + first_of_q(x) * x->e, x->q_stride, x->rows, x->d, x->w->q);
}
static bool load_d_o(const struct view *x) {
    return fcp_rows_load(x->dtype, x->from.d_o + first_of_o(x) * x->e, x->o_stride, x->rows, x->value, x->w->o);
}

/* Keys and values of a job, and whether all of each are finite. */
struct keys {
    struct matrix k, v;
    bool k_finite, v_finite;
};

static struct keys load_keys(const struct view *x, const fcp_job *job) {
    const uint32_t d = x->d, value = x->value;
    char *k, *v;
    fcp_arena_kv(x->arena, x->plan->tiles[job->tile].kv_slot, &k, &v);
    k += (job->key * x->k_stride + (size_t)x->kv_head * d) * x->e;
    v += (job->key * x->v_stride + x->kv_head * x->v_head) * x->e;
    struct keys keys = {{x->w->k, d, d}, {x->w->k, value, d}, false, false};
    keys.k_finite = keys.v_finite = fcp_rows_load(x->dtype, k, x->k_stride, job->keys, d, x->w->k);
    if (x->plan->problem->values_in_keys) return keys;
    keys.v = (struct matrix){x->w->v, value, value};
    keys.v_finite = fcp_rows_load(x->dtype, v, x->v_stride, job->keys, value, x->w->v);
    return keys;
}

/* Loads the strip's running state from its slot. On the first visit it is that of rows that have seen no key. */
static void open_state(const struct view *x) {
    fcp_host_worker *w = x->w;
    if (x->visit->flags & FCP_VISIT_FIRST) {
        memset(w->o, 0, (size_t)x->rows * x->value * sizeof *w->o);
        for (uint32_t r = 0; r < x->rows; r++) w->m[r] = -INFINITY, w->l[r] = 0;
        return;
    }
    float *o, *m, *l;
    fcp_arena_state(x->arena, x->visit->state_slot, &o, &m, &l);
    for (uint32_t r = 0; r < x->rows; r++) {
        size_t row = row_of(x, r);
        memcpy(w->o + (size_t)r * x->value, o + row * x->value, x->value * sizeof *o);
        w->m[r] = m[row];
        w->l[r] = l[row];
    }
}

/* The rows have seen all their keys: writes O and LSE. */
static void finish_rows(const struct view *x) {
    fcp_host_worker *w = x->w;
    float *max_logit = x->arena->max_logit ? &x->arena->max_logit[x->head] : NULL;
    for (uint32_t r = 0; max_logit && r < x->rows; r++)
        if (w->m[r] > *max_logit) *max_logit = w->m[r];
    if (x->plan->sink_count)
        fcp_host_sink(fcp_arena_sink(x->arena, x->head), x->rows, x->value, w->o, w->m, w->l, w->lse, w->lse_low);
    else fcp_host_lse(x->rows, w->m, w->l, w->lse, w->lse_low);
    fcp_rows_store(x->dtype, w->o, x->rows, x->value, w->l, x->to.o + first_of_o(x) * x->e, x->o_stride, w->row);
    for (uint32_t r = 0; r < x->rows; r++) {
        x->to.lse[row_of(x, r)] = w->lse[r];
        x->to.lse_low[row_of(x, r)] = w->lse_low[r];
    }
}

/* Writes the state back to its slot. On the last visit it finishes the rows instead. */
static void close_state(const struct view *x) {
    fcp_host_worker *w = x->w;
    if (x->visit->flags & FCP_VISIT_LAST) {
        finish_rows(x);
        return;
    }
    float *o, *m, *l;
    fcp_arena_state(x->arena, x->visit->state_slot, &o, &m, &l);
    for (uint32_t r = 0; r < x->rows; r++) {
        size_t row = row_of(x, r);
        memcpy(o + row * x->value, w->o + (size_t)r * x->value, x->value * sizeof *o);
        m[row] = w->m[r];
        l[row] = w->l[r];
    }
}

static void forward_strip(const struct view *x) {
    fcp_host_worker *w = x->w;
    const struct matrix q = {w->q, x->d, x->d};
    load_q(x);
    open_state(x);
    for (uint32_t i = 0; i < w->work.count && !fcp_device_over(w->device); i++) {
        const fcp_job *job = &w->work.jobs[i];
        bool partial = has_partial(job);
        uint32_t width = whole_lanes(job->keys);
        float *o = w->o + (size_t)job->row * x->value;
        const struct keys keys = load_keys(x, job);
        logits(x, job, rows_from(q, job->row), keys.k, false);
        if (partial) select_masked(x, job, w->s, -INFINITY);
        fcp_rows_pad(w->s, FCP_JOB, job->rows, job->keys, width, -INFINITY);
        fcp_rows_softmax(w->s, FCP_JOB, job->rows, width, w->m + job->row, w->l + job->row, o, x->value);
        add_product(x, job, GATHER, partial && !keys.v_finite, 1.0f, w->s, keys.v, o, keys.v.width);
    }
    close_state(x);
}

/* What a job adds to the gradients of tables. P is in w->s, and the derivative by the score in w->dp. */
static void add_to_tables(const struct view *x, const fcp_job *job) {
    const fcp_host_pairs pairs = {.env = &x->w->env, .tile = tile_of(x, job), .p = x->w->s, .ds = x->w->dp,
                                  .ld = FCP_JOB};
    fcp_host_tables_add(&x->w->tables, &pairs, x->arena->d_table);
}

static void backward_strip(const struct view *x) {
    fcp_host_worker *w = x->w;
    bool q_finite = load_q(x), do_finite = load_d_o(x);
    memset(w->dq, 0, (size_t)x->rows * x->d * sizeof *w->dq);
    for (uint32_t r = 0; r < x->rows; r++) {
        size_t row = row_of(x, r);
        w->lse[r] = x->from.lse[row];
        w->lse_low[r] = x->from.lse_low[row];
        w->delta[r] = x->from.delta[row];
    }
    for (uint32_t i = 0; i < w->work.count && !fcp_device_over(w->device); i++) {
        const fcp_job *job = &w->work.jobs[i];
        bool partial = has_partial(job);
        uint32_t width = whole_lanes(job->keys);
        const struct matrix q = rows_from((struct matrix){w->q, x->d, x->d}, job->row);
        const struct matrix d_o = rows_from((struct matrix){w->o, x->value, x->value}, job->row);
        const fcp_row_sums sums = {w->lse + job->row, w->lse_low + job->row, w->delta + job->row};
        float *dq = w->dq + (size_t)job->row * x->d, *dk, *dv;
        fcp_arena_dkv(x->arena, x->plan->tiles[job->tile].dkv_slot, &dk, &dv);
        dk += job->key * x->k_stride + (size_t)x->kv_head * x->d;
        dv += job->key * x->v_stride + x->kv_head * x->v_head;
        const struct keys keys = load_keys(x, job);
        logits(x, job, q, keys.k, true);
        scores(job, 1.0f, d_o, keys.v, w->dp);
        fcp_rows_pad(w->s, FCP_JOB, job->rows, job->keys, width, 0);
        fcp_rows_pad(w->dp, FCP_JOB, job->rows, job->keys, width, 0);
        fcp_rows_gradient(w->s, w->dp, FCP_JOB, job->rows, width, sums);
        if (partial) {
            select_masked(x, job, w->s, 0);
            select_masked(x, job, w->dp, 0);
        }
        if (x->arena->d_table) add_to_tables(x, job);
        if (w->score.code.count) fcp_host_score_chain(&w->score, job->rows, job->keys, w->s, w->dp, FCP_JOB);
        add_product(x, job, SCATTER, partial && !do_finite, 1.0f, w->s, d_o, dv, x->v_stride);
        add_product(x, job, SCATTER, partial && !q_finite, x->scale, w->dp, q, dk, x->k_stride);
        add_product(x, job, GATHER, partial && !keys.k_finite, x->scale, w->dp, keys.k, dq, keys.k.width);
    }
    for (uint32_t r = 0; r < x->rows; r++)
        fcp_rows_add(x->to.dq + first_of_q(x) + r * x->q_stride, w->dq + (size_t)r * x->d, x->d);
}

static void end_strip(const struct view *x) {
    open_state(x);
    close_state(x);
}

/* Returns whether the rows of a strip that meets no key may be left as they are. They may if nothing is added to them,
 * or if they are rows of a home block, whose outputs were prepared, in its only visit. */
static bool leaves_idle_rows(const fcp_arena *a, const fcp_visit *visit) {
    if (a->pass == FCP_BACKWARD) return true; /* nothing is added */
    const unsigned single = FCP_VISIT_FIRST | FCP_VISIT_LAST;
    return (visit->flags & single) == single && visit->o_slot < a->homes;
}

/* Calls `strip` for the strip that begins at `row` of a piece, for the query heads of one class among KV heads
 * [head, head + heads) of the range. */
static fcp_code walk_class(struct view *x, uint32_t piece, uint32_t row, uint32_t cls, uint32_t head, uint32_t heads,
                           void (*strip)(const struct view *)) {
    const fcp_plan *plan = x->plan;
    const fcp_problem *p = plan->problem;
    const uint32_t range = plan->blocks[x->visit->q_block].heads;
    fcp_code code = fcp_work_strip(&x->w->work, plan, x->visit, cls, piece, row);
    if (code != FCP_OK || (x->w->work.count == 0 && leaves_idle_rows(x->arena, x->visit))) return code;
    x->mask_head = FCP_NONE;
    for (uint32_t h = head * p->range_sub; h < (head + heads) * p->range_sub; h++) {
        if (fcp_class_of(plan, range, h) != cls) continue;
        x->head = fcp_model_head(p, &plan->heads[range], h);
        x->q_head = h;
        x->kv_head = h / p->range_sub;
        if (x->mask_head == FCP_NONE) x->mask_head = x->head;
        if (fcp_device_over(x->w->device)) return FCP_E_INTERRUPTED;
        strip(x);
    }
    return FCP_OK;
}

/* The same for each strip of a visit, and for all classes. */
static fcp_code walk(fcp_host_worker *w, const fcp_arena *a, const fcp_visit *visit, uint32_t head, uint32_t heads,
                     void (*strip)(const struct view *)) {
    const fcp_plan *plan = a->plan;
    const fcp_problem *p = plan->problem;
    const fcp_block *block = &plan->blocks[visit->q_block];
    const bool forward = a->pass == FCP_FORWARD;
    const uint32_t to = forward ? visit->o_slot : visit->dq_slot;
    struct view x = {.plan = plan,
                     .arena = a,
                     .visit = visit,
                     .w = w,
                     .d = p->head_dim,
                     .value = p->value_dim,
                     .heads = a->heads,
                     .q_stride = (size_t)a->heads * p->head_dim,
                     .o_stride = (size_t)a->heads * p->value_dim,
                     .k_stride = (size_t)a->kv_heads * p->head_dim,
                     .v_stride = (size_t)a->kv_heads * fcp_value_stride(p),
                     .v_head = fcp_value_stride(p),
                     .dtype = (fcp_dtype)p->dtype,
                     .e = fcp_dtype_size((fcp_dtype)p->dtype),
                     .scale = (float)p->scale,
                     .from = fcp_arena_rows(a, visit->q_slot)};
    if (to != FCP_NONE) x.to = fcp_arena_rows(a, to);
    fcp_code code = fcp_work_begin(&w->work, plan, visit);
    for (uint32_t i = block->first_piece; code == FCP_OK && i < block->first_piece + block->pieces; i++) {
        const fcp_piece *piece = &plan->pieces[i];
        fcp_plan_env(plan, piece->sequence, w->arrays, w->bands, &w->env);
        fcp_host_tables_bind(plan, a->table, w->arrays);
        fcp_maskcells_sequence(w->mask, &w->env, piece->sequence);
        for (uint32_t row = 0; code == FCP_OK && row < piece->length; row += FCP_STRIP) {
            x.rows = piece->length - row < FCP_STRIP ? piece->length - row : FCP_STRIP;
            x.token = piece->offset + row;
            for (uint32_t c = 0; code == FCP_OK && c < fcp_class_count(plan, block->heads); c++)
                code = walk_class(&x, i, row, c, head, heads, strip);
        }
    }
    return code;
}

fcp_code fcp_host_forward(fcp_host_worker *w, const fcp_arena *a, const fcp_visit *visit, uint32_t head,
                          uint32_t heads) {
    return walk(w, a, visit, head, heads, forward_strip);
}

fcp_code fcp_host_backward(fcp_host_worker *w, const fcp_arena *a, const fcp_visit *visit, uint32_t head,
                           uint32_t heads) {
    return walk(w, a, visit, head, heads, backward_strip);
}

/* A last visit without tiles. */
void fcp_host_end(fcp_host_worker *w, const fcp_arena *a, uint32_t block, uint32_t state, uint32_t into) {
    const fcp_visit visit = {
        .q_block = block, .state_slot = state, .q_slot = into, .o_slot = into, .flags = FCP_VISIT_LAST};
    walk(w, a, &visit, 0, a->kv_heads, end_strip);
}
