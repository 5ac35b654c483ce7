/* whole.c: counts rectangles of cells without splitting them down to their cells.
 *
 * Requires, units: as in cells.c; a MIXED rectangle, and its program specialised to it.
 * Gives: the counts of its cells, if its program is of one of these kinds:
 *      - It depends on q alone, as `mark[q] != 0`, or on k alone: one column of cells, or one row, stands for all.
 *      - It is the `and` or `or` of one that depends on q alone and one that depends on k alone, as `mark[q] != 0 or
 *        mark[k] != 0`: what a cell is follows from its row and its column.
 *      - It is one bound on q - k, as `q - k < 4096`: a row of cells is FULL up to some column, and NONE from another
 *        one on.
 *      - It is a bound on q for every k, as `q < e[k]`, or on k for every q: a column of cells is FULL as far as all of
 *        its 128 bounds reach, and NONE beyond the last of them. Also the `and` of such a bound and one on q - k.
 *      If the array that such a bound reads has runs, as `last` of `q <= last[k]` in a tree of rollouts, the positions
 *      of a run are counted together.
 * Cost: O(nodes * positions of the sides + cells of one side + cells where two bounds meet); runs in place of positions
 *      where an array has them.
 */
#include "compiler/cells/cells_parts.h"

typedef unsigned __int128 wide_count;

enum { STOP_CELLS = 255 }; /* after so many, and one, `stop` is looked at again */

/* --- what nodes depend on ----------------------------------------------------------------------------------------- */

/* Finds out which dimensions each node of a program depends on. False: there is an operation that lanes.h does not
 * know. */
static bool find_dependence(cells *c, const box_program *p) {
    for (uint32_t i = 0; i < p->count; i++) {
        if (p->nodes[i].op >= MC_BANDS && p->nodes[i].op < BOX_LINEAR) return false;
        c->depends[i] = box_depends(&p->nodes[i], c->depends);
    }
    return true;
}

/* --- strips ------------------------------------------------------------------------------------------------------- */

/* A line of positions along one dimension, and the cells that it is cut into. */
typedef struct strip {
    uint64_t full, partial, count; /* cells */
    uint64_t allowed;              /* positions that are allowed */
} strip;

static uint64_t cells_in(uint64_t positions) { return (positions + FCP_CELL - 1) / FCP_CELL; }

/* Adds the cells of box b, which is one position wide in all dimensions but d. */
static fcp_code count_strip(cells *c, const box *b, int d, const box_program *p, strip *out) {
    const uint64_t side = box_side(b, d), cell_count = cells_in(side);
    if (cells_stopped(c)) return FCP_E_INTERRUPTED;
    stack_mark mark = stack_here(&c->stack);
    box_class cls;
    fcp_code code = cells_classify(c, b, &p, &cls);
    if (code == FCP_OK && cls == BOX_FULL) {
        out->full += cell_count;
        out->allowed += side;
    } else if (code == FCP_OK && cls == BOX_MIXED && cell_count == 1) {
        uint64_t allowed = 0;
        const int64_t *v = NULL;
        if (!lanes_plan(c->lanes, p, p->root)) code = FCP_E_NO_MEMORY;
        else if (!(v = lanes_run(c->lanes, d, b->lo[d], (uint32_t)side, b->lo))) code = FCP_E_INTERNAL;
        for (uint64_t i = 0; v && i < side; i++) allowed += (uint64_t)v[i];
        c->stats.rows++;
        c->stats.work += WORK_ROW + WORK_ROW_NODE * p->count;
        out->full += allowed == side;
        out->partial += allowed > 0 && allowed < side;
        out->allowed += allowed;
    } else if (code == FCP_OK && cls == BOX_MIXED) {
        const int64_t middle = b->lo[d] + (int64_t)(cells_split(b, p, d) * FCP_CELL);
        for (int i = 0; i < 2 && code == FCP_OK; i++) {
            const box part = cells_side(b, d, middle, i);
            code = count_strip(c, &part, d, p, out);
        }
    }
    stack_back(&c->stack, mark);
    return code;
}

