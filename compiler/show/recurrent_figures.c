/* recurrent_figures.c: counts and prints what the layers that recur cost.
 *
 * A message is counted at its sender. A halo is priced by the channels that the program states, in the plan's dtype; a
 * run may have rows of another size.
 */
#include "compiler/show/recurrent_figures.h"

#include <inttypes.h>
#include <stdio.h>

#include "compiler/base/text.h"
#include "compiler/show/summary.h"
#include "runtime/base/saturate.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/layout.h"

uint64_t recurrent_stretches(const fcp_plan *plan) {
    uint64_t count = 0;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) count += fcp_stretches_of(plan, r, NULL);
    return count;
}

static uint64_t message_bytes(const fcp_plan *plan, const fcp_recurrent *layer, const fcp_step *step) {
    if (layer->kind == FCP_SCAN) return fcp_step_bytes(layer, step);
    return fcp_times(fcp_step_rows(plan, step),
                     layer->channels * (uint64_t)fcp_dtype_size((fcp_dtype)plan->problem->dtype));
}

static recurrent_network count_network(const fcp_plan *plan, uint32_t number, fcp_pass pass) {
    const fcp_recurrent *layer = &plan->recurrent[number];
    recurrent_network out = {.rounds = layer->rounds[pass], .bound = layer->bound[pass]};
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const fcp_step_stream *stream = fcp_steps_of(plan, number, pass, r);
        uint64_t sent = 0;
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_step *s = &plan->steps[stream->first + i];
            if (s->op != FCP_STEP_SEND) continue;
            const uint64_t bytes = message_bytes(plan, layer, s);
            out.messages++;
            sent = fcp_plus(sent, bytes);
            if (s->fabric == FCP_NET) out.bytes_inter_node = fcp_plus(out.bytes_inter_node, bytes);
        }
        out.bytes = fcp_plus(out.bytes, sent);
        if (sent > out.send_max) out.send_max = sent;
    }
    return out;
}

recurrent_figures recurrent_figures_of(const fcp_plan *plan, uint32_t number) {
    recurrent_figures f = {.layer = &plan->recurrent[number],
                           .stretches = recurrent_stretches(plan),
                           .passes = plan->problem->passes};
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(f.passes >> pass & 1)) continue;
        const bool back = pass == FCP_BACKWARD && f.layer->kind == FCP_HALO;
        f.pass[pass] = count_network(plan, number, back ? FCP_FORWARD : (fcp_pass)pass);
    }
    return f;
}

/* Adds "186 messages, 390 MB (84.1 MB between nodes), 22 rounds (bound 22)". */
static void put_network(text *out, const recurrent_network *n) {
    char number[2][SUMMARY_NUMBER];
    if (!n->messages) {
        text_puts(out, "nothing travels");
        return;
    }
    text_printf(out, "%" PRIu64 " message%s, %s", n->messages, text_plural(n->messages),
                summary_number(number[0], (double)n->bytes, "B"));
    if (n->bytes_inter_node)
        text_printf(out, " (%s between nodes)", summary_number(number[1], (double)n->bytes_inter_node, "B"));
    text_printf(out, ", %" PRIu32 " round%s (bound %" PRIu32 ")", n->rounds, text_plural(n->rounds), n->bound);
}

static bool networks_same(const recurrent_network *a, const recurrent_network *b) {
    return a->messages == b->messages && a->bytes == b->bytes && a->bytes_inter_node == b->bytes_inter_node &&
           a->rounds == b->rounds && a->bound == b->bound;
}

const char *recurrent_sentence(char out[RECURRENT_SENTENCE], const recurrent_figures *f) {
    const fcp_recurrent *x = f->layer;
    const bool backward = f->passes >> FCP_BACKWARD & 1;
    const recurrent_network *forth = &f->pass[FCP_FORWARD], *back = &f->pass[FCP_BACKWARD];
    text t = {0};
    text_printf(&t, "%" PRIu32 " layer%s of ", x->times, text_plural(x->times));
    if (x->kind == FCP_HALO) {
        if (x->before) text_printf(&t, "%" PRIu32 " row%s before", x->before, text_plural(x->before));
        if (x->after)
            text_printf(&t, "%s%" PRIu32 "%s behind", x->before ? " and " : "", x->after,
                        x->before       ? ""
                        : x->after == 1 ? " row"
                                        : " rows");
        text_printf(&t, ", %" PRIu32 " channel%s", x->channels, text_plural(x->channels));
    } else
        text_printf(&t, "%" PRIu32 " head%s of %" PRIu32 " x %" PRIu32 ", decay %s%s, shape %s", x->heads,
                    text_plural(x->heads), x->rows, x->columns, x->decay < FCP_DECAYS ? fcp_decay_names[x->decay] : "?",
                    x->reverse ? ", reverse" : "", x->shape < FCP_SCAN_SHAPES ? fcp_scan_shape_names[x->shape] : "?");
    if (x->parts > 1) text_printf(&t, " in %" PRIu32 " parts", x->parts);
    text_printf(&t, "; %" PRIu64 " stretch%s; each layer %s: ", f->stretches, f->stretches == 1 ? "" : "es",
                backward && networks_same(forth, back) ? "forward and backward" : "forward");
    put_network(&t, forth);
    if (backward && !networks_same(forth, back)) {
        text_puts(&t, "; backward: ");
        put_network(&t, back);
    }
    snprintf(out, RECURRENT_SENTENCE, "%.*s", (int)t.size, t.at ? t.at : "");
    text_free(&t);
    return out;
}

void recurrent_json(json *j, const fcp_plan *plan) {
    json_array(j, "recurrent");
    for (uint32_t i = 0; i < plan->recurrent_count; i++) {
        const recurrent_figures f = recurrent_figures_of(plan, i);
        const fcp_recurrent *x = f.layer;
        json_object(j, NULL);
        json_string(j, "kind", x->kind < FCP_LAYER_KINDS ? fcp_layer_kind_names[x->kind] : "?");
        json_u64(j, "times", x->times);
        if (x->kind == FCP_HALO) {
            json_u64(j, "before", x->before);
            json_u64(j, "after", x->after);
            json_u64(j, "channels", x->channels);
        } else {
            json_u64(j, "heads", x->heads);
            json_u64(j, "head_dim", x->rows);
            json_u64(j, "value_dim", x->columns);
            json_string(j, "decay", x->decay < FCP_DECAYS ? fcp_decay_names[x->decay] : "?");
            json_bool(j, "reverse", x->reverse != 0);
            json_u64(j, "parts", x->parts);
            json_string(j, "shape", x->shape < FCP_SCAN_SHAPES ? fcp_scan_shape_names[x->shape] : "?");
        }
        json_u64(j, "stretches", f.stretches);
        json_array(j, "passes");
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const recurrent_network *n = &f.pass[pass];
            if (!(f.passes >> pass & 1)) continue;
            json_object(j, NULL);
            json_string(j, "pass", fcp_pass_names[pass]);
            json_u64(j, "messages", n->messages);
            json_u64(j, "bytes", n->bytes);
            json_u64(j, "bytes_inter_node", n->bytes_inter_node);
            json_u64(j, "send_max", n->send_max);
            json_u64(j, "rounds", n->rounds);
            json_u64(j, "rounds_bound", n->bound);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_end(j);
}
