/* enums.h: the enums and limits of a plan, and the words for its values in programs, dumps and JSON. */
#ifndef FCP_PLAN_ENUMS_H
#define FCP_PLAN_ENUMS_H
#include "runtime/fcp.h"

#define FCP_NONE UINT32_MAX
enum { FCP_CELL = 128 };
enum { FCP_MAX_STAGES = (1 << 24) - 2 };
enum { FCP_MAX_RANKS = 1 << 24 };

/* The sides of a sequence; and the bits that say which of them a block holds. */
typedef enum fcp_side { FCP_QUERIES, FCP_KEYS, FCP_SIDES } fcp_side;
enum { FCP_HOLDS_Q = 1 << FCP_QUERIES, FCP_HOLDS_KV = 1 << FCP_KEYS, FCP_HOLDS_BOTH = FCP_HOLDS_Q | FCP_HOLDS_KV };

/* Each list gives the values of an enum in order, with the word for each. The enum is made from the list here, and
 * the table of words in enum_names.c. Programs, dumps and JSON use the words. Queues and classes have a second word,
 * for sentences. */
#define FCP_ID(id, ...) id,
#define FCP_ALIGN_LIST(X) X(FCP_BOTTOM_RIGHT, "bottom_right") X(FCP_TOP_LEFT, "top_left")
#define FCP_STRATEGY_LIST(X)                                                                                           \
    X(FCP_STRATEGY_FCP, "fcp")                                                                                         \
    X(FCP_STRATEGY_RING, "ring") X(FCP_STRATEGY_ZIGZAG, "zigzag") X(FCP_STRATEGY_CAD, "cad")                           \
        X(FCP_STRATEGY_ULYSSES, "ulysses") X(FCP_STRATEGY_UPIPE, "upipe") X(FCP_STRATEGY_DCP, "dcp")                   \
            X(FCP_STRATEGY_GROUPS, "groups")
#define FCP_FABRIC_LIST(X) X(FCP_NET, "net") X(FCP_LOCAL, "local")
#define FCP_TOPOLOGY_LIST(X) X(FCP_FAT_TREE, "fat_tree") X(FCP_RAIL, "rail")
#define FCP_QUEUE_LIST(X) X(FCP_COMPUTE, "compute", "compute") X(FCP_COMM, "comm", "communication")
/* What a transfer carries. IN and OUT move between the caller's tensors and home blocks: forward IN = Q K V, OUT = O
 * LSE; backward IN = Q K V O dO LSE and, if the plan has lse_gradient, dLSE, OUT = dQ dK dV. With values_in_keys
 * there is no V and no dV. LSE is always a pair of floats (FORMAT.md: LSE). */
#define FCP_CLASS_LIST(X)                                                                                              \
    X(FCP_KV, "kv", "KV")                                                                                              \
    X(FCP_Q, "q", "Q")                                                                                                 \
    X(FCP_STATE, "state", "state")                                                                                     \
    X(FCP_O, "o", "O")                                                                                                 \
    X(FCP_DKV, "dkv", "dKV")                                                                                           \
    X(FCP_DQ, "dq", "dQ")                                                                                              \
    X(FCP_DQW, "dqw", "whole dQ")                                                                                      \
    X(FCP_IN, "in", "inputs")                                                                                          \
    X(FCP_OUT, "out", "outputs")
#define FCP_CELL_LIST(X) X(FCP_CELL_NONE, "none") X(FCP_CELL_FULL, "full") X(FCP_CELL_PARTIAL, "partial")
#define FCP_DIRECTION_LIST(X) X(FCP_SEND, "send") X(FCP_RECV, "recv")
#define FCP_ROUND_LIST(X)                                                                                              \
    X(FCP_ROUND_IN, "in")                                                                                              \
    X(FCP_ROUND_INDEPENDENT, "independent")                                                                            \
    X(FCP_ROUND_DEPENDENT, "dependent")                                                                                \
    X(FCP_ROUND_OUT, "out")
