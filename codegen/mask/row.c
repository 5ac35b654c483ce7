/* row.c: evaluates mask code along rows of keys, and over tiles of rows, in vector code.
 *
 * Requires: code that passed mc_check, and scratch of mc_row_scratch words.
 * Gives: the total meaning (every element has a value, also where a number overflows), as mc_eval does and, in float,
 *       as mc_eval_score does. Reals that depend on neither k nor s are evaluated in double and rounded once.
 * How: each node is evaluated for a whole row of up to MC_ROW keys before the next node is, in a loop over plain arrays
 *       that compilers turn into vector instructions. Much of the work is avoided:
 *       - A node that does not depend on k, such as q / 8, has one value for the whole row (FLAT).
 *       - An integer that changes by the same step from key to key, such as 3 * k - q, is a *line*: only its value at
 *         the first key and the step are kept (LINE). Sums and negations of lines are lines, and so are products with a
 *         FLAT number. A line is divided by a number without a division for each key (div_line).
 *       - In a tile, a node that depends on neither q nor s, such as z[k], is evaluated once for all rows.
 * Cost: O(nodes) a call to prepare, then O(nodes) a row and vector.
 * Units: positions count tokens from the start of the sequence.
 */
#include <math.h>

#include "codegen/mask/clones.h"
#include "codegen/mask/mask_parts.h"
#include "codegen/mask/real_row.h"

/* --- what a call works with ---------------------------------------------------------------------------------------
 * `scratch` is divided into these parts, in this order:
 *   a word for each node: its value if it is FLAT, its value at the first key if it is a line
 *   a word for each node: the place of its vector in scratch
 *   a byte for each node with its state, and one with its level (below)
 *   three spare vectors, for FLAT operands that a loop needs as vectors
 *   a vector for each node that depends on k or s
 * A vector has MC_ROW elements: int64 for an int, float for a real, bytes for a bool. The step of a line is kept in the
 * word before the node's vector. */

enum { ALIGN = 8, INT_WORDS = MC_ROW + ALIGN, REAL_WORDS = MC_ROW / 2, BOOL_WORDS = MC_ROW / 8 };
enum state {
    FLAT,       /* one value */
    LINE,       /* first + j step for key j */
    LINE_DRAWN, /* a line that is written out as a vector, too */
    VECTOR
};
enum level { OF_TILE, OF_KEYS, OF_ROWS }; /* evaluated once a tile; once for MC_ROW keys of it; once a row */

typedef struct rows {
    mc_code code;
    const mc_env *env;
    mc_point at; /* of the first key */
    uint32_t width;
    const float *s;
    int64_t *scratch; /* values come first */
    int64_t *place;
    uint8_t *state, *level;
    int64_t *spare;
} rows;

static size_t bytes_words(uint32_t count) { return 2 * (((size_t)count + 7) / 8); }

static size_t vector_words(uint32_t op) {
    return mc_ops[op].type == 'i' ? INT_WORDS : mc_ops[op].type == 'f' ? REAL_WORDS : BOOL_WORDS;
}

size_t mc_row_scratch(mc_code code) {
    size_t words = 2 * (size_t)code.count + bytes_words(code.count) + (size_t)3 * MC_ROW + (size_t)2 * ALIGN;
    for (uint32_t i = 0; i < code.count; i++) words += vector_words(code.nodes[i].op);
    return words;
}

