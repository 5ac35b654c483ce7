/* meanings.h: what words of the language mean, in the sentences of LANGUAGE.md: the rows of its tables of keys,
 * parameters, strategies, layers, names and functions. Editors show them. The Makefile writes the rows as a C array with
 * meanings.awk, so nothing is said twice. */
#ifndef FCPC_GRAMMAR_MEANINGS_H
#define FCPC_GRAMMAR_MEANINGS_H

/* Texts are Markdown without links. */
typedef struct meaning {
    const char *kind;  /* the first column's heading: "key", "parameter", "strategy", "name", "function", ... */
    const char *place; /* the heading of the page's part, as "plan" or "Scores"; of a parameter: who takes it */
    const char *words; /* as the row has them: "`intra` `inter`", "`min(a, b, ...)`" */
    const char *text;
    const char *usual; /* the default; "": the row has none */
} meaning;

extern const meaning language_meanings[];
extern const unsigned language_meaning_count;
#endif
