//! Crashes at any moment, disks that lie, disks that fail.

mod faulty;

mod crash_test;
mod fail_test;
mod lie_test;
mod promise_test;
