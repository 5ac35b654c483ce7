/* fcpc.h: libfcpc, the compiler. A caller parses a program once and then plans one batch after another.
 *
 *     fcpc_options options = FCPC_OPTIONS_INIT;
 *     fcpc_diagnostics *d = fcpc_diagnostics_new();
 *     fcpc_program *program;
 *     fcp_plan *plan;
 *     if (fcpc_parse_file("mask.fcp", &options, d, &program) == FCP_OK &&
 *         fcpc_plan(program, lengths, count, NULL, d, NULL, &plan) == FCP_OK)
 *         ...
 *
 * The conventions are those of fcp.h. Functions return an fcp_code. The caller owns what *_new, *_parse_* and *_plan*
 * make, and *_free accepts NULL. Nothing prints, exits or keeps global state. `out_` parameters are written on success
 * only.
 *
 * A program does not change once it is parsed. So any number of threads may plan from one program at the same time, if
 * each has its own diagnostics object. The same program, batch and options always give the same plan, byte for byte.
 * Planning for many ranks starts a second thread, which ends before the call returns and gets no signals. With one
 * processor, or if no thread can be made, planning takes longer.
 *
 * Units: lengths in tokens, sizes in bytes, times in seconds, positions counted from 0.
 */
#ifndef FCPC_H
#define FCPC_H
#include "runtime/fcp.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. fcpc_version gives that of the library that is linked, which may differ. */
#define FCPC_VERSION FCP_VERSION
const char *fcpc_version(void);

/* Structures of options begin with their own size, so that later versions can add members at the end. Set `size` to the
 * sizeof of the type: start from FCPC_OPTIONS_INIT (or its like), or write {.size = sizeof(fcpc_options), ...} in C.
 *
 * A structure that is smaller than the library's comes from an older caller; the members that it lacks have their
 * default, which is always 0. A larger one comes from a newer caller; it is accepted if all bytes that the library does
 * not know are 0. Otherwise, and if `size` is 0, functions fail with FCP_E_ARGUMENT. */

/* --- diagnostics: the errors and warnings of the compiler, with their places -------------------------------------- */

typedef struct fcpc_diagnostics fcpc_diagnostics;
typedef struct fcpc_diagnostic {
    bool warning;
    fcp_code code;         /* FCP_OK for a warning */
    const char *message;   /* one line; it belongs to the diagnostics object */
    const char *file;      /* "" if there is no place */
    uint32_t line, column; /* counted from 1, columns in bytes; 0 if there is no place */
} fcpc_diagnostic;

fcpc_diagnostics *fcpc_diagnostics_new(void); /* NULL: out of memory */
void fcpc_diagnostics_free(fcpc_diagnostics *d);
/* Errors and warnings in the order in which they were found. `i` is less than the count. */
size_t fcpc_diagnostics_count(const fcpc_diagnostics *d);
void fcpc_diagnostics_get(const fcpc_diagnostics *d, size_t i, fcpc_diagnostic *out);
/* All of them as a terminal shows them: the message, the source line, a caret below the place, and hints. With `colour`
 * the text contains ANSI escapes. The caller frees the string with free(). NULL: out of memory. */
char *fcpc_diagnostics_render(const fcpc_diagnostics *d, bool colour);

/* --- programs ---------------------------------------------------------------------------------------------------- */

typedef struct fcpc_program fcpc_program;

