/* save.c: writes a plan to a file, or computes the hash of that file.
 *
 * Requires: an indexed plan.
 * Gives:    the bytes that file.h describes; equal tables give equal bytes. The file is replaced atomically
 *           (base/whole_file.h): on any error the path is as it was. The data is not forced to the disk, so a crash of
 *           the machine may lose a plan, which its checksums show.
 * Cost:     one pass over the tables for the checksums, and one gathering write; nothing is copied.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/read_file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/whole_file.h"
#include "runtime/plan/file.h"
#include "runtime/plan/save.h"

typedef struct image {
    struct {
        file_header header;
        file_entry entries[FCP_SECTION_COUNT];
        uint8_t zeros[FCP_FILE_ALIGN];
    } head;
    struct iovec parts[1 + 2 * FCP_SECTION_COUNT];
    int count;
} image;

static const char zeros[FCP_FILE_ALIGN];

static void add_bytes(image *im, const void *data, uint64_t size) {
    if (size) im->parts[im->count++] = (struct iovec){(void *)(uintptr_t)data, (size_t)size};
}

/* The header, the section table, and what is to be written in which order. False: a length overflows. */
static bool image_make(const fcp_plan *plan, image *im) {
    const void *data[FCP_SECTION_COUNT];
    uint64_t lengths[FCP_SECTION_COUNT], offsets[FCP_SECTION_COUNT], size;
    memset(&im->head, 0, sizeof im->head);
    im->count = 0;
    if (!fcp_plan_sections(plan, data, lengths) || !fcp_file_offsets(lengths, offsets, &size)) return false;
    const uint32_t sections = fcp_feature_sections(fcp_file_features(lengths));
    add_bytes(im, &im->head, fcp_header_size(sections));
    for (uint32_t i = 0; i < sections; i++) {
        im->head.entries[i] = (file_entry){.type = i,
                                           .record_size = fcp_record_sizes[i],
                                           .offset = offsets[i],
                                           .length = lengths[i],
                                           .crc = fcp_crc32c(data[i], lengths[i])};
        add_bytes(im, data[i], lengths[i]);
        uint64_t next = i + 1 < sections ? offsets[i + 1] : size;
        add_bytes(im, zeros, next - offsets[i] - lengths[i]);
    }
    im->head.header = (file_header){.magic = FCP_MAGIC,
                                    .header_size = fcp_header_size(sections),
                                    .writer_version = FCP_PLAN_VERSION,
                                    .reader_version = FCP_PLAN_VERSION,
                                    .sections = sections,
                                    .required = fcp_file_features(lengths),
                                    .total_size = size,
                                    .table_crc = fcp_crc32c(im->head.entries, sections * sizeof(file_entry))};
    im->head.header.header_crc = fcp_crc32c(&im->head.header, offsetof(file_header, header_crc));
    return true;
}

/* Writes all parts. 0, or an errno value. */
static int image_write(image *im, int fd) {
    struct iovec *at = im->parts, *end = im->parts + im->count;
    while (at < end) {
        ssize_t done = writev(fd, at, (int)(end - at));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        if (done == 0) return EIO;
        while (at < end && (size_t)done >= at->iov_len) done -= (ssize_t)(at++)->iov_len;
        if (at < end) {
            at->iov_base = (char *)at->iov_base + done;
            at->iov_len -= (size_t)done;
        }
    }
    return 0;
}

static fcp_code too_large(fcp_error *err) {
    return fcp_fail(err, FCP_E_PLAN_SIZE, "the plan's tables are larger than any file");
}

static fcp_code cannot(const char *path, int why, fcp_error *err) {
    char room[128];
    if (why == EOVERFLOW) return too_large(err);
    fcp_code code = why == ENOMEM ? FCP_E_NO_MEMORY : FCP_E_WRITE;
    return fcp_fail_in(err, code, path, 0, 0, "cannot write '%.300s': %s", path, fcp_read_reason(why, room));
}

int fcp_plan_write(const fcp_plan *plan, int fd) {
    image *im = malloc(sizeof *im);
    int why = !im ? ENOMEM : !image_make(plan, im) ? EOVERFLOW : image_write(im, fd);
    free(im);
    return why;
}

fcp_code fcp_plan_save(const fcp_plan *plan, const char *path, fcp_error *err) {
    fcp_beside file;
    fcp_code code = fcp_plan_whole(plan, "saving", err);
    if (code) return code;
    int why = fcp_beside_open(&file, path, false);
    if (!why) why = fcp_plan_write(plan, file.fd);
    if (!why) why = fcp_beside_commit(&file);
    fcp_beside_abandon(&file);
    return why ? cannot(path, why, err) : FCP_OK;
}

fcp_code fcp_plan_digest(const fcp_plan *plan, uint8_t out_digest[FCP_DIGEST_BYTES], fcp_error *err) {
    _Static_assert((int)FCP_DIGEST_BYTES == (int)FCP_SHA256_BYTES, "a digest is a SHA-256");
    if (plan->extract) {
        memcpy(out_digest, plan->extract->digest, FCP_DIGEST_BYTES);
        return FCP_OK;
    }
    image *im = malloc(sizeof *im);
    if (!im) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the plan's hash");
    if (!image_make(plan, im)) {
        free(im);
        return too_large(err);
    }
    fcp_sha256 h = fcp_sha256_begin();
    for (int i = 0; i < im->count; i++) fcp_sha256_add(&h, im->parts[i].iov_base, im->parts[i].iov_len);
    free(im);
    fcp_sha256_end(&h, out_digest);
    return FCP_OK;
}
