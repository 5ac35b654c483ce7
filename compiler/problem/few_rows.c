/* few_rows.c: finds blocks of which many readers need only a few rows, and divides them, so that only these rows travel
 * to all of them.
 *
 * Requires: a problem of one range of heads, with its tiles.
 * Gives: the stretches of tokens that new blocks are to be made of (cut_again.c makes them). A block that is divided
 *     becomes two: the rows that many read, and the rest. Nothing if all blocks stay whole.
 * Cost: O(tiles + parts + runs of the shapes); and for each block that may be divided, O(columns) for each of its
 *     tiles.
 *
 * Example: attention sinks. Every query sees the first 64 tokens and the 4,096 tokens before it, and blocks have 2,048
 * tokens. All blocks read block 0, but all except the next two read only one column of cells in it, which is 128
 * tokens. On 256 ranks, block 0 is sent 255 times. Once it is divided, 128 tokens are sent 255 times, and the other
 * 1,920 only to two ranks.
 *
 * How a block is divided:
 * 1. For each column of cells in the block, count the blocks that read it.
 * 2. Sort the columns, the most read first. So rows that many read come together, wherever they lie: a sink at the
 *    front, a question in the middle, or marked tokens here and there.
 * 3. Cut the sorted list at the one place that saves most token transfers: a block's tokens times the ranks that
 *    receive it. Homes are not known yet. So readers are assumed to be neighbours that share ranks, with as many blocks
 *    on each rank as on the mean rank. The block's own rows do not count as readers, because they are at home.
 *
 * When a block is divided (problem_tuning.h has the limits):
 * - A division costs one more block, and a transfer in a round of its own. So it must save a good part of the block's
 *   transfers.
 * - If many blocks would be divided for a small gain, none is: in images and films many ranks read each block in part,
 *   and all blocks would become small.
 * - The queries of the block are divided along with its keys. If the strategy may place the two new blocks on different
 *   ranks, both fetch the keys that both read; these must be fewer than what is saved.
 */
#include "compiler/problem/problem.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/problem/problem_tuning.h"

/* Columns `first` to `end` - 1 of a piece's cells, or of a block's. */
typedef struct columns {
    uint32_t first, end;
} columns;

/* Entry i of a table that is two tables in one. tokens, read_by and place are about column i of a block's cells. at,
 * first_read and last_read are about place i of the list of these columns sorted by how many tiles read them. */
typedef struct column {
    uint32_t tokens, read_by, place; /* column: its tokens; how many tiles read it; its place */
    uint32_t at;                     /* place: its column */
    uint32_t first_read, last_read;  /* place: for how many tiles it is the first that they read, and the last */
} column;

typedef struct reading {
    planning *x;
    const problem *p;
    uint32_t places;        /* the ranks among which the batch is divided, or groups of them */
    bool apart;             /* the strategy may place the two blocks apart */
    columns *range;         /* the columns that a shape reads: range[range_start[shape]] and so on */
    uint32_t *range_start;  /* shapes + 1 */
    uint32_t *width;        /* per shape: how many columns these are */
    uint32_t *column_start; /* per piece: the number of its first column among all columns */
    uint32_t *readers;      /* per block: others that read it */
    uint32_t *tile_start, *tile; /* tiles by KV block, of those that are looked at */
    uint8_t *many;          /* per column: many read it */
    uint64_t travel, saved; /* tokens that travel, over all ranks: if no block is divided; how many fewer if some are */
    uint32_t *pieces;       /* per block: 1, and those that a division adds; 0: it stays whole */
    column *column;         /* of the block at hand */
    uint64_t *keys;         /* room to sort its columns */
} reading;

static uint32_t columns_of(uint32_t tokens) { return (tokens + FCP_CELL - 1) / FCP_CELL; }

/* How many columns a block has. */
static uint32_t block_width(const reading *g, uint32_t b) {
    const fcp_block *of = &g->p->blocks[b];
    return g->column_start[of->first_piece + of->pieces] - g->column_start[of->first_piece];
}

/* Lists in `out` the ranges of columns that a shape reads, in all classes of heads together; returns how many ranges.
 * marks: memory of zeros, one for each column; it is zeros again afterwards. */
