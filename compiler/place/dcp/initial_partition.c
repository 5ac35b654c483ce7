/* initial_partition.c: an initial partition by greedy growing: sequences are placed whole where they fit, and those
 * that are too heavy are cut into strips.
 *
 * Requires: what dcp.h says of a dcp_input.
 * Gives: a home for every block and a rank for every tile. No rank is over a cap, unless what was left fitted nowhere.
 * Cost: O(ranks of a component x its tiles), and for each component O(log ranks). If something fits nowhere in any way,
 *     O(components x ranks).
 * Units: pairs, tokens, bytes.
 *
 * A component is a sequence, perhaps with blocks that it shares with others (dcp.h). If it lies on one rank, it moves
 * nothing.
 *
 *   1. Strips. If a component fits on no rank, empty ranks take strips of its rows, one after the other. A strip starts
 *      with the component's last row. It grows by the row that adds least to the cut around it: the bytes of the keys
 *      that the row brings, less those of keys whose other users are all in the strip. So the rows of a window mask
 *      leave as runs, and of a causal mask the last ones leave first. What is left at the end are rows that see few
 *      keys, and cost little.
 *   2. A strip for several ranks. Rows that see very many keys are given to s ranks at once, each of which takes a
 *      segment of the keys. That costs s - 1 copies of Q and results, and saves copies of the keys. Of s = 1, 2, ...
 *      the one with fewest bytes for each pair is taken.
 *   3. The rest. What is left of these components, and all others, are placed whole, the largest first. Each goes to
 *      the rank where it leaves most room, so that all ranks keep some room for refinement.
 *   4. If something fits nowhere in step 3, both caps are tight: the ranks that strips have filled with pairs still
 *      have room for tokens, which nothing can use. Steps 1 to 3 are then repeated with smaller strips, as long as
 *      there are ranks for all strips. If that does not help either, step 3 is done once more with the strips of full
 *      size: components go where they fit most tightly, and some in parts.
 *
 * Wide rows. A few rows may see very many more keys than others do, such as the last rows of causal_blockwise. Their
 * tiles run where the keys are, and count as work of the blocks that hold those.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "compiler/base/union_find.h"
#include "compiler/place/dcp/dcp.h"

typedef struct building {
    const dcp_input *in;
    const dcp_columns *c;
    dcp_partition *out;
    uint64_t *work;             /* per block: pairs of its row */
    uint32_t *user_start, *user; /* per block: the blocks whose row or home needs its keys */
    uint32_t *homeless;         /* per block: how many of these have no home yet */
    int64_t *keys;              /* per block: bytes of all keys that its row and its home need */
    uint64_t *order, *other;    /* components by what is left of them; to sort with */
    uint32_t *last_node;        /* per component: where it was given ranks last */
    uint32_t *left, left_count; /* blocks of the component at hand that have no home yet, ascending */
    uint64_t left_work, left_tokens;
    uint32_t node;              /* where the component at hand was given ranks last */
    /* the strip at hand */
    uint32_t *pick, picks;
    uint64_t pick_work, pick_tokens;
    int64_t *extra;             /* per block: bytes by which its row in the strip makes the cut around it larger */
    uint32_t *outside;          /* per block: how many of its users have no home and are not in the strip */
    uint8_t *have, *picked;     /* per block: its keys are there; its row is in the strip */
    uint32_t *here, here_count; /* the blocks whose keys are there */
    uint64_t *column;           /* per block: pairs of its column within the strip */
    uint32_t *segment;          /* per block: the segment of its column */
    uint32_t *ranks;            /* that get the strip */
    uint64_t strip_cap;         /* pairs of a strip for one rank */
    uint32_t *empty, empties;   /* per node: its empty ranks; all of them */
    uint32_t first_empty;       /* nodes below this one have no empty rank */
    uint32_t fitting;           /* the rank on which something fitted last */
    dcp_rooms rooms;            /* while what strips have left is placed by worst fit */
    bool short_of_ranks;        /* something that fits on no rank found none that is empty */
} building;

