/* cmd_field.c: looks at the files that a plan's fields and tables were read from.
 *
 * A plan contains the values, and a hash of the file from which they came. If the file has changed since, the user
 * probably wants the new values, so running the old plan is an error (E322). If the file is gone, the plan runs with
 * the values that it has. A file is looked for where --field says, otherwise beside the plan and then in the current
 * folder.
 *
 * Requires: a checked plan. The paths in it are not trusted, because the plan may come from somebody else.
 * Cost:     each file is read once, unless it is longer than the values need.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "runtime/base/read_file.h"
#include "runtime/base/sha256.h"
#include "runtime/plan/plan.h"

/* The file that --field gives for an array; NULL: none. */
static const char *given_file(const cmd_line *line, const char *name) {
    size_t length = strlen(name);
    const char *found = NULL;
    for (size_t i = 0; i < line->field_count; i++)
        if (!strncmp(line->fields[i], name, length) && line->fields[i][length] == '=')
            found = line->fields[i] + length + 1;
    return found;
}

/* Checks that each --field names an array that came from a file. A plan does not list the fields that its mask and
 * score do not read. So a name that the plan does not know may be one of these, and is only a warning. */
static fcp_code check_names(const cmd_line *line, const fcp_plan *plan, fcp_error *err) {
    for (size_t i = 0; i < line->field_count; i++) {
        const char *typed = line->fields[i], *equals = strchr(typed, '=');
        if (!equals || equals == typed || !equals[1])
            return fcp_fail(err, FCP_E_USAGE, "--field %.60s: expected a name and a file, --field doc=doc.npy", typed);
        const fcp_array *found = NULL;
        for (uint64_t a = 0; a < plan->arrays_count; a++) {
            const char *name = plan->names + plan->arrays[a].name;
            if (strlen(name) == (size_t)(equals - typed) && !memcmp(name, typed, strlen(name)))
                found = &plan->arrays[a];
        }
        if (!found && access(equals + 1, R_OK) != 0) /* compiling says so of a field that nothing reads, too */
            return fcp_fail_in(err, FCP_E_READ, equals + 1, 0, 0, "cannot be read: %s", strerror(errno));
        if (!found && !line->quiet && !line->json)
            fprintf(stderr, "fcpc: warning: the plan reads no field '%.*s'\n", (int)(equals - typed), typed);
        if (found && found->file == FCP_NONE)
            return fcp_fail(err, FCP_E_USAGE, "field '%.*s' of the plan came from no file", (int)(equals - typed),
                            typed);
    }
    return FCP_OK;
}

/* E322 if the file at `path` is not the one that the array was read from. `given` says that --field named it: then it
 * must be there, and may be a pipe. A path that comes from the plan must lead to a regular file, because plans may come
 * from anywhere and opening a pipe may block for ever. A file longer than the values need cannot be the same, and is
 * not read. *out_there: the file is there. */
static fcp_code check_file(const cmd_line *line, const char *path, const char *name, const fcp_array *a, bool given,
                           bool *out_there, fcp_error *err) {
    (void)line;
    uint8_t hash[sizeof a->hash];
    char room[128];
    int fd;
    uint64_t size;
    const uint64_t most = fcp_numbers_most(fcp_array_values(a));
    int why = fcp_read_open(path, !given, &fd, &size);
    *out_there = why == 0;
    if (!why) {
        why = size > most && size != UINT64_MAX ? EFBIG : fcp_sha256_fd(fd, most, hash);
        close(fd);
    }
    if (why && why != EFBIG) {
        if (!given && why != FCP_NOT_REGULAR && why != ENOMEM) return FCP_OK;
        return fcp_fail_in(err, FCP_E_READ, path, 0, 0, "cannot be read: %s%s%.60s%s", fcp_read_reason(why, room),
                           given ? "" : ", and the plan says that '", given ? "" : name,
                           given ? "" : "' came from it; --field names another");
    }
    if (!why && !memcmp(hash, a->hash, sizeof hash)) return FCP_OK;
    return fcp_fail_in(err, FCP_E_FIELD_CHANGED, path, 0, 0,
                       "%s '%.60s' was read from another file than this when the plan was made; compile again",
                       a->kind == FCP_TABLE ? "table" : "field", name);
}

/* Calls `each` for every path at which a file of the plan's arrays may be: where --field says; otherwise beside the
 * plan, and, unless *out_there says that it was found there, in the current folder. The first error ends it. */
typedef fcp_code each_path(const cmd_line *line, const char *path, const char *name, const fcp_array *a, bool given,
                           bool *out_there, fcp_error *err);
static fcp_code for_each_file(const cmd_line *line, const fcp_plan *plan, each_path *each, fcp_error *err) {
    const char *slash = strrchr(line->file, '/');
    size_t folder = slash ? (size_t)(slash - line->file) + 1 : 0;
    fcp_code code = FCP_OK;
    for (uint64_t i = 0; i < plan->arrays_count && code == FCP_OK; i++) {
        const fcp_array *a = &plan->arrays[i];
        const char *name = plan->names + a->name;
        if (a->file == FCP_NONE) continue;
        const char *file = plan->names + a->file, *given = given_file(line, name);
        bool there = false;
        if (given) {
            code = each(line, given, name, a, true, &there, err);
            continue;
        }
        char *beside = malloc(folder + strlen(file) + 1);
        if (!beside) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        memcpy(beside, line->file, folder);
        strcpy(beside + folder, file);
        if (file[0] != '/' && folder) code = each(line, beside, name, a, false, &there, err);
        if (code == FCP_OK && !there) code = each(line, file, name, a, false, &there, err);
        free(beside);
    }
    return code;
}

fcp_code cmd_check_fields(const cmd_line *line, const fcp_plan *plan, fcp_error *err) {
    fcp_code code = check_names(line, plan, err);
    return code == FCP_OK ? for_each_file(line, plan, check_file, err) : code;
}

static fcp_code protect_file(const cmd_line *line, const char *path, const char *name, const fcp_array *a, bool given,
                             bool *out_there, fcp_error *err) {
    char why[128];
    (void)a, (void)given, (void)out_there; /* both places are protected, whether or not a file is there */
    snprintf(why, sizeof why, "field '%.60s' of the plan was read from it", name);
    return cmd_protect(line, path, why, err);
}

fcp_code cmd_protect_fields(const cmd_line *line, const fcp_plan *plan, fcp_error *err) {
    return for_each_file(line, plan, protect_file, err);
}