/* Divides scratch among the nodes, and finds out how often each node has to be evaluated. */
static rows begin_rows(mc_code code, const mc_env *env, int64_t h, int64_t *scratch) {
    enum { Q = 1, ALONG = 2, S = 4 }; /* ALONG: k or s */
    rows r = {.code = code, .env = env, .at = {.h = h}, .scratch = scratch};
    r.place = scratch + code.count;
    r.state = (uint8_t *)(r.place + code.count);
    r.level = r.state + 8 * (((size_t)code.count + 7) / 8);
    r.spare = r.place + code.count + bytes_words(code.count);
    while ((uintptr_t)r.spare % (ALIGN * sizeof *r.spare)) r.spare++;
    int64_t next = r.spare - scratch + (int64_t)3 * MC_ROW;
    for (uint32_t i = 0; i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        const uint32_t operands[3] = {x->a, x->b, x->c};
        unsigned needs = x->op == MC_Q ? Q : x->op == MC_K ? ALONG : x->op == MC_S ? ALONG | S : 0;
        for (unsigned j = 0; j < mc_ops[x->op].arity; j++) needs |= r.level[operands[j]];
        r.level[i] = (uint8_t)needs;
        r.state[i] = needs & ALONG ? VECTOR : FLAT;
        if (!(needs & ALONG)) continue;
        if (mc_ops[x->op].type == 'i') next += ALIGN;
        r.place[i] = next;
        next += (int64_t)vector_words(x->op) - (mc_ops[x->op].type == 'i' ? ALIGN : 0);
    }
    for (uint32_t i = 0; i < code.count; i++)
        r.level[i] = r.level[i] & (Q | S) ? OF_ROWS : r.level[i] & ALONG ? OF_KEYS : OF_TILE;
    return r;
}

static int64_t *int_place(const rows *r, uint32_t i) { return r->scratch + r->place[i]; }
static float *real_place(const rows *r, uint32_t i) { return (float *)(r->scratch + r->place[i]); }
static uint8_t *bool_place(const rows *r, uint32_t i) { return (uint8_t *)(r->scratch + r->place[i]); }
static int64_t *spare_vector(const rows *r, int which) { return r->spare + (size_t)which * MC_ROW; }

/* The step of a line; 0 for what is flat. */
static int64_t step_of(const rows *r, uint32_t i) { return r->state[i] == FLAT ? 0 : int_place(r, i)[-1]; }
static bool is_line(const rows *r, uint32_t i) { return r->state[i] == LINE || r->state[i] == LINE_DRAWN; }
static bool is_straight(const rows *r, uint32_t i) { return r->state[i] != VECTOR; }

/* The first and the last number of a line; false if a number between them wraps. */
static bool ends_of(const rows *r, uint32_t i, int64_t *first, int64_t *last) {
    *first = r->scratch[i];
    return !__builtin_mul_overflow(step_of(r, i), (int64_t)r->width - 1, last) &&
           !__builtin_add_overflow(*first, *last, last);
}

/* Returns an operand as a vector. A FLAT operand is written to all places of spare vector `which`; a line is written
 * out. */
static const int64_t *int_vector(const rows *r, uint32_t i, int which) {
    int64_t *to = r->state[i] == FLAT ? spare_vector(r, which) : int_place(r, i), value = r->scratch[i];
    if (r->state[i] == FLAT)
        for (uint32_t j = 0; j < r->width; j++) to[j] = value;
    if (r->state[i] != LINE) return to;
    uint64_t step = (uint64_t)step_of(r, i);
    for (uint32_t j = 0; j < r->width; j++) to[j] = (int64_t)((uint64_t)value + j * step);
    r->state[i] = LINE_DRAWN;
    return to;
}

static const uint8_t *bool_vector(const rows *r, uint32_t i, int which) {
    if (r->state[i] != FLAT) return bool_place(r, i);
    uint8_t *to = (uint8_t *)spare_vector(r, which);
    memset(to, (int)r->scratch[i], r->width);
    return to;
}

static const float *real_vector(const rows *r, uint32_t i, int which) {
    if (r->code.nodes[i].op == MC_S) return r->s;
    if (r->state[i] != FLAT) return real_place(r, i);
    float *to = (float *)spare_vector(r, which), value = (float)mc_real(r->scratch[i]);
    for (uint32_t j = 0; j < r->width; j++) to[j] = value;
    return to;
}

/* --- loads -------------------------------------------------------------------------------------------------------- */

/* The index of the last dimension, by which a load finds its element in a row of the array. */
static uint32_t last_index(const mc_node *x) { return x->c != MC_NONE ? x->c : x->b != MC_NONE ? x->b : x->a; }

/* The one-dimensional array that a load reads. If its array has rows, this is one of them; the result is false if keys
 * read different rows. */
