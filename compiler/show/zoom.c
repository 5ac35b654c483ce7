/* zoom.c: counts and draws a part of one sequence's mask, down to single pairs.
 *
 * The mask itself is analysed again, so that all counts are exact: the allowed pairs of each sign of the picture, the
 * classes of the whole sequence's cells, and how many runs of keys the first query of each row sees.
 *
 * Requires: a plan that has passed fcp_plan_check.
 * Cost:     that of analysing the mask once over the whole sequence and once over the part. Counting the runs of a
 *           query takes O(runs x log n).
 */
#include "compiler/show/zoom.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compiler/cells/cells_parts.h"
#include "compiler/show/model.h"
#include "compiler/show/summary.h"
#include "compiler/base/text.h"

enum { GUTTER = 8, RUNS = 6, FRAME = 2, MOST_LINES = 40 };

void zoom_room(uint32_t width, uint32_t *down, uint32_t *across) {
    width = width < 40 ? 40 : width > 160 ? 160 : width;
    *across = (width - GUTTER - RUNS - FRAME) / 2; /* a sign is two characters wide, so that it looks square */
    *down = *across < MOST_LINES ? *across : MOST_LINES;
}

/* --- counting ----------------------------------------------------------------------------------------------------- */

/* Counts the runs of allowed keys in one row, from left to right. */
typedef struct row_runs {
    cells *c;
    int64_t q, last; /* last: where the run before it ended; -1: there is none */
    uint32_t count;
} row_runs;

static void add_run(row_runs *r, int64_t first, int64_t end) {
    r->count += first != r->last;
    r->last = end;
}

static fcp_code find_row_runs(row_runs *r, int64_t first, int64_t end, const box_program *p) {
    cells *c = r->c;
    box b = {{r->q, first, 0}, {r->q + 1, end, 1}};
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = cells_classify(c, &b, &p, &cls);
    if (code == FCP_OK && cls == BOX_FULL) add_run(r, first, end);
    else if (code == FCP_OK && cls == BOX_MIXED && end - first > ROWS_WIDTH) {
        int64_t middle = first + (end - first) / 2;
        code = find_row_runs(r, first, middle, p);
        if (code == FCP_OK) code = find_row_runs(r, middle, end, p);
    } else if (code == FCP_OK && cls == BOX_MIXED) {
        uint64_t bits[2];
        if (!rows_one(c->rows, p, &b, r->q, 0, bits, &c->stats.elements)) code = FCP_E_NO_MEMORY;
        for (int64_t j = 0; j < end - first && code == FCP_OK; j++)
            if (bits[j >> 6] >> (j & 63) & 1) add_run(r, first + j, first + j + 1);
    }
    stack_back(&c->stack, mark);
    return code;
}

/* How many positions a sign stands for on each side: the first of 1, 2, 3, 4, 6, 8, 12, 16, ... with which the picture
 * is small enough. */
static uint64_t choose_group(uint64_t queries, uint64_t keys, uint32_t down, uint32_t across) {
    for (uint64_t power = 1;; power *= 2)
        for (uint64_t group = power; group <= power + power / 2; group += power / 2 ? power / 2 : 1)
            if ((queries + group - 1) / group <= down && (keys + group - 1) / group <= across)
                return group;
}

static uint64_t *make_cuts(arena *memory, uint64_t from, uint64_t to, uint64_t group, uint32_t *count) {
    *count = (uint32_t)((to - from + group - 1) / group);
    uint64_t *cut = ARENA_NEW(memory, uint64_t, *count + (size_t)1);
    for (uint32_t i = 0; i < *count && cut; i++) cut[i] = from + i * group;
    if (cut) cut[*count] = to;
    return cut;
}

