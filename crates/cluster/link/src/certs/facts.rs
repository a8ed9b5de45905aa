//! Facts about certificates for people and programs that watch them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ring::digest::{SHA256, digest};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::{Identity, cluster_of_authority};

/// Kind of a certificate's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateKind {
    /// A certificate authority.
    Authority,
    /// A node of a cluster.
    Node,
    /// Anything else, such as a server that clients connect to.
    Other,
}

/// Content of a certificate that its renewal needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateFacts {
    /// Kind of the holder.
    pub kind: CertificateKind,
    /// Cluster of an authority, `cluster/region/node` of a node, DNS names and addresses of
    /// anything else.
    pub name: String,
    /// Distinguished name of the holder.
    pub subject: String,
    /// Distinguished name of the authority that signed it.
    pub issuer: String,
    /// Serial number in lower-case hexadecimal digits, as `spillway certs revoke` takes it.
    pub serial: String,
    /// SHA-256 of the certificate in lower-case hexadecimal digits.
    pub fingerprint: String,
    /// Beginning of the validity, in milliseconds since 1970.
    pub not_before_ms: i64,
    /// End of the validity, in milliseconds since 1970.
    pub not_after_ms: i64,
}

impl CertificateFacts {
    /// Reads a certificate; `None` if it can't be parsed.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let (kind, name) = holder(&parsed);
        Some(Self {
            kind,
            name,
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            serial: crate::tls::serial_of(certificate)?,
            fingerprint: fingerprint(certificate),
            not_before_ms: parsed.validity().not_before.timestamp().saturating_mul(1_000),
            not_after_ms: parsed.validity().not_after.timestamp().saturating_mul(1_000),
        })
    }

    /// Returns the whole days from `now` to the end of the validity; less than 0 after it.
    #[must_use]
    pub fn days_left(&self, now: SystemTime) -> i64 {
        let now_ms = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        // Rounded down after the end, too: an hour behind it is -1 and not 0.
        self.not_after_ms.saturating_sub(now_ms).div_euclid(86_400_000)
    }

    /// Returns the moment within the validity that is nearest to `now`.
    fn moment_within(&self, now: SystemTime) -> UnixTime {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or_default());
        // The lower limit is applied last, so that a certificate that ends before it begins causes
        // no panic.
        let at = now.min(at(self.not_after_ms)).max(at(self.not_before_ms));
        UnixTime::since_unix_epoch(at)
    }
}

/// Returns the SHA-256 of a certificate in lower-case hexadecimal digits.
#[must_use]
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the certificates of a PEM file; blocks that can't be read are left out.
#[must_use]
pub fn certificates_of_pem(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

/// Returns the position in `authorities` of the one that signed a chain, even if the validity is
/// over. [`CertificateFacts::days_left`] shows that.
///
/// # Errors
/// Returns the reason, as text for a person, if none of them signed it.
pub fn authority_of(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<usize, String> {
    let Some((own, intermediates)) = chain.split_first() else {
        return Err("there is no certificate".to_owned());
    };
    let facts = CertificateFacts::of(own).ok_or("the certificate can't be read")?;
    // An expired chain is verified at a time when it was valid.
    let at = facts.moment_within(now);
    let mut why = "no authority is known".to_owned();
    for (position, authority) in authorities.iter().enumerate() {
        match verify(own, intermediates, authority, at) {
            Ok(()) => return Ok(position),
            Err(fault) => why = fault,
        }
    }
    Err(why)
}

fn verify(
    own: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    authority: &CertificateDer<'_>,
    at: UnixTime,
) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned()).map_err(|error| error.to_string())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .map_err(|error| error.to_string())?;
    match verifier.verify_client_cert(own, intermediates, at) {
        Ok(_) => Ok(()),
        // The other CA may have the same name and another key.
        Err(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => Err("another authority has signed it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns true if a private key in PEM form belongs to a certificate; `None` if the key can't be
/// read.
#[must_use]
pub fn is_key_of(certificate: &CertificateDer<'_>, key_pem: &[u8]) -> Option<bool> {
    let key = PrivateKeyDer::from_pem_slice(key_pem).ok()?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key).ok()?;
    let certified = CertifiedKey::new(vec![certificate.clone().into_owned()], key);
    Some(certified.keys_match().is_ok())
}

fn holder(parsed: &X509Certificate<'_>) -> (CertificateKind, String) {
    let names = parsed.subject_alternative_name().ok().flatten();
    let names = names.map(|names| names.value.general_names.as_slice()).unwrap_or_default();
    let uris = || {
        names.iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
    };
    if parsed.is_ca() {
        let cluster = uris().find_map(cluster_of_authority).unwrap_or_default();
        return (CertificateKind::Authority, cluster.to_owned());
    }
    if let Some(identity) = uris().find_map(Identity::from_uri) {
        return (CertificateKind::Node, identity.to_string());
    }
    let hosts = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    });
    (CertificateKind::Other, hosts.collect::<Vec<_>>().join(" "))
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(|it| std::net::Ipv4Addr::from(it).to_string());
    let sixteen = || <[u8; 16]>::try_from(bytes).map(|it| std::net::Ipv6Addr::from(it).to_string());
    four.or_else(|_| sixteen()).ok()
}
