/* test_calibrate.c: tests calibration: it finds the constants from which rows were made, and refuses rows that are
 * wrong or too few, with their place. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/base/text.h"
#include "compiler/simulate/fit.h"
#include "tests/support/plan_of.h"

/* Rows of both passes with exactly these constants, in picoseconds: causal and full, 1 to 16 blocks of cells, 20
 * heads. */
static const double made_of[FCP_PASSES][SIM_CONSTANT_COUNT] = {{12000, 28000, 7700, 13500000},
                                                               {35000, 88000, 0, 74000000}};

static void add_rows(text *out, uint32_t pass, const double constants[SIM_CONSTANT_COUNT]) {
    for (uint64_t n = 32; n <= 512; n *= 2)
        for (int causal = 0; causal < 2; causal++) {
            calibrate_row row = {.gpu = "test", .sms = 10, .pass = pass, .head_dim = 64,
                                 .counts = {20 * (causal ? n * (n - 1) / 2 : n * n), causal ? 20 * n : 0, 20 * n, 1}};
            snprintf(row.name, sizeof row.name, "%s %d", causal ? "causal" : "full", (int)n);
            for (int i = 0; i < SIM_CONSTANT_COUNT; i++) row.seconds += 1e-12 * constants[i] * (double)row.counts[i];
            char line[CALIBRATE_LINE];
            calibrate_print(&row, line);
            text_printf(out, "%s\n", line);
        }
}

static text rows_text(void) {
    text t = {0};
    text_puts(&t, "# a comment\n" CALIBRATE_HEADER "\r\n\n");
    for (uint32_t pass = 0; pass < FCP_PASSES; pass++) add_rows(&t, pass, made_of[pass]);
    return t;
}

static fcp_code read_and_fit(const char *rows, uint32_t hold_out, arena *memory, calibration *out, fcp_error *err) {
    fcp_code code = calibrate_read("rows.csv", rows, strlen(rows), memory, out, err);
    return code ? code : calibrate_fit_rows(out, hold_out, err);
}

Test(calibrate, constants_that_rows_are_made_of_come_back) {
    for (uint32_t hold_out = 0; hold_out <= 4; hold_out++) {
        text t = rows_text(), profile = {0};
        arena memory = {0};
        calibration x;
        fcp_error err = {0};
        char *rows = text_take(&t);
        cr_assert_eq(read_and_fit(rows, hold_out, &memory, &x, &err), FCP_OK, "%s", err.message);
        cr_assert(x.row_count == 20 && x.fit_count == 2);
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const calibrate_fit *f = &x.fits[pass];
            cr_assert(f->pass == (uint32_t)pass && f->rows == 10 && f->held_out == hold_out && f->worst < 1e-6 &&
                      f->worst_held_out < 1e-6);
            for (int i = 0; i < SIM_CONSTANT_COUNT; i++) {
                double off = f->constants[i] * 1e12 - made_of[pass][i];
                cr_assert(off < 1 + 1e-4 * made_of[pass][i] && -off < 1 + 1e-4 * made_of[pass][i], "%s: %g",
                          sim_constant_names[i], f->constants[i] * 1e12);
            }
        }
        sim_profile p;
        cr_assert_eq(calibrate_profile(&x, "a \"file\".csv", NULL, &profile, &err), FCP_OK, "%s", err.message);
        cr_assert_eq(sim_profile_read("made", profile.at, profile.size, &p, &err), FCP_OK, "%s", err.message);
        cr_assert(!strcmp(p.name, "test") && p.sms == 10 && p.head_dims[FCP_BACKWARD][0] == 64);
        uint64_t full = p.kernels[FCP_FORWARD][0].at[SIM_FULL];
        cr_assert(full >= 11999 && full <= 12001, "%d", (int)full);
        text_free(&profile);
        arena_free(&memory);
        free(rows);
    }
}

/* Where the best fit would have a negative constant, it is 0, and no other choice of the rest is nearer. */
Test(calibrate, no_constant_is_negative) {
    static const double odd[SIM_CONSTANT_COUNT] = {12000, 28000, -9000, 13500000};
    text t = {0};
    arena memory = {0};
    calibration x;
    fcp_error err = {0};
    text_puts(&t, CALIBRATE_HEADER "\n");
    add_rows(&t, FCP_FORWARD, odd);
    char *rows = text_take(&t);
    cr_assert_eq(read_and_fit(rows, 0, &memory, &x, &err), FCP_OK, "%s", err.message);
    const calibrate_fit *f = &x.fits[0];
    double squares = 0;
    cr_assert(f->constants[SIM_ROW] == 0 && f->constants[SIM_FULL] > 0 && f->constants[SIM_PARTIAL] > 0 &&
              f->constants[SIM_LAUNCH] >= 0);
    for (uint32_t r = 0; r < x.row_count; r++)
        squares += (x.rows[r].predicted / x.rows[r].seconds - 1) * (x.rows[r].predicted / x.rows[r].seconds - 1);
    for (int i = 0; i < SIM_CONSTANT_COUNT; i++) /* a step in any direction that is allowed is no better */
        for (int step = -1; step <= 1; step += 2) {
            double sum = 0, moved = f->constants[i] * (1 + 1e-3 * step) + (i == SIM_ROW ? 1e-12 : 0);
            for (uint32_t r = 0; r < x.row_count; r++) {
                double error = (x.rows[r].predicted + (moved - f->constants[i]) * (double)x.rows[r].counts[i]) /
                                   x.rows[r].seconds -
                               1;
                sum += error * error;
            }
            cr_assert(sum >= squares, "%s", sim_constant_names[i]);
        }
    arena_free(&memory);
    free(rows);
}

