//! Countries in rules about where data may go.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A country by the two capital letters of its ISO 3166 code. Any two capital letters pass, since
/// codes come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

/// Error for a text that is not two capital letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoCountry(pub String);

impl fmt::Display for NoCountry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no code of a country: two capital letters, as DE or FR", self.0)
    }
}

impl std::error::Error for NoCountry {}

impl Country {
    /// Returns the code.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Cannot fail: the only constructor takes two ASCII letters.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for Country {
    type Err = NoCountry;

    fn from_str(text: &str) -> Result<Self, NoCountry> {
        match text.as_bytes() {
            [first @ b'A'..=b'Z', second @ b'A'..=b'Z'] => Ok(Self([*first, *second])),
            _ => Err(NoCountry(text.to_owned())),
        }
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Country {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Country {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_capital_letters_are_a_country_and_nothing_else_is() {
        let country: Country = "DE".parse().unwrap();
        assert_eq!((country.as_str(), country.to_string()), ("DE", "DE".to_owned()));
        for text in ["", "D", "DEU", "de", "D3", "Ä"] {
            assert!(text.parse::<Country>().is_err(), "{text}");
        }
    }
}
