/* rows.h: the rows of one cell, solved: for each q and h the set of keys that are allowed, as bits, found from
 * segments on which every integer of the program is linear in k, not by trying keys. */
#ifndef FCPC_BOX_ROWS_H
#define FCPC_BOX_ROWS_H
#include "compiler/box/box.h"

enum { ROWS_WIDTH = 128 }; /* most keys in a box */

typedef struct rows rows;

typedef struct rows_result {
    uint64_t pairs;    /* allowed (q, k, h) in the box */
    bool fault;        /* some (q, k, h) of the box faults: this one; pairs is then unset */
    int64_t q, k, h;
    uint64_t rows;     /* solved */
    uint64_t elements; /* evaluated one by one, where no segment would do */
} rows_result;

rows *rows_new(void); /* NULL: out of memory */
void rows_free(rows *r);
size_t rows_bytes(const rows *r);
/* The program is for the box or for one that holds it. False when out of memory. */
bool rows_solve(rows *r, const box_program *program, const box *b, rows_result *out);
/* One row, of a program that cannot fault there: bit j of out[j / 64] is allow(q, b->lo[BOX_K] + j). Adds to *elements
 * what was evaluated one by one. False when out of memory. */
bool rows_one(rows *r, const box_program *program, const box *b, int64_t q, int64_t h, uint64_t out[2],
              uint64_t *elements);
/* The most segments that one integer of the row solved last is in. */
uint32_t rows_segments(const rows *r, const box_program *program);
#endif
