/* test_recurrent.c: halos and scans on the host, in one process: random batches, placements, layers and directions,
 * against loops over the documents in float64. And what users do with them: layers of a model that give on any
 * placement what they give on the whole batch. Between processes: unit/host/test_recurrent_processes.c. */
#include <stdio.h>

#include "runtime/exec/session.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/recurrent_case.h"
#include "tests/support/recurrent_plan.h"
#include "tests/support/scatter.h"

enum { LAYERS = 9 };

/* Kinds of layers, drawn; each call of the tests goes through all of them. */
static void draw_layers(uint64_t seed, fcp_recurrent *out) {
    static const uint32_t parts[] = {0, 1, 2, 6};
    uint64_t random = seed;
    memset(out, 0, LAYERS * sizeof *out);
    for (uint32_t i = 0; i < LAYERS; i++) {
        fcp_recurrent *x = &out[i];
        x->times = 1;
        if (i < 3) {
            x->kind = FCP_HALO;
            x->channels = 8;
            x->before = i == 1 ? 0 : (uint32_t)(splitmix(&random) % (i ? 300 : 5));
            x->after = !x->before ? 1 + (uint32_t)(splitmix(&random) % 4) : i ? (uint32_t)(splitmix(&random) % 90) : 0;
            continue;
        }
        x->kind = FCP_SCAN;
        x->decay = i % FCP_DECAYS;
        x->heads = 6;
        x->rows = 1 + (uint32_t)(splitmix(&random) % 9);
        x->columns = 1 + (uint32_t)(splitmix(&random) % 37);
        x->reverse = (uint32_t)(splitmix(&random) & 1);
        x->parts = parts[splitmix(&random) % 4];
        x->shape = x->parts ? FCP_SCAN_CHAIN + (uint32_t)(splitmix(&random) % 4) : FCP_SCAN_NONE;
    }
}

/* A plan of a random batch, with layers. */
static fcp_plan *draw_plan(uint64_t seed, char *text, size_t size) {
    static const char *const plans[] = {"layout = contiguous; strategy = cad",
                                        "layout = zigzag; strategy = zigzag",
                                        "strategy = fcp; block = 128",
                                        "strategy = dcp; block = 128",
                                        "layout = contiguous; strategy = ring",
                                        "strategy = ring",
                                        "scatter",
                                        "layout = contiguous; scatter"};
    static const char *const clusters[] = {
        "gpus = 4", "nodes = 3; gpus = 2", "gpus = 1", "nodes = 2; gpus = 4", "nodes = 4; gpus = 1", "gpus = 7"};
    fcp_recurrent layers[LAYERS];
    uint64_t random = seed;
    char lengths[300] = "", fields[400] = "";
    size_t used = 0, more = 0;
    const uint32_t sequences = 1 + (uint32_t)(splitmix(&random) % 6);
    const bool documents = splitmix(&random) % 3 == 0;
    for (uint32_t i = 0; i < sequences; i++) {
        const uint32_t length = (uint32_t)(splitmix(&random) % (splitmix(&random) % 3 ? 900 : 5)) + !i;
        used += (size_t)snprintf(lengths + used, sizeof lengths - used, "%s%u", i ? ", " : "", length);
        for (uint32_t done = 0, number = 0; documents && done < length; number++) {
            uint32_t run = splitmix(&random) % 3 ? 1 + (uint32_t)(splitmix(&random) % 400) : 1;
            if (run > length - done || number > 4) run = length - done;
            more += (size_t)snprintf(fields + more, sizeof fields - more, "%s%u x %u", more ? ", " : "", number, run);
            done += run;
        }
    }
    const char *plan_text = plans[splitmix(&random) % (sizeof plans / sizeof *plans)];
    const char *cluster = clusters[splitmix(&random) % (sizeof clusters / sizeof *clusters)];
    const char *scattered = strstr(plan_text, "scatter");
    const int plan_length = (int)(scattered ? scattered - plan_text : (ptrdiff_t)strlen(plan_text));
    snprintf(text, size,
             "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { %s }\n"
             "batch { lengths = [%s]; %s%s%s }\nplan { mask = %s; passes = forward, backward; %.*s }\n",
             cluster, lengths, documents ? "field doc = [" : "", fields, documents ? "]; documents = doc" : "",
             documents ? "causal_document(d = doc)" : "causal", plan_length, plan_text);
    scatter by = scatter_new(seed);
    by.one_range = true; /* else queries and keys may have homes of their own */
    fcp_plan *plan = scattered ? scatter_plan(text, &by) : plan_of(text);
    cr_assert(plan != NULL, "seed %lu\n%s", (unsigned long)seed, text);
    draw_layers(seed, layers);
    recurrent_give(plan, layers, LAYERS);
    return plan;
}

