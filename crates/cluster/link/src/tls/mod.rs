//! Mutual TLS (mTLS): the node's own certificates, and the check of peers.

mod material;
mod members;
mod refusal;
mod session;
mod verifier;

#[cfg(test)]
mod material_test;

pub use material::{CredentialError, Untimely, check_certificates};
pub(crate) use material::{FileContents, Material};
pub(crate) use members::Members;
pub use refusal::HandshakeError;
pub(crate) use refusal::{Refusals, refused_by_peer};
pub(crate) use session::{Sessions, peer_certificate};
pub use session::{TlsSetupError, UsedCertificates};
pub(crate) use verifier::{identity_of, serial_of, serial_text};
