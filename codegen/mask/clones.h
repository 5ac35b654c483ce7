/* clones.h: one function, compiled for several instruction sets, the best chosen when the program starts. Only where
 * the compiler and the loader can, and not under sanitizers, whose run-time is not up when the choice is made. A
 * function gives the same bits in every clone: nothing is contracted, and sums are made in a stated order. */
#ifndef CODEGEN_MASK_CLONES_H
#define CODEGEN_MASK_CLONES_H
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(FCP_NO_CLONES)
#define FCP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FCP_CLONES
#endif
#endif
