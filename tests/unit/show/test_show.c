/* test_show.c: tests pictures. The counts that they draw are compared with brute force, their width and signs are
 * checked, SVG and HTML must be well formed, and some pictures are compared with golden files (tests/golden/show;
 * GOLDEN_UPDATE=1 rewrites them). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "compiler/show/terminal.h"
#include "compiler/show/model.h"
#include "compiler/base/text.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/hand_plan.h"
#include "tests/support/temporary.h"
#include "tests/support/plan_of.h"

/* A plan by hand, with the records a picture needs besides. */
typedef struct fixture {
    hand *hand;
    fcp_cluster cluster;
    fcp_summary summary;
    uint32_t round_starts[FCP_PASSES + 1];
    fcp_plan *plan;
} fixture;

static void make(fixture *f, uint32_t ranks, uint32_t block, const char *mask, const uint64_t *lengths, uint32_t count,
                 const char *source) {
    *f = (fixture){.cluster = {.gpu = "h200", .intra = 450000000000, .inter = 50000000000, .latency_ns = 5000}};
    f->hand = hand_make(ranks, 4, 2, 64, FCP_BF16, block, mask, lengths, count);
    cr_assert(f->hand);
    f->plan = &f->hand->plan;
    f->summary.sequences = count;
    for (uint32_t t = 0; t < f->hand->tile_count; t++) f->summary.pairs += f->hand->tiles[t].pairs;
    for (uint32_t s = 0; s < count; s++) f->summary.positions += lengths[s] * lengths[s];
    f->plan->cluster = &f->cluster;
    f->plan->cluster_count = 1;
    f->plan->summary = &f->summary;
    f->plan->summary_count = 1;
    f->plan->round_starts = f->round_starts;
    f->plan->round_starts_count = FCP_PASSES + 1;
    f->plan->source = source;
    f->plan->source_count = strlen(source);
}

static const char *const MASKS[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};
enum { MASK_COUNT = sizeof MASKS / sizeof *MASKS };

static uint64_t brute(const hand *h, uint64_t n, uint64_t q0, uint64_t q1, uint64_t k0, uint64_t k1) {
    mc_code code = {h->mask, h->mask_count};
    uint32_t heads = h->problem.mask_uses & MC_USES_H ? h->problem.heads : 1;
    int64_t scratch[64];
    uint64_t pairs = 0;
    for (uint64_t q = q0; q < q1; q++)
        for (uint64_t k = k0; k < k1; k++)
            for (uint32_t x = 0; x < heads; x++)
                pairs += mc_eval(code, MC_LENGTH((int64_t)n), (int64_t)q, (int64_t)k, x, scratch);
    return pairs;
}

/* Grids whose rows and columns are blocks hold exact counts; finer ones add up to them. */
Test(show, grids_count_pairs) {
    const uint64_t lengths[] = {600, 420, 130, 420};
    for (int i = 0; i < MASK_COUNT; i++)
        for (uint32_t fine = 0; fine < 2; fine++) {
            fixture f;
            show_model m;
            arena memory = {0};
            make(&f, 3, 256, MASKS[i], lengths, 4, "");
            show_scale scale = {.grid_cols = fine ? 64 : 3,
                                .grid_rows = fine ? 64 : 3,
                                .minor_cols = fine ? 64 : 2,
                                .minor_rows = fine ? 64 : 2,
                                .grids = 2,
                                .rank_rows = 8,
                                .stage_cols = 8};
            cr_assert_eq(show_model_make(f.plan, &scale, &memory, &m), FCP_OK);
            cr_assert_eq(m.grid_count, 2);
            cr_assert_eq(m.grids[0].length, 600);
            cr_assert_eq(m.grids[1].length, 420);
            cr_assert_eq(m.grids[1].alike, 2);
            cr_assert_eq(m.grids[1].sequence, 1);
            for (uint32_t x = 0; x < m.grid_count; x++) {
                const show_grid *g = &m.grids[x];
                uint64_t sum = 0, full = brute(f.hand, g->length, 0, g->length, 0, g->length);
                if (fine) cr_assert(g->rows == (g->length + 127) / 128 && g->cols == g->rows);
                for (uint32_t r = 0; r < g->rows; r++)
                    for (uint32_t c = 0; c < g->cols; c++) {
                        uint64_t pairs = g->pairs[r * g->cols + c], exact;
                        exact = brute(f.hand, g->length, g->row_cut[r], g->row_cut[r + 1], g->col_cut[c],
                                      g->col_cut[c + 1]);
                        sum += pairs;
                        if (!fine) cr_assert_eq(pairs, exact, "%s %u %u: %lu, not %lu", MASKS[i], r, c, pairs, exact);
                        uint64_t area = (g->row_cut[r + 1] - g->row_cut[r]) * (g->col_cut[c + 1] - g->col_cut[c]);
                        uint32_t level = show_level(&m, g, r, c, 4);
                        cr_assert_eq(level == 0, exact == 0, "%s: level %u of %lu pairs", MASKS[i], level, exact);
                        cr_assert_eq(level == 4, exact == area * m.pair_heads);
                    }
                cr_assert_eq(sum, full, "%s, sequence %u: %lu pairs, not %lu", MASKS[i], g->sequence, sum, full);
            }
            arena_free(&memory);
            hand_free(f.hand);
        }
}

