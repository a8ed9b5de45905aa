//! Parts of a whole, as operators write them.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A percentage with one decimal at most, e.g. 40 or 12.5, from 0 to 1,000.
///
/// Kept in tenths of a percent, so that comparing and adding need no rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent {
    permille: u16,
}

impl Percent {
    /// All of it: 100 %.
    pub const ALL: Self = Self { permille: 1_000 };
    /// The highest percentage that can be written: 1,000 %.
    pub const MAX: Self = Self { permille: 10_000 };

    /// Makes a percentage of thousandths; more than [`Self::MAX`] counts as that.
    #[must_use]
    pub fn of_permille(permille: u16) -> Self {
        Self { permille: permille.min(Self::MAX.permille) }
    }

    /// Returns the percentage in thousandths of the whole.
    #[must_use]
    pub fn permille(self) -> u16 {
        self.permille
    }
}

impl TryFrom<f64> for Percent {
    type Error = NoPercent;

    fn try_from(percent: f64) -> Result<Self, NoPercent> {
        let tenths = (percent * 10.0).round();
        // A decimal fraction such as 1.1 is not exact in binary: times ten may miss a whole number
        // a little.
        let is_one_decimal = (percent * 10.0 - tenths).abs() < 1e-6;
        let is_in_range = (0.0..=f64::from(Self::MAX.permille)).contains(&tenths);
        match is_one_decimal && is_in_range {
            true => Ok(Self { permille: tenths as u16 }),
            false => Err(NoPercent),
        }
    }
}

/// Reads `40` and `12.5`, with or without a percent sign.
impl FromStr for Percent {
    type Err = NoPercent;

    fn from_str(text: &str) -> Result<Self, NoPercent> {
        // People also write a space before the sign, as in `40 %`.
        let number = text.strip_suffix('%').unwrap_or(text).trim_end();
        // `parse` alone would also take a sign, an exponent and `inf`.
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        number.parse::<f64>().ok().filter(|_| is_number).ok_or(NoPercent)?.try_into()
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.permille / 10, self.permille % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, tenth) => write!(f, "{whole}.{tenth}"),
        }
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.permille % 10 {
            // A whole number is written as people write it: 40, not 40.0.
            0 => serializer.serialize_u16(self.permille / 10),
            _ => serializer.serialize_f64(f64::from(self.permille) / 10.0),
        }
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Percent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a percentage, e.g. 40 or 12.5")
            }

            fn visit_f64<E: de::Error>(self, percent: f64) -> Result<Percent, E> {
                percent.try_into().map_err(E::custom)
            }

            // TOML and JSON distinguish whole numbers from fractions, so both have to be taken.
            fn visit_u64<E: de::Error>(self, percent: u64) -> Result<Percent, E> {
                self.visit_f64(percent as f64)
            }

            fn visit_i64<E: de::Error>(self, percent: i64) -> Result<Percent, E> {
                self.visit_f64(percent as f64)
            }
        }

        deserializer.deserialize_any(Number)
    }
}

/// Error for a number that is not a percentage from 0 to 1,000 with one decimal at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPercent;

impl fmt::Display for NoPercent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a percentage is a number from 0 to {} with one decimal at most", Percent::MAX)
    }
}

impl std::error::Error for NoPercent {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_read_and_written_as_people_write_them() {
        for (text, permille) in
            [("0", 0), ("40", 400), ("12.5", 125), ("0.1", 1), ("100%", 1_000), ("1000 %", 10_000)]
        {
            let percent: Percent = text.parse().expect(text);
            assert_eq!(percent, Percent::of_permille(permille), "{text}");
            assert_eq!(percent.to_string(), text.trim_end_matches(['%', ' ']));
        }
        for wrong in ["", "%", "-1", "12.55", "1000.1", "NaN", "inf", "half", "1e2", "+5", "."] {
            assert_eq!(wrong.parse::<Percent>(), Err(NoPercent), "{wrong}");
        }
    }

    #[test]
    fn every_tenth_is_the_same_after_it_was_written_down() {
        for permille in 0..=10_000 {
            let percent = Percent::of_permille(permille);
            assert_eq!(Percent::try_from(f64::from(permille) / 10.0), Ok(percent));
            assert_eq!(percent.to_string().parse(), Ok(percent));
        }
        assert_eq!(Percent::of_permille(u16::MAX), Percent::MAX);
    }
}