static bool flat_array(const rows *r, const mc_node *x, mc_array *out) {
    mc_array a = r->env->arrays[x->imm];
    if (x->b != MC_NONE) {
        uint64_t at = 0;
        if (r->state[x->a] != FLAT || (x->c != MC_NONE && r->state[x->b] != FLAT)) return false;
        const int64_t i = r->scratch[x->a], j = x->c != MC_NONE ? r->scratch[x->b] : a.column_first;
        const bool there = a.columns && mc_place(&a, i, j, a.column_first, &at);
        const size_t bytes = a.width == MC_F64 ? sizeof(double) : (size_t)a.width;
        a = (mc_array){.data = (const char *)a.data + (there ? at * bytes : 0),
                       .first = a.column_first,
                       .count = there ? a.columns : 0,
                       .width = a.width};
    }
    *out = a;
    return true;
}

/* Do the elements that a row reads follow one another? They do if the index is a line of step 1 inside the array. Then
 * *out_at is the place of the first. */
static bool run_of(const rows *r, uint32_t i, const mc_array *a, uint64_t *out_at) {
    int64_t first, last;
    uint64_t end;
    return is_line(r, i) && step_of(r, i) == 1 && ends_of(r, i, &first, &last) && mc_place(a, first, 0, 0, out_at) &&
           mc_place(a, last, 0, 0, &end);
}

/* Loads a row: to[j] becomes element x[j] of the array, or 0 if there is none. If the elements follow one another
 * (run_of), they are read from place `at` on. */
#define GATHER(type, to_type)                                                                                          \
    do {                                                                                                               \
        const type *from = a.data;                                                                                     \
        if (straight)                                                                                                  \
            for (uint32_t j = 0; j < r->width; j++) to[j] = (to_type)from[at + j];                                     \
        else                                                                                                           \
            for (uint32_t j = 0; j < r->width; j++) {                                                                  \
                uint64_t e = (uint64_t)x[j] - (uint64_t)a.first;                                                       \
                to[j] = e < (uint64_t)a.count ? (to_type)from[e] : 0;                                                  \
            }                                                                                                          \
    } while (0)

FCP_CLONES static void load_ints(const rows *r, const mc_node *node, int64_t *restrict to) {
    mc_array a;
    uint64_t at = 0;
    const uint32_t index = last_index(node);
    if (!flat_array(r, node, &a)) {
        const int64_t *x = int_vector(r, node->a, 0), *y = int_vector(r, node->b, 1);
        const int64_t *z = node->c != MC_NONE ? int_vector(r, node->c, 2) : y;
        for (uint32_t j = 0; j < r->width; j++) to[j] = mc_load(&r->env->arrays[node->imm], x[j], y[j], z[j]);
        return;
    }
    bool straight = run_of(r, index, &a, &at);
    const int64_t *restrict x = straight ? NULL : int_vector(r, index, 0);
    switch (a.width) {
    case MC_I8: GATHER(int8_t, int64_t); break;
    case MC_I16: GATHER(int16_t, int64_t); break;
    case MC_I32: GATHER(int32_t, int64_t); break;
    case MC_I64: GATHER(int64_t, int64_t); break;
    default: memset(to, 0, r->width * sizeof *to); break;
    }
}

FCP_CLONES static void load_reals(const rows *r, const mc_node *node, float *restrict to) {
    mc_array a;
    uint64_t at = 0;
    const uint32_t index = last_index(node);
    if (!flat_array(r, node, &a)) {
        const int64_t *x = int_vector(r, node->a, 0), *y = int_vector(r, node->b, 1);
        const int64_t *z = node->c != MC_NONE ? int_vector(r, node->c, 2) : y;
        for (uint32_t j = 0; j < r->width; j++)
            to[j] = (float)mc_load_real(&r->env->arrays[node->imm], x[j], y[j], z[j]);
        return;
    }
    bool straight = run_of(r, index, &a, &at);
    const int64_t *restrict x = straight ? NULL : int_vector(r, index, 0);
    if (a.width == MC_F64) GATHER(double, float);
    else memset(to, 0, r->width * sizeof *to);
}

