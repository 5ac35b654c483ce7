/* load.c: loads a plan from a file, or from bytes in memory. The bytes may be hostile.
 *
 * Requires: no process shortens or rewrites the mapped file while the plan is in use. fcp_plan_save never does: it
 *           replaces the file by a new one.
 * Gives:    a plan whose tables lie in the mapped file (fcp_plan_load) or in a copy (fcp_plan_load_memory).
 * Order:    nothing is used before it is checked:
 *           1. magic, size, the header's checksum, version and features;
 *           2. the section table, in which every offset must be the one that follows from the lengths;
 *           3. the checksums of the sections, and the zeros between them;
 *           4. index, check and verify.
 *           No memory is allocated in proportion to a number that the file merely states.
 * Cost:     linear; one pass for the checksums.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/read_file.h"
#include "runtime/plan/file.h"
#include "runtime/plan/plan_check.h"
#include "runtime/plan/plan_index.h"
#include "runtime/verify/verify.h"

typedef struct owner {
    void *base;
    size_t size;
    bool mapped;
} owner;

static void release(void *data) {
    owner *o = data;
    if (o->mapped)
        munmap(o->base, o->size);
    else
        free(o->base);
    free(o);
}

/* Checks the header, as far as that is possible without the rest. */
static fcp_code check_header(const uint8_t *base, uint64_t size, file_header *h, fcp_error *err) {
    size_t magic = sizeof h->magic, have = size < magic ? (size_t)size : magic;
    if (memcmp(base, FCP_MAGIC, have)) return fcp_fail(err, FCP_E_PLAN_MAGIC, "not a plan: it begins otherwise");
    if (size < sizeof *h)
        return fcp_fail(err, FCP_E_PLAN_TRUNCATED, "the plan is cut short: %llu bytes, not even a header",
                        (unsigned long long)size);
    memcpy(h, base, sizeof *h);
    if (h->header_crc != fcp_crc32c(h, offsetof(file_header, header_crc)))
        return fcp_fail(err, FCP_E_PLAN_CHECKSUM, "the plan was altered: its header's checksum does not match");
    if (h->reader_version > FCP_PLAN_VERSION || h->required & ~(uint64_t)FCP_KNOWN_FEATURES)
        return fcp_fail(err, FCP_E_PLAN_VERSION,
                        "the plan was written in version %u and needs a reader of version %u with features %#llx; this "
                        "is version %u with features %#llx: use the fcpc that wrote it, or compile it again here",
                        h->writer_version, h->reader_version, (unsigned long long)h->required, FCP_PLAN_VERSION,
                        (unsigned long long)FCP_KNOWN_FEATURES);
    if (h->writer_version && h->writer_version < FCP_PLAN_VERSION)
        return fcp_fail(err, FCP_E_PLAN_VERSION,
                        "the plan is older: it is of version %u, and this is version %u; compile it again",
                        h->writer_version, FCP_PLAN_VERSION);
    if (h->total_size != size)
        return fcp_fail(err, FCP_E_PLAN_TRUNCATED, "the plan is %s: %llu bytes, and its header says %llu",
                        size < h->total_size ? "cut short" : "too long", (unsigned long long)size,
                        (unsigned long long)h->total_size);
    const uint32_t sections = fcp_feature_sections(h->required);
    if (h->header_size != fcp_header_size(sections) || h->sections != sections || h->reserved ||
        h->writer_version == 0 || h->reader_version == 0 || h->reader_version > h->writer_version ||
        size < fcp_header_size(sections))
        return fcp_fail(err, FCP_E_PLAN_FORMAT, "the plan's header is not one of version %u", FCP_PLAN_VERSION);
    return FCP_OK;
}

static fcp_code check_zeros(const uint8_t *base, uint64_t from, uint64_t to, fcp_error *err) {
    for (uint64_t i = from; i < to; i++)
        if (base[i])
            return fcp_fail(err, FCP_E_PLAN_CHECKSUM,
                            "the plan was altered: byte %llu between its sections is not zero", (unsigned long long)i);
    return FCP_OK;
}

