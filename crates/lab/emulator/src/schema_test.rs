use super::*;

const SEEDS: std::ops::Range<u64> = 0..200;

/// Returns true if `schema` allows `value`. Written apart from the sampler, so that the sampler
/// does not judge itself.
fn allows(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(fields) = schema else { return *schema != json!(false) };
    fields.iter().all(|(keyword, wanted)| {
        let list = || wanted.as_array().unwrap();
        let number = |is: fn(f64, f64) -> bool| {
            value.as_f64().is_none_or(|value| is(value, wanted.as_f64().unwrap()))
        };
        let sized = |length: Option<usize>, is: fn(usize, usize) -> bool| {
            length
                .is_none_or(|length| is(length, usize::try_from(wanted.as_u64().unwrap()).unwrap()))
        };
        let characters = value.as_str().map(|text| text.chars().count());
        let items = value.as_array().map(Vec::len);
        match keyword.as_str() {
            "type" => match wanted {
                Value::Array(names) => names.iter().any(|name| is_of_type(name, value)),
                name => is_of_type(name, value),
            },
            "$ref" => {
                let target = root.pointer(wanted.as_str().unwrap().strip_prefix('#').unwrap());
                allows(root, target.unwrap(), value)
            }
            "const" => value == wanted,
            "enum" => list().contains(value),
            "anyOf" | "oneOf" => list().iter().any(|one| allows(root, one, value)),
            "allOf" => list().iter().all(|one| allows(root, one, value)),
            "required" => list().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
            "properties" => wanted.as_object().unwrap().iter().all(|(name, schema)| {
                value.get(name).is_none_or(|value| allows(root, schema, value))
            }),
            "additionalProperties" => value.as_object().is_none_or(|object| {
                let known = fields.get("properties").unwrap_or(&Value::Null);
                let mut others =
                    object.iter().filter(|(name, _)| known.get(name.as_str()).is_none());
                others.all(|(_, value)| allows(root, wanted, value))
            }),
            "items" => {
                value.as_array().into_iter().flatten().all(|item| allows(root, wanted, item))
            }
            "minimum" => number(|value, least| value >= least),
            "maximum" => number(|value, most| value <= most),
            "exclusiveMinimum" => number(|value, least| value > least),
            "exclusiveMaximum" => number(|value, most| value < most),
            "minLength" => sized(characters, |length, least| length >= least),
            "maxLength" => sized(characters, |length, most| length <= most),
            "minItems" => sized(items, |length, least| length >= least),
            "maxItems" => sized(items, |length, most| length <= most),
            "pattern" => value.as_str().is_none_or(|text| {
                assert_eq!(wanted, "^[a-z]+$", "the judge knows but one pattern");
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase())
            }),
            "$defs" | "title" | "format" => true,
            other => panic!("the judge does not know {other}"),
        }
    })
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => panic!("{other} is no type"),
    }
}

#[test]
fn every_value_is_one_that_its_schema_allows() {
    let node = json!({"type": "object", "required": ["name", "next"], "additionalProperties": false,
        "properties": {"name": {"type": "string"},
                       "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                       "twigs": {"type": "array", "items": {"$ref": "#/$defs/node"}}}});
    let schemas = [
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
               "required": ["city"], "additionalProperties": false}),
        json!({"type": "string", "enum": ["celsius", "größe", "☂"]}),
        json!({"const": {"a": [1, null]}}),
        json!({"type": ["integer", "null"]}),
        json!({"type": "integer", "minimum": 5, "maximum": 7}),
        json!({"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 7}),
        json!({"type": "integer", "maximum": -3}),
        json!({"type": "number", "minimum": 0.1, "maximum": 0.2}),
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
        json!({"minimum": -1000.5}),
        json!({"type": "string", "minLength": 30, "maxLength": 31}),
        json!({"type": "string", "maxLength": 2}),
        json!({"type": "string", "maxLength": 0}),
        json!({"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 4}),
        json!({"type": "array", "items": {"type": "boolean"}, "minItems": 5, "maxItems": 5}),
        json!({"type": "array", "maxItems": 0}),
        json!({"type": "object", "additionalProperties": {"type": "number"}}),
        json!({"type": "object", "required": ["x"]}),
        json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}, "required": ["a"]}),
        json!({"allOf": [{"$ref": "#/$defs/a"}, {"type": "object", "required": ["b"],
               "properties": {"b": {"type": "null"}}}],
               "$defs": {"a": {"type": "object", "required": ["a"], "properties": {"a": {"const": 1}}}}}),
        json!({"$ref": "#/$defs/node", "$defs": {"node": node}}),
        json!({"type": "array", "items": {"$ref": "#/$defs/colour"}, "$defs": {"colour": {"enum": ["red"]}}}),
        json!({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                         {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]}),
        json!({}),
        json!(true),
    ];
    for schema in schemas {
        for seed in SEEDS {
            let value = sample(&schema, seed, 1 << 16);
            assert!(allows(&schema, &schema, &value), "{schema} does not allow {value}");
            let again: Value = serde_json::from_str(&value.to_string()).unwrap();
            assert_eq!(again, value, "{schema}");
            assert_eq!(sample(&schema, seed, 1 << 16), value);
        }
    }
}

#[test]
fn well_known_formats_look_as_they_should() {
    let text = |format: &str| {
        let schema = json!({"type": "string", "format": format});
        sample(&schema, 3, 1000).as_str().unwrap().to_owned()
    };
    assert_eq!(text("date").len(), 10);
    assert!(text("date-time").ends_with("00Z"));
    assert_eq!(text("uuid").split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    assert!(text("email").ends_with("@example.com"));
}

#[test]
fn hostile_schemas_end_soon() {
    let wide: Vec<Value> = vec![json!({"$ref": "#"}); 30];
    let names: Map<String, Value> =
        (0..30).map(|number| (format!("p{number}"), json!({"$ref": "#"}))).collect();
    let required: Vec<&String> = names.keys().collect();
    for schema in [
        json!({"$ref": "#"}),
        json!({"$ref": "#/nowhere"}),
        json!({"allOf": wide}),
        json!({"anyOf": wide}),
        json!({"type": "array", "items": {"$ref": "#"}, "minItems": 9}),
        json!({"type": "object", "properties": names, "required": required}),
        json!({"type": "string", "minLength": 1_000_000_000_000_u64}),
        json!({"type": "array", "minItems": 1_000_000_000_000_u64}),
        json!({"type": "array", "minItems": 1_000_000_000_000_u64, "items": {"const": 1}}),
        json!({"type": "integer", "minimum": 5, "maximum": 4}),
        json!({"type": "number", "minimum": 1e308}),
        json!({"type": [], "enum": [], "anyOf": []}),
        json!({"type": "hologram", "minLength": -1}),
    ] {
        let text = sample(&schema, 1, 4096).to_string();
        assert!(text.len() < 4096 * 64, "{} bytes of {schema}", text.len());
    }
}
