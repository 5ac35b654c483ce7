/* fuzz_expr.c: makes a mask from the bytes, and compares what the compiler says of a box of it with the mask of every
 * pair. A box is a rectangle of queries and keys, and a range of heads.
 *
 * Input:  first some bytes that set the sequence and the box (BYTE_*), then an expression, each operator before its
 *         operands. Bytes that have run out count as 0, so every input is a mask.
 * Oracle: mc_eval_checked, pair by pair; test_maskcode.c and test_property.c test this function.
 * Checks: a chain of boxes, each of them a half of the one before. The mask's program is specialised to each box, that
 *     is, simplified by what is known inside the box. The next box starts from the specialised program:
 *           box_evaluate  NONE and FULL are true; so is what it claims of every integer: range, stride, form
 *           rows_solve    counts the pairs, and finds a fault exactly if there is one; rows_one has every bit
 *           box_turn      a position to split at lies inside the box; box_period: a period is less than the box's side
 *           box_key       two boxes with equal keys have equal elements, faults included
 *         In some inputs also a whole short sequence, whose queries and keys are each cut in two: cells_grid,
 *           cells_count.
 */
#include "compiler/box/box.h"
#include "compiler/cells/cells.h"
#include "compiler/box/solve_rows.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
    __attribute__((weak)); /* NULL in a replay */

enum { SIDE = 24, HEADS = 3, DEPTH = 7, NODES = 96, STEPS = 5, LONGEST = 150 };
enum { BYTE_FLAGS, BYTE_Q, BYTE_K, BYTE_H, BYTE_SIDES, BYTE_HALVES, BYTE_SHIFT_Q, BYTE_SHIFT_K, BYTE_LENGTH, BYTE_CUT,
       BYTE_DATA, BYTE_FIRST, BYTE_QUERIES, HEAD_BYTES };
/* FLAG_FAR:      the sequence has almost 2^40 keys.
 * FLAG_SEQUENCE: the whole sequence is checked, too, if it is short.
 * FLAG_QUERIES:  the sequence has its own number of queries (BYTE_QUERIES), and the first one has position BYTE_FIRST.
 *                Without it there are as many queries as keys, from 0 on.
 * FLAG_BLOCKS:   in place of the table, the mask reads blocks of each head.
 * FLAG_LARGE:    boxes have up to 24 elements a side in place of 8, and sequences up to 150 tokens in place of 16. Such
 *                an input takes milliseconds, so the fuzzer skips it; a replay runs those of fuzz/corpus/expr-large. */
enum { FLAG_FAR = 1, FLAG_SEQUENCE = 2, FLAG_QUERIES = 4, FLAG_LARGE = 8, FLAG_BLOCKS = 16, FEW = 3, SHORT = 16 };
/* What the mask may read: one element for each key (the last ones, of many), one for each query, a table, blocks of
 * each head; and bands. */
enum {
    ARRAY_KEYS,
    ARRAY_QUERIES,
    ARRAY_TABLE,
    ARRAY_BLOCKS,
    ARRAYS,
    ROWS = 7,
    COLUMNS = 3,
    BLOCKS = 7,
    RECORDS = 5,
    BANDS = 2 * RECORDS
};

static void require(bool good) {
    if (!good) abort();
}

/* --- bytes to masks ----------------------------------------------------------------------------------------------- */

typedef struct reader {
    const uint8_t *data;
    size_t size, at;
    mc_builder *b;
    unsigned nodes;
    bool blocks; /* of heads are read, and no table */
} reader;

static uint8_t next(reader *r) { return r->at < r->size ? r->data[r->at++] : 0; }

static uint32_t emit(reader *r, mc_op op, uint32_t a, uint32_t b, uint32_t c, int64_t imm, uint32_t guard) {
    return mc_emit(r->b, op, a, b, c, imm, guard, 0);
}

static uint32_t both(reader *r, uint32_t p, uint32_t guard) {
    return guard == MC_NONE ? p : emit(r, MC_AND, guard, p, MC_NONE, 0, MC_NONE);
}

