/* test_complete.c: tests what is offered where the cursor, written |, stands; and that the compiler takes every value
 * that is offered for a key. */
#include "tests/support/lsp_client.h"

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_parts.h"
#include "compiler/syntax/words.h"

/* Opens the text without its |, and asks there. */
static void complete(lsp_client *c, const char *marked) {
    char bytes[1024];
    const size_t at = strcspn(marked, "|");
    unsigned line = 0, character = 0;
    cr_assert(strlen(marked) < sizeof bytes && marked[at]);
    snprintf(bytes, sizeof bytes, "%.*s%s", (int)at, marked, marked + at + 1);
    for (size_t i = 0; i < at; i++)
        if (marked[i] == '\n') line++, character = 0;
        else character++;
    client_open(c, bytes);
    client_ask(c, "completion", line, character, "");
}

/* `offered` and `not_offered` are labels, separated by blanks. */
static void expect_labels(const lsp_client *c, const char *marked, const char *labels, bool offered) {
    for (const char *at = labels; *at; at += strspn(at, " ")) {
        const size_t size = strcspn(at, " ");
        char label[80];
        snprintf(label, sizeof label, "{\"label\": \"%.*s\"", (int)size, at);
        cr_expect(client_hears(c, label) == offered, "%s: %s is%s offered", marked, label, offered ? " not" : "");
        at += size;
    }
}

Test(complete, places) {
    static const struct {
        const char *marked, *offered, *not_offered;
    } cases[] = {
        {"|", "model cluster batch plan mask score", "heads causal"},
        {"pl|", "plan mask", "heads"},
        {"plan { mask = full }\n|", "model mask", "plan heads"},
        {"plan { | }", "mask block strategy", "heads plan field"},
        {"plan { mask = causal; | }", "block", "mask"},
        {"plan {\n    mask = causal\n    b|\n}", "block", "mask"},
        {"plan { mask | }", "", "mask block causal"},
        {"batch { | }", "lengths field", "table heads"},
        {"model { | }", "heads table", "field"},
        {"mask own = true\nplan { mask = | }", "own causal lambda", "softcap block"},
        {"plan { mask = lam|", "lambda", "block"},
        {"plan { layers = [causal, | x 3] }", "window halo scan", "softcap"},
        {"plan { layers = [causal, scan(|) x 3] }", "heads head_dim value_dim decay reverse", "before window scalar"},
        {"plan { layers = [causal, scan(decay = |", "scalar vector matrix", "heads true"},
        {"plan { layers = [causal, scan(heads = 2, reverse = |", "true false", "heads scalar"},
        {"plan { layers = [causal, halo(before = 3, |", "before after channels", "decay window"},
        {"plan { layers = [halo(before = |", "", "before true"},
        {"mask halo(w = 3) = q - k < w\nplan { layers = [halo(|", "w", "before"},
        {"plan { mask = | }", "causal", "halo scan"},
        {"plan { score = | }", "softcap alibi", "causal"},
        {"plan { mask = lambda(|) }", "sink window", "causal q"},
        {"mask own(width = 3) = q - k < width\nplan { mask = own(w|", "width", "window"},
        {"batch { field doc = given }\nplan { mask = document(d = |) }", "doc", "d"},
        {"plan { strategy = | }", "fcp ulysses auto", "coalesce"},
        {"plan { strategy = fcp(|) }", "coalesce tolerance split", "shard fcp"},
        {"plan { strategy = cad(base = |) }", "caller fcp ring", "shard"},
        {"plan { strategy = ulysses + | }", "ring", "coalesce"},
        {"batch { lengths = | }", "file lognormal", "heads"},
        {"batch { lengths = lognormal(|) }", "median max", "over"},
        {"batch { field doc = given(over = |) }", "queries heads", "median"},
        {"batch { field doc = given; documents = | }", "doc", "file"},
        {"model { dtype = | }", "bf16 fp16 fp32", "auto"},
        {"cluster { gpu = | }", "h100 \\\"910c\\\"", "910c"},
        {"plan { layout = zigzag(|) }", "group", "zigzag"},
        {"mask a(w, v = 2) = k <= |\n    where { half = n / 2 }\nmask b(z) = true", "w v half q n min causal and",
         "s z exp softcap"},
        {"mask a = f(q) where { f(t) = | }", "t f q", "s"},
        {"mask a = f(q) where { | }", "", "q f"},
        {"mask a = causal and\n    |", "q", "model"},
        {"mask a = causal\n    and |", "q", "model"},
        {"mask a(|", "", "q w"},
        {"mask |", "", "q causal"},
        {"mask a = lambda(|", "window q", "model"},
        {"score a(c = 1.0) = s + |", "c s exp causal softcap", "model"},
        {"# mask a = |", "", "q model"},
        {"batch { lengths = file(\"|\") }", "", "lengths median"},
        {"batch { lengths = file(\"a\"); | }", "align", "lengths"},
    };
    lsp_client c = client_start("");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        complete(&c, cases[i].marked);
        expect_labels(&c, cases[i].marked, cases[i].offered, true);
        expect_labels(&c, cases[i].marked, cases[i].not_offered, false);
    }
    client_end(&c);
}

