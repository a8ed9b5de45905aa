//! Terms of a candidate's cost by input, and room for a request.

use proptest::prelude::*;
use spillway_types::{BlockHashes, Reading, ReplicaSlot, Signals, Speed};

use super::{Cost, Fit};
use crate::test_world::{NOW, Prompt, World, any_prompted};
use crate::{
    Goal, Group, Moment, Plan, PlanError, Policy, PredictedTuning, Push, Tuning, Weighed,
    plan_explained,
};

/// Fast replica with all values known.
const FAST: Speed = Speed {
    floor_ms: 10.0,
    prefill_ms: 0.1,
    prefill_ms_per_thousand: 0.01,
    prefill_per_running: 0.0,
    decode_ms: 20.0,
    step_ms: 20.0,
    step_ms_per_thousand: 0.0,
    is_decode_known: true,
    ends_per_s: 2.0,
    bytes_per_token: 4.0,
    kv_tokens: 0.0,
    trust: 1.0,
};

fn fresh(value: f32) -> Reading {
    Reading { value, trust: 1.0 }
}

/// Returns so many fast replicas, each with four requests, and a prompt of 4,000 tokens.
fn world(count: usize) -> World {
    let mut world = World::idle(Policy::PredictedLatency, &vec![1; count]);
    world.loads.speeds.fill(FAST);
    world.loads.signals.fill(Signals {
        queued: fresh(0.0),
        running: fresh(4.0),
        kv_use: fresh(0.2),
        ..Signals::UNKNOWN
    });
    let blocks = BlockHashes::new((1..=62).collect());
    world.prompt = Prompt {
        blocks,
        bytes: 16_000,
        output_tokens_max: Some(100),
        whole_tokens: None,
        has_model: true,
    };
    world
}

fn tuned(mut world: World, change: impl FnOnce(&mut PredictedTuning)) -> World {
    let mut tuning = Tuning::default();
    change(&mut tuning.predicted);
    let candidates = world.group.candidates().to_vec();
    world.group = Group::with_tuning(Policy::PredictedLatency, &tuning, candidates);
    world
}

fn weighed(world: &World) -> Vec<Weighed> {
    let mut rng = fastrand::Rng::with_seed(1);
    let moment = Moment { now: *NOW, loads: &world.loads, ticket: 0, rng: &mut rng };
    plan_explained(&world.inquiry(), &world.group, &world.tried, moment).1
}

/// Returns the terms of the first replica.
fn cost(world: &World) -> Cost {
    weighed(world)[0].cost
}

fn assert_near(found: f32, expected: f32) {
    assert!((found - expected).abs() < expected.abs() * 1e-3 + 1e-3, "{found}, not {expected}");
}

#[test]
fn each_term_is_what_it_says() {
    let plain = cost(&world(2));
    assert_near(plain.floor_ms, 10.0);
    // 4,000 tokens, each with 2,000 before it on average.
    assert_near(plain.prefill_ms, 400.0 + 4_000.0 * 2.0 * 0.01);
    assert_near(plain.stall_ms, 0.3 * 4.0 * plain.prefill_ms);
    // The four there and this one delay each of 100 tokens of 20 ms.
    let crowding = PredictedTuning::default().crowding;
    assert_near(plain.crowding_ms, 5.0 * crowding * 100.0 * 20.0);
    assert_eq!((plain.wait_ms, plain.decode_ms, plain.session_ms), (0.0, 0.0, 0.0));
    assert!((0.0..2.0).contains(&plain.tie_ms));
}

#[test]
fn what_is_half_cached_goes_to_its_cache_though_that_looks_full_unless_another_is_cheaper() {
    let with = |cached_blocks: u32, running: f32| {
        let mut world = world(2);
        world.loads.speeds.fill(Speed { kv_tokens: 40_000.0, ..FAST });
        world.loads.cached_blocks[0] = cached_blocks;
        world.loads.in_flight[0] = 20;
        world.loads.signals[0].in_flight_at_report = 20;
        world.loads.signals[0].running = fresh(running);
        world.loads.signals[0].kv_use = fresh(1.0);
        let chosen = world.attempt(0).slot;
        assert_eq!(weighed(&world)[0].fit, Fit::Full);
        chosen
    };
    assert_eq!(with(62, 20.0), ReplicaSlot(0));
    assert_eq!(with(20, 20.0), ReplicaSlot(1), "a third is read again where there is room");
    assert_eq!(with(40, 200.0), ReplicaSlot(1), "too much runs there");
}

