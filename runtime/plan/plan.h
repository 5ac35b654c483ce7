/* plan.h: the plan: its tables, as they lie in memory and in the file, and what they mean.
 *
 * A plan says, for one batch on one cluster, which rank computes what, what it sends and receives, and in which order.
 * It is one set of flat tables for all ranks. Records have a fixed size and refer to each other by index, so they are
 * used straight from the mapped file. The compiler fills the same tables in memory, and saving writes them out.
 *
 *   sequences   how many queries and keys each sequence has, and at which position its queries begin
 *   pieces      stretches of one sequence: (sequence, start, length), grouped by block
 *   deals       which ranks' callers hold which sequences, if the layout is a rule
 *   heads       ranges of heads: which heads a block's Q and KV are of
 *   blocks      what is placed and moved: a run of pieces of one range of heads, with a home rank and a home slot there
 *   tiles       the work: one Q block against one KV block, in the order of execution: by rank, stage, Q block
 *   parts       of a tile: which Q piece meets which KV piece, and the shape of the mask between them
 *   shapes      shared by parts: runs of cells of 128 x 128 pairs that are FULL or PARTIAL
 *   head_classes  which query heads see the same pairs, if the mask names h
 *   visits      what a rank computes at once for one Q block, its own or a moved one: tiles of one stage
 *   rounds      of a pass: steps of communication in which a rank sends at most once and receives at most once a fabric
 *   streams     the instructions of each pass, rank and queue
 *   transfers   what a LAUNCH sends and receives, and what a COPY copies
 *
 * UNITS. Lengths and starts count tokens, sizes are bytes, positions count from 0. Sizes in bytes follow from tokens by
 * fcp_class_bytes.
 *
 * HEADS. A block holds its tokens for one range of heads. Most plans have one range, of all heads. All ranges are of
 * equal size: `range_kv` KV heads, and of each of them `range_sub` of the query heads that share it. A block that holds
 * KV has all query heads of its KV heads as its range, since any of them may read it: so one that holds Q as well has,
 * too, and in a plan of such blocks `range_sub` is all. A tile's Q block is of the same KV heads as its KV block. Over
 * all blocks each (token, query head) has one home, and so has each (token, KV head). So ranges begin at multiples of
 * their size, which divides the number of heads.
 *
 * DOCUMENTS. A document is a run of neighbouring tokens of one sequence in which the field `documents` has one value.
 * It is for positions and labels alone: the mask is what it is without it. So each sequence of the plan must have as
 * many queries as keys, and token i of one side is token i of the other. Without such a field a document is a sequence.
 *
 * CLASSES OF HEADS. If the mask names h, heads may see different pairs. Heads that see the same pairs are a class, and
 * there are shapes for each class. An example: a window of w[h] tokens, where w is [1024, 4096, 1024, 1024]. Heads 0, 2
 * and 3 are class 0, head 1 is class 1, and head_classes is [0, 1, 0, 0]. A part of a tile then has two shapes, which
 * lie next to each other; it names the first. A range of heads has those classes that its heads are of, in the order of
 * their numbers: a range of heads 2 and 3 has class 0 alone, and its parts have one shape. If the mask does not name h,
 * head_classes is empty, and every part has one shape.
 *
 * SIDES. A sequence has a side of queries and a side of keys. Its keys are at positions 0 to keys - 1. Its queries are
 * at q_first to q_first + queries - 1, where q_first is keys - queries (aligned at the bottom right: the last query is
 * at the last key's position) or 0 (at the top left). If every sequence has as many queries as keys, token i of one
 * side is token i of the other: each block may hold Q and KV of its tokens, and then there is one layout. If some
 * sequence does not, the plan must be split, and otherwise it may be: every block, of whatever sequence, holds either Q
 * or KV, and queries and keys have a layout each. Either side, or both, may have no tokens: then no piece is of it. The
 * plan of a batch without any tokens has no blocks, and is not split. Starts of pieces count the tokens of their own
 * side, from the sequence's first.
 *
 * LAYOUT. Which tokens the caller holds at which rank, and in which order, is not listed. For contiguous and zigzag it
 * follows from problem.layout, problem.layout_group, the deals and the lengths; layout.h states the rules. With planned
 * there are no deals: rank r holds its home blocks, in block order. Where a token then has several blocks, of different
 * heads, that of the first range of heads counts.
 *
 * BUNDLES. Classes IN and OUT move tokens between the rank whose caller holds them and their home. All tokens that the
 * caller holds at rank c and whose home is h are one bundle, in order of (block, offset in the block). In a split plan
 * there are two, of queries and of keys. Nothing lists what is in a bundle: layout and blocks say it. IN and OUT cut it
 * into units of `unit` tokens; the last one may have fewer. The bundle of a rank with itself is moved by COPY, whole.
 * Where a token has several blocks, of different heads, it is in the bundle once for each, with that block's heads
 * only. What travels is, tensor by tensor in the order that is given with FCP_CLASS_LIST, the rows of the unit's
 * tokens.
 *
 * WHERE WORK IS DONE. A tile runs on any rank: the rank that attends to the visit which holds it. Keys and values come
 * to that rank from their home, and so does Q, if the Q block is not at home there. Where the tiles of a Q block run at
 * several ranks, each of them returns a partial result: forward the running state (m, l and O in fp32), backward dQ in
 * fp32. Partials are merged on the way. Of a Q block there are two kinds.
 *   whole     All its tiles run at other ranks than its home, and one rank away from home makes its results: the one
 *             that computes all tiles, or, where several do, the one to which all partials come. So they come home
 *             finished: O in the dtype with the LSE, dQ in the dtype. Such a block has the flag FCP_BLOCK_WHOLE.
 *   partial   The home makes the results, of its own tiles and of the partials that come. If all tiles run at home, the
 *             block is of this kind, too: there is no partial then. If all run at one other rank, it is not.
 *
 * SLOTS. Each rank has slots of each class, numbered from 0, and each slot can hold the largest block. In the classes
 * KV, Q, O, DKV, DQ and DQW the slots 0 to homes - 1 belong to the rank's own blocks (a block's home_slot); the slots
 * from homes on are transient. A block that does not hold a class has its home slot there all the same: it has no size,
 * and nothing may name it. Class STATE has transient slots only. Before a pass, home slots get what the reshuffle IN
 * and COPY bring; transient slots hold nothing.
 *   KV     K and V.
 *   Q      forward Q; backward Q, dO, LSE and delta.
 *   STATE  forward: the running m, l and O of a Q block, between visits, as it travels, and while partials are merged.
 *   O      forward results: O in the dtype, and LSE.
 *   DKV    backward: dK and dV in fp32, added up.
 *   DQ     backward: dQ in fp32, added up.
 *   DQW    backward results: dQ in the dtype. OUT of a block that is not whole rounds its DQ home slot; that of a whole
 *          block moves its DQW home slot as it is.
 *
 * LSE. A row's LSE is m + log l, where m is its largest logit. Beside a large m a float has no room for log l: at 1e9 its
 * neighbours are 64 apart. The backward pass needs log l, because P = exp(logit - LSE). So LSE is two floats wherever it
 * lies and travels: lse, which is rounded, and lse_low = (m - lse) + log l, what rounding took. Then P = exp((logit -
 * lse) - lse_low). The first difference is exact where P is not tiny, because the two are near each other.
 *
 * PASSES. Every plan has a forward pass. Both passes use the same tiles, visits, KV and Q slots and stages, and run a
 * tile at the same rank.
 *   forward:   KV and Q travel from their homes to the ranks that need them, from holder to holder. Along each way the
 *              receiver holds the whole block before it sends it on. States return to the Q block's home, from holder
 *              to holder, merged where several meet. O of whole blocks returns unchanged.
 *   backward:  KV and Q travel the same ways; Q after DELTA of its block. fp32 partials of dKV and dQ return, and are
 *              reduced where several meet; DQW of whole blocks returns unchanged. A tile adds its dK and dV to the DKV
 *              slot `dkv_slot`, and its dQ to the DQ slot `dq_slot` of its visit. Where the block is at home these are
 *              its home slots, which are 0 when the pass begins. Elsewhere they are transient accumulators: the first
 *              contribution sets one, counting from the last send out of that slot.
 *
 * QUEUES. Each rank has a compute queue and a communication queue. Each runs its instructions in order, one at a time.
 * A LAUNCH is a rank's share of one round: it starts when its queue reaches it, and completes when all its sends and
 * receives have completed. Its transfers over a fabric may start and end sooner than those over the other: fabrics.c.
 * A WAIT of the communication queue names one number, n, and blocks until the compute queue has completed its first n
 * instructions. A WAIT of the compute queue names two, so that what came over local need not wait for the slower net.
 * An example: rank 3 of two nodes of four gets KV from rank 2 over local, and in the same round sends KV to rank 4 over
 * net. If that is the communication queue's instruction 5, counted from 1, the tiles that read what came wait for 5 over
 * local, and for net only as far as what they read, or overwrite, came or left over net.
 *
 * CHAINS OF STATE. At each rank the visits to a Q block, and the MERGEs into its state, form one chain, in the order of
 * the compute queue. A visit with the flag FIRST begins the chain: it reads no state. The others read the state in
 * `state_slot`. A visit with the flag LAST writes O to `o_slot`; it is the end of the chain, and the rank has computed
 * all tiles of the block: at home `o_slot` is the home slot, elsewhere a transient slot from which O is sent, and the
 * block is whole. A visit without LAST leaves its state in `state_slot`. A chain without LAST ends in one of: the state
 * is sent; it is MERGEd into another slot; FINISH makes O of it, at home or, of a whole block, at one other rank. MERGE
 * into an empty slot moves the state there.
 *
 * RECEIVED PARTIALS. A received STATE, DKV or DQ lies in a transient slot until MERGE, REDUCE or REDUCE_Q adds it to
 * another slot of its class: for DKV and DQ at the home the home slot; elsewhere, and for STATE, a transient slot of
 * its own, which the first contribution (of a visit, a tile or an addition) begins. Sending a partial from a transient
 * slot empties that slot, and so does adding it to another. ROUND empties its DQ slot.
 *
 * WIRE. In slots partial results are in fp32, and with wire = fp32 they travel as they are. With wire = bf16 the sender
 * of a partial rounds its O (STATE), its dK and dV (DKV) or its dQ (DQ) to bf16; m and l stay in fp32, because all of
 * a row depends on them. The receiver makes fp32 of what comes. So only a LAUNCH knows of the wire: sizes of slots and
 * all other instructions are the same. A partial that passes through several ranks is rounded at each, after it was
 * added to what is there.
 *
 * HALVES. A plan may move its work in two halves, of which one is computed while the other moves. The KV and Q that
 * come before some stage S are the first half's, and those that come from S on the second half's. Dependent rounds of
 * stage S and later have the flag SECOND, in both passes. All units of a block that come to a rank are of one half. A
 * tile is of the second half if it needs something of that half, and at no rank do these tiles have more than half of
 * the work that waits for other ranks, as near as whole tiles allow. Something comes in stage S, and something in the
 * stage before it. Plans without halves have no such flag.
 *
 * RULES that the verifier holds plans to.
 *   - Rounds count from 0 in each pass: the c of a LAUNCH means rounds[round_starts[pass] + c]. A rank launches each
 *     round that it has a share in once, in increasing order, and the LAUNCH has the round's stage.
 *   - Stages never decrease along a queue, nor along a pass's rounds.
 *   - A transfer between ranks has no more tokens than a unit of its class on its fabric: fcp_unit_tokens.
 *   - What a block does not hold is not moved: a bundle of keys has no OUT in the forward pass.
 *   - Every unit of every bundle is moved in once and, but for those, out once, in either order.
 *   - IN rounds move IN, and OUT rounds OUT. INDEPENDENT rounds move KV and Q from home slots. DEPENDENT rounds move KV
 *     and Q from other slots, and from home slots what is to leave later, and STATE, O, DKV, DQ and DQW.
 *   - A home block can be read, sent or copied out once all its tokens are in. DELTA of a block needs all its tokens,
 *     and comes before what reads or sends its Q in the backward pass. Every home block that holds Q has one DELTA.
 *   - A LAUNCH of an INDEPENDENT or DEPENDENT round of stage t follows, by WAITs, every ATTEND of stage t - buffers or
 *     earlier.
 *   - The number of stages of a pass is 1 + the largest stage of an ATTEND or of an INDEPENDENT or DEPENDENT round, and
 *     at least 1. What follows the last stage may have that number as its stage, and nothing a larger one.
 *   - MERGEs, REDUCEs and REDUCE_Qs into one slot go in order of (round in which the partial's last unit arrived,
 *     sender). A partial is received whole from one sender, and added before it travels on.
 *   - Every unit that is received is read, added, or sent on.
 *   - Results of a block are made once and come home once: by its own visit with LAST, by FINISH, or, of a whole block,
 *     as O; and backward as the sum of all dQ in its home slot or, of a whole block, by one ROUND and as DQW.
 *   - Transient slot numbers of a class have no gaps.
 *   - If two accesses of a slot are in different queues and one of them writes, WAITs of that rank order them. A WAIT
 *     of the compute queue does so if it covers the transfer in the fabric over which that goes.
 *   - WAITs have no circle, even if a WAIT of the compute queue is taken as one for whole instructions: up to the larger
 *     of its two numbers. So whoever runs both fabrics as one queue, as the host does, cannot get stuck either.
 *   - Operands that an instruction does not use, and pads, are 0.
 *   - A pass that the plan does not have has no rounds and no instructions, and zeros in the summary.
 *   - A rank may have no blocks, no tokens of the caller's, or neither.
 *
 * HOSTILE INPUT. Nothing in a file can be trusted. The loader checks sizes and checksums, fcp_plan_check every index,
 * count and enum, and fcp_plan_verify the meaning; only then may other code use the tables without checks of its own.
 *
 * OWNERSHIP. A plan's tables belong to whoever made it: a mapped file, a copy, or the compiler's memory. fcp_plan_free
 * ends all of them by plan->release.
 */
