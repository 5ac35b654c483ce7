/* cmd.h: what the commands of `fcpc` share: the tables of commands and options, reading input, writing output, and
 * reporting errors.
 *
 * This is the program, not the library. So it may print, and it handles the process's signals and exit status.
 */
#ifndef FCPC_CLI_CMD_H
#define FCPC_CLI_CMD_H
#include <stdio.h>

#include "runtime/base/whole_file.h"
#include "compiler/auto/report.h"
#include "compiler/base/json.h"
#include "compiler/base/text.h"
#include "compiler/fcpc.h"
#include "compiler/simulate/simulate.h"

/* --- the command line (args.c) ------------------------------------------------------------------------------------ */

/* Commands: name, the function that does it, synopsis, one line of help. A synopsis that is empty or begins with an
 * option is that of a command that takes no file. */
#define CMD_COMMANDS(X)                                                                                                \
    X(COMPILE, "compile", cmd_compile, "FILE.fcp [-o PLAN [--slices]] [--explain]",                                    \
      "compile a program to a plan (the default command)")                                                             \
    X(SHOW, "show", cmd_show, "FILE.fcp|PLAN [--svg F] [--html F] [--png F] [--rows a..b] [--cols a..b] [--seq N]",    \
      "draw the mask, the placement and the pipeline; or a part of one sequence's mask, down to single pairs")         \
    X(VERIFY, "verify", cmd_verify, "FILE.fcp|PLAN [--pairs] [--slices]",                                              \
      "prove what a plan does, and say what was proven")                                                               \
    X(RUN, "run", cmd_run, "FILE.fcp|PLAN [--q F --k F --v F] [--out F] ...",                                          \
      "execute a plan; without input files, draw random inputs and check the result")                                  \
    X(EMIT, "emit", cmd_emit_kernels,                                                                                  \
      "FILE.fcp|PLAN [--arch sm_90a [--cost]] [-o F] [--pass forward|backward] [--backward KERNELS]",                  \
      "print the CUDA source of a plan's kernels; with --arch, compile it to a cubin, or count what its steps cost")   \
    X(DUMP, "dump", cmd_dump, "FILE.fcp|PLAN", "print all of a plan as text")                                          \
    X(SIM, "sim", cmd_sim,                                                                                             \
      "FILE.fcp|PLAN [--strategy a,b|all] [--sweep NAME=v,v,..] [--csv F] [--html F] [--trace F]",                     \
      "predict how long a plan takes, beside the bounds that no plan can beat; several strategies or settings "        \
      "side by side")                                                                                                  \
    X(CALIBRATE, "calibrate", cmd_calibrate, "ROWS.csv [-o FILE] [--hold-out N]",                                      \
      "fit a profile for sim to measured rows, and say how far each row is from it")                                   \
    X(FMT, "fmt", cmd_fmt, "FILE.fcp [--check] [--write]", "print a program in canonical layout, comments kept")       \
    X(LSP, "lsp", cmd_lsp, "[--stdio]",                                                                                \
      "answer an editor that speaks the Language Server Protocol, on standard input and output")                       \
    X(EXPLAIN, "explain", cmd_explain, "FILE.fcp|PLAN|MASK q k [-n LENGTH]",                                           \
      "say why query q sees key k, or does not, and what a score makes of the pair's logit")                           \
    X(SERVE, "serve", cmd_serve, "SOCKET",                                                                             \
      "plan batches for other programs: they connect to this unix socket, and send a JSON object on each line")        \
    X(DOCTOR, "doctor", cmd_doctor, "",                                                                                \
      "say what this machine has for each use of fcpc, what it lacks, and what to do about that: for bug reports; "    \
      "fails if plans cannot run on the processor")

typedef enum cmd_command {
#define X(id, name, function, synopsis, help) CMD_##id,
    CMD_COMMANDS(X)
#undef X
    CMD_COUNT
} cmd_command;

/* What the value of an option is. */
typedef enum cmd_kind {
    CMD_FLAG,  /* there is none */
    CMD_SWITCH, /* there is none, or the word that stands in brackets: "[all]" */
    CMD_WORD,  /* a word or number */
    CMD_READ,  /* the path of a file that is read */
    CMD_WRITE  /* the path of a file that is written: it may be none of those that are read */
} cmd_kind;

/* The table of options. The help texts, the man page and the completions of shells are made from it. An option has:
 *   - an id, a long name, and a letter or 0;
 *   - the kind of its value, and what help calls the value: "a|b" lists the words that it may be; NULL: it has none;
 *   - a bit for each command that takes it;
 *   - its help, a sentence without its full stop. */
