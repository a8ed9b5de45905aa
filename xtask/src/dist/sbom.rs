//! SBOM of the binary in CycloneDX 1.6: a list of packages that vulnerability scanners read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::package;
use super::release::Release;
use crate::command::{command, first_line};
use crate::metadata::{Metadata, Package};
use crate::report::CheckOutcome;

/// Content of `Cargo.lock`, as far as it is used here.
#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    /// SHA-256 of the downloaded crate; None for packages of the workspace.
    checksum: Option<String>,
}

/// Checksums by name and version.
type Checksums = BTreeMap<(String, String), String>;

/// Writes the list of packages in `spillway` on the release's machine.
///
/// # Errors
/// Returns an error if the graph of packages or a checksum is missing.
pub(super) fn write(root: &Path, release: &Release, out: &Path) -> Result<CheckOutcome> {
    let metadata = Metadata::load_for(root, Some(&release.target))?;
    let checksums = checksums(&fs::read_to_string(root.join("Cargo.lock"))?)?;
    let date = format!("date --utc --date=@{} +%FT%TZ", release.epoch);
    let dated = first_line(&mut command(root, &date)).context("cannot start date")?;
    let list = list(&metadata, &checksums, &dated)?;
    let path = out.join(format!("spillway-{}.cdx.json", release.version));
    fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")?;
    package::date(&path, release.epoch)?;
    Ok(CheckOutcome::Passed)
}

fn checksums(lock: &str) -> Result<Checksums> {
    let lock: Lock = toml::from_str(lock).context("cannot read Cargo.lock")?;
    let known = lock.package.into_iter();
    Ok(known.filter_map(|of| Some(((of.name, of.version), of.checksum?))).collect())
}

fn list(metadata: &Metadata, checksums: &Checksums, dated: &str) -> Result<Value> {
    let spillway = metadata.member("spillway").context("no package is called spillway")?;
    let inside: BTreeSet<&str> = metadata.ways_from(spillway).into_keys().collect();
    let packages: BTreeMap<&str, &Package> = metadata
        .packages
        .iter()
        .filter(|package| inside.contains(package.id.as_str()))
        .map(|package| (package.id.as_str(), package))
        .collect();
    let (mut components, mut graph) = (Vec::new(), Vec::new());
    for (id, package) in &packages {
        let edges = metadata.shipped_edges(id);
        let mut uses: Vec<String> =
            edges.filter_map(|edge| packages.get(edge)).map(|package| purl(package)).collect();
        uses.sort();
        uses.dedup();
        graph.push(json!({ "ref": purl(package), "dependsOn": uses }));
        if *id != spillway.id {
            components.push(component(package, checksums)?);
        }
    }
    let by =
        |key: &'static str| move |one: &Value| one[key].as_str().unwrap_or_default().to_owned();
    // Up to here the order is that of ids, which have paths of this machine in them.
    components.sort_by_key(by("bom-ref"));
    graph.sort_by_key(by("ref"));
    let mut own = component(spillway, checksums)?;
    own["type"] = json!("application");
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "timestamp": dated, "component": own },
        "components": components,
        "dependencies": graph,
    }))
}

fn component(package: &Package, checksums: &Checksums) -> Result<Value> {
    let mut shown = json!({
        "type": "library",
        "bom-ref": purl(package),
        "name": package.name,
        "version": package.version,
        "purl": purl(package),
    });
    if let Some(license) = &package.license {
        // Some crates still write `MIT/Apache-2.0`, which is no SPDX expression.
        shown["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
    }
    let known = checksums.get(&(package.name.clone(), package.version.clone()));
    match (known, &package.source) {
        (Some(sum), _) => shown["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]),
        // A package of the workspace, which was not downloaded.
        (None, None) => {}
        (None, Some(_)) => bail!("{} {} has no checksum", package.name, package.version),
    }
    Ok(shown)
}

/// Returns the package URL (purl), a name that all ecosystems share.
fn purl(package: &Package) -> String {
    // `+` is the only character of versions that has to be escaped.
    format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn the_list_has_what_is_shipped_and_nothing_that_only_tests_use() {
        let metadata = Metadata::load(&root()).unwrap();
        let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
        let list = list(&metadata, &checksums(&lock).unwrap(), "2027-01-31T00:00:00Z").unwrap();
        let components = list["components"].as_array().unwrap();
        let named = |name: &str| components.iter().find(|known| known["name"] == name);
        let hyper = named("hyper").unwrap();
        assert_eq!(hyper["licenses"][0]["expression"], "MIT");
        assert_eq!(hyper["hashes"][0]["content"].as_str().unwrap().len(), 64);
        assert!(named("spillway-node").is_some_and(|own| own["hashes"].is_null()));
        assert!(named("proptest").is_none() && named("spillway-bench").is_none());
        assert_eq!(list["metadata"]["component"]["name"], "spillway");

        let all = list["dependencies"].as_array().unwrap();
        let refs: BTreeSet<_> = all.iter().map(|one| one["ref"].as_str().unwrap()).collect();
        assert_eq!(refs.len(), components.len() + 1, "each once");
        for used in all.iter().flat_map(|one| one["dependsOn"].as_array().unwrap()) {
            assert!(refs.contains(used.as_str().unwrap()), "{used} is described");
        }
    }

    #[test]
    fn a_download_without_a_checksum_is_an_error() {
        let metadata = Metadata::load(&root()).unwrap();
        let error = list(&metadata, &Checksums::new(), "").unwrap_err();
        assert!(error.to_string().contains("has no checksum"), "{error}");
    }
}
