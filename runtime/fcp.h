/* fcp.h: libfcp, the runtime. It loads a plan, tells what is in it, and runs it.
 *
 *     fcp_plan *plan;
 *     fcp_session *session;
 *     fcp_error err;
 *     if (fcp_plan_load("mask.plan", &plan, &err) == FCP_OK &&
 *         fcp_session_create(plan, NULL, &session, &err) == FCP_OK)
 *         fcp_session_run(session, FCP_FORWARD, tensors, &err);   // tensors: one fcp_tensors for each rank
 *     fcp_session_free(session);
 *     fcp_plan_free(plan);
 *
 * Conventions. A function that can fail returns an fcp_code; FCP_OK is 0. If `err` is not NULL, it is filled on
 * failure. Functions write `out_` parameters only on success. No other pointer is NULL unless it is said that it may
 * be. The caller owns what *_create and *_load make and ends it with *_free, which accepts NULL. Nothing prints, exits
 * or keeps global state, except for what the host backend needs of OpenBLAS (see fcp_session_create).
 *
 * Threads. A plan does not change once it is made, so any number of threads may use it. A session is for one thread
 * at a time. Different sessions may run in different threads at the same time, except those with the transport "nccl":
 * of these one runs at a time. Verifying a plan of many ranks starts a second thread, which ends before the call
 * returns and gets no signals. With one processor, or if no thread can be made, verifying takes longer.
 *
 * Units: lengths in tokens, sizes in bytes, positions counted from 0. All tensors are dense and row-major, with the
 * shapes that fcp_tensors states.
 */
#ifndef FCP_H
#define FCP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header, as text and as 10000 * major + 100 * minor + patch. The functions give the version of the
 * library that is linked, which may differ. */
#define FCP_VERSION "0.1.0"
#define FCP_VERSION_NUMBER 100
const char *fcp_version(void);
uint32_t fcp_version_number(void);

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* What went wrong. errors.def lists the symbols, the stable codes ("E012") and their texts. */
typedef enum fcp_code {
    FCP_OK = 0,
#define FCP_ERROR(symbol, code, text) FCP_E_##symbol,
#include "runtime/errors.def"
#undef FCP_ERROR
    FCP_CODE_COUNT
} fcp_code;

/* Where in a plan something went wrong, in numbers. The message says the same in words. */
#define FCP_NOWHERE UINT32_MAX /* this number does not apply, or is not known */
typedef struct fcp_where {
    uint32_t rank;
    uint32_t pass;        /* an fcp_pass */
    uint32_t stage;
    uint32_t queue;       /* 0: the rank's compute queue; 1: its communication queue */
    uint32_t instruction; /* counted from 0 in that queue and pass */
} fcp_where;
#define FCP_WHERE_NONE ((fcp_where){FCP_NOWHERE, FCP_NOWHERE, FCP_NOWHERE, FCP_NOWHERE, FCP_NOWHERE})

typedef struct fcp_error {
    fcp_code code;
    uint32_t line, column; /* the place in the text, counted from 1; 0: there is none */
    fcp_where where;       /* the place in the plan */
    char file[240];        /* the file or text that line and column refer to; "": none */
    char message[520];     /* one line, without the code */
} fcp_error;

const char *fcp_code_name(fcp_code code); /* "E200"; "ok" for FCP_OK */
const char *fcp_code_text(fcp_code code); /* what the code means, in English */
/* The exit status of a program that ends because of it: 0 done, 1 a mistake in the input, 2 a wrong command line, 3 a
 * bug. */
int fcp_code_exit(fcp_code code);

