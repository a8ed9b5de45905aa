//! Cluster's CA, which signs the certificates of nodes.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PublicKeyData,
    RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

use super::facts::is_key_of;
use super::pem_blocks::certificate_blocks;
use super::request::{SigningRequest, names_of};
use super::revocation::since_1970;
use crate::identity::{Identity, NameError, authority_uri, check_label, cluster_of_authority};

/// Time that a certificate's validity begins in the past, because the clocks of nodes differ.
const CLOCK_SKEW: Duration = Duration::from_secs(300);
const DAY: Duration = Duration::from_secs(86_400);

/// Reason for which a certificate can't be made.
#[derive(Debug, Error)]
pub enum CertsError {
    /// A name can't be part of an identity.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The CA's certificate does not name its cluster.
    #[error("the CA's certificate names no cluster: it was not made by `spillway certs init`")]
    NoCluster,
    /// The CA's files can't be parsed, or signing failed.
    #[error(transparent)]
    Rcgen(#[from] rcgen::Error),
    /// The CA's certificate is no PEM.
    #[error("the CA's certificate can't be read: {0}")]
    Pem(String),
    /// The CA's key is that of another CA.
    #[error("the CA's key belongs to none of the CA's certificates")]
    OtherKey,
    /// The request comes from a node of another cluster.
    #[error("it is a request of the cluster {found}, and the CA is that of {expected}")]
    OtherCluster {
        /// The cluster that the request names.
        found: String,
        /// The cluster of the CA.
        expected: String,
    },
    /// The serial number is not in hexadecimal digits.
    #[error("{0:?} is no serial number in hexadecimal digits")]
    Serial(String),
    /// The system clock is before 1970.
    #[error("the system clock is before 1970")]
    Clock,
    /// The system has no random numbers.
    #[error("the system has no random numbers: {0}")]
    NoRandomness(getrandom::Error),
}

/// Time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: Duration,
    not_after: Duration,
}

impl Validity {
    /// Makes a validity from 5 minutes before `now`, because clocks differ, to `days` days after
    /// it.
    ///
    /// # Errors
    /// Returns [`CertsError::Clock`] if `now` is before 1970.
    pub fn days(now: SystemTime, days: u32) -> Result<Self, CertsError> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).or(Err(CertsError::Clock))?;
        Ok(Self { not_before: now.saturating_sub(CLOCK_SKEW), not_after: now + DAY * days })
    }

    fn apply(self, params: &mut CertificateParams) {
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + self.not_before;
        params.not_after = epoch + self.not_after;
    }
}

