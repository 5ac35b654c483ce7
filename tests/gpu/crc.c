/* crc.c: CRC-32C for a program that is linked without ISA-L, of which Debian has no static library: the same function by a
 * table of 256 words. Known answer: main.c asks for it. */
#include <stdint.h>

unsigned int crc32_iscsi(unsigned char *bytes, int size, unsigned int crc);

unsigned int crc32_iscsi(unsigned char *bytes, int size, unsigned int crc) {
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78u : 0);
    }
    for (int i = 0; i < size; i++) crc = table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    return crc;
}
