/* known_masks.h: every mask of the prelude, defined a second time, in C. The definitions come from papers and other
 * projects, not from the prelude's text, and are put differently: windows with a first key, loops over blocks,
 * coordinates. 0 <= q, k < n. */
#ifndef TESTS_KNOWN_MASKS_H
#define TESTS_KNOWN_MASKS_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { KNOWN_PARAMS = 14, KNOWN_CALL = 256 };

/* p: the parameters, in order. */
typedef bool known_allow(const int64_t *p, int64_t q, int64_t k, int64_t n);

typedef struct known_mask {
    const char *name;
    known_allow *allow;
    const char *params[KNOWN_PARAMS]; /* "cw?": a condition */
    int needed;                       /* how many of them have no default; 0: all */
} known_mask;

#define DEF(name) static inline bool name(const int64_t *p, int64_t q, int64_t k, int64_t n)
#define UNUSED (void)p, (void)q, (void)k, (void)n

DEF(known_full) { return UNUSED, true; }
DEF(known_causal) { return UNUSED, k <= q; }
DEF(known_window) { return UNUSED, k <= q && k > q - p[0]; }
DEF(known_window_both) { return UNUSED, k >= q - p[0] && k <= q + p[1]; }
DEF(known_prefix) { return UNUSED, k < p[0] || k <= q; }
DEF(known_lambda) { return UNUSED, k <= q && (k < p[0] || k > q - p[1]); }
DEF(known_shared_question) {
    int64_t question = n * p[0] / 100, each = (n - question) / p[1];
    if (each < 1) each = 1;
    if (k > q) return false;
    for (int64_t part = 0, at = question; part < p[1]; part++, at += each) { /* q's answer sees itself */
        int64_t end = part == p[1] - 1 ? n : at + each;
        if (q >= at && q < end) return k < question || k >= at;
    }
    return true;
}
DEF(known_causal_blockwise) {
    if (k > q) return false;
    if (q < p[0] || q >= (n - 1) / p[0] * p[0]) return true;
    return k < p[0] || k >= q - p[1] * p[0];
}
DEF(known_causal_blockwise_fm) {
    int64_t start = q - q % p[0]; /* of q's block */
    return k <= q && (k >= start || start + p[0] >= n);
}
DEF(known_block_causal) { return UNUSED, k < q - q % p[0] + p[0]; }
DEF(known_global_window) { return UNUSED, q < p[0] || k < p[0] || (k <= q + p[1] && q <= k + p[1]); }
DEF(known_qk_sparse) { /* inside the stretch: what is before it; elsewhere causal */
    if (q >= p[0] && q < p[0] + p[1]) return k < p[0];
    return (void)n, k <= q;
}
DEF(known_block_diffusion) {
    int64_t half = n / 2, bq = (q < half ? q : q - half) / p[0], bk = (k < half ? k : k - half) / p[0];
    if (q < half && k < half) return bq == bk; /* noised: itself */
    if (q < half) return bk < bq;              /* the clean past */
    return k >= half && bk <= bq;              /* clean: block causal */
}
DEF(known_draft_train) { return UNUSED, k < p[0] || (k <= q && k >= q - q % p[1]); }
DEF(known_dilated) {
    int64_t apart = q > k ? q - k : k - q;
    return (void)n, apart <= p[0] && apart % p[1] == 0;
}

/* Does a clamped window of 2 r + 1 of `size` places, around `at`, hold `other`? */
static inline bool in_window(int64_t at, int64_t other, int64_t r, int64_t size) {
    if (2 * r + 1 >= size) return true;
    int64_t start = at - r;
    if (start < 0) start = 0;
    if (start > size - 2 * r - 1) start = size - 2 * r - 1;
    return other >= start && other <= start + 2 * r;
}
/* NATTEN: of the places that are `gap` apart in a row of `size`, does a's window of `width` hold b? `group` places
 * share one; a causal window ends at a. */
