/* stack.c: a stack of blocks, cut from chunks. The first chunk is small, because most stacks of a small program need
 * little. A chunk that becomes empty is kept for later, so that growing and shrinking again and again is cheap. */
#include "compiler/base/stack.h"

#include <stdint.h>
#include <stdlib.h>

struct stack_chunk {
    struct stack_chunk *next;
    size_t size;
    _Alignas(16) char bytes[];
};

enum { FIRST_CHUNK = 1 << 12, CHUNK = 1 << 16 };

void *stack_take(stack *s, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!s->chunk || bytes > s->chunk->size - s->used) {
        struct stack_chunk **from = &s->spare, *c;
        while (*from && (*from)->size < bytes) from = &(*from)->next;
        if ((c = *from)) {
            *from = c->next;
        } else {
            size_t size = s->total ? CHUNK : FIRST_CHUNK;
            if (size < bytes) size = bytes;
            c = malloc(sizeof *c + size);
            if (!c) return NULL;
            c->size = size;
            s->total += sizeof *c + size;
        }
        c->next = s->chunk;
        s->chunk = c;
        s->used = 0;
    }
    void *block = s->chunk->bytes + s->used;
    s->used += bytes;
    return block;
}

void stack_trim(stack *s, void *block, size_t bytes) {
    s->used = (size_t)((char *)block - s->chunk->bytes) + ((bytes + 15) & ~(size_t)15);
}

void stack_back(stack *s, stack_mark mark) {
    while (s->chunk != mark.chunk) {
        struct stack_chunk *c = s->chunk;
        s->chunk = c->next;
        c->next = s->spare;
        s->spare = c;
    }
    s->used = mark.used;
}

static void free_all(struct stack_chunk *c) {
    while (c) {
        struct stack_chunk *next = c->next;
        free(c);
        c = next;
    }
}

void stack_free(stack *s) {
    free_all(s->chunk);
    free_all(s->spare);
    *s = (stack){0};
}
