/* class_tiles.c: merges the parts that different classes of heads see, for a range of heads.
 *
 * Requires: for each class of heads (head_classes.c), the parts that it sees and their shapes. (A part is a Q piece
 *     and a KV piece that meet, and its shape is the mask between them.)
 * Gives: the parts that any head of the range sees, each with a shape for every class of the range
 *     (runtime/plan/FORMAT.md).
 * Cost: O(parts * classes), and comparing shapes.
 *
 * The classes' lists of parts have the same order, so they are merged like sorted lists. Parts whose classes have the
 * same shapes share one copy of them.
 */
#include <string.h>

#include "compiler/base/memo.h"
#include "compiler/problem/class_tiles.h"

/* A range of heads, while its parts are merged. */
typedef struct joining {
    planning *x;
    class_shapes *all;
    const class_parts *of;   /* per class of the model */
    const uint32_t *place[FCP_SIDES];
    uint32_t *cls, *heads;   /* the range's classes, and how many of its heads each has */
    uint32_t count;          /* of classes */
    size_t *next;            /* per class of the range: its first part that is not merged yet */
    int64_t *key;            /* per class of the range: its shape in the part at hand; -1: it does not see the part */
    memo sets;               /* from such a key to the number of its first shape in `all` */
} joining;

static fcp_code add_shape(joining *j, const fcp_shape_rec *from, const fcp_run *runs, problem_shape about) {
    class_shapes *all = j->all;
    arena *work = &j->x->work;
    all->shapes = arena_grow(work, all->shapes, all->shape_count, &all->shape_room, sizeof *all->shapes);
    all->sets = arena_grow(work, all->sets, all->shape_count, &all->set_room, sizeof *all->sets);
    if (!all->shapes || !all->sets) return FCP_E_NO_MEMORY;
    fcp_shape_rec *to = &all->shapes[all->shape_count];
    *to = *from;
    to->first_run = (uint32_t)all->run_count;
    all->sets[all->shape_count++] = about;
    for (uint32_t i = 0; i < from->runs; i++) {
        all->runs = arena_grow(work, all->runs, all->run_count, &all->run_room, sizeof *all->runs);
        if (!all->runs) return FCP_E_NO_MEMORY;
        all->runs[all->run_count++] = runs[from->first_run + i];
    }
    return all->run_count > UINT32_MAX / 4 ? FCP_E_PLAN_SIZE : FCP_OK;
}

/* Finds the shapes for the key at hand, and adds them if no part had this key before. part: names the pieces. */
static fcp_code find_set(joining *j, const fcp_part *part, uint32_t *out) {
    const problem *p = j->x->problem;
    const uint64_t hash = memo_hash(j->key, j->count);
    const memo_entry *known = memo_find(&j->sets, j->key, j->count, hash);
    const fcp_shape_rec nothing = {.q_length = p->pieces[part->q_piece].length,
                                   .k_length = p->pieces[part->k_piece].length};
    uint64_t pairs = 0;
    if (known) {
        *out = (uint32_t)known->answer[0];
        return FCP_OK;
    }
    *out = (uint32_t)j->all->shape_count;
    for (uint32_t c = 0; c < j->count; c++) {
        uint64_t some;
        if (j->key[c] < 0) continue;
        if (__builtin_mul_overflow(j->of[j->cls[c]].shapes[j->key[c]].pairs, (uint64_t)j->heads[c], &some) ||
            __builtin_add_overflow(pairs, some, &pairs))
            return FCP_E_PLAN_SIZE;
    }
    for (uint32_t c = 0; c < j->count; c++) {
        const class_parts *of = &j->of[j->cls[c]];
        fcp_code code = add_shape(j, j->key[c] < 0 ? &nothing : &of->shapes[j->key[c]], of->runs,
                                  (problem_shape){.heads = j->heads[c], .set = c ? 0 : j->count, .pairs = pairs});
        if (code) return code;
    }
    return memo_add(&j->sets, &j->x->scratch, j->key, j->count, hash, (uint64_t[3]){*out}) ? FCP_OK : FCP_E_NO_MEMORY;
}

/* A number that orders parts by sequence, Q piece and KV piece. */
static uint64_t place_of(const joining *j, const fcp_part *part) {
    return (uint64_t)j->place[FCP_QUERIES][part->q_piece] << 32 | j->place[FCP_KEYS][part->k_piece];
}

/* Merges the next part: the first in order that any class still has. False: there is none. */
static bool next_part(joining *j, fcp_part *out) {
    uint64_t first = UINT64_MAX;
    for (uint32_t c = 0; c < j->count; c++) {
        const class_parts *of = &j->of[j->cls[c]];
        if (j->next[c] == of->count) continue;
        const uint64_t place = place_of(j, &of->parts[j->next[c]]);
        if (place < first) first = place, *out = of->parts[j->next[c]];
    }
    for (uint32_t c = 0; c < j->count && first != UINT64_MAX; c++) {
        const class_parts *of = &j->of[j->cls[c]];
        const bool sees = j->next[c] < of->count && place_of(j, &of->parts[j->next[c]]) == first;
        j->key[c] = sees ? (int64_t)of->parts[j->next[c]++].shape : -1;
    }
    return first != UINT64_MAX;
}

/* Lists the classes of a range, in the order of their numbers, with how many heads of the range each has. */
static bool list_classes(joining *j, const fcp_heads *range) {
    const problem *p = j->x->problem;
    const uint32_t shared = p->program->heads / p->program->kv_heads;
    uint32_t *heads = ARENA_ZNEW(&j->x->scratch, uint32_t, p->class_count);
    j->cls = ARENA_NEW(&j->x->scratch, uint32_t, p->class_count);
    j->heads = ARENA_NEW(&j->x->scratch, uint32_t, p->class_count);
    j->next = ARENA_ZNEW(&j->x->scratch, size_t, p->class_count);
    j->key = ARENA_NEW(&j->x->scratch, int64_t, p->class_count);
    if (!heads || !j->cls || !j->heads || !j->next || !j->key) return false;
    for (uint32_t kv = range->kv_first; kv < range->kv_first + range->kv_count; kv++)
        for (uint32_t i = 0; i < p->range_sub; i++) heads[p->head_class[kv * shared + range->sub_first + i]]++;
    for (uint32_t c = 0; c < p->class_count; c++)
        if (heads[c]) j->cls[j->count] = c, j->heads[j->count++] = heads[c];
    return true;
}

fcp_code class_tiles_join(planning *x, const class_parts *of, const uint32_t *const place[FCP_SIDES],
                          const fcp_heads *range, class_shapes *all, raw_parts *out) {
    joining j = {.x = x, .all = all, .of = of, .place = {place[0], place[1]}};
    fcp_part part;
    if (!list_classes(&j, range)) return FCP_E_NO_MEMORY;
    fcp_code code = FCP_OK;
    while (!code && next_part(&j, &part)) {
        code = planning_stopped_at(x, out->count) ? FCP_E_INTERRUPTED : raw_reserve(x, out, 1);
        if (!code) code = find_set(&j, &part, &part.shape);
        if (!code) out->part[out->count++] = part;
    }
    memo_free(&j.sets);
    return code;
}
