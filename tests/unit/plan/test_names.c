/* test_names.c: tests that every value of an enum has a name, and that no two values of one enum share a name. */
#include "runtime/plan/enum_names.h"
#include <criterion/criterion.h>
#include <string.h>

Test(names, are_there_and_differ) {
    static const struct { const char *const *names; int count; } tables[] = {
        {fcp_dtype_names, FCP_DTYPES},
        {fcp_pass_names, FCP_PASSES},
        {fcp_layout_names, FCP_LAYOUTS},
        {fcp_align_names, FCP_ALIGN_COUNT},
        {fcp_strategy_names, FCP_STRATEGY_COUNT},
        {fcp_fabric_names, FCP_FABRICS},
        {fcp_topology_names, FCP_TOPOLOGY_COUNT},
        {fcp_queue_names, FCP_QUEUES},
        {fcp_queue_texts, FCP_QUEUES},
        {fcp_class_names, FCP_CLASSES},
        {fcp_class_texts, FCP_CLASSES},
        {fcp_cell_names, FCP_CELL_CLASS_COUNT},
        {fcp_direction_names, FCP_DIRECTION_COUNT},
        {fcp_round_names, FCP_ROUND_KIND_COUNT},
        {fcp_op_names, FCP_OP_COUNT},
        {fcp_array_names, FCP_ARRAY_KINDS},
    };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (int i = 0; i < tables[t].count; i++) {
            cr_assert(tables[t].names[i] && *tables[t].names[i], "table %zu has no name for %d", t, i);
            for (int j = 0; j < i; j++) cr_assert_str_neq(tables[t].names[i], tables[t].names[j]);
        }
}

Test(names, partitions_are_found_by_name) {
    for (int i = 0; i < FCP_PARTITIONS; i++) {
        fcp_partition found = FCP_PARTITION_AUTO;
        cr_assert(fcp_partition_find(fcp_partition_name((fcp_partition)i), &found));
        cr_assert_eq((int)found, i);
    }
    fcp_partition untouched = FCP_PARTITION_GRID;
    cr_assert(!fcp_partition_find("Green", &untouched));
    cr_assert_eq(untouched, FCP_PARTITION_GRID);
    cr_assert_str_eq(fcp_partition_name((fcp_partition)FCP_PARTITIONS), "unknown");
    cr_assert_str_eq(fcp_dtype_name((fcp_dtype)FCP_DTYPES), "unknown");
}