#[test]
fn of_replicas_that_hold_a_prompt_alike_the_one_that_holds_up_fewest_gets_it() {
    let with = |cached: [u32; 2]| {
        let mut world = world(2);
        world.loads.cached_blocks[..2].copy_from_slice(&cached);
        // The first is a little cheaper, and what waits there holds up twenty requests.
        world.loads.pending_tokens[..2].copy_from_slice(&[2_000, 3_000]);
        world.loads.signals[0].running = fresh(20.0);
        world.loads.signals[1].running = fresh(1.0);
        let all = weighed(&world);
        (all[0].total_ms < all[1].total_ms, world.attempt(0).slot)
    };
    assert_eq!(with([62, 62]), (true, ReplicaSlot(1)));
    assert_eq!(with([62, 60]), (true, ReplicaSlot(1)), "a 20th is no difference");
    assert_eq!(with([62, 57]), (true, ReplicaSlot(0)), "more is one, and would be read again");
    // The third holds most and is busy for long: the cheapest tells how much has to be cached.
    let mut world = world(3);
    world.loads.cached_blocks[..3].copy_from_slice(&[57, 57, 62]);
    world.loads.pending_tokens[..3].copy_from_slice(&[2_000, 3_000, 400_000]);
    world.loads.signals[0].running = fresh(4.0);
    world.loads.signals[1].running = fresh(1.0);
    let all = weighed(&world);
    assert!(all[0].total_ms < all[1].total_ms && all[1].total_ms < all[2].total_ms);
    assert_eq!(world.attempt(0).slot, ReplicaSlot(1));
}

#[test]
fn contexts_that_slow_each_step_down_drive_requests_away_once_they_take_twice_a_step() {
    let with = |contexts: [u32; 2]| {
        let mut world = world(2);
        world.loads.speeds.fill(Speed { step_ms: 10.0, step_ms_per_thousand: 0.1, ..FAST });
        world.loads.context_tokens[..2].copy_from_slice(&contexts);
        world.loads.cached_blocks[0] = 62;
        (cost(&world), world.attempt(0).slot)
    };
    // 100,000 tokens take as long to be read as the rest of a step: twice as many are free, of which
    // this prompt takes 4,000.
    let (below, chosen) = with([195_000, 0]);
    assert_eq!((below.context_ms, chosen), (0.0, ReplicaSlot(0)));
    // Of each of 100 tokens, for this request and the four that run.
    let (above, chosen) = with([500_000, 0]);
    assert_near(above.context_ms, (504.0 - 200.0) * 0.1 * 100.0 * 5.0);
    assert_eq!(chosen, ReplicaSlot(1), "reading it once more is cheaper");
    assert_near(with([500_000, 50_000]).0.context_ms, (504.0 - 50.0 - 200.0) * 0.1 * 100.0 * 5.0);
    assert_eq!(with([500_000, 500_000]).0.context_ms, 0.0, "nobody would be better off");
}

#[test]
fn a_slow_replica_makes_no_other_one_slow() {
    let with = |floor_ms: f32| {
        let mut world = world(4);
        world.loads.speeds[3] = Speed { floor_ms, ..FAST };
        weighed(&world).iter().map(|one| one.cost.floor_ms).collect::<Vec<_>>()
    };
    assert_near(with(10.0)[0], 10.0);
    let slow = with(1_000.0);
    assert!(slow[0] < 14.0, "{slow:?}");
    assert!(slow[3] > 900.0, "{slow:?}");
}

#[test]
fn where_the_whole_reply_counts_the_one_that_generates_ten_times_as_fast_is_seen() {
    let mut world = tuned(world(4), |tuning| tuning.goal = Goal::Total);
    world.loads.speeds[2] = Speed { decode_ms: 2.0, ..FAST };
    let all = weighed(&world);
    assert!(all[2].cost.decode_ms < 0.5 * all[0].cost.decode_ms, "{all:?}");
    assert_eq!(world.attempt(0).slot, ReplicaSlot(2));
}