#define CMD_BIT(id) (1u << CMD_##id)
#define CMD_ALL ((1u << CMD_COUNT) - 1)
/* bind a program to a batch */
#define CMD_BATCH (CMD_ALL & ~(CMD_BIT(FMT) | CMD_BIT(CALIBRATE) | CMD_BIT(SERVE) | CMD_BIT(LSP) | CMD_BIT(DOCTOR)))
#define CMD_OPTIONS(X)                                                                                                 \
    X(OUTPUT, "output", 'o', CMD_WRITE, "FILE", CMD_BIT(COMPILE) | CMD_BIT(EMIT) | CMD_BIT(CALIBRATE),                 \
      "write the plan or profile to this file; without it compile and calibrate write nothing, and emit prints to "    \
      "standard output")                                                                                               \
    X(HOLD_OUT, "hold-out", 0, CMD_WORD, "N", CMD_BIT(CALIBRATE),                                                      \
      "keep N rows of each pass and head_dim out of the fit, and say how far they are from it")                        \
    X(DUMP, "dump", 0, CMD_WORD, "PASS,...", CMD_BIT(COMPILE),                                                         \
      "print as text what these passes made: problem, placement, traffic, reshuffle, schedule, slots, rounds")         \
    X(EXPLAIN, "explain", 0, CMD_FLAG, NULL, CMD_BIT(COMPILE),                                                         \
      "print what strategy = auto or block = auto tried, and why each candidate lost")                                 \
    X(PAIRS, "pairs", 0, CMD_FLAG, NULL, CMD_BIT(VERIFY),                                                              \
      "also ask the mask which pairs it allows, and prove that the tiles have these and no others")                    \
    X(SLICES, "slices", 0, CMD_FLAG, NULL, CMD_BIT(COMPILE) | CMD_BIT(VERIFY),                                         \
      "write PLAN.slices beside the plan: the extract that each rank needs of it; verify: prove that PLAN.slices is "  \
      "of this plan")                                                                                                  \
    X(ARCH, "arch", 0, CMD_WORD, "ARCH", CMD_BIT(EMIT),                                                                \
      "compile for this architecture: sm_80, sm_90a, sm_100, ...; this needs NVRTC and no GPU")                        \
    X(BACKWARD, "backward", 0, CMD_WORD, "ordered|unordered|split", CMD_BIT(EMIT),                                     \
      "print these kernels of the backward pass instead of the plan's own")                                            \
    X(SOURCE, "source", 0, CMD_FLAG, NULL, CMD_BIT(EMIT),                                                              \
      "with --arch, print the source that would be compiled, not the cubin")                                           \
    X(COST, "cost", 0, CMD_FLAG, NULL, CMD_BIT(EMIT),                                                                  \
      "with --arch, print what a step of each kernel costs, by its machine code; this needs nvdisasm too")             \
    X(MMA_SYNC, "mma-sync", 0, CMD_FLAG, NULL, CMD_BIT(RUN) | CMD_BIT(EMIT),                                           \
      "use the CUDA kernels built on mma.sync, also on sm_90a, which has kernels of its own")                          \
    X(DEFINE, "define", 'D', CMD_WORD, "NAME=VALUE", CMD_BATCH,                                                        \
      "override a setting of the program: -D cluster.nodes=4 -D plan.block=2K")                                        \
    X(LENGTHS, "lengths", 0, CMD_READ, "FILE", CMD_BATCH,                                                              \
      "take the batch's lengths from this file: one length, or QUERIES:KEYS, on each line")                            \
    X(FIELD, "field", 0, CMD_WORD, "NAME=FILE", CMD_BATCH,                                                             \
      "take the values of a field from this file; run PLAN: find here the file that the plan was made from")           \
    X(MAX_SECONDS, "max-seconds", 0, CMD_WORD, "N", (CMD_BATCH & ~CMD_BIT(EXPLAIN)) | CMD_BIT(SERVE),                  \
      "refuse, before it begins, a mask that is estimated to take longer to decide than N seconds of one processor; "  \
      "the estimate counts work, so it is the same on every machine; verify --pairs: give up after as long")           \
    X(SVG, "svg", 0, CMD_WRITE, "FILE", CMD_BIT(SHOW), "draw into this SVG file")                                      \
    X(HTML, "html", 0, CMD_WRITE, "FILE", CMD_BIT(SHOW) | CMD_BIT(SIM),                                                \
      "draw into this HTML page, which needs no other file: mask, placement, and what each rank does when, "           \
      "as predicted")                                                                                                  \
    X(TRACE, "trace", 0, CMD_WRITE, "FILE", CMD_BIT(SIM) | CMD_BIT(RUN),                                               \
      "write what each rank does when to this file, for Perfetto: sim as predicted, run as measured")                  \
    X(RANKS, "ranks", 0, CMD_WORD, "A,B..C|all|busiest", CMD_BIT(SHOW) | CMD_BIT(SIM) | CMD_BIT(RUN),                  \
      "with --trace or --html: draw what these ranks do; busiest, the default beyond 64 ranks, are 8 and the median")  \
    X(LENGTH, "length", 'n', CMD_WORD, "TOKENS", CMD_BIT(EXPLAIN),                                                     \
      "assume a sequence of this length; the default is the batch's longest, or q or k + 1")                           \
    X(HEAD, "head", 0, CMD_WORD, "H", CMD_BIT(EXPLAIN) | CMD_BIT(SHOW),                                                \
      "explain or draw what this query head sees, for a mask that names h; explain's default is 0")                    \
    X(LOGIT, "s", 0, CMD_WORD, "LOGIT", CMD_BIT(EXPLAIN), "give the plan's score this scaled logit; default 0")        \
    X(PNG, "png", 0, CMD_WRITE, "FILE", CMD_BIT(SHOW), "draw into this PNG file; this needs librsvg")                  \
    X(ROWS, "rows", 0, CMD_WORD, "A..B", CMD_BIT(SHOW),                                                                \
      "draw only these queries, as in 0..4K; `A..` goes to the end. The sequence's first query is row 0, at whatever " \
      "position")                                                                                                      \
    X(COLS, "cols", 0, CMD_WORD, "A..B", CMD_BIT(SHOW), "draw only these keys")                                        \
    X(SEQ, "seq", 0, CMD_WORD, "N", CMD_BIT(SHOW) | CMD_BIT(EXPLAIN),                                                  \
      "choose this sequence of the batch, counted from 0; the default is the longest")                                 \
    X(LAYER, "layer", 0, CMD_WORD, "N",                                                                                \
      CMD_BIT(EXPLAIN) | CMD_BIT(SHOW) | CMD_BIT(VERIFY) | CMD_BIT(RUN) | CMD_BIT(SIM) | CMD_BIT(EMIT) |               \
          CMD_BIT(DUMP),                                                                                               \
      "of a program with layers, take this mask alone, counted from 1; the default of show, verify, run and sim is "   \
      "all of them, that of explain the first")                                                                        \
    X(WIDTH, "width", 0, CMD_WORD, "COLUMNS", CMD_BIT(SHOW) | CMD_BIT(EXPLAIN),                                        \
      "print this many columns; the default is the terminal's width, or 80")                                           \
    X(ASCII, "ascii", 0, CMD_FLAG, NULL, CMD_BIT(SHOW), "draw with ASCII characters only")                             \
    X(BACKEND, "backend", 0, CMD_WORD, "host|cuda", CMD_BIT(RUN),                                                      \
      "compute on the processor (host, the default) or on GPUs (cuda)")                                                \
    X(TRANSPORT, "transport", 0, CMD_WORD, "threads|mpi|tcp|local|nccl", CMD_BIT(RUN),                                 \
      "move data by this: for host threads (the default), mpi or tcp; for cuda local (the default) or nccl; mpi, tcp " \
      "and nccl need one process for each rank, started by mpirun or srun, tcp and nccl also by torchrun")             \
    X(ID_FILE, "id-file", 0, CMD_WORD, "PATH", CMD_BIT(RUN),                                                           \
      "nccl, tcp: let the processes find each other by this path, which all must see; needed only without MPI")        \
    X(PASS, "pass", 0, CMD_WORD, "forward|backward|forward,backward", CMD_BIT(RUN) | CMD_BIT(EMIT),                    \
      "run or emit these passes; running backward brings forward along; the default is what plan and inputs allow")    \
    X(Q, "q", 0, CMD_READ, "F.npy", CMD_BIT(RUN), "read the queries from this file: [tokens, heads, head_dim]")        \
    X(K, "k", 0, CMD_READ, "F.npy", CMD_BIT(RUN), "read the keys from this file: [tokens, kv_heads, head_dim]")        \
    X(V, "v", 0, CMD_READ, "F.npy", CMD_BIT(RUN), "read the values from this file: [tokens, kv_heads, value_dim]")     \
    X(DO, "do", 0, CMD_READ, "F.npy", CMD_BIT(RUN),                                                                    \
      "read the gradient of the output from this file, for the backward pass")                                         \
    X(DLSE, "dlse", 0, CMD_READ, "F.npy", CMD_BIT(RUN),                                                                \
      "read the gradient of the log-sum-exp from this file, for a plan with lse_gradient: [tokens, heads], float32; "  \
      "without it it is zero, and with drawn inputs it is drawn")                                                      \
    X(OUT, "out", 0, CMD_WRITE, "F.npy", CMD_BIT(RUN), "write the output to this file: [tokens, heads, value_dim]")    \
    X(LSE, "lse", 0, CMD_WRITE, "F.npy", CMD_BIT(RUN),                                                                 \
      "write the log-sum-exp of each row to this file: [tokens, heads], float32")                                      \
    X(MAX_LOGIT, "max-logit", 0, CMD_WRITE, "F.npy", CMD_BIT(RUN),                                                     \
      "write the largest logit of each head to this file, with the score and without the sink: [heads], float32")      \
    X(DQ, "dq", 0, CMD_WRITE, "F.npy", CMD_BIT(RUN), "write the gradient of the queries to this file")                 \
    X(DK, "dk", 0, CMD_WRITE, "F.npy", CMD_BIT(RUN), "write the gradient of the keys to this file")                    \
    X(DV, "dv", 0, CMD_WRITE, "F.npy", CMD_BIT(RUN), "write the gradient of the values to this file")                  \
    X(DSINK, "dsink", 0, CMD_WRITE, "F.npy", CMD_BIT(RUN),                                                             \
      "write the gradient of the sinks to this file: [heads], float32")                                                \
    X(DTABLE, "dtable", 0, CMD_WORD, "NAME=F.npy", CMD_BIT(RUN),                                                       \
      "write the gradient of a table of reals that the score reads to this file: of the table's shape, float32")       \
    X(BF16, "bf16", 0, CMD_FLAG, NULL, CMD_BIT(RUN),                                                                   \
      "read and write bfloat16 tensors as uint16; the plan's dtype must be bf16")                                      \
    X(SEED, "seed", 0, CMD_WORD, "N", CMD_BIT(RUN), "draw the inputs from this seed; default 1")                       \
    X(CHECK, "check", 0, CMD_SWITCH, "[all]", CMD_BIT(RUN) | CMD_BIT(FMT),                                             \
      "run: compare the result with the definition of attention (the default for drawn inputs), in a sample of "       \
      "rows where all would take long, or with `all` in every row; fmt: only say whether the layout differs")          \
    X(CHECK_WORK, "check-work", 0, CMD_WORD, "N", CMD_BIT(RUN),                                                        \
      "check a sample of rows if all take more multiplications than this, and one that takes about as many; the "      \
      "default is 30000000000, some 10 s of one core")                                                                 \
    X(WRITE, "write", 'w', CMD_FLAG, NULL, CMD_BIT(FMT), "replace the file by its canonical layout")                   \
    X(STDIO, "stdio", 0, CMD_FLAG, NULL, CMD_BIT(LSP),                                                                 \
      "use standard input and output, which lsp does anyway; some editors say so")                                     \
    X(NO_CHECK, "no-check", 0, CMD_FLAG, NULL, CMD_BIT(RUN), "do not compare the result with the definition")          \
    X(THREADS, "threads", 0, CMD_WORD, "N", CMD_BIT(RUN) | CMD_BIT(SERVE),                                             \
      "run: let this many ranks compute at once; serve: plan for this many clients at once; the default is the "       \
      "number of processors")                                                                                          \
    X(SM_PARTITION, "sm-partition", 0, CMD_WORD, "auto|grid|green|none", CMD_BIT(RUN),                                 \
      "cuda: leave the plan's margin to communication by a smaller grid, by green contexts, or not; auto "             \
      "(the default) is green where it works")                                                                         \
    X(FUSE, "fuse", 0, CMD_WORD, "stages|pass", CMD_BIT(RUN) | CMD_BIT(EMIT),                                          \
      "cuda: compute a pass in a launch for each stage (the default), or in one launch for all stages, or as many as " \
      "can be, which wait within for what they read")                                                                  \
    X(TIMEOUT, "timeout", 0, CMD_WORD, "SECONDS", CMD_BIT(RUN),                                                        \
      "fail when a rank has waited this long for another, and no rank has computed or moved bytes; default 120")       \
    X(STRATEGY, "strategy", 0, CMD_WORD, "A,B|all", CMD_BIT(SIM),                                                      \
      "plan and predict each of these strategies: fcp,zigzag; all: every strategy there is")                           \
    X(SWEEP, "sweep", 0, CMD_WORD, "NAME=V,V,..", CMD_BIT(SIM),                                                        \
      "plan and predict with each of these values of a setting; several sweeps: every combination, at most 4096")      \
    X(CSV, "csv", 0, CMD_WRITE, "FILE", CMD_BIT(SIM), "write one row a candidate and pass to this file")               \
    X(PROFILE, "profile", 0, CMD_READ, "FILE", CMD_BATCH & ~CMD_BIT(EXPLAIN),                                          \
      "take the times of kernels from this profile, for what sim and --html predict, for what auto chooses, for the "  \
      "ranks of groups, and for the margin: a name such as h200, or a file; the default is the program's gpu")         \
    X(NETWORK, "network", 0, CMD_WORD, "rounds|shared|fluid|pulls", CMD_BIT(SIM),                                      \
      "let transfers meet as in the plan's rounds (the default); in its rounds, sharing ports and uplinks fairly; "    \
      "all of a stage at once; or without rounds, each rank asking for one block after the other in random order")     \
    X(INCAST, "incast", 0, CMD_WORD, "PERCENT", CMD_BIT(SIM),                                                          \
      "with --network fluid or pulls: let a port at which n transfers meet lose PERCENT * (n - 1) / n of its rate; "   \
      "by "                                                                                                            \
      "default it loses nothing")                                                                                      \
    X(WITHOUT, "without", 0, CMD_WORD, "overlap,hiding,fusion", CMD_BIT(SIM),                                          \
      "leave out what the plan does: overlap of communication and computing, hiding of the reshuffle, several "        \
      "tiles in a launch")                                                                                             \
    X(NOISE, "noise", 0, CMD_WORD, "PERCENT", CMD_BIT(SIM),                                                            \
      "let every kernel and transfer take up to this much longer, drawn at random, and print the range of times")      \
    X(SEEDS, "seeds", 0, CMD_WORD, "N", CMD_BIT(SIM),                                                                  \
      "with --noise or --network pulls, draw this many times; the default is 16 and 1")                                \
    X(JSON, "json", 0, CMD_FLAG, NULL, CMD_ALL, "print one JSON object on standard output")                            \
    X(QUIET, "quiet", 'q', CMD_FLAG, NULL, CMD_ALL, "print no summary and no progress")                                \
    X(HELP, "help", 'h', CMD_FLAG, NULL, CMD_ALL, "print this help")                                                   \
    X(VERSION, "version", 0, CMD_FLAG, NULL, CMD_ALL, "print the version")

