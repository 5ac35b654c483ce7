/* source.h: the CUDA source of a program's kernels: the skeletons of codegen/kernels around the functions of emit.h.
 *
 * The source is one text without includes: first the definitions of FK_HEAD_DIM, FK_VALUE_DIM, FK_BF16, FK_HAS_SCORE,
 * FK_FORWARD_SM90, FK_DO_BUFFERS, FK_RANGES, FK_NEGATIVE_SCALE, FK_BY_HEAD, FK_PACKED and FK_FUSED; then abi.h;
 * prim_ptx.h; the emitted functions; common.h; and the skeletons that were asked for, with what they are built on. Each
 * part begins with a #line, so that messages of the CUDA compiler name the file under codegen/kernels, or "emitted".
 */
#ifndef FCP_SOURCE_H
#define FCP_SOURCE_H
#include "codegen/emit.h"

/* The skeletons, as bits. A source has at most one for the forward pass, and at most one for the backward pass.
 *   FORWARD     the forward pass
 *   ORDERED     the backward pass in one kernel, which adds up dQ in a fixed order
 *   UNORDERED   the same in any order
 *   SPLIT       the backward pass in two kernels: dK and dV, then dQ
 *   *_SM90      the same for sm_90a alone, and for some sizes (FK_HAS_SM90, FK_HAS_BACKWARD_SM90)
 *   SUPPORT     the small kernels that a runtime needs in any pass
 *   TABLES      the gradients of tables, beside any of the backward skeletons; the program must have reads
 *   WIRE        rounds partial results that travel
 *   ONE_BUFFER  beside ORDERED or UNORDERED, for head_dim and value_dim 128: they have one buffer of dO instead of two
 *               (FK_DO_BUFFERS), and so take less shared memory. The bits of results stay
 *   RECURRENT   the kernels of layers that recur. They are a source of their own (emit_recurrent) */
enum {
    EMIT_FORWARD = 1, EMIT_ORDERED = 2, EMIT_SPLIT = 4, EMIT_SUPPORT = 8, EMIT_UNORDERED = 16, EMIT_FORWARD_SM90 = 32,
    EMIT_ORDERED_SM90 = 64, EMIT_UNORDERED_SM90 = 128,
    EMIT_TABLES = 256, EMIT_WIRE = 512
};
enum { EMIT_ONE_BUFFER = 1024, EMIT_RECURRENT = 2048 };
enum {
    EMIT_FORWARDS = EMIT_FORWARD | EMIT_FORWARD_SM90,
    EMIT_BACKWARD_SM90 = EMIT_ORDERED_SM90 | EMIT_UNORDERED_SM90,
    EMIT_JOINT = EMIT_ORDERED | EMIT_UNORDERED | EMIT_BACKWARD_SM90, /* dQ, dK and dV in one kernel */
    EMIT_BACKWARD = EMIT_JOINT | EMIT_SPLIT,
    EMIT_SM90 = EMIT_FORWARD_SM90 | EMIT_BACKWARD_SM90
};

typedef struct emit_source {
    const emit_program *program;
    uint32_t head_dim, value_dim; /* as emit_has_dims says */
    bool bf16;          /* else fp16 */
    bool ranges;        /* blocks hold some heads of the model: then masks and scores are told which */
    unsigned skeletons; /* EMIT_*, at least one */
    bool negative_scale; /* the factor of q . k is below 0 */
    bool by_head;       /* work lists are by head (abi.h) */
    bool packed;        /* those of the forward pass are packed (abi.h) */
    bool fused;         /* several ATTENDs are one launch (abi.h), but not of a SPLIT backward pass */
} emit_source;

/* Are there skeletons for these sizes? In words: EMIT_DIMS. */
bool emit_has_dims(uint32_t head_dim, uint32_t value_dim);
#define EMIT_DIMS                                                                                                      \
    "a head_dim of 16, 32, 64, 96, 128, 192 or 256, and a value_dim of these that is not above it, nor 16 with a "     \
    "head_dim above 128"
/* The forward skeleton to use: the one for sm_90a, if that may be used and has the sizes. */
unsigned emit_forward(uint32_t head_dim, uint32_t value_dim, bool sm_90a);
/* The backward skeleton to use: ORDERED if every run must give the same bits, else UNORDERED; of these the one for
 * sm_90a, if that may be used and has the sizes; SPLIT, if none has them. */
unsigned emit_backward(uint32_t head_dim, uint32_t value_dim, bool deterministic, bool sm_90a);
/* Prints the source. Returns what emit_functions does. */
const char *emit_kernels(const emit_source *source, emit_text *out, void *context, uint32_t *node);

/* Prints the source of the kernels of layers that recur, which is the same for all plans. */
void emit_recurrent(emit_text *out, void *context);

/* What a kernel asks of the device. */
typedef struct emit_kernel {
    const char *name; /* of its entry */
    unsigned skeleton;
    uint32_t threads;   /* of a CTA */
    uint32_t shared;    /* bytes of shared memory, passed at the launch */
    uint32_t registers; /* the budget of a thread. A compilation that needs more must not be used; for sm_90a, neither
                         * must one that needs fewer */
    uint32_t parts;     /* CTAs among which an item of work is divided */
    bool maps; /* its parameters are fk_launch_maps; else fk_launch, fk_launch_tables, or as support.h has them */
} emit_kernel;
enum { EMIT_KERNELS = 25 };
/* The kernels of skeletons, in the order of the source; returns how many. */
uint32_t emit_kernels_of(uint32_t head_dim, uint32_t value_dim, bool score, unsigned skeletons,
                         emit_kernel out[EMIT_KERNELS]);
/* The backward skeleton `backward`. Where its CTA needs more than `most` bytes of shared memory, the same with
 * ONE_BUFFER; or SPLIT, if that does not fit either. */
unsigned emit_backward_within(uint32_t head_dim, uint32_t value_dim, bool score, unsigned backward, uint32_t most);
/* How many bytes of shared memory a CTA may have on an architecture ("sm_80", "sm_90a"). 0: it is unknown here. */
uint32_t emit_shared_most(const char *arch);
/* How many CTAs of a kernel an SM of an architecture ("sm_80", "sm_90a") holds at once. threads, shared: of a CTA, the
 * latter in bytes; registers: of a thread. 0: not one, or the architecture is unknown here. */
uint32_t emit_resident(const char *arch, uint32_t threads, uint32_t registers, uint32_t shared);
#endif