static fcp_code choose_view(const fcp_plan *plan, const fcpc_show_options *v, zoom *z, uint64_t range[4],
                            fcp_error *err) {
    static const char *const sides[] = {"rows", "cols"};
    uint64_t count = plan->sequences_count;
    if (v->choose_sequence && v->sequence >= count)
        return fcp_fail(err, FCP_E_VALUE, "there is no sequence %" PRIu32 ": the batch has %" PRIu64 ", from 0",
                        v->sequence, count);
    z->sequence = v->choose_sequence ? v->sequence : 0;
    for (uint32_t s = 0; s < count && !v->choose_sequence; s++) { /* the longest of those that have pairs */
        const fcp_sequence *x = &plan->sequences[s], *best = &plan->sequences[z->sequence];
        const bool has = x->queries && x->keys, had = best->queries && best->keys;
        if (has > had || (has == had && x->keys > best->keys)) z->sequence = s;
    }
    z->n = plan->sequences[z->sequence].keys;
    z->queries = plan->sequences[z->sequence].queries;
    z->q_first = plan->sequences[z->sequence].q_first;
    z->alike = show_alike(plan, z->sequence);
    const uint64_t asked[4] = {v->row, v->row_end, v->col, v->col_end};
    for (size_t i = 0; i < 2; i++) {
        uint64_t length = i ? z->n : z->queries;
        range[2 * i] = asked[2 * i];
        range[2 * i + 1] = asked[2 * i + 1] && asked[2 * i + 1] < length ? asked[2 * i + 1] : length;
        char where[64] = "";
        if (!i && z->q_first)
            snprintf(where, sizeof where, ", counted from 0; the first is at q = %" PRId64, z->q_first);
        if (range[2 * i] >= range[2 * i + 1])
            return fcp_fail(err, FCP_E_VALUE,
                            "%s %" PRIu64 "..%" PRIu64 ": sequence %" PRIu32 " has %" PRIu64 " %s%s", sides[i],
                            asked[2 * i], asked[2 * i + 1] ? asked[2 * i + 1] : length, z->sequence, length,
                            z->n == z->queries ? "tokens" : i ? "keys" : "queries", where);
    }
    return FCP_OK;
}

static fcp_code count_pairs(cells *c, const mc_env *env, zoom *z) {
    const cell_entry *entries;
    size_t count;
    uint32_t shape_count, run_count;
    const fcp_run *runs;
    cells_fault fault;
    fcp_code code = cells_grid(c, env, z->row_cut, z->rows, z->col_cut, z->cols, &entries, &count, &fault);
    if (code != FCP_OK) return code;
    const fcp_shape_rec *shapes = cells_shapes(c, &shape_count, &runs, &run_count);
    for (size_t i = 0; i < count; i++) {
        uint64_t pairs = shapes[entries[i].shape].pairs;
        z->pairs[(size_t)entries[i].q_piece * z->cols + entries[i].k_piece] = pairs;
        z->pairs_drawn += pairs;
    }
    return cells_count(c, env, &z->all, &fault);
}

/* The cells of the whole sequence, over all heads: each class of heads has its own. */
static fcp_code count_classes(const fcp_plan *plan, const mc_env *env, mc_node *nodes, zoom *z) {
    const uint64_t heads = plan->head_classes_count;
    z->all.full = z->all.partial = z->all.none = 0;
    for (uint64_t h = 0, next = 0; h < heads; h++) { /* next: the class whose first head comes next */
        uint64_t size = 0;
        cells_counts one;
        if (plan->head_classes[h] != next) continue;
        for (uint64_t i = h; i < heads; i++) size += plan->head_classes[i] == next;
        next++;
        cells *c = cells_new(mc_of_head((mc_code){plan->mask, (uint32_t)plan->mask_count}, (int64_t)h, nodes), 1);
        fcp_code code = c ? cells_count(c, env, &one, NULL) : FCP_E_NO_MEMORY;
        cells_free(c);
        if (code) return code;
        z->all.full += one.full * size;
        z->all.partial += one.partial * size;
        z->all.none += one.none * size;
    }
    return FCP_OK;
}

