//! Decision between regions, by case: the effect of each input where all others are equal.

use spillway_types::{ModelLoad, RAMP_FULL, ShedState};

use super::test_cases::{Case, busy, first, free, load};
use super::*;
use crate::ShedReason;
use crate::test_world::assert_proportional;

fn objection(plan: &SpillPlan, region: usize) -> Option<Objection> {
    plan.regions[region].objection
}

#[test]
fn a_busy_region_forwards_to_the_one_that_is_soonest() {
    let plan = Case::busy(vec![free(227.0), free(93.0), free(150.0)]).plan();
    let SpillVerdict::Forward(forwards) = &plan.verdict else { panic!("{plan:?}") };
    assert_eq!(forwards[..], [1, 2, 0]);
    assert_eq!(plan.reason, SpillReason::Better);
    assert_eq!(plan.regions[1].cost, SpillCost { network_ms: 93.0, ..SpillCost::default() });
    // 20 wait, 40 run, and 40 end each second: the next one to come has its turn in 21 times 25 ms.
    assert_eq!(plan.own.unwrap().wait_ms, 525.0);
}

#[test]
fn each_term_counts_and_is_shown() {
    let mut region = free(100.0);
    (region.prefill_ms, region.stall_ms) = (20.0, 6.0);
    region.price_ms = 30.0;
    // The last slot beside the reserve: as likely taken as free.
    region.report.load.running = 35.0;
    let mut case = Case::busy(vec![region]);
    (case.terms.doubt, case.terms.crowding) = (0.5, 2.0);
    (case.own.prefill_ms, case.own.stall_ms, case.own.price_ms) = (7.0, 3.0, 8.0);
    let plan = case.plan();
    let (there, here) = (plan.regions[0].cost, plan.own.unwrap());
    let terms = |cost: SpillCost| {
        let SpillCost { network_ms, wait_ms, prefill_ms, stall_ms, .. } = cost;
        let SpillCost { price_ms, doubt_ms, crowding_ms, .. } = cost;
        [network_ms, wait_ms, prefill_ms, stall_ms, price_ms, doubt_ms, crowding_ms]
    };
    assert_eq!(terms(there), [100.0, 0.0, 20.0, 6.0, 30.0, 25.0, 0.0]);
    assert_eq!((there.total_ms(), there.first_token_ms()), (181.0, 120.0));
    assert_eq!(terms(here), [0.0, 525.0, 7.0, 3.0, 8.0, 0.0, 1_050.0]);
    assert_eq!((here.total_ms(), here.first_token_ms()), (1_593.0, 532.0));
    // Prompts that wait to be read there are a wait as well.
    case.others[0].pending_ms = 40.0;
    assert_eq!(case.plan().regions[0].cost.wait_ms, 40.0);
}

#[test]
fn doubt_grows_with_the_age_of_a_report_and_with_how_full_the_region_is() {
    let doubt_ms = |running, age_ms| {
        let mut region = free(100.0);
        region.report.load = load(running);
        region.report.age_ms = age_ms;
        let mut case = Case::busy(vec![region]);
        case.terms.doubt = 1.0;
        case.plan().regions[0].cost.doubt_ms
    };
    // Five slots beside the reserve; 1.5 or 30 requests come, and as many end, during the transit.
    assert!((doubt_ms(30.0, 0.0) - 50.0 * (-25.0_f32 / 6.0).exp()).abs() < 0.01);
    assert!((doubt_ms(30.0, 950.0) - 50.0 * (-25.0_f32 / 120.0).exp()).abs() < 0.01);
    assert!(doubt_ms(10.0, 100.0) < 0.01);
    assert_eq!(doubt_ms(35.0, 100.0), 50.0);
    assert_eq!(doubt_ms(39.0, 900.0), 50.0);
}

#[test]
fn what_waiting_costs_others_sends_a_request_away_before_waiting_takes_as_long() {
    let mut case = Case::busy(vec![free(700.0)]);
    assert_eq!(first(&case.plan()), None);
    case.terms.crowding = 0.5;
    assert_eq!(first(&case.plan()), Some(0));
}