/* The strip of one node of a program, which depends on dimension d alone. */
static fcp_code node_strip(cells *c, const box *b, int d, const box_program *p, uint32_t root, strip *out) {
    box line = *b;
    for (int i = 0; i < BOX_DIMS; i++)
        if (i != d) line.hi[i] = line.lo[i] + 1;
    *out = (strip){.count = cells_in(box_side(b, d))};
    stack_mark mark = stack_here(&c->stack);
    box_program *part = stack_take(&c->stack, box_program_size(p->count));
    if (!part) return FCP_E_NO_MEMORY;
    box_part(p, root, c->numbers, part);
    fcp_code code = count_strip(c, &line, d, part, out);
    stack_back(&c->stack, mark);
    return code;
}

static fcp_code add_product(uint64_t a, uint64_t b, uint64_t *sum) {
    uint64_t product;
    bool bad = __builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(*sum, product, sum);
    return bad ? FCP_E_PLAN_SIZE : FCP_OK;
}

static fcp_code count_one_dimension(cells *c, const box *b, int d, const box_program *p, uint64_t out[3]) {
    strip s;
    const int other = BOX_K - d;
    fcp_code code = node_strip(c, b, d, p, p->root, &s);
    const uint64_t across = cells_in(box_side(b, other));
    out[0] += s.full * across;
    out[1] += s.partial * across;
    return code == FCP_OK ? add_product(s.allowed, box_side(b, other) * box_side(b, BOX_H), &out[2]) : code;
}

static fcp_code count_apart(cells *c, const box *b, const box_program *p, uint32_t on_q, uint32_t on_k,
                            uint64_t out[3]) {
    strip q, k;
    fcp_code code = node_strip(c, b, BOX_Q, p, on_q, &q);
    if (code == FCP_OK) code = node_strip(c, b, BOX_K, p, on_k, &k);
    if (code != FCP_OK) return code;
    const uint64_t heads = box_side(b, BOX_H), width = box_side(b, BOX_K);
    if (p->nodes[p->root].op == MC_AND) {
        out[0] += q.full * k.full;
        out[1] += (q.full + q.partial) * (k.full + k.partial) - q.full * k.full;
        return add_product(q.allowed * k.allowed, heads, &out[2]);
    }
    const uint64_t q_none = q.count - q.full - q.partial, k_none = k.count - k.full - k.partial;
    const uint64_t full = q.full * k.count + (q.count - q.full) * k.full;
    out[0] += full;
    out[1] += q.count * k.count - full - q_none * k_none;
    return add_product(q.allowed * width + (box_side(b, BOX_Q) - q.allowed) * k.allowed, heads, &out[2]);
}

/* --- bounds ------------------------------------------------------------------------------------------------------- */

/* A bound on the position in dimension `dim`, for every position of the other dimension. */
typedef struct bound {
    uint32_t less, more; /* allowed where value(more) - value(less) - strict >= 0 */
    bool strict;
    bool up; /* the difference grows with the position, so that the last positions are allowed; else the first ones */
    int dim;
} bound;

static bool is_comparison(const box_node *x) { return x->op == MC_LT || x->op == MC_LE; }

/* Finds out whether a node is a multiple of the position in dimension d, plus a part that does not depend on d. If so,
 * *out is the factor. Example: q + doc[k] has the factor 1 for d = BOX_Q. */
static bool find_slope(const cells *c, const box_program *p, uint32_t i, int d, int64_t *out) {
    const box_node *x = &p->nodes[i];
    int64_t u, v;
    *out = 0;
    if (!(c->depends[i] >> d & 1)) return true;
    if (x->op == BOX_LINEAR) {
        *out = x->f.x[d];
        return true;
    }
    if (!(x->flags & BOX_SAFE)) return false;
    if (x->op == MC_ADD || x->op == MC_SUB) {
        if (!find_slope(c, p, x->a, d, &u) || !find_slope(c, p, x->b, d, &v)) return false;
        return !(x->op == MC_ADD ? __builtin_add_overflow(u, v, out) : __builtin_sub_overflow(u, v, out));
    }
    return false;
}

/* Is node i a bound? Its sides must be small enough that their difference does not overflow. c->values must be those of
 * the box. */
static bool find_bound(const cells *c, const box_program *p, uint32_t i, bound *out) {
    const box_node *x = &p->nodes[i];
    if (!is_comparison(x)) return false;
    const box_value *u = &c->values[x->a], *v = &c->values[x->b];
    const int64_t far = (int64_t)1 << 60;
    if (u->lo < -far || u->hi > far || v->lo < -far || v->hi > far) return false;
    for (int d = 0; d < 2; d++) {
        int64_t less, more;
        if (!find_slope(c, p, x->a, d, &less) || !find_slope(c, p, x->b, d, &more)) continue;
        int64_t s;
        if (__builtin_sub_overflow(more, less, &s) || (s != 1 && s != -1)) continue;
        *out = (bound){.less = x->a, .more = x->b, .strict = x->op == MC_LT, .up = s > 0, .dim = d};
        return true;
    }
    return false;
}

