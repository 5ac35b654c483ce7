/* kernel_source.c: describes a plan to codegen, which prints its kernels.
 *
 * Requires: a plan that passed fcp_plan_check.
 * Cost:     linear in the text, about 50 KB.
 */
#include "runtime/jit/kernel_source.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_arrays.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/worklists/worklists.h"
#include "runtime/plan/table_reads.h"

/* A kernel works on whole tiles. So it computes positions past the end of a sequence too, up to this many, and then
 * ignores what comes of them; they must not overflow. */
enum { BEYOND = 2 * FCP_CELL };

/* Text that grows as it is printed. */
typedef struct sheet {
    char *text;
    size_t size, room;
    bool failed;
} sheet;

static void sheet_append(void *context, const char *text, size_t size) {
    sheet *s = context;
    if (s->failed) return;
    if (s->room - s->size <= size) {
        size_t room = (s->size + size) * 2 + 65536;
        char *bigger = realloc(s->text, room);
        s->failed = !bigger;
        if (!bigger) return;
        s->text = bigger;
        s->room = room;
    }
    memcpy(s->text + s->size, text, size);
    s->size += size;
    s->text[s->size] = 0;
}

fcp_code fcp_kernel_check(const fcp_plan *plan, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    if (p->dtype != FCP_BF16 && p->dtype != FCP_FP16)
        return fcp_fail(
            err, FCP_E_TENSOR,
            "the plan's tensors are %s, and kernels multiply bf16 or fp16 on tensor cores: compile the plan "
            "with -D model.dtype=bf16",
            fcp_dtype_name((fcp_dtype)p->dtype));
    if (p->values_in_keys)
        return fcp_fail(err, FCP_E_HEADS,
                        "kernels read V from memory of its own, and the plan's values are in its keys: give V apart, "
                        "as in model { head_dim = 192; value_dim = 128; values = own }, or run the plan on the host");
    if (!emit_has_dims(p->head_dim, p->value_dim))
        return fcp_fail(err, FCP_E_HEADS,
                        "there are kernels for " EMIT_DIMS "; the plan's are %" PRIu32 " and %" PRIu32, p->head_dim,
                        p->value_dim);
    return FCP_OK;
}

/* The largest distance from position 0 at which any sequence has a query or a key. Queries stand before 0 where a
 * sequence has more queries than keys. */
static uint64_t farthest_position(const fcp_plan *plan) {
    uint64_t most = 0;
    for (uint64_t i = 0; i < plan->sequences_count; i++) {
        const fcp_sequence *s = &plan->sequences[i];
        uint64_t before = s->q_first < 0 ? 0 - (uint64_t)s->q_first : (uint64_t)s->q_first;
        if (s->keys > most) most = s->keys;
        if (s->queries + before > most) most = s->queries + before;
    }
    return most;
}

static bool has_negative_positions(const fcp_plan *plan) {
    bool any = false;
    for (uint64_t i = 0; i < plan->sequences_count; i++) any = any || plan->sequences[i].q_first < 0;
    return any;
}

uint64_t fcp_kernel_sums(const fcp_plan *plan) {
    fcp_table_reads *reads = NULL;
    fcp_error ignored;
    const uint64_t count = plan->problem->passes >> FCP_BACKWARD & 1 ? fcp_plan_table_numbers(plan) : 0;
    const bool any = count && !fcp_table_reads_make(plan, &reads, &ignored) && reads->count;
    fcp_table_reads_free(reads);
    return any ? count : 0;
}

/* The reads of a plan's score, as codegen takes them. *out_reads and *out_emitted are the caller's to free, after an
 * error too. */
static fcp_code describe_reads(const fcp_plan *plan, emit_program *out, fcp_table_reads **out_reads,
                               emit_read **out_emitted, fcp_error *err) {
    fcp_code code = fcp_table_reads_make(plan, out_reads, err);
    if (code) return code;
    const fcp_table_reads *from = *out_reads;
    emit_read *to = *out_emitted = calloc(from->count + (size_t)1, sizeof *to);
    if (!to) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %" PRIu32 " reads of tables", from->count);
    for (uint32_t i = 0; i < from->count; i++)
        to[i] = (emit_read){from->reads[i].part, from->reads[i].load, from->reads[i].first};
    out->reads = to;
    out->read_count = from->count;
    return FCP_OK;
}

/* Fills what codegen prints from. *out_arrays is malloc'd, after an error too; *out points into it and into the
 * plan. */