#[test]
fn it_waits_where_waiting_is_better_than_the_way() {
    let plan = Case::busy(vec![free(525.0)]).plan();
    assert_eq!(plan.verdict, SpillVerdict::Wait { wait_ms: 525.0 });
    assert_eq!(plan.reason, SpillReason::NoneBetter);
    assert_eq!(objection(&plan, 0), Some(Objection::NotBetter));
    assert_eq!(first(&Case::busy(vec![free(524.0)]).plan()), Some(0));
}

#[test]
fn who_cannot_be_asked_is_named_with_the_reason() {
    let with = |change: fn(&mut RegionCandidate)| {
        let mut region = free(10.0);
        change(&mut region);
        region
    };
    let regions = [
        (with(|region| region.access = Access::Unreachable), Objection::Unreachable),
        (with(|region| region.access = Access::Refused), Objection::Refused),
        (with(|region| region.weight_permille = 0), Objection::Drained),
        (with(|region| region.ramp_permille = 0), Objection::Drained),
        (with(|region| region.report.load.shed = ShedState::Reserved), Objection::Closed),
        (with(|region| region.report.load.shed = ShedState::Shedding), Objection::Closed),
        (with(|region| region.rtt_ms = 60_000.0), Objection::Late),
        (with(|region| region.report.load.running = 36.0), Objection::Full),
        (with(|region| region.report.load.queued = 1.0), Objection::Full),
        (with(|region| region.price_ms = 600.0), Objection::NotBetter),
    ];
    let plan = Case::busy(regions.iter().map(|(region, _)| *region).collect()).plan();
    assert_eq!(plan.verdict, SpillVerdict::Wait { wait_ms: 525.0 });
    for (index, (_, expected)) in regions.iter().enumerate() {
        assert_eq!(objection(&plan, index), Some(*expected));
    }
}

#[test]
fn what_this_node_sent_since_the_report_counts_for_each_node_of_its_region() {
    let wait_ms = |sent, ended, nodes| {
        let mut case = Case::busy(vec![free(100.0)]);
        case.own.nodes = nodes;
        (case.others[0].report.sent, case.others[0].report.ended) = (sent, ended);
        case.plan().regions[0].cost.wait_ms
    };
    // 16 slots left for guests; when all 40 are taken, 40 end each second.
    assert_eq!(wait_ms(15, 0, 1), 0.0);
    assert_eq!(wait_ms(16, 0, 1), 25.0);
    assert_eq!(wait_ms(20, 4, 1), 25.0);
    assert_eq!(wait_ms(5, 0, 3), 0.0);
    assert_eq!(wait_ms(8, 0, 3), 225.0);
}

#[test]
fn several_nodes_leave_a_region_to_each_other_before_it_is_full() {
    let mut case = Case::busy(vec![free(100.0), free(120.0)]);
    case.own.nodes = 4;
    case.others[0].report.sent = 4;
    assert_eq!(first(&case.plan()), Some(1));
    case.own.nodes = 1;
    assert_eq!(first(&case.plan()), Some(0));
}

#[test]
fn a_region_that_reports_nothing_is_taken_to_be_as_the_others_are() {
    let known = |wait_ms| {
        let mut region = free(100.0);
        region.report.load = ModelLoad { queued: 1.0, wait_ms: Some(wait_ms), ..load(30.0) };
        region.report.load.capacity = None;
        region
    };
    let mut unknown = free(100.0);
    unknown.report.load = ModelLoad::default();
    let wait_ms = |others: Vec<RegionCandidate>| Case::busy(others).plan().regions[0].cost.wait_ms;
    let close = |a: f32, b: f32| assert!((a - b).abs() < 0.01, "{a} and {b}");
    close(wait_ms(vec![unknown, known(100.0), known(500.0)]), 300.0);
    close(wait_ms(vec![unknown]), SpillTerms::default().unknown_wait_ms);
    // Regions out of reach don't count for the means.
    let mut gone = known(500.0);
    gone.access = Access::Unreachable;
    close(wait_ms(vec![unknown, known(100.0), gone]), 100.0);
    // The region is tried, and requests sent there count at the pace of the others.
    let mut tried = unknown;
    tried.report.sent = 3;
    let pace = 1_000.0 / 30.0;
    close(wait_ms(vec![tried, known(100.0), known(500.0)]), 300.0 + 3.0 * pace);
    assert_eq!(first(&Case::busy(vec![unknown]).plan()), Some(0));
}

