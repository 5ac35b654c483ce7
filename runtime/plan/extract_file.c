/* extract_file.c: where the tables of an extract lie, and the hashes of its proof (extract_file.h).
 *
 * Requires: nothing of the bytes.
 * Cost:     of a leaf, linear in the body; else constant.
 */
#include "runtime/plan/extract_file.h"

#include <string.h>

#include "runtime/base/sha256.h"
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/plan_summary.h"
#include "runtime/plan/recurrent.h"

const uint32_t fcp_extract_record_sizes[FCP_EXTRACT_TABLES] = {
#define X(id, type, member) [FCP_SECTION_##id] = sizeof(type),
    FCP_SECTIONS(X)
#undef X
#define X(id, type, member) [FCP_SECTION_COUNT + FCP_EXTRACT_##id] = sizeof(type),
        FCP_EXTRACT_SECTIONS(X)
#undef X
};

bool fcp_extract_offsets(const uint64_t lengths[FCP_EXTRACT_TABLES], uint64_t out_offsets[FCP_EXTRACT_TABLES],
                         uint64_t *out_size) {
    uint64_t at = FCP_EXTRACT_TABLES * sizeof *lengths;
    for (int i = 0; i < FCP_EXTRACT_TABLES; i++) {
        at = (at + FCP_EXTRACT_ALIGN - 1) / FCP_EXTRACT_ALIGN * FCP_EXTRACT_ALIGN;
        out_offsets[i] = at;
        if (lengths[i] > INT64_MAX - FCP_EXTRACT_ALIGN - at) return false;
        at += lengths[i];
    }
    *out_size = at;
    return true;
}

enum { LEAF, NODE, ROOT }; /* the byte with which a hash begins */

static fcp_hash ended(fcp_sha256 *h) {
    fcp_hash out;
    fcp_sha256_end(h, out.bytes);
    return out;
}

fcp_hash fcp_extract_leaf(uint32_t rank, const void *body, size_t size) {
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, &(uint8_t){LEAF}, 1);
    fcp_sha256_add(&h, &rank, sizeof rank);
    fcp_sha256_add(&h, body, size);
    return ended(&h);
}

fcp_hash fcp_extract_node(const fcp_hash *left, const fcp_hash *right) {
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, &(uint8_t){NODE}, 1);
    fcp_sha256_add(&h, left, sizeof *left);
    fcp_sha256_add(&h, right, sizeof *right);
    return ended(&h);
}

fcp_hash fcp_extract_root(uint32_t ranks, const uint8_t digest[FCP_DIGEST_BYTES], const fcp_hash *top) {
    const uint32_t version = FCP_PLAN_VERSION;
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, &(uint8_t){ROOT}, 1);
    fcp_sha256_add(&h, &version, sizeof version);
    fcp_sha256_add(&h, &ranks, sizeof ranks);
    fcp_sha256_add(&h, digest, FCP_DIGEST_BYTES);
    fcp_sha256_add(&h, top, sizeof *top);
    return ended(&h);
}

uint32_t fcp_extract_path(uint32_t rank, uint32_t ranks) {
    uint32_t hashes = 0;
    for (; ranks > 1; rank /= 2, ranks = ranks / 2 + ranks % 2) hashes += (rank ^ 1) < ranks;
    return hashes;
}
