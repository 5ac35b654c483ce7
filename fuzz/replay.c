/* replay.c: runs a fuzz target over a corpus without a fuzzer. Usage: fuzz_NAME-replay FILE|FOLDER...
 *
 * Oracle: the target's own; a crash names the input, which is printed before it runs. A missing or empty corpus fails.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool replay_file(const char *path, unsigned *count) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st) != 0) {
        perror(path);
        if (f) fclose(f);
        return false;
    }
    uint8_t *data = malloc((size_t)st.st_size + 1);
    size_t size = data ? fread(data, 1, (size_t)st.st_size, f) : 0;
    fclose(f);
    if (!data || size != (size_t)st.st_size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        free(data);
        return false;
    }
    uint8_t *exact = realloc(data, size ? size : 1); /* so that a sanitizer sees reads past the end */
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(exact ? exact : data, size);
    free(exact ? exact : data);
    ++*count;
    return true;
}

static int visible(const struct dirent *e) { return e->d_name[0] != '.'; }

static bool replay(const char *path, unsigned *count) {
    struct stat st;
    if (stat(path, &st) != 0) {
        perror(path);
        return false;
    }
    if (!S_ISDIR(st.st_mode)) return replay_file(path, count);
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, visible, alphasort);
    bool good = n >= 0;
    for (int i = 0; i < n; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        good = replay(name, count) && good;
        free(entries[i]);
    }
    free(entries);
    return good;
}

int main(int argc, char **argv) {
    unsigned count = 0;
    bool good = true;
    for (int i = 1; i < argc; i++) good = replay(argv[i], &count) && good;
    if (count == 0) fprintf(stderr, "no input\n");
    printf("%u inputs replayed\n", count);
    return good && count > 0 ? 0 : 1;
}
