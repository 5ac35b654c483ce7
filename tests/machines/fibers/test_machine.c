/* test_machine.c: tests of the machine of fibers itself. A kernel that does something wrong must end with a message
 * that says what and where. Products must be those of the matrices that the layouts of fragments describe.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "tests/support/plain.h"
#include "tests/machines/fibers/machine.h"
#include "tests/machines/fibers/prim_host.h"

struct numbers {
    uint64_t a, b;
    float out[256];
};

static char text[MACHINE_TEXT];

static bool run(void (*kernel)(const void *), const void *parameters, uint32_t blocks, uint32_t threads,
                const machine_range *ranges, uint32_t range_count, uint64_t seed) {
    machine *m = machine_new();
    cr_assert_not_null(m);
    machine_launch launch = {.kernel = kernel,
                             .parameters = parameters,
                             .blocks = blocks,
                             .threads = threads,
                             .shared = 4096,
                             .ranges = ranges,
                             .range_count = range_count,
                             .seed = seed};
    bool ok = machine_run(m, &launch, text);
    machine_free(m);
    return ok;
}

/* The kernel fails in the way that begins with `what`, at this file, whatever the seed. */
static void must_fail(void (*kernel)(const void *), const void *parameters, uint32_t blocks,
                      const machine_range *ranges, uint32_t range_count, const char *what) {
    for (uint64_t seed = 0; seed < 8; seed++) {
        cr_assert(!run(kernel, parameters, blocks, 64, ranges, range_count, seed), "%s was not seen", what);
        cr_assert(strncmp(text, what, strlen(what)) == 0 && strstr(text, "test_machine.c:"), "%s: %s", what, text);
    }
}

static fk_u32 word(fk_u32 i) { return fk_shared() + i * 8; }

/* --- shared memory ------------------------------------------------------------------------------------------------ */

static void reads_what_others_wrote(const void *p) {
    (void)p;
    float x[2];
    if (fk_thread() == 5) {
        fk_store_shared(word(0), 1);
        fk_store_shared(word(0) + 4, 1);
    }
    if (fk_thread() != 5) fk_load_shared2(x, word(0));
    fk_sync();
    if (fk_thread() == 5) fk_store_shared(word(0), 2);
}
static void writes_what_others_read(const void *p) {
    (void)p;
    float x[2];
    if (fk_thread() < 2) fk_load_shared2(x, word(0));
    if (fk_thread() == 1) fk_store_shared(word(0), 1);
}
static void writes_what_others_wrote(const void *p) {
    (void)p;
    if (fk_thread() % 32 == 0) fk_store_shared(word(0), 1);
}
static void reads_beyond_shared(const void *p) {
    (void)p;
    float x[2];
    fk_load_shared2(x, fk_shared() + 4096 - 4 * (fk_thread() != 3) - 4);
}
static void reads_before_shared(const void *p) {
    (void)p;
    float x[2];
    if (fk_thread() == 7) fk_load_shared2(x, fk_shared() - 8);
}

Test(machine, shared_memory) {
    must_fail(reads_what_others_wrote, NULL, 1, NULL, 0, "race: shared byte 0 is");
    must_fail(writes_what_others_read, NULL, 1, NULL, 0, "race: shared byte 0 is written");
    must_fail(writes_what_others_wrote, NULL, 1, NULL, 0, "race: shared byte 0 is written");
    must_fail(reads_beyond_shared, NULL, 1, NULL, 0, "out of bounds: shared");
    must_fail(reads_before_shared, NULL, 1, NULL, 0, "out of bounds: shared byte -8 of 4096");
}

/* --- copies ------------------------------------------------------------------------------------------------------- */

