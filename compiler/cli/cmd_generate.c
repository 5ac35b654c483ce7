/* cmd_generate.c: prints the completion for bash and zsh, and the man page, from the tables of commands and options.
 *
 * No option is named in this file. So an option that is added to the table in cmd.h is completed and documented too.
 */
#include <string.h>

#include "compiler/cli/cmd.h"

/* Whether the table lists the words that the option's value may be, as in "host|cuda". */
static bool has_choices(const cmd_option_row *o) { return o->kind == CMD_WORD && strchr(o->metavar, '|'); }
/* Returns whether a word always follows the option. After a switch it may be missing, so completion does not expect
 * one. */
static bool takes_value(const cmd_option_row *o) { return o->kind != CMD_FLAG && o->kind != CMD_SWITCH; }
static bool is_path(const cmd_option_row *o) { return o->kind == CMD_READ || o->kind == CMD_WRITE; }
static bool belongs(const cmd_option_row *o, int command) { return o->commands & 1u << command; }

static void print_choices(const cmd_option_row *o, const char *between) {
    for (const char *c = o->metavar; *c; c++) {
        if (*c == '|') fputs(between, stdout);
        else putchar(*c);
    }
}

static void print_commands(const char *before) {
    for (int c = 0; c < CMD_COUNT; c++) printf("%s%s", before, cmd_commands[c].name);
}

/* --- bash --------------------------------------------------------------------------------------------------------- */

/* Prints the option as a pattern of bash's `case`: "-o | --output". */
static void print_pattern(const cmd_option_row *o) {
    if (o->letter) printf("-%c | ", o->letter);
    printf("--%s", o->name);
}

void cmd_bash_completion(void) {
    puts("# bash completion for fcpc. Made by `fcpc help bash-completion` from its table of options: do not edit.\n"
         "_fcpc() {\n"
         "    local cur prev word options command=compile skip= i\n"
         "    COMPREPLY=()\n"
         "    cur=${COMP_WORDS[COMP_CWORD]}\n"
         "    prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
         "    if [ \"$cur\" = = ]; then cur=\n"
         "    elif [ \"$prev\" = = ]; then prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    fi\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do");
    puts("        word=${COMP_WORDS[i]}\n"
         "        if [ -n \"$skip\" ]; then skip=; continue; fi\n"
         "        case $word in");
    fputs("            ", stdout);
    for (int o = 0, first = 1; o < OPT_COUNT; o++) {
        if (!takes_value(&cmd_options[o])) continue;
        if (!first) fputs(" | ", stdout);
        first = 0;
        print_pattern(&cmd_options[o]);
    }
    puts(") [ \"${COMP_WORDS[i + 1]}\" = = ] && i=$((i + 1)); skip=1 ;;\n"
         "            -*) ;;");
    fputs("            help", stdout);
    print_commands(" | ");
    puts(") command=$word; break ;;\n"
         "            *) break ;;\n"
         "        esac\n"
         "    done\n"
         "    case $prev in");
    for (int o = 0; o < OPT_COUNT; o++) {
        const cmd_option_row *option = &cmd_options[o];
        if (!takes_value(option)) continue;
        fputs("        ", stdout);
        print_pattern(option);
        if (is_path(option))
            puts(") compopt -o filenames 2> /dev/null; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;");
        else if (has_choices(option)) {
            fputs(") COMPREPLY=($(compgen -W '", stdout);
            print_choices(option, " ");
            puts("' -- \"$cur\")); return ;;");
        } else puts(") return ;;");
    }
    puts("    esac\n"
         "    case $command in");
    for (int c = 0; c < CMD_COUNT; c++) {
        printf("        %s) options='", cmd_commands[c].name);
        for (int o = 0; o < OPT_COUNT; o++)
            if (belongs(&cmd_options[o], c)) printf(" --%s", cmd_options[o].name);
        puts("' ;;");
    }
    fputs("        help) COMPREPLY=($(compgen -W '", stdout);
    print_commands(" ");
    puts(" bash-completion zsh-completion man' -- \"$cur\")); return ;;\n"
         "    esac\n"
         "    case $cur in\n"
         "        -*) COMPREPLY=($(compgen -W \"$options\" -- \"$cur\")); return ;;\n"
         "    esac\n"
         "    compopt -o filenames 2> /dev/null\n"
         "    COMPREPLY=($(compgen -f -- \"$cur\"))");
    fputs("    if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY+=($(compgen -W 'help", stdout);
    print_commands(" ");
    puts("' -- \"$cur\")); fi\n"
         "}\n"
         "complete -F _fcpc fcpc");
}