typedef enum cmd_option {
#define X(id, name, letter, kind, metavar, commands, help) OPT_##id,
    CMD_OPTIONS(X)
#undef X
    OPT_COUNT
} cmd_option;

/* A row of the two tables. */
typedef struct cmd_command_row {
    const char *name, *synopsis, *help;
} cmd_command_row;
typedef struct cmd_option_row {
    const char *name;
    char letter;
    cmd_kind kind;
    const char *metavar;
    unsigned commands;
    const char *help;
} cmd_option_row;
extern const cmd_command_row cmd_commands[CMD_COUNT];
extern const cmd_option_row cmd_options[OPT_COUNT];

typedef struct cmd_line {
    cmd_command command;
    const char *file;              /* the one positional argument, "-" for standard input; NULL with help and version */
    const char *more[2];           /* the two positions that explain takes */
    const char *help_topic;        /* `fcpc help TOPIC` */
    bool help;                     /* --help, `fcpc help` */
    const char *value[OPT_COUNT];  /* NULL: not given; a flag that was given is "" */
    const char **lists;            /* the memory of the following lists; malloc'd */
    const char **defines;          /* the values of all -D, in order */
    size_t define_count;
    const char **fields;           /* of every --field, likewise */
    size_t field_count;
    const char **sweeps;           /* of every --sweep, likewise */
    size_t sweep_count;
    const char **dtables; /* of every --dtable, likewise; each is NAME=FILE */
    size_t dtable_count;
    bool json, quiet;
} cmd_line;

