/* parse.c: reads PTX: kernels, their registers, labels and instructions. Each instruction is compared with the tables
 * of forms.
 *
 * Requires: a text as NVRTC prints it: no functions, few global variables, one dynamic shared array.
 * Gives:    the module of ptx.h, or what was not understood and in which line.
 * Cost:     linear in the text.
 * Source:   the manual's chapters on syntax and on state spaces.
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/module.h"

enum { NAMES = 256, PIECES = 400, CHUNK = 1 << 16, NAME = 80 };

struct ptx_chunk {
    struct ptx_chunk *next;
    size_t used;
    _Alignas(16) uint8_t bytes[CHUNK];
};

/* A declaration: registers name0 .. name(count - 1), or if count is 0 `name` alone; or a symbol that has an address. */
typedef struct declared {
    char name[NAME];
    uint32_t count, number, at, depth;
    uint8_t bits; /* 0: a symbol */
    int64_t value;
} declared;
typedef struct label {
    char name[NAME];
    uint32_t insn;
} label;
typedef struct piece {
    const char *text;
    uint32_t length; /* 1 with one of {}[]| stands for itself */
} piece;

typedef struct parser {
    ptx_module *m;
    ptx_kernel *k; /* NULL outside of one */
    const char *at;
    uint32_t line, depth;
    declared names[NAMES];
    uint32_t name_count, insn_room;
    label *labels;
    uint32_t label_count, label_room;
    char *error;
    bool failed;
} parser;

