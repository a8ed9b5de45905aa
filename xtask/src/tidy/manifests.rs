//! Rules of manifests: one place for versions, a reason for each dependency.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use toml::{Table, Value};

use super::finding::Finding;
use super::tree::{TextFile, Tree};

/// Tables of a manifest that name dependencies.
const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// Most packages in `Cargo.lock`, our own among them: the present number. Each further package is
/// code that every build compiles, whose licence and advisories must be checked, and that an
/// attacker may reach. A commit that adds packages raises the number and gives the reason; one that
/// removes some lowers it.
const LOCKED_MAX: usize = 487;

/// Checks the root manifest, the manifests of all crates, and the number of packages.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests: Vec<&TextFile> =
        tree.files.iter().filter(|file| file.name() == "Cargo.toml").collect();
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for file in &manifests {
        match file.text.parse::<Table>() {
            Ok(manifest) if file.path != "Cargo.toml" => {
                let dependencies = dependencies(&manifest);
                used.extend(dependencies.iter().map(|(name, _)| (*name).to_owned()));
                findings.extend(check_member(file, &manifest, &dependencies));
            }
            // The root follows below, when the uses of the crates are known.
            Ok(_) => {}
            Err(error) => {
                findings.push(Finding::violation("manifest", &file.path, error.message()));
            }
        }
    }
    if let Some(file) = tree.file("Cargo.toml") {
        findings.extend(check_root(file, &used));
    }
    if let Some(file) = tree.file("Cargo.lock") {
        findings.extend(check_locked(file, LOCKED_MAX));
    }
    findings
}

/// Checks that no more packages than `most` are locked, and that the limit is no higher than it has to be.
fn check_locked(file: &TextFile, most: usize) -> Option<Finding> {
    let locked = file.text.lines().filter(|line| *line == "[[package]]").count();
    let message = match locked.cmp(&most) {
        Ordering::Equal => return None,
        Ordering::Greater => format!(
            "{locked} packages, and {most} at most are wanted: do without the new ones, or raise \
             LOCKED_MAX in xtask/src/tidy/manifests.rs and say in the commit why"
        ),
        Ordering::Less => format!(
            "{locked} packages, fewer than the limit of {most}: lower LOCKED_MAX in \
             xtask/src/tidy/manifests.rs"
        ),
    };
    let finding = Finding::violation("locked-packages", &file.path, message);
    Some(if locked > most { finding } else { finding.into_warning() })
}

fn check_member(
    file: &TextFile,
    manifest: &Table,
    dependencies: &[(&str, &Value)],
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = dependencies
        .iter()
        .filter(|(_, value)| !is_inherited(value))
        .map(|(name, _)| {
            let message = format!("{name}: name the version in the root and use .workspace = true");
            Finding::violation("workspace-dependency", &file.path, message)
        })
        .collect();
    if !manifest.get("lints").is_some_and(is_inherited) {
        let message = "the crate does not use the workspace's lints";
        findings.push(Finding::violation("workspace-lints", &file.path, message));
    }
    findings
}

fn is_inherited(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

/// Returns every dependency that a manifest names, including those of one platform only.
fn dependencies(manifest: &Table) -> Vec<(&str, &Value)> {
    let platforms = manifest.get("target").and_then(Value::as_table);
    let tables = platforms.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    tables
        .chain([manifest])
        .flat_map(|table| DEPENDENCY_TABLES.iter().filter_map(|key| table.get(*key)))
        .filter_map(Value::as_table)
        .flat_map(|table| table.iter().map(|(name, value)| (name.as_str(), value)))
        .collect()
}

fn check_root(file: &TextFile, used: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, name, entry) in workspace_dependencies(file) {
        let is_own = entry.contains("path = ");
        if !is_own && !has_comment(&entry) {
            let message = format!("{name}: say in a comment beside it why it is needed");
            findings.push(Finding::violation("dependency-reason", &file.path, message).at(number));
        }
        if !used.contains(name) {
            let message = format!("{name}: no crate uses it");
            let finding = Finding::violation("unused-dependency", &file.path, message).at(number);
            findings.push(finding.into_warning());
        }
    }
    findings
}

