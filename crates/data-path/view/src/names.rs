//! Names that clients may ask for: models, aliases, splits and versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_types::{ModelName, ModelVersion};

use crate::remote::GuestTerms;
use crate::split::{ArmSources, ChosenArm, SplitSpec};

/// Mark between a model's name and its version: `resnet@2`.
const VERSION_MARK: char = '@';

/// Names in the config beyond the models that replicas serve.
#[derive(Clone, Debug, Default)]
pub struct NameSpec {
    /// Aliases of a model or a split.
    pub aliases: BTreeMap<ModelName, ModelName>,
    /// Names whose requests are split between models.
    pub splits: Vec<SplitSpec>,
    /// Fallback models, in the order in which they are asked, if a model cannot be served.
    pub fallbacks: BTreeMap<ModelName, Vec<ModelName>>,
}

/// All names that a client may ask for.
#[derive(Debug)]
pub struct Names {
    spec: Arc<NameSpec>,
    /// Positions in `spec.splits`, by name.
    splits: BTreeMap<ModelName, usize>,
    /// Models that replicas serve, or that have fallbacks.
    models: BTreeSet<ModelName>,
    /// Models for which some replica declares its versions.
    versioned: BTreeSet<ModelName>,
    /// All names: models first, sorted, then aliases and splits, sorted.
    listed: Vec<ModelName>,
}

/// A name as a client sent it.
#[derive(Clone, Copy, Debug)]
pub struct AskedName<'a> {
    /// Name that the client gave.
    pub name: &'a str,
    /// Version, if the request has a separate field for it.
    pub version: Option<&'a str>,
    /// Sources for choosing the arm of a split; `None` if the model's name in the request cannot be
    /// changed, so that a model is preferred to a split of the same name.
    pub sources: Option<ArmSources<'a>>,
}

/// Model to which a name resolves in one request.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// Model that it means.
    pub model: ModelName,
    /// Version, if the name gives one.
    pub version: Option<ModelVersion>,
    /// Arm of the split that was drawn, if the name is split.
    pub arm: Option<Box<ChosenArm>>,
}

/// Reasons why a name cannot be resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// The name is unknown.
    Unknown,
    /// The request asks for a version of a split.
    VersionOfSplit,
    /// The request asks for two versions at once.
    TwoVersions,
    /// The name is a split, and the model's name in the request cannot be changed.
    FixedName,
}

