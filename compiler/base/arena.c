/* arena.c: cuts allocations from chunks, one after the other. Each new chunk is larger than the one before; a request
 * that is larger still gets a chunk of its own. */
#include "compiler/base/arena.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_REDZONE 16
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_REDZONE 16
#endif
#endif
#ifdef ARENA_REDZONE
#include <sanitizer/asan_interface.h>
#else
#define ARENA_REDZONE 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif

struct arena_chunk {
    struct arena_chunk *next;
    arena_pool *from; /* NULL: malloc's */
    size_t size;
    _Alignas(16) char bytes[];
};

/* A free piece of memory in a region of a pool. */
typedef struct gap {
    struct gap *next; /* by address, of one region */
    size_t size;
} gap;

/* A stretch of addresses. A page of it becomes memory when it is first touched. */
typedef struct region {
    char *bytes;
    size_t size, used; /* nothing from `used` on has been given out */
    gap *gaps;
} region;

enum { REGIONS = 24, GRAIN = 64 };
struct arena_pool {
    pthread_mutex_t lock;
    uint32_t count;
    size_t size; /* of all regions */
    region at[REGIONS];
};

/* A pool keeps memory that one pass no longer needs and gives it to the next pass, on whatever thread. It exists
 * because memory is expensive when it is first touched: the kernel clears the page, and on a virtual machine the host
 * may have to find that page first, which takes much longer.
 * - Allocation is first fit: the first gap that is large enough is taken, so that the same addresses are used again and
 *   again.
 * - Regions of a pool lie on huge pages up to HUGE_UNTIL bytes: the first touch of 2 MB is then one page fault and not
 *   512. Beyond that the kernel has to move other memory to make room for huge pages, which costs more than the faults:
 *   with huge pages throughout, a first plan of 90 MB took 1.0 s instead of 0.7 s.
 * - A small plan needs no huge page: as long as a pool has no region, an arena takes its first chunks from malloc.
 * - Under the address sanitizer there are no pools, because they would hide uses of memory that has been given back. */
enum { FIRST_CHUNK = 1 << 14, LAST_CHUNK = 1 << 22, SMALL_UNTIL = 1 << 18, SMALL_NEED = 3 << 15, HUGE_PAGE = 1 << 21,
       REGION = 1 << 25, HUGE_UNTIL = 1 << 27 };

arena_pool *arena_pool_new(void) {
    arena_pool *pool = ARENA_REDZONE ? NULL : calloc(1, sizeof *pool);
    if (pool && pthread_mutex_init(&pool->lock, NULL)) {
        free(pool);
        return NULL;
    }
    return pool;
}

