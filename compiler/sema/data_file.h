/* data_file.h: the files of numbers that a program names: lengths, fields, tables, slices.
 *
 *     data_file f;
 *     const char *line;
 *     size_t size;
 *     bool good = sema_data_open(&f, s, path, at, 1 << 30, FCP_E_FIELD_FILE, true);
 *     while (good && sema_data_line(&f, numbers, &line, &size)) ...
 *     good = good && !f.wrong;
 *     sema_data_close(&f);
 *
 * A file is read piece by piece, so a text takes no more memory than its longest line. If something is wrong in it,
 * that is reported with its place, and reading stops there.
 */
#ifndef FCPC_SEMA_DATA_FILE_H
#define FCPC_SEMA_DATA_FILE_H
#include "compiler/sema/sema.h"
#include "runtime/base/npy.h"
#include "runtime/base/sha256.h"

typedef struct data_file {
    sema *s;
    const char *path;
    span at;              /* where the program names it */
    fcp_code malformed;   /* the code for a text that is none */
    int fd;
    size_t line_most;     /* longer lines are refused: 1 MiB, unless the caller sets it */
    uint64_t size, most;  /* its bytes, UINT64_MAX if they are not known before its end; more than `most` are refused */
    uint64_t taken;       /* bytes that were read so far */
    fcp_sha256 hash;      /* of these */
    char *bytes;          /* [begin, end): read, and not used yet; the line that was given last lies before them */
    size_t room, begin, end;
    bool last;            /* nothing more comes */
    bool may_be_npy;
    bool npy;             /* its first bytes say that it is one, or its name */
    bool quiet;           /* nothing is reported */
    bool wrong;           /* it cannot be read on, which was reported */
    size_t line, line_size;
    uint32_t number;      /* of this line, from 1 */
    uint64_t npy_size;    /* what the header says */
} data_file;

/* Opens a file of `most` bytes at most. False: an error was reported. In any case it is to be closed. */
bool sema_data_open(data_file *f, sema *s, const char *path, span at, uint64_t most, fcp_code malformed,
                    bool may_be_npy);
void sema_data_close(data_file *f);

/* Reads the next line of a text, without its line end. `numbers` is how many numbers the caller has found so far: a
 * text that is much longer than these need is refused. False: there is no further line, or f->wrong is set. */
bool sema_data_line(data_file *f, uint64_t numbers, const char **out, size_t *out_size);
/* The place of the bytes [begin, end) of this line; without memory for it, where the program names the file. */
span sema_data_span(data_file *f, size_t begin, size_t end);
/* The place of a line that was read before, without blanks and commas around it. The file is read again up to there, so
 * nothing else can be read afterwards. A pipe cannot be read again: then it is the place where the program names it. */
span sema_data_line_again(data_file *f, uint32_t number);

/* Type and shape of a .npy file; out->data is NULL. False: an error was reported. */
bool sema_data_npy(data_file *f, fcp_npy *out);
/* Reads the elements of a .npy file, after sema_data_npy; f holds them until it is closed. */
bool sema_data_elements(data_file *f, fcp_npy *out);
/* The hash of its bytes, once all of them were read. */
void sema_data_hash(data_file *f, uint8_t out[FCP_SHA256_BYTES]);
#endif
