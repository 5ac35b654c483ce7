/* host_reshuffle.h: moves the tokens of bundles between the caller's tensors, messages and home blocks, in host memory.
 *
 * A message holds one unit of a bundle: for each tensor of its class, the rows of the unit's tokens one after the
 * other. A row in a message or in a home block has the heads of one range. A row of the caller's tensors has all heads.
 */
#ifndef FCP_EXEC_HOST_RESHUFFLE_H
#define FCP_EXEC_HOST_RESHUFFLE_H
#include "runtime/exec/rank_memory.h"
#include "runtime/exec/bundles.h"

enum { FCP_MOVED = 8 }; /* the most that move: backward inputs q, k, v, o, d_o, lse, lse_low, d_lse */
/* One of them. Bytes of a token: `row` in a message and in home blocks, `full` in the caller's tensor. */
typedef struct fcp_moved {
    void *home, *caller; /* caller: NULL if no tensors are given, or not this one (lse_low and d_lse): then zeros come
                          * in, and nothing goes out */
    size_t row, full;
    size_t head;         /* of one head */
    bool of_keys;
} fcp_moved;
/* The tensors that a transfer of class IN or OUT moves, in the order of a message. Returns their number. */
uint32_t fcp_moved_tensors(const fcp_arena *arena, const fcp_tensors *caller, const fcp_transfer *t,
                           fcp_moved out[FCP_MOVED]);
/* Where a range of heads lies in a row of the caller's: `count` chunks of `bytes`, `stride` apart. */
typedef struct fcp_slice {
    size_t offset, bytes, stride;
    uint32_t count;
} fcp_slice;
fcp_slice fcp_slice_of(const fcp_plan *plan, const fcp_block *block, const fcp_moved *tensor);
/* The first token of a run in its home's tensors of that side. */
uint64_t fcp_home_token(const fcp_arena *arena, const fcp_bundle_run *run, bool of_keys);

/* Bytes of a message. */
uint64_t fcp_message_bytes(const fcp_plan *plan, fcp_pass pass, const fcp_transfer *t);
/* Room for the messages of any one LAUNCH, each beginning at a multiple of FCP_MESSAGE_ALIGN. 0: the plan has none. */
enum { FCP_MESSAGE_ALIGN = 256 };
uint64_t fcp_messages_bytes(const fcp_plan *plan, fcp_pass pass);

/* A transfer's message from this rank's memory, or into it. */
void fcp_message_pack(const fcp_arena *arena, const fcp_tensors *caller, const fcp_bundles *bundles,
                      const fcp_transfer *t, void *message);
void fcp_message_unpack(const fcp_arena *arena, const fcp_tensors *caller, const fcp_bundles *bundles,
                        const fcp_transfer *t, const void *message);
/* A transfer of a COPY. */
void fcp_bundle_copy(const fcp_arena *arena, const fcp_tensors *caller, const fcp_bundles *bundles,
                     const fcp_transfer *t);
#endif