static fcp_session *open_with(const fcp_plan *plan, uint32_t threads) {
    const fcp_session_options options = {.size = sizeof options, .compute_threads = threads, .timeout_s = 20};
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_code code = fcp_session_create(plan, &options, &session, &err);
    cr_assert(code == FCP_OK, "%s", err.message);
    return session;
}

/* --- scans -------------------------------------------------------------------------------------------------------- */

/* Compares the entering states of all stretches. */
static void compare(const recurrent_case *c, const fcp_recurrent *x, float *const *entering, const double *right,
                    const char *text) {
    const size_t states = x->heads * fcp_state_numbers(x);
    for (uint32_t n = 0; n < c->total; n++)
        for (size_t i = 0; i < states; i++) {
            const double is = (double)entering[c->order[n].rank][c->order[n].number * states + i];
            const double must = right[n * states + i];
            cr_assert(fabs(is - must) <= 2e-5 * (1 + fabs(must)), "stretch %u, number %lu: %g, not %g\n%s", n,
                      (unsigned long)i, is, must, text);
        }
}

static void run_scan(fcp_session *session, uint32_t layer, fcp_pass pass, const case_scan *s, const char *text) {
    fcp_error err = {0};
    const fcp_code code = fcp_session_scan(session, layer, pass, s->ranks, NULL, &err);
    cr_assert(code == FCP_OK, "layer %u: %s\n%s", layer, err.message, text);
}

/* The gradient of a loss sum(G entering), by the rule of fcp.h, and how the loss changes with single numbers. */
static void check_gradient(fcp_session *session, const recurrent_case *c, uint32_t layer, const case_scan *s,
                           uint64_t seed, const char *text) {
    const fcp_recurrent *x = &c->plan->recurrent[layer];
    const size_t states = x->heads * fcp_state_numbers(x), decays = x->heads * fcp_decay_numbers(x);
    case_scan d = case_scan_draw(c, x, seed + 77); /* its state is G */
    uint64_t random = seed;
    for (uint32_t r = 0; r < c->ranks; r++) /* its decay that of s, transposed */
        for (size_t i = 0; i < c->counts[r] * decays; i++) {
            size_t from = i;
            if (x->decay == FCP_DECAY_MATRIX) {
                const size_t n = x->rows, head = i / (n * n), row = i / n % n, column = i % n;
                from = (head * n + column) * n + row;
            }
            d.decay[r][i] = s->decay[r][from];
        }
    run_scan(session, layer, FCP_BACKWARD, &d, text);
    for (int sample = 0; sample < 12 && c->total; sample++) {
        case_change change = {.of = (uint32_t)(splitmix(&random) % c->total), .in_decay = sample & 1};
        const case_place *p = &c->order[change.of];
        change.which = splitmix(&random) % (change.in_decay ? decays : states);
        double loss[2] = {0}, gradient = 0;
        for (int side = 0; side < 2; side++) {
            change.extra = side ? -1e-4 : 1e-4;
            double *entering = case_scan_right(c, x, fcp_scan_descends(x, FCP_FORWARD), s, &change);
            for (uint32_t n = 0; n < c->total; n++)
                for (size_t i = 0; i < states; i++)
                    loss[side] +=
                        entering[n * states + i] * (double)d.state[c->order[n].rank][c->order[n].number * states + i];
            free(entering);
        }
        const float *leaving = d.entering[p->rank] + p->number * states, *h = s->entering[p->rank] + p->number * states;
        if (!change.in_decay) gradient = (double)leaving[change.which];
        else { /* of D entering^T the element, the diagonal's or the trace */
            const size_t numbers = fcp_decay_numbers(x), head = change.which / numbers, at = change.which % numbers;
            for (size_t row = 0; row < x->rows; row++)
                for (size_t k = 0; k < x->rows; k++) {
                    const bool is = x->decay == FCP_DECAY_MATRIX
                                        ? at == row * x->rows + k
                                        : row == k && (x->decay == FCP_DECAY_SCALAR || at == row);
                    for (size_t column = 0; is && column < x->columns; column++)
                        gradient += (double)leaving[(head * x->rows + row) * x->columns + column] *
                                    (double)h[(head * x->rows + k) * x->columns + column];
                }
        }
        const double must = (loss[0] - loss[1]) / 2e-4;
        cr_assert(fabs(gradient - must) < 1e-4 * (1 + fabs(must)), "gradient %g, not %g, layer %u, %s\n%s", gradient,
                  must, layer, change.in_decay ? "A" : "b", text);
    }
    case_scan_free(c, &d);
}

