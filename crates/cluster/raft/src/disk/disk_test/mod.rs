//! Crashes at any moment, disks that lie, disks that fail, disks that are slow.

mod faulty;
mod faulty_files;
mod machine;
pub(crate) mod slow;

mod crash_test;
mod fail_test;
mod lie_test;
mod promise_test;
mod snapshot_test;
