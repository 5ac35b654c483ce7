/* test_kernel_source.c: tests the sources of kernels: which plans have none, what a source depends on, and the text for
 * some masks and scores, which is kept in tests/golden/emit. GOLDEN_UPDATE=1 rewrites those files. */
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

#include <stdio.h>

#include "runtime/jit/kernel_source.h"

static fcp_plan *plan_as(const char *model, const char *lengths, const char *rest) {
    char text[800];
    snprintf(text, sizeof text, "model { heads = 4; kv_heads = 2; %s }\ncluster { nodes = 1; gpus = 1 }\n"
             "batch { %s }\n%s\n", model, lengths, rest);
    return plan_named("test.fcp", text);
}

static void must_fail(const fcp_plan *plan, unsigned skeletons, fcp_code want, const char *why) {
    char *text = (char *)(uintptr_t)1;
    fcp_error err;
    cr_assert_eq(fcp_kernel_source(plan, skeletons, false, &text, &err), want, "%s", why);
    cr_assert_null(text);
    cr_assert_not_null(strstr(err.message, why), "'%s' has no '%s'", err.message, why);
}

static char *source_of(const fcp_plan *plan, unsigned skeletons) {
    char *text;
    fcp_error err;
    cr_assert_eq(fcp_kernel_source(plan, skeletons, false, &text, &err), FCP_OK, "%s", err.message);
    return text;
}

static const struct {
    const char *name, *lengths, *rest;
} goldens[] = {
    {"causal", "lengths = [900, 100]", "plan { mask = causal; block = 128 }"},
    {"natten2d", "lengths = [1024]", "plan { mask = natten2d(W = 32, kw = 7, kh = 7); block = 128 }"},
    {"wide", "lengths = [70K]", "mask m = q * k % 1000 <= q * 3 - k\nplan { mask = m; block = 2K }"},
    {"cross", "lengths = [300:500]", "mask m = k * k % 7 != q / 3 and k <= q\nplan { mask = m; block = 128 }"},
    {"document", "lengths = [64, 64]; field d = [0 x 30, 1 x 34, 0 x 60, 300 x 4]",
     "plan { mask = document(d = d); block = 128 }"},
    {"blocks",
     "lengths = [300, 100:300]; field keep = [1 x 36, 0, 1 x 23] over heads, queries / 128, keys / 128; "
     "field bias = [0.5 x 600]; field soft = [0.5, 2.0] over sequences",
     "mask m = causal and keep[h, q / 128, k / 128] == 1\nscore x = s * soft + bias[k]\n"
     "plan { mask = m; score = x; block = 128 }"},
    {"alibi", "lengths = [300]", "plan { mask = causal; score = alibi; block = 128 }"},
    {"softcap", "lengths = [300]", "plan { mask = full; score = softcap(c = 30.0); block = 128 }"},
};

/* The functions alone: between the lines that name them and what follows. */
static char *emitted(const char *source) {
    const char *from = strstr(source, "#line 1 \"emitted\"\n"),
               *to = from ? strstr(from, "#line 1 \"common.h\"\n") : NULL;
    cr_assert(from && to);
    from = strstr(from, "FK_DEVICE int fk_allow");
    cr_assert(from && from < to);
    return strndup(from, (size_t)(to - from));
}

Test(kernel_source, golden) {
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
        char path[80], *want = NULL;
        size_t size = 0;
        fcp_plan *plan = plan_as("head_dim = 64; dtype = bf16", goldens[i].lengths, goldens[i].rest);
        char *source = source_of(plan, EMIT_FORWARD), *got = emitted(source);
        snprintf(path, sizeof path, "tests/golden/emit/%s.cu", goldens[i].name);
        if (getenv("GOLDEN_UPDATE")) {
            FILE *f = fopen(path, "w");
            cr_assert(f && fputs(got, f) >= 0 && fclose(f) == 0, "%s", path);
        }
        FILE *f = fopen(path, "r");
        cr_assert_not_null(f, "%s", path);
        cr_assert_geq(getdelim(&want, &size, 0, f), 0);
        fclose(f);
        cr_assert_str_eq(got, want, "%s", path);
        free(want);
        free(got);
        free(source);
        fcp_plan_free(plan);
    }
}

