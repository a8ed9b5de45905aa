//! Certificate rotation: the cluster's CA is replaced in three steps, between which every node
//! works on.
//!
//! `ca.pem` and `ca-key.pem` hold the whole state: two certificates mean that a rotation has begun,
//! and the one that belongs to the key signs. No other record exists that could disagree.

use std::path::PathBuf;

use thiserror::Error;

use super::authority::{Authority, CertsError, Validity};
use super::files::{AuthorityFiles, CertificateWriteError, IfExists, Secrecy, read, write_all};
use super::pem_blocks::certificate_blocks;

/// Phase of a rotation of the CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationPhase {
    // Stable => Begun
    /// A single CA is trusted, and it signs.
    Stable,
    // Begun => Issuing
    /// Two CAs are trusted, and the old one signs.
    Begun,
    // Issuing => Stable
    /// Two CAs are trusted, and the new one signs.
    Issuing,
}

impl RotationPhase {
    /// Returns the phase's name in the output of commands.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Begun => "begun",
            Self::Issuing => "issuing",
        }
    }
}

/// Reason for which a step of a rotation can't be taken.
#[derive(Debug, Error)]
pub enum RotationError {
    /// A file can't be read or written.
    #[error(transparent)]
    Files(#[from] CertificateWriteError),
    /// A CA can't be made or read.
    #[error(transparent)]
    Certs(#[from] CertsError),
    /// Another step comes first.
    #[error("{0}")]
    Order(&'static str),
    /// The file of the CA's certificate has none, or more than a rotation needs.
    #[error("{}: it has {count} certificates; one is usual, and two while the CA changes", path.display())]
    Count {
        /// Path of the file.
        path: PathBuf,
        /// Number of certificates in it.
        count: usize,
    },
}

/// Rotation of a cluster's CA in a folder.
#[derive(Debug)]
pub struct Rotation {
    files: AuthorityFiles,
    /// Certificates as PEM, the older first.
    authorities: Vec<String>,
    phase: RotationPhase,
    cluster: String,
}

impl Rotation {
    /// Reads the phase of the rotation from the CA's files.
    ///
    /// # Errors
    /// Returns an error if the files are not those of a CA.
    pub fn read(files: AuthorityFiles) -> Result<Self, RotationError> {
        let pem = read(&files.certificate)?;
        let authorities = certificate_blocks(&pem);
        let signing = Authority::open(&pem, &read(&files.key)?)?;
        let is_signing = |block: &String| block == signing.certificate_pem();
        let phase = match authorities.as_slice() {
            [_] => RotationPhase::Stable,
            [old, _] if is_signing(old) => RotationPhase::Begun,
            [_, _] => RotationPhase::Issuing,
            all => {
                let (path, count) = (files.certificate, all.len());
                return Err(RotationError::Count { path, count });
            }
        };
        Ok(Self { cluster: signing.cluster().to_owned(), files, authorities, phase })
    }

    /// Returns the phase of the rotation.
    #[must_use]
    pub fn phase(&self) -> RotationPhase {
        self.phase
    }

    /// Returns the newest CA as PEM.
    #[must_use]
    pub fn newest(&self) -> &str {
        self.authorities.last().map_or("", String::as_str)
    }

    /// Makes the next CA and adds it to `ca.pem`. The present CA still signs.
    ///
    /// # Errors
    /// Returns an error if a rotation is under way, or a file can't be written.
    pub fn begin(&self, validity: Validity) -> Result<(), RotationError> {
        if self.phase != RotationPhase::Stable {
            return Err(RotationError::Order(
                "ca.pem has two certificates already: `rotate-ca issue` and `rotate-ca finish` are next",
            ));
        }
        let next = Authority::new(&self.cluster, validity)?;
        let both = [self.newest(), next.certificate_pem()].concat();
        // The key is written first: a certificate that is trusted everywhere is worth nothing
        // without its key.
        Ok(write_all(
            IfExists::Replace,
            [
                (&self.files.next_key(), next.key_pem(), Secrecy::Secret),
                (&self.files.certificate, both, Secrecy::Public),
            ],
        )?)
    }

    /// Makes the new CA the one that signs.
    ///
    /// # Errors
    /// Returns an error if no rotation is at this step, or a file can't be read or written.
    pub fn issue(&self) -> Result<(), RotationError> {
        if self.phase != RotationPhase::Begun {
            return Err(RotationError::Order("there is no new CA: `rotate-ca begin` comes first"));
        }
        let (next, old) = (read(&self.files.next_key())?, read(&self.files.key)?);
        // The key is checked before any file is written.
        Authority::open(self.newest(), &next)?;
        write_all(
            IfExists::Replace,
            [
                // The old key is kept first, so that an interrupted step loses no key.
                (&self.files.old_key(), old, Secrecy::Secret),
                (&self.files.key, next, Secrecy::Secret),
            ],
        )?;
        remove(self.files.next_key())
    }

    /// Removes the old CA from `ca.pem` and deletes its key. The caller must know that no node
    /// needs the old CA.
    ///
    /// # Errors
    /// Returns an error if the new CA does not sign yet, or a file can't be written.
    pub fn finish(&self) -> Result<(), RotationError> {
        match self.phase {
            RotationPhase::Begun => {
                return Err(RotationError::Order(
                    "the old CA still signs: `rotate-ca issue` comes first",
                ));
            }
            // An earlier call was interrupted after its first half.
            RotationPhase::Stable if self.files.old_key().exists() => {}
            RotationPhase::Stable => {
                return Err(RotationError::Order("no rotation is under way"));
            }
            RotationPhase::Issuing => {
                let newest = self.newest().to_owned();
                let files = [(&self.files.certificate, newest, Secrecy::Public)];
                write_all(IfExists::Replace, files)?;
            }
        }
        remove(self.files.old_key())
    }
}

fn remove(path: PathBuf) -> Result<(), RotationError> {
    match std::fs::remove_file(&path) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(CertificateWriteError::Io { path, cause }.into())
        }
        _ => Ok(()),
    }
}