/* Ranks and stages against the tables. */
Test(show, ranks_and_stages_add_up) {
    const uint64_t lengths[] = {1000, 700, 130};
    for (uint32_t ranks = 1; ranks <= 5; ranks++) {
        fixture f;
        show_model m;
        arena memory = {0};
        make(&f, ranks, 256, "causal", lengths, 3, "");
        show_scale scale = {.grid_cols = 8,
                            .grid_rows = 8,
                            .minor_cols = 8,
                            .minor_rows = 8,
                            .grids = 3,
                            .rank_rows = 2,
                            .stage_cols = 4};
        cr_assert_eq(show_model_make(f.plan, &scale, &memory, &m), FCP_OK);
        uint64_t tokens = 0, pairs = 0, sent = 0, received = 0, cells = 0, moved = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            tokens += m.ranks[r].tokens;
            pairs += m.ranks[r].pairs;
            sent += m.ranks[r].sent;
            received += m.ranks[r].received;
            if (r) cr_assert_geq(m.ranks[m.by_work[r - 1]].pairs, m.ranks[m.by_work[r]].pairs);
        }
        for (uint32_t i = 0; i < m.rank_rows * m.stage_cols; i++) cells += m.cell[i].pairs;
        const fcp_stream *streams = f.plan->streams;
        for (uint32_t r = 0; r < ranks; r++) {
            const fcp_stream *s = &streams[r * FCP_QUEUES + FCP_COMM];
            for (uint32_t i = s->first; i < s->first + s->count; i++)
                if (f.plan->instrs[i].op == FCP_OP_LAUNCH && f.plan->transfers[f.plan->instrs[i].a].dir == FCP_RECV)
                    moved += f.plan->transfers[f.plan->instrs[i].a].tokens * 2u * 2 * 64 * 2;
        }
        cr_assert_eq(tokens, 1830);
        cr_assert_eq(pairs, f.summary.pairs);
        cr_assert_eq(cells, f.summary.pairs);
        cr_assert_eq(sent, moved);
        cr_assert_eq(received, moved);
        cr_assert_eq(m.stage[0].pairs, f.summary.pairs);
        cr_assert_eq(m.stage[0].pairs_max, m.ranks[m.by_work[0]].pairs);
        cr_assert_eq(m.stage[0].bytes[FCP_FORWARD], moved);
        cr_assert_gt(m.rank_rows * m.ranks_a_row, ranks - 1);
        arena_free(&memory);
        hand_free(f.hand);
    }
}

static text draw(const fcp_plan *plan, uint32_t width, bool colour, bool unicode) {
    text t = {0};
    fcp_error err = {0};
    const fcpc_show_options o = {.width = width, .colour = colour, .unicode = unicode};
    cr_assert_eq(show_text(plan, &o, &t, &err), FCP_OK, "%s", err.message);
    cr_assert(!t.failed && t.size);
    text_add(&t, "", 1);
    t.size--;
    return t;
}

