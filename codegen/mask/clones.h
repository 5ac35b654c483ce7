/* clones.h: FCP_CLONES makes the compiler build a function for several instruction sets. The loader chooses the best
 * one when the program starts. The macro is empty where compiler or loader cannot do that, and under sanitizers, whose
 * run-time is not ready when the choice is made. All clones of a function give the same bits, because multiplications
 * and additions are never fused, and sums are made in a stated order. */
#ifndef CODEGEN_MASK_CLONES_H
#define CODEGEN_MASK_CLONES_H
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(FCP_NO_CLONES)
#define FCP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FCP_CLONES
#endif
#endif
