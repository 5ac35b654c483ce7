/* fuzz_rows.c: reads the bytes as measured rows, and fits a profile to them.
 *
 * Oracle: Rows are refused with a message, or the profile that is fitted to them can be written and read back. Rows
 *         that are printed are read as the same rows.
 * Input:  a byte that says how many rows are held out, and the CSV text. The corpus has published rows, and broken
 *         ones.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/base/text.h"
#include "compiler/simulate/fit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_again(const calibration *x, arena *memory) {
    calibration again;
    text t = {0};
    text_puts(&t, CALIBRATE_HEADER "\n");
    for (uint32_t r = 0; r < x->row_count; r++) {
        char line[CALIBRATE_LINE];
        calibrate_print(&x->rows[r], line);
        text_printf(&t, "%s\n", line);
    }
    if (t.failed) return;
    if (calibrate_read("again", t.at, t.size, memory, &again, NULL) || again.row_count != x->row_count) abort();
    for (uint32_t r = 0; r < x->row_count; r++)
        if (memcmp(again.rows[r].counts, x->rows[r].counts, sizeof x->rows[r].counts) ||
            strcmp(again.rows[r].name, x->rows[r].name))
            abort();
    text_free(&t);
}

static void read_back(const calibration *x, const sim_profile *base) {
    fcp_error err = {0};
    sim_profile made;
    text t = {0};
    fcp_code code = calibrate_profile(x, "rows", base, &t, &err);
    if (code && (code != FCP_E_ROWS || !*err.message)) abort();
    if (!code && sim_profile_read("made", t.at, t.size, &made, &err)) abort();
    text_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    arena memory = {0};
    calibration x;
    fcp_error err = {0};
    sim_profile base;
    fcp_code code = calibrate_read("rows", (const char *)data + 1, size - 1, &memory, &x, &err);
    if (!code) {
        print_again(&x, &memory);
        code = calibrate_fit_rows(&x, data[0] % 4, &err);
    }
    if (code && (code != FCP_E_ROWS || !*err.message)) abort();
    if (!code) {
        if (sim_profile_find("h200", &base, NULL)) abort();
        read_back(&x, &base);
        read_back(&x, NULL);
    }
    arena_free(&memory);
    return 0;
}
