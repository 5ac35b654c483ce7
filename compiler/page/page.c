/* page.c: writes a self-contained HTML page: page.css, page.js, and the data as one JSON text.
 *
 * This file draws nothing. The page's script draws the data. They are figures, and lists of numbers where there are
 * many figures. A Content-Security-Policy in the page lets the browser run this script and apply this style, which it
 * knows by their hashes, and load nothing else.
 *
 * Requires: verified plans.
 * Gives:    page.h, and fcpc_show_html. The same plans give the same bytes.
 * Cost:     linear in the plan, two walks of the simulator, and some thousand explanations of pairs.
 */
#include "compiler/page/page.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/explain/explain.h"
#include "compiler/fcpc.h"
#include "compiler/show/model.h"
#include "compiler/show/summary.h"
#include "runtime/base/sha256.h"
#include "runtime/base/sized.h"

extern const char page_css[], page_js[]; /* the files of those names */

enum {
    GRID = 64, MINOR = 32,    /* cells on a side: of the longest sequence, of the others */
    OWNERS = 1024,            /* stretches of a strip of owners; beyond, one for each row or column */
    RANKS = 1024,             /* bars; beyond, one for the mean of several ranks */
    INTERVALS = 16000,        /* of all plans; one takes half of what is left at most,
                               * or draws its busiest ranks only */
    STEPS = 1 << 20,          /* of explanations of one grid */
    MAX_SOURCE = 1 << 16
};

/* --- lists of numbers --------------------------------------------------------------------------------------------- */

/* Adds a figure of all ranks as a list, or the mean of each `per` of them. `first` points to the figure of rank 0 in an
 * array of structures of `stride` bytes. */
static void add_ranks_figure(json *j, const char *key, uint32_t ranks, uint32_t per, const uint64_t *first,
                             size_t stride) {
    json_array(j, key);
    for (uint32_t begin = 0; begin < ranks; begin += per) {
        uint32_t end = begin + per < ranks ? begin + per : ranks;
        unsigned __int128 sum = 0;
        for (uint32_t r = begin; r < end; r++)
            sum += *(const uint64_t *)(const void *)((const char *)first + r * stride);
        json_u64(j, NULL, (uint64_t)(sum / (end - begin)));
    }
    json_end(j);
}

static void add_numbers(json *j, const char *key, const uint64_t *at, size_t count) {
    json_array(j, key);
    for (size_t i = 0; i < count; i++) json_u64(j, NULL, at[i]);
    json_end(j);
}

/* --- the mask ----------------------------------------------------------------------------------------------------- */

static void add_owners(json *j, const char *key, const show_grid *g, fcp_side side, const uint64_t *cut,
                       uint32_t cuts) {
    bool whole = g->stretch_count[side] <= OWNERS;
    uint32_t count = whole ? g->stretch_count[side] : cuts;
    json_array(j, key); /* start, length, block, rank */
    for (uint32_t i = 0; i < count; i++) {
        const show_stretch *s = whole ? &g->stretches[side][i] : show_stretch_at(g, side, cut[i]);
        json_u64(j, NULL, whole ? s->start : cut[i]);
        json_u64(j, NULL, whole ? s->length : cut[i + 1] - cut[i]);
        json_u64(j, NULL, s->block);
        json_u64(j, NULL, s->home);
    }
    json_end(j);
}

static void add_grid(json *j, const show_model *m, const show_grid *g, bool pairs) {
    json_object(j, NULL);
    json_u64(j, "sequence", g->sequence);
    json_u64(j, "alike", g->alike);
    json_u64(j, "queries", g->queries);
    json_u64(j, "keys", g->length);
    json_i64(j, "q_first", g->q_first);
    json_u64(j, "heads", m->pair_heads);
    json_u64(j, "rows", g->rows);
    json_u64(j, "cols", g->cols);
    add_numbers(j, "row_cut", g->row_cut, g->rows + (size_t)1);
    add_numbers(j, "col_cut", g->col_cut, g->cols + (size_t)1);
    if (pairs) add_numbers(j, "pairs", g->pairs, (size_t)g->rows * g->cols);
    /* a rank + 1; 0: the queries' home computes; an empty list if no work moves */
    json_array(j, "moved_to");
    for (size_t i = 0; g->moved && i < (size_t)g->rows * g->cols; i++) {
        const uint32_t rank = show_moved_to(g, (uint32_t)(i / g->cols), (uint32_t)(i % g->cols));
        json_u64(j, NULL, rank == FCP_NONE ? 0 : (uint64_t)rank + 1);
    }
    json_end(j);
    add_owners(j, "q_owners", g, FCP_QUERIES, g->row_cut, g->rows);
    add_owners(j, "k_owners", g, FCP_KEYS, g->col_cut, g->cols);
    json_end(j);
}