#ifndef FCP_PLAN_PLAN_H
#define FCP_PLAN_PLAN_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"

#define FCP_NONE UINT32_MAX
enum { FCP_CELL = 128 };
enum { FCP_PLAN_VERSION = 6 };

/* The sides of a sequence; and the bits that say which of them a block holds. */
typedef enum fcp_side { FCP_QUERIES, FCP_KEYS, FCP_SIDES } fcp_side;
enum { FCP_HOLDS_Q = 1 << FCP_QUERIES, FCP_HOLDS_KV = 1 << FCP_KEYS, FCP_HOLDS_BOTH = FCP_HOLDS_Q | FCP_HOLDS_KV };

/* Enums with names. Each list gives the values in order, each with its name. The enum is made from the list here, and
 * the table of names from the same list in enum_names.c. A name is the word that programs, dumps and JSON use. Queues and
 * classes have a second one, for sentences. */
#define FCP_ID(id, ...) id,
#define FCP_ALIGN_LIST(X) X(FCP_BOTTOM_RIGHT, "bottom_right") X(FCP_TOP_LEFT, "top_left")
#define FCP_STRATEGY_LIST(X)                                                                                           \
    X(FCP_STRATEGY_FCP, "fcp") X(FCP_STRATEGY_RING, "ring") X(FCP_STRATEGY_ZIGZAG, "zigzag")                           \
    X(FCP_STRATEGY_CAD, "cad") X(FCP_STRATEGY_ULYSSES, "ulysses") X(FCP_STRATEGY_UPIPE, "upipe")                       \
    X(FCP_STRATEGY_DCP, "dcp") X(FCP_STRATEGY_GROUPS, "groups")
