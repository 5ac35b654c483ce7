/* test_layer_words.c: tests what halo and scan mean in `layers`: their defaults, which kinds are one, that masks are
 * counted apart from them, and the texts that a program is printed as. What is refused is in tests/golden/diag. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/program.h"
#include "compiler/syntax/words.h"
#include "runtime/plan/enum_names.h"

static fcpc_program *compile(const char *source, const fcpc_options *options) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    if (fcpc_parse_text("a.fcp", source, strlen(source), options, d, &p) != FCP_OK)
        cr_assert_fail("%s\n%s", source, fcpc_diagnostics_render(d, false));
    fcpc_diagnostics_free(d);
    return p;
}

static void expect_kinds(const fcpc_program *p, const fcp_recurrent *kinds, uint32_t count) {
    cr_assert_eq(p->recurrent_count, count);
    for (uint32_t i = 0; i < count; i++)
        cr_expect(!memcmp(&p->recurrent[i], &kinds[i], sizeof *kinds), "kind %u: x %u", i, p->recurrent[i].times);
}

Test(layer_words, defaults_are_those_of_the_model) {
    /* the sections may stand in any order */
    fcpc_program *p = compile("plan { layers = [scan, causal x 2, halo(before = 3)] }\n"
                              "model { heads = 6; head_dim = 64; value_dim = 32 }",
                              NULL);
    const fcp_recurrent kinds[] = {
        {.kind = FCP_SCAN, .times = 1, .heads = 6, .rows = 64, .columns = 32, .parts = 1},
        {.kind = FCP_HALO, .times = 1, .before = 3, .channels = 384, .parts = 1},
    };
    expect_kinds(p, kinds, 2);
    cr_expect_eq(p->layer_count, 1);
    cr_expect_eq(p->layers[0].times, 2);
    cr_expect_str_eq(p->mask_name, "causal");
    cr_expect_eq(p->at[AT_RECURRENT].begin, 17);
    cr_expect_eq(p->at[AT_RECURRENT].end, 21);
    fcpc_program_free(p);
}

Test(layer_words, everything_that_is_stated) {
    fcpc_program *p = compile("plan { layers = [window(w = 64), halo(after = 1M, channels = 16M) x 2,\n"
                              "  scan(decay = vector, heads = 4K, head_dim = 1K, value_dim = 1, reverse = true) x 1M,\n"
                              "  scan(decay = matrix, heads = 1, head_dim = 1, value_dim = 1K, reverse = false)] }",
                              NULL);
    const fcp_recurrent kinds[] = {
        {.kind = FCP_HALO, .times = 2, .after = 1 << 20, .channels = 1 << 24, .parts = 1},
        {.kind = FCP_SCAN,
         .times = 1 << 20,
         .heads = 4096,
         .rows = 1024,
         .columns = 1,
         .decay = FCP_DECAY_VECTOR,
         .reverse = 1,
         .parts = 1},
        {.kind = FCP_SCAN, .times = 1, .heads = 1, .rows = 1, .columns = 1024, .decay = FCP_DECAY_MATRIX, .parts = 1},
    };
    expect_kinds(p, kinds, 3);
    fcpc_program_free(p);
}

/* Elements that mean the same are one kind, also where one of them states what the other leaves to the model. */
Test(layer_words, equal_elements_are_one_kind) {
    fcpc_program *p = compile(
        "plan { layers = [scan x 2, causal, scan(reverse = true), scan(heads = 8, decay = scalar), halo(before = 3),\n"
        "  scan() x 4, halo(before = 2 + 1, after = 0) x 5, halo(before = 3, channels = 1)] }",
        NULL);
    const fcp_recurrent kinds[] = {
        {.kind = FCP_SCAN, .times = 7, .heads = 8, .rows = 128, .columns = 128, .parts = 1},
        {.kind = FCP_SCAN, .times = 1, .heads = 8, .rows = 128, .columns = 128, .reverse = 1, .parts = 1},
        {.kind = FCP_HALO, .times = 6, .before = 3, .channels = 1024, .parts = 1},
        {.kind = FCP_HALO, .times = 1, .before = 3, .channels = 1, .parts = 1},
    };
    expect_kinds(p, kinds, 4);
    fcpc_program_free(p);
}

/* The program of each mask knows them. Sixty-four kinds are allowed beside sixty-four masks. */
Test(layer_words, every_mask_has_them) {
    char source[8192] = "plan { layers = [", *at = source + strlen(source);
    for (int i = 1; i <= 64; i++) at += sprintf(at, "halo(before = %d), window(w = %d), ", i, i);
    strcpy(at - 2, "] }");
    fcpc_program *p = compile(source, NULL);
    cr_expect_eq(p->layer_count, 64);
    cr_expect_eq(p->recurrent_count, 64);
    cr_expect_eq(p->recurrent[63].before, 64);
    cr_expect_eq(p->layers[63].program->recurrent_count, 64);
    cr_expect_str_eq(p->layers[63].program->mask_name, "window(w = 64)");
    fcpc_program_free(p);
}

/* The canonical form has them as they are written, and parses to the same. A plan's text names its own mask alone: the
 * layers are in its tables. */
Test(layer_words, texts) {
    const char *define = "layers=[causal,scan( heads=2 )x 3 , halo (before=3,after = 0)]";
    fcpc_options options = {.size = sizeof options, .defines = &define, .define_count = 1};
    fcpc_program *p = compile("plan { layers = [full] }", &options);
    char *printed = fcpc_program_print(p);
    cr_expect_str_eq(printed, "plan {\n    layers = [causal, scan(heads = 2) x 3, halo(before = 3, after = 0)]\n}\n");
    cr_expect_str_eq(p->plan_source, "plan {\n    mask = causal\n}\n");
    fcpc_program *again = compile(printed, NULL);
    expect_kinds(again, p->recurrent, p->recurrent_count);
    cr_expect_str_eq(again->canonical, printed);
    free(printed);
    fcpc_program_free(again);
    fcpc_program_free(p);
}

/* Outside `layers` the words are names like any other. */
Test(layer_words, are_names_elsewhere) {
    fcpc_program *p = compile("mask scan(halo = 3) = q - k < halo\nscore halo = s\n"
                              "plan { mask = scan(halo = 4); score = halo }",
                              NULL);
    cr_expect_str_eq(p->mask_name, "scan(halo = 4)");
    cr_expect_eq(p->recurrent_count, 0);
    fcpc_program_free(p);
    p = compile("score scan = s + 1.0\nplan { layers = [causal, scan]; score = scan }", NULL);
    cr_expect_eq(p->recurrent_count, 1);
    fcpc_program_free(p);
}

Test(layer_words, are_those_of_plans) {
    for (int i = 0; i < FCP_LAYER_KINDS; i++) cr_expect_str_eq(words_layers[i], fcp_layer_kind_names[i]);
}
