/* args.c: reads the command line, and prints help.
 *
 * Options may stand anywhere, as `--name value`, `--name=value`, `-x value` or `-xvalue`; `--` ends them. The first
 * argument that is no option is a command. If there is no such command, it is the file to compile. An option with a
 * value may be given once. But -D may be given any number of times, and --field, --sweep and --dtable once for each
 * name. A negative position of `explain`, such as -3, is not taken for an option, because no option is a digit.
 *
 * Gives: a cmd_line whose strings point into argv; or E001.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "compiler/base/diag.h"
#include "compiler/syntax/words.h"

const cmd_command_row cmd_commands[CMD_COUNT] = {
#define X(id, name, function, synopsis, help) [CMD_##id] = {name, synopsis, help},
    CMD_COMMANDS(X)
#undef X
};

const cmd_option_row cmd_options[OPT_COUNT] = {
#define X(id, name, letter, kind, metavar, commands, help) [OPT_##id] = {name, letter, kind, metavar, commands, help},
    CMD_OPTIONS(X)
#undef X
};

/* The option whose name is nearest to what was typed; NULL: none is near. */
static const char *near_option(const char *name, size_t length) {
    const char *names[OPT_COUNT];
    for (int i = 0; i < OPT_COUNT; i++) names[i] = cmd_options[i].name;
    return diag_nearest(name, length, names, OPT_COUNT);
}

/* What other programs call an option or command, and how it is done here. */
static const struct {
    const char *words; /* separated by blanks */
    const char *here;
} option_words[] =
    {
        {"v verbose debug", "--explain says what auto tried, and --dump what each pass made"},
        {"V", "--version prints it"},
        {"device", "run computes on the processor, and with --backend cuda on GPUs"},
},
  command_words[] = {
      {"build make plan", "fcpc FILE.fcp -o PLAN compiles; it takes no command"},
      {"lint check validate test", "fcpc verify proves a plan, and fcpc fmt --check looks at a program's layout"},
      {"draw plot view viz visualize render", "fcpc show draws masks and plans"},
      {"bench benchmark predict simulate profile estimate",
       "fcpc sim predicts how long a plan takes, and fcpc run measures it"},
      {"trace", "fcpc sim --trace writes what it predicts, and fcpc run --trace what it measures"},
      {"disasm inspect print cat info", "fcpc dump prints a plan, and compiling prints its figures"},
      {"codegen kernels ptx cubin", "fcpc emit prints kernels"},
      {"exec execute launch", "fcpc run executes a plan"},
      {"format", "fcpc fmt lays out a program"},
      {"why", "fcpc explain says why a query sees a key"},
      {"server daemon", "fcpc serve plans for clients of a socket"},
      {"version", "fcpc --version prints it"},
      {"status env selftest about", "fcpc doctor says what this machine has, and what it lacks"},
};
enum {
    OPTION_WORDS = sizeof option_words / sizeof *option_words,
    COMMAND_WORDS = sizeof command_words / sizeof *command_words
};

/* Is the word, of `length` bytes, one of a list that blanks separate? */
static bool is_word_of(const char *words, const char *word, size_t length) {
    for (size_t size; *words; words += size + (words[size] == ' ')) {
        size = strcspn(words, " ");
        if (size == length && memcmp(words, word, size) == 0) return true;
    }
    return false;
}

/* The error of an option that there is not. It may be a setting of the program, by its name here or elsewhere, or what
 * other programs call an option; else the nearest option is named. */