#define FCP_FABRIC_LIST(X) X(FCP_NET, "net") X(FCP_LOCAL, "local")
#define FCP_TOPOLOGY_LIST(X) X(FCP_FAT_TREE, "fat_tree") X(FCP_RAIL, "rail")
#define FCP_QUEUE_LIST(X) X(FCP_COMPUTE, "compute", "compute") X(FCP_COMM, "comm", "communication")
/* What a transfer carries. IN and OUT move between the caller's layout and home blocks:
 * forward IN = Q K V, OUT = O LSE; backward IN = Q K V O dO LSE and, if the plan has it, dLSE, OUT = dQ dK dV. V and dV
 * are not there with values_in_keys. LSE is a pair of floats wherever it goes: see LSE. */
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
#define FCP_ROUND_LIST(X)                                                                                             \
    X(FCP_ROUND_IN, "in")                                                                                              \
    X(FCP_ROUND_INDEPENDENT, "independent")                                                                            \
    X(FCP_ROUND_DEPENDENT, "dependent")                                                                                \
    X(FCP_ROUND_OUT, "out")
#define FCP_ARRAY_LIST(X) X(FCP_FIELD_KEYS, "keys") X(FCP_FIELD_QUERIES, "queries") X(FCP_TABLE, "table")

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

/* Section PROBLEM: one record. */
typedef struct fcp_problem {
    uint32_t ranks, nodes, gpus; /* ranks = nodes * gpus; rank r is GPU r % gpus of node r / gpus */
    uint32_t heads, kv_heads;
    uint32_t head_dim, value_dim; /* numbers of a head of Q and K; of V and O */
    uint32_t range_kv, range_sub; /* of each range of heads: KV heads, and query heads of each KV head */
    uint16_t dtype;              /* an fcp_dtype: of the tensors */
    uint16_t wire;               /* FCP_FP32 or FCP_BF16: of partial results as they travel; see WIRE */
    uint16_t values_in_keys;     /* 1: V is the first value_dim numbers of each row of K; there is no V and no dV */
    uint16_t lse_gradient;       /* 1: the backward pass takes a gradient of LSE */
    uint32_t layout, strategy, topology;
    uint32_t layout_group;       /* neighbouring ranks over which a layout is made; `ranks`: all those of a deal */
    uint32_t block;              /* tokens; the block size asked for */
    uint32_t max_block;          /* tokens of the largest block that holds KV; a KV or DKV slot has room for it */
    uint32_t max_q_block;        /* tokens of the largest block that holds Q; a STATE slot has room for it */
    uint32_t unit;               /* tokens of KV; of other classes a unit has as many bytes, or more: fcp_unit_tokens */
    uint32_t coalesce, buffers, margin;
    uint32_t passes;             /* bit per fcp_pass */
    uint32_t deterministic;
    uint32_t mask_uses;          /* MC_USES_* of the mask */
    uint32_t align;              /* an fcp_align; bottom right if every sequence has as many queries as keys */
    uint32_t documents;          /* the array that tells documents apart; FCP_NONE: sequences are the documents */
    uint32_t pad;
    uint64_t tokens, key_tokens; /* how many queries and how many keys; equal if the plan is not split */
    uint64_t memory_cap;         /* bytes per rank */
    double scale;
} fcp_problem;

/* Section CLUSTER: one record. It is there for whoever estimates times; the runtime uses `multiprocessors` alone.
 * Bandwidths are in bytes per second for each GPU. */
