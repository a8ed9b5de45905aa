//! Account of hand-made ledgers.

use LedgerOutcome::{Aborted, Finished, InFlight, Rejected};

use super::{super::ledger::testing::ledger, *};

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn seen(number: u32, from_s: f64, until_s: f64, ending: Ending) -> Observation {
    Observation {
        number,
        due: at(from_s),
        sent: at(from_s),
        first_byte: None,
        ended: at(until_s),
        replica: None,
        ending,
    }
}

fn failure(kind: &str) -> Ending {
    Ending::Failed(Failure { kind: kind.to_owned(), is_begun: false, is_resendable: false })
}

fn resendable(is_begun: bool) -> Ending {
    let kind = "502 replica_reset".to_owned();
    Ending::Failed(Failure { kind, is_begun, is_resendable: true })
}

/// Replica 1 is broken from second 10 to second 20.
const TROUBLES: [Trouble; 1] = [Trouble {
    replica: 1,
    fault: Fault::Hung,
    from: Duration::from_secs(10),
    until: Duration::from_secs(20),
}];

/// Returns the account of request 0, which was on the replicas whose ledgers name it.
fn account_of(observation: Observation, ledgers: &[&[(&str, LedgerOutcome)]]) -> Account {
    let ledgers: Vec<RequestLedger> = ledgers.iter().map(|receipts| ledger(receipts)).collect();
    account(&[observation], &ledgers, &TROUBLES)
}

fn why(observation: Observation, ledgers: &[&[(&str, LedgerOutcome)]]) -> Option<Why> {
    let account = account_of(observation, ledgers);
    assert_eq!(account.excused + account.inexcusable, 1);
    account.listed.first().map(|error| error.why)
}

const ID: &str = "fault-0000000";

#[test]
fn every_request_is_one_of_complete_lost_and_failed() {
    let observations = [
        seen(0, 1.0, 1.1, Ending::Complete),
        seen(1, 1.0, 11.0, Ending::Lost(Loss::TooLate)),
        seen(2, 1.0, 1.2, Ending::Lost(Loss::NoReply)),
        seen(3, 12.0, 12.2, failure("500 from the replica")),
        seen(4, 12.0, 12.2, failure("500 from the replica")),
    ];
    let broken = [("fault-0000003", Rejected), ("fault-0000004", Rejected)];
    let account = account(&observations, &[ledger(&[]), ledger(&broken)], &TROUBLES);
    assert_eq!((account.sent, account.complete), (5, 1));
    assert_eq!((account.lost, account.late), (2, 1));
    assert_eq!((account.excused, account.inexcusable, account.failed()), (2, 0, 4));
    assert_eq!(account.errors["500 from the replica"], 2);
    assert_eq!(account.errors.values().sum::<usize>(), account.failed());
}

#[test]
fn doubled_is_finished_twice_wherever() {
    let complete = || seen(0, 1.0, 2.0, Ending::Complete);
    let doubled = |ledgers: &[&[(&str, LedgerOutcome)]]| account_of(complete(), ledgers).doubled;
    assert_eq!(doubled(&[&[(ID, Finished)], &[(ID, Finished)]]), 1);
    assert_eq!(doubled(&[&[(ID, Finished), (ID, Finished)], &[]]), 1);
    assert_eq!(doubled(&[&[(ID, Finished)], &[(ID, Finished)], &[(ID, Finished)]]), 1);
    // A retry after the first replica broke off.
    assert_eq!(doubled(&[&[(ID, Aborted)], &[(ID, Finished)]]), 0);
    assert_eq!(doubled(&[&[(ID, InFlight)], &[(ID, Rejected)], &[(ID, Finished)]]), 0);
    // Requests outside the plan do not count, nor do other requests.
    assert_eq!(doubled(&[&[("trial", Finished)], &[("trial", Finished), (ID, Finished)]]), 0);
    assert_eq!(doubled(&[&[(ID, Finished)], &[("fault-0000001", Finished)]]), 0);
}

