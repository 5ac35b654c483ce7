/* recurrent_figures.h: what the layers that recur cost: messages, bytes and rounds of each kind, from a plan's tables. */
#ifndef FCPC_SHOW_RECURRENT_FIGURES_H
#define FCPC_SHOW_RECURRENT_FIGURES_H
#include "compiler/base/json.h"
#include "runtime/plan/recurrent.h"

/* Of one layer in one pass; all ranks together. Sizes that do not fit in 64 bits are UINT64_MAX. */
typedef struct recurrent_network {
    uint64_t messages, bytes, bytes_inter_node;
    uint64_t send_max; /* bytes that the rank sends which sends most */
    uint32_t rounds, bound;
} recurrent_network;

typedef struct recurrent_figures {
    const fcp_recurrent *layer;
    uint64_t stretches; /* of all ranks */
    uint32_t passes;    /* a bit for each pass that has a network */
    recurrent_network pass[FCP_PASSES];
} recurrent_figures;

/* The figures of kind `number`, which the plan must have. The plan is whole and indexed. A halo's gradient goes the
 * same ways back, so it costs the same. Cost: linear in the spans of the layout, and in the steps of the kind. */
recurrent_figures recurrent_figures_of(const fcp_plan *plan, uint32_t number);
/* The number of stretches of all ranks. */
uint64_t recurrent_stretches(const fcp_plan *plan);

/* Writes what the kind is and what it costs, in one line: "36 layers of ...; 85 stretches; each layer forward: 79 messages, ...". */
enum { RECURRENT_SENTENCE = 512 };
const char *recurrent_sentence(char out[RECURRENT_SENTENCE], const recurrent_figures *f);
/* Adds the member `recurrent`, a list with an object for each kind. */
void recurrent_json(json *j, const fcp_plan *plan);
#endif
