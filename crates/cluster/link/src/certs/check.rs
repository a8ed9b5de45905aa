//! Check of a node's files before they replace those in use.

use rustls::pki_types::UnixTime;

use crate::config::CertificateFiles;
use crate::identity::Identity;
use crate::tls::{CredentialError, FileContents, Material};

/// Checks that the node `me` could run with these certificates and this key, as a node does when it
/// reads its files. `files` only names the files in errors.
///
/// # Errors
/// Returns the fault that a node would report.
pub fn check_node(
    me: &Identity,
    files: &CertificateFiles,
    [authority, certificate, key]: [&[u8]; 3],
) -> Result<(), CredentialError> {
    let contents = FileContents::of([authority, certificate, key]);
    Material::parse(files, &contents, me, UnixTime::now()).map(drop)
}
