//! Header of gRPC with the time that a client waits for an answer.

use std::time::Duration;

use http::HeaderName;

/// Header `grpc-timeout`: a number of at most eight digits and a unit.
pub static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Largest number of digits of a value.
const DIGITS_MAX: usize = 8;
/// Largest value with that number of digits.
const VALUE_MAX: u128 = 99_999_999;
/// Units with their nanoseconds, the finest first.
const UNITS: [(u8, u128); 6] = [
    (b'n', 1),
    (b'u', 1_000),
    (b'm', 1_000_000),
    (b'S', 1_000_000_000),
    (b'M', 60_000_000_000),
    (b'H', 3_600_000_000_000),
];

/// Parses a value; `None` if it is malformed.
#[must_use]
pub fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let (_, unit_ns) = UNITS.iter().find(|(letter, _)| letter == unit)?;
    let is_number =
        (1..=DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    let number: u128 = is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok())??;
    Some(Duration::from_nanos_u128(number * unit_ns))
}

/// Formats a duration in the finest unit that has room for it, rounded down: a replica must not get
/// more time than there is. Never returns zero, which some servers take for no limit.
#[must_use]
pub fn format_timeout(duration: Duration) -> String {
    let duration_ns = duration.as_nanos().max(1);
    let mut values = UNITS.iter().map(|(letter, unit_ns)| (duration_ns / unit_ns, *letter));
    let (value, letter) =
        values.find(|(value, _)| *value <= VALUE_MAX).unwrap_or((VALUE_MAX, b'H'));
    format!("{value}{}", char::from(letter))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (value, expected) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("6n", Duration::from_nanos(6)),
            ("0S", Duration::ZERO),
            ("00000007S", Duration::from_secs(7)),
            ("99999999H", Duration::from_secs(99_999_999 * 3600)),
        ] {
            assert_eq!(parse_timeout(value.as_bytes()), Some(expected), "{value}");
        }
    }

    #[test]
    fn anything_else_is_malformed() {
        for value in
            ["", "S", "1", "1s", "1 S", "-1S", "+1S", "1.5S", "100000000S", "1SS", "1S ", "é"]
        {
            assert_eq!(parse_timeout(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn the_finest_unit_with_room_is_written() {
        for (duration, expected) in [
            (Duration::ZERO, "1n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_999), "100000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::from_secs(100_000_000), "1666666M"),
            (Duration::from_secs(u64::MAX), "99999999H"),
        ] {
            assert_eq!(format_timeout(duration), expected, "{duration:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_never_more_and_hardly_less(nanos in 1_u64..) {
            let duration = Duration::from_nanos(nanos);
            let read = parse_timeout(format_timeout(duration).as_bytes()).unwrap();
            prop_assert!(read <= duration && !read.is_zero());
            // The value has at least 100,000 units, or the next finer unit would have had room for
            // it.
            prop_assert!(duration - read <= duration / 99_999);
        }

        #[test]
        fn no_value_makes_it_panic(value: Vec<u8>) {
            let read = parse_timeout(&value);
            prop_assert!(read.is_none() || value.len() <= DIGITS_MAX + 1);
        }
    }
}
