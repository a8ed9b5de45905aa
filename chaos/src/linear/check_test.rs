use super::super::{OperationEnd, Register, RegisterInput, RegisterOutput};
use super::*;

type Op = Operation<&'static str, RegisterInput, RegisterOutput>;

const READ: RegisterInput = RegisterInput::Read;

fn write(value: u64) -> RegisterInput {
    RegisterInput::Write(Some(value))
}

fn set(expected: u64, value: u64) -> RegisterInput {
    RegisterInput::CompareAndSet { expected, value: Some(value) }
}

const WRITTEN: RegisterOutput = RegisterOutput::Written { version: None };

fn written(version: u64) -> RegisterOutput {
    RegisterOutput::Written { version: Some(version) }
}

fn value(value: u64) -> RegisterOutput {
    RegisterOutput::Value { value: Some(value), version: None }
}

const ABSENT: RegisterOutput = RegisterOutput::Value { value: None, version: None };

/// Returns an operation on one key from `call_ns` to `at_ns`.
fn op(client: u32, call_ns: u64, at_ns: u64, input: RegisterInput, output: RegisterOutput) -> Op {
    Operation { client, key: "k", input, call_ns, end: OperationEnd::Returned { at_ns, output } }
}

fn unknown(client: u32, call_ns: u64, input: RegisterInput) -> Op {
    Operation { client, key: "k", input, call_ns, end: OperationEnd::Unknown }
}

fn judge(history: &[Op]) -> SearchVerdict<&'static str, Register> {
    check(&Register, history, SearchLimits::default())
}

fn violation(history: &[Op]) -> Counterexample<&'static str, Register> {
    match judge(history) {
        SearchVerdict::Violation(counterexample) => *counterexample,
        other => panic!("{other:?}"),
    }
}

fn assert_fine(history: &[Op]) {
    let verdict = judge(history);
    assert!(verdict.is_linearizable(), "{verdict:?}");
}

#[test]
fn nothing_and_one_after_another_are_linearizable() {
    assert_fine(&[]);
    assert_fine(&[
        op(1, 0, 1, READ, ABSENT),
        op(1, 2, 3, write(5), WRITTEN),
        op(2, 4, 5, READ, value(5)),
    ]);
}

#[test]
fn a_stale_read_is_found() {
    let stale = [
        op(1, 0, 1, write(1), WRITTEN),
        op(1, 2, 3, write(2), WRITTEN),
        op(2, 4, 5, READ, value(1)),
    ];
    assert_eq!(violation(&stale).culprit, violation(&stale).operations.len() - 1);
    // Concurrent with the second write, the read is no violation.
    let mut concurrent = stale.clone();
    concurrent[2].call_ns = 3;
    assert_fine(&concurrent);
}

#[test]
fn new_then_old_is_found_even_during_the_write() {
    let history = [
        op(1, 0, 1, write(1), WRITTEN),
        op(1, 2, 20, write(2), WRITTEN),
        op(2, 3, 4, READ, value(2)),
        op(3, 5, 6, READ, value(1)),
    ];
    violation(&history);
    let mut other_order = history.clone();
    other_order.swap(2, 3);
    other_order[2].end = OperationEnd::Returned { at_ns: 4, output: value(1) };
    other_order[2].call_ns = 3;
    other_order[3].end = OperationEnd::Returned { at_ns: 6, output: value(2) };
    other_order[3].call_ns = 5;
    assert_fine(&other_order);
}

#[test]
fn a_lost_update_is_found() {
    // Both found version 1, so one of them overwrote the other unseen.
    let lost = [
        op(1, 0, 1, write(1), written(1)),
        op(1, 2, 9, set(1, 2), written(2)),
        op(2, 2, 9, set(1, 3), written(3)),
    ];
    violation(&lost);
    let mut refused = lost.clone();
    refused[2].end = OperationEnd::Returned { at_ns: 9, output: RegisterOutput::Mismatch };
    assert_fine(&refused);
    let acknowledged_and_gone = [op(1, 0, 1, write(1), WRITTEN), op(2, 2, 3, READ, ABSENT)];
    violation(&acknowledged_and_gone);
}

#[test]
fn an_operation_applied_twice_is_found() {
    // A retry of the first write took effect again after the second.
    let twice = [
        op(1, 0, 1, write(1), written(1)),
        op(2, 2, 3, write(2), written(2)),
        op(3, 4, 5, READ, RegisterOutput::Value { value: Some(1), version: Some(3) }),
    ];
    violation(&twice);
    // With an unknown first write: it may take effect once, but not twice.
    let once = [unknown(1, 0, write(1)), twice[1].clone(), op(3, 4, 5, READ, value(1))];
    assert_fine(&once);
    let again = [
        unknown(1, 0, write(1)),
        op(2, 2, 3, READ, value(1)),
        op(2, 4, 5, write(2), WRITTEN),
        op(3, 6, 7, READ, value(1)),
    ];
    violation(&again);
}

#[test]
fn a_read_from_the_future_is_found() {
    violation(&[op(2, 0, 1, READ, value(1)), op(1, 2, 3, write(1), WRITTEN)]);
    violation(&[op(2, 0, 1, READ, value(1)), unknown(1, 2, write(1))]);
    assert_fine(&[op(2, 0, 2, READ, value(1)), op(1, 2, 3, write(1), WRITTEN)]);
}

