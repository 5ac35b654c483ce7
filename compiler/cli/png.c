/* png.c: an SVG image as a PNG file, drawn by librsvg on cairo.
 *
 * Requires: an image of ours. Gives: the file, whole or not at all, at twice the image's size, for sharp labels.
 * Where the build found no librsvg, E210 says so.
 */
#include "compiler/cli/cmd.h"

#ifdef HAVE_RSVG
#include <librsvg/rsvg.h>

enum { SCALE = 2, SIDE_MAX = 16000 };

static cairo_status_t write_bytes(void *stream, const unsigned char *bytes, unsigned size) {
    return fwrite(bytes, 1, size, stream) == size ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

fcp_code cmd_png(const text *svg, const char *path, fcp_error *err) {
    RsvgHandle *image = rsvg_handle_new_from_data((const guint8 *)svg->at, svg->size, NULL);
    double width = 0, height = 0;
    if (!image || !rsvg_handle_get_intrinsic_size_in_pixels(image, &width, &height) || width * SCALE > SIDE_MAX ||
        height * SCALE > SIDE_MAX) {
        if (image) g_object_unref(image);
        return fcp_fail(err, FCP_E_INTERNAL, "the image cannot be drawn as PNG");
    }
    RsvgRectangle all = {0, 0, width * SCALE, height * SCALE};
    cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)all.width, (int)all.height);
    cairo_t *pen = cairo_create(surface);
    cmd_file file;
    bool drawn = rsvg_handle_render_document(image, pen, &all, NULL) && cairo_status(pen) == CAIRO_STATUS_SUCCESS;
    fcp_code code =
        drawn ? cmd_file_open(&file, path, err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory drawing %.200s", path);
    if (code == FCP_OK) {
        cairo_status_t status = cairo_surface_write_to_png_stream(surface, write_bytes, file.stream);
        if (status == CAIRO_STATUS_NO_MEMORY) {
            cmd_file_abandon(&file);
            code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory drawing %.200s", path);
        } else code = cmd_file_commit(&file, err); /* which tells a write that failed */
    }
    cairo_destroy(pen);
    cairo_surface_destroy(surface);
    g_object_unref(image);
    return code;
}
#else
fcp_code cmd_png(const text *svg, const char *path, fcp_error *err) {
    (void)svg;
    return fcp_fail(err, FCP_E_UNSUPPORTED,
                    "%.200s: this fcpc was built without librsvg, which draws PNG: install librsvg2-dev and "
                    "build again, or use --svg",
                    path);
}
#endif
