/* stack.h: memory in last-in, first-out order. Blocks are taken one by one, and given back all at once, down to a
 * mark. */
#ifndef FCPC_BASE_STACK_H
#define FCPC_BASE_STACK_H
#include <stddef.h>

typedef struct stack {
    struct stack_chunk *chunk; /* newest first; chunks stay until stack_free */
    struct stack_chunk *spare;
    size_t used, total;        /* of the newest chunk; bytes taken from the system */
} stack;

typedef struct stack_mark {
    struct stack_chunk *chunk;
    size_t used;
} stack_mark;

/* A stack is zero-initialised. Blocks are aligned to 16 bytes; NULL: out of memory. */
void *stack_take(stack *s, size_t bytes);
/* Shortens the block taken last. */
void stack_trim(stack *s, void *block, size_t bytes);
static inline stack_mark stack_here(const stack *s) { return (stack_mark){s->chunk, s->used}; }
void stack_back(stack *s, stack_mark mark);
void stack_free(stack *s);
#endif
