//! Mutual TLS: the node's own certificates, and who is let in.

mod material;
mod members;
mod refusal;
mod session;
mod verifier;

#[cfg(test)]
mod material_test;

pub use material::CertificateFault;
pub(crate) use members::Members;
pub use refusal::Refusal;
pub(crate) use refusal::Refusals;
pub use session::TlsFault;
pub(crate) use session::{Sessions, peer_certificate};
pub(crate) use verifier::{identity_of, serial_of};