static uint32_t otherwise(reader *r, uint32_t p) { return emit(r, MC_NOT, p, MC_NONE, MC_NONE, 0, MC_NONE); }

static int64_t draw_number(reader *r) {
    static const int64_t odd[] = {INT64_MIN,        INT64_MAX,  INT64_MAX / 2,          INT64_MIN / 2 - 1,
                                  (int64_t)1 << 40, 3037000500, ((int64_t)1 << 40) + 1, -((int64_t)1 << 40)};
    uint8_t x = next(r);
    if (x < 160) return x;
    if (x < 224) return 160 - (int64_t)x; /* -63 .. 0 */
    if (x < 232) return odd[x - 224];
    if (x < 244) return (int64_t)1 << (x - 232);
    return (int64_t)((uint64_t)next(r) << 8 | next(r)) * (x % 2 ? 1 : -1);
}

static uint32_t draw_bool(reader *r, unsigned depth, uint32_t guard);

static uint32_t draw_int(reader *r, unsigned depth, uint32_t guard) {
    enum { LEAVES = 6 };
    static const mc_op ops[] = {MC_Q,   MC_K,   MC_N,   MC_H,   MC_CONST_I, MC_CONST_I, MC_ADD,  MC_SUB,  MC_MUL,
                                MC_DIV, MC_MOD, MC_NEG, MC_ABS, MC_MIN,     MC_MAX,     MC_IF_I, MC_LOAD, MC_LOAD2};
    bool leaf = !depth || r->nodes > NODES;
    mc_op op = ops[next(r) % (leaf ? LEAVES : sizeof ops / sizeof *ops)];
    uint32_t a = MC_NONE, b = MC_NONE, c = MC_NONE;
    if (op == MC_LOAD2 && r->blocks) op = MC_LOAD3;
    r->nodes++;
    if (op == MC_CONST_I || (op >= MC_Q && op <= MC_H))
        return emit(r, op, a, b, c, op == MC_CONST_I ? draw_number(r) : 0, MC_NONE);
    if (op == MC_IF_I) {
        a = draw_bool(r, depth - 1, guard);
        b = draw_int(r, depth - 1, both(r, a, guard));
        c = draw_int(r, depth - 1, both(r, otherwise(r, a), guard));
    } else {
        a = draw_int(r, depth - 1, guard);
        if (op != MC_NEG && op != MC_ABS && op != MC_LOAD) b = draw_int(r, depth - 1, guard);
        if (op == MC_LOAD3) c = draw_int(r, depth - 1, guard);
    }
    const int64_t array = op == MC_LOAD2 ? ARRAY_TABLE : ARRAY_BLOCKS;
    return emit(r, op, a, b, c, op == MC_LOAD ? next(r) % 2 : mc_loads_int(op) ? array : 0, guard);
}

static uint32_t draw_bool(reader *r, unsigned depth, uint32_t guard) {
    enum { LEAVES = 7 };
    static const mc_op ops[] = {MC_LE, MC_EQ, MC_NE, MC_LT, MC_LE, MC_CONST_B, MC_EQ, MC_AND, MC_OR, MC_AND, MC_OR,
                                MC_NOT, MC_IFF, MC_IF_B, MC_BANDS};
    bool leaf = !depth || r->nodes > NODES;
    mc_op op = ops[next(r) % (leaf ? LEAVES : sizeof ops / sizeof *ops)];
    uint32_t a, b = MC_NONE, c = MC_NONE;
    r->nodes++;
    switch (op) {
    case MC_CONST_B: return emit(r, op, MC_NONE, MC_NONE, MC_NONE, next(r) & 1, MC_NONE);
    case MC_EQ: case MC_NE: case MC_LT: case MC_LE: case MC_BANDS:
        a = draw_int(r, depth ? depth - 1 : 0, guard);
        b = draw_int(r, depth ? depth - 1 : 0, guard);
        break;
    case MC_AND: case MC_OR: case MC_IF_B:
        a = draw_bool(r, depth - 1, guard);
        b = draw_bool(r, depth - 1, both(r, op == MC_OR ? otherwise(r, a) : a, guard));
        if (op == MC_IF_B) c = draw_bool(r, depth - 1, both(r, otherwise(r, a), guard));
        break;
    default:
        a = draw_bool(r, depth - 1, guard);
        if (op == MC_IFF) b = draw_bool(r, depth - 1, guard);
        break;
    }
    return emit(r, op, a, b, c, 0, MC_NONE);
}

