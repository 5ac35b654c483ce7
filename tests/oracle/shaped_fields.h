/* shaped_fields.h: fields of random programs that are over heads, queries and keys, or cells of them, or over nothing
 * but sequences. They are drawn as text, and read by the definition: of each sequence a field has a value for each
 * head, each cell that holds a query and each cell that holds a key, in this order.
 *
 * random_program.h includes this file, and has its dice. */
#ifndef SHAPED_FIELDS_H
#define SHAPED_FIELDS_H

enum { SHAPED_MOST = 2, SHAPED_ROOM = 6000 };

typedef struct shaped_field {
    uint32_t heads, group;  /* heads 0: not over them; how many query heads share a value */
    int64_t q_cell, k_cell; /* 0: not over them */
    bool real;              /* values are hundredths */
    uint64_t count;
    /* of the sequence under way: where its values begin; its first cell of queries, and how many there are */
    uint64_t start;
    int64_t first_row, rows, columns;
    int64_t value[SHAPED_ROOM];
} shaped_field;

static inline int64_t shaped_cell(int64_t x, int64_t cell) { return x >= 0 ? x / cell : -((cell - 1 - x) / cell); }

/* Turns the field to a sequence, whose first query is at position `first`, and returns how many values that has. */
static inline uint64_t shaped_turn(shaped_field *f, int64_t first, int64_t queries, int64_t keys, uint64_t start) {
    f->start = start;
    f->first_row = f->q_cell ? shaped_cell(first, f->q_cell) : 0;
    f->rows = !f->q_cell ? 1 : queries ? shaped_cell(first + queries - 1, f->q_cell) - f->first_row + 1 : 0;
    f->columns = !f->k_cell ? 1 : keys ? shaped_cell(keys - 1, f->k_cell) + 1 : 0;
    return (f->heads ? f->heads : 1) * (uint64_t)(f->rows * f->columns);
}

/* The value for a pair. */
static inline int64_t shaped_value(const shaped_field *f, int64_t q, int64_t k, int64_t h) {
    const int64_t plane = f->heads ? h / f->group : 0;
    const int64_t row = f->q_cell ? shaped_cell(q, f->q_cell) - f->first_row : 0;
    const int64_t column = f->k_cell ? k / f->k_cell : 0;
    return f->value[f->start + (uint64_t)((plane * f->rows + row) * f->columns + column)];
}
static inline double shaped_number(const shaped_field *f, int64_t q, int64_t k, int64_t h) {
    const double value = (double)shaped_value(f, q, k, h);
    return f->real ? value / 100 : value;
}

/* What the field is over. */
static inline void shaped_draw(shaped_field *f, dice *d, uint32_t heads, uint32_t kv_heads) {
    static const int64_t cells[] = {0, 1, 2, 16, 64, 100, 128};
    const uint32_t over = roll(d, 4);
    f->heads = over == 2 ? heads : over == 3 ? kv_heads : 0;
    f->group = f->heads ? heads / f->heads : 1;
    f->q_cell = cells[roll(d, 7)];
    f->k_cell = cells[roll(d, 7)];
    f->real = false;
}

/* Its dimensions, in words: "h, q / 64, k" of an expression that reads it, or "heads, queries / 64, keys". */
enum { SHAPED_TEXT = 200 };
static inline void shaped_dims(const shaped_field *f, const char *heads, const char *queries, const char *keys,
                               char out[SHAPED_TEXT]) {
    const char *const words[] = {queries, keys};
    const int64_t cells[] = {f->q_cell, f->k_cell};
    size_t size = (size_t)snprintf(out, SHAPED_TEXT, "%s", f->heads ? heads : "");
    for (int i = 0; i < 2; i++) {
        if (!cells[i]) continue;
        size += (size_t)snprintf(out + size, SHAPED_TEXT - size, "%s%s", size ? ", " : "", words[i]);
        if (cells[i] > 1) size += (size_t)snprintf(out + size, SHAPED_TEXT - size, " / %d", (int)cells[i]);
    }
}

/* How it is read: "b0[h, q / 64, k]", or "b0" if it is over sequences alone. */
static inline void shaped_read(const shaped_field *f, unsigned number, char out[SHAPED_TEXT]) {
    char head[40], dims[SHAPED_TEXT];
    snprintf(head, sizeof head, f->group > 1 ? "h / %u" : "h", f->group);
    shaped_dims(f, head, "q", "k", dims);
    snprintf(out, SHAPED_TEXT, *dims ? "b%u[%.150s]" : "b%u", number, dims);
}
#endif
