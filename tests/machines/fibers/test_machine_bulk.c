/* test_machine_bulk.c: tests bulk additions on the machine of fibers. CTAs add in turn, and every flaw is reported by
 * name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/machines/fibers/machine.h"
#include "tests/machines/fibers/prim_host.h"

typedef enum flaw {
    NONE,
    NOT_FENCED,       /* what was stored */
    NOT_MET,          /* who stored it */
    LOCK_NOT_FENCED,  /* what was acquired */
    READ_NOT_WAITED,  /* before the place is written again */
    ADDED_NOT_WAITED, /* before the turn is passed on */
    NO_GROUP,
    NOT_ALIGNED
} flaw;

struct sums {
    fk_u64 to; /* four floats, a counter, a lock */
    flaw f;
};

/* In turn 1 a number is added in which the others are lost, and then it is taken away. */
static void add_in_turn(const void *parameters) {
    static const float parts[] = {1, 1 << 25, -(1 << 25)};
    const struct sums *n = parameters;
    const fk_u64 counter = n->to + 16, lock = n->to + 20;
    const fk_u32 place = fk_shared(), ticket = fk_shared() + 16;
    if (fk_thread() == 0) fk_store_shared_bits(ticket, fk_fetch_increment(counter));
    fk_sync();
    const fk_u32 turn = fk_load_shared_bits(ticket);
    if (fk_thread() == 32) {
        for (fk_u32 i = 0; i < 2; i++) fk_store_shared2(place + i * 8, parts[turn], parts[turn]);
        if (n->f != NOT_FENCED) fk_fence_proxy_async();
    }
    if (n->f != NOT_MET) fk_sync();
    if (fk_thread() == 0) {
        fk_acquire(lock, turn);
        if (n->f != LOCK_NOT_FENCED) fk_fence_proxy_async_global();
        fk_bulk_add(n->to + (n->f == NOT_ALIGNED ? 8 : 0), place, 16);
        if (n->f != NO_GROUP) fk_bulk_commit();
        if (n->f != READ_NOT_WAITED) fk_bulk_wait_read();
    }
    fk_sync();
    if (fk_thread() == 33) fk_store_shared2(place, 7, 7);
    if (fk_thread() == 0) {
        if (n->f != ADDED_NOT_WAITED) fk_bulk_wait();
        fk_release(lock, turn + 1);
        fk_bulk_wait();
    }
}

static char text[MACHINE_TEXT];
static bool run(machine *m, flaw f, uint64_t seed, float data[6]) {
    uint32_t owners[4] = {0};
    memset(data, 0, 6 * sizeof *data);
    struct sums n = {.to = (uintptr_t)data, .f = f};
    machine_range ranges[] = {{"data", n.to, n.to + 16, true, owners, true},
                              {"the rest", n.to + 16, n.to + 24, true, NULL, false}};
    machine_launch launch = {.kernel = add_in_turn,
                             .parameters = &n,
                             .blocks = 3,
                             .threads = 64,
                             .shared = 64,
                             .ranges = ranges,
                             .range_count = 2,
                             .seed = seed,
                             .resident = MACHINE_RESIDENT};
    return machine_run(m, &launch, text);
}

Test(machine_bulk, in_turn) {
    _Alignas(16) float data[6];
    machine *m = machine_new();
    cr_assert_not_null(m);
    for (uint64_t seed = 0; seed < 64; seed++) {
        cr_assert(run(m, NONE, seed, data), "%s", text);
        for (int i = 0; i < 4; i++) cr_assert_eq(data[i], 0, "%g", (double)data[i]);
    }
    machine_free(m);
}

Test(machine_bulk, flaws) {
    static const struct {
        flaw f;
        const char *name;
    } flaws[] = {
        {NOT_FENCED, "missing proxy fence: a bulk addition reads shared byte"},
        {NOT_MET, "race: shared byte"},
        {LOCK_NOT_FENCED, "missing proxy fence: a bulk addition after a lock was acquired"},
        {READ_NOT_WAITED, "race: shared byte"},
        {ADDED_NOT_WAITED, "turn: data, byte"},
        {NO_GROUP, "unfinished copy: the thread ends with 1 bulk additions under way"},
        {NOT_ALIGNED, "a bulk addition of 16 bytes"},
    };
    _Alignas(16) float data[6];
    machine *m = machine_new();
    cr_assert_not_null(m);
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        unsigned found = 0;
        for (uint64_t seed = 0; seed < 64; seed++) {
            if (run(m, flaws[i].f, seed, data)) continue;
            cr_expect(!strncmp(text, flaws[i].name, strlen(flaws[i].name)), "%s: %s", flaws[i].name, text);
            found++;
        }
        cr_expect(found, "%s: not found", flaws[i].name);
        fprintf(stderr, "%s: in %u of 64 orders\n", flaws[i].name, found);
    }
    machine_free(m);
}
