/* verdict.c: turns the errors of a tensor's numbers into a verdict. RULE.md says what is allowed. */
#include <math.h>

#include <stdio.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/judge_parts.h"

/* -1: -infinity, 0: finite, 1: infinity, 2: NaN. */
static int kind_of(double x) { return isnan(x) ? 2 : isfinite(x) ? 0 : x > 0 ? 1 : -1; }

static void note_odd(measure *m, fcp_verdict odd, uint64_t at, double result, double expected) {
    if (m->odd != FCP_RIGHT && m->odd_at <= at) return;
    m->odd = odd;
    m->odd_at = at;
    m->odd_result = result;
    m->odd_expected = expected;
}

/* Keeps the worse of two places; of equal ones the first in the tensor. */
static void keep_worse(place *kept, const place *x, double than, double is) {
    if (is > than || (is == than && x->at < kept->at)) *kept = *x;
}

static void note_error(measure *m, const place *largest, const place *furthest) {
    if (!m->compared) {
        m->compared = true;
        m->largest = *largest;
        m->furthest = *furthest;
        return;
    }
    keep_worse(&m->largest, largest, m->largest.error, largest->error);
    keep_worse(&m->furthest, furthest, m->furthest.error - m->furthest.allowance,
               furthest->error - furthest->allowance);
}

void measure_number(measure *m, fcp_dtype dtype, uint64_t at, const double *result, double naive, double exact,
                    double allowance, bool told, bool empty) {
    if (told) m->told++;
    else m->untold++;
    const double stored = (double)fcp_round_to(dtype, (float)exact); /* infinite where the dtype ends */
    if (isfinite(stored) && isfinite(naive) && fabs(naive - exact) > m->naive) m->naive = fabs(naive - exact);
    if (!result) return;
    const double value = *result;
    m->seen = true;
    if (empty) {
        if (value != (double)(float)exact) note_odd(m, FCP_NOT_EMPTY, at, value, exact);
        else if (!isfinite(value)) { /* -inf, as it must be */
            const place right = {.at = at, .result = value, .expected = exact};
            note_error(m, &right, &right);
            return;
        }
    }
    if (!isfinite(value) || !isfinite(exact)) {
        const double reach = (double)fcp_round_to(dtype, (float)(exact + copysign(allowance, value)));
        const bool beyond = isinf(value) && reach == value; /* what is allowed goes on beyond the dtype */
        bool alike = kind_of(value) == kind_of(stored) || (kind_of(value) == kind_of(naive) && !isfinite(naive));
        if (!alike && !beyond) note_odd(m, FCP_NOT_FINITE, at, value, exact);
        return;
    }
    const place x = {at, fabs(value - exact), allowance, value, exact};
    if (x.error > m->share * x.allowance) m->share = x.allowance > 0 ? x.error / x.allowance : INFINITY;
    note_error(m, &x, &x);
}

void measure_merge(measure *into, const measure *m) {
    if (m->naive > into->naive) into->naive = m->naive;
    if (m->share > into->share) into->share = m->share;
    if (m->compared) note_error(into, &m->largest, &m->furthest);
    if (m->odd != FCP_RIGHT) note_odd(into, m->odd, m->odd_at, m->odd_result, m->odd_expected);
    into->seen |= m->seen;
    into->told += m->told;
    into->untold += m->untold;
}

void measure_report(const measure *m, unsigned check, fcp_check_report *report) {
    const bool differs = m->compared && m->furthest.error > m->furthest.allowance;
    const place *x = differs ? &m->furthest : &m->largest;
    fcp_check c = {.checked = true, .max_abs_error = m->largest.error, .reference_error = m->naive, .worst = x->at,
                   .tolerance = x->allowance, .share = m->share, .result = x->result, .expected = x->expected};
    if (m->untold) c.untold = (float)((double)m->untold / (double)(m->told + m->untold));
    if (m->odd != FCP_RIGHT) {
        c.verdict = (uint8_t)m->odd;
        c.worst = m->odd_at;
        c.result = m->odd_result;
        c.expected = m->odd_expected;
    } else if (m->seen && !m->compared) c.verdict = FCP_NOTHING_FINITE;
    else c.verdict = differs ? FCP_DIFFERS : m->untold > m->told ? FCP_NOTHING_PROVEN : FCP_RIGHT;
    c.ok = c.verdict == FCP_RIGHT;
    report->tensor[check] = c;
    report->ok &= c.ok;
    if (c.max_abs_error > report->max_abs_error) report->max_abs_error = c.max_abs_error;
    if (c.reference_error > report->reference_error) report->reference_error = c.reference_error;
}

