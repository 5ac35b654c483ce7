/* fuzz_program.c: draws a program from the bytes, plans it, and sometimes runs it.
 *
 * Oracle: tests/oracle/judge.h: the plan has exactly the pairs that brute force finds; it verifies, is the same after a
 *         file, and computes attention.
 * Input:  the first byte says how much is drawn (LARGE); the others are dice, so every input is a valid program.
 */
#include "tests/oracle/judge.h"

/* LARGE: longer sequences. The fuzzer passes over such inputs; those in fuzz/corpus/program-large are replayed.
 * RUN: the fuzzer runs one program in so many, because a session starts threads and costs as much as thirty programs. A
 * replay runs all of them. */
enum { LARGE = 0x80, RUN = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size)
    __attribute__((weak)); /* NULL in a replay */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size || (data[0] & LARGE && LLVMFuzzerMutate)) return 0;
    static random_program room; /* megabytes, which every input would otherwise ask for anew */
    random_program *p = &room;
    const bool large = data[0] & LARGE;
    /* of all bytes: the fuzzer keeps and changes inputs whose first byte is good */
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * UINT64_C(0x100000001b3);
    const bool run = large ? data[0] & 1 : !LLVMFuzzerMutate || (hash >> 32) % RUN == 0;
    dice d = {.bytes = data + 1, .size = size - 1};
    draw_program(p, &d, large ? 20000 : 800);
    dice values = {.state = 88172645463325252u + data[0]};
    check_program(0, p, &values, run);
    return 0;
}