/* What is to be changed in a program while it is parsed. Everything is borrowed for the call. */
typedef struct fcpc_options {
    size_t size;                 /* sizeof(fcpc_options) */
    const char *const *defines;  /* settings such as "cluster.nodes=32"; they apply in order, so a later one wins */
    size_t define_count;
    const char *lengths_file;    /* the batch's lengths come from this file: a length, or QUERIES:KEYS, on each line;
                                  * NULL: from the program */
    const char *const *fields;   /* "doc=FILE": the values of field doc come from this file */
    size_t field_count;
    bool need_lengths;           /* true: a program without lengths is an error. false: it may have none, and then each
                                  * batch must bring them */
    const volatile int *stop;    /* NULL, or a number that another thread or a signal handler may set. Once it is
                                  * not 0, parsing soon ends with FCP_E_INTERRUPTED. (Only slices, long lists and
                                  * large files take seconds to parse.) */
    const char *profile;         /* what auto chooses, ranks of groups, and margins are judged by it: a name such as
                                  * "h200", or a file (compiler/simulate/README.md); NULL: by that of cluster.gpu */
    /* Called for each file that the program or these options name, before any of them is read; a file may come twice.
     * A code other than FCP_OK is an error at that place of the program; `err` says what is wrong. NULL: nobody asks */
    fcp_code (*see_file)(void *context, const char *path, fcp_error *err);
    void *context;
    bool regular_files;          /* true: whatever the program reads must be a regular file; anything else is refused
                                  * with FCP_E_READ. For callers that parse programs of others: a pipe may block for
                                  * ever, and a device may never end */
} fcpc_options;
#define FCPC_OPTIONS_INIT {sizeof(fcpc_options)}

/* Parses and checks a program: a file, or `size` bytes of text. `name` stands for the text in messages, and paths in
 * the text are relative to the name's folder; it may be NULL. `options` may be NULL, which changes nothing. If the
 * program has errors, `d` holds all of them, and the result is the code of the first. `d` may be NULL. */
fcp_code fcpc_parse_file(const char *path, const fcpc_options *options, fcpc_diagnostics *d,
                         fcpc_program **out_program);
fcp_code fcpc_parse_text(const char *name, const char *text, size_t size, const fcpc_options *options,
                         fcpc_diagnostics *d, fcpc_program **out_program);
void fcpc_program_free(fcpc_program *program);
/* The program in canonical layout, with the options' settings in it. Parsing this text gives a program that prints the
 * same. The caller frees the string with free(). NULL: out of memory. */
char *fcpc_program_print(const fcpc_program *program);
/* The program's own batch: the number of keys of each sequence. NULL, and a count of 0, if the program has none. The
 * array belongs to the program. */
const uint64_t *fcpc_program_lengths(const fcpc_program *program, size_t *out_count);
/* The number of queries of each of these sequences. NULL if every sequence has as many queries as keys. */
const uint64_t *fcpc_program_queries(const fcpc_program *program);
/* Returns the path of file `number` among those that the program or its options name for lengths, fields, tables
 * and slices, or NULL if there are not so many. Numbers begin at 0 and follow no particular order, and a file may come
 * twice. Files that an option replaced, or that nothing reads, are included. The path is relative to the current
 * folder, and belongs to the program. */
const char *fcpc_program_file(const fcpc_program *program, size_t number);

/* --- planning ---------------------------------------------------------------------------------------------------- */

/* How long each part of planning took, in seconds of wall time; and a bound that plans do not keep. */
typedef struct fcpc_times {
    double parse, classify, place, colour, schedule, verify, total;
    uint64_t bytes_lower_bound; /* for cad and dcp: the forward pass moves at least this many bytes, however the work is
                                  * divided within the tolerances. With dcp and layout = planned, that holds wherever
                                  * tokens are placed. 0: no bound is known (for example because blocks are too heavy
                                  * for the tolerance), or fcpc_batch.bound did not ask for one */
    double choose;               /* strategy or block = auto: trying candidates; the others are of the chosen one */
} fcpc_times;

/* The values of a field: whole numbers, or reals for a field of reals. `count` is one for each key of the batch, or as
 * many as the field's `over` says; sequences end to end, those of a sequence in the order of its dimensions. Example:
 * of a field over heads, queries / 128, keys / 128 a sequence of 300 tokens has 8 x 3 x 3 values if there are 8
 * heads. */
typedef struct fcpc_field {
    const char *name;      /* as the program declares it: batch { field name = ... } */
    const int64_t *values; /* [count]; NULL: reals */
    uint64_t count;
    const double *reals; /* [count]; NULL: values. Each is finite and fits a float. */
} fcpc_field;

