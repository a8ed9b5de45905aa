//! Serial numbers, by which certificates are revoked.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::tls::serial_of;

/// Returns the serial number of the first certificate of a PEM file, in lower-case hexadecimal
/// digits without leading zeros. `None` if the file has no certificate.
#[must_use]
pub fn serial_of_pem(pem: &[u8]) -> Option<String> {
    serial_of(&CertificateDer::from_pem_slice(pem).ok()?)
}
