/* file.h: the layout of a plan file around its tables. Only the loader, the writer, readers of plans from pipes and the
 * fuzz targets need it.
 *
 *   file_header | file_entry x sections | zeros | section 0 | zeros | section 1 | ...
 *
 * All numbers are little-endian. Sections lie in the order of FCP_SECTIONS, each at the next multiple of 64; the first
 * comes after the section table, and the file too ends at a multiple of 64. All gaps are zero. So every offset follows
 * from the lengths, every byte is under a checksum or must be zero, and tables are aligned where the file is mapped.
 *
 * A file ends with the last section that it needs: BANDS; HEAD_CLASSES if there are classes of heads, and then it
 * requires FCP_FEATURE_HEADS; or HALO_ROWS if there are layers that recur, and then it requires FCP_FEATURE_RECURRENT.
 *
 * Checksums are CRC-32C, with an initial value and a final exclusive-or of all ones.
 */
#ifndef FCP_PLAN_FILE_H
#define FCP_PLAN_FILE_H
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/plan_summary.h"
#include "runtime/plan/recurrent.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "plans are used as they lie in the file: little-endian");
_Static_assert(sizeof(fcp_problem) == 144 && sizeof(fcp_cluster) == 64 && sizeof(fcp_summary) == 8 * 34, "format");
_Static_assert(sizeof(fcp_sequence) == 24, "format");
_Static_assert(sizeof(fcp_piece) == 24 && sizeof(fcp_block) == 28 && sizeof(fcp_tile) == 32, "format");
_Static_assert(sizeof(fcp_part) == 12 && sizeof(fcp_shape_rec) == 24 && sizeof(fcp_run) == 12, "format");
_Static_assert(sizeof(fcp_visit) == 32 && sizeof(fcp_heads) == 16 && sizeof(fcp_deal) == 16 && sizeof(fcp_round) == 8 &&
                   sizeof(fcp_instr) == 16,
               "format");
_Static_assert(sizeof(fcp_stream) == 8 && sizeof(fcp_transfer) == 20, "format");
_Static_assert(sizeof(mc_node) == 32 && sizeof(mc_band) == 24 && sizeof(mc_band_rows) == 16, "format");
_Static_assert(sizeof(fcp_array) == 104 && sizeof(fcp_slices) == 16, "format");

#define FCP_MAGIC "\x89" "FCP\r\n\x1a\n"
enum { FCP_FILE_ALIGN = 64 };
/* Feature bits. HEADS: there are classes of heads. RECURRENT: there are layers that recur. */
enum {
    FCP_FEATURE_HEADS = 1,
    FCP_FEATURE_RECURRENT = 2,
    FCP_KNOWN_FEATURES = FCP_FEATURE_HEADS | FCP_FEATURE_RECURRENT
};

typedef struct file_header {
    uint8_t magic[8];
    uint32_t header_size;     /* bytes, with the section table and the zeros after it */
    uint32_t writer_version;  /* of the format in which it was written */
    uint32_t reader_version;  /* of the oldest reader that understands it */
    uint32_t sections;
    uint64_t required;        /* feature bits that a reader must know */
    uint64_t optional;        /* feature bits that a reader may ignore */
    uint64_t total_size;      /* of the file */
    uint64_t reserved;        /* 0 */
    uint32_t table_crc;       /* of the section table */
    uint32_t header_crc;      /* of the bytes before this field */
} file_header;
_Static_assert(sizeof(file_header) == 64, "format");

typedef struct file_entry {
    uint32_t type;            /* fcp_section_id */
    uint32_t record_size;
    uint64_t offset, length;  /* bytes, from the start of the file */
    uint32_t crc;             /* of the section */
    uint32_t reserved;        /* 0 */
} file_entry;
_Static_assert(sizeof(file_entry) == 32, "format");

/* The header of a file with so many sections. */
static inline uint32_t fcp_header_used(uint32_t sections) {
    return (uint32_t)(sizeof(file_header) + sections * sizeof(file_entry));
}
static inline uint32_t fcp_header_size(uint32_t sections) {
    return (fcp_header_used(sections) + FCP_FILE_ALIGN - 1) / FCP_FILE_ALIGN * FCP_FILE_ALIGN;
}
/* The largest header, and the smallest. */
enum {
    FCP_HEADER_MOST = (sizeof(file_header) + FCP_SECTION_COUNT * sizeof(file_entry) + FCP_FILE_ALIGN - 1) /
                      FCP_FILE_ALIGN * FCP_FILE_ALIGN,
    FCP_HEADER_LEAST = (sizeof(file_header) + FCP_SECTION_HEAD_CLASSES * sizeof(file_entry) + FCP_FILE_ALIGN - 1) /
                       FCP_FILE_ALIGN * FCP_FILE_ALIGN
};
/* How many sections a file with these features has. */
static inline uint32_t fcp_feature_sections(uint64_t required) {
    if (required & FCP_FEATURE_RECURRENT) return FCP_SECTION_COUNT;
    return required & FCP_FEATURE_HEADS ? FCP_SECTION_HEAD_CLASSES + 1 : FCP_SECTION_HEAD_CLASSES;
}
/* The features of a file whose sections have these lengths. */
static inline uint64_t fcp_file_features(const uint64_t lengths[FCP_SECTION_COUNT]) {
    return (lengths[FCP_SECTION_HEAD_CLASSES] ? FCP_FEATURE_HEADS : 0) |
           (lengths[FCP_SECTION_RECURRENT] ? FCP_FEATURE_RECURRENT : 0);
}
_Static_assert((int)FCP_SECTION_HEAD_CLASSES + 5 == (int)FCP_SECTION_COUNT,
               "the sections that may be missing are last");

extern const uint32_t fcp_record_sizes[FCP_SECTION_COUNT];
extern const char *const fcp_section_names[FCP_SECTION_COUNT];

/* The offsets of sections of these lengths (in bytes), and the size of the file. False: it overflows. */
bool fcp_file_offsets(const uint64_t lengths[FCP_SECTION_COUNT], uint64_t out_offsets[FCP_SECTION_COUNT],
                      uint64_t *out_size);
/* Where a plan's tables are, and their lengths in bytes. False: a length overflows. */
bool fcp_plan_sections(const fcp_plan *plan, const void *out_data[FCP_SECTION_COUNT],
                       uint64_t out_lengths[FCP_SECTION_COUNT]);
/* A view of the plan in which no table is NULL, so that pointers into any table can be computed, even into an empty
 * one. It must not be freed. */
fcp_plan fcp_plan_view(const fcp_plan *plan);
/* The error of a plan whose tables do not fit together. */
#define malformed(err, ...) fcp_fail(err, FCP_E_PLAN_FORMAT, __VA_ARGS__)
/* The part of fcp_plan_check that looks at mask, score, arrays and slices. */
fcp_code fcp_plan_check_data(const fcp_plan *plan, fcp_error *err);
/* The part that looks at the layers that recur, when all else has been checked. */
fcp_code fcp_plan_check_recurrent(const fcp_plan *plan, const volatile int *stop, fcp_error *err);
uint32_t fcp_crc32c(const void *bytes, uint64_t size);
#endif
