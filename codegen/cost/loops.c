/* loops.c: finds the loops of a kernel and which of them is the loop over steps, and counts what a warp issues in one
 * turn of that loop (a step: one tile of keys, or of rows, in the kernel's main loop).
 *
 * Method:   1. The code is divided into basic blocks, here called pieces, which make the control-flow graph.
 *           2. Dominators are found by the algorithm of Cooper, Harvey and Kennedy. A branch back to a piece that
 *              dominates the branch makes a loop, with that piece as its head.
 *           3. The loop over steps is the innermost one that has a line marked "step".
 *           4. There are two figures, for FULL and for PARTIAL cells. For each, pieces that are not for such cells are
 *              left out (see below), and with them whatever then lies on no path through the loop.
 *           5. The figure is the sum over the path that issues most.
 * Counting: - An inner loop counts as many times as it turns, if it counts a register up by constants; otherwise once.
 *             An inner loop that only waits for a barrier does not count.
 *           - Where lanes may take different paths (BSSY), a warp goes through all of them, so all of them count.
 * Left out: for FULL cells, a piece is left out if at least half of its instructions have the mark of PARTIAL cells and
 *           none has that of FULL cells; for PARTIAL cells the other way round. For both, it is left out if half of it
 *           is marked "seldom". But a piece counts all the same if warps with such cells cannot avoid it: if every path
 *           through the loop goes through it, or every path to something that they surely run. Compilers do move
 *           marked instructions into code that all cells run.
 *
 * Requires: instructions with their targets and marks (listing.c).
 * Gives:    cost_steps (cost_parts.h).
 * Cost:     O(pieces x loops).
 * Source:   Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cost/cost_parts.h"

enum { NONE = -1 };

typedef struct piece {
    uint32_t first, end;
    int next[2];      /* where it goes on: NONE or a piece */
    int meets;        /* it ends with a BSSY whose lanes meet again at this piece; NONE: it does not */
    int order, idom;  /* in reverse postorder; the piece that every way to it goes through last.
                       * order NONE: unreachable */
    int loop;         /* the innermost loop that it is in */
    unsigned marks;
    uint32_t marked[COST_CLASSES], seldom; /* how many of its instructions have the mark of a class,
                                            * or of what is seldom done */
    bool tensor;      /* it has a product */
} piece;

typedef struct loop {
    int head, parent;
    bool *has;        /* of each piece */
    uint32_t size;
    uint64_t turns;   /* 0: not known */
    bool waits;       /* it only waits for a barrier */
} loop;

typedef struct graph {
    const cost_code *code;
    const cost_machine *machine;
    piece *pieces;
    int count;
    int *at;          /* the piece of an instruction */
    int *by_order;    /* pieces in reverse postorder */
    int reached;
    loop *loops;
    int loop_count;
} graph;

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static bool find_pieces(graph *g) {
    const cost_code *c = g->code;
    bool *begins = calloc(c->count + (size_t)1, sizeof *begins);
    g->at = calloc(c->count + (size_t)1, sizeof *g->at);
    g->pieces = calloc(c->count + (size_t)1, sizeof *g->pieces);
    if (!begins || !g->at || !g->pieces) {
        free(begins);
        return false;
    }
    begins[0] = true;
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->all[i].flow != COST_NEXT) begins[i + 1] = true;
        if (c->all[i].target != COST_NOWHERE) begins[c->all[i].target] = true;
    }
    for (uint32_t i = 0; i < c->count; i++) {
        if (begins[i])
            g->pieces[g->count++] = (piece){.first = i, .order = NONE, .idom = NONE, .loop = NONE, .meets = NONE};
        g->at[i] = g->count - 1;
        piece *x = &g->pieces[g->count - 1];
        x->end = i + 1;
        x->marks |= c->all[i].marks;
        x->tensor |= cost_pipe_of(c->all[i].name) == COST_TENSOR;
        for (int class = 0; class < COST_CLASSES; class++) x->marked[class] += c->all[i].marks >> class & 1;
        x->seldom += (c->all[i].marks & COST_MARK_SELDOM) != 0;
    }
    for (int p = 0; p < g->count; p++) {
        piece *x = &g->pieces[p];
        const cost_instruction *last = &c->all[x->end - 1];
        int target = last->target == COST_NOWHERE ? NONE : g->at[last->target];
        bool falls = last->flow != COST_ALWAYS && last->flow != COST_END && p + 1 < g->count;
        x->next[0] = falls ? p + 1 : NONE;
        x->next[1] = last->flow == COST_MAYBE || last->flow == COST_ALWAYS ? target : NONE;
        if (last->flow == COST_REGION) x->meets = target;
    }
    free(begins);
    return true;
}

