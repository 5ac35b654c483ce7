/* gpu.h: the inner interface of gpu-check: what its steps know of the machine, how they record what they find, and
 * which functions its files call of each other.
 *
 * Errors stay where they are: one that ends a context, a crash or a hang affects one step or one plan. For that, each
 * step runs in a process of its own, which opens the driver. A step that judges plans does not open it, and gives each
 * plan a process that does.
 *
 * What begins is written to a journal before it begins, and what is found as soon as it is found. When the program is
 * run again, it reads the journal and goes on from there.
 */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H
#include <sys/types.h>

#include "runtime/libraries/cuda_driver.h"
#include "runtime/exec/tensors.h"
#include "tests/machines/standin/standin.h"

/* --- journal.c: lines "kind <tab> name <tab> rest"; each is on disk before the next is written -------------------- */
typedef struct journal journal;
/* Opens the file. Its contents are kept if they were written under the same key; otherwise, or with `again`, it
 * begins from the start. NULL: `why` says why. */
journal *journal_open(const char *path, const char *key, bool again, char why[300]);
void journal_close(journal *j);
void journal_reload(journal *j); /* reads what other processes have written */
/* Adds a line. Newlines in `rest` become spaces, tabs divide it into fields. False: it could not be written. */
bool journal_add(journal *j, const char *kind, const char *name, const char *rest);
/* Finds the rest of the last line of that kind and name. False: there is none. With rest NULL it only says whether
 * there is one. */
bool journal_find(const journal *j, const char *kind, const char *name, char *rest, size_t size);
unsigned journal_count(const journal *j, const char *kind, const char *name);
/* Gives the next line of a kind; *at is 0 at first. False: there are no more. */
bool journal_next(const journal *j, size_t *at, const char *kind, char *name, size_t name_size, char *rest,
                  size_t size);

/* --- the machine -------------------------------------------------------------------------------------------------- */
enum { GPU_WHY = 1200, GPU_TEXT = 2000 }; /* WHY has room for what each of four ranks says */

/* Functions of the driver that the runtime does not use; NULL if the driver lacks one. */
typedef struct gpu_node_ *gpu_node;
#define GPU_SYMBOLS(X)                                                       \
    X(cuGraphGetNodes, cu_result (*graph_nodes)(cu_graph, gpu_node *, size_t *)) \
    X(cuModuleGetGlobal_v2, cu_result (*module_global)(cu_ptr *, size_t *, cu_module, const char *))
typedef struct gpu_symbols {
#define X(name, type) type;
    GPU_SYMBOLS(X)
#undef X
} gpu_symbols;

/* The machine, as the first process finds it; the processes of the steps inherit it. */
typedef struct gpu_machine {
    char driver[300], name[64], host[80], cpu[80];
    int driver_version, devices, major, minor, multiprocessors, shared;
    size_t memory;
    bool standin;
} gpu_machine;

typedef struct gpu {
    const char *folder, *python, *inject; /* python NULL: python3; inject: --inject's text, or NULL */
    const char *out;  /* a folder to which results are copied after each step; NULL: none */
    journal *journal, *peers;
    gpu_machine machine;
    double deadline;  /* on the clock of fcp_clock; no step begins after it */
    pid_t first;      /* the process that was started */
    const char *step;
    const struct gpu_step *steps;
    unsigned step_count;
    uint32_t timeout_s; /* of sessions that judge plans */
    fcp_fuse fuse;      /* of sessions that are measured or prepared */
    bool streams;       /* what is measured makes no graphs */
    bool quiet, small, older; /* small: only plans that fibers do in a moment; older: the kernels for mma.sync */
    /* in the process of a step */
    fcp_cuda *cuda;
    gpu_symbols more;
    standin *control; /* if it is the stand-in driver; else NULL */
    cu_context context;
    cu_stream stream;
    char sensed[100];       /* what gpu_sense found last; gpu_row_put takes it for the row */
    double margin;          /* of the last plan that was judged: the largest error, in parts of what is allowed */
    const char *margin_of;  /* the tensor that has it */
} gpu;

