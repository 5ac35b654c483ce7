/* test_definitions.c: tests masks of other projects against ours. Each is written down by that project's own
 * definition, with its parameters, and must equal the prelude's mask or a mask of a program: pair by pair, at several
 * lengths, and by the number of pairs.
 *
 * The definitions are stated in their projects' ways, which are not ours: rows that are masked out of a column, ranges
 * of keys of a row, slices, tile coordinates. Where projects mean different masks by one name, both are here:
 *   window           FlexAttention's examples keep q - k <= w; FlashMask and Mistral keep q - k < w
 *   neighbourhoods   a window of even size w is w places wide in NATTEN, and w + 1 in attention-gym, whose example also
 *                    takes the row for x. Sliding tiles differ likewise between attention-gym and FastVideo.
 *   video            Sparse VideoGen's own kernels keep abs(q - k) <= w and the first picture; what was ported from
 *                    them keeps the text, and < w
 *   blocks           FlashMask's causal_blockwise sees its own document; DCP's sees a sink block and a window of blocks
 *
 * Sources: FlexAttention's examples and attention-gym's masks; FlashAttention's window_size; FlashMask (arXiv
 * 2410.01359) and its benchmark's masks; MagiAttention's slices and its benchmark's masks; NATTEN; Sparse VideoGen
 * (2502.01776); Sliding Tile Attention (2502.04507); Block Diffusion (2503.09573); Longformer (2004.05150); BigBird
 * (2007.14062); DCP's evaluation. */
#include "compiler/cells/cells.h"
#include "compiler/sema/program.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1200, LENGTHS = 5, PARAMS = 8, SLICES = 64 };

typedef bool defined(const int64_t *p, int64_t q, int64_t k, int64_t n);
typedef struct definition {
    const char *project;
    const char *mask; /* a call, or the text of a mask named m */
    defined *allow;
    int64_t p[PARAMS];
    uint64_t lengths[LENGTHS]; /* 0: no more */
} definition;

#define DEF(name) static bool name(const int64_t *p, int64_t q, int64_t k, int64_t n)
#define UNUSED (void)p, (void)q, (void)k, (void)n

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return most(lo, least(x, hi)); }
static int64_t apart(int64_t a, int64_t b) { return a > b ? a - b : b - a; }

/* --- FlexAttention's examples, attention-gym --------------------------------------------------------------------- */

DEF(flex_sliding_window) { return UNUSED, q - k <= p[0] && q >= k; }
DEF(flex_bidirectional_window) { return UNUSED, apart(q, k) <= p[0]; }
DEF(flex_prefix_lm) { return UNUSED, k < p[0] || q >= k; }
DEF(flex_sink) { return UNUSED, (q - k <= p[0] || k < p[1]) && q >= k; }
DEF(flex_dilated) { return UNUSED, apart(q, k) <= p[0] && apart(q, k) % p[1] == 0; }
/* canvas_w kernel_w kernel_h, a square canvas: what it calls x is the row. */
DEF(gym_natten) {
    int64_t r = p[1] / 2, s = p[2] / 2;
    int64_t row = clamp(q / p[0], r, p[0] - 1 - r), column = clamp(q % p[0], s, p[0] - 1 - s);
    return (void)n, apart(row, k / p[0]) <= r && apart(column, k % p[0]) <= s;
}
/* canvas_h canvas_w kernel_h kernel_w tile_h tile_w text: kernels in tokens; of an even one the left part is longer. */
static bool gym_reaches(int64_t q, int64_t k, int64_t tiles, int64_t kernel) {
    int64_t left = kernel / 2, right = kernel - 1 - left, center = clamp(q, left, tiles - 1 - right);
    return k >= center - left && k <= center + right;
}
DEF(gym_sta) {
    int64_t seen = p[0] * p[1], tile = p[4] * p[5], across = p[1] / p[5], down = p[0] / p[4];
    if (q >= seen || k >= seen) return (void)n, true; /* text and image see each other */
    return gym_reaches(q / tile / across, k / tile / across, down, p[2] / p[4]) &&
           gym_reaches(q / tile % across, k / tile % across, across, p[3] / p[5]);
}
/* prompt frames tokens width(frames) round */
DEF(gym_svg_spatial) {
    int64_t width = p[3] * p[2] / p[4] * p[4];
    return (void)n, q < p[0] || k < p[0] || apart(q, k) < width;
}
DEF(gym_svg_temporal) {
    int64_t width = p[3] * p[2] / p[1], x = q - p[0], y = k - p[0];
    return (void)n, q < p[0] || k < p[0] || apart(x % p[2], y % p[2]) < width;
}

