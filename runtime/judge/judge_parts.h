/* judge_parts.h: what the files of the judge share. Private to runtime/judge.
 *
 * reference.c makes a check_run and its tasks; sample.c chooses rows, if not all are checked; task.c computes a task;
 * shared_gradients.c does what it does for the gradients of sinks and tables; verdict.c keeps the measures of tensors
 * and judges them; slope.c and hops.c prepare what RULE.md needs.
 */
#ifndef FCP_JUDGE_JUDGE_PARTS_H
#define FCP_JUDGE_JUDGE_PARTS_H
#include <pthread.h>
#include <stdatomic.h>

#include "codegen/mask/code.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/enums.h"

/* A number of the result beside the reference. */
typedef struct place {
    uint64_t at;             /* the element */
    double error, allowance; /* how far it is off, and how far it may be */
    double result, expected;
} place;

/* How far a tensor is from the reference. Only maxima and first places, so that the order of tasks does not matter. */
typedef struct measure {
    double naive;            /* largest error of the naive computation */
    double share;            /* the largest part that an error is of what its number may be off */
    bool seen, compared;     /* a number was judged; one of them against a finite number, or in an empty row */
    uint64_t told, untold;   /* numbers that what is allowed leaves something to say about, and others */
    place largest, furthest; /* the largest error; the largest beyond what its number may be off */
    fcp_verdict odd;         /* FCP_NOT_FINITE or FCP_NOT_EMPTY: an element is not merely inexact; else FCP_RIGHT */
    uint64_t odd_at;         /* the first such, and what stands there */
    double odd_result, odd_expected;
} measure;

/* Compares one number of the result with the reference.
 *   result      NULL: it is not to be judged, and only the naive computation's error counts
 *   allowance   how far off the result may be
 *   told        the allowance is small enough that the number proves something
 *   empty       the row sees no keys */
void measure_number(measure *m, fcp_dtype dtype, uint64_t at, const double *result, double naive, double exact,
                    double allowance, bool told, bool empty);
void measure_merge(measure *into, const measure *m);
/* The verdict on a tensor, or on what stands behind tensors in a report; adds it to the report. */
void measure_report(const measure *m, unsigned check, fcp_check_report *report);

/* Computes for each class of partial results how far rounding on the wire may move a sum, as a fraction of the sum of
 * the absolute values that it is made of. It is 0 if nothing is rounded. False: out of memory.
 *
 * Derivation: bf16 has 8 significant bits, so rounding x moves it by at most 2^-8 |x|. Let a rank send a sum x, and
 * let W be the sum of the absolute values in it, so |x| <= W. After one hop x is off by at most W ((1 + 2^-8) - 1).
 * After h hops, with partial results added on the way, it is off by at most W ((1 + 2^-8)^h - 1), where W counts all
 * that was added. h is the most hops that any partial result of the class makes, from the rank that computed it to
 * the one that makes the result. m and l travel in fp32, so the factors by which states are merged have no such
 * error. */
bool check_hops(const fcp_plan *plan, double out_error[FCP_CLASSES]);

/* Makes the derivative of a score by s, or by what its node `by` reads (MC_NONE: by s), as code that mc_eval_score and
 * mc_eval_score_row evaluate; without nodes if the score has none. out->nodes is malloc'd. False: out of memory. */
bool check_slope(mc_code score, uint32_t by, mc_code *out);

/* Makes the score as GPUs may compute it: tanh, exp, log and sqrt give 1 + 2^-16 of what they should; without nodes
 * if the score has none of these. out->nodes is malloc'd. False: out of memory. */
bool check_rough(mc_code score, mc_code *out);

/* A score, or a derivative of it, as approximate functions (tanh_approx) may make it: for each of them code in which it
 * gives 1 + 2^-11, and 1 - 2^-11, of what it should. */
typedef struct check_coarse_code {
    mc_code *up, *down; /* [count]; malloc'd, as are their nodes */
    uint32_t count;     /* of approximate functions */
} check_coarse_code;
/* False: out of memory. The caller frees it in any case. */
bool check_coarse(mc_code code, check_coarse_code *out);
void check_coarse_free(check_coarse_code *code);

