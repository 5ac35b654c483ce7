/* terminal.c: draws a plan for a terminal.
 *
 * The text shows what the plan is for and what it costs, the masks of up to three sequences, who owns what, and the
 * pipeline stage by stage. Notes explain the signs. The same plan and options give the same bytes.
 *
 * Requires: a plan that has passed fcp_plan_check.
 * Cost:     linear in the plan. The text has some hundred lines at most, however large the plan is.
 */
#include "compiler/show/terminal.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/instructions.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compiler/show/model.h"
#include "compiler/show/summary.h"
#include "compiler/base/text.h"

enum {
    MIN_WIDTH = 64,
    MAX_WIDTH = 160,
    GUTTER = 8,      /* characters left of a grid, for a position */
    OWNERS = 5,      /* characters right of it, for ranks */
    MAX_RANKS = 32,  /* up to so many ranks have a line each */
    EXTREMES = 4,    /* of more ranks, so many of the heaviest and of the lightest have one */
    BINS = 16,       /* bars of a histogram */
    MAX_STAGES = 24, /* most lines of the table of stages */
    TWO_PASSES = 80, /* columns that the table of stages needs for both passes */
    BESIDE_BAR = 57, /* characters of a rank's line besides its bar */
    MOVES = 14       /* characters of the columns for moved work */
};

/* The signs of a picture. shade[0] means nothing and shade[shades] everything; bar likewise. */
typedef struct signs {
    const char *shade[10], *bar[9];
    uint32_t shades, bars;
    const char *moved[2]; /* some, all pairs of a cell that another rank computes than its queries' home */
    const char *full, *corner[4], *across, *down;
} signs;

static const signs ASCII = {
    .shade = {" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"},
    .shades = 9,
    .bar = {" ", ".", ":", "-", "=", "+", "*", "#", "@"},
    .bars = 8,
    .moved = {"o", "O"},
    .full = "#",
    .corner = {"+", "+", "+", "+"},
    .across = "-",
    .down = "|",
};
static const signs UNICODE = {
    .shade = {" ", "░", "▒", "▓", "█"},
    .shades = 4,
    .bar = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"},
    .bars = 8,
    .moved = {"○", "●"},
    .full = "█",
    .corner = {"┌", "┐", "└", "┘"},
    .across = "─",
    .down = "│",
};

uint32_t show_shades(bool unicode) { return unicode ? UNICODE.shades : ASCII.shades; }
const char *show_shade(bool unicode, uint32_t level) { return unicode ? UNICODE.shade[level] : ASCII.shade[level]; }

typedef struct drawing {
    const show_model *m;
    const signs *signs;
    bool colour;
    uint32_t width;
    text *out;
} drawing;

static void repeat(text *t, const char *sign, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) text_puts(t, sign);
}

static void paint(const drawing *d, const char *code) {
    if (d->colour) text_printf(d->out, "\033[%sm", code);
}

/* A rank's colour: one of twelve that can be told apart on a dark and on a light ground. */
static void paint_rank(const drawing *d, uint32_t rank) {
    static const char *const codes[] = {"34", "33", "32", "35", "36", "31", "94", "93", "92", "95", "96", "91"};
    paint(d, codes[rank % (sizeof codes / sizeof *codes)]);
}

static void heading(const drawing *d, const char *title, const char *rest) {
    text_puts(d->out, "\n");
    paint(d, "1");
    text_puts(d->out, title);
    paint(d, "0");
    text_printf(d->out, "  %s\n", rest);
}

