/* arena.c: cuts allocations from chunks, one after the other. Each new chunk is larger than the one before; a request
 * that is larger still gets a chunk of its own. */
#include "compiler/base/arena.h"

#include <stdatomic.h>
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

struct arena_supply {
    atomic_size_t holders, used;
    char *bytes; /* SUPPLY of them */
};

struct arena_chunk {
    struct arena_chunk *next;
    arena_supply *from; /* NULL: malloc's */
    size_t size;
    _Alignas(16) char bytes[];
};

enum { FIRST_CHUNK = 1 << 14, LAST_CHUNK = 1 << 22 };
/* An arena of 256 KB to 32 MB, or one that is asked for 96 KB at once, lies on huge pages: the first touch of 2 MB is
 * then one page fault and not 512. A chunk is as large as all before it, from 2 MB on and up to 8 MB: few pages are
 * half empty, and an arena takes at most about twice what it needs, and 2 MB. Beyond 32 MB the kernel has to move other
 * memory about to find whole huge pages, which costs more than the faults: with huge pages throughout, a first plan of
 * 90 MB took 1.0 s instead of 0.7 s. The address sanitizer maps each huge page anew and marks all of it as not to be
 * touched, so under it no arena has any.
 * Arenas with a supply cut smaller chunks, because what one leaves of a huge page is the next one's. From the first
 * huge page on, they cut small chunks from it, too. A plan for 256 ranks touches 6 huge pages so, and 8 without. */
enum { HUGE_FROM = 1 << 18, HUGE_NEED = 3 << 15, HUGE_UNTIL = 1 << 25, HUGE_PAGE = 1 << 21,
       HUGE_CHUNK = 4 * HUGE_PAGE, SUPPLY = 1 << 25 };

/* Address space on huge pages. Of it nothing is memory yet: a page becomes that when it is first touched. */
static void *huge_pages(size_t size) {
    void *p = aligned_alloc(HUGE_PAGE, size);
    if (p) madvise(p, size, MADV_HUGEPAGE); /* a wish: where it is not granted, pages are small */
    return p;
}

arena_supply *arena_supply_new(void) {
    arena_supply *s = ARENA_REDZONE ? NULL : malloc(sizeof *s);
    if (!s) return NULL;
    if (!(s->bytes = huge_pages(SUPPLY))) {
        free(s);
        return NULL;
    }
    atomic_init(&s->holders, 1);
    atomic_init(&s->used, 0);
    return s;
}

void arena_supply_release(arena_supply *s) {
    if (!s || atomic_fetch_sub(&s->holders, 1) != 1) return;
    free(s->bytes);
    free(s);
}

/* A chunk of at least `bytes` bytes; NULL: so much is not left. */
static struct arena_chunk *cut_chunk(arena_supply *s, size_t bytes) {
    struct arena_chunk *c;
    if (bytes > SUPPLY - sizeof *c) return NULL;
    const size_t size = (sizeof *c + bytes + 15) / 16 * 16;
    size_t at = atomic_load(&s->used);
    do {
        if (size > SUPPLY - at) return NULL;
    } while (!atomic_compare_exchange_weak(&s->used, &at, at + size));
    atomic_fetch_add(&s->holders, 1);
    c = (struct arena_chunk *)(s->bytes + at);
    *c = (struct arena_chunk){.from = s, .size = size - sizeof *c};
    return c;
}

/* Memory for a chunk of at least `bytes` bytes, of which `need` are asked for now; *bytes becomes what it has.
 * NULL: out of memory. */
static struct arena_chunk *new_chunk(const arena *a, size_t need, size_t *bytes) {
    struct arena_chunk *c;
    const size_t total = a->total;
    const bool small = total < HUGE_FROM && need < HUGE_NEED, large = total > HUGE_UNTIL || need > HUGE_UNTIL;
    if (a->supply && (!small || atomic_load(&a->supply->used)) && (c = cut_chunk(a->supply, *bytes))) return c;
    if (small || large || ARENA_REDZONE > 0) {
        if ((c = malloc(sizeof *c + *bytes))) *c = (struct arena_chunk){.size = *bytes};
        return c;
    }
    size_t size = total < HUGE_CHUNK ? total : HUGE_CHUNK - sizeof *c;
    if (size < *bytes) size = *bytes;
    size = (sizeof *c + size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    if (!(c = huge_pages(size))) return NULL;
    *bytes = size - sizeof *c;
    *c = (struct arena_chunk){.size = *bytes};
    return c;
}

void *arena_alloc(arena *a, size_t count, size_t size, size_t align) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    size_t at = (a->used + align - 1) & ~(align - 1);
    if (!a->chunk || at > a->size || bytes + ARENA_REDZONE > a->size - at) {
        size_t grow = a->total / (a->supply ? 8 : 2);
        if (grow < FIRST_CHUNK) grow = FIRST_CHUNK;
        if (grow > LAST_CHUNK) grow = LAST_CHUNK;
        size_t need = bytes + ARENA_REDZONE;
        if (need > grow) grow = need;
        struct arena_chunk *c, **link = &a->spare;
        while (*link && (*link)->size < need) link = &(*link)->next;
        if ((c = *link)) {
            *link = c->next;
        } else {
            if (!(c = new_chunk(a, need, &grow))) return NULL;
            a->total += grow;
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

void *arena_grow(arena *a, void *array, size_t count, size_t *room, size_t size) {
    if (count < *room) return array;
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
        if (c->from) arena_supply_release(c->from);
        else free(c);
    }
    *a = (arena){0};
}
