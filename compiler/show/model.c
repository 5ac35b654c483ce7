/* model.c: gathers what pictures show from a plan's tables: the mask as a grid of counts, and figures of ranks and
 * stages.
 *
 * Requires: a plan that has passed fcp_plan_check.
 * Gives:    integers only, so that pictures are the same bytes on every machine.
 * Cost:     linear in the plan: each instruction and transfer is read once, and so are the runs of each part of a drawn
 *           sequence.
 *
 * How pairs are counted. For each part (a piece of queries against a piece of keys) a plan has the exact number of
 * allowed pairs and the class of each cell. In a FULL cell all pairs are allowed. The other pairs of the part lie in
 * its PARTIAL cells, and the plan does not say how many are in each. They are divided among these cells in proportion
 * to their areas. So a count over whole parts is exact, and a finer one is an estimate.
 */
#include "compiler/show/model.h"
#include "compiler/base/bisect.h"
#include "runtime/plan/bytes.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/sides.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORTEST = 4 * FCP_CELL }; /* a grid of fewer than 4 x 4 cells would show nothing */

static uint32_t cells_of(uint32_t length) { return (length + FCP_CELL - 1) / FCP_CELL; }

static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

uint32_t show_steps(uint64_t value, uint64_t most, uint32_t steps) {
    if (!value || !most) return 0;
    unsigned __int128 up = (unsigned __int128)value * steps + (most - 1);
    up /= most;
    return up > steps ? steps : (uint32_t)up;
}

uint32_t show_share(uint64_t pairs, unsigned __int128 area, uint32_t levels) {
    if (!pairs) return 0;
    if (pairs >= area) return levels;
    return 1 + (uint32_t)((unsigned __int128)pairs * (levels - 1) / area);
}

uint32_t show_level(const show_model *m, const show_grid *g, uint32_t row, uint32_t col, uint32_t levels) {
    uint64_t pairs = g->pairs[(size_t)row * g->cols + col];
    unsigned __int128 area = (unsigned __int128)(g->row_cut[row + 1] - g->row_cut[row]) *
                             (g->col_cut[col + 1] - g->col_cut[col]) * m->pair_heads;
    return show_share(pairs, area, levels);
}

uint32_t show_moved_to(const show_grid *g, uint32_t row, uint32_t col) {
    const size_t at = (size_t)row * g->cols + col;
    return g->moved && g->moved[at] > g->pairs[at] / 2 ? g->moved_to[at] : FCP_NONE;
}

const show_stretch *show_stretch_at(const show_grid *g, fcp_side side, uint64_t token) {
    uint32_t next = 1, end = g->stretch_count[side];
    BISECT(next, end, i, g->stretches[side][i].start <= token)
    return &g->stretches[side][next - 1];
}

const char *show_length(char out[SHOW_LENGTH], uint64_t queries, uint64_t keys) {
    char q[SHOW_COUNT], k[SHOW_COUNT];
    if (queries == keys) snprintf(out, SHOW_LENGTH, "%s tokens", show_count(k, keys));
    else snprintf(out, SHOW_LENGTH, "%s quer%s, %s key%s", show_count(q, queries), queries == 1 ? "y" : "ies",
                  show_count(k, keys), keys == 1 ? "" : "s");
    return out;
}

const char *show_range(char out[SHOW_RANGE], uint32_t first, uint32_t count, uint32_t all) {
    const uint32_t last = min_u32(first + count, all) - 1;
    if (first == last) snprintf(out, SHOW_RANGE, "%" PRIu32, first);
    else snprintf(out, SHOW_RANGE, "%" PRIu32 "-%" PRIu32, first, last);
    return out;
}

const char *show_halves(const fcp_plan *plan, char out[SHOW_LENGTH]) {
    const uint32_t second = fcp_second_stage(plan);
    *out = 0;
    if (second) snprintf(out, SHOW_LENGTH, "; from stage %" PRIu32 " on the second half moves", second);
    return out;
}

