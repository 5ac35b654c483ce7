/* test_nccl_examples.c: runs every example, made small, in processes that communicate by NCCL, with the stand-ins.
 * The results are right, and equal those of one process. Of every second example, ranks have extracts of the plan. */
#include <glob.h>

#include "tests/oracle/small_examples.h"
#include "tests/support/amount.h"
#include "tests/support/nccl_agree.h"
#include "tests/support/scatter.h"

enum {
    SMALL = sizeof small_examples / sizeof *small_examples,
    OTHER_EXAMPLES = sizeof other_examples / sizeof *other_examples
};

/* On two or three ranks, on one node or two, from a layout of the caller's or the plan's, with and without graphs. */
static void agree_on(const small_example *x, unsigned i) {
    char path[120], lengths[80], gpus[40];
    const char *defines[24] = {"model.heads=2", "model.kv_heads=1", "model.head_dim=16",
                               i % 2 ? "model.dtype=fp16" : "model.dtype=bf16",
                               i % 4 == 3 ? "cluster.nodes=2" : "cluster.nodes=1", gpus, "plan.block=128",
                               i % 3 == 2 ? "plan.layout=planned" : "plan.layout=contiguous"};
    size_t count = 8;
    snprintf(path, sizeof path, "examples/%s", x->file);
    snprintf(gpus, sizeof gpus, "cluster.gpus=%u", i % 4 == 3 ? 1 : 2 + i % 4 / 2);
    snprintf(lengths, sizeof lengths, "batch.lengths=%s", x->lengths ? x->lengths : "");
    if (x->lengths) defines[count++] = lengths;
    for (size_t j = 0; j < 8 && x->defines[j]; j++) defines[count++] = x->defines[j];
    PROCESS_PARENT_BEGINS();
    fcp_plan *plan = plan_with(path, NULL, defines, count);
    PROCESS_PARENT_ENDS();
    task t = {.plan = plan, .graph_from = i % 2 ? 1 : UINT32_MAX, .times = 1, .seed = i, .odd = 99};
    char file[TEMPORARY];
    fcp_error err;
    if (i % 2) { /* each rank has its extract of the plan */
        t.extracts = file;
        cr_assert(temporary_file(file, "extracts"));
        cr_assert_eq(fcp_extracts_save(plan, file, NULL, t.root, &err), FCP_OK, "%s", err.message);
    }
    agree(&t, path);
    if (t.extracts) unlink(file);
    fcp_plan_free(plan);
}

/* One example in seventeen, or all. */
static unsigned step(void) { return amount(17, 1); }

Test(nccl_examples, small) {
    for (unsigned i = 0; i < SMALL; i += step()) agree_on(&small_examples[i], i);
}
Test(nccl_examples, others) {
    for (unsigned i = 0; i < OTHER_EXAMPLES; i += step()) agree_on(&other_examples[i], i);
}

/* None is forgotten. */
Test(nccl_examples, all) {
    static const char *const folders[] = {"examples/*.fcp", "examples/masks/*.fcp", "examples/scores/*.fcp"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        glob_t files;
        cr_assert_eq(glob(folders[f], 0, NULL, &files), 0);
        for (size_t i = 0; i < files.gl_pathc; i++) {
            const char *name = files.gl_pathv[i] + strlen("examples/");
            bool there = !strcmp(name, "layers.fcp"); /* several plans: test_layers.c */
            for (size_t k = 0; k < SMALL; k++) there |= !strcmp(name, small_examples[k].file);
            for (size_t k = 0; k < OTHER_EXAMPLES; k++) there |= !strcmp(name, other_examples[k].file);
            cr_assert(there, "%s is not among the small examples", name);
        }
        globfree(&files);
    }
}

/* Plans that compute blocks away from home, with Q, states, O and dQ on the wire. */
Test(nccl_examples, scattered) {
    for (uint64_t seed = 1; seed < 1 + amount(2, 20); seed++) {
        char text[300];
        snprintf(text, sizeof text,
                 "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = %u; gpus = %u }\n"
                 "batch { lengths = [%u, 150] }\nplan { mask = causal; block = 128 }\n",
                 1 + (uint32_t)(seed % 2), 3 - (uint32_t)(seed % 2), 300 + 40 * (uint32_t)seed);
        scatter by = scatter_new(seed);
        by.one_range = seed % 2;
        PROCESS_PARENT_BEGINS();
        fcp_plan *plan = scatter_plan(text, &by);
        PROCESS_PARENT_ENDS();
        task t = {.plan = plan, .graph_from = seed % 2 ? 1 : UINT32_MAX, .times = 1, .seed = seed, .odd = 99};
        agree(&t, text);
        fcp_plan_free(plan);
    }
}
