use std::collections::BTreeSet;

use super::Baseline;
use super::test_case::{Asked, Case, asked, follow, prompt};
use crate::router::RouterVerdict;

#[test]
fn every_name_is_one_of_a_baseline() {
    let all = Baseline::all();
    let names: BTreeSet<_> = all.iter().map(|baseline| baseline.name).collect();
    assert_eq!((names.len(), all.len()), (40, 40));
    for baseline in all {
        assert_eq!(Baseline::named(baseline.name).map(|one| one.name), Some(baseline.name));
        assert_eq!(baseline.is_central, baseline.name.ends_with("-central"), "{baseline:?}");
    }
    assert!(Baseline::named("none").is_none());
}

#[test]
fn whoever_was_rejected_asks_three_others_and_then_fails() {
    for baseline in Baseline::all() {
        let mut case = Case::new(baseline.name, 5);
        let request = asked(0, &prompt(1, 10));
        let mut seen = BTreeSet::new();
        for _ in 0..4 {
            seen.insert(case.serve(&request));
            case.reject(&request);
        }
        assert_eq!(seen.len(), 4, "{}", baseline.name);
        assert_eq!(case.decide(&request), RouterVerdict::Fail, "{}", baseline.name);
        case.router.left(0);
        case.serve(&request);
    }
}

#[test]
fn whoever_was_rejected_by_all_fails() {
    let mut case = Case::new("least-load-local", 1);
    let request = asked(0, &prompt(1, 10));
    case.serve(&request);
    case.reject(&request);
    assert_eq!(case.decide(&request), RouterVerdict::Fail);
}

#[test]
fn chance_finds_all_turns_take_all_and_load_takes_the_least() {
    let mut case = Case::new("random-local", 3);
    let drawn: BTreeSet<_> = (0..50).map(|at| case.serve(&asked(at, &[]))).collect();
    assert_eq!(drawn.len(), 3);
    let mut case = Case::new("round-robin-local", 3);
    let taken: Vec<_> = (0..6).map(|at| case.serve(&asked(at, &[]))).collect();
    assert_eq!(taken, [0, 1, 2, 0, 1, 2]);
    let mut case = Case::new("least-load-local", 3);
    case.set_loads(&[2, 1, 1]);
    case.replicas[1].elsewhere = 1;
    assert_eq!(case.serve(&asked(0, &[])), 2);
}

#[test]
fn a_session_stays_at_its_replica_until_that_has_a_quarter_more_than_the_mean() {
    for name in ["session-hash-local", "chwbl-local"] {
        let mut case = Case::new(name, 4);
        let home = case.serve(&asked(0, &[]));
        let mut loads = [4; 4];
        case.set_loads(&loads);
        assert_eq!(case.serve(&asked(1, &[])), home, "{name}");
        // With this one 21 requests: at most 7 at a replica.
        loads[home] = 8;
        case.set_loads(&loads);
        let is_home = case.serve(&asked(2, &[])) == home;
        assert_eq!(is_home, name == "session-hash-local");
    }
}

#[test]
fn lmetric_multiplies_tokens_and_requests() {
    let mut case = Case::new("lmetric-local", 2);
    let head = prompt(1, 8);
    case.sent(0, 0, &head, 0);
    let request = asked(1, &follow(&head, 2, 2));
    case.set_loads(&[3, 0]);
    assert_eq!(case.replica(&request), 0, "128 tokens x 4 against 640 x 1");
    case.set_loads(&[5, 0]);
    assert_eq!(case.replica(&request), 1, "128 tokens x 6 against 640 x 1");
    case.set_loads(&[5, 1]);
    assert_eq!(case.replica(&request), 0, "128 tokens x 6 against 640 x 2");
    case.replicas[0].pending_tokens = 300;
    assert_eq!(case.replica(&request), 1, "428 tokens x 6 against 640 x 2");
}

/// Lets a replica reply to a request that continues nothing, with 12 blocks.
fn talk(case: &mut Case, number: usize, (replica, first_token_ms): (usize, f64)) -> Vec<u64> {
    let question = prompt(number as u64 + 1, 8);
    let whole = follow(&question, number as u64 + 101, 4);
    case.sent(number, replica, &question, 0);
    case.replied(number, (replica, first_token_ms), &question, 0);
    case.ended_after(number, replica, &whole, question.len());
    whole
}

