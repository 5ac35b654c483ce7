/* svg.c: draws a plan as an SVG image.
 *
 * The image shows what the plan is for and what it costs, the masks, the ranks and the pipeline, with tooltips. The
 * same plan gives the same bytes, because all coordinates are integers, in tenths of a pixel.
 *
 * Requires: a plan that has passed fcp_plan_check.
 * Cost:     linear in the plan. The image has grids of at most 64 x 64 cells, and at most 64 rows of ranks and 64
 *           stages.
 *
 * Colours: shares of pairs are a ramp of one blue, which also works in black and white and for the colour-blind.
 * Computing is blue and communication orange; they differ in lightness too. Ranks have sixteen colours, and their
 * numbers stand beside them.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compiler/show/terminal.h"
#include "compiler/show/model.h"
#include "compiler/show/summary.h"
#include "compiler/base/text.h"
#include "runtime/plan/instructions.h"

enum {
    WIDTH = 12000, /* all lengths are in tenths of a pixel */
    MARGIN = 300,
    LEVELS = SHOW_RAMP
};

#define COMPUTE "#2f6fb3"
#define COMPUTE_DARK "#153e6b"
#define COMM "#e69f00"
#define COMM_DARK "#a3480b"

typedef struct pen {
    const show_model *m;
    text *t;
    int y; /* the top of the next panel */
} pen;

const char *show_rank_colour(uint32_t rank) {
    static const char *const colours[SHOW_RANK_COLOURS] = {
        "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866",
        "#44bb99", "#99ddff", "#ffaabb", "#aaaa00", "#7755aa", "#885522", "#006666", "#dd99dd"};
    return colours[rank % SHOW_RANK_COLOURS];
}

const char *show_share_colour(uint32_t level) {
    static const char *const ramp[LEVELS + 1] = {"#ffffff", "#e3edf8", "#cadef0", "#abcfe6", "#82badb",
                                                 "#59a1cf", "#3787c0", "#1c6aaf", "#0b4d94", "#08306b"};
    return ramp[level];
}

/* --- primitives -------------------------------------------------------------------------------------------------- */

static void escape(text *t, const char *s, size_t size) {
    for (size_t i = 0; i < size;) {
        size_t n = s[i] == '\n' ? 1 : show_utf8(s + i, size - i);
        if (!n) text_puts(t, "?");
        else if (s[i] == '&') text_puts(t, "&amp;");
        else if (s[i] == '<') text_puts(t, "&lt;");
        else if (s[i] == '>') text_puts(t, "&gt;");
        else if (s[i] == '"') text_puts(t, "&quot;");
        else text_add(t, s + i, n);
        i += n ? n : 1;
    }
}

/* Adds an attribute: ` name="12.5"`. */
static void attribute(pen *p, const char *name, int64_t tenths) {
    text_printf(p->t, " %s=\"%" PRId64, name, tenths / 10);
    if (tenths % 10) text_printf(p->t, ".%" PRId64, tenths % 10 < 0 ? -(tenths % 10) : tenths % 10);
    text_puts(p->t, "\"");
}

/* Adds the beginning of a rectangle's tag, with its place. */
static void box(pen *p, const char *tag, int x, int y, int w, int h) {
    text_puts(p->t, tag);
    attribute(p, "x", x);
    attribute(p, "y", y);
    attribute(p, "width", w);
    attribute(p, "height", h);
}

/* Adds a rectangle. `title` is its tooltip; NULL: it has none. */
static void rect(pen *p, int x, int y, int w, int h, const char *fill, const char *title) {
    if (w <= 0 || h <= 0) return;
    box(p, "<rect", x, y, w, h);
    text_printf(p->t, " fill=\"%s\"", fill);
    if (title) {
        text_puts(p->t, "><title>");
        escape(p->t, title, strlen(title));
        text_puts(p->t, "</title></rect>\n");
    } else {
        text_puts(p->t, "/>\n");
    }
}

static void line(pen *p, int x1, int y1, int x2, int y2, const char *class) {
    text_printf(p->t, "<line class=\"%s\"", class);
    attribute(p, "x1", x1);
    attribute(p, "y1", y1);
    attribute(p, "x2", x2);
    attribute(p, "y2", y2);
    text_puts(p->t, "/>\n");
}

