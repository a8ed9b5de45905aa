//! Description of a run and its machine, for pages of results.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use spillway_harness::{core_count, processor_model};

/// Origin of a page of results.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Origin {
    /// Command line.
    pub(crate) command: String,
    /// Settings in environment variables, which override the gateway's config.
    pub(crate) overrides: Vec<String>,
    /// Date of the run, as year, month and day.
    pub(crate) date: String,
    /// Processor, cores and kernel.
    pub(crate) machine: String,
    /// Version that the binary prints.
    pub(crate) version: String,
}

impl Origin {
    /// Returns the origin of results made now, on this machine.
    pub(crate) fn here(spillway: &Path) -> Self {
        let days =
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
        let (year, month, day) = civil_date(days);
        // These override the config file, so results cannot be repeated without them.
        let overrides = std::env::vars().filter(|(name, _)| name.starts_with("SPILLWAY__"));
        Self {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            overrides: overrides.map(|(name, value)| format!("{name}={value}")).collect(),
            date: format!("{year:04}-{month:02}-{day:02}"),
            machine: machine(),
            version: version(spillway),
        }
    }
}

fn machine() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The rest of the release names the build of the kernel, which does not matter for speed.
    let version: Vec<&str> = release.trim().split('.').take(2).collect();
    format!("{} cores, {}, Linux {}", core_count(), processor_model(), version.join("."))
}

fn version(spillway: &Path) -> String {
    let output = Command::new(spillway).arg("--version").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Returns year, month and day (Gregorian calendar) of a number of days since 1 January 1970.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400)
    };
    let (mut year, mut left) = (1970, days);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(58), (1970, 2, 28));
        assert_eq!(civil_date(59), (1970, 3, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(20_454), (2026, 1, 1));
        assert_eq!(civil_date(20_818), (2026, 12, 31));
    }
}