/* --- vectors ------------------------------------------------------------------------------------------------------ */

/* A divisor d whose division is replaced by a product and a shift: for whole x in [0, 2^31) and d in (1, 2^31), x / d
 * is x * by >> shift, exactly. For d = 3, `by` is 2863311531 and `shift` is 33.
 * Method: Granlund and Montgomery, Division by invariant integers using multiplication (1994). */
typedef struct divisor {
    uint32_t by;
    int shift;
} divisor;

static divisor divisor_of(uint32_t d) {
    const int bits = 32 - __builtin_clz(d - 1); /* 2^(bits - 1) < d <= 2^bits */
    return (divisor){(uint32_t)(((uint64_t)1 << (31 + bits)) / d + 1), 31 + bits};
}

/* Divides a vector by one number: x / b or, with `rest`, x % b. It shifts if b is a power of two, and multiplies if
 * everything fits 31 bits. */
FCP_CLONES static void div_row(const int64_t *restrict x, int64_t b, uint32_t width, bool rest, int64_t *restrict out) {
    if (b > 0 && (b & (b - 1)) == 0) {
        int shift = __builtin_ctzll((uint64_t)b);
        if (rest)
            for (uint32_t j = 0; j < width; j++) out[j] = x[j] & (b - 1);
        else
            for (uint32_t j = 0; j < width; j++) out[j] = x[j] >> shift;
        return;
    }
    uint64_t all = b > 0 ? (uint64_t)b : UINT64_MAX;
    uint32_t narrow[MC_ROW];
    for (uint32_t j = 0; j < width; j++) {
        all |= (uint64_t)x[j];
        narrow[j] = (uint32_t)x[j];
    }
    if (all <= INT32_MAX) {
        const divisor d = divisor_of((uint32_t)b);
        const uint32_t by = d.by, divide = (uint32_t)b;
        const int shift = d.shift;
        if (rest)
            for (uint32_t j = 0; j < width; j++) {
                const uint32_t quotient = (uint32_t)(((uint64_t)narrow[j] * by) >> shift);
                out[j] = narrow[j] - quotient * divide;
            }
        else
            for (uint32_t j = 0; j < width; j++) out[j] = (uint32_t)(((uint64_t)narrow[j] * by) >> shift);
        return;
    }
    if (rest)
        for (uint32_t j = 0; j < width; j++) out[j] = mc_mod(x[j], b);
    else
        for (uint32_t j = 0; j < width; j++) out[j] = mc_div(x[j], b);
}

/* Computes x / b or x % b for each element of a line (values with a constant step, none of which overflowed), for 0 < b
 * <= DIVISOR_MAX, without a division for each. LANES neighbours are computed at a time, from the LANES elements before
 * them. Say the step is 6, LANES is 4 and b is 10: 4 elements further, x has grown by 24, so the quotient grows by 2
 * and the remainder by 4. A remainder that reaches b is lowered by b, and its quotient grows by one more.
 *
 * A vector is as wide as a register of AVX2. GCC passes wider ones through memory there, which is many times slower. */
enum { LANE_BITS = 2, LANES = 1 << LANE_BITS };
#define DIVISOR_MAX (INT64_MAX / 2)
typedef int64_t lane_vector __attribute__((vector_size(LANES * sizeof(int64_t))));
typedef uint64_t quotient_vector __attribute__((vector_size(LANES * sizeof(uint64_t))));

