/* test_jit.c: tests the cache of compiled kernels and the loading of NVRTC. The test makes a library with NVRTC's
 * symbols. Each cubin of this library is the source and a number that grows with each compilation, so that the test
 * sees what was compiled. */
#define _GNU_SOURCE
#include <criterion/criterion.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/jit/jit.h"
#include "tests/support/temporary.h"

/* NVRTC as far as it is used. A source with "error" does not compile; one with "spill" says so in its log; one with
 * "meet" waits until three of them are being compiled. */
static const char stand_in[] =
    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"
    "struct p { char *text, arch[64]; int number; };\n"
    "int nvrtcVersion(int *a, int *b) { *a = MAJOR; *b = 4; return 0; }\n"
    "const char *nvrtcGetErrorString(int e) { return e == 6 ? \"NVRTC_ERROR_COMPILATION\" : \"NVRTC_SUCCESS\"; }\n"
    "int nvrtcCreateProgram(struct p **p, const char *text, const char *n, int c, const char *const *a, const char "
    "*const *b) {\n"
    "    *p = calloc(1, sizeof **p); (*p)->text = strdup(text); return (void)n, (void)c, (void)a, (void)b, 0; }\n"
    "int nvrtcDestroyProgram(struct p **p) { free((*p)->text); free(*p); *p = 0; return 0; }\n"
    "static int inside;\n"
    "int nvrtcCompileProgram(struct p *p, int n, const char *const *o) {\n"
    "    if (strstr(p->text, \"meet\")) {\n"
    "        __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);\n"
    "        for (int i = 0; i < 30000 && __atomic_load_n(&inside, __ATOMIC_SEQ_CST) < 3; i++) usleep(1000);\n"
    "        if (__atomic_load_n(&inside, __ATOMIC_SEQ_CST) < 3) return 6; }\n"
    "    for (int i = 0; i < n; i++) if (!strncmp(o[i], \"--gpu-arch\", 10)) strcpy(p->arch, o[i] + 19);\n"
    "    FILE *f = fopen(getenv(\"STAND_IN_LOG\"), \"a\"); fputc('x', f); fclose(f);\n"
    "    f = fopen(getenv(\"STAND_IN_LOG\"), \"r\"); while (fgetc(f) == 'x') p->number++; fclose(f);\n"
    "    return strstr(p->text, \"error\") ? 6 : 0; }\n"
    "static const char *log_of(struct p *p) {\n"
    "    if (strstr(p->text, \"error of two\")) return \"second.h(1): error: another\\n\";\n"
    "    if (strstr(p->text, \"error\")) return \"fcpc.cu(1): warning: w\\n\"\n"
    "        \"forward_mma.h(3): error: no such thing\\n  error;\\n  ^\\n\";\n"
    "    if (!strstr(p->text, \"spill\")) return \"\";\n"
    "    return \"ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async\\n\"\n"
    "           \"ptxas info    : Compiling entry function 'fk_forward' for 'sm_80'\\n\"\n"
    "           \"    24 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\\n\"\n"
    "           \"ptxas info    : Used 251 registers, used 2 barriers, 1040 bytes smem, 400 bytes cmem[0]\\n\"; }\n"
    "int nvrtcGetProgramLogSize(struct p *p, size_t *s) { *s = strlen(log_of(p)) + 1; return 0; }\n"
    "int nvrtcGetProgramLog(struct p *p, char *out) { strcpy(out, log_of(p)); return 0; }\n"
    "static int bytes(struct p *p, char out[4096]) {\n"
    "    return snprintf(out, 4096, \"%s %s %d\", p->arch, p->text, p->number); }\n"
    "int nvrtcGetCUBINSize(struct p *p, size_t *s) { char b[4096]; *s = bytes(p, b); return 0; }\n"
    "#ifndef OLD\n"
    "int nvrtcGetCUBIN(struct p *p, char *out) { char b[4096]; memcpy(out, b, bytes(p, b)); return 0; }\n"
    "#endif\n";

static char folder[TEMPORARY], cache[TEMPORARY + 20], library[TEMPORARY + 20];

