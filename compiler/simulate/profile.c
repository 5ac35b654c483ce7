/* profile.c: reads the text of a profile.
 *
 * Requires: nothing; the text is from outside and is checked to the last byte.
 * Gives:    every figure of the profile, or the line that is wrong.
 * Cost:     linear in the text.
 */
#include "compiler/simulate/profile.h"
#include "runtime/plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

extern const char *const sim_profile_names[], *const sim_profile_texts[];
extern const unsigned sim_profile_count;

/* A line of the text, and what is left of it to read. */
typedef struct line {
    const char *file;
    uint32_t number;
    const char *at, *end;
} line;

__attribute__((format(printf, 3, 4))) static fcp_code wrong(const line *l, fcp_error *err, const char *format, ...) {
    char message[320];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fcp_code code = fcp_fail(err, FCP_E_PROFILE, "%s", message);
    if (err) {
        snprintf(err->file, sizeof err->file, "%s", l->file);
        err->line = l->number;
        err->column = 1;
    }
    return code;
}

/* The next word of the line, up to white space; empty at its end. */
static size_t word(line *l, const char **out) {
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t')) l->at++;
    *out = l->at;
    while (l->at < l->end && *l->at != ' ' && *l->at != '\t' && *l->at != '#') l->at++;
    return (size_t)(l->at - *out);
}

/* A decimal number, times `scale`, rounded down; false: malformed, or beyond 2^62. */
static bool decimal(const char *text, size_t size, uint64_t scale, uint64_t *out) {
    unsigned __int128 value = 0, part = 1;
    bool point = false, digit = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9' || value >> 62 || (point && part > 1000000000)) return false;
        value = value * 10 + (unsigned)(text[i] - '0');
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

/* VALUE [UNIT] "SOURCE" */
static fcp_code figure(line *l, const char *name, bool time, uint64_t *out, fcp_error *err) {
    const char *value, *unit;
    size_t value_size = word(l, &value);
    uint64_t scale = 1;
    if (time) {
        size_t size = word(l, &unit);
        scale = 0;
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (strlen(units[i].name) == size && !memcmp(unit, units[i].name, size)) scale = units[i].scale;
        if (!scale) return wrong(l, err, "%s needs a time: ps, ns, us or ms after the number", name);
    }
    if (!decimal(value, value_size, scale, out))
        return wrong(l, err, "%s: '%.*s' is no number that fits", name, (int)(value_size < 40 ? value_size : 40), value);
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t')) l->at++;
    if (l->at == l->end || *l->at != '"')
        return wrong(l, err, "%s has no source: \"...\" says where the figure comes from, or \"assumed\"", name);
    const char *close = memchr(l->at + 1, '"', (size_t)(l->end - l->at - 1));
    if (!close || close == l->at + 1 || close - l->at > SIM_SOURCE) return wrong(l, err, "%s: a source is 1 to %d characters in quotes", name, SIM_SOURCE - 1);
    l->at = close + 1;
    const char *rest;
    if (word(l, &rest)) return wrong(l, err, "%s: something follows the source", name);
    return FCP_OK;
}

/* forward.128.full: which constant of which kernel. NULL: reported. */
static uint64_t *constant(line *l, const char *name, sim_profile *p, fcp_error *err) {
    static const char *const constants[] = {"full", "partial", "row", "launch"};
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        size_t begin = strlen(fcp_pass_names[pass]);
        if (strncmp(name, fcp_pass_names[pass], begin) || name[begin++] != '.') continue;
        const char *point = strchr(name + begin, '.');
        uint64_t head_dim = 0;
        if (!point || !decimal(name + begin, (size_t)(point - name) - begin, 1, &head_dim) || !head_dim || head_dim > 1024)
            break;
        int at = 0;
        while (at < SIM_HEAD_DIMS && p->head_dims[pass][at] && p->head_dims[pass][at] != head_dim) at++;
        if (at == SIM_HEAD_DIMS) {
            wrong(l, err, "a profile has constants for %d sizes of heads at most", SIM_HEAD_DIMS);
            return NULL;
        }
        p->head_dims[pass][at] = (uint32_t)head_dim;
        sim_kernel *k = &p->kernels[pass][at];
        uint64_t *const places[] = {&k->full, &k->partial, &k->row, &k->launch};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++)
            if (!strcmp(point + 1, constants[i])) return places[i];
    }
    wrong(l, err, "'%s' is no figure of a profile: gpu, sms, small, %s.128.full, .partial, .row, .launch, %s....", name,
          fcp_pass_names[FCP_FORWARD], fcp_pass_names[FCP_BACKWARD]);
    return NULL;
}

