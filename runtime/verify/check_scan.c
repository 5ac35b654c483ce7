/* check_scan.c: proves that a scan gives each stretch the state that enters it.
 *
 * Requires: checked tables, and a network whose steps are in order and whose sends meet their receives (networks.c).
 * Proves:   for every stretch that does not come first in its document, in the order in which states run, and for every
 *           part of the heads (E616, but for what is named):
 *            - Its register of results is written once, with exactly the product of the summaries of all stretches of
 *              the document before it, each once and in order. For a stretch that comes first it is not written.
 *            - Combined are neighbours alone. What is b alone begins with the document's first stretch, so b is a
 *              state, and whatever else is combined or sent has its A.
 *            - No register is read before something is in it.
 *           What is written to a temporary is read before it is overwritten, and none is left at the end (what came in
 *           a message: E602). A rank has as many temporaries as it uses (E605).
 * Method:   the steps are executed, with intervals in place of numbers: a register part holds the product of the
 *           stretches first to end - 1, counted in the order of states. A summary is an interval of one stretch. Two
 *           intervals that touch make one. Nothing else makes any, so whatever is an interval has each stretch once.
 * Depth:    the number of messages, one behind the other, that a message waits for, with itself. A summary
 *           has 0. The largest is a bound for the number of rounds.
 * Cost:     linear in steps. Memory: 20 bytes for each temporary and each message, 4 for each part of a result, of
 *           which there must be as many as steps that write.
 */
#include <stdlib.h>

#include "runtime/base/carve.h"
#include "runtime/verify/networks.h"

typedef unsigned long long ull;

/* What a temporary holds, or a message. */
typedef struct product {
    uint32_t first, end; /* of stretches; end 0: nothing */
    uint32_t part, depth;
    bool whole;
    bool read; /* a temporary: since it was written */
    bool came; /* a temporary: in a message */
    bool used; /* a temporary: it has been written */
} product;

struct scan_state {
    bool descends;
    uint32_t *cursor;          /* by rank: steps that are done */
    uint64_t *first_temporary; /* by rank */
    product *temporaries, *messages;
    uint32_t *result_depth; /* [result * parts + part]: of the state there, + 1; 0: nothing */
    uint64_t results;       /* that have been written */
    uint32_t depth;
    void *room;
};

static uint32_t stretches_of(const network *n, uint32_t rank) {
    return (uint32_t)(n->all->first[rank + 1] - n->all->first[rank]);
}
/* Stretches are counted in the order in which states run. */
static uint32_t turned(const network *n, uint32_t place) {
    return n->scan->descends ? (uint32_t)n->all->count - 1 - place : place;
}
static uint32_t number_of(const network *n, uint32_t rank, uint32_t stretch) {
    return turned(n, n->all->place[n->all->first[rank] + stretch]);
}
/* The first stretch of the document in that order. */
static uint32_t begin_of(const network *n, uint32_t number) {
    const uint32_t place = turned(n, number);
    return n->scan->descends ? (uint32_t)n->all->count - n->all->end[place] : n->all->begin[place];
}
static bool is_state(const network *n, const product *p) { return p->first == begin_of(n, p->first); }
/* Where the results of a stretch are, which is not the first of its document. */
static uint32_t *result_at(const network *n, uint32_t rank, uint32_t stretch, uint32_t part) {
    const uint32_t later = n->all->later[n->scan->descends][n->all->first[rank] + stretch] - 1;
    return &n->scan->result_depth[(uint64_t)later * n->layer->parts + part];
}

/* What temporary register `reg` of a rank holds. */
static product *temporary_at(const network *n, uint32_t rank, uint32_t reg) {
    const uint64_t number = reg - 2 * (uint64_t)stretches_of(n, rank);
    return &n->scan->temporaries[n->scan->first_temporary[rank] + number];
}