static uint32_t add_ranges(const problem *p, uint32_t shape, uint8_t *marks, columns *out) {
    const fcp_shape_rec *of = &p->shapes[shape];
    const uint32_t width = columns_of(of->k_length), set = p->sets ? p->sets[shape].set : 1;
    uint32_t count = 0;
    for (uint32_t i = 0; i < set; i++)
        for (const fcp_run *r = p->runs + of[i].first_run, *end = r + of[i].runs; r < end; r++) {
            if (r->count == width) { /* a row of cells reads all */
                memset(marks, 0, width);
                *out = (columns){0, width};
                return 1;
            }
            memset(marks + r->col, 1, r->count);
        }
    for (uint32_t at = 0; at < width; at++) {
        if (!marks[at]) continue;
        if (!count || out[count - 1].end != at) out[count++] = (columns){at, at};
        out[count - 1].end = at + 1;
        marks[at] = 0;
    }
    return count;
}

static fcp_code find_ranges(reading *g) {
    const problem *p = g->p;
    uint8_t *marks = ARENA_ZNEW(&g->x->scratch, uint8_t, columns_of(p->max_block[FCP_KEYS]) + (size_t)1);
    columns *some = ARENA_NEW(&g->x->scratch, columns, columns_of(p->max_block[FCP_KEYS]) / 2 + (size_t)1);
    size_t room = 0, count = 0;
    g->range_start = ARENA_NEW(&g->x->scratch, uint32_t, p->shape_count + (size_t)1);
    g->width = ARENA_ZNEW(&g->x->scratch, uint32_t, p->shape_count + (size_t)1);
    if (!marks || !some || !g->range_start || !g->width) return FCP_E_NO_MEMORY;
    for (uint32_t s = 0; s < p->shape_count; s++) {
        g->range_start[s] = (uint32_t)count;
        if (planning_stopped_at(g->x, s)) return FCP_E_INTERRUPTED;
        if (p->sets && !p->sets[s].set) continue;
        const uint32_t more = add_ranges(p, s, marks, some);
        for (uint32_t i = 0; i < more; i++) {
            g->range = arena_grow(&g->x->scratch, g->range, count, &room, sizeof *g->range);
            if (!g->range) return FCP_E_NO_MEMORY;
            g->range[count++] = some[i];
            g->width[s] += some[i].end - some[i].first;
        }
    }
    g->range_start[p->shape_count] = (uint32_t)count;
    return FCP_OK;
}

/* Numbers the columns of all pieces. */
static fcp_code number_columns(reading *g) {
    const problem *p = g->p;
    arena *a = &g->x->scratch;
    uint32_t count = 0, most = 0;
    g->column_start = ARENA_NEW(a, uint32_t, p->piece_count + (size_t)1);
    if (!g->column_start) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < p->piece_count; i++) {
        g->column_start[i] = count;
        count += columns_of(p->pieces[i].length);
    }
    g->column_start[p->piece_count] = count;
    for (uint32_t b = 0; b < p->block_count; b++)
        if (block_width(g, b) > most) most = block_width(g, b);
    g->many = ARENA_ZNEW(a, uint8_t, count + (size_t)1);
    g->column = ARENA_NEW(a, column, most + (size_t)1);
    g->keys = ARENA_NEW(a, uint64_t, 2 * (size_t)most + 2);
    return g->many && g->column && g->keys ? FCP_OK : FCP_E_NO_MEMORY;
}

/* Estimates on how many ranks so many readers of a block are, if readers are neighbours and share ranks. */
static uint32_t ranks_of(const reading *g, uint32_t readers) {
    const uint64_t ranks = ((uint64_t)readers * g->places + g->p->block_count - 1) / g->p->block_count;
    return ranks < g->places ? (uint32_t)ranks : g->places - 1;
}

/* May a division of block b gain enough? `whole` of its readers read all of it, and would receive both new blocks. */
static bool may_gain(const reading *g, uint32_t b, uint32_t whole) {
    const uint64_t before = ranks_of(g, g->readers[b]), after = ranks_of(g, whole);
    return g->readers[b] >= DIVISION_READERS && DIVISION_SAVES * after <= (DIVISION_SAVES - 1) * before &&
           problem_holds(g->p, b, FCP_KEYS);
}

/* Counts the readers of each block, and lists the tiles of the blocks whose division may gain. *out_any: are there
 * any? */
