/* test_cost.c: tests the costs that are read from listings of machine code, on small listings whose answer is known:
 * the execution unit of each instruction, loops over steps, inner loops, lanes that diverge, classes of cells, and
 * listings that are cut off or make no sense. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cost/cost.h"

/* Lines 2 to 6 of a file, each with a mark; and a call of lines 7 to 9, with a mark in the middle. */
#define SOURCE                                                                                                         \
    "#define FIRST\n#line 1 \"k.h\"\nnothing\nadvance(); // cost: step\ncount(); // cost: PARTIAL\n"                   \
    "skip(); // cost: FULL\nfor_all(); // cost: elements\nrest(); // cost: seldom\n"                                   \
    "call(a(), '(', \"(\\\"\", /* ( */ // (\n     b, // cost: FULL elements\n     c);\nafter();\n"
#define KERNEL(name)                                                                                                   \
    "\t.section\t.text." name ",\"ax\",@progbits\n\t.sectioninfo\t@\"SHI_REGISTERS=8\"\n.text." name ":\n"
#define NOWHERE "\t//## File \"/a/k.h\", line 1\n"
#define STEP "\t//## File \"/a/other.h\", line 7 inlined at \"/a/k.h\", line 2\n\t//## File \"/a/k.h\", line 2\n"
#define PARTIAL "\t//## File \"/a/other.h\", line 9 inlined at \"/a/k.h\", line 3\n"
#define FULL "\t//## File \"/a/k.h\", line 4\n"
#define ELEMENTS "\t//## File \"/a/k.h\", line 5\n"
#define CALL(line) "\t//## File \"/a/other.h\", line 9 inlined at \"/a/k.h\", line " #line "\n"
#define SELDOM "\t//## File \"k.h\", line 6\n"
#define I(text) "        /*0010*/   " text " ;\n"
#define L(name) name ":\n"
#define END I("EXIT") L(".L_end")

static cost_report read_of(const char *listing, const char *arch) {
    cost_report report;
    char wrong[160] = "";
    cr_assert(cost_read(SOURCE, listing, cost_machine_of(arch), &report, wrong), "%s", wrong);
    return report;
}

/* The only loop over steps in the only kernel. */
static cost_step step_of(const char *listing) {
    cost_report report = read_of(listing, "sm_90a");
    cr_assert_eq(report.count, 1);
    cr_assert_eq(report.kernels[0].step_count, 1, "%u loops over steps", report.kernels[0].step_count);
    cost_step step = report.kernels[0].steps[0];
    cost_free(&report);
    return step;
}

static void has(const cost_counts *c, uint64_t issue, cost_pipe pipe, uint64_t instructions, uint64_t clocks) {
    cr_expect_eq(cost_issue(c), issue, "%lu instructions, not %lu", (unsigned long)cost_issue(c), (unsigned long)issue);
    cr_expect_eq(c->instructions[pipe], instructions, "%s: %lu", cost_pipe_names[pipe],
                 (unsigned long)c->instructions[pipe]);
    cr_expect_eq(c->clocks[pipe], clocks, "%s: %lu clocks", cost_pipe_names[pipe], (unsigned long)c->clocks[pipe]);
}

Test(cost, a_loop) {
    const char *text = KERNEL("f") NOWHERE I("S2R R0, SR_TID.X") L(".L_x_0")
        I("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR20], R24, gsb0") I("MUFU.EX2 R4, R5") ELEMENTS I("FFMA R1, R2, R3, R4")
        I("@!P1 FMNMX R1, R2, R3, !PT") NOWHERE I("LDS.64 R4, [R5]") I("ULOP3.LUT UR4, UR4, 0x1, URZ, 0xc0, !UPT")
        I("BAR.SYNC.DEFER_BLOCKING 0x4, 0x100") I("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R2+URZ], RZ") I("MEMBAR.ALL.CTA")
        I("WARPGROUP.DEPBAR.LE gsb0, 0x1") STEP I("VIADD R0, R0, 0x1") NOWHERE I("@P0 BRA `(.L_x_0)") END;
    cost_step s = step_of(text);
    for (int class = 0; class < COST_CLASSES; class++) {
        has(&s.of[class], 12, COST_TENSOR, 1, 64);
        has(&s.of[class], 12, COST_SHARED, 2, 16 + 128 / 4 + 4);
        has(&s.of[class], 12, COST_MUFU, 1, 8);
        has(&s.of[class], 12, COST_ALU, 2, 4);
        has(&s.of[class], 12, COST_FMA, 1, 1);
        has(&s.of[class], 12, COST_CONTROL, 5, 5);
        cr_expect_eq(s.of[class].waits, 2);
        cr_expect_eq(s.of[class].arrivals, 1);
        cr_expect_eq(s.of[class].fences, 1);
        cr_expect_eq(s.of[class].elements, 2);
        cr_expect_eq(cost_bound(&s.of[class]), COST_TENSOR);
    }
}