fcp_code fcp_verify_scan_open(network *n, uint64_t count) {
    const uint32_t ranks = n->v->p->ranks;
    const uint64_t results = (uint64_t)n->all->others * n->layer->parts; /* fits: each below 2^32 */
    uint64_t temporaries = 0;
    if (results > n->steps)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, FCP_NOWHERE, FCP_NONE,
                                    "%u stretches in %u parts get a state, "
                                    "and there are %llu steps",
                                    n->all->others, n->layer->parts, (ull)n->steps);
    for (uint32_t r = 0; r < ranks; r++) temporaries += n->stream[r].temporaries;
    struct scan_state *s = n->scan = calloc(1, sizeof *s);
    if (s) {
        const fcp_carved tables[] = {{&s->cursor, ranks, sizeof *s->cursor},
                                     {&s->first_temporary, ranks, sizeof *s->first_temporary},
                                     {&s->temporaries, (size_t)temporaries + 1, sizeof *s->temporaries},
                                     {&s->messages, (size_t)count + 1, sizeof *s->messages},
                                     {&s->result_depth, (size_t)results + 1, sizeof *s->result_depth}};
        s->room = FCP_CARVE(tables);
    }
    if (!s || !s->room)
        return fcp_fail(n->v->err, FCP_E_NO_MEMORY, "out of memory to verify a scan of %llu steps", (ull)n->steps);
    s->descends = fcp_scan_descends(n->layer, n->pass);
    for (uint32_t r = 1; r < ranks; r++)
        s->first_temporary[r] = s->first_temporary[r - 1] + n->stream[r - 1].temporaries;
    return FCP_OK;
}

void fcp_verify_scan_close(network *n) {
    if (n->scan) free(n->scan->room);
    free(n->scan);
    n->scan = NULL;
}

/* What a step reads in a register: A and b, or b alone, which must be a state. */
static fcp_code read_register(network *n, uint32_t rank, uint32_t at, uint32_t reg, bool whole, product *out) {
    const uint32_t stretches = stretches_of(n, rank);
    const fcp_step *s = &n->v->plan->steps[n->stream[rank].first + at];
    if (reg < stretches) {
        const uint32_t number = number_of(n, rank, reg);
        *out = (product){.first = number, .end = number + 1, .whole = true};
    } else if (reg < 2 * stretches) {
        const uint32_t number = number_of(n, rank, reg - stretches), begin = begin_of(n, number);
        const uint32_t depth = number == begin ? 0 : *result_at(n, rank, reg - stretches, s->part);
        if (!depth)
            return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, rank, at, "nothing is in register %u, part %u", reg,
                                        s->part);
        *out = (product){.first = begin, .end = number, .depth = depth - 1};
    } else {
        product *held = temporary_at(n, rank, reg);
        if (!held->end || held->part != s->part)
            return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, rank, at, "nothing is in register %u, part %u", reg,
                                        s->part);
        held->read = true;
        *out = *held;
    }
    if (whole ? !out->whole : !is_state(n, out))
        return fcp_verify_fail_step(
            n, FCP_E_VERIFY_SCAN, rank, at,
            whole ? "register %u has no A" : "what is in register %u does not begin with a document", reg);
    if (whole && is_state(n, out))
        return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, rank, at,
                                    "what is in register %u begins with a document: it is a "
                                    "state, of which A is not needed",
                                    reg);
    out->whole = whole;
    out->part = s->part;
    return FCP_OK;
}

static fcp_code of_no_use(const network *n, uint32_t rank, uint32_t at, uint32_t reg, const product *held) {
    return fcp_verify_fail_step(n, held->came ? FCP_E_VERIFY_MATCH : FCP_E_VERIFY_SCAN, rank, at,
                                "nothing reads what %s register %u", held->came ? "was received into" : "is in", reg);
}

/* A step writes `p`. */
static fcp_code write_register(network *n, uint32_t rank, uint32_t at, uint32_t reg, const product *p, bool came) {
    const uint32_t stretches = stretches_of(n, rank);
    if (reg >= 2 * stretches) {
        product *held = temporary_at(n, rank, reg);
        if (held->end && !held->read) return of_no_use(n, rank, at, reg, held);
        *held = *p;
        held->read = false;
        held->came = came;
        held->used = true;
        return FCP_OK;
    }
    const uint32_t number = number_of(n, rank, reg - stretches), begin = begin_of(n, number);
    if (number == begin)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, rank, at,
                                    "register %u is of stretch %u, with which a "
                                    "document begins",
                                    reg, reg - stretches);
    if (p->first != begin || p->end != number)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, rank, at,
                                    "register %u gets the product of stretches %u to %u, "
                                    "and needs that of %u to %u",
                                    reg, p->first, p->end - 1, begin, number - 1);
    uint32_t *depth = result_at(n, rank, reg - stretches, p->part);
    if (*depth)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, rank, at, "part %u of register %u is written twice", p->part,
                                    reg);
    *depth = p->depth + 1;
    n->scan->results++;
    return FCP_OK;
}