/* The progress of a long planning, for another thread that watches it. Most masks are evaluated for whole blocks of
 * pairs at a time. A mask without structure, such as (q * k) % 1009 < 13, is evaluated pair by pair, which takes
 * seconds from about 64K tokens on. Members are written atomically while fcpc_plan_batch runs. The caller sets all of
 * them to 0 first. */
typedef struct fcpc_progress {
    uint64_t expected; /* about how many pairs will be looked at, estimated before the work; 0: too few to wait for */
    uint64_t done;     /* how many have been */
} fcpc_progress;

/* A batch of sequences. Everything is borrowed for the call. */
typedef struct fcpc_batch {
    size_t size;             /* sizeof(fcpc_batch) */
    const uint64_t *lengths; /* [count]: the keys of each sequence. NULL: the program's own batch; then `queries` must
                              * be NULL too, and `count` is not read */
    const uint64_t *queries; /* [count]: the queries of each sequence; NULL: as many as keys */
    size_t count;
    /* Values of fields. They take precedence over the program's own values, from files and lists. A field that is not
     * here takes the program's values if the batch is the program's own. Any other batch must bring every field that
     * mask, score or `documents` read. */
    const fcpc_field *fields;
    size_t field_count;
    fcpc_progress *progress; /* told how far the planning is; NULL: nobody watches */
    bool bound;              /* find fcpc_times.bytes_lower_bound, too. It changes no plan, and takes about 10 us a
                              * rank, which the times do not count */
    /* Refuse the batch at once (FCP_E_TOO_LONG) if evaluating its mask is estimated to take more than this many seconds
     * of one processor. With several masks, one that is too slow is enough. 0: there is no limit. The estimate counts
     * the work in a sample and reads no clock, so every machine refuses the same batches. It is the time of evaluating
     * the mask once; auto does so for each size of blocks that it tries */
    double max_seconds;
} fcpc_batch;
#define FCPC_BATCH_INIT {sizeof(fcpc_batch)}

/* Plans a batch and verifies the plan. The plan belongs to the caller, who frees it with fcp_plan_free; it refers
 * neither to the program nor to the batch. `d` and `out_times` may be NULL. If `stop` is not NULL, planning looks at it
 * from time to time and ends with FCP_E_INTERRUPTED once it is not 0.
 *
 * Errors of the batch: FCP_E_MISSING (there are no lengths, here or in the program), FCP_E_LENGTHS, FCP_E_FIELD (values
 * are missing, too many or too few, out of their range, given twice, or of no field), FCP_E_SLICES (a slice lies beyond
 * the longest sequence), FCP_E_MASK_* (some pair reaches a fault of the mask or score).
 * Errors of what the batch needs: FCP_E_MEMORY_CAP, FCP_E_PLAN_SIZE, FCP_E_TOO_LONG. FCP_E_ARGUMENT: max_seconds is
 * negative or not a number. Any lengths and numbers of queries may be 0, even all of them; `count` must not be 0. */
fcp_code fcpc_plan_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan);

/* Plans a batch of lengths alone, as fcpc_plan_batch does: every sequence has as many queries as keys, and no field has
 * values of its own. `lengths` NULL: the program's own batch. */
fcp_code fcpc_plan(const fcpc_program *program, const uint64_t *lengths, size_t count, const volatile int *stop,
                   fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan);

/* The phases of a program whose strategy computes some heads at a time (upipe): which heads, in which order. A model
 * that projects, attends and projects back one phase after the other never holds Q, K, V or O of all heads. It plans
 * the program of *one* phase, which is the same text with these settings, and runs it once for each phase:
 *
 *     "model.heads=H" "model.kv_heads=K" "plan.strategy.heads=H"      H is phases.heads, K is phases.kv_heads
 *
 *     for (uint32_t i = 0; i < phases.count; i++) {
 *         if (i % phases.sharing == 0)    project K and V of heads kv_heads[i / phases.sharing * phases.kv_heads ...]
 *         project Q of heads heads[i * phases.heads ...], into tensors of the program of one phase
 *         if (i % phases.sharing == 0)    fcp_session_run(session, FCP_FORWARD, tensors, &err);
 *         else                            fcp_session_run_kept(session, FCP_FORWARD, tensors, NULL, &err);
 *         add O times the rows of the output projection that belong to these heads
 *     }
 */
