//! Certificate of the admin listener: shown, watched, renewed while it serves.

use std::process::{Command, Output};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use serde_json::Value;

use super::world::{World, certs, eventually};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Writes a CA and a certificate of it for the listener, each file as a whole.
fn write(world: &World, ip: std::net::IpAddr) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::default();
    // Without a name of its own, it would have the name of its CA and look self-signed.
    leaf.distinguished_name.push(DnType::CommonName, "operators");
    leaf.subject_alt_names = vec![SanType::IpAddress(ip)];
    let leaf = leaf.signed_by(&key, &ca).unwrap();
    for (name, text) in [
        ("admin-ca.pem", ca.pem()),
        ("admin-key.pem", key.serialize_pem()),
        ("admin.pem", leaf.pem()),
    ] {
        std::fs::write(world.path("new"), text).unwrap();
        std::fs::rename(world.path("new"), world.path(name)).unwrap();
    }
}

fn curl(world: &World, path: &str) -> Output {
    Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--max-time",
            "20",
            "--cacert",
            &world.at("admin-ca.pem"),
        ])
        .args(["--header", &format!("authorization: Bearer {TOKEN}")])
        .arg(format!("https://{}{path}", world.admin_address(0)))
        .output()
        .unwrap()
}

fn body(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the output of `spillway certs show` about the listener, over TLS; None if it fails.
fn shown(world: &World) -> Option<Value> {
    let admin = format!("https://{}", world.admin_address(0));
    let [ca, token] = ["admin-ca.pem", "token"].map(|name| world.at(name));
    let words = ["show", "--json", "--admin", &admin, "--ca", &ca, "--token-file", &token];
    let answer: Value = serde_json::from_slice(&certs(&words).stdout).ok()?;
    let all = answer["certificates"].as_array()?;
    all.iter().find(|it| it["place"] == "listener admin").cloned()
}

#[test]
fn the_admin_listener_has_a_certificate_that_is_watched_and_renewed() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("SKIPPED: there is no curl on this machine");
        return;
    }
    let mut world = World::new(1, 3);
    let ip = world.admin_address(0).ip();
    write(&world, ip);
    std::fs::write(world.path("tokens"), format!("ada read {TOKEN}\n")).unwrap();
    std::fs::write(world.path("token"), format!("{TOKEN}\n")).unwrap();
    let [tokens, certificate, key] =
        ["tokens", "admin.pem", "admin-key.pem"].map(|name| world.at(name));
    // The config ends with [admin].
    world.start(
        0,
        &format!(
            "token_file = {tokens:?}\ntls = {{ certificate = {certificate:?}, key = {key:?} }}\n"
        ),
    );
    eventually("it answers over TLS", || curl(&world, "/livez").status.success());
    let metric = "spillway_listener_certificate_expires_seconds{listener=\"admin\"}";
    assert!(
        body(&curl(&world, "/metrics")).contains(metric),
        "{}",
        body(&curl(&world, "/metrics"))
    );
    let before = shown(&world).unwrap();
    assert!(before["since_ms"].as_u64().unwrap() > 0, "{before}");

    // A file that is half written changes nothing.
    let whole = std::fs::read(&certificate).unwrap();
    std::fs::write(&certificate, &whole[..whole.len() / 2]).unwrap();
    eventually("it is refused", || world.log(0).contains("the old one stays in use"));
    assert!(curl(&world, "/livez").status.success());
    assert_eq!(shown(&world).unwrap()["fingerprint"], before["fingerprint"]);

    write(&world, ip);
    eventually("the renewed one is in use", || curl(&world, "/livez").status.success());
    eventually("it is told", || {
        shown(&world).is_some_and(|now| now["fingerprint"] != before["fingerprint"])
    });
}