/* The explanations of the pairs in the middle of each cell of a grid, while they are made. */
typedef struct explained {
    json *j;
    const show_grid *g;
    uint32_t at;
    uint64_t steps; /* of all explanations so far */
    char **texts; /* sentences, each once */
    uint32_t text_count, room, *slots; /* slots: a hash table of 1 + their numbers */
    bool failed;
} explained;

static uint32_t sentence(explained *x, const char *words) {
    uint32_t hash = 2166136261u;
    for (const char *s = words; *s; s++) hash = (hash ^ (unsigned char)*s) * 16777619u;
    for (uint32_t i = hash & (x->room - 1); x->slots; i = (i + 1) & (x->room - 1)) {
        if (x->slots[i] && strcmp(x->texts[x->slots[i] - 1], words)) continue;
        if (x->slots[i]) return x->slots[i] - 1;
        if (!(x->texts[x->text_count] = strdup(words))) break;
        x->slots[i] = ++x->text_count;
        return x->text_count - 1;
    }
    x->failed = true;
    return 0;
}

static int64_t middle(const uint64_t *cut, uint32_t part) {
    return (int64_t)(cut[part] + (cut[part + 1] - cut[part]) / 2);
}

static bool next_pair(void *context, explanation *o) {
    explained *x = context;
    if (x->at == x->g->rows * x->g->cols || x->steps > STEPS) return false;
    o->q = x->g->q_first + middle(x->g->row_cut, x->at / x->g->cols);
    o->k = middle(x->g->col_cut, x->at % x->g->cols);
    o->sequence = x->g->sequence;
    o->asked = true;
    return true;
}

/* Replaces the numbers q, k and q - k in a sentence by {q}, {k} and {d}, so that most pairs share their sentences. The
 * page puts the same numbers back; so if two of them are equal, either name will do. */
static void without_numbers(const char *words, int64_t q, int64_t k, text *out) {
    for (const char *s = words; *s;) {
        bool begins = s == words || !(s[-1] == '_' || s[-1] == '.' || (s[-1] >= '0' && s[-1] <= '9') ||
                                      ((s[-1] | 32) >= 'a' && (s[-1] | 32) <= 'z'));
        const char *digits = s + (*s == '-');
        size_t size = strspn(digits, "0123456789");
        if (!begins || !size || size > 18) {
            text_add(out, s++, 1);
            continue;
        }
        long long value = strtoll(s, NULL, 10);
        const char *name = value == q ? "{q}" : value == k ? "{k}" : value == q - k ? "{d}" : NULL;
        if (name) text_puts(out, name);
        else text_add(out, s, size + (size_t)(digits - s));
        s = digits + size;
    }
    text_add(out, "", 1);
}

static void told_pair(void *context, const explanation *o) {
    explained *x = context;
    x->at++;
    x->steps += o->count + o->left_out;
    json_array(x->j, NULL);
    json_u64(x->j, NULL, o->kind == EXPLAIN_CONDITION ? o->allowed : 2);
    for (unsigned i = 0; i < o->reasons; i++) {
        text t = {0};
        without_numbers(o->because[i], o->q, o->k, &t);
        if (t.failed) x->failed = true;
        else json_u64(x->j, NULL, sentence(x, t.at));
        text_free(&t);
    }
    json_end(x->j);
}

static fcp_code explain_grid(json *j, const fcp_plan *plan, const show_grid *g) {
    const uint32_t most = GRID * GRID * 8; /* reasons, at most 8 a pair */
    explained x = {.j = j, .g = g, .room = 2 * most};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    x.texts = calloc(most, sizeof *x.texts);
    x.slots = calloc(x.room, sizeof *x.slots);
    fcp_code code = d && x.texts && x.slots ? FCP_OK : FCP_E_NO_MEMORY;
    json_object(j, NULL);
    json_array(j, "cells"); /* 0: not allowed, 1: allowed, 2: a fault; and numbers of texts */
    if (!code)
        code = explain_pairs("<plan>", plan->source, plan->source_count, NULL, plan, next_pair, told_pair, d, &x);
    json_end(j);
    if (code && code != FCP_E_NO_MEMORY) { /* the page says so, and the rest of it stands */
        fcpc_diagnostic first = {.message = ""};
        if (fcpc_diagnostics_count(d)) fcpc_diagnostics_get(d, 0, &first);
        json_string(j, "error", first.message);
        code = FCP_OK;
    } else if (!code && x.steps > STEPS)
        json_string(j, "error",
                    "the mask has too many parts to explain it everywhere; fcpc explain does, pair by pair");
    json_array(j, "texts");
    for (uint32_t i = 0; i < x.text_count; i++) json_string(j, NULL, x.texts[i]);
    json_end(j);
    json_end(j);
    for (uint32_t i = 0; i < x.text_count; i++) free(x.texts[i]);
    free(x.texts);
    free(x.slots);
    fcpc_diagnostics_free(d);
    return x.failed ? FCP_E_NO_MEMORY : code;
}