static void build(const char *path, const char *flags) {
    char command[900];
    const char *cc = getenv("CC");
    snprintf(command, sizeof command, "%s %s -w -shared -fPIC -o %s %s/nvrtc.c", cc && *cc ? cc : "cc", flags, path,
             folder);
    cr_assert_eq(system(command), 0);
}

static void set_up(void) {
    char path[200];
    cr_assert(temporary_folder(folder, "jit"));
    snprintf(cache, sizeof cache, "%s/cache", folder);
    snprintf(library, sizeof library, "%s/libnvrtc.so", folder);
    snprintf(path, sizeof path, "%s/nvrtc.c", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(stand_in, f) >= 0 && fclose(f) == 0);
    build(library, "-DMAJOR=13");
    snprintf(path, sizeof path, "%s/log", folder);
    setenv("STAND_IN_LOG", path, 1);
    setenv("FCP_NVRTC", library, 1);
}
static void tear_down(void) {
    char command[400];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
    cr_assert_eq(system(command), 0);
}
TestSuite(jit, .init = set_up, .fini = tear_down);

static fcp_jit *opened(const char *where) {
    fcp_jit *j;
    fcp_error err;
    cr_assert_eq(fcp_jit_open(where, &j, &err), FCP_OK);
    return j;
}

/* Compiles in a new session; what the cubin is, and whether it came from the cache. Warnings are not expected. */
static const char *compiled(const char *source, const char *arch, const char *option, bool *out_cached) {
    static char text[4096];
    const char *options[] = {option, NULL};
    fcp_jit *j = opened(cache);
    fcp_cubin c;
    fcp_error err;
    fcp_code code = fcp_jit_compile(j, "a.cu", source, arch, options, &c, out_cached, &err);
    cr_assert_eq(code, FCP_OK, "%s", err.message);
    cr_assert_str_eq(fcp_jit_warning(j), "");
    cr_assert(c.size < sizeof text);
    memcpy(text, c.bytes, c.size);
    text[c.size] = 0;
    fcp_cubin_free(&c);
    fcp_jit_close(j);
    return text;
}
#define MUST_BE(want, hit, source, arch, option)                                                                       \
    do {                                                                                                               \
        bool cached;                                                                                                   \
        cr_assert_str_eq(compiled(source, arch, option, &cached), want);                                               \
        cr_assert_eq(cached, hit);                                                                                     \
    } while (0)

Test(jit, hits_and_misses) {
    struct stat s;
    MUST_BE("sm_80 one 1", false, "one", "sm_80", NULL);
    MUST_BE("sm_80 one 1", true, "one", "sm_80", NULL);
    MUST_BE("sm_90a one 2", false, "one", "sm_90a", NULL);      /* another architecture */
    MUST_BE("sm_80 two 3", false, "two", "sm_80", NULL);        /* source */
    MUST_BE("sm_80 one 4", false, "one", "sm_80", "-G");        /* option */
    MUST_BE("sm_80 one 4", true, "one", "sm_80", "-G");
    MUST_BE("sm_80 one-G 5", false, "one-G", "sm_80", NULL);    /* the same characters, divided otherwise */
    MUST_BE("sm_80 one 1", true, "one", "sm_80", NULL);
    cr_assert(!stat(cache, &s) && (s.st_mode & 07777) == 0700);
}

/* A compiler of other bytes, in the same place or another, is another compiler. */
Test(jit, compilers) {
    char other[200];
    snprintf(other, sizeof other, "%s/other.so", folder);
    build(other, "-DMAJOR=12");
    MUST_BE("sm_80 one 1", false, "one", "sm_80", NULL);
    setenv("FCP_NVRTC", other, 1);
    MUST_BE("sm_80 one 2", false, "one", "sm_80", NULL);
    MUST_BE("sm_80 one 2", true, "one", "sm_80", NULL);
    setenv("FCP_NVRTC", library, 1);
    MUST_BE("sm_80 one 1", true, "one", "sm_80", NULL);
    MUST_BE("sm_80 two 3", false, "two", "sm_80", NULL);
}

