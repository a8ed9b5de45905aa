//! Keys of the age format as text.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use bech32::{Bech32, Hrp};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use super::error::SealError;
use super::secret::random;

const RECIPIENT: Hrp = Hrp::parse_unchecked("age");
const IDENTITY: Hrp = Hrp::parse_unchecked("age-secret-key-");
/// Longest key file, in bytes: a few keys with comments.
const FILE_BYTES_MAX: usize = 64 << 10;

/// A public key for which backups are encrypted: `age1…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recipient(pub(super) PublicKey);

impl FromStr for Recipient {
    type Err = SealError;

    fn from_str(text: &str) -> Result<Self, SealError> {
        let bad = || SealError::BadRecipient(text.chars().take(80).collect());
        let key = key_of(text, RECIPIENT).ok_or_else(bad)?;
        Ok(Self(PublicKey::from(*key)))
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = bech32::encode::<Bech32>(RECIPIENT, self.0.as_bytes());
        f.write_str(&text.map_err(|_| fmt::Error)?)
    }
}

/// A private key. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct Identity(pub(super) StaticSecret);

impl Identity {
    /// Creates a random key.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers.
    pub(crate) fn new() -> Result<Self, SealError> {
        let bytes = Zeroizing::new(random::<32>()?);
        Ok(Self(StaticSecret::from(*bytes)))
    }

    /// Returns the public key for this private key.
    pub(crate) fn recipient(&self) -> Recipient {
        Recipient(PublicKey::from(&self.0))
    }

    /// Returns the text of a file that [`Self::read_all`] reads.
    pub(crate) fn to_file(&self) -> Zeroizing<String> {
        let secret = Zeroizing::new(self.0.to_bytes());
        let text = bech32::encode_upper::<Bech32>(IDENTITY, &*secret).map(Zeroizing::new);
        let text = text.unwrap_or_default();
        Zeroizing::new(format!("# public key: {}\n{}\n", self.recipient(), *text))
    }

    /// Reads the keys of a file, one on each line; lines that begin with `#` are comments.
    ///
    /// # Errors
    /// Returns an error if any other line is no private key, or there is no key.
    pub(crate) fn read_all(text: &str, place: &Path) -> Result<Vec<Self>, SealError> {
        let bad = |what| SealError::BadKey { what, place: place.to_owned() };
        if text.len() > FILE_BYTES_MAX {
            return Err(bad("there are too many private keys"));
        }
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let key = |line| key_of(line, IDENTITY).map(|key| Self(StaticSecret::from(*key)));
        let keys: Option<Vec<Self>> = lines.map(key).collect();
        let keys = keys.ok_or_else(|| bad("a line is no private key AGE-SECRET-KEY-1…"))?;
        if keys.is_empty() { Err(bad("there is no private key")) } else { Ok(keys) }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.recipient())
    }
}

fn key_of(text: &str, kind: Hrp) -> Option<Zeroizing<[u8; 32]>> {
    let parsed = bech32::primitives::decode::CheckedHrpstring::new::<Bech32>(text).ok()?;
    // Compared without case: private keys are written in capitals.
    if parsed.hrp() != kind {
        return None;
    }
    let bytes = Zeroizing::new(parsed.byte_iter().collect::<Vec<u8>>());
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}
