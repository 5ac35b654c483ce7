/* blas.h: OpenBLAS for the host backend: loaded when first needed, one thread for each call, and not too many calls at
 * once.
 *
 * OpenBLAS is not linked, because loading it can hang. It starts a thread for each processor, and each thread takes a
 * buffer of 128 MB of address space. Where there is less, the thread tries again for ever, and the process never ends.
 * So OpenBLAS is loaded when the first plan is about to run on the host, after a check that there is room. Buffers for
 * the calls of a pass are taken before the pass, for the same reason. A program that has OpenBLAS linked in (gpu-check
 * has, so that it runs where no such library is installed) uses that one.
 *
 * The number of threads that OpenBLAS gives to a product is a setting of the whole process. The backend computes on
 * threads of its own, so the setting is 1 while any pass runs; when the last one ends, it gets its former value. A
 * program that calls OpenBLAS from other threads meanwhile gets right results, on one thread. OpenBLAS also ends the
 * process when too many threads are inside it at once; here at most FCP_BLAS_CALLERS are, over all sessions of the
 * process.
 *
 * This guard of a process-wide library is the only mutable state of libfcp that is not in an object.
 */
#ifndef FCP_HOST_BLAS_H
#define FCP_HOST_BLAS_H
#include "runtime/fcp.h"

enum { FCP_BLAS_CALLERS = 32 };

/* Loads OpenBLAS, unless that was done before. FCP_E_BACKEND: there is none, or the file that FCP_OPENBLAS names is not
 * OpenBLAS; FCP_E_NO_MEMORY: there is too little memory for it to start. */
fcp_code fcp_blas_load(fcp_error *err);
/* After that: what OpenBLAS says that it is, with its version first, and its file. "": it does not say; it is linked
 * in. */
const char *fcp_blas_config(void);
const char *fcp_blas_file(void);

/* To be called before a pass in which up to `callers` threads compute products at the same time. FCP_E_NO_MEMORY:
 * there is no room for the buffers of so many calls. Then the pass must not begin, and fcp_blas_close is not called. */
fcp_code fcp_blas_open(uint32_t callers, fcp_error *err);
/* After that pass. */
void fcp_blas_close(uint32_t callers);
/* A thread calls this before it computes products, and waits for its turn; and the other one after them. */
void fcp_blas_enter(void);
void fcp_blas_leave(void);

/* A product of row-major matrices: c = scale * a * b + keep * c. Each of the rows * columns numbers of c is a sum of
 * `inner` products. */
typedef struct fcp_product {
    int rows, columns, inner;
    const float *a;  /* [rows][inner], or [inner][rows] if a_turned; its rows are a_stride apart */
    const float *b;  /* [inner][columns], or [columns][inner] if b_turned; its rows are b_stride apart */
    bool a_turned, b_turned;
    int a_stride, b_stride;
    float *c;        /* [rows][columns]; its rows are `stride` apart */
    int stride;
    float scale, keep;
} fcp_product;
void fcp_blas_multiply(const fcp_product *product);
#endif
