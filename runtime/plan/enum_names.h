/* enum_names.h: the words for the values of the enums of a plan. */
#ifndef FCP_PLAN_ENUM_NAMES_H
#define FCP_PLAN_ENUM_NAMES_H
#include "runtime/plan/enums.h"
#include "runtime/plan/recurrent.h"

/* The tables of names, indexed by the enum's value. */
extern const char *const fcp_dtype_names[FCP_DTYPES], *const fcp_pass_names[FCP_PASSES];
extern const char *const fcp_layout_names[FCP_LAYOUTS];
extern const char *const fcp_layer_kind_names[FCP_LAYER_KINDS], *const fcp_decay_names[FCP_DECAYS];
extern const char *const fcp_align_names[FCP_ALIGN_COUNT], *const fcp_strategy_names[FCP_STRATEGY_COUNT];
extern const char *const fcp_fabric_names[FCP_FABRICS], *const fcp_topology_names[FCP_TOPOLOGY_COUNT];
extern const char *const fcp_queue_names[FCP_QUEUES], *const fcp_queue_texts[FCP_QUEUES];
extern const char *const fcp_class_names[FCP_CLASSES], *const fcp_class_texts[FCP_CLASSES];
extern const char *const fcp_cell_names[FCP_CELL_CLASS_COUNT], *const fcp_direction_names[FCP_DIRECTION_COUNT];
extern const char *const fcp_round_names[FCP_ROUND_KIND_COUNT], *const fcp_op_names[FCP_OP_COUNT];
extern const char *const fcp_array_names[FCP_ARRAY_KINDS];
extern const char *const fcp_scan_shape_names[FCP_SCAN_SHAPES], *const fcp_step_names[FCP_STEP_OPS];
#endif
