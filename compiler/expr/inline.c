/* inline.c: inlines the bodies of definitions and masks, and remembers what they became.
 *
 * Requires: lowered arguments, and a frame for the body.
 * Gives: the value of the body. A body with the same arguments under the same guard (codegen/mask/code.h) is lowered
 *      once. If nothing in it can fault, no node of it keeps the guard, and the one copy then serves under every guard.
 *      Whether that is so is seen from sema.guarded, which counts the nodes that keep a guard.
 * Cost: O(arguments) if it is remembered; else that of lowering it.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/expr/expr.h"

#define ANY_GUARD (MC_NONE - 1) /* in place of a guard: this copy serves every guard */

static const value poison = {TYPE_POISON, 0};

typedef struct inlined {
    const void *what;
    value *args;
    uint32_t count, guard;
    value result;
} inlined;

static size_t inlined_hash(const void *what, const value *args, uint32_t count, uint32_t guard) {
    uint64_t h = (uint64_t)(uintptr_t)what ^ (uint64_t)guard << 32;
    for (uint32_t i = 0; i < count; i++)
        h = (h ^ ((uint64_t)args[i].type << 32 | args[i].node)) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 31;
    h *= UINT64_C(0xff51afd7ed558ccd);
    return (size_t)(h ^ h >> 32);
}

static inlined *inlined_slot(inlined *table, size_t room, const inlined *key) {
    size_t i = inlined_hash(key->what, key->args, key->count, key->guard) & (room - 1);
    while (table[i].what &&
           (table[i].what != key->what || table[i].guard != key->guard || table[i].count != key->count ||
            (key->count && memcmp(table[i].args, key->args, key->count * sizeof *key->args))))
        i = (i + 1) & (room - 1);
    return &table[i];
}

static bool inlined_find(sema *s, const inlined *key, value *out) {
    if (!s->memo_room) return false;
    const inlined *found = inlined_slot(s->memos, s->memo_room, key);
    if (!found->what) return false;
    *out = found->result;
    return true;
}

static void inlined_add(sema *s, const inlined *new) {
    if (s->memo_count * 2 >= s->memo_room) {
        size_t room = s->memo_room ? s->memo_room * 2 : 256;
        inlined *table = calloc(room, sizeof *table);
        if (!table) {
            sema_no_memory(s);
            return;
        }
        for (size_t i = 0; i < s->memo_room; i++)
            if (s->memos[i].what) *inlined_slot(table, room, &s->memos[i]) = s->memos[i];
        free(s->memos);
        s->memos = table;
        s->memo_room = room;
    }
    *inlined_slot(s->memos, s->memo_room, new) = *new;
    s->memo_count++;
}

void expr_forget(sema *s) {
    free(s->memos);
    s->memos = NULL;
    s->memo_count = s->memo_room = 0;
}

value expr_inline(sema *s, const void *what, expr *body, const value *args, uint32_t count, const frame *f,
                  uint32_t guard) {
    inlined key = {.what = what, .args = (value *)args, .count = count, .guard = ANY_GUARD};
    value result;
    if (inlined_find(s, &key, &result)) return result;
    key.guard = guard;
    if (inlined_find(s, &key, &result)) {
        s->guarded++;
        return result;
    }
    uint64_t before = s->guarded;
    uint32_t in_index = s->in_index;
    s->in_index = 0; /* an index [ ] around the call is not one around the body */
    result = f->def ? expr_lower_array(s, body, f, guard) : expr_lower(s, body, f, guard);
    s->in_index = in_index;
    if (s->failed) return poison;
    if (count) {
        key.args = ARENA_NEW(s->scratch, value, count);
        if (!key.args) {
            sema_no_memory(s);
            return poison;
        }
        memcpy(key.args, args, count * sizeof *args);
    }
    if (s->guarded == before) key.guard = ANY_GUARD;
    key.result = result;
    inlined_add(s, &key);
    return result;
}
