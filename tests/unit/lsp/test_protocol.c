/* test_protocol.c: tests what a language server must answer whatever is sent to it: the order of its life, the numbers
 * of errors, pieces of messages, cancelled requests, and bytes that are no protocol. */
#include "tests/support/lsp_client.h"

#define FORMATTING "'method': 'textDocument/formatting', 'params': {'textDocument': {'uri': '" CLIENT_URI "'}}"

Test(protocol, life) {
    lsp_client c = {.server = lsp_server_new()};
    client_say(&c, "{'jsonrpc': '2.0', 'id': 'x\\u00e9', " FORMATTING "}");
    CLIENT_EXPECT(&c, "\"id\": \"x\\u00e9\", \"error\": {\"code\": -32002");
    client_say(&c, "{'jsonrpc': '2.0', 'method': 'textDocument/didOpen', 'params': {}}");
    cr_expect_str_empty(c.heard.at);
    client_say(&c, "{'jsonrpc': '2.0', 'id': 1, 'method': 'initialize', 'params': {'capabilities': {}}}");
    CLIENT_EXPECT(&c, "\"positionEncoding\": \"utf-16\"");
    client_say(&c, "{'jsonrpc': '2.0', 'id': 2, 'method': 'initialize', 'params': {}}");
    CLIENT_EXPECT(&c, "-32600");
    client_say(&c, "{'jsonrpc': '2.0', 'id': 3, 'method': 'shutdown'}");
    CLIENT_EXPECT(&c, "\"id\": 3, \"result\": null");
    client_say(&c, "{'jsonrpc': '2.0', 'id': 4, " FORMATTING "}");
    CLIENT_EXPECT(&c, "-32600");
    cr_expect_eq(lsp_server_state(c.server), LSP_RUNNING);
    client_say(&c, "{'jsonrpc': '2.0', 'method': 'exit'}");
    cr_expect_eq(lsp_server_state(c.server), LSP_ENDED);
    client_end(&c);
    c = client_start("");
    client_say(&c, "{'jsonrpc': '2.0', 'method': 'exit'}");
    cr_expect_eq(lsp_server_state(c.server), LSP_LEFT);
    client_end(&c);
}

Test(protocol, utf8_where_it_is_offered) {
    lsp_client c = client_start("'general': {'positionEncodings': ['utf-32', 'utf-8', 'utf-16']}");
    CLIENT_EXPECT(&c, "\"positionEncoding\": \"utf-8\"");
    client_end(&c);
}

Test(protocol, wrong_messages) {
    static const struct {
        const char *message, *answer;
    } cases[] = {
        {"{", "\"id\": null, \"error\": {\"code\": -32700"},
        {"[1, 2", "-32700"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 'a'} x", "-32700"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 'a\\u0000'}", "-32700"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': '\xff'}", "-32700"},
        {"[]", "\"id\": null, \"error\": {\"code\": -32600"},
        {"7", "-32600"},
        {"{'id': 5, 'method': 'shutdown'}", "\"id\": 5, \"error\": {\"code\": -32600"},
        {"{'jsonrpc': '1.0', 'id': 5, 'method': 'shutdown'}", "-32600"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 8}", "-32600"},
        {"{'jsonrpc': '2.0', 'id': {}, 'method': 'shutdown'}", "\"id\": null, \"error\": {\"code\": -32600"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 'textDocument/none'}", "\"id\": 5, \"error\": {\"code\": -32601"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 'exit'}", "-32601"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 'textDocument/formatting'}", "-32602"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 'textDocument/formatting', 'params': 3}", "-32602"},
        {"{'jsonrpc': '2.0', 'id': 5, 'method': 'textDocument/formatting', 'params': {'textDocument': {'uri': 'a:b'}}}",
         "'a:b' is not open"},
    };
    lsp_client c = client_start("");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client_say(&c, "%s", cases[i].message);
        CLIENT_EXPECT(&c, cases[i].answer);
    }
    /* notifications are not answered, nor are answers */
    client_say(&c, "{'jsonrpc': '2.0', 'method': '$/none'}");
    cr_expect_str_empty(c.heard.at);
    client_say(&c, "{'jsonrpc': '2.0', 'id': 1, 'result': null}");
    cr_expect_str_empty(c.heard.at);
    cr_expect_eq(lsp_server_state(c.server), LSP_RUNNING);
    client_end(&c);
}

