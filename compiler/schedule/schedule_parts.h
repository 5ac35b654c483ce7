/* schedule_parts.h: what the files that fill a schedule share; schedule.c says which file does what. */
#ifndef FCPC_SCHEDULE_PARTS_H
#define FCPC_SCHEDULE_PARTS_H
#include "compiler/schedule/schedule.h"

/* --- lines and stages --------------------------------------------------------------------------------------------- */

/* The most units of a line in a stage; and as many as are planned for where the program does not say how many stages
 * there are. */
enum { UNITS_MOST = UINT16_MAX, ROOM_MOST = UINT8_MAX };

/* How much of each stage is taken. A line is one direction of a rank's wire on one fabric. */
typedef struct occupancy {
    uint16_t *units; /* [line * width + stage] */
    uint32_t *size; /* the same of lines over net, [line / FCP_FABRICS * width + stage]: of these units together */
    uint32_t *full; /* per line: the stages before this one have no room at all */
    uint32_t lines, width;
    uint32_t units_most[FCP_FABRICS]; /* in a stage */
    uint32_t size_most;               /* over net */
    arena *scratch;
} occupancy;

static inline uint32_t line_number(uint32_t rank, fcp_direction dir, uint32_t fabric) {
    return (rank * FCP_DIRECTION_COUNT + dir) * FCP_FABRICS + fabric;
}
/* The two lines that a unit uses along a hop: its sender's and its receiver's. If cls is another class than the hop's
 * own, the unit goes back, from the hop's end to its beginning. */
typedef struct line_pair {
    uint32_t send, receive;
} line_pair;
static inline line_pair lines_of(const hop *h, fcp_class cls) {
    const bool back = cls != h->cls;
    return (line_pair){line_number(back ? h->dst : h->src, FCP_SEND, h->fabric),
                       line_number(back ? h->src : h->dst, FCP_RECV, h->fabric)};
}
/* How many units a line has in a stage. */
static inline uint16_t *occupancy_units(const occupancy *o, uint32_t line, uint32_t stage) {
    return &o->units[(size_t)line * o->width + stage];
}
/* The size of these units together, for a line over net. */
static inline uint32_t *occupancy_size(const occupancy *o, uint32_t line, uint32_t stage) {
    return &o->size[(size_t)(line / FCP_FABRICS) * o->width + stage];
}
static inline bool occupancy_has_room(const occupancy *o, uint32_t line, uint32_t stage, uint32_t size) {
    const uint32_t units = *occupancy_units(o, line, stage);
    const uint32_t fabric = line % FCP_FABRICS;
    if (!units || fabric != FCP_NET) return units < o->units_most[fabric];
    return units < o->units_most[fabric] && *occupancy_size(o, line, stage) + size <= o->size_most;
}

/* How many stages after a hop's results have come the rank may send what it makes of them. A whole result is passed on
 * as it is, so one stage is enough. */
static inline uint32_t result_delay(const schedule *out, const hop *h) { return h->whole ? 1 : out->after; }

/* --- a schedule while it is filled -------------------------------------------------------------------------------- */

typedef struct builder {
    planning *x;
    const problem *p;
    const placement *where;
    const traffic *t;
    const reshuffle *r;
    uint32_t coalesce;
    arena *work, *scratch;
    schedule *out;
    size_t units;          /* that have a place in unit_round */
    uint32_t stages;       /* last stage in which tiles can run + 1 */
    uint32_t arrivals;     /* last stage in which something can arrive for them + 1 */
    occupancy taken;       /* where units are given stages (schedule.staged) */
    bool *near_first;      /* per rank: near.c; NULL: none */
    uint32_t *phase_start; /* per phase: its first stage; NULL: there are no phases */
} builder;

/* The builder for one of two threads, which has arenas of its own. */
static inline builder builder_of(const builder *b, planning *x) {
    builder own = *b;
    own.x = x;
    own.work = &x->work;
    own.scratch = &x->scratch;
    return own;
}

/* Tiles of one Q block that run at one rank: numbers `first` to `end` - 1 of rank_rows.tiles. */
typedef struct row {
    uint32_t q, first, end;
    uint32_t rank;
    uint32_t hop;         /* that brings Q; FCP_NONE: Q is at home there */
    uint32_t local_stage; /* in which those run, or the first, whose KV is at home there; FCP_NONE: not chosen yet */
    uint64_t work, local; /* pairs: of all of them, and of those */
} row;