static void check_scan(fcp_session *const *sessions, const recurrent_case *c, uint32_t layer, uint64_t seed,
                       const char *text) {
    const fcp_recurrent *x = &c->plan->recurrent[layer];
    const size_t states = x->heads * fcp_state_numbers(x) * sizeof(float);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        case_scan s = case_scan_draw(c, x, seed);
        run_scan(sessions[0], layer, (fcp_pass)pass, &s, text);
        double *right = case_scan_right(c, x, fcp_scan_descends(x, (fcp_pass)pass), &s, NULL);
        compare(c, x, s.entering, right, text);
        for (int again = 0; again < 2; again++) { /* the same bits: again, and with more threads */
            case_scan t = case_scan_draw(c, x, seed);
            run_scan(sessions[again], layer, (fcp_pass)pass, &t, text);
            for (uint32_t r = 0; r < c->ranks; r++)
                cr_assert(!memcmp(s.entering[r], t.entering[r], c->counts[r] * states), "%d: other bits\n%s", again,
                          text);
            case_scan_free(c, &t);
        }
        if (pass == FCP_FORWARD) check_gradient(sessions[0], c, layer, &s, seed, text);
        free(right);
        case_scan_free(c, &s);
    }
}

/* --- halos -------------------------------------------------------------------------------------------------------- */

static unsigned char byte_of(uint64_t row, size_t i) { return (unsigned char)(row * 7 + row / 256 + i * 13 + 1); }

static void check_halo(fcp_session *session, const recurrent_case *c, uint32_t layer, size_t row_bytes,
                       const char *text) {
    const fcp_recurrent *x = &c->plan->recurrent[layer];
    const uint64_t width = (uint64_t)x->before + x->after;
    fcp_halo_rank ranks[CASE_RANKS];
    fcp_error err = {0};
    for (uint32_t r = 0; r < c->ranks; r++) {
        unsigned char *in = malloc(c->tokens[r] * row_bytes + 1);
        for (uint32_t s = 0; s < c->counts[r]; s++)
            for (uint64_t t = 0; t < c->of[r][s].length; t++)
                for (size_t i = 0; i < row_bytes; i++)
                    in[(c->of[r][s].first + t) * row_bytes + i] = byte_of(c->of[r][s].start + t, i);
        ranks[r] = (fcp_halo_rank){
            in, memset(malloc(c->counts[r] * width * row_bytes + 1), 0xee, c->counts[r] * width * row_bytes + 1)};
    }
    const fcp_code code = fcp_session_halo(session, layer, row_bytes, ranks, NULL, &err);
    cr_assert(code == FCP_OK, "%s\n%s", err.message, text);
    for (uint32_t r = 0; r < c->ranks; r++) {
        const unsigned char *halo = ranks[r].halo;
        for (uint32_t s = 0; s < c->counts[r]; s++)
            for (uint64_t n = 0; n < width; n++) {
                const int64_t row = case_halo_row(c, x, &c->of[r][s], n);
                for (size_t i = 0; i < row_bytes; i++)
                    cr_assert(halo[(s * width + n) * row_bytes + i] == (row < 0 ? 0 : byte_of((uint64_t)row, i)),
                              "rank %u, stretch %u, row %lu\n%s", r, s, (unsigned long)n, text);
            }
        cr_assert(halo[c->counts[r] * width * row_bytes] == 0xee, "beyond the halo");
        free((void *)(uintptr_t)ranks[r].x);
        free(ranks[r].halo);
    }
}

/* Whole numbers that stay small: all sums are exact in each type. Rows beyond the document are NaN, and not read. */
static void check_halo_gradient(fcp_session *session, const recurrent_case *c, uint32_t layer, fcp_dtype dtype,
                                uint64_t numbers, uint64_t seed, const char *text) {
    const fcp_recurrent *x = &c->plan->recurrent[layer];
    const uint64_t width = (uint64_t)x->before + x->after;
    const size_t size = fcp_dtype_size(dtype);
    fcp_halo_gradient_rank ranks[CASE_RANKS];
    double *right = calloc(case_rows(c) * numbers + 1, sizeof *right);
    uint64_t random = seed;
    fcp_error err = {0};
    for (uint32_t r = 0; r < c->ranks; r++) {
        const size_t own = c->tokens[r] * numbers, all = c->counts[r] * width * numbers;
        float *dx = malloc((own + 1) * sizeof *dx), *d_halo = malloc((all + 1) * sizeof *d_halo);
        for (uint32_t s = 0; s < c->counts[r]; s++) {
            const fcp_stretch *y = &c->of[r][s];
            for (uint64_t i = 0; i < y->length * numbers; i++) {
                dx[y->first * numbers + i] = (float)(splitmix(&random) % 5) - 2;
                right[y->start * numbers + i] += (double)dx[y->first * numbers + i];
            }
            for (uint64_t n = 0; n < width; n++) {
                const int64_t row = case_halo_row(c, x, y, n);
                for (uint64_t i = 0; i < numbers; i++) {
                    float *at = &d_halo[(s * width + n) * numbers + i];
                    *at = row < 0 ? NAN : (float)(splitmix(&random) % 3) - 1;
                    if (row >= 0) right[(uint64_t)row * numbers + i] += (double)*at;
                }
            }
        }
        void *dx_in = malloc((own + 1) * size), *d_halo_in = malloc((all + 1) * size);
        fcp_from_float(dtype, dx, dx_in, own);
        fcp_from_float(dtype, d_halo, d_halo_in, all);
        ranks[r] = (fcp_halo_gradient_rank){d_halo_in, dx_in};
        free(dx);
        free(d_halo);
    }
    const fcp_code code = fcp_session_halo_gradient(session, layer, dtype, numbers, ranks, NULL, &err);
    cr_assert(code == FCP_OK, "%s\n%s", err.message, text);
    for (uint64_t row = 0; row < case_rows(c); row++)
        for (uint64_t i = 0; i < numbers; i++) {
            const char *dx = ranks[c->at[row].rank].dx;
            float is;
            fcp_to_float(dtype, dx + (c->at[row].row * numbers + i) * size, &is, 1);
            cr_assert((double)is == right[row * numbers + i], "row %lu: %g, not %g\n%s", (unsigned long)row, (double)is,
                      right[row * numbers + i], text);
        }
    for (uint32_t r = 0; r < c->ranks; r++) {
        free((void *)(uintptr_t)ranks[r].d_halo);
        free(ranks[r].dx);
    }
    free(right);
}

