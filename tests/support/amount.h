/* amount.h: how much a test draws: little in `make check`, which everybody waits for, and all of it in `make
 * check-long`.
 *
 * check-long sets CHECK_LONG, and runs the tests whose sources call amount(). Cases that were written down by hand
 * always run; only how many random ones are drawn, or how often a case is repeated in another setting, depends on it.
 */
#ifndef AMOUNT_H
#define AMOUNT_H
#include <stdlib.h>

static inline unsigned amount(unsigned quick, unsigned all) {
    const char *wanted = getenv("CHECK_LONG");
    return wanted && *wanted ? all : quick;
}
#endif
