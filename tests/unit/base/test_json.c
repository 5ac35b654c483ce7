/* test_json.c: tests the JSON writer, the summary that it writes, and the JSON reader. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/base/json_read.h"
#include "compiler/show/summary.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"

static void expect(json *j, const char *want) {
    const char *got = json_text(j);
    cr_assert_not_null(got);
    cr_assert_str_eq(got, want);
    json_free(j);
}

Test(json, members_and_nesting) {
    json j = {0};
    json_object(&j, NULL);
    json_u64(&j, "a", UINT64_MAX);
    json_array(&j, "b");
    json_bool(&j, NULL, true);
    json_null(&j, NULL);
    json_object(&j, NULL);
    json_end(&j);
    json_end(&j);
    json_string(&j, "c", NULL);
    json_end(&j);
    expect(&j, "{\"a\": 18446744073709551615, \"b\": [true, null, {}], \"c\": null}");
}

Test(json, strings_are_escaped) {
    json j = {0};
    json_string(&j, NULL, "q\" b\\ t\t nl\n \x01 \x7f e\xc3\xa9 \xf0\x9f\x98\x80");
    expect(&j, "\"q\\\" b\\\\ t\\u0009 nl\\u000a \\u0001 \\u007f e\xc3\xa9 \xf0\x9f\x98\x80\"");
}

Test(json, bytes_that_are_no_text_are_replaced) {
    static const struct { const char *bytes, *want; } cases[] = {
        {"\xff", "\"\\ufffd\""},                       /* never a first byte */
        {"\xc3", "\"\\ufffd\""},                       /* cut short */
        {"\xc0\x80", "\"\\ufffd\\ufffd\""},             /* overlong */
        {"\xe0\x80\x80", "\"\\ufffd\\ufffd\\ufffd\""},   /* overlong */
        {"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},   /* a surrogate */
        {"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* beyond U+10FFFF */
        {"\xe2\x82x", "\"\\ufffd\\ufffdx\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json j = {0};
        json_string(&j, NULL, cases[i].bytes);
        expect(&j, cases[i].want);
    }
}

Test(json, numbers_read_back_the_same) {
    static const double values[] = {0, -0.0, 1, 0.1, 1.0 / 3, 1e300, 5e-324, 123456789.123, 1.005, -2.5e-7};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        json j = {0};
        json_double(&j, NULL, values[i]);
        const char *got = json_text(&j);
        cr_assert_not_null(got);
        cr_assert(strtod(got, NULL) == values[i], "%s", got);
        json_free(&j);
    }
    json j = {0};
    json_array(&j, NULL);
    json_double(&j, NULL, 0.1);
    json_double(&j, NULL, strtod("inf", NULL));
    json_double(&j, NULL, strtod("nan", NULL));
    json_end(&j);
    expect(&j, "[0.1, null, null]");
}

Test(json, what_is_left_open_or_too_deep_is_no_text) {
    json j = {0};
    json_object(&j, NULL);
    cr_assert_null(json_text(&j));
    json_free(&j);
    for (int i = 0; i <= JSON_MAX_DEPTH; i++) json_array(&j, NULL);
    for (int i = 0; i <= JSON_MAX_DEPTH; i++) json_end(&j);
    cr_assert_null(json_text(&j));
    json_free(&j);
}

/* A plan without anything but problem and summary. */
static void small_plan(fcp_plan *plan, fcp_problem *p, fcp_summary *s) {
    *p = (fcp_problem){.ranks = 4, .nodes = 2, .gpus = 2, .heads = 8, .kv_heads = 2, .head_dim = 64, .value_dim = 64,
          .documents = FCP_NONE,
          .range_kv = 2,
                       .range_sub = 4, .passes = 3, .block = 128, .max_block = 128, .tokens = 1000};
    *s = (fcp_summary){.sequences = 3, .blocks = 9, .tiles = 20, .pairs = 4000, .positions = 16000,
                       .pairs_max_rank = 1100, .pairs_max_block = 900, .tokens_max_rank = 300, .bytes_total = 8000,
                       .send_max = 3000, .recv_max = 2500, .rounds = 5, .rounds_lower_bound = 5};
    *plan = (fcp_plan){.problem = p, .summary = s, .file_size = 4096};
}