static void check_lines(const char *s, uint32_t width, bool unicode) {
    for (uint32_t at = 0; *s; s++) {
        unsigned char c = (unsigned char)*s;
        cr_assert(c == '\n' || (c >= ' ' && c != 127), "control byte %u", c);
        cr_assert(unicode || c < 128, "byte %u in ASCII", c);
        if (c == '\n') at = 0;
        else at += (c & 0xc0) != 0x80;
        cr_assert_leq(at, width, "a line is too wide: ...%.60s", s > s - at ? s - at + 1 : s);
        if (c == '\n') cr_assert_neq(s[-1], ' ', "a line ends with a space");
    }
}

Test(show, text_fits_the_terminal) {
    const uint64_t lengths[] = {1100, 140, 520};
    const char *source = "plan {\n    mask = causal_blockwise(b = 256, w = 2)\n}\n";
    for (int i = 0; i < MASK_COUNT; i++)
        for (uint32_t ranks = 1; ranks <= 40; ranks += 38) {
            fixture f;
            make(&f, ranks, 128, MASKS[i], lengths, 3, source);
            const uint32_t widths[] = {64, 80, 117, 160};
            for (int w = 0; w < 4; w++)
                for (int unicode = 0; unicode < 2; unicode++) {
                    text t = draw(f.plan, widths[w], false, unicode);
                    check_lines(t.at, widths[w], unicode);
                    cr_assert(strstr(t.at, "causal_blockwise(b = 256, w = 2)"));
                    text_free(&t);
                }
            hand_free(f.hand);
        }
}

/* Colour adds escapes and nothing else; the same options give the same bytes; no width is 80. */
Test(show, colour_is_only_colour) {
    const uint64_t lengths[] = {3000, 700};
    fixture f;
    make(&f, 5, 256, "causal", lengths, 2, "mask = causal()\n");
    text plain = draw(f.plan, 80, false, true), colour = draw(f.plan, 80, true, true),
         again = draw(f.plan, 80, true, true);
    cr_assert_str_eq(colour.at, again.at);
    char *to = colour.at;
    uint32_t escapes = 0;
    for (const char *s = colour.at; *s;) {
        if (*s != '\033') {
            *to++ = *s++;
            continue;
        }
        while (*s != 'm') s++;
        s++;
        escapes++;
    }
    *to = 0;
    cr_assert_str_eq(colour.at, plain.at);
    cr_assert_gt(escapes, 20);
    text_free(&plain);
    text_free(&colour);
    text_free(&again);
    hand_free(f.hand);
}

/* Tags nest, attributes are quoted, text holds no stray sign; all numbers of x, y, width, height are within the
 * image. */
static void check_markup(const char *s) {
    char open[64][24];
    int depth = 0;
    while (*s) {
        if (*s == '&') {
            cr_assert(!strncmp(s, "&amp;", 5) || !strncmp(s, "&lt;", 4) || !strncmp(s, "&gt;", 4) ||
                      !strncmp(s, "&quot;", 6));
            s = strchr(s, ';') + 1;
        } else if (*s == '<') {
            bool end = s[1] == '/';
            size_t n = strspn(s + 1 + end, "abcdefghijklmnopqrstuvwxyz0123456789");
            cr_assert(n > 0 && n < 24);
            const char *name = s + 1 + end;
            for (s = name + n; *s != '>' && *s != '/'; s++) {
                if (*s != '"') continue;
                for (s++; *s != '"'; s++) cr_assert(*s && *s != '<', "in an attribute");
            }
            if (*s == '/') {
                s++;
            } else if (end) {
                cr_assert_gt(depth, 0);
                cr_assert_eq(strlen(open[depth - 1]), n);
                cr_assert(!strncmp(open[--depth], name, n), "</%.*s> closes <%s>", (int)n, name, open[depth]);
            } else {
                cr_assert_lt(depth, 64);
                snprintf(open[depth++], 24, "%.*s", (int)n, name);
            }
            cr_assert_eq(*s++, '>');
        } else {
            cr_assert(*s != '>' || (depth && !strcmp(open[depth - 1], "style")), "a stray >");
            cr_assert((unsigned char)*s >= ' ' || *s == '\n', "control byte %u", *s);
            s++;
        }
    }
    cr_assert_eq(depth, 0);
}

