/* shared_library.c: dlopen and dlsym, with a message that says where a library was looked for.
 *
 * Requires: a description of the library that outlives the call.
 * Gives:    shared_library.h.
 * Cost:     one dlopen for each place.
 * A library is never unloaded, because CUDA, NCCL and MPI leave threads running that would not survive it.
 */
#define _GNU_SOURCE
#include "runtime/libraries/shared_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The places that were tried, as the error will list them. */
typedef struct tried {
    char text[360];
    size_t used;
    int flags; /* dlopen's */
} tried;

static void tried_add(tried *t, const char *place) {
    int size = snprintf(t->text + t->used, sizeof t->text - t->used, "%s%s", t->used ? ", " : "", place);
    if (size > 0) t->used += (size_t)size;
    if (t->used >= sizeof t->text) t->used = sizeof t->text - 1;
}

static void *open_one(const char *path, tried *t) {
    void *handle = dlopen(path, t->flags);
    if (!handle) tried_add(t, path);
    return handle;
}

static void *open_in(const char *folder, const char *name, tried *t) {
    char path[512];
    int size = snprintf(path, sizeof path, "%s/%s", folder, name);
    return size > 0 && (size_t)size < sizeof path ? open_one(path, t) : NULL;
}

static void *open_any(const fcp_library *l, tried *t) {
    const char *only = getenv(l->variable), *home = getenv("CUDA_HOME");
    if (home && !strcmp(home, "/usr/local/cuda")) home = NULL; /* it is among the usual folders */
    if (only && *only) return open_one(only, t);
    void *handle = NULL;
    for (size_t i = 0; l->names[i] && !handle; i++) handle = open_one(l->names[i], t);
    char folder[400];
    for (int lib = 0; lib < 2 && !handle && !l->installed; lib++) {
        const char *sub = lib ? "lib" : "lib64";
        for (size_t i = 0; l->names[i] && !handle; i++) {
            if (home && *home) {
                snprintf(folder, sizeof folder, "%s/%s", home, sub);
                handle = open_in(folder, l->names[i], t);
            }
            snprintf(folder, sizeof folder, "/usr/local/cuda/%s", sub);
            if (!handle) handle = open_in(folder, l->names[i], t);
        }
    }
    return handle;
}

/* The name of the file that a library was loaded from; malloc'd. */
static char *path_of(void *handle) {
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) || !map || !map->l_name) return strdup("");
    return strdup(map->l_name);
}

fcp_code fcp_library_load(const fcp_library *l, void (**table)(void), char **out_path, fcp_error *err) {
    tried t = {.text = "", .flags = RTLD_NOW | (l->global ? RTLD_GLOBAL : RTLD_LOCAL)};
    void *handle = open_any(l, &t);
    if (!handle)
        return fcp_fail(err, FCP_E_BACKEND, "%s is not there: looked for %s; %s, or name the file in %s", l->what,
                        t.text, l->remedy, l->variable);
    char *path = path_of(handle);
    if (!path) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < l->count; i++) {
        void *symbol = dlsym(handle, l->symbols[i]);
        if (!symbol && i < l->count - l->optional) {
            fcp_code code = fcp_fail(err, FCP_E_BACKEND, "%s in '%s' has no %s: it is too old; %s", l->what, path,
                                     l->symbols[i], l->remedy);
            free(path);
            return code;
        }
        memcpy(&table[i], &symbol, sizeof symbol); /* POSIX: an object pointer from dlsym is a function's */
    }
    *out_path = path;
    return FCP_OK;
}
