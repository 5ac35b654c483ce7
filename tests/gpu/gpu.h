/* gpu.h: inside gpu-check: what its steps see of the machine, how they write down what they find, and what they call of
 * each other.
 *
 * A step runs in a process of its own, which opens the driver, so that an error that ends a context, a crash or a hang is
 * that step's alone. All is written to a journal as it is found, and read back when the program is run again. */
#ifndef GPU_CHECK_H
#define GPU_CHECK_H
#include "runtime/libraries/cuda_driver.h"
#include "runtime/plan/plan.h"
#include "runtime/exec/tensors.h"
#include "tests/machines/standin/standin.h"

/* --- journal.c: lines "kind <tab> name <tab> rest", each on disk before the next is written ------------------------- */
typedef struct journal journal;
/* Opens the file, with what it holds if its key is this one; else, or with `again`, it begins anew. NULL: *why says it. */
journal *journal_open(const char *path, const char *key, bool again, char why[300]);
void journal_close(journal *j);
void journal_reload(journal *j); /* what other processes wrote */
/* The rest is printed; tabs and newlines in it become spaces but where `fields` are put between. */
bool journal_add(journal *j, const char *kind, const char *name, const char *rest);
/* The rest of the last such line; false: there is none. NULL rest: whether there is one. */
bool journal_find(const journal *j, const char *kind, const char *name, char *rest, size_t size);
unsigned journal_count(const journal *j, const char *kind, const char *name);
/* The next line of a kind from *at on (0 at first); false: no more. */
bool journal_next(const journal *j, size_t *at, const char *kind, char *name, size_t name_size, char *rest, size_t size);

/* --- the machine ---------------------------------------------------------------------------------------------------- */
enum { GPU_WHY = 1200, GPU_TEXT = 2000 }; /* WHY: what each of four ranks says has room in it */

/* Symbols beyond the runtime's table; NULL where the driver has them not. Before CUDA 12.8 there is cuEventElapsedTime alone,
 * which is as its successor. */
typedef struct gpu_node_ *gpu_node;
#define GPU_SYMBOLS(X)                                                                                                 \
    X(cuEventElapsedTime_v2, cu_result (*elapsed)(float *, cu_event, cu_event))                                        \
    X(cuGraphGetNodes, cu_result (*graph_nodes)(cu_graph, gpu_node *, size_t *))
typedef struct gpu_symbols {
#define X(name, type) type;
    GPU_SYMBOLS(X)
#undef X
} gpu_symbols;

/* What the first process finds out and the others know. */
typedef struct gpu_machine {
    char driver[300], name[64], host[80], cpu[80];
    int driver_version, devices, major, minor, multiprocessors, shared;
    size_t memory;
    bool standin;
} gpu_machine;

typedef struct gpu {
    const char *folder, *python, *inject; /* python NULL: python3; inject: --inject's text, or NULL */
    journal *journal, *peers;
    gpu_machine machine;
    double deadline;  /* on the clock of fcp_clock: nothing is begun after it */
    const char *step;
    const struct gpu_step *steps;
    unsigned step_count;
    bool quiet, small, older; /* small: of plans, what fibers do in a moment; older: kernels on mma.sync */
    /* in a step's process */
    fcp_cuda *cuda;
    gpu_symbols more;
    standin *control; /* of the driver that stands in; else NULL */
    cu_context context;
    cu_stream stream;
} gpu;

/* Opens the driver alone, its device 0 and a stream as well. */
fcp_code gpu_open_driver(gpu *g, fcp_error *err);
fcp_code gpu_open(gpu *g, fcp_error *err);
void gpu_close(gpu *g);
/* The machine as the driver tells it. */
fcp_code gpu_look(gpu *g, gpu_machine *out, fcp_error *err);
/* A plan of a text or, where that is NULL, of a file; NULL: *why says it. */
fcp_plan *gpu_plan_of(const char *path, const char *text, const char *const *defines, size_t count, char why[GPU_WHY]);
double gpu_left(const gpu *g); /* seconds until the deadline */
bool gpu_injected(const gpu *g, const char *what, const char *name); /* --inject is what:name */

