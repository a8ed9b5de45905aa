//! `spillway certs rotate-ca`: another CA in three steps, between which every node goes on.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use spillway_link::certs::{
    AuthorityFiles, CertificateFacts, CertificateKind, IfExists, NodeFiles, Rotation,
    RotationPhase, authority_of, certificates_of_pem, fingerprint,
};

use super::args::{FinishAt, RotateAt, RotateCommand};
use super::folder::{key_beside, node_files, read};
use super::issue::{NO_AUTHORITY, validity, written};
use super::output::show;
use crate::cluster;

/// Takes one step of the rotation.
///
/// # Errors
/// Returns an error if the step does not come next, a node would be cut off by it, or a file can't
/// be read or written.
pub(super) fn run(command: &RotateCommand) -> Result<()> {
    match command {
        RotateCommand::Begin { at, days } => begin(at, *days),
        RotateCommand::Issue { at, days } => issue(at, *days),
        RotateCommand::Finish { at } => finish(at),
    }
}

fn begin(at: &RotateAt, days: u32) -> Result<()> {
    let files = AuthorityFiles::in_folder(&at.dir);
    open(&at.dir)?.begin(validity(days)?)?;
    let report = json!({
        "ok": true, "phase": RotationPhase::Begun.as_str(), "authority": files.certificate,
    });
    let lines = [
        ("to every node, before the next step", files.certificate.as_path()),
        ("on no node, secret", &files.next_key()),
    ];
    show(at.json, &report, &lines)
}

fn issue(at: &RotateAt, days: u32) -> Result<()> {
    let rotation = open(&at.dir)?;
    // A repeated step renews the certificates that were left over.
    if rotation.phase() != RotationPhase::Issuing {
        rotation.issue()?;
    }
    let authority = AuthorityFiles::in_folder(&at.dir).open().context(NO_AUTHORITY)?;
    let newest = certificates_of_pem(rotation.newest().as_bytes());
    let (mut renewed, mut left) = (Vec::new(), Vec::new());
    for (file, facts) in node_files(&at.dir)? {
        let chain = certificates_of_pem(&read(&file)?);
        // An earlier run of this step has renewed this one.
        if authority_of(&chain, &newest, SystemTime::now()).is_ok() {
            continue;
        }
        let mut parts = facts.name.split('/').skip(1);
        let (Some(region), Some(node), Some(_)) = (parts.next(), parts.next(), key_beside(&file))
        else {
            left.push(file);
            continue;
        };
        let place = NodeFiles::in_folder(&at.dir, region, node);
        // The new certificate would appear beside this file instead of replacing it.
        if place.certificate != file {
            left.push(file);
            continue;
        }
        let issued = authority.issue(region, node, validity(days)?)?;
        written(place.write(issued, IfExists::Replace))?;
        renewed.push(file);
    }
    let report = json!({
        "ok": true, "phase": RotationPhase::Issuing.as_str(), "renewed": renewed, "left": left,
    });
    let renewed = renewed.iter().map(|file| ("renewed: to its node, with its key", &**file));
    let left =
        left.iter().map(|file| ("its key is elsewhere: `certs sign` or `certs renew`", &**file));
    show(at.json, &report, &renewed.chain(left).collect::<Vec<_>>())
}

fn finish(at: &FinishAt) -> Result<()> {
    let rotation = open(&at.dir)?;
    let newest = certificates_of_pem(rotation.newest().as_bytes());
    let newest = newest.first().context("the new CA can't be read")?;
    let (mut old, mut checked) = (Vec::new(), 0);
    let in_folder = node_files(&at.dir)?.into_iter().map(|(file, _)| file);
    for file in in_folder.chain(at.certificates.iter().cloned()) {
        let chain = certificates_of_pem(&read(&file)?);
        checked += 1;
        ensure!(is_of_node(&chain), "{} is no certificate of a node", file.display());
        if authority_of(&chain, std::slice::from_ref(newest), SystemTime::now()).is_err() {
            old.push(file.display().to_string());
        }
    }
    let mut nodes = Vec::new();
    if at.ask {
        let answer = cluster::ask(&at.connect, "/certificates/nodes")?;
        nodes = live(&answer, &fingerprint(newest), &mut old)?;
    }
    ensure!(
        checked + nodes.len() > 0,
        "nothing says that the nodes can do without the old CA: name their certificates, or --ask the cluster"
    );
    if !old.is_empty() {
        bail!(
            "the old CA is still needed, and stays: {}. Give each of these nodes a certificate of the new CA first (`spillway certs renew`)",
            old.join("; ")
        );
    }
    rotation.finish()?;
    let file = AuthorityFiles::in_folder(&at.dir).certificate;
    let report = json!({
        "ok": true, "phase": RotationPhase::Stable.as_str(), "authority": file, "asked": nodes,
    });
    show(at.connect.json, &report, &[("to every node", file.as_path())])
}

/// Returns the names of the cluster's nodes, and adds those that show no certificate of the new CA
/// to `old`.
fn live(answer: &Value, newest: &str, old: &mut Vec<String>) -> Result<Vec<String>> {
    let all = answer["nodes"].as_array().context("the node does not say what others show")?;
    let mut names = Vec::new();
    for node in all {
        let name = node["node"].as_str().unwrap_or_default().to_owned();
        // A node that can't be asked may still have a certificate of the old CA.
        if let Some(fault) = node["fault"].as_str() {
            old.push(format!("the certificate of {name} can't be seen ({fault})"));
        } else if node["authority"] != newest {
            old.push(format!("{name} shows a certificate of another CA than the new one"));
        }
        names.push(name);
    }
    Ok(names)
}

fn is_of_node(chain: &[rustls::pki_types::CertificateDer<'_>]) -> bool {
    let facts = chain.first().and_then(CertificateFacts::of);
    facts.is_some_and(|facts| facts.kind == CertificateKind::Node)
}

fn open(folder: &Path) -> Result<Rotation> {
    let files: AuthorityFiles = AuthorityFiles::in_folder(folder);
    let missing: Option<PathBuf> =
        [&files.certificate, &files.key].into_iter().find(|file| !file.exists()).cloned();
    match missing {
        Some(file) => bail!("{} is not there: {NO_AUTHORITY}", file.display()),
        None => Ok(Rotation::read(files)?),
    }
}
