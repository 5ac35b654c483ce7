/* source.c: puts a kernel's source together from the texts of codegen/kernels, which the build has made into arrays.
 *
 * Cost:     the length of the text, about 50 KB.
 */
#include "codegen/source.h"

#include <stdio.h>
#include <string.h>

#include "codegen/kernels/abi.h"

extern const char emit_text_abi[], emit_text_prim_ptx[], emit_text_prim_sm90_ptx[], emit_text_common[],
    emit_text_tiles_sm90[], emit_text_forward_rows[], emit_text_forward_mma[], emit_text_forward_sm90[],
    emit_text_support[], emit_text_backward_steps[], emit_text_backward_mma[], emit_text_backward_ordered_mma[],
    emit_text_backward_sm90[], emit_text_backward_tables[], emit_text_wire[], emit_text_recurrent_kernels[];

bool emit_has_dims(uint32_t d, uint32_t v) { return FK_HAS_DIMS(d, v); }
unsigned emit_forward(uint32_t d, uint32_t v, bool sm_90a) {
    return sm_90a && FK_HAS_SM90(d, v) ? EMIT_FORWARD_SM90 : EMIT_FORWARD;
}
unsigned emit_backward(uint32_t d, uint32_t v, bool deterministic, bool sm_90a) {
    if (sm_90a && FK_HAS_BACKWARD_SM90(d, v)) return deterministic ? EMIT_ORDERED_SM90 : EMIT_UNORDERED_SM90;
    return !FK_HAS_ORDERED(d) ? EMIT_SPLIT : deterministic ? EMIT_ORDERED : EMIT_UNORDERED;
}

static void say_part(emit_text *out, void *context, const char *name, const char *text) {
    char line[64];
    int size = snprintf(line, sizeof line, "#line 1 \"%s\"\n", name);
    out(context, line, (size_t)size);
    if (text) out(context, text, strlen(text));
}

/* What comes before the first emitted text. It is printed only with that, because only then is the mask code known to
 * be good. */
typedef struct opening {
    const emit_source *source;
    emit_text *out;
    void *context;
    bool done;
} opening;

static void open_first(void *context, const char *text, size_t size) {
    opening *o = context;
    if (!o->done) {
        char line[360];
        bool forward = o->source->skeletons & EMIT_FORWARD_SM90, any = o->source->skeletons & EMIT_SM90;
        int length =
            snprintf(line, sizeof line,
                     "#define FK_HEAD_DIM %u\n#define FK_VALUE_DIM %u\n#define FK_BF16 %d\n#define FK_HAS_SCORE %d\n"
                     "#define FK_FORWARD_SM90 %d\n#define FK_DO_BUFFERS %d\n"
                     "#define FK_RANGES %d\n#define FK_NEGATIVE_SCALE %d\n#define FK_BY_HEAD %d\n#define FK_PACKED %d\n"
                     "#define FK_FUSED %d\n",
                     o->source->head_dim, o->source->value_dim, o->source->bf16, o->source->program->score.count != 0,
                     forward, o->source->skeletons & EMIT_ONE_BUFFER ? 1 : 2, o->source->ranges,
                     o->source->negative_scale, o->source->by_head, o->source->packed, o->source->fused);
        o->done = true;
        o->out(o->context, line, (size_t)length);
        say_part(o->out, o->context, "abi.h", emit_text_abi);
        say_part(o->out, o->context, "prim_ptx.h", emit_text_prim_ptx);
        if (any) say_part(o->out, o->context, "prim_sm90_ptx.h", emit_text_prim_sm90_ptx);
        say_part(o->out, o->context, "emitted", NULL);
    }
    o->out(o->context, text, size);
}