static fcp_code describe_plan(const fcp_plan *plan, emit_program *out, emit_array **out_arrays, fcp_error *err) {
    emit_array *arrays = calloc(plan->arrays_count + 1, sizeof *arrays);
    *out_arrays = arrays;
    if (!arrays) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %" PRIu64 " arrays", plan->arrays_count);
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        emit_array *to = &arrays[i];
        *to = (emit_array){.table = a->kind == FCP_TABLE, .width = (mc_width)a->width};
        if (to->table) to->dim[to->dims++].count = (int64_t)a->count;
        if (a->columns) to->dim[to->dims++].count = (int64_t)a->columns;
        if (a->heads) to->dim[to->dims++].count = a->heads;
        if (a->q_cell) to->dim[to->dims++] = (emit_dim){.over = EMIT_QUERIES, .cell = a->q_cell};
        if (a->k_cell) to->dim[to->dims++] = (emit_dim){.over = EMIT_KEYS, .cell = a->k_cell};
        if (!to->dims) to->dim[to->dims++].count = 1; /* one number for each sequence */
    }
    *out = (emit_program){.mask = {plan->mask, (uint32_t)plan->mask_count},
                          .score = {plan->score, (uint32_t)plan->score_count},
                          .slope = {plan->slope, (uint32_t)plan->slope_count},
                          .arrays = arrays,
                          .array_count = (uint32_t)plan->arrays_count,
                          .band_count = (uint32_t)plan->slices_count,
                          .positions = emit_positions(farthest_position(plan) + BEYOND),
                          .negative = has_negative_positions(plan),
                          .heads = plan->problem->heads};
    return FCP_OK;
}

fcp_code fcp_kernel_source(const fcp_plan *plan, unsigned skeletons, bool fused, char **out_text, fcp_error *err) {
    emit_program program;
    emit_array *arrays = NULL;
    fcp_table_reads *reads = NULL;
    emit_read *emitted = NULL;
    sheet s = {0};
    *out_text = NULL;
    fcp_code code = fcp_kernel_check(plan, err);
    unsigned passes = (skeletons & EMIT_FORWARDS ? 1u << FCP_FORWARD : 0) |
                      (skeletons & (EMIT_BACKWARD | EMIT_TABLES) ? 1u << FCP_BACKWARD : 0);
    const unsigned missing = passes & ~plan->problem->passes;
    if (!code && missing)
        code = fcp_fail(err, FCP_E_PASS, "the plan has no %s pass",
                        fcp_pass_names[missing >> FCP_FORWARD & 1 ? FCP_FORWARD : FCP_BACKWARD]);
    const uint32_t d = plan->problem->head_dim, v = plan->problem->value_dim;
    if (!code && skeletons & (EMIT_ORDERED | EMIT_UNORDERED) && emit_backward(d, v, true, false) == EMIT_SPLIT)
        code = fcp_fail(err, FCP_E_HEADS,
                        "the backward pass in one kernel has a head_dim of at most 128; the plan's is %" PRIu32, d);
    if (!code && skeletons & EMIT_FORWARD_SM90 && emit_forward(d, v, true) != EMIT_FORWARD_SM90)
        code = fcp_fail(err, FCP_E_HEADS,
                        "the forward pass for sm_90a has a head_dim and a value_dim that are multiples of 64; the "
                        "plan's are %" PRIu32 " and %" PRIu32, d, v);
    if (!code && skeletons & EMIT_BACKWARD_SM90 && !(emit_backward(d, v, true, true) & EMIT_BACKWARD_SM90))
        code = fcp_fail(err, FCP_E_HEADS,
                        "the backward pass for sm_90a has a head_dim and a value_dim that are both 64 or both 128; the "
                        "plan's are %" PRIu32 " and %" PRIu32, d, v);
    if (!code) code = describe_plan(plan, &program, &arrays, err);
    if (!code && skeletons & EMIT_TABLES) code = describe_reads(plan, &program, &reads, &emitted, err);
    if (!code && !program.positions)
        code =
            fcp_fail(err, FCP_E_PLAN_SIZE, "kernels count positions up to 2^40, and a sequence of the plan has more");
    if (!code) {
        const emit_source source = {.program = &program,
                                    .head_dim = d,
                                    .value_dim = v,
                                    .bf16 = plan->problem->dtype == FCP_BF16,
                                    .ranges = fcp_plan_ranges(plan) > 1,
                                    .skeletons = skeletons,
                                    .negative_scale = plan->problem->scale < 0,
                                    .by_head = fcp_plan_by_head(plan),
                                    .packed = skeletons & EMIT_FORWARDS && fcp_plan_packed(plan),
                                    .fused = fused && skeletons & (EMIT_FORWARDS | EMIT_JOINT)};
        uint32_t node;
        const char *wrong = emit_kernels(&source, sheet_append, &s, &node);
        if (wrong && strcmp(wrong, "out of memory") == 0) s.failed = true;
        else if (wrong) code = fcp_fail(err, FCP_E_PLAN_FORMAT, "mask code, node %" PRIu32 ": %s", node, wrong);
        if (!code && s.failed) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a kernel's source");
    }
    free(arrays);
    free(emitted);
    fcp_table_reads_free(reads);
    if (!code) *out_text = s.text;
    else free(s.text);
    return code;
}

fcp_code fcp_kernel_source_recurrent(char **out_text, fcp_error *err) {
    sheet s = {0};
    emit_recurrent(sheet_append, &s);
    *out_text = s.failed ? NULL : s.text;
    if (!s.failed) return FCP_OK;
    free(s.text);
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a kernel's source");
}
