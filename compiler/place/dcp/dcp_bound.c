/* dcp_bound.c: bytes that no placement goes below which keeps both caps, where homes are free.
 *
 * Requires: a dcp_input whose blocks hold queries and keys, and in which a query and a key are one pair at most.
 * Gives: a number of bytes. It may be out of reach; of masks that see little it is small.
 * Cost: O(tiles log tiles), and GRID x GRID square roots for each component that does not fit on a rank.
 * Units: pairs, tokens, bytes; slopes in bytes for 2^20 pairs.
 *
 * One rank and one component (a sequence). The rank is home to n of its tokens, and a rows and b keys come from other
 * ranks. Each pair that it computes has a row and a key there, and its own tokens have at most own(n) pairs, which is
 * n (n + 1) / 2 if no two blocks see each other, as under a causal mask. So of w pairs
 *
 *     w <= own(n) + n a + n b + a b,        and that costs   B(w, n) = min  row a + key b,   by a square root.
 *
 * A row has at most R pairs, a key at most K, so that at least w / R rows and w / K keys are there, too.
 *
 * All ranks. The component's W pairs and N tokens are divided, each rank with w <= the cap on pairs and n <= the cap on
 * tokens. If for some price m of a token B(w, n) + m n >= s w holds for all w and n within the caps, then the sum over
 * ranks is at least s W - m N. For a few prices s is found on a grid: in a cell of it B is least where w is least and n
 * largest. Below the first w, B + m n >= 2 sqrt(x y w) with x = min(row, m / 2) and y = min(key, m / 2).
 *
 * And a component that lies on r ranks is cut r - 1 times, each time for some block at least.
 */
#include "compiler/place/dcp/dcp.h"

enum { GRID = 48, PRICES = 16, SCALE = 20 };

typedef unsigned __int128 wide;

/* A component that is divided. */
typedef struct component {
    uint64_t pairs, tokens;
    uint64_t row, key;         /* bytes of a token */
    uint64_t row_most, key_most; /* pairs of a row, of a key */
    uint64_t least;            /* bytes of the cheapest block */
    bool one_way;              /* no two of its blocks see each other, and none sees more of itself than the past */
} component;

static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t most_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* The square root, rounded down. */
static uint64_t root(wide x) {
    uint64_t r = 0;
    for (int bit = 63; bit >= 0; bit--) {
        const uint64_t more = r | UINT64_C(1) << bit;
        if ((wide)more * more <= x) r = more;
    }
    return r;
}

/* B(w, n), rounded down. */
static uint64_t cost(const component *c, uint64_t w, uint64_t n) {
    const wide all = c->one_way ? (wide)n * (n + 1) / 2 : (wide)n * n;
    const wide own = (wide)n * c->row_most < all ? (wide)n * c->row_most : all;
    const uint64_t rows = c->row_most ? w / c->row_most : 0, keys = c->key_most ? w / c->key_most : 0;
    const uint64_t counted = (rows > n ? (rows - n) * c->row : 0) + (keys > n ? (keys - n) * c->key : 0);
    if (w <= own) return counted;
    const wide x = w - own + (wide)n * n; /* at most so much is (n + a) (n + b) */
    const uint64_t at = root(x * c->key / c->row), other = root(x * c->row / c->key);
    uint64_t bytes;
    if (at < n) bytes = (uint64_t)((x / n - n) * c->key);
    else if (other < n) bytes = (uint64_t)((x / n - n) * c->row);
    else {
        const uint64_t both = 2 * root(x * c->key * c->row), held = n * (c->key + c->row);
        bytes = both > held ? both - held : 0;
    }
    return most_of(bytes, counted);
}

