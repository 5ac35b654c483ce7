/* other_masks.h: chooses one set of homes for several masks: layers = [causal, window(w = 4096)].
 *
 * Example: two ranks have equal work under the causal mask. One of them owns a long sequence, the other many short
 * ones. Under the window the long sequence loses most of its pairs, so the first rank has less work than the second.
 * The ranks exchange blocks until neither has much more than the mean under either mask.
 */
#ifndef FCPC_PASSES_OTHER_MASKS_H
#define FCPC_PASSES_OTHER_MASKS_H
#include "compiler/passes/given.h"

/* Masks that are to have the same homes: all those of a program. One planning chooses the homes; it plans mask number
 * `planned`. */
typedef struct other_masks {
    const fcpc_program *program;
    uint32_t planned;
} other_masks;

/* The program with mask number i. */
const fcpc_program *masks_program(const fcpc_program *program, uint32_t i);
/* A program of one mask, with the strategy, its parameters and the size of blocks that were chosen for another mask. */
struct fcpc_program masks_with_settings(const fcpc_program *program, const struct fcpc_program *chosen);
/* Changes homes that the strategy has balanced under its own mask so that they are balanced under all masks: as far as
 * moving blocks can reach it, no rank has more work under a mask than the mean, the tolerance and a tenth of the mean.
 * Reads x->other_work. */
fcp_code masks_balance(planning *x, const place_input *in, uint32_t *home);
#endif