Test(show, svg_is_well_formed) {
    const uint64_t lengths[] = {1100, 140, 520};
    const char *source = "model { heads = 4 }\nplan {\n    mask = a<b>(\"&\")\n}\n";
    for (int i = 0; i < MASK_COUNT; i++)
        for (uint32_t ranks = 1; ranks <= 40; ranks += 38) {
            fixture f;
            text svg = {0};
            make(&f, ranks, 128, MASKS[i], lengths, 3, source);
            cr_assert_eq(show_svg(f.plan, &svg, NULL), FCP_OK);
            text_add(&svg, "", 1);
            check_markup(svg.at);
            cr_assert(strstr(svg.at, "a&lt;b&gt;(&quot;&amp;&quot;)"));
            cr_assert(!strstr(svg.at, "=\"-"), "a negative coordinate");
            text_free(&svg);
            hand_free(f.hand);
        }
}

/* What a plan says of its short queries; NULL: nothing. */
static void says(const char *lengths, const char *mask, const char *passes, const char *sentence) {
    char source[400], said[SHOW_SENTENCE] = "";
    snprintf(source, sizeof source, "model { heads = 4; kv_heads = 2; head_dim = 16 }\ncluster { gpus = 2 }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = 256; passes = %s }\n"
             "mask apart = causal and (q - k < 300 or h %% 2 == 0)\n", lengths, mask, passes);
    fcp_plan *plan = plan_named("queries.fcp", source);
    cr_assert_eq(show_packing(plan, said), sentence != NULL, "%s: %s", source, said);
    cr_assert_str_eq(said, sentence ? sentence : "", "%s", source);
    fcp_plan_free(plan);
}
Test(show, short_queries) {
    says("700, 60", "causal", "forward", NULL); /* few queries, but not fewer than keys */
    says("64:700, 300, 65:700", "causal", "forward", "1 of 3 sequences has at most 64 queries and more keys; packed: "
         "query heads that share a KV head share tiles");
    says("64:700, 1:65", "causal", "forward, backward", "2 of 2 sequences have at most 64 queries and more keys; "
         "packed: query heads that share a KV head share tiles, but not in the backward pass");
    says("64:700, 1:65", "apart", "forward", "2 of 2 sequences have at most 64 queries and more keys; not packed: "
         "heads see different pairs, and so do not share tiles");
    says("90:700, 65:700, 300", "causal", "forward", "none is packed: sequences of more than 64 queries fill tiles of "
         "their own, and the shortest has 65");
}

/* Bytes of a file never reach the terminal, or an image, as they are. */
Test(show, hostile_strings) {
    const uint64_t lengths[] = {300};
    static const char source[] =
        "mask = \033]0;x\007<script>\xff\xc3(\x80\xf4\x90\x80\x80 \xed\xa0\x80 \xc2\x9b \xc3\xa9\n";
    fixture f;
    make(&f, 2, 128, "causal", lengths, 1, source);
    memcpy(f.cluster.gpu, "\033[2J456789ab", sizeof f.cluster.gpu);
    text t = draw(f.plan, 80, false, true), svg = {0};
    for (size_t i = 0; i < t.size; i++) cr_assert(t.at[i] == '\n' || (unsigned char)t.at[i] >= ' ');
    cr_assert(!strstr(t.at, "\xc2\x9b") && strstr(t.at, "\xc3\xa9"));
    text_free(&t);
    t = draw(f.plan, 80, false, false);
    check_lines(t.at, 80, false);
    cr_assert_eq(show_svg(f.plan, &svg, NULL), FCP_OK);
    text_add(&svg, "", 1);
    check_markup(svg.at);
    cr_assert(strstr(svg.at, "&lt;script&gt;"));
    cr_assert(!strstr(svg.at, "\xff") && !strstr(svg.at, "\xf4\x90") && !strstr(svg.at, "\xed\xa0"));
    cr_assert(strstr(svg.at, "\xc3\xa9"), "what is UTF-8 stays");
    text_free(&t);
    text_free(&svg);
    hand_free(f.hand);
}

