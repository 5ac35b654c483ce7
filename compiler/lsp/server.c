/* server.c: reads the messages of an editor, finds who answers each, and keeps the open documents.
 *
 * Requires: any bytes.
 * Gives:    an answer to every request, in the order of the requests. A message that is no JSON, or no request, is
 *           refused with an error. If it is not known where a message ends, the server is broken, and says why.
 * Source:   Language Server Protocol 3.17; JSON-RPC 2.0.
 */
#define _GNU_SOURCE /* memmem */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_parts.h"

enum { HEADER_MOST = 4096 };

/* --- parameters --------------------------------------------------------------------------------------------------- */

bool lsp_find(const json_reader *params, const char *path, json_reader *out) {
    json_reader r = *params;
    text word = {0};
    bool found = false;
    for (const char *part = path; part;) {
        const size_t size = strcspn(part, ".");
        found = false;
        if (json_peek(&r) != '{' || !json_enter(&r, '{')) break;
        while (!found && json_more(&r, '}') && json_key(&r, &word)) {
            found = word.size == size && !memcmp(word.at, part, size);
            if (!found && !json_skip(&r, &word)) break;
        }
        if (!found) break;
        part = part[size] ? part + size + 1 : NULL;
    }
    text_free(&word);
    *out = r;
    return found && !r.why;
}

bool lsp_find_string(const json_reader *params, const char *path, text *out) {
    json_reader r;
    return lsp_find(params, path, &r) && json_read_string(&r, out);
}

bool lsp_find_number(const json_reader *params, const char *path, int64_t *out) {
    json_reader r;
    return lsp_find(params, path, &r) && json_read_i64(&r, out);
}

bool lsp_find_bool(const json_reader *params, const char *path) {
    json_reader r;
    bool value = false;
    return lsp_find(params, path, &r) && json_read_bool(&r, &value) && value;
}

bool lsp_find_position(const json_reader *params, const char *path, lsp_position *out) {
    json_reader r;
    int64_t line, character;
    if (!lsp_find(params, path, &r) || !lsp_find_number(&r, "line", &line) ||
        !lsp_find_number(&r, "character", &character) || line < 0 || character < 0 || line > UINT32_MAX ||
        character > UINT32_MAX)
        return false;
    *out = (lsp_position){(uint32_t)line, (uint32_t)character};
    return true;
}

void lsp_fail(lsp_reply *reply, int error, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(reply->message, sizeof reply->message, format, args);
    va_end(args);
    reply->error = error;
}

static lsp_document *open_document(const lsp_server *s, const char *uri) {
    lsp_document *doc = s->documents;
    while (doc && strcmp(doc->uri, uri)) doc = doc->next;
    return doc;
}

lsp_document *lsp_find_document(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    text uri = {0};
    lsp_document *doc = NULL;
    if (!lsp_find_string(params, "textDocument.uri", &uri)) lsp_fail(reply, RPC_PARAMS, "textDocument.uri is missing");
    else if (!(doc = open_document(s, uri.at))) lsp_fail(reply, RPC_PARAMS, "'%.150s' is not open", uri.at);
    text_free(&uri);
    return doc;
}

lsp_document *lsp_find_place(lsp_server *s, const json_reader *params, lsp_reply *reply, lsp_tree **out_tree,
                             size_t *out_at) {
    lsp_position at;
    lsp_document *doc = lsp_find_document(s, params, reply);
    if (!doc) return NULL;
    if (!lsp_find_position(params, "position", &at)) {
        lsp_fail(reply, RPC_PARAMS, "position is missing, or is none");
        return NULL;
    }
    *out_at = lsp_lines_offset(&doc->lines, at);
    *out_tree = lsp_document_tree(doc);
    if (*out_tree) return doc;
    lsp_fail(reply, RPC_INTERNAL, "out of memory");
    return NULL;
}

