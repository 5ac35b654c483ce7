/* test_arena.c: tests arenas that share a pool: the memory that they give out does not overlap, and memory that one
 * arena gives back is used by the next one. */
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

/* Takes pieces of sizes from 1 byte to MOST, together more than a region of a pool has, and fills them. */
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

Test(arena, two_threads_share_a_pool) {
    arena_pool *pool = arena_pool_new(); /* NULL under the address sanitizer: arenas do without */
    user a = {.memory = {.pool = pool}, .mark = 1}, b = {.memory = {.pool = pool}, .mark = 2};
    pthread_t thread;
    for (int turn = 0; turn < 3; turn++) {
        cr_assert_eq(pthread_create(&thread, NULL, take, &b), 0);
        take(&a);
        pthread_join(thread, NULL);
        check(&a);
        check(&b);
        if (turn == 1) arena_free(&a.memory);
        else arena_reset(&a.memory);
        check(&b);
        take(&a); /* beside what b has */
        check(&a);
        check(&b);
        arena_reset(&a.memory);
        arena_reset(&b.memory);
        cr_assert(!pool || (a.memory.total < 1 << 20 && b.memory.total < 1 << 20), "the pool has it");
    }
    arena_free(&a.memory);
    arena_free(&b.memory);
    arena_pool_free(pool);
}

Test(arena, what_is_given_back_is_used_again) {
    enum { PARTS = 4, PART = 1 << 20 };
    static const int orders[][PARTS] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    arena_pool *pool = arena_pool_new();
    if (!pool) return;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        arena part[PARTS], whole = {.pool = pool};
        char *first = NULL, *at;
        for (int n = 0; n < PARTS; n++) {
            part[n] = (arena){.pool = pool};
            cr_assert_not_null(at = arena_alloc(&part[n], PART, 1, 16));
            if (!n) first = at;
            else cr_assert_gt(at, first, "parts lie one after the other");
        }
        for (int n = 0; n < PARTS; n++) arena_free(&part[orders[i][n]]);
        cr_assert_eq(arena_alloc(&whole, PARTS * (size_t)PART, 1, 16), first, "four gaps became one");
        arena_free(&whole);
    }
    arena_pool_free(pool);
}
