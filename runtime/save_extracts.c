/* save_extracts.c: cuts the extracts of ranks, into a file or for whoever hands them on, and computes their root.
 *
 * Requires: a verified plan.
 * Gives:    the bytes that plan/extract_file.h describes; equal plans give equal bytes. The file is replaced atomically
 *           (base/whole_file.h).
 * Method:   each extract is cut twice: for its leaf and its size, on which everything before it in the file depends,
 *           and to be written or given away. So no more than one is in memory.
 * Cost:     linear in the plan and in the bytes of the extracts; memory for 64 bytes and 4 bundles of each rank.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/read_file.h"
#include "runtime/base/stop.h"
#include "runtime/base/whole_file.h"
#include "runtime/exec/cut.h"
#include "runtime/plan/extract_file.h"

/* The tree over the bodies of all ranks. */
typedef struct tree {
    uint32_t ranks;
    uint8_t digest[FCP_DIGEST_BYTES];
    fcp_hash *nodes;   /* the leaves, then the level above, and so on; the top is the last */
    uint64_t *offsets; /* where each extract begins in the file, and where the last one ends */
    fcp_hash root;
} tree;

static void tree_free(tree *t) {
    free(t->nodes);
    free(t->offsets);
}

static size_t header_bytes(const tree *t, uint32_t rank) {
    return sizeof(extract_header) + fcp_extract_path(rank, t->ranks) * sizeof(fcp_hash);
}

/* The hashes beside the way from a rank's leaf to the top. */
static void find_path(const tree *t, uint32_t rank, fcp_hash *out) {
    const fcp_hash *level = t->nodes;
    for (uint32_t n = t->ranks; n > 1; level += n, n = n / 2 + n % 2, rank /= 2)
        if ((rank ^ 1) < n) *out++ = level[rank ^ 1];
}

/* Computes the nodes above the leaves, and the root. */
static void find_root(tree *t) {
    fcp_hash *level = t->nodes;
    for (uint32_t n = t->ranks; n > 1; level += n, n = n / 2 + n % 2)
        for (uint32_t i = 0; i < n; i += 2)
            level[n + i / 2] = i + 1 < n ? fcp_extract_node(&level[i], &level[i + 1]) : level[i];
    t->root = fcp_extract_root(t->ranks, t->digest, level);
}

