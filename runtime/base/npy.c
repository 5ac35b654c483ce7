/* npy.c: reads and writes .npy files.
 *
 * Source: the description of the .npy format, versions 1.0 to 3.0.
 * Cost:   one pass over the file.
 *
 * The header of a file is a Python dictionary. The parser takes what NumPy itself writes: the keys 'descr',
 * 'fortran_order' and 'shape', once each, in any order, in either kind of quotes, with or without a last comma.
 */
#include "runtime/base/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/numeric.h"
#include "runtime/base/read_file.h"

enum { MAX_HEADER = FCP_NPY_START - 12, ALIGN = 64 };
static const char magic[6] = "\x93NUMPY";

static const struct { const char *descr, *name; size_t size; } types[FCP_NPY_TYPES] = {
    [FCP_NPY_F4] = {"<f4", "float32", 4}, [FCP_NPY_F2] = {"<f2", "float16", 2}, [FCP_NPY_U2] = {"<u2", "uint16", 2},
    [FCP_NPY_F8] = {"<f8", "float64", 8}, [FCP_NPY_BOOL] = {"|b1", "bool", 1},  [FCP_NPY_I1] = {"|i1", "int8", 1},
    [FCP_NPY_U1] = {"|u1", "uint8", 1},   [FCP_NPY_I2] = {"<i2", "int16", 2},   [FCP_NPY_I4] = {"<i4", "int32", 4},
    [FCP_NPY_U4] = {"<u4", "uint32", 4},  [FCP_NPY_I8] = {"<i8", "int64", 8},   [FCP_NPY_U8] = {"<u8", "uint64", 8}};

const char *fcp_npy_type_name(fcp_npy_type type) { return (unsigned)type < FCP_NPY_TYPES ? types[type].name : "?"; }

fcp_npy_type fcp_npy_type_of(fcp_dtype dtype) {
    return dtype == FCP_FP32 ? FCP_NPY_F4 : dtype == FCP_FP16 ? FCP_NPY_F2 : FCP_NPY_U2;
}

static fcp_code fail_on(fcp_error *err, fcp_code code, const char *path, const char *why) {
    fcp_fail_in(err, code, path, 0, 0, "%.200s: %.300s", path, why);
    return code; /* so that the compiler sees that it is no FCP_OK where it is a constant */
}

/* why: an errno value, or what else fcp_read_open returns. */
static fcp_code fail_why(fcp_error *err, fcp_code code, const char *path, const char *what, int why) {
    char text[200], room[128];
    snprintf(text, sizeof text, "%s: %s", what, fcp_read_reason(why, room));
    return fail_on(err, code, path, text);
}
static fcp_code fail_errno(fcp_error *err, fcp_code code, const char *path, const char *what) {
    return fail_why(err, code, path, what, errno);
}

/* --- the header --------------------------------------------------------------------------------------------------- */

struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

static bool eat(struct cursor *c, char x) {
    skip_space(c);
    if (c->at == c->end || *c->at != x) return false;
    c->at++;
    return true;
}

/* A quoted string without escapes. *out points into the header. */
static bool eat_string(struct cursor *c, const char **out, size_t *out_length) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return false;
    char quote = *c->at++;
    *out = c->at;
    while (c->at < c->end && *c->at != quote && *c->at != '\\') c->at++;
    *out_length = (size_t)(c->at - *out);
    return c->at < c->end && *c->at++ == quote;
}

static bool eat_word(struct cursor *c, const char *word) {
    skip_space(c);
    size_t length = strlen(word);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0) return false;
    c->at += length;
    return true;
}

static bool eat_number(struct cursor *c, uint64_t *out) {
    skip_space(c);
    const char *begin = c->at;
    uint64_t value = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c->at - '0'), &value))
            return false;
    *out = value;
    return c->at > begin;
}

static bool eat_shape(struct cursor *c, fcp_npy *out) {
    if (!eat(c, '(')) return false;
    out->dims = 0;
    bool comma = true;
    while (!eat(c, ')')) {
        if (!comma || out->dims == FCP_NPY_MAX_DIMS || !eat_number(c, &out->shape[out->dims])) return false;
        out->dims++;
        comma = eat(c, ',');
    }
    return out->dims != 1 || comma; /* (3) is a number, not a shape */
}