/* --- a plan ------------------------------------------------------------------------------------------------------- */

static void add_ranks(json *j, const show_model *m, uint32_t per) {
    const uint32_t ranks = m->plan->problem->ranks;
    json_object(j, "ranks");
    json_u64(j, "per", per);
    add_ranks_figure(j, "tokens", ranks, per, &m->ranks->tokens, sizeof *m->ranks);
    add_ranks_figure(j, "pairs", ranks, per, &m->ranks->pairs, sizeof *m->ranks);
    add_ranks_figure(j, "sent", ranks, per, &m->ranks->sent, sizeof *m->ranks);
    add_ranks_figure(j, "received", ranks, per, &m->ranks->received, sizeof *m->ranks);
    json_end(j);
}

/* Adds what is predicted of a pass. All times are picoseconds. */
static void add_pass(json *j, const fcp_plan *plan, int pass, const sim_pass *x, uint32_t per) {
    const uint32_t ranks = plan->problem->ranks;
    json_string(j, "pass", fcp_pass_names[pass]);
    json_u64(j, "makespan", x->makespan);
    json_double(j, "mfu", sim_mfu(plan, x));
    add_numbers(j, "bounds", x->bound, SIM_BOUNDS);
    add_numbers(j, "exposed", x->exposed, SIM_REASONS);
    add_numbers(j, "bytes", x->bytes, FCP_FABRICS);
    add_ranks_figure(j, "compute", ranks, per, &x->ranks->compute, sizeof *x->ranks);
    add_ranks_figure(j, "end", ranks, per, &x->ranks->end, sizeof *x->ranks);
    json_array(j, "wait");
    for (int i = 0; i < SIM_REASONS; i++)
        add_ranks_figure(j, NULL, ranks, per, &x->ranks->wait[i], sizeof *x->ranks);
    json_end(j);
}

static fcp_code add_timeline(page *on, const fcp_plan *plan, const sim_profile *profile, const sim_options *how,
                             const sim_result *result, const char *typed, uint32_t per, fcp_error *err) {
    const uint64_t room = on->intervals < INTERVALS ? (INTERVALS - on->intervals) / 2 : 0;
    json *j = &on->data;
    arena memory = {0};
    timeline t;
    page_heat heat[FCP_PASSES];
    fcp_code code = timeline_predict(plan, profile, how, result, typed, &memory, &t, err);
    if (!code && !typed && t.count > room)
        code = timeline_predict(plan, profile, how, result, "busiest", &memory, &t, err);
    on->intervals += t.count;
    if (!code) code = page_heat_make(plan, profile, how, result, &memory, heat, err);
    json_array(j, "passes");
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        if (!(plan->problem->passes >> pass & 1)) continue;
        json_object(j, NULL);
        add_pass(j, plan, pass, &result->pass[pass], per);
        page_heat_add(j, &heat[pass]);
        page_lanes_add(j, &t, (fcp_pass)pass);
        json_end(j);
    }
    json_end(j);
    arena_free(&memory);
    return code;
}

/* A hash of what a plan's pictures of the mask depend on. Plans with the same hash have the same mask over the same
 * batch, in the same cells; they differ in who does what. */
static void problem_of(const show_model *m, uint8_t out[FCP_SHA256_BYTES]) {
    const fcp_plan *plan = m->plan;
    fcp_sha256 h = fcp_sha256_begin();
    for (uint32_t i = 0; i < m->grid_count; i++) {
        fcp_sha256_add(&h, m->grids[i].row_cut, (m->grids[i].rows + (size_t)1) * sizeof *m->grids[i].row_cut);
        fcp_sha256_add(&h, m->grids[i].col_cut, (m->grids[i].cols + (size_t)1) * sizeof *m->grids[i].col_cut);
    }
    fcp_sha256_add(&h, plan->sequences, plan->sequences_count * sizeof *plan->sequences);
    fcp_sha256_add(&h, plan->mask, plan->mask_count * sizeof *plan->mask);
    fcp_sha256_add(&h, plan->data, plan->data_count);
    fcp_sha256_add(&h, plan->slices, plan->slices_count * sizeof *plan->slices);
    fcp_sha256_add(&h, plan->band_rows, plan->band_rows_count * sizeof *plan->band_rows);
    fcp_sha256_add(&h, plan->bands, plan->bands_count * sizeof *plan->bands);
    fcp_sha256_end(&h, out);
}

