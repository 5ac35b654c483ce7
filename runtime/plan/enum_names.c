/* enum_names.c: the tables of words for enum values.
 *
 * The words for a plan's own enums come from the lists in enums.h. The enums of fcp.h have no such lists, so that the
 * public header stays easy to read; their words are listed here.
 */
#include "runtime/plan/enum_names.h"
#include <string.h>

#define NAME(id, name, ...) [id] = name,
#define TEXT(id, name, text) [id] = text,

const char *const fcp_dtype_names[FCP_DTYPES] = {[FCP_FP32] = "fp32", [FCP_FP16] = "fp16", [FCP_BF16] = "bf16"};
const char *const fcp_pass_names[FCP_PASSES] = {[FCP_FORWARD] = "forward", [FCP_BACKWARD] = "backward"};
const char *const fcp_layout_names[FCP_LAYOUTS] = {
    [FCP_LAYOUT_PLANNED] = "planned", [FCP_LAYOUT_CONTIGUOUS] = "contiguous", [FCP_LAYOUT_ZIGZAG] = "zigzag"};
const char *const fcp_layer_kind_names[FCP_LAYER_KINDS] = {[FCP_HALO] = "halo", [FCP_SCAN] = "scan"};
const char *const fcp_decay_names[FCP_DECAYS] = {
    [FCP_DECAY_SCALAR] = "scalar", [FCP_DECAY_VECTOR] = "vector", [FCP_DECAY_MATRIX] = "matrix"};
static const char *const partition_names[FCP_PARTITIONS] = {[FCP_PARTITION_AUTO] = "auto",
                                                            [FCP_PARTITION_NONE] = "none",
                                                            [FCP_PARTITION_GRID] = "grid",
                                                            [FCP_PARTITION_GREEN] = "green"};
const char *const fcp_align_names[FCP_ALIGN_COUNT] = {FCP_ALIGN_LIST(NAME)};
const char *const fcp_strategy_names[FCP_STRATEGY_COUNT] = {FCP_STRATEGY_LIST(NAME)};
const char *const fcp_fabric_names[FCP_FABRICS] = {FCP_FABRIC_LIST(NAME)};
const char *const fcp_topology_names[FCP_TOPOLOGY_COUNT] = {FCP_TOPOLOGY_LIST(NAME)};
const char *const fcp_queue_names[FCP_QUEUES] = {FCP_QUEUE_LIST(NAME)};
const char *const fcp_queue_texts[FCP_QUEUES] = {FCP_QUEUE_LIST(TEXT)};
const char *const fcp_class_names[FCP_CLASSES] = {FCP_CLASS_LIST(NAME)};
const char *const fcp_class_texts[FCP_CLASSES] = {FCP_CLASS_LIST(TEXT)};
const char *const fcp_cell_names[FCP_CELL_CLASS_COUNT] = {FCP_CELL_LIST(NAME)};
const char *const fcp_direction_names[FCP_DIRECTION_COUNT] = {FCP_DIRECTION_LIST(NAME)};
const char *const fcp_round_names[FCP_ROUND_KIND_COUNT] = {FCP_ROUND_LIST(NAME)};
const char *const fcp_op_names[FCP_OP_COUNT] = {FCP_OP_LIST(NAME)};
const char *const fcp_array_names[FCP_ARRAY_KINDS] = {FCP_ARRAY_LIST(NAME)};
const char *const fcp_scan_shape_names[FCP_SCAN_SHAPES] = {FCP_SCAN_SHAPE_LIST(NAME)};
const char *const fcp_step_names[FCP_STEP_OPS] = {FCP_STEP_LIST(NAME)};

const char *fcp_dtype_name(fcp_dtype t) { return (unsigned)t < FCP_DTYPES ? fcp_dtype_names[t] : "unknown"; }

const char *fcp_partition_name(fcp_partition p) {
    return (unsigned)p < FCP_PARTITIONS ? partition_names[p] : "unknown";
}

bool fcp_partition_find(const char *name, fcp_partition *out) {
    for (int i = 0; i < FCP_PARTITIONS; i++)
        if (strcmp(partition_names[i], name) == 0) {
            *out = (fcp_partition)i;
            return true;
        }
    return false;
}
