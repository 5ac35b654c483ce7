/* strategies.c: the parameters of the strategies, as a table. */
#include "compiler/sema/strategies.h"

#include <string.h>

const strategy_param strategy_params[STRATEGY_PARAMS] = {
    {"coalesce", 1, 64, 16, offsetof(struct fcpc_program, coalesce)},
    {"buffers", 1, 8, 3, offsetof(struct fcpc_program, buffers)},
};

uint32_t strategy_find_param(const char *name) {
    uint32_t i = 0;
    while (i < STRATEGY_PARAMS && strcmp(strategy_params[i].name, name)) i++;
    return i;
}
