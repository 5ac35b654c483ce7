/* cursor.h: what may be written where the cursor is, also in a statement that is not whole yet. */
#ifndef FCPC_LSP_CURSOR_H
#define FCPC_LSP_CURSOR_H
#include "compiler/base/text.h"

typedef enum cursor_place {
    CURSOR_NOWHERE, /* in a comment or string, or where a new name is made */
    CURSOR_ITEM,    /* a section, mask or score may begin */
    CURSOR_KEY,     /* a key of `section` */
    CURSOR_VALUE,   /* the value of `key` */
    CURSOR_BODY     /* an expression of a mask or score */
} cursor_place;

enum { CURSOR_WORD = 64 };
typedef struct lsp_cursor {
    cursor_place place;
    size_t begin; /* where the word begins that the cursor is in or behind */
    char section[CURSOR_WORD], key[CURSOR_WORD];
    char call[CURSOR_WORD];     /* the innermost call that it is inside: its name; "": none */
    char argument[CURSOR_WORD]; /* and there in the value of this argument; "": none */
    bool score;                 /* BODY: of a score */
    text names;                 /* BODY: parameters and definitions of the item, each with a NUL behind it; text_free */
} lsp_cursor;

/* False: no memory. */
bool lsp_cursor_find(const char *bytes, size_t size, size_t at, lsp_cursor *out);
#endif
