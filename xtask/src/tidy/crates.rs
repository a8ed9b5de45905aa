//! Which crate may depend on which, and what each must have.

use super::finding::Finding;
use super::tree::Tree;
use crate::metadata::Package;

/// The crates from the bottom up, each with the own crates that it may ship with.
///
/// Its tests may use any crate above it in this table, that is, lower in the building.
const LAYERS: [(&str, &[&str]); 26] = [
    // Runs the targets that all crates have; as a part of tests it uses none of them.
    (
        "spillway-fuzz",
        &[
            "spillway-quota",
            "spillway-control",
            "spillway-pulse",
            "spillway-protocol",
            "spillway-replicas",
            "spillway-link",
            "spillway-consensus",
            "spillway-agreement",
            "spillway-admin",
            "spillway-proxy",
            "spillway-node",
        ],
    ),
    ("spillway-types", &[]),
    ("spillway-prefix", &["spillway-types"]),
    ("spillway-route", &["spillway-types", "spillway-prefix"]),
    ("spillway-health", &["spillway-types", "spillway-route"]),
    ("spillway-protocol", &["spillway-types"]),
    ("spillway-codec", &["spillway-types"]),
    ("spillway-quota", &["spillway-types"]),
    (
        "spillway-control",
        &["spillway-types", "spillway-prefix", "spillway-codec", "spillway-quota"],
    ),
    ("spillway-pulse", &["spillway-types", "spillway-codec"]),
    ("spillway-engine", &[]),
    (
        "spillway-sim",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-health",
            "spillway-engine",
        ],
    ),
    ("spillway-telemetry", &["spillway-types", "spillway-route"]),
    ("spillway-emulator", &["spillway-engine"]),
    ("spillway-replicas", &["spillway-types"]),
    ("spillway-link", &["spillway-types", "spillway-codec"]),
    ("spillway-consensus", &["spillway-types", "spillway-codec", "spillway-link"]),
    (
        "spillway-agreement",
        &[
            "spillway-types",
            "spillway-codec",
            "spillway-control",
            "spillway-link",
            "spillway-consensus",
        ],
    ),
    (
        "spillway-admin",
        &[
            "spillway-types",
            "spillway-route",
            "spillway-control",
            "spillway-quota",
            "spillway-consensus",
            "spillway-agreement",
        ],
    ),
    (
        "spillway-proxy",
        &[
            "spillway-types",
            "spillway-prefix",
            "spillway-route",
            "spillway-protocol",
            "spillway-control",
            "spillway-quota",
        ],
    ),
    (
        "spillway-node",
        &[
            "spillway-types",
            "spillway-codec",
            "spillway-prefix",
            "spillway-route",
            "spillway-health",
            "spillway-protocol",
            "spillway-pulse",
            "spillway-replicas",
            "spillway-link",
            "spillway-control",
            "spillway-quota",
            "spillway-consensus",
            "spillway-agreement",
            "spillway-admin",
            "spillway-proxy",
            "spillway-telemetry",
        ],
    ),
    (
        "spillway",
        &[
            "spillway-types",
            "spillway-emulator",
            "spillway-link",
            "spillway-control",
            "spillway-consensus",
            "spillway-agreement",
            "spillway-node",
            "spillway-telemetry",
        ],
    ),
    ("spillway-bench", &[]),
    ("spillway-chaos", &[]),
    ("spillway-tests", &["spillway-emulator", "spillway-link", "spillway-node"]),
    ("xtask", &[]),
];

/// Crates that decide and never wait: what they ship with has no runtime and no network.
const PURE: [&str; 11] = [
    "spillway-types",
    "spillway-prefix",
    "spillway-route",
    "spillway-health",
    "spillway-protocol",
    "spillway-codec",
    "spillway-quota",
    "spillway-control",
    "spillway-pulse",
    "spillway-engine",
    "spillway-sim",
];

/// What makes a crate impure.
const IMPURE: [&str; 6] = ["tokio", "mio", "quinn", "hyper", "h2", "openraft"];

/// Checks every crate of the workspace.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.metadata
        .members()
        .flat_map(|package| {
            let mut findings = arrows(tree, package);
            findings.extend(purity(tree, package));
            findings.extend(module_docs(tree, package));
            findings
        })
        .collect()
}

fn arrows(tree: &Tree, package: &Package) -> Vec<Finding> {
    let manifest = tree.metadata.relative(&package.manifest_path);
    let Some(layer) = LAYERS.iter().position(|(name, _)| *name == package.name) else {
        let message = format!("{} has no place in the table of layers", package.name);
        return vec![Finding::violation("arrows", &manifest, message)];
    };
    let (_, shipped) = LAYERS[layer];
    package
        .dependencies
        .iter()
        .filter(|dependency| tree.metadata.members().any(|member| member.name == dependency.name))
        .filter(|dependency| match dependency.kind.as_deref() {
            Some("dev") => !LAYERS[..layer].iter().any(|(name, _)| *name == dependency.name),
            _ => !shipped.contains(&dependency.name.as_str()),
        })
        .map(|dependency| {
            let message = format!("{} may not use {}", package.name, dependency.name);
            Finding::violation("arrows", &manifest, message)
        })
        .collect()
}