/* Bytes of global memory, by the width that the name of an instruction says; shared memory is none of it. */
Test(cost, bytes) {
    cost_step s = step_of(KERNEL("f") NOWHERE L(".L_x_0") I("LDG.E R1, desc[UR4][R2.64]")
        I("LDG.E.64 R4, desc[UR4][R2.64]") I("LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64]")
        I("STG.E.U16 desc[UR4][R2.64], R1") I("REDG.E.ADD.64.STRONG.GPU desc[UR4][R2.64], R4") I("LDS.128 R4, [R1]")
        STEP I("VIADD R0, R0, 0x1") NOWHERE I("@P0 BRA `(.L_x_0)") END);
    cr_expect_eq(s.of[COST_FULL].bytes, 32 * (4 + 8 + 16 + 2 + 8), "%lu", (unsigned long)s.of[COST_FULL].bytes);
}

/* Shared memory moves 128 bytes a clock for four quarters. The operands of a product are 2 KB of A, unless A is in
 * registers, and N x 32 bytes of B, which four quarters share. */
Test(cost, shared_memory) {
    static const struct {
        const char *text;
        uint64_t clocks;
    } all[] = {{"HGMMA.64x32x16.F32.BF16 R24, gdesc[UR20], R24", 16 + 8},
               {"HGMMA.64x64x16.F32.BF16 R24, gdesc[UR20].tnspA.tnspB, RZ, !UPT", 16 + 16},
               {"HGMMA.64x256x16.F32.BF16 R24, R4, gdesc[UR20].tnspB, R24, gsb0", 64},
               {"LDSM.16.M88.4 R4, [R8]", 16},
               {"LDSM.16.MT88.2 R4, [R8]", 8},
               {"STSM.16.M88 [R8], R4", 4},
               {"LDS.64 R4, [R8]", 4},
               {"STS [R8], R4", 4},
               {"ATOMS.ADD RZ, [R8], R4", 4},
               {"LDGSTS.E.BYPASS.128 [R8], desc[UR4][R2.64]", 16},
               {"LDGSTS.E [R8], desc[UR4][R2.64]", 4},
               {"LDG.E R4, desc[UR4][R2.64]", 0},
               {"SHFL.BFLY PT, R4, R5, 0x1, 0x1f", 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[600];
        snprintf(text, sizeof text,
                 KERNEL("f") NOWHERE L(".L_x_0") "/*0010*/ %s ;\n" STEP I("NOP") I("@P0 BRA `(.L_x_0)") END,
                 all[i].text);
        cost_step s = step_of(text);
        has(&s.of[COST_FULL], 3, COST_SHARED, all[i].clocks != 0, all[i].clocks);
        if (i == 0) cr_expect_eq(cost_bound(&s.of[COST_FULL]), COST_SHARED); /* the tensor cores take 16 */
        if (i == 1) cr_expect_eq(cost_bound(&s.of[COST_FULL]), COST_TENSOR); /* they take as long */
    }
}

Test(cost, nothing_is_a_step_without_a_mark) {
    cost_report r = read_of(KERNEL("f") NOWHERE L(".L_x_0") I("FADD R1, R2, R3") I("@P0 BRA `(.L_x_0)") END, "sm_80");
    cr_expect_eq(r.kernels[0].step_count, 0);
    cr_expect_eq(r.kernels[0].instructions, 3);
    cost_free(&r);
}

/* A loop over steps has other loops around it and inside it. The one with the mark is meant. */
Test(cost, loops_in_loops) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_0") I("FADD R1, R2, R3") L(".L_x_1") I("IMAD.MOV.U32 R2, RZ, RZ, RZ")
        L(".L_x_2") I("MUFU.EX2 R4, R5") I("VIADD R2, R2, 0x1") I("ISETP.NE.AND P0, PT, R2.reuse, 0x8, PT")
        I("@P0 BRA `(.L_x_2)") STEP I("FMUL R1, R1, R1") NOWHERE I("@P1 BRA `(.L_x_1)") I("@P2 BRA `(.L_x_0)") END;
    cost_step s = step_of(text);
    has(&s.of[COST_FULL], 1 + 8 * 4 + 2, COST_MUFU, 8, 64);
    cr_expect_eq(s.of[COST_FULL].unknown_loops, 0);
}

