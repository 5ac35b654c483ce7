/* bytes.h: the sizes that follow from a problem: operations of a pair, bytes of a token, tokens of a unit, memory of a
 * rank.
 */
#ifndef FCP_PLAN_BYTES_H
#define FCP_PLAN_BYTES_H
#include "runtime/plan/records.h"

/* Floating-point operations of a pair for one query head; a multiply-add counts as two. Forward, QK takes head_dim
 * multiply-adds and PV value_dim. Backward, QK, dQ and dK take head_dim each, and dOV and dV value_dim. */
static inline uint32_t fcp_pair_flops(uint32_t head_dim, uint32_t value_dim, fcp_pass pass) {
    return pass == FCP_FORWARD ? 2 * (head_dim + value_dim) : 2 * (3 * head_dim + 2 * value_dim);
}
/* Numbers of a KV head that move and are kept for a token: those of K and of V. */
static inline uint32_t fcp_kv_dim(const fcp_problem *p) {
    return p->values_in_keys ? p->head_dim : p->head_dim + p->value_dim;
}
/* Numbers from a head of V to the next in memory: with values_in_keys they lie in the rows of K. */
static inline uint32_t fcp_value_stride(const fcp_problem *p) { return p->values_in_keys ? p->head_dim : p->value_dim; }
/* Bytes of one token of a class when it moves, for a block that holds both sides. Let e be the size of the dtype and
 * w that of `wire`. A range has H = range_kv * range_sub query heads and K = range_kv KV heads. Let q = H *
 * head_dim, o = H * value_dim, and kv = K * (head_dim + value_dim), or K * head_dim with values_in_keys. Then a
 * token has:
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
/* Tokens of a *unit* of a class: the most that one transfer moves over the fabric. The result is the same for both
 * passes, so that both have the same rounds.
 *
 *   KV, DKV, IN, OUT   `unit` tokens, as the problem says.
 *   other classes      as many tokens as fit into the bytes of a unit of KV (backward: of DKV, if that has more),
 *                      rounded down to a multiple of 8 if there are 8; at least 1, at most max_q_block. LSE, delta, m
 *                      and l do not count. Bytes are those in a slot, so `wire` changes nothing. Of two passes the one
 *                      with fewer tokens decides.
 *
 * Over `local` units of the other classes have FCP_UNIT_NEAR times as many bytes, and those of partial results
 * FCP_UNIT_NEAR_PART times. That fabric is several times as fast, so a round takes no longer, and there are fewer
 * rounds. The factor of Q is the smaller one because tiles wait for Q, and not for partial results.
 *
 * Example: 64 query heads and 8 KV heads in bf16, units and blocks of 2048 tokens. Over net a block is 4 units of Q, 8
 * of STATE and 4 of O; over local 2, 2 and 2. If LSE counted, it would be 5, 9 and 5 over net, with the last unit
 * nearly empty. */
enum { FCP_UNIT_NEAR = 2, FCP_UNIT_NEAR_PART = 4 };
uint32_t fcp_unit_tokens(const fcp_problem *p, fcp_class cls, fcp_fabric fabric);
/* fcp_class_bytes for a block that holds `holds` only. For IN and OUT this is the part of Q (Q, O, LSE, dO, dQ), the
 * part of KV (K, V, dK, dV), or both. */
uint64_t fcp_held_bytes(const fcp_problem *p, uint32_t holds, fcp_class cls, fcp_pass pass);

/* Bytes of a rank's arena in a pass: the tensors of its home blocks, accumulators, and transient slots.
 *   q_tokens     the tokens of its home blocks that hold Q
 *   kv_tokens    the tokens of its home blocks that hold KV
 *   slots[cls]   its transient slots of the class: a slot of KV or DKV has room for max_block tokens, a slot of another
 *                class for max_q_block
 *
 * Below, the name of a class stands for its fcp_slot_bytes; e, q, o and H are as for fcp_class_bytes.
 *   forward    each of q_tokens:    Q + O
 *              each of kv_tokens:   KV
 *              transient slots of   KV, Q, STATE, O
 *   backward   each of q_tokens:    (q + 2 o) * e for Q, O and dO; H * 12 for lse, lse_low and delta; with lse_gradient
 *                                   H * 4 more; DQ for the sum; q * e for the output dQ
 *              each of kv_tokens:   KV; DKV for the sums; KV again for the outputs dK and dV
 *              transient slots of   KV, Q, DKV, DQ, DQW
 * O and the outputs dQ, dK and dV are in the dtype. */
uint64_t fcp_rank_memory(const fcp_problem *p, fcp_pass pass, uint64_t q_tokens, uint64_t kv_tokens,
                         const uint64_t slots[FCP_CLASSES]);
#endif
