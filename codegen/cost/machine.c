/* machine.c: which unit of the GPU an instruction keeps busy, and for how many clocks.
 *
 * Example:  MUFU takes 8 clocks. A quarter of an SM (which issues an instruction of one warp each clock) has 4 of these
 *           units for the 32 lanes of a warp; the whole SM has 16. In general c clocks mean 32 / c lanes at once.
 * Requires: the name of an instruction as the disassembler prints it, with its suffixes: "HGMMA.64x128x16.F32.BF16".
 */
#include <stdio.h>
#include <string.h>

#include "codegen/cost/cost_parts.h"

const char *const cost_pipe_names[COST_PIPES] = {"tensor", "shared",  "mufu",    "fma",  "alu",
                                                 "memory", "uniform", "control", "other"};
const char *const cost_class_names[COST_CLASSES] = {"FULL", "PARTIAL"};

#define GUIDE "CUDA C++ Programming Guide, throughput of native arithmetic instructions"
const char *const cost_sources[COST_PIPES] = {
    [COST_TENSOR] = "dense bf16 peak of the data sheets, by multiprocessors and boost clock; "
                    "mma.sync on sm_90 and later: assumed",
    [COST_SHARED] =
        "CUDA C++ Programming Guide, shared memory (32 banks of 4 bytes); that WGMMA reads A once, and B once "
        "for its four warps: assumed",
    [COST_MUFU] = GUIDE " (16 results a clock and multiprocessor)",
    [COST_FMA] = GUIDE " (64 on sm_80, else 128)",
    [COST_ALU] = GUIDE " (64: compare, minimum, logic, shifts); packing two numbers: assumed",
    [COST_MEMORY] = GUIDE " (32: shuffles); loads and stores without conflicts: assumed",
    [COST_UNIFORM] = "assumed",
    [COST_CONTROL] = "assumed",
    [COST_OTHER] = "assumed",
};

/* Operations of the tensor cores: of a warp, of a warpgroup; then clocks of the other pipes in their order. */
static const cost_machine machines[] = {
    {"sm_80", 2048, 0, {0, 0, 8, 2, 2, 4, 2, 1, 1}},    {"sm_86", 1024, 0, {0, 0, 8, 1, 2, 4, 2, 1, 1}},
    {"sm_87", 2048, 0, {0, 0, 8, 1, 2, 4, 2, 1, 1}},    {"sm_89", 1024, 0, {0, 0, 8, 1, 2, 4, 2, 1, 1}},
    {"sm_90", 2048, 4096, {0, 0, 8, 1, 2, 4, 2, 1, 1}}, {"sm_100", 2048, 0, {0, 0, 8, 1, 2, 4, 2, 1, 1}},
    {"sm_103", 2048, 0, {0, 0, 8, 1, 2, 4, 2, 1, 1}},   {"sm_120", 1024, 0, {0, 0, 8, 1, 2, 4, 2, 1, 1}},
};

const cost_machine *cost_machine_of(const char *arch) {
    size_t length = strlen(arch);
    if (length && (arch[length - 1] == 'a' || arch[length - 1] == 'f')) length--;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++)
        if (strlen(machines[i].arch) == length && memcmp(machines[i].arch, arch, length) == 0) return &machines[i];
    return NULL;
}

