//! `spillway certs revoke --local`: revokes a certificate with the CA's key, without a cluster that
//! agrees on it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use spillway_link::certs::{
    AuthorityFiles, IfExists, certificates_of_pem, revocation_lists, serial_of_pem, write_public,
};

use super::issue::{NO_AUTHORITY, written};
use crate::output;

/// Name of the file beside the CA's own.
const FILE: &str = "revoked.pem";

/// Adds a list with the certificate of that serial number to the file of revoked certificates. A dry run
/// signs nothing.
///
/// # Errors
/// Returns an error if the folder has no CA, the CA can't have issued a certificate of that number, or
/// the file can't be read or written.
pub(super) fn local(
    serial: &str,
    folder: &Path,
    out: Option<&PathBuf>,
    is_dry_run: bool,
) -> Result<()> {
    let files = AuthorityFiles::in_folder(folder);
    let authority = files.open().context(NO_AUTHORITY)?;
    let out = out.cloned().unwrap_or_else(|| folder.join(FILE));
    let before = match std::fs::read_to_string(&out) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("{} can't be read", out.display()));
        }
    };
    let authorities = std::fs::read(&files.certificate)
        .with_context(|| format!("{} can't be read", files.certificate.display()))?;
    ensure!(!serial.trim_matches('0').is_empty(), "no certificate has the serial number {serial}");
    ensure!(
        serial_of_pem(&authorities).as_deref() != Some(serial),
        "{serial} is the CA's own certificate: begin a new CA with `spillway certs rotate-ca`"
    );
    let (lists, faults) = revocation_lists(before.as_bytes(), &certificates_of_pem(&authorities));
    // Nodes would not use the lists of another CA, and would not report that here.
    ensure!(faults.is_empty(), "{}: {}", out.display(), faults[0]);
    if lists.iter().any(|list| list.serials().contains(serial)) {
        return Ok(output::line(&format!("{serial} is revoked by {} already", out.display()))?);
    }
    if is_dry_run {
        return Ok(output::line(&format!("{serial} would be revoked by {}", out.display()))?);
    }
    let text = before + &authority.revoke(serial, SystemTime::now())?;
    written(write_public(&out, text, IfExists::Replace))?;
    output::line(&format!("{serial} is revoked by {}", out.display()))?;
    output::line("copy it to a node that names it as `revoked` in [cluster]: one node is enough")?;
    Ok(())
}