/* What rounds partials stands behind all else, so that sources without it do not change. */
Test(kernel_source, what_rounds_partials_comes_last) {
    fcp_plan *plan = plan_as("head_dim = 64; dtype = bf16", "lengths = [300]", "plan { mask = causal; block = 128 }");
    const unsigned without[] = {EMIT_SUPPORT, EMIT_FORWARD | EMIT_SUPPORT, EMIT_ORDERED};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        char *less = source_of(plan, without[i]), *more = source_of(plan, without[i] | EMIT_WIRE);
        const size_t size = strlen(less);
        cr_assert(!strncmp(less, more, size) && !strncmp(more + size, "#line 1 \"wire.h\"\n", 17), "%zu", i);
        cr_assert(strstr(more + size, "FK_KERNEL(fk_narrow,") && strstr(more + size, "FK_KERNEL(fk_widen,"));
        free(less);
        free(more);
    }
    fcp_plan_free(plan);
}

Test(kernel_source, parts) {
    const unsigned all = EMIT_FORWARDS | EMIT_BACKWARD | EMIT_SUPPORT;
    const struct {
        const char *line;
        unsigned in;
    } parts[] = {{"#line 1 \"abi.h\"", all}, {"#line 1 \"prim_ptx.h\"", all},
                 {"#line 1 \"prim_sm90_ptx.h\"", EMIT_SM90},
                 {"#line 1 \"emitted\"", all}, {"#line 1 \"common.h\"", all}, {"#line 1 \"tiles_sm90.h\"", EMIT_SM90},
                 {"#line 1 \"forward_rows.h\"", EMIT_FORWARD | EMIT_FORWARD_SM90},
                 {"#line 1 \"forward_mma.h\"", EMIT_FORWARD}, {"#line 1 \"forward_sm90.h\"", EMIT_FORWARD_SM90},
                 {"#line 1 \"backward_steps.h\"", EMIT_BACKWARD}, {"#line 1 \"backward_mma.h\"", EMIT_SPLIT},
                 {"#define FK_ORDERED 1\n", EMIT_ORDERED | EMIT_ORDERED_SM90},
                 {"#line 1 \"backward_ordered_mma.h\"", EMIT_ORDERED},
                 {"#line 1 \"backward_sm90.h\"", EMIT_ORDERED_SM90},
                 {"#define FK_ORDERED 0\n", EMIT_UNORDERED | EMIT_UNORDERED_SM90},
                 {"#line 1 \"backward_ordered_mma.h\"", EMIT_UNORDERED},
                 {"#line 1 \"backward_sm90.h\"", EMIT_UNORDERED_SM90}, {"#line 1 \"support.h\"", EMIT_SUPPORT}};
    fcp_plan *plan = plan_as("head_dim = 128; dtype = fp16", "lengths = [300]", "plan { mask = causal; block = 128 }");
    for (unsigned skeletons = 1; skeletons <= all; skeletons++) {
        if ((skeletons & EMIT_FORWARDS) == EMIT_FORWARDS) continue;
        char *source = source_of(plan, skeletons), *at = source;
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            if (!(parts[i].in & skeletons) && strstr(parts[i].line, "backward_")) continue; /* there may be another */
            char *found = strstr(at, parts[i].line);
            cr_assert_eq(found != NULL, (parts[i].in & skeletons) != 0, "%u: %s", skeletons, parts[i].line);
            if (found) at = found;
        }
        cr_assert_not_null(strstr(source, "#define FK_HEAD_DIM 128\n#define FK_VALUE_DIM 128\n#define FK_BF16 0\n"
                                          "#define FK_HAS_SCORE 0\n"));
        cr_assert_not_null(strstr(source, skeletons & EMIT_FORWARD_SM90 ? "#define FK_FORWARD_SM90 1\n"
                                                                        : "#define FK_FORWARD_SM90 0\n"));
        cr_assert_null(strstr(source, "#include"));
        emit_kernel kernels[EMIT_KERNELS];
        uint32_t count = emit_kernels_of(128, 128, false, skeletons, kernels);
        for (uint32_t i = 0; i < count; i++) {
            char entry[80];
            snprintf(entry, sizeof entry, "FK_KERNEL(%s,", kernels[i].name);
            cr_assert_not_null(strstr(source, entry), "%s", entry);
            cr_assert(kernels[i].threads % 32 == 0 && kernels[i].threads * kernels[i].registers <= 65536 &&
                      kernels[i].parts);
        }
        free(source);
    }
    fcp_plan_free(plan);
}

