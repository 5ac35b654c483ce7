/* test_ring.c: keys that go round a ring: which way, in which stage, and how their gradients come home. */
#include "tests/support/planned.h"

enum { RANKS = 8 };

/* Does a rank other than the home read the block? */
static bool reads(const planned *x, uint32_t rank, uint32_t block) {
    for (uint32_t t = 0; t < x->p.tile_count; t++)
        if (x->p.tile_k[t] == block && x->home[x->p.tile_q[t]] == rank) return true;
    return false;
}

/* The hops of one block, which end before the one that is returned. */
static uint32_t check_block(const planned *x, uint32_t first, bool backward, const char *source) {
    const traffic *t = &x->t;
    const uint32_t block = t->hops[first].block, home = x->home[block], *back = x->s.back[FCP_BACKWARD].last;
    uint32_t f = first, needed = 0, came = 0; /* came: when the gradient comes to the rank at hand */
    bool bare = true;
    for (; f < t->count && t->hops[f].block == block; f++) {
        const hop *h = &t->hops[f];
        const uint32_t step = f - first + 1, rank = (home + step) % RANKS;
        const bool last = f + 1 == t->count || t->hops[f + 1].block != block, read = reads(x, rank, block);
        needed += read;
        bare &= !read;
        cr_assert(h->src == (home + step - 1) % RANKS && h->dst == rank, "%s", source);
        cr_assert_eq(h->parent, step == 1 ? FCP_NONE : f - 1);
        cr_assert(x->s.first_stage[f] == step && x->s.last_stage[f] == step, "%s", source);
        cr_assert(!read || (x->s.use_first[f] == step && x->s.use_last[f] == step), "%s", source);
        cr_assert(read || !last, "it goes no further than it must: %s", source);
        cr_assert(h->bare == bare && h->to == (last ? home : (rank + 1) % RANKS));
        if (!backward || bare) continue;
        const uint32_t ready = came > (read ? step : 0) ? came : step;
        cr_assert_eq(back[f], ready + 1, "a gradient is one step behind its keys: %s", source);
        came = back[f];
    }
    uint32_t all = 0;
    for (uint32_t r = 0; r < RANKS; r++) all += r != home && reads(x, r, block);
    cr_assert_eq(needed, all, "%s", source);
    return f;
}

Test(ring, keys_go_from_rank_to_rank) {
    static const char *const masks[] = {"full", "causal", "window(w = 2000)", "window_both(l = 300, r = 4000)",
                                        "lambda(sink = 100, window = 900)"};
    static const char *const strategies[] = {"ring", "zigzag", "ring(buffers = 1)", "zigzag(buffers = 8)"};
    static const char *const lengths[] = {"8192", "16384, 300, 100 x 7", "5, 9000:3000, 400:900"};
    uint32_t relays = 0, blocks = 0;
    for (unsigned i = 0; i < 5 * 4 * 3 * 2; i++) {
        char source[600];
        planned x;
        const bool backward = i % 2;
        snprintf(source, sizeof source,
                 "model { heads = 8; kv_heads = 2; head_dim = 64 }\ncluster { nodes = 2; gpus = 4 }\n"
                 "batch { lengths = [%s] }\nplan { mask = %s; strategy = %s; passes = forward%s }\n",
                 lengths[i / 40], masks[i / 2 % 5], strategies[i / 10 % 4], backward ? ", backward" : "");
        plan_passes(&x, source, 0);
        cr_assert(x.t.around && x.t.onward && !x.s.staged);
        for (uint32_t f = 0; f < x.t.count; blocks++) f = check_block(&x, f, backward, source);
        for (uint32_t f = 0; f < x.t.count; f++) relays += x.s.use_first[f] == FCP_NONE;
        planned_free(&x);
    }
    cr_assert(relays > 50 && blocks > 500, "%u relays, %u blocks", relays, blocks);
}

/* Whoever wants readers to be sent to directly says so; and on rails ways branch. */
Test(ring, other_ways) {
    static const char *const others[] = {"ring(send = direct)", "zigzag(send = direct)", "fcp", "cad(base = ring)"};
    for (size_t i = 0; i < 4 * 2; i++) {
        char source[400];
        planned x;
        snprintf(source, sizeof source,
                 "model { heads = 8; kv_heads = 2; head_dim = 64 }\ncluster { nodes = 2; gpus = 4%s }\n"
                 "batch { lengths = [8192] }\nplan { mask = full; strategy = %s }\n",
                 i < 4 ? "" : "; fabric = rail",
                 i < 4   ? others[i]
                 : i < 6 ? "ring"
                         : "zigzag");
        plan_passes(&x, source, 0);
        cr_assert_eq(x.t.around, i >= 4);
        for (uint32_t f = 0; f < x.t.count; f++)
            cr_assert(x.t.hops[f].to == x.t.hops[f].src && x.t.hops[f].onto == x.t.hops[f].parent && !x.t.hops[f].bare,
                      "%s", source);
        planned_free(&x);
    }
}
