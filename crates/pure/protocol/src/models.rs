//! Model objects of the OpenAI API.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

/// Model as it is described to clients.
#[derive(Clone, Copy, Debug)]
pub struct ModelCard<'m> {
    /// Name that clients ask for.
    pub id: &'m str,
    /// Name of the model at the servers that have it.
    pub root: &'m str,
    /// Further fields, each with its value as JSON text. Values that are not JSON are left out, and
    /// so are fields that every card has anyway.
    pub fields: &'m BTreeMap<String, String>,
}

/// Returns the body of `GET /v1/models`: the models in the given order. `created_s` is in seconds
/// since 1970 and equal for all models, because clients only need the names.
#[must_use]
pub fn model_list<'m>(models: impl Iterator<Item = ModelCard<'m>>, created_s: u64) -> Bytes {
    let data = models.map(|model| Card::new(model, created_s)).collect();
    json(&List { object: "list", data })
}

/// Returns the body of `GET /v1/models/{model}`. `created_s` is in seconds since 1970.
#[must_use]
pub fn model_card(model: ModelCard<'_>, created_s: u64) -> Bytes {
    json(&Card::new(model, created_s))
}

#[derive(Serialize)]
struct List<'m> {
    object: &'static str,
    data: Vec<Card<'m>>,
}

#[derive(Serialize)]
struct Card<'m> {
    id: &'m str,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    root: &'m str,
    /// Further fields; `parent` is null unless a server has a value for it.
    #[serde(flatten)]
    fields: BTreeMap<&'m str, Box<RawValue>>,
}

impl<'m> Card<'m> {
    fn new(model: ModelCard<'m>, created_s: u64) -> Self {
        const OWN: [&str; 5] = ["id", "object", "created", "owned_by", "root"];
        let told = model.fields.iter().filter(|(name, _)| !OWN.contains(&name.as_str()));
        let told = told.filter_map(|(name, text)| {
            Some((name.as_str(), RawValue::from_string(text.clone()).ok()?))
        });
        let parent = to_raw_value(&()).ok().map(|null| ("parent", null));
        Self {
            id: model.id,
            object: "model",
            created: created_s,
            owned_by: "spillway",
            root: model.root,
            fields: parent.into_iter().chain(told).collect(),
        }
    }
}

#[expect(clippy::expect_used, reason = "structs of strings, numbers and JSON always serialise")]
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings and numbers serialise").into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    static NOTHING: BTreeMap<String, String> = BTreeMap::new();

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    fn plain(id: &str) -> ModelCard<'_> {
        ModelCard { id, root: id, fields: &NOTHING }
    }

    #[test]
    fn the_list_keeps_order_and_escapes_names() {
        let list = model_list(["b", "a/\"x\""].into_iter().map(plain), 17);
        let card = |id: &str| {
            json!({"id": id, "object": "model", "created": 17, "owned_by": "spillway", "root": id,
                "parent": null})
        };
        let expected = json!({"object": "list", "data": [card("b"), card("a/\"x\"")]});
        assert_eq!(parsed(&list), expected);
    }

    #[test]
    fn an_empty_list_is_still_a_list() {
        let expected = json!({"object": "list", "data": []});
        assert_eq!(parsed(&model_list(std::iter::empty(), 1)), expected);
    }

    #[test]
    fn a_card_is_an_entry_of_the_list() {
        let list = parsed(&model_list([plain("m")].into_iter(), 5));
        assert_eq!(parsed(&model_card(plain("m"), 5)), list["data"][0]);
    }

    #[test]
    fn fields_of_servers_are_told_beside_the_gateways_own() {
        let told = [
            ("max_model_len", "8192"),
            ("meta", r#"{"n_ctx":4096}"#),
            ("parent", "\"base\""),
            ("id", "\"other\""),
            ("broken", "{"),
        ];
        let fields = told.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        let card = model_card(ModelCard { id: "gpt", root: "/models/m", fields: &fields }, 5);
        let expected = json!({"id": "gpt", "object": "model", "created": 5, "owned_by": "spillway",
            "root": "/models/m", "parent": "base", "max_model_len": 8192, "meta": {"n_ctx": 4096}});
        assert_eq!(parsed(&card), expected);
    }
}
