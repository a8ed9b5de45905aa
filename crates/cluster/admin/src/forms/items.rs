//! Forms of the cluster's settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_cluster_state::{SETTINGS, SettingKind, SettingRule, State};

use super::Item;

/// The value of a setting.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingRecord {
    /// The value as text.
    pub(crate) value: String,
}

/// Description of a setting.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SettingInfo {
    /// Purpose of the setting, and how to choose its value.
    pub(crate) doc: String,
    /// Value of a setting that was never set.
    pub(crate) default: String,
    /// Allowed values.
    pub(crate) values: String,
}

impl SettingInfo {
    fn of(rule: &SettingRule) -> Self {
        let values = match rule.kind {
            SettingKind::Bool => "true or false".to_owned(),
            SettingKind::Number { min, max } => format!("{min} to {max}"),
        };
        Self { doc: rule.doc.to_owned(), default: rule.default.to_owned(), values }
    }
}

/// Returns every setting, set or not, in the order of names.
pub(crate) fn setting_infos(
    state: &State,
) -> impl Iterator<Item = Item<SettingRecord, SettingInfo>> {
    let mut rules: Vec<_> = SETTINGS.iter().collect();
    rules.sort_by_key(|rule| rule.name);
    rules.into_iter().map(|rule| {
        let row = state.records().settings.row(&rule.name.to_owned());
        Item {
            key: rule.name.to_owned(),
            version: row.map(|row| row.version()),
            record: SettingRecord {
                value: state.setting(rule.name).unwrap_or_default().to_owned(),
            },
            info: SettingInfo::of(rule),
        }
    })
}