/* "a, b" or "a". */
static void read_pair(const char *text, unsigned out[2]) {
    int read = sscanf(text, " %u, %u", &out[0], &out[1]);
    cr_assert(read > 0, "%s", text);
    if (read == 1) out[1] = out[0];
}

/* The table in codegen/kernels/README.md states threads, shared memory and blocks. They must be what the sizes here
 * say: of one architecture where the table names one, otherwise of all kernels. */
Test(kernel_source, table) {
    static const char *const archs[] = {"sm_80", "sm_86", "sm_90a", "sm_100"};
    FILE *f = fopen("codegen/kernels/README.md", "r");
    char *line = NULL, name[40];
    size_t room = 0;
    unsigned found = 0, want = 0;
    cr_assert_not_null(f);
    while (getline(&line, &room, f) > 0) {
        char cell[6][60], sizes[20];
        emit_kernel kernels[2][EMIT_KERNELS];
        unsigned dims[2], threads[2], registers[2], blocks[2], shared[2];
        if (sscanf(line, "| fk_%30s | %15[^|] | %50[^|] | %50[^|] | %50[^|] | %50[^|] | %50[^|] | %50[^|] |", name,
                   sizes, cell[0], cell[1], cell[2], cell[3], cell[4], cell[5]) != 8)
            continue;
        const bool both = sscanf(sizes, "%u, %u", &dims[0], &dims[1]) == 2;
        if (!both) dims[1] = dims[0];
        read_pair(cell[0], threads);
        read_pair(cell[1], shared);
        const bool one = name[strlen(name) - 1] == '1'; /* "fk_backward_ordered-1": with one buffer of dO */
        if (one) name[strlen(name) - 2] = 0;
        for (int score = 0; score < (one ? 1 : 2); score++) {
            const unsigned skeletons = one ? ~0u : ~(unsigned)EMIT_ONE_BUFFER;
            uint32_t count = emit_kernels_of(dims[0], dims[1], score, skeletons, kernels[score]), i = 0;
            while (i < count && strcmp(kernels[score][i].name + 3, name)) i++;
            cr_assert(i < count, "%s", line);
            cr_assert_eq(kernels[score][i].threads, threads[score], "%s", line);
            cr_assert_eq(kernels[score][i].shared, shared[score], "%s: %u", line, kernels[score][i].shared);
            for (int a = 0; a < 4; a++) {
                char *slash = strchr(cell[2 + a], '/');
                if (cell[2 + a][0] == '-') continue; /* it does not run there */
                cr_assert_not_null(slash, "%s", line);
                read_pair(cell[2 + a], registers);
                read_pair(slash + 1, blocks);
                uint32_t fit = emit_resident(archs[a], threads[score], registers[score], shared[score]);
                cr_assert_eq(fit, blocks[score], "%s: %u blocks on %s", line, fit, archs[a]);
                cr_assert(registers[score] <= kernels[score][i].registers);
            }
        }
        found++;
    }
    static const unsigned sizes[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const unsigned d = sizes[i][0], v = sizes[i][1];
        const unsigned joint = d <= 128 ? EMIT_ORDERED | EMIT_UNORDERED : 0;
        const unsigned sm90 = emit_forward(d, v, true) | (emit_backward(d, v, true, true) & EMIT_BACKWARD_SM90) |
                              (emit_backward(d, v, false, true) & EMIT_BACKWARD_SM90);
        emit_kernel kernels[EMIT_KERNELS];
        uint32_t count = emit_kernels_of(d, v, false, EMIT_FORWARD | EMIT_TABLES | EMIT_SPLIT | joint | sm90, kernels);
        for (uint32_t k = 0; k < count; k++) want += kernels[k].shared != 0; /* the small ones stand elsewhere */
    }
    want += 2; /* those with one buffer */
    cr_assert_eq(found, want, "%u rows of %u", found, want);
    free(line);
    fclose(f);
    /* what limits: registers, shared memory, warps, blocks; and what does not fit, or is not known */
    cr_assert(emit_resident("sm_80", 128, 182, 24576) == 2 && emit_resident("sm_80", 128, 168, 24576) == 3);
    cr_assert(emit_resident("sm_80", 128, 32, 24576) == 6 && emit_resident("sm_90a", 128, 32, 24576) == 9);
    cr_assert(emit_resident("sm_80", 256, 16, 0) == 8 && emit_resident("sm_89", 256, 16, 0) == 6);
    cr_assert(emit_resident("sm_80", 32, 16, 0) == 32 && emit_resident("sm_86", 32, 16, 0) == 16);
    cr_assert(emit_resident("sm_86", 256, 200, 107024) == 0 && emit_resident("sm_80", 256, 255, 163 << 10) == 1);
    cr_assert(emit_resident("sm_80", 512, 200, 0) == 0 && emit_resident("sm_800", 32, 16, 0) == 0 &&
              emit_resident("", 32, 16, 0) == 0);
}

