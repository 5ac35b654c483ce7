/* cut.c: cuts the extracts of ranks out of a plan.
 *
 * Requires: a verified plan.
 * Gives:    bodies of extracts; equal plans give equal bytes.
 * Method:   1. Walk over the rank's instructions, home blocks, bundles and layout, and pick the records that they name,
 *              and those that these name in turn.
 *           2. Give the picked records of each table new numbers, in the order of their old ones. What lies next to
 *              each other, such as the tiles of a visit, then still does.
 *           3. Write each table, with the new numbers.
 * Cost:     making a cutter is linear in the plan. A cut is linear in the extract, but for the sort of what it picks.
 */
#include "runtime/exec/cut.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/exec/bundles.h"
#include "runtime/exec/rank_memory.h"
#include "runtime/plan/extract_file.h"
#include "runtime/plan/file.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/sides.h"

/* The records of a table that are picked. */
typedef struct picks {
    uint32_t *number; /* per record of the plan: its number in the extract; FCP_NONE: not picked */
    uint32_t *list;   /* those picked; once they have numbers, in order */
    size_t count, room;
    bool full; /* out of memory */
} picks;

enum { SEQUENCES, BLOCKS, SHAPES, TILES, VISITS, PICKED };

struct fcp_cutter {
    const fcp_plan *plan;
    uint32_t first_rank, rank_count;
    fcp_bundles *bundles;
    fcp_homes *homes;        /* of each rank */
    fcp_extract_about about; /* without what is a rank's own */
    picks of[PICKED];
    fcp_span *spans;
    size_t spans_count, spans_room;
    char *body;
    size_t held;
};

static void pick(picks *p, uint32_t record) {
    if (p->number[record] != FCP_NONE || p->full) return;
    if (!FCP_GROW(p->list, p->room, p->count + 1)) {
        p->full = true;
        return;
    }
    p->number[record] = 0;
    p->list[p->count++] = record;
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Gives the picked records their numbers. */
static void number(picks *p) {
    for (size_t i = 1; i < p->count; i++)
        if (p->list[i] < p->list[i - 1]) {
            qsort(p->list, p->count, sizeof *p->list, by_number);
            break;
        }
    for (size_t i = 0; i < p->count; i++) p->number[p->list[i]] = (uint32_t)i;
}

static void forget(picks *p) {
    for (size_t i = 0; i < p->count; i++) p->number[p->list[i]] = FCP_NONE;
    p->count = 0;
}

/* --- picking ------------------------------------------------------------------------------------------------------ */

static void pick_block(fcp_cutter *c, uint32_t block) {
    const fcp_block *k = &c->plan->blocks[block];
    if (c->of[BLOCKS].number[block] != FCP_NONE) return;
    pick(&c->of[BLOCKS], block);
    for (uint32_t i = k->first_piece; i < k->first_piece + k->pieces; i++)
        pick(&c->of[SEQUENCES], c->plan->pieces[i].sequence);
}

static void pick_tile(fcp_cutter *c, uint32_t tile) {
    const fcp_tile *t = &c->plan->tiles[tile];
    if (c->of[TILES].number[tile] != FCP_NONE) return;
    pick(&c->of[TILES], tile);
    pick_block(c, t->q_block);
    pick_block(c, t->k_block);
    const uint32_t classes = fcp_class_count(c->plan, c->plan->blocks[t->q_block].heads);
    for (uint32_t i = t->first_part; i < t->first_part + t->parts; i++)
        for (uint32_t j = 0; j < classes; j++) pick(&c->of[SHAPES], c->plan->parts[i].shape + j);
}

static void pick_instr(fcp_cutter *c, const fcp_instr *x) {
    switch (x->op) {
    case FCP_OP_LAUNCH:
    case FCP_OP_COPY:
        for (uint32_t i = x->a; i < x->a + x->b; i++)
            if (c->plan->transfers[i].block != FCP_NONE) pick_block(c, c->plan->transfers[i].block);
        break;
    case FCP_OP_ATTEND:
        for (uint32_t i = x->a; i < x->a + x->b; i++) {
            const fcp_visit *v = &c->plan->visits[i];
            pick(&c->of[VISITS], i);
            pick_block(c, v->q_block);
            for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++) pick_tile(c, t);
        }
        break;
    case FCP_OP_WAIT:
    case FCP_OP_DELTA: break;
    default: pick_block(c, x->a); /* a partial result */
    }
}