typedef struct fcp_cluster {
    char gpu[12];                /* profile name, NUL-padded */
    uint32_t multiprocessors;    /* of a GPU: kernels' work lists are cut into enough pieces for so many, and for no
                                  * other number, so that a plan gives the same bits on every device; 0: not cut */
    uint64_t intra, inter;       /* bytes/s */
    uint64_t latency_ns;
    uint64_t flops;              /* dense, at the model's dtype, per second */
    uint64_t memory_bandwidth;   /* bytes/s */
    uint64_t oversubscription_milli; /* 1000 = none */
} fcp_cluster;

/* Section SUMMARY: one record. Everything in it follows from the tables, and the verifier checks that it does. */
typedef struct fcp_summary {
    uint64_t sequences, blocks, tiles;
    uint64_t pairs;              /* of all tiles: allowed (query, key) pairs, once for each range of query heads; summed
                                  * over heads if the mask uses h */
    uint64_t positions;          /* all (query, key) pairs, summed likewise: density = pairs / positions */
    uint64_t pairs_max_rank;     /* compute_max_over_mean = pairs_max_rank * ranks / pairs */
    uint64_t pairs_max_block;    /* heaviest Q block: compute_floor = max(1, pairs_max_block * ranks / pairs) */
    uint64_t tokens_max_rank, key_tokens_max_rank; /* the most home tokens of a rank: of queries, of keys */
    /* the forward pass */
    uint64_t bytes_total;        /* sent on both fabrics, without the reshuffle */
    uint64_t bytes_moved;        /* the part of bytes_total that is Q, state and O, and not KV */
    uint64_t bytes_inter_node;   /* the part of bytes_total that goes over net */
    uint64_t send_max, recv_max; /* bytes on both fabrics, of the rank that sends most, that receives most */
    uint64_t bytes_reshuffle;    /* IN and OUT, between ranks */
    uint64_t rounds;             /* INDEPENDENT ones */
    uint64_t rounds_lower_bound; /* the most INDEPENDENT units that a rank sends, or receives, on a fabric */
    uint64_t rounds_dependent;
    uint64_t rounds_bound;       /* the same of INDEPENDENT and DEPENDENT units together */
    uint64_t rounds_reshuffle;   /* IN and OUT */
    uint64_t stages;             /* the number of the last stage + 1 */
    uint64_t slots_max;          /* the most transient KV slots of a rank */
    uint64_t state_bytes;        /* of running state that visits read and write, over all ranks */
    uint64_t memory_peak_bytes;  /* of the largest rank, over the plan's passes; see fcp_rank_memory */
    /* the backward pass; 0 if the plan has none */
    uint64_t backward_bytes_total, backward_bytes_inter_node;
    uint64_t backward_bytes_moved; /* Q with what goes with it, and dQ */
    uint64_t backward_rounds, backward_rounds_dependent, backward_rounds_bound, backward_rounds_reshuffle;
    uint64_t backward_stages;
    uint64_t backward_slots_max; /* the most transient KV and DKV slots of a rank, added up */
    /* over both passes */
    uint64_t peers_max;          /* the most other ranks that one rank exchanges anything with */
} fcp_summary;

typedef struct fcp_sequence {
    uint64_t queries, keys;
    int64_t q_first; /* position of its first query */
} fcp_sequence;

typedef struct fcp_piece {
    uint32_t sequence;
    uint32_t length;
    uint64_t start;  /* counted from the sequence's first token of the side that the block holds */
    uint32_t offset; /* of its first token in the block: the sum of the lengths before it */
    uint32_t block;
} fcp_piece;

/* Where a layout is a rule: neighbouring sequences of the batch, and the neighbouring ranks whose callers hold them.
 * The parts of a batch follow each other; their ranks may overlap. layout.h states the rules. */
typedef struct fcp_deal {
    uint32_t first_sequence, sequences, first_rank, ranks;
} fcp_deal;

/* KV head kv_first + i has G = heads / kv_heads query heads, of which the range has sub_first to
 * sub_first + sub_count - 1. So the range has query heads (kv_first + i) * G + sub_first + j, in order of (i, j). */
typedef struct fcp_heads {
    uint32_t kv_first, kv_count, sub_first, sub_count;
} fcp_heads;

enum { FCP_BLOCK_WHOLE = 1 }; /* none of its tiles runs at its home, and its results come home finished */
typedef struct fcp_block {
    uint32_t first_piece, pieces;
    uint32_t tokens;
    uint32_t home, home_slot; /* home slots of a rank are 0, 1, 2, ... in block order */
    uint32_t heads;           /* an index into heads */
    uint16_t holds, flags;    /* FCP_HOLDS_*, FCP_BLOCK_* */
} fcp_block;

typedef struct fcp_tile {
    uint32_t q_block, k_block;
    uint32_t first_part, parts;
    uint32_t kv_slot;  /* of class KV */
    uint32_t dkv_slot; /* of class DKV; FCP_NONE when the plan has no backward pass */
    uint64_t pairs;    /* allowed in it, counted as in fcp_summary.pairs: over its range's heads, if at all */
} fcp_tile;

/* A Q piece against a KV piece of the same sequence. Parts of a tile are in order of (q_piece, k_piece). */
typedef struct fcp_part {
    uint32_t q_piece, k_piece; /* indices of pieces */
    uint32_t shape;            /* the first of its shapes: one for each class of heads */
} fcp_part;

/* The mask between a Q piece and a KV piece, in cells of FCP_CELL x FCP_CELL pairs. Runs are in order of (row, col),
 * where rows of cells count from the start of the Q piece. No pair is allowed in a cell that no run names. Cells of the
 * last row and column may be cut short by the ends of the pieces. A shape without runs is of a class of heads that sees
 * nothing here, beside others that do. */
typedef struct fcp_shape_rec {
    uint32_t first_run, runs;
    uint32_t q_length, k_length; /* of the pieces that it lies between */
    uint64_t pairs;              /* allowed in it, for one head */
} fcp_shape_rec;

typedef struct fcp_run {
    uint32_t row, col;
    uint32_t count : 30, cls : 2; /* `count` cells of class `cls` from column col on */
} fcp_run;

enum { FCP_VISIT_FIRST = 1, FCP_VISIT_LAST = 2 };
typedef struct fcp_visit {
    uint32_t q_block;
    uint32_t first_tile, tiles;
    uint32_t state_slot; /* FCP_NONE if this visit is the only one (FIRST and LAST) */
    uint32_t q_slot;     /* of class Q, at the rank that executes it */
    uint32_t o_slot;     /* of class O, where a visit with LAST writes; FCP_NONE without LAST */
    uint32_t dq_slot;    /* of class DQ; FCP_NONE when the plan has no backward pass */
    uint16_t flags, pad;
} fcp_visit;

