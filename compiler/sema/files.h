/* files.h: the files that a program names with file("..."). */
#ifndef FCPC_SEMA_FILES_H
#define FCPC_SEMA_FILES_H
#include "compiler/sema/sema.h"

/* Adds every file that the program names to out->files, also those that nothing reads. */
void sema_list_files(sema *s);
/* Adds one, which an option names. */
void sema_list_file(sema *s, const char *path, span at);
/* Calls options->see_file for each of them. False: it refused one, reported. */
bool sema_show_files(sema *s, const fcpc_options *options);
/* The path that the string e names, seen from here: a relative one starts at the folder of the source that e is in.
 * malloc'd, the caller frees; NULL: out of memory, which was reported. */
char *sema_path(sema *s, const expr *e);
/* Is it a .npy file? Its first bytes say so, or its name. */
bool sema_is_npy(const char *path, const char *bytes, size_t size);
#endif
