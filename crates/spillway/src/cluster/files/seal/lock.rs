//! Recipients of an encrypted file, and the secrets that decrypt it.

use std::fmt;

use zeroize::Zeroizing;

use super::keys::{Identity, Recipient};

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

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(..)")
    }
}
