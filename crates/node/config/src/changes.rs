//! Differences between two texts of a config, in words for the log.

use std::collections::BTreeMap;

use toml::{Table, Value};

/// Names of the tables in lists: the section, one, several, and the key that distinguishes them.
const LISTS: [(&str, &str, &str, &str); 11] = [
    ("discovery", "discovery", "discoveries", "name"),
    ("key", "key", "keys", "id"),
    ("limit", "limit", "limits", "name"),
    ("listener", "listener", "listeners", "address"),
    ("peer", "peer", "peers", "name"),
    ("price", "price", "prices", "model"),
    ("region", "region", "regions", "name"),
    ("replica", "replica", "replicas", "name"),
    ("route", "route", "routes", "name"),
    ("split", "split", "splits", "model"),
    ("tenant", "tenant", "tenants", "name"),
];

/// Settings named one by one; if there are more, only their number is given.
const NAMED_MAX: usize = 5;

/// Describes the differences between two texts of a config, except for the settings in `left_out`,
/// e.g. `2 replicas added, 1 route changed, spill.queue_ms`. Contains keys only, so no secrets.
#[must_use]
pub fn changes(before: &str, after: &str, left_out: &[&str]) -> String {
    let read = |text: &str| text.parse::<Table>().unwrap_or_default();
    let (before, after) = (read(before), read(after));
    let mut told = Vec::new();
    let mut settings = Vec::new();
    let sections = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let mut sections: Vec<&str> = sections.map(String::as_str).collect();
    sections.sort_unstable();
    for section in sections {
        let values = (before.get(section), after.get(section));
        match LISTS.iter().find(|(name, ..)| *name == section) {
            Some(_) if left_out.contains(&format!("[[{section}]]").as_str()) => {}
            Some(list) => told.extend(list_changes(values, *list)),
            None => settings.extend(setting_changes(section, values)),
        }
    }
    settings.retain(|setting| !is_left_out(setting, left_out));
    match settings.len() {
        0..=NAMED_MAX => told.append(&mut settings),
        count => told.push(format!("{count} other settings")),
    }
    if told.is_empty() { "no setting changed".to_owned() } else { told.join(", ") }
}

/// Returns true if a setting, or the table that it is in, is left out.
fn is_left_out(setting: &str, left_out: &[&str]) -> bool {
    left_out.iter().any(|name| {
        let inside = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        inside(name, setting) || inside(setting, name)
    })
}

/// Two values of a setting; `None` where it is not set.
type Values<'a> = (Option<&'a Value>, Option<&'a Value>);

fn list_changes(
    (before, after): Values<'_>,
    (_, one, several, key): (&str, &str, &str, &str),
) -> Vec<String> {
    let (before, after) = (by_name(before, key), by_name(after, key));
    let count = |is_counted: &dyn Fn(&&String) -> bool, of: &BTreeMap<String, &Value>| {
        of.keys().filter(is_counted).count()
    };
    let added = count(&|name| !before.contains_key(*name), &after);
    let removed = count(&|name| !after.contains_key(*name), &before);
    let is_other =
        |name: &&String| before.get(*name).is_some_and(|value| after.get(*name) != Some(value));
    let changed = count(&is_other, &after);
    let counts = [(added, "added"), (changed, "changed"), (removed, "removed")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let words = |(count, what)| {
        let name = if count == 1 { one } else { several };
        format!("{count} {name} {what}")
    };
    counts.map(words).collect()
}

/// Returns the tables of a list by their names. Tables of one name, such as two listeners with port
/// 0, are distinguished by their order.
fn by_name<'a>(list: Option<&'a Value>, key: &str) -> BTreeMap<String, &'a Value> {
    let mut named = BTreeMap::new();
    for table in list.and_then(Value::as_array).into_iter().flatten() {
        let name = table.get(key).map(Value::to_string).unwrap_or_default();
        let same = named.keys().filter(|known: &&String| known.starts_with(&name)).count();
        named.insert(format!("{name} {same}"), table);
    }
    named
}

/// Returns the names of the settings of a section that differ.
fn setting_changes(section: &str, values: Values<'_>) -> Vec<String> {
    let (before, after) = values;
    let tables = (before.and_then(Value::as_table), after.and_then(Value::as_table));
    if tables == (None, None) {
        // No table, such as the list of `[[residency]]`.
        return (before != after).then(|| section.to_owned()).into_iter().collect();
    }
    let none = Table::new();
    let (before, after) = (tables.0.unwrap_or(&none), tables.1.unwrap_or(&none));
    let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
    let is_other = |key: &&String| before.get(*key) != after.get(*key);
    keys.filter(is_other).map(|key| format!("{section}.{key}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "[node]\nname = \"a\"\n[spill]\nqueue_ms = 1\n\
        [[replica]]\nname = \"x\"\nurl = \"1\"\n[[replica]]\nname = \"y\"\nurl = \"2\"\n\
        [[route]]\nname = \"r\"\n";

    fn check(from: &str, to: &str, left_out: &[&str], told: &str) {
        assert!(BEFORE.contains(from), "{from}");
        assert_eq!(changes(BEFORE, &BEFORE.replacen(from, to, 1), left_out), told);
    }

    #[test]
    fn what_was_added_changed_and_removed_is_counted() {
        check("[node]", "# other words\n[node]", &[], "no setting changed");
        check("url = \"1\"", "url = \"3\"", &[], "1 replica changed");
        check("name = \"x\"", "name = \"z\"", &[], "1 replica added, 1 replica removed");
        check("[[route]]\nname = \"r\"\n", "", &[], "1 route removed");
        let two = "[[route]]\nname = \"a\"\n[[route]]\nname = \"b\"\n[[route]]";
        check("[[route]]", two, &[], "2 routes added");
        check(
            "queue_ms = 1",
            "queue_ms = 2\nqueue_max = 3",
            &[],
            "spill.queue_ms, spill.queue_max",
        );
        check("[node]", "[classes]\nh100 = 4\n[node]", &[], "classes.h100");
        check("[node]", "[[residency]]\nclients = []\n[node]", &[], "residency");
    }

    #[test]
    fn what_waits_for_a_restart_is_not_told_as_taken() {
        check("name = \"a\"", "name = \"b\"", &["node.name"], "no setting changed");
        let tls = "[admin]\ntls = { key = \"k\" }\n[node]";
        check("[node]", tls, &["admin.tls.key"], "no setting changed");
        check("[node]", "[[peer]]\nname = \"p\"\n[node]", &["[[peer]]"], "no setting changed");
    }

    #[test]
    fn of_many_settings_the_number_is_told() {
        let many: String = (0..6).map(|number| format!("k{number} = 1\n")).collect();
        check("queue_ms = 1\n", &many, &[], "7 other settings");
    }

    #[test]
    fn tables_of_one_name_are_told_apart() {
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
        let two = format!("{listener}{listener}");
        assert_eq!(changes(&two, listener, &[]), "1 listener removed");
        assert_eq!(changes(&two, &two, &[]), "no setting changed");
    }
}
