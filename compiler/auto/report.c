/* report.c: prints what strategy = auto tried and why each candidate lost, as text and as JSON. */
#include <stdio.h>
#include <string.h>

#include "compiler/auto/report.h"
#include "runtime/plan/enum_names.h"

#define X(id, name) name,
const char *const auto_end_names[AUTO_END_COUNT] = {AUTO_ENDS(X)};
#undef X
#define X(id, name) name,
static const char *const resource_names[AUTO_RESOURCE_COUNT] = {AUTO_RESOURCES(X)};
#undef X
static const char *const bound_names[AUTO_BOUNDS] = {"compute", "net", "local"};

static double ms(uint64_t picoseconds) { return (double)picoseconds * 1e-9; }

static void print_setting(const auto_setting *s, text *out) {
    const strategy_param *p = &strategy_params[s->param];
    text_printf(out, "%s = ", p->name);
    if (p->kind == PARAM_RATIO) text_printf(out, "%.10g", s->value / 1e6);
    else if (p->kind == PARAM_FLAG) text_puts(out, s->value ? "true" : "false");
    else if (p->words && (p->kind == PARAM_WORD || !s->value)) text_puts(out, p->words[s->value]);
    else text_printf(out, "%u", s->value);
}

void auto_name(const auto_candidate *c, text *out) {
    text_puts(out, fcp_strategy_names[c->strategy]);
    if (auto_has_groups(c)) text_printf(out, " + %s", fcp_strategy_names[auto_divides_by(c)]);
    for (uint32_t i = 0; i < c->settings; i++) {
        text_puts(out, i ? ", " : "(");
        print_setting(&c->set[i], out);
    }
    if (c->settings) text_puts(out, ")");
    if (c->between && !auto_has_groups(c)) text_puts(out, " + ring");
    if (c->no_relay) text_puts(out, "; relay = off");
}

static auto_bound largest(const auto_bounds *b) {
    int found = 0;
    for (int i = 1; i < AUTO_BOUNDS; i++)
        if (b->of[i] > b->of[found]) found = i;
    return (auto_bound)found;
}

static void print_why(const auto_report *r, const auto_candidate *c, text *out) {
    const double best = (double)auto_makespan(r); /* 0 of a batch without tokens, which takes all no time */
    const double more = best > 0 ? 100 * ((double)c->makespan - best) / best : 0.0;
    if (c->end == AUTO_SLOWER && more >= 0) text_printf(out, "%.1f %% slower", more);
    else if (c->end == AUTO_SLOWER) text_printf(out, "%.1f %% faster", -more);
    else if (c->end == AUTO_BOUND) text_puts(out, "not scheduled: a faster one was known");
    else if (c->end == AUTO_FAR) text_puts(out, "not tried: effort = 1, and its like was slower, or moves more");
    else if (c->end == AUTO_LONG) text_puts(out, "not tried: effort = 1, and its ring goes through more than 8 nodes");
    else if (c->end == AUTO_OVER) text_puts(out, "not tried: over the budget");
    else if (c->end == AUTO_REFUSED) text_printf(out, "refused: %s", c->why);
    else {
        text_puts(out, auto_end_names[c->end]);
        if (c->makespan)
            text_printf(out, "; rank %u ends last and %s", c->last.rank, resource_names[c->last.what]);
    }
    if (c->bare) text_printf(out, "; %u rank%s without tokens", c->bare, text_plural(c->bare));
}

static void print_moves(const auto_report *r, text *out) {
    const auto_moves *m = &r->moves;
    if (!m->tried) return;
    text_printf(out, "moved: %u placements tried, %u kept", m->tried, m->kept);
    if (m->kept)
        text_printf(out, ": %u %s%s moved, %.4f ms, %.1f %% less", m->moved, m->exec ? "row" : "block",
                    text_plural(m->moved),
                    ms(m->makespan),
                    100 * (1 - (double)m->makespan / (double)r->at[r->chosen].makespan));
    text_puts(out, "\n");
}