Test(recurrent, random_batches) {
    const char *from = getenv("RECURRENT_SEED");
    const uint64_t first = from ? strtoul(from, NULL, 10) : 1, end = first + (from ? 1 : (uint64_t)amount(25, 300));
    unsigned long stretches = 0, steps = 0, empty = 0;
    for (uint64_t seed = first; seed < end; seed++) {
        char program[1500], text[1600];
        fcp_plan *plan = draw_plan(seed, program, sizeof program);
        recurrent_case c = case_of(plan);
        fcp_session *sessions[] = {open_with(plan, 1), open_with(plan, plan->problem->ranks * 3)};
        snprintf(text, sizeof text, "RECURRENT_SEED=%lu\n%s", (unsigned long)seed, program);
        for (uint32_t i = 0; i < LAYERS; i++) {
            static const size_t row_bytes[] = {1, 20, 6};
            if (plan->recurrent[i].kind == FCP_SCAN) check_scan(sessions, &c, i, seed * 100 + i, text);
            else {
                check_halo(sessions[seed & 1], &c, i, row_bytes[i], text);
                for (int t = 0; t < FCP_DTYPES; t++)
                    check_halo_gradient(sessions[seed & 1], &c, i, (fcp_dtype)t, i ? 3 : 700, seed, text);
            }
        }
        stretches += c.total;
        steps += plan->steps_count;
        for (uint32_t r = 0; r < c.ranks; r++) empty += !c.counts[r];
        fcp_session_free(sessions[0]);
        fcp_session_free(sessions[1]);
        case_free(&c);
        fcp_plan_free(plan);
    }
    fprintf(stderr, "recurrent: %lu stretches, %lu steps, %lu empty ranks\n", stretches, steps, empty);
    cr_assert(from || (stretches && steps && empty));
}

/* --- layers of a model -------------------------------------------------------------------------------------------- */

/* A layer that recurs: h_t = A_t h_{t-1} + k_t v_t^T and y_t = q_t h_t, where A_t is a number, a diagonal, or the
 * matrix a_t (I - beta k_t k_t^T) of the gated delta rule. Everything about token t is drawn from t. */
enum { ROWS = 6, COLUMNS = 4, HEADS = 2, STATE = ROWS * COLUMNS };
typedef struct token {
    double a[ROWS][ROWS], k[ROWS], v[COLUMNS], q[ROWS];
} token;
static token token_of(fcp_decay decay, uint64_t row, uint32_t head) {
    uint64_t random = row * HEADS + head + 1;
    token t = {0};
    double norm = 0;
    for (int i = 0; i < ROWS; i++) t.k[i] = (double)case_number(&random), norm += t.k[i] * t.k[i];
    for (int i = 0; i < ROWS; i++) t.k[i] /= sqrt(norm);
    for (int i = 0; i < ROWS; i++) t.q[i] = (double)case_number(&random);
    for (int i = 0; i < COLUMNS; i++) t.v[i] = (double)case_number(&random);
    const double gate = 1 - 0.05 * fabs((double)case_number(&random)), beta = fabs((double)case_number(&random));
    for (int i = 0; i < ROWS; i++) {
        const double own = decay == FCP_DECAY_VECTOR ? 1 - 0.1 * fabs((double)case_number(&random)) : gate;
        for (int j = 0; j < ROWS; j++)
            t.a[i][j] = decay == FCP_DECAY_MATRIX ? gate * ((i == j) - beta * t.k[i] * t.k[j]) : i == j ? own : 0;
    }
    return t;
}
/* h = A_t h + add k_t v_t^T, for a state of so many columns. */
static void advance(const token *t, double *h, size_t columns, bool add) {
    double next[ROWS * ROWS] = {0};
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < columns; j++) {
            for (size_t k = 0; k < ROWS; k++) next[i * columns + j] += t->a[i][k] * h[k * columns + j];
            if (add) next[i * columns + j] += t->k[i] * t->v[j];
        }
    memcpy(h, next, ROWS * columns * sizeof *h);
}
static void read_out(const token *t, const double *h, double *y) {
    for (size_t j = 0; j < COLUMNS; j++)
        for (size_t i = 0; i < ROWS; i++) y[j] += t->q[i] * h[i * COLUMNS + j];
}
/* Token n of `count`, in the order in which states run. */
static uint64_t turn(bool reverse, uint64_t n, uint64_t count) { return reverse ? count - 1 - n : n; }