Test(calibrate, wrong_rows_are_refused_with_their_place) {
#define GOOD "a,test,10,forward,64,100,10,10,1,0.001\n"
    static const struct { const char *rows, *says; uint32_t line, column; } wrong[] = {
        {"", "empty", 1, 1}, {"a,test,10,forward,64,100,10,10,1,0.001\n", "first line", 1, 1},
        {CALIBRATE_HEADER "\n", "no rows", 1, 1},
        {CALIBRATE_HEADER "\na,test,10,forward,64,100,10,10,1\n", "has 9 fields", 2, 32},
        {CALIBRATE_HEADER "\na,test,10,forward,64,100,10,10,1,0.1,2\n", "more than 10", 2, 34},
        {CALIBRATE_HEADER "\n" GOOD ",test,10,forward,64,100,10,10,1,0.1\n", "name is missing", 3, 1},
        {CALIBRATE_HEADER "\n" GOOD "b,te st,10,forward,64,100,10,10,1,0.1\n", "one word", 3, 3},
        {CALIBRATE_HEADER "\n" GOOD "b,test,0,forward,64,100,10,10,1,0.1\n", "sms is 0", 3, 8},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,sideways,64,100,10,10,1,0.1\n", "forward or backward", 3, 11},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,6x,100,10,10,1,0.1\n", "whole number", 3, 19},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,-5,10,10,1,0.1\n", "whole number", 3, 22},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,99999999999999999999999,10,10,1,0.1\n", "full is 9999", 3,
         22},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,0,0,10,1,0.1\n", "no cell", 3, 22},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,100,10,10,0,0.1\n", "launches is 0", 3, 32},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,100,10,10,1,nan\n", "number is needed", 3, 34},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,100,10,10,1,1e999\n", "number is needed", 3, 34},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,100,10,10,1,0\n", "above 0", 3, 34},
        {CALIBRATE_HEADER "\n" GOOD "b,test,10,forward,64,100,10,10,1,-1\n", "number is needed", 3, 34},
        {CALIBRATE_HEADER "\n" GOOD "b,test,11,forward,64,100,10,10,1,0.1\n", "a profile is of one", 3, 3},
        {CALIBRATE_HEADER "\n" GOOD "b\x01,test,10,forward,64,100,10,10,1,0.1\n", "a character", 3, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        arena memory = {0};
        calibration x;
        fcp_error err = {0};
        cr_assert_eq(read_and_fit(wrong[i].rows, 0, &memory, &x, &err), FCP_E_ROWS, "%s", wrong[i].rows);
        cr_assert(strstr(err.message, wrong[i].says), "%s: %s", wrong[i].rows, err.message);
        cr_assert(err.line == wrong[i].line && err.column == wrong[i].column && !strcmp(err.file, "rows.csv"),
                  "%s: %u:%u: %s", wrong[i].rows, (unsigned)err.line, (unsigned)err.column, err.message);
        arena_free(&memory);
    }
}