void auto_print(const auto_report *r, text *out) {
    int width = (int)strlen("candidate");
    for (const auto_candidate *c = r->at; c < r->at + r->count; c++) {
        text name = {0};
        auto_name(c, &name);
        if ((int)name.size > width) width = (int)name.size;
        text_free(&name);
    }
    text_printf(out, "%-*s %6s %12s %-8s %12s  %s (profile %s, all passes%s%s)\n", width, "candidate", "block",
                "bound ms", "which", "predicted ms", "what became of it", r->profile,
                r->layers ? ", linear layers too" : "", r->recurrent ? ", layers that recur too" : "");
    for (const auto_candidate *c = r->at; c < r->at + r->count; c++) {
        text name = {0};
        char block[16] = "-", bound[24] = "-", makespan[24] = "-";
        auto_name(c, &name);
        if (c->block) snprintf(block, sizeof block, "%u", c->block);
        if (c->bound.all) snprintf(bound, sizeof bound, "%.4f", ms(c->bound.all));
        if (c->makespan) snprintf(makespan, sizeof makespan, "%.4f", ms(c->makespan));
        text_printf(out, "%-*.*s %6s %12s %-8s %12s  ", width, (int)name.size, name.size ? name.at : "", block, bound,
                    c->bound.all ? bound_names[largest(&c->bound)] : "-", makespan);
        print_why(r, c, out);
        text_puts(out, "\n");
        out->failed |= name.failed;
        text_free(&name);
    }
    print_moves(r, out);
    if (r->spent)
        text_printf(out, "budget: %.4g s of work, %.4g s counted\n", (double)r->budget / 1e9, (double)r->work / 1e9);
}

void auto_json(const auto_report *r, json *j, const char *key) {
    json_object(j, key);
    json_string(j, "profile", r->profile);
    if (r->layers) json_bool(j, "with_linear_layers", true);
    if (r->recurrent) json_bool(j, "with_layers_that_recur", true);
    json_array(j, "tried");
    for (const auto_candidate *c = r->at; c < r->at + r->count; c++) {
        text name = {0};
        auto_name(c, &name);
        text_add(&name, "", 1);
        json_object(j, NULL);
        json_string(j, "strategy", name.failed ? NULL : name.at);
        if (c->block) json_u64(j, "block", c->block);
        json_string(j, "end", auto_end_names[c->end]);
        if (c->bound.all) {
            json_double(j, "bound_s", 1e-3 * ms(c->bound.all));
            json_object(j, "bounds");
            for (int b = 0; b < AUTO_BOUNDS; b++) json_double(j, bound_names[b], 1e-3 * ms(c->bound.of[b]));
            json_end(j);
        }
        if (c->found) json_bool(j, "found", true);
        if (c->makespan) {
            json_double(j, "makespan_s", 1e-3 * ms(c->makespan));
            json_u64(j, "last_rank", c->last.rank);
            json_string(j, "last_rank_does", resource_names[c->last.what]);
        }
        if (c->makespan && c->bare) json_u64(j, "ranks_without_tokens", c->bare);
        if (c->end == AUTO_REFUSED) json_string(j, "why", c->why);
        json_end(j);
        text_free(&name);
    }
    json_end(j);
    json_object(j, "moves");
    json_u64(j, "tried", r->moves.tried);
    json_u64(j, "kept", r->moves.kept);
    json_u64(j, "moved", r->moves.moved);
    json_end(j);
    if (r->budget) {
        json_double(j, "budget_s", (double)r->budget / 1e9);
        json_double(j, "work_s", (double)r->work / 1e9);
        json_bool(j, "budget_spent", r->spent);
    }
    json_double(j, "makespan_s", 1e-3 * ms(auto_makespan(r)));
    json_end(j);
}

void auto_hint_refused(const auto_report *r, diags *d) {
    uint32_t said = 1u << r->at[r->chosen].strategy;
    for (const auto_candidate *c = r->at; c < r->at + r->count; c++) {
        if (c->end != AUTO_REFUSED || said >> c->strategy & 1) continue;
        if (auto_has_groups(c)) continue; /* both of its strategies have a line of their own */
        said |= 1u << c->strategy;
        diag_hint(d, "auto tried %s, too: %s", fcp_strategy_names[c->strategy], c->why);
    }
}

void auto_report_free(auto_report *r) {
    arena_free(&r->memory);
    *r = (auto_report){.count = 0};
}