static uint64_t clamp_to(int64_t x, uint64_t most) { return x < 0 ? 0 : (uint64_t)x < most ? (uint64_t)x : most; }

/* For each of `count` positions of the other dimension, writes how many positions of the bound's dimension are allowed.
 * False: lanes.h does not know an operation, or *code says that memory ran out. */
static bool bound_lane(cells *c, const box *b, const box_program *p, const bound *x, int64_t from, uint32_t count,
                       int64_t *out, fcp_code *code) {
    const int along = BOX_K - x->dim;
    for (int i = 0; i < 2; i++) {
        if (!lanes_plan(c->lanes, p, i ? x->more : x->less)) return *code = FCP_E_NO_MEMORY, false;
        const int64_t *v = lanes_run(c->lanes, along, from, count, b->lo);
        if (!v) return false;
        if (i) for (uint32_t j = 0; j < count; j++) out[j] = v[j] - out[j];
        else for (uint32_t j = 0; j < count; j++) out[j] = v[j];
    }
    /* out[j] is now the difference at the first position; if it goes up, positions from -out[j] on are allowed */
    const int64_t side = (int64_t)box_side(b, x->dim), add = (x->up ? side : 1) - x->strict;
    for (uint32_t j = 0; j < count; j++) {
        int64_t allowed = out[j] + add;
        allowed = allowed < 0 ? 0 : allowed;
        out[j] = allowed > side ? side : allowed;
    }
    return true;
}

/* The lines that a bound allows equally many positions, if they follow from an array's runs. Example: of q <= last[k]
 * each rollout of a tree has one. */
typedef struct bound_runs {
    const box_array *a;
    uint64_t first; /* the element that belongs to the first line of the box */
    int64_t add;    /* a line whose element is e allows sign * e + add positions, */
    int64_t sign;
    int64_t side; /* but not less than 0, nor more than this */
} bound_runs;

/* Does one side of the bound read an array along its lines, which has runs, while the other depends on the bound's
 * dimension alone? c->values are those of the box. */
static bool find_runs(const cells *c, const box *b, const box_program *p, const bound *x, bound_runs *out) {
    const int along = BOX_K - x->dim;
    const box_node *less = &p->nodes[x->less], *more = &p->nodes[x->more];
    const box_node *load = less->op == MC_LOAD ? less : more, *line = less->op == MC_LOAD ? more : less;
    if (load->op != MC_LOAD || line->op != BOX_LINEAR) return false;
    const box_node *index = &p->nodes[load->a];
    const form *i = &index->f, *f = &line->f;
    if (index->op != BOX_LINEAR || i->x[along] != 1 || i->x[x->dim] || i->x[BOX_H] || f->x[along] || f->x[BOX_H])
        return false;
    uint64_t last;
    const box_array *a = &p->arrays[load->f.c];
    const int64_t ends[2] = {form_at(i, b->lo[BOX_Q], b->lo[BOX_K], 0), c->values[load->a].hi};
    const bool placed = mc_place(&a->array, ends[0], 0, 0, &out->first) && mc_place(&a->array, ends[1], 0, 0, &last);
    if (!a->run_count || !placed || out->first < a->from || last >= a->to) return false;
    out->a = a;
    out->side = (int64_t)box_side(b, x->dim);
    out->sign = load == more ? 1 : -1;
    out->add = (x->up ? out->side : 1) - x->strict - out->sign * form_at(f, b->lo[BOX_Q], b->lo[BOX_K], 0);
    return true;
}

/* Classifies the cells along a strip of 128 lines with `side` positions each. Every line allows between `least` and
 * `most` positions, which are its first ones, or with `up` its last ones. Cells [out[0], out[1]) of the strip are then
 * FULL, and all cells outside [out[2], out[3]) are NONE. Example: 1000 positions, of which each line allows the first
 * 300 to 400: cells 0 and 1 are FULL, and those from cell 4 on are NONE. */