/* The comparison before the count, in steps of 4, of a uniform register that is copied; the branch has its guard behind
 * its name. 0, 4, 8, 12: four turns. */
Test(cost, turns_counted_after_the_comparison) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_1") I("UMOV UR4, URZ") L(".L_x_2") I("MUFU.EX2 R4, R5")
        I("UISETP.GE.U32.AND UP0, UPT, UR4, 0xc, UPT") I("UIADD3 UR5, UPT, UPT, UR4, 0x4, URZ") I("UMOV UR4, UR5")
        I("BRA.U !UP0, `(.L_x_2)") STEP I("FMUL R1, R1, R1") NOWHERE I("@P1 BRA `(.L_x_1)") END;
    cost_step s = step_of(text);
    has(&s.of[COST_FULL], 1 + 4 * 5 + 2, COST_MUFU, 4, 32);
    cr_expect_eq(s.of[COST_FULL].unknown_loops, 0);
}

/* A loop that begins where nobody knows counts once, and says so. */
Test(cost, turns_that_are_not_known) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_1") I("LDG.E R2, [R4]") L(".L_x_2") I("MUFU.EX2 R4, R5")
        I("VIADD R2, R2, 0x1") I("ISETP.NE.AND P0, PT, R2, 0x8, PT") I("@P0 BRA `(.L_x_2)") STEP I("FMUL R1, R1, R1")
        NOWHERE I("@P1 BRA `(.L_x_1)") END;
    cost_step s = step_of(text);
    has(&s.of[COST_FULL], 1 + 4 + 2, COST_MUFU, 1, 8);
    cr_expect_eq(s.of[COST_FULL].unknown_loops, 1);
}

/* Both sides of a branch where lanes part count, the longer side of one where they do not. */
Test(cost, lanes_that_part) {
#define SIDES                                                                                                          \
    I("@P0 BRA `(.L_x_2)") I("MUFU.EX2 R4, R5") I("MUFU.EX2 R4, R5") I("BRA `(.L_x_3)")                                \
    L(".L_x_2") I("FADD R1, R2, R3") L(".L_x_3")
    const char *part = KERNEL("f") NOWHERE L(".L_x_1") I("BSSY B0, `(.L_x_4)") SIDES I("BSYNC B0") L(".L_x_4") STEP
        I("FMUL R1, R1, R1") NOWHERE I("@P1 BRA `(.L_x_1)") END;
    const char *together = KERNEL("f") NOWHERE L(".L_x_1") SIDES STEP I("FMUL R1, R1, R1") NOWHERE
        I("@P1 BRA `(.L_x_1)") END;
    cost_step s = step_of(part);
    has(&s.of[COST_FULL], 1 + 5 + 1 + 2, COST_FMA, 2, 2);
    s = step_of(together);
    has(&s.of[COST_FULL], 4 + 2, COST_FMA, 1, 1);
}

