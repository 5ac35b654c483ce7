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
    fcp_scan_shape shape;
} scan_document;
typedef struct scan_documents {
    scan_document *at;
    uint32_t count;
} scan_documents;

/* Stretch i of a document, counted as states run. */
static inline const cut_stretch *scan_at(const scan_document *d, uint32_t i) {
    return d->first + (d->descends ? d->count - 1 - i : i);
}
fcp_code scan_list(recurrent_batch *b, bool descends, scan_documents *out);
/* Where a tree over stops low to high - 1 divides. `nodes`: between nodes, where there are several. */
uint32_t scan_middle(const recurrent_batch *b, const scan_document *d, uint32_t low, uint32_t high, bool nodes);
/* Chooses the shape of each document, and layer->parts unless these are `settled`; and sets layer->shape. */
fcp_code scan_choose(recurrent_batch *b, fcp_recurrent *layer, scan_documents *documents, bool settled);
#endif
