/* cad.h: the parts of the cad strategy. Homes are given; it decides which rank computes what.
 *
 * Example: rank 0 holds 1000 tokens of a causal sequence, rank 1 the next 1000 of it, rank 2 a thousand tokens of ten
 * short sequences. Rank 1 has three quarters of the work. Cad leaves all tokens where they are and has rank 2 compute
 * the last rows of the long sequence: their Q travels to rank 2, K and V too, and the results come back.
 *
 * Words:
 *   run    a rectangle of a sequence: some rows that are at home on one rank, against some keys
 *   share  a run, and the rank that computes it
 *   row    a query, by its number in its sequence; keys are numbered in the same way
 *   cut    a row or key at which runs may begin and end
 *
 * Work is counted in allowed pairs, and prices are in bytes.
 */
#ifndef FCPC_PLACE_CAD_CAD_H
#define FCPC_PLACE_CAD_CAD_H
#include "compiler/place/place.h"
#include "compiler/place/place_tuning.h"
#include "compiler/problem/problem.h"

/* --- pair_counts.c: how many pairs of a rectangle the mask allows ------------------------------------------------- */

/* A summed-area table of one sequence. sum[i * key_cuts + j] is the number of allowed pairs of the rows before
 * row_cut[i] with the keys before key_cut[j]. Runs begin and end at cuts. */
typedef struct cad_table {
    const uint64_t *row_cut, *key_cut, *sum;
    uint32_t row_cuts, key_cuts;
    uint64_t row_step, key_step;     /* all multiples of these are cuts; 0: that is not so */
    const uint32_t *row_at, *key_at; /* the number of the cut at each multiple */
} cad_table;

typedef struct cad_pairs {
    uint32_t sequences;
    const uint64_t *queries, *keys; /* of each sequence */
    bool top_left;                  /* how queries are aligned where there are fewer or more than keys */
    uint32_t shard;                 /* causal: rows and keys are cut at its multiples */
    uint32_t weight;                /* pairs that one row and one key may count as: the heads, where the mask names h */
    const cad_table *tables;        /* of each sequence; NULL: the mask is causal, and sums are in closed form */
} cad_pairs;

typedef struct cad_run {
    uint32_t sequence, home; /* the rank that holds the rows */
    uint64_t x, y, k0, k1;   /* rows x to y - 1, keys k0 to k1 - 1 */
} cad_run;

uint64_t cad_work(const cad_pairs *p, const cad_run *r);
/* How many keys of the run are seen by some row of it. If the table is coarse, the answer may be a few too many. */
uint64_t cad_span(const cad_pairs *p, const cad_run *r);
/* Finds how many of the run's last rows fit into `most` work: the least cut c such that rows c to y - 1 have at most
 * that much. y: not even the last rows fit. */
uint64_t cad_last_rows(const cad_pairs *p, const cad_run *r, uint64_t most, uint64_t *out_work);
/* Finds how many keys fit into `most` work, from k0 on: the largest cut c such that keys k0 to c - 1 have at most that
 * much in all runs together. The runs are of one sequence. */
uint64_t cad_first_keys(const cad_pairs *p, const cad_run *runs, size_t count, uint64_t k0, uint64_t k1, uint64_t most,
                        uint64_t *out_work);
/* Finds how many of the run's last keys fit into `most` work: the least cut c such that keys c to k1 - 1 have at most
 * that. */
uint64_t cad_last_keys(const cad_pairs *p, const cad_run *r, uint64_t most);
/* The last cut of the run's rows before its end y; x, its first row, if there is none. */
uint64_t cad_row_before(const cad_pairs *p, const cad_run *r);
static inline bool cad_whole(const cad_pairs *p, const cad_run *r) {
    return r->k0 == 0 && r->k1 == p->keys[r->sequence];
}

/* --- what is given, and what is found ----------------------------------------------------------------------------- */

/* Prices: the bytes that one token costs.
 *   kv     its K and V, to a rank that reads them
 *   whole  its Q, to a rank that computes all of its row, and the result back
 *   part   its Q, to a rank that computes part of its row, and a partial result back
 * If several ranks compute a row and its home is none of them, one of them merges the partial results and sends the
 * result. That rank costs `whole`. */
typedef struct cad_price {
    uint64_t kv, whole, part;
} cad_price;

/* The limit of wires between nodes, in the forward pass. q, kv: bytes of a token's Q, and of its K and V. bytes: what a
 * rank can send while it computes a million pairs; 0: there is no limit. */
typedef struct cad_wire {
    uint64_t q, kv, bytes;
} cad_wire;

typedef struct cad_input {
    uint32_t ranks, gpus;     /* rank r is in node r / gpus */
    uint32_t servers;         /* the last ranks, which hold no tokens; the others take no work of each other's */
    bool halves;              /* with pingpong: two halves are divided, each by itself */
    uint32_t tolerance;       /* how far a rank may be over the mean, in millionths */
    cad_price price;
    cad_wire wire;
    cad_pairs pairs;
    const problem_run *rows, *keys; /* by sequence and start; every token once */
    uint32_t row_count, key_count;
    const volatile int *stop;
    arena *second; /* memory of a second thread, which does half of the work; NULL: there is none */
} cad_input;

typedef struct cad_share {
    cad_run run;
    uint32_t rank; /* that computes it */
} cad_share;

typedef struct cad_shares {
    cad_share *at;
    size_t count, room;
} cad_shares;

/* cad.c. Divides the work: every pair is in exactly one share. The shares are allocated in `memory`. */
fcp_code cad_divide(const cad_input *in, arena *memory, arena *scratch, cad_shares *out);
/* Finds the work that each rank may have: (1 + tolerance) times the mean, rounded up. load: the work of each rank's own
 * rows. If some ranks are servers, only they take work. The mean is then that of the servers and of those ranks whose
 * work they take. */