const char *fcp_check_name(unsigned check) {
    return check == FCP_CHECK_DSINK    ? "dsink"
           : check == FCP_CHECK_DTABLE ? "dtable"
                                       : fcp_tensor_name((fcp_tensor)check);
}

/* Which number of a tensor it is: "token 5, head 2, component 7". */
static void tensor_place(const fcp_plan *plan, fcp_tensor t, uint64_t number, char *out, size_t size) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    uint64_t dims[3] = {1, 1, 1};
    uint32_t count = fcp_tensor_shape(&shape, t, dims);
    uint64_t wide = count == 3 ? dims[2] : 1, row = number / wide;
    int used = snprintf(out, size, "token %llu, head %llu", (unsigned long long)(row / dims[1]),
                        (unsigned long long)(row % dims[1]));
    if (count == 3) snprintf(out + used, size - (size_t)used, ", component %llu", (unsigned long long)(number % wide));
}

/* Which number of all tables it is: "table slopes, element 3", or "table bias, row 2, column 40". */
static void table_place(const fcp_plan *plan, uint64_t number, char *out, size_t size) {
    fcp_table table = {0};
    for (uint32_t i = fcp_plan_tables(plan, 0, NULL); i-- > 0;) {
        fcp_plan_tables(plan, i, &table);
        if (table.first <= number) break;
    }
    const uint64_t at = number - table.first, columns = table.columns ? table.columns : 1;
    if (!table.columns) snprintf(out, size, "table %.60s, element %llu", table.name, (unsigned long long)at);
    else
        snprintf(out, size, "table %.60s, row %llu, column %llu", table.name, (unsigned long long)(at / columns),
                 (unsigned long long)(at % columns));
}

void fcp_check_text(const fcp_plan *plan, unsigned check, const fcp_check *c, char *out, size_t size) {
    const char *name = check == FCP_TENSOR_LSE_LOW ? "lse + lse_low" : fcp_check_name(check);
    char at[160];
    if (check == FCP_CHECK_DSINK) snprintf(at, sizeof at, "head %llu", (unsigned long long)c->worst);
    else if (check == FCP_CHECK_DTABLE) table_place(plan, c->worst, at, sizeof at);
    else tensor_place(plan, (fcp_tensor)check, c->worst, at, sizeof at);
    switch ((fcp_verdict)c->verdict) {
    case FCP_RIGHT: snprintf(out, size, "%s is right", name); break;
    case FCP_DIFFERS:
        snprintf(out, size, "%s differs from the definition of attention by %.3g, allowed is %.3g (%s: %.9g, not %.9g)",
                 name, fabs(c->result - c->expected), c->tolerance, at, c->result, c->expected);
        break;
    case FCP_NOT_FINITE:
        snprintf(out, size, "%s is %.9g where the definition of attention gives %.9g (%s)", name, c->result,
                 c->expected, at);
        break;
    case FCP_NOT_EMPTY:
        snprintf(out, size, "%s is %.9g for a query that sees no keys; it must be exactly %.9g (%s)", name, c->result,
                 c->expected, at);
        break;
    case FCP_NOTHING_FINITE:
        snprintf(out, size, "%s has no finite number, so nothing says that it is right: the scores overflow", name);
        break;
    case FCP_NOTHING_PROVEN:
        snprintf(out, size,
                 "%s may be off by as much as it is in %.3g %% of its numbers, so nothing says that it is right: fp32 "
                 "cannot tell the scores apart, and the naive computation is off by %.3g",
                 name, 100 * (double)c->untold, c->reference_error);
        break;
    }
}
