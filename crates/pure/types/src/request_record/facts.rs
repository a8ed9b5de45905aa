//! Declaration of the facts of a request: one line has a fact's name, type, meaning, value and faces.

use std::sync::Arc;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, Serializer};

/// Declares facts, as a struct that makes itself from the source of its values. The doc comment of
/// a fact is its meaning in the reference page and in the schema of the admin API.
macro_rules! request_facts {
    (
        $(#[$about:meta])*
        pub struct $facts:ident($from:ident: $source:ty) {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])?
                $fact:ident: $type:ty = $value:expr $(=> $($face:ident($name:literal)),+)?;
            )+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct $facts {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)*)])?
                pub $fact: $type,
            )+
        }

        impl From<$source> for $facts {
            fn from($from: $source) -> Self {
                Self { $($fact: $value,)+ }
            }
        }

        impl FactValue for $facts {
            fn each(&self, visit: &mut dyn FnMut(&RequestFact, &dyn FactValue)) {
                $({
                    let (doc, faces) = (&[$($doc),+], &[$($(Face::$face($name)),+)?]);
                    visit(&RequestFact { name: stringify!($fact), doc, faces }, &self.$fact);
                })+
            }

            fn fields(&self, prefix: &str) -> Vec<RecordField> {
                fields_of(self, &format!("{prefix}."))
            }
        }
    };
}

pub(super) use request_facts;

/// Declaration of a fact.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestFact {
    pub(super) name: &'static str,
    /// Lines of its doc comment.
    pub(super) doc: &'static [&'static str],
    /// Places that show it beside the access log and the admin API, which show all.
    pub(super) faces: &'static [Face],
}

/// Place that shows a fact, with the name that the fact has there.
#[derive(Clone, Copy, Debug)]
pub(super) enum Face {
    /// Attribute of the request's span.
    Span(&'static str),
    /// Attribute of the request's span, except for the value 0.
    SpanIfAny(&'static str),
    /// Attribute of the span of the last attempt.
    Attempt(&'static str),
    /// Table of the fact's values: those of a kind of reasons.
    Values(&'static str),
}

/// Field of the access log and of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// Name of the field, after those of the objects that it is in, e.g. `expected.wait_ms`.
    pub name: String,
    /// Meaning of the field: a sentence without its full stop.
    pub meaning: String,
    /// Kind of reasons that the field's values are of; `None` for a field of free values.
    pub values: Option<&'static str>,
}

/// Value of an attribute of a span.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(Arc<str>),
    /// A whole number.
    Integer(i64),
    /// A number.
    Number(f64),
    /// A fact that holds; one that does not hold has no attribute.
    True,
}

/// Value of a fact, or facts that are shown as one object.
pub(super) trait FactValue {
    /// Returns the value as an attribute of a span; `None` if it is not known.
    fn attribute(&self) -> Option<AttributeValue> {
        None
    }

    /// Visits the facts that the value consists of, in their order.
    fn each(&self, _visit: &mut dyn FnMut(&RequestFact, &dyn FactValue)) {}

    /// Returns the fields of which a value of this type consists, in their order.
    fn fields(&self, _prefix: &str) -> Vec<RecordField> {
        Vec::new()
    }
}

/// Returns the fields of an object and of the objects in it.
pub(super) fn fields_of(facts: &dyn FactValue, prefix: &str) -> Vec<RecordField> {
    let mut fields = Vec::new();
    facts.each(&mut |fact, value| {
        let name = format!("{prefix}{}", fact.name);
        let inner = value.fields(&name);
        let lines: Vec<&str> = fact.doc.iter().map(|line| line.trim()).collect();
        let meaning = lines.join(" ").trim_end_matches('.').to_owned();
        let values = fact.faces.iter().find_map(|face| match face {
            Face::Values(kind) => Some(*kind),
            Face::Span(_) | Face::SpanIfAny(_) | Face::Attempt(_) => None,
        });
        fields.push(RecordField { name, meaning, values });
        fields.extend(inner);
    });
    fields
}

/// Returns the known facts that `name` names, those of inner objects too.
pub(super) fn attributes(
    facts: &dyn FactValue,
    name: fn(Face, &AttributeValue) -> Option<&'static str>,
) -> Vec<(&'static str, AttributeValue)> {
    let mut found = Vec::new();
    facts.each(&mut |fact, value| {
        let named = value.attribute().and_then(|value| {
            let name = fact.faces.iter().find_map(|face| name(*face, &value))?;
            Some((name, value))
        });
        found.extend(named);
        found.extend(attributes(value, name));
    });
    found
}

impl<T: FactValue + Default> FactValue for Option<T> {
    fn attribute(&self) -> Option<AttributeValue> {
        self.as_ref().and_then(T::attribute)
    }

    fn each(&self, visit: &mut dyn FnMut(&RequestFact, &dyn FactValue)) {
        self.iter().for_each(|value| value.each(visit));
    }

    fn fields(&self, prefix: &str) -> Vec<RecordField> {
        T::default().fields(prefix)
    }
}

/// A list has no attribute, and its facts are of several things.
impl<T: FactValue + Default> FactValue for Vec<T> {
    fn fields(&self, prefix: &str) -> Vec<RecordField> {
        T::default().fields(&format!("{prefix}[]"))
    }
}

impl FactValue for Arc<str> {
    fn attribute(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Text(Self::clone(self)))
    }
}

impl FactValue for bool {
    fn attribute(&self) -> Option<AttributeValue> {
        self.then_some(AttributeValue::True)
    }
}

impl FactValue for u64 {
    fn attribute(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Integer(i64::try_from(*self).unwrap_or(i64::MAX)))
    }
}

/// Implements values of small whole numbers.
macro_rules! small_numbers {
    ($($number:ty),+) => {
        $(impl FactValue for $number {
            fn attribute(&self) -> Option<AttributeValue> {
                Some(AttributeValue::Integer(i64::from(*self)))
            }
        })+
    };
}

small_numbers!(u8, u16, u32);

/// A number that is written with so many decimals. Spans have it with all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Decimal<const PLACES: i32>(f64);

/// Milliseconds that were measured.
pub type MeasuredMs = Decimal<3>;

/// A number that was predicted, which is no more exact.
pub type Predicted = Decimal<1>;

impl From<Duration> for MeasuredMs {
    fn from(time: Duration) -> Self {
        Self(time.as_secs_f64() * 1e3)
    }
}

impl From<f32> for Predicted {
    fn from(value: f32) -> Self {
        Self(value.into())
    }
}

impl<const PLACES: i32> Serialize for Decimal<PLACES> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let scale = 10_f64.powi(PLACES);
        serializer.serialize_f64((self.0 * scale).round() / scale)
    }
}

impl<const PLACES: i32> JsonSchema for Decimal<PLACES> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        f64::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        f64::json_schema(generator)
    }
}

impl<const PLACES: i32> FactValue for Decimal<PLACES> {
    fn attribute(&self) -> Option<AttributeValue> {
        Some(AttributeValue::Number(self.0))
    }
}