#[test]
fn what_is_cached_is_not_read() {
    let mut warm = world(2);
    warm.loads.cached_blocks[0] = 31;
    let one = weighed(&warm)[0];
    assert_eq!((one.prompt_tokens, one.cached_tokens), (4_000, 1_984));
    let context = (1_984.0 + 1_008.0) / 1_000.0 * 0.01;
    assert_near(one.cost.prefill_ms, 2_016.0 * (0.1 + context));
    warm.loads.cached_blocks[0] = 9_999;
    assert_eq!(cost(&warm).prefill_ms, 0.0);
    assert_eq!(warm.attempt(0).slot, ReplicaSlot(0));
    assert_eq!(warm.attempt(0).prediction.unwrap().cached_tokens, 4_000);
}

#[test]
fn requests_that_run_slow_down_what_is_read() {
    let mut world = world(2);
    world.loads.speeds.fill(Speed { prefill_per_running: 0.05, ..FAST });
    assert_near(cost(&world).prefill_ms, 400.0 * 1.2 + 80.0);
}

#[test]
fn the_wait_is_the_queue_or_what_has_to_be_read_before_whichever_is_longer() {
    let mut queue = world(2);
    queue.loads.signals[0].queued = fresh(3.0);
    // Of the 7 there 4 ran, and two end each second.
    assert_near(cost(&queue).wait_ms, 3.0 * 500.0);
    let prediction = |world: &World| {
        let only = World { tried: vec![ReplicaSlot(1)], ..world.under(Policy::PredictedLatency) };
        let mut only = tuned(only, |tuning| tuning.push = Push::Always);
        only.attempt(0).prediction.unwrap()
    };
    assert_eq!((prediction(&queue).queued, prediction(&queue).pending_tokens), (3.0, 0.0));
    queue.loads.pending_tokens[0] = 20_000;
    assert_near(cost(&queue).wait_ms, 2_000.0);
    assert_eq!((prediction(&queue).queued, prediction(&queue).pending_tokens), (0.0, 20_000.0));
}

#[test]
fn what_was_sent_since_the_report_counts() {
    let mut since = world(2);
    since.loads.signals[0].queued = fresh(1.0);
    since.loads.signals[0].in_flight_at_report = 1;
    since.loads.in_flight[0] = 3;
    // Two more of this process: all gateways together have sent more than twice as many.
    assert!(cost(&since).wait_ms > 2.9 * 500.0, "{:?}", cost(&since));
}

#[test]
fn a_goal_of_the_whole_reply_adds_generating_it() {
    let total = tuned(world(2), |tuning| tuning.goal = Goal::Total);
    let crowding = PredictedTuning::default().crowding;
    assert_near(cost(&total).decode_ms, 100.0 * 20.0 * (1.0 + crowding * 4.0));
}

#[test]
fn a_reply_in_one_piece_counts_to_its_end_and_its_rest_is_predicted() {
    let mut whole = world(2);
    let stream = whole.attempt(0).prediction.unwrap();
    assert_eq!((cost(&whole).decode_ms, stream.rest_ms), (0.0, 0.0));
    whole.prompt.whole_tokens = Some(50);
    let crowding = PredictedTuning::default().crowding;
    assert_near(cost(&whole).decode_ms, 50.0 * 20.0 * (1.0 + crowding * 4.0));
    let prediction = whole.attempt(0).prediction.unwrap();
    assert_near(prediction.rest_ms, 49.0 * 20.0);
    assert_near(prediction.first_token_ms, stream.first_token_ms);
    whole.loads.speeds.iter_mut().for_each(|speed| speed.is_decode_known = false);
    assert_eq!(whole.attempt(0).prediction.unwrap().rest_ms, 0.0, "a guess");
}

#[test]
fn of_the_time_of_a_token_counts_what_is_clearly_beyond_that_of_others() {
    let mut whole = world(4);
    whole.prompt.whole_tokens = Some(100);
    let decode = |world: &World| -> Vec<f32> {
        let mut all = weighed(world);
        all.sort_by_key(|one| one.slot);
        all.iter().map(|one| one.cost.decode_ms).collect()
    };
    whole.loads.speeds[0].decode_ms = 22.0;
    let alike = decode(&whole);
    assert_near(alike[0], alike[1]);
    // Chance may not send all requests to the fastest of equals, whose caches they don't know.
    whole.loads.speeds[0].decode_ms = 200.0;
    let slow = decode(&whole);
    assert!(slow[0] > slow[1] + 8_000.0, "{slow:?}");
    // Of two, the mean is far from either.
    let mut two = world(2);
    two.prompt.whole_tokens = Some(100);
    two.loads.speeds[0].decode_ms = 200.0;
    let slow = decode(&two);
    assert!(slow[0] > slow[1] + 4_000.0, "{slow:?}");
    assert_ne!(two.attempt(0).slot, ReplicaSlot(0));
}

