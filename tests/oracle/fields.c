/* fields.c: judges the prelude's masks of fields. Each is compiled, saved, loaded and run forward and backward, and the
 * result is held against attention under the mask's definition in C. */
#include <criterion/criterion.h>

#include "tests/support/known_fields.h"
#include "tests/oracle/judge.h"

static const random_program *current; /* whose fields the definition reads */
static const known_field_mask *known;

static bool allow(const int64_t *params, int64_t q, int64_t k, int64_t n) {
    const int64_t *const fields[KNOWN_FIELDS] = {current->views[0].at, current->views[1].at};
    return known->allow(fields, params[0], q, k, n);
}

static void judge_mask(random_program *p, unsigned number) {
    static const int64_t param = 37;
    static const uint64_t lengths[] = {300, 1, 515, 128};
    memset(p, 0, sizeof *p);
    known = &KNOWN_FIELD_MASKS[number];
    current = p;
    p->allow = allow;
    p->params = &param;
    p->views = p->view_room;
    p->field_count = KNOWN_FIELDS;
    p->heads = 2, p->kv_heads = 1 + number % 2, p->head_dim = p->value_dim = 8;
    p->nodes = 1 + number % 2, p->gpus = 2, p->backward = true, p->dtype = FCP_FP32;
    uint64_t state = number + 1;
    for (p->sequences = 0; p->sequences < 4; p->tokens += lengths[p->sequences++]) {
        int64_t *const at[KNOWN_FIELDS] = {p->fields[0] + p->tokens, p->fields[1] + p->tokens};
        p->lengths[p->sequences] = lengths[p->sequences];
        known->draw(at, (int64_t)lengths[p->sequences], &state);
    }
    p->key_tokens = p->tokens;
    put(p, "model { heads = 2; kv_heads = %u; head_dim = 8; dtype = fp32 }\ncluster { nodes = %u; gpus = 2 }\n"
           "batch { lengths = [300, 1, 515, 128]\n", p->kv_heads, p->nodes);
    for (uint32_t f = 0; f < KNOWN_FIELDS; f++) put_field(p, f);
    put(p, "}\nplan { mask = ");
    put(p, known->call, (int)param);
    put(p, "; block = 128; strategy = %s(coalesce = %u) }\n", number % 5 == 4 ? "zigzag" : "fcp", 1 + number % 3);
    dice d = {.state = number * UINT64_C(0x9e3779b97f4a7c15) + 1};
    cr_assert_eq(check_program(number, p, &d, true), PLANNED, "%s", known->call);
}

Test(oracle_fields, forward_and_backward) {
    random_program *p = zeros(1, sizeof *p);
    for (unsigned i = 0; i < KNOWN_FIELD_MASK_COUNT; i++) judge_mask(p, i);
    free(p);
}
