/* index_order.h: warns of fields whose indices look swapped, or are those of other heads. */
#ifndef FCPC_SEMA_INDEX_ORDER_H
#define FCPC_SEMA_INDEX_ORDER_H
#include "compiler/sema/sema.h"

/* Warns, once for each field, of
 * - a field over queries and keys that is read with keys first, keep[k / 128, q / 128], and never otherwise;
 * - a field over heads that is read as if it were over KV heads, w[h / 4], and never otherwise. */
void sema_warn_index_order(sema *s);
#endif
