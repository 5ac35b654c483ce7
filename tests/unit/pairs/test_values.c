/* test_values.c: tests the answers about boxes on which the proof of a plan's pairs rests: the answer for the box, the
 * answer for every node of the mask code, and which boxes are said to be alike. They are compared with the mask of
 * every pair, as codegen/mask defines it. */
#include "runtime/pairs/pairs_parts.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"
#include "tests/support/amount.h"
#include "tests/support/mask_samples.h"

#include <criterion/criterion.h>
#include <string.h>

enum { SIDE_MAX = 48, ALIKE = 24, RECORDS = 12, BANDS_MAX = 4 };

/* A mask, what it reads, and a plan that has both. */
typedef struct subject {
    fcp_plan plan;
    fcp_array table[ARRAYS_MAX];
    uint8_t *data;
    mc_array arrays[ARRAYS_MAX];
    fcp_slices slices;
    mc_bands bands;
    mc_band_rows rows[RECORDS + 1];
    mc_band band[RECORDS * BANDS_MAX];
    pairs_facts facts;
    pairs_mask mask;
    pairs_memo memo;
    mc_node *folded;
} subject;

/* Puts the arrays of a sequence into a plan, whose only sequence it is. */
static void put_arrays(subject *s, const exprs *e) {
    size_t bytes = 0;
    for (int i = 0; i < e->array_count; i++) {
        const mc_array *a = &e->arrays[i];
        const bool table = i >= ARRAY_TABLES_FROM && i < ARRAY_TABLES_TO;
        s->table[i] = (fcp_array){.kind = table ? FCP_TABLE : FCP_FIELD,
                                  .width = a->width,
                                  .count = table ? (uint64_t)a->count : mc_array_total(a),
                                  .columns = table ? (uint64_t)a->columns : 0,
                                  .offset = bytes};
        bytes += (fcp_array_bytes(&s->table[i]) + 63) / 64 * 64;
    }
    s->data = malloc(bytes + 1);
    for (int i = 0; i < e->array_count; i++) {
        memcpy(s->data + s->table[i].offset, e->arrays[i].data, fcp_array_bytes(&s->table[i]));
        s->arrays[i] = e->arrays[i];
        s->arrays[i].data = s->data + s->table[i].offset;
    }
    s->plan.arrays = s->table;
    s->plan.arrays_count = (uint64_t)e->array_count;
    s->plan.data = s->data;
}

static void open_subject(subject *s, mc_code code, const mc_env *env, int64_t head) {
    s->plan.mask = code.nodes;
    s->plan.mask_count = code.count;
    s->folded = malloc(code.count * sizeof *s->folded);
    fcp_pairs_fold(&s->plan, head, s->folded);
    cr_assert_eq(fcp_pairs_facts_open(&s->facts, &s->plan, NULL, NULL), FCP_OK);
    cr_assert(fcp_pairs_memo_open(&s->memo, code.count));
    s->mask = (pairs_mask){.code = {s->folded, code.count},
                           .env = *env,
                           .facts = &s->facts,
                           .values = malloc(code.count * sizeof *s->mask.values),
                           .scratch = malloc(mc_row_scratch(code) * sizeof(int64_t))};
    s->mask.env.arrays = s->arrays;
    s->mask.env.bands = &s->bands;
}

static void close_subject(subject *s) {
    fcp_pairs_facts_close(&s->facts);
    fcp_pairs_memo_close(&s->memo);
    free(s->mask.values);
    free(s->mask.scratch);
    free(s->folded);
    free(s->data);
    memset(s, 0, sizeof *s);
}

/* What is said of every node of a box holds for every pair. Returns the answer for the box. */
static pairs_answer check_box(const subject *s, mc_code code, int64_t head, const pairs_box *b, uint64_t seed,
                              uint8_t *out) {
    const pairs_mask *m = &s->mask;
    const pairs_answer answer = fcp_pairs_evaluate(m, b);
    int64_t *values = malloc(code.count * sizeof *values), *of_code = malloc(code.count * sizeof *of_code);
    for (int64_t q = b->q0; q < b->q1; q++)
        for (int64_t k = b->k0; k < b->k1; k++) {
            const bool is = mc_eval(code, &m->env, q, k, head, of_code);
            cr_assert_eq(mc_eval(m->code, &m->env, q, k, head, values), is, "seed %llu: folded",
                         (unsigned long long)seed);
            cr_assert(answer == FCP_PAIRS_MIXED || is == (answer == FCP_PAIRS_ALL), "seed %llu: (%lld, %lld) is %d",
                      (unsigned long long)seed, (long long)q, (long long)k, is);
            *out++ = is;
            for (uint32_t i = 0; i < code.count; i++) {
                const pairs_value *v = &m->values[i];
                cr_assert(v->lo <= values[i] && values[i] <= v->hi, "seed %llu, node %u", (unsigned long long)seed, i);
                cr_assert_eq(values[i], values[v->same], "seed %llu, node %u", (unsigned long long)seed, i);
                cr_assert(!v->linear || (__int128)v->c + (__int128)v->q * q + (__int128)v->k * k == values[i],
                          "seed %llu, node %u", (unsigned long long)seed, i);
            }
        }
    free(values);
    free(of_code);
    return answer;
}