/* Reads the command line. --json and -q count even when the rest is wrong, so that the error is told as asked. */
fcp_code cmd_parse(int argc, char **argv, cmd_line *out, fcp_error *err);
void cmd_line_free(cmd_line *line);
/* Reads an option whose value is a whole number from low to high; `fallback` if it is not given. */
fcp_code cmd_number(const cmd_line *line, cmd_option option, uint64_t low, uint64_t high, uint64_t fallback,
                    uint64_t *out, fcp_error *err);
/* Reads --fuse; FCP_FUSE_STAGES if it is not given. */
fcp_code cmd_fuse(const cmd_line *line, fcp_fuse *out, fcp_error *err);

/* Reads a position or length: a whole number, perhaps with K, M or G. `what` is its name in messages. */
fcp_code cmd_position(const char *what, const char *typed, uint64_t *out, fcp_error *err);

/* Reads an option such as --rows A..B, a half-open range of positions. B may be missing: then *to is 0. */
fcp_code cmd_range(const cmd_line *line, cmd_option option, uint64_t *from, uint64_t *to, fcp_error *err);

/* Prints to stdout the help of everything, of a command, of a code of an error, or one of the pages of cmd_generate.c,
 * as help_topic says. */
fcp_code cmd_help(const cmd_line *line, fcp_error *err);
/* Prints to stdout what a code such as E203 means (error_help.c). False: there is no such code. */
bool cmd_error_help(const char *code);

