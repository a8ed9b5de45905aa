//! Makes the cluster's CA, the nodes' certificates and the secret of prompt hashes.

mod authority;
mod files;
mod secret;
mod serial;

#[cfg(test)]
mod certs_test;

pub use authority::{Authority, CertsFault, Validity};
pub use files::{AuthorityFiles, IfExists, NodeFiles, WriteFault};
pub use secret::{NoPrefixKey, PrefixKey};
pub use serial::serial_of_pem;
