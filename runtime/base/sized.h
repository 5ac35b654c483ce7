/* sized.h: reads a structure of options that the caller was compiled with in another version of the library.
 *
 * The first member of such a structure is a size_t: its size in the caller's version. An older caller's structure is
 * smaller: the members that it lacks are read as 0, which always means the default. A newer caller's is larger: its
 * further members must be 0, because this library does not know what else they would mean.
 */
#ifndef FCP_BASE_SIZED_H
#define FCP_BASE_SIZED_H
#include "runtime/fcp.h"

/* Copies the structure `given`, whose first member says its size, to `out`, which has `size` bytes; the size member
 * of `out` becomes `size`. If `given` is NULL, all other members are 0. FCP_E_ARGUMENT: the size makes no sense, or
 * a member that this library does not know is not 0; the message has `name`, the name of the type. */
fcp_code fcp_sized_read(void *out, size_t size, const void *given, const char *name, fcp_error *err);
#endif
