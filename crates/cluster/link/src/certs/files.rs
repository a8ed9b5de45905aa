//! Files of certificates and keys. Only their owner can read keys.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::authority::{Authority, CertsError};
use super::secret::PrefixKey;
use crate::config::CertificateFiles;

/// Action if a file exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Leave the old file and return an error.
    Refuse,
    /// Replace the old file.
    Replace,
}

/// Error while files are written or read.
#[derive(Debug, Error)]
pub enum CertificateWriteError {
    /// A file exists and was not to be replaced.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The system refused to read or write.
    #[error("{}: {cause}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The content of a file can't be used.
    #[error(transparent)]
    Certs(#[from] CertsError),
}

/// Files that `spillway certs init` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityFiles {
    /// Path of the CA's certificate, which every node needs.
    pub certificate: PathBuf,
    /// Path of the CA's key. Keep it on no node: a holder of this key can act as any node.
    pub key: PathBuf,
    /// Path of the secret key of prompt hashes, which every node needs.
    pub prefix_key: PathBuf,
}

impl AuthorityFiles {
    /// Returns the usual paths in a folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            certificate: folder.join("ca.pem"),
            key: folder.join("ca-key.pem"),
            prefix_key: folder.join("prefix.key"),
        }
    }

    /// Writes a CA and a prefix key, and makes missing folders.
    ///
    /// # Errors
    /// Returns an error if one of the files exists and is not to be replaced, or the system
    /// refuses.
    pub fn write(
        &self,
        authority: &Authority,
        prefix_key: &PrefixKey,
        if_exists: IfExists,
    ) -> Result<(), CertificateWriteError> {
        write_all(
            if_exists,
            [
                (&self.key, authority.key_pem(), Secrecy::Secret),
                (&self.prefix_key, format!("{}\n", prefix_key.to_hex()), Secrecy::Secret),
                (&self.certificate, authority.certificate_pem().to_owned(), Secrecy::Public),
            ],
        )
    }

    /// Returns the path of the next CA's key, while two CAs are trusted and the old one signs.
    #[must_use]
    pub fn next_key(&self) -> PathBuf {
        self.key.with_file_name("ca-next-key.pem")
    }

    /// Returns the path of the old CA's key, while two CAs are trusted and the new one signs.
    #[must_use]
    pub fn old_key(&self) -> PathBuf {
        self.key.with_file_name("ca-old-key.pem")
    }

    /// Reads the CA from its files.
    ///
    /// # Errors
    /// Returns an error if a file can't be read, or its content can't be used.
    pub fn open(&self) -> Result<Authority, CertificateWriteError> {
        Ok(Authority::open(&read(&self.certificate)?, &read(&self.key)?)?)
    }
}

/// Files that `spillway certs node` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFiles {
    /// Path of the node's certificate.
    pub certificate: PathBuf,
    /// Path of the node's key.
    pub key: PathBuf,
}

impl NodeFiles {
    /// Returns the usual paths in a folder for the node `node` of `region`.
    #[must_use]
    pub fn in_folder(folder: &Path, region: &str, node: &str) -> Self {
        Self {
            certificate: folder.join(format!("{node}.{region}.pem")),
            key: folder.join(format!("{node}.{region}-key.pem")),
        }
    }

    /// Writes a certificate and its key as [`Authority::issue`] returns them. Each file is replaced
    /// at once, and the key first: a node that reads between the two finds that they don't belong
    /// together, and keeps the old ones.
    ///
    /// # Errors
    /// Returns an error if one of the files exists and is not to be replaced, or the system
    /// refuses.
    pub fn write(
        &self,
        (certificate, key): (String, String),
        if_exists: IfExists,
    ) -> Result<(), CertificateWriteError> {
        write_all(
            if_exists,
            [(&self.key, key, Secrecy::Secret), (&self.certificate, certificate, Secrecy::Public)],
        )
    }

    /// Returns the paths that a link needs: these files and the CA's certificate.
    #[must_use]
    pub fn with_authority(&self, authority: &AuthorityFiles) -> CertificateFiles {
        CertificateFiles {
            authority: authority.certificate.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }
}

/// Writes one file that every user may read.
///
/// # Errors
/// Returns an error if the file exists and is not to be replaced, or the system refuses.
pub fn write_public(
    path: &Path,
    text: String,
    if_exists: IfExists,
) -> Result<(), CertificateWriteError> {
    write_all(if_exists, [(&path.to_owned(), text, Secrecy::Public)])
}

/// Writes a key that only its owner may read.
///
/// # Errors
/// Returns an error if the file exists and is not to be replaced, or the system refuses.
pub fn write_secret(
    path: &Path,
    text: String,
    if_exists: IfExists,
) -> Result<(), CertificateWriteError> {
    write_all(if_exists, [(&path.to_owned(), text, Secrecy::Secret)])
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrecy {
    Public,
    Secret,
}

pub(super) fn read(path: &Path) -> Result<String, CertificateWriteError> {
    std::fs::read_to_string(path)
        .map_err(|cause| CertificateWriteError::Io { path: path.to_owned(), cause })
}

/// Writes all files, or none if one of them must not be replaced. All are on the disk before the
/// first one is put in its place, so that only a moment lies between the first and the last.
pub(super) fn write_all<const N: usize>(
    if_exists: IfExists,
    files: [(&PathBuf, String, Secrecy); N],
) -> Result<(), CertificateWriteError> {
    if if_exists == IfExists::Refuse
        && let Some((path, ..)) = files.iter().find(|(path, ..)| path.exists())
    {
        return Err(CertificateWriteError::Exists((*path).clone()));
    }
    let fault = |path: &PathBuf, cause: io::Error| match cause.kind() {
        // Another process created the file after the check above.
        io::ErrorKind::AlreadyExists => CertificateWriteError::Exists(path.clone()),
        _ => CertificateWriteError::Io { path: path.clone(), cause },
    };
    for (path, text, secrecy) in &files {
        write_beside(path, text, *secrecy).map_err(|cause| fault(path, cause))?;
    }
    for (path, ..) in &files {
        put_in_place(path, if_exists).map_err(|cause| fault(path, cause))?;
    }
    Ok(())
}

/// Writes a temporary file beside `path`, which has its permissions before it has its content.
fn write_beside(path: &Path, text: &str, secrecy: Secrecy) -> io::Result<()> {
    std::fs::create_dir_all(folder_of(path))?;
    let beside = beside(path);
    // An interrupted call may have left its temporary file.
    remove_left_over(&beside)?;
    let mut file = create(&beside, secrecy)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Moves the temporary file into its place, so that a running node never reads half a certificate.
fn put_in_place(path: &Path, if_exists: IfExists) -> io::Result<()> {
    let beside = beside(path);
    match if_exists {
        IfExists::Replace => std::fs::rename(&beside, path),
        // A link fails if the file has been created by now; a rename would replace it.
        IfExists::Refuse => {
            let linked = std::fs::hard_link(&beside, path);
            std::fs::remove_file(&beside)?;
            linked
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        // The parent of a bare file name is empty.
        _ => Path::new("."),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    PathBuf::from(beside)
}

fn remove_left_over(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn create(path: &Path, secrecy: Secrecy) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(
        &mut options,
        if secrecy == Secrecy::Secret { 0o600 } else { 0o644 },
    );
    #[cfg(not(unix))]
    let _ = secrecy;
    options.open(path)
}
