//! Config file of the gateway under test.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::Path,
    process::Command,
};

use anyhow::Context as _;

use super::schema::Features;
use crate::request::MODEL;

/// Time limit in milliseconds for the head of a reply, about 40 times the time of a healthy
/// replica. The gateway's default of ten minutes suits language models, but not a run of seconds.
const FIRST_BYTE_MS: u64 = 4_000;

/// Longest pause inside a reply in milliseconds; a token comes every few milliseconds.
const IDLE_MS: u64 = 2_000;

/// Drain time in milliseconds when the gateway is ended; requests are over by then.
const DRAIN_MS: u64 = 500;

/// Key of hashing policies.
const HASH_BY: &str = "header:x-user";

/// Policy with the other settings that its route needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyChoice {
    /// Name of the policy.
    pub(crate) name: String,
    hash_by: Option<&'static str>,
}

/// Inputs of the config file.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSpec<'a> {
    /// Settings that the binary knows.
    pub(crate) features: &'a Features,
    /// Policy of the only route.
    pub(crate) policy: &'a PolicyChoice,
    /// Addresses of all emulated replicas.
    pub(crate) replicas: &'a [SocketAddr],
    /// Replicas that are in the file, as indices.
    pub(crate) members: &'a BTreeSet<u16>,
    /// Settings of `[health]`; all others keep their defaults.
    pub(crate) health: &'a Health,
}

/// Settings of `[health]` by name.
pub(crate) type Health = BTreeMap<String, u64>;

impl PolicyChoice {
    /// Finds out if the policy needs a key to hash by, by asking the binary to check both configs.
    ///
    /// # Errors
    /// Returns an error if the binary refuses the config with the key and without.
    pub(crate) fn find(
        spillway: &Path,
        features: &Features,
        name: &str,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut refusal = String::new();
        // Without a key first: a policy that does not hash is refused with one.
        for hash_by in [None, Some(HASH_BY)] {
            let choice = Self { name: name.to_owned(), hash_by };
            let spec = ConfigSpec {
                features,
                policy: &choice,
                // Any address will do: the config is only checked.
                replicas: &[SocketAddr::from(([127, 0, 0, 1], 9))],
                members: &BTreeSet::from([0]),
                health: &Health::new(),
            };
            let file = folder.join("check.toml");
            fs::write(&file, config(&spec)?)?;
            let output = Command::new(spillway).args(["config", "check"]).arg(&file).output()?;
            if output.status.success() {
                return Ok(choice);
            }
            refusal = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        }
        anyhow::bail!("the policy {name} is refused: {refusal}")
    }
}

/// Returns the name of a replica in the config.
pub(crate) fn replica_name(index: u16) -> String {
    format!("replica-{index}")
}

/// Returns the index of the replica with this name; `None` for other names.
pub(crate) fn replica_index(name: &str) -> Option<u16> {
    name.strip_prefix("replica-")?.parse().ok()
}

/// Returns the text of the file. The system chooses the ports, and the gateway announces them.
///
/// # Errors
/// Returns an error for a member without an address.
pub(crate) fn config(spec: &ConfigSpec<'_>) -> anyhow::Result<String> {
    let mut text = format!(
        "[node]\nname = \"faults\"\nregion = \"local\"\nexpose_routing = true\n\
         drain_ms = {DRAIN_MS}\n\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\n\n[admin]\naddress = \"127.0.0.1:0\"\n\n\
         [timeouts]\nfirst_byte_ms = {FIRST_BYTE_MS}\nidle_ms = {IDLE_MS}\n\n"
    );
    let knows_kinds = spec.features.replica.contains("kind");
    if !spec.features.health.is_empty() {
        text.push_str("[health]\n");
        // Otherwise the kind of a replica determines the check.
        if !knows_kinds {
            text.push_str("check = \"http\"\n");
        }
        for (name, value) in spec.health {
            writeln!(text, "{name} = {value}")?;
        }
        text.push('\n');
    }
    writeln!(text, "[[route]]\nname = \"llm\"\npolicy = \"{}\"", spec.policy.name)?;
    if let Some(hash_by) = spec.policy.hash_by {
        writeln!(text, "hash_by = \"{hash_by}\"")?;
    }
    for member in spec.members {
        let address = spec.replicas.get(usize::from(*member)).context("no such replica")?;
        let name = replica_name(*member);
        write!(
            text,
            "\n[[replica]]\nname = \"{name}\"\nurl = \"http://{address}\"\nmodels = [\"{MODEL}\"]\n"
        )?;
        if knows_kinds {
            text.push_str("kind = \"vllm\"\n");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(health: &[&str], replica: &[&str]) -> String {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let features =
            Features { policies: Vec::new(), health: set(health), replica: set(replica) };
        let spec = ConfigSpec {
            features: &features,
            policy: &PolicyChoice { name: "consistent_hash".to_owned(), hash_by: Some(HASH_BY) },
            replicas: &[9001, 9002, 9003].map(|port| SocketAddr::from(([127, 0, 0, 1], port))),
            members: &BTreeSet::from([0, 2]),
            health: &Health::from([("slow_start_ms".to_owned(), 0)]),
        };
        config(&spec).unwrap()
    }

    #[test]
    fn only_members_are_in_the_file_under_names_that_lead_back() {
        let text = text(&[], &[]);
        assert!(text.contains("127.0.0.1:9001") && text.contains("127.0.0.1:9003"), "{text}");
        assert!(!text.contains("127.0.0.1:9002") && text.contains("hash_by"), "{text}");
        assert_eq!(replica_index(&replica_name(7)), Some(7));
        assert_eq!(replica_index("other-7"), None);
    }

    #[test]
    fn what_the_binary_does_not_know_is_left_out() {
        let old = text(&[], &["name"]);
        assert!(!old.contains("[health]") && !old.contains("kind"), "{old}");
        let between = text(&["check", "slow_start_ms"], &[]);
        assert!(between.contains("[health]\ncheck = \"http\"\nslow_start_ms = 0\n"), "{between}");
        let new = text(&["check", "slow_start_ms"], &["kind"]);
        assert!(new.contains("[health]\nslow_start_ms = 0\n"), "{new}");
        assert_eq!(new.matches("kind = \"vllm\"").count(), 2, "{new}");
    }
}
