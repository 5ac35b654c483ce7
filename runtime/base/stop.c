/* stop.c: fcp_stop_asked (stop.h), alone in its file, so that a test may link another one in its place. */
#include "runtime/base/stop.h"

#include <stddef.h>

bool fcp_stop_asked(const volatile int *stop) { return stop != NULL && *stop != 0; }