static fcp_code find_readers(reading *g, bool *out_any) {
    const problem *p = g->p;
    arena *a = &g->x->scratch;
    uint32_t *whole = ARENA_ZNEW(a, uint32_t, p->block_count + (size_t)1);
    uint32_t *width = ARENA_NEW(a, uint32_t, p->block_count + (size_t)1);
    bool *may = ARENA_NEW(a, bool, p->block_count + (size_t)1); /* a division may gain */
    g->readers = ARENA_ZNEW(a, uint32_t, p->block_count + (size_t)1);
    g->pieces = ARENA_ZNEW(a, uint32_t, p->block_count + (size_t)1);
    if (!whole || !width || !may || !g->readers || !g->pieces) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) width[b] = block_width(g, b);
    for (uint32_t q = 0; q < p->block_count; q++) {
        if (planning_stopped(g->x)) return FCP_E_INTERRUPTED;
        for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++) {
            const uint32_t k = p->tile_k[t];
            uint32_t read = 0;
            for (uint32_t i = p->tile_part[t]; i < p->tile_part[t + 1]; i++) read += g->width[p->parts[i].shape];
            g->readers[k] += k != q; /* its own rows are at home */
            whole[k] += k != q && read >= width[k];
        }
    }
    *out_any = false;
    for (uint32_t b = 0; b < p->block_count; b++) *out_any |= may[b] = may_gain(g, b, whole[b]);
    if (!*out_any) return FCP_OK;
    uint32_t *key = ARENA_NEW(a, uint32_t, p->tile_count + (size_t)1);
    g->tile_start = ARENA_NEW(a, uint32_t, p->block_count + (size_t)2);
    g->tile = ARENA_NEW(a, uint32_t, p->tile_count + (size_t)1);
    if (!key || !g->tile_start || !g->tile) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        const uint32_t k = p->tile_k[t];
        key[t] = p->tile_q[t] != k && may[k] ? k : FCP_NONE;
    }
    return group_by(key, sizeof *key, p->tile_count, p->block_count, g->tile_start, g->tile, g->x->stop)
               ? FCP_OK : FCP_E_INTERRUPTED;
}

/* --- one block ---------------------------------------------------------------------------------------------------- */

/* Range g->range[i], which a part reads, as columns of the part's KV block, whose first column is `base`. */
static columns range_of(const reading *g, const fcp_part *part, uint32_t i, uint32_t base) {
    const uint32_t at = g->column_start[part->k_piece] - base;
    return (columns){at + g->range[i].first, at + g->range[i].end};
}

/* Counts how many tiles read each column of a block. */
static void count_readers(reading *g, uint32_t b, uint32_t base, uint32_t width) {
    const problem *p = g->p;
    memset(g->column, 0, (width + (size_t)1) * sizeof *g->column);
    for (uint32_t i = g->tile_start[b]; i < g->tile_start[b + 1]; i++) {
        const uint32_t t = g->tile[i];
        for (uint32_t at = p->tile_part[t]; at < p->tile_part[t + 1]; at++) {
            const uint32_t shape = p->parts[at].shape;
            for (uint32_t k = g->range_start[shape]; k < g->range_start[shape + 1]; k++) {
                const columns c = range_of(g, &p->parts[at], k, base);
                g->column[c.first].read_by++;
                g->column[c.end].read_by--; /* wraps; the sums below are right again */
            }
        }
    }
    for (uint32_t c = 1; c < width; c++) g->column[c].read_by += g->column[c - 1].read_by;
}

static void sort_columns(reading *g, uint32_t width) {
    for (uint32_t c = 0; c < width; c++) g->keys[c] = (uint64_t)(UINT32_MAX - g->column[c].read_by) << 32 | c;
    sort_u64(g->keys, g->keys + width, width);
    for (uint32_t i = 0; i < width; i++) {
        g->column[i].at = (uint32_t)g->keys[i];
        g->column[g->column[i].at].place = i;
    }
}

/* The first and the last of the columns that a tile reads, as places in the sorted order. */
static columns places_of(const reading *g, uint32_t t, uint32_t base) {
    const problem *p = g->p;
    columns found = {FCP_NONE, 0};
    for (uint32_t at = p->tile_part[t]; at < p->tile_part[t + 1]; at++) {
        const uint32_t shape = p->parts[at].shape;
        for (uint32_t k = g->range_start[shape]; k < g->range_start[shape + 1]; k++) {
            const columns c = range_of(g, &p->parts[at], k, base);
            for (uint32_t i = c.first; i < c.end; i++) {
                if (g->column[i].place < found.first) found.first = g->column[i].place;
                if (g->column[i].place > found.end) found.end = g->column[i].place;
            }
        }
    }
    return found;
}