/* Pages made from the tables, on stdout (cmd_generate.c). */
void cmd_bash_completion(void);
void cmd_zsh_completion(void);
void cmd_man_page(void);

/* --- input (input.c) ---------------------------------------------------------------------------------------------- */

/* What a command works on: a plan read from a file, or made from a program in memory. */
typedef struct cmd_input {
    bool opened, is_plan, in_memory; /* what cmd_open found out; in_memory: `bytes` are those of the file */
    text bytes;
    fcp_plan *plan;                 /* of a program with layers: that of the first mask */
    /* of all its masks: how many layers have it, and what planning it took */
    struct cmd_layer { fcp_plan *plan; uint32_t times; fcpc_times spent; } *layers;
    uint32_t layer_count;           /* 0: the plan names one mask, or --layer chose one */
    fcpc_times times;               /* of a plan from a file: verify and total are those of loading it */
    bool compiled;                  /* from a program */
    fcpc_diagnostics *diagnostics;  /* errors and warnings of a program; NULL for a plan file */
    size_t told;                    /* so many of them have been printed */
    bool silent;                    /* warnings of the program are kept, and not printed */
    bool json_told;                 /* the JSON object has been printed, with the error in it */
    auto_report tried;              /* of a program with strategy = auto */
    struct cmd_slices {
        char *path;
        uint8_t root[FCP_DIGEST_BYTES];
    } * slices;                     /* of each plan; NULL: not written */
    unsigned dump;                  /* the passes to print while a program is compiled: compiler/dump_passes.h */
} cmd_input;