/* --- FlashAttention ----------------------------------------------------------------------------------------------- */

/* window_size: keys to the left and to the right of the query, which is at the bottom right; -1 is no limit. */
DEF(flash_window) {
    int64_t first = p[0] < 0 ? 0 : most(0, q - p[0]), end = p[1] < 0 ? n : least(n, q + p[1] + 1);
    return k >= first && k < end;
}
/* attention_chunk, causal */
DEF(flash_chunk) { return (void)n, k >= q - q % p[0] && k <= q; }

/* --- FlashMask: of each column, the rows that are masked: [lts, lte) and [uts, ute); causal: those above the diago */

typedef struct column {
    int64_t lts, lte, uts, ute;
    bool causal;
} column;
static bool unmasked(column c, int64_t q, int64_t k) {
    return !(q >= c.lts && q < c.lte) && !(q >= c.uts && q < c.ute) && (!c.causal || q >= k);
}
DEF(fm_causal) { return UNUSED, unmasked((column){.causal = true}, q, k); }
DEF(fm_sliding_window) { return UNUSED, unmasked((column){least(k + p[0], n), n, .causal = true}, q, k); }
DEF(fm_prefix_lm) { return UNUSED, unmasked((column){n, n, 0, k < p[0] ? 0 : k}, q, k); }
/* global tokens, window */
DEF(fm_global_window) {
    bool near = k < p[0] + p[1] + 1;
    column c = {k < p[0] ? n : least(k + p[1] + 1, n), n, near ? 0 : p[0], near ? 0 : k - p[1]};
    return unmasked(c, q, k);
}
/* documents of p[0] tokens, the last one of what is left: it sees all of them */
DEF(fm_causal_blockwise) {
    int64_t end = least((k / p[0] + 1) * p[0], n), last = (n - 1) / p[0] * p[0];
    return unmasked((column){end, k < last ? last : n, .causal = true}, q, k);
}
/* pairs of (offset, masked tokens), in order; 0 tokens: no more */
DEF(fm_qk_sparse) {
    int64_t end = k;
    for (int i = 0; i < PARAMS && p[i + 1]; i += 2)
        if (k >= p[i] && k < p[i] + p[i + 1]) end = p[i] + p[i + 1];
    return (void)n, unmasked((column){n, n, 0, end}, q, k);
}
/* question tokens, answer tokens but for the last, answers */
DEF(fm_share_question) {
    if (k < p[0]) return unmasked((column){n, n, .causal = true}, q, k);
    int64_t answer = least((k - p[0]) / p[1], p[2] - 1), end = answer == p[2] - 1 ? n : p[0] + (answer + 1) * p[1];
    return unmasked((column){end, n, .causal = true}, q, k);
}

/* --- MagiAttention: slices of (q range, k range, type) ----------------------------------------------------------- */

enum { FULL, CAUSAL, INVERSE, BOTH }; /* its numbers */
typedef struct slice {
    int64_t q0, q1, k0, k1;
    int type;
} slice;
static bool in_slice(slice s, int64_t q, int64_t k) {
    if (q < s.q0 || q >= s.q1 || k < s.k0 || k >= s.k1) return false;
    bool lower = s.q1 - q <= s.k1 - k, upper = k - s.k0 >= q - s.q0; /* aligned to the bottom right, to the top left */
    return (!(s.type & CAUSAL) || lower) && (!(s.type & INVERSE) || upper);
}
static bool in_slices(const slice *s, int count, int64_t q, int64_t k) {
    bool in = false;
    for (int i = 0; i < count; i++) in |= in_slice(s[i], q, k);
    return in;
}
DEF(magi_causal) { return UNUSED, in_slices((slice[]){{0, n, 0, n, CAUSAL}}, 1, q, k); }
DEF(magi_sliding_window) {
    int64_t head = least(p[0] - 1, n);
    return in_slices((slice[]){{0, head, 0, head, CAUSAL}, {head, n, head - p[0] + 1, n, BOTH}}, 2, q, k);
}
DEF(magi_prefix_lm) {
    int64_t s = least(p[0], n);
    return in_slices((slice[]){{0, n, 0, s, FULL}, {s, n, s, n, CAUSAL}}, 2, q, k);
}
DEF(magi_causal_blockwise) {
    slice s[SLICES];
    int count = 0;
    for (int64_t at = 0; at < n; at += p[0])
        s[count++] = (slice){at, least(at + p[0], n), at, least(at + p[0], n), CAUSAL};
    s[count - 1].k0 = 0;
    return in_slices(s, count, q, k);
}
DEF(magi_qk_sparse) {
    int64_t o = least(p[0], n), end = least(o + p[1], n);
    return in_slices((slice[]){{0, o, 0, o, CAUSAL}, {o, end, 0, o, FULL}, {end, n, 0, n, CAUSAL}}, 3, q, k);
}
DEF(magi_share_question) {
    slice s[SLICES] = {{0, p[0], 0, p[0], CAUSAL}};
    int count = 1;
    for (int64_t i = 0; i < p[2]; i++) {
        int64_t at = p[0] + i * p[1], end = i == p[2] - 1 ? n : at + p[1];
        s[count++] = (slice){at, end, 0, p[0], FULL};
        s[count++] = (slice){at, end, at, end, CAUSAL};
    }
    return in_slices(s, count, q, k);
}
/* Blocks that see themselves and all before: of video chunks. */
DEF(magi_block_causal) {
    slice s[SLICES];
    int count = 0;
    for (int64_t at = 0; at < n; at += p[0])
        s[count++] = (slice){at, least(at + p[0], n), 0, least(at + p[0], n), FULL};
    return in_slices(s, count, q, k);
}

