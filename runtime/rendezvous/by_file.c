/* by_file.c: an id from rank 0 to all ranks, by files in a folder that all of them see.
 *
 * Requires: a path for one run at a time. Gives: rendezvous.h. Nothing is left where all ranks came.
 * Method:   what an earlier run left must not be taken for an answer. So every rank r but 0 asks, in PATH.r, with a number that
 *           it draws; rank 0 answers in PATH with the id and the numbers that it has seen; a rank takes an answer only with its
 *           own number in it, and says so in PATH.r; then rank 0 removes that, and last of all PATH. A number that an earlier run
 *           left is answered like any other, and harms nobody: its rank asks with a new one.
 * Files:    0600, written beside and renamed, so that each is whole; not followed if links, not believed if not ours.
 * Cost:     a file a rank, read by rank 0 every few milliseconds until that rank has come.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/whole_file.h"
#include "runtime/base/clock.h"
#include "runtime/rendezvous/rendezvous.h"

enum { NONCE = 16, PATH_ROOM = 4096, SOON = 1000000, LATER = 50000000 }; /* SOON, LATER: nanoseconds between two looks */

typedef struct asking {
    char magic[8];
    uint32_t rank, ranks, taken, pad; /* taken: the answer has been read */
    uint8_t nonce[NONCE];
} asking;
typedef struct answer {
    char magic[8];
    uint32_t ranks, pad;
    uint8_t id[FCP_ID_BYTES];
    uint8_t nonces[][NONCE]; /* of each rank; zeros of those that have not asked */
} answer;
static const char ask_magic[8] = "fcpask1", answer_magic[8] = "fcpid_1";

static fcp_code cannot(const char *doing, const char *path, int why, fcp_error *err) {
    return fcp_fail(err, FCP_E_START, "cannot %s '%.300s', which was to carry the id: %s", doing, path, strerror(why));
}

/* A whole file, or none. */
static fcp_code put(const char *path, const void *bytes, size_t size, fcp_error *err) {
    char temporary[PATH_ROOM + 32];
    snprintf(temporary, sizeof temporary, "%s.tmp%ld", path, (long)getpid());
    unlink(temporary);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return cannot("make", temporary, errno, err);
    int why = fcp_write_all(fd, bytes, size);
    if (close(fd) && !why) why = errno;
    if (!why && rename(temporary, path)) why = errno;
    if (!why) return FCP_OK;
    unlink(temporary);
    return cannot("write", path, why, err);
}

/* A file of exactly `size` bytes. False: not there, or not one of ours. */
static bool get(const char *path, void *out, size_t size) {
    struct stat s;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    bool good = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() && !(s.st_mode & 022) &&
                s.st_size >= 0 && (size_t)s.st_size == size;
    for (size_t at = 0; good && at < size;) {
        ssize_t got = read(fd, (char *)out + at, size - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) good = false;
        else at += (size_t)got;
    }
    close(fd);
    return good;
}

static bool get_asking(const char *path, uint32_t rank, uint32_t ranks, asking *out) {
    return get(path, out, sizeof *out) && memcmp(out->magic, ask_magic, sizeof ask_magic) == 0 && out->rank == rank &&
           out->ranks == ranks;
}

static void name_of(char out[PATH_ROOM], const char *path, uint32_t rank) {
    snprintf(out, PATH_ROOM, "%s.%u", path, rank);
}

/* --- rank 0 ------------------------------------------------------------------------------------------------------- */

/* Looks at what every rank that has not taken its answer asks. *out_left: the first of them; *out_news: an answer to write. */
static void look(const char *path, const fcp_place *p, answer *a, bool *taken, uint32_t *out_left, bool *out_news) {
    char name[PATH_ROOM];
    asking x;
    *out_left = 0;
    for (uint32_t r = 1; r < p->ranks; r++) {
        if (taken[r]) continue;
        name_of(name, path, r);
        if (get_asking(name, r, p->ranks, &x)) {
            bool answered = memcmp(x.nonce, a->nonces[r], NONCE) == 0;
            if (x.taken && answered) taken[r] = unlink(name) == 0 || errno == ENOENT;
            else if (!x.taken && !answered) {
                memcpy(a->nonces[r], x.nonce, NONCE);
                *out_news = true;
            }
        }
        if (!taken[r] && !*out_left) *out_left = r;
    }
}

