/* documents.h: the texts that the editor has open, and their syntax trees. */
#ifndef FCPC_LSP_DOCUMENTS_H
#define FCPC_LSP_DOCUMENTS_H
#include "compiler/lsp/positions.h"
#include "compiler/syntax/parse.h"

/* What the parser makes of a text, also of one with errors: sections and masks that have none. Spans are bytes of the
 * text. Masks of the prelude are read when somebody asks for them. */
typedef struct lsp_tree {
    arena memory;
    diags *d;
    const char *bytes; /* d's copy of the text */
    size_t size;
    uint32_t source, prelude; /* numbers in d; prelude: UINT32_MAX before it is read */
    ast program;
    token_list tokens;
    mask *given;          /* of the prelude, those that were read */
    const mask **by_name; /* the text's own, sorted by name and then by place */
    size_t mask_count;
} lsp_tree;

/* What planning found out. */
typedef struct lsp_figures {
    bool known;
    uint32_t ranks, nodes, block;
    uint64_t blocks, tokens;
    const char *strategy;
    double seconds; /* predicted, of all passes and layers together; 0: not known */
    bool block_found, strategy_found;
    struct lsp_mask_figures {
        const char *call; /* "lambda(sink = 64, window = 8192)" */
        double pairs, density;
        uint32_t times; /* layers that have it */
    } * masks;
    uint32_t mask_count;
    arena memory; /* owns the above */
} lsp_figures;

typedef struct lsp_document {
    struct lsp_document *next;
    char *uri;
    char *path; /* of a file: URI, else "" */
    text bytes;
    lsp_lines lines; /* of bytes */
    bool has_version;
    int64_t version;
    uint64_t change;     /* a number that no other text had, nor this one before it was saved */
    lsp_tree *tree;      /* of this text; NULL: not made yet */
    bool checked;        /* the diagnostics of this text are known, */
    diags *d;            /* which are these */
    lsp_figures figures; /* of this text, unless they are not `known` */
} lsp_document;

/* The path of a file: URI, with its escapes resolved; "" for any other URI. malloc'd; NULL: no memory. */
char *lsp_uri_path(const char *uri);

/* A document with this text, which is copied. NULL: no memory. */
lsp_document *lsp_document_new(const char *uri, const char *bytes, size_t size, lsp_encoding encoding);
void lsp_document_free(lsp_document *doc);
/* Replaces bytes [begin, end) of the text, and forgets what was known of it. False: no memory. */
bool lsp_document_edit(lsp_document *doc, size_t begin, size_t end, const char *bytes, size_t size);
void lsp_figures_free(lsp_figures *f);

/* The tree of the text; NULL: no memory. It lives until the text changes. */
lsp_tree *lsp_document_tree(lsp_document *doc);
/* The first mask or score of the text that has this name; NULL: none. */
const mask *lsp_tree_own(const lsp_tree *t, const char *name);
/* The mask or score of the prelude that has this name; NULL: none. */
mask *lsp_tree_given(lsp_tree *t, const char *name);
/* The statement whose first or second token is the name at this place: `mask a = ...`, `key = value`, `plan { ... }`.
 * It ends with its last token. */
span lsp_tree_statement(const lsp_tree *t, span name_at);
/* The index of the first token that does not end before this byte; the count of tokens if there is none. */
size_t lsp_tree_token(const lsp_tree *t, size_t at);
#endif
