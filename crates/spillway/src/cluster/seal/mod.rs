//! Encrypted backups, in version 1 of the age format (age-encryption.org/v1): the tools `age` and
//! `rage` read and write them as well.

mod header;
mod keys;
mod payload;

use std::path::PathBuf;

use zeroize::Zeroizing;

pub(crate) use keys::{Identity, Recipient};

use header::Header;

/// What every encrypted file begins with.
const MARK: &[u8] = b"age-encryption.org/v1\n";

/// The secret that encrypts a file's content: wrapped in its header for each recipient.
type FileKey = Zeroizing<[u8; 16]>;

/// Who may decrypt a file.
#[derive(Debug)]
pub(crate) enum Lock {
    /// Who knows the passphrase.
    Passphrase(Passphrase),
    /// Who has the private key of one of them.
    Recipients(Vec<Recipient>),
}

/// What decrypts a file.
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

/// A file can't be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealFault {
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    NoRandomness(getrandom::Error),
    /// It needs a passphrase, and none was given.
    #[error(
        "it is encrypted with a passphrase: name a file that holds it with --passphrase-file \
         (- for standard input), or set SPILLWAY_BACKUP_PASSPHRASE"
    )]
    NoPassphrase,
    /// It needs a private key, and none was given.
    #[error("it is encrypted for a key: name the file of the private key with --identity")]
    NoIdentity,
    /// The passphrase is another one.
    #[error("the passphrase is wrong")]
    WrongPassphrase,
    /// None of the private keys belongs to it.
    #[error("none of the private keys is one that it was encrypted for")]
    WrongIdentity,
    /// It is no text of a key.
    #[error("{what} in {}", .place.display())]
    BadKey {
        /// What is wrong.
        what: &'static str,
        /// Where.
        place: PathBuf,
    },
    /// A recipient can't be one.
    #[error("{0:?} is no public key of age: it begins with age1 and has 62 characters")]
    BadRecipient(String),
    /// It is not as it was written.
    #[error("it is damaged or was altered: {0}")]
    Damaged(&'static str),
}

/// Whether `bytes` are of an encrypted file.
pub(crate) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(MARK)
}

/// Encrypts `plain`.
///
/// # Errors
/// If the system has no random numbers, or a recipient's key is no point to agree with.
pub(crate) fn seal(plain: &[u8], lock: &Lock) -> Result<Vec<u8>, SealFault> {
    let key = FileKey::new(random()?);
    let mut sealed = Header::wrap(&key, lock)?.to_bytes(&key);
    payload::seal(&key, &random()?, plain, &mut sealed)?;
    Ok(sealed)
}

/// Decrypts what [`seal`] or another tool has encrypted. Nothing is returned unless all of it is as it
/// was written.
///
/// # Errors
/// If the key is missing or wrong, or the file is cut off or altered.
pub(crate) fn open(sealed: &[u8], unlock: &Unlock) -> Result<Vec<u8>, SealFault> {
    let (header, payload) = Header::read(sealed)?;
    let key = header.unwrap(unlock)?;
    header.check(&key)?;
    payload::open(&key, payload)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], SealFault> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(SealFault::NoRandomness)?;
    Ok(bytes)
}

#[cfg(test)]
#[path = "seal_test.rs"]
mod seal_test;