/* --- what there is to hold answers against ------------------------------------------------------------------------ */

/* Elements of a box, in order of q, k, h: 0, 1; 2: a fault. */
typedef struct truth {
    box of;
    uint64_t pairs, faults, elements;
    uint8_t at[SIDE * SIDE * HEADS];
} truth;

typedef struct bench {
    mc_code mask;
    mc_env env;
    int64_t *scratch;
    box_value *values;
    uint32_t *numbers;
    int64_t *offsets, *key[2];
    box_program *program[3];
    rows *rows;
    box_arrays arrays;
    int64_t data[LONGEST * ARRAYS];
    mc_array array[ARRAYS];
    mc_band_rows rows_of[RECORDS];
    mc_band band[BANDS];
    mc_bands bands;
} bench;

static void add_element(truth *to, uint8_t x) {
    to->pairs += x == 1;
    to->faults += x == 2;
    to->at[to->elements++] = x;
}

/* Claims about the integers of the whole mask at a position, where its nodes have the values in t->scratch. The program
 * that made the claims has the mask's nodes. */
static void check_claims(const bench *t, int64_t q, int64_t k, int64_t h) {
    for (uint32_t i = 0; i < t->mask.count; i++) {
        const box_value *v = &t->values[i];
        int64_t x = t->scratch[i];
        require(x >= v->lo && x <= v->hi);
        if (mc_op_type(t->mask.nodes[i].op) != 'i') continue;
        require(((__int128)x - v->lo) % v->stride == 0);
        require(!v->linear || form_at(&v->f, q, k, h) == x);
        require(t->scratch[v->same] == x);
    }
}

/* Evaluates every element of a box; and holds what t->values claims against each, if `claims`. */
static void look(const bench *t, const box *b, bool claims, truth *out) {
    out->of = *b;
    out->pairs = out->faults = out->elements = 0;
    for (int64_t q = b->lo[BOX_Q]; q < b->hi[BOX_Q]; q++)
        for (int64_t k = b->lo[BOX_K]; k < b->hi[BOX_K]; k++)
            for (int64_t h = b->lo[BOX_H]; h < b->hi[BOX_H]; h++) {
                bool answer = false;
                mc_fault fault = mc_eval_checked(t->mask, &t->env, q, k, h, t->scratch, &answer, NULL);
                if (claims && !fault) check_claims(t, q, k, h);
                add_element(out, fault ? 2 : answer);
            }
}

/* The elements of a part of a box. */
static void look_inside(const truth *whole, const box *b, truth *out) {
    const box *of = &whole->of;
    out->of = *b;
    out->pairs = out->faults = out->elements = 0;
    for (int64_t q = b->lo[BOX_Q]; q < b->hi[BOX_Q]; q++)
        for (int64_t k = b->lo[BOX_K]; k < b->hi[BOX_K]; k++)
            for (int64_t h = b->lo[BOX_H]; h < b->hi[BOX_H]; h++) {
                int64_t row = (q - of->lo[BOX_Q]) * (of->hi[BOX_K] - of->lo[BOX_K]) + k - of->lo[BOX_K];
                add_element(out, whole->at[row * (of->hi[BOX_H] - of->lo[BOX_H]) + h - of->lo[BOX_H]]);
            }
}

static void check_class(box_class cls, const truth *want) {
    if (cls == BOX_NONE) require(!want->pairs && !want->faults);
    if (cls == BOX_FULL) require(want->pairs == want->elements);
}