/* A round of a pass. Every rank launches its share of the rounds in the order of their numbers. The DEPENDENT rounds of
 * a stage come before its INDEPENDENT ones. The stage of IN is 0. That of OUT is the last stage for units all of whose
 * blocks are done before it, since these move while it is computed, and the number after it for all others. */
typedef struct fcp_round {
    uint16_t kind, flags;
    uint32_t stage;
} fcp_round;
enum { FCP_ROUND_SECOND = 1 }; /* see HALVES */

/* The compute queue has all but LAUNCH; the communication queue WAIT and LAUNCH. Slots are of the instruction's class.
 *   WAIT      in the compute queue: until the first a instructions of the communication queue have ended what they move
 *             over net, and the first b what they move over local; 0 for a fabric that the cluster does not have. In the
 *             communication queue: until the first a instructions of the compute queue are complete
 *   COPY      transfers [a, a + b), which are of class IN or OUT and have the rank itself as peer: between the caller's
 *             tensors and home slots
 *   DELTA     backward pass: delta = sum(dO * O) of the home blocks in home slots [a, a + b); those without Q have none
 *   ATTEND    visits [a, a + b), in one launch
 *   REDUCE    of DKV of block a: adds slot b into slot c, or copies it if it is the first contribution to c
 *   MERGE     of STATE of Q block a: merges slot b into slot c, or moves it if c is empty
 *   FINISH    of Q block a: makes O and LSE of the state in slot b; the sink joins here. At home they go to the home
 *             slot, and c is not used; elsewhere to O slot c
 *   REDUCE_Q  of DQ of Q block a: as REDUCE
 *   ROUND     of Q block a: rounds the DQ in slot b to the dtype, into DQW slot c
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
typedef enum fcp_op { FCP_OP_LIST(FCP_ID) FCP_OP_COUNT } fcp_op;

/* The tables of names, indexed by the enum's value. */
extern const char *const fcp_dtype_names[FCP_DTYPES], *const fcp_pass_names[FCP_PASSES];
extern const char *const fcp_layout_names[FCP_LAYOUTS];
extern const char *const fcp_align_names[FCP_ALIGN_COUNT], *const fcp_strategy_names[FCP_STRATEGY_COUNT];
extern const char *const fcp_fabric_names[FCP_FABRICS], *const fcp_topology_names[FCP_TOPOLOGY_COUNT];
extern const char *const fcp_queue_names[FCP_QUEUES], *const fcp_queue_texts[FCP_QUEUES];
extern const char *const fcp_class_names[FCP_CLASSES], *const fcp_class_texts[FCP_CLASSES];
extern const char *const fcp_cell_names[FCP_CELL_CLASS_COUNT], *const fcp_direction_names[FCP_DIRECTION_COUNT];
extern const char *const fcp_round_names[FCP_ROUND_KIND_COUNT], *const fcp_op_names[FCP_OP_COUNT];
extern const char *const fcp_array_names[FCP_ARRAY_KINDS];

typedef struct fcp_instr {
    uint32_t op : 8, stage : 24;
    uint32_t a, b, c;
} fcp_instr;
enum { FCP_MAX_STAGES = (1 << 24) - 2 };

typedef struct fcp_stream {
    uint32_t first, count; /* instructions */
} fcp_stream;

/* One side of a transfer, as the rank sees it whose stream names it: `peer` is the other rank, `dir` says whether this
 * one sends. All but IN and OUT move tokens [first, first + tokens) of a block, and name a slot of their class;
 * received O and DQW name the home slot at home, and a transient one at a rank that only passes them on. They travel in
 * units: a transfer begins at a multiple of fcp_unit_tokens of its class and fabric, and has as many tokens or ends the
 * block. The units of a block arrive in a slot in order. IN and OUT move a unit of a bundle, tokens [first, first +
 * tokens) of it: `block` is FCP_NONE, and `side` says which of the two bundles of a split plan it is; else it is 0. At
 * the caller's end (fcp_at_caller) an IN is sent and an OUT is received. A COPY has only one end in the table: the
 * caller's. */
typedef struct fcp_transfer {
    uint32_t peer : 24, cls : 4, fabric : 2, dir : 2;
    uint32_t block, first, tokens;
    union {
        uint32_t slot;
        uint32_t side; /* an fcp_side */
    };
} fcp_transfer;
enum { FCP_MAX_RANKS = 1 << 24 };
/* Class, fabric and direction of a transfer in one number: cls | fabric << 4 | dir << 6, of sound ones below FCP_WAYS.
 * It is a byte of the record (file.h: little-endian), so loops over all transfers look up what differs by all three. */
enum { FCP_WAYS = 96 };
static inline uint32_t fcp_way_of(const fcp_transfer *t) { return ((const uint8_t *)t)[3]; }
static inline bool fcp_at_caller(const fcp_transfer *t) {
    return t->cls == FCP_IN ? t->dir == FCP_SEND : t->cls == FCP_OUT && t->dir == FCP_RECV;
}

/* An array that mask, score or `documents` reads. A field has an integer for each key, or each query, of the batch; a
 * table belongs to the model. Its count * max(1, columns) values lie in DATA from `offset` on, which is a multiple of
 * 64. */
typedef struct fcp_array {
    uint32_t name, file; /* where in NAMES each begins, NUL-terminated; the file as the program names it, or FCP_NONE */
    uint32_t kind;
    uint32_t width;      /* mc_width; MC_F64 in tables only */
    uint64_t count, columns; /* columns: 0 if it has one dimension, as fields do */
    uint64_t offset;
    int64_t lo, hi;      /* the least and the greatest value; 0 for reals */
    uint8_t hash[32];    /* SHA-256 of the file; zeros if there is none */
} fcp_array;

/* A union of slices, as mc_bands: its rows lie together, and so do its bands. */
typedef struct fcp_slices {
    uint32_t first_row, rows, first_band, bands;
} fcp_slices;

