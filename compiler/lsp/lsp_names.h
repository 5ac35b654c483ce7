/* lsp_names.h: every name in a text, and what it means; also in a text with errors, where sema says nothing. */
#ifndef FCPC_LSP_NAMES_H
#define FCPC_LSP_NAMES_H
#include "compiler/lsp/documents.h"
#include "grammar/meanings.h"

typedef enum lsp_kind {
    NAME_UNKNOWN,
    NAME_SECTION,
    NAME_KEY,
    NAME_ARRAY,      /* a field or table; target: its entry */
    NAME_MASK,       /* or a score; target: the mask */
    NAME_PARAM,      /* of a mask or score; target: the arg that declares it */
    NAME_DEFINITION, /* in a `where`; target: it */
    NAME_INNER,      /* a parameter of a definition; target: its arg */
    NAME_VARIABLE,   /* q k n h s */
    NAME_FUNCTION,
    NAME_FIGURE, /* heads, kv_heads */
    NAME_STRATEGY,
    NAME_STRATEGY_PARAM,
    NAME_LAYER, /* halo scan */
    NAME_LAYER_PARAM,
    NAME_SOURCE, /* file lognormal given cumulative */
    NAME_WORD    /* another word of the language, as a value */
} lsp_kind;

typedef struct lsp_name {
    lsp_kind kind;
    const char *name;
    span at; /* the name itself */
    bool declares;
    const void *target;   /* names of one target mean the same; NULL: the language's own */
    span declared;        /* where; SPAN_NONE: not in this text */
    const mask *of;       /* MASK: it; PARAM, DEFINITION, INNER: whose they are */
    const definition *in; /* INNER: whose */
    const entry *key;     /* KEY, ARRAY: its entry; else the entry that it stands in, or NULL */
    section_id section;   /* SECTION, KEY: SECTION_COUNT if it is none */
    const char *strategy; /* STRATEGY_PARAM: whose */
} lsp_name;

/* Calls `visit` for every name, section by section and mask by mask, until it returns false. */
typedef bool lsp_visit(void *context, const lsp_name *name);
void lsp_each_name(lsp_tree *t, lsp_visit *visit, void *context);
/* The name that this byte is in, or right behind. False: there is none. */
bool lsp_name_at(lsp_tree *t, size_t at, lsp_name *out);

/* The row of a table of LANGUAGE.md. kind and place are those of meanings.h; place may be NULL. NULL: there is none. */
const meaning *lsp_meaning(const char *kind, const char *place, const char *word);
/* The row of a name of the language. */
const meaning *lsp_meaning_of(const lsp_name *name);
#endif
