//! Durations in words.

use std::time::Duration;

/// Returns a time in the largest unit of which it has two or more.
pub(super) fn duration(ms: u64) -> String {
    let duration = Duration::from_millis(ms);
    let s = duration.as_secs();
    match s {
        172_800.. => format!("{} d", s / 86_400),
        7_200.. => format!("{} h", s / 3_600),
        120.. => format!("{} min", s / 60),
        _ => format!("{s} s"),
    }
}
