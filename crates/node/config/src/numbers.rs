//! Units of numbers, which keys end with.

/// Endings of keys, and the unit that each means.
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

/// Units that people write after numbers, by the unit of a key, with their size in it.
const WRITTEN: [(&str, &[(&str, u64)]); 3] = [
    (
        "ms",
        &[
            ("ms", 1),
            ("s", 1_000),
            ("sec", 1_000),
            ("m", 60_000),
            ("min", 60_000),
            ("h", 3_600_000),
            ("d", 86_400_000),
        ],
    ),
    ("s", &[("s", 1), ("sec", 1), ("m", 60), ("min", 60), ("h", 3_600), ("d", 86_400)]),
    (
        "bytes",
        &[
            ("b", 1),
            ("kb", 1_000),
            ("mb", 1_000_000),
            ("gb", 1_000_000_000),
            ("k", 1 << 10),
            ("kib", 1 << 10),
            ("m", 1 << 20),
            ("mib", 1 << 20),
            ("g", 1 << 30),
            ("gib", 1 << 30),
        ],
    ),
];
/// Units of all other numbers, such as tokens.
const COUNTED: &[(&str, u64)] = &[
    ("k", 1_000),
    ("m", 1_000_000),
    ("mio", 1_000_000),
    ("g", 1_000_000_000),
    ("b", 1_000_000_000),
];

/// Returns a number that was written with a unit, such as `30s` or `600k`, in the unit of its key and
/// as TOML has it: `30_000`. None if it is no such number, or none in whole units.
pub(crate) fn plain_number(text: &str, unit: Option<&str>) -> Option<String> {
    let text = text.trim();
    let at =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != '_')?;
    let (number, written) = text.split_at(at);
    let number: f64 = number.replace('_', "").parse().ok()?;
    let written = written.trim().to_ascii_lowercase();
    let known =
        WRITTEN.iter().find(|(key, _)| Some(*key) == unit).map_or(COUNTED, |(_, known)| known);
    let (_, each) = known.iter().find(|(name, _)| *name == written)?;
    let number = number * *each as f64;
    // Above that a float is no longer exact.
    let is_whole = number.fract() == 0.0 && number < (1_u64 << 53) as f64;
    is_whole.then(|| grouped(number as u64))
}

/// Formats a number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|group| std::str::from_utf8(group).ok())
        .collect();
    groups.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_with_a_unit_is_that_many_of_the_keys_unit() {
        for (text, unit, plain) in [
            ("30s", Some("ms"), Some("30_000")),
            ("1.5 s", Some("ms"), Some("1_500")),
            ("2min", Some("s"), Some("120")),
            ("32MiB", Some("bytes"), Some("33_554_432")),
            ("64k", Some("bytes"), Some("65_536")),
            ("600k", Some("per minute"), Some("600_000")),
            ("1.2M", None, Some("1_200_000")),
            ("0.5ms", Some("ms"), None),
            ("30s", None, None),
            ("fast", Some("ms"), None),
            ("30", Some("ms"), None),
        ] {
            assert_eq!(plain_number(text, unit).as_deref(), plain, "{text}");
        }
    }
}
