/* plan.c: what is derived from a plan's tables: the index, sizes, and the accessors of fcp.h. Layouts are in layout.c.
 *
 * Requires: the accessors need a checked plan; fcp_plan_index needs only counts that match the pointers.
 * Cost:     fcp_plan_index is linear in the sequences and blocks, and in the sequences for each field that is over
 *           more than keys or queries; the rest is constant.
 * Units:    bytes and tokens. Sizes saturate (base/saturate.h).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <isa-l/crc.h>

#include "runtime/base/saturate.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/file.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_index.h"
#include "runtime/plan/recurrent.h"
#include "runtime/plan/sides.h"

const uint32_t fcp_record_sizes[FCP_SECTION_COUNT] = {
#define X(id, type, member) [FCP_SECTION_##id] = sizeof(type),
    FCP_SECTIONS(X)
#undef X
};

const char *const fcp_section_names[FCP_SECTION_COUNT] = {
#define X(id, type, member) [FCP_SECTION_##id] = #member,
    FCP_SECTIONS(X)
#undef X
};

uint32_t fcp_crc32c(const void *bytes, uint64_t size) {
    enum { STEP = 1 << 30 }; /* the library takes the size as an int */
    unsigned char *at = (unsigned char *)(uintptr_t)bytes; /* it only reads */
    uint32_t crc = UINT32_MAX;
    while (size > STEP) {
        crc = crc32_iscsi(at, STEP, crc);
        at += STEP;
        size -= STEP;
    }
    if (size) crc = crc32_iscsi(at, (int)size, crc);
    return ~crc;
}

bool fcp_file_offsets(const uint64_t lengths[FCP_SECTION_COUNT], uint64_t out_offsets[FCP_SECTION_COUNT],
                      uint64_t *out_size) {
    uint64_t at = fcp_header_size(fcp_feature_sections(fcp_file_features(lengths)));
    for (int i = 0; i < FCP_SECTION_COUNT; i++) {
        out_offsets[i] = at;
        if (lengths[i] > INT64_MAX - FCP_FILE_ALIGN - at) return false;
        at = (at + lengths[i] + FCP_FILE_ALIGN - 1) / FCP_FILE_ALIGN * FCP_FILE_ALIGN;
    }
    *out_size = at;
    return true;
}

