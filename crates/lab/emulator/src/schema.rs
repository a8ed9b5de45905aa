//! Random values that match a JSON schema.
//!
//! Supported keywords are those that clients generate from types: types, `enum`, `const`,
//! `properties`, `required`, `additionalProperties`, `items`, combinations, references within the
//! schema, patterns, the usual formats, and limits of numbers, lists and texts. Nodes,
//! depth and bytes are bounded, since schemas come from clients and may refer to themselves.

use serde_json::{Map, Value, json};

use crate::pattern;
use crate::voice::WORDS;

/// Largest number of schema nodes that are read for one value.
const NODES_MAX: usize = 20_000;
/// Bytes of a copied schema that count as one node.
const NODE_BYTES: usize = 64;
/// Deepest nesting; values below it are null.
const DEPTH_MAX: u32 = 64;
/// Depth below which only required values are generated, so that schemas that refer to themselves
/// end.
const DEPTH_SPARSE: u32 = 6;
/// Largest number of items of a list, beyond the required ones.
const ITEMS_SPARE: usize = 2;
/// Number of tries to find a text of the right length.
const LENGTH_TRIES: u32 = 32;

/// Returns a value that matches `schema`. The same seed gives the same value. Its texts have at
/// most `bytes_max` bytes in total. A value that needs more does not match, but the answer is cut
/// anyway.
pub(crate) fn sample(schema: &Value, seed: u64, bytes_max: usize) -> Value {
    let rng = fastrand::Rng::with_seed(seed);
    Sampler { root: schema, rng, nodes: NODES_MAX, bytes: bytes_max }.value(schema, 0)
}

struct Sampler<'a> {
    root: &'a Value,
    rng: fastrand::Rng,
    nodes: usize,
    bytes: usize,
}