#[test]
fn a_session_is_worth_some_milliseconds_and_no_more() {
    let mut world = world(3);
    world.session = Some(world.group.candidates()[1].identity);
    let session = weighed(&world)[1];
    assert_eq!(session.cost.session_ms, 100.0);
    assert_eq!(world.attempt(0).slot, ReplicaSlot(1));
    // Much more in the cache outweighs the session.
    world.loads.cached_blocks[2] = 60;
    assert_eq!(world.attempt(0).slot, ReplicaSlot(2));
}

#[test]
fn one_of_which_nothing_is_known_is_as_the_others() {
    let mut world = world(3);
    world.loads.signals[0] = Signals::UNKNOWN;
    world.loads.speeds[0] = Speed { floor_ms: 9e6, prefill_ms: 9e6, ..Speed::UNKNOWN };
    let all = weighed(&world);
    let without = |cost: Cost| cost.total_ms() - cost.tie_ms;
    assert_near(without(all[0].cost), without(all[1].cost));
}

#[test]
fn weights_say_how_fast_a_replica_is_until_it_is_learned() {
    let mut world = World::idle(Policy::PredictedLatency, &[1, 3]);
    world.prompt = self::world(1).prompt;
    let all = weighed(&world);
    assert_near(all[0].cost.prefill_ms, 3.0 * all[1].cost.prefill_ms);
    assert_near(all[0].cost.floor_ms, 3.0 * all[1].cost.floor_ms);
    world.loads.speeds.fill(FAST);
    let all = weighed(&world);
    assert_near(all[0].cost.prefill_ms, all[1].cost.prefill_ms);
}

#[test]
fn nodes_that_know_nothing_of_a_prompt_send_it_to_the_same_replica() {
    let choice = |seed: u64, first: u64| {
        let mut world = world(8);
        world.rng.seed(seed);
        world.prompt.blocks = BlockHashes::new((first..first + 9).collect());
        world.attempt(seed).slot
    };
    let mut counts = [0_u64; 8];
    for prompt in 0..4_000_u64 {
        let first = prompt.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        assert_eq!(choice(1, first), choice(2, first));
        counts[choice(1, first).index()] += 1;
    }
    crate::test_world::assert_proportional(&counts, &[1.0; 8]);
}

#[test]
fn prompts_part_where_nobody_has_them_cached() {
    // All share the first four blocks, and all have equal load.
    let choice = |fifth: u64| {
        let mut world = world(8);
        world.prompt.blocks = BlockHashes::new(vec![1, 2, 3, 4, fifth, 6]);
        world.loads.cached_blocks.fill(4);
        world.attempt(0).slot
    };
    let first = choice(0);
    assert!((1..50).any(|fifth| choice(fifth) != first));
}

/// Returns the plan and the fits in a world where the caches hold so many tokens.
fn fits(mut world: World, kv_tokens: &[f32]) -> (Plan, Vec<Fit>) {
    for (speed, tokens) in world.loads.speeds.iter_mut().zip(kv_tokens) {
        speed.kv_tokens = *tokens;
    }
    let fits = weighed(&world).iter().map(|one| one.fit).collect();
    (world.plan(0), fits)
}

fn goes_to(plan: Plan) -> Option<u32> {
    match plan {
        Plan::Attempt(attempt) => Some(attempt.slot.0),
        Plan::Refuse(refusal) => {
            assert_eq!(refusal, PlanError::AllBusy);
            None
        }
    }
}

