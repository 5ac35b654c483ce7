/* homes.c: a digest of where a plan's tokens are.
 *
 * Two plans that have each token at the same rank have the same digest, even if they cut the tokens into different
 * blocks. So pieces are sorted by side, heads, sequence and start, and neighbours at one rank are joined, before they
 * are hashed. With the layout `planned` the digest also covers the order in which a rank's tokens lie.
 *
 * Cost: sorting the pieces.
 */
#include <stdlib.h>

#include "runtime/base/sha256.h"
#include "runtime/base/stop.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_check.h"

enum { PART = 1 << 18 }; /* runs between two looks at a stop */

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

/* Merges two neighbours that are sorted. */
static void merge(const home *a, const home *a_end, const home *b, const home *b_end, home *out) {
    while (a < a_end && b < b_end) *out++ = compare(b, a) < 0 ? *b++ : *a++;
    while (a < a_end) *out++ = *a++;
    while (b < b_end) *out++ = *b++;
}

/* Sorts in parts, so that a stop is soon noticed. *at may become another array, which is malloc'd as it was. */
static fcp_code sort(home **at, size_t count, const volatile int *stop, fcp_error *err) {
    for (size_t i = 0; i < count; i += PART) {
        if (fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        qsort(*at + i, count - i < PART ? count - i : PART, sizeof **at, compare);
    }
    home *other = count > PART ? malloc(count * sizeof *other) : NULL;
    if (count > PART && !other) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu pieces", count);
    fcp_code code = FCP_OK;
    for (size_t part = PART; part < count && !code; part *= 2) {
        for (size_t i = 0; i < count; i += 2 * part) {
            const size_t middle = count - i < part ? count : i + part;
            const size_t end = count - i < 2 * part ? count : i + 2 * part;
            merge(*at + i, *at + middle, *at + middle, *at + end, other + i);
        }
        home *sorted = other;
        other = *at;
        *at = sorted;
        if (fcp_stop_asked(stop)) code = fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    }
    free(other);
    return code;
}

static void add_run(const fcp_plan *plan, fcp_sha256 *h, const home *x) {
    const fcp_heads *heads = &plan->heads[x->heads];
    const uint64_t words[] = {x->side,         heads->kv_first, heads->kv_count, heads->sub_first, heads->sub_count,
                              x->sequence,     x->rank,         x->start,        x->end};
    fcp_sha256_add(h, words, sizeof words);
}

/* The runs of tokens in the order in which a rank's caller holds them. */
static fcp_code add_order(const fcp_plan *plan, const volatile int *stop, fcp_sha256 *h, fcp_error *err) {
    size_t i = 0;
    for (uint32_t side = 0; side < FCP_SIDES; side++)
        for (uint32_t r = 0; r < plan->problem->ranks; r++) {
            fcp_layout_at at = {0};
            fcp_span span;
            home run = {.start = 0};
            while (side == FCP_KEYS ? fcp_plan_layout_keys(plan, r, &at, &span)
                                    : fcp_plan_layout(plan, r, &at, &span)) {
                if (i++ % PART == 0 && fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
                if (run.end > run.start && run.sequence == span.sequence && run.end == span.start) {
                    run.end += span.length;
                    continue;
                }
                if (run.end > run.start) add_run(plan, h, &run);
                run = (home){side, 0, span.sequence, r, span.start, span.start + span.length};
            }
            if (run.end > run.start) add_run(plan, h, &run);
        }
    return FCP_OK;
}

fcp_code fcp_plan_homes(const fcp_plan *plan, uint8_t out_digest[FCP_DIGEST_BYTES], fcp_error *err) {
    return fcp_plan_homes_until(plan, NULL, out_digest, err);
}

fcp_code fcp_plan_homes_until(const fcp_plan *plan, const volatile int *stop, uint8_t out_digest[FCP_DIGEST_BYTES],
                              fcp_error *err) {
    if (plan->extract) {
        memcpy(out_digest, plan->extract->about->homes, FCP_DIGEST_BYTES);
        return FCP_OK;
    }
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
    fcp_code code = sort(&homes, count, stop, err);
    fcp_sha256 h = fcp_sha256_begin();
    const uint64_t layout[] = {plan->problem->ranks, plan->problem->layout, plan->problem->layout_group};
    fcp_sha256_add(&h, layout, sizeof layout);
    for (size_t i = 0, next, runs = 0; i < count && !code; i = next) {
        if (runs++ % PART == 0 && fcp_stop_asked(stop)) code = fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        for (next = i + 1; next < count && homes[next].start == homes[i].end &&
                           homes[next].sequence == homes[i].sequence && homes[next].rank == homes[i].rank &&
                           homes[next].side == homes[i].side && homes[next].heads == homes[i].heads;
             next++)
            homes[i].end = homes[next].end;
        add_run(plan, &h, &homes[i]);
    }
    if (!code && plan->problem->layout == FCP_LAYOUT_PLANNED) code = add_order(plan, stop, &h, err);
    if (!code) fcp_sha256_end(&h, out_digest);
    free(homes);
    return code;
}