/* Sections in file order: name, record type, member of fcp_plan. */
#define FCP_SECTIONS(X)                                                                                                \
    X(SOURCE, char, source)            /* canonical source, no NUL */                                                  \
    X(PROBLEM, fcp_problem, problem)                                                                                   \
    X(CLUSTER, fcp_cluster, cluster)                                                                                   \
    X(SUMMARY, fcp_summary, summary)                                                                                   \
    X(SEQUENCES, fcp_sequence, sequences)                                                                              \
    X(PIECES, fcp_piece, pieces)                                                                                       \
    X(DEALS, fcp_deal, deals)          /* of contiguous and zigzag; empty: planned */                                  \
    X(HEADS, fcp_heads, heads)         /* ranges of heads */                                                           \
    X(BLOCKS, fcp_block, blocks)                                                                                       \
    X(TILES, fcp_tile, tiles)                                                                                          \
    X(PARTS, fcp_part, parts)                                                                                          \
    X(SHAPES, fcp_shape_rec, shapes)                                                                                   \
    X(RUNS, fcp_run, runs)                                                                                             \
    X(VISITS, fcp_visit, visits)                                                                                       \
    X(ROUNDS, fcp_round, rounds)       /* of the forward pass, then of the backward pass */                            \
    X(ROUND_STARTS, uint32_t, round_starts) /* FCP_PASSES + 1 offsets into rounds */                                   \
    X(STREAMS, fcp_stream, streams)    /* [(pass * ranks + rank) * FCP_QUEUES + queue] */                              \
    X(INSTRS, fcp_instr, instrs)                                                                                       \
    X(TRANSFERS, fcp_transfer, transfers)                                                                              \
    X(MASK, mc_node, mask)                                                                                             \
    X(SCORE, mc_node, score)           /* empty: the score is s */                                                     \
    X(SLOPE, mc_node, slope)           /* its derivative by s; follows from it: mc_slope in codegen/mask/code.h */     \
    X(SINK, double, sink)              /* per query head: a logit in the denominator; empty: none */                   \
    X(NAMES, char, names)                                                                                              \
    X(ARRAYS, fcp_array, arrays)                                                                                       \
    X(DATA, uint8_t, data)                                                                                             \
    X(SLICES, fcp_slices, slices)                                                                                      \
    X(BAND_ROWS, mc_band_rows, band_rows)                                                                              \
    X(BANDS, mc_band, bands)                                                                                           \
    X(HEAD_CLASSES, uint32_t, head_classes) /* per query head of the model; a file has it if the mask names h */

enum fcp_section_id {
#define X(id, type, member) FCP_SECTION_##id,
    FCP_SECTIONS(X)
#undef X
    FCP_SECTION_COUNT
};

/* The tables. Every pointer has `<member>_count` records. */
struct fcp_plan {
#define X(id, type, member)                                                                                            \
    const type *member;                                                                                                \
    uint64_t member##_count;
    FCP_SECTIONS(X)
#undef X
    /* who owns the tables: fcp_plan_free calls release(owner) if it is not NULL, and then frees the plan itself
     * (malloc'd) */
    void *owner;
    void (*release)(void *owner);
    /* derived from the tables by fcp_plan_index */
    uint64_t *sequence_offsets; /* malloc'd: prefix sums of queries, sequences_count + 1 of them, and then of keys */
    uint64_t *rank_tokens;      /* malloc'd: how many queries the caller holds at each rank, and then keys; NULL: what
                                 * the problem says of the layout is nonsense, and fcp_plan_check refuses it */
    /* malloc'd, NULL if head_classes is empty: for each of `heads` what fcp_class_count says, then what fcp_class_of
     * says of each of its query heads, then what fcp_class_size says of as many classes */
    uint32_t *range_classes;
    uint64_t *documents;        /* malloc'd: the row in the packed batch where each document begins, and the number of
                                 * all tokens; NULL: sequences are the documents, or fcp_plan_check refuses the field */
    uint64_t documents_count;   /* of documents; of sequences that have queries, where those are the documents */
    bool split;                 /* queries and keys are in blocks of their own */
    uint64_t file_size;         /* bytes that saving writes */
};

/* Fills what is derived from the tables. Called by the loader and the compiler. */
fcp_code fcp_plan_index(fcp_plan *plan, fcp_error *err);
/* Fills the part of it that follows from the lengths and the field of documents. */
fcp_code fcp_plan_index_documents(fcp_plan *plan, fcp_error *err);
/* Fills the part of it that follows from the layout. All other parts must have been filled. */
fcp_code fcp_plan_index_layout(fcp_plan *plan, fcp_error *err);
/* Are the numbers of a plan's field of documents there, one for each token? */
bool fcp_documents_are_sound(const fcp_plan *plan);
/* Are there as many ranks as the streams are for, in groups of equal size, and is the layout one that we know? */
bool fcp_layout_is_sound(const fcp_plan *plan);

/* The side whose positions index a field. */
static inline fcp_side fcp_array_side(const fcp_array *array) {
    return array->kind == FCP_FIELD_QUERIES ? FCP_QUERIES : FCP_KEYS;
}
/* Bytes of an array's values. */
static inline uint64_t fcp_array_bytes(const fcp_array *array) {
    return array->count * (array->columns ? array->columns : 1) * (array->width == MC_F64 ? 8 : array->width);
}
/* Is it a table of reals, which a run may bring anew and learn? */
static inline bool fcp_array_learnable(const fcp_array *array) {
    return array->kind == FCP_TABLE && array->width == MC_F64;
}
/* The part of an array that a sequence sees; the array's values begin at `data`. A table is seen whole. Of a field the
 * sequence sees its own part: first[side] is the sequence's first query or key in the batch, and q_first, queries and n
 * are in `env`. */
mc_array fcp_array_part(const fcp_array *array, const void *data, const uint64_t first[FCP_SIDES], const mc_env *env);
/* The environment of a sequence in which its mask and score are evaluated. Fills `arrays`, which has room for
 * arrays_count records, and `bands`, which has room for slices_count; *out_env points to them. */
void fcp_plan_env(const fcp_plan *plan, uint32_t sequence, mc_array *arrays, mc_bands *bands, mc_env *out_env);

/* Every index, count and enum is in range. Says nothing of what the plan means. */
fcp_code fcp_plan_check(const fcp_plan *plan, fcp_error *err);
/* The same, with `stop` as for fcp_plan_verify (runtime/verify/verify.h). */
fcp_code fcp_plan_check_until(const fcp_plan *plan, const volatile int *stop, fcp_error *err);
/* The same as fcp_plan_homes. */
fcp_code fcp_plan_homes_until(const fcp_plan *plan, const volatile int *stop, uint8_t out_digest[FCP_DIGEST_BYTES],
                              fcp_error *err);

/* Writes the bytes of a plan file to a descriptor. 0, or an errno value; EOVERFLOW: the tables are larger than any
 * file. */
int fcp_plan_write(const fcp_plan *plan, int fd);