bool fcp_plan_sections(const fcp_plan *plan, const void *out_data[FCP_SECTION_COUNT],
                       uint64_t out_lengths[FCP_SECTION_COUNT]) {
#define X(id, type, member)                                                                                            \
    out_data[FCP_SECTION_##id] = plan->member;                                                                         \
    if (__builtin_mul_overflow(plan->member##_count, (uint64_t)sizeof(type), &out_lengths[FCP_SECTION_##id]))          \
        return false;
    FCP_SECTIONS(X)
#undef X
    return true;
}

fcp_plan fcp_plan_view(const fcp_plan *plan) {
    static const union {
        uint64_t align;
        char nothing[1];
    } empty;
    fcp_plan view = *plan;
#define X(id, type, member)                                                                                            \
    if (!view.member) view.member = (const void *)&empty;
    FCP_SECTIONS(X)
#undef X
    return view;
}

/* Fills `to` with the classes of the heads of one range. (Heads of one class have the same mask.) A range numbers the
 * classes that it has from 0, in the order of their numbers in the model.
 *
 * Example: the range's three heads have the model's classes 5, 2 and 5. Then 2 becomes 0 and 5 becomes 1, and `to` is
 * {2, 1, 0, 1, 1, 2}:
 *   to[0]               how many classes there are
 *   to[1 + i]           the class of the range's head i
 *   to[1 + count + c]   how many heads are of class c
 *
 * seen: scratch, one number for each class of the model; 0 before and after. */
static void index_range(const fcp_plan *plan, uint32_t heads, uint32_t *seen, uint32_t *to) {
    const uint32_t count = fcp_range_heads(plan->problem), all = (uint32_t)plan->head_classes_count;
    uint32_t classes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t head = fcp_model_head(plan->problem, &plan->heads[heads], i);
        to[1 + i] = head < all ? plan->head_classes[head] : 0; /* fcp_plan_check refuses what is not */
        if (to[1 + i] >= all) to[1 + i] = 0;
        seen[to[1 + i]] = 1;
    }
    for (uint32_t c = 0; c < all; c++)
        if (seen[c]) seen[c] = ++classes;
    for (uint32_t i = 0; i < count; i++) to[1 + count + (to[1 + i] = seen[to[1 + i]] - 1)]++;
    memset(seen, 0, all * sizeof *seen);
    to[0] = classes;
}

/* Fills range_classes. It stays NULL where the counts make no sense, which fcp_plan_check refuses. Ranges of query
 * heads share no heads, and ranges of KV heads share none; so there are at most twice as many as fit. */
static fcp_code index_classes(fcp_plan *plan, fcp_error *err) {
    free(plan->range_classes);
    plan->range_classes = NULL;
    if (!plan->head_classes_count || plan->problem_count != 1) return FCP_OK;
    const fcp_problem *p = plan->problem;
    const uint64_t all = plan->head_classes_count, size = (uint64_t)p->range_kv * p->range_sub;
    if (p->heads != all || !p->kv_heads || !size || size > all || plan->heads_count > 2 * (all / size)) return FCP_OK;
    uint32_t *classes = calloc((size_t)(plan->heads_count * (2 * size + 1)) + 1, sizeof *classes);
    uint32_t *seen = calloc((size_t)all, sizeof *seen);
    for (uint32_t i = 0; classes && seen && i < plan->heads_count; i++)
        index_range(plan, i, seen, classes + (size_t)i * (2 * size + 1));
    if (!classes || !seen) {
        free(classes);
        free(seen);
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the classes of %llu heads", (unsigned long long)all);
    }
    free(seen);
    plan->range_classes = classes;
    return FCP_OK;
}

/* Is it a field whose values do not begin where tokens do? */
static bool has_starts(const fcp_array *a) {
    return a->kind == FCP_FIELD && !fcp_array_is_over(a, FCP_KEYS) && !fcp_array_is_over(a, FCP_QUERIES);
}

static void find_starts(const fcp_plan *plan, const fcp_array *a, uint64_t *out) {
    uint64_t next = 0;
    for (uint64_t s = 0; s < plan->sequences_count; s++) {
        const fcp_sequence *of = &plan->sequences[s];
        const mc_env env = {.n = (int64_t)of->keys, .q_first = of->q_first, .queries = (int64_t)of->queries};
        const mc_array part = fcp_array_part(a, NULL, 0, &env);
        const uint64_t rows = fcp_times((uint64_t)part.count, part.planes ? part.planes : 1);
        out[s] = next;
        next = fcp_plus(next, fcp_times(rows, part.columns ? (uint64_t)part.columns : 1));
    }
    out[plan->sequences_count] = next;
}

/* Fills array_starts. If shapes make no sense, sums may become UINT64_MAX; fcp_plan_check refuses them. Devices get an
 * address for each array and each sequence. A small file that has many of both is refused, because it would take
 * memory that is the product of their numbers. */
static fcp_code index_arrays(fcp_plan *plan, fcp_error *err) {
    enum { FEW = 1 << 22 };
    const uint64_t arrays = plan->arrays_count, each = plan->sequences_count + 1;
    if (fcp_times(arrays, each) > FEW + plan->file_size)
        return fcp_fail(err, FCP_E_PLAN_FORMAT, "%" PRIu64 " arrays for %" PRIu64 " sequences", arrays, each - 1);
    uint64_t fields = 0;
    for (uint64_t i = 0; i < arrays; i++) fields += has_starts(&plan->arrays[i]);
    free(plan->array_starts);
    plan->array_starts = calloc((size_t)(arrays + 1 + fields * each), sizeof(uint64_t));
    if (!plan->array_starts) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the fields of a plan");
    uint64_t *room = (uint64_t *)(void *)(plan->array_starts + arrays + 1);
    for (uint64_t i = 0; i < arrays; i++) {
        if (!has_starts(&plan->arrays[i])) continue;
        find_starts(plan, &plan->arrays[i], room);
        plan->array_starts[i] = room;
        room += each;
    }
    return FCP_OK;
}

fcp_code fcp_plan_index(fcp_plan *plan, fcp_error *err) {
    const void *data[FCP_SECTION_COUNT];
    uint64_t lengths[FCP_SECTION_COUNT], offsets[FCP_SECTION_COUNT], size;
    if (!fcp_plan_sections(plan, data, lengths) || !fcp_file_offsets(lengths, offsets, &size))
        return fcp_fail(err, FCP_E_PLAN_FORMAT, "the plan's tables are larger than any file");
    size_t n = (size_t)plan->sequences_count;
    uint64_t *prefix = n < SIZE_MAX / sizeof *prefix / 4 ? malloc(2 * (n + 1) * sizeof *prefix) : NULL;
    if (!prefix) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the offsets of %zu sequences", n);
    uint64_t *keys = prefix + n + 1;
    prefix[0] = keys[0] = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_add_overflow(prefix[i], plan->sequences[i].queries, &prefix[i + 1]) ||
            __builtin_add_overflow(keys[i], plan->sequences[i].keys, &keys[i + 1])) {
            free(prefix);
            return fcp_fail(err, FCP_E_PLAN_FORMAT, "the lengths of sequences 0 to %zu sum to more than 2^64", i);
        }
    free(plan->sequence_offsets);
    plan->sequence_offsets = prefix;
    plan->self = !memcmp(prefix, keys, (n + 1) * sizeof *prefix);
    plan->file_size = size;
    fcp_code code = index_classes(plan, err);
    if (!code) code = index_arrays(plan, err);
    if (!code) code = fcp_plan_index_documents(plan, err);
    return code ? code : fcp_plan_index_layout(plan, err);
}

void fcp_plan_free(fcp_plan *plan) {
    if (!plan) return;
    if (plan->release) plan->release(plan->owner);
    free(plan->array_starts);
    free(plan->sequence_offsets);
    free(plan->rank_tokens);
    free(plan->home_starts);
    free(plan->home_blocks);
    free(plan->range_classes);
    free(plan->documents);
    free(plan->extract);
    free(plan);
}

void fcp_plan_shape(const fcp_plan *plan, fcp_shape *out_shape) {
    const fcp_problem *p = plan->problem;
    *out_shape = (fcp_shape){.ranks = p->ranks,
                             .heads = p->heads,
                             .kv_heads = p->kv_heads,
                             .head_dim = p->head_dim,
                             .value_dim = p->value_dim,
                             .values_in_keys = p->values_in_keys,
                             .lse_gradient = p->lse_gradient,
                             .dtype = (fcp_dtype)p->dtype,
                             .layout = (fcp_layout)p->layout,
                             .has_pass = {p->passes & 1u << FCP_FORWARD, p->passes & 1u << FCP_BACKWARD},
                             .tokens = p->tokens,
                             .key_tokens = p->key_tokens,
                             .sequences = plan->extract ? plan->extract->about->sequences : plan->sequences_count,
                             .documents = plan->documents_count,
                             .scale = p->scale};
}

uint32_t fcp_plan_tables(const fcp_plan *plan, uint32_t number, fcp_table *out_table) {
    uint32_t count = 0;
    uint64_t first = 0;
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        if (!fcp_array_learnable(a)) continue;
        if (count++ == number && out_table)
            *out_table = (fcp_table){.name = plan->names + a->name,
                                     .rows = a->count,
                                     .columns = a->columns,
                                     .first = first,
                                     .values = (const double *)(const void *)(plan->data + a->offset)};
        first += fcp_array_values(a);
    }
    return count;
}

