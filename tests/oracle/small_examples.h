/* small_examples.h: the examples with short sequences, for tests on fibers, where one product takes milliseconds. */
#ifndef SMALL_EXAMPLES_H
#define SMALL_EXAMPLES_H
#include <stddef.h>

typedef struct small_example {
    const char *file, *lengths, *defines[8];
} small_example;

/* Examples, made small: lengths, and what their masks need for that. */
static const small_example small_examples[] = {
    {"auto.fcp", "[300, 130]", {"model.heads=4", "model.kv_heads=2"}},
    {"dcp.fcp", "[400, 150, 33]", {"plan.mask.sink=8", "plan.mask.window=100", "plan.strategy.epsilon_memory=1"}},
    {"documents.fcp", "[300, 130 x 2, 40 x 6]", {0}},
    {"equal.fcp", "[400, 300, 150, 33 x 3]", {"plan.block=128"}},
    {"flexible.fcp", "[400, 300, 150, 33 x 3]", {"plan.strategy.tokens=640"}},
    {"lambda.fcp", "[300, 150, 33]", {"lambda.sink=8", "lambda.window=100"}},
    {"in_place.fcp", "[300, 150, 33]", {0}},
    {"wire.fcp", "[300, 150, 33]", {0}},
    {"merge_prefix.fcp", "[300, 130, 20]", {0}},
    {"mla.fcp", "[300, 130, 20]", {"model.head_dim=32", "model.value_dim=16", "model.dtype=bf16"}},
    {"pingpong.fcp", "[400, 150, 33]", {0}},
    {"my_mask.fcp", "[300, 150]", {"summaries.chunk=64", "summaries.tokens=4"}},
    {"ring.fcp", "[300, 130]", {0}},
    {"shared_question.fcp", "[300, 150]", {0}},
    {"window.fcp", "[300, 60]", {"plan.mask.w=100"}},
    {"masks/block_diffusion.fcp", "[300, 100]", {"plan.mask.b=16"}},
    {"masks/causal_blockwise_fm.fcp", "[300, 200]", {"plan.mask.b=50"}},
    {"masks/draft_train.fcp", "[300]", {"plan.mask.p=140", "plan.mask.b=4"}},
    {"masks/natten2d.fcp", "[320]", {"plan.mask.W=20", "plan.mask.kw=5", "plan.mask.kh=7"}},
    {"masks/natten3d.fcp",
     "[360]",
     {"plan.mask.W=8", "plan.mask.H=9", "plan.mask.kw=3", "plan.mask.kh=4", "plan.mask.kt=2", "plan.mask.dh=2"}},
    {"masks/qk_sparse.fcp", "[250, 300]", {"plan.mask.o=100", "plan.mask.m=60"}},
    {"masks/sta2d.fcp", "[384]", {"plan.mask.W=24", "plan.mask.tw=4", "plan.mask.kw=3", "plan.mask.kh=1"}},
    {"masks/sta3d.fcp",
     "[384]",
     {"plan.mask.W=8", "plan.mask.H=8", "plan.mask.tw=4", "plan.mask.th=4", "plan.mask.tt=2", "plan.mask.kw=1",
      "plan.mask.kh=1", "plan.mask.kt=3"}},
    {"masks/sta3d_text.fcp",
     "[380]",
     {"plan.mask.W=10", "plan.mask.H=7", "plan.mask.tw=4", "plan.mask.th=4", "plan.mask.tt=2", "plan.mask.kw=1",
      "plan.mask.kh=1", "plan.mask.text=30"}},
    {"masks/svg_spatial.fcp", "[350]", {"plan.mask.P=30", "plan.mask.w=40"}},
    {"masks/svg_temporal.fcp", "[350]", {"plan.mask.P=30", "plan.mask.T=20", "plan.mask.w=3"}},
    {"packed_documents.fcp", "[300, 130, 40 x 6]", {0}},
    {"groups.fcp", "[300, 130, 90]", {"plan.layout=zigzag(group = 1)"}},
    {"micro_batches.fcp", "[300] on 0..1, [130, 90] on 1..2", {0}},
    {"relay.fcp", "[400]", {"plan.mask.sink=40", "plan.mask.window=40", "plan.strategy=ring"}},
    {"servers.fcp", "[300, 200]", {"plan.strategy.servers=1"}},
    {"split.fcp", "[300, 50 x 6]", {0}},
    {"ulysses.fcp", "[300, 130, 20]", {"model.heads=4", "model.kv_heads=2", "cluster.gpus=2"}},
    {"upipe.fcp", "[300, 130]", {"model.heads=4", "model.kv_heads=2", "cluster.gpus=2", "plan.strategy=upipe"}},
    {"ulysses_ring.fcp", "[300, 130]", {"model.heads=4", "model.kv_heads=2", "cluster.nodes=2", "cluster.gpus=2"}},
    {"qwen3_next.fcp", "[400, 150, 33]", {0}},
    {"nemotron_h.fcp", "[500, 130]", {0}},
};
/* The others: of queries and keys that are not the same, with lengths that their fields or slices are for (NULL: their
 * own), with scores. */
static const small_example other_examples[] __attribute__((unused)) = {
    {"chunked_prefill.fcp", "[64:300 x 2, 70, 1:200 x 3]", {0}},
    {"cross.fcp", "[300:77 x 2, 100:77 x 2]", {0}},
    {"cu_seqlens.fcp", "cumulative([0, 200, 250], keys = [0, 200, 600])", {"plan.mask.l=100"}},
    {"decode.fcp", "[1:400 x 4, 1:100 x 10]", {0}},
    {"masks/block_mask.fcp", NULL, {"model.heads=4"}},
    {"masks/causal_document.fcp", NULL, {"model.heads=1"}},
    {"masks/document.fcp", NULL, {"model.heads=1"}},
    {"masks/global_field.fcp", NULL, {"model.heads=1"}},
    {"masks/hash_sparse.fcp", NULL, {"model.heads=1"}},
    {"masks/prefix_document.fcp", NULL, {"model.heads=1"}},
    {"masks/prefix_lm.fcp", NULL, {0}},
    {"masks/random_eviction.fcp", NULL, {"model.heads=1"}},
    {"masks/request_windows.fcp", NULL, {"plan.passes=forward, backward"}},
    {"masks/slices.fcp", "[4K]", {"model.heads=1", "plan.block=512"}},
    {"masks/tree.fcp", NULL, {"model.heads=1"}},
    {"scores/alibi.fcp", "[300, 150]", {0}},
    {"scores/alibi_slopes.fcp", "[300, 150]", {"model.heads=12", "model.kv_heads=4"}},
    {"scores/heads.fcp", "[300, 150]", {0}},
    {"scores/relative.fcp", "[300, 150]", {"model.heads=4"}},
    {"scores/request_bias.fcp", NULL, {"model.heads=4"}},
    {"scores/sinks.fcp", "[300, 150]", {"model.heads=4"}},
    {"scores/softcap.fcp", "[300, 150]", {"softcap.c=20.0"}},
};
#endif
