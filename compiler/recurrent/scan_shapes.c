/* scan_shapes.c: lists the documents of a scan, and chooses how the states of each travel.
 *
 * Requires: the stretches of documents that are cut.
 * Gives:    a shape for each document, and in how many parts heads travel.
 * Method:   (first version: chains)
 * Cost:     linear in stretches.
 */
#include "compiler/recurrent/scan_shapes.h"

fcp_code scan_list(recurrent_batch *b, bool descends, scan_documents *out) {
    uint32_t *stops = ARENA_NEW(b->scratch, uint32_t, 2 * (size_t)b->cut_count + 1);
    *out = (scan_documents){ARENA_NEW(b->scratch, scan_document, b->cut_count + (size_t)1), 0};
    if (!stops || !out->at) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0, end; i < b->cut_count; i = end) {
        for (end = i + 1; end < b->cut_count && recurrent_follows(&b->cut[i], &b->cut[end]); end++) {}
        scan_document d = {.first = &b->cut[i], .count = end - i, .descends = descends, .stops = stops,
                           .shape = FCP_SCAN_CHAIN};
        for (uint32_t k = 0; k < d.count; k++)
            if (!k || scan_at(&d, k)->rank != scan_at(&d, k - 1)->rank) d.stops[d.stop_count++] = k;
        d.stops[d.stop_count] = d.count;
        stops += d.stop_count + 1;
        out->at[out->count++] = d;
    }
    return FCP_OK;
}

uint32_t scan_middle(const recurrent_batch *b, const scan_document *d, uint32_t low, uint32_t high, bool nodes) {
    const uint32_t middle = low + (high - low) / 2;
    if (!nodes) return middle;
    for (uint32_t away = 0; away < high - low; away++) /* the boundary of nodes that is nearest to the middle */
        for (int side = 0; side < 2; side++) {
            const uint32_t at = side ? middle + away : middle - away;
            if (at <= low || at >= high || (!side && away > middle)) continue;
            if (scan_at(d, d->stops[at])->rank / b->gpus != scan_at(d, d->stops[at - 1])->rank / b->gpus) return at;
        }
    return middle;
}

fcp_code scan_choose(recurrent_batch *b, fcp_recurrent *layer, scan_documents *documents, bool settled) {
    (void)b, (void)settled;
    layer->shape = documents->count ? FCP_SCAN_CHAIN : FCP_SCAN_NONE;
    return FCP_OK;
}
