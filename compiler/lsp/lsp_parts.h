/* lsp_parts.h: what the files of the language server share: its state, requests, and what answers them. */
#ifndef FCPC_LSP_PARTS_H
#define FCPC_LSP_PARTS_H
#include "compiler/base/json.h"
#include "compiler/base/json_read.h"
#include "compiler/lsp/documents.h"
#include "compiler/lsp/lsp.h"
#include "compiler/lsp/lsp_names.h"

/* Numbers of errors: of JSON-RPC, and of the protocol. */
enum {
    RPC_PARSE = -32700,
    RPC_REQUEST = -32600,
    RPC_METHOD = -32601,
    RPC_PARAMS = -32602,
    RPC_INTERNAL = -32603,
    RPC_NOT_READY = -32002,
    RPC_CANCELLED = -32800,
    RPC_FAILED = -32803
};

struct lsp_server {
    text in, out;
    enum { LSP_FRESH, LSP_READY, LSP_SHUT } life;
    lsp_state state;
    const char *why;
    lsp_encoding encoding;
    bool refreshes;   /* the editor asks again for inlay hints when it is told to */
    uint64_t asked;   /* requests to the editor so far */
    uint64_t changes; /* numbers of texts so far */
    lsp_document *documents;
    struct lsp_job *job; /* NULL: there is none */
    text cancelled;      /* ids of cancelled requests in what was fed, each with a NUL behind it */
};

/* The answer to a request: the result, or an error. */
typedef struct lsp_reply {
    json result; /* empty: null */
    int error;   /* 0: none */
    char message[256];
} lsp_reply;

/* Answers a request, or acts on a notification, which has no reply. `params` is the value of that member, or a reader
 * at its end. */
typedef void lsp_handler(lsp_server *s, const json_reader *params, lsp_reply *reply);
void lsp_fail(lsp_reply *reply, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* --- parameters (server.c) ---------------------------------------------------------------------------------------- */

/* Finds the member "a.b" of the member a, and so on; *out is at its value. False: there is no such member. */
bool lsp_find(const json_reader *params, const char *path, json_reader *out);
/* The same for a value of a type. False: there is none, or it is of another type. */
bool lsp_find_string(const json_reader *params, const char *path, text *out);
bool lsp_find_number(const json_reader *params, const char *path, int64_t *out);
bool lsp_find_position(const json_reader *params, const char *path, lsp_position *out);
bool lsp_find_bool(const json_reader *params, const char *path);

/* The open document of `textDocument`; NULL: there is none, and the reply says so. */
lsp_document *lsp_find_document(lsp_server *s, const json_reader *params, lsp_reply *reply);
/* The same, with its tree, and the byte of `position`. */
lsp_document *lsp_find_place(lsp_server *s, const json_reader *params, lsp_reply *reply, lsp_tree **out_tree,
                             size_t *out_at);
/* The same, with the name at that byte. NULL also if there is none: the answer is then null. */
lsp_document *lsp_find_name(lsp_server *s, const json_reader *params, lsp_reply *reply, lsp_tree **out_tree,
                            lsp_name *out);

/* --- messages (server.c) ------------------------------------------------------------------------------------------ */

/* Begins a message that is no answer: its `params` is an open object. lsp_send ends it. */
void lsp_begin(json *j, const char *method);
void lsp_send(lsp_server *s, json *j);
/* Adds a member {line, character}, and one with the range [begin, end). */
void lsp_json_position(json *j, const char *key, lsp_position at);
void lsp_json_range(json *j, const char *key, const lsp_lines *lines, size_t begin, size_t end);
/* The word that follows `before` in a list of words, each with a NUL behind it; NULL for `before`: the first. NULL: there
 * is none. */
const char *lsp_next_word(const text *words, const char *before);
/* Writes to the editor's log. */
void lsp_log(lsp_server *s, const char *message);

/* --- jobs (check_text.c) ------------------------------------------------------------------------------------------ */

/* The text of the document has changed, or it is closed: its job ends. */
void lsp_forget_job(lsp_server *s, const lsp_document *doc);
/* Tells the editor that a document has no diagnostics. */
void lsp_publish_none(lsp_server *s, const lsp_document *doc);
/* Is a span of d one of the document's text? Its bytes are then those of the text. */
bool lsp_is_own(const lsp_document *doc, const diags *d, span at);

/* Adds diagnostic number i of d, which is of this text. */
void lsp_json_diagnostic(const lsp_document *doc, const diags *d, size_t i, json *j);

/* Adds an edit that replaces bytes [begin, end) of a text (format_text.c). */
void lsp_json_edit(json *j, const lsp_lines *lines, size_t begin, size_t end, const char *new);

/* --- what answers requests, a file each --------------------------------------------------------------------------- */

lsp_handler lsp_format, lsp_hover, lsp_complete, lsp_fixes, lsp_inlay_hints;
lsp_handler lsp_definition, lsp_references, lsp_symbols, lsp_prepare_rename, lsp_rename; /* navigate.c */
#endif