/* Does the compiler say that the key must be something else? */
static bool refuses(const char *bytes, const char *key) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    bool found = false;
    fcpc_parse_text("a", bytes, strlen(bytes), NULL, d, &p);
    for (size_t i = 0; i < fcpc_diagnostics_count(d); i++) {
        fcpc_diagnostic one;
        fcpc_diagnostics_get(d, i, &one);
        found |= !one.warning && strstr(one.message, key) && one.code != FCP_E_MISSING;
    }
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return found;
}

Test(complete, values_are_taken) {
    lsp_client c = client_start("");
    size_t count = 0;
    for (int i = 0; i < KEY_COUNT; i++) {
        const char *section_name = words_sections[words_keys[i].section], *key = words_keys[i].name;
        char bytes[300];
        snprintf(bytes, sizeof bytes, "%s { %s = | }", section_name, key);
        if (i == KEY_MASK || i == KEY_LAYERS || i == KEY_SCORE || i == KEY_LENGTHS) continue; /* need arguments */
        complete(&c, bytes);
        static const char label[] = "{\"label\": \"";
        for (const char *at = c.heard.at; (at = strstr(at, label)); count++) {
            char value[60] = "";
            at += sizeof label - 1;
            for (size_t n = 0; n < 59 && (*at != '"' || at[-1] == '\\'); at++)
                if (*at != '\\') value[n++] = *at;
            snprintf(bytes, sizeof bytes, "%s { %s = %s }", section_name, key, value);
            cr_expect(!refuses(bytes, key), "%s", bytes);
        }
    }
    cr_expect(count > 35, "%zu values", count);
    client_end(&c);
}

/* No byte of a program is a place at which asking fails, also of programs that are cut off. */
Test(complete, everywhere) {
    static const char bytes[] =
        "batch { field d = given(over = heads) }\nmask a(w = 1) = (q + k) / 2 < w or b(q)\n    where {\n"
        "  b(t) = t > 3 # \u00e4\n }\nplan { strategy = ulysses(inside = 2) + ring; mask = a(w = 2) }";
    for (size_t size = 0; size <= strlen(bytes); size++) {
        lsp_client c = client_start("'general': {'positionEncodings': ['utf-8']}");
        char part[400];
        snprintf(part, sizeof part, "%.*s", (int)size, bytes);
        if (size && ((unsigned char)bytes[size] & 0xc0) == 0x80) {
            client_end(&c);
            continue;
        }
        client_open(&c, part);
        unsigned line = 0, character = 0;
        for (size_t i = 0; i < size; i++)
            if (part[i] == '\n') line++, character = 0;
            else character++;
        client_ask(&c, "completion", line, character, "");
        CLIENT_EXPECT(&c, "\"result\": [");
        client_end(&c);
    }
}