static void frame(pen *p, int x, int y, int w, int h) {
    box(p, "<rect class=\"f\"", x, y, w, h);
    text_puts(p->t, "/>\n");
}

/* Adds text of a CSS class: "h" is a heading, "n" a note, "s" small text. "s-m" centres small text at x, "s-e" ends
 * it there. */
static void label(pen *p, int x, int y, const char *class, const char *words) {
    text_printf(p->t, "<text class=\"%s\"", class);
    attribute(p, "x", x);
    attribute(p, "y", y);
    text_puts(p->t, ">");
    escape(p->t, words, strlen(words));
    text_puts(p->t, "</text>\n");
}

static void panel(pen *p, const char *title, const char *rest) {
    label(p, MARGIN, p->y + 160, "h", title);
    label(p, MARGIN, p->y + 340, "n", rest);
    p->y += 480;
}

/* Writes a position: 32768 as "32K". */
static const char *position(char out[24], uint64_t at) {
    if (at && at % 1024 == 0) snprintf(out, 24, "%" PRIu64 "K", at / 1024);
    else snprintf(out, 24, "%" PRIu64, at);
    return out;
}

static int scale_to(uint64_t value, uint64_t most, int pixels) {
    return most ? (int)((unsigned __int128)value * (unsigned)pixels / most) : 0;
}

/* --- words ------------------------------------------------------------------------------------------------------- */

/* Adds a sentence in lines of at most `most` characters. Returns the y below it. */
static int wrapped(pen *p, int x, int y, size_t most, const char *s) {
    while (*s) {
        size_t n = strlen(s);
        if (n > most) {
            n = most;
            while (n > most / 2 && s[n] != ' ') n--;
        }
        char words[SHOW_SENTENCE];
        memcpy(words, s, n);
        words[n] = 0;
        label(p, x, y, "t", words);
        y += 170;
        s += n + (s[n] == ' ');
    }
    return y;
}

static void draw_facts(pen *p) {
    show_fact facts[SHOW_FACTS];
    uint32_t count = show_facts(p->m, facts);
    int y[2] = {p->y + 780, p->y + 780};
    char title[100];
    snprintf(title, sizeof title, "%.90s%s", p->m->mask, strlen(p->m->mask) > 90 ? "..." : "");
    label(p, MARGIN, p->y + 300, "title", title);
    label(p, MARGIN, p->y + 540, "h", "The problem");
    label(p, WIDTH / 2 + 100, p->y + 540, "h", "What its plan costs");
    for (uint32_t i = 0; i < count; i++) {
        int side = facts[i].cost, x = side ? WIDTH / 2 + 100 : MARGIN;
        label(p, x, y[side], "k", facts[i].label);
        y[side] = wrapped(p, x + 800, y[side], 74, facts[i].sentence) + 50;
    }
    p->y = (y[0] > y[1] ? y[0] : y[1]) + 100;
}

/* --- the mask ---------------------------------------------------------------------------------------------------- */

/* The distance from the grid's edge to row or column i, in the image. */
static int cut_at(const show_grid *g, const uint64_t *cut, uint32_t i, int side) {
    return scale_to(cut[i], cut == g->row_cut ? g->queries : g->length, side);
}

static void draw_shares(pen *p, const show_grid *g, int x, int y, int side) {
    for (uint32_t row = 0; row < g->rows; row++) {
        int top = cut_at(g, g->row_cut, row, side), bottom = cut_at(g, g->row_cut, row + 1, side);
        for (uint32_t col = 0; col < g->cols;) {
            uint32_t level = show_level(p->m, g, row, col, LEVELS), end = col;
            uint64_t pairs = 0;
            for (; end < g->cols && show_level(p->m, g, row, end, LEVELS) == level; end++)
                pairs += g->pairs[(size_t)row * g->cols + end];
            double area = (double)(g->row_cut[row + 1] - g->row_cut[row]) *
                          (double)(g->col_cut[end] - g->col_cut[col]) * p->m->pair_heads;
            char title[160];
            snprintf(title, sizeof title,
                     "queries %" PRId64 "..%" PRId64 ", keys %" PRIu64 "..%" PRIu64 ": %.1f %% of the pairs",
                     g->q_first + (int64_t)g->row_cut[row], g->q_first + (int64_t)g->row_cut[row + 1], g->col_cut[col],
                     g->col_cut[end],
                     100 * (double)pairs / area);
            int left = cut_at(g, g->col_cut, col, side), right = cut_at(g, g->col_cut, end, side);
            if (level) rect(p, x + left, y + top, right - left, bottom - top, show_share_colour(level), title);
            col = end;
        }
    }
}

