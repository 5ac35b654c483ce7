/* cmd.h: what the commands of `fcpc` share. This is the program, not the library: it prints, and it owns the
 * process. */
#ifndef FCPC_CLI_CMD_H
#define FCPC_CLI_CMD_H
#include <stdio.h>

#include "runtime/base/whole_file.h"
#include "runtime/plan/plan.h"
#include "compiler/fcpc.h"
#include "compiler/base/json.h"

#define FCPC_VERSION "0.1.0"

/* --- the command line (args.c) -------------------------------------------------------------------------------- */

/* Commands: name, the function that does it, synopsis, one line of help. */
#define CMD_COMMANDS(X)                                                                                                \
    X(COMPILE, "compile", cmd_compile, "FILE.fcp [-o PLAN]", "compile a program to a plan (the default command)")      \
    X(SHOW, "show", cmd_show, "FILE.fcp|PLAN [--svg F] [--html F] [--png F] [--rows a..b] [--cols a..b] [--seq N]",    \
      "draw the mask, the placement and the pipeline; or a part of one sequence's mask, down to single pairs")         \
    X(VERIFY, "verify", cmd_verify, "PLAN", "prove a plan right and say what was proven")                              \
    X(RUN, "run", cmd_run, "PLAN [--q F --k F --v F] [--out F] ...", "execute a plan; without inputs, draw and check") \
    X(EMIT, "emit", cmd_emit_kernels, "PLAN [--arch sm_90a] [-o F] [--pass forward|backward] [--backward KERNELS]", \
      "print the CUDA source of a plan's kernels; with --arch, compile it to a cubin")                                  \
    X(DUMP, "dump", cmd_dump, "PLAN", "print all of a plan as text")                                                   \
    X(FMT, "fmt", cmd_fmt, "FILE.fcp [--check] [--write]", "print a program in canonical layout, comments kept")       \
    X(EXPLAIN, "explain", cmd_explain, "FILE.fcp|PLAN|MASK q k [-n LENGTH]",                                           \
      "say why query q sees key k, or does not, and what a score makes of it")

typedef enum cmd_command {
#define X(id, name, function, synopsis, help) CMD_##id,
    CMD_COMMANDS(X)
#undef X
    CMD_COUNT
} cmd_command;

/* Options: long name, letter or 0, what its value is called (NULL: a flag; "[word]": a flag that may have this value), bits
 * of the commands that take it, help. */
