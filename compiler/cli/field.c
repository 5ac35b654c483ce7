/* field.c: the files that a plan's fields and tables were read from.
 *
 * A plan holds the values, and the hash of the file that they came from. If the file has changed since, the caller
 * probably means the new values, so running the old plan is an error (E322). If the file is gone, the plan runs
 * with its own values. A file is looked for where --field says, otherwise beside the plan and in the current
 * folder.
 *
 * Requires: a checked plan.
 * Cost:     each file is read once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "runtime/base/sha256.h"

/* The file that --field gives for an array; NULL: none. */
static const char *given_file(const cmd_line *line, const char *name) {
    size_t length = strlen(name);
    const char *found = NULL;
    for (size_t i = 0; i < line->field_count; i++)
        if (!strncmp(line->fields[i], name, length) && line->fields[i][length] == '=')
            found = line->fields[i] + length + 1;
    return found;
}

/* Each --field names an array that came from a file. A plan does not know the fields that its mask and score do not
 * read, so another name may be one of these; a warning says that it changes nothing. */
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

/* E322 if the file is not the one that the array was read from. `needed`: it is an error if it is not there.
 * *out_there: it is there. */
static fcp_code check_file(const cmd_line *line, const char *path, const char *name, const fcp_array *a, bool needed,
                           bool *out_there, fcp_error *err) {
    (void)line;
    uint8_t hash[sizeof a->hash];
    int why = fcp_sha256_file(path, hash);
    *out_there = why == 0;
    if (why && (needed || why == ENOMEM))
        return fcp_fail_in(err, FCP_E_READ, path, 0, 0, "cannot be read: %s", strerror(why));
    if (why || !memcmp(hash, a->hash, sizeof hash)) return FCP_OK;
    return fcp_fail_in(err, FCP_E_FIELD_CHANGED, path, 0, 0,
                       "%s '%.60s' was read from another file than this when the plan was made; compile again",
                       a->kind == FCP_TABLE ? "table" : "field", name);
}

/* Calls `each` for every path at which a file of the plan's arrays may be: where --field says; otherwise beside the
 * plan, and then, unless *out_there says that this is it, in the current folder. Ends with the first error. */
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
