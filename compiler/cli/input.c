/* input.c: gets the plan that a command works on: from a plan file, or by compiling a program.
 *
 * Standard input, a pipe or a device can be read only once. So it is read into memory, up to a limit, before anybody
 * knows whether it is a plan or a program. A regular file is opened by the library, which maps plans instead of reading
 * them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compiler/cli/cmd.h"
#include "compiler/compile.h"
#include "compiler/dump_passes.h"
#include "compiler/show/model.h"
#include "runtime/plan/file.h"

enum { PROGRAM_MAX = 32 << 20 }; /* more than a program may have, so that the parser says that it is too long */
#define PLAN_MAX ((size_t)4 << 30)
static const char magic[] = "\x89" "FCP\r\n\x1a\n";
enum { MAGIC = sizeof magic - 1, START = 64, CHUNK = 1 << 16 };

const char *cmd_path(const char *typed) { return strcmp(typed, "-") == 0 ? "/dev/stdin" : typed; }
const char *cmd_name(const cmd_line *line) { return strcmp(line->file, "-") == 0 ? "<stdin>" : line->file; }

fcpc_options cmd_settings(const cmd_line *line) {
    const char *lengths = line->value[OPT_LENGTHS];
    return (fcpc_options){.size = sizeof(fcpc_options),
                          .defines = line->defines,
                          .define_count = line->define_count,
                          .lengths_file = lengths ? cmd_path(lengths) : NULL,
                          .fields = line->fields,
                          .field_count = line->field_count,
                          .profile = line->value[OPT_PROFILE]};
}

static fcp_code cannot_read(const cmd_line *line, int why, fcp_error *err) {
    return fcp_fail_in(err, FCP_E_READ, cmd_name(line), 0, 0, "cannot be read: %s", strerror(why));
}

/* A plan begins with eight bytes that no text begins with. Here half of them are enough, so that a damaged plan is
 * refused as a damaged plan, and not as a program with a syntax error. */
static bool begins_as_plan(const char *start, size_t size) {
    size_t same = 0;
    for (size_t i = 0; i < MAGIC && i < size; i++) same += start[i] == magic[i];
    return same >= MAGIC / 2 || (size && size < MAGIC && same == size);
}

/* The size of a plan, as its header says. A stream is read to one byte more than that: if that byte is there, or if the
 * header is damaged, the plan is refused, and nobody reads an endless stream to its end. */
static uint64_t stated_size(const char *start, size_t size) {
    file_header header;
    if (size < sizeof header) return size;
    memcpy(&header, start, sizeof header);
    return header.total_size > size ? header.total_size : size;
}

/* Adds the rest of a stream, up to `most` + 1 bytes; so many mean that it is too long. Returns 0, or an errno value. */
static int read_on(FILE *f, text *out, size_t most) {
    char chunk[CHUNK];
    size_t got = 1;
    while (got && out->size <= most && !out->failed) {
        errno = 0;
        got = fread(chunk, 1, out->size + sizeof chunk <= most ? sizeof chunk : most + 1 - out->size, f);
        text_add(out, chunk, got);
    }
    return ferror(f) ? errno ? errno : EIO : 0;
}

fcp_code cmd_open(const cmd_line *line, cmd_input *input, fcp_error *err) {
    if (input->opened) return FCP_OK;
    const char *path = cmd_path(line->file);
    struct stat st;
    if (stat(path, &st) != 0) return cannot_read(line, errno, err);
    if (S_ISDIR(st.st_mode)) return cannot_read(line, EISDIR, err);
    FILE *f = fopen(path, "rb");
    if (!f) return cannot_read(line, errno, err);
    char start[START];
    size_t size = fread(start, 1, sizeof start, f);
    int why = ferror(f) ? errno : 0;
    input->is_plan = begins_as_plan(start, size);
    const uint64_t stated = stated_size(start, size);
    input->in_memory = !S_ISREG(st.st_mode) || strcmp(line->file, "-") == 0;
    const size_t most = !input->is_plan ? PROGRAM_MAX : stated < PLAN_MAX ? stated : PLAN_MAX;
    if (!why && input->in_memory) {
        text_add(&input->bytes, start, size);
        why = read_on(f, &input->bytes, most);
    }
    fclose(f);
    if (why) return cannot_read(line, why, err);
    if (input->bytes.failed) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (input->is_plan && input->bytes.size > PLAN_MAX)
        return fcp_fail(err, FCP_E_READ, "a plan that is no file of its own may have %zu GiB; this one has more",
                        PLAN_MAX >> 30);
    const bool program = line->command == CMD_COMPILE || line->command == CMD_FMT || line->command == CMD_EXPLAIN;
    if (!size && !program)
        return fcp_fail_in(err, FCP_E_PLAN_MAGIC, cmd_name(line), 0, 0, "is empty: it is neither a plan nor a program");
    input->opened = true;
    return FCP_OK;
}

