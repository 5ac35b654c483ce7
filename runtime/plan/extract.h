/* extract.h: a rank's extract of a plan: what one rank of it needs, and nothing else.
 *
 * An extract is a plan in the same tables, with records of its own numbers: the sequences, blocks, shapes, visits and
 * tiles that the rank has to do with, in the order that they have in the whole plan. So whatever goes by the order of
 * records goes the same way, and a session of the rank computes the same bits. Ranks, rounds and slots keep their
 * numbers, and the problem, the cluster and the summary are those of the whole plan.
 *
 *   sequences   those of which the rank holds, has at home or computes tokens. Fields have the values of these alone
 *   blocks      those that the rank has at home, moves or computes with, and those to which its caller's tokens go
 *   streams     of this rank alone: [pass * FCP_QUEUES + queue]
 *   steps       of this rank alone, and so the halo rows: [layer * FCP_PASSES + pass] in step_streams
 *   deals       none: what the rank's caller holds is listed (`spans`)
 *   source      none
 *
 * The other tables say what else follows from the whole plan. fcp_plan.extract points to them; it is NULL in a whole
 * plan. The bytes of an extract, and the proof that they are of a plan, are in extract_file.h.
 */
#ifndef FCP_PLAN_EXTRACT_H
#define FCP_PLAN_EXTRACT_H
#include "runtime/plan/plan.h"

typedef struct fcp_extract_about {
    uint32_t rank;
    uint32_t split, packed;          /* of the whole plan: fcp_plan_split, fcp_plan_packed */
    uint32_t query_spans;            /* so many of `spans` are of queries, the others of keys */
    uint64_t sequences;              /* of the whole plan */
    uint8_t homes[FCP_DIGEST_BYTES]; /* fcp_plan_homes of it */
} fcp_extract_about;

/* A sequence of the extract in the whole plan. */
typedef struct fcp_extract_sequence {
    uint64_t row[FCP_SIDES]; /* its first in the packed batch */
    uint32_t number, pad;
} fcp_extract_sequence;

/* Tokens of a bundle that lie next to each other in the caller's tensors, and in a home block. */
typedef struct fcp_bundle_run {
    uint32_t at; /* its first token, counted from the bundle's first */
    uint32_t tokens;
    uint32_t place;        /* in the caller's tensors, of that rank */
    uint32_t block, first; /* in its home block */
} fcp_bundle_run;
/* A bundle of a rank: who has the other end, and where its runs begin. */
typedef struct fcp_bundle_at {
    uint64_t first_run;
    uint32_t peer, pad;
} fcp_bundle_at;
/* A rank's bundles are in groups: by the end at which the rank is, and by side. Of a bundle with itself the rank is the
 * caller's end alone. */
enum { FCP_AT_HOME, FCP_AT_CALLER, FCP_ENDS, FCP_BUNDLE_GROUPS = FCP_ENDS * FCP_SIDES };

/* Tables of an extract: name, record type, member of fcp_extract. */
#define FCP_EXTRACT_SECTIONS(X)                                                                                        \
    X(ABOUT, fcp_extract_about, about)                                                                                 \
    X(PLACES, fcp_extract_sequence, places) /* of each sequence */                                                     \
    X(SPANS, fcp_span, spans)               /* of the rank's layout; sequences have the extract's numbers */           \
    X(GROUPS, uint64_t, groups)             /* FCP_BUNDLE_GROUPS + 1 offsets into bundles */                           \
    X(BUNDLES, fcp_bundle_at, bundles)      /* of a group in order of peer; behind the last one stands the end */      \
    X(BUNDLE_RUNS, fcp_bundle_run, bundle_runs)

enum fcp_extract_section_id {
#define X(id, type, member) FCP_EXTRACT_##id,
    FCP_EXTRACT_SECTIONS(X)
#undef X
        FCP_EXTRACT_SECTION_COUNT
};

struct fcp_extract {
#define X(id, type, member)                                                                                            \
    const type *member;                                                                                                \
    uint64_t member##_count;
    FCP_EXTRACT_SECTIONS(X)
#undef X
    uint8_t digest[FCP_DIGEST_BYTES]; /* fcp_plan_digest of the whole plan */
};

/* The number in an extract of sequence `number` of the whole plan; sequences_count: it has none. */
uint32_t fcp_extract_find(const fcp_plan *plan, uint32_t number);
/* The error of what needs the whole plan: FCP_E_EXTRACT if this is an extract. */
fcp_code fcp_plan_whole(const fcp_plan *plan, const char *what, fcp_error *err);
/* An error if the plan is an extract and the ranks are others than its own. */
fcp_code fcp_extract_fits(const fcp_plan *plan, uint32_t first_rank, uint32_t rank_count, fcp_error *err);
/* Returns whether an extract's own tables have as many records as others need; before anything reads them. */
bool fcp_extract_counts(const fcp_plan *plan);
/* The part of fcp_plan_check that looks at the tables of an extract. */
fcp_code fcp_extract_check(const fcp_plan *plan, fcp_error *err);
#endif