#[test]
fn a_region_at_half_load_ends_twice_as_many_once_it_is_full() {
    // 20 running requests end 20 a second, so each takes a second; 40 would end 40 a second.
    let mut region = free(0.0);
    region.report.load.wait_ms = None;
    region.report.sent = 20;
    let plan = Case::busy(vec![region]).plan();
    // 41 requests with this one and 4 in reserve, of 40 slots.
    assert_eq!(plan.regions[0].cost.wait_ms, 5.0 * 25.0);
    // An idle region has no pace; a tenth of a second between two ends is assumed.
    region.report.load = ModelLoad { rate_per_s: None, ..region.report.load };
    assert_eq!(Case::busy(vec![region]).plan().regions[0].cost.wait_ms, 500.0);
}

#[test]
fn what_stands_behind_the_request_in_the_queue_does_not_count() {
    let mut case = Case::busy(vec![]);
    case.own.waiting = Waiting { ahead: 3, wait_ms: None, all: 50, has_room: true };
    assert_eq!(case.plan().verdict, SpillVerdict::Wait { wait_ms: 600.0 });
    assert_eq!(case.plan().reason, SpillReason::NobodyElse);
}

#[test]
fn where_this_node_has_no_place_one_request_has_to_end_whatever_the_region_reports() {
    // The region has slots, but they are claimed by sibling nodes.
    let mut case = Case::busy(vec![]);
    case.own.report.load = load(30.0);
    let SpillVerdict::Wait { wait_ms } = case.plan().verdict else { panic!("it waits") };
    assert!((wait_ms - 25.0).abs() < 0.01, "{wait_ms}");
}

#[test]
fn a_region_that_cannot_wait_asks_whoever_has_room_and_else_sheds() {
    let far = free(900.0);
    let mut case = Case::busy(vec![far]);
    assert!(matches!(case.plan().verdict, SpillVerdict::Wait { .. }));
    case.own.waiting.has_room = false;
    assert_eq!((first(&case.plan()), case.plan().reason), (Some(0), SpillReason::OnlyWay));
    case.others[0].report.load.running = 36.0;
    assert_eq!(case.plan().reason, SpillReason::QueueFull);
    case.own.waiting.has_room = true;
    // A deadline is for the whole reply: a first token at 525 ms has to be well within it.
    case.left_ms = 660;
    assert!(matches!(case.plan().verdict, SpillVerdict::Wait { .. }));
    case.left_ms = 650;
    assert_eq!(case.plan().reason, SpillReason::Late);
    assert!(matches!(case.plan().verdict, SpillVerdict::Shed { .. }));
}

#[test]
fn an_objective_that_can_be_kept_nowhere_sheds_early_and_a_free_place_is_always_used() {
    let mut case = Case::busy(vec![free(400.0), free(510.0)]);
    case.own.first_token_ms_max = Some(526.0);
    case.others.iter_mut().for_each(|other| other.access = Access::Refused);
    assert!(matches!(case.plan().verdict, SpillVerdict::Wait { .. }));
    case.own.first_token_ms_max = Some(500.0);
    let plan = case.plan();
    assert_eq!((plan.reason, plan.reason.shed()), (SpillReason::Slo, Some(ShedReason::Slo)));
    let SpillVerdict::Shed { wait_ms, .. } = plan.verdict else { panic!("{plan:?}") };
    // A region that has refused may have a slot by then.
    assert_eq!(wait_ms, 400.0);
    case.others.iter_mut().for_each(|other| other.access = Access::Ready);
    assert_eq!((first(&case.plan()), case.plan().reason), (Some(0), SpillReason::OnlyWay));
    assert_eq!(objection(&case.plan(), 1), Some(Objection::Late));
    // The request then misses its deadline, rather than the objective.
    case.own.first_token_ms_max = Some(390.0);
    case.left_ms = 380;
    assert_eq!(case.plan().reason, SpillReason::Late);
    (case.left_ms, case.own.first_token_ms_max) = (60_000, Some(1.0));
    assert_eq!(case.plan().reason, SpillReason::Slo);
    case.own = OwnRegion { slots: Some(1), prefill_ms: 30.0, ..case.own };
    assert_eq!(case.plan().verdict, SpillVerdict::Own);
}

