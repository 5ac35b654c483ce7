/* test_arena.c: tests arenas that share a supply: what they give out does not overlap, and outlives the supply's
 * maker. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "compiler/base/arena.h"

enum { PIECES = 400, MOST = 200000 };

typedef struct user {
    arena memory;
    unsigned char *piece[PIECES];
    size_t size[PIECES];
    unsigned char mark;
} user;

/* Takes pieces of sizes from 1 byte to MOST, together more than a supply has, and fills them. */
static void *take(void *given) {
    user *u = given;
    uint64_t state = u->mark;
    for (int i = 0; i < PIECES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        u->size[i] = 1 + (state >> 33) % MOST;
        if ((u->piece[i] = arena_alloc(&u->memory, u->size[i], 1, 16))) memset(u->piece[i], u->mark, u->size[i]);
    }
    return NULL;
}

static void check(const user *u) {
    for (int i = 0; i < PIECES; i++) {
        cr_assert_not_null(u->piece[i]);
        cr_assert_eq((uintptr_t)u->piece[i] % 16, 0);
        cr_assert_eq(u->piece[i][0], u->mark);
        cr_assert_eq(memcmp(u->piece[i], u->piece[i] + 1, u->size[i] - 1), 0, "all bytes are the first");
    }
}

Test(arena, two_threads_share_a_supply) {
    arena_supply *supply = arena_supply_new(); /* NULL under the address sanitizer: arenas do without */
    user a = {.memory = {.supply = supply}, .mark = 1}, b = {.memory = {.supply = supply}, .mark = 2};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, take, &b), 0);
    take(&a);
    pthread_join(thread, NULL);
    arena_supply_release(supply); /* the chunks hold it now */
    check(&a);
    check(&b);
    arena_free(&a.memory);
    check(&b);
    arena_reset(&b.memory);
    b.memory.supply = NULL;
    take(&b); /* in the same chunks */
    check(&b);
    arena_free(&b.memory);
}
