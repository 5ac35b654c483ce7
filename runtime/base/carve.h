/* carve.h: allocates several arrays with one call, for arrays that begin and end together.
 *
 * For a small plan a dozen calls of malloc would cost more than the work that is done in the arrays.
 */
#ifndef FCP_BASE_CARVE_H
#define FCP_BASE_CARVE_H
#include <stddef.h>

typedef struct fcp_carved {
    void *pointer; /* the address of a pointer, which is set to the array */
    size_t count, size;
} fcp_carved;

/* Makes the arrays, all 0. Returns the one pointer that the caller frees, or NULL if memory has run out: then no
 * pointer has been set. Under the address sanitizer the gaps between the arrays are poisoned. */
void *fcp_carve(const fcp_carved *arrays, size_t count);
#define FCP_CARVE(arrays) fcp_carve(arrays, sizeof(arrays) / sizeof *(arrays))
#endif