#[test]
fn smetric_balances_first_turns_and_keeps_later_ones_where_the_conversation_is() {
    let mut case = Case::new("smetric-local", 2);
    let whole = talk(&mut case, 0, (0, 512.0));
    case.set_loads(&[30, 0]);
    assert_eq!(case.replica(&asked(1, &follow(&whole, 2, 1))), 0, "a later turn");
    let head = &whole[..8];
    assert_eq!(case.replica(&asked(2, &follow(head, 3, 1))), 1, "64 x 31 against 576 x 1");
    case.set_loads(&[3, 0]);
    assert_eq!(case.replica(&asked(3, &follow(head, 3, 1))), 0, "64 x 4 against 576 x 1");
}

#[test]
fn smetric_moves_a_turn_that_would_be_late_unless_it_is_late_everywhere() {
    let mut case = Case::new("smetric-local", 2);
    // A token a millisecond, at both replicas.
    let whole = talk(&mut case, 0, (0, 512.0));
    (1..8).for_each(|at| drop(talk(&mut case, at, (0, 512.0))));
    (8..16).for_each(|at| drop(talk(&mut case, at, (1, 512.0))));
    // 13 blocks may take 500 ms and 2 x 832.
    let turn = |number| asked(number, &follow(&whole, 2, 1));
    case.replicas[0].pending_tokens = 1_800;
    assert_eq!(case.replica(&turn(20)), 0);
    case.replicas[0].pending_tokens = 2_200;
    assert_eq!(case.replica(&turn(21)), 1, "late there, and in time elsewhere");
    case.replicas[1].pending_tokens = 2_200;
    assert_eq!(case.replica(&turn(22)), 0, "late everywhere");
}

#[test]
fn only_those_that_know_replies_find_the_next_turn_at_its_replica() {
    for (name, knows) in [("lmetric-local", false), ("lmetric-replies-local", true)] {
        let mut case = Case::new(name, 2);
        let question = prompt(1, 4);
        let whole = follow(&question, 2, 12);
        case.sent(0, 0, &question, 0);
        case.ended(0, 0, &whole);
        case.set_loads(&[2, 0]);
        // With the reply 64 tokens x 3 against 1,088, and without it 832 x 3.
        let replica = case.replica(&asked(1, &follow(&whole, 3, 1)));
        assert_eq!(replica, usize::from(!knows), "{name}");
    }
}

#[test]
fn sglang_follows_a_match_of_more_than_half_unless_loads_differ_too_much() {
    let head = prompt(1, 5);
    let of = |name: &str, extra: u64, loads: [u32; 2]| {
        let mut case = Case::new(name, 2);
        case.sent(0, 1, &head, 0);
        case.set_loads(&loads);
        case.replica(&asked(1, &follow(&head, 2, extra)))
    };
    assert_eq!(of("sglang-local", 4, [0, 32]), 1);
    assert_eq!(of("sglang-local", 4, [0, 33]), 0, "unbalanced");
    assert_eq!(of("sglang-2-local", 4, [0, 64]), 1);
    assert_eq!(of("sglang-2-local", 4, [0, 65]), 0, "unbalanced");
    assert_eq!(of("sglang-2-local", 4, [131, 197]), 0, "unbalanced by 66 and 1.504");
    assert_eq!(of("sglang-2-local", 4, [133, 199]), 1, "66 is less than half of 133");
}

#[test]
fn sglang_sends_a_prompt_without_a_match_to_the_smallest_tree() {
    let mut case = Case::new("sglang-local", 2);
    let first = case.serve(&asked(0, &prompt(1, 9)));
    let second = case.serve(&asked(1, &prompt(2, 5)));
    assert_ne!(first, second);
    // The tree of the second has 5 blocks, then 8 and then 11, the other one 9.
    assert_eq!(case.serve(&asked(2, &prompt(3, 3))), second);
    assert_eq!(case.serve(&asked(3, &prompt(4, 3))), second);
    assert_eq!(case.serve(&asked(4, &prompt(5, 3))), first);
    // A match of four in ten is not enough.
    assert_eq!(case.serve(&asked(5, &follow(&prompt(1, 4), 6, 6))), second);
}