/* --- zsh ---------------------------------------------------------------------------------------------------------- */

/* Prints text for a single-quoted argument of _arguments, which gives brackets and colons a meaning. */
static void print_zsh(const char *at) {
    for (; *at; at++) {
        if (*at == '\'') fputs("'\\''", stdout);
        else {
            if (strchr("[]:\\", *at)) putchar('\\');
            putchar(*at);
        }
    }
}

static void print_zsh_option(const cmd_option_row *o) {
    const char *equals = takes_value(o) ? "=" : "";
    fputs("            ", stdout);
    if (strchr("D", o->letter) && o->letter) printf("'*'{-%c,--%s%s}'[", o->letter, o->name, equals);
    else if (o->letter) printf("'(-%c --%s)'{-%c,--%s%s}'[", o->letter, o->name, o->letter, o->name, equals);
    else if (!strcmp(o->name, "field")) printf("'*--%s%s[", o->name, equals);
    else printf("'--%s%s[", o->name, equals);
    print_zsh(o->help);
    putchar(']');
    if (takes_value(o)) {
        putchar(':');
        print_zsh(has_choices(o) ? o->name : o->metavar);
        putchar(':');
        if (is_path(o)) fputs("_files", stdout);
        if (has_choices(o)) {
            putchar('(');
            print_choices(o, " ");
            putchar(')');
        }
    }
    puts("' \\");
}

void cmd_zsh_completion(void) {
    puts("#compdef fcpc\n"
         "# zsh completion for fcpc. Made by `fcpc help zsh-completion` from its table of options: do not edit.\n"
         "_fcpc() {\n"
         "    local -a commands\n"
         "    local command=compile\n"
         "    commands=(");
    for (int c = 0; c < CMD_COUNT; c++) {
        printf("        '%s:", cmd_commands[c].name);
        print_zsh(cmd_commands[c].help);
        puts("'");
    }
    puts("        'help:print help'\n"
         "    )\n"
         "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
         "        _describe command commands\n"
         "        _files\n"
         "        return\n"
         "    fi\n"
         "    if [[ -n ${commands[(r)$words[2]:*]} ]]; then\n"
         "        command=$words[2]\n"
         "        shift words\n"
         "        (( CURRENT-- ))\n"
         "    fi\n"
         "    case $command in");
    for (int c = 0; c < CMD_COUNT; c++) {
        printf("        (%s) _arguments -s -S \\\n", cmd_commands[c].name);
        for (int o = 0; o < OPT_COUNT; o++)
            if (belongs(&cmd_options[o], c)) print_zsh_option(&cmd_options[o]);
        puts("            '*:file:_files' ;;");
    }
    fputs("        (help) _values topic", stdout);
    print_commands(" ");
    puts(" bash-completion zsh-completion man ;;\n"
         "    esac\n"
         "}\n"
         "_fcpc \"$@\"");
}

/* --- the man page ------------------------------------------------------------------------------------------------- */

/* Prints text of the page. A line must not begin with a dot or a quote, which troff takes for a request. */
static void print_man(const char *at) {
    if (*at == '.' || *at == '\'') fputs("\\&", stdout);
    for (; *at; at++) {
        if (*at == '\\') fputs("\\e", stdout);
        else if (*at == '-') fputs("\\-", stdout);
        else putchar(*at);
    }
}