static bool fits(const building *b, uint32_t r, uint64_t work, uint64_t tokens) {
    return b->out->load[r] + work <= b->in->pair_cap && b->out->held[r] + tokens <= b->in->token_cap;
}
static uint32_t node_count(const dcp_input *in) { return (in->ranks + in->gpus - 1) / in->gpus; }
static bool is_empty(const building *b, uint32_t r) { return !b->out->load[r] && !b->out->held[r]; }

/* --- components --------------------------------------------------------------------------------------------------- */

fcp_code dcp_find_components(const dcp_input *in, dcp_columns *c, arena *scratch) {
    uint32_t n = in->blocks, *parent = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    uint32_t *component = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    if (!parent || !component) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) parent[i] = i;
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) union_join(parent, q, in->tile_k[t]);
    c->components = union_number(parent, n, component);
    return group_new(scratch, component, sizeof *component, n, c->components, in->stop, &c->first, &c->member);
}

/* Lists the blocks of a component that have no home yet. */
static void list_left(building *b, uint32_t component) {
    b->left_count = 0;
    b->left_work = b->left_tokens = 0;
    for (uint32_t i = b->c->first[component]; i < b->c->first[component + 1]; i++) {
        uint32_t q = b->c->member[i];
        if (b->out->home[q] != FCP_NONE) continue;
        b->left[b->left_count++] = q;
        b->left_work += b->work[q];
        b->left_tokens += b->in->block[q].tokens;
    }
}

/* --- strips ------------------------------------------------------------------------------------------------------- */

/* Lists the users of each block's keys: the blocks whose rows see them, and the block itself, because the keys are at
 * its home. Rows whose tiles run where the keys are do not count. */
static fcp_code find_users(building *b, arena *scratch) {
    const dcp_input *in = b->in;
    const uint32_t n = in->blocks;
    uint32_t count = 0;
    b->user_start = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    b->user = ARENA_NEW(scratch, uint32_t, in->tile_start[n] + (size_t)n + 1);
    if (!b->user_start || !b->user) return FCP_E_NO_MEMORY;
    for (uint32_t k = 0; k < n; k++) {
        bool own = false;
        b->user_start[k] = count;
        for (uint32_t i = b->c->start[k]; i < b->c->start[k + 1]; i++) {
            const uint32_t t = b->c->tile[i], q = b->c->tile_q[t];
            if (dcp_runs_at_keys(in, b->c, t)) continue;
            b->user[count++] = q;
            own |= q == k;
        }
        if (!own) b->user[count++] = k;
        for (uint32_t i = b->user_start[k]; i < count; i++) b->keys[b->user[i]] += (int64_t)in->block[k].kv;
    }
    b->user_start[n] = count;
    return FCP_OK;
}

/* Notes that the keys of block k are at the strip's rank from now on. */
static void bring_keys(building *b, uint32_t k) {
    if (b->have[k]) return;
    b->have[k] = 1;
    b->here[b->here_count++] = k;
    for (uint32_t i = b->user_start[k]; i < b->user_start[k + 1]; i++)
        b->extra[b->user[i]] -= (int64_t)b->in->block[k].kv;
}

/* Notes that a user of block k's keys has come into the strip. If only one user is left outside, the cut becomes
 * smaller when that one comes in, too. */
static void take_in_user(building *b, uint32_t k) {
    if (--b->outside[k] != 1) return;
    for (uint32_t i = b->user_start[k]; i < b->user_start[k + 1]; i++)
        if (b->out->home[b->user[i]] == FCP_NONE && !b->picked[b->user[i]])
            b->extra[b->user[i]] -= (int64_t)b->in->block[k].kv;
}