static void bound_cells(uint64_t side, bool up, uint64_t least, uint64_t most, uint64_t out[4]) {
    const uint64_t all = cells_in(side);
    if (up) {
        out[0] = cells_in(side - least), out[1] = all;
        out[2] = most ? (side - most) / FCP_CELL : all, out[3] = all;
    } else {
        out[0] = 0, out[1] = least == side ? all : least / FCP_CELL;
        out[2] = 0, out[3] = cells_in(most);
    }
}

static void least_most(const int64_t *v, uint32_t count, uint64_t *least, uint64_t *most, uint64_t *sum) {
    int64_t lo = v[0], hi = v[0], all = 0;
    for (uint32_t j = 0; j < count; j++) {
        lo = v[j] < lo ? v[j] : lo;
        hi = v[j] > hi ? v[j] : hi;
        all += v[j];
    }
    *least = (uint64_t)lo;
    *most = (uint64_t)hi;
    *sum = (uint64_t)all;
}

/* Lines [from, to) of a column that allow equally many positions. */
typedef struct like_lines {
    uint32_t from, to;
    int64_t allowed;
} like_lines;

/* Finds what lines [from, from + count) of the box allow: least, most, sum, and in out[] which lines are alike. Returns
 * the number of records in it. */
static uint32_t lines_of_runs(const bound_runs *r, uint64_t from, uint32_t count, like_lines out[LANES],
                              uint64_t *least, uint64_t *most, uint64_t *sum) {
    int64_t lo = r->side, hi = 0;
    uint64_t all = 0, stop;
    uint32_t n = 0;
    const array_run *run = box_array_run(r->a, r->first + from, &stop);
    for (uint32_t j = 0, next; j < count; j = next) {
        const uint64_t at = r->first + from + j;
        stop = run + 1 < r->a->runs + r->a->run_count ? run[1].start : r->a->to;
        next = run->s ? j + 1 : stop - at < count - j ? j + (uint32_t)(stop - at) : count;
        int64_t v = r->sign * run_at(run, at) + r->add;
        v = v < 0 ? 0 : v < r->side ? v : r->side;
        lo = v < lo ? v : lo;
        hi = v > hi ? v : hi;
        all += (uint64_t)v * (next - j);
        out[n++] = (like_lines){j, next, v};
        run += next - j == stop - at;
    }
    *least = (uint64_t)lo;
    *most = (uint64_t)hi;
    *sum = all;
    return n;
}

/* Counts one column of cells under one bound, whose lines allow at least `least` positions, at most `most`, and `sum`
 * together. */
static fcp_code column_of_bound(const box *b, const bound *x, uint64_t least, uint64_t most, uint64_t sum,
                                uint64_t out[3]) {
    uint64_t at[4];
    bound_cells(box_side(b, x->dim), x->up, least, most, at);
    const uint64_t full = at[1] > at[0] ? at[1] - at[0] : 0;
    out[0] += full;
    out[1] += at[3] - at[2] - full;
    return add_product(sum, box_side(b, BOX_H), &out[2]);
}

/* A column of cells under two conditions: a bound, and one on q - k. Example: k <= q and q <= last[k]. */
typedef struct two_bounds {
    const bound *x;
    int64_t side;         /* the positions of the bound's dimension */
    uint64_t least, most; /* what the bound allows a line, */
    const int64_t *v;     /* and each one; or, if `like` is not NULL, those that are alike */
    const like_lines *like;
    uint32_t likes, count; /* records of like; lines */
    bool up;               /* the bound on q - k allows the last positions of a line; else the first ones */
    int64_t first, step;   /* it allows line j so many of them: first + step * j, but not below 0 or above `side` */
} two_bounds;

/* The sum of min(max(q, 0), most) over q in [first, end). */
static wide_count clamped_sum(int64_t first, int64_t end, int64_t most) {
    wide_count sum = 0;
    int64_t from = first > 0 ? first : 0, to = end < most ? end : most;
    if (from < to) sum += (wide_count)(from + to - 1) * (wide_count)(to - from) / 2;
    if (from < most) from = most;
    if (from < end) sum += (wide_count)(end - from) * (wide_count)most;
    return sum;
}

