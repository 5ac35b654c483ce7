/* carve.h: several arrays of one allocation, for what begins and ends together.
 *
 * Where a plan is small, asking for memory a dozen times costs more than what is done with it.
 */
#ifndef FCP_BASE_CARVE_H
#define FCP_BASE_CARVE_H
#include <stddef.h>

typedef struct fcp_carved {
    void *pointer; /* the address of a pointer, which is set to the array */
    size_t count, size;
} fcp_carved;

/* Makes the arrays, all 0. Returns what the caller frees to free all of them, or NULL where there is no memory: then
 * the pointers are as before. Under the address sanitizer nobody may touch what lies between two arrays. */
void *fcp_carve(const fcp_carved *arrays, size_t count);
#define FCP_CARVE(arrays) fcp_carve(arrays, sizeof(arrays) / sizeof *(arrays))
#endif
