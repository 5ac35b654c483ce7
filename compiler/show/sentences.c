/* sentences.c: writes the sentences at the top of a picture: what the plan is for and what it costs.
 *
 * All settings are listed, also those that the program leaves at their defaults.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "compiler/show/model.h"
#include "compiler/show/recurrent_figures.h"
#include "compiler/show/summary.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/plan_summary.h"

const char *show_count(char out[SHOW_COUNT], uint64_t value) {
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value), to = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[to++] = ',';
        out[to++] = digits[i];
    }
    out[to] = 0;
    return out;
}

size_t show_utf8(const char *bytes, size_t left) {
    const unsigned char *s = (const unsigned char *)bytes;
    const size_t n = left ? text_utf8(bytes, left) : 0;
    const bool control = n == 1 ? *s < ' ' || *s == 127 : n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
    const bool no_character = n == 3 && s[0] == 0xef && s[1] == 0xbf && s[2] >= 0xbe; /* U+FFFE, U+FFFF */
    return control || no_character ? 0 : n;
}

typedef struct facts {
    show_fact *out;
    uint32_t count;
    bool cost;
    char number[8][32]; /* SUMMARY_NUMBER and SHOW_COUNT */
} facts;

__attribute__((format(printf, 3, 4))) static void add_fact(facts *f, const char *label, const char *format, ...) {
    show_fact *fact = &f->out[f->count++];
    fact->label = label;
    fact->cost = f->cost;
    va_list args;
    va_start(args, format);
    vsnprintf(fact->sentence, sizeof fact->sentence, format, args);
    va_end(args);
}

/* Copies text of a plan so that it can be printed safely: control characters, and bytes that are not UTF-8, become '?'.
 */
static void plain(char *out, size_t size, const char *from) {
    size_t left = strlen(from), at = 0;
    while (left) {
        size_t n = show_utf8(from, left), taken = n ? n : 1;
        if (at + taken >= size) break;
        if (n) memcpy(out + at, from, n);
        else out[at] = '?';
        at += taken;
        from += taken;
        left -= taken;
    }
    out[at] = 0;
}

/* Writes ", over heads, queries / 128, keys / 128" for a field that is over anything else than keys. */
static void put_over(char *to, size_t room, const fcp_plan *plan, const fcp_array *a) {
    const struct {
        const char *word;
        uint32_t cell;
    } dims[] = {{a->heads == plan->problem->heads ? "heads" : "kv_heads", a->heads != 0},
                {"queries", a->q_cell},
                {"keys", a->k_cell}};
    size_t at = 0;
    if (a->kind == FCP_TABLE || fcp_array_is_over(a, FCP_KEYS)) return;
    if (!fcp_array_dims(a)) at += (size_t)snprintf(to, room, ", over sequences");
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        if (!dims[i].cell) continue;
        at += (size_t)snprintf(to + at, room - at, ", %s%s", at ? "" : "over ", dims[i].word);
        if (dims[i].cell > 1) at += (size_t)snprintf(to + at, room - at, " / %u", dims[i].cell);
    }
}

/* The fields and tables that the plan reads: the file of each, and the range of its values. */
static void add_arrays(facts *f, const fcp_plan *plan) {
    show_fact *fact = &f->out[f->count++];
    size_t at = 0, room = sizeof fact->sentence;
    *fact = (show_fact){.label = "reads", .cost = f->cost};
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        char name[64], file[80];
        if (room - at < 2 * (sizeof name + sizeof file)) { /* the rest is counted, so that no name is cut */
            snprintf(fact->sentence + at, room - at, "; and %" PRIu64 " more", plan->arrays_count - i);
            return;
        }
        plain(name, sizeof name, plan->names + a->name);
        plain(file, sizeof file, a->file == FCP_NONE ? "" : plan->names + a->file);
        int n = snprintf(fact->sentence + at, room - at, "%s%s%s%s%s", i ? "; " : "",
                         a->kind == FCP_TABLE ? "table " : "field ", name, *file ? " from " : "", file);
        at += n > 0 ? (size_t)n : 0;
        char over[80] = "";
        put_over(over, sizeof over, plan, a);
        if (a->width == MC_F64) n = snprintf(fact->sentence + at, room - at, "%s, reals", over);
        else n = snprintf(fact->sentence + at, room - at, "%s, %" PRId64 " to %" PRId64, over, a->lo, a->hi);
        at += n > 0 ? (size_t)n : 0;
    }
}