/* Starts a strip at a rank, which may hold rows of the component already. rank = FCP_NONE: an empty rank. */
static void start_strip(building *b, uint32_t component, uint32_t rank) {
    const dcp_input *in = b->in;
    for (uint32_t i = 0; i < b->here_count; i++) b->have[b->here[i]] = 0;
    b->here_count = b->picks = 0;
    b->pick_work = b->pick_tokens = 0;
    for (uint32_t i = b->c->first[component]; i < b->c->first[component + 1]; i++) {
        const uint32_t k = b->c->member[i];
        b->extra[k] = b->keys[k];
        b->outside[k] = b->homeless[k];
        b->picked[k] = 0;
    }
    for (uint32_t i = b->c->first[component]; i < b->c->first[component + 1]; i++) {
        const uint32_t k = b->c->member[i];
        if (b->outside[k] != 1) continue;
        uint32_t last = b->user_start[k];
        while (b->out->home[b->user[last]] != FCP_NONE) last++;
        b->extra[b->user[last]] -= (int64_t)in->block[k].kv;
    }
    if (rank == FCP_NONE || is_empty(b, rank)) return;
    for (uint32_t i = b->c->first[component]; i < b->c->first[component + 1]; i++) {
        uint32_t q = b->c->member[i];
        if (b->out->home[q] == rank) bring_keys(b, q);
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++)
            if (b->out->exec[t] == rank && !dcp_runs_at_keys(in, b->c, t)) bring_keys(b, in->tile_k[t]);
    }
}

/* Chooses the next row of the strip by the rule of grow_strip, within so much work and so many tokens. FCP_NONE: no row
 * is added. */
static uint32_t next_row(const building *b, uint64_t work, uint64_t tokens) {
    const dcp_input *in = b->in;
    const bool seed = !b->here_count;
    uint32_t best = FCP_NONE;
    int64_t bar = INT64_MAX, least = INT64_MAX; /* rows that add more than `bar` to the cut are not looked at */
    for (uint32_t i = 0; i < b->left_count; i++) {
        const uint32_t q = b->left[i];
        if (b->extra[q] > bar || b->picked[q]) continue;
        if (b->extra[q] < least) least = b->extra[q];
        if (b->pick_work + b->work[q] > work || b->pick_tokens + in->block[q].tokens > tokens) continue;
        if (best != FCP_NONE && !seed && b->extra[q] == b->extra[best] && b->work[q] < b->work[best]) continue;
        best = q;
        if (!seed) bar = b->extra[q];
    }
    if (seed || best == FCP_NONE || b->extra[best] <= 0) return best;
    const bool rest_fits = b->left_work - b->pick_work <= in->pair_cap &&
                           b->left_tokens - b->pick_tokens <= in->token_cap;
    return b->extra[best] > least || rest_fits ? FCP_NONE : best;
}

/* Adds rows to the strip until it has `work` and `tokens`.
 *   1. The first row is the last row of the component.
 *   2. Each further row is the one that adds least to the cut; of several such rows the heaviest, and of equally heavy
 *      ones the last.
 *   3. A row that makes the cut larger is not added in two cases: if all that is left of the component fits on one
 *      rank; or if some row that is too large for the strip would make the cut larger by less. */
static void grow_strip(building *b, uint64_t work, uint64_t tokens) {
    const dcp_input *in = b->in;
    for (uint32_t q = next_row(b, work, tokens); q != FCP_NONE; q = next_row(b, work, tokens)) {
        b->picked[q] = 1;
        b->pick[b->picks++] = q;
        b->pick_work += b->work[q];
        b->pick_tokens += in->block[q].tokens;
        bool own = false;
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) {
            const uint32_t k = in->tile_k[t];
            if (dcp_runs_at_keys(in, b->c, t)) continue;
            own |= k == q;
            bring_keys(b, k);
            take_in_user(b, k);
        }
        if (own) continue;
        bring_keys(b, q);
        take_in_user(b, q);
    }
}

/* Divides the keys of the strip into s segments of about equal work. Returns the bytes of the copies of Q and results
 * that this takes. The blocks of a component are in the order of their positions, so the loop over them goes along the
 * keys. */
