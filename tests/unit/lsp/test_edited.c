/* test_edited.c: tests how the language server keeps texts and checks them: edits against the same edits made here,
 * diagnostics with their places and hints, jobs that a change overtakes, and formatting. */
#include "tests/support/lsp_client.h"

#include "compiler/lsp/documents.h"

#define CHANGE(version, changes)                                                                                       \
    "{'jsonrpc': '2.0', 'method': 'textDocument/didChange', 'params': {'textDocument': {'uri': '" CLIENT_URI           \
    "', 'version': " #version "}, 'contentChanges': [" changes "]}}"
#define PART(l0, c0, l1, c1, new)                                                                                      \
    "{'range': {'start': {'line': " #l0 ", 'character': " #c0 "}, 'end': {'line': " #l1 ", 'character': " #c1          \
    "}}, 'text': '" new "'}"

static const char good[] = "batch { lengths = [4096] }\nplan { mask = causal }\n";

Test(edited, diagnostics) {
    lsp_client c = client_start("");
    client_open(&c, "# \u00e4\U0001F600\nplan { mask = cuasal; block = 100 } # \U0001F600\n");
    client_check(&c);
    CLIENT_EXPECT(&c, "\"uri\": \"" CLIENT_URI "\", \"version\": 1");
    CLIENT_EXPECT(&c, "\"start\": {\"line\": 1, \"character\": 14}, \"end\": {\"line\": 1, \"character\": 20}}, "
                      "\"severity\": 1, \"code\": \"E200\", \"source\": \"fcpc\", "
                      "\"message\": \"unknown mask 'cuasal'\\u000ahint: did you mean 'causal'?\"");
    client_say(&c, CHANGE(2, PART(1, 14, 1, 20, "causal")));
    client_check(&c);
    CLIENT_EXPECT(&c, "\"version\": 2, \"diagnostics\": []");
    client_say(&c,
               "{'jsonrpc': '2.0', 'method': 'textDocument/didClose', 'params': {'textDocument': {'uri': '" CLIENT_URI
               "'}}}");
    CLIENT_EXPECT(&c, "\"diagnostics\": []");
    client_end(&c);
}

/* A second place is related information; a warning of planning comes with the second step. */
Test(edited, related_and_warnings) {
    lsp_client c = client_start("");
    client_open(&c, "mask a = k <= q\nmask a = true\nplan { mask = a }\n");
    client_check(&c);
    CLIENT_EXPECT(&c, "\"relatedInformation\": [{\"location\": {\"uri\": \"" CLIENT_URI
                      "\", \"range\": {\"start\": {\"line\": "
                      "0, \"character\": 5}");
    CLIENT_EXPECT(&c, "first defined here");
    client_say(&c, CHANGE(2, "{'text': 'batch { lengths = [256] }\\nplan { mask = window(w = 8); block = 128 }\\n"
                             "cluster { gpus = 8 }\\n'}"));
    client_check(&c);
    CLIENT_EXPECT(&c, "\"severity\": 2");
    client_end(&c);
}

/* A mask that takes too long to decide is no error of the program. */
Test(edited, too_long) {
    lsp_client c = client_start("");
    client_open(&c, "batch { lengths = [16M] }\nmask odd = (q * k) % 1009 < 13\nplan { mask = odd }\n");
    client_check(&c);
    CLIENT_EXPECT(&c, "\"severity\": 3, \"code\": \"E405\"");
    CLIENT_EXPECT_NOT(&c, "\"severity\": 1");
    client_end(&c);
}

Test(edited, late) {
    lsp_client c = client_start("");
    client_open(&c, good);
    lsp_job *job = lsp_next_job(c.server);
    lsp_job_run(job);
    lsp_job_done(c.server, job);
    cr_assert_eq(lsp_next_job(c.server), job);
    lsp_job_late(job);
    client_check(&c);
    CLIENT_EXPECT(&c, "\"severity\": 3, \"code\": \"E405\"");
    client_end(&c);
}

/* The text changes while it is checked: what the job found out is not told. */
Test(edited, overtaken) {
    lsp_client c = client_start("");
    client_open(&c, "plan { mask = cuasal }\n");
    lsp_job *job = lsp_next_job(c.server);
    client_say(&c, CHANGE(2, PART(0, 14, 0, 20, "full")));
    lsp_job_run(job);
    lsp_job_done(c.server, job);
    client_hear(&c);
    CLIENT_EXPECT_NOT(&c, "cuasal");
    client_check(&c);
    CLIENT_EXPECT(&c, "\"version\": 2, \"diagnostics\": []");
    /* it is closed, and opened again */
    client_say(&c, CHANGE(3, PART(0, 14, 0, 18, "no")));
    job = lsp_next_job(c.server);
    client_say(&c,
               "{'jsonrpc': '2.0', 'method': 'textDocument/didClose', 'params': {'textDocument': {'uri': '" CLIENT_URI
               "'}}}");
    client_open(&c, good);
    lsp_job_run(job);
    lsp_job_done(c.server, job);
    client_check(&c);
    CLIENT_EXPECT_NOT(&c, "'no'");
    client_end(&c);
}

