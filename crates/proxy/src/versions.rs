//! Which replicas serve which version of a model.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_types::{ModelName, ModelVersion};

use crate::route_group::{Entrant, GroupMemory, Members, RouteGroup};
use crate::view::RouteSpec;

/// The one version of a model that a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    pub(crate) version: ModelVersion,
    pub(crate) telling: Telling,
}

/// How a replica learns which version is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// The request itself says so: in its path, or in a field of its own.
    InRequest,
    /// The request has no place for it, so only a replica that serves no other version will do.
    /// Any other might answer with the wrong one, and nobody would notice.
    ByChoice,
}

/// The replicas of one route that say which versions they serve.
#[derive(Debug, Default)]
pub(crate) struct VersionTable(BTreeMap<ModelName, BTreeMap<ModelVersion, Versioned>>);

/// The replicas of one version of a model.
#[derive(Debug)]
struct Versioned {
    /// All that serve it.
    serving: RouteGroup,
    /// Those that serve no other version of this model; `None` if there are none.
    alone: Option<RouteGroup>,
}

/// Why no replica can be asked for a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoVersion {
    /// The route's replicas serve these versions only.
    Unknown(Vec<ModelVersion>),
    /// Those that serve it serve others as well, and could not be told which one is meant.
    NotAlone,
}

impl VersionTable {
    /// The replicas for a version; `Ok(None)` if the model's replicas do not say which versions
    /// they serve, so that any of them is to judge.
    ///
    /// # Errors
    /// If no replica can be asked for it.
    pub(crate) fn group(
        &self,
        model: &ModelName,
        pin: &Pin,
    ) -> Result<Option<&RouteGroup>, NoVersion> {
        let Some(versions) = self.0.get(model) else {
            return match pin.telling {
                Telling::InRequest => Ok(None),
                Telling::ByChoice => Err(NoVersion::Unknown(Vec::new())),
            };
        };
        let Some(versioned) = versions.get(&pin.version) else {
            return Err(NoVersion::Unknown(versions.keys().cloned().collect()));
        };
        match pin.telling {
            Telling::InRequest => Ok(Some(&versioned.serving)),
            Telling::ByChoice => versioned.alone.as_ref().map(Some).ok_or(NoVersion::NotAlone),
        }
    }

    fn entry(&self, model: &ModelName, version: &ModelVersion) -> Option<&Versioned> {
        self.0.get(model)?.get(version)
    }
}

/// The groups of a table in the making.
#[derive(Debug, Default)]
pub(crate) struct VersionMembers(BTreeMap<(ModelName, ModelVersion), VersionedMembers>);

#[derive(Debug, Default)]
struct VersionedMembers {
    serving: Members,
    alone: Option<Members>,
}

impl VersionMembers {
    /// Adds a replica to the versions of `model` that it says it serves.
    pub(crate) fn add(&mut self, entrant: Entrant<'_>, model: &ModelName) {
        let versions = entrant.replica.spec.versions.get(model);
        let versions = versions.map(Vec::as_slice).unwrap_or_default();
        for version in versions {
            let members = self.0.entry((model.clone(), version.clone())).or_default();
            members.serving.add(entrant, Some(model));
            if versions.len() == 1 {
                let alone = members.alone.get_or_insert_default();
                alone.add(entrant, Some(model));
            }
        }
    }

    /// The table, with turns that go on from those of `before`.
    pub(crate) fn into_table(
        self,
        spec: &RouteSpec,
        before: Option<&VersionTable>,
        turns: impl Fn(Option<&RouteGroup>) -> Arc<GroupMemory>,
    ) -> VersionTable {
        let mut table = VersionTable::default();
        for ((model, version), members) in self.0 {
            let before = before.and_then(|table| table.entry(&model, &version));
            let serving = turns(before.map(|before| &before.serving));
            let alone = turns(before.and_then(|before| before.alone.as_ref()));
            let versioned = Versioned {
                serving: members.serving.into_group(spec, serving),
                alone: members.alone.map(|members| members.into_group(spec, alone)),
            };
            table.0.entry(model).or_default().insert(version, versioned);
        }
        table
    }
}
