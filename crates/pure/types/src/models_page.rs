//! The list of models that a model server publishes.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::ModelName;

/// Bytes of an entry beside its texts: its place in the tree, and the ends of its strings.
const ENTRY_BYTES: usize = 256;
/// Bytes of a field beside its texts.
const FIELD_BYTES: usize = 96;

/// The `/v1/models` page of one model server, as far as it could be read within bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelsPage {
    /// The server's models by id, each once.
    models: BTreeMap<ModelName, ServedModel>,
    /// True if the server lists more models than were read.
    is_cut: bool,
}

/// A model of a [`ModelsPage`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedModel {
    /// Owner of the model, as the server reports it. Many servers put the name of their software
    /// here, e.g. `vllm`.
    pub owned_by: Option<String>,
    /// The model behind the id, e.g. the path that it was loaded from.
    pub root: Option<String>,
    /// Further fields such as `parent`, `max_model_len` or `meta`, each with its value as compact
    /// JSON.
    pub fields: BTreeMap<String, String>,
}

impl ServedModel {
    /// Returns about how much memory the entry takes under an id, in bytes.
    #[must_use]
    pub fn bytes(&self, id: &ModelName) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let fields = self.fields.iter().map(|(name, value)| FIELD_BYTES + name.len() + value.len());
        let texts = id.as_str().len() + text(&self.owned_by) + text(&self.root);
        ENTRY_BYTES + texts + fields.sum::<usize>()
    }
}

impl ModelsPage {
    /// Makes a page of these models; of several with one id the first counts.
    #[must_use]
    pub fn new(models: impl IntoIterator<Item = (ModelName, ServedModel)>) -> Self {
        let mut page = Self::default();
        for (id, model) in models {
            page.models.entry(id).or_insert(model);
        }
        page
    }

    /// Returns a page of the first models, up to the first that `keep` refuses: incomplete, if one was
    /// refused.
    #[must_use]
    pub fn first(&self, mut keep: impl FnMut(&ModelName, &ServedModel) -> bool) -> Self {
        let kept = self.models.iter().take_while(|(id, model)| keep(id, model));
        let models: BTreeMap<_, _> = kept.map(|(id, model)| (id.clone(), model.clone())).collect();
        let is_cut = self.is_cut || models.len() < self.models.len();
        Self { models, is_cut }
    }

    /// Returns each model with its id, sorted by id.
    pub fn iter(&self) -> impl Iterator<Item = (&ModelName, &ServedModel)> {
        self.models.iter()
    }

    /// Returns about how much memory the page takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.models.iter().map(|(id, model)| model.bytes(id)).sum()
    }

    /// Marks the page as incomplete.
    #[must_use]
    pub fn cut(self) -> Self {
        Self { is_cut: true, ..self }
    }

    /// Returns true if the page shows that the server does not have the model: the page is
    /// complete, lists other models, and not this one.
    // A page that was cut proves nothing, and an empty page comes from servers that list no models
    // at all.
    #[must_use]
    pub fn denies(&self, id: &ModelName) -> bool {
        !self.is_cut && !self.models.is_empty() && !self.models.contains_key(id)
    }

    /// Returns the entry of a model; `None` if the page does not list the model.
    #[must_use]
    pub fn get(&self, id: &ModelName) -> Option<&ServedModel> {
        self.models.get(id)
    }

    /// Returns every id, sorted.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &ModelName> {
        self.models.keys()
    }

    /// Returns true if the page lists no model.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns the owner that all models have in common; `None` if owners differ or one is missing.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        let mut owners = self.models.values().map(|model| model.owned_by.as_deref());
        // There may be no first model, or it may have no owner.
        let first = owners.next()??;
        owners.all(|owner| owner == Some(first)).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(id: &str, owner: Option<&str>) -> (ModelName, ServedModel) {
        let owned_by = owner.map(str::to_owned);
        (id.into(), ServedModel { owned_by, ..ServedModel::default() })
    }

    #[test]
    fn of_several_models_with_one_id_the_first_counts() {
        let page = ModelsPage::new([owned("m", Some("a")), owned("m", Some("b"))]);
        let owner = page.get(&"m".into()).and_then(|model| model.owned_by.as_deref());
        assert_eq!((owner, page.ids().len()), (Some("a"), 1));
    }

    #[test]
    fn only_a_whole_page_with_other_models_denies_one() {
        let page = ModelsPage::new([owned("m", None)]);
        assert!(page.denies(&"other".into()) && !page.denies(&"m".into()));
        assert!(!page.cut().denies(&"other".into()));
        assert!(!ModelsPage::default().denies(&"other".into()));
    }

    #[test]
    fn an_owner_is_known_if_all_models_name_the_same() {
        let owner = |models: &[(&str, Option<&str>)]| {
            let page = ModelsPage::new(models.iter().map(|(id, owner)| owned(id, *owner)));
            page.owner().map(str::to_owned)
        };
        assert_eq!(owner(&[("a", Some("vllm")), ("b", Some("vllm"))]).as_deref(), Some("vllm"));
        assert_eq!(owner(&[("a", Some("vllm")), ("b", Some("me"))]), None);
        assert_eq!(owner(&[("a", Some("vllm")), ("b", None)]), None);
        assert_eq!(owner(&[]), None);
    }
}
