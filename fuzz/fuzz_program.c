/* fuzz_program.c: draws a program from the bytes, plans it, and sometimes runs it.
 *
 * Oracle: tests/oracle/judge.h: the plan has exactly the pairs that brute force finds; it verifies, is the same after
 *         being saved and loaded, and computes attention.
 * Input:  the first byte says how much is drawn (LARGE); the others are dice, so every input is a valid program.
 */
#include "tests/oracle/judge.h"

/* The fuzzer leaves out what takes long; a replay leaves out nothing.
 *   LARGE   a bit of the first byte that asks for longer sequences. The fuzzer skips such inputs; a replay does those
 *           in fuzz/corpus/program-large.
 *   RUN     the fuzzer runs one program in RUN, because a session starts threads and costs as much as sixty programs
 *   AUTO    one program in AUTO leaves its strategy to auto, which plans a program some forty times
 *   CHOOSE  of those programs the fuzzer plans one in CHOOSE
 *   SEEN    the fuzzer remembers so many programs, and plans none of them twice */
enum { LARGE = 0x80, RUN = 1024, AUTO = 32, CHOOSE = 32, SEEN = 1 << 18 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
    __attribute__((weak)); /* NULL in a replay */

static uint64_t hash_of(const void *bytes, size_t size) {
    const uint8_t *at = bytes, *end = at + size;
    uint64_t hash = UINT64_C(0xcbf29ce484222325), word;
    for (; (size_t)(end - at) >= sizeof word; at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0xff51afd7ed558ccd);
        hash ^= hash >> 32;
    }
    while (at < end) hash = (hash ^ *at++) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* Has this program been drawn before? A fifth of all mutations leaves it as it was, because dice have fewer sides than
 * a byte has values. The same input twice is no mutation: the fuzzer then looks for a leak. */
static bool drawn_before(uint64_t program, uint64_t input) {
    static uint64_t seen[SEEN], last;
    uint64_t *place = &seen[program % SEEN];
    const bool known = *place == program && input != last;
    *place = program;
    last = input;
    return known;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || (data[0] & LARGE && LLVMFuzzerMutate)) return 0;
    static random_program room; /* megabytes, which every input would otherwise ask for anew */
    random_program *p = &room;
    const bool large = data[0] & LARGE;
    dice d = {.bytes = data + 1, .size = size - 1};
    draw_program_with(p, &d, large ? 20000 : 800, DRAW_ALL);
    draw_auto(p, &d, AUTO);
    const uint64_t hash = hash_of(p->text, p->size);
    if (LLVMFuzzerMutate && drawn_before(hash, hash_of(data, size))) return 0;
    if (LLVMFuzzerMutate && p->among && hash / SEEN % CHOOSE) return 0;
    const bool run = large ? data[0] & 1 : !LLVMFuzzerMutate || hash / SEEN % RUN == 0;
    dice values = {.state = 88172645463325252u + data[0]};
    check_program(0, p, &values, run);
    return 0;
}
