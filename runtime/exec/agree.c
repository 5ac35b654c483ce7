/* agree.c: exchanges what each process was asked for, and compares (agree.h).
 *
 * Cost: one gather of FCP_GATHER_BYTES a process, and a SHA-256 of the plan.
 */
#include "runtime/exec/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
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

/* --- calls about layers that recur -------------------------------------------------------------------------------- */

enum { MOST_CALLS = 1024 }; /* beyond that all processes forget those they know */

static uint32_t find_call(const fcp_calls *calls, const fcp_call *call) {
    uint32_t i = 0;
    while (i < calls->count && memcmp(&calls->list[i], call, sizeof *call) != 0) i++;
    return i;
}

bool fcp_call_known(const fcp_calls *calls, const fcp_call *call) { return find_call(calls, call) < calls->count; }

void fcp_calls_free(fcp_calls *calls) {
    free(calls->list);
    *calls = (fcp_calls){0};
}

/* What travels, in the bytes of a record. */
typedef struct call_record {
    fcp_call call;
    uint32_t made;
    uint8_t pad[FCP_GATHER_BYTES - sizeof(fcp_call) - 4];
} call_record;
_Static_assert(sizeof(fcp_call) == 24, "no byte of it is padding: calls are compared as bytes");
_Static_assert(sizeof(call_record) == FCP_GATHER_BYTES, "what is gathered at once");

static void name_call(const fcp_call *x, char *out, size_t size) {
    const unsigned long long row = x->row;
    if (x->kind == FCP_CALL_HALO) snprintf(out, size, "the halo of layer %u, rows of %llu bytes", x->layer, row);
    else if (x->kind == FCP_CALL_HALO_GRADIENT)
        snprintf(out, size, "the gradient of the halo of layer %u, rows of %llu %s", x->layer, row,
                 x->dtype < FCP_DTYPES ? fcp_dtype_name((fcp_dtype)x->dtype) : "numbers");
    else snprintf(out, size, "the %s scan of layer %u", x->pass == FCP_BACKWARD ? "backward" : "forward", x->layer);
}

/* An error that names the first rank whose call differs from that of rank 0 or, if none does, the first that failed. */
static fcp_code compare_calls(const call_record *all, uint32_t ranks, fcp_error *err) {
    for (uint32_t r = 0; r < ranks; r++) {
        char theirs[120], first[120];
        if (!memcmp(&all[r].call, &all->call, sizeof all->call)) continue;
        name_call(&all[r].call, theirs, sizeof theirs);
        name_call(&all->call, first, sizeof first);
        return fcp_fail_at(err, FCP_E_ARGUMENT, fcp_where_rank(r), "rank %u calls %s; rank 0 calls %s", r, theirs,
                           first);
    }
    for (uint32_t r = 0; r < ranks; r++)
        if (all[r].made)
            return fcp_fail_at(err, all[r].made < FCP_CODE_COUNT ? (fcp_code)all[r].made : FCP_E_RUN, fcp_where_rank(r),
                               "rank %u cannot begin: %s, %s", r, fcp_code_name((fcp_code)all[r].made),
                               fcp_code_text((fcp_code)all[r].made));
    return FCP_OK;
}

fcp_code fcp_agree_call(fcp_net *net, fcp_calls *calls, const fcp_call *call, fcp_code made, uint32_t *out_number,
                        fcp_error *err) {
    fcp_error why = {0};
    fcp_code code = FCP_OK;
    *out_number = find_call(calls, call);
    if (*out_number < calls->count) return made;
    if (calls->count == MOST_CALLS) *out_number = calls->count = 0;
    if (!made && !FCP_GROW(calls->list, calls->held, calls->count + UINT64_C(1)))
        made = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u calls", calls->count + 1);
    if (net->transport->processes) {
        const call_record own = {.call = *call, .made = (uint32_t)made};
        call_record *all = calloc(net->ranks, sizeof *all);
        code = all ? fcp_net_gather(net, &own, sizeof own, all, &why)
                   : fcp_fail(&why, FCP_E_RUN, "out of memory for what %u processes call", net->ranks);
        if (!code) code = compare_calls(all, net->ranks, &why);
        free(all);
    }
    if (made) return made;
    if (code && err) *err = why;
    if (!code) calls->list[calls->count++] = *call;
    return code;
}
