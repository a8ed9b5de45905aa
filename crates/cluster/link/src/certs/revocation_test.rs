//! Certificate revocation lists of the CA.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;

use super::revocation::kept_lists;
use super::{
    Authority, RevocationError, Validity, certificates_of_pem, revocation_lists, serial_of_pem,
};

fn authority() -> (Authority, Vec<CertificateDer<'static>>) {
    let authority = Authority::new("test", Validity::days(SystemTime::now(), 1).unwrap()).unwrap();
    let certificates = certificates_of_pem(authority.certificate_pem().as_bytes());
    (authority, certificates)
}

fn revoke(authority: &Authority, serial: &str) -> String {
    authority.revoke(serial, SystemTime::now()).unwrap()
}

#[test]
fn a_list_revokes_the_certificate_whose_number_it_has() {
    let (authority, certificates) = authority();
    let validity = Validity::days(SystemTime::now(), 1).unwrap();
    let (certificate, _) = authority.issue("eu", "a", validity).unwrap();
    let serial = serial_of_pem(certificate.as_bytes()).unwrap();
    // Any number of lists may follow each other.
    let file = [revoke(&authority, &serial), revoke(&authority, "c1d")].concat();
    let (lists, faults) = revocation_lists(file.as_bytes(), &certificates);
    assert_eq!(faults, []);
    let serials: Vec<_> = lists.iter().flat_map(|list| list.serials().clone()).collect();
    assert_eq!(serials, [serial, "c1d".to_owned()]);
    assert!(authority.revoke("no number", SystemTime::now()).is_err());
}

#[test]
fn only_lists_of_the_own_authority_count() {
    let ((own, certificates), (other, _)) = (authority(), authority());
    let file = [revoke(&own, "1"), revoke(&other, "2"), revoke(&own, "3")].concat();
    let (lists, faults) = revocation_lists(file.as_bytes(), &certificates);
    assert_eq!((lists.len(), faults), (2, vec![RevocationError::NotSigned]));
    // During a rotation both count.
    let both = [certificates, certificates_of_pem(other.certificate_pem().as_bytes())].concat();
    assert_eq!(revocation_lists(file.as_bytes(), &both).0.len(), 3);
}

#[test]
fn no_flipped_bit_revokes_another_certificate() {
    let (authority, certificates) = authority();
    let file = revoke(&authority, "5c1d0a9b");
    let (lists, _) = revocation_lists(file.as_bytes(), &certificates);
    let der = lists[0].der();
    for at in 0..der.len() {
        let mut other = der.to_vec();
        other[at] ^= 1;
        // The signature itself has several forms.
        if let Ok(read) = super::RevocationList::verify(&other, &certificates) {
            assert_eq!(read.serials(), lists[0].serials(), "byte {at}");
        }
        assert!(super::RevocationList::verify(&der[..at], &certificates).is_err(), "{at} bytes");
    }
}

#[test]
fn the_clock_does_not_matter() {
    let (authority, certificates) = authority();
    for at in [SystemTime::UNIX_EPOCH, SystemTime::now() + Duration::from_secs(86_400 * 365)] {
        let file = authority.revoke("5c", at).unwrap();
        assert_eq!(revocation_lists(file.as_bytes(), &certificates).0.len(), 1);
    }
}

#[test]
fn what_is_no_list_is_a_fault() {
    let (authority, certificates) = authority();
    for text in ["nonsense", authority.certificate_pem()] {
        let (lists, faults) = revocation_lists(text.as_bytes(), &certificates);
        assert_eq!((lists.len(), faults.len()), (0, 1), "{text}");
    }
    assert_eq!(revocation_lists(b" \n", &certificates), (vec![], vec![]));
}

#[test]
fn a_bad_list_hides_no_good_one() {
    let (authority, certificates) = authority();
    let good = [revoke(&authority, "1"), revoke(&authority, "2")];
    let first = good[0].as_str();
    let (half, certificate) = (&first[..first.len() / 2], authority.certificate_pem());
    let damaged = first.replacen("MI", "M!", 1);
    let marked = ["\u{feff}".to_owned(), good.concat()].concat();
    assert_eq!(revocation_lists(marked.as_bytes(), &certificates).0.len(), 2, "a byte order mark");
    for bad in [half, &damaged, "-----BEGIN X509 CRL-----\n", "-----BEGIN X509 CRL-----junk\n"] {
        for file in [format!("{bad}{}", good.concat()), format!("{}{bad}{}", good[0], good[1])] {
            let (lists, faults) = revocation_lists(file.as_bytes(), &certificates);
            assert_eq!((lists.len(), faults.len()), (2, 1), "{file}");
        }
    }
    let (lists, faults) = revocation_lists([certificate, first].concat().as_bytes(), &certificates);
    assert_eq!((lists.len(), faults.len()), (1, 0), "a certificate is no list");
}

#[test]
fn lists_that_were_kept_are_verified_again() {
    let ((own, certificates), (other, _)) = (authority(), authority());
    let file = [revoke(&own, "1"), revoke(&own, "2")].concat();
    let (lists, _) = revocation_lists(file.as_bytes(), &certificates);
    let kept: Vec<u8> = lists.iter().flat_map(|list| list.der()).copied().collect();
    assert_eq!(kept_lists(&kept, &certificates), (lists.clone(), vec![]));
    let others = certificates_of_pem(other.certificate_pem().as_bytes());
    assert_eq!(kept_lists(&kept, &others), (vec![], vec![RevocationError::NotSigned; 2]));
    let cut = kept_lists(&kept[..kept.len() - 1], &certificates);
    assert_eq!(cut, (lists[..1].to_vec(), vec![RevocationError::Malformed]));
}