#define CMD_BIT(id) (1u << CMD_##id)
#define CMD_ALL ((1u << CMD_COUNT) - 1)
#define CMD_BATCH (CMD_ALL & ~CMD_BIT(FMT)) /* those that bind a program to a batch */
#define CMD_OPTIONS(X)                                                                                                 \
    X(OUTPUT, "output", 'o', "FILE", CMD_BIT(COMPILE) | CMD_BIT(EMIT),                                                 \
      "write the plan here; without it nothing is written; emit: the source or cubin; default: standard output")        \
    X(ARCH, "arch", 0, "ARCH", CMD_BIT(EMIT), "compile for sm_80, sm_90a, sm_100, ...; needs NVRTC and no GPU")          \
    X(BACKWARD, "backward", 0, "KERNELS", CMD_BIT(EMIT),                                                               \
      "of the backward pass: ordered, unordered or split, rather than the plan's own")                                 \
    X(SOURCE, "source", 0, NULL, CMD_BIT(EMIT), "with --arch: the source that would be compiled, not the cubin")         \
    X(MMA_SYNC, "mma-sync", 0, NULL, CMD_BIT(RUN) | CMD_BIT(EMIT),                                                     \
      "cuda: kernels on mma.sync, also where there are others: those for sm_90a")                                      \
    X(DEFINE, "define", 'D', "NAME=VALUE", CMD_BATCH, "override a setting: -D cluster.nodes=4 -D plan.block=2K")       \
    X(LENGTHS, "lengths", 0, "FILE", CMD_BATCH,                                                                        \
      "the batch, in place of the program's: a length or QUERIES:KEYS a line")                                         \
    X(FIELD, "field", 0, "NAME=FILE", CMD_BATCH,                                                                      \
      "the values of a field of the batch; run PLAN: where the file is that the plan was made from")                   \
    X(SVG, "svg", 0, "FILE", CMD_BIT(SHOW), "draw into an SVG file")                                                   \
    X(HTML, "html", 0, "FILE", CMD_BIT(SHOW), "draw into a self-contained HTML page")                                  \
    X(LENGTH, "length", 'n', "TOKENS", CMD_BIT(EXPLAIN), "of the sequence; default: the batch's longest, or q or k + 1") \
    X(HEAD, "head", 0, "H", CMD_BIT(EXPLAIN), "the query head, for a mask that names h; default 0")                    \
    X(LOGIT, "s", 0, "LOGIT", CMD_BIT(EXPLAIN), "the scaled logit that the plan's score is given; default 0")           \
    X(PNG, "png", 0, "FILE", CMD_BIT(SHOW), "draw into a PNG file")                                                    \
    X(ROWS, "rows", 0, "A..B", CMD_BIT(SHOW), "draw these queries only: 0..4K; `A..` goes to the end")                 \
    X(COLS, "cols", 0, "A..B", CMD_BIT(SHOW), "draw these keys only")                                                  \
    X(SEQ, "seq", 0, "N", CMD_BIT(SHOW) | CMD_BIT(EXPLAIN), "this sequence of the batch, from 0; default: the longest") \
    X(WIDTH, "width", 0, "COLUMNS", CMD_BIT(SHOW) | CMD_BIT(EXPLAIN), "columns to print; default: the terminal's, or 80") \
    X(ASCII, "ascii", 0, NULL, CMD_BIT(SHOW), "draw with ASCII characters only")                                       \
    X(BACKEND, "backend", 0, "NAME", CMD_BIT(RUN), "host")                                                             \
    X(TRANSPORT, "transport", 0, "NAME", CMD_BIT(RUN),                                                                 \
      "host: threads; cuda: local (default), or nccl: a process a rank, started by mpirun, srun or torchrun")           \
    X(ID_FILE, "id-file", 0, "PATH", CMD_BIT(RUN),                                                                     \
      "nccl: a path that all processes see, by which they find each other where MPI is not there")                     \
    X(PASS, "pass", 0, "PASSES", CMD_BIT(RUN) | CMD_BIT(EMIT),                                                         \
      "forward, or forward,backward; emit: backward too; default: what the plan and inputs allow")                      \
    X(Q, "q", 0, "F.npy", CMD_BIT(RUN), "queries  [tokens, heads, head_dim]")                                          \
    X(K, "k", 0, "F.npy", CMD_BIT(RUN), "keys     [tokens, kv_heads, head_dim]")                                       \
    X(V, "v", 0, "F.npy", CMD_BIT(RUN), "values   [tokens, kv_heads, head_dim]")                                       \
    X(DO, "do", 0, "F.npy", CMD_BIT(RUN), "gradient of the output, for the backward pass")                             \
    X(OUT, "out", 0, "F.npy", CMD_BIT(RUN), "write the output here")                                                   \
    X(LSE, "lse", 0, "F.npy", CMD_BIT(RUN), "write the log-sum-exp here [tokens, heads], float32")                     \
    X(DQ, "dq", 0, "F.npy", CMD_BIT(RUN), "write the gradient of the queries here")                                    \
    X(DK, "dk", 0, "F.npy", CMD_BIT(RUN), "write the gradient of the keys here")                                       \
    X(DV, "dv", 0, "F.npy", CMD_BIT(RUN), "write the gradient of the values here")                                     \
    X(BF16, "bf16", 0, NULL, CMD_BIT(RUN), "uint16 tensors hold bfloat16 (the plan's dtype must be bf16)")             \
    X(SEED, "seed", 0, "N", CMD_BIT(RUN), "seed of the drawn inputs")                                                  \
    X(CHECK, "check", 0, "[all]", CMD_BIT(RUN) | CMD_BIT(FMT),                                                         \
      "run: check against the definition of attention (default for drawn inputs), a sample of rows where all take long, " \
      "or all; fmt: only say whether it differs")                                                                      \
    X(WRITE, "write", 'w', NULL, CMD_BIT(FMT), "replace the file")                                                     \
    X(NO_CHECK, "no-check", 0, NULL, CMD_BIT(RUN), "do not check")                                                     \
    X(THREADS, "threads", 0, "N", CMD_BIT(RUN), "ranks that may compute at once; default: the processors there are")   \
    X(SM_PARTITION, "sm-partition", 0, "HOW", CMD_BIT(RUN),                                                            \
      "cuda: what leaves the margin to communication: grid, green (contexts), none; default: auto, green where it works") \
    X(TIMEOUT, "timeout", 0, "SECONDS", CMD_BIT(RUN), "a rank that waits this long for a peer fails; default 120")     \
    X(JSON, "json", 0, NULL, CMD_ALL, "print one JSON object on stdout")                                               \
    X(QUIET, "quiet", 'q', NULL, CMD_ALL, "print no summary and no progress")                                          \
    X(HELP, "help", 'h', NULL, CMD_ALL, "print help")                                                                  \
    X(VERSION, "version", 0, NULL, CMD_ALL, "print the version")

