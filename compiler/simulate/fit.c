/* fit.c: reads measured rows, and fits a profile's constants to them.
 *
 * The fit:
 * 1. Each row is divided by its time, so that relative errors count alike whether a row took a microsecond or a second.
 * 2. The least sum of squares is then the solution of four linear equations, one for each constant (the normal
 *    equations). They are solved by a Cholesky decomposition.
 * 3. If a constant of the solution is negative, the fit is repeated with some constants fixed at 0. There are fifteen
 *    sets of constants that may remain, and all are tried.
 *
 * Example of what cannot be fitted: causal rows alone. With n row items each has n PARTIAL cells. So nothing
 * distinguishes the time of a PARTIAL cell from that of a row item, the equations have no unique solution, and the
 * error says so.
 *
 * Cost: linear in the rows.
 */
#include "compiler/simulate/fit.h"
#include "runtime/plan/enum_names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/base/real.h"
#include "compiler/base/text.h"
#include "compiler/simulate/cost_model.h"

enum { N = SIM_CONSTANT_COUNT, FIELDS = 10, NAME = 40 };
#define COUNT_MAX (UINT64_C(1) << 50)
#define SECONDS_MAX 1e6
#define ALONE 1e-9 /* the least part of a column's squared length that must be independent of the others */

/* --- reading ------------------------------------------------------------------------------------------------------ */

typedef struct place {
    const char *file;
    uint32_t line, column;
} place;

#define wrong(at, err, ...) fcp_fail_in(err, FCP_E_ROWS, (at)->file, (at)->line, (at)->column, __VA_ARGS__)

typedef struct field {
    char text[CALIBRATE_NAME];
    uint32_t column;
} field;

static const char *const field_names[FIELDS] = {"name", "gpu",     "sms",  "pass",     "head_dim",
                                                "full", "partial", "rows", "launches", "seconds"};

/* Divides a line at its commas. */
static fcp_code divide(place *at, const char *line, size_t size, field out[FIELDS], fcp_error *err) {
    size_t begin = 0;
    for (int i = 0; i < FIELDS; i++) {
        const char *comma = memchr(line + begin, ',', size - begin);
        size_t end = comma ? (size_t)(comma - line) : size, from = begin, to = end;
        at->column = (uint32_t)begin + 1;
        if (!comma && i < FIELDS - 1)
            return wrong(at, err, "the line has %d fields, and needs %d: " CALIBRATE_HEADER, i + 1, FIELDS);
        if (comma && i == FIELDS - 1)
            return wrong(at, err, "the line has more than %d fields: " CALIBRATE_HEADER, FIELDS);
        while (from < to && text_is_blank(line[from])) from++;
        while (to > from && text_is_blank(line[to - 1])) to--;
        if (from == to) return wrong(at, err, "%s is missing", field_names[i]);
        if (to - from >= CALIBRATE_NAME)
            return wrong(at, err, "%s is longer than %d characters", field_names[i], CALIBRATE_NAME - 1);
        for (size_t c = from; c < to; c++)
            if ((unsigned char)line[c] < ' ' || line[c] == '"' || line[c] == 127)
                return wrong(at, err, "%s has a character that it cannot have", field_names[i]);
        memcpy(out[i].text, line + from, to - from);
        out[i].text[to - from] = 0;
        out[i].column = (uint32_t)from + 1;
        begin = end + 1;
    }
    return FCP_OK;
}

static fcp_code count(place *at, const field *fields, int which, uint64_t low, uint64_t high, uint64_t *out,
                      fcp_error *err) {
    const char *typed = fields[which].text;
    uint64_t value = 0;
    at->column = fields[which].column;
    for (const char *s = typed; *s; s++) {
        if (*s < '0' || *s > '9')
            return wrong(at, err, "%s is '%.40s': a whole number is needed", field_names[which], typed);
        if (value <= high) value = value * 10 + (uint64_t)(*s - '0');
    }
    if (value < low || value > high)
        return wrong(at, err, "%s is %.40s: it must be from %llu to %llu", field_names[which], typed,
                     (unsigned long long)low, (unsigned long long)high);
    *out = value;
    return FCP_OK;
}

