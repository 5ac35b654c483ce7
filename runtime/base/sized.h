/* sized.h: structures of options that may grow: their first member is a size_t, the size that the caller was compiled
 * with.
 *
 * An older caller's structure is smaller: the members that it lacks are read as 0, which always means the default. A
 * newer caller's is larger: its further members must be 0, since nobody here knows what else they would mean.
 */
#ifndef FCP_BASE_SIZED_H
#define FCP_BASE_SIZED_H
#include "runtime/fcp.h"

/* Copies the structure `given`, of the size that its first member says, to `out`, which has `size` bytes; its size
 * member is then `size`. `given` NULL: zeros. FCP_E_ARGUMENT: the size is 0 or senseless, or it has members that are
 * not known here; `name`, of the type, is in the message. */
fcp_code fcp_sized_read(void *out, size_t size, const void *given, const char *name, fcp_error *err);
#endif
