//! Descriptions of models for clients: the properties on which replicas agree.

use std::collections::BTreeMap;

use spillway_protocol::ModelCard;
use spillway_types::{ModelName, ServedModel};

use crate::names::Names;

/// Field with the longest prompt and answer together, in tokens. The least of all replicas holds.
const LENGTH_MAX: &str = "max_model_len";

/// Field with the model that an adapter belongs to; null for a model of its own.
const PARENT: &str = "parent";

/// Fields of a model that replicas do not describe.
static NOTHING: BTreeMap<String, String> = BTreeMap::new();

/// Descriptions of models, merged from their replicas.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ModelCards(BTreeMap<ModelName, AgreedCard>);

/// Description that all replicas of one model agree on.
#[derive(Debug, PartialEq, Eq)]
struct AgreedCard {
    root: Option<String>,
    /// JSON text of a field by its name.
    fields: BTreeMap<String, String>,
}

/// Description collected of one model so far. An inner `None` marks replicas that differ.
#[derive(Debug, Default)]
struct MergedCard<'s> {
    root: Option<Option<&'s str>>,
    fields: BTreeMap<&'s str, Option<String>>,
}

impl ModelCards {
    /// Merges the descriptions of models by single replicas. A field that only some of a model's
    /// replicas have counts for all; a field on which they differ is left out.
    #[must_use]
    pub fn new<'s>(said: impl IntoIterator<Item = (&'s ModelName, &'s ServedModel)>) -> Self {
        let mut merged: BTreeMap<&ModelName, MergedCard<'_>> = BTreeMap::new();
        for (name, model) in said {
            merged.entry(name).or_default().merge(model);
        }
        Self(merged.into_iter().map(|(name, merged)| (name.clone(), merged.into_card())).collect())
    }

    /// Returns true if a model is an adapter of another one.
    pub fn is_adapter(&self, model: &ModelName) -> bool {
        let parent = self.0.get(model).and_then(|card| card.fields.get(PARENT));
        // A name is a JSON string.
        parent.is_some_and(|parent| {
            parent.starts_with('"') && parent.trim_matches('"') != model.as_str()
        })
    }

    /// Returns the card of a name. The card of a split has the fields if all its arms have the
    /// same.
    pub fn card<'c>(&'c self, names: &'c Names, id: &'c str) -> ModelCard<'c> {
        let models = names.models_behind(id);
        let Some((first, others)) = models.split_first() else {
            return ModelCard { id, root: id, fields: &NOTHING };
        };
        let told = self.0.get(*first);
        // Where the arms of a split differ, no field holds for all of them.
        if !others.iter().all(|other| *other == *first || self.0.get(*other) == told) {
            return ModelCard { id, root: id, fields: &NOTHING };
        }
        let is_one = others.iter().all(|other| *other == *first);
        // Without a root from the replicas, an alias shows its model, and a split its own name.
        let unnamed = if is_one { first.as_str() } else { id };
        ModelCard {
            id,
            root: told.and_then(|told| told.root.as_deref()).unwrap_or(unnamed),
            fields: told.map_or(&NOTHING, |told| &told.fields),
        }
    }
}

impl<'s> MergedCard<'s> {
    fn merge(&mut self, model: &'s ServedModel) {
        if let Some(root) = &model.root {
            let known = *self.root.get_or_insert(Some(root));
            self.root = Some(known.filter(|known| known == root));
        }
        for (field, text) in &model.fields {
            let known = self.fields.entry(field).or_insert_with(|| Some(text.clone()));
            *known = known.take().and_then(|known| agreed(field, known, text));
        }
    }

    fn into_card(self) -> AgreedCard {
        let fields = self.fields.into_iter();
        let fields = fields.filter_map(|(field, text)| Some((field.to_owned(), text?)));
        AgreedCard { root: self.root.flatten().map(str::to_owned), fields: fields.collect() }
    }
}

/// Returns the merged value of a field where one replica says `known` and another `text`; `None` if
/// they differ.
fn agreed(field: &str, known: String, text: &str) -> Option<String> {
    if known == text {
        return Some(known);
    }
    // Only the length has a value that is safe at all replicas: the least.
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| field == LENGTH_MAX);
    Some(number(&known)?.min(number(text)?).to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::names::NameSpec;

    fn served(root: Option<&str>, fields: &[(&str, &str)]) -> ServedModel {
        let fields = fields.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        ServedModel { owned_by: None, root: root.map(str::to_owned), fields: fields.collect() }
    }

    fn names(aliases: &[(&str, &str)]) -> Names {
        let aliases = aliases.iter().map(|(name, model)| ((*name).into(), (*model).into()));
        let spec = NameSpec { aliases: aliases.collect(), ..NameSpec::default() };
        Names::new(Arc::new(spec), [(&"m".into(), false), (&"n".into(), false)])
    }

    fn shown(cards: &ModelCards, names: &Names, id: &str) -> (String, Vec<String>) {
        let card = cards.card(names, id);
        let fields = card.fields.iter().map(|(name, text)| format!("{name}={text}"));
        (card.root.to_owned(), fields.collect())
    }

    #[test]
    fn replicas_that_agree_are_passed_on() {
        let model = served(Some("/m"), &[("max_model_len", "8"), ("meta", "{}")]);
        let cards = ModelCards::new([(&"m".into(), &model), (&"m".into(), &model)]);
        let expected = vec!["max_model_len=8".to_owned(), "meta={}".to_owned()];
        assert_eq!(shown(&cards, &names(&[]), "m"), ("/m".to_owned(), expected));
    }

    #[test]
    fn what_replicas_say_differently_is_left_out_but_for_the_least_length() {
        let one = served(Some("/m"), &[("max_model_len", "8"), ("meta", "1"), ("a", "1")]);
        let other = served(Some("/x"), &[("max_model_len", "4"), ("meta", "2"), ("b", "2")]);
        let name = ModelName::from("m");
        for third in [&one, &other] {
            let cards = ModelCards::new([&one, &other, third].map(|said| (&name, said)));
            let (root, fields) = shown(&cards, &names(&[]), "m");
            assert_eq!(root, "m");
            assert_eq!(fields, ["a=1", "b=2", "max_model_len=4"]);
        }
    }

    #[test]
    fn an_adapter_is_known_by_its_parent() {
        let of = |parent| served(None, &[("parent", parent)]);
        let (base, adapter, own) = (of("null"), of("\"base\""), of("\"own\""));
        let said = [(&"base".into(), &base), (&"a".into(), &adapter), (&"own".into(), &own)];
        let cards = ModelCards::new(said);
        let is_adapter = |model: &str| cards.is_adapter(&model.into());
        assert_eq!(["base", "a", "own", "other"].map(is_adapter), [false, true, false, false]);
    }

    #[test]
    fn the_root_of_an_alias_is_that_of_its_model() {
        let cards = ModelCards::new([(&"m".into(), &served(Some("/m"), &[("parent", "null")]))]);
        let names = names(&[("gpt", "m"), ("old", "n")]);
        assert_eq!(shown(&cards, &names, "gpt"), ("/m".to_owned(), vec!["parent=null".to_owned()]));
        assert_eq!(shown(&cards, &names, "old"), ("n".to_owned(), Vec::new()));
        assert_eq!(shown(&cards, &names, "n"), ("n".to_owned(), Vec::new()));
    }
}
