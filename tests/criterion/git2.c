/* git2.c: stands in for libgit2, which Criterion needs to show how two texts differ, in assertions that no test here
 * uses. Loaded with a test, the real one loads 15 more libraries and reads every certificate of this machine; and
 * Criterion begins a process for each of 900 tests. That was four fifths of what an empty test takes. Without this
 * library tests find the real one, and say the same. */
int git_libgit2_init(void);
int git_libgit2_shutdown(void);
int git_diff_buffers(void);

int git_libgit2_init(void) { return 1; }
int git_libgit2_shutdown(void) { return 0; }
int git_diff_buffers(void) { return -1; }
