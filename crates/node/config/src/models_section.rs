//! `models` of a `[[replica]]`: a list of names, or a table with the server's own name of each.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use spillway_types::ModelName;
use toml::Spanned;

/// Models of a replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelsSection {
    names: Vec<Spanned<String>>,
    /// Names at the server, where it knows the models by others.
    pub(crate) renamed: BTreeMap<ModelName, String>,
}

/// The two forms, for the schema.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) enum ModelsForm {
    /// Names of the models.
    List(Vec<String>),
    /// Names of the models, and the name of each at the server.
    Table(BTreeMap<String, String>),
}

impl ModelsSection {
    /// Returns the names by which clients know the models.
    pub(crate) fn into_names(self) -> Vec<String> {
        self.names.into_iter().map(Spanned::into_inner).collect()
    }
}

impl Deref for ModelsSection {
    type Target = [Spanned<String>];

    fn deref(&self) -> &Self::Target {
        &self.names
    }
}

impl<'de> Deserialize<'de> for ModelsSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ModelsVisitor)
    }
}

struct ModelsVisitor;

impl<'de> Visitor<'de> for ModelsVisitor {
    type Value = ModelsSection;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of models, or a table of models with their names at the server")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ModelsSection, A::Error> {
        let mut models = ModelsSection::default();
        while let Some(name) = list.next_element()? {
            models.names.push(name);
        }
        Ok(models)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<ModelsSection, A::Error> {
        let mut models = ModelsSection::default();
        while let Some((name, there)) = table.next_entry::<Spanned<String>, String>()? {
            models.renamed.insert(ModelName::from(name.get_ref().as_str()), there);
            models.names.push(name);
        }
        Ok(models)
    }
}
