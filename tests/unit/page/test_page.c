/* test_page.c: tests the HTML pages of plans: texts of a plan cannot become markup or script, the same plans give the
 * same bytes, and the style has the same colours as the other pictures. tests/page looks at pages in a browser. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/page/page.h"
#include "compiler/show/model.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

static const char PROGRAM[] =
    "model { heads = 4; kv_heads = 2; head_dim = 32; dtype = bf16 }\ncluster { nodes = 2; gpus = 2; gpu = h200 }\n"
    "batch { lengths = [700, 300 x 2, 50 x 6, 1] }\nplan { mask = causal; block = 128 }\n";

static char *page_of(const fcp_plan *plan) {
    char *made = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcpc_show_html(plan, NULL, &made, &err), FCP_OK, "%s", err.message);
    return made;
}

static size_t times(const char *in, const char *what) {
    size_t n = 0;
    for (const char *s = in; (s = strstr(s, what)); s++) n++;
    return n;
}

Test(page, is_the_same_again_and_closed) {
    fcp_plan *plan = plan_of(PROGRAM);
    char *one = page_of(plan), *two = page_of(plan);
    cr_assert_str_eq(one, two);
    cr_assert_eq(times(one, "<script"), 2);
    cr_assert_eq(times(one, "</script"), 2);
    cr_assert_eq(times(one, "<style"), 1);
    cr_assert_eq(times(one, "</style"), 1);
    cr_assert(strstr(
        one, "content=\"default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; script-src 'sha256-"));
    cr_assert_eq(times(one, "http-equiv"), 1);
    cr_assert(!strstr(one, " src=") && !strstr(one, "@import") && !strstr(one, "url("), "nothing is loaded");
    cr_assert(strstr(one, "\"profile\": \"h200\"") && strstr(one, "\"lanes\": [") &&
              strstr(one, "k \\u003c= q is true ({k} \\u003c= {q})"));
    free(one);
    free(two);
    fcp_plan_free(plan);
}

/* Text of a plan file that would end the data, or the title. */
Test(page, keeps_hostile_text_in_its_place) {
    static const char source[] = "# </script><script>alert(1)</script> \033[2J \xff\xed\xa0\x80 \xc3\xa9\n"
                                 "plan {\n    mask = </title><img src=x onerror=alert(1)>\n}\n";
    fcp_plan *plan = plan_of(PROGRAM);
    fcp_plan hostile = *plan;
    fcp_cluster cluster = *plan->cluster;
    memcpy(cluster.gpu, "</script>\033<&", sizeof cluster.gpu);
    hostile.cluster = &cluster;
    hostile.source = source;
    hostile.source_count = sizeof source - 1;
    char *made = page_of(&hostile);
    cr_assert_eq(times(made, "<script"), 2);
    cr_assert_eq(times(made, "</script"), 2);
    cr_assert_eq(times(made, "</title"), 1);
    cr_assert(!strstr(made, "<img") && !strstr(made, "\033") && !strstr(made, "\xff") && !strstr(made, "\xed\xa0"));
    cr_assert(strstr(made, "\\u003c/script>") && strstr(made, "\xc3\xa9"), "what is UTF-8 stays");
    cr_assert(strstr(made, "\"profile\": null") && strstr(made, "\"unpredicted\": \""),
              "there is no such gpu, and the page says so");
    cr_assert(strstr(made, "\"error\": \""), "and that the program cannot be explained");
    free(made);
    fcp_plan_free(plan);
}

/* Plans of one problem share the picture of its mask; those of another have their own. */
Test(page, says_once_what_candidates_share) {
    const char *const programs[] = {PROGRAM, "model { heads = 4; kv_heads = 2; head_dim = 32; dtype = bf16 }\n"
                                             "cluster { nodes = 2; gpus = 2; gpu = h200 }\n"
                                             "batch { lengths = [700, 300 x 2, 50 x 6, 1] }\n"
                                             "plan { mask = causal; block = 128; strategy = fcp(coalesce = 1) }\n",
                                    "model { heads = 4; kv_heads = 2; head_dim = 32; dtype = bf16 }\n"
                                    "cluster { nodes = 2; gpus = 2; gpu = h200 }\n"
                                    "batch { lengths = [700, 301, 299, 50 x 6, 1] }\n"
                                    "plan { mask = causal; block = 128 }\n"};
    page p = {0};
    text out = {0};
    fcp_error err = {0};
    for (int i = 0; i < 3; i++) {
        fcp_plan *plan = plan_of(programs[i]);
        arena memory = {0};
        sim_profile profile;
        sim_result result;
        cr_assert_eq(sim_profile_find("h200", &profile, &err), FCP_OK);
        cr_assert_eq(simulate(plan, &profile, NULL, &memory, &result, &err), FCP_OK);
        cr_assert_eq(page_add(&p, i ? "other" : "first", plan, &profile, NULL, NULL, &result, i ? "0,3" : NULL, &err),
                     FCP_OK, "%s", err.message);
        if (!i)
            cr_assert_eq(page_add(&(page){0}, "", plan, &profile, NULL, NULL, &result, "4", &err), FCP_E_USAGE,
                         "there are 4 ranks");
        arena_free(&memory);
        fcp_plan_free(plan);
    }
    cr_assert_eq(page_end(&p, "[]", &out, &err), FCP_OK);
    text_add(&out, "", 1);
    cr_assert_eq(times(out.at, "\"same\": false"), 2);
    cr_assert_eq(times(out.at, "\"same\": true"), 1);
    cr_assert_eq(times(out.at, "\"explained\": ["), 2);
    cr_assert_eq(times(out.at, "\"lane\"") + times(out.at, "{\"rank\": "), 8 + 4 + 4,
                 "4 ranks, 2 and 2, in two passes");
    text_free(&out);
    page_free(&p);
}

Test(page, has_the_colours_of_the_other_pictures) {
    char *style = NULL, *svg = NULL;
    fcp_plan *plan = plan_of(PROGRAM);
    text css = {0};
    cr_assert_eq(text_read(&css, "compiler/page/page.css", false, 1 << 20), 0);
    style = text_take(&css);
    cr_assert_eq(fcpc_show_svg(plan, NULL, &svg, NULL), FCP_OK);
    for (uint32_t i = 0; i <= SHOW_RAMP; i++) {
        char wanted[40];
        snprintf(wanted, sizeof wanted, "--share%u: %s;", i, show_share_colour(i));
        cr_assert(strstr(style, wanted), "%s", wanted);
    }
    for (uint32_t i = 0; i < SHOW_RANK_COLOURS; i++) {
        char wanted[40];
        snprintf(wanted, sizeof wanted, "--rank%u: %s;", i, show_rank_colour(i));
        cr_assert(strstr(style, wanted), "%s", wanted);
    }
    /* computing; communication, and its darker kind */
    const char *const same[] = {"--compute: ", "--net: ", "--local: "};
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(style, same[i]);
        char shade[8] = "";
        cr_assert_not_null(at, "%s", same[i]);
        memcpy(shade, at + strlen(same[i]), 7);
        cr_assert(shade[0] == '#' && strstr(svg, shade), "%s%s", same[i], shade);
    }
    free(style);
    free(svg);
    fcp_plan_free(plan);
}