typedef struct counts {
    unsigned decided, mixed, keys, alike;
} counts;

/* Boxes of equal sides: those that have equal keys have equal pairs. */
static void check_boxes(subject *s, mc_code code, int64_t head, uint64_t *state, uint64_t seed, counts *c) {
    static uint8_t pairs[ALIKE][SIDE_MAX * SIDE_MAX];
    int64_t *keys[ALIKE];
    uint32_t lengths[ALIKE] = {0};
    const mc_env *env = &s->mask.env;
    const uint64_t queries = (uint64_t)env->queries, n = (uint64_t)env->n;
    const uint64_t rows = 1 + splitmix(state) % (queries < SIDE_MAX ? queries : SIDE_MAX);
    const uint64_t cols = 1 + splitmix(state) % (n < SIDE_MAX ? n : SIDE_MAX);
    for (int i = 0; i < ALIKE; i++) {
        /* mostly at multiples of a power of 2, where periods begin */
        const uint64_t step = splitmix(state) % 3 ? 32 : 1;
        const int64_t q0 = env->q_first + (int64_t)(splitmix(state) % (queries - rows + 1) / step * step);
        const int64_t k0 = (int64_t)(splitmix(state) % (n - cols + 1) / step * step);
        const pairs_box b = {q0, q0 + (int64_t)rows, k0, k0 + (int64_t)cols};
        const bool mixed = check_box(s, code, head, &b, seed, pairs[i]) == FCP_PAIRS_MIXED;
        mixed ? c->mixed++ : c->decided++;
        keys[i] = NULL;
        if (!fcp_pairs_key(&s->memo, &s->mask, &b, 0)) continue;
        c->keys += mixed;
        lengths[i] = s->memo.key_count;
        keys[i] = malloc(lengths[i] * sizeof(int64_t));
        memcpy(keys[i], s->memo.key, lengths[i] * sizeof(int64_t));
        for (int j = 0; j < i; j++) {
            if (!keys[j] || lengths[j] != lengths[i]) continue;
            if (memcmp(keys[j], keys[i], lengths[i] * sizeof(int64_t))) continue;
            c->alike += mixed;
            cr_assert(!memcmp(pairs[j], pairs[i], rows * cols), "seed %llu: two boxes are not alike",
                      (unsigned long long)seed);
        }
    }
    for (int i = 0; i < ALIKE; i++) free(keys[i]);
}

static mc_env draw_env(uint64_t *state) {
    mc_env env = {.n = 1 + (int64_t)(splitmix(state) % 700)};
    env.queries = splitmix(state) % 2 ? env.n : 1 + (int64_t)(splitmix(state) % 700);
    env.q_first = splitmix(state) % 4 ? env.n - env.queries : 0;
    return env;
}

Test(pairs_values, random_masks) {
    counts c = {0};
    subject s = {0};
    exprs e = {0};
    array_set *set = malloc(sizeof *set);
    for (uint64_t seed = 1; seed <= amount(250, 5000); seed++) {
        uint64_t state = seed;
        mc_node *nodes;
        const mc_env env = draw_env(&state);
        e.seed = seed;
        e.array_count = 0;
        if (seed % 3 == 0) draw_arrays(&e, set, &env);
        const int root = seed % 5 == 0 ? sample_mask(&e, (enum sample)(seed / 5 % SAMPLES), 1 + (int64_t)(seed % 90), 7)
                                       : random_mask(&e, seed, 1 + (int)(seed % 4), seed % 2);
        const mc_code code = lower_mask(&e, root, &nodes);
        /* numbers that overflow, which a mask that was compiled reaches nowhere: kernels wrap around */
        static const int64_t far[] = {INT64_MIN, INT64_MAX, INT64_MAX - 70, INT64_MIN / 2, (int64_t)1 << 55};
        for (uint32_t i = 0; i < code.count && seed % 4 == 0; i++)
            if (nodes[i].op == MC_CONST_I && splitmix(&state) % 2) nodes[i].imm = far[splitmix(&state) % 5];
        put_arrays(&s, &e);
        const int64_t head = (int64_t)(seed % 3);
        open_subject(&s, code, &env, head);
        check_boxes(&s, code, head, &state, seed, &c);
        close_subject(&s);
        e.count = 0;
        free(nodes);
    }
    free(set);
    /* Most boxes are decided, so ranges are of use; and many that are not have a key that another one has, too. */
    cr_expect_gt(c.decided, 2 * c.mixed, "%u, %u", c.decided, c.mixed);
    cr_expect_gt(c.keys, c.mixed / 2, "%u of %u", c.keys, c.mixed);
    cr_expect_gt(c.alike, 100);
}

