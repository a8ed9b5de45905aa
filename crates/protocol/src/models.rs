//! The model objects of the OpenAI API.

use bytes::Bytes;
use serde::Serialize;

/// The body of `GET /v1/models`: the models in the given order. `created_s` is in seconds since
/// 1970, the same for all, because what clients ask is only which names exist.
#[must_use]
pub fn model_list<'m>(models: impl Iterator<Item = &'m str>, created_s: u64) -> Bytes {
    let data = models.map(|model| Card::new(model, created_s)).collect();
    json(&List { object: "list", data })
}

/// The body of `GET /v1/models/{model}`. `created_s` is in seconds since 1970.
#[must_use]
pub fn model_card(model: &str, created_s: u64) -> Bytes {
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
}

impl<'m> Card<'m> {
    fn new(model: &'m str, created_s: u64) -> Self {
        Self { id: model, object: "model", created: created_s, owned_by: "spillway" }
    }
}

#[expect(clippy::expect_used, reason = "structs of strings and numbers always serialise")]
fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("strings and numbers serialise").into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn the_list_keeps_order_and_escapes_names() {
        let list = model_list(["b", "a/\"x\""].into_iter(), 17);
        let card =
            |id: &str| json!({"id": id, "object": "model", "created": 17, "owned_by": "spillway"});
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
        let list = parsed(&model_list(["m"].into_iter(), 5));
        assert_eq!(parsed(&model_card("m", 5)), list["data"][0]);
    }
}