uint64_t show_figure(const show_rank *r, int which) {
    return which == 0 ? r->pairs : which == 1 ? r->tokens : which == 2 ? r->sent : r->received;
}

/* --- which sequences --------------------------------------------------------------------------------------------- */

static int by_length(const void *a, const void *b) {
    const fcp_sequence *x = a, *y = b;
    if (x->keys != y->keys) return x->keys < y->keys ? 1 : -1;
    return x->queries < y->queries ? 1 : x->queries > y->queries ? -1 : 0;
}

static bool are_as_long(const fcp_sequence *a, const fcp_sequence *b) {
    return a->keys == b->keys && a->queries == b->queries;
}

static bool mask_reads(const fcp_plan *plan, uint64_t array) {
    for (uint64_t i = 0; i < plan->mask_count; i++)
        if (mc_loads_int(plan->mask[i].op) && (uint64_t)plan->mask[i].imm == array) return true;
    return false;
}

/* Do two sequences of the same length have the same values in all fields of the mask? */
static bool same_fields(const fcp_plan *plan, uint64_t x, uint64_t y) {
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        if (a->kind == FCP_TABLE || !a->count || !mask_reads(plan, i)) continue;
        const uint64_t size = fcp_array_bytes(a) / a->count, of_x = fcp_array_start(plan, i, (uint32_t)x);
        const uint64_t of_y = fcp_array_start(plan, i, (uint32_t)y);
        const uint64_t count = fcp_array_start(plan, i, (uint32_t)x + 1) - of_x;
        const uint8_t *values = plan->data + a->offset;
        if (memcmp(values + of_x * size, values + of_y * size, count * size)) return false;
    }
    return true;
}

uint64_t show_alike(const fcp_plan *plan, uint64_t sequence) {
    const fcp_sequence *s = &plan->sequences[sequence];
    const bool reads = plan->problem->mask_uses & MC_USES_DATA;
    uint64_t alike = 0;
    for (uint64_t i = 0; i < plan->sequences_count; i++) {
        const fcp_sequence *other = &plan->sequences[i];
        alike += are_as_long(s, other) && (!reads || same_fields(plan, sequence, i));
    }
    return alike;
}

/* Chooses up to `most` sequences to draw, of different lengths, in this order:
 *   - the longest;
 *   - the middle one: half of all keys lie in sequences at least as long;
 *   - the shortest that has SHORTEST keys.
 * Sequences without queries or keys are not drawn. Of several with the same length the first is taken. */
static fcp_code choose_sequences(const fcp_plan *plan, uint32_t most, arena *memory, show_model *out) {
    uint64_t count = 0, tokens = 0, sum = 0;
    fcp_sequence *sorted = ARENA_NEW(memory, fcp_sequence, plan->sequences_count);
    if (!sorted) return FCP_E_NO_MEMORY;
    for (uint64_t s = 0; s < plan->sequences_count; s++)
        if (plan->sequences[s].queries && plan->sequences[s].keys) sorted[count++] = plan->sequences[s];
    if (!count || !most) return FCP_OK;
    qsort(sorted, count, sizeof *sorted, by_length);
    for (uint64_t s = 0; s < count; s++) tokens += sorted[s].keys;
    fcp_sequence lengths[SHOW_GRIDS] = {sorted[0]};
    for (uint64_t s = 0; s < count; s++) {
        sum += sorted[s].keys;
        if (sum >= tokens / 2 && !are_as_long(&sorted[s], &sorted[0])) {
            lengths[1] = sorted[s];
            break;
        }
    }
    for (uint64_t s = count; s-- > 0 && !lengths[2].keys;)
        if (sorted[s].keys >= SHORTEST) lengths[2] = sorted[s];
    for (uint32_t i = 0; i < SHOW_GRIDS && out->grid_count < most; i++) {
        bool new = lengths[i].keys > 0;
        for (uint32_t j = 0; j < out->grid_count; j++)
            new &= out->grids[j].length != lengths[i].keys || out->grids[j].queries != lengths[i].queries;
        if (!new) continue;
        show_grid *g = &out->grids[out->grid_count++];
        *g = (show_grid){.length = lengths[i].keys, .queries = lengths[i].queries, .q_first = lengths[i].q_first};
        g->sequence = 0; /* the first of this length */
        while (!are_as_long(&plan->sequences[g->sequence], &lengths[i])) g->sequence++;
        g->alike = show_alike(plan, g->sequence);
    }
    return FCP_OK;
}

