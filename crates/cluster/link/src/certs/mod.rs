//! Certificates of the cluster: the CA, the nodes' certificates, and the secret key of prompt
//! hashes.

mod authority;
mod check;
mod facts;
mod files;
mod pem_blocks;
mod request;
mod revocation;
mod rotation;
mod secret;
mod serial;

#[cfg(test)]
mod certs_test;
#[cfg(test)]
mod request_test;
#[cfg(test)]
mod revocation_test;
#[cfg(test)]
mod rotation_test;

pub use authority::{Authority, CertsError, Validity};
pub use check::check_node;
pub use facts::{
    CertificateFacts, CertificateKind, authority_of, certificates_of_pem, fingerprint, is_key_of,
};
pub use files::{
    AuthorityFiles, CertificateWriteError, IfExists, NodeFiles, write_public, write_secret,
};
pub use request::{RequestError, SigningRequest};
pub(crate) use revocation::kept_lists;
pub use revocation::{RevocationError, RevocationList, revocation_lists};
pub use rotation::{Rotation, RotationError, RotationPhase};
pub use rustls::pki_types::CertificateDer;
pub use secret::{PrefixKey, PrefixKeyError};
pub use serial::serial_of_pem;
