//! Declaration of settings: one line has a setting's key, type, default, bounds and meaning, for the
//! parser, the schema, the reference page and the code that uses the setting.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Declares a table of the config file as the type that the code works with, so that a setting exists
/// in one place: its key is the field's name, which a search finds wherever the setting is used.
///
/// Each field has its default beside it. Its doc comment is the description in the schema; bounds are
/// `#[schemars(range(min = 1, max = 9))]`, which the reading of a file enforces. A field that is not
/// a setting, but a constant that tests may change, has `#[serde(skip)]`.
#[macro_export]
macro_rules! settings {
    (
        $(#[$outer:meta])*
        $visible:vis struct $name:ident {
            $($(#[$attribute:meta])* $key:ident: $type:ty = $default:expr,)+
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        $visible struct $name {
            $($(#[$attribute])* $visible $key: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)+ }
            }
        }
    };
}

/// Longest time that a setting can mean: a year. A longer one has no other effect, and sums of times
/// stay representable.
const MILLIS_MAX: u64 = 365 * 86_400_000;

/// Time of a setting whose key ends with `_ms`, in whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// Returns the time, a year at most.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0.min(MILLIS_MAX))
    }
}

/// The schema is that of a number, so that bounds can be added to it.
impl JsonSchema for Millis {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        u64::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        u64::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    settings! {
        /// A table.
        #[derive(PartialEq)]
        pub(crate) struct Table {
            /// Pause in ms.
            #[schemars(range(min = 1))]
            pause_ms: Millis = Millis(1_500),
            #[serde(skip)]
            steps: u8 = 3,
        }
    }

    #[test]
    fn a_declaration_is_parser_default_and_schema() {
        let given: Table = serde_json::from_str("{\"pause_ms\": 7}").unwrap();
        assert_eq!(given, Table { pause_ms: Millis(7), steps: 3 });
        assert_eq!(Table::default().pause_ms.duration(), Duration::from_millis(1_500));
        assert!(serde_json::from_str::<Table>("{\"steps\": 7}").is_err());
        let schema = schemars::schema_for!(Table).to_value();
        let pause = &schema["properties"]["pause_ms"];
        assert_eq!(
            (&pause["type"], &pause["minimum"], &pause["default"], &pause["description"]),
            (&"integer".into(), &1.into(), &1_500.into(), &"Pause in ms.".into())
        );
        assert_eq!(schema["properties"].as_object().map(serde_json::Map::len), Some(1));
    }

    #[test]
    fn a_time_is_at_most_a_year() {
        assert_eq!(Millis(u64::MAX).duration(), Duration::from_secs(365 * 86_400));
    }
}