#[test]
fn an_error_is_excused_while_its_replica_is_broken_and_at_no_other_time() {
    let on_broken = |from, until| {
        why(seen(0, from, until, failure("504 first_byte_timeout")), &[&[], &[(ID, Aborted)]])
    };
    assert_eq!(on_broken(12.0, 13.0), None);
    // In flight when the replica broke, and sent before it was healed.
    assert_eq!(on_broken(9.0, 10.5), None);
    assert_eq!(on_broken(19.9, 24.0), None);
    assert_eq!(on_broken(8.0, 9.9), Some(Why::ReplicaHealthy));
    assert_eq!(on_broken(20.1, 24.0), Some(Why::ReplicaHealthy));
}

#[test]
fn a_healthy_replica_is_no_excuse_while_another_is_broken() {
    let error = seen(0, 12.0, 13.0, failure("504 first_byte_timeout"));
    assert_eq!(why(error, &[&[(ID, Aborted)], &[]]), Some(Why::ReplicaHealthy));
}

#[test]
fn a_request_that_nobody_received_could_have_gone_elsewhere() {
    let error = seen(0, 12.0, 13.0, failure("502 replica_connect"));
    assert_eq!(why(error, &[&[], &[]]), Some(Why::NeverReceived));
}

#[test]
fn a_break_before_the_first_byte_must_be_sent_again() {
    let on_broken: &[&[(&str, LedgerOutcome)]] = &[&[], &[(ID, Aborted)]];
    assert_eq!(why(seen(0, 12.0, 13.0, resendable(false)), on_broken), Some(Why::Resendable));
    assert_eq!(why(seen(0, 12.0, 13.0, resendable(true)), on_broken), None);
}

#[test]
fn the_reply_s_own_word_about_its_replica_counts_before_the_ledgers() {
    let receipts: &[&[(&str, LedgerOutcome)]] = &[&[(ID, Rejected)], &[(ID, Aborted)]];
    let mut error = seen(0, 12.0, 13.0, failure("500 from the replica"));
    // Sent again from the broken replica 1 to the healthy replica 0, which failed.
    error.replica = Some(0);
    assert_eq!(why(error.clone(), receipts), Some(Why::ReplicaHealthy));
    error.replica = Some(1);
    assert_eq!(why(error, receipts), None);
}

#[test]
fn all_inexcusable_errors_count_though_only_some_are_listed() {
    let observations: Vec<Observation> =
        (0..50).map(|number| seen(number, 1.0, 2.0, failure("503 no_replica"))).collect();
    let account = account(&observations, &[ledger(&[])], &[]);
    assert_eq!((account.inexcusable, account.listed.len()), (50, LISTED_MAX));
}

#[test]
fn every_error_has_a_place() {
    let observations = [
        seen(0, 12.0, 13.0, failure("500 from the replica")),
        seen(1, 12.0, 13.0, failure("500 from the replica")),
        seen(2, 25.0, 26.0, failure("500 from the replica")),
        seen(3, 25.0, 26.0, Ending::Lost(Loss::NoReply)),
        seen(4, 25.0, 26.0, Ending::Complete),
    ];
    let receipts = [0, 1, 2, 4].map(|number| (plan::id(number), Rejected));
    let receipts = receipts.each_ref().map(|(id, outcome)| (id.as_str(), *outcome));
    let account = account(&observations, &[ledger(&[]), ledger(&receipts)], &TROUBLES);
    let place = |replica, is_broken: bool, error: &str, count| ReplicaErrors {
        replica,
        fault: is_broken.then_some(Fault::Hung),
        since_s: is_broken.then_some(10.0),
        error: error.to_owned(),
        count,
    };
    let expected = [
        place(None, false, "lost: closed without a reply", 1),
        place(Some(1), false, "500 from the replica", 1),
        place(Some(1), true, "500 from the replica", 2),
    ];
    assert_eq!(account.places, expected);
}
