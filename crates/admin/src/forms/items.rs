//! Settings of the cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_control::{SETTINGS, SettingKind, SettingRule, State};

use super::Item;

/// The value of a setting.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SettingRecord {
    /// As text.
    pub(crate) value: String,
}

/// What a setting is for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SettingInfo {
    /// What it is for and how to choose it.
    pub(crate) doc: String,
    /// What it is if nobody set it.
    pub(crate) default: String,
    /// What it may be.
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

/// Every setting, set or not, in the order of names.
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
