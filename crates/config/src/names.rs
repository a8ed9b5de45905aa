//! `[aliases]`, `[[split]]` and `[fallback]`: names that stand for other names.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::{ModelName, ModelVersion};
use spillway_upstream::names::NameSpec;
use spillway_upstream::replica_spec::ReplicaSpec;
use spillway_upstream::split::SplitSpec;
use toml::Spanned;

use crate::error::{ConfigError, Source};
use crate::split_section::SplitSection;

/// Maximum number of fallbacks of one model: each of them costs a waiting client an attempt.
const FALLBACKS_MAX: usize = 8;

/// Models and their fallbacks, as they are written.
pub(crate) type FallbackSection = BTreeMap<String, Spanned<Vec<Spanned<String>>>>;

/// Sections about names.
#[derive(Debug)]
pub(crate) struct NameSections {
    aliases: BTreeMap<String, Spanned<String>>,
    splits: Vec<SplitSection>,
    fallbacks: FallbackSection,
}

/// Models and versions that replicas serve.
#[derive(Debug)]
pub(crate) struct Served<'a> {
    models: &'a BTreeSet<ModelName>,
    versions: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// True if other regions, or replicas that are yet to be asked, may serve more models.
    is_open: bool,
}

impl<'a> Served<'a> {
    pub(crate) fn new(
        models: &'a BTreeSet<ModelName>,
        replicas: impl IntoIterator<Item = &'a ReplicaSpec>,
        is_open: bool,
    ) -> Self {
        let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (model, of_model) in replicas.into_iter().flat_map(|replica| &replica.versions) {
            let versions = versions.entry(model.as_str()).or_default();
            versions.extend(of_model.iter().map(ModelVersion::as_str));
        }
        Self { models, versions, is_open }
    }

    /// Checks that the model is served.
    ///
    /// # Errors
    /// Returns an error if no replica serves the model.
    pub(crate) fn check_model(
        &self,
        source: &Source,
        model: &Spanned<String>,
    ) -> Result<(), ConfigError> {
        if self.is_open || self.models.contains(model.get_ref().as_str()) {
            return Ok(());
        }
        let message = format!("no replica serves the model {:?}", model.get_ref());
        let known: Vec<&str> = self.models.iter().map(ModelName::as_str).collect();
        Err(source.fault(model.span(), message, format!("name one of: {}", known.join(", "))))
    }

    /// Checks that the version is served.
    ///
    /// # Errors
    /// Returns an error if the model's replicas name their versions, and this is none of them.
    pub(crate) fn check_version(
        &self,
        source: &Source,
        model: &str,
        version: &Spanned<String>,
    ) -> Result<(), ConfigError> {
        check_version_text(source, version)?;
        // Replicas that name no versions take whichever is asked for.
        let Some(known) = self.versions.get(model) else { return Ok(()) };
        if known.contains(version.get_ref().as_str()) {
            return Ok(());
        }
        let message = format!("no replica serves version {:?} of {model}", version.get_ref());
        let known: Vec<&str> = known.iter().copied().collect();
        Err(source.fault(version.span(), message, format!("name one of: {}", known.join(", "))))
    }
}

impl NameSections {
    pub(crate) fn new(
        aliases: BTreeMap<String, Spanned<String>>,
        splits: Vec<SplitSection>,
        fallbacks: FallbackSection,
    ) -> Self {
        Self { aliases, splits, fallbacks }
    }

    /// Checks the sections.
    ///
    /// # Errors
    /// Returns the first fault, with its line.
    pub(crate) fn lower(
        self,
        source: &Source,
        served: &Served<'_>,
    ) -> Result<NameSpec, ConfigError> {
        self.check_split_names(source)?;
        let aliases = self.aliases.keys().cloned().collect();
        let splits: BTreeSet<String> =
            self.splits.iter().map(|split| split.model.get_ref().clone()).collect();
        Ok(NameSpec {
            aliases: lower_aliases(source, self.aliases, served, &splits)?,
            fallbacks: lower_fallbacks(source, self.fallbacks, served, (&aliases, &splits))?,
            splits: lower_splits(source, self.splits, served, &splits)?,
        })
    }