static uint64_t cut_keys(building *b, uint32_t component, uint32_t s) {
    const dcp_input *in = b->in;
    uint64_t before = 0, bytes = 0;
    for (uint32_t i = 0; i < b->here_count; i++) b->column[b->here[i]] = 0;
    for (uint32_t i = 0; i < b->picks; i++)
        for (uint32_t t = in->tile_start[b->pick[i]]; t < in->tile_start[b->pick[i] + 1]; t++)
            if (!dcp_runs_at_keys(in, b->c, t)) b->column[in->tile_k[t]] += in->tile_pairs[t];
    for (uint32_t i = b->c->first[component]; i < b->c->first[component + 1]; i++) {
        const uint32_t k = b->c->member[i];
        if (!b->have[k]) continue;
        const uint64_t middle = before + b->column[k] / 2;
        const uint64_t at = b->pick_work ? (uint64_t)((unsigned __int128)middle * s / b->pick_work) : 0;
        b->segment[k] = at < s ? (uint32_t)at : s - 1;
        before += b->column[k];
    }
    for (uint32_t i = 0; i < b->picks; i++) {
        uint32_t parts = 0, last = FCP_NONE;
        for (uint32_t t = in->tile_start[b->pick[i]]; t < in->tile_start[b->pick[i] + 1]; t++)
            if (!dcp_runs_at_keys(in, b->c, t) && b->segment[in->tile_k[t]] != last) {
                last = b->segment[in->tile_k[t]];
                parts++;
            }
        if (parts > 1) bytes += (parts - 1) * in->block[b->pick[i]].part;
    }
    return bytes;
}

/* Notes that an empty rank is about to get something. */
static void note_used(building *b, uint32_t rank) {
    b->empty[rank / b->in->gpus]--;
    b->empties--;
}

static void run_tile(building *b, uint32_t t, uint32_t rank) {
    if (is_empty(b, rank) && b->in->tile_pairs[t]) note_used(b, rank);
    b->out->exec[t] = rank;
    b->out->load[rank] += b->in->tile_pairs[t];
}

/* Gives block k its home. Tiles of wide rows that use its keys then run there. */
static void set_home(building *b, uint32_t k, uint32_t home) {
    bool own = false;
    b->out->home[k] = home;
    if (is_empty(b, home) && b->in->block[k].tokens) note_used(b, home);
    b->out->held[home] += b->in->block[k].tokens;
    for (uint32_t t = b->in->tile_start[k]; t < b->in->tile_start[k + 1]; t++) {
        if (dcp_runs_at_keys(b->in, b->c, t)) continue;
        b->homeless[b->in->tile_k[t]]--;
        own |= b->in->tile_k[t] == k;
    }
    if (!own) b->homeless[k]--;
    for (uint32_t i = b->c->start[k]; i < b->c->start[k + 1]; i++)
        if (dcp_runs_at_keys(b->in, b->c, b->c->tile[i])) run_tile(b, b->c->tile[i], home);
}

/* Gives block q its home, and has its row computed there. */
static void place_block_at(building *b, uint32_t q, uint32_t rank) {
    set_home(b, q, rank);
    for (uint32_t t = b->in->tile_start[q]; t < b->in->tile_start[q + 1]; t++)
        if (!dcp_runs_at_keys(b->in, b->c, t)) run_tile(b, t, rank);
}

/* Gives the strip to s ranks. A tile runs at the rank that has the segment of its keys. A block's home is the rank that
 * has the segment of its own keys, with two exceptions:
 *   - That rank has no room for the block's tokens: the home is the rank of the strip with fewest tokens.
 *   - Another rank of the strip has much more work, and has room for the tokens: that is the home. So room for tokens
 *     is left where there is room for work. */
static void give_strip(building *b, uint32_t s) {
    const dcp_input *in = b->in;
    for (uint32_t i = 0; i < b->picks; i++) {
        uint32_t q = b->pick[i];
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++)
            if (!dcp_runs_at_keys(in, b->c, t)) run_tile(b, t, b->ranks[s > 1 ? b->segment[in->tile_k[t]] : 0]);
    }
    for (uint32_t i = 0; i < b->picks; i++) {
        uint32_t q = b->pick[i], home = b->ranks[s > 1 ? b->segment[q] : 0];
        for (uint32_t k = 0; k < s; k++) {
            const uint32_t r = b->ranks[k];
            const bool full = b->out->held[home] + in->block[q].tokens > in->token_cap;
            if (full ? b->out->held[r] < b->out->held[home]
                     : b->out->load[r] > b->out->load[home] + in->pair_cap / 4 &&
                           b->out->held[r] + in->block[q].tokens <= in->token_cap)
                home = r;
        }
        set_home(b, q, home);
    }
}

/* --- which ranks -------------------------------------------------------------------------------------------------- */