static void add_names(json *j, const char *key, const char *const *names, uint32_t count) {
    json_array(j, key);
    for (uint32_t i = 0; i < count; i++) json_string(j, NULL, names[i]);
    json_end(j);
}

static void add_head(json *j) {
    json_object(j, NULL);
    json_string(j, "version", fcp_version());
    json_object(j, "names");
    add_names(j, "passes", fcp_pass_names, FCP_PASSES);
    add_names(j, "ops", fcp_op_names, FCP_OP_COUNT);
    add_names(j, "classes", fcp_class_texts, FCP_CLASSES);
    add_names(j, "rounds", fcp_round_names, FCP_ROUND_KIND_COUNT);
    add_names(j, "reasons", sim_reason_names, SIM_REASONS);
    add_names(j, "bounds", sim_bound_names, SIM_BOUNDS);
    add_names(j, "lanes", sim_lane_names, SIM_LANES);
    json_end(j);
    json_array(j, "plans");
}

static void add_facts(json *j, const show_model *m) {
    show_fact facts[SHOW_FACTS];
    uint32_t count = show_facts(m, facts);
    json_array(j, "facts");
    for (uint32_t i = 0; i < count; i++) {
        json_array(j, NULL);
        json_string(j, NULL, facts[i].label);
        json_string(j, NULL, facts[i].sentence);
        json_u64(j, NULL, facts[i].cost);
        json_end(j);
    }
    json_end(j);
}

static void add_source(json *j, const fcp_plan *plan) {
    size_t size = plan->source_count < MAX_SOURCE ? plan->source_count : MAX_SOURCE;
    text source = {0};
    text_add(&source, plan->source, size);
    if (size < plan->source_count) text_puts(&source, "\n...");
    text_add(&source, "", 1);
    json_string(j, "source", source.failed ? "" : source.at);
    j->out.failed |= source.failed;
    text_free(&source);
}

