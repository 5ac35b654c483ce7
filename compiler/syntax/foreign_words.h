/* foreign_words.h: words of other projects, and what to write here instead: `num_heads = 32` is model { heads = 32 }.
 *
 * The errors of unknown names ask this table for a hint, Python asks it through fcpc_foreign_word, and the
 * table of grammar/LANGUAGE.md is made of it. To add a word, add it to its row in foreign_words.c, or add a row.
 */
#ifndef FCPC_SYNTAX_FOREIGN_WORDS_H
#define FCPC_SYNTAX_FOREIGN_WORDS_H
#include "compiler/base/text.h"

typedef struct foreign_word {
    unsigned places;   /* FCPC_FOREIGN_KEY, ... of fcpc.h */
    const char *words; /* separated by blanks */
    const char *whose; /* who calls it so */
    /* What to write; "": there is no such thing here. Between two '$' stands an example of a number, of a list or of
     * window_both, whose place the user's own takes. */
    const char *write;
    const char *why; /* a remark, or "" */
} foreign_word;

const foreign_word *foreign_words_get(size_t i); /* NULL: there are no more */
/* The first row that has the word, for one of these places; `after` that row, unless it is NULL. NULL: none has it. */
const foreign_word *foreign_words_find(const char *word, unsigned places, const foreign_word *after);
/* Adds what to write. If `value` is a number or list of the kind of the example, it takes the place of it; NULL: none.
 * The place of window_both is taken by the mask of a window [l, r], (l, r) or l, as FlashAttention has it. */
void foreign_words_print(const foreign_word *h, const char *value, text *out);

#define FOREIGN_UNKNOWN INT64_MIN
/* Adds what to write for a window that reaches l back and r ahead, where a negative number means no limit, as in
 * FlashAttention: window_both(l = 128, r = 32), causal, full or mask back = q - k <= 128. FOREIGN_UNKNOWN: the number
 * is not known. True: that is no mask that a plan can name, but the definition or the rule of one. */
bool foreign_words_put_window(int64_t l, int64_t r, text *out);
#endif