/* Masks whose keys are easily taken for each other: two boxes that differ in what they have at a place. */
Test(pairs_values, keys_tell_boxes_apart) {
    enum { N = 120, SIDE = 8, AT = N / SIDE };
    static uint8_t pairs[AT * AT][SIDE * SIDE];
    static int64_t keys[AT * AT][64];
    for (int which = 0; which < 6; which++) {
        exprs e = {0};
        subject s = {0};
        mc_node *nodes;
        const int q = ex0(&e, MC_Q), k = ex0(&e, MC_K), one = num(&e, 1), two = num(&e, 2);
        const int odd = ex2(&e, MC_MUL, ex2(&e, MC_MOD, q, two), ex2(&e, MC_MOD, k, two));
        const int wraps = ex2(&e, MC_ADD, ex2(&e, MC_MUL, odd, num(&e, INT64_MAX - 20)), q);
        const int masks[] = {
            ex2(&e, MC_LT, ex1(&e, MC_ABS, ex2(&e, MC_SUB, k, num(&e, 60))), q), /* rises, and falls */
            ex2(&e, MC_LT, wraps, q), /* from row 21 on, and before that it does not */
            ex2(&e, MC_EQ, ex2(&e, MC_MOD, q, num(&e, 12)), ex2(&e, MC_MOD, k, num(&e, 20))),
            ex2(&e, MC_LE, ex2(&e, MC_DIV, q, num(&e, 12)), ex2(&e, MC_SUB, ex2(&e, MC_DIV, k, num(&e, 16)), one)),
            ex2(&e, MC_LT, ex2(&e, MC_MIN, ex2(&e, MC_MUL, q, two), num(&e, 90)), ex2(&e, MC_MAX, k, num(&e, 44))),
            /* forms whose constant is no 64-bit number, though each of their values is one */
            ex2(&e, MC_LT, ex2(&e, MC_ADD, num(&e, INT64_MAX), ex2(&e, MC_SUB, num(&e, 24), k)),
                ex2(&e, MC_ADD, num(&e, INT64_MAX - 110), q))};
        const mc_env env = {.n = N, .queries = N};
        const mc_code code = lower_mask(&e, masks[which], &nodes);
        uint32_t lengths[AT * AT] = {0}, same = 0;
        open_subject(&s, code, &env, 0);
        for (int i = 0; i < AT * AT; i++) {
            const int64_t q0 = i / AT * SIDE, k0 = i % AT * SIDE;
            const pairs_box b = {q0, q0 + SIDE, k0, k0 + SIDE};
            check_box(&s, code, 0, &b, (uint64_t)which, pairs[i]);
            if (!fcp_pairs_key(&s.memo, &s.mask, &b, 0)) continue;
            lengths[i] = s.memo.key_count;
            cr_assert(lengths[i] <= 64);
            memcpy(keys[i], s.memo.key, lengths[i] * sizeof(int64_t));
            for (int j = 0; j < i; j++) {
                if (lengths[j] != lengths[i] || memcmp(keys[j], keys[i], lengths[i] * sizeof(int64_t))) continue;
                same++;
                cr_expect(!memcmp(pairs[j], pairs[i], sizeof pairs[i]), "mask %d: boxes %d and %d", which, j, i);
            }
        }
        cr_expect_gt(same, AT, "mask %d", which);
        close_subject(&s);
        free(nodes);
    }
}