#[test]
fn it_fits_while_the_cache_has_room_for_prompt_and_reply() {
    // A fifth is in use, and 4,100 tokens are needed.
    let (plan, seen) = fits(world(2), &[5_124.0, 5_126.0]);
    assert_eq!(seen, [Fit::Full, Fit::Fits]);
    assert_eq!(goes_to(plan), Some(1));
    let (plan, _) = fits(world(2), &[5_124.0, 5_124.0]);
    assert_eq!(goes_to(plan), None);
    // Cached blocks need no more room.
    let mut warm = world(2);
    warm.loads.cached_blocks[0] = 10;
    assert_eq!(goes_to(fits(warm, &[5_124.0, 5_124.0]).0), Some(0));
}

#[test]
fn what_was_sent_since_the_report_takes_room() {
    let mut since = world(1);
    since.loads.in_flight[0] = 6;
    // Four ran in a fifth of 10,000: two more take another 1,000.
    assert_eq!(fits(since, &[10_000.0]).1, [Fit::Fits]);
    let mut since = world(1);
    since.loads.in_flight[0] = 13;
    assert_eq!(fits(since, &[10_000.0]).1, [Fit::Full]);
}

#[test]
fn a_replica_without_anything_to_do_takes_what_it_can_hold() {
    let mut idle = world(1);
    idle.loads.signals[0].running = fresh(0.0);
    // Its report says that the cache is full all the same.
    idle.loads.signals[0].kv_use = fresh(1.0);
    assert_eq!(goes_to(fits(idle, &[4_101.0]).0), Some(0));
}

#[test]
fn what_fits_nowhere_goes_to_the_largest_and_else_waits_for_it() {
    let (plan, seen) = fits(world(3), &[3_000.0, 4_000.0, 2_000.0]);
    assert_eq!(seen, [Fit::TooLarge; 3]);
    assert_eq!(goes_to(plan), Some(1));
    let (plan, seen) = fits(world(3), &[3_000.0, 4_200.0, 2_000.0]);
    assert_eq!(seen, [Fit::TooLarge, Fit::Full, Fit::TooLarge]);
    assert_eq!(goes_to(plan), None);
    // Also while the only replica that could hold it is at its limit of requests.
    let mut busy = world(2);
    busy.loads.in_flight[1] = u32::MAX;
    assert_eq!(goes_to(fits(busy, &[3_000.0, 9_000.0]).0), None);
}

#[test]
fn without_a_size_the_queue_decides() {
    let mut world = world(2);
    for (queued, expected) in [(1.0, Fit::Fits), (2.0, Fit::Full)] {
        world.loads.signals[0].queued = fresh(queued);
        assert_eq!(weighed(&world)[0].fit, expected, "{queued} wait while 4 run");
    }
    let strict = tuned(world, |tuning| tuning.push = Push::NoPending);
    assert_eq!(weighed(&strict)[0].fit, Fit::Full);
    assert_eq!(weighed(&strict)[1].fit, Fit::Fits);
    let always = tuned(strict, |tuning| tuning.push = Push::Always);
    assert_eq!(weighed(&always)[0].fit, Fit::Fits);
}

#[test]
fn who_cannot_wait_is_never_held_back() {
    let mut plain = world(1);
    plain.prompt.has_model = false;
    plain.loads.signals[0].queued = fresh(50.0);
    assert_eq!(goes_to(fits(plain, &[100.0]).0), Some(0));
}

proptest! {
    #[test]
    fn a_request_is_held_back_only_where_something_will_end(
        world in any_prompted(Just(Policy::PredictedLatency)),
        ticket: u64,
    ) {
        let mut world = world.all_warm();
        prop_assume!(!world.usable().is_empty());
        let all = weighed(&world);
        match world.plan(ticket) {
            Plan::Attempt(attempt) => {
                let chosen = all.iter().find(|one| one.slot == attempt.slot).unwrap();
                prop_assert!(attempt.prediction.is_some());
                let is_cached = 2 * chosen.cached_tokens >= chosen.prompt_tokens;
                prop_assert!(chosen.fit != Fit::Full || is_cached, "{chosen:?}");
            }
            Plan::Refuse(refusal) => {
                prop_assert_eq!(refusal, PlanError::AllBusy);
                for candidate in world.usable() {
                    let one = all.iter().find(|one| one.slot == candidate.slot).unwrap();
                    let is_cached = 2 * one.cached_tokens >= one.prompt_tokens;
                    prop_assert!(one.fit != Fit::Fits && (one.fit != Fit::Full || !is_cached));
                    let is_idle = one.in_flight == 0 && one.running + one.queued < 0.5;
                    prop_assert!(!is_idle || one.fit == Fit::TooLarge, "{one:?}");
                }
            }
        }
    }

    #[test]
    fn more_in_the_cache_never_costs_more(
        mut world in any_prompted(Just(Policy::PredictedLatency)),
        which: prop::sample::Index,
        more in 0..30_u32,
    ) {
        prop_assume!(!world.group.candidates().is_empty());
        let index = which.index(world.group.candidates().len());
        let slot = world.group.candidates()[index].slot;
        let before = weighed(&world)[index];
        world.loads.cached_blocks[slot.index()] += more;
        let after = weighed(&world)[index];
        let without_tie = |one: &Weighed| one.total_ms - one.cost.tie_ms;
        let slack = without_tie(&before).abs() * 1e-4 + 1e-2;
        prop_assert!(without_tie(&after) <= without_tie(&before) + slack);
    }
}