/* Marks what is computed on another rank than the queries' home: a bar through the cells, in the colour of the rank
 * that computes. */
static void draw_moved(pen *p, const show_grid *g, int x, int y, int side) {
    for (uint32_t row = 0; row < g->rows; row++) {
        int top = cut_at(g, g->row_cut, row, side), high = cut_at(g, g->row_cut, row + 1, side) - top;
        for (uint32_t col = 0, end; col < g->cols; col = end) {
            const uint32_t rank = show_moved_to(g, row, col);
            for (end = col + 1; end < g->cols && show_moved_to(g, row, end) == rank;) end++;
            if (rank == FCP_NONE) continue;
            char title[160];
            snprintf(title, sizeof title,
                     "queries %" PRId64 "..%" PRId64 ", keys %" PRIu64 "..%" PRIu64 ": computed by rank %" PRIu32
                     ", which does not own the queries",
                     g->q_first + (int64_t)g->row_cut[row], g->q_first + (int64_t)g->row_cut[row + 1], g->col_cut[col],
                     g->col_cut[end], rank);
            int left = cut_at(g, g->col_cut, col, side), right = cut_at(g, g->col_cut, end, side);
            rect(p, x + left, y + top + high / 4, right - left, high / 2, show_rank_colour(rank), title);
        }
    }
}

/* Adds the strips that show which rank owns the queries (left) or the keys (top). A strip has one piece for each block.
 * If there are too many blocks for that, it has one for each row or column. */
static void draw_owners_of(pen *p, const show_grid *g, fcp_side of, bool left, bool above, int x, int y, int side,
                           int thick) {
    const uint64_t *cut = of == FCP_KEYS ? g->col_cut : g->row_cut, length = of == FCP_KEYS ? g->length : g->queries;
    bool by_block = g->stretch_count[of] <= 128;
    uint32_t count = by_block ? g->stretch_count[of] : of == FCP_KEYS ? g->cols : g->rows;
    for (uint32_t i = 0; i < count; i++) {
        const show_stretch *s = by_block ? &g->stretches[of][i] : show_stretch_at(g, of, cut[i]);
        uint64_t begin = by_block ? s->start : cut[i];
        uint64_t end = by_block ? s->start + s->length : cut[i + 1];
        int from = scale_to(begin, length, side), to = scale_to(end, length, side);
        char title[160], number[16];
        snprintf(title, sizeof title,
                 "tokens %" PRIu64 "..%" PRIu64 ": %sblock %" PRIu32 ", rank %" PRIu32 ", node %" PRIu32, begin, end,
                 by_block ? "" : "from ", s->block, s->home, fcp_node_of(p->m->plan->problem, s->home));
        if (left) rect(p, x - thick - 20, y + from, thick, to - from, show_rank_colour(s->home), title);
        if (above) rect(p, x + from, y - thick - 20, to - from, thick, show_rank_colour(s->home), title);
        snprintf(number, sizeof number, "%" PRIu32, s->home);
        if (left && to - from >= 90) label(p, x - thick - 50, y + (from + to) / 2 + 35, "s-e", number);
    }
}

static void draw_owners(pen *p, const show_grid *g, int x, int y, int side, int thick) {
    bool square = show_square(g);
    draw_owners_of(p, g, FCP_QUERIES, true, square, x, y, side, thick);
    if (!square) draw_owners_of(p, g, FCP_KEYS, false, true, x, y, side, thick);
}

/* Adds ticks to an axis: at the first token, at every multiple of a power of two, and at the end. The power is such
 * that there are four to eight ticks, or half as many on a small grid. */