static fcp_code combine(network *n, uint32_t rank, uint32_t at, const fcp_step *s) {
    product a, b;
    fcp_code code = read_register(n, rank, at, s->a, s->whole, &a);
    if (!code) code = read_register(n, rank, at, s->b, true, &b);
    if (code) return code;
    if (a.end != b.first)
        return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, rank, at,
                                    "stretches %u to %u are combined with %u to %u, which "
                                    "do not follow them in one document",
                                    a.first, a.end - 1, b.first, b.end - 1);
    a.end = b.end;
    a.depth = a.depth > b.depth ? a.depth : b.depth;
    return write_register(n, rank, at, s->out, &a, false);
}

/* Does the steps of a rank up to the first that sends or receives. */
static fcp_code go_on(network *n, uint32_t rank) {
    const fcp_step *steps = n->v->plan->steps + n->stream[rank].first;
    uint32_t *at = &n->scan->cursor[rank];
    for (fcp_code code; *at < n->stream[rank].count; ++*at) {
        const fcp_step *s = &steps[*at];
        product p;
        if (s->op == FCP_STEP_SEND || s->op == FCP_STEP_RECV) break;
        if (s->op == FCP_STEP_COMBINE) {
            code = combine(n, rank, *at, s);
        } else {
            code = read_register(n, rank, *at, s->a, false, &p);
            if (!code) code = write_register(n, rank, *at, s->out, &p, false);
        }
        if (code) return code;
    }
    return FCP_OK;
}

/* Sends and receives of a round stand together, so the first of them finds the cursor before it. */
static fcp_code go_to(network *n, const message *m) {
    fcp_code code = n->scan->cursor[m->rank] <= m->at ? go_on(n, m->rank) : FCP_OK;
    if (!code && n->scan->cursor[m->rank] <= m->at) n->scan->cursor[m->rank] = m->at + 1;
    return code;
}

fcp_code fcp_verify_scan_send(network *n, const message *m, uint64_t number) {
    const fcp_step *s = fcp_verify_step(n, m);
    product *p = &n->scan->messages[number];
    fcp_code code = go_to(n, m);
    if (!code) code = read_register(n, m->rank, m->at, s->a, s->whole, p);
    if (code) return code;
    p->depth++;
    if (p->depth > n->scan->depth) n->scan->depth = p->depth;
    return FCP_OK;
}

fcp_code fcp_verify_scan_receive(network *n, const message *m, uint64_t number) {
    fcp_code code = go_to(n, m);
    return code ? code
                : write_register(n, m->rank, m->at, fcp_verify_step(n, m)->out, &n->scan->messages[number], true);
}

/* A result that nothing writes: there is one. */
static fcp_code missing_result(const network *n) {
    for (uint32_t r = 0; r < n->v->p->ranks; r++)
        for (uint32_t i = 0; i < stretches_of(n, r); i++) {
            const uint32_t number = number_of(n, r, i);
            for (uint32_t part = 0; part < n->layer->parts && number != begin_of(n, number); part++)
                if (!*result_at(n, r, i, part))
                    return fcp_verify_fail_step(n, FCP_E_VERIFY_SCAN, r, FCP_NONE,
                                                "stretch %u gets no state for part "
                                                "%u of the heads",
                                                i, part);
        }
    return FCP_OK;
}

fcp_code fcp_verify_scan_end(network *n, uint32_t *out_depth) {
    for (uint32_t r = 0; r < n->v->p->ranks; r++) {
        const product *of = &n->scan->temporaries[n->scan->first_temporary[r]];
        fcp_code code = go_on(n, r);
        for (uint32_t i = 0; i < n->stream[r].temporaries && !code; i++) {
            if (!of[i].used)
                code = fcp_verify_fail_step(n, FCP_E_VERIFY_MEMORY, r, FCP_NONE,
                                            "%u temporaries, and nothing is written "
                                            "to number %u",
                                            n->stream[r].temporaries, i);
            else if (!of[i].read) code = of_no_use(n, r, FCP_NONE, 2 * stretches_of(n, r) + i, &of[i]);
        }
        if (code) return code;
    }
    *out_depth = n->scan->depth;
    return n->scan->results < (uint64_t)n->all->others * n->layer->parts ? missing_result(n) : FCP_OK;
}