fcp_code cmd_source(const cmd_line *line, cmd_input *input, fcp_error *err) {
    fcp_code code = cmd_open(line, input, err);
    if (code != FCP_OK || input->in_memory) return code;
    int why = text_read(&input->bytes, line->file, false, PROGRAM_MAX);
    if (input->bytes.failed) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    input->in_memory = true;
    return why ? cannot_read(line, why, err) : FCP_OK;
}

/* Whether times are predicted, which a profile always changes. */
static bool predicts(const cmd_line *line) {
    return line->command == CMD_SIM || (line->command == CMD_SHOW && line->value[OPT_HTML]);
}

static fcp_code load_plan(const cmd_line *line, cmd_input *input, fcp_error *err) {
    if (line->define_count || line->value[OPT_LENGTHS])
        return fcp_fail(err, FCP_E_USAGE, "%.200s is a plan: -D and --lengths apply to a program", line->file);
    if (line->value[OPT_MAX_SECONDS] && !line->value[OPT_PAIRS])
        return fcp_fail(err, FCP_E_USAGE,
                        "%.200s is a plan, which is made already: --max-seconds applies to a program, and to "
                        "`verify --pairs`", line->file);
    if (line->value[OPT_LAYER])
        return fcp_fail(err, FCP_E_USAGE, "%.200s is a plan, which is of one mask: --layer applies to a program",
                        line->file);
    if (line->value[OPT_PROFILE] && !predicts(line))
        return fcp_fail(err, FCP_E_USAGE,
                        "%.200s is a plan, in which nothing is left to choose: --profile applies to a program, and to "
                        "sim and show --html, which predict",
                        line->file);
    if (line->field_count && line->command != CMD_RUN)
        return fcp_fail(err, FCP_E_USAGE,
                        "%.200s is a plan, which has the values of its fields: --field applies to a program",
                        line->file);
    double start = cmd_now();
    cmd_doing("loading and verifying");
    fcp_code code = input->in_memory ? fcp_plan_load_memory(input->bytes.at, input->bytes.size, &input->plan, err)
                                     : fcp_plan_load(line->file, &input->plan, err);
    cmd_done();
    text_free(&input->bytes);
    if (code == FCP_OK) code = cmd_protect_fields(line, input->plan, err);
    if (code == FCP_OK) input->times.total = input->times.verify = cmd_now() - start;
    return code;
}

static void print_passes(void *context, const planning *x) {
    const cmd_input *input = context;
    dump_planning(x, input->dump, cmd_emit, stdout);
}

fcp_code cmd_plan_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         compile_watch *watch, uint32_t chosen, cmd_input *input) {
    const uint32_t count = fcpc_program_layers(program, 0, NULL);
    fcp_plan **plans = calloc(count, sizeof *plans);
    struct cmd_layer *layers = calloc(count, sizeof *layers);
    watch->each = calloc(count, sizeof *watch->each);
    fcp_code code = plans && layers && watch->each
                        ? compile_layers(program, batch, stop, input->diagnostics, watch, &input->times, plans)
                        : FCP_E_NO_MEMORY;
    for (uint32_t i = 0; !code && i < count; i++) {
        layers[i] = (struct cmd_layer){.plan = plans[i], .spent = watch->each[i]};
        fcpc_program_layers(program, i, &layers[i].times);
    }
    if (!code && chosen) {
        input->plan = layers[chosen - 1].plan;
        input->times = layers[chosen - 1].spent;
        for (uint32_t i = 0; i < count; i++)
            if (i != chosen - 1) fcp_plan_free(layers[i].plan);
    } else if (!code) {
        input->layer_count = count;
        input->plan = layers[0].plan;
        input->layers = layers;
        layers = NULL;
    }
    free(watch->each);
    free(layers);
    free(plans);
    return code;
}

