//! Certificates and key of this node from its files, checked before use.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use thiserror::Error;
use x509_parser::time::ASN1Time;

use super::verifier::identity_of;
use crate::config::CertificateFiles;
use crate::identity::Identity;

/// Largest file that is read, more than any chain of certificates needs: a wrong path must not fill
/// the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reason for which this node's own certificates can't be used.
#[derive(Debug, Error)]
pub enum CredentialError {
    /// A file can't be read.
    #[error("{}: {cause}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// The content of a file can't be used.
    #[error("{}: {message}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Description of the fault.
        message: String,
    },
    /// The certificate belongs to another node.
    #[error("{}: it is the certificate of {found}, but this node is {expected}", path.display())]
    OtherIdentity {
        /// Path of the certificate.
        path: PathBuf,
        /// Node in the certificate, as text.
        found: String,
        /// Identity of this node.
        expected: Identity,
    },
    /// Peers would refuse the certificate: wrong CA, or for another purpose.
    #[error("{}: the cluster's CA does not vouch for it: {cause}", path.display())]
    NotVouchedFor {
        /// Path of the certificate.
        path: PathBuf,
        /// Error of rustls.
        cause: rustls::Error,
    },
    /// Peers would refuse the certificate now: it is not valid yet, has ended, or the clock is wrong.
    #[error("{}: {validity}", path.display())]
    Untimely {
        /// Path of the certificate.
        path: PathBuf,
        /// The times that contradict each other.
        validity: Untimely,
    },
    /// Nodes that dial this one would refuse the certificate: it lacks the DNS name of this node,
    /// or is for clients alone.
    #[error(
        "{}: nodes that dial this one would refuse it: it needs the DNS name {name} and the extended \
         key usages serverAuth and clientAuth: {cause}",
        path.display()
    )]
    Unanswerable {
        /// Path of the certificate.
        path: PathBuf,
        /// The DNS name of this node.
        name: String,
        /// Error of rustls.
        cause: rustls::Error,
    },
    /// Certificate and key don't belong together, or TLS can't work with them.
    #[error("{}: {cause}", path.display())]
    Unusable {
        /// Path of the key.
        path: PathBuf,
        /// Error of rustls.
        cause: rustls::Error,
    },
}

/// Validity of a certificate that does not include the time of this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untimely {
    /// The certificate is not valid yet.
    Early {
        /// Begin of the validity, in seconds since 1970.
        begins: u64,
        /// Time of the clock, in seconds since 1970.
        now: u64,
    },
    /// The certificate has ended.
    Late {
        /// End of the validity, in seconds since 1970.
        ends: u64,
        /// Time of the clock, in seconds since 1970.
        now: u64,
    },
}

impl Untimely {
    /// Returns the times in an error of rustls; `None` if the error is about something else.
    fn of(cause: &rustls::Error) -> Option<Self> {
        match cause {
            rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext {
                time,
                not_before,
            }) => Some(Self::Early { begins: not_before.as_secs(), now: time.as_secs() }),
            rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
                time,
                not_after,
            }) => Some(Self::Late { ends: not_after.as_secs(), now: time.as_secs() }),
            _ => None,
        }
    }

    /// Returns the moment of the validity that is nearest to the clock.
    pub(crate) fn moment_within(self) -> UnixTime {
        let (Self::Early { begins: at, .. } | Self::Late { ends: at, .. }) = self;
        UnixTime::since_unix_epoch(Duration::from_secs(at))
    }
}

impl fmt::Display for Untimely {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early { begins, now } => write!(
                f,
                "the certificate is valid from {} on, and the clock of this machine shows {}. Set the \
                 clock (`timedatectl`), or wait",
                date(*begins),
                date(*now)
            ),
            Self::Late { ends, now } => write!(
                f,
                "the certificate expired on {}, and the clock of this machine shows {}. If the clock is \
                 right, make a new certificate with `spillway certs renew`",
                date(*ends),
                date(*now)
            ),
        }
    }
}

fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|it| ASN1Time::from_timestamp(it).ok());
    let text = time.and_then(|time| time.to_rfc2822().ok());
    text.unwrap_or_else(|| format!("{seconds} s since 1970"))
}

/// Checks that peers would accept the node `me` with these files.
///
/// # Errors
/// Returns an error if a file can't be read or used, or if the certificate is another node's.
pub fn check_certificates(files: &CertificateFiles, me: &Identity) -> Result<(), CredentialError> {
    let contents = FileContents::read(files)?;
    Material::parse(files, &contents, me, UnixTime::now()).map(drop)
}

