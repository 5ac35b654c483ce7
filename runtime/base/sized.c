/* sized.c: reads a structure of options that may be of another version. */
#include "runtime/base/sized.h"

#include <string.h>

enum { SENSELESS = 1 << 16 }; /* more bytes than any structure of options will have */

fcp_code fcp_sized_read(void *out, size_t size, const void *given, const char *name, fcp_error *err) {
    size_t theirs = size;
    memset(out, 0, size);
    if (given) {
        memcpy(&theirs, given, sizeof theirs);
        if (theirs < sizeof theirs || theirs > SENSELESS)
            return fcp_fail(err, FCP_E_ARGUMENT, "%s.size is %zu: set it to sizeof(%s)", name, theirs, name);
        for (size_t i = size; i < theirs; i++)
            if (((const char *)given)[i])
                return fcp_fail(err, FCP_E_ARGUMENT,
                                "%s has %zu bytes, and what follows the %zu that this library knows is not 0: it is "
                                "older than the header that was compiled against", name, theirs, size);
        memcpy(out, given, theirs < size ? theirs : size);
    }
    memcpy(out, &size, sizeof size);
    return FCP_OK;
}