fcp_code cmd_max_seconds(const cmd_line *line, double *out, fcp_error *err) {
    uint64_t seconds;
    fcp_code code = cmd_number(line, OPT_MAX_SECONDS, 1, UINT32_MAX, 0, &seconds, err);
    if (!code) *out = (double)seconds;
    return code;
}

/* Prints the warnings so far, because planning will take long. */
static void tell_soon(void *context, const planning *x) {
    cmd_input *input = context;
    (void)x;
    if (!input->silent) cmd_render(input);
}

static fcp_code plan_program(double max_seconds, const cmd_line *line, const fcpc_program *program, uint32_t chosen,
                             cmd_input *input) {
    fcpc_progress progress = {0};
    const fcpc_batch own = {.size = sizeof own, .progress = &progress, .max_seconds = max_seconds,
                            .bound = !line->quiet || line->json || input->dump}; /* these print the lower bound */
    compile_watch watch = {.see = input->dump ? print_passes : NULL, .context = input, .soon = tell_soon,
                           .tried = &input->tried};
    cmd_watch(&progress);
    fcp_code code = program->layer_count ? cmd_plan_layers(program, &own, NULL, &watch, chosen, input)
                                         : compile_batch(program, &own, NULL, input->diagnostics, &watch, &input->times,
                                                         &input->plan);
    cmd_watch(NULL);
    return code;
}

/* Returns whether the command writes one file for each mask to the path of this option. */
static bool is_numbered(const cmd_line *line, int option) {
    if (line->command == CMD_COMPILE) return option == OPT_OUTPUT;
    return line->command == CMD_SHOW && (option == OPT_SVG || option == OPT_HTML || option == OPT_PNG);
}

fcp_code cmd_protect_layers(const cmd_line *line, const fcpc_program *program, fcp_error *err) {
    const char *named;
    struct stat st;
    fcp_code code = FCP_OK;
    for (int o = 0; o < OPT_COUNT; o++) {
        const char *path = is_numbered(line, o) ? line->value[o] : NULL;
        if (path && stat(path, &st) == 0 && !S_ISREG(st.st_mode))
            return fcp_fail_in(err, FCP_E_WRITE, path, 0, 0, "is no file: %u masks make a file each",
                               program->layer_count);
    }
    for (uint32_t i = 1; i < program->layer_count && !code; i++) {
        cmd_line implied = *line;
        char *own[OPT_COUNT] = {NULL};
        for (int o = 0; o < OPT_COUNT && !code; o++) {
            if (!line->value[o] || !is_numbered(line, o)) continue;
            implied.value[o] = own[o] = cmd_layer_path(line->value[o], i);
            if (!own[o]) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        }
        if (!code) code = cmd_check_outputs(&implied, err);
        for (size_t n = 0; !code && (named = fcpc_program_file(program, n)); n++)
            code = cmd_protect(&implied, named, "the program reads it", err);
        for (int o = 0; o < OPT_COUNT; o++) free(own[o]);
    }
    return code;
}

fcp_code cmd_choose_layer(const cmd_line *line, const fcpc_program *program, uint32_t *out, fcp_error *err) {
    static const cmd_command all[] = {CMD_COMPILE, CMD_EXPLAIN, CMD_SHOW, CMD_VERIFY, CMD_RUN, CMD_SIM};
    const uint32_t count = fcpc_program_layers(program, 0, NULL);
    const char *command = cmd_commands[line->command].name;
    uint64_t chosen = 0;
    fcp_code code = cmd_number(line, OPT_LAYER, 1, UINT32_MAX, 0, &chosen, err);
    if (!code && chosen > count)
        return fcp_fail(err, FCP_E_USAGE, "--layer is %" PRIu64 ": the program has %" PRIu32 " mask%s", chosen, count,
                        count > 1 ? "s" : "");
    *out = (uint32_t)chosen;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (chosen || count == 1 || line->command == all[i]) return code;
    return code ? code : fcp_fail(err, FCP_E_USAGE,
                                  "%.200s has layers of %" PRIu32 " masks, and %s takes one of them: --layer 1 to "
                                  "--layer %" PRIu32, cmd_name(line), count, command, count);
}