lsp_document *lsp_find_name(lsp_server *s, const json_reader *params, lsp_reply *reply, lsp_tree **out_tree,
                            lsp_name *out) {
    size_t at;
    lsp_document *doc = lsp_find_place(s, params, reply, out_tree, &at);
    return doc && lsp_name_at(*out_tree, at, out) ? doc : NULL;
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static void break_off(lsp_server *s, const char *why) {
    if (s->state == LSP_BROKEN) return;
    s->state = LSP_BROKEN;
    s->why = why;
}

static void send_bytes(lsp_server *s, const text *message) {
    if (message->failed) break_off(s, "out of memory");
    else {
        text_printf(&s->out, "Content-Length: %zu\r\n\r\n", message->size);
        text_add(&s->out, message->at, message->size);
    }
    if (s->out.failed) break_off(s, "out of memory");
}

void lsp_begin(json *j, const char *method) {
    json_object(j, NULL);
    json_string(j, "jsonrpc", "2.0");
    json_string(j, "method", method);
    json_object(j, "params");
}

void lsp_send(lsp_server *s, json *j) {
    json_end(j);
    json_end(j);
    j->out.failed |= j->wrong || j->depth;
    send_bytes(s, &j->out);
    json_free(j);
}

void lsp_json_position(json *j, const char *key, lsp_position at) {
    json_object(j, key);
    json_u64(j, "line", at.line);
    json_u64(j, "character", at.character);
    json_end(j);
}

void lsp_json_range(json *j, const char *key, const lsp_lines *lines, size_t begin, size_t end) {
    json_object(j, key);
    lsp_json_position(j, "start", lsp_lines_position(lines, begin));
    lsp_json_position(j, "end", lsp_lines_position(lines, end));
    json_end(j);
}

void lsp_log(lsp_server *s, const char *message) {
    json j = {0};
    lsp_begin(&j, "window/logMessage");
    json_u64(&j, "type", 1);
    json_string(&j, "message", message);
    lsp_send(s, &j);
}

/* Sends the answer to the request with this id, which is JSON, and frees the reply. */
static void answer(lsp_server *s, const char *id, size_t id_size, lsp_reply *reply) {
    text out = {0};
    reply->result.out.failed |= reply->result.wrong || reply->result.depth;
    if (reply->result.out.failed) lsp_fail(reply, RPC_INTERNAL, "out of memory");
    text_puts(&out, "{\"jsonrpc\": \"2.0\", \"id\": ");
    text_add(&out, id, id_size);
    if (reply->error) {
        json j = {0};
        json_object(&j, NULL);
        json_i64(&j, "code", reply->error);
        json_string(&j, "message", reply->message);
        json_end(&j);
        text_puts(&out, ", \"error\": ");
        text_add(&out, j.out.at, j.out.size);
        out.failed |= j.out.failed;
        json_free(&j);
    } else {
        text_puts(&out, ", \"result\": ");
        if (reply->result.out.size) text_add(&out, reply->result.out.at, reply->result.out.size);
        else text_puts(&out, "null");
    }
    text_puts(&out, "}");
    send_bytes(s, &out);
    text_free(&out);
    json_free(&reply->result);
}

static void refuse(lsp_server *s, const char *id, size_t id_size, int error, const char *why) {
    lsp_reply reply = {.error = error};
    snprintf(reply.message, sizeof reply.message, "%s", why);
    answer(s, id, id_size, &reply);
}

/* --- the life of a connection ------------------------------------------------------------------------------------- */

/* Does the editor offer positions in UTF-8? Without an offer they are in UTF-16. */
static bool offers_utf8(const json_reader *params) {
    json_reader r;
    text word = {0};
    bool found = false;
    if (lsp_find(params, "capabilities.general.positionEncodings", &r) && json_peek(&r) == '[') {
        json_enter(&r, '[');
        while (json_more(&r, ']') && json_read_string(&r, &word)) found |= !strcmp(word.at, "utf-8");
    }
    text_free(&word);
    return found;
}

static void list_capabilities(const lsp_server *s, json *j) {
    json_string(j, "positionEncoding", s->encoding == LSP_UTF8 ? "utf-8" : "utf-16");
    json_object(j, "textDocumentSync");
    json_bool(j, "openClose", true);
    json_u64(j, "change", 2); /* incremental */
    json_bool(j, "save", true);
    json_end(j);
    json_bool(j, "documentFormattingProvider", true);
    json_bool(j, "hoverProvider", true);
    json_bool(j, "definitionProvider", true);
    json_bool(j, "referencesProvider", true);
    json_bool(j, "documentSymbolProvider", true);
    json_bool(j, "inlayHintProvider", true);
    json_object(j, "codeActionProvider");
    json_array(j, "codeActionKinds");
    json_string(j, NULL, "quickfix");
    json_end(j);
    json_end(j);
    json_object(j, "renameProvider");
    json_bool(j, "prepareProvider", true);
    json_end(j);
    json_object(j, "completionProvider");
    json_array(j, "triggerCharacters");
    for (const char *c = "=(,"; *c; c++) json_string(j, NULL, (char[]){*c, 0});
    json_end(j);
    json_end(j);
}

static void initialize(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    if (s->life != LSP_FRESH) {
        lsp_fail(reply, RPC_REQUEST, "initialize comes once");
        return;
    }
    s->life = LSP_READY;
    s->encoding = offers_utf8(params) ? LSP_UTF8 : LSP_UTF16;
    s->refreshes = lsp_find_bool(params, "capabilities.workspace.inlayHint.refreshSupport");
    json *j = &reply->result;
    json_object(j, NULL);
    json_object(j, "capabilities");
    list_capabilities(s, j);
    json_end(j);
    json_object(j, "serverInfo");
    json_string(j, "name", "fcpc");
    json_string(j, "version", fcpc_version());
    json_end(j);
    json_end(j);
}

static void shut_down(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    (void)params;
    (void)reply;
    s->life = LSP_SHUT;
    lsp_stop(s);
}

static void leave(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    (void)params;
    (void)reply;
    s->state = s->life == LSP_SHUT ? LSP_ENDED : LSP_LEFT;
    lsp_stop(s);
}

/* --- open documents ----------------------------------------------------------------------------------------------- */

/* The text of a document is not what the editor has, so nothing is said of it any more. */
static void lose(lsp_server *s, lsp_document *doc, const char *why) {
    lsp_document **at = &s->documents;
    while (*at && *at != doc) at = &(*at)->next;
    if (*at) {
        *at = doc->next;
        lsp_forget_job(s, doc);
        lsp_publish_none(s, doc);
        lsp_document_free(doc);
    }
    if (why) lsp_log(s, why);
}

static void note_change(lsp_server *s, lsp_document *doc, const json_reader *params) {
    doc->change = ++s->changes;
    doc->has_version = lsp_find_number(params, "textDocument.version", &doc->version);
    lsp_forget_job(s, doc);
}

static void did_open(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    (void)reply;
    text uri = {0}, bytes = {0};
    lsp_document *doc = NULL;
    if (!lsp_find_string(params, "textDocument.uri", &uri) || !lsp_find_string(params, "textDocument.text", &bytes))
        lsp_log(s, "didOpen: textDocument needs a uri and a text");
    else {
        lsp_document *old = open_document(s, uri.at);
        if (old) lose(s, old, NULL);
        doc = bytes.size > SOURCE_MAX ? NULL : lsp_document_new(uri.at, bytes.at, bytes.size, s->encoding);
        if (!doc)
            lsp_log(s, bytes.size > SOURCE_MAX ? "didOpen: the text is too large for a program" : "out of memory");
    }
    if (doc) {
        doc->next = s->documents;
        s->documents = doc;
        note_change(s, doc, params);
    }
    text_free(&uri);
    text_free(&bytes);
}

/* Makes one of the changes of didChange. */
static bool apply_change(lsp_document *doc, const json_reader *change) {
    text bytes = {0};
    lsp_position from, to;
    json_reader range;
    size_t begin = 0, end = doc->bytes.size;
    bool good = lsp_find_string(change, "text", &bytes);
    if (good && lsp_find(change, "range", &range) && json_peek(&range) != 'n') {
        good = lsp_find_position(&range, "start", &from) && lsp_find_position(&range, "end", &to);
        if (good) begin = lsp_lines_offset(&doc->lines, from), end = lsp_lines_offset(&doc->lines, to);
    }
    good = good && end >= begin && doc->bytes.size - (end - begin) + bytes.size <= SOURCE_MAX &&
           lsp_document_edit(doc, begin, end, bytes.at, bytes.size);
    text_free(&bytes);
    return good;
}

static void did_change(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    json_reader changes, end;
    text room = {0};
    lsp_document *doc = lsp_find_document(s, params, reply);
    if (!doc) {
        lsp_log(s, reply->message);
        return;
    }
    bool good = lsp_find(params, "contentChanges", &changes) && json_peek(&changes) == '[' && json_enter(&changes, '[');
    while (good && json_more(&changes, ']')) {
        end = changes;
        good = json_skip(&end, &room) && apply_change(doc, &changes);
        changes = end;
    }
    if (good && !changes.why) note_change(s, doc, params);
    else lose(s, doc, "didChange: a change that cannot be made; the document counts as closed");
    text_free(&room);
}

/* Files that the program names may have changed meanwhile. */
static void did_save(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_document *doc = lsp_find_document(s, params, reply);
    if (!doc) return;
    doc->change = ++s->changes;
    doc->checked = false;
    lsp_forget_job(s, doc);
}

static void did_close(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_document *doc = lsp_find_document(s, params, reply);
    if (doc) lose(s, doc, NULL);
}

/* --- dispatch ----------------------------------------------------------------------------------------------------- */

static const struct method {
    const char *name;
    bool request;
    lsp_handler *handler;
} methods[] = {
    {"initialize", true, initialize},
    {"shutdown", true, shut_down},
    {"exit", false, leave},
    {"textDocument/didOpen", false, did_open},
    {"textDocument/didChange", false, did_change},
    {"textDocument/didSave", false, did_save},
    {"textDocument/didClose", false, did_close},
    {"textDocument/formatting", true, lsp_format},
    {"textDocument/hover", true, lsp_hover},
    {"textDocument/codeAction", true, lsp_fixes},
    {"textDocument/inlayHint", true, lsp_inlay_hints},
    {"textDocument/completion", true, lsp_complete},
    {"textDocument/definition", true, lsp_definition},
    {"textDocument/references", true, lsp_references},
    {"textDocument/documentSymbol", true, lsp_symbols},
    {"textDocument/prepareRename", true, lsp_prepare_rename},
    {"textDocument/rename", true, lsp_rename},
};

/* A message, as far as it is the same for all. */
typedef struct message {
    text method;
    const char *id; /* as JSON; NULL: a notification */
    size_t id_size;
    json_reader params;
    bool has_method;
} message;

/* Reads a message; *why becomes what is wrong with it. Returns 0, or the number of the error. */
static int read_message(const char *bytes, size_t size, message *m, const char **why) {
    json_reader r = {.begin = bytes, .at = bytes, .end = bytes + size}, check = r;
    text key = {0};
    bool version = false, wrong = false;
    m->params = (json_reader){.begin = bytes + size, .at = bytes + size, .end = bytes + size};
    if (!json_skip(&check, &key) || !json_finish(&check)) {
        *why = check.why;
        text_free(&key);
        return RPC_PARSE;
    }
    *why = "a message is an object with \"jsonrpc\": \"2.0\", and a method that is a string";
    if (json_peek(&r) != '{') return text_free(&key), RPC_REQUEST;
    json_enter(&r, '{');
    while (json_more(&r, '}') && json_key(&r, &key)) {
        json_peek(&r);
        json_reader value = r;
        const char *name = key.at, *begin = r.at, first = *begin;
        if (!strcmp(name, "method") && first == '"') m->has_method = json_read_string(&value, &m->method);
        else if (!strcmp(name, "method")) wrong = true;
        else if (!strcmp(name, "params")) m->params = value;
        const bool is_id = !strcmp(name, "id"), is_version = !strcmp(name, "jsonrpc");
        if (!json_skip(&r, &key)) break; /* it overwrites the name */
        if (is_version) version = first == '"' && !strcmp(key.at, "2.0");
        if (is_id && (first == '{' || first == '[' || first == 't' || first == 'f')) wrong = true;
        else if (is_id && first != 'n') m->id = begin, m->id_size = (size_t)(r.at - begin);
    }
    text_free(&key);
    if (r.why) return *why = r.why, RPC_PARSE;
    return version && !wrong ? 0 : RPC_REQUEST;
}

const char *lsp_next_word(const text *words, const char *before) {
    if (!words->size) return NULL;
    const char *next = before ? before + strlen(before) + 1 : words->at;
    return next < words->at + words->size ? next : NULL;
}

static bool is_cancelled(const lsp_server *s, const message *m) {
    for (const char *id = NULL; (id = lsp_next_word(&s->cancelled, id));)
        if (strlen(id) == m->id_size && !memcmp(id, m->id, m->id_size)) return true;
    return false;
}

static void dispatch(lsp_server *s, const message *m) {
    const size_t count = sizeof methods / sizeof *methods;
    const struct method *known = methods;
    while (known < methods + count && strcmp(known->name, m->method.at)) known++;
    const bool request = m->id != NULL;
    lsp_reply reply = {0};
    if (known == methods + count || known->request != request) {
        if (request) lsp_fail(&reply, RPC_METHOD, "there is no request '%.150s'", m->method.at);
        else return; /* the protocol lets servers ignore what they do not know */
    } else if (s->life == LSP_FRESH && known->handler != initialize && known->handler != leave) {
        lsp_fail(&reply, RPC_NOT_READY, "the first request is initialize");
    } else if (s->life == LSP_SHUT && known->handler != leave) {
        lsp_fail(&reply, RPC_REQUEST, "nothing follows shutdown but exit");
    } else if (request && is_cancelled(s, m)) lsp_fail(&reply, RPC_CANCELLED, "cancelled");
    else known->handler(s, &m->params, &reply);
    if (request) answer(s, m->id, m->id_size, &reply);
    else json_free(&reply.result);
}

static void handle(lsp_server *s, const char *bytes, size_t size) {
    message m = {0};
    const char *why = NULL;
    const int wrong = read_message(bytes, size, &m, &why);
    if (m.method.failed) break_off(s, "out of memory");
    else if (wrong) refuse(s, m.id ? m.id : "null", m.id ? m.id_size : 4, wrong, why);
    else if (m.has_method) dispatch(s, &m);
    /* else it is an answer to a request of the server's, which wants none */
    text_free(&m.method);
}

/* Is it $/cancelRequest? Then notes the id. */
static void note_cancel(lsp_server *s, const char *bytes, size_t size) {
    static const char cancel[] = "$/cancelRequest";
    message m = {0};
    const char *why;
    json_reader id;
    text room = {0};
    if (!memmem(bytes, size, cancel, sizeof cancel - 1)) return;
    if (!read_message(bytes, size, &m, &why) && m.has_method && !strcmp(m.method.at, cancel) &&
        lsp_find(&m.params, "id", &id)) {
        json_peek(&id);
        const char *begin = id.at;
        if (json_skip(&id, &room)) {
            text_add(&s->cancelled, begin, (size_t)(id.at - begin));
            text_add(&s->cancelled, "", 1);
        }
    }
    text_free(&room);
    text_free(&m.method);
}

/* --- frames ------------------------------------------------------------------------------------------------------- */

/* Reads the header of the message at byte `at` of the input. 0: it is not whole. Else where the message begins; *size
 * is its length. A header that is wrong breaks the server. */
static size_t read_header(lsp_server *s, size_t at, size_t *size) {
    static const char name[] = "content-length:";
    const char *begin = s->in.at + at;
    const size_t left = s->in.size - at;
    const char *end = memmem(begin, left < HEADER_MOST ? left : HEADER_MOST, "\r\n\r\n", 4);
    if (!end) {
        if (left >= HEADER_MOST) break_off(s, "a header that does not end: a message begins with Content-Length: N");
        return 0;
    }
    bool known = false;
    for (const char *line = begin; line < end;) {
        const char *stop = memmem(line, (size_t)(end - line) + 2, "\r\n", 2);
        if ((size_t)(stop - line) >= sizeof name - 1 && !strncasecmp(line, name, sizeof name - 1)) {
            const char *digits = line + sizeof name - 1;
            while (digits < stop && text_is_blank(*digits)) digits++;
            const char *digit = digits;
            for (*size = 0; digit < stop && *digit >= '0' && *digit <= '9' && *size <= LSP_MESSAGE_MOST; digit++)
                *size = *size * 10 + (size_t)(*digit - '0');
            if (*size > LSP_MESSAGE_MOST) return break_off(s, "a message of more than 64 MiB"), 0;
            if (digit == digits || digit != stop || known)
                return break_off(s, "a Content-Length that is no number, or is there twice"), 0;
            known = true;
        }
        line = stop + 2;
    }
    if (!known) return break_off(s, "a header without Content-Length"), 0;
    return (size_t)(end + 4 - s->in.at);
}

/* Finds the message at byte `at` of the input. False: it is not whole. */
static bool find_message(lsp_server *s, size_t at, size_t *begin, size_t *size) {
    return s->state == LSP_RUNNING && at < s->in.size && (*begin = read_header(s, at, size)) &&
           s->in.size - *begin >= *size;
}

void lsp_feed(lsp_server *s, const char *bytes, size_t size) {
    size_t begin, length, at = 0;
    if (s->state != LSP_RUNNING) return;
    text_add(&s->in, bytes, size);
    if (s->in.failed) {
        break_off(s, "out of memory");
        return;
    }
    /* A request that is cancelled further on need not be answered. What breaks the server there comes later. */
    for (size_t next = 0; find_message(s, next, &begin, &length); next = begin + length)
        note_cancel(s, s->in.at + begin, length);
    const lsp_state later = s->state;
    if (later == LSP_BROKEN) s->state = LSP_RUNNING;
    for (; find_message(s, at, &begin, &length); at = begin + length) handle(s, s->in.at + begin, length);
    if (s->state == LSP_BROKEN && later == LSP_BROKEN) refuse(s, "null", 4, RPC_PARSE, s->why);
    if (at) memmove(s->in.at, s->in.at + at, s->in.size - at);
    s->in.size -= at;
    if (!s->in.size) text_free(&s->in);
    text_free(&s->cancelled);
}

/* --- servers ------------------------------------------------------------------------------------------------------ */

lsp_server *lsp_server_new(void) { return calloc(1, sizeof(lsp_server)); }

void lsp_server_free(lsp_server *s) {
    if (!s) return;
    lsp_stop(s);
    for (lsp_document *doc = s->documents, *next; doc; doc = next) {
        next = doc->next;
        lsp_document_free(doc);
    }
    text_free(&s->in);
    text_free(&s->out);
    text_free(&s->cancelled);
    free(s);
}

text *lsp_output(lsp_server *s) { return &s->out; }
lsp_state lsp_server_state(const lsp_server *s) { return s->state; }
const char *lsp_server_why(const lsp_server *s) { return s->why ? s->why : ""; }