static void check_rows(const bench *t, const box_program *program, const box *b, const truth *want) {
    rows_result r;
    require(rows_solve(t->rows, program, b, &r));
    require(r.fault == (want->faults > 0));
    if (r.fault) {
        require(r.q >= b->lo[BOX_Q] && r.q < b->hi[BOX_Q] && r.k >= b->lo[BOX_K] && r.k < b->hi[BOX_K] &&
                r.h >= b->lo[BOX_H] && r.h < b->hi[BOX_H]);
        require(mc_eval_checked(t->mask, &t->env, r.q, r.k, r.h, t->scratch, NULL, NULL) != MC_OK);
        return;
    }
    require(r.pairs == want->pairs);
    int64_t width = b->hi[BOX_K] - b->lo[BOX_K], heads = b->hi[BOX_H] - b->lo[BOX_H];
    for (int64_t q = b->lo[BOX_Q]; q < b->hi[BOX_Q]; q++)
        for (int64_t h = 0; h < heads; h++) {
            uint64_t bits[2], elements = 0;
            require(rows_one(t->rows, program, b, q, b->lo[BOX_H] + h, bits, &elements));
            for (int64_t k = 0; k < width; k++)
                require((bits[k / 64] >> k % 64 & 1) == want->at[((q - b->lo[BOX_Q]) * width + k) * heads + h]);
        }
}

static void check_turns(const box_program *program, const box *b) {
    for (int d = 0; d < 2; d++) {
        int64_t at, first, period = box_period(program, b, d, &first);
        if (box_turn(program, b, d, &at)) require(at > b->lo[d] && at < b->hi[d]);
        require(period >= 0 && period < b->hi[d] - b->lo[d]);
        require(!period || (first >= 0 && first < period));
    }
}

/* The program of a box, from that of one that holds it. */
static box_class specialise(const bench *t, const box_program *program, const box *b, box_program *out) {
    bool simpler;
    box_class cls = box_evaluate(program, b, t->values, &simpler);
    box_specialise(program, t->values, t->numbers, out);
    require(out->count <= program->count);
    return cls;
}

/* The box whose elements are `here` and another of its sides: are they alike where their keys are? */
static void check_keys(const bench *t, const truth *here, int64_t shift_q, int64_t shift_k) {
    const box *b = &here->of;
    box moved = *b;
    const int64_t by[2] = {shift_q, shift_k}, end[2] = {t->env.q_first + t->env.queries, t->env.n};
    const int64_t start[2] = {t->env.q_first, 0};
    for (int d = 0; d < 2; d++) {
        int64_t side = b->hi[d] - b->lo[d];
        moved.lo[d] += by[d];
        if (moved.lo[d] < start[d]) moved.lo[d] = start[d];
        if (moved.lo[d] > end[d] - side) moved.lo[d] = end[d] - side;
        moved.hi[d] = moved.lo[d] + side;
    }
    size_t words[2];
    for (int i = 0; i < 2; i++) {
        specialise(t, t->program[0], i ? &moved : b, t->program[1]);
        words[i] = box_key(t->program[1], i ? &moved : b, t->offsets, t->key[i]);
        require(words[i] <= box_key_room(t->mask.count));
    }
    if (words[0] != words[1] || memcmp(t->key[0], t->key[1], words[0] * sizeof *t->key[0])) return;
    truth there;
    look(t, &moved, false, &there);
    require(here->pairs == there.pairs && here->faults == there.faults &&
            !memcmp(here->at, there.at, here->elements));
}

/* *whole becomes the elements of the box itself. */
static void check_chain(const bench *t, box b, uint8_t halves, truth *whole) {
    const box_program *program = t->program[0];
    for (int step = 0; step < STEPS; step++) {
        truth part, *want = step ? &part : whole;
        box_program *special = t->program[1 + step % 2];
        box_class cls = specialise(t, program, &b, special);
        if (step) look_inside(whole, &b, want);
        else look(t, &b, true, want);
        check_class(cls, want);
        program = special;
        check_rows(t, program, &b, want);
        check_turns(program, &b);
        int d = halves >> step & 1;
        int64_t side = b.hi[d] - b.lo[d], middle = b.lo[d] + (side + 1) / 2;
        if (side < 2) continue;
        if (halves >> (7 - step) & 1) b.lo[d] = middle;
        else b.hi[d] = middle;
    }
}

/* --- a whole sequence --------------------------------------------------------------------------------------------- */

typedef struct seen {
    uint64_t pairs, faults, elements;
} seen;

