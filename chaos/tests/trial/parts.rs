//! Each kind of trial, in short.

use spillway_chaos::trial::{Part, Wan};

use super::check;

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_simultaneous_first_boot_behind_address_translation_forms_one_cluster() {
    check(Part::Boot, Wan::Nat, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_lost_leader_is_replaced() {
    check(Part::Failover, Wan::Uniform, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_bridge_changes_nothing() {
    check(Part::Bridge, Wan::Three, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn without_a_quorum_requests_are_served_and_writes_refused() {
    check(Part::Quorum, Wan::Five, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn what_clients_see_over_kills_and_cuts_is_linearizable() {
    check(Part::Linear, Wan::Three, 5);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_kill_of_all_nodes_loses_nothing_that_was_acknowledged() {
    check(Part::Crash, Wan::Three, 2);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn a_slow_disk_slows_nothing_that_can_do_without_it() {
    check(Part::Slowdisk, Wan::Three, 1);
}

#[test]
#[ignore = "needs root and the processor for itself: cargo xtask chaos"]
fn regions_join_and_leave_while_everything_goes_on() {
    check(Part::Grow, Wan::Five, 2);
}
