//! `spillway keys create --offline`: a key that the command made lets a client into a node.
#![expect(clippy::expect_used, reason = "a test's helper fails by panicking")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

const COMMAND: &str = env!("CARGO_BIN_EXE_spillway");

/// A node of the real command, killed when dropped.
struct Running(Child);

impl Running {
    /// Runs the config, and returns the address for clients.
    fn start(config: &str) -> (Self, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("spillway.toml");
        std::fs::write(&file, config).expect("writes");
        let mut child = Command::new(COMMAND)
            .args(["run", "--json", "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let told: Value = serde_json::from_str(&line).expect("JSON");
        let address = told["listeners"][0].as_str().expect("an address").to_owned();
        (Self(child), address)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().expect("is ours");
        self.0.wait().expect("ends");
    }
}

fn make(arguments: &[&str]) -> Value {
    let made = Command::new(COMMAND)
        .args(["keys", "create", "--offline", "--json"])
        .args(arguments)
        .output()
        .expect("runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    serde_json::from_slice(&made.stdout).expect("JSON")
}

/// Returns the status of a request for the list of models.
fn status(address: &str, header: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let request =
        format!("GET /v1/models HTTP/1.1\r\nhost: h\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(request.as_bytes()).expect("writes");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    reply.split(' ').nth(1).expect("a status").to_owned()
}

#[test]
fn a_key_that_was_made_lets_in_and_no_other_does() {
    let made = make(&["--tenant", "acme", "--models", "tiny"]);
    let (key, block) = (made["key"].as_str().expect("a key"), made["toml"].as_str().expect("TOML"));
    assert!(key.starts_with("sw_"), "{key}");
    let secret = key.rsplit('_').next().expect("a secret");
    assert!(!block.contains(secret), "the config has no secret");
    let config = format!("{block}\n[[listener]]\naddress = \"127.0.0.1:0\"\n");
    let (_node, address) = Running::start(&config);
    assert_eq!(status(&address, ""), "401");
    assert_eq!(status(&address, &format!("authorization: Bearer {key}\r\n")), "200");
    let other = make(&["--tenant", "acme"]);
    let other = other["key"].as_str().expect("a key");
    assert_ne!(other, key);
    assert_eq!(status(&address, &format!("x-api-key: {other}\r\n")), "401");
}

#[test]
fn an_open_address_without_a_word_ends_the_command_before_it_listens() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("spillway.toml");
    std::fs::write(&file, "[[listener]]\naddress = \"0.0.0.0:0\"\n").expect("writes");
    let ended = Command::new(COMMAND).arg("run").arg("--config").arg(&file).output();
    let ended = ended.expect("runs");
    assert_eq!(ended.status.code(), Some(64));
    let error = String::from_utf8_lossy(&ended.stderr);
    for part in ["spillway.toml:2:11", "other machines can reach", "spillway keys create"] {
        assert!(error.contains(part), "{error}");
    }
}
