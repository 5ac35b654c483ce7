/* test_whole_file.c: tests that a file is written whole or not at all, also through a symbolic link. The next writer
 * removes the temporary file of a writer that was killed, but never one that another process still writes. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "runtime/base/whole_file.h"
#include "tests/support/temporary.h"

static char folder[TEMPORARY];
static void begin(void) { cr_assert(temporary_folder(folder, "whole")); }
static void end(void) {
    char command[TEMPORARY + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}
TestSuite(whole_file, .init = begin, .fini = end);

static const char *path_of(const char *name) {
    static char paths[4][TEMPORARY + 64];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}
static int write_whole(const char *path, const char *text) {
    fcp_beside f;
    int why = fcp_beside_open(&f, path, false);
    if (!why) why = fcp_write_all(f.fd, text, strlen(text));
    if (!why) why = fcp_beside_close(&f);
    if (!why) why = fcp_beside_commit(&f);
    fcp_beside_abandon(&f);
    return why;
}
static bool holds(const char *path, const char *text) {
    char got[256] = "";
    FILE *f = fopen(path, "r");
    if (!f) return false;
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    return strcmp(got, text) == 0;
}
static int names(void) { /* in the folder */
    int count = 0;
    DIR *d = opendir(folder);
    cr_assert(d);
    for (struct dirent *e; (e = readdir(d));) count += *e->d_name != '.';
    closedir(d);
    return count;
}

Test(whole_file, replaces_or_leaves_alone) {
    const char *path = path_of("a");
    cr_assert_eq(write_whole(path, "one"), 0);
    cr_assert_eq(write_whole(path, "two"), 0);
    cr_assert(holds(path, "two") && names() == 1);
    fcp_beside f;
    cr_assert_eq(fcp_beside_open(&f, path, false), 0);
    cr_assert_eq(fcp_write_all(f.fd, "three", 5), 0);
    cr_assert(holds(path, "two") && names() == 2);
    fcp_beside_abandon(&f);
    fcp_beside_abandon(&f);
    cr_assert(holds(path, "two") && names() == 1);
    cr_assert_eq(fcp_beside_open(&f, path_of("no/such"), false), ENOENT);
    cr_assert_eq(fcp_beside_open(&f, folder, false), EISDIR);
    cr_assert_eq(fcp_beside_open(&f, "", false), ENOENT);
    cr_assert_eq(names(), 1);
}

Test(whole_file, follows_links) {
    cr_assert_eq(mkdir(path_of("sub"), 0777), 0);
    cr_assert_eq(write_whole(path_of("sub/real"), "old"), 0);
    cr_assert_eq(symlink("sub/real", path_of("link")), 0);
    cr_assert_eq(symlink("../link", path_of("sub/back")), 0); /* a link to a link */
    cr_assert_eq(symlink("sub/new", path_of("dangling")), 0);
    cr_assert_eq(symlink("loop", path_of("loop")), 0);
    struct stat about;
    cr_assert_eq(write_whole(path_of("link"), "first"), 0);
    cr_assert(holds(path_of("sub/real"), "first"));
    cr_assert(lstat(path_of("link"), &about) == 0 && S_ISLNK(about.st_mode));
    cr_assert_eq(write_whole(path_of("sub/back"), "second"), 0);
    cr_assert(holds(path_of("sub/real"), "second"));
    cr_assert(lstat(path_of("sub/back"), &about) == 0 && S_ISLNK(about.st_mode));
    cr_assert_eq(write_whole(path_of("dangling"), "third"), 0);
    cr_assert(holds(path_of("sub/new"), "third") && holds(path_of("dangling"), "third"));
    cr_assert_eq(write_whole(path_of("loop"), "no"), ELOOP);
    cr_assert_eq(names(), 4);
}

Test(whole_file, writes_devices_and_pipes_directly) {
    struct stat before, after;
    cr_assert_eq(stat("/dev/null", &before), 0);
    cr_assert_eq(write_whole("/dev/null", "gone"), 0);
    cr_assert(stat("/dev/null", &after) == 0 && S_ISCHR(after.st_mode) && before.st_ino == after.st_ino);
    cr_assert_eq(write_whole("/dev/full", "too much"), ENOSPC);
    cr_assert_eq(symlink("/dev/null", path_of("null")), 0);
    cr_assert_eq(write_whole(path_of("null"), "gone"), 0);
    cr_assert_eq(mkfifo(path_of("pipe"), 0666), 0);
    int reader = open(path_of("pipe"), O_RDONLY | O_NONBLOCK);
    char got[8] = "";
    cr_assert_eq(write_whole(path_of("pipe"), "through"), 0);
    cr_assert(read(reader, got, sizeof got - 1) == 7 && strcmp(got, "through") == 0);
    close(reader);
    /* an open file, named by its number: that very file, not another of its name */
    int fd = open(path_of("open"), O_RDWR | O_CREAT, 0666);
    char number[32];
    snprintf(number, sizeof number, "/proc/self/fd/%d", fd);
    cr_assert_eq(write_whole(number, "here"), 0);
    cr_assert(pread(fd, got, sizeof got - 1, 0) == 4 && memcmp(got, "here", 4) == 0);
    close(fd);
    cr_assert_eq(names(), 3);
}

