/* source.h: puts together the CUDA source of a program's kernels: skeletons of codegen/kernels with the functions of
 * emit.h between them.
 *
 * It is one text without #include, in this order: definitions (FK_HEAD_DIM, FK_BF16, FK_HAS_SCORE, FK_FORWARD_SM90),
 * abi.h, prim_ptx.h, the printed functions, common.h, and the skeletons that were asked for, with what they need.
 * Each part begins with a #line, so that a compiler's messages name the file under codegen/kernels, or "emitted".
 */
#ifndef FCP_SOURCE_H
#define FCP_SOURCE_H
#include "codegen/emit.h"

/* The skeletons. ORDERED and UNORDERED: the backward pass in one kernel, with dQ added in order, or as it comes.
 * SPLIT: the backward pass in two kernels, dK and dV, then dQ. SUPPORT: the small kernels that any pass needs. SM90:
 * the same for sm_90a alone, head_dim 64, 128 and (forward only) 256. A source has at most one skeleton of the
 * forward pass.
 */
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
/* The skeleton to use for the forward pass: the one for sm_90a if that is allowed and has this head_dim. */
unsigned emit_forward(uint32_t head_dim, bool sm_90a);
/* The skeleton to use for the backward pass: ordered if the bits must be the same in every run, else unordered; for
 * sm_90a if that is allowed and has this head_dim; split if neither has it.
 */
unsigned emit_backward(uint32_t head_dim, bool deterministic, bool sm_90a);
/* Prints the source. Returns what emit_functions returns. */
const char *emit_kernels(const emit_source *source, emit_text *out, void *context, uint32_t *node);

/* What a kernel asks for, as its skeleton says. */
typedef struct emit_kernel {
    const char *name;        /* of its entry point */
    unsigned skeleton;
    uint32_t threads;        /* threads of a block */
    uint32_t shared;         /* bytes of dynamic shared memory */
    uint32_t registers;      /* a build that needs more must not be used; for sm_90a neither one that needs fewer */
    uint32_t parts;          /* into how many blocks an item is cut */
    bool maps;               /* its parameters are fk_launch_maps; otherwise fk_launch */
} emit_kernel;
enum { EMIT_KERNELS = 8 };
/* Lists the kernels of skeletons, in the order of the source. Returns how many there are. */
uint32_t emit_kernels_of(uint32_t head_dim, bool score, unsigned skeletons, emit_kernel out[EMIT_KERNELS]);
/* How many blocks of a kernel a multiprocessor of an architecture ("sm_80", "sm_90a") holds at once: by the threads
 * of a block, the registers of a thread, and the bytes of shared memory of a block. 0: not one; or the architecture
 * is not known here.
 */
uint32_t emit_resident(const char *arch, uint32_t threads, uint32_t registers, uint32_t shared);
#endif