/* Numbers the reachable pieces in reverse postorder. */
static bool find_order(graph *g) {
    int *stack = calloc((size_t)g->count + 1, sizeof *stack), *turn = calloc((size_t)g->count + 1, sizeof *turn);
    g->by_order = calloc((size_t)g->count + 1, sizeof *g->by_order);
    bool good = stack && turn && g->by_order;
    int depth = 0, place = g->count;
    if (good && g->count) {
        stack[depth++] = 0;
        g->pieces[0].order = 0; /* seen */
    }
    while (depth) {
        int p = stack[depth - 1];
        if (turn[p] < 2) {
            int to = g->pieces[p].next[turn[p]++];
            if (to == NONE || g->pieces[to].order != NONE) continue;
            g->pieces[to].order = 0;
            stack[depth++] = to;
        } else {
            g->by_order[--place] = p;
            depth--;
        }
    }
    if (good) {
        g->reached = g->count - place;
        memmove(g->by_order, g->by_order + place, (size_t)g->reached * sizeof *g->by_order);
        for (int i = 0; i < g->reached; i++) g->pieces[g->by_order[i]].order = i;
    }
    free(stack);
    free(turn);
    return good;
}

static int common(const graph *g, int a, int b) {
    while (a != b) {
        while (g->pieces[a].order > g->pieces[b].order) a = g->pieces[a].idom;
        while (g->pieces[b].order > g->pieces[a].order) b = g->pieces[b].idom;
    }
    return a;
}

static void find_dominators(graph *g) {
    if (g->count) g->pieces[0].idom = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < g->reached; i++) {
            int p = g->by_order[i];
            for (int e = 0; e < 2; e++) {
                int to = g->pieces[p].next[e];
                if (to == NONE || to == 0) continue;
                int old = g->pieces[to].idom, now = old == NONE ? p : common(g, old, p);
                if (now != old) g->pieces[to].idom = now, changed = true;
            }
        }
    }
}

static bool dominates(const graph *g, int a, int b) {
    while (g->pieces[b].order > g->pieces[a].order) b = g->pieces[b].idom;
    return a == b;
}

/* --- loops -------------------------------------------------------------------------------------------------------- */

/* Adds what reaches the branch back from `from` without going through the loop's head. */
static bool add_body(const graph *g, loop *l, int from) {
    int *stack = calloc((size_t)g->count + 1, sizeof *stack), depth = 0;
    if (!stack) return false;
    if (!l->has[from]) l->has[from] = true, l->size++, stack[depth++] = from;
    while (depth) {
        int p = stack[--depth];
        for (int i = 0; i < g->reached; i++) {
            int q = g->by_order[i];
            if (l->has[q] || (g->pieces[q].next[0] != p && g->pieces[q].next[1] != p)) continue;
            l->has[q] = true;
            l->size++;
            stack[depth++] = q;
        }
    }
    free(stack);
    return true;
}

static loop *loop_at(graph *g, int head) {
    for (int i = 0; i < g->loop_count; i++)
        if (g->loops[i].head == head) return &g->loops[i];
    loop *more = realloc(g->loops, ((size_t)g->loop_count + 1) * sizeof *more);
    if (!more) return NULL;
    g->loops = more;
    loop *l = &g->loops[g->loop_count];
    *l = (loop){.head = head, .parent = NONE, .has = calloc((size_t)g->count + 1, sizeof *l->has), .size = 1};
    if (!l->has) return NULL;
    l->has[head] = true;
    g->loop_count++;
    return l;
}

