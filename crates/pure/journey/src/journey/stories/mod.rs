//! Stories of single requests: the steps of a journey, and their results.

mod cost_test;
mod hedge_test;
mod model_test;
mod region_test;
mod replica_test;
mod retry_test;
mod tenant_test;
mod wait_test;

use super::test_sight::{Story, TestSight, check};
use crate::{Event, RegionFailure, RetrySafety, StatusClass};
pub(super) use tenant_test::{MUCH, kept_share};

pub(super) const OK: Event = replied(StatusClass::Final);
pub(super) const NO_ROOM: Event = replied(StatusClass::NoRoom);
pub(super) const ERROR: Event = replied(StatusClass::Failed);
pub(super) const UNSENT: Event = failed(RetrySafety::Unsent);
pub(super) const RESET: Event = failed(RetrySafety::Reset);
pub(super) const BROKEN: Event = failed(RetrySafety::Never);
pub(super) const LACKS_MODEL: Event = Event::LacksModel { can_repeat: true };
pub(super) const NOT_CONNECTED: Event = region_failed(RegionFailure::NotConnected);
pub(super) const REFUSED: Event = region_failed(RegionFailure::Refused { wait: None });
pub(super) const RENAMED: Event = Event::StoodIn { is_renamed: true };

pub(super) const fn replied(status: StatusClass) -> Event {
    Event::Replied { status, can_repeat: true }
}

pub(super) const fn failed(safety: RetrySafety) -> Event {
    Event::Failed { safety, is_fault: true, was_kept: false, can_repeat: true, is_death: false }
}

pub(super) const fn region_failed(failure: RegionFailure) -> Event {
    Event::RegionFailed { failure, can_repeat: true }
}

/// Checks a request that begins in these surroundings.
#[track_caller]
pub(super) fn tell(sight: TestSight, steps: &[(&str, Option<Event>)]) -> Story {
    let mut story = Story::of(sight);
    check(&mut story, steps);
    story
}