/* --- NATTEN: windows of exactly so many places, with strides and gaps -------------------------------------------- */

/* Its window about i, of `size` places: does it hold j? */
static bool natten_1d(int64_t i, int64_t j, int64_t length, int64_t size, int64_t stride, bool causal) {
    if (causal) {
        int64_t leader = least(i / stride * stride + stride - 1, length - 1);
        return i >= j && leader - j < size;
    }
    int64_t leader = least(i / stride * stride + stride / 2, length - 1);
    int64_t left = size / 2, right = size - 1 - left, center = clamp(leader, left, length - 1 - right);
    return j >= center - left && j <= center + right;
}
static bool natten_dilated(int64_t i, int64_t j, int64_t length, int64_t size, int64_t stride, int64_t gap,
                           bool causal) {
    int64_t group = i % gap; /* positions of one group are gap apart, and see no other */
    return j % gap == group && natten_1d(i / gap, j / gap, (length - group + gap - 1) / gap, size, stride, causal);
}
DEF(natten_2d) { /* W kw kh */
    return natten_1d(q % p[0], k % p[0], p[0], p[1], 1, false) &&
           natten_1d(q / p[0], k / p[0], n / p[0], p[2], 1, false);
}
DEF(natten_2d_causal) { /* W kw kh: causal from row to row, as films are */
    return natten_1d(q % p[0], k % p[0], p[0], p[1], 1, false) &&
           natten_1d(q / p[0], k / p[0], n / p[0], p[2], 1, true);
}
DEF(natten_1d_gaps) { return natten_dilated(q, k, n, p[0], 1, p[1], false); }
DEF(natten_1d_stride) { return natten_dilated(q, k, n, p[0], p[1], 1, false); }
DEF(natten_1d_causal_gaps) { return natten_dilated(q, k, n, p[0], 1, p[1], true); }

/* --- sliding tiles (FastVideo): windows in tiles, inclusive on both sides ---------------------------------------- */

static bool tile_near(int64_t q, int64_t k, int64_t tiles, int64_t kernel) {
    return apart(clamp(q, kernel / 2, tiles - 1 - kernel / 2), k) <= kernel / 2;
}
DEF(sta_3d) { /* W H tw th tt kw kh kt */
    int64_t tile = p[2] * p[3] * p[4], across = p[0] / p[2], down = p[1] / p[3], deep = n / (p[0] * p[1] * p[4]);
    int64_t a = q / tile, b = k / tile;
    return tile_near(a / (across * down), b / (across * down), deep, p[7]) &&
           tile_near(a / across % down, b / across % down, down, p[6]) &&
           tile_near(a % across, b % across, across, p[5]);
}
/* 77 tokens of text behind the film: its tokens see the text, and the text sees all. */
DEF(sta_3d_text) {
    int64_t film = n - 77;
    bool image = q < film && k < film, image_to_text = q < film && k >= film, text_to_all = q >= film;
    return (image && sta_3d(p, q, k, film)) || image_to_text || text_to_all;
}
/* attention-gym's: even windows, and text at the end */
#define GYM_STA                                                                                                        \
    "mask m(W, H, tw, th, kw, kh) = q >= image or k >= image or\n"                                                     \
    "        (holds(x(q), x(k), kw, across) and holds(y(q), y(k), kh, down))\n"                                        \
    "    where { image = W * H; across = exact(W, tw); down = exact(H, th)\n"                                          \
    "            x(t) = t / (tw * th) % across; y(t) = t / (tw * th) / across\n"                                       \
    "            first(t, w, size) = min(max(t - w / 2, 0), size - w)\n"                                               \
    "            holds(t, u, w, size) = first(t, w, size) <= u and u < first(t, w, size) + w }\n"