/* --- who computes what ------------------------------------------------------------------------------------------- */

fcp_code show_moves_find(const fcp_plan *plan, arena *memory, show_moves *out) {
    const fcp_pass pass = plan->problem->passes & 1u << FCP_FORWARD ? FCP_FORWARD : FCP_BACKWARD;
    uint32_t *ranks = ARENA_NEW(memory, uint32_t, plan->tiles_count + 1);
    if (!ranks) return FCP_E_NO_MEMORY;
    *out = (show_moves){.tile_rank = ranks};
    for (uint64_t t = 0; t < plan->tiles_count; t++) ranks[t] = plan->blocks[plan->tiles[t].q_block].home;
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
        const fcp_stream *s = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
        for (uint32_t i = s->first; i < s->first + s->count; i++) {
            const fcp_instr *in = &plan->instrs[i];
            if (in->op != FCP_OP_ATTEND) continue;
            for (uint32_t v = in->a; v < in->a + in->b; v++)
                for (uint32_t t = plan->visits[v].first_tile;
                     t < plan->visits[v].first_tile + plan->visits[v].tiles; t++)
                    ranks[t] = rank;
        }
    }
    for (uint64_t t = 0; t < plan->tiles_count; t++)
        if (ranks[t] != plan->blocks[plan->tiles[t].q_block].home) out->tiles++, out->pairs += plan->tiles[t].pairs;
    return FCP_OK;
}

/* --- grids ------------------------------------------------------------------------------------------------------- */

static int by_start(const void *a, const void *b) {
    const show_stretch *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

/* Returns how many cells each row (or column) of the grid stands for, so that at most `most` rows are needed. Rows
 * should begin where blocks begin. So a divisor or multiple of a block's cells is taken, if one is at most a quarter
 * larger than necessary. Example: 64 rows for 900 cells need 15 cells a row. Blocks of 8 cells make it 16. */
static uint64_t choose_group(uint64_t cells, uint32_t most, uint32_t block) {
    uint64_t least = (cells + most - 1) / most, in_block = block / FCP_CELL;
    for (uint64_t group = least; in_block && group <= least + least / 4; group++)
        if (in_block % group == 0 || group % in_block == 0) return group;
    return least;
}

/* Fills `cut` with the positions at which each of `count` groups of `group` cells begins, and where the last one
 * ends. */
static void fill_cuts(const show_grid *g, fcp_side side, uint64_t group, uint32_t count, uint64_t *cut) {
    const show_stretch *s = g->stretches[side];
    for (uint32_t i = 0, at = 0; i < count; i++) {
        uint64_t cell = i * group;
        while (at + 1 < g->stretch_count[side] && s[at + 1].first_cell <= cell) at++;
        cut[i] = s[at].start + (cell - s[at].first_cell) * FCP_CELL;
    }
    cut[count] = side == FCP_KEYS ? g->length : g->queries;
}

/* Does the piece belong to the grid's sequence, and does it hold this side of it? If blocks have some heads each, only
 * those of the first range count: the others have the same tokens. */
static bool is_on(const fcp_plan *plan, const fcp_piece *p, const show_grid *g, fcp_side side) {
    const fcp_block *block = &plan->blocks[p->block];
    return p->sequence == g->sequence && block->holds >> side & 1 && fcp_first_range(plan, block);
}

/* Lists a grid's stretches of one side. first_cell[piece] becomes the number of cells that lie before the piece. */
static fcp_code list_stretches(const fcp_plan *plan, arena *memory, show_grid *g, fcp_side side, uint8_t *grid_of,
                               uint64_t *first_cell, uint8_t number) {
    uint32_t n = 0;
    for (uint64_t i = 0; i < plan->pieces_count; i++) n += is_on(plan, &plan->pieces[i], g, side);
    show_stretch *list = ARENA_NEW(memory, show_stretch, (size_t)n + 1);
    if (!list) return FCP_E_NO_MEMORY;
    g->stretches[side] = list;
    g->stretch_count[side] = n;
    n = 0;
    for (uint64_t i = 0; i < plan->pieces_count; i++) {
        const fcp_piece *p = &plan->pieces[i];
        /* first_cell holds the piece's number until the stretches are sorted */
        if (is_on(plan, p, g, side))
            list[n++] = (show_stretch){p->start, p->length, p->block, plan->blocks[p->block].home, i};
    }
    qsort(list, n, sizeof *list, by_start);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t piece = list[i].first_cell;
        grid_of[piece] = number;
        first_cell[piece] = list[i].first_cell = g->cells[side];
        g->cells[side] += cells_of(list[i].length);
    }
    return g->cells[side] ? FCP_OK : FCP_E_INTERNAL; /* a checked plan has a piece for every token */
}

