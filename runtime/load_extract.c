/* load_extract.c: loads a rank's extract from a file of extracts, or from its bytes. The bytes may be hostile.
 *
 * Requires: the root of the extracts, from whoever has verified the plan.
 * Gives:    a plan whose tables lie in a copy of the extract.
 * Order:    nothing is used before it is checked:
 *           1. magic, version, the rank, and the size, which must be that of the file's index;
 *           2. the proof: the hashes of the path lead from the body to the root;
 *           3. the lengths of the tables;
 *           4. index and check. The verifier does not run: it has seen the plan from which the proven bytes were cut.
 *           No memory is allocated in proportion to a number that the file merely states.
 * Cost:     linear in the extract. Of the file a rank reads the header, two numbers of the index and its own extract.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/read_file.h"
#include "runtime/plan/extract_file.h"
#include "runtime/plan/file.h"
#include "runtime/plan/plan_check.h"
#include "runtime/plan/plan_index.h"

static fcp_code check_version(uint32_t version, fcp_error *err) {
    if (version == FCP_PLAN_VERSION) return FCP_OK;
    return fcp_fail(err, FCP_E_PLAN_VERSION,
                    "the extract is of version %u, and this is version %u: compile the plan again", version,
                    FCP_PLAN_VERSION);
}

static fcp_code check_header(const uint8_t *base, uint64_t size, uint32_t rank, extract_header *h, fcp_error *err) {
    if (size < sizeof *h || memcmp(base, FCP_EXTRACT_MAGIC, sizeof h->magic))
        return fcp_fail(err, FCP_E_PLAN_MAGIC, "not an extract of a plan: it begins otherwise");
    memcpy(h, base, sizeof *h);
    fcp_code code = check_version(h->version, err);
    if (code) return code;
    if (h->rank != rank || h->ranks > FCP_MAX_RANKS || rank >= h->ranks)
        return fcp_fail(err, FCP_E_EXTRACT_PROOF, "it is the extract of rank %u of %u, not of rank %u", h->rank,
                        h->ranks, rank);
    const uint64_t before = sizeof *h + (uint64_t)fcp_extract_path(rank, h->ranks) * sizeof(fcp_hash);
    if (h->path != fcp_extract_path(rank, h->ranks) || size < before || h->body != size - before)
        return fcp_fail(err, FCP_E_PLAN_TRUNCATED,
                        "the extract of rank %u has %llu bytes, and its header says other lengths", rank,
                        (unsigned long long)size);
    return FCP_OK;
}

/* Goes from the body to the root, along the path. */
static bool is_proven(const extract_header *h, const uint8_t *path, const uint8_t *body,
                      const uint8_t root[FCP_DIGEST_BYTES]) {
    fcp_hash at = fcp_extract_leaf(h->rank, body, h->body);
    for (uint32_t rank = h->rank, n = h->ranks; n > 1; rank /= 2, n = n / 2 + n % 2) {
        fcp_hash beside;
        if ((rank ^ 1) >= n) continue;
        memcpy(beside.bytes, path, sizeof beside);
        path += sizeof beside;
        at = rank & 1 ? fcp_extract_node(&beside, &at) : fcp_extract_node(&at, &beside);
    }
    at = fcp_extract_root(h->ranks, h->digest, &at);
    return !memcmp(at.bytes, root, FCP_DIGEST_BYTES);
}

