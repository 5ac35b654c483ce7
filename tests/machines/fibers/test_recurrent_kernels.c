/* test_recurrent_kernels.c: the kernels of layers that recur against plain loops, to the bit, on the machine of fibers:
 * every kind, type and width, with sizes that are no multiples of anything, and on grids of several sizes. */
#include "tests/machines/fibers/fibers.h"
#include "tests/support/recurrent_cases.h"

static void run(const char *kernel, const void *x, size_t bytes, uint32_t shared, const case_range *ranges,
                uint32_t count, uint64_t seed) {
    static char text[MACHINE_TEXT];
    const fibers_recurrent *all = &fibers_recurrent_kernels;
    const fibers_kernel *k = !strcmp(kernel, "fk_rows_move")     ? &all->rows_move
                             : !strcmp(kernel, "fk_rows_add")    ? &all->rows_add
                             : !strcmp(kernel, "fk_scan_scaled") ? &all->scan_scaled
                                                                 : &all->scan_matrix;
    machine_range list[MACHINE_RANGES] = {{0}};
    machine *m = machine_new();
    cr_assert_not_null(m);
    cr_assert(bytes && k->shared == shared && count <= MACHINE_RANGES);
    for (uint32_t i = 0; i < count; i++)
        list[i] = (machine_range){.name = ranges[i].name,
                                  .begin = ranges[i].begin,
                                  .end = ranges[i].end,
                                  .writable = ranges[i].writable};
    const machine_launch launch = {.kernel = k->run,
                                   .parameters = x,
                                   .blocks = 1 + seed % 4,
                                   .threads = k->threads,
                                   .shared = k->shared,
                                   .ranges = list,
                                   .range_count = count,
                                   .seed = seed,
                                   .resident = 1 + seed % 3};
    cr_assert(machine_run(m, &launch, text), "%s", text);
    machine_free(m);
}

Test(recurrent_kernels, rows_are_moved_and_become_zeros) {
    static const size_t sizes[] = {1, 2, 3, 4, 6, 7, 12, 16, 20, 48, 101, 512, 1000, 4096, 4112, 8196, 9001};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint32_t beyond = 0; beyond < 8; beyond++) {
            if (beyond && sizes[i] > 1000) continue; /* long rows once */
            rows_case(sizes[i], beyond, 0, false, false, false, i * 100 + beyond, run);
            if (beyond < 2) rows_case(sizes[i], beyond, 0, false, true, beyond, i * 100 + beyond + 50, run);
        }
}

Test(recurrent_kernels, rows_are_added_and_rounded) {
    static const size_t numbers[] = {1, 2, 3, 4, 5, 8, 15, 16, 24, 100, 1026, 2048, 2056};
    for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (fk_u32 type = 0; type < 3; type++)
            for (size_t beyond = 0; beyond < 3; beyond++) {
                const size_t size = type == FK_ROWS_FP32 ? 4 : 2;
                if (beyond && numbers[i] > 1000) continue;
                rows_case(numbers[i] * size, beyond * size, type, true, false, i % 3 == 1,
                          i * 1000 + type * 100 + beyond, run);
            }
}

Test(recurrent_kernels, summaries_are_combined) {
    static const size_t sizes[][3] = {{1, 1, 1},   {3, 2, 5},   {2, 16, 16},  {5, 7, 12}, {1, 65, 3},
                                      {2, 33, 64}, {1, 64, 66}, {1, 70, 130}, {4, 4, 4},  {2, 17, 1}};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (fk_u32 decay = 0; decay < 3; decay++)
            for (uint32_t whole = 0; whole < 2; whole++)
                scan_case(decay, sizes[i][0], sizes[i][1], sizes[i][2], whole, i % 4 * 4, i * 10 + decay * 2 + whole,
                          run);
}

/* The size of a linear attention layer's state. */
Test(recurrent_kernels, states_of_128_x_128) {
    for (fk_u32 decay = 0; decay < 3; decay++) scan_case(decay, 2, 128, 128, decay != FK_DECAY_MATRIX, 0, decay, run);
}

/* The result may lie where `first` lies, if A is no matrix. */
Test(recurrent_kernels, a_state_is_combined_in_its_place) {
    enum { HEADS = 3, ROWS = 5, COLUMNS = 8, ALL = HEADS * ROWS * COLUMNS };
    static float state[ALL], then[ALL], decay[HEADS * ROWS], right[ALL];
    uint64_t seed = 9;
    for (int i = 0; i < ALL; i++) state[i] = small(&seed), then[i] = small(&seed);
    for (int i = 0; i < HEADS * ROWS; i++) decay[i] = small(&seed);
    for (int i = 0; i < ALL; i++) right[i] = decay[i / COLUMNS] * state[i] + then[i];
    const fk_scan_launch x = {.to = (uintptr_t)state,
                              .first = (uintptr_t)state,
                              .then = (uintptr_t)then,
                              .then_decay = (uintptr_t)decay,
                              .heads = HEADS,
                              .rows = ROWS,
                              .columns = COLUMNS,
                              .decay = FK_DECAY_VECTOR,
                              .width = 4};
    const case_range ranges[] = {range("state", state, sizeof state, true), range("then", then, sizeof then, false),
                                 range("decay", decay, sizeof decay, false)};
    run("fk_scan_scaled", &x, sizeof x, 0, ranges, 3, 3);
    cr_assert_arr_eq(state, right, sizeof right);
}
