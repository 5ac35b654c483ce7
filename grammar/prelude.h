/* prelude.h: the text of prelude.fcp, and where each mask and score stands in it. A program reads only the masks and
 * scores that it names. The Makefile writes the text and the table of places as C arrays. */
#ifndef FCPC_GRAMMAR_PRELUDE_H
#define FCPC_GRAMMAR_PRELUDE_H
#include <stdbool.h>
#include <stdint.h>

/* Bytes [begin, end) of the text, in the text's order. */
typedef struct prelude_item {
    const char *name;
    bool score;
    uint32_t begin, end;
} prelude_item;

extern const char fcpc_prelude[];
extern const unsigned fcpc_prelude_size, prelude_item_count;
extern const prelude_item prelude_items[];
#endif
