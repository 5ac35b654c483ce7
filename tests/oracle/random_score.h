/* random_score.h: draws random scores and sinks for random programs, and evaluates them without the compiler.
 *
 * A score is drawn as text and as a tree. This file evaluates the tree in float64 and in float, and its derivative by s
 * node by node, by the rules of calculus.
 *
 * A small error of a logit must not become a large one, or no result could be judged. So scores are finite, continuous
 * in s, and not steep, and they have kinks only where a logit is unlikely to lie. A term that is added may be as large
 * as a float can be, as in additive masks.
 *
 * random_program.h includes this file, and has its dice. */
#ifndef RANDOM_SCORE_H
#define RANDOM_SCORE_H
#include <math.h>
#include <stdarg.h>

typedef enum score_kind {
    T_S,
    T_NUMBER,
    T_DISTANCE,
    T_FIELD,
    T_TABLE,
    T_ADD,
    T_SUB,
    T_TIMES,
    T_CAP,
    T_MIN,
    T_MAX,
    T_ROOT,
    T_LOG,
    T_EXP,
    T_NEAR,
    T_HEAD,
    T_FAR,
    T_FAR_KEYS,
    T_SHAPED
} score_kind;

/* A field, and what of it the sequence under way sees. */
typedef struct field_view {
    const int64_t *at;
    int64_t n;
} field_view;

enum { MAX_SCORE_TREES = 64, MAX_HEADS = 12, SCORE_TABLE = 5, FIELD_MOST = 20 };
typedef struct score_tree {
    score_kind kind;
    double number; /* hundredths, so that text and value are the same; of T_FAR what its text says */
    uint32_t which; /* T_FIELD, T_SHAPED: its name; T_FAR_KEYS: how many keys are far away */
    const field_view *field;
    const shaped_field *shaped;
    const double *table; /* T_TABLE: SCORE_TABLE numbers */
    const struct score_tree *a, *b;
    char text[32]; /* of a T_FAR's number */
} score_tree;

typedef struct random_score {
    const field_view *views; /* of the mask's fields, which scores may read, too */
    uint32_t field_count;
    uint32_t used;          /* of pool */
    const score_tree *root; /* NULL: none */
    bool sinks;
    double sink[MAX_HEADS];
    double table[SCORE_TABLE]; /* `near` */
    bool uses_table, uses_field;
    bool far;                /* logits may be far from 0 */
    size_t size; /* of the text */
    /* From here on it is not set to 0 before a score is drawn. */
    score_tree pool[MAX_SCORE_TREES];
    char text[16384];
} random_score;

static const score_tree *score_node(random_score *r, score_kind kind, double number, const score_tree *a,
                                    const score_tree *b) {
    score_tree *t = &r->pool[r->used++];
    *t = (score_tree){.kind = kind, .number = number, .a = a, .b = b};
    return t;
}

static double hundredths(dice *d, int from, int to) { return (from + (int)roll(d, (uint32_t)(to - from + 1))) / 100.0; }

/* What is added to logits: by distance, by key, or of a table. */
static const score_tree *draw_score_bias(random_score *r, dice *d) {
    uint32_t pick = roll(d, 3);
    if (pick == 1 && r->field_count) {
        score_tree *t = (score_tree *)score_node(r, T_FIELD, hundredths(d, -9, 9), NULL, NULL);
        t->which = roll(d, r->field_count);
        t->field = &r->views[t->which];
        r->uses_field = true;
        return t;
    }
    if (pick == 2) {
        score_tree *t = (score_tree *)score_node(r, T_TABLE, 0, NULL, NULL);
        t->table = r->table;
        r->uses_table = true;
        return t;
    }
    return score_node(r, T_DISTANCE, hundredths(d, -20, 5), NULL, NULL);
}

static const score_tree *draw_score_tree(random_score *r, dice *d, unsigned depth) {
    uint32_t pick = depth ? roll(d, 14) : roll(d, 3);
    if (pick == 0 || r->used > MAX_SCORE_TREES - 32) return score_node(r, T_S, 0, NULL, NULL);
    if (pick == 1) return score_node(r, T_NUMBER, hundredths(d, -150, 150), NULL, NULL);
    if (pick == 2) return draw_score_bias(r, d);
    const score_tree *a = draw_score_tree(r, d, depth - 1);
    switch (pick) {
    case 3: case 4: return score_node(r, T_ADD, 0, a, draw_score_tree(r, d, depth - 1));
    case 5: return score_node(r, T_SUB, 0, a, draw_score_tree(r, d, depth - 1));
    case 6: return score_node(r, T_TIMES, hundredths(d, -120, 120), a, NULL);
    case 7: return score_node(r, T_CAP, hundredths(d, 130, 900), a, NULL);
    case 8: return score_node(r, T_MIN, hundredths(d, -90, 190) + 0.0031, a, NULL);
    case 9: return score_node(r, T_MAX, hundredths(d, -190, 90) + 0.0031, a, NULL);
    case 10: return score_node(r, T_ROOT, hundredths(d, 50, 200), a, NULL);
    case 11: return score_node(r, T_LOG, hundredths(d, 50, 200), a, NULL);
    case 12: return score_node(r, T_EXP, hundredths(d, 10, 150), a, NULL);
    default: return score_node(r, roll(d, 2) ? T_NEAR : T_HEAD, (double)roll(d, 100), a,
                               draw_score_tree(r, d, depth - 1));
    }
}

