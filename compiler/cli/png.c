/* png.c: turns one of our SVG images into a PNG file, by librsvg on cairo, at twice its size so that labels are sharp.
 *
 * librsvg needs some forty other libraries. So it is loaded only when an image is drawn: other commands then start
 * faster, take less memory, and work without it. If it cannot be loaded, that is E210. The environment variable
 * FCPC_RSVG names another file to load.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "compiler/cli/cmd.h"

#define FILE_NAME "librsvg-2.so.2"
enum { SCALE = 2, SIDE_MAX = 16000, FORMAT_RGB24 = 1, MEMORY = 256 << 20 };
enum { CAIRO_SUCCESS = 0, CAIRO_NO_MEMORY = 1, CAIRO_WRITE_ERROR = 11 }; /* values of cairo_status_t */

typedef struct rectangle {
    double x, y, width, height;
} rectangle;
typedef int write_function(void *context, const unsigned char *bytes, unsigned size);

/* The functions that are used, as the headers of librsvg 2.52 and cairo declare them. All their types are opaque
 * here. */
#define FUNCTIONS(X)                                                                                                   \
    X(void *, rsvg_handle_new_from_data, (const uint8_t *bytes, size_t size, void **error))                            \
    X(int, rsvg_handle_get_intrinsic_size_in_pixels, (void *image, double *width, double *height))                     \
    X(int, rsvg_handle_render_document, (void *image, void *pen, const rectangle *where, void **error))                \
    X(void, g_object_unref, (void *image))                                                                             \
    X(void *, cairo_image_surface_create, (int format, int width, int height))                                         \
    X(void *, cairo_create, (void *surface))                                                                           \
    X(int, cairo_status, (void *pen))                                                                                  \
    X(int, cairo_surface_write_to_png_stream, (void *surface, write_function *write, void *context))                   \
    X(void, cairo_destroy, (void *pen))                                                                                \
    X(void, cairo_surface_destroy, (void *surface))

typedef struct library {
#define X(type, name, parameters) type(*name) parameters;
    FUNCTIONS(X)
#undef X
} library;

/* Drawing text makes GLib start threads, and GLib ends the process when it gets no memory for them. So this much
 * address space must be there before librsvg is loaded. */
static bool enough_memory(void) {
    void *room = mmap(NULL, MEMORY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, MEMORY);
    return true;
}

/* Loads librsvg, which stays loaded, and finds the functions. E210, for the image at `path`: what is missing. */
static fcp_code load_functions(library *out, const char *path, fcp_error *err) {
    if (!enough_memory())
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory: drawing %.200s takes %d MB of address space", path,
                        MEMORY >> 20);
    const char *named = getenv("FCPC_RSVG"), *missing = NULL;
    void *handle = dlopen(named ? named : FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    const char *why = handle ? NULL : dlerror();
    if (!handle)
        return fcp_fail(err, FCP_E_UNSUPPORTED,
                        "%.200s: PNG is drawn by librsvg, which cannot be loaded (%.200s): install librsvg2-2, or use "
                        "--svg", path, why ? why : "no reason is known");
#define X(type, name, parameters)                                                                                      \
    if (!(*(void **)&out->name = dlsym(handle, #name))) missing = #name;
    FUNCTIONS(X)
#undef X
    if (!missing) return FCP_OK;
    return fcp_fail(err, FCP_E_UNSUPPORTED,
                    "%.200s: PNG is drawn by librsvg of version 2.52 or later; the one here lacks %s: use --svg", path,
                    missing);
}

fcp_code cmd_png_check(const char *path, fcp_error *err) {
    library unused;
    return load_functions(&unused, path, err);
}

fcp_code cmd_png_version(char out[CMD_PNG_VERSION], fcp_error *err) {
    library unused;
    fcp_code code = load_functions(&unused, "show --png", err);
    if (code != FCP_OK) return code;
    const char *named = getenv("FCPC_RSVG");
    void *handle = dlopen(named ? named : FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    const unsigned *part[3] = {dlsym(handle, "rsvg_major_version"), dlsym(handle, "rsvg_minor_version"),
                               dlsym(handle, "rsvg_micro_version")};
    if (part[0] && part[1] && part[2]) snprintf(out, CMD_PNG_VERSION, "%u.%u.%u", *part[0], *part[1], *part[2]);
    else snprintf(out, CMD_PNG_VERSION, "2.52 or later");
    return FCP_OK;
}

typedef struct sink {
    int fd, why;
} sink;

static int write_bytes(void *context, const unsigned char *bytes, unsigned size) {
    sink *to = context;
    to->why = fcp_write_all(to->fd, bytes, size);
    return to->why ? CAIRO_WRITE_ERROR : CAIRO_SUCCESS;
}

static fcp_code write_surface(const library *lib, void *surface, const char *path, fcp_error *err) {
    cmd_file f = CMD_FILE_NONE;
    fcp_code code = cmd_file_open(&f, path, err);
    if (code != FCP_OK) return code;
    sink to = {.fd = f.file.fd};
    int status = lib->cairo_surface_write_to_png_stream(surface, write_bytes, &to);
    if (to.why) code = cmd_cannot_write(path, to.why, err);
    else if (status == CAIRO_NO_MEMORY) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory drawing %.200s", path);
    else if (status != CAIRO_SUCCESS) code = cmd_cannot_write(path, EIO, err);
    if (code == FCP_OK) code = cmd_file_commit(&f, err);
    cmd_file_abandon(&f);
    return code;
}

fcp_code cmd_png(const char *svg, size_t size, const char *path, fcp_error *err) {
    library lib;
    fcp_code code = load_functions(&lib, path, err);
    if (code != FCP_OK) return code;
    void *image = lib.rsvg_handle_new_from_data((const uint8_t *)svg, size, NULL);
    double width = 0, height = 0;
    if (!image || !lib.rsvg_handle_get_intrinsic_size_in_pixels(image, &width, &height) || width * SCALE > SIDE_MAX ||
        height * SCALE > SIDE_MAX) {
        if (image) lib.g_object_unref(image);
        return fcp_fail(err, FCP_E_INTERNAL, "the image cannot be drawn as PNG");
    }
    const rectangle all = {0, 0, width * SCALE, height * SCALE};
    void *surface = lib.cairo_image_surface_create(FORMAT_RGB24, (int)all.width, (int)all.height);
    void *pen = lib.cairo_create(surface);
    bool drawn = lib.rsvg_handle_render_document(image, pen, &all, NULL) && lib.cairo_status(pen) == CAIRO_SUCCESS;
    code = drawn ? write_surface(&lib, surface, path, err)
                 : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory drawing %.200s", path);
    lib.cairo_destroy(pen);
    lib.cairo_surface_destroy(surface);
    lib.g_object_unref(image);
    return code;
}