/* The record of a compiler whose file was replaced, while a process runs or while none does. What compiles is then
 * found anew, and its key with it. Each case is a child, because a library stays loaded. */
Test(jit, replaced) {
    for (int i = 0; i < 4; i++) {
        static const char *const flags[] = {"-DMAJOR=13", "-DMAJOR=12", "-DMAJOR=12", "-DMAJOR=13"};
        if (i == 1 || i == 3) { /* not in place: as a package manager does it */
            char other[200];
            snprintf(other, sizeof other, "%s/other.so", folder);
            build(other, flags[i]);
            cr_assert_eq(rename(other, library), 0);
        }
        pid_t child = fork();
        if (!child) {
            fcp_jit *j;
            fcp_cubin c;
            bool cached;
            bool good = fcp_jit_open(cache, &j, NULL) == FCP_OK &&
                        fcp_jit_compile(j, "a.cu", "one", "sm_80", NULL, &c, &cached, NULL) == FCP_OK &&
                        cached == (i >= 2) && !memcmp(c.bytes, i == 0 || i == 3 ? "sm_80 one 1" : "sm_80 one 2", 11);
            _exit(good ? 0 : 1);
        }
        int status;
        cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", i);
    }
}

/* Every byte of an entry counts. An entry that does not hold is compiled anew and replaced. */
Test(jit, damage) {
    char command[400];
    MUST_BE("sm_80 one 1", false, "one", "sm_80", NULL);
    static const char *const damages[] = {
        "truncate -s 100", "truncate -s 0", "truncate -s -1", "truncate -s +1",
        "dd status=none conv=notrunc if=/dev/zero bs=1 count=4 seek=0 of=",
       
        "dd status=none conv=notrunc if=/dev/zero bs=1 count=8 seek=12 of=",
        "dd status=none conv=notrunc if=/dev/zero bs=1 count=8 seek=44 of=",
        "sh -c 'printf X | dd status=none conv=notrunc bs=1 seek=$(($(stat -c %s \"$0\") - 2)) of=\"$0\"'"};
    for (unsigned i = 0; i < sizeof damages / sizeof *damages; i++) {
        char want[40];
        const char *d = damages[i];
        snprintf(command, sizeof command, "for f in %s/*.cubin; do %s%s\"$f\"; done", cache, d,
                 d[strlen(d) - 1] == '=' ? "" : " ");
        cr_assert_eq(system(command), 0);
        snprintf(want, sizeof want, "sm_80 one %u", i + 2);
        MUST_BE(want, false, "one", "sm_80", NULL);
        MUST_BE(want, true, "one", "sm_80", NULL);
    }
    /* the compiler's record: likewise; and an entry under another's name */
    snprintf(command, sizeof command, "printf X | dd status=none conv=notrunc bs=1 seek=20 of=%s/nvrtc", cache);
    cr_assert_eq(system(command), 0);
    MUST_BE("sm_80 one 9", true, "one", "sm_80", NULL);
    snprintf(command, sizeof command, "cd %s && a=$(ls *.cubin) && mv $a saved", cache);
    cr_assert_eq(system(command), 0);
    MUST_BE("sm_80 two 10", false, "two", "sm_80", NULL);
    snprintf(command, sizeof command, "cd %s && a=$(ls *.cubin) && mv saved $a", cache);
    cr_assert_eq(system(command), 0);
    MUST_BE("sm_80 two 11", false, "two", "sm_80", NULL);
}

/* Compiles where there can be no cache: twice, to no effect on the second; the warning says why. */
static void must_warn(const char *where, const char *why) {
    for (int i = 0; i < 2; i++) {
        fcp_jit *j = opened(where);
        fcp_cubin c;
        fcp_error err;
        bool cached;
        cr_assert_eq(fcp_jit_compile(j, "a.cu", "one", "sm_80", NULL, &c, &cached, &err), FCP_OK);
        cr_assert_not(cached, "%s", why);
        cr_assert_not_null(strstr(fcp_jit_warning(j), why), "'%s' has no '%s'", fcp_jit_warning(j), why);
        fcp_cubin_free(&c);
        fcp_jit_close(j);
    }
}