/* --- Sparse VideoGen's own kernels: no text in front, the first picture is seen by all, widths rounded up -------- */

DEF(svg_wan) { /* tokens width(frames) round */
    int64_t width = (p[1] * p[0] + p[2] - 1) / p[2] * p[2];
    return (void)n, k < p[0] || apart(q, k) <= width;
}
#define SVG_WAN "mask m(T, width, round) = k < T or abs(q - k) <= (width * T + round - 1) / round * round\n"

/* --- others ------------------------------------------------------------------------------------------------------ */

/* Block diffusion: x_t, then x_0, p[1] tokens each; block diagonal, offset block causal, block causal. */
DEF(block_diffusion) {
    bool clean_q = q >= p[1], clean_k = k >= p[1];
    int64_t a = (clean_q ? q - p[1] : q) / p[0], b = (clean_k ? k - p[1] : k) / p[0];
    bool diagonal = a == b && clean_q == clean_k, offset = a > b && clean_k && !clean_q;
    return (void)n, diagonal || offset || (a >= b && clean_k && clean_q);
}
/* Longformer: attention_window tokens, half to either side; the first g are global. */
DEF(longformer) { return UNUSED, apart(q, k) <= p[0] / 2 || q < p[1] || k < p[1]; }
/* BigBird without its random blocks: a window of three blocks, the first and the last block global. */
DEF(bigbird) {
    int64_t a = q / p[0], b = k / p[0], last = (n - 1) / p[0];
    return a == 0 || a == last || b == 0 || b == last || (b >= a - 1 && b <= a + 1);
}
#define BIGBIRD                                                                                                        \
    "mask m(b) = abs(q / b - k / b) <= 1 or outer(q) or outer(k)\n"                                                    \
    "    where { outer(t) = t / b == 0 or t / b == (n - 1) / b }\n"
/* Mistral: w keys, the query's own among them. */
DEF(mistral) { return UNUSED, k <= q && k > q - p[0]; }
/* DCP: two ranges of keys a row, [0, a) and [b, q + 1). */
static bool two_ranges(int64_t q, int64_t k, int64_t a, int64_t b) { return k <= q && (k < a || k >= b); }
DEF(dcp_lambda) { return UNUSED, two_ranges(q, k, p[0], most(0, q - p[1] + 1)); }
DEF(dcp_causal_blockwise) { /* block, window in blocks */
    bool all = q < p[0] || q >= (n - 1) / p[0] * p[0];
    return two_ranges(q, k, all ? q + 1 : p[0], q - p[1] * p[0]);
}
DEF(dcp_shared_question) { /* five parts of a fifth: a question and four answers */
    int64_t fifth = n / 5, start = most(1, least(4, q / fifth)) * fifth;
    return (void)p, two_ranges(q, k, fifth, q < fifth ? 0 : start);
}
#undef DEF
#undef UNUSED