fcp_code page_add(page *p, const char *name, const fcp_plan *plan, const sim_profile *profile, const char *why,
                  const sim_options *how, const sim_result *result, const char *ranks, fcp_error *err) {
    static const fcpc_times no_times;
    const show_scale scale = {.grid_cols = GRID, .grid_rows = GRID, .minor_cols = MINOR, .minor_rows = MINOR,
                              .grids = SHOW_GRIDS, .rank_rows = 64, .stage_cols = 64};
    const uint32_t per = (plan->problem->ranks + RANKS - 1) / RANKS;
    json *j = &p->data;
    arena memory = {0};
    show_model m;
    uint8_t problem[FCP_SHA256_BYTES];
    fcp_code code = show_model_make(plan, &scale, &memory, &m);
    if (code) {
        arena_free(&memory);
        return fcp_fail(err, code, "out of memory while drawing");
    }
    problem_of(&m, problem);
    const bool same = p->plans && !memcmp(problem, p->problem, sizeof problem);
    if (!p->plans) {
        add_head(j);
        memcpy(p->problem, problem, sizeof problem);
        snprintf(p->title, sizeof p->title, "%s", m.mask);
    }
    p->plans++;
    json_object(j, NULL);
    json_string(j, "name", name);
    json_string(j, "mask", m.mask);
    json_string(j, "strategy", summary_strategy(plan->problem->strategy));
    json_u64(j, "ranks_in_all", plan->problem->ranks);
    json_u64(j, "gpus", plan->problem->gpus);
    json_string(j, "profile", profile ? profile->name : NULL);
    json_string(j, "unpredicted", profile ? NULL : why);
    json_object(j, "summary");
    summary_json(j, plan, &no_times);
    json_end(j);
    add_facts(j, &m);
    json_bool(j, "same", same); /* pairs and explanations are those of the first plan */
    json_array(j, "grids");
    for (uint32_t i = 0; i < m.grid_count; i++) add_grid(j, &m, &m.grids[i], !same);
    json_end(j);
    if (!same && !p->asks) {
        json_array(j, "explained");
        for (uint32_t i = 0; i < m.grid_count && !code; i++) code = explain_grid(j, plan, &m.grids[i]);
        json_end(j);
    }
    add_ranks(j, &m, per);
    if (!code && profile) code = add_timeline(p, plan, profile, how, result, ranks, per, err);
    add_source(j, plan);
    json_end(j);
    arena_free(&memory);
    return code == FCP_E_NO_MEMORY ? fcp_fail(err, code, "out of memory while drawing") : code;
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

static void add_escaped(text *t, const char *s) {
    for (; *s; s++)
        if (*s == '&') text_puts(t, "&amp;");
        else if (*s == '<') text_puts(t, "&lt;");
        else text_add(t, s, 1);
}

/* 'sha256-...', as a policy names a script or a style. */
static void add_hash(text *t, const char *of) {
    uint8_t hash[FCP_SHA256_BYTES + 1] = {0};
    fcp_sha256_of(of, strlen(of), hash);
    text_puts(t, "'sha256-");
    for (int i = 0; i < FCP_SHA256_BYTES + 1; i += 3) { /* 32 bytes are 10 times 3, and 2 */
        uint32_t three =
            (uint32_t)hash[i] << 16 | (uint32_t)hash[i + 1] << 8 | (i + 2 < FCP_SHA256_BYTES ? hash[i + 2] : 0);
        for (int k = 0; k < 4; k++)
            if (k == 3 && i + 2 >= FCP_SHA256_BYTES) text_puts(t, "=");
            else text_add(t, &page_digits[three >> (18 - 6 * k) & 63], 1);
    }
    text_puts(t, "'");
}

const char *page_data_end(page *p, const char *points) {
    json *j = &p->data;
    json_end(j); /* plans */
    text_printf(&j->out, ", \"points\": %s", points ? points : "null");
    json_end(j);
    return json_text(j);
}

fcp_code page_end(page *p, const char *points, text *out, fcp_error *err) {
    const char *data = page_data_end(p, points);
    text_puts(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; "
                   "base-uri 'none'; form-action 'none'; script-src ");
    add_hash(out, page_js);
    text_puts(out, "; style-src ");
    add_hash(out, page_css);
    text_puts(out, "\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                   "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n<title>");
    add_escaped(out, p->title);
    text_puts(out, "</title>\n<style>");
    text_puts(out, page_css);
    text_puts(
        out,
        "</style>\n</head>\n<body>\n<noscript>This page is drawn by its own script, which is switched off.</noscript>\n"
        "<main id=\"page\"></main>\n<script type=\"application/json\" id=\"data\">");
    for (const char *s = data ? data : ""; *s;) { /* escaped, so that no tag begins in the data */
        size_t n = strcspn(s, "<");
        text_add(out, s, n);
        s += n;
        if (*s) text_puts(out, "\\u003c"), s++;
    }
    text_puts(out, "</script>\n<script>");
    text_puts(out, page_js);
    text_puts(out, "</script>\n</body>\n</html>\n");
    return data && !out->failed ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory while drawing");
}

void page_free(page *p) {
    json_free(&p->data);
    *p = (page){0};
}

fcp_code page_add_predicted(page *p, const fcp_plan *plan, const char *profile, const char *ranks, fcp_error *err) {
    fcp_error no_profile = {0};
    sim_profile by;
    sim_result result = {0};
    arena memory = {0};
    fcp_code code = profile ? sim_profile_open(profile, false, &by, err) : FCP_OK;
    const bool known = !code && (profile || sim_profile_of(plan->cluster, &by, &no_profile) == FCP_OK);
    if (known) code = simulate(plan, &by, NULL, &memory, &result, err);
    if (!code) code = page_add(p, "", plan, known ? &by : NULL, no_profile.message, NULL, &result, ranks, err);
    arena_free(&memory);
    return code;
}

fcp_code fcpc_show_html(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err) {
    fcpc_show_options o;
    fcp_code code = fcp_sized_read(&o, sizeof o, options, "fcpc_show_options", err);
    if (!code) code = fcp_plan_whole(plan, "a page", err);
    if (code != FCP_OK) return code;
    if (o.part) return fcp_fail(err, FCP_E_ARGUMENT, "a page shows a whole plan, not a part of a mask");
    page p = {0};
    text out = {0};
    code = page_add_predicted(&p, plan, o.profile, o.ranks, err);
    if (!code) code = page_end(&p, NULL, &out, err);
    page_free(&p);
    return text_hand_over(&out, code, out_text, err);
}
