/* absent.c: what a browser's page does not have: a second processor, libraries to load, sockets, and the commands that
 * need them. Each says so, as on a machine that lacks it.
 *
 * Planning asks how many processors there are, and does without threads if there is one (runtime/base/both.h).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <string.h>

#include "compiler/cli/cmd.h"

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *out) {
    (void)process;
    memset(out, 0, size);
    out->__bits[0] = 1;
    return 0;
}
int __sched_cpucount(size_t size, const cpu_set_t *of);
int __sched_cpucount(size_t size, const cpu_set_t *of) {
    (void)size;
    return of->__bits[0] & 1;
}

void __dl_seterr(const char *format, ...); /* of Emscripten's C library: what dlerror returns */
void *dlopen(const char *path, int flags) {
    (void)path;
    (void)flags;
    __dl_seterr("a page in a browser loads no libraries");
    return NULL;
}
void *dlsym(void *restrict handle, const char *restrict name) {
    (void)handle;
    (void)name;
    return NULL;
}
int dlinfo(void *handle, int request, void *out) {
    (void)handle;
    (void)request;
    (void)out;
    return -1;
}

static fcp_code refuse(const cmd_line *line, const char *needs, fcp_error *err) {
    return fcp_fail(err, FCP_E_UNSUPPORTED,
                    "fcpc %s needs %s, which a page in a browser does not have: use the program",
                    cmd_commands[line->command].name, needs);
}

#define REFUSES(command, needs)                                                                                        \
    fcp_code command(const cmd_line *line, cmd_input *input, fcp_error *err) {                                         \
        (void)input;                                                                                                   \
        return refuse(line, needs, err);                                                                               \
    }
REFUSES(cmd_run, "a thread for each rank")
REFUSES(cmd_serve, "sockets")
REFUSES(cmd_lsp, "standard input")
REFUSES(cmd_doctor, "a machine to look at")
