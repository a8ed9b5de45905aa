//! Kinds of records that commands name.

use std::sync::LazyLock;

use anyhow::{Result, bail};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use spillway_node::Resource;

use crate::cluster::client::escaped;
use crate::output::WrongUsage;

/// Kind of record. Commands take its name, and the name of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) Resource);

impl ValueEnum for Kind {
    fn value_variants<'a>() -> &'a [Self] {
        static KINDS: LazyLock<Vec<Kind>> =
            LazyLock::new(|| Resource::ALL.iter().copied().map(Kind).collect());
        &KINDS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let name = PossibleValue::new(self.0.name());
        Some(name.alias(self.0.singular()).help(self.0.about()))
    }
}

/// Returns the path of a record in the API.
///
/// # Errors
/// Returns an error if the name has too few parts.
pub(crate) fn path_of(resource: Resource, name: &str) -> Result<String> {
    let parameters = resource.parameters();
    let parts: Vec<String> = name.splitn(parameters.len(), '/').map(escaped).collect();
    if parts.len() < parameters.len() {
        let form = parameters.join("/").to_ascii_uppercase();
        bail!(WrongUsage(format!("{name:?} names no {}: write {form}", resource.singular())));
    }
    Ok(format!("/v1/{}/{}", resource.name(), parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_has_the_names_of_all_and_of_one() {
        for resource in Resource::ALL {
            for name in [resource.name(), resource.singular()] {
                assert_eq!(Kind::from_str(name, false), Ok(Kind(*resource)));
            }
        }
        assert!(Kind::from_str("tenantz", false).is_err());
    }

    #[test]
    fn the_name_of_a_replica_has_two_parts_and_a_model_keeps_its_slash() {
        let path = |resource, name| path_of(resource, name).unwrap();
        assert_eq!(path(Resource::Replicas, "eu/gpu 1"), "/v1/replicas/eu/gpu%201");
        assert_eq!(path(Resource::Models, "meta/small"), "/v1/models/meta%2Fsmall");
        let short = path_of(Resource::Replicas, "gpu-1").unwrap_err().to_string();
        assert!(short.contains("write REGION/REPLICA"), "{short}");
    }
}
