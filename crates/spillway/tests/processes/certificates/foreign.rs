//! Certificates by another tool, made as docs/guides/certificates.md describes.

use std::process::Command;

use spillway_emulator::{Emulator, EmulatorConfig};

use super::world::{World, done, eventually, names};
use crate::caller::chat;

/// Runs openssl in the folder of the CA.
fn openssl(world: &World, words: &str) {
    let mut command = Command::new("openssl");
    command.args(words.split_whitespace()).current_dir(world.path("ca"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Issues a node's certificate with these extended key usages.
fn issue(world: &World, node: usize, usages: &str) {
    let (name, region, out) = names(node, world);
    let key = format!("{out}/{name}.{region}-key.pem");
    let request = format!("{out}/{name}.csr");
    openssl(world, &format!("ecparam -name prime256v1 -genkey -noout -out {key}"));
    openssl(world, &format!("req -new -key {key} -subj /CN={name} -out {request}"));
    let extensions = format!(
        "basicConstraints = critical, CA:FALSE\n\
         keyUsage = critical, digitalSignature\n\
         extendedKeyUsage = {usages}\n\
         subjectAltName = URI:spillway://test/{region}/{name}, DNS:{name}.{region}.spillway\n"
    );
    std::fs::write(world.path("ca").join("node.ext"), extensions).unwrap();
    openssl(
        world,
        &format!(
            "x509 -req -in {request} -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 90 -sha256 \
             -extfile node.ext -out {out}/{name}.{region}.pem"
        ),
    );
    world.hand_out(node);
}

#[test]
fn certificates_of_openssl_are_accepted_in_the_documented_form() {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("SKIPPED: there is no openssl on this machine");
        return;
    }
    let mut world = World::without_certificates(2, 2);
    std::fs::create_dir_all(world.path("ca")).unwrap();
    std::fs::write(world.path("ca").join("prefix.key"), "0f".repeat(32)).unwrap();
    openssl(
        &world,
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca-key.pem \
         -out ca.pem -days 3650 -subj /CN=platform-ca -addext keyUsage=critical,keyCertSign,cRLSign",
    );
    for node in 0..2 {
        issue(&world, node, "serverAuth, clientAuth");
    }
    let shown = done(&["show", "--dir", &world.at("n0")]);
    let of_node = &shown["certificates"].as_array().unwrap()[1];
    assert_eq!(of_node["name"], "test/region-0/n0", "{shown}");
    assert!(of_node["authority"].is_string(), "{shown}");

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = EmulatorConfig { replicas: 1, time_scale: 0.1, ..EmulatorConfig::default() };
    let emulator = runtime.block_on(Emulator::start(config)).unwrap();
    world.start(0, "");
    let url = emulator.addresses()[0];
    let replica =
        format!("[[replica]]\nname = \"a\"\nurl = \"http://{url}\"\nmodels = [\"tiny\"]\n");
    world.start(1, &replica);
    eventually("a request is forwarded from one to the other", || {
        runtime.block_on(chat(world.data(0), false, 2)).is_ok()
    });

    // A certificate for clients alone would fail half of the connections, so the node does not
    // start.
    world.stop(0);
    issue(&world, 0, "clientAuth");
    world.start(0, "");
    assert_ne!(world.ended(0), Some(0));
    assert!(world.log(0).contains("serverAuth and clientAuth"), "{}", world.log(0));
}
