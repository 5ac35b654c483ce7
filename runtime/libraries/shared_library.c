/* shared_library.c: dlopen and dlsym, with a message that says where a library was looked for.
 *
 * A library is never unloaded, because CUDA, NCCL and MPI leave threads running that would not survive it.
 *
 * Requires: a description of the library that outlives the call.
 * Cost:     one dlopen for each place.
 */
#define _GNU_SOURCE
#include "runtime/libraries/shared_library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was tried: the files that are not there, and what the loader says of those that it cannot load, for example
 * because a library that they need is missing. */
typedef struct tried {
    char missing[360], broken[260];
    int flags; /* dlopen's */
} tried;
static const char no_file[] = "cannot open shared object file: No such file or directory";

static void tried_add(char *list, size_t size, const char *what) {
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s", used ? ", " : "", what);
}

static void *open_one(const char *path, tried *t) {
    void *handle = dlopen(path, t->flags);
    if (handle) return handle;
    const char *text = dlerror();
    size_t named = strlen(path);
    bool says_which = text && !strncmp(text, path, named) && text[named] == ':';
    char whole[260];
    if (says_which && !strcmp(text + named + 2, no_file)) {
        tried_add(t->missing, sizeof t->missing, path);
    } else {
        snprintf(whole, sizeof whole, "%s%s%s", says_which ? "" : path, says_which ? "" : ": ", text ? text : "?");
        tried_add(t->broken, sizeof t->broken, whole);
    }
    return NULL;
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
    /* Of the toolkit's libraries the process may have loaded one already, such as that of a Python package. */
    for (size_t i = 0; l->names[i] && !handle && !l->installed; i++)
        handle = dlopen(l->names[i], t->flags | RTLD_NOLOAD);
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
    tried t = {.flags = RTLD_NOW | (l->global ? RTLD_GLOBAL : RTLD_LOCAL)};
    void *handle = open_any(l, &t);
    if (!handle && t.broken[0])
        return fcp_fail(err, FCP_E_BACKEND, "%s cannot be loaded: %s; %s, or name the file in %s", l->what, t.broken,
                        l->remedy, l->variable);
    if (!handle)
        return fcp_fail(err, FCP_E_BACKEND, "%s is not there: looked for %s; %s, or name the file in %s", l->what,
                        t.missing, l->remedy, l->variable);
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