static inline __attribute__((always_inline)) void div_line_of(int64_t first, int64_t step, int64_t b, uint32_t width,
                                                              bool rest, int64_t *out) {
    /* -1 in lanes whose number has bit 0, 1 */
    static const lane_vector odd[LANE_BITS] = {{0, -1, 0, -1}, {0, 0, -1, -1}};
    int64_t by = mc_mod(step, b);               /* how far a lane is ahead of another, */
    uint64_t more = (uint64_t)mc_div(step, b);  /* and its quotient; those beyond `width` may wrap */
    lane_vector rests = mc_mod(first, b) + (lane_vector){0};
    quotient_vector quotients = (uint64_t)mc_div(first, b) + (quotient_vector){0};
    for (int bit = 0; bit < LANE_BITS; bit++) {
        const lane_vector next = rests + (odd[bit] & by), past = next - b, below = past < 0; /* -1 where it is */
        rests = (next & below) | (past & ~below);
        quotients += ((quotient_vector)odd[bit] & more) + 1 + (quotient_vector)below;
        more = 2 * more + (2 * by >= b);
        by = 2 * by - (2 * by >= b ? b : 0);
    }
    for (uint32_t j = 0; j < width; j += LANES) { /* a vector has room for all MC_ROW numbers */
        if (rest) memcpy(out + j, &rests, sizeof rests);
        else memcpy(out + j, &quotients, sizeof quotients);
        const lane_vector next = rests + by, past = next - b, below = past < 0;
        rests = (next & below) | (past & ~below);
        quotients += more + 1 + (quotient_vector)below;
    }
}

/* Two copies of the function: the one for remainders does not compute the quotients, which nobody reads. */
FCP_CLONES static void div_line(int64_t first, int64_t step, int64_t b, uint32_t width, bool rest, int64_t *out) {
    if (rest) div_line_of(first, step, b, width, true, out);
    else div_line_of(first, step, b, width, false, out);
}

/* Makes the node a line if its operands are lines or flat and its operation keeps them so; else false. */
static bool line_row(const rows *r, uint32_t i) {
    const mc_node *x = &r->code.nodes[i];
    int64_t base, step;
    if (x->op == MC_K) base = r->at.k, step = 1;
    else if (x->op == MC_NEG && is_straight(r, x->a))
        base = mc_wrap_neg(r->scratch[x->a]), step = mc_wrap_neg(step_of(r, x->a));
    else if (x->op != MC_ADD && x->op != MC_SUB && x->op != MC_MUL) return false;
    else {
        int64_t a = r->scratch[x->a], b = r->scratch[x->b];
        if (!is_straight(r, x->a) || !is_straight(r, x->b)) return false;
        int64_t u = step_of(r, x->a), w = step_of(r, x->b);
        if (x->op == MC_ADD) base = mc_wrap_add(a, b), step = mc_wrap_add(u, w);
        else if (x->op == MC_SUB) base = mc_wrap_sub(a, b), step = mc_wrap_sub(u, w);
        else if (r->state[x->a] != FLAT && r->state[x->b] != FLAT) return false;
        else base = mc_wrap_mul(a, b), step = r->state[x->a] == FLAT ? mc_wrap_mul(a, w) : mc_wrap_mul(u, b);
    }
    r->scratch[i] = base;
    int_place(r, i)[-1] = step;
    r->state[i] = LINE;
    return true;
}

#define ROW(expression)                                                                                                \
    for (uint32_t j = 0; j < width; j++) to[j] = (expression);
/* The case of an operation of MC_INT_VALUES or its like: all its values to[j], from u[j] and w[j]. */
#define ROW_CASE(id, value)                                                                                            \
    case MC_##id:                                                                                                      \
        for (uint32_t j = 0; j < width; j++) {                                                                         \
            const int64_t x = u[j], y = w[j];                                                                          \
            (void)y;                                                                                                   \
            to[j] = (ROW_TYPE)(value);                                                                                 \
        }                                                                                                              \
        break;

FCP_CLONES static void int_row(const rows *r, const mc_node *node, int64_t *restrict to) {
    const uint32_t width = r->width;
    if (mc_loads_int(node->op)) {
        load_ints(r, node, to);
        return;
    }
    if (node->op == MC_IF_I) {
        const uint8_t *restrict p = bool_vector(r, node->a, 2);
        const int64_t *restrict x = int_vector(r, node->b, 0), *restrict y = int_vector(r, node->c, 1);
        ROW(p[j] ? x[j] : y[j])
        return;
    }
    const bool divides = (node->op == MC_DIV || node->op == MC_MOD) && r->state[node->b] == FLAT;
    const int64_t by = divides ? r->scratch[node->b] : 0;
    int64_t first, last;
    if (by > 0 && by <= DIVISOR_MAX && is_line(r, node->a) && ends_of(r, node->a, &first, &last)) {
        div_line(first, step_of(r, node->a), by, width, node->op == MC_MOD, to);
        return;
    }
    const int64_t *restrict u = int_vector(r, node->a, 0);
    if (divides) {
        div_row(u, by, width, node->op == MC_MOD, to);
        return;
    }
    const int64_t *restrict w = mc_ops[node->op].arity > 1 ? int_vector(r, node->b, 1) : u;
    switch (node->op) {
#define ROW_TYPE int64_t
        MC_INT_VALUES(ROW_CASE)
#undef ROW_TYPE
    default: break;
    }
}