/* On every architecture that is known the backward pass in one kernel fits, with two buffers of dO or one: emit asks for
 * that without words. One buffer is another source, with less shared memory. */
Test(kernel_source, one_buffer) {
    static const char *const archs[] = {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"};
    static const unsigned dims[] = {16, 32, 64, 96, 128}, kinds[] = {EMIT_ORDERED, EMIT_UNORDERED};
    for (int i = 0; i < 8 * 5 * 5 * 2 * 2; i++) {
        const char *arch = archs[i % 8];
        const unsigned d = dims[i / 8 % 5], v = dims[i / 40 % 5], kind = kinds[i / 200 % 2];
        const bool score = i / 400, little = emit_shared_most(arch) == 99 << 10;
        if (!emit_has_dims(d, v)) continue;
        const unsigned fits = emit_backward_within(d, v, score, kind, emit_shared_most(arch));
        cr_assert_eq(fits, kind | (little && v == 128 && !score ? EMIT_ONE_BUFFER : 0), "%s, %u, %u", arch, d, v);
    }
    cr_assert_eq(emit_backward_within(128, 128, false, EMIT_SPLIT, 99 << 10), EMIT_SPLIT);
    cr_assert_eq(emit_backward_within(128, 64, false, EMIT_ORDERED, 48 << 10), EMIT_SPLIT);
    cr_assert_eq(emit_backward_within(128, 128, false, EMIT_ORDERED_SM90, 227 << 10), EMIT_ORDERED_SM90);
    fcp_plan *plan = plan_as("head_dim = 128; dtype = bf16", "lengths = [300]", "plan { mask = causal; block = 128 }");
    char *two = source_of(plan, EMIT_ORDERED), *one = source_of(plan, EMIT_ORDERED | EMIT_ONE_BUFFER);
    cr_assert(strstr(two, "#define FK_DO_BUFFERS 2\n") && strstr(one, "#define FK_DO_BUFFERS 1\n"));
    must_fail(plan, EMIT_ONE_BUFFER, FCP_E_PLAN_FORMAT, "no such skeleton");
    free(two);
    free(one);
    fcp_plan_free(plan);
    plan = plan_as("head_dim = 128; value_dim = 64; dtype = bf16", "lengths = [300]",
                   "plan { mask = causal; block = 128 }");
    must_fail(plan, EMIT_ORDERED | EMIT_ONE_BUFFER, FCP_E_PLAN_FORMAT, "that this skeleton has not");
    fcp_plan_free(plan);
}

/* Batches share kernels; models, masks and types do not. Names that a program gives are not in its kernels. */
Test(kernel_source, depends_on) {
    const char *rest =
        "mask unmistakable(breadth) = k <= q and q - k < breadth\nplan { mask = unmistakable(breadth = 77); block = 128 }";
    fcp_plan *a = plan_as("head_dim = 64; dtype = bf16", "lengths = [300, 20]", rest);
    fcp_plan *b = plan_as("head_dim = 64; dtype = bf16", "lengths = [5000, 700 x 8]", rest);
    char *first = source_of(a, EMIT_FORWARD), *second = source_of(b, EMIT_FORWARD);
    cr_assert_str_eq(first, second);
    cr_assert_null(strstr(first, "unmistakable"));
    cr_assert_null(strstr(first, "breadth"));
    free(second);
    fcp_plan_free(b);
    static const char *const models[] = {"head_dim = 128; dtype = bf16", "head_dim = 64; dtype = fp16"};
    for (int i = 0; i < 2; i++) {
        b = plan_as(models[i], "lengths = [300]", rest);
        second = source_of(b, EMIT_FORWARD);
        cr_assert_str_neq(first, second, "%d", i);
        free(second);
        fcp_plan_free(b);
    }
    free(first);
    fcp_plan_free(a);
}

Test(kernel_source, refused) {
    fcp_plan *plan = plan_as("head_dim = 64; dtype = fp32", "lengths = [300]", "plan { mask = causal; block = 128 }");
    must_fail(plan, EMIT_FORWARD, FCP_E_TENSOR, "tensors are fp32, and kernels multiply bf16 or fp16");
    fcp_plan_free(plan);
    plan = plan_as("head_dim = 48; dtype = bf16", "lengths = [300]", "plan { mask = causal; block = 128 }");
    must_fail(plan, EMIT_FORWARD, FCP_E_HEADS, "head_dim of 16, 32, 64, 96, 128, 192 or 256, and a value_dim of these");
    fcp_plan_free(plan);
    plan = plan_as("head_dim = 96; dtype = bf16", "lengths = [300]", "plan { mask = causal; block = 128 }");
    must_fail(plan, EMIT_FORWARD_SM90, FCP_E_HEADS, "multiples of 64; the plan's are 96 and 96");
    must_fail(plan, EMIT_UNORDERED_SM90, FCP_E_HEADS, "both 64 or both 128; the plan's are 96 and 96");
    fcp_plan_free(plan);
    plan = plan_as("head_dim = 256; dtype = bf16", "lengths = [300]", "plan { mask = causal; block = 128 }");
    must_fail(plan, EMIT_ORDERED, FCP_E_HEADS, "at most 128; the plan's is 256");
    must_fail(plan, EMIT_UNORDERED, FCP_E_HEADS, "at most 128; the plan's is 256");
    must_fail(plan, EMIT_ORDERED_SM90, FCP_E_HEADS, "both 64 or both 128; the plan's are 256 and 256");
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        cr_assert_eq(emit_backward(256, 256, deterministic, true), EMIT_SPLIT);
        cr_assert_eq(emit_backward(128, 128, deterministic, false), deterministic ? EMIT_ORDERED : EMIT_UNORDERED);
        cr_assert_eq(emit_backward(128, 128, deterministic, true), deterministic ? EMIT_ORDERED_SM90 : EMIT_UNORDERED_SM90);
        cr_assert_eq(emit_backward(32, 32, deterministic, true), deterministic ? EMIT_ORDERED : EMIT_UNORDERED);
    }
    cr_assert(emit_forward(256, 256, true) == EMIT_FORWARD_SM90 && emit_forward(256, 256, false) == EMIT_FORWARD);
    cr_assert(emit_forward(32, 32, true) == EMIT_FORWARD && emit_forward(96, 96, true) == EMIT_FORWARD);
    cr_assert(emit_forward(192, 128, true) == EMIT_FORWARD_SM90 && emit_forward(192, 96, true) == EMIT_FORWARD);
    cr_assert(emit_backward(192, 128, true, true) == EMIT_SPLIT && emit_backward(128, 64, true, true) == EMIT_ORDERED);
    cr_assert(emit_has_dims(192, 128) && emit_has_dims(64, 16) && emit_has_dims(256, 32));
    cr_assert(!emit_has_dims(128, 192) && !emit_has_dims(192, 16) && !emit_has_dims(576, 512) && !emit_has_dims(64, 48));
    must_fail(plan, 0, FCP_E_PLAN_FORMAT, "no such skeleton");
    fcp_plan_free(plan);
    plan = plan_as("head_dim = 64; dtype = bf16", "lengths = [300]",
                   "plan { mask = causal; block = 128; passes = forward }");
    must_fail(plan, EMIT_FORWARD | EMIT_SPLIT, FCP_E_PASS, "the plan has no backward pass");
    /* mask code that does not check: before anything is printed */
    mc_node *nodes = malloc(plan->mask_count * sizeof *nodes);
    memcpy(nodes, plan->mask, plan->mask_count * sizeof *nodes);
    const mc_node *mask = plan->mask;
    nodes[plan->mask_count - 1].a = (uint32_t)plan->mask_count;
    plan->mask = nodes;
    must_fail(plan, EMIT_FORWARD, FCP_E_PLAN_FORMAT, "mask code, node");
    plan->mask = mask;
    free(nodes);
    fcp_plan_free(plan);
}
