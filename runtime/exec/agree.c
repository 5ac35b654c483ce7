/* agree.c: exchanges what each process was asked for, and compares (agree.h).
 *
 * Cost: one gather of FCP_GATHER_BYTES a process, and a SHA-256 of the plan.
 */
#include "runtime/exec/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/error_place.h"

/* What travels. Its size and the place of `format` stay the same in all versions. */
typedef struct record {
    uint8_t plan[FCP_DIGEST_BYTES];
    uint32_t format, version, graph_from, made;
    uint8_t pad[FCP_GATHER_BYTES - FCP_DIGEST_BYTES - 16];
} record;
enum { RECORD_FORMAT = 1 };
_Static_assert(sizeof(record) == FCP_GATHER_BYTES, "what is gathered at once");

/* The first digits of a plan's digest, enough to tell plans apart. */
enum { NAME_BYTES = 8 };
static void name_plan(const uint8_t *digest, char out[2 * NAME_BYTES + 1]) {
    for (int i = 0; i < NAME_BYTES; i++) snprintf(out + 2 * (size_t)i, 3, "%02x", digest[i]);
}

/* An error that names the first rank that differs from rank 0 or, if none does, the first that failed. */
static fcp_code compare(const record *all, uint32_t ranks, fcp_error *err) {
    for (uint32_t r = 0; r < ranks; r++) {
        const record *x = &all[r];
        if (x->format != all->format || x->version != all->version)
            return fcp_fail_at(err, FCP_E_START, fcp_where_rank(r),
                               "rank %u runs another version of the runtime than rank 0", r);
        if (memcmp(x->plan, all->plan, sizeof x->plan) != 0) {
            char theirs[2 * NAME_BYTES + 1], first[2 * NAME_BYTES + 1];
            name_plan(x->plan, theirs);
            name_plan(all->plan, first);
            return fcp_fail_at(err, FCP_E_START, fcp_where_rank(r),
                               "rank %u has another plan than rank 0 (SHA-256 %s... and %s...): all need the same one",
                            r, theirs, first);
        }
        if (x->graph_from != all->graph_from)
            return fcp_fail_at(err, FCP_E_START, fcp_where_rank(r),
                               "rank %u is to make graphs from run %u on, rank 0 from run %u: all need the same "
                            "options", r, x->graph_from, all->graph_from);
    }
    for (uint32_t r = 0; r < ranks; r++)
        if (all[r].made)
            return fcp_fail_at(err, FCP_E_START, fcp_where_rank(r), "rank %u cannot begin: %s, %s", r,
                               fcp_code_name((fcp_code)all[r].made),
                            fcp_code_text((fcp_code)all[r].made));
    return FCP_OK;
}

/* All processes' records; malloc'd. NULL: *err says why. */
static record *exchange(fcp_net *net, const fcp_promise *mine, fcp_error *err) {
    record own = {.format = RECORD_FORMAT, .version = FCP_PLAN_VERSION, .graph_from = mine->graph_from,
                  .made = (uint32_t)mine->made};
    record *all = calloc(net->ranks, sizeof *all);
    fcp_code code = all ? fcp_plan_digest(mine->plan, own.plan, err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code) code = fcp_net_gather(net, &own, sizeof own, all, err);
    if (!code) return all;
    free(all);
    return NULL;
}

fcp_code fcp_agree(fcp_net *net, const fcp_promise *mine, fcp_error *err) {
    fcp_error why = {0};
    if (!net->transport->processes) return mine->made;
    record *all = exchange(net, mine, &why);
    fcp_code code = why.code;
    if (all) {
        code = compare(all, net->ranks, &why);
        net->apart = code;
    }
    free(all);
    if (!mine->made && !code && net->transport->meet) code = net->transport->meet(net, mine->plan, &why);
    if (mine->made) return mine->made;
    if (code && err) *err = why;
    return code;
}

bool fcp_agree_to_refuse(fcp_net *net, const fcp_promise *mine) {
    fcp_error ignored;
    if (!net->transport->processes) return true;
    record *all = exchange(net, mine, &ignored);
    bool together = all;
    for (uint32_t r = 0; all && r < net->ranks; r++) together &= all[r].made != 0;
    net->apart = all && !together;
    free(all);
    return together;
}