impl Sampler<'_> {
    fn value(&mut self, schema: &Value, depth: u32) -> Value {
        if depth > DEPTH_MAX || self.nodes == 0 || self.bytes == 0 {
            return Value::Null;
        }
        self.nodes -= 1;
        // One byte for brackets and commas; texts are counted apart.
        self.bytes -= 1;
        let Value::Object(fields) = schema else { return self.text(&Map::new()) };
        if let Some(value) = fields.get("const") {
            return self.given(value);
        }
        if let Some(Value::Array(values)) = fields.get("enum")
            && let Some(value) = self.rng.choice(values)
        {
            return self.given(value);
        }
        match self.flattened(fields, depth) {
            Some(schema) => self.value(&schema, depth + 1),
            None => self.typed(fields, depth),
        }
    }

    /// Resolves the outermost reference, alternative or combination of a schema; `None` if it has
    /// none.
    fn flattened(&mut self, fields: &Map<String, Value>, depth: u32) -> Option<Value> {
        let without = |keyword: &str| {
            let others = fields.iter().filter(|(name, _)| *name != keyword);
            others.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        if let Some(Value::String(reference)) = fields.get("$ref") {
            // Keywords beside a reference are ignored: they are titles and defaults, rarely more.
            return Some(self.target(reference));
        }
        if let Some(Value::Array(schemas)) = fields.get("allOf") {
            self.pay(schemas.iter());
            let mut merged = without("allOf");
            schemas.iter().for_each(|schema| self.merge(&mut merged, schema, depth));
            return Some(Value::Object(merged));
        }
        for keyword in ["anyOf", "oneOf"] {
            let Some(Value::Array(schemas)) = fields.get(keyword) else { continue };
            let schema = if depth < DEPTH_SPARSE {
                self.rng.choice(schemas)
            } else {
                // Deep inside, the least nested alternative is taken, so that recursion ends.
                schemas.iter().min_by_key(|schema| weight(schema))
            };
            self.pay(schemas.iter());
            let mut merged = without(keyword);
            if let Some(schema) = schema {
                self.merge(&mut merged, schema, depth);
            }
            return Some(Value::Object(merged));
        }
        None
    }

    /// Adds the keywords of `schema` to `merged`.
    fn merge(&mut self, merged: &mut Map<String, Value>, schema: &Value, depth: u32) {
        let Value::Object(fields) = schema else { return };
        if depth > DEPTH_MAX || self.nodes == 0 {
            return;
        }
        self.nodes -= 1;
        if let Some(Value::String(reference)) = fields.get("$ref") {
            let target = self.target(reference);
            return self.merge(merged, &target, depth + 1);
        }
        for (name, value) in fields {
            match (merged.get_mut(name), value) {
                (Some(Value::Object(all)), Value::Object(more)) => all.extend(more.clone()),
                (Some(Value::Array(all)), Value::Array(more))
                    if name == "required" || name == "allOf" =>
                {
                    all.extend(more.clone());
                }
                _ => drop(merged.insert(name.clone(), value.clone())),
            }
        }
    }

    /// Returns the schema that a reference within the schema names; null if there is none.
    fn target(&mut self, reference: &str) -> Value {
        let target = reference.strip_prefix('#').and_then(|path| self.root.pointer(path));
        self.pay(target.into_iter());
        target.cloned().unwrap_or_default()
    }

    /// Takes the nodes of copied schemas from the budget, estimated by their bytes.
    fn pay<'b>(&mut self, schemas: impl Iterator<Item = &'b Value>) {
        let bytes: usize = schemas.map(|schema| schema.to_string().len()).sum();
        self.nodes = self.nodes.saturating_sub(bytes / NODE_BYTES);
    }

    fn typed(&mut self, fields: &Map<String, Value>, depth: u32) -> Value {
        let named = match fields.get("type") {
            Some(Value::String(name)) => Some(name.as_str()),
            Some(Value::Array(names)) => {
                let spare = names.iter().find(|name| **name == "null");
                // Null ends recursion, if the schema allows it.
                let spare = spare.filter(|_| depth >= DEPTH_SPARSE);
                spare.or_else(|| self.rng.choice(names)).and_then(Value::as_str)
            }
            _ => None,
        };
        match named.unwrap_or_else(|| implied_type(fields)) {
            "object" => self.object(fields, depth),
            "array" => self.list(fields, depth),
            "integer" => self.number(fields, true),
            "number" => self.number(fields, false),
            "boolean" => json!(self.rng.bool()),
            "null" => Value::Null,
            _ => self.text(fields),
        }
    }

    fn object(&mut self, fields: &Map<String, Value>, depth: u32) -> Value {
        let nothing = Map::new();
        let properties = fields.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let required = fields.get("required").and_then(Value::as_array);
        let required: Vec<&str> =
            required.into_iter().flatten().filter_map(Value::as_str).collect();
        let others = fields.get("additionalProperties").unwrap_or(&Value::Bool(true));

        let mut object = Map::new();
        for name in &required {
            let schema = properties.get(*name).unwrap_or(others);
            self.bytes = self.bytes.saturating_sub(name.len());
            object.insert((*name).to_owned(), self.value(schema, depth + 1));
        }
        for (name, schema) in properties {
            // Optional properties are left out deep inside.
            if depth < DEPTH_SPARSE && !object.contains_key(name) {
                self.bytes = self.bytes.saturating_sub(name.len());
                object.insert(name.clone(), self.value(schema, depth + 1));
            }
        }
        // The schema describes a map whose keys are free.
        if object.is_empty() && properties.is_empty() && others.is_object() && depth < DEPTH_SPARSE
        {
            object.insert(self.words(1, 3), self.value(others, depth + 1));
        }
        Value::Object(object)
    }

    fn list(&mut self, fields: &Map<String, Value>, depth: u32) -> Value {
        let schema = fields.get("items").unwrap_or(&Value::Bool(true));
        let least = count(fields, "minItems").unwrap_or(0);
        let most = count(fields, "maxItems").unwrap_or(usize::MAX);
        let spare = if depth < DEPTH_SPARSE { 1 + self.rng.usize(0..ITEMS_SPARE) } else { 0 };
        let wanted = least.max(spare).min(most);
        let mut items = Vec::new();
        while items.len() < wanted && self.nodes > 0 && self.bytes > 0 {
            items.push(self.value(schema, depth + 1));
        }
        Value::Array(items)
    }

    fn number(&mut self, fields: &Map<String, Value>, is_whole: bool) -> Value {
        let limit = |name: &str| fields.get(name).and_then(Value::as_f64);
        let step = if is_whole { 1.0 } else { 0.25 };
        // An excluded limit moves by one step into the range.
        let within = |limit: f64, excluded: Option<f64>, away: f64| match excluded {
            Some(excluded) if (excluded - limit) * away >= 0.0 => excluded + away * step,
            _ => limit,
        };
        let (least, above) = (limit("minimum"), limit("exclusiveMinimum"));
        let (most, below) = (limit("maximum"), limit("exclusiveMaximum"));
        let is_bounded_above = most.is_some() || below.is_some();
        let top = within(most.unwrap_or(f64::MAX), below, -1.0);
        let bottom = match (least, above) {
            (None, None) if is_bounded_above => (top - 100.0 * step).max(0.0_f64.min(top)),
            (None, None) => 0.0,
            _ => within(least.unwrap_or(f64::MIN), above, 1.0),
        };
        let first = (bottom / step).ceil() * step;
        let steps = ((top - first) / step).floor().clamp(0.0, 100.0);
        let number = first + step * (self.rng.f64() * (steps + 1.0)).floor().min(steps);
        // In a range narrower than a step, no multiple of the step may exist.
        let number = if number > top && !is_whole { bottom.midpoint(top) } else { number };
        if is_whole { json!(number as i64) } else { json!(number) }
    }

    fn text(&mut self, fields: &Map<String, Value>) -> Value {
        let format = fields.get("format").and_then(Value::as_str).unwrap_or("");
        if let Some(text) = self.formatted(format) {
            self.bytes = self.bytes.saturating_sub(text.len());
            return Value::String(text);
        }
        let least = count(fields, "minLength").unwrap_or(1);
        let most = count(fields, "maxLength").unwrap_or(usize::MAX);
        if let Some(text) = self.matching(fields, least..=most) {
            return Value::String(text);
        }
        Value::String(self.words(least, most))
    }

    /// Returns a text that matches the schema's pattern, of a length in `wanted` if one is found
    /// soon. Returns `None` without a pattern, or if the pattern is not supported.
    fn matching(
        &mut self,
        fields: &Map<String, Value>,
        wanted: std::ops::RangeInclusive<usize>,
    ) -> Option<String> {
        let pattern = fields.get("pattern")?.as_str()?;
        self.nodes = self.nodes.saturating_sub(pattern.len() / NODE_BYTES);
        let mut text = pattern::sample(pattern, &mut self.rng, self.bytes)?;
        for _ in 0..LENGTH_TRIES {
            if wanted.contains(&text.chars().count()) {
                break;
            }
            text = pattern::sample(pattern, &mut self.rng, self.bytes)?;
        }
        self.bytes = self.bytes.saturating_sub(text.len());
        Some(text)
    }

    /// Returns a text in a well-known format; `None` for an unknown format.
    fn formatted(&mut self, format: &str) -> Option<String> {
        let (year, month, day) =
            (self.rng.u32(1990..2030), self.rng.u32(1..=12), self.rng.u32(1..=28));
        let date = format!("{year}-{month:02}-{day:02}");
        let time = format!("{:02}:{:02}:00Z", self.rng.u32(0..24), self.rng.u32(0..60));
        Some(match format {
            "date" => date,
            "time" => time,
            "date-time" => format!("{date}T{time}"),
            "email" => format!("{}@example.com", self.words(3, 3)),
            "uri" => format!("https://example.com/{}", self.words(3, 3)),
            "uuid" => {
                let bits = self.rng.u128(..);
                let (a, b, c) = (bits >> 96, (bits >> 80) & 0xFFFF, (bits >> 64) & 0xFFF);
                let (d, e) = ((bits >> 48) & 0xFFF, bits & 0xFFFF_FFFF_FFFF);
                // The digits 4 and 8 mark a random UUID.
                format!("{a:08x}-{b:04x}-4{c:03x}-8{d:03x}-{e:012x}")
            }
            _ => return None,
        })
    }

    /// Returns ASCII words of `least` to `most` bytes in total.
    fn words(&mut self, least: usize, most: usize) -> String {
        let mut text = String::new();
        let most = most.min(self.bytes);
        let wanted = least.max(3 + 4 * self.rng.usize(0..3)).min(most);
        while text.len() < wanted {
            let word = self.rng.choice(WORDS).map_or(&b" the"[..], |word| word.as_slice());
            let word = if text.is_empty() { word.trim_ascii_start() } else { word };
            text.extend(word.iter().copied().map(char::from));
        }
        // A space at the end of a text that was cut would look like a mistake.
        text.truncate(wanted.max(least.min(most)));
        if text.ends_with(' ') {
            text.pop();
            text.push('s');
        }
        self.bytes -= text.len().min(self.bytes);
        text
    }

    /// Returns a value that the schema itself contains.
    fn given(&mut self, value: &Value) -> Value {
        self.bytes = self.bytes.saturating_sub(value.to_string().len());
        value.clone()
    }
}

/// Returns the type that the keywords of a schema without a type imply.
fn implied_type(fields: &Map<String, Value>) -> &'static str {
    let has = |names: &[&str]| names.iter().any(|name| fields.contains_key(*name));
    if has(&["properties", "required", "additionalProperties"]) {
        "object"
    } else if has(&["items", "minItems", "maxItems"]) {
        "array"
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]) {
        "number"
    } else {
        "string"
    }
}

/// Returns how far an alternative may nest: 0 for null, more for lists and objects.
fn weight(schema: &Value) -> u8 {
    match schema.get("type").and_then(Value::as_str) {
        Some("null") => 0,
        Some("object" | "array") => 2,
        Some(_) => 1,
        None if schema.get("enum").is_some() || schema.get("const").is_some() => 1,
        None => 3,
    }
}

fn count(fields: &Map<String, Value>, name: &str) -> Option<usize> {
    fields.get(name).and_then(Value::as_f64).map(|count| count as usize)
}

#[cfg(test)]
#[path = "schema_test.rs"]
mod schema_test;
