/* journal.c: keeps the journal that gpu.h describes. A line is written to the end of the file by one call and is on
 * disk when that returns. If the machine went away while a line was written, its beginning is dropped when the file is
 * opened again. Cost: a search reads the whole text.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

struct journal {
    int fd;
    char *text; /* NUL-terminated */
    size_t size;
};
#define HEAD "gpu-check 1\tkey\t"

void journal_reload(journal *j) {
    off_t end = lseek(j->fd, 0, SEEK_END);
    char *text = end >= 0 ? malloc((size_t)end + 1) : NULL;
    size_t size = 0;
    if (!text) return;
    for (ssize_t got = 1; got > 0 && size < (size_t)end; size += got > 0 ? (size_t)got : 0)
        got = pread(j->fd, text + size, (size_t)end - size, (off_t)size);
    while (size && text[size - 1] != '\n') size--;
    text[size] = 0;
    free(j->text);
    j->text = text;
    j->size = size;
}

static bool put(journal *j, const char *line, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t n = write(j->fd, line + done, size - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    fsync(j->fd); /* where the file system cannot, the line is written nevertheless */
    return true;
}

journal *journal_open(const char *path, const char *key, bool again, char why[300]) {
    journal *j = calloc(1, sizeof *j);
    char head[600];
    int size = snprintf(head, sizeof head, HEAD "%s\n", key);
    if (!j || size < 0 || (size_t)size >= sizeof head) {
        snprintf(why, 300, "out of memory");
        free(j);
        return NULL;
    }
    j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (j->fd < 0) {
        snprintf(why, 300, "cannot open '%.200s': %s", path, strerror(errno));
        free(j);
        return NULL;
    }
    journal_reload(j);
    bool same = !again && j->text && j->size >= (size_t)size && memcmp(j->text, head, (size_t)size) == 0;
    /* what was cut short goes, so that the next line does not continue it */
    bool good = ftruncate(j->fd, same ? (off_t)j->size : 0) == 0 && (same || put(j, head, (size_t)size));
    if (!good) {
        snprintf(why, 300, "cannot write '%.200s': %s", path, strerror(errno));
        journal_close(j);
        return NULL;
    }
    journal_reload(j);
    return j;
}

void journal_close(journal *j) {
    if (!j) return;
    close(j->fd);
    free(j->text);
    free(j);
}

bool journal_add(journal *j, const char *kind, const char *name, const char *rest) {
    char line[1600];
    int size = snprintf(line, sizeof line - 1, "%s\t%s\t%s", kind, name, rest);
    if (size < 0) return false;
    if ((size_t)size > sizeof line - 2) size = sizeof line - 2;
    for (int i = 0; i < size; i++)
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
    line[size] = '\n';
    bool good = put(j, line, (size_t)size + 1);
    journal_reload(j);
    return good;
}

bool journal_next(const journal *j, size_t *at, const char *kind, char *name, size_t name_size, char *rest,
                  size_t size) {
    size_t length = strlen(kind);
    while (j->text && *at < j->size) {
        const char *line = j->text + *at, *end = memchr(line, '\n', j->size - *at);
        if (!end) return false;
        *at = (size_t)(end - j->text) + 1;
        if ((size_t)(end - line) <= length || memcmp(line, kind, length) || line[length] != '\t') continue;
        const char *from = line + length + 1, *tab = memchr(from, '\t', (size_t)(end - from));
        if (!tab) continue;
        if (name) snprintf(name, name_size, "%.*s", (int)(tab - from), from);
        if (rest) snprintf(rest, size, "%.*s", (int)(end - tab - 1), tab + 1);
        return true;
    }
    return false;
}

bool journal_find(const journal *j, const char *kind, const char *name, char *rest, size_t size) {
    char found[200];
    bool any = false;
    for (size_t at = 0, before = 0; journal_next(j, &at, kind, found, sizeof found, NULL, 0); before = at)
        if (strcmp(found, name) == 0) {
            any = true;
            if (rest) journal_next(j, &before, kind, NULL, 0, rest, size);
        }
    return any;
}

unsigned journal_count(const journal *j, const char *kind, const char *name) {
    char found[200];
    unsigned count = 0;
    for (size_t at = 0; journal_next(j, &at, kind, found, sizeof found, NULL, 0);) count += strcmp(found, name) == 0;
    return count;
}