/// Content of the three files.
#[derive(PartialEq, Eq)]
pub(crate) struct FileContents {
    authority: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl FileContents {
    /// Makes the content from CA, certificate and key that were read elsewhere.
    pub(crate) fn of([authority, certificate, key]: [&[u8]; 3]) -> Self {
        Self { authority: authority.to_vec(), certificate: certificate.to_vec(), key: key.to_vec() }
    }

    /// Reads the files; blocks for as long as the disk needs.
    pub(crate) fn read(files: &CertificateFiles) -> Result<Self, CredentialError> {
        Ok(Self {
            authority: read(&files.authority)?,
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }
}

impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileContents(..)") // one of them is the key
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialError> {
    let unreadable = |cause| CredentialError::Unreadable { path: path.to_owned(), cause };
    let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(malformed(path, format!("{bytes} bytes are too many for it")));
    }
    std::fs::read(path).map_err(unreadable)
}

/// Certificates, key and verifiers that TLS needs, from files that belong together.
pub(crate) struct Material {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) dialler_verifier: Arc<dyn ClientCertVerifier>,
    pub(crate) answer_verifier: Arc<WebPkiServerVerifier>,
    /// Time from which on peers will refuse the certificate.
    pub(crate) expires_at: Option<SystemTime>,
    /// Trusted CA certificates: two during a rotation.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

impl Material {
    /// Parses the files' content and checks that peers would accept `me` with it at this time.
    pub(crate) fn parse(
        files: &CertificateFiles,
        contents: &FileContents,
        me: &Identity,
        now: UnixTime,
    ) -> Result<Self, CredentialError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authorities = certificates(&files.authority, &contents.authority)?;
        let roots = roots(&files.authority, &authorities)?;
        let chain = certificates(&files.certificate, &contents.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|error| malformed(&files.key, error.to_string()))?;
        let signing_key = provider
            .key_provider
            .load_private_key(key)
            .map_err(|cause| unusable(&files.key, cause))?;
        let certified = CertifiedKey::new(chain, signing_key);
        let dialler_verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| malformed(&files.authority, error.to_string()))?;
        let answer_verifier =
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| malformed(&files.authority, error.to_string()))?;
        check_own(&files.certificate, now, &certified.cert, me, &*dialler_verifier)?;
        check_answer(&files.certificate, now, &certified.cert, me, &answer_verifier)?;
        // A wrong key would otherwise show only in handshakes with peers.
        certified.keys_match().map_err(|cause| unusable(&files.key, cause))?;
        let expires_at = expires_at(&certified.cert, &*dialler_verifier);
        let certified = Arc::new(certified);
        Ok(Self { provider, certified, dialler_verifier, answer_verifier, expires_at, authorities })
    }
}

fn roots(
    path: &Path,
    authorities: &[CertificateDer<'static>],
) -> Result<Arc<RootCertStore>, CredentialError> {
    let mut roots = RootCertStore::empty();
    for certificate in authorities {
        roots.add(certificate.clone()).map_err(|error| malformed(path, error.to_string()))?;
    }
    Ok(Arc::new(roots))
}

/// Reads the certificates of a file, at least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CredentialError> {
    let found = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| malformed(path, error.to_string()))?;
    if found.is_empty() {
        return Err(malformed(path, "it has no certificate in PEM form".to_owned()));
    }
    Ok(found)
}

/// Verifies the own certificate as peers will do, so that a mistake shows at once.
fn check_own(
    path: &Path,
    now: UnixTime,
    chain: &[CertificateDer<'static>],
    me: &Identity,
    verifier: &dyn ClientCertVerifier,
) -> Result<(), CredentialError> {
    let (own, intermediates) = split(chain);
    let vouched = verifier.verify_client_cert(own, intermediates, now);
    vouched.map_err(|cause| {
        let path = path.to_owned();
        match Untimely::of(&cause) {
            Some(validity) => CredentialError::Untimely { path, validity },
            None => CredentialError::NotVouchedFor { path, cause },
        }
    })?;
    let found = match identity_of(own) {
        Ok(found) if found == *me => return Ok(()),
        Ok(found) => found.to_string(),
        Err(_) => "nobody".to_owned(),
    };
    let path = path.to_owned();
    Err(CredentialError::OtherIdentity { path, found, expected: me.clone() })
}

/// Verifies the own certificate as nodes do that dial this one. A certificate for clients alone, or
/// without the DNS name, would fail for connections in one direction only.
fn check_answer(
    path: &Path,
    now: UnixTime,
    chain: &[CertificateDer<'static>],
    me: &Identity,
    verifier: &WebPkiServerVerifier,
) -> Result<(), CredentialError> {
    let (own, intermediates) = split(chain);
    let name =
        ServerName::try_from(me.dns_name()).map_err(|error| malformed(path, error.to_string()))?;
    let vouched = verifier.verify_server_cert(own, intermediates, &name, &[], now);
    vouched.map(drop).map_err(|cause| CredentialError::Unanswerable {
        path: path.to_owned(),
        name: me.dns_name(),
        cause,
    })
}

/// Returns the time from which on peers refuse the chain. The verifier itself is asked, with a time
/// at which every certificate has expired, so that no second parser has to agree with it.
fn expires_at(
    chain: &[CertificateDer<'static>],
    verifier: &dyn ClientCertVerifier,
) -> Option<SystemTime> {
    /// The year 10000, after the last time that X.509 can express.
    const AFTER_ALL: Duration = Duration::from_secs(253_402_300_800);
    let (own, intermediates) = split(chain);
    let refused =
        verifier.verify_client_cert(own, intermediates, UnixTime::since_unix_epoch(AFTER_ALL));
    match refused {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => Some(SystemTime::UNIX_EPOCH + Duration::from_secs(not_after.as_secs())),
        // No other verdict carries a time.
        _ => None,
    }
}

fn split<'a>(
    chain: &'a [CertificateDer<'static>],
) -> (&'a CertificateDer<'static>, &'a [CertificateDer<'static>]) {
    // `certificates` never returns an empty chain.
    (&chain[0], &chain[1..])
}

fn malformed(path: &Path, message: String) -> CredentialError {
    CredentialError::Malformed { path: path.to_owned(), message }
}

fn unusable(path: &Path, cause: rustls::Error) -> CredentialError {
    CredentialError::Unusable { path: path.to_owned(), cause }
}
