/* prelude.c: judges the prelude's masks. Each is compiled, saved, loaded and run forward and backward, and the result
 * is held against attention under the mask's definition in C. In `make check` a third of the masks is run, each by its
 * first case; of the others the plan's pairs are counted. */
#include <criterion/criterion.h>

#include "tests/support/known_masks.h"
#include "tests/oracle/judge.h"
#include "tests/support/amount.h"

static void judge_case(random_program *p, const known_case *x, unsigned seed, bool execute) {
    char call[KNOWN_CALL];
    memset(p, 0, sizeof *p);
    p->allow = KNOWN[x->mask].allow;
    p->params = x->p;
    p->heads = 2, p->kv_heads = 1 + seed % 2, p->head_dim = p->value_dim = 8;
    p->nodes = 1 + seed % 2, p->gpus = 2, p->backward = true, p->dtype = FCP_FP32;
    for (; p->sequences < 4 && x->lengths[p->sequences]; p->sequences++) {
        p->lengths[p->sequences] = x->lengths[p->sequences];
        p->tokens += x->lengths[p->sequences];
        p->key_tokens += x->lengths[p->sequences];
    }
    int at = snprintf(p->text, sizeof p->text,
                      "model { heads = 2; kv_heads = %u; head_dim = 8; dtype = fp32 }\n"
                      "cluster { nodes = %u; gpus = 2 }\n"
                      "plan { mask = %s; block = 128; strategy = %s(coalesce = %u) }\nbatch { lengths = [",
                      p->kv_heads, p->nodes, known_call(&KNOWN[x->mask], x->p, call), seed % 5 == 4 ? "zigzag" : "fcp",
                      1 + seed % 3);
    for (uint32_t i = 0; i < p->sequences; i++)
        at += snprintf(p->text + at, sizeof p->text - (size_t)at, "%s%llu", i ? ", " : "",
                       (unsigned long long)p->lengths[i]);
    p->size = (size_t)(at + snprintf(p->text + at, sizeof p->text - (size_t)at, "] }\n"));
    dice d = {.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    cr_assert_eq(check_program(seed, p, &d, execute), PLANNED, "%s", call);
}

Test(oracle_prelude, forward_and_backward) {
    random_program *p = zeros(1, sizeof *p);
    bool seen[KNOWN_MASKS] = {false};
    for (unsigned i = 0; i < KNOWN_CASE_COUNT; i++) {
        bool *mask = &seen[KNOWN_CASES[i].mask];
        judge_case(p, &KNOWN_CASES[i], i, amount(!*mask && KNOWN_CASES[i].mask % 3 == 0, true));
        *mask = true;
    }
    free(p);
}