static fcp_code count_runs(cells *c, zoom *z) {
    z->runs_least = UINT32_MAX;
    for (uint32_t i = 0; i < z->rows; i++) {
        row_runs r = {.c = c, .q = z->q_first + (int64_t)z->row_cut[i], .last = -1};
        fcp_code code = find_row_runs(&r, 0, (int64_t)z->n, c->base); /* cells_count has made the program for n */
        if (code != FCP_OK) return code;
        z->runs[i] = r.count;
        z->runs_sum += r.count;
        if (r.count < z->runs_least) z->runs_least = r.count;
        if (r.count > z->runs_most) z->runs_most = r.count;
    }
    return FCP_OK;
}

fcp_code zoom_make(const fcp_plan *plan, const fcpc_show_options *asked, uint32_t down, uint32_t across, arena *memory,
                   zoom *out, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    const bool by_head = p->mask_uses & MC_USES_H, one = asked->choose_head;
    *out = (zoom){.plan = plan, .heads = by_head && !one ? p->heads : 1, .head = one ? asked->head : FCP_NONE};
    uint64_t range[4] = {0};
    fcp_code code = choose_view(plan, asked, out, range, err);
    if (code != FCP_OK) return code;
    if (one && asked->head >= p->heads)
        return fcp_fail(err, FCP_E_VALUE, "there is no head %" PRIu32 ": the model has %" PRIu32 ", from 0",
                        asked->head, p->heads);
    out->group = choose_group(range[1] - range[0], range[3] - range[2], down, across);
    out->row_cut = make_cuts(memory, range[0], range[1], out->group, &out->rows);
    out->col_cut = make_cuts(memory, range[2], range[3], out->group, &out->cols);
    out->pairs = ARENA_ZNEW(memory, uint64_t, (size_t)out->rows * out->cols);
    out->runs = ARENA_ZNEW(memory, uint32_t, out->rows);
    out->positions_drawn = (range[1] - range[0]) * (range[3] - range[2]) * out->heads;
    mc_node *nodes = ARENA_NEW(memory, mc_node, plan->mask_count + 1);
    mc_code mask = {plan->mask, (uint32_t)plan->mask_count};
    if (one && nodes) mask = mc_of_head(mask, asked->head, nodes);
    cells *c = nodes ? cells_new(mask, p->heads) : NULL;
    code = out->row_cut && out->col_cut && out->pairs && out->runs && c ? FCP_OK : FCP_E_NO_MEMORY;
    mc_array *arrays = ARENA_NEW(memory, mc_array, plan->arrays_count + 1);
    mc_bands *bands = ARENA_NEW(memory, mc_bands, plan->slices_count + 1);
    if (!arrays || !bands) code = FCP_E_NO_MEMORY;
    mc_env env;
    if (code == FCP_OK) fcp_plan_env(plan, out->sequence, arrays, bands, &env);
    if (code == FCP_OK) code = count_pairs(c, &env, out);
    if (code == FCP_OK) code = count_runs(c, out);
    cells_free(c);
    if (code == FCP_OK && by_head && !one) code = count_classes(plan, &env, nodes, out);
    if (code != FCP_OK) return fcp_fail(err, code, "%s", fcp_code_text(code));
    const double pairs = (double)out->all.pairs / out->heads * (one ? 1 : p->heads);
    double *const flops[FCP_PASSES] = {[FCP_FORWARD] = &out->flops_forward, [FCP_BACKWARD] = &out->flops_backward};
    for (int pass = 0; pass < FCP_PASSES; pass++)
        *flops[pass] = p->passes >> pass & 1 ? pairs * fcp_pair_flops(p->head_dim, p->value_dim, (fcp_pass)pass) : 0;
    return FCP_OK;
}

/* --- in words ----------------------------------------------------------------------------------------------------- */

enum { SENTENCES = 5, SENTENCE = 256 };
typedef struct words {
    const char *label[SENTENCES];
    char line[SENTENCES][SENTENCE];
} words;

static double percent(uint64_t part, double whole) { return whole > 0 ? 100 * (double)part / whole : 0; }

