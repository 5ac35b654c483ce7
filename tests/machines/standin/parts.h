/* parts.h: declarations that the files of the stand-in driver share: its objects, its nodes, and the functions that one
 * file calls in another. */
#ifndef STANDIN_PARTS_H
#define STANDIN_PARTS_H
#include "codegen/kernels/abi.h"
#include "runtime/libraries/cuda_driver.h"
#include "tests/machines/fibers/fibers.h"
#include "tests/machines/standin/errors.h"
#include "tests/machines/standin/outside.h"
#include "tests/machines/standin/standin.h"

enum { DEVICES = 8, MULTIPROCESSORS = 3 };

struct cu_context_ {
    int device, retained;
    unsigned peers; /* a bit for each device that it may access */
    size_t used;
};
/* Names a node of a store. If the store has been emptied since, its id is another one, and this names no node. */
typedef struct ref {
    uint64_t store;
    uint32_t node; /* counted from 1; 0: none */
} ref;
struct cu_stream_ {
    cu_context context;
    ref last, captured; /* last: the last node put into it; captured: the same in a capture that it has joined */
    uint64_t capture;   /* the store of that capture; 0: none */
    uint64_t mark;      /* address of the host word that it was last told to write; 0: none */
    unsigned mark_value;
    cu_stream next, of; /* of: whose event it was last told to wait for; marks that it writes are about that stream */
    cu_green green;     /* the green context to which it belongs; NULL: none */
};
struct cu_event_ {
    cu_context context;
    cu_stream stream; /* in which it was recorded last; that may have ended */
    ref at;
    uint64_t capture;
    bool timed;
    long tick; /* when it was recorded; 0: not yet */
    long graphs; /* how many nodes of graphs record it or wait for it */
};
enum { MODULE_WAITS = 6 };
struct cu_module_ {
    cu_context context;
    uint32_t head_dim, value_dim;
    bool bf16, score, recurrent; /* recurrent: it has the kernels of layers that recur */
    const char *text;
    struct cu_function_ *functions;
    cu_ptr waits[MODULE_WAITS]; /* variables that were asked for (globals.c) */
};
struct cu_function_ {
    cu_module module;
    char name[32];
    const fibers_kernel *kernel;
    size_t parameters;
    cu_function next;
};

typedef struct range {
    uint64_t begin, end;
} range;
typedef struct ranges {
    range *all;
    uint32_t count, capacity;
} ranges;
/* What a kernel reads after it has waited for a flag, a word at this address, or for two of them. Whatever writes there
 * may come before whatever sets either flag. */
typedef struct awaited {
    uint64_t flag, other; /* other: 0, if there is none */
    ranges reads;
} awaited;
typedef enum op { EMPTY, KERNEL, COPY, FILL, OUTSIDE } op;
typedef struct node {
    op op;
    cu_function function;
    uint32_t blocks;
    union {
        fk_launch launch;
        fk_launch_tables tables;
        fk_support support;
        fk_gather_launch gather;
        fk_rows_launch rows;
        fk_scan_launch scan;
        fk_u64 maps[sizeof(fk_launch_maps) / sizeof(fk_u64)]; /* the launch, then maps */
    } parameters;
    uint64_t to, from, bytes;
    unsigned word;
    standin_work *work;
    cu_event event; /* EMPTY, in a graph: the event that each launch of the graph records */
    cu_event waits_for; /* EMPTY, in a graph: the event for which each launch of the graph waits */
    void *state;    /* of the work, once it has been tried */
    uint64_t stuck; /* the turn in which it did not get on */
    uint32_t *deps; /* numbers of nodes, counted from 1 */
    uint32_t dep_count, unmet; /* unmet: how many of those are not done, in the live store */
    uint32_t *after; /* [after_count]: indices of the nodes that wait for this one, once for each dependency */
    uint32_t after_count;
    uint64_t *before; /* a bit for each earlier node that is before this one */
    ranges reads, writes;
    awaited *awaited; /* [awaited_count] */
    uint32_t awaited_count;
    uint64_t mark; /* the mark of its stream, as above */
    unsigned mark_value;
    int device;
    bool marks; /* this node writes that word itself */
    bool done, hangs;
} node;
typedef struct store {
    uint64_t id;
    node *nodes;
    uint32_t count, capacity, done;
    uint32_t *open; /* [open_count], room for `capacity`: nodes that are not done and wait for no other */
    uint32_t open_count;
    bool graph; /* of a graph; otherwise the one for all streams */
} store;
struct cu_graph_ {
    store store;
};
struct cu_graph_exec_ {
    store store;
    cu_graph_exec next;
};

typedef struct allocation {
    uint64_t begin, end;
    cu_context context;
    void *memory;
    struct allocation *next;
    bool host; /* pinned host memory, which every device reaches */
    bool shared; /* standin_allocate's */
} allocation;

extern standin control;
allocation *allocation_of(uint64_t address);
void trouble(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool injected(void); /* is this the call that the test lets fail? */
cu_context context_of(cu_device d);
cu_stream stream_new(cu_context context, cu_green green);

/* green.c */
void green_stream_ends(cu_green g);

/* graph.c */
/* Adds a copy of *made that comes after the nodes in deps. Returns its number, 0 if out of memory. With `live` it
 * finds out which memory the node touches, and whether all conflicting accesses are ordered. */
uint32_t store_add(store *s, const node *made, const uint32_t *deps, uint32_t dep_count, bool live);
void store_clear(store *s);
bool store_before(const store *s, uint32_t a, uint32_t b); /* is a the same as b, or before it? */
/* The host has seen that this node, and all before it, have ended. */
void host_saw(store *s, uint32_t last);
/* Runs up to `count` nodes in a seeded order; fewer if all that may be next wait for another process. */
void store_run(store *s, uint32_t count);
/* Runs until node `last` is done. False: nothing gets on any more, for control.patience_s if other processes are
 * waited for. */
bool store_finish(store *s, uint32_t last);
/* Does any node that is not done yet touch these bytes? */
bool store_touches(const store *s, uint64_t begin, uint64_t end);
/* These bytes are freed: who touches them later, in another allocation, need not come after who touched them before. */
void store_forget(store *s, uint64_t begin, uint64_t end);
/* Makes room for one more node. False: there will never be room. */
bool store_has_room(store *s);
bool store_stuck(const store *s); /* are all nodes that are left hanging, or after one that hangs? */
const char *node_name(const node *n);
/* kernels.c */
void kernel_ranges(node *n);
void range_add(ranges *r, uint64_t begin, uint64_t bytes);
bool kernel_find(cu_function f);
bool kernel_is_recurrent(const node *n); /* a kernel of layers that recur, which writes no mark */
/* `outside` lets other nodes run while the kernel waits for a flag. */
bool kernel_run(node *n, bool (*outside)(void *), void *context);
#endif