/* The pairs at positions [lo, hi), by lines. */
static uint64_t pairs_by_lines(const two_bounds *t, const int64_t w[LANES], int64_t lo, int64_t hi) {
    uint64_t allowed = 0;
    for (uint32_t j = 0; j < t->count; j++) {
        int64_t first = t->x->up ? t->side - t->v[j] : 0, last = t->x->up ? t->side : t->v[j];
        const int64_t from = t->up ? t->side - w[j] : 0, to = t->up ? t->side : w[j];
        first = first > from ? first : from;
        last = last < to ? last : to;
        first = first > lo ? first : lo;
        last = last < hi ? last : hi;
        allowed += last > first ? (uint64_t)(last - first) : 0;
    }
    return allowed;
}

/* The same, by lines that the first bound allows the same positions. What the other one leaves of these rises by one
 * from line to line, or falls, until it is nothing or all. */
static uint64_t pairs_by_likes(const two_bounds *t, int64_t lo, int64_t hi) {
    uint64_t allowed = 0;
    for (uint32_t i = 0; i < t->likes; i++) {
        const like_lines *l = &t->like[i];
        int64_t first = t->x->up ? t->side - l->allowed : 0, last = t->x->up ? t->side : l->allowed;
        first = first > lo ? first : lo;
        last = last < hi ? last : hi;
        if (last <= first) continue;
        const int64_t all = t->first - (t->up ? t->side - last : first); /* of line 0: how many are left, unclamped */
        const int64_t begin = t->step > 0 ? all + l->from : all - (int64_t)l->to + 1;
        allowed += (uint64_t)clamped_sum(begin, begin + (l->to - l->from), last - first);
    }
    return allowed;
}

/* Counts a column of cells under two conditions. */
static fcp_code column_of_both(const cells *c, const box *b, const two_bounds *t, uint64_t out[3]) {
    uint64_t least, most, sum, line[4], at[4];
    int64_t w[LANES] = {0};
    for (uint32_t j = 0; j < t->count; j++) w[j] = (int64_t)clamp_to(t->first + t->step * j, (uint64_t)t->side);
    least_most(w, t->count, &least, &most, &sum);
    bound_cells((uint64_t)t->side, t->up, least, most, line);
    bound_cells((uint64_t)t->side, t->x->up, t->least, t->most, at);
    fcp_code code = FCP_OK;
    uint64_t i = line[2] > at[2] ? line[2] : at[2];
    const uint64_t end = line[3] < at[3] ? line[3] : at[3];
    for (uint64_t stop; i < end && code == FCP_OK; i = stop) {
        if ((i & STOP_CELLS) == 0 && cells_stopped(c)) return FCP_E_INTERRUPTED;
        const bool free = i >= line[0] && i < line[1]; /* the line allows all of them: count them at once */
        stop = !free ? i + 1 : line[1] < end ? line[1] : end;
        const int64_t lo = (int64_t)(i * FCP_CELL), far = (int64_t)(stop * FCP_CELL);
        const int64_t hi = far < t->side ? far : t->side;
        const uint64_t allowed = t->like ? pairs_by_likes(t, lo, hi) : pairs_by_lines(t, w, lo, hi);
        if (free) {
            const uint64_t from = at[0] > i ? at[0] : i, to = at[1] < stop ? at[1] : stop;
            const uint64_t full = to > from ? to - from : 0;
            out[0] += full;
            out[1] += stop - i - full;
        } else {
            out[0] += allowed == (uint64_t)(hi - lo) * t->count;
            out[1] += allowed > 0 && allowed < (uint64_t)(hi - lo) * t->count;
        }
        code = add_product(allowed, box_side(b, BOX_H), &out[2]);
    }
    return code;
}

static bool is_diagonal_bound(const box_node *x) {
    const int64_t q = x->f.x[BOX_Q], k = x->f.x[BOX_K];
    return x->op == BOX_GE && x->f.x[BOX_H] == 0 && (q == 1 || q == -1) && k == -q;
}