static const definition DEFINITIONS[] = {
    {"FlexAttention", "window(w = 101)", flex_sliding_window, {100}, {1, 99, 100, 101, 700}},
    {"FlexAttention", "window_both(l = 100, r = 100)", flex_bidirectional_window, {100}, {1, 101, 600}},
    {"FlexAttention", "global_window(g = 0, w = 100)", flex_bidirectional_window, {100}, {1, 101, 600}},
    {"FlexAttention", "prefix(p = 60)", flex_prefix_lm, {60}, {1, 59, 60, 61, 500}},
    {"attention-gym", "lambda(sink = 4, window = 129)", flex_sink, {128, 4}, {1, 129, 132, 133, 900}},
    {"attention-gym", "dilated(w = 40, d = 4)", flex_dilated, {40, 4}, {1, 41, 400}},
    {"attention-gym", "natten2d(W = 24, kw = 5, kh = 7)", gym_natten, {24, 7, 5}, {576}},
    {"attention-gym", "natten2d(W = 24, kw = 7, kh = 5)", gym_natten, {24, 4, 6}, {576}},
    {"attention-gym", "sta2d(W = 24, tw = 4, th = 4, kw = 3, kh = 5)", gym_sta, {24, 24, 20, 12, 4, 4}, {576}},
    {"attention-gym",
     GYM_STA "plan { mask = m(W = 24, H = 24, tw = 4, th = 4, kw = 4, kh = 2) }",
     gym_sta,
     {24, 24, 8, 16, 4, 4},
     {576, 580, 700}},
    {"attention-gym", "svg_spatial(P = 26, w = 128)", gym_svg_spatial, {26, 10, 100, 2, 128}, {1026}},
    {"attention-gym", "svg_temporal(P = 26, T = 100, w = 20)", gym_svg_temporal, {26, 10, 100, 2}, {1026}},
    {"FlashAttention", "causal", flash_window, {-1, 0}, {1, 300}},
    {"FlashAttention", "full", flash_window, {-1, -1}, {1, 300}},
    {"FlashAttention", "window(w = 101)", flash_window, {100, 0}, {1, 100, 101, 102, 700}},
    {"FlashAttention", "window_both(l = 64, r = 32)", flash_window, {64, 32}, {1, 32, 33, 65, 700}},
    {"FlashAttention", "mask m = q - k <= 64\n", flash_window, {64, -1}, {1, 64, 65, 700}},
    {"FlashAttention", "mask m = k - q <= 32\n", flash_window, {-1, 32}, {1, 32, 33, 700}},
    {"FlashAttention", "mask m = causal and q / 100 == k / 100\n", flash_chunk, {100}, {1, 100, 101, 700}},
    {"FlashMask", "causal", fm_causal, {0}, {1, 300}},
    {"FlashMask", "window(w = 100)", fm_sliding_window, {100}, {1, 99, 100, 101, 700}},
    {"FlashMask", "prefix(p = 60)", fm_prefix_lm, {60}, {1, 60, 61, 500}},
    {"FlashMask", "global_window(g = 16, w = 50)", fm_global_window, {16, 50}, {16, 66, 67, 68, 600}},
    {"FlashMask", "causal_blockwise_fm(b = 100)", fm_causal_blockwise, {100}, {50, 100, 101, 1000, 1001}},
    {"FlashMask", "qk_sparse(o = 130, m = 60)", fm_qk_sparse, {130, 60}, {100, 130, 131, 190, 700}},
    {"FlashMask",
     "mask m = qk_sparse(o = 50, m = 60) and qk_sparse(o = 300, m = 129)\n",
     fm_qk_sparse,
     {50, 60, 300, 129},
     {400, 429, 430, 800}},
    {"FlashMask", "shared_question(p = 20, answers = 4)", fm_share_question, {200, 200, 4}, {1000, 1003}},
    {"FlashMask", "shared_question(p = 20, answers = 4)", fm_share_question, {200, 201, 4}, {1004}},
    {"MagiAttention", "causal", magi_causal, {0}, {1, 300}},
    {"MagiAttention", "window(w = 100)", magi_sliding_window, {100}, {1, 99, 100, 101, 700}},
    {"MagiAttention", "prefix(p = 60)", magi_prefix_lm, {60}, {1, 59, 60, 61, 500}},
    {"MagiAttention", "causal_blockwise_fm(b = 100)", magi_causal_blockwise, {100}, {50, 100, 101, 1000, 1001}},
    {"MagiAttention", "qk_sparse(o = 130, m = 60)", magi_qk_sparse, {130, 60}, {100, 130, 131, 190, 700}},
    {"MagiAttention", "shared_question(p = 20, answers = 4)", magi_share_question, {200, 200, 4}, {1000, 1003}},
    {"MagiAttention", "block_causal(b = 128)", magi_block_causal, {128}, {127, 128, 129, 1000}},
    {"NATTEN", "natten2d(W = 30, kw = 7, kh = 5)", natten_2d, {30, 7, 5}, {150, 180, 900}},
    {"NATTEN", "natten2d(W = 30, kw = 8, kh = 4)", natten_2d, {30, 8, 4}, {120, 150, 900}},
    {"NATTEN", "natten2d(W = 30, kw = 8, kh = 4, ch = true)", natten_2d_causal, {30, 8, 4}, {30, 120, 900}},
    {"NATTEN", "natten1d(kw = 9, dw = 5)", natten_1d_gaps, {9, 5}, {45, 46, 49, 300, 602}},
    {"NATTEN", "natten1d(kw = 16, sw = 4)", natten_1d_stride, {16, 4}, {16, 17, 18, 130, 400}},
    {"NATTEN", "natten1d(kw = 9, dw = 5, cw = true)", natten_1d_causal_gaps, {9, 5}, {1, 45, 46, 602}},
    {"FastVideo",
     "sta3d(W = 12, H = 8, tw = 4, th = 4, tt = 2, kw = 3, kh = 1, kt = 3)",
     sta_3d,
     {12, 8, 4, 4, 2, 3, 1, 3},
     {576, 1152}},
    {"FastVideo",
     "sta3d(W = 16, H = 8, tw = 4, th = 2, tt = 1, kw = 2, kh = 3, kt = 2)",
     sta_3d,
     {16, 8, 4, 2, 1, 2, 3, 2},
     {384, 1152}},
    {"FastVideo",
     "sta3d(W = 12, H = 8, tw = 4, th = 4, tt = 2, kw = 3, kh = 1, kt = 3, text = 77)",
     sta_3d_text,
     {12, 8, 4, 4, 2, 3, 1, 3},
     {653, 1037}},
    {"Sparse VideoGen",
     SVG_WAN "plan { mask = m(T = 150, width = 2, round = 128) }",
     svg_wan,
     {150, 2, 128},
     {900, 150, 200}},
    {"Block Diffusion", "block_diffusion(b = 16)", block_diffusion, {16, 256}, {512}},
    {"Block Diffusion", "block_diffusion(b = 48)", block_diffusion, {48, 500}, {1000}},
    {"Longformer", "global_window(g = 3, w = 64)", longformer, {128, 3}, {1, 64, 65, 66, 700}},
    {"BigBird", BIGBIRD "plan { mask = m(b = 64) }", bigbird, {64}, {64, 128, 704, 700}},
    {"Mistral", "window(w = 128)", mistral, {128}, {1, 127, 128, 129, 600}},
    {"DCP", "lambda(sink = 64, window = 256)", dcp_lambda, {64, 256}, {1, 64, 320, 321, 1000}},
    {"DCP", "causal_blockwise(b = 64, w = 2)", dcp_causal_blockwise, {64, 2}, {1, 64, 192, 1000, 1024}},
    {"DCP", "shared_question(p = 20, answers = 4)", dcp_shared_question, {0}, {5, 100, 1000}},
};
enum { DEFINITION_COUNT = sizeof DEFINITIONS / sizeof *DEFINITIONS };

