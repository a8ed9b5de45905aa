//! Files of certificates and keys: their names, and the search for them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use spillway_link::certs::{CertificateFacts, CertificateKind, certificates_of_pem};

/// Largest file that is read: more than any chain of certificates or request needs. A wrong path
/// must not fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most files of a folder that are looked at.
const FILES_MAX: usize = 10_000;

/// Reads a whole file.
///
/// # Errors
/// Returns an error if the file can't be read, or is too large for a certificate, key or request.
pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    let unreadable = || format!("{} can't be read", path.display());
    let bytes = std::fs::metadata(path).with_context(unreadable)?.len();
    ensure!(bytes <= FILE_BYTES_MAX, "{}: {bytes} bytes are too many for it", path.display());
    std::fs::read(path).with_context(unreadable)
}

/// Returns the files of a folder that hold certificates, sorted by name.
///
/// # Errors
/// Returns an error if the folder can't be read or holds no certificate.
pub(super) fn pem_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = || format!("the folder {} can't be read", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(unreadable)?.take(FILES_MAX) {
        let path = entry.with_context(unreadable)?.path();
        let is_pem = path.extension().is_some_and(|end| end == "pem" || end == "crt");
        // An unreadable file holds no certificate that could be shown.
        if is_pem && read(&path).is_ok_and(|text| !certificates_of_pem(&text).is_empty()) {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "no file in {} holds a certificate", folder.display());
    files.sort();
    Ok(files)
}

/// Returns the certificates of nodes in a folder, with their facts.
///
/// # Errors
/// Returns an error if the folder can't be read or holds no certificate.
pub(super) fn node_files(folder: &Path) -> Result<Vec<(PathBuf, CertificateFacts)>> {
    let mut nodes = Vec::new();
    for file in pem_files(folder)? {
        let chain = certificates_of_pem(&read(&file)?);
        let facts = chain.first().and_then(CertificateFacts::of);
        if let Some(facts) = facts.filter(|facts| facts.kind == CertificateKind::Node) {
            nodes.push((file, facts));
        }
    }
    Ok(nodes)
}

/// Returns the key file of a certificate if it lies beside: `a.eu-key.pem` for `a.eu.pem`.
pub(super) fn key_beside(certificate: &Path) -> Option<PathBuf> {
    let stem = certificate.file_stem()?.to_str()?;
    let key = certificate.with_file_name(format!("{stem}-key.pem"));
    key.exists().then_some(key)
}