/* The plan as text, one record a line, so that two plans can be compared line by line; or as one JSON object. `emit`
 * gets one chunk after the other. */
typedef void fcp_emit(void *context, const char *text, size_t size);
fcp_code fcp_plan_dump(const fcp_plan *plan, bool json, fcp_emit *emit, void *context, fcp_error *err);

static inline uint32_t fcp_node_of(const fcp_problem *p, uint32_t rank) { return rank / p->gpus; }
static inline const fcp_stream *fcp_stream_of(const fcp_plan *p, fcp_pass pass, uint32_t rank, fcp_queue queue) {
    return &p->streams[((uint64_t)pass * p->problem->ranks + rank) * FCP_QUEUES + queue];
}

/* The place of an instruction, for fcp_fail_at: `index` counts from 0 in that queue, which has that instruction. */
static inline fcp_where fcp_where_of(const fcp_plan *p, fcp_pass pass, uint32_t rank, fcp_queue queue, uint32_t index) {
    const fcp_instr *x = &p->instrs[fcp_stream_of(p, pass, rank, queue)->first + index];
    return (fcp_where){.rank = rank, .pass = pass, .stage = x->stage, .queue = queue, .instruction = index};
}

/* How many instructions of the other queue a WAIT of `queue` asks for, of what these move over a fabric. */
static inline uint32_t fcp_waits_over(const fcp_instr *x, fcp_queue queue, fcp_fabric fabric) {
    return queue == FCP_COMPUTE && fabric == FCP_LOCAL ? x->b : x->a;
}
/* The same of whole instructions. */
static inline uint32_t fcp_waits_whole(const fcp_instr *x) { return x->a > x->b ? x->a : x->b; }

/* Where work moves in two halves: the stage with which the second begins, which is the same in both passes. Else 0. */
static inline uint32_t fcp_second_stage(const fcp_plan *p) {
    for (uint64_t i = 0; i < p->rounds_count; i++)
        if (p->rounds[i].flags & FCP_ROUND_SECOND) return p->rounds[i].stage;
    return 0;
}
static inline bool fcp_plan_split(const fcp_plan *p) { return p->split; }
/* Prefix sums of a side's tokens over the sequences; sequences_count + 1 of them. */
static inline const uint64_t *fcp_offsets(const fcp_plan *p, fcp_side side) {
    return p->sequence_offsets + (side == FCP_KEYS ? p->sequences_count + 1 : 0);
}
static inline uint64_t fcp_side_length(const fcp_sequence *s, fcp_side side) {
    return side == FCP_KEYS ? s->keys : s->queries;
}
/* Numbers the sequences that have tokens of a side: number[s] is how many come before s. Returns how many there are. */
static inline uint64_t fcp_number_sequences(const fcp_plan *p, fcp_side side, uint32_t *number) {
    uint32_t count = 0;
    for (uint64_t s = 0; s < p->sequences_count; s++) {
        number[s] = count;
        count += fcp_side_length(&p->sequences[s], side) != 0;
    }
    return count;
}
/* The side whose tokens a block counts, and in whose bundles they are; queries, if it holds both. */
static inline fcp_side fcp_side_of(const fcp_block *b) { return b->holds & FCP_HOLDS_Q ? FCP_QUERIES : FCP_KEYS; }
/* FCP_HOLDS_* of what a transfer moves tokens of: a block or a bundle. */
static inline uint32_t fcp_moved_holds(const fcp_plan *p, const fcp_transfer *t) {
    if (t->cls != FCP_IN && t->cls != FCP_OUT) return p->blocks[t->block].holds;
    return fcp_plan_split(p) ? 1u << t->side : FCP_HOLDS_BOTH;
}
/* Is the block of the first range of heads? */
static inline bool fcp_first_range(const fcp_plan *p, const fcp_block *b) {
    return p->heads[b->heads].kv_first == 0 && p->heads[b->heads].sub_first == 0;
}
/* How many ranges of query heads there are. */
static inline uint32_t fcp_plan_ranges(const fcp_plan *p) {
    return p->problem->heads / (p->problem->range_kv * p->problem->range_sub);
}
/* Query head i of a range, as masks, scores and sinks count it. */
static inline uint32_t fcp_model_head(const fcp_problem *p, const fcp_heads *range, uint32_t i) {
    uint32_t kv_head = range->kv_first + i / p->range_sub;
    return kv_head * (p->heads / p->kv_heads) + range->sub_first + i % p->range_sub;
}
/* Query heads of a range. */
static inline uint32_t fcp_range_heads(const fcp_problem *p) { return p->range_kv * p->range_sub; }
/* How many classes the heads of a range are of, and so how many shapes a part of its tiles has. */
static inline const uint32_t *fcp_range_classes(const fcp_plan *p, uint32_t heads) {
    return p->range_classes + (size_t)heads * (2 * (size_t)fcp_range_heads(p->problem) + 1);
}
static inline uint32_t fcp_class_count(const fcp_plan *p, uint32_t heads) {
    return p->range_classes ? fcp_range_classes(p, heads)[0] : 1;
}
/* Which of these classes, counted from 0, query head i of the range is of. */
static inline uint32_t fcp_class_of(const fcp_plan *p, uint32_t heads, uint32_t i) {
    return p->range_classes ? fcp_range_classes(p, heads)[1 + i] : 0;
}
/* How many query heads of the range are of one of its classes. */
static inline uint32_t fcp_class_size(const fcp_plan *p, uint32_t heads, uint32_t cls) {
    const uint32_t all = fcp_range_heads(p->problem);
    return p->range_classes ? fcp_range_classes(p, heads)[1 + all + cls] : all;
}
/* Do the heads of some range see different pairs? Then the kernels' work lists are by head (emit_source.by_head). */
bool fcp_plan_by_head(const fcp_plan *plan);
/* Has a sequence few queries and many keys, as in decoding? */
enum { FCP_SHORT_QUERIES = 64 };
static inline bool fcp_is_short(const fcp_sequence *s) {
    return s->queries > 0 && s->queries <= FCP_SHORT_QUERIES && s->queries < s->keys;
}
/* Has the plan such sequences, so that heads share tiles and keys are cut into parts? Then the forward kernels are for
 * that (emit_source.packed). Plans whose lists are by head never are packed. */
