//! Replicas that were registered with the cluster, in the form of this node's config.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use spillway_cluster_state::ReplicaSpec;
use spillway_config::{CareDefaults, ConfigError, ConfigErrors, ReplicaConfig, read_replicas};
use spillway_replicas::ServerKind;
use spillway_types::ReplicaName;

use crate::fold::{AgreedReplica, AgreedWorld, Kind, Notes, Use};

/// Maximum number of registered replicas of one region: as many as a file of a discovery has room
/// for. Each has a monitor and a place in every view.
const REGISTERED_MAX: usize = 10_000;

/// Cache of the configs made of registrations. Making one again would read the system's CAs.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    defaults: Option<CareDefaults>,
    known: BTreeMap<ReplicaName, (ReplicaSpec, Result<ReplicaConfig, String>)>,
    /// Names of the registered replicas that are served.
    used: BTreeSet<ReplicaName>,
}

impl Registered {
    /// Returns the registered replicas that can be used, beside those whose names are in `taken`.
    pub(super) fn configs(
        &mut self,
        agreed: &AgreedWorld,
        taken: &BTreeSet<&ReplicaName>,
        defaults: &CareDefaults,
        notes: &mut Notes,
    ) -> Vec<ReplicaConfig> {
        // Configs that were made with other defaults are of no use any more.
        if self.defaults.as_ref() != Some(defaults) {
            *self = Self { defaults: Some(defaults.clone()), ..Self::default() };
        }
        let is_there = |name: &ReplicaName| agreed.replicas.contains_key(name);
        self.known.retain(|name, _| is_there(name));
        let mut configs = Vec::new();
        for (name, spec) in
            agreed.replicas.iter().filter_map(|(name, replica)| registration(name, replica))
        {
            match self.config(name, spec, defaults, (taken, configs.len())) {
                Ok(config) => {
                    notes.add(Kind::Replica, name.as_str(), Use::Used, String::new());
                    configs.push(config);
                }
                Err(why) => notes.add(Kind::Replica, name.as_str(), Use::Unusable, why),
            }
        }
        self.used = configs.iter().map(|config| config.spec.name.clone()).collect();
        configs
    }

    /// Returns true if a replica is served because it was registered.
    pub(crate) fn is_used(&self, name: &ReplicaName) -> bool {
        self.used.contains(name)
    }

    fn config(
        &mut self,
        name: &ReplicaName,
        spec: &ReplicaSpec,
        defaults: &CareDefaults,
        (taken, count): (&BTreeSet<&ReplicaName>, usize),
    ) -> Result<ReplicaConfig, String> {
        if taken.contains(name) {
            return Err("the config of this node has a replica of that name".to_owned());
        }
        if count >= REGISTERED_MAX {
            return Err(format!("there are {REGISTERED_MAX} others"));
        }
        // A fault is kept as well: the same registration would only fail again.
        if let Some((_, made)) = self.known.get(name).filter(|(known, _)| known == spec) {
            return made.clone();
        }
        let told = |errors: ConfigErrors| {
            errors.iter().map(|error| error.message.as_str()).collect::<Vec<_>>().join("; ")
        };
        let made = lower(name, spec, defaults).map_err(told);
        self.known.insert(name.clone(), (spec.clone(), made.clone()));
        made
    }
}

fn registration<'a>(
    name: &'a ReplicaName,
    replica: &'a AgreedReplica,
) -> Option<(&'a ReplicaName, &'a ReplicaSpec)> {
    replica.registered.as_ref().map(|spec| (name, spec))
}

/// Converts a registration to the form of a config, so that all rules of the config hold for it:
/// writes it as a section, and reads that with the config's reader.
fn lower(
    name: &ReplicaName,
    spec: &ReplicaSpec,
    defaults: &CareDefaults,
) -> Result<ReplicaConfig, ConfigErrors> {
    // A string that JSON writes is read by TOML as the same text.
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let models: Vec<String> = spec.models.iter().map(|model| text(model.as_str())).collect();
    let mut section = format!(
        "[[replica]]\nname = {}\nurl = {}\npool = {}\nweight = {}\n",
        text(name.as_str()),
        text(&spec.url),
        text(&spec.pool),
        spec.weight,
    );
    if !models.is_empty() {
        section.push_str(&format!("models = [{}]\n", models.join(", ")));
    }
    // Any other software, or "openai" where none was named, is recognised as far as it can be.
    if let Ok(kind) = spec.engine.parse::<ServerKind>() {
        section.push_str(&format!("kind = {}\n", text(kind.as_str())));
    }
    if let Some(capacity) = spec.capacity {
        section.push_str(&format!("connections_max = {capacity}\n"));
    }
    let path = Path::new("registration");
    let mut config = read_replicas(&section, path, defaults)?
        .pop()
        .ok_or_else(|| ConfigError::whole_file(path, "it is empty".to_owned(), "register again"))?;
    // The lease may end at any time.
    config.may_vanish = true;
    Ok(config)
}
