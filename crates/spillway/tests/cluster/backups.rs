//! Encrypted backups, and permissions of files that a node writes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::world::{World, fault, printed};

const BINARY: &str = env!("CARGO_BIN_EXE_spillway");
const PASSPHRASE: &str = "correct horse battery staple";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Returns the arguments that restore `file` into a new folder.
fn restore<'a>(file: &'a Path, folder: &'a Path) -> Vec<&'a str> {
    let (file, folder) = (file.to_str().unwrap(), folder.to_str().unwrap());
    vec!["restore", file, "--folder", folder, "--node", "a"]
}

/// Runs `spillway` with a passphrase in the environment, and a text on standard input.
fn run(words: &[&str], variable: Option<&str>, input: &str) -> Output {
    let mut command = Command::new(BINARY);
    command.args(words).env_remove("SPILLWAY_BACKUP_PASSPHRASE");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(text) = variable {
        command.env("SPILLWAY_BACKUP_PASSPHRASE", text);
    }
    let mut child = command.spawn().unwrap();
    // A command that does not read its input closes the pipe.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    child.wait_with_output().unwrap()
}

#[test]
fn a_backup_with_a_passphrase_is_read_by_who_knows_it() {
    let world = World::new();
    world.text(&["apply", "model", "kept-model", "{}"]);
    let (file, secret) = (world.path("state.age"), world.path("passphrase"));
    fs::write(&secret, format!("{PASSPHRASE}\n")).unwrap();
    let secret = secret.to_str().unwrap();
    world.text(&["backup", file.to_str().unwrap(), "--passphrase-file", secret]);
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.starts_with(b"age-encryption.org/v1\n-> scrypt "));
    assert!(!bytes.windows(10).any(|part| part == b"kept-model"), "it is in the clear");

    let new = world.path("new");
    let words = restore(&file, &new);
    assert!(fault(&run(&words, None, "")).contains("is encrypted with a passphrase: name a file"));
    assert!(fault(&run(&words, Some("wrong"), "")).contains("the passphrase is wrong"));
    for damage in ["torn", "altered"] {
        let mut bytes = bytes.clone();
        let middle = bytes.len() - 40;
        if damage == "torn" {
            bytes.truncate(middle);
        } else {
            bytes[middle] ^= 1;
        }
        let damaged = world.path(damage);
        fs::write(&damaged, &bytes).unwrap();
        let told = fault(&run(&restore(&damaged, &new), Some(PASSPHRASE), ""));
        assert!(told.contains("damaged or was altered"), "{told}");
    }
    assert!(!new.exists(), "nothing is restored");
    printed(&run(&[&words[..], &["--dry-run", "--passphrase-file", secret]].concat(), None, ""));
    assert!(!new.exists(), "a dry run makes nothing");
    let input = format!("{PASSPHRASE}\n");
    printed(&run(&[&words[..], &["--passphrase-file", "-"]].concat(), None, &input));
    assert_eq!(mode(&new), 0o700);
    let elsewhere = world.path("elsewhere");
    printed(&run(&restore(&file, &elsewhere), Some(PASSPHRASE), ""));
}

#[test]
fn a_backup_for_a_public_key_is_read_by_the_private_key() {
    let world = World::new();
    let key = |name: &str| {
        let file = world.path(name);
        let words = ["backup-key", file.to_str().unwrap()];
        let public = printed(&run(&words, None, "")).trim().to_owned();
        assert_eq!(mode(&file), 0o600);
        assert!(fault(&run(&words, None, "")).contains("is there already"));
        (file, public)
    };
    let ((mine, public), (others, _)) = (key("mine"), key("others"));
    let file = world.path("state.age");
    world.text(&["backup", file.to_str().unwrap(), "--encrypt-to", &public]);
    let new = world.path("new");
    let words = restore(&file, &new);
    assert!(fault(&run(&words, None, "")).contains("with --identity"));
    let with =
        |key: &Path| run(&[&words[..], &["--identity", key.to_str().unwrap()]].concat(), None, "");
    assert!(fault(&with(&others)).contains("none of the private keys"));
    assert!(fault(&with(&file)).contains("can't be read") || !new.exists());
    assert!(!new.exists(), "nothing is restored");
    printed(&with(&mine));
    let told = world.fault(&["backup", "x", "--encrypt-to", "age1nonsense"]);
    assert!(told.contains("is no public key of age"), "{told}");
    let both = ["backup", "x", "--encrypt-to", &public, "--passphrase-file", "-"];
    assert!(world.fault(&both).contains("cannot be used with"));
}

#[test]
fn whatever_the_umask_is_nobody_else_reads_a_backup() {
    let world = World::new();
    let file = world.path("state.backup");
    // A file of an older version, and a temporary file that other users may read.
    for name in ["state.backup", "state.backup.part"] {
        fs::write(world.path(name), "old").unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    let token = world.path("token");
    let order = format!(
        "umask 000; exec {BINARY} backup {} --force --admin http://{} --token-file {}",
        file.display(),
        world.address,
        token.display(),
    );
    let output = Command::new("sh").args(["-c", &order]).output().unwrap();
    printed(&output);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("the backup is not encrypted"), "{told}");
    assert_eq!(mode(&file), 0o600);
    assert!(!world.path("state.backup.part").exists());
}

#[test]
fn a_nodes_folder_is_closed_to_others_also_one_that_was_open() {
    let world = World::new();
    let data = world.path("data");
    let check = |folder: &Path| {
        assert_eq!(mode(folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let closed = if entry.metadata().unwrap().is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&entry.path()), closed, "{}", entry.path().display());
        }
    };
    check(&data);
    let folder = world.stop();
    let open = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["speeds", "limits", "snapshots/0.damaged"] {
        fs::write(data.join(name), "old").unwrap();
        open(&data.join(name), 0o644);
    }
    for name in ["log.redb", "witness"] {
        open(&data.join(name), 0o644);
    }
    open(&data.join("snapshots"), 0o755);
    open(&data, 0o755);
    let words = ["force-new-cluster", "--node", "a", "--region", "eu", "--yes", "--folder"];
    printed(&run(&[&words[..], &[data.to_str().unwrap()]].concat(), None, ""));
    check(&data);
    check(&data.join("snapshots"));
    drop(folder);
}