/* Picks what a rank's caller holds. */
static bool pick_layout(fcp_cutter *c, uint32_t rank) {
    c->spans_count = 0;
    for (int side = 0; side < FCP_SIDES; side++) {
        fcp_layout_at at = {0};
        fcp_span span;
        while (fcp_side_layout(c->plan, (fcp_side)side, rank, &at, &span)) {
            if (!FCP_GROW(c->spans, c->spans_room, c->spans_count + 1)) return false;
            c->spans[c->spans_count++] = span;
            pick(&c->of[SEQUENCES], span.sequence);
        }
        if (side == FCP_QUERIES) c->about.query_spans = (uint32_t)c->spans_count;
    }
    return true;
}

static bool pick_all(fcp_cutter *c, uint32_t rank) {
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int queue = 0; queue < FCP_QUEUES; queue++) {
            const fcp_stream *s = fcp_stream_of(c->plan, (fcp_pass)pass, rank, (fcp_queue)queue);
            for (uint32_t i = 0; i < s->count; i++) pick_instr(c, &c->plan->instrs[s->first + i]);
        }
    for (uint32_t i = 0; i < c->homes[rank].homes; i++) pick_block(c, c->homes[rank].block[i]);
    const fcp_bundle all = fcp_bundles_of(c->bundles, rank);
    for (uint32_t i = 0; i < all.count; i++) pick_block(c, all.runs[i].block);
    bool good = pick_layout(c, rank);
    for (int i = 0; i < PICKED; i++) {
        number(&c->of[i]);
        good = good && !c->of[i].full;
        c->of[i].full = false;
    }
    return good;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Bytes of an array's values in the extract, and how many they are. */
static uint64_t array_bytes(const fcp_cutter *c, uint64_t array, uint64_t *out_count) {
    fcp_array a = c->plan->arrays[array];
    if (a.kind == FCP_FIELD) a.count = 0;
    for (size_t i = 0; i < c->of[SEQUENCES].count && a.kind == FCP_FIELD; i++) {
        const uint32_t s = c->of[SEQUENCES].list[i];
        a.count += fcp_array_start(c->plan, array, s + 1) - fcp_array_start(c->plan, array, s);
    }
    *out_count = a.count;
    return fcp_array_bytes(&a);
}

static uint64_t to_next(uint64_t at) { return (at + FCP_FILE_ALIGN - 1) / FCP_FILE_ALIGN * FCP_FILE_ALIGN; }

/* The steps of a rank in a network, and how many records of halo_rows a step of it has. */
static const fcp_step_stream *network_of(const fcp_plan *plan, uint64_t network, uint32_t rank) {
    return fcp_steps_of(plan, (uint32_t)(network / FCP_PASSES), (fcp_pass)(network % FCP_PASSES), rank);
}
static uint32_t rows_of(const fcp_plan *plan, uint64_t network, const fcp_step *x) {
    if (plan->recurrent[network / FCP_PASSES].kind == FCP_SCAN) return 0;
    return x->op == FCP_STEP_COPY ? 2 : x->b;
}