Test(jit, folders) {
    char path[200];
    cr_assert(!mkdir(cache, 0700) && !chmod(cache, 0755));
    must_warn(cache, "its mode is not 0700");
    cr_assert_eq(chmod(cache, 0700), 0);
    snprintf(path, sizeof path, "%s/link", folder);
    cr_assert_eq(symlink(cache, path), 0);
    must_warn(path, "it is a symbolic link");
    snprintf(path, sizeof path, "%s/nvrtc.c", folder);
    must_warn(path, "it is not a folder");
    snprintf(path, sizeof path, "%s/none/cache", folder);
    must_warn(path, "cannot make");
    if (geteuid() == 0) {
        snprintf(path, sizeof path, "%s/foreign", folder);
        cr_assert(!mkdir(path, 0700) && !chown(path, 12345, 12345));
        must_warn(path, "it belongs to another user");
    } else {
        cr_assert_eq(chmod(cache, 0500), 0);
        must_warn(cache, "its mode is not 0700");
        snprintf(path, sizeof path, "%s/shut", folder);
        cr_assert_eq(mkdir(path, 0500), 0);
        strcat(path, "/cache");
        must_warn(path, "cannot make");
    }
    /* without a home of any kind */
    unsetenv("FCP_CACHE");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    must_warn(NULL, "neither FCP_CACHE, XDG_CACHE_HOME nor HOME");
}

/* Where the default is. */
Test(jit, homes) {
    static const char *const places[3][3] = {{"FCP_CACHE", "", ""},
                                             {"XDG_CACHE_HOME", "/fcpc", ""},
                                             {"HOME", "/.cache/fcpc", ""}};
    unsetenv("FCP_CACHE");
    unsetenv("XDG_CACHE_HOME");
    for (int i = 2; i >= 0; i--) {
        char base[200], path[300];
        struct stat s;
        snprintf(base, sizeof base, "%s/home%d", folder, i);
        cr_assert_eq(mkdir(base, 0700), 0);
        setenv(places[i][0], base, 1);
        fcp_jit *j = opened(NULL);
        cr_assert_str_eq(fcp_jit_warning(j), "");
        fcp_jit_close(j);
        snprintf(path, sizeof path, "%s%s", base, places[i][1]);
        cr_assert(!stat(path, &s) && S_ISDIR(s.st_mode) && (s.st_mode & 07777) == 0700, "%s", path);
    }
}

/* A plain file is all that is read or replaced. */
Test(jit, not_files) {
    char command[400];
    fcp_jit *j;
    fcp_cubin c;
    fcp_error err;
    MUST_BE("sm_80 one 1", false, "one", "sm_80", NULL);
    snprintf(command, sizeof command, "cd %s && a=$(ls *.cubin) && mv $a aside && ln -s aside $a", cache);
    cr_assert_eq(system(command), 0);
    bool hit;
    j = opened(cache);
    cr_assert_eq(fcp_jit_compile(j, "a.cu", "one", "sm_80", NULL, &c, &hit, &err), FCP_OK);
    cr_assert_not(hit);
    cr_assert_not_null(strstr(fcp_jit_warning(j), "is not a plain file"));
    fcp_cubin_free(&c);
    fcp_jit_close(j);
}

/* Many at once: each gets a right cubin, and what is left is one that holds. */
Test(jit, at_once) {
    enum { CHILDREN = 8 };
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        cr_assert_geq(children[i], 0);
        if (children[i]) continue;
        bool good = true;
        for (int n = 0; n < 20 && good; n++) {
            char source[20];
            fcp_jit *j;
            fcp_cubin c;
            bool cached;
            snprintf(source, sizeof source, "text %d", n);
            good = fcp_jit_open(cache, &j, NULL) == FCP_OK &&
                   fcp_jit_compile(j, "a.cu", source, "sm_80", NULL, &c, &cached, NULL) == FCP_OK &&
                   !*fcp_jit_warning(j) && c.size > 12 && memmem(c.bytes, c.size, source, strlen(source));
            fcp_cubin_free(&c);
            fcp_jit_close(j);
        }
        _exit(good ? 0 : 1);
    }
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        cr_assert(waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int n = 0; n < 20; n++) {
        char source[20];
        bool cached;
        snprintf(source, sizeof source, "text %d", n);
        compiled(source, "sm_80", NULL, &cached);
        cr_assert(cached, "%s", source);
    }
}

