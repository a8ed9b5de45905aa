//! Invariants of every decision between regions.

use proptest::prelude::*;
use spillway_types::{ModelLoad, ShedState};

use super::test_cases::{Case, any_case, any_own, any_terms, first};
use super::*;

/// Rounding error of sums of a few terms.
const SLACK: f32 = 1e-3;

/// Change that gives a region more load or makes it dearer.
type Worsen = fn(&mut RegionCandidate, f32);

const WORSEN: [(&str, Worsen); 7] = [
    ("queued", |region, by| region.report.load.queued += by),
    ("sent", |region, by| region.report.sent += by as u32),
    ("age", |region, by| region.report.age_ms += by),
    ("round trip", |region, by| region.rtt_ms += by),
    ("price", |region, by| region.price_ms += by),
    ("prefill", |region, by| region.prefill_ms += by),
    ("wait", |region, by| {
        region.report.load.wait_ms = region.report.load.wait_ms.map(|wait_ms| wait_ms + by);
    }),
];

/// Returns true if the region could take the request, by its report and the requests of this node.
fn shows_room(region: &RegionCandidate, terms: &SpillTerms) -> bool {
    let RegionReport { load, sent, ended, .. } = region.report;
    let ModelLoad { queued, running, capacity, wait_ms, .. } = load;
    let share = f32::from(terms.reserve_permille) / 1_000.0;
    let fits = capacity.is_none_or(|capacity| {
        let least = if capacity >= 2.0 && terms.reserve_permille > 0 { 1.0 } else { 0.0 };
        let kept = (capacity * share).floor().max(least);
        running + sent as f32 - ended as f32 + 1.0 <= capacity - kept
    });
    queued == 0.0 && wait_ms.unwrap_or(0.0) == 0.0 && fits
}

