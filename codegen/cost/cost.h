/* cost.h: what a step of a kernel costs, read from its machine code. Nothing runs: it counts instructions.
 *
 * A kernel's source has marks, which are comments at the end of a line. A mark covers all instructions that the
 * compiler made of its line, and of what was inlined there:
 *
 *     more = fk_advance(...);      // cost: step        the loop around this line is the loop over steps
 *     fk_mask_bits(...);           // cost: PARTIAL     only PARTIAL cells do this
 *     fk_forward_rescale(...);     // cost: elements    done for each element of a tile; counted once more
 *     fk_minus(...);               // cost: seldom      few steps do this; left out
 *
 * A mark anywhere in a call that is written on several lines covers the whole call.
 *
 * The compiler never sees the marks. The disassembler says from which source line each instruction comes. README.md
 * says how steps and classes are found, and what the figures leave out.
 */
#ifndef FCP_COST_H
#define FCP_COST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The units of a quarter of an SM. Issue is no unit: every instruction of a warp takes one clock of it. COST_SHARED is
 * a quarter of the bandwidth of shared memory. An instruction that reads or writes shared memory is counted there and
 * in the unit that executes it; every other one in a single unit. */
typedef enum cost_pipe {
    COST_TENSOR,
    COST_SHARED,
    COST_MUFU,
    COST_FMA,
    COST_ALU,
    COST_MEMORY,
    COST_UNIFORM,
    COST_CONTROL,
    COST_OTHER,
    COST_PIPES
} cost_pipe;
extern const char *const cost_pipe_names[COST_PIPES];

/* The speeds of one architecture. */
typedef struct cost_machine {
    const char *arch;            /* without the suffix: "sm_90" */
    uint32_t warp_flops;         /* floating-point operations a clock of an SM, by products of a warp ... */
    uint32_t group_flops;        /* ... and of a warpgroup; 0: it has none */
    uint32_t clocks[COST_PIPES]; /* of a warp's instruction, in its pipe; of COST_TENSOR and COST_SHARED 0: it follows
                                  * from the instruction's size */
} cost_machine;
enum { COST_SHARED_BYTES = 128 }; /* that shared memory of an SM moves in a clock, on every architecture here */
/* NULL: there is no such architecture in the table. A suffix, as in "sm_90a", does not count. */
const cost_machine *cost_machine_of(const char *arch);
/* Where the speed of a pipe is from: a publication, or "assumed". */
extern const char *const cost_sources[COST_PIPES];

/* What a warp does in one step. */
typedef struct cost_counts {
    uint64_t instructions[COST_PIPES], clocks[COST_PIPES];
    uint64_t waits, arrivals, fences; /* of the instructions: those that wait for others, that tell others, fences */
    uint64_t elements;                /* ... and those that come of lines with the mark "elements" */
    uint64_t bytes;                   /* of global memory that a warp reads, writes and adds to, if no lane stays out;
                                       * what the TMA brings is not in them */
    uint64_t unknown_loops;           /* inner loops whose number of turns is not known; each is counted once */
} cost_counts;
uint64_t cost_issue(const cost_counts *counts); /* all instructions, each once */
/* The pipe with most clocks; COST_PIPES: issue has more than any pipe. */
cost_pipe cost_bound(const cost_counts *counts);

enum { COST_FULL, COST_PARTIAL, COST_CLASSES };
extern const char *const cost_class_names[COST_CLASSES];

/* A loop over steps. A kernel has one for each role of its warps that computes. */
typedef struct cost_step {
    cost_counts of[COST_CLASSES];
    bool has[COST_CLASSES]; /* does any way through the loop belong to the class? */
} cost_step;
enum { COST_STEPS = 8 };
typedef struct cost_kernel {
    char name[64];
    uint32_t instructions;  /* of the whole kernel, each once */
    uint32_t step_count;
    cost_step steps[COST_STEPS];
    char unknown[24];       /* an instruction that is not known here and so counts as COST_OTHER; "": there is none */
} cost_kernel;
typedef struct cost_report {
    cost_kernel *kernels;
    uint32_t count;
} cost_report;

/* Reads the listing that `nvdisasm -c -gi` made of what `source` was compiled to. Returns true and a report, which the
 * caller ends with cost_free. Or it returns false, and says why in `wrong`: a listing that ends early, a branch to
 * nowhere, or out of memory. A kernel without instructions is no error. The listing need not be trusted. */
bool cost_read(const char *source, const char *listing, const cost_machine *machine, cost_report *out, char wrong[160]);
void cost_free(cost_report *report);
#endif
