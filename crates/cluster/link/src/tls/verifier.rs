//! Verifiers of peers' certificates: those of rustls first, then the check of the identity.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::members::Members;
use super::refusal::{HandshakeError, Refusals};
use crate::identity::Identity;

/// Verifier of nodes that dial this one.
#[derive(Debug)]
pub(crate) struct DiallerVerifier {
    pub(crate) webpki: Arc<dyn ClientCertVerifier>,
    pub(crate) members: Arc<Members>,
    pub(crate) refusals: Arc<Refusals>,
}

/// Verifier of the node that answers a dial.
#[derive(Debug)]
pub(crate) struct AnswerVerifier {
    pub(crate) webpki: Arc<WebPkiServerVerifier>,
    pub(crate) expected: Identity,
    /// Address that was dialled.
    pub(crate) address: SocketAddr,
    pub(crate) members: Arc<Members>,
    pub(crate) refusals: Arc<Refusals>,
}

/// Reads the node that a certificate names. The verifiers decide if the certificate can be trusted.
pub(crate) fn identity_of(certificate: &CertificateDer<'_>) -> Result<Identity, HandshakeError> {
    let parsed =
        webpki::EndEntityCert::try_from(certificate).or(Err(HandshakeError::BadCertificate))?;
    let mut identities = parsed.valid_uri_names().filter_map(Identity::from_uri);
    // A certificate with two identities could be either node, so it is neither.
    match (identities.next(), identities.next()) {
        (Some(identity), None) => Ok(identity),
        _ => Err(HandshakeError::NoIdentity),
    }
}

/// Returns the serial number of a certificate in lower-case hexadecimal digits without leading
/// zeros; `None` if the certificate can't be parsed.
pub(crate) fn serial_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    Some(serial_text(parsed.serial()))
}

/// Returns a serial number in lower-case hexadecimal digits without leading zeros.
pub(crate) fn serial_text(serial: &[u8]) -> String {
    let digits = hex::encode(serial);
    let plain = digits.trim_start_matches('0');
    if plain.is_empty() { "0".to_owned() } else { plain.to_owned() }
}

impl ClientCertVerifier for DiallerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .webpki
            .verify_client_cert(end_entity, intermediates, now)
            .map_err(|error| refused_by_webpki(&self.refusals, error, &dialler(end_entity)))?;
        self.members
            .check_certificate(end_entity)
            .and_then(|()| identity_of(end_entity))
            .and_then(|identity| self.members.greet(&identity))
            .map_err(|refusal| refuse(&self.refusals, refusal, &dialler(end_entity)))?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

impl ServerCertVerifier for AnswerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.webpki.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verdict {
            Ok(verified) => {
                self.members
                    .check_certificate(end_entity)
                    .and_then(|()| self.compare(end_entity))
                    .map_err(|refusal| {
                        refuse(&self.refusals, refusal, &self.description(end_entity))
                    })?;
                Ok(verified)
            }
            // The chain is good and only the name differs, so the refusal describes the difference.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => {
                let refusal = self.compare(end_entity).err().unwrap_or(HandshakeError::WrongNode);
                Err(refuse(&self.refusals, refusal, &self.description(end_entity)))
            }
            Err(error) => {
                Err(refused_by_webpki(&self.refusals, error, &self.description(end_entity)))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Compares the identity in a certificate with the one that was dialled.
impl AnswerVerifier {
    /// Returns who answered, where, and who was expected, for the log.
    fn description(&self, certificate: &CertificateDer<'_>) -> String {
        let (address, shown, expected) = (self.address, shown(certificate), &self.expected);
        format!("the node at {address} shows {shown}, and {expected} was expected")
    }

    fn compare(&self, certificate: &CertificateDer<'_>) -> Result<(), HandshakeError> {
        let identity = identity_of(certificate)?;
        if identity == self.expected {
            Ok(())
        } else if identity.cluster() != self.expected.cluster() {
            Err(HandshakeError::OtherCluster)
        } else if identity.node() != self.expected.node() {
            Err(HandshakeError::WrongNode)
        } else {
            Err(HandshakeError::WrongRegion)
        }
    }
}

/// Returns who dialled, for the log.
fn dialler(certificate: &CertificateDer<'_>) -> String {
    format!("a node that dialled shows {}", shown(certificate))
}

/// Returns the identity in a certificate. The certificate need not be trusted.
fn shown(certificate: &CertificateDer<'_>) -> String {
    identity_of(certificate)
        .map_or_else(|_| "no identity".to_owned(), |identity| identity.to_string())
}

/// Counts and logs a refusal; `told` names the refused peer. The peer only learns that access is
/// denied, or that its certificate is revoked.
fn refuse(refusals: &Refusals, refusal: HandshakeError, told: &str) -> Error {
    refusals.count(refusal);
    if refusals.is_news(told, Instant::now()) {
        tracing::warn!(reason = refusal.as_str(), "a peer is refused: {told}");
    }
    match refusal {
        HandshakeError::Revoked => CertificateError::Revoked.into(),
        _ => CertificateError::ApplicationVerificationFailure.into(),
    }
}

/// Counts and logs a refusal by the verifier of rustls; `told` names the refused peer.
fn refused_by_webpki(refusals: &Refusals, error: Error, told: &str) -> Error {
    let refusal = match &error {
        Error::InvalidCertificate(error) => reason_of(error),
        _ => HandshakeError::BadCertificate,
    };
    refusals.count(refusal);
    if refusals.is_news(told, Instant::now()) {
        tracing::warn!(reason = refusal.as_str(), %error, "a peer is refused: {told}");
    }
    match error {
        // The signing CA has the right name and another key. Reported as an unknown CA, because for
        // a bad signature rustls would send the alert of a broken handshake.
        Error::InvalidCertificate(CertificateError::BadSignature) => {
            CertificateError::UnknownIssuer.into()
        }
        error => error,
    }
}

fn reason_of(error: &CertificateError) -> HandshakeError {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            HandshakeError::WrongAuthority
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            HandshakeError::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            HandshakeError::NotYetValid
        }
        _ => HandshakeError::BadCertificate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a self-signed certificate with these names.
    fn certificate(uris: &[&str]) -> CertificateDer<'static> {
        let mut parameters = rcgen::CertificateParams::default();
        let names = uris.iter().map(|uri| rcgen::SanType::URI((*uri).try_into().unwrap()));
        parameters.subject_alt_names = names.collect();
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_certificate_names_exactly_one_node() {
        let [one, other] = ["a", "b"].map(|node| Identity::new("test", "eu", node).unwrap());
        assert_eq!(identity_of(&certificate(&[&one.uri()])), Ok(one.clone()));
        let strange = certificate(&["https://example.com/", &one.uri()]);
        assert_eq!(identity_of(&strange), Ok(one.clone()));
        let both = certificate(&[&one.uri(), &other.uri()]);
        assert_eq!(identity_of(&both), Err(HandshakeError::NoIdentity));
        let none = certificate(&["https://example.com/"]);
        assert_eq!(identity_of(&none), Err(HandshakeError::NoIdentity));
    }
}