/* "ddd", "ddd.ddd" or "ddd.ddde-dd". */
static bool is_number(const char *s) {
    size_t whole = strspn(s, "0123456789"), part = 0;
    s += whole;
    if (*s == '.') s += 1 + (part = strspn(s + 1, "0123456789"));
    if (!whole && !part) return false;
    if (*s == 'e' || *s == 'E') {
        s += 1 + (s[1] == '-' || s[1] == '+');
        size_t digits = strspn(s, "0123456789");
        if (!digits || digits > 3) return false;
        s += digits;
    }
    return !*s;
}

static fcp_code read_row(place *at, const char *line, size_t size, const calibrate_row *first, calibrate_row *out,
                         fcp_error *err) {
    field f[FIELDS];
    uint64_t head_dim = 0;
    fcp_code code = divide(at, line, size, f, err);
    if (code) return code;
    *out = (calibrate_row){.pass = FCP_PASSES};
    memcpy(out->name, f[0].text, sizeof out->name);
    at->column = f[1].column;
    if (strlen(f[1].text) >= SIM_NAME || strpbrk(f[1].text, " \t#"))
        return wrong(at, err, "gpu is '%.40s': one word of at most %d letters", f[1].text, SIM_NAME - 1);
    strcpy(out->gpu, f[1].text);
    if ((code = count(at, f, 2, 1, 1000000, &out->sms, err))) return code;
    at->column = f[3].column;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (!strcmp(f[3].text, fcp_pass_names[pass])) out->pass = (uint32_t)pass;
    if (out->pass == FCP_PASSES) return wrong(at, err, "pass is '%.40s': forward or backward", f[3].text);
    if ((code = count(at, f, 4, 1, 1024, &head_dim, err))) return code;
    out->head_dim = (uint32_t)head_dim;
    for (int i = 0; i < N && !code; i++) code = count(at, f, 5 + i, i >= SIM_ROW, COUNT_MAX, &out->counts[i], err);
    if (code) return code;
    at->column = f[9].column;
    if (!is_number(f[9].text) || !real_parse(f[9].text, &out->seconds))
        return wrong(at, err, "seconds is '%.40s': a number is needed", f[9].text);
    if (!(out->seconds > 0 && out->seconds <= SECONDS_MAX))
        return wrong(at, err, "seconds is %.40s: it must be above 0, and at most a million", f[9].text);
    at->column = f[5].column;
    if (!out->counts[SIM_FULL] && !out->counts[SIM_PARTIAL]) return wrong(at, err, "the row has no cell");
    at->column = f[1].column;
    if (first && (strcmp(first->gpu, out->gpu) || first->sms != out->sms))
        return wrong(at, err, "the row is of %s with %llu sms, the first of %s with %llu: a profile is of one",
                     out->gpu, (unsigned long long)out->sms, first->gpu, (unsigned long long)first->sms);
    return FCP_OK;
}

fcp_code calibrate_read(const char *file, const char *bytes, size_t size, arena *memory, calibration *out,
                        fcp_error *err) {
    place at = {.file = file, .column = 1};
    size_t room = 0;
    bool header = false;
    *out = (calibration){0};
    for (const char *s = bytes, *end = bytes + size; s < end;) {
        const char *newline = memchr(s, '\n', (size_t)(end - s)), *line = s;
        size_t length = (size_t)((newline ? newline : end) - s);
        s = newline ? newline + 1 : end;
        at.line++;
        at.column = 1;
        while (length && text_is_blank(line[length - 1])) length--;
        if (!length || *line == '#') continue;
        if (!header) {
            if (length != strlen(CALIBRATE_HEADER) || memcmp(line, CALIBRATE_HEADER, length))
                return wrong(&at, err, "the first line must be " CALIBRATE_HEADER);
            header = true;
            continue;
        }
        if (out->row_count == CALIBRATE_ROWS) return wrong(&at, err, "there are more than %d rows", CALIBRATE_ROWS);
        calibrate_row *rows = arena_grow(memory, out->rows, out->row_count, &room, sizeof *rows);
        if (!rows) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        out->rows = rows;
        fcp_code code = read_row(&at, line, length, out->row_count ? rows : NULL, &rows[out->row_count], err);
        if (code) return code;
        out->row_count++;
    }
    at.line = at.line ? at.line : 1;
    if (out->row_count) return FCP_OK;
    return wrong(&at, err,
                 header ? "there are no rows" : "the file is empty: the first line must be " CALIBRATE_HEADER);
}

