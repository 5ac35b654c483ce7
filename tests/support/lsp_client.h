/* lsp_client.h: an editor in one process with the language server, for tests: it sends messages, lets jobs run to their
 * end, and looks for words in what the server has sent. */
#ifndef TESTS_SUPPORT_LSP_CLIENT_H
#define TESTS_SUPPORT_LSP_CLIENT_H
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/lsp/lsp.h"

typedef struct lsp_client {
    lsp_server *server;
    text heard; /* what came since the last message was sent, headers and all, and a NUL */
} lsp_client;

static inline void client_hear(lsp_client *c) {
    text *out = lsp_output(c->server);
    text_add(&c->heard, out->at, out->size);
    text_add(&c->heard, "", 1);
    cr_assert(!c->heard.failed);
    c->heard.size--;
    text_free(out);
}

static inline void client_feed(lsp_client *c, const char *bytes, size_t size) {
    c->heard.size = 0;
    lsp_feed(c->server, bytes, size);
    client_hear(c);
}

/* Sends a message; in `format` ' stands for ", which reads better in C. */
static inline void __attribute__((format(printf, 2, 3))) client_say(lsp_client *c, const char *format, ...) {
    char body[8192], head[64];
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(body, sizeof body, format, args);
    va_end(args);
    cr_assert(size > 0 && size < (int)sizeof body);
    for (char *at = body; *at; at++)
        if (*at == '\'') *at = '"';
    snprintf(head, sizeof head, "Content-Length: %d\r\n\r\n", size);
    text whole = {0};
    text_puts(&whole, head);
    text_puts(&whole, body);
    client_feed(c, whole.at, whole.size);
    text_free(&whole);
}

/* Runs the jobs that there are. */
static inline void client_check(lsp_client *c) {
    c->heard.size = 0;
    for (lsp_job *job; (job = lsp_next_job(c->server));) {
        lsp_job_run(job);
        lsp_job_done(c->server, job);
    }
    client_hear(c);
}

static inline bool client_hears(const lsp_client *c, const char *words) { return strstr(c->heard.at, words) != NULL; }
#define CLIENT_EXPECT(c, words) cr_expect(client_hears((c), (words)), "no %s in %s", (words), (c)->heard.at)
#define CLIENT_EXPECT_NOT(c, words) cr_expect(!client_hears((c), (words)), "%s in %s", (words), (c)->heard.at)

static inline lsp_client client_start(const char *capabilities) {
    lsp_client c = {.server = lsp_server_new()};
    cr_assert_not_null(c.server);
    client_say(&c, "{'jsonrpc': '2.0', 'id': 1, 'method': 'initialize', 'params': {'capabilities': {%s}}}",
               capabilities);
    CLIENT_EXPECT(&c, "\"capabilities\"");
    return c;
}

static inline void client_end(lsp_client *c) {
    lsp_server_free(c->server);
    text_free(&c->heard);
}

#define CLIENT_URI "file:///none/a.fcp"
/* Opens a document; any bytes of UTF-8 may be in it. */
static inline void client_open(lsp_client *c, const char *bytes) {
    json j = {0};
    json_object(&j, NULL);
    json_string(&j, "jsonrpc", "2.0");
    json_string(&j, "method", "textDocument/didOpen");
    json_object(&j, "params");
    json_object(&j, "textDocument");
    json_string(&j, "uri", CLIENT_URI);
    json_string(&j, "languageId", "fcp");
    json_u64(&j, "version", 1);
    json_string(&j, "text", bytes);
    for (int i = 0; i < 3; i++) json_end(&j);
    const char *body = json_text(&j);
    cr_assert_not_null(body);
    text whole = {0};
    text_printf(&whole, "Content-Length: %zu\r\n\r\n", strlen(body));
    text_puts(&whole, body);
    client_feed(c, whole.at, whole.size);
    text_free(&whole);
    json_free(&j);
}

/* A request about a place of that document, with more parameters: "" or ", 'newName': 'x'". */
static inline void client_ask(lsp_client *c, const char *method, unsigned line, unsigned character, const char *more) {
    client_say(
        c,
        "{'jsonrpc': '2.0', 'id': 7, 'method': 'textDocument/%s', 'params': {'textDocument': {'uri': '" CLIENT_URI
        "'}, 'position': {'line': %u, 'character': %u}%s}}",
        method, line, character, more);
}
#endif