static bool fail(parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(parser *p, const char *format, ...) {
    va_list args;
    if (p->failed) return false;
    p->failed = true;
    int n = snprintf(p->error, PTX_ERROR, "line %u: ", p->line);
    va_start(args, format);
    vsnprintf(p->error + n, (size_t)(PTX_ERROR - n), format, args);
    va_end(args);
    return false;
}

static void *take(parser *p, size_t bytes) {
    struct ptx_chunk *c = p->m->chunks;
    bytes = (bytes + 15) / 16 * 16;
    if (!c || c->used + bytes > CHUNK) {
        c = bytes <= CHUNK ? malloc(sizeof *c) : NULL;
        if (!c) return fail(p, "out of memory"), NULL;
        c->used = 0;
        c->next = p->m->chunks;
        p->m->chunks = c;
    }
    c->used += bytes;
    return c->bytes + c->used - bytes;
}

/* --- characters --------------------------------------------------------------------------------------------------- */

static void skip(parser *p) {
    for (;;) {
        if (*p->at == '\n') p->line++;
        if (*p->at && isspace((unsigned char)*p->at)) p->at++;
        else if (p->at[0] == '/' && p->at[1] == '/')
            while (*p->at && *p->at != '\n') p->at++;
        else return;
    }
}
static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.' || c == ':';
}
static bool is(const piece *x, const char *word) {
    return strlen(word) == x->length && !memcmp(x->text, word, x->length);
}
static piece word(parser *p) {
    piece x;
    skip(p);
    x.text = p->at;
    while (is_name(*p->at)) p->at++;
    x.length = (uint32_t)(p->at - x.text);
    return x;
}
static bool expect(parser *p, char c) {
    skip(p);
    if (*p->at != c) return fail(p, "'%c' was expected before '%.20s'", c, p->at);
    p->at++;
    return true;
}
static bool number(parser *p, uint32_t *out) {
    char *end;
    skip(p);
    unsigned long x = strtoul(p->at, &end, 10);
    if (end == p->at || x > UINT32_MAX) return fail(p, "a number was expected before '%.20s'", p->at);
    p->at = end;
    *out = (uint32_t)x;
    return true;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static declared *declare(parser *p, piece name, uint32_t count, uint8_t bits) {
    if (p->name_count == NAMES || name.length >= NAME || !name.length)
        return fail(p, "too many names, or too long a name"), NULL;
    declared *d = &p->names[p->name_count++];
    *d = (declared){.count = count, .depth = p->depth, .bits = bits};
    memcpy(d->name, name.text, name.length);
    if (!bits) return d;
    uint32_t all = count ? count : 1, each = bits == 64 ? PTX_LARGE : bits == 1 ? 4 : PTX_SMALL;
    if (all > 1 << 20) return fail(p, "%u registers", all), NULL;
    p->k->file = (p->k->file + 63) / 64 * 64;
    d->number = p->k->registers;
    d->at = p->k->file;
    p->k->registers += all;
    p->k->file += all * each;
    return d;
}

static const declared *find(const parser *p, piece x, uint32_t *out_index) {
    for (uint32_t i = p->name_count; i-- > 0;) {
        const declared *d = &p->names[i];
        size_t length = strlen(d->name);
        *out_index = 0;
        if (x.length < length || memcmp(d->name, x.text, length)) continue;
        if (!d->count && x.length == length) return d;
        if (!d->count || x.length == length || x.length > length + 7) continue;
        uint32_t index = 0;
        bool good = true;
        for (uint32_t j = (uint32_t)length; j < x.length; j++) {
            good = good && isdigit((unsigned char)x.text[j]);
            index = index * 10 + (uint32_t)(x.text[j] - '0');
        }
        *out_index = index;
        if (good && index < d->count) return d;
    }
    return NULL;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

/* Makes the 32 lanes of a constant. */
static bool constant(parser *p, uint8_t bits, uint64_t value, ptx_operand *out) {
    ptx_module *m = p->m;
    uint64_t key = bits == 64 ? value : bits == 1 ? value & 1 : value & UINT32_MAX;
    uint32_t class = bits == 64 ? 2 : bits == 1 ? 1 : 0, bytes = bits == 64 ? PTX_LARGE : bits == 1 ? 16 : PTX_SMALL;
    if (m->index_count * 2 >= m->index_room) {
        uint32_t room = m->index_room ? 4 * m->index_room : 4096; /* places are 24 bits of a hash */
        uint32_t *index = calloc(room, sizeof *index);
        uint64_t *keys = calloc(room, sizeof *keys);
        for (uint32_t i = 0; index && keys && i < m->index_room; i++) {
            if (!m->index[i]) continue;
            uint32_t at = (uint32_t)(m->index_keys[i] * UINT64_C(0x9e3779b97f4a7c15) >> 40) % room;
            while (index[at]) at = (at + 1) % room;
            index[at] = m->index[i];
            keys[at] = m->index_keys[i];
        }
        free(m->index);
        free(m->index_keys);
        m->index = index;
        m->index_keys = keys;
        m->index_room = index && keys ? room : 0;
        if (!m->index_room) return fail(p, "out of memory");
    }
    *out = (ptx_operand){.kind = PTX_CONSTANT, .constant = 1, .bits = bits, .value = (int64_t)value};
    uint32_t at = (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 40) % m->index_room;
    for (; m->index[at]; at = (at + 1) % m->index_room)
        if (m->index_keys[at] == key && (m->index[at] - 1) % 4 == class) {
            out->at = (m->index[at] - 1) / 4 * 16;
            return true;
        }
    if (m->constant_bytes + bytes > m->constant_room) {
        uint32_t room = m->constant_room ? 2 * m->constant_room : 1 << 16;
        uint8_t *more = realloc(m->constants, room);
        if (!more) return fail(p, "out of memory");
        m->constants = more;
        m->constant_room = room;
    }
    out->at = m->constant_bytes;
    m->constant_bytes += bytes;
    m->index[at] = out->at / 16 * 4 + class + 1;
    m->index_keys[at] = key;
    m->index_count++;
    uint8_t *to = m->constants + out->at;
    uint32_t small = bits == 1 ? (key ? PTX_ALL : 0) : (uint32_t)key;
    if (bits == 64)
        for (int i = 0; i < PTX_LANES; i++) memcpy(to + i * 8, &key, 8);
    else
        for (int i = 0; i < (bits == 1 ? 1 : PTX_LANES); i++) memcpy(to + i * 4, &small, 4);
    return true;
}

static bool as_integer(piece x, uint64_t *out) {
    char text[40], *end;
    bool minus = x.length && *x.text == '-';
    if (x.length - minus == 0 || x.length >= sizeof text || !isdigit((unsigned char)x.text[minus])) return false;
    memcpy(text, x.text, x.length);
    text[x.length] = 0;
    if (text[minus] == '0' && (text[minus + 1] == 'f' || text[minus + 1] == 'F') && x.length == 10u + minus) {
        *out = strtoull(text + minus + 2, &end, 16); /* a float's bits */
        return !minus && !*end;
    }
    uint64_t value = strtoull(text + minus, &end, 0);
    if (*end == 'U') end++;
    *out = minus ? -value : value;
    return !*end;
}

static const struct {
    const char *name;
    ptx_special which;
} specials[] = {{"%tid.x", PTX_TID_X},     {"%tid.y", PTX_ZERO},  {"%tid.z", PTX_ZERO},   {"%ntid.x", PTX_NTID_X},
                {"%ntid.y", PTX_ONE},      {"%ntid.z", PTX_ONE},  {"%ctaid.x", PTX_CTAID_X}, {"%ctaid.y", PTX_ZERO},
                {"%ctaid.z", PTX_ZERO},    {"%nctaid.x", PTX_NCTAID_X}, {"%nctaid.y", PTX_ONE}, {"%nctaid.z", PTX_ONE},
                {"%laneid", PTX_LANEID},   {"%warpid", PTX_WARPID}};

/* Reads an operand that is a number of so many bits; 0: of 16, 32 or 64, whatever it has. */
static bool value_of(parser *p, piece x, uint8_t bits, bool target, ptx_operand *out) {
    uint32_t index;
    uint64_t value;
    bool negated = !target && bits == 1 && x.length > 1 && *x.text == '!';
    if (negated) x.text++, x.length--;
    const declared *d = find(p, x, &index);
    if (d && d->bits) {
        if (bits ? d->bits != bits : d->bits == 1) return false;
        uint32_t each = d->bits == 64 ? PTX_LARGE : d->bits == 1 ? 4 : PTX_SMALL;
        *out = (ptx_operand){.kind = PTX_REGISTER, .bits = d->bits, .negated = negated, .at = d->at + index * each,
                             .number = d->number + index};
        return true;
    }
    if (target || negated) return false;
    if (d) return (bits == 32 || bits == 64) && constant(p, bits, (uint64_t)d->value, out);
    if (as_integer(x, &value)) return constant(p, bits ? bits : 64, value, out);
    for (size_t i = 0; bits == 32 && i < sizeof specials / sizeof *specials; i++)
        if (is(&x, specials[i].name)) {
            *out = (ptx_operand){.kind = PTX_REGISTER, .bits = 32, .at = specials[i].which * PTX_SMALL};
            return true;
        }
    return false;
}

/* [base], [base + offset], [base - offset]; the base a register, a symbol, or a number. */
static bool address_of(parser *p, piece x, ptx_operand *out) {
    if (x.length < 3 || *x.text != '[' || x.text[x.length - 1] != ']') return false;
    x.text++, x.length -= 2;
    while (x.length && isspace((unsigned char)*x.text)) x.text++, x.length--;
    uint32_t cut = 1;
    while (cut < x.length && x.text[cut] != '+' && x.text[cut] != '-') cut++;
    piece base = {x.text, cut}, rest = {x.text + cut, x.length - cut};
    while (base.length && isspace((unsigned char)base.text[base.length - 1])) base.length--;
    uint64_t offset = 0;
    if (rest.length && *rest.text == '+') rest.text++, rest.length--;
    if (rest.length && !as_integer(rest, &offset)) return false;
    if (!value_of(p, base, 64, false, out) && !value_of(p, base, 32, false, out)) return false;
    out->value = (int64_t)offset; /* beside the base's lanes */
    out->kind = PTX_ADDRESS;
    return true;
}

/* Divides the rest of a statement into pieces. */
static bool cut(parser *p, const char *end, piece *pieces, uint32_t *count) {
    for (*count = 0;;) {
        skip(p);
        if (p->at >= end) return true;
        if (*count + 2 > PIECES) return fail(p, "too many operands");
        const char *close = *p->at == '[' ? memchr(p->at, ']', (size_t)(end - p->at)) : NULL;
        bool simple = close && !memchr(p->at, ',', (size_t)(close - p->at));
        if (simple) {
            pieces[(*count)++] = (piece){p->at, (uint32_t)(close + 1 - p->at)};
            p->at = close + 1;
        } else if (strchr("{}[]|", *p->at)) pieces[(*count)++] = (piece){p->at++, 1};
        else if (*p->at == ',') p->at++;
        else {
            const char *begin = p->at;
            if (*p->at == '-' || *p->at == '!') p->at++;
            while (p->at < end && is_name(*p->at)) p->at++;
            if (p->at == begin) return fail(p, "'%.20s' is not known", begin);
            pieces[(*count)++] = (piece){begin, (uint32_t)(p->at - begin)};
        }
    }
}

/* Do these pieces fit the form? If so, its operands are filled. */
static bool fits(parser *p, const char *spec, const piece *pieces, uint32_t count, ptx_operand *out,
                 uint32_t *out_count) {
    bool target = strchr(spec, '<') != NULL;
    uint32_t at = 0, n = 0;
    for (; *spec; spec++) {
        uint32_t times = 1;
        if (*spec == '<') {
            target = false;
            continue;
        }
        if (isdigit((unsigned char)*spec))
            for (times = 0; isdigit((unsigned char)*spec); spec++) times = times * 10 + (uint32_t)(*spec - '0');
        for (; times; times--, at++) {
            if (at == count) return false;
            piece x = pieces[at];
            ptx_operand *o = &out[n];
            uint64_t value;
            bool good = false;
            switch (*spec) {
            case '{':
            case '}':
            case '[':
            case ']':
            case '|':
            case '_':
                good = x.length == 1 && *x.text == *spec;
                n--;
                break;
            case 'r': good = value_of(p, x, 32, target, o); break;
            case 'd': good = value_of(p, x, 64, target, o); break;
            case 'h': good = value_of(p, x, 16, target, o); break;
            case 'p': good = value_of(p, x, 1, target, o); break;
            case 'w': good = value_of(p, x, 0, target, o); break;
            case 'a': good = address_of(p, x, o); break;
            case 't':
                good = is(&x, "%globaltimer") || is(&x, "%globaltimer_lo") || is(&x, "%clock") || is(&x, "%clock64");
                *o = (ptx_operand){.kind = PTX_NOWHERE};
                break;
            case 'c': good = as_integer(x, &value) && constant(p, 32, value, o); break;
            case 'L': good = x.length < NAME && *x.text == '$';
                *o = (ptx_operand){.kind = PTX_LABEL, .at = p->label_count, .value = -1};
                break;
            }
            n++;
            if (!good) return false;
        }
    }
    *out_count = n;
    return at == count;
}

/* --- statements --------------------------------------------------------------------------------------------------- */

static ptx_insn *append(parser *p) {
    if (p->k->count == p->insn_room) {
        uint32_t room = p->insn_room ? 2 * p->insn_room : 1024;
        ptx_insn *more = realloc(p->k->insns, room * sizeof *more);
        if (!more) return fail(p, "out of memory"), NULL;
        p->k->insns = more;
        p->insn_room = room;
    }
    ptx_insn *i = &p->k->insns[p->k->count++];
    *i = (ptx_insn){.line = p->line};
    return i;
}

static bool add_label(parser *p, piece name) {
    if (name.length >= NAME) return fail(p, "too long a label");
    if (p->label_count == p->label_room) {
        uint32_t room = p->label_room ? 2 * p->label_room : 256;
        label *more = realloc(p->labels, room * sizeof *more);
        if (!more) return fail(p, "out of memory");
        p->labels = more;
        p->label_room = room;
    }
    label *l = &p->labels[p->label_count++];
    memcpy(l->name, name.text, name.length);
    l->name[name.length] = 0;
    l->insn = p->k->count;
    return true;
}

static bool instruction(parser *p) {
    const char *begin = p->at, *end = strchr(p->at, ';');
    ptx_operand guard = {0};
    if (!end) return fail(p, "a ';' is missing");
    if (*p->at == '@') {
        p->at++;
        piece x = {p->at, *p->at == '!'};
        p->at += x.length;
        while (is_name(*p->at)) p->at++, x.length++;
        if (!value_of(p, x, 1, false, &guard) || guard.kind != PTX_REGISTER)
            return fail(p, "'%.*s' is no predicate", (int)x.length, x.text);
    }
    piece name = word(p), pieces[PIECES];
    uint32_t count, n = 0;
    size_t forms = 0;
    if (p->at > end || !cut(p, end, pieces, &count)) return fail(p, "'%.60s' is not known", begin);
    const ptx_form *f = ptx_form_find(name.text, name.length, &forms);
    if (!f) return fail(p, "the instruction '%.*s' is not known", (int)name.length, name.text);
    ptx_operand operands[PIECES];
    while (forms && !fits(p, f->operands, pieces, count, operands, &n)) f++, forms--;
    if (p->failed) return false;
    if (!forms)
        return fail(p, "these operands are not known: '%.*s'", (int)(end - begin > 200 ? 200 : end - begin), begin);
    ptx_insn *i = append(p);
    ptx_operand *kept = i ? take(p, (n + 1) * sizeof *kept) : NULL;
    if (!kept) return false;
    memcpy(kept, operands, n * sizeof *kept);
    *i = (ptx_insn){f, kept, n, p->line, guard, begin};
    for (uint32_t j = 0; j < n; j++)
        if (kept[j].kind == PTX_LABEL)
            kept[j].at = (uint32_t)(pieces[j].text - p->m->text); /* resolved when all labels are known */
    p->at = end + 1;
    return true;
}

/* .reg .b32 %r<10>; or .reg .b16 low, high; */
static bool registers(parser *p) {
    static const struct {
        const char *name;
        uint8_t bits;
    } types[] = {{".pred", 1}, {".b16", 16}, {".u16", 16}, {".s16", 16}, {".f16", 16}, {".b32", 32}, {".u32", 32},
                 {".s32", 32}, {".f32", 32}, {".b64", 64}, {".u64", 64}, {".s64", 64}};
    piece type = word(p);
    uint8_t bits = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is(&type, types[i].name)) bits = types[i].bits;
    if (!bits) return fail(p, "registers of type '%.*s' are not known", (int)type.length, type.text);
    for (;;) {
        piece name = word(p);
        uint32_t count = 0;
        skip(p);
        if (*p->at == '<') {
            p->at++;
            if (!number(p, &count) || !expect(p, '>')) return false;
            if (!count) return fail(p, "no registers");
        }
        if (!declare(p, name, count, bits)) return false;
        skip(p);
        if (*p->at != ',') return expect(p, ';');
        p->at++;
    }
}

/* .align N .b8 name[N] after a space's name; *bytes 0 where there is no number. */
static bool array(parser *p, piece *name, uint32_t *align, uint32_t *bytes) {
    piece x = word(p);
    *align = 1;
    if (is(&x, ".align")) {
        if (!number(p, align)) return false;
        x = word(p);
    }
    if (!is(&x, ".b8")) return fail(p, "an array of '%.*s' is not known", (int)x.length, x.text);
    *name = word(p);
    *bytes = 0;
    if (!expect(p, '[')) return false;
    skip(p);
    return (*p->at == ']' || number(p, bytes)) && expect(p, ']');
}

static bool directive(parser *p) {
    piece x = word(p), name;
    uint32_t align, bytes;
    if (is(&x, ".reg")) return registers(p);
    if (is(&x, ".local")) {
        declared *d = array(p, &name, &align, &bytes) && expect(p, ';') ? declare(p, name, 0, 0) : NULL;
        if (!d || !align || bytes > 1 << 16) return fail(p, "a local array that is not known");
        p->k->local = (p->k->local + align - 1) / align * align;
        d->value = p->k->local;
        p->k->local += bytes;
        return true;
    }
    if (is(&x, ".pragma")) {
        skip(p);
        if (strncmp(p->at, "\"used_bytes_mask ", 17) && strncmp(p->at, "\"nounroll\"", 10))
            return fail(p, "pragma %.30s is not known", p->at);
        p->at = strchr(p->at, ';') ? strchr(p->at, ';') : p->at;
        return expect(p, ';');
    }
    return fail(p, "the directive '%.*s' is not known", (int)x.length, x.text);
}

static int by_name(const void *a, const void *b) { return strcmp(((const label *)a)->name, ((const label *)b)->name); }

static bool end_kernel(parser *p) {
    size_t count;
    ptx_insn *last = append(p);
    if (!last) return false;
    last->form = ptx_form_find("ret", 3, &count);
    last->text = "ret;";
    if (p->label_count) qsort(p->labels, p->label_count, sizeof *p->labels, by_name);
    for (uint32_t i = 1; i < p->label_count; i++)
        if (!strcmp(p->labels[i].name, p->labels[i - 1].name)) return fail(p, "two labels %s", p->labels[i].name);
    for (uint32_t i = 0; i < p->k->count; i++)
        for (uint32_t j = 0; j < p->k->insns[i].count; j++) {
            ptx_operand *o = (ptx_operand *)(uintptr_t)&p->k->insns[i].operands[j];
            label key = {.insn = 0};
            if (o->kind != PTX_LABEL) continue;
            const char *text = p->m->text + o->at;
            for (uint32_t c = 0; c < NAME - 1 && is_name(text[c]); c++) key.name[c] = text[c];
            const label *l =
                p->label_count ? bsearch(&key, p->labels, p->label_count, sizeof *p->labels, by_name) : NULL;
            p->line = p->k->insns[i].line;
            if (!l) return fail(p, "there is no label %s", key.name);
            o->value = l->insn;
        }
    p->k = NULL;
    p->label_count = p->insn_room = 0;
    return true;
}

static bool body(parser *p) {
    while (!p->failed) {
        skip(p);
        if (!*p->at) return fail(p, "a kernel does not end");
        if (*p->at == '{') p->at++, p->depth++;
        else if (*p->at == '}') {
            p->at++;
            while (p->name_count && p->names[p->name_count - 1].depth == p->depth) p->name_count--;
            if (--p->depth == 0) return end_kernel(p);
        } else if (*p->at == '.') directive(p);
        else {
            const char *begin = p->at;
            if (*begin == '$') {
                while (is_name(*p->at) && *p->at != ':') p->at++;
                piece name = {begin, (uint32_t)(p->at - begin)};
                if (*p->at != ':') return fail(p, "':' was expected behind '%.*s'", (int)name.length, name.text);
                p->at++;
                add_label(p, name);
            } else instruction(p);
        }
    }
    return false;
}

static bool entry(parser *p) {
    piece name = word(p), x;
    if (p->m->kernel_count == PTX_KERNELS || name.length >= sizeof p->m->kernels[0].name)
        return fail(p, "too many kernels, or too long a name");
    p->k = &p->m->kernels[p->m->kernel_count++];
    *p->k = (ptx_kernel){.registers = 1, .file = PTX_SPECIALS * PTX_SMALL};
    memcpy(p->k->name, name.text, name.length);
    if (!expect(p, '(')) return false;
    for (skip(p); *p->at != ')';) {
        piece parameter;
        uint32_t align, bytes;
        x = word(p);
        if (!is(&x, ".param") || !array(p, &parameter, &align, &bytes) || !align)
            return fail(p, "a parameter that is not known");
        p->depth = 1;
        declared *d = declare(p, parameter, 0, 0);
        if (!d) return false;
        d->value = (p->k->parameters + align - 1) / align * align;
        p->k->parameters = (uint32_t)d->value + bytes;
        skip(p);
        if (*p->at == ',') p->at++;
        skip(p);
    }
    p->at++;
    for (skip(p); *p->at == '.'; skip(p)) {
        uint32_t n = 0, more = 1;
        x = word(p);
        if (!number(p, &n)) return false;
        for (skip(p); *p->at == ','; skip(p)) {
            p->at++;
            if (!number(p, &more)) return false;
            n *= more;
        }
        if (is(&x, ".maxntid")) p->k->threads = n;
        else if (!is(&x, ".minnctapersm")) return fail(p, "the directive '%.*s' is not known", (int)x.length, x.text);
    }
    p->depth = 0; /* the body's brace is the first */
    if (*p->at != '{') return fail(p, "a kernel has no body");
    return body(p);
}

/* A global variable. It is zeros, and has an address of its own. */
/* The bytes of a variable, if any are given: "= {75, 32, 0}". The others are 0. */
static bool first_bytes(parser *p, uint8_t *to, uint32_t bytes) {
    skip(p);
    if (*p->at != '=') return true;
    p->at++;
    if (!expect(p, '{')) return false;
    for (uint32_t i = 0, value = 0; i < bytes; i++) {
        if (!number(p, &value) || value > UINT8_MAX) return false;
        to[i] = (uint8_t)value;
        skip(p);
        if (*p->at == '}') break;
        if (!expect(p, ',')) return false;
    }
    return expect(p, '}');
}

static bool global(parser *p) {
    piece name;
    uint32_t align, bytes;
    ptx_range *x = &p->m->globals[p->m->global_count];
    if (p->m->global_count == PTX_GLOBALS || !array(p, &name, &align, &bytes) || !bytes)
        return fail(p, "a global variable that is not known");
    uint8_t *memory = calloc(1, bytes);
    if (!memory || !first_bytes(p, memory, bytes) || !expect(p, ';')) {
        free(memory);
        return fail(p, "a global variable whose bytes are not known");
    }
    declared *d = declare(p, name, 0, 0);
    char *copy = d ? strdup(d->name) : NULL;
    *x = (ptx_range){copy, (uintptr_t)memory, (uintptr_t)memory + bytes, true};
    p->m->global_count++;
    if (!copy) return fail(p, "out of memory");
    d->value = (int64_t)x->begin;
    return true;
}

static bool module(parser *p) {
    while (!p->failed) {
        skip(p);
        if (!*p->at) return true;
        piece x = word(p), name;
        uint32_t align, bytes = 0;
        if (is(&x, ".version")) word(p);
        else if (is(&x, ".target")) {
            piece target = word(p);
            if (target.length >= sizeof p->m->target) return fail(p, "too long a target");
            memcpy(p->m->target, target.text, target.length);
        } else if (is(&x, ".address_size")) {
            if (!number(p, &bytes) || bytes != 64) return fail(p, "addresses are not of 64 bits");
        } else if (is(&x, ".extern")) {
            x = word(p);
            declared *d = is(&x, ".shared") && array(p, &name, &align, &bytes) && !bytes && expect(p, ';')
                              ? declare(p, name, 0, 0)
                              : NULL;
            if (!d || align > PTX_SHARED_FIRST) return fail(p, "an external that is not known");
            d->value = PTX_SHARED_FIRST;
        } else if (is(&x, ".visible")) {
            x = word(p);
            if (is(&x, ".global")) global(p);
            else if (is(&x, ".entry")) entry(p);
            else fail(p, "'%.*s' is not known", (int)x.length, x.text);
        } else if (is(&x, ".global")) {
            global(p);
        } else fail(p, "'%.*s' is not known", (int)x.length, x.text);
    }
    return false;
}

ptx_module *ptx_module_new(const char *text, char *error) {
    parser *p = calloc(1, sizeof *p);
    ptx_module *m = calloc(1, sizeof *m);
    *error = 0;
    if (m) m->text = strdup(text);
    bool good = p && m && m->text;
    if (!good) snprintf(error, PTX_ERROR, "out of memory");
    if (good) {
        *p = (parser){.m = m, .at = m->text, .line = 1, .error = error};
        good = module(p);
        free(p->labels);
    }
    free(p);
    if (good) return m;
    ptx_module_free(m);
    return NULL;
}

void ptx_module_free(ptx_module *m) {
    if (!m) return;
    for (uint32_t i = 0; i < m->kernel_count; i++) free(m->kernels[i].insns);
    for (uint32_t i = 0; i < m->global_count; i++) {
        free((void *)(uintptr_t)m->globals[i].what);
        free((void *)(uintptr_t)m->globals[i].begin);
    }
    while (m->chunks) {
        struct ptx_chunk *next = m->chunks->next;
        free(m->chunks);
        m->chunks = next;
    }
    free(m->constants);
    free(m->index);
    free(m->index_keys);
    free(m->text);
    free(m);
}

const ptx_kernel *ptx_module_kernel(const ptx_module *m, const char *name) {
    for (uint32_t i = 0; i < m->kernel_count; i++)
        if (!strcmp(m->kernels[i].name, name)) return &m->kernels[i];
    return NULL;
}
const char *ptx_module_target(const ptx_module *m) { return m->target; }
const ptx_range *ptx_module_global(const ptx_module *m, const char *name) {
    for (uint32_t i = 0; i < m->global_count; i++)
        if (!strcmp(m->globals[i].what, name)) return &m->globals[i];
    return NULL;
}