/* Counts a rectangle under a bound, and, if `line` is not NULL, under the bound on q - k that is node `line`, too. */
static fcp_code count_bound(cells *c, const box *b, const box_program *p, const bound *x, const box_node *line,
                            uint64_t out[3], bool *out_known) {
    const int along = BOX_K - x->dim;
    const int64_t side = (int64_t)box_side(b, x->dim);
    fcp_code code = FCP_OK;
    uint64_t here[3] = {0}, least, most, sum;
    bound_runs r = {0};
    const bool runs = find_runs(c, b, p, x, &r);
    for (int64_t from = b->lo[along]; from < b->hi[along] && code == FCP_OK; from += FCP_CELL) {
        const uint32_t count = b->hi[along] - from < FCP_CELL ? (uint32_t)(b->hi[along] - from) : FCP_CELL;
        int64_t v[LANES];
        like_lines like[LANES];
        uint32_t likes = 0;
        if (cells_stopped(c)) return FCP_E_INTERRUPTED;
        if (runs) {
            likes = lines_of_runs(&r, (uint64_t)(from - b->lo[along]), count, like, &least, &most, &sum);
        } else {
            if (!bound_lane(c, b, p, x, from, count, v, &code)) return code; /* before the first column is counted */
            least_most(v, count, &least, &most, &sum);
        }
        if (!line) {
            code = column_of_bound(b, x, least, most, sum, here);
            continue;
        }
        const form *f = &line->f;
        int64_t at[BOX_DIMS] = {0};
        at[x->dim] = b->lo[x->dim];
        at[along] = from;
        two_bounds t = {.x = x,
                        .side = side,
                        .least = least,
                        .most = most,
                        .v = v,
                        .like = runs ? like : NULL,
                        .likes = likes,
                        .count = count,
                        .up = f->x[x->dim] > 0,
                        .step = f->x[along]};
        t.first = form_at(f, at[BOX_Q], at[BOX_K], 0) + (t.up ? side : 1);
        code = column_of_both(c, b, &t, here);
    }
    for (int i = 0; i < 3; i++)
        if (__builtin_add_overflow(out[i], here[i], &out[i])) return FCP_E_PLAN_SIZE;
    *out_known = true;
    return code;
}

/* --- a line ------------------------------------------------------------------------------------------------------- */

/* Counts a box under a bound on q alone or on k alone: the first positions of that side are allowed, or the last
 * ones. */
static bool side_pairs(const box *b, const box_node *x, uint64_t *out) {
    const int d = x->f.x[BOX_Q] ? BOX_Q : BOX_K;
    const int64_t step = x->f.x[d], first = form_at(&x->f, b->lo[BOX_Q], b->lo[BOX_K], 0);
    const uint64_t side = box_side(b, d);
    if (x->op != BOX_GE || x->f.x[BOX_H] || x->f.x[BOX_K - d] || (step != 1 && step != -1)) return false;
    uint64_t allowed = first < 0 ? 0 : (uint64_t)first + 1; /* the first ones, as long as the form falls to 0 */
    if (step > 0) allowed = first >= 0 ? side : side - (magnitude(first) < side ? magnitude(first) : side);
    if (allowed > side) allowed = side;
    return !__builtin_mul_overflow(allowed, box_side(b, BOX_K - d), out) &&
           !__builtin_mul_overflow(*out, box_side(b, BOX_H), out);
}

bool cells_line_pairs(const box *b, const box_program *p, uint64_t *out) {
    if (p->count != 1) return false;
    if (!is_diagonal_bound(p->nodes)) return side_pairs(b, p->nodes, out);
    const form *f = &p->nodes->f;
    const int64_t width = (int64_t)box_side(b, BOX_K), limit = (int64_t)1 << 60;
    /* row q sees its first f + 1 keys, or all but its first -f */
    int64_t first = form_at(f, b->lo[BOX_Q], b->lo[BOX_K], 0), height = (int64_t)box_side(b, BOX_Q);
    if (first > limit || first < -limit || width > limit || height > limit) return false;
    wide_count sum;
    if (f->x[BOX_Q] > 0) sum = clamped_sum(first + 1, first + 1 + height, width);
    else sum = clamped_sum(first + width - height + 1, first + width + 1, width); /* first - i + width keys in row i */
    sum *= box_side(b, BOX_H);
    *out = (uint64_t)sum;
    return sum <= UINT64_MAX;
}