static void recur_on(const char *source, fcp_decay decay, bool reverse) {
    fcp_plan *plan = plan_of(source);
    const fcp_recurrent layer = {.kind = FCP_SCAN,
                                 .times = 1,
                                 .heads = HEADS,
                                 .rows = ROWS,
                                 .columns = COLUMNS,
                                 .decay = decay,
                                 .reverse = reverse};
    recurrent_give(plan, &layer, 1);
    recurrent_case c = case_of(plan);
    case_scan s = case_scan_draw(&c, &plan->recurrent[0], 1);
    const size_t decays = fcp_decay_numbers(&layer), rows = case_rows(&c);
    double *right = calloc(rows * COLUMNS * HEADS + 1, sizeof *right), *h = calloc(STATE, sizeof *h);
    fcp_session *session = open_with(plan, 2);
    for (uint32_t head = 0; head < HEADS; head++) { /* the layer on the whole batch */
        uint64_t document = UINT64_MAX;
        for (uint64_t n = 0; n < rows; n++) {
            const uint64_t row = turn(reverse, n, rows);
            const case_place *p = &c.at[row];
            const token t = token_of(decay, row, head);
            if (c.of[p->rank][p->number].document != document) memset(h, 0, STATE * sizeof *h);
            document = c.of[p->rank][p->number].document;
            advance(&t, h, COLUMNS, true);
            read_out(&t, h, &right[(row * HEADS + head) * COLUMNS]);
        }
    }
    for (uint32_t r = 0; r < c.ranks; r++) /* a rank's own tokens: what each stretch does to a state */
        for (uint32_t i = 0; i < c.counts[r] * HEADS; i++) {
            const fcp_stretch *x = &c.of[r][i / HEADS];
            double a[ROWS * ROWS] = {0};
            memset(h, 0, STATE * sizeof *h);
            for (size_t k = 0; k < ROWS; k++) a[k * ROWS + k] = 1;
            for (uint64_t n = 0; n < x->length; n++) {
                const token t = token_of(decay, x->start + turn(reverse, n, x->length), i % HEADS);
                advance(&t, h, COLUMNS, true);
                advance(&t, a, ROWS, false);
            }
            for (size_t k = 0; k < STATE; k++) s.state[r][(size_t)i * STATE + k] = (float)h[k];
            for (size_t k = 0; k < decays; k++)
                s.decay[r][i * decays + k] = (float)a[decay == FCP_DECAY_VECTOR ? k * ROWS + k : k];
        }
    run_scan(session, 0, FCP_FORWARD, &s, source);
    for (uint32_t r = 0; r < c.ranks; r++) /* the layer on each stretch, with the state that enters */
        for (uint32_t i = 0; i < c.counts[r] * HEADS; i++) {
            const fcp_stretch *x = &c.of[r][i / HEADS];
            for (size_t k = 0; k < STATE; k++) h[k] = (double)s.entering[r][(size_t)i * STATE + k];
            for (uint64_t n = 0; n < x->length; n++) {
                const uint64_t row = x->start + turn(reverse, n, x->length);
                const token t = token_of(decay, row, i % HEADS);
                double y[COLUMNS] = {0};
                advance(&t, h, COLUMNS, true);
                read_out(&t, h, y);
                for (size_t j = 0; j < COLUMNS; j++) {
                    const double must = right[(row * HEADS + i % HEADS) * COLUMNS + j];
                    cr_assert(fabs(y[j] - must) < 1e-5 * (1 + fabs(must)), "row %lu: %g, not %g\n%s",
                              (unsigned long)row, y[j], must, source);
                }
            }
        }
    fcp_session_free(session);
    case_scan_free(&c, &s);
    case_free(&c);
    free(right);
    free(h);
    fcp_plan_free(plan);
}