/* Another try at a barrier is no work. A branch for stray lanes is not taken. */
Test(cost, waiting) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_1") I("SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R11], R8")
        I("@!P1 BRA `(.L_x_6)") L(".L_x_2") I("BRA.DIV UR4, `(.L_x_7)") STEP I("FMUL R1, R1, R1") NOWHERE
        I("@P0 BRA `(.L_x_1)") I("EXIT") L(".L_x_6") I("SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [R11], R8")
        I("@!P1 BRA `(.L_x_6)") I("BRA `(.L_x_2)") L(".L_x_7") I("NOP") I("BRA `(.L_x_2)") L(".L_end");
    cost_step s = step_of(text);
    has(&s.of[COST_FULL], 5, COST_FMA, 1, 1);
    cr_expect_eq(s.of[COST_FULL].waits, 1);
}

/* Instructions of a marked line count for its class. A product without a mark counts for both classes. So does what
 * every way to the product goes through, even if an instruction of PARTIAL has strayed there. */
Test(cost, classes) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_1") I("@P3 BRA `(.L_x_5)") I("FADD R1, R2, R3") PARTIAL
        I("SEL R1, R2, R3, P0") NOWHERE I("@P0 BRA `(.L_x_2)") PARTIAL I("ISETP.GE.AND P2, PT, R1, R2, PT")
        I("SEL R1, R2, R3, P0") NOWHERE L(".L_x_2") I("HGMMA.64x64x16.F32.BF16 R24, gdesc[UR20], R24")
        I("@P0 BRA `(.L_x_4)") FULL I("FMUL R1, R1, R1") NOWHERE I("BRA `(.L_x_5)") L(".L_x_4") PARTIAL
        I("FSEL R1, R1, R2, P1") I("FSEL R1, R1, R2, P1") I("FSEL R1, R1, R2, P1") NOWHERE L(".L_x_5")
        STEP I("VIADD R0, R0, 0x1") NOWHERE I("@P1 BRA `(.L_x_1)") END;
    cost_step s = step_of(text);
    has(&s.of[COST_FULL], 4 + 2 + 2 + 2, COST_ALU, 2, 4);
    has(&s.of[COST_FULL], 10, COST_FMA, 2, 2);
    has(&s.of[COST_PARTIAL], 4 + 2 + 2 + 3 + 2, COST_ALU, 7, 14);
    has(&s.of[COST_PARTIAL], 13, COST_TENSOR, 1, 32);
}

/* A mark covers all lines of its call, and no other. */
Test(cost, a_call_of_several_lines) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_1") CALL(7) I("FADD R1, R2, R3") CALL(8) I("FADD R1, R2, R3") CALL(9)
        I("FADD R1, R2, R3") CALL(10) I("FADD R1, R2, R3") STEP I("NOP") NOWHERE I("@P1 BRA `(.L_x_1)") END;
    cost_step s = step_of(text);
    cr_expect_eq(s.of[COST_FULL].elements, 3, "%lu", (unsigned long)s.of[COST_FULL].elements);
}

Test(cost, what_is_seldom_done) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_1") I("@P0 BRA `(.L_x_2)") SELDOM I("FADD R1, R2, R3")
        I("FADD R1, R2, R3") NOWHERE L(".L_x_2") SELDOM I("FMUL R1, R1, R1") STEP I("NOP") NOWHERE
        I("@P1 BRA `(.L_x_1)") END;
    cost_step s = step_of(text);
    for (int class = 0; class < COST_CLASSES; class++) has(&s.of[class], 4, COST_FMA, 1, 1);
}

Test(cost, what_is_not_known_is_said) {
    cost_report r = read_of(KERNEL("f") NOWHERE L(".L_x_0") I("FROBNICATE.X4 R1, R2") STEP I("FADD R1, R2, R3") NOWHERE
                            I("@P0 BRA `(.L_x_0)") END, "sm_100");
    cr_expect_str_eq(r.kernels[0].unknown, "FROBNICATE.X4");
    has(&r.kernels[0].steps[0].of[COST_FULL], 3, COST_OTHER, 1, 1);
    cost_free(&r);
}

Test(cost, a_kernel_without_instructions) {
    cost_report r = read_of(KERNEL("f") KERNEL("g") I("EXIT"), "sm_80");
    cr_expect_eq(r.count, 2);
    cr_expect_eq(r.kernels[0].instructions, 0);
    cr_expect_eq(r.kernels[0].step_count, 0);
    cr_expect_str_eq(r.kernels[1].name, "g");
    cost_free(&r);
}

