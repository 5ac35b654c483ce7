/* gpu_profile.c: what the profile of the program's GPU adds to a program.
 *
 * Requires: a checked cluster.
 * Gives:    program.profile, where the caller names one.
 */
#include "compiler/gpu_profile.h"

#include <string.h>

#include "compiler/simulate/profile.h"

void device_read_profile(sema *s, const char *asked) {
    fcp_error why = {0};
    sim_profile *p = ARENA_NEW(&s->out->arena, sim_profile, 1);
    fcp_code code = p ? sim_profile_open(asked, s->regular_files, p, &why) : FCP_E_NO_MEMORY;
    s->out->profile = p;
    if (code && why.line) diag_error(s->d, code, SPAN_NONE, "%s:%u: %s", why.file, why.line, why.message);
    else if (code)
        diag_error(s->d, code, SPAN_NONE, "%s%s%s", why.file, *why.file ? ": " : "",
                   p ? why.message : fcp_code_text(code));
}