static inline bool natten_sees(int64_t a, int64_t b, int64_t size, int64_t width, int64_t group, int64_t gap,
                               int64_t causal) {
    if (a % gap != b % gap) return false;
    int64_t i = a / gap, j = b / gap, count = (size - a % gap + gap - 1) / gap;
    int64_t leader = i - i % group + (causal ? group - 1 : group / 2);
    if (leader > count - 1) leader = count - 1;
    if (causal) return j <= i && j > leader - width;
    int64_t start = leader - width / 2;
    if (start + width > count) start = count - width;
    if (start < 0) start = 0;
    return j >= start && j < start + width;
}
DEF(known_natten1d) { return natten_sees(q, k, n, p[0], p[1], p[2], p[3]); } /* kw sw dw cw */
DEF(known_natten2d) {                                                        /* W kw kh sw sh dw dh cw ch */
    int64_t qy = q / p[0], ky = k / p[0];
    return natten_sees(q - qy * p[0], k - ky * p[0], p[0], p[1], p[3], p[5], p[7]) &&
           natten_sees(qy, ky, n / p[0], p[2], p[4], p[6], p[8]);
}
DEF(known_natten3d) { /* W H kw kh kt sw sh st dw dh dt cw ch ct */
    int64_t picture = p[0] * p[1], a = q % picture, b = k % picture;
    return natten_sees(a % p[0], b % p[0], p[0], p[2], p[5], p[8], p[11]) &&
           natten_sees(a / p[0], b / p[0], p[1], p[3], p[6], p[9], p[12]) &&
           natten_sees(q / picture, k / picture, n / picture, p[4], p[7], p[10], p[13]);
}

/* Where the tile is that holds token t of a film of W x H x D, whose tokens lie tile after tile. A slab is what one
 * layer of tiles covers, a row what one row of it covers; the last ones may be cut off. at: x, y, z. */
static inline void known_tile(int64_t t, int64_t W, int64_t H, int64_t D, const int64_t tile[3], int64_t at[3]) {
    int64_t slab = W * H * tile[2], z = t / slab, pictures = D - z * tile[2] < tile[2] ? D - z * tile[2] : tile[2];
    int64_t row = W * tile[1] * pictures, y = (t - z * slab) / row, left = t - z * slab - y * row;
    int64_t lines = H - y * tile[1] < tile[1] ? H - y * tile[1] : tile[1];
    at[0] = left / (tile[0] * lines * pictures), at[1] = y, at[2] = z;
}
/* FastVideo: windows of tiles; text sees all and is seen by all. text: tokens, and are they in front of the film? */
static inline bool sta_sees(int64_t q, int64_t k, int64_t n, int64_t W, int64_t H, const int64_t tile[3],
                            const int64_t window[3], const int64_t text[2]) {
    const int64_t film = n - text[0], first = text[1] ? text[0] : 0;
    if (q < first || q >= first + film || k < first || k >= first + film) return true;
    const int64_t D = film / (W * H), size[3] = {W, H, D};
    int64_t a[3], b[3];
    known_tile(q - first, W, H, D, tile, a);
    known_tile(k - first, W, H, D, tile, b);
    for (int i = 0; i < 3; i++)
        if (!in_window(a[i], b[i], window[i] / 2, (size[i] + tile[i] - 1) / tile[i])) return false;
    return true;
}
DEF(known_sta2d) { /* W tw th kw kh text text_first partial */
    return sta_sees(q, k, n, p[0], (n - p[5]) / p[0], (int64_t[]){p[1], p[2], 1}, (int64_t[]){p[3], p[4], 1}, &p[5]);
}
DEF(known_sta3d) { return sta_sees(q, k, n, p[0], p[1], &p[2], &p[5], &p[8]); } /* W H tw th tt kw kh kt text ... */
DEF(known_svg_spatial) { return UNUSED, q < p[0] || k < p[0] || (k < q + p[1] && q < k + p[1]); }
DEF(known_svg_temporal) {
    if (q < p[0] || k < p[0]) return true;
    int64_t x = (q - p[0]) % p[1], y = (k - p[0]) % p[1];
    return (void)n, x < y + p[2] && y < x + p[2];
}
#undef DEF
#undef UNUSED

