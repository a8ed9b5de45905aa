//! Amounts of money in records, as config files have them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use spillway_usage::Money;

/// Amount of money: a number from 0 on with at most six digits after the point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) millionths: u64,
}

/// Millionths of a unit.
const UNIT: u64 = 1_000_000;

impl Amount {
    pub(crate) fn of_millionths(millionths: u64) -> Self {
        Self { millionths }
    }
}

impl Serialize for Amount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.millionths % UNIT {
            0 => serializer.serialize_u64(self.millionths / UNIT),
            // The nearest number has the digits that were given, as long as there are 15 at most.
            _ => serializer.serialize_f64(self.millionths as f64 / UNIT as f64),
        }
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        let millionths = Money::of_number(number).ok().and_then(Money::millionths);
        millionths.map(Self::of_millionths).ok_or_else(|| {
            let remedy = "give a number from 0 on, with at most six digits behind the point";
            D::Error::custom(format!("{number} is no amount of money: {remedy}"))
        })
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_written_as_it_was_given() {
        for text in ["0", "10", "99.5", "0.00025", "1e-6", "123456.789012"] {
            let amount: Amount = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&amount).unwrap(), text);
        }
        for wrong in ["-1", "0.0000001", "1e30", "\"5\""] {
            assert!(serde_json::from_str::<Amount>(wrong).is_err(), "{wrong}");
        }
    }
}
