//! `spillway certs show`: names, expiry dates and faults of certificates.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use spillway_link::certs::{
    AuthorityFiles, CertificateFacts, CertificateKind, Rotation, RotationPhase, authority_of,
    certificates_of_pem, fingerprint, is_key_of,
};

use super::args::ShowArgs;
use super::folder::{key_beside, pem_files, read};
use crate::{cluster, output};

/// Row of the output: a certificate and its checks.
#[derive(Debug, Serialize)]
struct Shown {
    /// File of the certificate, or its place in the node that uses it.
    place: String,
    #[serde(flatten)]
    facts: CertificateFacts,
    days_left: i64,
    /// Fingerprint of the authority that vouches for the certificate; `None` without one, or if
    /// that was not checked.
    authority: Option<String>,
    /// Reason why no authority vouches for the certificate.
    authority_fault: Option<String>,
    /// True if the key beside the certificate belongs to it; `None` if there is no key.
    is_key_its_own: Option<bool>,
    /// Time at which the node took the certificate into use, in milliseconds since 1970.
    since_ms: Option<u64>,
}

/// Shows the certificates of files, a folder or a node.
///
/// # Errors
/// Returns an error if a certificate has ended, ends soon or can't be used, or nothing can be read.
pub(super) fn show(args: &ShowArgs) -> Result<()> {
    let now = SystemTime::now();
    let (shown, rotation) = match (&args.dir, args.files.as_slice()) {
        (None, []) => (of_node(&cluster::ask(&args.connect, "/certificates")?, now)?, None),
        (Some(folder), _) => {
            let files = pem_files(folder)?;
            (of_files(&files, args.authority.as_deref(), now)?, rotation(folder))
        }
        (None, files) => {
            for file in files {
                ensure!(
                    !certificates_of_pem(&read(file)?).is_empty(),
                    "{} holds no certificate in PEM form",
                    file.display()
                );
            }
            (of_files(files, args.authority.as_deref(), now)?, None)
        }
    };
    let faults: Vec<String> =
        shown.iter().flat_map(|shown| faults(shown, i64::from(args.warn_days))).collect();
    if args.connect.json {
        let rotation = rotation.map(|(phase, next)| json!({ "phase": phase, "next": next }));
        let report = json!({
            "ok": faults.is_empty(), "certificates": shown, "rotation": rotation, "faults": faults,
        });
        output::line(&report.to_string())?;
    } else {
        output::line(&table(&shown))?;
        if let Some((phase, next)) = rotation {
            output::line(&format!("\nrotation of the CA: {phase}: {next}"))?;
        }
    }
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

fn of_files(files: &[PathBuf], authority: Option<&Path>, now: SystemTime) -> Result<Vec<Shown>> {
    let mut all = Vec::new();
    for file in files {
        let chain = certificates_of_pem(&read(file)?);
        let beside = file.with_file_name("ca.pem");
        let authorities = authority.unwrap_or(&beside);
        // Without a CA file, trust is not checked.
        let authorities = if authorities.exists() { Some(read(authorities)?) } else { None };
        let authorities = authorities.map(|pem| certificates_of_pem(&pem));
        // An unreadable key counts as none: usually only the node's own user may read it.
        let key = key_beside(file).and_then(|key| std::fs::read(key).ok());
        for (position, certificate) in chain.iter().enumerate() {
            let unreadable = || format!("{} holds a broken certificate", file.display());
            let facts = CertificateFacts::of(certificate).with_context(unreadable)?;
            let is_authority = facts.kind == CertificateKind::Authority;
            // The rest of a node's chain leads to the CA.
            if position > 0 && !is_authority {
                continue;
            }
            let vouched = authorities
                .as_ref()
                .filter(|_| facts.kind == CertificateKind::Node)
                .map(|all| authority_of(&chain, all, now).map(|at| fingerprint(&all[at])));
            all.push(Shown {
                place: file.display().to_string(),
                days_left: facts.days_left(now),
                facts,
                authority: vouched.clone().and_then(Result::ok),
                authority_fault: vouched.and_then(Result::err),
                is_key_its_own: key.as_ref().and_then(|key| is_key_of(certificate, key)),
                since_ms: None,
            });
        }
    }
    Ok(all)
}

/// Reads the certificates that a node reports.
fn of_node(answer: &Value, now: SystemTime) -> Result<Vec<Shown>> {
    let mut all = Vec::new();
    let mut add = |place: String, item: &Value, facts: &Value| -> Result<()> {
        let facts: CertificateFacts =
            serde_json::from_value(facts.clone()).context("the node's answer can't be read")?;
        all.push(Shown {
            place,
            days_left: facts.days_left(now),
            facts,
            authority: item["authority"].as_str().map(str::to_owned),
            authority_fault: item["authority_fault"].as_str().map(str::to_owned),
            // A node that uses a certificate has the key of it. Authorities are listed without one.
            is_key_its_own: item["certificate"].is_object().then_some(true),
            since_ms: item["since_ms"].as_u64(),
        });
        Ok(())
    };
    let node = &answer["cluster"];
    if node.is_object() {
        add("links".to_owned(), node, &node["certificate"])?;
        for authority in node["authorities"].as_array().into_iter().flatten() {
            add("links".to_owned(), &Value::Null, authority)?;
        }
    }
    for listener in answer["listeners"].as_array().into_iter().flatten() {
        let place = format!("listener {}", listener["listener"].as_str().unwrap_or_default());
        add(place, listener, &listener["certificate"])?;
    }
    ensure!(!all.is_empty(), "the node uses no certificates");
    Ok(all)
}

/// Returns the phase of the CA's rotation in a folder, and the next step; `None` without the CA's
/// key.
fn rotation(folder: &Path) -> Option<(&'static str, &'static str)> {
    let files = AuthorityFiles::in_folder(folder);
    if !files.key.exists() {
        return None;
    }
    let Ok(rotation) = Rotation::read(files) else {
        return Some(("unknown", "ca.pem and ca-key.pem don't belong together"));
    };
    let next = match rotation.phase() {
        RotationPhase::Stable => "there is one CA",
        RotationPhase::Begun => "copy ca.pem to every node, then `spillway certs rotate-ca issue`",
        RotationPhase::Issuing => {
            "give every node a certificate of the new CA, then `spillway certs rotate-ca finish`"
        }
    };
    Some((rotation.phase().as_str(), next))
}

/// Returns the present and near faults of a certificate.
fn faults(shown: &Shown, warn_days: i64) -> Vec<String> {
    let place = &shown.place;
    let mut faults = Vec::new();
    if shown.days_left < 0 {
        // A certificate that ended an hour ago has ended 0 whole days ago.
        faults.push(format!("{place} has ended {} days ago", -1 - shown.days_left));
    } else if shown.days_left < warn_days {
        faults.push(format!("{place} ends in {} days", shown.days_left));
    }
    if let Some(why) = &shown.authority_fault {
        faults.push(format!("{place} is not vouched for: {why}"));
    }
    // While the CA changes, the key is that of either authority.
    if shown.is_key_its_own == Some(false) && shown.facts.kind != CertificateKind::Authority {
        faults.push(format!("the key beside {place} is another's"));
    }
    faults
}

fn table(all: &[Shown]) -> String {
    let headings =
        ["certificate", "for", "name", "issuer", "ends", "days", "CA", "key", "since", "SHA-256"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(row));
    cluster::aligned(&rows)
}

fn row(shown: &Shown) -> Vec<String> {
    let facts = &shown.facts;
    let kind = match facts.kind {
        CertificateKind::Authority => "CA",
        CertificateKind::Node => "node",
        CertificateKind::Other => "other",
    };
    let authority = match (&shown.authority, &shown.authority_fault) {
        (Some(_), _) => "vouches",
        (None, Some(_)) => "REFUSES",
        (None, None) => "-",
    };
    let key = match (shown.is_key_its_own, facts.kind) {
        (Some(true), CertificateKind::Authority) => "signs",
        (Some(true), _) => "fits",
        (Some(false), CertificateKind::Authority) | (None, _) => "-",
        (Some(false), _) => "ANOTHER'S",
    };
    let since = shown.since_ms.map_or_else(|| "-".to_owned(), date);
    let ends = u64::try_from(facts.not_after_ms).map_or_else(|_| "-".to_owned(), date);
    let name = if facts.name.is_empty() { "-" } else { &facts.name };
    let short = facts.fingerprint.get(..16).unwrap_or_default();
    let days = shown.days_left.to_string();
    [&shown.place, kind, name, &facts.issuer, &ends, &days, authority, key, &since, short]
        .map(str::to_owned)
        .to_vec()
}

/// Formats a time for people, to the second.
fn date(ms: u64) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_millis(ms))
}
