/* dcp_bound.c: computes a lower bound on the bytes that any placement within both caps moves, if homes are free.
 *
 * Requires: a dcp_input whose blocks hold queries and keys, and in which a query and a key are one pair at most.
 * Gives: a number of bytes. It may be out of reach; for masks that see little it is small.
 * Cost: O(tiles log tiles), and GRID x GRID square roots for each component that does not fit on a rank.
 * Units: pairs, tokens, bytes; slopes in bytes for 2^20 pairs.
 *
 * One rank and one component (a sequence). The rank is home to n tokens of the component. The Q of `a` more rows and
 * the K and V of `b` more keys come to it from other ranks. Each pair that it computes has a row and a key there. Among
 * its own tokens there are at most own(n) pairs: n^2, or n (n + 1) / 2 if no two blocks see each other, as under a
 * causal mask. So if it computes w pairs,
 *
 *     w <= own(n) + n a + n b + a b.
 *
 * Let B(w, n) be the least `row a + key b` for which that holds; it takes a square root. There is a second limit: a row
 * has at most R pairs and a key at most K, so at least w / R rows and w / K keys are at the rank, and B is at least
 * what those cost.
 *
 * All ranks. They divide the W pairs and N tokens of the component. The bound follows in two steps:
 *   1. Let m be any price of a token. Find an s such that B(w, n) + m n >= s w for all w and n within the caps.
 *   2. Add this up over the ranks: the bytes are at least s W - m N. (m is a Lagrange multiplier.)
 * Several prices are tried, and the largest bound counts. For each, s is found on a grid of w and n: in a cell of it B
 * is least where w is least and n largest. Below the first w of the grid, B + m n >= 2 sqrt(x y w) with x = min(row, m
 * / 2) and y = min(key, m / 2).
 *
 * A simpler bound holds as well: a component on r ranks is cut r - 1 times, and each cut moves some block.
 */
#include "compiler/base/bisect.h"
#include "compiler/base/integers.h"
#include "compiler/place/dcp/dcp.h"

enum { GRID = 48, PRICES = 16, SCALE = 20 };

typedef unsigned __int128 wide;

/* What the bound needs of a component that does not fit on one rank. */
typedef struct component {
    uint64_t pairs, tokens;
    uint64_t row, key;         /* bytes of a token */
    uint64_t row_most, key_most; /* pairs of a row, of a key */
    uint64_t least;            /* bytes of the cheapest block */
    bool one_way;              /* no two of its blocks see each other, and none sees more of itself than the past */
} component;

/* B(w, n), rounded down. */
static uint64_t least_bytes(const component *c, uint64_t w, uint64_t n) {
    const wide all = c->one_way ? (wide)n * (n + 1) / 2 : (wide)n * n;
    const wide own = (wide)n * c->row_most < all ? (wide)n * c->row_most : all;
    const uint64_t rows = c->row_most ? w / c->row_most : 0, keys = c->key_most ? w / c->key_most : 0;
    const uint64_t counted = (rows > n ? (rows - n) * c->row : 0) + (keys > n ? (keys - n) * c->key : 0);
    if (w <= own) return counted;
    const wide x = w - own + (wide)n * n; /* at most so much is (n + a) (n + b) */
    const uint64_t at = square_root(x * c->key / c->row), other = square_root(x * c->row / c->key);
    uint64_t bytes;
    if (at < n) bytes = (uint64_t)((x / n - n) * c->key);
    else if (other < n) bytes = (uint64_t)((x / n - n) * c->row);
    else {
        const uint64_t both = 2 * square_root(x * c->key * c->row), held = n * (c->key + c->row);
        bytes = sub_sat(both, held);
    }
    return max_u64(bytes, counted);
}

/* The bound that one price of a token gives (m above). at[i][j]: B at w_i and n_j. */
static uint64_t by_price(const component *c, const dcp_input *in, uint64_t at[GRID][GRID + 1], uint64_t price) {
    const uint64_t step_w = in->pair_cap / GRID + 1, step_n = in->token_cap / GRID + 1;
    const uint64_t x = min_u64(c->row, price / 2), y = min_u64(c->key, price / 2);
    wide slope = ((wide)(2 * square_root((wide)x * y * step_w)) << SCALE) / step_w;
    for (uint32_t i = 0; i < GRID; i++)
        for (uint32_t j = 0; j < GRID; j++) {
            const wide here = (((wide)at[i][j + 1] + (wide)price * j * step_n) << SCALE) / ((i + (wide)2) * step_w);
            if (here < slope) slope = here;
        }
    const wide bytes = slope * c->pairs >> SCALE, paid = (wide)price * c->tokens;
    return bytes > paid ? (uint64_t)(bytes - paid) : 0;
}

