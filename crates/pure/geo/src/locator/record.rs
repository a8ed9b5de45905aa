//! Records of location databases: only the few fields that are used, all of them optional.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use spillway_types::Country;

/// Record of a database of cities or countries.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct CityRecord<'a> {
    #[serde(borrow)]
    pub(super) country: InCountry<'a>,
    pub(super) location: Location,
}

/// Record of a database of cities or countries, reduced to the country.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct CountryRecord<'a> {
    #[serde(borrow)]
    pub(super) country: InCountry<'a>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct InCountry<'a> {
    iso_code: Option<&'a str>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Location {
    pub(super) latitude: RecordNumber,
    pub(super) longitude: RecordNumber,
}

/// Record of a database of autonomous systems.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct AsnRecord {
    pub(super) autonomous_system_number: RecordNumber,
}

/// Number of any type and width; `None` for a value that is no number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecordNumber(pub(super) Option<f64>);

impl InCountry<'_> {
    pub(super) fn code(&self) -> Option<Country> {
        self.iso_code?.parse().ok()
    }
}

impl AsnRecord {
    pub(super) fn asn(&self) -> Option<u32> {
        let number = self.autonomous_system_number.0?;
        // Every u32 is exact in an f64, so a number that is no u32 differs after the round trip.
        let asn = number as u32;
        (f64::from(asn) == number).then_some(asn)
    }
}

impl<'de> Deserialize<'de> for RecordNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = RecordNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_f64<E>(self, value: f64) -> Result<RecordNumber, E> {
        Ok(RecordNumber(Some(value)))
    }

    fn visit_f32<E>(self, value: f32) -> Result<RecordNumber, E> {
        Ok(RecordNumber(Some(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RecordNumber, E> {
        Ok(RecordNumber(Some(value as f64)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RecordNumber, E> {
        Ok(RecordNumber(Some(value as f64)))
    }

    // A text is no number, but must not spoil the rest of the record.
    fn visit_str<E>(self, _: &str) -> Result<RecordNumber, E> {
        Ok(RecordNumber(None))
    }
}
