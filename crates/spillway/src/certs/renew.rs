//! `spillway certs renew`: another certificate for a node before the present one ends.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use spillway_link::certs::{
    AuthorityFiles, CertificateFacts, IfExists, NodeFiles, certificates_of_pem, check_node,
};
use spillway_link::{CertificateFiles, Identity};

use super::args::RenewArgs;
use super::folder::read;
use super::issue::{NO_AUTHORITY, validity, written};
use super::output::show;

/// Renews a node's certificate.
///
/// # Errors
/// Returns an error if the node could not run with the new files, or a file can't be read or
/// written.
pub(super) fn renew(args: &RenewArgs) -> Result<()> {
    let out = args.out.as_ref().unwrap_or(&args.dir);
    let place = NodeFiles::in_folder(out, &args.region, &args.node);
    let present = facts_in(&place.certificate)?;
    if let (Some(most), Some(present)) = (args.if_days_left, &present)
        && present.days_left(SystemTime::now()) > i64::from(most)
    {
        let report = json!({ "ok": true, "renewed": false, "certificate": place.certificate });
        return show(args.json, &report, &[("is good for longer", &place.certificate)]);
    }
    let (certificate, key) = match &args.from {
        Some(folder) => requested(folder, args)?,
        None => made(args, &place, present.is_some())?,
    };
    let new = certificates_of_pem(certificate.as_bytes());
    let new = new.first().and_then(CertificateFacts::of).context("there is no new certificate")?;
    // The cluster of the present certificate; a first certificate names the cluster itself.
    let cluster = present.as_ref().unwrap_or(&new).name.split('/').next().unwrap_or_default();
    let identity = Identity::new(cluster, &args.region, &args.node)?;
    check(&identity, args, &certificate, &key)?;
    written(place.write((certificate, key), IfExists::Replace))?;
    let report = json!({
        "ok": true, "renewed": true, "cluster": cluster, "region": args.region, "node": args.node,
        "certificate": place.certificate, "key": place.key, "not_after_ms": new.not_after_ms,
        "serial": new.serial, "serial_before": present.map(|present| present.serial),
    });
    let lines =
        [("on this node", place.certificate.as_path()), ("on this node, secret", &place.key)];
    show(args.json, &report, &lines)
}

/// Issues a certificate by the CA in the folder. Returns certificate and key.
fn made(args: &RenewArgs, place: &NodeFiles, is_there: bool) -> Result<(String, String)> {
    let authority = AuthorityFiles::in_folder(&args.dir).open().context(NO_AUTHORITY)?;
    ensure!(
        is_there,
        "{} is not there: `spillway certs node` makes the first certificate of a node",
        place.certificate.display()
    );
    let validity = validity(args.days)?;
    if !args.keep_key {
        return Ok(authority.issue(&args.region, &args.node, validity)?);
    }
    let key = text(&place.key)?;
    Ok(authority.issue_for_key(&args.region, &args.node, &key, validity)?)
}

/// Reads a certificate and key that were requested and signed elsewhere.
fn requested(folder: &Path, args: &RenewArgs) -> Result<(String, String)> {
    let files = NodeFiles::in_folder(folder, &args.region, &args.node);
    Ok((text(&files.certificate)?, text(&files.key)?))
}

/// Checks the new files as the node will do when it reads them, before they are in place.
fn check(identity: &Identity, args: &RenewArgs, new: &str, key: &str) -> Result<()> {
    // The copy that the node reads comes first: while the CA is replaced, it may differ from the
    // CA's own.
    let folders = [args.out.as_ref(), Some(&args.dir)];
    let authorities = folders.into_iter().flatten().map(|folder| folder.join("ca.pem"));
    let authority = authorities.into_iter().find(|file| file.exists()).context(
        "the cluster's ca.pem is neither in --out nor in --dir: without it nobody can say whether the node could use the certificate",
    )?;
    // These paths only appear in errors, since the texts are read already.
    let from = args.from.as_ref().or(args.out.as_ref()).unwrap_or(&args.dir);
    let files = NodeFiles::in_folder(from, &args.region, &args.node);
    let told = CertificateFiles {
        authority: authority.clone(),
        certificate: files.certificate,
        key: files.key,
    };
    let texts = [&read(&authority)?, new.as_bytes(), key.as_bytes()];
    check_node(identity, &told, texts).context("nothing was replaced")
}

/// Reads the facts of the certificate in `file`; `None` if there is none.
fn facts_in(file: &Path) -> Result<Option<CertificateFacts>> {
    if !file.exists() {
        return Ok(None);
    }
    let chain = certificates_of_pem(&read(file)?);
    Ok(chain.first().and_then(CertificateFacts::of))
}

fn text(path: &Path) -> Result<String> {
    String::from_utf8(read(path)?).with_context(|| format!("{} is no text", path.display()))
}