/* A causal convolution of 4 tokens: y_t = sum of c_w x_{t-w}. */
static void convolve_on(const char *source) {
    enum { BEFORE = 3 };
    static const float taps[BEFORE + 1] = {0.5f, -1.25f, 2, 0.75f};
    fcp_plan *plan = plan_of(source);
    const fcp_recurrent layer = {.kind = FCP_HALO, .times = 1, .before = BEFORE, .channels = 1};
    recurrent_give(plan, &layer, 1);
    recurrent_case c = case_of(plan);
    fcp_session *session = open_with(plan, 2);
    fcp_halo_rank ranks[CASE_RANKS];
    fcp_error err = {0};
    float *whole = calloc(case_rows(&c) + 1, sizeof *whole);
    uint64_t random = 9;
    for (uint64_t i = 0; i < case_rows(&c); i++) whole[i] = case_number(&random);
    for (uint32_t r = 0; r < c.ranks; r++) {
        float *x = malloc((c.tokens[r] + 1) * sizeof *x);
        for (uint32_t i = 0; i < c.counts[r]; i++)
            memcpy(x + c.of[r][i].first, whole + c.of[r][i].start, c.of[r][i].length * sizeof *x);
        ranks[r] = (fcp_halo_rank){x, malloc((c.counts[r] * BEFORE + 1) * sizeof *x)};
    }
    const fcp_code code = fcp_session_halo(session, 0, sizeof *whole, ranks, NULL, &err);
    cr_assert(code == FCP_OK, "%s", err.message);
    for (uint32_t r = 0; r < c.ranks; r++)
        for (uint32_t i = 0; i < c.counts[r]; i++) {
            const fcp_stretch *s = &c.of[r][i];
            const float *halo = (const float *)ranks[r].halo + (size_t)i * BEFORE;
            const float *own = (const float *)ranks[r].x + s->first;
            for (uint64_t t = 0; t < s->length; t++) {
                float y = 0, must = 0;
                const uint64_t row = s->start + t;
                for (uint64_t w = 0; w <= BEFORE; w++) {
                    y += taps[w] * (t >= w ? own[t - w] : halo[BEFORE + t - w]);
                    must += taps[w] * (row >= c.documents[s->document] + w ? whole[row - w] : 0);
                }
                cr_assert(y == must, "row %lu\n%s", (unsigned long)row, source);
            }
        }
    for (uint32_t r = 0; r < c.ranks; r++) {
        free((void *)(uintptr_t)ranks[r].x);
        free(ranks[r].halo);
    }
    free(whole);
    fcp_session_free(session);
    case_free(&c);
    fcp_plan_free(plan);
}

static const char batch_text[] =
    "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { nodes = 2; gpus = 2 }\n"
    "batch { lengths = [700, 1, 390]; field doc = [0 x 300, 1 x 1, 2 x 399, 0 x 1, 0 x 388, 1 x 2]; documents = doc }\n"
    "plan { mask = causal_document(d = doc); block = 128; passes = forward, backward; %s }\n";

Test(recurrent, layers_of_a_model) {
    static const char *const placements[] = {"layout = contiguous", "layout = zigzag; strategy = zigzag",
                                             "strategy = fcp", "strategy = dcp"};
    for (size_t i = 0; i < sizeof placements / sizeof *placements; i++) {
        char text[600];
        snprintf(text, sizeof text, batch_text, placements[i]);
        for (int decay = 0; decay < FCP_DECAYS; decay++)
            for (int reverse = 0; reverse < 2; reverse++) recur_on(text, (fcp_decay)decay, reverse);
        convolve_on(text);
    }
}

/* --- calls that are refused, and what a session goes on with ------------------------------------------------------ */

static const fcp_recurrent two_layers[] = {
    {.kind = FCP_HALO, .times = 1, .before = 3, .channels = 1},
    {.kind = FCP_SCAN, .times = 1, .heads = 2, .rows = 4, .columns = 4, .parts = 1, .shape = FCP_SCAN_CHAIN}};

static fcp_plan *two_layers_on(const char *where) {
    char text[600];
    snprintf(text, sizeof text, batch_text, where);
    fcp_plan *plan = plan_of(text);
    recurrent_give(plan, two_layers, 2);
    return plan;
}

/* Whether the error of a call has this code and says this. */
#define REFUSED(call, is, says)                                                                                        \
    do {                                                                                                               \
        const fcp_code code_ = (call);                                                                                 \
        cr_assert(code_ == (is) && err.code == (is) && strstr(err.message, says), "%s: %s", fcp_code_name(code_),      \
                  err.message);                                                                                        \
    } while (0)