static void count_empty(building *b) {
    memset(b->empty, 0, node_count(b->in) * sizeof *b->empty);
    b->empties = b->first_empty = 0;
    for (uint32_t r = 0; r < b->in->ranks; r++) {
        b->empty[r / b->in->gpus] += is_empty(b, r);
        b->empties += is_empty(b, r);
    }
}

/* Chooses up to s empty ranks for a strip of a component. It takes all empty ranks of one node before it goes to the
 * next. The first node is the one that gave the component ranks before. A further node is chosen by best fit: of the
 * nodes with enough empty ranks for all that is left of the component, the one with fewest. If none has enough, it is
 * the one with most. */
static uint32_t choose_empty(building *b, uint32_t s) {
    const dcp_input *in = b->in;
    const uint32_t nodes = node_count(in);
    const uint64_t left = max_u64(dcp_share(b->left_work, in->pair_cap), dcp_share(b->left_tokens, in->token_cap));
    const uint64_t wanted = max_u64((left + DCP_ONE - 1) / DCP_ONE, 1);
    uint32_t count = 0, node = b->node, tried = 0, was[DCP_TOGETHER][2];
    while (b->first_empty < nodes && !b->empty[b->first_empty]) b->first_empty++;
    while (count < s) {
        if (node == FCP_NONE || !b->empty[node]) {
            uint32_t best = 0;
            for (uint32_t v = b->first_empty; v < nodes && best != min_u64(wanted, in->gpus); v++) {
                const uint32_t e = b->empty[v];
                if (e && (!best || (e >= wanted ? best < wanted || e < best : best < wanted && e > best))) {
                    best = e;
                    node = v;
                }
            }
            if (!best) break;
        }
        for (uint32_t r = node * in->gpus; r < (node + 1) * in->gpus && r < in->ranks && count < s; r++)
            if (is_empty(b, r)) b->ranks[count++] = r;
        was[tried][0] = node;
        was[tried++][1] = b->empty[node];
        b->empty[node] = 0; /* it is not looked at again */
    }
    while (tried--) b->empty[was[tried][0]] = was[tried][1];
    return count;
}

/* Of the ranks where this fits, chooses the one that then has least room (best fit) or, if `loose`, most (worst fit).
 * node: only its ranks; FCP_NONE: all ranks. FCP_NONE as result: it fits nowhere. */
static uint32_t choose_rank(const building *b, uint64_t work, uint64_t tokens, uint32_t node, bool loose) {
    const dcp_input *in = b->in;
    uint32_t best = FCP_NONE, first = node == FCP_NONE ? 0 : node * in->gpus;
    uint32_t end = node == FCP_NONE || first + in->gpus > in->ranks ? in->ranks : first + in->gpus;
    uint64_t best_rest = 0;
    if (loose && node == FCP_NONE) return dcp_rooms_find(&b->rooms, work, tokens);
    for (uint32_t r = first; r < end; r++) {
        if (!fits(b, r, work, tokens)) continue;
        uint64_t x = dcp_share(in->pair_cap - b->out->load[r] - work, in->pair_cap);
        uint64_t y = dcp_share(in->token_cap - b->out->held[r] - tokens, in->token_cap);
        uint64_t rest = loose ? UINT64_MAX - min_u64(x, y) : x * x + y * y;
        if (best == FCP_NONE || rest < best_rest) best_rest = rest, best = r;
    }
    return best;
}

/* Does what is left of the component at hand fit on any rank? */
static bool fits_any(building *b) {
    if (b->left_work > b->in->pair_cap || b->left_tokens > b->in->token_cap) return false;
    if (b->empties || fits(b, b->fitting, b->left_work, b->left_tokens)) return true;
    uint32_t r = 0;
    while (r < b->in->ranks && !fits(b, r, b->left_work, b->left_tokens)) r++;
    if (r < b->in->ranks) b->fitting = r;
    return r < b->in->ranks;
}

