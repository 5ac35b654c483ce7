/* slice_sources.h: rect(...) and slices(...) in masks, as the other files of this room use them (rect_slices.c). */
#ifndef FCPC_EXPR_SLICE_SOURCES_H
#define FCPC_EXPR_SLICE_SOURCES_H
#include "compiler/sema/sema.h"
#include "compiler/expr/slice_bands.h"

/* Slices as they were read, from a file or from the arguments of one call. */
typedef struct slice_source {
    struct slice_source *next;
    const char *path; /* NULL: from arguments */
    slice *at;
    size_t count, room;
    uint32_t number; /* of their bands in the program */
    bool wrong;      /* they could not be read, which was reported */
} slice_source;

/* The comparisons that a call of rect stands for; they are made once. NULL: an error was reported. */
expr *expr_expand_rect(sema *s, expr *call);
/* Does a call of slices have the right form? The file that it names is not read yet. */
bool expr_check_slices_call(sema *s, const expr *call);
/* Reads the slices of a checked call and gives the program their bands, once. NULL: an error was reported. */
const slice_source *expr_load_slices(sema *s, expr *call);
#endif
