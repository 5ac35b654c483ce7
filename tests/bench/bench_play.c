/* bench_play.c: measures the playground's page: tests/bench/bench_play.mjs does it in headless Chromium, and its lines
 * become rows; and runs any other script of that kind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/bench.h"

#define PLAY "build/site/play"

/* A line is NAME, VALUE, UNIT, GOAL, met or missed or -, and a NOTE, with tabs between. */
static void read_row(char *line) {
    char *part[6] = {line};
    for (int i = 1; i < 6; i++) {
        char *tab = part[i - 1] ? strchr(part[i - 1], '\t') : NULL;
        if (tab) *tab = 0;
        part[i] = tab ? tab + 1 : NULL;
    }
    if (!part[5]) return;
    part[5][strcspn(part[5], "\n")] = 0;
    bench_row(part[0], strtod(part[1], NULL), part[2], part[3], !strcmp(part[4], "met"), part[5]);
}

void bench_script(const char *command) {
    char line[512];
    FILE *said = popen(command, "r");
    while (said && fgets(line, sizeof line, said)) read_row(line);
    if (said) pclose(said);
}

void bench_play(void) {
    if (!bench_may_want("play")) return; /* all rows have it in their names */
    if (access(PLAY "/fcpc.wasm", R_OK) != 0) printf("play: there is no " PLAY " (make playground)\n");
    else bench_script("node tests/bench/bench_play.mjs " PLAY " chromium");
}