static fcp_code unknown_option(const char *dashes, const char *name, size_t length, fcp_error *err) {
    const int shown = length < 100 ? (int)length : 100;
    char key[40] = "";
    for (size_t i = 0; i < length && length < sizeof key; i++) key[i] = name[i] == '-' ? '_' : name[i];
    for (int k = 0; k < KEY_COUNT; k++)
        if (words_same(words_keys[k].name, key))
            return fcp_fail(err, FCP_E_USAGE, "unknown option %s%.*s; it is a setting of the program: -D %s.%s=...",
                            dashes, shown, name, words_sections[words_keys[k].section], key);
    for (int i = 0; i < OPTION_WORDS; i++)
        if (is_word_of(option_words[i].words, name, length))
            return fcp_fail(err, FCP_E_USAGE, "unknown option %s%.*s; %s", dashes, shown, name, option_words[i].here);
    char *setting = length > 1 ? fcpc_foreign_word(key, FCPC_FOREIGN_KEY, NULL) : NULL;
    if (setting) {
        fcp_fail(err, FCP_E_USAGE, "unknown option %s%.*s; in the program %.300s", dashes, shown, name, setting);
        free(setting);
        return FCP_E_USAGE;
    }
    const char *near = length > 1 ? near_option(name, length) : NULL;
    if (near) return fcp_fail(err, FCP_E_USAGE, "unknown option %s%.*s; did you mean --%s?", dashes, shown, name, near);
    return fcp_fail(err, FCP_E_USAGE, "unknown option %s%.*s; fcpc --help lists them", dashes, shown, name);
}

static const char *near_command(const char *name) {
    const char *names[CMD_COUNT + 1];
    for (int i = 0; i < CMD_COUNT; i++) names[i] = cmd_commands[i].name;
    names[CMD_COUNT] = "help";
    return diag_nearest(name, strlen(name), names, CMD_COUNT + 1);
}

/* Does one of `given` have the same name before its `=`? */
static bool is_named(const char *const *given, size_t count, const char *value) {
    const size_t length = strcspn(value, "=");
    for (size_t i = 0; i < count; i++)
        if (strcspn(given[i], "=") == length && !memcmp(given[i], value, length)) return true;
    return false;
}

/* Stores the value of an option, which is "" if it takes none. A second value for the same thing is an error, because
 * one of the two would be lost silently. Only for -D a later one wins: it changes the program once more. */
static fcp_code note_value(cmd_line *out, int found, const char *value, fcp_error *err) {
    const cmd_option_row *o = &cmd_options[found];
    const char **list = NULL;
    size_t *count = NULL;
    switch (found) {
    case OPT_DEFINE: list = out->defines, count = &out->define_count; break;
    case OPT_FIELD: list = out->fields, count = &out->field_count; break;
    case OPT_SWEEP: list = out->sweeps, count = &out->sweep_count; break;
    case OPT_DTABLE: list = out->dtables, count = &out->dtable_count; break;
    default: break;
    }
    if (list && found != OPT_DEFINE && is_named(list, *count, value))
        return fcp_fail(err, FCP_E_USAGE, "--%s is given twice for %.*s", o->name, (int)strcspn(value, "="),
                        value);
    if (!list && out->value[found] && o->kind != CMD_FLAG) {
        const bool shown = *value && *out->value[found];
        return fcp_fail(err, FCP_E_USAGE, "--%s is given twice%s%.100s%s%.100s", o->name, shown ? ": " : "",
                        shown ? out->value[found] : "", shown ? " and " : "", shown ? value : "");
    }
    if (found == OPT_DTABLE && (*value == '=' || !strchr(value, '=') || !strchr(value, '=')[1]))
        return fcp_fail(err, FCP_E_USAGE, "--%s is %.100s: expected NAME=FILE", o->name, value);
    out->value[found] = value;
    if (list) list[(*count)++] = value;
    return FCP_OK;
}