enum {
    K_FULL,
    K_CAUSAL,
    K_WINDOW,
    K_WINDOW_BOTH,
    K_PREFIX,
    K_LAMBDA,
    K_SHARED_QUESTION,
    K_CAUSAL_BLOCKWISE,
    K_BLOCK_CAUSAL,
    K_GLOBAL_WINDOW,
    K_DILATED,
    K_CAUSAL_BLOCKWISE_FM,
    K_QK_SPARSE,
    K_BLOCK_DIFFUSION,
    K_DRAFT_TRAIN,
    K_NATTEN1D,
    K_NATTEN2D,
    K_NATTEN3D,
    K_STA2D,
    K_STA3D,
    K_SVG_SPATIAL,
    K_SVG_TEMPORAL,
    KNOWN_MASKS
};
static const known_mask KNOWN[KNOWN_MASKS] = {
    [K_FULL] = {"full", known_full, {0}},
    [K_CAUSAL] = {"causal", known_causal, {0}},
    [K_WINDOW] = {"window", known_window, {"w"}},
    [K_WINDOW_BOTH] = {"window_both", known_window_both, {"l", "r"}},
    [K_PREFIX] = {"prefix", known_prefix, {"p"}},
    [K_LAMBDA] = {"lambda", known_lambda, {"sink", "window"}},
    [K_SHARED_QUESTION] = {"shared_question", known_shared_question, {"p", "answers"}},
    [K_CAUSAL_BLOCKWISE] = {"causal_blockwise", known_causal_blockwise, {"b", "w"}},
    [K_BLOCK_CAUSAL] = {"block_causal", known_block_causal, {"b"}},
    [K_GLOBAL_WINDOW] = {"global_window", known_global_window, {"g", "w"}},
    [K_DILATED] = {"dilated", known_dilated, {"w", "d"}},
    [K_CAUSAL_BLOCKWISE_FM] = {"causal_blockwise_fm", known_causal_blockwise_fm, {"b"}},
    [K_QK_SPARSE] = {"qk_sparse", known_qk_sparse, {"o", "m"}},
    [K_BLOCK_DIFFUSION] = {"block_diffusion", known_block_diffusion, {"b"}},
    [K_DRAFT_TRAIN] = {"draft_train", known_draft_train, {"p", "b"}},
    [K_NATTEN1D] = {"natten1d", known_natten1d, {"kw", "sw", "dw", "cw?"}, 1},
    [K_NATTEN2D] = {"natten2d", known_natten2d, {"W", "kw", "kh", "sw", "sh", "dw", "dh", "cw?", "ch?"}, 3},
    [K_NATTEN3D] = {"natten3d",
                    known_natten3d,
                    {"W", "H", "kw", "kh", "kt", "sw", "sh", "st", "dw", "dh", "dt", "cw?", "ch?", "ct?"},
                    5},
    [K_STA2D] = {"sta2d", known_sta2d, {"W", "tw", "th", "kw", "kh", "text", "text_first?", "partial?"}, 5},
    [K_STA3D] = {"sta3d",
                 known_sta3d,
                 {"W", "H", "tw", "th", "tt", "kw", "kh", "kt", "text", "text_first?", "partial?"},
                 8},
    [K_SVG_SPATIAL] = {"svg_spatial", known_svg_spatial, {"P", "w"}},
    [K_SVG_TEMPORAL] = {"svg_temporal", known_svg_temporal, {"P", "T", "w"}},
};

/* "window(w = 64)", "natten1d(kw = 7, sw = 1, dw = 1, cw = false)" */
static inline const char *known_call(const known_mask *m, const int64_t *p, char out[KNOWN_CALL]) {
    int at = snprintf(out, KNOWN_CALL, "%s", m->name);
    for (int i = 0; i < KNOWN_PARAMS && m->params[i]; i++) {
        int length = (int)strcspn(m->params[i], "?");
        at += snprintf(out + at, (size_t)(KNOWN_CALL - at), "%s%.*s = ", i ? ", " : "(", length, m->params[i]);
        if (m->params[i][length]) at += snprintf(out + at, (size_t)(KNOWN_CALL - at), "%s", p[i] ? "true" : "false");
        else at += snprintf(out + at, (size_t)(KNOWN_CALL - at), "%lld", (long long)p[i]);
    }
    if (m->params[0]) snprintf(out + at, (size_t)(KNOWN_CALL - at), ")");
    return out;
}