/// Returns the entries of `[workspace.dependencies]`: line, name, and text of one or more lines.
fn workspace_dependencies(file: &TextFile) -> Vec<(usize, &str, String)> {
    let mut entries: Vec<(usize, &str, String)> = Vec::new();
    let section = file
        .numbered()
        .skip_while(|(_, line)| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|(_, line)| !line.starts_with('['));
    for (number, line) in section {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('=') {
            Some((name, _)) if !line.starts_with([' ', '}', ']', '\t']) => {
                entries.push((number, name.trim(), line.to_owned()));
            }
            _ => {
                if let Some((_, _, text)) = entries.last_mut() {
                    text.push('\n');
                    text.push_str(line);
                }
            }
        }
    }
    entries
}

/// Returns true if a line of `entry` has a `#` outside quotes with words after it.
fn has_comment(entry: &str) -> bool {
    entry.lines().any(|line| {
        let mut quoted = false;
        let at = line.char_indices().find(|(_, c)| {
            quoted ^= *c == '"';
            *c == '#' && !quoted
        });
        at.is_some_and(|(at, _)| !line[at + 1..].trim().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::tree::testing::tree;
    use super::*;

    fn rules(files: &[(&str, &str)]) -> Vec<(&'static str, Option<usize>)> {
        check(&tree(files)).iter().map(|finding| (finding.rule, finding.line)).collect()
    }

    #[test]
    fn a_version_in_a_crate_is_found_in_every_kind_of_table() {
        let lints = "[lints]\nworkspace = true\n";
        for table in ["dependencies", "dev-dependencies", "target.'cfg(unix)'.dependencies"] {
            let manifest = |entry: &str| format!("{lints}[{table}]\n{entry}\n");
            let found = [("workspace-dependency", None)];
            assert_eq!(rules(&[("a/Cargo.toml", &manifest("serde = \"1\""))]), found);
            assert_eq!(rules(&[("a/Cargo.toml", &manifest("b = { path = \"../b\" }"))]), found);
            assert_eq!(rules(&[("a/Cargo.toml", &manifest("serde.workspace = true"))]), []);
            let features = "serde = { workspace = true, features = [\"rc\"] }";
            assert_eq!(rules(&[("a/Cargo.toml", &manifest(features))]), []);
        }
    }

    #[test]
    fn a_crate_without_the_common_lints_is_found() {
        let found = rules(&[("a/Cargo.toml", "[package]\nname = \"a\"\n")]);
        assert_eq!(found, [("workspace-lints", None)]);
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let user =
            ("a/Cargo.toml", "[lints]\nworkspace = true\n[dependencies]\nb.workspace = true");
        let root = |entry: &str| format!("[workspace.dependencies]\n# Runtime.\n{entry}\n\n[x]\n");
        let found = [("dependency-reason", Some(3))];
        assert_eq!(rules(&[user, ("Cargo.toml", &root("b = \"1\""))]), found);
        assert_eq!(rules(&[user, ("Cargo.toml", &root("b = \"#1\""))]), found);
        assert_eq!(rules(&[user, ("Cargo.toml", &root("b = \"1\" #"))]), found);
        assert_eq!(rules(&[user, ("Cargo.toml", &root("b = \"1\" # it parses"))]), []);
        assert_eq!(rules(&[user, ("Cargo.toml", &root("b = { path = \"b\" }"))]), []);
        let split = "b = { version = \"1\", features = [\n  \"c\",\n] } # it parses";
        assert_eq!(rules(&[user, ("Cargo.toml", &root(split))]), []);
    }

    #[test]
    fn a_dependency_that_no_crate_uses_is_a_warning() {
        let found = rules(&[("Cargo.toml", "[workspace.dependencies]\nb = \"1\" # it parses\n")]);
        assert_eq!(found, [("unused-dependency", Some(2))]);
    }

    #[test]
    fn more_packages_than_the_limit_are_found() {
        let lock = |packages: usize| "[[package]]\nname = \"a\"\n".repeat(packages);
        let of = |packages: usize| {
            let tree = tree(&[("Cargo.lock", &lock(packages))]);
            check_locked(tree.file("Cargo.lock").unwrap(), 3).map(|finding| finding.severity)
        };
        assert_eq!(of(3), None);
        assert_eq!(of(4), Some(Severity::Violation));
        assert_eq!(of(2), Some(Severity::Warning));
    }

    #[test]
    fn a_manifest_that_is_no_toml_is_found() {
        assert_eq!(rules(&[("a/Cargo.toml", "[package\n")]), [("manifest", None)]);
    }
}
