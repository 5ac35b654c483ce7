/* price.h: what a layout costs that the caller's tokens are in. */
#ifndef FCPC_PRICE_H
#define FCPC_PRICE_H
#include "compiler/planning/planning.h"

/* Warns where one rank's part of the reshuffle, or the queries that leave it and their results, take longer on a fabric
 * than the mean rank computes, and a millisecond at least. Needs traffic and reshuffle. Cost: linear in both. */
fcp_code price_warn(planning *x);
#endif
