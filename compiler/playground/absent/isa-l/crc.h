/* crc.h: stands in for ISA-L's header where there is no ISA-L (compiler/playground/hashes.c). */
#ifndef FCPC_PLAYGROUND_CRC_H
#define FCPC_PLAYGROUND_CRC_H
unsigned int crc32_iscsi(unsigned char *bytes, int size, unsigned int crc);
#endif