/* How many records each table has. */
static void count_records(const fcp_cutter *c, uint32_t rank, uint64_t counts[FCP_EXTRACT_TABLES]) {
    const fcp_plan *plan = c->plan;
    const fcp_bundle_at *list;
    const uint64_t *groups = fcp_bundles_groups(c->bundles, rank, &list);
    uint64_t ignored;
#define X(id, type, member) counts[FCP_SECTION_##id] = plan->member##_count;
    FCP_SECTIONS(X)
#undef X
    static const uint8_t others[] = {FCP_SECTION_SOURCE, FCP_SECTION_PIECES,   FCP_SECTION_DEALS,     FCP_SECTION_PARTS,
                                     FCP_SECTION_RUNS,   FCP_SECTION_INSTRS,   FCP_SECTION_TRANSFERS, FCP_SECTION_DATA,
                                     FCP_SECTION_STEPS,  FCP_SECTION_HALO_ROWS};
    for (size_t i = 0; i < sizeof others; i++) counts[others[i]] = 0;
    counts[FCP_SECTION_SEQUENCES] = c->of[SEQUENCES].count;
    counts[FCP_SECTION_BLOCKS] = c->of[BLOCKS].count;
    counts[FCP_SECTION_SHAPES] = c->of[SHAPES].count;
    counts[FCP_SECTION_TILES] = c->of[TILES].count;
    counts[FCP_SECTION_VISITS] = c->of[VISITS].count;
    for (size_t i = 0; i < c->of[BLOCKS].count; i++)
        counts[FCP_SECTION_PIECES] += plan->blocks[c->of[BLOCKS].list[i]].pieces;
    for (size_t i = 0; i < c->of[TILES].count; i++)
        counts[FCP_SECTION_PARTS] += plan->tiles[c->of[TILES].list[i]].parts;
    for (size_t i = 0; i < c->of[SHAPES].count; i++)
        counts[FCP_SECTION_RUNS] += plan->shapes[c->of[SHAPES].list[i]].runs;
    counts[FCP_SECTION_STREAMS] = (uint64_t)FCP_PASSES * FCP_QUEUES;
    for (int s = 0; s < FCP_PASSES * FCP_QUEUES; s++) {
        const fcp_stream *of = fcp_stream_of(plan, (fcp_pass)(s / FCP_QUEUES), rank, (fcp_queue)(s % FCP_QUEUES));
        counts[FCP_SECTION_INSTRS] += of->count;
        for (const fcp_instr *x = plan->instrs + of->first; x < plan->instrs + of->first + of->count; x++)
            if (x->op == FCP_OP_LAUNCH || x->op == FCP_OP_COPY) counts[FCP_SECTION_TRANSFERS] += x->b;
    }
    for (uint64_t i = 0; i < plan->arrays_count; i++)
        counts[FCP_SECTION_DATA] = to_next(counts[FCP_SECTION_DATA] + array_bytes(c, i, &ignored));
    counts[FCP_SECTION_STEP_STREAMS] = plan->recurrent_count * FCP_PASSES;
    for (uint64_t network = 0; network < plan->recurrent_count * FCP_PASSES; network++) {
        const fcp_step_stream *of = network_of(plan, network, rank);
        counts[FCP_SECTION_STEPS] += of->count;
        for (const fcp_step *x = plan->steps + of->first; x < plan->steps + of->first + of->count; x++)
            counts[FCP_SECTION_HALO_ROWS] += rows_of(plan, network, x);
    }
    uint64_t *own = counts + FCP_SECTION_COUNT;
    own[FCP_EXTRACT_ABOUT] = 1;
    own[FCP_EXTRACT_PLACES] = c->of[SEQUENCES].count;
    own[FCP_EXTRACT_SPANS] = c->spans_count;
    own[FCP_EXTRACT_GROUPS] = FCP_BUNDLE_GROUPS + 1;
    own[FCP_EXTRACT_BUNDLES] = groups[FCP_BUNDLE_GROUPS] - groups[0] + 1;
    own[FCP_EXTRACT_BUNDLE_RUNS] = fcp_bundles_of(c->bundles, rank).count;
}

/* The tables of an extract that is being written. */
typedef struct tables {
#define X(id, type, member) type *member;
    FCP_SECTIONS(X)
    FCP_EXTRACT_SECTIONS(X)
#undef X
} tables;

static void write_batch(const fcp_cutter *c, const tables *to) {
    const fcp_plan *plan = c->plan;
    uint32_t pieces = 0;
    for (size_t i = 0; i < c->of[SEQUENCES].count; i++) {
        const uint32_t s = c->of[SEQUENCES].list[i];
        to->sequences[i] = plan->sequences[s];
        to->places[i] =
            (fcp_extract_sequence){{fcp_offsets(plan, FCP_QUERIES)[s], fcp_offsets(plan, FCP_KEYS)[s]}, s, 0};
    }
    for (size_t i = 0; i < c->of[BLOCKS].count; i++) {
        fcp_block *k = &to->blocks[i];
        *k = plan->blocks[c->of[BLOCKS].list[i]];
        for (uint32_t j = 0; j < k->pieces; j++) {
            fcp_piece *p = &to->pieces[pieces + j];
            *p = plan->pieces[k->first_piece + j];
            p->sequence = c->of[SEQUENCES].number[p->sequence];
            p->block = (uint32_t)i;
        }
        k->first_piece = pieces;
        pieces += k->pieces;
    }
}

