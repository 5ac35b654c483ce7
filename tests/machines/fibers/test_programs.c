/* test_programs.c: tests the skeletons on fibers: random programs and all examples are compiled, run forward and
 * backward, and compared with the definition of attention.
 */
#include "tests/machines/fibers/programs.h"

Test(kernels, random_programs) {
    static const fcp_backend *const backends[] = {&fibers_backend, &fibers_ordered_backend, &fibers_unordered_backend};
    random_programs(draws_of(3000), backends, 3, NULL);
}
Test(kernels, examples) { run_examples(false); }