bool fcp_plan_packed(const fcp_plan *plan);
/* The O slot of a FINISH at a rank. */
static inline uint32_t fcp_finish_slot(const fcp_plan *p, uint32_t rank, const fcp_instr *x) {
    return p->blocks[x->a].home == rank ? p->blocks[x->a].home_slot : x->c;
}
/* One rank's layout of a side, run by run, as fcp_plan_layout; and how many tokens it holds. */
bool fcp_side_layout(const fcp_plan *plan, fcp_side side, uint32_t rank, fcp_layout_at *at, fcp_span *out_span);
uint64_t fcp_side_tokens(const fcp_plan *plan, fcp_side side, uint32_t rank);

/* The first of a shape's runs that is in `row` or a later one; the end of its runs if there is none. */
static inline uint32_t fcp_run_of_row(const fcp_plan *plan, const fcp_shape_rec *shape, uint32_t row) {
    uint32_t low = shape->first_run, high = shape->first_run + shape->runs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->runs[middle].row < row) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Floating-point operations of a pair for one query head; a multiply-add counts as two. Forward, QK takes head_dim of
 * them and PV value_dim. Backward, QK, dQ and dK take head_dim, and dOV and dV value_dim. */
static inline uint32_t fcp_pair_flops(uint32_t head_dim, uint32_t value_dim, fcp_pass pass) {
    return pass == FCP_FORWARD ? 2 * (head_dim + value_dim) : 2 * (3 * head_dim + 2 * value_dim);
}
/* Numbers of a KV head that move and are kept for a token: those of K and of V. */
static inline uint32_t fcp_kv_dim(const fcp_problem *p) {
    return p->values_in_keys ? p->head_dim : p->head_dim + p->value_dim;
}
/* Numbers from a head of V to the next in memory: with values_in_keys they lie in the rows of K. */
static inline uint32_t fcp_value_stride(const fcp_problem *p) {
    return p->values_in_keys ? p->head_dim : p->value_dim;
}
/* Bytes of one token of a class when it moves, of a block that holds both sides. With e the size of the dtype, w that
 * of `wire`, H = range_kv * range_sub query heads and K = range_kv KV heads in a range, q = H * head_dim, o = H *
 * value_dim, and kv = K * (head_dim + value_dim), or with values_in_keys K * head_dim:
 *   KV     kv * e
 *   Q      forward: q * e;  backward: (q + o) * e (Q, dO) + H * 12 (lse, lse_low, delta)
 *   STATE  o * w + H * 8 (m, l)
 *   O      o * e + H * 8 (lse, lse_low)
 *   DKV    kv * w
 *   DQ     q * w
 *   DQW    q * e
 *   IN     forward: (q + kv) * e;  backward: (q + 2 o + kv) * e (Q, O, dO, K, V) + H * 8 (lse, lse_low), with
 *          lse_gradient H * 4 more
 *   OUT    forward: o * e + H * 8 (O, lse, lse_low);  backward: (q + kv) * e (dQ, dK, dV) */
uint64_t fcp_class_bytes(const fcp_problem *p, fcp_class cls, fcp_pass pass);
/* The same in a slot, where partial results are in fp32 whatever `wire` is. */
uint64_t fcp_slot_bytes(const fcp_problem *p, fcp_class cls, fcp_pass pass);
/* Is a class one of partial results: STATE, DKV or DQ? */
static inline bool fcp_is_partial(fcp_class cls) { return cls == FCP_STATE || cls == FCP_DKV || cls == FCP_DQ; }
/* Does a transfer round what it moves, so that other bytes travel than lie in its slot (see WIRE)? */
static inline bool fcp_is_rounded(const fcp_plan *p, const fcp_transfer *t) {
    return p->problem->wire == FCP_BF16 && fcp_is_partial((fcp_class)t->cls);
}
/* Tokens of a unit of a class: the same in both passes, so that both have the same rounds. KV and DKV: `unit`. Of the
 * others a unit has no more bytes than one of KV (backward: of DKV, if that has more), where LSE, delta, m and l do not
 * count: as many tokens as that leaves, a multiple of 8 if there are 8, at least 1 and at most max_q_block. IN and OUT:
 * `unit`. Inside a node it is FCP_UNIT_NEAR times as many bytes, of partial results FCP_UNIT_NEAR_PART times: the
 * fabric there is several times as fast, so that a round lasts no longer, and there are fewer rounds. Tiles wait for
 * rows and not for partial results, so rows come in smaller units. Bytes are those of a slot: `wire` makes units
 * smaller, and changes no round. *Example*: with 64 heads, 8 of K and V, a block of 2048 tokens is over net 4 units of
 * Q, 8 of STATE and 4 of O, inside a node 2, 2 and 2. If LSE counted, it would be 5, 9 and 5 over net, and the last one
 * nearly empty. */
enum { FCP_UNIT_NEAR = 2, FCP_UNIT_NEAR_PART = 4 };
uint32_t fcp_unit_tokens(const fcp_problem *p, fcp_class cls, fcp_fabric fabric);
/* The same of a block that holds `holds`. Of IN and OUT it is the part that belongs to Q (Q, O, LSE, dO, dQ), the part
 * that belongs to KV (K, V, dK, dV), or both. */
uint64_t fcp_held_bytes(const fcp_problem *p, uint32_t holds, fcp_class cls, fcp_pass pass);

/* On a network of rails: how many bytes cross between nodes in a pass and leave their rail, because the two ranks have
 * not the same index in their nodes. In a plan that is right they are of the reshuffle. Else 0. Cost: O(transfers). */
uint64_t fcp_bytes_off_rails(const fcp_plan *plan, fcp_pass pass);
/* Bytes of a rank's arena in a pass: the tensors of its home blocks, accumulators, and transient slots. q_tokens and
 * kv_tokens are the tokens of its home blocks that hold Q, and that hold KV; slots[cls] counts transient slots. A slot
 * of KV or DKV has room for max_block tokens, one of another class for max_q_block; names mean fcp_slot_bytes.
 *   forward:  q_tokens * (Q + O) + kv_tokens * KV + slots of KV, Q, STATE and O
 *   backward: q_tokens * ((q + 2 o) * e [Q, O, dO] + H * 12 [lse, lse_low, delta; with lse_gradient H * 4 more] + DQ +
 *             q * e [output]) + kv_tokens * (KV + DKV + KV [outputs]) + slots of KV, Q, DKV, DQ and DQW
 * O and the outputs dQ, dK, dV are in the dtype; e, q, o and H as above. */
uint64_t fcp_rank_memory(const fcp_problem *p, fcp_pass pass, uint64_t q_tokens, uint64_t kv_tokens,
                         const uint64_t slots[FCP_CLASSES]);
#endif
