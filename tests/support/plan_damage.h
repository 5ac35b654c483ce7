/* plan_damage.h: ways to damage a right plan, for tests of the verifier. Each kind of damage lists the error codes with
 * which the verifier may report it.
 *
 * A kind draws, from a seed, one of the places in a plan where it can be done. It returns false if there is none. */
#ifndef PLAN_DAMAGE_H
#define PLAN_DAMAGE_H
#include "tests/support/plan_damage_data.h"
#include "tests/support/plan_damage_layout.h"
#include "tests/support/plan_damage_moved.h"
#include "tests/support/plan_damage_rounds.h"
#include "tests/support/plan_damage_work.h"

/* --- the list ----------------------------------------------------------------------------------------------------- */

#define D(name, ...) {#name, name, {__VA_ARGS__}}
#define E(name) FCP_E_VERIFY_##name
static const damage kinds[] = {
    D(drop_tile, E(TILE)),
    D(double_tile, E(TILE)),
    D(exchange_tiles, E(TILE)),
    D(drop_visit, E(TILE)),
    D(double_visit, E(TILE)),
    D(wrong_flag, E(TILE), E(RESULT)), /* RESULT: a result of part of the tiles */
    D(exchange_ranks, E(PRESENCE), E(TILE), E(RESULT), E(SLOT), E(RETURN)), /* the others: both ranks have the blocks */
    D(wrong_q_slot, E(PRESENCE)),
    D(wrong_kv_slot, E(PRESENCE), E(SLOT)), /* SLOT: it was there, and has been overwritten */
    D(wrong_state_slot, E(SLOT)),
    D(state_slot_lost_or_needless, E(SLOT)),
    D(reuse_state_slot, E(SLOT), E(RETURN)), /* RETURN: it is received there, or merged */
    D(swap_rounds, E(ORDER)),
    D(swap_round_contents, E(MATCH)),
    D(send_twice, E(ROUND)),
    D(cross_sends, E(MATCH)),
    D(send_less, E(MATCH)),
    D(send_other_block, E(MATCH)),
    D(send_to_itself, E(MATCH)),
    D(wrong_fabric, E(MATCH)),
    D(lose_fetch, E(PRESENCE), E(SLOT)),
    D(units_out_of_order, E(PRESENCE)),
    D(extra_round, E(DELTA)),
    D(split_round, E(DELTA), E(RETURN)), /* RETURN: additions are in order of rounds */
    D(wrong_kind, E(DELTA), E(SUMMARY)), /* SUMMARY: it was the only one of its kind in the pass, or of its phase */
    D(rounds_stage, E(ORDER)),
    D(flip_half, E(HALVES)),
    D(early_half, E(HALVES)),
    D(late_half, E(HALVES)),
    D(reuse_live_slot, E(SLOT), E(PRESENCE)), /* PRESENCE: units of both arrive in turn */
    D(into_home_slot, E(SLOT)),
    D(slot_gap, E(MEMORY)),
    D(wrong_home, E(PRESENCE), E(MATCH), E(DELTA), E(LAYOUT), E(SLOT)),
    D(small_memory, E(MEMORY)),
    D(wait_cycle, E(DEADLOCK)),
    D(wait_for_more_than_there_is, E(DEADLOCK)),
    D(drop_wait_for_arrival, E(PRESENCE), E(SLOT), E(RETURN)), /* the others: it is for a result to leave a slot, too */
    D(early_launch, E(ORDER)),
    D(fewer_buffers, E(ORDER)),
    D(wrong_queue, E(ORDER)),
    D(stage_goes_back, E(ORDER)),
    D(launch_of_other_stage, E(ORDER)),
    /* SLOT, here and below: another wants the slot. TILE: it begins a chain */
    D(drop_addition, E(RETURN), E(SLOT), E(TILE)),
    D(double_addition, E(RETURN)),
    D(add_elsewhere, E(RETURN), E(SLOT)), /* SLOT: what was there is leaving */
    D(addition_order, E(RETURN)),
    D(add_other_block, E(RETURN)),
    D(add_into_other, E(RETURN), E(SLOT)),
    D(lose_return, E(RETURN)),
    D(wrong_dkv_slot, E(RETURN), E(SLOT)),
    D(drop_delta, E(ORDER)),
    D(two_deltas, E(ORDER)),
    D(bundle_short, E(LAYOUT)),
    D(bundle_long, E(LAYOUT)),
    D(bundle_doubled, E(LAYOUT)),
    D(bundle_permuted, E(MATCH)),
    D(unit_again, E(LAYOUT)),
    D(other_bundle, FCP_E_PLAN_FORMAT, E(LAYOUT), E(MATCH)), /* FORMAT: the plan is not split */
    D(other_layout, E(LAYOUT)),
    D(other_group, E(LAYOUT)),
    D(wrong_group, FCP_E_PLAN_FORMAT),
    D(copy_other_side, E(LAYOUT)),
    D(early_out, E(LAYOUT)),
    D(reuse_live_q_slot, E(SLOT), E(PRESENCE)),
    D(claim_whole, E(RESULT)),
    D(deny_whole, E(RESULT)),
    D(finish_whole, E(RESULT)),
    /* RETURN: another arrives in the slot; PRESENCE: who sends O home does not find it */
    D(drop_finish, E(RESULT), E(RETURN), E(SLOT), E(PRESENCE)),
    D(double_finish, E(RESULT)),
    D(early_finish, E(RESULT), E(RETURN), E(SLOT)), /* RETURN: the chain begins with that MERGE */
    D(finish_other_slot, E(RETURN)),
    D(finish_into_other, E(SLOT), E(PRESENCE), E(MEMORY)), /* PRESENCE: who sends it does not find it */
    D(two_results, E(RESULT), E(RETURN), E(SLOT), E(TILE)), /* as for additions that are dropped */
    D(round_partial, E(RESULT), E(RETURN)), /* RETURN: another rank rounds it, and here nothing is left */
    D(drop_round, E(PRESENCE), E(RETURN), E(SLOT)), /* RETURN: as for FINISH */
    D(round_other_slot, E(RETURN), E(PRESENCE), E(SLOT)),
    D(lose_result, E(RESULT), E(PRESENCE)), /* PRESENCE: who sends it on */
    D(wrong_o_slot, E(SLOT), E(PRESENCE)), /* PRESENCE: who sends it does not find it */
    D(wrong_dq_slot, E(RETURN), E(SLOT)),
    D(send_before_delta, E(ORDER)),
    D(send_and_merge, E(RETURN), E(SLOT)),
    D(send_other_slot, E(PRESENCE), E(RETURN)),
    D(long_unit, E(MATCH)),
    D(other_heads, FCP_E_PLAN_FORMAT),
    D(move_heads, FCP_E_PLAN_FORMAT),
    D(tile_of_other_heads, FCP_E_PLAN_FORMAT),
    D(exchange_phases, E(SLOT), E(PRESENCE)),
    D(wrong_array, FCP_E_PLAN_FORMAT),
    D(lose_data, FCP_E_PLAN_FORMAT),
    D(name_without_end, FCP_E_PLAN_FORMAT),
    D(load_of_nothing, FCP_E_PLAN_FORMAT),
    D(swap_sides, FCP_E_PLAN_FORMAT),
    D(hold_one_side, FCP_E_PLAN_FORMAT),
    D(move_queries, FCP_E_PLAN_FORMAT),
    D(another_query, FCP_E_PLAN_FORMAT),
    D(other_align, FCP_E_PLAN_FORMAT),
    D(tile_of_other_side, FCP_E_PLAN_FORMAT),
    D(send_kv_of_queries, FCP_E_PLAN_FORMAT),
    D(results_of_keys, E(LAYOUT), E(MATCH)),
    D(wrong_slices, FCP_E_PLAN_FORMAT),
    D(lose_slices, FCP_E_PLAN_FORMAT),
    D(wrong_band_rows, FCP_E_PLAN_FORMAT),
    D(wrong_band, FCP_E_PLAN_FORMAT),
    D(share_bands, FCP_E_PLAN_FORMAT),
    D(bands_of_nothing, FCP_E_PLAN_FORMAT),
    D(wrong_code, FCP_E_PLAN_FORMAT),
    D(lose_score, FCP_E_PLAN_FORMAT),
    D(wrong_real, FCP_E_PLAN_FORMAT),
    D(wrong_sink, FCP_E_PLAN_FORMAT),
    D(other_slope, E(SLOPE)),
    D(other_class, FCP_E_PLAN_FORMAT),
    D(lose_classes, FCP_E_PLAN_FORMAT),
    D(shapes_of_no_class, FCP_E_PLAN_FORMAT),
    D(uneven_shapes, FCP_E_PLAN_FORMAT),
    D(blind_part, FCP_E_PLAN_FORMAT),
    D(other_deal, E(LAYOUT)),
    D(deal_too_many_or_few, FCP_E_PLAN_FORMAT),
    D(other_value_dim, E(MEMORY), E(MATCH)), /* MATCH: units have other tokens, here and below */
    D(other_values, E(MEMORY), E(MATCH)),
    D(other_gradient, E(MEMORY)),
    D(wrong_heads, FCP_E_PLAN_FORMAT),
    D(wrong_documents, FCP_E_PLAN_FORMAT),
    D(off_its_rail, E(MATCH)),
    /* SLOT, RETURN: the wait is for a result to leave a slot, too */
    D(wait_over_other_fabric, E(PRESENCE), E(SLOT), E(RETURN)),
};
#undef D
#undef E
#endif