/* Counts for how many tiles each place is the first, and for how many it is the last, that they read. */
static void count_places(reading *g, uint32_t b, uint32_t base) {
    const problem *p = g->p;
    uint32_t shape = FCP_NONE, piece = FCP_NONE;
    columns at = {0, 0};
    for (uint32_t i = g->tile_start[b]; i < g->tile_start[b + 1]; i++) {
        const uint32_t t = g->tile[i];
        const fcp_part *part = &p->parts[p->tile_part[t]];
        const bool single = p->tile_part[t + 1] == p->tile_part[t] + 1;
        if (!single || part->shape != shape || part->k_piece != piece) at = places_of(g, t, base);
        shape = single ? part->shape : FCP_NONE;
        piece = part->k_piece;
        g->column[at.first].first_read++;
        g->column[at.end].last_read++;
    }
}

static void measure_columns(reading *g, const fcp_block *of) {
    column *out = g->column;
    for (uint32_t i = of->first_piece; i < of->first_piece + of->pieces; i++)
        for (uint32_t left = g->p->pieces[i].length; left; left -= out++->tokens)
            out->tokens = left < FCP_CELL ? left : FCP_CELL;
}

/* Chooses how many of the sorted columns become a block of their own; 0: none. The block has `all` tokens. *out_saved:
 * how many fewer tokens travel then, over all ranks. */
static uint32_t best_place(const reading *g, uint64_t all, uint32_t width, uint32_t readers,
                           uint64_t *out_saved) {
    const uint64_t whole = ranks_of(g, readers) * all;
    uint64_t best = whole - whole / DIVISION_SAVES, tokens = 0; /* tokens: of the columns before */
    uint32_t found = 0, few = readers, many = 0; /* that read a later column, and an earlier one */
    for (uint32_t i = 0; i < width; i++) {
        const uint64_t after = ranks_of(g, many) * tokens + ranks_of(g, few) * (all - tokens);
        if (i && g->column[g->column[i].at].read_by < g->column[g->column[i - 1].at].read_by && after <= best) {
            if (after < best || !found) found = i;
            best = after;
        }
        tokens += g->column[g->column[i].at].tokens;
        few -= g->column[i].last_read;
        many += g->column[i].first_read;
    }
    *out_saved = whole - best;
    return found;
}

/* Counts the keys of other blocks that both the rows that many read and the other rows read. If the two new blocks lie
 * apart, these keys travel once more; but keys that all ranks receive anyway do not count. */
static uint64_t read_twice(const reading *g, uint32_t b) {
    const problem *p = g->p;
    uint64_t sum = 0;
    for (uint32_t t = p->tile_start[b]; t < p->tile_start[b + 1]; t++) {
        const uint32_t k = p->tile_k[t];
        bool by[2] = {false, false}; /* by rows that few read, and by those that many read */
        uint64_t read = 0;
        if (k == b || g->readers[k] >= g->places) continue;
        for (uint32_t at = p->tile_part[t]; at < p->tile_part[t + 1]; at++) {
            const uint32_t shape = p->parts[at].shape, row = g->column_start[p->parts[at].q_piece];
            read += (uint64_t)g->width[shape] * FCP_CELL;
            const fcp_shape_rec *first = &p->shapes[shape], *last = first + (p->sets ? p->sets[shape].set : 1);
            for (const fcp_shape_rec *of = first; of < last; of++)
                for (uint32_t i = of->first_run; i < of->first_run + of->runs; i++)
                    by[g->many[row + p->runs[i].row]] = true;
        }
        if (by[0] && by[1]) sum += read;
    }
    return sum;
}

/* Decides whether a block is divided: marks in g->many the columns that become a block of their own. */
static void judge_block(reading *g, uint32_t b) {
    const fcp_block *of = &g->p->blocks[b];
    const uint32_t base = g->column_start[of->first_piece], width = block_width(g, b);
    if (width < 2) return;
    count_readers(g, b, base, width);
    measure_columns(g, of);
    sort_columns(g, width);
    count_places(g, b, base);
    uint64_t saved = 0;
    const uint32_t many = best_place(g, of->tokens, width, g->readers[b], &saved);
    for (uint32_t i = 0; i < many; i++) g->many[base + g->column[i].at] = 1;
    const bool twice = g->apart && problem_holds(g->p, b, FCP_QUERIES);
    if (!many || saved < DIVISION_LEAST || (twice && read_twice(g, b) >= saved)) {
        memset(g->many + base, 0, width);
        return;
    }
    g->saved += saved;
    g->pieces[b] = 1 - of->pieces; /* may wrap below 0; the sum below is at least 1 */
    for (uint32_t i = of->first_piece; i < of->first_piece + of->pieces; i++)
        for (uint32_t c = g->column_start[i]; c < g->column_start[i + 1]; c++)
            g->pieces[b] += c == g->column_start[i] || g->many[c] != g->many[c - 1];
}

