/* test_relay_time.c: tests the predicted time of plans with `relay = auto`: never much more than with `off`, and if all
 * ranks read the blocks of one rank, about the least time that a tree can take. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "compiler/fcpc.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/predicted.h"

/* The predicted milliseconds of both passes. */
typedef struct times {
    double forward, backward;
} times;

static times predict(const char *source) {
    fcp_plan *plan = plan_of(source);
    uint64_t passes[FCP_PASSES];
    predict_passes(plan, passes);
    fcp_plan_free(plan);
    return (times){(double)passes[FCP_FORWARD] / 1e9, (double)passes[FCP_BACKWARD] / 1e9};
}

typedef struct machine {
    unsigned nodes, gpus, rate; /* GB/s of a port */
} machine;

static times predict_on(machine m, const char *relay, const char *mask, const char *strategy, const char *layout,
                            const char *lengths) {
    char source[800];
    snprintf(source, sizeof source,
             "mask head(w = 2048) = k < w\nmodel { heads = 64; kv_heads = 8; head_dim = 128 }\n"
             "cluster { nodes = %u; gpus = %u; gpu = h200; inter = %u GB/s }\nbatch { lengths = [%s] }\n"
             "plan { mask = %s; layout = %s; strategy = %s; relay = %s }\n",
             m.nodes, m.gpus, m.rate, lengths, mask, layout, strategy, relay);
    return predict(source);
}

/* 2,048 tokens take 8.39 ms from node to node. In three such steps they are at eight nodes, in five at 32. */
Test(relay_time, head_of_one_rank) {
    static const struct {
        machine on;
        const char *lengths;
        double steps, off;
    } cases[] = {{{8, 1, 1}, "16K", 3, 7}, {{32, 1, 1}, "64K", 5, 31}};
    const double step = 2048 * 8 * 128 * 2 * 2 / 1e6;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int s = 0; s < 3; s++) {
            static const char *const strategies[] = {"cad(tolerance = 1.0)", "dcp", "ring(send = direct)"};
            const times with = predict_on(cases[i].on, "auto", "head", strategies[s], "contiguous",
                                              cases[i].lengths);
            const times without = predict_on(cases[i].on, "off", "head", strategies[s], "contiguous",
                                                 cases[i].lengths);
            cr_expect_leq(with.forward, cases[i].steps * step + 0.5, "%s: %.1f ms", strategies[s], with.forward);
            cr_expect_geq(without.forward, cases[i].off * step);
            /* dKV comes back in fp32, so a step there and back takes three times as long */
            cr_expect_leq(with.backward, 3 * cases[i].steps * step + 2, "%s: %.1f ms", strategies[s], with.backward);
        }
}

/* Over masks, strategies, machines and lists, some of which gain and some of which do not. */
Test(relay_time, never_much_slower) {
    static const char *const masks[] = {"head", "causal", "lambda", "shared_question", "head(w = 16K)",
                                        "causal_blockwise", "global_window(g = 1024, w = 512)"};
    static const char *const strategies[] = {
        "fcp", "cad", "dcp", "ring(send = direct)", "groups", "zigzag(send = direct)"};
    static const machine machines[] = {{8, 1, 1}, {4, 8, 25}, {16, 2, 200}, {4, 1, 25}, {2, 4, 25}, {1, 8, 25}};
    static const char *const layouts[] = {"planned", "contiguous"};
    const unsigned amount_of = amount(40, 252);
    unsigned gained = 0, all = 0, slower = 0;
    double worst = 0, best = 1;
    for (unsigned i = 0; i < 252; i++) {
        const unsigned at = i * 101 % 252; /* all, in another order */
        const machine on = machines[at % 6];
        char lengths[80];
        const unsigned tokens = on.nodes * on.gpus * 8;
        if (i >= amount_of) break;
        if (at / 7 % 2) snprintf(lengths, sizeof lengths, "%uK", tokens);
        else snprintf(lengths, sizeof lengths, "%uK, %uK, %uK x 2", tokens / 2, tokens / 4, tokens / 8);
        const char *mask = masks[at % 7], *strategy = strategies[at / 42], *layout = layouts[at / 6 % 2];
        const times with = predict_on(on, "auto", mask, strategy, layout, lengths);
        const times without = predict_on(on, "off", mask, strategy, layout, lengths);
        const double part = (with.forward + with.backward) / (without.forward + without.backward);
        all++, gained += part < 0.99, slower += part > 1.02;
        if (part > worst) worst = part;
        if (part < best) best = part;
        cr_expect_leq(part, 1.15, "%u x %u at %u GB/s, %s, %s, %s, %s: %.3f", on.nodes, on.gpus, on.rate, mask,
                      strategy, layout, lengths, part);
    }
    fprintf(stderr, "relay: of %u plans %u take less, %u more than 2 %% more; from %.3f to %.3f\n", all, gained, slower,
            best, worst);
    cr_expect(gained >= all / 8 && slower <= all / 40 + 1 && best < 0.7);
}