static void draw_ticks_of(pen *p, uint64_t length, int64_t first, bool below, bool right, int x, int y, int side) {
    uint64_t step = 1;
    while (step * (side > 3000 ? 8 : 4) < length) step *= 2;
    for (uint64_t at = 0;; at += step) {
        if (at + step * 3 / 4 > length) at = length; /* a tick this near the end would touch it */
        char name[24];
        int px = scale_to(at, length, side);
        if (first < 0 || (first && step < 1024)) snprintf(name, sizeof name, "%" PRId64, first + (int64_t)at);
        else position(name, (uint64_t)first + at);
        if (below) line(p, x + px, y + side, x + px, y + side + 40, "a");
        if (below) label(p, x + px, y + side + 140, at == 0 ? "s" : at == length ? "s-e" : "s-m", name);
        if (right) line(p, x + side, y + px, x + side + 40, y + px, "a");
        if (right) label(p, x + side + 60, y + px + 35, "s", name);
        if (at >= length) return;
    }
}

static void draw_ticks(pen *p, const show_grid *g, int x, int y, int side) {
    bool square = show_square(g);
    draw_ticks_of(p, g->length, 0, true, square, x, y, side);
    if (!square) draw_ticks_of(p, g->queries, g->q_first, false, true, x, y, side);
}

static void draw_grid(pen *p, const show_grid *g, int x, int y, int side, const char *corner) {
    int thick = 80;
    rect(p, x, y, side, side, show_share_colour(0), NULL);
    draw_shares(p, g, x, y, side);
    draw_moved(p, g, x, y, side);
    frame(p, x, y, side, side);
    draw_owners(p, g, x, y, side, thick);
    draw_ticks(p, g, x, y, side);
    label(p, x + side / 2, y + side + 280, "s-m", "key position");
    text_printf(p->t, "<text class=\"s-m\" transform=\"translate(%d %d) rotate(90)\">query position</text>\n",
                (x + side + 480) / 10, (y + side / 2 + side / 8) / 10);
    label(p, x - 20, y - thick - 60, "s", corner);
}

static void draw_masks(pen *p) {
    const show_model *m = p->m;
    enum { MAIN = 6000, MINOR = 2500 };
    if (!m->grid_count) return;
    panel(p, "The mask",
          m->moves.tiles
              ? "Rows are queries, columns are keys; the darker, the more pairs are allowed. The strips show which "
                "rank owns the queries (left) and the keys (top). A bar through cells: the rank of that colour "
                "computes them, not the owner."
              : "Rows are queries, columns are keys; the darker, the more pairs are allowed. The strips show which "
                "rank owns and computes the queries (left), and which owns the keys (top).");
    int top = p->y + 200;
    for (uint32_t i = 0; i < m->grid_count; i++) {
        const show_grid *g = &m->grids[i];
        char title[200], length[SHOW_LENGTH], count[SHOW_COUNT], alike[64] = "";
        if (g->alike > 1) snprintf(alike, sizeof alike, " (%s of this length)", show_count(count, g->alike));
        snprintf(title, sizeof title, "Sequence %" PRIu32 ": %s%s", g->sequence,
                 show_length(length, g->queries, g->length), alike);
        if (i == 0) draw_grid(p, g, MARGIN + 500, top, MAIN, title);
        else draw_grid(p, g, WIDTH - MARGIN - MINOR - 900, top + (int)(i - 1) * (MINOR + 1000), MINOR, title);
    }
    int x = MARGIN + 500, y = top + MAIN + 420;
    label(p, x, y + 100, "s", "allowed pairs: none");
    for (uint32_t level = 0; level <= LEVELS; level++) {
        rect(p, x + 1150 + (int)level * 280, y, 260, 120, show_share_colour(level), NULL);
        frame(p, x + 1150 + (int)level * 280, y, 260, 120);
    }
    label(p, x + 1150 + (LEVELS + 1) * 280 + 40, y + 100, "s", "all");
    p->y = y + 400;
}

/* --- ranks ------------------------------------------------------------------------------------------------------- */

static void row_name(const show_model *m, uint32_t row, char out[40]) {
    char range[SHOW_RANGE];
    show_range(range, row * m->ranks_a_row, m->ranks_a_row, m->plan->problem->ranks);
    snprintf(out, 40, "%s%s", strchr(range, '-') ? "" : "rank ", range);
}

static int row_height(const show_model *m) { return m->rank_rows <= 16 ? 220 : m->rank_rows <= 32 ? 170 : 130; }