static uint64_t bound_of(const component *c, const dcp_input *in) {
    uint64_t at[GRID][GRID + 1];
    const uint64_t step_w = in->pair_cap / GRID + 1, step_n = in->token_cap / GRID + 1;
    const uint64_t by_tokens = (c->tokens - 1) / in->token_cap, by_pairs = c->pairs ? (c->pairs - 1) / in->pair_cap : 0;
    uint64_t best = max_u64(by_tokens, by_pairs) * c->least;
    if (!c->pairs || !c->row || !c->key) return best;
    for (uint32_t i = 0; i < GRID; i++)
        for (uint32_t j = 0; j <= GRID; j++) at[i][j] = least_bytes(c, (i + 1) * step_w, j * step_n);
    /* prices around what one more token would save a rank that is full and has its share of the tokens */
    uint64_t n = max_u64(1, min_u64(in->token_cap, (uint64_t)((wide)c->tokens * in->pair_cap / c->pairs)));
    const wide usual = (wide)c->key * in->pair_cap / n / n + c->key / 2 + 1;
    for (uint32_t i = 1; i <= PRICES; i++) {
        const wide price = usual * i / 6;
        if (price < (UINT64_C(1) << 40)) best = max_u64(best, by_price(c, in, at, (uint64_t)price));
    }
    return best;
}

/* --- components --------------------------------------------------------------------------------------------------- */

static bool has_tile(const dcp_input *in, uint32_t q, uint32_t k) {
    uint32_t low = in->tile_start[q], high = in->tile_start[q + 1];
    BISECT(low, high, i, in->tile_k[i] < k)
    return low < in->tile_start[q + 1] && in->tile_k[low] == k;
}

/* The mean of a block's sum over its tokens, rounded up. */
static uint64_t each(uint64_t sum, uint64_t tokens) { return tokens ? (sum + tokens - 1) / tokens : sum; }

/* Adds a block to its component. column: the pairs of all tiles with its keys. */
static void add_block(const dcp_input *in, uint32_t b, uint64_t column, component *c) {
    const uint64_t n = in->block[b].tokens;
    uint64_t work = 0;
    for (uint32_t t = in->tile_start[b]; t < in->tile_start[b + 1]; t++) {
        work += in->tile_pairs[t];
        if (in->tile_k[t] == b ? in->tile_pairs[t] > n * (n + 1) / 2 : has_tile(in, in->tile_k[t], b))
            c->one_way = false;
    }
    c->pairs += work;
    c->tokens += n;
    c->row_most = max_u64(c->row_most, each(work, n));
    c->key_most = max_u64(c->key_most, each(column, n));
    const uint64_t row = min_u64(in->block[b].whole, in->block[b].part);
    c->row = min_u64(c->row, n ? row / n : UINT64_MAX);
    c->key = min_u64(c->key, n ? in->block[b].kv / n : UINT64_MAX);
    c->least = min_u64(c->least, min_u64(row, in->block[b].kv));
}

fcp_code dcp_bound(const dcp_input *in, arena *scratch, uint64_t *out_bytes) {
    uint64_t *column = ARENA_ZNEW(scratch, uint64_t, in->blocks + (size_t)1);
    dcp_columns c;
    *out_bytes = 0;
    fcp_code code = column ? dcp_find_components(in, &c, scratch) : FCP_E_NO_MEMORY;
    if (code) return code;
    for (uint32_t t = 0; t < in->tile_start[in->blocks]; t++) column[in->tile_k[t]] += in->tile_pairs[t];
    for (uint32_t i = 0; i < c.components; i++) {
        component all = {.row = UINT64_MAX, .key = UINT64_MAX, .least = UINT64_MAX, .one_way = true};
        if (!(i & 63) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        for (uint32_t k = c.first[i]; k < c.first[i + 1]; k++) add_block(in, c.member[k], column[c.member[k]], &all);
        if (all.tokens > in->token_cap || all.pairs > in->pair_cap) *out_bytes += bound_of(&all, in);
    }
    return FCP_OK;
}