/* Everything around the tables. */
static fcp_code check_file(const uint8_t *base, uint64_t size, file_entry entries[FCP_SECTION_COUNT], fcp_error *err) {
    file_header header;
    fcp_code code = check_header(base, size, &header, err);
    if (code) return code;
    const uint32_t sections = header.sections;
    memset(entries, 0, FCP_SECTION_COUNT * sizeof *entries);
    memcpy(entries, base + sizeof header, sections * sizeof *entries);
    if (header.table_crc != fcp_crc32c(entries, sections * sizeof *entries))
        return fcp_fail(err, FCP_E_PLAN_CHECKSUM, "the plan was altered: its section table's checksum does not match");
    uint64_t lengths[FCP_SECTION_COUNT], offsets[FCP_SECTION_COUNT], total;
    for (int i = 0; i < FCP_SECTION_COUNT; i++) lengths[i] = entries[i].length;
    if (!fcp_file_offsets(lengths, offsets, &total) || total != size || fcp_file_features(lengths) != header.required)
        return fcp_fail(err, FCP_E_PLAN_FORMAT, "the lengths of the plan's sections do not make up its size");
    for (uint32_t i = 0; i < sections; i++) {
        const file_entry *e = &entries[i];
        if (e->type != i || e->record_size != fcp_record_sizes[i] || e->offset != offsets[i] || e->reserved ||
            e->length % e->record_size || e->length / e->record_size >= FCP_NONE)
            return fcp_fail(err, FCP_E_PLAN_FORMAT, "the plan's section %d (%s) is not as version %u has it", (int)i,
                            fcp_section_names[i], FCP_PLAN_VERSION);
    }
    if ((code = check_zeros(base, fcp_header_used(sections), fcp_header_size(sections), err))) return code;
    for (uint32_t i = 0; i < sections; i++) {
        const file_entry *e = &entries[i];
        if (e->crc != fcp_crc32c(base + e->offset, e->length))
            return fcp_fail(err, FCP_E_PLAN_CHECKSUM,
                            "the plan was altered: the checksum of its section %d (%s) does not match", (int)i,
                            fcp_section_names[i]);
        uint64_t next = i + 1 < sections ? offsets[i + 1] : size;
        if ((code = check_zeros(base, e->offset + e->length, next, err))) return code;
    }
    return FCP_OK;
}

/* Takes over `base`, also on failure. */
static fcp_code load(void *base, size_t size, bool mapped, fcp_plan **out_plan, fcp_error *err) {
    fcp_plan *plan = calloc(1, sizeof *plan);
    owner *o = malloc(sizeof *o);
    owner here = {base, size, mapped};
    if (!plan || !o) {
        free(plan);
        free(o);
        if (mapped)
            munmap(base, size);
        else
            free(base);
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    }
    *o = here;
    plan->owner = o;
    plan->release = release;
    file_entry entries[FCP_SECTION_COUNT];
    fcp_code code = check_file(base, size, entries, err);
    if (!code) {
        const uint8_t *bytes = base;
#define X(id, type, member)                                                                                            \
    plan->member = (const type *)(const void *)(bytes + entries[FCP_SECTION_##id].offset);                             \
    plan->member##_count = entries[FCP_SECTION_##id].length / sizeof(type);
        FCP_SECTIONS(X)
#undef X
        code = fcp_plan_index(plan, err);
    }
    if (!code) code = fcp_plan_check(plan, NULL, err);
    if (!code) code = fcp_plan_verify(plan, NULL, NULL, err);
    if (code)
        fcp_plan_free(plan);
    else
        *out_plan = plan;
    return code;
}

static fcp_code cannot(const char *path, int why, fcp_error *err) {
    char room[128];
    return fcp_fail_in(err, FCP_E_READ, path, 0, 0, "cannot read '%.300s': %s", path, fcp_read_reason(why, room));
}

/* Checks the header before the file is mapped, so that a file that is much longer than its plan is never read. */
static fcp_code check_beginning(int fd, uint64_t size, int *out_why, fcp_error *err) {
    uint8_t bytes[sizeof(file_header)];
    file_header header;
    const size_t want = size < sizeof bytes ? (size_t)size : sizeof bytes;
    const ssize_t got = pread(fd, bytes, want, 0);
    if (got < 0 || (size_t)got != want) {
        *out_why = got < 0 ? errno : EIO;
        return FCP_OK;
    }
    return check_header(bytes, size, &header, err);
}

fcp_code fcp_plan_load(const char *path, fcp_plan **out_plan, fcp_error *err) {
    int fd;
    uint64_t size;
    int why = fcp_read_open(path, true, &fd, &size);
    if (why) return cannot(path, why, err);
    void *base = MAP_FAILED;
    fcp_code code = FCP_OK;
    if (size == 0 || size > SIZE_MAX)
        code = fcp_fail(err, FCP_E_PLAN_TRUNCATED, "the plan is cut short: the file is empty");
    else if ((code = check_beginning(fd, size, &why, err)) || why)
        ;
    else if ((base = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0)) == MAP_FAILED)
        why = errno;
    close(fd);
    if (why) return cannot(path, why, err);
    if (!code) code = load(base, size, true, out_plan, err);
    if (code && err) snprintf(err->file, sizeof err->file, "%s", path);
    return code;
}

fcp_code fcp_plan_load_memory(const void *bytes, size_t size, fcp_plan **out_plan, fcp_error *err) {
    if (size == 0) return fcp_fail(err, FCP_E_PLAN_TRUNCATED, "the plan is cut short: no bytes");
    void *copy = size <= SIZE_MAX - FCP_FILE_ALIGN
                     ? aligned_alloc(FCP_FILE_ALIGN, (size + FCP_FILE_ALIGN - 1) / FCP_FILE_ALIGN * FCP_FILE_ALIGN)
                     : NULL;
    if (!copy) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a plan of %zu bytes", size);
    memcpy(copy, bytes, size);
    return load(copy, size, false, out_plan, err);
}
