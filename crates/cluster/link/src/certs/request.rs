//! Certificate signing requests: a node gets a certificate, and its key and the CA's key stay on
//! their own machines.

use rcgen::string::Ia5String;
use rcgen::{CertificateParams, DnType, KeyPair, SanType, SubjectPublicKeyInfo};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;

use super::authority::CertsError;
use crate::identity::Identity;

/// Reason for which a signing request is not signed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The text is no request.
    #[error("it is no certificate signing request in PEM form: {0}")]
    Malformed(String),
    /// The request is not signed with its own key.
    #[error("its signature is not of the key in it")]
    Signature,
    /// The request is for a certificate that may sign others.
    #[error("it asks for the rights of a CA, and nodes have none")]
    AsksForAuthority,
    /// The request does not name one node.
    #[error(
        "it has to name exactly one node by a URI spillway://CLUSTER/REGION/NODE, and names {0}"
    )]
    NoIdentity(usize),
    /// The request has a name that does not belong to the node.
    #[error("it asks for the name {found}, and {expected} is the only DNS name of that node")]
    OtherName {
        /// The name in the request.
        found: String,
        /// The only DNS name that the node may have.
        expected: String,
    },
    /// The request has a kind of key that is not supported.
    #[error("its key is of no kind that nodes use (ECDSA P-256 or P-384, Ed25519, RSA): {0}")]
    Key(String),
}

/// Request of a node for a certificate. Only the identity and the public key are read from it.
#[derive(Debug)]
pub struct SigningRequest {
    pub(super) identity: Identity,
    pub(super) public_key: SubjectPublicKeyInfo,
}

impl SigningRequest {
    /// Makes a request for a node. Returns the request and its key as PEM. Without `key_pem`, a new
    /// P-256 key is made.
    ///
    /// # Errors
    /// Returns an error if the given key can't be read.
    pub fn make(
        identity: &Identity,
        key_pem: Option<&str>,
    ) -> Result<(String, String), CertsError> {
        let key = match key_pem {
            Some(pem) => KeyPair::from_pem(pem)?,
            None => KeyPair::generate()?,
        };
        let request = names_of(identity)?.serialize_request(&key)?;
        Ok((request.pem()?, key.serialize_pem()))
    }

    /// Reads a request and checks its signature and its names.
    ///
    /// # Errors
    /// Returns the reason for which the request must not be signed.
    pub fn read(pem: &[u8]) -> Result<Self, RequestError> {
        let malformed = |error: &dyn std::fmt::Display| RequestError::Malformed(error.to_string());
        let der =
            CertificateSigningRequestDer::from_pem_slice(pem).map_err(|error| malformed(&error))?;
        let (rest, request) =
            X509CertificationRequest::from_der(&der).map_err(|error| malformed(&error))?;
        // Bytes after the request are not covered by its signature.
        if !rest.is_empty() {
            return Err(malformed(&"something follows it"));
        }
        // The signature proves that the sender has the private key.
        request.verify_signature().or(Err(RequestError::Signature))?;
        let identity = identity_of(&request)?;
        let key = request.certification_request_info.subject_pki.raw;
        let public_key = SubjectPublicKeyInfo::from_der(key)
            .map_err(|error| RequestError::Key(error.to_string()))?;
        Ok(Self { identity, public_key })
    }

    /// Returns the node that asks.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Returns the names of a node for its certificate and its requests.
pub(super) fn names_of(identity: &Identity) -> Result<CertificateParams, CertsError> {
    let name = |text: String| Ia5String::try_from(text);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, identity.dns_name());
    params.subject_alt_names =
        vec![SanType::URI(name(identity.uri())?), SanType::DnsName(name(identity.dns_name())?)];
    Ok(params)
}

/// Returns the node that a request names. Other parts of the request are not copied. A request for
/// anything but a node's certificate is refused, so that its sender does not believe to have got
/// it.
fn identity_of(request: &X509CertificationRequest<'_>) -> Result<Identity, RequestError> {
    let mut identities = Vec::new();
    let mut others = Vec::new();
    for extension in request.requested_extensions().into_iter().flatten() {
        match extension {
            ParsedExtension::BasicConstraints(constraints) if constraints.ca => {
                return Err(RequestError::AsksForAuthority);
            }
            ParsedExtension::KeyUsage(usage) if usage.key_cert_sign() || usage.crl_sign() => {
                return Err(RequestError::AsksForAuthority);
            }
            ParsedExtension::SubjectAlternativeName(names) => {
                for name in &names.general_names {
                    match name {
                        GeneralName::URI(uri) => match Identity::from_uri(uri) {
                            Some(identity) => identities.push(identity),
                            None => others.push((*uri).to_owned()),
                        },
                        GeneralName::DNSName(name) => others.push((*name).to_owned()),
                        other => others.push(other.to_string()),
                    }
                }
            }
            _ => {}
        }
    }
    let [identity] = <[Identity; 1]>::try_from(identities)
        .map_err(|identities| RequestError::NoIdentity(identities.len()))?;
    let expected = identity.dns_name();
    match others.into_iter().find(|name| *name != expected) {
        // The error shows only the first 80 characters of a name, which may be hostile.
        Some(found) => {
            Err(RequestError::OtherName { found: found.chars().take(80).collect(), expected })
        }
        None => Ok(identity),
    }
}