static bool reads(const char *listing, char wrong[160]) {
    cost_report r;
    bool good = cost_read(SOURCE, listing, cost_machine_of("sm_90a"), &r, wrong);
    if (good) cost_free(&r);
    return good;
}

Test(cost, what_cannot_be_read) {
    char wrong[160];
    cr_expect(!reads("", wrong) && strstr(wrong, "no kernel"), "%s", wrong);
    cr_expect(!reads(KERNEL("f") I("@P0 BRA `(.L_x_9)") I("EXIT"), wrong) && strstr(wrong, "place of a branch of f"),
              "%s", wrong);
    cr_expect(!reads(KERNEL("f") I("FADD R1, R2, R3"), wrong) && strstr(wrong, "in the middle of f"), "%s", wrong);
    cr_expect(!reads(KERNEL("f") "  /*0010*/  FADD R1, R2", wrong) && strstr(wrong, "without an end"), "%s", wrong);
    cr_expect(!reads(KERNEL("f") "  /*0010*/  ;\n", wrong) && strstr(wrong, "without a name"), "%s", wrong);
    cr_expect(!reads(KERNEL("f") "  /*0010", wrong) && strstr(wrong, "without an end"), "%s", wrong);
}

/* Wherever a listing is cut off before its last instruction, that is noticed; and no damaged byte does harm. */
Test(cost, cut_off_and_damaged) {
    const char *text = KERNEL("f") NOWHERE L(".L_x_1") I("BSSY B0, `(.L_x_2)") I("@P0 BRA `(.L_x_2)")
        I("MUFU.EX2 R4, R5") L(".L_x_2") STEP I("FMUL R1, R1, R1") PARTIAL I("VIADD R2, R2, 0x1")
        I("ISETP.NE.AND P0, PT, R2, 0x8, PT") I("@P0 BRA `(.L_x_1)") END;
    size_t size = strlen(text), first = (size_t)(strstr(text, "BSSY") - text),
           last = (size_t)(strstr(text, "EXIT") - text);
    char *copy = malloc(size + 1), wrong[160];
    cr_assert(copy && reads(text, wrong));
    for (size_t cut = 0; cut < last; cut++) { /* without any instruction, a kernel is empty */
        memcpy(copy, text, cut);
        copy[cut] = 0;
        bool good = reads(copy, wrong);
        cr_expect(cut < first || !good, "cut off at byte %zu of %zu", cut, size);
    }
    for (size_t at = 0; at < size; at++)
        for (const char *c = "\n/*@`(;:,.R9\"\x80"; *c; c++) {
            memcpy(copy, text, size + 1);
            copy[at] = *c;
            reads(copy, wrong);
        }
    free(copy);
}

Test(cost, machines) {
    cr_expect_null(cost_machine_of("sm_75"));
    cr_expect_null(cost_machine_of("hopper"));
    cr_expect_null(cost_machine_of(""));
    cr_expect_eq(cost_machine_of("sm_90a"), cost_machine_of("sm_90"));
    cr_expect_eq(cost_machine_of("sm_90")->group_flops, 4096);
    const struct { const char *arch; uint64_t clocks; } product[] = {
        {"sm_80", 8}, {"sm_86", 16}, {"sm_90", 8}, {"sm_100", 8}};
    for (size_t i = 0; i < sizeof product / sizeof *product; i++) {
        cost_report r = read_of(KERNEL("f") NOWHERE L(".L_x_0") I("HMMA.16816.F32.BF16 R4, R8, R12, R4") STEP I("NOP")
                                I("@P0 BRA `(.L_x_0)") END, product[i].arch);
        has(&r.kernels[0].steps[0].of[COST_FULL], 3, COST_TENSOR, 1, product[i].clocks);
        cost_free(&r);
    }
    for (int p = 0; p < COST_PIPES; p++) cr_expect(cost_pipe_names[p] && cost_sources[p] && *cost_sources[p]);
}