static fcpc_program *program_of(const char *mask) {
    char source[2048];
    bool text = !strncmp(mask, "mask ", 5), plan = strstr(mask, "plan {");
    snprintf(source, sizeof source, plan ? "%s" : text ? "%splan { mask = m }" : "plan { mask = %s }", mask);
    return program_named("test.fcp", source);
}

Test(definitions, every_pair) {
    const int64_t step = amount(3, 1); /* pairs are counted all, and asked for one by one on every third diagonal */
    uint64_t allowed_at_all = 0;
    for (int i = 0; i < DEFINITION_COUNT; i++) {
        const definition *x = &DEFINITIONS[i];
        fcpc_program *p = program_of(x->mask);
        int64_t *scratch = malloc(p->mask.count * sizeof *scratch);
        cells *c = cells_new(p->mask, 1);
        cr_assert(scratch && c);
        for (int j = 0; j < LENGTHS && x->lengths[j]; j++) {
            const int64_t n = (int64_t)x->lengths[j];
            const mc_env *env = MC_LENGTH(n);
            uint64_t pairs = 0;
            for (int64_t q = 0; q < n; q++)
                for (int64_t k = 0; k < n; k++) {
                    bool want = x->allow(x->p, q, k, n), got = want;
                    if ((q + k) % step == 0) got = mc_eval(p->mask, env, q, k, 0, scratch);
                    if (got != want)
                        cr_assert_fail("%s: %s, n = %d: q = %d, k = %d", x->project, x->mask, (int)n, (int)q, (int)k);
                    pairs += want;
                }
            cells_counts counts;
            cr_assert_eq(cells_count(c, env, &counts, NULL), FCP_OK, "%s: %s", x->project, x->mask);
            cr_assert_eq(counts.pairs, pairs, "%s: %s, n = %d", x->project, x->mask, (int)n);
            allowed_at_all += pairs;
        }
        cells_free(c);
        free(scratch);
        fcpc_program_free(p);
    }
    cr_assert_gt(allowed_at_all, 0);
}

/* --- random parameters -------------------------------------------------------------------------------------------- */

static int64_t draw(uint64_t *state, int64_t least_value, int64_t most_value) {
    return least_value + (int64_t)(splitmix(state) % (uint64_t)(most_value - least_value + 1));
}

