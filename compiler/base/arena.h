/* arena.h: the memory of one phase: many allocations, freed all at once. */
#ifndef FCPC_BASE_ARENA_H
#define FCPC_BASE_ARENA_H
#include <stddef.h>
#include <stdint.h>

/* Memory that several arenas share: what one arena gives back, another may get. So the pool needs no more than all
 * arenas need at the same time. Threads may share it, each with arenas of its own. */
typedef struct arena_pool arena_pool;

typedef struct arena {
    struct arena_chunk *chunk; /* newest first */
    struct arena_chunk *spare; /* kept by arena_reset */
    size_t used, size;         /* of the newest chunk */
    size_t total;              /* bytes that it has */
    arena_pool *pool;          /* borrowed, and outlives what the arena has; NULL: every chunk is the system's */
} arena;

/* An arena is zero-initialised: `arena a = {0};` */
void *arena_alloc(arena *a, size_t count, size_t size, size_t align); /* not zeroed; NULL: no memory, or overflow */
void *arena_zalloc(arena *a, size_t count, size_t size, size_t align);
/* Gives back all but the first `bytes` of an allocation of `size` bytes, if it is the newest one. */
void arena_trim(arena *a, const void *p, size_t size, size_t bytes);
char *arena_copy(arena *a, const char *text, size_t length); /* NUL-terminated copy */
/* Frees the contents of an arena. Memory of its own is kept for new contents; memory of a pool goes back to the
 * pool. */
void arena_reset(arena *a);
void arena_free(arena *a);                                   /* everything; the arena may be used again */

/* Makes room for one more element in an array of `count` elements of `size` bytes: if they fill *room, moves them to a
 * new place with twice the room. Returns where the array is then; NULL: no memory, and the array is where it was. */
void *arena_double(arena *a, void *array, size_t count, size_t *room, size_t size); /* for arena_grow alone */
static inline void *arena_grow(arena *a, void *array, size_t count, size_t *room, size_t size) {
    return count < *room ? array : arena_double(a, array, count, room, size);
}

arena_pool *arena_pool_new(void);      /* NULL: none could be made, and arenas do without */
void arena_pool_free(arena_pool *pool); /* no arena has memory of it any more; NULL is accepted */

#define ARENA_NEW(a, type, count) ((type *)arena_alloc((a), (count), sizeof(type), _Alignof(type)))
#define ARENA_ZNEW(a, type, count) ((type *)arena_zalloc((a), (count), sizeof(type), _Alignof(type)))
#endif
