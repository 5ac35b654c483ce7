/* profile.c: reads the text of a profile.
 *
 * Requires: nothing: the text is from outside, and is checked to the last byte.
 * Gives:    every figure of the profile, or an error with the line that is wrong.
 * Cost:     linear in the text.
 */
#include "compiler/simulate/profile.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/base/text.h"
#include "runtime/base/read_file.h"

extern const char *const sim_profile_names[], *const sim_profile_texts[];
extern const unsigned sim_profile_count;

#define NAME(id, member) #member,
const char *const sim_constant_names[SIM_CONSTANT_COUNT] = {SIM_CONSTANTS(NAME)};
#undef NAME

/* A line of the text, and the part of it that is still to be read. */
typedef struct line {
    const char *file;
    uint32_t number;
    const char *at, *end;
} line;

#define wrong(l, err, ...) fcp_fail_in(err, FCP_E_PROFILE, (l)->file, (l)->number, 1, __VA_ARGS__)

/* The next word of the line, up to white space; empty at its end. */
static size_t word(line *l, const char **out) {
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t')) l->at++;
    *out = l->at;
    while (l->at < l->end && *l->at != ' ' && *l->at != '\t' && *l->at != '#') l->at++;
    return (size_t)(l->at - *out);
}

/* A decimal number, times `scale`, rounded down; false: malformed, or beyond 2^62. */
static bool decimal(const char *digits, size_t size, uint64_t scale, uint64_t *out) {
    unsigned __int128 value = 0, part = 1;
    bool point = false, digit = false;
    for (size_t i = 0; i < size; i++) {
        if (digits[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (digits[i] < '0' || digits[i] > '9' || value >> 62 || (point && part > 1000000000)) return false;
        value = value * 10 + (unsigned)(digits[i] - '0');
        if (point) part *= 10;
        digit = true;
    }
    value = value * scale / part;
    *out = (uint64_t)value;
    return digit && !(value >> 62);
}

static const struct unit {
    const char *name;
    uint64_t scale; /* in picoseconds */
} units[] = {{"ps", 1}, {"ns", 1000}, {"us", 1000000}, {"ms", UINT64_C(1000000000)}};
typedef enum figure_kind { COUNT, TIME, RATE } figure_kind; /* what a figure is */

/* What has been read so far, and which figures were there. */
typedef struct reading {
    sim_profile p;
    bool sms, small, local, channel, queues, part;
    unsigned constants[FCP_PASSES][SIM_HEAD_DIMS]; /* a bit each */
} reading;

/* VALUE [UNIT] "SOURCE" */
static fcp_code figure(line *l, const char *name, figure_kind kind, uint64_t *out, fcp_error *err) {
    const char *value, *unit;
    size_t value_size = word(l, &value);
    uint64_t scale = 1;
    if (kind == RATE) {
        size_t size = word(l, &unit);
        if (size != 4 || memcmp(unit, "GB/s", 4)) return wrong(l, err, "%s needs a rate: GB/s after the number", name);
        scale = 1000000000;
    } else if (kind == TIME) {
        size_t size = word(l, &unit);
        scale = 0;
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (strlen(units[i].name) == size && !memcmp(unit, units[i].name, size)) scale = units[i].scale;
        if (!scale) return wrong(l, err, "%s needs a time: ps, ns, us or ms after the number", name);
    }
    if (value_size && *value == '-')
        return wrong(l, err, "%s is %.*s: it must not be negative", name, (int)(value_size < 40 ? value_size : 40),
                     value);
    if (!decimal(value, value_size, scale, out))
        return wrong(l, err, "%s: '%.*s' is no number that fits", name, (int)(value_size < 40 ? value_size : 40),
                     value);
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t')) l->at++;
    if (l->at == l->end || *l->at != '"')
        return wrong(l, err, "%s has no source: \"...\" says where the figure comes from, or \"assumed\"", name);
    const char *close = memchr(l->at + 1, '"', (size_t)(l->end - l->at - 1));
    if (!close || close == l->at + 1 || close - l->at > SIM_SOURCE)
        return wrong(l, err, "%s: a source is 1 to %d characters in quotes", name, SIM_SOURCE - 1);
    l->at = close + 1;
    const char *rest;
    if (word(l, &rest)) return wrong(l, err, "%s: something follows the source", name);
    return FCP_OK;
}

/* The error of an unknown name. It suggests the nearest name, with the head_dim that was typed. */
static fcp_code unknown(line *l, const char *name, fcp_error *err) {
    enum { PLAIN = 7 };
    const char *names[PLAIN + FCP_PASSES * SIM_CONSTANT_COUNT] = {"gpu",     "sms",    "small", "latency.local",
                                                                  "channel", "queues", "part"};
    char made[FCP_PASSES * SIM_CONSTANT_COUNT][64];
    size_t count = PLAIN;
    const char *point = strchr(name, '.'), *second = point ? strchr(point + 1, '.') : NULL;
    const int size = second ? (int)(second - point - 1) : 3;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int i = 0; i < SIM_CONSTANT_COUNT; i++) {
            snprintf(made[count - PLAIN], sizeof made[0], "%s.%.*s.%s", fcp_pass_names[pass], size,
                     second ? point + 1 : "128", sim_constant_names[i]);
            names[count] = made[count - PLAIN];
            count++;
        }
    const char *near = diag_nearest(name, strlen(name), names, count);
    if (near) return wrong(l, err, "'%s' is no figure of a profile; did you mean %s?", name, near);
    return wrong(l, err, "'%s' is no figure of a profile: gpu, sms, small, latency.local, channel, queues, part, "
                         "forward.128.full, .partial, .row, .launch, backward....", name);
}

/* Finds the constant that a name such as forward.128.full means: *out. *out_given and *out_bit: the bit that says
 * whether it was given. */
static fcp_code constant(line *l, const char *name, reading *r, uint64_t **out, unsigned **out_given, unsigned *out_bit,
                         fcp_error *err) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        size_t begin = strlen(fcp_pass_names[pass]) + 1;
        if (strncmp(name, fcp_pass_names[pass], begin - 1) || name[begin - 1] != '.') continue;
        const char *point = strchr(name + begin, '.');
        uint64_t head_dim = 0;
        if (!point || !decimal(name + begin, (size_t)(point - name) - begin, 1, &head_dim) || !head_dim ||
            head_dim > 1024)
            break;
        int at = 0, which = 0;
        while (at < SIM_HEAD_DIMS && r->p.head_dims[pass][at] && r->p.head_dims[pass][at] != head_dim) at++;
        while (which < SIM_CONSTANT_COUNT && strcmp(point + 1, sim_constant_names[which])) which++;
        if (which == SIM_CONSTANT_COUNT) break;
        if (at == SIM_HEAD_DIMS)
            return wrong(l, err, "a profile has constants for %d sizes of heads at most", SIM_HEAD_DIMS);
        r->p.head_dims[pass][at] = (uint32_t)head_dim;
        *out = &r->p.kernels[pass][at].at[which];
        *out_given = &r->constants[pass][at];
        *out_bit = 1u << which;
        return FCP_OK;
    }
    return unknown(l, name, err);
}