/* Opens the file that the line names, and finds out whether it is a plan. What can be read only once (standard input, a
 * pipe, a device) is read now, up to the size that a program or plan may have. A second call does nothing. */
fcp_code cmd_open(const cmd_line *line, cmd_input *input, fcp_error *err);
/* Opens the file and makes a plan of it: loads a plan, or compiles a program. On return warnings have been printed, and
 * it is sure that no output of the line is a file that the program reads. */
fcp_code cmd_load(const cmd_line *line, cmd_input *input, fcp_error *err);
/* Opens the file and reads it into input->bytes: the text of a program. */
fcp_code cmd_source(const cmd_line *line, cmd_input *input, fcp_error *err);
/* Plans all masks of a program with layers into input. chosen: the number, from 1, of the only one that is kept; 0: all
 * are kept. Errors in the batch are added to input->diagnostics. */
struct compile_watch;
fcp_code cmd_plan_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         struct compile_watch *watch, uint32_t chosen, cmd_input *input);
/* Checks the paths that a program with layers writes: -o a.plan makes a.plan, a.2.plan, ... None may be a file that is
 * read. */
fcp_code cmd_protect_layers(const cmd_line *line, const fcpc_program *program, fcp_error *err);
/* Adds members to the open object: those that `fcpc FILE --json` prints about the plans of `input`. They are the
 * members of the first plan and, if the program has layers, `layers` with those of each plan. path: what -o said, or
 * NULL. digest: whether the digests of plans are members. It ends with FCP_E_INTERRUPTED if *stop becomes something
 * other than 0; stop may be NULL. */
fcp_code cmd_plans_json(const cmd_input *input, const char *path, bool digest, const volatile int *stop, json *j,
                        fcp_error *err);
/* Writes the files of all plans. None gets its name before all are complete. `regular`: a pipe or device is an error.
 */