    fn check_split_names(&self, source: &Source) -> Result<(), ConfigError> {
        let mut names = BTreeSet::new();
        for split in &self.splits {
            let (name, span) = (split.model.get_ref(), split.model.span());
            if name.is_empty() {
                return Err(source.fault(
                    span,
                    "the split has no name",
                    "say what clients ask for",
                ));
            }
            if !names.insert(name) {
                let message = format!("a second split is called {name:?}");
                return Err(source.fault(span, message, "put its arms into the first one"));
            }
            if self.aliases.contains_key(name) {
                let message = format!("{name:?} is an alias too");
                return Err(source.fault(span, message, "remove the alias, or rename the split"));
            }
        }
        Ok(())
    }
}

/// Checks the text of a version.
///
/// # Errors
/// Returns an error if the version can't stand in a path.
pub(crate) fn check_version_text(
    source: &Source,
    version: &Spanned<String>,
) -> Result<(), ConfigError> {
    const VERSION_MAX: usize = 64;
    let text = version.get_ref();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    // A version of dots alone would be a step up in a path.
    let is_step = text.bytes().all(|byte| byte == b'.');
    if text.len() <= VERSION_MAX && !is_step && text.bytes().all(is_plain) {
        return Ok(());
    }
    let message = format!("{text:?} can't be a version");
    let remedy = format!("use up to {VERSION_MAX} letters, digits, hyphens and dots");
    Err(source.fault(version.span(), message, remedy))
}

fn lower_aliases(
    source: &Source,
    aliases: BTreeMap<String, Spanned<String>>,
    served: &Served<'_>,
    splits: &BTreeSet<String>,
) -> Result<BTreeMap<ModelName, ModelName>, ConfigError> {
    let mut lowered = BTreeMap::new();
    for (alias, target) in aliases {
        // A split needs no replica of its own name; its arms are checked with it.
        if !splits.contains(target.get_ref()) {
            served.check_model(source, &target)?;
        }
        lowered.insert(ModelName::from(alias), ModelName::from(target.into_inner()));
    }
    Ok(lowered)
}

fn lower_splits(
    source: &Source,
    sections: Vec<SplitSection>,
    served: &Served<'_>,
    names: &BTreeSet<String>,
) -> Result<Vec<SplitSpec>, ConfigError> {
    let mut splits: Vec<SplitSpec> = Vec::new();
    for section in sections {
        let cookie = section.sticky_cookie.clone();
        let split = section.lower(source, served, names)?;
        let has_it = |known: &SplitSpec| {
            let (known, own) = (known.sticky.as_ref(), split.sticky.as_ref());
            own.is_some_and(|own| known.is_some_and(|known| known.name == own.name))
        };
        if let (Some(cookie), Some(other)) = (cookie, splits.iter().find(|known| has_it(known))) {
            let message = format!("the split {} remembers its arms by this cookie", other.name);
            return Err(source.fault(cookie.span(), message, "give each split its own cookie"));
        }
        splits.push(split);
    }
    Ok(splits)
}

fn lower_fallbacks(
    source: &Source,
    sections: FallbackSection,
    served: &Served<'_>,
    (aliases, splits): (&BTreeSet<String>, &BTreeSet<String>),
) -> Result<BTreeMap<ModelName, Vec<ModelName>>, ConfigError> {
    let mut lowered = BTreeMap::new();
    for (model, others) in sections {
        let span = others.span();
        let fault = |message: String, remedy: &str| source.fault(span.clone(), message, remedy);
        // A split may have the name of a model. Then the fallbacks are those of the model, which an
        // arm may name.
        let is_model = served.models.contains(model.as_str());
        if aliases.contains(&model) {
            let message = format!("{model:?} is an alias: its requests are its model's");
            return Err(fault(message, "name the model that it stands for"));
        }
        if splits.contains(&model) && !is_model {
            let message = format!("{model:?} is a split: its requests are its arms' models'");
            return Err(fault(message, "name the models of its arms"));
        }
        if others.get_ref().is_empty() {
            return Err(fault(format!("nothing stands in for {model:?}"), "name a model"));
        }
        if others.get_ref().len() > FALLBACKS_MAX {
            let message = format!("a model has {FALLBACKS_MAX} stand-ins at most");
            return Err(fault(message, "leave some out"));
        }
        let mut list: Vec<ModelName> = Vec::new();
        for other in others.into_inner() {
            served.check_model(source, &other)?;
            // Only the fallbacks must be served: a model without any replica is what they stand in
            // for.
            let name = ModelName::from(other.get_ref().as_str());
            if *other.get_ref() == model || list.contains(&name) {
                let message = format!("{name:?} would be asked again: a loop");
                return Err(source.fault(other.span(), message, "remove it"));
            }
            list.push(name);
        }
        lowered.insert(ModelName::from(model), list);
    }
    Ok(lowered)
}