typedef struct fcpc_phases {
    uint32_t count;           /* phases */
    uint32_t heads, kv_heads; /* that a phase computes: so many query heads, of so many KV heads */
    uint32_t sharing;         /* so many phases, one after the other, have the same KV heads. It divides count */
} fcpc_phases;
/* out_heads: the query heads, phase by phase: room for as many as the program has. Within a phase they are sorted, so
 * head i of the program of one phase is out_heads[phase * heads + i]. out_kv_heads: likewise the KV heads of each
 * `sharing` phases, as many as the program has. Each may be NULL. Example: 16 heads, 4 KV heads, 4 at a time:
 * 0 4 8 12, 1 5 9 13, ..., and 0 1 2 3. Errors: FCP_E_ARGUMENT: the program's strategy has no phases;
 * FCP_E_UNSUPPORTED: a mask or score names the head (h), or sinks differ from head to head, so no one program is right
 * for all phases. */
fcp_code fcpc_program_phases(const fcpc_program *program, fcpc_phases *out_phases, uint32_t *out_heads,
                             uint32_t *out_kv_heads, fcp_error *err);

/* Returns how many masks a program has: several if it has `layers`, else one. *out_times, unless NULL, becomes the
 * number of layers that have mask `number`, counted from 0. fcpc_plan and fcpc_plan_batch plan the first mask. */
uint32_t fcpc_program_layers(const fcpc_program *program, uint32_t number, uint32_t *out_times);
/* Makes a plan for each mask: out_plans has room for as many as fcpc_program_layers says. All of them have their tokens
 * at the same ranks and in the same order (fcp_plan_homes), so nothing is moved from layer to layer. Times are summed
 * over the masks; bytes_lower_bound is that of the first plan. Errors are those of fcpc_plan_batch; then no plan is
 * made. */
fcp_code fcpc_plan_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                          fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plans);

/* --- micro-batches ------------------------------------------------------------------------------------------------ */

typedef struct fcpc_split_options {
    size_t size;     /* sizeof(fcpc_split_options) */
    uint32_t tokens; /* the most tokens of a rank; 0: as the program's strategy `groups` has it, or 65536 */
    uint32_t least;  /* at least so many micro-batches, as far as there are sequences; 0: as few as hold the batch */
    bool keep_order; /* each micro-batch has neighbouring sequences */
} fcpc_split_options;
#define FCPC_SPLIT_OPTIONS_INIT                                                                                        \
    { sizeof(fcpc_split_options) }

/* Splits a batch that is too large for the ranks into micro-batches that are planned and run one after the other. Each
 * sequence is in one of them. A micro-batch has at most `tokens` for each rank (of the longer side of its sequences),
 * and with the strategy `groups` its sequences can be packed so. All have about the same predicted work, attention and
 * linear layers of all masks. There are few of them: without keep_order about as few as there can be, and the one with
 * most work is micro-batch 0.
 * out_of: [count], of each sequence the number of its micro-batch. out_seconds: room for `count` numbers, or NULL; of
 * each micro-batch its work over the ranks, which it takes if work is even and no transfer is waited for. *out_count:
 * how many micro-batches there are. `options` and `d` may be NULL; `stop` is as for fcpc_plan_batch.
 * FCP_E_VALUE: a sequence alone has too many tokens. Other errors are those of fcpc_plan_batch about lengths, fields
 * and masks; FCP_E_ARGUMENT: tokens is 2^24 or more. */
fcp_code fcpc_split_batch(const fcpc_program *program, const fcpc_batch *batch, const fcpc_split_options *options,
                          const volatile int *stop, fcpc_diagnostics *d, uint32_t *out_of, double *out_seconds,
                          uint32_t *out_count);

/* --- forests of rollouts ------------------------------------------------------------------------------------------ */