/* One rank's rows, by Q block: rows[which[0]] to rows[which[count - 1]]. */
typedef struct rank_rows {
    row *rows;
    const uint32_t *tiles; /* by rank and Q block; NULL: in the problem's order */
    const uint32_t *which;
    uint32_t count;
    uint64_t *load;     /* per stage: pairs computed */
    uint32_t *stage_of; /* per tile whose KV comes from elsewhere: its stage. Where tiles run anywhere: of all tiles */
    uint32_t *next;     /* where tiles run anywhere. Per full stage: a later one; all stages between are full, too */
} rank_rows;

/* stages_home.c. Colours the independent units: fills unit_round with their places in the order of rounds, and
 * out->independent. Then decides when blocks arrive. */
fcp_code home_rounds(builder *b);
fcp_code home_arrivals(builder *b);
/* Adds up the work that has its stage already, and returns all work. A row's local tiles get the stage of its first
 * other tile. */
uint64_t home_tiles(const builder *b, rank_rows *here);

/* even_stages.c. For plans whose tiles all run at home: makes (*out)[tile], the stage of each tile whose KV comes from
 * elsewhere; *out lies in b->scratch. Cost: O(tiles + ranks stages). */
fcp_code even_stages(const builder *b, uint32_t **out);

/* stages_away.c. For how many units of a line over net a stage has room. units: how many the busiest line carries.
 * While x->coalesce is not known, the answer is an estimate. */
uint32_t away_room(const planning *x, const traffic *t, uint64_t units);
/* How many units the busiest line has that leave from home. */
fcp_code away_busiest(planning *x, uint32_t *out_units);
/* Finds stages for all hops: fills out->unit_round, first_stage and last_stage. *o keeps what is taken. */
fcp_code away_arrivals(planning *x, schedule *out, occupancy *o);
/* The same where tiles run in that many stages in all. What they wait for arrives in stages 1 to divisions - 1, less a
 * few for results (TAIL_PART), and a stage has as little room as that takes. If a way has more hops than there are such
 * stages, there is one for each of its hops. FCP_E_PLAN_SIZE: a stage would have more
 * units of a line than UNITS_MOST. */
fcp_code away_divided(planning *x, schedule *out, uint32_t divisions, occupancy *o);
/* Chooses the stages of all tiles of a rank. */
void away_tiles(const builder *b, rank_rows *here);
/* Finds the stages in which results of a pass travel back along hops `first`, first + 1, ... In: back->last has for
 * each hop the last stage in which a tile adds to its result; *o says what arriving blocks take of each stage, and is
 * not changed. Out: `back` has the stages in which the result travels. */
fcp_code away_results(planning *x, const schedule *out, const occupancy *o, fcp_pass pass, uint32_t first,
                      returns *back);

/* fewer_rounds.c. Moves results of a pass to other stages, where that saves rounds. It looks at the results that travel
 * back along hops `first`, first + 1, ...: `back` says in which stages. *o says how many units of the pass each line
 * has in each stage. Both are changed. What travels back along hop h is in part computed by the rank at the end of h:
 * ready[h] is the first stage in which that part may leave; 0: there is none, the rank only passes on what others send.
 * Cost: O(units) for each round saved, and little for each unit moved. */
fcp_code fewer_rounds(planning *x, const schedule *out, occupancy *o, fcp_pass pass, uint32_t first,
                      const uint32_t *ready, returns *back);

/* stages_by_phase.c. Decides when blocks arrive; and, like home_tiles, when a rank's tiles run. */
fcp_code phase_arrivals(builder *b);
uint64_t phase_tiles(const builder *b, rank_rows *here);

/* halves.c. Of a tile: the half batch that it is in. Tiles that need nothing from other ranks are in neither. */
enum { HALF_FIRST, HALF_SECOND, HALF_NEITHER };
/* Says of every tile which half it is in (out_tile, one of HALF_*), and of every hop whether it is in the second half
 * (out_second). At each rank the tiles of both halves have about equal work. A hop is in the first half if any tile of
 * the first half needs what it brings, at its end or at a rank to which that is passed on. Cost: linear in tiles and
 * hops. */
fcp_code halves_find(planning *x, uint8_t *out_tile, bool *out_second);

/* near.c. Says which ranks divide a stage in two: tiles that need nothing over net in it run first. (*out)[rank]:
 * whether the rank does so; *out lies in x->scratch, and is NULL if no rank does. `stages`: in how many stages tiles
 * run. Cost: linear in hops and tiles. */
fcp_code near_first(planning *x, uint32_t stages, bool **out);

/* visits.c. Gives every tile its stage, sorts the tiles of each rank by stage, and makes the visits. */
fcp_code make_visits(builder *b);

/* result_stages.c. Decides when results go back, in the passes that there are. */
fcp_code result_stages(builder *b);
#endif
