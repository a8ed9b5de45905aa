use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, IsCa, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SanType,
};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::{CertificateFiles, Identity};

fn authority() -> Authority {
    Authority::new("prod", days(30)).unwrap()
}

fn days(days: u32) -> Validity {
    Validity::days(SystemTime::now(), days).unwrap()
}

fn me() -> Identity {
    Identity::new("prod", "eu", "a").unwrap()
}

/// Makes a request of `prod/eu/a` that asks for something more.
fn asking(change: impl FnOnce(&mut CertificateParams)) -> Result<SigningRequest, RequestError> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(me().uri().try_into().unwrap())];
    change(&mut params);
    let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
    SigningRequest::read(request.pem().unwrap().as_bytes())
}

/// Checks that the node `prod/eu/a` could run with this certificate and key.
fn check(
    authority: &Authority,
    certificate: &str,
    key: &str,
) -> Result<(), crate::CredentialError> {
    let named = |name: &str| name.into();
    let files = CertificateFiles {
        authority: named("ca.pem"),
        certificate: named("a.pem"),
        key: named("a-key.pem"),
    };
    let texts = [authority.certificate_pem(), certificate, key].map(str::as_bytes);
    check_node(&me(), &files, texts)
}

#[test]
fn a_request_becomes_a_certificate_that_its_node_can_use_with_its_own_key() {
    let authority = authority();
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let key = KeyPair::generate_for(algorithm).unwrap().serialize_pem();
        let (request, same_key) = SigningRequest::make(&me(), Some(&key)).unwrap();
        assert_eq!(same_key, key);
        let request = SigningRequest::read(request.as_bytes()).unwrap();
        assert_eq!(request.identity(), &me());
        let certificate = authority.sign(&request, days(7)).unwrap();
        check(&authority, &certificate, &key).unwrap();
    }
    let (one, other) = (SigningRequest::make(&me(), None), SigningRequest::make(&me(), None));
    assert_ne!(one.unwrap().1, other.unwrap().1, "each has a key of its own");
}

#[test]
fn whoever_asks_for_the_rights_of_an_authority_is_refused() {
    let ca = asking(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    assert_eq!(ca.unwrap_err(), RequestError::AsksForAuthority);
    let signer = asking(|params| params.key_usages = vec![KeyUsagePurpose::KeyCertSign]);
    assert_eq!(signer.unwrap_err(), RequestError::AsksForAuthority);
}

#[test]
fn names_of_others_are_refused() {
    let name = |text: &str| SanType::DnsName(text.try_into().unwrap());
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    asking(|params| params.subject_alt_names.push(name("a.eu.spillway"))).unwrap();
    for other in [name("b.eu.spillway"), name("example.com"), uri("https://example.com/")] {
        let refused = asking(|params| params.subject_alt_names.push(other.clone())).unwrap_err();
        assert!(matches!(refused, RequestError::OtherName { .. }), "{refused}");
    }
    let two = asking(|params| params.subject_alt_names.push(uri("spillway://prod/eu/b")));
    assert_eq!(two.unwrap_err(), RequestError::NoIdentity(2));
    let none = asking(|params| params.subject_alt_names = vec![name("a.eu.spillway")]);
    assert_eq!(none.unwrap_err(), RequestError::NoIdentity(0));
    // The request names another cluster: its certificate would be useless, so it is not signed.
    let test = asking(|params| params.subject_alt_names = vec![uri("spillway://test/eu/a")]);
    let refused = authority().sign(&test.unwrap(), days(1)).unwrap_err();
    assert!(refused.to_string().contains("the cluster test"), "{refused}");
}

#[test]
fn nothing_else_of_a_request_comes_into_the_certificate() {
    let odd = [1, 3, 6, 1, 4, 1, 99_999, 1];
    let request = asking(|params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "spillway prod");
        params.custom_extensions = vec![CustomExtension::from_oid_content(&odd, vec![5, 0])];
    });
    let certificate = authority().sign(&request.unwrap(), days(7)).unwrap();
    let der: CertificateDer<'_> = certificates_of_pem(certificate.as_bytes()).remove(0);
    let (_, parsed) = X509Certificate::from_der(&der).unwrap();
    assert_eq!(parsed.subject().to_string(), "CN=a.eu.spillway");
    let oids: Vec<_> = parsed.extensions().iter().map(|it| it.oid.to_id_string()).collect();
    assert!(!oids.iter().any(|oid| oid.contains("99999")), "{oids:?}");
    assert!(!parsed.is_ca());
    let facts = CertificateFacts::of(&der).unwrap();
    assert_eq!((facts.kind, facts.name.as_str()), (CertificateKind::Node, "prod/eu/a"));
    assert!((6..=7).contains(&facts.days_left(SystemTime::now())), "{facts:?}");
}

