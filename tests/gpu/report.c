/* report.c: draws the table as a page, and writes rows.csv for `fcpc calibrate`, from the journals alone. Each is
 * written under a temporary name and renamed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "compiler/simulate/fit.h"
#include "tests/gpu/gpu.h"

/* The fields of a row. First come step, figure, against, ratio, goal, verdict, ceiling (a fact's name) and note. Then
 * come the fact that it waits for, its own milliseconds, its goal, and `first`. */
enum { STEP, FIGURE, AGAINST, RATIO, GOAL, VERDICT, CEILING, NOTE, FACT, OWN, NUMBER, FIRST, FIELDS, REST = 1500 };

/* Divides a text at its tabs, in place. Missing fields are "". */
static void split(char *text, char *fields[], int count) {
    for (int i = 0; i < count; i++) {
        fields[i] = text;
        char *tab = strchr(text, '\t');
        if (tab) *tab = 0;
        text = tab ? tab + 1 : text + strlen(text);
    }
}

/* Writes a text into a cell of a table. What would end the cell is replaced. */
static void cell(FILE *f, const char *text) {
    fputc(' ', f);
    for (; *text; text++) fputc(*text == '|' ? '/' : *text, f);
    fputs(" |", f);
}

static void put_head(FILE *f, const gpu *g) {
    const gpu_machine *m = &g->machine;
    char commit[100] = "not known", begun[60] = "not known";
    journal_find(g->journal, "begun", "commit", commit, sizeof commit);
    journal_find(g->journal, "begun", "date", begun, sizeof begun);
    if (m->standin)
        fputs("# STAND-IN: no figure here is of a GPU\n\n"
              "**This was run on a driver that stands in for CUDA's. Its times are counts of events, and "
              "mean nothing.**\n\n", f);
    else fputs("# On a GPU\n\n", f);
    fprintf(f,
            "`make gpu-check`, begun %s, commit %s. %s%s, sm_%d%d, %d multiprocessors, %.1f GB; %d device%s; "
            "driver for CUDA %d.%d (%s); %s, %s.\n\n",
            begun, commit, m->standin ? "stand-in: " : "", m->name, m->major, m->minor, m->multiprocessors,
            (double)m->memory * 1e-9, m->devices, m->devices == 1 ? "" : "s", m->driver_version / 1000,
            m->driver_version % 1000 / 10, m->driver, m->cpu, m->host);
}

static void put_steps(FILE *f, const gpu *g) {
    fputs("| step | what | result | seconds | |\n|---|---|---|---|---|\n", f);
    for (unsigned i = 0; i < g->step_count; i++) {
        char rest[REST] = "", *fields[3];
        bool there = journal_find(g->journal, "end", g->steps[i].name, rest, sizeof rest);
        split(rest, fields, 3);
        fputc('|', f);
        cell(f, g->steps[i].name);
        cell(f, g->steps[i].what);
        cell(f, there ? fields[0] : "not run yet");
        cell(f, there ? fields[1] : "");
        cell(f, there ? fields[2] : "");
        fputc('\n', f);
    }
}

static void put_rows(FILE *f, const gpu *g) {
    bool headed = false;
    for (unsigned i = 0; i < g->step_count; i++) {
        char name[200], rest[REST], *x[FIELDS];
        for (size_t at = 0; journal_next(g->journal, &at, "row", name, sizeof name, rest, sizeof rest);) {
            split(rest, x, FIELDS);
            if (strcmp(x[STEP], g->steps[i].name)) continue;
            if (!headed)
                fputs("\n| benchmark | figure | against | ratio | goal (first step) | | of its ceiling | |\n"
                      "|---|---|---|---|---|---|---|---|\n", f);
            headed = true;
            char ratio[40];
            double peer = strcmp(x[RATIO], "-") == 0 ? gpu_fact(g, x[FACT]) : GPU_NONE, own = strtod(x[OWN], NULL);
            if (peer > 0 && own > 0) { /* the fact has come since the row was recorded */
                snprintf(ratio, sizeof ratio, "%.3f", peer / own);
                x[RATIO] = ratio;
                if (strtod(x[NUMBER], NULL) != GPU_NONE)
                    x[VERDICT] = (char *)(uintptr_t)gpu_verdict(g, peer / own, false, strtod(x[NUMBER], NULL),
                                                                strtod(x[FIRST], NULL));
            }
            char part[40];
            double ceiling = gpu_fact(g, x[CEILING]);
            snprintf(part, sizeof part, ceiling > 0 ? "%.3f" : "-", strtod(x[FIGURE], NULL) / ceiling);
            x[CEILING] = part;
            fputc('|', f);
            cell(f, name);
            for (int k = FIGURE; k <= NOTE; k++) cell(f, x[k]);
            fputc('\n', f);
        }
    }
}

static void put_list(FILE *f, const journal *j, const char *title, const char *const *kinds) {
    char name[200], rest[REST];
    bool any = false;
    if (!j) return;
    for (; *kinds; kinds++)
        for (size_t at = 0; journal_next(j, &at, *kinds, name, sizeof name, rest, sizeof rest);) {
            if (!any) fprintf(f, "\n## %s\n\n", title);
            any = true;
            fprintf(f, "- %s: %s\n", name, rest);
        }
}

/* The file is on disk under its own name, or not at all. */
static bool finish(FILE *f, const char *beside, const char *path) {
    bool good = fflush(f) == 0 && (fsync(fileno(f)) == 0 || errno == EINVAL);
    good = fclose(f) == 0 && good && rename(beside, path) == 0;
    if (!good) unlink(beside);
    return good;
}

/* What was measured of one rank, as rows that `fcpc calibrate` reads. */
static bool put_calibrate_rows(const gpu *g) {
    char path[400], beside[420], name[120], rest[REST];
    snprintf(path, sizeof path, "%.380s/rows.csv", g->folder);
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    FILE *f = fopen(beside, "w");
    if (!f) return false;
    fputs(CALIBRATE_HEADER "\n", f);
    for (size_t at = 0; journal_next(g->journal, &at, "calibrate", name, sizeof name, rest, sizeof rest);)
        fprintf(f, "%s\n", rest);
    return finish(f, beside, path);
}

bool gpu_report(const gpu *g) {
    static const char *const peers[] = {"note", "fact", NULL}, *const driver[] = {"driver", NULL};
    static const char *const plans[] = {"plan", NULL}, *const waits[] = {"waits", NULL},
                             *const torch[] = {"torch", NULL};
    char path[400], beside[420];
    snprintf(path, sizeof path, "%.380s/GPU.md", g->folder);
    snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    static const char *const rungs[] = {"rung", NULL};
    FILE *f = fopen(beside, "w");
    if (!f) return false;
    put_head(f, g);
    put_steps(f, g);
    fputs("\nOf a pass the figure is the median of its kernels and, where there are several ranks, copies, "
          "in one graph; operations are those of the mask's pairs; the last column but one is the part of the matrix "
          "rate measured here. Peers, and what the driver answered, are below.\n", f);
    put_rows(f, g);
    put_list(f, g->peers, "Peers, measured on this device (milliseconds; matmul in TFLOP/s)", peers);
    put_list(f, g->journal, "Where warps wait, by their role and by what they wait for (1 % and more)", waits);
    put_list(f, g->journal, "What the driver was asked", driver);
    put_list(f, g->journal, "The ladder: what kernels rely on, one by one", rungs);
    put_list(f, g->journal, "Plans against float64: the largest error, in parts of what the judge allows", plans);
    put_list(f, g->journal, "The Python package on CUDA, beside its results on the CPU", torch);
    return finish(f, beside, path) && put_calibrate_rows(g);
}
