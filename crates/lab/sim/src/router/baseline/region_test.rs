use std::time::Instant;

use spillway_journey::{Event, RegionFailure};
use spillway_route::WaitEntry;
use spillway_types::Deadline;

use super::Baseline;
use super::test_case::{Asked, Case, asked, follow, prompt};
use crate::router::{RouterVerdict, Stage};

fn is_kept(verdict: RouterVerdict) -> bool {
    matches!(verdict, RouterVerdict::Wait { .. })
}

#[test]
fn no_baseline_refuses_a_guest_or_sends_it_on() {
    for baseline in Baseline::all().into_iter().filter(|baseline| !baseline.is_central) {
        let mut case = Case::new(baseline.name, 2);
        case.add_region(1, 10.0);
        case.set_kv_use(&[0.99, 0.99]);
        case.set_loads(&[90, 90]);
        let guest = Asked { hop: 1, ..asked(0, &prompt(1, 10)) };
        assert!(case.admits(&guest), "{}", baseline.name);
        case.replica(&guest);
    }
}

#[test]
fn gke_sends_a_part_of_the_excess_to_the_nearest_region_with_room() {
    let mut case = Case::new("gke", 2);
    case.add_region(1, 90.0);
    case.add_region(2, 40.0);
    let forwarded = |case: &mut Case, region: usize| {
        let requests = (0..1_000).map(|at| asked(at, &prompt(1, 10)));
        let away = requests.filter(|request| match case.decide(request) {
            RouterVerdict::Forward(to) => {
                assert_eq!(to, region);
                true
            }
            verdict => {
                assert!(matches!(verdict, RouterVerdict::Serve { replica: 1, .. }));
                false
            }
        });
        away.count()
    };
    case.set_kv_use(&[0.8, 0.4]);
    assert_eq!(forwarded(&mut case, 2), 0, "60 % are not too much");
    case.set_kv_use(&[0.9, 0.7]);
    let quarter = forwarded(&mut case, 2);
    assert!((200..300).contains(&quarter), "{quarter}");
    case.others[1].kv_use = 0.7;
    let quarter = forwarded(&mut case, 1);
    assert!((200..300).contains(&quarter), "{quarter}");
    case.others[0].kv_use = 0.6;
    assert_eq!(forwarded(&mut case, 1), 0, "nobody has room");
}

#[test]
fn gke_follows_prompts_within_a_region_as_llm_d_does() {
    let mut case = Case::new("gke", 2);
    let head = prompt(1, 9);
    case.sent(0, 0, &head, 0);
    case.set_kv_use(&[0.5, 0.1]);
    assert_eq!(case.replica(&asked(1, &follow(&head, 2, 1))), 0, "2.7 for the match against 0.8");
    assert_eq!(case.replica(&asked(2, &prompt(3, 10))), 1);
}

/// Lets a hub see ten requests that take so long in the region that it sends them to.
fn observe(case: &mut Case, first: usize, ms_of: impl Fn(usize) -> u64) {
    for number in first..first + 200 {
        let request = asked(number, &prompt(number as u64 + 1, 2));
        match case.decide(&request) {
            RouterVerdict::Forward(region) => {
                case.forwarded(number, region, Stage::Replied { cached_tokens: 0 }, ms_of(region));
                case.forwarded(number, region, Stage::Ended { whole: &[] }, ms_of(region));
            }
            RouterVerdict::Serve { replica, .. } => {
                case.replied(number, (replica, 1.0), &request.chain, ms_of(0));
                case.ended(number, replica, &request.chain);
            }
            verdict => panic!("{verdict:?}"),
        }
    }
}

#[test]
fn llm_d_hub_goes_where_the_first_token_came_soonest_at_the_load_that_is_there() {
    let mut case = Case::new("llm-d-hub", 2);
    case.add_region(1, 90.0);
    observe(&mut case, 0, |region| if region == 0 { 300 } else { 200 });
    let sent: Vec<_> = (0..9).map(|at| case.decide(&asked(500 + at, &prompt(9, 2)))).collect();
    assert_eq!(sent, [RouterVerdict::Forward(1); 9]);
    let guest = Asked { hop: 1, ..asked(600, &prompt(9, 2)) };
    case.replica(&guest);
}