/* The instructions of each pipe, without suffixes, between spaces. */
static const char *const members[COST_PIPES] = {
    [COST_TENSOR] = " HGMMA HMMA ",
    [COST_MUFU] = " MUFU F2F F2I I2F FRND POPC FLO BREV ",
    [COST_FMA] = " FADD FMUL FFMA FADD2 FMUL2 FFMA2 FADD32I FMUL32I FFMA32I HADD2 HMUL2 HFMA2 IMAD IMUL IDP IMAD32I "
                 "HADD2_32I HMUL2_32I HFMA2_32I ",
    [COST_ALU] = " IADD IADD3 IADD32I VIADD VIADDMNMX VIMNMX VIMNMX3 IABS IMNMX ISETP FSETP FSEL FSET SEL LOP3 LOP "
                 "LOP32I PLOP3 SHF SHL SHR LEA PRMT FMNMX FMNMX3 F2FP I2FP F2IP I2IP MOV MOV32I SGXT BMSK P2R R2P CS2R "
                 "FCHK HSETP2 HMNMX2 HSET2 ISCADD VABSDIFF VABSDIFF4 VHMNMX ",
    [COST_MEMORY] = " LDG STG LDS STS LD ST LDL STL LDC LDCU LDSM STSM ATOM ATOMG ATOMS RED REDG REDAS LDGSTS "
                    "LDGDEPBAR SHFL S2R S2UR CCTL CCTLL QSPC MATCH REDUX UBLKCP UBLKPF UBLKRED UTMALDG UTMASTG "
                    "UTMAREDG UTMAPF UTMACCTL UTMACMDFLUSH ",
    [COST_UNIFORM] = " ULOP3 ULOP UIADD3 UIMAD UMOV UMOV32I USHF USHL USHR USEL UISETP UPLOP3 ULEA UPRMT UFLO UPOPC "
                     "UBREV ULDC R2UR VOTEU USGXT UBMSK UP2UR UR2UP UVIADD UVIMNMX UIABS UF2FP UFADD UFMUL UFFMA "
                     "UFSETP UFSEL UCS2R UIADD3X UIMNMX ",
    [COST_CONTROL] = " BRA BRX BRXU JMP JMX JMXU CALL RET EXIT BSSY BSYNC BREAK BMOV WARPSYNC BAR DEPBAR WARPGROUP "
                     "SYNCS MEMBAR FENCE ERRBAR CGAERRBAR NOP YIELD NANOSLEEP VOTE ELECT LEPC KILL PMTRIG USETMAXREG "
                     "ACQBULK PREEXIT ENDCOLLECTIVE UCGABAR_ARV UCGABAR_WAIT R2B B2R RPCMOV BPT UBRA WARPGROUPSET "
                     "CGABAR ACQSHMINIT ",
};

/* The length of an instruction's name without suffixes. */
static size_t stem(const char *name) { return strcspn(name, "."); }

cost_pipe cost_pipe_of(const char *name) {
    char word[40];
    size_t length = stem(name);
    if (!length || length + 3 > sizeof word) return COST_OTHER;
    snprintf(word, sizeof word, " %.*s ", (int)length, name);
    for (int p = 0; p < COST_OTHER; p++)
        if (members[p] && strstr(members[p], word)) return (cost_pipe)p;
    return COST_OTHER;
}

/* Operations of one warp in a product: "HMMA.16816.F32" is 16 x 8 x 16; of "HGMMA.64x128x16.F32" each of four warps
 * does a quarter. 0: the name has no size. */
static uint64_t operations(const char *name, bool group) {
    unsigned m = 0, n = 0, k = 0;
    const char *size = name + stem(name);
    if (group) return sscanf(size, ".%4ux%4ux%4u", &m, &n, &k) == 3 ? UINT64_C(2) * m * n * k / 4 : 0;
    if (sscanf(size, ".%2u%1u%2u", &m, &n, &k) == 3 || sscanf(size, ".%2u%1u%1u", &m, &n, &k) == 3)
        return UINT64_C(2) * m * n * k;
    return 0;
}

static uint64_t clocks_of(const cost_machine *machine, const char *name, cost_pipe pipe) {
    if (pipe != COST_TENSOR) return machine->clocks[pipe];
    bool group = strncmp(name, "HGMMA", 5) == 0;
    uint64_t speed = group ? machine->group_flops : machine->warp_flops;
    return speed ? operations(name, group) * 4 / speed : 0; /* a quarter has a quarter of the speed */
}

/* Bytes of shared memory that a warp reads or writes. LDS.64 counts as LDS does, 4 bytes a lane: lanes that read the
 * same address share what is read, as they do in all such loads of the kernels. Of an HGMMA's operands each of four
 * warps is charged a quarter. A row of A or B has 32 bytes; A has 64 rows, and stands in shared memory if the operand
 * behind the result is a descriptor: "R24, gdesc[UR8], R24" has both in one, "R24, R4, gdesc[UR8], R24" has B. */
