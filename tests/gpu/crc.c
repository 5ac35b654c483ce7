/* crc.c: computes CRC-32C by a table of 256 words. gpu-check uses it in the place of ISA-L, of which Debian has no
 * static library. main.c compares it with a known answer.
 */
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