#[test]
fn a_reply_in_one_piece_has_to_end_before_the_deadline_and_to_begin_before_the_objective() {
    let plan = |rest_ms: f32, left_ms: u64, objective_ms: Option<f32>| {
        let mut case = Case::busy(vec![free(60.0)]);
        case.left_ms = left_ms;
        (case.own.rest_ms, case.others[0].rest_ms) = (rest_ms, rest_ms);
        case.own.first_token_ms_max = objective_ms;
        case.plan()
    };
    assert_eq!(first(&plan(1_000.0, 3_000, None)), Some(0));
    let late = plan(4_000.0, 3_000, None);
    assert_eq!((late.reason, objection(&late, 0)), (SpillReason::Late, Some(Objection::Late)));
    assert_eq!(first(&plan(4_000.0, 60_000, Some(500.0))), Some(0));
    assert_eq!(plan(4_000.0, 60_000, Some(10.0)).reason, SpillReason::Slo);
    assert_eq!(plan(4_000.0, 3_000, Some(10.0)).reason, SpillReason::Late, "it would be as late");
}

#[test]
fn an_edge_does_not_wait_for_a_region_that_would_end_a_reply_too_late() {
    let mut case = Case::busy(vec![free(60.0)]);
    case.own = OwnRegion { replicas: 0, ..case.own };
    case.others[0].report.load.running = 40.0;
    case.left_ms = 3_000;
    assert!(matches!(case.plan().verdict, SpillVerdict::Wait { .. }));
    case.others[0].rest_ms = 4_000.0;
    assert_eq!(case.plan().reason, SpillReason::Late);
}

#[test]
fn an_objective_refuses_those_first_that_have_more_before_them() {
    let plan = |ahead: u32, wait_ms: Option<u32>| {
        let mut case = Case::busy(vec![]);
        case.own.first_token_ms_max = Some(1_000.0);
        case.own.waiting = Waiting { ahead, wait_ms, all: 30, has_room: true };
        case.plan()
    };
    assert!(matches!(plan(10, None).verdict, SpillVerdict::Wait { .. }));
    assert_eq!(plan(20, None).reason, SpillReason::Slo);
    // The wait that the queue has measured counts more than the region's report.
    assert_eq!(plan(20, Some(900)).verdict, SpillVerdict::Wait { wait_ms: 900.0 });
    assert_eq!(plan(10, Some(1_100)).reason, SpillReason::Slo);
}

#[test]
fn a_region_without_room_asks_nobody_who_shows_none() {
    let mut full = free(50.0);
    full.report.load = load(40.0);
    let mut case = Case::busy(vec![full; 5]);
    case.own.waiting.has_room = false;
    let plan = case.plan();
    assert_eq!((plan.verdict == SpillVerdict::Own, plan.reason), (false, SpillReason::QueueFull));
    assert!((0..5).all(|region| objection(&plan, region) == Some(Objection::Full)));
}

#[test]
fn retry_after_follows_the_region_that_is_free_soonest() {
    let mut own = busy();
    own.waiting = Waiting { ahead: 80, wait_ms: None, all: 80, has_room: false };
    own.report.load.queued = 139.0;
    let mut case = Case { own, ..Case::busy(vec![]) };
    let seconds = |case: &Case| {
        let mut rng = fastrand::Rng::with_seed(3);
        let all = (0..200).map(|_| match case.plan_with(&mut rng).verdict {
            SpillVerdict::Shed { retry_after_s, .. } => retry_after_s,
            other => panic!("{other:?}"),
        });
        let all: Vec<u32> = all.collect();
        (all.iter().min().copied().unwrap(), all.iter().max().copied().unwrap())
    };
    // 220 requests have to end, 40 each second; the jitter adds half as much at most.
    assert_eq!(seconds(&case), (6, 9));
    // A full region that is free sooner; it is closed to guests now.
    let mut sooner = free(500.0);
    sooner.report.load = ModelLoad { queued: 57.0, shed: ShedState::Reserved, ..load(40.0) };
    case.others = vec![sooner];
    // 98 requests with this one and 4 in reserve, of 40: 1,550 ms, and 500 for the network.
    assert_eq!(seconds(&case), (3, 4));
    case.others[0].access = Access::Unreachable;
    assert_eq!(seconds(&case), (6, 9));
}