/* --- what a step returns, and rows ---------------------------------------------------------------------------------- */
typedef enum gpu_result { GPU_OK, GPU_FAILED, GPU_SKIPPED, GPU_LATER } gpu_result;
extern const char *const gpu_result_names[4];
typedef struct gpu_step {
    const char *name, *what;
    gpu_result (*run)(gpu *g, char why[GPU_WHY]); /* why: what was done, or what went wrong */
    unsigned least, most;                         /* seconds: not begun with less left, ended after */
    bool all;                                     /* sees all devices; else the first one alone */
} gpu_step;

#define GPU_NONE (-1.0)
typedef struct gpu_row {
    const char *name, *unit, *against; /* against: what the ratio is to; "" */
    double value, ratio;               /* ratio: GPU_NONE if none */
    double goal, first;                /* of the ratio, or of the value if `most`; GPU_NONE if none */
    bool most;                         /* the value is to be no more than the goal */
    double ceiling;                    /* part of its ceiling; GPU_NONE */
    const char *note;
    /* where the ratio is not known yet: it is that fact over `own`, once there is such a fact */
    const char *fact;
    double own;
} gpu_row;
/* A row of a figure alone. */
static inline gpu_row gpu_row_of(const char *name, double value, const char *unit, const char *note) {
    return (gpu_row){.name = name, .unit = unit, .against = "", .value = value, .ratio = GPU_NONE, .goal = GPU_NONE,
                     .first = GPU_NONE, .ceiling = GPU_NONE, .note = note, .fact = NULL, .own = 0};
}
/* Writes a row down, prints it, and draws the table anew. */
void gpu_row_put(gpu *g, const gpu_row *row);
bool gpu_row_done(const gpu *g, const char *name);
/* Figures that other steps need. */
/* Whether a figure meets its goal: "met", "first step", "MISSED", "not known"; first GPU_NONE: there is none. */
const char *gpu_verdict(const gpu *g, double judged, bool most, double goal, double first);
void gpu_fact_put(gpu *g, const char *name, double value);
double gpu_fact(const gpu *g, const char *name); /* GPU_NONE: not known */
/* report.c: GPU.md in the folder, whole, beside its place and renamed. */
bool gpu_report(const gpu *g);

/* --- the steps ------------------------------------------------------------------------------------------------------ */
gpu_result step_ceilings(gpu *g, char why[GPU_WHY]);      /* ceilings.c */
gpu_result step_peers(gpu *g, char why[GPU_WHY]);         /* peers.c */
gpu_result step_conformance(gpu *g, char why[GPU_WHY]);   /* conformance.c */
gpu_result step_examples(gpu *g, char why[GPU_WHY]);      /* correct.c */
gpu_result step_examples_older(gpu *g, char why[GPU_WHY]);
gpu_result step_random(gpu *g, char why[GPU_WHY]);
gpu_result step_nccl(gpu *g, char why[GPU_WHY]);
gpu_result step_pointers(gpu *g, char why[GPU_WHY]);      /* pointers.c */
gpu_result step_speed(gpu *g, char why[GPU_WHY]);         /* rows_speed.c */
gpu_result step_masks(gpu *g, char why[GPU_WHY]);
gpu_result step_short(gpu *g, char why[GPU_WHY]);
gpu_result step_older(gpu *g, char why[GPU_WHY]);
gpu_result step_local(gpu *g, char why[GPU_WHY]);
gpu_result step_curve(gpu *g, char why[GPU_WHY]);
gpu_result step_graphs(gpu *g, char why[GPU_WHY]);        /* rows_runtime.c */
gpu_result step_jit(gpu *g, char why[GPU_WHY]);
gpu_result step_memory(gpu *g, char why[GPU_WHY]);
gpu_result step_kernels(gpu *g, char why[GPU_WHY]);

/* --- conformance.c: what is asked of the driver, one question after the other ---------------------------------------- */
/* Asks all; `tell` hears each question's name and answer (NULL: as it must be; else what was found instead; a skipped one
 * begins with "skipped"). Returns how many answers were not as they must be. */
