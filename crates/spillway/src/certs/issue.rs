//! Rules that all commands share which make certificates.

use std::time::SystemTime;

use anyhow::{Context, Result};
use spillway_link::certs::{CertificateWriteError, IfExists, Validity};

/// Error text of commands that need the CA and don't find it.
pub(super) const NO_AUTHORITY: &str =
    "this needs ca.pem and ca-key.pem of `spillway certs init`, in the folder --dir";

/// Returns the validity of a certificate that is made now and good for `days`.
///
/// # Errors
/// Returns an error if a certificate can't be good for so long.
pub(super) fn validity(days: u32) -> Result<Validity> {
    Ok(Validity::days(SystemTime::now(), days)?)
}

/// Returns what to do with a file that is there already.
pub(super) fn if_exists(force: bool) -> IfExists {
    if force { IfExists::Replace } else { IfExists::Refuse }
}

/// Checks that files were written. The error names --force where that would help.
///
/// # Errors
/// Returns an error if the files were not written.
pub(super) fn written(outcome: Result<(), CertificateWriteError>) -> Result<()> {
    match outcome {
        Err(fault @ CertificateWriteError::Exists(_)) => {
            Err(fault).context("nothing was written (--force)")
        }
        // Other faults came with the writing itself, where --force would not help.
        outcome => Ok(outcome?),
    }
}