/* Points the plan to the tables of a body. */
static fcp_code find_tables(const uint8_t *body, uint64_t size, fcp_plan *plan, fcp_error *err) {
    uint64_t lengths[FCP_EXTRACT_TABLES], offsets[FCP_EXTRACT_TABLES], total = 0;
    bool good = size >= sizeof lengths;
    if (good) memcpy(lengths, body, sizeof lengths);
    good = good && fcp_extract_offsets(lengths, offsets, &total) && total == size;
    for (int i = 0; i < FCP_EXTRACT_TABLES && good; i++)
        good = lengths[i] % fcp_extract_record_sizes[i] == 0 && lengths[i] / fcp_extract_record_sizes[i] < FCP_NONE;
    if (!good) return malformed(err, "the lengths of an extract's tables do not make up its size");
    fcp_extract *x = plan->extract;
#define X(id, type, member)                                                                                            \
    plan->member = (const type *)(const void *)(body + offsets[FCP_SECTION_##id]);                                     \
    plan->member##_count = lengths[FCP_SECTION_##id] / sizeof(type);
    FCP_SECTIONS(X)
#undef X
#define X(id, type, member)                                                                                            \
    x->member = (const type *)(const void *)(body + offsets[FCP_SECTION_COUNT + FCP_EXTRACT_##id]);                    \
    x->member##_count = lengths[FCP_SECTION_COUNT + FCP_EXTRACT_##id] / sizeof(type);
    FCP_EXTRACT_SECTIONS(X)
#undef X
    return FCP_OK;
}

/* Takes over `base`, also on failure. */
static fcp_code load(uint8_t *base, uint64_t size, uint32_t rank, const uint8_t root[FCP_DIGEST_BYTES],
                     fcp_plan **out_plan, fcp_error *err) {
    fcp_plan *plan = calloc(1, sizeof *plan);
    if (plan) plan->extract = calloc(1, sizeof *plan->extract);
    if (!plan || !plan->extract) {
        free(plan);
        free(base);
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    }
    extract_header h;
    plan->owner = base;
    plan->release = free;
    fcp_code code = check_header(base, size, rank, &h, err);
    const uint8_t *path = base + sizeof h, *body = base + (size - (code ? 0 : h.body));
    if (!code && !is_proven(&h, path, body, root))
        code =
            fcp_fail(err, FCP_E_EXTRACT_PROOF, "the extract of rank %u is not of the plan whose root was given", rank);
    if (!code) code = find_tables(body, h.body, plan, err);
    if (!code && !(fcp_extract_counts(plan) && plan->problem->ranks == h.ranks && plan->extract->about->rank == rank))
        code = malformed(err, "an extract's tables do not fit together");
    if (!code) memcpy(plan->extract->digest, h.digest, sizeof h.digest);
    if (!code) code = fcp_plan_index(plan, err);
    if (!code) code = fcp_plan_check(plan, NULL, err);
    if (code) fcp_plan_free(plan);
    else *out_plan = plan;
    return code;
}

/* Memory for an extract, in which its tables are aligned. */
static uint8_t *allocate(uint64_t size) {
    const uint64_t all = (size / FCP_FILE_ALIGN + 1) * FCP_FILE_ALIGN;
    return size < SIZE_MAX / 2 ? aligned_alloc(FCP_FILE_ALIGN, all) : NULL;
}

fcp_code fcp_extract_load(const void *bytes, size_t size, uint32_t rank, const uint8_t root[FCP_DIGEST_BYTES],
                          fcp_plan **out_plan, fcp_error *err) {
    uint8_t *copy = allocate(size);
    if (!copy) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for an extract of %zu bytes", size);
    if (size) memcpy(copy, bytes, size);
    return load(copy, size, rank, root, out_plan, err);
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static fcp_code cannot(const char *path, int why, fcp_error *err) {
    char room[128];
    return fcp_fail_in(err, FCP_E_READ, path, 0, 0, "cannot read '%.300s': %s", path, fcp_read_reason(why, room));
}

static fcp_code cut_short(fcp_error *err) {
    return fcp_fail(err, FCP_E_PLAN_TRUNCATED, "the file of extracts is cut short, or its index is damaged");
}

/* False: there are not so many bytes. */
static bool read_at(int fd, void *to, uint64_t size, uint64_t at) {
    for (ssize_t got; size; to = (char *)to + got, at += (uint64_t)got, size -= (uint64_t)got) {
        got = pread(fd, to, size, (off_t)at);
        if (got < 0 && errno == EINTR) got = 0;
        else if (got <= 0) return false;
    }
    return true;
}

static fcp_code read_header(int fd, uint64_t size, extracts_header *h, fcp_error *err) {
    if (size < sizeof *h || !read_at(fd, h, sizeof *h, 0) || memcmp(h->magic, FCP_EXTRACTS_MAGIC, sizeof h->magic))
        return fcp_fail(err, FCP_E_PLAN_MAGIC, "not a file of extracts: it begins otherwise");
    return check_version(h->version, err);
}

/* Reads a rank's extract into memory that allocate() gave. */
static fcp_code read_extract(int fd, uint64_t size, uint32_t rank, uint8_t **out, uint64_t *out_size, fcp_error *err) {
    extracts_header h;
    uint64_t ends[2];
    fcp_code code = read_header(fd, size, &h, err);
    if (code) return code;
    if (rank >= h.ranks)
        return fcp_fail(err, FCP_E_ARGUMENT, "the file has extracts of %u ranks, and none of rank %u", h.ranks, rank);
    if (!read_at(fd, ends, sizeof ends, sizeof h + (uint64_t)rank * sizeof *ends) || ends[0] >= ends[1] ||
        ends[1] > size)
        return cut_short(err);
    uint8_t *bytes = allocate(ends[1] - ends[0]);
    if (!bytes) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the extract of rank %u", rank);
    if (!read_at(fd, bytes, ends[1] - ends[0], ends[0])) {
        free(bytes);
        return cut_short(err);
    }
    *out = bytes;
    *out_size = ends[1] - ends[0];
    return FCP_OK;
}

static fcp_code read_path(const char *path, uint32_t rank, uint8_t **out, uint64_t *out_size, fcp_error *err) {
    int fd;
    uint64_t size;
    int why = fcp_read_open(path, true, &fd, &size);
    if (why) return cannot(path, why, err);
    fcp_code code = read_extract(fd, size, rank, out, out_size, err);
    close(fd);
    return code;
}

static fcp_code at_path(fcp_code code, const char *path, fcp_error *err) {
    if (code && err) snprintf(err->file, sizeof err->file, "%s", path);
    return code;
}

fcp_code fcp_extracts_load(const char *path, uint32_t rank, const uint8_t root[FCP_DIGEST_BYTES], fcp_plan **out_plan,
                           fcp_error *err) {
    uint8_t *bytes = NULL;
    uint64_t size = 0;
    fcp_code code = read_path(path, rank, &bytes, &size, err);
    if (!code) code = load(bytes, size, rank, root, out_plan, err);
    return at_path(code, path, err);
}

fcp_code fcp_extracts_read(const char *path, uint32_t rank, void **out_bytes, size_t *out_size, fcp_error *err) {
    uint8_t *bytes = NULL;
    uint64_t size = 0;
    fcp_code code = read_path(path, rank, &bytes, &size, err);
    if (!code) {
        *out_bytes = bytes;
        *out_size = size;
    }
    return at_path(code, path, err);
}

fcp_code fcp_extracts_said(const char *path, uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err) {
    extracts_header h;
    int fd;
    uint64_t size;
    int why = fcp_read_open(path, true, &fd, &size);
    if (why) return cannot(path, why, err);
    fcp_code code = read_header(fd, size, &h, err);
    close(fd);
    if (!code) memcpy(out_root, h.root, FCP_DIGEST_BYTES);
    return at_path(code, path, err);
}
