/* by_file.c: sends an id from rank 0 to all ranks through files in a folder that all of them see.
 *
 * An earlier run that died may have left its files, and they must not be taken for this run's. So ranks prove by random
 * numbers that they belong together:
 *   1. Each rank r but 0 draws a random number and writes it to the file PATH.r.
 *   2. Rank 0 writes to PATH the id and all random numbers that it has seen, and again when there are new ones.
 *   3. Rank r reads PATH until its own number is in there, and takes the id. It notes in PATH.r that it has the id.
 *   4. Rank 0 removes PATH.r then, and after the last rank PATH itself, so that no file is left.
 * Rank 0 answers an old PATH.r, too, but that does no harm: this run's rank r soon replaces it with a new number.
 *
 * Files have mode 0600 and are written under another name and renamed, so that nobody reads half of one. Symbolic links
 * are not followed, and a file of another user, or one that others may write, is not believed.
 *
 * Requires: a PATH that only one run uses at a time.
 * Cost:     rank 0 reads one file of each rank that has not come yet, every 1 to 40 milliseconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/whole_file.h"
#include "runtime/rendezvous/rendezvous.h"

enum { NONCE = 16, PATH_ROOM = 4096 };
enum { SOON = 1000000, LATER = 40000000 }; /* nanoseconds from one look to the next, at first and at last */

/* The file PATH.r. */
typedef struct asking {
    char magic[8];
    uint32_t rank, ranks, taken, pad; /* taken: the answer has been read */
    uint8_t nonce[NONCE];
} asking;
/* The file PATH. */
typedef struct answer {
    char magic[8];
    uint32_t ranks, pad;
    uint8_t id[FCP_ID_BYTES];
    uint8_t nonces[][NONCE]; /* one a rank; zeros of a rank that has not asked */
} answer;
static const char ask_magic[8] = "fcpask1", answer_magic[8] = "fcpid_1";

static fcp_code cannot(const char *doing, const char *path, int why, fcp_error *err) {
    return fcp_fail(err, FCP_E_START, "cannot %s '%.300s', which was to carry the id: %s", doing, path, strerror(why));
}

/* Writes a file, whole or not at all. */
static fcp_code put_file(const char *path, const void *bytes, size_t size, fcp_error *err) {
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

/* Reads a file of exactly `size` bytes. False: there is no such file, or it is not ours alone to write. */
static bool get_file(const char *path, void *out, size_t size) {
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
    return get_file(path, out, sizeof *out) && memcmp(out->magic, ask_magic, sizeof ask_magic) == 0 &&
           out->rank == rank && out->ranks == ranks;
}

static fcp_code wait_a_while(const fcp_place *p, long *pause, fcp_error *err) {
    fcp_pause(pause, LATER);
    return fcp_interrupted(p->interrupt) ? fcp_fail(err, FCP_E_INTERRUPTED, "interrupted") : FCP_OK;
}

static void name_of(char out[PATH_ROOM], const char *path, uint32_t rank) {
    snprintf(out, PATH_ROOM, "%s.%u", path, rank);
}

/* --- rank 0 ------------------------------------------------------------------------------------------------------- */

/* Reads the files of all ranks that do not have the id yet. *out_left: the first such rank, 0 if there is none.
 * *out_news: some rank asked with a new number, so the answer has to be written again. */
static void read_askings(const char *path, const fcp_place *p, answer *a, bool *taken, uint32_t *out_left,
                         bool *out_news) {
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

static fcp_code give_id(const fcp_place *p, const char *path, uint32_t timeout_s, const uint8_t id[FCP_ID_BYTES],
                        fcp_error *err) {
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
        read_askings(path, p, a, taken, &left, &news);
        if (!left) break;
        if (news) {
            code = put_file(path, a, size, err);
            written = written || !code;
            pause = SOON;
        }
        if (!code && fcp_patience_ends(&patience)) {
            static const uint8_t none[NONCE];
            bool asked = memcmp(a->nonces[left], none, NONCE) != 0;
            code = fcp_fail(err, FCP_E_START, "rank %u did not %s the id within %u s: looked for '%.300s.%u'", left,
                            asked ? "take" : "ask for", timeout_s, path, left);
        }
        if (!code) code = wait_a_while(p, &pause, err);
    }
    if (written) unlink(path);
    free(a);
    free(taken);
    return code;
}

/* --- the others --------------------------------------------------------------------------------------------------- */

static fcp_code take_id(const fcp_place *p, const char *path, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                        fcp_error *err) {
    size_t size = sizeof(answer) + (size_t)p->ranks * NONCE;
    char name[PATH_ROOM];
    answer *a = calloc(1, size);
    asking x = {.rank = p->rank, .ranks = p->ranks}, there;
    fcp_patience patience = fcp_patience_of(timeout_s, 0.2);
    long pause = SOON;
    memcpy(x.magic, ask_magic, sizeof ask_magic);
    name_of(name, path, p->rank);
    fcp_code code = a ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u ranks", p->ranks);
    if (!code && getrandom(x.nonce, NONCE, 0) != NONCE)
        code = fcp_fail(err, FCP_E_START, "the system has no random numbers");
    if (!code) code = put_file(name, &x, sizeof x, err);
    bool asked = !code, any = false;
    while (!code) {
        bool found =
            get_file(path, a, size) && memcmp(a->magic, answer_magic, sizeof answer_magic) == 0 && a->ranks == p->ranks;
        any |= found;
        if (found && memcmp(a->nonces[p->rank], x.nonce, NONCE) == 0) break;
        if (fcp_patience_ends(&patience))
            code = fcp_fail(err, FCP_E_START, "rank 0 did not answer rank %u in '%.300s' within %u s%s", p->rank, path,
                            timeout_s, any ? ": there was an answer, to others" : "");
        else code = wait_a_while(p, &pause, err);
    }
    if (!code) {
        memcpy(id, a->id, FCP_ID_BYTES);
        x.taken = 1;
        code = put_file(name, &x, sizeof x, err);
    }
    if (code && asked && get_asking(name, p->rank, p->ranks, &there) && memcmp(there.nonce, x.nonce, NONCE) == 0)
        unlink(name);
    free(a);
    return code;
}

fcp_code fcp_id_by_file(const fcp_place *place, const char *path, uint32_t timeout_s, uint8_t id[FCP_ID_BYTES],
                        fcp_error *err) {
    struct stat s;
    if (!*path || strlen(path) > PATH_ROOM - 64)
        return fcp_fail(err, FCP_E_START, "the path of the id's file is empty or too long");
    if (lstat(path, &s) == 0 && (!S_ISREG(s.st_mode) || s.st_uid != geteuid()))
        return fcp_fail(err, FCP_E_START,
                        "'%.300s' was to carry the id, and is something else: not a file, or not ours", path);
    return place->rank ? take_id(place, path, timeout_s, id, err) : give_id(place, path, timeout_s, id, err);
}
