/* scan_shapes.c: lists the documents of a scan, and chooses how the states of each travel.
 *
 * Requires: the stretches of documents that are cut.
 * Gives:    ways to scan: a shape for each document, and in how many parts heads travel. Those that are expected to be
 *           fastest come first.
 * Method:   each shape is priced for each document, by messages in a row and what a message takes (the profile of the
 *           cluster's GPU, simulate/recurrent_walk.h). The whole takes as long as its slowest document or its busiest
 *           port. All documents may have one shape; or only those whose chain would be slower than the whole have
 *           another one, because a chain moves least. This is done for 1, 2, 4, ... parts of the heads.
 * Cost:     linear in stretches, for each number of parts.
 */
#include "compiler/recurrent/scan_shapes.h"

#include <string.h>

/* gather: a document of more stops moves more bytes by it than it can save. STEPS_WANTED: heads are not cut further if
 * that makes more messages than this, so that plans of very many ranks stay small. */
enum { GATHER_MOST = 4, STEPS_WANTED = 1 << 20 };

static fcp_fabric edge(const recurrent_batch *b, const scan_document *d, uint32_t stop) {
    return recurrent_fabric(b, scan_at(d, d->stops[stop])->rank, scan_at(d, d->stops[stop + 1])->rank);
}

/* Adds `takes[f]` to both ports of each edge on fabric f, and to *most the largest sums. */
static void add_edges(recurrent_batch *b, const scan_document *d, const uint64_t takes[FCP_FABRICS],
                      uint64_t most[FCP_FABRICS]) {
    for (uint32_t s = 0; s + 1 < d->stop_count; s++) {
        const fcp_fabric f = edge(b, d, s);
        for (int dir = 0; dir < 2; dir++) {
            const uint32_t rank = scan_at(d, d->stops[s + (uint32_t)dir])->rank;
            uint64_t *port = &b->ports[((size_t)rank * FCP_FABRICS + (size_t)f) * 2 + (size_t)dir];
            *port += takes[f];
            if (*port > most[f]) most[f] = *port;
        }
    }
}
static void clear_ports(recurrent_batch *b) {
    memset(b->ports, 0, (size_t)b->ranks * FCP_FABRICS * 2 * sizeof *b->ports);
}

/* Finds the stops of a document, and the edges between them. */
static void find_stops(recurrent_batch *b, scan_document *d) {
    uint32_t inside = 1;
    for (uint32_t k = 0; k < d->count; k++)
        if (!k || scan_at(d, k)->rank != scan_at(d, k - 1)->rank) d->stops[d->stop_count++] = k;
    d->stops[d->stop_count] = d->count;
    d->inside = 1;
    for (uint32_t s = 0; s + 1 < d->stop_count; s++) {
        const fcp_fabric f = edge(b, d, s);
        d->edges[f]++;
        inside = f == FCP_LOCAL ? inside + 1 : 1;
        if (inside > d->inside) d->inside = inside;
    }
}

