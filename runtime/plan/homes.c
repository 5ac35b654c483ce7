/* homes.c: a digest of where a plan's tokens are.
 *
 * Two plans may cut the same tokens into different blocks, and still have each token at the same rank. Then they have
 * the same digest. So pieces are sorted by side, heads, sequence and start, and neighbours at one rank are joined
 * before they are digested. With the layout `planned` the digest also covers the order in which a rank's tokens lie.
 *
 * Cost: sorting the pieces.
 */
#include <stdlib.h>

#include "runtime/base/sha256.h"
#include "runtime/plan/plan.h"

typedef struct home {
    uint32_t side, heads, sequence, rank;
    uint64_t start, end;
} home;

static int compare(const void *a, const void *b) {
    const home *x = a, *y = b;
    if (x->side != y->side) return x->side < y->side ? -1 : 1;
    if (x->heads != y->heads) return x->heads < y->heads ? -1 : 1;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static void add_run(const fcp_plan *plan, fcp_sha256 *h, const home *x) {
    const fcp_heads *heads = &plan->heads[x->heads];
    const uint64_t words[] = {x->side,         heads->kv_first, heads->kv_count, heads->sub_first, heads->sub_count,
                              x->sequence,     x->rank,         x->start,        x->end};
    fcp_sha256_add(h, words, sizeof words);
}

/* The runs of tokens in the order in which a rank's caller holds them. */
static void add_order(const fcp_plan *plan, fcp_sha256 *h) {
    for (uint32_t side = 0; side < FCP_SIDES; side++)
        for (uint32_t r = 0; r < plan->problem->ranks; r++) {
            fcp_layout_at at = {0};
            fcp_span span;
            home run = {.start = 0};
            while (side == FCP_KEYS ? fcp_plan_layout_keys(plan, r, &at, &span)
                                    : fcp_plan_layout(plan, r, &at, &span)) {
                if (run.end > run.start && run.sequence == span.sequence && run.end == span.start) {
                    run.end += span.length;
                    continue;
                }
                if (run.end > run.start) add_run(plan, h, &run);
                run = (home){side, 0, span.sequence, r, span.start, span.start + span.length};
            }
            if (run.end > run.start) add_run(plan, h, &run);
        }
}

fcp_code fcp_plan_homes(const fcp_plan *plan, uint8_t out_digest[FCP_DIGEST_BYTES], fcp_error *err) {
    home *homes = malloc((FCP_SIDES * plan->pieces_count + 1) * sizeof *homes);
    size_t count = 0;
    if (!homes)
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %llu pieces", (unsigned long long)plan->pieces_count);
    for (uint64_t b = 0; b < plan->blocks_count; b++) {
        const fcp_block *x = &plan->blocks[b];
        for (uint32_t side = 0; side < FCP_SIDES; side++)
            for (uint32_t i = x->first_piece; x->holds >> side & 1 && i < x->first_piece + x->pieces; i++) {
                const fcp_piece *p = &plan->pieces[i];
                homes[count++] = (home){side, x->heads, p->sequence, x->home, p->start, p->start + p->length};
            }
    }
    qsort(homes, count, sizeof *homes, compare);
    fcp_sha256 h = fcp_sha256_begin();
    const uint64_t layout[] = {plan->problem->ranks, plan->problem->layout, plan->problem->layout_group};
    fcp_sha256_add(&h, layout, sizeof layout);
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && homes[next].start == homes[i].end &&
                           homes[next].sequence == homes[i].sequence && homes[next].rank == homes[i].rank &&
                           homes[next].side == homes[i].side && homes[next].heads == homes[i].heads;
             next++)
            homes[i].end = homes[next].end;
        add_run(plan, &h, &homes[i]);
    }
    if (plan->problem->layout == FCP_LAYOUT_PLANNED) add_order(plan, &h);
    fcp_sha256_end(&h, out_digest);
    free(homes);
    return FCP_OK;
}
