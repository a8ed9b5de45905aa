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