Test(summary, figures) {
    fcp_plan plan;
    fcp_problem p;
    fcp_summary s;
    small_plan(&plan, &p, &s);
    summary_figures f = summary_derive(&plan);
    cr_assert(f.density == 0.25);
    cr_assert(f.flops_forward == 4.0 * 4000 * 8 * 64);
    cr_assert(f.flops_backward == 10.0 * 4000 * 8 * 64);
    cr_assert(f.compute_max_over_mean == 1.1);
    cr_assert(f.compute_floor == 1); /* 0.9 of the mean */
    cr_assert(f.send_max_over_mean == 1.5 && f.recv_max_over_mean == 1.25 && f.tokens_max_over_mean == 1.2);
    p.mask_uses = MC_USES_H; /* pairs are already summed over heads */
    p.passes = 1u << FCP_FORWARD;
    s.pairs_max_block = 1500;
    f = summary_derive(&plan);
    cr_assert(f.flops_forward == 4.0 * 4000 * 64 && f.flops_backward == 0 && f.compute_floor == 1.5);
    s = (fcp_summary){0};
    f = summary_derive(&plan);
    cr_assert(f.density == 0 && f.compute_max_over_mean == 1 && f.send_max_over_mean == 1);
}

Test(summary, five_lines_whatever_the_name) {
    fcp_plan plan;
    fcp_problem p;
    fcp_summary s;
    small_plan(&plan, &p, &s);
    text lines = {0};
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    summary_text(&lines, &plan, &(fcpc_times){0}, name, name);
    memset(&s, 0xff, sizeof s);
    summary_text(&lines, &plan, &(fcpc_times){.total = 1e12}, name, name);
    int count = 0;
    for (size_t i = 0; i < lines.size; i++) count += lines.at[i] == '\n';
    cr_assert_eq(count, 10);
    cr_assert_not(lines.failed);
    cr_assert_lt(lines.size, 4000); /* of a long name the rest is left out */
    text_free(&lines);
}

