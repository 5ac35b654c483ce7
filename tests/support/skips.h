/* skips.h: for tests that have parts which a machine may lack something for: what is left out is said, in the line that
 * .ci/check.sh prints of the runner. */
#ifndef SKIPS_H
#define SKIPS_H
#include <stdio.h>
#define SKIPPED(...) (fprintf(stderr, "\nskipped: " __VA_ARGS__), fputc('\n', stderr))
#endif
