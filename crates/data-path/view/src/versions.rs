//! Replicas by the version of a model that they serve.

use std::collections::BTreeMap;
use std::sync::Arc;

use spillway_types::{ModelName, ModelVersion};

use crate::group_memory::GroupMemory;
use crate::route_group::{Entrant, GroupMembers, RouteGroup};
use crate::route_spec::RouteSpec;

/// Required version of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// Version to ask for.
    pub version: ModelVersion,
    /// Way in which the replica learns the version.
    pub telling: VersionTelling,
}

/// Ways to request the version from a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionTelling {
    /// The request itself has the version: in its path, or in a separate field.
    InRequest,
    /// The request has no field for it, so it must go to a replica that serves no other version.
    /// Any other replica could answer with the wrong version, unnoticed.
    ByChoice,
}

/// Replicas of one route that declare their versions.
#[derive(Debug, Default)]
pub struct VersionTable(BTreeMap<ModelName, BTreeMap<ModelVersion, Versioned>>);

/// Replicas of one version of a model.
#[derive(Debug)]
struct Versioned {
    /// All replicas that serve the version.
    serving: RouteGroup,
    /// Replicas that serve no other version of this model; `None` if there are none.
    alone: Option<RouteGroup>,
}

/// Reasons why no replica can be asked for a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoVersion {
    /// The route's replicas serve only these versions.
    Unknown(Vec<ModelVersion>),
    /// All replicas with the version serve other versions too, and the request cannot name the
    /// version.
    NotAlone,
}

impl VersionTable {
    /// Returns the replicas for a version; `Ok(None)` if the model's replicas do not declare
    /// versions and the request has the version itself, so that any replica may judge.
    ///
    /// Returns an error if no replica can be asked for the version.
    pub fn group(&self, model: &ModelName, pin: &Pin) -> Result<Option<&RouteGroup>, NoVersion> {
        let Some(versions) = self.0.get(model) else {
            return match pin.telling {
                VersionTelling::InRequest => Ok(None),
                VersionTelling::ByChoice => Err(NoVersion::Unknown(Vec::new())),
            };
        };
        let Some(versioned) = versions.get(&pin.version) else {
            return Err(NoVersion::Unknown(versions.keys().cloned().collect()));
        };
        match pin.telling {
            VersionTelling::InRequest => Ok(Some(&versioned.serving)),
            VersionTelling::ByChoice => {
                versioned.alone.as_ref().map(Some).ok_or(NoVersion::NotAlone)
            }
        }
    }

    fn entry(&self, model: &ModelName, version: &ModelVersion) -> Option<&Versioned> {
        self.0.get(model)?.get(version)
    }
}

/// Groups of a table under construction.
#[derive(Debug, Default)]
pub struct VersionMembers(BTreeMap<(ModelName, ModelVersion), VersionedMembers>);

#[derive(Debug, Default)]
struct VersionedMembers {
    serving: GroupMembers,
    alone: Option<GroupMembers>,
}

impl VersionMembers {
    /// Adds a replica to each version of `model` that it declares.
    pub fn add(&mut self, entrant: Entrant<'_>, model: &ModelName) {
        let versions = entrant.replica.spec.versions.get(model);
        let versions = versions.map(Vec::as_slice).unwrap_or_default();
        for version in versions {
            let members = self.0.entry((model.clone(), version.clone())).or_default();
            members.serving.add(entrant, Some(model));
            // This replica can't mistake the version, even if the request does not name it.
            if versions.len() == 1 {
                let alone = members.alone.get_or_insert_default();
                alone.add(entrant, Some(model));
            }
        }
    }

    /// Builds the table. Memories of groups continue from those of `before`.
    pub fn into_table(
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