static fcp_code compile_program(const cmd_line *line, cmd_input *input, fcp_error *err) {
    input->compiled = true;
    input->diagnostics = fcpc_diagnostics_new();
    if (!input->diagnostics) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    fcpc_options options = cmd_settings(line);
    cmd_line guarded = *line;
    options.need_lengths = true;
    options.see_file = cmd_guard_file;
    options.context = &guarded;
    fcpc_program *program = NULL;
    fcp_code code = input->in_memory ? fcpc_parse_text(cmd_name(line), input->bytes.size ? input->bytes.at : "",
                                                       input->bytes.size, &options, input->diagnostics, &program)
                                     : fcpc_parse_file(line->file, &options, input->diagnostics, &program);
    text_free(&input->bytes);
    fcp_code overwrites = FCP_OK;
    uint32_t chosen = 0;
    double max_seconds = 0;
    if (code == FCP_OK) overwrites = cmd_max_seconds(line, &max_seconds, err);
    if (code == FCP_OK && overwrites == FCP_OK) overwrites = cmd_choose_layer(line, program, &chosen, err);
    if (code == FCP_OK && overwrites == FCP_OK && program->layer_count > 1 && !chosen)
        overwrites = cmd_protect_layers(line, program, err);
    if (code == FCP_OK && overwrites == FCP_OK && program->profile && !program->profile_steers && !predicts(line))
        overwrites = fcp_fail(err, FCP_E_USAGE,
                              "--profile changes nothing: the program states strategy, block and margin, and this "
                              "strategy chooses nothing by the times of kernels");
    if (code == FCP_OK && overwrites == FCP_OK) {
        cmd_doing("planning");
        code = plan_program(max_seconds, line, program, chosen, input);
        cmd_done();
    }
    fcpc_program_free(program);
    if (overwrites != FCP_OK) return overwrites;
    if (code != FCP_OK) {
        cmd_first_error(input->diagnostics, code, err);
        return err->code;
    }
    if (!input->silent) cmd_render(input);
    return FCP_OK;
}

fcp_code cmd_load(const cmd_line *line, cmd_input *input, fcp_error *err) {
    fcp_code code = cmd_open(line, input, err);
    if (code != FCP_OK) return code;
    return input->is_plan ? load_plan(line, input, err) : compile_program(line, input, err);
}

uint32_t cmd_plans(const cmd_input *input) { return input->layer_count ? input->layer_count : 1; }

fcp_plan *cmd_plan(const cmd_input *input, uint32_t i) {
    return input->layer_count ? input->layers[i].plan : input->plan;
}

const fcpc_times *cmd_times(const cmd_input *input, uint32_t i) {
    return input->layer_count ? &input->layers[i].spent : &input->times;
}

fcp_code cmd_layer_text(const cmd_input *input, uint32_t i, text *out, fcp_error *err) {
    arena memory = {0};
    const char *mask = NULL;
    if (!input->layer_count) return FCP_OK;
    const uint32_t times = input->layers[i].times;
    fcp_code code = show_mask_text(input->layers[i].plan, &memory, &mask);
    if (!code)
        text_printf(out, "mask %" PRIu32 " of %" PRIu32 ", %" PRIu32 " layer%s: %s", i + 1, input->layer_count, times,
                    times == 1 ? "" : "s", mask);
    arena_free(&memory);
    return code || out->failed ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
}

fcp_code cmd_layer_json(const cmd_input *input, uint32_t i, json *j, fcp_error *err) {
    arena memory = {0};
    const char *mask = NULL;
    fcp_code code = show_mask_text(input->layers[i].plan, &memory, &mask);
    if (!code) {
        json_u64(j, "layers", input->layers[i].times);
        json_string(j, "mask", mask);
    }
    arena_free(&memory);
    return code ? fcp_fail(err, FCP_E_NO_MEMORY, "out of memory") : FCP_OK;
}

void cmd_input_free(cmd_input *input) {
    for (uint32_t i = 1; i < input->layer_count; i++) fcp_plan_free(input->layers[i].plan);
    for (uint32_t i = 0; input->slices && i < cmd_plans(input); i++) free(input->slices[i].path);
    free(input->slices);
    free(input->layers);
    fcp_plan_free(input->plan);
    fcpc_diagnostics_free(input->diagnostics);
    text_free(&input->bytes);
    auto_report_free(&input->tried);
    *input = (cmd_input){0};
}