/* Are two names equal? The first character nearly always decides, so it is compared before the call of strcmp. */
static bool is(const char *a, const char *b) { return *a == *b && !strcmp(a, b); }

static fcp_code read_line(line *l, const char *name, reading *r, fcp_error *err) {
    sim_profile *p = &r->p;
    if (is(name, "gpu")) {
        const char *gpu, *rest;
        size_t size = word(l, &gpu);
        if (!size || size >= SIM_NAME || word(l, &rest))
            return wrong(l, err, "gpu: a name of 1 to %d letters", SIM_NAME - 1);
        if (*p->name) return wrong(l, err, "gpu is given twice");
        memcpy(p->name, gpu, size);
        return FCP_OK;
    }
    static const struct { const char *name; size_t value, given; figure_kind kind; } plain[] = {
        {"sms", offsetof(reading, p.sms), offsetof(reading, sms), COUNT},
        {"small", offsetof(reading, p.small), offsetof(reading, small), TIME},
        {"latency.local", offsetof(reading, p.local), offsetof(reading, local), TIME},
        {"channel", offsetof(reading, p.channel), offsetof(reading, channel), RATE},
        {"queues", offsetof(reading, p.queues), offsetof(reading, queues), COUNT},
        {"part", offsetof(reading, p.part), offsetof(reading, part), COUNT}};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        bool *given = (bool *)((char *)r + plain[i].given);
        if (!is(name, plain[i].name)) continue;
        if (*given) return wrong(l, err, "%s is given twice", name);
        *given = true;
        return figure(l, name, plain[i].kind, (uint64_t *)((char *)r + plain[i].value), err);
    }
    uint64_t *place = NULL, value = 0;
    unsigned *given = NULL, bit = 0;
    fcp_code code = constant(l, name, r, &place, &given, &bit, err);
    if (code) return code;
    if (*given & bit) return wrong(l, err, "%s is given twice", name);
    if ((code = figure(l, name, TIME, &value, err))) return code;
    *given |= bit;
    *place = value;
    return FCP_OK;
}

