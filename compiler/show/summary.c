/* summary.c: writes what a plan costs, as five lines of text or as members of a JSON object.
 *
 * Requires: a checked plan, and the times that fcpc_plan gave. For a plan from a file most times are 0.
 * Units:    FLOPs of a pair are those of fcp_pair_flops. A plan may divide the query heads into ranges, each with
 *           blocks of its own. Then its figures count:
 *             tokens at home   once for each range
 *             pairs            once for each range; if the mask names h, once for each head
 */
#include "compiler/show/summary.h"
#include "compiler/show/recurrent_figures.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static double ratio(double part, double whole) { return whole > 0 ? part / whole : 1; }

summary_figures summary_derive(const fcp_plan *plan) {
    const fcp_problem *p = plan->problem;
    const fcp_summary *s = plan->summary;
    const double ranks = p->ranks, pairs = (double)s->pairs, of_range = (double)p->range_kv * p->range_sub;
    const double kv_ranges = p->kv_heads / p->range_kv, ranges = p->heads / of_range;
    const double every = pairs * (p->mask_uses & MC_USES_H ? 1 : of_range); /* pairs of all heads */
    const double forward = fcp_pair_flops(p->head_dim, p->value_dim, FCP_FORWARD);
    const double backward = fcp_pair_flops(p->head_dim, p->value_dim, FCP_BACKWARD);
    summary_figures f = {
        .pairs = p->mask_uses & MC_USES_H ? pairs : pairs / ranges,
        .positions = (double)s->positions / (p->mask_uses & MC_USES_H ? 1 : ranges),
        .density = s->positions > 0 ? pairs / (double)s->positions : 0,
        .flops_forward = p->passes & 1u << FCP_FORWARD ? forward * every : 0,
        .flops_backward = p->passes & 1u << FCP_BACKWARD ? backward * every : 0,
        .compute_max_over_mean = ratio((double)s->pairs_max_rank * ranks, pairs),
        .compute_floor = ratio((double)s->pairs_max_block * ranks, pairs),
        .send_max_over_mean = ratio((double)s->send_max * ranks, (double)s->bytes_total),
        .recv_max_over_mean = ratio((double)s->recv_max * ranks, (double)s->bytes_total),
        .tokens_max_over_mean = ratio((double)s->tokens_max_rank * ranks, (double)p->tokens * ranges),
        .key_tokens_max_over_mean = ratio((double)s->key_tokens_max_rank * ranks, (double)p->key_tokens * kv_ranges),
    };
    /* where work moves, blocks are divided among ranks, so no block limits the balance */
    if (f.compute_floor < 1 || s->bytes_moved || s->backward_bytes_moved) f.compute_floor = 1;
    return f;
}

const char *summary_strategy(uint32_t strategy) {
    return strategy < FCP_STRATEGY_COUNT ? fcp_strategy_names[strategy] : "?";
}

const char *summary_layout(uint32_t layout) {
    return layout < FCP_LAYOUTS ? fcp_layout_names[layout] : "?";
}

