/* git2.c: stands in for libgit2, which Criterion loads to show how two texts differ.
 *
 * Requires: that only Criterion uses it.
 * Gives: a libgit2 that begins, ends, and compares nothing. Where it is missing, tests load the real one and say the
 *     same.
 * Cost: none. The real one loads more libraries and reads every certificate of this machine, and Criterion starts a
 *     process for each test. That takes longer than most tests.
 * Source: the three functions that Criterion 2.4 calls.
 */
int git_libgit2_init(void);
int git_libgit2_shutdown(void);
int git_diff_buffers(void);

int git_libgit2_init(void) { return 1; }
int git_libgit2_shutdown(void) { return 0; }
int git_diff_buffers(void) { return -1; }
