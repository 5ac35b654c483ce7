/* test_npy.c: tests that .npy files read back as they were written, and that a malformed one is refused with its
 * name and leaves nothing behind. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/npy.h"
#include "tests/support/temporary.h"

static char folder[TEMPORARY];

static void setup(void) {
    cr_assert(temporary_folder(folder, "npy"));
}

static void teardown(void) {
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert(system(command) == 0);
}

TestSuite(npy, .init = setup, .fini = teardown);

static const char *path_of(const char *name) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int files(void) {
    DIR *d = opendir(folder);
    int n = -2;
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert(fwrite(bytes, 1, size, f) == size);
    fclose(f);
}

static void *read_bytes(const char *path, size_t *out_size) {
    FILE *f = fopen(path, "rb");
    char *bytes = malloc(1 << 16);
    cr_assert(f && bytes);
    *out_size = fread(bytes, 1, 1 << 16, f);
    fclose(f);
    return bytes;
}

static fcp_code save(const char *path, fcp_npy_type type, uint32_t dims, const uint64_t *shape, const void *data,
                     fcp_error *err) {
    fcp_beside file;
    if (fcp_beside_open(&file, path, false)) return fcp_fail(err, FCP_E_WRITE, "%s cannot be opened", path);
    fcp_code code = fcp_npy_write(&file, type, dims, shape, data, err);
    if (code == FCP_OK && fcp_beside_commit(&file)) code = FCP_E_WRITE;
    fcp_beside_abandon(&file);
    return code;
}

/* A file of a version with a header text as given and `data` bytes after it. */
static size_t npy_bytes(char *out, int version, const char *header, size_t data) {
    size_t length = strlen(header), at = version == 1 ? 10 : 12;
    memcpy(out, "\x93NUMPY", 6);
    out[6] = (char)version;
    out[7] = 0;
    for (size_t i = 0; i < at - 8; i++) out[8 + i] = (char)(length >> 8 * i);
    memcpy(out + at, header, length);
    for (size_t i = 0; i < data; i++) out[at + length + i] = (char)i;
    return at + length + data;
}

/* What fcp_npy_view says; fcp_npy_load says the same of the same bytes in x.npy. */
static fcp_code view_and_load(const void *bytes, size_t size, fcp_npy *npy, fcp_error *err) {
    void *loaded = NULL;
    fcp_error other;
    fcp_code code = fcp_npy_view("x.npy", bytes, size, npy, err);
    fcp_npy sound = code ? (fcp_npy){0} : *npy;
    fcp_code again = fcp_npy_load(path_of("x.npy"), sound.type, sound.dims, sound.shape, &loaded, &other);
    cr_assert_eq(again, code, "%s", other.message);
    free(loaded);
    return code;
}

static fcp_code try_header(int version, const char *header, size_t data, fcp_error *err) {
    char bytes[4096];
    fcp_npy npy = {0};
    size_t size = npy_bytes(bytes, version, header, data);
    write_bytes(path_of("x.npy"), bytes, size);
    return view_and_load(bytes, size, &npy, err);
}

Test(npy, what_is_written_is_read) {
    static const size_t size[FCP_NPY_TYPES] = {4, 2, 2, 8, 1, 1, 1, 2, 4, 4, 8, 8};
    for (int type = 0; type < FCP_NPY_TYPES; type++)
        for (uint32_t dims = 0; dims <= 4; dims++) {
            uint64_t shape[4] = {3, 1, 5, 2}, elements = 1;
            unsigned char data[30 * 8];
            for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 7 + dims);
            for (uint32_t i = 0; i < dims; i++) elements *= shape[i];
            fcp_error err;
            fcp_npy npy;
            void *loaded;
            size_t length;
            cr_assert(save(path_of("a.npy"), (fcp_npy_type)type, dims, shape, data, &err) == FCP_OK, "%s",
                      err.message);
            void *bytes = read_bytes(path_of("a.npy"), &length);
            cr_assert(fcp_npy_view("a.npy", bytes, length, &npy, &err) == FCP_OK, "%s", err.message);
            cr_assert(npy.type == (fcp_npy_type)type && npy.dims == dims && npy.elements == elements);
            cr_assert(dims == 0 || memcmp(npy.shape, shape, dims * sizeof *shape) == 0);
            cr_assert(memcmp(npy.data, data, elements * size[type]) == 0);
            free(bytes);
            cr_assert(fcp_npy_load(path_of("a.npy"), (fcp_npy_type)type, dims, shape, &loaded, &err) == FCP_OK);
            cr_assert(memcmp(loaded, data, elements * size[type]) == 0);
            free(loaded);
        }
    cr_assert(files() == 1);
}