/* Lists a grid's stretches, and makes a table of counts that are 0. */
static fcp_code start_grid(const fcp_plan *plan, const show_scale *scale, const show_moves *moves, arena *memory,
                           show_grid *g, uint8_t *grid_of, uint64_t *first_cell, uint8_t number) {
    for (int side = 0; side < FCP_SIDES; side++) {
        fcp_code code = list_stretches(plan, memory, g, (fcp_side)side, grid_of, first_cell, number);
        if (code) return code;
    }
    const uint64_t down = g->cells[FCP_QUERIES], across = g->cells[FCP_KEYS];
    uint32_t max_cols = number == 1 ? scale->grid_cols : scale->minor_cols;
    uint32_t max_rows = number == 1 ? scale->grid_rows : scale->minor_rows;
    g->col_group = choose_group(across, across <= max_rows ? max_rows : max_cols, plan->problem->block);
    g->row_group = !show_square(g)       ? choose_group(down, max_rows, plan->problem->block)
                   : across <= max_rows ? g->col_group
                                        : g->col_group * (max_cols / max_rows);
    g->cols = (uint32_t)((across + g->col_group - 1) / g->col_group);
    g->rows = (uint32_t)((down + g->row_group - 1) / g->row_group);
    g->row_cut = ARENA_ZNEW(memory, uint64_t, (size_t)g->rows + 1);
    g->col_cut = ARENA_ZNEW(memory, uint64_t, (size_t)g->cols + 1);
    g->pairs = ARENA_ZNEW(memory, uint64_t, (size_t)g->rows * g->cols);
    if (!g->row_cut || !g->col_cut || !g->pairs) return FCP_E_NO_MEMORY;
    if (moves->tiles) {
        g->moved = ARENA_ZNEW(memory, uint64_t, (size_t)g->rows * g->cols);
        g->moved_to = ARENA_NEW(memory, uint32_t, (size_t)g->rows * g->cols);
        if (!g->moved || !g->moved_to) return FCP_E_NO_MEMORY;
        for (size_t i = 0; i < (size_t)g->rows * g->cols; i++) g->moved_to[i] = FCP_NONE;
    }
    fill_cuts(g, FCP_QUERIES, g->row_group, g->rows, g->row_cut);
    fill_cuts(g, FCP_KEYS, g->col_group, g->cols, g->col_cut);
    return FCP_OK;
}

/* How many tokens lie in `count` cells from cell `at` on, in a piece of this length: its last cell may not be full. */
static uint64_t extent(uint32_t length, uint32_t at, uint32_t count) {
    uint64_t begin = (uint64_t)at * FCP_CELL, end = begin + (uint64_t)count * FCP_CELL;
    if (end > length) end = length;
    return end > begin ? end - begin : 0;
}

/* Adds pairs to a cell of the grid. moved_to: the rank that computes them away from their
 * queries' home, or FCP_NONE. */
