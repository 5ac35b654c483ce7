/* packages.c: finds NCCL and NVRTC in Python's packages. On a rented machine they are often there (nvidia-nccl-cu13,
 * nvidia-cuda-nvrtc, which PyTorch brings) and nowhere else.
 *
 * What the loader finds by itself, or a variable names, is left as it is. Otherwise python3, or the one that --python
 * names, says where the file is. With GPU_PACKAGES=1 the loader is not asked: where the system's NCCL is too old.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu.h"

/* What is found is never unloaded: NVRTC does not free what its constructors allocate, and would allocate it again. */
static bool is_there(const char *name) { return dlopen(name, RTLD_LAZY | RTLD_LOCAL) != NULL; }

/* Asks Python for the first file of its packages that matches. */
static bool ask_python(const char *python, const char *pattern, char path[500]) {
    char command[1200];
    snprintf(command, sizeof command,
             "'%s' -c 'import glob, sys\n"
             "found = [f for p in sys.path for f in sorted(glob.glob(p + \"/nvidia/*/lib/%s\"))]\n"
             "print(found[0] if found else \"\")' 2> /dev/null", python, pattern);
    FILE *f = strchr(python, '\'') ? NULL : popen(command, "re");
    bool found = f && fgets(path, 500, f);
    if (f) pclose(f);
    if (found) path[strcspn(path, "\n")] = 0;
    return found && *path;
}

void gpu_find_packages(const char *python) {
    static const struct {
        const char *variable, *also, *name, *older, *pattern; /* also: a variable that would name it, too */
    } all[] = {
        {"FCP_NCCL", "FCP_NCCL", "libnccl.so.2", "libnccl.so", "libnccl.so.2"},
        {"GPU_NVRTC", "FCP_NVRTC", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.1[23]"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[500];
        if (getenv(all[i].variable) || getenv(all[i].also)) continue;
        if (!getenv("GPU_PACKAGES") && (is_there(all[i].name) || is_there(all[i].older))) continue;
        if (!ask_python(python ? python : "python3", all[i].pattern, path)) continue;
        setenv(all[i].variable, path, 1);
        printf("%s is among Python's packages: %s\n", all[i].name, path);
    }
}
