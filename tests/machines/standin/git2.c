/* git2.c: stands in for libgit2, which Criterion loads to show how two texts differ. It begins, ends, and compares
 * nothing. Criterion starts a process for each test, and the real libgit2 loads more libraries and reads every
 * certificate of the machine in each of them, which takes longer than most tests. If this stand-in is missing, tests
 * load the real one and give the same results.
 *
 * Requires: that only Criterion uses it.
 * Source:   the three functions that Criterion 2.4 calls.
 */
int git_libgit2_init(void);
int git_libgit2_shutdown(void);
int git_diff_buffers(void);

int git_libgit2_init(void) { return 1; }
int git_libgit2_shutdown(void) { return 0; }
int git_diff_buffers(void) { return -1; }
