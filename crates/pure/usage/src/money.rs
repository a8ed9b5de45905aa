//! Amounts of money, added without error.

use std::fmt::{self, Display, Formatter};
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Parts of a unit of the currency: a token at a millionth of a price of a millionth is still one.
const PARTS: u128 = 1_000_000_000_000;
/// Digits behind the point that an amount can have.
const DIGITS: usize = 12;

/// Amount of money in a currency that the operator knows, exact to 12 digits behind the point.
///
/// In JSON it is a string, since a reader would take a number for a floating point one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Money(u128);

/// A text is no amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoneyError {
    /// The text is no decimal number from 0 on.
    NoNumber,
    /// The number has more digits behind the point than are kept.
    Digits,
    /// The number is larger than any amount.
    TooLarge,
}

impl Money {
    /// No money.
    pub const ZERO: Self = Self(0);

    /// Makes an amount of 10⁻¹² parts of a unit.
    #[must_use]
    pub const fn of_parts(parts: u128) -> Self {
        Self(parts)
    }

    /// Makes an amount of millionths of a unit.
    #[must_use]
    pub const fn of_millionths(millionths: u64) -> Self {
        Self(millionths as u128 * (PARTS / 1_000_000))
    }

    /// Makes an amount of a number as it was written. The shortest text of a floating point number
    /// is the one that was written, as long as that had at most 15 digits.
    ///
    /// # Errors
    /// Returns an error if the number is no amount.
    pub fn of_number(number: f64) -> Result<Self, MoneyError> {
        number.to_string().parse()
    }

    /// Returns the 10⁻¹² parts of a unit.
    #[must_use]
    pub const fn parts(self) -> u128 {
        self.0
    }

    /// Returns the millionths of a unit; `None` if there is a fraction of one, or too many.
    #[must_use]
    pub fn millionths(self) -> Option<u64> {
        let part = PARTS / 1_000_000;
        self.0.is_multiple_of(part).then(|| u64::try_from(self.0 / part).ok()).flatten()
    }

    /// Returns the amount as the nearest floating point number, for metrics alone.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / PARTS as f64
    }

    /// Returns true for no money.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Money {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

impl FromStr for Money {
    type Err = MoneyError;

    fn from_str(text: &str) -> Result<Self, MoneyError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return Err(MoneyError::NoNumber);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > DIGITS {
            return Err(MoneyError::Digits);
        }
        let number = |digits: String| digits.parse::<u128>().map_err(|_| MoneyError::TooLarge);
        let parts = number(format!("{fraction:0<DIGITS$}"))?;
        let whole = number(whole.to_owned())?.checked_mul(PARTS).ok_or(MoneyError::TooLarge)?;
        whole.checked_add(parts).map(Self).ok_or(MoneyError::TooLarge)
    }
}

impl Display for Money {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (whole, parts) = (self.0 / PARTS, self.0 % PARTS);
        let fraction = format!("{parts:0DIGITS$}");
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            fraction => write!(f, "{whole}.{fraction}"),
        }
    }
}

impl Display for MoneyError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "an amount is a decimal number from 0 on",
            Self::Digits => "an amount has 12 digits behind the point at most",
            Self::TooLarge => "the amount is too large",
        })
    }
}

impl std::error::Error for MoneyError {}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Money {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNumber)
    }
}

/// Reads an amount from a text or a number.
struct AnyNumber;

impl Visitor<'_> for AnyNumber {
    type Value = Money;

    fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("an amount of money such as 0.15")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Money, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Money, E> {
        Money::of_number(number).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Money, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Money, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn money(text: &str) -> Money {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_written_is_read_to_the_last_digit() {
        for text in ["0", "1", "0.15", "2.5", "0.000000000001", "12345678901234567890.25"] {
            assert_eq!(money(text).to_string(), text);
        }
        assert_eq!(money("007.500"), money("7.5"));
        assert_eq!(money("0.1") + money("0.2"), money("0.3"), "no floating point");
        assert_eq!([money("0.7"), money("0.1")].into_iter().sum::<Money>(), money("0.8"));
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for (text, error) in [
            ("", MoneyError::NoNumber),
            ("-1", MoneyError::NoNumber),
            ("1e3", MoneyError::NoNumber),
            (".5", MoneyError::NoNumber),
            ("1.", MoneyError::NoNumber),
            ("inf", MoneyError::NoNumber),
            ("0.0000000000001", MoneyError::Digits),
            ("999999999999999999999999999999", MoneyError::TooLarge),
        ] {
            assert_eq!(text.parse::<Money>(), Err(error), "{text}");
        }
    }

    #[test]
    fn numbers_of_json_are_read_as_they_are_written() {
        for (json, text) in
            [("0.15", "0.15"), ("\"0.15\"", "0.15"), ("3", "3"), ("0.0375", "0.0375")]
        {
            assert_eq!(serde_json::from_str::<Money>(json).unwrap(), money(text));
        }
        for json in ["-0.5", "-1", "null", "1e30"] {
            assert!(serde_json::from_str::<Money>(json).is_err(), "{json}");
        }
        assert_eq!(serde_json::to_string(&money("0.15")).unwrap(), "\"0.15\"");
    }

    #[test]
    fn millionths_are_only_those_without_a_rest() {
        assert_eq!(money("2.5").millionths(), Some(2_500_000));
        assert_eq!(money("0.0000001").millionths(), None);
        assert_eq!(Money::of_millionths(7), money("0.000007"));
    }

    proptest! {
        #[test]
        fn any_amount_is_read_as_it_is_shown(parts in any::<u128>()) {
            let amount = Money::of_parts(parts);
            prop_assert_eq!(amount.to_string().parse(), Ok(amount));
        }
    }
}