static void add_pairs(show_grid *g, uint64_t row, uint64_t col, uint64_t pairs, uint32_t moved_to) {
    const size_t at = (size_t)row * g->cols + col;
    g->pairs[at] += pairs;
    if (moved_to == FCP_NONE || !pairs) return;
    g->moved[at] += pairs;
    if (moved_to < g->moved_to[at]) g->moved_to[at] = moved_to;
}

/* Adds the pairs of a part that one of its shapes stands for; a pair counts for `heads` heads. */
static void add_shape(const fcp_plan *plan, const fcp_shape_rec *shape, uint32_t heads, show_grid *g,
                      const fcp_part *part, const uint64_t *first_cell, uint32_t moved_to) {
    const fcp_run *runs = plan->runs + shape->first_run;
    uint32_t q_length = plan->pieces[part->q_piece].length, k_length = plan->pieces[part->k_piece].length;
    uint64_t full = 0, partial = 0, done = 0, given = 0;
    for (uint32_t i = 0; i < shape->runs; i++) {
        uint64_t area = extent(q_length, runs[i].row, 1) * extent(k_length, runs[i].col, runs[i].count);
        if (runs[i].cls == FCP_CELL_FULL) full += area;
        else partial += area;
    }
    uint64_t rest = shape->pairs > full ? (shape->pairs - full) * heads : 0;
    for (uint32_t i = 0; i < shape->runs; i++) {
        uint64_t row = first_cell[part->q_piece] + runs[i].row;
        uint64_t height = extent(q_length, runs[i].row, 1);
        for (uint32_t at = 0; at < runs[i].count;) { /* by groups of columns */
            uint64_t cell = first_cell[part->k_piece] + runs[i].col + at;
            uint64_t group = cell / g->col_group, next = (group + 1) * g->col_group;
            uint32_t count = (uint32_t)(next - cell < runs[i].count - at ? next - cell : runs[i].count - at);
            uint64_t area = height * extent(k_length, runs[i].col + at, count);
            at += count;
            if (runs[i].cls == FCP_CELL_FULL) {
                add_pairs(g, row / g->row_group, group, area * heads, moved_to);
            } else {
                done += area;
                uint64_t until = (uint64_t)((unsigned __int128)rest * done / partial);
                add_pairs(g, row / g->row_group, group, until - given, moved_to);
                given = until;
            }
        }
    }
}

/* Adds a part. It has a shape for each class of heads. */
static void add_part(const fcp_plan *plan, show_grid *g, const fcp_part *part, const uint64_t *first_cell,
                     uint32_t moved_to) {
    const uint32_t range = plan->blocks[plan->pieces[part->q_piece].block].heads;
    for (uint32_t c = 0; c < fcp_class_count(plan, range); c++)
        add_shape(plan, &plan->shapes[part->shape + c], plan->range_classes ? fcp_class_size(plan, range, c) : 1, g,
                  part, first_cell, moved_to);
}

static fcp_code fill_grids(const fcp_plan *plan, const show_scale *scale, arena *memory, show_model *out) {
    uint8_t *grid_of = ARENA_ZNEW(memory, uint8_t, plan->pieces_count + 1); /* 1 + the number of its grid; 0: none */
    uint64_t *first_cell = ARENA_ZNEW(memory, uint64_t, plan->pieces_count + 1);
    if (!grid_of || !first_cell) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < out->grid_count; i++) {
        fcp_code code =
            start_grid(plan, scale, &out->moves, memory, &out->grids[i], grid_of, first_cell, (uint8_t)(i + 1));
        if (code) return code;
    }
    for (uint64_t t = 0; t < plan->tiles_count; t++) {
        const fcp_tile *tile = &plan->tiles[t];
        const uint32_t rank = out->moves.tile_rank[t];
        for (uint32_t i = tile->first_part; i < tile->first_part + tile->parts; i++) {
            uint8_t grid = grid_of[plan->parts[i].q_piece];
            if (grid && grid == grid_of[plan->parts[i].k_piece])
                add_part(plan, &out->grids[grid - 1], &plan->parts[i], first_cell,
                         rank == plan->blocks[tile->q_block].home ? FCP_NONE : rank);
        }
    }
    return FCP_OK;
}