/* gpu_open_driver opens the driver alone; gpu_open also device 0 and a stream. */
fcp_code gpu_open_driver(gpu *g, fcp_error *err);
fcp_code gpu_open(gpu *g, fcp_error *err);
void gpu_close(gpu *g);
/* Asks the driver about the machine. */
fcp_code gpu_look(gpu *g, gpu_machine *out, fcp_error *err);
/* Compiles a text, or if that is NULL the file at `path`. NULL: `why` says why not. */
fcp_plan *gpu_plan_of(const char *path, const char *text, const char *const *defines, size_t count, char why[GPU_WHY]);
double gpu_left(const gpu *g); /* seconds until the deadline */
bool gpu_injected(const gpu *g, const char *what, const char *name); /* was --inject what:name given? */

/* --- apart.c: a process of its own -------------------------------------------------------------------------------- */
typedef enum gpu_result { GPU_OK, GPU_FAILED, GPU_SKIPPED, GPU_LATER } gpu_result;
/* What such a process tells the one that waits for it. */
typedef struct gpu_answer {
    gpu_result result;
    bool given, hung;    /* given: the work returned; hung: it did not end in its time */
    fcp_code code;
    char why[GPU_WHY];
    gpu_machine machine; /* of main.c alone */
    double margin;       /* of a plan, as in gpu */
    char margin_of[8];
} gpu_answer;
typedef struct gpu_apart {
    const char *name;    /* for --inject */
    bool open, all;      /* it opens device 0; it sees all devices, otherwise only the first */
    bool judged;         /* an exception of its kernels leaves a core dump; nothing is timed */
    double most;         /* seconds, after which it is ended */
    gpu_result (*work)(gpu *g, void *context, gpu_answer *out);
    void *context;
} gpu_apart;
void gpu_run_apart(gpu *g, const gpu_apart *apart, gpu_answer *answer);
/* Has the system end this process when `parent`, who started it, ends; ends it now if that has happened. */
void gpu_end_with(pid_t parent);

/* --- hung.c: CUDA's debugger, where there is one, writes to FOLDER/hung.txt --------------------------------------- */
/* Where the kernels of a process are. plan: what it runs, if that is known; then also the mbarriers in shared memory. */
void gpu_dump(const gpu *g, pid_t pid, const char *name, const fcp_plan *plan);
/* The same of this process, if a run of the session did not end. Returns whether it did not. */
bool gpu_hung(const gpu *g, const fcp_session *session, const char *name);
/* In a process that has not opened the driver yet: an exception of its kernels leaves FOLDER/gpu.core, and so does
 * gpu_dump, unless there was one before. And any process may trace this one. */
void gpu_may_crash(const gpu *g);
void gpu_unpipe(const gpu *g, pid_t pid); /* removes what such a process has left in the folder, but the dump */
/* What the core dump has, if there is one that has not been looked into yet. */
void gpu_crashed(const gpu *g, const char *name);

/* --- what a step returns, and rows -------------------------------------------------------------------------------- */
extern const char *const gpu_result_names[4];
typedef struct gpu_step {
    const char *name, *what;
    gpu_result (*run)(gpu *g, char why[GPU_WHY]); /* why: what was done, or what went wrong */
    unsigned least, most; /* seconds: it is not begun with less than `least` left, and is ended after `most` */
    bool all;                                     /* it sees all devices; otherwise only the first */
    bool plans;                                   /* it does not open the driver: its plans do, each apart */
} gpu_step;

#define GPU_NONE (-1.0)
typedef struct gpu_row {
    const char *name, *unit, *against; /* against: what it is compared with; "" for nothing */
    double value, ratio;               /* ratio: GPU_NONE if none */
    double goal, first;                /* for the ratio, or for the value if `most`; GPU_NONE if none */
    bool most;                         /* the value must not be more than the goal */
    const char *ceiling;               /* a fact: what no such figure exceeds; NULL: none. It may come later */
    const char *note;
    /* If the ratio is not known yet: once there is the fact with this name, the ratio is that fact divided by `own`. */
    const char *fact;
    double own;
} gpu_row;
/* A row that is a figure and nothing else. */
static inline gpu_row gpu_row_of(const char *name, double value, const char *unit, const char *note) {
    return (gpu_row){.name = name, .unit = unit, .against = "", .value = value, .ratio = GPU_NONE, .goal = GPU_NONE,
                     .first = GPU_NONE, .ceiling = NULL, .note = note, .fact = NULL, .own = 0};
}
/* Records a row, prints it, and draws the table again. */
void gpu_row_put(gpu *g, const gpu_row *row);
bool gpu_row_done(const gpu *g, const char *name);
/* Whether a figure meets its goal: "met", "first step", "MISSED", "not known"; first GPU_NONE: there is none. */
const char *gpu_verdict(const gpu *g, double judged, bool most, double goal, double first);
/* Facts: figures that other steps need. */
void gpu_fact_put(gpu *g, const char *name, double value);
double gpu_fact(const gpu *g, const char *name); /* GPU_NONE: not known */
/* copies.c: copies the journals, the page, the rows and what tools wrote to --out, if that is given. What cannot be
 * copied is told, and ends nothing. */