#[test]
fn an_edge_node_forwards_waits_and_sheds_but_never_serves() {
    let mut case = Case::busy(vec![free(100.0)]);
    case.own = OwnRegion { replicas: 0, slots: None, report: RegionReport::default(), ..busy() };
    assert_eq!((first(&case.plan()), case.plan().reason), (Some(0), SpillReason::NoReplica));
    case.others[0].report.load = ModelLoad { shed: ShedState::Reserved, ..load(40.0) };
    // 41 requests and 4 in reserve of 40, at 25 ms, and the network.
    assert_eq!(case.plan().verdict, SpillVerdict::Wait { wait_ms: 225.0 });
    case.own.waiting = Waiting { all: 3, has_room: false, ..case.own.waiting };
    assert_eq!(case.plan().reason, SpillReason::QueueFull);
    // An empty queue that takes nothing is not a full one.
    case.own.waiting.all = 0;
    assert_eq!(case.plan().reason, SpillReason::AllBusy);
    case.own.waiting.has_room = true;
    case.others.clear();
    let SpillVerdict::Shed { retry_after_s, wait_ms } = case.plan().verdict else {
        panic!("{:?}", case.plan());
    };
    assert!((48..=60).contains(&retry_after_s) && wait_ms == f32::INFINITY, "{retry_after_s}");
    assert_eq!(case.plan().reason, SpillReason::NobodyInReach);
}

#[test]
fn a_share_of_weight_and_ramp_is_exactly_that_share_of_requests() {
    for (weight_permille, ramp_permille, share) in
        [(250, RAMP_FULL, 0.25), (RAMP_FULL, 100, 0.1), (500, 250, 0.125), (2_000, 500, 0.5)]
    {
        let mut region = free(100.0);
        (region.weight_permille, region.ramp_permille) = (weight_permille, ramp_permille);
        let chosen = Case::busy(vec![region]).tally(20_000)[0];
        assert_proportional(&[chosen, 20_000 - chosen], &[share, 1.0 - share]);
    }
}

#[test]
fn a_region_without_alternative_is_used_whatever_its_weight_and_ramp() {
    for (weight_permille, ramp_permille) in [(1, RAMP_FULL), (RAMP_FULL, 50), (300, 50)] {
        let mut region = free(100.0);
        (region.weight_permille, region.ramp_permille) = (weight_permille, ramp_permille);
        let mut away = free(50.0);
        away.access = Access::Unreachable;
        let mut case = Case::busy(vec![region, away]);
        // The own region may not serve the request, is an edge, or takes no more into its queue.
        let edge = OwnRegion { replicas: 0, ..case.own };
        let full = Waiting { has_room: false, ..case.own.waiting };
        for own in
            [edge, OwnRegion { waiting: full, ..edge }, OwnRegion { waiting: full, ..case.own }]
        {
            case.own = own;
            assert_eq!(case.tally(1_000), [1_000, 0]);
        }
        // With a weight of 0 the region is drained, and not even a last resort.
        case.others[0].weight_permille = 0;
        assert_eq!(case.tally(10), [0, 0]);
    }
}

#[test]
fn regions_that_chance_has_left_out_together_are_drawn_by_their_shares() {
    let mut small = free(100.0);
    small.ramp_permille = 50;
    let mut large = free(90.0);
    large.ramp_permille = 200;
    let mut case = Case::busy(vec![small, large]);
    case.own.replicas = 0;
    let share =
        |own: f64, other: f64| own * (1.0 - other) + (1.0 - own) * (1.0 - other) * own / 0.25;
    // The cheaper region takes the requests that both could have.
    let large = share(0.2, 0.05) + 0.2 * 0.05;
    assert_proportional(&case.tally(20_000), &[share(0.05, 0.2), large]);
}

#[test]
fn a_free_replica_that_is_predicted_to_be_too_late_counts_as_no_room() {
    let mut case = Case::busy(vec![free(100.0)]);
    case.own = OwnRegion {
        slots: Some(1),
        late_ms: Some(2_171.0),
        report: RegionReport::default(),
        ..case.own
    };
    case.left_ms = 400;
    // Another region is in time.
    assert_eq!((first(&case.plan()), case.plan().reason), (Some(0), SpillReason::OnlyWay));
    case.others[0].rtt_ms = 500.0;
    let plan = case.plan();
    assert_eq!(plan.reason, SpillReason::Late);
    assert!(matches!(plan.verdict, SpillVerdict::Shed { .. }), "{plan:?}");
    case.others.clear();
    assert_eq!(case.plan().reason, SpillReason::Late);
    (case.left_ms, case.own.first_token_ms_max) = (60_000, Some(1_500.0));
    assert_eq!(case.plan().reason, SpillReason::Slo);
    // The queue makes no difference.
    case.own.waiting.has_room = false;
    assert_eq!(case.plan().reason, SpillReason::Slo);
    case.own.late_ms = None;
    assert_eq!(case.plan().verdict, SpillVerdict::Own);
}

