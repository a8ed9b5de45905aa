//! Faults of cells, each from the third minute to the fourth.

use crate::{Fault, FaultKind};

/// Seconds after which the clients of a region that is gone ask another one: the time to live of
/// the DNS records, and of what notices.
const MOVED_AFTER_S: f64 = 20.0;

const fn fault(kind: FaultKind) -> Fault {
    Fault { begin_s: 120.0, end_s: 180.0, kind }
}

pub(super) const CUT: &[Fault] =
    &[fault(FaultKind::Cut { a: 0, b: 1 }), fault(FaultKind::Cut { a: 0, b: 2 })];

pub(super) const ONE_WAY: &[Fault] = &[fault(FaultKind::OneWay { from: 0, to: 1 })];

pub(super) const SLOW_PATHS: &[Fault] = &[
    fault(FaultKind::Slow { a: 0, b: 1, factor: 10.0 }),
    fault(FaultKind::Slow { a: 0, b: 2, factor: 10.0 }),
    fault(FaultKind::Slow { a: 1, b: 2, factor: 10.0 }),
];

pub(super) const LOST_REPLICA: &[Fault] = &[fault(FaultKind::ReplicaLost { replica: 0 })];

pub(super) const LOST_REGION: &[Fault] =
    &[fault(FaultKind::RegionLost { region: 0, moved_after_s: MOVED_AFTER_S })];

/// The first replica of each region of four.
pub(super) const LIARS: &[Fault] = &[
    fault(FaultKind::Lying { replica: 0 }),
    fault(FaultKind::Lying { replica: 4 }),
    fault(FaultKind::Lying { replica: 8 }),
];