/* Queries are counted from the first one. */
static seen look_at(const uint8_t *at, int64_t n, uint32_t heads, uint64_t q0, uint64_t q1, uint64_t k0,
                    uint64_t k1) {
    seen s = {0};
    for (uint64_t q = q0; q < q1; q++)
        for (uint64_t k = k0; k < k1; k++)
            for (uint32_t h = 0; h < heads; h++, s.elements++) {
                uint8_t x = at[(q * (uint64_t)n + k) * heads + h];
                s.pairs += x == 1;
                s.faults += x == 2;
            }
    return s;
}

static bool is_fault(fcp_code code) {
    return code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_OVERFLOW || code == FCP_E_MASK_INDEX;
}

static void check_sequence(const bench *t, uint8_t cut) {
    int64_t n = t->env.n, first = t->env.q_first, queries = t->env.queries;
    uint32_t heads = mc_uses(t->mask) & MC_USES_H ? HEADS : 1;
    uint8_t *at = malloc((size_t)(queries * n) * heads), *to = at;
    cells *c = cells_new(t->mask, HEADS);
    if (!at || !c) goto done;
    for (int64_t q = first; q < first + queries; q++)
        for (int64_t k = 0; k < n; k++)
            for (uint32_t h = 0; h < heads; h++) {
                bool answer = false;
                mc_fault fault = mc_eval_checked(t->mask, &t->env, q, k, h, t->scratch, &answer, NULL);
                *to++ = fault ? 2 : answer;
            }
    uint64_t q_end = (uint64_t)queries, k_end = (uint64_t)n;
    uint64_t q_cuts[3] = {0, 1 + cut % q_end, q_end}, k_cuts[3] = {0, 1 + cut % k_end, k_end};
    uint32_t q_pieces = q_cuts[1] < q_end ? 2 : 1, k_pieces = k_cuts[1] < k_end ? 2 : 1;
    const cell_entry *entries;
    size_t count, i = 0;
    cells_fault fault;
    fcp_code code = cells_grid(c, &t->env, q_cuts, q_pieces, k_cuts, k_pieces, &entries, &count, &fault);
    require(is_fault(code) == (look_at(at, n, heads, 0, q_end, 0, k_end).faults > 0));
    if (code != FCP_OK) {
        require(is_fault(code) && fault.q >= first && fault.q < first + queries && fault.k >= 0 && fault.k < n);
        require(at[((uint64_t)(fault.q - first) * k_end + (uint64_t)fault.k) * heads + (uint64_t)fault.h] == 2);
        goto done;
    }
    uint32_t shapes, runs;
    const fcp_run *run;
    const fcp_shape_rec *shape = cells_shapes(c, &shapes, &run, &runs);
    for (uint32_t q = 0; q < q_pieces; q++)
        for (uint32_t k = 0; k < k_pieces; k++) {
            uint64_t pairs = look_at(at, n, heads, q_cuts[q], q_cuts[q + 1], k_cuts[k], k_cuts[k + 1]).pairs;
            bool here = i < count && entries[i].q_piece == q && entries[i].k_piece == k;
            require(here == (pairs > 0) && (!here || shape[entries[i].shape].pairs == pairs));
            i += here;
        }
    require(i == count);
    cells_counts got, want = {0};
    require(cells_count(c, &t->env, &got, &fault) == FCP_OK);
    for (uint64_t q = 0; q < q_end; q += FCP_CELL)
        for (uint64_t k = 0; k < k_end; k += FCP_CELL) {
            seen s = look_at(at, n, heads, q, q + FCP_CELL < q_end ? q + FCP_CELL : q_end, k,
                             k + FCP_CELL < k_end ? k + FCP_CELL : k_end);
            want.pairs += s.pairs;
            want.none += !s.pairs;
            want.full += s.pairs == s.elements;
            want.partial += s.pairs && s.pairs < s.elements;
        }
    require(!memcmp(&got, &want, sizeof got));
done:
    cells_free(c);
    free(at);
}

/* --- one input ---------------------------------------------------------------------------------------------------- */