#[test]
fn a_session_goes_home_as_long_as_its_region_can_take_it() {
    let mut home = free(300.0);
    home.is_home = true;
    let mut case = Case::busy(vec![free(10.0), home]);
    for slots in [0, 1] {
        case.own.slots = Some(slots);
        let plan = case.plan();
        assert_eq!((first(&plan), plan.reason), (Some(1), SpillReason::Session), "{slots}");
    }
    // Its weight is for requests that could go elsewhere; a drained region takes none.
    case.others[1].ramp_permille = 50;
    assert_eq!(case.tally(1_000), [0, 1_000]);
    for spoil in [
        (|home| home.access = Access::Refused) as fn(&mut RegionCandidate),
        |home| home.access = Access::Unreachable,
        |home| home.weight_permille = 0,
        |home| home.report.load = load(40.0),
        |home| home.report.load.shed = ShedState::Reserved,
        |home| home.rtt_ms = 70_000.0,
    ] {
        let mut case = Case::busy(case.others.clone());
        spoil(&mut case.others[1]);
        assert_eq!(first(&case.plan()), Some(0));
        case.own.slots = Some(1);
        assert_eq!(case.plan().verdict, SpillVerdict::Own);
    }
}

#[test]
fn a_conversation_stays_in_its_region_unless_another_is_much_better() {
    let mut case = Case::busy(vec![free(20.0), free(80.0)]);
    case.own.replicas = 0;
    assert_eq!(case.tally(100), [100, 0]);
    case.others[1].home_ms = 100.0;
    assert_eq!(case.tally(100), [0, 100]);
    case.others[1].rtt_ms = 150.0;
    assert_eq!(case.tally(100), [100, 0]);
    case.others[1].rtt_ms = 20.0;
    case.others[1].report.load = load(40.0);
    assert_eq!(case.tally(100), [100, 0], "it has no room");
}

#[test]
fn a_region_that_comes_back_takes_its_share_from_the_next_best() {
    let mut nearest = free(90.0);
    nearest.ramp_permille = 300;
    let case = Case::busy(vec![nearest, free(100.0)]);
    assert_proportional(&case.tally(10_000), &[0.3, 0.7]);
}

#[test]
fn equals_are_drawn() {
    let case = Case::busy(vec![free(100.0), free(100.0), free(104.0), free(100.0)]);
    assert_proportional(&case.tally(9_000), &[1.0, 1.0, 0.0, 1.0]);
}

#[test]
fn nodes_with_the_same_old_reports_spread_over_equal_regions() {
    // Eight nodes of one region, each with 10 requests between two reports, and five regions.
    for nodes in [1, 2, 8] {
        let mut received = vec![0_u32; 5];
        for node in 0..nodes {
            let mut rng = fastrand::Rng::with_seed(node.into());
            let mut case = Case::busy(vec![free(100.0); 5]);
            case.own.nodes = nodes;
            for _ in 0..80 / nodes {
                let region = first(&case.plan_with(&mut rng)).unwrap();
                case.others[region].report.sent += 1;
                received[region] += 1;
            }
        }
        let most = received.iter().max().unwrap();
        // 16 each if spread evenly, and 16 slots for guests in each.
        assert!(*most <= 24, "{nodes} nodes: {received:?}");
    }
}

#[test]
fn what_the_node_may_hand_out_decides_about_room_where_it_is_known() {
    let own = busy();
    assert!(!own.has_room());
    assert!(OwnRegion { slots: Some(1), ..own }.has_room());
    // A sibling node may have a queue while this node has none.
    let ahead = Waiting { ahead: 1, wait_ms: None, all: 1, has_room: true };
    assert!(!OwnRegion { slots: Some(1), waiting: ahead, ..own }.has_room());
    let with = |load: ModelLoad| {
        OwnRegion { slots: None, report: RegionReport { load, ..own.report }, ..own }.has_room()
    };
    assert!(with(load(39.0)) && !with(load(40.0)));
    assert!(!with(ModelLoad { queued: 1.0, ..load(10.0) }));
    assert!(with(ModelLoad { capacity: None, ..load(400.0) }));
    assert!(!with(ModelLoad { capacity: None, wait_ms: Some(1.0), ..load(10.0) }));
}

