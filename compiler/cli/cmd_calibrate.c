/* cmd_calibrate.c: `fcpc calibrate ROWS.csv`: fits the profile of a device to measured rows. */
#include <inttypes.h>
#include <string.h>

#include "compiler/cli/cmd.h"
#include "compiler/simulate/fit.h"
#include "runtime/plan/enum_names.h"

enum { ROWS_MAX = 32 << 20 };

static double relative(const calibrate_row *r) { return r->predicted / r->seconds - 1; }

static bool of_fit(const calibrate_row *r, const calibrate_fit *f) {
    return r->pass == f->pass && r->head_dim == f->head_dim;
}

static fcp_code print_text(const calibration *x, fcp_error *err) {
    for (uint32_t i = 0; i < x->fit_count; i++) {
        const calibrate_fit *f = &x->fits[i];
        printf("%s%s, %s pass, head_dim %u: %u rows fitted, %u held out\n ", i ? "\n" : "", x->rows[0].gpu,
               fcp_pass_names[f->pass], f->head_dim, f->rows - f->held_out, f->held_out);
        for (int c = 0; c < SIM_CONSTANT_COUNT; c++)
            printf(" %s %.5g us", sim_constant_names[c], 1e6 * f->constants[c]);
        printf("\n  %-40s %14s %14s %8s\n", "row", "measured ms", "predicted ms", "error");
        for (uint32_t r = 0; r < x->row_count; r++)
            if (of_fit(&x->rows[r], f))
                printf("  %-40s %14.6g %14.6g %7.2f%%%s\n", x->rows[r].name, 1e3 * x->rows[r].seconds,
                       1e3 * x->rows[r].predicted, 100 * relative(&x->rows[r]),
                       x->rows[r].held_out ? "  held out" : "");
        printf("  errors at most %.2f %%", 100 * f->worst);
        if (f->held_out) printf(", of rows held out %.2f %%", 100 * f->worst_held_out);
        putchar('\n');
    }
    return cmd_flush(err);
}

static fcp_code print_json(const calibration *x, fcp_error *err) {
    json j = {0};
    json_object(&j, NULL);
    json_string(&j, "gpu", x->rows[0].gpu);
    json_array(&j, "fits");
    for (uint32_t i = 0; i < x->fit_count; i++) {
        const calibrate_fit *f = &x->fits[i];
        json_object(&j, NULL);
        json_string(&j, "pass", fcp_pass_names[f->pass]);
        json_u64(&j, "head_dim", f->head_dim);
        for (int c = 0; c < SIM_CONSTANT_COUNT; c++) {
            char key[32];
            snprintf(key, sizeof key, "%s_s", sim_constant_names[c]);
            json_double(&j, key, f->constants[c]);
        }
        json_double(&j, "max_error", f->worst);
        if (f->held_out) json_double(&j, "max_error_held_out", f->worst_held_out);
        json_array(&j, "rows");
        for (uint32_t r = 0; r < x->row_count; r++) {
            if (!of_fit(&x->rows[r], f)) continue;
            json_object(&j, NULL);
            json_string(&j, "name", x->rows[r].name);
            json_double(&j, "measured_s", x->rows[r].seconds);
            json_double(&j, "predicted_s", x->rows[r].predicted);
            json_double(&j, "error", relative(&x->rows[r]));
            json_bool(&j, "held_out", x->rows[r].held_out);
            json_end(&j);
        }
        json_end(&j);
        json_end(&j);
    }
    json_end(&j);
    return cmd_json_finish(&j, NULL, FCP_OK, err);
}

static fcp_code write_profile(const cmd_line *line, const calibration *x, fcp_error *err) {
    const char *slash = strrchr(cmd_name(line), '/');
    sim_profile base;
    text made = {0};
    const bool known = sim_profile_find(x->rows[0].gpu, &base, NULL) == FCP_OK;
    fcp_code code = calibrate_profile(x, slash ? slash + 1 : cmd_name(line), known ? &base : NULL, &made, err);
    if (!code) code = cmd_file_write(line->value[OPT_OUTPUT], made.at, made.size, err);
    text_free(&made);
    return code;
}

fcp_code cmd_calibrate(const cmd_line *line, cmd_input *input, fcp_error *err) {
    uint64_t hold_out = 0;
    arena memory = {0};
    calibration x = {0};
    fcp_code code = cmd_number(line, OPT_HOLD_OUT, 0, CALIBRATE_ROWS, 0, &hold_out, err);
    if (!code) {
        int why = text_read(&input->bytes, cmd_path(line->file), false, ROWS_MAX);
        if (input->bytes.failed) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        else if (why || input->bytes.size > ROWS_MAX)
            code = fcp_fail_in(err, FCP_E_READ, cmd_name(line), 0, 0, "cannot be read: %s",
                               why ? strerror(why) : "it is longer than 32 MB");
    }
    if (!code)
        code = calibrate_read(cmd_name(line), input->bytes.size ? input->bytes.at : "", input->bytes.size, &memory, &x,
                              err);
    if (!code) code = calibrate_fit_rows(&x, (uint32_t)hold_out, err);
    if (code == FCP_E_ROWS && !err->file[0]) snprintf(err->file, sizeof err->file, "%s", cmd_name(line));
    if (!code && line->value[OPT_OUTPUT]) code = write_profile(line, &x, err);
    if (!code && line->json) code = print_json(&x, err);
    else if (!code && !line->quiet) code = print_text(&x, err);
    arena_free(&memory);
    return code;
}