fn is_away(plan: &SpillPlan) -> bool {
    matches!(plan.verdict, SpillVerdict::Forward(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_request_is_never_forwarded_twice(case in any_case(), hop in 1..=255_u8) {
        let plan = Case { hop, ..case.clone() }.plan();
        if case.own.has_room() {
            prop_assert_eq!(plan.verdict, SpillVerdict::Own);
        } else {
            let is_shed = matches!(plan.verdict, SpillVerdict::Shed { .. });
            prop_assert!(is_shed, "{plan:?}");
        }
    }

    #[test]
    fn it_goes_only_where_it_may(case in any_case()) {
        let plan = case.plan();
        let SpillVerdict::Forward(forwards) = &plan.verdict else { return Ok(()) };
        prop_assert!(!forwards.is_empty());
        for &forward in forwards {
            let (region, judged) = (&case.others[forward], &plan.regions[forward]);
            prop_assert_eq!(region.access, Access::Ready);
            prop_assert!(region.weight_permille > 0 && region.ramp_permille > 0);
            prop_assert_eq!(region.report.load.shed, ShedState::Open);
            prop_assert!(judged.cost.first_token_ms() < case.left_ms as f32);
            prop_assert_eq!(judged.objection, None);
        }
    }

    #[test]
    fn a_plan_names_each_region_once_and_objects_to_all_others(case in any_case()) {
        let plan = case.plan();
        let is_kept = case.own.keeps(&case.others, &case.terms);
        prop_assert!(!is_kept || plan == SpillPlan::own());
        let is_guest_at_home = case.own.has_room() && case.hop > 0;
        let looked_at = if is_kept || is_guest_at_home { 0 } else { case.others.len() };
        prop_assert_eq!(plan.regions.len(), looked_at);
        let mut named: Vec<usize> = match &plan.verdict {
            SpillVerdict::Forward(forwards) => forwards.to_vec(),
            _ => Vec::new(),
        };
        named.sort_unstable();
        let open = |index: &usize| plan.regions[*index].objection.is_none();
        // Some requests that could leave stay, so that the caches here get their prompts.
        let invests = plan.verdict == SpillVerdict::Own;
        prop_assert!(invests || named == (0..looked_at).filter(open).collect::<Vec<_>>());
    }

    #[test]
    fn room_at_home_means_home_but_for_a_prompt_that_is_cached_elsewhere_and_edge_nodes_never_serve(case in any_case()) {
        let plan = case.plan();
        let is_own = plan.verdict == SpillVerdict::Own;
        prop_assert!(!is_own || case.own.has_room());
        prop_assert!(!is_own || case.own.replicas > 0);
        if case.own.has_room() && !is_own {
            // It left for a prompt that takes less to read, and for no other reason.
            let forward = first(&plan).unwrap();
            prop_assert_eq!(plan.reason, SpillReason::Cached);
            let own_ms = case.own.prefill_ms + case.own.stall_ms + case.own.price_ms;
            let gain_ms = own_ms - plan.regions[forward].cost.total_ms();
            prop_assert!(gain_ms > case.terms.gain_min_ms + 0.2 * own_ms - SLACK, "{plan:?}");
        }
        let edge = Case { own: OwnRegion { replicas: 0, ..case.own }, ..case };
        prop_assert!(edge.plan().verdict != SpillVerdict::Own);
    }

    #[test]
    fn another_region_is_chosen_only_if_it_costs_less_than_home(case in any_case()) {
        let plan = case.plan();
        let (SpillVerdict::Forward(forwards), Some(own)) = (&plan.verdict, &plan.own) else {
            return Ok(());
        };
        for &forward in forwards {
            let total_ms = plan.regions[forward].cost.total_ms();
            prop_assert!(total_ms < own.total_ms() + SLACK, "{plan:?}");
        }
    }

    #[test]
    fn more_of_anything_never_makes_a_region_cheaper(
        case in any_case(),
        which: prop::sample::Index,
        (what, by) in (0..WORSEN.len(), 0..50_u8),
    ) {
        prop_assume!(!case.own.has_room() && !case.others.is_empty());
        let index = which.index(case.others.len());
        let mut worse = case.clone();
        WORSEN[what].1(&mut worse.others[index], f32::from(by));
        let cost = |case: &Case| case.plan().regions[index].cost.total_ms();
        let (before, after) = (cost(&case), cost(&worse));
        prop_assert!(after >= before - SLACK - before * 1e-5, "{}: {before}, then {after}", WORSEN[what].0);
    }

    #[test]
    fn without_a_prompt_to_read_room_at_home_means_home(mut case in any_case()) {
        (case.own.prefill_ms, case.own.stall_ms, case.own.price_ms) = (0.0, 0.0, 0.0);
        prop_assert_eq!(case.plan().verdict == SpillVerdict::Own, case.own.has_room());
    }

    #[test]
    fn more_to_do_at_home_never_brings_a_request_back(
        mut case in any_case(),
        (queued, running, ahead, is_full) in (0..20_u8, 0..20_u8, 0..20_u32, any::<bool>()),
        seed: u64,
    ) {
        // Ended requests count by the time that a request takes, which more requests at once make
        // longer.
        case.own.report.ended = 0;
        // With more regions to choose from, chance is asked more often, and leaves out others.
        for other in &mut case.others {
            for share in [&mut other.weight_permille, &mut other.ramp_permille] {
                *share = if *share == 0 { 0 } else { 1_000 };
            }
        }
        let mut worse = case.clone();
        worse.own.report.load.queued += f32::from(queued);
        worse.own.report.load.running += f32::from(running);
        worse.own.waiting.ahead += ahead;
        worse.own.waiting.all += ahead;
        worse.own.waiting.has_room &= !is_full;
        let plan = |case: &Case| case.plan_with(&mut fastrand::Rng::with_seed(seed));
        let (before, after) = (plan(&case), plan(&worse));
        prop_assert!(!is_away(&before) || is_away(&after), "{before:?}, then {after:?}");
    }

    #[test]
    fn a_request_is_shed_only_if_no_region_that_could_answer_in_time_shows_room(mut case in any_case()) {
        case.hop = 0;
        let plan = case.plan();
        if !matches!(plan.verdict, SpillVerdict::Shed { .. }) {
            return Ok(());
        }
        prop_assert!(!case.own.has_room());
        for (region, judged) in case.others.iter().zip(&plan.regions) {
            // A region that is left out by chance stays out, even when all others are full.
            let is_whole = region.weight_permille >= 1_000 && region.ramp_permille >= 1_000;
            let may_be_asked = region.access == Access::Ready && region.report.load.shed == ShedState::Open;
            let in_time = judged.cost.first_token_ms() < case.left_ms as f32;
            let has_room = shows_room(region, &case.terms);
            prop_assert!(!(is_whole && may_be_asked && in_time && has_room), "{plan:?}");
        }
    }

    #[test]
    fn who_waits_is_served_before_the_deadline_and_finds_room_in_the_queue(case in any_case()) {
        if let SpillVerdict::Wait { wait_ms } = case.plan().verdict {
            prop_assert!(case.own.waiting.has_room);
            prop_assert!(wait_ms <= case.left_ms as f32);
        }
    }

    #[test]
    fn with_an_objective_nothing_waits_or_leaves_that_would_miss_it(
        mut case in any_case(),
        max_ms in 0..2_000_u16,
    ) {
        case.own.first_token_ms_max = Some(f32::from(max_ms));
        let plan = case.plan();
        match &plan.verdict {
            SpillVerdict::Own => prop_assert!(case.own.has_room()),
            SpillVerdict::Wait { wait_ms } => prop_assert!(*wait_ms <= f32::from(max_ms)),
            SpillVerdict::Forward(forwards) => for &forward in forwards {
                let first_token_ms = plan.regions[forward].cost.first_token_ms();
                prop_assert!(first_token_ms < f32::from(max_ms), "{plan:?}");
            },
            SpillVerdict::Shed { .. } => prop_assert!(plan.reason.shed().is_some()),
        }
        prop_assert!(plan.reason != SpillReason::Slo || case.hop == 0);
    }

    #[test]
    fn the_same_seed_decides_the_same(case in any_case(), seed: u64) {
        let decide = || {
            let mut rng = fastrand::Rng::with_seed(seed);
            (case.plan_with(&mut rng), case.plan_with(&mut rng), rng.u64(..))
        };
        prop_assert_eq!(decide(), decide());
    }

    #[test]
    fn retry_after_is_between_a_second_and_a_minute(case in any_case()) {
        if let SpillVerdict::Shed { retry_after_s, .. } = case.plan().verdict {
            prop_assert!((1..=60).contains(&retry_after_s));
        }
    }

    #[test]
    fn numbers_that_make_no_sense_do_no_harm(
        mut case in any_case(),
        wrong in prop::collection::vec(prop::num::f32::ANY, 9),
        which: prop::sample::Index,
    ) {
        prop_assume!(!case.others.is_empty());
        let index = which.index(case.others.len());
        let region = &mut case.others[index];
        region.rtt_ms = wrong[0];
        region.price_ms = wrong[1];
        region.report.age_ms = wrong[2];
        region.report.load = ModelLoad {
            queued: wrong[3],
            running: wrong[4],
            capacity: Some(wrong[5]),
            rate_per_s: Some(wrong[6]),
            wait_ms: Some(wrong[7]),
            ..region.report.load
        };
        case.own.report.load.rate_per_s = Some(wrong[8]);
        let plan = case.plan();
        let costs = plan.regions.iter().map(|judged| judged.cost.total_ms());
        prop_assert!(costs.clone().all(|ms| !ms.is_nan() && ms >= 0.0), "{plan:?}");
        prop_assert!(plan.own.is_none_or(|own| !own.total_ms().is_nan()));
        prop_assert!(first(&plan).is_none_or(|first| first < case.others.len()));
    }

    #[test]
    fn a_guest_takes_no_place_that_a_local_waits_for_nor_one_of_the_reserve(
        own in any_own(),
        terms in any_terms(),
    ) {
        match admit_guest(&own, &terms) {
            Guest::Welcome => {
                let region = RegionCandidate {
                    report: own.report,
                    access: Access::Ready,
                    rtt_ms: 0.0,
                    prefill_ms: 0.0,
                    stall_ms: 0.0,
                    pending_ms: 0.0,
                    rest_ms: 0.0,
                    is_shared: false,
                    price_ms: 0.0,
                    weight_permille: 1_000,
                    ramp_permille: 1_000,
                    is_home: false,
                    home_ms: 0.0,
                };
                prop_assert!(shows_room(&region, &terms));
                prop_assert_eq!(own.waiting.all, 0);
                prop_assert!(own.replicas > 0 && own.slots != Some(0) && own.weight_permille > 0);
                // The next request of an own client finds a slot as well, in any region of
                // several.
                let next = OwnRegion {
                    report: RegionReport { sent: own.report.sent + 1, ..own.report },
                    slots: own.slots.map(|slots| slots - 1),
                    ..own
                };
                let is_several = own.report.load.capacity.is_some_and(|capacity| capacity >= 2.0);
                let has_limits = own.slots.is_some();
                if is_several && !has_limits && terms.reserve_permille > 0 {
                    prop_assert!(next.has_room());
                }
            }
            Guest::Refused { wait_ms, .. } => prop_assert!(wait_ms > 0.0 && wait_ms.is_finite()),
        }
    }

    #[test]
    fn what_a_region_says_of_itself_is_what_it_does(own in any_own(), terms in any_terms()) {
        let is_welcome = admit_guest(&own, &terms) == Guest::Welcome;
        let said = shed_state(&own, &terms);
        prop_assert_eq!(said == ShedState::Open, is_welcome);
        prop_assert_eq!(said == ShedState::Shedding, !is_welcome && !own.waiting.has_room);
    }
}