Test(summary, numbers_for_people) {
    static const struct { double value; const char *unit, *want; } cases[] = {
        {0, "B", "0 B"}, {999, "B", "999 B"}, {1000, "B", "1.00 kB"}, {999.6e3, "", "1.00 M"},
        {12.34e9, "B", "12.3 GB"},
        {123.4e12, "FLOP", "123 TFLOP"}, {5e21, "", "5000 E"}, {7, "", "7"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[SUMMARY_NUMBER];
        cr_assert_str_eq(summary_number(out, cases[i].value, cases[i].unit), cases[i].want);
    }
}

static json_reader reader(const char *from) {
    return (json_reader){.begin = from, .at = from, .end = from + strlen(from)};
}

Test(json_read, values) {
    json_reader r = reader(" {\"a\" : [1,-9223372036854775808 , 18446744073709551615],\t\"\":\"x\"}\r\n");
    text word = {0};
    int64_t low;
    uint64_t one, most;
    cr_assert(json_enter(&r, '{') && json_more(&r, '}') && json_key(&r, &word));
    cr_assert_str_eq(word.at, "a");
    cr_assert(json_enter(&r, '[') && json_more(&r, ']') && json_read_u64(&r, &one) && json_more(&r, ']') &&
              json_read_i64(&r, &low) && json_more(&r, ']') && json_read_u64(&r, &most) && !json_more(&r, ']'));
    cr_assert(one == 1 && low == INT64_MIN && most == UINT64_MAX);
    cr_assert(json_more(&r, '}') && json_key(&r, &word) && word.size == 0 && json_read_string(&r, &word));
    cr_assert(!json_more(&r, '}') && json_finish(&r));
    cr_assert_str_eq(word.at, "x");
    text_free(&word);
}

/* A number is real if it has a point or an exponent. */
Test(json_read, numbers) {
    static const struct {
        const char *from;
        bool is_real;
        double value;
    } good[] = {{"0", false, 0},     {"-17", false, -17},     {"0.5", true, 0.5},     {"-2.0", true, -2},
                {"1e3", true, 1000}, {"12.5E-1", true, 1.25}, {"-0.25e+2", true, -25}};
    static const char *const wrong[] = {"",
                                        "-",
                                        "+1",
                                        "01",
                                        "01.5",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "1e+",
                                        "1.5.2",
                                        "1-2",
                                        "1.5-2",
                                        "1e999",
                                        "nan",
                                        "--1.5",
                                        "-+1.5",
                                        "9223372036854775808",
                                        "1.5x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        json_reader r = reader(good[i].from);
        json_number n;
        cr_assert(json_read_number(&r, &n) && json_finish(&r), "%s", good[i].from);
        cr_expect_eq(n.is_real, good[i].is_real, "%s", good[i].from);
        cr_expect_eq(n.is_real ? n.real : (double)n.whole, good[i].value, "%s", good[i].from);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_reader r = reader(wrong[i]);
        json_number n;
        cr_expect(!json_read_number(&r, &n) || !json_finish(&r), "%s", wrong[i]);
        cr_expect(r.why, "%s", wrong[i]);
    }
    char digits[80] = "0.";
    memset(digits + 2, '1', 70);
    json_reader r = reader(digits);
    json_number n;
    cr_expect(!json_read_number(&r, &n) && strstr(r.why, "63"));
}

/* What the writer writes of any text, the reader reads as that text. */
Test(json_read, strings_of_the_writer) {
    const char *string = "q\" b\\ / t\t nl\n \x01 \x7f e\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80";
    json j = {0};
    text word = {0};
    json_string(&j, NULL, string);
    json_reader r = reader(json_text(&j));
    cr_assert(json_read_string(&r, &word) && json_finish(&r));
    cr_assert_str_eq(word.at, string);
    r = reader("\"\\u00e9\\u20AC\\ud83d\\ude00\\b\\f\\n\\r\\t\\/\"");
    cr_assert(json_read_string(&r, &word) && json_finish(&r));
    cr_assert_str_eq(word.at, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\b\f\n\r\t/");
    json_free(&j);
    text_free(&word);
}

Test(json_read, faults) {
    static const struct { const char *from; size_t at; } strings[] = {
        {"", 0}, {"x", 0}, {"\"", 1}, {"\"a", 2}, {"\"\\", 2}, {"\"\\x\"", 2}, {"\"\\u12", 5}, {"\"\\u12G4\"", 5},
        {"\"\\ude00\"", 7}, {"\"\\ud83d\\u0041\"", 13}, {"\"\\u0000\"", 7}, {"\"\n\"", 1}, {"\"\xc3\"", 1}};
    static const struct { const char *from; size_t at; } numbers[] = {
        {"", 0}, {"-", 1}, {"+1", 0}, {"01", 2}, {"1.0", 1}, {"1e3", 1}, {"-9223372036854775809", 19}, {"nan", 0},
        {"9223372036854775808", 18}};
    text word = {0};
    int64_t number;
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        json_reader r = reader(strings[i].from);
        cr_assert(!json_read_string(&r, &word) && r.why);
        cr_assert_eq((size_t)(r.at - r.begin), strings[i].at, "%s", strings[i].from);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        json_reader r = reader(numbers[i].from);
        cr_assert(!json_read_i64(&r, &number) && r.why);
        cr_assert_eq((size_t)(r.at - r.begin), numbers[i].at, "%s", numbers[i].from);
    }
    text_free(&word);
}

/* Any value can be passed over, and what is none is a fault; so is one that nests too deep. */
Test(json, skip) {
    static const struct {
        const char *value;
        bool good;
    } cases[] = {{"{}", true},
                 {"[]", true},
                 {" [1, -2.5e3, \"a\\n\", null, true, false, {\"a\": [[], {}]}] ", true},
                 {"\"x\"", true},
                 {"", false},
                 {"[", false},
                 {"[1", false},
                 {"[1,]", false},
                 {"[,1]", false},
                 {"{\"a\"}", false},
                 {"{\"a\":}", false},
                 {"{1: 2}", false},
                 {"[1}", false},
                 {"{\"a\": 1]", false},
                 {"nul", false},
                 {"tru", false},
                 {"falsetto", false},
                 {"01", false},
                 {"[1 2]", false},
                 {"]", false},
                 {"[] []", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *value = cases[i].value;
        json_reader r = {.begin = value, .at = value, .end = value + strlen(value)};
        text room = {0};
        json_skip(&r, &room);
        json_finish(&r);
        cr_expect_eq(!r.why, cases[i].good, "%s: %s", value, r.why ? r.why : "no fault");
        text_free(&room);
    }
    for (int depth = JSON_SKIP_DEPTH; depth <= JSON_SKIP_DEPTH + 1; depth++) {
        text deep = {0}, room = {0};
        text_pad(&deep, '[', (size_t)depth);
        text_pad(&deep, ']', (size_t)depth);
        json_reader r = {.begin = deep.at, .at = deep.at, .end = deep.at + deep.size};
        cr_expect_eq(json_skip(&r, &room), depth <= JSON_SKIP_DEPTH);
        text_free(&deep);
        text_free(&room);
    }
}

Test(json, conditions) {
    static const char value[] = "[true, false, 1]";
    json_reader r = {.begin = value, .at = value, .end = value + strlen(value)};
    bool yes = false;
    cr_expect(json_enter(&r, '[') && json_more(&r, ']') && json_read_bool(&r, &yes) && yes);
    cr_expect(json_more(&r, ']') && json_read_bool(&r, &yes) && !yes);
    cr_expect(json_more(&r, ']') && !json_read_bool(&r, &yes) && r.why);
}
