"""other_mask.py: python3 other_mask.py PLAN OUT FROM TO: writes a plan whose mask has another constant, TO for FROM, with
checksums that are right. Nothing else in the plan tells that its tiles have the pairs of another mask."""
import struct
import sys

HEADER, ENTRY, NODE, CRC = 64, 32, 32, 60  # bytes of runtime/plan/file.h; where the header has its own checksum
MASK = 19                                  # the section's number in FCP_SECTIONS


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def main(source, out, old, new):
    plan = bytearray(open(source, "rb").read())
    sections, = struct.unpack_from("<I", plan, 20)
    entry = HEADER + MASK * ENTRY
    number, size, offset, length = struct.unpack_from("<IIQQ", plan, entry)
    assert (number, size) == (MASK, NODE), "another format"
    found = 0
    for node in range(offset, offset + length, NODE):
        op, imm = struct.unpack_from("<I20xq", plan, node)
        if op == 0 and imm == int(old):  # an integer constant
            struct.pack_into("<q", plan, node + 24, int(new))
            found += 1
    assert found == 1, f"{found} constants {old}"
    struct.pack_into("<I", plan, entry + 24, crc32c(plan[offset:offset + length]))
    struct.pack_into("<I", plan, CRC - 4, crc32c(plan[HEADER:HEADER + sections * ENTRY]))
    struct.pack_into("<I", plan, CRC, crc32c(plan[:CRC]))
    open(out, "wb").write(plan)


main(*sys.argv[1:])
