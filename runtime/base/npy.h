/* npy.h: tensors in .npy files: versions 1.0, 2.0 and 3.0, in C order, little-endian.
 *
 * A file that is read may be hostile: memory is allocated only for data that the file is known to have.
 *
 * Errors: FCP_E_READ and FCP_E_WRITE (with the system's reason), FCP_E_NPY (malformed), FCP_E_TENSOR (well-formed, but
 *         not the tensor that was asked for: the message has the path, what was expected and what was found),
 *         FCP_E_NO_MEMORY.
 */
#ifndef FCP_BASE_NPY_H
#define FCP_BASE_NPY_H
#include "runtime/base/whole_file.h"
#include "runtime/fcp.h"

enum { FCP_NPY_MAX_DIMS = 8, FCP_NPY_START = 12 + (1 << 16) }; /* so many bytes hold any header that is read */

/* In order: '<f4', '<f2', '<u2', '<f8' and so on. A file cannot say bfloat16: its bits are stored as uint16, and the
 * caller must know. Tensors have one of the first three types; fields and tables may have any. */
typedef enum fcp_npy_type {
    FCP_NPY_F4, FCP_NPY_F2, FCP_NPY_U2, FCP_NPY_F8, FCP_NPY_BOOL, FCP_NPY_I1, FCP_NPY_U1, FCP_NPY_I2, FCP_NPY_I4,
    FCP_NPY_U4, FCP_NPY_I8, FCP_NPY_U8, FCP_NPY_TYPES
} fcp_npy_type;

typedef struct fcp_npy {
    fcp_npy_type type;
    uint32_t dims;                      /* 0 .. FCP_NPY_MAX_DIMS */
    uint64_t shape[FCP_NPY_MAX_DIMS];
    uint64_t elements;                  /* product of the shape */
    const void *data;                   /* NULL only when elements is 0 */
} fcp_npy;

/* The type a dtype is stored as: fp32 F4, fp16 F2, bf16 U2. */
fcp_npy_type fcp_npy_type_of(fcp_dtype dtype);

/* The tensor that the bytes of a file hold. out->data points into them, with any alignment, and is not to be freed.
 * `path` is the file's name for messages. */
fcp_code fcp_npy_view(const char *path, const void *bytes, size_t size, fcp_npy *out, fcp_error *err);
/* The type and shape of a file of `size` bytes, read from its header alone. `start` holds the whole file, or its
 * first FCP_NPY_START bytes. If the size is not known yet, it is UINT64_MAX. out->data is NULL. *out_size is how
 * many bytes the file must have. */
fcp_code fcp_npy_header(const char *path, const void *start, uint64_t size, fcp_npy *out, uint64_t *out_size,
                        fcp_error *err);
const char *fcp_npy_type_name(fcp_npy_type type); /* "float32", ... */
/* Element i of a tensor of integers or bools; 0 if it has reals. False: the number does not fit int64. */
bool fcp_npy_int(const fcp_npy *npy, uint64_t i, int64_t *out);
/* Elements [from, from + count) of such a tensor. Returns how many fit int64 before the first that does not: `count` if
 * all do. */
uint32_t fcp_npy_ints(const fcp_npy *npy, uint64_t from, uint32_t count, int64_t *out);
/* Element i of a tensor of reals; 0 if it has integers. */
double fcp_npy_real(const fcp_npy *npy, uint64_t i);
static inline bool fcp_npy_is_real(fcp_npy_type type) {
    return type == FCP_NPY_F4 || type == FCP_NPY_F2 || type == FCP_NPY_F8;
}

/* Reads a file that must have exactly this type and shape; *out_data is malloc'd (the caller frees). */
fcp_code fcp_npy_load(const char *path, fcp_npy_type type, uint32_t dims, const uint64_t *shape, void **out_data,
                      fcp_error *err);
/* Writes a tensor, version 1.0, into an open file and closes it. The caller commits it, so that several files can
 * appear together. */
fcp_code fcp_npy_write(fcp_beside *file, fcp_npy_type type, uint32_t dims, const uint64_t *shape, const void *data,
                       fcp_error *err);
#endif