/* What ptxas says is kept with the cubin; what does not compile is not kept. */
Test(jit, costs_and_errors) {
    for (int i = 0; i < 2; i++) {
        fcp_jit *j = opened(cache);
        fcp_cubin c;
        fcp_error err;
        bool cached;
        cr_assert_eq(fcp_jit_compile(j, "a.cu", "spill", "sm_80", NULL, &c, &cached, &err), FCP_OK);
        cr_assert_eq(cached, i);
        cr_assert_eq(c.kernel_count, 1);
        const fcp_kernel_cost *k = &c.kernels[0];
        cr_assert_str_eq(k->name, "fk_forward");
        cr_assert(k->registers == 251 && k->spill_stores == 12 && k->spill_loads == 16 && k->stack == 24 &&
                  k->shared == 1040 && k->barriers == 2 && c.notes == 1);
        fcp_cubin_free(&c);
        cr_assert_eq(fcp_jit_compile(j, "a.cu", "error", "sm_80", NULL, &c, &cached, &err), FCP_E_COMPILE);
        cr_assert_not(cached);
        cr_assert_not_null(strstr(err.message, "forward_mma.h(3): error: no such thing"), "%s", err.message);
        cr_assert_not_null(strstr(c.log, "  error;\n  ^\n"));
        fcp_cubin_free(&c);
        fcp_jit_close(j);
    }
}

static fcp_code several(fcp_jit_part *parts, uint32_t count, const char *const *sources, fcp_error *err) {
    fcp_jit *j = opened(cache);
    for (uint32_t i = 0; i < count; i++) parts[i].source = sources[i];
    fcp_code code = fcp_jit_compile_parts(j, "a.cu", "sm_80", NULL, parts, count, err);
    cr_assert_str_eq(fcp_jit_warning(j), "");
    fcp_jit_close(j);
    return code;
}
static void all_free(fcp_jit_part *parts, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) fcp_cubin_free(&parts[i].cubin);
}
static void holds(const fcp_jit_part *p, bool cached) {
    cr_assert(p->cubin.size > 6 && memmem(p->cubin.bytes, p->cubin.size, p->source, strlen(p->source)), "%s",
              p->source);
    cr_assert_eq(p->cached, cached, "%s", p->source);
}
static long compilations(void) {
    char path[200];
    struct stat s;
    snprintf(path, sizeof path, "%s/log", folder);
    return stat(path, &s) ? 0 : (long)s.st_size;
}

/* Several sources: each has an entry of its own; only those without one are compiled, side by side. */
Test(jit, parts) {
    const char *const first[] = {"meet 1", "meet 2", "meet 3"}, *const then[] = {"new 1", "meet 2", "new 2", "meet 1",
                                                                                 "new 1"};
    fcp_jit_part parts[5];
    fcp_error err = {0};
    cr_assert_eq(several(parts, 0, first, &err), FCP_OK);
    cr_assert_eq(several(parts, 3, first, &err), FCP_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) holds(&parts[i], false);
    all_free(parts, 3);
    cr_assert_eq(compilations(), 3);
    cr_assert_eq(several(parts, 5, then, &err), FCP_OK, "%s", err.message);
    for (int i = 0; i < 5; i++) holds(&parts[i], i % 2);
    all_free(parts, 5);
    cr_assert_eq(compilations(), 6);
    cr_assert_eq(several(parts, 5, then, &err), FCP_OK, "%s", err.message);
    for (int i = 0; i < 5; i++) holds(&parts[i], true);
    all_free(parts, 5);
    cr_assert_eq(compilations(), 6);
}

