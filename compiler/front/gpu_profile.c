/* gpu_profile.c: what the profile of the program's GPU adds to a program.
 *
 * Requires: a checked cluster.
 * Gives:    program.profile, where the caller names one; program.margins, where the program states no margin.
 */
#include "compiler/front/gpu_profile.h"

#include <string.h>

#include "compiler/simulate/margin.h"
#include "compiler/simulate/profile.h"

void gpu_read_profile(sema *s, const char *asked) {
    fcp_error why = {0};
    sim_profile *p = ARENA_NEW(&s->out->arena, sim_profile, 1);
    fcp_code code = p ? sim_profile_open(asked, s->regular_files, p, &why) : FCP_E_NO_MEMORY;
    s->out->profile = p;
    if (code && why.line) diag_error(s->d, code, SPAN_NONE, "%s:%u: %s", why.file, why.line, why.message);
    else if (code)
        diag_error(s->d, code, SPAN_NONE, "%s%s%s", why.file, *why.file ? ": " : "",
                   p ? why.message : fcp_code_text(code));
}

fcp_code gpu_list_margins(struct fcpc_program *p) {
    sim_profile profile = {.part = 1}; /* of a GPU without one nothing is known */
    char gpu[sizeof p->cluster.gpu + 1] = "";
    if (p->margin != MARGIN_AUTO) return FCP_OK;
    sim_margins *list = ARENA_NEW(&p->arena, sim_margins, 1);
    if (!list) return FCP_E_NO_MEMORY;
    memcpy(gpu, p->cluster.gpu, sizeof p->cluster.gpu);
    if (p->profile) profile = *p->profile;
    else sim_profile_device(gpu, &profile);
    sim_margins_list(p->nodes, p->gpus, &p->cluster, &profile, list);
    p->margin = list->at[0];
    if (list->count > 1) p->margins = list;
    return FCP_OK;
}