/* --- ranks and stages -------------------------------------------------------------------------------------------- */

/* How many stages a pass has: up to the last in which something is computed or sent. */
static uint32_t count_stages(const fcp_plan *plan, fcp_pass pass) {
    uint32_t stages = 0;
    for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
        const fcp_stream *s = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
        for (uint32_t i = s->first; i < s->first + s->count; i++)
            if (plan->instrs[i].op == FCP_OP_ATTEND && plan->instrs[i].stage >= stages)
                stages = plan->instrs[i].stage + 1;
    }
    for (uint32_t i = plan->round_starts[pass]; i < plan->round_starts[pass + 1]; i++) {
        const fcp_round *r = &plan->rounds[i];
        if ((r->kind == FCP_ROUND_INDEPENDENT || r->kind == FCP_ROUND_DEPENDENT) && r->stage >= stages)
            stages = r->stage + 1;
    }
    return stages;
}

static show_cell *cell_at(show_model *m, uint32_t rank, uint32_t stage) {
    return &m->cell[(size_t)(rank / m->ranks_a_row) * m->stage_cols + stage / m->stages_a_col];
}

static void add_attend(show_model *m, uint32_t rank, const fcp_instr *in, uint64_t *rank_stage) {
    const fcp_plan *plan = m->plan;
    show_stage *stage = &m->stage[in->stage];
    for (uint32_t v = in->a; v < in->a + in->b; v++) {
        const fcp_visit *visit = &plan->visits[v];
        uint64_t pairs = 0;
        for (uint32_t t = visit->first_tile; t < visit->first_tile + visit->tiles; t++) pairs += plan->tiles[t].pairs;
        stage->visits++;
        stage->again += !(visit->flags & FCP_VISIT_FIRST);
        stage->pairs += pairs;
        *rank_stage += pairs;
        m->ranks[rank].pairs += pairs;
        cell_at(m, rank, in->stage)->pairs += pairs;
        cell_at(m, rank, in->stage)->visits++;
    }
}

/* Adds the bytes that a rank sends and receives in one round to those of the rank and the stage, and the larger of
 * the two to the cell. */
static void add_launch(show_model *m, fcp_pass pass, uint32_t rank, const fcp_instr *in) {
    const fcp_plan *plan = m->plan;
    uint64_t bytes[2] = {0, 0};
    for (uint32_t i = in->a; i < in->a + in->b; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        uint64_t size = t->tokens * fcp_held_bytes(plan->problem, fcp_moved_holds(plan, t), t->cls, pass);
        if (t->cls == FCP_IN || t->cls == FCP_OUT) {
            if (pass != m->pass) continue;
            m->ranks[rank].reshuffled += size;
            if (t->dir == FCP_RECV) *(t->cls == FCP_IN ? &m->in_bytes : &m->out_bytes) += size;
            continue;
        }
        bytes[t->dir == FCP_RECV] += size;
    }
    if ((!bytes[0] && !bytes[1]) || in->stage >= m->pass_stages[pass]) return;
    m->stage[in->stage].bytes[pass] += bytes[1];
    if (pass != m->pass) return;
    m->ranks[rank].sent += bytes[0];
    m->ranks[rank].received += bytes[1];
    cell_at(m, rank, in->stage)->bytes += bytes[0] > bytes[1] ? bytes[0] : bytes[1];
}

/* Adds up the instructions of both passes. Work is counted in the pass that is drawn; the other has the same tiles. */
static void fill_streams(show_model *m) {
    const fcp_plan *plan = m->plan;
    for (fcp_pass pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t rank = 0; rank < plan->problem->ranks; rank++) {
            const fcp_stream *s = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
            uint64_t pairs = 0;
            uint32_t stage = 0; /* the stage that `pairs` is counted for */
            for (uint32_t i = s->first; i < s->first + s->count && pass == m->pass; i++) {
                const fcp_instr *in = &plan->instrs[i];
                if (in->op != FCP_OP_ATTEND || in->stage >= m->stages) continue;
                if (in->stage != stage) pairs = 0;
                stage = in->stage;
                add_attend(m, rank, in, &pairs);
                if (pairs > m->stage[in->stage].pairs_max) m->stage[in->stage].pairs_max = pairs;
            }
            s = fcp_stream_of(plan, pass, rank, FCP_COMM);
            for (uint32_t i = s->first; i < s->first + s->count; i++)
                if (plan->instrs[i].op == FCP_OP_LAUNCH) add_launch(m, pass, rank, &plan->instrs[i]);
        }
}

