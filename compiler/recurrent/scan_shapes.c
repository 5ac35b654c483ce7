/* scan_shapes.c: lists the documents of a scan, and chooses how the states of each travel.
 *
 * Requires: the stretches of documents that are cut.
 * Gives:    a shape for each document, and in how many parts heads travel.
 * Method:   each shape is priced for each document, by messages in a row and what a message takes (the profile of the
 *           cluster's GPU, simulate/recurrent_walk.h). The whole takes as long as its slowest document or its busiest port. So
 *           only documents whose chain would be slower than that get another shape, because a chain moves least. This is
 *           done for 1, 2, 4, ... parts of the heads, and the fastest wins.
 * Cost:     linear in stretches, for each number of parts.
 */
#include "compiler/recurrent/scan_shapes.h"

#include <string.h>

/* gather: a document of more stops moves more bytes by it than it can save. STEPS_WANTED: heads are not cut further if that
 * makes more messages than this, so that plans of very many ranks stay small. */
enum { GATHER_MOST = 4, STEPS_WANTED = 1 << 20 };

fcp_code scan_list(recurrent_batch *b, bool descends, scan_documents *out) {
    uint32_t *stops = ARENA_NEW(b->scratch, uint32_t, 2 * (size_t)b->cut_count + 1);
    *out = (scan_documents){ARENA_NEW(b->scratch, scan_document, b->cut_count + (size_t)1), 0};
    if (!stops || !out->at) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0, end; i < b->cut_count; i = end) {
        for (end = i + 1; end < b->cut_count && recurrent_follows(&b->cut[i], &b->cut[end]); end++) {}
        scan_document d = {.first = &b->cut[i],
                           .count = end - i,
                           .descends = descends,
                           .stops = stops,
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

/* --- choosing ----------------------------------------------------------------------------------------------------- */

/* What one part of a state takes, in picoseconds: a message and what its receiver then computes; with A and without. */
typedef struct part_price {
    uint64_t state[FCP_FABRICS], whole[FCP_FABRICS];
} part_price;

static part_price price_part(const sim_model *m, const fcp_recurrent *layer, uint32_t parts) {
    const uint64_t state = layer->heads / parts * fcp_state_numbers(layer) * sizeof(float),
                   whole = state + layer->heads / parts * fcp_decay_numbers(layer) * sizeof(float);
    part_price x;
    for (int f = 0; f < FCP_FABRICS; f++) {
        x.state[f] = sim_recurrent_message(m, (fcp_fabric)f, state) + sim_recurrent_step(m, 2 * state + whole);
        x.whole[f] = sim_recurrent_message(m, (fcp_fabric)f, whole) + sim_recurrent_step(m, 3 * whole);
    }
    return x;
}

static fcp_fabric edge(const recurrent_batch *b, const scan_document *d, uint32_t stop) {
    return recurrent_fabric(b, scan_at(d, d->stops[stop])->rank, scan_at(d, d->stops[stop + 1])->rank);
}
static uint32_t log2_up(uint32_t x) { return x > 1 ? 32 - (uint32_t)__builtin_clz(x - 1) : 0; }

/* What a document costs by each shape, if nothing else is in the way. */
typedef struct document_price {
    uint64_t of[FCP_SCAN_SHAPES];
} document_price;

static document_price price_document(const recurrent_batch *b, const scan_document *d, const part_price *x,
                                     uint32_t parts) {
    document_price out = {.of = {[FCP_SCAN_NONE] = UINT64_MAX, [FCP_SCAN_MIXED] = UINT64_MAX}};
    uint64_t chain = 0, slowest = 0;
    uint32_t nodes = 1, inside = 1, most = 1;
    for (uint32_t s = 0; s + 1 < d->stop_count; s++) {
        const fcp_fabric f = edge(b, d, s);
        chain += x->state[f];
        if (x->state[f] > slowest) slowest = x->state[f];
        inside = f == FCP_LOCAL ? inside + 1 : 1;
        nodes += f == FCP_NET;
        if (inside > most) most = inside;
    }
    const fcp_fabric wide = nodes > 1 ? FCP_NET : FCP_LOCAL;
    const uint64_t level = x->whole[wide] + x->state[wide], local = x->whole[FCP_LOCAL] + x->state[FCP_LOCAL];
    const uint64_t others = (uint64_t)(parts - 1) * x->whole[wide];
    out.of[FCP_SCAN_CHAIN] = chain + (parts - 1) * slowest;
    out.of[FCP_SCAN_TREE] = log2_up(d->stop_count) * level + others;
    out.of[FCP_SCAN_NODES] =
        nodes > 1 && most > 1 ? log2_up(nodes) * level + log2_up(most) * local + others : UINT64_MAX;
    out.of[FCP_SCAN_GATHER] = d->stop_count > 2 && d->stop_count <= GATHER_MOST
                                  ? parts * ((d->stop_count - 2) * x->whole[wide] + x->state[wide])
                                  : UINT64_MAX;
    return out;
}

/* Of shapes that take equally long the one with fewer bytes, which comes first in this list. */
static fcp_scan_shape fastest(const document_price *x) {
    static const fcp_scan_shape shapes[] = {FCP_SCAN_CHAIN, FCP_SCAN_GATHER, FCP_SCAN_NODES, FCP_SCAN_TREE};
    fcp_scan_shape best = shapes[0];
    for (size_t i = 1; i < sizeof shapes / sizeof *shapes; i++)
        if (x->of[shapes[i]] < x->of[best]) best = shapes[i];
    return best;
}

/* What the busiest port carries. By a chain, the state of each stop; by other shapes, about that and a summary as well. */
static uint64_t busiest_port(recurrent_batch *b, const scan_documents *list, const part_price *x, uint32_t parts) {
    uint64_t most = 0;
    memset(b->ports, 0, (size_t)b->ranks * FCP_FABRICS * 2 * sizeof *b->ports);
    for (uint32_t i = 0; i < list->count; i++) {
        const scan_document *d = &list->at[i];
        for (uint32_t s = 0; s + 1 < d->stop_count; s++) {
            const fcp_fabric f = edge(b, d, s);
            const uint64_t takes = parts * (d->shape == FCP_SCAN_CHAIN ? x->state[f] : x->state[f] + x->whole[f]);
            for (int dir = 0; dir < 2; dir++) {
                const uint32_t rank = scan_at(d, d->stops[s + (uint32_t)dir])->rank;
                uint64_t *port = &b->ports[((size_t)rank * FCP_FABRICS + (size_t)f) * 2 + (size_t)dir];
                *port += takes;
                if (*port > most) most = *port;
            }
        }
    }
    return most;
}

/* Gives each document a shape, for so many parts, and returns the time that this is expected to take. A document whose
 * chain is no longer than the whole must take anyway, because of another document or of a busy port, has a chain. */
static uint64_t shape_all(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, uint32_t parts) {
    const part_price x = price_part(b->links, layer, parts);
    for (uint32_t i = 0; i < list->count; i++) list->at[i].shape = FCP_SCAN_CHAIN;
    uint64_t least = busiest_port(b, list, &x, parts), all = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const document_price of = price_document(b, &list->at[i], &x, parts);
        const uint64_t best = of.of[fastest(&of)];
        if (best > least) least = best;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const document_price of = price_document(b, &list->at[i], &x, parts);
        if (of.of[FCP_SCAN_CHAIN] > least) list->at[i].shape = fastest(&of);
        if (of.of[list->at[i].shape] > all) all = of.of[list->at[i].shape];
    }
    const uint64_t port = busiest_port(b, list, &x, parts);
    return port > all ? port : all;
}

fcp_code scan_choose(recurrent_batch *b, fcp_recurrent *layer, scan_documents *list, bool settled) {
    uint64_t stops = 0, best = UINT64_MAX;
    uint32_t chosen = 1;
    bool any = false;
    for (uint32_t i = 0; i < list->count; i++) {
        stops += list->at[i].stop_count;
        any |= list->at[i].stop_count > 1;
    }
    if (layer->parts) chosen = layer->parts;
    if (b->asked->parts && b->asked->shape != FCP_SCAN_NONE) {
        for (uint32_t i = 0; i < list->count; i++) list->at[i].shape = (fcp_scan_shape)b->asked->shape;
        return FCP_OK;
    }
    for (uint32_t parts = 1; !layer->parts && any; parts *= 2) {
        if (fcp_stop_asked(b->stop)) return FCP_E_INTERRUPTED;
        const uint64_t time = shape_all(b, layer, list, parts);
        /* more parts are more messages, so they must save a fiftieth */
        if (best == UINT64_MAX || time < best - best / 50) best = time, chosen = parts;
        if (layer->heads % (2 * parts) || stops * 2 * parts > STEPS_WANTED) break;
    }
    layer->parts = chosen;
    if (any) shape_all(b, layer, list, chosen);
    if (settled) return FCP_OK;
    fcp_scan_shape shape = FCP_SCAN_NONE;
    for (uint32_t i = 0; i < list->count; i++) {
        const scan_document *d = &list->at[i];
        if (d->stop_count > 1) shape = shape == FCP_SCAN_NONE || shape == d->shape ? d->shape : FCP_SCAN_MIXED;
    }
    layer->shape = shape;
    return FCP_OK;
}
