//! Settings that take effect only when a node starts, not with a reload.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::file::ConfigFile;
use super::section::ListenerSection;

/// Settings of a file that a running node can't change, by path, e.g. `limits.body_bytes_max`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AtStart {
    settings: BTreeMap<String, Value>,
}

impl AtStart {
    pub(crate) fn new(file: &ConfigFile) -> Self {
        let mut listeners: Vec<Value> = file.listener.iter().map(listener).collect();
        // Listeners that only changed places in the file ask for no restart.
        listeners.sort_by_key(Value::to_string);
        let admin = file
            .admin
            .as_ref()
            // The admin listener's tokens and certificate take effect with a reload; only its
            // address and whether it has TLS wait.
            .map(|admin| json!({ "address": admin.address.get_ref(), "tls": admin.tls.is_some() }));
        let mut settings = BTreeMap::new();
        let mut add = |name: &str, value: Value| flatten(name, value, &mut settings);
        add("node", to_value(&file.node));
        add("limits", to_value(&file.limits));
        add("retry", to_value(&file.retry));
        add("prefix", to_value(&file.prefix));
        add("spill", to_value(&file.spill));
        add("steering", to_value(&file.steering));
        add("cluster", to_value(&file.cluster));
        add("dns", to_value(&file.dns));
        add("usage", to_value(&file.usage));
        add("admin", admin.unwrap_or_default());
        add("[[listener]]", listeners.into());
        add("[[peer]]", to_value(&file.peer));
        add("[[region]]", to_value(&file.region));
        LIVE.iter().for_each(|live| drop(settings.remove(*live)));
        Self { settings }
    }

    /// Returns the names of the settings that differ in `now`, in alphabetical order.
    pub fn changed<'a>(&'a self, now: &'a Self) -> Vec<&'a str> {
        let is_other = |name: &&String| self.settings.get(*name) != now.settings.get(*name);
        let mut names: Vec<&str> = self
            .settings
            .keys()
            // A setting may be on one side alone: a section was added, or removed.
            .chain(now.settings.keys())
            .filter(is_other)
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Settings that a reload changes, although their sections otherwise wait for a restart.
const LIVE: [&str; 6] = [
    "node.expose_routing",
    "spill.queue_max",
    "spill.queue_bytes_max",
    "spill.queue_ms",
    "spill.degraded_below_percent",
    "spill.tenant_room_percent",
];

/// Returns a listener's settings without those that a reload replaces: its certificate and its
/// authentication mode.
fn listener(section: &ListenerSection) -> Value {
    let proxies: Vec<&str> =
        section.trusted_proxies.iter().map(|block| block.get_ref().as_str()).collect();
    json!({
        "address": section.address.get_ref(),
        "share_port": section.share_port,
        "tls": section.tls.is_some(),
        "proxy_protocol": section.proxy_protocol,
        "trusted_proxies": proxies,
    })
}

fn to_value(section: &impl serde::Serialize) -> Value {
    serde_json::to_value(section).unwrap_or_default()
}

/// Adds each value of a table by its path; a list is one value.
fn flatten(path: &str, value: Value, into: &mut BTreeMap<String, Value>) {
    let Value::Object(table) = value else {
        into.insert(path.to_owned(), value);
        return;
    };
    for (name, value) in table {
        flatten(&format!("{path}.{name}"), value, into);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::recovery;
    use crate::source::Source;

    fn read(text: &str) -> AtStart {
        let source = Source::new(Path::new("c.toml"), text);
        AtStart::new(&recovery::read(&source).content.expect("a config"))
    }

    const BASE: &str = "[[listener]]\naddress = \"127.0.0.1:1\"\nauth = \"none\"\n\
        [[listener]]\naddress = \"127.0.0.1:2\"\nauth = \"none\"\n";

    fn changed(text: &str) -> Vec<String> {
        let (before, now) = (read(BASE), read(text));
        before.changed(&now).into_iter().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn settings_that_wait_for_a_restart_are_named() {
        let more = "[node]\nname = \"b\"\ndrain_ms = 5\n[limits]\nbody_bytes_max = 7\n[retry]\nattempts_max = 1\n\
            [prefix]\nshare = false\n[spill]\nregions_max = 1\n[steering]\nshed_ms = 1\n[admin]\naddress = \"127.0.0.1:3\"\n\
            [[peer]]\nname = \"p\"\nregion = \"r\"\naddress = \"127.0.0.1:4\"\n[[region]]\nname = \"r\"\n";
        let expected = [
            "[[peer]]",
            "[[region]]",
            "admin",
            "admin.address",
            "admin.tls",
            "limits.body_bytes_max",
            "node.drain_ms",
            "node.name",
            "prefix.share",
            "retry.attempts_max",
            "spill.regions_max",
            "steering.shed_ms",
        ];
        assert_eq!(changed(&format!("{BASE}{more}")), expected);
        assert_eq!(changed(&BASE.replace(":2", ":5")), ["[[listener]]"]);
    }

    #[test]
    fn what_a_reload_takes_and_what_only_says_the_default_is_not_named() {
        let same = "[node]\nexpose_routing = true\ndrain_ms = 30000\n[spill]\nqueue_ms = 5\n\
            [[replica]]\nname = \"a\"\nurl = \"http://127.0.0.1:9\"\nmodels = [\"m\"]\n[timeouts]\nidle_ms = 9\n";
        assert_eq!(changed(&format!("{BASE}{same}")), [""; 0]);
        assert_eq!(changed(&BASE.replace("none", "keys")), [""; 0]);
        let other_order = "[[listener]]\naddress = \"127.0.0.1:2\"\nauth = \"none\"\n\
            [[listener]]\naddress = \"127.0.0.1:1\"\nauth = \"none\"\n";
        assert_eq!(changed(other_order), [""; 0]);
    }
}