static void does_not_wait(const void *p) {
    const struct numbers *n = p;
    float x[2];
    if (fk_thread()) return;
    fk_cp_async(fk_shared(), n->a, 16);
    fk_load_shared2(x, fk_shared());
    fk_cp_async_wait();
}
static void ends_too_early(const void *p) {
    const struct numbers *n = p;
    if (fk_thread() == 0) fk_cp_async(fk_shared(), n->a, 16);
}
static void waits_for_itself_alone(const void *p) {
    const struct numbers *n = p;
    float x[2];
    fk_cp_async(fk_shared() + fk_thread() * 16, n->a, 16);
    fk_cp_async_wait();
    fk_load_shared2(x, fk_shared() + (fk_thread() ^ 1) * 16);
}
static void copies_over_what_is_read(const void *p) {
    const struct numbers *n = p;
    float x[2];
    if (fk_thread() == 9) fk_load_shared2(x, fk_shared());
    if (fk_thread() == 40) fk_cp_async(fk_shared(), n->a, 16);
    fk_cp_async_wait();
    if (fk_thread() == 9) fk_load_shared2(x, fk_shared());
}
static void copies_and_reads(const void *p) {
    struct numbers *n = (struct numbers *)p;
    float x[2];
    fk_u32 t = fk_thread();
    fk_cp_async(fk_shared() + t * 16, t == 63 ? 0 : n->a + t % 4 * 16, t == 63 ? 0 : 16);
    fk_cp_async_wait();
    fk_sync();
    fk_load_shared2(x, fk_shared() + (63 - t) * 16);
    n->out[t] = x[1];
}