void arena_pool_free(arena_pool *pool) {
    if (!pool) return;
    for (uint32_t i = 0; i < pool->count; i++) free(pool->at[i].bytes);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

/* Takes the first gap that has at least `size` bytes. What it has beyond that remains a gap. NULL: no gap is large
 * enough. */
static void *fill_gap(region *r, size_t size) {
    for (gap **link = &r->gaps; *link; link = &(*link)->next) {
        gap *g = *link;
        if (g->size < size) continue;
        if (g->size == size) {
            *link = g->next;
        } else {
            gap *rest = (gap *)((char *)g + size);
            *rest = (gap){g->next, g->size - size};
            *link = rest;
        }
        return g;
    }
    return NULL;
}

/* Adds a region that is as large as all regions before it together, so that a pool needs few. NULL: the system gives no
 * memory, or there are as many regions as a pool can have. */
static region *add_region(arena_pool *pool, size_t need) {
    region *r = &pool->at[pool->count];
    size_t size = pool->size > REGION ? pool->size : REGION;
    if (size < need) size = need;
    size = (size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (pool->count == REGIONS || !(r->bytes = aligned_alloc(HUGE_PAGE, size))) return NULL;
    if (pool->size + size <= HUGE_UNTIL) madvise(r->bytes, size, MADV_HUGEPAGE); /* a wish, which need not be granted */
    r->size = size;
    pool->size += size;
    pool->count++;
    return r;
}

/* `size` bytes, a multiple of GRAIN. NULL: the system is to be asked. */
static void *take_chunk(arena_pool *pool, size_t size, bool small) {
    void *found = NULL;
    pthread_mutex_lock(&pool->lock);
    for (uint32_t i = 0; i < pool->count && !found; i++) found = fill_gap(&pool->at[i], size);
    if (!found && (pool->count || !small)) {
        region *r = pool->at;
        while (r < pool->at + pool->count && r->size - r->used < size) r++;
        if (r < pool->at + pool->count || (r = add_region(pool, size))) {
            found = r->bytes + r->used;
            r->used += size;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

static char *end_of(gap *g) { return (char *)g + g->size; }

static void give_back(arena_pool *pool, char *at, size_t size) {
    pthread_mutex_lock(&pool->lock);
    region *r = pool->at;
    while (at < r->bytes || at >= r->bytes + r->size) r++;
    gap **link = &r->gaps, *g;
    while (*link && end_of(*link) < at) link = &(*link)->next;
    if (*link && end_of(*link) == at) {
        g = *link;
        g->size += size;
    } else {
        g = (gap *)at;
        *g = (gap){*link, size};
        *link = g;
    }
    if (g->next && end_of(g) == (char *)g->next) {
        g->size += g->next->size;
        g->next = g->next->next;
    }
    if (end_of(g) == r->bytes + r->used) { /* the last one: it is as if it had not been given out */
        r->used -= g->size;
        *link = NULL;
    }
    pthread_mutex_unlock(&pool->lock);
}

/* A chunk of at least `bytes` bytes, of which `need` are asked for now. NULL: out of memory. */
static struct arena_chunk *new_chunk(const arena *a, size_t need, size_t bytes) {
    const size_t size = (sizeof(struct arena_chunk) + bytes + GRAIN - 1) / GRAIN * GRAIN;
    struct arena_chunk *c = a->pool ? take_chunk(a->pool, size, a->total < SMALL_UNTIL && need < SMALL_NEED) : NULL;
    arena_pool *from = c ? a->pool : NULL;
    if (c || (c = malloc(size))) *c = (struct arena_chunk){.from = from, .size = size - sizeof *c};
    return c;
}

void *arena_alloc(arena *a, size_t count, size_t size, size_t align) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    size_t at = (a->used + align - 1) & ~(align - 1);
    if (!a->chunk || at > a->size || bytes + ARENA_REDZONE > a->size - at) {
        size_t grow = a->total / (a->pool ? 8 : 2);
        if (grow < FIRST_CHUNK) grow = FIRST_CHUNK;
        if (grow > LAST_CHUNK) grow = LAST_CHUNK;
        size_t need = bytes + ARENA_REDZONE;
        if (need > grow) grow = need;
        struct arena_chunk *c, **link = &a->spare;
        while (*link && (*link)->size < need) link = &(*link)->next;
        if ((c = *link)) {
            *link = c->next;
        } else {
            if (!(c = new_chunk(a, need, grow))) return NULL;
            a->total += c->size;
        }
        c->next = a->chunk;
        ASAN_POISON_MEMORY_REGION(c->bytes, c->size);
        a->chunk = c;
        a->size = c->size;
        at = 0;
    }
    a->used = at + bytes + ARENA_REDZONE;
    void *p = a->chunk->bytes + at;
    ASAN_UNPOISON_MEMORY_REGION(p, bytes);
    return p;
}

void *arena_zalloc(arena *a, size_t count, size_t size, size_t align) {
    void *p = arena_alloc(a, count, size, align);
    return p ? memset(p, 0, count * size) : NULL;
}

void arena_trim(arena *a, const void *p, size_t size, size_t bytes) {
    if ((const char *)p + size + ARENA_REDZONE != a->chunk->bytes + a->used) return;
    ASAN_POISON_MEMORY_REGION((const char *)p + bytes, size - bytes);
    a->used -= size - bytes;
}

char *arena_copy(arena *a, const char *text, size_t length) {
    char *p = arena_alloc(a, length + 1, 1, 1);
    if (!p) return NULL;
    memcpy(p, text, length);
    p[length] = 0;
    return p;
}

void *arena_double(arena *a, void *array, size_t count, size_t *room, size_t size) {
    const size_t more = *room ? *room * 2 : 64;
    void *grown = arena_alloc(a, more, size, _Alignof(max_align_t));
    if (!grown) return NULL;
    if (count) memcpy(grown, array, count * size);
    *room = more;
    return grown;
}

void arena_reset(arena *a) {
    while (a->chunk) {
        struct arena_chunk *c = a->chunk, **link = &a->spare;
        a->chunk = c->next;
        if (c->from) {
            a->total -= c->size;
            give_back(c->from, (char *)c, sizeof *c + c->size);
            continue;
        }
        while (*link && (*link)->size < c->size) link = &(*link)->next; /* by size: the smallest that fits is taken */
        c->next = *link;
        *link = c;
    }
    a->used = a->size = 0;
}

void arena_free(arena *a) {
    arena_reset(a);
    a->chunk = a->spare;
    while (a->chunk) {
        struct arena_chunk *c = a->chunk;
        a->chunk = c->next;
        ASAN_UNPOISON_MEMORY_REGION(c->bytes, c->size);
        free(c);
    }
    *a = (arena){.pool = a->pool};
}