static bool equals(const char *text, size_t length, const char *word) {
    return length == strlen(word) && memcmp(text, word, length) == 0;
}

/* Reads the dictionary. Returns NULL, or what is wrong with it. */
static const char *parse_header(const char *text, size_t size, fcp_npy *out) {
    struct cursor c = {text, text + size};
    bool descr = false, order = false, shape = false;
    if (!eat(&c, '{')) return "the header is not a dictionary";
    while (!eat(&c, '}')) {
        const char *key, *value;
        size_t length, value_length;
        if (!eat_string(&c, &key, &length) || !eat(&c, ':')) return "the header is not a dictionary";
        if (equals(key, length, "descr") && !descr) {
            if (!eat_string(&c, &value, &value_length)) return "its element type is not a plain one";
            for (int t = 0; t < FCP_NPY_TYPES; t++)
                if (equals(value, value_length, types[t].descr)) out->type = (fcp_npy_type)t, descr = true;
            if (!descr) return "its element type is no little-endian float16, 32 or 64, no bool and no integer";
        } else if (equals(key, length, "fortran_order") && !order) {
            if (eat_word(&c, "True")) return "it is in Fortran order; C order is needed";
            if (!(order = eat_word(&c, "False"))) return "its fortran_order is neither True nor False";
        } else if (equals(key, length, "shape") && !shape) {
            if (!(shape = eat_shape(&c, out))) return "its shape is malformed";
        } else return "the header has a key that it should not have";
        if (eat(&c, ',')) continue;
        if (!eat(&c, '}')) return "the header is not a dictionary";
        break;
    }
    skip_space(&c);
    if (c.at != c.end) return "there is something after the header's dictionary";
    return descr && order && shape ? NULL : "the header lacks one of descr, fortran_order, shape";
}