#[test]
fn llm_d_hub_leaves_a_region_that_grows_slow_with_its_load() {
    let mut case = Case::new("llm-d-hub", 2);
    case.add_region(1, 90.0);
    // Alone a request takes 100 ms at home, and 10 ms more for each that it meets.
    let requests = |case: &mut Case, first: usize| {
        let mut at_home = Vec::new();
        for number in first..first + 40 {
            let request = asked(number, &prompt(number as u64 + 1, 2));
            match case.decide(&request) {
                RouterVerdict::Forward(region) => {
                    case.forwarded(number, region, Stage::Replied { cached_tokens: 0 }, 150);
                    case.forwarded(number, region, Stage::Ended { whole: &[] }, 150);
                }
                RouterVerdict::Serve { replica, .. } => {
                    case.replied(
                        number,
                        (replica, 1.0),
                        &request.chain,
                        100 + 10 * at_home.len() as u64,
                    );
                    at_home.push((number, replica));
                }
                verdict => panic!("{verdict:?}"),
            }
        }
        for &(number, replica) in &at_home {
            case.ended(number, replica, &prompt(number as u64 + 1, 2));
        }
        at_home.len()
    };
    for round in 0..5 {
        requests(&mut case, round * 40);
    }
    let at_home = requests(&mut case, 1_000);
    assert!((3..20).contains(&at_home), "{at_home} of 40");
}

#[test]
fn dynamo_pools_takes_the_pool_with_the_least_work_that_is_left() {
    let mut case = Case::of_regions("dynamo-pools-central", &[0, 0, 1, 1]);
    let head = prompt(1, 10);
    case.sent(0, 1, &head, 0);
    case.ended(0, 1, &head);
    let request = asked(1, &follow(&head, 2, 2));
    assert_eq!(case.replica(&request), 1, "2 blocks to read against 12");
    // Eleven blocks to read at the other replica of that pool.
    case.replicas[0].pending_tokens = 11 * 64;
    let other = case.replica(&request);
    assert!([2, 3].contains(&other), "13 against 12: {other}");
    case.replicas[3].pending_tokens = 2 * 64;
    assert_eq!(case.replica(&request), 1, "13 against 14");
}

#[test]
fn dynamo_pools_without_a_center_forwards_to_the_pool_that_is_cheaper_and_counts_what_it_sent() {
    let mut case = Case::new("dynamo-pools", 1);
    case.add_region(1, 200.0);
    case.others[0].replicas = 1;
    let request = |number: usize| asked(number, &prompt(number as u64, 10));
    assert_eq!(case.replica(&request(1)), 0, "equal");
    case.replicas[0].pending_tokens = 15 * 64;
    assert_eq!(case.decide(&request(2)), RouterVerdict::Forward(1), "25 against 10");
    assert_eq!(case.replica(&request(3)), 0, "25 against 10, and 20 that were sent");
    let again = asked(4, &follow(&prompt(2, 10), 4, 1));
    assert_eq!(case.decide(&again), RouterVerdict::Forward(1), "it knows the prompt");
    case.others[0].report = None;
    assert_eq!(case.replica(&request(5)), 0);
}

#[test]
fn a_request_that_came_back_stays() {
    let mut case = Case::new("gke", 1);
    case.add_region(1, 10.0);
    case.set_kv_use(&[1e9]);
    let request = asked(0, &prompt(1, 10));
    assert_eq!(case.decide(&request), RouterVerdict::Forward(1));
    let failure = RegionFailure::Refused { wait: None };
    case.handle(&request, Event::RegionFailed { failure, can_repeat: true });
    assert_eq!(case.replica(&request), 0);
}

#[test]
fn gorgo_adds_network_and_prompts_in_milliseconds() {
    let mut case = Case::new("gorgo-central", 2);
    case.replicas[1].rtt_ms = 200.0;
    let long = prompt(1, 20);
    // 1 ms a token, and 55 ms of the network.
    case.sent(0, 1, &long, 0);
    case.replied(0, (1, 1_280.0), &long, 0);
    case.ended(0, 1, &long);
    assert_eq!(case.replica(&asked(1, &prompt(2, 3))), 0, "192 against 192 + 55");
    assert_eq!(case.replica(&asked(2, &follow(&long, 3, 1))), 1, "1,344 against 64 + 55");
    case.sent(3, 0, &prompt(4, 2), 0);
    assert_eq!(case.replica(&asked(4, &prompt(2, 3))), 1, "192 + 64 against 192 + 55");
    case.replied(3, (0, 500.0), &prompt(4, 2), 500);
    case.router.left(3);
    assert_eq!(case.replica(&asked(5, &prompt(2, 3))), 1, "it counts to its end");
    case.ended(3, 0, &prompt(4, 2));
    assert_eq!(case.replica(&asked(6, &prompt(2, 3))), 0);
}