Test(recurrent, refused_calls) {
    fcp_plan *plan = two_layers_on("layout = contiguous"), *none = NULL, *forward = NULL;
    char text[600];
    snprintf(text, sizeof text, batch_text, "layout = contiguous");
    none = plan_of(text);
    char *passes = strstr(text, "forward, backward");
    cr_assert(passes != NULL);
    memmove(passes + 7, passes + 17, strlen(passes + 17) + 1);
    forward = plan_of(text);
    recurrent_give(forward, two_layers, 2);
    recurrent_case c = case_of(plan);
    case_scan s = case_scan_draw(&c, &plan->recurrent[1], 1);
    fcp_session *session = open_with(plan, 1), *bare = open_with(none, 1), *half = open_with(forward, 1);
    fcp_error err = {0};
    fcp_halo_rank halo[4] = {{0}};
    fcp_halo_gradient_rank gradient[4] = {{0}};
    REFUSED(fcp_session_halo(NULL, 0, 4, halo, NULL, &err), FCP_E_ARGUMENT, "needs a session");
    REFUSED(fcp_session_halo(session, 0, 4, NULL, NULL, &err), FCP_E_ARGUMENT, "needs a session");
    REFUSED(fcp_session_scan(session, 1, FCP_PASSES, s.ranks, NULL, &err), FCP_E_ARGUMENT, "needs a session");
    REFUSED(fcp_session_scan(session, 2, FCP_FORWARD, s.ranks, NULL, &err), FCP_E_ARGUMENT, "none with number 2");
    REFUSED(fcp_session_scan(bare, 0, FCP_FORWARD, s.ranks, NULL, &err), FCP_E_ARGUMENT, "`layers`");
    REFUSED(fcp_session_scan(session, 0, FCP_FORWARD, s.ranks, NULL, &err), FCP_E_ARGUMENT, "layer 0 is a halo");
    REFUSED(fcp_session_halo(session, 1, 4, halo, NULL, &err), FCP_E_ARGUMENT, "layer 1 is a scan");
    REFUSED(fcp_session_scan(half, 1, FCP_BACKWARD, s.ranks, NULL, &err), FCP_E_PASS, "no backward pass");
    REFUSED(fcp_session_halo_gradient(half, 0, FCP_FP32, 4, gradient, NULL, &err), FCP_E_PASS, "no backward pass");
    REFUSED(fcp_session_halo(session, 0, 4, halo, NULL, &err), FCP_E_TENSOR, "rank 0: tensor x is missing");
    halo[0] = (fcp_halo_rank){.x = &c}; /* not read: the next is missing */
    REFUSED(fcp_session_halo(session, 0, 4, halo, NULL, &err), FCP_E_TENSOR, "rank 0: tensor halo is missing");
    REFUSED(fcp_session_halo(session, 0, 0, halo, NULL, &err), FCP_E_ARGUMENT, "at least 1 byte");
    REFUSED(fcp_session_halo_gradient(session, 0, FCP_FP32, 4, gradient, NULL, &err), FCP_E_TENSOR, "d_halo is miss");
    REFUSED(fcp_session_halo_gradient(session, 0, FCP_FP32, 0, gradient, NULL, &err), FCP_E_ARGUMENT, "dtype");
    REFUSED(fcp_session_halo_gradient(session, 0, FCP_DTYPES, 4, gradient, NULL, &err), FCP_E_ARGUMENT, "dtype");
    for (int r = 0; r < 4; r++) {
        halo[r] = (fcp_halo_rank){&c, &c}; /* never read: rows are too long */
        gradient[r] = (fcp_halo_gradient_rank){&c, &c};
    }
    REFUSED(fcp_session_halo(session, 0, SIZE_MAX / 100, halo, NULL, &err), FCP_E_ARGUMENT, "are too long");
    REFUSED(fcp_session_halo_gradient(session, 0, FCP_FP32, UINT64_MAX / 2, gradient, NULL, &err), FCP_E_ARGUMENT,
            "are too long");
    REFUSED(fcp_session_scan(session, 1, FCP_FORWARD, s.ranks, &c, &err), FCP_E_ARGUMENT, "no streams");
    s.ranks[2].decay = NULL;
    REFUSED(fcp_session_scan(session, 1, FCP_FORWARD, s.ranks, NULL, &err), FCP_E_TENSOR, "rank 2: tensor decay");
    s.ranks[2].decay = s.decay[2];
    run_scan(session, 1, FCP_FORWARD, &s, "after all that"); /* nothing has changed */
    check_halo(session, &c, 0, 5, "after all that");
    fcp_session_free(session);
    fcp_session_free(bare);
    fcp_session_free(half);
    case_scan_free(&c, &s);
    case_free(&c);
    fcp_plan_free(plan);
    fcp_plan_free(none);
    fcp_plan_free(forward);
}

/* The calls are about the selected plan. If that has no such layers, as the plan of another mask, they are about one with
 * the same homes; a plan of another batch is not taken for it. */