void gpu_copy_out(const gpu *g);
/* script.c: a script of Python, which gets names as its arguments and prints lines "kind name rest". */
enum { GPU_NAMES = 200 };
typedef struct gpu_names {
    char *names[GPU_NAMES];
    size_t count;
} gpu_names;
void gpu_names_add(gpu_names *names, const char *name); /* a copy; beyond GPU_NAMES nothing */
void gpu_names_free(gpu_names *names);
typedef void gpu_script_line(void *context, const char *kind, const char *name, const char *rest);
typedef enum gpu_script_end {
    GPU_SCRIPT_ENDED,
    GPU_SCRIPT_FAILED, /* with another status than 0, or by a signal */
    GPU_SCRIPT_SILENT, /* it was ended: for `most` seconds it printed nothing, or the time is up */
    GPU_SCRIPT_NONE    /* it did not start */
} gpu_script_end;
/* Runs it, and calls `each` with its lines. What it says as errors is appended to the file `errors`. */
gpu_script_end gpu_script(const gpu *g, const char *script, const gpu_names *names, const char *errors, double most,
                          gpu_script_line *each, void *context);
/* report.c: writes GPU.md into the folder, under a temporary name that is then renamed. */
bool gpu_report(const gpu *g);

/* --- the steps ---------------------------------------------------------------------------------------------------- */
gpu_result step_ceilings(gpu *g, char why[GPU_WHY]);      /* ceilings.c */
gpu_result step_design(gpu *g, char why[GPU_WHY]);        /* design.c */
gpu_result step_peers(gpu *g, char why[GPU_WHY]);         /* peers.c */
gpu_result step_torch(gpu *g, char why[GPU_WHY]);         /* torch_cuda.c */
gpu_result step_conformance(gpu *g, char why[GPU_WHY]);   /* conformance.c */
gpu_result step_examples(gpu *g, char why[GPU_WHY]);      /* correct.c */
gpu_result step_examples_older(gpu *g, char why[GPU_WHY]);
gpu_result step_random(gpu *g, char why[GPU_WHY]);
gpu_result step_edges(gpu *g, char why[GPU_WHY]);
gpu_result step_ladder(gpu *g, char why[GPU_WHY]);        /* ladder.c */
gpu_result step_smoke(gpu *g, char why[GPU_WHY]);         /* smoke.c */
gpu_result step_checker(gpu *g, char why[GPU_WHY]);       /* tools.c */
gpu_result step_profile(gpu *g, char why[GPU_WHY]);
gpu_result step_shaken(gpu *g, char why[GPU_WHY]);        /* shaken.c */
gpu_result step_waits(gpu *g, char why[GPU_WHY]);         /* waits.c */
gpu_result step_fused(gpu *g, char why[GPU_WHY]);         /* fused.c */
gpu_result step_variants(gpu *g, char why[GPU_WHY]);      /* variants.c */
gpu_result step_nccl(gpu *g, char why[GPU_WHY]);
gpu_result step_pointers(gpu *g, char why[GPU_WHY]);      /* pointers.c */
gpu_result step_speed(gpu *g, char why[GPU_WHY]);         /* rows_speed.c */
gpu_result step_masks(gpu *g, char why[GPU_WHY]);
gpu_result step_short(gpu *g, char why[GPU_WHY]);
gpu_result step_older(gpu *g, char why[GPU_WHY]);
gpu_result step_local(gpu *g, char why[GPU_WHY]);
gpu_result step_curve(gpu *g, char why[GPU_WHY]);
gpu_result step_graphs(gpu *g, char why[GPU_WHY]);        /* rows_runtime.c */
gpu_result step_fills(gpu *g, char why[GPU_WHY]);         /* fills.c */
gpu_result step_jit(gpu *g, char why[GPU_WHY]);
gpu_result step_memory(gpu *g, char why[GPU_WHY]);
gpu_result step_kernels(gpu *g, char why[GPU_WHY]);