/* Ranks that own nothing are drawn like others, and means are over all ranks, so they count as 0. */
Test(show, ranks_without_work) {
    const uint64_t lengths[] = {200};
    for (uint32_t ranks = 3; ranks < 64; ranks += 30) {
        fixture f;
        text svg = {0};
        make(&f, ranks, 128, "full", lengths, 1, "plan {\n    mask = full\n}\n"); /* two blocks, on ranks 0 and 1 */
        f.summary.tokens_max_rank = f.summary.key_tokens_max_rank = 128;
        f.summary.pairs_max_rank = f.summary.pairs_max_block = 128 * 200;
        text t = draw(f.plan, 80, false, false);
        check_lines(t.at, 80, false);
        cr_expect(!strstr(t.at, "nan") && !strstr(t.at, "inf"), "%s", t.at);
        char mean[64];
        snprintf(mean, sizeof mean, "%.4f x", 128.0 * ranks / 200);
        cr_assert_eq(show_svg(f.plan, &svg, NULL), FCP_OK);
        text_add(&svg, "", 1);
        check_markup(svg.at);
        cr_expect(!strstr(svg.at, "nan") && !strstr(svg.at, "=\"-"));
        cr_expect(strstr(svg.at, mean), "%s", mean);
        text_free(&t);
        text_free(&svg);
        hand_free(f.hand);
    }
}

/* --- golden files: real plans ------------------------------------------------------------------------------------ */

/* Compares with tests/golden/show/NAME and ends the text; GOLDEN_UPDATE=1 writes the file instead. */
static void golden(const char *name, text *t) {
    char path[128], expected[512] = "";
    snprintf(path, sizeof path, "tests/golden/show/%s", name);
    if (getenv("GOLDEN_UPDATE")) {
        FILE *out = fopen(path, "wb");
        cr_assert(out && fwrite(t->at, 1, t->size, out) == t->size && fclose(out) == 0, "%s", path);
        text_free(t);
        return;
    }
    FILE *in = fopen(path, "rb");
    cr_assert(in, "%s cannot be read", path);
    text_add(t, "", 1);
    const char *got = t->at;
    for (uint32_t line = 1; fgets(expected, sizeof expected, in); line++) {
        size_t n = strlen(expected);
        cr_assert(!strncmp(got, expected, n), "%s, line %u:\n  expected %s  got      %.*s", path, line, expected,
                  (int)strcspn(got, "\n"), got);
        got += n;
    }
    cr_assert_eq(*got, 0, "%s: there is more: %.80s", path, got);
    fclose(in);
    text_free(t);
}

static const char LAMBDA[] = "model { heads = 32; kv_heads = 8; head_dim = 128; dtype = bf16 }\n"
                             "cluster { nodes = 2; gpus = 4; gpu = h200; intra = 450 GB/s; inter = 50 GB/s }\n"
                             "batch { lengths = [65536, 16384 x 3, 1000 x 12] }\n"
                             "plan { mask = lambda(sink = 64, window = 4096); block = 2048; layout = zigzag\n"
                             "       strategy = fcp(coalesce = 4, buffers = 3); passes = forward, backward }\n";

Test(show, golden_lambda) {
    fcp_plan *plan = plan_named("lambda.fcp", LAMBDA);
    text ascii = draw(plan, 80, false, false), unicode = draw(plan, 100, true, true), svg = {0};
    check_lines(ascii.at, 80, false);
    cr_assert_eq(show_svg(plan, &svg, NULL), FCP_OK);
    golden("lambda.txt", &ascii);
    golden("lambda-unicode.txt", &unicode);
    text_add(&svg, "", 1);
    check_markup(svg.at);
    text_free(&svg);
    fcp_plan_free(plan);
}