/* The rank with most room of the scarcer kind, pairs or tokens. */
static uint32_t roomiest(const building *b) {
    const dcp_input *in = b->in;
    uint32_t best = 0;
    uint64_t most = 0;
    for (uint32_t r = 0; r < in->ranks; r++) {
        const uint64_t room = min_u64(dcp_share(sub_sat(in->pair_cap, b->out->load[r]), in->pair_cap),
                                      dcp_share(sub_sat(in->token_cap, b->out->held[r]), in->token_cap));
        if (room > most) most = room, best = r;
    }
    return best;
}

/* --- the placement ------------------------------------------------------------------------------------------------ */

/* Shrinks a strip to its first `picks` rows. here: how many blocks' keys had come with those rows. */
static void shrink_strip(building *b, uint32_t picks, uint32_t here) {
    for (; b->picks > picks; b->picks--) {
        b->pick_work -= b->work[b->pick[b->picks - 1]];
        b->pick_tokens -= b->in->block[b->pick[b->picks - 1]].tokens;
    }
    while (b->here_count > here) b->have[b->here[--b->here_count]] = 0;
}

/* Gives a strip of the component to one or several empty ranks. False: there is none. A strip for s + 1 ranks begins
 * with the rows of the strip for s ranks. So the strip grows step by step, and its cost is compared at each step. */
static bool strip_for_empty(building *b, uint32_t component) {
    const dcp_input *in = b->in;
    uint32_t most = choose_empty(b, DCP_TOGETHER), best = 0, picks = 0, here = 0;
    uint64_t best_bytes = 0, best_work = 0;
    if (!most) return false;
    start_strip(b, component, FCP_NONE);
    for (uint32_t s = 1; s <= most; s++) {
        grow_strip(b, b->strip_cap * s, in->token_cap * s);
        uint64_t bytes = s > 1 ? cut_keys(b, component, s) : 0;
        for (uint32_t i = 0; i < b->here_count; i++) bytes += in->block[b->here[i]].kv;
        if (!b->pick_work) continue;
        if (best && (unsigned __int128)bytes * best_work >= (unsigned __int128)best_bytes * b->pick_work) break;
        best = s;
        best_bytes = bytes;
        best_work = b->pick_work;
        picks = b->picks;
        here = b->here_count;
    }
    if (!best) return false;
    shrink_strip(b, picks, here);
    if (best > 1) cut_keys(b, component, best);
    choose_empty(b, best);
    give_strip(b, best);
    b->node = b->ranks[best - 1] / in->gpus;
    return true;
}

/* Gives part of the component to the rank with most room. If not even one row fits there, gives the component's last
 * row to the least loaded rank that has room for its tokens. */
static void strip_for_any(building *b, uint32_t component) {
    const dcp_input *in = b->in;
    uint32_t r = b->ranks[0] = roomiest(b);
    start_strip(b, component, r);
    grow_strip(b, sub_sat(in->pair_cap, b->out->load[r]), sub_sat(in->token_cap, b->out->held[r]));
    if (!b->picks) {
        uint32_t q = b->left[b->left_count - 1];
        for (uint32_t i = 0; i < in->ranks; i++) /* tokens count first, for tiles can be moved again */
            if (b->out->held[i] + in->block[q].tokens <= in->token_cap &&
                (b->out->held[r] + in->block[q].tokens > in->token_cap || b->out->load[i] < b->out->load[r]))
                r = i;
        place_block_at(b, q, r);
        return;
    }
    give_strip(b, 1);
}

/* Places what is left of a component: whole, if it fits on a rank. If it does not: with `loose` returns false;
 * otherwise places it in parts. */
static bool place_rest(building *b, uint32_t component, bool loose) {
    for (list_left(b, component); b->left_count; list_left(b, component)) {
        uint32_t r = b->node == FCP_NONE ? FCP_NONE : choose_rank(b, b->left_work, b->left_tokens, b->node, loose);
        if (r == FCP_NONE) r = choose_rank(b, b->left_work, b->left_tokens, FCP_NONE, loose);
        for (uint32_t i = 0; i < b->left_count && r != FCP_NONE; i++) place_block_at(b, b->left[i], r);
        if (r == FCP_NONE && loose) return false;
        if (loose) dcp_rooms_set(&b->rooms, r);
        if (r == FCP_NONE) strip_for_any(b, component);
    }
    return true;
}