fcp_code cad_caps(const cad_input *in, const uint64_t *load, arena *scratch, uint64_t *out_cap);

/* cad_halves.c. Finds two halves of the rows with about as much work each, of which the first sees no key of the
 * second: rows before (*out)[s] of sequence s are in the first. */
fcp_code cad_halves(const cad_input *in, arena *memory, arena *scratch, const uint64_t **out);
/* Divides each half by itself. So a rank's share of either is as even as its share of the whole would be. */
fcp_code cad_divide_halves(const cad_input *in, const uint64_t *cut, arena *memory, arena *scratch, cad_shares *out);

/* --- cad_cut.c: on a problem -------------------------------------------------------------------------------------- */

/* How cad has divided a batch: x->division. Cutting blocks fills it, and placing reads it. */
typedef struct division {
    cad_input in;
    cad_share *shares; /* by sequence */
    uint32_t *first;   /* of each sequence; sequences + 1 */
    const uint64_t *half; /* of each sequence: the row at which its second half begins; NULL: there are no halves */
    uint32_t *home;    /* per block: the caller's rank, where homes are the caller's */
    const problem_run *held[FCP_SIDES]; /* rows and keys, as in `in`; at the caller's ranks, where those are homes */
    const struct division *next; /* in the list of those that are kept for further plannings */
} division;

/* The bytes of a token in the forward pass; with `backward`, of both passes. */
cad_price cad_price_of(const struct fcpc_program *g, bool backward);
/* Makes the input from a problem, which need not have blocks yet: homes, prices, and pairs. */
fcp_code cad_input_of(planning *x, cad_input *out);

/* --- inside the folder -------------------------------------------------------------------------------------------- */

typedef struct cad_runs {
    cad_run *at;
    size_t count, room;
} cad_runs;

bool cad_add_run(arena *a, cad_runs *list, const cad_run *r);
bool cad_add_share(arena *a, cad_shares *list, const cad_run *r, uint32_t rank);

/* keep_rows.c. Chooses the runs that a bin keeps, with at most `cap` work; the others are added to *away. A bin is a
 * rank or a node. own: per run, the keys of its sequence that the bin holds. room: the work that a typical receiver of
 * what leaves can take. CAD_WHOLE_RUNS as room: no run is cut, and one that does not fit leaves. */
#define CAD_WHOLE_RUNS UINT64_MAX
typedef struct cad_own {
    uint64_t first, end;
} cad_own;
fcp_code cad_keep(const cad_input *in, arena *a, const cad_run *runs, const cad_own *own, size_t count, uint64_t cap,
                  uint64_t room, cad_runs *kept, cad_runs *away);

/* sweep.c. Runs in groups, one for each sequence. Group g has runs first[g] to first[g + 1] - 1. `order` lists the
 * groups, those with the longest rows first. */
typedef struct cad_groups {
    cad_run *runs;
    uint64_t *work; /* of each run */
    size_t *first, count;
    uint64_t *order;
} cad_groups;
fcp_code cad_group(const cad_input *in, arena *a, const cad_run *runs, size_t count, cad_groups *out);

/* The decisions of a sweep. Each time that it has a choice, it takes the next `way`. 0 is its usual choice. */
enum { CAD_DECISIONS = 128, CAD_WAYS = 8, CAD_NOTED = 24 };
typedef struct cad_decisions {
    uint8_t way[CAD_DECISIONS]; /* below CAD_WAYS */
    uint8_t same[CAD_NOTED];    /* of the last sweep: a bit for each way that would have had the same effect there */
    uint32_t asked;             /* choices of the last sweep; there may be more than CAD_DECISIONS */
} cad_decisions;

/* Gives runs to bins that have room. room[b]: what bin b can still take; the sweep lowers it. Rooms up to `crumb` are
 * left empty. What no bin takes is given to bin FCP_NONE. decisions = NULL: the usual choice every time. */
fcp_code cad_sweep(const cad_input *in, arena *a, const cad_groups *groups, cad_decisions *decisions, uint64_t *room,
                   uint32_t bins, uint64_t crumb, cad_shares *out);
/* The bytes that it costs a receiver to fill this room with rows that see so many keys. *out_parts: the number of
 * segments into which the keys are best divided, each for one receiver. whole: the rows have not been divided along the
 * keys yet. */
uint64_t cad_cost(const cad_price *p, uint64_t keys, uint64_t room, bool whole, uint32_t *out_parts);

/* The ranks of a node, first to first + ranks - 1, which are the bins of a sweep. */
typedef struct cad_node {
    uint32_t first, ranks;
    uint64_t *room;        /* per rank, as for cad_sweep */
    const cad_share *kept; /* what these ranks compute of their own rows */
    size_t kept_count;
} cad_node;
/* random_restarts.c. Like cad_sweep, but with the best decisions that it finds. now: the memory of one try. patience:
 * how many tries in a row may fail; before the first success it is half of that. */
fcp_code cad_try(const cad_input *in, arena *a, arena *now, const cad_runs *runs, const cad_node *node, uint64_t crumb,
                 uint32_t patience, cad_shares *out);

/* --- cad_bound.c -------------------------------------------------------------------------------------------------- */

/* A lower bound on the bytes that a division moves with these homes, if no rank has more work than (1 + tolerance)
 * times the mean. */
fcp_code cad_bound(const cad_input *in, arena *scratch, uint64_t *out_bytes);

/* The strategy's functions: place.h. */
fcp_code cad_cut(planning *x);
fcp_code place_by_cad(planning *x, const place_input *in, uint32_t *home);
fcp_code exec_by_cad(planning *x, const uint32_t *home, uint32_t *exec);
#endif
