/* same.h: what is asked of two declarations of one thing, ours and its vendor's. What differs does not compile. */
#ifndef HEADERS_SAME_H
#define HEADERS_SAME_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SAME_NUMBER(ours, theirs)                                                                                      \
    _Static_assert((long long)(ours) == (long long)(theirs), "the value of " #ours " is not that of " #theirs)

/* A number that the header makes a pointer of, which no compiler has to know while it compiles. */
#define SAME_HANDLE(wrong, ours, theirs)                                                                               \
    do                                                                                                                 \
        if ((uintptr_t)(ours) != (uintptr_t)(theirs)) {                                                                \
            fprintf(stderr, "the value of %s is not that of %s\n", #ours, #theirs);                                    \
            (wrong)++;                                                                                                 \
        }                                                                                                              \
    while (0)

/* Passed the same way: as many bytes, at as many, in the same registers (integers and enumerations, pointers,
 * structures). */
#define CLASS(type) __builtin_classify_type(*(type *)NULL)
#define SAME_TYPE(ours, theirs)                                                                                        \
    _Static_assert(sizeof(ours) == sizeof(theirs), #ours " is not as long as " #theirs);                               \
    _Static_assert(_Alignof(ours) == _Alignof(theirs), #ours " does not begin where " #theirs " does");                \
    _Static_assert(CLASS(ours) == CLASS(theirs), #ours " is not of the kind of " #theirs)
/* A structure that its vendor reads and writes. */
#define SAME_LAYOUT(ours, theirs)                                                                                      \
    _Static_assert(sizeof(ours) == sizeof(theirs), #ours " is not as long as " #theirs);                               \
    _Static_assert(_Alignof(ours) >= _Alignof(theirs), #ours " does not begin where " #theirs " does")
#define SAME_FIELD(ours, our_field, theirs, their_field)                                                               \
    _Static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field), "place of " #ours "." #our_field);      \
    _Static_assert(sizeof(((ours *)NULL)->our_field) == sizeof(((theirs *)NULL)->their_field),                         \
                   "length of " #ours "." #our_field)

/* Both are for lists of symbols. SAME_FUNCTION compiles only if our function pointer can point to the header's
 * function. ASKED_NAME notes two names of a function: the one in our list, and the symbol that the header's macros make
 * of it (cuMemAlloc becomes cuMemAlloc_v2). same_names() says where they differ. */
#define SAME_FUNCTION(name, type)                                                                                      \
    static inline __attribute__((unused)) void same_##name(void) {                                                     \
        const struct {                                                                                                 \
            type;                                                                                                      \
        } ours = {name};                                                                                               \
        (void)ours;                                                                                                    \
    }

typedef struct asked_name {
    const char *ours, *theirs;
} asked_name;
#define TEXT_OF(x) TEXT_OF_(x)
#define TEXT_OF_(x) #x
#define ASKED_NAME(name, type) {#name, TEXT_OF(name)},

/* Prints a list, "KIND SYMBOL", for those who look symbols up elsewhere; the number of those that the header calls
 * otherwise. */
static inline int same_names(const char *kind, const asked_name *all, size_t count) {
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        printf("%s %s\n", kind, all[i].ours);
        if (strcmp(all[i].ours, all[i].theirs) == 0) continue;
        fprintf(stderr, "%s is what the header calls %s\n", all[i].ours, all[i].theirs);
        wrong++;
    }
    return wrong;
}
#endif