#define FCP_ARRAY_LIST(X) X(FCP_FIELD, "field") X(FCP_TABLE, "table")
/* The instructions, with operands a, b and c. The compute queue has all but LAUNCH; the communication queue has WAIT
 * and LAUNCH. Slots are of the class that is named.
 *   WAIT      in the compute queue: until the first a instructions of the communication queue have ended what they move
 *             over net, and the first b what they move over local; 0 for a fabric that the cluster does not have. In
 *             the communication queue: until the first a instructions of the compute queue are complete
 *   COPY      transfers [a, a + b), which are of class IN or OUT and have the rank itself as peer: between the caller's
 *             tensors and home slots
 *   DELTA     backward pass: delta = sum(dO * O) of the home blocks in home slots [a, a + b) that hold Q
 *   ATTEND    visits [a, a + b), in one launch
 *   REDUCE    of block a: adds DKV slot b into DKV slot c, or copies it if it is the first contribution to c
 *   MERGE     of Q block a: merges STATE slot b into STATE slot c, or moves it if c is empty
 *   FINISH    of Q block a: makes O and LSE of the state in STATE slot b; the sink joins here. At home they go to the
 *             home slot, and c is not used; elsewhere to O slot c
 *   REDUCE_Q  of Q block a: as REDUCE, of DQ
 *   ROUND     of Q block a: rounds the sum in DQ slot b to the dtype, into DQW slot c
 *   LAUNCH    transfers [a, a + b) of round c, as one group */
#define FCP_OP_LIST(X)                                                                                                 \
    X(FCP_OP_WAIT, "wait")                                                                                             \
    X(FCP_OP_COPY, "copy")                                                                                             \
    X(FCP_OP_DELTA, "delta")                                                                                           \
    X(FCP_OP_ATTEND, "attend")                                                                                         \
    X(FCP_OP_REDUCE, "reduce")                                                                                         \
    X(FCP_OP_MERGE, "merge")                                                                                           \
    X(FCP_OP_FINISH, "finish")                                                                                         \
    X(FCP_OP_REDUCE_Q, "reduce_q")                                                                                     \
    X(FCP_OP_ROUND, "round")                                                                                           \
    X(FCP_OP_LAUNCH, "launch")

typedef enum fcp_align { FCP_ALIGN_LIST(FCP_ID) FCP_ALIGN_COUNT } fcp_align;
typedef enum fcp_strategy { FCP_STRATEGY_LIST(FCP_ID) FCP_STRATEGY_COUNT } fcp_strategy;
typedef enum fcp_fabric { FCP_FABRIC_LIST(FCP_ID) FCP_FABRICS } fcp_fabric;
typedef enum fcp_queue { FCP_QUEUE_LIST(FCP_ID) FCP_QUEUES } fcp_queue;
typedef enum fcp_topology { FCP_TOPOLOGY_LIST(FCP_ID) FCP_TOPOLOGY_COUNT } fcp_topology;
typedef enum fcp_class { FCP_CLASS_LIST(FCP_ID) FCP_CLASSES } fcp_class;
typedef enum fcp_cell_class { FCP_CELL_LIST(FCP_ID) FCP_CELL_CLASS_COUNT } fcp_cell_class;
typedef enum fcp_direction { FCP_DIRECTION_LIST(FCP_ID) FCP_DIRECTION_COUNT } fcp_direction;
typedef enum fcp_array_kind { FCP_ARRAY_LIST(FCP_ID) FCP_ARRAY_KINDS } fcp_array_kind;
typedef enum fcp_round_kind { FCP_ROUND_LIST(FCP_ID) FCP_ROUND_KIND_COUNT } fcp_round_kind;
typedef enum fcp_op { FCP_OP_LIST(FCP_ID) FCP_OP_COUNT } fcp_op;
/* Returns whether a class is one of partial results: STATE, DKV or DQ. */
static inline bool fcp_is_partial(fcp_class cls) { return cls == FCP_STATE || cls == FCP_DKV || cls == FCP_DQ; }
#endif