static fcp_code count_line(const box *b, const box_program *p, uint64_t out[3], bool *out_known) {
    uint64_t pairs;
    if (!cells_line_pairs(b, p, &pairs)) return FCP_OK;
    const form *f = &p->nodes->f;
    const bool up = f->x[BOX_Q] < 0; /* a row sees its last keys; else its first */
    const uint64_t height = box_side(b, BOX_Q), width = box_side(b, BOX_K), down = cells_in(height);
    const int64_t first = form_at(f, b->lo[BOX_Q], b->lo[BOX_K], 0);
    const int64_t step = up ? -1 : 1, add = up ? (int64_t)width : 1, side = (int64_t)width;
    for (uint64_t r = 0, alike; r < down; r += alike) {
        const uint64_t end = (r + 1) * FCP_CELL < height ? (r + 1) * FCP_CELL : height;
        const int64_t x = first + step * (int64_t)(r * FCP_CELL) + add, y = first + step * (int64_t)(end - 1) + add;
        const int64_t least = x < y ? x : y, most = x < y ? y : x; /* keys that a row sees, at least and at most */
        uint64_t at[4], left = r < height / FCP_CELL ? height / FCP_CELL - 1 - r : 0, ahead = 0;
        bound_cells(width, up, clamp_to(least, width), clamp_to(most, width), at);
        const uint64_t full = at[1] > at[0] ? at[1] - at[0] : 0;
        /* the rows of cells that follow are like this one while the line is beside them; and while it goes from key to
         * key each has one FULL cell more, or less, than the one before */
        const bool inside = least > 0 && most < side;
        if (inside) ahead = (uint64_t)(up ? least - 1 : side - 1 - most) / FCP_CELL;
        else if (most <= 0) ahead = up ? left : (uint64_t)-most / FCP_CELL;
        else if (least >= side) ahead = up ? (uint64_t)(least - side) / FCP_CELL : left;
        alike = 1 + (ahead < left ? ahead : left);
        const uint64_t steps = inside ? alike * (alike - 1) / 2 : 0;
        out[0] += up ? full * alike - steps : full * alike + steps;
        out[1] += (at[3] - at[2] - full) * alike;
    }
    *out_known = true;
    return __builtin_add_overflow(out[2], pairs, &out[2]) ? FCP_E_PLAN_SIZE : FCP_OK;
}

/* --- which -------------------------------------------------------------------------------------------------------- */

fcp_code cells_count_whole(cells *c, const box *b, const box_program *p, uint64_t out[3], bool *out_known) {
    *out_known = false;
    if (p->loose || (p->on_h && box_side(b, BOX_H) > 1) || box_reads_bands(p)) return FCP_OK;
    if (p->count == 1 && p->on_q && p->on_k) return count_line(b, p, out, out_known);
    if (p->count > 1 && !p->placed) return FCP_OK; /* those are remembered, which is cheaper */
    const bool one = !p->on_q || !p->on_k;
    const box_node *root = &p->nodes[p->root], *u = root->a != MC_NONE ? &p->nodes[root->a] : root;
    const box_node *v = root->b != MC_NONE ? &p->nodes[root->b] : root;
    const bool bound_alone = is_comparison(root);
    const bool bound_and_line =
        (is_diagonal_bound(u) && is_comparison(v)) || (is_diagonal_bound(v) && is_comparison(u));
    if (!one && root->op != MC_AND && root->op != MC_OR && !bound_alone) return FCP_OK;
    if (!find_dependence(c, p)) return FCP_OK;
    if (one) {
        *out_known = true;
        return count_one_dimension(c, b, p->on_q ? BOX_Q : BOX_K, p, out);
    }
    if (root->op == MC_AND || root->op == MC_OR) {
        const uint8_t on[2] = {c->depends[root->a], c->depends[root->b]};
        if ((on[0] == ON_Q && on[1] == ON_K) || (on[0] == ON_K && on[1] == ON_Q)) {
            *out_known = true;
            return count_apart(c, b, p, on[0] == ON_Q ? root->a : root->b, on[0] == ON_Q ? root->b : root->a, out);
        }
    }
    if (!bound_alone && !(root->op == MC_AND && bound_and_line)) return FCP_OK;
    bool simpler;
    bound x;
    box_evaluate(p, b, c->values, &simpler);
    if (bound_alone) return find_bound(c, p, p->root, &x) ? count_bound(c, b, p, &x, NULL, out, out_known) : FCP_OK;
    for (int i = 0; i < 2; i++) {
        const uint32_t line = i ? root->b : root->a, other = i ? root->a : root->b;
        const form *f = &p->nodes[line].f;
        int64_t lo, hi;
        if (!is_diagonal_bound(&p->nodes[line]) || !find_bound(c, p, other, &x)) continue;
        if (!form_range_checked(f, b, &lo, &hi) || lo < -((int64_t)1 << 60) || hi > (int64_t)1 << 60) continue;
        return count_bound(c, b, p, &x, &p->nodes[line], out, out_known);
    }
    return FCP_OK;
}