/* Reads the option at argv[*i]. If its value is argv[*i + 1], *i is advanced to it. */
static fcp_code read_option(int argc, char **argv, int *i, cmd_line *out, fcp_error *err) {
    const char *arg = argv[*i], *value = NULL;
    int found = -1;
    if (arg[1] == '-') {
        const char *name = arg + 2, *equals = strchr(name, '=');
        size_t length = equals ? (size_t)(equals - name) : strlen(name);
        for (int o = 0; o < OPT_COUNT; o++)
            if (strlen(cmd_options[o].name) == length && memcmp(cmd_options[o].name, name, length) == 0) found = o;
        if (found < 0) return unknown_option("--", name, length, err);
        if (equals) value = equals + 1;
        if (value && cmd_options[found].kind == CMD_FLAG)
            return fcp_fail(err, FCP_E_USAGE, "--%s takes no value", cmd_options[found].name);
    } else {
        for (int o = 0; o < OPT_COUNT; o++)
            if (cmd_options[o].letter && cmd_options[o].letter == arg[1]) found = o;
        if (found < 0) return unknown_option("-", arg + 1, strcspn(arg + 1, "="), err);
        if (arg[2]) {
            if (cmd_options[found].kind == CMD_FLAG) return fcp_fail(err, FCP_E_USAGE, "-%c takes no value", arg[1]);
            value = arg + 2;
        }
    }
    const char *metavar = cmd_options[found].metavar;
    if (cmd_options[found].kind == CMD_SWITCH) { /* the word stands in brackets: "[all]" */
        const char *next = value ? value : *i + 1 < argc ? argv[*i + 1] : "";
        bool is_word = strlen(next) == strlen(metavar) - 2 && memcmp(next, metavar + 1, strlen(next)) == 0;
        if (value && !is_word)
            return fcp_fail(err, FCP_E_USAGE, "--%s takes no value but %.*s, not '%.100s'", cmd_options[found].name,
                            (int)strlen(metavar) - 2, metavar + 1, value);
        if (!value && is_word) (*i)++;
        return note_value(out, found, is_word ? next : "", err);
    }
    if (cmd_options[found].kind != CMD_FLAG) {
        const char *name = cmd_options[found].name;
        if (!value && *i + 1 < argc) value = argv[++*i];
        if (!value || !*value)
            return fcp_fail(err, FCP_E_USAGE, "--%s needs a value: --%s %s", name, name, cmd_options[found].metavar);
    }
    return note_value(out, found, value ? value : "", err);
}

/* Reads the arguments that are not options: [command] [file], or `help [topic]`. */
static fcp_code read_words(cmd_line *out, const char *const *words, int count, fcp_error *err) {
    int at = 0;
    if (count > 0 && strcmp(words[0], "help") == 0) {
        out->help = true;
        out->help_topic = count > 1 ? words[1] : NULL;
        return count > 2 ? fcp_fail(err, FCP_E_USAGE, "help takes one command") : FCP_OK;
    }
    out->command = CMD_COMPILE;
    for (int c = 0; count > 0 && c < CMD_COUNT; c++)
        if (strcmp(words[0], cmd_commands[c].name) == 0) {
            out->command = (cmd_command)c;
            at = 1;
        }
    if (out->value[OPT_HELP]) {
        out->help = true;
        out->help_topic = at ? words[0] : NULL;
        return FCP_OK;
    }
    if (out->value[OPT_VERSION]) return FCP_OK;
    const char *synopsis = cmd_commands[out->command].synopsis;
    if (!*synopsis || *synopsis == '[') { /* it takes no file */
        if (count == at) return FCP_OK;
        return fcp_fail(err, FCP_E_USAGE, "%s takes no file: '%.100s' is surplus", words[0], words[at]);
    }
    if (at == count)
        return fcp_fail(err, FCP_E_USAGE, "%s needs a file: fcpc %s%s%s; fcpc --help says more", at ? words[0] : "fcpc",
                        at ? words[0] : "", at ? " " : "", synopsis);
    out->file = words[at];
    /* what neither exists nor looks like a path may be a command with a typing error */
    if (at == 0 && strcmp(words[0], "-") != 0 && !strpbrk(words[0], "./") && access(words[0], F_OK) != 0) {
        for (int i = 0; i < COMMAND_WORDS; i++)
            if (is_word_of(command_words[i].words, words[0], strlen(words[0])))
                return fcp_fail(err, FCP_E_USAGE, "unknown command '%.100s'; %s", words[0], command_words[i].here);
        const char *near = near_command(words[0]);
        if (near) return fcp_fail(err, FCP_E_USAGE, "unknown command '%.100s'; did you mean '%s'?", words[0], near);
        if (count > 1) return fcp_fail(err, FCP_E_USAGE, "unknown command '%.100s'; fcpc --help lists them", words[0]);
    }
    if (at && out->command == CMD_EXPLAIN) {
        if (count != at + 3)
            return fcp_fail(err, FCP_E_USAGE, "explain needs a mask and two positions: fcpc explain %s",
                            cmd_commands[CMD_EXPLAIN].synopsis);
        out->more[0] = words[at + 1];
        out->more[1] = words[at + 2];
        return FCP_OK;
    }
    const char *bare = NULL; /* a -D without a value, which may stand behind it */
    for (size_t i = 0; i < out->define_count; i++)
        if (!strchr(out->defines[i], '=')) bare = out->defines[i];
    if (count > at + 1 && bare)
        return fcp_fail(err, FCP_E_USAGE, "-D %.60s has no value: write -D %.60s=VALUE, without a blank", bare, bare);
    if (count > at + 1)
        return fcp_fail(err, FCP_E_USAGE, "one file at a time: '%.100s' is surplus", words[at + 1]);
    return FCP_OK;
}

