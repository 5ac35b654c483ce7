/* bisect.h: binary search. */
#ifndef FCPC_BASE_BISECT_H
#define FCPC_BASE_BISECT_H

/* Finds the first number from `low` to `high` - 1 for which a condition fails. `holds` is an expression of the number
 * i; it holds for all numbers before a certain one, and for none from there on. Afterwards `low` is that number, or
 * the old `high` if the condition never fails. `low` and `high` are variables of one type.
 * Example: with at = 0 and end = count, BISECT(at, end, i, sorted[i] < x) makes `at` the place where x belongs. */
#define BISECT(low, high, i, holds)                                                                                    \
    while ((low) < (high)) {                                                                                           \
        const __typeof__(low) i = (low) + ((high) - (low)) / 2;                                                        \
        if (holds) (low) = i + 1;                                                                                      \
        else (high) = i;                                                                                               \
    }
#endif