static void describe(const zoom *z, words *w) {
    char a[SHOW_COUNT], b[SHOW_COUNT], f[SUMMARY_NUMBER], g[SUMMARY_NUMBER];
    uint64_t all = z->queries * z->n * z->heads;
    char by_head[48] = "";
    if (z->heads > 1) snprintf(by_head, sizeof by_head, ", summed over heads");
    if (z->head != FCP_NONE) snprintf(by_head, sizeof by_head, ", for head %" PRIu32, z->head);
    w->label[0] = "sequence";
    snprintf(w->line[0], SENTENCE, "%s of %s pairs are allowed (%.2f %%)%s", show_count(a, z->all.pairs),
             show_count(b, all), percent(z->all.pairs, (double)all), by_head);
    w->label[1] = "work";
    snprintf(w->line[1], SENTENCE, "%s forward%s%s%s", summary_number(f, z->flops_forward, "FLOP"),
             z->flops_backward > 0 ? ", " : "",
             z->flops_backward > 0 ? summary_number(g, z->flops_backward, "FLOP") : "",
             z->flops_backward > 0 ? " backward" : "");
    uint64_t cells_all = z->all.full + z->all.partial + z->all.none;
    w->label[2] = "cells";
    snprintf(w->line[2], SENTENCE, "of 128 x 128: %.2f %% full, %.2f %% partial, %.2f %% none",
             percent(z->all.full, (double)cells_all), percent(z->all.partial, (double)cells_all),
             percent(z->all.none, (double)cells_all));
    w->label[3] = "runs";
    snprintf(w->line[3], SENTENCE,
             "of keys in a row, over the rows that begin a line: %" PRIu32 " to %" PRIu32 ", %.2f on average%s",
             z->runs_least, z->runs_most, (double)z->runs_sum / z->rows, z->heads > 1 ? " (head 0)" : "");
    w->label[4] = "drawn";
    snprintf(w->line[4], SENTENCE, "%s of %s pairs are allowed (%.2f %%)", show_count(a, z->pairs_drawn),
             show_count(b, z->positions_drawn), percent(z->pairs_drawn, (double)z->positions_drawn));
}

static void title(const zoom *z, char *out, size_t size) {
    char n[SHOW_LENGTH], count[SHOW_COUNT], alike[SHOW_COUNT + 16] = "", head[24] = "";
    if (z->alike > 1) snprintf(alike, sizeof alike, ", %s alike", show_count(count, z->alike));
    if (z->head != FCP_NONE) snprintf(head, sizeof head, "head %" PRIu32 ", ", z->head);
    snprintf(out, size, "%ssequence %" PRIu32 ": %s%s; rows %" PRIu64 "..%" PRIu64 ", cols %" PRIu64 "..%" PRIu64,
             head, z->sequence, show_length(n, z->queries, z->n), alike, z->row_cut[0], z->row_cut[z->rows],
             z->col_cut[0], z->col_cut[z->cols]);
}

static uint32_t level(const zoom *z, uint32_t row, uint32_t col, uint32_t levels) {
    uint64_t area = (z->row_cut[row + 1] - z->row_cut[row]) * (z->col_cut[col + 1] - z->col_cut[col]);
    return show_share(z->pairs[(size_t)row * z->cols + col], (unsigned __int128)area * z->heads, levels);
}

/* How many signs apart the labels of an axis are, if each takes `room` places and a sign is `per_sign` places wide. */
static uint32_t tick_of(uint32_t room, uint32_t per_sign) {
    static const uint32_t steps[] = {1, 2, 4, 8, 10, 16, 20, 32, 64};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] * per_sign >= room) return steps[i];
    return 128;
}