#[test]
fn gorgo_without_a_center_looks_elsewhere_with_five_requests_at_home() {
    let mut case = Case::new("gorgo", 1);
    case.add_region(1, 300.0);
    case.add_region(2, 200.0);
    let long = prompt(1, 10);
    case.sent(0, 0, &long, 0);
    case.replied(0, (0, 640.0), &long, 0);
    // 640 ms of the own queue, and 320 of the prompt.
    case.replicas[0].pending_tokens = 640;
    let request = |number| asked(number, &prompt(2, 5));
    case.set_loads(&[4]);
    assert_eq!(case.replica(&request(1)), 0);
    case.set_loads(&[5]);
    assert_eq!(case.decide(&request(2)), RouterVerdict::Forward(2), "520 against 960");
    case.others[1].rtt_ms = 400.0;
    let again = asked(3, &follow(&prompt(2, 5), 9, 1));
    assert_eq!(case.decide(&again), RouterVerdict::Forward(2), "464: it knows the prompt");
    assert_eq!(case.decide(&asked(4, &prompt(5, 5))), RouterVerdict::Forward(1), "620 against 960");
    case.others.iter_mut().for_each(|other| other.available = 0);
    assert_eq!(case.replica(&asked(5, &prompt(5, 5))), 0);
}

#[test]
fn skywalker_pushes_at_home_first_and_only_where_nothing_waits() {
    for name in ["skywalker-0", "skywalker-2", "skywalker-8", "skywalker-ch"] {
        let mut case = Case::new(name, 3);
        case.add_region(1, 90.0);
        case.set_queued(&[1.0, 0.0, 1.0]);
        case.set_loads(&[0, 50, 0]);
        assert_eq!(case.replica(&asked(0, &prompt(1, 10))), 1, "{name}");
        case.set_queued(&[1.0, 1.0, 1.0]);
        assert_eq!(case.decide(&asked(1, &prompt(1, 10))), RouterVerdict::Forward(1), "{name}");
        case.others[0].available = 0;
        assert!(is_kept(case.decide(&asked(2, &prompt(1, 10)))), "{name}");
        let guest = Asked { hop: 1, ..asked(3, &prompt(1, 10)) };
        case.others[0].available = 1;
        assert!(is_kept(case.decide(&guest)), "{name}: a guest waits");
    }
}

#[test]
fn skywalker_sends_nothing_to_a_region_where_more_wait_than_tau() {
    for (name, waiting_max) in [("skywalker-0", 0), ("skywalker-2", 2), ("skywalker-8", 8)] {
        let mut case = Case::new(name, 1);
        case.add_region(1, 90.0);
        case.set_queued(&[1.0]);
        wait(&mut case, 20);
        case.others[0].waiting = waiting_max;
        assert_eq!(decide_first(&mut case, 0), RouterVerdict::Forward(1));
        case.others[0].waiting = waiting_max + 1;
        assert!(is_kept(decide_first(&mut case, 1)), "{name}");
    }
}

/// Lets so many requests wait in the node.
fn wait(case: &mut Case, count: u64) {
    let RouterVerdict::Wait { terms, .. } = case.decide(&Asked { hop: 1, ..asked(9_999, &[]) })
    else {
        panic!("a guest goes nowhere else");
    };
    let now = terms.turn_by.unwrap();
    let deadline = Deadline::after(now, std::time::Duration::from_secs(60));
    for _ in 0..count {
        case.queue.enter(WaitEntry::new(0, deadline), now).unwrap();
    }
}

/// Returns the verdict about a request whose turn it is, before all those that wait.
fn decide_first(case: &mut Case, number: usize) -> RouterVerdict {
    let request = asked(number, &prompt(1, 10));
    let RouterVerdict::Wait { terms, .. } = case.decide(&request) else { panic!("others wait") };
    case.handle(&request, Event::Turn { due: terms.turn_by.unwrap() });
    case.decide(&request)
}

