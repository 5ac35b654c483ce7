/* stop.c: one question, alone in its file, so that a program may link another answer. */
#include "runtime/base/stop.h"

#include <stddef.h>

bool fcp_stop_asked(const volatile int *stop) { return stop != NULL && *stop != 0; }