/* Prints one option and what it does. */
static void print_man_option(const cmd_option_row *o) {
    fputs(".TP\n.B ", stdout);
    if (o->letter) printf("\\-%c, ", o->letter);
    fputs("\\-\\-", stdout);
    print_man(o->name);
    if (o->kind != CMD_FLAG) {
        fputs(" \\fI", stdout);
        print_man(o->metavar);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    print_man(o->help);
    puts(".");
}

void cmd_man_page(void) {
    printf(".\\\" Made by `fcpc help man` from its table of options: do not edit.\n"
           ".TH FCPC 1 \"\" \"fcpc %s\" \"User Commands\"\n"
           ".SH NAME\n"
           "fcpc \\- a compiler for context\\-parallel attention\n"
           ".SH SYNOPSIS\n", FCPC_VERSION);
    for (int c = 0; c < CMD_COUNT; c++) {
        const bool named = c != CMD_COMPILE;
        printf("%s.B fcpc%s%s\n", c ? ".br\n" : "", named ? " " : "", named ? cmd_commands[c].name : "");
        print_man(cmd_commands[c].synopsis);
        putchar('\n');
    }
    puts(".br\n.B fcpc help\n[COMMAND]\n"
         ".SH DESCRIPTION\n"
         "A program says which query attends to which key, on what cluster, and over which batch of sequences.\n"
         "fcpc compiles it to a plan: who owns and who computes what, and which transfers take place in which round.\n"
         "Before a plan is written, it is proven that each tile is computed once, on data that is there.\n"
         "A plan can be looked at, executed and checked.\n"
         ".PP\n"
         "A program is accepted wherever a plan is, and compiled on the way.\n"
         "FILE may be \\-, which is standard input; so may the file of \\-\\-lengths.\n"
         ".SH COMMANDS");
    for (int c = 0; c < CMD_COUNT; c++) {
        printf(".SS fcpc %s%s", c == CMD_COMPILE ? "" : cmd_commands[c].name, c == CMD_COMPILE ? "" : " ");
        print_man(cmd_commands[c].synopsis);
        putchar('\n');
        print_man(cmd_commands[c].help);
        puts(".");
        for (int o = 0; o < OPT_COUNT; o++)
            if (belongs(&cmd_options[o], c) && cmd_options[o].commands != CMD_ALL) print_man_option(&cmd_options[o]);
    }
    puts(".SS Options of every command");
    for (int o = 0; o < OPT_COUNT; o++)
        if (cmd_options[o].commands == CMD_ALL) print_man_option(&cmd_options[o]);
    puts(".SH EXIT STATUS\n"
         ".TP\n.B 0\nThe command did what it was asked.\n"
         ".TP\n.B 1\nSomething in the input is wrong, a file cannot be read or written, or a result is wrong.\n"
         ".TP\n.B 2\nThe command line is wrong.\n"
         ".TP\n.B 3\nThere is a bug in fcpc.\n"
         ".SH ENVIRONMENT\n"
         ".TP\n.B NO_COLOR\nIf it is set and not empty, nothing is printed in colour.\n"
         ".TP\n.B FCP_CACHE\nThe folder in which compiled kernels are kept.\n"
         ".TP\n.B FCP_OPENBLAS, FCP_CUDA_DRIVER, FCP_NVRTC, FCP_NCCL, FCP_MPI, FCPC_RSVG\n"
         "The file of the library to load, instead of the one that the system finds.\n"
         ".SH EXAMPLES\n.nf\n"
         "fcpc mask.fcp \\-o mask.plan\n"
         "fcpc show mask.plan\n"
         "fcpc run mask.plan\n"
         "fcpc explain 'lambda(sink = 64, window = 4096)' 9000 70\n"
         ".fi");
}
