/* verify_parts.h: what the files of the verifier share. Private to runtime/verify; verify.c says what is proven, and
 * how.
 */
#ifndef FCP_VERIFY_VERIFY_PARTS_H
#define FCP_VERIFY_VERIFY_PARTS_H
#include <stdarg.h>
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan.h"

/* What was found of a pass. */
typedef struct pass_facts {
    uint64_t rounds[FCP_ROUND_KIND_COUNT];
    uint64_t delta[FCP_FABRICS]; /* of the INDEPENDENT rounds */
    uint64_t sends;              /* transfers between ranks */
    uint64_t moves[FCP_CLASSES]; /* of them, of each class: sends and receives */
    uint64_t units_max;          /* without IN and OUT: the most that a rank sends, or receives, on a fabric */
    uint64_t tokens[FCP_CLASSES][FCP_FABRICS];            /* sent; without IN and OUT */
    uint64_t in_tokens[FCP_SIDES], out_tokens[FCP_SIDES]; /* sent, by the block's side; copies do not count */
    uint64_t send_max, recv_max; /* bytes without IN and OUT, of the rank that sends most, that receives most */
    uint64_t stages;             /* number of stages */
    uint64_t last_stage;         /* the largest stage of any instruction or round */
    uint64_t slots_max;          /* the most transient KV and DKV slots of a rank */
    uint64_t state_tokens;       /* forward: tokens whose running state visits read, plus those whose they write */
    uint64_t memory_peak;        /* bytes, of the rank that needs most */
} pass_facts;

/* What a rank moves in a pass. */
typedef struct rank_moves {
    uint32_t count[FCP_CLASSES][FCP_DIRECTION_COUNT];
    uint32_t merges; /* instructions */
} rank_moves;

/* check_layout.c: the bundles of the rank that is looked at. Bundle 2 * caller + side is that with a caller. */
typedef struct bundle_facts {
    uint32_t turn;         /* another than the one at hand: the rank has no such bundle */
    uint32_t newest;       /* the entry that was found last */
    uint64_t tokens, total;
    uint64_t first, count; /* entries */
    uint64_t unit;         /* its first in `units` */
} bundle_facts;
typedef struct held_tokens {
    uint32_t key, block, tokens;
} held_tokens;
typedef struct held_in_bundle {
    uint32_t block;
    uint32_t end; /* the bundle's tokens up to and with this block's, or UINT32_MAX: more than transfers reach */
} held_in_bundle;
typedef struct first_piece {
    uint64_t start;
    uint32_t sequence, length, home;
} first_piece;
typedef struct layout_facts {
    uint32_t rank, turn;   /* the rank that is looked at; turn: how many have been, in all passes */
    bundle_facts *bundles;
    uint32_t *met;         /* the bundles that there are */
    size_t met_count;
    held_tokens *found;    /* in the order of blocks */
    size_t count, found_room;
    held_in_bundle *held;  /* the same, bundle by bundle */
    size_t held_room;
    uint8_t *units;        /* which units have come in, have gone out */
    size_t units_room;
    uint32_t group_rank, group_ranks; /* the group of ranks that was looked at last, and its sequences */
    uint64_t group_first, group_end;
    first_piece *first_pieces[FCP_SIDES]; /* planned, several ranges of heads: of the first, by (sequence, start) */
    size_t first_count[FCP_SIDES];
} layout_facts;


/* The tiles of a Q block that run away from its home in the forward pass: how many, and where. `where` is the rank +
 * 1, FCP_VERIFY_SEVERAL, or 0 if there are none. */
typedef struct away_work {
    uint32_t tiles, where;
} away_work;
enum { FCP_VERIFY_SEVERAL = FCP_NONE };

/* The state of the verifier. Each pass has a copy, and the two passes may be verified at the same time. Members that
 * describe the plan no longer change then; members that describe the pass belong to the copy. */
typedef struct verifier {
    const fcp_plan *plan;
    const fcp_problem *p;
    const volatile int *stop; /* NULL, or not 0 once the caller wants the verifier to end */
    /* per rank */
    uint32_t *node;
    uint32_t *homes;       /* how many home blocks it has */
    uint32_t *home_first;  /* ranks + 1 of them: where its blocks begin in home_blocks */
    uint64_t *home_tokens[FCP_SIDES]; /* of its home blocks that hold the side */
    uint64_t *rank_pairs;  /* of the tiles that run there */
    /* per block */
    uint32_t *home_blocks; /* by rank, in order of home slot */
    uint32_t *tiles_of;    /* how many tiles it has as a Q block */
    away_work *away;
    /* over the plan */
    void *room;            /* of all these tables and visit_away */
    uint32_t *visit_away;  /* per visit: the rank that computes it forward, + 1, if that is not its home; else 0 */
    uint64_t visits_away;  /* how many there are of these */
    uint64_t pairs, pairs_max_block, tokens_max_rank[FCP_SIDES];
    bool split, any_whole; /* any_whole: some block is WHOLE */
    /* of the pass */
    fcp_pass pass;
    fcp_error *err;
    uint8_t *attended;     /* per visit: computed */
    rank_moves *moves;     /* per rank */
    uint32_t *made;        /* per block: how often its result is made, backward away from home alone */
    void *pass_room;       /* of these tables */
    layout_facts *layout;
    void *sides;           /* match.c: room for the transfers of launches, */
    size_t side_count;     /* so many */
    uint32_t *peers, *peer_first; /* by rank, ranks + 1: whom it talks to */
    uint64_t named;        /* transfers that instructions name */
    fcp_error late; /* Delta or memory is wrong, or a transfer of no use: reported if nothing else is, since other
                     * damage disturbs them, too */
    pass_facts facts;
} verifier;

