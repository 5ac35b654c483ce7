/* generate.c: writes the files by which editors colour fcp programs: `generate vim`, `generate textmate`, and `generate
 * codemirror` for the playground's editor.
 *
 * The words come from the tables that the scanner and the parser use (compiler/syntax/words.h), so a new word is
 * coloured once `make editors` was run. A test fails until it was (tests/unit/syntax/test_editors.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/text.h"
#include "compiler/syntax/words.h"

/* The groups that words are coloured by; an editor has a name for each. */
typedef enum group { CONTROL, DECLARATION, OPERATOR_WORD, BOOLEAN, KEY, FUNCTION, VARIABLE, UNIT, GROUPS } group;

static bool is_operator(const char *word) {
    for (int op = 0; op < OP_COUNT; op++)
        if (!strcmp(words_op_spelling((expr_op)op), word)) return true;
    return false;
}

static group group_of(const keyword *k) {
    if (k->name) return DECLARATION;
    if (is_operator(k->spelling)) return OPERATOR_WORD;
    return !strcmp(k->spelling, "true") || !strcmp(k->spelling, "false") ? BOOLEAN : CONTROL;
}

static void put_word(text *out, const char *between, const char *word) {
    if (out->size) text_puts(out, between);
    text_puts(out, word);
}

/* Lists the words of a group. Units that begin with a shorter unit come before it. */
static void list_words(group g, const char *between, text *out) {
    switch (g) {
    case KEY:
        for (int i = 0; i < KEY_COUNT; i++) put_word(out, between, words_keys[i].name);
        break;
    case FUNCTION:
        for (int i = 0; i < SCORE_BUILTINS; i++) put_word(out, between, words_functions[i]);
        for (int i = 0; i < SOURCE_COUNT; i++) put_word(out, between, words_sources[i]);
        for (int i = 0; i < LAYER_KINDS; i++) put_word(out, between, words_layers[i]);
        break;
    case VARIABLE:
        for (int i = 0; i < SCORE_VARIABLES; i++) put_word(out, between, words_variables[i]);
        for (int i = 0; i < OVER_COUNT; i++) put_word(out, between, words_over[i]); /* with the model's figures */
        put_word(out, between, words_real);
        break;
    case UNIT:
        for (int rates = 1; rates >= 0; rates--)
            for (int i = 0; i < UNIT_COUNT; i++)
                if ((strchr(words_units[i].spelling, '/') != NULL) == rates)
                    put_word(out, between, words_units[i].spelling);
        break;
    default:
        for (int i = 0; i < KEYWORD_COUNT; i++)
            if (group_of(&words_keywords[i]) == g) put_word(out, between, words_keywords[i].spelling);
        break;
    }
}

/* Writes `before`, the words of the group with `between` between them, and `after`. */
static void put_group(group g, const char *before, const char *between, const char *after, text *out) {
    text words = {0};
    list_words(g, between, &words);
    text_puts(out, before);
    text_add(out, words.at, words.size);
    text_puts(out, after);
    if (words.failed) out->failed = true;
    text_free(&words);
}

static void write_vim(text *out) {
    text_puts(out, "\" Vim syntax of fcp programs. Made by grammar/editors/generate.c (make editors); do not edit.\n"
                   "if exists('b:current_syntax')\n  finish\nendif\n\n");
    put_group(CONTROL, "syntax keyword fcpControl ", " ", "\n", out);
    put_group(DECLARATION, "syntax keyword fcpDeclaration ", " ", "\n", out);
    put_group(OPERATOR_WORD, "syntax keyword fcpOperator ", " ", "\n", out);
    put_group(BOOLEAN, "syntax keyword fcpBoolean ", " ", "\n", out);
    put_group(VARIABLE, "syntax match fcpVariable /\\<\\%(", "\\|", "\\)\\>/\n", out);
    put_group(FUNCTION, "syntax match fcpFunction /\\<\\%(", "\\|", "\\)\\ze\\s*(/\n", out);
    put_group(KEY, "syntax match fcpKey /\\<\\%(", "\\|", "\\)\\ze\\s*=[^=]/\n", out);
    text_puts(out, "syntax match fcpOperator /[-+*\\/%<>]\\|[<>=!]=\\|\\.\\./\n"
                   "syntax match fcpNumber /\\<\\d\\+[KMG]\\=\\>\\|\\<\\d\\+\\.\\d\\+\\%([eE][-+]\\=\\d\\+\\)\\=/\n");
    put_group(UNIT, "syntax match fcpUnit #\\%(\\d\\s*\\)\\@<=\\%(", "\\|", "\\)\\>#\n", out);
    text_puts(out, "syntax region fcpString start=/\"/ skip=/\\\\./ end=/\"/ oneline\n"
                   "syntax match fcpComment /#.*$/\n\n"
                   "highlight default link fcpControl Conditional\n"
                   "highlight default link fcpDeclaration Structure\n"
                   "highlight default link fcpOperator Operator\n"
                   "highlight default link fcpBoolean Boolean\n"
                   "highlight default link fcpVariable Identifier\n"
                   "highlight default link fcpFunction Function\n"
                   "highlight default link fcpKey Label\n"
                   "highlight default link fcpNumber Number\n"
                   "highlight default link fcpUnit Type\n"
                   "highlight default link fcpString String\n"
                   "highlight default link fcpComment Comment\n\n"
                   "let b:current_syntax = 'fcp'\n");
}