static box first_box(const mc_env *env, const uint8_t *head) {
    box b;
    const int64_t start[2] = {env->q_first, 0}, all[2] = {env->queries, env->n};
    for (int d = 0; d < 2; d++) {
        uint8_t at = head[d ? BYTE_K : BYTE_Q], sides = head[BYTE_SIDES];
        int64_t side = d ? sides >> 4 : sides & 15;
        side = 1 + (head[BYTE_FLAGS] & FLAG_LARGE ? side * 3 / 2 : side / 2);
        if (side > all[d]) side = all[d];
        int64_t rest = all[d] - side, from_end = at & 1 ? at >> 1 : rest - (at >> 1) % (rest + 1);
        if (from_end > rest) from_end = rest;
        b.lo[d] = start[d] + rest - from_end; /* near the start or near the end */
        b.hi[d] = b.lo[d] + side;
    }
    b.lo[BOX_H] = head[BYTE_H] & 1;
    b.hi[BOX_H] = b.lo[BOX_H] + 1 + (head[BYTE_H] >> 1) % (HEADS - 1);
    return b;
}

static int64_t roll(uint64_t *seed, int64_t sides) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)(*seed >> 33) % sides;
}

/* Some rows of up to two bands, about the last positions. An edge of slope s at x in row q is x - s q. */
static void draw_bands(bench *t, uint64_t seed) {
    const mc_env *env = &t->env;
    int64_t q = env->q_first + (env->queries > LONGEST ? env->queries - LONGEST : 0) + roll(&seed, 9) - 4;
    const int64_t first = env->n > LONGEST ? env->n - LONGEST : 0;
    t->bands = (mc_bands){t->rows_of, t->band, RECORDS, 0};
    for (int i = 0; i < RECORDS; i++) {
        int64_t rows_here = 1 + roll(&seed, 60), x = first + roll(&seed, 160) - 40;
        uint32_t count = i + 1 < RECORDS ? (uint32_t)roll(&seed, 3) : 0; /* the last one ends the table */
        t->rows_of[i] = (mc_band_rows){q, t->bands.band_count, count};
        int32_t slope = (int32_t)roll(&seed, 2);
        for (uint32_t j = 0; j < count; j++) {
            int32_t hi_slope = (int32_t)roll(&seed, 2);
            int64_t hi = x + 1 + roll(&seed, 50);
            if (slope > hi_slope) hi += rows_here; /* not empty in the last row */
            t->band[t->bands.band_count++] = (mc_band){x - slope * q, hi - hi_slope * q, slope, hi_slope};
            slope = hi_slope; /* the next one's lower edge runs beside this one's upper edge */
            x = hi + 1 + roll(&seed, 8);
        }
        q += rows_here;
    }
}

/* The sequence, and what it has for each of its tokens: sorted, in runs, of few values, or any. */
static void bind(bench *t, const uint8_t *head) {
    mc_env *env = &t->env;
    const bool large = head[BYTE_FLAGS] & FLAG_LARGE, queries = head[BYTE_FLAGS] & FLAG_QUERIES;
    env->n = 1 + head[BYTE_LENGTH] % (large || queries ? LONGEST : SHORT);
    if (head[BYTE_FLAGS] & FLAG_FAR) env->n = ((int64_t)1 << 40) - head[BYTE_LENGTH];
    env->queries = env->n;
    if (queries) {
        env->q_first = (int8_t)head[BYTE_FIRST];
        env->queries = 1 + head[BYTE_QUERIES] % (large ? LONGEST : FEW);
        if (head[BYTE_FLAGS] & FLAG_FAR) env->q_first += env->n - env->queries;
    }
    uint64_t seed = head[BYTE_DATA] >> 3;
    int64_t value = 0;
    draw_bands(t, seed);
    env->bands = &t->bands;
    for (int i = 0; i < LONGEST * ARRAYS; i++) {
        int64_t die = roll(&seed, INT32_MAX);
        switch (head[BYTE_DATA] & 7) {
        case 0: value += die % 8 == 0; break;         /* sorted, in runs */
        case 1: value = die % 6 == 0 ? die % 5 : value; break; /* runs of few values */
        case 2: value = die % 3; break;
        case 3: value = die % 200 - 50; break;
        case 4: value = i % LONGEST + die % 40; break; /* near the position */
        case 5: value = i / 7 * 7; break;
        case 6: value = die % 20 ? die % 2 : INT64_MAX - die % 2; break;
        default: value = 5; break;
        }
        t->data[i] = value;
    }
    const int64_t far = env->n > LONGEST ? env->n - LONGEST : 0, count = env->n - far;
    const int64_t last = env->queries < LONGEST ? env->queries : LONGEST;
    t->array[ARRAY_KEYS] = (mc_array){t->data, far, count, 0, MC_I64};
    t->array[ARRAY_QUERIES] = (mc_array){t->data + LONGEST, env->q_first + env->queries - last, last, 0, MC_I64};
    t->array[ARRAY_TABLE] = (mc_array){t->data + 2 * LONGEST, 0, ROWS, COLUMNS, MC_I64};
    t->array[ARRAY_BLOCKS] = (mc_array){t->data + 3 * LONGEST, env->q_first % 5, BLOCKS, BLOCKS, MC_I64, HEADS, 0};
    env->arrays = t->array;
}

