//! Encrypted backups, in version 1 of the age format (age-encryption.org/v1): the tools `age` and
//! `rage` read and write them as well.

mod header;
mod keys;
mod payload;

use std::path::PathBuf;

use zeroize::Zeroizing;

pub(crate) use keys::{Identity, Recipient};

use header::Header;

/// First line of every encrypted file.
const MARK: &[u8] = b"age-encryption.org/v1\n";

/// The secret that encrypts a file's content: wrapped in its header for each recipient.
type FileKey = Zeroizing<[u8; 16]>;

/// Recipients of an encrypted file.
#[derive(Debug)]
pub(crate) enum Lock {
    /// Anyone with the passphrase.
    Passphrase(Passphrase),
    /// Anyone with the private key of one of the recipients.
    Recipients(Vec<Recipient>),
}

/// Secrets that may decrypt a file.
#[derive(Debug, Default)]
pub(crate) struct Unlock {
    /// The passphrase, if one was given.
    pub(crate) passphrase: Option<Passphrase>,
    /// Private keys.
    pub(crate) identities: Vec<Identity>,
}

/// A passphrase. `Debug` does not show it, and the memory is cleared.
pub(crate) struct Passphrase(pub(crate) Zeroizing<String>);

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

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

/// Returns true if `bytes` are an encrypted file.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK)
}

/// Encrypts `plain`.
///
/// # Errors
/// Returns an error if the system has no random numbers, or a recipient's key is no valid point.
pub(crate) fn seal(plain: &[u8], lock: &Lock) -> Result<Vec<u8>, SealError> {
    let key = FileKey::new(random()?);
    let mut sealed = Header::wrap(&key, lock)?.to_bytes(&key);
    payload::seal(&key, &random()?, plain, &mut sealed)?;
    Ok(sealed)
}

/// Decrypts a file of [`seal`] or another tool. Nothing is returned unless all of it is authentic.
///
/// # Errors
/// Returns an error if the key is missing or wrong, or the file is cut off or altered.
pub(crate) fn open(sealed: &[u8], unlock: &Unlock) -> Result<Vec<u8>, SealError> {
    let (header, payload) = Header::read(sealed)?;
    let key = header.unwrap(unlock)?;
    header.check(&key)?;
    payload::open(&key, payload)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], SealError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(SealError::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
#[path = "seal_test.rs"]
mod seal_test;
