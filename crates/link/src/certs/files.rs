//! Where certificates and keys are kept. Keys are readable by their owner alone.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::authority::{Authority, CertsFault};
use super::secret::PrefixKey;
use crate::config::CertificateFiles;

/// What to do if a file is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfExists {
    /// Leave it, and make nothing.
    Refuse,
    /// Put the new one in its place.
    Replace,
}

/// Why files can't be written or read.
#[derive(Debug, Error)]
pub enum WriteFault {
    /// A file is there and was not to be replaced.
    #[error("{} exists already", .0.display())]
    Exists(PathBuf),
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// What a file has is not what it should be.
    #[error(transparent)]
    Certs(#[from] CertsFault),
}

/// The files that `spillway certs init` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityFiles {
    /// The CA's certificate, for every node.
    pub certificate: PathBuf,
    /// The CA's key. It belongs on no node: who has it can be any of them.
    pub key: PathBuf,
    /// The secret of prompt hashes, for every node.
    pub prefix_key: PathBuf,
}

impl AuthorityFiles {
    /// The usual names in a folder.
    #[must_use]
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            certificate: folder.join("ca.pem"),
            key: folder.join("ca-key.pem"),
            prefix_key: folder.join("prefix.key"),
        }
    }

    /// Writes a CA and a prefix key; makes the folders that are missing.
    ///
    /// # Errors
    /// If one of the files is there and is to stay, or the system refuses.
    pub fn write(
        &self,
        authority: &Authority,
        prefix_key: &PrefixKey,
        if_exists: IfExists,
    ) -> Result<(), WriteFault> {
        write_all(
            if_exists,
            [
                (&self.key, authority.key_pem(), Secrecy::Secret),
                (&self.prefix_key, format!("{}\n", prefix_key.to_hex()), Secrecy::Secret),
                (&self.certificate, authority.certificate_pem().to_owned(), Secrecy::Public),
            ],
        )
    }

    /// Reads the CA back.
    ///
    /// # Errors
    /// If a file can't be read, or is not what it should be.
    pub fn open(&self) -> Result<Authority, WriteFault> {
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|cause| WriteFault::Io { path: path.to_owned(), cause })
        };
        Ok(Authority::open(&read(&self.certificate)?, &read(&self.key)?)?)
    }
}

/// The files that `spillway certs node` makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFiles {
    /// The node's certificate.
    pub certificate: PathBuf,
    /// The node's key.
    pub key: PathBuf,
}

impl NodeFiles {
    /// The usual names in a folder for the node `node` of `region`.
    #[must_use]
    pub fn in_folder(folder: &Path, region: &str, node: &str) -> Self {
        Self {
            certificate: folder.join(format!("{node}.{region}.pem")),
            key: folder.join(format!("{node}.{region}-key.pem")),
        }
    }

    /// Writes a certificate and its key as [`Authority::issue`] returns them.
    ///
    /// # Errors
    /// If one of the files is there and is to stay, or the system refuses.
    pub fn write(
        &self,
        (certificate, key): (String, String),
        if_exists: IfExists,
    ) -> Result<(), WriteFault> {
        write_all(
            if_exists,
            [(&self.key, key, Secrecy::Secret), (&self.certificate, certificate, Secrecy::Public)],
        )
    }

    /// What a link is told of them.
    #[must_use]
    pub fn with_authority(&self, authority: &AuthorityFiles) -> CertificateFiles {
        CertificateFiles {
            authority: authority.certificate.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Secrecy {
    Public,
    Secret,
}

/// Writes all files or, if one of them must not be replaced, none.
fn write_all<const N: usize>(
    if_exists: IfExists,
    files: [(&PathBuf, String, Secrecy); N],
) -> Result<(), WriteFault> {
    if if_exists == IfExists::Refuse
        && let Some((path, ..)) = files.iter().find(|(path, ..)| path.exists())
    {
        return Err(WriteFault::Exists((*path).clone()));
    }
    for (path, text, secrecy) in files {
        write(path, &text, secrecy, if_exists).map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => WriteFault::Exists(path.clone()),
            _ => WriteFault::Io { path: path.clone(), cause },
        })?;
    }
    Ok(())
}

/// Writes beside the file and then puts it in place, so that a running node never reads half a
/// certificate. The file has its permissions before it has its content.
fn write(path: &Path, text: &str, secrecy: Secrecy, if_exists: IfExists) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder)?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    remove_left_over(&beside)?;
    let mut file = create(&beside, secrecy)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    match if_exists {
        IfExists::Replace => std::fs::rename(&beside, path),
        // Fails if the file has come into being meanwhile, which a rename would not.
        IfExists::Refuse => {
            let linked = std::fs::hard_link(&beside, path);
            std::fs::remove_file(&beside)?;
            linked
        }
    }
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
