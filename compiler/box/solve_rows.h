/* solve_rows.h: solves the rows of a cell: finds the keys that each query of each head sees. A row is a query of a
 * head.
 *
 * Keys are not tried one by one. In a row q and h are fixed, and an integer such as k / 50 is piecewise linear in k: 0
 * on the first 50 keys, 1 on the next 50. The pieces are called segments. A comparison of two such integers is solved
 * once for each segment. The answer is a bit for each key. */
#ifndef FCPC_BOX_SOLVE_ROWS_H
#define FCPC_BOX_SOLVE_ROWS_H
#include "compiler/box/box.h"

enum { ROWS_WIDTH = 128 }; /* most keys in a box */

typedef struct rows rows;

typedef struct rows_result {
    uint64_t pairs;    /* allowed (q, k, h) in the box */
    bool stopped;      /* `stop` was set before all was solved; nothing else is then set */
    bool fault;        /* some (q, k, h) of the box faults: this one; pairs is then unset */
    int64_t q, k, h;
    uint64_t rows;     /* solved */
    uint64_t elements; /* keys that had to be tried one by one all the same */
    uint64_t segments; /* on which integers were linear, in all rows and nodes */
} rows_result;

rows *rows_new(void); /* NULL: out of memory */
void rows_free(rows *r);
size_t rows_bytes(const rows *r);
void rows_set_stop(rows *r, const volatile int *stop); /* polled before each row by rows_solve; may be NULL */
/* The program is for the box or for one that holds it. False when out of memory. */
bool rows_solve(rows *r, const box_program *program, const box *b, rows_result *out);
/* Solves one row, of a program that cannot fault there: bit j % 64 of out[j / 64] is 1 if key b->lo[BOX_K] + j is
 * allowed. Adds to *elements the keys that had to be tried. False when out of memory. */
bool rows_one(rows *r, const box_program *program, const box *b, int64_t q, int64_t h, uint64_t out[2],
              uint64_t *elements);
/* In the row that was solved last: the number of segments of the integer that has most of them. */
uint32_t rows_segments(const rows *r, const box_program *program);
#endif