/* Transfers lie in the order in which they are looked at, but the blocks that they name do not: fetch those early. */
static inline void prefetch_block(const fcp_plan *plan, const fcp_transfer *t) {
    enum { AHEAD = 12, FAR = 64 };
    __builtin_prefetch(t + FAR); /* itself, before it is asked for its block */
    if (t + AHEAD < plan->transfers + plan->transfers_count && t[AHEAD].block < plan->blocks_count)
        __builtin_prefetch(&plan->blocks[t[AHEAD].block]);
}

/* An error at an instruction. The message gets the pass, rank, queue, index, op and stage in front. */
fcp_code fcp_verify_fail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                         const char *format, ...) __attribute__((format(printf, 6, 7), cold));
fcp_code fcp_verify_vfail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                          const char *format, va_list args) __attribute__((format(printf, 6, 0), cold));
/* Sets an error of a rank that no single instruction causes. It goes into *err, which is v->err or &v->late.
 * `format` begins with ", " or ": ", because the message gets "PASS, rank RANK" in front. */
fcp_code fcp_verify_fail_rank(const verifier *v, fcp_error *err, fcp_code code, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));
/* FCP_E_INTERRUPTED once the caller wants the verifier to end. */
fcp_code fcp_verify_stopped(const verifier *v);

/* computed_once.c: fcp_verify_tiles: visits hold every tile once. fcp_verify_attended: every visit is computed once
 * in a pass; in the forward pass it finds the work away from home. fcp_verify_whole: the right blocks are WHOLE. */
fcp_code fcp_verify_tiles(verifier *v);
fcp_code fcp_verify_attended(verifier *v);
fcp_code fcp_verify_whole(const verifier *v);

/* passes.c: looks at the tiles and at each pass of the plan, and fills of[pass], also where an error is found. */
fcp_code fcp_verify_passes(verifier *v, verifier of[FCP_PASSES]);
void fcp_verify_passes_close(verifier of[FCP_PASSES]); /* where nothing was filled they are zero */

/* match.c: the communication queues are in order, and sends and receives meet. Fills what `moves` counts of
 * transfers and peers, and `late` if there are more rounds than Delta. */
fcp_code fcp_verify_match(verifier *v);
/* Allocates the memory of fcp_verify_match, for both passes in one block. *out_room is the caller's to free.
 *
 * One large block saves page faults (300 for 256 ranks), because of how the C library treats freed memory: it keeps up
 * to twice the size of the largest block that was freed. So more memory is kept for the next plan, and for the second
 * thread. */
fcp_code fcp_verify_match_open(verifier of[FCP_PASSES], void **out_room);

/* rank.c: one rank's two queues against its slots. */
typedef struct rank_buffers rank_buffers;
/* For any rank, in this pass. The caller frees out->room. */
fcp_code fcp_verify_buffers(const verifier *v, rank_buffers *out);
fcp_code fcp_verify_rank(verifier *v, rank_buffers *b, uint32_t rank);

/* check_slope.c: the slope is the derivative of the score. */
fcp_code fcp_verify_score(const verifier *v);

/* check_halves.c: where rounds say that work moves in two halves, it does. The passes are right. */
fcp_code fcp_verify_halves(const verifier *v, bool *out_halves);

/* check_layout.c:
 *   fcp_verify_layout_open    allocates v->layout, and fcp_verify_layout_close frees it
 *   fcp_verify_layout_of      works out one rank's bundles
 *   fcp_verify_unit           checks a unit of a bundle on the home's side, and marks it as moved. out->at is then the
 *                             first block of which the unit has tokens; fcp_verify_share says how many
 *   fcp_verify_layout_end     checks that all units of the rank are marked, once its queues have run */
typedef struct unit_walk {
    const held_in_bundle *at;
    uint32_t begin, first, end; /* tokens of the bundle: before *at; the unit's */
} unit_walk;
static inline bool fcp_verify_more(const unit_walk *w) { return w->begin < w->end; }
static inline uint32_t fcp_verify_share(const unit_walk *w) {
    return (w->at->end < w->end ? w->at->end : w->end) - (w->begin > w->first ? w->begin : w->first);
}
static inline void fcp_verify_go_on(unit_walk *w) { w->begin = w->at++->end; }
fcp_code fcp_verify_layout_open(verifier *v);
void fcp_verify_layout_close(verifier *v);
fcp_code fcp_verify_layout_of(verifier *v, uint32_t rank);
fcp_code fcp_verify_unit(const verifier *v, fcp_queue queue, uint32_t index, const fcp_transfer *t, unit_walk *out);
fcp_code fcp_verify_layout_end(const verifier *v);
#endif