typedef enum cmd_option {
#define X(id, name, letter, metavar, commands, help) OPT_##id,
    CMD_OPTIONS(X)
#undef X
    OPT_COUNT
} cmd_option;

typedef struct cmd_line {
    cmd_command command;
    const char *file;              /* the one positional argument; NULL when there is none (help, version) */
    const char *more[2];           /* the further ones that explain takes */
    const char *help_topic;        /* `fcpc help TOPIC` */
    bool help;                     /* --help, `fcpc help` */
    const char *value[OPT_COUNT];  /* NULL: not given; a flag that was given is "" */
    const char **defines;          /* of every -D, in order; malloc'd */
    size_t define_count;
    const char **fields;           /* of every --field, likewise */
    size_t field_count;
    bool json, quiet;
} cmd_line;

/* Reads the command line. --json and -q count even when the rest is wrong, so that the error is told as asked. */
fcp_code cmd_parse(int argc, char **argv, cmd_line *out, fcp_error *err);
void cmd_line_free(cmd_line *line);
fcp_code cmd_help(const cmd_line *line, fcp_error *err); /* prints to stdout */
/* The value of a number option, or `fallback` when it is not given. */
fcp_code cmd_number(const cmd_line *line, cmd_option option, uint64_t low, uint64_t high, uint64_t fallback,
                    uint64_t *out, fcp_error *err);

/* A position or length: a whole number, perhaps with K, M or G; `what` is its name in messages. */
fcp_code cmd_position(const char *what, const char *typed, uint64_t *out, fcp_error *err);

/* A..B, half-open, of positions; B may be missing: 0. */
fcp_code cmd_range(const cmd_line *line, cmd_option option, uint64_t *from, uint64_t *to, fcp_error *err);

/* --- input, output, errors (common.c) ------------------------------------------------------------------------- */

/* What a command works on: a plan read from a file, or made from a program in memory. */
typedef struct cmd_input {
    fcp_plan *plan;
    fcpc_times times;               /* of a plan from a file: verify and total are those of loading it */
    bool compiled;                  /* from a program */
    fcpc_diagnostics *diagnostics;  /* errors and warnings of a program; NULL for a plan file */
    bool json_told;                 /* the JSON object has been printed, with the error in it */
} cmd_input;

