/* strategies.c: a line of facts for each strategy, and a line for each parameter that some of them take. */
#include "compiler/sema/strategies.h"
#include "runtime/plan/enum_names.h"

#include <string.h>

#include "compiler/syntax/words.h"

#define OF(id) (1u << FCP_STRATEGY_##id)
enum { ALL = (1u << FCP_STRATEGY_COUNT) - 1, AUTO = 1u << STRATEGY_AUTO };

#define X(id, name) [id] = name,
const char *const strategy_names[STRATEGY_ANY] = {FCP_STRATEGY_LIST(X)[STRATEGY_AUTO] = "auto"};
#undef X

const strategy_facts strategy_facts_of[STRATEGY_ANY] = {
    [FCP_STRATEGY_FCP] = {HOMES_CHOSEN, BETWEEN_BATCH, .serves_all_masks = true},
    [FCP_STRATEGY_RING] = {HOMES_CHOSEN, BETWEEN_KEYS, .even = 1},
    [FCP_STRATEGY_ZIGZAG] = {HOMES_CHOSEN, .even = 2},
    [FCP_STRATEGY_CAD] = {HOMES_BASE, BETWEEN_BATCH},
    [FCP_STRATEGY_ULYSSES] = {HOMES_CALLER},
    [FCP_STRATEGY_UPIPE] = {HOMES_CALLER},
    [FCP_STRATEGY_DCP] = {HOMES_LAYOUT, BETWEEN_BATCH, .serves_all_masks = true, .slow_tiles = true},
    [FCP_STRATEGY_GROUPS] = {HOMES_LAYOUT, .packs_sequences = true, .by_times = true},
};

static const char *const placings[FCP_PLACINGS] = {[PLACE_NEAR] = "near", [PLACE_LPT] = "lpt"};
static const char *const splits[] = {"off", "auto"};
static const char *const shapes[GROUPS_SHAPES] = {[GROUPS_ZIGZAG] = "zigzag", [GROUPS_RING] = "ring"};
static const char *const in_place[] = {"in_place"}, *const node[] = {"node"}, *const least[] = {"least"};
static const char *const divided[] = {"divided"}, *const step[] = {"step"}, *const off[] = {"off"};
static const char *const sends[RING_SENDS] = {[RING_AROUND] = "around", [RING_DIRECT] = "direct"};
static const char *const decides[] = {"auto"};
#define X(id, name) [CAD_BASE_##id] = name,
static const char *const bases[CAD_BASE_COUNT] = {CAD_BASES(X)};
#undef X

#define IN(member) offsetof(struct fcpc_program, member)
const strategy_param strategy_params[STRATEGY_PARAMS] = {
    /* who shares heads has stages for what travels together */
    {"coalesce", OF(FCP) | OF(CAD) | OF(GROUPS), PARAM_COUNT, 1, 64, 16, IN(coalesce), NULL, true},
    {"coalesce", OF(RING) | OF(ZIGZAG), PARAM_COUNT, 1, 64, 0, IN(coalesce), step, true},
    {"coalesce", OF(DCP), PARAM_COUNT, 1, 64, 0, IN(coalesce), divided, true},
    {"buffers", ALL & ~OF(UPIPE), PARAM_COUNT, 1, 8, 3, IN(buffers), NULL, true},
    /* more would keep the slots of more than one phase */
    {"buffers", OF(UPIPE), PARAM_COUNT, 1, 8, 1, IN(buffers), NULL, true},
    {"send", OF(RING) | OF(ZIGZAG), PARAM_WORD, 0, RING_SENDS - 1, RING_AROUND, IN(send), sends},
    {"tolerance", OF(FCP), PARAM_RATIO, 1000, 1000000, 5000, IN(tolerance), NULL},
    {"place", OF(FCP), PARAM_WORD, 0, FCP_PLACINGS - 1, PLACE_NEAR, IN(place), placings},
    {"split", OF(FCP), PARAM_WORD, 0, 1, 1, IN(split), splits},
    {"tolerance", OF(CAD), PARAM_RATIO, 1000, 1000000, 20000, IN(tolerance), NULL},
    {"base", OF(CAD), PARAM_WORD, 0, CAD_BASE_COUNT - 1, CAD_BASE_CALLER, IN(base), bases},
    {"servers", OF(CAD), PARAM_COUNT, 1, 1 << 20, 0, IN(servers), in_place},
    {"shard", OF(CAD), PARAM_COUNT, 1, 1 << 20, FCP_CELL, IN(shard), NULL},
    {"pingpong", OF(CAD), PARAM_FLAG, 0, 1, 0, IN(pingpong), NULL},
    {"tokens", OF(GROUPS), PARAM_COUNT, 1, (1 << 24) - 1, 1 << 16, IN(tokens), NULL},
    {"shape", OF(GROUPS), PARAM_WORD, 0, GROUPS_SHAPES - 1, GROUPS_ZIGZAG, IN(shape), shapes},
    {"inside", OF(ULYSSES) | OF(UPIPE), PARAM_COUNT, 1, 1 << 20, 0, IN(inside), node},
    {"heads", OF(UPIPE), PARAM_COUNT, 1, 4096, 0, IN(together), least},
    {"epsilon_compute", OF(DCP), PARAM_RATIO, 1000, 100000000, 100000, IN(tolerance), NULL},
    {"epsilon_memory", OF(DCP), PARAM_RATIO, 1000, 100000000, 100000, IN(epsilon_memory), NULL},
    {"epsilon_nodes", OF(DCP), PARAM_RATIO, 1000, 100000000, 0, IN(epsilon_nodes), off},
    {"divisions", OF(DCP), PARAM_COUNT, 2, 64, 0, IN(divisions), decides, true},
    {"effort", AUTO, PARAM_COUNT, 1, 3, 1, IN(effort), NULL},
    {"budget", AUTO, PARAM_TIME, 1, 3600000000, 0, IN(budget), decides},
    {"among", AUTO, PARAM_SET, 0, FCP_STRATEGY_COUNT - 1, ALL, IN(among), fcp_strategy_names},
    {"coalesce", AUTO, PARAM_COUNT, 1, 64, 0, IN(coalesce), decides, true},
    {"buffers", AUTO, PARAM_COUNT, 1, 8, 0, IN(buffers), decides, true},
};

uint32_t strategy_find_param(uint32_t strategy, const char *name) {
    uint32_t i = 0;
    while (i < STRATEGY_PARAMS && (!strategy_takes(strategy, i) || !words_same(strategy_params[i].name, name))) i++;
    return i;
}

uint32_t strategy_param_names(uint32_t strategy, const char *out[STRATEGY_PARAMS]) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < STRATEGY_PARAMS; i++)
        if (strategy_takes(strategy, i) && strategy_find_param(strategy, strategy_params[i].name) == i)
            out[count++] = strategy_params[i].name;
    return count;
}

bool strategy_keeps_homes(const struct fcpc_program *p) {
    switch (strategy_facts_of[program_divides_by(p)].homes) {
    case HOMES_CALLER: return true;
    case HOMES_LAYOUT: return p->layout != FCP_LAYOUT_PLANNED;
    case HOMES_BASE: return p->base == CAD_BASE_CALLER;
    default: return false;
    }
}
