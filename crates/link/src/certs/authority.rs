//! The cluster's CA: signs certificates that say who a node is.

use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;

use crate::identity::{Identity, NameError, authority_uri, check_label, cluster_of_authority};

/// How far in the past a certificate's time begins: clocks of nodes may differ by this.
const CLOCK_SKEW: Duration = Duration::from_secs(300);
const DAY: Duration = Duration::from_secs(86_400);

/// Why a certificate can't be made.
#[derive(Debug, Error)]
pub enum CertsFault {
    /// A name can't be part of an identity.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The CA's certificate does not say for which cluster it is.
    #[error("the CA's certificate names no cluster: it was not made by `spillway certs init`")]
    NoCluster,
    /// The CA's files can't be read as what they should be, or signing failed.
    #[error(transparent)]
    Rcgen(#[from] rcgen::Error),
    /// The CA's certificate is no PEM.
    #[error("the CA's certificate can't be read: {0}")]
    Pem(String),
    /// The system clock is before 1970.
    #[error("the system clock is before 1970")]
    Clock,
}

/// How long a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    not_before: Duration,
    not_after: Duration,
}

impl Validity {
    /// From a few minutes before `now`, since clocks differ, to so many days after it.
    ///
    /// # Errors
    /// If `now` is before 1970.
    pub fn days(now: SystemTime, days: u32) -> Result<Self, CertsFault> {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).or(Err(CertsFault::Clock))?;
        Ok(Self { not_before: now.saturating_sub(CLOCK_SKEW), not_after: now + DAY * days })
    }

    fn apply(self, params: &mut CertificateParams) {
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + self.not_before;
        params.not_after = epoch + self.not_after;
    }
}

/// The CA of one cluster, with its key.
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
    /// If the name can't be part of an identity.
    pub fn new(cluster: &str, validity: Validity) -> Result<Self, CertsFault> {
        check_label("cluster", cluster)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, format!("spillway {cluster}"));
        params.subject_alt_names = vec![SanType::URI(authority_uri(cluster).try_into()?)];
        // It signs nodes and nothing that signs in turn.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        validity.apply(&mut params);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { cluster: cluster.to_owned(), certificate, issuer: Issuer::new(params, key) })
    }

    /// Takes up a CA that [`Self::new`] made, from its two PEM texts.
    ///
    /// # Errors
    /// If they are not that.
    pub fn open(certificate: &str, key: &str) -> Result<Self, CertsFault> {
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|error| CertsFault::Pem(error.to_string()))?;
        let cluster = cluster_of(&der)?;
        let issuer = Issuer::from_ca_cert_der(&der, KeyPair::from_pem(key)?)?;
        Ok(Self { cluster, certificate: certificate.to_owned(), issuer })
    }

    /// The cluster it is for.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Its certificate as PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    /// Its private key as PEM. Who has it can be any node.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Makes a certificate and a fresh key for a node of its cluster: two PEM texts.
    ///
    /// # Errors
    /// If a name can't be part of an identity.
    pub fn issue(
        &self,
        region: &str,
        node: &str,
        validity: Validity,
    ) -> Result<(String, String), CertsFault> {
        let identity = Identity::new(&self.cluster, region, node)?;
        self.issue_for(&identity, validity)
    }

    /// The same for any identity. Only tests have a use for one of another cluster.
    pub(crate) fn issue_for(
        &self,
        identity: &Identity,
        validity: Validity,
    ) -> Result<(String, String), CertsFault> {
        let name = |text: String| Ia5String::try_from(text);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, identity.dns_name());
        params.subject_alt_names =
            vec![SanType::URI(name(identity.uri())?), SanType::DnsName(name(identity.dns_name())?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // A node dials and is dialled.
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        validity.apply(&mut params);
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok((certificate.pem(), key.serialize_pem()))
    }
}

fn cluster_of(certificate: &CertificateDer<'_>) -> Result<String, CertsFault> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| CertsFault::Pem(error.to_string()))?;
    let mut clusters = parsed.valid_uri_names().filter_map(cluster_of_authority);
    clusters.next().map(str::to_owned).ok_or(CertsFault::NoCluster)
}
