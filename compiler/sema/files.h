/* files.h: the files that a program names with file("..."). */
#ifndef FCPC_SEMA_FILES_H
#define FCPC_SEMA_FILES_H
#include "compiler/sema/sema.h"

/* Adds every file that the program names to out->files, also those that nothing reads. */
void sema_list_files(sema *s);
/* Calls options->see_file for each of them. False: it refused one, reported. */
bool sema_show_files(sema *s, const fcpc_options *options);
/* The path that the string e names, seen from here: a relative one starts at the folder of the source that e is in.
 * malloc'd, the caller frees; NULL: no memory, reported. */
char *sema_path(sema *s, const expr *e);
/* Reads a whole file: `most` bytes at most, or 256 MiB if it is no regular file (a pipe, a device). malloc'd, the
 * caller frees; NULL: reported at `at`. */
char *sema_read_file(sema *s, const char *path, span at, size_t most, size_t *out_size);
/* Removes the byte-order mark at the beginning of a text file. False: it is no text in UTF-8, reported with `code`. */
bool sema_plain_text(sema *s, const char *path, span at, fcp_code code, char *bytes, size_t *size);
/* Registers a file's text, so that an error in it can be shown, and gives the span of [begin, end); without memory for
 * that it gives `fallback`. */
span sema_file_span(sema *s, const char *path, const char *bytes, size_t size, size_t begin, size_t end, span fallback);
/* Is it a .npy file? Its first bytes say so, or its name. */
bool sema_is_npy(const char *path, const char *bytes, size_t size);
#endif