#[test]
fn skywalker_sends_nothing_to_a_region_with_a_longer_queue_than_its_own() {
    let mut case = Case::new("skywalker-8", 1);
    case.add_region(1, 90.0);
    case.set_queued(&[1.0]);
    wait(&mut case, 4);
    case.others[0].waiting = 5;
    assert_eq!(decide_first(&mut case, 0), RouterVerdict::Forward(1), "four and this one");
    case.others[0].waiting = 6;
    assert!(is_kept(decide_first(&mut case, 1)));
}

#[test]
fn skywalker_follows_a_match_of_more_than_half_and_else_the_least_load() {
    let mut case = Case::new("skywalker-0", 3);
    let head = prompt(1, 6);
    case.sent(0, 0, &head, 0);
    case.set_loads(&[9, 3, 2]);
    assert_eq!(case.replica(&asked(1, &follow(&head, 2, 5))), 0);
    assert_eq!(case.replica(&asked(2, &follow(&head, 2, 6))), 2, "half is not enough");
    case.set_queued(&[1.0, 0.0, 0.0]);
    assert_eq!(case.replica(&asked(3, &follow(&head, 2, 5))), 2, "the match is not available");
}

#[test]
fn skywalker_knows_of_other_regions_what_it_sent_there() {
    let mut case = Case::new("skywalker-0", 1);
    case.add_region(1, 90.0);
    case.set_queued(&[1.0]);
    let head = prompt(1, 6);
    assert_eq!(case.decide(&asked(0, &head)), RouterVerdict::Forward(1));
    case.add_region(2, 20.0);
    assert_eq!(case.decide(&asked(1, &follow(&head, 2, 1))), RouterVerdict::Forward(1));
    assert_eq!(case.decide(&asked(2, &prompt(3, 6))), RouterVerdict::Forward(2), "fewer are there");
    case.router.left(0);
    case.router.left(1);
    assert_eq!(case.decide(&asked(3, &prompt(4, 6))), RouterVerdict::Forward(1), "both answered");
}

#[test]
fn skywalker_ch_keeps_sessions_together_in_regions_and_at_replicas() {
    let mut case = Case::new("skywalker-ch", 4);
    case.add_region(1, 90.0);
    case.add_region(2, 20.0);
    let of = |number, key| Asked { key, ..asked(number, &prompt(number as u64, 3)) };
    let homes: Vec<_> = (0..20).map(|key| case.replica(&of(key, key as u64))).collect();
    case.set_loads(&[9, 0, 7, 3]);
    let again: Vec<_> = (0..20).map(|key| case.replica(&of(key + 20, key as u64))).collect();
    assert_eq!(homes, again);
    case.set_queued(&[1.0; 4]);
    let away: Vec<_> = (0..20).map(|key| case.decide(&of(key + 40, key as u64))).collect();
    let again: Vec<_> = (0..20).map(|key| case.decide(&of(key + 60, key as u64))).collect();
    assert_eq!(away, again);
    assert!(away.contains(&RouterVerdict::Forward(1)), "{away:?}");
    assert!(away.contains(&RouterVerdict::Forward(2)), "{away:?}");
}

#[test]
fn whoever_comes_later_waits_behind_those_that_are_kept() {
    let mut case = Case::new("skywalker-0", 1);
    let kept = asked(0, &prompt(1, 10));
    case.set_queued(&[1.0]);
    let RouterVerdict::Wait { terms, .. } = case.decide(&kept) else { panic!() };
    let arrived: Option<Instant> = terms.turn_by;
    let deadline = Deadline::after(arrived.unwrap(), std::time::Duration::from_secs(60));
    let ticket = case.queue.enter(WaitEntry::new(0, deadline), arrived.unwrap()).unwrap().0.ticket;
    case.set_queued(&[0.0]);
    assert!(is_kept(case.decide(&asked(1, &prompt(1, 10)))), "not before the first");
    case.queue.remove(ticket, arrived.unwrap());
    case.handle(&kept, Event::Turn { due: arrived.unwrap() });
    assert_eq!(case.replica(&kept), 0);
    // Without room in the queue a request waits outside.
    case.set_queued(&[1.0]);
    let late = asked(2, &prompt(1, 10));
    assert!(is_kept(case.decide(&late)));
    case.handle(&late, Event::QueueFull);
    assert!(matches!(case.decide(&late), RouterVerdict::Pause(_)));
}