/* The register that an instruction writes is its first operand: "R2, R2, 0x1" writes R2. CS2R writes two. */
static bool writes(const cost_instruction *x, const char *name) {
    size_t length = strlen(name);
    if (strncmp(x->operands, name, length) == 0 && (x->operands[length] == ',' || x->operands[length] == ' '))
        return true;
    unsigned pair, number;
    return strncmp(x->name, "CS2R", 4) == 0 && !strstr(x->name, ".32") && sscanf(x->operands, "R%3u", &pair) == 1 &&
           sscanf(name, "R%3u", &number) == 1 && number == pair + 1;
}

/* The n-th operand, from 0, without a suffix such as .reuse; "" if there is none. */
static void operand(const cost_instruction *x, int n, char out[24]) {
    const char *at = x->operands;
    for (; n && *at; n--) {
        at += strcspn(at, ",");
        at += strspn(at, ", ");
    }
    snprintf(out, 24, "%.*s", (int)strcspn(at, ",. \t"), at);
}

static bool number_of(const char *text, int64_t *out) {
    char *end;
    if (strcmp(text, "RZ") == 0 || strcmp(text, "URZ") == 0 || strcmp(text, "SRZ") == 0) return *out = 0, true;
    if (!*text) return false;
    *out = (int32_t)(uint32_t)strtoll(text, &end, 0);
    return *end == 0;
}

static bool named(const cost_instruction *x, const char *name) { return strncmp(x->name, name, strlen(name)) == 0; }

/* The constant that an instruction writes. */
static bool constant_of(const cost_instruction *x, int64_t *out) {
    char text[24], first[24], second[24];
    if (*x->guard) return false;
    if (named(x, "MOV") || named(x, "UMOV") || named(x, "CS2R")) return operand(x, 1, text), number_of(text, out);
    operand(x, 1, first);
    operand(x, 2, second);
    if (named(x, "IMAD.MOV")) return operand(x, 3, text), strcmp(first, "RZ") == 0 && number_of(text, out);
    if (named(x, "HFMA2")) { /* -RZ * RZ + (0, 0) */
        operand(x, 3, text);
        bool zero = strcmp(text, "0") == 0;
        operand(x, 4, text);
        return *out = 0, strcmp(first, "-RZ") == 0 && zero && strcmp(text, "0") == 0;
    }
    return false;
}

/* By how much an instruction counts a register up: "VIADD R2, R2, 0x1", or "UIADD3 UR5, UPT, UPT, UR4,
 * 0x4, URZ" of UR4. */
static bool step_of(const cost_instruction *x, const char *name, int64_t *out) {
    char text[24];
    int at = 1;
    if (*x->guard || !(named(x, "VIADD") || named(x, "IADD3") || named(x, "UIADD3") || named(x, "IADD"))) return false;
    operand(x, at, text);
    while (strcmp(text, "PT") == 0 || strcmp(text, "UPT") == 0) operand(x, ++at, text);
    if (strcmp(text, name)) return false;
    operand(x, at + 2, text);
    if (*text && strcmp(text, "RZ") && strcmp(text, "URZ")) return false;
    operand(x, at + 1, text);
    return number_of(text, out) && *out;
}

/* The only instruction of a loop that writes a register, or NULL. */
static const cost_instruction *only_write(const graph *g, const loop *l, const char *name) {
    const cost_instruction *found = NULL;
    for (int p = 0; p < g->count; p++)
        for (uint32_t i = g->pieces[p].first; l->has[p] && i < g->pieces[p].end; i++) {
            if (!writes(&g->code->all[i], name)) continue;
            if (found) return NULL;
            found = &g->code->all[i];
        }
    return found;
}

/* The last instruction of a piece that writes a register, or NULL. */
static const cost_instruction *last_write(const graph *g, int p, const char *name) {
    for (uint32_t i = g->pieces[p].end; i-- > g->pieces[p].first;)
        if (writes(&g->code->all[i], name)) return &g->code->all[i];
    return NULL;
}

/* The instruction of the same piece that makes what a copy copies, or NULL. */
static const cost_instruction *source_of(const graph *g, const cost_instruction *copy) {
    char from[24];
    uint32_t i = (uint32_t)(copy - g->code->all), first = g->pieces[g->at[i]].first;
    operand(copy, 1, from);
    while (i-- > first)
        if (writes(&g->code->all[i], from)) return &g->code->all[i];
    return NULL;
}

