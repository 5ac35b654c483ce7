/* extract_file.h: the bytes of an extract, the proof that they are of a plan, and the file that has the extracts of all
 * ranks.
 *
 *   an extract   extract_header | path | body
 *   the body     the lengths of its tables in bytes, and the tables, each at the next multiple of 16: first those of
 *                FCP_SECTIONS, then those of FCP_EXTRACT_SECTIONS. Gaps are zero
 *   a file       extracts_header | where each rank's extract begins, and where the last one ends | the extracts
 *
 * The proof is a Merkle tree of SHA-256. A leaf hashes a rank's number and its body. A node hashes the two below it,
 * and one without a neighbour moves up as it is. The root hashes the number of ranks, the digest of the plan and the
 * topmost node. Each kind of hash begins with another byte, so that none can pass for another kind. The path has the
 * neighbours of the rank's leaf and of the nodes above it, from the leaf up. Who knows the root thus knows that a body
 * is the one that was cut from the plan for this rank. Nothing else protects an extract: no checksums.
 *
 * All numbers are little-endian.
 */
#ifndef FCP_PLAN_EXTRACT_FILE_H
#define FCP_PLAN_EXTRACT_FILE_H
#include "runtime/plan/extract.h"

#define FCP_EXTRACT_MAGIC                                                                                              \
    "\x89"                                                                                                             \
    "FCX\r\n\x1a\n"
#define FCP_EXTRACTS_MAGIC                                                                                             \
    "\x89"                                                                                                             \
    "FCR\r\n\x1a\n"
enum { FCP_EXTRACT_ALIGN = 16, FCP_EXTRACT_TABLES = FCP_SECTION_COUNT + FCP_EXTRACT_SECTION_COUNT };

typedef struct extract_header {
    uint8_t magic[8];
    uint32_t version; /* FCP_PLAN_VERSION */
    uint32_t rank, ranks;
    uint32_t path;                    /* hashes */
    uint64_t body;                    /* bytes */
    uint8_t digest[FCP_DIGEST_BYTES]; /* of the plan */
} extract_header;
_Static_assert(sizeof(extract_header) == 64, "format");

typedef struct extracts_header {
    uint8_t magic[8];
    uint32_t version, ranks;
    uint8_t digest[FCP_DIGEST_BYTES], root[FCP_DIGEST_BYTES];
} extracts_header;
_Static_assert(sizeof(extracts_header) == 80, "format");
_Static_assert(sizeof(fcp_extract_about) == 56 && sizeof(fcp_extract_sequence) == 24 && sizeof(fcp_span) == 16 &&
                   sizeof(fcp_bundle_at) == 16 && sizeof(fcp_bundle_run) == 20,
               "format");

extern const uint32_t fcp_extract_record_sizes[FCP_EXTRACT_TABLES];
/* Where tables of these lengths lie in a body, and the size of the body. False: it overflows. */
bool fcp_extract_offsets(const uint64_t lengths[FCP_EXTRACT_TABLES], uint64_t out_offsets[FCP_EXTRACT_TABLES],
                         uint64_t *out_size);

/* The hashes of the tree. */
typedef struct fcp_hash {
    uint8_t bytes[FCP_DIGEST_BYTES];
} fcp_hash;
fcp_hash fcp_extract_leaf(uint32_t rank, const void *body, size_t size);
fcp_hash fcp_extract_node(const fcp_hash *left, const fcp_hash *right);
fcp_hash fcp_extract_root(uint32_t ranks, const uint8_t digest[FCP_DIGEST_BYTES], const fcp_hash *top);
/* How many hashes the path of a rank has. */
uint32_t fcp_extract_path(uint32_t rank, uint32_t ranks);
#endif