void summary_json(json *j, const fcp_plan *plan, const fcpc_times *times) {
    const fcp_problem *p = plan->problem;
    const fcp_summary *s = plan->summary;
    summary_figures f = summary_derive(plan);
    json_string(j, "strategy", summary_strategy(p->strategy));
    json_string(j, "layout", summary_layout(p->layout));
    json_u64(j, "layout_group", p->layout_group);
    json_u64(j, "block", p->block);
    json_u64(j, "ranks", p->ranks);
    json_u64(j, "nodes", p->nodes);
    json_u64(j, "heads", p->heads);
    json_u64(j, "kv_heads", p->kv_heads);
    json_u64(j, "head_dim", p->head_dim);
    json_u64(j, "value_dim", p->value_dim);
    json_bool(j, "values_in_keys", p->values_in_keys);
    json_bool(j, "lse_gradient", p->lse_gradient);
    json_u64(j, "tokens", p->tokens); /* queries */
    json_u64(j, "key_tokens", p->key_tokens);
    json_u64(j, "sequences", s->sequences);
    json_u64(j, "documents", plan->documents_count);
    json_u64(j, "blocks", s->blocks);
    json_u64(j, "tiles", s->tiles);
    json_u64(j, "pairs", s->pairs);
    json_double(j, "density", f.density);
    json_double(j, "flops_forward", f.flops_forward);
    json_double(j, "flops_backward", f.flops_backward);
    json_double(j, "compute_max_over_mean", f.compute_max_over_mean);
    json_double(j, "compute_floor", f.compute_floor);
    json_double(j, "send_max_over_mean", f.send_max_over_mean);
    json_double(j, "recv_max_over_mean", f.recv_max_over_mean);
    json_double(j, "tokens_max_over_mean", f.tokens_max_over_mean);
    json_double(j, "key_tokens_max_over_mean", f.key_tokens_max_over_mean);
    json_u64(j, "bytes_total", s->bytes_total);
    json_u64(j, "bytes_moved", s->bytes_moved);
    json_u64(j, "bytes_lower_bound", times->bytes_lower_bound);
    json_u64(j, "bytes_inter_node", s->bytes_inter_node);
    json_u64(j, "bytes_reshuffle", s->bytes_reshuffle);
    json_u64(j, "bytes_off_rail", fcp_bytes_off_rails(plan, FCP_FORWARD)); /* of the reshuffle */
    json_u64(j, "rounds", s->rounds);
    json_u64(j, "rounds_lower_bound", s->rounds_lower_bound);
    json_u64(j, "rounds_dependent", s->rounds_dependent);
    json_u64(j, "rounds_bound", s->rounds_bound);
    json_u64(j, "rounds_reshuffle", s->rounds_reshuffle);
    json_u64(j, "stages", s->stages);
    json_u64(j, "second_stage", fcp_second_stage(plan));
    json_u64(j, "slots_max", s->slots_max);
    json_u64(j, "state_bytes", s->state_bytes);
    json_u64(j, "memory_peak_bytes", s->memory_peak_bytes);
    json_u64(j, "backward_bytes_total", s->backward_bytes_total);
    json_u64(j, "backward_bytes_moved", s->backward_bytes_moved);
    json_u64(j, "backward_bytes_inter_node", s->backward_bytes_inter_node);
    json_u64(j, "backward_rounds", s->backward_rounds);
    json_u64(j, "backward_rounds_dependent", s->backward_rounds_dependent);
    json_u64(j, "backward_rounds_bound", s->backward_rounds_bound);
    json_u64(j, "backward_rounds_reshuffle", s->backward_rounds_reshuffle);
    json_u64(j, "backward_stages", s->backward_stages);
    json_u64(j, "backward_slots_max", s->backward_slots_max);
    json_u64(j, "peers_max", s->peers_max);
    recurrent_json(j, plan);
    json_u64(j, "plan_bytes", plan->file_size);
    json_object(j, "seconds");
    json_double(j, "parse", times->parse);
    json_double(j, "classify", times->classify);
    json_double(j, "place", times->place);
    json_double(j, "colour", times->colour);
    json_double(j, "schedule", times->schedule);
    json_double(j, "verify", times->verify);
    json_double(j, "choose", times->choose);
    json_double(j, "total", times->total);
    json_end(j);
}

const char *summary_number(char out[SUMMARY_NUMBER], double value, const char *unit) {
    static const char *const prefix[] = {"", "k", "M", "G", "T", "P", "E"};
    unsigned i = 0;
    double shown = value;
    while (shown >= 999.5 && i + 1 < sizeof prefix / sizeof *prefix) {
        shown /= 1000;
        i++;
    }
    int decimals = i == 0 ? 0 : shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0;
    const char *space = *prefix[i] || *unit ? " " : "";
    snprintf(out, SUMMARY_NUMBER, "%.*f%s%s%s", decimals, shown, space, prefix[i], unit);
    return out;
}

/* Seconds as milliseconds, with about three significant digits. */
static const char *milliseconds(char out[SUMMARY_NUMBER], double seconds) {
    double ms = seconds * 1000;
    snprintf(out, SUMMARY_NUMBER, "%.*f", ms < 9.995 ? 2 : ms < 99.95 ? 1 : 0, ms);
    return out;
}