/* Adds one bar: as long as the mean of the row's ranks, with a thin line on to the largest of them. */
static void draw_bar(pen *p, uint32_t row, int which, int x, int y, int wide, int high, uint64_t most) {
    static const char *const names[] = {"pairs", "tokens", "bytes sent", "bytes received"};
    const show_model *m = p->m;
    uint32_t first = row * m->ranks_a_row, end = first + m->ranks_a_row;
    if (end > m->plan->problem->ranks) end = m->plan->problem->ranks;
    uint64_t largest = 0, sum = 0;
    for (uint32_t r = first; r < end; r++) {
        uint64_t v = show_figure(&m->ranks[r], which);
        sum += v;
        if (v > largest) largest = v;
    }
    uint64_t mean = sum / (end - first);
    char name[40], title[200], a[SHOW_COUNT], b[SHOW_COUNT], shown[SUMMARY_NUMBER];
    row_name(m, row, name);
    if (end - first > 1)
        snprintf(title, sizeof title, "%s: %s %s on average, %s at most", name, show_count(a, mean), names[which],
                 show_count(b, largest));
    else snprintf(title, sizeof title, "%s: %s %s", name, show_count(a, mean), names[which]);
    int width = scale_to(mean, most, wide), reach = scale_to(largest, most, wide);
    rect(p, x, y, width, high, which < 2 ? COMPUTE : COMM, title);
    if (reach > width)
        rect(p, x + width, y + high / 2 - 10, reach - width, 20, which < 2 ? COMPUTE_DARK : COMM_DARK, title);
    label(p, x + wide + 600, y + high / 2 + 35, "s-e", summary_number(shown, (double)mean, which < 2 ? "" : "B"));
}

static void draw_ranks(pen *p) {
    static const char *const heads[] = {"work (allowed pairs)", "tokens", "sent", "received"};
    static const int left[] = {1300, 4800, 7200, 9500}, wide[] = {2700, 1600, 1500, 1500};
    const show_model *m = p->m;
    uint32_t ranks = m->plan->problem->ranks;
    int height = row_height(m);
    panel(p, "The ranks",
          m->ranks_a_row > 1
              ? "Mean of each group of ranks; the thin line goes on to the largest of them. The dashed line is "
                "the mean of all ranks."
              : "Who owns what, and what it makes them do in the pass. The dashed line is the mean of all ranks.");
    for (int which = 0; which < 4; which++) {
        uint64_t most = 0, sum = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            uint64_t v = show_figure(&m->ranks[r], which);
            sum += v;
            if (v > most) most = v;
        }
        label(p, left[which], p->y + 100, "k", heads[which]);
        for (uint32_t row = 0; row < m->rank_rows; row++)
            draw_bar(p, row, which, left[which], p->y + 200 + (int)row * height, wide[which], height - 40, most);
        int mean = left[which] + scale_to(sum / ranks, most, wide[which]);
        line(p, mean, p->y + 170, mean, p->y + 200 + (int)m->rank_rows * height, "d");
    }
    for (uint32_t row = 0; row < m->rank_rows; row++) {
        char name[40];
        int y = p->y + 200 + (int)row * height;
        row_name(m, row, name);
        label(p, 1180, y + height / 2 + 15, "s-e", name);
        if (m->ranks_a_row == 1) rect(p, MARGIN, y + 10, 120, height - 60, show_rank_colour(row), NULL);
    }
    p->y += 500 + (int)m->rank_rows * height;
}

/* --- the pipeline ------------------------------------------------------------------------------------------------ */

enum { LANES_LEFT = 1300, LANES_WIDE = WIDTH - MARGIN - LANES_LEFT };

static int column_at(const show_model *m, uint32_t col) {
    return LANES_LEFT + (int)(LANES_WIDE * (int64_t)col / m->stage_cols);
}

