//! Fields of the record of a request, as a line of the access log has them, for the page about them.

use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::Value;

use crate::reasons::{ReasonKind, ReasonText};
use crate::requests::{ComparedRegions, Expected, LeftOutEntry, RequestEntry, TryEntry};

/// Field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// Name of the field, after those of the objects that it is in, e.g. `expected.wait_ms`.
    pub name: String,
    /// Meaning of the field.
    pub meaning: String,
    /// Values of the field, if there are few; empty else.
    pub values: Vec<ReasonText>,
}

/// Returns the fields of the record of a request, in the order in which lines have them.
#[must_use]
pub fn record_fields() -> Vec<RecordField> {
    let mut fields = Vec::new();
    for field in fields_of::<RequestEntry<'_>>("") {
        let name = field.name.clone();
        fields.push(field);
        fields.extend(match &*name {
            "tries" => fields_of::<TryEntry<'_>>("tries[]."),
            "left_out" => fields_of::<LeftOutEntry<'_>>("left_out[]."),
            "expected" => fields_of::<Expected>("expected."),
            "compared" => fields_of::<ComparedRegions<'_>>("compared."),
            _ => Vec::new(),
        });
    }
    fields
}

fn fields_of<T: JsonSchema + Serialize + Default>(prefix: &str) -> Vec<RecordField> {
    let schema = schema_for!(T).to_value();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    // A schema's properties are sorted by their names, a line has them as they were declared.
    let line = serde_json::to_string(&T::default()).unwrap_or_default();
    let mut fields: Vec<(Option<usize>, RecordField)> = properties
        .iter()
        .map(|(name, property)| {
            let place = line.find(&format!("\"{name}\":"));
            let name = format!("{prefix}{name}");
            (place, RecordField { meaning: meaning(property), values: values(&name), name })
        })
        .collect();
    fields.sort_by_key(|(place, _)| *place);
    fields.into_iter().map(|(_, field)| field).collect()
}

fn meaning(property: &Value) -> String {
    let text = property["description"].as_str().unwrap_or_default();
    text.trim_end_matches('.').replace('\n', " ")
}

/// Returns the values of a field that has few.
fn values(name: &str) -> Vec<ReasonText> {
    let kind = match name {
        "reason" => ReasonKind::Replica,
        "shed" => ReasonKind::Shed,
        "end" => ReasonKind::End,
        "hedge" => ReasonKind::Hedge,
        "left_out[].reason" => ReasonKind::LeftOut,
        "compared.reason" => ReasonKind::Region,
        _ => return Vec::new(),
    };
    kind.reasons()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_says_what_it_means_in_the_order_of_a_line() {
        let fields = record_fields();
        assert!(fields.iter().all(|field| !field.meaning.is_empty()), "{fields:?}");
        let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names[..3], ["number", "ended_ms", "id"]);
        let place = |name: &str| names.iter().position(|known| *known == name);
        assert!(place("tries") < place("tries[].code") && place("tries[].code") < place("end"));
        let has = |field: &RecordField, name: &str| field.values.iter().any(|it| it.name == name);
        assert!(fields.iter().any(|field| field.name == "end" && has(field, "cut")));
    }
}
