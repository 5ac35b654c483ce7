/* ptx_file.c: a program that executes a kernel from a file of PTX on the machine of ptx.h, for tests in Python
 * (tests/python/test_triton.py).
 *
 *   ptx-file TEXT KERNEL BLOCKS THREADS SHARED SEED PARAMETER...
 *
 * Parameters, in order: u32:N and u64:N, a number; in:FILE, the address of what the file has; out:FILE:BYTES, the
 * address of memory that is written to the file when the kernel has ended; map:FILE:COLUMNS,ROWS:COLUMNS,ROWS, a map of
 * TMA, of a tensor of 16-bit numbers that the file has, and of its boxes. Exit status: 0, or 1 with a message.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/async.h"

enum { MEMORY = 128, PARAMETERS = 4096, RANGES = 16, LINE = 100 };

static _Noreturn void fail(const char *what, const char *why) {
    fprintf(stderr, "ptx-file: %s: %s\n", what, why);
    exit(1);
}

/* Reads a whole file into memory that begins at a multiple of MEMORY, with a 0 behind it. */
static char *read_file(const char *path, size_t *size) {
    FILE *f = fopen(path, "rbe");
    if (!f || fseek(f, 0, SEEK_END)) fail(path, "cannot be read");
    const long bytes = ftell(f);
    rewind(f);
    char *made = bytes < 0 ? NULL : aligned_alloc(MEMORY, ((size_t)bytes / MEMORY + 1) * MEMORY);
    if (!made || fread(made, 1, (size_t)bytes, f) != (size_t)bytes) fail(path, "cannot be read");
    fclose(f);
    *size = (size_t)bytes;
    made[*size] = 0;
    return made;
}

typedef struct arguments {
    _Alignas(64) char bytes[PARAMETERS];
    size_t used;
    ptx_range ranges[RANGES];
    const char *files[RANGES]; /* to which a range is written; NULL: to none */
    uint32_t count;
} arguments;

static void *put(arguments *a, size_t bytes, size_t align) {
    a->used = (a->used + align - 1) / align * align;
    if (a->used + bytes > sizeof a->bytes) fail("parameters", "there are too many");
    a->used += bytes;
    return a->bytes + a->used - bytes;
}

static uint64_t put_range(arguments *a, char *memory, size_t bytes, const char *file) {
    if (a->count == RANGES) fail("parameters", "there are too many");
    const uint64_t begin = (uint64_t)(uintptr_t)memory;
    a->files[a->count] = file;
    a->ranges[a->count++] = (ptx_range){"a parameter", begin, begin + bytes, file != NULL};
    return begin;
}

static void put_map(arguments *a, char *text) {
    ptx_map map = {.element = 2, .swizzle = 128};
    char *sizes = strchr(text, ':');
    size_t bytes;
    if (!sizes) fail(text, "no map");
    *sizes++ = 0;
    for (int i = 0; i < PTX_DIMS; i++) map.dims[i] = map.box[i] = 1;
    char *end = sizes;
    for (int i = 0; i < 4; i++) {
        const uint64_t n = strtoull(end, &end, 10);
        if (!n || !strchr(i == 1 ? ":" : i == 3 ? "" : ",", *end)) fail(sizes, "no sizes of a map");
        if (i < 2) map.dims[i] = n;
        else map.box[i - 2] = (uint32_t)n;
        end += *end != 0;
    }
    char *memory = read_file(text, &bytes);
    if (bytes != map.dims[0] * map.dims[1] * map.element) fail(text, "has another size than its map");
    for (int i = 0; i < PTX_DIMS - 1; i++) map.strides[i] = map.dims[0] * map.element;
    map.base = put_range(a, memory, bytes, NULL);
    if (!ptx_map_encode(put(a, 128, 64), &map)) fail(text, "a driver would refuse this map");
}

static void put_parameter(arguments *a, char *text) {
    char *value = strchr(text, ':');
    size_t bytes;
    if (!value) fail(text, "no parameter");
    *value++ = 0;
    if (strcmp(text, "u32") == 0) {
        const uint32_t number = (uint32_t)strtoul(value, NULL, 10);
        memcpy(put(a, 4, 4), &number, 4);
        return;
    }
    uint64_t number = strtoull(value, NULL, 10);
    if (strcmp(text, "map") == 0) {
        put_map(a, value);
        return;
    }
    if (strcmp(text, "in") == 0) {
        char *memory = read_file(value, &bytes);
        number = put_range(a, memory, bytes, NULL);
    } else if (strcmp(text, "out") == 0) {
        char *size = strchr(value, ':');
        if (!size) fail(value, "how many bytes?");
        *size++ = 0;
        bytes = strtoull(size, NULL, 10);
        char *memory = aligned_alloc(MEMORY, (bytes / MEMORY + 1) * MEMORY);
        if (!memory) fail(value, "out of memory");
        memset(memory, 0xff, bytes); /* no number, if nobody writes it */
        number = put_range(a, memory, bytes, value);
    } else if (strcmp(text, "u64")) fail(text, "no parameter");
    memcpy(put(a, 8, 8), &number, 8);
}

int main(int argc, char **argv) {
    static arguments a;
    char error[PTX_ERROR];
    size_t size;
    if (argc < 7) fail("usage", "TEXT KERNEL BLOCKS THREADS SHARED SEED PARAMETER...");
    char *text = read_file(argv[1], &size);
    ptx_module *module = ptx_module_new(text, error);
    if (!module) fail(argv[1], error);
    ptx_launch launch = {.module = module,
                         .kernel = ptx_module_kernel(module, argv[2]),
                         .blocks = (uint32_t)strtoul(argv[3], NULL, 10),
                         .threads = (uint32_t)strtoul(argv[4], NULL, 10),
                         .shared = (uint32_t)strtoul(argv[5], NULL, 10),
                         .resident = 2,
                         .seed = strtoull(argv[6], NULL, 10)};
    if (!launch.kernel) fail(argv[2], "there is no such kernel");
    for (int i = 7; i < argc; i++) put_parameter(&a, argv[i]);
    if (a.used != launch.kernel->parameters) fail(argv[2], "has parameters of another size");
    launch.parameters = a.bytes;
    launch.parameter_bytes = a.used;
    launch.ranges = a.ranges;
    launch.range_count = a.count;
    if (!ptx_run(&launch, error)) fail(argv[2], error);
    for (uint32_t i = 0; i < a.count; i++) {
        void *memory = (void *)(uintptr_t)a.ranges[i].begin;
        FILE *f = a.files[i] ? fopen(a.files[i], "wbe") : NULL;
        const size_t bytes = a.ranges[i].end - a.ranges[i].begin;
        if (a.files[i] && (!f || fwrite(memory, 1, bytes, f) != bytes || fclose(f)))
            fail(a.files[i], "cannot be written");
        free(memory);
    }
    ptx_module_free(module);
    free(text);
    return 0;
}