fcp_code cmd_write_plans(const cmd_input *input, const char *path, bool regular, fcp_error *err);
/* The path of a plan's extracts, PLAN.slices; free() it. NULL: out of memory. */
char *cmd_slices_path(const char *plan);
/* Reads --layer: the number of a mask, from 1; 0: all masks. */
fcp_code cmd_choose_layer(const cmd_line *line, const fcpc_program *program, uint32_t *out, fcp_error *err);
void cmd_input_free(cmd_input *input);
/* How many plans the input has, and number i of them: one, unless it is a program with layers. */
uint32_t cmd_plans(const cmd_input *input);
fcp_plan *cmd_plan(const cmd_input *input, uint32_t i);
/* How long the planning of plan number i took. */
const fcpc_times *cmd_times(const cmd_input *input, uint32_t i);
/* Adds a description of plan number i, if the program has layers: "mask 2 of 2, 3 layers: window(w = 60)". */
fcp_code cmd_layer_text(const cmd_input *input, uint32_t i, text *out, fcp_error *err);
/* Adds the same description as the members `layers` and `mask` of the open object. */
fcp_code cmd_layer_json(const cmd_input *input, uint32_t i, json *j, fcp_error *err);
/* The name of the file in diagnostics: "<stdin>" for "-". */
const char *cmd_name(const cmd_line *line);
/* The path by which the file is opened: that of standard input for "-". */
const char *cmd_path(const char *typed);
/* The options of the line in the structure that the library takes. */
fcpc_options cmd_settings(const cmd_line *line);
/* The limit of --max-seconds; 0: there is none. */
fcp_code cmd_max_seconds(const cmd_line *line, double *out, fcp_error *err);

/* Checks the files that a plan's fields and tables were read from (cmd_field.c): E322 if one has changed. They are
 * looked for where --field says, else at the path that the plan has, seen from the plan's folder and then from the
 * current one. */
fcp_code cmd_check_fields(const cmd_line *line, const fcp_plan *plan, fcp_error *err);
/* E011 if an output of the line is one of those files. */
fcp_code cmd_protect_fields(const cmd_line *line, const fcp_plan *plan, fcp_error *err);

/* --- reporting errors (messages.c) -------------------------------------------------------------------------------- */

/* Reports an error, once: as text on stderr and, with --json, as an object on stdout, unless input->json_told. */
void cmd_report(const cmd_line *line, cmd_input *input, const fcp_error *err);
/* Prints the diagnostics of a program on stderr, with source lines and carets, but for those that have been. */
void cmd_render(cmd_input *input);
/* Copies the first error among the diagnostics to *err; if there is none, *err gets the text of `code`. */
void cmd_first_error(const fcpc_diagnostics *d, fcp_code code, fcp_error *err);
/* Adds errors and warnings to an open object. "error": *err, unless err is NULL. "diagnostics": all errors and warnings
 * of `d` in the order in which they were found, and *err at the end if it is not one of them. "warnings": the warnings
 * alone. `d` may be NULL. */
void cmd_json_diagnostics(json *j, const fcpc_diagnostics *d, const fcp_error *err);
/* Prints the object on stdout and frees it. */
fcp_code cmd_json_print(json *j, fcp_error *err);
/* Ends the object with the diagnostics of `d`, which may be NULL, prints it and frees it. If `code` is an error, it
 * only frees the object, and returns the error. */
fcp_code cmd_json_finish(json *j, const fcpc_diagnostics *d, fcp_code code, fcp_error *err);
/* Prints a text on stdout or stderr and frees it. If `code` is an error, it only frees the text, and returns `code`. */
fcp_code cmd_text_print(text *t, FILE *to, fcp_code code, fcp_error *err);
/* Flushes stdout; an error if anything written there was lost. */
fcp_code cmd_flush(fcp_error *err);
uint32_t cmd_width(void);       /* of the terminal that stdout is; else 80 */
bool cmd_colour(FILE *stream); /* a terminal, and neither NO_COLOR nor TERM=dumb */
/* A digest in hexadecimal, in `out`. */
const char *cmd_hex(const uint8_t digest[FCP_DIGEST_BYTES], char out[2 * FCP_DIGEST_BYTES + 1]);
/* An fcp_emit for a FILE *; errors stay in the stream. */
void cmd_emit(void *context, const char *bytes, size_t size);

/* --- output (output.c) -------------------------------------------------------------------------------------------- */

/* Checks the paths of all outputs of the line, before anything is read. An output must not be another output, a file
 * that the line reads, a folder, a block device or a socket, and its folder must be there and writable. main calls this
 * for every command. */
fcp_code cmd_check_outputs(const cmd_line *line, fcp_error *err);
/* E011 if an output of the line is the file `path`, also if it is written by another name or through a link. `why` says
 * what the file is: "it is the input". */
fcp_code cmd_protect(const cmd_line *line, const char *path, const char *why, fcp_error *err);
/* Refuses a file that is an output of the line. It has the type of see_file in fcpc_options; the context is a cmd_line.
 */
fcp_code cmd_guard_file(void *context, const char *path, fcp_error *err);
/* The file of the plan of layer number n, from 0, of -o a.plan: a.plan, a.2.plan, a.3.plan. The caller frees
 * it; NULL: no memory. */
char *cmd_layer_path(const char *path, uint32_t n);
/* Makes the error E011 for a path. why: an errno value or FCP_NOT_REGULAR. */
fcp_code cmd_cannot_write(const char *path, int why, fcp_error *err);

