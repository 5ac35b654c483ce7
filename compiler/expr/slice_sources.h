/* slice_sources.h: rect(...) and slices(...) between the rooms of sema: expr_slices.c. */
#ifndef FCPC_EXPR_SLICE_SOURCES_H
#define FCPC_EXPR_SLICE_SOURCES_H
#include "compiler/sema/sema.h"
#include "compiler/expr/bands.h"

/* Slices as they were read: of a file, or of one call where they are written out. */
typedef struct slice_source {
    struct slice_source *next;
    const char *path; /* NULL: written out */
    slice *at;
    size_t count, room;
    uint32_t number; /* of their union in the program */
    bool wrong;      /* reported */
} slice_source;

/* The comparisons that a call of rect means, made once; NULL: reported. */
expr *expr_expand_rect(sema *s, expr *call);
/* Has a call of slices the form it should have? What it names is read only by load_slices. */
bool expr_check_slices_call(sema *s, const expr *call);
/* Reads the slices of a call that was checked, and gives the program their union, once. NULL: reported. */
const slice_source *expr_load_slices(sema *s, expr *call);
#endif