/* The error of the first that has one, whichever ends first; what did compile is kept. */
Test(jit, parts_with_errors) {
    const char *const sources[] = {"good", "error of one", "error of two"}, *const good[] = {"good"};
    fcp_jit_part parts[3];
    for (int i = 0; i < 2; i++) {
        fcp_error err = {0};
        cr_assert_eq(several(parts, 3, sources, &err), FCP_E_COMPILE);
        cr_assert_not_null(strstr(err.message, "forward_mma.h(3): error: no such thing"), "%s", err.message);
        holds(&parts[0], i);
        cr_assert(parts[1].cubin.log && parts[2].cubin.log && !parts[1].cached && !parts[2].cached);
        all_free(parts, 3);
    }
    fcp_error err = {0};
    cr_assert_eq(several(parts, 1, good, &err), FCP_OK);
    holds(&parts[0], true);
    all_free(parts, 1);
    fcp_jit *j = opened(cache);
    parts[0].source = "good";
    cr_assert_eq(fcp_jit_compile_parts(j, "a.cu", "sm_75", NULL, parts, 1, &err), FCP_E_ARCH);
    all_free(parts, 1);
    fcp_jit_close(j);
}

/* If no thread can be made, sources are compiled in turn. Here threads would need a stack that no address space has
 * room for. */
Test(jit, parts_without_threads) {
    const char *const sources[] = {"one", "two", "three"};
    fcp_jit_part parts[3];
    fcp_error err = {0};
    pthread_attr_t attr;
    cr_assert_eq(pthread_attr_init(&attr), 0);
    cr_assert_eq(pthread_attr_setstacksize(&attr, (size_t)1 << 60), 0);
    cr_assert_eq(pthread_setattr_default_np(&attr), 0);
    cr_assert_eq(several(parts, 3, sources, &err), FCP_OK, "%s", err.message);
    for (int i = 0; i < 3; i++) holds(&parts[i], false);
    all_free(parts, 3);
    cr_assert_eq(compilations(), 3);
}

Test(jit, architectures) {
    static const char *const bad[] = {"sm_75",  "sm_70",   "sm_9", "compute_90", "sm_",     "90",
                                      "sm_90x", "sm_90aa", "",     "sm_12345",   "sm_80 -G"};
    static const char *const fine[] = {"sm_80",  "sm_86",   "sm_89",   "sm_90", "sm_90a",
                                       "sm_100", "sm_100a", "sm_100f", "sm_120"};
    fcp_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(fcp_arch_check(bad[i], &err), FCP_E_ARCH, "%s", bad[i]);
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        cr_assert_eq(fcp_arch_check(fine[i], &err), FCP_OK, "%s", fine[i]);
}

/* No library, one that is none, an old one, one that lacks a symbol. */
Test(jit, no_compiler) {
    static const char *const flags[] = {"-DMAJOR=11", "-DMAJOR=13 -DOLD"};
    static const char *const why[] = {"is version 11.4; 12.0 or later is needed",
                                      "has no nvrtcGetCUBIN: it is too old"};
    char path[200];
    fcp_nvrtc *n;
    fcp_error err;
    setenv("FCP_NVRTC", "/nowhere/libnvrtc.so", 1);
    cr_assert_eq(fcp_nvrtc_open(NULL, &n, &err), FCP_E_BACKEND);
    cr_assert(strstr(err.message, "looked for /nowhere/libnvrtc.so") &&
                  strstr(err.message, "install the CUDA toolkit") && strstr(err.message, "FCP_NVRTC"),
              "%s", err.message);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/bad%d.so", folder, i);
        build(path, flags[i]);
        setenv("FCP_NVRTC", path, 1);
        cr_assert_eq(fcp_nvrtc_open(NULL, &n, &err), FCP_E_BACKEND);
        cr_assert_not_null(strstr(err.message, why[i]), "%s", err.message);
    }
    fcp_jit *j = opened(cache);
    fcp_cubin c;
    bool cached;
    cr_assert_eq(fcp_jit_compile(j, "a.cu", "one", "sm_80", NULL, &c, &cached, &err), FCP_E_BACKEND);
    cr_assert_null(c.bytes);
    fcp_jit_close(j);
}
