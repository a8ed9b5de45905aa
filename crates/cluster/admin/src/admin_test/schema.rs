//! Checks JSON against a schema, for the keywords that the document uses. Panics at any other
//! keyword, so that none is overlooked.
//! Written by hand for that reason: `jsonschema` ignores keywords that it does not know, and brings
//! many crates.

use serde_json::Value;

/// Keywords that describe a value without limiting it.
const SILENT: [&str; 5] = ["title", "description", "default", "format", "uniqueItems"];

/// Returns the faults of `value`; empty if there are none.
pub(super) fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(document, schema, value, "", &mut faults);
    faults
}

fn check(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    if schema == &Value::Bool(true) {
        return;
    }
    let schema = schema.as_object().unwrap_or_else(|| panic!("{schema} is no schema"));
    for (keyword, rule) in schema {
        let mut wrong = |why: String| faults.push(format!("{at}: {why}"));
        match keyword.as_str() {
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                let referred = document.pointer(pointer).expect("what is referred to");
                check(document, referred, value, at, faults);
            }
            "type" if !is_of_type(rule, value) => wrong(format!("{value} is no {rule}")),
            "const" if value != rule => wrong(format!("{value} is not {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => {
                wrong(format!("{value} is not in {rule}"));
            }
            "minimum" if value.as_f64() < rule.as_f64() && value.is_number() => {
                wrong(format!("{value} is below {rule}"));
            }
            "maximum" if value.as_f64() > rule.as_f64() && value.is_number() => {
                wrong(format!("{value} is above {rule}"));
            }
            "pattern" => {
                let pattern = regex_lite::Regex::new(rule.as_str().unwrap()).unwrap();
                if value.as_str().is_some_and(|text| !pattern.is_match(text)) {
                    wrong(format!("{value} does not fit {rule}"));
                }
            }
            "propertyNames" => {
                for name in value.as_object().into_iter().flat_map(|members| members.keys()) {
                    check(document, rule, &Value::from(name.as_str()), at, faults);
                }
            }
            "oneOf" | "anyOf" => {
                let count = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|rule| self::faults(document, rule, value).is_empty());
                let count = count.count();
                if count == 0 || (keyword == "oneOf" && count > 1) {
                    wrong(format!("{value} fits {count} of {keyword}"));
                }
            }
            "required" => {
                let missing = rule.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                let missing = missing.filter(|name| value.is_object() && value.get(name).is_none());
                missing.for_each(|name| wrong(format!("{name} is missing")));
            }
            "properties" | "additionalProperties" => {
                check_members(document, schema, (keyword, value), at, faults);
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(document, rule, item, &format!("{at}/{number}"), faults);
                }
            }
            "type" | "const" | "enum" | "minimum" | "maximum" => {}
            other => assert!(SILENT.contains(&other), "{other} is not known here"),
        }
    }
}

fn check_members(
    document: &Value,
    schema: &serde_json::Map<String, Value>,
    (keyword, value): (&str, &Value),
    at: &str,
    faults: &mut Vec<String>,
) {
    let named = |name: &str| schema.get("properties").and_then(|named| named.get(name));
    for (name, member) in value.as_object().into_iter().flatten() {
        let at = format!("{at}/{name}");
        match (keyword, named(name), schema.get("additionalProperties")) {
            ("properties", Some(rule), _) => check(document, rule, member, &at, faults),
            // JSON Schema allows unknown members; here one shows that the document is incomplete.
            ("properties", None, None) => faults.push(format!("{at}: is not in the schema")),
            ("additionalProperties", None, Some(Value::Bool(false))) => {
                faults.push(format!("{at}: may not be there"));
            }
            ("additionalProperties", None, Some(rule)) => {
                check(document, rule, member, &at, faults);
            }
            _ => {}
        }
    }
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    let names = rule.as_array().map_or_else(|| vec![rule], |names| names.iter().collect());
    names.iter().any(|name| match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    })
}

#[test]
fn it_finds_what_is_wrong() {
    let document = serde_json::json!({ "n": { "type": "integer", "minimum": 1 } });
    let schema = serde_json::json!({
        "type": "object",
        "properties": { "a": { "$ref": "#/n" }, "b": { "type": ["string", "null"] } },
        "required": ["a"],
    });
    let count = |value| faults(&document, &schema, &value).len();
    assert_eq!(count(serde_json::json!({ "a": 1, "b": null })), 0);
    assert_eq!(count(serde_json::json!({ "a": 0 })), 1);
    assert_eq!(count(serde_json::json!({ "b": "x" })), 1);
    assert_eq!(count(serde_json::json!({ "a": 1, "b": 2, "c": 3 })), 2);
    assert_eq!(count(serde_json::json!([])), 1);
}