bool show_packing(const fcp_plan *plan, char out_sentence[SHOW_SENTENCE]) {
    const fcp_problem *p = plan->problem;
    char number[2][SHOW_COUNT];
    uint64_t fewer = 0, few = 0, least = UINT64_MAX;
    for (uint64_t i = 0; i < plan->sequences_count; i++) {
        const fcp_sequence *s = &plan->sequences[i];
        few += fcp_is_short(s);
        if (!s->queries || s->queries >= s->keys) continue;
        fewer++;
        if (s->queries < least) least = s->queries;
    }
    if (!fewer) return false;
    if (!few)
        snprintf(out_sentence, SHOW_SENTENCE,
                 "none is packed: sequences of more than %d queries fill tiles of their own, and the shortest has %s",
                 FCP_SHORT_QUERIES, show_count(number[0], least));
    else
        snprintf(out_sentence, SHOW_SENTENCE, "%s of %s sequence%s ha%s at most %d queries and more keys; %s%s",
                 show_count(number[0], few), show_count(number[1], plan->sequences_count),
                 text_plural(plan->sequences_count), few == 1 ? "s" : "ve", FCP_SHORT_QUERIES,
                 fcp_plan_packed(plan) ? "packed: query heads that share a KV head share tiles"
                                       : "not packed: heads see different pairs, and so do not share tiles",
                 fcp_plan_packed(plan) && p->passes & 1u << FCP_BACKWARD ? ", but not in the backward pass" : "");
    return true;
}

static void add_problem(facts *f, const show_model *m) {
    const fcp_plan *plan = m->plan;
    const fcp_problem *p = plan->problem;
    const fcp_cluster *c = plan->cluster;
    char gpu[sizeof c->gpu + 1], memory[SUMMARY_NUMBER + 32] = "no memory cap";
    uint64_t longest = 0;
    snprintf(gpu, sizeof gpu, "%.*s", (int)sizeof c->gpu, c->gpu);
    for (char *s = gpu; *s; s++)
        if (*s < ' ' || *s == 127) *s = '?';
    for (uint64_t s = 0; s < plan->sequences_count; s++)
        if (plan->sequences[s].keys > longest) longest = plan->sequences[s].keys;
    if (p->memory_cap && p->memory_cap != UINT64_MAX)
        snprintf(memory, sizeof memory, "%s of memory", summary_number(f->number[3], (double)p->memory_cap, "B"));
    char values[64] = "";
    if (p->value_dim != p->head_dim) snprintf(values, sizeof values, ", value_dim %" PRIu32, p->value_dim);
    add_fact(f, "model", "%" PRIu32 " head%s, %" PRIu32 " KV head%s, head_dim %" PRIu32 "%s%s, %s, scale %.6f",
             p->heads, text_plural(p->heads), p->kv_heads, text_plural(p->kv_heads), p->head_dim, values,
             p->values_in_keys ? ", values in keys" : "", fcp_dtype_name(p->dtype), p->scale);
    add_fact(
        f, "cluster",
        "%" PRIu32 " rank%s: %" PRIu32 " node%s of %" PRIu32 " GPU%s (%s, %s a rank); %s inside a node, %s between, "
        "latency %.1f us, %s",
        p->ranks, text_plural(p->ranks), p->nodes, text_plural(p->nodes), p->gpus, text_plural(p->gpus), gpu, memory,
        summary_number(f->number[0], (double)c->intra, "B/s"), summary_number(f->number[1], (double)c->inter, "B/s"),
        (double)c->latency_ns / 1000, p->topology == FCP_RAIL ? "rails" : "fat tree");
    if (fcp_plan_split(plan))
        add_fact(f, "batch", "%s sequence%s, %s quer%s and %s keys; the longest has %s keys; queries aligned at the %s",
            show_count(f->number[0], plan->sequences_count), text_plural(plan->sequences_count),
            show_count(f->number[1], p->tokens), p->tokens == 1 ? "y" : "ies", show_count(f->number[2], p->key_tokens),
            show_count(f->number[3], longest), p->align == FCP_TOP_LEFT ? "top left" : "bottom right");
    else
        add_fact(f, "batch", "%s sequence%s, %s tokens; the longest has %s",
                 show_count(f->number[0], plan->sequences_count), text_plural(plan->sequences_count),
                 show_count(f->number[1], p->tokens), show_count(f->number[2], longest));
    if (plan->documents) {
        char name[64];
        plain(name, sizeof name, plan->names + plan->arrays[p->documents].name);
        add_fact(f, "documents", "%s, which field %s tells apart", show_count(f->number[0], plan->documents_count), name);
    }
    char packing[SHOW_SENTENCE];
    if (show_packing(plan, packing)) add_fact(f, "queries", "%s", packing);
    add_fact(f, "mask", "%s", m->mask);
    if (m->score) add_fact(f, "score", "%s", m->score);
    if (m->sink) add_fact(f, "sink", "%s", m->sink);
    if (plan->arrays_count) add_arrays(f, plan);
    if (plan->slices_count)
        add_fact(f, "slices", "%s union%s of slices: %s stretch%s of queries with %s band%s of keys",
            show_count(f->number[0], plan->slices_count), text_plural(plan->slices_count),
            show_count(f->number[1], plan->band_rows_count - plan->slices_count),
            plan->band_rows_count - plan->slices_count == 1 ? "" : "es", show_count(f->number[2], plan->bands_count),
            text_plural(plan->bands_count));
    char group[32] = "";
    if (p->layout_group != p->ranks) snprintf(group, sizeof group, "(group = %" PRIu32 ")", p->layout_group);
    add_fact(f, "plan",
        "%s, blocks of %" PRIu32 " tokens (%s in all), coalesce %" PRIu32 ", buffers %" PRIu32 ", margin %" PRIu32
        " of %" PRIu32 " multiprocessors, layout %s%s, %s%s%s%s%s%s",
        summary_strategy(p->strategy), p->block, show_count(f->number[0], plan->blocks_count), p->coalesce, p->buffers,
        p->margin, plan->cluster->multiprocessors, summary_layout(p->layout), group,
        p->passes & 1u << FCP_FORWARD ? fcp_pass_names[FCP_FORWARD] : "",
        p->passes == ((1u << FCP_FORWARD) | (1u << FCP_BACKWARD)) ? " and " : "",
        p->passes & 1u << FCP_BACKWARD ? fcp_pass_names[FCP_BACKWARD] : "", p->deterministic ? ", deterministic" : "",
        p->wire == FCP_BF16 ? ", partial results travel in bf16" : "",
        p->lse_gradient ? ", takes a gradient of LSE" : "");
}

