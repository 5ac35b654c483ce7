/* magic.h: stands in for Linux's header: the number of the file system /proc, which a browser does not have. */
#ifndef FCPC_PLAYGROUND_MAGIC_H
#define FCPC_PLAYGROUND_MAGIC_H
enum { PROC_SUPER_MAGIC = 0x9fa0 };
#endif