const char *emit_kernels(const emit_source *s, emit_text *out, void *context, uint32_t *node) {
    if (node) *node = 0;
    const uint32_t d = s->head_dim, v = s->value_dim;
    if (!emit_has_dims(d, v)) return "a head_dim and value_dim that no skeleton has";
    const unsigned all = EMIT_FORWARDS | EMIT_BACKWARD | EMIT_SUPPORT | EMIT_TABLES | EMIT_WIRE;
    if (!(s->skeletons & all) || s->skeletons & ~(all | EMIT_ONE_BUFFER)) return "no such skeleton";
    if ((s->skeletons & EMIT_FORWARDS) == EMIT_FORWARDS) return "two skeletons of one pass";
    if ((s->skeletons & (EMIT_ORDERED | EMIT_UNORDERED) && !FK_HAS_ORDERED(d)) ||
        (s->skeletons & EMIT_ONE_BUFFER && !FK_HAS_ONE_DO_BUFFER(d, v)) ||
        (s->skeletons & EMIT_FORWARD_SM90 && !FK_HAS_SM90(d, v)) ||
        (s->skeletons & EMIT_BACKWARD_SM90 && !FK_HAS_BACKWARD_SM90(d, v)))
        return "a head_dim or value_dim that this skeleton has not";
    if (s->skeletons & EMIT_TABLES && !s->program->read_count) return "gradients of tables that nothing reads";
    opening o = {s, out, context, false};
    const char *wrong = emit_functions(s->program, open_first, &o, node);
    if (wrong) return wrong;
    say_part(out, context, "common.h", emit_text_common);
    if (s->skeletons & EMIT_SM90) say_part(out, context, "tiles_sm90.h", emit_text_tiles_sm90);
    if (s->skeletons & EMIT_FORWARDS) say_part(out, context, "forward_rows.h", emit_text_forward_rows);
    if (s->skeletons & EMIT_FORWARD) say_part(out, context, "forward_mma.h", emit_text_forward_mma);
    if (s->skeletons & EMIT_FORWARD_SM90) say_part(out, context, "forward_sm90.h", emit_text_forward_sm90);
    if (s->skeletons & (EMIT_BACKWARD | EMIT_TABLES))
        say_part(out, context, "backward_steps.h", emit_text_backward_steps);
    if (s->skeletons & EMIT_SPLIT) say_part(out, context, "backward_mma.h", emit_text_backward_mma);
    for (int ordered = 1; ordered >= 0; ordered--) {
        unsigned in =
            s->skeletons & (ordered ? EMIT_ORDERED | EMIT_ORDERED_SM90 : EMIT_UNORDERED | EMIT_UNORDERED_SM90);
        const char *line = ordered ? "#define FK_ORDERED 1\n" : "#undef FK_ORDERED\n#define FK_ORDERED 0\n";
        if (in) out(context, line, strlen(line));
        if (in & ~(unsigned)EMIT_SM90) say_part(out, context, "backward_ordered_mma.h", emit_text_backward_ordered_mma);
        if (in & EMIT_SM90) say_part(out, context, "backward_sm90.h", emit_text_backward_sm90);
    }
    const char *by_stages = "#undef FK_FUSED\n#define FK_FUSED 0\n"; /* two kernels have one list for each stage */
    if (s->fused && s->skeletons & EMIT_TABLES && !(s->skeletons & EMIT_JOINT))
        out(context, by_stages, strlen(by_stages));
    if (s->skeletons & EMIT_TABLES) say_part(out, context, "backward_tables.h", emit_text_backward_tables);
    if (s->skeletons & EMIT_SUPPORT) say_part(out, context, "support.h", emit_text_support);
    if (s->skeletons & EMIT_WIRE) say_part(out, context, "wire.h", emit_text_wire);
    return NULL;
}

void emit_recurrent(emit_text *out, void *context) {
    static const char first[] = "#define FK_RECURRENT 1\n";
    out(context, first, sizeof first - 1);
    say_part(out, context, "abi.h", emit_text_abi);
    say_part(out, context, "prim_ptx.h", emit_text_prim_ptx);
    say_part(out, context, "recurrent_kernels.h", emit_text_recurrent_kernels);
}

#define SMALL(name, skeleton) {name, skeleton, FK_SUPPORT_THREADS, 0, FK_SUPPORT_REGISTERS, 1, false}
uint32_t emit_kernels_of(uint32_t d, uint32_t v, bool score, unsigned skeletons, emit_kernel out[EMIT_KERNELS]) {
    const int do_buffers = skeletons & EMIT_ONE_BUFFER ? 1 : 2;
    const emit_kernel all[EMIT_KERNELS] = {
        {"fk_forward", EMIT_FORWARD, FK_FORWARD_WARPS(d, score) * 32, FK_FORWARD_SHARED(d, v), FK_FORWARD_REGISTERS(d),
         1, false},
        {"fk_forward_sm90", EMIT_FORWARD_SM90, FK_FORWARD_SM90_THREADS, FK_FORWARD_SM90_SHARED(d, v),
         FK_FORWARD_SM90_REGISTERS, 1, true},
        {"fk_backward_dkv", EMIT_SPLIT, FK_DKV_WARPS(d) * 32, FK_DKV_SHARED(d, v, score), FK_DKV_REGISTERS(d),
         FK_DKV_PARTS(d), false},
        {"fk_backward_dq", EMIT_SPLIT, FK_DQ_WARPS(d) * 32, FK_DQ_SHARED(d, v), FK_DQ_REGISTERS(d), FK_DQ_PARTS(d),
         false},
        {"fk_backward_ordered", EMIT_ORDERED, FK_DKV_WARPS(d) * 32, FK_ORDERED_SHARED(d, v, score, do_buffers),
         FK_ORDERED_REGISTERS(d), 1, false},
        {"fk_backward_unordered", EMIT_UNORDERED, FK_DKV_WARPS(d) * 32, FK_ORDERED_SHARED(d, v, score, do_buffers),
         FK_ORDERED_REGISTERS(d), 1, false},
        {"fk_backward_ordered_sm90", EMIT_ORDERED_SM90, FK_BACKWARD_SM90_THREADS, FK_BACKWARD_SM90_SHARED(d, v),
         FK_BACKWARD_SM90_REGISTERS, 1, true},
        {"fk_backward_unordered_sm90", EMIT_UNORDERED_SM90, FK_BACKWARD_SM90_THREADS, FK_BACKWARD_SM90_SHARED(d, v),
         FK_BACKWARD_SM90_REGISTERS, 1, true},
        {"fk_backward_tables", EMIT_TABLES, FK_DKV_WARPS(d) * 32, FK_DKV_SHARED(d, v, true), FK_DKV_REGISTERS(d),
         FK_DKV_PARTS(d), false},
        SMALL("fk_round_sums", EMIT_TABLES),
        SMALL("fk_begin_lse", EMIT_SUPPORT),
        SMALL("fk_delta", EMIT_SUPPORT),
        SMALL("fk_fold_sinks", EMIT_SUPPORT),
        SMALL("fk_add", EMIT_SUPPORT),
        SMALL("fk_round", EMIT_SUPPORT),
        SMALL("fk_gather", EMIT_SUPPORT),
        SMALL("fk_merge", EMIT_SUPPORT),
        SMALL("fk_state_out", EMIT_SUPPORT),
        SMALL("fk_combine", EMIT_SUPPORT),
        SMALL("fk_narrow", EMIT_WIRE),
        SMALL("fk_widen", EMIT_WIRE),
        SMALL("fk_rows_move", EMIT_RECURRENT),
        SMALL("fk_rows_add", EMIT_RECURRENT),
        SMALL("fk_scan_scaled", EMIT_RECURRENT),
        {"fk_scan_matrix", EMIT_RECURRENT, FK_SUPPORT_THREADS, FK_SCAN_SHARED, FK_SUPPORT_REGISTERS, 1, false},
    };
    uint32_t count = 0;
    for (int i = 0; i < EMIT_KERNELS; i++)
        if (skeletons & all[i].skeleton) out[count++] = all[i];
    return count;
}
#undef SMALL