Test(recurrent, plans_of_a_session) {
    fcp_plan *first = two_layers_on("layout = contiguous");
    fcp_plan *second = two_layers_on("layout = zigzag; strategy = zigzag");
    char text[600];
    snprintf(text, sizeof text, batch_text, "strategy = fcp");
    fcp_plan *bare = plan_of(text);
    snprintf(text, sizeof text, batch_text, "layout = contiguous");
    fcp_plan *mask = plan_of(text);
    recurrent_case c = case_of(first), d = case_of(second);
    fcp_session *session = open_with(first, 2), *both[2];
    fcp_error err = {0};
    uint32_t number, other, third;
    cr_assert(fcp_session_add(session, bare, FCP_OWN_BATCH, &number, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_session_add(session, mask, 0, &other, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_session_add(session, second, FCP_OWN_BATCH, &third, &err) == FCP_OK, "%s", err.message);
    both[0] = both[1] = session;
    cr_assert(fcp_session_select(session, other, &err) == FCP_OK);
    check_scan(both, &c, 1, 3, "first plan");
    check_halo(session, &c, 0, 8, "first plan");
    cr_assert(fcp_session_select(session, third, &err) == FCP_OK);
    check_scan(both, &d, 1, 6, "a plan of another batch");
    cr_assert(fcp_session_select(session, number, &err) == FCP_OK);
    REFUSED(fcp_session_halo(session, 0, 4, &(fcp_halo_rank){0}, NULL, &err), FCP_E_ARGUMENT, "none with number 0");
    cr_assert(fcp_session_select(session, 0, &err) == FCP_OK);
    cr_assert(fcp_session_rebind(session, second, &err) == FCP_OK, "%s", err.message);
    check_scan(both, &d, 1, 4, "second plan");
    check_halo(session, &d, 0, 8, "second plan");
    cr_assert(fcp_session_rebind(session, bare, &err) == FCP_OK, "%s", err.message);
    REFUSED(fcp_session_halo(session, 0, 4, &(fcp_halo_rank){0}, NULL, &err), FCP_E_ARGUMENT, "none with number 0");
    fcp_session_free(session);
    case_free(&c);
    case_free(&d);
    fcp_plan_free(first);
    fcp_plan_free(second);
    fcp_plan_free(bare);
    fcp_plan_free(mask);
}

/* Rank 1 has lost its steps, as no verified plan has. Those that wait for it say so when the time is over. The session
 * goes on. */
Test(recurrent, a_rank_that_does_nothing) {
    fcp_plan *plan = two_layers_on("layout = contiguous");
    recurrent_case c = case_of(plan);
    case_scan s = case_scan_draw(&c, &plan->recurrent[1], 1);
    const fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = 1};
    fcp_session *session = NULL;
    fcp_error err = {0};
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    fcp_step_stream *stream = (fcp_step_stream *)(uintptr_t)fcp_steps_of(plan, 1, FCP_FORWARD, 1);
    const uint32_t count = stream->count;
    cr_assert(count != 0);
    stream->count = 0;
    REFUSED(fcp_session_scan(session, 1, FCP_FORWARD, s.ranks, NULL, &err), FCP_E_RUN, "rank 1 for 1 s");
    cr_assert(strstr(err.message, "layer 1 (scan), forward pass, round ") != NULL, "%s", err.message);
    cr_assert(err.where.rank != 1 && err.where.rank < 4 && err.where.pass == FCP_FORWARD, "%s", err.message);
    stream->count = count;
    run_scan(session, 1, FCP_FORWARD, &s, "again");
    double *right = case_scan_right(&c, &plan->recurrent[1], false, &s, NULL);
    compare(&c, &plan->recurrent[1], s.entering, right, "again");
    free(right);
    fcp_session_free(session);
    case_scan_free(&c, &s);
    case_free(&c);
    fcp_plan_free(plan);
}

static int wants_no_more(void *asked) { return ++*(int *)asked > 2; }

/* The caller interrupts a call in which ranks wait for one that does nothing. */
Test(recurrent, interrupted) {
    fcp_plan *plan = two_layers_on("layout = contiguous");
    recurrent_case c = case_of(plan);
    case_scan s = case_scan_draw(&c, &plan->recurrent[1], 1);
    int asked = 0;
    const fcp_session_options options = {.size = sizeof options,
                                         .compute_threads = 1,
                                         .timeout_s = 100,
                                         .interrupted = wants_no_more,
                                         .interrupted_context = &asked};
    fcp_session *session = NULL;
    fcp_error err = {0};
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    fcp_step_stream *stream = (fcp_step_stream *)(uintptr_t)fcp_steps_of(plan, 1, FCP_FORWARD, 1);
    const uint32_t count = stream->count;
    stream->count = 0;
    asked = 0;
    REFUSED(fcp_session_scan(session, 1, FCP_FORWARD, s.ranks, NULL, &err), FCP_E_INTERRUPTED, "interrupted");
    cr_assert(asked == 3);
    stream->count = count;
    asked = -1000000;
    run_scan(session, 1, FCP_FORWARD, &s, "again");
    fcp_session_free(session);
    case_scan_free(&c, &s);
    case_free(&c);
    fcp_plan_free(plan);
}