static fcp_code check_made(const text *t, fcp_error *err) {
    return t->failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* Adds a label and a sentence, which is broken at spaces. */
static void put_words(text *t, const char *label, const char *s, uint32_t width) {
    text_printf(t, "  %-10s", label);
    for (size_t at = 12; *s;) {
        size_t word = strcspn(s, " ");
        if (at > 12 && at + 1 + word > width) {
            text_puts(t, "\n            ");
            at = 12;
        } else if (at > 12) text_puts(t, " "), at++;
        text_add(t, s, word);
        at += word;
        s += word + strspn(s + word, " ");
    }
    text_puts(t, "\n");
}

static void put_frame(text *t, const zoom *z, bool unicode, bool top) {
    text_pad(t, ' ', GUTTER);
    text_puts(t, !unicode ? "+" : top ? "┌" : "└");
    for (uint32_t i = 0; i < 2 * z->cols; i++) text_puts(t, unicode ? "─" : "-");
    text_puts(t, !unicode ? "+" : top ? "┐" : "┘");
    text_puts(t, "\n");
}

fcp_code zoom_text(const zoom *z, const fcpc_show_options *options, text *t, fcp_error *err) {
    const uint32_t width = options->width;
    char line[256], number[32];
    words w;
    describe(z, &w);
    title(z, line, sizeof line);
    text_printf(t, "%sMASK%s  %s\n", options->colour ? "\033[1m" : "", options->colour ? "\033[0m" : "", line);
    for (int i = 0; i < SENTENCES; i++) put_words(t, w.label[i], w.line[i], width);

    int digits_most = snprintf(number, sizeof number, "%" PRIu64, z->col_cut[z->cols]);
    uint32_t tick = tick_of((uint32_t)digits_most + 2, 2), at = 0;
    text_printf(t, "%*s ", GUTTER - 1, "query");
    text_puts(t, " ");
    for (uint32_t c = 0; c < z->cols; c += tick) { /* the labels of the axis of keys */
        int digits = snprintf(number, sizeof number, "%" PRIu64, z->col_cut[c]);
        if (2 * c + (uint32_t)digits > 2 * z->cols + 1) break;
        text_pad(t, ' ', 2 * c - at);
        text_puts(t, number);
        at = 2 * c + (uint32_t)digits;
    }
    text_pad(t, ' ', at < 2 * z->cols + 2 ? 2 * z->cols + 2 - at : 1);
    text_puts(t, "runs\n");
    put_frame(t, z, options->unicode, true);
    uint32_t levels = show_shades(options->unicode);
    for (uint32_t r = 0; r < z->rows; r++) {
        text_printf(t, "%*" PRId64 " %s", GUTTER - 1, z->q_first + (int64_t)z->row_cut[r],
                    options->unicode ? "│" : "|");
        if (options->colour) text_puts(t, "\033[34m");
        for (uint32_t c = 0; c < z->cols; c++) {
            const char *sign = show_shade(options->unicode, level(z, r, c, levels));
            text_puts(t, sign);
            text_puts(t, sign);
        }
        if (options->colour) text_puts(t, "\033[0m");
        text_printf(t, "%s %" PRIu32, options->unicode ? "│" : "|", z->runs[r]);
        show_end_line(t);
    }
    put_frame(t, z, options->unicode, false);
    if (z->group == 1) snprintf(line, sizeof line, "two characters are one pair of a query and a key");
    else
        snprintf(line, sizeof line, "two characters are %" PRIu64 " queries by %" PRIu64 " keys: %s", z->group,
                 z->group,
                 options->unicode ? "blank none, ░ ▒ ▓ a third more each, █ all"
                           : "blank none, then . : - = + * # %, @ all");
    put_words(t, "signs", line, width);
    return check_made(t, err);
}

/* --- SVG ---------------------------------------------------------------------------------------------------------- */

enum { IMAGE = 900, LEFT = 90, TOP = 190 };

fcp_code zoom_svg(const zoom *z, text *t, fcp_error *err) {
    uint32_t most = z->rows > z->cols ? z->rows : z->cols, side = 760 / most ? 760 / most : 1;
    uint32_t across = side * z->cols, high = side * z->rows;
    char line[256];
    words w;
    title(z, line, sizeof line);
    describe(z, &w);
    text_printf(t,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" viewBox=\"0 0 %d %u\" "
                "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222222\">\n"
                "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
                IMAGE, TOP + high + 30, IMAGE, TOP + high + 30);
    text_printf(t, "<text x=\"20\" y=\"32\" font-size=\"17\" font-weight=\"bold\">%s</text>\n", line);
    for (int i = 0; i < SENTENCES; i++)
        text_printf(t, "<text x=\"20\" y=\"%d\" fill=\"#666666\">%s</text><text x=\"100\" y=\"%d\">%s</text>\n",
                    60 + 20 * i, w.label[i], 60 + 20 * i, w.line[i]);
    for (uint32_t r = 0; r < z->rows; r++)
        for (uint32_t c = 0, end; c < z->cols; c = end) { /* neighbours of one colour are one rectangle */
            uint32_t l = level(z, r, c, SHOW_RAMP);
            for (end = c + 1; end < z->cols && level(z, r, end, SHOW_RAMP) == l;) end++;
            if (l)
                text_printf(t, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" fill=\"%s\"/>\n", LEFT + side * c,
                            TOP + side * r, side * (end - c), side, show_share_colour(l));
        }
    text_printf(t, "<rect x=\"%d\" y=\"%d\" width=\"%u\" height=\"%u\" fill=\"none\" stroke=\"#444444\"/>\n", LEFT,
                TOP, across, high);
    uint32_t col_tick = tick_of(70, side), row_tick = tick_of(30, side);
    for (uint32_t c = 0; c < z->cols; c += col_tick)
        text_printf(t,
                    "<path d=\"M%u %dv-4\" stroke=\"#444444\"/><text x=\"%u\" y=\"%d\" font-size=\"11\">%" PRIu64
                    "</text>\n",
                    LEFT + side * c, TOP, LEFT + side * c, TOP - 7, z->col_cut[c]);
    for (uint32_t r = 0; r < z->rows; r += row_tick)
        text_printf(
            t,
            "<path d=\"M%d %uh-4\" stroke=\"#444444\"/>"
            "<text x=\"%d\" y=\"%u\" font-size=\"11\" text-anchor=\"end\">%" PRId64 "</text>\n",
            LEFT, TOP + side * r, LEFT - 7, TOP + side * r + 9, z->q_first + (int64_t)z->row_cut[r]);
    text_printf(
        t, "<text x=\"%d\" y=\"%d\" font-size=\"11\" fill=\"#666666\" text-anchor=\"end\">query, key</text>\n</svg>\n",
        LEFT - 7, TOP - 7);
    return check_made(t, err);
}

/* --- as JSON ------------------------------------------------------------------------------------------------------ */

void zoom_json(json *j, const zoom *z) {
    double all = (double)z->queries * (double)z->n * z->heads;
    json_u64(j, "sequence", z->sequence);
    json_u64(j, "tokens", z->n);
    json_u64(j, "alike", z->alike);
    if (z->head != FCP_NONE) json_u64(j, "head", z->head);
    json_u64(j, "pairs", z->all.pairs);
    json_double(j, "density", (double)z->all.pairs / all);
    json_double(j, "flops_forward", z->flops_forward);
    json_double(j, "flops_backward", z->flops_backward);
    json_u64(j, "cells_full", z->all.full);
    json_u64(j, "cells_partial", z->all.partial);
    json_u64(j, "cells_none", z->all.none);
    const uint64_t *const cuts[] = {z->row_cut, z->col_cut};
    const uint32_t ends[] = {z->rows, z->cols};
    for (int i = 0; i < 2; i++) {
        json_array(j, i ? "cols" : "rows");
        json_u64(j, NULL, cuts[i][0]);
        json_u64(j, NULL, cuts[i][ends[i]]);
        json_end(j);
    }
    json_u64(j, "group", z->group);
    json_u64(j, "pairs_drawn", z->pairs_drawn);
    json_array(j, "grid");
    for (uint32_t r = 0; r < z->rows; r++) {
        json_array(j, NULL);
        for (uint32_t c = 0; c < z->cols; c++) json_u64(j, NULL, z->pairs[(size_t)r * z->cols + c]);
        json_end(j);
    }
    json_end(j);
    json_array(j, "runs");
    for (uint32_t r = 0; r < z->rows; r++) json_u64(j, NULL, z->runs[r]);
    json_end(j);
}