#[test]
fn names_of_reasons_and_objections_are_those_they_are_serialised_with() {
    for reason in SpillReason::ALL {
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
    }
    for objection in Objection::ALL {
        assert_eq!(serde_json::to_value(objection).unwrap(), objection.name());
    }
}

#[test]
fn a_reason_for_which_a_request_is_shed_has_one_text() {
    let shed = SpillReason::ALL.into_iter().filter_map(|reason| Some((reason, reason.shed()?)));
    for (reason, shed) in shed.filter(|(reason, shed)| reason.name() == shed.name()) {
        assert_eq!(reason.text(), shed.text());
    }
}

/// Returns a case whose own region has room but would read for this long, while another one has the
/// prompt cached.
fn warm_elsewhere(own_ms: f32, rtt_ms: f32) -> Case {
    let mut case = Case::busy(vec![free(rtt_ms)]);
    (case.own.slots, case.own.prefill_ms) = (Some(2), own_ms);
    case
}

#[test]
fn a_prompt_that_is_cached_elsewhere_leaves_room_at_home_if_that_gains_enough() {
    // The other region has to gain 20 ms and a fifth of 500.
    let plan = warm_elsewhere(500.0, 379.0).plan();
    assert_eq!((first(&plan), plan.reason), (Some(0), SpillReason::Cached));
    assert_eq!(plan.own.unwrap().total_ms(), 500.0);
    let plan = warm_elsewhere(500.0, 380.0).plan();
    assert_eq!((plan.verdict, plan.reason), (SpillVerdict::Own, SpillReason::Room));
    let mut cold = warm_elsewhere(500.0, 80.0);
    cold.others[0].prefill_ms = 490.0;
    assert_eq!(cold.plan().verdict, SpillVerdict::Own);
    let mut guest = warm_elsewhere(500.0, 80.0);
    guest.hop = 1;
    assert_eq!(guest.plan().verdict, SpillVerdict::Own);
}

#[test]
fn a_full_or_closed_region_keeps_its_cache_to_itself() {
    for spoil in [
        (|other| other.report.load = load(40.0)) as fn(&mut RegionCandidate),
        |other| other.report.load.shed = ShedState::Reserved,
        |other| other.access = Access::Refused,
        |other| other.weight_permille = 0,
    ] {
        let mut case = warm_elsewhere(500.0, 80.0);
        spoil(&mut case.others[0]);
        assert_eq!(case.plan().verdict, SpillVerdict::Own);
    }
}

#[test]
fn now_and_then_a_prompt_is_read_here_so_that_it_is_cached_here() {
    let mut case = warm_elsewhere(500.0, 100.0);
    // The prompt of one conversation is read where it is cached.
    assert_eq!(case.tally(1_000), [1_000]);
    // One that many share, with the square of 100 over 500 as probability,
    case.others[0].is_shared = true;
    case.own.report.load.running = 20.0;
    let gone = case.tally(40_000)[0];
    assert_proportional(&[gone, 40_000 - gone], &[0.96, 0.04]);
    // unless clearly more runs here than there.
    case.own.report.load.running = 24.0;
    assert!(case.tally(1_000)[0] < 1_000);
    case.own.report.load.running = 25.0;
    assert_eq!(case.tally(1_000), [1_000]);
}

#[test]
fn what_runs_here_sends_a_prompt_to_where_less_runs_though_it_is_cached_nowhere() {
    let mut case = warm_elsewhere(500.0, 100.0);
    (case.others[0].prefill_ms, case.others[0].stall_ms) = (500.0, 20.0);
    assert_eq!(case.plan().verdict, SpillVerdict::Own);
    case.own.stall_ms = 400.0;
    let plan = case.plan();
    assert_eq!((first(&plan), plan.reason), (Some(0), SpillReason::Cached));
    // Its load there counts alike.
    case.others[0].stall_ms = 300.0;
    assert_eq!(case.plan().verdict, SpillVerdict::Own);
}