/* Fills *err (when not NULL) with code and a formatted message, and returns code: `return fcp_fail(err, ...)`. */
fcp_code fcp_fail(fcp_error *err, fcp_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same, and err->where is `where`. fcp_fail makes that FCP_WHERE_NONE. */
fcp_code fcp_fail_at(fcp_error *err, fcp_code code, fcp_where where, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same as fcp_fail, and the place is in a file or text: err->file, line and column, which may be 0. */
fcp_code fcp_fail_in(fcp_error *err, fcp_code code, const char *file, uint32_t line, uint32_t column,
                     const char *format, ...) __attribute__((format(printf, 6, 7)));

/* --- kinds -------------------------------------------------------------------------------------------------------- */

typedef enum fcp_dtype { FCP_FP32, FCP_FP16, FCP_BF16, FCP_DTYPES } fcp_dtype;
typedef enum fcp_pass { FCP_FORWARD, FCP_BACKWARD, FCP_PASSES } fcp_pass;
/* Which tokens of the batch each rank's caller holds:
 *   planned      those that the planner placed on the rank, so that nothing has to be moved to it and back
 *   contiguous   the packed batch, cut into one run of equal length for each rank
 *   zigzag       every sequence, cut into 2 * ranks chunks: rank r has chunk r from the front and chunk r from the back
 * The last two may be made within groups of neighbouring ranks, each of which holds whole sequences. */
typedef enum fcp_layout { FCP_LAYOUT_PLANNED, FCP_LAYOUT_CONTIGUOUS, FCP_LAYOUT_ZIGZAG, FCP_LAYOUTS } fcp_layout;
/* Layers that mix tokens other than by attention, over the placement that attention has chosen; and the decay of a
 * scan: one number for each head, one for each row of its state, or a matrix of rows x rows. */
typedef enum fcp_layer_kind { FCP_HALO, FCP_SCAN, FCP_LAYER_KINDS } fcp_layer_kind;
typedef enum fcp_decay { FCP_DECAY_SCALAR, FCP_DECAY_VECTOR, FCP_DECAY_MATRIX, FCP_DECAYS } fcp_decay;
size_t fcp_dtype_size(fcp_dtype t);      /* bytes of a number: 4, 2, 2 */
const char *fcp_dtype_name(fcp_dtype t); /* "fp32", "fp16", "bf16" */

/* --- plans ------------------------------------------------------------------------------------------------------- */

typedef struct fcp_plan fcp_plan;

/* Loads and verifies a plan. The file is treated as hostile: nothing of it is used before it is checked, and when
 * this returns FCP_OK the verifier has passed. The file stays mapped while the plan lives; replacing it (as
 * fcp_plan_save does) is harmless, but nobody may overwrite or shorten it in place. */
fcp_code fcp_plan_load(const char *path, fcp_plan **out_plan, fcp_error *err);
/* The same for a plan in memory. The bytes are copied. */
fcp_code fcp_plan_load_memory(const void *bytes, size_t size, fcp_plan **out_plan, fcp_error *err);
/* Writes a plan to a file. It writes a temporary file beside `path` and renames it, so on any error `path` is as it
 * was. If `path` is a symbolic link, the file that it points to is written. A pipe or a device is written directly. */
fcp_code fcp_plan_save(const fcp_plan *plan, const char *path, fcp_error *err);
void fcp_plan_free(fcp_plan *plan);

/* Proves that a plan computes exactly the pairs of its mask. Loading proves that each tile is computed once, on data
 * that is there; it does not ask the mask which pairs a tile has. This does: for every sequence and head, each allowed
 * pair is in one tile, what is computed without asking the mask is allowed, and the numbers of pairs are right. The
 * mask is the code that the plan has; that it is what the plan's source says is not proven.
 *
 * `stop` and `out_proof` may be NULL. The limit max_seconds (0: none) counts work and measures no time: a second is
 * what one processor does in about a second. So the same plan and limit give the same answer on every machine. Errors:
 *   FCP_E_VERIFY_PAIRS   the pairs are wrong; the message names a sequence, query, key and tile
 *   FCP_E_TOO_LONG       the work would take more than max_seconds
 *   FCP_E_INTERRUPTED    *stop has become something other than 0
 *   FCP_E_ARGUMENT       max_seconds is negative, not a number, or above UINT32_MAX
 *   FCP_E_NO_MEMORY
 *
 * Cost: the mask is asked about boxes of pairs, and a box is halved only where the mask's boundary passes through it.
 * Where the boundary does not repeat itself, pairs are looked at one by one, which takes about a nanosecond for each
 * node of the mask's code. A mask without structure, such as (q * k) % 1009 < 13, is all boundary. A plan may state
 * sequences that are much longer than its file is: give a limit or a `stop` where plans come from others. */
typedef struct fcp_pairs_proof {
    uint64_t pairs;    /* of the plan, counted as in its summary */
    uint64_t boxes;    /* that the mask was asked about */
    uint64_t elements; /* pairs that were looked at one by one */
} fcp_pairs_proof;
fcp_code fcp_plan_verify_pairs(const fcp_plan *plan, double max_seconds, const volatile int *stop,
                               fcp_pairs_proof *out_proof, fcp_error *err);
/* The SHA-256 of the bytes that saving writes. It is the same for the same plan on every machine. */
enum { FCP_DIGEST_BYTES = 32 };
fcp_code fcp_plan_digest(const fcp_plan *plan, uint8_t out_digest[FCP_DIGEST_BYTES], fcp_error *err);

/* The SHA-256 of where a plan's tokens are: at which rank each token is at home, and in which order the caller holds
 * the tokens. If two plans have the same digest, tensors of one are tensors of the other. Layers with different masks
 * can then follow each other without moving anything. FCP_E_NO_MEMORY. */
fcp_code fcp_plan_homes(const fcp_plan *plan, uint8_t out_digest[FCP_DIGEST_BYTES], fcp_error *err);

/* --- a rank's extract of a plan ----------------------------------------------------------------------------------- */

/* A plan of very many ranks is large, and a rank needs little of it. An extract is what one rank needs. Whoever has the
 * plan, which was verified when it was loaded or compiled, cuts the extracts of all ranks into one file, and hands its
 * *root*, 32 bytes, to all ranks. A rank reads its own bytes of the file, and no others. The root proves that these
 * bytes were cut for this rank from that plan. So the root must come from somebody who is trusted, and the file need
 * not.
 *
 * An extract is an fcp_plan. A session that runs this one rank ("mpi", "tcp", "nccl") takes it in place of the plan,
 * and computes the same bits; other ranks may have the whole plan. What is asked of an extract refers to the whole
 * plan: fcp_plan_digest, fcp_plan_homes, and the numbers and rows of sequences. It knows the layout of its own rank,
 * and says of other ranks that they hold nothing. It knows the sequences, and so the documents, of which its rank holds
 * or computes something: fcp_shape.documents counts those. Where the whole plan is needed, the error is FCP_E_EXTRACT.
 *
 * Cost: of saving, two cuts of all extracts, linear in their bytes; of fcp_extracts_cut, one cut of all, and one of
 * those that it gives; of loading, linear in the bytes of one extract. */

/* Writes the extracts of all ranks, as fcp_plan_save writes a plan, and returns the root. `stop` may be NULL; once
 * *stop is not 0, it ends with FCP_E_INTERRUPTED. */
fcp_code fcp_extracts_save(const fcp_plan *plan, const char *path, const volatile int *stop,
                           uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err);
/* Takes the extract of a rank: bytes for fcp_extract_load, which are valid during the call. False ends the cutting. */
typedef bool (*fcp_take_extract)(void *context, uint32_t rank, const void *bytes, size_t size);
/* Gives the extracts of `count` ranks from `first` on to `take`, in order, for whoever sends them to ranks without a
 * file, and returns the root of the extracts of all ranks. Errors: as fcp_extracts_save; FCP_E_ARGUMENT (the plan has
 * no such ranks); FCP_E_INTERRUPTED, also if `take` has returned false. */
fcp_code fcp_extracts_cut(const fcp_plan *plan, uint32_t first, uint32_t count, const volatile int *stop,
                          fcp_take_extract take, void *context, uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err);
/* The root alone, by cutting them and writing nothing. If it is that of a file of extracts, they are of this plan. */
fcp_code fcp_extracts_root(const fcp_plan *plan, const volatile int *stop, uint8_t out_root[FCP_DIGEST_BYTES],
                           fcp_error *err);
/* The root that a file of extracts gives itself, which proves nothing about it. */
fcp_code fcp_extracts_said(const char *path, uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err);
/* Loads the extract of a rank from a file of extracts. FCP_E_EXTRACT_PROOF: it is not of the plan with this root. */
fcp_code fcp_extracts_load(const char *path, uint32_t rank, const uint8_t root[FCP_DIGEST_BYTES], fcp_plan **out_plan,
                           fcp_error *err);
/* The bytes of a rank's extract, for fcp_extract_load, with nothing checked: for whoever reads the file for others.
 * free() them. */
fcp_code fcp_extracts_read(const char *path, uint32_t rank, void **out_bytes, size_t *out_size, fcp_error *err);
/* Loads an extract from its bytes, which are copied. */
fcp_code fcp_extract_load(const void *bytes, size_t size, uint32_t rank, const uint8_t root[FCP_DIGEST_BYTES],
                          fcp_plan **out_plan, fcp_error *err);
/* The rank whose extract a plan is; FCP_NOWHERE: it is a whole plan. */
uint32_t fcp_plan_rank(const fcp_plan *plan);

/* What a caller must know to make tensors for a plan. */
typedef struct fcp_shape {
    uint32_t ranks, heads, kv_heads; /* kv_heads divides heads */
    uint32_t head_dim, value_dim;    /* numbers of a head of q and k; of v and o */
    bool values_in_keys; /* v is the first value_dim numbers of each row of k: there is no v and no dv */
    bool lse_gradient;   /* the backward pass takes d_lse */
    fcp_dtype dtype;
    fcp_layout layout;
    bool has_pass[FCP_PASSES];
    uint64_t tokens;     /* queries of the whole batch */
    uint64_t key_tokens; /* keys of the whole batch; as many, unless a sequence has its own number of keys */
    uint64_t sequences;
    uint64_t documents;  /* see fcp_plan_documents */
    double scale;        /* q . k is multiplied by it before the softmax */
} fcp_shape;
void fcp_plan_shape(const fcp_plan *plan, fcp_shape *out_shape);

/* A table of reals that the plan's score reads. A run may bring other values, and learn them: see fcp_tensors. There,
 * all tables lie in one array, one behind the other, each row by row. */
typedef struct fcp_table {
    const char *name;       /* as the program has it; it lives as long as the plan */
    uint64_t rows, columns; /* columns 0: it has one dimension */
    uint64_t first;         /* where it begins in that array */
    const double *values;   /* the plan's own */
} fcp_table;
/* Returns how many tables there are, and writes table `number`, counted from 0, to *out_table. Nothing is written if
 * there is no such table, or if out_table is NULL. */
uint32_t fcp_plan_tables(const fcp_plan *plan, uint32_t number, fcp_table *out_table);
/* How many numbers all tables of the plan have together. */
uint64_t fcp_plan_table_numbers(const fcp_plan *plan);

/* A run of neighbouring tokens of one sequence. */
typedef struct fcp_span {
    uint32_t sequence;
    uint32_t length; /* tokens */
    uint64_t start;  /* the first of them, counted from the sequence's first query or key */
} fcp_span;
/* The caller's layout: which queries rank `rank` holds (rows of q, o, lse, d_o, dq), run by run, in the order in which
 * its tensors have them. False: there are no more runs. `at` is where the walk stands, zeros at the beginning:
 *
 *     fcp_span span;
 *     fcp_layout_at at = {0};
 *     while (fcp_plan_layout(plan, rank, &at, &span)) ...
 */
typedef struct fcp_layout_at {
    uint64_t deal, item, part, done;
} fcp_layout_at;
bool fcp_plan_layout(const fcp_plan *plan, uint32_t rank, fcp_layout_at *at, fcp_span *out_span);
/* The same for keys (rows of k, v, dk, dv). Where every sequence has as many keys as queries, it is the same layout. */
bool fcp_plan_layout_keys(const fcp_plan *plan, uint32_t rank, fcp_layout_at *at, fcp_span *out_span);
/* How many queries, and how many keys, the caller holds at a rank. */
uint64_t fcp_plan_rank_queries(const fcp_plan *plan, uint32_t rank);
uint64_t fcp_plan_rank_keys(const fcp_plan *plan, uint32_t rank);
/* The same of `count` ranks from `first` on, in one call: out_queries and out_keys have room for `count` numbers. */
void fcp_plan_ranks_tokens(const fcp_plan *plan, uint32_t first, uint32_t count, uint64_t *out_queries,
                           uint64_t *out_keys);

/* The row of the packed batch at which each document begins, in increasing order: fcp_shape.documents numbers. A
 * document is a run of neighbouring tokens of one sequence in which the field that the program names has one value, as
 * in batch { field doc = given; documents = doc }. If it names none, each sequence that has queries is a document. */
void fcp_plan_documents(const fcp_plan *plan, uint64_t *out_first);
/* Writes the layout of a rank (fcp_plan_layout, or with `keys` fcp_plan_layout_keys) as a list, for a caller that
 * gathers the rank's tokens out of the packed batch. `out_rows` has room for fcp_plan_rank_queries numbers, or with
 * `keys` for fcp_plan_rank_keys. Number i is a row of the packed batch: that of the token which is `shift` behind the
 * rank's token i in the same document, or -1 if the document ends before it. So shift 0 gives the tokens themselves,
 * and shift 1 the labels of a language model. */
void fcp_plan_rows(const fcp_plan *plan, uint32_t rank, bool keys, int64_t shift, int64_t *out_rows);
/* The positions of the rank's queries, or keys, in their documents, in the same order. Where sequences are the
 * documents, queries begin at fcp_plan_query_position. */
void fcp_plan_positions(const fcp_plan *plan, uint32_t rank, bool keys, int64_t *out_positions);

/* A stretch: neighbouring tokens of one document that lie one behind the other in a rank's tensors. */
typedef struct fcp_stretch {
    uint64_t document;     /* its number, as fcp_plan_documents counts; an extract has numbers of its own */
    uint64_t start;        /* the row of its first token in the packed batch */
    uint64_t first;        /* and in the rank's tensors */
    uint64_t length;       /* tokens, at least 1 */
    uint32_t begins, ends; /* 1: its first token is the document's first; its last token is the document's last */
} fcp_stretch;
/* The stretches of a rank, in the order of its tensors: returns how many there are, and writes them to `out` unless
 * that is NULL. Together they are all tokens of the rank. They never change the order of the rank's tokens, so their
 * lengths, added up, are the cu_seqlens of a kernel that takes packed sequences. A plan of which some sequence has
 * another number of queries than of keys has none. Where the caller holds keys elsewhere than queries
 * (some plans that divide heads), the tokens are where their queries are. */
uint32_t fcp_plan_stretches(const fcp_plan *plan, uint32_t rank, fcp_stretch *out);

/* A kind of layers beside attention, as the program's `layers` has it. */
typedef struct fcp_layer_shape {
    fcp_layer_kind kind;
    uint32_t times;                /* how many layers of the model are so */
    uint32_t before, after;        /* halo: rows before and behind a token that it reads */
    uint32_t channels;             /* halo: numbers of a row, as the program says; a run may have others */
    uint32_t heads, rows, columns; /* scan: the state of each head is rows x columns float32 */
    fcp_decay decay;               /* scan */
    bool reverse;                  /* scan: states run from the end of each document to its beginning */
} fcp_layer_shape;
/* Returns how many kinds of such layers there are, and writes kind `number`, counted from 0, to *out_shape; nothing if
 * there is none of that number, or if out_shape is NULL. */
uint32_t fcp_plan_recurrent(const fcp_plan *plan, uint32_t number, fcp_layer_shape *out_shape);

/* In a packed batch sequences follow each other. Returns the row of a sequence's first query, and in *out_length how
 * many queries it has. For a sequence that does not exist: the number of all queries, and 0. out_length may be NULL. */
uint64_t fcp_plan_sequence_offset(const fcp_plan *plan, uint32_t sequence, uint64_t *out_length);
/* The same for keys. */
uint64_t fcp_plan_key_offset(const fcp_plan *plan, uint32_t sequence, uint64_t *out_length);
/* The position of a sequence's first query. Keys are at positions 0, 1, 2, ...; a sequence that continues a prompt of
 * 1000 keys has its first query at 1000. */
int64_t fcp_plan_query_position(const fcp_plan *plan, uint32_t sequence);

/* --- execution ---------------------------------------------------------------------------------------------------- */

/* One rank's tensors, dense and row-major, in the caller's layout. Let T be how many queries the rank holds
 * (fcp_plan_rank_queries) and S how many keys (fcp_plan_rank_keys).
 *
 *     q, dq            [T, heads, head_dim]      the plan's dtype
 *     o, d_o           [T, heads, value_dim]     the plan's dtype
 *     k, dk            [S, kv_heads, head_dim]   the plan's dtype
 *     v, dv            [S, kv_heads, value_dim]  the plan's dtype; not there with values_in_keys: see below
 *     lse              [T, heads]                float32: the natural logarithm of the sum of exponentials
 *
 * The forward pass reads q k v and writes o lse. The backward pass reads q k v o lse d_o and writes dq dk dv. Other
 * members may be NULL, and so may those of a rank without tokens. With values_in_keys v is the first value_dim numbers
 * of each row of k: v and dv are NULL, and dk is the gradient of both.
 *
 *     lse_low          [T, heads]                float32: what rounding took from lse; NULL: nobody has it
 *     d_lse            [T, heads]                float32: a gradient of lse, which the backward pass reads; NULL: zeros
 *     max_logit        [heads]                   float32: the forward pass writes the largest logits; NULL: not wanted
 *
 * lse_low: the forward pass writes it, and the backward pass reads it. It matters where |lse| is large, because there
 * neighbouring float32 numbers are far apart: 0.06 at 1e6, and 64 at 1e9. P, and with it all gradients, are right only
 * if the backward pass gets both lse and lse_low. If lse_low is NULL, it counts as 0, and all P of a row are off by one
 * factor: e to the power of up to half that distance. Example: a row of four keys with equal logits of 1e8. Its lse is
 * 1e8 + ln 4, which float32 rounds to 1e8, so each key gets weight 1 in place of a quarter. Where |lse| is below 16,
 * the factor is within 1e-6 of 1.
 *
 * d_lse is for plans with lse_gradient; with others the run fails with FCP_E_TENSOR. It is one subtraction: delta is
 * d_o . o - d_lse. It means nothing for a row that sees no key and whose head has no sink.
 *
 * max_logit: for each head the largest logit, with the score and without the sink, of all rows whose results this rank
 * has made; -inf if there are none. The largest over all ranks is the batch's. In one run either all ranks want it or
 * none does.
 *
 * A row that sees no key has o = 0 exactly and lse = -inf. With sinks, lse includes the sink z of the row's head, and
 * is z where the row sees no key.
 *
 *     sink             [heads]                   float32: this run's sinks; NULL: those that the plan has
 *     d_sink           [heads]                   float32: their gradient; NULL: nobody wants it
 *
 * These two are for plans that have sinks (sink = 0.0 will do); with other plans the run fails with FCP_E_TENSOR. All
 * ranks are given the same sinks, in both passes. The backward pass writes to d_sink what this rank's rows have: -sum
 * of exp(z[h] - lse) (d_o . o - d_lse), always with the same bits. The caller adds up what the ranks have.
 *
 *     table            [fcp_plan_table_numbers]  float32: this run's tables (fcp_plan_tables); NULL: those of the plan
 *     d_table          likewise                  float32: their gradient; NULL: nobody wants it
 *
 * These two are for plans whose score reads tables of reals. The run fails with FCP_E_TENSOR for other plans. It
 * also fails with FCP_E_TENSOR if the score is too large for these gradients, for example because it reads tables at
 * more than 256 places.
 * All ranks are given the same tables, in both passes, and in one run either all want d_table or none does.
 * The backward pass writes to d_table what the pairs contribute that this rank computes: the sum of the loss's
 * derivative by the score times the score's derivative by the element. The caller adds up what the ranks have. `floor`
 * passes no gradient on. Sums are kept as whole numbers and rounded once. So they have the same bits whatever the
 * number of threads, and on "cuda" whatever the order of blocks, even with `deterministic = false`.
 *
 * The caller owns the memory. No output overlaps another tensor of the run. With the backend "host" it is host memory.
 * With "cuda" each tensor is either in host memory (faster if pinned) or in memory of a device that the session uses,
 * there beginning at a multiple of 4 bytes.
 */
typedef struct fcp_tensors {
    const void *q, *k, *v;
    void *o;
    float *lse;
    const void *d_o;
    void *dq, *dk, *dv;
    const float *sink;
    float *d_sink;
    const float *table;
    float *d_table;
    float *lse_low;
    const float *d_lse;
    float *max_logit;
} fcp_tensors;

typedef struct fcp_session fcp_session;

/* On a GPU, copies between ranks need multiprocessors, too. The session's first plan says how many of them attention
 * leaves to copies (`margin`), in passes in which a rank of the device sends or receives. This says by which means. */
typedef enum fcp_partition {
    FCP_PARTITION_AUTO,  /* GREEN where it works, else GRID */
    FCP_PARTITION_NONE,  /* attention always has all multiprocessors */
    FCP_PARTITION_GRID,  /* attention launches no more blocks than fit on the multiprocessors that are its own */
    FCP_PARTITION_GREEN, /* and these blocks run in a green context: the driver keeps them on those multiprocessors */
    FCP_PARTITIONS
} fcp_partition;
const char *fcp_partition_name(fcp_partition p); /* "auto", "none", "grid", "green" */
/* The reverse. Returns false, and leaves *out, if there is no such name. */
bool fcp_partition_find(const char *name, fcp_partition *out);

/* Structures of options begin with their own size, so that later versions can add members at the end. Set `size` to
 * the sizeof of the type: start from FCP_SESSION_OPTIONS_INIT or FCP_START_INIT, or write {.size = sizeof(fcp_start),
 * ...} in C.
 *
 * A structure that is smaller than the library's comes from an older caller; the members that it lacks have their
 * default, which is always 0. A larger one comes from a newer caller; it is accepted if all bytes that the library
 * does not know are 0. Otherwise, and if `size` is 0, functions fail with FCP_E_ARGUMENT. */

/* Transports "mpi", "tcp" and "nccl": which rank of the plan this process is; for "tcp" and "nccl" how the processes
 * find each other; and for "nccl" which device it uses. */
enum { FCP_ID_BYTES = 128 };
typedef struct fcp_start {
    size_t size;         /* sizeof(fcp_start) */
    uint32_t ranks;      /* processes in all, as many as the plan has ranks; 0: ask the environment, as mpirun, srun and
                          * torchrun leave it, for this and for `rank` */
    uint32_t rank;       /* which of them this process is */
    uint32_t device;     /* 1 + the number of the device to use; 0: the process's number on its machine, modulo the
                          * number of devices */
    const void *id;      /* FCP_ID_BYTES, the same in all processes; NULL: it comes through id_file or, if that is NULL,
                          * through MPI. "nccl": what fcp_start_id makes. "tcp": the text "HOST:PORT:SECRET" and zeros,
                          * where HOST is rank 0's machine, PORT a number that is free there, and SECRET 32 hexadecimal
                          * digits that nobody can guess */
    const char *id_file; /* a path that all processes see, and that one run at a time uses: rank 0 writes the id to it,
                          * and the file is removed again. NULL: none */
} fcp_start;
#define FCP_START_INIT {sizeof(fcp_start)}
/* Makes an id of FCP_ID_BYTES, which the caller hands to all processes. Each session of several processes needs a new
 * one. FCP_E_BACKEND: there is no NCCL. */
fcp_code fcp_start_id(void *out_id, fcp_error *err);

/* How many kernel launches compute the attention of a rank in a pass.
 *   FCP_FUSE_STAGES   one for each stage
 *   FCP_FUSE_PASS     one for several stages: the kernel itself waits for what it reads
 *
 * FCP_FUSE_PASS does not join two stages if a round of transfers waits for the first of them, and the second waits for
 * that round. If rows are computed at home, and there are as many `buffers` as stages, no round does: the whole forward
 * pass is one launch. The backward pass is done by stages all the same where the gradients need two kernels (head_dim
 * above 128, or too little shared memory). A fused pass is never a CUDA graph. Where its transfers need SMs, attention
 * must leave some to them; if it does not, the error is FCP_E_BACKEND. */
typedef enum fcp_fuse { FCP_FUSE_STAGES, FCP_FUSE_PASS } fcp_fuse;

/* Where a CUDA session takes its device memory from. Zeros: from the driver (cuMemAlloc). A program with its own pool
 * of device memory, such as PyTorch, gives functions that take memory from the pool. Otherwise the pool and the session
 * would compete for the device's memory.
 *
 * allocate  returns the address of `bytes` bytes (never 0) on a device; NULL: there are none, and the function that
 *           needed them fails with FCP_E_NO_MEMORY. device: its number, as cuDeviceGet counts. The address is a
 *           multiple of FCP_ALLOCATOR_ALIGN; another one is released at once, and the error is FCP_E_ARGUMENT. The
 *           memory belongs to the device's primary context. Copies between devices (cuMemcpyPeerAsync) must reach it.
 * release   gives back what `allocate` returned, whole, with the same device.
 *
 * Use. The session uses the memory, in streams of its own, from the return of `allocate` to the call of `release`.
 *   - When `allocate` returns, no work in any stream may still use the memory. A pool that orders its memory by streams
 *     must first wait for the stream in which the memory was free.
 *   - Until `release` is called nobody else gets the memory. The session calls it when its streams have ended their
 *     work with the memory.
 *
 * Calls. Both functions are called in the thread that calls the session.
 *   - `allocate` is called by fcp_session_create, fcp_session_add and fcp_session_rebind, and by a run that is the
 *     first to need something (tensors in host memory with "nccl", or a halo of longer rows, say); never by a run that
 *     is being captured.
 *   - `release` is called by these and by fcp_session_free. When a session has been freed, neither is called any more,
 *     and all memory has been released, unless something hung: what hangs may still use its memory.
 *   - They must not call functions of the session. They may make another device current.
 *
 * Some memory does not come from these functions: pinned host memory, which is the driver's; what a driver or NCCL take
 * for themselves; and with "nccl" the arenas, which NCCL allocates (ncclMemAlloc) because it registers them. */
enum { FCP_ALLOCATOR_ALIGN = 256 };
typedef struct fcp_allocator {
    void *context; /* the first argument of both functions */
    void *(*allocate)(void *context, uint32_t device, size_t bytes);
    void (*release)(void *context, uint32_t device, void *memory);
} fcp_allocator;

typedef struct fcp_session_options {
    size_t size;              /* sizeof(fcp_session_options) */
    const char *backend;      /* "host" (the default) or "cuda" */
    const char *transport;    /* host: "threads" (the default), "mpi" or "tcp"; cuda: "local" (the
                               * default) or "nccl" */
    const fcp_start *start;   /* mpi, tcp and nccl; NULL: all of it from the environment */
    uint32_t compute_threads; /* host: how many threads may compute at once, at most 32; 0: one for each processor,
                               * with "mpi" or "tcp" this process's share of them */
    uint32_t timeout_s;       /* the time limit of waits, in seconds; 0: 120. A wait fails if for so long no rank
                               * computes and no bytes move. While a session is made, it is how long a rank waits for
                               * the others to come. Time in which this process is stopped (by a debugger, say) does
                               * not count.
                               *   "mpi", "tcp"  the processes tell each other whether they compute: whether they use a
                               *                 tenth of a processor or more, whatever for (a pass, a check, planning,
                               *                 the caller's own work). All waits also end if one process tells nothing
                               *                 for so long: it is stopped, or its machine is not reached
                               *   "nccl", and an MPI that was begun without MPI_THREAD_MULTIPLE
                               *                 a process tells nothing while it is busy outside of this library's
                               *                 calls, so the limit must be longer than that */
    bool host_tensors;        /* nccl: tensors will lie in host memory, and so they need room on the device, too. With
                               * this option the session takes that room when it is made, and all ranks learn if one has
                               * too little. Without it, the first run with host memory takes it */
    size_t stage_bytes;       /* cuda: size of each of the two pinned buffers of a device, through which ordinary host
                               * memory is copied; 0: 4 MiB */
    uint32_t graph_from;      /* cuda: from which run on a pass is a CUDA graph, counted from 1; 0: 3; UINT32_MAX:
                               * never */
    fcp_partition partition;  /* cuda. If green contexts do not work, GREEN is an error (FCP_E_BACKEND or FCP_E_RUN) and
                               * AUTO is GRID */
    bool mma_sync;            /* cuda: use the kernels for mma.sync also on devices that have faster ones (sm_90a) */
    bool timings;             /* record when each instruction of a run begins and ends, for fcp_session_timings. With
                               * "cuda" a run then ends before the call returns, and a pass is never a graph */
    fcp_fuse fuse;            /* cuda: whether a pass is a launch for each stage, or fewer */
    fcp_allocator allocator;  /* cuda: where device memory comes from */
    /* Lets the caller end a function of the session that takes long; NULL: it cannot be ended. It is called with
     * interrupted_context, in the thread that the function was called from, at least every 50 ms while the function
     * computes or waits, and not before it has done so for 30 ms. If it returns something other than 0, the work of all
     * threads ends, and the function fails with FCP_E_INTERRUPTED, "interrupted". It must not call functions of the
     * session, nor end the session.
     *
     * After an interrupted run the outputs are undefined. A session of one process can be used as before. Where ranks
     * are processes, this one gives up its connections: its session refuses further runs, and the other ranks fail as
     * if its process had ended.
     *
     * It is not called while a library works (MPI_Init, NCCL's and the driver's calls, the compiler of kernels), nor by
     * "cuda" with "local", which cannot end what a device computes. */
    int (*interrupted)(void *context);
    void *interrupted_context;
} fcp_session_options;
#define FCP_SESSION_OPTIONS_INIT {sizeof(fcp_session_options)}

/* Makes ready what a plan needs to run: threads or streams, memory, the connections between ranks. The plan must live
 * as long as the session has it. `options` may be NULL.
 *
 * "host" with "threads" runs all ranks in this process on its processors. It loads OpenBLAS for matrix products.
 * OpenBLAS's number of threads is a setting of the whole process: while a pass runs it is 1, and afterwards what it was
 * before. At most 32 threads are inside OpenBLAS at once, over all sessions of the process.
 *
 * "cuda" with "local" runs all ranks in this process on its devices: rank r on device r modulo their number. Plans
 * must be bf16 or fp16.
 *
 * "cuda" with "nccl" runs one rank, on one device, and "host" with "mpi" or "tcp" one rank on the processors; each
 * other rank is another process, here or on another machine. "mpi" needs mpirun or srun. It loads MPI. If the caller
 * has not initialised MPI, it does that, and finalises MPI when the process exits. MPI must be able to serve threads
 * (MPI_THREAD_SERIALIZED; MPI_THREAD_MULTIPLE is better, see timeout_s). "tcp" works under any launcher, and has two
 * connections for each pair of ranks. Ranks listen at the addresses by which they reach each other, and only while the
 * session is made. Both ends of a connection prove that they know the id's secret; nothing is encrypted.
 *
 * All processes create their sessions at the same time, from the same plan and with the same options (this is
 * compared), run the same passes in the same order, and free their sessions. If one process does not do its part, the
 * others wait for it, as long as timeout_s allows.
 *
 * Errors: FCP_E_BACKEND: no such backend or transport, a library or device that it needs is missing, or it cannot run
 * such plans; FCP_E_NO_MEMORY: the message says how much is needed and how much there is; FCP_E_START: the processes do
 * not find each other, or do not agree; FCP_E_ARCH, FCP_E_COMPILE, FCP_E_TENSOR, FCP_E_HEADS: there are no kernels for
 * the device or the plan. */
fcp_code fcp_session_create(const fcp_plan *plan, const fcp_session_options *options, fcp_session **out_session,
                            fcp_error *err);
/* Waits for runs that are under way, at most timeout_s. */
void fcp_session_free(fcp_session *session);

/* Runs a pass: all ranks of this process do their part, and where ranks are processes the others do theirs.
 * `tensors` has one entry for each rank of this process, in order (fcp_session_ranks). When this returns, outputs are
 * written. Two runs on the same inputs give the same bits, unless the plan says deterministic = false and the backend
 * is "cuda". With "host" the calling thread computes too: it needs a stack of half a MiB.
 *
 * On an error outputs are undefined. err->where and the message name rank, stage and instruction. FCP_E_PASS: the
 * plan has no such pass; FCP_E_TENSOR: a tensor is missing, or in memory that the session does not reach; these two
 * change nothing. FCP_E_RUN: something failed or did not end in time; a session of "cuda", "mpi" or "tcp" then refuses
 * further runs. */
fcp_code fcp_session_run(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err);
/* Runs a pass like fcp_session_run, but on a CUDA stream (CUstream) of the caller's, behind what the stream has
 * already. "cuda" only. The stream belongs to a device that the session uses. CU_STREAM_LEGACY and CU_STREAM_PER_THREAD
 * mean those of the current context, which must be a primary one; NULL is refused.
 *
 * Returns once everything is in the stream, and does not wait for it, with two exceptions. If a tensor lies in host
 * memory, this waits until it has been read or written. With "nccl" it waits while so much is in the streams that the
 * driver would soon block. Errors that show themselves later are returned by the next call with the stream or the
 * session.
 *
 * A stream that is being captured (cuStreamBeginCapture) makes the run a part of the caller's graph. Each launch of the
 * graph then is a run, in order with all other runs of the session, on the tensors that were given when it was
 * captured. They must lie in device memory (else FCP_E_TENSOR). The session must be without timings, and each pass must
 * have run once before it is captured (else FCP_E_ARGUMENT). With "nccl" all ranks must capture the same runs, and
 * launch their graphs in the same order. A graph must end before its session does, and before fcp_session_rebind
 * replaces the plan that it runs.
 *
 * fcp_session_run, in contrast, follows no stream of the caller's: device memory that it reads must be ready when it is
 * called. */
fcp_code fcp_session_run_on(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream,
                            fcp_error *err);
/* Runs a pass with the K and V of the run before, which are still in the session's memory: fcp_tensors.k and v are not
 * read, and may be NULL. K and V do not move; all else is as in fcp_session_run, or with a `stream` (not NULL) as in
 * fcp_session_run_on. So query heads that share KV heads are computed in phases, each in the memory of one (fcpc_phases
 * in fcpc.h), forward and backward in any order. Each run writes dK and dV of its own queries: the caller adds them up.
 *
 * The run before must have been of the same plan, must have succeeded, and may itself have kept keys. Where ranks are
 * processes, all of them make this call. A captured stream is refused, and so is a session of which runs were captured.
 * In a CUDA graph of the session's own, runs that keep keys are graphs beside those that do not.
 *
 * fcp_session_keys_stay: whether the plan allows it: no KV slot of this process's ranks is used for two blocks, and
 * inputs come from the caller of their home (layout = planned). For plans of one phase without a ring this holds.
 * runtime/exec/kept_keys.h says why what such a run reads is there. Else FCP_E_ARGUMENT, and nothing is run. */
fcp_code fcp_session_run_kept(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream,
                              fcp_error *err);
bool fcp_session_keys_stay(fcp_session *session);
/* Waits for everything that runs have put into streams, at most timeout_s. With "nccl" an error of another process
 * ends the waiting. On the host, runs have ended when they return, and this returns at once. */
fcp_code fcp_session_wait(fcp_session *session, fcp_error *err);

/* Gives the session the plan of another batch, from now on.
 *   may differ       lengths, block size, placement, fields, mask, score and margin
 *   must not differ  ranks, GPUs a node, heads, kv_heads, head_dim, value_dim, values_in_keys, lse_gradient, dtype,
 *                    passes and determinism
 * It waits for earlier runs. All processes do it together, with the same plan.
 *
 * The margin (SMs that attention leaves to communication) of the session's first plan holds for all plans that it runs:
 * streams and connections were made with it. No bit of a result depends on it; but a plan that would have another
 * margin may take longer than predicted.
 *
 * Contexts, streams and memory that is large enough are kept, and so are kernels whose source is the same: it depends
 * on the mask, the score, and the longest sequence rounded up to a power of 16. Graphs are made anew.
 *
 * Both plans must live until this returns; afterwards only the one that the session has (fcp_session_plan).
 *
 * Errors. After these the session goes on with the plan that it had:
 *   FCP_E_ARGUMENT    the new plan does not fit, and there is one process or all processes refused the plan
 *   FCP_E_NO_MEMORY   with one process, if the new plan was not begun yet
 * After any other error the session refuses further runs, and they say why. */
fcp_code fcp_session_rebind(fcp_session *session, const fcp_plan *plan, fcp_error *err);
/* The plan that the session runs next. */
const fcp_plan *fcp_session_plan(const fcp_session *session);

/* Gives the session one plan more, and its number in *out_number; the first plan is number 0. fcp_session_select says
 * which one runs from now on: runs, rebind, timings and fcp_session_plan are then about that plan. So layers with
 * several masks, and micro-batches of a pipeline, take turns without anything being made anew:
 *
 *     fcp_session_create(plans[0], &options, &session, &err);
 *     fcp_session_add(session, plans[1], 0, &window, &err);            the same batch, another mask
 *     fcp_session_add(session, next, FCP_OWN_BATCH, &other, &err);     another batch
 *     fcp_session_select(session, window, &err);
 *
 * layer_of: the number of a plan of the same batch. Both plans must have every token at the same place
 * (fcp_plan_homes); if not, this fails with FCP_E_HOMES, because tensors of one would be read as if they were the
 * other's. FCP_OWN_BATCH: it is of a batch of its own. What fcp_session_rebind compares must agree here, too (else
 * FCP_E_ARGUMENT).
 *
 * All plans compute in the same memory, which is as large as the largest of them needs. So a run waits for the run
 * before it, whichever plan that was of. (With "nccl" each plan has memory of its own, which belongs to its
 * connections.) Each plan has work lists, streams and graphs of its own; kernels that are in the cache are not compiled
 * again. If a new plan needs more memory than the session has, adding it waits for earlier runs, and graphs are made
 * again afterwards. Where ranks are processes, all of them add the same plan at the same point, and each plan has
 * connections of its own. An error leaves the session as it was. Plans must live as long as the session has them. */
#define FCP_OWN_BATCH UINT32_MAX
fcp_code fcp_session_add(fcp_session *session, const fcp_plan *plan, uint32_t layer_of, uint32_t *out_number,
                         fcp_error *err);
/* FCP_E_ARGUMENT: there is no such plan. Runs that are under way go on. */
fcp_code fcp_session_select(fcp_session *session, uint32_t number, fcp_error *err);

/* Which ranks this process runs: *out_first and those that follow, as many as are returned. With "mpi",
 * "tcp" and "nccl" it is one, else all of them. out_first may be NULL. */
uint32_t fcp_session_ranks(const fcp_session *session, uint32_t *out_first);
/* How many processes the session is made of: with "mpi", "tcp" and "nccl" one for each rank,
 * else 1. */
uint32_t fcp_session_processes(const fcp_session *session);
/* Tells all processes something of each: out_all has `bytes` from each process, in order of rank. `bytes` is 1 to
 * FCP_GATHER_BYTES. All processes call this at the same point; with one process it is a copy. */
enum { FCP_GATHER_BYTES = 64 };
fcp_code fcp_session_gather(fcp_session *session, const void *mine, size_t bytes, void *out_all, fcp_error *err);

/* When an instruction of a run began and ended, in nanoseconds since the run began. An instruction begins when its
 * queue comes to it, and a transfer when its launch begins. */
typedef struct fcp_timing {
    uint64_t begin, end;
} fcp_timing;
/* Gives the timings of one queue of one rank in the last run of a pass: one for each instruction of the queue, in the
 * order of the instructions, which `fcpc dump` prints. queue: 0 for the compute queue, 1 for the communication queue.
 * The session must have been made with the option `timings`, and owns them until its next run. FCP_E_ARGUMENT: there
 * are none.
 *
 * With "cuda", all inputs are moved together before the pass, and all results after it. There the first instruction
 * that moves inputs has the time of all inputs, and the first that moves results has the time of all results. */
fcp_code fcp_session_timings(const fcp_session *session, fcp_pass pass, uint32_t rank, uint32_t queue,
                             const fcp_timing **out_timings, uint32_t *out_count, fcp_error *err);
/* Gives rank 0's process the timings of all ranks. All processes call this at the same point; with one process there is
 * nothing to do. Every process counts from the beginning of its own run. */
fcp_code fcp_session_timings_collect(fcp_session *session, fcp_error *err);

/* The names of what was chosen: "host" with "threads", "mpi" or "tcp"; "cuda" with "local" or "nccl". */
const char *fcp_session_backend(const fcp_session *session);
const char *fcp_session_transport(const fcp_session *session);
/* How attention and communication share the devices; never AUTO. *out_why says in a sentence why, and lives as long
 * as the session; out_why may be NULL. */
fcp_partition fcp_session_partition(const fcp_session *session, const char **out_why);
/* How the session does a pass: FCP_FUSE_PASS if it was asked for and the kernels can. */
fcp_fuse fcp_session_fused(const fcp_session *session, fcp_pass pass);
/* Returns a sentence that says what makes the session slower than it need be: for example that kernels spill registers,
 * or that there is no cache of kernels. If several things do, it names the first; if none does, it is "". The text
 * lives as long as the session. */
const char *fcp_session_warning(const fcp_session *session);

/* --- layers that recur ------------------------------------------------------------------------------------------- */

/* These calls do what layers beside attention need of other ranks, over the same placement. `layer` is the number of
 * the kind (fcp_plan_recurrent). All ranks of this process do their part, and where ranks are processes all of them
 * make the same call. Arrays have one entry for each rank of this process (fcp_session_ranks). S is how many stretches
 * the rank has (fcp_plan_stretches), T how many tokens. With "host" memory is the host's; with "cuda" it is of a device
 * that the session uses, or the host's. `stream` as in fcp_session_run_on; NULL: what was asked has been done when the
 * call returns. The layers are those of the selected plan (fcp_session_select). Of the plans of a program with several
 * masks the first has the layers; if another one is selected, they are those of the first plan that has some and the
 * same homes (fcp_plan_homes).
 *
 * A call that is new to the session, by its layer, kind and sizes, is compared between processes first. If they make
 * different calls, all of them return FCP_E_ARGUMENT, and the session goes on.
 *
 * With "cuda" such a call comes behind the run or call before it, and the next one behind it, whatever their streams.
 * Tensors in host memory are copied to the device and back: then the call waits for what its stream has, and has ended
 * when it returns. Numbers begin at multiples of their size.
 *
 * A stream that is being captured makes the call a part of the caller's graph, as fcp_session_run_on says of runs: each
 * launch of the graph is such a call. The same call (layer, kind and sizes) must have been made once before, outside of
 * a capture and with tensors on the same devices, because a graph can neither take memory nor let processes compare
 * what they call; else FCP_E_ARGUMENT. Tensors lie in device memory (else FCP_E_TENSOR). What a graph works in stays as
 * long as the session has the plan: a later call that needs more takes other memory.
 *
 * With "cuda" scans work in memory that the session has from the beginning. A halo takes memory for its messages in the
 * first call with rows of its size, and so does any call for tensors that are not on their rank's device.
 *
 * Two calls with the same inputs give the same bits, for any number of workers, and on devices those of the host. No
 * result overlaps another tensor of the call. Errors: FCP_E_ARGUMENT: there is no such layer, or it is of the other
 * kind; FCP_E_PASS: the plan has no backward pass; FCP_E_TENSOR: a tensor is missing, or in memory that the session
 * does not reach; FCP_E_NO_MEMORY; and FCP_E_RUN and FCP_E_INTERRUPTED as for runs. */

/* The halo: the rows of the `before` tokens before each stretch and of the `after` tokens behind it.
 *     x      [T, row]                       row_bytes for each token, of any type
 *     halo   [S, before + after, row]       rows that lie beyond the document become zeros
 * row_bytes is at least 1, and the same at all ranks. */
typedef struct fcp_halo_rank {
    const void *x;
    void *halo;
} fcp_halo_rank;
fcp_code fcp_session_halo(fcp_session *session, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks,
                          void *stream, fcp_error *err);
/* Its gradient: adds the gradients of halo rows to those of the tokens that they are of.
 *     d_halo [S, before + after, numbers]   of `dtype`; rows beyond the document are not read
 *     dx     [T, numbers]                   of `dtype`; read and written: what comes is added in float32, in an order
 *                                           that the plan fixes, and rounded after each addition */
typedef struct fcp_halo_gradient_rank {
    const void *d_halo;
    void *dx;
} fcp_halo_gradient_rank;
fcp_code fcp_session_halo_gradient(fcp_session *session, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                                   const fcp_halo_gradient_rank *ranks, void *stream, fcp_error *err);

/* The scan: gives the state that enters each stretch. A stretch turns the state h that enters it into A h + b:
 *     decay    [S, heads], [S, heads, rows] or [S, heads, rows, rows]   float32, by fcp_layer_shape.decay: A is a
 *                                                                       number, a diagonal, or a matrix
 *     state    [S, heads, rows, columns]                                float32: b
 *     entering [S, heads, rows, columns]                                float32: the result; 0 where states begin
 * The first stretch of each document gets 0, and each further one what left the stretch before it (with `reverse`, the
 * stretch behind it).
 *
 * pass: FCP_FORWARD, or FCP_BACKWARD for the scan of its gradient, which runs the other way. Let G be the gradient of
 * `entering`. The backward scan with the transposed decays and with b = G gives, for each stretch, the gradient D of
 * the state that leaves it. Then the gradient of `state` is D, and that of A is D entering^T (its diagonal, or its
 * trace). */
typedef struct fcp_scan_rank {
    const float *decay, *state;
    float *entering;
} fcp_scan_rank;
fcp_code fcp_session_scan(fcp_session *session, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks, void *stream,
                          fcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