/* Compares a call with a table of who sees whom. */
static void judge_table(const char *call, const bool *sees, int64_t n) {
    fcpc_program *p = program_of(call);
    int64_t *scratch = malloc(p->mask.count * sizeof *scratch);
    cells *c = cells_new(p->mask, 1);
    cells_counts counts;
    uint64_t pairs = 0;
    cr_assert(scratch && c);
    for (int64_t q = 0; q < n; q++)
        for (int64_t k = 0; k < n; k++) {
            bool got = mc_eval(p->mask, MC_LENGTH(n), q, k, 0, scratch);
            if (got != sees[q * n + k]) cr_assert_fail("%s, n = %d: q = %d, k = %d", call, (int)n, (int)q, (int)k);
            pairs += sees[q * n + k];
        }
    cr_assert_eq(cells_count(c, MC_LENGTH(n), &counts, NULL), FCP_OK, "%s", call);
    cr_assert_eq(counts.pairs, pairs, "%s, n = %d", call, (int)n);
    cells_free(c);
    free(scratch);
    fcpc_program_free(p);
}

/* One axis of NATTEN, as a table of its places: the places of each residue are listed, and each sees a stretch of the
 * list. */
typedef struct axis {
    int64_t size, window, stride, dilation;
    bool causal;
} axis;
static axis draw_axis(uint64_t *state, int64_t longest) {
    axis x = {.size = draw(state, 1, longest), .causal = draw(state, 0, 2) == 0};
    x.dilation = draw(state, 0, 1) ? 1 : draw(state, 1, 4);
    x.window = draw(state, 1, draw(state, 0, 3) ? most(1, x.size / x.dilation) : x.size + 3);
    x.stride = draw(state, 0, 1) ? 1 : draw(state, 1, x.window);
    return x;
}
static void fill_axis(axis x, bool *sees) {
    memset(sees, 0, (size_t)(x.size * x.size));
    for (int64_t residue = 0; residue < x.dilation; residue++) {
        int64_t list[64], count = 0;
        for (int64_t at = residue; at < x.size; at += x.dilation) list[count++] = at;
        for (int64_t i = 0; i < count; i++) {
            int64_t group = i / x.stride * x.stride, last = least(group + x.stride - 1, count - 1);
            int64_t begin, end; /* of what i sees, in the list */
            if (x.causal) begin = most(0, last - x.window + 1), end = i + 1;
            else {
                begin = least(group + x.stride / 2, count - 1) - x.window / 2;
                while (begin + x.window > count) begin--;
                while (begin < 0) begin++;
                end = least(begin + x.window, count);
            }
            for (int64_t j = begin; j < end; j++) sees[list[i] * x.size + list[j]] = true;
        }
    }
}

Test(definitions, random_neighbourhoods) {
    uint64_t state = 37;
    static bool one[3][64 * 64], all[400 * 400];
    const int count = amount(120, 1500);
    for (int i = 0; i < count; i++) {
        const int dimensions = 1 + i % 3;
        axis x[3] = {{1, 1, 1, 1, false}, {1, 1, 1, 1, false}, {1, 1, 1, 1, false}};
        for (int d = 0; d < dimensions; d++) x[d] = draw_axis(&state, dimensions == 1 ? 60 : dimensions == 2 ? 16 : 7);
        for (int d = 0; d < 3; d++) fill_axis(x[d], one[d]);
        const int64_t W = x[0].size, H = x[1].size, n = W * H * x[2].size;
        for (int64_t q = 0; q < n; q++)
            for (int64_t k = 0; k < n; k++)
                all[q * n + k] = one[0][q % W * W + k % W] && one[1][q / W % H * H + k / W % H] &&
                                 one[2][q / (W * H) * x[2].size + k / (W * H)];
        char call[400];
        int at = snprintf(call, sizeof call, "natten%dd(%s", dimensions, dimensions == 1 ? "" : "W = ");
        if (dimensions > 1) at += snprintf(call + at, sizeof call - (size_t)at, "%d, ", (int)W);
        if (dimensions > 2) at += snprintf(call + at, sizeof call - (size_t)at, "H = %d, ", (int)H);
        for (int d = 0; d < dimensions; d++)
            at += snprintf(call + at, sizeof call - (size_t)at, "%sk%c = %d, s%c = %d, d%c = %d, c%c = %s",
                           d ? ", " : "", "wht"[d], (int)x[d].window, "wht"[d], (int)x[d].stride, "wht"[d],
                           (int)x[d].dilation, "wht"[d], x[d].causal ? "true" : "false");
        snprintf(call + at, sizeof call - (size_t)at, ")");
        judge_table(call, all, n);
    }
}

/* Sliding tiles over a film whose tokens are put in order tile after tile: FastVideo's window on the coordinates of
 * their tiles. Where a tile does not divide a side, the film is padded to whole tiles, and the padding left out. */
