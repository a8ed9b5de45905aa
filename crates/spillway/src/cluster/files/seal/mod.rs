//! Encrypted backups, in version 1 of the age format (age-encryption.org/v1): the tools `age` and
//! `rage` read and write them as well.

mod error;
mod header;
mod keys;
mod lock;
mod payload;
mod secret;

pub(crate) use error::SealError;
pub(crate) use keys::{Identity, Recipient};
pub(crate) use lock::{Lock, Passphrase, Unlock};

use header::{Header, MARK};
use secret::{FileKey, random};

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

#[cfg(test)]
#[path = "seal_test.rs"]
mod seal_test;