/* Counts the characters of a string: the bytes with which a character begins in UTF-8. */
static uint32_t characters(const char *s, size_t size) {
    uint32_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

/* Adds words, and breaks lines at spaces. The cursor is at column `indent`, where new lines begin too. */
static void break_words(const drawing *d, uint32_t indent, const char *s) {
    for (uint32_t at = indent; *s;) {
        size_t word = strcspn(s, " ");
        uint32_t wide = characters(s, word);
        if (at > indent && at + 1 + wide > d->width) {
            text_puts(d->out, "\n");
            text_pad(d->out, ' ', indent);
            at = indent;
        } else if (at > indent) {
            text_puts(d->out, " ");
            at++;
        }
        for (size_t i = 0; i < word; i++) {
            bool plain = d->signs != &ASCII || !((unsigned char)s[i] & 0x80);
            if (plain) text_add(d->out, s + i, 1);
            else if (((unsigned char)s[i] & 0xc0) != 0x80) text_puts(d->out, "?");
        }
        at += wide;
        s += word + strspn(s + word, " ");
    }
    text_puts(d->out, "\n");
}

static void sentence(const drawing *d, const char *label, const char *s) {
    text_printf(d->out, "  %-11s", label);
    break_words(d, 13, s);
}

/* Adds a paragraph, indented by two. */
static void note(const drawing *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(const drawing *d, const char *format, ...) {
    char words[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    text_puts(d->out, "  ");
    break_words(d, 2, words);
}

static void draw_facts(const drawing *d) {
    show_fact facts[SHOW_FACTS];
    uint32_t count = show_facts(d->m, facts);
    bool cost = false;
    paint(d, "1");
    text_puts(d->out, "PROBLEM");
    paint(d, "0");
    text_puts(d->out, "\n");
    for (uint32_t i = 0; i < count; i++) {
        if (facts[i].cost && !cost) heading(d, "COST", "of the forward pass, unless it says otherwise");
        cost = facts[i].cost;
        sentence(d, facts[i].label, facts[i].sentence);
    }
}

/* --- the mask ---------------------------------------------------------------------------------------------------- */

/* How many characters a cell of a grid takes across and down, so that a square mask looks square and the grid is at
 * most `room` wide. */
static void grid_zoom(const show_grid *g, uint32_t room, uint32_t *across, uint32_t *down) {
    *down = 1;
    *across = g->rows == g->cols ? 2 : 1;
    while (g->rows == g->cols && *down < 4 && g->cols * (*across + 2) <= room / 2) {
        *across += 2;
        *down += 1;
    }
}

/* The ranks that own a row's queries, in order of position and each once, as many as fit in OWNERS characters. */
static void row_owners(const show_grid *g, uint32_t row, char out[OWNERS + 1]) {
    const show_stretch *s = show_stretch_at(g, FCP_QUERIES, g->row_cut[row]);
    const show_stretch *end = g->stretches[FCP_QUERIES] + g->stretch_count[FCP_QUERIES];
    uint32_t used = 0, last = FCP_NONE;
    out[0] = 0;
    for (; s < end && s->start < g->row_cut[row + 1]; s++) {
        char name[16];
        if (s->home == last) continue;
        last = s->home;
        int n = snprintf(name, sizeof name, "%s%" PRIu32, used ? "," : "", s->home);
        bool more = s + 1 < end && s[1].start < g->row_cut[row + 1];
        if (used + (uint32_t)n + (more ? 2 : 0) > OWNERS) {
            memcpy(out + used, used + 2 <= OWNERS ? ".." : "", used + 2 <= OWNERS ? 3 : 1);
            return;
        }
        memcpy(out + used, name, (size_t)n + 1);
        used += (uint32_t)n;
    }
}

static uint32_t grid_lines(const show_grid *g, uint32_t down) { return 3 + g->rows * down; }

/* A position in GUTTER - 1 characters. */
static void position_name(char out[SHOW_COUNT], int64_t position) {
    if (position < 10000000 && position > -1000000) snprintf(out, SHOW_COUNT, "%" PRId64, position);
    else if (position < 1000000 * (int64_t)1024 && position > -100000 * (int64_t)1024)
        snprintf(out, SHOW_COUNT, "%" PRId64 "K", position / 1024);
    else snprintf(out, SHOW_COUNT, "%" PRId64 "M", position / 1024 / 1024);
}

/* Adds one line of a grid. The lines are the axis of keys, the frame, the rows, and the frame. Returns how many
 * characters the line has, with the spaces at its end. */
static uint32_t grid_line(const drawing *d, const show_grid *g, uint32_t across, uint32_t down, uint32_t line) {
    uint32_t inside = g->cols * across, width = GUTTER + 2 + inside + 1 + OWNERS;
    text *t = d->out;
    if (line >= grid_lines(g, down)) {
        text_pad(t, ' ', width);
    } else if (line == 0) {
        char end[SHOW_COUNT];
        int n = snprintf(end, sizeof end, "%" PRIu64, g->length);
        uint32_t left = inside + 1 > (uint32_t)n + 7 ? inside + 1 - 7 - (uint32_t)n : 0;
        text_printf(t, "%*s ", GUTTER, "query");
        if (left) {
            text_puts(t, "key 0  ");
            text_pad(t, ' ', left);
            text_puts(t, end);
        } else {
            text_printf(t, "%-*s", (int)inside + 1, "key");
        }
        text_printf(t, " %-*s", OWNERS, "rank");
    } else if (line == 1 || line == grid_lines(g, down) - 1) {
        text_pad(t, ' ', GUTTER);
        text_puts(t, d->signs->corner[line == 1 ? 0 : 2]);
        repeat(t, d->signs->across, inside);
        text_puts(t, d->signs->corner[line == 1 ? 1 : 3]);
        text_pad(t, ' ', OWNERS + 1);
    } else {
        uint32_t row = (line - 2) / down;
        bool first = (line - 2) % down == 0;
        char owners[OWNERS + 1] = "";
        if (first) row_owners(g, row, owners);
        char position[SHOW_COUNT] = "";
        if (first) position_name(position, g->q_first + (int64_t)g->row_cut[row]);
        text_printf(t, "%*s ", GUTTER - 1, position);
        text_puts(t, d->signs->down);
        const uint32_t home = show_stretch_at(g, FCP_QUERIES, g->row_cut[row])->home;
        uint32_t painted = home;
        paint_rank(d, home);
        for (uint32_t col = 0; col < g->cols; col++) {
            const uint32_t level = show_level(d->m, g, row, col, d->signs->shades), to = show_moved_to(g, row, col);
            const uint32_t rank = to == FCP_NONE ? home : to;
            if (rank != painted) paint_rank(d, rank);
            painted = rank;
            repeat(t, to == FCP_NONE ? d->signs->shade[level] : d->signs->moved[level == d->signs->shades], across);
        }
        paint(d, "0");
        text_printf(t, "%s %-*s", d->signs->down, OWNERS, owners);
    }
    return width;
}

/* The title of a grid; a brief one if another grid stands beside it. */
static void grid_title(const show_grid *g, bool brief, char *out, size_t size) {
    char length[SHOW_LENGTH], alike[SHOW_COUNT + 32] = "", count[SHOW_COUNT];
    if (g->alike > 1) snprintf(alike, sizeof alike, ", %s alike", show_count(count, g->alike));
    if (brief && !show_square(g))
        snprintf(length, sizeof length, "%" PRIu64 ":%" PRIu64 " tokens", g->queries, g->length);
    else show_length(length, g->queries, g->length);
    snprintf(out, size, "sequence %" PRIu32 ": %s%s", g->sequence, length, alike);
}

void show_end_line(text *t) {
    while (!t->failed && t->size && t->at[t->size - 1] == ' ') t->size--;
    text_puts(t, "\n");
}

static void draw_masks(const drawing *d) {
    const show_model *m = d->m;
    char title[160];
    if (!m->grid_count) return;
    const show_grid *g = &m->grids[0];
    uint32_t across, down, room = d->width - GUTTER - OWNERS - 3;
    grid_title(g, false, title, sizeof title);
    heading(d, "MASK", title);
    grid_zoom(g, room, &across, &down);
    for (uint32_t line = 0; line < grid_lines(g, down); line++) {
        grid_line(d, g, across, down, line);
        show_end_line(d->out);
    }
    const uint32_t half = d->width / 2; /* the other two stand side by side */
    uint32_t lines = 0, zoom[SHOW_GRIDS][2];
    for (uint32_t i = 1; i < m->grid_count; i++) {
        grid_zoom(&m->grids[i], half - GUTTER - OWNERS - 4, &zoom[i][0], &zoom[i][1]);
        if (grid_lines(&m->grids[i], zoom[i][1]) > lines) lines = grid_lines(&m->grids[i], zoom[i][1]);
        grid_title(&m->grids[i], true, title, sizeof title);
        if (i == 1) text_printf(d->out, "  %-*s", (int)half - 2, title);
        else text_puts(d->out, title);
    }
    if (lines) show_end_line(d->out);
    for (uint32_t line = 0; line < lines; line++) {
        for (uint32_t i = 1, used = half; i < m->grid_count; i++) {
            if (i > 1) text_pad(d->out, ' ', used < half ? half - used : 1);
            used = grid_line(d, &m->grids[i], zoom[i][0], zoom[i][1], line);
        }
        show_end_line(d->out);
    }
    note(d,
         "A sign is the share of allowed pairs: %s. %s%s%s%sLeft: the first query of a row; right: the ranks that "
         "own%s its queries.",
         d->signs == &ASCII ? "blank none, then . : - = + * # %, @ all"
                            : "blank none, ░ ▒ ▓ a third more each, █ all",
         m->moves.tiles ? d->signs->moved[0] : "", m->moves.tiles ? " some and " : "",
         m->moves.tiles ? d->signs->moved[1] : "",
         m->moves.tiles ? " all, where another rank than the owner computes most of them. " : "",
         m->moves.tiles ? "" : ", and compute,");
}

/* --- ranks ------------------------------------------------------------------------------------------------------- */

/* Are there columns for moved work? Not where the terminal has no room for them. */
static bool shows_moves(const drawing *d) { return d->m->moves.tiles && d->width >= MIN_WIDTH + MOVES; }

static uint32_t bar_room(const drawing *d) { return d->width - BESIDE_BAR - (shows_moves(d) ? MOVES : 0); }

static void draw_rank(const drawing *d, uint32_t rank, uint64_t most, uint64_t total) {
    const show_model *m = d->m;
    const show_rank *r = &m->ranks[rank];
    char sent[SUMMARY_NUMBER], received[SUMMARY_NUMBER], node[24];
    uint32_t bar = bar_room(d), filled = show_steps(r->pairs, most, bar);
    double mean = total ? (double)r->pairs * m->plan->problem->ranks / (double)total : 1;
    snprintf(node, sizeof node, "%" PRIu32, fcp_node_of(m->plan->problem, rank));
    text_printf(d->out, "%6" PRIu32 " %4s %9" PRIu64 " %6" PRIu64 " ", rank, node, r->tokens, r->blocks);
    paint_rank(d, rank);
    repeat(d->out, d->signs->full, filled);
    paint(d, "0");
    text_pad(d->out, ' ', bar - filled);
    text_printf(d->out, " %6.3f", mean);
    if (shows_moves(d)) {
        const double per_mean = total ? (double)m->plan->problem->ranks / (double)total : 0;
        text_printf(d->out, " %6.3f %6.3f", (double)r->gives * per_mean, (double)r->takes * per_mean);
    }
    text_printf(d->out, " %9s %9s\n", summary_number(sent, (double)r->sent, "B"),
                summary_number(received, (double)r->received, "B"));
}

/* One line of figures over all ranks: the smallest, the mean, the largest, and a histogram. */
static void draw_histogram(const drawing *d, int which, const char *label, const char *unit) {
    const show_model *m = d->m;
    uint32_t ranks = m->plan->problem->ranks, bin[BINS] = {0}, most = 0;
    uint64_t low = UINT64_MAX, high = 0;
    double sum = 0;
    for (uint32_t i = 0; i < ranks; i++) {
        uint64_t v = show_figure(&m->ranks[i], which);
        sum += (double)v;
        if (v < low) low = v;
        if (v > high) high = v;
    }
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t b = (uint32_t)((unsigned __int128)(show_figure(&m->ranks[i], which) - low) * BINS / (high - low + 1));
        if (++bin[b] > most) most = bin[b];
    }
    char n[3][SUMMARY_NUMBER];
    text_printf(d->out, "  %-9s %9s %9s %9s  %s", label, summary_number(n[0], (double)low, unit),
                summary_number(n[1], sum / ranks, unit), summary_number(n[2], (double)high, unit), d->signs->down);
    for (uint32_t b = 0; b < BINS; b++) text_puts(d->out, d->signs->bar[show_steps(bin[b], most, d->signs->bars)]);
    text_printf(d->out, "%s\n", d->signs->down);
}

static void draw_ranks(const drawing *d) {
    const show_model *m = d->m;
    uint32_t ranks = m->plan->problem->ranks;
    uint64_t most = ranks ? m->ranks[m->by_work[0]].pairs : 0, total = 0;
    for (uint32_t i = 0; i < ranks; i++) total += m->ranks[i].pairs;
    heading(d, "RANKS", "who owns what, and what it makes them do");
    text_printf(d->out, "  rank node    tokens blocks %-*s  /mean%s      sent  received\n", (int)bar_room(d), "work",
                shows_moves(d) ? "  gives  takes" : "");
    if (ranks <= MAX_RANKS) {
        for (uint32_t i = 0; i < ranks; i++) draw_rank(d, i, most, total);
    } else {
        for (uint32_t i = 0; i < EXTREMES; i++) draw_rank(d, m->by_work[i], most, total);
        text_printf(d->out, "   ... %" PRIu32 " ranks between the heaviest and the lightest\n", ranks - 2 * EXTREMES);
        for (uint32_t i = ranks - EXTREMES; i < ranks; i++) draw_rank(d, m->by_work[i], most, total);
        text_printf(d->out, "\n  %-9s %9s %9s %9s  from least to most\n", "", "least", "mean", "most");
        draw_histogram(d, 0, "work", "");
        draw_histogram(d, 1, "tokens", "");
        draw_histogram(d, 2, "sent", "B");
        draw_histogram(d, 3, "received", "B");
    }
    note(d, "work: allowed pairs; the bar is relative to the busiest rank, /mean to the mean of all ranks.%s",
         shows_moves(d) ? " gives: work of its own queries that others do; takes: work that it does for others; "
                          "both relative to the mean."
                        : "");
}

/* --- the pipeline ------------------------------------------------------------------------------------------------ */

/* The line above the pipeline, with the numbers of as many stages as fit. */
static void draw_stage_numbers(const drawing *d, uint32_t across) {
    const show_model *m = d->m;
    uint32_t wide = m->stage_cols * across, used = 0;
    for (uint32_t col = 0; col < m->stage_cols; col++) {
        char name[16];
        int n = snprintf(name, sizeof name, "%" PRIu32, col * m->stages_a_col);
        if (col * across < used || col * across + (uint32_t)n > wide) continue;
        text_pad(d->out, ' ', col * across - used);
        text_puts(d->out, name);
        used = col * across + (uint32_t)n;
        if (across == (uint32_t)n && used < wide) { /* at least one space is between two numbers */
            text_puts(d->out, " ");
            used++;
        }
        if (across < (uint32_t)n) {
            text_pad(d->out, ' ', wide - used ? 1 : 0);
            used += wide - used ? 1 : 0;
        }
    }
    text_pad(d->out, ' ', wide - used);
}

static void draw_lane(const drawing *d, uint32_t row, uint32_t across, bool bytes) {
    const show_model *m = d->m;
    text_puts(d->out, d->signs->down);
    paint(d, bytes ? "33" : "34");
    for (uint32_t col = 0; col < m->stage_cols; col++) {
        const show_cell *c = &m->cell[(size_t)row * m->stage_cols + col];
        uint32_t level = bytes ? show_steps(c->bytes, m->cell_bytes_max, d->signs->bars)
                               : show_steps(c->pairs, m->cell_pairs_max, d->signs->bars);
        repeat(d->out, d->signs->bar[level], across);
    }
    paint(d, "0");
    text_puts(d->out, d->signs->down);
}

static void draw_pipeline(const drawing *d) {
    const show_model *m = d->m;
    uint32_t ranks = m->plan->problem->ranks, room = (d->width - 12 - 6) / 2, across = room / m->stage_cols;
    uint32_t wide;
    char rest[160];
    if (across > 6) across = 6;
    if (!across) across = 1;
    wide = m->stage_cols * across;
    char halves[SHOW_LENGTH];
    snprintf(rest, sizeof rest, "%s, %" PRIu32 " stage%s%s%s", fcp_pass_names[m->pass], m->stages,
             m->stages == 1 ? "" : "s", m->stages_a_col > 1 ? ", several to a column" : "",
             show_halves(m->plan, halves));
    heading(d, "PIPELINE", rest);
    text_printf(d->out, "%11s  %-*s   %s\n", m->ranks_a_row > 1 ? "ranks" : "rank", (int)wide, "compute",
                "communication");
    text_pad(d->out, ' ', 13);
    draw_stage_numbers(d, across);
    text_puts(d->out, "   ");
    draw_stage_numbers(d, across);
    show_end_line(d->out);
    for (uint32_t row = 0; row < m->rank_rows; row++) {
        char name[SHOW_RANGE];
        text_printf(d->out, "%11s ", show_range(name, row * m->ranks_a_row, m->ranks_a_row, ranks));
        draw_lane(d, row, across, false);
        text_puts(d->out, " ");
        draw_lane(d, row, across, true);
        text_puts(d->out, "\n");
    }
    note(d,
         "Left: the pairs that a stage computes. Right: the bytes that its rounds move, the larger of sent and "
         "received. Signs are relative to the largest in the picture, from %s (least) to %s (most); blank is none. "
         "What the rounds of a stage bring is used in that stage or later; %s.",
         d->signs->bar[1], d->signs->bar[d->signs->bars],
         m->plan->problem->buffers > 1 ? "meanwhile the rounds of later stages run" : "nothing else is sent meanwhile");
}

/* The stages [first, first + count) together. */
static show_stage sum_stages(const show_model *m, uint32_t first, uint32_t count) {
    show_stage s = {0};
    for (uint32_t i = first; i < first + count && i < m->all_stages; i++) {
        const show_stage *x = &m->stage[i];
        s.pairs += x->pairs;
        s.pairs_max += x->pairs_max;
        s.visits += x->visits;
        s.again += x->again;
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            s.bytes[pass] += x->bytes[pass];
            s.rounds[pass] += x->rounds[pass];
            s.dependent[pass] += x->dependent[pass];
        }
    }
    return s;
}

static void draw_reshuffle(const drawing *d, const char *name, uint64_t rounds, uint64_t bytes) {
    char size[SUMMARY_NUMBER];
    if (rounds) text_printf(d->out, "%6s %36" PRIu64 " %14s\n", name, rounds, summary_number(size, (double)bytes, "B"));
}

static void draw_stages(const drawing *d) {
    const show_model *m = d->m;
    bool both = m->plan->problem->passes == ((1u << FCP_FORWARD) | (1u << FCP_BACKWARD)) && d->width >= TWO_PASSES;
    uint32_t stages = both ? m->all_stages : m->stages, group = (stages + MAX_STAGES - 1) / MAX_STAGES;
    uint64_t total = 0;
    char bytes[SUMMARY_NUMBER];
    for (uint32_t i = 0; i < m->stages; i++) total += m->stage[i].pairs;
    text_printf(d->out, "\n stage work %%  busiest  visits  again rounds +dep     bytes%s\n",
                both ? "  back +dep     bytes" : "");
    draw_reshuffle(d, "in", m->in_rounds, m->in_bytes);
    for (uint32_t first = 0; first < stages; first += group) {
        show_stage s = sum_stages(m, first, group);
        char name[SHOW_RANGE];
        double busiest = s.pairs ? (double)s.pairs_max * m->plan->problem->ranks / (double)s.pairs : 0;
        text_printf(d->out, "%6s", show_range(name, first, group, stages));
        if (first < m->stages)
            text_printf(d->out, " %6.2f %8.3f %7" PRIu64 " %6" PRIu64 " %6" PRIu64 " %4" PRIu64 " %9s",
                        total ? 100 * (double)s.pairs / (double)total : 0.0, busiest, s.visits, s.again,
                        s.rounds[m->pass], s.dependent[m->pass], summary_number(bytes, (double)s.bytes[m->pass], "B"));
        else text_pad(d->out, ' ', 52);
        if (both)
            text_printf(d->out, " %5" PRIu64 " %4" PRIu64 " %9s", s.rounds[FCP_BACKWARD], s.dependent[FCP_BACKWARD],
                        summary_number(bytes, (double)s.bytes[FCP_BACKWARD], "B"));
        text_puts(d->out, "\n");
    }
    draw_reshuffle(d, "out", m->out_rounds, m->out_bytes);
    note(d,
         "work: share of all pairs; busiest: the busiest rank over the mean; visits: Q blocks that are worked on; "
         "again: those of them that continue a running state; +dep: rounds that forward or return what an earlier "
         "stage received or computed%s%s.",
         both ? "; back: rounds of the backward pass" : "",
         m->in_rounds || m->out_rounds ? "; in, out: the reshuffle" : "");
}

fcp_code show_text(const fcp_plan *plan, const fcpc_show_options *options, text *out, fcp_error *err) {
    const uint32_t wide = options->width, width = wide < MIN_WIDTH ? MIN_WIDTH : wide > MAX_WIDTH ? MAX_WIDTH : wide;
    uint32_t cols = (width - GUTTER - OWNERS - 3) & ~1u, minor = (width / 2 - GUTTER - OWNERS - 4) & ~1u;
    if (cols > 64) cols = 64;
    show_scale scale = {.grid_cols = cols,
                        .grid_rows = cols / 2,
                        .minor_cols = minor,
                        .minor_rows = minor / 2,
                        .grids = SHOW_GRIDS,
                        .rank_rows = MAX_RANKS,
                        .stage_cols = (width - 18) / 2};
    arena memory = {0};
    show_model m;
    fcp_code code = show_model_make(plan, &scale, &memory, &m);
    if (!code) {
        drawing d = {.m = &m, .signs = options->unicode ? &UNICODE : &ASCII, .colour = options->colour, .width = width,
                     .out = out};
        draw_facts(&d);
        draw_masks(&d);
        draw_ranks(&d);
        draw_pipeline(&d);
        draw_stages(&d);
        if (out->failed) code = FCP_E_NO_MEMORY;
    }
    arena_free(&memory);
    return code ? fcp_fail(err, code, "out of memory while drawing") : FCP_OK;
}