Test(machine, copies) {
    static const _Alignas(16) float data[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    struct numbers n = {.a = (uintptr_t)data};
    machine_range range = {"data", n.a, n.a + sizeof data, false, NULL, false};
    must_fail(does_not_wait, &n, 1, &range, 1, "unfinished copy: shared byte 0 is read");
    must_fail(ends_too_early, &n, 1, &range, 1, "unfinished copy: the thread ends");
    must_fail(waits_for_itself_alone, &n, 1, &range, 1, "race: shared byte");
    must_fail(copies_over_what_is_read, &n, 1, &range, 1, "");
    cr_assert(run(copies_and_reads, &n, 1, 64, &range, 1, 3), "%s", text);
    for (uint32_t t = 0; t < 64; t++) cr_assert(n.out[t] == (t == 0 ? 0.0f : (float)((63 - t) % 4 * 4 + 1)));
    range.end -= 32;
    must_fail(waits_for_itself_alone, &n, 1, &range, 0, "out of bounds: global");
}

/* --- global memory ------------------------------------------------------------------------------------------------ */

static void writes_one_word(const void *p) { fk_store(((const struct numbers *)p)->a, 1); }
static void reads_one_writes_one(const void *p) {
    const struct numbers *n = p;
    if (fk_thread()) return;
    fk_store(n->a + fk_cta() * 4, fk_load(n->a + (fk_cta() + 1) % fk_ctas() * 4));
}
static void writes_its_own(const void *p) {
    const struct numbers *n = p;
    fk_store(n->a + (fk_cta() * 64 + fk_thread()) * 4, (float)fk_cta());
}
static void misaligned(const void *p) {
    float x[2];
    fk_load2(x, ((const struct numbers *)p)->a + 4);
}

Test(machine, global_memory) {
    _Alignas(16) float data[256] = {0};
    uint32_t owners[256] = {0};
    struct numbers n = {.a = (uintptr_t)data};
    machine_range range = {"data", n.a, n.a + sizeof data, false, NULL, false};
    must_fail(writes_one_word, &n, 1, &range, 1, "out of bounds: data is written, at byte 0");
    must_fail(misaligned, &n, 1, &range, 1, "out of bounds: global address");
    range.writable = true;
    range.owners = owners;
    for (int i = 0; i < 2; i++) { /* two blocks that share a word, either way */
        memset(owners, 0, sizeof owners);
        cr_assert(!run(i ? reads_one_writes_one : writes_one_word, &n, 3, 64, &range, 1, 1));
        cr_assert(strncmp(text, "owner: data, byte", 17) == 0, "%s", text);
    }
    memset(owners, 0, sizeof owners);
    cr_assert(run(writes_its_own, &n, 4, 64, &range, 1, 1), "%s", text);
    for (int i = 0; i < 256; i++) cr_assert(data[i] == (float)(i / 64));
}

static void adds(const void *p) {
    const struct numbers *n = p;
    fk_add_global2(n->a + fk_thread() % 2 * 8, (float)(1 << fk_thread() % 8), 1e-3f * (float)(1 + fk_thread()));
}
static void adds_and_reads(const void *p) {
    const struct numbers *n = p;
    if (fk_thread()) return;
    if (fk_cta() == 1) fk_load(n->a + 4);
    else fk_add_global2(n->a, 1, 1);
}
static void adds_and_writes(const void *p) {
    const struct numbers *n = p;
    if (fk_thread() || fk_cta()) return;
    fk_store(n->a, 1);
    fk_add_global2(n->a, 1, 1);
}
static void adds_between(const void *p) { fk_add_global2(((const struct numbers *)p)->a + 4, 1, 1); }

/* A word to which blocks add holds the sum when all have ended. The seed draws the order, and nobody may look
 * before. */
Test(machine, additions) {
    _Alignas(16) float data[4], first[4];
    uint32_t owners[4], differ = 0;
    struct numbers n = {.a = (uintptr_t)data};
    machine_range range = {"data", n.a, n.a + sizeof data, true, owners, false};
    for (uint64_t seed = 0; seed < 8; seed++) {
        for (int i = 0; i < 4; i++) data[i] = (float)i, owners[i] = 0;
        cr_assert(run(adds, &n, 70, 64, &range, 1, seed), "%s", text);
        for (int odd = 0; odd < 2; odd++) {
            double whole = 2 * odd, small = 1 + 2 * odd;
            for (int t = odd; t < 64; t += 2) whole += 70.0 * (1 << t % 8), small += 70 * 1e-3 * (1 + t);
            cr_assert((double)data[2 * odd] == whole, "%g, not %g", (double)data[2 * odd], whole);
            cr_assert(fabs((double)data[2 * odd + 1] - small) < 1e-2 * small, "%g, not %g", (double)data[2 * odd + 1],
                      small);
        }
        if (seed == 0) memcpy(first, data, sizeof data);
        differ += memcmp(first, data, sizeof data) != 0;
    }
    cr_assert(differ, "every order gave the same bits");
    for (int i = 0; i < 2; i++) { /* the words are also used otherwise, whoever comes first */
        memset(owners, 0, sizeof owners);
        cr_assert(!run(i ? adds_and_writes : adds_and_reads, &n, 3, 64, &range, 1, 1));
        cr_assert(strncmp(text, "owner: data, byte", 17) == 0 && strstr(text, i ? "block 0 wrote it" : "it"), "%s",
                  text);
    }
    must_fail(adds_between, &n, 1, &range, 1, "out of bounds: global address");
    range.writable = false;
    must_fail(adds, &n, 1, &range, 1, "out of bounds: data is written");
}

/* In turn 1 a number is added in which the others are lost, and then it is taken away. Each block takes the next
 * turn. */
static void add_in_turn(const struct numbers *n, bool meet) {
    static const float parts[] = {1, 1 << 25, -(1 << 25)};
    fk_u64 counter = n->a + 16, lock = n->a + 20;
    if (fk_thread() == 0) fk_store_shared_bits(word(0), fk_fetch_increment(counter));
    fk_sync();
    fk_u32 turn = fk_load_shared_bits(word(0));
    if (fk_thread() == 0) fk_acquire(lock, turn);
    fk_sync();
    if (fk_thread() == 33) fk_add_global2(n->a, parts[turn], parts[turn]);
    if (meet) fk_sync();
    if (fk_thread() == 0) fk_release(lock, turn + 1);
    if (fk_thread() == 0) fk_add_global2(n->a + 8, 1, 1); /* of no turn */
}
static void adds_in_turn(const void *p) { add_in_turn(p, true); }
static void adds_out_of_turn(const void *p) { add_in_turn(p, false); }

/* What is added before a release is there for those who waited for it, if a barrier stands between. */
Test(machine, additions_in_turn) {
    unsigned wrong = 0;
    for (uint64_t seed = 0; seed < 32; seed++)
        for (int meet = 0; meet < 2; meet++) {
            _Alignas(16) float data[6] = {0};
            struct numbers n = {.a = (uintptr_t)data};
            machine_range range = {"data", n.a, n.a + sizeof data, true, NULL, false};
            cr_assert(run(meet ? adds_in_turn : adds_out_of_turn, &n, 3, 64, &range, 1, seed), "%s", text);
            if (meet)
                cr_assert(data[0] == 0 && data[1] == 0 && data[2] == 3 && data[3] == 3, "%g, %g", (double)data[0],
                          (double)data[1]);
            else wrong += data[0] != 0;
        }
    cr_assert(wrong, "nothing came out of turn");
}

static void adds_without_turn(const void *p) {
    const struct numbers *n = p;
    if (fk_thread() == 0) fk_acquire(n->a + 20, 0); /* nobody has released that */
    if (fk_thread() == 0) fk_add_global2(n->a, 1, 1);
}
/* A turn at one lock says nothing of what another lock is for. */
static void adds_in_another_turn(const void *p) {
    const struct numbers *n = p;
    fk_u64 lock = n->a + 24 + fk_cta() * 4;
    if (fk_thread()) return;
    fk_acquire(lock, 0);
    fk_add_global2(n->a, 1, 1);
    fk_release(lock, 1);
}

/* Blocks may hand memory on to each other in an order that locks make. Whatever else they do with it is an error with a
 * name. */
Test(machine, handed_on) {
    _Alignas(16) float data[10];
    uint32_t owners[2];
    struct numbers n = {.a = (uintptr_t)data};
    machine_range ranges[] = {{"data", n.a, n.a + 8, true, owners, true},
                              {"the rest", n.a + 8, n.a + sizeof data, true, NULL, false}};
    void (*const wrong[])(const void *) = {adds_without_turn, adds_in_another_turn};
    for (uint64_t seed = 0; seed < 32; seed++)
        for (int i = -1; i < 2; i++) {
            memset(data, 0, sizeof data);
            memset(owners, 0, sizeof owners);
            bool good = run(i < 0 ? adds_in_turn : wrong[i], &n, 3, 64, ranges, 2, seed);
            cr_assert(good == (i < 0), "%s", text);
            cr_assert(good || strncmp(text, "turn: data, byte 0, is added to, and nothing orders that behind block",
                                      69) == 0,
                      "%s", text);
        }
}

/* --- meeting ------------------------------------------------------------------------------------------------------ */

static void lanes_apart(const void *p) {
    (void)p;
    if (fk_thread() % 32 < 16) fk_shuffle_xor(1, 1);
    else fk_shuffle_xor(2, 1);
}
static void lane_missing(const void *p) {
    (void)p;
    if (fk_thread() != 33) fk_shuffle_xor(1, 1);
}
static void warps_apart(const void *p) {
    (void)p;
    if (fk_thread() < 32) fk_sync();
    else fk_sync();
}
static void thread_missing(const void *p) {
    (void)p;
    if (fk_thread() != 63) fk_sync();
}

Test(machine, meeting) {
    must_fail(lanes_apart, NULL, 1, NULL, 0, "divergence: other lanes of the warp are at line");
    must_fail(lane_missing, NULL, 1, NULL, 0, "deadlock: of 64 threads 33 have ended, 31 wait for their warp, 0");
    must_fail(warps_apart, NULL, 1, NULL, 0, "divergence: a fk_sync while others are at line");
    must_fail(thread_missing, NULL, 1, NULL, 0, "deadlock: of 64 threads 1 have ended, 0 wait for their warp, 63");
}

/* --- what it computes --------------------------------------------------------------------------------------------- */

static void untouched(const void *p) {
    struct numbers *n = (struct numbers *)p;
    fk_load_shared2(n->out + fk_thread() * 2, word(fk_thread()));
}

/* Who of a warp has something, by its number. */
static void any(const void *p) {
    struct numbers *n = (struct numbers *)p;
    n->out[fk_thread()] = (float)fk_any(fk_thread() == n->a ? 1u << 31 : 0);
}
static void any_missing(const void *p) {
    (void)p;
    if (fk_thread() != 33) fk_any(1);
}
Test(machine, any) {
    static struct numbers n;
    for (n.a = 0; n.a <= 64; n.a += 13) {
        cr_assert(run(any, &n, 1, 64, NULL, 0, n.a), "%s", text);
        for (uint64_t i = 0; i < 64; i++) cr_assert(n.out[i] == (i / 32 == n.a / 32), "%lu of %lu", i, n.a);
    }
    must_fail(any_missing, NULL, 1, NULL, 0, "deadlock: of 64 threads 33 have ended, 31 wait for their warp, 0");
}

static const float large[] = {-INFINITY, -3.4e38f, -1, -1e-45f, -0.0f, 0, 1e-45f, 2, 3.4e38f, INFINITY};
enum { LARGE = sizeof large / sizeof *large };
/* All blocks tell the first numbers, `b` of them. */
static void largest(const void *p) {
    const struct numbers *n = p;
    if (fk_thread() < n->b) fk_max_global(n->a, large[(fk_cta() + fk_thread()) % (n->b)]);
}
Test(machine, largest) {
    for (uint32_t count = 1; count <= LARGE; count++) {
        float is = -INFINITY;
        const struct numbers n = {.a = (uintptr_t)&is, .b = count};
        uint32_t owner = 0;
        const machine_range range = {"the largest", n.a, n.a + 4, true, &owner};
        cr_assert(run(largest, &n, 3, 64, &range, 1, count), "%s", text);
        cr_assert(memcmp(&is, &large[count - 1], 4) == 0, "%g, not %g", (double)is, (double)large[count - 1]);
    }
}

/* C = A B^T, A 16 x 16 in rows of 16, B 8 x 16 likewise, twice: B by rows, and its transpose by columns. */
static void product(const void *p) {
    struct numbers *n = (struct numbers *)p;
    fk_u32 lane = fk_thread(), a[4], b[4], columns[4];
    for (fk_u32 i = lane; i < 64; i += 32) fk_cp_async(fk_shared() + i * 16, (i < 32 ? n->a : n->b - 512) + i * 16, 16);
    fk_cp_async_wait();
    fk_sync();
    fk_u32 b_rows = fk_shared() + 512, b_columns = fk_shared() + 768;
    fk_ldmatrix(a, fk_shared() + lane % 16 * 32 + lane / 16 * 16);
    fk_ldmatrix(b, b_rows + lane % 8 * 32 + lane / 8 % 2 * 16);
    fk_ldmatrix_trans(columns, b_columns + lane % 16 * 16);
    float c[4] = {0}, d[4] = {0};
    fk_mma_bf16(c, a, b[0], b[1]);
    fk_mma_bf16(d, a, columns[0], columns[1]);
    for (fk_u32 i = 0; i < 4; i++) {
        fk_u32 at = (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2;
        n->out[at] = c[i];
        n->out[128 + at] = d[i];
    }
}

Test(machine, products) {
    static struct numbers n;
    cr_assert(run(untouched, &n, 1, 64, NULL, 0, 1), "%s", text);
    for (int i = 0; i < 128; i++) cr_assert(isnan(n.out[i]));
    _Alignas(16) uint16_t a[16][16], b[512 / 2];
    float x[16][16], y[8][16];
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++) {
            x[i][k] = (float)((i * 7 + k * 3) % 11 - 5);
            a[i][k] = fcp_float_bf16(x[i][k]);
        }
    for (int j = 0; j < 8; j++)
        for (int k = 0; k < 16; k++) {
            y[j][k] = (float)((j * 5 + k * 2) % 13 - 6);
            b[j * 16 + k] = b[128 + k * 8 + j] = fcp_float_bf16(y[j][k]);
        }
    n.a = (uintptr_t)a, n.b = (uintptr_t)b;
    machine_range ranges[] = {{"a", n.a, n.a + sizeof a, false, NULL}, {"b", n.b, n.b + sizeof b, false, NULL}};
    cr_assert(run(product, &n, 1, 32, ranges, 2, 1), "%s", text);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float sum = 0;
            for (int k = 0; k < 16; k++) sum += x[i][k] * y[j][k];
            cr_assert(n.out[i * 8 + j] == sum && n.out[128 + i * 8 + j] == sum, "%d %d: %g %g %g", i, j, (double)sum,
                      (double)n.out[i * 8 + j], (double)n.out[128 + i * 8 + j]);
        }
}