static void add_cost(facts *f, const show_model *m) {
    const fcp_problem *p = m->plan->problem;
    const fcp_summary *s = m->plan->summary;
    summary_figures x = summary_derive(m->plan);
    bool backward = p->passes & 1u << FCP_BACKWARD;
    f->cost = true;
    add_fact(f, "work", "%s of %s pairs are allowed (%.2f %%)%s: %s forward%s%s%s",
        summary_number(f->number[0], x.pairs, ""), summary_number(f->number[1], x.positions, ""),
        100 * x.density, p->mask_uses & MC_USES_H ? ", summed over heads" : "",
        summary_number(f->number[2], x.flops_forward, "FLOP"), backward ? ", " : "",
        backward ? summary_number(f->number[3], x.flops_backward, "FLOP") : "", backward ? " backward" : "");
    if (fcp_plan_ranges(m->plan) > 1)
        add_fact(f, "heads",
                 "blocks are of %" PRIu32 " query heads each, in %" PRIu32 " ranges; the first range is drawn",
                 p->range_kv * p->range_sub, fcp_plan_ranges(m->plan));
    if (fcp_plan_split(m->plan))
        add_fact(f, "balance",
            "the busiest rank has %.4f x the mean work (no placement of these blocks does better than %.4f), the "
            "fullest %.4f x the mean queries, another or the same %.4f x the mean keys",
            x.compute_max_over_mean, x.compute_floor, x.tokens_max_over_mean, x.key_tokens_max_over_mean);
    else
        add_fact(f, "balance",
            "the busiest rank has %.4f x the mean work (no placement of these blocks does better than %.4f) and the "
            "fullest %.4f x the mean tokens",
            x.compute_max_over_mean, x.compute_floor, x.tokens_max_over_mean);
    add_fact(f, "traffic",
        "%s between ranks, %s of it between nodes; the busiest sender has %.2f x the mean, the busiest receiver %.2f x",
        summary_number(f->number[0], (double)s->bytes_total, "B"),
        summary_number(f->number[1], (double)s->bytes_inter_node, "B"), x.send_max_over_mean, x.recv_max_over_mean);
    if (m->moves.tiles)
        add_fact(f, "moved work",
                 "%.1f %% of the pairs, in %s of %s tiles, are computed away from the rank that owns their queries; "
                 "for that %s of Q and O travel%s%s%s",
                 100 * (double)m->moves.pairs / (double)s->pairs, show_count(f->number[0], m->moves.tiles),
                 show_count(f->number[1], s->tiles), summary_number(f->number[2], (double)s->bytes_moved, "B"),
                 backward ? ", and " : "",
                 backward ? summary_number(f->number[3], (double)s->backward_bytes_moved, "B") : "",
                 backward ? " backward" : "");
    char halves[SHOW_LENGTH];
    if (!s->rounds && s->rounds_dependent)
        add_fact(f, "rounds",
            "%" PRIu64 ", divided stage by stage (no schedule needs fewer than %" PRIu64 "), in %" PRIu64 " stage%s%s",
            s->rounds_dependent, s->rounds_bound, s->stages, text_plural(s->stages), show_halves(m->plan, halves));
    else add_fact(f, "rounds",
        "%" PRIu64 " (no schedule needs fewer than %" PRIu64 ") and %" PRIu64 " dependent, in %" PRIu64 " stage%s",
        s->rounds, s->rounds_lower_bound, s->rounds_dependent, s->stages, text_plural(s->stages));
    char off[64] = "";
    const uint64_t off_rails = fcp_bytes_off_rails(m->plan, FCP_FORWARD);
    if (off_rails) snprintf(off, sizeof off, " (%s off its rail)", summary_number(f->number[1], (double)off_rails, "B"));
    if (s->bytes_reshuffle || s->rounds_reshuffle)
        add_fact(f, "reshuffle", "%s from the caller's layout and back%s, in %" PRIu64 " round%s",
            summary_number(f->number[0], (double)s->bytes_reshuffle, "B"), off, s->rounds_reshuffle,
            text_plural(s->rounds_reshuffle));
    else add_fact(f, "reshuffle", "none: the caller's layout is the plan's");
    add_fact(f, "memory", "%s at the largest rank, %" PRIu64 " KV slot%s in flight; running state read and written: %s",
        summary_number(f->number[0], (double)s->memory_peak_bytes, "B"), s->slots_max, text_plural(s->slots_max),
        summary_number(f->number[1], (double)s->state_bytes, "B"));
    if (backward)
        add_fact(f, "backward",
            "%s between ranks, %s of it between nodes; %" PRIu64 " round%s and %" PRIu64 " dependent, in %" PRIu64
            " stage%s",
            summary_number(f->number[0], (double)s->backward_bytes_total, "B"),
            summary_number(f->number[1], (double)s->backward_bytes_inter_node, "B"), s->backward_rounds,
            text_plural(s->backward_rounds), s->backward_rounds_dependent, s->backward_stages,
            text_plural(s->backward_stages));
}

/* Layers that recur: the first kinds, and how many more there are. */
static void add_recurrent(facts *f, const fcp_plan *plan) {
    const uint32_t count = plan->recurrent_count, shown = count < SHOW_RECURRENT ? count : SHOW_RECURRENT;
    for (uint32_t i = 0; i < shown; i++) {
        char sentence[RECURRENT_SENTENCE];
        const recurrent_figures layers = recurrent_figures_of(plan, i);
        add_fact(f, fcp_layer_kind_names[layers.layer->kind], "%s", recurrent_sentence(sentence, &layers));
    }
    if (count > shown)
        add_fact(f, "layers", "%" PRIu32 " more kind%s, which --json lists", count - shown, text_plural(count - shown));
}

uint32_t show_facts(const show_model *m, show_fact out[SHOW_FACTS]) {
    facts f = {.out = out};
    add_problem(&f, m);
    add_cost(&f, m);
    add_recurrent(&f, m->plan);
    return f.count;
}