enum { CHECK_RUN = 32 }; /* rows of a run, at most */

typedef struct check_sample {
    fcp_check_unit *units; /* malloc'd; first those of queries, then those of keys */
    uint64_t count;
    uint64_t rows[FCP_SIDES]; /* in them */
} check_sample;

/* Chooses runs that take about `work` in all (as fcp_check_work counts). False: out of memory. */
bool check_sample_choose(const fcp_plan *plan, unsigned passes, double work, check_sample *out);

/* A place in the score that reads a table of reals. */
typedef struct check_read {
    mc_code part;   /* the score's derivative by what is read there, which the judge makes; malloc'd */
    check_coarse_code coarse; /* the same with approximate functions */
    mc_code load;   /* the score up to the read */
    uint64_t first; /* where the table begins among all tables */
} check_read;

/* What is known of the gradients of tables, element by element. A task has its own, and adds them to those of the run
 * when all tasks before it have: so the sums are the same whichever task is ready first. */
typedef struct check_element {
    double value;              /* by the definition */
    float naive;               /* by the naive computation */
    double squares, whole, flat, one; /* as struct allowed has them */
    double row_value,
        row_share; /* of the row that is added up: of its pairs, and of these pairs' P times the derivative */
    bool touched, in_row;
} check_element;
typedef struct check_tables {
    check_element *elements;    /* [numbers of all tables] */
    uint32_t *touched, *in_row; /* which elements a task, and a row, has added to */
    uint32_t touched_count, in_row_count;
} check_tables;

typedef struct check_run {
    const fcp_plan *plan;
    fcp_shape shape;
    const fcp_packed *in;
    const fcp_packed *judged; /* NULL: nothing is judged */
    const uint8_t *rows[FCP_SIDES]; /* a bit per packed token: whether its rows are judged; NULL: all are */
    fcp_reference *out;       /* where to put the reference itself; NULL: nowhere */
    const check_sample *sample; /* NULL: all rows */
    mc_code slope;            /* of the score, derived by the judge */
    mc_code rough;            /* see check_rough */
    check_coarse_code coarse_score, coarse_slope; /* see check_coarse; of GPUs alone */
    check_read *reads;        /* of tables whose gradients are judged */
    uint32_t read_count;      /* 0: none are */
    bool backward;
    const volatile int *stop;
    uint32_t *order;          /* sequences, longest first */
    _Atomic uint64_t next;    /* task */
    pthread_mutex_t lock;
    pthread_cond_t turn;      /* `added` or `over` has changed */
    double wire[FCP_TENSORS]; /* RULE.md: flat */
    double wire_state;        /* the same of what is made of O alone */
    measure measures[FCP_TENSORS]; /* under lock, like all that follow */
    check_tables tables;           /* of the tasks before `added` */
    uint64_t added;
    bool over; /* a task failed, or was stopped */
    fcp_code code;
} check_run;

/* Computes task `index`: all rows of a KV head of a sequence; or, in a sample, some rows of queries for one head
 * (against all keys), or some keys of one KV head (against all queries). Any number of threads may compute tasks of
 * a run. `measures` gets the errors of its numbers, and `tables`, if the run has reads, what its pairs add to the
 * gradients of tables. False: out of memory. */
bool check_task(check_run *run, uint64_t index, measure measures[FCP_TENSORS], check_tables *tables);

/* --- shared_gradients.c ------------------------------------------------------------------------------------------- */

/* Finds the places where the score reads tables. False: out of memory. */
bool check_reads_make(check_run *run);
void check_reads_free(check_run *run);
/* Room for the sums of a task, or of the run. False: out of memory. The caller closes them in any case. */
bool check_tables_open(const check_run *run, check_tables *tables);
void check_tables_close(check_tables *tables);
/* Adds the sums of a task to those of the run, and clears them. */
void check_tables_move(check_tables *task, check_tables *run);
/* Judges the sums of the run, when all tasks have added to them. Adds to the report. */
void check_tables_judge(const check_run *run, fcp_check_report *report);
/* Judges the gradients of sinks, which O and LSE of the result determine. Adds to the report. False: out of memory. */
bool check_sinks_judge(const check_run *run, fcp_check_report *report);
#endif
