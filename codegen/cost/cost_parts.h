/* cost_parts.h: what the files of this folder share: instructions, their marks, and the pieces between branches. */
#ifndef FCP_COST_COST_PARTS_H
#define FCP_COST_COST_PARTS_H
#include "codegen/cost/cost.h"

/* --- machine.c ---------------------------------------------------------------------------------------------------- */
cost_pipe cost_pipe_of(const char *name);

/* --- listing.c ---------------------------------------------------------------------------------------------------- */
enum { COST_MARK_FULL = 1 << COST_FULL, COST_MARK_PARTIAL = 1 << COST_PARTIAL, COST_MARK_STEP = 4,
       COST_MARK_ELEMENTS = 8, COST_MARK_SELDOM = 16 };
#define COST_NOWHERE UINT32_MAX

/* Which instruction comes after this one: the next; perhaps `target`; always `target`; none, since it ends the kernel.
 * A region (BSSY) begins where lanes may take different ways and ends at `target`, where they meet again. */
typedef enum cost_flow { COST_NEXT, COST_MAYBE, COST_ALWAYS, COST_END, COST_REGION } cost_flow;

typedef struct cost_instruction {
    char name[48];     /* "ISETP.NE.AND" */
    char operands[80]; /* what stands behind it, cut off if it is longer */
    char guard[8];     /* "!P0" of an instruction that only some lanes do; "": all do */
    unsigned marks;    /* of the lines that it comes from */
    cost_flow flow;
    uint32_t target;   /* the instruction's number, or COST_NOWHERE */
} cost_instruction;

typedef struct cost_code {
    char name[64];
    cost_instruction *all;
    uint32_t count;
} cost_code;

/* Adds one instruction to counts (machine.c). */
void cost_count(const cost_machine *machine, const cost_instruction *x, cost_counts *counts);

/* Reads a listing into one cost_code for each kernel, in its order; as cost_read in all else. */
bool cost_list(const char *source, const char *listing, cost_code **out, uint32_t *out_count, char wrong[160]);
void cost_list_free(cost_code *codes, uint32_t count);

/* --- loops.c ------------------------------------------------------------------------------------------------------ */
/* Finds the loops over steps of a kernel, and counts what a step takes. false: out of memory. */
bool cost_steps(const cost_code *code, const cost_machine *machine, cost_kernel *out);
#endif