Test(show, golden_ring) {
    fcp_plan *plan = plan_named("ring.fcp", "cluster { nodes = 1; gpus = 6 }\n"
                                         "batch { lengths = [20000, 3000 x 2] }\n"
                                         "plan { mask = causal(); strategy = ring(coalesce = 2); passes = forward }\n");
    text t = draw(plan, 80, false, false), svg = {0};
    check_lines(t.at, 80, false);
    cr_assert_eq(show_svg(plan, &svg, NULL), FCP_OK);
    golden("ring.txt", &t);
    golden("ring.svg", &svg);
    fcp_plan_free(plan);
}

/* Where work moves: marks, who gives and takes, and what it costs. One sequence is the batch, so its grid has all
 * pairs. */
Test(show, golden_moved) {
    fcp_plan *plan =
        plan_named("moved.fcp", "cluster { nodes = 2; gpus = 2 }\n"
                                "batch { lengths = [8192] }\n"
                                "plan { mask = causal(); block = 512; layout = contiguous; strategy = cad }\n");
    show_scale scale = {.grid_cols = 16, .grid_rows = 16, .grids = 1, .rank_rows = 4, .stage_cols = 8};
    arena memory = {0};
    show_model m;
    cr_assert_eq(show_model_make(plan, &scale, &memory, &m), FCP_OK);
    uint64_t moved = 0, gives = 0, takes = 0, pairs = 0;
    for (uint32_t i = 0; i < m.grids[0].rows * m.grids[0].cols; i++) {
        cr_assert_leq(m.grids[0].moved[i], m.grids[0].pairs[i]);
        cr_assert_eq(m.grids[0].moved[i] == 0, m.grids[0].moved_to[i] == FCP_NONE);
        moved += m.grids[0].moved[i];
    }
    for (uint32_t r = 0; r < 4; r++) {
        uint64_t own = 0; /* pairs of the queries that it owns */
        for (uint64_t t = 0; t < plan->tiles_count; t++)
            own += plan->blocks[plan->tiles[t].q_block].home == r ? plan->tiles[t].pairs : 0;
        cr_assert_eq(m.ranks[r].pairs, own - m.ranks[r].gives + m.ranks[r].takes);
        gives += m.ranks[r].gives, takes += m.ranks[r].takes, pairs += own;
    }
    cr_assert(moved && moved == m.moves.pairs && moved == gives && moved == takes && pairs == plan->summary->pairs);
    arena_free(&memory);
    text t = draw(plan, 80, false, false), unicode = draw(plan, 100, false, true), svg = {0};
    check_lines(t.at, 80, false);
    check_lines(unicode.at, 100, true);
    cr_assert_eq(show_svg(plan, &svg, NULL), FCP_OK);
    golden("moved.txt", &t);
    text_free(&unicode);
    text_add(&svg, "", 1);
    check_markup(svg.at);
    cr_assert(strstr(svg.at, "which does not own the queries"));
    text_free(&svg);
    fcp_plan_free(plan);
}

/* Many ranks are folded; a stored plan draws as the fresh one does. */
Test(show, golden_folded) {
    fcp_plan *plan = plan_named("folded.fcp", "cluster { nodes = 12; gpus = 8 }\n"
                                           "batch { lengths = [131072, 32768 x 8, 4096 x 32] }\n"
                                           "plan { mask = causal(); block = 1024; strategy = zigzag }\n");
    text t = draw(plan, 80, false, false), svg = {0};
    check_lines(t.at, 80, false);
    cr_assert_eq(show_svg(plan, &svg, NULL), FCP_OK);
    text_add(&svg, "", 1);
    check_markup(svg.at);
    cr_assert_lt(svg.size, 1u << 20);
    text_free(&svg);
    char path[TEMPORARY];
    fcp_plan *loaded = NULL;
    cr_assert(temporary_file(path, "show"));
    cr_assert_eq(fcp_plan_save(plan, path, NULL), FCP_OK);
    cr_assert_eq(fcp_plan_load(path, &loaded, NULL), FCP_OK);
    unlink(path);
    text again = draw(loaded, 80, false, false);
    cr_assert_str_eq(again.at, t.at);
    text_free(&again);
    golden("folded.txt", &t);
    fcp_plan_free(loaded);
    fcp_plan_free(plan);
}
