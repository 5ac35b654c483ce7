/* test_ptx_recurrent.c: executes the PTX of the kernels of layers that recur, and compares what they write with plain
 * loops, to the bit. So a compiler that made one instruction of a product and a sum would be found out. */
#include "codegen/source.h"
#include "tests/machines/ptx/judge.h"
#include "tests/machines/ptx/ptx.h"
#include "tests/support/recurrent_cases.h"

static ptx_module *module;

static void run(const char *kernel, const void *x, size_t bytes, uint32_t shared, const case_range *ranges,
                uint32_t count, uint64_t seed) {
    char why[PTX_ERROR] = "";
    ptx_range list[4];
    cr_assert(count <= 4);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (ptx_range){ranges[i].name, ranges[i].begin, ranges[i].end, ranges[i].writable};
    const ptx_launch launch = {.module = module,
                               .kernel = ptx_module_kernel(module, kernel),
                               .parameters = x,
                               .parameter_bytes = bytes,
                               .blocks = 1 + (uint32_t)(seed % 5),
                               .threads = FK_SUPPORT_THREADS,
                               .shared = shared,
                               .resident = 1 + (uint32_t)(seed % 3),
                               .ranges = list,
                               .range_count = count,
                               .seed = seed};
    cr_assert(launch.kernel, "%s", kernel);
    cr_assert(ptx_run(&launch, why), "%s: %s", kernel, why);
}

static void append(void *context, const char *text, size_t size) {
    FILE *out = context;
    cr_assert_eq(fwrite(text, 1, size, out), size);
}

Test(ptx, layers_that_recur) {
    char *source = NULL, *text, why[PTX_ERROR];
    size_t size;
    fcp_error err;
    if (!compiler()) return;
    FILE *out = open_memstream(&source, &size);
    cr_assert(out);
    emit_recurrent(append, out);
    cr_assert_eq(fclose(out), 0);
    cr_assert_eq(ptx_compile(source, "compute_80", &text, &err), FCP_OK, "%s", err.message);
    module = ptx_module_new(text, why);
    cr_assert(module, "%s", why);
    /* No row ends within a word: this machine takes words for what is written. */
    static const size_t rows[] = {4, 12, 48, 100, 1000, 4112}, numbers[] = {2, 6, 8, 16, 100};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rows_case(rows[i], i % 2 * 4, 0, false, false, i % 3 == 1, i, run);
        rows_case(rows[i], 0, 0, false, true, i % 3 == 2, i, run);
    }
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (fk_u32 type = 0; type < 3; type++)
            rows_case(numbers[i] * (type ? 2 : 4), i % 2 * 4, type, true, false, i % 3 == 1, i + type, run);
    static const size_t sizes[][3] = {{1, 1, 1}, {3, 2, 5}, {2, 16, 16}, {1, 65, 3}, {1, 33, 68}};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (fk_u32 decay = 0; decay < 3; decay++)
            scan_case(decay, sizes[i][0], sizes[i][1], sizes[i][2], i % 2, i % 2 * 4, i + decay, run);
    ptx_module_free(module);
    free(source);
    free(text);
}