/* --- conformance.c: what is asked of the driver, one question after the other ------------------------------------- */
/* Asks all questions. `tell` is called with each question's name and answer: NULL if the driver did as it must; else
 * what it did instead, or a text that begins with "skipped". Returns how many answers were wrong. */
unsigned conformance(gpu *g, void (*tell)(void *context, const char *question, const char *answer), void *context);
/* Writes what was found instead into the answer to a question. Returns false. */
enum { GPU_ANSWER = 300 };
bool gpu_say(char answer[GPU_ANSWER], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* conformance_nccl.c: the same for NCCL, if it is installed. */
unsigned conformance_nccl(gpu *g, void (*tell)(void *context, const char *question, const char *answer), void *context);

/* --- correct.c ---------------------------------------------------------------------------------------------------- */
/* Runs a plan on tensors drawn from `seed`. Each pass runs twice as a graph and twice without; all must give the same
 * bits, and the rows of this process's ranks are judged.
 *
 *   start  NULL: all ranks in this process. If not, the plan runs over NCCL as that rank. An id is made if it has none,
 *          and the number of the session is put after its id_file.
 *   *out   must begin as zeros, and gets what the ranks gave. The caller ends it with fcp_packed_free whatever is
 *          returned. */
bool gpu_check_plan(gpu *g, const fcp_plan *plan, uint64_t seed, const fcp_start *start, fcp_packed *out,
                    char why[GPU_WHY]);
/* The outputs of a pass, a bit each, with the second float of LSE, which a caller may leave out and these tests do
 * not. */
static inline unsigned gpu_outputs(fcp_pass pass) {
    return fcp_pass_outputs(pass) | (pass == FCP_FORWARD ? 1u << FCP_TENSOR_LSE_LOW : 0);
}
/* Have the outputs of a pass the same bits? If not, *out_name is the first that differs. */
bool gpu_outputs_same(const fcp_shape *shape, fcp_pass pass, const fcp_packed *a, const fcp_packed *b,
                      const char **out_name);
/* Compares the outputs of passes (a bit each) with the definition, for `count` ranks from `first` on. */
bool gpu_judge(gpu *g, const fcp_plan *plan, uint32_t passes, uint32_t first, uint32_t count, const fcp_packed *packed,
               char why[GPU_WHY]);
/* Call `each` with every plan on which correctness is judged, until it returns false. */
bool gpu_correct_examples(gpu *g, bool (*each)(gpu *g, fcp_plan *plan, const char *what, void *context), void *context,
                          char why[GPU_WHY]);
bool gpu_correct_random(gpu *g, bool (*each)(gpu *g, fcp_plan *plan, const char *what, void *context), void *context,
                        char why[GPU_WHY]);
/* edges.c: the same of programs with what few have; and a check of the largest logits of a run. */
bool gpu_correct_edges(gpu *g, bool (*each)(gpu *g, fcp_plan *plan, const char *what, void *context), void *context,
                       char why[GPU_WHY]);
gpu_result gpu_maxima(gpu *g, char why[GPU_WHY]);
void gpu_measured_maxima(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context);
/* recur.c: the same of layers that recur: halos and scans. */
gpu_result gpu_recurrent(gpu *g, char why[GPU_WHY]);
void gpu_measured_recurrent(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context);
/* ranks.c: runs a plan over NCCL in several processes, if NCCL allows it. `why` says in any case how many there were,
 * and why. */
gpu_result gpu_ranks(gpu *g, int nccl_version, char why[GPU_WHY]);
/* One of those processes; `which` is "RANK RANKS DEVICE". Returns its exit status. */
int gpu_rank(gpu *g, const char *which);
void gpu_measured_ranks(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context);
/* Calls `each` with the text of every program that is measured. */
void gpu_measured(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context); /* rows_speed.c */
/* ceilings.c: the source of a kernel that does nothing but multiply; malloc'd. */
char *gpu_ceiling_text(bool wgmma);
void gpu_measured_runtime(gpu *g, bool (*each)(gpu *g, const char *text, void *context),
                          void *context); /* rows_runtime.c */
void gpu_measured_pointers(gpu *g, bool (*each)(gpu *g, const char *text, void *context),
                           void *context); /* pointers.c */
/* Kernels with other definitions, "FK_TURNS=0 FK_OVERLAP=0": from now on this process compiles them so, with a cache of
 * their own. False: this run has no library that does that (carried.c). "" is what the program began with. */
bool gpu_define(const gpu *g, const char *defines, char why[GPU_WHY]);
/* Calls `each` with every program that runs with other definitions, and them. */
typedef bool gpu_defined_call(gpu *g, const char *defines, const char *text, void *context);
bool gpu_measured_smoke(gpu *g, gpu_defined_call *each, void *context);
bool gpu_measured_waits(gpu *g, gpu_defined_call *each, void *context);
bool gpu_measured_shaken(gpu *g, gpu_defined_call *each, void *context);
bool gpu_measured_variants(gpu *g, gpu_defined_call *each, void *context);
bool gpu_measured_fused(gpu *g, gpu_defined_call *each, void *context); /* with g->fuse as they run */
/* waits.c: did a wait of a session's kernels give up, or does one not end? Then `why` says which, if they were built
 * with FK_BOUND. */
bool gpu_gave_up(gpu *g, const fcp_session *session, char why[GPU_WHY]);
/* tools.c: kernels that the tools look at are compiled with this option (GPU_OPTION of carried.c). These call `each` with
 * their programs: two tiles of smoke.c, and those of gpu_profiled. */
#define GPU_LINES "--generate-line-info"
void gpu_measured_checked(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context);
void gpu_measured_profiled(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context);
/* For the tools: one tile of smoke.c, and the passes that are profiled (rows_speed.c), in this process. They return its
 * exit status. */
int gpu_smoke_one(gpu *g, const char *name);
int gpu_profiled(gpu *g);
/* packages.c: names libraries in the environment that only Python's packages have. */
void gpu_find_packages(const char *python);
/* prepare.c: compiles kernels in advance, for devices of these capabilities ("8.0 9.0"). Returns an exit status. */
int gpu_prepare(gpu *g, const char *capabilities);

/* --- measure.c: a plan on device pointers ------------------------------------------------------------------------- */
typedef struct measured {
    gpu *g;
    fcp_plan *plan;
    fcp_session *session;
    fcp_shape shape;
    fcp_tensors *tensors; /* one a rank */
    cu_ptr *memory;
    cu_graph_exec graphs[FCP_PASSES]; /* the pass from home blocks to home blocks, without the reshuffle */
    size_t nodes[FCP_PASSES];
    double recapture[FCP_PASSES];     /* seconds that capturing and instantiating took last */
    double flops[FCP_PASSES];         /* for the pairs of the mask, all heads */
    bool filled;
} measured;
/* Compiles a text, makes a session and random tensors on the device, and runs every pass once. */
bool measured_open(gpu *g, const char *text, bool tensors, measured *out, char why[GPU_WHY]);
void measured_close(measured *m);
/* Captures the pass as a graph again. */
bool measured_capture(measured *m, fcp_pass pass, char why[GPU_WHY]);
/* Median milliseconds: measured_pass of the pass from home blocks to home blocks as a graph, that is its kernels and
 * copies; measured_run of a whole run, as a caller sees it. *out_spread: (largest - smallest) / median. */
bool measured_pass(measured *m, fcp_pass pass, double *out_ms, double *out_spread, char why[GPU_WHY]);
bool measured_run(measured *m, fcp_pass pass, double *out_ms, double *out_spread, char why[GPU_WHY]);
/* The same for anything that `put` puts into g->stream. */
bool gpu_time(gpu *g, bool (*put)(gpu *g, void *context, char why[GPU_WHY]), void *context, double *out_ms,
              double *out_spread, char why[GPU_WHY]);
/* Did the call succeed? If not, `why` says what was done and what the driver said. */
bool gpu_ok(const gpu *g, cu_result result, char why[GPU_WHY], const char *what);
/* sensors.c: reads clock, power and temperature of device 0 into g->sensed, while the device works. */
void gpu_sense(gpu *g);
double gpu_median(double *values, unsigned count); /* sorts them */
#endif
