/* maskcode.h: mask code, the typed, loop-free bytecode of masks.
 *
 * A mask is a list of nodes in static single assignment form: node i may refer only to nodes j < i, the last node is
 * the answer and is of type bool. Integers are int64. Nothing branches: `and`, `or`, `if` evaluate all operands, and
 * whether an operand would have been reached in the source is kept as a *guard* on the nodes that can fault.
 *
 * Two meanings, which agree wherever the source program does not fault:
 *   total   (executor, kernels): + - * neg abs wrap modulo 2^64; x / 0 = 0, x % 0 = 0, and INT64_MIN / -1 wraps.
 *   faulting (compiler): a node faults when it overflows or divides by zero AND its guard is true (guard
 *           MC_NONE: always). The compiler proves that no (q, k, h) in range faults, so a plan needs no checks.
 *
 * Division floors, and a % b has the sign of b: a == b * (a / b) + a % b.
 */
#ifndef FCP_MASKCODE_H
#define FCP_MASKCODE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_NONE UINT32_MAX
#define MC_MAX_NODES 65536u

/* name, arity, result type ('i' int64, 'b' bool), operand types ('i', 'b', 'x': both operands of one type), can fault.
 * arity counts node operands a, b, c in that order. IF: a is bool, b and c have the result's type. */
#define MC_OPS(X)                                                                                                      \
    X(CONST_I, "const", 0, 'i', "", 0)   /* imm */                                                                     \
    X(CONST_B, "bool", 0, 'b', "", 0)    /* imm 0 or 1 */                                                              \
    X(Q, "q", 0, 'i', "", 0)             /* query position in its sequence */                                          \
    X(K, "k", 0, 'i', "", 0)             /* key position */                                                            \
    X(N, "n", 0, 'i', "", 0)             /* the sequence's length */                                                   \
    X(H, "h", 0, 'i', "", 0)             /* query head */                                                              \
    X(ADD, "add", 2, 'i', "ii", 1)                                                                                     \
    X(SUB, "sub", 2, 'i', "ii", 1)                                                                                     \
    X(MUL, "mul", 2, 'i', "ii", 1)                                                                                     \
    X(DIV, "div", 2, 'i', "ii", 1)                                                                                     \
    X(MOD, "mod", 2, 'i', "ii", 1)                                                                                     \
    X(NEG, "neg", 1, 'i', "i", 1)                                                                                      \
    X(ABS, "abs", 1, 'i', "i", 1)                                                                                      \
    X(MIN, "min", 2, 'i', "ii", 0)                                                                                     \
    X(MAX, "max", 2, 'i', "ii", 0)                                                                                     \
    X(IF_I, "select", 3, 'i', "bii", 0)                                                                                \
    X(EQ, "eq", 2, 'b', "ii", 0)                                                                                       \
    X(NE, "ne", 2, 'b', "ii", 0)                                                                                       \
    X(LT, "lt", 2, 'b', "ii", 0)                                                                                       \
    X(LE, "le", 2, 'b', "ii", 0)                                                                                       \
    X(NOT, "not", 1, 'b', "b", 0)                                                                                      \
    X(AND, "and", 2, 'b', "bb", 0)                                                                                     \
    X(OR, "or", 2, 'b', "bb", 0)                                                                                       \
    X(IFF, "iff", 2, 'b', "bb", 0)       /* bool == bool */                                                            \
    X(IF_B, "selectb", 3, 'b', "bbb", 0)

typedef enum mc_op {
#define X(id, name, arity, type, args, faults) MC_##id,
    MC_OPS(X)
#undef X
    MC_OP_COUNT
} mc_op;

/* One node, as it lies in the plan file. Unused operands are MC_NONE, unused imm 0. */
typedef struct mc_node {
    uint32_t op;
    uint32_t a, b, c;
    uint32_t guard; /* bool node < this one, or MC_NONE; only on nodes that can fault */
    uint32_t pad;   /* 0 */
    int64_t imm;
} mc_node;

typedef struct mc_code {
    const mc_node *nodes;
    uint32_t count;
} mc_code;

/* Which variables the answer depends on. */
enum { MC_USES_Q = 1, MC_USES_K = 2, MC_USES_N = 4, MC_USES_H = 8 };
unsigned mc_uses(mc_code code);

/* Checks hostile code: ops known, operands earlier and of the right type, guards right, answer bool, count in
 * 1..MC_MAX_NODES. Returns NULL if sound, else a static text that says what is wrong; *node gets the place. */
const char *mc_check(mc_code code, uint32_t *node);

/* --- evaluation, total meaning --------------------------------------------------------------------------------- */

/* One element. `scratch` has code.count int64. */
bool mc_eval(mc_code code, int64_t q, int64_t k, int64_t n, int64_t h, int64_t *scratch);

/* A row of elements: allow(q, k0 + i) for i < width; out[i] is 0 or 1. width <= MC_ROW. `scratch` has
 * mc_row_scratch(code) int64; node values that do not depend on k are computed once. */
enum { MC_ROW = 128 };
size_t mc_row_scratch(mc_code code);
void mc_eval_row(mc_code code, int64_t q, int64_t k0, uint32_t width, int64_t n, int64_t h, int64_t *scratch,
                 uint8_t *out);

/* --- evaluation, faulting meaning ------------------------------------------------------------------------------- */

typedef enum mc_fault { MC_OK, MC_OVERFLOW, MC_DIV_ZERO } mc_fault;
/* One element; on a fault returns it and sets *node to the first node (in order) that faults under its guard. */
mc_fault mc_eval_checked(mc_code code, int64_t q, int64_t k, int64_t n, int64_t h, int64_t *scratch, bool *out,
                         uint32_t *node);

const char *mc_op_name(uint32_t op); /* "add", ... ; "?" for an unknown one */

/* Floored division and its remainder, total meaning. */
static inline int64_t mc_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return (int64_t)(0 - (uint64_t)a);
    int64_t quotient = a / b, rest = a % b;
    return quotient - (rest != 0 && (rest < 0) != (b < 0));
}
static inline int64_t mc_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/* --- building ---------------------------------------------------------------------------------------------------- */

/* A builder that folds constants (never one that would fault), simplifies identities that cannot hide a reachable
 * fault, and shares equal nodes (same op, operands, imm and guard). `place` is an opaque number the caller attaches to
 * a new node (a source offset); it is kept beside the nodes for diagnostics and is not part of the code. */
typedef struct mc_builder mc_builder;
mc_builder *mc_builder_new(void);                      /* NULL when out of memory */
void mc_builder_free(mc_builder *b);
/* Returns the node's index, or MC_NONE when out of memory or over MC_MAX_NODES (mc_builder_failed says so). The guard
 * is ignored for ops that cannot fault, and dropped when it is constant true. */
uint32_t mc_emit(mc_builder *b, mc_op op, uint32_t a, uint32_t b_, uint32_t c, int64_t imm, uint32_t guard,
                 uint32_t place);
bool mc_builder_failed(const mc_builder *b);
const mc_node *mc_builder_nodes(const mc_builder *b, uint32_t *count);
uint32_t mc_builder_place(const mc_builder *b, uint32_t node);
/* Extracts the code that `root` (a bool node) needs, renumbered in the same order, root last, guards included.
 * *nodes and *places are malloc'd (caller frees). False when out of memory. A faulting node is kept only if the root or
 * a guard of a kept node reaches it. */
bool mc_extract(const mc_builder *b, uint32_t root, mc_node **nodes, uint32_t **places, uint32_t *count);
#endif
