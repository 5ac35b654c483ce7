/* doctor_machine.c: the system, its processors, and what Python says of its packages, for `fcpc doctor`.
 *
 * Nothing here is an error: what cannot be found out is left out of the report.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/cli/doctor.h"
#include "runtime/base/threads.h"

enum { PROCESSORS_MOST = 1 << 16 };

/* --- the system --------------------------------------------------------------------------------------------------- */

/* Finds the first line of a file that begins with `key`, and gives what stands behind it and the characters of `skip`.
 * False: there is no such line. */
static bool line_of(const char *path, const char *key, const char *skip, char *out, size_t room) {
    FILE *f = fopen(path, "re");
    char line[4096];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key))) continue;
        const char *at = line + strlen(key);
        at += strspn(at, skip);
        snprintf(out, room, "%.*s", (int)strcspn(at, "\"\n"), at);
        found = true;
    }
    if (f) fclose(f);
    return found;
}

static bool has_word(const char *words, const char *word) {
    const size_t size = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += size)
        if ((at == words || at[-1] == ' ') && (!at[size] || at[size] == ' ')) return true;
    return false;
}

void doctor_machine(doctor_report *r) {
    struct utsname names;
    char distribution[80] = "", libc[60] = "", model[120] = "", flags[4000] = "";
    if (uname(&names)) memset(&names, 0, sizeof names);
    line_of("/etc/os-release", "PRETTY_NAME=", "\"", distribution, sizeof distribution);
    if (!confstr(_CS_GNU_LIBC_VERSION, libc, sizeof libc)) strcpy(libc, "another C library than glibc");
    snprintf(r->system, sizeof r->system, "%.60s %.60s %.20s%s%s, %.40s", names.sysname, names.release, names.machine,
             *distribution ? ", " : "", distribution, libc);
    line_of("/proc/cpuinfo", "model name", "\t: ", model, sizeof model);
    line_of("/proc/cpuinfo", "flags", "\t: ", flags, sizeof flags);
    const unsigned count = fcp_processors(PROCESSORS_MOST);
    size_t used = (size_t)snprintf(r->processors, sizeof r->processors, "%u processor%s%s%s", count, text_plural(count),
                                   *model ? ": " : "", model);
    static const char *const wanted[] = {"avx2", "fma", "avx512f", "avx512_bf16",
                                         "amx_bf16"}; /* what speed depends on */
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (has_word(flags, wanted[i]) && used < sizeof r->processors)
            used += (size_t)snprintf(r->processors + used, sizeof r->processors - used, ", %s", wanted[i]);
}

/* --- Python ------------------------------------------------------------------------------------------------------- */

/* Prints a line for each package: its name and version, or its name alone. It imports none of them, because PyTorch
 * would take seconds. */
static const char script[] = "import importlib.metadata as m, importlib.util as u, sys\n"
                             "print('Python', sys.version.split()[0], sys.executable, sep='\\t')\n"
                             "for n in sys.argv[1:]:\n"
                             "    try: v = m.version(n)\n"
                             "    except m.PackageNotFoundError: v = ''\n"
                             "    if n == 'fcpc' and not v and u.find_spec(n): v = 'from ' + u.find_spec(n).origin\n"
                             "    print(n, v, '', sep='\\t')\n";

static const struct {
    const char *name, *remedy;
} packages[] = {
    {"fcpc", "pip install . in a clone of fcpc, or pip install its wheel"},
    {"numpy", "pip install numpy"},
    {"torch", "pip install torch; fcpc.torch and the adapters need it"},
    {"cuda-pathfinder", "pip install cuda-pathfinder; it finds NVRTC and NCCL among packages of Python"},
    {"torchtitan", "only for fcpc.titan"},
    {"transformers", "only for fcpc.hf and fcpc.trainer"},
    {"trl", "only for training with TRL"},
    {"megatron-core", "only for fcpc.megatron"},
};
enum { PACKAGES = sizeof packages / sizeof *packages };

/* Starts Python, with what it prints going to a pipe, and its errors nowhere. Returns an errno. */
static int start(const char *python, int to, pid_t *child) {
    const char *arguments[3 + PACKAGES + 1] = {python, "-c", script};
    for (int i = 0; i < PACKAGES; i++) arguments[3 + i] = packages[i].name;
    posix_spawn_file_actions_t actions;
    int why = posix_spawn_file_actions_init(&actions);
    if (why) return why;
    why = posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO);
    if (!why) why = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!why) why = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (!why) why = posix_spawnp(child, python, &actions, NULL, (char *const *)arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return why;
}

/* Reads one line of what the script has printed: NAME, VERSION and FILE, with tabs between them. */
static void read_line(doctor_report *r, char *line) {
    char *version = strchr(line, '\t'), *file = version ? strchr(version + 1, '\t') : NULL;
    if (!file) return;
    *version++ = *file++ = 0;
    file[strcspn(file, "\n")] = 0;
    doctor_part part = {.use = DOCTOR_PYTHON, .name = "Python", .there = *version, .needed = true};
    const char *remedy = "";
    for (int i = 0; i < PACKAGES; i++)
        if (!strcmp(packages[i].name, line)) {
            part.name = packages[i].name;
            part.needed = i == 0;
            remedy = packages[i].remedy;
        }
    snprintf(part.version, sizeof part.version, "%s", version);
    snprintf(part.file, sizeof part.file, "%s", file);
    if (!part.there) fcp_fail(&part.why, FCP_E_BACKEND, "it is not installed: %s", remedy);
    doctor_add(r, &part);
}

void doctor_python(doctor_report *r) {
    const char *named = getenv("FCPC_PYTHON"), *python = named && *named ? named : "python3";
    const size_t before = r->count;
    int ends[2] = {-1, -1}, status = 0, why = pipe2(ends, O_CLOEXEC) ? errno : 0;
    pid_t child;
    if (!why) why = start(python, ends[1], &child);
    if (ends[1] >= 0) close(ends[1]);
    FILE *said = why ? NULL : fdopen(ends[0], "r");
    if (!said && ends[0] >= 0) close(ends[0]);
    char line[1024];
    while (said && fgets(line, sizeof line, said)) read_line(r, line);
    if (said) fclose(said);
    if (!why)
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (r->count > before) return;
    doctor_part part = {.use = DOCTOR_PYTHON, .name = "Python", .needed = true};
    if (why)
        fcp_fail(&part.why, FCP_E_BACKEND, "%.200s does not start: %s; install python3, or name one in FCPC_PYTHON",
                 python, strerror(why));
    else
        fcp_fail(&part.why, FCP_E_BACKEND, "%.200s does not say which packages it has: it must be Python 3.9 or later",
                 python);
    doctor_add(r, &part);
}