/* Adds a bar for each column, in two parts, which stands on y + high. */
static void draw_stacks(pen *p, int y, int high, const char *name, bool rounds) {
    const show_model *m = p->m;
    uint64_t most = 0, part[2][64] = {{0}};
    for (uint32_t s = 0; s < m->stages; s++) {
        uint32_t col = s / m->stages_a_col;
        part[0][col] += rounds ? m->stage[s].rounds[m->pass] : m->stage[s].visits - m->stage[s].again;
        part[1][col] += rounds ? m->stage[s].dependent[m->pass] : m->stage[s].again;
        if (part[0][col] + part[1][col] > most) most = part[0][col] + part[1][col];
    }
    label(p, LANES_LEFT - 120, y + high - 20, "s-e", name);
    for (uint32_t col = 0; col < m->stage_cols; col++) {
        int x = column_at(m, col), wide = column_at(m, col + 1) - x;
        int a = scale_to(part[0][col], most, high - 120), b = scale_to(part[1][col], most, high - 120);
        char title[160], count[48];
        snprintf(title, sizeof title,
                 rounds ? "%" PRIu64 " rounds, %" PRIu64 " dependent rounds"
                        : "%" PRIu64 " first visits, %" PRIu64 " that continue a running state",
                 part[0][col], part[1][col]);
        rect(p, x + wide / 6, y + high - a, wide * 2 / 3, a, rounds ? COMM : COMPUTE, title);
        rect(p, x + wide / 6, y + high - a - b, wide * 2 / 3, b, rounds ? "url(#dependent)" : COMPUTE_DARK, title);
        if (part[1][col]) snprintf(count, sizeof count, "%" PRIu64 "+%" PRIu64, part[0][col], part[1][col]);
        else snprintf(count, sizeof count, "%" PRIu64, part[0][col]);
        if (wide > (int)strlen(count) * 62) label(p, x + wide / 2, y + high - a - b - 25, "s-m", count);
    }
}

static void draw_lanes(pen *p, int y, int height) {
    const show_model *m = p->m;
    int half = (height - 40) / 2;
    for (uint32_t row = 0; row < m->rank_rows; row++, y += height) {
        char name[40];
        row_name(m, row, name);
        label(p, LANES_LEFT - 120, y + height / 2 + 25, "s-e", name);
        line(p, LANES_LEFT, y + height - 10, LANES_LEFT + LANES_WIDE, y + height - 10, "g");
        for (uint32_t col = 0; col < m->stage_cols; col++) {
            const show_cell *c = &m->cell[(size_t)row * m->stage_cols + col];
            int x = column_at(m, col), wide = column_at(m, col + 1) - x - 30;
            char title[240], pairs[SHOW_COUNT], bytes[SUMMARY_NUMBER], stages[SHOW_RANGE];
            show_range(stages, col * m->stages_a_col, m->stages_a_col, m->stages);
            snprintf(title, sizeof title, "%s, stage%s %s: %s pairs in %" PRIu64 " visits, %s moved", name,
                     strchr(stages, '-') ? "s" : "", stages, show_count(pairs, c->pairs), c->visits,
                     summary_number(bytes, (double)c->bytes, "B"));
            rect(p, x, y, scale_to(c->pairs, m->cell_pairs_max, wide), half, COMPUTE, title);
            rect(p, x, y + half, scale_to(c->bytes, m->cell_bytes_max, wide), half, COMM, title);
        }
    }
}

static void draw_legend(pen *p, int x, int y, const char *fill, const char *words) {
    rect(p, x, y, 160, 100, fill, NULL);
    label(p, x + 220, y + 90, "s", words);
}