/* The bytes that dividing the component costs at least, by the price of a token; at[i][j]: B at w_i and n_j. */
static uint64_t by_price(const component *c, const dcp_input *in, uint64_t at[GRID][GRID + 1], uint64_t price) {
    const uint64_t step_w = in->pair_cap / GRID + 1, step_n = in->token_cap / GRID + 1;
    const uint64_t x = least_of(c->row, price / 2), y = least_of(c->key, price / 2);
    wide slope = ((wide)(2 * root((wide)x * y * step_w)) << SCALE) / step_w;
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
    uint64_t best = most_of(by_tokens, by_pairs) * c->least;
    if (!c->pairs || !c->row || !c->key) return best;
    for (uint32_t i = 0; i < GRID; i++)
        for (uint32_t j = 0; j <= GRID; j++) at[i][j] = cost(c, (i + 1) * step_w, j * step_n);
    /* about what one token more would save a rank that is full, and has its share of the tokens */
    uint64_t n = most_of(1, least_of(in->token_cap, (uint64_t)((wide)c->tokens * in->pair_cap / c->pairs)));
    const wide usual = (wide)c->key * in->pair_cap / n / n + c->key / 2 + 1;
    for (uint32_t i = 1; i <= PRICES; i++) {
        const wide price = usual * i / 6;
        if (price < (UINT64_C(1) << 40)) best = most_of(best, by_price(c, in, at, (uint64_t)price));
    }
    return best;
}

/* --- components --------------------------------------------------------------------------------------------------- */

static uint32_t find(uint32_t *up, uint32_t x) {
    while (up[x] != x) x = up[x] = up[up[x]];
    return x;
}

static bool has_tile(const dcp_input *in, uint32_t q, uint32_t k) {
    uint32_t low = in->tile_start[q], high = in->tile_start[q + 1];
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (in->tile_k[mid] < k) low = mid + 1;
        else high = mid;
    }
    return low < in->tile_start[q + 1] && in->tile_k[low] == k;
}

static uint64_t each(uint64_t sum, uint64_t tokens) { return tokens ? (sum + tokens - 1) / tokens : sum; }

/* Adds a block to its component. column: pairs of all tiles with its keys. */
static void add_block(const dcp_input *in, uint32_t b, uint64_t column, component *c) {
    const uint64_t n = in->tokens[b];
    uint64_t work = 0;
    for (uint32_t t = in->tile_start[b]; t < in->tile_start[b + 1]; t++) {
        work += in->tile_pairs[t];
        if (in->tile_k[t] == b ? in->tile_pairs[t] > n * (n + 1) / 2 : has_tile(in, in->tile_k[t], b))
            c->one_way = false;
    }
    c->pairs += work;
    c->tokens += n;
    c->row_most = most_of(c->row_most, each(work, n));
    c->key_most = most_of(c->key_most, each(column, n));
    const uint64_t row = least_of(in->whole[b], in->part[b]);
    c->row = least_of(c->row, n ? row / n : UINT64_MAX);
    c->key = least_of(c->key, n ? in->kv[b] / n : UINT64_MAX);
    c->least = least_of(c->least, least_of(row, in->kv[b]));
}

fcp_code dcp_bound(const dcp_input *in, arena *scratch, uint64_t *out_bytes) {
    const uint32_t n = in->blocks;
    uint32_t *up = ARENA_NEW(scratch, uint32_t, n + (size_t)1);
    uint64_t *column = ARENA_ZNEW(scratch, uint64_t, n + (size_t)1);
    component *all = ARENA_NEW(scratch, component, n + (size_t)1);
    *out_bytes = 0;
    if (!up || !column || !all) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < n; b++) {
        up[b] = b;
        all[b] = (component){.row = UINT64_MAX, .key = UINT64_MAX, .least = UINT64_MAX, .one_way = true};
    }
    for (uint32_t q = 0; q < n; q++)
        for (uint32_t t = in->tile_start[q]; t < in->tile_start[q + 1]; t++) {
            const uint32_t x = find(up, q), y = find(up, in->tile_k[t]);
            column[in->tile_k[t]] += in->tile_pairs[t];
            if (x < y) up[y] = x;
            else up[x] = y;
        }
    for (uint32_t b = 0; b < n; b++) add_block(in, b, column[b], &all[find(up, b)]);
    for (uint32_t b = 0; b < n; b++) {
        if (!(b & 63) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        if (all[b].tokens > in->token_cap || all[b].pairs > in->pair_cap) *out_bytes += bound_of(&all[b], in);
    }
    return FCP_OK;
}