/* Changes that cannot be made close the document, and the log says so. */
Test(edited, lost) {
    static const char *const changes[] = {CHANGE(2, "{}"), CHANGE(2, "7"), CHANGE(2, PART(1, 0, 0, 0, "x")),
                                          CHANGE(2, "{'text': 'a', 'range': {'start': {'line': -1, 'character': 0}}}")};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        lsp_client c = client_start("");
        client_open(&c, good);
        client_say(&c, "%s", changes[i]);
        CLIENT_EXPECT(&c, "window/logMessage");
        client_ask(&c, "formatting", 0, 0, "");
        CLIENT_EXPECT(&c, "is not open");
        client_end(&c);
    }
}

/* Random edits of a text of many kinds of characters, in both encodings, leave what the same edits leave here. */
Test(edited, random_edits) {
    static const char *const pieces[] = {"a", "\u00e9", "\u20ac", "\U0001F600", "\n", "\r\n", "", "xyz\n\U0001F600"};
    enum { PIECES = sizeof pieces / sizeof *pieces, EDITS = 2000, MOST = 4096 };
    unsigned seed = 7;
    for (int encoding = LSP_UTF16; encoding <= LSP_UTF8; encoding++) {
        char own[MOST] = "", next[MOST];
        lsp_document *doc = lsp_document_new(CLIENT_URI, "", 0, (lsp_encoding)encoding);
        for (int i = 0; i < EDITS; i++) {
            size_t place[2];
            for (int end = 0; end < 2; end++) {
                seed = seed * 1103515245 + 12345;
                place[end] = strlen(own) ? (seed >> 8) % (strlen(own) + 1) : 0;
                while (((unsigned char)own[place[end]] & 0xc0) == 0x80) place[end]--; /* where a character begins */
                if (place[end] && own[place[end]] == '\n' && own[place[end] - 1] == '\r') place[end]--;
            }
            if (place[0] > place[1] || place[1] - place[0] > 12) place[1] = place[0];
            const char *new = pieces[seed / 64 % PIECES];
            if (strlen(own) > MOST - 64) break;
            snprintf(next, sizeof next, "%.*s%s%s", (int)place[0], own, new, own + place[1]);
            const size_t begin = lsp_lines_offset(&doc->lines, lsp_lines_position(&doc->lines, place[0]));
            const size_t end = lsp_lines_offset(&doc->lines, lsp_lines_position(&doc->lines, place[1]));
            cr_assert(lsp_document_edit(doc, begin, end, new, strlen(new)));
            strcpy(own, next);
            cr_assert(doc->bytes.size == strlen(own) && (!*own || !memcmp(doc->bytes.at, own, strlen(own))), "edit %d",
                      i);
        }
        lsp_document_free(doc);
    }
}

Test(edited, uris) {
    static const struct {
        const char *uri, *path;
    } cases[] = {{"file:///a/b.fcp", "/a/b.fcp"}, {"file://localhost/a", "/a"}, {"file:///a%20b%C3%a9", "/a b\u00e9"},
                 {"file:///a%2", "/a%2"},         {"file:///a%zz%", "/a%zz%"},  {"file:///a%00", "/a%00"},
                 {"untitled:Untitled-1", ""},     {"file://host/a", ""},        {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = lsp_uri_path(cases[i].uri);
        cr_expect_str_eq(path, cases[i].path);
        free(path);
    }
}

Test(edited, formatting) {
    lsp_client c = client_start("");
    client_open(&c, "# \u00e4\nbatch {\n    lengths = [1]\n}\n\nplan { mask=causal }\n");
    client_ask(&c, "formatting", 0, 0, "");
    CLIENT_EXPECT(
        &c, "[{\"range\": {\"start\": {\"line\": 5, \"character\": 0}, \"end\": {\"line\": 6, \"character\": 0}}, "
            "\"newText\": \"plan {\\u000a    mask = causal\\u000a}\\u000a\"}]");
    client_say(&c, CHANGE(2, "{'text': 'plan { mask=causal }\\n\\nmask a = true\\n'}"));
    client_ask(&c, "formatting", 0, 0, "");
    CLIENT_EXPECT(&c,
                  "{\"line\": 0, \"character\": 0}, \"end\": {\"line\": 1, \"character\": 0}}, \"newText\": \"plan {");
    client_say(&c, CHANGE(2, "{'text': 'plan {\\n    mask = causal\\n}\\n'}"));
    client_ask(&c, "formatting", 0, 0, "");
    CLIENT_EXPECT(&c, "\"result\": []");
    client_say(&c, CHANGE(2, "{'text': 'plan { mask = = }'}"));
    client_ask(&c, "formatting", 0, 0, "");
    CLIENT_EXPECT(&c, "-32803");
    client_end(&c);
}