/* --- all blocks --------------------------------------------------------------------------------------------------- */

/* The largest number of parts that there can be if blocks that would have more than `most` pieces stay whole. */
static uint64_t parts_after(const reading *g, uint32_t most) {
    const problem *p = g->p;
    uint64_t sum = 0;
    for (uint32_t t = 0; t < p->tile_count; t++) {
        const uint32_t q = g->pieces[p->tile_q[t]], k = g->pieces[p->tile_k[t]];
        sum += (p->tile_part[t + 1] - p->tile_part[t]) * (uint64_t)(q && q <= most ? q : 1) * (k && k <= most ? k : 1);
    }
    return sum;
}

/* Chooses the limit to the pieces of a block, so that there are not too many parts. */
static uint32_t most_pieces(const reading *g) {
    uint64_t room = MORE_PARTS * (uint64_t)g->p->part_count;
    uint32_t most = DIVISION_PIECES;
    if (room < FEW_PARTS) room = FEW_PARTS;
    while (most > 1 && parts_after(g, most) > room) most--;
    return most;
}

/* Adds the stretches of those columns of a block that many read (many is 1), or of the others (0). */
static void add_stretches(const reading *g, uint32_t b, uint8_t many, problem_stretch *out, size_t *count) {
    const fcp_block *of = &g->p->blocks[b];
    bool opens = true;
    for (uint32_t i = of->first_piece; i < of->first_piece + of->pieces; i++) {
        const fcp_piece *piece = &g->p->pieces[i];
        const uint32_t from = g->column_start[i], until = g->column_start[i + 1];
        for (uint32_t c = from, end; c < until; c = end) {
            for (end = c + 1; end < until && g->many[end] == g->many[c]; end++) {}
            if (g->many[c] != many) continue;
            const uint32_t stop = end == until ? piece->length : (end - from) * FCP_CELL;
            out[(*count)++] = (problem_stretch){b, piece->offset + (c - from) * FCP_CELL, piece->offset + stop, opens};
            opens = false;
        }
    }
}

/* Lists the stretches of all new blocks; *out_count is 0 if no block is divided. */
static fcp_code list_stretches(reading *g, problem_stretch **out, size_t *out_count) {
    const problem *p = g->p;
    const uint32_t most = most_pieces(g);
    size_t room = 0, divided = 0;
    for (uint32_t b = 0; b < p->block_count; b++) {
        if (g->pieces[b] > most) g->pieces[b] = 0;
        if (problem_holds(p, b, FCP_KEYS)) g->travel += ranks_of(g, g->readers[b]) * (uint64_t)p->blocks[b].tokens;
        room += g->pieces[b] + p->blocks[b].pieces;
        divided += g->pieces[b] != 0;
    }
    const bool much = g->saved >= g->travel - g->travel / TRAVEL_LEFT;
    if (!divided || (divided > p->block_count / DIVIDED_PART && !much)) return FCP_OK;
    problem_stretch *list = *out = ARENA_NEW(&g->x->scratch, problem_stretch, room);
    if (!list) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; b < p->block_count; b++) {
        if (!g->pieces[b]) list[(*out_count)++] = (problem_stretch){b, 0, p->blocks[b].tokens, true};
        else add_stretches(g, b, 1, list, out_count), add_stretches(g, b, 0, list, out_count);
    }
    return FCP_OK;
}

fcp_code problem_few_rows(planning *x, bool apart, problem_stretch **out, size_t *out_count) {
    const problem *p = x->problem;
    reading g = {.x = x, .p = p, .places = program_places(x->program), .apart = apart};
    bool any = false;
    *out_count = 0;
    if (g.places < 2 || p->range_blocks != p->block_count) return FCP_OK;
    fcp_code code = find_ranges(&g);
    if (!code) code = number_columns(&g);
    if (!code) code = find_readers(&g, &any);
    if (code || !any) return code;
    for (uint32_t b = 0; b < p->block_count; b++) {
        if (planning_stopped_at(x, b)) return FCP_E_INTERRUPTED;
        if (g.tile_start[b] < g.tile_start[b + 1]) judge_block(&g, b);
    }
    return list_stretches(&g, out, out_count);
}
