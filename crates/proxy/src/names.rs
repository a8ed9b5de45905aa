//! The names that clients may ask for, and what each stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spillway_types::{ModelName, ModelVersion};

use crate::remote::GuestTerms;
use crate::split::{ArmSources, ChosenArm, SplitSpec};

/// What stands between a name at the end of a model's name and its version: `resnet@2`.
const VERSION_MARK: char = '@';

/// What the config says about names beyond the models that replicas serve.
#[derive(Clone, Debug, Default)]
pub struct NameSpec {
    /// Names that stand for a model or a split.
    pub aliases: BTreeMap<ModelName, ModelName>,
    /// Names whose requests are split between models.
    pub splits: Vec<SplitSpec>,
    /// The models that are asked, in this order, if a model can't be served.
    pub fallbacks: BTreeMap<ModelName, Vec<ModelName>>,
}

/// Every name that a client may ask for.
#[derive(Debug)]
pub(crate) struct Names {
    spec: Arc<NameSpec>,
    /// Positions in the spec's list, by name.
    splits: BTreeMap<ModelName, usize>,
    /// Models that replicas serve, or others in their place.
    models: BTreeSet<ModelName>,
    /// Models of which some replica says which versions it serves.
    versioned: BTreeSet<ModelName>,
    /// All names: the models, sorted, and then what stands for others, sorted.
    listed: Vec<ModelName>,
}

/// A name as a client sent it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    /// The version, where the request has a place of its own for it.
    pub(crate) version: Option<&'a str>,
    /// What the arm of a split is chosen by; `None` where the model's name in the request can't be
    /// changed, so that a model is preferred to a split of the same name.
    pub(crate) sources: Option<ArmSources<'a>>,
}

/// What a name stands for in one request.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) model: ModelName,
    pub(crate) version: Option<ModelVersion>,
    pub(crate) arm: Option<ChosenArm>,
}

/// Why a name stands for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// There is no such name.
    Unknown,
    /// It asks for a version of a split.
    VersionOfSplit,
    /// It asks for two versions at once.
    TwoVersions,
    /// It is a split, and the request can't be made to name another model.
    FixedName,
}

/// What a name is by itself.
enum Named<'n> {
    Model(&'n ModelName),
    Split(&'n SplitSpec),
    Version(&'n ModelName, ModelVersion),
}

impl Names {
    /// `served`: the models of all replicas, each with whether that replica says which versions of
    /// it it serves.
    pub(crate) fn new<'s>(
        spec: Arc<NameSpec>,
        served: impl IntoIterator<Item = (&'s ModelName, bool)>,
    ) -> Self {
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
        let others = others.into_iter().filter(|name| !models.contains(*name));
        let listed = models.iter().chain(others).cloned().collect();
        Self { listed, versioned, models, splits, spec }
    }

    /// Every name, models first: clients that are told no name take the first one.
    pub(crate) fn listed(&self) -> &[ModelName] {
        &self.listed
    }

    /// Whether a client may ask for this.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.named(name).is_some()
    }

    /// The model or split that a name is an alias, a version or the very name of.
    pub(crate) fn behind(&self, name: &str) -> Option<&ModelName> {
        Some(match self.named(name)? {
            Named::Model(model) | Named::Version(model, _) => model,
            Named::Split(split) => &split.name,
        })
    }

    /// The models that may serve requests for a name: one, unless it is a split.
    pub(crate) fn models_behind(&self, name: &str) -> Vec<&ModelName> {
        match self.named(name) {
            Some(Named::Model(model) | Named::Version(model, _)) => vec![model],
            Some(Named::Split(split)) => split.arms.iter().map(|arm| &arm.model).collect(),
            None => Vec::new(),
        }
    }

    /// The models that stand in for this one, best first.
    pub(crate) fn fallbacks(&self, model: &ModelName) -> &[ModelName] {
        self.spec.fallbacks.get(model).map(Vec::as_slice).unwrap_or_default()
    }

    /// The model and version that a request is for.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn resolve(
        &self,
        asked: Asked<'_>,
        dice: impl FnOnce() -> fastrand::Rng,
    ) -> Result<Resolved, Unresolved> {
        let version = asked.version.map(ModelVersion::from);
        match self.named(asked.name).ok_or(Unresolved::Unknown)? {
            Named::Model(model) => Ok(Resolved::plain(model, version)),
            Named::Version(model, named) => match version {
                Some(other) if other != named => Err(Unresolved::TwoVersions),
                _ => Ok(Resolved::plain(model, Some(named))),
            },
            // A version is a model's: whoever asks for one means the model.
            Named::Split(split) if version.is_some() => {
                let model = self.models.get(&split.name).ok_or(Unresolved::VersionOfSplit)?;
                Ok(Resolved::plain(model, version))
            }
            Named::Split(split) => {
                let Some(sources) = asked.sources else {
                    let model = self.models.get(&split.name).ok_or(Unresolved::FixedName)?;
                    return Ok(Resolved::plain(model, None));
                };
                let (arm, chosen) = split.choose(sources, &mut dice());
                let (model, version) = (arm.model.clone(), arm.version.clone());
                Ok(Resolved { model, version, arm: Some(chosen) })
            }
        }
    }

    fn named(&self, name: &str) -> Option<Named<'_>> {
        self.whole(name).or_else(|| {
            let (base, version) = name.rsplit_once(VERSION_MARK)?;
            // Without versions that replicas declare, nobody could say which replica is meant.
            let model = match self.whole(base)? {
                Named::Model(model) => model,
                Named::Split(split) => self.models.get(&split.name)?,
                Named::Version(..) => return None,
            };
            let is_versioned = self.versioned.contains(model) && !version.is_empty();
            is_versioned.then(|| Named::Version(model, ModelVersion::from(version)))
        })
    }

    /// What a name is without a version in it.
    fn whole(&self, name: &str) -> Option<Named<'_>> {
        let name = self.spec.aliases.get(name).map_or(name, |target| target.as_str());
        match self.splits.get(name) {
            Some(index) => self.spec.splits.get(*index).map(Named::Split),
            None => self.models.get(name).map(Named::Model),
        }
    }
}

impl GuestTerms {
    /// What the node that sent the request found its name to stand for.
    pub(crate) fn resolved(&self) -> Option<Resolved> {
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