static const char *count_elements(fcp_npy *out, uint64_t *out_bytes) {
    uint64_t elements = 1;
    for (uint32_t i = 0; i < out->dims; i++)
        if (__builtin_mul_overflow(elements, out->shape[i], &elements)) return "its shape is too large";
    out->elements = elements;
    return __builtin_mul_overflow(elements, (uint64_t)types[out->type].size, out_bytes) ? "its shape is too large"
                                                                                        : NULL;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool read_all(int file, void *to, size_t size) {
    for (char *at = to; size;) {
        ssize_t got = fcp_read_some(file, at, size);
        if (got <= 0) {
            if (got == 0) errno = EIO;
            return false;
        }
        at += got;
        size -= (size_t)got;
    }
    return true;
}

/* Reads the header of a file. Returns NULL, or what is wrong.
 *   start       the whole file, or its first FCP_NPY_START bytes if it has more
 *   size        the bytes of the file; UINT64_MAX: more than FCP_NPY_START, but not known how many
 *   *out_begin  the byte where the elements begin
 *   *out_bytes  how many bytes the elements are */
static const char *read_header(const unsigned char *start, uint64_t size, fcp_npy *out, uint64_t *out_begin,
                               uint64_t *out_bytes) {
    if (size < 10) return "not a .npy file: too short";
    if (memcmp(start, magic, sizeof magic) != 0) return "not a .npy file";
    if (start[6] < 1 || start[6] > 3 || start[7] != 0) return "a .npy file of an unknown version";
    uint64_t begin = 10, length = start[8] | (uint64_t)start[9] << 8;
    if (start[6] > 1) {
        begin = 12;
        if (size < begin) return "cut short in its header";
        length |= (uint64_t)start[10] << 16 | (uint64_t)start[11] << 24;
    }
    if (length > MAX_HEADER) return "its header is too long";
    if (size - begin < length) return "cut short in its header";
    const char *wrong = parse_header((const char *)start + begin, length, out);
    if (!wrong) wrong = count_elements(out, out_bytes);
    if (!wrong && *out_bytes > UINT64_MAX / 2) wrong = "its shape is too large";
    *out_begin = begin + length;
    if (wrong || size == UINT64_MAX || size - *out_begin == *out_bytes) return wrong;
    return size - *out_begin < *out_bytes ? "cut short: fewer elements than its shape says"
                                          : "longer than its shape says";
}

fcp_code fcp_npy_header(const char *path, const void *start, uint64_t size, fcp_npy *out, uint64_t *out_size,
                        fcp_error *err) {
    fcp_npy npy = {0};
    uint64_t begin, count;
    const char *wrong = read_header(start, size, &npy, &begin, &count);
    if (wrong) return fail_on(err, FCP_E_NPY, path, wrong);
    *out = npy;
    *out_size = begin + count;
    return FCP_OK;
}

fcp_code fcp_npy_view(const char *path, const void *bytes, size_t size, fcp_npy *out, fcp_error *err) {
    fcp_npy npy = {0};
    uint64_t begin, count;
    const char *wrong = read_header(bytes, size, &npy, &begin, &count);
    if (wrong) return fail_on(err, FCP_E_NPY, path, wrong);
    npy.data = count ? (const char *)bytes + begin : NULL;
    *out = npy;
    return FCP_OK;
}

/* Opens a file and reads its header. */
static fcp_code open_file(const char *path, fcp_npy *out, int *out_file, uint64_t *out_bytes, fcp_error *err) {
    int file;
    uint64_t size, begin = 0;
    const int why = fcp_read_open(path, true, &file, &size);
    if (why) return fail_why(err, FCP_E_READ, path, "cannot be read", why);
    fcp_code code;
    unsigned char *start = malloc(FCP_NPY_START);
    if (!start) code = fail_on(err, FCP_E_NO_MEMORY, path, "out of memory");
    else {
        bool good = read_all(file, start, size < FCP_NPY_START ? size : FCP_NPY_START);
        const char *wrong = good ? read_header(start, size, out, &begin, out_bytes) : NULL;
        if (good && !wrong) good = lseek(file, (off_t)begin, SEEK_SET) == (off_t)begin;
        code = wrong  ? fail_on(err, FCP_E_NPY, path, wrong)
               : good ? FCP_OK
                      : fail_errno(err, FCP_E_READ, path, "cannot be read");
    }
    free(start);
    if (code == FCP_OK) *out_file = file;
    else close(file);
    return code;
}

/* *out is malloc'd, even if there are no bytes. */
static fcp_code read_data(int file, const char *path, uint64_t bytes, void **out, fcp_error *err) {
    void *data = malloc(bytes ? bytes : 1);
    if (!data) return fail_on(err, FCP_E_NO_MEMORY, path, "out of memory");
    if (!read_all(file, data, bytes)) {
        fcp_code code = fail_errno(err, FCP_E_READ, path, "cannot be read");
        free(data);
        return code;
    }
    *out = data;
    return FCP_OK;
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* The bits of element i, in the low bytes of a word. */
static uint64_t bits_at(const fcp_npy *npy, uint64_t i) {
    const unsigned char *data = npy->data;
    uint64_t bits = 0;
    switch (types[npy->type].size) {
    case 1: return data[i];
    case 2: memcpy(&bits, data + 2 * i, 2); return bits;
    case 4: memcpy(&bits, data + 4 * i, 4); return bits;
    default: memcpy(&bits, data + 8 * i, 8); return bits;
    }
}

bool fcp_npy_int(const fcp_npy *npy, uint64_t i, int64_t *out) {
    uint64_t bits = bits_at(npy, i);
    switch (npy->type) {
    case FCP_NPY_BOOL: *out = bits != 0; return true;
    case FCP_NPY_I1: *out = (int8_t)bits; return true;
    case FCP_NPY_I2: *out = (int16_t)bits; return true;
    case FCP_NPY_I4: *out = (int32_t)bits; return true;
    case FCP_NPY_I8: *out = (int64_t)bits; return true;
    case FCP_NPY_U1: case FCP_NPY_U2: case FCP_NPY_U4: *out = (int64_t)bits; return true;
    case FCP_NPY_U8: *out = (int64_t)bits; return bits <= INT64_MAX;
    default: *out = 0; return true;
    }
}

uint32_t fcp_npy_ints(const fcp_npy *npy, uint64_t from, uint32_t count, int64_t *out) {
    const unsigned char *data = npy->data;
    switch (npy->type) { /* loops over the types that fields are mostly kept in; memcpy, for they lie at any address */
#define INTS_CASE(id, type)                                                                                            \
    case FCP_NPY_##id:                                                                                                 \
        for (uint32_t i = 0; i < count; i++) {                                                                         \
            type x;                                                                                                    \
            memcpy(&x, data + (from + i) * sizeof x, sizeof x);                                                        \
            out[i] = x;                                                                                                \
        }                                                                                                              \
        return count;
        INTS_CASE(I1, int8_t)
        INTS_CASE(I2, int16_t)
        INTS_CASE(I4, int32_t)
        INTS_CASE(I8, int64_t)
#undef INTS_CASE
    default:
        for (uint32_t i = 0; i < count; i++)
            if (!fcp_npy_int(npy, from + i, &out[i])) return i;
        return count;
    }
}

double fcp_npy_real(const fcp_npy *npy, uint64_t i) {
    uint64_t bits = bits_at(npy, i);
    const float half = fcp_fp16_float((uint16_t)bits);
    double d;
    switch (npy->type) {
    case FCP_NPY_F2: return isnan(half) ? (double)NAN : (double)half; /* NumPy's sign of a NaN does not count */
    case FCP_NPY_F4: return (double)fcp_bits_float((uint32_t)bits);
    case FCP_NPY_F8: memcpy(&d, &bits, sizeof d); return d;
    default: return 0;
    }
}

static void print_shape(char *text, size_t size, uint32_t dims, const uint64_t *shape) {
    size_t at = (size_t)snprintf(text, size, "[");
    for (uint32_t i = 0; i < dims && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%" PRIu64, i ? ", " : "", shape[i]);
    if (at < size) snprintf(text + at, size - at, "]");
}

fcp_code fcp_npy_load(const char *path, fcp_npy_type type, uint32_t dims, const uint64_t *shape, void **out_data,
                      fcp_error *err) {
    fcp_npy npy = {0};
    int file;
    uint64_t bytes;
    fcp_code code = open_file(path, &npy, &file, &bytes, err);
    if (code != FCP_OK) return code;
    bool same =
        npy.type == type && npy.dims == dims && (dims == 0 || memcmp(npy.shape, shape, dims * sizeof *shape) == 0);
    if (!same) {
        char expected[160], found[160], text[400];
        print_shape(expected, sizeof expected, dims, shape);
        print_shape(found, sizeof found, npy.dims, npy.shape);
        snprintf(text, sizeof text, "expected %s %.120s, found %s %.120s", types[type].name, expected,
                 types[npy.type].name, found);
        code = fail_on(err, FCP_E_TENSOR, path, text);
    } else code = read_data(file, path, bytes, out_data, err);
    close(file);
    return code;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Makes a header of version 1.0. Returns its length, a multiple of ALIGN. */
static size_t make_header(char header[512], fcp_npy_type type, uint32_t dims, const uint64_t *shape) {
    char text[400];
    size_t at =
        (size_t)snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", types[type].descr);
    for (uint32_t i = 0; i < dims; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRIu64, i ? ", " : "", shape[i]);
    at += (size_t)snprintf(text + at, sizeof text - at, "%s), }", dims == 1 ? "," : "");
    size_t total = (10 + at + 1 + ALIGN - 1) / ALIGN * ALIGN, length = total - 10;
    memset(header, ' ', total);
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    header[8] = (char)(length & 0xff);
    header[9] = (char)(length >> 8);
    memcpy(header + 10, text, at);
    header[total - 1] = '\n';
    return total;
}

static fcp_code cannot_write(fcp_error *err, const char *path, int why) {
    errno = why;
    return fail_errno(err, FCP_E_WRITE, path, "cannot be written");
}

fcp_code fcp_npy_write(fcp_beside *file, fcp_npy_type type, uint32_t dims, const uint64_t *shape, const void *data,
                       fcp_error *err) {
    fcp_npy npy = {.type = type, .dims = dims};
    uint64_t bytes;
    char header[512];
    if ((unsigned)type >= FCP_NPY_TYPES || dims > FCP_NPY_MAX_DIMS)
        return fail_on(err, FCP_E_ARGUMENT, file->path, "not a tensor that can be written");
    if (dims) memcpy(npy.shape, shape, dims * sizeof *shape);
    const char *wrong = count_elements(&npy, &bytes);
    if (wrong) return fail_on(err, FCP_E_ARGUMENT, file->path, wrong);
    int why = fcp_write_all(file->fd, header, make_header(header, type, dims, npy.shape));
    if (!why) why = fcp_write_all(file->fd, data, bytes);
    if (!why) why = fcp_beside_close(file);
    return why ? cannot_write(err, file->path, why) : FCP_OK;
}