/* Evaluates bands for keys k0, k0 + 1, ... of one row: sets the keys of each of the row's bands to 1, band by band. */
static void bands_row(const mc_bands *bands, int64_t q, int64_t k0, uint32_t width, uint8_t *restrict to) {
    memset(to, 0, width);
    const mc_band_rows *row = mc_band_row(bands, q);
    if (!row || !row->count) return;
    const mc_band *b = mc_band_after(bands, row, q, k0), *end = bands->bands + row->first + row->count;
    for (uint64_t done = 0; b < end && done < width; b++) {
        int64_t lo = mc_wrap_add(b->lo, b->lo_slope ? q : 0), hi = mc_wrap_add(b->hi, b->hi_slope ? q : 0);
        uint64_t first = lo > k0 ? (uint64_t)lo - (uint64_t)k0 : 0, last = hi > k0 ? (uint64_t)hi - (uint64_t)k0 : 0;
        if (first >= width) return;
        if (first < done) first = done;
        if (last > width) last = width;
        if (last > first) memset(to + first, 1, (size_t)(last - first));
        if (last > done) done = last;
    }
}

FCP_CLONES static void bool_row(const rows *r, const mc_node *node, uint8_t *restrict to) {
    const uint32_t width = r->width;
    const char type = mc_ops[node->op].args[0];
    if (type == 'f') {
        const float *restrict x = real_vector(r, node->a, 0), *restrict y = real_vector(r, node->b, 1);
        switch (node->op) {
        case MC_LT_F: ROW(x[j] < y[j]) break;
        case MC_LE_F: ROW(x[j] <= y[j]) break;
        case MC_EQ_F: ROW(x[j] == y[j]) break;
        default: ROW(x[j] != y[j]) break;
        }
        return;
    }
#define ROW_TYPE uint8_t
    if (node->op == MC_BANDS) {
        const int64_t *restrict x = int_vector(r, node->a, 0), *restrict y = int_vector(r, node->b, 1);
        const mc_bands *bands = &r->env->bands[node->imm];
        bool run = r->state[node->a] == FLAT && width > 0; /* one row, keys that follow one another */
        for (uint32_t j = 1; j < width && run; j++) run = y[j] == mc_wrap_add(y[0], j);
        if (run) bands_row(bands, x[0], y[0], width, to);
        else ROW(mc_in_bands(bands, x[j], y[j]))
        return;
    }
    if (type == 'i') {
        const int64_t *restrict u = int_vector(r, node->a, 0), *restrict w = int_vector(r, node->b, 1);
        switch (node->op) {
            MC_TEST_VALUES(ROW_CASE)
        default: break;
        }
        return;
    }
    const uint8_t *restrict u = bool_vector(r, node->a, 0);
    const uint8_t *restrict w = mc_ops[node->op].arity > 1 ? bool_vector(r, node->b, 1) : u;
    if (node->op == MC_IF_B) {
        const uint8_t *restrict z = bool_vector(r, node->c, 2);
        ROW((uint8_t)((u[j] & w[j]) | ((u[j] ^ 1) & z[j])))
        return;
    }
    switch (node->op) {
        MC_BOOL_VALUES(ROW_CASE)
    default: break;
    }
#undef ROW_TYPE
}

/* Converts integers to floats, rounded once. Numbers of 32 bits go another way, because processors convert those in
 * vectors. */
