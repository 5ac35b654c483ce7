/* oracle.c: draws random programs and has the judge compare them with brute force. All programs are planned, and some
 * are also run. */
#include <criterion/criterion.h>

#include "tests/oracle/judge.h"
#include "tests/support/amount.h"

enum { EVERYTHING = DRAW_ALL | DRAW_SHAPED };

static unsigned count_from_environment(const char *name, unsigned otherwise) {
    const char *text = getenv(name);
    return text && *text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

/* ORACLE_SEED=N: other programs. */
static unsigned first_seed(unsigned otherwise) { return count_from_environment("ORACLE_SEED", 0) + otherwise; }

static void draw_seed(random_program *p, dice *d, unsigned seed, uint64_t budget, unsigned features) {
    *d = dice_of(seed, 88172645463325252u);
    draw_program_with(p, d, budget, features);
}

/* choose: auto chooses the strategies. */
static void sweep(unsigned first, unsigned count, uint64_t budget, bool execute, bool choose, unsigned features) {
    random_program *p = zeros(1, sizeof *p);
    unsigned results[2] = {0};
    for (unsigned seed = first; seed < first + count; seed++) {
        dice d;
        draw_seed(p, &d, seed, budget, features);
        if (choose) draw_auto(p, &d, 1);
        results[check_program(seed, p, &d, execute)]++;
    }
    fprintf(stderr, "oracle: %u programs: %u planned%s, %u with a fault\n", count, results[PLANNED],
            execute ? " and run" : "", results[FAULTED]);
    cr_assert(results[PLANNED] >= count / 4, "too few programs were planned for this test to mean anything");
    free(p);
}

Test(oracle, plans) {
    sweep(first_seed(1), count_from_environment("ORACLE_PLANS", amount(30, 200)), 300000, false, false, EVERYTHING);
}
Test(oracle, runs) {
    sweep(first_seed(100001), count_from_environment("ORACLE_RUNS", amount(5, 60)), 120000, true, false, EVERYTHING);
}
Test(oracle, strategies_of_auto) {
    sweep(first_seed(300001), count_from_environment("ORACLE_PLANS", amount(60, 200)), 20000, false, true, EVERYTHING);
}

/* Masks of which most rows need a few keys: blocks are divided into those and the rest. */
Test(oracle, few_keys) {
    sweep(first_seed(400001), count_from_environment("ORACLE_PLANS", amount(1, 4)), 14000000, false, false,
          EVERYTHING | DRAW_FEW_KEYS);
    sweep(first_seed(500001), count_from_environment("ORACLE_RUNS", amount(1, 4)), 14000000, true, false,
          EVERYTHING | DRAW_FEW_KEYS);
}

/* Programs with everything at once: a score, a mask or score of fields, queries that are not as many as keys, and
 * gradients; as many of each strategy, and of those that divide a batch among groups which share heads. */
Test(oracle, all_together) {
    enum { STRATEGIES = FCP_STRATEGY_COUNT, KINDS = STRATEGIES + 1 };
    random_program *p = zeros(1, sizeof *p);
    unsigned each = count_from_environment("ORACLE_TOGETHER", amount(1, 4)), done[KINDS] = {0}, all = 0, drawn = 0;
    for (unsigned seed = first_seed(200001); all < KINDS * each; seed++) {
        dice d;
        draw_seed(p, &d, seed, 60000, EVERYTHING);
        bool split = false, field = p->uses_field || p->score.uses_field;
        for (uint32_t s = 0; s < p->sequences; s++) split |= queries_of(p, s) != p->lengths[s];
        cr_assert(drawn++ < 4000 * each, "too few programs are planned");
        const int which = p->joined ? STRATEGIES : p->strategy;
        if (!split || !p->score.root || !field || !p->backward || done[which] == each) continue;
        if (check_program(seed, p, &d, true) != PLANNED) continue;
        done[which]++;
        all++;
    }
    fprintf(stderr, "oracle: %u programs with a score, fields and unequal queries, forward and backward\n", all);
    free(p);
}