static void fill_rounds(show_model *m) {
    const fcp_plan *plan = m->plan;
    for (fcp_pass pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t i = plan->round_starts[pass]; i < plan->round_starts[pass + 1]; i++) {
            const fcp_round *r = &plan->rounds[i];
            if (r->kind == FCP_ROUND_INDEPENDENT) m->stage[r->stage].rounds[pass]++;
            else if (r->kind == FCP_ROUND_DEPENDENT) m->stage[r->stage].dependent[pass]++;
            else if (pass == m->pass) (*(r->kind == FCP_ROUND_IN ? &m->in_rounds : &m->out_rounds))++;
        }
}

typedef struct worker {
    uint64_t pairs;
    uint32_t rank;
} worker;

/* Heaviest first; equal ones in the order of their numbers. */
static int by_work(const void *a, const void *b) {
    const worker *x = a, *y = b;
    if (x->pairs != y->pairs) return x->pairs < y->pairs ? 1 : -1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* How many ranks share a row of the pipeline, so that at most `rows` rows are needed. If several share one, their
 * number is rounded up to whole nodes, unless a node has more than four times as many. */
static uint32_t ranks_a_row(const fcp_problem *p, uint32_t rows) {
    uint32_t group = (p->ranks + rows - 1) / rows;
    if (group <= 1) return 1;
    return p->gpus <= 4 * group ? (group + p->gpus - 1) / p->gpus * p->gpus : group;
}

static fcp_code fill_ranks(const fcp_plan *plan, const show_scale *scale, arena *memory, show_model *out) {
    uint32_t ranks = plan->problem->ranks;
    for (fcp_pass pass = 0; pass < FCP_PASSES; pass++) out->pass_stages[pass] = count_stages(plan, pass);
    out->stages = out->pass_stages[out->pass] ? out->pass_stages[out->pass] : 1;
    out->all_stages = out->stages;
    for (fcp_pass pass = 0; pass < FCP_PASSES; pass++)
        if (out->pass_stages[pass] > out->all_stages) out->all_stages = out->pass_stages[pass];
    out->ranks_a_row = ranks_a_row(plan->problem, scale->rank_rows);
    out->rank_rows = (ranks + out->ranks_a_row - 1) / out->ranks_a_row;
    out->stages_a_col = (out->stages + scale->stage_cols - 1) / scale->stage_cols;
    out->stage_cols = (out->stages + out->stages_a_col - 1) / out->stages_a_col;
    out->ranks = ARENA_ZNEW(memory, show_rank, ranks);
    out->by_work = ARENA_NEW(memory, uint32_t, ranks);
    out->stage = ARENA_ZNEW(memory, show_stage, out->all_stages);
    out->cell = ARENA_ZNEW(memory, show_cell, (size_t)out->rank_rows * out->stage_cols);
    worker *workers = ARENA_NEW(memory, worker, ranks);
    if (!out->ranks || !out->by_work || !out->stage || !out->cell || !workers) return FCP_E_NO_MEMORY;
    for (uint64_t b = 0; b < plan->blocks_count; b++) {
        out->ranks[plan->blocks[b].home].tokens += plan->blocks[b].tokens;
        out->ranks[plan->blocks[b].home].blocks++;
    }
    for (uint64_t t = 0; t < plan->tiles_count; t++) {
        const uint32_t home = plan->blocks[plan->tiles[t].q_block].home, rank = out->moves.tile_rank[t];
        if (rank == home) continue;
        out->ranks[home].gives += plan->tiles[t].pairs;
        out->ranks[rank].takes += plan->tiles[t].pairs;
    }
    fill_streams(out);
    fill_rounds(out);
    for (uint32_t r = 0; r < ranks; r++) workers[r] = (worker){out->ranks[r].pairs, r};
    qsort(workers, ranks, sizeof *workers, by_work);
    for (uint32_t r = 0; r < ranks; r++) out->by_work[r] = workers[r].rank;
    for (size_t i = 0; i < (size_t)out->rank_rows * out->stage_cols; i++) {
        if (out->cell[i].pairs > out->cell_pairs_max) out->cell_pairs_max = out->cell[i].pairs;
        if (out->cell[i].bytes > out->cell_bytes_max) out->cell_bytes_max = out->cell[i].bytes;
    }
    return FCP_OK;
}

/* --- the source -------------------------------------------------------------------------------------------------- */

/* Finds what follows `key` (such as "mask = ") on its line in the plan's source. The last such line counts, because the
 * section `plan` comes last. If there is no such line, *out stays as it is. */
static fcp_code find_line(const fcp_plan *plan, const char *key, arena *memory, const char **out) {
    const char *s = plan->source, *end = s + plan->source_count, *found = NULL, *found_end = NULL;
    size_t key_size = strlen(key);
    while (s < end) {
        const char *line = s, *stop = memchr(s, '\n', (size_t)(end - s));
        if (!stop) stop = end;
        s = stop + 1;
        while (line < stop && *line == ' ') line++;
        if ((size_t)(stop - line) <= key_size || memcmp(line, key, key_size) != 0) continue;
        found = line + key_size;
        found_end = stop;
    }
    if (!found) return FCP_OK;
    size_t size = (size_t)(found_end - found);
    bool more = size > 1 && found_end[-1] == ' ' && found_end[-2] == ','; /* a long list, broken into lines */
    char *made = ARENA_NEW(memory, char, size + 4);
    if (!made) return FCP_E_NO_MEMORY;
    memcpy(made, found, size);
    for (size_t i = 0, n; i < size; i += n ? n : 1) {
        n = show_utf8(made + i, size - i);
        if (!n) made[i] = '?'; /* no terminal escapes from a hostile file */
    }
    memcpy(made + size, "...", 4);
    if (!more) made[size] = 0;
    *out = made;
    return FCP_OK;
}

/* In a program with one mask the section `plan` may leave out its name. Then the name is taken from the mask's own
 * line, "mask NAME = ...". */
fcp_code show_mask_text(const fcp_plan *plan, arena *memory, const char **out) {
    const char *name = NULL;
    fcp_code code = find_line(plan, "mask = ", memory, &name);
    if (!code && !name) {
        code = find_line(plan, "mask ", memory, &name);
        if (!code && name && !(name = arena_copy(memory, name, strcspn(name, " (")))) code = FCP_E_NO_MEMORY;
    }
    *out = name ? name : "?";
    return code;
}

fcp_code show_model_make(const fcp_plan *plan, const show_scale *scale, arena *memory, show_model *out) {
    const fcp_problem *p = plan->problem;
    *out = (show_model){.plan = plan,
                        .pass = p->passes & 1u << FCP_FORWARD ? FCP_FORWARD : FCP_BACKWARD,
                        .pair_heads = p->mask_uses & MC_USES_H ? p->range_kv * p->range_sub : 1};
    fcp_code code = show_moves_find(plan, memory, &out->moves);
    if (!code) code = choose_sequences(plan, min_u32(scale->grids, SHOW_GRIDS), memory, out);
    if (!code) code = fill_grids(plan, scale, memory, out);
    if (!code) code = fill_ranks(plan, scale, memory, out);
    if (!code) code = show_mask_text(plan, memory, &out->mask);
    if (!code && plan->score_count) code = find_line(plan, "score = ", memory, &out->score);
    if (!code && plan->sink_count) code = find_line(plan, "sink = ", memory, &out->sink);
    return code;
}
