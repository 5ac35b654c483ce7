/* fuzz_program.c: structured programs to planner, verifier and host run.
 *
 * Oracle: tests/oracle/judge.h. The bytes are dice: whatever they are, they draw a valid program text; its plan must hold
 * exactly the pairs of brute force, verify, survive a file, and compute attention. Programs are small, so that a run takes
 * milliseconds; outside the first byte's low bit they are only planned.
 */
#include "tests/oracle/judge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!size) return 0;
    random_program *p = malloc(sizeof *p);
    if (!p) return 0;
    dice d = {.bytes = data + 1, .size = size - 1};
    draw_program(p, &d, 20000);
    dice values = {.state = 88172645463325252u + data[0]};
    check_program(0, p, &values, data[0] & 1);
    free(p);
    return 0;
}