#[test]
fn in_a_large_group_the_one_with_most_of_the_prompt_is_found() {
    let mut world = world(1_000);
    for chosen in [3, 500, 999] {
        world.loads.cached_blocks = vec![20; 1_000];
        world.loads.cached_blocks[chosen] = 60;
        assert_eq!(world.attempt(0).slot.index(), chosen);
    }
}

#[test]
fn in_a_large_group_the_only_one_that_takes_a_request_is_found() {
    let mut world = world(1_000);
    world.loads.in_flight = vec![u32::MAX; 1_000];
    for chosen in [3, 500, 999] {
        world.loads.in_flight[chosen] = 0;
        assert_eq!(world.attempt(0).slot.index(), chosen);
        world.loads.in_flight[chosen] = u32::MAX;
    }
}

#[test]
fn in_a_large_group_a_hot_prompt_goes_to_one_of_the_idlest() {
    let mut world = world(1_000);
    world.loads.cached_blocks = vec![40; 1_000];
    for (index, signals) in world.loads.signals.iter_mut().enumerate() {
        signals.running = fresh((index % 10) as f32 + 1.0);
    }
    for block in 0..50 {
        world.prompt.blocks = BlockHashes::new((0..62).map(|at| at + block * 1_000).collect());
        let index = world.attempt(0).slot.index();
        assert_eq!(index % 10, 0, "replica {index} of a tenth that is idlest");
    }
}

#[test]
fn in_a_large_group_nodes_that_know_nothing_choose_the_same_and_prompts_spread() {
    let mut world = world(1_000);
    let mut chosen = std::collections::BTreeSet::new();
    for block in 0..100 {
        world.prompt.blocks = BlockHashes::new((0..62).map(|at| at + block * 1_000).collect());
        let index = world.attempt(0).slot.index();
        world.rng = fastrand::Rng::with_seed(block);
        assert_eq!(world.attempt(7).slot.index(), index);
        chosen.insert(index);
    }
    assert!(chosen.len() > 80, "{} replicas for 100 prompts", chosen.len());
}

proptest! {
    #[test]
    fn a_short_look_leaves_out_none_that_would_be_the_cheapest(
        world in any_prompted(Just(Policy::PredictedLatency)),
    ) {
        let world = world.all_warm();
        let mut rng = fastrand::Rng::with_seed(1);
        let moment = Moment { now: *NOW, loads: &world.loads, ticket: 0, rng: &mut rng };
        let (plan, weighed) = plan_explained(&world.inquiry(), &world.group, &world.tried, moment);
        let Plan::Attempt(attempt) = plan else { return Ok(()) };
        if attempt.reason != crate::Reason::Soonest {
            return Ok(());
        }
        let Some(chosen) = weighed.iter().find(|one| one.slot == attempt.slot) else {
            return Ok(());
        };
        // Of those that hold as much of the prompt.
        let blocks = |one: &Weighed| world.loads.cached_blocks[one.slot.index()];
        let others = weighed.iter().filter(|one| blocks(one) >= blocks(chosen));
        for one in others.filter(|one| one.obstacle == Some(crate::Obstacle::NotChosen)) {
            let is_better = one.contended_ms < chosen.contended_ms && chosen.fit == Fit::Fits;
            prop_assert!(!is_better, "{one:?} is better than {chosen:?}");
        }
    }
}
