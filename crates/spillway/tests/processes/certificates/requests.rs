//! Requests for certificates: the node's key stays on the node, and the CA's key stays at the CA.

use std::os::unix::fs::PermissionsExt;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, SanType};
use tempfile::TempDir;

use super::world::{certs, done, refused};

const WHO: [&str; 6] = ["--cluster", "test", "--region", "eu", "--node", "a"];

struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        let desk = Self(TempDir::new().unwrap());
        done(&["init", "--cluster", "test", "--dir", &desk.at("ca")]);
        desk
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn a_request_is_signed_where_the_authority_is() {
    let desk = Desk::new();
    let node = desk.at("node");
    let made = done(&[&["request", "--out", &node], &WHO[..]].concat());
    assert_eq!(made["uri"], "spillway://test/eu/a");
    let key = made["key"].as_str().unwrap();
    assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o600);
    let request = made["request"].as_str().unwrap();
    let text = std::fs::read_to_string(request).unwrap();
    assert!(text.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{text}");
    // A second request keeps the key of the first one.
    let before = std::fs::read(key).unwrap();
    let again = refused(&[&["request", "--out", &node], &WHO[..]].concat());
    assert!(again.contains("exists already"), "{again}");
    done(&[&["request", "--keep-key", "--out", &node], &WHO[..]].concat());
    assert_eq!(std::fs::read(key).unwrap(), before);

    let signed = done(&["sign", request, "--dir", &desk.at("ca"), "--days", "30"]);
    let certificate = signed["certificate"].as_str().unwrap();
    assert_eq!(certificate, format!("{node}/a.eu.pem"));
    std::fs::copy(desk.at("ca/ca.pem"), format!("{node}/ca.pem")).unwrap();
    let shown = done(&["show", certificate]);
    assert_eq!(shown["certificates"][0]["name"], "test/eu/a");
    assert_eq!(shown["certificates"][0]["is_key_its_own"], true);
    let again = refused(&["sign", request, "--dir", &desk.at("ca")]);
    assert!(again.contains("--force"), "{again}");
}

#[test]
fn a_request_for_more_than_a_node_is_not_signed() {
    let desk = Desk::new();
    let uri = |text: &str| SanType::URI(text.try_into().unwrap());
    let ask = |names: Vec<SanType>, is_ca: IsCa| {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.is_ca = is_ca;
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        std::fs::write(desk.at("a.csr"), request.pem().unwrap()).unwrap();
        refused(&["sign", &desk.at("a.csr"), "--dir", &desk.at("ca")])
    };
    let ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let said = ask(vec![uri("spillway://test/eu/a")], ca);
    assert!(said.contains("the rights of a CA"), "{said}");
    let said = ask(vec![uri("spillway://other/eu/a")], IsCa::NoCa);
    assert!(said.contains("a request of the cluster other"), "{said}");
    let said = ask(Vec::new(), IsCa::NoCa);
    assert!(said.contains("spillway://CLUSTER/REGION/NODE"), "{said}");
    let name = SanType::DnsName("b.eu.spillway".try_into().unwrap());
    let said = ask(vec![uri("spillway://test/eu/a"), name], IsCa::NoCa);
    assert!(said.contains("b.eu.spillway"), "{said}");
    std::fs::write(desk.at("a.csr"), "half of a requ").unwrap();
    let said = refused(&["sign", &desk.at("a.csr"), "--dir", &desk.at("ca")]);
    assert!(said.contains("no certificate signing request"), "{said}");
    let left: Vec<_> = std::fs::read_dir(desk.0.path()).unwrap().collect();
    assert_eq!(left.len(), 2, "nothing was written: {left:?}");
    let missing = certs(&["sign", &desk.at("a.csr"), "--dir", &desk.at("nothing")]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("certs init"), "{missing:?}");
}
