/* words.c: the tables of words.h, and how words are found in them. */
#include "compiler/syntax/words.h"

#include <string.h>

#include "compiler/base/diag.h"
#include "fcp.tab.h"

int words_find(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (words_same(names[i], name)) return i;
    return -1;
}

const keyword words_keywords[KEYWORD_COUNT] = {
    {"and", T_AND, false},       {"or", T_OR, false},      {"not", T_NOT, false},     {"if", T_IF, false},
    {"then", T_THEN, false},     {"else", T_ELSE, false},  {"where", T_WHERE, false}, {"true", T_TRUE, false},
    {"false", T_FALSE, false},   {"model", T_MODEL, true}, {"cluster", T_CLUSTER, true}, {"batch", T_BATCH, true},
    {"mask", T_MASK, true},      {"plan", T_PLAN, true},   {"score", T_SCORE, true},  {"field", T_FIELD, true},
    {"table", T_TABLE, true},
};

/* Is `spelling` the word of `size` bytes? Nearly always the first byte tells. */
static bool is_word(const char *spelling, const char *word, size_t size) {
    return spelling[0] == word[0] && strlen(spelling) == size && !memcmp(spelling, word, size);
}

const keyword *words_find_keyword(const char *word, size_t size) {
    for (int i = 0; i < KEYWORD_COUNT; i++)
        if (is_word(words_keywords[i].spelling, word, size)) return &words_keywords[i];
    return NULL;
}

bool words_names(int token) {
    for (int i = 0; i < KEYWORD_COUNT; i++)
        if (words_keywords[i].token == token) return words_keywords[i].name;
    return token == T_NAME;
}

static const struct { const char *spelling; int precedence; } ops[OP_COUNT] = {
#define X(id, spelling, precedence) [OP_##id] = {spelling, precedence},
    EXPR_OPS(X)
#undef X
};
const char *words_op_spelling(expr_op op) { return ops[op].spelling; }
int words_op_precedence(expr_op op) { return ops[op].precedence; }

const unit words_units[UNIT_COUNT] = {
#define X(spelling, dimension, power) {spelling, dimension, power},
    UNITS(X)
#undef X
};

int words_find_unit(const char *word, size_t size) {
    for (int i = 0; i < UNIT_COUNT; i++)
        if (is_word(words_units[i].spelling, word, size)) return i;
    return -1;
}

const char *words_nearest_unit(const char *word, size_t size) {
    static const struct { const char *wrong, *right; } usual[] = {
        {"GBps", "GB/s"}, {"GBs", "GB/s"}, {"gb", "GB"}, {"GiB", "GB"}, {"mb", "MB"},
        {"MiB", "MB"}, {"KB", "kB"}, {"KiB", "kB"}, {"TFLOPS", "TFLOP/s"}, {"TFLOPs", "TFLOP/s"}, {"TFLOP", "TFLOP/s"},
        {"usec", "us"}, {"msec", "ms"}, {"sec", "s"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (is_word(usual[i].wrong, word, size)) return usual[i].right;
    const char *names[UNIT_COUNT];
    for (int i = 0; i < UNIT_COUNT; i++) names[i] = words_units[i].spelling;
    return diag_nearest(word, size, names, UNIT_COUNT);
}

bool words_counts_bits(const char *word, size_t size) {
    static const char *const bits[] = {"Gb", "Gb/s", "Gbps", "Gbit",
                                       "Gbit/s", "Tb/s", "Tbps", "Tbit/s", "Mb/s", "Mbps"};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++)
        if (is_word(bits[i], word, size)) return true;
    return false;
}

const char *words_for_character(const char *bytes) {
    static const struct { const char *theirs, *ours; } known[] = {
        {"\u2264", "'<='"}, {"\u2265", "'>='"}, {"\u2260", "'!='"}, {"\u2227", "'and'"}, {"\u2228", "'or'"},
        {"\u00ac", "'not'"}, {"\u00b7", "'*'"}, {"\u00d7", "'*', or 'x' in a list"}, {"\u2212", "'-'"}, {"\u2013", "'-'"},
        {"\u2014", "'-'"}, {"\u201c", "'\"'"}, {"\u201d", "'\"'"}, {"\u00b5", "us"}, {"\u03bc", "us"},
        {"\u00a0", "an ordinary space: this one does not break lines"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(bytes, known[i].theirs, strlen(known[i].theirs))) return known[i].ours;
    return NULL;
}

const char *const words_sections[SECTION_COUNT] = {
#define X(id, name) [SECTION_##id] = name,
    SECTIONS(X)
#undef X
};

const key_info words_keys[KEY_COUNT] = {
#define X(where, id, text) [KEY_##id] = {.name = text, .section = SECTION_##where},
    KEYS(X)
#undef X
};

section_id words_find_section(const char *name) {
    int i = 0;
    while (i < SECTION_COUNT && !words_same(name, words_sections[i])) i++;
    return (section_id)i;
}

key_id words_find_key(section_id where, const char *name) {
    int i = 0;
    while (i < KEY_COUNT && (words_keys[i].section != where || !words_same(name, words_keys[i].name))) i++;
    return (key_id)i;
}

const char *const words_variables[SCORE_VARIABLES] = {"q", "k", "n", "h", "s"};
const char *const words_functions[SCORE_BUILTINS] = {"min",  "max",    "abs",         "exact", "run",
                                                     "rect", "slices", "exp",         "exp2",  "log",
                                                     "log2", "tanh",   "tanh_approx", "sqrt",  "floor"};
const char *const words_sources[SOURCE_COUNT] = {"file", "lognormal", "given", "cumulative", "dense", "pipeline"};
const char *const words_layers[LAYER_KINDS] = {"halo", "scan"};
const char *const words_figures[MODEL_FIGURES] = {"heads", "kv_heads"};
const char *const words_over[OVER_COUNT] = {"sequences", "heads", "kv_heads", "queries", "keys"};
const char words_real[] = "real";