/* The error that `option` does not belong to `command`. It names what the user may have meant: a setting, or another
 * command. */
static fcp_code not_of_command(cmd_option option, int command, fcp_error *err) {
    const char *name = cmd_options[option].name;
    if (option == OPT_STRATEGY)
        return fcp_fail(err, FCP_E_USAGE, "--strategy is not an option of %s; say -D plan.strategy=NAME",
                        cmd_commands[command].name);
    char files[120] = "";
    for (int o = 0, used = 0; option == OPT_OUTPUT || option == OPT_OUT ? o < OPT_COUNT : 0; o++) {
        if (cmd_options[o].kind != CMD_WRITE || !(cmd_options[o].commands & 1u << command)) continue;
        if ((size_t)used < sizeof files)
            used +=
                snprintf(files + used, sizeof files - (size_t)used, "%s--%s", used ? ", " : "", cmd_options[o].name);
    }
    if (*files)
        return fcp_fail(err, FCP_E_USAGE, "--%s is not an option of %s, which writes the files of %s", name,
                        cmd_commands[command].name, files);
    int taker = 0;
    while (!(cmd_options[option].commands & 1u << taker)) taker++;
    return fcp_fail(err, FCP_E_USAGE, "--%s is not an option of %s; %s takes it", name, cmd_commands[command].name,
                    cmd_commands[taker].name);
}

fcp_code cmd_parse(int argc, char **argv, cmd_line *out, fcp_error *err) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0) out->json = true;
        if (strcmp(argv[i], "-q") == 0 || strcmp(argv[i], "--quiet") == 0) out->quiet = true;
    }
    size_t room = (size_t)argc + 1;
    const char **words = calloc(5 * room, sizeof *words);
    fcp_code code = words ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    out->lists = words;
    if (words) out->defines = words + room, out->fields = words + 2 * room, out->sweeps = words + 3 * room;
    if (words) out->dtables = words + 4 * room;
    int count = 0;
    bool only_words = false;
    for (int i = 1; i < argc && code == FCP_OK; i++) {
        const bool digit = argv[i][0] == '-' && argv[i][1] >= '0' && argv[i][1] <= '9';
        const bool word = only_words || (digit && count && !strcmp(words[0], "explain"));
        if (!only_words && strcmp(argv[i], "--") == 0) only_words = true;
        else if (!word && argv[i][0] == '-' && argv[i][1]) code = read_option(argc, argv, &i, out, err);
        else words[count++] = argv[i];
    }
    if (code == FCP_OK) code = read_words(out, words, count, err);
    if (code == FCP_OK && !out->help && !out->value[OPT_VERSION]) {
        for (int o = 0; o < OPT_COUNT && code == FCP_OK; o++)
            if (out->value[o] && !(cmd_options[o].commands & 1u << out->command))
                code = not_of_command((cmd_option)o, out->command, err);
        if (code == FCP_OK && out->value[OPT_CHECK] && out->value[OPT_NO_CHECK])
            code = fcp_fail(err, FCP_E_USAGE, "--check and --no-check exclude each other");
        const char *lengths = out->value[OPT_LENGTHS];
        if (code == FCP_OK && lengths && !strcmp(lengths, "-") && !strcmp(out->file, "-"))
            code = fcp_fail(err, FCP_E_USAGE, "standard input can be read once, and both FILE and --lengths are '-'");
        if (code == FCP_OK && lengths && !lengths[strspn(lengths, "0123456789KMGx:,[] ")] && access(lengths, F_OK) != 0)
            code = fcp_fail(err, FCP_E_USAGE,
                            "--lengths takes a file of lengths, and there is no '%.60s'; lengths "
                            "themselves are given as -D 'batch.lengths=[1000, 2000]'",
                            lengths);
    }
    out->json = out->value[OPT_JSON] != NULL || (code != FCP_OK && out->json);
    out->quiet = out->value[OPT_QUIET] != NULL || (code != FCP_OK && out->quiet);
    return code;
}