/* What a register holds before a loop, if the last write on the way to it is of a constant. */
static bool value_before(const graph *g, const loop *l, const char *name, int64_t *out) {
    for (int p = l->head; p != 0;) {
        p = g->pieces[p].idom;
        if (l->has[p]) return false;
        const cost_instruction *x = last_write(g, p, name);
        if (x) return constant_of(x, out);
    }
    return false;
}

/* Is x < y, or what else the comparison says? 0 or 1; NONE: it is none that is known here. */
static int compare(const char *name, int64_t x, int64_t y) {
    const char *how = strchr(name, '.');
    if (strstr(name, ".U32")) x = (uint32_t)x, y = (uint32_t)y;
    if (!how) return NONE;
    how++;
    if (strncmp(how, "NE", 2) == 0) return x != y;
    if (strncmp(how, "EQ", 2) == 0) return x == y;
    if (strncmp(how, "GE", 2) == 0) return x >= y;
    if (strncmp(how, "GT", 2) == 0) return x > y;
    if (strncmp(how, "LE", 2) == 0) return x <= y;
    return strncmp(how, "LT", 2) == 0 ? x < y : NONE;
}

/* How often a loop turns, if its only branch back depends on a register that it counts up by a constant: it follows the
 * count. The comparison may come before the register is counted up, or after. 0: it is no such loop. */
static uint64_t turns_of(const graph *g, const loop *l) {
    enum { MOST = 1 << 16 };
    int latch = NONE;
    for (int p = 0; p < g->count; p++)
        for (int e = 0; e < 2; e++)
            if (l->has[p] && g->pieces[p].next[e] == l->head) {
                if (latch != NONE || e == 0) return 0;
                latch = p;
            }
    if (latch == NONE) return 0;
    const cost_instruction *branch = &g->code->all[g->pieces[latch].end - 1], *test = NULL, *up;
    bool negated = branch->guard[0] == '!', counted = false;
    if (branch->flow != COST_MAYBE || !*branch->guard) return 0;
    if (strcmp(branch->name, "BRA") && strcmp(branch->name, "BRA.U")) return 0;
    if (!(test = last_write(g, latch, branch->guard + negated))) test = only_write(g, l, branch->guard + negated);
    if (!test || !(named(test, "ISETP") || named(test, "UISETP"))) return 0;
    char counter[24], limit_text[24], with[24];
    int64_t limit, step, value;
    operand(test, 2, counter);
    operand(test, 3, limit_text);
    operand(test, 4, with);
    if (!number_of(limit_text, &limit) || (strcmp(with, "PT") && strcmp(with, "UPT"))) return 0;
    if (!(up = only_write(g, l, counter)) || !value_before(g, l, counter, &value)) return 0;
    const cost_instruction *sum = named(up, "UMOV") || named(up, "MOV") ? source_of(g, up) : up;
    if (!sum || !step_of(sum, counter, &step)) return 0;
    int up_at = g->at[up - g->code->all], test_at = g->at[test - g->code->all];
    if (!dominates(g, up_at, latch) || !dominates(g, test_at, latch)) return 0;
    counted = up_at == test_at ? up < test : dominates(g, up_at, test_at);
    for (uint64_t turns = 1; turns < MOST; turns++) {
        int yes = compare(test->name, counted ? value + step : value, limit);
        if (yes == NONE) return 0;
        if ((yes != 0) == negated) return turns;
        value += step;
    }
    return 0;
}

/* Does a loop only try a barrier again and again? */
static bool only_waits(const graph *g, const loop *l) {
    enum { LONGEST = 12 };
    uint32_t length = 0;
    bool waits = false;
    for (int p = 0; p < g->count; p++)
        for (uint32_t i = g->pieces[p].first; l->has[p] && i < g->pieces[p].end; i++, length++)
            waits |= named(&g->code->all[i], "SYNCS") && strstr(g->code->all[i].name, "WAIT") != NULL;
    return waits && length <= LONGEST;
}

