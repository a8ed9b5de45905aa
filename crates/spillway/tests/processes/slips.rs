//! Slips in configs, and the messages of `spillway config check` about them.
//!
//! Each file `slips/NAME.toml` has a slip; `slips/NAME.txt` is the output of the check. After a
//! change of texts, `SPILLWAY_SLIPS_WRITE=1` writes the outputs again; read them before you keep
//! them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variables that a file names in a comment on its first line.
fn variables(text: &str) -> Vec<(&str, &str)> {
    let line = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
    line.split(' ').filter_map(|pair| pair.split_once('=')).collect()
}

/// Returns everything that the check prints of a file, and its exit code.
fn check(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let checked = Command::new(env!("CARGO_BIN_EXE_spillway"))
        .args(["config", "check"])
        .arg(file.file_name().unwrap())
        .current_dir(file.parent().unwrap())
        .env_remove("SPILLWAY_SLIPS_WRITE")
        .env_remove("SPILLWAY_CONFIG")
        .envs(variables(&text))
        .output()
        .unwrap();
    let printed = [checked.stderr, checked.stdout].concat();
    let code = checked.status.code().unwrap();
    format!("{}exit code {code}\n", String::from_utf8(printed).unwrap())
}

#[test]
fn each_slip_is_told_as_it_is_on_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/slips");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it == "toml")).collect();
    files.sort();
    assert!(files.len() >= 25, "{files:?}");
    let mut wrong = Vec::new();
    for file in files {
        let told = check(&file);
        let expected = file.with_extension("txt");
        if std::env::var_os("SPILLWAY_SLIPS_WRITE").is_some() {
            std::fs::write(&expected, &told).unwrap();
        }
        if std::fs::read_to_string(&expected).ok() != Some(told.clone()) {
            wrong.push(format!("{}:\n{told}", file.display()));
        }
    }
    let remedy = "if that is what it should say, run again with SPILLWAY_SLIPS_WRITE=1";
    assert!(wrong.is_empty(), "{}\n{remedy}", wrong.join("\n"));
}
