/* test_windows.c: tests windows as FlashAttention means them, window_size = (left, right) with -1 for no limit: query q
 * sees key k if q - k <= left and k - q <= right, each of them only where it is not negative. A negative number is an
 * error of window_both, and the mask that its hint says is compared with that definition in every pair. */
#include "codegen/mask/code.h"
#include "compiler/sema/program.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 9, WIDEST = 10 };

static bool flash_window(int left, int right, int q, int k) {
    return (left < 0 || q - k <= left) && (right < 0 || k - q <= right);
}

static fcp_code parse(const char *text, fcpc_program **out, char **said) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    const fcp_code code = fcpc_parse_text("a.fcp", text, strlen(text), NULL, d, out);
    *said = fcpc_diagnostics_render(d, false);
    fcpc_diagnostics_free(d);
    return code;
}

static void compare(const char *program, int left, int right) {
    fcpc_program *p = NULL;
    char *said;
    cr_assert_eq(parse(program, &p, &said), FCP_OK, "%s\n%s", program, said);
    int64_t *scratch = malloc(p->mask.count * sizeof *scratch);
    const mc_env env = {.n = TOKENS, .queries = TOKENS};
    for (int q = 0; q < TOKENS; q++)
        for (int k = 0; k < TOKENS; k++)
            cr_assert_eq(mc_eval(p->mask, &env, q, k, 0, scratch), flash_window(left, right, q, k),
                         "%s: (%d, %d): q = %d, k = %d", program, left, right, q, k);
    free(scratch);
    free(said);
    fcpc_program_free(p);
}

Test(windows, are_those_of_flash_attention) {
    for (int left = -2; left <= WIDEST; left++)
        for (int right = -2; right <= WIDEST; right++) {
            char program[200], mask[100];
            snprintf(program, sizeof program, "plan { mask = window_both(l = %d, r = %d) }", left, right);
            if (left >= 0 && right >= 0) {
                compare(program, left, right);
                continue;
            }
            fcpc_program *p = NULL;
            char *said, *hint;
            cr_assert_eq(parse(program, &p, &said), FCP_E_VALUE, "%s", program);
            cr_assert_not_null(hint = strstr(said, ", write "), "%s", said);
            hint += strlen(", write ");
            snprintf(mask, sizeof mask, "%.*s", (int)strcspn(hint, "\n"), hint);
            snprintf(program, sizeof program, strncmp(mask, "mask ", 5) ? "plan { mask = %s }" : "%s", mask);
            compare(program, left, right);
            free(said);
        }
}
