//! Each kind of trial, in short.

use spillway_chaos::plan::Wan;
use spillway_chaos::trial::TrialPart;

use super::check;

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_simultaneous_first_boot_behind_address_translation_forms_one_cluster() {
    check(TrialPart::Boot, Wan::Nat, 1);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_lost_leader_is_replaced() {
    check(TrialPart::Failover, Wan::Uniform, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_bridge_changes_nothing() {
    check(TrialPart::Bridge, Wan::Three, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn without_a_quorum_requests_are_served_and_writes_refused() {
    check(TrialPart::Quorum, Wan::Five, 1);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn what_clients_see_over_kills_and_cuts_is_linearizable() {
    check(TrialPart::Linear, Wan::Three, 5);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_kill_of_all_nodes_loses_nothing_that_was_acknowledged() {
    check(TrialPart::Crash, Wan::Three, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_slow_disk_slows_nothing_that_can_do_without_it() {
    check(TrialPart::Slowdisk, Wan::Three, 1);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn regions_join_and_leave_while_everything_goes_on() {
    check(TrialPart::Grow, Wan::Five, 1);
}
