/* test_order.c: tests sorting by value, binary search, union-find, the heap and the square root, each against its
 * definition. */
#include <criterion/criterion.h>

#include "compiler/base/bisect.h"
#include "compiler/base/heap.h"
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "compiler/base/union_find.h"

enum { MOST = 300 };

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * UINT64_C(6364136223846793005) + 1;
    return (*state >> 33) % below;
}

/* Of falling and rising values equal ones stay in order; large ones are compared by their upper 32 bits. */
Test(order, by_value) {
    uint64_t state = 1, values[MOST], rising[MOST], falling[MOST], scratch[MOST];
    for (int trial = 0; trial < 200; trial++) {
        const unsigned shift = trial % 4 == 3 ? 31 : 0; /* then values have up to 36 bits, and the lower ones are 0 */
        const size_t n = draw(&state, MOST);
        for (size_t i = 0; i < n; i++) values[i] = rising[i] = falling[i] = draw(&state, 30) << shift;
        order_rising(rising, scratch, n);
        order_falling(falling, scratch, n);
        for (size_t i = 1; i < n; i++) {
            const uint64_t a = rising[i - 1], b = rising[i], c = falling[i - 1], d = falling[i];
            cr_assert(values[a] < values[b] || (values[a] == values[b] && a < b), "trial %d, place %zu", trial, i);
            cr_assert(values[c] > values[d] || (values[c] == values[d] && c < d), "trial %d, place %zu", trial, i);
        }
    }
}

Test(order, bisect_finds_the_first_that_fails) {
    for (uint32_t n = 0; n < 20; n++)
        for (uint32_t first = 0; first <= n; first++) {
            uint32_t low = 0, high = n;
            BISECT(low, high, i, i < first)
            cr_assert_eq(low, first);
        }
}

/* After random joins two numbers have one representative exactly if a walk over the joined pairs leads from one to the
 * other. The representative is the least of its set, and sets are numbered by it. */
Test(order, sets) {
    enum { N = 24 };
    uint64_t state = 2;
    for (int trial = 0; trial < 100; trial++) {
        uint32_t parent[N], least[N], set[N], sets = 0;
        for (uint32_t i = 0; i < N; i++) parent[i] = least[i] = i;
        for (uint64_t joins = draw(&state, N); joins-- > 0;) {
            const uint32_t a = (uint32_t)draw(&state, N), b = (uint32_t)draw(&state, N), x = least[a], y = least[b];
            union_join(parent, a, b);
            for (uint32_t i = 0; i < N; i++)
                if (least[i] == x || least[i] == y) least[i] = x < y ? x : y;
        }
        for (uint32_t i = 0; i < N; i++) cr_assert_eq(union_find(parent, i), least[i]);
        const uint32_t count = union_number(parent, N, set);
        for (uint32_t i = 0; i < N; i++) cr_assert_eq(set[i], least[i] == i ? sets++ : set[least[i]]);
        cr_assert_eq(count, sets);
    }
}

/* Entries leave by rising key, and of equal keys by rising value, also when the first is replaced. */
Test(order, heap) {
    uint64_t state = 3;
    for (int trial = 0; trial < 100; trial++) {
        heap_entry heap[MOST], last = {0, 0};
        const uint32_t n = 1 + (uint32_t)draw(&state, MOST);
        for (uint32_t i = 0; i < n; i++) heap_push(heap, i, (heap_entry){draw(&state, 40), i});
        for (uint32_t left = n, replaced = 0; left > 0;) {
            const heap_entry top = heap[0];
            cr_assert(!heap_before(&top, &last), "trial %d, %u left", trial, left);
            last = top;
            if (replaced++ < 20) heap_replace(heap, left, (heap_entry){top.key + draw(&state, 9), MOST + replaced});
            else left--, heap_replace(heap, left, heap[left]);
        }
    }
}

Test(order, square_root_is_rounded_down) {
    uint64_t state = 4;
    for (unsigned bits = 0; bits < 64; bits++)
        for (int i = 0; i < 50; i++) {
            const uint64_t r =
                (UINT64_C(1) << bits) - 1 + (i ? draw(&state, (uint64_t)1 << (bits < 31 ? bits : 31)) : 0);
            const unsigned __int128 square = (unsigned __int128)r * r;
            cr_assert_eq(square_root(square), r);
            cr_assert_eq(square_root(square + 2 * (unsigned __int128)r), r);
            if (r) cr_assert_eq(square_root(square - 1), r - 1);
        }
}
