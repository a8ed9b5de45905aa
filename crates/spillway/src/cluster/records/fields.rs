//! Records as words of a command: `FIELD=VALUE`, JSON, or a file.

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};
use spillway_node::{FieldForm, Resource, ResourceField};

use super::record;
use crate::output::WrongUsage;

/// Word that empties a field.
pub(crate) const NONE: &str = "none";

/// Returns the record, or the fields of one, that the words of a command describe.
///
/// # Errors
/// Returns an error if there are no words, or they can't be read.
pub(crate) fn record_of(resource: Resource, words: &[String]) -> Result<Value> {
    match words {
        [] => bail!(WrongUsage(how(resource))),
        [value] if resource == Resource::Settings && assignment(value).is_none() => {
            record::setting(value)
        }
        [given] if assignment(given).is_none() => record::read(given),
        assignments => {
            let known = resource.fields();
            let mut fields = Map::new();
            for word in assignments {
                let Some((name, value)) = assignment(word) else {
                    bail!(WrongUsage(format!("{word:?} sets no field: {}", how(resource))));
                };
                let field = known.iter().find(|field| field.name == name);
                fields.insert(name.to_owned(), value_of(field, value));
            }
            Ok(fields.into())
        }
    }
}

/// Describes how to write a record of a kind.
fn how(resource: Resource) -> String {
    let kind = resource.singular();
    let names: Vec<String> = resource.fields().into_iter().map(|field| field.name).collect();
    format!(
        "write FIELD=VALUE, JSON, a file, or - for standard input; a {kind} has the fields {} \
         (`spillway get {kind} --fields` explains them)",
        names.join(", ")
    )
}

/// Returns the field and the value of `FIELD=VALUE`; None if the word is a file or JSON.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some((name, value))
}

/// Returns a value in the form of its field. The value of an unknown field is JSON, or a word without
/// quotes.
fn value_of(field: Option<&ResourceField>, text: &str) -> Value {
    match (field.map(|field| field.form), text) {
        (Some(FieldForm::List), NONE) => json!([]),
        (Some(FieldForm::Map), NONE) => json!({}),
        (Some(FieldForm::Text), NONE) => "".into(),
        (_, NONE) => Value::Null,
        (Some(FieldForm::Text | FieldForm::OptionalText), text) => text.into(),
        (Some(FieldForm::List), text) if !text.starts_with('[') => {
            text.split(',').map(str::trim).filter(|item| !item.is_empty()).collect()
        }
        (_, text) => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(resource: Resource, words: &[&str]) -> Value {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        record_of(resource, &words).unwrap()
    }

    #[test]
    fn values_have_the_forms_of_their_fields() {
        let words = ["title=2026", "countries=DE, FR,", "is_suspended=true", "budget_per_day=2.5"];
        let tenant = json!({
            "title": "2026", "countries": ["DE", "FR"], "is_suspended": true, "budget_per_day": 2.5,
        });
        assert_eq!(read(Resource::Tenants, &words), tenant);
        assert_eq!(read(Resource::Tenants, &["countries=[\"DE\"]"])["countries"], json!(["DE"]));
        let limit = read(Resource::Limits, &["floors_percent={\"eu\": 20}", "concurrency=8"]);
        assert_eq!(limit, json!({ "floors_percent": { "eu": 20 }, "concurrency": 8 }));
        assert_eq!(read(Resource::Nodes, &["role=learner"])["role"], "learner");
        assert_eq!(read(Resource::Models, &["alias_of=a=b"])["alias_of"], "a=b");
    }

    #[test]
    fn none_empties_a_field() {
        let tenant =
            read(Resource::Tenants, &["title=none", "regions=none", "budget_per_day=none"]);
        assert_eq!(tenant, json!({ "title": "", "regions": [], "budget_per_day": null }));
        assert_eq!(read(Resource::Limits, &["floors_percent=none"])["floors_percent"], json!({}));
        assert_eq!(read(Resource::Models, &["alias_of=none"])["alias_of"], Value::Null);
    }

    #[test]
    fn a_route_has_settings_in_json_or_as_a_word() {
        let words = ["slo_ms=800", "hash_by=header:x-user", "session={\"header\":\"x\"}"];
        let route = json!({
            "slo_ms": 800, "hash_by": "header:x-user", "session": { "header": "x" },
        });
        assert_eq!(read(Resource::Routes, &words), route);
        assert_eq!(read(Resource::Routes, &["slo_ms=none"])["slo_ms"], Value::Null);
    }

    #[test]
    fn a_setting_is_its_value() {
        for word in ["30000", "value=30000"] {
            assert_eq!(read(Resource::Settings, &[word]), json!({ "value": "30000" }));
        }
    }

    #[test]
    fn wrong_words_name_the_fields() {
        for words in [&[][..], &["title=Acme".to_owned(), "acme.json".to_owned()]] {
            let error = record_of(Resource::Tenants, words).unwrap_err();
            assert!(error.is::<WrongUsage>());
            assert!(error.to_string().contains("is_suspended"), "{error}");
        }
    }
}
