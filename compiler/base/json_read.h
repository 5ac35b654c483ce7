/* json_read.h: reads JSON text from memory, value by value, as the caller expects them.
 *
 *     json_reader r = {.at = line, .end = line + size, .begin = line};
 *     json_enter(&r, '{');
 *     while (json_more(&r, '}'))
 *         if (json_key(&r, &key) && !strcmp(key.at, "count")) json_read_u64(&r, &count);
 *     json_finish(&r);
 *     if (r.why) ...                       // what is wrong, at byte r.at - r.begin
 *
 * No tree is made, so an array of a million numbers takes no memory of its own. After the first fault every function
 * does nothing and returns false; so it is enough to look at `why` in the end. */
#ifndef FCPC_BASE_JSON_READ_H
#define FCPC_BASE_JSON_READ_H
#include "compiler/base/text.h"

typedef struct json_reader {
    const char *begin, *at, *end;
    const char *why; /* static; NULL: nothing is wrong */
    bool no_memory;  /* and it is not the text that is */
    bool fresh;      /* nothing has been read yet of what was entered last */
} json_reader;

/* Reads the bracket that begins an object, '{', or an array, '['. */
bool json_enter(json_reader *r, char bracket);
/* Is there another member or element? If so, reads the comma before it; else the bracket `close`. */
bool json_more(json_reader *r, char close);
/* Read a string into *out, in place of what it held, and end it with a NUL. json_key reads the name of a member, and
 * the colon after it. Escapes are resolved. A NUL inside the string is a fault, because no name or path of C can hold
 * one. */
bool json_key(json_reader *r, text *out);
bool json_read_string(json_reader *r, text *out);
/* Read a whole number: no point, no exponent. */
bool json_read_i64(json_reader *r, int64_t *out);
bool json_read_u64(json_reader *r, uint64_t *out);
/* Reads a number: a real if it has a point or an exponent, else a whole number. */
typedef struct json_number {
    bool is_real;
    int64_t whole;
    double real;
} json_number;
bool json_read_number(json_reader *r, json_number *out);
bool json_read_bool(json_reader *r, bool *out);
/* Reads any value, and keeps nothing of it. `room` holds its strings meanwhile, in place of what it held. A value that
 * nests deeper than JSON_SKIP_DEPTH is a fault. */
enum { JSON_SKIP_DEPTH = 64 };
bool json_skip(json_reader *r, text *room);
/* The next byte that is no blank; 0 at the end. */
char json_peek(json_reader *r);
/* Nothing but blanks may follow. */
bool json_finish(json_reader *r);
/* Says what is wrong, unless that has been said, and returns false. */
bool json_fault(json_reader *r, const char *why);
bool json_no_memory(json_reader *r);
#endif
