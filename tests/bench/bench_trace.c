/* bench_trace.c: measures pictures of time: how long it takes to simulate 256 ranks and both passes and to write the
 * trace to a file; and for the page of the same plan its size, how long it takes to make, and, where there is Chromium,
 * when it first paints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "compiler/trace/trace.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"

enum { RUNS = 9, PAINTS = 5 };

static fcp_plan *make_plan(bool *out_drawn) {
    static const char source[] = "model { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }\n"
                                 "cluster { nodes = 32; gpus = 8; gpu = h200 }\n"
                                 "plan { mask = causal; block = 2K; strategy = fcp; passes = forward, backward }\n";
    size_t count = 0;
    uint64_t *lengths = workload_lengths("wlbllm-256x32k", 256 * 32768, &count, out_drawn);
    fcp_plan *plan = lengths ? bench_plan_of(source, lengths, count) : NULL;
    free(lengths);
    return plan;
}

static bool write_file(const char *path, const char *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(bytes, 1, size, f) == size;
    return f && !fclose(f) && ok;
}

static void bench_file(const fcp_plan *plan, const char *from) {
    double times[RUNS];
    char path[512], note[120];
    size_t size = 0;
    bool ok = true;
    double used = bench_processor();
    bench_temporary(path, "trace.json");
    for (int i = 0; i < RUNS && ok; i++) {
        sim_profile profile;
        sim_result result;
        arena memory = {0};
        timeline t;
        text out = {0};
        double begin = bench_now();
        ok = !sim_profile_find("h200", &profile, NULL) && !simulate(plan, &profile, NULL, &memory, &result, NULL) &&
             !timeline_predict(plan, &profile, NULL, &result, "all", &memory, &t, NULL) &&
             !trace_json(&t, &out, NULL) && write_file(path, out.at, out.size);
        times[i] = bench_now() - begin;
        size = out.size;
        text_free(&out);
        arena_free(&memory);
    }
    used = bench_processor() - used;
    remove(path);
    double ms = ok ? 1e3 * bench_median(times, RUNS) : 0;
    snprintf(note, sizeof note, "%.1f MB, all ranks, simulated twice; processor time %.0f ms%s", (double)size * 1e-6,
             1e3 * used / RUNS, from);
    bench_row("trace of 256 ranks, simulated and written", ms, "ms", "<= 300 ms", ok && ms <= 300,
              ok ? note : "failed");
}

/* When a page first paints, in milliseconds from the beginning of its loading; 0: nobody can tell. A copy of it says so
 * on its console: without the policy, which would not let the script in. */
static double paint(const char *chromium, const char *page) {
    static const char script[] =
        "<script>new PerformanceObserver(l => l.getEntries().forEach(e => console.log(e.name + '=' + e.startTime)))"
        ".observe({type: 'paint', buffered: true})</script>";
    char path[512], folder[512], command[3200], line[1000];
    double found = 0;
    bench_temporary(path, "page.html");
    bench_temporary(folder, "profile");
    const char *policy = strstr(page, "<meta http-equiv"), *rest = policy ? strchr(policy, '\n') : NULL;
    FILE *f = rest ? fopen(path, "wb") : NULL;
    if (!f) return 0;
    fprintf(f, "%.*s%s%s", (int)(policy - page), page, rest, script);
    if (fclose(f)) return 0;
    snprintf(command, sizeof command,
             "timeout 60 %s --headless --no-sandbox --disable-gpu --user-data-dir=%s --no-first-run "
             "--disable-background-networking --enable-logging=stderr "
             "--window-size=1300,1600 --screenshot=%s.png file://%s 2>&1; rm -rf %s %s.png",
             chromium, folder, folder, path, folder, folder);
    FILE *console = popen(command, "r");
    while (console && fgets(line, sizeof line, console)) {
        const char *at = strstr(line, "first-contentful-paint=");
        if (at) found = strtod(at + strlen("first-contentful-paint="), NULL);
    }
    if (console) pclose(console);
    remove(path);
    return found;
}

static void bench_page(const fcp_plan *plan, const char *from) {
    double times[RUNS];
    char *page = NULL, note[120];
    for (int i = 0; i < RUNS; i++) {
        double begin = bench_now();
        free(page);
        if (fcpc_show_html(plan, NULL, &page, NULL))
            return bench_row("page of 256 ranks, size", 0, "MB", "<= 2 MB", false, "failed");
        times[i] = bench_now() - begin;
    }
    double megabytes = (double)strlen(page) * 1e-6;
    snprintf(note, sizeof note, "made in %.1f ms%s", 1e3 * bench_median(times, RUNS), from);
    bench_row("page of 256 ranks, size", megabytes, "MB", "<= 2 MB", megabytes <= 2, note);
    const char *name = "page of 256 ranks, first paint in headless Chromium";
    const char *chromium = !system("command -v chromium > /dev/null 2>&1") ? "chromium"
                           : !system("command -v google-chrome > /dev/null 2>&1") ? "google-chrome" : NULL;
    if (bench_wants(name) && chromium) {
        double paints[PAINTS], seconds;
        for (int i = 0; i < PAINTS; i++) paints[i] = 1e-3 * paint(chromium, page);
        seconds = bench_median(paints, PAINTS);
        bench_row(name, seconds, "s", "<= 1 s", seconds > 0 && seconds <= 1,
                  seconds > 0 ? "a new profile each time" : "it does not say");
    } else bench_row(name, 0, "s", "<= 1 s", false, "there is no Chromium");
    free(page);
}

void bench_trace(void) {
    bool drawn = false;
    if (!bench_wants("trace of 256 ranks, simulated and written") && !bench_wants("page of 256 ranks, size") &&
        !bench_wants("page of 256 ranks, first paint in headless Chromium"))
        return;
    fcp_plan *plan = make_plan(&drawn);
    if (!plan) return bench_row("trace of 256 ranks, simulated and written", 0, "ms", "<= 300 ms", false, "no plan");
    const char *from = drawn ? ", drawn lengths" : "";
    bench_file(plan, from);
    bench_page(plan, from);
    fcp_plan_free(plan);
}
