//! Commands against a node whose admin listener wants a token and speaks TLS.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use super::alone::{Alone, free_port};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn replicas(admin: &str, token: Option<&Path>, ca: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spillway"));
    for name in ["SPILLWAY_ADMIN", "SPILLWAY_TOKEN_FILE", "SPILLWAY_CA"] {
        command.env_remove(name);
    }
    command.args(["replicas", "--admin", admin]);
    for (option, file) in [("--token-file", token), ("--ca", ca)] {
        if let Some(file) = file {
            command.arg(option).arg(file);
        }
    }
    command.output().unwrap()
}

#[test]
fn commands_ask_over_tls_with_their_token_and_trust_the_ca_they_are_given() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = file("cert.pem", &made.cert.pem());
    let other = file("other.pem", &other.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let tokens = file("tokens", &format!("ada read {TOKEN}\n"));
    let token = file("token", &format!("{TOKEN}\n"));
    let port = free_port();
    let mut node = Alone::start(&format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:{port}\"\n\
         token_file = {tokens:?}\ntls = {{ certificate = {certificate:?}, key = {key:?} }}\n\
         [[replica]]\nname = \"gpu-a\"\nurl = \"http://127.0.0.1:9\"\nmodels = [\"m\"]\n"
    ));
    assert!(node.serves(), "{}", node.log());
    let admin = format!("https://127.0.0.1:{port}");
    let shown = replicas(&admin, Some(&token), Some(&certificate));
    assert!(String::from_utf8_lossy(&shown.stdout).contains("gpu-a"), "{shown:?}");
    let clear = format!("http://127.0.0.1:{port}");
    for (admin, token, ca) in [
        (&admin, Some(&token), Some(&other)),
        (&admin, Some(&token), None),
        (&admin, None, Some(&certificate)),
        (&clear, Some(&token), None),
    ] {
        let refused = replicas(admin, token.map(|it| &**it), ca.map(|it| &**it));
        assert!(!refused.status.success(), "{refused:?}");
        assert!(!String::from_utf8_lossy(&refused.stdout).contains("gpu-a"), "{refused:?}");
    }
}
