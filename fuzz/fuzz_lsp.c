/* fuzz_lsp.c: sends the bytes to a language server.
 *
 * Oracle: It never dies. What it sends are whole messages of JSON, each an answer or something that it tells; and a request
 *         about an open text has one answer.
 * Input:  lines. Each is the body of a message; the server was initialized before. A line that begins with '!' is fed as
 *         it is, without a header. One that begins with '.' is a program: it is opened as a:b, and every request is made
 *         about some of its places.
 * Limits: programs are parsed, and not planned: fuzz_program does that.
 */
#define _GNU_SOURCE /* memmem */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/json.h"
#include "compiler/base/json_read.h"
#include "compiler/lsp/lsp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads what the server has sent, and empties it. Returns how many answers were there. */
static unsigned hear(lsp_server *s) {
    static const char header[] = "Content-Length: ";
    text *out = lsp_output(s), room = {0};
    unsigned answers = 0;
    for (size_t at = 0; at < out->size;) {
        size_t length = 0;
        if (out->size - at < sizeof header || memcmp(out->at + at, header, sizeof header - 1)) abort();
        for (at += sizeof header - 1; out->at[at] >= '0' && out->at[at] <= '9'; at++)
            length = length * 10 + (size_t)(out->at[at] - '0');
        if (memcmp(out->at + at, "\r\n\r\n", 4)) abort();
        at += 4;
        if (out->size - at < length) abort();
        json_reader r = {.begin = out->at + at, .at = out->at + at, .end = out->at + at + length};
        if (!json_skip(&r, &room) || !json_finish(&r)) abort();
        const bool told = memmem(out->at + at, length, "\"method\": ", 10) != NULL;
        const bool answered =
            memmem(out->at + at, length, "\"result\": ", 10) || memmem(out->at + at, length, "\"error\": ", 9);
        if (!told && !answered) abort();
        answers += !told;
        at += length;
    }
    text_free(out);
    text_free(&room);
    return answers;
}

static unsigned say(lsp_server *s, const char *body, size_t size) {
    text frame = {0};
    text_printf(&frame, "Content-Length: %zu\r\n\r\n", size);
    text_add(&frame, body, size);
    lsp_feed(s, frame.at, frame.size);
    text_free(&frame);
    return hear(s);
}

static void run_jobs(lsp_server *s) {
    lsp_job *job, *before = NULL;
    while ((job = lsp_next_job(s))) {
        if (job == before) lsp_job_late(job);
        before = job;
        lsp_job_run(job);
        lsp_job_done(s, job);
        hear(s);
    }
}

static void open_text(lsp_server *s, const char *bytes, size_t size) {
    char *program = strndup(bytes, size);
    json j = {0};
    if (!program) return;
    json_object(&j, NULL);
    json_string(&j, "jsonrpc", "2.0");
    json_string(&j, "method", "textDocument/didOpen");
    json_object(&j, "params");
    json_object(&j, "textDocument");
    json_string(&j, "uri", "a:b");
    json_string(&j, "text", program);
    for (int i = 0; i < 3; i++) json_end(&j);
    const char *body = json_text(&j);
    if (body) say(s, body, strlen(body));
    json_free(&j);
    free(program);
}

static void ask_everything(lsp_server *s, const char *bytes, size_t size) {
    static const char *const requests[] = {"hover",      "completion", "definition", "references",    "documentSymbol",
                                           "formatting", "codeAction", "inlayHint",  "prepareRename", "rename"};
    open_text(s, bytes, size);
    run_jobs(s);
    for (size_t at = 0; at <= size && lsp_server_state(s) == LSP_RUNNING; at += 7 + size / 8)
        for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
            char body[512];
            snprintf(body, sizeof body,
                     "{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": \"textDocument/%s\", \"params\": "
                     "{\"textDocument\": {\"uri\": "
                     "\"a:b\"}, \"newName\": \"other\", \"position\": {\"line\": 0, \"character\": %zu}, \"range\": "
                     "{\"start\": {\"line\": 0, "
                     "\"character\": 0}, \"end\": {\"line\": 9, \"character\": %zu}}}}",
                     requests[i], at, at);
            if (say(s, body, strlen(body)) != 1) abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char begin[] =
        "{\"jsonrpc\": \"2.0\", \"id\": 0, \"method\": \"initialize\", \"params\": {\"capabilities\": {\"workspace\": "
        "{\"inlayHint\": {\"refreshSupport\": true}}}}}";
    lsp_server *s = lsp_server_new();
    const char *at = (const char *)data, *end = at + size;
    if (!s || say(s, begin, sizeof begin - 1) != 1) abort();
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t length = (size_t)((stop ? stop : end) - at);
        if (length && *at == '!') lsp_feed(s, at + 1, length - 1);
        else if (length && *at == '.') ask_everything(s, at + 1, length - 1);
        else say(s, at, length);
        run_jobs(s);
        hear(s);
        at += length + 1;
    }
    lsp_server_free(s);
    return 0;
}