unsigned conformance(gpu *g, void (*tell)(void *context, const char *question, const char *answer), void *context);
/* What was found instead, into the answer of the question at hand: false. */
enum { GPU_ANSWER = 300 };
bool gpu_say(char answer[GPU_ANSWER], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* conformance_nccl.c: the same of NCCL, where it is. */
unsigned conformance_nccl(gpu *g, void (*tell)(void *context, const char *question, const char *answer), void *context);

/* --- correct.c ------------------------------------------------------------------------------------------------------ */
/* Runs a plan, its tensors drawn from `seed`: each pass twice, with and without a graph, all with the same bits, and judges the
 * rows of this process's ranks. `start`, where it is not NULL: over NCCL, as that rank; its id is made where there is none, and
 * its id_file has the number of the session put after it. What the ranks gave is in *out, which begins as zeros and is for
 * fcp_packed_free whatever is returned. */
bool gpu_check_plan(gpu *g, const fcp_plan *plan, uint64_t seed, const fcp_start *start, fcp_packed *out, char why[GPU_WHY]);
/* Calls `each` with every plan that correctness is judged on; stops when it returns false. */
bool gpu_correct_examples(gpu *g, bool (*each)(gpu *g, fcp_plan *plan, const char *what, void *context), void *context,
                          char why[GPU_WHY]);
bool gpu_correct_random(gpu *g, bool (*each)(gpu *g, fcp_plan *plan, const char *what, void *context), void *context,
                        char why[GPU_WHY]);
/* ranks.c: a plan over NCCL by several processes, where NCCL lets them; *why says in any case how many there were and why. */
gpu_result gpu_ranks(gpu *g, int nccl_version, char why[GPU_WHY]);
/* One of them: "RANK RANKS DEVICE"; exit status. */
int gpu_rank(gpu *g, const char *which);
void gpu_measured_ranks(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context);
/* Calls `each` with the text of every program that is measured. */
void gpu_measured(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context); /* rows_speed.c */
/* ceilings.c: the source of the kernel that only multiplies; malloc'd. */
char *gpu_ceiling_text(bool wgmma);
void gpu_measured_runtime(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context); /* rows_runtime.c */
void gpu_measured_pointers(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context); /* pointers.c */
/* prepare.c: makes kernels beforehand, for devices of these capabilities ("8.0 9.0"); exit status. */
int gpu_prepare(gpu *g, const char *capabilities);

/* --- measure.c: a plan on device pointers ----------------------------------------------------------------------------- */
typedef struct measured {
    gpu *g;
    fcp_plan *plan;
    fcp_session *session;
    fcp_shape shape;
    fcp_tensors *tensors; /* per rank */
    cu_ptr *memory;
    cu_graph_exec graphs[FCP_PASSES]; /* of the pass between home blocks, without the reshuffle */
    size_t nodes[FCP_PASSES];
    double recapture[FCP_PASSES];     /* seconds that the last capturing and instantiating took */
    double flops[FCP_PASSES];         /* of the mask's pairs, all heads */
    bool filled;
} measured;
/* Plans a text, makes a session, tensors of drawn numbers on the device, and runs every pass once. */
bool measured_open(gpu *g, const char *text, bool tensors, measured *out, char why[GPU_WHY]);
void measured_close(measured *m);
/* The pass as a graph, anew. */
bool measured_capture(measured *m, fcp_pass pass, char why[GPU_WHY]);
/* Median milliseconds of the pass between home blocks: its kernels and copies, in a graph; or of a whole run, as a caller
 * sees it. *out_spread: (largest - least) / median. */
bool measured_pass(measured *m, fcp_pass pass, double *out_ms, double *out_spread, char why[GPU_WHY]);
bool measured_run(measured *m, fcp_pass pass, double *out_ms, double *out_spread, char why[GPU_WHY]);
/* The same of anything that is put into g->stream. */
bool gpu_time(gpu *g, bool (*put)(gpu *g, void *context, char why[GPU_WHY]), void *context, double *out_ms, double *out_spread,
              char why[GPU_WHY]);
/* *why: what was done, and what the driver said. */
bool gpu_ok(const gpu *g, cu_result result, char why[GPU_WHY], const char *what);
double gpu_median(double *values, unsigned count); /* puts them in order */
#endif
