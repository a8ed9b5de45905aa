//! Uptime of the machine: a clock that no process and no operator sets.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Moment in the life of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Uptime {
    /// Id of the machine's start; empty where the system does not show it.
    boot: String,
    /// Milliseconds since the start.
    up_ms: u64,
}

impl Uptime {
    /// Returns the present moment. Where the system does not show it, no time seems to pass.
    pub(super) fn now() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::of(&read("/proc/sys/kernel/random/boot_id"), &read("/proc/uptime"))
    }

    /// Returns the moment that the system's files with these contents show.
    pub(super) fn of(boot: &str, uptime: &str) -> Self {
        let up_s = uptime.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
        let up_ms = up_s.map_or(0, |up_s| (up_s * 1_000.0) as u64);
        Self { boot: boot.trim().to_owned(), up_ms }
    }

    /// Returns the least time that has passed since `earlier`.
    pub(super) fn since(&self, earlier: &Self) -> Duration {
        let is_same = self.boot == earlier.boot;
        // After a restart of the machine it is only certain that it has been up for so long since.
        let passed_ms = if is_same { self.up_ms.saturating_sub(earlier.up_ms) } else { self.up_ms };
        Duration::from_millis(passed_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_over_a_start_of_the_machine_too() {
        let before = Uptime::of("one\n", "100.50 7.2\n");
        let since = |boot, uptime| Uptime::of(boot, uptime).since(&before).as_millis();
        assert_eq!(since("one", "130.75 9"), 30_250);
        assert_eq!(since("two", "12.00 9"), 12_000, "longer, but nobody knows by how much");
        assert_eq!(since("one", ""), 0);
        assert!(Uptime::now() != Uptime::default(), "this machine says it");
    }
}