/* Small cases: parameters, and lengths that they take. */
typedef struct known_case {
    int mask;
    int64_t p[KNOWN_PARAMS];
    uint64_t lengths[4]; /* 0: no more */
} known_case;
static const known_case KNOWN_CASES[] = {
    {K_FULL, {0}, {300, 129}},
    {K_CAUSAL, {0}, {700, 1}},
    {K_WINDOW, {200}, {900, 100}},
    {K_WINDOW_BOTH, {60, 150}, {800, 130}},
    {K_PREFIX, {77}, {500, 50}},
    {K_LAMBDA, {64, 130}, {900, 128}},
    {K_SHARED_QUESTION, {20, 4}, {1000, 7, 333}},
    {K_SHARED_QUESTION, {3, 9}, {777, 5}},
    {K_CAUSAL_BLOCKWISE, {100, 2}, {1000, 128, 101}},
    {K_BLOCK_CAUSAL, {100}, {950, 99}},
    {K_GLOBAL_WINDOW, {16, 60}, {700, 20}},
    {K_DILATED, {300, 7}, {800, 200}},
    {K_CAUSAL_BLOCKWISE_FM, {128}, {1024, 1000, 100}},
    {K_CAUSAL_BLOCKWISE_FM, {90}, {1000, 90, 91}},
    {K_QK_SPARSE, {300, 200}, {1100, 400, 250}},
    {K_QK_SPARSE, {0, 128}, {300, 128, 5}},
    {K_BLOCK_DIFFUSION, {32}, {1024, 96, 2}},
    {K_BLOCK_DIFFUSION, {70}, {1000, 126, 140}},
    {K_DRAFT_TRAIN, {200, 64}, {1000, 64, 300}},
    {K_DRAFT_TRAIN, {5, 7}, {400, 3}},
    {K_NATTEN1D, {100, 1, 1, 0}, {800, 99, 100}},
    {K_NATTEN1D, {33, 1, 5, 0}, {700, 165, 168, 3}},
    {K_NATTEN1D, {64, 8, 1, 0}, {901, 64}},
    {K_NATTEN1D, {40, 3, 2, 1}, {701, 79}},
    {K_NATTEN2D, {32, 7, 7, 1, 1, 1, 1, 0, 0}, {1024, 32, 96}},
    {K_NATTEN2D, {30, 5, 9, 1, 1, 1, 1, 0, 0}, {1080, 30, 180}},
    {K_NATTEN2D, {128, 31, 3, 1, 1, 1, 1, 0, 0}, {1024, 256}},
    {K_NATTEN2D, {7, 9, 4, 1, 1, 1, 1, 0, 0}, {490, 49, 7}}, /* wider than the image, and even */
    {K_NATTEN2D, {1, 1, 5, 1, 1, 1, 1, 0, 0}, {300, 1}},
    {K_NATTEN2D, {31, 6, 4, 2, 3, 3, 2, 0, 0}, {1054, 31}},
    {K_NATTEN2D, {24, 5, 8, 1, 4, 2, 1, 0, 1}, {1080, 96}},
    {K_NATTEN3D, {8, 6, 3, 4, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0}, {960, 48}},
    {K_NATTEN3D, {9, 5, 4, 3, 4, 2, 1, 2, 2, 1, 3, 0, 0, 1}, {900, 90}},
    {K_STA2D, {32, 8, 4, 3, 3, 0, 0, 0}, {1024, 128}},
    {K_STA2D, {40, 8, 8, 3, 5, 0, 0, 0}, {960, 320}},
    {K_STA2D, {12, 4, 3, 1, 3, 0, 0, 0}, {720, 36}},
    {K_STA2D, {24, 8, 4, 1, 2, 70, 0, 0}, {838, 70, 50}},
    {K_STA2D, {22, 8, 4, 1, 3, 30, 1, 1}, {690, 52}},
    {K_STA3D, {16, 8, 4, 4, 2, 3, 3, 3, 0, 0, 0}, {1024, 256}},
    {K_STA3D, {12, 12, 4, 4, 2, 3, 1, 3, 0, 0, 0}, {1152, 288}},
    {K_STA3D, {8, 6, 4, 2, 3, 1, 3, 5, 0, 0, 0}, {1008, 144}},
    {K_STA3D, {8, 8, 4, 4, 2, 1, 1, 3, 40, 0, 0}, {680, 40}},
    {K_STA3D, {8, 8, 4, 4, 2, 1, 1, 2, 40, 1, 0}, {680, 168}},
    {K_STA3D, {10, 7, 4, 4, 3, 1, 2, 1, 0, 0, 1}, {980, 70}},
    {K_STA3D, {9, 10, 4, 5, 4, 1, 1, 3, 33, 0, 1}, {933, 123}},
    {K_SVG_SPATIAL, {50, 120}, {1000, 40, 200}},
    {K_SVG_TEMPORAL, {50, 128, 10}, {1074, 40, 200}},
    {K_SVG_TEMPORAL, {26, 90, 17}, {1000, 116}},
    {K_SVG_TEMPORAL, {0, 256, 128}, {1024, 300}},
};
enum { KNOWN_CASE_COUNT = sizeof KNOWN_CASES / sizeof *KNOWN_CASES };
#endif