uint64_t fcp_plan_table_numbers(const fcp_plan *plan) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < plan->arrays_count; i++)
        if (fcp_array_learnable(&plan->arrays[i]))
            sum += fcp_array_bytes(&plan->arrays[i]) / sizeof(double);
    return sum;
}

/* Where a sequence of the batch begins. */
static uint64_t offset_of(const fcp_plan *plan, fcp_side side, uint32_t sequence, uint64_t *out_length) {
    if (plan->extract) sequence = fcp_extract_find(plan, sequence);
    bool known = sequence < plan->sequences_count;
    if (out_length) *out_length = known ? fcp_side_length(&plan->sequences[sequence], side) : 0;
    if (plan->extract && known) return plan->extract->places[sequence].row[side];
    if (plan->extract) return side == FCP_KEYS ? plan->problem->key_tokens : plan->problem->tokens;
    return fcp_offsets(plan, side)[known ? sequence : plan->sequences_count];
}

uint64_t fcp_plan_sequence_offset(const fcp_plan *plan, uint32_t sequence, uint64_t *out_length) {
    return offset_of(plan, FCP_QUERIES, sequence, out_length);
}

uint64_t fcp_plan_key_offset(const fcp_plan *plan, uint32_t sequence, uint64_t *out_length) {
    return offset_of(plan, FCP_KEYS, sequence, out_length);
}

