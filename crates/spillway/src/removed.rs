//! Successors of removed commands.

use clap::Command;
use spillway_node::Resource;

/// Removed commands, each with its successor. `{kinds}` and `{kind}` stand for the names of a kind of
/// record. The first row that a command line begins with holds.
const REMOVED: [(&str, &str); 14] = [
    ("certs revoked", "get revoked-certificates"),
    ("apply FILE", "apply -f FILE"),
    ("keys make", "keys create --offline"),
    ("nodes removed", "get removed-nodes"),
    ("nodes set", "apply node NAME role=any|learner` or `spillway nodes operators NAME allow|deny"),
    ("join-token remove", "remove join-token ID"),
    ("join-token", "get join-tokens"),
    ("replicas --cluster", "get replicas"),
    ("{kinds} list", "get {kinds}"),
    ("{kinds} show", "get {kind} NAME"),
    ("{kinds} set", "apply {kind} NAME FIELD=VALUE"),
    ("{kinds} put", "apply {kind} NAME FIELD=VALUE"),
    ("{kinds} remove", "remove {kind} NAME"),
    ("{kinds}", "get {kinds}"),
];

/// Placeholder of [`REMOVED`] for the path of a file.
const FILE: &str = "FILE";

fn is_file(word: &str) -> bool {
    word == "-" || word.contains(['.', '/'])
}

/// Returns the successor of the removed command that a command line begins with; None if it begins with
/// none, or with a command that exists.
pub(crate) fn successor(command: &Command, words: &[String]) -> Option<String> {
    let (first, second) = (words.first()?, words.get(1).map(String::as_str));
    let known = command.find_subcommand(first);
    if known.is_some_and(|known| second.is_some_and(|it| known.find_subcommand(it).is_some())) {
        return None;
    }
    let is_whole = known.is_some_and(|known| !known.is_subcommand_required_set());
    let kind = Resource::ALL.iter().find(|kind| kind.name() == first);
    let (kinds, one) = kind.map_or(("", ""), |kind| (kind.name(), kind.singular()));
    REMOVED.iter().find_map(|(removed, successor)| {
        let named = |text: &str| text.replace("{kinds}", kinds).replace("{kind}", one);
        let mut removed = removed.split(' ').map(named);
        let is_it = removed.next().as_ref() == Some(first)
            && match removed.next() {
                Some(argument) if argument == FILE => second.is_some_and(is_file),
                Some(action) => second == Some(action.as_str()),
                None => !is_whole && second.is_none_or(|second| second.starts_with('-')),
            };
        is_it.then(|| named(successor))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn of(line: &str) -> Option<String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        successor(&Cli::command(), &words)
    }

    #[test]
    fn a_removed_command_names_its_successor() {
        for (removed, successor) in [
            ("tenants", "get tenants"),
            ("tenants --json", "get tenants"),
            ("tenants list", "get tenants"),
            ("tenants show acme", "get tenant NAME"),
            ("tenants set acme --title Acme", "apply tenant NAME FIELD=VALUE"),
            ("limits", "get limits"),
            ("limits put global {}", "apply limit NAME FIELD=VALUE"),
            ("keys remove k1", "remove key NAME"),
            ("nodes removed", "get removed-nodes"),
            ("join-token --json", "get join-tokens"),
            ("join-token remove 5c", "remove join-token ID"),
            ("replicas --cluster", "get replicas"),
            ("apply tenants.toml --dry-run", "apply -f FILE"),
            ("keys make --tenant acme", "keys create --offline"),
        ] {
            assert_eq!(of(removed).as_deref(), Some(successor), "{removed}");
        }
        assert!(of("nodes set a --operators allow").unwrap().contains("nodes operators"));
    }

    #[test]
    fn a_command_that_exists_has_no_successor() {
        for line in [
            "limits set",
            "keys create",
            "replicas",
            "replicas --bogus",
            "get tenantz",
            "apply tenantz acme",
            "tenant",
            "stauts",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn successors_exist() {
        let command = Cli::command();
        for (_, successor) in REMOVED {
            let first = successor.split(' ').next().unwrap_or_default();
            assert!(command.find_subcommand(first).is_some(), "{successor}");
        }
    }
}