/* Sorts the components by what is left of them, the largest first. */
static void sort_components(building *b) {
    for (uint32_t i = 0; i < b->c->components; i++) {
        list_left(b, i);
        b->order[i] = max_u64(dcp_share(b->left_work, b->in->pair_cap), dcp_share(b->left_tokens, b->in->token_cap));
    }
    order_falling(b->order, b->other, b->c->components);
}

uint64_t dcp_share_of(const dcp_input *in, const dcp_columns *c, uint32_t component, uint64_t *out_tiles) {
    uint64_t work = 0, tokens = 0;
    *out_tiles = 0;
    for (uint32_t i = c->first[component]; i < c->first[component + 1]; i++) {
        const uint32_t q = c->member[i];
        tokens += in->block[q].tokens;
        *out_tiles += in->tile_start[q + 1] - in->tile_start[q];
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) work += in->tile_pairs[t];
    }
    return max_u64(dcp_share(work, in->pair_cap), dcp_share(tokens, in->token_cap));
}

/* Finds wide rows. A row is wide if two things hold: it sees more than twice as many keys as the mean row of its
 * component; and a rank's part of these keys is more bytes than Q with a partial result. What is found here need not be
 * exact: dcp.c looks at each rank's part of a wide row once more. A row that is not wide stays whole. */
void dcp_find_wide(const dcp_input *in, dcp_columns *c) {
    for (uint32_t i = 0; i < c->components; i++) {
        uint64_t tiles;
        const uint64_t rows = c->first[i + 1] - c->first[i], all = dcp_share_of(in, c, i, &tiles);
        const uint64_t ranks = (all + DCP_ONE - 1) / DCP_ONE;
        for (uint32_t k = c->first[i]; k < c->first[i + 1] && ranks > 1; k++) {
            uint32_t q = c->member[k];
            uint64_t keys = 0;
            for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) keys += in->block[in->tile_k[t]].kv;
            if ((in->tile_start[q + 1] - in->tile_start[q]) * rows <= 2 * tiles ||
                (unsigned __int128)keys * min_u64(all - DCP_ONE, DCP_ONE) <= (unsigned __int128)in->block[q].part * all)
                continue;
            c->wide[q] = 1;
        }
    }
}

static fcp_code open_building(building *b, arena *scratch) {
    const size_t n = b->in->blocks + (size_t)1;
    b->work = ARENA_ZNEW(scratch, uint64_t, n);
    b->left = ARENA_NEW(scratch, uint32_t, n);
    b->pick = ARENA_NEW(scratch, uint32_t, n);
    b->extra = ARENA_NEW(scratch, int64_t, n);
    b->keys = ARENA_ZNEW(scratch, int64_t, n);
    b->homeless = ARENA_NEW(scratch, uint32_t, n);
    b->outside = ARENA_NEW(scratch, uint32_t, n);
    b->have = ARENA_ZNEW(scratch, uint8_t, n);
    b->picked = ARENA_ZNEW(scratch, uint8_t, n);
    b->here = ARENA_NEW(scratch, uint32_t, n);
    b->column = ARENA_NEW(scratch, uint64_t, n);
    b->segment = ARENA_NEW(scratch, uint32_t, n);
    b->ranks = ARENA_NEW(scratch, uint32_t, DCP_TOGETHER);
    b->empty = ARENA_NEW(scratch, uint32_t, b->in->ranks);
    b->order = ARENA_NEW(scratch, uint64_t, n);
    b->other = ARENA_NEW(scratch, uint64_t, n);
    b->last_node = ARENA_NEW(scratch, uint32_t, n);
    if (!b->work || !b->left || !b->pick || !b->extra || !b->keys || !b->homeless || !b->outside || !b->have ||
        !b->picked || !b->here || !b->column || !b->segment || !b->ranks || !b->empty || !b->order || !b->other ||
        !b->last_node)
        return FCP_E_NO_MEMORY;
    fcp_code code = dcp_rooms_open(&b->rooms, b->in, b->out, scratch);
    return code ? code : find_users(b, scratch);
}

