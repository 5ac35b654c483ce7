/* amount.h: says how many random cases a test runs: few in `make check`, for which everybody waits, and all in `make
 * check-long`.
 *
 * check-long sets CHECK_LONG, and runs the tests whose sources call amount(). How many random cases are drawn depends
 * on it, and how often a case is repeated in another setting. A case that was written down by hand may be left out only
 * if another one shows its features.
 */
#ifndef AMOUNT_H
#define AMOUNT_H
#include <stdlib.h>

static inline unsigned amount(unsigned quick, unsigned all) {
    const char *wanted = getenv("CHECK_LONG");
    return wanted && *wanted ? all : quick;
}
#endif
