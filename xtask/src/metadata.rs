//! Answer of `cargo metadata` about the workspace and its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::command::command;

/// Answer of `cargo metadata`, as far as it is used here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: BTreeSet<String>,
    pub(crate) target_directory: PathBuf,
    pub(crate) workspace_root: PathBuf,
    pub(crate) resolve: Resolve,
}

/// Package of the workspace, or a dependency.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// SPDX expression of the licence; None if the manifest has none.
    pub(crate) license: Option<String>,
    /// Source that the package was downloaded from; `None` for packages on this machine.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<CargoTarget>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// Library, binary, test or example of a package.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct CargoTarget {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// Dependency as declared in a manifest.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Kind of the dependency: `None`, `"dev"` or `"build"`.
    pub(crate) kind: Option<String>,
}

/// Graph of resolved packages.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<MetadataNode>,
}

/// Package in the graph.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct MetadataNode {
    pub(crate) id: String,
    pub(crate) deps: Vec<NodeDependency>,
}

/// Edge of the graph.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NodeDependency {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DependencyKind>,
}

/// Kind of the dependency of an edge.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct DependencyKind {
    /// Kind of the dependency: `None`, `"dev"` or `"build"`.
    pub(crate) kind: Option<String>,
}

impl Metadata {
    /// Runs `cargo metadata`, which fails unless `Cargo.lock` is up to date.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        Self::load_for(root, None)
    }

    /// Runs `cargo metadata` for one platform only, e.g. `x86_64-unknown-linux-gnu`.
    pub(crate) fn load_for(root: &Path, target: Option<&str>) -> Result<Self> {
        let mut asked = command(root, "cargo metadata --format-version 1 --locked");
        if let Some(target) = target {
            asked.arg("--filter-platform").arg(target);
        }
        let output = asked.stdin(Stdio::null()).output().context("cannot start cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("cannot read the answer of cargo metadata")
    }

    /// Returns the packages of this workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Returns the package of this workspace with this name.
    pub(crate) fn member(&self, name: &str) -> Option<&Package> {
        self.members().find(|package| package.name == name)
    }

    /// Returns the ids of the direct dependencies that the package `id` ships with, without those
    /// of tests and build scripts.
    pub(crate) fn shipped_edges(&self, id: &str) -> impl Iterator<Item = &str> {
        let node = self.resolve.nodes.iter().find(|node| node.id == id);
        let edges = node.into_iter().flat_map(|node| &node.deps);
        edges.filter(|edge| edge.is_shipped()).map(|edge| edge.pkg.as_str())
    }

    /// Returns `path` relative to the workspace root, with forward slashes.
    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.workspace_root).unwrap_or(path).to_string_lossy().into_owned()
    }

    /// Returns a shortest dependency path from `from` to each package below it, itself included:
    /// package id to the names on the path. Dependencies of tests and build scripts are left out.
    pub(crate) fn ways_from(&self, from: &Package) -> BTreeMap<&str, Vec<&str>> {
        let nodes: BTreeMap<&str, &MetadataNode> =
            self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let names: BTreeMap<&str, &str> = self
            .packages
            .iter()
            .map(|package| (package.id.as_str(), package.name.as_str()))
            .collect();
        let mut ways = BTreeMap::new();
        let Some((&id, _)) = nodes.get_key_value(from.id.as_str()) else { return ways };
        ways.insert(id, vec![names.get(id).copied().unwrap_or(id)]);
        let mut next = std::collections::VecDeque::from([id]);
        while let Some(id) = next.pop_front() {
            let way = ways.get(id).cloned().unwrap_or_default();
            let edges = nodes.get(id).map_or(&[][..], |node| &node.deps);
            for edge in edges.iter().filter(|edge| edge.is_shipped()) {
                let to = edge.pkg.as_str();
                if !ways.contains_key(to) {
                    let mut longer = way.clone();
                    longer.push(names.get(to).copied().unwrap_or(to));
                    ways.insert(to, longer);
                    next.push_back(to);
                }
            }
        }
        ways
    }
}

impl NodeDependency {
    fn is_shipped(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }
}