FCP_CLONES static void to_floats(const rows *r, uint32_t i, float *restrict to) {
    const uint32_t width = r->width;
    int64_t first, last;
    if (is_line(r, i) && ends_of(r, i, &first, &last) && first == (int32_t)first && last == (int32_t)last) {
        const uint32_t base = (uint32_t)first, step = (uint32_t)step_of(r, i);
        ROW((float)(int32_t)(base + j * step))
        return;
    }
    const int64_t *restrict x = int_vector(r, i, 0);
    uint64_t beyond = 0;
    for (uint32_t j = 0; j < width; j++) beyond |= ((uint64_t)x[j] + 0x80000000u) >> 32;
    if (beyond) ROW((float)x[j])
    else ROW((float)(int32_t)x[j])
}

FCP_CLONES static void real_row(const rows *r, const mc_node *node, float *restrict to) {
    const uint32_t width = r->width;
    if (node->op == MC_TO_F) {
        to_floats(r, node->a, to);
        return;
    }
    if (mc_loads_real(node->op)) {
        load_reals(r, node, to);
        return;
    }
    if (node->op == MC_IF_F) {
        const uint8_t *restrict p = bool_vector(r, node->a, 2);
        const float *restrict x = real_vector(r, node->b, 0), *restrict y = real_vector(r, node->c, 1);
        ROW(p[j] ? x[j] : y[j])
        return;
    }
    const float *restrict x = real_vector(r, node->a, 0);
    const float *restrict y = mc_ops[node->op].arity > 1 ? real_vector(r, node->b, 1) : x;
    switch (node->op) {
    case MC_ADD_F: ROW(x[j] + y[j]) break;
    case MC_SUB_F: ROW(x[j] - y[j]) break;
    case MC_MUL_F: ROW(x[j] * y[j]) break;
    case MC_DIV_F: ROW(x[j] / y[j]) break;
    case MC_MIN_F: ROW(y[j] < x[j] ? y[j] : x[j]) break;
    case MC_MAX_F: ROW(y[j] > x[j] ? y[j] : x[j]) break;
    case MC_NEG_F: ROW(-x[j]) break;
    case MC_ABS_F: ROW(fabsf(x[j])) break;
    case MC_FLOOR_F: ROW(mc_fast_floor(x[j])) break;
    case MC_SQRT_F: ROW(sqrtf(x[j])) break;
    case MC_EXP_F: ROW(mc_fast_exp(x[j])) break;
    case MC_EXP2_F: ROW(mc_fast_exp2(x[j])) break;
    case MC_LOG_F: ROW(mc_fast_log(x[j])) break;
    case MC_LOG2_F: ROW(mc_fast_log2(x[j])) break;
    case MC_TANH_F:
    case MC_TANH_APPROX_F: ROW(mc_fast_tanh(x[j])) break;
    default: break;
    }
}

/* --- rows and tiles ----------------------------------------------------------------------------------------------- */

/* Evaluates the nodes of levels `from` to `to`. */
static void eval_nodes(const rows *r, enum level from, enum level to) {
    for (uint32_t i = 0; i < r->code.count; i++) {
        const mc_node *x = &r->code.nodes[i];
        if (r->level[i] < from || r->level[i] > to) continue;
        if (r->state[i] == FLAT) r->scratch[i] = mc_eval_node(x, r->env, &r->at, r->scratch);
        else if (mc_ops[x->op].type == 'b') bool_row(r, x, bool_place(r, i));
        else if (mc_ops[x->op].type == 'f' && x->op != MC_S) real_row(r, x, real_place(r, i));
        else if (mc_ops[x->op].type == 'i' && !line_row(r, i)) int_row(r, x, int_place(r, i));
    }
}

/* Goes on to the keys of a tile from number `first` on, at most MC_ROW of them, and evaluates what depends on keys
 * alone. */
static void enter_keys(rows *r, const mc_tile *t, uint32_t first) {
    r->width = t->keys - first < MC_ROW ? t->keys - first : MC_ROW;
    r->at.k = mc_wrap_add(t->k, first);
    eval_nodes(r, OF_KEYS, OF_KEYS);
}