void cmd_line_free(cmd_line *line) { free(line->lists); }

/* Reads a number in decimal at *at and moves on behind it. False: there is none, or it has more than 64 bits. */
static bool read_digits(const char **at, uint64_t *out) {
    const char *begin = *at;
    bool fits = true;
    *out = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        fits &= !__builtin_mul_overflow(*out, 10, out) && !__builtin_add_overflow(*out, (uint64_t)(**at - '0'), out);
    return fits && *at > begin;
}

fcp_code cmd_number(const cmd_line *line, cmd_option option, uint64_t low, uint64_t high, uint64_t fallback,
                    uint64_t *out, fcp_error *err) {
    const char *typed = line->value[option];
    if (!typed) {
        *out = fallback;
        return FCP_OK;
    }
    uint64_t value;
    const char *end = typed;
    if (!read_digits(&end, &value) || *end || value < low || value > high)
        return fcp_fail(err, FCP_E_USAGE, "--%s is %.60s: expected a number from %llu to %llu",
                        cmd_options[option].name, typed, (unsigned long long)low, (unsigned long long)high);
    *out = value;
    return FCP_OK;
}

fcp_code cmd_fuse(const cmd_line *line, fcp_fuse *out, fcp_error *err) {
    const char *typed = line->value[OPT_FUSE];
    *out = typed && strcmp(typed, "pass") == 0 ? FCP_FUSE_PASS : FCP_FUSE_STAGES;
    if (!typed || *out == FCP_FUSE_PASS || strcmp(typed, "stages") == 0) return FCP_OK;
    return fcp_fail(err, FCP_E_USAGE, "--fuse is stages or pass, not '%.60s'", typed);
}

fcp_code cmd_position(const char *what, const char *typed, uint64_t *out, fcp_error *err) {
    uint64_t value;
    const char *at = typed;
    bool good = read_digits(&at, &value);
    static const char suffixes[] = "KMG";
    const char *suffix = *at ? strchr(suffixes, *at) : NULL;
    if (suffix) at++, good &= !__builtin_mul_overflow(value, UINT64_C(1) << 10 * (suffix - suffixes + 1), &value);
    if (!good || *at || value > INT64_MAX)
        return fcp_fail(err, FCP_E_USAGE, "%s is %.60s: expected a whole number, perhaps with K, M or G", what, typed);
    *out = value;
    return FCP_OK;
}

fcp_code cmd_range(const cmd_line *line, cmd_option option, uint64_t *from, uint64_t *to, fcp_error *err) {
    const char *typed = line->value[option], *dots = typed ? strstr(typed, "..") : NULL;
    char first[32] = "";
    *from = *to = 0;
    if (!typed) return FCP_OK;
    if (dots && (size_t)(dots - typed) < sizeof first) memcpy(first, typed, (size_t)(dots - typed));
    if (!dots || (first[0] && cmd_position(cmd_options[option].name, first, from, NULL) != FCP_OK) ||
        (dots[2] && cmd_position(cmd_options[option].name, dots + 2, to, NULL) != FCP_OK) || (dots[2] && *from >= *to))
        return fcp_fail(err, FCP_E_USAGE, "--%s is %.60s: expected a range such as 0..4K", cmd_options[option].name,
                        typed);
    return FCP_OK;
}

enum { HELP_COLUMN = 31, HELP_WIDTH = 100 };

