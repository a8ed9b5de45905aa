//! Days and months of UTC.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// Day of UTC, written as `2026-11-27`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

impl Day {
    /// First day that there is.
    pub const MIN: Self = Self(0);
    /// Last day that there is: a later one would need a fifth digit of the year.
    pub const MAX: Self = Self(2_932_896);

    /// Returns the day of a moment, given as milliseconds since 1970.
    #[must_use]
    pub fn of_ms(unix_ms: u64) -> Self {
        u32::try_from(unix_ms / DAY_MS).map_or(Self::MAX, |days| Self(days.min(Self::MAX.0)))
    }

    /// Returns the day that is so many days earlier, or the first that there is.
    #[must_use]
    pub fn before(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }

    /// Returns the day after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self((self.0 + 1).min(Self::MAX.0))
    }

    /// Returns the beginning of the day, in milliseconds since 1970.
    #[must_use]
    pub fn starts_ms(self) -> u64 {
        u64::from(self.0) * DAY_MS
    }

    /// Returns the first day of the month.
    #[must_use]
    pub fn month(self) -> Self {
        let (.., day) = self.civil();
        self.before(day - 1)
    }

    /// Returns the first day of the next month.
    #[must_use]
    pub fn next_month(self) -> Self {
        // No month has more than 31 days, and none has fewer than 28.
        Self(self.month().0 + 31).month()
    }

    /// Returns year, month and day, each counted as people do.
    fn civil(self) -> (u32, u32, u32) {
        // Days since 0000-03-01: the leap day is the last one of such a year.
        let days = self.0 + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        // Five months have 153 days, from March on.
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (era * 400 + year + u32::from(month <= 2), month, day)
    }

    /// Returns the day of a date; `None` if there is no such date, or it is before 1970.
    fn of_civil(year: u32, month: u32, day: u32) -> Option<Self> {
        if !(1_970..=9_999).contains(&year) || !(1..=12).contains(&month) {
            return None;
        }
        let (from_march, month_of) =
            if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let (era, of_era) = (from_march / 400, from_march % 400);
        let of_year = (153 * month_of + 2) / 5 + day.checked_sub(1)?;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        let found = Self(days.checked_sub(719_468)?);
        // A day that the month does not have is one of the next month.
        (found.civil() == (year, month, day)).then_some(found)
    }
}

impl Display for Day {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl FromStr for Day {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = "a day is written as 2026-11-27";
        let mut parts = text.split('-').zip([4, 2, 2]);
        let mut part = || {
            let (digits, length) = parts.next()?;
            let is_number = digits.len() == length && digits.bytes().all(|it| it.is_ascii_digit());
            is_number.then(|| digits.parse().ok()).flatten()
        };
        let (Some(year), Some(month), Some(day)) = (part(), part(), part()) else {
            return Err(error);
        };
        if text.len() != 10 {
            return Err(error);
        }
        Self::of_civil(year, month, day).ok_or("there is no such day")
    }
}

impl Serialize for Day {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Day {
        text.parse().unwrap()
    }

    #[test]
    fn every_day_is_read_as_it_is_shown_and_follows_the_one_before() {
        let mut before = None;
        for number in 0..=60_000 {
            let found = Day(number);
            let (year, month, date) = found.civil();
            assert_eq!(day(&found.to_string()), found);
            if let Some((last_year, last_month, last_date)) = before {
                let is_next = (year, month) == (last_year, last_month) && date == last_date + 1
                    || date == 1 && (month == last_month + 1 || month == 1 && last_month == 12);
                assert!(is_next, "{found}");
            }
            before = Some((year, month, date));
        }
        assert_eq!(Day::MAX.to_string(), "9999-12-31");
        assert_eq!(Day::MAX.next(), Day::MAX);
    }

    #[test]
    fn dates_that_everybody_knows() {
        assert_eq!(day("1970-01-01"), Day(0));
        assert_eq!(Day::of_ms(1_000_000_000_000), day("2001-09-09"));
        assert_eq!(Day::of_ms(day("2026-11-27").starts_ms()), day("2026-11-27"));
        assert_eq!(Day::of_ms(day("2026-11-28").starts_ms() - 1), day("2026-11-27"));
        assert_eq!(day("2024-02-28").next(), day("2024-02-29"));
        assert_eq!(day("2100-02-28").next(), day("2100-03-01"));
    }

    #[test]
    fn months_begin_with_their_first_day() {
        for (of, month, next) in [
            ("2026-11-27", "2026-11-01", "2026-12-01"),
            ("2026-12-31", "2026-12-01", "2027-01-01"),
            ("2028-02-29", "2028-02-01", "2028-03-01"),
            ("2026-01-01", "2026-01-01", "2026-02-01"),
        ] {
            assert_eq!((day(of).month(), day(of).next_month()), (day(month), day(next)), "{of}");
        }
    }

    #[test]
    fn what_is_no_day_is_refused() {
        for text in [
            "",
            "2026",
            "2026-11",
            "2026-11-31",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-00",
            "26-01-01",
            "2026-1-1",
            "2026-01-01x",
            "1969-12-31",
            "2026-01-01-01",
        ] {
            assert!(text.parse::<Day>().is_err(), "{text}");
        }
    }
}
