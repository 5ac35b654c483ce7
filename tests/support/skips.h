/* skips.h: lets a test report that it skips a part because the machine lacks something. .ci/check.sh prints all such
 * reports. */
#ifndef SKIPS_H
#define SKIPS_H
#include <stdio.h>
#define SKIPPED(...) (fprintf(stderr, "\nskipped: " __VA_ARGS__), fputc('\n', stderr))
#endif