/* In reinforcement learning a prompt is answered many times, and some answers go on from the same first turns. Such
 * rollouts share their first tokens, so together they are a tree, and each shared token is computed once. Example: the
 * rollouts 5 6 7, 5 6 8 9 and 4 are two trees, 5 6 (7, 8 9) and 4. In depth-first order they are the tokens 5 6 7 8 9
 * and 4: two sequences of a batch, whose mask is `causal and q <= last[k]`. */
typedef struct fcpc_rollouts {
    size_t size;             /* sizeof(fcpc_rollouts) */
    uint32_t count;          /* of rollouts, at most 2^31 - 1 */
    const uint64_t *lengths; /* [count], in tokens; a rollout may have none */
    const uint64_t *first;   /* [count]: rollout i has tokens[first[i]] and those behind it. NULL: end to end */
    const int64_t *tokens;   /* the ids */
    const int64_t *groups;   /* [count]: only rollouts of equal numbers share tokens. NULL: all may */
    uint64_t least;          /* a stretch that is shared has at least so many tokens, else each has its own; 0: 1 */
} fcpc_rollouts;
#define FCPC_ROLLOUTS_INIT                                                                                             \
    { sizeof(fcpc_rollouts) }

/* Trees of rollouts. Trees, and the branches of a token, come in the order of their first rollouts. */
typedef struct fcpc_forest fcpc_forest;

/* What a forest has. A *row* is a token's place in the forest, trees end to end. The arrays belong to the forest. */
typedef struct fcpc_forest_view {
    uint64_t tokens;          /* rows */
    uint64_t rollout_tokens;  /* of all its rollouts together, shared or not */
    uint32_t trees, rollouts; /* trees: none is empty */
    const uint64_t *lengths;  /* [trees] rows of each tree: the lengths of a batch */
    const int64_t *token;     /* [tokens] id */
    const int64_t *position;  /* [tokens] in its rollouts, from 0 */
    const int64_t *last;      /* [tokens] the last token of its subtree, counted from the first of its tree: a field */
    const int64_t *parent;    /* [tokens] the row before it in its rollouts, whose logits predict it; -1: none */
    const int64_t *sharing;   /* [tokens] how many rollouts have it, at least 1 */
    const uint32_t *rollout;  /* [rollouts] the caller's number of each rollout, rising */
    const uint32_t *tree;     /* [rollouts] its tree; UINT32_MAX: it has no tokens */
    const uint64_t *start;    /* [rollouts + 1] where the rows of each rollout start */
    const int64_t *rows;      /* [rollout_tokens] the row of each token of each rollout, rollouts end to end */
} fcpc_forest_view;

/* Makes the trees of rollouts. Cost: one comparison for each token, and sorting where rollouts part.
 * FCP_E_ARGUMENT: too many rollouts, or a pointer is missing. FCP_E_VALUE: more than 2^40 tokens. */
fcp_code fcpc_forest_make(const fcpc_rollouts *rollouts, fcpc_forest **out_forest, fcp_error *err);
void fcpc_forest_free(fcpc_forest *forest);
void fcpc_forest_look(const fcpc_forest *forest, fcpc_forest_view *out_view);
/* The same rollouts in trees of at most `tokens` rows. A tree that is larger is cut at branches into several, and each
 * repeats the tokens before its branch. Each has neighbouring rollouts, in depth-first order, and of all such cuts this
 * one repeats the fewest tokens. FCP_E_VALUE: a rollout alone has more tokens; the message names it. */
fcp_code fcpc_forest_cut(const fcpc_forest *forest, uint64_t tokens, fcpc_forest **out_forest, fcp_error *err);
/* A forest of `count` of the trees, in rising order of their numbers, and of their rollouts. Rollouts without tokens
 * are in none. FCP_E_ARGUMENT: the numbers do not rise, or there is no such tree. */
fcp_code fcpc_forest_pick(const fcpc_forest *forest, const uint32_t *trees, uint32_t count, fcpc_forest **out_forest,
                          fcp_error *err);
