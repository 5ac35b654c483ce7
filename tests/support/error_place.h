/* error_place.h: reads from the message of a failed run the place in the plan that it names (rank, stage, instruction)
 * and the numbers beside it, so that a test can compare them with the plan. */
#ifndef ERROR_PLACE_H
#define ERROR_PLACE_H
#include <stdio.h>
#include <string.h>

#include "runtime/fcp.h"

/* Whether the message begins with the place of an instruction, and err->where is that place. */
static inline bool error_place_agrees(const fcp_error *err) {
    unsigned rank, stage, instruction;
    char pass[16], queue[16], text[sizeof err->message];
    snprintf(text, sizeof text, "%s", err->message);
    for (int i = 0; i < 2; i++) { /* "before instruction", "behind instruction" */
        char *word = strstr(text, i ? "behind instruction" : "before instruction");
        if (word) memmove(word, word + 7, strlen(word + 7) + 1);
    }
    if (sscanf(text, "rank %u, %15s pass, stage %u, instruction %u of the %15s queue", &rank, pass, &stage,
               &instruction, queue) != 5)
        return false;
    const fcp_where *w = &err->where;
    return w->rank == rank && w->pass == (strcmp(pass, "backward") == 0) && w->stage == stage &&
           w->instruction == instruction && w->queue == (strcmp(queue, "communication") == 0);
}
#endif