/* Records of rows with bands that are in order and apart: with parallel edges, or a band alone with any. */
static void draw_slices(subject *s, uint64_t *state, const mc_env *env) {
    int64_t q = env->q_first - 20 + (int64_t)(splitmix(state) % 60);
    const uint32_t records = 1 + (uint32_t)(splitmix(state) % RECORDS);
    uint32_t bands = 0;
    for (uint32_t i = 0; i <= records; i++) {
        const int64_t rows = 1 + (int64_t)(splitmix(state) % 90);
        const uint32_t first = bands, count = i < records ? (uint32_t)(splitmix(state) % (BANDS_MAX + 1)) : 0;
        int64_t edge = -20 + (int64_t)(splitmix(state) % 100);
        const int32_t slope = splitmix(state) % 2;
        for (uint32_t j = 0; j < count; j++) {
            mc_band *b = &s->band[bands++];
            *b = (mc_band){edge - (slope ? q : 0), edge + 1 + (int64_t)(splitmix(state) % 150), slope, slope};
            if (slope) b->hi -= q;
            if (count == 1) b->hi_slope = 0, b->hi = edge + rows + 1 + (int64_t)(splitmix(state) % 150);
            edge += 152 + (int64_t)(splitmix(state) % 60);
        }
        s->rows[i] = (mc_band_rows){q, first, count};
        q += rows;
    }
    s->slices = (fcp_slices){0, records + 1, 0, bands};
    s->bands = (mc_bands){s->rows, s->band, records + 1, bands};
    s->plan.slices = &s->slices;
    s->plan.slices_count = 1;
    s->plan.band_rows = s->rows;
    s->plan.band_rows_count = records + 1;
    s->plan.bands = s->band;
    s->plan.bands_count = bands;
}

Test(pairs_values, slices) {
    counts c = {0};
    subject s = {0};
    for (uint64_t seed = 1; seed <= amount(150, 3000); seed++) {
        uint64_t state = seed;
        const mc_env env = draw_env(&state);
        const mc_node nodes[] = {{.op = MC_Q, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE},
                                 {.op = MC_K, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE},
                                 {.op = MC_CONST_I, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE,
                                  .imm = 1 + (int64_t)(seed % 7)},
                                 {.op = MC_DIV, .a = 1, .b = 2, .c = MC_NONE, .guard = MC_NONE},
                                 {.op = MC_BANDS, .a = 0, .b = seed % 3 ? 1 : 3, .c = MC_NONE, .guard = MC_NONE}};
        draw_slices(&s, &state, &env);
        const mc_code code = {nodes, sizeof nodes / sizeof *nodes};
        open_subject(&s, code, &env, 0);
        for (int i = 0; i < 3; i++) check_boxes(&s, code, 0, &state, seed, &c);
        close_subject(&s);
    }
    cr_expect_gt(c.decided, c.mixed);
    cr_expect_gt(c.keys, c.mixed / 8, "%u of %u", c.keys, c.mixed);
    cr_expect_gt(c.alike, 10);
}

/* With more records than are looked at one by one: each row sees one key, or documents of 3 rows. */
Test(pairs_values, many_records_of_slices) {
    enum { MANY = 3000 };
    subject s = {0};
    mc_band_rows *rows = malloc((MANY + 1) * sizeof *rows);
    mc_band *bands = malloc(MANY * sizeof *bands);
    for (uint32_t i = 0; i < MANY; i++) {
        rows[i] = (mc_band_rows){3 * i, i, 1};
        bands[i] = (mc_band){3 * i, 3 * i + 3, 0, 0};
    }
    rows[MANY] = (mc_band_rows){3 * MANY, 0, 0};
    s.slices = (fcp_slices){0, MANY + 1, 0, MANY};
    s.plan = (fcp_plan){.slices = &s.slices, .slices_count = 1, .band_rows = rows, .bands = bands};
    const mc_node nodes[] = {{.op = MC_BANDS, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE}};
    s.plan.mask = nodes;
    s.plan.mask_count = 1;
    cr_assert_eq(fcp_pairs_facts_open(&s.facts, &s.plan, NULL, NULL), FCP_OK);
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, 0, 4499, 4500, 8999), FCP_PAIRS_NONE);
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, 4500, 8999, 0, 4499), FCP_PAIRS_NONE);
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, 0, 4499, 4499, 8999), FCP_PAIRS_MIXED);
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, 4500, 8999, 0, 4500), FCP_PAIRS_MIXED);
    for (uint32_t i = 0; i < MANY; i++) bands[i] = (mc_band){i == 777 ? 1 : 0, 9000, 0, 0};
    fcp_pairs_facts_close(&s.facts);
    cr_assert_eq(fcp_pairs_facts_open(&s.facts, &s.plan, NULL, NULL), FCP_OK);
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, 0, 8999, 0, 8999), FCP_PAIRS_MIXED);
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, 0, 8999, 1, 8999), FCP_PAIRS_ALL);
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, -1, 8999, 1, 8999), FCP_PAIRS_MIXED, "a row before the first");
    cr_expect_eq(fcp_pairs_in_bands(&s.facts, 0, 0, 9000, 1, 8999), FCP_PAIRS_MIXED, "a row behind the last");
    fcp_pairs_facts_close(&s.facts);
    free(rows);
    free(bands);
}