static bool find_loops(graph *g) {
    for (int i = 0; i < g->reached; i++) {
        int p = g->by_order[i];
        for (int e = 0; e < 2; e++) {
            int to = g->pieces[p].next[e];
            if (to == NONE || !dominates(g, to, p)) continue;
            loop *l = loop_at(g, to);
            if (!l || !add_body(g, l, p)) return false;
        }
    }
    for (int i = 0; i < g->loop_count; i++) {
        loop *l = &g->loops[i];
        for (int k = 0; k < g->loop_count; k++)
            if (k != i && g->loops[k].has[l->head] &&
                (l->parent == NONE || g->loops[k].size < g->loops[l->parent].size))
                l->parent = k;
        for (int p = 0; p < g->count; p++)
            if (l->has[p] && (g->pieces[p].loop == NONE || l->size < g->loops[g->pieces[p].loop].size))
                g->pieces[p].loop = i;
        l->turns = turns_of(g, l);
        l->waits = only_waits(g, l);
    }
    return true;
}

/* --- the longest way ---------------------------------------------------------------------------------------------- */

static void add(cost_counts *to, const cost_counts *x, uint64_t times) {
    for (int p = 0; p < COST_PIPES; p++) {
        to->instructions[p] += x->instructions[p] * times;
        to->clocks[p] += x->clocks[p] * times;
    }
    to->waits += x->waits * times;
    to->arrivals += x->arrivals * times;
    to->fences += x->fences * times;
    to->elements += x->elements * times;
    to->bytes += x->bytes * times;
    to->unknown_loops += x->unknown_loops;
}

/* Does p count in the loop itself, or as a part of a loop inside it? Gives the loop inside; NONE:
 * in the loop itself. */
static int inside(const graph *g, int of, int p) {
    int found = g->pieces[p].loop;
    if (found == of) return NONE;
    while (g->loops[found].parent != of) found = g->loops[found].parent;
    return found;
}

/* What a turn of a loop takes. out: pieces that do not count. */
static bool longest(const graph *g, int of, const bool *out, cost_counts *result);

/* What a piece takes, or the whole loop that begins with it. */
static bool weigh(const graph *g, int of, int p, const bool *out, cost_counts *w) {
    int child = inside(g, of, p);
    *w = (cost_counts){0};
    if (child == NONE) {
        for (uint32_t i = g->pieces[p].first; i < g->pieces[p].end; i++) cost_count(g->machine, &g->code->all[i], w);
        return true;
    }
    cost_counts one = {0};
    const loop *l = &g->loops[child];
    if (p != l->head) return true;
    if (!longest(g, child, out, &one)) return false;
    add(w, &one, l->turns ? l->turns : 1);
    w->unknown_loops += !l->turns;
    return true;
}

/* All that lies between a BSSY and the place where its lanes meet. */
static bool weigh_region(const graph *g, int of, int from, const bool *out, bool *taken, cost_counts *sum) {
    int *stack = calloc((size_t)g->count + 1, sizeof *stack), depth = 0, meets = g->pieces[from].meets;
    bool good = stack != NULL;
    *sum = (cost_counts){0};
    if (good) stack[depth++] = from;
    while (good && depth) {
        int p = stack[--depth];
        for (int e = 0; e < 2 && good; e++) {
            int to = g->pieces[p].next[e];
            cost_counts w;
            if (to == NONE || to == meets || to == g->loops[of].head || !g->loops[of].has[to] || out[to] || taken[to])
                continue;
            taken[to] = true;
            stack[depth++] = to;
            good = weigh(g, of, to, out, &w);
            add(sum, &w, 1);
        }
    }
    free(stack);
    return good;
}

typedef struct way {
    bool there;
    cost_counts sum;
} way;

static void arrive(way *at, const cost_counts *sum) {
    if (at->there && cost_issue(&at->sum) >= cost_issue(sum)) return;
    at->there = true;
    at->sum = *sum;
}