/* Goes on to row i of the tile, and evaluates what depends on the row. */
static void enter_row(rows *r, const mc_tile *t, uint32_t i) {
    r->at.q = mc_wrap_add(t->q, i);
    eval_nodes(r, OF_ROWS, OF_ROWS);
}

void mc_eval_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h, int64_t *scratch,
                 uint8_t *out) {
    rows r = begin_rows(code, env, h, scratch);
    uint32_t root = code.count - 1;
    r.width = width > MC_ROW ? MC_ROW : width;
    r.at.q = q;
    r.at.k = k0;
    eval_nodes(&r, OF_TILE, OF_ROWS);
    memcpy(out, bool_vector(&r, root, 0), r.width);
}

FCP_CLONES static uint64_t count_bytes(const uint8_t *x, uint32_t width) {
    uint32_t sum = 0;
    for (uint32_t j = 0; j < width; j++) sum += x[j];
    return sum;
}

uint64_t mc_count_tile(mc_code code, const mc_env *env, const mc_tile *tile, int64_t *scratch) {
    rows r = begin_rows(code, env, tile->h, scratch);
    const uint32_t root = code.count - 1;
    uint64_t sum = 0;
    eval_nodes(&r, OF_TILE, OF_TILE);
    enter_keys(&r, tile, 0);
    for (uint32_t i = 0; i < tile->rows; i++) {
        enter_row(&r, tile, i);
        if (r.state[root] == FLAT) sum += r.scratch[root] ? r.width : 0;
        else sum += count_bytes(bool_place(&r, root), r.width);
    }
    return sum;
}

FCP_CLONES static void times(const float *x, float factor, uint32_t width, float *out) {
    for (uint32_t j = 0; j < width; j++) out[j] = x[j] * factor;
}

void mc_eval_score_tile(mc_code code, const mc_env *env, const mc_tile *tile, const float *s, size_t ld, float factor,
                        int64_t *scratch, float *out) {
    rows r = begin_rows(code, env, tile->h, scratch);
    uint32_t root = code.count - 1;
    eval_nodes(&r, OF_TILE, OF_TILE);
    for (uint32_t c = 0; c < tile->keys; c += MC_ROW) {
        enter_keys(&r, tile, c);
        for (uint32_t i = 0; i < tile->rows; i++) {
            r.s = s + i * ld + c;
            enter_row(&r, tile, i);
            times(real_vector(&r, root, 0), factor, r.width, out + i * ld + c);
        }
    }
}

void mc_load_places(mc_code code, const mc_env *env, const mc_tile *tile, const float *s, size_t ld, int64_t *scratch,
                    uint32_t *out) {
    rows r = begin_rows(code, env, tile->h, scratch);
    const mc_node *load = &code.nodes[code.count - 1];
    const mc_array *a = &env->arrays[load->imm];
    r.code.count--; /* only what the index needs is evaluated */
    eval_nodes(&r, OF_TILE, OF_TILE);
    for (uint32_t c = 0; c < tile->keys; c += MC_ROW) {
        enter_keys(&r, tile, c);
        for (uint32_t i = 0; i < tile->rows; i++) {
            r.s = s + i * ld + c;
            enter_row(&r, tile, i);
            const int64_t *x = int_vector(&r, load->a, 0), *y = load->b != MC_NONE ? int_vector(&r, load->b, 1) : x;
            const int64_t *z = load->c != MC_NONE ? int_vector(&r, load->c, 2) : x;
            uint32_t *to = out + (size_t)i * tile->keys + c;
            for (uint32_t j = 0; j < r.width; j++) {
                uint64_t at;
                to[j] = mc_place(a, x[j], y[j], z[j], &at) ? (uint32_t)at : MC_NONE;
            }
        }
    }
}

void mc_eval_score_row(mc_code code, const mc_env *env, int64_t q, int64_t k0, uint32_t width, int64_t h,
                       const float *s, int64_t *scratch, float *out) {
    if (width > MC_ROW) width = MC_ROW;
    mc_eval_score_tile(code, env, &(mc_tile){q, k0, h, 1, width}, s, 0, 1, scratch, out);
}