/* The number in the extract of a piece of a block that is picked. */
static uint32_t piece_of(const fcp_cutter *c, const tables *to, uint32_t piece) {
    const uint32_t block = c->plan->pieces[piece].block;
    return to->blocks[c->of[BLOCKS].number[block]].first_piece + piece - c->plan->blocks[block].first_piece;
}

static void write_work(const fcp_cutter *c, const tables *to) {
    const fcp_plan *plan = c->plan;
    const uint32_t *block = c->of[BLOCKS].number;
    uint32_t parts = 0, runs = 0;
    for (size_t i = 0; i < c->of[TILES].count; i++) {
        fcp_tile *t = &to->tiles[i];
        *t = plan->tiles[c->of[TILES].list[i]];
        for (uint32_t j = 0; j < t->parts; j++) {
            const fcp_part *p = &plan->parts[t->first_part + j];
            to->parts[parts + j] =
                (fcp_part){piece_of(c, to, p->q_piece), piece_of(c, to, p->k_piece), c->of[SHAPES].number[p->shape]};
        }
        t->first_part = parts;
        parts += t->parts;
        t->q_block = block[t->q_block];
        t->k_block = block[t->k_block];
    }
    for (size_t i = 0; i < c->of[SHAPES].count; i++) {
        fcp_shape_rec *s = &to->shapes[i];
        *s = plan->shapes[c->of[SHAPES].list[i]];
        if (s->runs) memcpy(to->runs + runs, plan->runs + s->first_run, s->runs * sizeof *to->runs);
        s->first_run = runs;
        runs += s->runs;
    }
    for (size_t i = 0; i < c->of[VISITS].count; i++) {
        fcp_visit *v = &to->visits[i];
        *v = plan->visits[c->of[VISITS].list[i]];
        v->q_block = block[v->q_block];
        v->first_tile = c->of[TILES].number[v->first_tile];
    }
}

static void write_queues(const fcp_cutter *c, uint32_t rank, const tables *to) {
    const fcp_plan *plan = c->plan;
    uint32_t instrs = 0, transfers = 0;
    for (int s = 0; s < FCP_PASSES * FCP_QUEUES; s++) {
        const fcp_stream *of = fcp_stream_of(plan, (fcp_pass)(s / FCP_QUEUES), rank, (fcp_queue)(s % FCP_QUEUES));
        to->streams[s] = (fcp_stream){instrs, of->count};
        for (uint32_t i = 0; i < of->count; i++) {
            fcp_instr *x = &to->instrs[instrs++];
            *x = plan->instrs[of->first + i];
            if (x->op == FCP_OP_LAUNCH || x->op == FCP_OP_COPY) {
                for (uint32_t j = 0; j < x->b; j++) {
                    fcp_transfer *t = &to->transfers[transfers + j];
                    *t = plan->transfers[x->a + j];
                    if (t->block != FCP_NONE) t->block = c->of[BLOCKS].number[t->block];
                }
                x->a = transfers;
                transfers += x->b;
            } else if (x->op == FCP_OP_ATTEND) x->a = c->of[VISITS].number[x->a];
            else if (x->op != FCP_OP_WAIT && x->op != FCP_OP_DELTA) x->a = c->of[BLOCKS].number[x->a];
        }
    }
}