static void write_textmate(text *out) {
    static const struct { group g; const char *name, *before, *after; } groups[] = {
        {KEY, "support.type.property-name.fcp", "\\\\b(?:", ")\\\\b(?=\\\\s*=[^=])"},
        {CONTROL, "keyword.control.fcp", "\\\\b(?:", ")\\\\b"},
        {DECLARATION, "storage.type.fcp", "\\\\b(?:", ")\\\\b"},
        {OPERATOR_WORD, "keyword.operator.word.fcp", "\\\\b(?:", ")\\\\b"},
        {BOOLEAN, "constant.language.boolean.fcp", "\\\\b(?:", ")\\\\b"},
        {FUNCTION, "support.function.fcp", "\\\\b(?:", ")(?=\\\\s*\\\\()"},
        {UNIT, "keyword.other.unit.fcp", "(?<=\\\\d|\\\\d\\\\s)(?:", ")\\\\b"},
        {VARIABLE, "variable.language.fcp", "\\\\b(?:", ")\\\\b"}};
    text_puts(out, "{\n  \"information_for_contributors\": "
                   "\"Made by grammar/editors/generate.c (make editors); do not edit.\",\n"
                   "  \"name\": \"fcp\",\n  \"scopeName\": \"source.fcp\",\n"
                   "  \"fileTypes\": [\"fcp\"],\n  \"patterns\": [\n"
                   "    {\"name\": \"comment.line.number-sign.fcp\", \"match\": \"#.*$\"},\n"
                   "    {\"name\": \"string.quoted.double.fcp\", \"begin\": \"\\\"\", "
                   "\"end\": \"\\\"|$\", \"patterns\": "
                   "[{\"name\": \"constant.character.escape.fcp\", \"match\": \"\\\\\\\\.\"}]},\n");
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        text_printf(out, "    {\"name\": \"%s\", \"match\": \"", groups[i].name);
        put_group(groups[i].g, groups[i].before, "|", groups[i].after, out);
        text_puts(out, "\"},\n");
    }
    text_puts(out, "    {\"name\": \"constant.numeric.fcp\", \"match\": "
                   "\"\\\\b\\\\d+(?:\\\\.\\\\d+(?:[eE][-+]?\\\\d+)?|[KMG]\\\\b)?\"},\n"
                   "    {\"name\": \"keyword.operator.fcp\", \"match\": \"[<>=!]=|\\\\.\\\\.|[-+*/%<>]\"}\n  ]\n}\n");
}

/* A mode of CodeMirror 5 by its addon mode/simple.js, which tries the rules in turn where a token begins. */
static void write_codemirror(text *out) {
    static const struct {
        group g;
        const char *name, *before, *after;
    } groups[] = {{KEY, "property", "(?:", ")(?=\\s*=[^=])"}, {CONTROL, "keyword", "(?:", ")\\b"},
                  {DECLARATION, "def", "(?:", ")\\b"},        {OPERATOR_WORD, "keyword", "(?:", ")\\b"},
                  {BOOLEAN, "atom", "(?:", ")\\b"},           {FUNCTION, "builtin", "(?:", ")(?=\\s*\\()"},
                  {VARIABLE, "variable-2", "(?:", ")\\b"}};
    text_puts(out, "/* Made by grammar/editors/generate.c (make editors); do not edit. */\n"
                   "'use strict';\nCodeMirror.defineSimpleMode('fcp', {\n  start: [\n"
                   "    {regex: /#.*/, token: 'comment'},\n"
                   "    {regex: /\"(?:[^\\\\\"]|\\\\.)*\"?/, token: 'string'},\n");
    put_group(UNIT, "    {regex: new RegExp('(\\\\d+(?:\\\\.\\\\d+)?\\\\s*)(", "|",
              ")\\\\b'), token: ['number', 'type']},\n", out);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        text_puts(out, "    {regex: /");
        put_group(groups[i].g, groups[i].before, "|", groups[i].after, out);
        text_printf(out, "/, token: '%s'},\n", groups[i].name);
    }
    text_puts(out, "    {regex: /\\d+(?:\\.\\d+(?:[eE][-+]?\\d+)?|[KMG]\\b)?/, token: 'number'},\n"
                   "    {regex: /[A-Za-z_]\\w*/, token: null},\n"
                   "    {regex: /[<>=!]=|\\.\\.|[-+*\\/%<>]/, token: 'operator'},\n  ],\n"
                   "  meta: {lineComment: '#'},\n});\n");
}

int main(int count, char **args) {
    static const struct {
        const char *name;
        void (*write)(text *out);
    } all[] = {{"vim", write_vim}, {"textmate", write_textmate}, {"codemirror", write_codemirror}};
    text out = {0};
    bool known = false;
    for (size_t i = 0; i < sizeof all / sizeof *all && count == 2 && !known; i++)
        if ((known = !strcmp(args[1], all[i].name))) all[i].write(&out);
    char *made = text_take(&out);
    if (made) fputs(made, stdout);
    if (!known) fputs("usage: generate vim | textmate | codemirror\n", stderr);
    const bool good = made && known && !fflush(stdout) && !ferror(stdout);
    text_free(&out);
    free(made);
    return good ? 0 : 1;
}
