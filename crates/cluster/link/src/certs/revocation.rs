//! Revocations that the cluster's CA signed: certificate revocation lists (CRL, RFC 5280). They
//! need no quorum and no trust in the node that they come from.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use thiserror::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

/// Maximum number of certificates that one list revokes.
const SERIALS_MAX: usize = 10_000;

/// Beginning of any section of a PEM file.
const BEGIN: &[u8] = b"-----BEGIN ";
/// Beginning of a revocation list in a PEM file.
const BEGIN_LIST: &[u8] = b"-----BEGIN X509 CRL-----";

/// Reason for which a revocation list does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RevocationError {
    /// The bytes are no certificate revocation list.
    #[error("it is no certificate revocation list")]
    Malformed,
    /// None of the CAs has signed the list.
    #[error("the cluster's CA has not signed it")]
    NotSigned,
    /// The list is a part of another one, or of several CAs.
    #[error("it has an extension that changes its meaning, as a part of a list has")]
    Partial,
    /// The list revokes too many certificates.
    #[error("it revokes more than 10,000 certificates")]
    TooLong,
    /// The sender has sent another list a moment ago.
    #[error("its sender has sent too many lists")]
    TooOften,
    /// As many lists of other nodes are known as are kept.
    #[error("too many lists of other nodes are known")]
    Full,
}

/// Certificate revocation list whose signature was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    der: Vec<u8>,
    serials: BTreeSet<String>,
}

impl RevocationList {
    /// Reads a list in DER form that one of `authorities` has signed. Its dates are not looked at:
    /// a revocation is for good, and clocks may be wrong.
    ///
    /// # Errors
    /// Returns an error if the list can't be read, or if none of the CAs has signed it.
    pub fn verify(der: &[u8], authorities: &[CertificateDer<'_>]) -> Result<Self, RevocationError> {
        let (rest, list) =
            CertificateRevocationList::from_der(der).map_err(|_| RevocationError::Malformed)?;
        if !rest.is_empty() {
            return Err(RevocationError::Malformed);
        }
        let has_signed = |authority: &CertificateDer<'_>| {
            X509Certificate::from_der(authority)
                .is_ok_and(|(_, authority)| list.verify_signature(authority.public_key()).is_ok())
        };
        if !authorities.iter().any(has_signed) {
            return Err(RevocationError::NotSigned);
        }
        if list.extensions().iter().any(|extension| extension.critical) {
            return Err(RevocationError::Partial);
        }
        let serials: BTreeSet<String> = list
            .iter_revoked_certificates()
            .take(SERIALS_MAX + 1)
            .map(|revoked| crate::tls::serial_text(revoked.raw_serial()))
            .collect();
        if serials.len() > SERIALS_MAX {
            return Err(RevocationError::TooLong);
        }
        Ok(Self { der: der.to_vec(), serials })
    }

    /// Returns the list in DER form.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the serial numbers of the revoked certificates, as
    /// [`serial_of_pem`](super::serial_of_pem) writes them.
    #[must_use]
    pub fn serials(&self) -> &BTreeSet<String> {
        &self.serials
    }
}

/// Reads the lists of a PEM file: those that count, and the faults of the others. A list that is cut
/// or damaged hides none that follows it, nor does a byte order mark hide the first.
#[must_use]
pub fn revocation_lists(
    pem: &[u8],
    authorities: &[CertificateDer<'_>],
) -> (Vec<RevocationList>, Vec<RevocationError>) {
    let (mut lists, mut faults) = (Vec::new(), Vec::new());
    for section in sections(pem) {
        let list = CertificateRevocationListDer::from_pem_slice(section)
            .map_err(|_| RevocationError::Malformed)
            .and_then(|der| RevocationList::verify(&der, authorities));
        match list {
            Ok(list) => lists.push(list),
            Err(fault) => faults.push(fault),
        }
    }
    if lists.is_empty() && faults.is_empty() && !pem.trim_ascii().is_empty() {
        faults.push(RevocationError::Malformed);
    }
    (lists, faults)
}

/// Returns the sections of a PEM file that begin like a revocation list, each up to the beginning of
/// the next section. A reader of the whole file would pass over a section behind one without an end.
fn sections(pem: &[u8]) -> impl Iterator<Item = &[u8]> {
    let begins = |at: &usize| pem[*at..].starts_with(BEGIN);
    let starts: Vec<usize> = (0..pem.len()).filter(begins).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([pem.len()]).collect();
    let sections = starts.into_iter().zip(ends).map(|(start, end)| &pem[start..end]);
    sections.filter(|section| section.starts_with(BEGIN_LIST))
}

/// Reads lists in DER form, one behind the other, as [`RevocationList::der`] has them: those that
/// count, and the faults of the others. Nothing behind a malformed list can be read.
pub(crate) fn kept_lists(
    mut der: &[u8],
    authorities: &[CertificateDer<'_>],
) -> (Vec<RevocationList>, Vec<RevocationError>) {
    let (mut lists, mut faults) = (Vec::new(), Vec::new());
    while !der.is_empty() {
        let Ok((rest, _)) = CertificateRevocationList::from_der(der) else {
            faults.push(RevocationError::Malformed);
            break;
        };
        let (list, behind) = der.split_at(der.len() - rest.len());
        match RevocationList::verify(list, authorities) {
            Ok(list) => lists.push(list),
            Err(fault) => faults.push(fault),
        }
        der = behind;
    }
    (lists, faults)
}

/// Returns the time as rcgen writes it: without fractions of a second.
pub(super) fn since_1970(now: SystemTime) -> std::time::Duration {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    std::time::Duration::from_secs(since.as_secs())
}