#[test]
fn an_unknown_write_takes_effect_late_or_never_and_a_failed_one_never() {
    let begin = op(1, 0, 1, write(1), WRITTEN);
    let late = [
        begin.clone(),
        unknown(2, 2, write(2)),
        op(1, 3, 4, READ, value(1)),
        op(1, 1_000, 1_001, READ, value(2)),
    ];
    assert_fine(&late);
    assert_fine(&late[..3]);
    let mut failed = late.clone();
    failed[1].end = OperationEnd::Failed;
    violation(&failed);
    let back = [late.as_slice(), &[op(1, 2_000, 2_001, READ, value(1))]].concat();
    violation(&back);
}

#[test]
fn versions_betray_what_values_hide() {
    let history = [
        op(1, 0, 1, write(1), written(1)),
        op(1, 2, 3, write(1), written(2)),
        op(2, 4, 5, READ, RegisterOutput::Value { value: Some(1), version: Some(1) }),
    ];
    violation(&history);
}

#[test]
fn keys_are_judged_apart() {
    let mut history = vec![op(1, 0, 1, write(1), WRITTEN), op(1, 2, 3, READ, ABSENT)];
    history[1].key = "other";
    assert_fine(&history);
    history[1].key = "k";
    assert_eq!(violation(&history).key, "k");
    // A correct key before it hides nothing.
    history.insert(0, Operation { key: "a", ..op(1, 0, 1, READ, ABSENT) });
    assert_eq!(violation(&history).key, "k");
}

#[test]
fn a_search_without_an_end_is_unknown_and_not_fine() {
    // Writes of different values that all overlap, and a read of none of them.
    let mut history: Vec<Op> = (0..40).map(|n| unknown(n, 0, write(u64::from(n)))).collect();
    history.push(op(99, 1, 2, READ, value(1_000)));
    for limits in [
        SearchLimits { time: Duration::from_millis(20), ..SearchLimits::default() },
        SearchLimits { memory: 1_000, ..SearchLimits::default() },
    ] {
        let verdict = check(&Register, &history, limits);
        assert!(matches!(verdict, SearchVerdict::Unknown { key: "k" }), "{verdict:?}");
    }
    // A violation of another key is stronger than a timeout.
    history.push(Operation { key: "z", ..op(99, 1, 2, READ, value(1)) });
    let limits = SearchLimits { memory: 1_000, ..SearchLimits::default() };
    assert!(matches!(check(&Register, &history, limits), SearchVerdict::Violation(_)));
}

#[test]
fn a_counterexample_is_short_and_readable() {
    let mut history = Vec::new();
    for n in 0..1_000 {
        history.push(op(1, 10 * n, 10 * n + 1, write(n), written(n + 1)));
        history.push(op(2, 10 * n + 2, 10 * n + 3, READ, value(n)));
    }
    history.push(op(3, 10_000, 10_020, write(7), WRITTEN));
    history.push(op(4, 10_003, 10_004, READ, value(999)));
    history.push(op(5, 10_005, 10_006, READ, value(998)));
    history.push(op(6, 10_030, 10_031, READ, value(7)));
    let found = violation(&history);
    let text = found.to_string();
    // The first of the two late reads is settled, too: the write is still in flight.
    assert_eq!(found.settled, 2_001);
    assert_eq!(found.operations.len(), 2, "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("key \"k\""), "{text}");
    assert!(lines[1].contains("after 2001 operations") && lines[1].contains("Some(999)"), "{text}");
    assert!(lines[2].contains("client 3") && lines[2].ends_with("no answer so far"), "{text}");
    assert!(lines[3].contains("client 5") && lines[3].ends_with("<-- this answer"), "{text}");
}

#[test]
fn a_counterexample_keeps_the_read_that_makes_the_contradiction() {
    let history = [
        op(1, 0, 1, write(1), WRITTEN),
        op(2, 2, 20, write(2), WRITTEN),
        op(3, 3, 4, READ, value(2)),
        op(4, 5, 6, READ, value(2)),
        op(5, 7, 8, READ, value(1)),
    ];
    let found = violation(&history);
    let clients: Vec<u32> = found.operations.iter().map(|operation| operation.client).collect();
    assert!(clients == [2, 3, 5] || clients == [2, 4, 5] || clients == [2, 5], "{found}");
    assert_eq!(found.operations[found.culprit].client, 5);
}

#[test]
fn a_counterexample_carries_unknown_writes_over_what_is_settled() {
    let history = [
        unknown(1, 0, write(7)),
        op(2, 1, 2, write(1), WRITTEN),
        op(2, 3, 4, READ, value(1)),
        op(2, 5, 6, READ, value(7)),
        op(2, 7, 8, READ, value(1)),
    ];
    let found = violation(&history);
    assert_eq!(found.culprit, found.operations.len() - 1);
    assert!(found.settled >= 2, "{found}");
    let text = found.to_string();
    assert!(text.lines().last().unwrap().contains("this answer"), "{text}");
}