/// CA of one cluster, with its key.
pub struct Authority {
    cluster: String,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a CA for the cluster `cluster`, with a fresh P-256 key.
    ///
    /// # Errors
    /// Returns an error if the name can't be part of an identity, or the key can't be made.
    pub fn new(cluster: &str, validity: Validity) -> Result<Self, CertsError> {
        check_label("cluster", cluster)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("spillway {cluster}"));
        // `open` reads the cluster's name from this URI.
        params.subject_alt_names = vec![SanType::URI(authority_uri(cluster).try_into()?)];
        // The CA signs nodes, and no certificate that could sign others.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        validity.apply(&mut params);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { cluster: cluster.to_owned(), certificate, issuer: Issuer::new(params, key) })
    }

    /// Opens a CA that [`Self::new`] made, from its two PEM texts. While one CA replaces another,
    /// `certificates` has two: the one that belongs to the key is used.
    ///
    /// # Errors
    /// Returns an error if a text can't be read, or the key belongs to none of the certificates.
    pub fn open(certificates: &str, key: &str) -> Result<Self, CertsError> {
        let der = |pem: &str| {
            CertificateDer::from_pem_slice(pem.as_bytes())
                .map_err(|error| CertsError::Pem(error.to_string()))
        };
        let blocks = certificate_blocks(certificates);
        if blocks.is_empty() {
            return Err(CertsError::Pem("there is no certificate in PEM form".to_owned()));
        }
        for certificate in blocks {
            let der = der(&certificate)?;
            let cluster = cluster_of(&der)?;
            // A key that can't be read becomes an error below.
            if is_key_of(&der, key.as_bytes()).unwrap_or(true) {
                let issuer = Issuer::from_ca_cert_der(&der, KeyPair::from_pem(key)?)?;
                return Ok(Self { cluster, certificate, issuer });
            }
        }
        Err(CertsError::OtherKey)
    }

    /// Returns the name of the CA's cluster.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Returns the CA's certificate as PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Returns the CA's private key as PEM. A holder of this key can act as any node.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Makes a certificate and a new key for a node of the CA's cluster. Returns both as PEM.
    ///
    /// # Errors
    /// Returns an error if a name can't be part of an identity, or signing fails.
    pub fn issue(
        &self,
        region: &str,
        node: &str,
        validity: Validity,
    ) -> Result<(String, String), CertsError> {
        let identity = Identity::new(&self.cluster, region, node)?;
        self.issue_for(&identity, validity)
    }

    /// Makes a certificate for a node of the CA's cluster that keeps its key. Returns both as PEM.
    ///
    /// # Errors
    /// Returns an error if a name can't be part of an identity, the key can't be read, or signing
    /// fails.
    pub fn issue_for_key(
        &self,
        region: &str,
        node: &str,
        key_pem: &str,
        validity: Validity,
    ) -> Result<(String, String), CertsError> {
        let identity = Identity::new(&self.cluster, region, node)?;
        let key = KeyPair::from_pem(key_pem)?;
        Ok((self.certify(&identity, &key, validity)?, key_pem.to_owned()))
    }

    /// Makes the certificate that a node of the CA's cluster asks for, as PEM. Only the public key
    /// and the identity are taken from the request.
    ///
    /// # Errors
    /// Returns an error if the request is of another cluster, or signing fails.
    pub fn sign(&self, request: &SigningRequest, validity: Validity) -> Result<String, CertsError> {
        if request.identity.cluster() != self.cluster {
            let found = request.identity.cluster().to_owned();
            return Err(CertsError::OtherCluster { found, expected: self.cluster.clone() });
        }
        self.certify(&request.identity, &request.public_key, validity)
    }

    /// Makes a certificate and a new key for any identity. Only tests use it for another cluster.
    pub(crate) fn issue_for(
        &self,
        identity: &Identity,
        validity: Validity,
    ) -> Result<(String, String), CertsError> {
        let key = KeyPair::generate()?;
        Ok((self.certify(identity, &key, validity)?, key.serialize_pem()))
    }

    /// Makes a certificate revocation list with one certificate, as PEM. A file may contain any
    /// number of such lists.
    ///
    /// # Errors
    /// Returns an error if the serial number is not hexadecimal digits, or signing fails.
    pub fn revoke(&self, serial: &str, now: SystemTime) -> Result<String, CertsError> {
        let digits = format!("{}{serial}", if serial.len().is_multiple_of(2) { "" } else { "0" });
        let bytes = hex::decode(digits).map_err(|_| CertsError::Serial(serial.to_owned()))?;
        let now = date_time_ymd(1970, 1, 1) + since_1970(now);
        let list = CertificateRevocationListParams {
            this_update: now,
            // A revocation is for good.
            next_update: date_time_ymd(9999, 12, 31),
            crl_number: serial_number()?,
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(bytes),
                revocation_time: now,
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.issuer)?.pem()?)
    }

    fn certify(
        &self,
        identity: &Identity,
        key: &impl PublicKeyData,
        validity: Validity,
    ) -> Result<String, CertsError> {
        let mut params = names_of(identity)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A node both dials and is dialled.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        // By default rcgen derives the number from the key: a renewed certificate with the same key
        // would have the number of the old one, and be revoked with it.
        params.serial_number = Some(serial_number()?);
        validity.apply(&mut params);
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }
}

/// Returns a random number of 127 bits: positive, as X.509 requires, and never zero.
fn serial_number() -> Result<SerialNumber, CertsError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(CertsError::NoRandomness)?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn cluster_of(certificate: &CertificateDer<'_>) -> Result<String, CertsError> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| CertsError::Pem(error.to_string()))?;
    let mut clusters = parsed.valid_uri_names().filter_map(cluster_of_authority);
    clusters.next().map(str::to_owned).ok_or(CertsError::NoCluster)
}