/* A child that opens a file, writes a part of it, and waits to be killed, or to be told to go on. */
static pid_t writer(const char *path, int *out_go_on) {
    int ready[2], go_on[2];
    cr_assert(pipe(ready) == 0 && pipe(go_on) == 0);
    pid_t child = fork();
    if (child == 0) {
        fcp_beside f;
        char byte;
        close(go_on[1]);
        int why = fcp_beside_open(&f, path, false);
        if (!why) why = fcp_write_all(f.fd, "child", 5);
        if (write(ready[1], "", 1) != 1) why = EPIPE;
        if (read(go_on[0], &byte, 1) != 1) why = EPIPE;
        if (!why) why = fcp_beside_commit(&f);
        _exit(why ? 1 : 0);
    }
    char byte;
    cr_assert(child > 0 && read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    close(go_on[0]);
    *out_go_on = go_on[1];
    return child;
}

Test(whole_file, a_killed_writers_files_are_removed) {
    const char *path = path_of("a");
    int go_on[3];
    pid_t child[3];
    for (int i = 0; i < 3; i++) child[i] = writer(path, &go_on[i]);
    cr_assert_eq(names(), 3);
    for (int i = 0; i < 3; i += 2) { /* the first and the last; the second lives on */
        cr_assert(kill(child[i], SIGKILL) == 0 && waitpid(child[i], NULL, 0) == child[i]);
        close(go_on[i]);
    }
    cr_assert_eq(names(), 3);
    cr_assert_eq(write_whole(path, "parent"), 0);
    cr_assert(holds(path, "parent"));
    cr_assert_eq(names(), 2, "the file, and that of the living writer: %d", names());
    int status;
    cr_assert_eq(write(go_on[1], "", 1), 1);
    cr_assert(waitpid(child[1], &status, 0) == child[1] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert(holds(path, "child") && names() == 1);
}

/* What merely looks like a leftover stays. */
Test(whole_file, other_files_stay) {
    cr_assert_eq(symlink("/dev/null", path_of("a.fcpc-tmp0")), 0);
    cr_assert_eq(mkdir(path_of("a.fcpc-tmp1"), 0777), 0);
    cr_assert_eq(mkfifo(path_of("a.fcpc-tmp2"), 0666), 0);
    cr_assert_eq(write_whole(path_of("b"), "other"), 0);
    cr_assert_eq(write_whole(path_of("a"), "whole"), 0);
    cr_assert(holds(path_of("a"), "whole") && holds(path_of("b"), "other") && names() == 5);
}

/* Many processes write one file at once, and some are killed. At any time the file is whole and of one writer, and in
 * the end nothing else is left. */
Test(whole_file, many_writers) {
    enum { WRITERS = 8, TIMES = 60, SIZE = 200 };
    const char *path = path_of("a");
    cr_assert_eq(write_whole(path, "x"), 0);
    pid_t child[WRITERS];
    for (int w = 0; w < WRITERS; w++)
        if ((child[w] = fork()) == 0) {
            char text[SIZE + 1] = "";
            memset(text, 'a' + w, SIZE);
            int why = 0;
            for (int i = 0; i < TIMES && !why; i++) {
                if (w % 4 == 3 && i == TIMES / 2) raise(SIGKILL);
                fcp_beside f;
                why = fcp_beside_open(&f, path, false);
                if (!why) why = fcp_write_all(f.fd, text, SIZE / 2);
                if (!why) why = fcp_write_all(f.fd, text + SIZE / 2, SIZE / 2);
                if (w % 4 == 3 && i == TIMES / 2 - 1) raise(SIGKILL);
                if (!why) why = fcp_beside_commit(&f);
            }
            _exit(why);
        }
    for (int left = WRITERS; left;) {
        int status;
        if (waitpid(-1, &status, WNOHANG) > 0) {
            left--;
            cr_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "%s", strerror(WEXITSTATUS(status)));
        }
        char got[SIZE + 2] = "";
        FILE *f = fopen(path, "r");
        size_t size = f ? fread(got, 1, sizeof got, f) : 0;
        cr_assert(size == 1 || size == SIZE, "%zu bytes", size);
        for (size_t i = 1; i < size; i++) cr_assert_eq(got[i], got[0]);
        fclose(f);
    }
    cr_assert_eq(write_whole(path, "end"), 0);
    cr_assert(holds(path, "end"));
    cr_assert_eq(names(), 1);
}