/* The steps of layers that recur. Registers and rows keep their numbers, because they are the rank's own. */
static void write_steps(const fcp_cutter *c, uint32_t rank, const tables *to) {
    const fcp_plan *plan = c->plan;
    uint32_t steps = 0, rows = 0;
    for (uint64_t network = 0; network < plan->recurrent_count * FCP_PASSES; network++) {
        const fcp_step_stream *of = network_of(plan, network, rank);
        to->step_streams[network] = (fcp_step_stream){steps, of->count, of->temporaries};
        for (uint32_t i = 0; i < of->count; i++) {
            fcp_step *x = &to->steps[steps++];
            *x = plan->steps[of->first + i];
            const uint32_t count = rows_of(plan, network, x);
            if (!count) continue;
            if (x->op == FCP_STEP_COPY) {
                to->halo_rows[rows] = plan->halo_rows[x->a];
                to->halo_rows[rows + 1] = plan->halo_rows[x->b];
                x->b = rows + 1;
            } else memcpy(to->halo_rows + rows, plan->halo_rows + x->a, count * sizeof *to->halo_rows);
            x->a = rows;
            rows += count;
        }
    }
}

static void write_data(const fcp_cutter *c, const tables *to) {
    const fcp_plan *plan = c->plan;
    uint64_t next = 0;
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        const uint64_t width = a->width == MC_F64 ? sizeof(double) : a->width;
        to->arrays[i] = *a;
        to->arrays[i].offset = next;
        const uint64_t bytes = array_bytes(c, i, &to->arrays[i].count);
        if (a->kind == FCP_TABLE) memcpy(to->data + next, plan->data + a->offset, bytes);
        uint8_t *at = to->data + next;
        for (size_t j = 0; j < c->of[SEQUENCES].count && a->kind == FCP_FIELD; j++) {
            const uint32_t s = c->of[SEQUENCES].list[j];
            const uint64_t first = fcp_array_start(plan, i, s), count = fcp_array_start(plan, i, s + 1) - first;
            if (count) memcpy(at, plan->data + a->offset + first * width, count * width);
            at += count * width;
        }
        next = to_next(next + bytes);
    }
}

static void write_own(const fcp_cutter *c, uint32_t rank, const tables *to) {
    const fcp_bundle_at *list;
    const uint64_t *groups = fcp_bundles_groups(c->bundles, rank, &list);
    const fcp_bundle all = fcp_bundles_of(c->bundles, rank);
    *to->about = c->about;
    to->about->rank = rank;
    for (size_t i = 0; i < c->spans_count; i++) {
        to->spans[i] = c->spans[i];
        to->spans[i].sequence = c->of[SEQUENCES].number[c->spans[i].sequence];
    }
    for (int g = 0; g <= FCP_BUNDLE_GROUPS; g++) to->groups[g] = groups[g] - groups[0];
    for (uint64_t i = groups[0]; i <= groups[FCP_BUNDLE_GROUPS]; i++) {
        fcp_bundle_at *b = &to->bundles[i - groups[0]];
        *b = list[i];
        b->first_run -= list[groups[0]].first_run;
        if (i == groups[FCP_BUNDLE_GROUPS]) b->peer = 0; /* the end, not a bundle */
    }
    for (uint32_t i = 0; i < all.count; i++) {
        to->bundle_runs[i] = all.runs[i];
        to->bundle_runs[i].block = c->of[BLOCKS].number[all.runs[i].block];
    }
}