void summary_text(text *out, const fcp_plan *plan, const fcpc_times *times, const char *name, const char *written) {
    const fcp_problem *p = plan->problem;
    const fcp_summary *s = plan->summary;
    summary_figures f = summary_derive(plan);
    char n[8][SUMMARY_NUMBER], choose[SUMMARY_NUMBER];
    const char *base = strrchr(name, '/');
    bool split = fcp_plan_split(plan);
    char tokens[64];
    if (split)
        snprintf(tokens, sizeof tokens, "%" PRIu64 " %s and %" PRIu64 " key%s", p->tokens,
                 p->tokens == 1 ? "query" : "queries", p->key_tokens, text_plural(p->key_tokens));
    else snprintf(tokens, sizeof tokens, "%" PRIu64 " token%s", p->tokens, text_plural(p->tokens));
    char documents[48] = "";
    if (plan->documents)
        snprintf(documents, sizeof documents, " (%" PRIu64 " document%s)", plan->documents_count,
                 text_plural(plan->documents_count));
    text_printf(out,
                "%.200s: %" PRIu32 " rank%s (%" PRIu32 " node%s of %" PRIu32 "), %s in %" PRIu64 " sequence%s%s, "
                "%" PRIu64 " block%s of at most %" PRIu32 ", %s\n",
                base ? base + 1 : name, p->ranks, text_plural(p->ranks), p->nodes, text_plural(p->nodes), p->gpus,
                tokens, s->sequences, text_plural(s->sequences), documents, s->blocks, text_plural(s->blocks),
                p->max_block > p->max_q_block ? p->max_block : p->max_q_block, summary_strategy(p->strategy));
    text_printf(out, "  work    %s pairs, density %.4f; %s forward, %s backward; max/mean %.4f, floor %.4f\n",
         summary_number(n[0], f.pairs, ""), f.density, summary_number(n[1], f.flops_forward, "FLOP"),
         summary_number(n[2], f.flops_backward, "FLOP"), f.compute_max_over_mean, f.compute_floor);
    /* of_q stays empty if no work moves to other ranks, and least if no lower bound of the bytes is known */
    char of_q[64] = "", least[64] = "", off[64] = "", rounds[128];
    const uint64_t off_rails = fcp_bytes_off_rails(plan, FCP_FORWARD);
    if (!s->rounds && s->rounds_dependent) /* work may move to any rank: then rounds are counted by stages */
        snprintf(rounds, sizeof rounds, "%" PRIu64 " round%s, stage by stage (bound %" PRIu64 ")", s->rounds_dependent,
                 text_plural(s->rounds_dependent), s->rounds_bound);
    else
        snprintf(rounds, sizeof rounds, "%" PRIu64 " round%s (bound %" PRIu64 ") + %" PRIu64 " dependent", s->rounds,
                 text_plural(s->rounds), s->rounds_lower_bound, s->rounds_dependent);
    if (s->bytes_moved) snprintf(of_q, sizeof of_q, " (Q and O %s", summary_number(n[0], (double)s->bytes_moved, "B"));
    if (times->bytes_lower_bound)
        snprintf(least, sizeof least, "%sbound %s", *of_q ? ", " : " (",
                 summary_number(n[0], (double)times->bytes_lower_bound, "B"));
    if (off_rails) snprintf(off, sizeof off, " (%s off its rail)", summary_number(n[0], (double)off_rails, "B"));
    text_printf(out, "  traffic %s%s%s%s, %s between nodes, reshuffle %s%s; %s; send max/mean %.3f, receive %.3f\n",
         summary_number(n[0], (double)s->bytes_total, "B"), of_q, least, *of_q || *least ? ")" : "",
         summary_number(n[1], (double)s->bytes_inter_node, "B"), summary_number(n[2], (double)s->bytes_reshuffle, "B"),
         off, rounds, f.send_max_over_mean, f.recv_max_over_mean);
    char balance[64], halves[64] = "";
    if (split) snprintf(balance, sizeof balance, "queries max/mean %.4f, keys %.4f", f.tokens_max_over_mean,
                        f.key_tokens_max_over_mean);
    else snprintf(balance, sizeof balance, "tokens max/mean %.4f", f.tokens_max_over_mean);
    const uint32_t second = fcp_second_stage(plan);
    if (second) snprintf(halves, sizeof halves, ", the second half from %" PRIu32 " on", second);
    text_printf(out,
                "  memory  %s at the largest rank, %" PRIu64 " KV slot%s; %s; %" PRIu64 " stage%s%s, "
                "running state %s\n",
                summary_number(n[0], (double)s->memory_peak_bytes, "B"), s->slots_max, text_plural(s->slots_max),
                balance, s->stages, text_plural(s->stages), halves, summary_number(n[1], (double)s->state_bytes, "B"));
    text_printf(out,
                "  plan    %s%s%.200s, verified; %s ms (%s%s%sparse %s, classify %s, place %s, colour %s, schedule %s, "
                "verify %s)\n",
                summary_number(n[0], (double)plan->file_size, "B"), written ? " in " : "", written ? written : "",
                milliseconds(n[1], times->total), times->choose > 0 ? "choose " : "",
                times->choose > 0 ? milliseconds(choose, times->choose) : "", times->choose > 0 ? ", " : "",
                milliseconds(n[2], times->parse), milliseconds(n[3], times->classify), milliseconds(n[4], times->place),
                milliseconds(n[5], times->colour), milliseconds(n[6], times->schedule),
                milliseconds(n[7], times->verify));
    for (uint32_t i = 0; i < plan->recurrent_count; i++) {
        char sentence[RECURRENT_SENTENCE];
        const recurrent_figures layers = recurrent_figures_of(plan, i);
        text_printf(out, "  %-8s%s\n", fcp_layer_kind_names[layers.layer->kind], recurrent_sentence(sentence, &layers));
    }
}
