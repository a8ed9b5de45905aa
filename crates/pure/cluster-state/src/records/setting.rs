//! Settings of the whole cluster.

use serde::{Deserialize, Serialize};

use crate::CommandError;

/// The value of a setting, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Setting(pub String);

/// Rule of one setting: name, allowed values and default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingRule {
    /// Name of the setting.
    pub name: &'static str,
    /// Allowed values.
    pub kind: SettingKind,
    /// Value if no operator has set one.
    pub default: &'static str,
    /// Help text: purpose of the setting and how to choose a value.
    pub doc: &'static str,
    /// The first wire version that has the setting.
    pub since: u16,
}

/// Allowed values of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// `true` or `false`.
    Bool,
    /// A whole number within both bounds.
    Number {
        /// The least allowed number.
        min: u64,
        /// The greatest allowed number.
        max: u64,
    },
}

/// Name of the setting that counts the keys for hashing prompts. A change of it empties the hot
/// trie.
pub const KEY_EPOCH: &str = "prefix.key_epoch";

/// Name of the setting for the length of leases on shares of limits, in milliseconds.
pub const LEASE_MS: &str = "limits.lease_ms";

/// Name of the setting for the longest time of a request under a concurrency limit, in
/// milliseconds.
pub const PLACE_MS: &str = "limits.place_ms";

/// Rules of all settings. A new one needs a new wire version, see [`crate::WIRE`].
pub const SETTINGS: &[SettingRule] = &[
    SettingRule {
        name: "health.observation_ms",
        kind: SettingKind::Number { min: 10_000, max: 600_000 },
        default: "60000",
        doc: "What a node said about a replica counts for this long; it says it again every third \
              of this.",
        since: 1,
    },
    SettingRule {
        name: "health.transition_ms",
        kind: SettingKind::Number { min: 0, max: 600_000 },
        default: "5000",
        doc: "The cluster's belief about a replica changes again after this long at the earliest. \
              Nodes act on what they see themselves at once.",
        since: 1,
    },
    SettingRule {
        name: "join.token_required",
        kind: SettingKind::Bool,
        default: "true",
        doc: "A new node needs a join token besides its certificate.",
        since: 1,
    },
    SettingRule {
        name: LEASE_MS,
        kind: SettingKind::Number { min: 6_000, max: 600_000 },
        default: "30000",
        doc: "How long a node uses what it has leased of limits without a word from the others. \
              They take it over this long after they heard of it last, and a window later.",
        since: 1,
    },
    SettingRule {
        name: PLACE_MS,
        kind: SettingKind::Number { min: 10_000, max: 86_400_000 },
        default: "3600000",
        doc: "Others take over what a silent node has leased of a limit of concurrency only after \
              this long: no request may run longer. The longest time-out of any route.",
        since: 1,
    },
    SettingRule {
        name: "voters.dead_after_ms",
        kind: SettingKind::Number { min: 5_000, max: 86_400_000 },
        default: "60000",
        doc: "A voter that reports nothing for this long is replaced. Longer than a restart takes.",
        since: 1,
    },
    SettingRule {
        name: KEY_EPOCH,
        kind: SettingKind::Number { min: 0, max: u32::MAX as u64 },
        default: "0",
        doc: "Counts the keys with which prompts are hashed. Another number is another key: what \
              is known of prompts is forgotten and learned anew.",
        since: 1,
    },
    #[cfg(test)]
    SettingRule {
        name: INVENTED,
        kind: SettingKind::Number { min: 0, max: 9 },
        default: "0",
        doc: "What a version after this one may add.",
        since: crate::WIRE + 1,
    },
];

/// Setting of an invented later version, so that tests can treat this version as an older one.
#[cfg(test)]
pub(crate) const INVENTED: &str = "test.invented";

impl SettingRule {
    /// Returns the rule of the setting `name`; None if there is no such setting.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|rule| rule.name == name)
    }

    /// Checks that the setting may have `value`.
    ///
    /// # Errors
    /// Returns an error if `value` is not of the rule's kind, or out of its bounds.
    pub(crate) fn check(&self, value: &str) -> Result<(), CommandError> {
        let (is_right, remedy) = match self.kind {
            SettingKind::Bool => {
                (matches!(value, "true" | "false"), "use true or false".to_owned())
            }
            SettingKind::Number { min, max } => {
                let number = value.parse().ok().filter(|number| (min..=max).contains(number));
                // Equal values must be equal records, so each number has one form: no plus sign, no
                // leading zeros.
                let is_plain = number.is_some_and(|number| number.to_string() == value);
                (is_plain, format!("use a whole number from {min} to {max}"))
            }
        };
        if is_right {
            return Ok(());
        }
        Err(CommandError::invalid(
            format!("the setting {} can't have that value", self.name),
            remedy,
        ))
    }
}