/* Splits a forest into micro-batches, as fcpc_split_batch splits a batch. Trees that all ranks together cannot hold are
 * cut first, at the tokens that the options, or the program, say of a rank, times the ranks. *out_forest: all trees
 * after that; of the tokens that it has more than `forest`, each is computed once more. out_of: the micro-batch of each
 * of its trees; fcpc_forest_pick makes a forest of those of one. out_of and out_seconds, which may be NULL, have room
 * for as many as there are rollouts. Where the program declares the fields `last` and `at`, they are those of the
 * forest: the last tokens of subtrees, and positions. Errors are those of fcpc_forest_cut and fcpc_split_batch; then
 * there is no forest. */
fcp_code fcpc_split_forest(const fcpc_program *program, const fcpc_forest *forest, const fcpc_split_options *options,
                           const volatile int *stop, fcpc_diagnostics *d, fcpc_forest **out_forest, uint32_t *out_of,
                           double *out_seconds, uint32_t *out_count);

/* --- looking at plans --------------------------------------------------------------------------------------------- */

/* The functions below return a string in *out_text, which ends with a NUL and which the caller frees with free(). The
 * same arguments give the same bytes on every machine. A plan must come from fcpc_plan* or fcp_plan_load*. `err` may be
 * NULL. All of them may fail with FCP_E_NO_MEMORY, and those with options with FCP_E_ARGUMENT. */

/* The five lines that compiling prints: the problem, its work, traffic, memory, and the plan with the time it took.
 * compiler/OUTPUT.md explains them word by word. The first line begins with the last part of the path `name`, or with
 * "plan" if it is NULL. `written` is the path of the plan file, or NULL if there is none. `times` NULL: all its members
 * are 0. */
fcp_code fcpc_summary_text(const fcp_plan *plan, const fcpc_times *times, const char *name, const char *written,
                           char **out_text, fcp_error *err);
/* The figures of fcpc_summary_text, and more, as a JSON object. */
fcp_code fcpc_summary_json(const fcp_plan *plan, const fcpc_times *times, char **out_text, fcp_error *err);

/* How long the plan would take on its cluster, as a JSON object: for each pass the members of `fcpc sim --json`
 * (makespan_s, makespan_lower_bound_s, mfu, bounds, exposed, bytes, per_rank), in `forward` and `backward`; and
 * `profile`, the name of the profile that says how fast kernels are. The argument `profile` is a name such as "h200",
 * or a file; NULL: that of the plan's gpu. compiler/simulate/README.md says what is predicted. FCP_E_PROFILE,
 * FCP_E_READ: there is no such profile. */
fcp_code fcpc_simulate_json(const fcp_plan *plan, const char *profile, char **out_text, fcp_error *err);

/* What a picture shows, and how. Zeros show the whole plan, in ASCII and 80 columns wide. */
typedef struct fcpc_show_options {
    size_t size;          /* sizeof(fcpc_show_options) */
    uint32_t width;       /* columns of text; 0: 80. A whole plan takes 64 to 160 of them, a part 40 to 160 */
    bool colour;          /* text contains ANSI escapes */
    bool unicode;         /* text contains shades and bars, which are not ASCII */
    bool part;            /* show a part of one sequence's mask, which the members below choose; else the whole plan */
    bool choose_sequence; /* the part is of sequence number `sequence` of the batch; else of the longest */
    uint32_t sequence;
    uint64_t row, row_end; /* the part has queries [row, row_end), counted from the sequence's first; an end of 0 means
                            * up to the last */
    uint64_t col, col_end; /* and keys [col, col_end), likewise */
    const char *ranks;     /* html: the ranks whose timelines are drawn: "0,5,8..16", "all", or "busiest", which means
                            * the 8 busiest and the median; NULL: all, or the busiest if there are many ranks */
    bool choose_head;      /* the part is what query head number `head` sees; else the pairs of all heads are summed */
    uint32_t head;
    const char *profile; /* html: by which times are predicted: a name such as "h200", or a file; NULL: that of the
                            * plan's gpu */
} fcpc_show_options;
#define FCPC_SHOW_OPTIONS_INIT {sizeof(fcpc_show_options)}