Test(npy, header_is_as_numpy_writes_it) {
    uint64_t shape[2] = {2, 3};
    float data[6] = {1, 2, 3, 4, 5, 6};
    char bytes[256];
    cr_assert(save(path_of("a.npy"), FCP_NPY_F4, 2, shape, data, NULL) == FCP_OK);
    FILE *f = fopen(path_of("a.npy"), "rb");
    cr_assert(fread(bytes, 1, sizeof bytes, f) == 128 + 24);
    fclose(f);
    cr_assert(
        memcmp(bytes, "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 69) == 0);
    cr_assert(bytes[127] == '\n' && memcmp(bytes + 128, data, 24) == 0);
}

Test(npy, no_elements) {
    uint64_t shape[3] = {0, 4, 8};
    fcp_npy npy;
    void *data;
    cr_assert(save(path_of("a.npy"), FCP_NPY_F2, 3, shape, "", NULL) == FCP_OK);
    size_t size;
    void *bytes = read_bytes(path_of("a.npy"), &size);
    cr_assert(fcp_npy_view("a.npy", bytes, size, &npy, NULL) == FCP_OK);
    cr_assert(npy.elements == 0 && npy.dims == 3);
    free(bytes);
    cr_assert(fcp_npy_load(path_of("a.npy"), FCP_NPY_F2, 3, shape, &data, NULL) == FCP_OK);
    free(data);
}

Test(npy, every_version_and_spelling) {
    fcp_error err;
    const char *good[] = {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
                          "{\"shape\":(2,3,),\"fortran_order\":False,\"descr\":\"<f4\"}\n",
                          "{ 'shape' : ( 6 , ) , 'descr' : '<f4' , 'fortran_order' : False , }",
                          "{'descr': '<f2', 'fortran_order': False, 'shape': (12,), }",
                          "{'descr': '<u2', 'fortran_order': False, 'shape': (1, 1, 12), }"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        for (int version = 1; version <= 3; version++)
            cr_assert(try_header(version, good[i], 24, &err) == FCP_OK, "%s: %s", good[i], err.message);
}

Test(npy, malformed_headers) {
    fcp_error err;
    const char *bad[] = {"", "{", "{}", "{'descr': '<f4'}", "[]",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x",
                         "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)}",
                         "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3)}",
                         "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}",
                         "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}",
                         "{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1}",
                         "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (2 3)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (6)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': 6}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,6)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616, 0)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
                         "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}",
                         "{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3)}",
                         "{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert(try_header(1, bad[i], 24, &err) == FCP_E_NPY, "accepted: %s", bad[i]);
        cr_assert(strstr(err.message, "x.npy"), "%s", err.message);
    }
    const char *sound = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}";
    cr_assert(try_header(1, sound, 23, &err) == FCP_E_NPY && try_header(1, sound, 25, &err) == FCP_E_NPY);
    cr_assert(try_header(4, sound, 24, &err) == FCP_E_NPY && try_header(0, sound, 24, &err) == FCP_E_NPY);
}

Test(npy, cut_short_at_every_length) {
    char bytes[256];
    size_t size = npy_bytes(bytes, 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24);
    for (size_t i = 0; i < size; i++) {
        fcp_npy npy;
        write_bytes(path_of("x.npy"), bytes, i);
        cr_assert(view_and_load(bytes, i, &npy, NULL) == FCP_E_NPY, "length %zu", i);
    }
}

Test(npy, altered_bytes_never_crash) {
    char bytes[256];
    size_t size = npy_bytes(bytes, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", 24);
    for (size_t i = 0; i < size - 24; i++)
        for (int bit = 0; bit < 8; bit++) {
            fcp_npy npy;
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
            write_bytes(path_of("x.npy"), bytes, size);
            view_and_load(bytes, size, &npy, NULL);
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
        }
}

Test(npy, wrong_tensor_says_what_was_expected_and_found) {
    uint64_t shape[3] = {2, 3, 4}, other[3] = {2, 4, 3};
    float data[24] = {0};
    fcp_error err;
    void *loaded = NULL;
    cr_assert(save(path_of("q.npy"), FCP_NPY_F4, 3, shape, data, &err) == FCP_OK);
    cr_assert(fcp_npy_load(path_of("q.npy"), FCP_NPY_F4, 3, other, &loaded, &err) == FCP_E_TENSOR);
    cr_assert(strstr(err.message, "q.npy") &&
                  strstr(err.message, "expected float32 [2, 4, 3], found float32 [2, 3, 4]"),
              "%s", err.message);
    cr_assert(fcp_npy_load(path_of("q.npy"), FCP_NPY_F2, 3, shape, &loaded, &err) == FCP_E_TENSOR);
    cr_assert(strstr(err.message, "expected float16 [2, 3, 4], found float32 [2, 3, 4]"), "%s", err.message);
    cr_assert(fcp_npy_load(path_of("q.npy"), FCP_NPY_F4, 2, shape, &loaded, &err) == FCP_E_TENSOR);
    cr_assert_null(loaded);
}

Test(npy, files_that_cannot_be_read_or_written) {
    uint64_t shape[1] = {3};
    float data[3] = {1, 2, 3};
    fcp_error err;
    void *loaded = NULL;
    cr_assert(fcp_npy_load(path_of("none.npy"), FCP_NPY_F4, 1, shape, &loaded, &err) == FCP_E_READ);
    cr_assert(strstr(err.message, "none.npy"), "%s", err.message);
    cr_assert(fcp_npy_load(folder, FCP_NPY_F4, 1, shape, &loaded, &err) == FCP_E_READ);
    cr_assert(mkfifo(path_of("pipe"), 0600) == 0);
    cr_assert(fcp_npy_load(path_of("pipe"), FCP_NPY_F4, 1, shape, &loaded, &err) == FCP_E_READ, "and does not wait");
    cr_assert(unlink(path_of("pipe")) == 0);
    cr_assert(save(path_of("no/folder.npy"), FCP_NPY_F4, 1, shape, data, &err) == FCP_E_WRITE);
    cr_assert(strstr(err.message, "no/folder.npy"), "%s", err.message);
    cr_assert(mkdir(path_of("taken"), 0700) == 0);
    cr_assert(save(path_of("taken"), FCP_NPY_F4, 1, shape, data, &err) == FCP_E_WRITE);
    cr_assert(files() == 1, "something was left behind");
}

Test(npy, a_file_is_replaced_whole_or_not_at_all) {
    uint64_t shape[1] = {3};
    float one[3] = {1, 2, 3}, two[3] = {4, 5, 6};
    void *data;
    cr_assert(save(path_of("a.npy"), FCP_NPY_F4, 1, shape, one, NULL) == FCP_OK);
    cr_assert(save(path_of("a.npy"), FCP_NPY_F4, 1, shape, two, NULL) == FCP_OK);
    cr_assert(fcp_npy_load(path_of("a.npy"), FCP_NPY_F4, 1, shape, &data, NULL) == FCP_OK);
    cr_assert(memcmp(data, two, sizeof two) == 0);
    free(data);
    uint64_t huge[2] = {UINT64_MAX, 3};
    cr_assert(save(path_of("a.npy"), FCP_NPY_F4, 2, huge, two, NULL) == FCP_E_ARGUMENT);
    cr_assert(files() == 1);
}