/* Cuts strips. Each fills a rank to so many sixteenths of its cap on pairs. */
static fcp_code cut_strips(building *b, uint32_t sixteenths) {
    const dcp_input *in = b->in;
    memset(b->out->home, 0xff, in->blocks * sizeof *b->out->home);
    memset(b->out->exec, 0xff, in->tile_start[in->blocks] * sizeof *b->out->exec);
    memset(b->out->load, 0, in->ranks * sizeof *b->out->load);
    memset(b->out->held, 0, in->ranks * sizeof *b->out->held);
    for (uint32_t k = 0; k < in->blocks; k++) b->homeless[k] = b->user_start[k + 1] - b->user_start[k];
    count_empty(b);
    b->strip_cap = in->pair_cap / 16 * sixteenths;
    b->short_of_ranks = false;
    sort_components(b);
    for (uint32_t i = 0; i < b->c->components; i++) {
        const uint32_t component = (uint32_t)b->order[i];
        b->node = FCP_NONE;
        if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        for (list_left(b, component); b->left_count && !fits_any(b) && strip_for_empty(b, component);
             list_left(b, component)) {}
        b->short_of_ranks |= b->left_count && !fits_any(b);
        b->last_node[component] = b->node;
        uint32_t r = b->node == FCP_NONE || !b->left_count
                         ? FCP_NONE
                         : choose_rank(b, b->left_work, b->left_tokens, b->node, false);
        for (uint32_t k = 0; r != FCP_NONE && k < b->left_count; k++) place_block_at(b, b->left[k], r);
    }
    return FCP_OK;
}

/* Places what the strips have left. loose: by worst fit; *out_done becomes false if something fits nowhere. Otherwise:
 * by best fit, and what fits nowhere is placed in parts. */
static fcp_code place_left(building *b, bool loose, bool *out_done) {
    const dcp_input *in = b->in;
    sort_components(b);
    if (loose) dcp_rooms_fill(&b->rooms);
    *out_done = true;
    for (uint32_t i = 0; i < b->c->components && *out_done; i++) {
        const uint32_t component = (uint32_t)b->order[i];
        if (!(i & 63) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        b->node = b->last_node[component];
        *out_done = place_rest(b, component, loose);
    }
    return FCP_OK;
}

/* Copies the state after strips of full size were cut, so that it can be restored: the partition, how many users of
 * each block's keys have no home, and the last node of each component. */
static void copy_strips(building *to, const building *from) {
    const dcp_input *in = from->in;
    memcpy(to->out->home, from->out->home, in->blocks * sizeof *from->out->home);
    memcpy(to->out->exec, from->out->exec, in->tile_start[in->blocks] * sizeof *from->out->exec);
    memcpy(to->out->load, from->out->load, in->ranks * sizeof *from->out->load);
    memcpy(to->out->held, from->out->held, in->ranks * sizeof *from->out->held);
    memcpy(to->homeless, from->homeless, in->blocks * sizeof *from->homeless);
    memcpy(to->last_node, from->last_node, from->c->components * sizeof *from->last_node);
}

fcp_code dcp_initial(const dcp_input *in, const dcp_columns *c, arena *scratch, dcp_partition *out) {
    static const uint32_t sixteenths[] = {16, 15, 14, 13, 12, 11, 10, 9, 8};
    dcp_partition parts;
    building b = {.in = in, .c = c, .out = out}, first = {.in = in, .c = c, .out = &parts};
    bool done = false;
    fcp_code code = open_building(&b, scratch);
    if (code) return code;
    first.homeless = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    first.last_node = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    if (!first.homeless || !first.last_node || !dcp_open_partition(in, scratch, &parts)) return FCP_E_NO_MEMORY;
    for (uint32_t q = 0; q < in->blocks; q++)
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++)
            b.work[dcp_runs_at_keys(in, c, t) ? in->tile_k[t] : q] += in->tile_pairs[t];
    for (size_t i = 0; i < sizeof sixteenths / sizeof *sixteenths && !done && !code && !b.short_of_ranks; i++) {
        code = cut_strips(&b, sixteenths[i]);
        if (!i && !code) copy_strips(&first, &b);
        if (!code) code = place_left(&b, true, &done);
    }
    if (code || done) return code;
    copy_strips(&b, &first);
    count_empty(&b);
    return place_left(&b, false, &done);
}