static bool longest(const graph *g, int of, const bool *out, cost_counts *result) {
    const loop *l = &g->loops[of];
    way *ways = calloc((size_t)g->count + 1, sizeof *ways), best = {0};
    bool *taken = calloc((size_t)g->count + 1, sizeof *taken), good = ways && taken;
    cost_counts w, region;
    if (good) ways[l->head].there = true;
    for (int i = 0; i < g->reached && good; i++) {
        int p = g->by_order[i], child;
        if (!l->has[p] || out[p] || taken[p] || !ways[p].there) continue;
        child = inside(g, of, p);
        if (child == NONE || p == g->loops[child].head) {
            good = weigh(g, of, p, out, &w);
            add(&ways[p].sum, &w, 1);
        }
        int meets = g->pieces[p].meets;
        if (good && child == NONE && meets != NONE && l->has[meets] && !out[meets] && meets != l->head &&
            g->pieces[meets].order > g->pieces[p].order) {
            good = weigh_region(g, of, p, out, taken, &region);
            w = ways[p].sum;
            add(&w, &region, 1);
            arrive(&ways[meets], &w);
            continue;
        }
        for (int e = 0; e < 2; e++) {
            int to = g->pieces[p].next[e];
            if (to == NONE || !l->has[to] || out[to]) continue;
            if (to == l->head) arrive(&best, &ways[p].sum);
            else if (child == NONE || to != g->loops[child].head) arrive(&ways[to], &ways[p].sum);
        }
    }
    free(ways);
    free(taken);
    *result = best.sum;
    return good;
}

/* --- steps and classes -------------------------------------------------------------------------------------------- */

/* Is a loop one over steps? It has a step's mark in itself, or in a loop inside, unless that is one over steps. */
static void find_step_loops(const graph *g, bool *is_step) {
    for (int p = 0; p < g->count; p++)
        if (g->pieces[p].order != NONE && g->pieces[p].marks & COST_MARK_STEP && g->pieces[p].loop != NONE)
            is_step[g->pieces[p].loop] = true;
    for (int i = 0; i < g->loop_count; i++)
        for (int up = g->loops[i].parent; is_step[i] && up != NONE; up = g->loops[up].parent) is_step[up] = false;
}

/* Must every warp whose cells are of a class go through a piece? It must if every path through the loop does, or every
 * path to what the class surely does: code with its mark, and products that are not the other class's own. */
static bool needed(const graph *g, const loop *l, int p, int class) {
    bool always = true;
    for (int q = 0; q < g->count; q++) {
        const piece *x = &g->pieces[q];
        if (!l->has[q] || x->order == NONE) continue;
        bool certain = (x->marked[class] && !x->seldom) || (x->tensor && !x->marked[!class]);
        if (certain && dominates(g, p, q)) return true;
        if (x->next[0] == l->head || x->next[1] == l->head) always = always && dominates(g, p, q);
    }
    return always;
}

/* Chooses the pieces that do not count for a class: those of which at least half of the instructions are marked as the
 * other class's or as seldom done, and loops that wait. What then lies on no path through the loop is not reached. */
static void leave_out(const graph *g, const loop *l, int class, bool *out) {
    for (int p = 0; p < g->count; p++) {
        const piece *x = &g->pieces[p];
        uint32_t half = (x->end - x->first + 1) / 2;
        bool others = (!x->marked[class] && x->marked[!class] >= half) || x->seldom >= half;
        for (int up = x->loop; up != NONE && &g->loops[up] != l; up = g->loops[up].parent) others |= g->loops[up].waits;
        out[p] = x->order == NONE || (l->has[p] && others && !needed(g, l, p, class));
    }
}

bool cost_steps(const cost_code *code, const cost_machine *machine, cost_kernel *kernel) {
    graph g = {.code = code, .machine = machine};
    bool good = find_pieces(&g) && find_order(&g);
    bool *is_step = NULL, *out = NULL;
    if (good) find_dominators(&g);
    good = good && find_loops(&g);
    if (good) is_step = calloc((size_t)g.loop_count + 1, sizeof *is_step);
    if (good) out = calloc((size_t)g.count + 1, sizeof *out);
    good = good && is_step && out;
    if (good) find_step_loops(&g, is_step);
    for (int i = 0; i < g.loop_count && good; i++) {
        if (!is_step[i] || kernel->step_count == COST_STEPS) continue;
        cost_step *s = &kernel->steps[kernel->step_count++];
        for (int class = 0; class < COST_CLASSES && good; class++) {
            leave_out(&g, &g.loops[i], class, out);
            good = longest(&g, i, out, &s->of[class]);
            s->has[class] = cost_issue(&s->of[class]) != 0;
        }
    }
    for (int i = 0; i < g.loop_count; i++) free(g.loops[i].has);
    free(g.loops);
    free(g.pieces);
    free(g.at);
    free(g.by_order);
    free(is_step);
    free(out);
    return good;
}