/// Kind of a name by itself.
enum NameKind<'n> {
    Model(&'n ModelName),
    Split(&'n SplitSpec),
    Version(&'n ModelName, ModelVersion),
}

impl Names {
    /// Builds the names from the config and the models that replicas serve. `served` has each model
    /// of each replica, with true if that replica declares which versions of it it serves.
    pub fn new<'s>(
        spec: Arc<NameSpec>,
        served: impl IntoIterator<Item = (&'s ModelName, bool)>,
    ) -> Self {
        // A model with fallbacks can be asked for even while no replica serves it.
        let mut models: BTreeSet<ModelName> = spec.fallbacks.keys().cloned().collect();
        let mut versioned = BTreeSet::new();
        for (model, is_versioned) in served {
            models.insert(model.clone());
            if is_versioned {
                versioned.insert(model.clone());
            }
        }
        let splits: BTreeMap<ModelName, usize> =
            spec.splits.iter().map(|split| split.name.clone()).zip(0..).collect();
        let others: BTreeSet<&ModelName> = spec.aliases.keys().chain(splits.keys()).collect();
        // A name of both a model and a split is listed once.
        let others = others.into_iter().filter(|name| !models.contains(*name));
        let listed = models.iter().chain(others).cloned().collect();
        Self { listed, versioned, models, splits, spec }
    }

    /// Lists these models no more. Clients may still ask for them.
    pub fn hide(&mut self, models: &BTreeSet<ModelName>) {
        self.listed.retain(|name| !models.contains(name));
    }

    /// Returns all names, models first: clients that ask for no name get the first one.
    pub fn listed(&self) -> &[ModelName] {
        &self.listed
    }

    /// Returns true if a client may ask for this name.
    pub fn knows(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    /// Returns the model or split that the name denotes: as an alias, as a version, or itself.
    pub fn behind(&self, name: &str) -> Option<&ModelName> {
        Some(match self.named(name)? {
            NameKind::Model(model) | NameKind::Version(model, _) => model,
            NameKind::Split(split) => &split.name,
        })
    }

    /// Returns the models that may serve requests for a name: one, unless it is a split.
    pub fn models_behind(&self, name: &str) -> Vec<&ModelName> {
        match self.named(name) {
            Some(NameKind::Model(model) | NameKind::Version(model, _)) => vec![model],
            Some(NameKind::Split(split)) => split.arms.iter().map(|arm| &arm.model).collect(),
            None => Vec::new(),
        }
    }

    /// Returns the fallbacks of a model, best first.
    pub fn fallbacks(&self, model: &ModelName) -> &[ModelName] {
        self.spec.fallbacks.get(model).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the model and version that a request is for.
    ///
    /// # Errors
    /// Returns an error if the name cannot be resolved.
    pub fn resolve(
        &self,
        asked: AskedName<'_>,
        dice: impl FnOnce() -> fastrand::Rng,
    ) -> Result<Resolved, Unresolved> {
        let version = asked.version.map(ModelVersion::from);
        match self.named(asked.name).ok_or(Unresolved::Unknown)? {
            NameKind::Model(model) => Ok(Resolved::plain(model, version)),
            NameKind::Version(model, named) => match version {
                Some(other) if other != named => Err(Unresolved::TwoVersions),
                _ => Ok(Resolved::plain(model, Some(named))),
            },
            // Only models have versions: a request with a version means the model of that name.
            NameKind::Split(split) if version.is_some() => {
                let model = self.models.get(&split.name).ok_or(Unresolved::VersionOfSplit)?;
                Ok(Resolved::plain(model, version))
            }
            NameKind::Split(split) => {
                let Some(sources) = asked.sources else {
                    let model = self.models.get(&split.name).ok_or(Unresolved::FixedName)?;
                    return Ok(Resolved::plain(model, None));
                };
                let (arm, chosen) = split.choose(sources, &mut dice());
                let (model, version) = (arm.model.clone(), arm.version.clone());
                Ok(Resolved { model, version, arm: Some(Box::new(chosen)) })
            }
        }
    }

    fn named(&self, name: &str) -> Option<NameKind<'_>> {
        // First as a whole: a model's own name may contain the mark.
        self.whole(name).or_else(|| {
            let (base, version) = name.rsplit_once(VERSION_MARK)?;
            // Unless replicas declare versions, no replica could be chosen by one.
            let model = match self.whole(base)? {
                NameKind::Model(model) => model,
                NameKind::Split(split) => self.models.get(&split.name)?,
                NameKind::Version(..) => return None,
            };
            let is_versioned = self.versioned.contains(model) && !version.is_empty();
            is_versioned.then(|| NameKind::Version(model, ModelVersion::from(version)))
        })
    }

    /// Returns the kind of a name that has no version in it.
    fn whole(&self, name: &str) -> Option<NameKind<'_>> {
        let name = self.spec.aliases.get(name).map_or(name, |target| target.as_str());
        // A split hides the model of the same name.
        match self.splits.get(name) {
            Some(index) => self.spec.splits.get(*index).map(NameKind::Split),
            None => self.models.get(name).map(NameKind::Model),
        }
    }
}

impl GuestTerms {
    /// Returns the model that the sending node resolved the name to; `None` if it did not.
    pub fn resolved(&self) -> Option<Resolved> {
        let model = self.model.clone()?;
        Some(Resolved { model, version: self.version.clone(), arm: None })
    }
}

impl Resolved {
    fn plain(model: &ModelName, version: Option<ModelVersion>) -> Self {
        Self { model: model.clone(), version, arm: None }
    }
}

#[cfg(test)]
#[path = "names_test.rs"]
mod names_test;
