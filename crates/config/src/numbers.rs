//! Units of numbers, which keys end with, and what a number that may not be zero is told by.

/// Error of a number that may not be zero.
pub(crate) const AT_LEAST_ONE: &str = "must be at least 1";

/// Endings of keys, and the unit that each stands for.
const UNITS: [(&str, &str); 11] = [
    ("_permille_min", "‰"),
    ("_permille", "‰"),
    ("_percent", "%"),
    ("_percent_max", "%"),
    ("_ms", "ms"),
    ("_per_s", "per second"),
    ("_per_min", "per minute"),
    ("_s", "s"),
    ("_bytes", "bytes"),
    ("bytes_max", "bytes"),
    ("bytes_total_max", "bytes"),
];

/// Returns the unit of a number, which its key ends with.
pub(crate) fn unit_of(key: &str) -> Option<&'static str> {
    UNITS.iter().find(|(ending, _)| key.ends_with(ending)).map(|(_, unit)| *unit)
}