fcp_code scan_list(recurrent_batch *b, bool descends, scan_documents *out) {
    const uint64_t one[FCP_FABRICS] = {1, 1};
    uint64_t most[FCP_FABRICS] = {0, 0};
    uint32_t *stops = ARENA_NEW(b->scratch, uint32_t, 2 * (size_t)b->cut_count + 1);
    *out = (scan_documents){.at = ARENA_NEW(b->scratch, scan_document, b->cut_count + (size_t)1)};
    if (!stops || !out->at) return FCP_E_NO_MEMORY;
    clear_ports(b);
    for (uint32_t i = 0, end; i < b->cut_count; i = end) {
        for (end = i + 1; end < b->cut_count && recurrent_follows(&b->cut[i], &b->cut[end]); end++) {}
        scan_document d = {.first = &b->cut[i],
                           .count = end - i,
                           .descends = descends,
                           .stops = stops,
                           .shape = FCP_SCAN_CHAIN};
        find_stops(b, &d);
        add_edges(b, &d, one, most);
        stops += d.stop_count + 1;
        out->at[out->count++] = d;
    }
    for (int f = 0; f < FCP_FABRICS; f++) out->degree[f] = (uint32_t)most[f];
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

static uint32_t log2_up(uint32_t x) { return x > 1 ? 32 - (uint32_t)__builtin_clz(x - 1) : 0; }

/* What a document costs by each shape, if nothing else is in the way. */
typedef struct document_price {
    uint64_t of[FCP_SCAN_SHAPES];
} document_price;

static document_price price_document(const scan_document *d, const part_price *x, uint32_t parts) {
    document_price out = {.of = {[FCP_SCAN_NONE] = UINT64_MAX, [FCP_SCAN_MIXED] = UINT64_MAX}};
    const uint32_t nodes = d->edges[FCP_NET] + 1;
    const fcp_fabric wide = nodes > 1 ? FCP_NET : FCP_LOCAL;
    const uint64_t level = x->whole[wide] + x->state[wide], local = x->whole[FCP_LOCAL] + x->state[FCP_LOCAL];
    const uint64_t others = (parts - 1) * x->whole[wide];
    out.of[FCP_SCAN_CHAIN] = d->edges[FCP_NET] * x->state[FCP_NET] + d->edges[FCP_LOCAL] * x->state[FCP_LOCAL] +
                             (d->stop_count > 1 ? (parts - 1) * x->state[wide] : 0);
    out.of[FCP_SCAN_TREE] = log2_up(d->stop_count) * level + others;
    out.of[FCP_SCAN_NODES] =
        nodes > 1 && d->inside > 1 ? log2_up(nodes) * level + log2_up(d->inside) * local + others : UINT64_MAX;
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

/* What the busiest port carries. By a chain, the state of each stop; by other shapes, about that and a summary as well.
 * */
static uint64_t busiest_port(recurrent_batch *b, const scan_documents *list, const part_price *x, scan_way way) {
    uint64_t chain[FCP_FABRICS], other[FCP_FABRICS], most[FCP_FABRICS] = {0, 0};
    bool alike = true;
    for (int f = 0; f < FCP_FABRICS; f++) {
        chain[f] = way.parts * x->state[f];
        other[f] = way.parts * (x->state[f] + x->whole[f]);
    }
    for (uint32_t i = 1; i < list->count; i++) alike &= list->at[i].shape == list->at[0].shape;
    if (alike && list->count)
        for (int f = 0; f < FCP_FABRICS; f++)
            most[f] = list->degree[f] * (list->at[0].shape == FCP_SCAN_CHAIN ? chain : other)[f];
    else {
        clear_ports(b);
        for (uint32_t i = 0; i < list->count; i++)
            add_edges(b, &list->at[i], list->at[i].shape == FCP_SCAN_CHAIN ? chain : other, most);
    }
    return most[0] > most[1] ? most[0] : most[1];
}

/* Gives documents shapes, and returns the time that this is expected to take. With FCP_SCAN_MIXED a document whose
 * chain is no longer than the whole must take anyway, because of another document or of a busy port, has a chain;
 * others have what is fastest for them. */
static uint64_t shape_all(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, scan_way way) {
    const part_price x = price_part(b->links, layer, way.parts);
    const bool mixed = way.shape == FCP_SCAN_MIXED;
    uint64_t least = 0, all = 0;
    for (uint32_t i = 0; i < list->count; i++) list->at[i].shape = mixed ? FCP_SCAN_CHAIN : way.shape;
    if (mixed) least = busiest_port(b, list, &x, way);
    for (uint32_t i = 0; i < list->count && mixed; i++) {
        const document_price of = price_document(&list->at[i], &x, way.parts);
        const uint64_t best = of.of[fastest(&of)];
        if (best > least) least = best;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const document_price of = price_document(&list->at[i], &x, way.parts);
        if (mixed && of.of[FCP_SCAN_CHAIN] > least) list->at[i].shape = fastest(&of);
        if (of.of[list->at[i].shape] == UINT64_MAX)
            list->at[i].shape = FCP_SCAN_CHAIN; /* too long for it, or on one node */
        if (of.of[list->at[i].shape] > all) all = of.of[list->at[i].shape];
    }
    const uint64_t port = busiest_port(b, list, &x, way);
    return port > all ? port : all;
}

void scan_shape(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, scan_way way) {
    shape_all(b, layer, list, way);
}

uint32_t scan_ways(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, scan_way out[SCAN_WAYS]) {
    static const fcp_scan_shape shapes[] = {FCP_SCAN_MIXED, FCP_SCAN_CHAIN, FCP_SCAN_NODES, FCP_SCAN_TREE};
    uint64_t times[SCAN_WAYS], stops = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < list->count; i++) stops += list->at[i].stop_count;
    for (uint32_t parts = 1; count + sizeof shapes / sizeof *shapes <= SCAN_WAYS; parts *= 2) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const scan_way way = {shapes[i], parts};
            if (fcp_stop_asked(b->stop)) return 0;
            const uint64_t time = shape_all(b, layer, list, way);
            uint32_t at = count++;
            for (; at && times[at - 1] > time; at--) times[at] = times[at - 1], out[at] = out[at - 1];
            times[at] = time;
            out[at] = way;
        }
        if (layer->heads % (2 * parts) || stops * 2 * parts > STEPS_WANTED) break;
    }
    return count;
}

fcp_scan_shape scan_shape_of(const scan_documents *list) {
    fcp_scan_shape shape = FCP_SCAN_NONE;
    for (uint32_t i = 0; i < list->count; i++) {
        const scan_document *d = &list->at[i];
        if (d->stop_count > 1) shape = shape == FCP_SCAN_NONE || shape == d->shape ? d->shape : FCP_SCAN_MIXED;
    }
    return shape;
}