/* --- fitting ------------------------------------------------------------------------------------------------------ */

/* How often a row has each constant. A launch with few thread blocks counts whole waves, as in cost_model.c. */
static void regressors(const calibrate_row *row, double out[N]) {
    uint64_t items = row->counts[SIM_ROW] / row->counts[SIM_LAUNCH], whole = sim_model_waves(items, row->sms);
    double waves = items ? (double)whole / (double)items : 1;
    for (int i = 0; i < N; i++) out[i] = (double)row->counts[i] * (i == SIM_LAUNCH ? 1 : waves);
}

static double predict(const calibrate_row *row, const double constants[N]) {
    double counts[N], sum = 0;
    regressors(row, counts);
    for (int i = 0; i < N; i++) sum += counts[i] * constants[i];
    return sum;
}

/* The normal equations, each column scaled to length 1. */
typedef struct normal {
    double gram[N][N], right[N], length[N];
} normal;

static void make_normal(const calibration *x, const calibrate_fit *f, normal *out) {
    *out = (normal){0};
    for (int scaled = 0; scaled < 2; scaled++) {
        for (uint32_t r = 0; r < x->row_count; r++) {
            const calibrate_row *row = &x->rows[r];
            double a[N];
            if (row->pass != f->pass || row->head_dim != f->head_dim || row->held_out) continue;
            regressors(row, a);
            for (int i = 0; i < N; i++) a[i] /= row->seconds;
            for (int i = 0; i < N; i++) {
                if (!scaled) {
                    out->length[i] += a[i] * a[i];
                    continue;
                }
                double own = out->length[i] > 0 ? a[i] / out->length[i] : 0;
                out->right[i] += own;
                for (int j = 0; j < N; j++) out->gram[i][j] += out->length[j] > 0 ? own * a[j] / out->length[j] : 0;
            }
        }
        for (int i = 0; i < N && !scaled; i++) out->length[i] = sqrt(out->length[i]);
    }
}

/* Solves the normal equations for the constants of `set` (a bit each); the others are 0. Returns -1; or, if there is no
 * unique solution, the first constant that depends on those before it. *out_gain: how much the sum of squares falls. */
static int solve(const normal *n, unsigned set, double out[N], double *out_gain) {
    double lower[N][N] = {{0}}, y[N] = {0};
    *out_gain = 0;
    for (int i = 0; i < N; i++) {
        out[i] = 0;
        if (!(set >> i & 1)) continue;
        double right = n->right[i];
        for (int j = 0; j <= i; j++) {
            if (!(set >> j & 1)) continue;
            double sum = n->gram[i][j];
            for (int k = 0; k < j; k++) sum -= lower[i][k] * lower[j][k];
            if (i == j && !(sum > ALONE)) return i;
            lower[i][j] = i == j ? sqrt(sum) : sum / lower[j][j];
            if (j < i) right -= lower[i][j] * y[j];
        }
        y[i] = right / lower[i][i];
        *out_gain += y[i] * y[i];
    }
    for (int i = N - 1; i >= 0; i--) {
        if (!(set >> i & 1)) continue;
        double sum = y[i];
        for (int j = i + 1; j < N; j++) sum -= lower[j][i] * out[j];
        out[i] = sum / lower[i][i];
    }
    for (int i = 0; i < N; i++)
        if (set >> i & 1) out[i] /= n->length[i]; /* back to the constant's own unit */
    return -1;
}

