//! `[aliases]`, `[[split]]` and `[fallback]`: names that mean other names.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::{ModelName, ModelVersion};
use spillway_view::{NameSpec, ReplicaSpec, SplitSpec};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors, all};
use crate::source::Source;
use crate::split_section::SplitSection;
use crate::suggestion::{listed, nearest};

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
pub(crate) struct ServedNames<'a> {
    models: &'a BTreeSet<ModelName>,
    versions: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// True if other regions, or replicas that are yet to be asked, may serve more models.
    is_open: bool,
}

impl<'a> ServedNames<'a> {
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
        let fault = |remedy: String| source.fault(model.span(), message, remedy);
        let remedy = format!("name one of: {}", listed(&known));
        Err(match nearest(model.get_ref(), &known) {
            Some(meant) => fault(remedy).labelled(format!("did you mean {meant:?}?")),
            None if known.is_empty() => fault("add a [[replica]] that serves it".to_owned()),
            None => fault(remedy),
        })
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
        served: &ServedNames<'_>,
    ) -> Result<NameSpec, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        errors.keep(self.check_split_names(source));
        let alias_names = self.aliases.keys().cloned().collect();
        let split_names: BTreeSet<String> =
            self.splits.iter().map(|split| split.model.get_ref().clone()).collect();
        let aliases = errors.keep(lower_aliases(source, self.aliases, served, &split_names));
        let known = (&alias_names, &split_names);
        let fallbacks = errors.keep(lower_fallbacks(source, self.fallbacks, served, known));
        let splits = errors.keep(lower_splits(source, self.splits, served, &split_names));
        errors.or(NameSpec {
            aliases: aliases.unwrap_or_default(),
            fallbacks: fallbacks.unwrap_or_default(),
            splits: splits.unwrap_or_default(),
        })
    }

    fn check_split_names(&self, source: &Source) -> Result<(), ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let mut places = BTreeMap::new();
        for split in &self.splits {
            let (name, at) = (split.model.get_ref(), split.model.span());
            if name.is_empty() {
                let remedy = "say what clients ask for";
                errors.add(source.fault(at.clone(), "the split has no name", remedy));
            }
            if let Some(earlier) = places.insert(name, at.clone()) {
                let message = format!("a second split is called {name:?}");
                let remedy = "put its arms into the first one";
                errors.add(source.collision(at.clone(), earlier, message, remedy));
            }
            if self.aliases.contains_key(name) {
                let message = format!("{name:?} is an alias too");
                let remedy = "remove the alias, or rename the split";
                errors.add(source.fault(at, message, remedy));
            }
        }
        errors.or(())
    }
}

/// Checks the text of a version.
///
/// # Errors
/// Returns an error if the version can't be used in a path.
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
    served: &ServedNames<'_>,
    splits: &BTreeSet<String>,
) -> Result<BTreeMap<ModelName, ModelName>, ConfigErrors> {
    let lowered = all(aliases.into_iter().map(|(alias, target)| {
        // A split needs no replica of its own name; its arms are checked with it.
        if !splits.contains(target.get_ref()) {
            served.check_model(source, &target)?;
        }
        let target = ModelName::from(target.into_inner());
        Ok::<_, ConfigError>((ModelName::from(alias), target))
    }))?;
    Ok(lowered.into_iter().collect())
}

fn lower_splits(
    source: &Source,
    sections: Vec<SplitSection>,
    served: &ServedNames<'_>,
    names: &BTreeSet<String>,
) -> Result<Vec<SplitSpec>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let mut splits: Vec<SplitSpec> = Vec::new();
    for section in sections {
        let cookie = section.sticky_cookie.clone();
        let Some(split) = errors.keep(section.lower(source, served, names)) else { continue };
        let has_it = |known: &SplitSpec| {
            let (known, own) = (known.sticky.as_ref(), split.sticky.as_ref());
            own.is_some_and(|own| known.is_some_and(|known| known.name == own.name))
        };
        if let (Some(cookie), Some(other)) = (cookie, splits.iter().find(|known| has_it(known))) {
            let message = format!("the split {} remembers its arms by this cookie", other.name);
            errors.add(source.fault(cookie.span(), message, "give each split its own cookie"));
        }
        splits.push(split);
    }
    errors.or(splits)
}

/// Names that are no models.
type OtherNames<'a> = (&'a BTreeSet<String>, &'a BTreeSet<String>);

fn lower_fallbacks(
    source: &Source,
    sections: FallbackSection,
    served: &ServedNames<'_>,
    others: OtherNames<'_>,
) -> Result<BTreeMap<ModelName, Vec<ModelName>>, ConfigErrors> {
    let lowered = all(sections.into_iter().map(|(model, list)| {
        let list = lower_fallback(source, &model, list, served, others)?;
        Ok::<_, ConfigErrors>((ModelName::from(model), list))
    }))?;
    Ok(lowered.into_iter().collect())
}

fn lower_fallback(
    source: &Source,
    model: &str,
    others: Spanned<Vec<Spanned<String>>>,
    served: &ServedNames<'_>,
    (aliases, splits): OtherNames<'_>,
) -> Result<Vec<ModelName>, ConfigErrors> {
    let span = others.span();
    let fault =
        |message: String, remedy: &str| Err(source.fault(span.clone(), message, remedy).into());
    // A split may have the name of a model. Then the fallbacks are those of the model, which an arm
    // may name.
    let is_model = served.models.contains(model);
    if aliases.contains(model) {
        let message = format!("{model:?} is an alias: its requests are its model's");
        return fault(message, "name the model that it stands for");
    }
    if splits.contains(model) && !is_model {
        let message = format!("{model:?} is a split: its requests are its arms' models'");
        return fault(message, "name the models of its arms");
    }
    if others.get_ref().is_empty() {
        return fault(format!("{model:?} has no fallback"), "name a model");
    }
    if others.get_ref().len() > FALLBACKS_MAX {
        let message = format!("a model has {FALLBACKS_MAX} fallbacks at most");
        return fault(message, "leave some out");
    }
    let mut errors = ConfigErrors::default();
    let mut list: Vec<ModelName> = Vec::new();
    for other in others.into_inner() {
        errors.keep(served.check_model(source, &other));
        // Only the fallbacks must be served, because they replace a model without any replica.
        let name = ModelName::from(other.get_ref().as_str());
        if *other.get_ref() == *model || list.contains(&name) {
            let message = format!("{:?} would be asked again: a loop", other.get_ref());
            errors.add(source.fault(other.span(), message, "remove it"));
        }
        list.push(name);
    }
    errors.or(list)
}