Test(calibrate, rows_that_do_not_tell_are_refused) {
    static const struct { const char *rows, *says; } wrong[] = {
        {"a,t,1,forward,64,100,10,10,1,1\nb,t,1,forward,64,200,10,20,1,2\nc,t,1,forward,64,100,40,30,1,3\n"
         "d,t,1,forward,64,50,10,10,2,3\n", "at least 5"},
        /* causal: as many row items as PARTIAL cells */
        {"a,t,1,forward,64,0,1,1,1,1\nb,t,1,forward,64,1,2,2,1,2\nc,t,1,forward,64,3,3,3,1,3\n"
         "d,t,1,forward,64,6,4,4,1,4\ne,t,1,forward,64,10,5,5,1,5\n", "'row'"},
        {"a,t,1,forward,64,1,0,1,1,1\nb,t,1,forward,64,4,0,2,1,2\nc,t,1,forward,64,9,0,3,1,3\n"
         "d,t,1,forward,64,16,0,4,1,4\ne,t,1,forward,64,25,0,5,1,5\n", "no row has partial"},
        /* more cells take less time */
        {"a,t,1,forward,64,100,0,10,1,9\nb,t,1,forward,64,200,10,20,1,8\nc,t,1,forward,64,400,40,30,1,7\n"
         "d,t,1,forward,64,800,10,10,2,6\n"
         "e,t,1,forward,64,1600,80,60,1,5\nf,t,1,forward,64,3200,90,80,1,4\n", "would take no time"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        arena memory = {0};
        calibration x;
        fcp_error err = {0};
        char rows[2000];
        snprintf(rows, sizeof rows, CALIBRATE_HEADER "\n%s", wrong[i].rows);
        cr_assert_eq(read_and_fit(rows, 0, &memory, &x, &err), FCP_E_ROWS, "%s", wrong[i].rows);
        cr_assert(strstr(err.message, wrong[i].says), "%s: %s", wrong[i].rows, err.message);
        arena_free(&memory);
    }
    text t = rows_text();
    char *rows = text_take(&t);
    arena memory = {0};
    calibration x;
    fcp_error err = {0};
    cr_assert_eq(read_and_fit(rows, 6, &memory, &x, &err), FCP_E_ROWS);
    cr_assert(strstr(err.message, "10 rows, of which 6"), "%s", err.message);
    arena_free(&memory);
    free(rows);
}

/* A pass without rows is taken from the profile of that gpu, if there is one. */
Test(calibrate, what_rows_do_not_tell_is_the_shipped_profiles) {
    sim_profile base, made;
    text t = {0}, profile = {0};
    arena memory = {0};
    calibration x;
    fcp_error err = {0};
    text_puts(&t, CALIBRATE_HEADER "\n");
    add_rows(&t, FCP_FORWARD, made_of[FCP_FORWARD]);
    char *rows = text_take(&t);
    cr_assert_eq(read_and_fit(rows, 0, &memory, &x, &err), FCP_OK);
    cr_assert_eq(calibrate_profile(&x, "rows", NULL, &profile, &err), FCP_E_ROWS);
    cr_assert(strstr(err.message, "no row of the backward pass"), "%s", err.message);
    text_free(&profile);
    cr_assert_eq(sim_profile_find("h200", &base, &err), FCP_OK);
    cr_assert_eq(calibrate_profile(&x, "rows", &base, &profile, &err), FCP_OK);
    cr_assert_eq(sim_profile_read("made", profile.at, profile.size, &made, &err), FCP_OK, "%s", err.message);
    cr_assert(made.head_dims[FCP_FORWARD][0] == 64 && !made.head_dims[FCP_FORWARD][1] &&
              made.head_dims[FCP_BACKWARD][0] == 128);
    cr_assert(made.small == base.small && made.local == base.local && made.channel == base.channel);
    for (int i = 0; i < SIM_CONSTANT_COUNT; i++)
        cr_assert_eq(made.kernels[FCP_BACKWARD][0].at[i], base.kernels[FCP_BACKWARD][0].at[i]);
    text_free(&profile);
    arena_free(&memory);
    free(rows);
}

/* A row counts what the simulator prices: a row of one rank and its plan take the same time, except for copies. */
Test(calibrate, a_plan_counts_as_the_model_does) {
    static const char source[] =
        "model { heads = 16; kv_heads = 4; head_dim = 64 }\ncluster { memory_bandwidth = 1000000 GB/s }\n"
        "batch { lengths = [5000, 300 x 7] }\nplan { mask = causal; block = 1024; layout = planned }\n";
    fcp_plan *plan = plan_of(source);
    sim_profile profile;
    sim_result r;
    calibrate_row row;
    arena memory = {0};
    fcp_error err = {0};
    cr_assert_eq(sim_profile_find("cpu", &profile, &err), FCP_OK);
    cr_assert_eq(simulate(plan, &profile, NULL, &memory, &r, &err), FCP_OK);
    cr_assert_eq(calibrate_count(plan, FCP_FORWARD, 0, &row), FCP_OK);
    sim_kernel k = sim_profile_kernel(&profile, FCP_FORWARD, 64, 64);
    uint64_t time = 0;
    for (int i = 0; i < SIM_CONSTANT_COUNT; i++) time += row.counts[i] * k.at[i];
    cr_assert_eq(row.counts[SIM_LAUNCH], 1);
    cr_assert_eq(row.counts[SIM_ROW], 16 * (40 + 7 * 3));
    cr_assert(r.pass[FCP_FORWARD].makespan > time &&
              r.pass[FCP_FORWARD].makespan < time + 2 * profile.small + time / 1000);
    arena_free(&memory);
    fcp_plan_free(plan);
}