/* Loads FILE: a plan if it begins like one, else a program, which is compiled. Warnings have been printed. */
fcp_code cmd_load(const cmd_line *line, cmd_input *out, fcp_error *err);
void cmd_input_free(cmd_input *input);

/* A text file; of one that is longer than any program may be, enough to see that. */
fcp_code cmd_read(const char *path, text *out, fcp_error *err);

/* True if a file that can be read begins as a plan does (or holds binary bytes, as no program may). */
bool cmd_is_plan(const char *path);

/* Tells an error, once: as text on stderr and, with --json, as an object on stdout, unless input->json_told. */
void cmd_report(const cmd_line *line, const cmd_input *input, const fcp_error *err);
/* Makes *err the first error among diagnostics; of `code` alone when there is none. */
void cmd_first_error(const fcpc_diagnostics *d, fcp_code code, fcp_error *err);
/* Add the member "error", "warnings" to an open object. `d` may be NULL. */
void cmd_json_error(json *j, const fcp_error *err);
void cmd_json_warnings(json *j, const fcpc_diagnostics *d);
/* Prints the object on stdout and frees it. */
fcp_code cmd_json_print(json *j, fcp_error *err);
/* Flushes stdout; an error if anything written there was lost. */
fcp_code cmd_flush(fcp_error *err);
uint32_t cmd_width(void);       /* of the terminal that stdout is; else 80 */
bool cmd_colour(FILE *stream); /* a terminal, and neither NO_COLOR nor TERM=dumb */

/* Refuses, before any work is done for them, output paths (of `count` options, where given) that are the input, each
 * other, a folder or a special file, or whose folder is missing or not writable. */
fcp_code cmd_check_outputs(const cmd_line *line, const cmd_option *outputs, size_t count, fcp_error *err);

/* E011, with the path and why (an errno value). */
fcp_code cmd_cannot_write(const char *path, int why, fcp_error *err);

/* A file that appears whole or not at all: written beside its path, renamed by cmd_file_commit. */
typedef struct cmd_file {
    fcp_beside file;
    FILE *stream;
} cmd_file;
fcp_code cmd_file_open(cmd_file *f, const char *path, fcp_error *err);
fcp_code cmd_file_commit(cmd_file *f, fcp_error *err);
void cmd_file_abandon(cmd_file *f); /* harmless after commit */
/* An fcp_emit for a FILE *; errors stay in the stream. */
void cmd_emit(void *context, const char *text, size_t size);

/* Looks for the files that a plan's fields and tables were read from, as the plan names them (seen from its folder,
 * then from the current one) or where --field says: E322 if one is there and is not the same (field.c). */
fcp_code cmd_check_fields(const cmd_line *line, const fcp_plan *plan, fcp_error *err);

/* Writes an SVG image as PNG (png.c). */
fcp_code cmd_png(const text *svg, const char *path, fcp_error *err);

/* --- progress and interruption (progress.c) ------------------------------------------------------------------- */

/* Installs the handler of SIGINT, SIGTERM and SIGHUP (unless that is ignored), and ignores SIGXFSZ: writing then fails
 * as on a full disk. `as_json`: an interruption is told as JSON as well. */
void cmd_progress_init(bool as_json, bool quiet);
/* From here on, an interruption sets the flag that cmd_stop() points to; after cmd_unpolled it ends the process with
 * E013, which is safe because nothing is being written. */
void cmd_polled(void);
void cmd_unpolled(void);
const volatile int *cmd_stop(void);
/* On a terminal, shows `what` and the seconds it takes, once it has taken one; until cmd_done. `what` is static. */
void cmd_doing(const char *what);
void cmd_done(void);
double cmd_now(void); /* seconds, monotonic */

/* --- the commands ------------------------------------------------------------------------------------------------- */
/* `input` is filled as far as the command came; main frees it after it has reported the error. */
#define X(id, name, function, synopsis, help) fcp_code function(const cmd_line *line, cmd_input *input, fcp_error *err);
CMD_COMMANDS(X)
#undef X
#endif
