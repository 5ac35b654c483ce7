/* save_extracts.c: cuts the extracts of all ranks into a file, and computes their root.
 *
 * Requires: a verified plan.
 * Gives:    the bytes that plan/extract_file.h describes; equal plans give equal bytes. The file is replaced atomically
 *           (base/whole_file.h).
 * Method:   each extract is cut twice: for its leaf and its size, on which everything before it in the file depends,
 *           and to be written. So no more than one is in memory.
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

/* 0, or an errno value; *out_code is FCP_OK if that says all. */
static int write_all(fcp_cutter *cutter, const tree *t, int fd, const volatile int *stop, fcp_code *out_code,
                     fcp_error *err) {
    extracts_header head = {.magic = FCP_EXTRACTS_MAGIC, .version = FCP_PLAN_VERSION, .ranks = t->ranks};
    memcpy(head.digest, t->digest, sizeof head.digest);
    memcpy(head.root, t->root.bytes, sizeof head.root);
    int why = fcp_write_all(fd, &head, sizeof head);
    if (!why) why = fcp_write_all(fd, t->offsets, ((size_t)t->ranks + 1) * sizeof *t->offsets);
    for (uint32_t r = 0; r < t->ranks && !why; r++) {
        struct {
            extract_header header;
            fcp_hash path[32];
        } own;
        const void *body;
        size_t size;
        if (fcp_stop_asked(stop)) *out_code = fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
        else *out_code = fcp_cut(cutter, r, &body, &size, err);
        if (*out_code) return 0;
        own.header = (extract_header){.magic = FCP_EXTRACT_MAGIC,
                                      .version = FCP_PLAN_VERSION,
                                      .rank = r,
                                      .ranks = t->ranks,
                                      .path = fcp_extract_path(r, t->ranks),
                                      .body = size};
        memcpy(own.header.digest, t->digest, sizeof own.header.digest);
        find_path(t, r, own.path);
        why = fcp_write_all(fd, &own, header_bytes(t, r));
        if (!why) why = fcp_write_all(fd, body, size);
    }
    return why;
}

static fcp_code cannot(const char *path, int why, fcp_error *err) {
    char room[128];
    return fcp_fail_in(err, why == ENOMEM ? FCP_E_NO_MEMORY : FCP_E_WRITE, path, 0, 0, "cannot write '%.300s': %s",
                       path, fcp_read_reason(why, room));
}

/* path NULL: only the root is wanted. */
static fcp_code cut_all(const fcp_plan *plan, const char *path, const volatile int *stop,
                        uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err) {
    fcp_cutter *cutter = NULL;
    tree t = {0};
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_cutter_make(plan, 0, shape.ranks, &cutter, err);
    if (!code) code = make_tree(plan, cutter, stop, &t, err);
    if (!code && path) {
        fcp_beside file = {.fd = -1};
        int why = fcp_beside_open(&file, path, false);
        if (!why) why = write_all(cutter, &t, file.fd, stop, &code, err);
        if (!why && !code) why = fcp_beside_commit(&file);
        fcp_beside_abandon(&file);
        if (why) code = cannot(path, why, err);
    }
    if (!code) memcpy(out_root, t.root.bytes, FCP_DIGEST_BYTES);
    tree_free(&t);
    fcp_cutter_free(cutter);
    return code;
}

fcp_code fcp_extracts_save(const fcp_plan *plan, const char *path, const volatile int *stop,
                           uint8_t out_root[FCP_DIGEST_BYTES], fcp_error *err) {
    return cut_all(plan, path, stop, out_root, err);
}

fcp_code fcp_extracts_root(const fcp_plan *plan, const volatile int *stop, uint8_t out_root[FCP_DIGEST_BYTES],
                           fcp_error *err) {
    return cut_all(plan, NULL, stop, out_root, err);
}