static fcp_code fit_one(calibration *x, calibrate_fit *f, fcp_error *err) {
    normal n;
    double best_gain = -1;
    make_normal(x, f, &n);
    for (unsigned set = (1u << N) - 1; set; set--) {
        double constants[N], gain;
        int same = solve(&n, set, constants, &gain);
        bool negative = false;
        if (same >= 0 && set == (1u << N) - 1) {
            if (!(n.length[same] > 0))
                return fcp_fail(err, FCP_E_ROWS, "%s pass, head_dim %u: no row has %s cells; measure a mask that does",
                                fcp_pass_names[f->pass], f->head_dim, sim_constant_names[same]);
            return fcp_fail(err, FCP_E_ROWS,
                            "%s pass, head_dim %u: the rows do not tell '%s' from the constants before it; measure "
                            "several lengths, of masks with and without partial cells",
                            fcp_pass_names[f->pass], f->head_dim, sim_constant_names[same]);
        }
        for (int i = 0; same < 0 && i < N; i++) negative |= constants[i] < 0;
        if (same >= 0 || negative || gain <= best_gain) continue;
        best_gain = gain;
        memcpy(f->constants, constants, sizeof constants);
    }
    for (int i = 0; i < N; i++)
        if (f->constants[i] > SECONDS_MAX)
            return fcp_fail(err, FCP_E_ROWS, "%s pass, head_dim %u: by these rows a %s takes %g seconds",
                            fcp_pass_names[f->pass], f->head_dim, sim_constant_names[i], f->constants[i]);
    for (int i = SIM_FULL; i <= SIM_PARTIAL; i++)
        if (best_gain < 0 || f->constants[i] * (double)SIM_SECOND < 1)
            return fcp_fail(
                err, FCP_E_ROWS,
                "%s pass, head_dim %u: by these rows a %s cell would take no time; they are too few or too noisy",
                fcp_pass_names[f->pass], f->head_dim, sim_constant_names[i]);
    for (uint32_t r = 0; r < x->row_count; r++) {
        calibrate_row *row = &x->rows[r];
        if (row->pass != f->pass || row->head_dim != f->head_dim) continue;
        row->predicted = predict(row, f->constants);
        double error = row->predicted / row->seconds - 1, size = error < 0 ? -error : error;
        double *worst = row->held_out ? &f->worst_held_out : &f->worst;
        if (size > *worst) *worst = size;
    }
    return FCP_OK;
}

