/* forest.h: how a forest is made and held. compiler/fcpc.h says what a forest is. */
#ifndef FCPC_FOREST_FOREST_H
#define FCPC_FOREST_FOREST_H
#include "compiler/fcpc.h"

struct fcpc_forest {
    fcpc_forest_view view;
    void *memory; /* of its arrays */
};

/* Makes the forest of checked rollouts. names: [count], the caller's number of each, rising; NULL: 0, 1, 2, ... ids:
 * what the forest has as the id of a token x is ids[x]; NULL: x. So `tokens` may be rows of another forest, which no
 * two rollouts have by chance. */
fcp_code forest_grow(const fcpc_rollouts *rollouts, const uint32_t *names, const int64_t *ids, fcpc_forest **out_forest,
                     fcp_error *err);
#endif
