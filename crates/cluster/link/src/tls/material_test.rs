use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::{CredentialError, Members, Refusals, Sessions, check_certificates};
use crate::certs::{Authority, IfExists, NodeFiles, Validity};
use crate::{CertificateFiles, Identity};

fn days(days: u32) -> Validity {
    Validity::days(SystemTime::now(), days).unwrap()
}

struct Desk {
    folder: TempDir,
    authority: Authority,
    files: CertificateFiles,
}

impl Desk {
    /// Returns the valid files of `prod/eu/a`.
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new("prod", days(30)).unwrap();
        let node = NodeFiles::in_folder(folder.path(), "eu", "a");
        let files = CertificateFiles {
            authority: folder.path().join("ca.pem"),
            certificate: node.certificate.clone(),
            key: node.key,
        };
        std::fs::write(&files.authority, authority.certificate_pem()).unwrap();
        let desk = Self { folder, authority, files };
        desk.put(desk.authority.issue("eu", "a", days(7)).unwrap());
        desk
    }

    fn put(&self, issued: (String, String)) {
        NodeFiles::in_folder(self.folder.path(), "eu", "a")
            .write(issued, IfExists::Replace)
            .unwrap();
    }

    fn open(&self) -> Result<Sessions, CredentialError> {
        let me = Identity::new("prod", "eu", "a").unwrap();
        let members = Arc::new(Members::new("prod"));
        Sessions::open(me, self.files.clone(), members, Arc::new(Refusals::default()))
    }

    fn fault(&self) -> CredentialError {
        self.open().expect_err("a fault")
    }
}

#[test]
fn what_peers_would_accept_is_accepted_and_says_when_it_expires() {
    let expires = Desk::new().open().unwrap().expires_at().unwrap();
    let left = expires.duration_since(SystemTime::now()).unwrap();
    let week = Duration::from_secs(7 * 86_400);
    assert!(left <= week && left > week - Duration::from_secs(60), "{left:?}");
}

#[test]
fn another_nodes_certificate_is_refused() {
    let desk = Desk::new();
    for (cluster, region, node) in [("prod", "eu", "b"), ("prod", "us", "a"), ("test", "eu", "a")] {
        let other = Identity::new(cluster, region, node).unwrap();
        desk.put(desk.authority.issue_for(&other, days(1)).unwrap());
        let fault = desk.fault();
        assert!(matches!(fault, CredentialError::OtherIdentity { .. }), "{fault}");
        assert!(fault.to_string().contains(&other.to_string()), "{fault}");
    }
}

#[test]
fn what_the_authority_does_not_vouch_for_is_refused() {
    let desk = Desk::new();
    let other = Authority::new("prod", days(1)).unwrap();
    desk.put(other.issue("eu", "a", days(1)).unwrap());
    let fault = desk.fault();
    assert!(matches!(fault, CredentialError::NotVouchedFor { .. }), "{fault}");
}

#[test]
fn a_certificate_that_is_not_valid_now_is_used_and_says_to_look_at_the_clock() {
    let desk = Desk::new();
    let ten_days = Duration::from_secs(10 * 86_400);
    let now = SystemTime::now();
    for (begins, advice) in
        [(now - ten_days, "make a new certificate"), (now + ten_days, "Set the clock")]
    {
        let validity = Validity::days(begins, 1).unwrap();
        desk.put(desk.authority.issue("eu", "a", validity).unwrap());
        let me = Identity::new("prod", "eu", "a").unwrap();
        let fault = check_certificates(&desk.files, &me).unwrap_err();
        assert!(matches!(fault, CredentialError::Untimely { .. }), "{fault}");
        let text = fault.to_string();
        assert!(text.contains(advice) && text.contains("the clock of this machine"), "{text}");
        assert!(text.contains(", ") && !text.contains("UNIX"), "{text}");
        desk.open().unwrap();
    }
    // All else is checked as ever.
    let late = Validity::days(now - ten_days, 1).unwrap();
    desk.put(desk.authority.issue("eu", "b", late).unwrap());
    let fault = desk.fault();
    assert!(matches!(fault, CredentialError::OtherIdentity { .. }), "{fault}");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let desk = Desk::new();
    let (certificate, _) = desk.authority.issue("eu", "a", days(1)).unwrap();
    let (_, key) = desk.authority.issue("eu", "a", days(1)).unwrap();
    desk.put((certificate, key));
    let fault = desk.fault();
    assert!(matches!(fault, CredentialError::Unusable { .. }), "{fault}");
}

#[test]
fn files_that_are_none_are_named() {
    for name in ["ca.pem", "a.eu.pem", "a.eu-key.pem"] {
        let desk = Desk::new();
        let path = desk.folder.path().join(name);
        for content in
            ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
        {
            std::fs::write(&path, content).unwrap();
            let fault = desk.fault();
            assert!(fault.to_string().contains(name), "{name}: {fault}");
        }
        std::fs::remove_file(&path).unwrap();
        let fault = desk.fault();
        assert!(matches!(fault, CredentialError::Unreadable { .. }), "{name}: {fault}");
        std::fs::write(&path, vec![b'x'; 2 << 20]).unwrap();
        let fault = desk.fault();
        assert!(fault.to_string().contains("too many"), "{name}: {fault}");
    }
}

#[test]
fn a_fault_never_shows_the_key() {
    let desk = Desk::new();
    let key = std::fs::read_to_string(&desk.files.key).unwrap();
    let shown = format!("{:?}", desk.open().unwrap());
    let secret = key.lines().nth(1).unwrap();
    assert!(!shown.contains(secret) && !shown.contains("PRIVATE"), "{shown}");
}
