/* alike.c: finds out that a program has the same answer at all positions of one dimension of a box, although it names
 * that dimension.
 *
 * Requires: a program specialised to the box (box.c).
 * Gives: box_alike of box.h.
 * How: in a tree of rollouts a query sees key k if q <= last[k]. Say a box has the queries from 6000 to 7999, and its
 *      keys belong to rollouts that end at 5100, 5900 and 9300. None ends among the queries. So the keys of the first
 *      two are seen by no query of the box, and those of the third by every one: all rows are alike. In general a
 *      comparison of a position with an element is the same for all positions if no element is among them.
 * Cost: O(nodes + runs of the elements), and no more than RUNS_MOST runs for each comparison.
 */
#include "compiler/box/array.h"
#include "compiler/box/box.h"

enum { NODES_MOST = 32, RUNS_MOST = 128 };

/* Is every element of array `a` from place `from` up to and without place `to` less than `lo`, or greater than `hi`?
 * It may be so where the answer is false. */
static bool none_among(const box_array *a, uint64_t from, uint64_t to, int64_t lo, int64_t hi) {
    if (!a->run_count || from < a->from || to > a->to) return false;
    uint64_t end;
    const array_run *run = box_array_run(a, from, &end);
    for (uint32_t i = 0; i < RUNS_MOST; i++, run++) {
        end = run + 1 < a->runs + a->run_count ? run[1].start : a->to;
        const int64_t v = run_at(run, from), w = run_at(run, (end < to ? end : to) - 1);
        if ((v < w ? v : w) <= hi && (v < w ? w : v) >= lo) return false;
        if (end >= to) return true;
        from = end;
    }
    return false;
}

/* Is node x, a comparison, one of a position of dimension `dim` with elements that do not depend on it, and none of
 * which is among these positions? */
static bool is_alike(const box_program *p, const box_node *x, const box *b, int dim) {
    const box_node *y = &p->nodes[x->a], *z = &p->nodes[x->b];
    const bool first = y->op == BOX_LINEAR; /* the position is the first operand */
    const form *f = first ? &y->f : &z->f;
    const box_node *load = first ? z : y;
    if (load->op != MC_LOAD || (!first && z->op != BOX_LINEAR)) return false;
    const box_node *index = &p->nodes[load->a];
    if (index->op != BOX_LINEAR || index->f.x[dim] || f->x[BOX_H] || f->x[BOX_Q + BOX_K - dim]) return false;
    int64_t lo, hi, from, to;
    form_range(f, b, &lo, &hi);
    form_range(&index->f, b, &from, &to);
    if (lo == hi) return true;
    /* the elements for which the answer changes between the least and the greatest position */
    if (first == (x->op == MC_LE)) hi--;
    else lo++;
    const box_array *a = &p->arrays[load->f.c];
    uint64_t least, greatest;
    return mc_place(&a->array, from, 0, 0, &least) && mc_place(&a->array, to, 0, 0, &greatest) && least <= greatest &&
           none_among(a, least, greatest + 1, lo, hi);
}

bool box_alike(const box_program *p, const box *b, int dim) {
    bool on[NODES_MOST];
    if (p->loose || p->count > NODES_MOST) return false;
    for (uint32_t i = 0; i < p->count; i++) {
        const box_node *x = &p->nodes[i];
        if (x->op >= BOX_LINEAR) {
            on[i] = x->f.x[dim] != 0;
            if (on[i] && x->op != BOX_LINEAR) return false;
            continue;
        }
        if (x->op >= MC_BANDS) return false;
        const uint32_t operand[3] = {x->a, x->b, x->c};
        on[i] = false;
        for (int o = 0; o < 3; o++) on[i] |= operand[o] != MC_NONE && on[operand[o]];
        if (!on[i]) continue;
        if ((x->op != MC_LT && x->op != MC_LE) || !is_alike(p, x, b, dim)) return false;
        on[i] = false;
    }
    return true;
}