fn purity(tree: &Tree, package: &Package) -> Vec<Finding> {
    if !PURE.contains(&package.name.as_str()) {
        return Vec::new();
    }
    let manifest = tree.metadata.relative(&package.manifest_path);
    tree.metadata
        .ways_from(package)
        .values()
        .filter(|way| way.last().is_some_and(|name| IMPURE.contains(name)))
        .map(|way| {
            let message = format!("a pure crate may not ship with it: {}", way.join(" -> "));
            Finding::violation("purity", &manifest, message)
        })
        .collect()
}

fn module_docs(tree: &Tree, package: &Package) -> Vec<Finding> {
    let documented = |kind: &String| matches!(kind.as_str(), "lib" | "bin");
    package
        .targets
        .iter()
        .filter(|target| target.kind.iter().any(documented))
        .map(|target| tree.metadata.relative(&target.src_path))
        .filter(|path| !tree.file(path).is_some_and(|file| file.text.starts_with("//! ")))
        .map(|path| {
            Finding::violation(
                "module-doc",
                &path,
                "a crate begins with a //! that says what it is",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tree::testing::tree_with;
    use super::*;

    const DOCUMENTED: &str = "//! What it is.\n";

    /// One edge: the crate that depends, the one it needs, and the kind of that need.
    type Edge<'a> = (&'a str, &'a str, Option<&'a str>);

    /// The findings for a workspace of `members` whose packages depend on each other by `edges`.
    fn check_edges(members: &[&str], others: &[&str], edges: &[Edge<'_>]) -> Vec<String> {
        let packages: Vec<&str> = members.iter().chain(others).copied().collect();
        let of = |name: &str| edges.iter().filter(move |edge| edge.0 == name).collect::<Vec<_>>();
        let package = |name: &&str| {
            json!({
                "id": name, "name": name, "manifest_path": format!("/tree/{name}/Cargo.toml"),
                "targets": [{ "kind": ["lib"], "src_path": format!("/tree/{name}/lib.rs") }],
                "dependencies": of(name).iter()
                    .map(|(_, to, kind)| json!({ "name": to, "kind": kind })).collect::<Vec<_>>(),
            })
        };
        let node = |name: &&str| {
            json!({ "id": name, "deps": of(name).iter()
                .map(|(_, to, kind)| json!({ "pkg": to, "dep_kinds": [{ "kind": kind }] }))
                .collect::<Vec<_>>() })
        };
        let metadata = json!({
            "packages": packages.iter().map(package).collect::<Vec<Value>>(),
            "workspace_members": members, "target_directory": "/t", "workspace_root": "/tree",
            "resolve": { "nodes": packages.iter().map(node).collect::<Vec<Value>>() },
        });
        let paths: Vec<String> = members.iter().map(|name| format!("{name}/lib.rs")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().map(|path| (path.as_str(), DOCUMENTED)).collect();
        check(&tree_with(&files, metadata)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_arrow_upwards_is_found() {
        let found = check_edges(
            &["spillway-types", "spillway-route"],
            &[],
            &[("spillway-types", "spillway-route", None)],
        );
        assert_eq!(
            found,
            ["error[arrows]: spillway-types/Cargo.toml: spillway-types may not use spillway-route"]
        );
    }

    #[test]
    fn tests_may_use_any_lower_crate_but_no_higher_one() {
        let members = ["spillway-proxy", "spillway-emulator", "spillway-node"];
        let down = [("spillway-proxy", "spillway-emulator", Some("dev"))];
        assert_eq!(check_edges(&members, &[], &down), [""; 0]);
        let shipped = [("spillway-proxy", "spillway-emulator", None)];
        assert_eq!(check_edges(&members, &[], &shipped).len(), 1);
        let up = [("spillway-proxy", "spillway-node", Some("dev"))];
        assert_eq!(check_edges(&members, &[], &up).len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_is_found() {
        let found = check_edges(&["spillway-new"], &[], &[]);
        assert!(
            found[0].ends_with("spillway-new has no place in the table of layers"),
            "{found:?}"
        );
    }

    #[test]
    fn a_runtime_behind_a_dependency_of_a_pure_crate_is_found_with_the_way_to_it() {
        let edges = [("spillway-protocol", "helper", None), ("helper", "tokio", None)];
        let found = check_edges(&["spillway-protocol"], &["helper", "tokio"], &edges);
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("spillway-protocol -> helper -> tokio"), "{found:?}");
    }

    #[test]
    fn tests_of_a_pure_crate_and_impure_crates_may_have_a_runtime() {
        let edges =
            [("spillway-route", "tokio", Some("dev")), ("spillway-telemetry", "tokio", None)];
        let members = ["spillway-route", "spillway-telemetry"];
        assert_eq!(check_edges(&members, &["tokio"], &edges), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_module_doc_is_found() {
        let metadata = json!({
            "packages": [{
                "id": "xtask", "name": "xtask", "manifest_path": "/tree/xtask/Cargo.toml",
                "targets": [{ "kind": ["bin"], "src_path": "/tree/xtask/main.rs" }],
                "dependencies": [],
            }],
            "workspace_members": ["xtask"], "target_directory": "/t", "workspace_root": "/tree",
            "resolve": { "nodes": [] },
        });
        let found = check(&tree_with(&[("xtask/main.rs", "fn main() {}\n")], metadata.clone()));
        assert_eq!(found[0].rule, "module-doc");
        assert_eq!(check(&tree_with(&[("xtask/main.rs", DOCUMENTED)], metadata)), []);
    }
}