fcp_code calibrate_fit_rows(calibration *x, uint32_t hold_out, fcp_error *err) {
    for (uint32_t r = 0; r < x->row_count; r++) {
        uint32_t i = 0;
        while (i < x->fit_count && (x->fits[i].pass != x->rows[r].pass || x->fits[i].head_dim != x->rows[r].head_dim))
            i++;
        if (i == sizeof x->fits / sizeof *x->fits)
            return fcp_fail(err, FCP_E_ROWS, "the rows are of more than %u kinds of pass and head_dim", i);
        if (i == x->fit_count)
            x->fits[x->fit_count++] = (calibrate_fit){.pass = x->rows[r].pass, .head_dim = x->rows[r].head_dim};
        x->fits[i].rows++;
    }
    for (uint32_t i = 0; i < x->fit_count; i++) {
        calibrate_fit *f = &x->fits[i];
        uint32_t seen = 0;
        f->held_out = hold_out;
        if ((uint64_t)f->rows < (uint64_t)hold_out + N + 1)
            return fcp_fail(err, FCP_E_ROWS,
                            "%s pass, head_dim %u: %u rows, of which %u are held out; %d constants need at least %d",
                            fcp_pass_names[f->pass], f->head_dim, f->rows, hold_out, N, N + 1);
        for (uint32_t r = 0; r < x->row_count; r++) {
            calibrate_row *row = &x->rows[r];
            if (row->pass != f->pass || row->head_dim != f->head_dim) continue;
            /* held-out rows are evenly spaced: of 10 rows with 5 held out, rows 1, 3, 5, 7, 9 */
            row->held_out = (uint64_t)(seen + 1) * hold_out / f->rows > (uint64_t)seen * hold_out / f->rows;
            seen++;
        }
        fcp_code code = fit_one(x, f, err);
        if (code) return code;
    }
    return FCP_OK;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

#define OF_BASE "\"of the profile that comes with fcpc\"\n" /* the source of figures that rows do not tell */

static void add_time(text *out, const char *name, uint64_t time) {
    static const struct {
        const char *unit;
        uint64_t scale, most;
    } units[] = {{"ps", 1, 10000},
                 {"ns", 1000, UINT64_C(10000000)},
                 {"us", 1000000, UINT64_C(10000000000)},
                 {"ms", UINT64_C(1000000000), UINT64_MAX}};
    size_t u = 0;
    while (time >= units[u].most) u++;
    text_printf(out, "%-24s %*.*f %s  ", name, u ? 13 : 9, u ? 3 : 0, (double)time / (double)units[u].scale,
                units[u].unit);
}

fcp_code calibrate_profile(const calibration *x, const char *from, const sim_profile *base, text *out, fcp_error *err) {
    char name[NAME], source[80];
    size_t used = 0;
    for (const char *s = from; *s && used < sizeof source - 1; s++)
        if ((unsigned char)*s >= ' ' && *s != '"' && *s != 127) source[used++] = *s;
    source[used] = 0;
    text_printf(out, "# Written by fcpc calibrate.\ngpu %s\n%-24s %14llu  \"as the rows say: %s\"\n", x->rows[0].gpu,
                "sms", (unsigned long long)x->rows[0].sms, source);
    add_time(out, "small", base ? base->small : UINT64_C(5000000));
    text_puts(out, base ? OF_BASE : "\"assumed\"\n");
    if (base && base->local) {
        add_time(out, "latency.local", base->local);
        text_puts(out, OF_BASE);
    }
    if (base && base->channel)
        text_printf(out, "%-24s %11.3f GB/s  " OF_BASE, "channel", 1e-9 * (double)base->channel);
    if (base && base->queues == 1) text_printf(out, "%-24s %14d  " OF_BASE, "queues", 1);
    if (base && base->part > 1)
        text_printf(out, "%-24s %14llu  " OF_BASE, "part", (unsigned long long)base->part);
    for (uint32_t pass = 0; pass < FCP_PASSES; pass++) {
        uint32_t fits = 0;
        for (uint32_t i = 0; i < x->fit_count; i++) {
            const calibrate_fit *f = &x->fits[i];
            if (f->pass != pass) continue;
            if (++fits > SIM_HEAD_DIMS)
                return fcp_fail(err, FCP_E_ROWS, "a profile has constants for %d sizes of heads at most",
                                SIM_HEAD_DIMS);
            for (int c = 0; c < N; c++) {
                snprintf(name, sizeof name, "%s.%u.%s", fcp_pass_names[pass], f->head_dim, sim_constant_names[c]);
                add_time(out, name, (uint64_t)(f->constants[c] * (double)SIM_SECOND + 0.5));
                text_printf(out, "\"fitted to %s: %u rows, errors at most %.1f %%\"\n", source, f->rows - f->held_out,
                            100 * f->worst);
            }
        }
        for (int i = 0; base && !fits && i < SIM_HEAD_DIMS && base->head_dims[pass][i]; i++)
            for (int c = 0; c < N; c++) {
                snprintf(name, sizeof name, "%s.%u.%s", fcp_pass_names[pass], base->head_dims[pass][i],
                         sim_constant_names[c]);
                add_time(out, name, base->kernels[pass][i].at[c]);
                text_puts(out, OF_BASE);
            }
        if (!fits && !base)
            return fcp_fail(err, FCP_E_ROWS,
                            "there is no row of the %s pass, and no profile of %s comes with fcpc to take it from",
                            fcp_pass_names[pass], x->rows[0].gpu);
    }
    return out->failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
}

fcp_code calibrate_count(const fcp_plan *plan, fcp_pass pass, uint32_t rank, calibrate_row *out) {
    *out = (calibrate_row){.pass = pass, .head_dim = plan->problem->head_dim};
    return sim_model_count(plan, pass, rank, out->counts);
}

void calibrate_print(const calibrate_row *row, char out[CALIBRATE_LINE]) {
    unsigned long long n[N];
    for (int i = 0; i < N; i++) n[i] = row->counts[i];
    snprintf(out, CALIBRATE_LINE, "%s,%s,%llu,%s,%u,%llu,%llu,%llu,%llu,%.9g", row->name, row->gpu,
             (unsigned long long)row->sms, fcp_pass_names[row->pass], row->head_dim, n[SIM_FULL], n[SIM_PARTIAL],
             n[SIM_ROW], n[SIM_LAUNCH], row->seconds);
}