/* A number between 1 and the largest float, of either sign; as a text, too, which has the same value. */
static inline double draw_far_number(dice *d, char text[32]) {
    const uint32_t exponent = roll(d, 39), digits = roll(d, exponent == 38 ? 2402 : 9000);
    snprintf(text, 32, "%s%u.%03ue%u", roll(d, 3) ? "-" : "", 1 + digits / 1000, digits % 1000, exponent);
    return strtod(text, NULL);
}

static void say(random_score *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(random_score *r, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(r->text + r->size, sizeof r->text - r->size, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof r->text - r->size) abort();
    r->size += (size_t)n;
}

static inline void say_score(random_score *r, const score_tree *t) {
    static const struct { const char *before, *between, *after; } shape[] = {
        [T_ADD] = {"(", " + ", ")"}, [T_SUB] = {"(", " - ", ")"}, [T_MIN] = {"min(", ", ", ")"},
        [T_MAX] = {"max(", ", ", ")"}, [T_TIMES] = {"(", " * ", ")"}, [T_EXP] = {"(exp(tanh(", ")) * ", ")"}};
    char name[SHAPED_TEXT];
    switch (t->kind) {
    case T_S: say(r, "s"); return;
    case T_NUMBER: say(r, t->number < 0 ? "(%.4f)" : "%.4f", t->number); return;
    case T_DISTANCE: say(r, "(abs(q - k) * (%.4f))", t->number); return;
    case T_FIELD: say(r, "(max(-%d, min(%d, f%u[k])) * (%.4f))", FIELD_MOST, FIELD_MOST, t->which, t->number); return;
    case T_SHAPED:
        shaped_read(t->shaped, t->which, name);
        say(r, "(%s * (%.4f))", name, t->number);
        return;
    case T_TABLE: say(r, "near[(q - 2 * k) %% %d]", SCORE_TABLE); return;
    case T_CAP:
        say(r, "(%.4f * tanh(", t->number);
        say_score(r, t->a);
        say(r, " / %.4f))", t->number);
        return;
    case T_ROOT: case T_LOG:
        say(r, t->kind == T_ROOT ? "sqrt(%.4f + " : "log(%.4f + ", t->number);
        say_score(r, t->a);
        say(r, " * ");
        say_score(r, t->a);
        say(r, ")");
        return;
    case T_FAR:
        say(r, "(");
        say_score(r, t->a);
        say(r, " + (%s))", t->text);
        return;
    case T_FAR_KEYS:
        say(r, "(if k < %u then (%s) else ", t->which, t->text);
        say_score(r, t->a);
        say(r, ")");
        return;
    case T_NEAR: case T_HEAD:
        say(r, t->kind == T_NEAR ? "(if q - k < %d then " : "(if k - 40 * h < %d then ", (int)t->number);
        say_score(r, t->a);
        say(r, " else ");
        say_score(r, t->b);
        say(r, ")");
        return;
    default: break;
    }
    say(r, "%s", shape[t->kind].before);
    say_score(r, t->a);
    say(r, "%s", shape[t->kind].between);
    if (t->b) say_score(r, t->b);
    else say(r, "(%.4f)", t->number);
    say(r, "%s", shape[t->kind].after);
}

/* Moves all logits of a score, or those of the first keys, far away. */
static inline void draw_far_score(random_score *r, dice *d) {
    if (!r->root) r->root = score_node(r, T_S, 0, NULL, NULL);
    score_tree *t = (score_tree *)score_node(r, roll(d, 2) ? T_FAR : T_FAR_KEYS, 0, r->root, NULL);
    t->number = draw_far_number(d, t->text);
    t->which = roll(d, 100);
    r->root = t;
    r->far = true;
}

/* Adds a field to the logits. */
static inline void draw_shaped_score(random_score *r, dice *d, const shaped_field *f, uint32_t number) {
    if (!r->root) r->root = score_node(r, T_S, 0, NULL, NULL);
    score_tree *t = (score_tree *)score_node(r, T_SHAPED, hundredths(d, -60, 60), NULL, NULL);
    t->shaped = f;
    t->which = number;
    r->root = score_node(r, T_ADD, 0, r->root, t);
    r->size = 0;
    say_score(r, r->root);
}

/* A score in half of the programs, sinks in a third; far: in some it has logits far away. */
static inline void draw_score(random_score *r, dice *d, uint32_t heads, const field_view *views, uint32_t field_count,
                              bool far) {
    r->used = 0;
    r->uses_table = r->uses_field = false;
    r->views = views;
    r->field_count = field_count;
    for (int i = 0; i < SCORE_TABLE; i++) r->table[i] = hundredths(d, -200, 200);
    r->root = roll(d, 2) ? draw_score_tree(r, d, 1 + roll(d, 3)) : NULL;
    r->far = false;
    if (far && roll(d, 3) == 2) draw_far_score(r, d);
    r->sinks = roll(d, 3) == 0;
    for (uint32_t h = 0; h < heads && h < MAX_HEADS; h++) r->sink[h] = hundredths(d, -300, 500);
    r->size = 0;
    if (r->root) say_score(r, r->root);
}

static inline int64_t score_field(const score_tree *t, int64_t k) {
    const int64_t x = t->field->at[k];
    return x > FIELD_MOST ? FIELD_MOST : x < -FIELD_MOST ? -FIELD_MOST : x;
}
static inline double score_entry(const score_tree *t, int64_t q, int64_t k) {
    const int64_t rest = (q - 2 * k) % SCORE_TABLE;
    return t->table[rest < 0 ? rest + SCORE_TABLE : rest];
}

/* A number and its derivative by s. Once for each type. */
#define SCORE_MEANING(REAL, NAME, TANH, SQRT, LOG, EXP)                                                                \
    typedef struct NAME##_dual {                                                                                       \
        REAL x, dx;                                                                                                    \
    } NAME##_dual;                                                                                                     \
    static inline NAME##_dual NAME(const score_tree *t, REAL s, int64_t q, int64_t k, int64_t h) {                     \
        const REAL c = (REAL)t->number;                                                                                \
        if (t->kind == T_S) return (NAME##_dual){s, 1};                                                                \
        if (t->kind == T_NUMBER) return (NAME##_dual){c, 0};                                                           \
        if (t->kind == T_DISTANCE) return (NAME##_dual){(REAL)(q < k ? k - q : q - k) * c, 0};                         \
        if (t->kind == T_FIELD) return (NAME##_dual){(REAL)score_field(t, k) * c, 0};                                  \
        if (t->kind == T_SHAPED) return (NAME##_dual){(REAL)shaped_number(t->shaped, q, k, h) * c, 0};                 \
        if (t->kind == T_TABLE) return (NAME##_dual){(REAL)score_entry(t, q, k), 0};                                   \
        if (t->kind == T_NEAR) return NAME(q - k < (int)t->number ? t->a : t->b, s, q, k, h);                          \
        if (t->kind == T_HEAD) return NAME(k - 40 * h < (int)t->number ? t->a : t->b, s, q, k, h);                     \
        if (t->kind == T_FAR_KEYS && k < t->which) return (NAME##_dual){c, 0};                                         \
        NAME##_dual a = NAME(t->a, s, q, k, h), b = {c, 0};                                                            \
        if (t->b) b = NAME(t->b, s, q, k, h);                                                                          \
        REAL f;                                                                                                        \
        switch (t->kind) {                                                                                             \
        case T_ADD: return (NAME##_dual){a.x + b.x, a.dx + b.dx};                                                      \
        case T_SUB: return (NAME##_dual){a.x - b.x, a.dx - b.dx};                                                      \
        case T_FAR: return (NAME##_dual){a.x + c, a.dx};                                                               \
        case T_FAR_KEYS: return a;                                                                                     \
        case T_TIMES: return (NAME##_dual){a.x * c, a.dx * c};                                                         \
        case T_CAP: f = TANH(a.x / c); return (NAME##_dual){c * f, (1 - f * f) * a.dx};                                \
        case T_MIN: return a.x < c ? a : b;                                                                            \
        case T_MAX: return a.x > c ? a : b;                                                                            \
        case T_ROOT: f = SQRT(c + a.x * a.x); return (NAME##_dual){f, a.x * a.dx / f};                                 \
        case T_LOG: f = c + a.x * a.x; return (NAME##_dual){LOG(f), 2 * a.x * a.dx / f};                               \
        default: f = TANH(a.x); return (NAME##_dual){EXP(f) * c, EXP(f) * c * (1 - f * f) * a.dx}; /* T_EXP */         \
        }                                                                                                              \
    }
SCORE_MEANING(double, score_exact, tanh, sqrt, log, exp)
SCORE_MEANING(float, score_naive, tanhf, sqrtf, logf, expf)
#endif
