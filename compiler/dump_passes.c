/* dump_passes.c: prints what passes made, one record a line, for `--dump` and for golden files.
 *
 * Requires: a planning, which may have ended after any pass. Gives: the text. Cost: linear in it.
 */
#include "compiler/dump_passes.h"
#include "runtime/plan/enum_names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compiler/lower/lower.h"

typedef struct out {
    fcp_emit *emit;
    void *context;
} out;

static void print(const out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(const out *o, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (size > 0) o->emit(o->context, line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
}

/* " name=7", or " name=-" of FCP_NONE. */
static void print_number(const out *o, const char *name, uint32_t value) {
    if (value == FCP_NONE) print(o, " %s=-", name);
    else print(o, " %s=%u", name, value);
}

static void dump_problem(const out *o, const planning *x) {
    static const char *const holds[] = {[FCP_HOLDS_Q] = "q", [FCP_HOLDS_KV] = "kv", [FCP_HOLDS_BOTH] = "both"};
    const problem *p = x->problem;
    if (!p || !p->work) return;
    print(o, "problem ranks=%u sequences=%u tokens=%llu block=%u unit=%u blocks=%u tiles=%u pairs=%llu\n", p->ranks,
          p->sequences, (unsigned long long)p->tokens, p->block, p->unit, p->block_count, p->tile_count,
          (unsigned long long)p->pairs);
    for (uint32_t i = 0; i < p->piece_count; i++) {
        const fcp_piece *piece = &p->pieces[i];
        print(o, "piece %u sequence=%u start=%llu length=%u block=%u offset=%u\n", i, piece->sequence,
              (unsigned long long)piece->start, piece->length, piece->block, piece->offset);
    }
    for (uint32_t i = 0; p->head_count > 1 && i < p->head_count; i++)
        print(o, "heads %u kv_first=%u kv_count=%u sub_first=%u sub_count=%u\n", i, p->heads[i].kv_first,
              p->heads[i].kv_count, p->heads[i].sub_first, p->heads[i].sub_count);
    for (uint32_t b = 0; b < p->block_count; b++) {
        print(o, "block %u tokens=%u pieces=%u holds=%s pairs=%llu", b, p->blocks[b].tokens, p->blocks[b].pieces,
              holds[p->blocks[b].holds], (unsigned long long)p->work[b]);
        if (p->head_count > 1) print(o, " heads=%u", p->blocks[b].heads);
        print(o, "\n");
    }
    for (uint32_t t = 0; t < p->tile_count; t++)
        print(o, "tile %u q_block=%u k_block=%u parts=%u pairs=%llu\n", t, p->tile_q[t], p->tile_k[t],
              p->tile_part[t + 1] - p->tile_part[t], (unsigned long long)p->tile_pairs[t]);
}

static void dump_placement(const out *o, const planning *x) {
    if (!x->placement) return;
    for (uint32_t b = 0; b < x->problem->block_count; b++)
        print(o, "home %u rank=%u node=%u\n", b, x->placement->home[b], x->placement->home[b] / x->program->gpus);
    for (uint32_t t = 0; t < x->problem->tile_count; t++)
        print(o, "exec %u q_block=%u k_block=%u rank=%u\n", t, x->problem->tile_q[t], x->problem->tile_k[t],
              placement_exec(x->placement, t));
    if (x->times.bytes_lower_bound)
        print(o, "bytes_lower_bound %llu\n", (unsigned long long)x->times.bytes_lower_bound);
}

static void dump_traffic(const out *o, const planning *x) {
    for (uint32_t f = 0; x->traffic && f < x->traffic->count; f++) {
        const hop *of = &x->traffic->hops[f];
        print(o, "fetch %u block=%u src=%u dst=%u fabric=%s units=%u", f, of->block, of->src, of->dst,
              fcp_fabric_names[of->fabric], of->units);
        print_number(o, "parent", of->parent);
        print(o, " pairs=%llu%s\n", (unsigned long long)of->work, of->cls == FCP_Q ? " class=q" : "");
    }
}

static void dump_reshuffle(const out *o, const planning *x) {
    const reshuffle *r = x->reshuffle;
    static const char *const sides[] = {"queries", "keys"};
    for (uint32_t i = 0; r && i < r->count; i++) {
        const bundle *b = &r->bundles[i];
        print(o, "bundle %u caller=%u home=%u side=%s tokens=%u holds=", i, b->caller, b->home,
              x->problem->split ? sides[b->side] : "both", b->tokens);
        for (uint32_t j = b->first; j < b->first + b->count; j++)
            print(o, "%s%u:%u", j > b->first ? "," : "", r->contents[j].block, r->contents[j].tokens);
        print(o, "\n");
    }
}

static void dump_schedule(const out *o, const planning *x) {
    const schedule *s = x->schedule;
    if (!s) return;
    for (uint32_t f = 0; f < x->traffic->count; f++) {
        print(o, "arrival %u block=%u rank=%u first_stage=%u last_stage=%u", f, x->traffic->hops[f].block,
              x->traffic->hops[f].dst, s->first_stage[f], s->last_stage[f]);
        print_number(o, "use_first", s->use_first[f]);
        print_number(o, "use_last", s->use_first[f] == FCP_NONE ? FCP_NONE : s->use_last[f]);
        const uint32_t *back = s->back[FCP_BACKWARD].last, *forward = s->back[FCP_FORWARD].last;
        print_number(o, "return_stage", back && !x->traffic->hops[f].bare ? back[f] : FCP_NONE);
        if (forward && x->traffic->hops[f].cls == FCP_Q) print_number(o, "forward_return_stage", forward[f]);
        if (s->second) print(o, " half=%u", 1u + s->second[f]);
        print(o, "\n");
    }
    for (uint32_t r = 0; r < x->problem->ranks; r++)
        for (uint32_t v = s->rank_visit[r]; v < s->rank_visit[r + 1]; v++) {
            const fcp_visit *w = &s->visits[v];
            print(o, "visit %u rank=%u stage=%u early=%u q_block=%u k_blocks=", v, r, s->visit_stage[v],
                  s->visit_early[v], w->q_block);
            for (uint32_t i = w->first_tile; i < w->first_tile + w->tiles; i++)
                print(o, "%s%u", i > w->first_tile ? "," : "", x->problem->tile_k[s->order[i]]);
            print(o, "\n");
        }
}

static void dump_slots(const out *o, const planning *x) {
    const slots *s = x->slots;
    if (!s) return;
    for (uint32_t b = 0; b < x->problem->block_count; b++)
        print(o, "home_slot %u rank=%u slot=%u\n", b, x->placement->home[b], s->home_slot[b]);
    bool backward = x->program->passes[FCP_BACKWARD];
    for (uint32_t f = 0; f < x->traffic->count; f++) {
        const hop *of = &x->traffic->hops[f];
        print(o, "slot %u block=%u src=%u dst=%u", f, of->block, of->src, of->dst);
        if (of->cls == FCP_KV) {
            print_number(o, "kv", s->held[f]);
            const bool comes_back = backward && !of->bare;
            print_number(o, "accumulator", comes_back ? s->back[FCP_BACKWARD].from[f] : FCP_NONE);
            print_number(o, "landing", comes_back ? s->back[FCP_BACKWARD].to[f] : FCP_NONE);
        } else {
            print_number(o, "q", s->held[f]);
            for (int pass = 0; pass < FCP_PASSES; pass++) {
                if (!x->program->passes[pass]) continue;
                const char *name = fcp_class_names[traffic_return(of, (fcp_pass)pass)];
                print(o, " %s_from=%u %s_to=%u", name, s->back[pass].from[f], name, s->back[pass].to[f]);
            }
        }
        print(o, "\n");
    }
    for (uint32_t r = 0; r < x->problem->ranks; r++) {
        print(o, "peak %u homes=%u kv=%u dkv=%u state=%u", r, s->homes[r], s->count[FCP_KV][r], s->count[FCP_DKV][r],
              s->count[FCP_STATE][r]);
        if (x->traffic->tile_q)
            print(o, " q=%u o=%u dq=%u dqw=%u", s->count[FCP_Q][r], s->count[FCP_O][r], s->count[FCP_DQ][r],
                  s->count[FCP_DQW][r]);
        print(o, "\n");
    }
}

static void dump_rounds(const out *o, const planning *x) {
    for (int pass = 0; x->schedule && pass < FCP_PASSES; pass++) {
        const pass_schedule *ps = &x->schedule->pass[pass];
        const char *name = fcp_pass_names[pass];
        for (uint32_t i = 0; i < ps->round_count; i++)
            print(o, "round %u pass=%s kind=%s stage=%u\n", i, name, fcp_round_names[ps->rounds[i].kind],
                  ps->rounds[i].stage);
        for (uint32_t i = 0; ps->rounds && i < ps->move_count; i++) {
            const move *m = &ps->moves[i];
            bool of_bundle = m->block == FCP_NONE;
            print(o, "move %u pass=%s round=%u class=%s fabric=%s %s=%u first=%u tokens=%u src=%u dst=%u", i, name,
                  m->round, fcp_class_names[m->cls], fcp_fabric_names[m->fabric], of_bundle ? "bundle" : "block",
                  of_bundle ? m->ref : m->block, m->first, m->tokens, m->src, m->dst);
            if (!of_bundle) print(o, " from=%u to=%u", m->from, m->to);
            print(o, "\n");
        }
    }
}

/* What can be dumped, in the order in which passes make it. */
static const struct dumper { const char *name; void (*print)(const out *o, const planning *x); } dumpers[] = {
    {"problem", dump_problem},     {"placement", dump_placement}, {"traffic", dump_traffic},
    {"reshuffle", dump_reshuffle}, {"schedule", dump_schedule},   {"slots", dump_slots},
    {"rounds", dump_rounds},
};
enum { DUMPERS = sizeof dumpers / sizeof *dumpers };

fcp_code dump_select(const char *names, unsigned *out_passes, fcp_error *err) {
    *out_passes = 0;
    for (const char *at = names;; at++) {
        size_t length = strcspn(at, ","), i = 0;
        while (i < DUMPERS && (strlen(dumpers[i].name) != length || memcmp(dumpers[i].name, at, length))) i++;
        if (i == DUMPERS) {
            char list[256];
            size_t size = 0;
            for (i = 0; i < DUMPERS; i++)
                size += (size_t)snprintf(list + size, sizeof list - size, "%s%s",
                                         !i ? "" : i + 1 < DUMPERS ? ", " : " and ", dumpers[i].name);
            return fcp_fail(err, FCP_E_USAGE, "--dump: there is no pass '%.*s'; there are %s",
                            (int)(length < 100 ? length : 100), at, list);
        }
        *out_passes |= 1u << i;
        at += length;
        if (!*at) return FCP_OK;
    }
}

void dump_planning(const planning *x, unsigned passes, fcp_emit *emit, void *context) {
    const out o = {emit, context};
    for (unsigned i = 0; i < DUMPERS; i++)
        if (passes >> i & 1) dumpers[i].print(&o, x);
}