static fcp_code give(const fcp_place *p, const char *path, uint32_t timeout_s, const uint8_t id[FCP_ID_BYTES], fcp_error *err) {
    size_t size = sizeof(answer) + (size_t)p->ranks * NONCE;
    answer *a = calloc(1, size);
    bool *taken = calloc(p->ranks, sizeof *taken);
    fcp_patience patience = fcp_patience_of(timeout_s, 0.2);
    long pause = SOON;
    fcp_code code = FCP_OK;
    bool written = false;
    if (!a || !taken) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", p->ranks);
    else {
        memcpy(a->magic, answer_magic, sizeof answer_magic);
        a->ranks = p->ranks;
        memcpy(a->id, id, FCP_ID_BYTES);
    }
    while (!code) {
        uint32_t left;
        bool news = false;
        look(path, p, a, taken, &left, &news);
        if (!left) break;
        if (news) {
            code = put(path, a, size, err);
            written = written || !code;
            pause = SOON;
        }
        if (!code && fcp_patience_ends(&patience)) {
            static const uint8_t none[NONCE];
            bool asked = memcmp(a->nonces[left], none, NONCE) != 0;
            code = fcp_fail(err, FCP_E_START, "rank %u did not %s the id within %u s: looked for '%.300s.%u'", left,
                            asked ? "take" : "ask for", timeout_s, path, left);
        }
        if (!code) fcp_pause(&pause, LATER);
    }
    if (written) unlink(path);
    free(a);
    free(taken);
    return code;
}

/* --- the others --------------------------------------------------------------------------------------------------- */

static fcp_code take(const fcp_place *p, const char *path, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES], fcp_error *err) {
    size_t size = sizeof(answer) + (size_t)p->ranks * NONCE;
    char name[PATH_ROOM];
    answer *a = calloc(1, size);
    asking x = {.rank = p->rank, .ranks = p->ranks}, there;
    fcp_patience patience = fcp_patience_of(timeout_s, 0.2);
    long pause = SOON;
    memcpy(x.magic, ask_magic, sizeof ask_magic);
    name_of(name, path, p->rank);
    fcp_code code = a ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", p->ranks);
    if (!code && getrandom(x.nonce, NONCE, 0) != NONCE) code = fcp_fail(err, FCP_E_START, "the system has no random numbers");
    if (!code) code = put(name, &x, sizeof x, err);
    bool asked = !code, any = false;
    for (; !code; fcp_pause(&pause, LATER)) {
        bool found = get(path, a, size) && memcmp(a->magic, answer_magic, sizeof answer_magic) == 0 && a->ranks == p->ranks;
        any |= found;
        if (found && memcmp(a->nonces[p->rank], x.nonce, NONCE) == 0) break;
        if (fcp_patience_ends(&patience))
            code = fcp_fail(err, FCP_E_START, "rank 0 did not answer rank %u in '%.300s' within %u s%s", p->rank, path, timeout_s,
                            any ? ": there was an answer, to others" : "");
    }
    if (!code) {
        memcpy(id, a->id, FCP_ID_BYTES);
        x.taken = 1;
        code = put(name, &x, sizeof x, err);
    }
    if (code && asked && get_asking(name, p->rank, p->ranks, &there) && memcmp(there.nonce, x.nonce, NONCE) == 0) unlink(name);
    free(a);
    return code;
}

fcp_code fcp_id_by_file(const fcp_place *place, const char *path, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                        fcp_error *err) {
    struct stat s;
    if (!*path || strlen(path) > PATH_ROOM - 64)
        return fcp_fail(err, FCP_E_START, "the path of the id's file is empty or too long");
    if (lstat(path, &s) == 0 && (!S_ISREG(s.st_mode) || s.st_uid != geteuid()))
        return fcp_fail(err, FCP_E_START, "'%.300s' was to carry the id, and is something else: not a file, or not ours", path);
    return place->rank ? take(place, path, timeout_s, id, err) : give(place, path, timeout_s, id, err);
}