/* A picture of a plan (the mask, who owns which tokens, the pipeline) or of a part of a mask. text is for a
 * terminal, and svg is an image. html is a page that needs no other file; it shows whole plans only, and also what each
 * rank does when, as a profile predicts it. json gives the exact counts of a part, and shows no
 * whole plan. html and json refuse what they cannot show with FCP_E_ARGUMENT.
 * FCP_E_VALUE: the batch has no such sequence, or the sequence no such query or key, or the model no such head.
 * `options` may be NULL. */
fcp_code fcpc_show_text(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_svg(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_html(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);
fcp_code fcpc_show_json(const fcp_plan *plan, const fcpc_show_options *options, char **out_text, fcp_error *err);

/* The last runs of a session with the option `timings`, as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing
 * open: what each rank computed, sent and received when, and what it waited for; the same as `fcpc run --trace` writes.
 * With more than 64 ranks, the trace has only the 8 that computed longest and the median one. If ranks are processes,
 * the process of rank 0 calls this, after fcp_session_timings_collect. FCP_E_ARGUMENT: the session has no timings. */
fcp_code fcpc_trace_json(const fcp_session *session, char **out_text, fcp_error *err);

/* A pair of a query and a key in one sequence, and what is asked about it. */
typedef struct fcpc_question {
    size_t size;          /* sizeof(fcpc_question) */
    int64_t q, k;         /* their positions. q may be negative if the sequence has more queries than keys */
    uint64_t length;      /* the sequence has this many keys. 0: it is the longest of the batch that has both positions;
                           * without a batch it is as long as the positions need */
    bool choose_sequence; /* it is sequence number `sequence` of the batch */
    uint32_t sequence;
    uint32_t head;        /* the query head, for a mask that names h */
    double logit;         /* the scaled logit that the plan's score is given */
    const fcp_plan *plan; /* explain the program of this plan, with the plan's lengths and fields; NULL: the text */
    uint32_t width;       /* columns of text, at most 1000; 0: 80 */
    bool colour;          /* text contains ANSI escapes */
} fcpc_question;
#define FCPC_QUESTION_INIT {sizeof(fcpc_question)}

/* Explains why a query sees a key, or does not, by the value of every sub-expression of the mask. If it does, also
 * explains how the score changes the logit. `name`, `text`, `size`, `options` and `d` are as in fcpc_parse_text; `text`
 * is not read if the question has a plan. FCP_E_VALUE: the sequence does not have these positions. FCP_E_ARGUMENT: the
 * question is malformed. */
fcp_code fcpc_explain_text(const char *name, const char *text, size_t size, const fcpc_options *options,
                           const fcpc_question *question, fcpc_diagnostics *d, char **out_text);
fcp_code fcpc_explain_json(const char *name, const char *text, size_t size, const fcpc_options *options,
                           const fcpc_question *question, fcpc_diagnostics *d, char **out_text);

/* --- words of other projects ---------------------------------------------------------------------------------- */

/* Where a word is met. */
enum {
    FCPC_FOREIGN_KEY = 1,       /* a key of a section, or an argument of fcpc.program in Python */
    FCPC_FOREIGN_NAME = 2,      /* a name in a mask or score, which may be called or indexed */
    FCPC_FOREIGN_SCORE = 4,     /* a name in a score, or the score that a plan names */
    FCPC_FOREIGN_PLAN = 8,      /* the mask that it names */
    FCPC_FOREIGN_STRATEGY = 16, /* the strategy that it names */
    FCPC_FOREIGN_ARGUMENT = 32, /* a parameter of a mask or score: what to write is another parameter */
    FCPC_FOREIGN_VALUE = 64     /* a word among those that a key takes: what to write is one of these */
};
/* What to write instead of a word that other projects use in one of these places. fcpc_foreign_word("num_heads",
 * FCPC_FOREIGN_KEY, "40") is "write model { heads = 40 }". `value` is what the caller gave the word; where it is
 * neither a number nor a list, or NULL, the text has an example. The text is malloc'd, the caller frees it. NULL: it is
 * no such word, or out of memory. */
char *fcpc_foreign_word(const char *word, uint32_t places, const char *value);

#ifdef __cplusplus
}
#endif
#endif