/* Sets the figures that may be missing. */
static void default_figures(reading *r) {
    if (!r->queues) r->p.queues = 2;
    if (!r->part) r->p.part = 1;
}

/* Checks that no figure is missing. */
static fcp_code complete(const line *end, reading *r, fcp_error *err) {
    sim_profile *p = &r->p;
    if (!*p->name) return wrong(end, err, "the profile does not say which gpu it is of");
    if (!p->sms) return wrong(end, err, r->sms ? "sms must be above 0" : "the profile has no sms");
    if (!r->small) return wrong(end, err, "the profile has no small");
    if (r->local && !p->local) return wrong(end, err, "latency.local must be above 0");
    if (r->channel && !p->channel) return wrong(end, err, "channel must be above 0");
    default_figures(r);
    if (p->queues != 1 && p->queues != 2) return wrong(end, err, "queues is 1 or 2");
    if (!p->part || p->part > p->sms) return wrong(end, err, "part must be from 1 to sms");
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!p->head_dims[pass][0])
            return wrong(end, err, "the profile has no constants of the %s pass", fcp_pass_names[pass]);
        for (int i = 0; i < SIM_HEAD_DIMS && p->head_dims[pass][i]; i++)
            for (int c = 0; c < SIM_CONSTANT_COUNT; c++) {
                if (!(r->constants[pass][i] >> c & 1))
                    return wrong(end, err, "the profile has no %s.%u.%s", fcp_pass_names[pass], p->head_dims[pass][i],
                                 sim_constant_names[c]);
                if ((c == SIM_FULL || c == SIM_PARTIAL) && !p->kernels[pass][i].at[c])
                    return wrong(end, err, "%s.%u.%s must be above 0", fcp_pass_names[pass], p->head_dims[pass][i],
                                 sim_constant_names[c]);
            }
    }
    return FCP_OK;
}

static bool is_of_kernel(const char *name) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const size_t length = strlen(fcp_pass_names[pass]);
        if (!strncmp(name, fcp_pass_names[pass], length) && name[length] == '.') return true;
    }
    return false;
}

/* Reads lines up to `end`. With `device` it stops at the first line about a kernel: those about the device come first.
 */
static fcp_code read_lines(line *last, const char *end, bool device, reading *r, fcp_error *err) {
    for (const char *at = last->at; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        line l = {.file = last->file, .number = ++last->number, .at = at, .end = newline ? newline : end};
        at = newline ? newline + 1 : end;
        if (l.end > l.at && l.end[-1] == '\r') l.end--;
        const char *typed;
        size_t length = word(&l, &typed);
        if (!length) continue;
        char name[48];
        if (length >= sizeof name || memchr(typed, 0, length)) return wrong(&l, err, "not a name of a figure");
        memcpy(name, typed, length);
        name[length] = 0;
        if (device && is_of_kernel(name)) break;
        fcp_code code = read_line(&l, name, r, err);
        if (code) return code;
    }
    return FCP_OK;
}