static uint64_t shared_bytes(const cost_instruction *x) {
    static const char *const plain[] = {"LDS", "STS", "ATOMS"};
    const char *name = x->name, *last = strrchr(name, '.');
    size_t length = stem(name);
    unsigned n;
    if (length == 5 && strncmp(name, "HGMMA", 5) == 0) {
        const char *second = strchr(x->operands, ',');
        bool both = second && strncmp(second + 1 + strspn(second + 1, " "), "gdesc", 5) == 0;
        return sscanf(name + length, ".%*ux%4ux", &n) == 1 ? (n + (both ? 64 : 0)) * UINT64_C(32) / 4 : 0;
    }
    if (length == 4 && (strncmp(name, "LDSM", 4) == 0 || strncmp(name, "STSM", 4) == 0)) /* 8 x 8 numbers of 2 bytes */
        return UINT64_C(128) * (!last ? 1 : strcmp(last, ".4") == 0 ? 4 : strcmp(last, ".2") == 0 ? 2 : 1);
    if (length == 6 && strncmp(name, "LDGSTS", 6) == 0)
        return UINT64_C(32) * (strstr(name, ".128") ? 16 : strstr(name, ".64") ? 8 : 4);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strlen(plain[i]) == length && strncmp(name, plain[i], length) == 0) return UINT64_C(32) * 4;
    return 0;
}

/* Bytes of global memory that a warp touches: "LDG.E.64" reads 8 for each of 32 lanes. */
static uint64_t global_bytes(const char *name) {
    static const char *const global[] = {"LDG.", "STG.", "LDGSTS.", "RED.", "REDG.", "ATOM.", "ATOMG."};
    static const struct {
        const char *suffix;
        uint64_t bytes;
    } sizes[] = {{".128", 16}, {".64", 8}, {".F32x2", 8}, {".U16", 2}, {".S16", 2}, {".U8", 1}, {".S8", 1}};
    bool is = false;
    for (size_t i = 0; i < sizeof global / sizeof *global; i++) is |= !strncmp(name, global[i], strlen(global[i]));
    for (size_t i = 0; is && i < sizeof sizes / sizeof *sizes; i++)
        if (strstr(name, sizes[i].suffix)) return 32 * sizes[i].bytes;
    return is ? 32 * 4 : 0;
}

void cost_count(const cost_machine *machine, const cost_instruction *x, cost_counts *c) {
    const char *name = x->name;
    cost_pipe pipe = cost_pipe_of(name);
    const uint64_t shared = shared_bytes(x);
    c->instructions[pipe]++;
    c->clocks[pipe] += clocks_of(machine, name, pipe);
    c->instructions[COST_SHARED] += shared != 0;
    c->clocks[COST_SHARED] += shared * 4 / COST_SHARED_BYTES; /* a quarter has a quarter of the bandwidth */
    c->waits += strncmp(name, "BAR.SYNC", 8) == 0 || strncmp(name, "WARPGROUP.DEPBAR", 16) == 0 ||
                strncmp(name, "DEPBAR", 6) == 0 || (strncmp(name, "SYNCS", 5) == 0 && strstr(name, "WAIT"));
    c->arrivals += strncmp(name, "BAR.ARV", 7) == 0 || strncmp(name, "SYNCS.ARRIVE", 12) == 0;
    c->elements += (x->marks & COST_MARK_ELEMENTS) != 0;
    c->bytes += global_bytes(name);
    c->fences += strncmp(name, "MEMBAR", 6) == 0 || strncmp(name, "FENCE", 5) == 0;
}

uint64_t cost_issue(const cost_counts *c) {
    uint64_t all = 0;
    for (int p = 0; p < COST_PIPES; p++) all += p == COST_SHARED ? 0 : c->instructions[p];
    return all;
}

cost_pipe cost_bound(const cost_counts *c) {
    cost_pipe most = COST_PIPES;
    uint64_t clocks = cost_issue(c);
    for (int p = COST_PIPES - 1; p >= 0; p--)
        if (c->clocks[p] >= clocks && c->clocks[p]) most = (cost_pipe)p, clocks = c->clocks[p];
    return most;
}