unsigned emit_backward_within(uint32_t d, uint32_t v, bool score, unsigned backward, uint32_t most) {
    const bool one = backward & (EMIT_ORDERED | EMIT_UNORDERED) && FK_HAS_ONE_DO_BUFFER(d, v);
    const unsigned ways[] = {backward, one ? backward | EMIT_ONE_BUFFER : backward};
    for (int i = 0; i < 2; i++) {
        emit_kernel asked[EMIT_KERNELS];
        if (!emit_kernels_of(d, v, score, ways[i], asked) || asked[0].shared <= most) return ways[i];
    }
    return EMIT_SPLIT;
}

/* Per SM: KiB of shared memory, how many of them one CTA may have, warps, CTAs (from the table of compute capabilities in
 * CUDA's programming guide). */
typedef struct sm_limits {
    const char *name;
    uint32_t shared, most, warps, ctas;
} sm_limits;

static const sm_limits *limits_of(const char *arch) {
    static const sm_limits all[] = {{"sm_80", 164, 163, 64, 32},  {"sm_86", 100, 99, 48, 16},
                                    {"sm_87", 164, 163, 48, 16},  {"sm_89", 100, 99, 48, 24},
                                    {"sm_90", 228, 227, 64, 32},  {"sm_100", 228, 227, 64, 32},
                                    {"sm_103", 228, 227, 64, 32}, {"sm_120", 100, 99, 48, 24}};
    size_t length = strlen(arch);
    if (length && (arch[length - 1] == 'a' || arch[length - 1] == 'f')) length--;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].name) == length && !memcmp(all[i].name, arch, length)) return &all[i];
    return NULL;
}

uint32_t emit_shared_most(const char *arch) {
    const sm_limits *of = limits_of(arch);
    return of ? of->most * 1024 : 0;
}

uint32_t emit_resident(const char *arch, uint32_t threads, uint32_t registers, uint32_t shared) {
    enum { REGISTERS = 65536, REGISTER_UNIT = 256, QUARTERS = 4, SHARED_UNIT = 128, RESERVED = 1024 };
    const sm_limits *of = limits_of(arch);
    uint32_t warps = (threads + 31) / 32,
             per_warp = (registers * 32 + REGISTER_UNIT - 1) / REGISTER_UNIT * REGISTER_UNIT;
    uint32_t bytes = (shared + RESERVED + SHARED_UNIT - 1) / SHARED_UNIT * SHARED_UNIT;
    if (!of || !warps || !per_warp || shared > of->most * 1024 || registers > 255 || threads > 1024) return 0;
    uint32_t by_registers = REGISTERS / QUARTERS / per_warp * QUARTERS / warps; /* a warp lives in one quarter */
    uint32_t by_shared = of->shared * 1024 / bytes, by_warps = of->warps / warps;
    uint32_t least = by_registers < by_shared ? by_registers : by_shared;
    if (by_warps < least) least = by_warps;
    return least < of->ctas ? least : of->ctas;
}
