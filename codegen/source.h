/* source.h: the CUDA source of a program's kernels: skeletons of codegen/kernels with the functions of emit.h between.
 *
 * One text without includes, in this order: what is defined (FK_HEAD_DIM, FK_BF16, FK_HAS_SCORE, FK_FORWARD_SM90), abi.h,
 * prim_ptx.h, the emitted functions, common.h, the skeletons asked for with what they stand on. Each part has a #line of its
 * own, so that a compiler's messages name the file under codegen/kernels, or "emitted".
 */
#ifndef FCP_SOURCE_H
#define FCP_SOURCE_H
#include "codegen/emit.h"

/* The skeletons. Of the backward pass: in one kernel, dQ added in order, or as it comes; or in two, dK and dV, then dQ.
 * Support: what a runtime needs beside them, of any pass. SM90: for sm_90a alone, head_dim 64, 128, and 256 but for the
 * backward pass; of the forward pass either that or the other. */
enum {
    EMIT_FORWARD = 1, EMIT_ORDERED = 2, EMIT_SPLIT = 4, EMIT_SUPPORT = 8, EMIT_UNORDERED = 16, EMIT_FORWARD_SM90 = 32,
    EMIT_ORDERED_SM90 = 64, EMIT_UNORDERED_SM90 = 128
};
enum {
    EMIT_FORWARDS = EMIT_FORWARD | EMIT_FORWARD_SM90,
    EMIT_BACKWARD_SM90 = EMIT_ORDERED_SM90 | EMIT_UNORDERED_SM90,
    EMIT_BACKWARD = EMIT_ORDERED | EMIT_SPLIT | EMIT_UNORDERED | EMIT_BACKWARD_SM90,
    EMIT_SM90 = EMIT_FORWARD_SM90 | EMIT_BACKWARD_SM90
};

typedef struct emit_source {
    const emit_program *program;
    uint32_t head_dim;  /* 16, 32, 64, 128 or 256 */
    bool bf16;          /* else fp16 */
    unsigned skeletons; /* EMIT_*, at least one */
} emit_source;

bool emit_has_head_dim(uint32_t head_dim);
/* The forward pass's skeleton: that for sm_90a where one may be, and has the head_dim. */
unsigned emit_forward(uint32_t head_dim, bool sm_90a);
/* The backward pass's skeleton: ordered if its bits must be the same on every run, else unordered; for sm_90a where that may
 * be, and has the head_dim; split, where none of those has it. */
unsigned emit_backward(uint32_t head_dim, bool deterministic, bool sm_90a);
/* Prints the source; as emit_functions. */
const char *emit_kernels(const emit_source *source, emit_text *out, void *context, uint32_t *node);

/* What a kernel of a source asks for, as the skeletons say. */
typedef struct emit_kernel {
    const char *name;        /* of its entry */
    unsigned skeleton;
    uint32_t threads;        /* of a block */
    uint32_t shared;         /* bytes, given at the launch */
    uint32_t registers;      /* the budget: a compilation that needs more is not to be used; for sm_90a, nor one of fewer */
    uint32_t parts;          /* blocks that an item of work is cut into */
    bool maps;               /* its parameters are fk_launch_maps, else fk_launch */
} emit_kernel;
enum { EMIT_KERNELS = 8 };
/* The kernels of skeletons, in the order of the source; returns how many. */
uint32_t emit_kernels_of(uint32_t head_dim, bool score, unsigned skeletons, emit_kernel out[EMIT_KERNELS]);
/* How many blocks of a kernel a multiprocessor of an architecture ("sm_80", "sm_90a") holds at once, by its threads, the
 * registers each of them has, and its bytes of shared memory; 0: not one, or nobody has said what the architecture has. */
uint32_t emit_resident(const char *arch, uint32_t threads, uint32_t registers, uint32_t shared);
#endif