int64_t fcp_plan_query_position(const fcp_plan *plan, uint32_t sequence) {
    if (plan->extract) sequence = fcp_extract_find(plan, sequence);
    return sequence < plan->sequences_count ? plan->sequences[sequence].q_first : 0;
}

bool fcp_plan_by_head(const fcp_plan *plan) {
    for (uint32_t i = 0; i < plan->heads_count; i++)
        if (fcp_class_count(plan, i) > 1) return true;
    return false;
}

bool fcp_plan_packed(const fcp_plan *plan) {
    if (plan->extract) return plan->extract->about->packed;
    for (uint64_t i = 0; i < plan->sequences_count; i++)
        if (fcp_is_short(&plan->sequences[i])) return !fcp_plan_by_head(plan);
    return false;
}

/* `wire`: bytes of a number of a partial result; `row`: of a float of a row, of which LSE has two. */
static uint64_t token_bytes(const fcp_problem *p, uint32_t holds, fcp_class cls, fcp_pass pass, uint64_t wire,
                            uint64_t row) {
    uint64_t element = fcp_dtype_size((fcp_dtype)p->dtype);
    uint64_t heads = (uint64_t)p->range_kv * p->range_sub;
    uint64_t q = heads * p->head_dim, o = heads * p->value_dim, kv = (uint64_t)p->range_kv * fcp_kv_dim(p);
    row *= heads;
    if (cls == FCP_IN || cls == FCP_OUT) {
        if (!(holds & FCP_HOLDS_Q)) q = o = row = 0;
        if (!(holds & FCP_HOLDS_KV)) kv = 0;
    }
    switch (cls) {
    case FCP_KV: return kv * element;
    case FCP_Q: return pass == FCP_FORWARD ? q * element : (q + o) * element + 3 * row;
    case FCP_STATE: return o * wire + 2 * row;
    case FCP_O: return o * element + 2 * row;
    case FCP_DKV: return kv * wire;
    case FCP_DQ: return q * wire;
    case FCP_DQW: return q * element;
    case FCP_IN:
        return pass == FCP_FORWARD ? (q + kv) * element
                                   : (q + 2 * o + kv) * element + (p->lse_gradient ? 3 : 2) * row;
    case FCP_OUT: return pass == FCP_FORWARD ? o * element + 2 * row : (q + kv) * element;
    default: return 0;
    }
}

uint64_t fcp_held_bytes(const fcp_problem *p, uint32_t holds, fcp_class cls, fcp_pass pass) {
    return token_bytes(p, holds, cls, pass, fcp_dtype_size((fcp_dtype)p->wire), sizeof(float));
}

uint64_t fcp_class_bytes(const fcp_problem *p, fcp_class cls, fcp_pass pass) {
    return fcp_held_bytes(p, FCP_HOLDS_BOTH, cls, pass);
}

uint64_t fcp_slot_bytes(const fcp_problem *p, fcp_class cls, fcp_pass pass) {
    return token_bytes(p, FCP_HOLDS_BOTH, cls, pass, sizeof(float), sizeof(float));
}

uint64_t fcp_bytes_off_rails(const fcp_plan *plan, fcp_pass pass) {
    const fcp_problem *p = plan->problem;
    uint64_t bytes = 0;
    if (p->topology != FCP_RAIL || !(p->passes >> pass & 1)) return 0;
    for (uint32_t r = 0; r < p->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, pass, r, FCP_COMM);
        for (const fcp_instr *x = plan->instrs + s->first; x < plan->instrs + s->first + s->count; x++)
            for (uint32_t i = x->a; x->op == FCP_OP_LAUNCH && i < x->a + x->b; i++) {
                const fcp_transfer *t = &plan->transfers[i];
                if (t->dir == FCP_SEND && t->fabric == FCP_NET && t->peer % p->gpus != r % p->gpus)
                    bytes += t->tokens * fcp_held_bytes(p, fcp_moved_holds(plan, t) & FCP_HOLDS_BOTH,
                                                        (fcp_class)t->cls, pass);
            }
    }
    return bytes;
}