Test(definitions, random_tiles) {
    uint64_t state = 38;
    static bool all[700 * 700];
    static int64_t tile_of[700][3];
    const int count = amount(120, 1500);
    for (int i = 0; i < count; i++) {
        int64_t side[3], tile[3], window[3], tiles[3], n = 0;
        const bool partial = draw(&state, 0, 1), flat = draw(&state, 0, 2) == 0, first = draw(&state, 0, 1);
        const int64_t text = draw(&state, 0, 1) ? draw(&state, 0, 40) : 0;
        for (int d = 0; d < 3; d++) {
            tile[d] = flat && d == 2 ? 1 : draw(&state, 1, 4);
            tiles[d] = flat && d == 2 ? 1 : draw(&state, 1, 3);
            side[d] = tiles[d] * tile[d] - (partial ? draw(&state, 0, tile[d] - 1) : 0);
            window[d] = draw(&state, 1, 4);
        }
        if (side[0] * side[1] * side[2] > 640) continue;
        if (first) n = text;
        for (int64_t z = 0; z < tiles[2]; z++)
            for (int64_t y = 0; y < tiles[1]; y++)
                for (int64_t x = 0; x < tiles[0]; x++)
                    for (int64_t place = 0; place < tile[0] * tile[1] * tile[2]; place++) {
                        int64_t px = x * tile[0] + place % tile[0], py = y * tile[1] + place / tile[0] % tile[1];
                        int64_t pz = z * tile[2] + place / tile[0] / tile[1];
                        if (px >= side[0] || py >= side[1] || pz >= side[2]) continue; /* padding */
                        tile_of[n][0] = x, tile_of[n][1] = y, tile_of[n][2] = z;
                        n++;
                    }
        const int64_t begin = first ? text : 0, end = n;
        if (!first) n += text;
        for (int64_t q = 0; q < n; q++)
            for (int64_t k = 0; k < n; k++) {
                bool sees = true;
                if (q >= begin && q < end && k >= begin && k < end)
                    for (int d = 0; d < 3; d++)
                        sees = sees && tile_near(tile_of[q][d], tile_of[k][d], tiles[d], window[d]);
                all[q * n + k] = sees;
            }
        char call[400];
        int at = flat ? snprintf(call, sizeof call, "sta2d(W = %d, tw = %d, th = %d, kw = %d, kh = %d", (int)side[0],
                                 (int)tile[0], (int)tile[1], (int)window[0], (int)window[1])
                      : snprintf(call, sizeof call,
                                 "sta3d(W = %d, H = %d, tw = %d, th = %d, tt = %d, kw = %d, kh = %d, kt = %d",
                                 (int)side[0], (int)side[1], (int)tile[0], (int)tile[1], (int)tile[2], (int)window[0],
                                 (int)window[1], (int)window[2]);
        snprintf(call + at, sizeof call - (size_t)at, ", text = %d, text_first = %s, partial = %s)", (int)text,
                 first ? "true" : "false", partial ? "true" : "false");
        judge_table(call, all, n);
    }
}

/* Definitions that go by one name and differ do differ, each from the other's mask. */
Test(definitions, are_told_apart) {
    static const struct {
        const char *mask;
        defined *allow;
        int64_t p[PARAMS];
        uint64_t n;
    } others[] = {
        {"window(w = 100)", flex_sliding_window, {100}, 700},
        {"window(w = 101)", fm_sliding_window, {100}, 700},
        {"lambda(sink = 4, window = 128)", flex_sink, {128, 4}, 900},
        {"natten2d(W = 24, kw = 7, kh = 5)", gym_natten, {24, 7, 5}, 576},
        {"natten2d(W = 24, kw = 6, kh = 4)", gym_natten, {24, 4, 6}, 576},
        {"svg_spatial(P = 150, w = 384)", svg_wan, {150, 2, 128}, 900},
        {"causal_blockwise(b = 100, w = 1)", fm_causal_blockwise, {100}, 1000},
        {"global_window(g = 3, w = 128)", longformer, {128, 3}, 700},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        fcpc_program *p = program_of(others[i].mask);
        int64_t *scratch = malloc(p->mask.count * sizeof *scratch), n = (int64_t)others[i].n;
        uint64_t differ = 0;
        for (int64_t q = 0; q < n; q++)
            for (int64_t k = 0; k < n; k++)
                differ += mc_eval(p->mask, MC_LENGTH(n), q, k, 0, scratch) != others[i].allow(others[i].p, q, k, n);
        cr_assert_gt(differ, 0, "%s", others[i].mask);
        free(scratch);
        fcpc_program_free(p);
    }
}