static void check(bench *t, const uint8_t *head) {
    box_program_make(t->mask, &t->env, &t->arrays, t->program[0]);
    truth whole;
    check_chain(t, first_box(&t->env, head), head[BYTE_HALVES], &whole);
    for (int scale = 1; scale <= 128; scale *= 128)
        check_keys(t, &whole, (int64_t)(int8_t)head[BYTE_SHIFT_Q] * scale,
                   (int64_t)(int8_t)head[BYTE_SHIFT_K] * scale);
    if (head[BYTE_FLAGS] & FLAG_SEQUENCE && t->env.n <= LONGEST) check_sequence(t, head[BYTE_CUT]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t head[HEAD_BYTES] = {0};
    size_t taken = size < HEAD_BYTES ? size : HEAD_BYTES;
    if (taken) memcpy(head, data, taken);
    if (head[BYTE_FLAGS] & FLAG_LARGE && LLVMFuzzerMutate) return 0;
    reader r = {.data = data, .size = size, .at = taken, .b = mc_builder_new()};
    if (!r.b) return 0;
    r.blocks = head[BYTE_FLAGS] & FLAG_BLOCKS;
    uint32_t root = draw_bool(&r, DEPTH, MC_NONE), *places = NULL, count;
    mc_node *nodes = NULL;
    bench t = {0};
    bind(&t, head);
    const mc_decls decls = {t.array, ARRAYS, 1};
    if (mc_builder_failed(r.b) || !mc_extract(r.b, root, &nodes, &places, &count)) goto done;
    t.mask = (mc_code){nodes, count};
    require(mc_check(t.mask, MC_MASK, &decls, NULL) == NULL);
    t.scratch = malloc(count * sizeof *t.scratch);
    t.values = malloc(count * sizeof *t.values);
    t.numbers = malloc(count * sizeof *t.numbers);
    t.offsets = malloc(count * sizeof *t.offsets);
    for (int i = 0; i < 2; i++) t.key[i] = malloc(box_key_room(count) * sizeof *t.key[i]);
    for (int i = 0; i < 3; i++) t.program[i] = malloc(box_program_size(count));
    t.rows = rows_new();
    bool room = t.scratch && t.values && t.numbers && t.offsets && t.key[0] && t.key[1] && t.program[0] &&
                t.program[1] && t.program[2] && t.rows;
    if (room && box_arrays_new(&t.arrays, t.mask) && box_arrays_bind(&t.arrays, &t.env, NULL) == FCP_OK)
        check(&t, head);
done:
    box_arrays_free(&t.arrays);
    rows_free(t.rows);
    for (int i = 0; i < 3; i++) free(t.program[i]);
    for (int i = 0; i < 2; i++) free(t.key[i]);
    free(t.offsets);
    free(t.numbers);
    free(t.values);
    free(t.scratch);
    free(nodes);
    free(places);
    mc_builder_free(r.b);
    return 0;
}