#[test]
fn what_is_altered_or_no_request_is_refused() {
    let (request, key) = SigningRequest::make(&me(), None).unwrap();
    // A changed byte in the last line but one belongs to the signature.
    let mut lines: Vec<String> = request.lines().map(str::to_owned).collect();
    let at = lines.len() - 3;
    let line = lines[at].clone();
    let swapped: String = line.chars().rev().collect();
    lines[at] = swapped;
    let refused = SigningRequest::read(lines.join("\n").as_bytes()).unwrap_err();
    assert!(matches!(refused, RequestError::Signature | RequestError::Malformed(_)), "{refused}");
    let certificate = authority().certificate_pem().to_owned();
    for text in ["", "no PEM", &key, &certificate, &request[..request.len() / 2]] {
        let refused = SigningRequest::read(text.as_bytes()).unwrap_err();
        assert!(matches!(refused, RequestError::Malformed(_)), "{refused}");
    }
}

#[test]
fn a_request_signed_with_another_key_is_refused() {
    use rustls::pki_types::CertificateSigningRequestDer;
    use rustls::pki_types::pem::PemObject;
    let der = |pem: &str| CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
    // With Ed25519 all requests of one node have one length, and the signature is the last 64
    // bytes.
    let make = || {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap().serialize_pem();
        der(&SigningRequest::make(&me(), Some(&key)).unwrap().0).to_vec()
    };
    let (mut one, other) = (make(), make());
    let from = one.len() - 64;
    one[from..].copy_from_slice(&other[from..]);
    let pem = base64_pem(&one);
    assert_eq!(SigningRequest::read(pem.as_bytes()).unwrap_err(), RequestError::Signature);
}

fn base64_pem(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in der.chunks(3) {
        let mut bits = 0_u32;
        for at in 0..3 {
            bits = (bits << 8) | u32::from(chunk.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= chunk.len() { digit.into() } else { '=' });
        }
    }
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
}

#[test]
fn a_kept_key_gets_another_certificate() {
    let authority = authority();
    let (first, key) = authority.issue("eu", "a", days(3)).unwrap();
    let (second, same) = authority.issue_for_key("eu", "a", &key, days(9)).unwrap();
    assert_eq!(same, key);
    let serial = |pem: &str| serial_of_pem(pem.as_bytes()).unwrap();
    assert_ne!(serial(&first), serial(&second), "the one can be revoked without the other");
    check(&authority, &second, &key).unwrap();
}

#[test]
fn facts_say_whose_key_and_authority_it_is() {
    let (old, new) = (authority(), authority());
    let (certificate, key) = new.issue("eu", "a", days(3)).unwrap();
    let chain = certificates_of_pem(certificate.as_bytes());
    let both = [old.certificate_pem(), new.certificate_pem()].concat();
    let both = certificates_of_pem(both.as_bytes());
    let now = SystemTime::now();
    assert_eq!(authority_of(&chain, &both, now), Ok(1));
    assert_eq!(
        authority_of(&chain, &both[..1], now).unwrap_err(),
        "another authority has signed it"
    );
    // The signer is found even after the validity is over.
    let late = now + std::time::Duration::from_secs(30 * 86_400);
    assert_eq!(authority_of(&chain, &both, late), Ok(1));
    assert!(CertificateFacts::of(&chain[0]).unwrap().days_left(late) < 0);
    assert_eq!(is_key_of(&chain[0], key.as_bytes()), Some(true));
    assert_eq!(is_key_of(&chain[0], old.key_pem().as_bytes()), Some(false));
    assert_eq!(is_key_of(&chain[0], b"no key"), None);
    let authority = CertificateFacts::of(&both[0]).unwrap();
    assert_eq!((authority.kind, authority.name.as_str()), (CertificateKind::Authority, "prod"));
}