Test(protocol, deep_values) {
    lsp_client c = client_start("");
    text deep = {0};
    text_puts(&deep, "{'jsonrpc': '2.0', 'id': 5, 'method': 'shutdown', 'params': ");
    text_pad(&deep, '[', 4000);
    text_add(&deep, "", 1);
    client_say(&c, "%s", deep.at);
    text_free(&deep);
    CLIENT_EXPECT(&c, "nested too deep");
    client_end(&c);
}

Test(protocol, wrong_frames) {
    static const char *const cases[] = {"Content-Length: x\r\n\r\n{}",
                                        "Content-Length: -1\r\n\r\n{}",
                                        "Content-Length: 2 3\r\n\r\n{}",
                                        "Content-Length:\r\n\r\n{}",
                                        "Content-Length: 99999999999999999999999999\r\n\r\n",
                                        "Content-Length: 67108865\r\n\r\n",
                                        "Content-Type: a\r\n\r\n{}",
                                        "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
                                        "\r\n\r\n"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lsp_client c = client_start("");
        client_feed(&c, cases[i], strlen(cases[i]));
        cr_expect_eq(lsp_server_state(c.server), LSP_BROKEN, "%s", cases[i]);
        CLIENT_EXPECT(&c, "\"id\": null, \"error\": {\"code\": -32700");
        client_end(&c);
    }
    lsp_client c = client_start("");
    char endless[5000];
    memset(endless, 'a', sizeof endless);
    client_feed(&c, endless, sizeof endless);
    cr_expect_eq(lsp_server_state(c.server), LSP_BROKEN);
    client_end(&c);
}

/* Messages that come byte by byte, with headers in any case and order, are those that come at once. */
Test(protocol, pieces) {
    static const char both[] = "content-TYPE: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length:   44\r\n\r\n"
                               "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"shutdown\"}"
                               "Content-Length: 33\r\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"exit\"}";
    lsp_client c = client_start("");
    for (const char *at = both; *at; at++) lsp_feed(c.server, at, 1);
    client_hear(&c);
    CLIENT_EXPECT(&c, "\"id\": 5, \"result\": null");
    cr_expect_eq(lsp_server_state(c.server), LSP_ENDED);
    client_end(&c);
}

/* What is complete before a broken frame is still answered. */
Test(protocol, before_the_break) {
    static const char bytes[] = "Content-Length: 44\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"shutdown\"}"
                                "Content-Length: no\r\n\r\n";
    lsp_client c = client_start("");
    client_feed(&c, bytes, strlen(bytes));
    CLIENT_EXPECT(&c, "\"id\": 5, \"result\": null");
    CLIENT_EXPECT(&c, "-32700");
    cr_expect_eq(lsp_server_state(c.server), LSP_BROKEN);
    client_end(&c);
}

Test(protocol, cancelled) {
    static const char *const messages[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"textDocument/formatting\",\"params\":{}}",
        "{\"jsonrpc\":\"2.0\",\"id\":\"5\",\"method\":\"textDocument/formatting\",\"params\":{}}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"$/cancelRequest\",\"params\":{\"id\":5}}"};
    lsp_client c = client_start("");
    text both = {0};
    for (int i = 0; i < 3; i++) text_printf(&both, "Content-Length: %zu\r\n\r\n%s", strlen(messages[i]), messages[i]);
    client_feed(&c, both.at, both.size);
    CLIENT_EXPECT(&c, "\"id\": 5, \"error\": {\"code\": -32800");
    CLIENT_EXPECT(&c, "\"id\": \"5\", \"error\": {\"code\": -32602");
    client_feed(&c, both.at, both.size / 2 - 20); /* the first alone: what was cancelled is forgotten */
    CLIENT_EXPECT(&c, "\"id\": 5, \"error\": {\"code\": -32602");
    text_free(&both);
    client_end(&c);
}
