/* profile.h: a profile says how fast a kind of device computes attention. It is a text file, with a source for every
 * figure.
 *
 * Example of a profile:
 *
 *   gpu h200
 *   sms               132        "NVIDIA H200 data sheet"
 *   small             3 us       "assumed"
 *   forward.128.full  11.98 ns   "fitted to cuDNN 9.19 on H200, 10 points, errors at most 0.9 %"
 *
 * Each line is a name, a value with its unit, and in quotes the source of the value, or "assumed". `#` begins a
 * comment. The figures are sms; small; latency.local, channel, queues and part, which may be missing; and full,
 * partial, row and launch, all four of them, for each pass and head_dim.
 */
#ifndef FCPC_SIMULATE_PROFILE_H
#define FCPC_SIMULATE_PROFILE_H
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/records.h"

/* What attention costs in one pass, in picoseconds. A cell is 128 x 128 pairs of one query head.
 *   full     a cell in which every pair is allowed; above 0
 *   partial  a cell in which some are; above 0
 *   row      a row item: 128 queries of one head, their loads and their results
 *   launch   one ATTEND */
#define SIM_CONSTANTS(X) X(FULL, full) X(PARTIAL, partial) X(ROW, row) X(LAUNCH, launch)
#define SIM_CONSTANT_ID(id, member) SIM_##id,
typedef enum sim_constant { SIM_CONSTANTS(SIM_CONSTANT_ID) SIM_CONSTANT_COUNT } sim_constant;
extern const char *const sim_constant_names[SIM_CONSTANT_COUNT];
typedef struct sim_kernel {
    uint64_t at[SIM_CONSTANT_COUNT];
} sim_kernel;

enum { SIM_HEAD_DIMS = 8, SIM_SOURCE = 160, SIM_NAME = 32 };
typedef struct sim_profile {
    char name[SIM_NAME];
    uint64_t sms;   /* SMs of a GPU, or processors */
    uint64_t small; /* launch of a COPY, DELTA, REDUCE, MERGE, ..., in picoseconds */
    /* latency of a message inside a node, in picoseconds, if it is less than the cluster's; 0: not given */
    uint64_t local;
    /* what one SM of the margin moves over net, in bytes per second; 0: not given, no limit */
    uint64_t channel;
    /* 2: transfers over net and inside a node are in different queues, as streams of a GPU; 1: a rank does one launch
     * at a time, as on the host. 2 if the text does not say */
    uint64_t queues;
    uint64_t part; /* the number of SMs of a share of the device is a multiple of this; 1 if the text does not say */
    uint32_t head_dims[FCP_PASSES][SIM_HEAD_DIMS]; /* those that have constants; 0: no more */
    sim_kernel kernels[FCP_PASSES][SIM_HEAD_DIMS];
} sim_profile;

/* Reads a profile. Errors: FCP_E_PROFILE with the line: an unknown name, a missing source, unit or figure. `name` is
 * what messages call the text. */
fcp_code sim_profile_read(const char *name, const char *text, size_t size, sim_profile *out, fcp_error *err);
/* Finds a profile that comes with the compiler: "h200", ... FCP_E_PROFILE: there is none of that name; the message
 * suggests the nearest one, or lists all. */
fcp_code sim_profile_find(const char *name, sim_profile *out, fcp_error *err);
/* Finds the profile of the cluster's GPU. */
fcp_code sim_profile_of(const fcp_cluster *cluster, sim_profile *out, fcp_error *err);

/* Finds a profile, but reads only what it says of the device, not the constants of kernels. It is fast: their lines,
 * which are most of the text, come last in the compiler's own profiles. False: there is no such profile. */
bool sim_profile_device(const char *name, sim_profile *out);

/* Finds the profile that a user names. A name without a point or slash is that of a profile that comes with the
 * compiler. Anything else is a file, which with `regular` must be a regular file. FCP_E_READ: it cannot be read. */
fcp_code sim_profile_open(const char *asked, bool regular, sim_profile *out, fcp_error *err);
/* Whether that is a file. */
bool sim_profile_is_file(const char *asked);

/* The constants of a pass at a head_dim and a value_dim. If the profile has none for these sizes, they are those of the
 * head_dim whose pairs have the nearest number of FLOPs, scaled by the ratio of FLOPs. */
sim_kernel sim_profile_kernel(const sim_profile *profile, fcp_pass pass, uint32_t head_dim, uint32_t value_dim);
#endif
