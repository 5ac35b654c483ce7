/* strategies.c: names and parameters of the strategies, as tables. */
#include "compiler/sema/strategies.h"

#include <string.h>

const char *const strategy_names[FCP_STRATEGY_COUNT] = {
#define X(id, name, by_block, cut, place) [FCP_STRATEGY_##id] = name,
    STRATEGIES(X)
#undef X
};

const strategy_param strategy_params[STRATEGY_PARAMS] = {
    {"coalesce", 1, 64, 16, offsetof(struct fcpc_program, coalesce)},
    {"buffers", 1, 8, 3, offsetof(struct fcpc_program, buffers)},
};

uint32_t strategy_find_param(const char *name) {
    uint32_t i = 0;
    while (i < STRATEGY_PARAMS && strcmp(strategy_params[i].name, name)) i++;
    return i;
}
