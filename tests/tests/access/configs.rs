//! Checks of a config's rules about who may connect.

use std::path::Path;

use spillway_config::{Config, ConfigError, ConfigErrors, Severity};

use crate::keys::Key;

const LISTENER: &str = "[[listener]]\naddress = \"0.0.0.0:0\"\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, Path::new("file.toml"), []).map_err(sole)
}

/// Returns the one error that a text with one fault is answered with.
fn sole(errors: ConfigErrors) -> ConfigError {
    let is_error = |found: &&ConfigError| found.severity == Severity::Error;
    let mut found = errors.iter().filter(is_error).cloned();
    let first = found.next().expect("an error");
    assert_eq!(found.next(), None, "one fault is told once:\n{errors}");
    first
}

#[track_caller]
fn check(text: &str, position: (usize, usize), message: &str, remedy: &str) {
    let error = parse(text).expect_err(text);
    assert_eq!(error.position(), Some(position), "{text}: {error}");
    assert!(error.message.contains(message), "{text}: {error}");
    assert!(error.remedy.contains(remedy), "{text}: {error}");
}

#[test]
fn an_address_that_others_reach_needs_keys_or_a_word() {
    let key = Key::new("a", "acme", "").block;
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:80"] {
        let listener = LISTENER.replace("0.0.0.0:0", address);
        check(&listener, (2, 11), "other machines can reach", "spillway keys create");
        check(&listener, (2, 11), address, "mode = \"none\"");
        for good in [
            format!("{listener}auth = \"none\"\n"),
            format!("{listener}auth = \"keys\"\n"),
            format!("{listener}[auth]\nmode = \"none\"\n"),
            format!("{listener}[auth]\nmode = \"keys\"\n"),
            format!("{listener}{key}"),
        ] {
            assert!(parse(&good).is_ok(), "{good}");
        }
    }
    for address in ["127.0.0.1:0", "[::1]:0", "127.8.8.8:0"] {
        assert!(parse(&LISTENER.replace("0.0.0.0:0", address)).is_ok(), "{address}");
    }
}

#[test]
fn a_proxy_s_headers_need_a_proxy_that_is_trusted() {
    let listener = format!("{LISTENER}auth = \"headers\"\n");
    check(&listener, (2, 11), "no proxy is trusted", "trusted_proxies");
    assert!(parse(&format!("{listener}trusted_proxies = [\"10.0.0.0/8\"]\n")).is_ok());
}

#[test]
fn faults_of_keys_are_told_with_line_column_and_remedy() {
    // The first line of a block is empty, and the listener has two.
    let key = |lines: &str| format!("{LISTENER}{}", Key::new("a", "acme", lines).block);
    let with = |from: &str, to: &str| key("").replacen(from, to, 1);
    check(&with("id = \"a\"", "id = \"a b\""), (5, 6), "can't name a key", "letters");
    check(&with("salt = \"5a", "salt = \"5"), (6, 8), "32 hexadecimal digits", "keys create");
    check(&with("salt = \"5a", "salt = \"+5"), (6, 8), "32 hexadecimal digits", "keys create");
    check(&with("hash = \"", "hash = \"0"), (7, 8), "64 hexadecimal digits", "keys create");
    check(&with("tenant = \"acme\"", "tenant = \"\""), (8, 10), "can't name a tenant", "letters");
    check(&key("priority = 4"), (9, 12), "can't be 4", "from 0 to 3");
    check(&key("expires = 2027-01-31"), (9, 11), "no moment", "T00:00:00Z");
    check(&key("until = 1"), (9, 1), "unknown key `until`", "config reference");
    let twice = format!("{}{}", key(""), Key::new("a", "acme", "").block);
    check(&twice, (12, 6), "a second key", "own id");
    let tenants = "[[tenant]]\nname = \"x\"\n".repeat(2);
    check(&format!("{}{tenants}", key("")), (13, 8), "a second tenant", "own name");
    let secret = Key::new("a", "acme", "").text;
    let misplaced = parse(&with("salt = \"5a", &format!("salt = \"{secret}")));
    let error = misplaced.expect_err("a fault").to_string();
    assert!(!error.contains(&secret), "a secret in the wrong place is not repeated: {error}");
}