fcp_code sim_profile_read(const char *file, const char *bytes, size_t size, sim_profile *out, fcp_error *err) {
    reading r = {.p = {.name = ""}};
    line last = {.file = file, .at = bytes};
    fcp_code code = read_lines(&last, bytes + size, false, &r, err);
    if (code) return code;
    if (!last.number) last.number = 1;
    code = complete(&last, &r, err);
    if (!code) *out = r.p;
    return code;
}

/* The text of a profile that comes with the compiler; NULL: there is none of that name. */
static const char *find_text(const char *name) {
    for (unsigned i = 0; i < sim_profile_count; i++)
        if (!strcmp(name, sim_profile_names[i])) return sim_profile_texts[i];
    return NULL;
}

bool sim_profile_device(const char *name, sim_profile *out) {
    reading r = {.p = {.name = ""}};
    line last = {.file = name, .at = find_text(name)};
    fcp_error ignored;
    if (!last.at || read_lines(&last, last.at + strlen(last.at), true, &r, &ignored)) return false;
    default_figures(&r);
    *out = r.p;
    return true;
}

fcp_code sim_profile_find(const char *name, sim_profile *out, fcp_error *err) {
    const char *found = find_text(name);
    char known[256];
    size_t used = 0;
    if (found) return sim_profile_read(name, found, strlen(found), out, err);
    for (unsigned i = 0; i < sim_profile_count; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", sim_profile_names[i]);
    const char *near = diag_nearest(name, strlen(name), sim_profile_names, sim_profile_count);
    return fcp_fail(err, FCP_E_PROFILE, "there is no profile of '%.40s'%s%s%s there are%s, and files with --profile",
                    name, near ? "; did you mean " : ":", near ? near : "", near ? "?" : "", known);
}

fcp_code sim_profile_of(const fcp_cluster *cluster, sim_profile *out, fcp_error *err) {
    char gpu[sizeof cluster->gpu + 1] = "";
    memcpy(gpu, cluster->gpu, sizeof cluster->gpu);
    return sim_profile_find(gpu, out, err);
}

bool sim_profile_is_file(const char *asked) { return strpbrk(asked, "./"); }

fcp_code sim_profile_open(const char *asked, bool regular, sim_profile *out, fcp_error *err) {
    enum { PROFILE_MAX = 1 << 20 };
    if (!sim_profile_is_file(asked)) return sim_profile_find(asked, out, err);
    text bytes = {0};
    char room[128];
    int why = text_read(&bytes, asked, regular, PROFILE_MAX);
    fcp_code code;
    if (bytes.failed) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory reading '%s'", asked);
    else if (why || bytes.size > PROFILE_MAX)
        code = fcp_fail_in(err, FCP_E_READ, asked, 0, 0, "cannot be read: %s",
                           why ? fcp_read_reason(why, room) : "too long for a profile");
    else code = sim_profile_read(asked, bytes.size ? bytes.at : "", bytes.size, out, err);
    text_free(&bytes);
    return code;
}

sim_kernel sim_profile_kernel(const sim_profile *profile, fcp_pass pass, uint32_t head_dim, uint32_t value_dim) {
    const uint32_t *dims = profile->head_dims[pass], flops = fcp_pair_flops(head_dim, value_dim, pass);
    uint32_t best = 0, least = UINT32_MAX, measured = 0;
    for (uint32_t i = 0; i < SIM_HEAD_DIMS && dims[i]; i++) {
        const uint32_t of = fcp_pair_flops(dims[i], dims[i], pass), off = of > flops ? of - flops : flops - of;
        if (off < least) best = i, least = off, measured = of;
    }
    sim_kernel k = profile->kernels[pass][best];
    for (int c = 0; c < SIM_CONSTANT_COUNT; c++)
        if (c != SIM_LAUNCH) k.at[c] = (uint64_t)((unsigned __int128)k.at[c] * flops / measured);
    return k;
}