/* Writes the tables that an extract has as the plan has them. */
static void write_same(const fcp_cutter *c, const uint64_t lengths[FCP_EXTRACT_TABLES], const tables *to) {
    const fcp_plan *plan = c->plan;
#define SAME(id, member)                                                                                               \
    if (lengths[FCP_SECTION_##id]) memcpy(to->member, plan->member, lengths[FCP_SECTION_##id]);
    SAME(PROBLEM, problem)
    SAME(CLUSTER, cluster)
    SAME(SUMMARY, summary)
    SAME(HEADS, heads)
    SAME(ROUNDS, rounds)
    SAME(ROUND_STARTS, round_starts)
    SAME(MASK, mask)
    SAME(SCORE, score)
    SAME(SLOPE, slope)
    SAME(SINK, sink)
    SAME(NAMES, names)
    SAME(SLICES, slices)
    SAME(BAND_ROWS, band_rows)
    SAME(BANDS, bands)
    SAME(HEAD_CLASSES, head_classes)
    SAME(RECURRENT, recurrent)
#undef SAME
}

static fcp_code write_body(fcp_cutter *c, uint32_t rank, size_t *out_size, fcp_error *err) {
    uint64_t counts[FCP_EXTRACT_TABLES], lengths[FCP_EXTRACT_TABLES], offsets[FCP_EXTRACT_TABLES], size;
    count_records(c, rank, counts);
    for (int i = 0; i < FCP_EXTRACT_TABLES; i++) lengths[i] = counts[i] * fcp_extract_record_sizes[i];
    if (!fcp_extract_offsets(lengths, offsets, &size))
        return fcp_fail(err, FCP_E_PLAN_SIZE, "the extract of rank %u is larger than any file", rank);
    if (size > c->held) {
        free(c->body);
        c->held = 0;
        if (!(c->body = malloc(size)))
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the extract of rank %u", rank);
        c->held = size;
    }
    memset(c->body, 0, size);
    memcpy(c->body, lengths, sizeof lengths);
    const tables to = {
#define X(id, type, member) .member = (type *)(void *)(c->body + offsets[FCP_SECTION_##id]),
        FCP_SECTIONS(X)
#undef X
#define X(id, type, member) .member = (type *)(void *)(c->body + offsets[FCP_SECTION_COUNT + FCP_EXTRACT_##id]),
            FCP_EXTRACT_SECTIONS(X)
#undef X
    };
    write_same(c, lengths, &to);
    write_batch(c, &to);
    write_work(c, &to);
    write_queues(c, rank, &to);
    write_steps(c, rank, &to);
    write_data(c, &to);
    write_own(c, rank, &to);
    *out_size = size;
    return FCP_OK;
}

fcp_code fcp_cut(fcp_cutter *c, uint32_t rank, const void **out_body, size_t *out_size, fcp_error *err) {
    if (rank - c->first_rank >= c->rank_count) return fcp_fail(err, FCP_E_ARGUMENT, "the plan has no rank %u", rank);
    fcp_code code = pick_all(c, rank) ? write_body(c, rank, out_size, err)
                                      : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to cut rank %u's extract", rank);
    for (int i = 0; i < PICKED; i++) forget(&c->of[i]);
    if (!code) *out_body = c->body;
    return code;
}

/* --- the cutter --------------------------------------------------------------------------------------------------- */

fcp_code fcp_cutter_make(const fcp_plan *plan, uint32_t first_rank, uint32_t rank_count, fcp_cutter **out_cutter,
                         fcp_error *err) {
    const uint64_t counts[PICKED] = {plan->sequences_count, plan->blocks_count, plan->shapes_count, plan->tiles_count,
                                     plan->visits_count};
    fcp_code code = fcp_plan_whole(plan, "cutting", err);
    if (code) return code;
    fcp_cutter *c = calloc(1, sizeof *c);
    bool good = c;
    if (c) {
        *c = (fcp_cutter){.plan = plan, .first_rank = first_rank, .rank_count = rank_count};
        c->about = (fcp_extract_about){.split = fcp_plan_split(plan),
                                       .packed = fcp_plan_packed(plan),
                                       .sequences = plan->sequences_count};
        good = (c->homes = fcp_homes_of(plan));
    }
    for (int i = 0; i < PICKED && good; i++) {
        c->of[i].number = malloc((size_t)(counts[i] + 1) * sizeof(uint32_t));
        if ((good = c->of[i].number))
            memset(c->of[i].number, 0xff, (size_t)counts[i] * sizeof(uint32_t)); /* FCP_NONE */
    }
    code = good ? fcp_bundles_make(plan, first_rank, rank_count, &c->bundles, err)
                : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory to cut the extracts of %u ranks", rank_count);
    if (!code) code = fcp_plan_homes(plan, c->about.homes, err);
    if (code) fcp_cutter_free(c);
    else *out_cutter = c;
    return code;
}

void fcp_cutter_free(fcp_cutter *c) {
    if (!c) return;
    for (int i = 0; i < PICKED; i++) {
        free(c->of[i].number);
        free(c->of[i].list);
    }
    fcp_bundles_free(c->bundles);
    free(c->homes);
    free(c->spans);
    free(c->body);
    free(c);
}