fcp_code sim_profile_read(const char *file, const char *text, size_t size, sim_profile *out, fcp_error *err) {
    sim_profile p = {.name = ""};
    uint32_t number = 0;
    for (const char *at = text, *end = text + size; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        line l = {.file = file, .number = ++number, .at = at, .end = newline ? newline : end};
        at = newline ? newline + 1 : end;
        if (l.end > l.at && l.end[-1] == '\r') l.end--;
        const char *typed;
        size_t length = word(&l, &typed);
        if (!length) continue;
        char name[48];
        if (length >= sizeof name || memchr(typed, 0, length)) return wrong(&l, err, "not a name of a figure");
        memcpy(name, typed, length);
        name[length] = 0;
        fcp_code code = FCP_OK;
        if (!strcmp(name, "gpu")) {
            const char *gpu, *rest;
            size_t gpu_size = word(&l, &gpu);
            if (!gpu_size || gpu_size >= SIM_NAME || word(&l, &rest)) return wrong(&l, err, "gpu: a name of 1 to %d letters", SIM_NAME - 1);
            memcpy(p.name, gpu, gpu_size);
            p.name[gpu_size] = 0;
            continue;
        }
        uint64_t *place, value = 0;
        bool time = strcmp(name, "sms") != 0;
        if (!time) place = &p.sms;
        else if (!strcmp(name, "small")) place = &p.small;
        else if (!(place = constant(&l, name, &p, err))) return FCP_E_PROFILE;
        if ((code = figure(&l, name, time, &value, err))) return code;
        *place = value;
    }
    line l = {.file = file, .number = number ? number : 1};
    if (!*p.name) return wrong(&l, err, "the profile does not say which gpu it is of");
    if (!p.sms) return wrong(&l, err, "the profile has no sms");
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!p.head_dims[pass][0]) return wrong(&l, err, "the profile has no constants of the %s pass", fcp_pass_names[pass]);
        for (int i = 0; i < SIM_HEAD_DIMS && p.head_dims[pass][i]; i++)
            if (!p.kernels[pass][i].full || !p.kernels[pass][i].partial)
                return wrong(&l, err, "head_dim %u of the %s pass needs full and partial above 0", p.head_dims[pass][i], fcp_pass_names[pass]);
    }
    *out = p;
    return FCP_OK;
}

fcp_code sim_profile_find(const char *name, sim_profile *out, fcp_error *err) {
    char known[256];
    size_t used = 0;
    for (unsigned i = 0; i < sim_profile_count; i++) {
        if (!strcmp(name, sim_profile_names[i]))
            return sim_profile_read(name, sim_profile_texts[i], strlen(sim_profile_texts[i]), out, err);
        used += (size_t)snprintf(known + used, sizeof known - used, " %s", sim_profile_names[i]);
    }
    return fcp_fail(err, FCP_E_PROFILE, "there is no profile of '%.40s': there are%s, and files with --profile", name, known);
}

sim_kernel sim_profile_kernel(const sim_profile *profile, fcp_pass pass, uint32_t head_dim) {
    const uint32_t *dims = profile->head_dims[pass];
    int best = 0;
    for (int i = 0; i < SIM_HEAD_DIMS && dims[i]; i++) {
        uint32_t here = dims[i] > head_dim ? dims[i] - head_dim : head_dim - dims[i];
        uint32_t then = dims[best] > head_dim ? dims[best] - head_dim : head_dim - dims[best];
        if (here < then) best = i;
    }
    sim_kernel k = profile->kernels[pass][best];
    k.full = k.full * head_dim / dims[best];
    k.partial = k.partial * head_dim / dims[best];
    k.row = k.row * head_dim / dims[best];
    return k;
}