static void draw_pipeline(pen *p) {
    const show_model *m = p->m;
    char rest[320], in[SUMMARY_NUMBER], out[SUMMARY_NUMBER];
    int height = row_height(m) + 20, y;
    char halves[SHOW_LENGTH];
    snprintf(rest, sizeof rest,
             "%s pass, %" PRIu32 " stage%s%s%s. What the rounds of a stage bring is used in that stage or later; %s.",
             m->pass == FCP_FORWARD ? "Forward" : "Backward", m->stages, m->stages == 1 ? "" : "s",
             m->stages_a_col > 1 ? ", several to a column" : "", show_halves(m->plan, halves),
             m->plan->problem->buffers > 1 ? "meanwhile the rounds of later stages run"
                                           : "nothing else is sent meanwhile");
    panel(p, "The pipeline", rest);
    draw_legend(p, LANES_LEFT, p->y, COMPUTE, "pairs computed; first visits");
    draw_legend(p, LANES_LEFT + 2300, p->y, COMPUTE_DARK, "visits that continue a running state");
    draw_legend(p, LANES_LEFT + 5000, p->y, COMM, "bytes moved; rounds");
    draw_legend(p, LANES_LEFT + 6900, p->y, "url(#dependent)", "dependent rounds: forwards, returns");
    y = p->y + 250;
    draw_stacks(p, y, 560, "rounds", true);
    draw_stacks(p, y + 620, 560, "visits", false);
    y += 1260;
    for (uint32_t col = 0; col < m->stage_cols; col++) {
        char name[16];
        int x = column_at(m, col), wide = column_at(m, col + 1) - x;
        snprintf(name, sizeof name, "%" PRIu32, col * m->stages_a_col);
        if (wide > (int)strlen(name) * 62) label(p, x + wide / 2, y + 100, "s-m", name);
    }
    label(p, LANES_LEFT - 120, y + 100, "s-e", "stage");
    y += 180;
    draw_lanes(p, y, height);
    for (uint32_t col = 0; col <= m->stage_cols; col++) {
        int x = col < m->stage_cols ? column_at(m, col) : LANES_LEFT + LANES_WIDE;
        line(p, x - 15, y - 20, x - 15, y + (int)m->rank_rows * height, "g");
    }
    y += (int)m->rank_rows * height + 160;
    if (m->in_rounds || m->out_rounds) {
        snprintf(rest, sizeof rest,
                 "Reshuffle, not drawn: %s in %" PRIu64
                 " rounds from the caller's layout before the first stages, %s in %" PRIu64
                 " rounds back to it beside the last.",
                 summary_number(in, (double)m->in_bytes, "B"), m->in_rounds,
                 summary_number(out, (double)m->out_bytes, "B"), m->out_rounds);
        label(p, LANES_LEFT, y, "s", rest);
    }
    p->y = y + 200;
}

/* --- files ------------------------------------------------------------------------------------------------------- */

static void draw_image(const show_model *m, text *t) {
    text body = {0};
    pen p = {.m = m, .t = &body, .y = 200};
    draw_facts(&p);
    draw_masks(&p);
    draw_ranks(&p);
    draw_pipeline(&p);
    text_printf(
        t,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n"
        "<title>",
        WIDTH / 10, p.y / 10, WIDTH / 10, p.y / 10);
    escape(t, m->mask, strlen(m->mask));
    text_puts(t,
              ": mask, ranks and pipeline of a context-parallel plan</title>\n"
              "<style>\n"
              "text { font-family: \"DejaVu Sans\", Verdana, sans-serif; font-size: 12px; fill: #222 }\n"
              ".title { font-size: 20px; font-weight: bold } .h { font-size: 16px; font-weight: bold }\n"
              ".n { fill: #555 } .k { font-weight: bold; fill: #555 } .s, .s-m, .s-e { font-size: 10px; fill: #333 }\n"
              ".s-m { text-anchor: middle } .s-e { text-anchor: end }\n"
              "rect { shape-rendering: crispEdges } .f { fill: none; stroke: #555; stroke-width: 1 } .a { stroke: #555 "
              "} .g { stroke: #ddd }\n"
              ".d { stroke: #222; stroke-dasharray: 4 3 }\n"
              "</style>\n"
              "<defs><pattern id=\"dependent\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
              "<rect width=\"5\" height=\"5\" fill=\"" COMM "\"/><path d=\"M0 5L5 0\" stroke=\"" COMM_DARK
              "\" stroke-width=\"2\"/></pattern></defs>\n");
    text_printf(t, "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n", WIDTH / 10, p.y / 10);
    if (body.failed) t->failed = true;
    else text_add(t, body.at, body.size);
    text_puts(t, "</svg>\n");
    text_free(&body);
}

fcp_code show_svg(const fcp_plan *plan, text *out, fcp_error *err) {
    show_scale scale = {.grid_cols = 64,
                        .grid_rows = 64,
                        .minor_cols = 32,
                        .minor_rows = 32,
                        .grids = SHOW_GRIDS,
                        .rank_rows = 64,
                        .stage_cols = 64};
    arena memory = {0};
    show_model m;
    fcp_code code = show_model_make(plan, &scale, &memory, &m);
    if (!code) {
        draw_image(&m, out);
        if (out->failed) code = FCP_E_NO_MEMORY;
    }
    arena_free(&memory);
    return code ? fcp_fail(err, code, "out of memory while drawing") : FCP_OK;
}