#[test]
fn dynamo_adds_blocks_to_read_and_blocks_in_use() {
    let mut case = Case::new("dynamo-local", 2);
    let head = prompt(1, 6);
    case.sent(0, 0, &follow(&head, 2, 3), 0);
    let request = asked(1, &follow(&head, 3, 2));
    // 2 blocks to read and 11 in use, against 8 and 8.
    assert_eq!(case.replica(&request), 0);
    case.sent(2, 0, &follow(&head, 4, 4), 0);
    // 2 and 15, against 8 and 8.
    assert_eq!(case.replica(&request), 1);
    case.replied(2, (0, 100.0), &follow(&head, 4, 4), 100);
    case.router.left(2);
    assert_eq!(case.replica(&request), 1, "a reply holds its blocks to its end");
    case.ended(2, 0, &follow(&head, 4, 4));
    assert_eq!(case.replica(&request), 0);
    case.replicas[0].pending_tokens = 4 * 64;
    assert_eq!(case.replica(&request), 1, "6 and 11, against 8 and 8");
}

#[test]
fn llm_d_weighs_queue_free_kv_and_match() {
    let mut case = Case::new("llm-d-local", 3);
    case.set_kv_use(&[0.5, 0.4, 0.6]);
    let request = asked(1, &prompt(1, 10));
    assert_eq!(case.replica(&request), 1, "most free KV");
    case.sent(0, 0, &prompt(1, 1), 0);
    assert_eq!(case.replica(&request), 0, "3 x 0.1 of a match for 2 x 0.1 of KV");
    case.set_queued(&[1.0, 0.0, 0.0]);
    assert_eq!(case.replica(&request), 1, "the longest queue, however short");
    case.sent(2, 0, &prompt(1, 9), 0);
    assert_eq!(case.replica(&request), 0, "2.7 for the match against 2 for the queue and 0.2");
}

#[test]
fn preble_follows_what_is_longer_than_the_rest_and_else_the_least_work() {
    let mut case = Case::new("preble-local", 2);
    let long = prompt(1, 40);
    let first = case.serve(&asked(0, &long));
    case.replied(0, (first, 256.0), &long, 300);
    case.ended(0, first, &long);
    let other = 1 - first;
    assert_eq!(case.serve(&asked(1, &follow(&long, 2, 39))), first, "exploited");
    assert_eq!(case.replica(&asked(2, &follow(&long, 3, 41))), other, "explored");
    // Of several that have it, the one with less work: a request decodes for 100 ms.
    case.sent(3, other, &long, 0);
    assert_eq!(case.replica(&asked(4, &follow(&long, 4, 1))), other);
    let mut loads = [0; 2];
    loads[other] = 90;
    case.set_loads(&loads);
    assert_eq!(case.replica(&asked(4, &follow(&long, 4, 1))), first);
    // Three minutes later the past counts no more.
    let later = Asked { at_ms: 200_000, ..asked(5, &prompt(9, 2)) };
    case.set_loads(&[0, 0]);
    let drawn: BTreeSet<_> = (0..40).map(|_| case.replica(&later)).collect();
    assert_eq!(drawn.len(), 2);
}

#[test]
fn preble_copies_a_prefix_from_a_replica_with_half_more_work_than_another() {
    let mut case = Case::new("preble-local", 2);
    let head = prompt(1, 10);
    case.sent(0, 0, &head, 0);
    for at in 1..49 {
        case.sent(at, 1, &prompt(at as u64 + 1, 1), 0);
    }
    case.set_loads(&[10, 1]);
    let request = asked(100, &follow(&head, 500, 1));
    assert_eq!(case.replica(&request), 0, "not yet 50 requests");
    case.sent(49, 1, &prompt(200, 1), 0);
    assert_eq!(case.replica(&request), 1);
    case.set_loads(&[10, 8]);
    assert_eq!(case.replica(&request), 0);
}

#[test]
fn prequal_takes_the_fastest_that_is_not_hot_and_trusts_no_old_latency() {
    let mut case = Case::new("prequal-local", 8);
    let request = |at_ms| Asked { at_ms, ..asked(99, &[]) };
    for replica in 0..8 {
        // Only the replica that sent the reply counts.
        case.replica(&request(1_000));
        case.replied(99, (replica, 100.0 - 10.0 * replica as f64), &[], 1_000);
    }
    assert_eq!(case.replica(&request(2_000)), 7);
    case.set_loads(&[1, 1, 1, 1, 1, 1, 1, 2]);
    assert_eq!(case.replica(&request(2_000)), 6, "the last one is hot");
    case.set_loads(&[0; 8]);
    let drawn: BTreeSet<_> = (0..99).map(|_| case.replica(&request(60_000))).collect();
    assert_eq!(drawn.len(), 8, "all are equal after a minute");
}