/* Prints words from column `column` on, where further lines begin too. */
static void print_wrapped(const char *words, int column) {
    int width = (int)cmd_width(), at = column;
    if (width > HELP_WIDTH) width = HELP_WIDTH;
    for (bool first = true; *words; first = false) {
        int size = (int)strcspn(words, " ");
        if (!first && at + 1 + size > width) at = printf("\n%*s", column, "") - 1;
        else if (!first) at += printf(" ");
        at += printf("%.*s", size, words);
        words += size + (words[size] == ' ');
    }
    putchar('\n');
}

static void print_options(unsigned wanted) {
    for (int o = 0; o < OPT_COUNT; o++) {
        const cmd_option_row *option = &cmd_options[o];
        if (!(option->commands & wanted) || (wanted == CMD_ALL && option->commands < CMD_BATCH)) continue;
        int at = printf(option->letter ? "  -%c, " : "      ", option->letter);
        at += printf("--%s%s%s", option->name, option->kind == CMD_FLAG ? "" : " ",
                     option->kind == CMD_FLAG ? "" : option->metavar);
        if (at + 1 < HELP_COLUMN) printf("%*s", HELP_COLUMN - at, "");
        else printf("\n%*s", HELP_COLUMN, "");
        print_wrapped(option->help, HELP_COLUMN);
    }
}

/* Pages for other programs to read. `fcpc help NAME` prints them. */
static const struct {
    const char *name;
    void (*print)(void);
} pages[] = {
    {"bash-completion", cmd_bash_completion}, {"zsh-completion", cmd_zsh_completion}, {"man", cmd_man_page}};
enum { PAGES = sizeof pages / sizeof *pages };

fcp_code cmd_help(const cmd_line *line, fcp_error *err) {
    for (int i = 0; line->help_topic && i < PAGES; i++) {
        if (strcmp(pages[i].name, line->help_topic) != 0) continue;
        pages[i].print();
        return cmd_flush(err);
    }
    for (int c = 0; line->help_topic && c < CMD_COUNT; c++) {
        if (strcmp(cmd_commands[c].name, line->help_topic) != 0) continue;
        printf("usage: fcpc %s%s%s\n\n%s\n\noptions:\n", c == CMD_COMPILE ? "" : cmd_commands[c].name,
               c == CMD_COMPILE ? "" : " ", cmd_commands[c].synopsis, cmd_commands[c].help);
        print_options(1u << c);
        if (c == CMD_SERVE)
            printf(
                "\nA request is an object: program (its text) or file (its path), define ([\"cluster.gpus=8\", ...]), "
                "lengths, queries,\nfields ({\"doc\": [0, 0, 1, ...]}), plan (the path to write it to), "
                "max_seconds,\nid (comes back). "
                "Its answer is the object\nthat fcpc FILE --json prints, with id and digest; or error, with code and "
                "place.\nRequests of different clients are planned side by side, those of one client in their "
                "order.\n");
        if (c == CMD_RUN)
            printf(
                "\nTensors are .npy files over the packed batch: float32 for a plan of fp32, float16 for fp16, and "
                "with\n--bf16 uint16 for bf16. Keys and values have kv_heads heads.\n");
        return cmd_flush(err);
    }
    if (line->help_topic)
        return fcp_fail(err, FCP_E_USAGE, "there is no command '%.100s'; fcpc --help lists them", line->help_topic);
    printf("fcpc %s: a compiler for context-parallel attention\n\nusage:\n", FCPC_VERSION);
    for (int c = 0; c < CMD_COUNT; c++) {
        printf("  fcpc %s%s%s\n        %s\n", c == CMD_COMPILE ? "" : cmd_commands[c].name,
               c == CMD_COMPILE ? "" : " ", cmd_commands[c].synopsis, cmd_commands[c].help);
    }
    printf(
        "  fcpc help COMMAND\n        print all options of a command\n"
        "  fcpc help bash-completion|zsh-completion|man\n        print the completion of a shell, or the man page\n\n"
        "options of every command (fmt, calibrate, serve and doctor take neither -D nor --lengths):\n");
    print_options(CMD_ALL);
    printf("\nexit status: 0 done, 1 a mistake in the input, 2 a wrong command line, 3 a bug in fcpc\n");
    return cmd_flush(err);
}
