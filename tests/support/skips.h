/* skips.h: lets a test say that it leaves a part out because the machine lacks something. .ci/check.sh repeats it. */
#ifndef SKIPS_H
#define SKIPS_H
#include <stdio.h>
#define SKIPPED(...) (fprintf(stderr, "\nskipped: " __VA_ARGS__), fputc('\n', stderr))
#endif