static fcp_code make_tree(const fcp_plan *plan, fcp_cutter *cutter, const volatile int *stop, tree *t, fcp_error *err) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    const uint32_t ranks = t->ranks = shape.ranks;
    t->nodes = malloc((2 * (size_t)ranks + 32) * sizeof *t->nodes); /* each level may have half a node more */
    t->offsets = malloc(((size_t)ranks + 1) * sizeof *t->offsets);
    if (!t->nodes || !t->offsets)
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the hashes of %u ranks", ranks);
    fcp_code code = fcp_plan_digest(plan, t->digest, err);
    t->offsets[0] = sizeof(extracts_header) + ((uint64_t)ranks + 1) * sizeof *t->offsets;
    for (uint32_t r = 0; r < ranks && !code; r++) {
        const void *body;
        size_t size;
        if (fcp_stop_asked(stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        code = fcp_cut(cutter, r, &body, &size, err);
        if (code) break;
        t->nodes[r] = fcp_extract_leaf(r, body, size);
        t->offsets[r + 1] = t->offsets[r] + header_bytes(t, r) + size;
    }
    if (!code) find_root(t);
    return code;
}

/* Gives the extracts of some ranks to `take`, one after the other, each as its bytes. */
static fcp_code give_each(fcp_cutter *cutter, const tree *t, uint32_t first, uint32_t count, const volatile int *stop,
                          fcp_take_extract take, void *context, fcp_error *err) {
    uint8_t *bytes = NULL;
    size_t room = 0;
    fcp_code code = FCP_OK;
    for (uint32_t r = first; r < first + count && !code; r++) {
        const void *body;
        size_t size;
        if (fcp_stop_asked(stop)) code = fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        else code = fcp_cut(cutter, r, &body, &size, err);
        if (code) break;
        const size_t before = header_bytes(t, r);
        if (before + size > room) {
            free(bytes);
            bytes = malloc(room = before + size + size / 4);
        }
        if (!bytes) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the extract of rank %u", r);
        if (code) break;
        extract_header h = {.magic = FCP_EXTRACT_MAGIC,
                            .version = FCP_PLAN_VERSION,
                            .rank = r,
                            .ranks = t->ranks,
                            .path = fcp_extract_path(r, t->ranks),
                            .body = size};
        fcp_hash path[32];
        memcpy(h.digest, t->digest, sizeof h.digest);
        find_path(t, r, path);
        memcpy(bytes, &h, sizeof h);
        memcpy(bytes + sizeof h, path, before - sizeof h);
        memcpy(bytes + before, body, size);
        if (!take(context, r, bytes, before + size)) code = fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    }
    free(bytes);
    return code;
}

/* A file to which extracts are appended, and what was wrong with it: an errno value. */
typedef struct extracts_file {
    fcp_beside file;
    int why;
} extracts_file;

static bool append(void *context, uint32_t rank, const void *bytes, size_t size) {
    (void)rank;
    extracts_file *f = context;
    f->why = fcp_write_all(f->file.fd, bytes, size);
    return !f->why;
}

static int write_header(const tree *t, int fd) {
    extracts_header head = {.magic = FCP_EXTRACTS_MAGIC, .version = FCP_PLAN_VERSION, .ranks = t->ranks};
    memcpy(head.digest, t->digest, sizeof head.digest);
    memcpy(head.root, t->root.bytes, sizeof head.root);
    const int why = fcp_write_all(fd, &head, sizeof head);
    return why ? why : fcp_write_all(fd, t->offsets, ((size_t)t->ranks + 1) * sizeof *t->offsets);
}

static fcp_code cannot(const char *path, int why, fcp_error *err) {
    char room[128];
    return fcp_fail_in(err, why == ENOMEM ? FCP_E_NO_MEMORY : FCP_E_WRITE, path, 0, 0, "cannot write '%.300s': %s",
                       path, fcp_read_reason(why, room));
}

static fcp_code write_all(fcp_cutter *cutter, const tree *t, const char *path, const volatile int *stop,
                          fcp_error *err) {
    extracts_file f = {.file.fd = -1};
    fcp_code code = FCP_OK;
    f.why = fcp_beside_open(&f.file, path, false);
    if (!f.why) f.why = write_header(t, f.file.fd);
    if (!f.why) code = give_each(cutter, t, 0, t->ranks, stop, append, &f, err);
    if (!f.why && !code) f.why = fcp_beside_commit(&f.file);
    fcp_beside_abandon(&f.file);
    return f.why ? cannot(path, f.why, err) : code;
}

/* What is wanted beside the root: a file, or bytes, or nothing. */
typedef struct wanted {
    const char *path;
    uint32_t first, count;
    fcp_take_extract take;
    void *context;
} wanted;

static fcp_code cut_all(const fcp_plan *plan, const wanted *w, const volatile int *stop,
                        uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err) {
    fcp_cutter *cutter = NULL;
    tree t = {0};
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    if (w->first > shape.ranks || w->count > shape.ranks - w->first)
        return fcp_fail(err, FCP_E_ARGUMENT, "the plan has %u ranks, and not %u from rank %u on", shape.ranks, w->count,
                        w->first);
    fcp_code code = fcp_cutter_make(plan, 0, shape.ranks, &cutter, err);
    if (!code) code = make_tree(plan, cutter, stop, &t, err);
    if (!code && w->path) code = write_all(cutter, &t, w->path, stop, err);
    if (!code && w->take) code = give_each(cutter, &t, w->first, w->count, stop, w->take, w->context, err);
    if (!code) memcpy(out_root, t.root.bytes, FCP_DIGEST_BYTES);
    tree_free(&t);
    fcp_cutter_free(cutter);
    return code;
}

fcp_code fcp_extracts_save(const fcp_plan *plan, const char *path, const volatile int *stop,
                           uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err) {
    return cut_all(plan, &(wanted){.path = path}, stop, out_root, err);
}

fcp_code fcp_extracts_cut(const fcp_plan *plan, uint32_t first, uint32_t count, const volatile int *stop,
                          fcp_take_extract take, void *context, uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err) {
    return cut_all(plan, &(wanted){.first = first, .count = count, .take = take, .context = context}, stop, out_root,
                   err);
}

fcp_code fcp_extracts_root(const fcp_plan *plan, const volatile int *stop, uint8_t out_root[FCP_DIGEST_BYTES],
                           fcp_error *err) {
    return cut_all(plan, &(wanted){0}, stop, out_root, err);
}