static bool is_of_keys(fcp_class cls) { return cls == FCP_KV || cls == FCP_DKV; }

/* Bytes of a token of a class in a slot, without what is a few for each row: LSE, delta, m and l. */
static uint64_t bulk_bytes(const fcp_problem *p, fcp_class cls, fcp_pass pass) {
    return token_bytes(p, FCP_HOLDS_BOTH, cls, pass, sizeof(float), 0);
}

uint32_t fcp_unit_tokens(const fcp_problem *p, fcp_class cls, fcp_fabric fabric) {
    if (is_of_keys(cls) || cls == FCP_IN || cls == FCP_OUT) return p->unit;
    uint64_t tokens = p->max_q_block;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(p->passes & 1u << pass)) continue;
        bool only_forward = cls == FCP_STATE || cls == FCP_O, only_backward = cls == FCP_DQ || cls == FCP_DQW;
        if (pass == FCP_FORWARD ? only_backward : only_forward) continue;
        uint64_t most = bulk_bytes(p, FCP_KV, (fcp_pass)pass), other = bulk_bytes(p, FCP_DKV, (fcp_pass)pass);
        if (pass == FCP_BACKWARD && other > most) most = other;
        if (fabric == FCP_LOCAL) most = fcp_times(most, fcp_is_partial(cls) ? FCP_UNIT_NEAR_PART : FCP_UNIT_NEAR);
        uint64_t fit = fcp_times(p->unit, most) / bulk_bytes(p, cls, (fcp_pass)pass);
        if (fit < tokens) tokens = fit;
    }
    return tokens < 8 ? tokens ? (uint32_t)tokens : 1 : (uint32_t)(tokens - tokens % 8);
}

uint64_t fcp_rank_memory(const fcp_problem *p, fcp_pass pass, uint64_t q_tokens, uint64_t kv_tokens,
                         const uint64_t slots[FCP_CLASSES]) {
    uint64_t q = fcp_slot_bytes(p, FCP_DQW, pass), kv = fcp_slot_bytes(p, FCP_KV, pass), home_q, home_kv;
    uint64_t o = bulk_bytes(p, FCP_O, pass), row = (uint64_t)p->range_kv * p->range_sub * 4;
    static const uint8_t used[FCP_PASSES][FCP_CLASSES] = {
        [FCP_FORWARD] = {[FCP_KV] = 1, [FCP_Q] = 1, [FCP_STATE] = 1, [FCP_O] = 1},
        [FCP_BACKWARD] = {[FCP_KV] = 1, [FCP_Q] = 1, [FCP_DKV] = 1, [FCP_DQ] = 1, [FCP_DQW] = 1}};
    if (pass == FCP_FORWARD) {
        home_q = q + fcp_slot_bytes(p, FCP_O, pass);
        home_kv = kv;
    } else {
        home_q = q + 2 * o + (p->lse_gradient ? 4 : 3) * row + fcp_slot_bytes(p, FCP_DQ, pass) + q;
        home_kv = kv + fcp_slot_bytes(p, FCP_DKV, pass) + kv;
    }
    uint64_t bytes = fcp_plus(fcp_times(q_tokens, home_q), fcp_times(kv_tokens, home_kv));
    for (int cls = 0; cls < FCP_CLASSES; cls++) {
        if (!used[pass][cls]) continue;
        uint64_t tokens = fcp_times(slots[cls], is_of_keys((fcp_class)cls) ? p->max_block : p->max_q_block);
        bytes = fcp_plus(bytes, fcp_times(tokens, fcp_slot_bytes(p, (fcp_class)cls, pass)));
    }
    return bytes;
}

uint32_t fcp_plan_recurrent(const fcp_plan *plan, uint32_t number, fcp_layer_shape *out_shape) {
    if (number < plan->recurrent_count && out_shape) {
        const fcp_recurrent *x = &plan->recurrent[number];
        *out_shape = (fcp_layer_shape){.kind = (fcp_layer_kind)x->kind,
                                       .times = x->times,
                                       .before = x->before,
                                       .after = x->after,
                                       .channels = x->channels,
                                       .heads = x->heads,
                                       .rows = x->rows,
                                       .columns = x->columns,
                                       .decay = (fcp_decay)x->decay,
                                       .reverse = x->reverse != 0};
    }
    return (uint32_t)plan->recurrent_count;
}