/* A file that appears whole or not at all. Its bytes are written to a temporary file beside it, which cmd_file_commit
 * renames. An interruption removes the temporary file. */
typedef struct cmd_file {
    fcp_beside file; /* .fd takes the bytes */
    bool regular;    /* a pipe or device is refused; set before it is opened */
} cmd_file;
#define CMD_FILE_NONE ((cmd_file){{.fd = -1}, false})
fcp_code cmd_file_open(cmd_file *f, const char *path, fcp_error *err);
fcp_code cmd_file_commit(cmd_file *f, fcp_error *err);
void cmd_file_abandon(cmd_file *f); /* harmless after commit, and for CMD_FILE_NONE */
/* Commits those of several files that are open, if `code`, the result so far, is FCP_OK; else abandons them. Returns
 * the new result. */
fcp_code cmd_files_commit(cmd_file *files, size_t count, fcp_code code, fcp_error *err);
/* All three at once. */
fcp_code cmd_file_write(const char *path, const void *bytes, size_t size, fcp_error *err);
/* Writes several outputs, those of them that the line has. None gets its name before all are complete. */
enum { CMD_TEXTS = 4 };
typedef struct cmd_text {
    cmd_option option;
    const text *bytes;
} cmd_text;
fcp_code cmd_texts_write(const cmd_line *line, const cmd_text *texts, size_t count, fcp_error *err);

/* The trace of --trace, as text: the one that is predicted for a plan, of which `result` is known already, and the one
 * that was measured in a session (trace_files.c). */
fcp_code cmd_trace_predicted(const cmd_line *line, const fcp_plan *plan, const sim_profile *profile,
                             const sim_options *how, const sim_result *result, text *out, fcp_error *err);
fcp_code cmd_trace_measured(const cmd_line *line, const fcp_session *session, text *out, fcp_error *err);
fcp_code cmd_check_drawing(const cmd_line *line, fcp_error *err);
fcp_code cmd_check_ranks(const cmd_line *line, const fcp_plan *plan, fcp_error *err);

/* Writes an SVG image as PNG (png.c). */
fcp_code cmd_png(const char *svg, size_t size, const char *path, fcp_error *err);
/* E210 if this machine cannot draw PNG. */
fcp_code cmd_png_check(const char *path, fcp_error *err);
/* The version of librsvg. E210, as above. */
enum { CMD_PNG_VERSION = 48 };
fcp_code cmd_png_version(char out[CMD_PNG_VERSION], fcp_error *err);

/* --- progress and interruption (progress.c) ----------------------------------------------------------------------- */

/* Installs the signal handlers of the program:
 *   SIGINT, SIGTERM, SIGHUP   end the process at once with E013, whatever it is doing (SIGHUP: unless it is ignored).
 *                             `as_json`: E013 is printed as JSON as well
 *   SIGPIPE, SIGXCPU, ...     these end the process without a message
 *   SIGXFSZ                   is ignored, so that writing fails as on a full disk
 * Handlers that end the process first remove the temporary files that cmd_guard was told of. */
void cmd_progress_init(bool as_json, bool quiet);
/* Between cmd_hold and cmd_release an interruption waits. This is for steps that belong together, such as opening a
 * temporary file and guarding it. Holds nest, and any thread may call these functions. */
void cmd_hold(void);
void cmd_release(void);
/* The path of a temporary file, until cmd_unguard; to be called between cmd_hold and cmd_release. */
void cmd_guard(const char *path);
void cmd_unguard(const char *path);
/* On a terminal, shows `what` and how many seconds it has taken so far, from the first second on until cmd_done. `what`
 * is static. */
void cmd_doing(const char *what);
/* Shows from now on which candidate is worked on (`number`, from 1, of `of`), and how long all of them have taken.
 * cmd_candidate(0, 0) ends that. */
void cmd_candidate(size_t number, size_t of);
/* Also shows how far the planning has come, until cmd_done. */
void cmd_watch(const fcpc_progress *planning);
void cmd_done(void);
double cmd_now(void); /* seconds, monotonic */

/* --- the commands ------------------------------------------------------------------------------------------------- */
/* Does what the arguments say, as the program does, reports an error, and returns the exit status (act.c). What was
 * read stays in `input`, which begins as zeros and ends with cmd_input_free, also after an error. */
int cmd_main(int argc, char **argv, cmd_input *input);
#define X(id, name, function, synopsis, help) fcp_code function(const cmd_line *line, cmd_input *input, fcp_error *err);
CMD_COMMANDS(X)
#undef X
#endif
