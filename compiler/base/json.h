/* json.h: writes JSON text into memory. A failed allocation is remembered, and json_text reports it at the end. */
#ifndef FCPC_BASE_JSON_H
#define FCPC_BASE_JSON_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler/base/text.h"

enum { JSON_MAX_DEPTH = 16 };

/* Zero-initialised: `json j = {0};` End with json_free. */
typedef struct json {
    text out;
    uint32_t depth;
    bool filled[JSON_MAX_DEPTH]; /* for each open object or array: has it a member already? */
    char close[JSON_MAX_DEPTH];
    bool wrong; /* nested too deep, or json_end without an open object */
} json;

/* `key` is the name of a member of an object; it is NULL inside an array and for the outermost value. */
void json_object(json *j, const char *key);
void json_array(json *j, const char *key);
void json_end(json *j); /* closes the innermost object or array */
void json_u64(json *j, const char *key, uint64_t value);
void json_i64(json *j, const char *key, int64_t value);
void json_double(json *j, const char *key, double value); /* null unless finite */
void json_bool(json *j, const char *key, bool value);
void json_null(json *j, const char *key);
/* Bytes that are not UTF-8 become U+FFFD; the string NULL becomes null. */
void json_string(json *j, const char *key, const char *string);

/* The text, NUL-terminated, owned by `j`; NULL when out of memory or nested beyond JSON_MAX_DEPTH. */
const char *json_text(json *j);
void json_free(json *j);
/* The same as text_hand_over, for a value that is complete. */
fcp_code json_hand_over(json *j, fcp_code code, char **out_text, fcp_error *err);
#endif
