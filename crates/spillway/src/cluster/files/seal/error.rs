//! Failures of encryption.

use std::path::PathBuf;

/// Failure to encrypt or decrypt a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    NoRandomness(getrandom::Error),
    /// The file needs a passphrase, and none was given.
    #[error(
        "it is encrypted with a passphrase: name a file that holds it with --passphrase-file \
         (- for standard input), or set SPILLWAY_BACKUP_PASSPHRASE"
    )]
    NoPassphrase,
    /// The file needs a private key, and none was given.
    #[error("it is encrypted for a key: name the file of the private key with --identity")]
    NoIdentity,
    /// The passphrase is wrong.
    #[error("the passphrase is wrong")]
    WrongPassphrase,
    /// None of the private keys belongs to the file.
    #[error("none of the private keys is one that it was encrypted for")]
    WrongIdentity,
    /// A file is not a list of private keys.
    #[error("{what} in {}", .place.display())]
    BadKey {
        /// Description of the fault.
        what: &'static str,
        /// File with the fault.
        place: PathBuf,
    },
    /// A recipient is no public key.
    #[error("{0:?} is no public key of age: it begins with age1 and has 62 characters")]
    BadRecipient(String),
    /// The file is not as it was written.
    #[error("it is damaged or was altered: {0}")]
    Damaged(&'static str),
}
