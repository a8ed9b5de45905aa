//! Answers that need a search among the records.

use spillway_types::NodeName;

use crate::{KEY_EPOCH, Node, NodeId, Records, Setting, SettingRule, WIRE};

/// Returns the node of that name with its id.
pub(crate) fn node_named<'a>(records: &'a Records, name: &NodeName) -> Option<(NodeId, &'a Node)> {
    let mut nodes = records.nodes.iter();
    nodes.find(|(_, node)| node.spec.name == *name).map(|(id, node)| (*id, node))
}

/// Returns the lowest of all nodes' newest wire versions; this program's if there are no nodes.
pub(crate) fn wire_oldest(records: &Records) -> u16 {
    let versions = records.nodes.iter().map(|(_, node)| node.spec.wire_newest);
    versions.min().unwrap_or(WIRE)
}

/// Returns the number of the key for hashing prompts. The rule of the setting makes sure that it is
/// a number.
pub(crate) fn key_epoch(records: &Records) -> u64 {
    setting(records, KEY_EPOCH).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Returns the value of a setting, or its default; None if there is no such setting.
pub(crate) fn setting<'a>(records: &'a Records, name: &str) -> Option<&'a str> {
    let set = records.settings.get_by(name).map(|Setting(value)| value.as_str());
    set.or_else(|| SettingRule::find(name).map(|rule| rule.default))
}
