/* scan_shapes.h: the documents of a scan, and by which shape the states of each travel. */
#ifndef FCPC_RECURRENT_SCAN_SHAPES_H
#define FCPC_RECURRENT_SCAN_SHAPES_H
#include "compiler/recurrent/recurrent_make.h"

/* A document that is cut, in the order in which states run. A stop is its neighbouring stretches at one rank. */
typedef struct scan_document {
    const cut_stretch *first; /* of the document, in the order of the batch */
    uint32_t count;           /* stretches */
    bool descends;            /* states run from the last stretch to the first */
    uint32_t *stops;          /* stop s has stretches stops[s] to stops[s + 1] - 1, counted as states run */
    uint32_t stop_count;
    uint32_t edges[FCP_FABRICS]; /* from stop to stop */
    uint32_t inside;             /* the most stops in a row that are on one node */
    fcp_scan_shape shape;
} scan_document;
typedef struct scan_documents {
    scan_document *at;
    uint32_t count;
    uint32_t degree[FCP_FABRICS]; /* the most edges that leave a rank, or come to one, on a fabric */
} scan_documents;

/* Stretch i of a document, counted as states run. */
static inline const cut_stretch *scan_at(const scan_document *d, uint32_t i) {
    return d->first + (d->descends ? d->count - 1 - i : i);
}
fcp_code scan_list(recurrent_batch *b, bool descends, scan_documents *out);
/* Where a tree over stops low to high - 1 divides. `nodes`: between nodes, where there are several. */
uint32_t scan_middle(const recurrent_batch *b, const scan_document *d, uint32_t low, uint32_t high, bool nodes);
enum { SCAN_WAYS = 32 };
/* Lists ways, the one that is expected to be fastest first, and returns how many; 0: it was stopped. */
uint32_t scan_ways(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, scan_way out[SCAN_WAYS]);
/* Gives each document its shape. */
void scan_shape(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, scan_way way);
/* What the documents have that need messages: one shape, FCP_SCAN_MIXED, or FCP_SCAN_NONE if none needs any. */
fcp_scan_shape scan_shape_of(const scan_documents *list);
#endif
