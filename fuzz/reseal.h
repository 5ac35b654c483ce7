/* reseal.h: makes the checksums of a damaged plan right again, so that the loader does not stop at them and the fuzzer
 * reaches the checks behind them. */
#ifndef FUZZ_RESEAL_H
#define FUZZ_RESEAL_H
#include <string.h>

#include "runtime/plan/file.h"

/* Recomputes size and checksums where there is a whole header; with `layout` also offsets, record sizes and types from
 * the lengths (shortened to what the bytes can hold), and zeros between sections. */
static inline void plan_reseal(uint8_t *bytes, size_t size, bool layout) {
    file_header h;
    file_entry e[FCP_SECTION_COUNT];
    if (size < FCP_HEADER_LEAST) return;
    memcpy(&h, bytes, sizeof h);
    const uint32_t sections = fcp_feature_sections(h.required);
    if (size < fcp_header_size(sections)) return;
    memcpy(e, bytes + sizeof h, sections * sizeof *e);
    if (layout) {
        uint64_t at = fcp_header_size(sections);
        const size_t used = fcp_header_used(sections);
        memset(bytes + used, 0, at - used);
        for (uint32_t i = 0; i < sections; i++) {
            uint64_t room = (size - at) / FCP_FILE_ALIGN * FCP_FILE_ALIGN;
            bool last = i + 1 == sections;
            e[i].type = i;
            e[i].record_size = fcp_record_sizes[i];
            e[i].reserved = 0;
            e[i].offset = at;
            if (e[i].length > room || last) e[i].length = room;
            e[i].length -= e[i].length % fcp_record_sizes[i];
            uint64_t next = last ? size : (at + e[i].length + FCP_FILE_ALIGN - 1) / FCP_FILE_ALIGN * FCP_FILE_ALIGN;
            memset(bytes + at + e[i].length, 0, next - at - e[i].length);
            at = next;
        }
        memcpy(h.magic, FCP_MAGIC, sizeof h.magic);
        h.header_size = fcp_header_size(sections);
        h.writer_version = h.reader_version = FCP_PLAN_VERSION;
        h.sections = sections;
        h.required &= FCP_KNOWN_FEATURES;
        h.optional = h.reserved = 0;
        h.total_size = size;
    }
    for (uint32_t i = 0; i < sections; i++)
        if (e[i].offset <= size && e[i].length <= size - e[i].offset)
            e[i].crc = fcp_crc32c(bytes + e[i].offset, e[i].length);
    h.table_crc = fcp_crc32c(e, sections * sizeof *e);
    h.header_crc = fcp_crc32c(&h, offsetof(file_header, header_crc));
    memcpy(bytes, &h, sizeof h);
    memcpy(bytes + sizeof h, e, sections * sizeof *e);
}
#endif
